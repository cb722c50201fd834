"""The worked example "The cat sat.", from X and its matrices to the last digit."""

import math

import numpy as np
import pytest
import torch

from mha_lib.pytorch import from_projections
from mha_lib.pytorch.conversion import array
from mha_lib.scratch import Projections

from .cases import LAYERS
from .oracle import assert_close

X = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]], float)  # The, cat, sat
W_Q = np.array([[0, 0, 1, 0], [0, 1, 0, -1], [1, 0, 1, 0], [0, 0, 1, 0]], float)
W_K = np.array([[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1], [0, 1, 0, 0]], float)
W_V = np.array([[1, 0, 0, 1], [0, 0, 1, 0], [2, 1, 1, 1], [0, 1, 0, 0]], float)
W_O = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, -1, 0], [0, 1, 0, -1]], float)
PROJECTIONS = Projections(W_Q, W_K, W_V, W_O)

E, A, B = math.exp(1 / math.sqrt(2)), math.exp(math.sqrt(2)), math.exp(-1 / math.sqrt(2))
Z = 1 + A + B
WEIGHTS = [
    [[1 / 3] * 3, [1 / (1 + 2 * E), *[E / (1 + 2 * E)] * 2], [E / (2 + E), *[1 / (2 + E)] * 2]],
    [
        [1 / (2 + A), A / (2 + A), 1 / (2 + A)],
        [1 / Z, A / Z, B / Z],
        [1 / (2 + A**2), A**2 / (2 + A**2), 1 / (2 + A**2)],
    ],
]
HEADS = [
    [[1, 1], [1, 3 * E / (1 + 2 * E)], [1, 3 / (2 + E)]],
    [
        [(1 + A) / (2 + A), 2 / (2 + A)],
        [(A + B) / Z, (1 + B) / Z],
        [(1 + A**2) / (2 + A**2), 2 / (2 + A**2)],
    ],
]
OUTPUT = [[a + c, b + d, a - c, b - d] for (a, b), (c, d) in zip(*HEADS, strict=True)]
PRINTED = [
    [1.836421, 1.327158, 0.163579, 0.672842],
    [1.821630, 1.469655, 0.178370, 0.937017],
    [1.947143, 0.850480, 0.052857, 0.639050],
]
PRINTED_WEIGHTS = [
    [[0.333333] * 3, [0.197776, 0.401112, 0.401112], [0.503490, 0.248255, 0.248255]],
    [
        [0.163579, 0.672842, 0.163579],
        [0.178370, 0.733681, 0.087949],
        [0.052857, 0.894285, 0.052857],
    ],
]
# Causal: The copies itself, cat chooses between The and itself, sat sees what it saw before.
CAUSAL_WEIGHTS = [
    [[1, 0, 0], [1 / (1 + E), E / (1 + E), 0], WEIGHTS[0][2]],
    [[1, 0, 0], [1 / (1 + A), A / (1 + A), 0], WEIGHTS[1][2]],
]
CAUSAL_PRINTED = [[1, 1, 1, -1], [1.134668, 0.865332, -0.474191, 0.474191], PRINTED[2]]


def with_torch(query, key, value, projections, num_heads, **options):
    """The same call in PyTorch, from arrays to arrays."""
    tensors = (torch.from_numpy(x) for x in (query, key, value))
    layer = from_projections(projections, num_heads)
    return [array(t) for t in layer(*tensors, need_weights=True, **options)]


@pytest.fixture(params=[*LAYERS, "torch"])
def run(request):
    """Every way to compute the example."""
    layer = (LAYERS | {"torch": with_torch})[request.param]
    return lambda **options: layer(X, X, X, PROJECTIONS, 2, **options)


def test_both_heads_weights_are_the_exact_expressions(run):
    _, weights = run()
    assert_close(weights, WEIGHTS)
    assert_close(weights, PRINTED_WEIGHTS, 5e-7)


def test_the_output_is_the_exact_expression_and_the_printed_decimals(run):
    output, _ = run()
    assert_close(output, OUTPUT)
    assert_close(np.round(output, 6), PRINTED)


def test_cat_ends_as_printed(run):
    output, _ = run()
    assert [f"{x:.6f}" for x in output[1]] == ["1.821630", "1.469655", "0.178370", "0.937017"]


def test_the_causal_variant(run):
    output, weights = run(causal=True)
    assert_close(weights, CAUSAL_WEIGHTS)
    assert_close(np.round(output, 6), CAUSAL_PRINTED)


def test_with_torchs_fused_kernel_too():
    layer = from_projections(PROJECTIONS, 2)
    for causal, printed in ((False, PRINTED), (True, CAUSAL_PRINTED)):
        output, weights = layer(torch.from_numpy(X), causal=causal)
        assert weights is None
        assert_close(array(output).round(6), printed)


def test_one_head_of_width_four_multiplies_the_two_patterns():
    _, weights = LAYERS["fused"](X, X, X, PROJECTIONS, 1)
    product = np.prod(WEIGHTS, axis=0) ** (1 / math.sqrt(2))
    assert_close(weights[0], product / product.sum(-1, keepdims=True))
    assert_close(weights[0, 1].round(6), [0.154281, 0.691438, 0.154281])


def test_cat_and_sat_have_the_same_key_in_head_1():
    key = X @ W_K[:, :2]
    assert key[1].tolist() == key[2].tolist() != key[0].tolist()


def test_the_third_number_is_head_2s_weight_on_the(run):
    output, weights = run()
    assert_close(output[:, 2], weights[1, :, 0])
