"""The commands of python -m mha_lib."""

import subprocess
import sys

import pytest

from mha_lib.__main__ import main


def test_the_doctor_runs_from_a_terminal(capsys):
    assert main(["doctor"]) == 0
    assert "All is well." in capsys.readouterr().out


def test_figures_are_written_where_asked(tmp_path, capsys):
    assert main(["figures", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "00_map.svg").read_bytes().startswith(b"<svg ")


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["no-such-command"])
    assert "invalid choice" in capsys.readouterr().err


def test_numpy_chapters_start_without_torch_and_matplotlib():
    code = "import sys, mha_lib.scratch, mha_lib.masks; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
