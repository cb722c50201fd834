"""A grading run as a teacher makes it: commands, tables, feedback pages, Gradescope."""

import argparse
import csv
import json
import random
import subprocess
import sys
import zipfile
from html.parser import HTMLParser

import pytest

from mha_lib.assignments import cli, notebook
from mha_lib.assignments.collect import submissions
from mha_lib.assignments.report import grade_all
from tests.test_assignments import (
    EINSUM,
    LOOPS,
    MASTERS,
    SEED,
    SETS,
    SOURCE,
    filled,
    save,
    solutions,
)

OVER_QUERIES = """
def softmax(scores):
    e = np.exp(scores - scores.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-2, keepdims=True)
"""
FIRST, SECOND = MASTERS[:2]


def command(*arguments):
    """Run ``assignments ...`` as the book's command line does; its exit status."""
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers(required=True))
    options = parser.parse_args(["assignments", *map(str, arguments)])
    return options.run(options)


def table(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A class: right, blank, partly right, in a flat folder, broken, and of no set at all."""
    folder = tmp_path_factory.mktemp("submissions")
    save(filled(FIRST, solutions(FIRST)), folder / "ada" / FIRST.name)
    save(filled(SECOND, solutions(SECOND)), folder / "ada" / "renamed.ipynb")
    save(filled(FIRST, {}), folder / "bob" / FIRST.name)
    partly = LOOPS | {"softmax": OVER_QUERIES, "reshape": "Because <b>shapes</b> fit."}
    save(filled(FIRST, partly), folder / "eve" / f"{FIRST.stem} (1).ipynb")
    save(filled(FIRST, EINSUM, extra=["1 / 0"]), folder / "zoe.ipynb")
    (folder / "dan").mkdir()
    (folder / "dan" / f"{FIRST.stem}.ipynb").write_text("not JSON", encoding="utf-8")
    (folder / "kim").mkdir()
    (folder / "kim" / "notes.ipynb").write_text('{"cells": []}', encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(handed_in, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    status = command("grade", handed_in, "--seed", SEED, "--out", out, "--source", SOURCE)
    assert status == 0
    return out


def test_grades(results):
    grades = {(line["student"], line["set"]): line for line in table(results / "grades.csv")}
    assert {key: line["points"] for key, line in grades.items()} == {
        ("ada", FIRST.stem): "80",
        ("ada", SECOND.stem): "80",
        ("bob", FIRST.stem): "0",
        ("dan", FIRST.stem): "0",
        ("eve", FIRST.stem): "70",
        ("kim", ""): "0",
        ("zoe", FIRST.stem): "80",
    }
    assert grades["ada", FIRST.stem]["percent"] == "100"
    assert "cannot be read as a notebook" in grades["dan", FIRST.stem]["notes"]
    assert "not known which set" in grades["kim", ""]["notes"]
    assert "ZeroDivisionError" in grades["zoe", FIRST.stem]["notes"]


def test_exercises_are_listed_with_what_was_found(results):
    lines = [line for line in table(results / "exercises.csv") if line["student"] == "eve"]
    assert [line["finding"] for line in lines] == [
        *("named fault", "right", "right", "right", "right", "right")
    ]
    assert "over the queries" in " ".join(lines[0]["message"].split())


class Page(HTMLParser):
    """Text and tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.attributes = "", set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def test_a_page_for_each_student_stands_alone(results):
    pages = {path.stem: Page(path.read_text("utf-8")) for path in results.glob("feedback/*.html")}
    assert pages.keys() == {"ada", "bob", "dan", "eve", "kim", "zoe"}
    for page in pages.values():
        assert not page.tags & {"script", "link", "img", "iframe", "b"}
        assert page.attributes <= {"lang", "charset", "class"}
        assert "http" not in page.text and "require(" not in page.text
    eve = " ".join(pages["eve"].text.split())
    assert "the softmax ran over the queries (axis -2)" in eve and "70 of 80 points" in eve
    assert "Judged with a right softmax in the place of yours." in eve
    assert "Because <b>shapes</b> fit." in eve and "read by a person, up to 20 points" in eve
    assert "not attempted" in pages["bob"].text
    for name in pages.keys() - {"ada"}:  # who handed in the master's own answers
        assert not any(
            x in pages[name].text for x in ("BEGIN", "Rubric", "Model answer", str(SEED))
        )


def test_points_given_by_hand_are_kept_and_counted(handed_in, results):
    path = results / "by_hand.csv"
    text = path.read_text("utf-8-sig")
    assert text.count("\n") >= 5 and "Because <b>shapes</b> fit." in text
    lines = table(path)
    for line in lines:
        if line["student"] == "eve":
            line |= {"points": "17.5", "comment": "Well seen."}
    with path.open("w", newline="", encoding="utf-8") as file:  # without Excel's mark
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    grade_all(handed_in, SOURCE, results, SEED, say=lambda line: None)
    (line,) = [line for line in table(results / "grades.csv") if line["student"] == "eve"]
    assert (line["by_hand"], line["total"]) == ("17.5", "87.5")
    page = (results / "feedback" / "eve.html").read_text("utf-8")
    assert "Well seen." in page and "17.5 of 20" in page
    path.write_text(path.read_text("utf-8-sig").replace("17.5", "99"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"points of eve, reshape, must be 0 to 20, got '99'"):
        grade_all(handed_in, SOURCE, results, SEED)


def test_grades_do_not_depend_on_the_order(handed_in, tmp_path, monkeypatch):
    """Graded backwards, and one that crashes first, everyone has the points of before."""
    folder = tmp_path / "class"
    for name, answers in (("a", {"softmax": "import os; os._exit(1)"}), ("b", LOOPS), ("c", {})):
        save(filled(FIRST, answers), folder / name / FIRST.name)
    found = submissions(folder, SETS)
    runs = []
    for order in (found, found[::-1], random.Random(0).sample(found, 3)):
        monkeypatch.setattr("mha_lib.assignments.report.submissions", lambda *_, o=order: o)
        rows = grade_all(folder, SOURCE, tmp_path / "out", SEED, say=lambda line: None)
        runs.append({row.student: (row.grade.earned, row.grade.results) for row in rows})
    assert runs[0] == runs[1] == runs[2]
    assert {name: points for name, (points, _) in runs[0].items()} == {"a": 0, "b": 80, "c": 0}


def test_hidden_cases_follow_from_the_seed():
    exercises = [q.name for q in SETS[FIRST.stem].questions]
    from mha_lib.exercises import CATALOGUE

    for name in exercises:
        sizes = [[str(c) for c in CATALOGUE[name].random_cases(seed)] for seed in (1, 1, 2)]
        assert sizes[0] == sizes[1] != sizes[2]


def test_release_by_command(tmp_path, capsys):
    assert command("release", "--seed", 3, "--out", tmp_path, "--source", SOURCE) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in MASTERS]
    assert capsys.readouterr().out.count("wrote") == len(MASTERS)


def test_a_master_that_fails_its_own_tests_is_not_released(tmp_path, capsys):
    book = notebook.read(FIRST)
    for cell in book["cells"]:
        if notebook.name_of(cell) == "softmax":
            cell["source"] = "def softmax(scores):\n    return scores"
    source = save(book, tmp_path / "sets" / FIRST.name).parent
    out = tmp_path / "dist"
    assert command("release", "--seed", 3, "--out", out, "--source", source) == 2
    assert "does not pass its own tests. softmax: not yet." in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("folder", ("nothing", "."))
def test_folders_without_notebooks_are_told(folder, tmp_path, capsys):
    place = tmp_path / folder
    assert command("grade", place, "--seed", 1, "--out", tmp_path, "--source", SOURCE) == 2
    assert "folder must hold notebooks that were handed in" in capsys.readouterr().err
    assert command("release", "--seed", 1, "--out", tmp_path / "o", "--source", place) == 2
    assert "source must be a folder with notebooks" in capsys.readouterr().err


def test_a_text_that_begins_like_a_formula_is_no_formula(tmp_path):
    answers = solutions(FIRST) | {"reshape": "=1+1"}
    save(filled(FIRST, answers), tmp_path / "in" / "=x.ipynb")
    grade_all(tmp_path / "in", SOURCE, tmp_path / "out", SEED, say=lambda line: None)
    (line,) = table(tmp_path / "out" / "by_hand.csv")
    assert line["answer"] == " =1+1" and line["student"] == " =x"


# Gradescope


def test_the_archive_for_gradescope_works_where_it_is_unpacked(tmp_path):
    """Unpacked elsewhere it grades by itself: no clone of the book, and the term's seed inside."""
    out = tmp_path / "out"
    assert command("gradescope", "--seed", SEED, "--out", out, "--source", SOURCE) == 0
    assert len(list(out.iterdir())) == len(MASTERS)
    with zipfile.ZipFile(out / f"gradescope_{FIRST.stem}.zip") as file:
        assert file.getinfo("run_autograder").external_attr >> 16 & 0o111
        assert {"setup.sh", "term.json", FIRST.name} <= set(file.namelist())
        file.extractall(tmp_path / "source")
    partly = LOOPS | {"softmax": OVER_QUERIES}
    save(filled(FIRST, partly), tmp_path / "submission" / "mine.ipynb")
    (tmp_path / "results").mkdir()
    module = [sys.executable, "-m", "mha_lib.assignments.gradescope"]
    places = [tmp_path / "submission", tmp_path / "results"]
    subprocess.run([*module, *places], check=True, cwd=tmp_path / "source")
    found = json.loads((tmp_path / "results" / "results.json").read_text("utf-8"))
    assert sum(test["score"] for test in found["tests"]) == 70
    assert sum(test["max_score"] for test in found["tests"]) == 80
    assert {t["visibility"] for t in found["tests"] if "hidden" in t["name"]} == {"after_published"}
    assert "ran over the queries" in found["tests"][0]["output"]
    assert "reshape (20 points) is read by a person" in found["output"]
