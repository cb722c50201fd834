"""How the judge says it: sentences, and cases printed so that they can be read and typed again."""

import inspect
import re
import textwrap
import traceback

import numpy as np

from mha_lib.exercises.answers import is_array, is_mask, sizes

NOT_ATTEMPTED = (
    "not attempted yet. (If you have written it, it lacks a return: it gives back None.)"
)
MUTATED = (
    "your answers are right, but your function changes its input, and the caller's array with it. "
    "Work on a new array: x = x - y instead of x -= y.\n\nFor example this input:"
)
TO_BOOLEAN = (
    "True and False come from a comparison, such as position < length; of ones and zeros, "
    ".astype(bool) makes them."
)
LIBRARY_PAIR = "The library's attention returns output and weights: take the output, [0]."
LARGEST_WITHOUT_EXPONENT = 1e6
LONGEST_TEXT = 300
LINE_WIDTH = 92


def wrapped(message):
    """Sentences broken into lines; what is indented stays as it is."""
    return "\n".join(s if s.startswith(" ") else _fill(s) for s in message.split("\n"))


def _fill(sentence, width=LINE_WIDTH):
    return textwrap.fill(sentence, width, break_on_hyphens=False, break_long_words=False)


def score(trials):
    """How many cases are right, and that the smallest wrong one follows."""
    count = sum(trial.right for trial in trials)
    if not count:
        return "The smallest case:"
    verb = "is" if count == 1 else "are"
    return f"{count} of {len(trials)} cases {verb} right. The smallest that is not:"


def raised(error):
    """Which exception, and in which line of the reader's function."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the judge's own
    line = f"\n\n    in the line: {frames[0].line}" if frames and frames[0].line else ""
    return f"Your function raised {_error(error)}{line}"


def besides(error):
    """The exception of a function that has another fault as well."""
    return f"Besides, on another case your function raised {_error(error)}"


def wrong_type(got, want):
    """What came instead of an array or a dict."""
    if got is None:
        return "Your function returns None on this case: a way through it lacks a return."
    sentence = f"Your function returns {_kind(got)}, where {_wanted(want)} is asked for."
    if is_mask(want) and is_array(got):
        return f"{sentence} {TO_BOOLEAN}"
    return f"{sentence} {LIBRARY_PAIR}" if _is_pair(got) else sentence


def _wanted(want):
    if isinstance(want, dict):
        return "a dict of shapes"
    return f"a {'boolean ' if is_mask(want) else ''}NumPy array of shape {want.shape}"


def _is_pair(value):
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_array, value))


def _kind(value):
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    if isinstance(value, (int, float, np.number)):
        return "a single number"
    return f"a {type(value).__name__}"


def different(got, want):
    """An answer in the right form; of a dict, the entries that are wrong."""
    if isinstance(want, dict):
        got, want = sizes(got), sizes(want)
        names = ", ".join(name for name in want if got[name] != want[name])
        return f"These shapes are not right: {names}."
    return "Your answer has the right shape, but it is not the right one."


def wrong_shape(got, want):
    """Shapes, or a dict's keys."""
    what = "shape" if isinstance(want, tuple) else "keys"
    return f"Your answer has the {what} {got}, where {want} is right."


def example(solution, trial):
    """One case: the arguments, the right answer, the answer that came."""
    want, came = _text(trial.solution.value), _came(trial.answer)
    lines = [arguments(solution, trial.case), _labelled("expected", want), _labelled("got", came)]
    if want == came:
        gap = np.abs(trial.answer.value - trial.solution.value).max()
        lines.append(f"    (the same to four decimals; the largest difference is {gap:.1e})")
    return "\n".join(lines)


def arguments(solution, case):
    """The arguments of a case by name, arrays with their shape."""
    names = inspect.signature(solution).parameters
    return "\n".join(_argument(name, value) for name, value in zip(names, case, strict=True))


def _argument(name, value):
    shape = f", shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return _labelled(f"{name}{shape}", _text(value))


def _labelled(label, text):
    """On one line where it fits, otherwise the text below its label."""
    if "\n" not in text:
        return f"    {label}: {text}"
    return f"    {label}:\n" + textwrap.indent(text, " " * 8)


def _came(outcome):
    if outcome.error is None:
        return _text(outcome.value)
    return _fill(_error(outcome.error), LINE_WIDTH - 8)


def _text(value):
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return _array(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {size}" for name, size in sizes(value).items())
    return textwrap.shorten(repr(value), LONGEST_TEXT)


def _array(array):
    """Four decimals, no exponents unless the numbers are huge, no minus before a zero."""
    if is_array(array) and not is_mask(array):
        array = np.round(array, 4) + 0
    finite = np.abs(array[np.isfinite(array)])
    plain = float(finite.max(initial=0)) < LARGEST_WITHOUT_EXPONENT
    return np.array2string(array, precision=4, suppress_small=plain, max_line_width=LINE_WIDTH)


def _error(error):
    """An exception on one line, said plainly where NumPy does not."""
    text = str(error)
    if "gufunc signature" in text:
        text = f"the shapes in a matrix product do not fit {text[text.rindex('(') :]}"
    if "cannot be interpreted as an integer" in text:
        text += " (sizes are whole numbers: divide with //)"
    if "truth value of an array" in text:
        text += " (for all entries at once, write ~, & and | instead of not, and, or)"
    if re.search("'tuple' object has no attribute|got tuple", text):
        text += f". {LIBRARY_PAIR}"
    return f"{type(error).__name__}: {textwrap.shorten(text, LONGEST_TEXT)}"
