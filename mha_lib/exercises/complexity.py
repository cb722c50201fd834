"""Exercises of the chapter on cost: count, predict, and explain what was measured."""

from itertools import product

import numpy as np

from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.judge import Exercise

COMMON = 5


def _one_or_two(first, second):
    """Sentences of two parts of an answer: all single faults, then pairs of the common ones.

    The right way is "" in both dicts and stands first; the common faults follow.
    """
    singles = [(a, "") for a in first if a] + [("", b) for b in second if b]
    common = (list(faults)[1 : COMMON + 1] for faults in (first, second))
    return singles + [(a, b) for a, b in product(*common)]


def _joined(*sentences):
    return " ".join(filter(None, sentences))


def layer_flops(n_q, n_kv, d_model, num_heads):
    """FLOPs of the matrix products of one layer of attention, a multiply-add counted as 2."""
    d_k = d_model // num_heads
    projections = 2 * (n_q + 2 * n_kv + n_q) * d_model * d_model  # query, key and value, output
    scores = 2 * num_heads * n_q * n_kv * d_k
    return projections + scores + scores  # weights times values cost what the scores cost


def _layer_flops_cases():
    return [
        (1, 2, 2, 1),
        (2, 3, 4, 2),
        (5, 3, 12, 3),
        (4, 7, 30, 5),
        (6, 6, 20, 2),
        (1000, 300, 512, 8),
    ]


def _layer_flops_random(rng):
    n_q, n_kv, d_k, num_heads = unequal(rng, 4)
    return n_q, n_kv, d_k * num_heads, num_heads


# Multiply-adds of the four projections, and of scores and values, as people count them.
PROJECTIONS = {
    "": lambda n_q, n_kv, d, h: 2 * (n_q + n_kv) * d * d,
    "You forgot the output projection: after the heads comes one more product, of (n_q, d_model) "
    "with (d_model, d_model).": lambda n_q, n_kv, d, h: (n_q + 2 * n_kv) * d * d,
    "You gave all four projections n_q rows. Keys and values are made from the n_kv tokens that "
    "are looked at.": lambda n_q, n_kv, d, h: 4 * n_q * d * d,
    "You gave all four projections n_kv rows. Query and output have n_q of them.": (
        lambda n_q, n_kv, d, h: 4 * n_kv * d * d
    ),
    "You gave three projections n_q rows. Both keys and values are made from the n_kv tokens that "
    "are looked at.": lambda n_q, n_kv, d, h: (3 * n_q + n_kv) * d * d,
    "You gave three projections n_kv rows. The output has a row for each query, as the query has: "
    "n_q.": lambda n_q, n_kv, d, h: (n_q + 3 * n_kv) * d * d,
    "You counted no projections. All four belong to the layer: query, key, value and output.": (
        lambda n_q, n_kv, d, h: 0
    ),
    "Your projections cost half of what they should. There are four, and each multiply-add in "
    "them is 2 FLOPs.": lambda n_q, n_kv, d, h: (n_q + n_kv) * d * d,
    "You counted the projections once for each head. One head's have d_k columns, so all the "
    "heads' together cost one product with a (d_model, d_model) matrix.": (
        lambda n_q, n_kv, d, h: 2 * (n_q + n_kv) * d * d * h
    ),
    "You counted the projections of one head, with d_k columns each. All h heads are asked for.": (
        lambda n_q, n_kv, d, h: 2 * (n_q + n_kv) * d * d // h
    ),
    "You gave keys and values one head's width, d_k. Here every head has keys and values of its "
    "own, so together they are d_model wide.": (
        lambda n_q, n_kv, d, h: 2 * n_q * d * d + 2 * n_kv * d * d // h
    ),
    "You left the width of the result out of the projections: (n, d_model) times "
    "(d_model, d_model) is n * d_model * d_model multiply-adds.": (
        lambda n_q, n_kv, d, h: 2 * (n_q + n_kv) * d
    ),
}
CORE = {
    "": lambda n_q, n_kv, d, h: 2 * n_q * n_kv * d,
    "You let each head pay for all of d_model. A head is d_k = d_model / num_heads wide, so the "
    "heads together cost what one of full width costs.": (
        lambda n_q, n_kv, d, h: 2 * n_q * n_kv * d * h
    ),
    "You counted the scores and values of one head. There are num_heads, each d_k wide.": (
        lambda n_q, n_kv, d, h: 2 * n_q * n_kv * d // h
    ),
    "Your scores and values are square, n_q by n_q. Each of n_q queries meets each of n_kv keys.": (
        lambda n_q, n_kv, d, h: 2 * n_q * n_q * d
    ),
    "Your scores and values are square, n_kv by n_kv. Each of n_q queries meets each of n_kv "
    "keys.": lambda n_q, n_kv, d, h: 2 * n_kv * n_kv * d,
    "You counted one product with n_q * n_kv. There are two: queries with keys, and weights with "
    "values.": lambda n_q, n_kv, d, h: n_q * n_kv * d,
    "You left out scores and values, the products of queries with keys and of weights with "
    "values.": lambda n_q, n_kv, d, h: 0,
}
MULTIPLY_ADDS = "You counted multiply-adds. Each is 2 FLOPs, a product and a sum: double it."
ADDITIONS = (
    "You counted one addition less than products in each dot product. True, but the custom, which "
    "the task follows, is 2 FLOPs for each multiply-add, the first as well."
)
SOFTMAX = (
    "You counted the softmax as well, {} operations a weight{}. That is work, but it is no matrix "
    "product, and these alone are asked for."
)
BIASES = "You added biases. This layer has none."


def _products(projections, core, flops=2):
    """FLOPs from two counts of multiply-adds."""
    return lambda *sizes: flops * (projections(*sizes) + core(*sizes))


def _with_additions(n_q, n_kv, d, h):
    projections = (2 * n_q + 2 * n_kv) * d * (2 * d - 1)
    return projections + h * n_q * n_kv * (2 * d // h - 1) + n_q * d * (2 * n_kv - 1)


def _softmax_too(each, sums=0):
    return lambda n_q, n_kv, d, h: (
        layer_flops(n_q, n_kv, d, h) + each * h * n_q * n_kv - sums * h * n_q
    )


def _layer_flops_faults():
    """Faults in the projections, in the rest, or in both; then those with multiply-adds."""
    for p, c in _one_or_two(PROJECTIONS, CORE):
        yield _joined(p, c), _products(PROJECTIONS[p], CORE[c])
    yield MULTIPLY_ADDS, _products(PROJECTIONS[""], CORE[""], flops=1)
    for p, c in _one_or_two(PROJECTIONS, CORE):
        if not (p and c):
            sentence = _joined(p, c, "And each multiply-add is 2 FLOPs: you counted it as one.")
            yield sentence, _products(PROJECTIONS[p], CORE[c], flops=1)


LAYER_FLOPS = Exercise(
    teaches="a layer's arithmetic can be counted from its shapes",
    task=(
        "How many FLOPs do the matrix products of one attention layer take, with n_q queries, "
        "n_kv keys and values, and num_heads heads that share d_model equally? Count the "
        "projections of query, key, value and output, all (d_model, d_model), the scores and the "
        "weighted values; a multiply-add is 2 FLOPs. There are no biases, and what the softmax "
        "does is not counted. Return a whole number."
    ),
    difficulty=1,
    minutes=10,
    cases=_layer_flops_cases,
    random_case=_layer_flops_random,
    solution=layer_flops,
    faults=(
        *_layer_flops_faults(),
        (ADDITIONS, _with_additions),
        *(
            (SOFTMAX.format(n, " less 2 a row" * (sums > 0)), _softmax_too(n, sums))
            for n in (1, 3, 4, 5, 6, 7)
            for sums in ((0, 2) if n >= 5 else (0,))
        ),
        (BIASES, lambda n_q, n_kv, d, h: layer_flops(n_q, n_kv, d, h) + 2 * (n_q + n_kv) * d),
    ),
    hints=(
        "A product of (a, b) with (b, c) takes a * b * c multiply-adds. Write down the shapes of "
        "all six products. Which of them have n_q rows, which n_kv?",
        "Projections: `2 * n_q * d_model**2` FLOPs for the query, the same for the output, and "
        "`2 * n_kv * d_model**2` each for key and value. A head's scores are (n_q, d_k) times "
        "(d_k, n_kv), its values (n_q, n_kv) times (n_kv, d_k), and `num_heads * d_k` is d_model.",
    ),
)


def crossover(d_model, causal):
    """The smallest n at which scores and values cost as many FLOPs as the four projections."""
    if causal:  # n (n + 1) / 2 pairs: n + 1 >= 4 d_model
        return 4 * d_model - 1
    return 2 * d_model  # n * n pairs: 4 n^2 d_model >= 8 n d_model^2


def _crossover_cases():
    return [
        (2, False),
        (2, True),
        (6, False),
        (6, True),
        (64, False),
        (64, True),
        (1000, False),
        (1000, True),
    ]


def _crossover_random(rng):
    return 2 * int(rng.integers(2, 60)), bool(rng.integers(2))


# How much earlier or later the two meet, by what is left out or added on one side.
MEETING = {
    "": 1,
    "You counted three projections. The fourth, the output's, is one more product with "
    "d_model * d_model numbers for each token.": 3 / 4,
    "Your projections cost half of what they should. There are four, of 2 * n * d_model**2 FLOPs "
    "each, and all counts have to be in FLOPs.": 1 / 2,
    "Your scores and values cost half of what they should. These are two products, of "
    "2 * n * n * d_model FLOPs each, and all counts have to be in FLOPs.": 2,
    "You counted one projection of the four: query, key, value and output.": 1 / 4,
    "You added the feed-forward network to the projections. The four alone are asked for.": 3,
}
# The answer without and with the causal mask, where dense scores and projections meet at n.
COUNTING = {
    "": (lambda n: n, lambda n: 2 * n - 1),
    "Your function ignores causal. With the mask only n * (n + 1) / 2 of the pairs are counted, "
    "and the crossover comes later.": (lambda n: n, lambda n: n),
    "You took the causal mask to leave n * n / 2 pairs. It leaves the diagonal as well: "
    "n * (n + 1) / 2, and that shifts your answer by one.": (lambda n: n, lambda n: 2 * n),
    "You counted n * (n - 1) / 2 pairs, without the diagonal. Each token sees itself too: "
    "n * (n + 1) / 2.": (lambda n: n, lambda n: 2 * n + 1),
    "You went on until scores and values cost more than the projections. 'At least as many' is "
    "reached where both are equal: >= and not >.": (lambda n: n + 1, lambda n: 2 * n),
    "You read causal the other way round: True means that only the allowed pairs count.": (
        lambda n: 2 * n - 1,
        lambda n: n,
    ),
    "You went on until scores and values cost more, and 'at least as many' is >= and not >. And "
    "the causal mask leaves n * (n + 1) / 2 pairs, not n * n / 2.": (
        lambda n: n + 1,
        lambda n: 2 * n + 1,
    ),
    "You went on until scores and values cost more, and 'at least as many' is >= and not >. And "
    "the causal mask leaves n * (n + 1) / 2 pairs, the diagonal among them.": (
        lambda n: n + 1,
        lambda n: 2 * n + 2,
    ),
    "You went on until scores and values cost more, and 'at least as many' is >= and not >. And "
    "you ignored causal.": (lambda n: n + 1, lambda n: n + 1),
    "Your answer is the last n at which the projections still cost more. One token later the two "
    "are equal, and that is asked for.": (lambda n: n - 1, lambda n: 2 * n - 2),
    "With causal=True your answer is one too small: n * (n + 1) / 2 pairs, at n = 4 * d_model - 1, "
    "make both sides equal.": (lambda n: n, lambda n: 2 * n - 2),
    "You counted only allowed pairs in both cases. Without the causal mask there are n * n.": (
        lambda n: 2 * n - 1,
        lambda n: 2 * n - 1,
    ),
    "You let the causal mask halve the crossover. It halves the scores and values, so n must be "
    "larger, and not smaller, until they cost as much as the projections.": (
        lambda n: n,
        lambda n: n // 2,
    ),
    "With causal=True you left out the 1/2: the mask leaves n * (n + 1) / 2 pairs.": (
        lambda n: n,
        lambda n: n - 1,
    ),
}


def _meeting(share, counting):
    """The crossover with faults in what is compared and in how pairs are counted."""

    def faulty(d_model, causal):
        return counting[causal](int(2 * share * d_model))

    return faulty


def _crossover_with_softmax(each):
    """The crossover if each weight of a single head cost so many operations more."""

    def faulty(d_model, causal):
        projections, pair = 8 * d_model**2, 4 * d_model + each  # FLOPs over n, and of a pair
        return -(-2 * projections // pair) - 1 if causal else -(-projections // pair)

    return faulty


def _crossover_faults():
    for m, c in _one_or_two(MEETING, COUNTING):
        yield _joined(m, c), _meeting(MEETING[m], COUNTING[c])
    for each in (3, 4, 5):  # fewer move the crossover too little to be seen
        yield (
            f"You counted the softmax as well, {each} operations a weight. Compared are the "
            "matrix products alone: scores and weighted values with the four projections.",
            _crossover_with_softmax(each),
        )


CROSSOVER = Exercise(
    teaches="n has to pass 2 d_model before the quadratic part leads",
    task=(
        "In self-attention over n tokens, scores and weighted values overtake the four projections "
        "(d_model, d_model) as n grows. Return the smallest n, a whole number of 1 or more, at "
        "which these two take at least as many FLOPs as the four. With causal=True only the "
        "pairs that the causal mask allows are counted, n * (n + 1) / 2 of them. A formula or a "
        "search will do."
    ),
    difficulty=2,
    minutes=10,
    cases=_crossover_cases,
    random_case=_crossover_random,
    solution=crossover,
    faults=(
        *_crossover_faults(),
        (
            "You compared with d_model numbers a token and left out the other d_model: a "
            "projection takes 2 * n * d_model**2 FLOPs.",
            lambda d_model, causal: 3 if causal else 2,
        ),
        (
            "Your search starts at n = 0, where nothing costs anything. Start at 1.",
            lambda d_model, causal: 0,
        ),
    ),
    hints=(
        "Write both sides as formulas in n and d_model. Both hold n * d_model: divide by it.",
        "Scores and values take `4 * n * n * d_model` FLOPs, the projections "
        "`8 * n * d_model**2`. With the mask, n * n becomes n * (n + 1) / 2, so `n + 1` stands "
        "where `n` stood, and the other side doubles.",
    ),
)


def kept_bytes(num_layers, d_model, num_heads, num_kv_heads, n, bytes_per_number, tiled):
    """Bytes that attention keeps for the backward pass, for one sequence of n tokens."""
    d_k = d_model // num_heads
    query = heads = n * d_model
    key = value = n * num_kv_heads * d_k
    weights = num_heads * n * (1 if tiled else n)  # tiled: one log-sum-exp for a row of weights
    return num_layers * (query + key + value + heads + weights) * bytes_per_number


def _kept_bytes_cases():
    return [
        (1, 4, 2, 1, 3, 2, False),
        (1, 4, 2, 1, 3, 2, True),
        (2, 12, 6, 2, 5, 4, False),
        (2, 12, 6, 2, 5, 4, True),
        (3, 40, 4, 4, 7, 2, False),
        (3, 40, 4, 4, 7, 2, True),
        (80, 8192, 64, 8, 4096, 2, False),
        (80, 8192, 64, 8, 4096, 2, True),
    ]


def _kept_bytes_random(rng):
    num_layers, d_k, num_kv_heads, group, n = unequal(rng, 5)
    num_heads, tiled = num_kv_heads * group, bool(rng.integers(2))
    return num_layers, d_k * num_heads, num_heads, num_kv_heads, n, 2, tiled


# Numbers kept in a layer: query, key, value and heads; and weights or what stands for them.
KEPT = {
    "": lambda d, h, h_kv, n: 2 * n * d + 2 * n * h_kv * (d // h),
    "You gave keys and values d_model numbers a token, as if every query head had its own. There "
    "are num_kv_heads of them, each d_k = d_model / num_heads wide.": (
        lambda d, h, h_kv, n: 4 * n * d
    ),
    "You counted the keys and values of one head. There are num_kv_heads.": (
        lambda d, h, h_kv, n: 2 * n * d + 2 * n * (d // h)
    ),
    "You gave each key and value head all of d_model. It is d_k = d_model / num_heads wide.": (
        lambda d, h, h_kv, n: 2 * n * d + 2 * n * h_kv * d
    ),
    "You counted keys or values, and both are kept.": (
        lambda d, h, h_kv, n: 2 * n * d + n * h_kv * (d // h)
    ),
    "You counted query or heads, and both are kept: the query, and the heads side by side, which "
    "the output projection needs.": lambda d, h, h_kv, n: n * d + 2 * n * h_kv * (d // h),
    "You left out query and heads, n * d_model numbers each.": (
        lambda d, h, h_kv, n: 2 * n * h_kv * (d // h)
    ),
    "You gave query and heads d_model numbers in each head. d_model is all the heads together.": (
        lambda d, h, h_kv, n: 2 * n * d * h + 2 * n * h_kv * (d // h)
    ),
    "You counted the layer's input as well. It is kept too, but the task asks for what comes "
    "after the projections: query, key, value, heads and weights.": (
        lambda d, h, h_kv, n: 3 * n * d + 2 * n * h_kv * (d // h)
    ),
    "You counted the weights alone, or what stands for them. Query, key, value and heads are kept "
    "as well.": lambda d, h, h_kv, n: 0,
}
INSTEAD = {
    "": lambda h, h_kv, n, tiled: h * n * (1 if tiled else n),
    "You counted the weights of one head. Each of the num_heads heads has n * n of its own, and "
    "tiled, n log-sum-exps.": lambda h, h_kv, n, tiled: n * (1 if tiled else n),
    "You counted weights for each key and value head. These are shared, but each of the num_heads "
    "query heads has weights of its own.": (
        lambda h, h_kv, n, tiled: h_kv * n * (1 if tiled else n)
    ),
    "You forgot the log-sum-exp: tiled attention keeps one number for each row of each head.": (
        lambda h, h_kv, n, tiled: 0 if tiled else h * n * n
    ),
    "You counted one log-sum-exp for each token. Every head has its own: num_heads * n.": (
        lambda h, h_kv, n, tiled: n if tiled else h * n * n
    ),
    "You counted the weights of one head. Each of the num_heads heads has n * n of its own.": (
        lambda h, h_kv, n, tiled: h * n if tiled else n * n
    ),
    "You counted weights for each key and value head. These are shared, but each of the num_heads "
    "query heads has n * n weights of its own.": (
        lambda h, h_kv, n, tiled: h * n if tiled else h_kv * n * n
    ),
    "You kept two numbers a row when tiled, maximum and total. They are kept as one, the "
    "log-sum-exp, which is maximum + log(total).": (
        lambda h, h_kv, n, tiled: h * n * (2 if tiled else n)
    ),
    "You kept the scores and the weights. The backward pass needs the weights only: the softmax's "
    "gradient is made from its output.": (
        lambda h, h_kv, n, tiled: h * n * (1 if tiled else 2 * n)
    ),
    "You read tiled the other way round. It is the tiled form that keeps no weights.": (
        lambda h, h_kv, n, tiled: h * n * (n if tiled else 1)
    ),
    "Your function ignores tiled and counts the weights always. Tiled attention never stores them, "
    "it keeps a log-sum-exp for each row and head.": lambda h, h_kv, n, tiled: h * n * n,
    "You left out the weights: unless it is tiled, each head keeps n * n of them.": (
        lambda h, h_kv, n, tiled: h * n if tiled else 0
    ),
    "Your function counts the log-sum-exps always. Unless tiled, n * n weights a head are kept, "
    "in their place.": lambda h, h_kv, n, tiled: h * n,
    "You counted neither weights nor log-sum-exps. Each head keeps n * n weights, or, tiled, one "
    "log-sum-exp for each of its n rows.": lambda h, h_kv, n, tiled: 0,
    "Tiled, you counted the log-sum-exps beside the weights. They stand in place of the weights, "
    "which are never stored.": lambda h, h_kv, n, tiled: h * n * (n + 1 if tiled else n),
    "You counted weights and log-sum-exps. It is one or the other: the weights, or, tiled, the "
    "log-sum-exps.": lambda h, h_kv, n, tiled: h * n * (1 if tiled else n + 1),
    "You counted the weights that a causal mask allows. What is stored is the whole matrix, n * n "
    "for each head, zeros and all.": (
        lambda h, h_kv, n, tiled: h * n if tiled else h * n * (n + 1) // 2
    ),
}
SCALES = {
    "You counted one layer. Each of the num_layers layers keeps its own.": (
        lambda layers, b: 1 / layers
    ),
    "You counted numbers. Each takes bytes_per_number bytes.": lambda layers, b: 1 / b,
    "You counted the numbers of one layer. Multiply by num_layers and by bytes_per_number.": (
        lambda layers, b: 1 / (layers * b)
    ),
    "You counted bits. The argument is in bytes already.": lambda layers, b: 8,
    "Your answer is in GiB, 2**30 bytes. Bytes are asked for.": lambda layers, b: 2.0**-30,
    "Your answer is in MiB, 2**20 bytes. Bytes are asked for.": lambda layers, b: 2.0**-20,
    "You divided by bytes_per_number. Each number takes so many bytes: multiply.": (
        lambda layers, b: 1 / b**2
    ),
}


def _kept(kept, instead, scale=lambda layers, b: 1):
    """Bytes kept, from what is counted beside the weights, in their place, and in what unit."""

    def faulty(num_layers, d_model, num_heads, num_kv_heads, n, bytes_per_number, tiled):
        numbers = kept(d_model, num_heads, num_kv_heads, n)
        numbers += instead(num_heads, num_kv_heads, n, tiled)
        return num_layers * numbers * bytes_per_number * scale(num_layers, bytes_per_number)

    return faulty


def _log_sum_exps_of_4_bytes(layers, d_model, num_heads, num_kv_heads, n, each, tiled):
    kept = kept_bytes(layers, d_model, num_heads, num_kv_heads, n, each, tiled)
    return kept + (layers * num_heads * n * (4 - each) if tiled else 0)


def _kept_faults():
    for k, i in _one_or_two(KEPT, INSTEAD):
        yield _joined(k, i), _kept(KEPT[k], INSTEAD[i])
    for sentence, scale in SCALES.items():
        yield sentence, _kept(KEPT[""], INSTEAD[""], scale)
    yield (
        "You gave each log-sum-exp 4 bytes, whatever bytes_per_number is. Kernels often do that, "
        "but here every number takes bytes_per_number bytes, the log-sum-exps too.",
        _log_sum_exps_of_4_bytes,
    )


KEPT_BYTES = Exercise(
    teaches="training keeps n x n weights, unless it runs in tiles",
    task=(
        "How many bytes does attention keep for the backward pass of one sequence of n tokens, in "
        "all num_layers layers together? Each layer keeps its query, key and value after the "
        "projections, its heads side by side before the output projection, and the weights of "
        "every query head. Key and value have num_kv_heads heads, the query num_heads, all of "
        "width d_model / num_heads. If tiled, no weights are kept, and in their place one "
        "log-sum-exp for each row of each query head. Every number takes bytes_per_number bytes, "
        "the log-sum-exps too. Return a whole number."
    ),
    difficulty=2,
    minutes=15,
    cases=_kept_bytes_cases,
    random_case=_kept_bytes_random,
    solution=kept_bytes,
    faults=tuple(_kept_faults()),
    hints=(
        "List what one layer keeps, array by array, with the shape of each. Which of them have "
        "num_heads heads, and which num_kv_heads?",
        "Query and heads are `n * d_model` numbers each, key and value "
        "`n * num_kv_heads * d_model // num_heads` each. The weights are `num_heads * n * n`, the "
        "log-sum-exps `num_heads * n`. Add up, then multiply by layers and bytes.",
    ),
)


def online_step(maximum, total, mixed, scores, values):
    """Take one more tile of keys into a softmax that is not finished: new maximum, total, mixed."""
    top = np.maximum(maximum, scores.max(axis=-1))  # (n_q,)
    finite = np.where(np.isneginf(top), 0, top)  # only hidden scores so far: -inf - 0, not NaN
    shrink = np.exp(maximum - finite)  # what the old sums are worth under the new maximum
    weights = np.exp(scores - finite[:, None])  # (n_q, tile)
    total = shrink * total + weights.sum(axis=-1)
    return top, total, shrink[:, None] * mixed + weights @ values


def _first(n_q, d_v):
    """Maximum, total and mixed before the first tile."""
    return np.full(n_q, -np.inf), np.zeros(n_q), np.zeros((n_q, d_v))


def _online_step_cases():
    rng = np.random.default_rng(5)
    one = np.array([1.0]), np.array([1.0]), np.array([[3.0]])
    hidden = np.array([[0.5, -1.2], [-np.inf, -np.inf], [0.7, -np.inf]])
    waiting = np.array([0.3, -np.inf, -np.inf]), np.array([1.4, 0, 0]), np.array([[2.0], [0], [0]])
    later = np.array([[-np.inf] * 4, [0.2, -0.4, 1.1, 0.6], [-np.inf, 0.9, -np.inf, -0.3]])
    running = np.array([0.5, -2.0]), np.array([1.5, 2.5]), draw(rng, 2, 4)
    far = np.array([990.0, -990.0]), np.array([1.5, 2.5]), draw(rng, 2, 3)
    large = np.array([[1000.0, 999.0], [-1000.0, -1001.0]])
    square = draw(rng, 3), np.array([1.5, 2.0, 1.2]), draw(rng, 3, 3)
    wide = draw(rng, 4), np.array([1.5, 2.0, 1.2, 3.1]), draw(rng, 4, 6)
    return [
        (*_first(1, 1), np.array([[2.0]]), np.array([[3.0]])),
        (*one, np.array([[0.0]]), np.array([[5.0]])),
        (*one, np.array([[2.0]]), np.array([[5.0]])),
        (*_first(2, 4), draw(rng, 2, 3), draw(rng, 3, 4)),
        (*running, draw(rng, 2, 3), draw(rng, 3, 4)),
        (*_first(3, 5), hidden, draw(rng, 2, 5)),
        (*waiting, later, draw(rng, 4, 1)),
        (*far, large, draw(rng, 2, 3)),
        (*square, draw(rng, 3, 3), draw(rng, 3, 3)),
        (*wide, draw(rng, 4, 5), draw(rng, 5, 6)),
    ]


def _online_step_random(rng):
    n_q, tile, d_v = unequal(rng, 3)
    scores = np.where(rng.random((n_q, tile)) < 0.8, 3 * rng.normal(size=(n_q, tile)), -np.inf)
    maximum, total = rng.normal(size=n_q), rng.uniform(0.5, 4, size=n_q)
    return maximum, total, rng.normal(size=(n_q, d_v)), scores, rng.normal(size=(tile, d_v))


def _larger(maximum, scores):
    return np.maximum(maximum, scores.max(axis=-1))


def _finite(top):
    return np.where(np.isneginf(top), 0, top)


def _step(
    top=_larger,
    shrink=lambda maximum, new: np.exp(maximum - new),
    weights=lambda maximum, new, scores: np.exp(scores - new[:, None]),
    total=lambda old, shrink, weights: shrink * old + weights.sum(axis=-1),
    mixed=lambda old, shrink, weights, values: shrink[:, None] * old + weights @ values,
    guard=_finite,
):
    """The step with some of its parts exchanged."""

    def faulty(maximum, old_total, old_mixed, scores, values):
        new = top(maximum, scores)
        by = shrink(maximum, guard(new))
        seen = weights(maximum, guard(new), scores)
        return new, total(old_total, by, seen), mixed(old_mixed, by, seen, values)

    return faulty


def _returned(turn, guard=_finite):
    """The right step, its answer turned: turn(answer, arguments)."""
    return lambda *arguments: turn(_step(guard=guard)(*arguments), arguments)


def _divided(answer, _):
    top, total, mixed = answer
    return top, total, mixed / total[:, None]


def _divided_where_seen(answer, _):
    top, total, mixed = answer
    return top, total, mixed / np.where(total == 0, 1, total)[:, None]


def _divided_before(guard):
    """Takes the old mixture for divided already, and divides the new one again."""

    def faulty(maximum, total, mixed, scores, values):
        return _divided(
            _step(guard=guard)(maximum, total, total[:, None] * mixed, scores, values), ()
        )

    return faulty


def _by_ratio_of_totals(guard):
    """Shrinks the old mixture by old total / new total."""

    def faulty(maximum, total, mixed, scores, values):
        nothing = np.zeros_like(mixed)
        top, new, tile = _step(guard=guard)(maximum, total, nothing, scores, values)
        return top, new, (total / new)[:, None] * mixed + tile

    return faulty


def _own_maximum(guard):
    """A tile's weights under its own maximum."""
    return lambda maximum, new, scores: np.exp(scores - guard(scores.max(axis=-1))[:, None])


OWN_MAXIMUM = (
    "You subtracted the tile's own maximum from the tile's scores, and the new maximum may be "
    "larger. Subtract the new one: all sums have to stand under the same."
)
NAN = (
    "A row whose scores are all hidden so far gives NaN: its maximum is still -inf, and "
    "-inf - -inf is NaN. Subtract 0 in place of -inf there."
)
DIVIDED_BEFORE = (
    "You took the old mixed for divided, multiplied it by the old total and divided by the new. "
    "mixed is an undivided sum: shrink it and add, as with total."
)
TOTALS_RATIO = (
    "You multiplied mixed by old total / new total. mixed is an undivided sum, so what it is "
    "multiplied by is exp(old maximum - new maximum), as total is."
)
FAULTY_STEPS = {
    "You did not shrink mixed. Its weights were made under the old maximum: multiply by "
    "exp(old maximum - new maximum), as you do with total.": {
        "mixed": lambda old, shrink, weights, values: old + weights @ values
    },
    "You did not shrink total. It was summed under the old maximum: multiply by "
    "exp(old maximum - new maximum), as you do with mixed.": {
        "total": lambda old, shrink, weights: old + weights.sum(axis=-1)
    },
    "You did not shrink total and mixed. Both were summed under the old maximum: multiply by "
    "exp(old maximum - new maximum).": {"shrink": lambda maximum, new: np.ones_like(new)},
    "Your new maximum is the tile's alone. It is the larger of that and the old one.": {
        "top": lambda maximum, scores: scores.max(axis=-1)
    },
    "You forgot the old total. Shrink it, and add the tile's sum.": {
        "total": lambda old, shrink, weights: weights.sum(axis=-1)
    },
    "You forgot the old mixed. Shrink it, and add the tile's weights times values.": {
        "mixed": lambda old, shrink, weights, values: weights @ values
    },
    "You forgot the old total and the old mixed. Shrink both, and add the tile's sums.": {
        "shrink": lambda maximum, new: np.zeros_like(new)
    },
    "You subtracted no maximum from the tile's scores: exp overflows, and total and mixed stand "
    "under different ones. Subtract the new maximum.": {
        "weights": lambda maximum, new, scores: np.exp(scores)
    },
    "You divided the tile's weights by their own sum. That belongs to the very end: here only "
    "add up.": {
        "mixed": lambda old, shrink, weights, values: (
            shrink[:, None] * old + weights / weights.sum(axis=-1, keepdims=True) @ values
        )
    },
    "You shrank the tile's weights as well. They stand under the new maximum already; only the "
    "old sums shrink.": {
        "weights": lambda maximum, new, scores: np.exp(scores + maximum[:, None] - 2 * new[:, None])
    },
    "You shrank the tile's sums in place of the old ones. The tile stands under the new maximum "
    "already; it is the old total and mixed that shrink.": {
        "total": lambda old, shrink, weights: old + shrink * weights.sum(axis=-1),
        "mixed": lambda old, shrink, weights, values: old + shrink[:, None] * (weights @ values),
    },
    "You counted keys in total: it is the sum of the tile's exponentials, and not their number.": {
        "total": lambda old, shrink, weights: shrink * old + weights.shape[-1]
    },
}
FAULTY_ANYWAY = {  # hidden rows give the same with and without -inf guarded
    "You shrink upside down: it is exp(old maximum - new maximum), which is never above 1.": {
        "shrink": lambda maximum, new: np.exp(new - maximum)
    },
    "You subtracted no maximum at all. exp overflows, and the old sums do not fit, which came with "
    "theirs subtracted: shrink these, and subtract the new maximum from the tile's scores.": {
        "shrink": lambda maximum, new: np.ones_like(new),
        "weights": lambda maximum, new, scores: np.exp(scores),
    },
    OWN_MAXIMUM: {"weights": _own_maximum(_finite)},
    "You subtracted the old maximum from the tile's scores. Subtract the new one: on the first "
    "tile the old one is -inf.": {
        "weights": lambda maximum, new, scores: np.exp(scores - maximum[:, None])
    },
    "You took one maximum for all the rows. Each query has its own: axis -1.": {
        "top": lambda maximum, scores: np.maximum(maximum, scores.max())
    },
}
FAULTY_AXES = {
    "The new maximum is (n_q,), and scores - maximum lines it up with the keys. Give it an axis, "
    "maximum[:, None].": {"weights": lambda maximum, new, scores: np.exp(scores - new)},
    "What mixed is multiplied by is (n_q,), and it meets the features of mixed. Give it an axis, "
    "[:, None].": {"mixed": lambda old, shrink, weights, values: shrink * old + weights @ values},
    "Maxima and factors are (n_q,), and beside scores and mixed, which have two axes, they meet "
    "the last. Give them an axis, [:, None].": {
        "weights": lambda maximum, new, scores: np.exp(scores - new),
        "mixed": lambda old, shrink, weights, values: shrink * old + weights @ values,
    },
}
FAULTY_RETURNS = {
    "You divided by total. mixed stays undivided from tile to tile; it is divided once, after the "
    "last.": _divided,
    "You returned the old maximum. The next tile needs the new one.": lambda answer, arguments: (
        arguments[0],
        *answer[1:],
    ),
    "You returned mixed first. The order is that of the arguments: maximum, total, mixed.": (
        lambda answer, arguments: answer[::-1]
    ),
    "You returned total first. The order is that of the arguments: maximum, total, mixed.": (
        lambda answer, arguments: (answer[1], answer[0], answer[2])
    ),
    "Your maximum and total have an axis of size 1 at the end. Inside that helps; return them as "
    "they came, (n_q,).": lambda answer, arguments: (*(x[:, None] for x in answer[:2]), answer[2]),
}


def _online_step_faults():
    """Each fault by itself, then in a function that gives NaN for hidden rows besides."""
    for besides, guard in (("", _finite), (NAN, lambda top: top)):
        for sentence, parts in FAULTY_STEPS.items():
            yield _joined(sentence, besides), _step(**parts, guard=guard)
        for sentence, turn in FAULTY_RETURNS.items():
            yield _joined(sentence, besides), _returned(turn, guard)
        yield _joined(DIVIDED_BEFORE, besides), _divided_before(guard)
        yield _joined(TOTALS_RATIO, besides), _by_ratio_of_totals(guard)
    for sentence, parts in (FAULTY_ANYWAY | FAULTY_AXES).items():
        yield sentence, _step(**parts)
    yield _joined(OWN_MAXIMUM, NAN), _step(weights=_own_maximum(lambda top: top), guard=lambda t: t)
    yield NAN, _step(guard=lambda top: top)
    yield (
        "You divided by total where that is not 0. mixed stays undivided from tile to tile; it is "
        "divided once, after the last.",
        _returned(_divided_where_seen),
    )
    yield (
        "You returned a finite number as the maximum of a row that has seen nothing. It stays "
        "-inf, so that any score of the next tile is larger.",
        _returned(lambda answer, _: (_finite(answer[0]), *answer[1:])),
    )
    yield (
        "You returned a finite number as the maximum of a row that has seen nothing, however low "
        "it is. It stays -inf.",
        _returned(lambda answer, _: (np.maximum(answer[0], -1e30), *answer[1:])),
    )


ONLINE_STEP = Exercise(
    teaches="a softmax can be taken in pieces, if old sums are shrunk",
    task=(
        "Attention takes its keys tile by tile. So far, each of n_q queries has the largest score "
        "it met, maximum (n_q,), the sum of exp(score - maximum), total (n_q,), and the sum of "
        "exp(score - maximum) times value, mixed (n_q, d_v), not divided by total. Now comes a "
        "tile: scores (n_q, tile), scaled and masked already, and values (tile, d_v). Return the "
        "three after this tile, as return maximum, total, mixed. Before the first tile they are "
        "-inf, 0 and 0. Hidden scores are -inf, and a row that has met no others keeps -inf, 0 "
        "and 0."
    ),
    difficulty=3,
    minutes=20,
    cases=_online_step_cases,
    random_case=_online_step_random,
    solution=online_step,
    faults=tuple(_online_step_faults()),
    hints=(
        "If the maximum rises from m to M, every exp(score - m) in the old sums should have been "
        "exp(score - M). By what are they to be multiplied?",
        "The new maximum is `np.maximum(maximum, scores.max(axis=-1))`. Multiply the old total and "
        "mixed by `np.exp(maximum - new)`, and add the sum of `np.exp(scores - new[:, None])` and "
        "its product with `values`. Where new is still -inf, subtract 0 in its place: "
        "`np.where(np.isneginf(new), 0, new)`.",
    ),
)


def explain(flops, bytes_moved, seconds, peak, bandwidth):
    """Which points are memory-bound, and the share of the roofline's speed that each reached."""
    computing = flops / peak  # seconds, if only arithmetic took time
    moving = bytes_moved / bandwidth
    predicted = np.maximum(computing, moving)  # both at once: the slower one decides
    return moving > computing, predicted / seconds


def _explain_cases():
    return [
        (np.array([30.0]), np.array([4.0]), np.array([0.8]), 100.0, 10.0),
        (np.array([90.0]), np.array([4.0]), np.array([1.5]), 100.0, 10.0),
        (
            np.array([0.2, 2.0, 8.0]),
            np.array([0.25, 0.5, 0.75]),
            np.array([0.04, 0.05, 0.09]),
            150.0,
            12.0,
        ),
        (
            np.array([60.0, 240.0, 960.0, 3840.0]),
            np.array([3.0, 5.0, 2.0, 4.0]),
            np.array([0.0025, 0.0015, 0.0012, 0.008]),
            800_000.0,
            3000.0,
        ),
        (
            np.array([0.1, 0.4, 1.6, 6.4, 25.6]),  # naive, and at last in tiles
            np.array([0.02, 0.075, 0.29, 1.15, 0.4]),
            np.array([0.0025, 0.005, 0.04, 0.125, 0.5]),
            90.0,
            8.0,
        ),
    ]


def _explain_random(rng):
    (n,) = unequal(rng, 1)
    flops, moved, seconds = np.exp(rng.normal(size=(3, n)))
    return flops * 20, moved, seconds, float(rng.uniform(50, 200)), float(rng.uniform(5, 20))


# Whether a point is memory-bound, and what share it reached, as people work them out.
BOUND = {
    "": lambda f, b, s, peak, bandwidth: b / bandwidth > f / peak,
    "You marked the points where computing takes longer. Memory-bound are those where moving the "
    "bytes does.": lambda f, b, s, peak, bandwidth: b / bandwidth < f / peak,
    "You compared FLOPs per byte with bandwidth / peak. The ridge has the units of FLOPs per byte "
    "as well: peak / bandwidth.": lambda f, b, s, peak, bandwidth: f / b < bandwidth / peak,
    "You compared bytes per FLOP with peak / bandwidth, which is FLOPs per byte. Turn one of them "
    "over.": lambda f, b, s, peak, bandwidth: b / f < peak / bandwidth,
    "You called a point memory-bound where its time is above flops / peak. Whether it is says "
    "nothing of speed: compare bytes_moved / bandwidth with flops / peak.": (
        lambda f, b, s, peak, bandwidth: s > f / peak
    ),
    "You compared FLOPs with bytes as they are. They become comparable as times, each divided by "
    "its own speed.": lambda f, b, s, peak, bandwidth: b > f,
    "You returned ones and zeros for memory-bound. Leave the comparison's True and False.": (
        lambda f, b, s, peak, bandwidth: (b / bandwidth > f / peak) * 1.0
    ),
    "You gave one answer for the whole curve. Each point is memory-bound or not by itself.": (
        lambda f, b, s, peak, bandwidth: np.full(f.shape, b.sum() / bandwidth > f.sum() / peak)
    ),
}
SHARE = {
    "": lambda f, b, s, peak, bandwidth: np.maximum(f / peak, b / bandwidth) / s,
    "Your share is upside down: predicted seconds / measured seconds, so that half the speed "
    "is 0.5.": lambda f, b, s, peak, bandwidth: s / np.maximum(f / peak, b / bandwidth),
    "You added the times of computing and moving. On the roofline both happen at once, and the "
    "longer one is the prediction.": lambda f, b, s, peak, bandwidth: (
        (f / peak + b / bandwidth) / s
    ),
    "You took the shorter of the two times. The slower of computing and moving decides: the "
    "longer time.": lambda f, b, s, peak, bandwidth: np.minimum(f / peak, b / bandwidth) / s,
    "Your share is one of the peak. Where memory is the limit, the roofline lies below the peak: "
    "predict with the longer of the two times.": lambda f, b, s, peak, bandwidth: f / peak / s,
    "Your share is one of the bandwidth. Where computing is the limit, that cannot be reached: "
    "predict with the longer of the two times.": lambda f, b, s, peak, bandwidth: b / bandwidth / s,
    "Your share is in percent. Leave it a fraction, where 1 is the roofline.": (
        lambda f, b, s, peak, bandwidth: 100 * np.maximum(f / peak, b / bandwidth) / s
    ),
    "You cut shares off at 1. One above 1 is a finding: the counted bytes were not all moved, or "
    "peak or bandwidth is larger than you were told. Let it be seen.": (
        lambda f, b, s, peak, bandwidth: np.minimum(np.maximum(f / peak, b / bandwidth) / s, 1)
    ),
    "You returned the predicted seconds. Divide them by those measured.": (
        lambda f, b, s, peak, bandwidth: np.maximum(f / peak, b / bandwidth)
    ),
    "You returned the speed that was measured. Divide it by the speed that the roofline allows.": (
        lambda f, b, s, peak, bandwidth: f / s
    ),
    "Your share is what is lost, 1 - predicted / measured. Asked for is what was reached.": (
        lambda f, b, s, peak, bandwidth: 1 - np.maximum(f / peak, b / bandwidth) / s
    ),
    "You divided by min(peak, bandwidth), and these are GFLOP/s and GB/s. The speed that the "
    "bandwidth allows is bandwidth * flops / bytes_moved: take the smaller of that and peak.": (
        lambda f, b, s, peak, bandwidth: f / s / min(peak, bandwidth)
    ),
}


def _explained(bound, share):
    return lambda *arguments: (bound(*arguments), share(*arguments))


def _explain_faults():
    for b, s in _one_or_two(BOUND, SHARE):
        yield _joined(b, s), _explained(BOUND[b], SHARE[s])
    yield (
        "You returned the share first. The order is memory-bound, share.",
        lambda *arguments: explain(*arguments)[::-1],
    )


EXPLAIN = Exercise(
    teaches="a point's speed is judged against what the machine could do there",
    task=(
        "A curve was measured: for each of its points the arrays flops (GFLOP), bytes_moved (GB) "
        "and seconds. The machine reaches peak GFLOP/s and bandwidth GB/s. Return two arrays, as "
        "return memory_bound, share: True where the roofline says that moving the bytes takes "
        "longer than the arithmetic, and the share of the roofline's speed that each point "
        "reached, which is the seconds that the roofline predicts over those that were measured. "
        "The roofline takes computing and moving to happen at the same time."
    ),
    difficulty=2,
    minutes=15,
    cases=_explain_cases,
    random_case=_explain_random,
    solution=explain,
    faults=tuple(_explain_faults()),
    hints=(
        "How long would the arithmetic take at full speed, and how long the moving? If both happen "
        "at the same time, when is the work done?",
        "`flops / peak` and `bytes_moved / bandwidth` are seconds. A point is memory-bound where "
        "the second is larger, and `np.maximum` of the two is the prediction. Divide it by "
        "`seconds`.",
    ),
)

EXERCISES = (LAYER_FLOPS, CROSSOVER, KEPT_BYTES, ONLINE_STEP, EXPLAIN)
