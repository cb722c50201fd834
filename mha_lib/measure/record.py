"""Records of measurements: JSON from which figures are drawn again.

A record says on what it was taken (device, versions, threads) and holds every sample. It names
no path, no user and no host.
"""

import importlib.metadata
import json
import os
import platform
import statistics
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from mha_lib import cost
from mha_lib.measure import machine

FORMAT = 1
PACKAGES = ("mha-lib", "numpy", "torch")
SHIPPED = files("mha_lib") / "records"


def new(kind, device, points):
    """A record of points just measured; its command is filled in by whoever was given one."""
    return {
        "format": FORMAT,
        "sweep": kind,
        "command": None,
        "device": describe(device),
        "versions": versions(device),
        "threads": threads(),
        "points": points,
    }


def describe(device):
    """The device in words and numbers, its peak and bandwidth measured (see machine.probe)."""
    system = f"{platform.system()} {platform.machine()}"
    at_hand = {"kind": device, "cores": os.cpu_count(), "system": system}
    return at_hand | asdict(machine.probe(device))


def recorded_device(record):
    """The device of a record, as measured when it was taken, as a cost.Device."""
    names = ("name", "peak", "bandwidth", "memory", "source")
    return cost.Device(**{name: record["device"][name] for name in names})


def versions(device="cpu"):
    """Versions of Python and of the libraries that were timed."""
    found = {"python": platform.python_version()}
    found |= {name: importlib.metadata.version(name) for name in PACKAGES}
    if device == "cuda":
        import torch

        found |= {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
    return found


def threads():
    """How many threads torch and the libraries beneath use."""
    import threadpoolctl
    import torch

    pools = {p["internal_api"]: p["num_threads"] for p in threadpoolctl.threadpool_info()}
    return {"torch": torch.get_num_threads()} | pools


def save(record, path):
    """Write a record as JSON, a point a line; missing folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps(record | {"points": []}, indent=1).removesuffix("]\n}")
    lines = ",\n".join(f"  {json.dumps(point)}" for point in record["points"])
    path.write_text(f"{head}\n{lines}\n ]\n}}\n", "utf-8")


def load(name):
    """The record in a file, or one that came with the book by its name, such as "cpu_n"."""
    source = SHIPPED / f"{name}.json" if name in shipped() else Path(name)
    try:
        record = json.loads(source.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"name must be a file or one of {shipped()}, got {name!r}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"name must be a record of format {FORMAT}, got {name!r}, which is not")
    return record


def shipped():
    """Names of the records that came with the book."""
    if not SHIPPED.is_dir():
        return []
    return sorted(f.name.removesuffix(".json") for f in SHIPPED.iterdir() if ".json" in f.name)


def curve(record, x, y="seconds", **where):
    """Two lists: x and the median of y over it, of the points that fit ``where``.

    ``y`` is "seconds", "first_call_seconds" or "peak_bytes"; points without it are left out.

    >>> points = [{"n": n, "causal": False, "seconds": [n / 8, n / 4, n]} for n in (8, 16)]
    >>> curve({"points": points}, "n", causal=False)
    ([8, 16], [2.0, 4.0])
    """
    chosen = [p for p in record["points"] if all(p[key] == where[key] for key in where)]
    found = sorted((p[x], _median(p[y])) for p in chosen if p[y])
    if len({at for at, _ in found}) < len(found):
        raise ValueError(f"where must leave one point for each {x}, got several with {where}")
    return [at for at, _ in found], [value for _, value in found]


def _median(value):
    return statistics.median(value) if isinstance(value, list) else value
