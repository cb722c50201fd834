"""Masks: what the builders hide, and how a layer's mask meets its heads."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from mha_lib import masks


@pytest.mark.parametrize("n_q, n_kv", [(3, 3), (2, 5), (5, 2), (1, 4), (0, 3), (3, 0), (0, 0)])
def test_causal_allows_exactly_what_is_not_in_the_future(n_q, n_kv):
    mask = masks.causal(n_q, n_kv)
    assert mask.shape == (n_q, n_kv) and mask.dtype == bool
    for i in range(n_q):
        for j in range(n_kv):
            assert mask[i, j] == (j <= i + n_kv - n_q)


def test_causal_is_square_unless_told_otherwise():
    np.testing.assert_array_equal(masks.causal(4), np.tril(np.ones((4, 4), bool)))


def test_one_new_query_sees_every_cached_key():
    assert masks.causal(1, 4).all()


def test_causal_rows_of_a_chunk_are_the_last_rows_of_the_whole():
    np.testing.assert_array_equal(masks.causal(2, 5), masks.causal(5)[3:])


@pytest.mark.parametrize("side, want", [("right", [1, 1, 0]), ("left", [0, 1, 1])])
def test_padding_hides_all_but_the_real_tokens(side, want):
    mask = masks.padding([2, 0], 3, side=side)
    assert mask.shape == (2, 1, 3) and mask.dtype == bool
    assert mask.tolist() == [[want], [[False] * 3]]


@pytest.mark.parametrize(
    "lengths", [[1, 3], (1, 3), np.array([1, 3]), np.array([1, 3], np.uint8), torch.tensor([1, 3])]
)
def test_padding_takes_lengths_of_any_kind(lengths):
    np.testing.assert_array_equal(masks.padding(lengths, 3), masks.padding([1, 3], 3))


def test_padding_of_no_samples_is_empty():
    assert masks.padding([], 3).shape == (0, 1, 3)


@pytest.mark.parametrize(
    "build",
    [
        lambda device: masks.causal(2, 5, device=device),
        lambda device: masks.padding([1, 3], 3, device=device),
        lambda device: masks.padding([1, 3], 3, side="left", device=device),
        lambda device: masks.sliding_window(2, 5, window=2, device=device),
        lambda device: masks.prefix(2, 5, length=4, device=device),
        lambda device: masks.documents([0, 1, 1], device=device),
        lambda device: masks.documents(np.array([0, 1]), [0, 1, 1], device=device),
    ],
)
def test_builders_give_tensors_where_a_device_is_named(build):
    mask = build("cpu")
    assert mask.dtype == torch.bool and mask.device.type == "cpu"
    np.testing.assert_array_equal(mask.numpy(), build(None))


LENGTHS = [(3, 3), (2, 5), (5, 2), (1, 4), (0, 3), (3, 0), (0, 0)]


@pytest.mark.parametrize("window", (1, 2, 4, 9))
@pytest.mark.parametrize("n_q, n_kv", LENGTHS)
def test_a_sliding_window_holds_the_query_and_what_stands_just_before(n_q, n_kv, window):
    mask = masks.sliding_window(n_q, n_kv, window=window)
    assert mask.shape == (n_q, n_kv) and mask.dtype == bool
    for i in range(n_q):
        place = i + n_kv - n_q
        assert [j for j in range(n_kv) if mask[i, j]] == [
            j for j in range(n_kv) if j in range(place - window + 1, place + 1)
        ]


def test_a_window_of_one_sees_itself_and_a_wide_one_all_of_the_past():
    np.testing.assert_array_equal(masks.sliding_window(4, window=1), np.eye(4, dtype=bool))
    np.testing.assert_array_equal(masks.sliding_window(2, 5, window=5), masks.causal(2, 5))


@pytest.mark.parametrize("n_q, n_kv", LENGTHS)
def test_a_prefix_is_open_and_the_rest_causal(n_q, n_kv):
    for length in range(n_kv + 1):
        mask = masks.prefix(n_q, n_kv, length=length)
        assert mask.shape == (n_q, n_kv) and mask.dtype == bool
        for i in range(n_q):
            for j in range(n_kv):
                assert mask[i, j] == (j < length or j <= i + n_kv - n_q)


def test_a_prefix_of_nothing_is_causal_and_of_everything_is_open():
    np.testing.assert_array_equal(masks.prefix(2, 5, length=0), masks.causal(2, 5))
    assert masks.prefix(5, length=5).all()


def test_documents_are_blocks_on_the_diagonal():
    mask = masks.documents([7, 7, 3])
    assert mask.dtype == bool
    assert mask.astype(int).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_documents_of_a_batch_and_of_other_keys():
    mask = masks.documents([[0, 1], [1, 1]], [[0, 0, 1], [1, 0, 2]])
    assert mask.astype(int).tolist() == [[[1, 1, 0], [0, 0, 1]], [[1, 0, 0], [1, 0, 0]]]


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8))
def test_documents_of_tensors_are_a_tensor(dtype):
    ids = torch.tensor([[0, 0, 1]], dtype=dtype)
    mask = masks.documents(ids)
    assert isinstance(mask, torch.Tensor) and mask.dtype == torch.bool
    np.testing.assert_array_equal(mask, masks.documents([[0, 0, 1]]))
    assert torch.equal(masks.documents(ids, device="cpu"), mask)


def test_no_builder_changes_what_it_is_given():
    lengths, ids = np.array([1, 3]), np.array([0, 1])
    masks.padding(lengths, 3)
    masks.documents(ids)
    assert lengths.tolist() == [1, 3] and ids.tolist() == [0, 1]


def test_causal_and_padding_combine_with_and():
    both = masks.causal(3) & masks.padding([2], 3, side="left")
    np.testing.assert_array_equal(both[0].astype(int), [[0, 0, 0], [0, 1, 0], [0, 1, 1]])


def test_allowed_joins_the_causal_rule_and_the_mask():
    mask = np.array([[True, False, True]])
    np.testing.assert_array_equal(masks.allowed(mask, True, 2, 3), masks.causal(2, 3) & mask)
    np.testing.assert_array_equal(masks.allowed(None, True, 2, 3), masks.causal(2, 3))
    assert masks.allowed(mask, False, 2, 3) is mask
    assert masks.allowed(None, False, 2, 3) is None


def test_allowed_needs_no_rule_for_a_single_query():
    assert masks.allowed(None, True, 1, 4) is None


@pytest.mark.parametrize(
    "shape", [(3, 5), (1, 5), (3, 1), (2, 3, 5), (1, 3, 5), (2, 1, 5), (1, 1, 1)]
)
def test_check_accepts_what_broadcasts(shape):
    masks.check(np.ones(shape, bool), (2, 3, 5))


@pytest.mark.parametrize("shape", [(), (5,), (2, 5), (5, 3), (3, 3, 5), (1, 2, 3, 5), (0, 3, 5)])
def test_check_refuses_what_does_not(shape):
    with pytest.raises(ValueError, match=r"mask must broadcast to .*\(2, 3, 5\)"):
        masks.check(np.ones(shape, bool), (2, 3, 5))


@pytest.mark.parametrize(
    "shape, batch_axes, want",
    [
        ((3, 5), 1, (3, 5)),  # for every sample and head
        ((2, 3, 5), 1, (2, 1, 3, 5)),  # a sample
        ((2, 4, 3, 5), 1, (2, 4, 3, 5)),  # a sample and head
        ((4, 3, 5), 0, (4, 3, 5)),  # a head, where there is no batch
        ((6, 3, 5), 2, (6, 1, 3, 5)),  # a sample, the first batch axis left to broadcasting
    ],
)
def test_head_axis_goes_between_batch_and_queries(shape, batch_axes, want):
    assert masks.with_head_axis(np.ones(shape, bool), batch_axes).shape == want


@pytest.mark.parametrize("shape, want", [((3, 5), (2, 3, 5)), ((2, 4, 3, 5), (2, 4, 3, 5))])
def test_a_layers_mask_fits_the_batch_or_the_heads(shape, want):
    assert masks.scores_shape(np.ones(shape, bool), (2,), 4, 3, 5) == want


def test_numpy_chapters_start_without_torch():
    code = "import sys, mha_lib.masks, mha_lib.scratch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
