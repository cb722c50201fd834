"""Softmax and attention with a part exchanged: what planted faults are made of."""

import numpy as np


def softmax_over(axis, top_axis=-1):
    """A softmax whose sum runs over ``axis``, and whose maximum over ``top_axis``."""

    def softmax(scores):
        exponentials = np.exp(scores - scores.max(axis=top_axis, keepdims=True))
        return exponentials / exponentials.sum(axis=axis, keepdims=True)

    return softmax


def bare_softmax_over(axis):
    """A softmax over ``axis`` that subtracts no maximum."""

    def softmax(scores):
        exponentials = np.exp(scores)
        return exponentials / exponentials.sum(axis=axis, keepdims=True)

    return softmax


def products(query, key):
    """The dot product of every query and key: scores without a scale."""
    return query @ key.swapaxes(-1, -2)


def attention_scaled(divisor):
    """Attention whose scores are divided by divisor(query, key, value)."""
    return lambda q, k, v: softmax_over(-1)(products(q, k) / divisor(q, k, v)) @ v


def attention_weighted(turn):
    """Attention whose weights are turn(scores), with the right scale in the scores."""
    return lambda q, k, v: turn(products(q, k) / np.sqrt(q.shape[-1])) @ v


def filled(fill, invert=False):
    """Weights whose forbidden scores are ``fill``; allowed ones if the mask is ``invert``ed."""
    return lambda scores, mask: softmax_over(-1)(np.where(mask ^ invert, scores, fill))


def divided_again(exponentials, mask, *, guard):
    """What the mask leaves, divided by its sum; a sum of 0 counts as 1 if there is a ``guard``."""
    kept = exponentials * mask
    total = kept.sum(axis=-1, keepdims=True)
    return kept / (np.where(total == 0, 1, total) if guard else total)
