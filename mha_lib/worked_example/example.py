"""A layer small enough for paper, with exact numbers: the book's example or a reader's own."""

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

import numpy as np

from mha_lib.scratch import Projections
from mha_lib.worked_example import checks

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Example:
    """Tokens as rows of x, the layer's matrices and its number of heads, all exact.

    Matrices may come as nested lists of whole numbers, fractions or decimals (0.1 is a tenth) and
    are kept as tuples of Fraction. Keys and values come from ``memory`` in cross-attention, else
    from x. Raises ValueError for sizes that do not fit, and for what is too large for paper: more
    than 8 tokens or 12 columns.

    >>> THE_CAT_SAT.tokens, THE_CAT_SAT.d_k
    (('The', 'cat', 'sat'), 2)
    """

    tokens: tuple[str, ...]
    x: Matrix
    w_q: Matrix
    w_k: Matrix
    w_v: Matrix
    w_o: Matrix
    num_heads: int
    memory_tokens: tuple[str, ...] | None = None
    memory: Matrix | None = None
    causal: bool = False

    def __post_init__(self):
        for key, value in checks.checked(vars(self)).items():
            object.__setattr__(self, key, value)

    @property
    def d_k(self):
        """Columns of a head's queries and keys."""
        return len(self.w_q[0]) // self.num_heads

    @property
    def d_v(self):
        """Columns of a head's values."""
        return len(self.w_v[0]) // self.num_heads

    @property
    def key_tokens(self):
        """The names of the tokens that can be attended to."""
        return self.tokens if self.memory is None else self.memory_tokens

    @property
    def key_rows(self):
        """The rows that keys and values are made from: memory, or x."""
        return self.x if self.memory is None else self.memory

    def allows(self, query, key):
        """True if the token number ``query`` may attend to the token number ``key``, from 0."""
        return not self.causal or key <= query + len(self.key_tokens) - len(self.tokens)

    def arrays(self):
        """Query, key and value as float64, for mha_lib.scratch.

        >>> from mha_lib.scratch import multi_head_attention
        >>> inputs, layer = THE_CAT_SAT.arrays(), THE_CAT_SAT.projections()
        >>> output, weights = multi_head_attention(*inputs, layer, THE_CAT_SAT.num_heads)
        >>> output[1].round(3)
        array([1.822, 1.47 , 0.178, 0.937])
        """
        memory = np.array(self.key_rows, float)
        return np.array(self.x, float), memory, memory

    def projections(self):
        """The four matrices as float64, for mha_lib.scratch."""
        return Projections(*(np.array(getattr(self, key), float) for key in checks.MATRICES))

    def position(self, token):
        """The number of the token called ``token``, from 0; ValueError if there is none."""
        if token not in self.tokens:
            raise ValueError(f"token must be one of {', '.join(self.tokens)}, got {token!r}")
        return self.tokens.index(token)

    def head_index(self, head):
        """``head``, counted from 1, as an index; ValueError if there is no such head."""
        if isinstance(head, bool) or head not in range(1, self.num_heads + 1):
            raise ValueError(f"head must be a number from 1 to {self.num_heads}, got {head!r}")
        return head - 1


# The features of a token are determiner, noun, verb, content word; a bar stands between the heads.
THE_CAT_SAT = Example(
    tokens=("The", "cat", "sat"),
    x=[[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]],
    w_q=[[0, 0, 1, 0], [0, 1, 0, -1], [1, 0, 1, 0], [0, 0, 1, 0]],
    w_k=[[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1], [0, 1, 0, 0]],
    w_v=[[1, 0, 0, 1], [0, 0, 1, 0], [2, 1, 1, 1], [0, 1, 0, 0]],
    w_o=[[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, -1, 0], [0, 1, 0, -1]],
    num_heads=2,
)

TOKENS_FILE = ("tokens", "x"), ("memory_tokens", "memory")  # needed, optional
WEIGHTS_FILE = ("num_heads", *checks.MATRICES), ()


def load(tokens_path=None, weights_path=None, causal=False):
    """An Example from a reader's JSON files; the book's numbers stand in for a file left out.

    The tokens file holds {"tokens": [names], "x": [rows]} and, for cross-attention,
    "memory_tokens" and "memory" as well; the weights file holds "num_heads", "w_q", "w_k", "w_v"
    and "w_o". Decimals are read exactly. Raises ValueError, naming file and key.

    >>> load() == THE_CAT_SAT
    True
    """
    fields = vars(THE_CAT_SAT) | {"causal": causal}
    files = dict.fromkeys(fields, "the book's example")
    for path, keys in ((tokens_path, TOKENS_FILE), (weights_path, WEIGHTS_FILE)):
        if path is not None:
            found = _read(Path(path), *keys)
            fields |= found
            files |= dict.fromkeys(found, path)
    return Example(**checks.checked(fields, lambda key: f"{key} in {files[key]}"))


def _read(path, needed, optional):
    """The object in a JSON file, with None for every optional key that it lacks."""
    found = _json(path)
    if not isinstance(found, dict):
        wanted = ", ".join(f'"{key}": ...' for key in needed)
        kind = {list: "a list", str: "a text"}.get(type(found), "a single value")
        raise ValueError(f"{path} must hold one object {{{wanted}}}, got {kind}")
    for key in needed:
        if key not in found:
            raise ValueError(f"{path} must have the keys {', '.join(needed)}, got no {key}")
    for key in found:
        if key not in needed + optional:
            known = ", ".join(needed + optional)
            raise ValueError(f"{path} must have no keys but {known}, got {key[:30]!r}")
    return dict.fromkeys(optional) | found


def _json(path):
    """What a JSON file holds, numbers as Decimal."""
    try:
        return json.loads(
            path.read_text("utf-8-sig"),  # Windows editors put a mark in front
            parse_float=Decimal,
            parse_int=Decimal,  # int would refuse 5000 digits in words of its own
            parse_constant=Decimal,
            object_pairs_hook=lambda pairs: _without_repeats(path, pairs),
        )
    except OSError as error:
        raise ValueError(f"{path} must be a file to read, got: {error.strerror}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{path} must be JSON, got a fault in {where}: {error.msg}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be a text file in UTF-8, got other bytes") from None
    except (RecursionError, InvalidOperation):
        raise ValueError(f"{path} must be plain lists of numbers, got something huge") from None


def _without_repeats(path, pairs):
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"{path} must have each key once, got {key[:30]!r} twice")
    return dict(pairs)
