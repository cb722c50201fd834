"""Multi-head attention as a PyTorch module.

Source: Vaswani et al. 2017, section 3.2.2; fewer key-value heads: Shazeer 2019 (multi-query) and
Ainslie et al. 2023 (grouped-query).
"""

import torch
import torch.nn.functional as F
from torch import nn

from mha_lib import masks, validate
from mha_lib.pytorch.attention import attend, check_bias, is_ordinary, without_idle_rows
from mha_lib.pytorch.cache import KeyValueCache, cached_attention, without_padding
from mha_lib.pytorch.grouped import repeat_heads


class MultiHeadAttention(nn.Module):
    """Self- and cross-attention with ``num_heads`` heads over features of width ``d_model``.

    ``d_k`` and ``d_v`` are the widths of one head, d_model / num_heads unless given. With fewer
    ``num_kv_heads`` groups of query heads share a key and value head (one: multi-query attention).
    ``use_bias`` adds a bias to the four projections; ``dropout`` drops weights, in training only.
    The matrices of query, key and value lie in one, so that self-attention projects once.
    Raises ValueError or TypeError for sizes that do not fit together.

    >>> layer = MultiHeadAttention(d_model=8, num_heads=2)
    >>> output, weights = layer(torch.zeros(1, 3, 8), need_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([1, 3, 8]), torch.Size([1, 2, 3, 3]))
    """

    def __init__(
        self,
        d_model,
        num_heads,
        *,
        num_kv_heads=None,
        d_k=None,
        d_v=None,
        use_bias=True,
        dropout=0.0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.d_k, self.d_v = validate.head_widths(d_model, num_heads, d_k, d_v)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        validate.positive_integer("num_kv_heads", num_kv_heads)
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads = {num_heads}, got {num_kv_heads}"
            )
        validate.probability("dropout", dropout)
        validate.flag("use_bias", use_bias)
        self.d_model, self.num_heads, self.num_kv_heads = d_model, num_heads, num_kv_heads
        self.dropout = dropout
        kv = num_kv_heads  # features of w_qkv's output that are queries, keys and values
        self.widths = num_heads * self.d_k, kv * self.d_k, kv * self.d_v
        options = {"bias": use_bias, "device": device, "dtype": dtype}
        self.w_qkv = nn.Linear(d_model, sum(self.widths), **options)
        self.w_o = nn.Linear(num_heads * self.d_v, d_model, **options)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw each matrix by its own size (Glorot and Bengio 2010), biases zero."""
        for matrix in (*self.w_qkv.weight.split(self.widths), self.w_o.weight):
            nn.init.xavier_uniform_(matrix)
        for layer in (self.w_qkv, self.w_o):
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self,
        query,
        key=None,
        value=None,
        mask=None,
        bias=None,
        *,
        causal=False,
        scale=None,
        need_weights=False,
        cache=None,
        lengths=None,
    ):
        """Attend from query (..., n_q, d_model) to key and value (..., n_kv, d_model).

        Without ``key`` it is self-attention; without ``value`` the keys' inputs are the values'.
        ``mask`` and ``bias`` fit (..., n_q, n_kv), or (..., num_heads, n_q, n_kv) for each head.
        Returns the output (..., n_q, d_model) and, if asked for, the weights
        (..., num_heads, n_q, n_kv) before dropout, else None. Asking does not change the output.

        With a ``cache``, query holds the next n_q tokens: their keys and values are added to it and
        all that it keeps is attended to, so that n_kv = cache.n_kv(n_q). ``lengths`` then says how
        many of each sample's n_q tokens are real; those after them are neither kept nor answered.
        With the cache that ``remember`` fills it is cross-attention. key and value are left out.
        """
        if cache is not None or lengths is not None:
            _check_cache(cache, key, value, lengths)
        validate.flag("causal", causal)
        validate.flag("need_weights", need_weights)
        validate.scale(scale)
        options = {"causal": causal, "scale": scale, "need_weights": need_weights}
        options["dropout_p"] = self.dropout if self.training else 0.0
        if cache is not None:
            return self._with_cache(query, cache, mask, bias, lengths, options)
        key = query if key is None else key
        value = key if value is None else value
        _check_features(query, key, value, self.w_qkv.weight)
        if mask is not None or bias is not None:
            self._check_scores(query, key.shape[-2], mask, bias)
        projected = self._project(query, key, value)
        ordinary = is_ordinary(*projected)
        if not ordinary:
            query, key, value = without_idle_rows(query, key, value, mask, causal)
            projected = self._project(query, key, value)
            ordinary = is_ordinary(*projected)
        heads, weights = attend(
            *self._heads(projected),
            masks.with_head_axis(mask, query.ndim - 2),
            masks.with_head_axis(bias, query.ndim - 2),
            ordinary=ordinary,
            **options,
        )
        return self._merge(heads), weights

    def remember(self, memory, value=None):
        """A cache filled once with a memory (..., n_kv, d_model), for cross-attention to read.

        >>> layer, query, memory = MultiHeadAttention(8, 2), torch.ones(2, 8), torch.ones(5, 8)
        >>> once = layer.remember(memory)
        >>> torch.equal(layer(query, cache=once)[0], layer(query, memory)[0])
        True
        """
        value = memory if value is None else value
        _check_features(memory, memory, value, self.w_qkv.weight)
        cache = KeyValueCache()
        cache.append(self._project_one(1, memory), self._project_one(2, value))
        cache.frozen = True
        return cache

    def _with_cache(self, query, cache, mask, bias, lengths, options):
        """forward with keys and values from a cache, after those of the new tokens went into it."""
        _check_features(query, query, query, self.w_qkv.weight)
        if lengths is not None:
            query = without_padding(query, lengths)
        if mask is not None or bias is not None:
            self._check_scores(query, cache.n_kv(query.shape[-2], lengths), mask, bias)
        heads, ordinary = self._heads_for(cache, query)
        mixed, weights = cached_attention(
            *heads,
            cache,
            masks.with_head_axis(mask, query.ndim - 2),
            masks.with_head_axis(bias, query.ndim - 2),
            lengths=lengths,
            ordinary=ordinary,
            **options,
        )
        return self._merge(mixed), weights

    def _heads_for(self, cache, query):
        """What cached_attention takes, and is_ordinary of it: one look at all three is quicker."""
        if cache.frozen:
            q = self._project_one(0, query)
            return (q, None, None), is_ordinary(q)
        projected = self._project(query, query, query)
        return self._grouped_heads(projected), is_ordinary(*projected)

    def _merge(self, heads):
        """Heads (..., num_heads, n, d_v) side by side, and through w_o."""
        w_o = self.w_o
        return F.linear(heads.transpose(-3, -2).flatten(-2), w_o.weight, w_o.bias)

    def _project_one(self, part, x):
        """The queries (part 0), keys (1) or values (2) of x alone, (..., heads, n, d)."""
        heads = (self.num_heads, self.num_kv_heads, self.num_kv_heads)[part]
        weight, bias = (
            None if stacked is None else stacked.split(self.widths)[part]
            for stacked in (self.w_qkv.weight, self.w_qkv.bias)
        )
        return _split(F.linear(x, weight, bias), heads, self.widths[part] // heads)

    def project(self, query, key, value):
        """Queries, keys and values of all heads, each (..., num_heads, n, d)."""
        return self._heads(self._project(query, key, value))

    def _project(self, query, key, value):
        """One tensor for self-attention, three otherwise: (..., n, width)."""
        w_qkv = self.w_qkv  # looked up once, since torch's modules are slow to give their parts
        weight, bias = w_qkv.weight, w_qkv.bias
        if query is key is value:
            return (F.linear(query, weight, bias),)
        biases = [None] * 3 if bias is None else bias.split(self.widths)
        triples = zip((query, key, value), weight.split(self.widths), biases, strict=True)
        return tuple(F.linear(x, w, b) for x, w, b in triples)

    def _heads(self, projected):
        """Split what _project gives into heads, and repeat shared ones."""
        q, k, v = self._grouped_heads(projected)
        group = self.num_heads // self.num_kv_heads  # query head i reads head i // group
        if group > 1:
            k, v = repeat_heads(k, group), repeat_heads(v, group)
        return q, k, v

    def _grouped_heads(self, projected):
        """Split what _project gives into heads."""
        if len(projected) == 1 and self.d_k == self.d_v:  # all at once: small layers feel each call
            heads = self.num_heads, self.num_kv_heads, self.num_kv_heads
            return _split(projected[0], sum(heads), self.d_k).split_with_sizes(heads, -3)
        q, k, v = (
            projected if len(projected) == 3 else projected[0].split_with_sizes(self.widths, -1)
        )
        q = _split(q, self.num_heads, self.d_k)  # (..., num_heads, n_q, d_k)
        k = _split(k, self.num_kv_heads, self.d_k)  # (..., num_kv_heads, n_kv, d_k)
        v = _split(v, self.num_kv_heads, self.d_v)  # (..., num_kv_heads, n_kv, d_v)
        return q, k, v

    def _check_scores(self, query, n_kv, mask, bias):
        batch, sizes = query.shape[:-2], (self.num_heads, query.shape[-2], n_kv)
        if mask is not None:
            masks.check(mask, masks.scores_shape(mask, batch, *sizes), torch.Tensor)
        if bias is not None:
            check_bias(bias, query, masks.scores_shape(bias, batch, *sizes))

    def extra_repr(self):
        """The sizes, for print(layer)."""
        return (
            f"d_model={self.d_model}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, d_k={self.d_k}, d_v={self.d_v}"
        )


def _check_features(query, key, value, weight):
    if query is key is value and _fits(query, weight):
        return  # the usual call: one look, since in small layers every line of Python is felt
    validate.floats(torch.Tensor, w_qkv=weight, query=query, key=key, value=value)
    validate.at_least_two_axes(query=query, key=key, value=value)
    validate.same_batch_axes(2, query=query, key=key, value=value)
    validate.one_value_per_key(key, value)
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.shape[-1] != weight.shape[1]:
            raise ValueError(
                f"{name} must be d_model = {weight.shape[1]} wide, "
                f"got {x.shape[-1]} in shape {tuple(x.shape)}"
            )


def _check_cache(cache, key, value, lengths):
    """Refuse what makes no sense with a cache, and lengths without one."""
    if cache is None:
        raise TypeError("lengths must come with a cache: without one, pass a mask of padding")
    validate.instance("cache", cache, KeyValueCache)
    if key is not None or value is not None:
        raise TypeError(
            "key and value must be left out with a cache: it holds those of the tokens so far, "
            "and layer.remember(memory) makes one for cross-attention"
        )
    if cache.frozen and lengths is not None:
        raise TypeError("lengths must be left out with a frozen cache, which takes no tokens")


def _split(x, num_heads, d):
    return x.view(*x.shape[:-1], num_heads, d).transpose(-3, -2)


def _fits(x, weight):
    tensor = isinstance(x, torch.Tensor) and x.ndim >= 2
    return tensor and x.dtype == weight.dtype and x.shape[-1] == weight.shape[1]
