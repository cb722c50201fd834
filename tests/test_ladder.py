"""The equality ladder holds, and would notice if it did not."""

from dataclasses import replace

import numpy as np
import pytest

from mha_lib import doctor, ladder, scratch


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_every_way_computes_the_same_layer(seed, num_heads):
    rungs = ladder.climb(num_heads=num_heads, seed=seed)
    assert len(rungs) == 7 and all(rung.holds for rung in rungs), ladder.table(rungs)


def test_a_wrong_form_does_not_hold(monkeypatch):
    def shifted(*args):
        output, weights = scratch.multi_head_attention_loop(*args)
        return output * (1 + 1e-9), weights

    monkeypatch.setattr(scratch, "multi_head_attention", shifted)
    held = {rung.name: rung.holds for rung in ladder.climb()}
    assert not held["one reshape, NumPy"] and held["fused, PyTorch"]


def test_a_wrong_gradient_does_not_hold(monkeypatch):
    right = scratch.multi_head_attention_backward

    def wrong(*args):
        grad = right(*args)
        return grad._replace(query=grad.query * (1 + 1e-9))

    monkeypatch.setattr(scratch, "multi_head_attention_backward", wrong)
    held = {rung.name: rung.holds for rung in ladder.climb()}
    assert held["one reshape, NumPy"] and not held["fused, PyTorch"]


def test_a_wrong_bias_gradient_does_not_hold(monkeypatch):
    right = scratch.multi_head_attention_backward

    def wrong(*args):
        grad = right(*args)
        biases = replace(grad.projections, b_k=grad.projections.b_k + 1e-9)
        return grad._replace(projections=biases)

    monkeypatch.setattr(scratch, "multi_head_attention_backward", wrong)
    assert not any(rung.holds for rung in ladder.climb() if rung.gradient_difference is not None)


@pytest.mark.parametrize("bad", [1e-9, np.nan])
def test_a_difference_or_nan_in_either_place_does_not_hold(bad):
    assert not ladder.Rung("x", bad, None).holds
    assert not ladder.Rung("x", 0.0, bad).holds
    assert ladder.Rung("x", 0.0, 0.0).holds


def test_the_doctor_is_content_here(capsys):
    assert doctor.examine()
    assert "All is well." in capsys.readouterr().out


def test_the_doctor_says_how_to_mend_a_missing_package(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package"))
    assert not doctor.examine()
    assert "no-such-package is missing: `python book.py` installs it" in capsys.readouterr().out


def test_the_doctor_reports_an_old_version(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "MINIMUM", {"numpy": (99, 0)})
    assert not doctor.examine()
    assert "numpy 99.0 or newer is needed" in capsys.readouterr().out


def test_the_doctor_reports_a_broken_rung(monkeypatch, capsys):
    monkeypatch.setattr(ladder, "climb", lambda: [ladder.Rung("broken", 1.0, None)])
    assert not doctor.examine()
    assert "broken differs" in capsys.readouterr().out
