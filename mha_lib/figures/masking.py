"""Pictures of chapter 4: who feels whom, and the masks with their weights."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from mha_lib.figures.style import HEADS, INK, PALE, WEIGHTS, Picture, canvas

MASK = ListedColormap(["#f7f5ef", HEADS[0]])
HIDDEN = {"hatch": "////", "facecolor": "#ffffff", "edgecolor": "#c9cfd4", "linewidth": 0}


def influence(maps, tokens):
    """How far each token's output moves (rows) when a token is changed (columns), by its title."""
    with canvas(4.2 * len(maps), 3.9, ncols=len(maps), squeeze=False) as (figure, axes):
        for axis, (title, moves) in zip(axes[0], maps.items(), strict=True):
            axis.imshow(moves, cmap=WEIGHTS, vmin=0, vmax=np.max(list(maps.values())))
            for (i, j), move in np.ndenumerate(moves):
                if move == 0:
                    axis.text(j, i, "0", ha="center", va="center", color=PALE)
            _tokens(axis, tokens, tokens)
            axis.set_title(title, pad=10)
            axis.set(xlabel="token that is changed", ylabel="output that moves")
        alt = (
            f"How far each output moves when a token is changed: {'; '.join(maps)}. With the mask "
            "everything above the diagonal is exactly zero."
        )
        return Picture(figure, alt)


def gallery(shown, columns=3):
    """Masks or weights by title: each a matrix with its mask, row tokens and column tokens."""
    rows = -(-len(shown) // columns)
    with canvas(8.6, 2.95 * rows, nrows=rows, ncols=columns, squeeze=False) as (figure, axes):
        for axis, (title, panel) in zip(axes.flat, shown.items(), strict=False):
            _panel(axis, *panel)
            axis.set_title(title, pad=8)
        for axis in axes.flat[len(shown) :]:
            axis.axis("off")
        alt = (
            "Matrices with a row for each query and a column for each key, hidden places hatched: "
            f"{'; '.join(shown)}."
        )
        return Picture(figure, alt, kind="png")


def _panel(axis, numbers, mask, row_tokens, column_tokens):
    """One matrix: solid cells for a boolean one, shades for weights, hatching where hidden."""
    numbers = np.asarray(numbers)
    cmap = MASK if numbers.dtype == bool else WEIGHTS
    axis.imshow(numbers, cmap=cmap, vmin=0, vmax=1)
    for i, j in np.argwhere(~mask):
        axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **HIDDEN))
    _tokens(axis, row_tokens, column_tokens)
    axis.set_xticks(np.arange(len(column_tokens) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(row_tokens) + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="#ffffff", linewidth=1.2)


def _tokens(axis, rows, columns):
    axis.set_xticks(range(len(columns)), columns, rotation=90 if len(columns) > 5 else 0)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0, labelsize=9, which="both", colors=INK)
    axis.spines[:].set_visible(False)
