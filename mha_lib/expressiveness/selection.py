"""How well one head picks one of n random keys as d_k shrinks."""

import math
from typing import NamedTuple

import numpy as np

from mha_lib.scratch import softmax


class Picks(NamedTuple):
    """How often the right key has the largest score, and its mean weight."""

    right: float
    weight: float


class Scores(NamedTuple):
    """Scaled scores q k / √d_k of random pairs, and how far a key's own score stands out."""

    variance: float
    kurtosis: float
    signal_to_noise: float


def picks(d_k, n=128, cosine=1.0, draws=8, seed=0):
    """Draw n normal keys and a query for each; ``cosine`` is about that of a query and its key.

    >>> result = picks(32)
    >>> round(result.right, 2), round(result.weight, 1)
    (1.0, 0.5)
    """
    rng = np.random.default_rng(seed)
    key, noise = rng.normal(size=(2, draws, n, d_k))
    query = cosine * key + math.sqrt(1 - cosine**2) * noise
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(d_k)  # (draws, n, n)
    right = scores.argmax(axis=-1) == np.arange(n)
    weight = np.diagonal(softmax(scores), axis1=-2, axis2=-1)
    return Picks(float(right.mean()), float(weight.mean()))


def chance(d_k, n=128):
    """The probability of picks(d_k, n).right, exactly: E[Φ(‖q‖)^(n - 1)] for a normal query q = k.

    Its own key scores ‖q‖², and every other one a normal number of deviation ‖q‖.

    >>> round(chance(8), 3), round(128 * chance(1), 6)
    (0.568, 2.0)
    """
    length = (np.arange(6000) + 0.5) / 6000 * (math.sqrt(d_k) + 12)  # midpoints
    log_density = (d_k - 1) * np.log(length) - length**2 / 2
    density = np.exp(log_density - log_density.max())
    below = np.array([(1 + math.erf(x / math.sqrt(2))) / 2 for x in length])
    return float((density * below ** (n - 1)).sum() / density.sum())


def scores(d_k, pairs=200_000, seed=0):
    """Scores of random pairs: variance 1 and kurtosis 3 + 6/d_k; a query's own key at √d_k.

    >>> result = scores(16)
    >>> round(result.variance, 1), round(result.signal_to_noise, 1)
    (1.0, 4.0)
    """
    rng = np.random.default_rng(seed)
    total, own = np.zeros(pairs), np.zeros(pairs)
    for _ in range(d_k):  # one feature at a time, to keep the memory small
        query, key = rng.normal(size=(2, pairs))
        total += query * key / math.sqrt(d_k)
        own += query * query / math.sqrt(d_k)
    variance = total.var()
    kurtosis = ((total - total.mean()) ** 4).mean() / variance**2
    return Scores(float(variance), float(kurtosis), float(own.mean() / math.sqrt(variance)))


def largest_weight(n, d_k):
    """The largest weight that one of n keys can get if queries and keys have root mean square 1.

    >>> round(largest_weight(32, 8), 3)
    0.902
    """
    return 1 / (1 + (n - 1) * math.exp(-2 * math.sqrt(d_k)))


def most_keys(d_k, weight=0.9):
    """The largest n at which largest_weight still reaches ``weight``.

    >>> [most_keys(d_k) for d_k in (8, 16)]
    [32, 332]
    """
    return 1 + math.floor(math.exp(2 * math.sqrt(d_k)) * (1 - weight) / weight)


def packing(d_k, radius, weight=0.9):
    """How many keys at most can each be given ``weight``, if no q or k is longer than ``radius``.

    >>> round(packing(2, radius=4))
    128
    """
    lead = math.log(weight / (1 - weight)) * math.sqrt(d_k)  # of the right score over each other
    return (1 + 2 * radius**2 / lead) ** d_k
