"""Counters: what NumPy and torch really compute is what the formulas say, to the last operation."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mha_lib import cost, pytorch, scratch
from mha_lib.cost import LayerShape
from mha_lib.counting import Counts, count_numpy, count_torch
from mha_lib.scratch import Projections, tiles
from mha_lib.scratch.online import (
    OnlineState,
    online_attention,
    online_attention_backward,
    online_step,
)

from .cases import generator
from .test_errors import refuses

HEADS = (1, 2, 4, 8, 16, 32, 64)
N_Q, N_KV = 5, 3
NAIVE = {"loop": scratch.multi_head_attention_loop, "fused": scratch.multi_head_attention}
# d_v is not d_k, and h * d_k is not d_model.
UNUSUAL = [LayerShape(7, h, d_k=4, d_v=3) for h in (1, 2, 6)]
USUAL = [LayerShape(64, h) for h in HEADS]


def normal(*shape):
    return generator().normal(size=shape)


def layer_inputs(s, n_q=N_Q, n_kv=N_KV):
    p = Projections.random(s.d_model, generator(), num_heads=s.num_heads, d_k=s.d_k, d_v=s.d_v)
    return normal(n_q, s.d_model), normal(n_kv, s.d_model), p


def head_inputs(s, n_q=N_Q, n_kv=N_KV):
    widths = (n_q, s.d_k), (n_kv, s.d_k), (n_kv, s.d_v)
    return [normal(s.num_heads, *shape) for shape in widths]


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("form", NAIVE)
@pytest.mark.parametrize("shape", [*USUAL, *UNUSUAL], ids=str)
def test_numpy_layers_do_what_the_formulas_say(shape, form, causal):
    x, memory, p = layer_inputs(shape)

    def layer(x, memory):
        return NAIVE[form](x, memory, memory, p, shape.num_heads, causal=causal)

    counts = count_numpy(layer, x, memory)  # forbidden scores are computed, then hidden
    assert counts.flops == cost.matmul_flops(shape, N_Q, N_KV)
    assert counts.arithmetic == cost.softmax_operations(shape, N_Q, N_KV, masked=False)


def test_a_bias_is_the_seventh_operation():
    s = LayerShape(8, 2)
    x, memory, p = layer_inputs(s)
    bias = normal(s.num_heads, N_Q, N_KV)
    counts = count_numpy(
        lambda x, y: scratch.multi_head_attention(x, y, y, p, 2, bias=bias[None])[0],
        x[None],
        memory[None],
    )
    assert counts.arithmetic == cost.softmax_operations(s, N_Q, N_KV, masked=True)


def test_stages_are_counted_one_by_one():
    s = UNUSUAL[1]
    h, inner = s.num_heads, s.num_heads * (s.d_k + s.d_v)
    by_stage = cost.flops_by_stage(s, N_Q, N_KV, masked=False)
    q, k, v = head_inputs(s)
    scores = count_numpy(lambda q, k: q @ k.swapaxes(-1, -2), q, k)
    values = count_numpy(lambda a, v: a @ v, np.ones((h, N_Q, N_KV)), v)
    softmax = count_numpy(scratch.softmax, np.ones((h, N_Q, N_KV)))
    assert scores.flops == by_stage["scores"]
    assert values.flops == by_stage["values"]
    assert softmax.arithmetic == by_stage["softmax"] - h * N_Q * N_KV  # scaling comes before it
    core = count_numpy(scratch.scaled_dot_product_attention, q, k, v)
    assert core.flops + core.arithmetic == cost.core_flops(s, N_Q, N_KV, masked=False)
    layer = cost.matmul_flops(s, N_Q, N_KV)
    assert layer - core.flops == 2 * s.d_model * (inner * N_Q + inner * N_KV)


def test_the_crossover_is_where_counting_finds_it():
    s = LayerShape(6, 2)
    n = int(cost.crossover(s))
    for length, sign in ((n - 1, -1), (n, 0), (n + 1, 1)):
        x, _, p = layer_inputs(s, n_q=length)
        layer = count_numpy(lambda x, p=p: scratch.multi_head_attention(x, x, x, p, 2), x)
        core = count_numpy(scratch.scaled_dot_product_attention, *head_inputs(s, length, length))
        assert np.sign(core.flops - (layer.flops - core.flops)) == sign


def tiled_flops(s, looked_at):
    """Scores and values of so many pairs, and the sum of a row where it is a product with ones."""
    step = count_numpy(
        lambda scores, values: online_step(OnlineState.start(1, s.d_v), scores, values),
        np.ones((1, 1)),
        np.ones((1, s.d_v)),
    )
    for_the_sum = step.flops - 2 * s.d_v
    assert for_the_sum in (0, 2)
    return s.num_heads * looked_at * (2 * s.d_k + 2 * s.d_v + for_the_sum)


@pytest.mark.parametrize("size", (1, 2, 3, 256))
@pytest.mark.parametrize("lengths", ((5, 3), (4, 7), (6, 6)))
@pytest.mark.parametrize("shape", [*UNUSUAL, USUAL[3]], ids=str)
def test_tiles_do_the_same_products(shape, lengths, size, monkeypatch):
    monkeypatch.setattr(tiles, "QUERIES", size)
    monkeypatch.setattr(tiles, "KEYS", size)
    counts = count_numpy(online_attention, *head_inputs(shape, *lengths))
    assert counts.flops == tiled_flops(shape, cost.pairs(*lengths))


def test_causal_tiles_of_one_query_do_allowed_pairs_alone(monkeypatch):
    monkeypatch.setattr(tiles, "QUERIES", 1)
    for shape in UNUSUAL:
        for lengths in ((5, 3), (4, 7), (6, 6)):
            counts = count_numpy(causal_tiles, *head_inputs(shape, *lengths))
            assert counts.flops == tiled_flops(shape, cost.pairs(*lengths, causal=True))


def test_causal_tiles_skip_the_future_but_for_the_diagonal():
    s, n, block = LayerShape(8, 2), 2048, tiles.DIAGONAL
    counts = count_numpy(causal_tiles, *head_inputs(s, n, n))
    looked_at = sum(block * end for end in range(block, n + 1, block))
    assert counts.flops == tiled_flops(s, looked_at)
    allowed, everything = cost.pairs(n, causal=True), cost.pairs(n)
    assert allowed < looked_at < 0.7 * everything


def causal_tiles(query, key, value):
    return online_attention(query, key, value, causal=True)


def test_going_backward_is_counted_too():
    s = LayerShape(12, 2)
    q, k, v = head_inputs(s)
    forward = count_numpy(scratch.scaled_dot_product_attention, q, k, v)
    grad = normal(s.num_heads, N_Q, s.d_v)
    plain = count_numpy(scratch.scaled_dot_product_attention_backward, grad, q, k, v)
    saved = online_attention(q, k, v)
    tiled = count_numpy(
        lambda grad, q, k, v: online_attention_backward(grad, q, k, v, *saved), grad, q, k, v
    )
    # Two products for each of the forward pass's two, and the forward pass (or its scores) again.
    assert plain.flops == 3 * forward.flops
    assert tiled.flops == 2 * forward.flops + forward.flops // 2


@pytest.mark.parametrize("form", ("core", "loop", "fused", "sum", "tiles"))
def test_being_watched_changes_nothing(form):
    s = UNUSUAL[1]
    x, memory, p = layer_inputs(s)
    functions = {"core": scratch.scaled_dot_product_attention, "tiles": online_attention}
    inputs = head_inputs(s)
    if form not in functions:
        layer = NAIVE | {"sum": scratch.multi_head_attention_sum}
        functions[form] = lambda x, y: layer[form](x, y, y, p, s.num_heads)
        inputs = [x, memory]
    seen = []
    count_numpy(lambda *arrays: seen.extend(functions[form](*arrays)), *inputs)
    for got, want in zip(seen, functions[form](*inputs), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def counted(function, *arrays):
    counts = count_numpy(function, *arrays)
    return counts.multiply_adds, dict(counts.elementwise)


def test_products_of_every_shape():
    a, b, v, w = np.ones((2, 1, 3, 4)), np.ones((5, 4, 6)), np.ones(4), np.ones(3)
    assert counted(lambda a, b: a @ b, a, b)[0] == 2 * 5 * 3 * 4 * 6
    assert counted(lambda a, v: a @ v, a, v)[0] == 2 * 3 * 4
    assert counted(lambda w, a: w @ a, w, a)[0] == 2 * 3 * 4
    assert counted(lambda v: v @ v, v)[0] == 4
    assert counted(lambda a: np.matmul(a[0, 0].T, a[0, 0], out=np.empty((4, 4))), a)[0] == 4 * 3 * 4
    assert counted(lambda v: np.vecdot(v, v), v)[0] == 4
    assert counted(lambda b: np.ones((2, 3, 4)) @ b[0], b)[0] == 2 * 3 * 4 * 6


def test_elementwise_work_of_every_kind():
    a = np.ones((3, 4))
    assert counted(lambda a: a + a[0], a) == (0, {"add": 12})
    assert counted(lambda a: a.sum(), a) == (0, {"add": 11})
    assert counted(lambda a: a.sum(axis=1), a) == (0, {"add": 9})
    assert counted(lambda a: a.max(axis=0, initial=0), a) == (0, {"maximum": 8})
    assert counted(lambda a: np.exp(a, where=a[0] > 5, out=a), a)[1]["exp"] == 0
    assert counted(lambda a: np.exp(np.zeros((3, 4)), out=a), a)[1]["exp"] == 12
    assert counted(lambda a: a.sum(where=np.eye(3, 4, dtype=bool), axis=1), a) == (0, {"add": 0})
    assert counted(lambda a: a[:0].sum(axis=0), a) == (0, {"add": 0})
    assert counted(lambda a: np.where(a > 0, a, 0) * 2, a)[1]["multiply"] == 12
    assert counted(lambda a: np.concatenate([a, a]) * 2, a)[1]["multiply"] == 24


def in_place(a):
    a *= 2
    a -= 1
    np.exp(a, out=a)


def test_work_in_place_is_seen_and_done():
    a = np.zeros((2, 3))
    assert counted(in_place, a) == (0, {"multiply": 6, "subtract": 6, "exp": 6})
    np.testing.assert_allclose(a, np.exp(-1))


def test_arithmetic_leaves_comparisons_out():
    assert count_numpy(lambda a: (a > 0) & np.isfinite(a), np.ones(5)).arithmetic == 0
    assert count_numpy(lambda a: a / np.log(a + 3), np.ones(5)).arithmetic == 15
    assert Counts(multiply_adds=3).flops == 6


def torch_layer(s):
    return pytorch.MultiHeadAttention(
        s.d_model, s.num_heads, num_kv_heads=s.num_kv_heads, d_k=s.d_k, d_v=s.d_v
    )


GROUPED = [LayerShape(64, 8, num_kv_heads=kv) for kv in (1, 2, 4)]
GROUPED += [LayerShape(7, 6, num_kv_heads=2, d_k=4, d_v=3)]


@pytest.mark.parametrize("n_kv", (N_KV, N_Q))
@pytest.mark.parametrize("shape", [*USUAL, *UNUSUAL, *GROUPED], ids=str)
def test_torch_layers_do_what_the_formulas_say(shape, n_kv):
    layer, x = torch_layer(shape), torch.ones(2, N_Q, shape.d_model)
    inputs = (x,) if n_kv == N_Q else (x, torch.ones(2, n_kv, shape.d_model))
    got = count_torch(lambda: layer(*inputs, need_weights=True))
    assert got == 2 * cost.matmul_flops(shape, N_Q, n_kv)  # 2 sequences


def fused(causal=False, mask=None, n=6, width=4):
    q, k, v = torch.ones(3, 1, 2, n, width).unbind()
    return lambda: F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)


CORE = LayerShape(8, 2)  # what `fused` computes between its projections


def core_flops(n=6):
    stages = cost.flops_by_stage(CORE, n)
    return stages["scores"] + stages["values"]


# torch's counter knows no formula for the fused kernel of a CPU, causal or not. If a new torch has
# one, the next three tests fail: count_torch's docstring must then say which versions they concern.


@pytest.mark.parametrize("causal", (True, False))
def test_torch_counts_nothing_in_the_fused_kernel_of_a_cpu(causal):
    assert count_torch(fused(causal)) == 0
    mask = torch.ones(6, 6).tril().bool()
    assert count_torch(fused(mask=mask)) == 0
    with sdpa_kernel(SDPBackend.MATH):  # matmul, softmax, matmul: all pairs, hidden or not
        assert count_torch(fused(causal)) == core_flops()


def test_so_a_layer_without_weights_counts_its_projections_alone():
    layer, x = torch_layer(CORE), torch.ones(1, 6, 8)
    for causal in (True, False):
        got = count_torch(lambda causal=causal: layer(x, causal=causal))
        assert got == cost.matmul_flops(CORE, 6) - core_flops()


def test_torch_counts_nothing_in_its_own_layer_as_it_is_used():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.ones(1, 6, 8)
    training = count_torch(lambda: layer(x, x, x))
    assert training == cost.matmul_flops(CORE, 6)
    layer.eval()
    with torch.no_grad():  # one kernel for the whole layer
        assert count_torch(lambda: layer(x, x, x)) == 0


@pytest.mark.parametrize("causal", (True, False))
def test_torch_counts_all_pairs_in_the_fused_kernel_of_a_gpu(causal):
    q, k, v = torch.ones(3, 1, 2, 6, 4, device="meta").unbind()  # shapes only: no GPU is needed
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    assert count_torch(lambda: flash(q, k, v, 0.0, causal)) == core_flops()


def test_counting_numpy_needs_no_torch():
    code = "import sys, mha_lib.counting; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# What is wrong: the call, the error and what it must say.
FAULTS = {
    "an array for a function": (
        lambda: count_numpy(np.ones(2)), TypeError, "function", "callable", "got ndarray"),
    "a list for an array": (
        lambda: count_numpy(abs, np.ones(2), [1.0]), TypeError, "arrays[1]", "ndarray", "got list"),
    "a tensor for an array": (
        lambda: count_numpy(abs, torch.ones(2)), TypeError, "arrays[0]", "ndarray", "Tensor"),
    "einsum": (
        lambda: count_numpy(lambda a: np.einsum("ij->i", a), np.ones((2, 2))), TypeError,
        "function", "@", "np.einsum"),
    "dot": (
        lambda: count_numpy(lambda a: np.dot(a, a), np.ones(2)), TypeError, "function", "np.dot"),
    "the method dot": (
        lambda: count_numpy(lambda a: a.dot(a), np.ones(2)), TypeError, "function", "np.dot"),
    "a running sum": (
        lambda: count_numpy(lambda a: a.cumsum(), np.ones(2)), TypeError,
        "function", "np.add.accumulate"),
    "a result for a function": (
        lambda: count_torch(torch.ones(2)), TypeError, "function", "callable", "got Tensor"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses(fault):
    call, *expected = FAULTS[fault]
    refuses(call, *expected)
