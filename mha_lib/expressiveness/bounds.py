"""What no layer of a kind can do better, computed from the task or from the keys."""

import math

import numpy as np

from mha_lib import validate


def span(tokens):
    """Dimension of the affine space that tokens (..., d) lie in.

    >>> span(np.array([[1.0, 0.0], [-1.0, 0.0], [3.0, 0.0]]))
    1
    """
    tokens = tokens.reshape(-1, tokens.shape[-1])
    return int(np.linalg.matrix_rank(tokens - tokens.mean(axis=0)))


def eigenvalues(task):
    """Eigenvalues of the covariance of each query's target, (n_q, d_out), largest first.

    >>> from mha_lib.expressiveness import tasks
    >>> eigenvalues(tasks.bits()).round(6).tolist()
    [[1.0, 1.0]]
    """
    target = task.listed().target
    centred = (target - target.mean(axis=0)).swapaxes(0, 1)  # (n_q, N, d_out)
    covariance = centred.swapaxes(-1, -2) @ centred / len(target)
    return np.linalg.eigvalsh(covariance)[:, ::-1].clip(0)


def subspace(task, num_heads):
    """The loss below which no layer of ``num_heads`` heads gets, whatever its widths and weights.

    If the value tokens span r dimensions, a head's answers do too, and those of g heads g r. What
    the target varies in the remaining directions is lost: the eigenvalues after the first g r.

    >>> from mha_lib.expressiveness import tasks
    >>> [round(subspace(tasks.bits(3), heads), 6) for heads in (1, 2, 3)]
    [2.0, 1.0, 0.0]
    """
    reach = num_heads * span(task.listed().value)
    return float(eigenvalues(task)[:, reach:].sum())


def three_keys(num_heads):
    """The exact infimum of Task B with d_model = 2: 0 for one head, 1 for two with d_k = 1."""
    validate.divisible("d_model", 2, num_heads)
    return float(num_heads - 1)


def worst_subset(d_k):
    """What some query of tasks.subsets errs at least, with several heads that share d_model.

    It takes n >= d_k + 2 keys and all sets of up to ⌊d_k / 2⌋ + 1 of them among the queries.

    >>> worst_subset(1), worst_subset(2)
    (0.5, 0.125)
    """
    return 1 / (2 * (d_k // 2 + 1) ** 2)


def cover(n, d_k):
    """How many of the 2^n subsets of n keys in general position some query can prefer (Cover 1965).

    All of them up to n = d_k + 1, the VC dimension.

    >>> cover(3, 2), cover(4, 2), cover(6, 4)
    (8, 14, 62)
    """
    return 2 * sum(math.comb(n - 1, i) for i in range(d_k + 1))


def radon(key):
    """Two groups of d_k + 2 keys whose convex hulls meet: (belongs to the first, point in both).

    No query separates them: its score at the point is a mean of scores of either group.

    >>> radon(np.array([[0.0], [1.0], [4.0]]))
    (array([False,  True, False]), array([1.]))
    """
    n, d_k = key.shape
    if n != d_k + 2:
        raise ValueError(f"key must have d_k + 2 = {d_k + 2} rows, got {n}")
    dependence = np.linalg.svd(np.vstack([key.T, np.ones(n)]))[2][-1]  # sums to 0, also times key
    groups = dependence > 1e-12, dependence < -1e-12
    first = min(groups, key=lambda group: (group.sum(), not group[0]))
    share = dependence[first] / dependence[first].sum()
    return first, share @ key[first]


def centred_logits(weights):
    """log P minus its row means: the part of the scores that the weights fix."""
    logits = np.log(weights)
    return logits - logits.mean(axis=1, keepdims=True)


def needed_d_k(weights, tolerance=1e-9):
    """The smallest d_k with which one head, free to choose q_i and k_j, has exactly these weights.

    ``weights`` (n_q, n_kv) are positive and each row sums to 1. It is the rank of centred_logits.

    >>> needed_d_k(np.full((2, 2), 0.5)), needed_d_k(np.array([[0.8, 0.2], [0.3, 0.7]]))
    (0, 1)
    """
    return int(np.linalg.matrix_rank(centred_logits(weights), tol=tolerance))


def factored(weights, d_k):
    """Queries (n_q, d_k) and keys (n_kv, d_k) whose scaled scores come closest to these weights'.

    With d_k >= needed_d_k the softmax of q k^T / √d_k is exactly ``weights``.
    """
    left, size, right = np.linalg.svd(centred_logits(weights), full_matrices=False)
    root = np.sqrt(size[:d_k] * math.sqrt(d_k))
    return left[:, :d_k] * root, right[:d_k].T * root
