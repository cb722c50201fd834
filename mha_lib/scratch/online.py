"""Attention by tiles with the online softmax, forward and backward: the weights are never stored.

Sources: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Rabe and Staats
2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022, "FlashAttention".
"""

from typing import NamedTuple

import numpy as np

from mha_lib import validate
from mha_lib.scratch import tiles
from mha_lib.scratch.attention import AttentionGradients, arguments, sum_to_shape, widen

quiet = np.errstate(over="ignore", invalid="ignore")


class OnlineState(NamedTuple):
    """What is known of each query's row of scores after some of its keys.

    Shapes: maximum (..., n_q), total (..., n_q) of exp(score - maximum), and mixed (..., n_q, d_v),
    the values weighted by exp(score - maximum).
    """

    maximum: np.ndarray
    total: np.ndarray
    mixed: np.ndarray

    @classmethod
    def start(cls, n_q, d_v, dtype=np.float64):
        """Before the first key."""
        return cls(np.full(n_q, -np.inf, dtype), np.zeros(n_q, dtype), np.zeros((n_q, d_v), dtype))

    @np.errstate(divide="ignore")
    def result(self):
        """Output (..., n_q, d_v), zeros where no key was allowed, and log_sum_exp (..., n_q)."""
        divisor = np.where(self.total == 0, 1, self.total)
        return self.mixed / divisor[..., None], self.maximum + np.log(self.total)


def online_step(state, scores, values, out=None):
    """One step of the online softmax: take in scores (..., n_q, m) of m more keys and their values.

    What was summed under the old maximum is rescaled to the new one. A score of -inf adds nothing.
    ``out`` is an array for the weights, which are thrown away; it may be ``scores`` itself.

    >>> state = OnlineState.start(n_q=1, d_v=1)
    >>> state = online_step(state, np.array([[0.0]]), np.array([[1.0]]))
    >>> state = online_step(state, np.array([[1000.0, 1000.0]]), np.array([[4.0], [6.0]]))
    >>> state.result()[0]
    array([[5.]])
    """
    maximum = np.maximum(state.maximum, scores.max(axis=-1, initial=-np.inf))
    shift = np.where(np.isneginf(maximum), 0, maximum)  # nothing allowed yet: exp(-inf - 0) is 0
    weights = np.subtract(scores, shift[..., None], out=out)
    np.exp(weights, out=weights)
    shrink = np.exp(state.maximum - shift)
    ones = np.ones(values.shape[-2], weights.dtype)  # as a product a sum takes a third of the time
    total = state.total * shrink + weights @ ones
    mixed = state.mixed * shrink[..., None]
    mixed += weights @ values
    return OnlineState(maximum, total, mixed)


def online_attention(query, key, value, mask=None, bias=None, *, causal=False, scale=None):
    """Mix the values of each query's allowed keys, a tile of scores at a time.

    Arguments and errors are those of scaled_dot_product_attention. Returns output (..., n_q, d_v)
    and log_sum_exp (..., n_q), the logarithm of the sum of exp(score) over the allowed keys: -inf
    if there are none, in float32 for float16.

    >>> query, key = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> online_attention(query, key, value=np.eye(3))[0].round(3)
    array([[0.198, 0.401, 0.401]])
    """
    inputs = _prepare(query, key, value, mask, bias, causal, scale)
    output = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    log_sum_exp = np.empty(query.shape[:-1], inputs.q.dtype)

    def work(blocks):
        buffer = inputs.buffer()
        for head, rows in blocks:
            here = (*head, rows)
            output[here], log_sum_exp[here] = _attend(inputs, head, rows, buffer)

    tiles.share(work, tiles.blocks(query.shape[:-2], query.shape[-2]), inputs.count())
    return output, log_sum_exp


def online_attention_backward(
    grad_output,
    query,
    key,
    value,
    output,
    log_sum_exp,
    mask=None,
    bias=None,
    *,
    causal=False,
    scale=None,
):
    """Gradients of query, key, value and bias from the gradient of the output (..., n_q, d_v).

    ``output`` and ``log_sum_exp`` are what online_attention returned; the weights of each tile are
    computed again from them. The other arguments are those of the forward call.

    >>> query, key, value = np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [3.0]])
    >>> saved = online_attention(query, key, value)
    >>> online_attention_backward(np.ones((1, 1)), query, key, value, *saved).value
    array([[0.5],
           [0.5]])
    """
    inputs = _prepare(query, key, value, mask, bias, causal, scale)
    validate.gradient(grad_output, query, value.shape[-1])
    _check_saved(output, log_sum_exp, grad_output)
    grads = AttentionGradients(
        *(np.zeros(a.shape, a.dtype) for a in inputs[:3]),
        None if bias is None else np.zeros(bias.shape, inputs.q.dtype),
    )
    grad = widen(grad_output)
    saved = _Saved(grad, (grad * output).sum(axis=-1), log_sum_exp)

    def work(heads):
        buffers = inputs.buffer(), inputs.buffer()
        for head in heads:
            for rows in tiles.cut(0, query.shape[-2], tiles.QUERIES):
                _attend_backward(inputs, saved, grads, head, rows, buffers)

    heads = list(np.ndindex(*query.shape[:-2]))
    if bias is None:
        tiles.share(work, heads, inputs.count())
    else:
        work(heads)  # heads may add to the same numbers of the bias' gradient: one after the other
    return AttentionGradients(
        *(g if g is None else g.astype(query.dtype, copy=False) for g in grads)
    )


class _Inputs(NamedTuple):
    """Checked inputs: float16 widened, rows with inf or NaN set to 0 (None = there are none)."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    bad_q: np.ndarray | None  # (..., n_q)
    bad_kv: np.ndarray | None  # (..., n_kv)
    mask: np.ndarray | None
    bias: np.ndarray | None
    causal: bool
    scale: float

    def count(self):
        """How many scores there are."""
        return self.q[..., 0].size * self.k.shape[-2]

    def buffer(self):
        """Room for the scores of one tile."""
        rows = min(self.q.shape[-2], tiles.QUERIES)
        keys = min(self.k.shape[-2], max(tiles.KEYS, tiles.QUERIES))  # the diagonal may be wider
        return np.empty_like(self.q, shape=rows * keys)

    def tiles(self, head, rows):
        """A block's tiles and what is hidden in each (None = nothing), but for all of it."""
        n_q, n_kv = self.q.shape[-2], self.k.shape[-2]
        for tile in tiles.row_of_tiles(head, rows, n_q, n_kv, self.causal):
            hidden = tile.hidden(self.mask)
            if hidden is None or not hidden.all():
                yield tile, hidden


class _Saved(NamedTuple):
    """What the backward pass knows of each query."""

    grad: np.ndarray  # (..., n_q, d_v), of the output
    mean: np.ndarray  # (..., n_q), of the weights' gradient: sum(g * a) = sum(grad * output)
    log_sum_exp: np.ndarray  # (..., n_q)


@quiet
def _prepare(query, key, value, mask, bias, causal, scale):
    validate.flag("causal", causal)
    _, scale = arguments(query, key, value, mask, bias, False, scale)
    q, k, v = (widen(a) for a in (query, key, value))
    bad_q = bad_kv = None
    if not all(np.isfinite(a).all() for a in (q, k, v)):
        bad_q = ~np.isfinite(q).all(axis=-1)
        bad_kv = ~(np.isfinite(k).all(axis=-1) & np.isfinite(v).all(axis=-1))
        q = np.where(bad_q[..., None], 0, q)
        k, v = (np.where(bad_kv[..., None], 0, a) for a in (k, v))
    bias = None if bias is None else widen(bias)
    return _Inputs(q, k, v, bad_q, bad_kv, mask, bias, causal, scale)


@quiet
def _attend(inputs, head, rows, buffer):
    """Output and log-sum-exp of a block of queries."""
    query = inputs.q[(*head, rows)] * inputs.scale
    state = OnlineState.start(len(query), inputs.v.shape[-1], query.dtype)
    for tile, hidden in inputs.tiles(head, rows):
        inside = slice(tile.rows.start - rows.start, tile.rows.stop - rows.start)
        scores = _scores(inputs, tile, query[inside], buffer)
        _hide(scores, hidden, -np.inf)
        before = OnlineState(*(array[inside] for array in state))
        after = online_step(before, scores, inputs.v[(*head, tile.keys)], out=scores)
        for array, new in zip(state, after, strict=True):
            array[inside] = new
    return state.result()


@quiet
def _attend_backward(inputs, saved, grads, head, rows, buffers):
    """Add what a block of queries gives to the gradients."""
    for tile, hidden in inputs.tiles(head, rows):
        here, there = (*head, tile.rows), (*head, tile.keys)
        query, grad = inputs.q[here] * inputs.scale, saved.grad[here]
        weights = _scores(inputs, tile, query, buffers[0])
        weights -= saved.log_sum_exp[here][:, None]
        np.exp(weights, out=weights)
        _hide(weights, hidden, 0)
        grad_scores = _product(grad, inputs.v[there], buffers[1])
        grad_scores -= saved.mean[here][:, None]
        grad_scores *= weights
        _hide(grad_scores, hidden, 0)
        grads.value[there] += weights.T @ grad
        grads.key[there] += grad_scores.T @ query
        grads.query[here] += inputs.scale * (grad_scores @ inputs.k[there])
        if grads.bias is not None:
            part = tile.part(grads.bias)
            part += sum_to_shape(grad_scores, part.shape)


def _scores(inputs, tile, query, buffer):
    """A tile's scores, the hidden ones included; NaN where a row with inf or NaN is met."""
    scores = _product(query, inputs.k[(*tile.head, tile.keys)], buffer)
    if inputs.bias is not None:
        scores += tile.part(inputs.bias)
    if inputs.bad_q is not None:
        bad_q, bad_kv = (
            inputs.bad_q[(*tile.head, tile.rows)],
            inputs.bad_kv[(*tile.head, tile.keys)],
        )
        scores[bad_q[:, None] | bad_kv] = np.nan
    return scores


def _hide(array, hidden, number):
    """Write a number over what is hidden, whatever stood there."""
    if hidden is not None:
        np.copyto(array, number, where=hidden)


def _product(a, b, buffer):
    """a @ b.T, written into the buffer."""
    shape = len(a), len(b)
    return np.matmul(a, b.T, out=buffer[: len(a) * len(b)].reshape(shape))


def _check_saved(output, log_sum_exp, grad_output):
    wanted = {
        "output": (output, grad_output.shape),
        "log_sum_exp": (log_sum_exp, grad_output.shape[:-1]),
    }
    for name, (array, shape) in wanted.items():
        validate.instance(name, array, np.ndarray)
        if array.shape != shape:
            raise ValueError(
                f"{name} must be what online_attention returned, of shape {shape}, "
                f"got {array.shape}"
            )
