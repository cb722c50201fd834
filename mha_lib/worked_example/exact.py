"""Every step of a worked example as an exact expression: roots stay roots, exp stays exp."""

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Decimal, localcontext

import sympy

from mha_lib.worked_example.example import Example

GUARD_DIGITS = 40  # what agrees with a tie to so many decimals is taken for the tie
LARGEST_WITHOUT_EXPONENT = 10**6


@dataclass(frozen=True)
class HeadTrace:
    """One query in one head; what it may not attend to has score -oo, exponential and weight 0.

    ``keys`` and ``values`` have a row for each token that can be attended to, the other tuples one
    number; ``output`` has d_v numbers.
    """

    query: tuple
    keys: tuple
    values: tuple
    scores: tuple
    scaled: tuple
    exponentials: tuple
    sum: sympy.Expr
    weights: tuple
    output: tuple


@dataclass(frozen=True)
class TokenTrace:
    """One token through all heads, to the output of the layer."""

    token: str
    x: tuple
    heads: tuple[HeadTrace, ...]
    concat: tuple
    output: tuple


@dataclass(frozen=True)
class Trace:
    """All tokens of an example, in order."""

    example: Example
    tokens: tuple[TokenTrace, ...]

    def of(self, token):
        """The trace of the token called ``token``; ValueError if there is none."""
        return self.tokens[self.example.position(token)]


@dataclass(frozen=True)
class Nearest:
    """The mixture of value rows, all with one weight each, that comes nearest to a concatenation.

    ``weights`` has 0 for what a mask forbids.
    """

    weights: tuple
    mixture: tuple
    distance: sympy.Expr


def trace(example):
    """Compute an example exactly, step by step; a Trace of sympy expressions.

    >>> from mha_lib.worked_example.example import THE_CAT_SAT
    >>> trace(THE_CAT_SAT).of("cat").heads[1].scaled
    (0, sqrt(2), -sqrt(2)/2)
    """
    x, memory = _symbols(example.x), _symbols(example.key_rows)
    queries = _product(x, _symbols(example.w_q))
    keys, values = (_product(memory, _symbols(w)) for w in (example.w_k, example.w_v))
    w_o = _symbols(example.w_o)
    tokens = []
    for i, (token, row) in enumerate(zip(example.tokens, x, strict=True)):
        allowed = [example.allows(i, j) for j in range(len(memory))]
        heads = tuple(
            _head(
                *(_slice(rows, h, example) for rows in (queries[i : i + 1], keys, values)), allowed
            )
            for h in range(example.num_heads)
        )
        concat = sum((head.output for head in heads), ())
        tokens.append(TokenTrace(token, row, heads, concat, _product([concat], w_o)[0]))
    return Trace(example, tuple(tokens))


def _head(queries, keys, values, allowed):
    (query,) = queries
    scores = tuple(_dot(query, key) if ok else -sympy.oo for key, ok in zip(keys, allowed))
    scaled = tuple(score / sympy.sqrt(len(query)) for score in scores)
    exponentials = tuple(map(sympy.exp, scaled))
    total = sympy.Add(*exponentials)
    divisor = total or sympy.Integer(1)  # a query with no allowed key gets zeros
    weights = tuple(e / divisor for e in exponentials)
    output = tuple(_dot(exponentials, column) / divisor for column in zip(*values))
    return HeadTrace(query, keys, values, scores, scaled, exponentials, total, weights, output)


def decimals(expression, digits=4):
    """An exact value as text, rounded correctly to ``digits`` decimals, halves away from zero.

    There is no minus before a zero; what has seven digits before the point gets an exponent.

    >>> decimals(sympy.exp(sympy.sqrt(2)), 3), decimals(sympy.Rational(-1, 10**5))
    ('4.113', '0.0000')
    """
    expression = sympy.sympify(expression)
    if expression == -sympy.oo:
        return "-inf"
    with localcontext() as context:
        context.prec, context.rounding = 3 * GUARD_DIGITS + digits, ROUND_HALF_UP
        context.Emax, context.Emin = MAX_EMAX, MIN_EMIN
        value = Decimal(str(expression.evalf(digits + 2 * GUARD_DIGITS, maxn=1000)))
        if abs(value) >= LARGEST_WITHOUT_EXPONENT:
            return f"{value:.{digits}e}"
        # First to many decimals, so that a tie known only to 80 digits is a tie again.
        for places in (digits + GUARD_DIGITS, digits):
            value = value.quantize(Decimal(1).scaleb(-places))
        return str(value.copy_abs() if value.is_zero() else value)


def nearest_single_distribution(trace, token):
    """The one distribution over the rows of V nearest to what the heads of ``token`` give together.

    A row of V here is a token's values in all heads side by side, and the distance is Euclidean
    between the mixture and the concatenation. The optimum is exact (a linear system); ValueError
    if it is not unique, or if it leaves out a token, where the system is not enough.

    >>> from mha_lib.worked_example.example import THE_CAT_SAT
    >>> decimals(nearest_single_distribution(trace(THE_CAT_SAT), "cat").distance, 6)
    '0.274050'
    """
    found = trace.of(token)
    position = trace.example.position(token)
    allowed = [j for j in range(len(trace.example.key_tokens)) if trace.example.allows(position, j)]
    if not allowed:
        raise ValueError(
            f"token must have something to attend to, got {token!r}, which has nothing"
        )
    rows = sympy.Matrix([sum((h.values[j] for h in found.heads), ()) for j in allowed])
    solved = _stationary(rows, sympy.Matrix(found.concat), token)
    if not all(weight.evalf(30) > 0 for weight in solved):
        raise ValueError(
            f"the distribution nearest to {token!r} leaves out a token: it lies on the edge, "
            "where the linear system solved here does not give it"
        )
    mixture = tuple(solved.T * rows)
    gaps = [a - b for a, b in zip(mixture, found.concat, strict=True)]
    weights = dict(zip(allowed, solved))
    everywhere = tuple(
        weights.get(j, sympy.Integer(0)) for j in range(len(trace.example.key_tokens))
    )
    return Nearest(everywhere, mixture, sympy.sqrt(sympy.Add(*(gap**2 for gap in gaps))))


def _stationary(rows, target, token):
    """Weights that sum to 1 and have the smallest squared distance, whatever their signs."""
    n = rows.rows
    ones = sympy.ones(n, 1)
    system = (rows * rows.T).row_join(ones).col_join(ones.T.row_join(sympy.zeros(1, 1)))
    if system.rank() <= n:
        raise ValueError(
            f"the distribution nearest to {token!r} is not unique: "
            "one row of V is a mixture of others"
        )
    return (system.inv() * (rows * target).col_join(sympy.ones(1, 1)))[:n, :]


def _symbols(matrix):
    return tuple(tuple(map(sympy.Rational, row)) for row in matrix)


def _product(a, b):
    return tuple(tuple(_dot(row, column) for column in zip(*b)) for row in a)


def _dot(a, b):
    return sympy.Add(*(x * y for x, y in zip(a, b, strict=True)))


def _slice(rows, head, example):
    """The columns of one head."""
    d = len(rows[0]) // example.num_heads
    return tuple(row[head * d : (head + 1) * d] for row in rows)
