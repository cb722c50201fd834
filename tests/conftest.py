"""What all tests share: the same random numbers each time, and every core by name."""

import numpy as np
import pytest
import torch
from hypothesis import settings

from .cases import CORES, LAYERS

# The same examples on every machine, and no test that depends on how fast it is.
settings.register_profile("book", derandomize=True, database=None, deadline=None, max_examples=20)
settings.load_profile("book")

torch.set_num_threads(1)  # tests run side by side, and their matrices are tiny


@pytest.fixture(autouse=True)
def seed():
    """Fix the random numbers that a test draws."""
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(params=CORES)
def core(request):
    """Each attention function of the library."""
    return CORES[request.param]


@pytest.fixture(params=LAYERS)
def layer(request):
    """Each of the three ways to compute multi-head attention in NumPy."""
    return LAYERS[request.param]
