"""Scaled dot-product attention in PyTorch: an explicit core that gives weights, and a fused one.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
"""

import torch
import torch.nn.functional as F

from mha_lib import masks, validate

HALF = (torch.float16, torch.bfloat16)
LARGEST = torch.finfo(torch.float32).max
FEW = 16  # for so many queries plain products cost less than the copy that the kernel would need


def scaled_dot_product_attention(
    query,
    key,
    value,
    mask=None,
    bias=None,
    *,
    causal=False,
    scale=None,
    dropout_p=0.0,
    need_weights=True,
):
    """Mix the values of each query's allowed keys: softmax(scale * Q K^T + bias) V.

    Shapes, masks, results and errors are those of mha_lib.scratch; (output, None) comes back when
    weights are not needed, from torch's fused kernel, and the output is the same. ``dropout_p``
    drops weights on their way to the output; the weights returned are those before dropout.

    >>> query, key = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> output, weights = scaled_dot_product_attention(query, key, value=torch.eye(3))
    >>> [round(weight, 3) for weight in weights[0].tolist()]
    [0.198, 0.401, 0.401]
    """
    check_arguments(query, key, value, mask, bias, causal, scale, dropout_p)
    ordinary = is_ordinary(query, key, value)
    if not ordinary:
        query, key, value = without_idle_rows(query, key, value, mask, causal)
        ordinary = is_ordinary(query, key, value)
    return attend(
        query,
        key,
        value,
        mask,
        bias,
        causal=causal,
        scale=scale,
        dropout_p=dropout_p,
        need_weights=need_weights,
        ordinary=ordinary,
    )


def attend(query, key, value, mask, bias, *, causal, scale, dropout_p, need_weights, ordinary):
    """The fused core, or the explicit one: where weights or care are needed, and for few queries.

    For these only if the values lie by columns, as a cache may keep them.
    """
    few = query.shape[-2] <= FEW and value.stride(-1) != 1
    if need_weights or not ordinary or few:
        options = causal, scale, dropout_p, ordinary
        output, weights = explicit(query, key, value, mask, bias, *options)
        return output, weights if need_weights else None
    return fused(query, key, value, mask, bias, causal, scale, dropout_p), None


def explicit(query, key, value, mask, bias, causal, scale, dropout_p, ordinary):
    """Matmul, softmax, matmul: output and weights, half precision computed in float32."""
    dtype = query.dtype
    allowed = masks.allowed(mask, causal, query.shape[-2], key.shape[-2], device=query.device)
    q, k, v, spoiled = _set_aside_nonfinite(query, key, value, allowed, ordinary)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * (q @ k.transpose(-1, -2))  # (..., n_q, n_kv)
    if bias is not None:
        scores = scores + bias
    if spoiled is not None:
        scores = scores.masked_fill(spoiled, torch.nan)
    weights = _masked_softmax(scores, allowed)  # (..., n_q, n_kv)
    output = F.dropout(weights, dropout_p) @ v if dropout_p else weights @ v  # (..., n_q, d_v)
    return output.to(dtype), weights.to(dtype)


def fused(query, key, value, mask, bias, causal, scale, dropout_p):
    """torch's own kernel, which aligns causal rows top-left and wants exactly four axes.

    With other numbers of axes, or rows whose numbers do not lie side by side, torch falls back to a
    form that stores all weights.
    """
    n_q, n_kv = query.shape[-2], key.shape[-2]
    # The kernel's own rule hides with -inf before it scales: 0 or less would undo that.
    positive = scale is None or scale > 0
    is_causal = causal and mask is None and bias is None and n_q == n_kv and positive
    attn_mask = None
    if not is_causal:
        attn_mask = _additive(masks.allowed(mask, causal, n_q, n_kv, device=query.device), bias)
    options = dropout_p, is_causal, scale
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    if query.ndim == 4:
        return _kernel(query, key, value, attn_mask, *options)
    if attn_mask is not None and query.ndim > 4:
        attn_mask = attn_mask.broadcast_to(*query.shape[:-1], n_kv)
    output = _kernel(*(_four_axes(x) for x in (query, key, value, attn_mask)), *options)
    return output.reshape(*query.shape[:-1], value.shape[-1])


def _kernel(query, key, value, attn_mask, dropout_p, is_causal, scale):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )


def _four_axes(x):
    """(batch, heads, n, d) from any number of axes in front; None stays None."""
    if x is None or x.ndim == 4:
        return x
    return x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x.flatten(0, -4)


def check_arguments(query, key, value, mask, bias, causal, scale, dropout_p=0.0):
    """Refuse what attention cannot use, with the errors of mha_lib.scratch."""
    validate.floats(torch.Tensor, query=query, key=key, value=value)
    validate.attention_inputs(query, key, value)
    validate.flag("causal", causal)
    validate.scale(scale)
    validate.probability("dropout_p", dropout_p)
    shape = (*query.shape[:-1], key.shape[-2])
    if mask is not None:
        masks.check(mask, shape, torch.Tensor)
    if bias is not None:
        check_bias(bias, query, shape)


def check_bias(bias, query, shape):
    """Refuse a score bias of the wrong dtype or shape, or one that would hide positions."""
    validate.floats(torch.Tensor, query=query, bias=bias)
    validate.broadcasts("bias", bias, shape)
    if not bias.isfinite().all():
        raise ValueError("bias must be finite, got inf or NaN: positions are hidden by mask")


def _additive(allowed, bias):
    """What torch's kernel takes as attn_mask: a boolean mask, or a bias with -inf where hidden."""
    if bias is None or allowed is None:
        return allowed if bias is None else bias
    return torch.where(allowed, bias, -torch.inf)


def _masked_softmax(scores, allowed):
    """Softmax over the allowed keys; a row with none is zero, and so is its gradient."""
    if allowed is None:
        return scores.softmax(-1)
    hidden = ~allowed
    empty = hidden.all(-1, keepdim=True)  # softmax of -inf alone is NaN, also going backward
    weights = scores.masked_fill(hidden & ~empty, -torch.inf).softmax(-1)
    return weights.masked_fill(hidden, 0)


def without_idle_rows(query, key, value, mask, causal):
    """Zeros for queries that may attend to nothing and for keys that no query may attend to.

    They cannot matter, whatever they hold, but NaN in them would reach gradients as 0 * NaN.
    """
    allowed = masks.allowed(mask, causal, query.shape[-2], key.shape[-2], device=query.device)
    if allowed is None:
        return query, key, value
    allowed = allowed.any(-3) if allowed.ndim > query.ndim else allowed  # by any head
    sees, seen = allowed.any(-1), allowed.any(-2)  # (..., n_q), (..., n_kv)
    return (
        query.masked_fill(~sees[..., None], 0),
        key.masked_fill(~seen[..., None], 0),
        value.masked_fill(~seen[..., None], 0),
    )


def is_ordinary(*tensors):
    """True if torch's kernel is safe with these queries, keys and values: no score can overflow.

    A forbidden score of inf would become NaN in the kernel, which adds -inf to it. No score is
    larger than half the sum of all squares, which is small only if every number is finite.
    """
    squares = 0.0
    for tensor in tensors:
        if not tensor.numel():
            return False
        flat = tensor.flatten()  # copies only where rows do not lie next to each other
        flat = flat.float() if flat.dtype in HALF else flat
        squares += torch.dot(flat, flat).item()
    return squares < LARGEST  # False for NaN


def _set_aside_nonfinite(query, key, value, allowed, ordinary):
    """Zeros for every row with inf or NaN, and the places (or None) that such a row spoils.

    0 * NaN is NaN, so a forbidden row must be out of the way before any product is formed.
    """
    q, k, v = (a.float() if a.dtype in HALF else a for a in (query, key, value))
    if ordinary:
        return q, k, v, None
    finite_q, finite_k, finite_v = (a.isfinite().all(-1) for a in (q, k, v))
    if finite_q.all() and finite_k.all() and finite_v.all():
        return q, k, v, None
    spoiled = ~(finite_q[..., :, None] & (finite_k & finite_v)[..., None, :])  # (..., n_q, n_kv)
    q, k, v = (
        torch.where(finite[..., None], a, 0)  # lies as a does, so that BLAS rounds as before
        for finite, a in ((finite_q, q), (finite_k, k), (finite_v, v))
    )
    return q, k, v, spoiled if allowed is None else spoiled & allowed
