"""Small experiments that chapters run and pictures show."""

import numpy as np

from mha_lib.scratch import softmax


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
