"""Small experiments that chapters run and pictures show."""

import numpy as np

from mha_lib.scratch import multi_head_attention, softmax


def spread_and_largest(d_k, scale, queries=400, keys=16):
    """Draw random queries and keys of width ``d_k`` and look at their scores.

    Returns the standard deviation of scale * q . k, and the mean of each query's largest weight.
    All entries are independent and normal with variance 1; the draw is the same at every call.

    >>> spread, largest = spread_and_largest(256, scale=1)
    >>> bool(14 < spread < 18 and 0.8 < largest < 1)
    True
    """
    rng = np.random.default_rng(d_k)
    query = rng.normal(size=(queries, 1, d_k))
    key = rng.normal(size=(queries, keys, d_k))
    scores = scale * (query @ key.swapaxes(-1, -2))  # (queries, 1, keys)
    return scores.std(), softmax(scores).max(axis=-1).mean()


def influence(x, projections, num_heads, mask):
    """How far each output (row) of self-attention moves when one token (column) is changed.

    ``x`` is (n, d_model), one sentence; every feature of the changed token grows by 1. Returns
    (n, n): the largest move of any feature, exactly 0 where nothing moves.

    >>> from mha_lib import masks, scratch
    >>> rng = np.random.default_rng(0)
    >>> x, projections = rng.normal(size=(2, 4)), scratch.Projections.random(4, rng)
    >>> moves = influence(x, projections, num_heads=2, mask=masks.causal(2))
    >>> bool(moves[0, 1] == 0), bool(moves[1, 0] > 0)
    (True, True)
    """
    n = len(x)
    before, _ = multi_head_attention(x, x, x, projections, num_heads, mask)
    changed = np.repeat(x[None], n, axis=0)  # (n, n, d_model): n copies of the sentence
    changed[range(n), range(n)] += 1  # copy j has token j changed
    after, _ = multi_head_attention(changed, changed, changed, projections, num_heads, mask)
    return np.abs(after - before).max(axis=-1).T
