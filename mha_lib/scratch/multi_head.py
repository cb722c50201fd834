"""Multi-head attention in NumPy three times over: a loop, one reshape, a sum; and its gradients.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2. Tokens are rows and
matrices multiply from the right. query is (..., n_q, d_query), key (..., n_kv, d_key) and value
(..., n_kv, d_value): self-attention passes the same array three times, cross-attention the memory
as key and value.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mha_lib import masks, validate
from mha_lib.scratch.attention import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
    widen,
)
from mha_lib.scratch.heads import merge_heads, split_heads
from mha_lib.scratch.online import online_attention, online_attention_backward
from mha_lib.scratch.projections import Projections


class MultiHeadGradients(NamedTuple):
    """Gradients of a layer's inputs, learned matrices and score bias, in the shapes of these."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    projections: Projections
    bias: np.ndarray | None


def multi_head_attention_loop(
    query, key, value, projections, num_heads, mask=None, bias=None, *, causal=False, scale=None
):
    """Multi-head attention as its definition reads: one head after the other, then side by side.

    Arguments, results and errors are those of multi_head_attention.

    >>> x, p = np.eye(4), Projections(np.eye(4), np.eye(4), np.eye(4), np.eye(4))
    >>> output, weights = multi_head_attention_loop(x, x, x, p, num_heads=2)
    >>> output.shape, weights.shape
    ((4, 4), (2, 4, 4))
    """
    mask, bias = _arguments(query, key, value, projections, num_heads, mask, bias)
    p = projections
    q_full = affine(query, p.w_q, p.b_q)  # (..., n_q, h * d_k)
    k_full = affine(key, p.w_k, p.b_k)  # (..., n_kv, h * d_k)
    v_full = affine(value, p.w_v, p.b_v)  # (..., n_kv, h * d_v)
    heads, weights = [], []
    for i in range(num_heads):
        q_i, k_i, v_i = (_slice(full, i, num_heads) for full in (q_full, k_full, v_full))
        head_i, weights_i = scaled_dot_product_attention(
            q_i, k_i, v_i, _of_head(mask, i), _of_head(bias, i), causal=causal, scale=scale
        )  # (..., n_q, d_v), (..., n_q, n_kv)
        heads.append(head_i)
        weights.append(weights_i)
    concat = np.concatenate(heads, axis=-1)  # (..., n_q, h * d_v)
    output = affine(concat, p.w_o, p.b_o)  # (..., n_q, d_model)
    return _narrow(query.dtype, output, np.stack(weights, axis=-3))


def multi_head_attention(
    query, key, value, projections, num_heads, mask=None, bias=None, *, causal=False, scale=None
):
    """Multi-head attention with all heads at once: the head axis is one more batch axis.

    Returns output (..., n_q, d_model) and weights (..., num_heads, n_q, n_kv). ``mask`` and
    ``bias`` fit (..., n_q, n_kv) for all heads or (..., num_heads, n_q, n_kv) for each. float16 is
    computed in float32.
    Raises TypeError or ValueError for a wrong dtype, shape, number of heads or mask.

    >>> x, p = np.eye(4), Projections(np.eye(4), np.eye(4), np.eye(4), np.eye(4))
    >>> output, weights = multi_head_attention(x, x, x, p, num_heads=2)
    >>> np.allclose(output, multi_head_attention_loop(x, x, x, p, num_heads=2)[0])
    True
    """
    mask, bias = _arguments(query, key, value, projections, num_heads, mask, bias)
    p = projections
    q = split_heads(affine(query, p.w_q, p.b_q), num_heads)  # (..., h, n_q, d_k)
    k = split_heads(affine(key, p.w_k, p.b_k), num_heads)  # (..., h, n_kv, d_k)
    v = split_heads(affine(value, p.w_v, p.b_v), num_heads)  # (..., h, n_kv, d_v)
    heads, weights = scaled_dot_product_attention(q, k, v, mask, bias, causal=causal, scale=scale)
    output = affine(merge_heads(heads), p.w_o, p.b_o)  # (..., n_q, d_model)
    return _narrow(query.dtype, output, weights)


def multi_head_attention_sum(
    query, key, value, projections, num_heads, mask=None, bias=None, *, causal=False, scale=None
):
    """Multi-head attention as a sum: each head through its own block of rows of w_o.

    Arguments, results and errors are those of multi_head_attention.

    >>> x, p = np.eye(4), Projections(np.eye(4), np.eye(4), np.eye(4), np.eye(4))
    >>> output, _ = multi_head_attention_sum(x, x, x, p, num_heads=2)
    >>> np.allclose(output, multi_head_attention(x, x, x, p, num_heads=2)[0])
    True
    """
    _arguments(query, key, value, projections, num_heads, mask, bias)
    w_o, b_o = widen(projections.w_o), projections.b_o
    side_by_side = replace(projections, w_o=np.eye(len(w_o), dtype=query.dtype), b_o=None)
    concat, weights = multi_head_attention_loop(
        query, key, value, side_by_side, num_heads, mask, bias, causal=causal, scale=scale
    )  # (..., n_q, h * d_v)
    blocks = np.split(w_o, num_heads)  # h of (d_v, d_model)
    output = sum(_slice(concat, i, num_heads) @ block for i, block in enumerate(blocks))
    output = output if b_o is None else output + b_o
    return _narrow(query.dtype, output, weights)


@np.errstate(over="ignore", invalid="ignore")
def multi_head_attention_backward(
    grad_output,
    query,
    key,
    value,
    projections,
    num_heads,
    mask=None,
    bias=None,
    *,
    causal=False,
    scale=None,
):
    """Gradients of everything that goes in, from the gradient of the output (..., n_q, d_model).

    The other arguments are those of the forward call. In self-attention the input's gradient is
    the sum of the three that come back for query, key and value.

    >>> x, p = np.eye(4), Projections(np.eye(4), np.eye(4), np.eye(4), np.eye(4))
    >>> multi_head_attention_backward(np.ones((4, 4)), x, x, x, p, num_heads=2).query.shape
    (4, 4)
    """
    _, backward = _heads_around(
        plain_core,
        query,
        key,
        value,
        projections,
        num_heads,
        mask,
        bias,
        causal=causal,
        scale=scale,
    )
    return backward(grad_output)


@np.errstate(over="ignore", invalid="ignore")
def layer_around(core, query, key, value, projections, num_heads, mask=None, bias=None, **options):
    """The layer's output, and a function from the output's gradient to MultiHeadGradients.

    ``core`` is plain_core or tiled_core, which make the same pair inside the heads.
    """
    inputs = query, key, value, projections, num_heads, mask, bias
    concat, backward = _heads_around(core, *inputs, **options)
    return *_narrow(query.dtype, affine(concat, projections.w_o, projections.b_o)), backward


@np.errstate(over="ignore", invalid="ignore")
def _heads_around(core, query, key, value, projections, num_heads, mask, bias, **options):
    """The heads side by side, before w_o, and layer_around's backward function."""
    shared_mask, shared_bias = _arguments(query, key, value, projections, num_heads, mask, bias)
    p = projections
    q = split_heads(affine(query, p.w_q, p.b_q), num_heads)  # (..., h, n_q, d_k)
    k = split_heads(affine(key, p.w_k, p.b_k), num_heads)  # (..., h, n_kv, d_k)
    v = split_heads(affine(value, p.w_v, p.b_v), num_heads)  # (..., h, n_kv, d_v)
    heads, core_backward = core(q, k, v, shared_mask, shared_bias, **options)
    concat = merge_heads(heads)  # (..., n_q, h * d_v)

    @np.errstate(over="ignore", invalid="ignore")
    def backward(grad_output):
        validate.gradient(grad_output, query, p.w_o.shape[1])
        grad_concat, w_o, b_o = affine_backward(grad_output, concat, p.w_o, p.b_o)
        grads = core_backward(split_heads(grad_concat, num_heads))
        grad_query, w_q, b_q = affine_backward(merge_heads(grads.query), query, p.w_q, p.b_q)
        grad_key, w_k, b_k = affine_backward(merge_heads(grads.key), key, p.w_k, p.b_k)
        grad_value, w_v, b_v = affine_backward(merge_heads(grads.value), value, p.w_v, p.b_v)
        grad_bias = None if bias is None else grads.bias.reshape(bias.shape)
        learned = _narrow(query.dtype, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o)
        inputs = _narrow(query.dtype, grad_query, grad_key, grad_value)
        return MultiHeadGradients(*inputs, Projections(*learned), *_narrow(query.dtype, grad_bias))

    return concat, backward


def plain_core(q, k, v, mask, bias, **options):
    """All scores at once: the heads' outputs, and a function from their gradient to the inputs'."""
    heads, _ = scaled_dot_product_attention(q, k, v, mask, bias, **options)
    return heads, lambda grad: scaled_dot_product_attention_backward(
        grad, q, k, v, mask, bias, **options
    )


def tiled_core(q, k, v, mask, bias, **options):
    """The same, a tile of scores at a time."""
    saved = online_attention(q, k, v, mask, bias, **options)
    return saved[0], lambda grad: online_attention_backward(
        grad, q, k, v, *saved, mask, bias, **options
    )


@np.errstate(over="ignore", invalid="ignore")
def affine(x, w, b=None):
    """x @ w + b, with b optional; float16 is computed in float32.

    >>> affine(np.array([[1.0, 2.0]]), np.array([[1.0], [1.0]]), np.array([0.5]))
    array([[3.5]])
    """
    y = widen(x) @ widen(w)
    if b is not None:
        y += b
    return y


def affine_backward(grad, x, w, b=None):
    """Gradients of x, w and b (None without b) from the gradient of x @ w + b.

    A row without gradient adds nothing to w's, even where x holds inf or NaN.

    >>> [g.tolist() for g in affine_backward(np.ones((1, 1)), np.ones((1, 2)), np.ones((2, 1)))[:2]]
    [[[1.0, 1.0]], [[1.0], [1.0]]]
    """
    x = np.where(grad.any(axis=-1, keepdims=True), widen(x), np.float32(0))
    rows, grad_rows = x.reshape(-1, x.shape[-1]), widen(grad).reshape(-1, grad.shape[-1])
    grad_b = None if b is None else grad_rows.sum(axis=0)
    return grad @ widen(w).T, rows.T @ grad_rows, grad_b


def _slice(full, i, num_heads):
    """Head i's columns of (..., n, h * d)."""
    d = full.shape[-1] // num_heads
    return full[..., i * d : (i + 1) * d]


def _of_head(array, i):
    """Head i's part of a mask or bias that may be shared by the heads."""
    if array is None or array.ndim < 3:
        return array
    return array[..., i if array.shape[-3] > 1 else 0, :, :]


def _narrow(dtype, *arrays):
    """Back to the caller's dtype; None stays None."""
    return tuple(None if a is None else a.astype(dtype, copy=False) for a in arrays)


def _arguments(query, key, value, projections, num_heads, mask, bias):
    """Check everything; mask and bias with room for the heads."""
    validate.instance("projections", projections, Projections)
    projections.check(query, key, value, num_heads)
    batch, sizes = query.shape[:-2], (num_heads, query.shape[-2], key.shape[-2])
    if mask is not None:
        masks.check(mask, masks.scores_shape(mask, batch, *sizes))
    if bias is not None:
        validate.floats(np.ndarray, query=query, bias=bias)
        validate.broadcasts("bias", bias, masks.scores_shape(bias, batch, *sizes))
        bias = widen(bias)
    return masks.with_head_axis(mask, len(batch)), masks.with_head_axis(bias, len(batch))
