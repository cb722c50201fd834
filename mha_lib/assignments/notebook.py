"""A problem set as a notebook: nbgrader's cell metadata, schema 3, and its marks in the source.

Own code rather than nbgrader's: what is needed of it fits on this page, and then a teacher and the
tests need nothing beyond the book's environment. The format stays nbgrader's, so its tools and its
editor's toolbar work on the sets as well.
"""

import json
import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

CODE_STUB = "# Your code here.\n..."
OPEN_STUB = "*Your answer here.*"
MARK = r"(?m)^(?P<indent>[ \t]*)### BEGIN {0}\n[\s\S]*?^[ \t]*### END {0}[ \t]*(?:\n|\Z)"
TEST = re.compile(r"(?P<name>\w+)-(?P<part>public|hidden)")


class Question(NamedTuple):
    """An exercise of a set: its name in the catalogue and its points."""

    name: str
    public: int
    hidden: int

    @property
    def points(self):
        """All that it can bring."""
        return self.public + self.hidden


class ProblemSet(NamedTuple):
    """A set as its master notebook has it.

    ``open`` pairs names of open questions with points; ``given`` are the cells of code before
    the first that students fill in, ``answers`` the master's own by name.
    """

    name: str
    title: str
    questions: tuple[Question, ...]
    open: dict[str, int]
    given: tuple[str, ...]
    answers: dict[str, str]


def read(path):
    """A notebook as JSON holds it. Raises ValueError if the file is none."""
    try:
        book = json.loads(Path(path).read_text(encoding="utf-8"))
        cells = [(cell["cell_type"], text(cell)) for cell in book["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise ValueError(f"{Path(path).name} cannot be read as a notebook") from error
    if not all(isinstance(part, str) for cell in cells for part in cell):
        raise ValueError(f"{Path(path).name} cannot be read as a notebook")
    return book


def text(cell):
    """The source of a cell, which a file holds as lines or in one piece."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def label(cell):
    """A cell's nbgrader metadata; empty where there is none."""
    found = cell.get("metadata", {}).get("nbgrader", {})
    return found if isinstance(found, dict) else {}


def name_of(cell):
    """The name of a graded cell, its grade_id."""
    return label(cell).get("grade_id")


def is_answer(cell):
    """True for a cell that the student fills in."""
    return bool(label(cell).get("solution"))


def is_open(cell):
    """True for an answer that is graded by hand."""
    return is_answer(cell) and bool(label(cell).get("grade"))


def is_test(cell):
    """True for a cell of tests."""
    return bool(label(cell).get("grade")) and not is_answer(cell)


def problem_set(path):
    """The set in a master notebook."""
    cells = read(path)["cells"]
    points = {name_of(cell): label(cell)["points"] for cell in cells if label(cell).get("grade")}
    names = dict.fromkeys(TEST.fullmatch(name_of(c))["name"] for c in cells if is_test(c))
    questions = (
        Question(n, points.get(f"{n}-public", 0), points.get(f"{n}-hidden", 0)) for n in names
    )
    code = (cell for cell in cells if cell["cell_type"] == "code")
    given = (text(cell) for cell in takewhile(_is_given, code))
    title = text(cells[0]).split("\n")[0].lstrip("# ")
    asked = {name_of(cell): points[name_of(cell)] for cell in cells if is_open(cell)}
    answers = {name_of(cell): text(cell) for cell in cells if is_answer(cell) and not is_open(cell)}
    return ProblemSet(Path(path).stem, title, tuple(questions), asked, tuple(given), answers)


def _is_given(cell):
    return bool(label(cell)) and not is_answer(cell) and not is_test(cell)


def released(book):
    """The notebook for students: no solutions, no hidden tests, no outputs."""
    cells = [_released_cell(cell) for cell in book["cells"]]
    return {**book, "cells": cells}


def _released_cell(cell):
    source = without(text(cell), "HIDDEN TESTS", "")
    if is_open(cell):
        source = OPEN_STUB
    elif is_answer(cell):
        source = without(source, "SOLUTION", CODE_STUB)
    cell = {**cell, "source": source.rstrip("\n").splitlines(keepends=True)}
    return cell | {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else cell


def without(source, what, stub):
    """``source`` with each part between ### BEGIN and ### END marks replaced, indent kept.

    >>> without("a = 1\\n### BEGIN SOLUTION\\nb = 2\\n### END SOLUTION", "SOLUTION", "...")
    'a = 1\\n...\\n'
    """
    cleared = re.sub(MARK.format(what), lambda m: _indented(stub, m["indent"]), source)
    if re.search(f"### (BEGIN|END) {what}", cleared):
        raise ValueError(f"a mark ### BEGIN or ### END {what} has no other beside it")
    return cleared


def _indented(stub, indent):
    return "".join(f"{indent}{line}\n" for line in stub.splitlines())
