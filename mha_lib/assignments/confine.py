"""What a submission's process may not do, as far as Python and the system let it be refused.

A guard against accidents and easy tricks, not a prison: code that is set on it gets round an audit
hook. Where submissions come from strangers, grade in a container or on an account of its own.
"""

import os
import sys

try:
    import resource
except ImportError:  # Windows
    resource = None

LARGEST_FILE = 64 * 2**20
STARTS_PROCESSES = {
    *("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"),
    *("os.system", "pty.spawn", "subprocess.Popen", "_winapi.CreateProcess"),
}
SENDS_SIGNALS = {"os.kill", "os.killpg", "signal.pthread_kill"}
CHANGES_FILES = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"),
    *("os.chmod", "os.chown", "os.utime"),
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def confine(memory):
    """Limit this process for good: memory in bytes, no network, no processes, no files but here."""
    if resource:
        _limit(resource.RLIMIT_AS, memory)
        _limit(resource.RLIMIT_FSIZE, LARGEST_FILE)
        _limit(resource.RLIMIT_CORE, 0)
    here = os.path.realpath(os.getcwd())
    sys.addaudithook(lambda event, arguments: _refuse(event, arguments, here))


def _limit(what, most):
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _refuse(event, arguments, here):
    """Raise PermissionError where an audit event is one of those that are refused."""
    if event.startswith("socket."):
        raise PermissionError("there is no network while work is graded")
    if event in STARTS_PROCESSES:
        raise PermissionError("no other process may be started while work is graded")
    if event in SENDS_SIGNALS:
        raise PermissionError("no signal may be sent while work is graded")
    if (event == "open" and _writes(*arguments)) or event in CHANGES_FILES:
        paths = arguments[:1] if event == "open" else arguments
        if not all(_is_inside(path, here) for path in paths if not isinstance(path, int)):
            raise PermissionError("only files in the working folder may be changed")


def _writes(path, mode, flags):
    return not isinstance(path, int) and bool((flags or 0) & WRITES)


def _is_inside(path, here):
    if path is None:
        return True
    path = os.path.realpath(os.fsdecode(path))
    return path == os.devnull or path.startswith(here + os.sep)
