"""python -m mha_lib assignments release | grade | gradescope."""

import sys
from pathlib import Path


def add(commands):
    """Add the command to those of the book."""
    words = "problem sets: build releases, grade what was handed in"
    parser = commands.add_parser("assignments", help=words, description=words)
    kinds = parser.add_subparsers(required=True, metavar="what")
    release = kinds.add_parser("release", help="notebooks for students, and nothing else")
    release.set_defaults(run=_guarded(_release))
    grade = kinds.add_parser("grade", help="grade a folder: FOLDER/STUDENT/NOTEBOOK.ipynb")
    grade.add_argument("folder", type=Path, metavar="FOLDER")
    grade.set_defaults(run=_guarded(_grade))
    gradescope = kinds.add_parser("gradescope", help="an autograder's archive for each set")
    gradescope.set_defaults(run=_guarded(_gradescope))
    outs = {release: "dist", grade: "results", gradescope: "dist/gradescope"}
    for command, out in outs.items():
        command.add_argument("--out", type=Path, default=Path(out), help=f"folder ({out})")
        seed = "a whole number that students do not know: the hidden tests follow from it"
        command.add_argument("--seed", type=int, required=True, metavar="N", help=seed)
        source = "folder of the sets (assignments)"
        command.add_argument("--source", type=Path, default=Path("assignments"), help=source)


def _guarded(run):
    """A command that says what is wrong in a sentence; 2 is its exit status then."""

    def guarded(options):
        try:
            return run(options)
        except (ValueError, OSError) as error:
            print(error, file=sys.stderr)
            return 2

    return guarded


def _release(options):
    from mha_lib.assignments.release import release

    for path in release(options.source, options.out, options.seed):
        print(f"wrote {path}")
    return 0


def _grade(options):
    from mha_lib.assignments.report import grade_all

    grade_all(options.folder, options.source, options.out, options.seed)
    print(f"wrote {options.out}: grades.csv, exercises.csv, by_hand.csv and feedback/")
    return 0


def _gradescope(options):
    from mha_lib.assignments.gradescope import archive
    from mha_lib.assignments.release import masters, verify

    for master in masters(options.source):
        verify(master, options.seed)
        print(f"wrote {archive(master, options.out, options.seed)}")
    return 0
