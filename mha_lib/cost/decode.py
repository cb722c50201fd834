"""What writing one token after the other costs, with a key-value cache and without.

Sources: Shazeer 2019, "Fast Transformer Decoding" (what binds, and sharing keys and values),
Ainslie et al. 2023, "GQA" (groups of heads that share them).
"""

from mha_lib import validate
from mha_lib.cost.checks import positive
from mha_lib.cost.flops import kv_width, matmul_flops, pair_flops, token_flops
from mha_lib.cost.shapes import LayerShape, layer_and_count


def step_flops(shape, t, *, cached, causal=False):
    """FLOPs of the matrix products of one layer in the step that attends to t keys, its own too.

    ``cached`` projects the new token alone and attends with one query; without a cache all t
    tokens go through the layer again, ``causal`` counting their allowed pairs only. With every
    pair counted the two differ by a factor of exactly t.

    >>> usual = LayerShape(d_model=512, num_heads=8)
    >>> step_flops(usual, 1024, cached=False) // step_flops(usual, 1024, cached=True)
    1024
    """
    _check(shape, "t", t, cached, causal)
    if not cached:
        return matmul_flops(shape, t, causal=causal)
    return token_flops(shape) + pair_flops(shape) * t  # the last query sees all, causal or not


def total_flops(shape, tokens, *, cached, causal=False):
    """FLOPs of the matrix products of one layer over the steps t = 1, 2, ..., ``tokens``.

    >>> usual = LayerShape(d_model=512, num_heads=8)
    >>> steps = [step_flops(usual, t, cached=True) for t in (1, 2, 3)]
    >>> total_flops(usual, 3, cached=True) == sum(steps)
    True
    """
    _check(shape, "tokens", tokens, cached, causal)
    positions = tokens * (tokens + 1) // 2  # the sum of t
    if cached:
        return token_flops(shape) * tokens + pair_flops(shape) * positions
    squares = positions * (2 * tokens + 1) // 3  # the sum of t²
    triangles = positions * (tokens + 2) // 3  # the sum of t(t + 1) / 2
    looked_at = triangles if causal else squares
    return token_flops(shape) * positions + pair_flops(shape) * looked_at


def cache_bytes(shape, tokens, bytes_per_number=2, batch=1):
    """Bytes of the keys and values of ``tokens`` tokens, in a layer or in a whole model.

    ``shape`` is a LayerShape or a ModelShape; ``batch`` sequences have a cache each. Two bytes a
    number are float16 or bfloat16.

    >>> from mha_lib.cost.shapes import MODELS
    >>> {name: cache_bytes(MODELS[name], 1) // 1024 for name in ("LLaMA-2 7B", "LLaMA-2 70B")}
    {'LLaMA-2 7B': 512, 'LLaMA-2 70B': 320}
    """
    layer, num_layers = layer_and_count(shape)
    validate.count("tokens", tokens)
    validate.positive_integer("batch", batch)
    positive("bytes_per_number", bytes_per_number)
    return batch * tokens * num_layers * kv_width(layer) * bytes_per_number


def cache_intensity(shape, bytes_per_number=2):
    """FLOP per byte of cache that a decoding step reads: (2 / bytes) * num_heads / num_kv_heads.

    Neither the number of tokens nor the batch matters, since each sequence reads its own cache.

    >>> [cache_intensity(LayerShape(8192, 64, num_kv_heads=kv)) for kv in (64, 8, 1)]
    [1.0, 8.0, 64.0]
    """
    layer, _ = layer_and_count(shape)
    positive("bytes_per_number", bytes_per_number)
    return pair_flops(layer) / (kv_width(layer) * bytes_per_number)


def weight_intensity(batch, bytes_per_number=2):
    """FLOP per byte of weights that a decoding step reads: one multiply-add for each sequence.

    >>> weight_intensity(batch=1), weight_intensity(batch=256)
    (1.0, 256.0)
    """
    validate.positive_integer("batch", batch)
    positive("bytes_per_number", bytes_per_number)
    return 2 * batch / bytes_per_number


def _check(shape, name, tokens, cached, causal):
    validate.instance("shape", shape, LayerShape)
    validate.positive_integer(name, tokens)
    validate.flag("cached", cached)
    validate.flag("causal", causal)
