"""Score biases: numbers that are added to the scores, beside the mask.

A bias prefers some keys to others and hides none: hiding is the mask's job. Builders give one table
a head, (num_heads, n_q, n_kv); a layer whose inputs have a batch axis takes it as bias[None].
"""

from mha_lib.bias.buckets import t5_bias, t5_buckets
from mha_lib.bias.distance import alibi, alibi_slopes

__all__ = ["alibi", "alibi_slopes", "t5_bias", "t5_buckets"]
