"""The key-value cache: however the tokens arrive, the answers are those of all tokens at once."""

import itertools
import random

import numpy as np
import pytest
import torch

from mha_lib import cost, masks
from mha_lib.pytorch import (
    KeyValueCache,
    MultiHeadAttention,
    cached_attention,
    grouped,
    to_projections,
)
from mha_lib.pytorch.attention import FEW

from . import oracle
from .cases import D_K, D_MODEL, D_V
from .oracle import assert_close

N, HEADS = 5, 4
CHUNKINGS = [
    [end - start for start, end in itertools.pairwise((0, *cuts, N))]
    for k in range(N)
    for cuts in itertools.combinations(range(1, N), k)
]
NAN = float("nan")


def layer(num_kv_heads=2, dtype=torch.float64, **options):
    """A layer whose sizes all differ, with biases that are not zero."""
    made = MultiHeadAttention(
        D_MODEL, HEADS, num_kv_heads=num_kv_heads, d_k=D_K, d_v=D_V, dtype=dtype, **options
    )
    with torch.no_grad():
        made.w_qkv.bias.normal_()
        made.w_o.bias.normal_()
    return made


def tokens(n=N, batch=(2,), dtype=torch.float64):
    return torch.randn(*batch, n, D_MODEL, dtype=dtype)


def options(n=N):
    """Masks and biases of a causal call for all n tokens, by name."""
    every = (2, n, n)
    return {
        "nothing": {},
        "mask": {"mask": torch.rand(every) < 0.6},
        "mask for all samples": {"mask": torch.rand(n, n) < 0.6},
        "mask a head": {"mask": torch.rand(2, HEADS, n, n) < 0.6},
        "mask with head axis for all heads": {"mask": torch.rand(2, 1, n, n) < 0.6},
        "one row of keys": {"mask": torch.arange(n)[None] % 2 == 0},
        "padding left": {"mask": masks.padding([n, 2], n, side="left", device="cpu")},
        "window": {"mask": masks.sliding_window(n, window=2, device="cpu")},
        "everything blocked": {"mask": torch.zeros(n, n, dtype=torch.bool)},
        "bias": {"bias": torch.randn(every, dtype=torch.float64)},
        "bias a head": {"bias": torch.randn(2, HEADS, n, n, dtype=torch.float64)},
        "bias a key and mask": {
            "bias": torch.randn(1, n, dtype=torch.float64),
            "mask": torch.rand(every) < 0.6,
        },
        "scale": {"scale": 0.3},
        "negative scale": {"scale": -0.3},
    }


def part(chosen, start, stop):
    """The options of a call that brings tokens start to stop."""
    return {
        name: x[..., start:stop, :stop] if isinstance(x, torch.Tensor) and x.shape[-2] > 1
        else x[..., :stop] if isinstance(x, torch.Tensor) else x
        for name, x in chosen.items()
    }  # fmt: skip


def in_chunks(made, x, sizes, cache, **chosen):
    """The outputs for x, which comes in chunks of these sizes, side by side."""
    ends = list(itertools.accumulate(sizes))
    return torch.cat(
        [
            made(x[..., a:b, :], cache=cache, causal=True, **part(chosen, a, b))[0]
            for a, b in itertools.pairwise((0, *ends))
        ],
        dim=-2,
    )


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
@pytest.mark.parametrize("name", options())
def test_every_chunking_equals_all_tokens_at_once(num_kv_heads, name):
    made, x, chosen = layer(num_kv_heads), tokens(), options()[name]
    want, _ = made(x, causal=True, **chosen)
    for i, sizes in enumerate(CHUNKINGS):
        cache = KeyValueCache(N if i % 2 else None)
        assert_close(in_chunks(made, x, sizes, cache, **chosen), want)


@pytest.mark.parametrize("batch", ((), (2,), (3, 2)), ids=str)
def test_one_token_at_a_time_equals_the_loops(batch):
    made, x = layer(num_kv_heads=2), tokens(batch=batch)
    arrays = [x.numpy()] * 3
    want, _ = oracle.layer(*arrays, to_projections(made), HEADS, causal=True)
    assert_close(in_chunks(made, x, [1] * N, KeyValueCache()), want)


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
@pytest.mark.parametrize("name", ("nothing", "mask a head", "bias"))
def test_weights_are_the_rows_of_all_tokens_at_once(num_kv_heads, name):
    made, x, chosen = layer(num_kv_heads), tokens(), options()[name]
    output, want = made(x, causal=True, need_weights=True, **chosen)
    for sizes in CHUNKINGS:
        cache, start = KeyValueCache(), 0
        for n in sizes:
            stop = start + n
            got = made(
                x[:, start:stop],
                cache=cache,
                causal=True,
                need_weights=True,
                **part(chosen, start, stop),
            )
            assert_close(got[0], output[:, start:stop])
            assert_close(got[1], want[..., start:stop, :stop])
            start = stop


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
def test_narrow_types_agree_up_to_their_rounding(dtype, num_kv_heads):
    made, x = layer(num_kv_heads, dtype), tokens(dtype=dtype)
    want, _ = made(x, causal=True)
    for sizes in CHUNKINGS:
        cache = KeyValueCache()
        got = in_chunks(made, x, sizes, cache)
        assert got.dtype == cache.keys.dtype == cache.values.dtype == dtype
        assert_close(got, want, 8 * torch.finfo(dtype).eps)


def test_an_open_prefix_comes_first_and_the_rest_is_causal():
    made, x = layer(), tokens()
    want, _ = made(x, mask=masks.prefix(N, length=3, device="cpu"))
    cache = KeyValueCache()
    got = [made(x[:, :3], cache=cache)[0], made(x[:, 3:], cache=cache, causal=True)[0]]
    assert_close(torch.cat(got, 1), want)


def test_without_the_causal_rule_earlier_answers_would_have_changed():
    made, x = layer(), tokens()
    got = torch.cat(
        [made(x[:, :3], cache=(c := KeyValueCache()))[0], made(x[:, 3:], cache=c)[0]], 1
    )
    want, _ = made(x)
    assert_close(got[:, 3:], want[:, 3:])
    assert (got[:, :3] - want[:, :3]).abs().max() > 0.1


def test_no_new_tokens_change_nothing():
    made, x, cache = layer(), tokens(), KeyValueCache()
    got = in_chunks(made, x, [0, 2, 0, 3, 0], cache)
    assert cache.length == N and cache.ordinary
    assert_close(got, made(x, causal=True)[0])


@pytest.mark.parametrize("sizes", CHUNKINGS, ids=str)
@pytest.mark.parametrize("name", ("nothing", "mask a head", "bias"))
def test_gradients_through_a_prefill(sizes, name):
    made, chosen = layer(), options()[name]
    outcomes = []
    for attempt in range(2):
        torch.manual_seed(1)
        x = tokens().requires_grad_()
        made.zero_grad()
        cache = KeyValueCache(N + 1)
        output = (
            in_chunks(made, x, sizes, cache, **chosen)
            if attempt
            else made(x, causal=True, **chosen)[0]
        )
        output.pow(2).sum().backward()
        outcomes.append([x.grad, *(p.grad.clone() for p in made.parameters())])
    for got, want in zip(*outcomes, strict=True):
        assert_close(got, want)


def test_after_a_prefill_with_gradients_decoding_goes_on_without():
    made, x, cache = layer(), tokens(), KeyValueCache(N)
    prompt, _ = made(x[:, :3], cache=cache, causal=True)
    with torch.no_grad():
        rest = in_chunks(made, x[:, 3:], [1, 1], cache)
        assert_close(rest, made(x, causal=True)[0][:, 3:])
    assert not cache.keys.requires_grad
    prompt.sum().backward()  # what it remembers was not overwritten
    assert made.w_qkv.weight.grad.isfinite().all()


def alone(made, x, n=None):
    """Sample by sample, each of its own length."""
    return [made(x[b : b + 1, :n], causal=True)[0] for b in range(len(x))]


def test_ragged_samples_equal_each_alone_whatever_their_padding_holds():
    made, x = layer(), tokens(n=7, batch=(3,))
    want, cache, done = [w[0] for w in alone(made, x)], KeyValueCache(), [0, 0, 0]
    for counts in ([3, 1, 2], [0, 2, 1], [1, 1, 1], [2, 3, 0]):
        new = torch.full((3, max(counts), D_MODEL), NAN, dtype=x.dtype)
        for b, n in enumerate(counts):
            new[b, :n] = x[b, done[b] : done[b] + n]
        got, _ = made(new, cache=cache, causal=True, lengths=counts)
        for b, n in enumerate(counts):
            assert_close(got[b, :n], want[b][done[b] : done[b] + n])
            assert_close(got[b, n:], made.w_o.bias.expand(len(got[b]) - n, -1))
            done[b] += n
    assert cache.lengths == done == [6, 7, 4] and cache.length == 7 and cache.ordinary


def test_ragged_samples_go_on_together():
    made, x, cache = layer(), tokens(n=6), KeyValueCache()
    made(x[:, :4], cache=cache, causal=True, lengths=torch.tensor([4, 2]))
    news = torch.stack([x[0, 4:6], x[1, 2:4]])
    got = torch.cat([made(news[:, i : i + 1], cache=cache, causal=True)[0] for i in range(2)], 1)
    want = [w[0] for w in alone(made, x)]
    assert_close(got, torch.stack([want[0][4:6], want[1][2:4]]))
    assert cache.positions(2).tolist() == [[6, 7], [4, 5]]


@pytest.mark.parametrize("name", ("mask", "mask a head", "bias"))
def test_masks_of_ragged_samples_count_each_samples_own_tokens(name):
    made, x, chosen = layer(), tokens(), options()[name]
    want, _ = made(x, causal=True, **chosen)
    cache = KeyValueCache()
    made(x[:, :3], cache=cache, causal=True, lengths=[3, 2], **part(chosen, 0, 3))
    rows = {
        key: torch.stack([full[0, ..., 3:4, :4], full[1, ..., 2:3, :4]])
        for key, full in chosen.items()
    }
    got, _ = made(torch.stack([x[0, 3:4], x[1, 2:3]]), cache=cache, causal=True, **rows)
    assert_close(got, torch.stack([want[0, 3:4], want[1, 2:3]]))


def test_ragged_samples_without_the_causal_rule_see_their_own_tokens_and_no_others():
    made, x = layer(), tokens()
    got, _ = made(x, cache=KeyValueCache(), lengths=[5, 3])
    for b, n in enumerate((5, 3)):
        assert_close(got[b, :n], made(x[b, :n])[0])


def test_gradients_of_ragged_samples_equal_those_of_each_alone():
    made, x = layer(), tokens()
    padded = x.clone()
    padded[1, 3:] = NAN
    outcomes = []
    for _ in range(2):
        made.zero_grad()
        if outcomes:
            sum(made(x[b, :n], causal=True)[0].sum() for b, n in enumerate((5, 3))).backward()
        else:
            got, _ = made(padded, cache=KeyValueCache(), causal=True, lengths=[5, 3])
            (got[0].sum() + got[1, :3].sum()).backward()
        outcomes.append([p.grad.clone() for p in made.parameters()])
    for got, want in zip(*outcomes, strict=True):
        assert_close(got, want)


def test_left_padding_with_positions_equals_each_alone():
    made, x, place = layer(), tokens(n=6), torch.randn(6, D_MODEL, dtype=torch.float64)
    lengths = [4, 2]
    padded = torch.zeros(2, 4, D_MODEL, dtype=x.dtype)
    for b, n in enumerate(lengths):
        padded[b, 4 - n :] = x[b, :n]
    real = masks.padding(lengths, 4, side="left", device="cpu")  # (2, 1, 4)
    positions = (real[:, 0].long().cumsum(-1) - 1).clamp(min=0)
    assert positions.tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    cache, want = KeyValueCache(), [w[0] for w in alone(made, x + place)]
    got, _ = made(padded + place[positions], cache=cache, causal=True, mask=real)
    for b, n in enumerate(lengths):
        assert_close(got[b, 4 - n :], want[b][:n])
    for step in range(2):
        real = torch.cat([real, torch.ones(2, 1, 1, dtype=torch.bool)], -1)
        news = torch.stack([x[b, n + step] + place[n + step] for b, n in enumerate(lengths)])
        got, _ = made(news[:, None], cache=cache, causal=True, mask=real)
        for b, n in enumerate(lengths):
            assert_close(got[b, 0], want[b][n + step])


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
def test_a_memory_is_projected_once_for_cross_attention(num_kv_heads, monkeypatch):
    made, x, memory, value = layer(num_kv_heads), tokens(), tokens(7), tokens(7)
    mask = torch.rand(2, N, 7) < 0.6
    for given in ((memory,), (memory, value)):
        want, weights = made(x, *given, mask=mask, need_weights=True)
        cache = made.remember(*given)
        assert cache.frozen and cache.length == 7
        before = cache.keys.clone(), cache.values.clone()
        for i in range(N):
            row = {"mask": mask[:, i : i + 1], "need_weights": True}
            got = made(x[:, i : i + 1], cache=cache, **row)
            assert_close(got[0], want[:, i : i + 1])
            assert_close(got[1], weights[:, :, i : i + 1])
        assert_close(made(x, cache=cache, causal=True)[0], made(x, *given, causal=True)[0])
        assert torch.equal(cache.keys, before[0]) and torch.equal(cache.values, before[1])


def test_grouped_heads_10_and_20_go_to_two_neighbours_each():
    made = MultiHeadAttention(4, 4, num_kv_heads=2, use_bias=False)
    with torch.no_grad():
        made.w_qkv.weight.zero_()
        made.w_qkv.weight[-2:, 0] = torch.tensor([10.0, 20.0])
        made.w_o.weight.copy_(torch.eye(4))
    x, cache = torch.tensor([[1.0, 0.0, 0.0, 0.0]]), KeyValueCache()
    for _ in range(3):
        assert made(x, cache=cache, causal=True)[0].tolist() == [[10.0, 10.0, 20.0, 20.0]]


@pytest.mark.parametrize("capacity", (None, N))
def test_after_truncation_the_rest_is_as_if_it_had_never_been(capacity):
    made, x, draft, cache = layer(), tokens(), tokens(), KeyValueCache(capacity)
    want, _ = made(x, causal=True)
    for kept in range(N):
        in_chunks(made, torch.cat([x[:, :kept], draft[:, kept:]], 1), [N], cache)
        cache.truncate(kept)
        assert cache.length == kept
        assert_close(made(x[:, kept:], cache=cache, causal=True)[0], want[:, kept:])
        cache.truncate(0)


def test_samples_keep_as_much_of_a_draft_as_was_right_for_each():
    made, x, cache = layer(), tokens(n=7), KeyValueCache()
    want = [w[0] for w in alone(made, x)]
    draft = torch.cat([x[:, :3], tokens(2)], 1)
    made(draft, cache=cache, causal=True)
    cache.truncate([3, 2])
    assert cache.lengths == [3, 2] and cache.length == 3
    got, _ = made(torch.stack([x[0, 3:5], x[1, 2:4]]), cache=cache, causal=True)
    assert_close(got, torch.stack([want[0][3:5], want[1][2:4]]))
    cache.truncate(torch.tensor([4, 4]))
    assert cache.lengths is None and cache.length == 4
    assert_close(made(x[:, 4:5], cache=cache, causal=True)[0], torch.stack([w[4:5] for w in want]))


@pytest.mark.parametrize("seed", range(10))
def test_any_history_equals_each_sample_alone(seed):
    """Chunks, ragged ones, truncations and resets in any order, in a batch of 3."""
    rng = random.Random(seed)
    made = layer(num_kv_heads=rng.choice((1, 2, 4)))
    cache, history = KeyValueCache(), [torch.zeros(0, D_MODEL, dtype=torch.float64)] * 3
    for _ in range(12):
        what = rng.choice(("all", "all", "ragged", "truncate", "reset"))
        if what == "reset" and rng.random() < 0.3:
            cache.reset()
            history = [h[:0] for h in history]
        elif what == "truncate" and len(history[0]):
            kept = [rng.randint(0, len(h)) for h in history]
            cache.truncate(kept)
            history = [h[:n] for h, n in zip(history, kept)]
        else:
            n = rng.randint(1, 3)
            counts = [rng.randint(0, n) for _ in range(3)] if what == "ragged" else [n] * 3
            x = tokens(n, batch=(3,))
            history = [torch.cat([h, new[:m]]) for h, new, m in zip(history, x, counts)]
            lengths = {"lengths": counts} if what == "ragged" else {}
            got, _ = made(x, cache=cache, causal=True, **lengths)
            for row, h, m in zip(got, history, counts):
                assert_close(row[:m], made(h, causal=True)[0][len(h) - m :])
        assert (cache.lengths or [cache.length] * 3) == [len(h) for h in history]


@pytest.mark.parametrize("window", (1, 2, 3, 5, 9))
@pytest.mark.parametrize("num_kv_heads", (1, 4))
def test_a_rolling_cache_equals_a_sliding_window(window, num_kv_heads):
    n, made = 12, layer(num_kv_heads)
    x, mask = tokens(n), masks.sliding_window(n, window=window, device="cpu")
    want, _ = made(x, mask=mask)
    for sizes in ([1] * n, [n], [4] * 3, [7, 1, 1, 3], [1, 11], [2, 0, 3, 1, 6]):
        cache = KeyValueCache(window=window)
        assert_close(in_chunks(made, x, sizes, cache), want)
        assert cache.length == n
    whole, _ = made(x, causal=True)
    assert (whole - want).abs().max() > 0.01  # the window matters here


def test_a_rolling_cache_takes_memory_for_two_windows_however_long_it_runs():
    made, x, cache = layer(), tokens(1), KeyValueCache(window=3)
    per_token = 2 * 2 * (D_K + D_V) * 8  # batch 2, 2 key-value heads
    with torch.no_grad():
        for _ in range(40):
            made(x, cache=cache, causal=True)
            assert cache.nbytes <= 2 * 3 * per_token and cache.keys.shape[-2] <= 3
    assert cache.positions(1).tolist() == [40]


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32, torch.float64), ids=str)
def test_a_full_cache_takes_the_bytes_of_the_formula_and_never_moves(num_kv_heads, dtype):
    made, x = layer(num_kv_heads, dtype), tokens(8, (3,), dtype)
    shape = cost.LayerShape(D_MODEL, HEADS, num_kv_heads=num_kv_heads, d_k=D_K, d_v=D_V)
    want = cost.cache_bytes(shape, 8, bytes_per_number=dtype.itemsize, batch=3)
    cache, places = KeyValueCache(8), set()
    with torch.no_grad():
        for i in range(8):
            made(x[:, i : i + 1], cache=cache, causal=True)
            places |= {(cache.keys.data_ptr(), cache.values.data_ptr())}
            storages = cache.keys.untyped_storage(), cache.values.untyped_storage()
            assert cache.nbytes == sum(s.nbytes() for s in storages) == want
    assert len(places) == 1


def test_room_doubles_so_that_copies_are_rare():
    made, cache, sizes = layer(), KeyValueCache(), set()
    with torch.no_grad():
        for _ in range(33):
            made(tokens(1), cache=cache, causal=True)
            sizes.add(cache.nbytes)
    one = 2 * 2 * (D_K + D_V) * 8
    assert sorted(sizes) == [one * 2**k for k in range(7)]
    cache.reset()
    assert cache.nbytes == cache.length == 0


def test_a_cache_that_is_full_says_so_and_stays_as_it_is():
    made, x, cache = layer(), tokens(), KeyValueCache(4)
    made(x[:, :3], cache=cache, causal=True)
    keys = cache.keys.clone()
    message = "room for capacity = 4 tokens and holds 3, got 2 more"
    with pytest.raises(ValueError, match=message):
        made(x[:, 3:], cache=cache, causal=True)
    assert cache.length == 3 and torch.equal(cache.keys, keys)
    assert_close(made(x[:, 3:4], cache=cache, causal=True)[0], made(x, causal=True)[0][:, 3:4])


@pytest.mark.parametrize("bad", (1e30, 1.7e308, np.inf, np.nan))
@pytest.mark.parametrize("need_weights", (True, False))
def test_a_hidden_token_changes_nothing_whatever_it_holds(bad, need_weights):
    made, x = layer(), tokens()
    mask = torch.arange(N)[None] != 1
    want, _ = made(x, causal=True, mask=mask)
    x[:, 1] = bad
    for sizes in CHUNKINGS:
        got = in_chunks(made, x, sizes, KeyValueCache(), mask=mask, need_weights=need_weights)
        assert_close(got[:, [0, 2, 3, 4]], want[:, [0, 2, 3, 4]])


def test_a_score_that_overflows_is_hidden_too():
    made, x, memory = layer(dtype=torch.float32), tokens().float(), tokens(7).float()
    memory[:, 1] *= 1e18  # small enough for the kernel, but not beside such a query
    x[:, 2] *= 1e30
    mask = torch.arange(7)[None] != 1
    want, _ = made(x, memory, mask=mask)
    assert want.isfinite().all()
    assert_close(made(x, cache=made.remember(memory), mask=mask)[0], want, 1e-5)


def test_room_that_nobody_wrote_to_is_never_seen():
    made, x, cache = layer(), tokens(), KeyValueCache(9)
    made(x[:, :3], cache=cache, causal=True, lengths=[3, 1])
    for room in cache._rooms:
        assert (room[:, :, 3:] == 0).all()
        room.detach()[:, :, 3:] = 7.0
        room.detach()[1, :, 1:] = 7.0
    got, _ = made(torch.stack([x[0, 3:4], x[1, 1:2]]), cache=cache, causal=True)
    assert_close(got[0], made(x[0], causal=True)[0][3:4])
    assert_close(got[1], made(x[1], causal=True)[0][1:2])


def filled(dtype=torch.float64, **options):
    made, cache = layer(dtype=dtype), KeyValueCache(**options)
    made(tokens(3, dtype=dtype), cache=cache, causal=True)
    return made, cache


def elsewhere(d):
    """A new token that fits what ``filled`` gives, on another device."""
    return torch.zeros(2, 2, 1, d, dtype=torch.float64, device="meta")


REFUSED = {
    "another dtype": (
        lambda c: layer(dtype=torch.float32)(tokens(1, dtype=torch.float32), cache=c),
        TypeError,
        "key must have the cache's dtype float64, got float32",
    ),
    "another device": (
        lambda c: c.append(elsewhere(D_K), elsewhere(D_V)),
        ValueError,
        "key must be on the cache's device cpu, got meta",
    ),
    "another batch": (
        lambda c: layer()(tokens(1, (3,)), cache=c),
        ValueError,
        r"key must fit what is in the cache, shape \(2, 2, 1, 4\), got \(3, 2, 1, 4\)",
    ),
    "another number of heads": (
        lambda c: layer(4)(tokens(1), cache=c),
        ValueError,
        "key must fit what is in the cache",
    ),
    "a key beside the cache": (
        lambda c: layer()(tokens(1), tokens(1), cache=c),
        TypeError,
        r"key and value must be left out with a cache.*layer.remember\(memory\)",
    ),
    "something else": (
        lambda c: layer()(tokens(1), cache=[c]),
        TypeError,
        "cache must be a mha_lib.KeyValueCache, got list",
    ),
    "lengths without a cache": (
        lambda c: layer()(tokens(1), lengths=[1, 1]),
        TypeError,
        "lengths must come with a cache",
    ),
    "too few lengths": (
        lambda c: layer()(tokens(1), cache=c, lengths=[1]),
        ValueError,
        "lengths must hold a number from 0 to 1 for each sample",
    ),
    "lengths beyond the tokens": (
        lambda c: layer()(tokens(1), cache=c, lengths=[1, 2]),
        ValueError,
        r"from 0 to 1 for each sample of one batch axis, got \[1, 2\]",
    ),
    "lengths that are no numbers": (
        lambda c: layer()(tokens(1), cache=c, lengths=[1, 0.5]),
        TypeError,
        "lengths must be a whole number, got 0.5",
    ),
    "a mask for the new tokens alone": (
        lambda c: layer()(tokens(2), cache=c, mask=torch.ones(2, 2, dtype=torch.bool)),
        ValueError,
        r"mask must broadcast to \(..., n_q, n_kv\) = \(2, 2, 5\)",
    ),
    "truncating to more": (
        lambda c: c.truncate(4),
        ValueError,
        "length must lie between 0 and 3, got 4",
    ),
    "truncating for another batch": (
        lambda c: c.truncate([1, 1, 1]),
        ValueError,
        "length must have one number a sample",
    ),
    "truncating to less than nothing": (lambda c: c.truncate(-1), ValueError, "negative"),
    "truncating to half a token": (lambda c: c.truncate(1.5), TypeError, "whole number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_the_cache_stays_as_it_is(name):
    _, cache = filled()
    attempt, kind, message = REFUSED[name]
    before = cache.keys.clone()
    with pytest.raises(kind, match=message):
        attempt(cache)
    assert cache.length == 3 and cache.lengths is None and torch.equal(cache.keys, before)


def test_a_frozen_cache_takes_no_tokens():
    made = layer()
    memory, x = made.remember(tokens()), tokens(1)
    _, k, v = layer(4).project(x, x, x)
    with pytest.raises(ValueError, match="cache must not be frozen"):
        memory.append(k, v)
    with pytest.raises(TypeError, match="lengths must be left out with a frozen cache"):
        made(x, cache=memory, lengths=[1, 1])


def test_a_rolling_cache_refuses_what_it_cannot_do():
    made, x, cache = layer(), tokens(), KeyValueCache(window=3)
    with pytest.raises(ValueError, match="causal must be True with a rolling cache"):
        made(x, cache=cache)
    with pytest.raises(ValueError, match="lengths must be left out with a rolling cache"):
        made(x, cache=cache, causal=True, lengths=[5, 3])
    assert cache.length == 0
    made(x[:, :3], cache=cache, causal=True)
    cache.truncate(2)  # nothing has been dropped yet
    got, _ = made(x[:, 2:], cache=cache, causal=True)
    assert_close(got, made(x, mask=masks.sliding_window(N, window=3, device="cpu"))[0][:, 2:])
    with pytest.raises(ValueError, match="the rolling cache has dropped 2 of 5"):
        cache.truncate(4)
    with pytest.raises(ValueError, match="capacity must be left out where window is given"):
        KeyValueCache(4, window=2)


@pytest.mark.parametrize("sizes", ({"capacity": 0}, {"capacity": 2.0}, {"window": 0}), ids=str)
def test_sizes_are_whole_numbers_of_at_least_1(sizes):
    with pytest.raises((TypeError, ValueError), match=next(iter(sizes))):
        KeyValueCache(**sizes)


def test_inputs_are_never_modified():
    made, cache = filled()
    x, mask = tokens(2), torch.rand(2, 2, 5) < 0.6
    copies = x.clone(), mask.clone()
    made(x, cache=cache, causal=True, mask=mask, lengths=[2, 1])
    assert torch.equal(x, copies[0]) and torch.equal(mask, copies[1])


def test_keys_that_were_turned_by_position_go_into_the_cache_as_they_are():
    """What a rotary model does: it keeps keys of its own making."""
    q, k, v = (torch.randn(2, heads, N, D_K, dtype=torch.float64) for heads in (HEADS, 2, 2))
    cache = KeyValueCache()
    steps = [
        cached_attention(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1], cache)[0]
        for i in range(N)
    ]
    repeated = (x.repeat_interleave(2, 1).numpy() for x in (k, v))
    assert_close(torch.cat(steps, -2), oracle.attention(q.numpy(), *repeated, causal=True)[0])


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
@pytest.mark.parametrize("name", ("nothing", "mask a head", "bias a key and mask", "padding left"))
def test_values_by_columns_give_the_same(name, num_kv_heads):
    """Also once the cache has grown, and where the queries are too many for plain products."""
    n = FEW + 5
    made, x, chosen = layer(num_kv_heads), tokens(n), options(n)[name]
    want, _ = made(x, causal=True, **chosen)
    cache = KeyValueCache(columns=True)
    assert_close(in_chunks(made, x, [2, FEW + 1, 1, 1], cache, **chosen), want)
    assert cache.values.stride(-1) > 1 and cache.keys.stride(-1) == 1
    assert cache.nbytes == 2 * num_kv_heads * (D_K + D_V) * 8 * cache._rooms[0].shape[-2]


def test_nan_changes_no_bit_of_the_tokens_before_it_by_columns():
    made, x = layer(4), tokens(40)
    outputs = []
    for last in (0.0, NAN):
        x[:, -1] = last
        options = {"cache": KeyValueCache(columns=True), "causal": True, "need_weights": True}
        outputs.append(made(x, **options)[0][:, :-1])
    assert torch.equal(*outputs)


def test_a_caller_who_has_looked_is_believed():
    cache, one = KeyValueCache(), torch.ones(1, 2, 1, 4)
    cache.append(one, NAN * one, ordinary=True)
    assert cache.ordinary
    cache.append(one, one, ordinary=False)
    assert not cache.ordinary


def test_a_query_alone_that_is_too_large_leaves_the_cache_ordinary():
    made, x, cache = layer(), tokens(), KeyValueCache()
    with torch.no_grad():
        made.w_qkv.weight[: HEADS * D_K] *= 1e30
    made(x, cache=cache, causal=True)
    assert cache.ordinary


@pytest.mark.parametrize("learned", ("query", "key", "value"))
def test_gradients_of_a_prefill_survive_later_tokens(learned):
    """Of one alone too: a later token must not write where the backward pass will read."""
    parts = {name: torch.randn(1, 2, 3, 4) for name in ("query", "key", "value")}
    parts[learned].requires_grad_()
    cache, one = KeyValueCache(8), torch.randn(1, 2, 1, 4)
    output, _ = cached_attention(*parts.values(), cache, causal=True)
    with torch.no_grad():
        cached_attention(one, one, one, cache, causal=True)
    output.sum().backward()
    assert parts[learned].grad.isfinite().all()


# Tests of the tests: each fault keeps all shapes, so that only the numbers can tell.


def everything_agrees(made, x, want):
    """The comparisons above in short: chunks, decoding, and going on after a truncation."""
    for sizes in ([2, 3], [1] * N):
        assert_close(in_chunks(made, x, sizes, KeyValueCache()), want)
    cache = KeyValueCache()
    in_chunks(made, x, [N], cache)
    cache.truncate(2)
    assert_close(in_chunks(made, x[:, 2:], [2, 1], cache), want[:, 2:])


def shifted_rule(by):
    return lambda n_q, n_kv, device=None: torch.ones(n_q, n_kv, dtype=torch.bool).tril(
        n_kv - n_q + by
    )


def top_left(n_q, n_kv, device=None):
    return torch.ones(n_q, n_kv, dtype=torch.bool).tril()


def only_the_newest(self, key, *others, append=KeyValueCache.append, **options):
    keys, values = (x.clone() for x in append(self, key, *others, **options))
    keys[..., : -key.shape[-2], :] = 0
    return keys, values


def swapped(self, *new, append=KeyValueCache.append, **options):
    keys, values = append(self, *new, **options)
    return keys.flip(-2), values


def tiled(x, num_kv_heads, fold=grouped._fold):
    if x is None:
        return None
    h = x.shape[-3]
    order = torch.arange(h).view(-1, num_kv_heads).T.flatten()
    return fold(x[..., order, :, :], num_kv_heads)


def one_too_many(self, length, truncate=KeyValueCache.truncate):
    truncate(self, length + 1)


FAULTS = {
    "mask one too far": ("mha_lib.masks.contract.causal", shifted_rule(1)),
    "mask one short": ("mha_lib.masks.contract.causal", shifted_rule(-1)),
    "mask top left": ("mha_lib.masks.contract.causal", top_left),
    "only new keys returned": ("mha_lib.pytorch.cache.KeyValueCache.append", only_the_newest),
    "keys against the order of values": ("mha_lib.pytorch.cache.KeyValueCache.append", swapped),
    "heads of a group tiled": ("mha_lib.pytorch.grouped._fold", tiled),
    "nothing truncated": (
        "mha_lib.pytorch.cache.KeyValueCache.truncate",
        lambda self, length: None,
    ),
    "one token too many kept": ("mha_lib.pytorch.cache.KeyValueCache.truncate", one_too_many),
    "grown without its tokens": (
        "mha_lib.pytorch.cache.KeyValueCache._move",
        lambda self, n_kv: setattr(self, "_rooms", self._zeros(*self._rooms, 2 * n_kv)),
    ),
}


@pytest.mark.parametrize("name", (None, *FAULTS))
def test_planted_faults_are_found(name, monkeypatch):
    made, x = layer(), tokens()
    want, _ = made(x, causal=True)
    if name is None:
        everything_agrees(made, x, want)
        return
    monkeypatch.setattr(*FAULTS[name])
    with pytest.raises(AssertionError):
        everything_agrees(made, x, want)


def test_a_window_off_by_one_is_found(monkeypatch):
    made, x = layer(), tokens(12)
    want, _ = made(x, mask=masks.sliding_window(12, window=3, device="cpu"))
    for wrong in (2, 4):
        got = in_chunks(made, x, [4, 1, 7], KeyValueCache(window=wrong))
        assert (got - want).abs().max() > 1e-3
