"""What a sweep runs: attention cores by name, and one layer, on inputs of a given size."""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from mha_lib import scratch, validate

# Where each runs, and in which dtypes; "math" to "cudnn" are torch's own backends. A kernel that
# is missing here is not tried; one that the machine at hand lacks ends as the error of a point.
CORES = {
    "numpy, naive": {"cpu": ("float32",)},
    "numpy, tiles": {"cpu": ("float32",)},
    "torch, written out": {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16")},
    "math": {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16")},
    "flash": {"cpu": ("float32", "bfloat16"), "cuda": ("bfloat16",)},
    "memory-efficient": {"cuda": ("float32", "bfloat16")},
    "cudnn": {"cuda": ("bfloat16",)},
    "layer": {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16")},
}
BACKENDS = ("math", "flash", "memory-efficient", "cudnn")


@dataclass(frozen=True)
class Point:
    """One implementation on one size: n_q queries (n unless given) against n keys, batch 1."""

    implementation: str
    n: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    dtype: str = "float32"
    causal: bool = False
    n_q: int | None = None

    def __post_init__(self):
        for name, default in (("num_kv_heads", self.num_heads), ("n_q", self.n)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        validate.positive_integer("n", self.n)
        validate.positive_integer("n_q", self.n_q)
        validate.head_widths(self.d_model, self.num_heads)
        validate.divisible("num_heads", self.num_heads, self.num_kv_heads)
        if self.causal and (self.n_q != self.n or self.num_kv_heads != self.num_heads):
            raise ValueError(
                "causal must be False here: causal points have as many queries as keys, and as "
                f"many key heads as heads, got n_q = {self.n_q}, n = {self.n}, "
                f"num_kv_heads = {self.num_kv_heads}, num_heads = {self.num_heads}"
            )

        if self.implementation == "layer" and self.n_q != self.n:
            raise ValueError(f"layer takes as many queries as keys, n = {self.n}, got {self.n_q}")

    def shapes(self):
        """Shapes of query and of key and value, (batch, heads, tokens, d_k).

        Heads that share keys stand as rows of one head: each key is then read once for all.

        >>> Point("flash", n=5, d_model=12, num_heads=6, num_kv_heads=2, n_q=1).shapes()
        ((1, 2, 3, 2), (1, 2, 5, 2))
        """
        d_k, shared = self.d_model // self.num_heads, self.num_heads // self.num_kv_heads
        heads = 1, self.num_kv_heads
        return (*heads, shared * self.n_q, d_k), (*heads, self.n, d_k)


def supports(name, device, dtype):
    """Is this core tried on this device in this dtype?

    >>> supports("flash", "cuda", "float32"), supports("flash", "cuda", "bfloat16")
    (False, True)
    """
    return dtype in CORES[name].get(device, ())


def run_on(point, device):
    """The point's call, without arguments, on inputs of its own."""
    if point.implementation.startswith("numpy"):
        return _numpy_call(point)
    from mha_lib.measure import torch_cores

    return torch_cores.run_on(point, device)


def chosen(point):
    """A context in which torch may use the point's backend only; else one that does nothing."""
    if point.implementation not in BACKENDS:
        return nullcontext()
    from mha_lib.measure import torch_cores

    return torch_cores.only(point.implementation)


def check_backend(point, call):
    """Run the call and return the backend that torch used; refuse another than was asked for.

    None, and no call, where none is used.
    """
    if point.implementation not in (*BACKENDS, "layer"):
        return None
    from mha_lib.measure import torch_cores

    used = torch_cores.backend_of(call)
    if point.implementation in BACKENDS and used != point.implementation:
        raise RuntimeError(f"torch ran {used}, where {point.implementation} was asked for")
    return used


def numbers(shape):
    """Standard normal float32, the same at each call."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _numpy_call(point):
    inputs = [numbers(shape) for shape in _three(*point.shapes())]
    if point.implementation == "numpy, naive":
        return lambda: scratch.scaled_dot_product_attention(*inputs, causal=point.causal)
    return lambda: scratch.online_attention(*inputs, causal=point.causal)


def _three(query, key):
    return query, key, key
