"""The book from a terminal: python -m mha_lib, and then a command; --help lists them."""

import argparse
import sys
from pathlib import Path

from mha_lib.assignments import cli as assignments
from mha_lib.measure import cli as measure
from mha_lib.models import cli as models


def main(arguments=None):
    """Run one command; the exit status is 0 if all is well."""
    options = _parser().parse_args(arguments)
    return options.run(options)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m mha_lib", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    doctor = commands.add_parser("doctor", help="is this installation in order?")
    doctor.set_defaults(run=_doctor)
    figures = commands.add_parser("figures", help="draw every picture of the book again")
    figures.add_argument("--out", type=Path, default=Path("figures"), help="folder (figures)")
    figures.set_defaults(run=_figures)
    measure.add(commands)
    models.add(commands)
    assignments.add(commands)
    notebooks = commands.add_parser("notebooks", help="run chapters afresh and keep their outputs")
    notebooks.add_argument("paths", type=Path, nargs="*", help="all chapters if none is named")
    notebooks.set_defaults(run=_notebooks)
    _add_example(commands)
    return parser


LIMITS = """
At most 8 tokens and 12 columns; a worksheet has room for 4 tokens and 6 columns. Decimals are
exact: 0.1 means one tenth. Fractions such as "1/2" are not read.
"""


def _add_example(commands):
    words = "the worked example, written out by hand"
    example = commands.add_parser("example", help=words, description=words, epilog=LIMITS)
    example.add_argument("--token", help="one token only, such as cat")
    example.add_argument("--head", type=int, help="one head only, counted from 1")
    example.add_argument("--digits", type=int, help="decimals (4)")
    example.add_argument("--causal", action="store_true", help="no token attends to later ones")
    example.add_argument("--tokens", type=Path, metavar="FILE.json", help="your own tokens and x")
    example.add_argument("--weights", type=Path, metavar="FILE.json", help="your own matrices")
    example.add_argument("--worksheet", type=Path, metavar="OUT.html", help="write pages to print")
    example.set_defaults(run=_example)


def _doctor(_):
    from mha_lib import doctor

    return 0 if doctor.examine() else 1


def _figures(options):
    from mha_lib.figures import gallery

    gallery.write_all(options.out)
    return 0


def _notebooks(options):
    from mha_lib import notebooks

    for path in options.paths or sorted(Path("notebooks").glob("*.ipynb")):
        print(f"running {path}")
        notebooks.run(path)
    return 0


def _example(options):
    from mha_lib.worked_example import load, trace, worksheet, written

    try:
        _all_of_a_worksheet(options)
        example = load(options.tokens, options.weights, options.causal)
        if options.worksheet is None:
            digits = 4 if options.digits is None else options.digits
            print(written(trace(example), options.token, options.head, digits))
        else:
            options.worksheet.write_text(worksheet(example), "utf-8")
            print(f"wrote {options.worksheet}: a page of blanks and a page of answers")
    except ValueError as error:
        print(f"{error}{_advice(options, str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{options.worksheet} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _all_of_a_worksheet(options):
    """Refuse options that a worksheet has no use for."""
    for name in ("token", "head", "digits"):
        if options.worksheet is not None and getattr(options, name) is not None:
            raise ValueError(
                f"--worksheet writes all tokens and heads with four decimals: leave out --{name}"
            )


def _advice(options, fault):
    """What to do about tokens that the book's matrices do not fit."""
    ours = options.tokens is not None and options.weights is None and "the book's example" in fault
    return ": give your own matrices with --weights" if ours else ""


if __name__ == "__main__":
    sys.exit(main())
