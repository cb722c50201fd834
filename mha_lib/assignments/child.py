"""The process that a submission runs in: cells first, then each function on its cases.

It is started by sandbox.py, which sends a job as JSON and reads one line for each step done. The
process knows the inputs and nothing else: right answers, faults and points stay with the parent,
so that a submission which changes NumPy, this module or itself changes its own answers alone.
"""

import gc
import json
import linecache
import os
import re
import sys
import traceback
import types

from mha_lib.assignments.confine import confine
from mha_lib.assignments.wire import pack_outcome, unpack
from mha_lib.exercises.attempt import attempts


def main():
    """Read the job, run its steps, and end at once whatever else is still running."""
    job = json.load(sys.stdin)
    report = _private_output()
    _forget_the_library()
    report({"step": -1})
    confine(job["memory"])
    namespace = {"__name__": "__main__"}
    step = 0
    for number, source in job["cells"]:
        outcome = run_cell(number, source, namespace, job["cell_seconds"])
        report({"step": step, "outcome": pack_outcome(outcome._replace(value=None))})
        step += 1
    for name, cases in job["exercises"]:
        function = namespace.get(name)
        outcomes = run_function(function, cases, job["seconds"]) if callable(function) else None
        report({"step": step, "outcomes": outcomes})
        step += 1
    os._exit(0)


def _private_output():
    """Keep the way to the parent for reports; what a submission prints goes nowhere."""
    channel = os.fdopen(os.dup(1), "w", encoding="ascii")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)

    def report(line):
        channel.write(json.dumps(line) + "\n")
        channel.flush()

    return report


def _forget_the_library():
    """Put a stand-in in mha_lib's place: its exercises hold the solutions that are asked for."""
    for name in [name for name in sys.modules if name.split(".")[0] == "mha_lib"]:
        del sys.modules[name]
    library, exercises = types.ModuleType("mha_lib"), types.ModuleType("mha_lib.exercises")
    exercises.check = exercises.hints = exercises.require = lambda *arguments, **options: None
    library.exercises = exercises
    sys.modules |= {"mha_lib": library, "mha_lib.exercises": exercises}
    gc.collect()


def run_cell(number, source, namespace, seconds):
    """Run one cell in the namespace; its Outcome."""
    name = f"<cell {number}>"
    source = plain_python(source)
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name

    def cell():
        exec(compile(source, name, "exec"), namespace)

    outcome = attempts(cell, [()], seconds)[0]
    return outcome._replace(line=_line_of_a_cell(outcome.error))


def _line_of_a_cell(error):
    """The line of the submission in which an error arose, its own last one."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    lines = [frame.line for frame in frames if frame.filename.startswith("<cell")]
    return lines[-1] if lines else ""


def plain_python(source):
    """A cell without IPython's own commands, which begin with %, ! or ?.

    >>> plain_python("%matplotlib inline\\nx = 1")
    'pass\\nx = 1'
    """
    try:
        compile(source, "", "exec")
    except (SyntaxError, ValueError):
        return re.sub(r"(?m)^([ \t]*)[%!?].*$", r"\1pass", source)
    return source


def run_function(function, cases, seconds):
    """Packed Outcomes of a function on packed cases."""
    unpacked = [tuple(unpack(argument) for argument in case) for case in cases]
    return [pack_outcome(outcome) for outcome in attempts(function, unpacked, seconds)]


if __name__ == "__main__":
    main()
