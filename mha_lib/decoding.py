"""Stacks of attention layers that decode: the contenders of `measure compare decode`.

All hold the same weights and are fed the same tokens, one at a time after a context, so all give
the same numbers. Attention and residual connections alone: no feed-forward, no norms, no positions.
"""

import copy
import importlib.util

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import ThreadpoolController

from mha_lib.pytorch import KeyValueCache, MultiHeadAttention, by_columns, to_projections
from mha_lib.pytorch.threads import one_thread
from mha_lib.scratch import cache as scratch


def decode(context=1024, tokens=4, num_layers=8, d_model=512, num_heads=8):
    """Functions that decode ``tokens`` tokens after ``context`` others; the first is the yardstick.

    Each returns their features (1, tokens, d_model), in float32, without gradients and on one
    thread: a step is too small for threads to wait for each other. Hugging Face's layer takes part
    if transformers is installed.
    """
    torch.manual_seed(0)
    layers = [MultiHeadAttention(d_model, num_heads, use_bias=False) for _ in range(num_layers)]
    x = torch.randn(1, context + tokens, d_model)
    stacks = {
        "cache concatenated, PyTorch": concatenated(layers),
        "cache preallocated, PyTorch": preallocated(layers, context + tokens),
        "the same by columns, PyTorch": preallocated(
            in_columns(layers), context + tokens, columns=True
        ),
        "cache preallocated, NumPy": in_numpy(layers, context + tokens),
        "no cache, PyTorch": uncached(layers, x),
    }
    if importlib.util.find_spec("transformers"):
        stacks = {"Hugging Face, DynamicCache": hugging_face(layers)} | stacks
    return {name: _decoder(stack, x, context) for name, stack in stacks.items()}


def preallocated(layers, capacity, columns=False):
    """The book's layer and cache; a step takes tokens (1, n, d_model) and how many are kept."""
    caches = [KeyValueCache(capacity, columns=columns) for _ in layers]

    def step(x, kept):
        for layer, cache in zip(layers, caches):
            if cache.length > kept:
                cache.truncate(kept)
            x = x + layer(x, cache=cache, causal=True)[0]
        return x

    return step


def in_columns(layers):
    """Copies of the layers, laid out for decoding."""
    return [by_columns(copy.deepcopy(layer)) for layer in layers]


def concatenated(layers):
    """What most libraries do: every step copies the cache into a new one that is a row longer."""
    caches = [(torch.zeros(1, layer.num_heads, 0, layer.d_k),) * 2 for layer in layers]

    def step(x, kept):
        for i, layer in enumerate(layers):
            q, *new = layer.project(x, x, x)
            k, v = caches[i] = [
                torch.cat([old[..., :kept, :], more], -2) for old, more in zip(caches[i], new)
            ]
            heads = F.scaled_dot_product_attention(q, k, v, is_causal=kept == 0)
            x = x + layer.w_o(heads.transpose(1, 2).flatten(-2))
        return x

    return step


def uncached(layers, tokens):
    """All tokens so far through every layer, for the sake of the last ones."""

    def step(x, kept):
        n = x.shape[1]
        x = tokens[:, : kept + n]
        for layer in layers:
            x = x + layer(x, causal=True)[0]
        return x[:, -n:]

    return step


def in_numpy(layers, capacity):
    """The NumPy form of ``preallocated``."""
    matrices = [to_projections(layer) for layer in layers]
    heads, d_k = layers[0].num_heads, layers[0].d_k
    caches = [scratch.KeyValueCache(capacity, heads, d_k, dtype=np.float32) for _ in layers]

    def step(x, kept):
        x = x[0].numpy()
        for p, cache in zip(matrices, caches):
            if cache.length > kept:
                cache.truncate(kept)
            x = x + scratch.multi_head_attention_cached(x, p, heads, cache)[0]
        return torch.from_numpy(x)[None]

    return step


def hugging_face(layers):
    """Hugging Face's LlamaAttention and DynamicCache, with queries and keys turned by nothing."""
    from transformers import DynamicCache, LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    first = layers[0]
    config = LlamaConfig(
        hidden_size=first.d_model, num_attention_heads=first.num_heads, attn_implementation="sdpa"
    )
    theirs, cache = [LlamaAttention(config, i).eval() for i in range(len(layers))], DynamicCache()
    for attention, layer in zip(theirs, layers):
        matrices = (*layer.w_qkv.weight.split(layer.widths), layer.w_o.weight)
        modules = attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj
        for module, matrix in zip(modules, matrices):
            module.weight = torch.nn.Parameter(matrix.detach().clone())

    def step(x, kept):
        turns = torch.ones(1, x.shape[1], first.d_k), torch.zeros(1, x.shape[1], first.d_k)
        for rows in cache.layers if cache.get_seq_length() > kept else ():
            rows.keys, rows.values = rows.keys[..., :kept, :], rows.values[..., :kept, :]
        for attention in theirs:
            x = x + attention(x, turns, None, cache)[0]
        return x

    return step


def _decoder(stack, x, context):
    """Fill the stack's cache with the context; a function that then decodes the other tokens."""
    pools = ThreadpoolController()

    @torch.no_grad()
    def run():
        with one_thread(), pools.limit(limits=1):
            steps = [stack(x[:, t : t + 1], t) for t in range(context, x.shape[1])]
        return torch.cat(steps, 1)

    with torch.no_grad():
        stack(x[:, :context], 0)
    return run
