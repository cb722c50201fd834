"""How the judge says it: sentences, and cases printed so that they can be read and typed again."""

import inspect
import re
import textwrap

import numpy as np

from mha_lib.exercises.answers import SEVERAL, form, is_array, is_mask, is_number, same, sizes

NOT_ATTEMPTED = (
    "not attempted yet. (If you have written it, it lacks a return: it gives back None.)"
)
PRINTED = (
    "your function prints and returns nothing. Printing shows a number to you; a return hands it "
    "to whoever called. End with return instead of print."
)
TOO_SLOW = (
    "your function did not finish in time on this input, which takes a moment. Is there a loop "
    "that does not end?"
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
ORDINALS = ("first", "second", "third", "fourth")
LARGEST_WITHOUT_EXPONENT = 1e6
SMALLEST_GROUPED = 10_000
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


def raised(outcome):
    """Which exception, and in which line of the reader's function."""
    line = f"\n\n    in the line: {outcome.line}" if outcome.line else ""
    return f"Your function raised {_error(outcome.error)}{line}"


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
    if is_number(want):
        return "a whole number"
    if isinstance(want, tuple):
        return f"a tuple of {len(want)} arrays (with commas: return a, b)"
    return f"a {'boolean ' if is_mask(want) else ''}NumPy array of shape {want.shape}"


def _is_pair(value):
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_array, value))


def _kind(value):
    if is_number(value):
        return "a single number"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return f"a {type(value).__name__}"


def different(got, want):
    """An answer in the right form; of a dict, the entries that are wrong."""
    if isinstance(want, dict):
        got, want = sizes(got), sizes(want)
        names = ", ".join(name for name in want if got[name] != want[name])
        return f"These shapes are not right: {names}."
    if is_number(want):
        return _different_count(got, want)
    return "Your answer has the right shape, but it is not the right one."


def _different_count(got, want):
    if got != int(got):
        return (
            f"A count is a whole number, to the last digit, and yours is {_text(got)}. Multiply "
            "first, and divide with // where a division comes out even."
        )
    return f"Your number is too {'large' if got > want else 'small'}."


def part(position, sentence):
    """A sentence about one of several arrays."""
    array = f"The {ORDINALS[position]} array that you return"
    for subject, said in (("Your function returns", f"{array} is"), ("Your answer", array)):
        if sentence.startswith(subject):
            return said + sentence.removeprefix(subject)
    return f"{array}: {sentence[0].lower()}{sentence[1:]}"


def wrong_shape(got, want):
    """Shapes, a dict's keys, or how many arrays there are."""
    if isinstance(want, int):
        return f"You return {got} arrays, where {want} are asked for."
    what = "shape" if isinstance(want, tuple) else "keys"
    return f"Your answer has the {what} {got}, where {want} is right."


def example(solution, trial):
    """One case: the arguments, the right answer, the answer that came."""
    want, came = _text(trial.solution.value), _came(trial.answer)
    lines = [arguments(solution, trial.case), _labelled("expected", want), _labelled("got", came)]
    if want == came and form(trial.answer.value) == form(trial.solution.value):
        gap = _gap(trial.answer.value, trial.solution.value)
        lines.append(f"    (the same to four decimals; the largest difference is {gap:.1e})")
    return "\n".join(lines)


def _gap(got, want):
    """The largest difference between two arrays, or between any two of several."""
    if isinstance(want, tuple):
        return max(_gap(a, b) for a, b in zip(got, want) if not same(a, b))
    return np.abs(got - want)[got != want].max()


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
    if is_number(value):
        return _number(value)
    if isinstance(value, SEVERAL) and len(value) <= len(ORDINALS) and all(map(is_array, value)):
        return "\n".join(map(_text, value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return _array(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {size}" for name, size in sizes(value).items())
    return textwrap.shorten(repr(value), LONGEST_TEXT)


def _number(number):
    """Whole numbers in groups of three digits, as Python reads them; no exponents.

    >>> _number(4096), _number(np.int64(1234567)), _number(1.5e-7)
    ('4096', '1_234_567', '0.00000015')
    """
    if np.asarray(number).dtype.kind not in "iuO":
        return np.format_float_positional(number, trim="0")
    return f"{int(number):_}" if abs(number) >= SMALLEST_GROUPED else f"{number}"


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
        text += (
            " (for all entries at once, write ~, & and | instead of not, and, or, and np.maximum "
            "instead of max)"
        )
    if re.search("'tuple' object has no attribute|got tuple", text):
        text += f". {LIBRARY_PAIR}"
    return f"{type(error).__name__}: {textwrap.shorten(text, LONGEST_TEXT)}"
