"""Machine proofs: each answer is no, each twin's is yes, and solutions are solutions."""

from fractions import Fraction

import numpy as np
import pytest

from mha_lib.expressiveness import bounds, certificates, constructions
from mha_lib.expressiveness.check import Check, table


@pytest.fixture(scope="module")
def checks():
    return certificates.checks()


def test_every_check_holds_and_so_does_its_twin(checks):
    assert len(checks) == len({check.question for check in checks}) == 9
    assert [check for check in checks if check.exists or not check.twin_exists] == []
    assert all(check.holds for check in checks)


def test_a_check_without_a_possible_twin_does_not_hold():
    assert not Check("?", False, "?", False).holds
    assert not Check("?", True, "?", True).holds
    assert table([Check("a", False, "b", True)]) == "a: impossible\n    twin: b: possible"


def test_six_of_the_seven_splits_can_be_made_whichever_is_given_up():
    assert certificates.all_but_one_split() == [True] * 7


@pytest.mark.parametrize("size", (1, 2, 3))
def test_the_lemma_has_the_bound_of_the_worst_subset(size):
    check = certificates.a_key_outside_gets_as_much(size)
    assert check.holds
    least = bounds.worst_subset(d_k=2 * size - 1)
    assert f"1/{1 / least:.0f}" in check.twin


@pytest.mark.parametrize("d_k, n", ((1, 3), (2, 4), (2, 5), (2, 6), (4, 6)))
def test_exact_counts_are_covers_number(d_k, n):
    preferred = certificates.preferable(certificates.general_position(n, d_k))
    assert len(preferred) == bounds.cover(n, d_k)


def test_a_preferred_subset_comes_with_its_query():
    key = certificates.general_position(5, 2)
    for subset in certificates.preferable(key):
        query = certificates.prefers(key, subset)
        scores = [sum(q * Fraction(x) for q, x in zip(query, k, strict=True)) for k in key]
        inside = [scores[j] for j in subset]
        outside = [score for j, score in enumerate(scores) if j not in subset]
        assert not inside or not outside or min(inside) > max(outside)


@pytest.mark.parametrize("d_k", (1, 2, 3))
def test_radons_groups_are_preferred_by_no_query(d_k):
    key = np.random.default_rng(d_k).integers(-9, 10, size=(d_k + 2, d_k))
    first, _ = bounds.radon(key.astype(float))
    for inside in (first, ~first):
        assert certificates.prefers(key, np.flatnonzero(inside)) is None


def test_a_moment_curve_in_2m_dimensions_ends_at_m_keys():
    key = constructions.moment_curve(6, 2)
    sizes = [len(subset) for subset in certificates.preferable(key)]
    assert [sizes.count(m) for m in range(4)] == [1, 6, 15, 18]  # all pairs, 18 of 20 triples


def test_a_solver_that_gives_up_is_an_error(monkeypatch):
    monkeypatch.setattr(certificates, "SECONDS", 0.001)
    with pytest.raises(TimeoutError, match="z3 found no answer"):
        certificates.one_head_on_two_bits()
