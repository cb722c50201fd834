"""Inputs whose sizes all differ, options of a call, and one way to call every implementation."""

from typing import NamedTuple

import numpy as np
import torch

from mha_lib import pytorch, scratch
from mha_lib.pytorch.conversion import array
from mha_lib.scratch import Projections

NUM_HEADS, D_K, D_V, D_MODEL = 2, 4, 3, 9
BATCHES = ((), (2,), (3, 2))
# (n_q, n_kv): the usual case, more queries than keys, none of either, one of each
LENGTHS = ((3, 5), (5, 3), (0, 5), (3, 0), (1, 1))


def generator(seed=0):
    return np.random.default_rng(seed)


def head_inputs(batch=(2,), n_q=3, n_kv=5, dtype=np.float64, seed=0):
    """query, key and value inside one head."""
    shapes = (n_q, D_K), (n_kv, D_K), (n_kv, D_V)
    return [generator(seed).normal(size=(*batch, *shape)).astype(dtype) for shape in shapes]


def layer_inputs(batch=(2,), n_q=3, n_kv=5, widths=(7, 6, 8), dtype=np.float64):
    """query, key and value before projection, each of its own width."""
    shapes = zip((n_q, n_kv, n_kv), widths, strict=True)
    return [generator(2).normal(size=(*batch, *shape)).astype(dtype) for shape in shapes]


def projections(widths=(7, 6, 8), d_model=D_MODEL, num_heads=NUM_HEADS, biases=True):
    """Learned matrices for these widths."""
    rng, inner_k, inner_v = generator(3), num_heads * D_K, num_heads * D_V
    shapes = (widths[0], inner_k), (widths[1], inner_k), (widths[2], inner_v), (inner_v, d_model)
    matrices = [rng.normal(size=shape) / 2 for shape in shapes]
    return Projections(*matrices, *(rng.normal(size=s[1]) for s in shapes if biases))


def options(batch=(2,), n_q=3, n_kv=5):
    """Masks, biases and flags of a call, by name."""
    rng = generator(4)
    scores = (*batch, n_q, n_kv)
    mask, bias = rng.random(scores) < 0.6, rng.normal(size=scores)
    one_row_blocked = mask.copy()
    one_row_blocked[..., 1:2, :] = False
    lengths = rng.integers(n_kv + 1, size=batch)[..., None, None]
    position, row = np.arange(n_kv), np.arange(n_kv)[None] % 2 == 0
    return {
        "nothing": {},
        "mask": {"mask": mask},
        "mask for all samples": {"mask": rng.random((n_q, n_kv)) < 0.6},
        "one row of keys": {"mask": row},
        "padding right": {"mask": position < lengths},
        "padding left": {"mask": position[::-1] < lengths},
        "one query blocked": {"mask": one_row_blocked},
        "everything blocked": {"mask": np.zeros_like(mask)},
        "everything open": {"mask": np.ones_like(mask)},
        "causal": {"causal": True},
        "causal and mask": {"causal": True, "mask": mask},
        "bias": {"bias": bias},
        "bias a query": {"bias": rng.normal(size=(n_q, 1))},
        "bias a key": {"bias": rng.normal(size=(1, n_kv))},
        "bias and mask": {"bias": bias, "mask": one_row_blocked},
        "bias, causal and mask": {"bias": bias, "causal": True, "mask": one_row_blocked},
        "scale": {"scale": 0.3},
        "negative scale": {"scale": -0.3, "mask": mask},
    }


def layer_options(batch=(2,), n_q=3, n_kv=5):
    """The options of a layer: those above and the ones with a head axis."""
    rng, scores = generator(5), (*batch, NUM_HEADS, n_q, n_kv)
    mask, bias = rng.random(scores) < 0.6, rng.normal(size=scores)
    return options(batch, n_q, n_kv) | {
        "mask a head": {"mask": mask},
        "mask with head axis for all heads": {"mask": mask[..., :1, :, :]},
        "bias a head": {"bias": bias},
        "bias a head, causal and mask": {"bias": bias, "mask": mask, "causal": True},
    }


class Core(NamedTuple):
    """One attention function, called with arrays whatever it computes with."""

    forward: callable  # output and weights (None where it has none)
    backward: callable  # gradients of query, key, value and, if given, bias, by name


def numpy_backward(grad_output, query, key, value, **options):
    gradients = scratch.scaled_dot_product_attention_backward(
        grad_output, query, key, value, **options
    )
    return {name: g for name, g in gradients._asdict().items() if g is not None}


def torch_core(need_weights):
    """A core of PyTorch, fed with arrays."""

    def run(tensors, options):
        return pytorch.scaled_dot_product_attention(**tensors, **options, need_weights=need_weights)

    def forward(query, key, value, **options):
        tensors, options = to_tensors(options | {"query": query, "key": key, "value": value})
        output, weights = run(tensors, options)
        return array(output), None if weights is None else array(weights)

    def backward(grad_output, query, key, value, **options):
        tensors, options = to_tensors(options | {"query": query, "key": key, "value": value})
        learned = {name: t.requires_grad_() for name, t in tensors.items() if name != "mask"}
        output, _ = run(tensors, options)
        (output * torch.from_numpy(grad_output)).sum().backward()
        return {name: array(t.grad) for name, t in learned.items()}

    return Core(forward, backward)


def to_tensors(arguments):
    """Arrays as tensors of their own, and what is no array."""
    arrays = {name: a for name, a in arguments.items() if isinstance(a, np.ndarray)}
    rest = {name: a for name, a in arguments.items() if name not in arrays}
    return {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}, rest


CORES = {
    "numpy": Core(scratch.scaled_dot_product_attention, numpy_backward),
    "torch explicit": torch_core(need_weights=True),
    "torch fused": torch_core(need_weights=False),
}

LAYERS = {
    "loop": scratch.multi_head_attention_loop,
    "fused": scratch.multi_head_attention,
    "sum": scratch.multi_head_attention_sum,
}
