"""Attention from scratch, in NumPy alone."""

from mha_lib.scratch.attention import (
    AttentionGradients,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from mha_lib.scratch.cache import KeyValueCache, multi_head_attention_cached
from mha_lib.scratch.heads import merge_heads, split_heads
from mha_lib.scratch.multi_head import (
    MultiHeadGradients,
    multi_head_attention,
    multi_head_attention_backward,
    multi_head_attention_loop,
    multi_head_attention_sum,
)
from mha_lib.scratch.online import (
    OnlineState,
    online_attention,
    online_attention_backward,
    online_step,
)
from mha_lib.scratch.projections import Projections
from mha_lib.scratch.softmax import softmax, softmax_backward

__all__ = [
    "AttentionGradients",
    "KeyValueCache",
    "MultiHeadGradients",
    "OnlineState",
    "Projections",
    "merge_heads",
    "multi_head_attention",
    "multi_head_attention_backward",
    "multi_head_attention_cached",
    "multi_head_attention_loop",
    "multi_head_attention_sum",
    "online_attention",
    "online_attention_backward",
    "online_step",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "softmax",
    "softmax_backward",
    "split_heads",
]
