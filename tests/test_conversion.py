"""The same learned numbers in three homes: exact both ways, and equal in values and gradients."""

import numpy as np
import pytest
import torch
from torch import nn

from mha_lib.pytorch import (
    MultiHeadAttention,
    from_projections,
    from_torch,
    to_projections,
    to_torch,
)
from mha_lib.scratch import Projections, multi_head_attention

from .cases import D_MODEL, NUM_HEADS, layer_inputs, layer_options, projections
from .oracle import assert_close, assert_same_bits

D, H = 12, 3


def torch_layer(bias=True, batch_first=True, dtype=torch.float64, **options):
    """torch's layer with biases that are not zero."""
    layer = nn.MultiheadAttention(D, H, bias=bias, batch_first=batch_first, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    return layer


def inputs(batched=True):
    batch = (2,) if batched else ()
    return [torch.from_numpy(a) for a in layer_inputs(batch, widths=(D, D, D))]


def pairs(ours, theirs):
    """Parameters that hold the same numbers."""
    found = [(ours.w_qkv.weight, theirs.in_proj_weight), (ours.w_o.weight, theirs.out_proj.weight)]
    biases = [(ours.w_qkv.bias, theirs.in_proj_bias), (ours.w_o.bias, theirs.out_proj.bias)]
    return found + [pair for pair in biases if pair[1] is not None]


def assert_same_layer(ours, theirs, batch_first, batched):
    """Values, weights and all gradients agree, for two lengths and a causal mask."""
    x, y = inputs(batched), inputs(batched)
    for t in (*x, *y):
        t.requires_grad_()
    turned = y if batch_first or not batched else [t.transpose(0, 1) for t in y]
    mask = torch.ones(3, 5, dtype=torch.bool).tril(2)
    output, weights = ours(*x, mask=mask, need_weights=True)
    want, want_weights = theirs(*turned, attn_mask=~mask, average_attn_weights=False)
    want = want if batch_first or not batched else want.transpose(0, 1)
    assert_close(output, want)
    assert_close(weights, want_weights)
    output.pow(2).sum().backward()
    want.pow(2).sum().backward()
    for mine, other in (*pairs(ours, theirs), *zip(x, y, strict=True)):
        assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("batched", (True, False), ids=("batched", "one sample"))
@pytest.mark.parametrize("batch_first", (True, False), ids=("batch first", "tokens first"))
@pytest.mark.parametrize("bias", (True, False), ids=("bias", "no bias"))
def test_from_torch_is_exact_in_values_and_gradients(bias, batch_first, batched):
    theirs = torch_layer(bias, batch_first)
    ours = from_torch(theirs)
    for mine, other in pairs(ours, theirs):
        assert_same_bits(mine, other)
    assert_same_layer(ours, theirs, batch_first, batched)


@pytest.mark.parametrize("batched", (True, False), ids=("batched", "one sample"))
@pytest.mark.parametrize("bias", (True, False), ids=("bias", "no bias"))
def test_to_torch_is_exact_in_values_and_gradients(bias, batched):
    ours = from_torch(torch_layer(bias))
    theirs = to_torch(ours)
    for mine, other in pairs(ours, theirs):
        assert_same_bits(mine, other)
    assert_same_layer(ours, theirs, True, batched)


@pytest.mark.parametrize("name", ("padding right", "padding left", "mask a head"))
def test_masks_mean_the_opposite_in_torchs_layer(name):
    theirs = torch_layer().eval()
    mask = torch.from_numpy(np.random.default_rng(0).random((2, H, 3, 5)) < 0.7)
    mask[..., 2] = True  # torch's layer gives NaN where a row is empty
    if name != "mask a head":
        mask = torch.from_numpy(layer_options()[name]["mask"])
        mask[..., 2] = True
        hidden = {"key_padding_mask": ~mask[:, 0]}
    else:
        hidden = {"attn_mask": ~mask.flatten(0, 1)}  # sample 0's heads first
    assert_close(from_torch(theirs)(*inputs(), mask=mask)[0], theirs(*inputs(), **hidden)[0])


def test_copies_share_no_memory():
    theirs = torch_layer()
    ours = from_torch(theirs)
    back, p = to_torch(ours), to_projections(ours)
    before = ours.w_qkv.weight.detach().clone()
    with torch.no_grad():
        theirs.in_proj_weight.zero_()
        back.in_proj_weight.zero_()
    p.w_q[:] = 0
    assert_same_bits(ours.w_qkv.weight, before)


@pytest.mark.parametrize("training", (True, False))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
def test_dtype_mode_and_dropout_go_along(training, dtype):
    theirs = torch_layer(dtype=dtype, dropout=0.25).train(training)
    ours = from_torch(theirs)
    back = to_torch(ours)
    for layer in (ours, back):
        assert layer.dropout == 0.25 and layer.training == training
    assert ours.w_o.weight.dtype == back.out_proj.weight.dtype == dtype


@pytest.mark.parametrize("biases", (True, False), ids=("biases", "no biases"))
@pytest.mark.parametrize("dtype", (np.float32, np.float64), ids=lambda t: t.__name__)
def test_projections_come_back_to_the_bit(biases, dtype):
    p = projections((D_MODEL,) * 3, biases=biases)
    p = Projections(**{name: a.astype(dtype) for name, a in p.arrays().items()})
    back = to_projections(from_projections(p, NUM_HEADS))
    assert back.arrays().keys() == p.arrays().keys()
    for name, array in p.arrays().items():
        assert_same_bits(back.arrays()[name], array)


@pytest.mark.parametrize("use_bias", (True, False))
def test_the_layer_comes_back_to_the_bit(use_bias):
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS, d_k=4, d_v=3, use_bias=use_bias)
    back = from_projections(to_projections(layer), NUM_HEADS)
    assert (back.d_k, back.d_v) == (4, 3)
    for name, parameter in layer.state_dict().items():
        assert_same_bits(back.state_dict()[name], parameter)


def test_numpy_and_torch_give_the_same_numbers():
    theirs = torch_layer()
    p = to_projections(from_torch(theirs))
    arrays = [t.numpy() for t in inputs()]
    want, want_weights = theirs(*inputs(), average_attn_weights=False)
    output, weights = multi_head_attention(*arrays, p, H)
    assert_close(output, want)
    assert_close(weights, want_weights)


@pytest.mark.parametrize("num_kv_heads", (1, 2))
def test_grouped_heads_are_repeated_for_numpy(num_kv_heads):
    layer = MultiHeadAttention(8, 4, num_kv_heads=num_kv_heads, dtype=torch.float64)
    p = to_projections(layer)
    x = layer_inputs(widths=(8, 8, 8))
    got, _ = multi_head_attention(*x, p, 4, causal=True)
    want, _ = layer(*(torch.from_numpy(a) for a in x), causal=True)
    assert_close(got, want)
    per_head = [p.w_k[:, 2 * i : 2 * i + 2] for i in range(4)]
    for i in range(4):
        assert_same_bits(per_head[i], per_head[i - i % (4 // num_kv_heads)])
