"""Gradient descent on the tasks: all seeds at once, gradients by hand, Adam; seconds on one core.

Arrays have a leading axis for seeds and one for heads, (seeds, h, ...). A layer acts on its values
by the map sum over heads of weights ⊗ W^V W^O; a task says what is wrong with that map.
"""

from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from mha_lib import validate
from mha_lib.expressiveness.layers import Layer
from mha_lib.scratch import Projections, merge_heads, softmax, softmax_backward
from mha_lib.scratch.attention import sum_to_shape


class Weights(NamedTuple):
    """w_q (seeds, h, d_query, d_k), w_k and w_v likewise, w_o (seeds, h, d_v, d_out).

    In multi-query attention w_k and w_v have one head, which all query heads share.
    """

    w_q: np.ndarray
    w_k: np.ndarray
    w_v: np.ndarray
    w_o: np.ndarray

    def count(self):
        """How many numbers one seed learns."""
        return sum(array[0].size for array in self)

    def layer(self, seed):
        """The layer of one seed, in the form that the rest of the book uses."""
        num_heads = self.w_q.shape[1]
        whole = [np.repeat(w[seed], num_heads // w.shape[1], axis=0) for w in self[:3]]
        side_by_side = (merge_heads(w) for w in whole)
        return Layer(Projections(*side_by_side, np.concatenate(self.w_o[seed])), num_heads)


class Trained(NamedTuple):
    """Final losses (seeds,), errors of each query (seeds, n_q), all losses on the way, weights.

    ``history`` is (steps + 1, seeds), from the first random weights to the last.
    """

    losses: np.ndarray
    errors: np.ndarray
    history: np.ndarray
    weights: Weights


def train(
    task,
    num_heads,
    *,
    seeds=8,
    steps=1000,
    rate=0.1,
    shared_kv=False,
    label="",
):
    """Train one layer for each seed 0, 1, ... seeds - 1 on the exact loss of a task.

    All have task.width features, shared by the heads. ``shared_kv`` gives all heads the same keys
    and values (multi-query attention). ``rate`` falls to 0 along a cosine. A ``label`` shows a
    progress bar. There are no biases; the bounds allow for them.

    >>> from mha_lib.expressiveness import tasks
    >>> train(tasks.bits(), num_heads=1, seeds=3, steps=300).losses.round(3).tolist()
    [1.0, 1.0, 1.0]
    >>> train(tasks.bits(), num_heads=2, seeds=3, steps=300).losses.round(3).tolist()
    [0.0, 0.0, 0.0]
    """
    validate.positive_integer("seeds", seeds)
    validate.positive_integer("steps", steps)
    weights = initial(task, num_heads, seeds, shared_kv)
    adam, history = Adam(weights), []
    for step in tqdm(range(steps), desc=label, leave=False, disable=not label):
        errors, gradients = errors_and_gradients(task, weights)
        history.append(errors.sum(axis=-1))
        weights = adam.step(weights, gradients, rate * (1 + np.cos(np.pi * step / steps)) / 2)
    errors, _ = errors_and_gradients(task, weights)
    losses = errors.sum(axis=-1)
    return Trained(losses, errors, np.array([*history, losses]), weights)


def initial(task, num_heads, seeds, shared_kv=False):
    """Normal weights of variance 1 / (number of rows); a seed gets the same ones in any company."""
    d_k, d_v = validate.head_widths(task.width, num_heads)
    d_out = task.target.shape[-1]
    kv_heads = 1 if shared_kv else num_heads
    shapes = (
        (num_heads, task.query.shape[-1], d_k),
        (kv_heads, task.key.shape[-1], d_k),
        (kv_heads, task.d_value, d_v),
        (num_heads, d_v, d_out),
    )
    rows = (*(shape[1] for shape in shapes[:3]), task.width)
    draws = [np.random.default_rng(seed) for seed in range(seeds)]
    return Weights(
        *(
            np.stack([rng.normal(size=shape) for rng in draws]) / np.sqrt(n)
            for shape, n in zip(shapes, rows, strict=True)
        )
    )


def errors_and_gradients(task, weights):
    """Errors of each query (seeds, n_q), and the gradients of their sum, as Weights."""
    q = task.query @ weights.w_q[:, :, None]  # (seeds, h, N, n_q, d_k)
    k = task.key @ weights.w_k[:, :, None]  # (seeds, h, N, n_kv, d_k)
    scale = q.shape[-1] ** -0.5
    attention = softmax(scale * (q @ k.swapaxes(-1, -2)))  # (seeds, h, N, n_q, n_kv)
    value_map = weights.w_v @ weights.w_o  # (seeds, h, d_value, d_out)
    answer = task.apply(_sum_of_products(attention, value_map))
    grad_maps = task.apply_backward(2 / len(task.query) * (answer - task.target))
    grad_attention, grad_value_map = _products_backward(grad_maps, attention, value_map)
    grad_scores = scale * softmax_backward(grad_attention, attention)
    gradients = (
        (task.query.swapaxes(-1, -2) @ grad_scores @ k).sum(axis=2),
        (task.key.swapaxes(-1, -2) @ grad_scores.swapaxes(-1, -2) @ q).sum(axis=2),
        grad_value_map @ weights.w_o.swapaxes(-1, -2),
        weights.w_v.swapaxes(-1, -2) @ grad_value_map,
    )
    shared = (sum_to_shape(g, w.shape) for g, w in zip(gradients, weights, strict=True))
    return task.errors(answer), Weights(*shared)


class Adam:
    """Adam (Kingma and Ba 2015) over the arrays of a Weights."""

    def __init__(self, weights, decay=0.9, square_decay=0.999):
        """Start with averages of 0."""
        self.decays, self.count = (decay, square_decay), 0
        self.averages = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]

    def step(self, weights, gradients, rate):
        """Weights moved against the gradients by about ``rate``."""
        self.count += 1
        self.averages = [
            tuple(d * a + (1 - d) * x for d, a, x in zip(self.decays, pair, (g, g**2), strict=True))
            for pair, g in zip(self.averages, gradients, strict=True)
        ]
        mean_bias, square_bias = (1 - d**self.count for d in self.decays)
        return Weights(
            *(
                w - rate * (mean / mean_bias) / (np.sqrt(square / square_bias) + 1e-9)
                for w, (mean, square) in zip(weights, self.averages, strict=True)
            )
        )


def _sum_of_products(attention, value_map):
    """Sum over heads of attention ⊗ value_map: (seeds, N, n_q, n_kv, d_value, d_out)."""
    seeds, _, *places = attention.shape
    maps = _flat(attention).swapaxes(1, 2) @ _flat(value_map)
    return maps.reshape(seeds, *places, *value_map.shape[2:])


def _products_backward(grad_maps, attention, value_map):
    """Gradients of both factors of every head, from the gradient of the sum of their products."""
    places = _flat(attention).shape[-1]
    grad = grad_maps.reshape(len(grad_maps), places, -1)
    grad_attention = _flat(value_map) @ grad.swapaxes(1, 2)
    grad_value_map = _flat(attention) @ grad
    return grad_attention.reshape(attention.shape), grad_value_map.reshape(value_map.shape)


def _flat(array):
    """(seeds, h, ...) as (seeds, h, everything else)."""
    return array.reshape(*array.shape[:2], -1)
