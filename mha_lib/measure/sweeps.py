"""Sweeps: every implementation at every size, taking turns."""

import re
import time
from contextlib import contextmanager
from dataclasses import asdict

from tqdm import tqdm

from mha_lib import validate
from mha_lib.measure import clock, cores, machine, memory, plans, record

FEWEST = 3  # rounds, however long they take
PATIENCE = 20  # seconds for one size: after them no further round begins
LONG = 0.5  # seconds: a call that takes longer needs no untimed one before it


def sweep(
    kind,
    device=None,
    *,
    sizes=None,
    implementations=None,
    rounds=7,
    memory=False,
    label="",
    **fixed,
):
    """Measure implementations over sizes; the record (see measure.record) of every sample.

    ``kind`` is "n", "heads", "d_model" or "decode" (one query against n keys). ``sizes`` and
    ``implementations`` (names in CORES) are those of measure.plans unless given; other values are
    fixed by name, such as causal=False or n=256. ``memory`` measures peak memory too.
    At one size all take turns, ``rounds`` times, fewer where a turn is long. Whatever fails, for
    want of memory or of a kernel, is noted in its point. A ``label`` shows a progress bar.
    """
    validate.positive_integer("rounds", rounds)
    device = _check_device(device)
    groups = plans.plan(kind, device, sizes, implementations, **fixed)
    points = []
    for group in tqdm(groups, desc=label, disable=not label):
        points += _measure(group, device, rounds, memory)
    return record.new(kind, device, points)


def _measure(points, device, rounds, with_memory):
    """All points of one size: their first calls, then turns."""
    runs = [_Run(point, device) for point in points]
    for run in runs:
        for step in run.first_steps(with_memory):
            run.attempt(step)
    begun = time.perf_counter()
    for done in range(rounds):
        if done >= FEWEST and time.perf_counter() - begun > PATIENCE:
            break
        for run in runs:
            run.attempt(run.take_turn)
    return [run.result() for run in runs]


class _Run:
    """What has been measured of one point so far."""

    def __init__(self, point, device):
        self.point, self.device = point, device
        self.call = self.first = self.peak = self.backend = self.error = None
        self.samples = []

    def first_steps(self, with_memory):
        """A child process finds out whether there is memory enough; on CUDA a first call does."""
        if not with_memory:
            return [self.begin]
        return [self.weigh, self.begin] if self.device == "cpu" else [self.begin, self.weigh]

    def attempt(self, step):
        """Take a step; one that fails is noted, and is the last of this point."""
        if self.error is not None:
            return
        try:
            step()
        except (MemoryError, RuntimeError) as error:
            self.error, self.call = _in_words(error), None

    def weigh(self):
        self.peak = memory.peak_bytes(self.point, self.device)

    def begin(self):
        with self._bounds():
            self.call = cores.run_on(self.point, self.device)
            self.first = clock.once(self.call, self.device)
            self.backend = cores.check_backend(self.point, self.call)

    def take_turn(self):
        last = self.samples[-1] if self.samples else self.first
        with self._bounds():
            self.samples.append(clock.sample(self.call, self.device, warm_up=last < LONG))

    @contextmanager
    def _bounds(self):
        with memory.limited(self.device), cores.chosen(self.point):
            yield

    def result(self):
        return asdict(self.point) | {
            "first_call_seconds": self.first,
            "seconds": self.samples,
            "peak_bytes": self.peak,
            "backend": self.backend,
            "error": self.error,
        }


def _in_words(error):
    """A fault for the record, without anything that could be a path."""
    text = str(error).strip()
    out = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if out or "allocate memory" in text:
        return "out of memory"
    first = re.sub(r"\S*[/\\]\S*", "…", text.partition("\n")[0])
    return f"{type(error).__name__}: {first}"


def _check_device(device):
    device = machine.device() if device is None else device
    plans.among("device", [device], ["cpu", "cuda"])
    if device == "cuda" and machine.device() != "cuda":
        raise ValueError('device must be "cpu" here, got "cuda": torch finds no CUDA device')
    return device
