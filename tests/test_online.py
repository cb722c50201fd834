"""What only the tiled form does; that it keeps the cores' contract is in test_every_core.py."""

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from mha_lib import masks, scratch
from mha_lib.scratch import OnlineState, online, online_step, tiles

from .cases import BATCHES, LENGTHS, generator, head_inputs, options
from .oracle import assert_close, assert_same_bits
from .test_errors import CORE, core_arguments, refuses

# (queries, keys) of a tile, and queries of one on the diagonal
SIZES = ((2, 3, 2), (3, 2, 3), (5, 2, 2), (2, 100, 1), (256, 512, 128))


@pytest.fixture
def cut(monkeypatch):
    """A function that sets the size of a tile; two queries against three keys to begin with."""

    def set_sizes(queries, keys, diagonal=2):
        monkeypatch.setattr(tiles, "QUERIES", queries)
        monkeypatch.setattr(tiles, "KEYS", keys)
        monkeypatch.setattr(tiles, "DIAGONAL", diagonal)

    set_sizes(2, 3)
    return set_sizes


@pytest.fixture
def threads(monkeypatch):
    """A function that sets the number of threads, for problems of any size."""
    monkeypatch.setattr(tiles, "WORTH_THREADS", 0)
    return lambda number: monkeypatch.setattr(tiles, "cores", lambda: number)


def both_ways(inputs, chosen):
    """Output, log-sum-exp and gradients: by tiles, and by the plain form."""
    plain, _ = scratch.scaled_dot_product_attention(*inputs, **chosen)
    grad = generator(8).normal(size=plain.shape)
    saved = scratch.online_attention(*inputs, **chosen)
    gradients = scratch.online_attention_backward(grad, *inputs, *saved, **chosen)
    want = scratch.scaled_dot_product_attention_backward(grad, *inputs, **chosen)
    return (*saved, *gradients), (plain, log_sum_exp(*inputs, **chosen), *want)


@np.errstate(invalid="ignore")
def log_sum_exp(query, key, value, mask=None, bias=0.0, *, causal=False, scale=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * (query @ key.swapaxes(-1, -2)) + bias
    allowed = masks.allowed(mask, causal, *scores.shape[-2:])
    scores = scores if allowed is None else np.where(allowed, scores, -np.inf)
    return np.logaddexp.reduce(scores, axis=-1, initial=-np.inf)


def compare(inputs, chosen):
    for got, want in zip(*both_ways(inputs, chosen), strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            assert_close(got, want)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_equals_the_plain_form_gradients_included(cut, batch, sizes):
    cut(*sizes)
    for n_q, n_kv in (*LENGTHS[2:], (7, 7), (7, 11), (11, 7)):
        for chosen in options(batch, n_q, n_kv).values():
            compare(head_inputs(batch, n_q, n_kv), chosen)


@given(st.data())
def test_equals_the_plain_form_whatever_the_sizes(data):
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    batch, n_q, n_kv = (2,) * number(0, 2), number(0, 9), number(0, 9)
    chosen = options(batch, n_q, n_kv)[data.draw(st.sampled_from(sorted(options())))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "QUERIES", number(1, 5))
        patch.setattr(tiles, "KEYS", number(1, 5))
        patch.setattr(tiles, "DIAGONAL", number(1, 5))
        patch.setattr(tiles, "WORTH_THREADS", number(0, 1) * 10**9)
        compare(head_inputs(batch, n_q, n_kv, seed=number(0, 99)), chosen)


def test_a_mask_or_bias_a_head_is_cut_like_the_scores(cut):
    inputs, rng = head_inputs((3, 2), 5, 7), generator(9)
    for shape in ((3, 2, 5, 7), (3, 1, 5, 7), (1, 2, 1, 7), (2, 5, 1), (1, 1)):
        compare(inputs, {"mask": rng.random(shape) < 0.7, "bias": rng.normal(size=shape)})


# One step


def test_one_step_over_all_keys_is_the_softmax():
    scores, values = generator().normal(size=(3, 5)), generator(1).normal(size=(5, 2))
    output, total = online_step(OnlineState.start(3, 2), scores, values).result()
    assert_close(output, scratch.softmax(scores) @ values)
    assert_close(total, np.log(np.exp(scores).sum(-1)))


def test_a_step_leaves_its_arguments_alone_unless_told_otherwise():
    state = online_step(OnlineState.start(2, 1), np.ones((2, 3)), np.ones((3, 1)))
    scores, values = np.zeros((2, 3)), np.ones((3, 1))
    before = [a.copy() for a in (*state, scores, values)]
    online_step(state, scores, values)
    for array, copy in zip((*state, scores, values), before, strict=True):
        assert_same_bits(array, copy)
    online_step(state, scores, values, out=scores)
    assert_close(scores, np.full((2, 3), np.exp(-1)))


def test_steps_work_on_all_heads_at_once():
    scores, values = generator().normal(size=(2, 3, 4)), generator(1).normal(size=(2, 4, 2))
    state = OnlineState(np.full((2, 3), -np.inf), np.zeros((2, 3)), np.zeros((2, 3, 2)))
    for keys in (slice(0, 1), slice(1, 4)):
        state = online_step(state, scores[..., keys], values[:, keys])
    assert_close(state.result()[0], scratch.softmax(scores) @ values)


@pytest.mark.parametrize("order", ([0, 1000, -1000], [1000, 0, -1000], [-1000, 0, 1000]))
def test_no_order_of_large_scores_overflows(cut, order):
    cut(1, 1)
    key = np.array(order, float)[:, None]
    output, total = scratch.online_attention(np.ones((1, 1)), key, key)
    assert output.tolist() == [[1000.0]] and total.tolist() == [1000.0]


def test_hidden_tiles_before_the_first_allowed_key_leave_no_trace(cut):
    query, key, value = head_inputs((), 2, 9)
    mask = np.broadcast_to(np.arange(9) >= 7, (2, 9))
    mask = mask | (np.arange(2)[:, None] == 1)  # so that no tile is skipped
    output, _ = scratch.online_attention(query, key, value, mask)
    alone, _ = scratch.online_attention(query[:1], key[7:], value[7:])
    assert_close(output[:1], alone)


# What is computed, and in how much memory


@pytest.fixture
def computed(monkeypatch):
    """The sizes of all products with keys or values that are written into a tile's buffer."""
    sizes, product = [], online._product

    def counted(*args):
        result = product(*args)
        sizes.append(result.size)
        return result

    monkeypatch.setattr(online, "_product", counted)
    return sizes


@pytest.mark.parametrize("backward", (False, True), ids=("forward", "backward"))
def test_causal_attention_computes_no_tile_of_the_future(cut, computed, backward):
    cut(16, 32, 8)
    inputs = head_inputs((2,), 64, 64)
    saved = scratch.online_attention(*inputs, causal=True)
    assert sum(computed) == 2 * 64 * (64 + 8) // 2  # pairs to the end of each diagonal tile
    if backward:
        computed.clear()
        scratch.online_attention_backward(saved[0], *inputs, *saved, causal=True)
        assert sum(computed) == 2 * 2 * 64 * (64 + 8) // 2  # the scores again, and their gradients


def test_without_a_mask_every_tile_is_computed_once(cut, computed):
    scratch.online_attention(*head_inputs((2,), 7, 10))
    assert len(computed) == 2 * 4 * 4 and sum(computed) == 2 * 7 * 10


def test_tiles_that_a_mask_hides_wholly_are_not_computed(cut, computed):
    cut(4, 4)
    inputs, mask = head_inputs((), 16, 16), masks.documents([0] * 4 + [1] * 8 + [2] * 4)
    compare(inputs, {"mask": mask})
    computed.clear()
    scratch.online_attention(*inputs, mask)
    assert sum(computed) == mask.sum()


def peak(function):
    tracemalloc.start()
    function()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_is_a_small_part_of_the_plain_form_s():
    n, one_tile = 4096, tiles.QUERIES * tiles.KEYS * 4
    inputs = [generator().normal(size=(2, n, 8)).astype(np.float32) for _ in range(3)]
    tiled = peak(lambda: scratch.online_attention(*inputs, causal=True))
    plain = peak(lambda: scratch.scaled_dot_product_attention(*inputs, causal=True))
    assert plain > 2 * n * n * 4 and tiled < 0.05 * plain + 2 * tiles.cores() * one_tile


def test_memory_of_both_passes_grows_like_n(cut):
    cut(16, 16)

    def both(n):
        inputs = [generator().normal(size=(2, n, 8)) for _ in range(3)]
        saved = scratch.online_attention(*inputs)
        return peak(lambda: scratch.online_attention(*inputs)), peak(
            lambda: scratch.online_attention_backward(saved[0], *inputs, *saved)
        )

    for small, large in zip(both(128), both(512), strict=True):
        assert large < 5 * small


# Threads


@pytest.mark.parametrize("name", ("nothing", "causal and mask", "bias, causal and mask"))
def test_the_number_of_threads_changes_no_bit(cut, threads, name):
    inputs, chosen = head_inputs((3, 2), 40, 41), options((3, 2), 40, 41)[name]
    cut(8, 16)
    results = []
    for number in (1, 2, 5):
        threads(number)
        results.append(both_ways(inputs, chosen)[0])
    for got in results[1:]:
        for a, b in zip(got, results[0], strict=True):
            assert a is b is None or (a.dtype == b.dtype and np.array_equal(a, b))


def blas_threads():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


@pytest.mark.parametrize("backward", (False, True), ids=("forward", "backward"))
def test_two_threads_share_the_heads_and_each_keeps_blas_to_one(
    cut, threads, monkeypatch, backward
):
    before, seen, product = blas_threads(), [], online._product
    meeting = threading.Barrier(2, timeout=30)  # passed only if two threads come to it

    def watched(*args):
        if threading.get_ident() not in [ident for ident, _ in seen]:
            seen.append((threading.get_ident(), blas_threads()))
            meeting.wait()
        return product(*args)

    inputs = head_inputs((2,), 2, 3)
    saved = scratch.online_attention(*inputs)
    threads(2)
    monkeypatch.setattr(online, "_product", watched)
    if backward:
        scratch.online_attention_backward(saved[0], *inputs, *saved)
    else:
        scratch.online_attention(*inputs)
    assert len(seen) == 2 and all(blas <= {1} for _, blas in seen)
    assert blas_threads() == before


def test_an_error_in_a_thread_is_raised_and_blas_has_its_threads_again(threads, monkeypatch):
    before = blas_threads()
    threads(2)

    def broken(*args, **kwargs):
        raise ZeroDivisionError("in a thread")

    monkeypatch.setattr(online, "online_step", broken)
    with pytest.raises(ZeroDivisionError, match="in a thread"):
        scratch.online_attention(*head_inputs())
    assert blas_threads() == before


def test_small_problems_and_single_tasks_start_no_thread(monkeypatch):
    monkeypatch.setattr(tiles, "ThreadPoolExecutor", None)  # cannot be called
    scratch.online_attention(*head_inputs((8,), 64, 64))
    monkeypatch.setattr(tiles, "WORTH_THREADS", 0)
    scratch.online_attention(*head_inputs((), 64, 64))
    with pytest.raises(TypeError):
        scratch.online_attention(*head_inputs((2,), 64, 64))


def test_there_is_at_least_one_core():
    assert tiles.cores() >= 1


# dtypes, bad numbers, errors


@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64))
def test_everything_that_comes_back_has_the_dtype_that_went_in(cut, dtype):
    inputs, bias = head_inputs(dtype=dtype), np.ones((3, 5), dtype)
    output, total = scratch.online_attention(*inputs, bias=bias)
    gradients = scratch.online_attention_backward(output, *inputs, output, total, bias=bias)
    assert {a.dtype for a in (output, *gradients)} == {np.dtype(dtype)}
    assert total.dtype == (np.float32 if dtype == np.float16 else dtype)


@pytest.mark.parametrize("bad", (np.inf, np.nan))
@pytest.mark.parametrize("place", (0, 1, 2), ids=("query", "key", "value"))
def test_visible_bad_numbers_spoil_what_they_spoil_in_the_plain_form(cut, place, bad):
    for name in ("nothing", "mask", "causal"):
        inputs, chosen = head_inputs((2,), 7, 7), options((2,), 7, 7)[name]
        inputs[place][0, 3, 1] = bad
        (output, _, *gradients), (want, _, *want_gradients) = both_ways(inputs, chosen)
        assert np.isnan(want).any()
        assert_close(output, want)
        for got, right in zip(gradients[:3], want_gradients[:3], strict=True):
            assert_close(got, right)


def test_a_query_with_no_allowed_key_has_a_log_sum_exp_of_minus_infinity(cut):
    _, total = scratch.online_attention(*head_inputs(), **options()["one query blocked"])
    assert np.isneginf(total[:, 1]).all() and np.isfinite(total[:, [0, 2]]).all()
    assert np.isneginf(scratch.online_attention(*head_inputs(n_kv=0))[1]).all()


@pytest.mark.parametrize("fault", CORE)
def test_refuses_what_the_plain_form_refuses(fault):
    faults, *expected = CORE[fault]
    arguments, saved = core_arguments(**faults), scratch.online_attention(*head_inputs())
    refuses(lambda: scratch.online_attention(**arguments), *expected)
    arguments |= dict(zip(("output", "log_sum_exp"), saved, strict=True))
    refuses(lambda: scratch.online_attention_backward(np.ones((2, 3, 3)), **arguments), *expected)


@pytest.mark.parametrize(
    "faults, error, words",
    [
        ({"grad_output": np.ones((2, 3, 4))}, ValueError, ("grad_output", "(2, 3, 3)")),
        ({"output": np.ones((2, 3, 4))}, ValueError, ("output", "(2, 3, 3)", "got (2, 3, 4)")),
        ({"output": None}, TypeError, ("output", "numpy.ndarray", "NoneType")),
        ({"log_sum_exp": np.ones((2, 5))}, ValueError, ("log_sum_exp", "(2, 3)", "got (2, 5)")),
        ({"log_sum_exp": 1.0}, TypeError, ("log_sum_exp", "numpy.ndarray", "float")),
    ],
)
def test_backward_refuses_what_the_forward_pass_did_not_return(faults, error, words):
    output, total = scratch.online_attention(*head_inputs())
    right = {"grad_output": output, "output": output, "log_sum_exp": total}
    arguments = core_arguments(**right | faults)
    refuses(lambda: scratch.online_attention_backward(**arguments), error, *words)


# Tests of the tests: each piece once wrong


def step_with(fault):
    """The online softmax in a student's words, with one fault, or with none."""

    def step(state, scores, values, out=None):
        top = scores.max(-1)
        maximum = top if fault == "maximum of the tile only" else np.maximum(state.maximum, top)
        shrink, weights = np.exp(state.maximum - maximum), np.exp(scores - maximum[:, None])
        kept_total = state.total * (1 if fault == "total not rescaled" else shrink)
        kept_mix = state.mixed * (1 if fault == "mix not rescaled" else shrink[:, None])
        if fault == "rescaled the wrong way round":
            kept_mix, kept_total = state.mixed / shrink[:, None], state.total / shrink
        return OnlineState(maximum, kept_total + weights.sum(-1), kept_mix + weights @ values)

    return step


def tiles_with(change):
    right = tiles.row_of_tiles
    return lambda *args: change(right(*args))


def all_open(row):
    return [tile._replace(diagonal=False) for tile in row]


def scale_twice(*args):
    inputs = prepare(*args)
    return inputs._replace(scale=inputs.scale**2)


def without_maximum(state):
    return state.mixed / state.total[:, None], np.log(state.total)


prepare = online._prepare
STEPS = (
    "mix not rescaled",
    "total not rescaled",
    "rescaled the wrong way round",
    "maximum of the tile only",
)
FAULTS = {name: (online, "online_step", step_with(name)) for name in STEPS} | {
    "first tile skipped": (tiles, "row_of_tiles", tiles_with(lambda row: row[1:])),
    "diagonal tile skipped": (tiles, "row_of_tiles", tiles_with(lambda row: row[:-1])),
    "a tile taken twice": (tiles, "row_of_tiles", tiles_with(lambda row: row[:1] + row)),
    "future seen within the tile": (tiles, "row_of_tiles", tiles_with(all_open)),
    "scale applied twice": (online, "_prepare", scale_twice),
    "log-sum-exp without the maximum": (OnlineState, "result", without_maximum),
}


def compare_with_the_plain_form():
    """On ordinary scores, and on scores that fall by a thousand from tile to tile."""
    compare(head_inputs((2,), 7, 7), {"causal": True})
    key = -500.0 * np.arange(7)[:, None]
    compare([np.ones((7, 1)), key, np.ones((7, 1))], {"causal": True})


def test_the_right_step_in_other_words_passes(cut, monkeypatch):
    monkeypatch.setattr(online, "online_step", step_with(None))
    compare_with_the_plain_form()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a faulty step may overflow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_rejects(cut, monkeypatch, fault):
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compare_with_the_plain_form()
