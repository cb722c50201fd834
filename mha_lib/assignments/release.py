"""What students get, built from the masters: notebooks without solutions and hidden tests."""

import json
from pathlib import Path

from mha_lib.assignments import notebook
from mha_lib.assignments.grade import grade


def masters(source):
    """The master notebooks in a folder, in order. Raises ValueError if there is none."""
    paths = sorted(Path(source).glob("*.ipynb"))
    if not paths:
        raise ValueError(f"source must be a folder with notebooks, got {str(source)!r}")
    return paths


def release(source, out, seed):
    """Write each set's release into ``out``; the paths.

    First each master's own solutions are graded with the seed of the term: a set that its author
    does not pass is not handed out (ValueError).
    """
    written = []
    for path in masters(source):
        verify(path, seed)
        out.mkdir(parents=True, exist_ok=True)
        book = json.dumps(notebook.released(notebook.read(path)), indent=1, ensure_ascii=False)
        (out / path.name).write_text(book + "\n", encoding="utf-8")
        written.append(out / path.name)
    return written


def verify(path, seed):
    """Raise ValueError unless the master's solutions earn all the points that can be earned."""
    problem_set = notebook.problem_set(path)
    graded = grade(problem_set, path, seed)
    for result in graded.results:
        if result.earned < result.question.points:
            raise ValueError(f"{path.name} does not pass its own tests. {result.message}")
    if graded.notes:
        raise ValueError(f"{path.name} does not run. {graded.notes[0]}")
