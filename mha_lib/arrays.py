"""What it takes for one definition to serve NumPy arrays and torch tensors alike."""

import sys

import numpy as np

from mha_lib import validate


def library(name, array):
    """The library that an array belongs to, numpy or torch; refuse anything else.

    torch is not imported for the question: where there is a tensor, torch is there already.

    >>> library("mask", np.ones(2)) is np
    True
    """
    if isinstance(array, np.ndarray):
        return np
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch
    raise TypeError(f"{name} must be a numpy.ndarray or torch.Tensor, got {type(array).__name__}")


def same_library(reference, **others):
    """Refuse arrays beside a tensor and tensors beside an array.

    >>> same_library(np.ones(1), buckets=np.arange(2))
    """
    kind = np.ndarray if isinstance(reference, np.ndarray) else sys.modules["torch"].Tensor
    for name, array in others.items():
        validate.instance(name, array, kind)


def is_integer(array):
    """True for whole numbers of any width, False for booleans and floats.

    >>> is_integer(np.arange(2)), is_integer(np.ones(2, bool))
    (True, False)
    """
    return validate.dtype_name(array).startswith(("int", "uint"))


def on_device(array, device):
    """The array itself, or a torch tensor of its numbers where a device is named.

    >>> on_device(np.arange(2), None)
    array([0, 1])
    """
    if device is None:
        return array
    import torch  # only where a tensor is asked for: the NumPy chapters start without torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def float_type(library, dtype):
    """The floating point ``dtype`` itself; refuse other kinds and the other library's.

    >>> float_type(np, "float16")
    'float16'
    """
    try:
        name = validate.dtype_name(library.zeros((), dtype=dtype))
    except TypeError:  # a type that this library doesn't know
        name = None
    if dtype is None or name not in validate.FLOATS:
        raise TypeError(f"dtype must be a floating point type of {library.__name__}, got {dtype!r}")
    return dtype


def floats(array, dtype, device):
    """A float64 array in ``dtype``, on a ``device`` as a tensor of torch's default type or dtype.

    >>> floats(np.ones(2), np.float16, None)
    array([1., 1.], dtype=float16)
    """
    if device is None:
        return array if dtype is None else array.astype(float_type(np, dtype))
    import torch

    dtype = torch.get_default_dtype() if dtype is None else float_type(torch, dtype)
    return torch.from_numpy(array).to(dtype).to(device)  # some devices know no float64
