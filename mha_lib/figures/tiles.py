"""Picture of chapter 5: attention by tiles, and what is carried from one to the next."""

from matplotlib.patches import Rectangle

from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas

DONE, NOW, EDGE, SKIPPED = "#9fc3d8", HEADS[1], "#d7e6ee", PAPER


def walk(n=12, rows=3, columns=2, block=2, now=2):
    """The causal score matrix cut into tiles, at the moment when tile ``now`` of a block is done.

    A tile has ``rows`` queries and ``columns`` keys; ``block`` counts blocks of queries from 0.
    """
    with canvas(8.6, 4.3) as (figure, axes):
        axes.set_aspect("equal")
        for i in range(0, n, rows):
            for j in range(0, n, columns):
                _tile(
                    axes,
                    i,
                    j,
                    rows,
                    columns,
                    _state(i // rows, j // columns, block, now, j, i, rows),
                )
        axes.plot([0, n], [0, n], color=INK, linewidth=1.2)  # keys up to here are allowed
        axes.text(n / 2, -0.5, "keys and values, a tile at a time  →", ha="center")
        axes.text(-0.5, n / 2, "blocks of queries", ha="center", va="center", rotation=90)
        _carried(axes, n + 1.2, block * rows, rows)
        _legend(axes, n + 1.2, n)
        axes.set(xlim=(-1.2, n + 11.5), ylim=(n + 0.3, -1.2))
        axes.axis("off")
        alt = (
            "A square of scores, queries down and keys across, cut into tiles. A block of queries "
            "walks over its keys tile by tile and carries for each query a maximum, a total and a "
            "mix of values. Tiles wholly above the diagonal are skipped."
        )
        return Picture(figure, alt)


def _state(block, tile, current, now, first_key, first_query, rows):
    if first_key > first_query + rows - 1:
        return "skipped"
    if block == current and tile == now:
        return "now"
    return "done" if (block, tile) < (current, now) else "to come"


def _tile(axes, i, j, rows, columns, state):
    face = {"skipped": PAPER, "now": NOW, "done": DONE, "to come": "#f1eee4"}[state]
    hatch = "////" if state == "skipped" else None
    axes.add_patch(
        Rectangle(
            (j + 0.05, i + 0.05), columns - 0.1, rows - 0.1, facecolor=face, hatch=hatch,
            edgecolor="#c9cfd4", linewidth=0 if hatch else 0.8,
        )
    )  # fmt: skip


def _carried(axes, x, y, rows):
    """Three columns beside the current block: its maximum, total and mix."""
    for left, width, name in (
        (x, 0.7, "m"),
        (x + 1.1, 0.7, "ℓ"),
        (x + 2.2, 2.6, "mix"),
    ):
        axes.add_patch(
            Rectangle((left, y + 0.05), width, rows - 0.1, facecolor=NOW, edgecolor=PAPER)
        )
        axes.text(left + width / 2, y - 0.3, name, ha="center", va="bottom", size=10)
    axes.annotate(
        "", (x - 0.1, y + rows / 2), (x - 1.1, y + rows / 2),
        arrowprops={"arrowstyle": "-|>", "color": PALE},
    )  # fmt: skip
    axes.text(
        x + 5.1,
        y + rows / 2,
        "carried along for each\nquery: O(n · d) in all",
        va="center",
        size=10,
    )


def _legend(axes, x, n):
    words = {
        "done": "done, not stored",
        "now": "this tile, in fast memory",
        "to come": "to come",
        "skipped": "never computed",
    }
    for k, (state, text) in enumerate(words.items()):
        y = 1.15 * k
        _tile(axes, y, x, 0.9, 0.9, state)
        axes.text(x + 1.2, y + 0.45, text, va="center", size=10)
