"""Score biases: ALiBi's slopes, T5's buckets."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from mha_lib import bias, masks, pytorch, scratch
from mha_lib.pytorch import MultiHeadAttention

from .cases import head_inputs
from .oracle import assert_close


def published_slopes(num_heads):
    """A geometric series from its own ratio; between powers of two, every other one of the next."""
    log = math.log2(num_heads)
    if log == int(log):
        ratio = 2 ** (-8 / num_heads)
        return [ratio**i for i in range(1, num_heads + 1)]
    power = 2 ** int(log)
    return published_slopes(power) + published_slopes(2 * power)[::2][: num_heads - power]


@pytest.mark.parametrize("num_heads", range(1, 41))
def test_slopes_follow_the_published_rule(num_heads):
    assert_close(bias.alibi_slopes(num_heads), published_slopes(num_heads), 1e-14)


def test_slopes_of_eight_heads_are_the_powers_of_one_half():
    assert bias.alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]


@pytest.mark.parametrize("n_q, n_kv", [(3, 3), (2, 5), (5, 2), (1, 4), (0, 3), (3, 0)])
def test_alibi_falls_with_the_distance_either_way(n_q, n_kv):
    got = bias.alibi(3, n_q, n_kv)
    assert got.shape == (3, n_q, n_kv) and np.isfinite(got).all()
    for head, slope in enumerate(published_slopes(3)):
        for i in range(n_q):
            for j in range(n_kv):
                assert got[head, i, j] == -slope * abs(i + n_kv - n_q - j)


def test_alibi_rows_of_a_chunk_are_the_last_rows_of_the_whole():
    np.testing.assert_array_equal(bias.alibi(2, 2, 5), bias.alibi(2, 5)[:, 3:])


def test_alibi_as_the_authors_add_it_gives_the_same_causal_weights():
    """They add slope * j, the same along each row up to a constant, which softmax ignores."""
    inputs = head_inputs((2,), 4, 4)
    relative = bias.alibi(2, 4)
    absolute = bias.alibi_slopes(2)[:, None, None] * np.arange(4.0)[None, None, :]
    want, _ = scratch.scaled_dot_product_attention(*inputs, bias=absolute, causal=True)
    got, _ = scratch.scaled_dot_product_attention(*inputs, bias=relative, causal=True)
    assert_close(got, want)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
def test_alibi_in_any_type_is_the_rounded_one(dtype):
    got = bias.alibi(3, 4, 6, dtype=dtype, device="cpu")
    assert got.dtype == dtype
    assert torch.equal(got, torch.from_numpy(bias.alibi(3, 4, 6)).to(dtype))


def test_alibi_has_the_usual_type_of_each_library():
    assert bias.alibi(2, 3).dtype == np.float64
    assert bias.alibi(2, 3, dtype=np.float16).dtype == np.float16
    assert bias.alibi(2, 3, device="cpu").dtype == torch.get_default_dtype()


def published_buckets(relative, bidirectional, num_buckets, max_distance):
    """The rule as it is published, with logarithms; ``relative`` is key minus query."""
    bucket, distance = 0, -relative
    if bidirectional:
        num_buckets //= 2
        bucket, distance = (num_buckets if relative > 0 else 0), abs(relative)
    distance = max(distance, 0)
    exact = num_buckets // 2
    if distance < exact:
        return bucket + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return bucket + min(exact + int(share * (num_buckets - exact)), num_buckets - 1)


@pytest.mark.parametrize("bidirectional", (True, False))
@pytest.mark.parametrize(
    "num_buckets, max_distance", [(32, 128), (32, 100), (4, 20), (10, 33), (64, 800), (6, 7)]
)
def test_buckets_follow_the_published_rule(bidirectional, num_buckets, max_distance):
    options = {"num_buckets": num_buckets, "max_distance": max_distance}
    n_q, n_kv = 200, 300  # positions 100 to 299 against 0 to 299
    got = bias.t5_buckets(n_q, n_kv, bidirectional=bidirectional, **options)
    want = {
        relative: published_buckets(relative, bidirectional, **options)
        for relative in range(-n_kv, n_kv)
    }
    for i in range(n_q):
        assert got[i].tolist() == [want[j - (i + n_kv - n_q)] for j in range(n_kv)]


def test_buckets_by_hand():
    """Three exact, three wide: these start at 3, 3 (8/3)^(1/3) = 4.2 and 3 (8/3)^(2/3) = 5.8."""
    got = bias.t5_buckets(1, 10, bidirectional=False, num_buckets=6, max_distance=8)
    assert got[0, ::-1].tolist() == [0, 1, 2, 3, 3, 4, 5, 5, 5, 5]


def test_buckets_of_two_directions_start_where_they_should():
    """16 a direction, 8 of them exact; then 8 sqrt(2)^t: 11.3, 16, 22.6, 32, 45.3, 64, 90.5."""
    past = bias.t5_buckets(1, 200, bidirectional=True)[0, ::-1]
    starts = [int(np.flatnonzero(past == bucket)[0]) for bucket in range(16)]
    assert starts == [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    future = bias.t5_buckets(200, bidirectional=True)[0]
    np.testing.assert_array_equal(future[1:], past[1:] + 16)


def test_buckets_never_fall_and_end_in_the_last_one():
    past = bias.t5_buckets(1, 500, bidirectional=False)[0, ::-1]
    assert all(a <= b <= a + 1 for a, b in pairwise(past.tolist()))
    assert past[-1] == 31 and (past[127:] == 31).all()


def test_the_future_is_one_bucket_for_a_decoder():
    buckets = bias.t5_buckets(6, bidirectional=False)
    assert (buckets[~masks.causal(6)] == 0).all()


def test_buckets_on_a_device_are_the_same_integers():
    got = bias.t5_buckets(3, 5, bidirectional=True, device="cpu")
    assert not got.is_floating_point()
    np.testing.assert_array_equal(got, bias.t5_buckets(3, 5, bidirectional=True))


def test_looking_up_gives_each_head_its_column():
    table, buckets = np.arange(12.0).reshape(4, 3), np.array([[0, 3], [1, 1]])
    got = bias.t5_bias(table, buckets)
    assert got.tolist() == [[[0 + h, 9 + h], [3 + h, 3 + h]] for h in range(3)]
    tensor = bias.t5_bias(torch.from_numpy(table), torch.from_numpy(buckets))
    np.testing.assert_array_equal(tensor, got)


def test_no_queries_need_no_buckets():
    assert bias.t5_bias(np.ones((4, 2)), np.zeros((0, 5), int)).shape == (2, 0, 5)


@pytest.mark.parametrize("need_weights", (True, False))
def test_a_table_learns_through_the_lookup(need_weights):
    """Its gradient is that of the bias, summed over the places of each bucket."""
    table = torch.nn.Parameter(torch.zeros(4, 2, dtype=torch.float64))
    buckets = bias.t5_buckets(3, 5, bidirectional=True, num_buckets=4, max_distance=3, device="cpu")
    inputs = head_inputs((2,))
    tensors = [torch.from_numpy(a) for a in inputs]
    output, _ = pytorch.scaled_dot_product_attention(
        *tensors, bias=bias.t5_bias(table, buckets), need_weights=need_weights
    )
    output.sum().backward()
    gradients = scratch.scaled_dot_product_attention_backward(
        np.ones((2, 3, 3)), *inputs, bias=np.zeros((2, 3, 5))
    )
    want = [[gradients.bias[h][buckets == b].sum() for h in range(2)] for b in range(4)]
    assert_close(table.grad, want)


def test_a_layer_takes_a_bias_of_its_heads_with_a_batch_axis():
    """Two heads and two samples: without the axis, heads would be taken for samples."""
    layer = MultiHeadAttention(8, 2, dtype=torch.float64)
    x, heads = torch.randn(2, 4, 8, dtype=torch.float64), bias.alibi(2, 4)
    heads = torch.from_numpy(heads)
    got, weights = layer(x, bias=heads[None], need_weights=True)
    for i in range(2):
        both, of_head = layer(x, bias=heads[i], need_weights=True)
        assert_close(weights[:, i], of_head[:, i])
        assert not torch.allclose(got, both)
