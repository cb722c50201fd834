"""Softmax in NumPy: values, limits and gradient."""

import math

import numpy as np
import pytest

from mha_lib.scratch import softmax, softmax_backward

from .oracle import assert_close, numerical_gradient


def test_known_rows():
    scores = np.array([[0, 0], [math.log(3), 0]])
    assert_close(softmax(scores), [[0.5, 0.5], [0.75, 0.25]])
    assert_close(softmax(scores, axis=0), [[0.25, 0.5], [0.75, 0.5]])


@pytest.mark.parametrize("axis", (0, 1, 2, -1))
def test_sums_to_one_along_its_axis_only(axis):
    weights = softmax(np.random.default_rng(0).normal(size=(3, 4, 5)), axis=axis)
    assert_close(weights.sum(axis), np.ones(weights.sum(axis).shape))
    others = {0, 1, 2} - {axis % 3}
    assert all(abs(weights.sum(other) - 1).min() > 1e-3 for other in others)


def test_a_constant_on_a_row_changes_nothing():
    scores = np.array([[0.3, -1.0, 2.0]])
    assert_close(softmax(scores + 700), softmax(scores))


@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64))
@pytest.mark.parametrize("largest", (1000.0, 65504.0))
def test_large_scores_do_not_overflow(dtype, largest):
    scores = np.array([[0, 0], [largest, largest], [-largest, -largest], [largest, 0]], dtype)
    weights = softmax(scores)
    assert weights.dtype == dtype
    assert weights.tolist() == [[0.5, 0.5]] * 3 + [[1.0, 0.0]]


def test_minus_infinity_gets_nothing_and_alone_gives_zeros():
    weights = softmax(np.array([[0, -np.inf, 0], [-np.inf] * 3]))
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_no_scores_give_no_weights():
    assert softmax(np.zeros((2, 0))).shape == (2, 0)


def test_temperature_flattens():
    tops = [softmax(np.array([4.0, 0.0]) / t)[0] for t in (1, 2, 4)]
    assert_close(tops, [1 / (1 + math.exp(-4 / t)) for t in (1, 2, 4)])
    assert tops == sorted(tops, reverse=True)


@pytest.mark.parametrize("axis", (0, 1))
def test_gradient_equals_central_differences(axis):
    rng = np.random.default_rng(0)
    scores, grad = rng.normal(size=(2, 3, 5))
    want = numerical_gradient(lambda: (grad * softmax(scores, axis)).sum(), scores)
    got = softmax_backward(grad, softmax(scores, axis), axis)
    assert_close(got, want, 1e-9)
    assert_close(got.sum(axis), np.zeros(got.sum(axis).shape))  # no weight is made or lost


def test_gradient_of_two_equal_scores():
    assert softmax_backward(np.array([1.0, 0.0]), np.array([0.5, 0.5])).tolist() == [0.25, -0.25]


def test_neither_function_modifies_its_input():
    scores, grad = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    weights = softmax(scores)
    before = weights.copy()
    softmax_backward(grad, weights)
    np.testing.assert_array_equal(scores, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(weights, before)
    assert (grad == 1).all()
