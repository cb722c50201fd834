"""The contenders of `measure compare decode`: all give the same numbers, again and again."""

import importlib.util

import torch

from mha_lib import decoding
from mha_lib.pytorch import MultiHeadAttention

from .oracle import assert_close

SIZES = {"context": 6, "tokens": 3, "num_layers": 2, "d_model": 16, "num_heads": 4}


def test_every_contender_decodes_the_same_tokens_each_time_it_is_called():
    contenders = decoding.decode(**SIZES)
    first, *others = contenders.values()
    want = first()
    assert want.shape == (1, 3, 16) and not want.requires_grad
    for function in (first, *others):
        for _ in range(2):
            assert_close(function(), want, 1e-5)


def test_each_token_is_the_last_of_all_that_came_before():
    torch.manual_seed(0)
    layers = [MultiHeadAttention(16, 4, use_bias=False) for _ in range(2)]
    x = torch.randn(1, 9, 16)
    want = x
    for layer in layers:
        want = want + layer(want, causal=True)[0]
    for function in decoding.decode(**SIZES).values():
        assert_close(function(), want[:, -3:], 1e-5)


def test_contenders_have_names_that_fit_the_table():
    names = list(decoding.decode(**SIZES))
    assert ("Hugging Face, DynamicCache" in names) == bool(importlib.util.find_spec("transformers"))
    assert len(names) >= 4 and all(len(name) <= 34 for name in names)
