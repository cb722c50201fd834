"""The book's one mask contract.

A mask is boolean and ``True`` means "may attend". It broadcasts to (..., n_q, n_kv): rows are
queries, columns are keys. Masks are combined with ``&``. A number that is added to the scores is
not a mask but a ``bias``. A query that may attend to nothing gets zero weights and a zero output,
and what a forbidden position holds changes nothing.

A layer with heads takes a mask for its batch, (n_q, n_kv) or (..., n_q, n_kv), and applies it to
every head; with one axis more, (..., num_heads, n_q, n_kv), each head has its own.
"""

from mha_lib.masks.builders import causal, documents, padding, prefix, sliding_window
from mha_lib.masks.contract import allowed, check, scores_shape, with_head_axis
from mha_lib.masks.converters import (
    from_additive,
    from_hugging_face_additive,
    from_hugging_face_padding,
    from_kernel,
    from_module_head_masks,
    from_module_mask,
    from_module_padding,
    to_additive,
    to_hugging_face_additive,
    to_hugging_face_padding,
    to_kernel,
    to_module_head_masks,
    to_module_mask,
    to_module_padding,
)

__all__ = [
    "allowed",
    "causal",
    "check",
    "documents",
    "from_additive",
    "from_hugging_face_additive",
    "from_hugging_face_padding",
    "from_kernel",
    "from_module_head_masks",
    "from_module_mask",
    "from_module_padding",
    "padding",
    "prefix",
    "scores_shape",
    "sliding_window",
    "to_additive",
    "to_hugging_face_additive",
    "to_hugging_face_padding",
    "to_kernel",
    "to_module_head_masks",
    "to_module_mask",
    "to_module_padding",
    "with_head_axis",
]
