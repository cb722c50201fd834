"""Count what a function really computes: NumPy's operations as they happen, and torch's by its own.

Importing this is light; torch is imported by the one function that needs it.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from mha_lib import validate

ARITHMETIC = {"add", "subtract", "multiply", "divide", "exp", "log", "maximum", "minimum"}
UNSEEN = {np.dot, np.einsum, np.inner, np.outer, np.tensordot, np.vdot}


@dataclass
class Counts:
    """What a function did: ``multiply_adds`` of its matrix products, ``elementwise`` the rest.

    ``elementwise`` holds the number of operations by the name of NumPy's function.
    """

    multiply_adds: int = 0
    elementwise: Counter = field(default_factory=Counter)

    @property
    def flops(self):
        """FLOPs of the matrix products: 2 for each multiply-add."""
        return 2 * self.multiply_adds

    @property
    def arithmetic(self):
        """Elementwise operations that compute: no comparisons and no looking for inf or NaN."""
        return sum(n for name, n in self.elementwise.items() if name in ARITHMETIC)


def count_numpy(function, *arrays):
    """Call ``function(*arrays)`` and count the operations on them and on what comes of them.

    A product of (n, k) and (k, m) is n * k * m multiply-adds; an elementwise function is one
    operation for each number that it makes, and a sum or maximum of n numbers is n - 1. Products
    are seen if either side comes from ``arrays``. Elementwise work is missed on buffers that the
    function made itself, with np.empty for instance, until something from ``arrays`` meets them.
    A starting value of a sum or maximum is not counted. Raises TypeError for what is no array, and
    for np.dot, np.einsum and others whose work cannot be seen.

    >>> counts = count_numpy(lambda a, b: np.exp(a @ b), np.ones((2, 3)), np.ones((3, 5)))
    >>> counts.multiply_adds, counts.flops, dict(counts.elementwise)
    (30, 60, {'exp': 10})
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}")
    for position, array in enumerate(arrays):
        validate.instance(f"arrays[{position}]", array, np.ndarray)
    counts = Counts()
    function(*(_watched(array, counts) for array in arrays))
    return counts


def count_torch(function):
    """FLOPs of the matrix products that ``function()`` runs in torch, by torch's FlopCounterMode.

    torch 2.13 counts nothing for the fused scaled_dot_product_attention of a CPU, and all pairs,
    allowed or not, for a causal one on a GPU.

    >>> import torch
    >>> count_torch(lambda: torch.ones(2, 3) @ torch.ones(3, 5))
    60
    """
    from torch.utils.flop_counter import FlopCounterMode

    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}")
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


class _Watched(np.ndarray):
    """An array that reports every operation on it, and makes more of its kind."""

    counts = None  # the Counts to report to
    lock = threading.Lock()  # tiles may be computed by several threads

    def __array_finalize__(self, origin):
        self.counts = getattr(origin, "counts", None)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if method not in ("__call__", "reduce"):
            _refuse(f"{ufunc.__name__}.{method}")
        counts = _counts_of(*inputs, *options.get("out", ()))
        inputs, options = _plain(inputs), {name: _plain(x) for name, x in options.items()}
        result = getattr(ufunc, method)(*inputs, **options)
        with self.lock:
            _record(counts, ufunc, method, inputs, options.get("where", True), result)
        return _watched(result, counts)

    def __array_function__(self, function, types, args, kwargs):
        if function in UNSEEN:
            _refuse(function.__name__)
        return _watched(super().__array_function__(function, types, args, kwargs), self.counts)

    def dot(self, other, out=None):
        """Refused: NumPy does not let this method be seen."""
        _refuse("dot")


def _refuse(name):
    raise TypeError(f"function must use @ and elementwise functions to be counted, got np.{name}")


def _record(counts, ufunc, method, inputs, where, result):
    made = np.size(result)
    if ufunc.signature is not None:  # matmul and its relatives: the last axis is summed over
        counts.multiply_adds += made * inputs[0].shape[-1]
        return
    touched = np.shape(inputs[0]) if method == "reduce" else np.shape(result)
    done = int(np.count_nonzero(np.broadcast_to(where, touched)))
    # A sum of n numbers is n - 1 additions.
    counts.elementwise[ufunc.__name__] += max(0, done - made) if method == "reduce" else done


def _watched(result, counts):
    """Arrays that report; numbers, None and tuples of arrays pass through."""
    if isinstance(result, (tuple, list)):
        return type(result)(_watched(part, counts) for part in result)
    if not isinstance(result, np.ndarray):
        return result
    watched = result.view(_Watched)
    watched.counts = counts
    return watched


def _plain(x):
    if isinstance(x, tuple):
        return tuple(_plain(part) for part in x)
    return x.view(np.ndarray) if isinstance(x, _Watched) else x


def _counts_of(*arrays):
    return next(a.counts for a in arrays if isinstance(a, _Watched))
