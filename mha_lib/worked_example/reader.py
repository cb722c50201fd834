"""A reader's own value for one step: right, or which slip gives exactly that value."""

from dataclasses import replace

import numpy as np

from mha_lib.exercises import wording
from mha_lib.exercises.judge import Verdict
from mha_lib.worked_example.example import THE_CAT_SAT
from mha_lib.worked_example.slips import in_one_head, slips
from mha_lib.worked_example.work import Numbers, Work

HALF_UNIT = 0.5e-3  # of the third decimal
RELATIVE = 2e-6  # and six figures of a number with many before the point
DECIMALS = 3
MOST_NAMED = 3
PER_HEAD = (
    "query", "keys", "values", "scores", "scaled", "exponentials", "sum", "weights", "head"
)  # fmt: skip
WHOLE_LAYER = ("concat", "output")
MATRICES = "x", "w_q", "w_k", "w_v", "w_o"
BEFORE = "These are the numbers before the change: use the new ones."


def check(step, value, token, head=None, example=THE_CAT_SAT):
    """Say whether your value for a step is right, or which slip gives exactly that value.

    ``step`` is query, keys, values, scores, scaled, exponentials, sum, weights or head (its
    output), all with ``head`` counted from 1, or concat or output. ``value`` is a number or a list,
    with three decimals or more. Raises ValueError for a step, a token or a head that is not there.

    >>> check("weights", [0.198, 0.401, 0.401], "cat", head=1)
    weights of 'cat' in head 1: right.
    >>> check("scaled", [0, 2, -1], "cat", head=2)
    scaled scores of 'cat' in head 2: not yet. You left out the scale: divide each score by the
    square root of d_k before exp.
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
    return Verdict(kind, wording.wrapped(f"{_title(step, token, head)}: {text}"))


def _title(step, token, head):
    """What is asked for; keys and values are those of all tokens."""
    if step in WHOLE_LAYER:
        return f"{step} of {token!r}"
    if step in ("keys", "values"):
        return f"{step} in head {head}"
    if step == "head":
        return f"output of head {head} for {token!r}"
    return f"{'scaled scores' if step == 'scaled' else step} of {token!r} in head {head}"


def _verdict(step, value, example, position, index):
    if _is_blank(value):
        return "not attempted", "not attempted yet."
    want = _value(Work, step, Numbers.of(example), position, index)
    if _is_uneven(value):
        return "wrong shape", f"{_asked(want)} asked for, and yours are lists of unequal length."
    try:
        got = np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        return "wrong type", f"write a number or a list of numbers, not {str(value)[:60]}."
    if got.squeeze().shape != want.squeeze().shape:
        return "wrong shape", _about_shape(got, want)
    got, typed = got.reshape(want.shape), _typed_decimals(value)
    if _agree(got, want):
        return "right", "right."
    if 0 < typed < DECIMALS and _close(got, want, 0.5 * 10**-typed).all():
        return "right so far", f"right as far as it goes. Please give {DECIMALS} decimals."
    if named := sentences(step, got, example, position, index):
        return "named slip", f"not yet. {' Or: '.join(named[:MOST_NAMED])}"
    return "different", _about_numbers(got, want, typed)


def _value(work, step, numbers, position, index):
    """What this way of working gives; NaN where its matrices do not fit."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(work(numbers, position, index or 0), step)(), float)
    except ValueError:
        return np.array(np.nan)


def sentences(step, got, example, position, index):
    """What is to be said of each slip that gives this value, the most likely first, none twice.

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
    if _agree(got, _before(step, example, position, index)):
        found.insert(0, BEFORE)
    return list(dict.fromkeys(found))


def _before(step, example, position, index):
    """The value in the book's example where this one was made from it; else NaN."""
    book = replace(THE_CAT_SAT, causal=example.causal)
    if example == book or _sizes(example) != _sizes(book):
        return np.array(np.nan)
    return _value(Work, step, Numbers.of(book), position, index)


def _sizes(example):
    matrices = (getattr(example, name) for name in MATRICES)
    return example.num_heads, example.memory, [(len(m), len(m[0])) for m in matrices]


def _agree(a, b):
    return a.shape == b.shape and _close(a, b).all()


def _close(a, b, half_unit=HALF_UNIT):
    return np.isclose(a, b, rtol=RELATIVE, atol=half_unit + 1e-9)  # for binary fractions


def _is_blank(value):
    if isinstance(value, (list, tuple)):
        return any(map(_is_blank, value)) or not value
    return value is None or value is ... or (isinstance(value, str) and not value.strip())


def _is_uneven(value):
    """True for lists that NumPy has no shape for."""
    try:
        cells = np.asarray(value, object).ravel()
    except ValueError:
        return True
    return any(isinstance(cell, (list, tuple, np.ndarray)) for cell in cells)


def _typed_decimals(value):
    """The most decimals that a number of the reader's has."""
    numbers = np.asarray(value, object).ravel()
    return max(len(str(number).partition(".")[2]) for number in numbers)


def _about_shape(got, want):
    if got.ndim == 2 and got.T.shape == want.shape and _agree(got.T, want):
        return "the numbers are right, and rows and columns are swapped: a token is a row."
    return f"{_asked(want)} asked for, you gave {_layout(got)}."


def _asked(want):
    return f"{_layout(want)} {'is' if want.ndim == 0 else 'are'}"


def _layout(array):
    """One number, 3 numbers in one list, 3 rows of 2."""
    if array.ndim == 0:
        return "one number"
    if array.ndim == 1:
        return f"{array.size} number{'s' * (array.size != 1)} in one list"
    if array.ndim == 2:
        return f"{len(array)} row{'s' * (len(array) != 1)} of {array.shape[1]}"
    return "lists in lists in lists"


def _about_numbers(got, want, typed):
    """How many numbers are right, without giving away the others."""
    count = int(_close(got, want).sum())
    enough = typed >= DECIMALS or (want == want.round()).all()
    more = "" if enough else f" With {DECIMALS} decimals a slip is easier to name."
    if want.size == 1:
        return f"not yet, and no slip known here gives this value.{more}"
    verb = "is" if count == 1 else "are"
    return (
        f"not yet, and no slip known here gives these values. {count} of {want.size} numbers "
        f"{verb} right.{more}"
    )
