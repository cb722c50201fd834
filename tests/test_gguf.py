"""The GGUF reader: on files written here, against a slow decoder, and on the real file."""

import hashlib
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_lib.models import smollm2
from mha_lib.models.gguf import Gguf

F32, Q4_1, Q8_0 = 0, 3, 8

# Made with another reader, which shares no code with ours, from the same file.
SHA256 = {
    "token_embd.weight": "3fd491c8066dd9dc1a2bf6796701526c82817d95c0ecabacdef3013c2b8bbbaa",
    "blk.0.attn_q.weight": "aa74111ad24c3624a20374d2026fd1f50bfe2520252e3c9aef4a666a28593cc8",
    "blk.17.ffn_down.weight": "50de9ec0dc8d5e57c885c69de05a1eb4ba2bd832883642b29a6919fb39b4774c",
    "output_norm.weight": "3b87f8e27335e67fc08f159cabfd2d18f205d6c5b225a6f978153552bf01d559",
}
ALL_SHA256 = "035b238cdb1c3a64e21315cad8d5d362e75ed6f6e847ca3508b006dff3ca3fd6"

needs_model = pytest.mark.skipif(not smollm2.available(), reason=smollm2.MISSING)


# --- a writer, and a decoder of one block


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def fact(name, kind, payload):
    return string(name) + struct.pack("<I", kind) + payload


def row(name, shape, layout, offset):
    head = string(name) + struct.pack("<I", len(shape))
    sizes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    return head + sizes + struct.pack("<IQ", layout, offset)


def gguf(facts=(), rows=(), data=b"", start=b"GGUF\3\0\0\0"):
    head = start + struct.pack("<QQ", len(rows), len(facts)) + b"".join([*facts, *rows])
    return head + bytes(-len(head) % 32) + data


def decoded(layout, block):
    """One block in plain Python, rounded to float32 at the end: all sums on the way are exact."""
    if layout == Q8_0:
        d, *q = struct.unpack("<e32b", block)
        return [as_float32(d * number) for number in q]
    d, m, *q = struct.unpack("<ee16B", block)
    numbers = [byte % 16 for byte in q] + [byte // 16 for byte in q]
    return [as_float32(d * number + m) for number in numbers]


def as_float32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


BYTES_A_BLOCK = {Q8_0: 34, Q4_1: 20}


def blocks(layout, count):
    """Blocks of random whole numbers with ordinary random scales."""
    scales = 1 if layout == Q8_0 else 2
    for _ in range(count):
        floats = np.random.randn(scales).astype("<f2").tobytes()
        yield floats + np.random.bytes(BYTES_A_BLOCK[layout] - 2 * scales)


def opened(tmp_path, content):
    file = tmp_path / "small.gguf"
    file.write_bytes(content)
    return Gguf(file)


# --- files written here


def test_metadata_of_every_kind(tmp_path):
    numbers = {0: ("B", 7), 1: ("b", -7), 2: ("H", 700), 3: ("h", -700), 4: ("I", 70_000)}
    numbers |= {5: ("i", -70_000), 6: ("f", 0.5), 7: ("?", True), 10: ("Q", 2**40)}
    numbers |= {11: ("q", -(2**40)), 12: ("d", 0.1)}
    facts = [fact(f"n{kind}", kind, struct.pack("<" + c, v)) for kind, (c, v) in numbers.items()]
    facts += [fact("word", 8, string("größer"))]
    facts += [fact("words", 9, struct.pack("<IQ", 8, 2) + string("Ġa") + string(""))]
    facts += [fact("list", 9, struct.pack("<IQ3i", 5, 3, 1, -2, 3))]
    expected = {f"n{kind}": value for kind, (_, value) in numbers.items()}
    expected |= {"word": "größer", "words": ["Ġa", ""], "list": [1, -2, 3]}
    assert opened(tmp_path, gguf(facts)).metadata == expected


@pytest.mark.parametrize("layout", [Q4_1, Q8_0])
def test_blocks_are_decoded_to_the_bit(tmp_path, layout):
    shape = (3, 2, 64)  # 12 blocks
    raw = list(blocks(layout, 12))
    file = opened(tmp_path, gguf(rows=[row("w", shape, layout, 0)], data=b"".join(raw)))
    expected = np.array([decoded(layout, block) for block in raw], np.float32).reshape(shape)
    got = file.tensor("w")
    assert got.dtype == np.float32 and np.array_equal(got, expected)


def test_tensors_are_found_by_their_offsets_and_are_the_callers_own(tmp_path):
    one, two = np.arange(6, dtype="<f4").reshape(2, 3), np.arange(4, dtype="<f4") - 9
    rows = [row("one", (2, 3), F32, 32), row("two", (4,), F32, 0)]
    file = opened(tmp_path, gguf(rows=rows, data=two.tobytes().ljust(32, b"\0") + one.tobytes()))
    assert list(file.table) == ["one", "two"]
    assert np.array_equal(file.tensor("one"), one) and np.array_equal(file.tensor("two"), two)
    file.tensor("two")[:] = 0
    assert np.array_equal(file.tensor("two"), two)


GOOD = gguf(
    facts=[fact("word", 8, string("abc")), fact("list", 9, struct.pack("<IQ2i", 5, 2, 1, 2))],
    rows=[row("w", (1, 32), Q8_0, 0), row("v", (2,), F32, 64)],
    data=bytes(72),
)


@given(st.integers(0, len(GOOD) - 1))
def test_a_file_cut_short_is_refused(tmp_path_factory, length):
    with pytest.raises(ValueError, match="must be a GGUF file, version 3"):
        opened(tmp_path_factory.mktemp("cut"), GOOD[:length])


@given(st.integers(0, len(GOOD) - 73), st.integers(0, 255))
def test_a_damaged_head_is_read_or_refused_and_nothing_else(tmp_path_factory, place, byte):
    damaged = GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    try:
        file = opened(tmp_path_factory.mktemp("bad"), damaged)
    except ValueError as error:
        assert "must be a GGUF file" in str(error)
    else:
        assert all(file.tensor(name).dtype == np.float32 for name in file.table)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (gguf(start=b"GGML\3\0\0\0"), "starts with b'GGML', version 3"),
        (gguf(start=b"GGUF\2\0\0\0"), "starts with b'GGUF', version 2"),
        (gguf([fact("x", 99, b"")]), "kind 99"),
        (gguf([fact("general.alignment", 4, struct.pack("<I", 64))]), "other than 32 bytes"),
        (gguf(rows=[row("w", (1, 32), 2, 0)]), "layout 2, and only F32, Q4_1, Q8_0 are read"),
        (gguf(rows=[row("w", (32, 31), Q8_0, 0)], data=bytes(4096)), "whole blocks of Q8_0"),
        (gguf(rows=[row("w", (2**40, 2**40), F32, 0)]), "w ends beyond the end"),
        (gguf([fact("x", 8, struct.pack("<Q", 2**63))]), "string of 9223372036854775808 bytes"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, content, reason):
    with pytest.raises(
        ValueError, match=r"small\.gguf must be a GGUF file, version 3: .*" + reason
    ):
        opened(tmp_path, content)


# --- the real file


@pytest.fixture(scope="module")
def real():
    return Gguf(smollm2.path())


@needs_model
def test_the_real_file_has_the_layers_it_speaks_of(real):
    assert real.metadata["llama.block_count"] == 30
    assert len(real.table) == 2 + 9 * 30
    layouts = [place.layout.name for place in real.table.values()]
    assert [layouts.count(name) for name in ("Q4_1", "Q8_0", "F32")] == [210, 1, 61]
    assert sum(math.prod(place.shape) for place in real.table.values()) == 134_515_008


@needs_model
@pytest.mark.parametrize("name", ["token_embd.weight", "blk.29.ffn_up.weight"])
def test_blocks_of_the_real_file_against_the_slow_decoder(real, name):
    layout = {"Q4_1": Q4_1, "Q8_0": Q8_0}[real.table[name].layout.name]
    size, flat = BYTES_A_BLOCK[layout], real.tensor(name).reshape(-1, 32)
    content = smollm2.path().read_bytes()
    for block in np.random.choice(len(flat), 50, replace=False):
        start = real.table[name].start + int(block) * size
        assert flat[block].tolist() == decoded(layout, content[start : start + size])


@needs_model
def test_tensors_have_the_checksums_of_another_reader(real):
    total, found = hashlib.sha256(), {}
    for name in sorted(real.table):
        tensor = real.tensor(name)
        total.update(tensor)
        if name in SHA256:
            found[name] = hashlib.sha256(tensor).hexdigest()
    assert found == SHA256
    assert total.hexdigest() == ALL_SHA256
