"""The worked example: exact steps, a reader's own files, the slips, the worksheet, the terminal."""

import html
import json
import re
import sys
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from itertools import chain

import numpy as np
import pytest
import sympy

from mha_lib.__main__ import main
from mha_lib.scratch import multi_head_attention
from mha_lib.worked_example import (
    THE_CAT_SAT,
    Example,
    check,
    decimals,
    judge_value,
    load,
    nearest_single_distribution,
    printed_numbers,
    trace,
    worksheet,
    written,
)
from mha_lib.worked_example.checks import MOST_FEATURES, MOST_TOKENS
from mha_lib.worked_example.reader import BEFORE, MOST_NAMED, PER_HEAD, WHOLE_LAYER, sentences
from mha_lib.worked_example.slider import REACH, Sliders
from mha_lib.worked_example.slips import COMMON, MASKED, UNLIKELY, slips
from mha_lib.worked_example.work import Numbers, Work
from mha_lib.worked_example.worksheet import MOST_FEATURES as COLUMNS_ON_A_PAGE
from mha_lib.worked_example.worksheet import MOST_TOKENS as TOKENS_ON_A_PAGE

from .oracle import assert_close

CAUSAL = replace(THE_CAT_SAT, causal=True)
E, A, B = (sympy.exp(x / sympy.sqrt(2)) for x in (1, 2, -1))
Z = 1 + A + B


def drawn(num_heads, d_k=2, d_v=1, n=3, n_kv=None, causal=False, seed=0, scale=1):
    """A small example of all different sizes, with whole numbers or fractions of them."""
    rng = np.random.default_rng(seed)

    def rows(n, d):
        return [[Fraction(int(k), scale) for k in row] for row in rng.integers(-1, 3, (n, d))]

    width, memory_width = 5, 4 if n_kv else 5
    memory = {}
    if n_kv:
        memory = {"memory": rows(n_kv, memory_width), "memory_tokens": tuple("vwxyz"[:n_kv])}
    return Example(
        tokens=tuple("abcde"[:n]),
        x=rows(n, width),
        w_q=rows(width, num_heads * d_k),
        w_k=rows(memory_width, num_heads * d_k),
        w_v=rows(memory_width, num_heads * d_v),
        w_o=rows(num_heads * d_v, 6),
        num_heads=num_heads,
        causal=causal,
        **memory,
    )


EXAMPLES = {
    "book": THE_CAT_SAT,
    "book, causal": CAUSAL,
    "one head": drawn(1, d_k=4, d_v=3),
    "two heads": drawn(2, d_k=1, d_v=3, seed=1),
    "three heads, causal": drawn(3, d_k=2, d_v=1, causal=True, seed=2),
    "cross": drawn(2, n_kv=4, seed=3),
    "cross, causal, a query with nothing to see": drawn(2, n_kv=2, causal=True, seed=4),
    "fractions": drawn(2, d_v=2, seed=5, scale=4),
}
each_example = pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))


def floats(numbers):
    return np.array(numbers, float)


# Exact


@each_example
def test_exact_is_the_layer_in_float64(example):
    found = trace(example)
    output, weights = multi_head_attention(
        *example.arrays(), example.projections(), example.num_heads, causal=example.causal
    )
    assert_close(floats([token.output for token in found.tokens]), output)
    for h in range(example.num_heads):
        assert_close(floats([token.heads[h].weights for token in found.tokens]), weights[h])


@each_example
def test_the_readers_way_of_working_is_exact_at_every_step(example):
    numbers = Numbers.of(example)
    for i, token in enumerate(trace(example).tokens):
        for step in WHOLE_LAYER:
            assert_close(getattr(Work(numbers, i), step)(), floats(getattr(token, step)))
        for h, head in enumerate(token.heads):
            for step in PER_HEAD:
                exact = getattr(head, "output" if step == "head" else step)
                got = np.asarray(getattr(Work(numbers, i, h), step)())
                assert np.allclose(got, floats(exact), rtol=1e-12, atol=1e-12), step


def equal(a, b):
    return sympy.simplify(a - b) == 0


def test_the_exact_expressions_of_cat():
    first, second = trace(THE_CAT_SAT).of("cat").heads
    assert first.scores == (0, 1, 1)
    assert second.scores == (0, 2, -1)
    assert first.scaled == (0, 1 / sympy.sqrt(2), 1 / sympy.sqrt(2))
    assert first.weights == (1 / (1 + 2 * E), E / (1 + 2 * E), E / (1 + 2 * E))
    assert first.output == (1, 3 * E / (1 + 2 * E))
    assert second.sum == Z
    assert second.weights == (1 / Z, A / Z, B / Z)
    assert second.output == ((A + B) / Z, (1 + B) / Z)


def test_the_exact_expressions_of_the_others():
    the, _, sat = trace(THE_CAT_SAT).tokens
    assert the.heads[0].weights == (sympy.Rational(1, 3),) * 3
    assert the.heads[0].output == (1, 1)
    assert the.heads[1].weights == (1 / (2 + A), A / (2 + A), 1 / (2 + A))
    assert sat.heads[0].weights == (E / (2 + E), 1 / (2 + E), 1 / (2 + E))
    assert sat.heads[0].output == (1, 3 / (2 + E))
    assert sat.heads[1].weights[1] == sympy.exp(2 * sympy.sqrt(2)) / sat.heads[1].sum
    for token in trace(THE_CAT_SAT).tokens:
        assert equal(token.output[2], token.heads[1].weights[0])


def test_head_1_gives_cat_and_sat_one_key():
    keys = trace(THE_CAT_SAT).of("cat").heads[0].keys
    assert keys[1] == keys[2] != keys[0]


def test_a_mask_leaves_minus_infinity_and_zeros():
    head = trace(CAUSAL).of("cat").heads[0]
    assert head.scores == (0, 1, -sympy.oo) and head.scaled[2] == -sympy.oo
    assert head.exponentials[2] == head.weights[2] == 0
    assert trace(CAUSAL).of("The").output == (1, 1, 1, -1)


def test_exactly_two_printed_numbers_are_wrong():
    compared = printed_numbers(trace(THE_CAT_SAT))
    wrong = [(c.head, c.step, c.printed, c.rounded) for c in compared if not c.right]
    assert wrong == [(2, "exponentials", "4.114", "4.113"), (2, "sum", "5.607", "5.606")]
    for c in compared:
        unit = 10.0 ** -len(c.printed.partition(".")[2])
        assert (abs(float(c.exact) - float(c.printed)) <= unit / 2) == c.right


# Decimals


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (sympy.Rational(1, 8), 2, "0.13"),
        (sympy.Rational(-1, 8), 2, "-0.13"),
        (sympy.Rational(12499, 10**5), 2, "0.12"),
        (sympy.Rational(3, 2), 0, "2"),
        (sympy.Rational(-49999, 10**9), 4, "0.0000"),
        (sympy.Rational(-5, 10**5), 4, "-0.0001"),
        (sympy.Integer(0), 4, "0.0000"),
        (Fraction(1, 3), 3, "0.333"),
        (sympy.exp(sympy.sqrt(2)), 3, "4.113"),
        (sympy.exp(sympy.sqrt(2)), 30, "4.113250378782927517173581815140"),
        ((1 + A) ** 2 - A**2 - 2 * A - 1, 4, "0.0000"),
        (-((A + A**2) / (8 * A * (1 + A))), 2, "-0.13"),  # -1/8 in disguise
        (-sympy.oo, 4, "-inf"),
        (sympy.exp(100), 4, "2.6881e+43"),
        (sympy.Integer(999999), 1, "999999.0"),
        (sympy.exp(-(10**15)), 4, "0.0000"),
    ],
)
def test_decimals_round_the_exact_value(value, digits, text):
    assert decimals(value, digits) == text


# The nearest single distribution


@pytest.mark.parametrize(
    ("token", "distance"), [("The", "0.278935"), ("cat", "0.274050"), ("sat", "0.563780")]
)
def test_the_nearest_single_distribution(token, distance):
    found = trace(THE_CAT_SAT)
    nearest = nearest_single_distribution(found, token)
    assert decimals(nearest.distance, 6) == distance
    assert equal(sum(nearest.weights), 1)
    rows = np.hstack([floats(head.values) for head in found.of(token).heads])
    weights, target = floats(nearest.weights), floats(found.of(token).concat)
    best = np.linalg.norm(weights @ rows - target)
    assert best == pytest.approx(float(distance), abs=1e-6)
    others = np.random.default_rng(0).dirichlet(np.ones(3), 2000)
    assert np.linalg.norm(others @ rows - target, axis=1).min() > best


def test_the_weights_nearest_to_cat():
    nearest = nearest_single_distribution(trace(THE_CAT_SAT), "cat")
    assert [decimals(w, 6) for w in nearest.weights] == ["0.125440", "0.504764", "0.369796"]


def test_the_nearest_distribution_keeps_to_the_mask():
    nearest = nearest_single_distribution(trace(CAUSAL), "The")
    assert nearest.weights == (1, 0, 0) and nearest.distance == 0


def test_an_optimum_on_the_edge_is_refused():
    corner = Example(  # head 1 wants b, head 2 wants c; their values lie in two directions from a's
        tokens=("a", "b", "c"),
        x=[[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        w_q=[[1, 1]] * 3,
        w_k=[[0, 0], [5, 0], [0, 5]],
        w_v=[[0, 0], [1, 0], [0, 1]],
        w_o=[[1], [1]],
        num_heads=2,
    )
    with pytest.raises(ValueError, match="lies on the edge"):
        nearest_single_distribution(trace(corner), "a")


def test_an_optimum_that_is_not_unique_is_refused():
    same = replace(THE_CAT_SAT, w_v=[[1, 1, 1, 1]] * 4, causal=False)
    with pytest.raises(ValueError, match="is not unique"):
        nearest_single_distribution(trace(same), "cat")


# A reader's own files

TOKENS = {"tokens": ["a", "b"], "x": [[1, 0, 0.1], [0, 1, -2]]}
WEIGHTS = {
    "num_heads": 2,
    "w_q": [[1, 0], [0, 1], [1, 1]],
    "w_k": [[1, 1], [0, 1], [1, 0]],
    "w_v": [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]],
    "w_o": [[1], [0], [2], [0.5]],
}
MEMORY = {"memory_tokens": ["v", "w", "x"], "memory": [[1, 0, 0], [0, 1, 0], [1, 1, 1]]}
AS_WIDE_AS_THE_BOOKS = [[1, 0, 0, 0], [0, 1, 0, 1]]


def write(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def load_both(folder, tokens=TOKENS, weights=WEIGHTS, **options):
    paths = write(folder, "tokens.json", tokens), write(folder, "weights.json", weights)
    return load(*paths, **options)


def test_a_readers_files_are_read_exactly(tmp_path):
    example = load_both(tmp_path, causal=True)
    assert example.x[0] == (1, 0, Fraction(1, 10)) and example.w_o[3] == (Fraction(1, 2),)
    assert example.causal and example.memory is None and example.key_tokens == ("a", "b")


def test_a_readers_memory_makes_it_cross_attention(tmp_path):
    example = load_both(tmp_path, TOKENS | MEMORY)
    assert example.key_tokens == ("v", "w", "x")
    output, _ = multi_head_attention(*example.arrays(), example.projections(), 2)
    assert_close(floats([t.output for t in trace(example).tokens]), output)


def test_a_file_left_out_is_the_books(tmp_path):
    assert load() == THE_CAT_SAT
    other = write(tmp_path, "t.json", {"tokens": ["Sit"], "x": [[0, 0, 1, 1]]})
    assert load(tokens_path=other) == replace(THE_CAT_SAT, tokens=("Sit",), x=[[0, 0, 1, 1]])
    book = {key: getattr(THE_CAT_SAT, key) for key in WEIGHTS}
    numbers = {k: [[int(n) for n in r] for r in v] for k, v in book.items() if k != "num_heads"}
    weights = write(tmp_path, "w.json", "\ufeff" + json.dumps(numbers | {"num_heads": 1}))
    assert load(weights_path=weights) == replace(THE_CAT_SAT, num_heads=1)


def test_floats_of_python_are_taken_as_they_are_written():
    moved = replace(THE_CAT_SAT, x=np.array([[0.1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]]))
    assert moved.x[0][0] == Fraction(1, 10)
    assert THE_CAT_SAT.x[0][0] == 1


def without(content, key):
    return {k: v for k, v in content.items() if k != key}


NAN = '{"tokens": ["a"], "x": [[NaN, 1, 2]]}'
HUGE = '{"tokens": ["a"], "x": [[1e999999999, 1, 2]]}'
HUGE_HEADS = json.dumps(WEIGHTS | {"num_heads": 2}).replace(": 2,", ": 1e999999999,")
MALFORMED = {
    "not JSON": ("tokens", "{\n'tokens': 1}", "tokens.json must be JSON, got a fault in line 2"),
    "not an object": ("tokens", [1], 'must hold one object {"tokens": ..., "x": ...}, got a list'),
    "a key missing": ("weights", without(WEIGHTS, "w_k"), "weights.json must have the keys "),
    "an unknown key": ("tokens", TOKENS | {"X": 1}, "no keys but tokens, x, memory_tokens"),
    "a key twice": ("tokens", '{"x": 1, "x": 2}', "tokens.json must have each key once, got 'x'"),
    "ragged": ("weights", WEIGHTS | {"w_v": [[1, 2], [3]]}, "got 2 in row 1 and 1 in row 2"),
    "no rows": ("weights", WEIGHTS | {"w_o": [1, 2]}, "each a list of numbers, got a list with 1"),
    "a number": ("tokens", TOKENS | {"x": 3}, "x in {} must be a list of rows"),
    "text": (
        "tokens",
        TOKENS | {"x": [["1", 2, 3]] * 2},
        'numbers only, got the text "1" in row 1',
    ),
    "null": ("tokens", TOKENS | {"x": [[1, None, 3]] * 2}, "got null in row 1, column 2"),
    "true": ("tokens", TOKENS | {"x": [[1, 2, True]] * 2}, "got true in row 1, column 3"),
    "NaN": ("tokens", NAN, "x in {} must hold finite numbers, got NaN in row 1, column 1"),
    "Infinity": ("tokens", NAN.replace("NaN", "-Infinity"), "finite numbers, got -Infinity"),
    "enormous": ("tokens", HUGE, "numbers below 1000 with at most 6 decimals"),
    "fine": ("tokens", HUGE.replace("e9", "e-9"), "numbers below 1000 with at most 6 decimals"),
    "beyond Decimal": ("tokens", HUGE.replace("e9", "e" + 30 * "9"), "got something huge"),
    "empty": ("tokens", {"tokens": [], "x": []}, "tokens in {} must hold at least one name"),
    "empty rows": ("weights", WEIGHTS | {"w_q": [[], []]}, "at least one number in every row"),
    "names and rows": (
        "tokens",
        TOKENS | {"tokens": ["a"]},
        "one row per name in tokens, 1, got 2",
    ),
    "names twice": ("tokens", TOKENS | {"tokens": ["a", "a"]}, "different names, got 'a' twice"),
    "no names": ("tokens", TOKENS | {"tokens": [1, 2]}, "a list of names in quotation marks"),
    "a long name": ("tokens", TOKENS | {"tokens": ["a" * 13, "b"]}, "1 to 12 visible characters"),
    "x's width": ("tokens", TOKENS | {"x": [[1], [2]]}, "w_q in W must have one row per column"),
    "w_k's rows": (
        "weights",
        WEIGHTS | {"w_k": [[1, 2]]},
        "one row per column of x in T, 3, got 1",
    ),
    "w_v's rows": (
        "weights",
        WEIGHTS | {"w_v": [[1, 2]]},
        "w_v in {} must have one row per column",
    ),
    "w_k's columns": (
        "weights",
        WEIGHTS | {"w_k": [[1]] * 3},
        "as many columns as w_q in W, 2, got",
    ),
    "heads": ("weights", WEIGHTS | {"num_heads": 4}, "that num_heads = 4 divides, got 2"),
    "heads of V": ("weights", WEIGHTS | {"w_v": [[1] * 3] * 3, "w_o": [[1]] * 3}, "w_v in {} must"),
    "w_o's rows": ("weights", WEIGHTS | {"w_o": [[1]]}, "one row per column of w_v in W, 4, got 1"),
    "half a head": (
        "weights",
        WEIGHTS | {"num_heads": 1.5},
        "a whole number from 1 to 12, got 1.5",
    ),
    "no head": ("weights", WEIGHTS | {"num_heads": 0}, "a whole number from 1 to 12, got 0"),
    "endless heads": ("weights", HUGE_HEADS, "a whole number from 1 to 12, got 1E+999999999"),
    "a head in words": (
        "weights",
        WEIGHTS | {"num_heads": "two"},
        'from 1 to 12, got the text "two"',
    ),
    "nameless memory": ("tokens", TOKENS | without(MEMORY, "memory_tokens"), "needs memory_tokens"),
    "names without memory": ("tokens", TOKENS | without(MEMORY, "memory"), "needs memory beside"),
    "memory's width": (
        "tokens",
        TOKENS | MEMORY | {"memory": [[1]] * 3},
        "column of memory in T, 1",
    ),
    "nine tokens": (
        "tokens",
        {"tokens": list("abcdefghi"), "x": [[1, 2, 3]] * 9},
        "x in {} must have at most 8 rows, to be worked with on paper, got 9",
    ),
    "thirteen features": ("weights", WEIGHTS | {"w_o": [[1] * 13] * 4}, "at most 12 columns"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_gets_one_clear_sentence(tmp_path, capsys, name):
    which, content, sentence = MALFORMED[name]
    paths = {key: tmp_path / f"{key}.json" for key in ("tokens", "weights")}
    with pytest.raises(ValueError) as error:
        load_both(tmp_path, **{which: content})
    text = str(error.value)
    sentence = sentence.replace("{}", str(paths[which]))
    sentence = re.sub(r"\bin ([TW])\b", lambda m: f"in {paths[named(m[1])]}", sentence)
    assert sentence in text
    assert str(paths[which]) in text and "\n" not in text
    options = ["--tokens", str(paths["tokens"]), "--weights", str(paths["weights"])]
    assert main(["example", *options]) == 2
    assert capsys.readouterr() == ("", text + "\n")


def named(letter):
    return {"T": "tokens", "W": "weights"}[letter]


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json must be a file to read, got: No such file"):
        load(tmp_path / "none.json")
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\xff")
    with pytest.raises(ValueError, match=r"picture\.json must be a text file in UTF-8"):
        load(weights_path=tmp_path / "picture.json")
    deep = write(tmp_path, "deep.json", "[" * 10**5)
    with pytest.raises(ValueError, match=r"deep\.json must be"):
        load(deep)


# A reader's own values


def cases(example):
    """Every step of every token in every head, as arguments of the judge and of Work."""
    for i, token in enumerate(example.tokens):
        for step in PER_HEAD:
            yield from ((step, token, i, h) for h in range(example.num_heads))
        yield from ((step, token, i, None) for step in WHOLE_LAYER)


def value_of(work, example, step, i, h):
    with np.errstate(all="ignore"):
        return np.asarray(getattr(work(Numbers.of(example), i, h or 0), step)())


def judged(example, step, token, h, value):
    value = np.asarray(value).tolist()
    return judge_value(step, value, token, None if h is None else h + 1, example)


@each_example
def test_the_right_value_is_right_in_three_decimals_and_in_all(example):
    for step, token, i, h in cases(example):
        right = value_of(Work, example, step, i, h)
        for value in (right, right.round(3)):
            verdict = judged(example, step, token, h, value)
            assert verdict.kind == "right", verdict


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("example", [THE_CAT_SAT, CAUSAL])
def test_too_few_decimals_are_asked_for_and_never_accused(example, digits):
    kinds = []
    for step, token, i, h in cases(example):
        right = value_of(Work, example, step, i, h)
        verdict = judged(example, step, token, h, right.round(digits))
        if not np.isclose(right, right.round(digits), rtol=0, atol=5e-4).all():
            assert verdict.message.replace("\n", " ").endswith(SO_FAR), verdict
        kinds.append(verdict.kind)
    assert set(kinds) == {"right", "right so far"}


SO_FAR = "right as far as it goes. Please give 3 decimals."


def test_a_half_may_be_rounded_up():
    eighths = Example(("a",), [[1]], [[1]], [[1]], [[Fraction(1, 8)]], [[1]], 1)
    for value in (0.12, 0.13):
        assert judge_value("head", value, "a", 1, eighths).kind == "right so far"


BEFOREHAND = {"exponentials": "scaled", "weights": "exponentials", "head": "weights"}


@pytest.mark.parametrize("example", [THE_CAT_SAT, CAUSAL])
def test_who_goes_on_with_three_decimals_is_told_so(example):
    kinds = set()
    for step, token, i, h in cases(example):
        value = gone_on(example, step, i, h)
        if value is not None:
            verdict = judged(example, step, token, h, value.round(3))
            kinds.add(verdict.kind)
            assert verdict.kind == "right" or "You went on with" in verdict.message, verdict
    assert kinds == {"right", "named slip"}


def gone_on(example, step, i, h):
    """A step made from the right numbers of the step before in three decimals."""
    if step == "output":
        return value_of(Work, example, "concat", i, h).round(3) @ floats(example.w_o)
    if step not in BEFOREHAND:
        return None
    given = value_of(Work, example, BEFOREHAND[step], i, h).round(3)
    values = value_of(Work, example, "values", i, h)
    return {
        "exponentials": lambda: np.exp(given),
        "weights": lambda: given / given.sum(),
        "head": lambda: given @ values,
    }[step]()


@pytest.mark.parametrize("example", [THE_CAT_SAT, CAUSAL])
def test_four_decimals_on_the_way_are_enough(example):
    for step, token, i, h in cases(example):
        rounded = {
            name: lambda work, name=name: getattr(Work, name)(work).round(4)
            for name in ("scaled", "exponentials", "weights", "head")
        }
        careful = type("Careful", (Work,), rounded)
        value = value_of(careful, example, step, i, h)
        assert judged(example, step, token, h, value).kind == "right"


NOT_SQUARE = drawn(2, d_k=2, d_v=2, n=3, seed=7)
SQUARE = replace(
    CAUSAL,
    w_o=[[1, 2, 0, 1], [0, 1, 0, 0], [1, 0, -1, 0], [0, 1, 1, -1]],
    w_q=[[0, 0, 1, 0], [1, 1, 0, -1], [1, 0, 1, 0], [0, 1, 1, 2]],
)


@pytest.mark.parametrize("example", [THE_CAT_SAT, CAUSAL, SQUARE, NOT_SQUARE])
def test_every_slip_is_named(example):
    for step, token, i, h in cases(example):
        right, said = value_of(Work, example, step, i, h), {}
        for made in slips(example, i, h):
            value = value_of_slip(made, example, step, i, h)
            if value is None or np.isclose(value, right, rtol=0, atol=1.1e-3).all():
                continue
            value = value.round(3)
            if value.tobytes() not in said:  # many slips give the same
                said[value.tobytes()] = sentences(step, value, example, i, h)
            assert made.sentence in said[value.tobytes()], (step, token, h)


def value_of_slip(made, example, step, i, h):
    """None where the slip cannot be made: sizes that do not fit, or 0 / 0."""
    try:
        value = value_of(made, example, step, i, h)
    except ValueError:
        return None
    fits = value.shape == value_of(Work, example, step, i, h).shape
    return value if fits and not np.isnan(value).any() else None


def test_no_slip_of_the_table_is_idle():
    idle = [made.sentence for made in COMMON + MASKED + UNLIKELY if not seen(made)]
    assert idle == []


def seen(made):
    """True if the slip changes some step, in three decimals, by more than rounding does."""
    for example in (SQUARE, CAUSAL, THE_CAT_SAT):
        for step, _, i, h in cases(example):
            value = value_of_slip(made, example, step, i, h)
            right = value_of(Work, example, step, i, h)
            if value is not None and not np.isclose(value.round(3), right, 0, 5.1e-4).all():
                return True
    return False


@pytest.mark.parametrize(
    ("step", "value", "head", "start"),
    [
        ("scaled", [0, 2, -1], 2, "You left out the scale"),
        ("scaled", [0, 1, -0.5], 2, "You divided by d_k itself"),
        ("weights", [0, 2, -1], 2, "You forgot to exponentiate"),
        ("weights", [1, 2.028, 2.028], 1, "You forgot to divide by the sum"),
        ("weights", [0.199, 0.401, 0.401], 1, "You rounded too early: the scaled scores to one"),
        ("weights", [0.197, 0.401, 0.401], 1, "You rounded too early: the scaled scores to two"),
        ("weights", [0.333, 0.333, 0.333], 1, "You used the query of 'The'"),
        ("exponentials", [1, 4.114, 0.493], 2, "This is what the article"),
        ("sum", 5.607, 2, "This is what the article"),
        ("head", [0.198, 0.802], 1, "You took the keys for the values"),
        ("exponentials", [0, 2.028, 2.028], 1, "You took e^0 for 0"),
        ("weights", [0, 0.5, 0.5], 1, "You took e^0 for 0"),
        ("keys", [[0, 0], [0, 1], [1, 0]], 1, "You took W^Q for the keys"),
        ("query", [2, 0], 2, "You took W^K for the queries"),
        ("values", [[1, 0], [0, 1], [0, 1]], 1, "You took the keys for the values"),
        ("query", [0, -1], 2, "You left out feature 4"),
        ("query", [1, 0], 2, "You left out feature 2"),
        ("keys", [[1, 0], [0, 0], [0, 0]], 1, "You left out feature 4"),
        ("keys", [[1, 0], [0, 0], [0, 1]], 1, "You left out feature 4"),
        ("values", [[1, 0], [0, 1], [2, 1]], 1, "You left out feature 4"),
        ("query", [1, 1], 2, "You lost a minus sign"),
        ("scores", [0, 2, 1], 2, "You lost a minus sign"),
        ("scores", [0, 1.414, -0.707], 2, "You have already divided by the square root"),
        ("scaled", [0, 1, 1], 1, "You left out the scale"),
        ("weights", [0.333, 0.333, 0.333], 1, "All your weights are equal"),
        ("output", [1.822, 1.469, 0.178, 0.937], None, "You went on with numbers rounded"),
        ("output", [1.0, 1.203, 0.822, 0.266], None, "You left out W^O"),
        ("concat", [0.822, 0.266, 1.0, 1.203], None, "Your heads stand in the wrong order"),
    ],
)
def test_what_readers_type(step, value, head, start):
    verdict = judge_value(step, value, "cat", head)
    assert verdict.kind == "named slip"
    assert start in " ".join(verdict.message.split())
    assert verdict.message.count("Or:") < MOST_NAMED


def test_the_likely_slip_comes_first():
    said = sentences("weights", np.array([0, 0.5, 0.5]), THE_CAT_SAT, 1, 0)
    assert said[0].startswith("You took e^0 for 0")
    transposed = {made.sentence for made in UNLIKELY}
    for step, _, i, h in cases(THE_CAT_SAT):
        for made in UNLIKELY:
            value = value_of_slip(made, THE_CAT_SAT, step, i, h)
            kinds = [s in transposed for s in sentences(step, value, THE_CAT_SAT, i, h)]
            assert kinds == sorted(kinds)


def test_the_numbers_before_the_change_are_known():
    w_k = [list(row) for row in THE_CAT_SAT.w_k]
    w_k[3][:2] = [1, 1]
    changed = replace(THE_CAT_SAT, w_k=w_k)
    old = value_of(Work, THE_CAT_SAT, "weights", 2, 0).round(3)
    assert f"not yet. {BEFORE}" in " ".join(
        judged(changed, "weights", "sat", 0, old).message.split()
    )
    new = value_of(Work, changed, "weights", 2, 0).round(3)
    assert judged(changed, "weights", "sat", 0, new).kind == "right"
    assert BEFORE not in sentences("weights", old, replace(changed, num_heads=1), 2, 0)


def test_the_mask_alone_is_no_change_of_numbers():
    old = value_of(Work, THE_CAT_SAT, "weights", 1, 0)
    said = sentences("weights", old, CAUSAL, 1, 0)
    assert said[0].startswith("You forgot the mask") and BEFORE not in said


@pytest.mark.parametrize(
    ("step", "title"),
    [
        ("query", "query of 'cat' in head 1: "),
        ("keys", "keys in head 1: "),
        ("values", "values in head 1: "),
        ("scaled", "scaled scores of 'cat' in head 1: "),
        ("head", "output of head 1 for 'cat': "),
        ("concat", "concat of 'cat': "),
    ],
)
def test_a_message_begins_with_what_was_asked_for(step, title):
    head = 1 if step in PER_HEAD else None
    assert judge_value(step, None, "cat", head).message == f"{title}not attempted yet."


def test_whole_numbers_need_no_decimals():
    assert "decimals" not in judge_value("scores", [0, 7, 9], "cat", 1).message
    assert "With 3 decimals" in judge_value("scaled", [0, 7, 9], "cat", 1).message


def test_a_slip_in_one_head_is_named_in_the_concatenation():
    wrong = Work(Numbers.of(THE_CAT_SAT), 1).concat()
    wrong[2:] = COMMON_BY_START["You left out the scale"](Numbers.of(THE_CAT_SAT), 1, 1).head()
    message = " ".join(judge_value("concat", wrong, "cat").message.split())
    assert "In head 2 alone: You left out the scale" in message


COMMON_BY_START = {made.sentence.partition(":")[0]: made for made in COMMON}


@pytest.mark.parametrize(
    ("step", "value", "kind", "part"),
    [
        ("weights", None, "not attempted", "not attempted yet"),
        ("weights", ..., "not attempted", "not attempted yet"),
        ("weights", [0.198, ..., 0.401], "not attempted", "not attempted yet"),
        ("weights", [], "not attempted", "not attempted yet"),
        ("weights", "a third", "wrong type", "write a number or a list"),
        ("weights", [0.2, 0.4], "wrong shape", "3 numbers in one list are asked for"),
        ("sum", [1, 2], "wrong shape", "one number is asked for, you gave 2 numbers in one list"),
        ("weights", 1, "wrong shape", "3 numbers in one list are asked for, you gave one number."),
        ("weights", [[1, 2, 3]] * 2, "wrong shape", "are asked for, you gave 2 rows of 3."),
        ("weights", [[1], [2, 3]], "wrong shape", "and yours are lists of unequal length."),
        ("weights", [1, [2, 3]], "wrong shape", "and yours are lists of unequal length."),
        ("values", [[1, 2], [3]], "wrong shape", "3 rows of 2 are asked for, and yours are"),
        ("weights", [[[1, 2]] * 2], "wrong shape", "are asked for, you gave lists in lists"),
        ("weights", np.array([]), "wrong shape", "you gave 0 numbers in one list."),
        ("weights", [10**400, 0, 0], "wrong type", "write a number or a list"),
        ("weights", {"a": 1}, "wrong type", "write a number or a list"),
        ("values", [[1, 0, 2], [0, 1, 2]], "wrong shape", "rows and columns are swapped"),
        ("values", [1, 0, 2], "wrong shape", "3 rows of 2 are asked for"),
        ("weights", [0.2, 0.4, 0.4], "right so far", "Please give 3 decimals"),
        ("weights", [0.198, 0.402, 0.44], "different", "1 of 3 numbers is right"),
        ("weights", [float("nan")] * 3, "different", "0 of 3 numbers are right"),
        ("sum", 5.1, "right so far", "Please give 3 decimals"),
        ("sum", 7.123, "different", "no slip known here gives this value."),
        ("sum", 7.5, "different", "With 3 decimals a slip is easier to name."),
        ("weights", np.array([0.198, 0.401, 0.401]), "right", "weights of 'cat' in head 1: right."),
        ("scaled", [0, "0.7071", sympy.sqrt(2) / 2], "right", "right"),
    ],
)
def test_other_values(step, value, kind, part):
    verdict = judge_value(step, value, "cat", 1)
    assert verdict.kind == kind
    assert part in " ".join(verdict.message.split())


def test_enough_decimals_are_not_asked_for_again():
    assert "decimals" not in judge_value("sum", 7.123, "cat", 1).message


def test_check_prints_and_lines_stay_short(capsys):
    check("sum", 5.607, "cat", head=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sum of 'cat' in head 2: not yet.")
    assert max(map(len, lines)) <= 92
    check("weights", [1, 2, 3], "sat", head=2)
    assert capsys.readouterr().out.count("Or:") < MOST_NAMED


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("weigths", 1, "cat", 1), "step must be one of query, keys"),
        (("weights", 1, "dog", 1), "token must be one of The, cat, sat, got 'dog'"),
        (("weights", 1, "cat", 3), "head must be a number from 1 to 2, got 3"),
        (("weights", 1, "cat"), "head must be a number from 1 to 2, got None"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(*arguments)


# On paper and in the terminal

CAT_IN_HEAD_1 = """\
cat, head 1

x = [0, 1, 0, 1], query = x times columns 1 to 2 of W^Q = [0, 1]

                        The         cat         sat
key                  [1, 0]      [0, 1]      [0, 1]
query . key               0           1           1
divided by sqrt(2)        0   sqrt(2)/2   sqrt(2)/2
                     0.0000      0.7071      0.7071
exp                  1.0000      2.0281      2.0281
divided by the sum   0.1978      0.4011      0.4011
value                [1, 0]      [0, 1]      [2, 2]

sum of exp = 1 + 2*exp(sqrt(2)/2) = 5.0562
head 1 = 0.1978 * [1, 0] + 0.4011 * [0, 1] + 0.4011 * [2, 2]
       = [1, 3*exp(sqrt(2)/2)/(1 + 2*exp(sqrt(2)/2))]
       = [1.0000, 1.2033]
"""


def test_one_head_of_one_token_as_one_writes_it():
    assert written(trace(THE_CAT_SAT), "cat", 1).startswith(CAT_IN_HEAD_1)


def test_the_whole_example_fits_the_line_and_ends_with_the_output():
    text = written(trace(THE_CAT_SAT), digits=6)
    assert max(map(len, text.splitlines())) <= 100
    assert "output = [1.821630, 1.469655, 0.178370, 0.937017]" in text
    assert "column 4 of W^O: 1.203336 - 0.266319 = 0.937017" in text
    assert "cat  0  1 |  1 -1" in text  # Q, with a bar between the heads
    assert text.isascii() and not re.search(r" +$|-0\.0+\b", text, re.MULTILINE)


@each_example
def test_what_is_written_ends_in_the_exact_output(example):
    found = trace(example)
    text = written(found)
    for token in found.tokens:
        assert f"output = [{', '.join(decimals(x) for x in token.output)}]" in text


def test_the_terminal_prints_the_same(capsys):
    assert main(["example", "--token", "cat", "--head", "2", "--digits", "6", "--causal"]) == 0
    assert capsys.readouterr().out == written(trace(CAUSAL), "cat", 2, 6) + "\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--token", "dog"], "token must be one of The, cat, sat, got 'dog'\n"),
        (["--head", "3"], "head must be a number from 1 to 2, got 3\n"),
        (["--digits", "-1"], "digits must be a whole number from 0 to 30, got -1\n"),
        (["--worksheet", "w", "--token", "cat"], "four decimals: leave out --token\n"),
        (["--worksheet", "w", "--head", "1"], "four decimals: leave out --head\n"),
        (["--worksheet", "w", "--digits", "4"], "four decimals: leave out --digits\n"),
        (["--worksheet", "no/such/folder.html"], "cannot be written: No such file or directory\n"),
    ],
)
def test_the_terminal_says_in_one_sentence_what_is_wrong(arguments, sentence, capsys):
    assert main(["example", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(sentence) and err.count("\n") == 1


@pytest.mark.parametrize("tokens", [TOKENS, TOKENS | {"x": AS_WIDE_AS_THE_BOOKS} | MEMORY])
def test_tokens_of_another_width_need_matrices_of_their_own(tmp_path, capsys, tokens):
    path = write(tmp_path, "tokens.json", tokens)
    assert main(["example", "--tokens", str(path)]) == 2
    err = capsys.readouterr().err
    assert "in the book's example must have one row per column of" in err
    assert err.endswith(", got 4: give your own matrices with --weights\n")


def test_the_help_says_how_large_and_in_which_numbers(capsys):
    with pytest.raises(SystemExit):
        main(["example", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"At most {MOST_TOKENS} tokens and {MOST_FEATURES} columns" in text
    on_a_page = f"{TOKENS_ON_A_PAGE} tokens and {COLUMNS_ON_A_PAGE} columns"
    assert f"a worksheet has room for {on_a_page}" in text
    assert "0.1 means one tenth" in text and 'such as "1/2" are not read' in text


def test_one_head_is_not_called_heads():
    assert "1 token, 1 head, d_k = 4" in written(trace(replace(ONE_TOKEN, num_heads=1)))
    assert "3 tokens, 2 heads, d_k = 2" in written(trace(THE_CAT_SAT))


ONE_TOKEN = replace(THE_CAT_SAT, tokens=("Sit",), x=[[0, 0, 1, 1]])


# Sliders


def test_the_steps_follow_a_slider():
    sliders = Sliders(THE_CAT_SAT, "cat", ("determiner", "noun", "verb", "content"))
    *features, page = sliders.widget().children
    assert [s.description for s in features] == ["determiner", "noun", "verb", "content"]
    assert html.unescape(page.value) == f"<pre>{written(trace(THE_CAT_SAT), 'cat')}</pre>"
    features[0].value = 1.5
    moved = replace(THE_CAT_SAT, x=[[1, 0, 0, 0], [1.5, 1, 0, 1], [0, 0, 1, 1]])
    assert html.unescape(page.value) == f"<pre>{written(trace(moved), 'cat')}</pre>"


def test_sliders_reach_any_feature_and_have_names_of_their_own():
    far = replace(ONE_TOKEN, x=[[Fraction(1, 3), -7.5, 0, 1]])
    *features, _ = Sliders(far, "Sit").widget().children
    assert [s.value for s in features] == pytest.approx([1 / 3, -7.5, 0, 1], abs=1e-6)
    assert [s.description for s in features] == [f"feature {i}" for i in range(1, 5)]
    assert all(s.max == -s.min >= REACH for s in features)


def test_sliders_are_stored_as_text_of_all_heads_or_one():
    data = Sliders(THE_CAT_SAT, "cat", head=2)._repr_mimebundle_()
    assert data["text/plain"] == written(trace(THE_CAT_SAT), "cat", 2)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert repr(Sliders(THE_CAT_SAT, "cat")) == written(trace(THE_CAT_SAT), "cat")


def test_without_ipywidgets_the_steps_are_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    sliders = Sliders(THE_CAT_SAT, "cat")
    assert sliders._repr_mimebundle_() == {"text/plain": written(trace(THE_CAT_SAT), "cat")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("dog",), "token must be one of The, cat, sat, got 'dog'"),
        (("cat", None, 3), "head must be a number from 1 to 2, got 3"),
        (("cat", ["noun"]), "names must be one per feature, 4, got 1"),
    ],
)
def test_sliders_of_what_is_not_there_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sliders(THE_CAT_SAT, *arguments)


# The worksheet


class Page(HTMLParser):
    """The cells of a page to fill in, table by table, and all tags."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.tags, self.tables, self.inside, self.open = [], [], False, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open = self.inside and tag == "td"
        if tag == "table":
            self.inside = dict(attributes).get("class") == "fill"
            self.tables += [[]] * self.inside
        elif tag == "tr" and self.inside:
            self.tables[-1] = [*self.tables[-1], []]
        elif tag == "td" and self.inside:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        self.open = False

    def handle_data(self, data):
        if self.open:
            self.tables[-1][-1][-1] += data


def pages(example):
    """The blank page and the page of answers."""
    return [Page(part) for part in worksheet(example).split('<section class="page">')[1:]]


def numbers(page):
    """What stands in the cells, row by row."""
    return [
        [float(text.replace("−", "-").replace("∞", "inf")) for text in row]
        for table in page.tables
        for row in table
        if row
    ]


@each_example
def test_a_worksheet_is_two_pages_of_the_same_tables(example):
    blank, answers = pages(example)
    assert [tag for tag in blank.tags if tag[0] in ("td", "table")] == [
        tag for tag in answers.tags if tag[0] in ("td", "table")
    ]
    assert all(text == "" for table in blank.tables for row in table for text in row)
    assert all(text != "" for table in answers.tables for row in table for text in row)
    text = worksheet(example)
    assert text.count("break-after: page") == 1 and "@page { size: A4" in text


@each_example
def test_the_answers_are_the_trace(example):
    found = trace(example)
    heads = range(example.num_heads)
    first = found.tokens[0].heads
    want = [sum((h.query for h in token.heads), ()) for token in found.tokens]
    for kind in ("keys", "values"):
        want += [sum(rows, ()) for rows in zip(*(getattr(h, kind) for h in first), strict=True)]
    answers = pages(example)[1]
    cut = len(answers.tables) == 3 + 2 * example.num_heads + 2
    for h in heads:
        parts = [token.heads[h] for token in found.tokens]
        scores = [(*p.scores, *p.scaled) for p in parts]
        rest = [(*p.exponentials, p.sum, *p.weights, *p.output) for p in parts]
        want += scores + rest if cut else [a + b for a, b in zip(scores, rest, strict=True)]
    want += [token.concat for token in found.tokens] + [token.output for token in found.tokens]
    assert list(map(len, numbers(answers))) == list(map(len, want))
    for got, exact in zip(chain(*numbers(answers)), floats([*chain(*want)]), strict=True):
        few_figures = 5e-3 if abs(exact) >= 1e6 else 5e-6
        assert got == pytest.approx(exact, abs=0.5001e-4, rel=few_figures)


def grey(page):
    """Which cells are grey, row by row of the first head's table."""
    table = page.text.split("<table")[-4]
    rows = [row for row in table.split("<tr>") if "<td" in row]
    return [["closed" in cell for cell in row.split("<td")[1:]] for row in rows]


def test_what_a_mask_forbids_is_grey_in_four_blocks():
    forbidden = [[not CAUSAL.allows(i, j) for j in range(3)] for i in range(3)]
    opened = [False]
    want = [row * 3 + opened + row + opened * 2 for row in forbidden]
    for page in pages(CAUSAL):
        assert grey(page) == want
    assert not any(map(any, grey(pages(THE_CAT_SAT)[0])))
    assert numbers(pages(CAUSAL)[1])[9][6:13] == [1, 0, 0, 1, 1, 0, 0]  # exp, sum, weights of The


def test_a_causal_worksheet_says_what_that_means():
    sentence = "causal: a token sees itself and those before it"
    assert worksheet(CAUSAL).count(sentence) == 2
    assert sentence not in worksheet(THE_CAT_SAT)


def test_a_wide_head_is_cut_in_two_tables():
    wide = drawn(1, d_k=2, d_v=5, n=4)
    one, two = pages(drawn(1, d_k=2, d_v=1, n=4))[0], pages(wide)[0]
    assert len(two.tables) == len(one.tables) + 1


def test_a_worksheet_needs_nothing_else():
    text = worksheet(replace(THE_CAT_SAT, tokens=("<b>", "R&D", '"')))
    names = {name for name, _ in Page(text).tags}
    assert not names & {"script", "link", "img", "iframe", "b"}
    assert "http" not in text and "url(" not in text and "@import" not in text
    assert "&lt;b&gt; R&amp;D &quot;" in text


def test_colours_print_in_grey():
    for colour in re.findall(r"#([0-9a-f]{3})\b", worksheet(THE_CAT_SAT)):
        assert len(set(colour)) == 1


def test_a_worksheet_has_room_for_a_page_only():
    with pytest.raises(ValueError, match="room for 4 tokens, got 5"):
        worksheet(drawn(1, n=5, d_k=2))
    with pytest.raises(ValueError, match="room for 6 rows and columns in w_q, got 8"):
        worksheet(drawn(2, d_k=4))


def test_the_terminal_writes_a_worksheet(tmp_path, capsys):
    path = tmp_path / "sheet.html"
    assert main(["example", "--causal", "--worksheet", str(path)]) == 0
    assert path.read_text("utf-8") == worksheet(CAUSAL)
    assert str(path) in capsys.readouterr().out
