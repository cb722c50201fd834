"""The judge: reads a reader's function, and says what is wrong with it rather than only that it is.

The function runs on a few fixed cases, smallest first. Where it differs from the solution, its
answers are compared with those of the exercise's planted faults; a fault that gives the same
answers on every case, or raises the same errors, is named.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mha_lib.exercises import wording
from mha_lib.exercises.answers import LOOSE, Outcome, Trial, agree, is_array, is_mask, layout
from mha_lib.exercises.clues import clues


@dataclass(frozen=True)
class Exercise:
    """One task: what is asked, the cases that it is judged on, and what people get wrong.

    ``cases`` returns argument tuples, smallest first. ``faults`` pairs a sentence that names a
    fault with a function that has it. ``hints`` are two, the second says more.
    """

    task: str
    difficulty: int
    minutes: int
    cases: Callable[[], list[tuple]]
    solution: Callable
    faults: tuple[tuple[str, Callable], ...]
    hints: tuple[str, str]

    @property
    def name(self):
        """The name of the function to write."""
        return self.solution.__name__

    @property
    def signature(self):
        """The head of the function to write, such as "softmax(scores)"."""
        return f"{self.name}{inspect.signature(self.solution)}"


class Verdict(NamedTuple):
    """What the judge found: a kind to sort by and a message to read."""

    kind: str
    message: str


def judge(exercise, function):
    """Run ``function`` on every case of ``exercise`` and return a Verdict.

    Its kind is "not attempted", "right", "named fault", "raised", "wrong type", "wrong shape",
    "not finite", "different", or "mutated" where the answers are right and an input is not what it
    was. Raises TypeError if ``function`` cannot be called.
    """
    if not callable(function):
        raise TypeError(
            f"function must be your function itself, without a call: {exercise.name}, "
            f"got {type(function).__name__}"
        )
    trials = [
        Trial(case, run(function, case), run(exercise.solution, case)) for case in exercise.cases()
    ]
    kind, text = _verdict(exercise, trials)
    return Verdict(kind, wording.wrapped(f"{exercise.name}: {text}"))


def run(function, case):
    """Call ``function`` on a copy of ``case``; its Outcome. NumPy's warnings are kept quiet."""
    arguments = copy.deepcopy(case)
    try:
        with np.errstate(all="ignore"):
            value = function(*arguments)
    except Exception as error:
        return Outcome(error=error)
    kept = all(np.array_equal(a, b) for a, b in zip(arguments, case, strict=True))
    return Outcome(value, mutated=not kept)


def _verdict(exercise, trials):
    """Kind and text, from the most telling finding to the least."""
    if all(trial.answer.value is None and trial.answer.error is None for trial in trials):
        return "not attempted", wording.NOT_ATTEMPTED
    wrong = [trial for trial in trials if not trial.right]
    if not wrong:
        return _right(exercise, trials)
    sentence = _named_fault(exercise.faults, trials)
    if sentence:
        # Values that differ show a fault better than an exception does.
        shown = min(wrong, key=lambda trial: trial.answer.error is not None)
        example = wording.example(exercise.solution, shown)
        return "named fault", f"not yet. {sentence}\n\nThe smallest case that shows it:\n{example}"
    kind, sentence = _finding(wrong[0].answer, wrong[0].solution)
    paragraphs = (
        f"not yet. {sentence}",
        *clues(exercise.solution, trials),
        f"{wording.score(trials)}\n{wording.example(exercise.solution, wrong[0])}",
    )
    return kind, "\n\n".join(paragraphs)


def _right(exercise, trials):
    for trial in trials:
        if trial.answer.mutated:
            example = wording.arguments(exercise.solution, trial.case)
            return "mutated", f"{wording.MUTATED}\n{example}"
    return "right", f"right, on all {len(trials)} cases."


def _named_fault(faults, trials):
    """The sentence of the fault that gives these answers, or None.

    A function with a second fault may raise on some cases. If it gives a value on others, at least
    two of them wrong, and a fault gives the same on all of these, that one is named as well.
    """
    sentence = _matching(faults, trials)
    valued = [trial for trial in trials if trial.answer.error is None]
    if sentence or len(valued) == len(trials) or sum(not trial.right for trial in valued) < 2:
        return sentence
    sentence = _matching(faults, valued)
    error = next(trial.answer.error for trial in trials if trial.answer.error is not None)
    return sentence and f"{sentence} {wording.besides(error)}"


def _matching(faults, trials):
    """The sentence of the first fault that gives the answers of all these trials, or None."""
    for sentence, faulty in faults:
        if all(agree(trial.answer, run(faulty, trial.case), LOOSE) for trial in trials):
            return sentence
    return None


def _finding(answer, solution):
    """Kind and sentence for an answer that no planted fault explains."""
    got, want = answer.value, solution.value
    if answer.error is not None:
        return "raised", wording.raised(answer.error)
    known = is_array(got) or type(got) is dict
    if (
        not known
        or isinstance(want, dict) != isinstance(got, dict)
        or is_mask(want) != is_mask(got)
    ):
        return "wrong type", wording.wrong_type(got, want)
    if layout(got) != layout(want):
        return "wrong shape", wording.wrong_shape(layout(got), layout(want))
    if is_array(got) and not np.isfinite(got).all():
        return "not finite", "Your answer holds NaN or inf where finite numbers belong."
    return "different", wording.different(got, want)
