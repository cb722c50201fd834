"""What is printed for "The cat sat." in the article that this book grew out of, and exactly."""

from typing import NamedTuple

import sympy

from mha_lib.worked_example.exact import decimals

# What is computed for "cat": head, step, place in that step, and the number as the article has it.
PRINTED = (
    *((1, "scaled", i, text) for i, text in enumerate(("0", "0.707", "0.707"))),
    *((1, "exponentials", i, text) for i, text in enumerate(("1", "2.028", "2.028"))),
    (1, "sum", None, "5.056"),
    *((1, "weights", i, text) for i, text in enumerate(("0.198", "0.401", "0.401"))),
    *((1, "output", i, text) for i, text in enumerate(("1.000", "1.203"))),
    *((2, "scaled", i, text) for i, text in enumerate(("0", "1.414", "-0.707"))),
    *((2, "exponentials", i, text) for i, text in enumerate(("1", "4.114", "0.493"))),
    (2, "sum", None, "5.607"),
    *((2, "weights", i, text) for i, text in enumerate(("0.178", "0.734", "0.088"))),
    *((2, "output", i, text) for i, text in enumerate(("0.822", "0.266"))),
    *((None, "concat", i, text) for i, text in enumerate(("1.00", "1.20", "0.82", "0.27"))),
)


class Comparison(NamedTuple):
    """A number as the article prints it, its exact value, and that rounded to as many decimals."""

    head: int | None
    step: str
    place: int | None
    printed: str
    exact: sympy.Expr
    rounded: str

    @property
    def right(self):
        """True if the exact value rounds to what is printed."""
        return self.printed == self.rounded


def printed_numbers(trace):
    """Every number of "cat" in the article against a trace of THE_CAT_SAT; a list of Comparison.

    >>> from mha_lib.worked_example import THE_CAT_SAT, trace
    >>> [(c.printed, c.rounded) for c in printed_numbers(trace(THE_CAT_SAT)) if not c.right]
    [('4.114', '4.113'), ('5.607', '5.606')]
    """
    cat = trace.of("cat")
    comparisons = []
    for head, step, place, text in PRINTED:
        value = getattr(cat if head is None else cat.heads[head - 1], step)
        exact = value if place is None else value[place]
        places = len(text.partition(".")[2])
        comparisons.append(Comparison(head, step, place, text, exact, decimals(exact, places)))
    return comparisons
