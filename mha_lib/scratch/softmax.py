"""Softmax and its gradient."""

import numpy as np

from mha_lib import validate


def softmax(scores, axis=-1, out=None):
    """Turn scores into weights that are positive and sum to 1 along ``axis``; same shape.

    The maximum is subtracted first, so that no exponential overflows. -inf gets weight 0, and
    where all scores are -inf all weights are 0. ``out`` is an array to write into; it may be
    ``scores`` itself.

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 1000.0]]))
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    validate.floats(np.ndarray, scores=scores)
    lowest = np.finfo(scores.dtype).min  # nothing allowed: exp(-inf - lowest) is the 0 we want
    top = scores.max(axis=axis, keepdims=True, initial=lowest)
    weights = np.subtract(scores, top, out=out)
    np.exp(weights, out=weights)
    total = weights.sum(axis=axis, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    return weights


def softmax_backward(grad_weights, weights, axis=-1):
    """Gradient of the scores from the gradient of the weights: a * (g - sum(g * a)).

    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    array([ 0.25, -0.25])
    """
    mean = (grad_weights * weights).sum(axis=axis, keepdims=True)
    return weights * (grad_weights - mean)
