"""What only the NumPy core does; what every core does is in test_every_core.py."""

import numpy as np
import pytest
import torch

from mha_lib.scratch import scaled_dot_product_attention, scaled_dot_product_attention_backward
from mha_lib.scratch.attention import sum_to_shape

from .cases import head_inputs, options
from .oracle import assert_close


@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64))
def test_everything_that_comes_back_has_the_dtype_that_went_in(dtype):
    inputs, bias = head_inputs(dtype=dtype), np.ones((3, 5), dtype)
    output, weights = scaled_dot_product_attention(*inputs, bias=bias)
    gradients = scaled_dot_product_attention_backward(output, *inputs, bias=bias)
    assert {a.dtype for a in (output, weights, *gradients)} == {np.dtype(dtype)}


@pytest.mark.parametrize("name", options())
def test_rows_of_weights_sum_to_one_or_to_zero_where_nothing_is_allowed(name):
    chosen = options()[name]
    _, weights = scaled_dot_product_attention(*head_inputs(), **chosen)
    mask = np.broadcast_to(chosen.get("mask", True), weights.shape)
    if chosen.get("causal"):
        mask = mask & (np.arange(5) <= np.arange(3)[:, None] + 2)
    assert (weights >= 0).all() and (weights[~mask] == 0).all()
    assert_close(weights.sum(-1), mask.any(-1).astype(float))


@pytest.mark.parametrize("name", options())
def test_gradients_equal_torch_autograd(name):
    """The formula in four lines of torch; a row that may see nothing is left out of its softmax."""
    inputs, chosen = head_inputs(), options()[name]
    mask = torch.from_numpy(np.broadcast_to(chosen.get("mask", True), (2, 3, 5)).copy())
    if chosen.get("causal"):
        mask &= torch.ones(3, 5, dtype=torch.bool).tril(2)
    q, k, v = (torch.from_numpy(a).requires_grad_() for a in inputs)
    bias = torch.from_numpy(np.array(chosen.get("bias", 0.0))).requires_grad_()
    scores = q @ k.mT * chosen.get("scale", 0.5) + bias  # d_k = 4
    some = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(some & ~mask, -torch.inf).softmax(-1) * some
    output = weights @ v
    grad = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape)
    (output * grad).sum().backward()
    got = scaled_dot_product_attention_backward(grad.numpy(), *inputs, **chosen)
    assert_close(scaled_dot_product_attention(*inputs, **chosen)[0], output)
    for mine, theirs in zip(got[:3], (q, k, v), strict=True):
        assert_close(mine, theirs.grad)
    if "bias" in chosen:
        assert_close(got.bias, bias.grad)


@pytest.mark.parametrize("shape", [(), (4,), (3, 1), (1, 4), (2, 1, 1), (2, 3, 4)])
def test_sum_to_shape_undoes_broadcasting(shape):
    array = np.random.default_rng(0).normal(size=(2, 3, 4))
    small = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    (small.expand(2, 3, 4) * torch.from_numpy(array)).sum().backward()
    assert_close(sum_to_shape(array, shape), small.grad)


def test_the_gradients_of_no_bias_is_none():
    inputs = head_inputs()
    output, _ = scaled_dot_product_attention(*inputs)
    assert scaled_dot_product_attention_backward(output, *inputs).bias is None


def test_views_that_are_not_contiguous_give_the_same_numbers():
    inputs = head_inputs()
    views = [np.asfortranarray(a) for a in inputs]
    assert not any(a.flags.c_contiguous for a in views)
    want = scaled_dot_product_attention(*inputs)
    for got, right in zip(scaled_dot_product_attention(*views), want, strict=True):
        assert_close(got, right)
