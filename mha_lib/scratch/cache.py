"""Decoding with a key-value cache in NumPy: one layer, one sequence.

Sources: Vaswani et al. 2017, section 3.2; Shazeer 2019, "Fast Transformer Decoding" (what decoding
costs, and heads that share keys and values).
"""

import numpy as np

from mha_lib import masks, validate
from mha_lib.scratch.heads import merge_heads, split_heads
from mha_lib.scratch.multi_head import affine
from mha_lib.scratch.projections import Projections
from mha_lib.scratch.softmax import softmax


class KeyValueCache:
    """Room for the keys and values of ``capacity`` tokens; ``length`` of them are there.

    >>> cache = KeyValueCache(capacity=8, num_kv_heads=2, d_k=4)
    >>> keys, values = cache.append(np.ones((2, 3, 4)), np.ones((2, 3, 4)))
    >>> cache.length, keys.shape, cache.nbytes
    (3, (2, 3, 4), 1024)
    """

    def __init__(self, capacity, num_kv_heads, d_k, d_v=None, dtype=np.float64):
        sizes = {"capacity": capacity, "num_kv_heads": num_kv_heads, "d_k": d_k}
        for name, size in (sizes | ({} if d_v is None else {"d_v": d_v})).items():
            validate.positive_integer(name, size)
        d_v = d_k if d_v is None else d_v
        # A feature's numbers lie side by side: a token's products then run along memory.
        self._keys = np.zeros((num_kv_heads, d_k, capacity), dtype).swapaxes(1, 2)
        self._values = np.zeros((num_kv_heads, d_v, capacity), dtype).swapaxes(1, 2)
        self.length = 0

    @property
    def keys(self):
        """The keys so far, (num_kv_heads, length, d_k): a view, nothing is copied."""
        return self._keys[:, : self.length]

    @property
    def values(self):
        """The values so far, (num_kv_heads, length, d_v)."""
        return self._values[:, : self.length]

    @property
    def nbytes(self):
        """Bytes taken: those of num_kv_heads * (d_k + d_v) numbers a token of capacity."""
        return self._keys.nbytes + self._values.nbytes

    def append(self, key, value):
        """Write n new tokens, (num_kv_heads, n, d), behind the others; return ``keys, values``."""
        stop = self.length + key.shape[1]
        if stop > self._keys.shape[1]:
            raise ValueError(
                f"cache is full: it has room for capacity = {self._keys.shape[1]} tokens and "
                f"holds {self.length}, got {key.shape[1]} more"
            )
        self._keys[:, self.length : stop] = key
        self._values[:, self.length : stop] = value
        self.length = stop
        return self.keys, self.values

    def truncate(self, length):
        """Keep the first ``length`` tokens: the next ones are written over the others."""
        validate.count("length", length)
        if length > self.length:
            raise ValueError(f"length must lie between 0 and {self.length}, got {length}")
        self.length = length


def multi_head_attention_cached(x, projections, num_heads, cache):
    """Causal self-attention of the next tokens x (n, d_model) to themselves and all before them.

    Their keys and values are added to ``cache``, whose num_kv_heads divides ``num_heads``: query
    head i reads key-value head i // (num_heads / num_kv_heads).
    Returns output (n, d_model) and weights (num_heads, n, n_kv): the last n rows that
    multi_head_attention gives for all tokens, if no heads are shared.

    >>> from mha_lib.scratch import multi_head_attention
    >>> x, p = np.eye(4), Projections.random(4, np.random.default_rng(0))
    >>> cache = KeyValueCache(capacity=4, num_kv_heads=2, d_k=2)
    >>> steps = [multi_head_attention_cached(x[t : t + 1], p, 2, cache)[0] for t in range(4)]
    >>> np.allclose(np.concatenate(steps), multi_head_attention(x, x, x, p, 2, causal=True)[0])
    True
    """
    _check(x, projections, num_heads, cache)
    p, num_kv_heads = projections, len(cache.keys)
    q = split_heads(affine(x, p.w_q, p.b_q), num_heads)  # (h, n, d_k)
    k = split_heads(affine(x, p.w_k, p.b_k), num_kv_heads)  # (h_kv, n, d_k)
    v = split_heads(affine(x, p.w_v, p.b_v), num_kv_heads)  # (h_kv, n, d_v)
    keys, values = cache.append(k, v)  # (h_kv, n_kv, d)
    h, n, d_k = q.shape
    q = d_k**-0.5 * q.reshape(num_kv_heads, -1, d_k)  # (h_kv, group * n, d_k)
    scores = (q @ keys.swapaxes(-1, -2)).reshape(h, n, cache.length)
    if n > 1:  # a single token stands last and sees every key
        scores = np.where(masks.causal(n, cache.length), scores, -np.inf)
    weights = softmax(scores, out=scores)
    heads = weights.reshape(*q.shape[:2], cache.length) @ values  # (h_kv, group * n, d_v)
    heads = heads.reshape(h, n, values.shape[-1])
    output = affine(merge_heads(heads), p.w_o, p.b_o)  # (n, d_model)
    return output.astype(x.dtype, copy=False), weights.astype(x.dtype, copy=False)


def _check(x, projections, num_heads, cache):
    """Refuse what does not fit together, in the order in which it is used."""
    validate.instance("projections", projections, Projections)
    validate.instance("cache", cache, KeyValueCache)
    validate.instance("x", x, np.ndarray)
    p, (num_kv_heads, _, d_k), d_v = projections, cache.keys.shape, cache.values.shape[-1]
    arrays = [cache.keys, *(a for a in vars(p).values() if a is not None)]
    if x.dtype.kind != "f" or any(a.dtype != x.dtype for a in arrays):  # quick: it runs each step
        validate.floats(np.ndarray, x=x, cache=cache.keys, **p.arrays())
    validate.positive_integer("num_heads", num_heads)
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads must be a multiple of {num_kv_heads}, got {num_heads}")
    if x.ndim != 2:
        raise ValueError(f"x must be one sequence (n, d_model), got shape {x.shape}")
    d_model, widths = x.shape[1], (num_heads * d_k, num_kv_heads * d_k, num_kv_heads * d_v)
    for name, matrix, width in zip(("w_q", "w_k", "w_v"), (p.w_q, p.w_k, p.w_v), widths):
        if matrix.shape != (d_model, width):
            raise ValueError(f"{name} must have shape {(d_model, width)}, got {matrix.shape}")
