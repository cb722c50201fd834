"""Arguments and answers as JSON, on their way to a submission's process and back.

Nothing that comes back is executed, and nothing takes more memory than its text: no pickle, no
archive. What is neither numbers nor a container of them comes back as a Strange thing, a type's
name and a text.
"""

import base64
import builtins
from fractions import Fraction

import numpy as np

from mha_lib.exercises.attempt import Outcome, TooSlow

LARGEST = 4_000_000  # bytes of one array
LONGEST = 300  # characters of a text


def pack(value, depth=0):
    """A value as JSON holds it.

    >>> unpack(pack((np.array([1.5, 2.0]), 3, {"query": (4, 5)})))
    (array([1.5, 2. ]), 3, {'query': (4, 5)})
    """
    if depth < 4 and isinstance(value, tuple | list) and len(value) < 100:
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [pack(item, depth + 1) for item in value]}
    if depth < 4 and type(value) is dict and len(value) < 100:
        return {"dict": [[str(key), pack(item, depth + 1)] for key, item in value.items()]}
    if value is None or type(value) in (bool, float):
        return {"plain": value}
    if type(value) in (int, Fraction) and abs(value) < 10**300:
        return {type(value).__name__: str(value)}
    if type(value) is str:
        return {"plain": value[:LONGEST]}
    if isinstance(value, np.ndarray | np.generic):
        return _packed_array(np.asarray(value))
    return {"strange": [type(value).__name__, _text(value)]}


def _packed_array(array):
    if array.nbytes > LARGEST:
        return {"strange": [f"array of shape {array.shape}, far too large,", "..."]}
    if array.dtype.kind not in "biufc":
        return {"objects": array.shape}
    data = np.ascontiguousarray(array).tobytes()
    return {"array": [array.dtype.str, array.shape, base64.b64encode(data).decode("ascii")]}


def unpack(packed):
    """The value again. Raises ValueError, TypeError or KeyError if ``packed`` was not made here."""
    ((kind, content),) = packed.items()
    return UNPACK[kind](content)


def _array(content):
    dtype, shape, data = content
    if np.dtype(dtype).kind not in "biufc":
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()


def _objects(shape):
    if np.prod(shape) > LARGEST / 8:
        raise ValueError(f"an array of shape {shape}")
    return np.full(shape, None)


def _strange(content):
    name, text = content
    return type(str(name), (), {"__repr__": lambda self: str(text)})()


UNPACK = {
    "tuple": lambda items: tuple(map(unpack, items)),
    "list": lambda items: list(map(unpack, items)),
    "dict": lambda items: {key: unpack(item) for key, item in items},
    "plain": lambda value: value,
    "int": int,
    "Fraction": Fraction,
    "array": _array,
    "objects": _objects,
    "strange": _strange,
}


def pack_outcome(outcome):
    """An Outcome as JSON holds it; an exception as the name of its type and its words."""
    return {
        "value": pack(outcome.value),
        "error": None if outcome.error is None else _packed_error(outcome.error),
        "mutated": bool(outcome.mutated),
        "printed": bool(outcome.printed),
        "line": str(outcome.line)[:LONGEST],
    }


def _packed_error(error):
    words = error.args[0] if len(error.args) == 1 and type(error.args[0]) is str else error
    return [type(error).__name__, _text(words, str)]


def unpack_outcome(packed):
    """The Outcome again; exceptions are of the built-in type of that name, or of a likeness."""
    error = packed["error"] and _exception(*map(str, packed["error"]))
    rest = bool(packed["mutated"]), bool(packed["printed"]), str(packed["line"])
    return Outcome(unpack(packed["value"]), error, *rest)


def _exception(name, text):
    if name == "TooSlow":
        return TooSlow(text)
    for module in (builtins, np.exceptions, np.linalg):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return _made(kind, text)
    return type(name, (Exception,), {})(text)


def _made(kind, text):
    """An exception with these words, even of a type whose constructor asks for more."""
    try:
        return kind(text)
    except TypeError:
        error = kind.__new__(kind, text)
        error.args = (text,)
        return error


def _text(value, form=repr):
    try:
        return form(value)[:LONGEST]
    except Exception:
        return "..."
