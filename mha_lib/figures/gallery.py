"""The pictures as files: each chapter's, with the chapter's numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from mha_lib import masks
from mha_lib.experiments import influence, spread_and_largest
from mha_lib.figures import (
    from_records,
    from_tasks,
    masking,
    single_head,
    splitting,
    start_here,
    tiles,
    worked_example,
)
from mha_lib.scratch import (
    Projections,
    multi_head_attention,
    multi_head_attention_loop,
    scaled_dot_product_attention,
    softmax,
    split_heads,
)
from mha_lib.worked_example import THE_CAT_SAT

TOKENS = ["The", "cat", "sat", "down"]
WORDS = ["Who", "sat", "?", "The", "cat", "sat", "."]


def soft_lookup():
    """Chapter 1: three stations along a road."""
    keys, values = np.array([0.0, 2.0, 3.0]), np.array([10.0, 20.0, 14.0])
    queries = np.linspace(-1, 4, 201)
    distances = (queries[:, None] - keys) ** 2  # (201, 3)
    curves = {sharpness: softmax(-sharpness * distances) @ values for sharpness in (0.25, 1, 8)}
    return single_head.soft_lookup(keys, values, queries, curves)


def weights():
    """Chapter 1: scores and weights in eighths."""
    two, three, five = np.log([2, 3, 5])
    query = 2 * np.array([[0, two, five, 0], [three, three, two, 7]])
    scores = query @ np.eye(3, 4).T / 2  # (2, 3)
    rows, columns = ["query 1", "query 2"], ["key 1", "key 2", "key 3"]
    return single_head.weights(scores, softmax(scores), rows, columns)


def hull():
    """Chapter 1: outputs stay among the values."""
    values = np.array([[0.0, 0], [3, 0], [4, 2], [1, 3]])
    keys = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    directions = {"toward $v_1$": [1.0, 0.2], "between $v_2$ and $v_3$": [-1.0, 1.0]}
    sharpness = np.linspace(0, 12, 13)[:, None]
    paths = {
        name: scaled_dot_product_attention(sharpness * direction, keys, values)[0]
        for name, direction in directions.items()
    }
    return single_head.hull(values, paths)


def scale():
    """Chapter 1: why scores are divided by the square root of d_k."""
    widths = 2 ** np.arange(11)
    raw = np.array([spread_and_largest(d_k, 1) for d_k in widths])
    scaled = np.array([spread_and_largest(d_k, 1 / np.sqrt(d_k)) for d_k in widths])
    spread = {"as they are": raw[:, 0], "scaled": scaled[:, 0]}
    largest = {"as they are": raw[:, 1], "scaled": scaled[:, 1]}
    return single_head.scale(widths, spread, largest)


def compromise():
    """Chapter 2: two patterns and what one head makes of them."""
    previous, first = np.eye(4)[[0, 0, 1, 2]], np.eye(4)[[0, 0, 0, 0]]
    both = (previous + first) / 2
    maps = {"previous token": previous, "first token": first, "one head for both": both}
    return splitting.patterns(maps, TOKENS)


def _layer():
    """Chapter 2's tokens and matrices."""
    rng = np.random.default_rng(2)
    return rng.normal(size=(4, 6)), Projections(*rng.normal(scale=0.7, size=(4, 6, 6)))


def two_heads():
    """Chapter 2: two heads look at the same tokens."""
    x, projections = _layer()
    _, maps = multi_head_attention(x, x, x, projections, num_heads=2)
    return splitting.patterns({"head 1": maps[0], "head 2": maps[1]}, TOKENS)


def sum_of_heads():
    """Chapter 2: what each head adds to the third token's output."""
    x, p = _layer()
    output, _ = multi_head_attention(x, x, x, p, num_heads=2)
    concat, _ = multi_head_attention_loop(x, x, x, replace(p, w_o=np.eye(6)), num_heads=2)
    blocks = zip(np.split(concat[2], 2), np.split(p.w_o, 2), strict=True)
    return splitting.sum_of_heads(np.stack([head @ block for head, block in blocks]), output[2])


def the_cat_sat():
    """Chapter 3: its three pictures, by name."""
    p, tokens = THE_CAT_SAT.projections(), THE_CAT_SAT.tokens
    x, _, _ = THE_CAT_SAT.arrays()
    output, weights = multi_head_attention(x, x, x, p, num_heads=2)
    queries, keys, values = (split_heads(x @ w, 2) for w in (p.w_q, p.w_k, p.w_v))
    heads = weights @ values  # (2, 3, 2)
    return {
        "plane": lambda: worked_example.keys_and_queries(keys, queries, tokens),
        "flow": lambda: worked_example.flow(
            "cat", tokens, weights[:, 1], values, heads[:, 1], output[1]
        ),
        "weights": lambda: worked_example.weights_of_heads(weights, tokens),
    }


def leak():
    """Chapter 4: who feels whom, with and without the causal mask."""
    rng = np.random.default_rng(4)
    x, p = rng.normal(size=(5, 8)), Projections.random(8, rng, num_heads=2)
    see = {"no mask": np.ones((5, 5), bool), "causal mask": masks.causal(5)}
    maps = {name: influence(x, p, 2, mask) for name, mask in see.items()}
    return masking.influence(maps, ["We", "saw", "the", "cat", "sit"])


def _masks():
    """Chapter 4's six masks over seven words, by their titles."""
    size, own = len(WORDS), np.array([0, 0, 0, 1, 1, 1, 1])
    return {
        "causal": masks.causal(size),
        "causal, 3 new of 7": masks.causal(3, size),
        "padding": np.broadcast_to(masks.padding([5], size)[0], (size, size)),
        "window of 3": masks.sliding_window(size, window=3),
        "prefix of 3": masks.prefix(size, length=3),
        "documents & causal": masks.documents(own) & masks.causal(size),
    }


def mask_gallery():
    """Chapter 4: six masks."""
    panels = _masks().items()
    return masking.gallery({name: (m, m, WORDS[-len(m) :], WORDS) for name, m in panels})


def weight_gallery():
    """Chapter 4: one head's weights with each of the six masks."""
    query, key = 1.5 * np.random.default_rng(0).normal(size=(2, len(WORDS), 4))
    shown = {}
    for name, mask in _masks().items():
        last = slice(-len(mask), None)  # the queries are the last ones
        _, found = scaled_dot_product_attention(query[last], key, key, mask)
        shown[name] = found, mask, WORDS[last], WORDS
    return masking.gallery(shown)


DRAWINGS = {
    "00_map": start_here.book_map,
    "00_layer": start_here.layer,
    "01_soft_lookup": soft_lookup,
    "01_weights": weights,
    "01_hull": hull,
    "01_scale": scale,
    "02_compromise": compromise,
    "02_two_heads": two_heads,
    "02_axes_moving": splitting.axes_moving,
    "02_sum_of_heads": sum_of_heads,
    **{f"03_{name}": draw for name, draw in the_cat_sat().items()},
    "04_influence": leak,
    "04_masks": mask_gallery,
    "04_weights": weight_gallery,
    "05_shares": from_records.shares,
    "05_heads": from_records.heads,
    "05_time": from_records.time,
    "05_tiles": tiles.walk,
    "05_memory": from_records.memory,
    "05_roofline": from_records.roofline,
    "06_corners": from_tasks.corners,
    "06_descent": from_tasks.descent,
    "06_staircase": from_tasks.staircase,
    "06_radon": from_tasks.radon,
    "06_circle": from_tasks.circle,
    "06_duel": from_tasks.duel,
    "06_valley": from_tasks.valley,
    "06_u_shape": from_tasks.u_shape,
    "06_picks": from_tasks.picks,
    "07_roofline": from_records.decode_roofline,
    "07_memory": from_records.caches,
    "07_time": from_records.decode_time,
}


def write_all(folder):
    """Draw every picture into ``folder``; the same bytes at every run."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        picture = draw()
        path = folder / f"{name}.{picture.kind}"
        path.write_bytes(picture.data)
        print(f"{path}: {len(picture.data) // 1000} kB")
