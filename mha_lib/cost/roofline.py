"""The roofline: how fast a computation can be at best, given what it does and what it moves.

Source: Williams, Waterman and Patterson 2009, "Roofline: An Insightful Visual Performance Model".
"""

from mha_lib import validate
from mha_lib.cost.checks import not_negative
from mha_lib.cost.hardware import Device


def ridge(device, dtype):
    """The intensity, FLOP per byte, from which on arithmetic and no longer memory is the limit.

    >>> from mha_lib.cost.hardware import DEVICES
    >>> round(ridge(DEVICES["H100 SXM"], "bfloat16"))
    295
    """
    return _peak(device, dtype) / device.bandwidth


def attainable(device, dtype, intensity):
    """The most FLOP/s at this ``intensity`` (FLOP per byte): the peak, or what memory can feed.

    >>> machine = Device("example", {"float32": 100.0}, bandwidth=10.0, memory=1.0, source="")
    >>> [attainable(machine, "float32", intensity) for intensity in (1, 10, 100)]
    [10.0, 100.0, 100.0]
    """
    peak = _peak(device, dtype)
    not_negative("intensity", intensity)
    return min(peak, device.bandwidth * intensity)


def seconds(device, dtype, flops, num_bytes):
    """The least time in seconds, arithmetic and memory traffic running side by side.

    >>> machine = Device("example", {"float32": 100.0}, bandwidth=10.0, memory=1.0, source="")
    >>> seconds(machine, "float32", flops=200, num_bytes=50)
    5.0
    """
    peak = _peak(device, dtype)
    not_negative("flops", flops)
    not_negative("num_bytes", num_bytes)
    return max(flops / peak, num_bytes / device.bandwidth)


def bound(device, dtype, intensity):
    """What limits a computation of this ``intensity`` (FLOP per byte): "memory" or "compute".

    >>> machine = Device("example", {"float32": 100.0}, bandwidth=10.0, memory=1.0, source="")
    >>> bound(machine, "float32", 9), bound(machine, "float32", 10)
    ('memory', 'compute')
    """
    not_negative("intensity", intensity)
    return "memory" if intensity < ridge(device, dtype) else "compute"


def _peak(device, dtype):
    validate.instance("device", device, Device)
    if dtype not in device.peak:
        known = ", ".join(device.peak)
        raise ValueError(f"dtype must be one of {known} on {device.name}, got {dtype!r}")
    return device.peak[dtype]
