"""Exercises that no chapter has: they stand in the problem sets alone."""

import numpy as np

from mha_lib import scratch
from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.faulty import products
from mha_lib.exercises.judge import Exercise
from mha_lib.exercises.masking import ADDITIVE, NUMBERS, POLARITY
from mha_lib.exercises.single_head import softmax, softmax_backward


def reorder_heads(w_q, w_k, w_v, w_o, num_heads, order):
    """The same layer with its heads in another order: new head i is the old head order[i]."""
    inner = (
        w.reshape(len(w), num_heads, -1)[:, order].reshape(w.shape)  # heads are the middle axis
        for w in (w_q, w_k, w_v)
    )
    rows = w_o.reshape(num_heads, -1, w_o.shape[1])[order]  # (h, d_v, d_model)
    return *inner, rows.reshape(w_o.shape)


def _reorder_cases():
    rng = np.random.default_rng(18)

    def layer(d_model, num_heads, d_k, d_v):
        widths = num_heads * d_k, num_heads * d_k, num_heads * d_v
        inner = (draw(rng, d_model, width) for width in widths)
        return *inner, draw(rng, num_heads * d_v, d_model), num_heads

    return [
        (*layer(1, 2, 1, 1), np.array([1, 0])),
        (*layer(4, 2, 2, 2), np.array([1, 0])),
        (*layer(6, 3, 2, 2), np.array([1, 2, 0])),
        (*layer(5, 4, 2, 3), np.array([2, 0, 3, 1])),
    ]


def _reorder_random(rng):
    d_model, d_k, d_v, num_heads = unequal(rng, 4)
    num_heads += 1  # three heads or more: two orders of two heads undo themselves
    widths = num_heads * d_k, num_heads * d_k, num_heads * d_v
    inner = (rng.normal(size=(d_model, width)) for width in widths)
    order = np.roll(np.arange(num_heads), 1 + int(rng.integers(num_heads - 1)))
    return *inner, rng.normal(size=(num_heads * d_v, d_model)), num_heads, order


def _reordered(inner=lambda order: order, outer=lambda order: order):
    """The layer with inner(order) of the columns and outer(order) of the rows."""

    def faulty(w_q, w_k, w_v, w_o, num_heads, order):
        w_q, w_k, w_v, _ = reorder_heads(w_q, w_k, w_v, w_o, num_heads, inner(order))
        return w_q, w_k, w_v, reorder_heads(w_q, w_k, w_v, w_o, num_heads, outer(order))[3]

    return faulty


def _same(order):
    return np.arange(len(order))


def _single_columns(w_q, w_k, w_v, w_o, num_heads, order):
    w_q, w_k, w_v = (w.reshape(len(w), -1, num_heads)[..., order] for w in (w_q, w_k, w_v))
    rows = w_o.reshape(-1, num_heads, w_o.shape[1])[:, order]
    flat = (w.reshape(len(w), -1) for w in (w_q, w_k, w_v))
    return *flat, rows.reshape(w_o.shape)


def _output_columns(w_q, w_k, w_v, w_o, num_heads, order):
    inner = reorder_heads(w_q, w_k, w_v, w_o, num_heads, order)[:3]
    return *inner, reorder_heads(w_o, w_o, w_o, w_o, num_heads, order)[0]


def _without(*kept):
    """Only the matrices in the places ``kept`` are brought into order."""

    def faulty(*arguments):
        new = reorder_heads(*arguments)
        return tuple(new[i] if i in kept else arguments[i].copy() for i in range(4))

    return faulty


REORDER_HEADS = Exercise(
    teaches="heads have no order of their own: W^O has to follow, and then nothing changes",
    task=(
        "A layer has w_q and w_k (d_model, h * d_k), w_v (d_model, h * d_v) and w_o "
        "(h * d_v, d_model), and h is num_heads. Return the four matrices of a layer that computes "
        "the same, but whose heads stand in another order: its head i is head order[i] of the old "
        "one. order is an array that holds each of 0 to h - 1 once."
    ),
    difficulty=2,
    minutes=12,
    cases=_reorder_cases,
    random_case=_reorder_random,
    solution=reorder_heads,
    faults=(
        (
            "You left w_o as it was. Its rows belong to the heads, and have to move with them, or "
            "the layer computes something else.",
            _without(0, 1, 2),
        ),
        (
            "You moved the rows of w_o alone. The heads are made by the columns of w_q, w_k and "
            "w_v: these move too.",
            _without(3),
        ),
        (
            "You left w_v as it was. The new head i would mix the values of another head.",
            _without(0, 1, 3),
        ),
        (
            "You left w_k as it was. The queries of one head would meet the keys of another.",
            _without(0, 2, 3),
        ),
        (
            "You moved the heads the wrong way: new head i is old head order[i], so index with "
            "order itself, and not with its inverse.",
            _reordered(np.argsort, np.argsort),
        ),
        (
            "You moved the rows of w_o by the inverse of order. Old head order[i] stands at i "
            "now, and so do its rows: index with order in all four.",
            _reordered(outer=np.argsort),
        ),
        (
            "You moved single columns with a stride of h. Head i owns d columns that stand side by "
            "side, i * d to (i + 1) * d: move them as a block.",
            _single_columns,
        ),
        (
            "You turned the order round: your heads stand backwards, whatever order says.",
            _reordered(lambda order: _same(order)[::-1], lambda order: _same(order)[::-1]),
        ),
        (
            "You returned the matrices as they were. The heads have to move.",
            _without(),
        ),
        (
            "You moved columns of w_o. Its rows are what belongs to the heads.",
            _output_columns,
        ),
    ),
    hints=(
        "Which columns of w_q make head i, and which rows of w_o take it up? Give the heads an "
        "axis of their own, and index that.",
        "`w_q.reshape(d_model, num_heads, -1)` has the heads as its middle axis: index it with "
        "`[:, order]` and reshape back. In w_o the heads are the first part of the rows.",
    ),
)


def sliding_window(n_q, n_kv, window):
    """True at the last ``window`` keys up to each query; the queries are the last n_q positions."""
    position = np.arange(n_q)[:, None] + n_kv - n_q  # (n_q, 1)
    key = np.arange(n_kv)
    return (key <= position) & (key > position - window)


def _window_cases():
    return [(1, 3, 1), (3, 3, 2), (4, 4, 2), (2, 5, 3), (5, 3, 2), (4, 6, 3)]


def _window_random(rng):
    return tuple(unequal(rng, 3, lowest=1))


def _window(change=0, ahead=0, offset=lambda n_q, n_kv: n_kv - n_q):
    """A window of ``change`` more keys, which ends ``ahead`` keys behind the query."""

    def faulty(n_q, n_kv, window):
        position = np.arange(n_q)[:, None] + offset(n_q, n_kv)
        key = np.arange(n_kv)
        return (key <= position + ahead) & (key > position - window - change)

    return faulty


def _both_sides(n_q, n_kv, window):
    return np.abs(np.arange(n_kv) - np.arange(n_q)[:, None] - n_kv + n_q) < window


def _causal(n_q, n_kv, window):
    return _window(change=n_q + n_kv)(n_q, n_kv, window)


def _half_window(n_q, n_kv, window):
    distance = np.abs(np.arange(n_kv) - np.arange(n_q)[:, None] - n_kv + n_q)
    return distance <= window // 2


def _far_away(n_q, n_kv, window):
    return _causal(n_q, n_kv, window) & ~sliding_window(n_q, n_kv, window)


WINDOW_TOP_LEFT = (
    "Your mask starts in the top left corner, so query 0 stands at key 0. The queries are the last "
    "n_q positions: query i stands at position i + n_kv - n_q."
)

SLIDING_WINDOW = Exercise(
    teaches="two conditions and one offset make the mask that long contexts use",
    task=(
        "Build the boolean mask (n_q, n_kv) of causal attention with a sliding window: each query "
        "may attend to the last window keys up to its own position, itself among them, and True "
        "means that it may. The queries are the last n_q of the n_kv positions."
    ),
    difficulty=2,
    minutes=12,
    cases=_window_cases,
    random_case=_window_random,
    solution=sliding_window,
    faults=(
        (
            "Your mask is plainly causal: a query sees everything before it. The window ends after "
            "window keys.",
            _causal,
        ),
        (
            "Your window reaches into the future as well. Both conditions must hold: the key is "
            "not behind the query, and not further back than the window.",
            _both_sides,
        ),
        (
            "You centred the window on the query. It ends there: nothing behind it is seen.",
            _half_window,
        ),
        (
            "Your window holds one key too many. With the query itself there are window keys: "
            "j > position - window, and not >=.",
            _window(change=1),
        ),
        (
            "Your window holds one key too few. The query's own position is one of the window "
            "keys: j > position - window.",
            _window(change=-1),
        ),
        (
            "Your mask hides the query's own position. The window ends with it: <= and not <.",
            _window(ahead=-1),
        ),
        (
            "Your window stands one key too early: it ends just before the query, and has its full "
            "length. It ends with the query itself.",
            _window(change=1, ahead=-1),
        ),
        (
            "Your window looks one key ahead. The last key that query i sees is its own position.",
            _window(ahead=1),
        ),
        (WINDOW_TOP_LEFT, _window(offset=lambda n_q, n_kv: 0)),
        (
            WINDOW_TOP_LEFT + " With fewer keys than queries n_kv - n_q is negative, and you "
            "dropped its sign or cut it off at 0.",
            _window(offset=lambda n_q, n_kv: max(n_kv - n_q, 0)),
        ),
        (
            "You showed what lies before the window and hid the window. Turn the second comparison "
            "round.",
            _far_away,
        ),
        (POLARITY, lambda *sizes: ~sliding_window(*sizes)),
        (
            "You swapped n_q and n_kv. Rows are queries and columns are keys, (n_q, n_kv).",
            lambda n_q, n_kv, window: sliding_window(n_kv, n_q, window),
        ),
        (
            "Your mask is transposed: rows are queries and columns are keys, (n_q, n_kv).",
            lambda *sizes: sliding_window(*sizes).T,
        ),
        (NUMBERS, lambda *sizes: sliding_window(*sizes) * 1.0),
        (ADDITIVE, lambda *sizes: np.where(sliding_window(*sizes), 0.0, -np.inf)),
    ),
    hints=(
        "Where does query i stand among the keys? Write both conditions on key j with that "
        "position, and join them.",
        "With the positions as a column, `np.arange(n_q)[:, None] + n_kv - n_q`, and the keys as a "
        "row, `np.arange(n_kv)`, the conditions are two comparisons, joined by `&`.",
    ),
)


def attention_backward(grad_output, query, key, value):
    """Gradients of query, key and value, from that of softmax(Q K^T / sqrt(d_k)) V."""
    scale = 1 / np.sqrt(query.shape[-1])
    weights = scratch.softmax(query @ key.swapaxes(-1, -2) * scale)  # (..., n_q, n_kv)
    grad_value = weights.swapaxes(-1, -2) @ grad_output
    grad_weights = grad_output @ value.swapaxes(-1, -2)
    mean = (weights * grad_weights).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_weights - mean) * scale
    return grad_scores @ key, grad_scores.swapaxes(-1, -2) @ query, grad_value


def _backward_cases():
    rng = np.random.default_rng(19)

    def case(n_q, n_kv, d_k, d_v, *batch):
        shapes = (n_q, d_v), (n_q, d_k), (n_kv, d_k), (n_kv, d_v)
        return tuple(draw(rng, *batch, *shape) for shape in shapes)

    pair = np.array([[1.0]]), np.zeros((1, 1)), np.array([[1.0], [0.0]]), np.array([[4.0], [0.0]])
    return [pair, case(2, 2, 2, 2), case(3, 3, 4, 2), case(3, 5, 4, 2), case(3, 5, 4, 6, 2)]


def _backward_random(rng):
    batch, n_q, n_kv, d_k, d_v = unequal(rng, 5)
    shapes = (n_q, d_v), (n_q, d_k), (n_kv, d_k), (n_kv, d_v)
    return tuple(rng.normal(size=(batch, *shape)) for shape in shapes)


def _backward(
    scale=lambda d_k: d_k**-0.5,
    scale_back=lambda d_k: d_k**-0.5,
    to_scores=softmax_backward,
    to_value=lambda weights, grad_scores, grad_output: weights.swapaxes(-1, -2) @ grad_output,
    turn=lambda a: a.swapaxes(-1, -2),
):
    """The gradients with some of their parts exchanged."""

    def faulty(grad_output, query, key, value):
        d_k = query.shape[-1]
        weights = softmax(products(query, key) * scale(d_k))
        grad_scores = to_scores(grad_output @ value.swapaxes(-1, -2), weights) * scale_back(d_k)
        grad_value = to_value(weights, grad_scores, grad_output)
        return grad_scores @ key, turn(grad_scores) @ query, grad_value

    return faulty


ATTENTION_BACKWARD = Exercise(
    teaches="a gradient goes back through the same products, transposed, and through the softmax",
    task=(
        "output = softmax(Q K^T / sqrt(d_k)) V, and grad_output (..., n_q, d_v) holds the "
        "derivatives of some number with respect to the output. Return those with respect to "
        "query (..., n_q, d_k), key (..., n_kv, d_k) and value (..., n_kv, d_v), as return "
        "grad_query, grad_key, grad_value. Leading axes are batch axes."
    ),
    difficulty=3,
    minutes=25,
    cases=_backward_cases,
    random_case=_backward_random,
    solution=attention_backward,
    faults=(
        (
            "The scale is missing on the way back. The scores were divided by the square root of "
            "d_k, and so are the gradients that go through them.",
            _backward(scale_back=lambda d_k: 1.0),
        ),
        (
            "The scale is missing, on the way forward and back: the scores are divided by the "
            "square root of d_k.",
            _backward(lambda d_k: 1.0, lambda d_k: 1.0),
        ),
        (
            "You computed the weights without the scale, although you scaled the gradients.",
            _backward(scale=lambda d_k: 1.0),
        ),
        (
            "You scaled the gradient of the scores by 1 / d_k. It is the square root of d_k, once.",
            _backward(scale_back=lambda d_k: 1 / d_k),
        ),
        (
            "You multiplied by the square root of d_k on the way back; divide by it, as forward.",
            _backward(scale_back=lambda d_k: d_k**0.5),
        ),
        (
            "You used the diagonal of the softmax's Jacobian alone, a(1 - a)g. Raising one score "
            "lowers all the other weights of its row: a * (g - sum(a * g)).",
            _backward(to_scores=lambda g, a: a * (1 - a) * g),
        ),
        (
            "Your gradient of the scores is a * g. Subtract sum(a * g) over the row from g first: "
            "raising one score lowers the other weights.",
            _backward(to_scores=lambda g, a: a * g),
        ),
        (
            "You left the softmax out on the way back: the gradient of the scores is "
            "a * (g - sum(a * g)), and not that of the weights.",
            _backward(to_scores=lambda g, a: g),
        ),
        (
            "In the softmax's gradient your sum ran over the queries (axis -2). It runs over the "
            "keys, the last axis.",
            _backward(to_scores=lambda g, a: a * (g - (a * g).sum(axis=-2, keepdims=True))),
        ),
        (
            "In the softmax's gradient you added sum(a * g); subtract it.",
            _backward(to_scores=lambda g, a: a * (g + (a * g).sum(axis=-1, keepdims=True))),
        ),
        (
            "You did not transpose the gradient of the scores for the keys. Key j gathers from all "
            "queries that looked at it: grad_scores.swapaxes(-1, -2) @ query.",
            _backward(turn=lambda a: a),
        ),
        (
            "You did not transpose the weights for the values. Value j gathers from all queries "
            "that looked at it: weights.swapaxes(-1, -2) @ grad_output.",
            _backward(to_value=lambda weights, grad_scores, grad_output: weights @ grad_output),
        ),
        (
            "You made the gradient of the values from that of the scores. The values are mixed by "
            "the weights: weights.swapaxes(-1, -2) @ grad_output.",
            _backward(
                to_value=lambda weights, grad, grad_output: grad.swapaxes(-1, -2) @ grad_output
            ),
        ),
        (
            "You scaled the gradient of the values. They are mixed after the softmax, and the "
            "scale is before it.",
            lambda g, q, k, v: (
                *attention_backward(g, q, k, v)[:2],
                attention_backward(g, q, k, v)[2] / np.sqrt(q.shape[-1]),
            ),
        ),
        (
            "You swapped the gradients of query and key: the one that belongs to the query is "
            "grad_scores @ key.",
            lambda *a: tuple(attention_backward(*a)[i] for i in (1, 0, 2)),
        ),
        (
            "You returned the gradient of the values first. The order is query, key, value.",
            lambda *a: tuple(attention_backward(*a)[i] for i in (2, 0, 1)),
        ),
        (
            ".T reverses all the axes: right for a matrix, wrong with a batch axis in front. Swap "
            "the last two only, swapaxes(-1, -2).",
            _backward(turn=lambda a: a.T),
        ),
        (
            "All your gradients have the wrong sign.",
            lambda *a: tuple(-gradient for gradient in attention_backward(*a)),
        ),
    ),
    hints=(
        "Go backwards through four steps: the mix weights @ value, the softmax, the scale, the "
        "product query @ key^T. A product C = A B sends back grad_C B^T to A and A^T grad_C to B.",
        "`grad_value = weights.swapaxes(-1, -2) @ grad_output` and "
        "`grad_weights = grad_output @ value.swapaxes(-1, -2)`. Through the softmax it becomes "
        "a * (g - sum(a * g)), then the scale comes once more, and `grad_scores @ key` and its "
        "transpose times `query` are the rest.",
    ),
)


def combine(maximum_a, total_a, mixed_a, maximum_b, total_b, mixed_b):
    """The attention output from two halves of the keys, each with maximum, total and mixed."""
    top = np.maximum(maximum_a, maximum_b)
    top = np.where(np.isneginf(top), 0, top)  # a row that met no key in either half
    by_a, by_b = np.exp(maximum_a - top), np.exp(maximum_b - top)  # (n_q,)
    total = by_a * total_a + by_b * total_b
    mixed = by_a[:, None] * mixed_a + by_b[:, None] * mixed_b
    return mixed / np.where(total == 0, 1, total)[:, None]


def _half(rng, n_q, d_v, shift=0.0):
    return draw(rng, n_q) + shift, np.round(rng.uniform(1, 4, size=n_q), 1), draw(rng, n_q, d_v)


def _nothing(n_q, d_v):
    return np.full(n_q, -np.inf), np.zeros(n_q), np.zeros((n_q, d_v))


def _combine_cases():
    rng = np.random.default_rng(20)
    some = _half(rng, 3, 5)
    none_in_row_1 = tuple(x.copy() for x in some)
    for array, value in zip(none_in_row_1, (-np.inf, 0, 0)):
        array[1] = value
    also_none = tuple(x.copy() for x in _half(rng, 3, 5))
    for array, value in zip(also_none, (-np.inf, 0, 0)):
        array[1] = value
    one, far = (np.array([1.0]), np.array([1.0]), np.array([[3.0]])), np.array([1000.0, -1000.0])
    return [
        (*one, np.array([1.0]), np.array([2.0]), np.array([[4.0]])),
        (*one, np.array([0.0]), np.array([1.5]), np.array([[4.0]])),
        (*_half(rng, 2, 2), *_half(rng, 2, 2)),
        (*_half(rng, 2, 3, far), *_half(rng, 2, 3, far)),
        (*some, *_nothing(3, 5)),
        (*none_in_row_1, *also_none),
        (*_half(rng, 4, 6), *_half(rng, 4, 6, 2.0)),
    ]


def _combine_random(rng):
    n_q, d_v = unequal(rng, 2)
    halves = [
        (2 * rng.normal(size=n_q), rng.uniform(1, 4, size=n_q), rng.normal(size=(n_q, d_v)))
        for _ in range(2)
    ]
    return *halves[0], *halves[1]


def _combined(
    factors=lambda a, b: (np.exp(a - np.maximum(a, b)), np.exp(b - np.maximum(a, b))),
    total=lambda by_a, total_a, by_b, total_b: by_a * total_a + by_b * total_b,
    mixed=lambda by_a, mixed_a, by_b, mixed_b: by_a[:, None] * mixed_a + by_b[:, None] * mixed_b,
    divide=lambda mixed, total: mixed / np.where(total == 0, 1, total)[:, None],
    guard=True,
):
    """The combination with some of its parts exchanged."""

    def faulty(maximum_a, total_a, mixed_a, maximum_b, total_b, mixed_b):
        if guard:  # any finite number does: the sums are 0
            unseen = np.isneginf(maximum_a) & np.isneginf(maximum_b)
            maximum_a, maximum_b = (np.where(unseen, 0, m) for m in (maximum_a, maximum_b))
        by_a, by_b = factors(maximum_a, maximum_b)
        return divide(mixed(by_a, mixed_a, by_b, mixed_b), total(by_a, total_a, by_b, total_b))

    return faulty


def _averaged(maximum_a, total_a, mixed_a, maximum_b, total_b, mixed_b):
    outputs = (
        m / np.where(t == 0, 1, t)[:, None] for m, t in ((mixed_a, total_a), (mixed_b, total_b))
    )
    return sum(outputs) / 2


def _ones(a, b):
    return np.ones_like(a), np.ones_like(b)


def _plain_division(mixed, total):
    return mixed / total[:, None]


COMBINE = Exercise(
    teaches="partial softmaxes add up in any grouping: machines can share one row of attention",
    task=(
        "Two machines attended to one half of the keys each. For each of n_q queries, half a found "
        "the largest score maximum_a (n_q,), the sum total_a (n_q,) of exp(score - maximum_a), and "
        "the sum mixed_a (n_q, d_v) of exp(score - maximum_a) times value, not divided; half b "
        "likewise. Return the attention output over all the keys, (n_q, d_v). A query that met no "
        "key in a half has -inf, 0 and 0 there; one that met none at all gets zeros."
    ),
    difficulty=2,
    minutes=12,
    cases=_combine_cases,
    random_case=_combine_random,
    solution=combine,
    faults=(
        (
            "You added the sums as they are. They stand under different maxima: multiply each by "
            "exp(own maximum - the larger of both) first.",
            _combined(factors=_ones),
        ),
        (
            "You averaged the two outputs. Each half counts by the sum of its exponentials, under "
            "one common maximum.",
            _averaged,
        ),
        (
            "You did not divide by the total. Here both halves are in, so the mixture is divided.",
            _combined(divide=lambda mixed, total: mixed),
        ),
        (
            "You multiplied half a alone. Both halves are brought under the larger maximum.",
            _combined(factors=lambda a, b: (np.exp(a - np.maximum(a, b)), np.ones_like(b))),
        ),
        (
            "You multiplied half b alone. Both halves are brought under the larger maximum.",
            _combined(factors=lambda a, b: (np.ones_like(a), np.exp(b - np.maximum(a, b)))),
        ),
        (
            "Your factors are upside down: exp(own maximum - the larger of both) is at most 1.",
            _combined(
                factors=lambda a, b: (np.exp(np.maximum(a, b) - a), np.exp(np.maximum(a, b) - b))
            ),
        ),
        (
            "You brought the mixtures under one maximum and not the totals: both get the factors.",
            _combined(total=lambda by_a, total_a, by_b, total_b: total_a + total_b),
        ),
        (
            "You brought the totals under one maximum and not the mixtures: both get the factors.",
            _combined(mixed=lambda by_a, mixed_a, by_b, mixed_b: mixed_a + mixed_b),
        ),
        (
            "You multiplied by exp(maximum) itself. It overflows at large scores, and is 0 at very "
            "negative ones: subtract the larger maximum from both.",
            _combined(factors=lambda a, b: (np.exp(a), np.exp(b))),
        ),
        (
            "A query that met no key at all gives NaN: -inf - -inf, or 0 / 0. It should be zeros.",
            _combined(divide=_plain_division, guard=False),
        ),
        (
            "You took one maximum for all queries. Each has its own, and a row far below the "
            "others is lost.",
            _combined(
                factors=lambda a, b: (
                    np.exp(a - max(a.max(), b.max())),
                    np.exp(b - max(a.max(), b.max())),
                )
            ),
        ),
        (
            "You returned half a alone, divided.",
            _combined(factors=lambda a, b: (np.ones_like(a), np.zeros_like(b))),
        ),
        (
            "You swapped the factors: exp(maximum_a - the larger of both) belongs to half a.",
            _combined(
                factors=lambda a, b: (np.exp(b - np.maximum(a, b)), np.exp(a - np.maximum(a, b)))
            ),
        ),
        (
            "Your factors are (n_q,), and beside mixed, which has two axes, they meet its last: "
            "give them an axis, [:, None].",
            _combined(mixed=lambda by_a, mixed_a, by_b, mixed_b: by_a * mixed_a + by_b * mixed_b),
        ),
    ),
    hints=(
        "If every exp(score - maximum_a) had been exp(score - M) with a common M, the sums could "
        "simply be added. By what are they to be multiplied for that?",
        "With `top = np.maximum(maximum_a, maximum_b)` the factor of half a is "
        "`np.exp(maximum_a - top)`, for its total and its mixture. Put 0 in the place of a top of "
        "-inf, and 1 in the place of a total of 0.",
    ),
)

EXERCISES = (REORDER_HEADS, SLIDING_WINDOW, ATTENTION_BACKWARD, COMBINE)
