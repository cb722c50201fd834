"""Chapter 6's pictures with their numbers: tasks, constructions and trained layers."""

import numpy as np

from mha_lib import scratch
from mha_lib.expressiveness import bounds, constructions, product, selection, study, tasks, training
from mha_lib.figures import expressiveness
from mha_lib.figures import selection as draw_selection


def corners():
    """Four corners, one head's line, and two heads."""
    task = tasks.bits()
    one = training.train(task, num_heads=1, seeds=2, steps=400).weights
    return expressiveness.line_and_corners(
        {f"trained, seed {seed + 1}": one.layer(seed).answer(task)[:, 0] for seed in (0, 1)},
        {beta: constructions.copy_bits(beta).answer(task)[:, 0] for beta in (0.5, 1, 2)},
    )


def descent():
    """Training on Task A, one head and two."""
    task = tasks.bits()
    names = {"1 head": 1, "2 heads": 2}
    histories = {name: training.train(task, h, steps=300).history for name, h in names.items()}
    return expressiveness.descent(histories, bounds.subspace(task, 1))


def staircase():
    """Relative loss by the number of heads."""
    steps = study.staircase()
    relative = np.array([step.relative for step in steps])
    return expressiveness.staircase(
        [1, 2, 3, 4], [step.bound / step.trivial for step in steps], relative
    )


def radon():
    """Four keys in the plane, in both positions that there are."""
    triangle = np.array([[0.0, 0.0], [4.0, 0.2], [1.6, 3.0], [1.9, 1.1]])
    square = np.array([[0.0, 0.0], [3.1, 0.3], [3.3, 2.8], [-0.2, 2.4]])
    panels = {"one inside": triangle, "two against two": square}
    return draw_selection.radon({name: (key, bounds.radon(key)[0]) for name, key in panels.items()})


def circle():
    """Keys on a circle, and what a weight of 0.9 costs."""
    keys = constructions.circle(24)
    queries = constructions.circle_norms(24) * keys
    _, weights = scratch.scaled_dot_product_attention(queries, keys, keys)
    sizes = [8, 16, 32, 64, 128, 256]
    prices = [constructions.circle_norms(size) for size in sizes]
    return draw_selection.circle(keys, keys[5], weights[5], (sizes, prices))


def duel():
    """Two tasks, two layers."""
    rows = study.duel()
    return expressiveness.duel(
        ["A: two bits into two slots", "B: look up one of three"],
        ["one head, $d_k = 2$", "two heads, $d_k = 1$"],
        np.reshape([np.median(row.losses) for row in rows], (2, 2)),
        np.reshape([row.bound for row in rows], (2, 2)),
    )


def valley():
    """One head's loss over how it splits its weight."""
    shares = np.linspace(0, 1, 41)
    best = [product.compromise(a)[0] for a in shares]
    adding = [product.compromise(a, read_out=[1, 1])[0] for a in shares]
    return draw_selection.valley(shares, best, adding)


def u_shape():
    """Relative loss over the number of heads at fixed width."""
    rows = study.u_shape(features=4)
    relative = np.array([row.relative for row in rows])
    left_arm = [row.bound / row.trivial for row in rows]
    return expressiveness.u_shape([row.num_heads for row in rows], relative, left_arm, d_model=16)


def picks():
    """Random keys told apart, over d_k."""
    widths = [1, 2, 4, 8, 16, 32, 64, 128]
    found = [selection.picks(d_k) for d_k in widths]
    return draw_selection.picks(widths, found, [selection.chance(d_k) for d_k in widths], n=128)
