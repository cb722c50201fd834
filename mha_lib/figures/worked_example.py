"""Pictures of chapter 3: keys and queries in the plane, and one query's way through both heads."""

import numpy as np

from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas, heat_map


def weights_of_heads(weights, tokens):
    """Both heads' attention weights with three decimals."""
    with canvas(3.6 * len(weights), 2.9, ncols=len(weights)) as (figure, axes):
        for head, (axis, numbers) in enumerate(zip(axes, weights, strict=True)):
            heat_map(axis, numbers, rows=tokens, columns=tokens, digits=3)
            axis.set_title(f"head {head + 1}", pad=24)
        alt = f"Attention weights of {len(weights)} heads between the tokens {', '.join(tokens)}."
        return Picture(figure, alt)


def keys_and_queries(keys, queries, tokens):
    """Each head's keys as points and queries as arrows, in its plane (heads, tokens, 2)."""
    with canvas(8.2, 3.7, ncols=len(keys)) as (figure, axes):
        for head, axis in enumerate(axes):
            color = HEADS[head]
            for place, names in _together(keys[head], tokens).items():
                axis.plot(*place, "o", color=INK, markersize=8, zorder=3)
                axis.text(place[0], place[1] + 0.14, names, ha="center", va="bottom")
            for place, names in _together(queries[head], tokens).items():
                _query(axis, place, names, color)
            axis.set(title=f"head {head + 1}", xlim=(-0.55, 2.6), ylim=(-1.5, 1.6), aspect="equal")
            axis.set(xlabel="first coordinate", xticks=(0, 1, 2), yticks=(-1, 0, 1))
        axes[0].set_ylabel("second coordinate")
        alt = (
            "Keys as points and queries as arrows in each head's plane. In head 1 cat and sat have "
            "the same key; in head 2 the three keys are the corners of a triangle."
        )
        return Picture(figure, alt)


def flow(token, tokens, weights, values, heads, output):
    """One token's query through two heads: values, weights on arrows, results, output."""
    with canvas(8.6, 4.0) as (figure, axes):
        for head in (0, 1):
            top = 3.6 * (1 - head)
            for j, name in enumerate(tokens):
                y = top + 2 - j
                _value(axes, (0, y), name, values[head][j], HEADS[head])
                _weight(axes, (1.15, y), (3.6, top + 1), weights[head][j], HEADS[head])
            _result(axes, (4.6, top + 1), f"head {head + 1}", heads[head], HEADS[head])
            _weight(axes, (5.6, top + 1), (6.9, 2.8), None, PALE)
        axes.text(6.35, 2.8, "$W^O$", size=13, ha="center", va="center")
        _result(axes, (7.9, 2.8), f"output for {token}", output, INK)
        axes.set(xlim=(-1, 9.1), ylim=(-0.6, 6.3))
        axes.axis("off")
        alt = (
            f"The query of {token} in two heads: each value's arrow is as thick as its weight; the "
            "two results go through W^O to the output."
        )
        return Picture(figure, alt)


def _together(places, tokens):
    """Names by place, those that coincide in one label."""
    found = {}
    for place, token in zip(map(tuple, places), tokens, strict=True):
        found[place] = f"{found[place]}, {token}" if place in found else token
    return found


def _query(axis, place, names, color):
    if not any(place):
        axis.plot(0, 0, "o", markerfacecolor=PAPER, markeredgecolor=color, markersize=13, zorder=2)
        axis.text(-0.13, -0.13, f"q {names}", color=color, ha="right", va="top")
        return
    arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", place, (0, 0), arrowprops=arrow)
    slanted = all(place)  # such an arrow leaves no room beside it, so its name stands at its tip
    x, y = place if slanted else (0.6 * place[0], 0.6 * place[1])
    axis.text(x + 0.1, y - 0.08, f"q {names}", color=color, ha="left", va="top")


def _value(axes, centre, name, value, color):
    numbers = ", ".join(f"{x:g}" for x in value)
    axes.text(centre[0] - 0.15, centre[1], name, ha="right", va="center")
    axes.text(centre[0] + 0.05, centre[1], f"[{numbers}]", ha="left", va="center", color=color)


def _weight(axes, start, end, weight, color):
    width = 1.2 if weight is None else 0.6 + 6 * weight
    style = {"arrowstyle": "-", "color": color, "linewidth": width, "alpha": 0.75}
    axes.annotate("", end, start, arrowprops=style)
    if weight is not None:
        x, y = (start[0] + (end[0] - start[0]) * 0.3, start[1] + (end[1] - start[1]) * 0.3)
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
        axes.text(x, y, f"{weight:.3f}", ha="center", va="center", size=9.5, bbox=box)


def _result(axes, centre, name, numbers, color):
    lines = [f"{x:.3f}" for x in np.atleast_1d(numbers)]
    text = ", ".join(lines[:2]) + ("\n" + ", ".join(lines[2:]) if lines[2:] else "")
    box = {"boxstyle": "round,pad=0.5", "facecolor": color, "edgecolor": "none"}
    axes.text(*centre, text, ha="center", va="center", color=PAPER, bbox=box, linespacing=1.5)
    axes.text(centre[0], centre[1] + 0.62, name, ha="center", va="bottom", color=color)
