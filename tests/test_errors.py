"""Bad input is refused at the call, in one sentence: the argument, what came, what was expected."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mha_lib import bias, masks, pytorch, scratch
from mha_lib.pytorch import MultiHeadAttention, from_projections, from_torch, to_torch
from mha_lib.scratch import Projections

from .cases import head_inputs, layer_inputs, projections

ONES = np.ones((2, 3, 5))


def mask(*shape):
    return np.ones(shape, bool)


# A core's arguments, by the fault: what is wrong, the error and what it must say.
CORE = {
    "query is a list": ({"query": [[1.0]]}, TypeError, "query must be a", "got list"),
    "query is None": ({"query": None}, TypeError, "query must be a", "got NoneType"),
    "query without token axis": (
        {"query": np.ones(4)}, ValueError, "query", "at least two axes", "(4,)"),
    "key without token axis": ({"key": np.ones(4)}, ValueError, "key", "two axes", "(4,)"),
    "value without token axis": ({"value": np.ones(4)}, ValueError, "value", "two axes", "(4,)"),
    "query of integers": (
        {"query": np.ones((2, 3, 4), int)}, TypeError, "query", "floating point", "int64"),
    "value of integers": (
        {"value": np.ones((2, 5, 3), int)}, TypeError, "value", "floating point", "int64"),
    "key of booleans": ({"key": mask(2, 5, 4)}, TypeError, "key", "floating point", "bool"),
    "complex query": (
        {"query": np.ones((2, 3, 4), complex)}, TypeError, "query", "floating", "complex128"),
    "key of another precision": (
        {"key": np.ones((2, 5, 4), np.float32)}, TypeError,
        "key must have the dtype of query, float64, got float32"),
    "value of another precision": (
        {"value": np.ones((2, 5, 3), np.float16)}, TypeError,
        "value must have the dtype of query, float64, got float16"),
    "key of another width": (
        {"key": np.ones((2, 5, 3))}, ValueError, "key", "as wide as query", "d_k = 4", "got 3"),
    "one value too few": (
        {"value": np.ones((2, 4, 3))}, ValueError, "value", "one row per key", "n_kv = 5", "got 4"),
    "key of another batch": (
        {"key": np.ones((3, 5, 4))}, ValueError, "key", "batch axes of query", "(2,)", "(3,)"),
    "value without the batch": (
        {"value": np.ones((5, 3))}, ValueError, "value", "batch axes of query", "(2,)", "()"),
    "key with a batch axis more": (
        {"key": np.ones((1, 2, 5, 4))}, ValueError, "key", "batch axes of query", "(1, 2)"),
    "no features": (
        {"query": np.ones((2, 3, 0)), "key": np.ones((2, 5, 0))}, ValueError,
        "query", "at least one feature", "(2, 3, 0)"),
    "mask of 0 and 1": (
        {"mask": np.ones((3, 5), int)}, TypeError,
        "mask must be boolean", "int64", "mask == 1", "mask == 0"),
    "mask of bytes": ({"mask": np.ones((3, 5), np.uint8)}, TypeError, "mask", "boolean", "uint8"),
    "mask of numbers": (
        {"mask": np.zeros((3, 5))}, TypeError, "mask", "boolean", "float64", "bias", "mask == 0"),
    "mask is a list": ({"mask": [[True] * 5] * 3}, TypeError, "mask must be a", "got list"),
    "mask is True": ({"mask": True}, TypeError, "mask must be a", "got bool"),
    "mask transposed": (
        {"mask": mask(5, 3)}, ValueError, "mask", "(2, 3, 5)", "(5, 3)", "swap its last two axes"),
    "padding mask without query axis": (
        {"mask": mask(2, 5)}, ValueError, "mask", "(2, 3, 5)", "(2, 5)", "[:, None, :]"),
    "mask with one axis": ({"mask": mask(5)}, ValueError, "mask", "(5,)", "array[None, :]"),
    "mask with too many axes": (
        {"mask": mask(1, 2, 3, 5)}, ValueError, "mask", "(2, 3, 5)", "(1, 2, 3, 5)"),
    "mask of another batch": (
        {"mask": mask(4, 3, 5)}, ValueError, "mask", "(2, 3, 5)", "(4, 3, 5)"),
    "mask of other lengths": ({"mask": mask(3, 4)}, ValueError, "mask", "(2, 3, 5)", "(3, 4)"),
    "mask that is too large": ({"mask": mask(3, 10)}, ValueError, "mask", "(2, 3, 5)", "(3, 10)"),
    "mask of the queries for one row of keys": (
        {"mask": mask(3)}, ValueError, "mask", "(3,)", "3 columns", "5 keys are meant"),
    "padding mask of the queries": (
        {"mask": mask(2, 1, 3)}, ValueError, "mask", "(2, 1, 3)", "3 columns", "5 keys are meant"),
    "padding mask of the queries without an axis": (
        {"mask": mask(2, 3)}, ValueError, "mask", "(2, 3)", "3 columns", "5 keys are meant"),
    "self-attention's mask for other keys": (
        {"mask": masks.causal(3)}, ValueError, "mask", "(3, 3)", "3 columns", "5 keys are meant"),
    "bias of heads without a batch axis": (
        {"bias": np.ones((4, 3, 5))}, ValueError, "bias", "(4, 3, 5)", "heads", "array[None]"),
    "boolean bias": ({"bias": mask(3, 5)}, TypeError, "bias", "floating point", "bool"),
    "bias of another precision": (
        {"bias": np.ones((3, 5), np.float32)}, TypeError, "bias", "float64", "got float32"),
    "bias transposed": (
        {"bias": np.ones((5, 3))}, ValueError, "bias", "(2, 3, 5)", "(5, 3)", "swap"),
    "bias with one axis": ({"bias": np.ones(5)}, ValueError, "bias", "(5,)", "array[None, :]"),
    "bias that hides": ({"bias": ONES * -np.inf}, ValueError, "bias", "finite", "inf", "mask"),
    "bias with NaN": ({"bias": ONES * np.nan}, ValueError, "bias", "finite", "NaN"),
    "bias is a number": ({"bias": 1.0}, TypeError, "bias must be a", "got float"),
    "causal is 1": ({"causal": 1}, TypeError, "causal must be True or False", "got int"),
    "causal is a mask": ({"causal": mask(3, 5)}, TypeError, "causal", "True or False"),
    "causal is None": ({"causal": None}, TypeError, "causal", "True or False", "NoneType"),
    "scale is text": ({"scale": "0.5"}, TypeError, "scale must be a number", "got str"),
    "scale is True": ({"scale": True}, TypeError, "scale must be a number", "got bool"),
    "scale is NaN": ({"scale": np.nan}, ValueError, "scale must be finite", "got nan"),
    "scale is infinite": ({"scale": np.inf}, ValueError, "scale must be finite", "got inf"),
}  # fmt: skip


def to_torch_arguments(arguments):
    """Arrays as tensors; everything else as it is."""
    return {
        name: torch.from_numpy(a) if isinstance(a, np.ndarray) else a
        for name, a in arguments.items()
    }


def core_arguments(**faults):
    return dict(zip(("query", "key", "value"), head_inputs(), strict=True)) | faults


def refuses(call, error, *words):
    """The call raises this error, and its message has all of these words."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


@pytest.mark.parametrize("fault", CORE)
def test_numpy_core_refuses(fault):
    faults, *expected = CORE[fault]
    refuses(lambda: scratch.scaled_dot_product_attention(**core_arguments(**faults)), *expected)


@pytest.mark.parametrize("fault", CORE)
def test_numpy_backward_refuses(fault):
    faults, *expected = CORE[fault]
    arguments = core_arguments(**faults)
    refuses(
        lambda: scratch.scaled_dot_product_attention_backward(np.ones((2, 3, 3)), **arguments),
        *expected,
    )


@pytest.mark.parametrize("need_weights", (True, False), ids=("explicit", "fused"))
@pytest.mark.parametrize("fault", CORE)
def test_torch_core_refuses(fault, need_weights):
    faults, *expected = CORE[fault]
    arguments = to_torch_arguments(core_arguments(**faults))
    refuses(
        lambda: pytorch.scaled_dot_product_attention(**arguments, need_weights=need_weights),
        *expected,
    )


def numpy_core(**faults):
    return scratch.scaled_dot_product_attention(**core_arguments(**faults))


def torch_core(**faults):
    arguments = to_torch_arguments(core_arguments()) | faults
    return pytorch.scaled_dot_product_attention(**arguments)


def backward(grad_output):
    return scratch.scaled_dot_product_attention_backward(grad_output, *head_inputs())


# What is wrong with a single function's arguments.
FUNCTIONS = {
    "NumPy: a tensor for query": (
        lambda: numpy_core(query=torch.ones(2, 3, 4)), TypeError,
        "query", "numpy.ndarray", "Tensor"),
    "NumPy: a tensor for mask": (
        lambda: numpy_core(mask=torch.ones(3, 5).bool()), TypeError,
        "mask", "numpy.ndarray", "Tensor"),
    "torch: an array for query": (
        lambda: torch_core(query=np.ones((2, 3, 4))), TypeError,
        "query", "torch.Tensor", "ndarray"),
    "torch: an array for mask": (
        lambda: torch_core(mask=mask(3, 5)), TypeError, "mask", "torch.Tensor", "ndarray"),
    "torch: dropout of everything": (
        lambda: torch_core(dropout_p=1.0), ValueError, "dropout_p", "below 1", "got 1.0"),
    "torch: negative dropout": (
        lambda: torch_core(dropout_p=-0.1), ValueError, "dropout_p", "at least 0", "got -0.1"),
    "torch: dropout NaN": (
        lambda: torch_core(dropout_p=float("nan")), ValueError, "dropout_p", "below 1", "nan"),
    "torch: dropout as text": (
        lambda: torch_core(dropout_p="0.1"), TypeError, "dropout_p", "number", "got str"),
    "gradient of another shape": (
        lambda: backward(np.ones((2, 3, 4))), ValueError, "grad_output", "(2, 3, 3)", "(2, 3, 4)"),
    "gradient of another precision": (
        lambda: backward(np.ones((2, 3, 3), np.float32)), TypeError,
        "grad_output", "float64", "float32"),
    "gradient is a list": (lambda: backward([1.0]), TypeError, "grad_output must be a", "list"),
    "split without features": (
        lambda: scratch.split_heads(np.ones(4), 2), ValueError, "x", "two axes", "(4,)"),
    "split into too many": (
        lambda: scratch.split_heads(np.ones((3, 10)), 3), ValueError,
        "x must be divisible by num_heads = 3", "got 10", "1 left over"),
    "split into none": (
        lambda: scratch.split_heads(np.ones((3, 4)), 0), ValueError,
        "num_heads", "at least 1", "got 0"),
    "split into 2.0": (
        lambda: scratch.split_heads(np.ones((3, 4)), 2.0), TypeError, "num_heads", "whole", "2.0"),
    "split into True": (
        lambda: scratch.split_heads(np.ones((3, 4)), True), TypeError,
        "num_heads", "whole", "True"),
    "merge without heads": (
        lambda: scratch.merge_heads(np.ones((3, 4))), ValueError, "x", "num_heads, n, d", "(3, 4)"),
    "causal of -1 queries": (lambda: masks.causal(-1), ValueError, "n_q", "negative", "got -1"),
    "causal of -1 keys": (lambda: masks.causal(2, -1), ValueError, "n_kv", "negative", "got -1"),
    "causal of 2.0 queries": (lambda: masks.causal(2.0), TypeError, "n_q", "whole", "2.0"),
    "padding longer than the keys": (
        lambda: masks.padding([1, 4], 3), ValueError, "lengths", "n_kv = 3", "[1, 4]"),
    "padding of -1 tokens": (
        lambda: masks.padding([-1], 3), ValueError, "lengths", "between 0 and", "[-1]"),
    "padding of half a token": (
        lambda: masks.padding([1.5], 3), TypeError, "lengths", "whole numbers", "float64"),
    "padding from a mask": (
        lambda: masks.padding([True, False], 3), TypeError, "lengths", "whole numbers", "bool"),
    "padding from a table": (
        lambda: masks.padding([[1, 2]], 3), TypeError, "lengths", "one a sample", "(1, 2)"),
    "padding of a single length": (
        lambda: masks.padding(2, 3), TypeError, "lengths", "one a sample", "()"),
    "padding in the middle": (
        lambda: masks.padding([1], 3, side="middle"), ValueError,
        "side", "'left' or 'right'", "'middle'"),
    "a window of 0": (
        lambda: masks.sliding_window(3, window=0), ValueError, "window", "at least 1", "got 0"),
    "a window of 1.5": (
        lambda: masks.sliding_window(3, window=1.5), TypeError, "window", "whole", "1.5"),
    "a window over -1 keys": (
        lambda: masks.sliding_window(3, -1, window=1), ValueError, "n_kv", "negative", "got -1"),
    "a prefix longer than the keys": (
        lambda: masks.prefix(2, 3, length=4), ValueError, "length", "n_kv = 3", "got 4"),
    "a prefix of -1": (
        lambda: masks.prefix(2, length=-1), ValueError, "length", "negative", "got -1"),
    "a prefix of True": (
        lambda: masks.prefix(2, length=True), TypeError, "length", "whole", "True"),
    "documents named by letters": (
        lambda: masks.documents(["a", "b"]), TypeError, "query_ids", "whole numbers", "(2,)"),
    "documents numbered by floats": (
        lambda: masks.documents([0], np.ones(2)), TypeError, "key_ids", "whole", "float64"),
    "documents of one number": (
        lambda: masks.documents(3), TypeError, "query_ids", "one a token", "()"),
    "documents of a mask": (
        lambda: masks.documents(mask(3)), TypeError, "query_ids", "whole numbers", "bool"),
    "documents of two batches": (
        lambda: masks.documents([[0, 1]], [0, 1]), ValueError,
        "key_ids", "batch axes of query_ids"),
    "documents of an array and a tensor": (
        lambda: masks.documents([0, 1], torch.tensor([0, 1])), TypeError,
        "key_ids", "numpy.ndarray", "Tensor"),
    "additive from a list": (
        lambda: masks.to_additive([True], np.float32), TypeError, "mask", "ndarray", "got list"),
    "additive from 0 and 1": (
        lambda: masks.to_additive(np.ones((1, 2), int), np.float32), TypeError,
        "mask must be boolean", "int64", "mask == 1"),
    "additive as integers": (
        lambda: masks.to_additive(mask(1, 2), int), TypeError, "dtype", "floating", "numpy", "int"),
    "additive of no type": (
        lambda: masks.to_additive(mask(1, 2), None), TypeError, "dtype", "floating", "None"),
    "additive array of torch's type": (
        lambda: masks.to_additive(mask(1, 2), torch.float16), TypeError,
        "dtype", "numpy", "torch.float16"),
    "additive tensor of NumPy's type": (
        lambda: masks.to_additive(torch.ones(1, 2).bool(), np.float16), TypeError,
        "dtype", "torch", "float16"),
    "mask from a bias": (
        lambda: masks.from_additive(np.array([[0, -1.5]])), ValueError, "additive", "-1.5", "bias"),
    "mask from -1e9": (
        lambda: masks.from_additive(np.array([[0, -1e9]])), ValueError,
        "additive", "-1000000000.0"),
    "mask from 0 and 1 in floats": (
        lambda: masks.from_additive(np.array([[0, 1.0]])), ValueError,
        "additive", "got 1.0", "bias"),
    "mask from NaN": (
        lambda: masks.from_additive(np.array([[np.nan]])), ValueError, "additive", "got nan"),
    "additive that is boolean": (
        lambda: masks.from_additive(mask(1, 2)), TypeError, "additive", "floating point", "bool"),
    "additive that is a list": (
        lambda: masks.from_additive([0.0]), TypeError, "additive", "ndarray", "got list"),
    "module's mask of a batch": (
        lambda: masks.to_module_mask(mask(2, 3, 5)), ValueError,
        "mask", "(n_q, n_kv)", "(2, 3, 5)"),
    "module's additive mask": (
        lambda: masks.from_module_mask(np.zeros((3, 5))), TypeError,
        "attn_mask", "boolean", "float64", "from_additive"),
    "module's mask of integers": (
        lambda: masks.from_module_mask(np.zeros((3, 5), int)), TypeError, "attn_mask", "boolean"),
    "module's mask for 3 heads": (
        lambda: masks.to_module_head_masks(mask(2, 3, 4, 5), 2), ValueError,
        "mask", "num_heads = 2", "(2, 3, 4, 5)"),
    "module's mask a head without a batch": (
        lambda: masks.to_module_head_masks(mask(4, 5), 2), ValueError, "mask", "batch", "(4, 5)"),
    "module's mask for no heads": (
        lambda: masks.to_module_head_masks(mask(2, 4, 5), 0), ValueError, "num_heads", "got 0"),
    "5 rows for 2 heads": (
        lambda: masks.from_module_head_masks(mask(5, 3, 4), 2), ValueError,
        "attn_mask", "multiple of 2", "got 5"),
    "module's padding a query": (
        lambda: masks.to_module_padding(mask(2, 3, 5)), ValueError,
        "mask", "(batch, 1, n_kv)", "(2, 3, 5)"),
    "module's padding with a query axis": (
        lambda: masks.from_module_padding(mask(2, 1, 5)), ValueError,
        "key_padding_mask", "(batch, n_kv)", "(2, 1, 5)"),
    "kernel's mask with one axis": (
        lambda: masks.to_kernel(mask(5)), ValueError, "mask", "(n_q, n_kv)", "(5,)"),
    "kernel's bias": (
        lambda: masks.from_kernel(np.ones((3, 5))), ValueError, "got 1.0", "bias"),
    "kernel's mask as integers": (
        lambda: masks.from_kernel(np.ones((3, 5), int)), TypeError,
        "attn_mask", "boolean", "int64"),
    "Hugging Face's padding as booleans": (
        lambda: masks.from_hugging_face_padding(mask(2, 5)), TypeError,
        "attention_mask", "integers", "bool", "[:, None, :]"),
    "Hugging Face's padding with 2": (
        lambda: masks.from_hugging_face_padding(np.array([[1, 2]])), ValueError,
        "attention_mask", "1 (real token)", "got 2"),
    "Hugging Face's padding of one text": (
        lambda: masks.from_hugging_face_padding(np.array([1, 0])), ValueError,
        "attention_mask", "(batch, n_kv)", "(2,)"),
    "Hugging Face's padding from a mask a query": (
        lambda: masks.to_hugging_face_padding(mask(2, 3, 5)), ValueError, "mask", "(2, 3, 5)"),
    "Hugging Face's additive form without a batch": (
        lambda: masks.to_hugging_face_additive(mask(3, 5), np.float32), ValueError,
        "mask", "(batch, n_q, n_kv)", "(3, 5)"),
    "Hugging Face's additive form with three axes": (
        lambda: masks.from_hugging_face_additive(np.zeros((2, 3, 5))), ValueError,
        "attention_mask", "(batch, 1, n_q, n_kv)", "(2, 3, 5)"),
    "slopes for no heads": (
        lambda: bias.alibi_slopes(0), ValueError, "num_heads", "at least 1", "got 0"),
    "ALiBi for 2.0 heads": (
        lambda: bias.alibi(2.0, 3), TypeError, "num_heads", "whole", "2.0"),
    "ALiBi in integers": (
        lambda: bias.alibi(2, 3, dtype=int), TypeError, "dtype", "floating", "numpy"),
    "ALiBi in NumPy's type on a device": (
        lambda: bias.alibi(2, 3, dtype=np.float32, device="cpu"), TypeError, "dtype", "torch"),
    "odd buckets for two directions": (
        lambda: bias.t5_buckets(3, bidirectional=True, num_buckets=7), ValueError,
        "num_buckets", "even", "got 7"),
    "one bucket": (
        lambda: bias.t5_buckets(3, bidirectional=False, num_buckets=1), ValueError,
        "num_buckets", "at least 2", "got 1"),
    "buckets that reach nowhere": (
        lambda: bias.t5_buckets(3, bidirectional=False, max_distance=16), ValueError,
        "max_distance", "greater than 16", "got 16"),
    "a direction that is a number": (
        lambda: bias.t5_buckets(3, bidirectional=1), TypeError, "bidirectional", "True or False"),
    "a table of integers": (
        lambda: bias.t5_bias(np.ones((4, 2), int), np.zeros((3, 5), int)), TypeError,
        "table", "floating point", "int64"),
    "a table that is a list": (
        lambda: bias.t5_bias([[1.0]], np.zeros((3, 5), int)), TypeError, "table", "got list"),
    "a table with one axis": (
        lambda: bias.t5_bias(np.ones(4), np.zeros((3, 5), int)), ValueError,
        "table", "(num_buckets, num_heads)", "(4,)"),
    "buckets that are no integers": (
        lambda: bias.t5_bias(np.ones((4, 2)), np.zeros((3, 5))), TypeError,
        "buckets", "whole numbers", "float64"),
    "buckets of the other library": (
        lambda: bias.t5_bias(torch.ones(4, 2), np.zeros((3, 5), int)), TypeError,
        "buckets", "torch.Tensor", "ndarray"),
    "buckets beyond the table": (
        lambda: bias.t5_bias(np.ones((4, 2)), np.array([[0, 4]])), ValueError,
        "buckets", "num_buckets = 4", "0 to 4"),
    "buckets below 0": (
        lambda: bias.t5_bias(np.ones((4, 2)), np.array([[-1, 3]])), ValueError,
        "buckets", "num_buckets = 4", "-1 to 3"),
    "padding of -1 keys": (lambda: masks.padding([], -1), ValueError, "n_kv", "negative", "-1"),
    "random matrices of width 0": (
        lambda: Projections.random(0, np.random.default_rng(0)), ValueError,
        "d_model", "at least 1", "0"),
    "random matrices of width 7 for 2 heads": (
        lambda: Projections.random(7, np.random.default_rng(0), num_heads=2), ValueError,
        "d_model", "num_heads = 2", "got 7"),
    "from_torch of something else": (
        lambda: from_torch(nn.Linear(2, 2)), TypeError, "module", "MultiheadAttention", "Linear"),
    "from_torch with kdim": (
        lambda: from_torch(nn.MultiheadAttention(4, 2, kdim=3)), ValueError,
        "module", "plain", "kdim"),
    "from_torch with add_bias_kv": (
        lambda: from_torch(nn.MultiheadAttention(4, 2, add_bias_kv=True)), ValueError,
        "module", "plain", "add_bias_kv"),
    "from_torch with add_zero_attn": (
        lambda: from_torch(nn.MultiheadAttention(4, 2, add_zero_attn=True)), ValueError,
        "module", "plain", "add_zero_attn"),
    "to_torch of something else": (
        lambda: to_torch(nn.Linear(2, 2)), TypeError, "layer", "MultiHeadAttention", "Linear"),
    "to_torch of grouped heads": (
        lambda: to_torch(MultiHeadAttention(4, 2, num_kv_heads=1)), ValueError,
        "layer", "num_kv_heads = num_heads", "num_kv_heads=1"),
    "to_torch of wide heads": (
        lambda: to_torch(MultiHeadAttention(4, 2, d_k=3)), ValueError, "layer", "d_model", "d_k=3"),
    "from_projections of something else": (
        lambda: from_projections({}, 2), TypeError, "projections", "Projections", "dict"),
    "from_projections of unequal widths": (
        lambda: from_projections(projections(), 2), ValueError, "w_q", "d_model = 9", "(7, 8)"),
    "from_projections with some biases": (
        lambda: from_projections(replace(projections((9, 9, 9)), b_k=None), 2),
        ValueError, "projections", "four biases or none", "some"),
    "from_projections for 3 heads": (
        lambda: from_projections(projections((9, 9, 9)), 3), ValueError,
        "w_q", "num_heads = 3", "8"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FUNCTIONS)
def test_refuses(fault):
    refuses(*FUNCTIONS[fault])


# A layer's arguments in NumPy; matrices by their own name.
LAYER = {
    "w_q too short": (
        {"w_q": np.ones((6, 8))}, ValueError, "w_q", "feature of query", "7", "(6, 8)"),
    "w_k too short": ({"w_k": np.ones((5, 8))}, ValueError, "w_k", "feature of key", "6", "(5, 8)"),
    "w_v too short": (
        {"w_v": np.ones((7, 6))}, ValueError, "w_v", "feature of value", "8", "(7, 6)"),
    "w_o too short": ({"w_o": np.ones((5, 9))}, ValueError, "w_o", "column of w_v", "6", "(5, 9)"),
    "w_k too narrow": ({"w_k": np.ones((6, 6))}, ValueError, "w_k", "columns as w_q", "8", "6"),
    "w_q with one axis": ({"w_q": np.ones(7)}, ValueError, "w_q", "two axes", "(7,)"),
    "w_o of another precision": (
        {"w_o": np.ones((6, 9), np.float32)}, TypeError, "w_o", "float64", "float32"),
    "w_v is a list": ({"w_v": [[1.0]]}, TypeError, "w_v must be a", "list"),
    "b_q too long": ({"b_q": np.ones(9)}, ValueError, "b_q", "(8,)", "(9,)"),
    "b_k with two axes": ({"b_k": np.ones((1, 8))}, ValueError, "b_k", "(8,)", "(1, 8)"),
    "b_v too short": ({"b_v": np.ones(5)}, ValueError, "b_v", "(6,)", "(5,)"),
    "b_o too long": ({"b_o": np.ones(10)}, ValueError, "b_o", "(9,)", "(10,)"),
    "3 heads": ({"num_heads": 3}, ValueError, "w_q", "num_heads = 3", "8"),
    "4 heads": ({"num_heads": 4}, ValueError, "w_v", "num_heads = 4", "6"),
    "no heads": ({"num_heads": 0}, ValueError, "num_heads", "at least 1", "0"),
    "2.0 heads": ({"num_heads": 2.0}, TypeError, "num_heads", "whole", "2.0"),
    "query with one axis": ({"query": np.ones(7)}, ValueError, "query", "two axes", "(7,)"),
    "key of another batch": (
        {"key": np.ones((3, 5, 6))}, ValueError, "key", "batch axes of query", "(2,)", "(3,)"),
    "one value too few": (
        {"value": np.ones((2, 4, 8))}, ValueError, "value", "n_kv = 5", "got 4"),
    "query of integers": (
        {"query": np.ones((2, 3, 7), int)}, TypeError, "query", "floating point", "int64"),
    "mask for 3 heads": (
        {"mask": mask(2, 3, 3, 5)}, ValueError, "mask", "(2, 2, 3, 5)", "(2, 3, 3, 5)"),
    "padding mask without query axis": (
        {"mask": mask(2, 5)}, ValueError, "mask", "(2, 3, 5)", "(2, 5)", "[:, None, :]"),
    "mask of 0 and 1": ({"mask": np.ones((3, 5), int)}, TypeError, "mask", "boolean", "int64"),
    "bias for 3 heads": (
        {"bias": np.ones((2, 3, 3, 5))}, ValueError, "bias", "(2, 2, 3, 5)", "(2, 3, 3, 5)"),
    "bias of another precision": (
        {"bias": np.ones((3, 5), np.float32)}, TypeError, "bias", "float64", "float32"),
    "bias that hides": ({"bias": ONES * -np.inf}, ValueError, "bias", "finite", "inf"),
    "causal is 1": ({"causal": 1}, TypeError, "causal", "True or False", "int"),
    "scale is text": ({"scale": "1"}, TypeError, "scale", "number", "str"),
    "projections is a tuple": (
        {"projections": (1, 2)}, TypeError, "projections", "Projections", "tuple"),
}  # fmt: skip


def layer_arguments(**faults):
    """Good arguments with some replaced: the call's by its names, matrices by theirs."""
    inputs = dict(zip(("query", "key", "value"), layer_inputs(), strict=True))
    matrices = projections().arrays()
    p = Projections(**{name: faults.pop(name, array) for name, array in matrices.items()})
    return inputs | {"projections": p, "num_heads": 2} | faults


@pytest.mark.parametrize("fault", LAYER)
def test_numpy_layer_refuses(layer, fault):
    faults, *expected = LAYER[fault]
    refuses(lambda: layer(**layer_arguments(**faults)), *expected)


@pytest.mark.parametrize("fault", LAYER)
def test_numpy_layer_backward_refuses(fault):
    faults, *expected = LAYER[fault]
    call = scratch.multi_head_attention_backward
    refuses(lambda: call(np.ones((2, 3, 9)), **layer_arguments(**faults)), *expected)


def test_numpy_layer_backward_refuses_a_gradient_of_another_shape():
    refuses(
        lambda: scratch.multi_head_attention_backward(np.ones((2, 3, 8)), **layer_arguments()),
        ValueError, "grad_output", "(2, 3, 9)", "(2, 3, 8)",
    )  # fmt: skip


# The module's sizes when it is made.
SIZES = {
    "10 features for 3 heads": (
        (10, 3), {}, ValueError, "d_model", "num_heads = 3", "got 10"),
    "no heads": ((8, 0), {}, ValueError, "num_heads", "at least 1", "got 0"),
    "2.0 heads": ((8, 2.0), {}, TypeError, "num_heads", "whole", "2.0"),
    "no features": ((0, 2), {}, ValueError, "d_model", "at least 1", "got 0"),
    "8.0 features": ((8.0, 2), {}, TypeError, "d_model", "whole", "8.0"),
    "d_k of 0": ((8, 2), {"d_k": 0}, ValueError, "d_k", "at least 1", "got 0"),
    "d_v of 1.5": ((8, 2), {"d_v": 1.5}, TypeError, "d_v", "whole", "1.5"),
    "3 key-value heads for 4": (
        (8, 4), {"num_kv_heads": 3}, ValueError, "num_kv_heads", "num_heads = 4", "got 3"),
    "more key-value heads than heads": (
        (8, 2), {"num_kv_heads": 4}, ValueError, "num_kv_heads", "num_heads = 2", "got 4"),
    "no key-value heads": ((8, 2), {"num_kv_heads": 0}, ValueError, "num_kv_heads", "at least 1"),
    "dropout of everything": ((8, 2), {"dropout": 1.0}, ValueError, "dropout", "below 1", "1.0"),
    "dropout as text": ((8, 2), {"dropout": "a"}, TypeError, "dropout", "number", "got str"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SIZES)
def test_module_refuses_sizes(fault):
    sizes, options, *expected = SIZES[fault]
    refuses(lambda: MultiHeadAttention(*sizes, **options), *expected)


# The module's arguments at a call, for query (2, 3, 8) and key (2, 5, 8) in float32.
CALLS = {
    "query too narrow": (
        {"query": torch.ones(2, 3, 7)}, ValueError, "query", "d_model = 8", "got 7"),
    "key too wide": ({"key": torch.ones(2, 5, 9)}, ValueError, "key", "d_model = 8", "got 9"),
    "value too wide": ({"value": torch.ones(2, 5, 9)}, ValueError, "value", "d_model = 8", "got 9"),
    "one value too few": (
        {"value": torch.ones(2, 4, 8)}, ValueError, "value", "n_kv = 5", "got 4"),
    "query with one axis": ({"query": torch.ones(8)}, ValueError, "query", "two axes", "(8,)"),
    "query of another precision": (
        {"query": torch.ones(2, 3, 8).double()}, TypeError, "query", "float32", "float64"),
    "query of integers": (
        {"query": torch.ones(2, 3, 8).long()}, TypeError, "query", "floating point", "int64"),
    "query is an array": (
        {"query": np.ones((2, 3, 8))}, TypeError, "query", "torch.Tensor", "ndarray"),
    "key of another batch": (
        {"key": torch.ones(3, 5, 8)}, ValueError, "key", "batch axes of query", "(2,)", "(3,)"),
    "padding mask without query axis": (
        {"mask": torch.ones(2, 5).bool()}, ValueError, "mask", "(2, 3, 5)", "[:, None, :]"),
    "mask for 3 heads": (
        {"mask": torch.ones(2, 3, 3, 5).bool()}, ValueError,
        "mask", "(2, 2, 3, 5)", "(2, 3, 3, 5)"),
    "mask of 0 and 1": (
        {"mask": torch.ones(3, 5)}, TypeError, "mask", "boolean", "float32", "bias"),
    "mask is an array": ({"mask": mask(3, 5)}, TypeError, "mask", "torch.Tensor", "ndarray"),
    "mask of the queries": (
        {"mask": torch.ones(2, 1, 3).bool()}, ValueError, "mask", "(2, 1, 3)", "5 keys are meant"),
    "ALiBi without a batch axis": (
        {"bias": bias.alibi(4, 3, 5, device="cpu")}, ValueError,
        "bias", "(4, 3, 5)", "array[None]"),
    "bias for 3 heads": (
        {"bias": torch.ones(2, 3, 3, 5)}, ValueError, "bias", "(2, 2, 3, 5)", "(2, 3, 3, 5)"),
    "bias that hides": (
        {"bias": torch.full((3, 5), -torch.inf)}, ValueError, "bias", "finite", "inf", "mask"),
    "causal is 1": ({"causal": 1}, TypeError, "causal", "True or False", "int"),
    "scale is NaN": ({"scale": float("nan")}, ValueError, "scale", "finite", "nan"),
}  # fmt: skip


@pytest.mark.parametrize("need_weights", (True, False))
@pytest.mark.parametrize("fault", CALLS)
def test_module_refuses_calls(fault, need_weights):
    faults, *expected = CALLS[fault]
    arguments = {"query": torch.ones(2, 3, 8), "key": torch.ones(2, 5, 8)} | faults
    refuses(lambda: MultiHeadAttention(8, 2)(**arguments, need_weights=need_weights), *expected)


def test_the_tables_hold_more_than_forty_kinds():
    kinds = [*CORE, *FUNCTIONS, *LAYER, *SIZES, *CALLS]
    assert len(set(kinds)) > 100
