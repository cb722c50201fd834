"""One call of a reader's function: what it gave back, raised, printed or changed, and in time."""

import contextlib
import copy
import io
import signal
import sys
import threading
import traceback
from typing import NamedTuple

import numpy as np

SECONDS = 10  # for all cases of an exercise together


class TooSlow(BaseException):
    """Ends a function that does not end by itself; no ``except Exception`` of its own stops it."""


class Outcome(NamedTuple):
    """What a function did on one case: its value or its error, and what it did besides.

    ``line`` is the line of the function that raised.
    """

    value: object = None
    error: BaseException | None = None
    mutated: bool = False
    printed: bool = False
    line: str = ""


def attempt(function, case):
    """Call ``function`` on a copy of ``case``; its Outcome. NumPy's warnings are kept quiet."""
    arguments, value, error = copy.deepcopy(case), None, None
    listener = Listener(sys.stdout)
    try:
        with np.errstate(all="ignore"), contextlib.redirect_stdout(listener):
            value = function(*arguments)
    except (Exception, SystemExit, TooSlow) as raised:
        error = raised
    kept = all(np.array_equal(a, b) for a, b in zip(arguments, case, strict=True))
    mutated = error is None and not kept
    return Outcome(value, error, mutated, listener.heard, _line(error) if error else "")


def attempts(function, cases, seconds=SECONDS):
    """The Outcomes on all cases; where the time ends, the last is TooSlow and the rest is left."""
    outcomes = []
    with time_limit(seconds):
        try:
            for case in cases:
                outcomes.append(attempt(function, case))
                if isinstance(outcomes[-1].error, TooSlow):
                    break
        except TooSlow as error:  # the time ended between two calls
            outcomes.append(Outcome(error=error))
    return outcomes[: len(cases)]


@contextlib.contextmanager
def time_limit(seconds):
    """Raise TooSlow inside the block after so many seconds, and again each second after.

    It needs Unix's alarm signal and the main thread; elsewhere the block runs without a limit.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_):
        raise TooSlow(f"no answer after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Listener(io.TextIOBase):
    """Passes on what is printed, and remembers that something was."""

    def __init__(self, out):
        self.out, self.heard = out, False

    def write(self, text):
        """Print ``text``."""
        self.heard = True
        return self.out.write(text)

    def flush(self):
        """Print at once what waits."""
        self.out.flush()


def _line(error):
    """The line of the function in which it happened; the first frame is this module's own."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return (frames[0].line or "") if frames else ""
