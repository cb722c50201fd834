"""Grades: what each exercise of a submission earned, and what is to be said of it."""

import re
from typing import NamedTuple

from mha_lib.assignments import notebook
from mha_lib.assignments.sandbox import USUAL, examine
from mha_lib.exercises.catalogue import find
from mha_lib.exercises.judge import assess, trials


class Result(NamedTuple):
    """One exercise: points earned in the public and the hidden tests, kind and message."""

    question: notebook.Question
    public: int
    hidden: int
    kind: str
    message: str

    @property
    def earned(self):
        """All the points earned."""
        return self.public + self.hidden


class Grade(NamedTuple):
    """One submission: its results, the texts of its open answers, and what went wrong in cells."""

    results: tuple[Result, ...]
    open: dict[str, str]
    notes: tuple[str, ...]

    @property
    def earned(self):
        """Points without those given by hand."""
        return sum(result.earned for result in self.results)


def grade(problem_set, path, seed, limits=USUAL):
    """Grade the notebook at ``path``. Raises ValueError if it cannot be read as one.

    The judge runs here, on what the submission's functions answered in processes of their own.
    The hidden cases follow from the seed, the public ones are those of the catalogue.
    """
    cells = notebook.read(path)["cells"]
    code = [(n, notebook.text(cell)) for n, cell in enumerate(cells) if _is_run(cell)]
    code = [(f"given {n}", source) for n, source in enumerate(problem_set.given)] + code
    cases = {q.name: _cases(find(q.name), seed) for q in problem_set.questions}
    finding = examine(code, cases, limits)
    results = [
        _result(question, finding.functions[question.name], cases[question.name])
        for question in problem_set.questions
    ]
    wrong = {r.question.name for r in results if r.earned < r.question.points}
    for number, first in enumerate(results):
        attempted = first.kind not in ("not attempted", "missing")
        others = _called(first.question.name, wrong, problem_set, cells)
        if first.question.name in wrong and attempted and others:
            results[number] = _without_others(first, others, problem_set, code, cases, limits)
    notes = tuple(_notes(finding.cells))
    return Grade(tuple(results), _open_answers(cells, problem_set.open), notes)


def _is_run(cell):
    return cell["cell_type"] == "code" and not notebook.is_test(cell)


def _called(name, wrong, problem_set, cells):
    """The other wrong functions that this one may come to call, by itself or by what it calls.

    Their cells are searched for the names, and the master's own, which may stand in their places.
    """
    sources = {notebook.name_of(cell): notebook.text(cell) for cell in cells}
    found, todo = set(), [name]
    while todo:
        function = todo.pop()
        words = sources.get(function, "") + problem_set.answers.get(function, "")
        new = (set(re.findall(r"\w+", words)) & wrong) - found - {name}
        found |= new
        todo += new
    return sorted(found)


def _without_others(first, others, problem_set, code, cases, limits):
    """The better of the first Result and that with the master's functions in others' places.

    So a fault is paid for once, where it was made. The submission is run again for it, and nothing
    that it learns of the functions put there can earn the points that these stand for.
    """
    name = first.question.name
    references = [(f"reference {other}", problem_set.answers[other]) for other in others]
    outcomes = examine(code + references, {name: cases[name]}, limits).functions[name]
    again = _result(first.question, outcomes, cases[name])
    if again.earned <= first.earned:
        return first
    said = f"{again.message}\n\nJudged with a right {' and '.join(others)} in the place of yours."
    return again._replace(message=said)


def _cases(exercise, seed):
    return [*exercise.cases(), *exercise.random_cases(seed)]


def _result(question, outcomes, cases):
    """Points and message; where the public cases are wrong, the message keeps to these."""
    if outcomes is None:
        return Result(question, 0, 0, "missing", f"{question.name}: {MISSING}")
    if isinstance(outcomes, str):
        return Result(question, 0, 0, "stopped", f"{question.name}: {outcomes}")
    exercise, count = find(question.name), len(find(question.name).cases())
    every = trials(exercise, cases, outcomes)
    if not every or (len(every) < len(cases) and every[-1].answer.error is None):
        return Result(question, 0, 0, "stopped", f"{question.name}: its answers are incomplete.")
    public = assess(exercise, every[:count])
    if len(every) <= count:  # it was too slow on the way
        return Result(question, 0, 0, public.kind, public.message)
    hidden = assess(exercise, every[count:])
    worst = public if public.kind != "right" else assess(exercise, every)
    earned = (
        points * (verdict.kind == "right" and len(every) == len(cases))
        for points, verdict in ((question.public, public), (question.hidden, hidden))
    )
    return Result(question, *earned, worst.kind, worst.message)


MISSING = (
    "there is no function of this name. Was its cell removed, renamed, or stopped by an error?"
)


def _open_answers(cells, asked):
    """The texts of the answers that a person reads."""
    texts = {notebook.name_of(cell): notebook.text(cell).strip() for cell in cells}
    return {name: _unless_stub(texts.get(name, "")) for name in asked}


def _unless_stub(text):
    return "" if text == notebook.OPEN_STUB else text


def _notes(cells):
    """A sentence for each cell that did not run to its end."""
    for number, outcome in cells.items():
        where = f"Cell {number + 1}" if isinstance(number, int) else f"The set's cell ({number})"
        if isinstance(outcome, str):
            yield f"{where}: {outcome}"
        elif outcome.error is not None:
            line = f", in the line: {outcome.line}" if outcome.line else ""
            yield f"{where} raised {type(outcome.error).__name__}: {outcome.error}{line}"
