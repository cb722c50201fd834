"""Splitting features into heads and merging them again."""

import numpy as np

from mha_lib import validate


def split_heads(x, num_heads):
    """Give each head its slice of the features: (..., n, h * d) becomes (..., h, n, d).

    Head i gets columns i * d to (i + 1) * d of every token. Reshaping straight to (h, n, d) has the
    right shape too, and mixes tokens.

    >>> split_heads(np.arange(8.0).reshape(2, 4), num_heads=2)
    array([[[0., 1.],
            [4., 5.]],
    <BLANKLINE>
           [[2., 3.],
            [6., 7.]]])
    """
    validate.instance("x", x, np.ndarray)
    validate.at_least_two_axes(x=x)
    validate.divisible("x", x.shape[-1], num_heads)
    *batch, n, width = x.shape
    x = x.reshape(*batch, n, num_heads, width // num_heads)  # (..., n, h, d)
    return x.swapaxes(-3, -2)  # (..., h, n, d)


def merge_heads(x):
    """Put the heads' features side by side: (..., h, n, d) becomes (..., n, h * d).

    >>> merge_heads(split_heads(np.arange(8.0).reshape(2, 4), num_heads=2))
    array([[0., 1., 2., 3.],
           [4., 5., 6., 7.]])
    """
    validate.instance("x", x, np.ndarray)
    if x.ndim < 3:
        raise ValueError(f"x must have axes (..., num_heads, n, d), got shape {x.shape}")
    *batch, num_heads, n, d = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, n, num_heads * d)
