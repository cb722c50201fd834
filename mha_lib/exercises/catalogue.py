"""Every exercise of the book by its name."""

from mha_lib.exercises import (
    complexity,
    expressiveness,
    graded,
    key_value_cache,
    masking,
    single_head,
    splitting,
    start_here,
)
from mha_lib.exercises.judge import judge

CHAPTERS = (
    start_here,
    single_head,
    splitting,
    masking,
    complexity,
    expressiveness,
    key_value_cache,
)
MODULES = (*CHAPTERS, graded)
CATALOGUE = {exercise.name: exercise for module in MODULES for exercise in module.EXERCISES}


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


def require(name, function, seed=None):
    """Raise AssertionError, with what was found, unless your function is right.

    With a ``seed`` it has to be right on random cases as well. Graded tests are made of this.

    >>> require("transpose_last_two", lambda x: x.swapaxes(-1, -2), seed=0)
    """
    exercise = find(name)
    cases = exercise.cases() + ([] if seed is None else exercise.random_cases(seed))
    verdict = judge(exercise, function, cases)
    if verdict.kind != "right":
        raise AssertionError(verdict.message)
