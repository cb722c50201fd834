"""Masks by what they mean. Each is boolean, True = may attend; combine them with ``&``.

Sizes in, a NumPy array out; with ``device`` a torch tensor there.
"""

import numpy as np

from mha_lib import arrays, validate
from mha_lib.positions import aligned


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
    query, key = aligned(n_q, n_kv, device=device)
    return key <= query  # (n_q, n_kv)


def sliding_window(n_q, n_kv=None, *, window, device=None):
    """Causal with a short memory: a query sees itself and the window - 1 positions before it.

    Shape (n_q, n_kv), the queries last as in ``causal``. ``window`` is a whole number of at least
    1; one of n_kv or more hides nothing that ``causal`` shows.
    Sources: Beltagy et al. 2020 (Longformer), whose window lies half on each side of the query;
    Jiang et al. 2023 (Mistral 7B), whose window looks back only, as here.

    >>> sliding_window(4, window=2).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    validate.positive_integer("window", window)
    query, key = aligned(n_q, n_kv, device=device)
    return (query - window < key) & (key <= query)  # (n_q, n_kv)


def prefix(n_q, n_kv=None, *, length, device=None):
    """Causal, but the first ``length`` keys are open to every query: a mask (n_q, n_kv).

    Source: Raffel et al. 2020, section 3.2.1 ("prefix LM").

    >>> prefix(4, length=2).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    query, key = aligned(n_q, n_kv, device=device)
    validate.count("length", length)
    if length > len(key):
        raise ValueError(f"length must be at most n_kv = {len(key)}, got {length}")
    return (key <= query) | (key < length)  # (n_q, n_kv)


def padding(lengths, n_kv, *, side="right", device=None):
    """Hide padding: a mask (batch, 1, n_kv) where sample b has ``lengths[b]`` real tokens.

    The lengths are those of the keys: in cross-attention the memory's. ``side`` says where the
    padding stands. ``device`` asks for a torch tensor there.

    >>> padding([1, 3], 3).astype(int)[:, 0]
    array([[1, 0, 0],
           [1, 1, 1]])
    >>> padding([1, 3], 3, side="left").astype(int)[:, 0]
    array([[0, 0, 1],
           [1, 1, 1]])
    >>> (causal(3) & padding([2], 3, side="left")).astype(int)
    array([[[0, 0, 0],
            [0, 1, 0],
            [0, 1, 1]]])
    """
    lengths = _lengths(lengths, n_kv)
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', got {side!r}")
    position = np.arange(n_kv) if side == "right" else np.arange(n_kv)[::-1]
    return arrays.on_device(position < lengths[:, None, None], device)  # (batch, 1, n_kv)


def documents(query_ids, key_ids=None, *, device=None):
    """Keep packed documents apart: a query sees the keys that carry its own number.

    ``query_ids`` (..., n_q) and ``key_ids`` (..., n_kv), the queries' own unless given, number each
    token's document with integers; the mask is (..., n_q, n_kv). Tensors give a tensor, and so does
    ``device``. Give padding a number of its own.

    >>> documents([0, 0, 1]).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    >>> (causal(3) & documents([0, 0, 1])).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    query_ids = _ids("query_ids", query_ids, device)
    key_ids = query_ids if key_ids is None else _ids("key_ids", key_ids, device)
    arrays.same_library(query_ids, key_ids=key_ids)
    validate.same_batch_axes(1, query_ids=query_ids, key_ids=key_ids)
    return query_ids[..., :, None] == key_ids[..., None, :]


def _ids(name, ids, device):
    ids = ids if hasattr(ids, "dtype") else np.asarray(ids)
    is_array = arrays.library(name, ids) is np
    if ids.ndim == 0 or not arrays.is_integer(ids):
        raise TypeError(
            f"{name} must be whole numbers, one a token, "
            f"got {validate.dtype_name(ids)} of shape {tuple(ids.shape)}"
        )
    if device is None:
        return ids
    return arrays.on_device(ids, device) if is_array else ids.to(device)


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
