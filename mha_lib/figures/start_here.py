"""Pictures of chapter 0: the map of the book, and one layer from end to end."""

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from mha_lib.figures.style import HEADS, INK, PALE, PAPER, Picture, canvas

# Title, column and row on the map, and the chapters that it builds on.
CHAPTERS = {
    "00": ("start here", 0, 1, ()),
    "01": ("one head", 1, 1, ("00",)),
    "02": ("splitting\ninto heads", 2, 1, ("01",)),
    "03": ("worked\nexample", 3, 2, ("02",)),
    "04": ("masking", 3, 1, ("02",)),
    "05": ("complexity", 3, 0, ("02",)),
    "06": ("expressiveness", 4, 2, ("03",)),
    "07": ("key-value\ncache", 4, 1, ("04", "05")),
}
WRITTEN = ("00", "01", "02", "03", "04", "05", "06", "07")
WIDTH, HEIGHT, STEP_X, STEP_Y = 1.62, 0.74, 2.05, 1.12


def book_map():
    """The chapters and what each builds on; those still to come are hollow."""
    with canvas(8.6, 3.0) as (figure, axes):
        for number, (title, column, row, _) in CHAPTERS.items():
            written = number in WRITTEN
            _box(
                axes,
                (column * STEP_X, row * STEP_Y),
                (WIDTH, HEIGHT),
                f"{number}  {title}",
                face=HEADS[0] if written else PAPER,
                ink=PAPER if written else INK,
            )
        for _, column, row, needs in CHAPTERS.values():
            for need in needs:
                _, from_column, from_row, _ = CHAPTERS[need]
                start = (from_column * STEP_X + WIDTH / 2, from_row * STEP_Y)
                _arrow(axes, start, (column * STEP_X - WIDTH / 2, row * STEP_Y))
        _frame(axes, (-1, 4 * STEP_X + 1), (-0.6, 2 * STEP_Y + 0.6))
        alt = (
            "Map of the book: start here, one head, splitting into heads; from there the worked "
            "example and expressiveness, masking, complexity, and the key-value cache."
        )
        return Picture(figure, alt)


def layer():
    """One layer with two heads: what flows where, with the sizes below."""
    with canvas(8.6, 3.6) as (figure, axes):
        axes.set_aspect("equal")
        _matrix(axes, (0, 0), (1.6, 1.2), "$X$", "$n \\times d_{model}$", PALE)
        for row, name in ((1, "Q"), (0, "K"), (-1, "V")):
            _arrow(axes, (0.9, 0.2 * row), (2.5, 1.75 * row), f"$W^{name}$", lift=0.22)
            width = {"Q": "", "K": r"$n \times h\,d_k$", "V": r"$n \times h\,d_v$"}[name]
            _pair(axes, (3.0, 1.75 * row), (0.76, 1.2), name, width)
        for row in (1, 0):
            _arrow(axes, (4.3, 1.75 * row), (5.1, 0.875 + 0.25 * (2 * row - 1)))
        _pair(axes, (5.65, 0.875), (1.2, 1.2), "A", "each head: $n \\times n$")
        _arrow(axes, (7.65, 0.875), (8.7, 0.2))
        _arrow(axes, (4.3, -1.75), (8.7, -0.2))
        axes.text(8.0, 0.9, "$A_i V_i$", ha="left", va="center", size=11)
        _pair(axes, (9.2, 0), (0.76, 1.2), "H", "side by side")
        _arrow(axes, (10.5, 0), (11.4, 0), "$W^O$")
        _matrix(axes, (12.3, 0), (1.6, 1.2), "output", "$n \\times d_{model}$", PALE)
        _frame(axes, (-0.95, 13.3), (-2.8, 2.5))
        alt = (
            "One layer with two heads: X times W^Q, W^K and W^V gives queries, keys and values, "
            "each cut into two heads; every head computes its n by n weights A from its queries "
            "and keys and mixes its values; the results stand side by side and W^O maps them back "
            "to d_model."
        )
        return Picture(figure, alt)


def _pair(axes, corner, size, name, shape):
    """The same matrix for head 1 and head 2, next to each other, from the left one's centre."""
    (x, y), (width, height) = corner, size
    for head in (0, 1):
        centre = (x + head * (width + 0.05), y)
        _matrix(axes, centre, size, f"${name}_{head + 1}$", "", HEADS[head])
    middle = (x + (width + 0.05) / 2, y - height / 2 - 0.23)
    axes.text(*middle, shape, ha="center", va="center", color=PALE, size=9)


def _box(axes, centre, size, text, *, face, ink):
    (x, y), (width, height) = centre, size
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=face, edgecolor=HEADS[0])
    )
    axes.text(x, y, text, ha="center", va="center", color=ink, size=9.5, linespacing=1.3)


def _matrix(axes, centre, size, name, shape, color):
    (x, y), (width, height) = centre, size
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.05"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=color, edgecolor="none")
    )
    axes.text(x, y, name, ha="center", va="center", color=PAPER, size=12)
    axes.text(x, y - height / 2 - 0.23, shape, ha="center", va="center", color=PALE, size=9)


def _arrow(axes, start, end, label="", lift=0.14):
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=11, color=PALE, linewidth=1.3, shrinkA=2
        )
    )
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    axes.text(x, y + lift, label, ha="center", va="bottom", size=10)


def _frame(axes, x, y):
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.axis("off")
