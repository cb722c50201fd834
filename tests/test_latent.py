"""Latent attention: both its forms agree, and its cache is as small as the formula says."""

import itertools

import numpy as np
import pytest
import torch

from mha_lib import cost, masks
from mha_lib.pytorch import KeyValueCache, MultiHeadAttention
from mha_lib.pytorch.conversion import array
from mha_lib.pytorch.latent import MultiHeadLatentAttention

from . import oracle
from .cases import D_K, D_MODEL, D_V
from .oracle import assert_close

H, LATENT, ROTARY, N = 3, 5, 6, 5
FORMS = pytest.mark.parametrize("absorbed", (False, True), ids=("expanded", "absorbed"))


def layer(**options):
    options = {"d_latent": LATENT, "d_rotary": ROTARY, "d_k": D_K, "d_v": D_V} | options
    return MultiHeadLatentAttention(D_MODEL, H, dtype=torch.float64, **options)


def tokens(n=N, batch=(2,)):
    return torch.randn(*batch, n, D_MODEL, dtype=torch.float64)


def turned(x, d=ROTARY):
    """Each pair of neighbours as a complex number, times e^(i position speed)."""
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    speeds = 10000.0 ** (-np.arange(0, d, 2) / d)
    pairs = pairs * np.exp(1j * np.arange(x.shape[-2])[:, None] * speeds)
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def by_loops(made, x):
    """The definition, one head after the other, attention by the oracle."""
    w_q, w_down, w_up, w_o = (array(w.weight) for w in (made.w_q, made.w_down, made.w_up, made.w_o))
    down = oracle.project(x, w_down.T)
    latent, shared = down[..., :LATENT], turned(down[..., LATENT:])
    heads = []
    for i in range(H):
        query = oracle.project(x, w_q[i * (D_K + ROTARY) : (i + 1) * (D_K + ROTARY)].T)
        query = np.concatenate([query[..., :D_K], turned(query[..., D_K:])], -1)
        up = oracle.project(latent, w_up[i * (D_K + D_V) : (i + 1) * (D_K + D_V)].T)
        key = np.concatenate([up[..., :D_K], shared], -1)
        heads.append(oracle.attention(query, key, up[..., D_K:], causal=True)[0])
    return oracle.project(np.concatenate(heads, -1), w_o.T)


@FORMS
@pytest.mark.parametrize("batch", ((), (2,), (3, 2)), ids=str)
def test_equals_the_loops(batch, absorbed):
    made, x = layer(), tokens(batch=batch)
    assert_close(made(x, absorbed=absorbed), by_loops(made, x.numpy()))


def test_absorbed_projections_give_the_same_values_and_gradients():
    made, outcomes = layer(), []
    for absorbed in (False, True):
        x = torch.linspace(-1, 1, 2 * N * D_MODEL, dtype=torch.float64).view(2, N, -1)
        x.requires_grad_()
        made.zero_grad()
        output = made(x, absorbed=absorbed)
        output.pow(2).sum().backward()
        outcomes.append([output, x.grad, *(p.grad.clone() for p in made.parameters())])
    for got, want in zip(*outcomes, strict=True):
        assert_close(got, want)


@FORMS
@pytest.mark.parametrize("sizes", ([1] * N, [3, 2], [2, 0, 1, 2], [N]), ids=str)
def test_every_chunking_equals_all_tokens_at_once(sizes, absorbed):
    made, x = layer(), tokens()
    cache, ends = KeyValueCache(N), list(itertools.accumulate(sizes))
    got = [made(x[:, a:b], cache, absorbed=absorbed) for a, b in itertools.pairwise((0, *ends))]
    assert_close(torch.cat(got, 1), made(x))


def test_forms_may_change_from_token_to_token():
    made, x, cache = layer(), tokens(), KeyValueCache()
    got = [made(x[:, i : i + 1], cache, absorbed=i % 2 == 1) for i in range(N)]
    assert_close(torch.cat(got, 1), made(x))


@FORMS
def test_samples_that_differ_in_length_after_truncation_equal_each_alone(absorbed):
    made, x, cache = layer(), tokens(), KeyValueCache()
    made(torch.cat([x[:, :2], tokens(2)], 1), cache)
    cache.truncate([2, 1])
    got = made(torch.stack([x[0, 2:4], x[1, 1:3]]), cache, absorbed=absorbed)
    want = made(x)
    assert_close(got, torch.stack([want[0, 2:4], want[1, 1:3]]))


@FORMS
def test_a_rolling_cache_sees_the_window_alone(absorbed):
    made, x = layer(), tokens()
    cache = KeyValueCache(window=2)
    got = [made(x[:, a:b], cache, absorbed=absorbed) for a, b in ((0, 3), (3, 4), (4, 5))]
    rule = masks.sliding_window(N, window=2, device="cpu")
    cache = KeyValueCache()
    cache.rule = lambda *_, **__: rule
    assert_close(torch.cat(got, 1), made(x, cache))


def test_the_cache_holds_the_latent_vector_and_one_turned_key_a_token():
    made, cache = layer(), KeyValueCache(7)
    made(tokens(4), cache)
    assert cache.keys.shape == (2, 1, 4, LATENT) and cache.values.shape == (2, 1, 4, ROTARY)
    shape = cost.LayerShape(D_MODEL, 1, d_k=LATENT, d_v=ROTARY)  # one shared head of such widths
    assert cache.nbytes == cost.cache_bytes(shape, 7, 8, batch=2) == 2 * 7 * (LATENT + ROTARY) * 8


@FORMS
def test_scores_depend_on_distances_alone(absorbed):
    made, x, cache = layer(), tokens(), KeyValueCache()
    want = made(x, absorbed=absorbed)
    made(tokens(4), cache)
    cache.rule = lambda n, **_: torch.arange(cache.length + n)[None] >= 4  # hides the first four
    rows = [made(x[:, i : i + 1], cache, absorbed=absorbed) for i in range(N)]
    assert_close(torch.cat(rows, 1), want)


@FORMS
def test_a_latent_vector_as_wide_as_the_token_can_be_ordinary_attention(absorbed):
    made = layer(d_latent=D_MODEL)
    usual = MultiHeadAttention(D_MODEL, H, d_k=D_K, d_v=D_V, use_bias=False, dtype=torch.float64)
    q, k, v = usual.w_qkv.weight.split(usual.widths)
    with torch.no_grad():
        made.w_down.weight.copy_(torch.eye(D_MODEL + ROTARY, D_MODEL))  # no turned key
        queries = torch.cat([q.view(H, D_K, -1), torch.randn(H, ROTARY, D_MODEL).double()], 1)
        made.w_q.weight.copy_(queries.flatten(0, 1))
        made.w_up.weight.copy_(torch.cat([k.view(H, D_K, -1), v.view(H, D_V, -1)], 1).flatten(0, 1))
        made.w_o.weight.copy_(usual.w_o.weight)
    x, scale = tokens(), (D_K + ROTARY) ** -0.5
    assert_close(made(x, absorbed=absorbed), usual(x, causal=True, scale=scale)[0])


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"d_latent": 0}, "d_latent must be at least 1, got 0"),
        ({"d_rotary": 0}, "d_rotary must be at least 1, got 0"),
        ({"d_rotary": 3}, "d_rotary must be even, since features turn in pairs, got 3"),
        ({"d_k": None}, None),
    ],
    ids=str,
)
def test_sizes_that_cannot_be_are_refused(sizes, message):
    if message is None:
        assert layer(**sizes).d_k == D_MODEL // H
        return
    with pytest.raises(ValueError, match=message):
        layer(**sizes)


FAULTS = {
    "heads of keys and values in reverse": (
        "_up",
        lambda right: lambda self: [w.flip(0) for w in right(self)],
    ),
    "positions left out": (
        "_turns",
        lambda right: (
            lambda self, cache, x: [0 * t + c for t, c in zip(right(self, cache, x), (1, 0))]
        ),
    ),
    "positions begin anew with each call": (
        "_turns",
        lambda right: lambda self, cache, x: right(self, KeyValueCache(), x),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name, monkeypatch):
    made, x = layer(), tokens()
    want = by_loops(made, x.numpy())
    method, wrong = FAULTS[name]
    monkeypatch.setattr(
        MultiHeadLatentAttention, method, wrong(getattr(MultiHeadLatentAttention, method))
    )
    for absorbed in (False, True):
        cache = KeyValueCache()
        got = [made(x[:, a:b], cache, absorbed=absorbed) for a, b in ((0, 3), (3, N))]
        with pytest.raises(AssertionError):
            assert_close(torch.cat(got, 1), want)
