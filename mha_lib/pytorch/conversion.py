"""The same matrices in torch's layer, in ours and in the NumPy version: exact, both ways."""

import torch
from torch import nn

from mha_lib import validate
from mha_lib.pytorch.multi_head import MultiHeadAttention
from mha_lib.scratch.projections import Projections


def from_torch(module):
    """Our layer with the matrices of an ``nn.MultiheadAttention``.

    Ours is batch first, whatever ``module.batch_first`` says: inputs are (batch, n, d_model).
    Raises ValueError for layers that ours has no counterpart to: kdim, vdim, add_bias_kv,
    add_zero_attn.

    >>> from_torch(nn.MultiheadAttention(8, 2))
    MultiHeadAttention(
      d_model=8, num_heads=2, num_kv_heads=2, d_k=4, d_v=4
      (w_qkv): Linear(in_features=8, out_features=24, bias=True)
      (w_o): Linear(in_features=8, out_features=8, bias=True)
    )
    """
    _check_torch(module)
    weight = module.in_proj_weight
    layer = MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        use_bias=module.in_proj_bias is not None,
        dropout=module.dropout,
        device=weight.device,
        dtype=weight.dtype,
    )
    _copy(
        (layer.w_qkv.weight, weight),
        (layer.w_qkv.bias, module.in_proj_bias),
        *_outputs(layer, module),
    )
    return layer.train(module.training)


def to_torch(layer):
    """An ``nn.MultiheadAttention`` (batch first) with the weights of our layer.

    Raises ValueError where torch's layer cannot hold them: grouped heads, num_heads * d_k or
    num_heads * d_v other than d_model.

    >>> to_torch(MultiHeadAttention(8, 2)).in_proj_weight.shape
    torch.Size([24, 8])
    """
    _check_fits_torch(layer)
    weight = layer.w_qkv.weight
    module = nn.MultiheadAttention(
        layer.d_model,
        layer.num_heads,
        bias=layer.w_qkv.bias is not None,
        dropout=layer.dropout,
        batch_first=True,
        device=weight.device,
        dtype=weight.dtype,
    )
    pairs = ((layer.w_qkv.weight, module.in_proj_weight), (layer.w_qkv.bias, module.in_proj_bias))
    _copy(*((new, old) for old, new in (*pairs, *_outputs(layer, module))))
    return module.train(layer.training)


def from_projections(projections, num_heads):
    """Our layer with the matrices of the NumPy version, in their dtype.

    Raises ValueError if query, key and value are not all d_model wide, or some biases are missing.

    >>> import numpy as np
    >>> layer = from_projections(Projections.random(8, np.random.default_rng(0)), num_heads=2)
    >>> layer.w_qkv.weight.dtype
    torch.float64
    """
    p = projections
    _check_projections(p, num_heads)
    inputs = [torch.from_numpy(matrix.T.copy()) for matrix in (p.w_q, p.w_k, p.w_v)]
    layer = MultiHeadAttention(
        p.w_o.shape[1],
        num_heads,
        d_k=p.w_q.shape[1] // num_heads,
        d_v=p.w_v.shape[1] // num_heads,
        use_bias=p.b_q is not None,
        dtype=inputs[0].dtype,
    )
    pairs = [(layer.w_qkv.weight, torch.cat(inputs)), (layer.w_o.weight, torch.from_numpy(p.w_o.T))]
    if p.b_q is not None:
        biases = [torch.from_numpy(b) for b in (p.b_q, p.b_k, p.b_v)]
        pairs += [(layer.w_qkv.bias, torch.cat(biases)), (layer.w_o.bias, torch.from_numpy(p.b_o))]
    _copy(*pairs)
    return layer


def to_projections(layer):
    """The NumPy version's matrices from our layer, copied; shared key-value heads are repeated.

    >>> to_projections(MultiHeadAttention(8, 2)).w_q.shape
    (8, 8)
    """
    validate.instance("layer", layer, MultiHeadAttention)
    weights = _per_query_head(layer, layer.w_qkv.weight)
    matrices = [array(w.T) for w in (*weights, layer.w_o.weight)]
    if layer.w_qkv.bias is None:
        return Projections(*matrices)
    biases = _per_query_head(layer, layer.w_qkv.bias)
    return Projections(*matrices, *(array(b) for b in (*biases, layer.w_o.bias)))


def pool_heads(layer, num_kv_heads):
    """A layer with fewer key-value heads, each the mean of those that it stands for.

    Heads next to each other are pooled. The result is another function, meant to be trained a
    little more. Source: Ainslie et al. 2023, "GQA", section 2.1.
    Raises ValueError unless ``num_kv_heads`` divides the layer's own.

    >>> pool_heads(MultiHeadAttention(8, 4), num_kv_heads=2).w_qkv
    Linear(in_features=8, out_features=16, bias=True)
    """
    validate.instance("layer", layer, MultiHeadAttention)
    validate.positive_integer("num_kv_heads", num_kv_heads)
    if layer.num_kv_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide the layer's num_kv_heads = {layer.num_kv_heads}, "
            f"got {num_kv_heads}"
        )
    return _with_kv_heads(layer, num_kv_heads, lambda x: x.unflatten(0, (num_kv_heads, -1)).mean(1))


def unshare_heads(layer):
    """The same function without sharing: every query head has a copy of its key-value head.

    >>> unshare_heads(MultiHeadAttention(8, 4, num_kv_heads=2)).w_qkv
    Linear(in_features=8, out_features=24, bias=True)
    """
    validate.instance("layer", layer, MultiHeadAttention)
    return _with_kv_heads(layer, layer.num_heads, _repeat(layer))


def array(tensor):
    """A tensor's numbers as a NumPy array of its own.

    >>> array(torch.ones(2, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    return tensor.detach().cpu().numpy().copy()


def _with_kv_heads(layer, num_kv_heads, change):
    """A layer whose key and value heads, (heads, d, ...), are those of ``layer`` changed."""
    weight, bias = layer.w_qkv.weight, layer.w_qkv.bias
    new = MultiHeadAttention(
        layer.d_model,
        layer.num_heads,
        num_kv_heads=num_kv_heads,
        d_k=layer.d_k,
        d_v=layer.d_v,
        use_bias=bias is not None,
        dropout=layer.dropout,
        device=weight.device,
        dtype=weight.dtype,
    )
    pairs = [(new.w_o.weight, layer.w_o.weight), (new.w_o.bias, layer.w_o.bias)]
    pairs += [(new.w_qkv.weight, torch.cat(_change_kv_heads(layer, weight, change)))]
    if bias is not None:
        pairs += [(new.w_qkv.bias, torch.cat(_change_kv_heads(layer, bias, change)))]
    _copy(*pairs)
    return new.train(layer.training)


def _change_kv_heads(layer, stacked, change):
    """Rows of query, key and value, those of key and value changed as (heads, d, ...)."""
    q, k, v = stacked.split(layer.widths)
    k, v = (change(x.unflatten(0, (layer.num_kv_heads, -1))).flatten(0, 1) for x in (k, v))
    return q, k, v


def _per_query_head(layer, stacked):
    """Rows of query, key and value, those of a shared key-value head once for each of its heads."""
    return _change_kv_heads(layer, stacked, _repeat(layer))


def _repeat(layer):
    group = layer.num_heads // layer.num_kv_heads
    return lambda x: x.repeat_interleave(group, dim=0)


def _outputs(layer, module):
    return ((layer.w_o.weight, module.out_proj.weight), (layer.w_o.bias, module.out_proj.bias))


@torch.no_grad()
def _copy(*pairs):
    for target, source in pairs:
        if target is not None:
            target.copy_(source)


def _check_torch(module):
    validate.instance("module", module, nn.MultiheadAttention)
    odd = {
        "kdim or vdim": not module._qkv_same_embed_dim,
        "add_bias_kv": module.bias_k is not None,
        "add_zero_attn": module.add_zero_attn,
    }
    if any(odd.values()):
        found = ", ".join(name for name, there in odd.items() if there)
        raise ValueError(f"module must be a plain nn.MultiheadAttention, got one with {found}")


def _check_fits_torch(layer):
    validate.instance("layer", layer, MultiHeadAttention)
    h, kv, d_model = layer.num_heads, layer.num_kv_heads, layer.d_model
    if not h * layer.d_k == h * layer.d_v == d_model or kv != h:
        raise ValueError(
            "layer must have num_kv_heads = num_heads and d_k = d_v = d_model / num_heads to fit "
            f"nn.MultiheadAttention, got {layer.extra_repr()}"
        )


def _check_projections(p, num_heads):
    validate.instance("projections", p, Projections)
    p.check_matrices(num_heads)
    d_model = p.w_o.shape[1]
    for name, matrix in (("w_q", p.w_q), ("w_k", p.w_k), ("w_v", p.w_v)):
        if matrix.shape[0] != d_model:
            raise ValueError(f"{name} must have d_model = {d_model} rows, got shape {matrix.shape}")
    if len({b is None for b in (p.b_q, p.b_k, p.b_v, p.b_o)}) > 1:
        raise ValueError("projections must have all four biases or none, got some of them")
