"""Read a GGUF file (version 3) with NumPy alone: what it says of itself, and its tensors.

Such a file holds counts, named facts (the metadata), a table of where each tensor lies, and the
tensors. It is numbers and text, so reading one never runs anything that stands in it. Quantised
tensors are cut along their last axis into blocks of 32 weights that share a scale d and, in Q4_1, a
minimum m: a weight is d q + m with a whole number q of 4 bits, and in Q8_0 it is d q with 8 bits.
"""

import math
import mmap
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
ALIGNMENT = 32  # tensors start at multiples of this many bytes


class Layout(NamedTuple):
    """How a tensor's weights are stored: some of them a block, and the way to work them out."""

    name: str
    weights: int
    block: np.dtype
    decode: Callable


class Place(NamedTuple):
    """A tensor's shape, how it is stored, and the byte of the file at which it starts."""

    shape: tuple
    layout: Layout
    start: int

    @property
    def blocks(self):
        """How many blocks it takes."""
        return math.prod(self.shape) // self.layout.weights


class Gguf:
    """An open GGUF file: its ``metadata``, a ``table`` of Place by name, and ``tensor(name)``.

    Raises ValueError for what is not GGUF version 3, is cut short, or stores tensors in another way
    than F32, Q8_0 and Q4_1.
    """

    def __init__(self, path):
        try:
            with open(path, "rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.metadata, self.table = _head(_Reader(self._bytes))
        except (struct.error, ValueError) as error:
            raise ValueError(f"{path} must be a GGUF file, version 3: {error}") from None

    def tensor(self, name):
        """The tensor of that name as a new float32 array."""
        place = self.table[name]
        blocks = np.frombuffer(self._bytes, place.layout.block, place.blocks, place.start)
        return place.layout.decode(blocks).reshape(place.shape)


def _f32(blocks):
    return blocks.astype(np.float32)


def _q8_0(blocks):
    return blocks["q"] * blocks["d"].astype(np.float32)[:, None]  # (blocks, 32)


def _q4_1(blocks):
    d, m = (blocks[name].astype(np.float32)[:, None, None] for name in "dm")
    # A byte holds two weights, 16 places apart: first those in the low halves, then the high ones.
    q = np.stack([blocks["q"] & 15, blocks["q"] >> 4], axis=1)  # (blocks, 2, 16)
    weights = q * d
    weights += m
    return weights


LAYOUTS = {
    0: Layout("F32", 1, np.dtype("<f4"), _f32),
    3: Layout("Q4_1", 32, np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]), _q4_1),
    8: Layout("Q8_0", 32, np.dtype([("d", "<f2"), ("q", "i1", 32)]), _q8_0),
}


class _Reader:
    """Takes numbers, strings and values off the front of the bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def numbers(self, code, count):
        layout = f"<{count}{code}"
        found = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return found

    def number(self, code):
        return self.numbers(code, 1)[0]

    def string(self):
        length = self.number("Q")
        if length > len(self.data) - self.at:
            raise ValueError(f"a string of {length} bytes does not fit into it")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self):
        kind = self.number("I")
        if kind == ARRAY:
            kind, count = self.number("I"), self.number("Q")
            if kind == STRING:
                return [self.string() for _ in range(count)]
            return list(self.numbers(_code(kind), count))
        return self.string() if kind == STRING else self.number(_code(kind))


def _code(kind):
    if kind not in CODES:
        raise ValueError(f"its metadata holds a value of kind {kind}, which is not read here")
    return CODES[kind]


def _head(reader):
    """The metadata and the table of tensors, all checked to lie within the file."""
    magic, version = reader.numbers("s", 4)[0], reader.number("I")
    if (magic, version) != (b"GGUF", 3):
        raise ValueError(f"it starts with {magic!r}, version {version}")
    tensors, facts = reader.numbers("Q", 2)
    metadata = {reader.string(): reader.value() for _ in range(facts)}
    rows = [_row(reader) for _ in range(tensors)]
    if metadata.get("general.alignment", ALIGNMENT) != ALIGNMENT:
        raise ValueError(f"its tensors are aligned to other than {ALIGNMENT} bytes")
    begin = -(-reader.at // ALIGNMENT) * ALIGNMENT
    return metadata, {row[0]: _place(begin, len(reader.data), *row) for row in rows}


def _row(reader):
    """One line of the table: name, shape (stored fastest axis first), layout, offset."""
    name, axes = reader.string(), reader.number("I")
    shape = reader.numbers("Q", axes)[::-1]
    return name, shape, reader.number("I"), reader.number("Q")


def _place(begin, end, name, shape, layout, offset):
    if layout not in LAYOUTS:
        known = ", ".join(known.name for known in LAYOUTS.values())
        raise ValueError(f"{name} is stored in layout {layout}, and only {known} are read here")
    place = Place(shape, LAYOUTS[layout], begin + offset)
    if math.prod(shape[-1:]) % place.layout.weights:
        raise ValueError(f"{name} {shape} is not made of whole blocks of {place.layout.name}")
    if place.start + place.blocks * place.layout.block.itemsize > end:
        raise ValueError(f"{name} ends beyond the end of the file")
    return place
