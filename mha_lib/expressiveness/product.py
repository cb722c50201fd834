"""What a single softmax makes of two patterns: a product, a compromise, and what is left in it."""

import numpy as np

from mha_lib.expressiveness.tasks import signs
from mha_lib.scratch import softmax


def wide_weights(weights):
    """Weights of the one wide head that has all queries and keys of the heads (h, ..., n_kv).

    Its scores are the sum of theirs over √h, so its weights are the normalised product of their
    weights, each to the power 1/√h.

    >>> sharp = np.array([[0.98, 0.01, 0.01], [0.01, 0.98, 0.01]])
    >>> wide_weights(sharp).round(3)
    array([0.49 , 0.49 , 0.019])
    """
    product = np.prod(weights ** len(weights) ** -0.5, axis=0)
    return product / product.sum(axis=-1, keepdims=True)


def mirrored_heads(beta):
    """Two heads over three keys, with score β on their own key (0 and 1) and -β on the others.

    >>> mirrored_heads(1).round(3)
    array([[0.787, 0.107, 0.107],
           [0.107, 0.787, 0.107]])
    """
    return softmax(beta * (2 * np.eye(2, 3) - 1))


def whole_number_heads():
    """Weights (2, 4, 4) of two heads with d_k = 1 whose mean takes one head with d_k = 3.

    >>> from mha_lib.expressiveness import bounds
    >>> heads = whole_number_heads()
    >>> [bounds.needed_d_k(weights) for weights in (*heads, heads.mean(axis=0))]
    [1, 1, 3]
    """
    query = np.array([[1.0, -1, 2, 1], [2, 1, 0, 0]])
    key = np.array([[0.0, -1, 1, 2], [1, 2, 0, -1]])
    return softmax(query[:, :, None] * key[:, None, :])


def best_read_out(a):
    """The best W^V W^O, a row for two slots, of one head on Task A with weights (a, 1 - a)."""
    pattern = np.array([a, 1 - a])
    return pattern / (pattern @ pattern)


def compromise(a, read_out=None):
    """Relative loss, and largest error, of one head on Task A with weights (a, 1 - a).

    With the best read-out the loss is ½ for every a: a flat valley.

    >>> [round(compromise(a)[0], 6) for a in (0, 0.25, 0.5)]
    [0.5, 0.5, 0.5]
    >>> [round(compromise(a, read_out=[1, 1])[0], 4) for a in (0, 0.25, 0.5)]
    [1.0, 0.625, 0.5]
    """
    read_out = best_read_out(a) if read_out is None else read_out
    sign = signs(2)
    distance = np.linalg.norm(np.outer(sign @ [a, 1 - a], read_out) - sign, axis=1)
    return float((distance**2).mean() / 2), float(distance.max())


def decoded(pooled):
    """Both bits out of the one number 2/3 σ_1 + 1/3 σ_2: two ReLUs and the residual path.

    ``pooled`` is (...); returns (..., 2). The limit of one head binds the linear read-out only.

    >>> decoded(np.array([1, 1 / 3, -1 / 3, -1])).round(9).tolist()
    [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
    """
    first = np.maximum(3 * pooled + 1, 0) - np.maximum(3 * pooled - 1, 0) - 1
    return np.stack([first, 3 * pooled - 2 * first], axis=-1)
