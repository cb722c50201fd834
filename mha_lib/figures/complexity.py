"""Pictures of chapter 5: shares of the work, times, memory, the roofline."""

from typing import NamedTuple

import numpy as np

from mha_lib import cost
from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas

# One family for what grows with n, another for what grows with n², dark beside light for grey.
STAGES = {
    "projections": ("Q, K, V projections", HEADS[0]),
    "output": ("output projection", "#8fabcf"),
    "scores": ("scores", HEADS[1]),
    "softmax": ("softmax", INK),
    "values": ("weights × values", "#eab58d"),
}
MARKERS = "osD^v"


def shares(sizes, flops, crossover):
    """Each stage's share of the work at every n: ``flops`` is a list of counts by stage."""
    with canvas(8.2, 3.7) as (figure, axes):
        totals = np.array([sum(stages.values()) for stages in flops])
        bottom = np.zeros(len(sizes))
        for stage, (label, color) in STAGES.items():
            share = np.array([stages[stage] for stages in flops]) / totals
            axes.bar(
                range(len(sizes)),
                share,
                0.86,
                bottom=bottom,
                color=color,
                edgecolor=PAPER,
                linewidth=0.8,
                label=label,
            )
            bottom += share
        place = np.interp(np.log2(crossover), np.log2(sizes), range(len(sizes)))
        axes.axvline(place, color=INK, linewidth=1.3, linestyle=(0, (4, 3)))
        axes.text(place + 0.08, 1.03, f"n = {crossover:g}", size=10)
        axes.set_xticks(range(len(sizes)), [f"{n}" for n in sizes], size=9)
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        axes.set(xlabel="tokens n", ylabel="share of the operations", ylim=(0, 1.1))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
        alt = (
            "Stacked bars over n: the projections' share falls from nearly all to nearly nothing, "
            f"scores and weighted values take over; they are equal at n = {crossover:g}."
        )
        return Picture(figure, alt)


def growth(curves, *, x, y, title="", guides=(), ticks=None):
    """Measured curves on logarithmic axes: ``curves`` maps a name to (sizes, numbers).

    A guide is (label, sizes, numbers): a formula, drawn as a thin dashed line.
    """
    with canvas(7.9, 4.1) as (figure, axes):
        for label, sizes, numbers in guides:
            axes.plot(sizes, numbers, color=PALE, linewidth=1.3, linestyle=(0, (5, 3)))
            axes.annotate(
                label, (sizes[-1], numbers[-1]), (5, 0), textcoords="offset points",
                color=INK, size=9, va="center", annotation_clip=False,
            )  # fmt: skip
        for i, (name, (sizes, numbers)) in enumerate(curves.items()):
            color, marker = [*HEADS, INK][i % 5], MARKERS[i % 5]
            axes.plot(
                sizes, numbers, color=color, marker=marker, markersize=6,
                markeredgecolor=INK, markeredgewidth=0.6, label=name,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        ticks = ticks or next(iter(curves.values()))[0]
        axes.set_xticks(ticks, [f"{n}" for n in ticks])
        axes.minorticks_off()
        axes.grid(axis="y", color="#e6e8ea", linewidth=0.8)
        axes.set(xlabel=x, ylabel=y)
        axes.set_title(title)
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 0.55) if guides else (1, 1))
        alt = f"{y} against {x} on logarithmic axes: {'; '.join(curves)}."
        return Picture(figure, alt)


class Panel(NamedTuple):
    """A device's roof, and points below it: (FLOP per byte, FLOP/s) by name; measured or not."""

    title: str
    device: cost.Device
    dtype: str
    points: dict
    measured: bool


def roofline(panels):
    """Rooflines side by side, one for each Panel; points that were not measured are hollow."""
    width = 4.1 * len(panels)
    with canvas(width, 3.5, ncols=len(panels), squeeze=False) as (figure, axes):
        for axis, panel in zip(axes[0], panels, strict=True):
            _roof(axis, panel)
        axes[0, 0].set_ylabel("FLOP per second")
        titles = "; ".join(panel.title for panel in panels)
        alt = (
            f"Rooflines of {titles}: speed rises with FLOP per byte up to a ridge and is flat "
            "beyond."
        )
        return Picture(figure, alt, kind="png")


def _roof(axis, panel):
    peak, bandwidth = panel.device.peak[panel.dtype], panel.device.bandwidth
    ridge = cost.ridge(panel.device, panel.dtype)
    reach = np.array([0.3, ridge, 16000])  # FLOP per byte
    axis.plot(reach, np.minimum(peak, bandwidth * reach), color=INK, linewidth=1.8)
    axis.vlines(ridge, peak / 3000, peak, color=PALE, linewidth=1, linestyle=(0, (4, 3)))
    label = f"ridge: {ridge:.0f} FLOP/byte"
    axis.annotate(label, (ridge, peak), (0, 7), textcoords="offset points", ha="center", size=9)
    for color, marker, (name, point) in zip([*HEADS, INK], MARKERS, panel.points.items()):
        face = color if panel.measured else PAPER
        style = {"markersize": 8.5, "markeredgewidth": 2, "zorder": 3}
        axis.plot(*point, marker, markeredgecolor=color, markerfacecolor=face, label=name, **style)
    axis.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylim=(peak / 3000, 3 * peak))
    axis.minorticks_off()
    axis.set_title(panel.title)
    words = "measured" if panel.measured else "predicted, not measured"
    box = {"frameon": True, "facecolor": PAPER, "edgecolor": PAPER, "framealpha": 1}
    axis.legend(loc="lower right", title=words, fontsize=9, alignment="left", **box)
