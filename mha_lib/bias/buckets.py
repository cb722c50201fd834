"""T5's relative positions: one learned number a head for each bucket of distances.

Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1; the rule itself is in the authors' code.
"""

from bisect import bisect_left

import numpy as np

from mha_lib import arrays, validate
from mha_lib.positions import aligned


def t5_buckets(n_q, n_kv=None, *, bidirectional, num_buckets=32, max_distance=128, device=None):
    """The bucket (n_q, n_kv) of each query and key, integers from 0 to num_buckets - 1.

    Half of the buckets hold one distance each, 0, 1, 2, ...; the others widen by a constant factor
    up to ``max_distance``, and everything beyond is in the last. ``bidirectional`` (an encoder)
    keeps the first half of all buckets for the query's own position and the past, the second for
    the future; a decoder sets it to False: a future key, masked anyway, falls into bucket 0. The
    queries are the last n_q of n_kv positions.

    >>> t5_buckets(1, 10, bidirectional=False, num_buckets=6, max_distance=8)
    array([[5, 5, 5, 5, 4, 3, 3, 2, 1, 0]])
    >>> t5_buckets(3, bidirectional=True)
    array([[ 0, 17, 18],
           [ 1,  0, 17],
           [ 2,  1,  0]])
    """
    one_way = _one_way(bidirectional, num_buckets, max_distance)
    query, key = aligned(n_q, n_kv)
    distance = query - key  # (n_q, n_kv), negative for the future
    past = abs(distance) if bidirectional else np.maximum(distance, 0)
    buckets = np.searchsorted(_starts(one_way, max_distance), past, side="right")
    if bidirectional:
        buckets += one_way * (distance < 0)
    return arrays.on_device(buckets, device)


def t5_bias(table, buckets):
    """Look up the bias (num_heads, n_q, n_kv) in a learned ``table`` (num_buckets, num_heads).

    Both arrays or both tensors; gradients reach a tensor's table.

    >>> t5_bias(np.array([[0.5], [0.25]]), np.array([[0, 1, 1]]))
    array([[[0.5 , 0.25, 0.25]]])
    """
    _check_lookup(table, buckets)
    return table.T[:, buckets]


def _starts(num_buckets, max_distance):
    """The smallest distance of buckets 1, 2, ...: single steps, then a geometric series rounded up.

    Bucket exact + t begins where distance / exact reaches (max_distance / exact)^(t / wide). Both
    sides to the power of wide, that compares whole numbers, which no rounding can disturb.
    """
    exact = num_buckets // 2
    wide = num_buckets - exact
    candidates = range(exact, max_distance + 1)
    steps = (exact ** (wide - t) * max_distance**t for t in range(1, wide))
    far = [exact + bisect_left(candidates, step, key=lambda d: d**wide) for step in steps]
    return [*range(1, exact + 1), *far]


def _one_way(bidirectional, num_buckets, max_distance):
    """How many buckets one direction has, after a check of the sizes."""
    validate.flag("bidirectional", bidirectional)
    validate.positive_integer("num_buckets", num_buckets)
    validate.positive_integer("max_distance", max_distance)
    directions = 2 if bidirectional else 1
    if num_buckets < 2 * directions or num_buckets % directions:
        kind = "even and at least 4" if bidirectional else "at least 2"
        raise ValueError(f"num_buckets must be {kind}, got {num_buckets}")
    one_way = num_buckets // directions
    if max_distance <= one_way // 2:
        raise ValueError(
            f"max_distance must be greater than {one_way // 2}, the number of buckets with a "
            f"single distance, got {max_distance}"
        )
    return one_way


def _check_lookup(table, buckets):
    arrays.library("table", table)
    validate.floats(type(table), table=table)
    arrays.same_library(table, buckets=buckets)
    if not arrays.is_integer(buckets):
        raise TypeError(f"buckets must be whole numbers, got {validate.dtype_name(buckets)}")
    _two_axes("table", table, "(num_buckets, num_heads)")
    _two_axes("buckets", buckets, "(n_q, n_kv)")
    if 0 in buckets.shape:
        return
    lowest, highest = int(buckets.min()), int(buckets.max())
    if not 0 <= lowest <= highest < len(table):
        raise ValueError(
            f"buckets must lie below num_buckets = {len(table)}, got {lowest} to {highest}"
        )


def _two_axes(name, array, shape):
    if array.ndim != 2:
        raise ValueError(f"{name} must be {shape}, got shape {tuple(array.shape)}")
