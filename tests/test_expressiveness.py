"""Tasks, layers written down by hand, and what one softmax makes of two patterns."""

from itertools import combinations

import numpy as np
import pytest

from mha_lib import scratch
from mha_lib.expressiveness import constructions, product, selection, tasks
from mha_lib.expressiveness.bounds import eigenvalues

TASKS = {
    "bits": tasks.bits(),
    "three bits": tasks.bits(3, width=6),
    "bits, seen": tasks.bits(see_values=True),
    "staircase": tasks.staircase(relations=3, features=2),
    "both contents": tasks.both_contents(),
    "half contents": tasks.half_contents(),
    "bits beside positions": tasks.bits_beside_positions(),
    "three keys": tasks.three_keys(),
    "subsets": tasks.subsets(4, 4, sizes=(1, 2, 3)),
    "neighbours": tasks.neighbours(n=5, relations=3, features=2),
}
BLIND = [name for name, task in TASKS.items() if isinstance(task, tasks.Blind)]


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


def test_trivial_is_the_variance_of_the_target_and_no_constant_does_better(task):
    assert task.trivial == pytest.approx(eigenvalues(task).sum())
    listed = task.listed()
    constants = np.random.default_rng(0).normal(size=(50, *listed.target.shape[1:]))
    assert all(listed.loss(c) >= task.trivial - 1e-12 for c in constants)
    assert listed.loss(listed.target.mean(axis=0)) == pytest.approx(task.trivial)


@pytest.mark.parametrize("name", BLIND)
def test_listed_values_have_mean_0_and_variance_1(name):
    value = TASKS[name].listed().value.reshape(len(TASKS[name].listed().value), -1)
    np.testing.assert_allclose(value.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(value.T @ value / len(value), np.eye(value.shape[1]), atol=1e-12)


@pytest.mark.parametrize("name", BLIND)
def test_the_loss_of_a_map_is_its_mean_over_random_values(name):
    task, rng = TASKS[name], np.random.default_rng(1)
    wrong = rng.normal(size=task.target.shape)[0] - task.target[0]  # (n_q, n_kv, d_value, d_out)
    values = rng.normal(size=(40_000, *wrong.shape[1:3]))
    sampled = (np.einsum("njf,ijfo->nio", values, wrong) ** 2).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(task.errors(wrong + task.target), sampled, rtol=0.05)


def test_what_each_task_asks():
    assert tasks.bits(3).target[2, 0].tolist() == [1, -1, 1]  # bits + - +
    halves = tasks.half_contents()
    np.testing.assert_array_equal(halves.target[:, 0, 0], halves.value[:, 0, 0])
    np.testing.assert_array_equal(halves.target[:, 0, 1], halves.value[:, 1, 1])
    both = tasks.both_contents()
    np.testing.assert_array_equal(both.target[:, 0], both.value[:, :, :2].reshape(16, 4))
    beside = tasks.bits_beside_positions()
    np.testing.assert_array_equal(beside.target[:, 0], beside.value[:, :, 0])
    value = np.random.default_rng(0).normal(size=(5, 2))
    answer = np.einsum("jf,ijfo->io", value, TASKS["neighbours"].target[0])
    np.testing.assert_allclose(answer[3], np.concatenate([value[3], value[4], value[0]]))


def test_a_blind_task_shows_its_scores_no_value():
    assert all(len(TASKS[name].query) == len(TASKS[name].key) == 1 for name in BLIND)
    assert np.ptp(tasks.bits().key, axis=0).max() == 0


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="width must be at least k = 3, got 2"):
        tasks.bits(3, width=2)
    with pytest.raises(ValueError, match="width must be at least n - 1 = 4"):
        tasks.subsets(5, 3, sizes=(1,))


@pytest.mark.parametrize("beta", (0, 0.5, 2, 5))
@pytest.mark.parametrize("k, num_heads", ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 3)))
def test_copy_bits_reaches_its_error(k, num_heads, beta):
    loss = constructions.copy_bits(beta, k, num_heads).loss(tasks.bits(k))
    assert loss == pytest.approx(constructions.copy_bits_error(beta, k, num_heads), abs=1e-13)


@pytest.mark.parametrize("beta", (1, 2, 4))
def test_two_heads_on_two_bits_have_the_printed_error(beta):
    layer, stray = constructions.copy_bits(beta), 1 / (1 + np.exp(2 * beta))
    assert layer.loss(tasks.bits()) == pytest.approx(4 * stray**2)
    assert layer.worst(tasks.bits()) == pytest.approx(constructions.copy_bits_worst(beta))


@pytest.mark.parametrize("beta", (0, 1, 6))
@pytest.mark.parametrize("n, width, sizes", ((3, 2, (1, 2)), (4, 4, (1, 2, 3)), (4, 5, (2,))))
def test_one_full_head_selects_subsets_at_its_error(n, width, sizes, beta):
    task = tasks.subsets(n, width, sizes)
    errors = constructions.select(width, beta).errors(task)
    of_size = [m for m in sizes for _ in combinations(range(n), m)]
    expected = [constructions.select_error(n, width, beta, m) for m in of_size]
    np.testing.assert_allclose(errors, expected, atol=1e-13)


@pytest.mark.parametrize("beta, gamma", ((2, 0.5), (6, 1), (8, 1), (10, 1)))
def test_one_head_smuggles_a_bit_through_the_positions(beta, gamma):
    loss = constructions.smuggle(beta, gamma).loss(tasks.half_contents())
    assert loss == pytest.approx(constructions.smuggle_error(beta, gamma), rel=1e-6)


def test_two_thin_heads_come_as_close_to_1_as_you_like():
    errors = []
    for delta in (1e-1, 1e-2, 1e-3, 1e-4):
        errors.append(constructions.three_in_a_row_error(delta))
        loss = constructions.three_in_a_row(delta).loss(tasks.three_keys())
        assert loss == pytest.approx(errors[-1], rel=1e-9)
    np.testing.assert_allclose(errors, (1.1202, 1.0231, 1.0035, 1.0005), atol=5e-5)


@pytest.mark.parametrize("n", (3, 8, 64))
def test_any_permutation_with_d_k_2(n):
    rng, norms = np.random.default_rng(n), constructions.circle_norms(n, weight=0.95)
    wanted, key = rng.permutation(n), constructions.circle(n)
    _, weights = scratch.scaled_dot_product_attention(norms * key[wanted], key, key)
    np.testing.assert_allclose(weights[range(n), wanted], 0.95, atol=1e-9)
    assert constructions.circle_weight(n, norms) == pytest.approx(0.95)


@pytest.mark.parametrize("n, m", ((5, 1), (8, 2), (8, 3)))
def test_the_moment_curve_selects_every_small_subset_evenly(n, m):
    key = constructions.moment_curve(n, m)
    for size in range(1, m + 1):
        for subset in combinations(range(n), size):
            query = constructions.moment_query(subset, n, m)
            assert constructions.margin(key, query, subset) > 0
            sharp = 1e5 * query[None]
            _, weights = scratch.scaled_dot_product_attention(sharp, key, key)
            np.testing.assert_allclose(weights[0, list(subset)], 1 / size, atol=1e-6)
    with pytest.raises(ValueError, match=f"subset must have 1 to m = {m} keys, got {m + 1}"):
        constructions.moment_query(range(m + 1), n, m)


def test_the_margin_is_that_of_unit_vectors():
    key, query = np.array([[3.0, 0], [0, 3], [1, 1]]), np.array([2.0, 0])
    assert constructions.margin(key, query, [0]) == pytest.approx(2 / 3)
    assert constructions.margin(key, query, [1]) == pytest.approx(-1)


def test_the_wide_heads_weights_are_a_product():
    rng, num_heads, n_q, n_kv, d_k = np.random.default_rng(0), 3, 4, 5, 2
    query, key = (rng.normal(size=(num_heads, n, d_k)) for n in (n_q, n_kv))
    _, weights = scratch.scaled_dot_product_attention(query, key, key)
    wide = [scratch.merge_heads(x) for x in (query, key)]
    _, expected = scratch.scaled_dot_product_attention(*wide, wide[1])
    np.testing.assert_allclose(product.wide_weights(weights), expected, atol=1e-14)


@pytest.mark.parametrize("beta, wide", ((1, (0.446, 0.446, 0.108)), (4, (0.499, 0.499, 0.002))))
def test_two_mirrored_heads_leave_the_wide_one_torn(beta, wide):
    weights = product.wide_weights(product.mirrored_heads(beta))
    np.testing.assert_allclose(weights, wide, atol=5e-4)


@pytest.mark.parametrize("a", (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1))
def test_the_valley_is_flat_and_its_read_out_the_best(a):
    loss, _ = product.compromise(a)
    assert loss == pytest.approx(0.5)
    bits = tasks.signs(2)
    pooled = bits @ [[a], [1 - a]]
    best = np.linalg.lstsq(pooled, bits)[0]
    np.testing.assert_allclose(product.best_read_out(a), best[0])
    naive, _ = product.compromise(a, read_out=[1, 1])
    assert naive == pytest.approx(a**2 + (1 - a) ** 2)


def test_only_the_worst_case_moves_along_the_valley():
    worst = [product.compromise(a)[1] for a in (0, 0.1, 0.25, 0.5)]
    np.testing.assert_allclose(worst, (1, 1.104, 1.265, 1.414), atol=5e-4)


def test_two_relus_and_the_residual_path_read_both_bits():
    bits = tasks.signs(2)
    np.testing.assert_allclose(product.decoded(bits @ [2 / 3, 1 / 3]), bits, atol=1e-12)


@pytest.mark.parametrize("d_k", (1, 2, 4, 8, 16, 64))
def test_the_chance_to_pick_right_is_exact(d_k):
    expected = selection.chance(d_k, n=50)
    deviation = np.sqrt(expected * (1 - expected) / 10_000)
    drawn = selection.picks(d_k, n=50, draws=200)
    assert abs(drawn.right - expected) < 4 * deviation + 1e-4


@pytest.mark.parametrize("n", (2, 10, 128))
def test_the_chance_in_one_dimension_has_a_closed_form(n):
    assert selection.chance(1, n) == pytest.approx(2 / n * (1 - 0.5**n), abs=1e-6)


def test_noise_in_the_query_costs_width():
    assert selection.picks(16, cosine=0.7).right < 0.65 < 0.9 < selection.picks(16).right
    assert selection.picks(64, cosine=0.7).right > 0.99


@pytest.mark.parametrize("d_k", (2, 8, 64))
def test_width_changes_the_signal_and_not_the_variance(d_k):
    scores = selection.scores(d_k)
    assert scores.variance == pytest.approx(1, abs=0.02)
    assert scores.kurtosis == pytest.approx(3 + 6 / d_k, rel=0.05)
    assert scores.signal_to_noise == pytest.approx(np.sqrt(d_k), rel=0.02)


@pytest.mark.parametrize("d_k", (4, 8, 16))
def test_with_unit_root_mean_square_no_weight_is_larger(d_k):
    query = np.ones((1, d_k))
    n = selection.most_keys(d_k)
    key = np.concatenate([query, -np.ones((n - 1, d_k))])  # the others as far off as they can be
    _, weights = scratch.scaled_dot_product_attention(query, key, key)
    assert weights[0, 0] == pytest.approx(selection.largest_weight(n, d_k))
    assert weights[0, 0] >= 0.9 > selection.largest_weight(n + 1, d_k)


@pytest.mark.parametrize("n", (3, 10, 100))
def test_keys_on_a_circle_respect_the_packing_bound(n):
    assert selection.packing(2, radius=np.sqrt(constructions.circle_norms(n))) >= n
