"""The equality ladder: one layer computed in every way the book knows, values and gradients.

Each rung is compared, in float64, with the loop over heads and with the gradients worked out by
hand. Later chapters add rungs.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from mha_lib import scratch
from mha_lib.pytorch import from_projections, to_torch
from mha_lib.scratch.multi_head import layer_around, tiled_core

TOLERANCE = 1e-12


class Rung(NamedTuple):
    """A way to compute the layer, and how far it lies from the loop and from the hand gradients.

    ``gradient_difference`` is None for the forms that have no gradients but those by hand.
    """

    name: str
    difference: float
    gradient_difference: float | None

    @property
    def holds(self):
        """True if nothing is further off than the tolerance (NaN is)."""
        return self.difference <= TOLERANCE and (
            self.gradient_difference is None or self.gradient_difference <= TOLERANCE
        )


class Problem(NamedTuple):
    """A cross-attention layer, its two inputs, and the gradient that comes back to its output."""

    query: np.ndarray
    memory: np.ndarray
    projections: scratch.Projections
    num_heads: int
    upstream: np.ndarray

    def inputs(self):
        """The arguments of the NumPy layers."""
        return self.query, self.memory, self.memory, self.projections, self.num_heads


def climb(n_q=3, n_kv=5, d_model=24, num_heads=4, seed=0):
    """Compute one layer every way there is; a list of rungs.

    >>> all(rung.holds for rung in climb())
    True
    """
    problem = _problem(n_q, n_kv, d_model, num_heads, seed)
    reference, _ = scratch.multi_head_attention_loop(*problem.inputs())
    values = {
        "one reshape, NumPy": scratch.multi_head_attention,
        "sum over heads, NumPy": scratch.multi_head_attention_sum,
    }
    rungs = [
        Rung(name, _difference(layer(*problem.inputs())[0], reference), None)
        for name, layer in values.items()
    ]
    gradients = _gradients_by_hand(problem)
    ways = {"tiles, NumPy": _tiles} | _torch_ways(problem)
    for name, way in ways.items():
        output, *its_gradients = way(problem)
        pairs = zip(its_gradients, gradients, strict=True)
        difference = max(_difference(a, b) for a, b in pairs)
        rungs.append(Rung(name, _difference(output, reference), difference))
    return rungs


def table(rungs):
    """The rungs as lines of text.

    >>> print(table([Rung("one reshape, NumPy", 2e-16, None)]))
    one reshape, NumPy                     values 2e-16                     equal
    """
    return "\n".join(_line(rung) for rung in rungs)


def _line(rung):
    gradient = rung.gradient_difference
    gradients = "" if gradient is None else f"gradients {gradient:.0e}"
    verdict = "equal" if rung.holds else "NOT EQUAL"
    return f"{rung.name:38} values {rung.difference:.0e}   {gradients:15}   {verdict}"


def _problem(n_q, n_kv, d_model, num_heads, seed):
    rng = np.random.default_rng(seed)
    # a batch of two: torch's fused kernel is not used without a batch axis
    query, memory, upstream = (rng.normal(size=(2, n, d_model)) for n in (n_q, n_kv, n_q))
    projections = scratch.Projections.random(d_model, rng, num_heads=num_heads, biases=True)
    return Problem(query, memory, projections, num_heads, upstream)


def _gradients_by_hand(problem):
    return _in_order(scratch.multi_head_attention_backward(problem.upstream, *problem.inputs()))


def _in_order(grad):
    """Of query and memory, of the stacked matrices and biases, and of the output's."""
    p = grad.projections
    stacked = np.hstack([p.w_q, p.w_k, p.w_v]).T, np.hstack([p.b_q, p.b_k, p.b_v])
    return grad.query, grad.key + grad.value, *stacked, p.w_o.T, p.b_o


def _tiles(problem):
    """The layer by tiles: its output, and the gradients that come back through the tiles."""
    output, backward = layer_around(tiled_core, *problem.inputs())
    return output, *_in_order(backward(problem.upstream))


def _torch_ways(problem):
    """Each way gives the output and the gradients in the order of _gradients_by_hand."""
    ours = from_projections(problem.projections, problem.num_heads)
    theirs = to_torch(ours)

    def explicit(query, memory):
        return ours(query, memory, need_weights=True)[0]

    def fused(query, memory):
        return ours(query, memory)[0]

    def bare(query, memory):
        q, k, v = ours.project(query, memory, memory)  # (batch, h, n, d_k) each
        return ours.w_o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def module(query, memory):
        return theirs(query, memory, memory)[0]

    our_matrices = ours.w_qkv.weight, ours.w_qkv.bias, ours.w_o.weight, ours.w_o.bias
    their_matrices = (
        *(theirs.in_proj_weight, theirs.in_proj_bias),
        *(theirs.out_proj.weight, theirs.out_proj.bias),
    )
    return {
        "explicit, PyTorch": _differentiated(explicit, our_matrices),
        "fused, PyTorch": _differentiated(fused, our_matrices),
        "torch's scaled_dot_product_attention": _differentiated(bare, our_matrices),
        "torch's nn.MultiheadAttention": _differentiated(module, their_matrices),
    }


def _differentiated(layer, matrices):
    """A function of the problem that gives the layer's output and its gradients as arrays."""

    def way(problem):
        inputs = [torch.tensor(x, requires_grad=True) for x in (problem.query, problem.memory)]
        output = layer(*inputs)
        upstream = torch.from_numpy(problem.upstream)
        gradients = torch.autograd.grad(output, [*inputs, *matrices], upstream)
        return [tensor.detach().numpy() for tensor in (output, *gradients)]

    return way


def _difference(a, b):
    return float(np.abs(a - b).max())
