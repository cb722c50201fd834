"""Exercises of the chapter on heads: split, merge, the whole layer, a mask, one head's share."""

from functools import partial

import numpy as np

from mha_lib import scratch
from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.faulty import (
    attention_scaled,
    attention_weighted,
    divided_again,
    filled,
    products,
    softmax_over,
)
from mha_lib.exercises.judge import Exercise
from mha_lib.exercises.single_head import attention, softmax


def split_heads(x, num_heads):
    """Give each head its slice of the features: (..., n, h * d) becomes (..., h, n, d)."""
    *batch, n, width = x.shape
    x = x.reshape(*batch, n, num_heads, width // num_heads)  # (..., n, h, d)
    return x.swapaxes(-3, -2)


def _split_heads_cases():
    rng = np.random.default_rng(7)
    return [
        (np.arange(8.0).reshape(2, 4), 2),
        (np.arange(12.0).reshape(1, 12), 3),
        (np.arange(16.0).reshape(2, 2, 4), 2),
        (draw(rng, 3, 8), 2),
        (draw(rng, 2, 4, 15), 3),
    ]


def _split_heads_random(rng):
    batch, n, num_heads, d = unequal(rng, 4)
    return rng.normal(size=(batch, n, num_heads * d)), num_heads


def _split_by_reshape(x, num_heads):
    *batch, n, width = x.shape
    return x.reshape(*batch, num_heads, n, width // num_heads)


def _split_strided(x, num_heads):
    return np.stack([x[..., i::num_heads] for i in range(num_heads)], axis=-3)


def _split_heads_in_front(x, num_heads):
    return np.stack(np.split(x, num_heads, axis=-1))


def _split_for_a_matrix(x, num_heads):
    return x.reshape(len(x), num_heads, -1).transpose(1, 0, 2)


SPLIT_HEADS = Exercise(
    teaches="heads are slices of the features: a reshape, and then a swap of axes",
    task=(
        "Give each head its own features: x of shape (..., n, h * d) becomes (..., h, n, d), and "
        "head i gets columns i * d to (i + 1) * d of every token. h is num_heads; leading axes "
        "are batch axes."
    ),
    difficulty=1,
    minutes=8,
    cases=_split_heads_cases,
    random_case=_split_heads_random,
    solution=split_heads,
    faults=(
        (
            "You reshaped straight to (..., h, n, d): the right shape, but a head holds pieces of "
            "different tokens. Reshape to (..., n, h, d) first, which only cuts each row, and "
            "then swap the axes n and h.",
            _split_by_reshape,
        ),
        (
            "Your head i holds the columns i, i + h, i + 2h and so on. It should hold d columns "
            "that stand side by side, i * d to (i + 1) * d.",
            _split_strided,
        ),
        (
            "You cut the features into heads and left the head axis where it is, (..., n, h, d). "
            "Swap it with the token axis: (..., h, n, d).",
            lambda x, num_heads: split_heads(x, num_heads).swapaxes(-3, -2),
        ),
        (
            "Your head axis stands in front of the batch axes. It belongs behind them: "
            "(..., h, n, d).",
            _split_heads_in_front,
        ),
        (
            "Your function works on a matrix only. Leave the leading axes as they are, and count "
            "the others from the end: swapaxes(-3, -2).",
            _split_for_a_matrix,
        ),
        (
            "You made heads that are num_heads wide. There should be num_heads of them, each "
            "width / num_heads wide.",
            lambda x, num_heads: split_heads(x, x.shape[-1] // num_heads),
        ),
        (
            "Tokens and features of each head are swapped, (..., h, d, n). Tokens are rows: "
            "(..., h, n, d).",
            lambda x, num_heads: split_heads(x, num_heads).swapaxes(-1, -2),
        ),
        (
            "You numbered the heads backwards: head 0 gets the first d columns.",
            lambda x, num_heads: split_heads(x, num_heads)[..., ::-1, :, :],
        ),
    ),
    hints=(
        "Two steps: cut the last axis in two, then move an axis. A reshape alone never moves one.",
        "`x.reshape(..., n, num_heads, d)`, with the sizes from `x.shape`, only cuts each row into "
        "pieces. Then `.swapaxes(-3, -2)` brings the heads in front of the tokens.",
    ),
)


def merge_heads(x):
    """Put the heads' features side by side: (..., h, n, d) becomes (..., n, h * d)."""
    *batch, num_heads, n, d = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, n, num_heads * d)


def _merge_heads_cases():
    return [(split_heads(*case),) for case in _split_heads_cases()]


def _merge_heads_random(rng):
    return (rng.normal(size=unequal(rng, 4)),)


def _merge_by_reshape(x):
    *batch, num_heads, n, d = x.shape
    return x.reshape(*batch, n, num_heads * d)


def _merge_interleaved(x):
    *batch, num_heads, n, d = x.shape
    return np.moveaxis(x, -3, -1).reshape(*batch, n, d * num_heads)


def _merge_along_tokens(x):
    *batch, num_heads, n, d = x.shape
    return x.reshape(*batch, num_heads * n, d)


MERGE_HEADS = Exercise(
    teaches="merging undoes splitting, the last step first",
    task=(
        "Put the heads side by side again: x of shape (..., h, n, d) becomes (..., n, h * d), "
        "head 0 first. It undoes split_heads."
    ),
    difficulty=1,
    minutes=6,
    cases=_merge_heads_cases,
    random_case=_merge_heads_random,
    solution=merge_heads,
    faults=(
        (
            "You reshaped without moving the head axis: the right shape, but a row holds pieces of "
            "different tokens. Swap heads and tokens first, then reshape.",
            _merge_by_reshape,
        ),
        (
            "You wove the heads' features into each other: first feature of every head, second of "
            "every head. Each head's d features stay together, head 0 first.",
            _merge_interleaved,
        ),
        (
            "You averaged the heads. They are put side by side, so that nothing is lost: "
            "h * d features for each token.",
            lambda x: x.mean(axis=-3),
        ),
        (
            "You added the heads up. They are put side by side, so that nothing is lost: "
            "h * d features for each token.",
            lambda x: x.sum(axis=-3),
        ),
        (
            "You put the heads below each other, as if they were more tokens. They belong side by "
            "side, as more features: (..., n, h * d).",
            _merge_along_tokens,
        ),
        (
            "You moved the head axis and stopped, at (..., n, h, d). Join the last two axes to "
            "h * d.",
            lambda x: x.swapaxes(-3, -2),
        ),
        (
            "Your function works on a single sequence only. Leave the leading axes as they are, "
            "and count the others from the end: swapaxes(-3, -2).",
            lambda x: x.transpose(1, 0, 2).reshape(x.shape[1], -1),
        ),
        (
            "The first axis went into the features. It holds the heads only if there is no batch "
            "axis: the heads are axis -3.",
            lambda x: np.concatenate(list(x), axis=-1),
        ),
        (
            "You put the heads side by side backwards: head 0 comes first.",
            lambda x: merge_heads(x[..., ::-1, :, :]),
        ),
    ),
    hints=(
        "Undo split_heads step by step, the last step first.",
        "After `x.swapaxes(-3, -2)` the axes are (..., n, h, d), and each token's features lie "
        "together. Now a reshape may join the last two.",
    ),
)


def multi_head(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    """Multi-head attention of the tokens x_q over the tokens x_kv, the output alone."""
    query = scratch.split_heads(x_q @ w_q, num_heads)  # (..., h, n_q, d_k)
    key = scratch.split_heads(x_kv @ w_k, num_heads)  # (..., h, n_kv, d_k)
    value = scratch.split_heads(x_kv @ w_v, num_heads)  # (..., h, n_kv, d_v)
    heads, _ = scratch.scaled_dot_product_attention(query, key, value)  # (..., h, n_q, d_v)
    return scratch.merge_heads(heads) @ w_o  # (..., n_q, d_model)


def _multi_head_cases():
    rng = np.random.default_rng(8)
    nothing, swap = np.zeros((2, 2)), np.eye(2)[::-1]
    one_head = [np.array([[np.log(9.0), 0, 0, 0]]), np.eye(2, 4)]  # weights 3/4 and 1/4
    pair, x = np.array([[2.0, 0.0], [4.0, 2.0]]), draw(rng, 3, 4)
    square = [draw(rng, 4, 4) for _ in range(4)]
    wide = [draw(rng, *shape) for shape in ((5, 8), (5, 8), (5, 6), (6, 5))]
    return [
        (pair, pair, nothing, nothing, np.eye(2), swap, 2),  # all weights 1/2
        (*one_head, *[np.eye(4)] * 4, 1),
        (x[:2], x[:2], *square, 2),  # n = h = d_k: even key.T fits
        (x, x, *square, 2),
        (x, draw(rng, 3, 4), *square, 2),
        (x, draw(rng, 5, 4), *square, 2),
        (draw(rng, 3, 5), draw(rng, 4, 5), *wide, 2),  # h * d_k and h * d_v differ from d_model
        (draw(rng, 2, 3, 5), draw(rng, 2, 4, 5), *wide, 2),
    ]


def _multi_head_random(rng):
    n_q, n_kv, num_heads, d_k, d_v, d_model = unequal(rng, 6)
    widths = num_heads * d_k, num_heads * d_k, num_heads * d_v
    w_q, w_k, w_v = (rng.normal(size=(d_model, width)) / d_model for width in widths)
    x_q, x_kv = (rng.normal(size=(n, d_model)) for n in (n_q, n_kv))
    return x_q, x_kv, w_q, w_k, w_v, rng.normal(size=(num_heads * d_v, d_model)), num_heads


def _layer(*arguments, split=split_heads, attend=attention, merge=merge_heads):
    """The layer with another way to split, to attend or to merge."""
    x_q, x_kv, w_q, w_k, w_v, w_o, num_heads = arguments
    query, key = split(x_q @ w_q, num_heads), split(x_kv @ w_k, num_heads)
    return merge(attend(query, key, split(x_kv @ w_v, num_heads))) @ w_o


def _scaled_by_model(divisor):
    """The layer whose scores are divided by divisor(d_model, num_heads)."""

    def faulty(*arguments):
        size = divisor(arguments[0].shape[-1], arguments[-1])
        return _layer(*arguments, attend=attention_scaled(lambda q, k, v: size))

    return faulty


def _head_0_everywhere(*arguments):
    def split(x, num_heads):
        return np.repeat(split_heads(x, num_heads)[..., :1, :, :], num_heads, axis=-3)

    return _layer(*arguments, split=split)


def _head_shares(*arguments):
    """What each head adds to the output, head 0 first."""
    *inputs, w_o, num_heads = arguments
    side_by_side = multi_head(*inputs, np.eye(len(w_o)), num_heads)
    parts = np.split(side_by_side, num_heads, axis=-1)
    return [part @ rows for part, rows in zip(parts, np.split(w_o, num_heads))]


def _slices_of_the_input(*arguments):
    x_q, x_kv, w_q, w_k, w_v, w_o, num_heads = arguments
    width = x_q.shape[-1] // num_heads

    def project(x, matrix, i):
        features = slice(i * width, (i + 1) * width)
        return x[..., features] @ np.split(matrix, num_heads, axis=1)[i][features]

    heads = [
        attention(project(x_q, w_q, i), project(x_kv, w_k, i), project(x_kv, w_v, i))
        for i in range(num_heads)
    ]
    return np.concatenate(heads, axis=-1) @ w_o


def _values_cut_like_keys(*arguments):
    x_q, x_kv, w_q, w_k, w_v, w_o, num_heads = arguments
    query, key = split_heads(x_q @ w_q, num_heads), split_heads(x_kv @ w_k, num_heads)
    value, d_k = x_kv @ w_v, query.shape[-1]
    heads = [
        attention(query[..., i, :, :], key[..., i, :, :], value[..., i * d_k : (i + 1) * d_k])
        for i in range(num_heads)
    ]
    return np.concatenate(heads, axis=-1) @ w_o


def _width_from_model(*arguments):
    d_model = arguments[0].shape[-1]

    def split(x, num_heads):
        x = x.reshape(*x.shape[:-1], num_heads, d_model // num_heads)
        return x.swapaxes(-3, -2)

    return _layer(*arguments, split=split)


def _columns_from_model(*arguments):
    *inputs, w_o, num_heads = arguments
    used = inputs[0].shape[-1] // num_heads * num_heads  # slices take no column beyond
    x_q, x_kv, *matrices = inputs
    narrow = (matrix[:, :used] for matrix in matrices)
    return multi_head(x_q, x_kv, *narrow, np.eye(used), num_heads) @ w_o


def _lengths_from_queries(*arguments):
    n_q = arguments[0].shape[-2]

    def split(x, num_heads):
        x = x.reshape(*x.shape[:-2], n_q, num_heads, x.shape[-1] // num_heads)
        return x.swapaxes(-3, -2)

    return _layer(*arguments, split=split)


MULTI_HEAD = Exercise(
    teaches="the whole layer, for any sizes",
    task=(
        "Compute multi-head attention without biases: x_q (..., n_q, d_model) asks, x_kv "
        "(..., n_kv, d_model) is looked at. w_q and w_k are (d_model, h * d_k), w_v "
        "(d_model, h * d_v), w_o (h * d_v, d_model), and h is num_heads. Loop over the heads or "
        "split and merge. Return the output alone, (..., n_q, d_model)."
    ),
    difficulty=3,
    minutes=20,
    cases=_multi_head_cases,
    random_case=_multi_head_random,
    solution=multi_head,
    faults=(
        (
            "You stopped at the heads side by side. W^O is missing: multiply by w_o.",
            lambda *a: _layer(*a[:5], np.eye(a[5].shape[0]), a[6]),
        ),
        (
            "You divided by the square root of d_model. Each head divides by the square root of "
            "d_k, its own width: the columns of w_q divided by the number of heads.",
            _scaled_by_model(lambda d_model, num_heads: np.sqrt(d_model)),
        ),
        (
            "You divided by the square root of the width of all heads together. Each head divides "
            "by the square root of d_k, its own width.",
            partial(
                _layer, attend=attention_scaled(lambda q, k, v: np.sqrt(q.shape[-3] * q.shape[-1]))
            ),
        ),
        (
            "Your scale takes d_k to be d_model / num_heads. It usually is, but d_k is the width "
            "that a head has: the columns of w_q divided by the number of heads.",
            _scaled_by_model(lambda d_model, num_heads: np.sqrt(d_model // num_heads)),
        ),
        (
            "You divided by d_k; divide by its square root.",
            partial(_layer, attend=attention_scaled(lambda q, k, v: q.shape[-1])),
        ),
        (
            "You left out the scale: divide each head's scores by the square root of d_k.",
            partial(_layer, attend=attention_scaled(lambda q, k, v: 1)),
        ),
        (
            "You split by a reshape straight to (..., h, n, d): a head then holds pieces of "
            "different tokens. Reshape to (..., n, h, d), then swap n and h.",
            partial(_layer, split=_split_by_reshape),
        ),
        (
            "You merged by a reshape without moving the head axis back: a row then holds pieces of "
            "different tokens. Swap h and n first, then reshape to (..., n, h * d).",
            partial(_layer, merge=_merge_by_reshape),
        ),
        (
            "You split and merged by reshape alone, without moving the head axis. Between them "
            "heads hold pieces of different tokens: swap n and h after the one reshape and before "
            "the other.",
            partial(_layer, split=_split_by_reshape, merge=_merge_by_reshape),
        ),
        (
            "Head i of yours holds the columns i, i + h, i + 2h and so on. It should hold columns "
            "that stand side by side.",
            partial(_layer, split=_split_strided),
        ),
        (
            "Your softmax ran over the queries (axis -2). It belongs on the last axis, the keys, "
            "so that each query's weights sum to 1.",
            partial(_layer, attend=attention_weighted(softmax_over(-2, top_axis=-2))),
        ),
        (
            "Your softmax ran over the heads (axis -3). Each head has weights of its own: it "
            "belongs on the last axis, the keys.",
            partial(_layer, attend=attention_weighted(softmax_over(-3, top_axis=-3))),
        ),
        (
            "The softmax is missing: you mixed the values by the scores themselves.",
            partial(_layer, attend=attention_weighted(lambda scores: scores)),
        ),
        (
            "You made keys and values from x_q. Only the queries come from x_q; what is looked at "
            "is x_kv.",
            lambda x_q, x_kv, *rest: multi_head(x_q, x_q, *rest),
        ),
        (
            "You made the queries from x_kv. They come from x_q, and so does the number of rows of "
            "the output.",
            lambda x_q, x_kv, *rest: multi_head(x_kv, x_kv, *rest),
        ),
        (
            "You swapped the roles: queries come from x_q, keys and values from x_kv.",
            lambda x_q, x_kv, *rest: multi_head(x_kv, x_q, *rest),
        ),
        (
            "You made the values from x_q. Values come from x_kv, like the keys: a value belongs "
            "to each key.",
            lambda x_q, x_kv, w_q, w_k, w_v, w_o, h: (
                merge_heads(
                    attention(
                        split_heads(x_q @ w_q, h),
                        split_heads(x_kv @ w_k, h),
                        split_heads(x_q @ w_v, h),
                    )
                )
                @ w_o
            ),
        ),
        (
            "You made the keys from x_q. Keys come from x_kv, like the values.",
            lambda x_q, x_kv, w_q, w_k, w_v, w_o, h: (
                merge_heads(
                    attention(
                        split_heads(x_q @ w_q, h),
                        split_heads(x_q @ w_k, h),
                        split_heads(x_kv @ w_v, h),
                    )
                )
                @ w_o
            ),
        ),
        (
            "All your heads are the same: each uses the columns of head 0. Head i gets the columns "
            "i * d to (i + 1) * d.",
            _head_0_everywhere,
        ),
        (
            "You multiplied by W^O transposed. Tokens are rows and matrices stand to their right: "
            "heads @ w_o.",
            lambda *a: _layer(*a[:5], a[5].T, a[6]),
        ),
        (
            "Your layer has one big head: all features together make one set of weights. Split "
            "queries, keys and values into num_heads heads first.",
            lambda *a: multi_head(*a[:6], 1),
        ),
        (
            "You put the heads side by side backwards: head 0 comes first.",
            partial(_layer, merge=lambda x: merge_heads(x[..., ::-1, :, :])),
        ),
        (
            "You cut heads of d_model / num_heads features. A head's width follows from the "
            "matrices: d_k is the columns of w_q divided by num_heads, d_v those of w_v.",
            _width_from_model,
        ),
        (
            "You cut the values into pieces of d_k features. A head's value has d_v of them: the "
            "columns of w_v divided by num_heads.",
            _values_cut_like_keys,
        ),
        (
            "You cut x itself into slices, so that each head sees only some of the features. Every "
            "head reads all of x; what is cut are the products x @ w_q, x @ w_k and x @ w_v.",
            _slices_of_the_input,
        ),
        (
            "Your output is the last head's share alone. The shares of all heads are added up.",
            lambda *a: _head_shares(*a)[-1],
        ),
        (
            "You averaged the heads' shares. They are added up.",
            lambda *a: sum(_head_shares(*a)) / a[-1],
        ),
        (
            "You used the number of queries when you reshaped keys and values. These have n_kv "
            "rows: take the size from each array.",
            _lengths_from_queries,
        ),
        (
            "You sliced d_model / num_heads columns for each head. Its slice follows from the "
            "matrix: w_q.shape[1] / num_heads columns of w_q and w_k, w_v.shape[1] / num_heads of "
            "w_v.",
            _columns_from_model,
        ),
        (
            "key.T reverses all the axes, and there is a head axis in front: swap the last two "
            "only, key.swapaxes(-1, -2).",
            partial(_layer, attend=lambda q, k, v: softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v),
        ),
    ),
    hints=(
        "Project (three matrix products), split, attend in every head, merge, multiply by w_o. "
        "You have written all the parts.",
        "Queries are `scratch.split_heads(x_q @ w_q, num_heads)`, and keys and values are made the "
        "same way from x_kv. With the heads as a batch axis, one call of "
        "`scratch.scaled_dot_product_attention` serves all of them. It returns output and weights: "
        "take the output, `[0]`. Then `scratch.merge_heads(heads) @ w_o`.",
    ),
)


def masked_attention(query, key, value, mask):
    """Attention where mask is True; a query that may attend to nothing gets zeros."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    weights = scratch.softmax(np.where(mask, scores, -1e30))  # exp turns -1e30 into an exact 0
    return np.where(mask, weights, 0) @ value  # this matters in rows without any True


def _masked_attention_cases():
    rng = np.random.default_rng(9)
    zeros, causal = np.zeros((3, 1)), np.tril(np.ones((3, 3), bool))
    some = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    none_in_row_1 = some & np.array([[True], [False], [True]])
    pair = np.array([[5.0], [7.0]])
    hidden_far_above = np.array([[0.0], [1000.0]])  # the scores of the query 1
    return [
        (np.ones((1, 1)), hidden_far_above, pair, np.array([[True, False]])),
        (np.ones((1, 1)), np.array([[-1000.0], [0.0]]), pair, np.array([[True, False]])),
        (np.zeros((1, 1)), np.zeros((2, 1)), pair, np.zeros((1, 2), bool)),
        (zeros, zeros, np.array([[1.0], [2.0], [4.0]]), causal),
        (draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2), some),
        (draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2), none_in_row_1),
        (draw(rng, 2, 3, 4), draw(rng, 2, 5, 4), draw(rng, 2, 5, 6), none_in_row_1),
    ]


def _masked_attention_random(rng):
    batch, n_q, n_kv, d_k, d_v = unequal(rng, 5)
    mask = rng.random((n_q, n_kv)) < 0.6
    mask[rng.integers(n_q)] = False
    shapes = (n_q, d_k), (n_kv, d_k), (n_kv, d_v)
    return *(rng.normal(size=(batch, *shape)) for shape in shapes), mask


def _masked(weigh, scale=True):
    """Attention whose weights are weigh(scores, mask)."""

    def faulty(query, key, value, mask):
        scores = products(query, key)
        return weigh(scores / np.sqrt(query.shape[-1]) if scale else scores, mask) @ value

    return faulty


def _hidden_by_index(scores, mask):
    scores[~mask] = -np.inf
    return scratch.softmax(scores)


INVERTED = (
    "You read the mask the other way round: you hid what may be attended to. True means 'may "
    "attend'."
)

MASKED_ATTENTION = Exercise(
    teaches="what is hidden takes no part, and nothing is made of nothing",
    task=(
        "Compute scaled dot-product attention where the boolean mask allows it. mask broadcasts to "
        "(..., n_q, n_kv), and True means 'may attend'. A query that may attend to nothing gets an "
        "output of zeros."
    ),
    difficulty=2,
    minutes=12,
    cases=_masked_attention_cases,
    random_case=_masked_attention_random,
    solution=masked_attention,
    faults=(
        (INVERTED, lambda q, k, v, mask: masked_attention(q, k, v, ~mask)),
        (
            INVERTED + " Then see to queries that may attend to nothing: yours give NaN.",
            _masked(filled(-np.inf, invert=True)),
        ),
        (
            INVERTED + " Then see to queries that may attend to nothing: yours average the values.",
            _masked(filled(-1e30, invert=True)),
        ),
        (
            "You took the softmax first and put zeros into its weights afterwards, so a row no "
            "longer sums to 1. Hide the scores before the softmax.",
            _masked(lambda scores, mask: softmax(scores) * mask),
        ),
        (
            "You set forbidden scores to 0. A score of 0 is not 'no attention', exp(0) is 1: use "
            "-inf or a very negative number.",
            _masked(filled(0)),
        ),
        (
            "You added the mask to the scores. True counts as 1, so allowed keys get a little more "
            "and the others still something: set forbidden scores to -inf.",
            _masked(lambda scores, mask: softmax(scores + mask)),
        ),
        (
            "A query that may attend to nothing averages all the values in your function: with "
            "all its scores equally low, the softmax gives equal weights. It should get zeros.",
            _masked(filled(-1e30)),
        ),
        (
            "A query that may attend to nothing gets NaN in your function: all its scores are "
            "-inf, and the softmax divides 0 by 0. It should get zeros.",
            _masked(filled(-np.inf)),
        ),
        (
            "The number that you hide scores with is not low enough: an allowed score that is even "
            "lower loses against it. Use -inf, or a number like -1e30.",
            _masked(lambda scores, mask: np.where(mask, filled(-100)(scores, mask), 0)),
        ),
        (
            "You added a large negative number to forbidden scores. For a query that may attend to "
            "nothing that changes all its scores alike, and so no weight; it should get zeros.",
            _masked(lambda scores, mask: softmax(scores + np.where(mask, 0, -1e9))),
        ),
        (
            INVERTED + " And where you add the same to all scores of a query, no weight changes: "
            "see to queries that may attend to nothing.",
            _masked(lambda scores, mask: softmax(scores + np.where(mask, -1e9, 0))),
        ),
        (
            "You multiplied the mask by -inf. Where it is 0 that gives 0 * inf, which is NaN. "
            "Choose with np.where(mask, scores, -np.inf) instead.",
            _masked(lambda scores, mask: softmax(scores + (1 - mask) * -np.inf)),
        ),
        (
            "You did not use the mask. Set the scores where it is False to -inf before the "
            "softmax.",
            _masked(lambda scores, mask: softmax(scores)),
        ),
        (
            "You left out the scale: divide the scores by the square root of d_k.",
            _masked(lambda s, mask: np.where(mask, filled(-1e30)(s, mask), 0), scale=False),
        ),
        (
            "You cleared the weights of a whole query as soon as one key is forbidden. Only a "
            "query without any allowed key gets zeros.",
            _masked(lambda s, mask: np.where(mask.all(-1, keepdims=True), softmax(s), 0)),
        ),
        (
            "You took the softmax over all keys and divided again by what was left. A hidden score "
            "far above the others leaves 0 / 0: hide scores before the softmax.",
            _masked(lambda s, mask: divided_again(softmax(s), mask, guard=True)),
        ),
        (
            "You took the softmax over all keys and divided again by what was left. That is 0 / 0, "
            "which is NaN, for a query that may attend to nothing, and where a hidden score is far "
            "above the others: hide scores before the softmax.",
            _masked(lambda s, mask: divided_again(softmax(s), mask, guard=False)),
        ),
        (
            "You multiplied exponentials by the mask. exp of a large hidden score is infinite, and "
            "0 * inf is NaN: hide scores before exp, with np.where.",
            _masked(lambda s, mask: divided_again(np.exp(s), mask, guard=True)),
        ),
        (
            "scores[~mask] fits as long as mask has the shape of the scores. A mask is broadcast "
            "over a batch by np.where, not by indexing: np.where(mask, scores, -np.inf).",
            _masked(_hidden_by_index),
        ),
        (
            "key.T reverses all the axes: right for a matrix, wrong with a batch axis in front. "
            "Swap the last two only, key.swapaxes(-1, -2).",
            lambda q, k, v, mask: masked_attention(q, k.T.swapaxes(-1, -2), v, mask),
        ),
    ),
    hints=(
        "Forbidden keys must be out before the softmax divides. What score has a weight of 0? And "
        "what does a row of nothing but such scores give?",
        "`np.where(mask, scores, -1e30)` before `scratch.softmax`, or your own, hides the "
        "forbidden keys. A row that is all -1e30 comes out uniform, so multiply the weights by "
        "`mask` after the softmax as well; it changes nothing in the other rows.",
    ),
)


def head_contribution(heads, w_o, i):
    """What head i adds to the layer's output: its features times its own rows of w_o."""
    d_v = heads.shape[-1]
    return heads[i] @ w_o[i * d_v : (i + 1) * d_v]


def _head_contribution_cases():
    rng = np.random.default_rng(10)
    w_o = np.array([[1.0, 0.0], [10.0, 2.0]])
    square = draw(rng, 2, 3, 4), draw(rng, 8, 8)
    general = draw(rng, 3, 4, 2), draw(rng, 6, 5)
    alike = draw(rng, 2, 2, 2), draw(rng, 4, 2)  # all sizes fit: even heads[i] @ w_o[i] is a value
    return [
        (np.array([[[1.0]], [[2.0]]]), w_o, 0),
        (np.array([[[1.0]], [[2.0]]]), w_o, 1),
        (np.array([[[1.0, 0.0], [1.0, 2.0]]]), np.array([[1.0, 0.0, 2.0], [3.0, 1.0, 0.0]]), 0),
        (*alike, 1),
        *((*general, i) for i in range(3)),
        *((*square, i) for i in range(2)),
    ]


def _head_contribution_random(rng):
    num_heads, n, d_v, d_model = unequal(rng, 4)
    heads, w_o = rng.normal(size=(num_heads, n, d_v)), rng.normal(size=(num_heads * d_v, d_model))
    return heads, w_o, int(rng.integers(num_heads))


def _rows(rows):
    """Head i times the rows of w_o that rows(i, num_heads, d_v) slices out."""

    def faulty(heads, w_o, i):
        return heads[i] @ w_o[rows(i, len(heads), heads.shape[-1])]

    return faulty


def _rows_if_wide(width):
    """Head i times the rows of w_o that are its own if heads are width(heads, w_o) wide."""

    def faulty(heads, w_o, i):
        d = width(heads, w_o)
        return heads[i] @ w_o[i * d : (i + 1) * d]

    return faulty


def _columns(heads, w_o, i):
    d_v = heads.shape[-1]
    return w_o[:, i * d_v : (i + 1) * d_v]


HEAD_CONTRIBUTION = Exercise(
    teaches="the layer's output is a sum with one term for each head",
    task=(
        "heads is (h, n, d_v), w_o is (h * d_v, d_model). Return what head i (counted from 0) "
        "adds to the layer's output, shape (n, d_model): over all heads these add up to "
        "merge_heads(heads) @ w_o."
    ),
    difficulty=2,
    minutes=8,
    cases=_head_contribution_cases,
    random_case=_head_contribution_random,
    solution=head_contribution,
    faults=(
        (
            "You used columns of w_o and transposed them. Head i's features are columns i * d_v to "
            "(i + 1) * d_v of the heads side by side, and these meet the same rows of w_o.",
            lambda heads, w_o, i: heads[i] @ _columns(heads, w_o, i).T,
        ),
        (
            "You took rows i, i + h, i + 2h and so on of w_o. Head i's rows stand together: "
            "i * d_v to (i + 1) * d_v.",
            _rows(lambda i, h, d_v: slice(i, None, h)),
        ),
        (
            "You used the rows of the head at the other end. Heads are counted from the top of "
            "w_o: head i has rows i * d_v to (i + 1) * d_v.",
            _rows(lambda i, h, d_v: slice((h - 1 - i) * d_v, (h - i) * d_v)),
        ),
        (
            "You used the rows of head 0 for every head. Head i has rows i * d_v to (i + 1) * d_v.",
            _rows(lambda i, h, d_v: slice(0, d_v)),
        ),
        (
            "Your rows start at i; they start at i * d_v, because each head before has d_v rows.",
            _rows(lambda i, h, d_v: slice(i, i + d_v)),
        ),
        (
            "You took a head to be d_model / num_heads wide. Its width is d_v, the last axis of "
            "heads, so its rows are i * d_v to (i + 1) * d_v.",
            _rows_if_wide(lambda heads, w_o: w_o.shape[1] // len(heads)),
        ),
        (
            "You divided by the number of heads. W^O adds the heads up, it does not average them.",
            lambda heads, w_o, i: head_contribution(heads, w_o, i) / len(heads),
        ),
        (
            "Your answer is the whole output, of all the heads together. Only head i's share is "
            "asked for.",
            lambda heads, w_o, i: merge_heads(heads) @ w_o,
        ),
        (
            "You counted heads from 1. They are counted from 0, as everywhere in Python.",
            lambda heads, w_o, i: head_contribution(heads, w_o, (i - 1) % len(heads)),
        ),
        (
            "You multiplied head i by the rows of all heads, added up. It meets its own rows only: "
            "i * d_v to (i + 1) * d_v.",
            lambda heads, w_o, i: heads[i] @ sum(np.split(w_o, len(heads))),
        ),
        (
            "You multiplied by all of w_o; head i meets only its d_v rows, i * d_v to "
            "(i + 1) * d_v.",
            lambda heads, w_o, i: heads[i] @ w_o,
        ),
        (
            "You multiplied by w_o[i]. That is one row; a head has d_v of them: i * d_v to "
            "(i + 1) * d_v.",
            lambda heads, w_o, i: heads[i] @ w_o[i],
        ),
        (
            "You used columns of w_o. Head i's features are columns of the heads side by side, and "
            "a column meets a row: use rows i * d_v to (i + 1) * d_v.",
            lambda heads, w_o, i: heads[i] @ _columns(heads, w_o, i),
        ),
        (
            "You cut w_o into d_v pieces. Cut it into one for each head, len(heads) of them; each "
            "then has d_v rows.",
            lambda heads, w_o, i: heads[i] @ np.split(w_o, heads.shape[-1])[i],
        ),
        (
            "You cut w_o into n pieces, one for each token. Cut it into one for each head, "
            "len(heads) of them.",
            lambda heads, w_o, i: heads[i] @ np.split(w_o, heads.shape[1])[i],
        ),
        (
            "You took a head to be n wide, which is its number of tokens. Its width is d_v, the "
            "last axis of heads, so its rows are i * d_v to (i + 1) * d_v.",
            _rows_if_wide(lambda heads, w_o: heads.shape[1]),
        ),
        (
            "You divided the rows of w_o by n, the number of tokens, to find a head's width. "
            "Divide by len(heads), or take d_v from the last axis of heads.",
            _rows_if_wide(lambda heads, w_o: len(w_o) // heads.shape[1]),
        ),
        (
            "You gave each head as many rows of w_o as there are heads. It has d_v, the width of a "
            "head: i * d_v to (i + 1) * d_v.",
            _rows_if_wide(lambda heads, w_o: len(heads)),
        ),
    ),
    hints=(
        "Side by side, the heads are a matrix (n, h * d_v). In its product with w_o, which rows "
        "of w_o do the columns of head i meet?",
        "Head i's columns are i * d_v to (i + 1) * d_v, and column c meets row c. So multiply "
        "`heads[i]` by `w_o[i * d_v : (i + 1) * d_v]`.",
    ),
)

EXERCISES = (SPLIT_HEADS, MERGE_HEADS, MULTI_HEAD, HEAD_CONTRIBUTION, MASKED_ATTENTION)
