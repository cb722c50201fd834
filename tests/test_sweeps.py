"""Sweeps: what is run at which size, by which backend, in how much memory; faults end one point."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from mha_lib import measure
from mha_lib.measure import clock, cores, memory, plans, sweeps, torch_cores
from mha_lib.measure.cores import CORES, Point

ON_CPU = [name for name, devices in CORES.items() if "cpu" in devices]
ON_CPU.remove("layer")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(clock, "PAUSE", 0)
    monkeypatch.setattr(sweeps.record, "new", lambda kind, device, points: {"points": points})


def output(name, **shape):
    point = Point(name, d_model=12, num_heads=6, **shape)
    with cores.chosen(point):
        result = cores.run_on(point, "cpu")()
    return np.asarray(result[0] if isinstance(result, tuple) else result)


@pytest.mark.parametrize("shape", [{"n": 5}, {"n": 5, "causal": True}, {"n": 5, "num_kv_heads": 2}])
@pytest.mark.parametrize("name", ON_CPU)
def test_every_core_computes_the_same(name, shape):
    assert np.allclose(output(name, **shape), output("numpy, naive", **shape), atol=1e-6)


def test_one_query_of_a_decode_step_is_compared_with_all_keys():
    point = Point("flash", n=5, d_model=12, num_heads=6, num_kv_heads=2, n_q=1)
    q, k, v = (cores.numbers(shape) for shape in (point.shapes()[0], *[point.shapes()[1]] * 2))
    scores = np.einsum("bgrd,bgtd->bgrt", q, k) / np.sqrt(2)  # r: heads that share keys
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = np.einsum("bgrt,bgtd->bgrd", weights, v)
    got = output("flash", n=5, num_kv_heads=2, n_q=1)
    assert got.shape == (1, 2, 3, 2) and np.allclose(got, expected, atol=1e-6)


def test_the_backend_that_ran_is_told_by_what_it_calls():
    q = torch.ones(1, 2, 3, 4)

    def call():
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    for backend in ("math", "flash"):
        with torch_cores.only(backend):
            assert torch_cores.backend_of(call) == backend
    assert torch_cores.backend_of(lambda: torch_cores.written_out(q, q, q)) is None


def test_another_backend_than_the_one_asked_for_is_refused():
    point = Point("math", n=4, d_model=8, num_heads=2)
    with torch_cores.only("flash"), pytest.raises(RuntimeError, match=r"ran flash, where math was"):
        cores.check_backend(point, cores.run_on(point, "cpu"))


def test_a_backend_that_is_not_there_is_the_error_of_its_points(monkeypatch):
    monkeypatch.setitem(CORES["cudnn"], "cpu", ("float32",))
    monkeypatch.setitem(plans.PLANS["n", "cpu"], "implementation", ("flash", "cudnn"))
    here, missing = sweep_n([8])
    assert here["error"] is None and here["backend"] == "flash" and len(here["seconds"]) == 2
    assert missing["error"].startswith("RuntimeError") and not missing["seconds"]


def sweep_n(sizes, **options):
    options = {"rounds": 2, "d_model": 8, "num_heads": 1, "causal": False} | options
    return measure.sweep("n", "cpu", sizes=sizes, **options)["points"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's addresses")
def test_out_of_memory_ends_one_point_only(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**26)
    names = ["torch, written out", "flash", "numpy, naive"]
    points = sweep_n([16, 2**13, 32], implementations=names)  # 256 MiB of weights
    errors = {(p["n"], p["implementation"]): p["error"] for p in points}
    assert errors.pop((2**13, "torch, written out")) == "out of memory"
    assert errors.pop((2**13, "numpy, naive")) == "out of memory"
    assert len(errors) == 7 and set(errors.values()) == {None}
    assert all(len(p["seconds"]) == (2 if p["error"] is None else 0) for p in points)


def test_a_limit_on_memory_is_lifted_again():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(ZeroDivisionError), memory.limited():
        raise ZeroDivisionError
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_numpy_s_peak_is_what_lives_at_one_time():
    def call():
        first = np.ones(2**17)  # 1 MiB
        first = first[:1].copy()
        return first, np.ones(2**18)  # 2 MiB

    assert memory.traced(call) == pytest.approx(2**21, rel=0.01)


def test_a_call_that_fits_into_memory_given_back_is_seen_whole():
    given_back = np.ones(2**23)  # 64 MiB
    del given_back
    assert memory.rise(lambda: np.ones(2**22)) == pytest.approx(2**25, rel=0.05)


def test_torch_s_peak_is_seen_from_a_child_process():
    """Written out, scores and weights live at one time; tiles never hold either."""
    shape = {"n": 1024, "d_model": 128, "num_heads": 8}
    weights = 4 * 8 * 1024**2
    written, flash, tiles = (
        memory.peak_bytes(Point(name, **shape), "cpu")
        for name in ("torch, written out", "flash", "numpy, tiles")
    )
    assert 2 * weights < written < 2.3 * weights
    assert 0 < flash < weights / 5 and 0 < tiles < weights / 5


def test_a_child_without_memory_is_the_error_of_its_point():
    point = sweep_n([2**20], implementations=["torch, written out"], memory=True)[0]  # 4 TiB
    assert point["error"] == "out of memory" and point["first_call_seconds"] is None


def test_a_child_that_is_killed_is_the_error_of_its_point():
    class Deadly(Point):
        def __reduce__(self):
            return os._exit, (1,)  # what a child does who unpickles it

    run = sweeps._Run(Deadly("flash", n=4, d_model=8, num_heads=2), "cpu")
    for step in run.first_steps(with_memory=True):
        run.attempt(step)
    assert run.result()["error"].startswith("BrokenProcessPool") and run.first is None


def test_a_fault_of_our_own_is_not_taken_for_a_result(monkeypatch):
    monkeypatch.setattr(cores, "run_on", lambda point, device: lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sweep_n([8], implementations=["flash"])


def test_turns_are_interleaved_and_first_calls_kept_apart(monkeypatch):
    calls = []
    monkeypatch.setattr(cores, "run_on", lambda p, device: lambda: calls.append(p.implementation))
    monkeypatch.setattr(cores, "check_backend", lambda point, call: call())
    points = sweep_n([8], implementations=["math", "flash"])
    twice = ["math", "math", "flash", "flash"]
    assert calls == twice * 3  # the first call and the one that shows the backend, then two rounds
    assert [len(p["seconds"]) for p in points] == [2, 2]
    assert all(p["first_call_seconds"] > 0 for p in points)


def test_fewer_rounds_where_a_turn_is_long(monkeypatch):
    monkeypatch.setattr(sweeps, "PATIENCE", 0)
    (point,) = sweep_n([8], implementations=["flash"], rounds=9)
    assert len(point["seconds"]) == sweeps.FEWEST


@pytest.mark.parametrize("kind, device", plans.PLANS)
def test_plans_cover_their_sizes_and_only_what_is_supported(kind, device):
    groups = plans.plan(kind, device)
    axis = [getattr(points[0], plans.AXIS[kind]) for points in groups]
    assert len(set(axis)) >= 6 and all(groups)
    for points in groups:
        shapes = {(p.n, p.n_q, p.d_model, p.num_heads, p.num_kv_heads, p.causal) for p in points}
        assert len(shapes) == 1  # only the implementation differs among those that take turns
        assert all(cores.supports(p.implementation, device, p.dtype) for p in points)


def test_the_plans_reach_what_the_book_speaks_of():
    def values(kind, device, name):
        return {getattr(p, name) for points in plans.plan(kind, device) for p in points}

    assert max(values("n", "cuda", "n")) == 65536
    assert max(values("heads", "cuda", "num_heads")) == 128
    assert values("heads", "cuda", "d_model") == {512, 4096}
    assert values("n", "cuda", "dtype") == {"float32", "bfloat16"}
    assert values("decode", "cpu", "num_kv_heads") == {8, 2, 1}
    assert "layer" in values("d_model", "cpu", "implementation")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"kind": "speed"}, "kind must be one of n, heads, d_model, decode, got 'speed'"),
        ({"kind": "n", "device": "tpu"}, "device must be one of cpu, cuda, got 'tpu'"),
        (
            {"kind": "n", "implementations": ["cudnn"]},
            "implementations must be one of numpy, naive",
        ),
        ({"kind": "decode", "implementations": ["layer"]}, "layer takes as many queries"),
        ({"kind": "n", "heads": 3}, "a fixed value must be one of n, d_model, num_heads"),
        ({"kind": "heads", "sizes": [7]}, "d_model must be divisible by num_heads = 7"),
        ({"kind": "n", "sizes": [0]}, "n must be at least 1, got 0"),
        ({"kind": "decode", "causal": True}, "causal must be False here"),
    ],
)
def test_what_cannot_be_swept_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure.sweep(**{"device": "cpu"} | arguments)


def test_cuda_is_refused_where_there_is_none_and_chosen_where_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure.device() == "cpu"
    with pytest.raises(ValueError, match="finds no CUDA device"):
        measure.sweep("n", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert measure.device() == "cuda"


def test_on_cuda_torch_s_allocator_keeps_account(monkeypatch):
    """The difference to what lay there before the call, and the first call is not spoilt by it."""
    log = []
    monkeypatch.setattr(cores, "run_on", lambda p, device: lambda: log.append(p.n))
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: log.append(name))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 350)
    point = Point("math", n=64, d_model=8, num_heads=2)
    assert memory.peak_bytes(point, "cuda") == 250
    assert log == [32, "synchronize", "reset_peak_memory_stats", 64, "synchronize"]
    run = sweeps._Run(point, "cuda")
    assert run.first_steps(with_memory=True) == [run.begin, run.weigh]


def test_a_label_shows_how_far_a_sweep_is(capsys):
    sweep_n([8, 16], implementations=["flash"], rounds=1, label="over n")
    assert "over n: 100%" in capsys.readouterr().err
    sweep_n([8], implementations=["flash"], rounds=1)
    assert not capsys.readouterr().err


def test_measure_starts_without_torch():
    code = "import sys, mha_lib.measure; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
