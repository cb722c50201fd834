"""An archive for Gradescope, and what runs there: setup.sh, run_autograder, results.json."""

import json
import stat
import sys
import zipfile
from pathlib import Path

from mha_lib.assignments import notebook
from mha_lib.assignments.grade import grade

SETUP = """\
#!/usr/bin/env bash
# Python 3.11 or newer is needed; choose such a base image. torch only if students may use it.
set -e
apt-get update && apt-get install -y python3 python3-pip
python3 -m pip install --break-system-packages "numpy>=2"
"""
RUN = """\
#!/usr/bin/env bash
cd /autograder/source
PYTHONPATH=. python3 -m mha_lib.assignments.gradescope /autograder/submission /autograder/results
"""


def archive(master, out, seed):
    """Write a set's autograder, its seed inside, as a zip into ``out``; its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"gradescope_{master.stem}.zip"
    library = Path(__file__).parents[1]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        _add(file, "setup.sh", SETUP, executable=True)
        _add(file, "run_autograder", RUN, executable=True)
        _add(file, "term.json", json.dumps({"set": master.name, "seed": seed}))
        _add(file, master.name, master.read_text(encoding="utf-8"))
        for module in sorted(library.rglob("*.py")):
            name = module.relative_to(library.parent).as_posix()
            _add(file, name, module.read_text(encoding="utf-8"))
    return path


def _add(file, name, text, executable=False):
    entry = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))  # the same bytes at each build
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    file.writestr(entry, text)


def results(problem_set, graded):
    """results.json: two tests an exercise; what hidden ones found is shown after the deadline."""
    tests = [test for result in graded.results for test in _tests(result)]
    by_hand = "".join(
        f" {name} ({of} points) is read by a person." for name, of in problem_set.open.items()
    )
    output = "\n".join([*graded.notes, f"The tests give {_most(problem_set)} points.{by_hand}"])
    return {"tests": tests, "output": output, "visibility": "visible"}


def _most(problem_set):
    return sum(question.points for question in problem_set.questions)


def _tests(result):
    question, passed = result.question, result.public == result.question.public
    unseen = "The public tests passed; hidden ones are counted after the deadline."
    yield {
        "name": f"{question.name}, public",
        "score": result.public,
        "max_score": question.public,
        "output": unseen if passed else result.message,
        "visibility": "visible",
    }
    yield {
        "name": f"{question.name}, hidden",
        "score": result.hidden,
        "max_score": question.hidden,
        "output": result.message,
        "visibility": "after_published",
    }


def main(submission, out, here=Path()):
    """Grade the one notebook that was handed in; write results.json."""
    term = json.loads((here / "term.json").read_text(encoding="utf-8"))
    problem_set = notebook.problem_set(here / term["set"])
    paths = sorted(Path(submission).rglob("*.ipynb"))
    if len(paths) != 1:
        found = {"score": 0, "output": f"Hand in one notebook, not {len(paths)}."}
    else:
        try:
            found = results(problem_set, grade(problem_set, paths[0], term["seed"]))
        except ValueError as error:
            found = {"score": 0, "output": f"{error}."}
    Path(out, "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
