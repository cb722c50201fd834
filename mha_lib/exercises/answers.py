"""When two answers are the same.

An answer is an array of numbers or of booleans, or a dict of sizes such as {"query": (3, 4)}.
"""

from typing import NamedTuple

import numpy as np

TOLERANCE = {"rtol": 1e-7, "atol": 1e-9}
LOOSE = {"rtol": 1e-4, "atol": 1e-5}  # for answers in 32 bits, and for comparing faults


class Outcome(NamedTuple):
    """What a function did on one case: its value or its error, and whether it changed its input."""

    value: object = None
    error: Exception | None = None
    mutated: bool = False


class Trial(NamedTuple):
    """One case, what the reader's function did on it and what the solution did."""

    case: tuple
    answer: Outcome
    solution: Outcome

    @property
    def right(self):
        """True if the reader's answer is the solution's."""
        return agree(self.answer, self.solution)


def agree(a, b, tolerance=TOLERANCE):
    """True if both outcomes are the same answer, or both the same error."""
    if a.error is None and b.error is None:
        return same(a.value, b.value, tolerance)
    return _said(a.error) == _said(b.error)


def _said(error):
    """Type and words of an error, as a set: a + b, b + a and a += b list the same shapes."""
    return type(error), set(str(error).split())


def same(a, b, tolerance=TOLERANCE):
    """True if two answers agree within ``tolerance``, shape and places of NaN and inf included.

    >>> same(np.array([1.0, np.nan]), np.array([1.0 + 1e-9, np.nan]))
    True
    >>> same({"query": (3, 4)}, {"query": (3, 4.0)})
    False
    >>> same(np.array([True]), np.array([1]))
    False
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return sizes(a) == sizes(b)
    if not (is_array(a) and is_array(b)) or a.shape != b.shape or is_mask(a) != is_mask(b):
        return False
    if np.float32 in (a.dtype, b.dtype):
        tolerance = LOOSE
    return np.allclose(a, b, **tolerance, equal_nan=True)


def is_array(answer):
    """True for a NumPy array of real numbers or of booleans."""
    return isinstance(answer, np.ndarray) and answer.dtype.kind in "fiub"


def is_mask(answer):
    """True for a NumPy array of booleans."""
    return isinstance(answer, np.ndarray) and answer.dtype == bool


def layout(answer):
    """The form of an answer: an array's shape, a dict's keys."""
    return answer.shape if is_array(answer) else sorted(map(str, answer))


def sizes(answer):
    """A dict of sizes as text, so that 4 and 4.0 differ and NumPy's integers do not.

    >>> sizes({"query": (3, np.int64(4))})
    {'query': '(3, 4)'}
    """
    return {str(name): _size(size) for name, size in answer.items()}


def _size(size):
    return f"({', '.join(map(str, size))})" if isinstance(size, (tuple, list)) else str(size)
