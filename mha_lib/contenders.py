"""The layers that `python -m mha_lib measure compare` times: same weights, same input."""

import torch
import torch.nn.functional as F

from mha_lib import scratch
from mha_lib.measure.torch_cores import written_out
from mha_lib.pytorch import to_projections, to_torch
from mha_lib.pytorch.multi_head import MultiHeadAttention
from mha_lib.scratch.multi_head import layer_around, tiled_core

D_MODEL, NUM_HEADS = 512, 8


def forward(n, causal):
    """Forward passes without gradients, batch 1, float32; the first is the yardstick."""
    layer, module, x = _layer_and_input(n)
    layer, module = layer.eval(), module.train()  # its eval() fast path takes quadratic memory
    mask = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    p, tokens = to_projections(layer), x.numpy()
    passes = {
        "bare projection + torch's kernel": lambda: bare(layer, x, causal),
        "MultiHeadAttention": lambda: layer(x, causal=causal),
        "nn.MultiheadAttention, default": lambda: module(x, x, x, attn_mask=mask),
        "formula written out, PyTorch": lambda: plain(layer, x, causal),
        "one reshape, NumPy": lambda: scratch.multi_head_attention(
            tokens, tokens, tokens, p, NUM_HEADS, causal=causal
        ),
        "tiles, NumPy": lambda: layer_around(
            tiled_core, tokens, tokens, tokens, p, NUM_HEADS, causal=causal
        ),
    }
    return {name: torch.no_grad()(function) for name, function in passes.items()}


def forward_backward(n, causal):
    """Forward and backward passes, batch 1, float32; the first is the yardstick."""
    layer, module, x = _layer_and_input(n)
    mask = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    return {
        "bare projection + torch's kernel": lambda: bare(layer, x, causal).sum().backward(),
        "MultiHeadAttention": lambda: layer(x, causal=causal)[0].sum().backward(),
        "nn.MultiheadAttention, default": lambda: (
            module(x, x, x, attn_mask=mask)[0].sum().backward()
        ),
    }


def bare(layer, x, causal):
    """The least that a layer must do: one projection, torch's kernel, the output projection."""
    q, k, v = F.linear(x, layer.w_qkv.weight, layer.w_qkv.bias).chunk(3, dim=-1)
    q, k, v = (t.unflatten(-1, (NUM_HEADS, -1)).transpose(-3, -2) for t in (q, k, v))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F.linear(heads.transpose(-3, -2).flatten(-2), layer.w_o.weight, layer.w_o.bias)


def plain(layer, x, causal):
    """The same with the formula written out: matmul, softmax, matmul."""
    heads = written_out(*layer.project(x, x, x), causal)  # (..., h, n, d_v)
    return layer.w_o(heads.transpose(-3, -2).flatten(-2))


def _layer_and_input(n):
    torch.manual_seed(0)
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS)
    return layer, to_torch(layer), torch.randn(1, n, D_MODEL)
