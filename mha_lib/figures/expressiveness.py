"""Pictures of chapter 6: the line and the corners, descent, the staircase, the duel, the U."""

import numpy as np
from matplotlib.patches import Rectangle

from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas

DIGITS = 3  # of trained numbers: what follows may differ between processors
CORNERS = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]])


def line_and_corners(one, two):
    """The four answers that are wanted, and those given by one head and by two sharper ones.

    ``one`` maps a title to one head's four answers (4, 2), ``two`` a sharpness to those of two.
    """
    with canvas(8.4, 4.4, ncols=2) as (figure, (left, right)):
        for axis in (left, right):
            axis.plot(*CORNERS.T, "o", markersize=17, markerfacecolor=PAPER, color=INK, zorder=2)
            axis.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), box_aspect=1)
            axis.set(xlabel="first slot", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        for color, (title, answers) in zip(HEADS, one.items(), strict=False):
            _answers(left, answers, color, title)
        for color, (sharpness, answers) in zip(HEADS, two.items(), strict=False):
            right.plot(*answers.T, "o", color=color, zorder=3, label=f"β = {sharpness}")
        left.set(ylabel="second slot", title="one head: always on a line")
        right.set(title="two heads: into the corners")
        for axis in (left, right):
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, fontsize=9.5)
        alt = (
            "Four corners of a square are wanted. One head's four answers lie on a line and miss "
            "corners; the answers of two heads approach all four as they get sharper."
        )
        return Picture(figure, alt)


def _answers(axis, answers, color, title):
    """Four answers on their line, each tied to the corner that it should be."""
    answers = np.round(answers, DIGITS)
    centre = answers.mean(axis=0)
    direction = np.linalg.svd(answers - centre)[2][0]
    ends = centre + np.array([[-3], [3]]) * direction
    axis.plot(*ends.T, color=color, linewidth=1.4, zorder=1, label=title)
    targets = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    for answer, target in zip(answers, targets, strict=True):
        axis.plot(*np.transpose([answer, target]), color=PALE, linewidth=1, linestyle=":")
    axis.plot(*answers.T, "o", color=color, zorder=3)


def descent(histories, bound):
    """Loss over training, a line a seed: ``histories`` maps a name to losses (steps, seeds)."""
    with canvas(7.6, 3.5) as (figure, axes):
        axes.axhline(bound, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.text(
            1,
            bound + 0.07,
            f"bound for one head: {bound:g}",
            size=9.5,
            ha="right",
            transform=axes.get_yaxis_transform(),
        )
        for color, (name, losses) in zip(HEADS, histories.items(), strict=False):
            axes.plot(np.round(losses, DIGITS), color=color, linewidth=1.1, alpha=0.75)
            axes.plot([], [], color=color, label=name)
        axes.set(xlabel="training step", ylabel="loss", ylim=(-0.06, 2.6))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        alt = f"Losses over training, one line a seed: {'; '.join(histories)}; bound {bound:g}."
        return Picture(figure, alt)


def staircase(heads, bound, losses):
    """Relative loss by number of heads: the bound as a staircase, every trained seed as a dot."""
    with canvas(6.8, 3.7) as (figure, axes):
        edges = np.append(np.asarray(heads) - 0.5, heads[-1] + 0.5)
        axes.stairs(bound, edges, color=HEADS[0], fill=True, alpha=0.16)
        axes.stairs(bound, edges, color=HEADS[0], linewidth=2.4, label="no layer is below")
        for head, seeds in zip(heads, losses, strict=True):
            places = head + np.linspace(-0.16, 0.16, len(seeds))
            label = "trained, a dot a seed" if head == heads[0] else None
            axes.plot(
                places,
                np.round(seeds, DIGITS),
                "o",
                color=HEADS[1],
                markersize=6,
                zorder=3,
                label=label,
            )
        axes.set_xticks(heads)
        axes.set(xlabel="heads g", ylabel="relative loss", ylim=(-0.05, 1))
        axes.legend(loc="upper right")
        alt = "The bound 1 - g/k falls in equal steps to zero; trained layers lie on it."
        return Picture(figure, alt)


def duel(tasks, columns, trained, bounds):
    """Four numbers, tasks in rows, layers in columns: what training reached, what is possible."""
    with canvas(7.4, 3.0) as (figure, axes):
        for i, j in np.ndindex(np.shape(bounds)):
            blocked = bounds[i][j] > 0
            face = HEADS[1] if blocked else HEADS[0]
            corner = (j * 2.2, -i * 1.05)
            axes.add_patch(Rectangle(corner, 2.12, 0.97, facecolor=face))
            middle = corner[0] + 1.06
            axes.text(
                middle, corner[1] + 0.60, f"{trained[i][j]:.3f}", color=PAPER, size=17,
                weight="bold", ha="center", va="center",
            )  # fmt: skip
            text = f"never below {bounds[i][j]:g}" if blocked else "comes as near to 0 as you like"
            axes.text(
                middle, corner[1] + 0.22, text, color=PAPER, size=9.5, ha="center", va="center"
            )
        for i, name in enumerate(tasks):
            axes.text(-0.12, -i * 1.05 + 0.48, name, ha="right", va="center", size=10.5)
        for j, name in enumerate(columns):
            axes.text(j * 2.2 + 1.06, 1.08, name, ha="center", weight="bold")
        axes.set(xlim=(-2.6, 4.4), ylim=(-1.1, 1.35))
        axes.axis("off")
        alt = (
            f"A table of losses. Tasks {tasks[0]} and {tasks[1]}; layers {columns[0]} and "
            f"{columns[1]}: each layer reaches nearly 0 on one task and is stuck on the other."
        )
        return Picture(figure, alt)


def u_shape(heads, losses, left_arm, d_model):
    """Relative loss over the number of heads at equal parameters, with the theorem's left arm."""
    with canvas(7.4, 3.8) as (figure, axes):
        middle, low, high = (
            f(np.round(losses, DIGITS), axis=1) for f in (np.median, np.min, np.max)
        )
        axes.fill_between(heads, low, high, color=HEADS[1], alpha=0.25, linewidth=0)
        axes.plot(heads, middle, "o-", color=HEADS[1], label="trained: median and spread of seeds")
        axes.plot(
            heads,
            left_arm,
            "s--",
            color=HEADS[0],
            linewidth=1.6,
            label="no layer is below: 1 − h/4",
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(heads, [f"{h}\n{d_model // h}" for h in heads])
        axes.minorticks_off()
        axes.set(xlabel="heads h, and below it $d_k$", ylabel="relative loss", ylim=(-0.04, 1.02))
        axes.legend(loc="upper center")
        alt = (
            "Relative loss over the number of heads is a U: on the left it lies on the theorem's "
            "bound, too few patterns, and on the right the heads are too thin."
        )
        return Picture(figure, alt)
