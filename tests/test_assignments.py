"""Problem sets: what is released, and that right work earns everything and faults are named."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mha_lib import notebooks
from mha_lib.assignments import notebook, wire
from mha_lib.assignments.grade import _result, grade
from mha_lib.assignments.release import release, verify
from mha_lib.assignments.sandbox import USUAL
from mha_lib.exercises import CATALOGUE
from mha_lib.exercises.attempt import Outcome, attempts
from tests.test_exercises import RIGHT, plain

SOURCE = Path(__file__).parents[1] / "assignments"
MASTERS = sorted(SOURCE.glob("*.ipynb"))
SETS = {path.stem: notebook.problem_set(path) for path in MASTERS}
QUESTIONS = [question for problem_set in SETS.values() for question in problem_set.questions]
SEED = 20260
each_master = pytest.mark.parametrize("path", MASTERS, ids=[path.stem for path in MASTERS])
each_question = pytest.mark.parametrize("question", QUESTIONS, ids=[q.name for q in QUESTIONS])


def filled(path, answers, extra=()):
    """The release of a master with some of its cells filled in, and cells of the student's own."""
    book = notebook.released(notebook.read(path))
    for cell in book["cells"]:
        name = notebook.name_of(cell)
        cell["source"] = answers.get(name, cell["source"]) if name else cell["source"]
    return {**book, "cells": [*book["cells"], *map(code, extra)]}


def code(source):
    return {
        "cell_type": "code",
        "id": f"own-{abs(hash(source)) % 10**8}",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def save(book, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(book), encoding="utf-8")
    return path


def solutions(path):
    """The master's own answers by name."""
    cells = notebook.read(path)["cells"]
    return {notebook.name_of(c): notebook.text(c) for c in cells if notebook.is_answer(c)}


LOOPS = {
    "softmax": """
def softmax(scores):
    out = np.zeros_like(scores)
    for row in np.ndindex(scores.shape[:-1]):
        top = max(scores[row])
        powers = [np.exp(score - top) for score in scores[row]]
        out[row] = [power / sum(powers) for power in powers]
    return out
""",
    "attention": """
def attention(query, key, value):
    *batch, n_q, d_k = query.shape
    out = np.zeros((*batch, n_q, value.shape[-1]))
    for b in np.ndindex(*batch):
        for i in range(n_q):
            scores = np.array([query[b][i] @ k / d_k**0.5 for k in key[b]])
            out[b][i] = sum(w * v for w, v in zip(softmax(scores), value[b]))
    return out
""",
    "split_heads": """
def split_heads(x, num_heads):
    d = x.shape[-1] // num_heads
    return np.stack([x[..., i * d : (i + 1) * d] for i in range(num_heads)], axis=-3)
""",
    "merge_heads": """
def merge_heads(x):
    return np.concatenate([x[..., i, :, :] for i in range(x.shape[-3])], axis=-1)
""",
    "multi_head": """
def multi_head(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    d_k, d_v = w_q.shape[1] // num_heads, w_v.shape[1] // num_heads
    out = 0
    for i in range(num_heads):
        k, v = slice(i * d_k, (i + 1) * d_k), slice(i * d_v, (i + 1) * d_v)
        out = out + attention(x_q @ w_q[:, k], x_kv @ w_k[:, k], x_kv @ w_v[:, v]) @ w_o[v]
    return out
""",
    "reorder_heads": """
def reorder_heads(w_q, w_k, w_v, w_o, num_heads, order):
    blocks = [np.split(w, num_heads, axis=1) for w in (w_q, w_k, w_v)]
    inner = [np.hstack([block[i] for i in order]) for block in blocks]
    rows = np.split(w_o, num_heads)
    return inner[0], inner[1], inner[2], np.vstack([rows[i] for i in order])
""",
}
EINSUM = {
    "softmax": """
def softmax(scores):
    return np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
""",
    "attention": """
def attention(query, key, value):
    scores = np.einsum("...id,...jd->...ij", query, key) / np.sqrt(query.shape[-1])
    return np.einsum("...ij,...jd->...id", softmax(scores), value)
""",
    "split_heads": """
def split_heads(x, num_heads):
    return np.einsum("...nhd->...hnd", x.reshape(*x.shape[:-1], num_heads, -1))
""",
    "merge_heads": """
def merge_heads(x):
    moved = np.einsum("...hnd->...nhd", x)
    return moved.reshape(*moved.shape[:-2], -1)
""",
    "multi_head": """
def multi_head(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    def project(x, w):
        return np.einsum("...nm,mhd->...hnd", x, w.reshape(len(w), num_heads, -1))

    heads = attention(project(x_q, w_q), project(x_kv, w_k), project(x_kv, w_v))
    return np.einsum("...hnd,hdm->...nm", heads, w_o.reshape(num_heads, -1, w_o.shape[1]))
""",
    "reorder_heads": """
def reorder_heads(w_q, w_k, w_v, w_o, num_heads, order):
    move = np.eye(num_heads)[order]
    def columns(w):
        return np.einsum("gh,mhd->mgd", move, w.reshape(len(w), num_heads, -1)).reshape(w.shape)

    rows = np.einsum("gh,hdm->gdm", move, w_o.reshape(num_heads, -1, w_o.shape[1]))
    return columns(w_q), columns(w_k), columns(w_v), rows.reshape(w_o.shape)
""",
}
TORCH = {
    "softmax": """
import torch

def softmax(scores):
    return torch.softmax(torch.from_numpy(scores), dim=-1).numpy()
""",
    "attention": """
def attention(query, key, value):
    arrays = (torch.from_numpy(np.ascontiguousarray(a)) for a in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*arrays).numpy()
""",
    "split_heads": """
def split_heads(x, num_heads):
    return torch.from_numpy(x).unflatten(-1, (num_heads, -1)).transpose(-3, -2).numpy()
""",
    "merge_heads": """
def merge_heads(x):
    return torch.tensor(x).transpose(-3, -2).flatten(-2).numpy()
""",
    "multi_head": """
def multi_head(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    heads = [split_heads(x @ w, num_heads) for x, w in ((x_q, w_q), (x_kv, w_k), (x_kv, w_v))]
    return (torch.tensor(merge_heads(attention(*heads))) @ torch.tensor(w_o)).numpy()
""",
    "reorder_heads": """
def reorder_heads(w_q, w_k, w_v, w_o, num_heads, order):
    at = torch.tensor(order)
    new = [torch.tensor(w).unflatten(1, (num_heads, -1))[:, at].flatten(1) for w in (w_q, w_k, w_v)]
    rows = torch.tensor(w_o).unflatten(0, (num_heads, -1))[at].flatten(0, 1)
    return tuple(w.numpy() for w in (*new, rows))
""",
}


# The format and the release


def test_there_are_four_sets_of_hundred_points():
    assert len(SETS) == 4
    for problem_set in SETS.values():
        assert sum(q.points for q in problem_set.questions) + sum(problem_set.open.values()) == 100
        assert len(problem_set.open) == 1


@each_master
def test_a_master_is_a_chapter_in_good_form(path):
    assert notebooks.problems(path) == []


@each_master
def test_cells_have_nbgraders_metadata(path):
    """Schema version 3, by the rules of nbgrader's own validator."""
    graded = [notebook.label(cell) for cell in notebook.read(path)["cells"] if notebook.label(cell)]
    names = [label["grade_id"] for label in graded]
    assert len(set(names)) == len(names)
    for label in graded:
        keys = {"cell_type", "grade", "grade_id", "locked", "schema_version", "solution", "task"}
        assert label.keys() == keys | ({"points"} if label["grade"] else set())
        assert label["schema_version"] == 3 and re.fullmatch(r"[a-zA-Z0-9_\-]+", label["grade_id"])
        assert label["locked"] == (not label["solution"]) and label["task"] is False
        assert label.get("points", 0) >= 0


@each_master
def test_headings_say_what_metadata_and_catalogue_say(path):
    """Points and minutes; and the set as a whole takes one to two hours."""
    problem_set, minutes = SETS[path.stem], 0
    cells = {notebook.name_of(c): notebook.text(c) for c in notebook.read(path)["cells"]}
    for name, points in {q.name: q.points for q in problem_set.questions}.items():
        exercise = CATALOGUE[name]
        head = f"**`{exercise.signature}`** · {points} points · {exercise.minutes} minutes"
        assert head in cells[f"{name}-task"]
        minutes += exercise.minutes
    for name, points in problem_set.open.items():
        said = re.search(r"own words\*\* · (\d+) points · (\d+) minutes", cells[f"{name}-question"])
        assert int(said[1]) == points
        minutes += int(said[2])
        assert "**Rubric.**" in cells[name] and "**Model answer.**" in cells[name]
    about = int(re.search(r"about (\d+) minutes", cells["intro"])[1])
    assert 60 <= minutes <= 120 and abs(about - minutes) <= 10


@each_master
def test_the_sets_own_cells_come_from_no_chapter(path):
    """When work is graded mha_lib holds no more than a stand-in for the checks."""
    for source in SETS[path.stem].given:
        assert re.findall(r"from mha_lib.*", source) == ["from mha_lib import exercises"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The releases, with a file that nothing but nbval's collection needs."""
    out = tmp_path_factory.mktemp("dist")
    release(SOURCE, out, SEED)
    return out


def test_a_release_gives_nothing_away(dist):
    """Neither solutions, nor hidden tests, model answers, faults, hints, seeds or outputs."""
    for path in MASTERS:
        text = (dist / path.name).read_text(encoding="utf-8")
        book = json.loads(text)
        told = "".join(notebook.text(cell) for cell in book["cells"])
        for mark in ("SOLUTION", "BEGIN", "require(", "Model answer", "Rubric", str(SEED)):
            assert mark not in told
        for cell in notebook.read(path)["cells"]:
            for line in hidden_lines(cell):
                assert line not in told, line
        for name in (question.name for question in SETS[path.stem].questions):
            exercise = CATALOGUE[name]
            for sentence in (*(said for said, _ in exercise.faults), *exercise.hints):
                assert sentence not in told
        assert all(not cell.get("outputs") for cell in book["cells"])
    assert sorted(p.name for p in dist.iterdir()) == [path.name for path in MASTERS]


def hidden_lines(cell):
    """What a release must not say: the lines of solutions, tests and model answers."""
    source = notebook.text(cell)
    if notebook.is_open(cell):
        return source.splitlines()[::2]
    marked = re.findall(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n([\s\S]*?)\s*### END", source)
    return [line.strip() for part in marked for line in part.splitlines() if len(line.strip()) > 9]


def test_the_search_for_leaks_can_fail():
    """The master itself says all that a release must not."""
    for path in MASTERS:
        cells = notebook.read(path)["cells"]
        told = "".join(map(notebook.text, cells))
        lines = [line for cell in cells for line in hidden_lines(cell)]
        assert len(lines) > 25 and all(line in told for line in lines)


def test_a_release_keeps_all_that_is_not_an_answer(dist):
    for path in MASTERS:
        for old, new in zip(notebook.read(path)["cells"], notebook.read(dist / path.name)["cells"]):
            assert old["metadata"] == new["metadata"] and old["id"] == new["id"]
            if not (notebook.is_answer(old) or notebook.is_test(old)):
                assert notebook.text(old) == notebook.text(new)


def test_an_untouched_release_runs_and_says_not_attempted(dist):
    """Under nbval, as a teacher or student may run it; its checks print instead of raising."""
    command = [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env"]
    options = ["-p", "no:cacheprovider", "--rootdir", dist, "-c", os.devnull, dist]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=dist)
    assert done.returncode == 0, done.stdout[-2000:]
    for path in MASTERS:
        cells, printed = notebook.read(dist / path.name)["cells"], io.StringIO()
        namespace = {}
        with contextlib.redirect_stdout(printed):
            for cell in (cell for cell in cells if cell["cell_type"] == "code"):
                exec(notebook.text(cell), namespace)
        said = [text for text in printed.getvalue().splitlines() if "not attempted yet" in text]
        assert len(said) == len(SETS[path.stem].questions)


def test_marks_that_have_no_other_are_refused():
    for source in ("### BEGIN SOLUTION\nx = 1", "x = 1\n### END SOLUTION"):
        with pytest.raises(ValueError, match="no other beside it"):
            notebook.without(source, "SOLUTION", "...")


def test_an_indented_solution_leaves_an_indented_stub():
    source = "def f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION\n"
    assert notebook.without(source, "SOLUTION", "# a\n...") == "def f(x):\n    # a\n    ...\n"


# Grades


@each_master
def test_the_reference_earns_everything(path):
    verify(path, SEED)


@each_master
def test_an_untouched_release_earns_nothing(path, tmp_path):
    graded = grade(SETS[path.stem], save(filled(path, {}), tmp_path / "x.ipynb"), SEED)
    assert graded.earned == 0 and not graded.notes
    assert {result.kind for result in graded.results} == {"not attempted"}
    assert set(graded.open.values()) == {""}


@pytest.mark.parametrize("style", (LOOPS, EINSUM, TORCH), ids=("loops", "einsum", "torch"))
def test_right_work_in_three_styles_earns_everything(style, tmp_path):
    path = save(filled(MASTERS[0], style), tmp_path / "x.ipynb")
    unhurried = USUAL._replace(exercise=60, cell=300, total=900)  # a busy machine imports slowly
    graded = grade(SETS[MASTERS[0].stem], path, SEED, unhurried)
    assert [r.message for r in graded.results if r.earned < r.question.points] == []
    assert graded.earned == 80 and not graded.notes


def graded_here(question, function, seed=SEED):
    """The Result of a function, without the process: its answers go over the wire and back."""
    exercise = CATALOGUE[question.name]
    cases = [*exercise.cases(), *exercise.random_cases(seed)]
    outcomes = attempts(function, cases)
    packed = json.dumps([wire.pack_outcome(outcome) for outcome in outcomes])
    return _result(question, list(map(wire.unpack_outcome, json.loads(packed))), cases)


@each_question
def test_right_answers_earn_everything(question):
    for answer in RIGHT[question.name]:
        for seed in (1, 2):
            result = graded_here(question, answer, seed)
            assert result.earned == question.points, result.message


@each_question
def test_every_planted_fault_loses_points_and_is_named(question):
    for sentence, faulty in CATALOGUE[question.name].faults:
        result = graded_here(question, faulty)
        assert result.public == 0 and result.kind == "named fault", sentence
        assert plain(result.message).startswith(f"{question.name}: not yet. {sentence} The small")


def test_a_fault_is_paid_for_once(tmp_path):
    """A right layer that calls a wrong softmax keeps its points; a wrong layer does not."""
    over_queries = "def softmax(s):\n    return np.exp(s) / np.exp(s).sum(axis=-2, keepdims=True)"
    unscaled = LOOPS["attention"].replace(" / d_k**0.5", "")
    for answers, lost in (
        ({"softmax": over_queries}, {"softmax"}),
        ({"softmax": over_queries, "attention": unscaled}, {"softmax", "attention"}),
        ({"softmax": "def softmax(scores): ..."}, {"softmax"}),
    ):
        path = save(filled(MASTERS[0], LOOPS | answers), tmp_path / "x.ipynb")
        results = grade(SETS[MASTERS[0].stem], path, SEED).results
        assert {r.question.name for r in results if r.earned < r.question.points} == lost


def test_answers_learnt_by_heart_earn_the_public_points_alone():
    question = next(q for q in QUESTIONS if q.name == "softmax")
    exercise = CATALOGUE["softmax"]
    known = {case[0].tobytes(): exercise.solution(*case) for case in exercise.cases()}
    result = graded_here(question, lambda scores: known.get(scores.tobytes(), scores))
    assert (result.public, result.hidden) == (question.public, 0)
    assert "8 cases" in plain(result.message) or "cases are right" in plain(result.message)


def test_half_right_work_earns_the_half_that_holds():
    """A softmax without its maximum is right on ordinary scores and wrong on large ones."""
    question = next(q for q in QUESTIONS if q.name == "softmax")
    result = graded_here(question, lambda s: np.exp(s) / np.exp(s).sum(axis=-1, keepdims=True))
    assert (result.public, result.hidden) == (0, question.hidden)


def test_every_exercise_of_a_set_is_new_or_in_the_catalogue_once():
    names = [question.name for question in QUESTIONS]
    assert len(set(names)) == len(names) and set(names) <= set(CATALOGUE)
    assert all(q.public > 0 and q.hidden > 0 for q in QUESTIONS)


# The wire


@pytest.mark.parametrize("name", [question.name for question in QUESTIONS])
def test_cases_and_answers_survive_the_wire(name):
    exercise = CATALOGUE[name]
    for case in [*exercise.cases(), *exercise.random_cases(3)]:
        back = tuple(wire.unpack(json.loads(json.dumps(wire.pack(x)))) for x in case)
        assert all(type(a) is type(b) and np.array_equal(a, b) for a, b in zip(case, back))
        want = exercise.solution(*case)
        got = wire.unpack(json.loads(json.dumps(wire.pack(want))))
        assert type(got) is type(want) or np.ndim(want) == 0


def test_what_cannot_be_sent_is_told_by_its_type():
    class Odd:
        def __repr__(self):
            raise ValueError

    back = [wire.unpack(wire.pack(x)) for x in (Odd(), np.array([Odd()]), np.zeros(10**6))]
    large = "array of shape (1000000,), far too large,"
    assert [type(x).__name__ for x in back] == ["Odd", "ndarray", large]
    assert repr(back[0]) == "..." and back[1].dtype == object
    for forged in ({"array": ["O", [1], ""]}, {"objects": [10**9]}, {"array": ["<f8", [3], ""]}):
        with pytest.raises((ValueError, TypeError)):
            wire.unpack(forged)


@pytest.mark.parametrize("kind", (ValueError, KeyError, ZeroDivisionError, np.linalg.LinAlgError))
def test_errors_keep_their_type_and_words(kind):
    packed = wire.pack_outcome(Outcome(error=kind("a b"), line="x = 1"))
    back = wire.unpack_outcome(json.loads(json.dumps(packed)))
    assert type(back.error) is kind and str(back.error) == str(kind("a b")) and back.line == "x = 1"
