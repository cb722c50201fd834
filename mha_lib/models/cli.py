"""python -m mha_lib generate "text"."""

import sys


def add(commands):
    """Add the command to those of the book."""
    generate = commands.add_parser("generate", help="let a real language model answer")
    generate.add_argument("text", help="a question, in quotes")
    generate.add_argument("--tokens", type=int, default=40, help="at most so many (40)")
    words = "compute every token anew at each step"
    generate.add_argument("--no-cache", action="store_true", help=words)
    generate.set_defaults(run=_generate)


def _generate(options):
    from mha_lib.models.generate import generate

    try:
        generate(options.text, options.tokens, not options.no_cache)
    except (ValueError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
