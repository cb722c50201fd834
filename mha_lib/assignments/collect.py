"""Finds what was handed in: whose notebook it is, and which set it belongs to."""

from pathlib import Path
from typing import NamedTuple

from mha_lib.assignments import notebook


class Submission(NamedTuple):
    """A notebook that was handed in; ``set`` is None where it cannot be told."""

    student: str
    path: Path
    set: str | None


def submissions(folder, sets):
    """All notebooks below ``folder``: FOLDER/STUDENT/anything.ipynb, or FOLDER/STUDENT.ipynb.

    Raises ValueError if there is none.
    """
    folder = Path(folder)
    paths = sorted(p for p in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not paths:
        raise ValueError(f"folder must hold notebooks that were handed in, got {str(folder)!r}")
    return [Submission(_student(path, folder), path, which(path, sets)) for path in paths]


def _student(path, folder):
    first = path.relative_to(folder).parts[0]
    return Path(first).stem if path.parent == folder else first


def which(path, sets):
    """The name of the set: the file's, or that whose graded cells it has most of."""
    for name in sets:
        if path.stem.startswith(name):
            return name
    try:
        found = {notebook.name_of(cell) for cell in notebook.read(path)["cells"]}
    except ValueError:
        return None
    common = {name: len(found & {q.name for q in s.questions}) for name, s in sets.items()}
    best = max(common, key=common.get)
    return best if common[best] else None
