"""When two answers are the same.

An answer is an array of numbers or of booleans, a tuple of such arrays, a whole number, or a dict
of sizes such as {"query": (3, 4)}.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np

from mha_lib.exercises.attempt import Outcome

TOLERANCE = {"rtol": 1e-7, "atol": 1e-9}
LOOSE = {"rtol": 1e-4, "atol": 1e-5}  # for answers in 32 bits, and for comparing faults
SEVERAL = (tuple, list)


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
    >>> same(12, np.float64(12.0)), same(12, 12.000001)  # counts are exact
    (True, False)
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return sizes(a) == sizes(b)
    if is_number(a) and is_number(b):
        return bool(a == b)
    if isinstance(a, SEVERAL) and isinstance(b, SEVERAL):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b))
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


def is_number(answer):
    """True for a real number of Python or NumPy, an array without axes included; not for a boolean.

    >>> [is_number(x) for x in (3, np.int64(3), np.where(True, 3, 4), True, [3])]
    [True, True, True, False, False]
    """
    if isinstance(answer, np.ndarray):
        return answer.shape == () and answer.dtype.kind in "fiu"
    return isinstance(answer, Real) and not isinstance(answer, bool)


def form(answer):
    """What sort of answer it is; None if it is none that could be asked for."""
    if is_number(answer):
        return "number"
    if is_array(answer):
        return "mask" if is_mask(answer) else "array"
    if isinstance(answer, SEVERAL):
        return "several"
    return "sizes" if type(answer) is dict else None


def layout(answer):
    """The layout of an answer: an array's shape, a dict's keys, how many arrays in a tuple."""
    if form(answer) == "sizes":
        return sorted(map(str, answer))
    return len(answer) if form(answer) == "several" else np.shape(answer)


def sizes(answer):
    """A dict of sizes as text, so that 4 and 4.0 differ and NumPy's integers do not.

    >>> sizes({"query": (3, np.int64(4))})
    {'query': '(3, 4)'}
    """
    return {str(name): _size(size) for name, size in answer.items()}


def _size(size):
    return f"({', '.join(map(str, size))})" if isinstance(size, (tuple, list)) else str(size)
