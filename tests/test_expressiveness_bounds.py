"""Bounds against brute force on cases small enough for it."""

from itertools import combinations

import numpy as np
import pytest

from mha_lib import scratch
from mha_lib.expressiveness import bounds, product, tasks

ANGLES = np.linspace(0, np.pi, 181)[:, None, None]
OFFSETS = np.linspace(-1.5, 1.5, 121)[:, None]


def test_no_line_lies_closer_to_the_corners_than_the_bound():
    corners = tasks.bits().target[:, 0]  # (4, 2)
    heights = np.cos(ANGLES) * corners[:, 0] + np.sin(ANGLES) * corners[:, 1] - OFFSETS
    losses = (heights**2).mean(axis=-1)  # of every line: (angles, offsets)
    assert losses.min() == pytest.approx(bounds.subspace(tasks.bits(), num_heads=1))


@pytest.mark.parametrize("num_heads", (1, 2))
def test_pooled_scalars_chosen_freely_end_at_the_bound(num_heads):
    """Task A with three bits: the best pooled numbers and read-outs in turn, from many starts."""
    task, rng = tasks.bits(3), np.random.default_rng(0)
    target, losses = task.target[:, 0], []
    for _ in range(20):
        pooled = rng.normal(size=(8, num_heads))  # one number a head for every input
        for _ in range(200):
            with_constant = np.hstack([pooled, np.ones((8, 1))])
            read_out = np.linalg.lstsq(with_constant, target)[0]
            pooled = np.linalg.lstsq(read_out[:-1].T, (target - read_out[-1]).T)[0].T
        losses.append(task.loss((pooled @ read_out[:-1] + read_out[-1])[:, None]))
    assert min(losses) == pytest.approx(bounds.subspace(task, num_heads), abs=1e-9)


@pytest.mark.parametrize(
    "task, num_heads, bound",
    (
        (tasks.bits(2), 1, 1),
        (tasks.bits(5, width=7), 2, 3),
        (tasks.bits(see_values=True), 1, 1),
        (tasks.staircase(4, 3), 3, 3),
        (tasks.staircase(4, 3), 5, 0),
        (tasks.both_contents(), 1, 1),
        (tasks.both_contents(), 2, 0),
        (tasks.half_contents(), 1, 0),
        (tasks.three_keys(), 1, 0),
        (tasks.neighbours(6, 4, 2), 1, 36),
    ),
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_the_subspace_bound_of_each_task(task, num_heads, bound):
    assert bounds.subspace(task, num_heads) == pytest.approx(bound, abs=1e-12)


def test_the_span_is_affine():
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(3, 7, 2)) @ rng.normal(size=(2, 5)) + rng.normal(size=5)
    assert bounds.span(tokens) == 2


@pytest.mark.parametrize("n, d_k", ((3, 1), (5, 1), (4, 2), (5, 2), (5, 3)))
def test_covers_number_counts_what_random_queries_prefer(n, d_k):
    rng = np.random.default_rng(0)
    key = rng.normal(size=(n, d_k))
    order = np.argsort(rng.normal(size=(30_000, d_k)) @ key.T, axis=1)
    preferred = {tuple(sorted(best)) for m in range(n + 1) for best in order[:, n - m :].tolist()}
    assert len(preferred) == bounds.cover(n, d_k)


@pytest.mark.parametrize("d_k", (1, 2, 5))
def test_all_subsets_can_be_preferred_up_to_the_vc_dimension(d_k):
    shattered = [bounds.cover(n, d_k) == 2**n for n in range(1, 9)]
    assert shattered == [n <= d_k + 1 for n in range(1, 9)]


@pytest.mark.parametrize("d_k", (1, 2, 3, 4))
def test_no_query_separates_the_groups_of_radon(d_k):
    rng = np.random.default_rng(d_k)
    key, query = rng.normal(size=(d_k + 2, d_k)), rng.normal(size=(2000, d_k))
    first, point = bounds.radon(key)
    scores = query @ key.T
    for inside in (first, ~first):
        assert (scores[:, ~inside].max(axis=1) >= scores[:, inside].min(axis=1)).all()
        height = query @ point  # lies between the scores of either group
        assert (scores[:, inside].min(axis=1) <= height + 1e-9).all()
        assert (scores[:, inside].max(axis=1) >= height - 1e-9).all()
    assert 1 <= first.sum() <= d_k // 2 + 1


def test_radon_wants_d_k_plus_2_keys():
    with pytest.raises(ValueError, match=r"key must have d_k \+ 2 = 4 rows, got 3"):
        bounds.radon(np.zeros((3, 2)))


def test_any_weights_are_those_of_a_head_wide_enough():
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=5)
    assert bounds.needed_d_k(weights) == 4  # n - 1
    for d_k, exact in ((4, True), (3, False)):
        query, key = bounds.factored(weights, d_k)
        _, rebuilt = scratch.scaled_dot_product_attention(query, key, key)
        assert np.allclose(rebuilt, weights, atol=1e-12) == exact


@pytest.mark.parametrize("d_k", (1, 2, 3))
def test_the_weights_of_a_head_need_no_more_than_its_width(d_k):
    query, key = np.random.default_rng(d_k).normal(size=(2, 6, d_k))
    _, weights = scratch.scaled_dot_product_attention(query, key, key)
    assert bounds.needed_d_k(weights) == d_k
    _, again = scratch.scaled_dot_product_attention(*bounds.factored(weights, d_k), key)
    np.testing.assert_allclose(again, weights, atol=1e-12)


def test_the_mean_of_two_thin_heads_needs_a_wider_one():
    weights = product.whole_number_heads()
    assert [bounds.needed_d_k(w) for w in weights] == [1, 1]
    logits = bounds.centred_logits(weights.mean(axis=0))
    sizes = np.linalg.svd(logits, compute_uv=False)
    np.testing.assert_allclose(sizes, (2.639, 1.326, 0.174, 0), atol=5e-4)


@pytest.mark.parametrize("d_k", (1, 2, 3))
def test_some_subset_costs_every_thin_head_its_bound(d_k):
    """The proof's step by brute force: one head's weights, the best read-out for each subset."""
    n, rng = d_k + 2, np.random.default_rng(d_k)
    sizes = range(1, d_k // 2 + 2)
    subsets = [np.isin(range(n), s) / m for m in sizes for s in combinations(range(n), m)]
    for _ in range(5):
        key, query = rng.normal(size=(n, d_k)), 10 * rng.normal(size=(5000, d_k))
        _, weights = scratch.scaled_dot_product_attention(query, key, key)
        fit = (weights @ np.transpose(subsets)) ** 2 / (weights**2).sum(axis=1, keepdims=True)
        errors = [s @ s - fit[:, i].max() for i, s in enumerate(subsets)]
        assert max(errors) >= bounds.worst_subset(d_k)


def test_three_keys_have_one_head_or_two():
    assert [bounds.three_keys(heads) for heads in (1, 2)] == [0, 1]
    with pytest.raises(ValueError, match="divisible by num_heads = 3"):
        bounds.three_keys(3)
