"""Time implementations against each other: interleaved, by medians, as ratios within one run.

Times on a shared machine move by a factor of two from minute to minute. Ratios between contenders
that take turns hold far better, so they are what is reported.
"""

import statistics
import time
from typing import NamedTuple

from tqdm import tqdm

from mha_lib import validate

PAUSE = 0.2  # seconds: BLAS and OpenMP workers spin after a call, a quarter of that is too short


class Timing(NamedTuple):
    """A contender's median time in seconds, and the median of its ratio to the first contender."""

    name: str
    seconds: float
    ratio: float


def compare(contenders, rounds=9, label="", device="cpu"):
    """Time functions without arguments, given by name, against the first of them.

    Each round runs every contender once: a pause, an untimed call, a timed one.

    >>> [t.name for t in compare({"a": lambda: None, "b": lambda: None}, rounds=1)]
    ['a', 'b']
    """
    validate.positive_integer("rounds", rounds)
    if not contenders:
        raise ValueError("contenders must hold at least one function by its name, got none")
    samples = {name: [] for name in contenders}
    for _ in tqdm(range(rounds), desc=label, leave=False, disable=not label):
        for name, function in contenders.items():
            samples[name].append(sample(function, device))
    first = next(iter(samples.values()))
    return [
        Timing(name, statistics.median(taken), _median_ratio(taken, first))
        for name, taken in samples.items()
    ]


def table(timings):
    """The timings as lines of text.

    >>> print(table([Timing("bare", 0.0123, 1.0)]))
    bare                                 12.30 ms   1.00
    """
    return "\n".join(f"{t.name:34} {t.seconds * 1e3:7.2f} ms {t.ratio:6.2f}" for t in timings)


def sample(function, device="cpu", warm_up=True):
    """Seconds of one call, after an untimed one if ``warm_up``."""
    if device == "cuda":
        return _sample_on_cuda(function, warm_up)
    time.sleep(PAUSE)
    if warm_up:
        function()
    return once(function)


def once(function, device="cpu"):
    """Seconds of one call by the wall clock: all that a caller waits for, compiling included."""
    start = time.perf_counter()
    function()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()  # on a GPU a call returns before the work is done
    return round(time.perf_counter() - start, 9)


def _sample_on_cuda(function, warm_up):
    """By the GPU's own clock; the untimed call keeps it busy while the timed one is sent."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if warm_up:
        function()
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return round(start.elapsed_time(end) / 1e3, 9)


def _median_ratio(taken, first):
    return statistics.median(a / b for a, b in zip(taken, first, strict=True))
