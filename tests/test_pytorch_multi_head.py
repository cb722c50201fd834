"""The PyTorch module: equal to the loops, in training and out of it, with grouped heads too."""

import numpy as np
import pytest
import torch
from torch import nn

from mha_lib.pytorch import MultiHeadAttention, from_projections, to_projections
from mha_lib.pytorch.conversion import array
from mha_lib.scratch import multi_head_attention_backward

from . import oracle
from .cases import (
    BATCHES,
    D_K,
    D_MODEL,
    D_V,
    LENGTHS,
    NUM_HEADS,
    layer_inputs,
    layer_options,
    to_tensors,
)
from .cases import projections as any_projections
from .oracle import assert_close, assert_same_bits

WIDTHS = (D_MODEL, D_MODEL, D_MODEL)


def projections(biases=True):
    return any_projections(WIDTHS, biases=biases)


def module(**arguments):
    """A layer whose sizes all differ, in float64, with biases that are not zero."""
    arguments = {"d_k": D_K, "d_v": D_V, "dtype": torch.float64} | arguments
    layer = MultiHeadAttention(D_MODEL, arguments.pop("num_heads", NUM_HEADS), **arguments)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return layer


def inputs(batch=(2,), n_q=3, n_kv=5):
    return [torch.from_numpy(a) for a in layer_inputs(batch, n_q, n_kv, WIDTHS)]


def call_options(name, batch=(2,), n_q=3, n_kv=5):
    chosen, rest = to_tensors(layer_options(batch, n_q, n_kv)[name])
    return rest | chosen


def parameter_gradients(layer, output):
    layer.zero_grad()
    output.sum().backward()
    return {name: p.grad.clone() for name, p in layer.named_parameters()}


@pytest.mark.parametrize("name", layer_options())
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_equals_the_loops(batch, name):
    p = projections(biases=name != "scale")
    layer = from_projections(p, NUM_HEADS)
    for n_q, n_kv in LENGTHS:
        arrays = layer_inputs(batch, n_q, n_kv, WIDTHS)
        want = oracle.layer(*arrays, p, NUM_HEADS, **layer_options(batch, n_q, n_kv)[name])
        x, chosen = inputs(batch, n_q, n_kv), call_options(name, batch, n_q, n_kv)
        for need_weights in (True, False):
            output, weights = layer(*x, **chosen, need_weights=need_weights)
            assert_close(output, want[0])
            assert (weights is not None) == need_weights
            if need_weights:
                assert_close(weights, want[1])


@pytest.mark.parametrize("name", layer_options())
def test_gradients_equal_those_by_hand(name):
    p, arrays = projections(), layer_inputs(widths=WIDTHS)
    layer, (query, key, value) = from_projections(p, NUM_HEADS), inputs()
    chosen = call_options(name)
    leaves = [query, key, value, *([chosen["bias"]] if "bias" in chosen else [])]
    for leaf in leaves:
        leaf.requires_grad_()
    output, _ = layer(query, key, value, **chosen)
    grad = np.linspace(-1, 1, output.numel()).reshape(output.shape)
    (output * torch.from_numpy(grad)).sum().backward()
    want = multi_head_attention_backward(grad, *arrays, p, NUM_HEADS, **layer_options()[name])
    for leaf, right in zip(leaves, (*want[:3], want.bias)):
        assert_close(leaf.grad, right)
    wanted, stacked = want.projections, np.concatenate
    qkv = stacked([wanted.w_q, wanted.w_k, wanted.w_v], axis=1)
    assert_close(layer.w_qkv.weight.grad, qkv.T)
    assert_close(layer.w_qkv.bias.grad, stacked([wanted.b_q, wanted.b_k, wanted.b_v]))
    assert_close(layer.w_o.weight.grad, wanted.w_o.T)
    assert_close(layer.w_o.bias.grad, wanted.b_o)


def test_self_attention_in_one_projection_equals_three():
    layer, x = module(), inputs()[0]
    together = layer(x)[0]
    apart = layer(x, x.clone(), x.clone())[0]
    assert_close(together, apart)
    for name, grad in parameter_gradients(layer, together).items():
        assert_close(grad, parameter_gradients(layer, layer(x, x.clone(), x.clone())[0])[name])


def test_the_memory_is_both_key_and_value_unless_told_otherwise():
    layer, (query, memory, _) = module(), inputs()
    assert_close(layer(query, memory)[0], layer(query, memory, memory.clone())[0])


@pytest.mark.parametrize("num_heads, num_kv_heads", [(4, 1), (4, 2), (6, 2), (4, 4)])
@pytest.mark.parametrize("name", ("nothing", "causal and mask", "one query blocked"))
def test_query_head_i_reads_the_key_value_head_of_its_group(num_heads, num_kv_heads, name):
    layer, group = module(num_heads=num_heads, num_kv_heads=num_kv_heads), num_heads // num_kv_heads
    arrays, chosen = layer_inputs(widths=WIDTHS), layer_options()[name]
    heads = []
    for i in range(num_heads):
        which = i, i // group, i // group
        head = [project_head(layer, *part) for part in zip(range(3), which, arrays)]
        heads.append(oracle.attention(*head, **chosen))
    concat = np.concatenate([head for head, _ in heads], axis=-1)
    want = oracle.project(concat, array(layer.w_o.weight).T, array(layer.w_o.bias))
    for need_weights in (True, False):
        output, weights = layer(*inputs(), **call_options(name), need_weights=need_weights)
        assert_close(output, want)
        if need_weights:
            assert_close(weights, np.stack([w for _, w in heads], axis=1))


def project_head(layer, part, i, x):
    """x through head i's own rows of the queries' (part 0), keys' (1) or values' (2) matrix."""
    d = (D_K, D_K, D_V)[part]
    first = sum(layer.widths[:part]) + i * d
    rows = slice(first, first + d)
    return oracle.project(x, array(layer.w_qkv.weight)[rows].T, array(layer.w_qkv.bias)[rows])


def test_grouped_heads_10_and_20_go_to_two_neighbours_each():
    layer = MultiHeadAttention(4, 4, num_kv_heads=2, use_bias=False)
    with torch.no_grad():
        layer.w_qkv.weight.zero_()
        layer.w_qkv.weight[-2:, 0] = torch.tensor([10.0, 20.0])
        layer.w_o.weight.copy_(torch.eye(4))
    output, _ = layer(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    assert output.tolist() == [[10.0, 10.0, 20.0, 20.0]]


def test_grouped_heads_equal_full_heads_with_repeated_matrices():
    layer = module(num_heads=4, num_kv_heads=2)
    full = from_projections(to_projections(layer), num_heads=4)
    assert_close(layer(*inputs(), causal=True)[0], full(*inputs(), causal=True)[0])


def test_dropout_acts_in_training_only_and_comes_back_with_it():
    layer, x = module(dropout=0.5), inputs()[0]
    without = layer.eval()(x)[0]
    for need_weights in (False, True):
        assert torch.equal(layer.eval()(x)[0], without)
        for _ in range(2):  # the second time after an evaluation
            layer.train()
            first, second = (layer(x, need_weights=need_weights)[0] for _ in range(2))
            assert not torch.equal(first, second)
            layer.eval()
            assert_close(layer(x, need_weights=need_weights)[0], without)


def test_weights_in_training_are_those_before_dropout():
    layer, x = module(dropout=0.5), inputs()[0]
    _, want = layer.eval()(x, need_weights=True)
    _, got = layer.train()(x, need_weights=True)
    assert_close(got, want)


def test_weights_are_per_head():
    _, weights = module()(*inputs(), need_weights=True)
    assert weights.shape == (2, NUM_HEADS, 3, 5)
    assert not torch.allclose(weights[:, 0], weights[:, 1])


@pytest.mark.parametrize("name", layer_options())
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_asking_for_weights_changes_neither_output_nor_gradients(name, dtype):
    layer = module(dtype=dtype)
    chosen = {n: c.to(dtype) if n == "bias" else c for n, c in call_options(name).items()}
    outcomes = []
    for need_weights in (True, False):
        x = [t.to(dtype) for t in inputs()]
        output, _ = layer(*x, **chosen, need_weights=need_weights)
        outcomes.append({"output": output} | parameter_gradients(layer, output))
    for what, explicit in outcomes[0].items():
        assert_close(explicit, outcomes[1][what], 100 * torch.finfo(dtype).eps)


def test_every_parameter_learns_but_the_key_bias():
    layer = module()
    output, _ = layer(*inputs(), **call_options("one query blocked"))
    gradients = parameter_gradients(layer, output.pow(2))
    q, k, v = layer.widths
    _, of_key, _ = gradients["w_qkv.bias"].split((q, k, v))
    assert_close(of_key, torch.zeros(k), 1e-13)
    parts = (*gradients["w_qkv.weight"].split((q, k, v)), gradients["w_o.weight"])
    assert all((part != 0).all() for part in parts)


def hidden_everywhere(name):
    """Options and keys that nobody may attend to under them."""
    row = torch.tensor([[True, False, True, False, True]])
    by_both = torch.ones(3, 5, dtype=torch.bool)
    by_both[1:, 3] = False  # allowed to query 0 alone, for which key 3 is future
    heads = row.expand(2, NUM_HEADS, 3, 5)
    return {
        "mask": ({"mask": row}, [1, 3]),
        "mask a head": ({"mask": heads}, [1, 3]),
        "mask and causal": ({"mask": row, "causal": True}, [1, 3]),
        "mask and causal together": ({"mask": by_both, "causal": True}, [3]),
        "mask and bias": ({"mask": row, "bias": call_options("bias")["bias"]}, [1, 3]),
    }[name]


@pytest.mark.parametrize("need_weights", (True, False))
@pytest.mark.parametrize("bad", (1e30, 1.7e308, np.inf, np.nan))
@pytest.mark.parametrize(
    "name", ("mask", "mask a head", "mask and causal", "mask and causal together", "mask and bias")
)
def test_hidden_inputs_change_no_bit_of_output_or_gradients(name, bad, need_weights):
    layer, clean = module(), inputs()
    chosen, hidden = hidden_everywhere(name)
    outcomes = []
    for fill in (0.0, bad):
        x = [t.clone() for t in clean]
        for t in x[1:]:
            t[:, hidden] = fill
        output, _ = layer(*(t.requires_grad_() for t in x), **chosen, need_weights=need_weights)
        grads = parameter_gradients(layer, output)
        outcomes.append([output, *(t.grad for t in x), *grads.values()])
    for want, got in zip(*outcomes, strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("bad", (np.inf, np.nan))
def test_padding_with_nan_in_self_attention_spoils_no_gradient(bad):
    """Padded tokens are neither asked nor asking: their rows and columns are both masked."""
    layer, x = module(), inputs()[0]
    real = torch.tensor([[True, True, False], [True, False, False]])
    mask = real[:, :, None] & real[:, None, :]
    outcomes = []
    for fill in (0.0, bad):
        padded = x.masked_fill(~real[..., None], fill)
        output, _ = layer(padded, mask=mask)
        outcomes.append([output, *parameter_gradients(layer, output[real]).values()])
    for want, got in zip(*outcomes, strict=True):
        assert_close(got, want)


def test_query_with_nan_is_nan_and_nobody_else():
    layer, x = module(), inputs()
    want, _ = layer(*x)
    x[0][1, 0, 2] = torch.nan
    for need_weights in (True, False):
        got, _ = layer(*x, need_weights=need_weights)
        assert got[1, 0].isnan().all()
        assert_close(got[0], want[0])
        assert_close(got[1, 1:], want[1, 1:])


def test_each_sample_equals_itself_alone():
    layer, x = module(), inputs()
    chosen = call_options("padding right")
    whole, _ = layer(*x, **chosen)
    for i in range(2):
        alone, _ = layer(*(t[i : i + 1] for t in x), mask=chosen["mask"][i : i + 1])
        assert_close(whole[i : i + 1], alone)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_half_precision_is_as_good_as_its_rounding(dtype):
    layer, x = module(dtype=dtype), [t.to(dtype) for t in inputs()]
    wide = module()
    wide.load_state_dict(layer.state_dict())
    want, _ = wide(*(t.double() for t in x), causal=True)
    for need_weights in (True, False):
        got, _ = layer(*x, causal=True, need_weights=need_weights)
        assert got.dtype == dtype
        assert_close(got, want, 8 * torch.finfo(dtype).eps)


def test_each_matrix_starts_from_its_own_size():
    layer = MultiHeadAttention(64, 2, num_kv_heads=1)
    matrices = (*layer.w_qkv.weight.split(layer.widths), layer.w_o.weight)
    for matrix in matrices:
        bound = (6 / sum(matrix.shape)) ** 0.5
        assert 0.95 * bound < matrix.abs().max() <= bound
    assert all((b == 0).all() for b in (layer.w_qkv.bias, layer.w_o.bias))


def test_without_biases_there_are_none():
    layer = module(use_bias=False)
    assert layer.w_qkv.bias is None and layer.w_o.bias is None
    assert_close(
        layer(*inputs())[0], oracle.layer(*layer_inputs(widths=WIDTHS), to_projections(layer), 2)[0]
    )


def test_state_survives_saving_and_loading():
    layer, other = module(), module()
    assert not torch.equal(layer(*inputs())[0], other(*inputs())[0])
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(*inputs())[0], other(*inputs())[0])


def test_inputs_are_never_modified():
    layer, x, chosen = module(), inputs(), call_options("bias and mask")
    x[1][:, 1] = torch.nan
    chosen["mask"] = chosen["mask"] & (torch.arange(5) != 1)
    tensors = [*x, *chosen.values()]
    before = [t.clone() for t in tensors]
    layer(*x, **chosen)
    for tensor, was in zip(tensors, before, strict=True):
        assert_same_bits(tensor, was)


def test_the_number_of_parameters_does_not_depend_on_the_heads():
    for num_heads in (1, 64):
        layer = MultiHeadAttention(512, num_heads)
        torchs = nn.MultiheadAttention(512, num_heads)
        counts = [sum(p.numel() for p in m.parameters()) for m in (layer, torchs)]
        assert counts == [4 * 512**2 + 4 * 512] * 2
