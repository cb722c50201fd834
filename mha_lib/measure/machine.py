"""The machine at hand: its name, its memory, and what it can do at best."""

import functools
import platform
from pathlib import Path

import psutil

from mha_lib import cost
from mha_lib.measure import clock

WIDTH = {"cpu": 2048, "cuda": 8192}  # of the square matrices that are multiplied
COPIED = {"cpu": 2**28, "cuda": 2**30}  # bytes
DTYPES = {"cpu": ("float32",), "cuda": ("float32", "bfloat16")}
TRIES = 5  # the best counts: a limit is what was reached once


def device():
    """Where to run: "cuda" if there is such a device, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def probe(device="cpu"):
    """The machine at hand as a cost.Device: the best of a few matrix products and copies.

    Takes a second or two, once. Copied bytes count twice, as read and as written.
    """
    import torch

    width, number = WIDTH[device], COPIED[device] // 4
    peak = {d: 2 * width**3 / _fastest_product(width, d, device) for d in DTYPES[device]}
    old, new = (torch.ones(number, device=device) for _ in range(2))
    bandwidth = 8 * number / _fastest(lambda: new.copy_(old), device)
    return cost.Device(name(device), peak, bandwidth, memory(device), "measured on the device")


def name(device="cpu"):
    """What the processor or the GPU calls itself."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory(device="cpu"):
    """Bytes of the device's own memory."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_properties(0).total_memory
    return psutil.virtual_memory().total


def _fastest_product(width, dtype, device):
    import torch

    matrix = torch.ones(width, width, device=device, dtype=getattr(torch, dtype))
    return _fastest(lambda: matrix @ matrix, device)


def _fastest(call, device):
    call()
    return min(clock.sample(call, device, warm_up=False) for _ in range(TRIES))
