"""ALiBi: a penalty that grows with the distance, at a fixed slope a head.

Source: Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input
Length Extrapolation".
"""

import numpy as np

from mha_lib import arrays, validate
from mha_lib.positions import aligned


def alibi_slopes(num_heads):
    """The slopes (num_heads,), positive: 2^(-8 i / num_heads) for head i = 1, 2, ...

    For a number that is no power of two, the slopes of the next smaller one come first; the rest
    are every other slope of twice as many heads, as the authors' code does.

    >>> alibi_slopes(4)
    array([0.25      , 0.0625    , 0.015625  , 0.00390625])
    >>> alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ])
    """
    validate.positive_integer("num_heads", num_heads)
    power = 1 << (int(num_heads).bit_length() - 1)  # the largest power of two that fits
    whole = np.arange(1, power + 1) / power
    between = np.arange(1, 2 * power, 2) / (2 * power)
    return 2.0 ** (-8 * np.concatenate([whole, between])[:num_heads])


def alibi(num_heads, n_q, n_kv=None, *, dtype=None, device=None):
    """The bias (num_heads, n_q, n_kv): minus a head's slope times the distance to the key.

    The queries are the last n_q of n_kv positions, as in masks.causal. A future key is as far away
    as a past one: bias hides nothing, and a decoder passes a causal mask beside it.
    ``dtype`` is that of the queries: float64 unless given, on a ``device`` torch's default.

    >>> alibi(1, 3) * 256
    array([[[ 0., -1., -2.],
            [-1.,  0., -1.],
            [-2., -1.,  0.]]])
    """
    slopes = alibi_slopes(num_heads)
    query, key = aligned(n_q, n_kv)
    table = slopes[:, None, None] * -abs(query - key)  # (num_heads, n_q, n_kv)
    return arrays.floats(table, dtype, device)
