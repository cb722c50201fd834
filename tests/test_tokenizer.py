"""The tokenizer: against merging in the order learnt, and against numbers from another one."""

import random
import unicodedata

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_lib.models import smollm2
from mha_lib.models.gguf import Gguf
from mha_lib.models.tokenizer import CONTROL, SIGNS, Tokenizer, chat, words

needs_model = pytest.mark.skipif(not smollm2.available(), reason=smollm2.MISSING)

# Made with the package tokenizers 0.23.3: each digit apart, then byte-level pairs.
PUBLISHED = [
    ("The capital of France is Paris.", [504, 3575, 282, 4649, 314, 7042, 30]),
    (
        "def f(x):\n    return x[  10] ** 2\n",
        [1604, 275, 24, 104, 727, 472, 1003, 1792, 75, 256, 33, 32, 77, 1903, 216, 34, 198],
    ),
    (
        "naïve café, 東京, 🙂 ½",
        [3546, 46494, 37366, 28, 17097, 247, 126, 16736, 122, 28, 47526, 216, 16738],
    ),
    ("It's we'll DON'T  don't_", [1589, 506, 392, 3060, 422, 2154, 23, 68, 216, 1326, 982, 79]),
    ("<|im_start|>user\nHi<|im_end|>\n", [1, 4093, 198, 26843, 2, 198]),
    ("  \n\t two  spaces   ", [256, 3354, 827, 216, 5600, 333]),
    ("\x1c b\x1c  c", [213, 278, 213, 216, 265]),  # a space to Python, not to Unicode
]


def small_metadata(merges=60, seed=0):
    """Every byte, one mark, and random merges that never make the same token twice."""
    rng, tokens, pairs = random.Random(seed), [*SIGNS], []
    pool = ["a", "b", "c", "Ġ"]
    while len(pairs) < merges:
        pair = rng.choice(pool), rng.choice(pool)
        if "".join(pair) not in tokens:
            pairs.append(" ".join(pair))
            pool.append("".join(pair))
            tokens.append("".join(pair))
    kinds = [1] * len(tokens) + [CONTROL]
    facts = {"tokens": [*tokens, "<end>"], "token_type": kinds, "merges": pairs}
    return {f"tokenizer.ggml.{name}": fact for name, fact in facts.items()}


SMALL = Tokenizer(small_metadata())


def merged_in_order(word, merges):
    """Go through all merges as they were learnt, each from left to right through the word."""
    pieces = [SIGNS[byte] for byte in word.encode()]
    for merge in merges:
        left, right = merge.split(" ")
        i = 0
        while i < len(pieces) - 1:
            if pieces[i] == left and pieces[i + 1] == right:
                pieces[i : i + 2] = [left + right]
            i += 1
    return pieces


@given(st.text("abc ", max_size=30), st.integers(0, 5))
def test_merging_the_first_learnt_pair_is_merging_in_the_order_learnt(text, seed):
    facts = small_metadata(seed=seed)
    tokens, merges = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.merges"]
    expected = [piece for word in words(text) for piece in merged_in_order(word, merges)]
    assert [tokens[number] for number in Tokenizer(facts).encode(text)] == expected


@given(st.text())
def test_text_comes_back_from_its_tokens(text):
    assert SMALL.decode(SMALL.encode(text)) == text


@given(st.text() | st.text(" \t\n'_a1½²\x1c.é"))
def test_words_are_the_text_and_digits_stand_alone(text):
    found = words(text)
    assert "".join(found) == text
    digits = [word for word in found if any(unicodedata.category(char)[0] == "N" for char in word)]
    assert all(len(word) == 1 for word in digits)


def test_half_a_character_is_shown_as_one_that_is_missing():
    assert SMALL.decode(SMALL.encode("aé")[:-1]) == "a\ufffd"


def test_a_mark_is_one_token_and_cuts_the_text():
    end = SMALL.number["<end>"]
    assert SMALL.encode("ab<end>") == [*SMALL.encode("ab"), end]
    assert SMALL.encode("<end><end>") == [end, end]
    assert end not in SMALL.encode("<end")
    assert SMALL.decode([end]) == "<end>"


def test_a_byte_without_a_token_is_refused():
    facts = {"tokens": ["a", "<end>"], "token_type": [1, CONTROL], "merges": []}
    tokenizer = Tokenizer({f"tokenizer.ggml.{name}": fact for name, fact in facts.items()})
    with pytest.raises(ValueError, match="bytes that have a token, got 'ab'"):
        tokenizer.encode("ab")


# --- the real vocabulary


@pytest.fixture(scope="module")
def metadata():
    return Gguf(smollm2.path()).metadata


@pytest.fixture(scope="module")
def tokenizer(metadata):
    return Tokenizer(metadata)


@needs_model
@pytest.mark.parametrize(("text", "numbers"), PUBLISHED)
def test_the_numbers_of_another_tokenizer(tokenizer, text, numbers):
    assert tokenizer.encode(text) == numbers
    assert tokenizer.decode(numbers) == text


@needs_model
def test_the_real_merges_in_the_order_learnt(tokenizer, metadata):
    tokens, merges = (metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
    for word in (" unbelievably", " antidisestablishmentarianism", "Größenordnung", "======="):
        expected = merged_in_order(word, merges)
        assert [tokens[number] for number in tokenizer.encode(word)] == expected


@needs_model
def test_the_chat_is_what_the_models_own_template_writes(metadata):
    template = jinja2.Environment().from_string(metadata["tokenizer.chat_template"])
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    assert chat("Why is the sky blue?") == template.render(
        messages=messages, add_generation_prompt=True
    )


@needs_model
def test_a_control_character_that_the_model_never_saw_is_refused(tokenizer):
    with pytest.raises(ValueError, match="bytes that have a token"):
        tokenizer.encode("a\x04")
