"""Weights written down by hand that reach a stated error, and that error in closed form."""

import math
from itertools import combinations

import numpy as np

from mha_lib.expressiveness.layers import Layer
from mha_lib.expressiveness.tasks import simplex
from mha_lib.scratch import Projections, softmax


def copy_bits(beta, k=2, num_heads=2):
    """For tasks.bits: head i looks at token i, with scores β there and -β elsewhere; d_k = d_v = 1.

    >>> from mha_lib.expressiveness import tasks
    >>> round(copy_bits(beta=2).loss(tasks.bits()), 6) == round(copy_bits_error(beta=2), 6)
    True
    """
    w_q = np.zeros((k, num_heads))
    w_q[0] = beta
    w_k = 2 * np.eye(k, num_heads) - 1  # +1 for the head's own token, -1 for the others
    w_v = np.zeros((k, num_heads))
    w_v[0] = 1
    return Layer(Projections(w_q, w_k, w_v, np.eye(num_heads, k)), num_heads)


def copy_bits_error(beta, k=2, num_heads=2):
    """Loss of copy_bits: 1 for each slot without a head; with two of two it is 4 σ(-2β)²."""
    stray = 1 / (math.exp(2 * beta) + k - 1)  # weight on each wrong token
    return (k - num_heads) + num_heads * k * (k - 1) * stray**2


def copy_bits_worst(beta):
    """Largest error of copy_bits for two bits and two heads, 2√2 σ(-2β)."""
    return 2 * math.sqrt(2) / (1 + math.exp(2 * beta))


def select(width, beta):
    """For tasks.subsets: one full head whose query S meets its own keys at β more than the others.

    >>> from mha_lib.expressiveness import tasks
    >>> select(width=2, beta=12).loss(tasks.three_keys()) < 1e-8
    True
    """
    same = np.eye(width)
    return Layer(Projections(beta * math.sqrt(width) * same, same, same, same), num_heads=1)


def select_error(n, width, beta, size):
    """Error of select on one query of ``size`` keys.

    >>> round(select_error(n=3, width=2, beta=0, size=1), 4)
    1.3333
    """
    stray = math.exp(-beta) / (size + (n - size) * math.exp(-beta))  # on each key outside
    lost = (n - size) * stray / size  # by each key inside
    return width * (size * lost**2 + (n - size) * stray**2)


def smuggle(beta, gamma):
    """For tasks.half_contents: one head that hides a bit in how little it looks at token 2.

    The weight there is σ(-β + γ c_2[1]), tiny but different for the two bits, and W^O blows its
    trace in the position code up to ±1.

    >>> from mha_lib.expressiveness import tasks
    >>> f"{smuggle(beta=8, gamma=1).loss(tasks.half_contents()):.1e}"
    '8.5e-07'
    """
    w_q, w_k, w_o = np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 2))
    w_q[3, 0], w_q[1, 1] = 1, 1  # the query, at token 2, is (1, c_2[1], 0, 0)
    w_k[2, :2] = 2 * beta, -2 * gamma  # key 1, from its position; key 2 is 0
    trace = [
        [1 - _sigmoid(-beta + sign * gamma), _sigmoid(-beta + sign * gamma)] for sign in (1, -1)
    ]
    w_o[0, 0] = 1  # slot 1: what comes from the contents, nearly c_1[0]
    w_o[2:, 1] = np.linalg.solve(trace, [1, -1])  # slot 2: read off the position code
    return Layer(Projections(w_q, w_k, np.eye(4), w_o), num_heads=1)


def smuggle_error(beta, gamma):
    """Loss of smuggle, σ(-β + γ)² + σ(-β - γ)²."""
    return _sigmoid(-beta + gamma) ** 2 + _sigmoid(-beta - gamma) ** 2


def three_in_a_row(delta):
    """For tasks.three_keys: two heads with d_k = 1 whose loss falls to the bound 1 as δ does to 0.

    Both heads put the keys at -1, 1 - δ and 1. The ends are looked up sharply, with δ β_3 large;
    the middle one gets half the weight, shared with its neighbour.

    >>> from mha_lib.expressiveness import tasks
    >>> round(three_in_a_row(1e-3).loss(tasks.three_keys()), 4)
    1.0035
    """
    query, key = _in_a_row(delta)
    numbers = (x - x.mean() for x in (query, key))  # a shift of all keys changes no weight
    w_q, w_k = (np.tile(simplex(3).T @ x[:, None], 2) for x in numbers)  # corner j becomes x_j
    return Layer(Projections(w_q, w_k, np.eye(2), np.eye(2)), num_heads=2)


def three_in_a_row_error(delta):
    """Loss of three_in_a_row, from its nine weights: 1 + ½ δ ln(1/δ) and a smaller rest."""
    query, key = _in_a_row(delta)
    weights = softmax(np.outer(query, key))
    return float(2 * ((weights - np.eye(3)) ** 2).sum())  # 2: the values have two features


def _in_a_row(delta):
    """Queries and keys as numbers; the queries have to sum to 0, as their inputs do."""
    middle, end = -math.log(delta) / 2, -2 * math.log(delta) / delta
    return np.array([-middle - end, middle, end]), np.array([-1, 1 - delta, 1])


def circle(n):
    """n keys on the unit circle, (n, 2): d_k = 2 is enough to look up any of them.

    >>> keys = circle(5)
    >>> (keys @ keys.T).argmax(axis=1).tolist()
    [0, 1, 2, 3, 4]
    """
    return moment_curve(n, 1)


def circle_weight(n, norms):
    """Weight on the right one of n keys on a circle, if ‖q‖‖k‖ = ``norms``.

    >>> round(circle_weight(64, 848), 4)
    0.8997
    """
    scores = norms / math.sqrt(2) * circle(n)[:, 0]  # q lies along key 0
    return float(softmax(scores)[0])


def circle_norms(n, weight=0.9):
    """The ‖q‖‖k‖ that puts ``weight`` on the right one of n > 2 keys on a circle; about 0.207 n².

    >>> round(circle_norms(64) / 64**2, 3)
    0.207
    """
    low, high = 0.0, 1.0
    while circle_weight(n, high) < weight:
        low, high = high, 2 * high
    for _ in range(60):  # halve the interval
        middle = (low + high) / 2
        low, high = (middle, high) if circle_weight(n, middle) < weight else (low, middle)
    return high


def moment_curve(n, m):
    """n keys (cos t, sin t, ..., cos mt, sin mt), t = 2πj/n, with d_k = 2m."""
    angle = 2 * np.pi * np.arange(n)[:, None] * np.arange(1, m + 1) / n  # (n, m)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(n, 2 * m)


def moment_query(subset, n, m):
    """The query whose scores on moment_curve(n, m) are equal on ``subset`` and lower elsewhere.

    For at most m keys. The scores are -∏(1 - cos(t - t_i)) and a constant: zero at the subset's
    own angles, negative at all others, a trigonometric polynomial of degree at most m.

    >>> scores = moment_curve(6, 2) @ moment_query((0, 2), 6, 2)
    >>> ((scores - scores.max()).round(3) + 0).tolist()
    [0.0, -0.25, 0.0, -1.0, -2.25, -1.0]
    """
    if not 0 < len(subset) <= m:
        raise ValueError(f"subset must have 1 to m = {m} keys, got {len(subset)}")
    angle = 2 * np.pi * np.arange(2 * m + 1)[:, None] / (2 * m + 1)  # enough for degree m
    own = 2 * np.pi * np.array(subset) / n
    scores = -np.prod(1 - np.cos(angle - own), axis=1)  # (2m + 1,)
    return 2 * scores @ moment_curve(2 * m + 1, m) / (2 * m + 1)  # its Fourier coefficients


def margin(key, query, subset):
    """How far the lowest score in ``subset`` lies above the highest outside, for unit q and k."""
    scores = key @ query
    inside = np.isin(np.arange(len(key)), subset)
    norms = np.linalg.norm(query) * np.linalg.norm(key, axis=1).max()
    return float((scores[inside].min() - scores[~inside].max()) / norms)


def smallest_margin(n, m):
    """The smallest margin on moment_curve(n, m) over all subsets of m keys.

    >>> round(smallest_margin(8, 2), 3), round(smallest_margin(16, 2), 3)
    (0.04, 0.002)
    """
    key = moment_curve(n, m)
    return min(margin(key, moment_query(s, n, m), s) for s in combinations(range(n), m))


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))
