"""Exercises of the chapter on expressiveness: bounds, constructions and a counterexample."""

import numpy as np

from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.faulty import bare_softmax_over
from mha_lib.exercises.judge import Exercise
from mha_lib.exercises.masking import NUMBERS
from mha_lib.exercises.single_head import softmax
from mha_lib.expressiveness.tasks import signs

CORNERS = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def distances_to_line(points, normal, offset):
    """How far each of the points (n, 2) lies from the line {z : normal . z = offset}."""
    return np.abs(points @ normal - offset) / np.linalg.norm(normal)


def _distances_cases():
    rng = np.random.default_rng(14)
    return [
        (CORNERS[:1], np.array([1.0, 0.0]), 3.0),
        (CORNERS, np.array([1.0, 0.0]), 0.0),
        (CORNERS, np.array([3.0, 4.0]), 5.0),
        (CORNERS, np.array([-0.5, 0.5]), 0.25),
        (draw(rng, 5, 2), draw(rng, 2), -0.7),
    ]


def _distances_random(rng):
    (n,) = unequal(rng, 1, lowest=3)
    return rng.normal(size=(n, 2)), rng.normal(size=2) + 2, rng.normal()


DISTANCES_TO_LINE = Exercise(
    teaches="the answers of one head lie on a line, and no line passes near four corners",
    task=(
        "A line is the set of z with normal . z = offset; normal, shape (2,), stands at right "
        "angles to it and may have any length but 0. Return the distance of each of points, "
        "shape (n, 2), from the line, shape (n,)."
    ),
    difficulty=1,
    minutes=6,
    cases=_distances_cases,
    random_case=_distances_random,
    solution=distances_to_line,
    faults=(
        (
            "You did not divide by the length of normal, so a longer normal makes the same line "
            "look farther away: divide by np.linalg.norm(normal).",
            lambda points, normal, offset: np.abs(points @ normal - offset),
        ),
        (
            "You divided by the square of normal's length; divide by the length itself.",
            lambda points, normal, offset: np.abs(points @ normal - offset) / (normal @ normal),
        ),
        (
            "You gave normal the length 1 and left offset as it was. Dividing by the length turns "
            "normal . z = offset into another line unless both sides are divided.",
            lambda points, normal, offset: np.abs(
                points @ (normal / np.linalg.norm(normal)) - offset
            ),
        ),
        (
            "Your distances carry a sign, which says on which side a point lies. A distance is not "
            "negative: np.abs.",
            lambda points, normal, offset: (points @ normal - offset) / np.linalg.norm(normal),
        ),
        (
            "Your distances have the wrong sign on one side and the other: subtract offset from "
            "normal . z, and take np.abs, since a distance is not negative.",
            lambda points, normal, offset: (offset - points @ normal) / np.linalg.norm(normal),
        ),
        (
            "You squared the distances. The theorem does that; here the distances themselves are "
            "asked for.",
            lambda *arguments: distances_to_line(*arguments) ** 2,
        ),
        (
            "You added offset. A point on the line has normal . z = offset, so it is the "
            "difference that must be 0 there.",
            lambda points, normal, offset: distances_to_line(points, normal, -offset),
        ),
        (
            "You left offset out, as if every line passed through the origin.",
            lambda points, normal, offset: distances_to_line(points, normal, 0.0),
        ),
        (
            "You took normal for the direction of the line. It stands at right angles to it: the "
            "distance is measured along normal.",
            lambda points, normal, offset: distances_to_line(
                points, np.array([-normal[1], normal[0]]), offset
            ),
        ),
        (
            "You divided by the sum of normal's entries without their signs. Its length is the "
            "root of the sum of squares: np.linalg.norm(normal).",
            lambda points, normal, offset: np.abs(points @ normal - offset) / np.abs(normal).sum(),
        ),
    ),
    hints=(
        "On the line normal . z - offset is 0. By how much does it change along a step of length "
        "1 at right angles to the line?",
        "`points @ normal - offset` is 0 on the line and grows by `np.linalg.norm(normal)` with "
        "each unit of distance. Divide by that, and take `np.abs`.",
    ),
)


def copy_bits(bits, beta):
    """What k heads answer, head i with score beta on token i and -beta on the others: (N, k)."""
    k = bits.shape[1]
    scores = beta * (2 * np.eye(k) - 1)  # (h, n): a row for each head, d_k = 1
    scores = scores - scores.max(axis=1, keepdims=True)
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return bits @ weights.T  # slot i: the bits mixed by head i


def _copy_bits_cases():
    return [
        (np.array([[1.0, -1.0]]), 0.5),
        (np.array([[1.0, -1.0]]), 0.0),
        (CORNERS, 2.0),
        (CORNERS, 1000.0),
        (signs(3)[1:7], 0.5),
        (signs(4)[3:11], 1.0),
    ]


def _copy_bits_random(rng):
    k, n = unequal(rng, 2)
    return rng.choice([-1.0, 1.0], size=(n, k)), rng.uniform(0.2, 2)


def _copied(weights):
    """The bits, mixed by the rows of weights(k, beta)."""
    return lambda bits, beta: bits @ weights(bits.shape[1], beta).T


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _two_token_weights(k, gap):
    """The weights of two tokens whose scores differ by gap, given to k."""
    own, other = _sigmoid(gap), _sigmoid(-gap)
    return other + (own - other) * np.eye(k)


def _rest_shared(k, gap):
    """A weight of sigmoid(gap), and what is left in equal shares for the other tokens."""
    own, other = _sigmoid(gap), _sigmoid(-gap) / (k - 1)
    return other + (own - other) * np.eye(k)


GAP = "You took sigmoid(beta) for a weight. The scores are beta and -beta, so the gap is 2 * beta"


COPY_BITS = Exercise(
    teaches="two heads do what one cannot: each has a distribution of its own",
    task=(
        "bits (N, k) holds k tokens of each of N inputs, every token a bit, 1.0 or -1.0. A layer "
        "has k heads with d_k = d_v = 1: head i gives token i the score beta and every other "
        "token the score -beta, takes the softmax, mixes the bits by it, and writes the result "
        "into slot i. Return the slots, shape (N, k). beta may be very large."
    ),
    difficulty=2,
    minutes=12,
    cases=_copy_bits_cases,
    random_case=_copy_bits_random,
    solution=copy_bits,
    faults=(
        (
            "You gave all tokens but the head's own the score 0; they have -beta, so the gap is "
            "2 * beta.",
            _copied(lambda k, beta: softmax(beta * np.eye(k))),
        ),
        (
            "You turned the signs round: head i has beta on token i, and -beta on the others, and "
            "so looks at its own.",
            lambda bits, beta: copy_bits(bits, -beta),
        ),
        (
            "You copied the bits exactly. A softmax leaves a little weight on the other tokens, "
            "however large beta is, and the error is what the exercise is about.",
            lambda bits, beta: bits.copy(),
        ),
        (
            "All your slots are equal: you mixed the patterns into one distribution, which is all "
            "that one head has. Each slot is written by its own head.",
            _copied(lambda k, beta: np.full((k, k), 1 / k)),
        ),
        (
            "You divided the scores by the square root of k. The scale is the square root of d_k, "
            "and d_k is 1 here: the scores are given.",
            lambda bits, beta: copy_bits(bits, beta / np.sqrt(bits.shape[1])),
        ),
        (
            "The softmax is missing: you mixed the bits by the scores themselves.",
            _copied(lambda k, beta: beta * (2 * np.eye(k) - 1)),
        ),
        (
            "You used the formula for two tokens, 1 / (1 + exp(-2 * beta)). With k tokens there "
            "are k - 1 others that take part in the sum.",
            _copied(lambda k, beta: _two_token_weights(k, 2 * beta)),
        ),
        (
            "You gave a head's own token sigmoid(2 * beta), and shared out the rest. That is right "
            "for two tokens; with k there are k - 1 others that take part in the sum.",
            _copied(lambda k, beta: _rest_shared(k, 2 * beta)),
        ),
        (
            f"{GAP}, and with k tokens there are k - 1 others that take part in the sum.",
            _copied(_two_token_weights),
        ),
        (
            f"{GAP}. And sharing out the rest is right for two tokens; with k there are k - 1 "
            "others that take part in the sum.",
            _copied(_rest_shared),
        ),
        (
            "Your slots stand in reverse: head i looks at token i, and writes slot i.",
            lambda bits, beta: copy_bits(bits, beta)[:, ::-1].copy(),
        ),
        (
            "You wrote into each slot the sum of all heads. Head i writes into slot i alone.",
            lambda bits, beta: np.repeat(
                copy_bits(bits, beta).sum(axis=1, keepdims=True), bits.shape[1], axis=1
            ),
        ),
        (
            "Your exp overflows for a large beta, and the output is NaN. Subtract each row's "
            "maximum first; that changes no weight.",
            _copied(lambda k, beta: bare_softmax_over(-1)(beta * (2 * np.eye(k) - 1))),
        ),
        (
            "Your softmax ran over all scores at once, so the weights of one head do not sum to 1, "
            "or you took a mean where the weights already sum to 1. Each row is a softmax of its "
            "own, and the bits mixed by it are a sum.",
            _copied(lambda k, beta: softmax(beta * (2 * np.eye(k) - 1)) / k),
        ),
        (
            "You cut the answer to signs. The slots hold the mixed numbers as they are.",
            lambda bits, beta: np.sign(copy_bits(bits, beta)),
        ),
    ),
    hints=(
        "Write the scores as a matrix with a row for each head and a column for each token. Where "
        "does beta stand in it, and where -beta?",
        "`beta * (2 * np.eye(k) - 1)` holds the scores. After a softmax over each row, less its "
        "maximum first, slot i is `bits` times row i of the weights; all slots at once are "
        "`bits @ weights.T`.",
    ),
)


def subspace_bounds(targets, span):
    """The mean squared error that 1, 2, ... heads cannot go below, (D / span,).

    The answers of g heads lie in an affine space of g * span dimensions; what the targets vary in
    the directions beyond is lost.
    """
    n, width = targets.shape
    centred = targets - targets.mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred / n)[::-1]  # largest first
    return np.array([variances[g * span :].sum() for g in range(1, width // span + 1)])


def _subspace_cases():
    rng = np.random.default_rng(15)
    shifted = CORNERS * [1.0, 3.0] + [5.0, -2.0]
    return [
        (CORNERS, 1),
        (shifted, 1),
        (signs(3), 1),
        (draw(rng, 5, 4), 2),
        (signs(4), 2),
        (draw(rng, 12, 6) + 1, 2),
    ]


def _subspace_random(rng):
    span, heads, n = unequal(rng, 3)
    return rng.normal(size=(n + span * heads, span * heads)) + 1, int(span)


def _bounds(spectrum, lost=lambda s, g, span: s[g * span :].sum()):
    """Bounds from another spectrum(targets), largest first, or another count of what is lost."""

    def faulty(targets, span):
        heads = range(1, targets.shape[1] // span + 1)
        return np.array([lost(spectrum(targets), g, span) for g in heads])

    return faulty


def _variances(targets):
    return np.linalg.eigvalsh(np.cov(targets.T, bias=True))[::-1].clip(0)


def _second_moments(targets):
    return np.linalg.eigvalsh(targets.T @ targets / len(targets))[::-1]


def _variances_of_rows(bias):
    """The eigenvalues of np.cov without its transpose: the inputs taken for features."""
    return lambda targets: np.linalg.eigvalsh(np.cov(targets, bias=bias))[::-1].clip(0)


ROWS = (
    "You gave np.cov the targets as they are. It takes rows for features, and here they are "
    "inputs: np.cov(targets.T, bias=True)."
)
ALL_VARIANCES_1 = "That holds only when all variances are 1: add up eigenvalues of the covariance."

SUBSPACE_BOUNDS = Exercise(
    teaches="the theorem of the bottleneck, for any targets and any number of heads",
    task=(
        "The value tokens of a task lie in a space of span dimensions, so the answers of g heads "
        "lie in an affine space of g * span. targets (N, D) are the answers wanted for N equally "
        "likely inputs, and span divides D. Return, for g = 1, 2, ... D / span heads, the mean "
        "squared distance (summed over the D features) of the targets from the nearest affine "
        "space of g * span dimensions: the eigenvalues of their covariance, divided by N and not "
        "N - 1, after the g * span largest. For three bits and span 1 that is [2, 1, 0]."
    ),
    difficulty=3,
    minutes=15,
    cases=_subspace_cases,
    random_case=_subspace_random,
    solution=subspace_bounds,
    faults=(
        (
            "You did not subtract the mean of the targets. The affine space may lie anywhere, so "
            "what all targets share costs nothing.",
            _bounds(_second_moments),
        ),
        (
            "You divided by N - 1, as for a sample. The N inputs are all there are: divide by N.",
            lambda targets, span: (
                subspace_bounds(targets, span) * (len(targets) / (len(targets) - 1))
            ),
        ),
        (
            "You added up the squared errors of all inputs. The mean is asked for: divide by N.",
            lambda targets, span: subspace_bounds(targets, span) * len(targets),
        ),
        (
            "You divided by N and by D. The error of an input is summed over its features.",
            lambda targets, span: subspace_bounds(targets, span) / targets.shape[1],
        ),
        (
            "You let every head reach one dimension. It reaches as many as the value tokens span: "
            "leave out the g * span largest eigenvalues.",
            _bounds(_variances, lambda s, g, span: s[g:].sum()),
        ),
        (
            "Your eigenvalues run from small to large, so you leave out the smallest. The best "
            "space takes the directions in which the targets vary most: np.linalg.eigvalsh gives "
            "the largest last.",
            _bounds(lambda targets: _variances(targets)[::-1]),
        ),
        (
            "You summed what the heads reach. The bound is what remains, the eigenvalues after "
            "the g * span largest.",
            _bounds(_variances, lambda s, g, span: s[: g * span].sum()),
        ),
        (
            "Your list begins with no head at all. The first number belongs to g = 1.",
            _bounds(_variances, lambda s, g, span: s[(g - 1) * span :].sum()),
        ),
        (
            "Your list begins with two heads. The first number belongs to g = 1.",
            _bounds(_variances, lambda s, g, span: s[(g + 1) * span :].sum()),
        ),
        (
            "You summed singular values. Their squares, divided by N, are the variances.",
            _bounds(lambda t: np.linalg.svd(t - t.mean(axis=0), compute_uv=False)),
        ),
        (
            "You summed standard deviations. Squared errors add up as variances do: no root.",
            _bounds(lambda targets: np.sqrt(_variances(targets))),
        ),
        (
            "You took the root of the bound. The mean squared distance is asked for.",
            lambda *arguments: np.sqrt(subspace_bounds(*arguments).clip(0)),
        ),
        (
            "You sorted the variances of the features. The best space may lie askew to them: take "
            "the eigenvalues of the covariance matrix.",
            _bounds(lambda targets: np.sort(targets.var(axis=0))[::-1]),
        ),
        (
            "You divided by the total variance. That is the relative loss; here the loss itself "
            "is asked for.",
            lambda targets, span: subspace_bounds(targets, span) / targets.var(axis=0).sum(),
        ),
        (
            "You returned the next eigenvalue alone. All the directions beyond are lost: add up.",
            _bounds(_variances, lambda s, g, span: s[g * span : g * span + 1].sum()),
        ),
        (ROWS, _bounds(_variances_of_rows(bias=True))),
        (
            f"{ROWS} And without bias=True it divides by one less than there are.",
            _bounds(_variances_of_rows(bias=False)),
        ),
        (
            f"You returned D - g * span. {ALL_VARIANCES_1}",
            _bounds(_variances, lambda s, g, span: len(s) - g * span),
        ),
        (
            f"You returned 1 - g * span / D. {ALL_VARIANCES_1} And they are not divided by D.",
            _bounds(_variances, lambda s, g, span: 1 - g * span / len(s)),
        ),
    ),
    hints=(
        "What part of the targets' variance lies outside the best affine space of p dimensions? "
        "Principal components answer that.",
        "Subtract `targets.mean(axis=0)`, form the covariance matrix (D, D) with 1 / N, and sort "
        "its eigenvalues, `np.linalg.eigvalsh`, largest first. For g heads add up those from "
        "position `g * span` on.",
    ),
)


def plateaus(num_bits, num_heads):
    """The relative loss at which training stops, for each number of heads: max(0, 1 - g / k)."""
    return np.maximum(0, 1 - num_heads / num_bits)


def _plateaus_cases():
    return [
        (2, np.array([1])),
        (2, np.array([1, 2])),
        (3, np.array([1, 2])),
        (3, np.array([1, 2, 3, 6])),
        (5, np.array([1, 2, 3, 5, 10])),
    ]


def _plateaus_random(rng):
    k, n = unequal(rng, 2, lowest=3)
    return int(k), rng.permutation(np.arange(1, 2 * k))[:n]


PLATEAUS = Exercise(
    teaches="a staircase: each head brings one more bit, and none beyond the last is of use",
    task=(
        "k = num_bits tokens carry a bit each, and bit j is to come out in slot j, as in Task A. "
        "Layers with the numbers of heads in num_heads, an array of whole numbers, are trained on "
        "it. Before you run them: return the relative loss that each can reach at best, as an "
        "array; 1 is the loss of a layer that always answers 0."
    ),
    difficulty=1,
    minutes=8,
    cases=_plateaus_cases,
    random_case=_plateaus_random,
    solution=plateaus,
    faults=(
        (
            "Your loss falls below 0 where there are more heads than bits. Nothing is left to "
            "lose then: np.maximum(0, ...).",
            lambda k, heads: 1 - heads / k,
        ),
        (
            "You returned the share of the bits that comes through. The loss is the other share.",
            lambda k, heads: np.minimum(1, heads / k),
        ),
        (
            "You returned how many bits are lost. The relative loss is that divided by all of "
            "them.",
            lambda k, heads: np.maximum(0, k - heads),
        ),
        (
            "You divided the loss by the number of heads. Each head does not make the loss "
            "smaller by a factor, it takes one bit more.",
            lambda k, heads: 1 / heads,
        ),
        (
            "You let each head leave the share 1 - 1/k of what was left. Heads do not work one "
            "after another: each takes one bit, and the shares add up.",
            lambda k, heads: (1 - 1 / k) ** heads,
        ),
        (
            "You let each head halve the loss. One head does that for two bits, and a second one "
            "ends it: each head takes one bit of k, the same share 1/k of the whole.",
            lambda k, heads: 0.5**heads,
        ),
        (
            "You counted one head too few. The first brings a bit already: its loss is 1 - 1/k.",
            lambda k, heads: np.maximum(0, 1 - (heads - 1) / k),
        ),
        (
            "You counted one head too many. With one head 1 - 1/k remains.",
            lambda k, heads: np.maximum(0, 1 - (heads + 1) / k),
        ),
        (
            "You gave two heads or more a loss of 0. That is right for two bits; k bits take k "
            "heads.",
            lambda k, heads: np.where(heads > 1, 0, 1 - 1 / k),
        ),
        (
            "You took a loss to be lost until there are as many heads as bits. Fewer heads still "
            "bring their own bits through.",
            lambda k, heads: np.where(heads >= k, 0.0, 1.0),
        ),
        (
            "You took the root: errors are squared here, and the loss is their mean.",
            lambda *arguments: np.sqrt(plateaus(*arguments)),
        ),
        (
            "You turned the fraction round: it is the heads over the bits.",
            lambda k, heads: np.maximum(0, 1 - k / heads),
        ),
        (
            "You gave the loss of a single head for all. More heads bring more bits through.",
            lambda k, heads: np.full(heads.shape, 1 - 1 / k),
        ),
    ),
    hints=(
        "What is the bound for one head and two bits, and what would the trivial answer lose? Now "
        "k bits and g heads.",
        "The covariance of k bits has k eigenvalues 1, and g heads reach g of them. So "
        "`num_heads / num_bits` is the share that is reached; what remains is never below 0.",
    ),
)


def softmax_of_average(first, second):
    """Scores with mean 0 along the last axis whose softmax is the average of two weights."""
    scores = np.log((first + second) / 2)  # softmax(log p) = p
    return scores - scores.mean(axis=-1, keepdims=True)


def _average_cases():
    rng = np.random.default_rng(16)
    return [
        (np.array([[0.8, 0.2]]), np.array([[0.6, 0.4]])),
        (np.array([[0.75, 0.25]]), np.array([[0.25, 0.75]])),
        (np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]), np.full((2, 3), 1 / 3)),
        (softmax(draw(rng, 3, 4)), softmax(draw(rng, 3, 4))),
        (softmax(draw(rng, 2, 3, 5)), softmax(2 * draw(rng, 2, 3, 5))),
    ]


def _average_random(rng):
    shape = tuple(unequal(rng, 3))
    return softmax(rng.normal(size=shape)), softmax(2 * rng.normal(size=shape))


def _centred(scores, axis=-1):
    return scores - scores.mean(axis=axis, keepdims=True)


EXPERTS = (
    "You averaged the logarithms, that is, the two heads' scores, or took the logarithm of "
    "sqrt(first * second), which is the same. The softmax of that is the product of experts, not "
    "the average"
)

SOFTMAX_OF_AVERAGE = Exercise(
    teaches="a counterexample: every positive row of weights is a softmax, averages too",
    task=(
        "'The average of two softmaxes is not itself a softmax.' Break that: first and second, "
        "both (..., n_q, n_kv), are weights, positive and with rows that sum to 1. Return scores "
        "of the same shape whose softmax is their average. Scores are free up to a constant in "
        "each row: return those whose rows have the mean 0."
    ),
    difficulty=2,
    minutes=10,
    cases=_average_cases,
    random_case=_average_random,
    solution=softmax_of_average,
    faults=(
        (
            f"{EXPERTS}: average first, then take the logarithm.",
            lambda a, b: _centred((np.log(a) + np.log(b)) / 2),
        ),
        (
            f"{EXPERTS}: average first, then take the logarithm, and subtract each row's mean.",
            lambda a, b: (np.log(a) + np.log(b)) / 2,
        ),
        (
            "You added the logarithms, or took that of first * second. The softmax of that is the "
            "product of the weights, divided by its sum: average first, then take the logarithm, "
            "and subtract each row's mean.",
            lambda a, b: np.log(a * b),
        ),
        (
            "You added the logarithms. The softmax of that is the product of the weights, divided "
            "by its sum: average first, then take the logarithm.",
            lambda a, b: _centred(np.log(a) + np.log(b)),
        ),
        (
            "The softmax of your scores is the average, but their rows do not have the mean 0: "
            "subtract each row's mean.",
            lambda a, b: np.log((a + b) / 2),
        ),
        (
            "The softmax of your scores is the average, but their rows do not have the mean 0. "
            "The logarithm of the sum is larger by log 2: that, too, goes with each row's mean.",
            lambda a, b: np.log(a + b),
        ),
        (
            "You subtracted each row's maximum. That gives the same softmax, but asked for are the "
            "scores with the mean 0: subtract each row's mean.",
            lambda a, b: np.log(a + b) - np.log(a + b).max(axis=-1, keepdims=True),
        ),
        (
            "You returned the average of the weights. A softmax of these is another row: exp has "
            "to be undone.",
            lambda a, b: (a + b) / 2,
        ),
        (
            "You centred the average of the weights without its logarithm. Exp has to be undone "
            "first.",
            lambda a, b: _centred((a + b) / 2),
        ),
        (
            "You subtracted the mean of the whole array. Each row is a softmax of its own: "
            "axis=-1, keepdims=True.",
            lambda a, b: _centred(np.log(a + b), axis=None),
        ),
        (
            "You subtracted the mean over the queries (axis -2). That changes the weights: "
            "subtract each row's mean, axis -1.",
            lambda a, b: _centred(np.log(a + b), axis=-2),
        ),
        (
            "You took log(p / (1 - p)), which undoes the logistic function of a single number. "
            "What undoes a softmax is log p.",
            lambda a, b: _centred(np.log((a + b) / (2 - a - b))),
        ),
        (
            "You took the logarithm to base 2. A softmax is made with exp, so np.log undoes it.",
            lambda a, b: _centred(np.log2(a + b)),
        ),
        (
            "Your scores are those of the first weights alone.",
            lambda a, b: _centred(np.log(a)),
        ),
        (
            "Your scores are those of the second weights alone.",
            lambda a, b: _centred(np.log(b)),
        ),
        (
            "You took a softmax of weights. They are its result already; what is asked for is what "
            "went into one.",
            lambda a, b: softmax((a + b) / 2),
        ),
    ),
    hints=(
        "Which scores have the softmax (p_1, p_2, ...), if these are positive and sum to 1? Try "
        "what undoes exp.",
        "`np.log` of the average has the average as its softmax, since exp undoes it and the sum "
        "is 1 already. Then subtract the mean of each row, with `axis=-1, keepdims=True`.",
    ),
)


def radon_group(key):
    """Which of d_k + 2 keys stand on key 0's side: no query prefers either side to the other.

    Key 0 is a sum of the others with shares that sum to 1. Those with negative shares, brought to
    its side, make a mean of one group equal to a mean of the other.
    """
    system = np.vstack([key.T, np.ones(len(key))])  # (d_k + 1, d_k + 2)
    shares = np.linalg.solve(system[:, 1:], system[:, 0])
    return np.append(True, shares < 0)


def _radon_cases():
    rng = np.random.default_rng(17)
    return [
        (np.array([[0.0], [1.0], [3.0]]),),
        (np.array([[1.0], [0.0], [3.0]]),),
        (np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 1.0], [0.0, 4.0]]),),
        (np.array([[1.0, 1.0], [4.0, 0.0], [0.0, 0.0], [0.0, 4.0]]),),
        (np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]),),
        (draw(rng, 5, 3),),
        (draw(rng, 6, 4),),
        (draw(rng, 7, 5),),
    ]


def _radon_random(rng):
    """Keys in general position, none of the shares near 0."""
    (d_k,) = unequal(rng, 1, lowest=1)
    while True:
        key = rng.normal(size=(d_k + 2, d_k))
        system = np.vstack([key.T, np.ones(d_k + 2)])
        shares = np.linalg.solve(system[:, 1:], system[:, 0])
        if np.abs(shares).min() > 0.05 and np.abs(shares).max() < 20:
            return (key,)


def _with_key_0(group):
    """The group or its complement, whichever holds key 0."""
    return group == group[0]


def _radon_without_sum(key):
    shares = np.linalg.lstsq(key[1:].T, key[0], rcond=None)[0]
    return np.append(True, shares < 0)


RADON_GROUP = Exercise(
    teaches="Radon's theorem: with d_k + 2 keys, some subset is out of reach of every query",
    task=(
        "Of d_k + 2 keys, key (d_k + 2, d_k), in general position, some subset is such that no "
        "query gives all its keys higher scores than all the others. Find it: the keys fall into "
        "two groups whose convex hulls share a point, so that a mean of scores of one group is "
        "always a mean of scores of the other. Return a boolean array (d_k + 2,), True for the "
        "group that key 0 is in. Write key 0 as a sum of the others with shares that sum to 1."
    ),
    difficulty=3,
    minutes=15,
    cases=_radon_cases,
    random_case=_radon_random,
    solution=radon_group,
    faults=(
        (
            "Your two groups are right, but True marks the one that key 0 is not in.",
            lambda key: ~radon_group(key),
        ),
        (
            "You put keys with positive shares beside key 0. They stand on the other side of the "
            "equation; those with negative shares come over to its own.",
            lambda key: np.append(True, ~radon_group(key)[1:]),
        ),
        (
            "Your group lacks key 0 itself; it belongs to it.",
            lambda key: np.append(False, radon_group(key)[1:]),
        ),
        (
            "You left out that the shares sum to 1. Without that the point is not a mean of either "
            "group: add a row of ones to the equations.",
            _radon_without_sum,
        ),
        (
            "You put key 0 alone on one side. That is right only if it lies among the others, and "
            "a query can prefer a key at the edge.",
            lambda key: np.arange(len(key)) == 0,
        ),
        (
            "All your keys are in one group. There are two, and neither can be preferred to the "
            "other.",
            lambda key: np.ones(len(key), bool),
        ),
        (
            "You cut the keys in two along their first feature. A query along that feature prefers "
            "such a group: look for one that no query does.",
            lambda key: _with_key_0(key[:, 0] > key[:, 0].mean()),
        ),
        (
            "You split the keys by their length. Lengths do not decide: moving all keys alike "
            "changes them and not what a query can prefer.",
            lambda key: _with_key_0(
                np.linalg.norm(key, axis=1) > np.linalg.norm(key, axis=1).mean()
            ),
        ),
        (
            "You put the first half of the keys into one group. Which keys go together depends on "
            "where they lie.",
            lambda key: np.arange(len(key)) < len(key) // 2,
        ),
        (
            "You put every other key into the group. That is right for the corners of a convex "
            "figure taken in turn, and not for other keys.",
            lambda key: np.arange(len(key)) % 2 == 0,
        ),
        (NUMBERS, lambda key: radon_group(key) * 1.0),
        (
            "You returned the numbers of the keys in the group. A boolean array with an entry for "
            "each key is asked for.",
            lambda key: np.flatnonzero(radon_group(key)),
        ),
        (
            "You returned the shares. Those below 0 belong to key 0's group: compare.",
            lambda key: np.linalg.solve(
                np.vstack([key.T, np.ones(len(key))])[:, 1:], np.append(key[0], 1)
            ),
        ),
    ),
    hints=(
        "d_k equations say that a sum of keys 1, 2, ... is key 0, and one more that the shares sum "
        "to 1. How many unknowns are there? Then bring all negative shares to the other side.",
        "`np.vstack` puts a row of ones below `key.T`: d_k + 1 equations, and a column for each "
        "key. Solve for column 0 by the other columns with `np.linalg.solve`. Key 0 and the keys "
        "with shares below 0 are one group.",
    ),
)

EXERCISES = (
    DISTANCES_TO_LINE,
    COPY_BITS,
    SUBSPACE_BOUNDS,
    PLATEAUS,
    SOFTMAX_OF_AVERAGE,
    RADON_GROUP,
)
