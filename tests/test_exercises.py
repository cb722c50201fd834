"""The judge and its catalogue: every planted fault is named, every right answer is let through."""

import contextlib
import copy
import inspect
import io
import itertools
import json
import re
import signal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mha_lib import cost, masks, scratch
from mha_lib.exercises import CATALOGUE, check, hints, require
from mha_lib.exercises.answers import LOOSE, agree, form, is_mask, same
from mha_lib.exercises.attempt import Outcome, TooSlow, attempt, attempts
from mha_lib.exercises.catalogue import CHAPTERS
from mha_lib.exercises.judge import judge
from mha_lib.scratch.online import OnlineState, online_step

EXERCISES = list(CATALOGUE.values())
FAULTS = [
    pytest.param(exercise, sentence, faulty, id=f"{exercise.name}-{number}")
    for exercise in EXERCISES
    for number, (sentence, faulty) in enumerate(exercise.faults)
]
each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=list(CATALOGUE))


def plain(message):
    """A message without its line breaks."""
    return " ".join(message.split())


# Right answers in other styles: one name, several functions.


def average_loop(weights, values):
    total = np.zeros(values.shape[1])
    for weight, row in zip(weights, values):
        total = total + weight * row
    return total / sum(weights)


def transpose_loop(x):
    out = np.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]))
    for i in range(x.shape[-2]):
        for j in range(x.shape[-1]):
            out[..., j, i] = x[..., i, j]
    return out


def shapes_from_arrays(n_q, n_kv, d_model, num_heads):
    q, k = (np.zeros((num_heads, n, d_model // num_heads)) for n in (n_q, n_kv))
    weights = q[0] @ k[0].T
    sizes = {"output": (n_q, d_model), "weights": weights.shape, "query": q[0].shape}
    return sizes | {"key": k.shape[1:], "value": k.shape[1:]}


def shapes_as_lists(n_q, n_kv, d_model, num_heads):
    d_k = np.int64(d_model) // num_heads
    names = "query", "key", "value", "weights", "output"
    sizes = [n_q, d_k], [n_kv, d_k], [n_kv, d_k], [n_q, n_kv], [n_q, d_model]
    return dict(zip(names, sizes))


def softmax_loop(scores):
    out = np.zeros_like(scores)
    for row in np.ndindex(scores.shape[:-1]):
        exponentials = [np.exp(score - max(scores[row])) for score in scores[row]]
        out[row] = np.array(exponentials) / sum(exponentials)
    return out


def softmax_log(scores):
    return np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))


def softmax_float32(scores):
    return scratch.softmax(scores.astype(np.float32))


def attention_loop(query, key, value):
    *batch, n_q, d_k = query.shape
    out = np.zeros((*batch, n_q, value.shape[-1]))
    for *b, i in np.ndindex(*batch, n_q):
        scores = [query[(*b, i)] @ k / d_k**0.5 for k in key[tuple(b)]]
        weights = softmax_loop(np.array(scores))
        out[(*b, i)] = sum(w * v for w, v in zip(weights, value[tuple(b)]))
    return out


def attention_einsum(query, key, value):
    scores = np.einsum("...id,...jd->...ij", query * query.shape[-1] ** -0.5, key)
    return np.einsum("...ij,...jd->...id", softmax_log(scores), value)


def backward_jacobian(grad_weights, weights):
    jacobian = np.eye(weights.shape[-1]) * weights[..., None]
    jacobian = jacobian - weights[..., :, None] * weights[..., None, :]
    return np.einsum("...ij,...j->...i", jacobian, grad_weights)


def backward_loop(grad_weights, weights):
    out, n = np.zeros_like(weights), weights.shape[-1]
    for row in np.ndindex(weights.shape[:-1]):
        a, g = weights[row], grad_weights[row]
        for j in range(n):
            out[row][j] = sum(g[i] * a[i] * ((i == j) - a[j]) for i in range(n))
    return out


def additive_loop(query, key, w_query, w_key, v):
    rows = [[np.tanh(q @ w_query + k @ w_key) @ v for k in key] for q in query]
    return np.array(rows)


def additive_einsum(query, key, w_query, w_key, v):
    q, k = np.einsum("id,da->ia", query, w_query), np.einsum("jd,da->ja", key, w_key)
    return np.einsum("ija,a->ij", np.tanh(np.expand_dims(q, 1) + k), v)


def split_loop(x, num_heads):
    d = x.shape[-1] // num_heads
    return np.stack([x[..., i * d : (i + 1) * d] for i in range(num_heads)], axis=-3)


def split_einsum(x, num_heads):
    parts = x.reshape(*x.shape[:-1], num_heads, -1)
    return np.einsum("...nhd->...hnd", parts)


def merge_concatenate(x):
    return np.concatenate([x[..., i, :, :] for i in range(x.shape[-3])], axis=-1)


def merge_einsum(x):
    moved = np.einsum("...hnd->...nhd", x)
    return moved.reshape(*moved.shape[:-2], -1)


def multi_head_loop(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    parts = ([w for w in np.split(matrix, num_heads, axis=1)] for matrix in (w_q, w_k, w_v))
    heads = [attention_loop(x_q @ q, x_kv @ k, x_kv @ v) for q, k, v in zip(*parts)]
    return np.concatenate(heads, axis=-1) @ w_o


def multi_head_einsum(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = (w.reshape(len(w), num_heads, -1) for w in (w_q, w_k, w_v))
    q, k, v = (np.einsum("...nm,mhd->...hnd", x, w) for x, w in ((x_q, q), (x_kv, k), (x_kv, v)))
    w_o = w_o.reshape(num_heads, -1, w_o.shape[1])
    return np.einsum("...hnd,hdm->...nm", attention_einsum(q, k, v), w_o)


def multi_head_sum(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = (np.split(w, num_heads, axis=1) for w in (w_q, w_k, w_v))
    rows = np.split(w_o, num_heads)
    return sum(attention_loop(x_q @ a, x_kv @ b, x_kv @ c) @ r for a, b, c, r in zip(q, k, v, rows))


def masked_loop(query, key, value, mask):
    *batch, n_q, d_k = query.shape
    out = np.zeros((*batch, n_q, value.shape[-1]))
    for *b, i in np.ndindex(*batch, n_q):
        keys = np.flatnonzero(mask[i])
        if len(keys):
            scores = key[tuple(b)][keys] @ query[(*b, i)] / np.sqrt(d_k)
            out[(*b, i)] = softmax_loop(scores) @ value[tuple(b)][keys]
    return out


def masked_infinite(query, key, value, mask):
    scores = np.einsum("...id,...jd->...ij", query, key) / np.sqrt(query.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True), -1e30)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1) @ value


def masked_nan_to_num(query, key, value, mask):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.nan_to_num(exponentials / exponentials.sum(axis=-1, keepdims=True)) @ value


def contribution_loop(heads, w_o, i):
    _, n, d_v = heads.shape
    out = np.zeros((n, w_o.shape[1]))
    for c in range(d_v):
        out = out + np.outer(heads[i][:, c], w_o[i * d_v + c])
    return out


def contribution_zeros(heads, w_o, i):
    only = np.zeros_like(heads)
    only[i] = heads[i]
    return merge_concatenate(only) @ w_o


def contribution_einsum(heads, w_o, i):
    return np.einsum("hnd,hdm->hnm", heads, w_o.reshape(len(heads), -1, w_o.shape[1]))[i]


def library_layer(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads):
    learned = scratch.Projections(w_q, w_k, w_v, w_o)
    return scratch.multi_head_attention(x_q, x_kv, x_kv, learned, num_heads)[0]


def causal_loop(n_q, n_kv):
    mask = np.zeros((n_q, n_kv), bool)
    for i in range(n_q):
        mask[i, : max(i + n_kv - n_q + 1, 0)] = True
    return mask


def causal_last_rows(n_q, n_kv):
    n = max(n_q, n_kv)
    return np.tri(n, dtype=bool)[n - n_q :, n - n_kv :]


def apply_mask_loop(scores, mask):
    out = np.zeros_like(scores)
    mask = np.broadcast_to(mask, scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        out[row][mask[row]] = softmax_loop(scores[row][mask[row]])
    return out


def apply_mask_added(scores, mask):
    with np.errstate(divide="ignore"):
        return softmax_log(scores + np.log(mask))


def apply_mask_lowest(scores, mask):
    return scratch.softmax(np.where(mask, scores, np.finfo(scores.dtype).min))


def padding_loop(lengths, n_kv, side):
    mask = np.zeros((len(lengths), 1, n_kv), dtype=np.bool_)
    for row, length in zip(mask, lengths):
        row[0, slice(0, length) if side == "right" else slice(n_kv - length, n_kv)] = True
    return mask


def padding_flipped(lengths, n_kv, side):
    mask = np.array([[[j < length for j in range(n_kv)]] for length in lengths])
    return np.flip(mask, axis=-1) if side == "left" else mask


def padding_limits(lengths, n_kv, side):
    position = np.arange(n_kv)[None, :]
    length = lengths[:, None]
    real = position < length if side == "right" else position >= n_kv - length
    return np.expand_dims(real, 1)


def masked_softmax_loop(scores, mask):
    out = np.zeros_like(scores)
    mask = np.broadcast_to(mask, scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        keys = np.flatnonzero(mask[row])
        if len(keys):
            out[row][keys] = softmax_loop(scores[row][keys])
    return out


def masked_softmax_filled(scores, mask):
    return np.where(mask, scratch.softmax(np.where(mask, scores, -1e30)), 0)


def masked_softmax_any(scores, mask):
    some = mask.any(axis=-1, keepdims=True)
    return mask * softmax_log(np.where(mask | ~some, scores, -np.inf))


def masked_softmax_nan_to_num(scores, mask):
    hidden = np.where(mask, scores, -np.inf)
    exponentials = np.exp(hidden - hidden.max(axis=-1, keepdims=True))
    return np.nan_to_num(exponentials / exponentials.sum(axis=-1, keepdims=True))


def module_loop(mask, num_heads):
    return np.array([~sample for sample in mask for _ in range(num_heads)])


def module_reshape(mask, num_heads):
    n, n_q, n_kv = mask.shape
    heads = np.broadcast_to(mask[:, None], (n, num_heads, n_q, n_kv))
    return np.logical_not(heads).reshape(-1, n_q, n_kv)


def packed_blocks(lengths):
    n = sum(lengths)
    mask, start = np.zeros((n, n), bool), 0
    for length in lengths:
        mask[start : start + length, start : start + length] = np.tri(length, dtype=bool)
        start += length
    return mask


def packed_starts(lengths):
    ends = np.cumsum(lengths)
    position = np.arange(ends[-1])
    document = np.searchsorted(ends, position, side="right")
    start = (ends - lengths)[document]
    return (position >= start[:, None]) & (position <= position[:, None])


def packed_loop(lengths):
    document = [number for number, length in enumerate(lengths) for _ in range(length)]
    n = len(document)
    return np.array([[document[i] == document[j] and j <= i for j in range(n)] for i in range(n)])


def flops_by_shapes(n_q, n_kv, d_model, num_heads):
    d_k = d_model // num_heads
    head = [(n_q, d_model, d_k), (n_kv, d_model, d_k), (n_kv, d_model, d_k)]
    head += [(n_q, d_k, n_kv), (n_q, n_kv, d_k)]
    return sum(2 * a * b * c for a, b, c in [*head * num_heads, (n_q, d_model, d_model)])


def flops_in_floats(n_q, n_kv, d_model, num_heads):
    d_k = d_model / num_heads
    projections = 4.0 * (n_q + n_kv) * d_model**2
    return projections + num_heads * 2 * (2 * n_q * n_kv * d_k)


def crossover_search(d_model, causal):
    n = 1
    while 4 * d_model * (n * (n + 1) / 2 if causal else n**2) < 8 * n * d_model**2:
        n += 1
    return n


def crossover_arange(d_model, causal):
    n = np.arange(1, 5 * d_model)
    pairs = n * (n + 1) // 2 if causal else n * n
    return n[np.argmax(pairs >= 2 * n * d_model)]


def kept_by_shapes(num_layers, d_model, num_heads, num_kv_heads, n, bytes_per_number, tiled):
    d_k = d_model // num_heads
    shapes = [(num_heads, n, d_k)] * 2 + [(num_kv_heads, n, d_k)] * 2
    shapes += [(num_heads, n)] if tiled else [(num_heads, n, n)]
    return sum(num_layers * bytes_per_number * np.prod(shape) for shape in shapes)


def kept_in_floats(num_layers, d_model, num_heads, num_kv_heads, n, bytes_per_number, tiled):
    total = 0.0
    for _ in range(num_layers):
        total += 2 * n * d_model * (1 + num_kv_heads / num_heads) * bytes_per_number
        total += num_heads * n * (n if not tiled else 1) * bytes_per_number
    return total


def kept_in_the_library(num_layers, d_model, num_heads, num_kv_heads, n, each, tiled):
    layer = cost.LayerShape(d_model, num_heads, num_kv_heads)
    return num_layers * each * cost.kept_for_backward(layer, n, tiled=tiled)


def step_loop(maximum, total, mixed, scores, values):
    maximum, total, mixed = maximum.copy(), total.copy(), mixed.copy()
    for i in range(len(scores)):
        for score, value in zip(scores[i], values):
            if score == -np.inf:
                continue
            new = max(maximum[i], score)
            shrink, weight = np.exp(maximum[i] - new), np.exp(score - new)
            total[i] = total[i] * shrink + weight
            mixed[i] = mixed[i] * shrink + weight * value
            maximum[i] = new
    return [maximum, total, mixed]


def step_nan_to_num(maximum, total, mixed, scores, values):
    new = np.maximum(maximum, np.max(scores, axis=1))
    shrink = np.nan_to_num(np.exp(maximum - new))
    weights = np.nan_to_num(np.exp(scores - new[:, np.newaxis]))
    mixed = np.einsum("i,id->id", shrink, mixed) + np.einsum("ij,jd->id", weights, values)
    return new, total * shrink + np.sum(weights, 1), mixed


def step_joined(maximum, total, mixed, scores, values):
    joined = np.concatenate([maximum[:, None], scores], axis=1)
    top = joined.max(axis=1, keepdims=True)
    weights = np.exp(joined - np.maximum(top, -1e300))
    old, new = weights[:, :1], weights[:, 1:]
    return top[:, 0], old[:, 0] * total + new.sum(axis=1), old * mixed + new @ values


def step_of_the_library(maximum, total, mixed, scores, values):
    return online_step(OnlineState(maximum, total, mixed), scores, values)


def explain_by_intensity(flops, bytes_moved, seconds, peak, bandwidth):
    intensity = flops / bytes_moved
    attainable = np.minimum(peak, bandwidth * intensity)
    return intensity < peak / bandwidth, flops / seconds / attainable


def explain_loop(flops, bytes_moved, seconds, peak, bandwidth):
    bound, share = [], []
    for f, b, s in zip(flops, bytes_moved, seconds):
        bound.append(bool(f * bandwidth < b * peak))
        share.append(max(f / peak, b / bandwidth) / s)
    return np.array(bound), np.array(share, dtype=np.float32)


def distances_by_projection(points, normal, offset):
    unit = normal / np.hypot(*normal)
    foot = offset / np.hypot(*normal) * unit  # the point of the line nearest the origin
    return np.abs((points - foot) @ unit)


def distances_loop(points, normal, offset):
    length = (normal[0] ** 2 + normal[1] ** 2) ** 0.5
    return np.array([abs(normal[0] * x + normal[1] * y - offset) / length for x, y in points])


def copy_bits_closed_form(bits, beta):
    k = bits.shape[1]
    other = np.exp(-2 * beta) / (1 + (k - 1) * np.exp(-2 * beta))
    own = 1 - (k - 1) * other
    return own * bits + other * (bits.sum(axis=1, keepdims=True) - bits)


def copy_bits_loop(bits, beta):
    n, k = bits.shape
    out = np.zeros((n, k))
    for i in range(k):
        out[:, i] = bits @ softmax_loop(np.where(np.arange(k) == i, beta, -beta))
    return out


def bounds_by_singular_values(targets, span):
    size = np.linalg.svd(targets - targets.mean(axis=0), compute_uv=False)
    lost = size**2 / len(targets)
    return np.array([lost[i:].sum() for i in range(span, targets.shape[1] + 1, span)])


def bounds_by_projection(targets, span):
    centred, out = targets - targets.mean(axis=0), []
    directions = np.linalg.svd(centred)[2]
    for g in range(1, targets.shape[1] // span + 1):
        kept = directions[: g * span]
        out.append(((centred - centred @ kept.T @ kept) ** 2).sum(axis=1).mean())
    return np.array(out)


def radon_by_null_space(key):
    dependence = np.linalg.svd(np.column_stack([key, np.ones(len(key))]).T)[2][-1]
    return dependence * dependence[0] > 0


def radon_from_differences(key):
    others = np.delete(np.arange(len(key)), 0)
    matrix = np.column_stack([key[others] - key[others[0]], np.ones(len(others))])
    shares = np.linalg.solve(matrix.T, np.append(key[0] - key[others[0]], 1))
    return np.array([True, *(share < 0 for share in shares)])


def reorder_by_slices(w_q, w_k, w_v, w_o, num_heads, order):
    d_k, d_v = w_q.shape[1] // num_heads, len(w_o) // num_heads
    k = [slice(i * d_k, (i + 1) * d_k) for i in order]
    v = [slice(i * d_v, (i + 1) * d_v) for i in order]
    inner = (np.hstack([w[:, s] for s in cut]) for w, cut in ((w_q, k), (w_k, k), (w_v, v)))
    return *inner, np.vstack([w_o[s] for s in v])


def reorder_by_index(w_q, w_k, w_v, w_o, num_heads, order):
    def index(width):
        d = width // num_heads
        return (order[:, None] * d + np.arange(d)).ravel()

    k, v = index(w_q.shape[1]), index(len(w_o))
    return [w_q[:, k], w_k[:, k], w_v[:, v], w_o[v]]


def window_loop(n_q, n_kv, window):
    mask = np.zeros((n_q, n_kv), bool)
    for i in range(n_q):
        end = i + n_kv - n_q + 1
        mask[i, max(0, end - window) : max(0, end)] = True
    return mask


def window_of_triangles(n_q, n_kv, window):
    ones = np.ones((n_q, n_kv), bool)
    return np.tril(ones, n_kv - n_q) & np.triu(ones, n_kv - n_q - window + 1)


def attention_backward_loop(grad_output, query, key, value):
    grads = [np.zeros_like(x) for x in (query, key, value)]
    for b in np.ndindex(query.shape[:-2]):
        for i, q in enumerate(query[b]):
            a = softmax_loop(key[b] @ q / len(q) ** 0.5)
            g = value[b] @ grad_output[b][i]
            s = a * (g - a @ g) / len(q) ** 0.5
            grads[0][b][i] += s @ key[b]
            grads[1][b] += np.outer(s, q)
            grads[2][b] += np.outer(a, grad_output[b][i])
    return grads


def attention_backward_library(grad_output, query, key, value):
    return scratch.scaled_dot_product_attention_backward(grad_output, query, key, value)[:3]


def combine_by_log_sum_exp(maximum_a, total_a, mixed_a, maximum_b, total_b, mixed_b):
    with np.errstate(divide="ignore"):
        lse_a, lse_b = maximum_a + np.log(total_a), maximum_b + np.log(total_b)
    both = np.logaddexp(lse_a, lse_b)
    share_a, share_b = (np.nan_to_num(np.exp(lse - both)) for lse in (lse_a, lse_b))
    parts = (np.where(t > 0, t, 1)[:, None] for t in (total_a, total_b))
    return share_a[:, None] * mixed_a / next(parts) + share_b[:, None] * mixed_b / next(parts)


def combine_loop(maximum_a, total_a, mixed_a, maximum_b, total_b, mixed_b):
    rows = []
    for a, t, x, b, u, y in zip(maximum_a, total_a, mixed_a, maximum_b, total_b, mixed_b):
        if t == 0 or u == 0:
            rows.append((x + y) / (t + u or 1))
            continue
        by_a, by_b = np.exp(min(a - b, 0)), np.exp(min(b - a, 0))
        rows.append((by_a * x + by_b * y) / (by_a * t + by_b * u))
    return np.array(rows)


def cached_step_preallocated(query, key, value, keys, values):
    t, d_k = keys.shape
    grown = np.empty((t + 1, d_k)), np.empty((t + 1, values.shape[1]))
    for array, old, new in zip(grown, (keys, values), (key, value)):
        array[:t], array[t] = old, new[0]
    return attention_loop(query, *grown), *grown


def cached_step_stacked(query, key, value, keys, values):
    keys, values = np.vstack((keys, key)), np.append(values, value, axis=0)
    weights = softmax_log(np.einsum("od,td->t", query, keys) * query.shape[1] ** -0.5)
    return [np.sum(weights[:, None] * values, axis=0, keepdims=True), keys, values]


def chunk_loop(n_new, n_cached):
    mask = np.zeros((n_new, n_cached + n_new), bool)
    for i in range(n_new):
        mask[i, : n_cached + i + 1] = True
    return mask


def bytes_by_arrays(num_layers, num_heads, num_kv_heads, d_k, tokens, batch, bytes_per_number):
    shape = batch, num_kv_heads, tokens, d_k
    return sum(2 * np.prod(shape) * bytes_per_number for _ in range(num_layers))


def bytes_of_the_library(layers, num_heads, num_kv_heads, d_k, tokens, batch, each):
    layer = cost.LayerShape(num_heads * d_k, num_heads, num_kv_heads)
    return layers * cost.cache_bytes(layer, tokens, each, batch)


def grouped_loop(query, key, value):
    heads = []
    for i in range(query.shape[0]):
        j = i * key.shape[0] // query.shape[0]
        heads.append(attention_loop(query[i], key[j], value[j]))
    return np.stack(heads)


def grouped_broadcast(query, key, value):
    groups = query.reshape(len(key), -1, *query.shape[1:])
    heads = attention_einsum(groups, key[:, None], value[:, None])
    return heads.reshape(len(query), *heads.shape[2:])


def grouped_rows(query, key, value):
    """All queries of a group side by side, as more rows of one head."""
    rows = query.reshape(len(key), -1, query.shape[-1])
    return attention_einsum(rows, key, value).reshape(*query.shape[:2], value.shape[-1])


def accept_loop(length, draft, chosen):
    for drafted, wanted in zip(draft, chosen):
        if drafted != wanted:
            break
        length += 1
    return length


def accept_first_difference(length, draft, chosen):
    differs = np.flatnonzero(draft != chosen)
    return length + (differs[0] if differs.size else len(draft))


RIGHT = {
    "reorder_heads": (reorder_by_slices, reorder_by_index),
    "sliding_window": (window_loop, window_of_triangles),
    "attention_backward": (attention_backward_loop, attention_backward_library),
    "combine": (combine_by_log_sum_exp, combine_loop),
    "distances_to_line": (distances_by_projection, distances_loop),
    "copy_bits": (copy_bits_closed_form, copy_bits_loop),
    "subspace_bounds": (bounds_by_singular_values, bounds_by_projection),
    "plateaus": (
        lambda k, heads: np.array([max(0, k - g) / k for g in heads]),
        lambda k, heads: (k - np.minimum(heads, k)) / k,
    ),
    "softmax_of_average": (
        lambda a, b: np.log(a + b) - np.log(a + b).mean(axis=-1, keepdims=True),
        lambda a, b: np.apply_along_axis(lambda x: x - x.sum() / x.size, -1, np.log(a / 2 + b / 2)),
    ),
    "radon_group": (radon_by_null_space, radon_from_differences),
    "weighted_average": (
        average_loop,
        lambda weights, values: np.einsum("n,nd->d", weights, values) / weights.sum(),
        lambda weights, values: np.average(values, axis=0, weights=weights),
    ),
    "transpose_last_two": (
        transpose_loop,
        lambda x: np.einsum("...ab->...ba", x),
        lambda x: np.moveaxis(x, -1, -2),
        lambda x: x.mT,
    ),
    "attention_shapes": (shapes_from_arrays, shapes_as_lists),
    "softmax": (softmax_loop, softmax_log, softmax_float32, scratch.softmax),
    "attention": (
        attention_loop,
        attention_einsum,
        lambda *inputs: scratch.scaled_dot_product_attention(*inputs)[0],
    ),
    "softmax_backward": (backward_loop, backward_jacobian, scratch.softmax_backward),
    "additive_scores": (additive_loop, additive_einsum),
    "split_heads": (split_loop, split_einsum, scratch.split_heads),
    "merge_heads": (merge_concatenate, merge_einsum, scratch.merge_heads),
    "multi_head": (multi_head_loop, multi_head_einsum, multi_head_sum, library_layer),
    "masked_attention": (
        masked_loop,
        masked_infinite,
        masked_nan_to_num,
        lambda *inputs: scratch.scaled_dot_product_attention(*inputs)[0],
    ),
    "head_contribution": (contribution_loop, contribution_zeros, contribution_einsum),
    "causal_mask": (
        causal_loop,
        causal_last_rows,
        lambda n_q, n_kv: np.tril(np.ones((n_q, n_kv), bool), k=n_kv - n_q),
        masks.causal,
    ),
    "apply_mask": (apply_mask_loop, apply_mask_added, apply_mask_lowest),
    "padding_mask": (
        padding_loop,
        padding_flipped,
        padding_limits,
        lambda lengths, n_kv, side: masks.padding(lengths, n_kv, side=side),
    ),
    "masked_softmax": (
        masked_softmax_loop,
        masked_softmax_filled,
        masked_softmax_any,
        masked_softmax_nan_to_num,
    ),
    "to_module_head_masks": (
        module_loop,
        module_reshape,
        lambda mask, num_heads: np.repeat(mask == 0, num_heads, axis=0),
    ),
    "pack_documents": (packed_blocks, packed_starts, packed_loop),
    "layer_flops": (
        flops_by_shapes,
        flops_in_floats,
        lambda n_q, n_kv, d, h: np.int64(4 * d) * (d * (n_q + n_kv) + n_q * n_kv),
        lambda n_q, n_kv, d, h: Fraction(4 * d) * (d * (n_q + n_kv) + n_q * n_kv),
        lambda *sizes: cost.matmul_flops(cost.LayerShape(*sizes[2:]), *sizes[:2]),
    ),
    "crossover": (
        crossover_search,
        crossover_arange,
        lambda d_model, causal: cost.crossover(cost.LayerShape(d_model, 2), causal=causal),
        lambda d_model, causal: np.where(causal, 4 * d_model - 1, 2 * d_model),
        lambda d_model, causal: 4.0 * d_model - 1 if causal else 2.0 * d_model,
    ),
    "kept_bytes": (kept_by_shapes, kept_in_floats, kept_in_the_library),
    "online_step": (step_loop, step_nan_to_num, step_joined, step_of_the_library),
    "explain": (explain_by_intensity, explain_loop),
    "cached_step": (cached_step_preallocated, cached_step_stacked),
    "chunk_mask": (
        chunk_loop,
        lambda n_new, n_cached: np.tri(n_cached + n_new, dtype=bool)[n_cached:],
        lambda n, c: np.hstack([np.ones((n, c), bool), np.tril(np.ones((n, n), bool))]),
        lambda n_new, n_cached: masks.causal(n_new, n_cached + n_new),
    ),
    "cache_bytes": (bytes_by_arrays, bytes_of_the_library),
    "grouped_heads": (grouped_loop, grouped_broadcast, grouped_rows),
    "accept": (
        accept_loop,
        accept_first_difference,
        lambda length, draft, chosen: length + np.argmin(np.append(draft == chosen, False)),
    ),
}
RIGHT_ANSWERS = [
    pytest.param(CATALOGUE[name], answer, id=f"{name}-{number}")
    for name, answers in RIGHT.items()
    for number, answer in enumerate(answers)
]


@each_exercise
def test_the_solution_is_right(exercise):
    assert judge(exercise, exercise.solution).kind == "right"


@pytest.mark.parametrize("exercise, answer", RIGHT_ANSWERS)
def test_right_answers_in_other_styles_are_right(exercise, answer):
    verdict = judge(exercise, answer)
    assert verdict.kind == "right", verdict.message


def test_every_exercise_has_at_least_two_other_right_answers():
    assert RIGHT.keys() == CATALOGUE.keys()
    assert min(map(len, RIGHT.values())) >= 2


@pytest.mark.parametrize("exercise, sentence, faulty", FAULTS)
def test_every_fault_is_named_by_its_own_sentence(exercise, sentence, faulty):
    verdict = judge(exercise, faulty)
    assert verdict.kind == "named fault"
    want = f"{exercise.name}: not yet. {sentence} The smallest case that shows it:"
    assert plain(verdict.message).startswith(want)
    assert all(part in verdict.message for part in ("    expected:", "    got:"))


def same_layer(first, second):
    """True if two layers answer alike; their inputs are random."""
    x = np.random.default_rng(0).normal(size=(5, len(first[0])))
    return np.allclose(library_layer(x, x, *first), library_layer(x, x, *second), atol=1e-12)


def test_reordered_heads_compute_the_same():
    for seed in range(5):
        *layer, order = CATALOGUE["reorder_heads"].random_case(np.random.default_rng(seed))
        reordered = *CATALOGUE["reorder_heads"].solution(*layer, order), layer[-1]
        assert same_layer(layer, reordered)
        assert not np.array_equal(layer[0], reordered[0])


@each_exercise
def test_right_answers_are_right_on_random_cases(exercise):
    """Solution and other styles, on as many random cases as 200 classes would meet at least."""
    for seed in range(200):
        (case,) = exercise.random_cases(seed, count=1)
        want = attempt(exercise.solution, case)
        assert want.error is None and not want.mutated
        for answer in RIGHT[exercise.name]:
            assert agree(attempt(answer, case), want), (seed, case)


@each_exercise
def test_random_cases_have_unequal_sizes_and_belong_to_their_seed(exercise):
    first, again, other = (exercise.random_cases(seed) for seed in (1, 1, 2))
    assert all(map(same_case, first, again)) and not all(map(same_case, first, other))
    sizes = [sum(map(np.size, case)) for case in first]
    assert sizes == sorted(sizes) and len(first) == 8


def same_case(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("exercise, sentence, faulty", FAULTS)
def test_every_fault_is_named_among_random_cases_too(exercise, sentence, faulty):
    cases = [*exercise.cases(), *exercise.random_cases(seed=7, count=2)]
    verdict = judge(exercise, faulty, cases)
    assert verdict.kind == "named fault"
    assert plain(verdict.message).startswith(f"{exercise.name}: not yet. {sentence} The smallest")


def test_there_are_hundreds_of_faults():
    assert len(FAULTS) > 500


def endless(*_):
    while True:
        with contextlib.suppress(Exception):
            pass


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs Unix's alarm")
def test_an_endless_loop_ends(monkeypatch):
    exercise = CATALOGUE["softmax"]
    monkeypatch.setattr("mha_lib.exercises.attempt.attempts.__defaults__", (0.2,))
    verdict = judge(exercise, endless)
    assert verdict.kind == "too slow"
    assert "Is there a loop that does not end?" in plain(verdict.message)
    assert "scores, shape (2,)" in verdict.message
    outcomes = attempts(lambda x: endless() if x.ndim > 1 else x, exercise.cases(), seconds=0.2)
    assert len(outcomes) == 2 and outcomes[0].error is None
    assert isinstance(outcomes[1].error, TooSlow)
    assert judge(exercise, exercise.solution).kind == "right"  # the alarm is off again


@each_exercise
def test_printing_in_place_of_returning_is_told(exercise, capsys):
    verdict = judge(exercise, lambda *arguments: print(exercise.solution(*arguments)))
    assert verdict.kind == "printed" and "return instead of print" in plain(verdict.message)
    assert capsys.readouterr().out


def test_exit_is_an_exception_like_others():
    verdict = judge(CATALOGUE["softmax"], lambda scores: exit())
    assert verdict.kind == "raised" and "SystemExit" in verdict.message


def test_require_is_silent_or_says_why_not():
    require("softmax", scratch.softmax)
    require("softmax", scratch.softmax, seed=3)
    with pytest.raises(AssertionError, match="Your columns sum to 1"):
        require("softmax", lambda scores: scratch.softmax(scores, axis=-2), seed=3)


@each_exercise
def test_no_fault_agrees_with_another_or_the_solution_on_all_cases(exercise):
    cases = exercise.cases()
    answers = [[attempt(faulty, case) for case in cases] for _, faulty in exercise.faults]
    answers.append([attempt(exercise.solution, case) for case in cases])
    for first, second in itertools.combinations(answers, 2):
        assert not all(agree(a, b, LOOSE) for a, b in zip(first, second))


def test_errors_agree_if_type_and_words_do():
    def outcome(error):
        return Outcome(error=error)

    wide, high = np.zeros(2), np.zeros(3)
    assert agree(attempt(lambda: wide + high, ()), attempt(lambda: high + wide, ()))
    assert agree(attempt(lambda: wide + high, ()), attempt(lambda: wide.__iadd__(high), ()))
    assert not agree(attempt(lambda: wide + high, ()), attempt(lambda: wide + np.zeros(4), ()))
    assert not agree(outcome(ValueError("a")), outcome(TypeError("a")))
    assert not agree(outcome(ValueError("a")), Outcome(wide))


def raising_otherwise(faulty):
    """The fault, except that where it raises, it raises for another reason."""

    def answer(*arguments):
        try:
            return faulty(*arguments)
        except Exception:
            raise ValueError("another reason") from None

    return answer


@each_exercise
def test_an_error_for_another_reason_is_not_taken_for_the_fault(exercise):
    for sentence, faulty in exercise.faults:
        if any(attempt(faulty, case).error is not None for case in exercise.cases()):
            message = plain(judge(exercise, raising_otherwise(faulty)).message)
            assert sentence not in message or "Besides, on another case" in message


@each_exercise
def test_every_fault_gives_some_answer(exercise):
    """One that raises everywhere could be mistaken for another that raises for the same reason."""
    for sentence, faulty in exercise.faults:
        answers = [attempt(faulty, case) for case in exercise.cases()]
        assert any(answer.error is None for answer in answers), sentence
    sentences = [sentence for sentence, _ in exercise.faults]
    assert len(set(sentences)) == len(sentences) >= 3


@each_exercise
def test_a_stub_is_not_attempted(exercise):
    names = list(inspect.signature(exercise.solution).parameters)
    namespace = {}
    exec(f"def {exercise.name}({', '.join(names)}): ...", namespace)
    assert judge(exercise, namespace[exercise.name]).kind == "not attempted"


def ruined(exercise, ruin):
    """The solution with ``ruin`` applied to its answer."""
    return lambda *arguments: ruin(exercise.solution(*arguments))


FORMS = {e.name: form(e.solution(*e.cases()[0])) for e in EXERCISES}
ARRAYS = [e for e in EXERCISES if FORMS[e.name] in ("array", "mask")]
COUNTS = [e for e in EXERCISES if FORMS[e.name] == "number"]
SEVERAL = [e for e in EXERCISES if FORMS[e.name] == "several"]
BOOLEANS = [e for e in ARRAYS if is_mask(e.solution(*e.cases()[0]))]
NUMBERS = [exercise for exercise in ARRAYS if exercise not in BOOLEANS]
INPUT_ARRAYS = [e for e in ARRAYS + SEVERAL if isinstance(e.cases()[0][0], np.ndarray)]
each_array, each_boolean, each_number, each_count, each_several, each_with_an_input_array = (
    pytest.mark.parametrize("exercise", exercises, ids=lambda exercise: exercise.name)
    for exercises in (ARRAYS, BOOLEANS, NUMBERS, COUNTS, SEVERAL, INPUT_ARRAYS)
)


@each_exercise
def test_an_exception_is_told_with_its_line(exercise):
    def answer(*arguments):
        return {}["missing"]

    verdict = judge(exercise, answer)
    assert verdict.kind == "raised"
    assert "KeyError: 'missing'" in verdict.message
    assert 'in the line: return {}["missing"]' in verdict.message
    assert next(iter(inspect.signature(exercise.solution).parameters)) in verdict.message


@each_exercise
def test_a_wrong_number_of_arguments_is_an_exception(exercise):
    verdict = judge(exercise, lambda: None)
    assert verdict.kind == "raised"
    assert "takes 0 positional arguments" in plain(verdict.message)


@each_with_an_input_array
def test_a_changed_input_is_told(exercise):
    def answer(*arguments):
        result = copy.deepcopy(exercise.solution(*arguments))
        arguments[0][...] = 1 - arguments[0]
        return result

    assert judge(exercise, answer).kind == "mutated"


RUINS = {"list": list, "lists": lambda x: x.tolist(), "scalar": lambda x: x.sum(), "text": str}


@each_array
@pytest.mark.parametrize("ruin", RUINS.values(), ids=RUINS)
def test_a_wrong_type_is_told(exercise, ruin):
    verdict = judge(exercise, ruined(exercise, ruin))
    assert verdict.kind == "wrong type"
    came = ruin(exercise.solution(*exercise.cases()[0]))
    kind = "single number" if isinstance(came, np.number) else type(came).__name__
    assert f"returns a {kind}," in plain(verdict.message)


@each_array
def test_none_on_some_cases_is_a_missing_return(exercise):
    calls = itertools.count()

    def answer(*arguments):
        return exercise.solution(*arguments) if next(calls) == 0 else None

    verdict = judge(exercise, answer)
    assert verdict.kind == "wrong type"
    assert "lacks a return" in plain(verdict.message)


@each_array
def test_an_array_of_objects_is_a_wrong_type(exercise):
    verdict = judge(exercise, ruined(exercise, lambda x: x.astype(object)))
    assert verdict.kind == "wrong type"
    assert "an array of object" in plain(verdict.message)


@each_array
def test_a_wrong_shape_is_told(exercise):
    verdict = judge(exercise, ruined(exercise, lambda x: x[None]))
    want = exercise.solution(*exercise.cases()[0]).shape
    assert verdict.kind == "wrong shape"
    assert f"has the shape {(1, *want)}, where {want} is right" in plain(verdict.message)


@each_number
@pytest.mark.parametrize("value", (np.nan, np.inf, -np.inf))
def test_an_answer_that_is_not_finite_is_told(exercise, value):
    verdict = judge(
        exercise, ruined(exercise, lambda x: np.where(np.arange(x.shape[-1]), x, value))
    )
    assert verdict.kind == "not finite"


@each_number
def test_a_mask_in_place_of_numbers_is_a_wrong_type(exercise):
    verdict = judge(exercise, ruined(exercise, lambda x: x > 0))
    assert verdict.kind == "wrong type"
    assert "returns an array of bool, where a NumPy array" in plain(verdict.message)


@each_boolean
@pytest.mark.parametrize("dtype", (int, float, np.float32))
def test_numbers_in_place_of_a_mask_are_told_whatever_they_say(exercise, dtype):
    verdict = judge(exercise, ruined(exercise, lambda x: x.astype(dtype)))
    assert verdict.kind == "named fault"
    assert "in the right places, but a mask is boolean" in plain(verdict.message)
    verdict = judge(exercise, ruined(exercise, lambda x: 7 * x.astype(dtype)))
    assert verdict.kind == "wrong type"
    assert "where a boolean NumPy array of shape" in plain(verdict.message)
    assert ".astype(bool)" in verdict.message


@each_boolean
def test_clues_to_masks_that_no_fault_explains(exercise):
    def message(ruin):
        return plain(judge(exercise, ruined(exercise, ruin)).message)

    def odd(x):
        return (np.arange(x.size) % 2 == 0).reshape(x.shape)

    assert "allows too much" in message(lambda x: x | odd(x))
    assert "hides too much" in message(lambda x: x & odd(x))
    assert "too much" not in message(lambda x: x ^ odd(x))
    assert "only the shape is not" in message(lambda x: x[None, None])


@each_number
def test_another_difference_shows_the_smallest_case(exercise):
    verdict = judge(exercise, ruined(exercise, lambda x: x + 0.25))
    assert verdict.kind == "different"
    assert "The smallest case:" in verdict.message


def test_other_answers_than_arrays():
    exercise = CATALOGUE["attention_shapes"]

    def kind(ruin):
        return judge(exercise, ruined(exercise, ruin)).kind

    assert kind(lambda sizes: list(sizes.values())) == "wrong type"
    assert kind(lambda sizes: np.array(sizes["query"])) == "wrong type"
    assert kind(lambda sizes: {"query": sizes["query"]}) == "wrong shape"
    assert kind(lambda sizes: sizes | {"query": (1, 1)}) == "different"
    assert kind(lambda sizes: sizes | {"query": None}) == "different"


@each_count
def test_a_count_may_be_of_any_type_that_holds_it(exercise):
    for right in (int, float, np.int64, np.float64, np.array, Fraction):
        assert judge(exercise, ruined(exercise, right)).kind == "right"


@each_count
def test_a_count_of_a_wrong_type_is_told(exercise):
    def message(ruin):
        verdict = judge(exercise, ruined(exercise, ruin))
        assert verdict.kind == "wrong type"
        return plain(verdict.message)

    whole = "where a whole number is asked for"
    assert f"returns a list, {whole}" in message(lambda x: [x])
    assert f"returns an array of int64, {whole}" in message(lambda x: np.array([x]))
    assert f"returns a str, {whole}" in message(str)
    assert f"returns a bool, {whole}" in message(bool)


@each_count
def test_a_count_is_exact(exercise):
    def verdict(ruin):
        return judge(exercise, ruined(exercise, ruin))

    rounded = verdict(lambda x: np.nextafter(float(x), 0))
    assert rounded.kind == "different"
    assert "whole number, to the last digit" in rounded.message
    found, _, _ = rounded.message.partition("\n    ")  # an argument below may have a shape
    assert "shape" not in found and "times what" not in found
    for value in (np.nan, np.inf):
        assert verdict(lambda x, value=value: x * value).kind == "not finite"


@each_count
def test_clues_to_counts(exercise):
    def message(ruin):
        return plain(judge(exercise, ruined(exercise, ruin)).message)

    assert "Your number is too large." in message(lambda x: x * x + 5)
    assert "Every number is 7/5 times what it should be" in message(lambda x: 7 * x / 5)
    assert "Every number is 70 times what it should be" in message(lambda x: 70 * x)
    assert "Every number is 3 too small" in message(lambda x: x - 3)
    assert "Every number is" not in message(lambda x: x * x + 5)


def test_large_counts_are_printed_in_groups():
    solution = CATALOGUE["kept_bytes"].solution
    verdict = judge(CATALOGUE["kept_bytes"], lambda *a: 10**12 if a[0] == 80 else solution(*a))
    assert "expected: 183_" in verdict.message and "got: 1_000_000_000_000" in verdict.message


@each_several
def test_a_wrong_number_of_arrays_is_told(exercise):
    count = len(exercise.solution(*exercise.cases()[0]))

    def told(ruin):
        verdict = judge(exercise, ruined(exercise, ruin))
        return verdict.kind, plain(verdict.message)

    kind, message = told(lambda x: x[:-1])
    assert kind == "wrong shape" and f"You return {count - 1} arrays, where {count}" in message
    kind, message = told(lambda x: x[-1])
    assert kind == "wrong type" and f"a tuple of {count} arrays" in message
    assert told(list)[0] == told(tuple)[0] == "right"
    assert told(lambda x: {"all": x})[0] == "wrong type"


@each_several
@pytest.mark.parametrize("position", (0, 1))
def test_which_array_is_wrong_is_told(exercise, position):
    name = ("first", "second")[position]

    def told(ruin):
        def turn(parts):
            return *parts[:position], ruin(parts[position]), *parts[position + 1 :]

        verdict = judge(exercise, ruined(exercise, turn))
        return verdict.kind, plain(verdict.message)

    kind, message = told(lambda x: x.tolist())
    assert kind == "wrong type" and f"The {name} array that you return is a list" in message
    kind, message = told(lambda x: x[None, None])
    assert kind == "wrong shape" and f"The {name} array that you return has the shape" in message
    other = ("second", "first")[position]
    kind, message = told(
        lambda x: (x + 1.25) if x.dtype == float else x ^ (np.arange(x.size) % 2 == 0)
    )
    assert kind == "different"
    assert f"The {name} array that you return has the right shape, but" in message
    assert f"The {other} array that you return is right on every case" in message


def test_clues_to_one_of_several_arrays():
    exercise = CATALOGUE["explain"]

    def message(ruin):
        return plain(judge(exercise, ruined(exercise, ruin)).message)

    said = message(lambda x: (x[0], 3 * x[1]))
    assert "The second array that you return: every number is 3 times" in said
    assert judge(exercise, ruined(exercise, lambda x: (x[0], x[1] * np.nan))).kind == "not finite"
    assert "largest difference is 1.0e-06" in message(lambda x: (x[0], x[1] + 1e-6))


def test_online_steps_over_tiles_make_attention():
    rng = np.random.default_rng(6)
    query, key, value = rng.normal(size=(5, 4)), rng.normal(size=(11, 4)), rng.normal(size=(11, 3))
    mask = masks.causal(5, 11)
    mask[:, :3] = False  # a first tile that is hidden from every query
    scores = np.where(mask, query @ key.T / 2, -np.inf)
    state = np.full(5, -np.inf), np.zeros(5), np.zeros((5, 3))
    for start in range(0, 11, 3):
        tile = slice(start, start + 3)
        state = CATALOGUE["online_step"].solution(*state, scores[:, tile], value[tile])
    _, total, mixed = state
    want = scratch.scaled_dot_product_attention(query, key, value, mask)[0]
    np.testing.assert_allclose(mixed / total[:, None], want, rtol=0, atol=1e-14)


def test_crossover_and_layer_flops_agree():
    """Where the exercise says they meet, the layer's FLOPs are twice its projections'."""
    for d_model in (2, 10, 64):
        n = CATALOGUE["crossover"].solution(d_model, False)
        assert CATALOGUE["layer_flops"].solution(n, n, d_model, 2) == 2 * 8 * n * d_model**2


def test_a_difference_below_four_decimals_is_told():
    exercise = CATALOGUE["softmax"]
    verdict = judge(exercise, ruined(exercise, lambda x: x + 1e-6))
    assert verdict.kind == "different"
    assert "the same to four decimals; the largest difference is 1.0e-06" in verdict.message


def test_how_many_cases_are_right_is_told():
    exercise = CATALOGUE["softmax"]
    verdict = judge(exercise, lambda x: exercise.solution(x) + (x.ndim == 3))
    total = len(exercise.cases())
    assert f"{total - 1} of {total} cases are right" in plain(verdict.message)


@each_number
def test_clues_to_answers_that_no_fault_explains(exercise):
    def message(ruin):
        return plain(judge(exercise, ruined(exercise, ruin)).message)

    assert "only the shape is not" in message(lambda x: x[None, None])
    assert "Every number is -3 times what it should be" in message(lambda x: -3 * x)
    shuffled = message(lambda x: x.ravel()[::-1].reshape(x.shape) if x.ndim > 1 else x[::-1])
    assert "stand in the wrong places" in shuffled or "The smallest case that shows it" in shuffled
    assert "numbers are right" not in message(lambda x: x + 1)


@pytest.mark.parametrize("name", ("transpose_last_two", "attention", "split_heads", "multi_head"))
def test_an_answer_for_single_sequences_only_is_told(name):
    solution = CATALOGUE[name].solution

    def answer(*arguments):
        _rows, _columns = arguments[0].shape
        return solution(*arguments)

    verdict = judge(CATALOGUE[name], answer)
    assert verdict.kind == "raised"
    assert "It is right as long as there is no batch axis" in plain(verdict.message)


def test_an_input_that_comes_back_is_told():
    def transpose_last_two(x):
        x.swapaxes(-1, -2)
        return x

    verdict = judge(CATALOGUE["transpose_last_two"], transpose_last_two)
    assert "It is x, as it came in" in plain(verdict.message)


def test_a_fault_is_named_beside_an_exception():
    def attention(query, key, value):
        _n_kv, _d_k = key.shape
        return softmax_loop(query @ key.T) @ value

    verdict = judge(CATALOGUE["attention"], attention)
    assert verdict.kind == "named fault"
    assert "You left out the scale" in verdict.message
    assert "Besides, on another case your function raised ValueError" in plain(verdict.message)


def test_a_pair_of_output_and_weights_is_told():
    def attention(query, key, value):
        return scratch.scaled_dot_product_attention(query, key, value)

    pair = "returns output and weights: take the output, [0]"
    verdict = judge(CATALOGUE["attention"], attention)
    assert verdict.kind == "wrong type" and pair in plain(verdict.message)
    for merge in (scratch.merge_heads, CATALOGUE["merge_heads"].solution):

        def multi_head(x_q, x_kv, w_q, w_k, w_v, w_o, num_heads, merge=merge):
            parts = [scratch.split_heads(x, num_heads) for x in (x_q @ w_q, x_kv @ w_k, x_kv @ w_v)]
            return merge(attention(*parts)) @ w_o

        verdict = judge(CATALOGUE["multi_head"], multi_head)
        assert verdict.kind == "raised" and pair in plain(verdict.message)
    verdict = judge(CATALOGUE["softmax"], lambda scores: (scores.shape, scores))
    assert verdict.kind == "wrong type" and pair not in plain(verdict.message)


HABITS = {
    "sum in the other order": (
        "additive_scores",
        lambda query, key, w_query, w_key, v: np.tanh(key @ w_key + query @ w_query) @ v,
        "every query meets every key",
    ),
    "np.transpose with two axes": (
        "transpose_last_two",
        lambda x: np.transpose(x, (-1, -2)),
        "x.swapaxes(-1, -2)",
    ),
    "rows of the transpose": (
        "head_contribution",
        lambda heads, w_o, i: heads[i] @ w_o.T[i * heads.shape[2] : (i + 1) * heads.shape[2]].T,
        "You used columns of w_o. Head i's",
    ),
    "np.where the wrong way round": (
        "apply_mask",
        lambda scores, mask: scratch.softmax(np.where(mask, -np.inf, scores)),
        "You read the mask the other way round",
    ),
    "scores times mask": (
        "apply_mask",
        lambda scores, mask: scratch.softmax(scores * mask),
        "exp(0) is 1",
    ),
    "a square mask with a cache": (
        "causal_mask",
        lambda n_q, n_kv: np.tril(np.ones((n_kv, n_kv), bool))[-n_q:],
        "with fewer keys than queries",
    ),
    "a concatenated batch of masks": (
        "to_module_head_masks",
        lambda mask, num_heads: ~np.concatenate([mask] * num_heads),
        "M0, M1, M0, M1",
    ),
    "documents without a column": (
        "pack_documents",
        lambda lengths: np.tril(numbered(lengths) == numbered(lengths)),
        "plainly causal",
    ),
    "nan_to_num after dividing again": (
        "masked_attention",
        lambda query, key, value, mask: np.nan_to_num(renormalised(query, key, mask)) @ value,
        "divided again by what was left",
    ),
}


def numbered(lengths):
    return np.repeat(np.arange(len(lengths)), lengths)


def renormalised(query, key, mask):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    weights = np.where(mask, scratch.softmax(scores), 0)
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("name, habit, words", HABITS.values(), ids=HABITS)
def test_common_habits_are_named(name, habit, words):
    verdict = judge(CATALOGUE[name], habit)
    assert verdict.kind == "named fault" and words in plain(verdict.message)


def test_a_mask_used_as_an_index_is_named_beside_other_faults():
    def masked_attention(query, key, value, mask):
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        scores[~mask] = -1e9
        return scratch.softmax(scores) @ value

    message = plain(judge(CATALOGUE["masked_attention"], masked_attention).message)
    assert "averages all the values" in message and "IndexError" in message


def test_numpy_on_matrix_products_and_sizes_in_plain_words():
    verdict = judge(CATALOGUE["attention"], lambda query, key, value: query @ key @ value)
    assert "gufunc" not in verdict.message
    assert "the shapes in a matrix product do not fit (size 2" in plain(verdict.message)
    verdict = judge(CATALOGUE["split_heads"], lambda x, h: x.reshape(h, -1, x.shape[-1] / h))
    assert "divide with //" in plain(verdict.message)
    verdict = judge(
        CATALOGUE["to_module_head_masks"], lambda mask, h: np.repeat(not mask, h, axis=0)
    )
    assert "write ~, & and | instead of not, and, or" in plain(verdict.message)


def test_tolerance():
    x = np.array([1.0, 2.0])
    assert same(x, x * (1 + 9e-8)) and not same(x, x * (1 + 2e-7))
    assert same(0 * x, 0 * x + 9e-10) and not same(0 * x, 0 * x + 2e-9)
    third = x / 3
    assert same(third, third.astype(np.float32)) and not same(third, third.astype(np.float16))
    assert same(x, np.array([1, 2])) and not same(x, x[None])
    assert not same(x, np.array([1.0, np.nan])) and not same(x, [1.0, 2.0])


@each_exercise
def test_the_judge_never_changes_the_cases_it_shows(exercise):
    before = copy.deepcopy(exercise.cases())
    for a, b in zip(before, exercise.cases(), strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    for array in (x for case in before for x in case if isinstance(x, np.ndarray)):
        assert array.dtype in (np.float64, np.bool_, np.int64)


@each_exercise
def test_cases_grow(exercise):
    sizes = [sum(np.size(x) for x in case) for case in exercise.cases()]
    assert sizes[0] <= min(sizes[2:]) and sizes[-1] == max(sizes)


@each_exercise
def test_messages_are_stable_and_readable(exercise):
    for _, faulty in exercise.faults:
        message = judge(exercise, faulty).message
        assert message == judge(exercise, faulty).message
        assert max(map(len, message.splitlines())) <= 100
        assert "!" not in message and " at 0x" not in message
        assert not re.search(r"-0\.(?!\d)|\de[+-]\d", message)


def test_check_prints_and_keeps_what_the_reader_prints():
    def softmax(scores):
        print("mine")
        return scratch.softmax(scores)

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert check("softmax", softmax) is None
    *mine, last = printed.getvalue().splitlines()
    count = len(CATALOGUE["softmax"].cases())
    assert mine == ["mine"] * count
    assert last == f"softmax: right, on all {count} cases."


def test_overflow_warns_nobody(recwarn):
    check("softmax", lambda scores: np.exp(scores))
    assert not recwarn.list


def test_what_check_cannot_judge():
    with pytest.raises(ValueError, match=r"name must be one of .*softmax.*, got 'sofmax'"):
        check("sofmax", scratch.softmax)
    with pytest.raises(ValueError, match=r"name must be one of"):
        hints("sofmax")
    with pytest.raises(TypeError, match=r"without a call: softmax, got ndarray"):
        check("softmax", np.zeros(3))


class Tags(HTMLParser):
    """The tags of a page, checked for balance, and its text."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.open, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.seen.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@each_exercise
def test_hints_are_folded_html(exercise):
    page = hints(exercise.name)._repr_html_()
    tags = Tags(page)
    assert not tags.open
    assert tags.seen.count("details") == tags.seen.count("summary") == 3
    assert tags.text.startswith(f"{exercise.signature}. {exercise.task}Hint 1")
    assert set(tags.seen) <= {"details", "summary", "p", "pre", "code"}
    assert inspect.getsource(exercise.solution) in tags.text
    assert all(hint.replace("`", "") in tags.text for hint in exercise.hints)
    assert page == hints(exercise.name)._repr_html_()
    assert repr(hints(exercise.name)) == f"Two hints and a solution, folded: {exercise.name}"


@each_exercise
def test_the_solution_shown_runs_in_the_chapter(exercise):
    namespace = {"np": np, "scratch": scratch}
    exec(inspect.getsource(exercise.solution), namespace)
    assert judge(exercise, namespace[exercise.name]).kind == "right"


@each_exercise
def test_hints_use_nothing_that_the_chapter_lacks(exercise):
    """Numpy, scratch and the exercise's own names; a call is to one of these or to a method."""
    for code in re.findall("`([^`]+)`", " ".join(exercise.hints)):
        called = re.findall(r"(?<![\w.])\w+(?=\()", code)
        assert not called, code
        for module, name in re.findall(r"\b(np|scratch)\.(\w+)", code):
            assert hasattr({"np": np, "scratch": scratch}[module], name), code


def headings():
    """Of every exercise in the chapters: file, name, and the text of the cell before its check."""
    for path in sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb")):
        prose = ""
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                prose = source
            for name in re.findall(r'exercises\.check\("(\w+)"', source):
                yield path.name, name, prose


@pytest.mark.parametrize(
    "chapter, name, prose", [pytest.param(*found, id="-".join(found[:2])) for found in headings()]
)
def test_a_chapter_states_an_exercise_as_the_catalogue_does(chapter, name, prose):
    exercise = CATALOGUE[name]
    dots = " ".join("●●●○○○"[3 - exercise.difficulty :][:3])
    (stated,) = re.findall(r"\*\*Exercise [\d.]+\*\* · [^·]+ · ([^.]+)\.", prose) or [None]
    assert stated == f"{dots} · {exercise.minutes} minutes", f"{chapter}, exercise {name}"


def test_every_exercise_stands_in_one_chapter_in_the_catalogues_order():
    found = list(headings())
    stems = [path.stem for path in (Path(__file__).parents[1] / "notebooks").glob("*.ipynb")]
    written = [
        exercise.name
        for chapter in CHAPTERS
        if any(chapter.__name__.rpartition(".")[2] in stem for stem in stems)
        for exercise in chapter.EXERCISES
    ]
    assert [name for _, name, _ in found] == written


@each_exercise
def test_every_exercise_is_complete(exercise):
    first, second = exercise.hints
    assert 20 < len(first) < len(second)
    assert exercise.difficulty in (1, 2, 3) and 1 <= exercise.minutes <= 30
    assert exercise.signature == exercise.name + str(inspect.signature(exercise.solution))
    assert exercise.name == exercise.solution.__name__ and CATALOGUE[exercise.name] is exercise
    names = inspect.signature(exercise.solution).parameters
    assert all(len(case) == len(names) for case in exercise.cases())
    assert exercise.task.endswith(".")
    assert 20 < len(exercise.teaches) < 100 and exercise.teaches[-1] not in ".!?"


def test_the_exercises_need_neither_torch_nor_matplotlib():
    import subprocess
    import sys

    code = (
        "import sys, mha_lib.exercises;"
        "assert not {'torch', 'matplotlib'} & sys.modules.keys(), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
