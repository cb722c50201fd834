"""Masks in other libraries' forms and back: the meaning by hand, the round trip for anything."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mha_lib import masks

DTYPES = (
    *(np.float16, np.float32, np.float64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_library = pytest.mark.parametrize("to", (np.asarray, torch.from_numpy), ids=("numpy", "torch"))


def some_masks(*axes):
    """Boolean arrays with this many axes, none of them longer than four; some may be empty."""
    shapes = st.one_of([array_shapes(min_dims=n, max_dims=n, min_side=0, max_side=4) for n in axes])
    return arrays(bool, shapes)


def shaped(*sizes):
    """Boolean arrays with axes of these sizes, None for any from 0 to 3."""
    return arrays(bool, st.tuples(*(st.integers(0, 3) if n is None else st.just(n) for n in sizes)))


def in_library(mask, dtype):
    return torch.from_numpy(mask) if isinstance(dtype, torch.dtype) else mask


def lowest(dtype):
    return (torch if isinstance(dtype, torch.dtype) else np).finfo(dtype).min


def assert_same(got, want):
    """The same library, type, shape and values."""
    assert type(got) is type(want) and got.dtype == want.dtype and got.shape == want.shape
    assert bool((got == want).all())


ROUND_TRIPS = {
    "module": (masks.to_module_mask, masks.from_module_mask, some_masks(2)),
    "kernel": (masks.to_kernel, masks.from_kernel, some_masks(2, 3)),
    "kernel, a head": (
        masks.to_kernel, masks.from_kernel,
        some_masks(4).filter(lambda mask: mask.shape[1] != 1)),
    "module, a head": (
        lambda mask: masks.to_module_head_masks(mask, 2),
        lambda mask: masks.from_module_head_masks(mask, 2),
        shaped(None, 2, None, None)),
    "module, padding": (
        masks.to_module_padding, masks.from_module_padding, shaped(None, 1, None)),
    "Hugging Face, padding": (
        masks.to_hugging_face_padding, masks.from_hugging_face_padding,
        shaped(None, 1, None)),
}  # fmt: skip


@each_library
@pytest.mark.parametrize("name", ROUND_TRIPS)
@given(data=st.data())
def test_there_and_back_is_the_same_mask(to, name, data):
    there, back, some = ROUND_TRIPS[name]
    mask = to(data.draw(some))
    assert_same(back(there(mask)), mask)


@each_dtype
@given(mask=some_masks(1, 2, 3, 4))
def test_additive_there_and_back_is_the_same_mask(dtype, mask):
    mask = in_library(mask, dtype)
    additive = masks.to_additive(mask, dtype)
    assert additive.dtype == dtype
    assert_same(masks.from_additive(additive), mask)


@each_dtype
@given(mask=some_masks(3, 4).filter(lambda mask: mask.ndim == 3 or mask.shape[1] != 1))
def test_hugging_faces_additive_form_there_and_back_is_the_same_mask(dtype, mask):
    mask = in_library(mask, dtype)
    additive = masks.to_hugging_face_additive(mask, dtype)
    assert additive.dtype == dtype and additive.ndim == 4
    assert_same(masks.from_hugging_face_additive(additive), mask)


@each_dtype
@given(mask=some_masks(2, 3))
def test_the_kernels_additive_form_is_read_as_its_boolean_one(dtype, mask):
    mask = in_library(mask, dtype)
    assert_same(masks.from_kernel(masks.to_additive(masks.to_kernel(mask), dtype)), mask)


@given(flat=some_masks(3).filter(lambda mask: mask.shape[0] % 2 == 0))
@each_library
def test_module_masks_a_head_come_back_in_their_own_order(to, flat):
    flat = to(flat)
    assert_same(masks.to_module_head_masks(masks.from_module_head_masks(flat, 2), 2), flat)


@each_dtype
def test_additive_is_zero_where_a_query_may_attend_and_minus_infinity_where_not(dtype):
    mask = in_library(np.array([[True, False]]), dtype)
    assert masks.to_additive(mask, dtype).tolist() == [[0.0, -np.inf]]


@each_dtype
def test_the_lowest_number_hides_as_well(dtype):
    module = torch if isinstance(dtype, torch.dtype) else np
    additive = module.full((1, 3), lowest(dtype), dtype=dtype)
    additive[0, 0], additive[0, 1] = 0, -np.inf
    assert masks.from_additive(additive).tolist() == [[True, False, False]]


@each_dtype
def test_numbers_close_to_the_lowest_are_a_bias(dtype):
    module = torch if isinstance(dtype, torch.dtype) else np
    for number in (lowest(dtype) / 2, 2.0**-10, 1, np.inf):
        with pytest.raises(ValueError, match="additive must hold 0 "):
            masks.from_additive(module.full((1, 1), float(number), dtype=dtype))


@each_dtype
def test_hugging_faces_additive_form_is_finite(dtype):
    mask = in_library(np.array([[[True, False]]]), dtype)
    additive = masks.to_hugging_face_additive(mask, dtype)
    assert additive.tolist() == [[[[0.0, float(lowest(dtype))]]]]


@each_library
def test_the_modules_mask_says_the_opposite(to):
    mask = to(np.array([[True, False]]))
    assert masks.to_module_mask(mask).tolist() == [[False, True]]
    assert masks.to_module_padding(mask[None]).tolist() == [[False, True]]


@each_library
def test_the_modules_heads_lie_side_by_side_within_a_sample(to):
    """Four different masks, named by what they hide: sample * 2 + head is the row."""
    mask = to(np.arange(4).reshape(2, 2, 1, 1) != np.arange(4))  # hides key 2 * sample + head
    hidden = masks.to_module_head_masks(mask, 2)
    assert hidden.tolist() == np.eye(4, dtype=bool)[:, None].tolist()


@each_library
def test_one_mask_a_sample_is_repeated_for_its_heads(to):
    mask = to(np.array([[[True, True]], [[True, False]]]))
    for form in (mask, mask[:, None]):
        rows = masks.to_module_head_masks(form, 3)
        assert rows[:, 0, 1].tolist() == [False] * 3 + [True] * 3
    assert masks.from_module_head_masks(rows, 3).tolist() == [[m] * 3 for m in mask.tolist()]


@each_library
def test_the_kernel_gets_a_head_axis_and_the_same_meaning(to):
    mask = to(np.array([[[True, False]]]))
    assert masks.to_kernel(mask).tolist() == [[[[True, False]]]]
    assert masks.to_kernel(mask[0]).tolist() == [[True, False]]
    assert masks.to_kernel(mask[None]).tolist() == [[[[True, False]]]]


@each_library
def test_three_axes_are_heads_to_the_kernel_and_samples_to_a_layer(to):
    assert masks.from_kernel(to(np.ones((4, 3, 5), bool))).shape == (1, 4, 3, 5)


@each_library
def test_hugging_faces_padding_has_ones_for_real_tokens(to):
    mask = to(masks.padding([1, 3], 3))
    got = masks.to_hugging_face_padding(mask)
    assert got.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert str(got.dtype).endswith("int64")


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8))
def test_hugging_faces_padding_may_have_integers_of_any_width(dtype):
    real = torch.tensor([[1, 0]], dtype=dtype)
    assert masks.from_hugging_face_padding(real).tolist() == [[[True, False]]]


@each_library
def test_no_converter_changes_what_it_is_given(to):
    mask = to(np.array([[[True, False]]]))
    before = mask.tolist()
    for there in (masks.to_module_padding, masks.to_hugging_face_padding, masks.to_kernel):
        there(mask)
    masks.to_module_head_masks(mask, 2)
    masks.to_additive(mask, np.float32 if to is np.asarray else torch.float32)
    assert mask.tolist() == before
