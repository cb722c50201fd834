"""A grading run: every submission graded, tables as CSV, a page for each student."""

import csv
from typing import NamedTuple

from mha_lib.assignments import notebook
from mha_lib.assignments.collect import submissions
from mha_lib.assignments.feedback import page
from mha_lib.assignments.grade import Grade, grade
from mha_lib.assignments.release import masters

BY_HAND = "by_hand.csv"
HAND_COLUMNS = "student", "file", "question", "points", "of", "comment", "answer"


class Row(NamedTuple):
    """A submission with its grade; ``marks`` are the points by hand, None while there are none."""

    student: str
    file: str
    set: notebook.ProblemSet | None
    grade: Grade
    marks: dict

    @property
    def automatic(self):
        """Points that the tests can give."""
        return sum(q.points for q in self.set.questions) if self.set else 0

    @property
    def total(self):
        """Points of the tests and by hand together."""
        return self.grade.earned + sum(points or 0 for points, _ in self.marks.values())


def grade_all(folder, source, out, seed, say=print):
    """Grade all submissions below ``folder``; write grades.csv, exercises.csv and feedback/.

    Open answers go into by_hand.csv. Points that stand there already are kept and counted, so a
    teacher fills them in and runs this once more.
    """
    sets = {s.name: s for s in map(notebook.problem_set, masters(source))}
    marks, rows = read_marks(out / BY_HAND), []
    for found in submissions(folder, sets):
        file = found.path.relative_to(folder).as_posix()
        graded = _graded(sets.get(found.set), found.path, seed)
        by_hand = {n: marks.get((found.student, file, n), (None, "")) for n in graded.open}
        rows.append(Row(found.student, file, sets.get(found.set), graded, by_hand))
        say(f"{found.student:20} {file:40} {graded.earned:3} of {rows[-1].automatic}")
    write(rows, out)
    return rows


def _graded(problem_set, path, seed):
    """The grade; a file that is no notebook of a set has none, and never stops the others."""
    if problem_set is None:
        return Grade((), {}, ("It is not known which set this belongs to, if to any.",))
    try:
        return grade(problem_set, path, seed)
    except ValueError as error:
        return Grade((), dict.fromkeys(problem_set.open, ""), (f"{error}.",))


def read_marks(path):
    """(points, comment) by student, file and question; nothing where there is no such file yet."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {
            (line["student"], line["file"], line["question"]): (_points(line), line["comment"])
            for line in csv.DictReader(file)
        }


def _points(line):
    """Points as typed, None for an empty field. Raises ValueError unless they are 0 to ``of``."""
    typed = line["points"].strip()
    try:
        points = float(typed.replace(",", ".")) if typed else None
    except ValueError:
        points = -1
    if points is not None and not 0 <= points <= float(line["of"]):
        raise ValueError(
            f"{BY_HAND}: points of {line['student']}, {line['question']}, must be 0 to "
            f"{line['of']}, got {typed!r}"
        )
    return points


def write(rows, out):
    """Tables and pages into the folder ``out``."""
    (out / "feedback").mkdir(parents=True, exist_ok=True)
    _table(out / "grades.csv", GRADE_COLUMNS, map(_grade_line, rows))
    _table(out / "exercises.csv", EXERCISE_COLUMNS, (x for row in rows for x in _lines(row)))
    _table(out / BY_HAND, HAND_COLUMNS, (line for row in rows for line in _hand_lines(row)))
    for student in dict.fromkeys(row.student for row in rows):
        own = [row for row in rows if row.student == student]
        (out / "feedback" / f"{student}.html").write_text(page(student, own), encoding="utf-8")


GRADE_COLUMNS = *("student", "file", "set", "points", "of", "percent"), "by_hand", "total", "notes"
EXERCISE_COLUMNS = "student", "file", "exercise", "public", "hidden", "of", "finding", "message"


def _grade_line(row):
    given = [points for points, _ in row.marks.values()]
    percent = round(100 * row.grade.earned / row.automatic) if row.automatic else 0
    by_hand = "" if None in given else sum(given)
    name = row.set.name if row.set else ""
    points = row.grade.earned, row.automatic, percent, by_hand, row.total
    return row.student, row.file, name, *points, " ".join(row.grade.notes)


def _lines(row):
    for result in row.grade.results:
        question = result.question
        points = result.public, result.hidden, question.points
        yield row.student, row.file, question.name, *points, result.kind, result.message


def _hand_lines(row):
    for name, answer in row.grade.open.items():
        points, comment = row.marks[name]
        shown = "" if points is None else points
        yield row.student, row.file, name, shown, row.set.open[name], comment, answer


def _table(path, columns, lines):
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # with a mark, for Excel
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_harmless(field) for field in line] for line in lines)


def _harmless(field):
    """A text that begins like a formula, with a blank before it: spreadsheets run formulas."""
    return f" {field}" if isinstance(field, str) and field[:1] in tuple("=+-@\t\r") else field
