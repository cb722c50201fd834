"""The cores that run in torch, and which of torch's backends a call used."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lib.measure import cores
from mha_lib.pytorch import MultiHeadAttention

SETTINGS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
# An operation that only this backend calls. The math form has no operation of its own: torch
# takes it apart, and its softmax, which minds rows of -inf, gives it away.
OPERATIONS = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_safe_softmax": "math",
}


def run_on(point, device):
    """The point's call, without arguments and without gradients, on inputs of its own."""
    call = _layer(point, device) if point.implementation == "layer" else _core(point, device)
    return torch.no_grad()(call)


def only(backend):
    """A context in which scaled_dot_product_attention uses this backend or fails."""
    return sdpa_kernel(SETTINGS[backend])


def backend_of(call):
    """The backend that scaled_dot_product_attention used in this call, None if it was not called.

    >>> backend_of(lambda: torch.ones(2).softmax(0)) is None
    True
    """
    with _Watch() as watch:
        call()
    return next((OPERATIONS[name] for name in watch.seen if name in OPERATIONS), None)


class _Watch(TorchDispatchMode):
    """Writes down the name of each operation that torch carries out."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def _core(point, device):
    query, key = point.shapes()
    q, k, v = (_tensor(shape, point, device) for shape in (query, key, key))
    if point.implementation == "torch, written out":
        return lambda: written_out(q, k, v, point.causal)
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=point.causal)


def _layer(point, device):
    layer = MultiHeadAttention(
        point.d_model,
        point.num_heads,
        num_kv_heads=point.num_kv_heads,
        device=device,
        dtype=getattr(torch, point.dtype),
    )
    x = _tensor((1, point.n, point.d_model), point, device)
    return lambda: layer(x, causal=point.causal)


def written_out(query, key, value, causal=False):
    """The formula as it stands: matmul, softmax, matmul, with all weights in memory."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5  # (..., n_q, n_kv)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ value


def _tensor(shape, point, device):
    return torch.from_numpy(cores.numbers(shape)).to(device, getattr(torch, point.dtype))
