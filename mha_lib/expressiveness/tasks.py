"""Small tasks for one layer of attention, each with what its heads may see.

A task gives the layer three inputs, as Vaswani et al. 2017 and nn.MultiheadAttention do: what
queries are made from, what keys are made from, and the value tokens. ``width`` is d_model: h heads
have d_k = d_v = width / h, so that any number of heads has the same number of parameters.
"""

from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from mha_lib import validate


@dataclass(frozen=True)
class Task:
    """What the layer is given and what it should answer; losses are squared errors.

    Shapes: query (N, n_q, d_query), key (N, n_kv, d_key) for N inputs.
    """

    name: str
    width: int
    query: np.ndarray
    key: np.ndarray
    target: np.ndarray

    def errors(self, answer):
        """Squared error of each query, (..., n_q), its mean over the inputs."""
        squares = (answer - self.target) ** 2
        of_an_answer = tuple(range(2 - self.target.ndim, 0))
        return squares.sum(axis=of_an_answer).mean(axis=-2)

    def loss(self, answer):
        """The errors of all queries together, (...)."""
        return self.errors(answer).sum(axis=-1)


@dataclass(frozen=True)
class Listed(Task):
    """N inputs, listed and equally likely: value (N, n_kv, d_value), target (N, n_q, d_out)."""

    value: np.ndarray

    @property
    def trivial(self):
        """The loss of the best answer that ignores the input."""
        return float(self.loss(self.target.mean(axis=0)))

    @property
    def d_value(self):
        """Features of a value token."""
        return self.value.shape[-1]

    def apply(self, maps):
        """What a layer answers that maps values by (..., N, n_q, n_kv, d_value, d_out)."""
        return np.einsum("...nijfo,njf->...nio", maps, self.value)  # (..., N, n_q, d_out)

    def apply_backward(self, grad_answer):
        """Gradient of the maps from the gradient of the answer."""
        return np.einsum("...nio,njf->...nijfo", grad_answer, self.value)

    def listed(self):
        """The task itself."""
        return self


@dataclass(frozen=True)
class Blind(Task):
    """Values that no score depends on: independent numbers with mean 0 and variance 1.

    What a layer does to such values is one linear map, sum over heads of weights ⊗ W^V W^O, so the
    target is a map too, (1, n_q, n_kv, d_value, d_out). The expected squared error is the sum of
    the squared differences: exact, with nothing sampled.
    """

    @property
    def trivial(self):
        """The loss of answering 0, which no constant improves."""
        return float(self.loss(np.zeros(1)))

    @property
    def d_value(self):
        """Features of a value token."""
        return self.target.shape[-2]

    def apply(self, maps):
        """The map is the answer."""
        return maps

    def apply_backward(self, grad_answer):
        """Gradient of the map from the gradient of the answer."""
        return grad_answer

    def listed(self):
        """The same task as a list of inputs with mean 0 and variance 1, hence the same losses.

        They are the unit vectors of all values together, and their opposites, at the right length.

        >>> three_keys().listed().value.shape
        (12, 3, 2)
        """
        _, _, n_kv, d_value, _ = self.target.shape
        size = n_kv * d_value
        units = np.sqrt(size) * np.eye(size).reshape(size, n_kv, d_value)
        value = np.concatenate([units, -units])  # (2 * size, n_kv, d_value)
        query, key = (np.repeat(x, len(value), axis=0) for x in (self.query, self.key))
        target = np.einsum("njf,ijfo->nio", value, self.target[0])
        return Listed(self.name, self.width, query, key, target, value)


def bits(k=2, width=None, see_values=False):
    """Task A: k tokens carry a bit each, σ_j u; bit j is to come out in slot j.

    One query. Keys are made from positions alone, one-hot, as where positions enter the scores
    only (RoPE, T5, ALiBi); with ``see_values`` queries and keys see the bits as well. Zeros fill
    everything up to ``width``, k unless given.

    >>> bits().value[1], bits().target[1]
    (array([[ 1.,  0.],
           [-1.,  0.]]), array([[ 1., -1.]]))
    >>> bits().trivial
    2.0
    """
    validate.positive_integer("k", k)
    width = _width(width, k)
    sign = signs(k)  # (N, k)
    query, key = np.ones((len(sign), 1, 1)), np.broadcast_to(np.eye(k), (len(sign), k, k))
    if see_values:
        query = np.concatenate([query, sign[:, -1:, None]], axis=-1)  # asked from the last token
        key = np.concatenate([key, sign[:, :, None]], axis=-1)
    given = (_filled(x, max(width, x.shape[-1])) for x in (query, key, sign[:, None]))
    return Listed(f"{k} bits into {k} slots", width, *given, _filled(sign[:, :, None], width))


def staircase(relations=4, features=3):
    """Task A for whole tokens: token j, ``features`` numbers, is to come out in slot j. One query.

    >>> staircase().trivial, staircase().width
    (12.0, 12)
    """
    target = np.einsum("jk,fg->jfkg", np.eye(relations), np.eye(features))
    target = target.reshape(1, 1, relations, features, relations * features)
    name, width = f"{relations} tokens into {relations} slots", relations * features
    return Blind(name, width, np.ones((1, 1, 1)), np.eye(relations)[None], target)


def both_contents():
    """True self-attention, positions inside the values: tokens [c_j; p_j], answer (c_1, c_2).

    Two tokens with two bits each and a one-hot position, d_model = 4; asked from the last token.

    >>> both_contents().value[0].tolist()
    [[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]]
    """
    return _self_attention("both contents", signs(4).reshape(-1, 2, 2), lambda c: (c[0], c[1]))


def half_contents():
    """The tokens of both_contents, but only one bit of each is asked: answer (c_1[0], c_2[1]).

    >>> half_contents().trivial
    2.0
    """
    contents = signs(4).reshape(-1, 2, 2)
    return _self_attention("half of both contents", contents, lambda c: (c[0, :1], c[1, 1:]))


def bits_beside_positions():
    """Task A in plain self-attention: tokens [σ_j, 0; p_j], so that values hold positions too."""
    contents = np.pad(signs(2)[:, :, None], ((0, 0), (0, 0), (0, 1)))
    return _self_attention("two bits beside positions", contents, lambda c: (c[:, 0],))


def subsets(n, width, sizes):
    """Answer query S, a set of keys, with the mean of its values; a query for each set of a size.

    Keys are one-hot, or the corners of a regular simplex where ``width`` is only n - 1; query S is
    the sum of its keys. The values have ``width`` features and are hidden from the scores.

    >>> subsets(4, 4, sizes=(1, 2, 3)).query.shape, round(subsets(4, 4, (1, 2, 3)).trivial, 4)
    ((1, 14, 4), 33.3333)
    """
    chosen = np.array([np.isin(range(n), s) for m in sizes for s in combinations(range(n), m)])
    if width < n - 1:
        raise ValueError(f"width must be at least n - 1 = {n - 1} to hold the keys, got {width}")
    key = _filled(np.eye(n), width) if n <= width else simplex(n)
    mean = chosen / chosen.sum(axis=1, keepdims=True)  # (n_q, n)
    target = np.einsum("ij,fo->ijfo", mean, np.eye(width))
    return Blind(
        f"means of subsets of {n} keys", width, (chosen @ key)[None], key[None], target[None]
    )


def three_keys():
    """Task B: look up one of three keys on a circle, d_model = 2.

    >>> three_keys().trivial
    6.0
    """
    return replace(subsets(3, 2, sizes=(1,)), name="look up one of 3 keys")


def neighbours(n=6, relations=4, features=2):
    """Each of n positions collects the tokens 0, 1, ... relations - 1 places after it, cyclically.

    Queries and keys are made from one-hot positions, so every head may choose its q_i and k_j
    freely; d_model = relations * features.

    >>> neighbours().width, neighbours().trivial
    (8, 48.0)
    """
    place = np.arange(n)
    target = np.zeros((n, n, features, relations, features))
    for shift in range(relations):
        target[place, (place + shift) % n, :, shift] = np.eye(features)
    target = target.reshape(1, n, n, features, relations * features)
    name, position = f"{relations} neighbours of {n}", np.eye(n)[None]
    return Blind(name, relations * features, position, position, target)


def signs(k):
    """All 2^k rows of k signs.

    >>> signs(2).tolist()
    [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
    """
    return np.array(list(product((1.0, -1.0), repeat=k)))


def simplex(n):
    """n corners of a regular simplex around the origin, (n, n - 1): k_i · k_j is (i = j) - 1/n.

    >>> (simplex(4) @ simplex(4).T).round(3)
    array([[ 0.75, -0.25, -0.25, -0.25],
           [-0.25,  0.75, -0.25, -0.25],
           [-0.25, -0.25,  0.75, -0.25],
           [-0.25, -0.25, -0.25,  0.75]])
    """
    corner, axis = np.indices((n, n - 1))
    above = np.where(
        corner == axis + 1, -(axis + 1.0), corner <= axis
    )  # axis i parts 0...i from i + 1
    return above / np.sqrt((axis + 1) * (axis + 2))


def _self_attention(name, contents, answer):
    """Two tokens [c_j; p_j] as query, key and value; the query is the last token."""
    position = np.broadcast_to(np.eye(2), (len(contents), 2, 2))
    x = np.concatenate([contents, position], axis=-1)  # (N, 2, 4)
    target = np.array([np.concatenate(answer(c)) for c in contents])[:, None]
    return Listed(name, x.shape[-1], x[:, -1:], x, target, x)


def _width(width, k):
    if width is None:
        return k
    if width < k:
        raise ValueError(f"width must be at least k = {k}, got {width}")
    return width


def _filled(x, width):
    """Zeros after the last feature, up to ``width``."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
