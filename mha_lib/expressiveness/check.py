"""A question put to a solver, and its twin.

A solver that answers "no" might have been asked nonsense. So each question comes with a twin, the
same question with one thing changed that makes it possible, and a check holds only if the twin's
answer is yes.
"""

from typing import NamedTuple


class Check(NamedTuple):
    """A question with the answer found (True = such a thing exists), and those of its twin."""

    question: str
    exists: bool
    twin: str
    twin_exists: bool

    @property
    def holds(self):
        """True if the question's answer is no and its twin's yes."""
        return not self.exists and self.twin_exists


def table(results):
    """The checks as lines of text.

    >>> print(table([Check("a square circle", False, "a round one", True)]))
    a square circle: impossible
        twin: a round one: possible
    """
    words = {True: "possible", False: "impossible"}
    return "\n".join(
        f"{c.question}: {words[c.exists]}\n    twin: {c.twin}: {words[c.twin_exists]}"
        for c in results
    )
