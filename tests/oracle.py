"""Attention written so that it can be checked by eye: plain loops in float64, one number at a time.

Nothing is reshaped or transposed, and no library computes attention here: the tests compare every
implementation with these loops.
"""

import math

import numpy as np
import torch


def attention(query, key, value, mask=None, bias=None, *, causal=False, scale=None):
    """Output (..., n_q, d_v) and weights (..., n_q, n_kv), one query after the other."""
    query, key, value = (np.asarray(a, np.float64) for a in (query, key, value))
    *batch, n_q, d_k = query.shape
    n_kv, d_v = value.shape[-2:]
    scale = 1 / math.sqrt(d_k) if scale is None else scale
    shape = (*batch, n_q, n_kv)
    mask = np.broadcast_to(True if mask is None else mask, shape)
    bias = np.broadcast_to(np.float64(0) if bias is None else bias, shape)
    output, weights = np.zeros((*batch, n_q, d_v)), np.zeros(shape)
    for b in np.ndindex(*batch):
        for i in range(n_q):
            keys = [j for j in range(n_kv) if mask[b][i, j] and visible(i, j, n_q, n_kv, causal)]
            q, rows = query[b][i].tolist(), key[b].tolist()
            scores = [scale * dot(q, rows[j]) + float(bias[b][i, j]) for j in keys]
            for j, weight in zip(keys, softmax(scores), strict=True):
                weights[b][i, j] = weight
                for c in range(d_v):
                    output[b][i, c] += weight * value[b][j, c]
    return output, weights


def layer(query, key, value, p, num_heads, mask=None, bias=None, *, causal=False, scale=None):
    """Output and weights of a layer: every head apart, through its own rows of w_o."""
    *batch, n_q, _ = query.shape
    d_k, d_v = p.w_q.shape[1] // num_heads, p.w_v.shape[1] // num_heads
    output = np.zeros((*batch, n_q, p.w_o.shape[1]))
    weights = np.zeros((*batch, num_heads, n_q, key.shape[-2]))
    for i in range(num_heads):
        k_columns, v_columns = slice(i * d_k, (i + 1) * d_k), slice(i * d_v, (i + 1) * d_v)
        head, weights[..., i, :, :] = attention(
            project(query, p.w_q[:, k_columns], part(p.b_q, k_columns)),
            project(key, p.w_k[:, k_columns], part(p.b_k, k_columns)),
            project(value, p.w_v[:, v_columns], part(p.b_v, v_columns)),
            of_head(mask, i, len(batch)),
            of_head(bias, i, len(batch)),
            causal=causal,
            scale=scale,
        )
        output += project(head, p.w_o[v_columns], p.b_o if i == 0 else None)
    return output, weights


def visible(i, j, n_q, n_kv, causal):
    """The causal rule: the queries are the last n_q positions."""
    return not causal or j <= i + n_kv - n_q


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def softmax(scores):
    top = max(scores, default=0)
    exponentials = [math.exp(score - top) for score in scores]
    total = sum(exponentials)
    return [e / total for e in exponentials]


def project(x, w, b=None):
    """x @ w + b for x (..., n, d)."""
    y = np.zeros((*x.shape[:-1], w.shape[1]))
    columns = [w[:, c].tolist() for c in range(w.shape[1])]  # plain numbers are faster in loops
    for token in np.ndindex(*x.shape[:-1]):
        row = x[token].tolist()
        for c, column in enumerate(columns):
            y[(*token, c)] = dot(row, column) + (0 if b is None else b[c])
    return y


def part(bias, columns):
    return None if bias is None else bias[columns]


def of_head(array, i, batch_axes):
    """Head i's part of a mask or bias that has a head axis, the whole of one that has not."""
    if array is None or array.ndim <= batch_axes + 2:
        return array
    return array[..., i if array.shape[-3] > 1 else 0, :, :]


def numerical_gradient(loss, array, step=1e-5):
    """Central differences of loss(), which must read ``array`` afresh each time."""
    gradient = np.zeros_like(array)
    for index in np.ndindex(*array.shape):
        middle = array[index]
        array[index] = middle + step
        above = loss()
        array[index] = middle - step
        gradient[index] = (above - loss()) / (2 * step)
        array[index] = middle
    return gradient


def assert_close(got, want, tolerance=1e-12):
    """Same shape, and every number within ``tolerance`` of what it should be; NaN equals NaN."""
    got, want = numbers(got), numbers(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def assert_same_bits(got, want):
    """Equal to the last bit, dtype and NaN included."""
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(numbers(got), numbers(want))


def numbers(x):
    """An array or tensor of any floating point type as float64."""
    return np.asarray(x.detach().double().cpu() if isinstance(x, torch.Tensor) else x, np.float64)
