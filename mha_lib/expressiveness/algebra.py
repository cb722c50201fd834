"""Proofs by sympy: Gröbner bases that say whether a head can answer without any error."""

from itertools import product

import sympy

from mha_lib.expressiveness.check import Check

CORNERS = tuple(product((1, -1), repeat=2))


def exactly_two_bits():
    """Task A without any error, in algebra: m w + c = corner for four free numbers m."""
    w, c, m = sympy.symbols("w1:3"), sympy.symbols("c1:3"), sympy.symbols("m1:5")

    def equations(target):
        return [
            m_i * w[s] + c[s] - target(*bits)[s] for m_i, bits in zip(m, CORNERS) for s in (0, 1)
        ]

    unknowns = *w, *c, *m
    return Check(
        "one head that answers (σ1, σ2) exactly",
        _solvable(equations(lambda first, second: (first, second)), unknowns),
        "one that answers (σ1, σ1)",
        _solvable(equations(lambda first, second: (first, first)), unknowns),
    )


def exactly_half_the_contents():
    """tasks.half_contents without any error: impossible, though any small error is possible."""
    return Check(
        "one head that answers (c1[0], c2[1]) exactly, positions in the values",
        _solvable(*_one_head_on_contents(lambda c_1, c_2: (c_1[0], c_2[1]))),
        "one that answers (c1[0], c1[1])",
        _solvable(*_one_head_on_contents(lambda c_1, c_2: c_1)),
    )


def _one_head_on_contents(target):
    """Equations and unknowns of one head on tokens [c_j; p_j] with any weights (1 - a, a).

    The target lies on the line through what the two tokens alone would give, for all 16 inputs; on
    two of them the weight a is written out as well, to tell a line from a point.
    """
    rows, offsets, weight = sympy.symbols("p q r s"), sympy.symbols("b1:5"), sympy.symbols("a1:3")
    written_out = {(1, 1, 1, 1): weight[0], (-1, -1, -1, -1): weight[1]}
    equations = []
    for bits in product((1, -1), repeat=4):
        first, second = (_through(rows, bits[i : i + 2], offsets[i : i + 2]) for i in (0, 2))
        goal = target(bits[:2], bits[2:])
        equations.append(_cross(_minus(goal, first), _minus(second, first)))
        if bits in written_out:
            a = written_out[bits]
            equations += [(1 - a) * x + a * y - t for x, y, t in zip(first, second, goal)]
    return equations, (*weight, *rows, *offsets)


def _through(rows, content, offset):
    """content times the 2 x 2 matrix [[p, q], [r, s]], plus what the position gives."""
    p, q, r, s = rows
    return content[0] * p + content[1] * r + offset[0], content[0] * q + content[1] * s + offset[1]


def _minus(u, v):
    return u[0] - v[0], u[1] - v[1]


def _cross(u, v):
    return u[0] * v[1] - u[1] * v[0]


def _solvable(equations, unknowns):
    """True if the equations have a common complex solution: their Gröbner basis is not {1}."""
    expanded = [sympy.expand(e) for e in equations]
    return sympy.groebner(expanded, *unknowns, order="grevlex").exprs != [1]
