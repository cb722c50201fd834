"""What only PyTorch's cores do; what every core does is in test_every_core.py."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mha_lib.pytorch import scaled_dot_product_attention
from mha_lib.pytorch.attention import FEW

from . import oracle
from .cases import BATCHES, head_inputs, options, to_tensors
from .oracle import assert_close


def tensors(dtype=torch.float64, batch=(2,), n_q=3, n_kv=5):
    return [torch.from_numpy(a).to(dtype) for a in head_inputs(batch, n_q, n_kv)]


def call_options(name, dtype=torch.float64, batch=(2,)):
    """The options of this name as keyword arguments of a call in torch."""
    chosen, rest = to_tensors(options(batch)[name])
    return rest | {n: t.to(dtype) if t.is_floating_point() else t for n, t in chosen.items()}


@pytest.mark.parametrize("need_weights", (True, False), ids=("explicit", "fused"))
@pytest.mark.parametrize(
    "name", ("nothing", "causal", "one query blocked", "bias and mask", "bias, causal and mask")
)
def test_gradcheck(name, need_weights):
    chosen = call_options(name, batch=())
    bias = chosen.pop("bias", torch.zeros(3, 5, dtype=torch.float64))

    def output(query, key, value, bias):
        return scaled_dot_product_attention(
            query, key, value, bias=bias, **chosen, need_weights=need_weights
        )[0]

    inputs = [t.requires_grad_() for t in (*tensors(batch=()), bias)]
    assert torch.autograd.gradcheck(output, inputs)


@pytest.mark.parametrize(
    "dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64), ids=str
)
@pytest.mark.parametrize("name", options())
def test_asking_for_weights_changes_neither_output_nor_gradients(name, dtype):
    eps = torch.finfo(dtype).eps
    outcomes = []
    for need_weights in (True, False):
        query, key, value = inputs = [t.requires_grad_() for t in tensors(dtype)]
        chosen = call_options(name, dtype)
        if "bias" in chosen:
            inputs.append(chosen["bias"].requires_grad_())
        output, weights = scaled_dot_product_attention(
            query, key, value, **chosen, need_weights=need_weights
        )
        assert (weights is not None) == need_weights and output.dtype == dtype
        output.sum().backward()
        outcomes.append((output, *(t.grad for t in inputs)))
    for explicit, fused in zip(*outcomes, strict=True):
        assert_close(explicit, fused, 16 * eps)


@pytest.mark.parametrize("need_weights", (True, False), ids=("explicit", "fused"))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
def test_narrow_types_are_as_good_as_their_rounding(dtype, need_weights):
    inputs, chosen = tensors(dtype), options()["one query blocked"]
    output, weights = scaled_dot_product_attention(
        *inputs, **call_options("one query blocked"), need_weights=need_weights
    )
    want_output, want_weights = oracle.attention(*(oracle.numbers(t) for t in inputs), **chosen)
    assert_close(output, want_output, 2 * torch.finfo(dtype).eps)
    if need_weights:
        assert weights.dtype == dtype
        assert_close(weights, want_weights, torch.finfo(dtype).eps)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_causal_equals_the_same_rule_given_as_a_mask(batch):
    inputs = tensors(batch=batch, n_q=5)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    for need_weights in (True, False):
        by_flag = scaled_dot_product_attention(*inputs, causal=True, need_weights=need_weights)[0]
        by_mask = scaled_dot_product_attention(*inputs, mask=mask, need_weights=need_weights)[0]
        assert_close(by_flag, by_mask)


@pytest.mark.parametrize("need_weights", (True, False), ids=("explicit", "fused"))
def test_dropout_keeps_the_mean_and_drops_anew_each_time(need_weights):
    query, key = torch.zeros(2000, 4, 1), torch.zeros(2000, 4, 1)
    value = torch.eye(4).expand(2000, 4, 4)  # the output is the dropped weights themselves
    call = {"dropout_p": 0.5, "need_weights": need_weights}
    first, second = (scaled_dot_product_attention(query, key, value, **call)[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 0.5}  # 1/4, dropped or doubled
    assert abs(first.mean() - 0.25) < 0.01  # 32000 draws: the spread of the mean is 0.0014


def test_weights_come_back_as_they_were_before_dropout():
    query, key, value = tensors()
    _, want = scaled_dot_product_attention(query, key, value)
    output, weights = scaled_dot_product_attention(query, key, value, dropout_p=0.5)
    assert_close(weights, want)
    assert not torch.allclose(output, weights @ value)


def test_views_that_are_not_contiguous_give_the_same_numbers():
    inputs = [t.mT.contiguous().mT for t in tensors()]
    assert not any(t.is_contiguous() for t in inputs)
    for need_weights in (True, False):
        got, _ = scaled_dot_product_attention(*inputs, need_weights=need_weights)
        want, _ = scaled_dot_product_attention(*tensors(), need_weights=need_weights)
        assert_close(got, want)


def test_causality_holds_for_the_gradients_of_keys_and_values():
    query, key, value = (t.requires_grad_() for t in tensors(n_q=5))
    output, _ = scaled_dot_product_attention(query, key, value, causal=True, need_weights=False)
    output[:, 2].sum().backward()
    assert (key.grad[:, 3:] == 0).all() and (value.grad[:, 3:] == 0).all()
    assert (query.grad[:, 2] != 0).any() and (value.grad[:, 2] != 0).all()


@pytest.mark.parametrize("sizes", [(128, 128), (65, 130)], ids=str)
def test_the_kernels_many_tiles_give_the_numbers_of_the_explicit_form(sizes):
    inputs = tensors(batch=(2, 2), n_q=sizes[0], n_kv=sizes[1])
    mask = torch.from_numpy(np.random.default_rng(0).random(sizes) < 0.5)
    for chosen in ({}, {"mask": mask}, {"causal": True}, {"mask": mask, "causal": True}):
        explicit, _ = scaled_dot_product_attention(*inputs, **chosen)
        fused, _ = scaled_dot_product_attention(*inputs, **chosen, need_weights=False)
        assert_close(explicit, fused)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_without_weights_the_fused_kernel_runs_whatever_the_batch_axes(batch, causal):
    query = key = value = torch.randn(*batch, 4, 8)
    with torch.profiler.profile() as profile:
        scaled_dot_product_attention(query, key, value, causal=causal, need_weights=False)
    assert any("flash_attention" in event.key for event in profile.key_averages())


def test_mask_and_bias_reach_the_fused_kernel_over_many_batch_axes():
    query, key, value = tensors(batch=(2, 3, 2))
    mask, bias = torch.rand(3, 1, 3, 5) > 0.3, torch.randn(1, 5, dtype=torch.float64)
    outputs = [
        scaled_dot_product_attention(query, key, value, mask, bias, need_weights=needed)[0]
        for needed in (True, False)
    ]
    assert_close(*outputs)


def test_the_kernel_gets_rows_whose_numbers_lie_side_by_side(monkeypatch):
    """Others would send torch to its form that stores all weights."""
    seen = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: seen.extend(a[:3]) or kernel(*a, **k)
    )
    many = FEW + 1
    inputs = [torch.randn(2, 3, 4, many, dtype=torch.float64).mT for _ in range(3)]
    got, _ = scaled_dot_product_attention(*inputs, causal=True, need_weights=False)
    want, _ = scaled_dot_product_attention(*inputs, causal=True)
    assert_close(got, want)
    assert len(seen) == 3 and all(x.stride(-1) == 1 for x in seen)
    scaled_dot_product_attention(inputs[0][..., 1:, :], *inputs[1:], need_weights=False)
    assert len(seen) == 3  # a few queries do without it
