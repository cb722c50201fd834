"""Scaled dot-product attention in NumPy, forward and backward.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
"""

from typing import NamedTuple

import numpy as np

from mha_lib import masks, validate
from mha_lib.scratch.softmax import softmax, softmax_backward


class AttentionGradients(NamedTuple):
    """Gradients of attention's inputs, each in its input's shape; ``bias`` is None if none came."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    bias: np.ndarray | None


@np.errstate(over="ignore", invalid="ignore")
def scaled_dot_product_attention(
    query, key, value, mask=None, bias=None, *, causal=False, scale=None
):
    """Mix the values of each query's allowed keys: softmax(scale * Q K^T + bias) V.

    Shapes: query (..., n_q, d_k), key (..., n_kv, d_k), value (..., n_kv, d_v); ``mask`` (True =
    may attend) and ``bias`` broadcast to (..., n_q, n_kv). ``causal`` hides the future as
    masks.causal does, beside ``mask``. ``scale`` is 1/sqrt(d_k) unless given.
    Returns output (..., n_q, d_v) and weights (..., n_q, n_kv). float16 is computed in float32.
    A query with no allowed key gets zeros; one that may attend to inf or NaN gets NaN.
    Raises TypeError or ValueError for a wrong dtype, shape, mask or scale.

    >>> query, key = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> output, weights = scaled_dot_product_attention(query, key, value=np.eye(3))
    >>> weights.round(3)
    array([[0.198, 0.401, 0.401]])
    """
    allowed, scale = arguments(query, key, value, mask, bias, causal, scale)
    q, k, v, spoiled = _set_aside_nonfinite(query, key, value, allowed)
    scores = q @ k.swapaxes(-1, -2)  # (..., n_q, n_kv)
    scores *= scale
    if bias is not None:
        scores += bias
    weights = _masked_softmax(scores, allowed, spoiled)
    output = weights @ v  # (..., n_q, d_v)
    return output.astype(query.dtype, copy=False), weights.astype(query.dtype, copy=False)


@np.errstate(over="ignore", invalid="ignore")
def scaled_dot_product_attention_backward(
    grad_output, query, key, value, mask=None, bias=None, *, causal=False, scale=None
):
    """Gradients of query, key, value and bias from the gradient of the output (..., n_q, d_v).

    The other arguments are those of the forward call, which is run again for its weights.

    >>> query, key, value = np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [3.0]])
    >>> scaled_dot_product_attention_backward(np.ones((1, 1)), query, key, value).value
    array([[0.5],
           [0.5]])
    """
    allowed, scale = arguments(query, key, value, mask, bias, causal, scale)
    validate.gradient(grad_output, query, value.shape[-1])
    grad, q, k, v = (widen(a) for a in (grad_output, query, key, value))
    wide_bias = None if bias is None else widen(bias)
    _, weights = scaled_dot_product_attention(q, k, v, mask, wide_bias, causal=causal, scale=scale)
    q, k, v, _ = _set_aside_nonfinite(q, k, v, allowed)
    grad_weights = _hide(grad @ v.swapaxes(-1, -2), allowed)  # (..., n_q, n_kv)
    grad_scores = _hide(softmax_backward(grad_weights, weights), allowed)
    gradients = AttentionGradients(
        query=scale * (grad_scores @ k),
        key=scale * (grad_scores.swapaxes(-1, -2) @ q),
        value=weights.swapaxes(-1, -2) @ grad,
        bias=None if bias is None else sum_to_shape(grad_scores, bias.shape),
    )
    return AttentionGradients(
        *(g if g is None else g.astype(query.dtype, copy=False) for g in gradients)
    )


def sum_to_shape(array, shape):
    """Undo broadcasting in a gradient: sum the axes along which ``shape`` was repeated.

    >>> sum_to_shape(np.ones((2, 3, 4)), (3, 1)).tolist()
    [[8.0], [8.0], [8.0]]
    """
    extra = array.ndim - len(shape)
    array = array.sum(axis=tuple(range(extra)))
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return array.sum(axis=repeated, keepdims=True)


def widen(array):
    """float16 as float32, everything else as it is.

    >>> widen(np.ones(2, np.float16)).dtype
    dtype('float32')
    """
    return array.astype(np.float32) if array.dtype == np.float16 else array


def arguments(query, key, value, mask, bias, causal, scale):
    """Check everything; the positions that may be attended to (None = all) and the scale."""
    validate.floats(np.ndarray, query=query, key=key, value=value)
    validate.attention_inputs(query, key, value)
    validate.flag("causal", causal)
    validate.scale(scale)
    n_q, n_kv = query.shape[-2], key.shape[-2]
    shape = (*query.shape[:-2], n_q, n_kv)
    if mask is not None:
        masks.check(mask, shape)
    if bias is not None:
        _check_bias(bias, query, shape)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return masks.allowed(mask, causal, n_q, n_kv), scale


def _check_bias(bias, query, shape):
    validate.floats(np.ndarray, query=query, bias=bias)
    validate.broadcasts("bias", bias, shape)
    if not np.isfinite(bias).all():
        raise ValueError("bias must be finite, got inf or NaN: positions are hidden by mask")


def _set_aside_nonfinite(query, key, value, allowed):
    """Zeros for every row with inf or NaN, and the places (or None) that such a row spoils.

    0 * NaN is NaN, so a forbidden row must be out of the way before any product is formed.
    """
    q, k, v = (widen(a) for a in (query, key, value))
    finite_q, finite_k, finite_v = (np.isfinite(a).all(axis=-1) for a in (q, k, v))
    if finite_q.all() and finite_k.all() and finite_v.all():
        return q, k, v, None
    spoiled = ~(finite_q[..., :, None] & (finite_k & finite_v)[..., None, :])  # (..., n_q, n_kv)
    spoiled = _hide(spoiled, allowed)
    q, k, v = (
        np.where(ok[..., None], a, 0) for ok, a in ((finite_q, q), (finite_k, k), (finite_v, v))
    )
    return q, k, v, spoiled


def _masked_softmax(scores, allowed, spoiled):
    """Softmax over the allowed keys; a query that meets a spoiled row gets NaN for all of them."""
    if spoiled is not None:
        scores[spoiled] = np.nan
    if allowed is not None:
        np.copyto(scores, -np.inf, where=~allowed)
    weights = softmax(scores, out=scores)
    return weights if spoiled is None else _hide(weights, allowed)


def _hide(array, allowed):
    """Zero at the forbidden places, whatever stood there."""
    return array if allowed is None else np.where(allowed, array, np.zeros((), array.dtype))
