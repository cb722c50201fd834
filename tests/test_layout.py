"""Matrices by columns: the same layer, read in another order."""

import copy

import pytest
import torch

from mha_lib.pytorch import KeyValueCache, MultiHeadAttention, by_columns

from .cases import D_K, D_MODEL, D_V, NUM_HEADS
from .oracle import assert_close


def test_a_layer_by_columns_is_the_same_layer():
    rows = MultiHeadAttention(D_MODEL, NUM_HEADS, d_k=D_K, d_v=D_V, dtype=torch.float64)
    made = by_columns(copy.deepcopy(rows))
    for linear, old in ((made.w_qkv, rows.w_qkv), (made.w_o, rows.w_o)):
        assert linear.weight.stride(0) == 1 and old.weight.stride(1) == 1
        assert torch.equal(linear.weight, old.weight) and linear.weight.is_leaf
    x = torch.randn(2, 5, D_MODEL, dtype=torch.float64)
    assert_close(made(x)[0], rows(x)[0])
    assert_close(made(x, cache=KeyValueCache(), causal=True)[0], rows(x, causal=True)[0])


def test_the_layout_stays_through_copies_and_casts_and_loading():
    made = by_columns(MultiHeadAttention(8, 2))
    state = MultiHeadAttention(8, 2).state_dict()
    made.load_state_dict(state)
    for layer in (made, copy.deepcopy(made), copy.deepcopy(made).double()):
        assert layer.w_qkv.weight.stride(0) == 1
        assert torch.equal(layer.w_qkv.weight.float(), state["w_qkv.weight"])


def test_only_a_module_has_linear_layers():
    with pytest.raises(TypeError, match=r"module must be a torch\.Module, got Tensor"):
        by_columns(torch.ones(2, 2))
