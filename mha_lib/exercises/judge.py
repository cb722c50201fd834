"""The judge: reads a reader's function, and says what is wrong with it rather than only that it is.

The function runs on a few fixed cases, smallest first. Where it differs from the solution, its
answers are compared with those of the exercise's planted faults; a fault that gives the same
answers on every case, or raises the same errors, is named.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mha_lib.exercises import wording
from mha_lib.exercises.answers import LOOSE, Trial, agree, form, layout, same
from mha_lib.exercises.attempt import TooSlow, attempt, attempts
from mha_lib.exercises.clues import clues

NOT_ATTEMPTED = "not attempted", wording.NOT_ATTEMPTED


@dataclass(frozen=True)
class Exercise:
    """One task: what is asked, the cases that it is judged on, and what people get wrong.

    ``teaches`` says in half a sentence what it is there for. ``cases`` returns argument tuples,
    smallest first; ``random_case(rng)`` draws one more, whose sizes all differ. ``faults`` pairs a
    sentence that names a fault with a function that has it. ``hints`` are two, the second says
    more.
    """

    teaches: str
    task: str
    difficulty: int
    minutes: int
    cases: Callable[[], list[tuple]]
    random_case: Callable[[np.random.Generator], tuple]
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

    def random_cases(self, seed, count=8):
        """Cases that nobody has seen, the same for the same seed, smallest first."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        return sorted((self.random_case(rng) for _ in range(count)), key=_size)


def _size(case):
    return sum(np.size(argument) for argument in case)


class Verdict(NamedTuple):
    """What the judge found: a kind to sort by and a message to read."""

    kind: str
    message: str


def judge(exercise, function, cases=None):
    """Run ``function`` on every case of ``exercise``, or on other cases; a Verdict.

    Its kind is "not attempted", "printed" if it prints and returns nothing, "too slow", "right",
    "named fault", "raised", "wrong type", "wrong shape", "not finite", "different", or "mutated"
    where the answers are right and an input is not what it was. Raises TypeError if ``function``
    cannot be called.
    """
    if not callable(function):
        raise TypeError(
            f"function must be your function itself, without a call: {exercise.name}, "
            f"got {type(function).__name__}"
        )
    cases = exercise.cases() if cases is None else cases
    return assess(exercise, trials(exercise, cases, attempts(function, cases)))


def trials(exercise, cases, outcomes):
    """Each case with what came of it beside what the solution gives."""
    return [
        Trial(case, outcome, attempt(exercise.solution, case))
        for case, outcome in zip(cases, outcomes)
    ]


def assess(exercise, trials):
    """The Verdict on trials that were run already, wherever that was."""
    kind, text = _verdict(exercise, trials)
    return Verdict(kind, wording.wrapped(f"{exercise.name}: {text}"))


def _verdict(exercise, trials):
    """Kind and text, from the most telling finding to the least."""
    if isinstance(trials[-1].answer.error, TooSlow):
        example = wording.arguments(exercise.solution, trials[-1].case)
        return "too slow", f"{wording.TOO_SLOW}\n{example}"
    if all(trial.answer.value is None and trial.answer.error is None for trial in trials):
        printed = any(trial.answer.printed for trial in trials)
        return ("printed", wording.PRINTED) if printed else NOT_ATTEMPTED
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
        if all(agree(trial.answer, attempt(faulty, trial.case), LOOSE) for trial in trials):
            return sentence
    return None


def _finding(answer, solution):
    """Kind and sentence for an answer that no planted fault explains."""
    if answer.error is not None:
        return "raised", wording.raised(answer)
    return _difference(answer.value, solution.value)


def _difference(got, want):
    """Kind and sentence for an answer that is not ``want``."""
    if form(got) != form(want):
        return "wrong type", wording.wrong_type(got, want)
    if layout(got) != layout(want):
        return "wrong shape", wording.wrong_shape(layout(got), layout(want))
    if form(want) == "several":
        return _difference_of_parts(got, want)
    if form(want) != "sizes" and (np.isfinite(want) & ~np.isfinite(got)).any():
        return "not finite", "Your answer holds NaN or inf where finite numbers belong."
    return "different", wording.different(got, want)


def _difference_of_parts(got, want):
    """Kind and sentence for the first of several arrays that is not right."""
    wrong = next(i for i, pair in enumerate(zip(got, want)) if not same(*pair))
    kind, sentence = _difference(got[wrong], want[wrong])
    return kind, wording.part(wrong, sentence)
