"""Random numbers for the cases."""

import numpy as np


def draw(rng, *shape):
    """Normal numbers with one decimal: what a message prints is the case itself.

    >>> draw(np.random.default_rng(0), 3)
    array([ 0.1, -0.1,  0.6])
    """
    return np.round(rng.normal(size=shape), 1) + 0.0


def unequal(rng, count, lowest=2):
    """Different sizes in any order: where no two are equal, a swapped axis cannot pass.

    >>> unequal(np.random.default_rng(0), 3)
    [5, 4, 7]
    """
    return (lowest + rng.permutation(count + 3)[:count]).tolist()
