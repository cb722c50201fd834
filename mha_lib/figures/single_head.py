"""Pictures of chapter 1: the soft look-up, the hull, the scale."""

import numpy as np

from mha_lib.figures.style import (
    HEADS,
    INK,
    PALE,
    SCORES,
    Picture,
    canvas,
    heat_map,
)


def soft_lookup(keys, values, queries, curves):
    """Look-ups along a line: the nearest key's value, and soft ones by sharpness.

    ``curves`` maps a sharpness to the value looked up at each query.
    """
    with canvas(7.6, 3.4) as (figure, axes):
        nearest = values[np.abs(queries[:, None] - keys).argmin(axis=1)]
        axes.step(queries, nearest, where="mid", color=PALE, linewidth=1.4, label="nearest key")
        for color, (sharpness, curve) in zip(HEADS, curves.items(), strict=False):
            axes.plot(queries, curve, color=color, label=f"soft, sharpness {sharpness}")
        axes.scatter(keys, values, s=64, color=INK, zorder=3, label="stations")
        axes.set(xlabel="query: position on the road (km)", ylabel="value (°C)")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        alt = (
            "Temperature looked up along a road with three stations: the nearest key gives steps, "
            "the soft look-up a smooth curve that comes closer to the steps as it gets sharper."
        )
        return Picture(figure, alt)


def weights(scores, weights, rows, columns):
    """Scores and the weights that softmax makes of them, side by side."""
    with canvas(7.2, 2.4, ncols=2) as (figure, (left, right)):
        reach = np.abs(scores).max()
        heat_map(
            left, scores, rows=rows, columns=columns, cmap=SCORES, limits=(-reach, reach), digits=3
        )
        left.set_title("scores", pad=24)
        heat_map(right, weights, rows=rows, columns=columns, digits=3)
        right.set_title("weights: rows sum to 1", pad=24)
        alt = (
            f"Two heat maps, queries {', '.join(rows)} against keys {', '.join(columns)}: the "
            "scores, and the attention weights, whose rows sum to 1."
        )
        return Picture(figure, alt)


def hull(values, paths):
    """Values as points, and where the output goes as each query is sharpened.

    ``paths`` maps a query's name to outputs (steps, 2), from sharpness 0 upward.
    """
    with canvas(7.2, 3.5) as (figure, axes):
        outline = values[[*range(len(values)), 0]]
        axes.fill(*outline.T, color="#f1eee4", zorder=0)
        axes.plot(*outline.T, color=PALE, linewidth=1.2)
        for color, (name, path) in zip(HEADS, paths.items(), strict=False):
            axes.plot(*path.T, color=color, marker="o", markersize=4, label=name)
        axes.scatter(*values.T, s=80, color=INK, zorder=3)
        for j in range(len(values)):
            away = values[j] - values.mean(axis=0)
            away *= 0.28 / np.linalg.norm(away)
            axes.text(*(values[j] + away), f"$v_{j + 1}$", ha="center", va="center", size=12)
        axes.scatter(*values.mean(axis=0), s=70, facecolor="white", edgecolor=INK, zorder=4)
        axes.set(xlabel="first coordinate", ylabel="second coordinate", aspect="equal")
        axes.margins(0.16)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        alt = (
            "Four values as corners of a region; each query's output starts at their mean for "
            "sharpness 0 and moves to a corner or an edge, never leaving the region."
        )
        return Picture(figure, alt)


def scale(widths, spread, largest):
    """Dot products of random vectors by width: their spread, and the largest weight of 16.

    ``spread`` and ``largest`` hold a curve for "as they are" and one for "scaled".
    """
    with canvas(8.6, 3.3, ncols=2) as (figure, (left, right)):
        left.plot(widths, np.sqrt(widths), color=PALE, linewidth=1.2, linestyle=(0, (4, 2)))
        left.text(widths[-1], 0.33 * np.sqrt(widths[-1]), r"$\sqrt{d_k}$", color=PALE, ha="center")
        for color, name in zip(HEADS, spread, strict=False):
            left.plot(widths, spread[name], "o", color=color, markersize=5, label=name)
            right.plot(widths, largest[name], "o-", color=color, markersize=5, linewidth=1.4)
            right.text(widths[-1] * 1.25, largest[name][-1], name, color=color, va="center")
        left.set(xscale="log", yscale="log", title="standard deviation of a score")
        left.legend(loc="upper left")
        right.set(xscale="log", ylim=(0, 1.04), title="largest of 16 weights, on average")
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(widths[::2], [str(width) for width in widths[::2]])
            axes.minorticks_off()
            axes.set_xlabel("$d_k$")
        right.set_xlim(widths[0] / 1.3, widths[-1] * 16)
        left.set_yticks([1, 4, 16], ["1", "4", "16"])
        alt = (
            "Left: the spread of dot products grows as the square root of d_k, that of scaled ones "
            "stays at 1. Right: without the scale the largest of 16 weights approaches 1 as d_k "
            "grows; with it, it hardly changes."
        )
        return Picture(figure, alt)
