"""Checks of arguments that are plain numbers, beside those of mha_lib.validate."""

import math
from numbers import Real

from mha_lib import validate


def not_negative(name, number):
    """Refuse anything but a finite number of at least 0."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} must be a number, got {type(number).__name__}")
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {number}")


def positive(name, number):
    """Refuse anything but a finite number above 0."""
    not_negative(name, number)
    if number == 0:
        raise ValueError(f"{name} must be above 0, got {number}")


def lengths(n_q, n_kv):
    """The numbers of queries and of keys; as many keys as queries unless given."""
    n_kv = n_q if n_kv is None else n_kv
    validate.positive_integer("n_q", n_q)
    validate.positive_integer("n_kv", n_kv)
    return n_q, n_kv
