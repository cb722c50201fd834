"""How many operations a layer takes, stage by stage; a multiply-add is 2 FLOPs.

An (n, k) by (k, m) product takes 2nkm FLOPs: each of its nm numbers is a sum of k products, the
first of them added to 0. Everything here follows from that and from the layer's definition in
Vaswani et al. 2017, section 3.2.2.
"""

from mha_lib import validate
from mha_lib.cost.checks import lengths
from mha_lib.cost.shapes import LayerShape

PER_WEIGHT = 6  # scale, maximum, subtract, exp, sum, divide; a mask or bias adds a seventh


def pairs(n_q, n_kv=None, *, causal=False):
    """How many (query, key) pairs one head looks at; without future ones if ``causal``.

    The queries are the last n_q positions: key j is allowed for query i when
    j <= i + n_kv - n_q. With more queries than keys the first ones see nothing.

    >>> pairs(4), pairs(4, causal=True), pairs(2, 5, causal=True), pairs(5, 2, causal=True)
    (16, 10, 9, 3)
    """
    n_q, n_kv = lengths(n_q, n_kv)
    validate.flag("causal", causal)
    if not causal:
        return n_q * n_kv
    seeing = min(n_q, n_kv)  # the last query sees n_kv keys, each one before it sees one fewer
    return seeing * n_kv - seeing * (seeing - 1) // 2


def flops_by_stage(shape, n_q, n_kv=None, *, causal=False, masked=True):
    """FLOPs of one layer on one sequence, by stage and in the order of the computation.

    "projections" are those of query, key and value. ``causal`` counts allowed pairs alone, as a
    kernel that skips the future does. ``masked`` counts one addition a weight for a mask or bias.

    >>> stages = flops_by_stage(LayerShape(d_model=512, num_heads=8), n_q=1024)
    >>> for stage, flops in stages.items():
    ...     print(f"{stage:11} {flops:10}")
    projections 1610612736
    scores      1073741824
    softmax       58703872
    values      1073741824
    output       536870912
    """
    n_q, n_kv = _arguments(shape, n_q, n_kv)
    s, looked_at = shape, pairs(n_q, n_kv, causal=causal)
    return {
        "projections": 2 * s.d_model * (n_q * s.num_heads * s.d_k + n_kv * kv_width(s)),
        "scores": 2 * s.num_heads * s.d_k * looked_at,
        "softmax": softmax_operations(s, n_q, n_kv, causal=causal, masked=masked),
        "values": 2 * s.num_heads * s.d_v * looked_at,
        "output": 2 * n_q * s.num_heads * s.d_v * s.d_model,
    }


def matmul_flops(shape, n_q, n_kv=None, *, causal=False):
    """FLOPs of a layer's matrix products: all stages but the softmax. No biases.

    >>> [matmul_flops(LayerShape(512, h), 1024) for h in (1, 8, 64)]
    [4294967296, 4294967296, 4294967296]
    """
    stages = flops_by_stage(shape, n_q, n_kv, causal=causal)
    return sum(stages.values()) - stages["softmax"]


def core_flops(shape, n_q, n_kv=None, *, causal=False, masked=True):
    """FLOPs of attention proper, between the projections: scores, softmax and values.

    >>> core_flops(LayerShape(512, 8), 1024) - core_flops(LayerShape(512, 1), 1024)
    51365888
    """
    stages = flops_by_stage(shape, n_q, n_kv, causal=causal, masked=masked)
    return stages["scores"] + stages["softmax"] + stages["values"]


def softmax_operations(shape, n_q, n_kv=None, *, causal=False, masked=True):
    """Operations between scores and weights, in all heads; an exponential counts as one.

    A weight takes a scaling, the mask's addition if ``masked``, a comparison for the maximum, a
    subtraction, an exponential, an addition and a division; maximum and sum of n numbers take
    n - 1 each.

    >>> softmax_operations(LayerShape(8, num_heads=2), n_q=3)  # 2 heads of 7 * 9 - 2 * 3
    114
    """
    n_q, n_kv = _arguments(shape, n_q, n_kv)
    validate.flag("masked", masked)
    rows = min(n_q, n_kv) if causal else n_q  # rows that have any weight
    per_head = (PER_WEIGHT + masked) * pairs(n_q, n_kv, causal=causal) - 2 * rows
    return shape.num_heads * per_head


def crossover(shape, *, causal=False, d_ff=0):
    """The sequence length n at which scores and values cost what all projections do, a float.

    ``d_ff`` adds a feed-forward block of two matrices to the projections' side. For the usual
    layer it is 2 d_model + d_ff, and with only the allowed pairs 4 d_model + 2 d_ff - 1: the
    diagonal, n(n + 1) / 2 and not n² / 2, takes the one.

    >>> usual = LayerShape(d_model=512, num_heads=8)
    >>> crossover(usual), crossover(usual, causal=True), crossover(usual, d_ff=2048)
    (1024.0, 2047.0, 3072.0)
    """
    validate.instance("shape", shape, LayerShape)
    validate.flag("causal", causal)
    validate.count("d_ff", d_ff)
    per_token = token_flops(shape) + 4 * shape.d_model * d_ff
    if causal:
        return 2 * per_token / pair_flops(shape) - 1
    return per_token / pair_flops(shape)


def token_flops(shape):
    """FLOPs that one token costs by itself: its four projections.

    >>> token_flops(LayerShape(512, 8)) == 8 * 512**2
    True
    """
    queries_and_output = shape.num_heads * (shape.d_k + shape.d_v)
    return 2 * shape.d_model * (queries_and_output + kv_width(shape))


def pair_flops(shape):
    """FLOPs that one pair of query and key costs in all heads together.

    >>> pair_flops(LayerShape(512, 8)) == 4 * 512
    True
    """
    return 2 * shape.num_heads * (shape.d_k + shape.d_v)


def kv_width(shape):
    """How many numbers one token's keys and values are, in all key-value heads.

    >>> kv_width(LayerShape(512, 8)), kv_width(LayerShape(512, 8, num_kv_heads=2))
    (1024, 256)
    """
    return shape.num_kv_heads * (shape.d_k + shape.d_v)


def _arguments(shape, n_q, n_kv):
    validate.instance("shape", shape, LayerShape)
    return lengths(n_q, n_kv)
