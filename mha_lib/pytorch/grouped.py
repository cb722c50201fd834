"""Query heads that share key and value heads: query head i reads head i // (h / h_kv).

Sources: Shazeer 2019, "Fast Transformer Decoding" (one shared head: multi-query attention);
Ainslie et al. 2023, "GQA" (groups of heads).
"""

from mha_lib import masks
from mha_lib.pytorch.attention import attend


def attend_in_groups(query, key, value, mask, bias, *, causal, **options):
    """``attend`` for query (..., h, n_q, d_k) with key and value of h_kv heads, which divides h.

    A shared head is read once for its whole group: to it, the group's queries are simply more
    queries. Repeating the head instead would copy all keys at every step of decoding.
    """
    num_heads, n_q, _ = query.shape[-3:]
    num_kv_heads, n_kv, _ = key.shape[-3:]
    if num_heads == num_kv_heads:
        return attend(query, key, value, mask, bias, causal=causal, **options)
    if n_q == n_kv:  # a whole prompt: the copy is small beside the work, and torch's rule applies
        key, value = (repeat_heads(x, num_heads // num_kv_heads) for x in (key, value))
        return attend(query, key, value, mask, bias, causal=causal, **options)
    mask = masks.allowed(mask, causal, n_q, n_kv, device=query.device)
    mask, bias = (_for_each_head(x, num_heads, n_q) for x in (mask, bias))
    query, mask, bias = (_fold(x, num_kv_heads) for x in (query, mask, bias))
    output, weights = attend(query, key, value, mask, bias, causal=False, **options)
    sizes = num_heads // num_kv_heads, n_q
    return _unfold(output, sizes), _unfold(weights, sizes)


def repeat_heads(x, group):
    """Each head of x (..., h_kv, n, d) for every query head of its group, (..., h, n, d).

    The order is 0, 0, 1, 1 and not 0, 1, 0, 1: neighbouring query heads share.

    >>> import torch
    >>> repeat_heads(torch.tensor([10, 20]).view(2, 1, 1), group=2).flatten().tolist()
    [10, 10, 20, 20]
    """
    return x.repeat_interleave(group, dim=-3)


def _fold(x, num_kv_heads):
    """(..., h, n_q, d) as (..., h_kv, group * n_q, d); None stays None."""
    return None if x is None else x.unflatten(-3, (num_kv_heads, -1)).flatten(-3, -2)


def _unfold(x, sizes):
    """(..., h_kv, group * n_q, d) as (..., h, n_q, d), sizes = (group, n_q); None stays None."""
    return None if x is None else x.unflatten(-2, sizes).flatten(-4, -3)


def _for_each_head(x, num_heads, n_q):
    """A mask or bias that fits (..., h, n_q, n_kv) with these two axes at their full size."""
    if x is None:
        return None
    x = x if x.ndim > 2 else x[None]
    return x.expand(*x.shape[:-3], num_heads, n_q, x.shape[-1])
