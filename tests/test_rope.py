"""Rotary positions: against complex numbers, one pair at a time, in both conventions."""

import cmath

import pytest
import torch

from mha_lib.pytorch import rope

from .oracle import assert_close

N, D_K, BASE = 5, 6, 50.0
PAIRS = {
    rope.interleaved: [(0, 1), (2, 3), (4, 5)],
    rope.half_split: [(0, 3), (1, 4), (2, 5)],
}


def turned_one_by_one(x, positions, pairs):
    """The same in loops: a pair is a complex number, and turning it is a multiplication."""
    result = x.clone()
    for row, position in enumerate(positions):
        for i, (a, b) in enumerate(pairs):
            angle = position * BASE ** (-2 * i / x.shape[-1])
            point = complex(x[row, a], x[row, b]) * cmath.exp(1j * angle)
            result[row, a], result[row, b] = point.real, point.imag
    return result


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def turns(positions):
    return rope.turns(torch.tensor(positions), D_K, BASE, torch.float64)


@pytest.mark.parametrize("rotate", PAIRS)
def test_each_pair_turns_by_its_own_angle(rotate):
    x, positions = draw(N, D_K), [0, 1, 2, 7, 90]
    expected = turned_one_by_one(x, positions, PAIRS[rotate])
    assert_close(rotate(x, turns(positions)), expected, 1e-12)
    assert torch.equal(rotate(x, turns(positions))[0], x[0])  # position 0 stays as it is


@pytest.mark.parametrize("rotate", PAIRS)
def test_scores_depend_on_the_distance_alone(rotate):
    query, key = draw(2, N, D_K), draw(2, N, D_K)  # two heads
    near, far = turns([3, 4, 5, 6, 7]), turns([103, 104, 105, 106, 107])
    scores = [rotate(query, t) @ rotate(key, t).transpose(-1, -2) for t in (near, far)]
    assert_close(*scores, 1e-12)
    moved = rotate(query, far) @ rotate(key, near).transpose(-1, -2)
    assert (moved - scores[0]).abs().max() > 0.1


def test_weights_of_one_convention_serve_the_other_once_their_rows_are_moved():
    x, t = draw(N, 7), turns(range(N))  # d_model = 7
    w_q, w_k = draw(2 * D_K, 7), draw(2 * D_K, 7)  # two heads

    def scores(rotate, change):
        q, k = ((x @ change(w).T).view(N, 2, D_K).transpose(0, 1) for w in (w_q, w_k))
        return rotate(q, t) @ rotate(k, t).transpose(-1, -2)

    right = scores(rope.interleaved, lambda w: w)
    assert_close(scores(rope.half_split, lambda w: rope.to_half_split(w, 2)), right, 1e-12)
    assert (scores(rope.half_split, lambda w: w) - right).abs().max() > 0.1


def test_samples_may_stand_at_positions_of_their_own():
    x = draw(2, 3, N, D_K)  # (batch, heads, n, d_k)
    starts = [[0, 1, 2, 3, 4], [9, 10, 11, 12, 13]]
    together = rope.interleaved(x, [t[:, None] for t in turns(starts)])
    for b, positions in enumerate(starts):
        assert_close(together[b], rope.interleaved(x[b], turns(positions)), 1e-15)


def test_float32_angles_are_exact_far_into_a_text():
    cos, _ = rope.turns(torch.tensor([100_003]), 4)
    assert_close(cos[0, 0], torch.tensor(100_003.0, dtype=torch.float64).cos(), 1e-7)


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match=r"d_k must be even, .* got 5"):
        rope.turns(torch.arange(3), 5)
