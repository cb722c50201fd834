"""One contract, four cores: NumPy, NumPy by tiles, PyTorch explicit, PyTorch fused."""

from itertools import product

import numpy as np
import pytest

from mha_lib import scratch
from mha_lib.scratch import tiles

from . import cases, oracle
from .cases import BATCHES, LENGTHS, Core, head_inputs, options
from .oracle import assert_close, assert_same_bits


def tiled_forward(*inputs, **options):
    output, _ = scratch.online_attention(*inputs, **options)
    return output, None


def tiled_backward(grad_output, query, key, value, **options):
    saved = scratch.online_attention(query, key, value, **options)
    gradients = scratch.online_attention_backward(grad_output, query, key, value, *saved, **options)
    return {name: g for name, g in gradients._asdict().items() if g is not None}


CORES = cases.CORES | {"numpy tiles": Core(tiled_forward, tiled_backward)}


@pytest.fixture(params=CORES)
def core(request, monkeypatch):
    """Each attention function of the library, the tiled one with tiles of at most 2 by 3 scores."""
    monkeypatch.setattr(tiles, "QUERIES", 2)
    monkeypatch.setattr(tiles, "KEYS", 3)
    monkeypatch.setattr(tiles, "DIAGONAL", 1)
    return CORES[request.param]


def counting(shape):
    return np.arange(np.prod(shape), dtype=float).reshape(shape) - 5


def gradients_of_weighted_sum(core, inputs, **chosen):
    """Gradients of a sum in which every number of the output counts differently."""
    query, _, value = inputs
    return core.backward(counting((*query.shape[:-1], value.shape[-1])), *inputs, **chosen)


@pytest.mark.parametrize("name", options())
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_equals_the_loops(core, batch, name):
    for n_q, n_kv in LENGTHS:
        inputs, chosen = head_inputs(batch, n_q, n_kv), options(batch, n_q, n_kv)[name]
        output, weights = core.forward(*inputs, **chosen)
        want_output, want_weights = oracle.attention(*inputs, **chosen)
        assert_close(output, want_output)
        if weights is not None:
            assert_close(weights, want_weights)


@pytest.mark.parametrize("name", options())
def test_gradients_equal_central_differences(name):
    """For the NumPy core; the next test holds the others to it."""
    core, inputs, chosen = CORES["numpy"], head_inputs(), options()[name]
    got = gradients_of_weighted_sum(core, inputs, **chosen)
    inputs = dict(zip(("query", "key", "value"), inputs, strict=True))
    if "bias" in chosen:
        inputs["bias"] = chosen["bias"]

    def loss():
        output, _ = core.forward(**{**chosen, **inputs})
        return (counting(output.shape) * output).sum()

    assert got.keys() == inputs.keys()
    for argument, x in inputs.items():
        assert_close(got[argument], oracle.numerical_gradient(loss, x), 1e-7)


@pytest.mark.parametrize("name", options())
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_gradients_of_all_cores_are_equal(batch, name):
    for n_q, n_kv in ((3, 5), (5, 3), (1, 1)):
        inputs, chosen = head_inputs(batch, n_q, n_kv), options(batch, n_q, n_kv)[name]
        want, *others = (
            gradients_of_weighted_sum(core, inputs, **chosen) for core in CORES.values()
        )
        for got in others:
            assert got.keys() == want.keys()
            for argument in want:
                assert_close(got[argument], want[argument])


@pytest.mark.parametrize("name", ("nothing", "causal and mask", "bias"))
@pytest.mark.parametrize("lengths", ((0, 5), (3, 0), (0, 0)), ids=str)
def test_gradients_without_queries_or_keys_are_zero(core, lengths, name):
    inputs, chosen = head_inputs((2,), *lengths), options((2,), *lengths)[name]
    gradients = gradients_of_weighted_sum(core, inputs, **chosen)
    for argument, x in zip(("query", "key", "value"), inputs, strict=True):
        assert_close(gradients[argument], np.zeros_like(x))


def test_causal_queries_are_the_last_positions(core):
    for n_q, values, want in (
        (2, [1, 2, 4, 8, 16], [15 / 4, 31 / 5]),
        (5, [1, 2], [0, 0, 0, 1, 3 / 2]),
        (1, [1, 2, 4, 8], [15 / 4]),
        (3, [1, 2, 4], [1, 3 / 2, 7 / 3]),
    ):
        value = np.array(values, float)[:, None]
        output, _ = core.forward(np.zeros((n_q, 1)), np.zeros_like(value), value, causal=True)
        assert_close(output[:, 0], want)


def test_true_means_may_attend(core):
    mask, value = np.array([[True, True, False]]), np.array([[1.0], [3.0], [50.0]])
    output, _ = core.forward(np.zeros((1, 1)), np.zeros((3, 1)), value, mask=mask)
    assert output.tolist() == [[2.0]]


def test_scores_are_scaled_by_the_width_of_one_head(core):
    query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 0.0]])
    output, _ = core.forward(query, key, np.eye(2))
    first = np.exp(4 / np.sqrt(2)) / (np.exp(4 / np.sqrt(2)) + 1)
    assert_close(output, [[first, 1 - first]])


def test_mask_comes_before_softmax(core):
    query, key, mask = np.ones((1, 1)), np.array([[0.0], [1000.0]]), np.array([[True, False]])
    output, _ = core.forward(query, key, np.eye(2), mask=mask)
    assert output.tolist() == [[1.0, 0.0]]


def test_query_with_no_allowed_key_gives_exact_zeros(core):
    inputs, chosen = head_inputs(), options()["one query blocked"]
    output, weights = core.forward(*inputs, **chosen)
    gradients = gradients_of_weighted_sum(core, inputs, **chosen)
    for array in (output, gradients["query"]) if weights is None else (output, weights):
        assert (array[:, 1] == 0).all()
        assert (array[:, [0, 2]] != 0).any()
    assert (gradients["query"][:, 1] == 0).all()


def test_blocked_query_leaves_its_neighbours_gradient_right(core):
    query, key, value = np.zeros((2, 1)), np.array([[1.0], [0.0]]), np.array([[1.0], [2.0]])
    mask = np.array([[True, True], [False, False]])
    got = core.backward(np.array([[1.0], [0.0]]), query, key, value, mask=mask)
    assert got["value"].tolist() == [[0.5], [0.5]]
    assert got["query"].tolist() == [[-0.25], [0.0]]


def test_everything_blocked_gives_zero_output_and_gradients(core):
    inputs, chosen = head_inputs(), options()["everything blocked"]
    output, weights = core.forward(*inputs, **chosen)
    gradients = gradients_of_weighted_sum(core, inputs, **chosen)
    for array in (output, *gradients.values(), *(() if weights is None else (weights,))):
        assert (array == 0).all()


@pytest.mark.parametrize("dtype", (np.float32, np.float64), ids=lambda t: t.__name__)
@pytest.mark.parametrize("bad", (1e30, "largest", np.inf, -np.inf, np.nan))
@pytest.mark.parametrize("name", ("one row of keys", "bias and hidden keys", "causal and mask"))
def test_what_is_hidden_from_all_queries_changes_no_bit(core, name, bad, dtype):
    bad = np.finfo(dtype).max if bad == "largest" else bad
    row = options()["one row of keys"]["mask"]
    chosen = {
        "one row of keys": {"mask": row},
        "bias and hidden keys": {"mask": row, "bias": options()["bias"]["bias"].astype(dtype)},
        "causal and mask": {"mask": row, "causal": True},
    }[name]
    clean = head_inputs(dtype=dtype)
    output, weights = core.forward(*clean, **chosen)
    gradients = core.backward(np.ones_like(output), *clean, **chosen)
    for place, columns in product((1, 2), (slice(None), slice(1))):
        spoiled = [a.copy() for a in clean]
        spoiled[place][:, ~row[0], columns] = bad
        got_output, got_weights = core.forward(*spoiled, **chosen)
        assert_same_bits(got_output, output)
        if weights is not None:
            assert_same_bits(got_weights, weights)
        got = core.backward(np.ones_like(output), *spoiled, **chosen)
        for argument in gradients:
            assert_same_bits(got[argument], gradients[argument])


@pytest.mark.parametrize("place", (1, 2), ids=("key", "value"))
def test_future_changes_no_bit_of_the_past(core, place):
    inputs = head_inputs(n_q=5)
    want, _ = core.forward(*inputs, causal=True)
    inputs[place][:, 3] += 1
    got, _ = core.forward(*inputs, causal=True)
    assert_same_bits(got[:, :3], want[:, :3])
    assert (got[:, 3:] != want[:, 3:]).any(-1).all()


@pytest.mark.parametrize("bad", (np.inf, np.nan))
@pytest.mark.parametrize("place", (1, 2), ids=("key", "value"))
def test_nan_in_the_future_spoils_only_who_sees_it(core, place, bad):
    inputs = head_inputs(n_q=5)
    want, _ = core.forward(*inputs, causal=True)
    inputs[place][:, 3] = bad
    got, _ = core.forward(*inputs, causal=True)
    assert_close(got[:, :3], want[:, :3], 1e-14)
    assert np.isnan(got[:, 3:]).all()


@pytest.mark.parametrize("bad", (np.inf, np.nan))
def test_query_with_nan_is_nan_and_nobody_else(core, bad):
    clean = head_inputs()
    want, _ = core.forward(*clean)
    clean[0][1, 0, 2] = bad
    got, weights = core.forward(*clean)
    assert np.isnan(got[1, 0]).all()
    others = np.ones(got.shape[:-1], bool)
    others[1, 0] = False
    assert_close(got[others], want[others], 1e-14)
    assert weights is None or np.isnan(weights[1, 0]).all()


def test_query_with_nan_and_no_allowed_key_is_zero(core):
    inputs = head_inputs()
    inputs[0][:, 1] = np.nan
    output, _ = core.forward(*inputs, **options()["one query blocked"])
    assert (output[:, 1] == 0).all() and np.isfinite(output).all()


def test_float16_is_as_good_as_its_rounding(core):
    inputs, chosen = head_inputs(dtype=np.float16), options()["one query blocked"]
    output, weights = core.forward(*inputs, **chosen)
    want_output, want_weights = oracle.attention(*inputs, **chosen)
    assert output.dtype == np.float16
    assert_close(output, want_output, 2 * np.finfo(np.float16).eps)
    if weights is not None:
        assert_close(weights, want_weights, np.finfo(np.float16).eps)
    for gradient in core.backward(np.ones_like(output), *inputs, **chosen).values():
        assert gradient.dtype == np.float16 and np.isfinite(gradient).all()


@pytest.mark.parametrize("sign", (1, -1))
def test_float16_scores_beyond_65504_do_not_overflow(core, sign):
    query, value = np.full((1, 4), 200, np.float16), np.eye(3, dtype=np.float16)
    key = sign * np.array([[200], [200], [100]], np.float16).repeat(4, axis=1)  # Q K^T = 160000
    output, _ = core.forward(query, key, value)
    assert output.tolist() == ([[0.5, 0.5, 0.0]] if sign == 1 else [[0.0, 0.0, 1.0]])


def test_equal_scores_of_70000_weigh_the_same_in_float32(core):
    query, value = np.full((1, 1), 70000, np.float32), np.eye(4, dtype=np.float32)
    output, _ = core.forward(query, np.ones((4, 1), np.float32), value)
    assert output.tolist() == [[0.25] * 4]


def test_rows_with_very_different_scores_do_not_disturb_each_other(core):
    query, key = np.array([[0.0], [1.0], [-1.0]]), np.full((2, 1), 1000.0)
    output, _ = core.forward(query, key, np.array([[1.0], [3.0]]))
    assert output.tolist() == [[2.0]] * 3


@pytest.mark.parametrize("name", options())
def test_inputs_are_never_modified(core, name):
    chosen = options()[name]
    inputs = dict(zip(("query", "key", "value"), head_inputs(), strict=True))
    arrays = [a for a in (inputs | chosen).values() if isinstance(a, np.ndarray)]
    before = [a.copy() for a in arrays]
    inputs["query"][0, 0] = before[0][0, 0] = np.nan  # also where rows are set aside
    output, _ = CORES["numpy"].forward(**inputs, **chosen)
    core.backward(np.ones_like(output), **inputs, **chosen)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
