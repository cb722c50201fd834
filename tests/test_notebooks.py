"""The chapters' form, and that they draw today what they show."""

import json
import re
from copy import deepcopy
from pathlib import Path

import pytest

from mha_lib import notebooks

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)

GOOD = {
    "cells": [
        {
            "cell_type": "code",
            "id": "one",
            "execution_count": 1,
            "metadata": {},
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "1.5\n"}],
            "source": "print(1.5)",
        },
        {
            "cell_type": "code",
            "id": "two",
            "execution_count": 2,
            "metadata": {},
            "outputs": [],
            "source": "assert True",
        },
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def test_there_are_chapters():
    assert len(CHAPTERS) >= 3


@each_chapter
def test_a_chapter_has_good_form(path):
    assert notebooks.problems(path) == []


@each_chapter
def test_readme_lists_the_chapter_with_its_minutes(path):
    lines = (ROOT / "README.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|") and path.name in line]
    assert rows, f"{path.name} is missing from README's table of chapters"
    assert re.search(r"\|\s*\d+\s*\|", rows[0]), f"README gives no minutes for {path.name}"


@each_chapter
def test_a_chapter_ends_with_what_is_now_known(path):
    book = json.loads(path.read_text())
    prose = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "markdown"]
    assert prose[0].startswith("# ") and "minutes" in prose[0].lower()
    assert prose[-1].startswith("## What you now know")
    assert any("## Bugs you will write" in text for text in prose)


@each_chapter
def test_links_between_chapters_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]+\.ipynb)", path.read_text())
    assert all((path.parent / link).exists() for link in links), links


@each_chapter
def test_a_chapter_has_three_to_six_exercises(path):
    found = re.findall(r"\*\*Exercise (\d+)\.(\d+)\*\*", path.read_text())
    assert 3 <= len(found) <= 6
    assert found == [(str(int(path.name[:2])), str(i + 1)) for i in range(len(found))]


@each_chapter
def test_pictures_are_drawn_today_byte_for_byte(path):
    stored = notebooks.pictures(json.loads(path.read_text()))
    assert stored and notebooks.pictures(notebooks.executed(path)) == stored


def plant(**changes):
    """A good notebook with something changed in its first code cell or its metadata."""
    book = deepcopy(GOOD)
    book["metadata"] |= changes.pop("book", {})
    book["cells"][0] |= changes
    return book


def output(**data):
    return [{"output_type": "display_data", "data": data, "metadata": {}}]


FAULTS = {
    "never run": (plant(execution_count=None), "not run once from the top"),
    "foreign kernel": (plant(book={"kernelspec": {"name": "my-venv"}}), "kernel is 'my-venv'"),
    "widget state": (plant(book={"widgets": {}}), "widget state"),
    "id used twice": (plant(id="two"), "ids"),
    "long cell": (plant(source="x = 1\n" * 30), "lines of code"),
    "times stored": (plant(metadata={"execution": {}}), "times of a run"),
    "error": (
        plant(outputs=[{"output_type": "error", "ename": "KeyError"}]),
        "an error is stored: KeyError",
    ),
    "stderr": (
        plant(outputs=[{"output_type": "stream", "name": "stderr", "text": "warning"}]),
        "stderr",
    ),
    "address": (plant(outputs=output(**{"text/plain": "<f at 0x7f12345678>"})), "an address"),
    "path": (plant(outputs=output(**{"text/plain": "/home/me/book"})), "a path"),
    "time": (plant(outputs=output(**{"text/plain": "took 12.5 ms"})), "a time"),
    "too large": (plant(outputs=output(**{"text/plain": "x" * 300_000})), "more than 200 kB"),
    "script": (
        plant(outputs=output(**{"text/html": "<script src='//cdn/x.js'></script>"})),
        "a script",
    ),
    "no alt text": (plant(outputs=output(**{"image/png": "AAAA"})), "alternative text"),
    "no reason": (plant(metadata={"tags": ["nbval-ignore-output"]}), "no reason"),
}


@pytest.mark.parametrize(("book", "message"), FAULTS.values(), ids=FAULTS)
def test_the_gate_names_what_is_wrong(book, message, tmp_path):
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps(book))
    assert any(message in problem for problem in notebooks.problems(path))


def test_the_gate_passes_a_good_notebook(tmp_path):
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps(GOOD))
    assert notebooks.problems(path) == []


def test_an_ignored_output_needs_an_assertion_in_the_next_cell(tmp_path):
    tags = {"tags": ["nbval-ignore-output"], "reason": "times differ"}
    book = plant(metadata=tags)
    book["cells"][1]["source"] = "x = 1"
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps(book))
    assert "no assertion follows" in notebooks.problems(path)[0]


def test_clean_keeps_tags_and_reasons_only():
    import nbformat

    book = nbformat.from_dict(plant(metadata={"tags": ["a"], "reason": "b", "execution": {}}))
    cleaned = notebooks.clean(book)
    assert cleaned.cells[0].metadata == {"tags": ["a"], "reason": "b"}
    assert cleaned.metadata.language_info == {"name": "python"}
