"""Proofs by z3: whether a layer exists that errs less, whether queries exist that select a set.

Exact, in rational numbers, without rounding. The checks of ``algebra`` are collected here too.
"""

from fractions import Fraction
from itertools import combinations, product

import z3

from mha_lib import validate
from mha_lib.expressiveness.algebra import exactly_half_the_contents, exactly_two_bits
from mha_lib.expressiveness.check import Check

SECONDS = 60  # before a solver gives up, which is an error and never an answer
CORNERS = tuple(product((1, -1), repeat=2))


def line_near_the_corners():
    """Task A as geometry: one head answers on a line, the four targets are a square's corners."""
    p, q, offset = z3.Reals("p q offset")

    def line(limit):
        distances = [(p * x + q * y - offset) ** 2 for x, y in CORNERS]
        return [p * p + q * q == 1, *(limit(d) for d in distances)]

    return Check(
        "a line closer than 1 to all four corners (±1, ±1)",
        _possible(line(lambda square: square < 1)),
        "a line no farther than 1 from them",
        _possible(line(lambda square: square <= 1)),
    )


def one_head_on_two_bits():
    """Task A for one head whose weights may depend on anything, the bits included.

    Its answer is m w + c, where the mean m of two bits lies in [-1, 1], and equal bits leave no
    choice.
    """
    w, c, free = z3.Reals("w1 w2"), z3.Reals("c1 c2"), z3.Reals("m1 m2")
    means = 1, *free, -1  # for the inputs (1, 1), (1, -1), (-1, 1), (-1, -1)

    def head(limit):
        errors = [
            sum((m * w[s] + c[s] - corner[s]) ** 2 for s in (0, 1)) for corner, m in _zip(means)
        ]
        return [*(m**2 <= 1 for m in free), *map(limit, errors)]

    return Check(
        "one head that errs by less than 1 on each of the four inputs",
        _possible(head(lambda square: square < 1)),
        "one head that errs by at most 1",
        _possible(head(lambda square: square <= 1)),
    )


def three_keys_on_a_line():
    """Task B: with d_k = 1 some of three keys never scores highest, with d_k = 2 each can."""

    def selectable(d_k):
        query, key = (_vectors(name, 3, d_k) for name in ("q", "k"))
        pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
        return [_dot(query[i], key[i]) > _dot(query[i], key[j]) for i, j in pairs]

    return Check(
        "three keys with d_k = 1, each the highest for some query",
        _possible(selectable(1)),
        "the same with d_k = 2",
        _possible(selectable(2)),
    )


def four_keys_in_the_plane():
    """Radon: no four keys with d_k = 2 can be split in all 7 ways by queries; in space they can.

    Three of the keys may stand at (0, 0), (1, 0), (0, 1), as affine maps change no split. If they
    lie on a line instead, three_keys_on_a_line has answered already.
    """
    plane, space = [(0, 0), (1, 0), (0, 1)], [(0, 0, 0), (1, 0, 0), (0, 1, 0)]
    return Check(
        "four keys in the plane, all seven splits made by some query",
        _possible(_all_splits([*plane, z3.Reals("x y")])),
        "four keys in space, all seven",
        _possible(_all_splits([*space, z3.Reals("x y z")])),
    )


def all_but_one_split():
    """Whichever of the seven splits is given up, four keys in the plane manage the other six."""
    keys = [(0, 0), (1, 0), (0, 1), z3.Reals("x y")]
    return [_possible(_all_splits(keys, without=i)) for i in range(7)]


def a_key_outside_gets_as_much(size=1):
    """The lemma behind the bounds for thin heads, for a set of ``size`` keys.

    A key of the set gets weight a, a key outside b >= a. Whatever the read-out s makes of them, the
    errors (s a - 1/size)² + (s b)² are together at least 1 / (2 size²).
    """
    validate.positive_integer("size", size)
    a, b, s = z3.Reals("a b s")
    errors = (s * a - z3.Q(1, size)) ** 2 + (s * b) ** 2
    least = z3.Q(1, 2 * size**2)
    return Check(
        f"a set of {size} and a read-out with an error below 1/{2 * size**2}",
        _possible([a >= 0, b >= a, errors < least]),
        f"one with the error 1/{2 * size**2}",
        _possible([a >= 0, b >= a, errors <= least]),
    )


def same_middle_key():
    """Task B, two heads with the same middle key m: query m alone errs by 1.

    Both W^V W^O have rank 1. Of two directions at right angles, values along z get nothing through
    head 2, those along z' do; and outputs along y get nothing from head 1, those along x do. With
    c = y·z and s = x·z, up to signs also s = y·z'. Neither head answers z along y: c². Head 1 alone
    answers z along x, head 2 alone z' along y: s²/2 each at least, by a_key_outside_gets_as_much.
    """
    c, s, first, second = z3.Reals("c s first second")
    lemma = [c * c + s * s == 1, first >= s * s / 2, second >= s * s / 2]
    total = c * c + first + second
    return Check(
        "two heads with the same middle key and an error below 1",
        _possible([*lemma, total < 1]),
        "an error of 1, as far as the lemma goes",
        _possible([*lemma, total <= 1]),
    )


def checks():
    """All checks of the chapter, in its order; about a second."""
    return [
        line_near_the_corners(),
        one_head_on_two_bits(),
        exactly_two_bits(),
        exactly_half_the_contents(),
        three_keys_on_a_line(),
        four_keys_in_the_plane(),
        a_key_outside_gets_as_much(1),
        a_key_outside_gets_as_much(2),
        same_middle_key(),
    ]


def prefers(key, subset):
    """A query (a list of fractions) that scores all keys of ``subset`` above all others, or None.

    ``key`` is (n, d_k), taken exactly.

    >>> prefers([[0], [1], [2]], subset=[1]) is None
    True
    """
    query, threshold = z3.Reals([f"q{f}" for f in range(len(key[0]))]), z3.Real("threshold")
    inside = [j in set(subset) for j in range(len(key))]
    solver = _solver(_apart(_exact(key), inside, query, threshold))
    if not _answer(solver):
        return None
    model = solver.model()
    return [model.eval(q, model_completion=True).as_fraction() for q in query]


def preferable(key):
    """All subsets of the keys (n, d_k) that some query prefers, as tuples; 2^n small questions.

    >>> preferable([[0], [1], [2]])
    [(), (0,), (2,), (0, 1), (1, 2), (0, 1, 2)]
    """
    sizes = range(len(key) + 1)
    subsets = (s for size in sizes for s in combinations(range(len(key)), size))
    return [subset for subset in subsets if prefers(key, subset) is not None]


def general_position(n, d_k):
    """n keys of which no d_k + 1 lie in one hyperplane: (j, j², ..., j^d_k) for j = 0 ... n - 1.

    >>> general_position(3, 2)
    [[0, 0], [1, 1], [2, 4]]
    """
    return [[j**power for power in range(1, d_k + 1)] for j in range(n)]


def _zip(means):
    return zip(CORNERS, means, strict=True)


def _vectors(name, count, d):
    return [[z3.Real(f"{name}{i}{f}") for f in range(d)] for i in range(count)]


def _dot(u, v):
    return sum(a * b for a, b in zip(u, v, strict=True))


def _all_splits(keys, without=None):
    """Constraints: every split of the keys in two groups, up to order, has its own query."""
    others = product((True, False), repeat=len(keys) - 1)
    splits = [(True, *rest) for rest in others if not all(rest)]
    queries = _vectors("q", len(splits), len(keys[0]))
    return [
        constraint
        for i, inside in enumerate(splits)
        if i != without
        for constraint in _apart(keys, inside, queries[i], z3.Real(f"threshold{i}"))
    ]


def _apart(keys, inside, query, threshold):
    """Scores at least threshold + 1 inside, at most threshold - 1 outside: a gap can be scaled."""
    return [
        _dot(query, key) >= threshold + 1 if is_in else _dot(query, key) <= threshold - 1
        for key, is_in in zip(keys, inside, strict=True)
    ]


def _exact(keys):
    return [[z3.Q(*Fraction(float(x)).as_integer_ratio()) for x in key] for key in keys]


def _possible(constraints):
    return _answer(_solver(constraints))


def _solver(constraints):
    solver = z3.Solver()
    solver.set("timeout", int(SECONDS * 1000))  # z3 wants milliseconds
    solver.add(*constraints)
    return solver


def _answer(solver):
    """True for sat, False for unsat; a solver that gives up is an error."""
    answer = solver.check()
    if answer == z3.unknown:
        raise TimeoutError(f"z3 found no answer within {SECONDS} s: {solver.reason_unknown()}")
    return answer == z3.sat
