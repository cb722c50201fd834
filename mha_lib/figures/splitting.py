"""Pictures of chapter 2: the compromise, axes that move, and the sum of heads."""

import numpy as np
from matplotlib.patches import Rectangle

from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas, heat_map

CELL = 0.62


def patterns(maps, tokens):
    """Attention weights as heat maps side by side, each with its title."""
    with canvas(2.85 * len(maps), 2.95, ncols=len(maps), squeeze=False) as (figure, axes):
        for axis, (title, numbers) in zip(axes[0], maps.items(), strict=True):
            heat_map(axis, numbers, rows=tokens, columns=tokens)
            axis.set_title(title, pad=24)
        alt = f"Attention weights between the tokens {', '.join(tokens)}: {'; '.join(maps)}."
        return Picture(figure, alt)


def axes_moving():
    """How a matrix (n, h * d) becomes heads (h, n, d), and the reshape that only looks right."""
    n, num_heads, d = 3, 2, 2
    x = np.arange(n * num_heads * d).reshape(n, num_heads * d)
    owner = np.broadcast_to(np.repeat(np.arange(num_heads), d), x.shape)
    cut = (n, num_heads, d)
    with canvas(8.6, 3.15) as (figure, axes):
        axes.set_aspect("equal")
        _grid(axes, (0, 0), x, owner, "x: (n, h·d)")
        _arrow(axes, 2.75, "reshape")
        for head in range(num_heads):
            _grid(
                axes, (4.1 + head * 1.55, 0), x.reshape(cut)[:, head], owner.reshape(cut)[:, head]
            )
        axes.text(4.1 - CELL / 2, 0.75, "(n, h, d)", weight="bold")
        _arrow(axes, 7.1, "swap axes")
        _heads(axes, 8.6, x.reshape(cut).swapaxes(0, 1), owner.reshape(cut).swapaxes(0, 1))
        axes.text(8.6 - CELL / 2, 0.75, "(h, n, d): right", weight="bold")
        wrong = (num_heads, n, d)
        _heads(axes, 11.6, x.reshape(wrong), owner.reshape(wrong))
        axes.text(11.6 - CELL / 2, 0.75, "reshape alone: wrong", weight="bold")
        axes.set_xlim(-0.6, 14.6)
        axes.set_ylim(-4.2, 1.2)
        axes.axis("off")
        alt = (
            "A matrix of three tokens and four features, coloured by head. Reshaping cuts each row "
            "into heads, swapping the axes collects each head's rows. Reshaping straight to (h, n, "
            "d) fills the heads with cells of both colours."
        )
        return Picture(figure, alt)


def sum_of_heads(contributions, output):
    """What each head adds to one token's output, coordinate by coordinate."""
    num_heads, width = contributions.shape
    with canvas(6.6, 3.2) as (figure, axes):
        for head, numbers in enumerate(contributions):
            place = np.arange(width) + (head - (num_heads - 1) / 2) * 0.26
            axes.bar(place, numbers, 0.24, color=HEADS[head], label=f"head {head + 1}")
        axes.plot(range(width), output, "D", color=INK, markersize=7, label="sum = output")
        axes.axhline(0, color=PALE, linewidth=1)
        axes.set_xticks(range(width), [str(i + 1) for i in range(width)])
        axes.set(xlabel="coordinate of the output", ylabel="added by the head")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        alt = "Bars: what each head adds to every coordinate of a token's output; marks: their sum."
        return Picture(figure, alt)


def _grid(axes, first, numbers, owner, title=""):
    """Cells coloured by the head they belong to, numbered as they lie in memory."""
    x0, y0 = first
    for (i, j), number in np.ndenumerate(numbers):
        x, y = x0 + j * CELL, y0 - i * CELL
        corner, color = (x - CELL / 2, y - CELL / 2), HEADS[owner[i, j]]
        axes.add_patch(Rectangle(corner, CELL, CELL, facecolor=color, edgecolor=PAPER))
        axes.text(x, y, str(number), ha="center", va="center", color=PAPER, size=11)
    axes.text(x0 - CELL / 2, y0 + 0.75, title, weight="bold")


def _heads(axes, x, heads, owner):
    for i, head in enumerate(heads):
        y = -i * 2.3
        _grid(axes, (x, y), head, owner[i])
        axes.text(x + 1.2, y - CELL, f"head {i + 1}", va="center", color=PALE)


def _arrow(axes, x, label):
    axes.annotate(
        "", (x + 0.75, -CELL), (x, -CELL), arrowprops={"arrowstyle": "-|>", "color": PALE}
    )
    axes.text(x + 0.37, -CELL + 0.25, label, ha="center", size=9.5)
