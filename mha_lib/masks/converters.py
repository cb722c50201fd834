"""The mask contract in other people's forms and back, exactly, for NumPy arrays and torch tensors.

In the book True means "may attend". The others, for a key that is hidden from a query:

- additive (scores + mask): -inf, or the lowest number of its type; visible keys have 0
- torch's nn.MultiheadAttention: True, the opposite of ours
- torch's scaled_dot_product_attention ("kernel"): False, as here
- Hugging Face's padding mask: the integer 0, and 1 for a real token

``to_...`` leaves the book's contract, ``from_...`` comes back to it. Other libraries may give NaN
or an average of hidden values where a query has no allowed key; that is theirs, not the mask's.
"""

import numpy as np

from mha_lib import arrays, validate
from mha_lib.masks.contract import boolean


def to_additive(mask, dtype):
    """True as 0 and False as -inf, in a floating point ``dtype`` of the mask's library.

    >>> to_additive(np.array([[True, False]]), np.float16)
    array([[  0., -inf]], dtype=float16)
    """
    return _numbers(mask, -np.inf, dtype)


def from_additive(additive):
    """0 as True; -inf, or the lowest number of the type, as False. Anything else is refused.

    Raises ValueError for other numbers: they shift scores and are a bias, not a mask.

    >>> from_additive(np.array([[0.0, -np.inf]]))
    array([[ True, False]])
    """
    library = arrays.library("additive", additive)
    validate.floats(type(additive), additive=additive)
    lowest = library.finfo(additive.dtype).min
    visible = additive == 0
    clear = visible | (additive == -np.inf) | (additive == lowest)
    if not clear.all():
        raise ValueError(
            "additive must hold 0 (may attend) and -inf or the lowest number of its type (hidden), "
            f"got {additive[~clear][0].item()}: numbers that shift scores go into bias"
        )
    return visible


def to_module_mask(mask):
    """(n_q, n_kv) as nn.MultiheadAttention's ``attn_mask``: there True means hidden.

    >>> to_module_mask(np.array([[True, False]]))
    array([[False,  True]])
    """
    _check(mask, "(n_q, n_kv)", 2)
    return ~mask


def from_module_mask(attn_mask):
    """nn.MultiheadAttention's ``attn_mask`` (n_q, n_kv), True = hidden, as ours, True = attend.

    >>> from_module_mask(np.array([[False, True]]))
    array([[ True, False]])
    """
    _check_theirs("attn_mask", attn_mask, "(n_q, n_kv)", 2)
    return ~attn_mask


def to_module_head_masks(mask, num_heads):
    """(batch, n_q, n_kv), or (batch, num_heads, n_q, n_kv), as ``attn_mask``, True = hidden.

    nn.MultiheadAttention wants (batch * num_heads, n_q, n_kv), all heads of sample 0 first:
    row b * num_heads + i is head i of sample b. Only the head axis is stretched if its size is 1.

    >>> mask = np.array([[[True, True]], [[True, False]]])  # two samples, one query, two keys
    >>> to_module_head_masks(mask, num_heads=2).astype(int).tolist()
    [[[0, 0]], [[0, 0]], [[0, 1]], [[0, 1]]]
    """
    library = _check(mask, "(batch, n_q, n_kv) or (batch, num_heads, n_q, n_kv)", 3, 4)
    validate.positive_integer("num_heads", num_heads)
    mask = mask if mask.ndim == 4 else mask[:, None]
    batch, heads, n_q, n_kv = mask.shape
    if heads not in (1, num_heads):
        raise ValueError(
            f"mask must have num_heads = {num_heads} or 1 in its second axis, "
            f"got shape {tuple(mask.shape)}"
        )
    full = library.broadcast_to(mask, (batch, num_heads, n_q, n_kv))
    return ~full.reshape(batch * num_heads, n_q, n_kv)


def from_module_head_masks(attn_mask, num_heads):
    """``attn_mask`` (batch * num_heads, n_q, n_kv), True = hidden, as a mask for each head.

    Returns (batch, num_heads, n_q, n_kv), True = may attend.

    >>> from_module_head_masks(np.zeros((4, 1, 3), bool), num_heads=2).shape
    (2, 2, 1, 3)
    """
    _check_theirs("attn_mask", attn_mask, "(batch * num_heads, n_q, n_kv)", 3)
    rows, n_q, n_kv = attn_mask.shape
    validate.positive_integer("num_heads", num_heads)
    if rows % num_heads:
        raise ValueError(
            f"attn_mask must have batch * num_heads rows, a multiple of {num_heads}, got {rows}"
        )
    return ~attn_mask.reshape(rows // num_heads, num_heads, n_q, n_kv)


def to_module_padding(mask):
    """(batch, 1, n_kv) as torch's ``key_padding_mask`` (batch, n_kv): there True means hidden.

    >>> to_module_padding(np.array([[[True, False]]]))
    array([[False,  True]])
    """
    return ~_per_key(mask)


def from_module_padding(key_padding_mask):
    """``key_padding_mask`` (batch, n_kv), True = hidden, as a mask (batch, 1, n_kv), True = attend.

    >>> from_module_padding(np.array([[False, True]]))
    array([[[ True, False]]])
    """
    _check_theirs("key_padding_mask", key_padding_mask, "(batch, n_kv)", 2)
    return ~key_padding_mask[:, None, :]


def to_kernel(mask):
    """A layer's mask for torch's scaled_dot_product_attention; True means attend in both.

    (n_q, n_kv) and (batch, num_heads, n_q, n_kv) pass, (batch, n_q, n_kv) gets a head axis of 1.
    For the kernel's additive form: to_additive(to_kernel(mask), dtype).

    >>> to_kernel(np.ones((2, 1, 3), bool)).shape
    (2, 1, 1, 3)
    """
    shapes = "(n_q, n_kv), (batch, n_q, n_kv) or (batch, num_heads, n_q, n_kv)"
    _check(mask, shapes, 2, 3, 4)
    return mask[:, None] if mask.ndim == 3 else mask


def from_kernel(attn_mask):
    """The kernel's ``attn_mask`` as a layer's mask, True = attend; additive floats are read too.

    A head axis of 1 is dropped. With three axes the kernel means (num_heads, n_q, n_kv), where a
    layer would read (batch, n_q, n_kv): such a mask comes back with a batch axis of 1.

    >>> from_kernel(np.ones((2, 1, 1, 3), bool)).shape, from_kernel(np.ones((4, 1, 3), bool)).shape
    ((2, 1, 3), (1, 4, 1, 3))
    """
    arrays.library("attn_mask", attn_mask)
    mask = from_additive(attn_mask) if _is_float(attn_mask) else attn_mask
    shapes = "(n_q, n_kv), (num_heads, n_q, n_kv) or (batch, num_heads, n_q, n_kv)"
    _check_theirs("attn_mask", mask, shapes, 2, 3, 4)
    if mask.ndim == 2:
        return mask
    mask = mask[None] if mask.ndim == 3 else mask
    return mask[:, 0] if mask.shape[1] == 1 else mask


def to_hugging_face_padding(mask):
    """(batch, 1, n_kv) as Hugging Face's ``attention_mask`` (batch, n_kv): 1 real, 0 padding.

    >>> to_hugging_face_padding(np.array([[[True, False]]]))
    array([[1, 0]])
    """
    library, mask = arrays.library("mask", mask), _per_key(mask)
    return library.where(mask, 1, 0)


def from_hugging_face_padding(attention_mask):
    """Hugging Face's integers (batch, n_kv), 1 = real token, as a mask (batch, 1, n_kv).

    Raises TypeError for booleans and floats, ValueError for integers other than 0 and 1.

    >>> from_hugging_face_padding(np.array([[1, 0]]))
    array([[[ True, False]]])
    """
    arrays.library("attention_mask", attention_mask)
    if not arrays.is_integer(attention_mask):
        raise TypeError(
            "attention_mask must be integers, 1 = real token and 0 = padding, got "
            f"{validate.dtype_name(attention_mask)}: a boolean mask of the keys needs only a query "
            "axis, attention_mask[:, None, :]"
        )
    _check_axes("attention_mask", attention_mask, "(batch, n_kv)", 2)
    real = attention_mask == 1
    if not (real | (attention_mask == 0)).all():
        raise ValueError(
            "attention_mask must hold only 1 (real token) and 0 (padding), "
            f"got {attention_mask[~real & (attention_mask != 0)][0].item()}"
        )
    return real[:, None, :]


def to_hugging_face_additive(mask, dtype):
    """(batch, n_q, n_kv) as Hugging Face's (batch, 1, n_q, n_kv): 0 visible, lowest number hidden.

    (batch, num_heads, n_q, n_kv) keeps its axes. A query with no allowed key gets equal weights
    there: the lowest number, unlike -inf, is one that softmax can cope with.

    >>> to_hugging_face_additive(np.array([[[True, False]]]), np.float16).tolist()
    [[[[0.0, -65504.0]]]]
    """
    library = _check(mask, "(batch, n_q, n_kv) or (batch, num_heads, n_q, n_kv)", 3, 4)
    dtype = arrays.float_type(library, dtype)
    return _numbers(to_kernel(mask), library.finfo(dtype).min, dtype)


def from_hugging_face_additive(attention_mask):
    """Hugging Face's additive form (batch, 1, n_q, n_kv) as a mask (batch, n_q, n_kv).

    -inf is read as the lowest number is; a second axis of num_heads is kept.

    >>> lowest = np.finfo(np.float16).min
    >>> from_hugging_face_additive(np.array([[[[0, lowest]]]], np.float16))
    array([[[ True, False]]])
    """
    arrays.library("attention_mask", attention_mask)
    _check_axes("attention_mask", attention_mask, "(batch, 1, n_q, n_kv)", 4)
    return from_kernel(from_additive(attention_mask))


def _numbers(mask, hidden, dtype):
    """0 where the mask is True, ``hidden`` where it is False."""
    library = arrays.library("mask", mask)
    boolean(mask)
    dtype = arrays.float_type(library, dtype)
    zero, hidden = (library.full((), number, dtype=dtype) for number in (0, hidden))
    return library.where(mask, zero, hidden)


def _per_key(mask):
    """(batch, n_kv) of a mask (batch, 1, n_kv), refused if its queries differ."""
    _check(mask, "(batch, 1, n_kv)", 3)
    if mask.shape[1] != 1:
        raise ValueError(
            "mask must hide the same keys from every query, (batch, 1, n_kv), "
            f"got shape {tuple(mask.shape)}"
        )
    return mask[:, 0]


def _check(mask, shapes, *axes):
    library = arrays.library("mask", mask)
    boolean(mask)
    _check_axes("mask", mask, shapes, *axes)
    return library


def _check_theirs(name, mask, shapes, *axes):
    arrays.library(name, mask)
    if validate.dtype_name(mask) != "bool":
        advice = ": additive masks are read by from_additive" if _is_float(mask) else ""
        raise TypeError(f"{name} must be boolean, got {validate.dtype_name(mask)}{advice}")
    _check_axes(name, mask, shapes, *axes)


def _check_axes(name, array, shapes, *axes):
    if array.ndim not in axes:
        raise ValueError(f"{name} must be {shapes}, got shape {tuple(array.shape)}")


def _is_float(array):
    return validate.dtype_name(array) in validate.FLOATS
