"""A reader's own value for one step: right, or which slip gives exactly that value."""

import numpy as np

from mha_lib.exercises import wording
from mha_lib.exercises.judge import Verdict
from mha_lib.worked_example.example import THE_CAT_SAT
from mha_lib.worked_example.slips import in_one_head, slips
from mha_lib.worked_example.work import Numbers, Work

HALF_UNIT = 0.5e-3 + 1e-9  # of the third decimal, and a little for binary fractions
RELATIVE = 2e-6  # and six figures of a number with many before the point
DECIMALS = 3
MOST_NAMED = 3
PER_HEAD = (
    "query", "keys", "values", "scores", "scaled", "exponentials", "sum", "weights", "head"
)  # fmt: skip
WHOLE_LAYER = ("concat", "output")


def check(step, value, token, head=None, example=THE_CAT_SAT):
    """Say whether your value for a step is right, or which slip gives exactly that value.

    ``step`` is query, keys, values, scores, scaled, exponentials, sum, weights or head (its
    output), all with ``head`` counted from 1, or concat or output. ``value`` is a number or a list,
    with three decimals or more. Raises ValueError for a step, a token or a head that is not there.

    >>> check("weights", [0.198, 0.401, 0.401], "cat", head=1)
    weights of 'cat' in head 1: right.
    >>> check("scaled", [0, 2, -1], "cat", head=2)
    scaled of 'cat' in head 2: not yet. You left out the scale: divide each score by the square
    root of d_k before exp.
    """
    print(judge_value(step, value, token, head, example).message)


def judge_value(step, value, token, head=None, example=THE_CAT_SAT):
    """The Verdict that ``check`` prints.

    Its kind is "not attempted", "wrong type", "wrong shape", "right", "named slip", "right so far"
    (rounded to fewer than three decimals) or "different".
    """
    if step not in PER_HEAD + WHOLE_LAYER:
        raise ValueError(f"step must be one of {', '.join(PER_HEAD + WHOLE_LAYER)}, got {step!r}")
    position = example.position(token)
    index = example.head_index(head) if step in PER_HEAD else None
    kind, text = _verdict(step, value, example, position, index)
    place = f" in head {head}" if step in PER_HEAD else ""
    return Verdict(kind, wording.wrapped(f"{step} of {token!r}{place}: {text}"))


def _verdict(step, value, example, position, index):
    if _is_blank(value):
        return "not attempted", "not attempted yet."
    try:
        got = np.asarray(value, float)
    except (TypeError, ValueError):
        return "wrong type", f"write a number or a list of numbers, not {str(value)[:60]}."
    want = _value(Work, step, Numbers.of(example), position, index)
    if got.squeeze().shape != want.squeeze().shape:
        return "wrong shape", _about_shape(got, want)
    got = got.reshape(want.shape)
    if _agree(got, want):
        return "right", "right."
    if named := sentences(step, got, example, position, index):
        return "named slip", f"not yet. {' Or: '.join(named[:MOST_NAMED])}"
    typed = _typed_decimals(value)
    if 0 < typed < DECIMALS and _agree(got, want.round(typed)):
        return "right so far", f"right as far as it goes. Please give {DECIMALS} decimals."
    return "different", _about_numbers(got, want, typed)


def _value(work, step, numbers, position, index):
    """What this way of working gives; NaN where its matrices do not fit."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(work(numbers, position, index or 0), step)(), float)
    except ValueError:
        return np.array(np.nan)


def sentences(step, got, example, position, index):
    """What is to be said of each slip that gives this value, none twice.

    In the steps of the whole layer a slip is looked for in all heads first, then in one alone.
    """
    numbers, candidates = Numbers.of(example), slips(example, position, index)
    rounds = [candidates]
    if step in WHOLE_LAYER and example.num_heads > 1:
        rounds.append(in_one_head(candidates, example.num_heads))
    for some in rounds:
        values = ((made, _value(made, step, numbers, position, index)) for made in some)
        found = [made.sentence for made, value in values if _agree(got, value)]
        if found:
            break
    return list(dict.fromkeys(found))


def _agree(a, b):
    return a.shape == b.shape and _close(a, b).all()


def _close(a, b):
    return np.isclose(a, b, rtol=RELATIVE, atol=HALF_UNIT)


def _is_blank(value):
    if isinstance(value, (list, tuple)):
        return any(map(_is_blank, value)) or not value
    return value is None or value is ... or (isinstance(value, str) and not value.strip())


def _typed_decimals(value):
    """The most decimals that a number of the reader's has."""
    numbers = np.asarray(value, object).ravel()
    return max(len(str(number).partition(".")[2].removesuffix("0")) for number in numbers)


def _about_shape(got, want):
    if got.ndim == 2 and got.T.shape == want.shape and _agree(got.T, want):
        return "the numbers are right, and rows and columns are swapped: a token is a row."
    if want.ndim == 0:
        return f"one number is asked for, you gave {got.size}."
    if want.ndim == 1:
        return f"{want.size} numbers in one list are asked for, you gave the shape {got.shape}."
    rows, columns = want.shape
    return f"{rows} rows of {columns} are asked for, you gave the shape {got.shape}."


def _about_numbers(got, want, typed):
    """How many numbers are right, without giving away the others."""
    count = int(_close(got, want).sum())
    more = "" if typed >= DECIMALS else f" With {DECIMALS} decimals a slip is easier to name."
    if want.size == 1:
        return f"not yet, and no slip known here gives this value.{more}"
    verb = "is" if count == 1 else "are"
    return (
        f"not yet, and no slip known here gives these values. {count} of {want.size} numbers "
        f"{verb} right.{more}"
    )
