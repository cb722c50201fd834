"""Exercises of the opening chapter: averages, axes and shapes."""

import numpy as np

from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.judge import Exercise


def weighted_average(weights, values):
    """Average the rows of values (n, d), each counted by its weight (n,)."""
    return (weights / weights.sum()) @ values


def _weighted_average_cases():
    rng = np.random.default_rng(1)
    return [
        (np.array([1.0, 1.0]), np.array([[0.0], [4.0]])),
        (np.array([1.0, 3.0]), np.array([[0.0], [4.0]])),
        (np.array([0.5, 0.25, 0.25]), np.array([[4.0, 0.0], [0.0, 8.0], [4.0, 4.0]])),
        (np.array([1.0, 3.0, 4.0]), draw(rng, 3, 3)),
        (rng.integers(1, 9, size=5) / 2, draw(rng, 5, 4)),
    ]


def _weighted_average_random(rng):
    n, d = unequal(rng, 2)
    return rng.uniform(0.5, 4, size=n), rng.normal(size=(n, d))


WEIGHTED_AVERAGE = Exercise(
    teaches="attention's output is an average of rows, each counted by its weight",
    task=(
        "Average the rows of values, shape (n, d), each row counted by its weight in weights, "
        "shape (n,). The weights are positive but need not sum to 1. Return shape (d,)."
    ),
    difficulty=1,
    minutes=5,
    cases=_weighted_average_cases,
    random_case=_weighted_average_random,
    solution=weighted_average,
    faults=(
        (
            "You added up the weighted rows and stopped: that is an average only if the weights "
            "sum to 1. Divide by the sum of the weights.",
            lambda weights, values: weights @ values,
        ),
        (
            "You divided by n, the number of rows; divide by the sum of the weights.",
            lambda weights, values: weights @ values / len(weights),
        ),
        (
            "Your answer is the plain mean of the rows: the weights do not count in it. Multiply "
            "each row by its weight, add up, and divide by the sum of the weights.",
            lambda weights, values: values.mean(axis=0),
        ),
        (
            "You divided the weights by their largest; divide them by their sum.",
            lambda weights, values: weights / weights.max() @ values,
        ),
        (
            "You put the weights through a softmax. They are positive already, so dividing them by "
            "their sum is all that is asked for.",
            lambda weights, values: np.exp(weights) / np.exp(weights).sum() @ values,
        ),
        (
            "You added up along the columns, so each row gave one number; add up along the rows "
            "(axis 0), so that each of the d columns gives one.",
            lambda weights, values: (weights[:, None] * values).sum(axis=1) / weights.sum(),
        ),
        (
            "weights * values lines the weights up with the columns of values; each weight belongs "
            "to a row. Write weights[:, None] * values, or weights @ values.",
            lambda weights, values: (weights * values).sum(axis=0) / weights.sum(),
        ),
    ),
    hints=(
        "With weights that sum to 1 it is one matrix product. Make them sum to 1 first.",
        "`weights / weights.sum()` has shape (n,) and sums to 1. A vector (n,) times a matrix "
        "(n, d), `a @ values`, adds up the rows, each times its number in `a`.",
    ),
)


def transpose_last_two(x):
    """Swap the last two axes: (..., a, b) becomes (..., b, a)."""
    return x.swapaxes(-1, -2)


def _transpose_cases():
    rng = np.random.default_rng(2)
    return [
        (np.arange(6.0).reshape(2, 3),),
        (np.arange(12.0).reshape(2, 2, 3),),
        (np.arange(12.0).reshape(1, 2, 2, 3),),
        (draw(rng, 2, 3, 4),),
    ]


def _transpose_random(rng):
    return (rng.normal(size=unequal(rng, int(rng.integers(2, 5)))),)


TRANSPOSE_LAST_TWO = Exercise(
    teaches="axes counted from the end leave batch axes alone",
    task=(
        "Swap the last two axes of x and leave the others where they are: shape (..., a, b) "
        "becomes (..., b, a), for any number of leading axes."
    ),
    difficulty=1,
    minutes=5,
    cases=_transpose_cases,
    random_case=_transpose_random,
    solution=transpose_last_two,
    faults=(
        (
            "You used .T, which reverses all the axes: right for a matrix, wrong as soon as there "
            "is a batch axis in front. Swap only the last two.",
            lambda x: x.T,
        ),
        (
            "You reshaped. That gives the right shape, but reads the numbers in their old order, "
            "so rows do not become columns. Move the axes instead.",
            lambda x: x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2]),
        ),
        (
            "You swapped the first two axes: in a matrix these are the last two as well, with a "
            "batch axis in front they are not. Count from the end: -1 and -2.",
            lambda x: x.swapaxes(0, 1),
        ),
        (
            "Your function moves the axes of an array with exactly three of them. Count from the "
            "end, -1 and -2, and it works for any number.",
            lambda x: x.transpose(0, 2, 1),
        ),
        (
            "You swapped axes 1 and 2, which are the last two only if there are three. Count from "
            "the end: -1 and -2.",
            lambda x: x.swapaxes(1, 2),
        ),
        (
            "You swapped the first axis with the last; swap the last two, -1 and -2.",
            lambda x: x.swapaxes(0, -1),
        ),
        (
            "NumPy's transpose wants all the axes, so with two of them yours works for a matrix "
            "only. To swap two and leave the rest, write x.swapaxes(-1, -2).",
            lambda x: x.transpose(-1, -2),
        ),
    ),
    hints=(
        "NumPy can swap two axes by number, and negative numbers count from the end.",
        "`x.swapaxes(i, j)` swaps axes i and j. The last axis is -1, the one before it -2.",
    ),
)


def attention_shapes(n_q, n_kv, d_model, num_heads):
    """The shapes of one head's query, key, value and weights, and of the layer's output."""
    d_k = d_model // num_heads
    return {
        "query": (n_q, d_k),
        "key": (n_kv, d_k),
        "value": (n_kv, d_k),
        "weights": (n_q, n_kv),
        "output": (n_q, d_model),
    }


def _attention_shapes_cases():
    return [(2, 3, 8, 2), (3, 5, 8, 2), (7, 2, 30, 5), (4, 6, 9, 1)]


def _attention_shapes_random(rng):
    n_q, n_kv, d_k, num_heads = unequal(rng, 4)
    return n_q, n_kv, d_k * num_heads, num_heads


def _shapes(change):
    """A fault that has some of the shapes wrong: those that ``change`` returns."""
    return lambda *sizes: attention_shapes(*sizes) | change(*sizes)


ATTENTION_SHAPES = Exercise(
    teaches="every array of a layer has a shape that can be said in advance",
    task=(
        'Return a dict of shapes, each a tuple, with the keys "query", "key", "value", "weights" '
        '(these of ONE head) and "output" (of the whole layer), for n_q queries, n_kv keys and '
        "values, and a model of width d_model whose num_heads heads share its features equally: "
        "d_k = d_v = d_model / num_heads."
    ),
    difficulty=2,
    minutes=8,
    cases=_attention_shapes_cases,
    random_case=_attention_shapes_random,
    solution=attention_shapes,
    faults=(
        (
            "You gave keys and values n_q rows. They come from the tokens that are looked at, and "
            "there are n_kv of those.",
            _shapes(
                lambda n_q, n_kv, d_model, h: {
                    "key": (n_q, d_model // h),
                    "value": (n_q, d_model // h),
                }
            ),
        ),
        (
            "You gave keys, values and the weights' columns n_q entries. The tokens that are "
            "looked at number n_kv.",
            lambda n_q, n_kv, d_model, h: attention_shapes(n_q, n_q, d_model, h),
        ),
        (
            "You gave a head all d_model features. The heads share them: one head has "
            "d_k = d_model / num_heads.",
            _shapes(
                lambda n_q, n_kv, d_model, h: {
                    "query": (n_q, d_model),
                    "key": (n_kv, d_model),
                    "value": (n_kv, d_model),
                }
            ),
        ),
        (
            "Your weights are transposed: rows are queries and columns are keys, (n_q, n_kv).",
            _shapes(lambda n_q, n_kv, d_model, h: {"weights": (n_kv, n_q)}),
        ),
        (
            "Your weights have a column for each query. Each query weighs the n_kv keys: rows are "
            "queries and columns are keys, (n_q, n_kv).",
            _shapes(lambda n_q, n_kv, d_model, h: {"weights": (n_q, n_q)}),
        ),
        (
            "You gave the weights of all heads together, with num_heads in front. One head's are "
            "asked for, without that axis: (n_q, n_kv).",
            _shapes(lambda n_q, n_kv, d_model, h: {"weights": (h, n_q, n_kv)}),
        ),
        (
            "Your output is as wide as one head. The layer puts its heads side by side and "
            "multiplies by W^O, so its output has d_model features.",
            _shapes(lambda n_q, n_kv, d_model, h: {"output": (n_q, d_model // h)}),
        ),
        (
            "Your output has a row for each key. It has one for each query: (n_q, d_model).",
            _shapes(lambda n_q, n_kv, d_model, h: {"output": (n_kv, d_model)}),
        ),
        (
            "You gave a head num_heads features; it has d_k = d_model / num_heads of them.",
            _shapes(
                lambda n_q, n_kv, d_model, h: {
                    "query": (n_q, h),
                    "key": (n_kv, h),
                    "value": (n_kv, h),
                }
            ),
        ),
        (
            "You divided with /, which gives 4.0 and not 4. A size is a whole number: use //.",
            _shapes(
                lambda n_q, n_kv, d_model, h: {
                    "query": (n_q, d_model / h),
                    "key": (n_kv, d_model / h),
                    "value": (n_kv, d_model / h),
                }
            ),
        ),
        (
            "You gave the shapes of all heads together, with num_heads in front. One head's are "
            "asked for, without that axis.",
            _shapes(
                lambda n_q, n_kv, d_model, h: {
                    "query": (h, n_q, d_model // h),
                    "key": (h, n_kv, d_model // h),
                    "value": (h, n_kv, d_model // h),
                    "weights": (h, n_q, n_kv),
                }
            ),
        ),
    ),
    hints=(
        "Tokens are rows. Ask of each array: one row for each query, or one for each key?",
        "Queries have n_q rows, keys and values n_kv, all of width `d_model // num_heads`. A "
        "weight belongs to one query (row) and one key (column). The output goes back to where "
        "the queries came from, so it has their rows and the model's width.",
    ),
)

EXERCISES = (WEIGHTED_AVERAGE, TRANSPOSE_LAST_TWO, ATTENTION_SHAPES)
