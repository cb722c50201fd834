"""What a mask must be, and how it meets the causal rule and the heads of a layer."""

import numpy as np

from mha_lib import validate
from mha_lib.masks.builders import causal


def check(mask, shape, kind=np.ndarray):
    """Refuse a mask that is not boolean or does not broadcast to ``shape`` = (..., n_q, n_kv).

    ``kind`` is the class of array that the caller computes with.
    """
    validate.instance("mask", mask, kind)
    boolean(mask)
    validate.broadcasts("mask", mask, shape)


def boolean(mask):
    """Refuse an array of numbers, and say how to make it a mask."""
    name = validate.dtype_name(mask)
    if name != "bool":
        raise TypeError(f"mask must be boolean (True = may attend), got {name}: {_advice(name)}")


def with_head_axis(array, batch_axes):
    """Make room for the head axis in a mask or bias that was given for the batch.

    (n_q, n_kv) fits every head as it is, (..., n_q, n_kv) becomes (..., 1, n_q, n_kv), and an array
    that already has batch_axes + 3 axes is per head.

    >>> with_head_axis(np.ones((2, 1, 3), bool), batch_axes=1).shape
    (2, 1, 1, 3)
    """
    if array is None or array.ndim <= 2 or array.ndim > batch_axes + 2:
        return array
    return array[..., None, :, :]


def scores_shape(array, batch, num_heads, n_q, n_kv):
    """What a layer's mask or bias must fit: (*batch, n_q, n_kv), or every head's scores.

    >>> scores_shape(causal(3), (2,), 4, 3, 3), scores_shape(np.ones((2, 1, 1, 3)), (2,), 4, 3, 3)
    ((2, 3, 3), (2, 4, 3, 3))
    """
    per_head = getattr(array, "ndim", 0) > len(batch) + 2
    return (*batch, num_heads, n_q, n_kv) if per_head else (*batch, n_q, n_kv)


def allowed(mask, is_causal, n_q, n_kv, *, device=None):
    """The mask and the causal rule together, or None where everything is allowed."""
    if not is_causal or n_q == 1:  # a single query stands last and sees every key
        return mask
    rule = causal(n_q, n_kv, device=device)
    return rule if mask is None else mask & rule


def _advice(dtype):
    """How to make a number mask boolean; both meanings exist, so only the caller can choose."""
    if dtype in validate.FLOATS:
        return (
            "numbers that are added to the scores go into bias; if 0 means attend and -inf hidden, "
            "pass mask == 0; if 1 means attend, pass mask == 1"
        )
    return "if 1 means attend, pass mask == 1; if 1 means hidden, pass mask == 0"
