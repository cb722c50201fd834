"""Every exercise of the book by its name."""

from mha_lib.exercises import masking, single_head, splitting, start_here
from mha_lib.exercises.judge import judge

CHAPTERS = (start_here, single_head, splitting, masking)
CATALOGUE = {exercise.name: exercise for chapter in CHAPTERS for exercise in chapter.EXERCISES}


def find(name):
    """The exercise called ``name``; ValueError, with the names there are, if there is none."""
    if name not in CATALOGUE:
        raise ValueError(f"name must be one of {', '.join(CATALOGUE)}, got {name!r}")
    return CATALOGUE[name]


def check(name, function):
    """Judge your function for the exercise ``name`` and print what was found.

    >>> def softmax(scores): ...
    >>> check("softmax", softmax)
    softmax: not attempted yet. (If you have written it, it lacks a return: it gives back None.)
    """
    print(judge(find(name), function).message)
