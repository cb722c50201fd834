"""Gradients of the NumPy layer: against central differences, with masked rows and bad numbers."""

from dataclasses import replace

import numpy as np
import pytest

from mha_lib.scratch import multi_head_attention, multi_head_attention_backward
from mha_lib.scratch.multi_head import affine, affine_backward

from .cases import D_MODEL, NUM_HEADS, layer_inputs, layer_options, projections
from .oracle import assert_close, assert_same_bits, numerical_gradient


def grad_output(n_q=3):
    return np.linspace(-1, 1, 2 * n_q * D_MODEL).reshape(2, n_q, D_MODEL)


def all_gradients(gradients):
    """Gradients of inputs and matrices by name."""
    inputs = {name: getattr(gradients, name) for name in ("query", "key", "value")}
    return inputs | gradients.projections.arrays()


@pytest.mark.parametrize(
    "name, biases",
    [
        ("nothing", True),
        ("nothing", False),
        ("causal", True),
        ("one query blocked", True),
        ("bias a head, causal and mask", False),
        ("bias a key", True),
    ],
)
def test_every_gradient_equals_central_differences(name, biases):
    inputs = dict(zip(("query", "key", "value"), layer_inputs(), strict=True))
    p, chosen = projections(biases=biases), layer_options()[name]

    def loss():
        output, _ = multi_head_attention(**inputs, projections=p, num_heads=NUM_HEADS, **chosen)
        return (output * grad_output()).sum()

    got = multi_head_attention_backward(
        grad_output(), **inputs, projections=p, num_heads=NUM_HEADS, **chosen
    )
    arrays = inputs | p.arrays()
    assert all_gradients(got).keys() == arrays.keys()
    for argument, x in arrays.items():
        assert_close(all_gradients(got)[argument], numerical_gradient(loss, x), 1e-7)
    if "bias" in chosen:
        assert_close(got.bias, numerical_gradient(loss, chosen["bias"]), 1e-7)
    else:
        assert got.bias is None


@pytest.mark.parametrize("name", layer_options())
def test_the_key_bias_moves_no_weight_and_gets_no_gradient(name):
    chosen = layer_options()[name]
    inputs, p = layer_inputs(), projections()
    got = multi_head_attention_backward(grad_output(), *inputs, p, NUM_HEADS, **chosen)
    assert_close(got.projections.b_k, np.zeros_like(p.b_k), 1e-14)
    moved, _ = multi_head_attention(*inputs, replace(p, b_k=p.b_k + 1), NUM_HEADS, **chosen)
    assert_close(moved, multi_head_attention(*inputs, p, NUM_HEADS, **chosen)[0])


def test_everything_blocked_leaves_a_gradient_to_the_output_bias_only():
    chosen = layer_options()["everything blocked"]
    p, grad = projections(), grad_output()
    got = multi_head_attention_backward(grad, *layer_inputs(), p, NUM_HEADS, **chosen)
    gradients = all_gradients(got)
    assert_close(gradients.pop("b_o"), grad.sum(axis=(0, 1)))
    assert all((g == 0).all() for g in gradients.values())


@pytest.mark.parametrize("bad", (1e30, 1.7e308, np.inf, np.nan))
@pytest.mark.parametrize("name", ("one row of keys", "hidden by mask and causal together"))
def test_hidden_inputs_change_no_bit_of_any_gradient(name, bad):
    mask = np.ones((3, 5), bool)
    mask[:, 3] = [True, False, False]  # key 3 is allowed to query 0 alone, for which it is future
    chosen = {
        "one row of keys": layer_options()["one row of keys"],
        "hidden by mask and causal together": {"mask": mask, "causal": True},
    }[name]
    hidden = [1, 3] if name == "one row of keys" else [3]
    clean = layer_inputs()
    spoiled = [a.copy() for a in clean]
    for x in spoiled[1:]:
        x[:, hidden] = bad
    want, got = (
        multi_head_attention_backward(grad_output(), *inputs, projections(), NUM_HEADS, **chosen)
        for inputs in (clean, spoiled)
    )
    for argument, right in all_gradients(want).items():
        assert_same_bits(all_gradients(got)[argument], right)


def test_blocked_query_with_nan_changes_no_gradient():
    chosen, clean = layer_options()["one query blocked"], layer_inputs()
    spoiled = [a.copy() for a in clean]
    spoiled[0][:, 1] = np.nan
    want, got = (
        multi_head_attention_backward(grad_output(), *inputs, projections(), NUM_HEADS, **chosen)
        for inputs in (clean, spoiled)
    )
    for argument, right in all_gradients(want).items():
        assert_same_bits(all_gradients(got)[argument], right)


def test_self_attention_sums_the_three_gradients():
    x, p = layer_inputs(widths=(7, 7, 7))[0], projections(widths=(7, 7, 7))

    def loss():
        return (multi_head_attention(x, x, x, p, NUM_HEADS)[0] * grad_output()).sum()

    got = multi_head_attention_backward(grad_output(), x, x, x, p, NUM_HEADS)
    assert_close(got.query + got.key + got.value, numerical_gradient(loss, x), 1e-7)


def test_no_query_gives_zero_gradients():
    inputs = layer_inputs(n_q=0)
    got = multi_head_attention_backward(grad_output(0), *inputs, projections(), NUM_HEADS)
    assert all((g == 0).all() for g in all_gradients(got).values())


@pytest.mark.parametrize("dtype", (np.float16, np.float32))
def test_gradients_have_the_dtype_of_the_inputs(dtype):
    p = projections()
    narrow = type(p)(**{name: a.astype(dtype) for name, a in p.arrays().items()})
    got = multi_head_attention_backward(
        grad_output().astype(dtype), *layer_inputs(dtype=dtype), narrow, NUM_HEADS
    )
    want = multi_head_attention_backward(grad_output(), *layer_inputs(), p, NUM_HEADS)
    for argument, right in all_gradients(want).items():
        assert all_gradients(got)[argument].dtype == dtype
        assert_close(all_gradients(got)[argument], right, 30 * np.finfo(dtype).eps)


def test_affine_gradients_equal_central_differences():
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5)), rng.normal(size=5)
    grad = rng.normal(size=(2, 3, 5))
    got = affine_backward(grad, x, w, b)
    for mine, array in zip(got, (x, w, b), strict=True):
        want = numerical_gradient(lambda: (grad * affine(x, w, b)).sum(), array)
        assert_close(mine, want, 1e-9)
