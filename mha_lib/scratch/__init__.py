"""Attention from scratch, in NumPy alone."""

from mha_lib.scratch.attention import (
    AttentionGradients,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from mha_lib.scratch.heads import merge_heads, split_heads
from mha_lib.scratch.multi_head import (
    MultiHeadGradients,
    multi_head_attention,
    multi_head_attention_backward,
    multi_head_attention_loop,
    multi_head_attention_sum,
)
from mha_lib.scratch.projections import Projections
from mha_lib.scratch.softmax import softmax, softmax_backward

__all__ = [
    "AttentionGradients",
    "MultiHeadGradients",
    "Projections",
    "merge_heads",
    "multi_head_attention",
    "multi_head_attention_backward",
    "multi_head_attention_loop",
    "multi_head_attention_sum",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "softmax",
    "softmax_backward",
    "split_heads",
]
