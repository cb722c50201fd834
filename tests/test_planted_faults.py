"""Tests of the tests: a right layer in small replaceable pieces, and each piece once wrong.

Every fault keeps all shapes, so that only the comparison of numbers can find it.
"""

import numpy as np
import pytest

from mha_lib.scratch import softmax_backward

from . import oracle
from .cases import D_K, generator, layer_inputs, projections
from .oracle import assert_close, numerical_gradient

H, D_MODEL = 2, 6  # h * d_v = 6 as well: a layer without w_o has the right width


def soft(scores, axis=-1):
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def soft_masked(scores, mask):
    return soft(np.where(mask, scores, -np.inf))


def split(x):
    *batch, n, width = x.shape
    return x.reshape(*batch, n, H, width // H).swapaxes(-3, -2)


def merge(x):
    *batch, h, n, d = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, n, h * d)


def bottom_right(n_q, n_kv):
    return np.tril(np.ones((n_q, n_kv), bool), n_kv - n_q)


RIGHT = {
    "scale": D_K**-0.5,
    "softmax": soft_masked,
    "split": split,
    "merge": merge,
    "causal": bottom_right,
    "mask": lambda mask: mask[:, None],  # (batch, 1, n_q, n_kv)
    "project": lambda x, w, b: x @ w + b,
    "output": lambda concat, p: concat @ p.w_o + p.b_o,
}


def small_layer(query, key, value, p, mask, parts):
    """Multi-head attention from ``parts``, with a causal mask beside ``mask``."""
    q = parts["split"](parts["project"](query, p.w_q, p.b_q))
    k = parts["split"](parts["project"](key, p.w_k, p.b_k))
    v = parts["split"](parts["project"](value, p.w_v, p.b_v))
    allowed = parts["mask"](mask) & parts["causal"](query.shape[-2], key.shape[-2])
    weights = parts["softmax"](parts["scale"] * (q @ k.swapaxes(-1, -2)), allowed)
    return parts["output"](parts["merge"](weights @ v), p), weights


def drop(weights):
    return weights * (generator(7).random(weights.shape) < 0.5) * 2


FAULTS = {
    "scale off by 0.5 %": {"scale": 1.005 * D_K**-0.5},
    "no scale": {"scale": 1.0},
    "scale of d_model": {"scale": (H * D_K) ** -0.5},
    "scale 1/d_k": {"scale": 1 / D_K},
    "softmax over queries": {
        "softmax": lambda s, m: np.nan_to_num(soft(np.where(m, s, -1e9), axis=-2))
    },
    "softmax over heads": {"softmax": lambda s, m: soft(np.where(m, s, -1e9), axis=1)},
    "mask after softmax": {"softmax": lambda s, m: soft(s) * m},
    "mask forgotten": {"softmax": lambda s, m: soft(s)},
    "mask with 0 in place of -inf": {"softmax": lambda s, m: soft(s * m)},
    "mask added as a number": {"softmax": lambda s, m: soft(s + m)},
    "weights after dropout": {"softmax": lambda s, m: drop(soft_masked(s, m))},
    "exp without dividing": {"softmax": lambda s, m: np.exp(s) * m},
    "mask polarity": {"mask": lambda mask: ~mask[:, None]},
    "mask of one sample for all": {"mask": lambda mask: mask[:1, None]},
    "mask repeated, not repeat-interleaved": {
        "mask": lambda mask: np.tile(mask, (H, 1, 1)).reshape(2, H, *mask.shape[1:])
    },
    "causal top-left": {"causal": lambda n_q, n_kv: np.tril(np.ones((n_q, n_kv), bool))},
    "causal one step too far": {"causal": lambda a, b: np.tril(np.ones((a, b), bool), b - a + 1)},
    "causal without the present": {
        "causal": lambda a, b: np.tril(np.ones((a, b), bool), b - a - 1)
    },
    "split by reshape": {"split": lambda x: x.reshape(2, H, x.shape[1], -1)},
    "features dealt out in turn": {
        "split": lambda x: x.reshape(*x.shape[:2], -1, H).transpose(0, 3, 1, 2)
    },
    "merge by reshape": {"merge": lambda x: x.reshape(2, x.shape[2], -1)},
    "heads in reverse order": {"merge": lambda x: merge(x[:, ::-1])},
    "heads interleaved by feature": {
        "merge": lambda x: x.transpose(0, 2, 3, 1).reshape(2, x.shape[2], -1)
    },
    "heads averaged": {"merge": lambda x: np.tile(x.mean(1), H)},
    "no w_o": {"output": lambda concat, p: concat},
    "w_o transposed": {"output": lambda concat, p: concat @ p.w_o.T + p.b_o},
    "no output bias": {"output": lambda concat, p: concat @ p.w_o},
    "output bias once a head": {"output": lambda concat, p: concat @ p.w_o + H * p.b_o},
    "projections without biases": {"project": lambda x, w, b: x @ w},
    "computed in half precision": {"project": lambda x, w, b: (x @ w + b).astype(np.float16)},
    "computed in single precision": {"project": lambda x, w, b: (x @ w + b).astype(np.float32)},
}


def compare_with_the_loops(parts):
    """The comparison that the library's tests make, on a layer of these parts."""
    inputs = layer_inputs()
    p = projections(d_model=D_MODEL)
    mask = generator(6).random((2, 3, 5)) < 0.7
    mask[..., 0], mask[..., 1] = True, False  # each row has both, also when they are swapped
    output, weights = small_layer(*inputs, p, mask, RIGHT | parts)
    want_output, want_weights = oracle.layer(*inputs, p, H, mask=mask, causal=True)
    assert output.shape == want_output.shape and weights.shape == want_weights.shape
    return output, want_output


def test_the_right_pieces_pass():
    assert_close(*compare_with_the_loops({}))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_rejects(fault):
    got, want = compare_with_the_loops(FAULTS[fault])
    assert np.isfinite(got).all()
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(got, want)


@pytest.mark.parametrize(
    "order",
    [lambda i: i % 2, lambda i: 0, lambda i: 1 - i // 2],
    ids=("repeat", "first", "reverse"),
)
def test_the_comparison_rejects_grouped_heads_in_another_order(order):
    value, right = np.array([10.0, 20.0]), [i // 2 for i in range(4)]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(value[[order(i) for i in range(4)]], value[right])


GRADIENT_FAULTS = {
    "diagonal of the Jacobian only": lambda g, a: a * (1 - a) * g,
    "no mean": lambda g, a: a * g,
    "mean over the wrong axis": lambda g, a: a * (g - (g * a).sum(0, keepdims=True)),
    "sign": lambda g, a: -softmax_backward(g, a),
    "off by one part in a million": lambda g, a: 1.000001 * softmax_backward(g, a),
}


@pytest.mark.parametrize("fault", GRADIENT_FAULTS)
def test_central_differences_reject(fault):
    scores, grad = generator().normal(size=(2, 3, 5))
    want = numerical_gradient(lambda: (grad * soft(scores)).sum(), scores)
    assert_close(softmax_backward(grad, soft(scores)), want, 1e-9)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(GRADIENT_FAULTS[fault](grad, soft(scores)), want, 1e-7)


@pytest.mark.parametrize(
    "got, want",
    [
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros((1, 3)), np.zeros(3)),
        (np.array([np.nan]), np.zeros(1)),
        (np.zeros(1), np.array([np.nan])),
        (np.array([np.inf]), np.array([-np.inf])),
        (np.array([1e-11]), np.zeros(1)),
        (np.array([1 + 1e-11]), np.ones(1)),
    ],
    ids=("axes swapped", "axis added", "NaN", "no NaN", "infinity", "near zero", "near one"),
)
def test_assert_close_is_strict(got, want):
    with pytest.raises(AssertionError):
        assert_close(got, want)
