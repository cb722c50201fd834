"""Records: what they say, what they never say, and the power laws fitted to them."""

import json
import re

import numpy as np
import pytest

from mha_lib import cost, measure
from mha_lib.__main__ import main
from mha_lib.measure import clock, machine, plans, record, sweeps

AT_HAND = cost.Device("a machine", {"float32": 1e11}, 2e10, 8e9, "made up")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(clock, "PAUSE", 0)
    monkeypatch.setattr(machine, "probe", lambda device: AT_HAND)


def small_sweep(**options):
    options = {"sizes": [8, 16], "implementations": ["flash"], "causal": False} | options
    return measure.sweep("n", "cpu", rounds=3, **options)


def test_a_record_comes_back_as_it_was_saved(quick, tmp_path):
    taken = small_sweep()
    measure.save(taken, tmp_path / "new folder" / "taken.json")
    assert measure.load(tmp_path / "new folder" / "taken.json") == taken
    assert measure.recorded_device(taken) == AT_HAND


def test_a_record_holds_exactly_this(quick):
    """A key more would have to be looked at: no path, no user and no host may be told."""
    taken = small_sweep()
    names = "format sweep command device versions threads points"
    assert list(taken) == names.split()
    names = "kind cores system name peak bandwidth memory source"
    assert list(taken["device"]) == names.split()
    assert list(taken["versions"]) == ["python", "mha-lib", "numpy", "torch"]
    assert taken["threads"]["torch"] >= 1 and set(map(type, taken["threads"].values())) == {int}
    names = "implementation n d_model num_heads num_kv_heads dtype causal n_q "
    names += "first_call_seconds seconds peak_bytes backend error"
    assert all(list(point) == names.split() for point in taken["points"])
    assert len(taken["points"]) == 2 and len(taken["points"][0]["seconds"]) == 3
    assert not re.search(r"[/\\]", json.dumps(taken))


def test_faults_are_told_without_paths():
    told = sweeps._in_words(RuntimeError("at /home/ada/torch.cpp:12: no kernel\nstack trace"))
    assert told == "RuntimeError: at … no kernel"
    assert sweeps._in_words(MemoryError("for shape (9, 9)")) == "out of memory"
    assert sweeps._in_words(RuntimeError("DefaultCPUAllocator: can't allocate memory")) == (
        "out of memory"
    )


def test_the_command_writes_a_record_with_itself_in_it(quick, tmp_path, capsys, monkeypatch):
    plan = plans.PLANS["decode", "cpu"] | {"implementation": ("flash",), "num_kv_heads": (8,)}
    monkeypatch.setitem(plans.PLANS, ("decode", "cpu"), plan)
    out = tmp_path / "decode.json"
    typed = "measure --sweep decode --device cpu --sizes 8 16 --rounds 1 --out"
    assert main([*typed.split(), str(out)]) == 0
    taken = measure.load(out)
    assert taken["command"] == f"python -m mha_lib {typed} decode.json"
    assert [point["n"] for point in taken["points"]] == [8, 16]
    assert all(point["peak_bytes"] is not None for point in taken["points"])
    printed = capsys.readouterr()
    assert "2 points, 0 without a time" in printed.out and "decode on cpu: 100%" in printed.err


@pytest.mark.parametrize(
    "typed, message",
    [
        ("--sweep n", "--sweep needs --out FILE"),
        ("--sweep n --out .", "--out must be a file that can be written, got ."),
        ("--sweep n --device cuda --out x.json", "finds no CUDA device"),
        ("--sweep n --device cpu --rounds 0 --out x.json", "rounds must be at least 1, got 0"),
        ("compare --rounds 0", "rounds must be at least 1, got 0"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(typed, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "device", lambda: "cpu")
    assert main(["measure", *typed.split()]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("typed", [[], ["compare", "--sweep", "n"]])
def test_the_command_is_told_what_to_measure(typed, capsys):
    with pytest.raises(SystemExit):
        main(["measure", *typed])
    assert "compare" in capsys.readouterr().err


def test_only_records_can_be_loaded(tmp_path):
    with pytest.raises(ValueError, match="name must be a file or one of"):
        measure.load("no such record")
    (tmp_path / "other.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="must be a record of format 1"):
        measure.load(tmp_path / "other.json")


def test_records_that_came_with_the_book_are_found_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "SHIPPED", tmp_path)
    measure.save({"format": 1, "points": []}, tmp_path / "cpu_n.json")
    assert measure.shipped() == ["cpu_n"] and measure.load("cpu_n")["points"] == []
    monkeypatch.setattr(record, "SHIPPED", tmp_path / "missing")
    assert measure.shipped() == []


@pytest.mark.parametrize("name", measure.shipped())
def test_shipped_records_are_whole(name):
    taken = measure.load(name)
    assert name == f"{taken['device']['kind']}_{taken['sweep']}"
    assert name in taken["command"] and measure.recorded_device(taken).bandwidth > 0
    for point in taken["points"]:
        assert point["error"] or len(point["seconds"]) >= sweeps.FEWEST
        assert (
            point["implementation"] not in ("math", "flash")
            or point["error"]
            or (point["backend"] == point["implementation"])
        )


POINTS = [
    {"n": 8, "causal": False, "seconds": [3.0, 1.0, 2.0], "peak_bytes": 64},
    {"n": 4, "causal": False, "seconds": [1.0, 1.0, 9.0], "peak_bytes": None},
    {"n": 16, "causal": False, "seconds": [], "peak_bytes": None},
    {"n": 8, "causal": True, "seconds": [0.5], "peak_bytes": 32},
]


def test_a_curve_is_of_medians_in_order_and_leaves_faults_out():
    taken = {"points": POINTS}
    assert measure.curve(taken, "n", causal=False) == ([4, 8], [1.0, 2.0])
    assert measure.curve(taken, "n", "peak_bytes", causal=True) == ([8], [32])


def test_a_curve_with_two_values_at_a_place_is_refused():
    with pytest.raises(ValueError, match="one point for each n, got several"):
        measure.curve({"points": POINTS}, "n")


def test_the_exponent_of_a_known_law_is_found_with_its_error():
    """Over many noisy curves the error is the spread that exponents really have."""
    x = 2.0 ** np.arange(7, 14)
    rng = np.random.default_rng(0)
    fits = [
        measure.exponent(x, 3e-9 * x**1.7 * np.exp(rng.normal(0, 0.1, x.size))) for _ in range(400)
    ]
    found = np.array([fit.exponent for fit in fits])
    assert found.mean() == pytest.approx(1.7, abs=0.005)
    spread = np.sqrt(np.mean([fit.error**2 for fit in fits]))
    assert spread == pytest.approx(found.std(), rel=0.1)
    assert np.median([fit.constant for fit in fits]) == pytest.approx(3e-9, rel=0.05)


@pytest.mark.parametrize(
    "x, seconds, message",
    [
        ([1, 2], [1, 2], "at least three different x, got 2 and 2"),
        ([1, 2, 2], [1, 2, 3], "at least three different x"),
        ([1, 2, 3], [1, 2], "as long as each other"),
        ([1, 2, 3], [1, 0, 2], "seconds must be a row of positive numbers"),
        ([1, 2, float("nan")], [1, 1, 2], "x must be a row of positive numbers"),
    ],
)
def test_what_cannot_be_fitted_is_refused(x, seconds, message):
    with pytest.raises(ValueError, match=message):
        measure.exponent(x, seconds)


def test_the_machine_at_hand_is_probed_once(monkeypatch):
    monkeypatch.setattr(machine, "WIDTH", {"cpu": 64})
    monkeypatch.setattr(machine, "COPIED", {"cpu": 2**20})
    monkeypatch.setattr(machine, "_fastest", lambda call, device: 0.5)
    machine.probe.cache_clear()
    at_hand = measure.probe("cpu")
    assert at_hand.peak == {"float32": 2 * 64**3 / 0.5}
    assert at_hand.bandwidth == 2 * 2**20 / 0.5  # read and written
    assert at_hand.memory > 2**28 and at_hand.name
    assert measure.probe("cpu") is at_hand
    machine.probe.cache_clear()


def test_the_best_of_a_few_tries_counts(monkeypatch):
    monkeypatch.setattr(clock, "sample", lambda *arguments, **options: next(times))
    times = iter([3.0, 2.0, 5.0, 4.0, 6.0])
    assert machine._fastest(lambda: None, "cpu") == 2.0
