"""The book's one mask contract.

A mask is boolean and ``True`` means "may attend". It broadcasts to (..., n_q, n_kv): rows are
queries, columns are keys. Masks are combined with ``&``. A number that is added to the scores is
not a mask but a ``bias``. A query that may attend to nothing gets zero weights and a zero output,
and what a forbidden position holds changes nothing.

A layer with heads takes a mask for its batch, (n_q, n_kv) or (..., n_q, n_kv), and applies it to
every head; with one axis more, (..., num_heads, n_q, n_kv), each head has its own.
"""

import numpy as np

from mha_lib import validate


def causal(n_q, n_kv=None, *, device=None):
    """Hide the future: a mask (n_q, n_kv) with key j allowed for query i if j <= i + n_kv - n_q.

    The queries are the last n_q of n_kv positions, so one new query sees every cached key.
    ``device`` asks for a torch tensor there instead of a NumPy array.
    Source: Vaswani et al. 2017, section 3.2.3.

    >>> causal(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    >>> causal(2, 5).astype(int)
    array([[1, 1, 1, 1, 0],
           [1, 1, 1, 1, 1]])
    """
    n_kv = n_q if n_kv is None else n_kv
    validate.count("n_q", n_q)
    validate.count("n_kv", n_kv)
    last_visible = _positions(n_q, device) + (n_kv - n_q)  # (n_q,)
    return _positions(n_kv, device) <= last_visible[:, None]  # (n_q, n_kv)


def padding(lengths, n_kv, *, side="right", device=None):
    """Hide padding: a mask (batch, 1, n_kv) where sample b has ``lengths[b]`` real tokens.

    ``side`` says where the padding stands. ``device`` asks for a torch tensor there.

    >>> padding([1, 3], 3).astype(int)[:, 0]
    array([[1, 0, 0],
           [1, 1, 1]])
    >>> padding([1, 3], 3, side="left").astype(int)[:, 0]
    array([[0, 0, 1],
           [1, 1, 1]])
    """
    lengths = _lengths(lengths, n_kv)
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', got {side!r}")
    position = np.arange(n_kv) if side == "right" else np.arange(n_kv)[::-1]
    mask = position < lengths[:, None, None]  # (batch, 1, n_kv)
    return mask if device is None else _to_torch(mask, device)


def check(mask, shape, kind=np.ndarray):
    """Refuse a mask that is not boolean or does not broadcast to ``shape`` = (..., n_q, n_kv).

    ``kind`` is the class of array that the caller computes with.
    """
    validate.instance("mask", mask, kind)
    name = validate.dtype_name(mask)
    if name != "bool":
        raise TypeError(f"mask must be boolean (True = may attend), got {name}: {_advice(name)}")
    validate.broadcasts("mask", mask, shape)


def with_head_axis(array, batch_axes):
    """Make room for the head axis in a mask or bias that was given for the batch.

    (n_q, n_kv) fits every head as it is, (..., n_q, n_kv) becomes (..., 1, n_q, n_kv), and an array
    that already has batch_axes + 3 axes is per head.

    >>> with_head_axis(padding([1, 3], 3), batch_axes=1).shape
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


def _positions(n, device):
    return np.arange(n) if device is None else _to_torch(np.arange(n), device)


def _to_torch(array, device):
    import torch  # only where a tensor is asked for: the NumPy chapters start without torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _lengths(lengths, n_kv):
    validate.count("n_kv", n_kv)
    lengths = np.asarray(lengths.tolist() if hasattr(lengths, "tolist") else lengths)
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise TypeError(
            f"lengths must be a list of whole numbers, one a sample, got {lengths.dtype} "
            f"of shape {lengths.shape}"
        )
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= n_kv:
        raise ValueError(f"lengths must lie between 0 and n_kv = {n_kv}, got {lengths.tolist()}")
    return lengths.astype(int)


def _advice(dtype):
    """How to make a number mask boolean; both meanings exist, so only the caller can choose."""
    if dtype in validate.FLOATS:
        return (
            "numbers that are added to the scores go into bias; if 0 means attend and -inf hidden, "
            "pass mask == 0; if 1 means attend, pass mask == 1"
        )
    return "if 1 means attend, pass mask == 1; if 1 means hidden, pass mask == 0"
