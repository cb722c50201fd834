"""Splitting into heads and merging them: every head by name, not only the way there and back."""

import numpy as np
import pytest

from mha_lib.scratch import merge_heads, split_heads

from .cases import BATCHES


def test_head_0_gets_the_first_features_of_every_token():
    heads = split_heads(np.arange(8).reshape(1, 2, 4), num_heads=2)
    assert heads[0].tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_each_head_is_a_slice_of_the_features(batch):
    x = np.random.default_rng(0).normal(size=(*batch, 3, 8))
    heads = split_heads(x, num_heads=4)
    assert heads.shape == (*batch, 4, 3, 2)
    for i in range(4):
        np.testing.assert_array_equal(heads[..., i, :, :], x[..., 2 * i : 2 * i + 2])


def test_merging_puts_a_tokens_heads_side_by_side():
    merged = merge_heads(np.arange(8).reshape(1, 2, 2, 2))
    assert merged[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("n", (0, 1, 3))
def test_merging_equals_concatenation_and_undoes_splitting(batch, n):
    heads = np.random.default_rng(0).normal(size=(*batch, 4, n, 2))
    merged = merge_heads(heads)
    side_by_side = np.concatenate([heads[..., i, :, :] for i in range(4)], axis=-1)
    np.testing.assert_array_equal(merged, side_by_side)
    np.testing.assert_array_equal(split_heads(merged, 4), heads)


def test_one_head_is_everything():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(split_heads(x, 1)[0], x)


def test_flattened_heads_count_the_batch_first():
    names = np.array([["s0h0", "s0h1"], ["s1h0", "s1h1"]])[:, None, :]  # one token a sample
    assert split_heads(names, 2).reshape(4).tolist() == ["s0h0", "s0h1", "s1h0", "s1h1"]
