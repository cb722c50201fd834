"""Exercises of the chapter on a single head: softmax, attention, a gradient, additive scores."""

import numpy as np

from mha_lib import scratch
from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.faulty import (
    attention_scaled,
    attention_weighted,
    bare_softmax_over,
    products,
    softmax_over,
)
from mha_lib.exercises.judge import Exercise


def softmax(scores):
    """Positive weights that sum to 1 along the last axis."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _softmax_cases():
    rng = np.random.default_rng(3)
    return [
        (np.zeros(2),),
        (np.log([[1.0, 1.0], [1.0, 3.0]]),),
        (1000 + np.log([[1.0, 3.0]]),),
        (np.array([[0.0, 0.0], [-1000.0, -1000.0]]),),
        (np.array([[0.0, 2000.0], [2000.0, 0.0]]),),
        (draw(rng, 3, 4),),
        (draw(rng, 2, 3, 4),),
    ]


def _softmax_random(rng):
    return (3 * rng.normal(size=unequal(rng, int(rng.integers(1, 5)))),)


def _mean_for_maximum(scores):
    exponentials = np.exp(scores - scores.mean(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _maximum_loses_its_axis(scores):
    exponentials = np.exp(scores - scores.max(axis=-1))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _bare_sum_loses_its_axis(scores):
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=-1)


def _sum_loses_its_axis(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1)


def _both_lose_their_axis(scores):
    exponentials = np.exp(scores - scores.max(axis=-1))
    return exponentials / exponentials.sum(axis=-1)


OVER_QUERIES = (
    "Your columns sum to 1, your rows do not: the softmax ran over the queries (axis -2). It "
    "belongs on the last axis, the keys."
)
NO_MAXIMUM = (
    "exp overflows at large scores, and at very negative ones all exponentials are 0: you get NaN. "
    "Subtract each row's maximum first; that changes no weight."
)
ALSO_NO_MAXIMUM = "Then subtract each row's maximum before exp, or large scores will give NaN."

SOFTMAX = Exercise(
    teaches="weights are positive and sum to 1 along the keys, whatever the scores",
    task=(
        "Turn scores, with any number of axes, into weights of the same shape: positive, and "
        "summing to 1 along the last axis. Scores of 1000 or -1000 must not hurt."
    ),
    difficulty=1,
    minutes=8,
    cases=_softmax_cases,
    random_case=_softmax_random,
    solution=softmax,
    faults=(
        (OVER_QUERIES, softmax_over(-2, top_axis=-2)),
        (
            "Your softmax runs over axis 0. In a matrix these are the queries, so the columns sum "
            "to 1 and not the rows. It belongs on the last axis, -1.",
            softmax_over(0, top_axis=0),
        ),
        (
            "Your softmax runs over axis 1, which is the last axis of a matrix and of nothing "
            "else. Write -1: the last axis of any array.",
            softmax_over(1, top_axis=1),
        ),
        (
            "You summed over axis 1, which is the last axis of a matrix and of nothing else. Write "
            "-1, as in the maximum.",
            softmax_over(1),
        ),
        (
            "You subtracted each row's maximum, and then summed over axis 0. Both belong on the "
            "last axis, -1, so that each row sums to 1.",
            softmax_over(0),
        ),
        (
            "Your softmax runs over axis 1; write -1, the last axis of any array. "
            + ALSO_NO_MAXIMUM,
            bare_softmax_over(1),
        ),
        (
            "You subtracted each row's maximum, and then summed over the queries (axis -2). Both "
            "belong on the last axis, the keys, so that each row sums to 1.",
            softmax_over(-2),
        ),
        (
            "All your numbers together sum to 1. Each row is a softmax of its own: sum over the "
            "last axis only.",
            softmax_over(None),
        ),
        (
            "All your numbers together sum to 1, because maximum and sum ran over the whole array. "
            "Each row is a softmax of its own: take both over the last axis.",
            softmax_over(None, top_axis=None),
        ),
        (NO_MAXIMUM, bare_softmax_over(-1)),
        (
            "You subtracted something other than each row's maximum. Whatever lies far above it "
            "still overflows.",
            _mean_for_maximum,
        ),
        (
            "You subtracted the maximum of the whole array. A row far below it turns into zeros, "
            "and 0 / 0 is NaN. Subtract each row's own maximum.",
            softmax_over(-1, top_axis=None),
        ),
        (
            "You did not divide: your numbers are positive, but a row does not sum to 1. Divide "
            "each row by its sum.",
            lambda scores: np.exp(scores - scores.max(axis=-1, keepdims=True)),
        ),
        (
            "Your numbers are the exponentials alone. Divide each row by its sum. "
            + ALSO_NO_MAXIMUM,
            np.exp,
        ),
        (
            "Your softmax runs over axis 0; it belongs on the last axis, -1. " + ALSO_NO_MAXIMUM,
            bare_softmax_over(0),
        ),
        (
            "Your softmax runs over the queries (axis -2), so the columns sum to 1; it belongs on "
            "the last axis, the keys. " + ALSO_NO_MAXIMUM,
            bare_softmax_over(-2),
        ),
        (
            "All your numbers together sum to 1; each row should. Sum over the last axis only. "
            + ALSO_NO_MAXIMUM,
            bare_softmax_over(None),
        ),
        (
            "The sum lost its axis, so it was lined up with the columns instead of the rows. "
            "Write sum(axis=-1, keepdims=True).",
            _sum_loses_its_axis,
        ),
        (
            "The maximum lost its axis, so it was lined up with the columns instead of the rows. "
            "Write max(axis=-1, keepdims=True).",
            _maximum_loses_its_axis,
        ),
        (
            "The sum lost its axis, so it was lined up with the columns instead of the rows. "
            "Write sum(axis=-1, keepdims=True). " + ALSO_NO_MAXIMUM,
            _bare_sum_loses_its_axis,
        ),
        (
            "Maximum and sum lost their axis, so they were lined up with the columns instead of "
            "the rows. Write keepdims=True in both.",
            _both_lose_their_axis,
        ),
        (
            "You divided the scores by their sum without exp in between. Take exp first: it makes "
            "every score positive, and larger ones count more.",
            lambda scores: scores / scores.sum(axis=-1, keepdims=True),
        ),
        (
            "You clipped large scores before exp. Scores beyond the limit then all count the same, "
            "however they differ. Subtract each row's maximum instead: that changes no weight.",
            lambda scores: bare_softmax_over(-1)(np.clip(scores, -500, 500)),
        ),
    ),
    hints=(
        "exp makes every score positive; dividing by a sum makes a row sum to 1. Which axis does "
        "the sum run over, and what happens to exp at 1000?",
        "Subtract `scores.max(axis=-1, keepdims=True)` before exp. `keepdims=True` keeps the axis "
        "with size 1, so that each row meets its own number. Divide by the sum the same way.",
    ),
)


def attention(query, key, value):
    """Mix the values by softmax(Q K^T / sqrt(d_k)), the output alone."""
    d_k = query.shape[-1]
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(d_k)  # (..., n_q, n_kv)
    weights = scratch.softmax(scores)  # each row sums to 1
    return weights @ value  # (..., n_q, d_v)


def _attention_cases():
    rng = np.random.default_rng(4)
    log_9 = np.log(9.0)  # halved by the scale at d_k = 4, this is log 3: weights 3/4 and 1/4
    pair_of_queries = np.array([[[np.sqrt(2) * np.log(3), 0]]] * 2)  # the same weights at d_k = 2
    pair_of_keys = np.array([[[1.0, 0], [0, 0]], [[0, 0], [1, 0]]])
    return [
        (np.zeros((1, 1)), np.zeros((2, 1)), np.array([[1.0], [3.0]])),
        (np.array([[log_9, 0, 0, 0]]), np.eye(2, 4), np.array([[4.0], [0.0]])),
        (np.array([[1000.0]]), np.ones((2, 1)), np.array([[1.0], [3.0]])),
        (pair_of_queries, pair_of_keys, np.array([[[0.0], [4.0]]] * 2)),
        (draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2)),
        (draw(rng, 2, 3, 4), draw(rng, 2, 5, 4), draw(rng, 2, 5, 6)),
    ]


def _attention_random(rng):
    batch, n_q, n_kv, d_k, d_v = unequal(rng, 5)
    return tuple(rng.normal(size=(batch, *s)) for s in ((n_q, d_k), (n_kv, d_k), (n_kv, d_v)))


ATTENTION = Exercise(
    teaches="one head of attention: scores, scale, softmax, mix",
    task=(
        "Compute softmax(Q K^T / sqrt(d_k)) V. query is (..., n_q, d_k), key (..., n_kv, d_k) and "
        "value (..., n_kv, d_v), leading axes are batch axes. Return the output alone, "
        "(..., n_q, d_v). Your own softmax will do, or scratch.softmax."
    ),
    difficulty=2,
    minutes=10,
    cases=_attention_cases,
    random_case=_attention_random,
    solution=attention,
    faults=(
        (
            "You left out the scale: divide the scores by the square root of d_k before the "
            "softmax.",
            attention_scaled(lambda q, k, v: 1),
        ),
        (
            "You divided the scores by d_k; divide by its square root.",
            attention_scaled(lambda q, k, v: q.shape[-1]),
        ),
        (
            "You multiplied the scores by the square root of d_k; divide by it.",
            attention_scaled(lambda q, k, v: q.shape[-1] ** -0.5),
        ),
        (
            "You divided by the square root of n_kv, the number of keys. It is d_k that counts, "
            "the width of a query and a key: their last axis.",
            attention_scaled(lambda q, k, v: np.sqrt(k.shape[-2])),
        ),
        (
            "You divided by the square root of len(key), which is not d_k. d_k is the width of a "
            "query and a key: their last axis.",
            attention_scaled(lambda q, k, v: np.sqrt(len(k))),
        ),
        (
            "You divided by the square root of n_q, the number of queries. It is d_k that counts, "
            "the width of a query and a key: their last axis.",
            attention_scaled(lambda q, k, v: np.sqrt(q.shape[-2])),
        ),
        (
            "You divided by the square root of len(query), which is not d_k. d_k is the width of "
            "a query and a key: their last axis.",
            attention_scaled(lambda q, k, v: np.sqrt(len(q))),
        ),
        (
            "You took d_k from axis 1. With a batch axis in front, that is the number of queries: "
            "take the last axis, shape[-1].",
            attention_scaled(lambda q, k, v: np.sqrt(q.shape[1])),
        ),
        (
            "You divided by the square root of d_v, the width of a value. The scores are sums over "
            "d_k products, so it is d_k that counts.",
            attention_scaled(lambda q, k, v: np.sqrt(v.shape[-1])),
        ),
        (
            "Your softmax ran over the queries (axis -2), so the weights of a query do not sum to "
            "1. It belongs on the last axis, the keys.",
            attention_weighted(softmax_over(-2, top_axis=-2)),
        ),
        (
            "Your softmax ran over axis 0. It belongs on the last axis, the keys, so that the "
            "weights of each query sum to 1.",
            attention_weighted(softmax_over(0, top_axis=0)),
        ),
        (
            "Your softmax ran over all scores at once. Each query has weights of its own: take it "
            "over the last axis, the keys.",
            attention_weighted(softmax_over(None, top_axis=None)),
        ),
        (
            "Your weights are right, but you mixed the keys with them. Keys say where to look; "
            "what is mixed are the values.",
            lambda q, k, v: softmax(products(q, k) / np.sqrt(q.shape[-1])) @ k,
        ),
        (
            "You mixed the values by the scores themselves. Put them through a softmax first, so "
            "that they are positive and sum to 1 for each query.",
            attention_weighted(lambda scores: scores),
        ),
        (
            "You took the softmax first and divided by the square root of d_k after it, so the "
            "weights of a query do not sum to 1. Divide the scores, then take the softmax.",
            lambda q, k, v: softmax(products(q, k)) / np.sqrt(q.shape[-1]) @ v,
        ),
        (
            "Your softmax does not subtract the row's maximum: exp overflows at large scores, and "
            "the output is NaN.",
            attention_weighted(bare_softmax_over(-1)),
        ),
        (
            "key.T reverses all the axes: right for a matrix, wrong with a batch axis in front. "
            "Swap the last two only, key.swapaxes(-1, -2).",
            lambda q, k, v: softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v,
        ),
        (
            "You left out the scale: divide the scores by the square root of d_k. And key.T is "
            "wrong with a batch axis in front: swap the last two axes only.",
            lambda q, k, v: softmax(q @ k.T) @ v,
        ),
        (
            "You returned the weights; the output is asked for, and that is weights @ value.",
            lambda q, k, v: softmax(products(q, k) / np.sqrt(q.shape[-1])),
        ),
        (
            "You put the weights behind the values. A row of weights belongs to a query: "
            "weights @ value.",
            lambda q, k, v: v @ softmax(products(q, k) / np.sqrt(q.shape[-1])),
        ),
        (
            "You multiplied the scores by value and took the softmax of the product. The softmax "
            "makes weights out of the scores, so it comes first; then weights @ value.",
            lambda q, k, v: softmax(products(q, k) / np.sqrt(q.shape[-1]) @ v),
        ),
    ),
    hints=(
        "Three steps: a score for every pair of query and key, a softmax over the keys, a mix of "
        "the values. Write the shape beside each line.",
        "`query @ key.swapaxes(-1, -2)` is (..., n_q, n_kv). Divide it by `np.sqrt` of the width "
        "of a query, `query.shape[-1]`, and take the softmax over the last axis, for instance with "
        "`scratch.softmax`: these are the weights. Then `weights @ value`.",
    ),
)


def softmax_backward(grad_weights, weights):
    """Gradient of the scores, from the gradient g of the weights a: a * (g - sum(a * g))."""
    mean = (weights * grad_weights).sum(axis=-1, keepdims=True)
    return weights * (grad_weights - mean)


def _softmax_backward_cases():
    rng = np.random.default_rng(5)
    return [
        (np.array([1.0, 0.0]), np.array([0.5, 0.5])),
        (np.array([[4.0, 0.0], [0.0, 4.0]]), np.array([[0.5, 0.5], [0.25, 0.75]])),
        (draw(rng, 3, 4), softmax(draw(rng, 3, 4))),
        (draw(rng, 2, 3, 4), softmax(draw(rng, 2, 3, 4))),
    ]


def _softmax_backward_random(rng):
    shape = unequal(rng, 3)
    return rng.normal(size=shape), softmax(rng.normal(size=shape))


def _less(mean):
    """A gradient a * (g - mean(g, a)) with another mean."""
    return lambda g, a: a * (g - mean(g, a))


def _jacobian_of_a_row(weights):
    return np.diag(weights) - np.outer(weights, weights)


SOFTMAX_BACKWARD = Exercise(
    teaches="raising one score lowers all the other weights of its row",
    task=(
        "weights = softmax(scores) along the last axis, and grad_weights holds the derivatives of "
        "some number with respect to the weights. Return its derivatives with respect to the "
        "scores, for any number of leading axes."
    ),
    difficulty=3,
    minutes=15,
    cases=_softmax_backward_cases,
    random_case=_softmax_backward_random,
    solution=softmax_backward,
    faults=(
        (
            "You used the diagonal of the Jacobian alone, a(1 - a)g. Raising one score also lowers "
            "all the other weights of its row: subtract the sum of a * g over the row from g, "
            "then multiply by a.",
            lambda g, a: a * (1 - a) * g,
        ),
        (
            "You have g - sum(a * g), and one factor is missing: multiply it by the weights.",
            lambda g, a: g - (a * g).sum(axis=-1, keepdims=True),
        ),
        (
            "You subtracted the plain mean of the gradient. The mean must be weighted by the "
            "weights: sum(a * g) over the row.",
            _less(lambda g, a: g.mean(axis=-1, keepdims=True)),
        ),
        (
            "You subtracted the plain sum of the gradient. Each entry counts by its weight: "
            "sum(a * g) over the row.",
            _less(lambda g, a: g.sum(axis=-1, keepdims=True)),
        ),
        (
            "Your gradient has the wrong sign everywhere: it is a * (g - sum(a * g)), not "
            "a * (sum(a * g) - g).",
            lambda g, a: a * ((a * g).sum(axis=-1, keepdims=True) - g),
        ),
        (
            "You added sum(a * g) where it must be subtracted: raising one score takes weight from "
            "the others.",
            lambda g, a: a * (g + (a * g).sum(axis=-1, keepdims=True)),
        ),
        (
            "Your sum ran over the queries (axis -2). The softmax is along the last axis, the "
            "keys, and so is the sum in its gradient.",
            _less(lambda g, a: (a * g).sum(axis=-2, keepdims=True)),
        ),
        (
            "Your sum ran over axis 0. The softmax is along the last axis, the keys, and so is "
            "the sum in its gradient.",
            _less(lambda g, a: (a * g).sum(axis=0, keepdims=True)),
        ),
        (
            "Your sum ran over the whole array. Every row is a softmax of its own: sum over the "
            "last axis only.",
            _less(lambda g, a: (a * g).sum()),
        ),
        (
            "Your sum lost its axis, so it was lined up with the columns instead of the rows. "
            "Write sum(axis=-1, keepdims=True).",
            _less(lambda g, a: (a * g).sum(axis=-1)),
        ),
        (
            "a * g is the first half only: raising one score also lowers all the other weights of "
            "its row. Subtract sum(a * g) over the row from g before you multiply.",
            lambda g, a: a * g,
        ),
        (
            "You took weights for scores and put them through a softmax again. They are the "
            "softmax's result already.",
            lambda g, a: softmax_backward(g, softmax(a)),
        ),
        (
            "You took the mean of a * g over the row; take the sum. The weights already sum to 1, "
            "so the sum of a * g is the weighted mean of g.",
            _less(lambda g, a: (a * g).mean(axis=-1, keepdims=True)),
        ),
        (
            "g * J multiplies entry by entry. The rule is a product of matrix and vector, J @ g, "
            "and for all rows at once, without building J, a * (g - sum(a * g)).",
            lambda g, a: g * _jacobian_of_a_row(a),
        ),
        (
            "np.diag and np.outer build the Jacobian of a single row of weights, and there may be "
            "many. J @ g is a * (g - sum(a * g)), which works for all rows without J.",
            lambda g, a: _jacobian_of_a_row(a) @ g,
        ),
    ),
    hints=(
        "Score j reaches every weight of its row: da_i / ds_j = a_i (1 if i = j else 0) - a_i a_j. "
        "Multiply by g_i and add up over i.",
        "The sum over i is a_j g_j - a_j sum_i(a_i g_i). So the gradient is a times "
        "(g - a number for each row). That number is `(weights * grad_weights).sum(axis=-1, "
        "keepdims=True)`.",
    ),
)


def additive_scores(query, key, w_query, w_key, v):
    """Bahdanau's score of every query and key: v . tanh(q W_query + k W_key)."""
    q = query @ w_query  # (n_q, d_a)
    k = key @ w_key  # (n_kv, d_a)
    return np.tanh(q[:, None, :] + k[None, :, :]) @ v  # (n_q, n_kv)


def _additive_scores_cases():
    rng = np.random.default_rng(6)
    one, half = np.ones((1, 1)), np.arctanh(0.5)  # tanh(half) = 1/2
    return [
        (np.zeros((1, 1)), np.array([[0.0], [half]]), one, one, np.array([2.0])),
        (np.array([[half]]), np.array([[0.0], [half]]), one, 0 * one, np.array([4.0])),
        tuple(draw(rng, *shape) for shape in ((3, 2), (4, 5), (2, 6), (5, 6), (6,))),
    ]


def _additive_scores_random(rng):
    n_q, n_kv, d_q, d_k, d_a = unequal(rng, 5)
    shapes = (n_q, d_q), (n_kv, d_k), (d_q, d_a), (d_k, d_a), (d_a,)
    return tuple(rng.normal(size=shape) for shape in shapes)


def _pairs(query, key, w_query, w_key):
    """What goes into tanh: (n_q, n_kv, d_a)."""
    return (query @ w_query)[:, None] + (key @ w_key)[None]


ADDITIVE_SCORES = Exercise(
    teaches="a score need not be a dot product, and broadcasting forms all pairs",
    task=(
        "Compute the scores of Bahdanau et al. (2014), v . tanh(q_i W_query + k_j W_key), for "
        "every query i and key j. query is (n_q, d_q), key (n_kv, d_k), w_query (d_q, d_a), w_key "
        "(d_k, d_a), v (d_a,). Return (n_q, n_kv)."
    ),
    difficulty=2,
    minutes=10,
    cases=_additive_scores_cases,
    random_case=_additive_scores_random,
    solution=additive_scores,
    faults=(
        (
            "The tanh is missing. Without it the query adds the same number to all scores of its "
            "row, and a softmax does not see that at all.",
            lambda q, k, w_q, w_k, v: _pairs(q, k, w_q, w_k) @ v,
        ),
        (
            "You multiplied the projected query and key inside tanh; add them. That is why this "
            "score is called additive.",
            lambda q, k, w_q, w_k, v: np.tanh((q @ w_q)[:, None] * (k @ w_k)[None]) @ v,
        ),
        (
            "Your tanh is outside, around the product with v. It belongs inside, on each of the "
            "d_a features; v adds them up afterwards.",
            lambda q, k, w_q, w_k, v: np.tanh(_pairs(q, k, w_q, w_k) @ v),
        ),
        (
            "Your scores are transposed: rows are queries and columns are keys, (n_q, n_kv).",
            lambda *arguments: additive_scores(*arguments).T,
        ),
        (
            "You took tanh of query and key apart and added the results. Add first, then take "
            "tanh of the sum.",
            lambda q, k, w_q, w_k, v: (np.tanh(q @ w_q)[:, None] + np.tanh(k @ w_k)[None]) @ v,
        ),
        (
            "You added up the features without v. Each feature counts by its number in v.",
            lambda q, k, w_q, w_k, v: np.tanh(_pairs(q, k, w_q, w_k)).sum(axis=-1),
        ),
        (
            "You divided by the square root of d_a. That scale belongs to the dot product; the "
            "additive score has none.",
            lambda *arguments: additive_scores(*arguments) / np.sqrt(arguments[-1].size),
        ),
        (
            "You returned weights: your rows sum to 1. The scores are asked for, before the "
            "softmax.",
            lambda *arguments: softmax(additive_scores(*arguments)),
        ),
        (
            "You added queries and keys row by row, but every query meets every key. Give each its "
            "own axis before you add: [:, None, :] for the queries, [None, :, :] for the keys.",
            lambda q, k, w_q, w_k, v: np.tanh(q @ w_q + k @ w_k) @ v,
        ),
    ),
    hints=(
        "Project queries and keys first; then you need every pair of a projected query and a "
        "projected key. An axis of size 1 in the right place lets NumPy form the pairs.",
        "`(query @ w_query)[:, None, :]` is (n_q, 1, d_a) and `(key @ w_key)[None, :, :]` is "
        "(1, n_kv, d_a); their sum is (n_q, n_kv, d_a). After tanh, `@ v` adds up the last axis.",
    ),
)

EXERCISES = (SOFTMAX, ATTENTION, ADDITIVE_SCORES, SOFTMAX_BACKWARD)
