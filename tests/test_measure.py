"""Measuring: contenders take turns, ratios come from one run, all compute the same layer."""

import pytest
import torch

from mha_lib import contenders, measure
from mha_lib.__main__ import main


def test_contenders_take_turns(monkeypatch):
    monkeypatch.setattr(measure, "PAUSE", 0)
    calls = []
    measure.compare({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "a", "b", "b"] * 2  # each time an untimed call, then a timed one


def test_ratios_are_medians_over_rounds_to_the_first(monkeypatch):
    times = iter([1.0, 2.0, 4.0, 12.0, 1.0, 5.0])
    monkeypatch.setattr(measure, "_time_once", lambda function: next(times))
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


def test_the_command_prints_every_contender(monkeypatch, capsys):
    monkeypatch.setattr(measure, "PAUSE", 0)
    assert main(["measure", "compare", "--sizes", "8", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    for name in (*contenders.forward(8, False), *contenders.forward_backward(8, True)):
        assert name in printed
