"""Where queries and keys stand: the queries are the last n_q of n_kv positions."""

import numpy as np

from mha_lib import validate
from mha_lib.arrays import on_device


def aligned(n_q, n_kv=None, *, device=None):
    """Positions of the queries (n_q, 1) and of the keys (n_kv,), ready to be compared.

    n_kv is n_q unless given. With more queries than keys the first ones stand before every key, at
    negative positions. ``device`` asks for torch tensors there.

    >>> query, key = aligned(2, 5)
    >>> query.tolist(), key.tolist()
    ([[3], [4]], [0, 1, 2, 3, 4])
    """
    n_kv = n_q if n_kv is None else n_kv
    validate.count("n_q", n_q)
    validate.count("n_kv", n_kv)
    query, key = np.arange(n_q) + (n_kv - n_q), np.arange(n_kv)
    return on_device(query[:, None], device), on_device(key, device)
