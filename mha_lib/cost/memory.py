"""How many numbers a layer learns, stores and moves.

Sources: Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory"; Dao et al. 2022,
"FlashAttention", section 3, for what a kernel by tiles reads and writes.
"""

from mha_lib import validate
from mha_lib.cost.checks import lengths, not_negative, positive
from mha_lib.cost.flops import PER_WEIGHT, kv_width
from mha_lib.cost.shapes import LayerShape


def parameters(shape, biases=False):
    """How many numbers the four matrices hold, with their ``biases`` if asked.

    >>> parameters(LayerShape(512, 8)), parameters(LayerShape(512, 64)), 4 * 512**2
    (1048576, 1048576, 1048576)
    """
    validate.instance("shape", shape, LayerShape)
    validate.flag("biases", biases)
    queries, concat = shape.num_heads * shape.d_k, shape.num_heads * shape.d_v
    matrices = shape.d_model * (queries + kv_width(shape) + concat)
    return matrices + biases * (queries + kv_width(shape) + shape.d_model)


def score_numbers(shape, n_q, n_kv=None):
    """How many scores there are, and weights: one a head, query and key.

    >>> [score_numbers(LayerShape(512, h), 1024) * 4 // 2**20 for h in (1, 8, 64)]  # MiB, float32
    [4, 32, 256]
    """
    n_q, n_kv = _arguments(shape, n_q, n_kv)
    return shape.num_heads * n_q * n_kv


def kept_for_backward(shape, n, *, tiled):
    """How many numbers self-attention keeps for the backward pass.

    They are the queries, keys, values and concatenated heads, and then the weights, or, ``tiled``,
    one log-sum-exp a head and query from which the weights are computed again. The layer's input,
    n * d_model numbers that belong to the layer before, is not counted; nor is dropout.

    >>> usual = LayerShape(d_model=512, num_heads=8)
    >>> kept_for_backward(usual, 4096, tiled=False), kept_for_backward(usual, 4096, tiled=True)
    (142606336, 8421376)
    """
    n, _ = _arguments(shape, n, None, name="n")
    validate.flag("tiled", tiled)
    rows = shape.num_heads * n
    return io_numbers(shape, n, n) + (rows if tiled else rows * n)


def io_numbers(shape, n_q, n_kv):
    """How many numbers go into the attention core and come out: queries, keys, values, output.

    >>> io_numbers(LayerShape(512, 8), 1024, 1024) == 4 * 1024 * 512
    True
    """
    return n_q * shape.num_heads * (shape.d_k + shape.d_v) + n_kv * kv_width(shape)


def traffic_bytes(shape, n_q, n_kv=None, *, tiled, bytes_per_number, extra_passes=0):
    """Bytes that the attention core moves to and from memory, forward, on one sequence.

    Both forms read queries, keys and values and write the output, each once. The naive form also
    writes the scores, reads and writes them in the softmax and reads the weights. Each further
    pass over the scores, an unfused scaling or mask, reads and writes them again:
    ``extra_passes``. ``tiled`` is the ideal, in which scores never leave the chip; a real kernel
    reads keys and values once for every block of queries that it cannot keep at the same time.

    >>> usual, size = LayerShape(d_model=512, num_heads=8), {"bytes_per_number": 4}
    >>> traffic_bytes(usual, 1024, tiled=False, **size) // 2**20  # MiB
    136
    >>> traffic_bytes(usual, 1024, tiled=True, **size) // 2**20
    8
    """
    n_q, n_kv = _arguments(shape, n_q, n_kv)
    validate.flag("tiled", tiled)
    validate.count("extra_passes", extra_passes)
    positive("bytes_per_number", bytes_per_number)
    if tiled and extra_passes:
        raise ValueError(f"extra_passes must be 0 when tiled, got {extra_passes}")
    passes = 0 if tiled else 4 + 2 * extra_passes
    numbers = io_numbers(shape, n_q, n_kv) + passes * score_numbers(shape, n_q, n_kv)
    return numbers * bytes_per_number


def intensity(flops, num_bytes):
    """Arithmetic intensity, FLOP per byte moved.

    >>> intensity(flops=600, num_bytes=200)
    3.0
    """
    not_negative("flops", flops)
    positive("num_bytes", num_bytes)
    return flops / num_bytes


def limit_of_naive_intensity(shape, bytes_per_number, *, softmax=True):
    """FLOP per byte of the naive form in long sequences: (d_k + 7/4) / bytes, if d_v is d_k.

    The scores are then all that is moved, four times, and each of them is worth 2 d_k + 2 d_v
    FLOPs and the 7 operations of the softmax with its mask, which ``softmax=False`` leaves out. The
    number of heads matters only through d_k.

    >>> [limit_of_naive_intensity(LayerShape(512, h), 2, softmax=False) for h in (1, 8, 64)]
    [256.0, 32.0, 4.0]
    """
    validate.instance("shape", shape, LayerShape)
    validate.flag("softmax", softmax)
    positive("bytes_per_number", bytes_per_number)
    per_score = 2 * (shape.d_k + shape.d_v) + softmax * (PER_WEIGHT + 1)
    return per_score / (4 * bytes_per_number)


def _arguments(shape, n_q, n_kv, name="n_q"):
    validate.instance("shape", shape, LayerShape)
    validate.positive_integer(name, n_q)
    return lengths(n_q, n_kv)
