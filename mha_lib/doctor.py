"""A reader's doctor: what is installed, on what it runs, and whether the book's equalities hold."""

import importlib.metadata
import os
import platform
import re

PACKAGES = ("numpy", "torch", "matplotlib", "jupyterlab", "ipywidgets", "nbval")
MINIMUM = {"numpy": (2, 0), "torch": (2, 9)}


def examine():
    """Print a report; True if all is well. Every finding says how to mend it."""
    print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    findings = list(_packages())
    if not findings:
        findings = [*_device(), *_ladder()]
    for finding in findings:
        print(f"  ! {finding}")
    print("All is well." if not findings else "Something is not as it should be, see above.")
    return not findings


def _packages():
    for name in PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield f"{name} is missing: `python book.py` installs it"
            continue
        print(f"{name} {version}")
        wanted = MINIMUM.get(name, (0, 0))
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < wanted:
            yield f"{name} {wanted[0]}.{wanted[1]} or newer is needed, got {version}: upgrade it"


def _device():
    import torch  # takes seconds, so only after the quick checks

    cuda = torch.cuda.is_available()
    print(f"device: {torch.cuda.get_device_name() if cuda else 'CPU'}")
    print(f"threads: torch {torch.get_num_threads()}, machine {os.cpu_count()}")
    if torch.get_num_threads() > (os.cpu_count() or 1):
        yield "torch uses more threads than there are cores: set OMP_NUM_THREADS lower"


def _ladder():
    from mha_lib import ladder

    rungs = ladder.climb()
    print("equality ladder, float64, largest difference from the loop over heads:")
    print("\n".join(f"  {line}" for line in ladder.table(rungs).splitlines()))
    for rung in rungs:
        if not rung.holds:
            yield f"{rung.name} differs: the installation is damaged, delete .venv and set up again"
