"""Costs: every formula against counting in plain loops, and against figures worked out by hand."""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from math import prod

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from mha_lib import cost, pytorch
from mha_lib.cost import DEVICES, MODELS, Device, LayerShape, ModelShape
from mha_lib.scratch import Projections

from .cases import generator
from .oracle import visible
from .test_errors import refuses

USUAL = LayerShape(d_model=512, num_heads=8)
WIDE = LayerShape(d_model=4096, num_heads=32)
# Sizes that all differ, so that no two of them can be exchanged.
ODD = LayerShape(d_model=7, num_heads=6, num_kv_heads=2, d_k=4, d_v=3)
SHAPES = (LayerShape(4, 1), LayerShape(6, 3), LayerShape(8, 4, num_kv_heads=1), ODD)
LENGTHS = ((3, 5), (5, 3), (4, 4), (1, 6), (1, 1))
NUMBERS = st.integers(1, 12)


def product_in_loops(rows, inner, columns):
    """FLOPs of a matrix product, one multiplication and one addition at a time."""
    return sum(2 for _ in range(rows) for _ in range(columns) for _ in range(inner))


def layer_in_loops(s, n_q, n_kv, causal, masked):
    """FLOPs of a layer by stage: every head, query and key visited one by one."""
    count = Counter()
    for _ in range(s.num_heads):
        count["projections"] += product_in_loops(n_q, s.d_model, s.d_k)
        for i in range(n_q):
            keys = [j for j in range(n_kv) if visible(i, j, n_q, n_kv, causal)]
            for j, _ in enumerate(keys):
                count["scores"] += product_in_loops(1, s.d_k, 1)
                count["softmax"] += 1 + masked  # scale, mask
                count["softmax"] += (j > 0) + 2  # compare with the maximum, subtract, exp
                count["softmax"] += (j > 0) + 1  # add to the sum, divide
                count["values"] += product_in_loops(1, 1, s.d_v)
    for _ in range(s.num_kv_heads):
        count["projections"] += product_in_loops(n_kv, s.d_model, s.d_k)
        count["projections"] += product_in_loops(n_kv, s.d_model, s.d_v)
    count["output"] = product_in_loops(n_q, s.num_heads * s.d_v, s.d_model)
    return dict(count)


@pytest.mark.parametrize("masked", (True, False))
@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_flops_are_those_of_the_loops(shape, lengths, causal, masked):
    stages = cost.flops_by_stage(shape, *lengths, causal=causal, masked=masked)
    assert stages == layer_in_loops(shape, *lengths, causal, masked)
    assert list(stages) == ["projections", "scores", "softmax", "values", "output"]
    products = sum(flops for stage, flops in stages.items() if stage != "softmax")
    assert cost.matmul_flops(shape, *lengths, causal=causal) == products
    core = cost.core_flops(shape, *lengths, causal=causal, masked=masked)
    assert core == sum(stages.values()) - stages["projections"] - stages["output"]


@given(NUMBERS, NUMBERS, st.booleans())
def test_pairs_are_those_of_the_loops(n_q, n_kv, causal):
    seen = [(i, j) for i in range(n_q) for j in range(n_kv) if visible(i, j, n_q, n_kv, causal)]
    assert cost.pairs(n_q, n_kv, causal=causal) == len(seen)
    assert cost.pairs(n_q, causal=causal) == cost.pairs(n_q, n_q, causal=causal)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_usual_layers_have_the_usual_formulas(lengths):
    n_q, n_kv = lengths
    for h in (1, 2, 4, 8):
        s, d = LayerShape(16, h), 16
        across = 4 * n_q * d**2 + 4 * n_kv * d**2 + 4 * n_q * n_kv * d
        assert cost.matmul_flops(s, n_q, n_kv) == across
        assert cost.softmax_operations(s, n_q, n_kv) == 7 * h * n_q * n_kv - 2 * h * n_q


# GFLOP at d_model 512 with 8 heads, and the percentage that attention proper takes.
TABLE = {
    128: (".201", ".0168", ".0009", ".0168", ".067", ".303", "11"),
    512: (".805", ".268", ".0147", ".268", ".268", "1.63", "34"),
    1024: ("1.61", "1.07", ".0587", "1.07", ".537", "4.35", "51"),
    4096: ("6.44", "17.2", ".939", "17.2", "2.15", "43.9", "80"),
    32768: ("51.5", "1100", "60.1", "1100", "17.2", "2328", "97"),
}


@pytest.mark.parametrize("n", TABLE)
def test_table_of_flops(n):
    *stages, total, share = TABLE[n]
    flops = list(cost.flops_by_stage(USUAL, n).values())
    for got, printed in zip([*flops, sum(flops)], [*stages, total], strict=True):
        digits = len(printed.lstrip(".0").replace(".", ""))
        assert float(f"{got / 1e9:.{digits}g}") == pytest.approx(float(printed), rel=1e-3)
    assert f"{100 * cost.core_flops(USUAL, n) / sum(flops):.0f}" == share


@pytest.mark.parametrize(("n", "flops"), ((128, 301_989_888), (1024, 4_294_967_296)))
def test_heads_do_not_change_products_or_parameters(n, flops):
    shapes = [LayerShape(512, h) for h in (1, 2, 4, 8, 16, 32, 64)]
    assert {cost.matmul_flops(s, n) for s in shapes} == {flops}
    assert {cost.parameters(s) for s in shapes} == {4 * 512**2}
    operations = [cost.softmax_operations(s, n) for s in shapes]
    assert operations == [s.num_heads * operations[0] for s in shapes]


@pytest.mark.parametrize("d_ff", (0, 10, 28))
@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("shape", (*SHAPES, USUAL))
def test_attention_overtakes_the_rest_at_the_crossover(shape, causal, d_ff):
    def excess(n):
        stages = cost.flops_by_stage(shape, n, causal=causal)
        rest = stages["projections"] + stages["output"] + 4 * n * shape.d_model * d_ff
        return stages["scores"] + stages["values"] - rest

    n = cost.crossover(shape, causal=causal, d_ff=d_ff)
    assert excess(int(n) + 1) > 0
    assert excess(int(n)) <= 0
    assert (excess(int(n)) == 0) == n.is_integer()


@pytest.mark.parametrize("d", (512, 4096))
def test_crossovers_of_usual_layers(d):
    for h in (1, 8, d // 8):
        s = LayerShape(d, h)
        assert cost.crossover(s) == 2 * d
        assert cost.crossover(s, causal=True) == 4 * d - 1  # n(n + 1) / 2 pairs: not 4d
        assert cost.crossover(s, d_ff=4 * d) == 6 * d
        assert cost.crossover(s, d_ff=4 * d, causal=True) == 12 * d - 1


@pytest.mark.parametrize("biases", (True, False))
@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_are_those_of_the_layers(shape, biases):
    s = shape
    layer = pytorch.MultiHeadAttention(
        s.d_model,
        s.num_heads,
        num_kv_heads=s.num_kv_heads,
        d_k=s.d_k,
        d_v=s.d_v,
        use_bias=biases,
    )
    assert cost.parameters(s, biases) == sum(p.numel() for p in layer.parameters())
    if s.num_kv_heads == s.num_heads:
        p = Projections.random(
            s.d_model, generator(), num_heads=s.num_heads, d_k=s.d_k, d_v=s.d_v, biases=biases
        )
        assert cost.parameters(s, biases) == p.count()


def test_grouped_heads_have_fewer_parameters():
    d = 512
    for kv in (1, 2, 4, 8):
        s = LayerShape(d, 8, num_kv_heads=kv)
        assert cost.parameters(s) == 2 * d**2 + 2 * d * kv * s.d_k


def kept_by_torch(shape, n, core):
    """How many numbers torch keeps in a self-attention, but for its input and its matrices."""
    s, d, kv = shape, shape.d_model, shape.num_kv_heads
    x = torch.randn(1, n, d)
    widths = (s.num_heads * s.d_k, kv * s.d_k, kv * s.d_v)
    matrices = [torch.randn(w, d, requires_grad=True) for w in (*widths, s.num_heads * s.d_v)]
    given_storages = {t.untyped_storage().data_ptr() for t in (x, *matrices)}
    kept = {}  # by storage, since views are no numbers of their own

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        q, k, v = (F.linear(x, w) for w in matrices[:3])
        heads = core(*(t.unflatten(-1, (s.num_heads, -1)).transpose(1, 2) for t in (q, k, v)))
        F.linear(heads.transpose(1, 2).flatten(-2), matrices[3].T)
    return sum(numbers for storage, numbers in kept.items() if storage not in given_storages)


def naive(q, k, v):
    return (q.shape[-1] ** -0.5 * (q @ k.transpose(-1, -2))).softmax(-1) @ v


@pytest.mark.parametrize("n", (5, 8))
def test_torch_keeps_as_many_numbers(n):
    for s in (LayerShape(12, 3), LayerShape(12, 6), LayerShape(10, 3, d_k=4, d_v=2)):
        assert cost.kept_for_backward(s, n, tiled=False) == kept_by_torch(s, n, naive)
    for s in (LayerShape(12, 3), LayerShape(12, 6)):
        fused = kept_by_torch(s, n, F.scaled_dot_product_attention)
        assert cost.kept_for_backward(s, n, tiled=True) == fused


def test_what_is_kept_without_torch_to_ask():
    n, io = 5, 5 * (6 * 4 + 2 * 4 + 2 * 3 + 6 * 3)
    assert cost.kept_for_backward(ODD, n, tiled=False) == io + 6 * 5 * 5
    assert cost.kept_for_backward(ODD, n, tiled=True) == io + 6 * 5


def test_weights_outgrow_everything_else_at_four_head_widths():
    n = 4 * USUAL.d_k
    others = cost.kept_for_backward(USUAL, n, tiled=False) - cost.score_numbers(USUAL, n)
    assert cost.score_numbers(USUAL, n) == others


def test_scores_are_one_a_head_query_and_key():
    weights = pytorch.MultiHeadAttention(6, 2)(
        torch.zeros(3, 6), torch.zeros(5, 6), need_weights=True
    )[1]
    assert cost.score_numbers(LayerShape(6, 2), 3, 5) == weights.numel()


def traffic_in_arrays(s, n_q, n_kv, tiled, extra_passes):
    """Numbers moved: the arrays that go into each step, and those that come out."""
    q, out = (s.num_heads, n_q, s.d_k), (s.num_heads, n_q, s.d_v)
    k, v = (s.num_kv_heads, n_kv, s.d_k), (s.num_kv_heads, n_kv, s.d_v)
    scores = s.num_heads, n_q, n_kv
    steps = [(q, k, v, out)]
    if not tiled:
        steps = [(q, k, scores), *[(scores, scores)] * (1 + extra_passes), (scores, v, out)]
    return sum(prod(array) for step in steps for array in step)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("tiled", "extra"), ((True, 0), (False, 0), (False, 2)))
def test_traffic_is_that_of_the_arrays(shape, lengths, tiled, extra):
    numbers = traffic_in_arrays(shape, *lengths, tiled, extra)
    options = {"tiled": tiled, "extra_passes": extra}
    for size in (2, 4):
        got = cost.traffic_bytes(shape, *lengths, bytes_per_number=size, **options)
        assert got == size * numbers


# n, shape, bytes a number; MiB of the naive form and by tiles, FLOP per byte of both.
TRAFFIC = (
    (1024, LayerShape(512, 1), 4, 24, 8, "85.6", "257"),
    (1024, LayerShape(512, 8), 4, 136, 8, "15.5", "263"),
    (1024, LayerShape(512, 64), 4, 1032, 8, "2.4", "312"),
    (4096, WIDE, 2, 4224, 128, "62.9", "2076"),
    (32768, WIDE, 2, 263168, 1024, "64.6", "16608"),
)


@pytest.mark.parametrize(("n", "shape", "size", "naive", "tiled", "slow", "fast"), TRAFFIC)
def test_table_of_traffic(n, shape, size, naive, tiled, slow, fast):
    flops = cost.core_flops(shape, n)
    for is_tiled, mebibytes, printed in ((False, naive, slow), (True, tiled, fast)):
        moved = cost.traffic_bytes(shape, n, tiled=is_tiled, bytes_per_number=size)
        assert moved == mebibytes * 2**20
        decimals = len(printed.partition(".")[2])
        assert f"{cost.intensity(flops, moved):.{decimals}f}" == printed


@pytest.mark.parametrize("shape", (USUAL, WIDE, ODD))
@pytest.mark.parametrize("size", (2, 4))
def test_naive_intensity_tends_to_its_limit(shape, size):
    limit, gaps = cost.limit_of_naive_intensity(shape, size), []
    for n in (10**4, 10**6, 10**8):
        moved = cost.traffic_bytes(shape, n, tiled=False, bytes_per_number=size)
        gaps.append(limit - cost.intensity(cost.core_flops(shape, n), moved))
    assert all(gap > 0 for gap in gaps)
    assert gaps[1] / gaps[0] == pytest.approx(1 / 100, rel=0.05)  # falls as 1 / n
    assert gaps[2] < 1e-4 * limit


def test_naive_intensity_of_usual_layers_is_the_head_width_over_the_bytes():
    for s in (USUAL, WIDE):
        products = cost.limit_of_naive_intensity(s, 2, softmax=False)
        assert products == s.d_k / 2
        assert cost.limit_of_naive_intensity(s, 2) == products + 7 / (4 * 2)


@pytest.mark.parametrize("shape", (*SHAPES, USUAL))
def test_a_cached_step_is_cheaper_by_exactly_its_number(shape):
    for t in (1, 2, 16, 256, 1024):
        cached = cost.step_flops(shape, t, cached=True)
        assert cost.step_flops(shape, t, cached=False) == t * cached
        assert cost.step_flops(shape, t, cached=True, causal=True) == cached
        recomputed = cost.step_flops(shape, t, cached=False, causal=True)
        assert recomputed == cost.matmul_flops(shape, t, causal=True)


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("cached", (True, False))
@pytest.mark.parametrize("shape", SHAPES)
def test_totals_are_sums_of_steps(shape, cached, causal):
    options, total = {"cached": cached, "causal": causal}, 0
    for t in range(1, 20):
        total += cost.step_flops(shape, t, **options)
        assert cost.total_flops(shape, t, **options) == total


def test_cached_steps_are_one_causal_pass():
    for shape in (*SHAPES, USUAL):
        total = cost.total_flops(shape, 100, cached=True)
        assert total == cost.matmul_flops(shape, 100, causal=True)


# tokens, d_model; without a cache to with one: all pairs, allowed pairs (None = not printed).
TOTALS = ((1024, 512, 569, 456), (4096, 512, 2504, 1593), (2048, 4096, 1062, None))


@pytest.mark.parametrize(("tokens", "d", "dense", "skipping"), TOTALS)
def test_ratios_of_totals(tokens, d, dense, skipping):
    s = LayerShape(d, 8)
    cached = cost.total_flops(s, tokens, cached=True)
    assert round(cost.total_flops(s, tokens, cached=False) / cached) == dense
    if skipping:
        recomputed = cost.total_flops(s, tokens, cached=False, causal=True)
        assert round(recomputed / cached) == skipping


# KiB a token, GiB for 4096 and 131072 tokens (float16), FLOP per byte of cache; None = not printed.
CACHES = {
    "GPT-3 175B": (4608, 18, 576, 1),
    "LLaMA-2 7B": (512, 2, 64, 1),
    "LLaMA-2 70B": (320, 1.25, 40, 8),
    "LLaMA-3 8B": (128, 0.5, 16, 4),
    "LLaMA-3.1 405B": (504, 1.96875, 63, 16),
}


@pytest.mark.parametrize("name", CACHES)
def test_table_of_caches(name):
    kibibytes, short, long, intensity = CACHES[name]
    model = MODELS[name]
    assert cost.cache_bytes(model, 1) == kibibytes * 2**10
    assert cost.cache_bytes(model, 4096) == short * 2**30
    assert cost.cache_bytes(model, 131072) == long * 2**30
    assert cost.cache_intensity(model) == intensity


@pytest.mark.parametrize(
    ("num_kv_heads", "kibibytes", "long", "intensity"), ((64, 2560, 320, 1), (1, 40, 5, 64))
)
def test_caches_of_the_same_model_with_other_heads(num_kv_heads, kibibytes, long, intensity):
    model = MODELS["LLaMA-2 70B"]
    other = replace(model, layer=replace(model.layer, num_kv_heads=num_kv_heads))
    assert cost.cache_bytes(other, 1) == kibibytes * 2**10
    assert cost.cache_bytes(other, 131072) == long * 2**30
    assert cost.cache_intensity(other) == intensity


def test_a_cache_holds_what_projecting_gives():
    layer = pytorch.MultiHeadAttention(7, 6, num_kv_heads=2, d_k=4, d_v=3)
    batch, tokens = 3, 5
    x = torch.zeros(batch, tokens, 7)
    _, k, v = layer._project(x, x.clone(), x.clone())
    numbers = k.numel() + v.numel()
    assert cost.cache_bytes(ODD, tokens, bytes_per_number=4, batch=batch) == 4 * numbers
    many = ModelShape("", ODD, num_layers=9, source="")
    assert cost.cache_bytes(many, tokens, bytes_per_number=4, batch=batch) == 9 * 4 * numbers


def test_heads_do_not_change_a_cache_unless_they_share():
    assert len({cost.cache_bytes(LayerShape(512, h), 10) for h in (1, 8, 64)}) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_cache_intensity_is_flops_over_bytes_for_any_length(shape):
    for t in (1, 10, 1000):
        stages = cost.flops_by_stage(shape, 1, t)
        flops = stages["scores"] + stages["values"]
        got = cost.intensity(flops, cost.cache_bytes(shape, t, bytes_per_number=4))
        assert got == cost.cache_intensity(shape, bytes_per_number=4)


def test_weight_intensity_is_flops_over_bytes():
    for batch in (1, 8):
        stages = cost.flops_by_stage(USUAL, batch)
        projections = stages["projections"] + stages["output"]
        weights = 4 * cost.parameters(USUAL)
        assert cost.weight_intensity(batch, 4) == cost.intensity(projections, weights)


def test_seventy_billion_parameters_share_a_cache_eight_ways():
    layer = MODELS["LLaMA-2 70B"].layer
    assert layer.num_heads // layer.num_kv_heads == 8 and layer.d_k == 128


def test_some_models_have_heads_wider_than_the_model():
    s = MODELS["T5-11B"].layer
    assert s.num_heads * s.d_k == 16 * s.d_model == 16384


@pytest.mark.parametrize(
    ("table", "document"), ((MODELS, r" et al\. 20\d\d, \w"), (DEVICES, "data sheet|white paper"))
)
def test_every_entry_has_its_name_and_a_source(table, document):
    for name, entry in table.items():
        assert entry.name == name
        assert re.search(document, entry.source)


def test_no_dtype_is_faster_than_a_shorter_one():
    for device in DEVICES.values():
        order = [device.peak[t] for t in ("float32", "tf32", "float16") if t in device.peak]
        assert order == sorted(order)


MACHINE = Device("machine", {"float32": 100.0, "float16": 400.0}, 10.0, 1.0, source="")


@given(st.floats(0, 1e4), st.sampled_from(list(MACHINE.peak)))
def test_roofline_is_the_lower_of_two_lines(intensity, dtype):
    peak, slope = MACHINE.peak[dtype], MACHINE.bandwidth * intensity
    attainable = cost.attainable(MACHINE, dtype, intensity)
    assert attainable == min(peak, slope)
    limit = "memory" if attainable < peak else "compute"
    assert cost.bound(MACHINE, dtype, intensity) == limit


def test_roofline_meets_at_the_ridge():
    for device in (*DEVICES.values(), MACHINE):
        for dtype, peak in device.peak.items():
            ridge = cost.ridge(device, dtype)
            assert cost.attainable(device, dtype, ridge) == pytest.approx(peak)
            assert cost.attainable(device, dtype, ridge / 2) == pytest.approx(peak / 2)


def test_seconds_are_those_of_the_slower_part():
    assert cost.seconds(MACHINE, "float32", flops=300, num_bytes=20) == 3
    assert cost.seconds(MACHINE, "float32", flops=300, num_bytes=40) == 4
    assert cost.seconds(MACHINE, "float32", flops=0, num_bytes=0) == 0


def test_on_a_large_gpu_the_naive_form_waits_for_memory_and_tiles_do_not():
    moved = {t: cost.traffic_bytes(WIDE, 4096, tiled=t, bytes_per_number=2) for t in (True, False)}
    flops = cost.core_flops(WIDE, 4096)
    for tiled, limit in ((False, "memory"), (True, "compute")):
        intensity = cost.intensity(flops, moved[tiled])
        for name in ("A100 SXM 80GB", "H100 SXM", "H200 SXM"):
            assert cost.bound(DEVICES[name], "bfloat16", intensity) == limit


def test_shapes_fill_in_what_is_usual():
    assert LayerShape(12, 3) == LayerShape(12, 3, num_kv_heads=3, d_k=4, d_v=4)
    assert LayerShape(7, 2, d_k=5, d_v=3).num_kv_heads == 2


def test_only_arithmetic_is_imported():
    code = "import sys, mha_lib.cost; assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


TRAFFIC_OF = {"shape": USUAL, "n_q": 2, "tiled": False, "bytes_per_number": 2}
H100 = DEVICES["H100 SXM"]

# What is wrong: the call, the error and what it must say.
FAULTS = {
    "d_model is a float": (lambda: LayerShape(8.0, 2), TypeError, "d_model", "whole", "8.0"),
    "heads do not fit": (lambda: LayerShape(8, 3), ValueError, "d_model", "num_heads = 3", "8"),
    "no heads": (lambda: LayerShape(8, 0), ValueError, "num_heads", "at least 1", "got 0"),
    "d_v is 0": (lambda: LayerShape(8, 2, d_v=0), ValueError, "d_v", "at least 1", "got 0"),
    "groups do not fit": (
        lambda: LayerShape(8, 4, 3), ValueError, "num_kv_heads", "num_heads = 4", "got 3"),
    "groups are a flag": (lambda: LayerShape(8, 4, True), TypeError, "num_kv_heads", "whole"),
    "model without layer": (
        lambda: ModelShape("x", 8, 2, ""), TypeError, "layer", "LayerShape", "int"),
    "model of no layers": (
        lambda: ModelShape("x", USUAL, 0, ""), ValueError, "num_layers", "at least 1", "got 0"),
    "no queries": (lambda: cost.pairs(0), ValueError, "n_q", "at least 1", "got 0"),
    "half a key": (lambda: cost.pairs(1, 0.5), TypeError, "n_kv", "whole", "0.5"),
    "causal is 1": (lambda: cost.pairs(3, causal=1), TypeError, "causal", "True or False", "int"),
    "shape is d_model": (
        lambda: cost.flops_by_stage(512, 3), TypeError, "shape", "LayerShape", "got int"),
    "a model for a layer's FLOPs": (
        lambda: cost.matmul_flops(MODELS["LLaMA-2 7B"], 3), TypeError,
        "shape", "LayerShape", "ModelShape"),
    "masked is an array": (
        lambda: cost.softmax_operations(USUAL, 3, masked=[True]), TypeError, "masked", "list"),
    "crossover of a number": (lambda: cost.crossover(512), TypeError, "shape", "LayerShape"),
    "negative d_ff": (lambda: cost.crossover(USUAL, d_ff=-1), ValueError, "d_ff", "-1"),
    "biases are 1": (lambda: cost.parameters(USUAL, 1), TypeError, "biases", "True or False"),
    "parameters of a model": (
        lambda: cost.parameters(MODELS["T5-11B"]), TypeError, "shape", "ModelShape"),
    "no keys": (lambda: cost.score_numbers(USUAL, 3, 0), ValueError, "n_kv", "got 0"),
    "kept for no tokens": (
        lambda: cost.kept_for_backward(USUAL, 0, tiled=True), ValueError, "n must", "got 0"),
    "tiled is text": (
        lambda: cost.traffic_bytes(**TRAFFIC_OF | {"tiled": "yes"}), TypeError, "tiled", "str"),
    "numbers without size": (
        lambda: cost.traffic_bytes(**TRAFFIC_OF | {"bytes_per_number": 0}), ValueError,
        "bytes_per_number", "above 0", "got 0"),
    "size is a dtype": (
        lambda: cost.traffic_bytes(**TRAFFIC_OF | {"bytes_per_number": "float16"}), TypeError,
        "bytes_per_number", "number", "got str"),
    "negative passes": (
        lambda: cost.traffic_bytes(**TRAFFIC_OF, extra_passes=-1), ValueError,
        "extra_passes", "negative", "-1"),
    "passes over scores that are not stored": (
        lambda: cost.traffic_bytes(**TRAFFIC_OF | {"tiled": True}, extra_passes=1), ValueError,
        "extra_passes", "tiled", "got 1"),
    "negative FLOPs": (lambda: cost.intensity(-1, 2), ValueError, "flops", "negative", "-1"),
    "no bytes": (lambda: cost.intensity(1, 0), ValueError, "num_bytes", "above 0", "got 0"),
    "limit without size": (
        lambda: cost.limit_of_naive_intensity(USUAL, -2), ValueError, "bytes_per_number", "-2"),
    "limit by head width": (
        lambda: cost.limit_of_naive_intensity(64, 2), TypeError, "shape", "LayerShape", "int"),
    "step 0": (lambda: cost.step_flops(USUAL, 0, cached=True), ValueError, "t must", "got 0"),
    "cached is None": (
        lambda: cost.step_flops(USUAL, 1, cached=None), TypeError, "cached", "True or False"),
    "no tokens": (
        lambda: cost.total_flops(USUAL, 0, cached=True), ValueError, "tokens", "at least 1"),
    "cache of a name": (lambda: cost.cache_bytes("LLaMA-2 7B", 1), TypeError, "shape", "str"),
    "negative tokens": (lambda: cost.cache_bytes(USUAL, -1), ValueError, "tokens", "-1"),
    "no batch": (lambda: cost.cache_bytes(USUAL, 1, batch=0), ValueError, "batch", "got 0"),
    "infinite numbers": (
        lambda: cost.cache_intensity(USUAL, float("inf")), ValueError, "bytes_per_number", "inf"),
    "weights of no sequence": (lambda: cost.weight_intensity(0), ValueError, "batch", "got 0"),
    "device by name": (
        lambda: cost.ridge("H100 SXM", "float16"), TypeError, "device", "Device", "got str"),
    "dtype the device has not": (
        lambda: cost.ridge(H100, "float8"), ValueError, "dtype", "bfloat16", "'float8'"),
    "negative intensity": (
        lambda: cost.attainable(H100, "tf32", -1), ValueError, "intensity", "negative", "-1"),
    "intensity is NaN": (
        lambda: cost.bound(H100, "tf32", float("nan")), ValueError, "intensity", "nan"),
    "seconds of negative work": (
        lambda: cost.seconds(H100, "tf32", -1, 1), ValueError, "flops", "-1"),
    "seconds of negative traffic": (
        lambda: cost.seconds(H100, "tf32", 1, -1), ValueError, "num_bytes", "-1"),
    "device without bandwidth": (
        lambda: Device("x", {}, 0, 1, ""), ValueError, "bandwidth", "above 0", "got 0"),
    "device without memory": (lambda: Device("x", {}, 1, None, ""), TypeError, "memory", "None"),
    "device without speed": (
        lambda: Device("x", {"float32": 0}, 1, 1, ""), ValueError, "peak['float32']", "got 0"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses(fault):
    call, *expected = FAULTS[fault]
    refuses(call, *expected)
