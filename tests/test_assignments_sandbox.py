"""Hostile submissions, run for real: each ends in time, is named, and takes nobody with it."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from mha_lib.assignments import sandbox
from mha_lib.assignments.sandbox import DIED, FORGED, HUNG, Limits, examine
from mha_lib.exercises import CATALOGUE
from mha_lib.exercises.attempt import TooSlow

SHORT = Limits(exercise=1, cell=1, patience=2, total=60, memory=2**30)
CASES = {name: CATALOGUE[name].cases()[:2] for name in ("split_heads", "merge_heads")}
GIVEN = (0, "import os, sys, time\nimport numpy as np")
RIGHT = "def merge_heads(x):\n    return np.concatenate(list(x), axis=-1)"
linux = pytest.mark.skipif(sys.platform != "linux", reason="what the system refuses differs")


def run(source, limits=SHORT):
    """What came of a cell with ``source``, beside a right merge_heads in another."""
    return examine([GIVEN, (1, source), (2, RIGHT)], CASES, limits)


def split(body):
    """A submission whose split_heads does ``body``."""
    return run(f"def split_heads(x, num_heads):\n    {body}")


def still_right(finding):
    """True if the function beside the bad one has been answered on both cases."""
    outcomes = finding.functions["merge_heads"]
    return isinstance(outcomes, list) and [o.value.shape for o in outcomes] == [(2, 4), (1, 12)]


IN_A_FUNCTION = {
    "a loop without end": ("while True: pass", TooSlow),
    "a loop that catches everything": (
        "while True:\n        try: time.sleep(9)\n        except Exception: pass",
        TooSlow,
    ),
    "exit": ("sys.exit(0)", "SystemExit"),
    "a recursion": ("return split_heads(x, num_heads)", RecursionError),
    "more memory than there is": ("return np.ones((10**6, 10**6))", MemoryError),
    "a long list": ("return [0] * 10**10", MemoryError),
    "another process": ("os.fork()", PermissionError),
    "a shell": ("os.system('true')", PermissionError),
    "a signal to the parent": ("os.kill(os.getppid(), 9)", PermissionError),
    "the network": ("import socket; socket.create_connection(('127.0.0.1', 9))", PermissionError),
    "a file elsewhere": ("open(os.path.expanduser('/') + 'x', 'w')", PermissionError),
    "removing a folder": ("import shutil; shutil.rmtree(os.sep + 'srv')", PermissionError),
}


@linux
@pytest.mark.parametrize("body, kind", IN_A_FUNCTION.values(), ids=IN_A_FUNCTION)
def test_a_bad_function_is_named_and_the_next_one_is_run(body, kind):
    finding = split(body)
    error = finding.functions["split_heads"][-1].error
    assert type(error) is kind or type(error).__name__ == kind
    assert still_right(finding)


ENDS_THE_PROCESS = {
    "os._exit": ("os._exit(0)", DIED),
    "a crash": ("import ctypes; ctypes.string_at(0)", DIED),
    "an abort": ("os.abort()", DIED),
    "no alarm": ("import signal; signal.setitimer(0, 0)\n    while True: pass", HUNG),
    "a forged report": (
        "[os.write(fd, b'{}\\n') for fd in range(3, 9) if os.path.exists(f'/proc/self/fd/{fd}')]",
        FORGED,
    ),
    "a report of another shape": (
        '[os.write(fd, b\'{"step": 3, "outcomes": [1]}\\n\') for fd in range(3, 9)'
        " if os.path.exists(f'/proc/self/fd/{fd}')]",
        FORGED,
    ),
    "megabytes into the report": (
        "[os.write(fd, b'[' * 10**6) for fd in range(3, 9) for _ in range(30)"
        " if os.path.exists(f'/proc/self/fd/{fd}')]; time.sleep(9)",
        None,
    ),
}


@linux
@pytest.mark.parametrize("body, sentence", ENDS_THE_PROCESS.values(), ids=ENDS_THE_PROCESS)
def test_a_function_that_ends_its_process_is_named_and_the_next_one_is_run(body, sentence):
    finding = split(body)
    found = finding.functions["split_heads"]
    assert found == sentence or (sentence is None and isinstance(found, str | list))
    assert still_right(finding)


IN_A_CELL = {
    "a loop without end": ("while True: pass", TooSlow),
    "gigabytes on the screen": ("while True: print('x' * 10**6)", TooSlow),
    "its folder removed": (
        "open('a', 'w'); os.remove('a'); os.rmdir(os.getcwd())",
        PermissionError,
    ),
    "an error": ("1 / 0", ZeroDivisionError),
    "no Python": ("def def", SyntaxError),
    "the exercises of the book": ("from mha_lib.exercises import CATALOGUE", ImportError),
    "the book's functions": ("import mha_lib.scratch", ModuleNotFoundError),
    "NumPy turned upside down": ("np.allclose = np.array_equal = lambda *a, **k: True", None),
    "a judge without judgement": (
        "import json\njson.dumps = lambda *a, **k: '{\"step\": 1}'\n"
        "from mha_lib import exercises\nexercises.check = None",
        None,
    ),
}


@linux
@pytest.mark.parametrize("source, kind", IN_A_CELL.values(), ids=IN_A_CELL)
def test_a_bad_cell_is_named_and_the_next_one_is_run(source, kind):
    finding = run(source)
    outcome = finding.cells[1]
    error = None if isinstance(outcome, str) else outcome.error
    assert error is None if kind is None else type(error) is kind
    if "json.dumps" not in source:  # that one has cut itself off
        assert still_right(finding)


def test_a_submission_knows_neither_answers_nor_seeds():
    """What the process can see of the grader: nothing of the judge, the faults or the solutions."""
    finding = run(
        "import gc\n"
        "names = {getattr(x, '__name__', '') for x in gc.get_objects()} | set(sys.modules)\n"
        "seen = [n for n in names if n in ('masked_softmax', 'judge', 'assess', 'random_cases')]\n"
        "assert not seen, seen\n"
        "assert not [v for v in os.environ.values() if 'seed' in v]"
    )
    assert finding.cells[1].error is None


def test_lines_of_ipython_do_not_stop_a_cell():
    finding = run("%matplotlib inline\n!ls\ndef split_heads(x, num_heads):\n    return x")
    assert finding.cells[1].error is None and len(finding.functions["split_heads"]) == 2


def test_the_line_that_raised_is_told():
    outcome = split("y = 1\n    return x @ undefined").functions["split_heads"][0]
    assert outcome.line == "return x @ undefined"
    assert run("a = 1\nb = undefined").cells[1].line == "b = undefined"


@linux
def test_the_working_folder_may_be_used_and_is_gone_afterwards():
    finding = split("open('a.txt', 'w').write('1'); return os.getcwd()")
    outcome = finding.functions["split_heads"][0]
    assert outcome.error is None and outcome.value != os.getcwd()
    assert not Path(outcome.value).exists()


@linux
def test_what_a_submission_leaves_running_is_ended(monkeypatch, tmp_path):
    """Without namespaces too: its threads and processes end with its group."""
    for namespace in (sandbox._namespace(), ()):
        monkeypatch.setattr(sandbox, "_namespace", lambda namespace=namespace: namespace)
        run("import threading\nthreading.Thread(target=time.sleep, args=(99,)).start()")
    time.sleep(0.2)
    mine = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"assignments.child" in read(p)]
    parents = [int((p.parent / "stat").read_text().rsplit(")")[1].split()[1]) for p in mine]
    assert os.getpid() not in parents


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@linux
def test_the_system_itself_cuts_the_network_where_it_can():
    """Around the audit hook, by ctypes: in a namespace of its own a socket reaches nobody."""
    if not sandbox._namespace():
        pytest.skip("this system does not let users make namespaces")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        finding = split(
            "import ctypes, struct; c = ctypes.CDLL(None); s = c.socket(2, 1, 0); "
            f"a = struct.pack('<H', 2) + struct.pack('>H', {port}) + bytes([127, 0, 0, 1]) + "
            "bytes(8); return c.connect(s, a, 16)"
        )
    assert [outcome.value for outcome in finding.functions["split_heads"]] == [-1, -1]


def test_a_submission_as_a_whole_has_its_time():
    started = time.monotonic()
    finding = run(
        "import signal\nsignal.setitimer(0, 0)\nwhile True: pass", SHORT._replace(total=0)
    )
    assert time.monotonic() - started < 20
    assert "took too long" in finding.functions["merge_heads"]


@linux
def test_a_grader_that_does_not_start_says_so(monkeypatch):
    monkeypatch.setattr(sandbox, "_environment", lambda folder: {"PYTHONPATH": "", "PATH": ""})
    monkeypatch.setattr(sandbox.sys, "executable", "/bin/false")
    monkeypatch.setattr(sandbox, "_namespace", lambda: ())
    with pytest.raises(RuntimeError, match="does not start"):
        run("")
