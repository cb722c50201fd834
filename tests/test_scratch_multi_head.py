"""Multi-head attention in NumPy: the loop, the reshape and the sum are one function."""

from dataclasses import replace

import numpy as np
import pytest

from mha_lib.scratch import Projections, multi_head_attention

from . import oracle
from .cases import BATCHES, LAYERS, LENGTHS, NUM_HEADS, layer_inputs, layer_options, projections
from .oracle import assert_close, assert_same_bits


@pytest.mark.parametrize("name", layer_options())
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_all_three_equal_the_loops(batch, name):
    for n_q, n_kv in LENGTHS:
        inputs, chosen = layer_inputs(batch, n_q, n_kv), layer_options(batch, n_q, n_kv)[name]
        p = projections(biases=name != "scale")
        want_output, want_weights = oracle.layer(*inputs, p, NUM_HEADS, **chosen)
        for layer in LAYERS.values():
            output, weights = layer(*inputs, p, NUM_HEADS, **chosen)
            assert_close(output, want_output)
            assert_close(weights, want_weights)


@pytest.mark.parametrize("num_heads", (1, 2, 3, 6))
def test_any_number_of_heads_that_divides_the_widths(layer, num_heads):
    p, inputs = projections(num_heads=6), layer_inputs()
    output, weights = layer(*inputs, p, num_heads)
    want_output, want_weights = oracle.layer(*inputs, p, num_heads)
    assert_close(output, want_output)
    assert_close(weights, want_weights)


def test_self_attention_is_the_same_array_three_times(layer):
    x, p = layer_inputs(widths=(7, 7, 7))[0], projections(widths=(7, 7, 7))
    assert_close(layer(x, x, x, p, 2)[0], oracle.layer(x, x, x, p, 2)[0])


@pytest.mark.parametrize("missing", ("b_q", "b_k", "b_v", "b_o"))
def test_each_bias_is_optional(layer, missing):
    p, inputs = replace(projections(), **{missing: None}), layer_inputs()
    assert_close(layer(*inputs, p, NUM_HEADS)[0], oracle.layer(*inputs, p, NUM_HEADS)[0])


@pytest.mark.parametrize("dtype", (np.float16, np.float32))
def test_narrow_types_come_back_as_good_as_their_rounding(layer, dtype):
    p = Projections(**{name: a.astype(dtype) for name, a in projections().arrays().items()})
    inputs = layer_inputs(dtype=dtype)
    got = layer(*inputs, p, NUM_HEADS, **layer_options()["one query blocked"])
    want = oracle.layer(*inputs, p, NUM_HEADS, **layer_options()["one query blocked"])
    for mine, right in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert_close(mine, right, 4 * np.finfo(dtype).eps)


def test_query_with_no_allowed_key_gives_the_output_bias(layer):
    p = projections()
    output, weights = layer(*layer_inputs(), p, NUM_HEADS, **layer_options()["one query blocked"])
    assert (weights[..., 1, :] == 0).all()
    assert (output[:, 1] == p.b_o).all()


@pytest.mark.parametrize("bad", (1e30, 1.7e308, np.inf, np.nan))
def test_hidden_inputs_change_no_bit(layer, bad):
    clean, chosen = layer_inputs(), layer_options()["one row of keys"]
    want = layer(*clean, projections(), NUM_HEADS, **chosen)
    spoiled = [a.copy() for a in clean]
    for x in spoiled[1:]:
        x[:, ~chosen["mask"][0]] = bad
    for got, right in zip(layer(*spoiled, projections(), NUM_HEADS, **chosen), want, strict=True):
        assert_same_bits(got, right)


def test_query_with_nan_is_nan_and_nobody_else(layer):
    inputs = layer_inputs()
    want, _ = layer(*inputs, projections(), NUM_HEADS)
    inputs[0][1, 0, 2] = np.nan
    got, _ = layer(*inputs, projections(), NUM_HEADS)
    want[1, 0] = np.nan
    assert_close(got, want)


def test_a_key_hidden_from_one_head_still_serves_the_other(layer):
    inputs, p = layer_inputs(), projections()
    mask = np.ones((2, NUM_HEADS, 3, 5), bool)
    mask[:, 0, :, 2] = False
    want, _ = layer(*inputs, p, NUM_HEADS, mask=mask)
    inputs[2][:, 2] += 1
    got, weights = layer(*inputs, p, NUM_HEADS, mask=mask)
    assert (weights[:, 0, :, 2] == 0).all() and (weights[:, 1, :, 2] > 0).all()
    assert (got != want).any(-1).all()


def test_every_head_reads_every_feature_of_its_input():
    x, p = layer_inputs(widths=(7, 7, 7))[0], projections(widths=(7, 7, 7))
    _, before = multi_head_attention(x, x, x, p, NUM_HEADS)
    for feature in range(7):
        changed = x.copy()
        changed[..., 0, feature] += 1
        _, after = multi_head_attention(changed, changed, changed, p, NUM_HEADS)
        assert (after != before).any(axis=(0, 2, 3)).all()


def test_inputs_and_matrices_are_never_modified(layer):
    inputs, p, chosen = layer_inputs(), projections(), layer_options()["bias and mask"]
    arrays = [*inputs, *p.arrays().values(), *chosen.values()]
    before = [a.copy() for a in arrays]
    layer(*inputs, p, NUM_HEADS, **chosen)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_the_number_of_parameters_does_not_depend_on_the_heads():
    rng = np.random.default_rng(0)
    for num_heads in (1, 8, 64):
        p = Projections.random(512, rng, num_heads=num_heads, biases=True)
        assert p.count() == 4 * 512**2 + 4 * 512


def test_random_matrices_have_the_widths_asked_for():
    p = Projections.random(9, np.random.default_rng(0), num_heads=2, d_k=4, d_v=3, biases=True)
    assert {name: a.shape for name, a in p.arrays().items()} == {
        "w_q": (9, 8), "w_k": (9, 8), "w_v": (9, 6), "w_o": (6, 9),
        "b_q": (8,), "b_k": (8,), "b_v": (6,), "b_o": (9,),
    }  # fmt: skip


def test_random_matrices_keep_variances_as_they_are():
    p = Projections.random(256, np.random.default_rng(0))
    assert abs(p.w_q.var() * 256 - 1) < 0.02  # 65536 numbers: the spread of the estimate is 0.0055
