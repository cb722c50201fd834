"""What must hold for any numbers, sizes and masks, and in every implementation."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mha_lib import masks
from mha_lib.pytorch import from_projections
from mha_lib.pytorch.conversion import array
from mha_lib.scratch import multi_head_attention

from . import oracle
from .cases import CORES, LAYERS, projections
from .oracle import assert_close, assert_same_bits

SIZES = st.integers(1, 4)
NUMBERS = st.floats(-8, 8, width=32)  # many zeros, ties and round numbers among them


def matrix(*shape):
    return arrays(np.float64, shape, elements=NUMBERS)


@st.composite
def attention_calls(draw, square=False):
    """query, key, value and a mask, of any sizes; square: as many queries as keys."""
    batch = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    n_q, n_kv, d_k, d_v = (draw(SIZES) for _ in range(4))
    n_q = n_kv if square else n_q
    inputs = [draw(matrix(*batch, *s)) for s in ((n_q, d_k), (n_kv, d_k), (n_kv, d_v))]
    return *inputs, draw(arrays(bool, (*batch, n_q, n_kv)))


@st.composite
def layer_calls(draw):
    """Inputs of a layer with 2 heads, its matrices and a causal flag."""
    widths = [draw(SIZES) for _ in range(3)]
    p = projections(widths, d_model=draw(SIZES), biases=draw(st.booleans()))
    n_q, n_kv = draw(SIZES), draw(SIZES)
    inputs = [draw(matrix(2, n, d)) for n, d in zip((n_q, n_kv, n_kv), widths, strict=True)]
    return *inputs, p, draw(st.booleans())


def each_core(test):
    return pytest.mark.parametrize("core", CORES.values(), ids=CORES)(test)


@pytest.mark.parametrize("core", [c for n, c in CORES.items() if n != "torch fused"])
@given(call=attention_calls())
def test_rows_of_weights_are_distributions_or_zero(core, call):
    *inputs, mask = call
    _, weights = core.forward(*inputs, mask=mask)
    assert (weights >= 0).all() and (weights[~mask] == 0).all()
    assert_close(weights.sum(-1), mask.any(-1).astype(float))


@each_core
@given(call=attention_calls())
def test_output_lies_within_the_range_of_the_allowed_values(core, call):
    query, key, value, mask = call
    output, _ = core.forward(query, key, value, mask=mask)
    allowed, shown = mask[..., None], value[..., None, :, :]
    lowest = np.where(allowed, shown, np.inf).min(-2)
    highest = np.where(allowed, shown, -np.inf).max(-2)
    seeing = mask.any(-1)
    assert (output[seeing] >= lowest[seeing] - 1e-12).all()
    assert (output[seeing] <= highest[seeing] + 1e-12).all()
    assert (output[~seeing] == 0).all()


@each_core
@given(call=attention_calls(), data=st.data())
def test_keys_and_values_may_be_permuted_together(core, call, data):
    query, key, value, mask = call
    order = data.draw(st.permutations(range(key.shape[-2])))
    got, _ = core.forward(query, key[..., order, :], value[..., order, :], mask=mask[..., order])
    assert_close(got, core.forward(query, key, value, mask=mask)[0])


@each_core
@given(call=attention_calls(), data=st.data())
def test_permuted_queries_give_permuted_rows(core, call, data):
    query, key, value, mask = call
    order = data.draw(st.permutations(range(query.shape[-2])))
    got, _ = core.forward(query[..., order, :], key, value, mask=mask[..., order, :])
    assert_close(got, core.forward(query, key, value, mask=mask)[0][..., order, :])


@each_core
@given(call=attention_calls())
def test_each_sample_equals_itself_alone(core, call):
    output, _ = core.forward(*call[:3], mask=call[3])
    for sample in np.ndindex(*call[0].shape[:-2]):
        query, key, value, mask = (a[sample] for a in call)
        assert_close(output[sample], core.forward(query, key, value, mask=mask)[0])


@each_core
@given(call=attention_calls(square=True), data=st.data())
def test_the_future_does_not_move_the_past(core, call, data):
    inputs = call[:3]
    i = data.draw(st.integers(0, inputs[1].shape[-2]))
    want, _ = core.forward(*inputs, causal=True)
    changed = [np.concatenate([a[..., :i, :], a[..., i:, :] + 1], axis=-2) for a in inputs]
    got, _ = core.forward(*changed, causal=True)
    assert_same_bits(got[..., :i, :], want[..., :i, :])


@each_core
@given(call=attention_calls(), bad=st.sampled_from([1e30, 1e300, np.inf, -np.inf, np.nan]))
def test_a_forbidden_position_changes_nothing_whatever_it_holds(core, call, bad):
    query, key, value, mask = call
    unseen = ~mask.any(-2)  # (..., n_kv)
    want, _ = core.forward(query, key, value, mask=mask)
    for key_fill, value_fill in ((bad, 0), (0, bad), (bad, bad)):
        new_key = np.where(unseen[..., None], key_fill, key)
        new_value = np.where(unseen[..., None], value_fill, value)
        assert_same_bits(core.forward(query, new_key, new_value, mask=mask)[0], want)


@each_core
@given(call=attention_calls(square=True), data=st.data())
def test_any_chunking_with_a_cache_equals_the_full_run(core, call, data):
    query, key, value, _ = call
    n = key.shape[-2]
    cuts = sorted(data.draw(st.sets(st.integers(0, n))) | {0, n})
    chunks = [
        core.forward(query[..., a:b, :], key[..., :b, :], value[..., :b, :], causal=True)[0]
        for a, b in pairwise(cuts)
    ]
    assert_close(np.concatenate(chunks, axis=-2), core.forward(query, key, value, causal=True)[0])


@each_core
@given(call=attention_calls(), data=st.data())
def test_a_constant_on_every_score_of_a_row_changes_nothing(core, call, data):
    query, key, value, mask = call
    bias = data.draw(matrix(query.shape[-2], 1))
    got, _ = core.forward(query, key, value, mask=mask, bias=bias)
    assert_close(got, core.forward(query, key, value, mask=mask)[0], 1e-11)


@each_core
@given(call=attention_calls())
def test_every_call_equals_the_loops(core, call):
    *inputs, mask = call
    assert_close(core.forward(*inputs, mask=mask)[0], oracle.attention(*inputs, mask=mask)[0])


@each_core
@given(call=attention_calls())
def test_inputs_are_not_modified(core, call):
    *inputs, mask = call
    before = [a.copy() for a in call]
    output, _ = core.forward(*inputs, mask=mask)
    core.backward(np.ones_like(output), *inputs, mask=mask)
    for mine, copy in zip(call, before, strict=True):
        np.testing.assert_array_equal(mine, copy)


@given(call=layer_calls())
def test_loop_reshape_and_sum_over_heads_are_one_function(call):
    *inputs, p, causal = call
    want, _ = oracle.layer(*inputs, p, 2, causal=causal)
    for layer in LAYERS.values():
        assert_close(layer(*inputs, p, 2, causal=causal)[0], want)


@given(x=matrix(2, 4, 3), token=st.integers(0, 3), feature=st.integers(0, 2))
def test_every_head_reads_the_whole_input(x, token, feature):
    p = projections((3, 3, 3))
    x = x / 8  # no saturated row, whose weights could not be seen to move
    _, before = multi_head_attention(x, x, x, p, 2)
    x = x.copy()
    x[:, token, feature] += 0.5
    _, after = multi_head_attention(x, x, x, p, 2)
    assert (abs(after - before).max(axis=(0, 2, 3)) > 1e-9).all()


@given(x=matrix(2, 4, 9), data=st.data())
def test_any_chunking_of_the_module_with_a_causal_flag_equals_the_full_run(x, data):
    layer, x = from_projections(projections((9, 9, 9)), 2), torch.from_numpy(x)
    cuts = sorted(data.draw(st.sets(st.integers(0, 4))) | {0, 4})
    full, _ = layer(x, causal=True)
    chunks = [layer(x[:, a:b], x[:, :b], causal=True)[0] for a, b in pairwise(cuts)]
    assert_close(torch.cat(chunks, dim=1), full)


@given(lengths=st.lists(st.integers(0, 4), min_size=2, max_size=2), x=matrix(2, 4, 9))
def test_padding_left_or_right_is_the_same_sentence(lengths, x):
    """Without positions, attention can't tell where the padding stands."""
    layer = from_projections(projections((9, 9, 9)), 2)
    right, _ = layer(torch.from_numpy(x), mask=masks.padding(lengths, 4, device="cpu"))
    moved = np.stack([np.roll(row, 4 - n, axis=0) for row, n in zip(x, lengths, strict=True)])
    mask = masks.padding(lengths, 4, side="left", device="cpu")
    left, _ = layer(torch.from_numpy(moved), mask=mask)
    for i, n in enumerate(lengths):
        assert_close(array(left)[i, 4 - n :], array(right)[i, :n])
