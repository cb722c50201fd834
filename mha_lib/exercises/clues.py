"""What can be said of wrong answers that no planted fault explains, if it holds on every case."""

import inspect
from fractions import Fraction

import numpy as np

from mha_lib.exercises import wording
from mha_lib.exercises.answers import TOLERANCE, form, is_array, is_mask, layout, same

LARGEST_DENOMINATOR = 100


def clues(solution, trials):
    """Sentences that help to find the fault; often there is none."""
    if _only_batches_fail(trials):
        yield (
            "It is right as long as there is no batch axis in front. Count axes from the end, -1 "
            "and -2, and leave those before them alone."
        )
    pairs = [(trial.answer.value, trial.solution.value) for trial in trials]
    if all(form(got) == form(want) == "several" for got, want in pairs):
        yield from _about_parts(pairs)
        return
    if not all(form(got) in ("array", "mask", "number") for got, _ in pairs):
        return
    for position, name in enumerate(inspect.signature(solution).parameters):
        if all(same(trial.answer.value, trial.case[position]) for trial in trials):
            yield f"It is {name}, as it came in: did you throw a result away?"
            return
    if all(form(got) == form(want) == "number" for got, want in pairs):
        yield from _about_counts(pairs)
    elif all(is_array(got) and is_array(want) for got, want in pairs):
        yield from _about_arrays(pairs)


def _about_arrays(pairs):
    masks = [is_mask(answer) for pair in pairs for answer in pair]
    if all(masks):
        yield from _about_masks(pairs)
    elif not any(masks) and all(_as_many_finite(*pair) for pair in pairs):
        yield from _about_numbers([(got.ravel(), want.ravel()) for got, want in pairs])


def _as_many_finite(got, want):
    return got.size == want.size and np.isfinite(got).all()


def _only_batches_fail(trials):
    """True if the wrong cases have more axes than all the right ones, and raise."""
    wrong = [trial for trial in trials if not trial.right]
    axes = [np.ndim(trial.case[0]) for trial in trials if trial.right]
    return (
        bool(axes)
        and all(trial.answer.error is not None for trial in wrong)
        and min(np.ndim(trial.case[0]) for trial in wrong) > max(axes)
    )


def _about_parts(pairs):
    """Which of several arrays are right on every case, and what is to be said of the others."""
    if any(layout(got) != layout(want) for got, want in pairs):
        return
    for position, name in enumerate(wording.ORDINALS[: len(pairs[0][1])]):
        part = [(got[position], want[position]) for got, want in pairs]
        if all(same(*pair) for pair in part):
            yield f"The {name} array that you return is right on every case."
        elif all(is_array(got) for got, _ in part):
            yield from (wording.part(position, clue) for clue in _about_arrays(part))


def _about_counts(pairs):
    """What is to be said of whole numbers that are all wrong in the same way."""
    if not all(np.isfinite(float(got)) for got, _ in pairs):
        return
    factor = Fraction(float(pairs[0][0]) / pairs[0][1]).limit_denominator(LARGEST_DENOMINATOR)
    gaps = {Fraction(float(got)) - want for got, want in pairs}
    if factor != 1 and all(np.isclose(float(got), float(factor * want)) for got, want in pairs):
        yield f"Every number is {factor} times what it should be."
    elif len(gaps) == 1 and max(gaps).denominator == 1:
        gap = int(max(gaps))
        yield f"Every number is {abs(gap)} too {'large' if gap > 0 else 'small'}."


def _about_masks(pairs):
    """What is to be said if a mask has the right shapes and errs in one direction only."""
    if any(got.shape != want.shape for got, want in pairs):
        if all(same(got.ravel(), want.ravel()) for got, want in pairs):
            yield "What you allow and hide is right and in the right order; only the shape is not."
    elif all((got >= want).all() for got, want in pairs):
        yield "Your mask never hides what should be allowed, but it allows too much."
    elif all((got <= want).all() for got, want in pairs):
        yield "Your mask never allows what should be hidden, but it hides too much."


def _about_numbers(pairs):
    """What is to be said of answers that have as many numbers as they should."""
    got, want = (np.concatenate(parts) for parts in zip(*pairs))
    with np.errstate(all="ignore"):
        factor = got @ want / (want @ want)  # NaN for answers that hold inf
    if all(same(got, want) for got, want in pairs):
        yield "The numbers are right and in the right order; only the shape is not."
    elif all(same(np.sort(got), np.sort(want)) for got, want in pairs):
        yield "The numbers are right, but stand in the wrong places: look at how axes move."
    elif np.allclose(got, factor * want, **TOLERANCE):
        yield f"Every number is {factor:.4g} times what it should be."
