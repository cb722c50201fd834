"""The same attention in PyTorch: two cores, a module, and conversion of weights."""

from mha_lib.pytorch.attention import scaled_dot_product_attention
from mha_lib.pytorch.conversion import from_projections, from_torch, to_projections, to_torch
from mha_lib.pytorch.multi_head import MultiHeadAttention

__all__ = [
    "MultiHeadAttention",
    "from_projections",
    "from_torch",
    "scaled_dot_product_attention",
    "to_projections",
    "to_torch",
]
