"""Runs a submission in processes of its own, and gets back what its functions answered.

Whatever a submission does, hang, exit, crash, fork, fill the memory or flood the screen, its
process ends within the limits, and the step that did it is named. A new process then goes on with
the steps that are left, so that one function never takes others with it.
"""

import contextlib
import functools
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from mha_lib.assignments.wire import pack, unpack_outcome

# On Linux, where users may: no network, and every process of the submission dies with the first.
NAMESPACE = ("unshare", "--map-current-user", "--net", "--pid", "--fork", "--kill-child")
LONGEST_LINE = 40_000_000  # characters of one report
STARTING, TRIES = 30, 3  # seconds for a process to start, and how often it may fail to
KEPT = ("PATH", "LANG", "SYSTEMROOT", "VIRTUAL_ENV")  # of the environment


class Limits(NamedTuple):
    """Seconds for an exercise, for a cell and for a whole submission; bytes of memory."""

    exercise: float = 10
    cell: float = 30
    patience: float = 10  # for a step that does not heed its own limit
    total: float = 180
    memory: int = 4 * 2**30


USUAL = Limits()


class Finding(NamedTuple):
    """What came of a submission.

    ``cells`` has an Outcome for each cell, ``functions`` a list of Outcomes for each exercise, None
    where there is no such function, or a sentence where it took its process with it.
    """

    cells: dict
    functions: dict


def examine(cells, cases, limits=USUAL):
    """Run ``cells``, pairs (number, source), then each function on its ``cases``; a Finding."""
    finding, given_up = Finding({}, {}), time.monotonic() + limits.total
    while todo := [name for name in cases if name not in finding.functions]:
        running = [cell for cell in cells if not isinstance(finding.cells.get(cell[0]), str)]
        steps = [(finding.cells, number) for number, _ in running]
        steps += [(finding.functions, name) for name in todo]
        end = _run(_job(running, {name: cases[name] for name in todo}, limits), steps, limits)
        if end:
            results, step = steps[end[0]]
            results[step] = end[1]
        if time.monotonic() > given_up:
            late = "The notebook as a whole took too long, and this function was not reached."
            finding.functions.update({name: late for name in todo if name not in finding.functions})
    return finding


def _job(cells, cases, limits):
    packed = [[name, [list(map(pack, case)) for case in cases[name]]] for name in cases]
    seconds = {"seconds": limits.exercise, "cell_seconds": limits.cell}
    return {"cells": cells, "exercises": packed, "memory": limits.memory, **seconds}


def _run(job, steps, limits):
    """Fill in the results of all steps; (number of the step, sentence) if one ended the process."""
    with _started(job, len(steps)) as lines:
        for number, (results, step) in enumerate(steps):
            longest = limits.exercise if isinstance(step, str) else limits.cell
            report, sentence = _report(lines, number, longest + limits.patience)
            if sentence:
                return number, sentence
            try:
                results[step] = _unpacked(report)
            except (ValueError, TypeError, KeyError, RecursionError, MemoryError):
                return number, FORGED
    return None


def _unpacked(report):
    if "outcome" in report:
        return unpack_outcome(report["outcome"])
    outcomes = report["outcomes"]
    return outcomes if outcomes is None else list(map(unpack_outcome, outcomes))


HUNG = "It did not end, and its process was stopped from outside."
DIED = "It ended the process that it ran in: did it call exit, or use up the memory?"
FORGED = "It disturbed the report of its results."


def _report(lines, number, seconds):
    """The next report and None, or None and a sentence that says why there is none."""
    try:
        line = lines.get(timeout=seconds)
    except queue.Empty:
        return None, HUNG
    if not line:
        return None, DIED
    try:
        report = json.loads(line)
        return (report, None) if report["step"] == number else (None, FORGED)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, FORGED


def _lines(process, most):
    """A queue of the lines that the process reports, at most so many, and b"" at their end."""
    lines = queue.Queue()

    def read():
        with process.stdout as reports:
            for line in itertools.islice(iter(lambda: reports.readline(LONGEST_LINE), b""), most):
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    return lines


@contextlib.contextmanager
def _started(job, steps):
    """The lines of a child that has the job and is ready; on a busy machine a start may fail."""
    for _ in range(TRIES):
        with _process() as (process, errors):
            lines = _lines(process, 1 + steps)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(job).encode("ascii"))
                process.stdin.close()
            why = _report(lines, -1, STARTING)[1]
            if not why:
                yield lines
                return
            said = errors()
    raise RuntimeError(f"the grader's own process does not start: {said or why}")


@contextlib.contextmanager
def _process():
    """A child in a folder of its own, and a function that says what it wrote on stderr."""
    with (
        tempfile.TemporaryDirectory(prefix="graded-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as errors,
    ):
        process = subprocess.Popen(
            [*_namespace(), sys.executable, "-P", "-m", "mha_lib.assignments.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
        try:
            yield process, lambda: _tail(errors)
        finally:
            _end(process)


def _tail(errors):
    errors.seek(0)
    return errors.read()[-300:].decode(errors="replace").strip()


def _end(process):
    """Kill the process and all that it started and did not hide."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _environment(folder):
    """One thread for each library, no proxies, no home to read or write."""
    threads = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    return (
        {name: os.environ[name] for name in KEPT if name in os.environ}
        | dict.fromkeys(threads, "1")
        | {"HOME": folder, "TMPDIR": folder, "TEMP": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "0"}
    )


@functools.cache
def _namespace():
    """The command that cuts a process off from the network, if this system has and permits it."""
    if shutil.which(NAMESPACE[0]):
        done = subprocess.run([*NAMESPACE, "true"], capture_output=True)
        if done.returncode == 0:
            return NAMESPACE
    return ()
