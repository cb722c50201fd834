"""Checks of arguments, shared by the NumPy and the PyTorch code.

Every check names the argument, what came and what was expected, in one sentence. Arrays and tensors
answer the same questions (``shape``, ``ndim``, ``dtype``), so one definition serves both.
"""

import functools
import math
from numbers import Integral, Real

FLOATS = ("float16", "bfloat16", "float32", "float64")


def dtype_name(array):
    """Name of an array's or tensor's dtype, without torch's prefix."""
    return _name(array.dtype)


@functools.cache
def _name(dtype):  # NumPy takes microseconds to spell a dtype, and every call of a core asks
    return str(dtype).removeprefix("torch.")


def instance(name, value, kind):
    """Refuse anything that is not of class ``kind``."""
    if not isinstance(value, kind):
        expected = f"{kind.__module__.split('.')[0]}.{kind.__name__}"
        raise TypeError(f"{name} must be a {expected}, got {type(value).__name__}")


def floats(kind, **arrays):
    """Refuse what is not a floating point array of class ``kind``, or mixes two dtypes."""
    first, reference = next(iter(arrays.items()))
    for name, array in arrays.items():
        instance(name, array, kind)
        if dtype_name(array) not in FLOATS:
            raise TypeError(
                f"{name} must be floating point ({', '.join(FLOATS)}), got {dtype_name(array)}: "
                "convert it first, for integers with 1.0 * x"
            )
        if array.dtype != reference.dtype:
            raise TypeError(
                f"{name} must have the dtype of {first}, {dtype_name(reference)}, "
                f"got {dtype_name(array)}"
            )


def positive_integer(name, number):
    """Refuse anything but a whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise TypeError(f"{name} must be a whole number, got {number!r}")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")


def count(name, number):
    """Refuse anything but a whole number of at least 0."""
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise TypeError(f"{name} must be a whole number, got {number!r}")
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")


def flag(name, value):
    """Refuse anything but True or False: a mask passed as a flag would otherwise go unnoticed."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}")


def scale(number):
    """Refuse a scale that is neither None nor a finite number."""
    if number is None:
        return
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"scale must be a number or None, got {type(number).__name__}")
    if not math.isfinite(number):
        raise ValueError(f"scale must be finite, got {number}")


def probability(name, number):
    """Refuse anything outside 0 <= number < 1."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} must be a number, got {type(number).__name__}")
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {number}")


def at_least_two_axes(**arrays):
    """Refuse arrays without a token axis and a feature axis."""
    for name, array in arrays.items():
        if array.ndim < 2:
            raise ValueError(
                f"{name} must have at least two axes, (..., n, d), got shape {tuple(array.shape)}"
            )


def same_batch_axes(axes, **arrays):
    """Refuse arrays whose axes before the last ``axes`` differ."""
    (first, reference), *others = arrays.items()
    expected = tuple(reference.shape[:-axes])
    for name, array in others:
        if tuple(array.shape[:-axes]) != expected:
            raise ValueError(
                f"{name} must have the batch axes of {first}, {expected}, "
                f"got {tuple(array.shape[:-axes])} in shape {tuple(array.shape)}"
            )


def one_value_per_key(key, value):
    """Refuse a value array that does not have a row for each key."""
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"value must have one row per key, n_kv = {key.shape[-2]}, "
            f"got {value.shape[-2]} in shape {tuple(value.shape)}"
        )


def attention_inputs(query, key, value):
    """Refuse shapes that attention cannot combine."""
    at_least_two_axes(query=query, key=key, value=value)
    same_batch_axes(2, query=query, key=key, value=value)
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(
            f"key must be as wide as query, d_k = {query.shape[-1]}, "
            f"got {key.shape[-1]} in shape {tuple(key.shape)}"
        )
    if query.shape[-1] == 0:
        raise ValueError(f"query must have at least one feature, got shape {tuple(query.shape)}")
    one_value_per_key(key, value)


def gradient(grad_output, query, width):
    """Refuse a gradient that does not have the dtype and the shape of the output."""
    floats(type(query), query=query, grad_output=grad_output)
    expected = (*query.shape[:-1], width)
    if tuple(grad_output.shape) != expected:
        raise ValueError(
            f"grad_output must have the shape of the output, {expected}, "
            f"got {tuple(grad_output.shape)}"
        )


def broadcasts(name, array, shape):
    """Refuse an array that does not broadcast to ``shape`` = (..., n_q, n_kv)."""
    got, shape = tuple(array.shape), tuple(shape)
    if 2 <= len(got) <= len(shape) and fits(got, shape):
        return
    raise ValueError(
        f"{name} must broadcast to (..., n_q, n_kv) = {shape}, got shape {got}{_hint(got, shape)}"
    )


def fits(got, shape):
    """True if an array of shape ``got`` broadcasts to exactly ``shape``."""
    tail = shape[len(shape) - len(got) :]
    return all(size in (1, wanted) for size, wanted in zip(got, tail, strict=True))


def _hint(got, shape):
    """What the caller probably meant, for the end of an error."""
    n_q, n_kv = shape[-2:]
    if got[-1:] == (n_q,) != (n_kv,) and got[-2:-1] != (n_kv,):
        return f": its {n_q} columns are as many as the queries, where the {n_kv} keys are meant"
    if len(got) == 1:
        return ": write array[None, :] for one row of keys that all queries share"
    if len(got) == 2 and len(shape) > 2 and got == (shape[0], n_kv):
        return ": a padding array (batch, n_kv) needs a query axis, array[:, None, :]"
    if 2 <= len(got) <= len(shape) and fits((*got[:-2], got[-1], got[-2]), shape):
        return ": rows are queries and columns are keys, so swap its last two axes"
    if len(got) == len(shape) == 3 and got[1:] == (n_q, n_kv):
        return ": in a layer an axis of heads needs a batch axis before it, array[None]"
    return ""


def divisible(name, width, num_heads):
    """Refuse a width that the heads cannot share equally."""
    positive_integer("num_heads", num_heads)
    if width % num_heads:
        raise ValueError(
            f"{name} must be divisible by num_heads = {num_heads}, got {width} features "
            f"({width % num_heads} left over)"
        )


def head_widths(d_model, num_heads, d_k=None, d_v=None):
    """The widths of one head, d_model / num_heads unless given; refuse what cannot be.

    >>> head_widths(12, 3), head_widths(12, 5, d_k=2, d_v=1)
    ((4, 4), (2, 1))
    """
    given = {name: d for name, d in (("d_k", d_k), ("d_v", d_v)) if d is not None}
    for name, size in ({"d_model": d_model, "num_heads": num_heads} | given).items():
        positive_integer(name, size)
    if len(given) < 2:
        divisible("d_model", d_model, num_heads)
    shared = d_model // num_heads
    return given.get("d_k", shared), given.get("d_v", shared)
