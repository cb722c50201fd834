"""The same attention in PyTorch: two cores, a module, and conversion of weights."""

from mha_lib.pytorch.attention import scaled_dot_product_attention
from mha_lib.pytorch.cache import KeyValueCache, cached_attention
from mha_lib.pytorch.conversion import (
    from_projections,
    from_torch,
    pool_heads,
    to_projections,
    to_torch,
    unshare_heads,
)
from mha_lib.pytorch.layout import by_columns
from mha_lib.pytorch.multi_head import MultiHeadAttention

__all__ = [
    "KeyValueCache",
    "MultiHeadAttention",
    "by_columns",
    "cached_attention",
    "from_projections",
    "from_torch",
    "pool_heads",
    "scaled_dot_product_attention",
    "to_projections",
    "to_torch",
    "unshare_heads",
]
