"""The NumPy cache: token by token or in chunks, the rows of all tokens at once."""

import itertools

import numpy as np
import pytest
import torch

from mha_lib import cost
from mha_lib.pytorch import MultiHeadAttention, from_projections
from mha_lib.pytorch.conversion import array
from mha_lib.scratch import Projections, cache, multi_head_attention
from mha_lib.scratch.cache import KeyValueCache, multi_head_attention_cached

from . import oracle
from .cases import D_K, D_MODEL, D_V, NUM_HEADS, generator, projections
from .oracle import assert_close

N = 5
CHUNKINGS = [
    [end - start for start, end in itertools.pairwise((0, *cuts, N))]
    for k in range(N)
    for cuts in itertools.combinations(range(1, N), k)
]


def tokens(n=N, dtype=np.float64):
    return generator(6).normal(size=(n, D_MODEL)).astype(dtype)


def matrices(dtype=np.float64):
    p = projections((D_MODEL,) * 3)
    return Projections(**{name: a.astype(dtype) for name, a in p.arrays().items()})


def grouped(num_heads=4, num_kv_heads=2):
    """A layer of PyTorch with shared heads, and its matrices as they are."""
    layer = MultiHeadAttention(
        D_MODEL, num_heads, num_kv_heads=num_kv_heads, d_k=D_K, d_v=D_V, dtype=torch.float64
    )
    with torch.no_grad():
        layer.w_qkv.bias.normal_()
    weights = [array(w.T) for w in (*layer.w_qkv.weight.split(layer.widths), layer.w_o.weight)]
    biases = [array(b) for b in (*layer.w_qkv.bias.split(layer.widths), layer.w_o.bias)]
    return layer, Projections(*weights, *biases)


def room(capacity=N, num_kv_heads=NUM_HEADS, dtype=np.float64):
    return KeyValueCache(capacity, num_kv_heads, D_K, D_V, dtype)


def in_chunks(x, p, num_heads, made, sizes=(1,) * N):
    """Outputs and weights of each chunk."""
    ends = list(itertools.accumulate(sizes))
    return [
        multi_head_attention_cached(x[a:b], p, num_heads, made)
        for a, b in itertools.pairwise((0, *ends))
    ]


def assert_rows(chunks, output, weights, tolerance=1e-12):
    """Chunk after chunk, the outputs are rows of the whole and so are the weights."""
    start = 0
    for got, got_weights in chunks:
        stop = start + len(got)
        assert_close(got, output[start:stop], tolerance)
        assert_close(got_weights, weights[:, start:stop, :stop], tolerance)
        start = stop
    assert start == len(output)


@pytest.mark.parametrize("sizes", [*CHUNKINGS, [0, 2, 0, 3]], ids=str)
def test_every_chunking_gives_the_rows_of_all_tokens_at_once(sizes):
    x, p = tokens(), matrices()
    want = oracle.layer(x, x, x, p, NUM_HEADS, causal=True)
    assert_rows(in_chunks(x, p, NUM_HEADS, room(), sizes), *want)
    assert_rows(in_chunks(x, p, NUM_HEADS, room(2 * N), sizes), *want)


@pytest.mark.parametrize("num_heads, num_kv_heads", [(4, 1), (4, 2), (6, 2), (4, 4)])
@pytest.mark.parametrize("sizes", ([1] * N, [3, 2], [N]), ids=str)
def test_query_head_i_reads_the_key_value_head_of_its_group(num_heads, num_kv_heads, sizes):
    layer, p = grouped(num_heads, num_kv_heads)
    output, weights = layer(torch.from_numpy(tokens()), causal=True, need_weights=True)
    chunks = in_chunks(tokens(), p, num_heads, room(N, num_kv_heads), sizes)
    assert_rows(chunks, array(output), array(weights))


@pytest.mark.parametrize("dtype", (np.float16, np.float32))
def test_narrow_types_agree_up_to_their_rounding(dtype):
    x, p = tokens(dtype=dtype), matrices(dtype)
    output, weights = multi_head_attention(x, x, x, p, NUM_HEADS, causal=True)
    chunks = in_chunks(x, p, NUM_HEADS, room(dtype=dtype))
    assert all(a.dtype == dtype for chunk in chunks for a in chunk)
    assert_rows(chunks, output, weights, 8 * np.finfo(dtype).eps)


def test_equals_the_layer_of_pytorch():
    p = matrices()
    output, weights = from_projections(p, NUM_HEADS)(
        torch.from_numpy(tokens()), causal=True, need_weights=True
    )
    assert_rows(in_chunks(tokens(), p, NUM_HEADS, room()), array(output), array(weights))


def test_after_truncation_the_rest_is_as_if_it_had_never_been():
    x, p, made = tokens(), matrices(), room()
    want = oracle.layer(x, x, x, p, NUM_HEADS, causal=True)[0]
    for kept in range(N):
        in_chunks(np.concatenate([x[:kept], x[kept:] + 1]), p, NUM_HEADS, made, [N])
        made.truncate(kept)
        assert made.length == kept
        assert_close(multi_head_attention_cached(x[kept:], p, NUM_HEADS, made)[0], want[kept:])
        made.truncate(0)
    with pytest.raises(ValueError, match="length must lie between 0 and 0, got 1"):
        made.truncate(1)


def test_bytes_are_those_of_the_formula_and_views_are_not_copies():
    made = room(capacity=7, dtype=np.float32)
    shape = cost.LayerShape(D_MODEL, NUM_HEADS, d_k=D_K, d_v=D_V)
    assert made.nbytes == cost.cache_bytes(shape, 7, bytes_per_number=4)
    keys, values = made.append(np.ones((2, 3, D_K)), np.ones((2, 3, D_V)))
    assert np.shares_memory(keys, made._keys) and np.shares_memory(values, made._values)


def test_a_cache_that_is_full_says_so_and_stays_as_it_is():
    x, p, made = tokens(), matrices(), room(capacity=4)
    in_chunks(x[:3], p, NUM_HEADS, made, [3])
    keys = made.keys.copy()
    with pytest.raises(ValueError, match="room for capacity = 4 tokens and holds 3, got 2 more"):
        multi_head_attention_cached(x[3:], p, NUM_HEADS, made)
    assert made.length == 3 and np.array_equal(made.keys, keys)


def test_inputs_are_never_modified():
    x, p = tokens(), matrices()
    copies = [a.copy() for a in (x, *p.arrays().values())]
    in_chunks(x, p, NUM_HEADS, room(), [3, 2])
    for a, copy in zip((x, *p.arrays().values()), copies, strict=True):
        assert np.array_equal(a, copy)


@pytest.mark.parametrize(
    "change, kind, message",
    [
        ({"x": np.ones((1, 2, D_MODEL))}, ValueError, r"x must be one sequence \(n, d_model\)"),
        ({"x": np.ones((1, 2))}, ValueError, r"w_q must have shape \(2, 8\), got \(9, 8\)"),
        ({"x": np.ones((1, D_MODEL), int)}, TypeError, "x must be floating point"),
        ({"x": np.ones((1, D_MODEL), np.float32)}, TypeError, "must have the dtype of x, float32"),
        ({"projections": None}, TypeError, "projections must be a mha_lib.Projections"),
        ({"cache": None}, TypeError, "cache must be a mha_lib.KeyValueCache"),
        ({"cache": room(dtype=np.float32)}, TypeError, "cache must have the dtype of x, float64"),
        ({"cache": room(N, 1)}, ValueError, r"w_k must have shape \(9, 4\), got \(9, 8\)"),
        ({"num_heads": 3}, ValueError, "num_heads must be a multiple of 2, got 3"),
        ({"num_heads": 4}, ValueError, r"w_q must have shape \(9, 16\), got \(9, 8\)"),
        ({"num_heads": 2.0}, TypeError, "num_heads must be a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(change, kind, message):
    arguments = {"x": tokens(1), "projections": matrices(), "num_heads": NUM_HEADS, "cache": room()}
    with pytest.raises(kind, match=message):
        multi_head_attention_cached(**arguments | change)


@pytest.mark.parametrize("name", ("capacity", "num_kv_heads", "d_k", "d_v"))
def test_sizes_are_whole_numbers_of_at_least_1(name):
    sizes = {"capacity": 2, "num_kv_heads": 2, "d_k": 2, "d_v": 2} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        KeyValueCache(**sizes)


def top_left(n_q, n_kv):
    return np.tril(np.ones((n_q, n_kv), bool))


def one_late(self, key, value, append=KeyValueCache.append):
    append(self, key, value)
    return np.roll(self.keys, 1, axis=1), self.values


def only_the_newest(self, key, value, append=KeyValueCache.append):
    keys, values = append(self, key, value)
    old = np.arange(self.length) < self.length - key.shape[1]
    return np.where(old[:, None], 0, keys), values


FAULTS = {
    "mask top left": (cache.masks, "causal", top_left),
    "no mask": (cache.masks, "causal", lambda n_q, n_kv: np.ones((n_q, n_kv), bool)),
    "keys one row late": (KeyValueCache, "append", one_late),
    "only new keys returned": (KeyValueCache, "append", only_the_newest),
    "truncation forgotten": (KeyValueCache, "truncate", lambda self, length: None),
}


def everything_agrees(x, p, want):
    made = room(capacity=4 * N)
    assert_rows(in_chunks(x, p, NUM_HEADS, made, [2, 3]), *want)
    made.truncate(0)
    assert_rows(in_chunks(x, p, NUM_HEADS, made), *want)


@pytest.mark.parametrize("name", (None, *FAULTS))
def test_planted_faults_are_found(name, monkeypatch):
    x, p = tokens(), matrices()
    want = oracle.layer(x, x, x, p, NUM_HEADS, causal=True)
    if name is None:
        everything_agrees(x, p, want)
        return
    monkeypatch.setattr(*FAULTS[name])
    with pytest.raises(AssertionError):
        everything_agrees(x, p, want)


def test_heads_of_a_group_tiled_are_found():
    layer, p = grouped(4, 2)
    want = array(layer(torch.from_numpy(tokens()), causal=True)[0])
    order = [0, 2, 1, 3]  # as if head i read i % 2
    split = p.w_q.reshape(D_MODEL, 4, D_K)[:, order].reshape(p.w_q.shape)
    wrong = Projections(**p.arrays() | {"w_q": split})
    got = np.concatenate([o for o, _ in in_chunks(tokens(), wrong, 4, room(N, 2))])
    assert np.abs(got - want).max() > 0.01
