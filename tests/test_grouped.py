"""Heads that share keys and values: which reads which, and the way there from a layer without."""

import pytest
import torch

from mha_lib import cost
from mha_lib.pytorch import MultiHeadAttention, grouped, pool_heads, unshare_heads
from mha_lib.pytorch.attention import attend

from .cases import D_K, D_MODEL, D_V, layer_inputs
from .oracle import assert_close, assert_same_bits

OPTIONS = {"scale": None, "dropout_p": 0.0}


def layer(num_heads=4, num_kv_heads=2, **options):
    options = {"d_k": D_K, "d_v": D_V, "dtype": torch.float64} | options
    made = MultiHeadAttention(D_MODEL, num_heads, num_kv_heads=num_kv_heads, **options)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return made


def inputs():
    return [torch.from_numpy(a) for a in layer_inputs(widths=(D_MODEL,) * 3)]


def heads(h, h_kv, n_q, n_kv, batch=(2,)):
    """Queries, keys and values inside the heads."""
    shapes = (h, n_q, D_K), (h_kv, n_kv, D_K), (h_kv, n_kv, D_V)
    return [torch.randn(*batch, *shape, dtype=torch.float64) for shape in shapes]


def score_options(h, n_q, n_kv):
    full = (2, h, n_q, n_kv)
    return {
        "nothing": {},
        "causal": {"causal": True},
        "mask": {"mask": torch.rand(n_q, n_kv) < 0.6},
        "mask a sample": {"mask": torch.rand(2, 1, n_q, n_kv) < 0.6},
        "mask a head": {"mask": torch.rand(full) < 0.6},
        "one row of keys": {"mask": torch.rand(1, n_kv) < 0.6},
        "a row of keys a head": {"mask": torch.rand(2, h, 1, n_kv) < 0.6},
        "causal and mask": {"causal": True, "mask": torch.rand(full) < 0.6},
        "bias": {"bias": torch.randn(n_q, n_kv, dtype=torch.float64)},
        "bias a head": {"bias": torch.randn(full, dtype=torch.float64), "causal": True},
    }


@pytest.mark.parametrize("name", score_options(4, 1, 1))
@pytest.mark.parametrize("h, h_kv", [(4, 1), (4, 2), (6, 2), (4, 4)])
@pytest.mark.parametrize("need_weights", (True, False))
def test_equals_repeated_heads(h, h_kv, name, need_weights):
    for n_q, n_kv in ((1, 5), (3, 5), (4, 4), (5, 3), (0, 5), (3, 0)):
        q, k, v = heads(h, h_kv, n_q, n_kv)
        chosen = {"mask": None, "bias": None, "causal": False}
        chosen |= score_options(h, n_q, n_kv)[name] | OPTIONS | {"need_weights": need_weights}
        chosen["ordinary"] = n_q > 0 < n_kv
        got = grouped.attend_in_groups(q, k, v, **chosen)
        k, v = (torch.stack([x[:, i // (h // h_kv)] for i in range(h)], 1) for x in (k, v))
        want = attend(q, k, v, **chosen)
        assert_close(got[0], want[0])
        assert (got[1] is None) == (not need_weights)
        if need_weights:
            assert_close(got[1], want[1])


@pytest.mark.parametrize("batch", ((), (3, 2)), ids=str)
def test_any_number_of_batch_axes(batch):
    q, k, v = heads(4, 2, 1, 5, batch)
    chosen = OPTIONS | {"causal": True, "need_weights": False, "ordinary": True}
    got, _ = grouped.attend_in_groups(q, k, v, None, None, **chosen)
    k, v = (x.repeat_interleave(2, -3) for x in (k, v))
    assert_close(got, attend(q, k, v, None, None, **chosen)[0])


def test_decoding_copies_no_keys(monkeypatch):
    """Reading a shared head once for its whole group is what sharing is for."""
    seen = []

    def watched(query, key, value, *arguments, **options):
        seen.append((query.shape, key, value))
        return attend(query, key, value, *arguments, **options)

    monkeypatch.setattr(grouped, "attend", watched)
    q, k, v = heads(6, 2, 1, 5)
    chosen = OPTIONS | {"causal": True, "need_weights": False, "ordinary": True}
    grouped.attend_in_groups(q, k, v, None, None, **chosen)
    ((shape, key, value),) = seen
    assert shape == (2, 2, 3, D_K) and key is k and value is v


def test_heads_10_and_20_go_to_two_neighbours_each():
    q, k, _ = heads(4, 2, 1, 1, ())
    v = torch.tensor([10.0, 20.0], dtype=torch.float64).view(2, 1, 1)
    chosen = OPTIONS | {"causal": True, "need_weights": False, "ordinary": True}
    for n_kv in (1, 3):
        keys, values = k.expand(2, n_kv, D_K), v.expand(2, n_kv, 1)
        got, _ = grouped.attend_in_groups(q, keys, values, None, None, **chosen)
        assert_close(got.flatten(), torch.tensor([10.0, 10.0, 20.0, 20.0]))


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4))
@pytest.mark.parametrize("use_bias", (True, False))
def test_unshared_heads_are_the_same_function(num_kv_heads, use_bias):
    made = layer(4, num_kv_heads, use_bias=use_bias)
    full, x = unshare_heads(made), inputs()
    assert full.num_kv_heads == 4
    for need_weights in (True, False):
        got = full(*x, causal=True, need_weights=need_weights)
        want = made(*x, causal=True, need_weights=need_weights)
        assert_close(got[0], want[0])
        if need_weights:
            assert_close(got[1], want[1])


@pytest.mark.parametrize("num_kv_heads, fewer", [(4, 1), (4, 2), (2, 1), (4, 4)])
def test_pooled_heads_are_the_means_of_neighbours(num_kv_heads, fewer):
    made = layer(4, num_kv_heads)
    pooled, group = pool_heads(made, fewer), num_kv_heads // fewer
    for name, stacked in made.w_qkv.named_parameters():
        q, k, v = stacked.split(made.widths)
        got_q, got_k, got_v = getattr(pooled.w_qkv, name).split(pooled.widths)
        assert_same_bits(got_q, q)
        for got, old, d in ((got_k, k, D_K), (got_v, v, D_V)):
            for i in range(fewer):
                first = i * group
                members = [old[j * d : (j + 1) * d] for j in range(first, first + group)]
                assert_close(got[i * d : (i + 1) * d], sum(members) / group, 1e-15)
    assert_same_bits(pooled.w_o.weight, made.w_o.weight)
    assert_same_bits(pooled.w_o.bias, made.w_o.bias)


@pytest.mark.parametrize("num_kv_heads", (1, 2))
def test_pooling_what_was_unshared_gives_the_layer_back(num_kv_heads):
    made = layer(4, num_kv_heads)
    again, x = pool_heads(unshare_heads(made), num_kv_heads), inputs()
    for (name, got), want in zip(again.named_parameters(), made.parameters(), strict=True):
        assert_close(got, want), name
    assert_close(again(*x, causal=True)[0], made(*x, causal=True)[0])


def test_pooling_different_heads_is_another_function():
    made, x = layer(4, 4), inputs()
    assert (pool_heads(made, 2)(*x)[0] - made(*x)[0]).abs().max() > 0.01
    assert_close(pool_heads(made, 4)(*x)[0], made(*x)[0])


@pytest.mark.parametrize("convert", (unshare_heads, lambda made: pool_heads(made, 1)))
def test_a_converted_layer_is_a_copy_with_the_same_settings(convert):
    made = layer(4, 2, dropout=0.25).eval()
    new = convert(made)
    assert new.dropout == 0.25 and not new.training and (new.d_k, new.d_v) == (D_K, D_V)
    assert all(p.requires_grad and p.dtype == torch.float64 for p in new.parameters())
    before = [p.clone() for p in made.parameters()]
    with torch.no_grad():
        for p in new.parameters():
            p.zero_()
    for p, copy in zip(made.parameters(), before, strict=True):
        assert_same_bits(p, copy)


@pytest.mark.parametrize("num_kv_heads", (1, 2, 4, 8))
def test_parameters_and_cache_shrink_by_the_formulas(num_kv_heads):
    d, h, d_k = 64, 8, 8
    made = MultiHeadAttention(d, h, num_kv_heads=num_kv_heads, use_bias=False)
    count = sum(p.numel() for p in made.parameters())
    assert count == 2 * d * d + 2 * d * num_kv_heads * d_k
    shape = cost.LayerShape(d, h, num_kv_heads=num_kv_heads)
    assert cost.cache_bytes(shape, 1, 2) == 2 * num_kv_heads * d_k * 2


@pytest.mark.parametrize(
    "attempt, kind, message",
    [
        (
            lambda: pool_heads(layer(4, 4), 3),
            ValueError,
            "must divide .* num_kv_heads = 4",
        ),
        (lambda: pool_heads(layer(4, 2), 4), ValueError, "num_kv_heads = 2, got 4"),
        (lambda: pool_heads(layer(), 0), ValueError, "num_kv_heads must be at least 1"),
        (lambda: pool_heads(layer(), 1.0), TypeError, "num_kv_heads must be a whole number"),
        (lambda: pool_heads(None, 1), TypeError, "layer must be a mha_lib.MultiHeadAttention"),
        (lambda: unshare_heads(None), TypeError, "layer must be a mha_lib.MultiHeadAttention"),
    ],
)
def test_what_does_not_fit_is_refused(attempt, kind, message):
    with pytest.raises(kind, match=message):
        attempt()


def tiled_fold(x, num_kv_heads, fold=grouped._fold):
    """Query head i with key-value head i % num_kv_heads: the usual fault."""
    if x is None:
        return None
    order = torch.arange(x.shape[-3]).view(-1, num_kv_heads).T.flatten()
    return fold(x[..., order, :, :], num_kv_heads)


FAULTS = {
    "_fold": tiled_fold,
    "repeat_heads": lambda x, group: torch.cat([x] * group, -3),
    "_unfold": lambda x, sizes: (
        None if x is None else x.unflatten(-2, sizes[::-1]).transpose(-2, -3).flatten(-4, -3)
    ),
}


@pytest.mark.parametrize("name", (None, *FAULTS))
def test_planted_faults_are_found(name, monkeypatch):
    if name is not None:
        monkeypatch.setattr(grouped, name, FAULTS[name])
        with pytest.raises(AssertionError):
            test_equals_repeated_heads(4, 2, "causal", need_weights=False)
    else:
        test_equals_repeated_heads(4, 2, "causal", need_weights=False)
