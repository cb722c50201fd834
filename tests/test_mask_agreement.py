"""Masks and biases of every kind, alone and combined: three cores, one result, four precisions."""

from functools import reduce
from operator import and_

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mha_lib import bias as biases
from mha_lib import masks, pytorch, scratch
from mha_lib.pytorch import from_torch

from . import oracle
from .cases import generator
from .oracle import assert_close, assert_same_bits, numbers

# NumPy has no bfloat16: there its core computes with the same numbers in float32.
DTYPES = {
    torch.float16: np.float16,
    torch.bfloat16: np.float32,
    torch.float32: np.float32,
    torch.float64: np.float64,
}
CORES = ("numpy", "torch explicit", "torch fused")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_core = pytest.mark.parametrize("core", CORES)


def run(core, dtype, arrays, grad=None, **options):
    """The output and, by name, the gradients of every array but the mask."""
    call = numpy_run if core == "numpy" else torch_run
    return call(core, dtype, arrays, grad, options)


def numpy_run(core, dtype, arrays, grad, options):
    arrays = {name: a if a.dtype == bool else a.astype(DTYPES[dtype]) for name, a in arrays.items()}
    output, _ = scratch.scaled_dot_product_attention(**arrays, **options)
    if grad is None:
        return {"output": output}
    grad = grad.astype(output.dtype)
    gradients = scratch.scaled_dot_product_attention_backward(grad, **arrays, **options)
    found = {name: g for name, g in gradients._asdict().items() if g is not None}
    return {"output": output} | found


def torch_run(core, dtype, arrays, grad, options):
    tensors = {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}
    tensors = {
        name: t if t.dtype == torch.bool else t.to(dtype).requires_grad_()
        for name, t in tensors.items()
    }
    output, _ = pytorch.scaled_dot_product_attention(
        **tensors, **options, need_weights=core == "torch explicit"
    )
    if grad is None:
        return {"output": output.detach()}
    output.backward(torch.from_numpy(grad).to(dtype))
    return {"output": output.detach()} | {
        name: t.grad for name, t in tensors.items() if t.requires_grad
    }


def rounded(array, dtype):
    """float64 numbers that ``dtype`` holds exactly."""
    return torch.from_numpy(np.asarray(array)).to(dtype).double().numpy()


@st.composite
def some_mask(draw, batch, n_q, n_kv, rng):
    """None, or builders and random masks combined, often with rows that see nothing."""
    builders = {
        "causal": lambda: masks.causal(n_q, n_kv),
        "window": lambda: masks.sliding_window(n_q, n_kv, window=draw(st.integers(1, 4))),
        "prefix": lambda: masks.prefix(n_q, n_kv, length=draw(st.integers(0, n_kv))),
        "documents": lambda: masks.documents(rng.integers(2, size=n_q), rng.integers(2, size=n_kv)),
        "random": lambda: rng.random((n_q, n_kv)) < 0.7,
        "random keys": lambda: rng.random((1, n_kv)) < 0.7,
        "random queries": lambda: rng.random((n_q, 1)) < 0.7,
        "random all": lambda: rng.random((*batch, n_q, n_kv)) < 0.7,
        "nothing": lambda: np.zeros((n_q, n_kv), bool),
    }
    for side in ("left", "right") if batch else ():
        builders[side] = lambda side=side: masks.padding(
            rng.integers(n_kv + 1, size=batch[-1]), n_kv, side=side
        )
    names = draw(st.lists(st.sampled_from(sorted(builders)), max_size=3, unique=True))
    return reduce(and_, [builders[name]() for name in names]) if names else None


@st.composite
def some_bias(draw, batch, n_q, n_kv, rng):
    """None, or a bias of any kind; the last batch axis stands for the heads."""
    kinds = {
        "none": lambda: None,
        "table": lambda: rng.normal(size=(n_q, n_kv)),
        "keys": lambda: rng.normal(size=(1, n_kv)),
        "queries": lambda: rng.normal(size=(n_q, 1)),
        "all": lambda: 4 * rng.normal(size=(*batch, n_q, n_kv)),
    }
    if batch:
        kinds["alibi"] = lambda: biases.alibi(batch[-1], n_q, n_kv)
        kinds["t5"] = lambda: biases.t5_bias(
            rng.normal(size=(4, batch[-1])),
            biases.t5_buckets(
                n_q, n_kv, bidirectional=draw(st.booleans()), num_buckets=4, max_distance=3
            ),
        )
    return kinds[draw(st.sampled_from(sorted(kinds)))]()


@st.composite
def calls(draw, dtype):
    """Arrays of one call, options and a gradient of the output, all exact in ``dtype``."""
    batch = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 3), (2, 1, 2)]))
    n_q, n_kv = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    d_k, d_v = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rng = generator(draw(st.integers(0, 2**32 - 1)))
    arrays = {
        "query": rng.normal(size=(*batch, n_q, d_k)),
        "key": rng.normal(size=(*batch, n_kv, d_k)),
        "value": rng.normal(size=(*batch, n_kv, d_v)),
        "bias": draw(some_bias(batch, n_q, n_kv, rng)),
    }
    arrays = {name: rounded(a, dtype) for name, a in arrays.items() if a is not None}
    mask = draw(some_mask(batch, n_q, n_kv, rng))
    arrays |= {} if mask is None else {"mask": mask}
    options = {"causal": draw(st.booleans()), "scale": draw(st.sampled_from([None, 0.3, -1.5]))}
    return arrays, options, rounded(rng.normal(size=(*batch, n_q, d_v)), dtype)


def seen_by(arrays, causal):
    """Which query may attend to which key, at full size."""
    *batch, n_q, _ = arrays["query"].shape
    n_kv = arrays["key"].shape[-2]
    allowed = masks.allowed(arrays.get("mask"), causal, n_q, n_kv)
    return np.broadcast_to(True if allowed is None else allowed, (*batch, n_q, n_kv))


def roundings(dtype):
    """How many times the rounding of one number may add up.

    float32 and float64 go through three sums of up to six numbers, forward and again backward. Half
    precision is computed in float32 and rounded at the end; the fused kernel rounds in between too.
    """
    return 4 if dtype in (torch.float16, torch.bfloat16) else 32


@each_dtype
@given(data=st.data())
@settings(max_examples=250)  # for each of the four precisions
def test_cores_agree_on_any_masks_biases_and_sizes(dtype, data):
    arrays, options, grad = data.draw(calls(dtype))
    want = run("numpy", torch.float64, arrays, grad, **options)
    want["output"], _ = oracle.attention(**arrays, **options)
    allowed = seen_by(arrays, options["causal"])
    for core in CORES:
        got = run(core, dtype, arrays, grad, **options)
        assert got.keys() == want.keys()
        for name, exact in want.items():
            tolerance = roundings(dtype) * torch.finfo(dtype).eps * abs(exact).max(initial=1)
            np.testing.assert_allclose(numbers(got[name]), exact, rtol=0, atol=tolerance)
        for name, seen in (("output", -1), ("query", -1), ("key", -2), ("value", -2)):
            assert (numbers(got[name])[~allowed.any(seen)] == 0).all()


def test_the_calls_are_of_every_kind():
    """The examples above meet empty rows, biases, causal flags and unequal lengths, all of them."""
    met = set()

    @given(call=calls(torch.float64))
    @settings(max_examples=100)
    def look(call):
        arrays, options, _ = call
        rows = seen_by(arrays, options["causal"]).any(-1)
        n_q, n_kv = arrays["query"].shape[-2], arrays["key"].shape[-2]
        met.update(arrays, [name for name, value in options.items() if value])
        met.add("some rows blocked" if rows.any() and not rows.all() else "other rows")
        met.add("more queries" if n_q > n_kv else "more keys" if n_kv > n_q else "equal")
        met.add(f"{arrays['query'].ndim} axes")

    look()
    assert met >= {"mask", "bias", "causal", "scale", "some rows blocked"}
    assert met >= {"more queries", "more keys", "equal", "2 axes", "3 axes", "4 axes", "5 axes"}


@each_core
@each_dtype
@given(data=st.data())
def test_a_mask_that_allows_all_changes_nothing(core, dtype, data):
    """To the bit, but for the fused core, where torch takes another path without a mask."""
    arrays, options, grad = data.draw(calls(dtype))
    allowed = seen_by(arrays, options["causal"])
    without = {name: a for name, a in arrays.items() if name != "mask"}
    want = run(core, dtype, without, grad, **options)
    got = run(core, dtype, without | {"mask": np.ones(allowed.shape, bool)}, grad, **options)
    for name, array in want.items():
        if core == "torch fused":
            tolerance = roundings(dtype) * torch.finfo(dtype).eps
            assert_close(got[name], array, tolerance * abs(numbers(array)).max(initial=1))
        else:
            assert_same_bits(got[name], array)


@each_core
@each_dtype
@pytest.mark.parametrize("bad", (1e30, np.inf, -np.inf, np.nan))
@given(data=st.data())
@settings(max_examples=10)
def test_what_no_query_may_see_changes_no_bit(core, dtype, bad, data):
    """Output and gradients; 1e30 is inf in float16."""
    arrays, options, grad = data.draw(calls(dtype))
    unseen = ~seen_by(arrays, options["causal"]).any(-2)[..., None]
    spoiled = arrays | {name: np.where(unseen, bad, arrays[name]) for name in ("key", "value")}
    want = run(core, dtype, arrays, grad, **options)
    with np.errstate(over="ignore"):
        got = run(core, dtype, spoiled, grad, **options)
    for name, array in want.items():
        assert_same_bits(got[name], array)


@each_core
@each_dtype
@given(data=st.data())
def test_a_query_that_sees_nothing_may_hold_anything(core, dtype, data):
    arrays, options, grad = data.draw(calls(dtype))
    blind = ~seen_by(arrays, options["causal"]).any(-1)[..., None]
    spoiled = arrays | {"query": np.where(blind, np.nan, arrays["query"])}
    want = run(core, dtype, arrays, grad, **options)
    got = run(core, dtype, spoiled, grad, **options)
    for name, array in want.items():
        assert_same_bits(got[name], array)


@each_core
@pytest.mark.parametrize("side", ("left", "right"))
@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3), causal=st.booleans())
def test_each_sample_of_a_padded_batch_equals_itself_alone(core, side, lengths, causal):
    """The real rows, and with NaN in the padding, to show that nothing of it is read."""
    n, rng = 5, generator(1)
    real = masks.padding(lengths, n, side=side)
    arrays = {name: rng.normal(size=(len(lengths), n, 3)) for name in ("query", "key", "value")}
    padded = {name: np.where(real.swapaxes(-1, -2), a, np.nan) for name, a in arrays.items()}
    both = real & real.swapaxes(-1, -2)
    output = run(core, torch.float64, padded | {"mask": both}, causal=causal)["output"]
    for sample, row in enumerate(real[:, 0]):
        alone = {name: a[sample, row] for name, a in arrays.items()}
        want = run(core, torch.float64, alone, causal=causal)["output"]
        assert_close(output[sample, row], want)
        assert (numbers(output[sample, ~row]) == 0).all()


@each_core
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4), causal=st.booleans())
def test_packed_documents_equal_each_document_alone(core, lengths, causal):
    rng, ids = generator(1), np.repeat(np.arange(len(lengths)), lengths)
    arrays = {name: rng.normal(size=(len(ids), 3)) for name in ("query", "key", "value")}
    grad = rng.normal(size=(len(ids), 3))
    packed = arrays | {"mask": masks.documents(ids)}
    got = run(core, torch.float64, packed, grad, causal=causal)
    for document in range(len(lengths)):
        mine = ids == document
        alone = {name: a[mine] for name, a in arrays.items()}
        want = run(core, torch.float64, alone, grad[mine], causal=causal)
        for name, array in want.items():
            assert_close(got[name][mine], array)


@each_core
def test_a_constant_bias_changes_nothing_and_a_large_one_hides_nothing(core):
    """Far behind, a key still counts: with scores of 0 its weight is exp(-20) of the others'."""
    arrays = {"query": np.zeros((1, 1)), "key": np.zeros((2, 1)), "value": np.eye(2)}
    even = run(core, torch.float64, arrays | {"bias": np.full((1, 2), -20.0)})["output"]
    assert_close(even, [[0.5, 0.5]])
    far = run(core, torch.float64, arrays | {"bias": np.array([[0.0, -20.0]])})["output"]
    assert_close(far, [[1 / (1 + np.exp(-20)), np.exp(-20) / (1 + np.exp(-20))]])


@each_core
@pytest.mark.parametrize("score", (-3e4, -1e10))
def test_a_hidden_key_stays_hidden_however_low_the_visible_scores_are(core, score):
    """Where a finite number stands for hidden, such as -1e4 or -1e9, it would win here."""
    arrays = {"query": np.ones((1, 1)), "key": np.array([[score], [0.0]]), "value": np.eye(2)}
    arrays["mask"] = np.array([[True, False]])
    assert run(core, torch.float64, arrays)["output"].tolist() == [[1.0, 0.0]]


@each_core
@each_dtype
@pytest.mark.parametrize("scale", (-1.5, 0))
@pytest.mark.parametrize("bare", (True, False), ids=("causal", "causal and mask"))
def test_causal_rows_are_right_with_a_scale_of_zero_or_less(core, dtype, scale, bare):
    """torch's kernel scales after it hides, and -inf times such a scale is inf or NaN."""
    rng = generator(1)
    arrays = {n: rounded(rng.normal(size=(2, 4, 3)), dtype) for n in ("query", "key", "value")}
    arrays |= {} if bare else {"mask": np.ones((4, 4), bool)}
    grad, options = rounded(rng.normal(size=(2, 4, 3)), dtype), {"causal": True, "scale": scale}
    want = run("numpy", torch.float64, arrays, grad, **options)
    got = run(core, dtype, arrays, grad, **options)
    for name, exact in want.items():
        tolerance = roundings(dtype) * torch.finfo(dtype).eps * abs(exact).max(initial=1)
        np.testing.assert_allclose(numbers(got[name]), exact, rtol=0, atol=tolerance)


@st.composite
def layer_masks(draw):
    """A mask for each of two heads, (N, 2, n_q, n_kv), in which every query sees some key."""
    batch, n_q, n_kv = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    mask = generator(draw(st.integers(0, 99))).random((batch, 2, n_q, n_kv)) < 0.5
    mask[..., draw(st.integers(0, n_kv - 1))] = True
    return mask


def layers_and_inputs(mask):
    """torch's layer, ours with the same weights, and inputs that fit a mask (N, h, n_q, n_kv)."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64).eval()
    batch, _, n_q, n_kv = mask.shape
    query, memory = (torch.randn(batch, n, 6, dtype=torch.float64) for n in (n_q, n_kv))
    return theirs, from_torch(theirs), query, memory


@given(mask=layer_masks())
def test_torchs_layer_with_a_converted_mask_equals_ours(mask):
    mask = torch.from_numpy(mask)
    theirs, ours, query, memory = layers_and_inputs(mask)
    shared, per_sample, per_key = mask[0, 0], mask[:, 0], mask[:, 0, :1]
    for ours_mask, their_options in (
        (shared, {"attn_mask": masks.to_module_mask(shared)}),
        (per_sample, {"attn_mask": masks.to_module_head_masks(per_sample, 2)}),
        (mask, {"attn_mask": masks.to_module_head_masks(mask, 2)}),
        (per_key, {"key_padding_mask": masks.to_module_padding(per_key)}),
        (shared, {"attn_mask": masks.to_additive(shared, torch.float64)}),
    ):
        want, _ = ours(query, memory, mask=ours_mask)
        for need_weights in (True, False):
            options = their_options | {"need_weights": need_weights}
            assert_close(theirs(query, memory, memory, **options)[0], want)


@given(mask=layer_masks())
def test_torchs_kernel_with_a_converted_mask_equals_ours(mask):
    mask = torch.from_numpy(mask)
    _, ours, query, memory = layers_and_inputs(mask)
    q, k, v = ours.project(query, memory, memory)
    for form in (mask[0, 0], mask[:, 0], mask[:, 0, :1], mask):
        want, _ = pytorch.scaled_dot_product_attention(q, k, v, masks.to_kernel(form))
        bare = F.scaled_dot_product_attention(q, k, v, masks.to_kernel(form))
        additive = masks.to_additive(masks.to_kernel(form), torch.float64)
        assert_close(bare, want)
        assert_close(F.scaled_dot_product_attention(q, k, v, additive), want)
        layer_output, _ = ours(query, memory, mask=form)
        heads = bare.transpose(1, 2).flatten(-2)
        assert_close(F.linear(heads, ours.w_o.weight, ours.w_o.bias), layer_output)


@given(mask=layer_masks())
@each_dtype
def test_hugging_faces_additive_form_gives_the_same_weights(mask, dtype):
    """Added to scores in that precision before a softmax, as its models do."""
    mask = torch.from_numpy(mask)
    scores = torch.from_numpy(generator().normal(size=mask.shape)).to(dtype)
    additive = masks.to_hugging_face_additive(mask, dtype)
    got = (scores + additive).softmax(-1)
    want = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    assert additive.isfinite().all()
    assert_same_bits(got, want)


def test_torchs_layer_gives_nan_and_ours_zeros_for_a_query_that_sees_nothing():
    mask = torch.ones(2, 2, 3, 5, dtype=torch.bool)
    mask[0, :, 1] = False
    theirs, ours, query, memory = layers_and_inputs(mask)
    got, _ = theirs(query, memory, memory, attn_mask=masks.to_module_head_masks(mask, 2))
    want, _ = ours(query, memory, mask=mask)
    assert got[0, 1].isnan().all() and torch.equal(want[0, 1], ours.w_o.bias)
    sees = mask.any(-1)[:, 0]
    assert_close(got[sees], want[sees])
