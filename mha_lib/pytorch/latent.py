"""Multi-head latent attention: keys and values of all heads, kept as one short vector a token.

Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1. Left out here: the queries' own compression
and the norms, which change nothing in what is cached.
"""

import torch
from torch import nn

from mha_lib import validate
from mha_lib.pytorch import rope
from mha_lib.pytorch.attention import is_ordinary
from mha_lib.pytorch.cache import KeyValueCache
from mha_lib.pytorch.grouped import attend_in_groups


class MultiHeadLatentAttention(nn.Module):
    """Causal self-attention whose cache holds d_latent + d_rotary numbers a token, for all heads.

    A token's latent vector is all that its keys and values are made from, head by head. A turned
    key could not be made from it once and for all, so position has ``d_rotary`` features of its
    own (an even number), in every query and in one key that the heads share. ``d_k`` and ``d_v``
    are the widths of the other features of a head, d_model / num_heads unless given.

    >>> layer = MultiHeadLatentAttention(8, 2, d_latent=3, d_rotary=2)
    >>> layer(torch.zeros(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self, d_model, num_heads, *, d_latent, d_rotary, d_k=None, d_v=None, device=None, dtype=None
    ):
        super().__init__()
        validate.positive_integer("d_latent", d_latent)
        validate.positive_integer("d_rotary", d_rotary)
        if d_rotary % 2:
            raise ValueError(f"d_rotary must be even, since features turn in pairs, got {d_rotary}")
        self.d_k, self.d_v = validate.head_widths(d_model, num_heads, d_k, d_v)
        self.num_heads, self.d_latent, self.d_rotary = num_heads, d_latent, d_rotary
        options = {"bias": False, "device": device, "dtype": dtype}
        self.w_q = nn.Linear(d_model, num_heads * (self.d_k + d_rotary), **options)
        self.w_down = nn.Linear(d_model, d_latent + d_rotary, **options)  # what is kept
        self.w_up = nn.Linear(d_latent, num_heads * (self.d_k + self.d_v), **options)
        self.w_o = nn.Linear(num_heads * self.d_v, d_model, **options)

    def forward(self, x, cache=None, *, absorbed=False):
        """Attend from x (..., n, d_model) to itself and to what the cache holds; same shape.

        ``cache`` is a KeyValueCache: its keys are the latent vectors, its values the shared turned
        keys. ``absorbed`` attends to the latent vectors themselves and never forms a head's keys
        and values; the result is the same.
        """
        cache = KeyValueCache() if cache is None else cache
        n = x.shape[-2]
        rule, turns = cache.rule(n, causal=True, device=x.device), self._turns(cache, x)
        q, turned_q = self._queries(x, turns)  # (..., h, n, d_k), (..., h, n, d_rotary)
        latent, turned_k = cache.append(*self._compress(x, turns))  # (..., 1, n_kv, d) both
        form = self._absorbed if absorbed else self._expanded
        heads = form(q, turned_q, latent, turned_k, rule)  # (..., h, n, d_v)
        return self.w_o(heads.transpose(-3, -2).flatten(-2))

    def _expanded(self, q, turned_q, latent, turned_k, mask):
        """Every head's keys and values from the latent vectors, then attention as ever."""
        to_key, to_value = self._up()
        key, value = latent @ to_key.mT, latent @ to_value.mT  # (..., h, n_kv, d)
        turned_k = turned_k.expand(*key.shape[:-1], -1)
        return self._attend((q, turned_q), (key, turned_k), value, mask)

    def _absorbed(self, q, turned_q, latent, turned_k, mask):
        """q . (U c) = (U^T q) . c, and sum_j a_j U c_j = U sum_j a_j c_j: one shared head, c."""
        to_key, to_value = self._up()
        heads = self._attend((q @ to_key, turned_q), (latent, turned_k), latent, mask)
        return heads @ to_value.mT  # (..., h, n, d_latent) to (..., h, n, d_v)

    def _attend(self, query, key, value, mask):
        query, key = torch.cat(query, -1), torch.cat(key, -1)
        output, _ = attend_in_groups(
            query,
            key,
            value,
            mask,
            None,
            causal=mask is None,
            scale=(self.d_k + self.d_rotary) ** -0.5,
            dropout_p=0.0,
            need_weights=False,
            ordinary=is_ordinary(query, key, value),
        )
        return output

    def _queries(self, x, turns):
        q = self.w_q(x).unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)
        q, to_turn = q.split((self.d_k, self.d_rotary), -1)
        return q, rope.interleaved(to_turn, turns)

    def _compress(self, x, turns):
        """A token's latent vector and its turned key, with an axis for the one head they are."""
        latent, to_turn = self.w_down(x)[..., None, :, :].split((self.d_latent, self.d_rotary), -1)
        return latent, rope.interleaved(to_turn, turns)

    def _up(self):
        """From latent vectors to a head's keys (h, d_k, d_latent) and values (h, d_v, d_latent)."""
        return self.w_up.weight.unflatten(0, (self.num_heads, -1)).split((self.d_k, self.d_v), 1)

    def _turns(self, cache, x):
        positions = cache.positions(x.shape[-2], x.device)[..., None, :]  # the same for all heads
        return rope.turns(positions, self.d_rotary, dtype=x.dtype)
