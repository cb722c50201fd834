"""Text to token numbers and back: byte-level byte-pair encoding, as SmolLM2 and GPT-2 do it.

Text is cut into words, each word is written as bytes, and neighbouring pieces are merged again and
again, the pair that was learnt first before all others. There are no unknown words, since bytes are
tokens. Sources: Sennrich et al. 2016 (merging pairs); Radford et al. 2019 (GPT-2: pairs of bytes).
"""

import math
import re
from functools import cache
from itertools import pairwise

# A word takes the space before it along. Digits stand alone.
WORD = re.compile(r"\d|'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONTROL = 3  # the kind of those tokens that are marks and not text


def chat(question):
    """The text that asks SmolLM2 a question: whose turn it is stands between marks.

    >>> print(chat("Why?"))
    <|im_start|>system
    You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
    <|im_start|>user
    Why?<|im_end|>
    <|im_start|>assistant
    <BLANKLINE>
    """
    turns = ("system", SYSTEM), ("user", question)
    said = "".join(f"<|im_start|>{who}\n{text}<|im_end|>\n" for who, text in turns)
    return said + "<|im_start|>assistant\n"


class Tokenizer:
    """Encodes text by the tokens, their kinds and the merges that a GGUF file's metadata holds.

    >>> facts = {"tokens": ["a", "b", "Ġ", "ab", "<end>"], "merges": ["a b"]}
    >>> facts["token_type"] = [1, 1, 1, 1, CONTROL]
    >>> tokenizer = Tokenizer({f"tokenizer.ggml.{name}": fact for name, fact in facts.items()})
    >>> tokenizer.encode("abba ab<end>")
    [3, 1, 0, 2, 3, 4]
    >>> tokenizer.decode([3, 2, 1])
    'ab b'
    """

    def __init__(self, metadata):
        tokens, kinds, merges = (
            metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "merges")
        )
        marks = {token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL}
        self.number = {token: number for number, token in enumerate(tokens)}
        self.rank = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self.marks = re.compile("(" + "|".join(map(re.escape, sorted(marks))) + ")")
        self.pieces = [t.encode() if t in marks else bytes(map(BYTES.get, t)) for t in tokens]
        self._word = cache(self._encode_word)

    def encode(self, text):
        """The numbers of a text's tokens; a mark such as <|im_end|> in the text is one token.

        So text from a stranger can pretend to be another's turn. Raises ValueError for the few
        control characters that the model has no token for.
        """
        numbers = []
        for i, part in enumerate(self.marks.split(text)):
            if i % 2:
                numbers.append(self.number[part])
            else:
                numbers += [number for word in words(part) for number in self._word(word)]
        return numbers

    def decode(self, numbers):
        """The text of token numbers; bytes that are no whole character give the sign U+FFFD."""
        return b"".join(self.pieces[number] for number in numbers).decode("utf-8", "replace")

    def _encode_word(self, word):
        pieces = [SIGNS[byte] for byte in word.encode()]
        while len(pieces) > 1:
            ranks = [self.rank.get(pair, math.inf) for pair in pairwise(pieces)]
            i = ranks.index(min(ranks))  # the pair learnt first; of its occurrences the first
            if ranks[i] == math.inf:
                break
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        for piece in pieces:
            if piece not in self.number:
                raise ValueError(f"text must be made of bytes that have a token, got {word!r}")
        return [self.number[piece] for piece in pieces]


def words(text):
    """Cut a text into the words that are encoded one by one; joined they are the text.

    >>> words("It's 10 apples,  OK?")
    ['It', "'s", ' ', '1', '0', ' apples', ',', ' ', ' OK', '?']
    """
    shape = "".join(map(_stand_in, text))
    parts = [part.span() for part in re.finditer(r"\d|\D+", shape)]
    return [text[slice(*word.span())] for part in parts for word in WORD.finditer(shape, *part)]


def _stand_in(char):
    """What a character counts as: 0 for ½ and every digit; Python's and Unicode's spaces differ."""
    if char in "\x1c\x1d\x1e\x1f":
        return "."
    return "0" if char.isnumeric() and not char.isalpha() else char


def _signs():
    """A visible character for each byte: itself where it has one, else one from U+0100 on.

    So a space is written Ġ and a line break Ċ, and tokens can be kept as text.
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("ÿ") + 1)} - {0xAD}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


SIGNS = _signs()
BYTES = {sign: byte for byte, sign in enumerate(SIGNS)}
