"""Pictures of chapter 6 about one head: what a query can select, and how sharply."""

import numpy as np
from matplotlib.patches import Circle

from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas


def radon(panels):
    """Keys in the plane, cut into two sets that no line parts: a panel maps a title to (keys, set).

    ``set`` is boolean, (n,): the keys that a query should prefer.
    """
    with canvas(3.6 * len(panels), 3.4, ncols=len(panels), squeeze=False) as (figure, axes):
        for axis, (title, (keys, chosen)) in zip(axes[0], panels.items(), strict=True):
            for group, color in ((chosen, HEADS[1]), (~chosen, HEADS[0])):
                hull = np.vstack([keys[group], keys[group][:1]])
                axis.fill(*hull.T, color=color, alpha=0.15, linewidth=0)
                axis.plot(*hull.T, color=color, linewidth=1.6)
            axis.plot(*keys[~chosen].T, "o", markersize=13, color=HEADS[0])
            axis.plot(*keys[chosen].T, "o", markersize=13, color=HEADS[1])
            for name, key in enumerate(keys, start=1):
                axis.text(*key, str(name), color=PAPER, ha="center", va="center", size=9)
            axis.set(aspect="equal", xticks=(), yticks=())
            axis.margins(0.18)
            axis.spines[:].set_visible(False)
            axis.set_title(title)
        alt = (
            "Points in the plane in two colours whose hulls meet, so that no line has one colour "
            f"on one side: {'; '.join(panels)}."
        )
        return Picture(figure, alt)


def circle(keys, query, weights, norms):
    """Keys on a circle and one query's weights on them; beside it, the norm that 0.9 costs.

    ``norms`` is (numbers of keys, norm of query times norm of key).
    """
    with canvas(8.4, 3.7, ncols=2) as (figure, (left, right)):
        left.add_patch(_ring())
        left.scatter(*keys.T, s=30 + 420 * weights, color=HEADS[1], zorder=3, linewidth=0)
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6}
        left.annotate("", 0.8 * query / np.linalg.norm(query), (0, 0), arrowprops=arrow)
        left.text(0, -0.16, "query", ha="center", size=9.5)
        left.set(aspect="equal", xticks=(), yticks=(), xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        left.spines[:].set_visible(False)
        left.set_title("$d_k = 2$: any key can win")
        right.plot(*norms, "o-", color=HEADS[0])
        right.set_xscale("log", base=2)
        right.set_yscale("log")
        right.set_xticks(norms[0], [str(n) for n in norms[0]])
        right.minorticks_off()
        right.set(xlabel="keys n", ylabel="|query| · |key|")
        right.set_title("its price at weight 0.9")
        alt = (
            "Keys on a circle, dots as large as their weights: the one that the query points to "
            "wins. Beside it, the product of norms needed for a weight of 0.9 grows as n squared."
        )
        return Picture(figure, alt)


def picks(widths, found, predicted, n):
    """How well random keys are told apart as d_k grows: hits, mean weight, approximation."""
    hits, weights = np.transpose(found)
    with canvas(7.4, 3.6) as (figure, axes):
        axes.axvspan(32, 128, color="#f1eee4", zorder=0, linewidth=0)
        axes.text(64, 1.05, "the usual range", ha="center", size=9.5)
        axes.plot(widths, predicted, color=PALE, linewidth=5, alpha=0.6, label="hits, predicted")
        axes.plot(widths, hits, "o-", color=HEADS[0], label="right key has the largest weight")
        axes.plot(widths, weights, "s-", color=HEADS[1], label="mean weight on the right key")
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(d) for d in widths])
        axes.minorticks_off()
        axes.set(xlabel=f"$d_k$ (n = {n} random keys)", ylabel="share", ylim=(0, 1.14))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        alt = (
            f"Among {n} random keys the right one wins rarely at d_k of 1 to 4, about half the "
            "time at 8, nearly always from 32; its mean weight follows later."
        )
        return Picture(figure, alt)


def valley(shares, best, plain):
    """Relative error of one head over how it splits its weight, with two read-outs."""
    with canvas(6.4, 3.2) as (figure, axes):
        axes.plot(shares, plain, color=HEADS[1], label="read-out that adds both")
        axes.plot(shares, best, color=HEADS[0], label="best read-out: flat")
        axes.set(xlabel="weight a on the first token, 1 − a on the second", ylabel="relative error")
        axes.set(ylim=(0, 1.06), xlim=(0, 1))
        axes.legend(loc="lower left")
        alt = "The relative error with the best read-out is one half however the weight is split."
        return Picture(figure, alt)


def _ring():
    return Circle((0, 0), 1, fill=False, edgecolor=PALE, linewidth=1.2)
