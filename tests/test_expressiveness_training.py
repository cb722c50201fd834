"""Training: right gradients, the same numbers at every run, and never a loss below its bound."""

import numpy as np
import pytest

from mha_lib.differences import central_differences
from mha_lib.expressiveness import bounds, study, tasks
from mha_lib.expressiveness.training import Weights, errors_and_gradients, initial, train

from .test_expressiveness import TASKS


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


@pytest.mark.parametrize("shared_kv", (False, True))
def test_a_trained_layer_is_multi_head_attention(task, shared_kv):
    for num_heads in (1, 2, 3):
        if task.width % num_heads == 0:
            weights = initial(task, num_heads, seeds=2, shared_kv=shared_kv)
            errors, _ = errors_and_gradients(task, weights)
            for seed in (0, 1):
                np.testing.assert_allclose(
                    weights.layer(seed).errors(task), errors[seed], atol=1e-12
                )


@pytest.mark.parametrize("shared_kv", (False, True))
def test_gradients_agree_with_differences(task, shared_kv):
    num_heads = 2 if task.width % 2 == 0 else 3
    weights = initial(task, num_heads, seeds=2, shared_kv=shared_kv)
    _, gradients = errors_and_gradients(task, weights)
    for name, gradient in gradients._asdict().items():

        def loss(array, name=name):
            return errors_and_gradients(task, weights._replace(**{name: array}))[0].sum()

        expected = central_differences(loss, getattr(weights, name))
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


BOUNDED = (
    (tasks.bits(), 1, None),
    (tasks.bits(), 2, None),
    (tasks.bits(see_values=True), 1, None),
    (tasks.bits(3, width=6), 1, None),
    (tasks.bits(3, width=6), 2, None),
    (tasks.staircase(3, 2), 1, None),
    (tasks.staircase(3, 2), 2, None),
    (tasks.both_contents(), 1, None),
    (tasks.both_contents(), 2, None),
    (tasks.neighbours(6, 4, 2), 1, None),
    (tasks.neighbours(6, 4, 2), 2, None),
    (tasks.three_keys(), 1, 0),
    (tasks.three_keys(), 2, 1),
)


@pytest.mark.parametrize(
    "task, num_heads, bound", BOUNDED, ids=lambda x: getattr(x, "name", str(x))
)
def test_no_trained_layer_is_below_its_bound_and_the_best_comes_near(task, num_heads, bound):
    row = study.trained(task, num_heads, bound, seeds=8, steps=600)
    assert (row.losses >= row.bound - 1e-9).all()
    assert row.losses.min() <= row.bound + 0.03 * row.trivial


@pytest.mark.parametrize("num_heads", (2, 4))
def test_thin_heads_fail_some_subset_by_its_bound(num_heads):
    task = tasks.subsets(4, 4, sizes=(1, 2, 3))
    errors = train(task, num_heads, seeds=6, steps=600).errors
    assert (errors.max(axis=1) >= bounds.worst_subset(task.width // num_heads) - 1e-9).all()
    assert train(task, 1, seeds=6, steps=600).losses.max() < 0.01


@pytest.mark.parametrize("width, steps", ((2, 300), (6, 300), (64, 150)))
def test_one_head_stands_at_1_for_every_seed_and_width(width, steps):
    options = {"seeds": 4, "steps": steps}
    one, two = (train(tasks.bits(2, width), heads, **options).losses for heads in (1, 2))
    np.testing.assert_allclose(one, 1, atol=1e-3)
    np.testing.assert_allclose(two, 0, atol=1e-3)


def test_shared_keys_and_values_still_win_task_a():
    result = train(tasks.bits(), 2, seeds=4, steps=500, shared_kv=True)
    assert result.losses.max() < 1e-3
    assert result.weights.count() == 12 < train(tasks.bits(), 2, seeds=1, steps=1).weights.count()


def test_one_head_finds_the_way_round_where_positions_are_in_the_values():
    halves = train(tasks.half_contents(), 1, seeds=4, steps=1000).losses
    assert halves.max() < 0.02
    assert train(tasks.bits_beside_positions(), 1, seeds=4, steps=1000).losses.min() < 0.02


def test_the_staircase():
    rows = study.staircase(relations=3, features=2, seeds=2, steps=300)
    np.testing.assert_allclose([r.relative.mean() for r in rows], (2 / 3, 1 / 3, 0), atol=1e-3)


def test_the_loss_is_u_shaped_in_the_number_of_heads():
    rows = study.u_shape(n=16, seeds=2, steps=300)
    assert [(r.num_heads, r.d_k) for r in rows] == [(1, 8), (2, 4), (4, 2), (8, 1)]
    one, two, four, eight = (r.relative.mean() for r in rows)
    np.testing.assert_allclose((one, two), (0.75, 0.5), atol=1e-2)
    assert four < 0.2 and eight > 0.5
    absolute, relative = (study.table(rows, relative=r).splitlines()[1] for r in (False, True))
    assert absolute.split()[-1] == "128" and relative.split()[-1] == "1"
    assert relative.split()[-2] == "0.750" and absolute.split()[-2] == "96.000"


def test_the_duel_has_a_zero_on_each_diagonal():
    rows = study.duel(seeds=3, steps=600)
    assert [round(r.losses.mean()) for r in rows] == [1, 0, 0, 1]
    assert [r.bound for r in rows] == pytest.approx([1, 0, 0, 1])
    assert "look up one of 3 keys" in study.table(rows)


def test_a_seed_gives_the_same_layer_in_any_company_and_at_every_run():
    alone, among = (train(tasks.three_keys(), 2, seeds=n, steps=100) for n in (1, 3))
    np.testing.assert_allclose(alone.losses[0], among.losses[0], rtol=1e-9)
    again = train(tasks.three_keys(), 2, seeds=3, steps=100)
    np.testing.assert_array_equal(again.history, among.history)
    assert len(set(among.losses.round(6))) == 3


def test_the_history_runs_from_the_first_weights_to_the_last():
    task = tasks.bits()
    result = train(task, 2, seeds=3, steps=50)
    start, _ = errors_and_gradients(task, initial(task, 2, seeds=3))
    assert result.history.shape == (51, 3)
    np.testing.assert_allclose(result.history[0], start.sum(axis=-1))
    np.testing.assert_array_equal(result.history[-1], result.losses)
    np.testing.assert_allclose(
        result.losses, [result.weights.layer(s).loss(task) for s in range(3)]
    )


def test_only_a_label_shows_a_progress_bar(capsys):
    train(tasks.bits(), 1, seeds=1, steps=3)
    assert capsys.readouterr() == ("", "")
    train(tasks.bits(), 1, seeds=1, steps=3, label="one head")
    assert "one head" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    (
        ({"num_heads": 3}, "d_model must be divisible by num_heads = 3, got 2"),
        ({"num_heads": 1, "seeds": 0}, "seeds must be at least 1"),
        ({"num_heads": 1, "steps": 0}, "steps must be at least 1"),
    ),
)
def test_arguments_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(tasks.bits(), **options)


def test_equal_parameters_for_any_number_of_heads():
    counts = {Weights.count(initial(tasks.neighbours(), heads, seeds=1)) for heads in (1, 2, 4, 8)}
    assert len(counts) == 1
    assert initial(tasks.bits(), 1, seeds=1).count() == 16
