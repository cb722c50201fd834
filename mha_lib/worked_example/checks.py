"""What the numbers of a worked example must be; every fault is one sentence that names the key."""

from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from numbers import Rational

import numpy as np

from mha_lib import validate

MOST_TOKENS = 8
MOST_FEATURES = 12
LONGEST_NAME = 12
LARGEST_ENTRY = 1000
MOST_DECIMALS = 6
MATRICES = "w_q", "w_k", "w_v", "w_o"


def checked(fields, label=str):
    """The fields of an Example, names as tuples and matrices as tuples of tuples of Fraction.

    ``label`` turns a key into the words that a reader knows it by. Raises ValueError for whatever
    cannot be a worked example, TypeError if ``causal`` is not a bool.
    """
    fields = dict(fields)
    validate.flag("causal", fields["causal"])
    _named_rows(fields, "tokens", "x", label)
    if (fields["memory"] is None) != (fields["memory_tokens"] is None):
        there, missing = ("memory", "memory_tokens")[:: 1 if fields["memory"] is not None else -1]
        raise ValueError(f"{label(there)} needs {missing} beside it, got no {missing}")
    if fields["memory"] is not None:
        _named_rows(fields, "memory_tokens", "memory", label)
    for key in MATRICES:
        fields[key] = matrix(label(key), fields[key], MOST_FEATURES)
    fields["num_heads"] = _whole(label("num_heads"), fields["num_heads"])
    _fit(fields, label)
    return fields


def matrix(name, rows, most_rows):
    """``rows`` as a tuple of tuples of Fraction, or a ValueError."""
    if isinstance(rows, np.ndarray):
        rows = rows.tolist()
    if not _is_list(rows) or not all(map(_is_list, rows)):
        raise ValueError(f"{name} must be a list of rows, each a list of numbers, {_got(rows)}")
    if not rows or not all(rows):
        raise ValueError(f"{name} must hold at least one number in every row, got an empty list")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{name} must have rows of equal length, "
                f"got {len(rows[0])} in row 1 and {len(row)} in row {number}"
            )
    _small_enough(name, "rows", len(rows), most_rows)
    _small_enough(name, "columns", len(rows[0]), MOST_FEATURES)
    return tuple(
        tuple(_entry(name, value, i, j) for j, value in enumerate(row, start=1))
        for i, row in enumerate(rows, start=1)
    )


def _named_rows(fields, names, rows, label):
    """Check a matrix of tokens and the tokens' names."""
    fields[names] = _names(label(names), fields[names])
    fields[rows] = matrix(label(rows), fields[rows], MOST_TOKENS)
    if len(fields[names]) != len(fields[rows]):
        raise ValueError(
            f"{label(rows)} must have one row per name in {names}, {len(fields[names])}, "
            f"got {len(fields[rows])}"
        )


def _names(name, tokens):
    if not _is_list(tokens) or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"{name} must be a list of names in quotation marks, {_got(tokens)}")
    if not tokens:
        raise ValueError(f"{name} must hold at least one name, got an empty list")
    for token in tokens:
        if not token.strip() or not token.isprintable() or len(token) > LONGEST_NAME:
            raise ValueError(
                f"{name} must hold names of 1 to {LONGEST_NAME} visible characters, got {token!r}"
            )
    for first, second in combinations(tokens, 2):
        if first == second:
            raise ValueError(f"{name} must hold different names, got {first!r} twice")
    return tuple(tokens)


def _entry(name, value, row, column):
    """One number, exactly: 0.1 is a tenth, whether it comes as a float or from a file."""
    place = f"in row {row}, column {column}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Rational, Decimal, float)):
        raise ValueError(f"{name} must hold numbers only, {_got(value)} {place}")
    if not isinstance(value, Rational) and not Decimal(str(value)).is_finite():
        raise ValueError(f"{name} must hold finite numbers, got {value} {place}")
    # Compared before it becomes a fraction: 1e-999999 would fill the memory.
    if not -LARGEST_ENTRY < value < LARGEST_ENTRY or not _short(value):
        raise ValueError(
            f"{name} must hold numbers below {LARGEST_ENTRY} with at most {MOST_DECIMALS} "
            f"decimals, to be worked with on paper, got {str(value)[:30]} {place}"
        )
    return Fraction(value) if isinstance(value, Rational) else Fraction(str(value))


def _short(value):
    if isinstance(value, Rational):
        return value.denominator <= 10**MOST_DECIMALS
    return Decimal(str(value)).as_tuple().exponent >= -MOST_DECIMALS


def _whole(name, number):
    fits = isinstance(number, (Rational, Decimal)) and not isinstance(number, bool)
    # In this order: int() of 1e999999 would fill the memory, and NaN is in no range.
    if not fits or not _in_range(number) or number != int(number):
        raise ValueError(f"{name} must be a whole number from 1 to {MOST_FEATURES}, {_got(number)}")
    return int(number)


def _in_range(number):
    finite = not isinstance(number, Decimal) or number.is_finite()
    return finite and 1 <= number <= MOST_FEATURES


def _fit(fields, label):
    """The matrices' sizes against each other."""
    size = {key: (len(fields[key]), len(fields[key][0])) for key in ("x", *MATRICES)}
    keys_from = "x" if fields["memory"] is None else "memory"
    size["memory"] = size["x"] if fields["memory"] is None else _size(fields["memory"])
    for key, of in (("w_q", "x"), ("w_k", keys_from), ("w_v", keys_from), ("w_o", "w_v")):
        if size[key][0] != size[of][1]:
            raise ValueError(
                f"{label(key)} must have one row per column of {label(of)}, {size[of][1]}, "
                f"got {size[key][0]}"
            )
    if size["w_k"][1] != size["w_q"][1]:
        raise ValueError(
            f"{label('w_k')} must have as many columns as {label('w_q')}, {size['w_q'][1]}, "
            f"got {size['w_k'][1]}"
        )
    for key in ("w_q", "w_v"):
        if size[key][1] % fields["num_heads"]:
            raise ValueError(
                f"{label(key)} must have a number of columns that "
                f"num_heads = {fields['num_heads']} divides, got {size[key][1]}"
            )


def _size(rows):
    return len(rows), len(rows[0])


def _small_enough(name, what, count, most):
    if count > most:
        raise ValueError(
            f"{name} must have at most {most} {what}, to be worked with on paper, got {count}"
        )


def _is_list(value):
    return isinstance(value, (list, tuple))


def _got(value):
    """What came, in the words of a file's reader."""
    if value is None:
        return "got null"
    if isinstance(value, (bool, np.bool_)):
        return f"got {str(value).lower()}"
    if isinstance(value, str):
        return f'got the text "{value[:20]}"'
    if _is_list(value):
        kinds = (_got(v).removeprefix("got ") for v in value if not _is_list(v))
        return f"got a list with {next(kinds, 'lists')} in it"
    if isinstance(value, dict):
        return "got an object {...}"
    return f"got {str(value)[:20]}"
