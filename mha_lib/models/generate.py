"""A real model's words in a terminal, as they come: python -m mha_lib generate."""

import codecs
import time

from mha_lib import validate
from mha_lib.models import smollm2
from mha_lib.models.tokenizer import chat
from mha_lib.pytorch.threads import one_thread


def generate(text, tokens=40, cached=True):
    """Print what SmolLM2 says to a text, at most so many tokens, and then its speed.

    Raises ModuleNotFoundError where the model is not installed.
    """
    validate.positive_integer("tokens", tokens)
    model = smollm2.load()
    numbers = model.tokenizer.encode(chat(text))
    caches = model.caches() if cached else None
    times = [time.perf_counter()]
    with one_thread():
        for piece in pieces(model, model.greedy(numbers, tokens, caches)):
            print(piece, end="", flush=True)
            times.append(time.perf_counter())
    print(f"\n\n{_speed(times)}, {'with' if cached else 'without'} a cache")


def pieces(model, numbers):
    """The text of each token; a character that takes several tokens comes with the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for number in numbers:
        yield decoder.decode(model.tokenizer.pieces[number])


def _speed(times):
    """What moments of time say about a start and the tokens after it.

    >>> _speed([0.0, 2.0, 2.25, 2.5])
    '3 tokens, the first after 2.0 s, then 4.0 a second'
    """
    start, *came = times
    if not came:
        return "no tokens"
    first = f"{len(came)} token{'s' * (len(came) > 1)}, the first after {came[0] - start:.1f} s"
    if len(came) == 1:
        return first
    return f"{first}, then {(len(came) - 1) / (came[-1] - came[0]):.1f} a second"
