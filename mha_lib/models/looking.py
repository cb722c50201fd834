"""What a trained model's heads and its cache do: sinks, groups, windows, shared keys, times."""

import statistics
import time
from dataclasses import replace
from itertools import cycle, islice

import torch

from mha_lib import masks
from mha_lib.models.text import TEXT
from mha_lib.pytorch.grouped import repeat_heads
from mha_lib.pytorch.threads import one_thread

SETTLED = 4  # the first queries have few keys to choose from: averages leave them out


def sink_shares(maps):
    """The part of attention that goes to the first token, (layers, num_heads).

    ``maps`` are what a model gives with need_weights=True: (num_heads, n, n) for each layer.

    >>> first = torch.tensor([1.0, 0, 0, 0, 0]).expand(1, 5, 5)
    >>> sink_shares([first, torch.eye(5)[None]]).tolist()
    [[1.0], [0.0]]
    """
    return torch.stack([layer[:, SETTLED:, 0].mean(-1) for layer in maps])


def group_correlation(maps, group, first_key=0):
    """How alike two heads of a layer attend: of one group of ``group`` heads, of two groups.

    Two mean correlations over the weights that may differ from 0. With ``first_key=1`` the first
    token is left out, which makes heads alike that have nothing else in common.

    >>> one, other = torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(0))
    >>> within, across = group_correlation([torch.stack([one, one, other, other])], group=2)
    >>> round(within, 3), across < 0.5
    (1.0, True)
    """
    n = maps[0].shape[-1]
    row, key = torch.arange(n)[:, None], torch.arange(n)
    compared = (key <= row) & (row >= SETTLED) & (key >= first_key)  # (n, n)
    tables = torch.stack([torch.corrcoef(layer[:, compared]) for layer in maps])
    head = torch.arange(tables.shape[-1]) // group
    together = head[:, None] == head  # (num_heads, num_heads)
    others = ~torch.eye(len(head), dtype=torch.bool)
    return tables[:, together & others].mean().item(), tables[:, ~together].mean().item()


def pooled(model, num_kv_heads=1):
    """The model with fewer key-value heads, each the mean of several (Ainslie et al. 2023)."""

    def pool(matrix):
        return matrix.unflatten(0, (num_kv_heads, -1, model.d_k)).mean(1).flatten(0, 1)

    return _with_keys_and_values(model, pool, num_kv_heads)


def repeated(model):
    """The same model with a key-value head for each query head: a larger cache for nothing."""
    group = model.num_heads // model.num_kv_heads

    def repeat(matrix):
        return repeat_heads(matrix.unflatten(0, (-1, model.d_k)), group).flatten(0, 1)

    return _with_keys_and_values(model, repeat, model.num_heads)


def _with_keys_and_values(model, change, num_kv_heads):
    layers = [
        layer._replace(attn_k=change(layer.attn_k), attn_v=change(layer.attn_v))
        for layer in model.layers
    ]
    return replace(model, layers=layers, num_kv_heads=num_kv_heads)


def window_mask(n, window, sinks=0):
    """What a rolling cache with room for ``window`` tokens shows, if it never drops the first ones.

    >>> window_mask(5, window=3, sinks=1).int()
    tensor([[1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0],
            [1, 0, 1, 1, 0],
            [1, 0, 0, 1, 1]], dtype=torch.int32)
    """
    recent = masks.sliding_window(n, window=window - sinks, device="cpu")
    return recent | (masks.causal(n, device="cpu") & (torch.arange(n) < sinks))  # (n, n)


def ids_of(model, n):
    """The first n tokens of the book's text, which begins again where it ends."""
    return list(islice(cycle(model.tokenizer.encode(TEXT)), n))


def step_seconds(model, n, rounds=3):
    """Median seconds for what follows n tokens: from a cache of n - 1 of them, and without one."""
    ids, caches = ids_of(model, n), model.caches(n)
    samples = []
    with one_thread():
        model(ids[:-1], caches)
        for _ in range(rounds):
            samples.append((_seconds(model, ids[-1:], caches), _seconds(model, ids, None)))
            for cache in caches:
                cache.truncate(n - 1)
    cached, anew = zip(*samples)
    return statistics.median(cached), statistics.median(anew)


def _seconds(model, ids, caches):
    start = time.perf_counter()
    model.logits(model(ids, caches)[0][-1])
    return time.perf_counter() - start
