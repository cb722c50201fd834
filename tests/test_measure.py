"""Measuring: contenders take turns, ratios come from one run, all compute the same layer."""

import pytest
import torch

from mha_lib import contenders, measure
from mha_lib.__main__ import main
from mha_lib.measure import clock


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(clock, "PAUSE", 0)


def test_contenders_take_turns():
    calls = []
    measure.compare({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "a", "b", "b"] * 2  # each time an untimed call, then a timed one


def test_ratios_are_medians_over_rounds_to_the_first(monkeypatch):
    times = iter([1.0, 2.0, 4.0, 12.0, 1.0, 5.0])
    monkeypatch.setattr(clock, "sample", lambda function, device: next(times))
    first, second = measure.compare({"a": None, "b": None}, rounds=3)
    assert first.ratio == 1 and second.ratio == 3  # of 2, 3 and 5
    assert (first.seconds, second.seconds) == (1.0, 5.0)


@pytest.mark.parametrize("causal", [False, True])
def test_every_contender_computes_the_same_layer(causal):
    outputs = [as_tensor(function()) for function in contenders.forward(16, causal).values()]
    for output in outputs[1:]:
        assert torch.allclose(output, outputs[0], atol=1e-5)


def as_tensor(result):
    output = result[0] if isinstance(result, tuple) else result
    return torch.as_tensor(output)


def test_the_command_prints_every_contender(capsys):
    assert main(["measure", "compare", "--sizes", "8", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    for name in (*contenders.forward(8, False), *contenders.forward_backward(8, True)):
        assert name in printed


def test_on_cuda_the_gpu_s_own_clock_is_read(monkeypatch):
    """No GPU is needed to see the order of what is sent to it, nor that events count in ms."""
    sent = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            sent.append("event")

        def elapsed_time(self, end):
            assert sent[-1] == "waited" and isinstance(end, Event)
            return 1500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: sent.append("waited"))
    assert clock.sample(lambda: sent.append("call"), "cuda") == 1.5
    assert sent == ["call", "event", "call", "event", "waited"]
    clock.once(lambda: sent.append("call"), "cuda")
    assert sent[-2:] == ["call", "waited"]


def test_a_long_call_is_not_made_twice_for_a_sample():
    calls = []
    clock.sample(lambda: calls.append(1), warm_up=False)
    assert calls == [1]
