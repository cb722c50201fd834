"""The book's look: one style, one colour for each head, one map for weights and one for scores."""

from contextlib import contextmanager
from io import BytesIO
from xml.sax.saxutils import quoteattr

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap

INK, PALE, PAPER = "#22303c", "#8a97a3", "#ffffff"
# Safe for the colour-blind, and each head lighter than the one before, so grey keeps them apart.
HEADS = ("#1f4e8c", "#c8641c", "#5fb8a9", "#f0cf7a")
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#f7f5ef", "#9fc3d8", "#1f4e8c"])
SCORES = LinearSegmentedColormap.from_list("scores", ["#8c4a1f", "#f7f5ef", "#35604f"])

STYLE = {
    "figure.facecolor": PAPER,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "svg.hashsalt": "mha",  # ids inside an SVG are the same at every run
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.labelsize": 10.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "lines.linewidth": 2.2,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "mathtext.fontset": "dejavusans",
}


@contextmanager
def canvas(width, height, **options):
    """A figure and its axes in the book's style; sizes in inches, options as plt.subplots takes."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(width, height), layout="constrained", **options)
        yield figure, axes
        plt.close(figure)  # or the notebook would draw it a second time


class Picture:
    """A finished drawing with its alternative text; a notebook shows it by itself.

    ``data`` holds the bytes of its file, SVG for lines or PNG for dense pictures (``kind``). A
    notebook gets a PNG in any case: JupyterLab shows no SVG in a notebook it does not trust yet.
    """

    def __init__(self, figure, alt, kind="svg"):
        """Draw ``figure`` once, now."""
        self.alt, self.kind = alt, kind
        figure.draw_without_rendering()  # settles the layout, which then stays as it is
        figure.set_layout_engine("none")
        self.png = _drawn(figure, "png")
        self.data = self.png if kind == "png" else _described(_drawn(figure, "svg"), alt)
        self.width = round(figure.get_figwidth() * STYLE["figure.dpi"])  # on the page, in pixels

    def __repr__(self):
        return f"Picture: {self.alt}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": repr(self), "image/png": self.png}
        if self.kind == "svg":
            bundle["image/svg+xml"] = self.data.decode()
        return bundle, {"image/png": {"alt": self.alt, "width": self.width}}


def _drawn(figure, kind):
    """The bytes of a figure, without the date that an SVG would carry."""
    buffer = BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _described(svg, alt):
    """The SVG with its alternative text where a screen reader looks for it."""
    start = svg.index(b"<svg ")  # without the XML declaration: the picture stands inside a page
    label = f'<svg role="img" aria-label={quoteattr(alt)} style="max-width: 100%" '.encode()
    return label + svg[start + len(b"<svg ") :]


def heat_map(axes, numbers, *, rows, columns, cmap=WEIGHTS, limits=(0, 1), digits=2):
    """Draw a small matrix as coloured cells with its numbers inside and tokens on its edges."""
    axes.imshow(numbers, cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="equal")
    for (i, j), number in _cells(numbers):
        axes.text(
            j,
            i,
            _printed(number, digits),
            ha="center",
            va="center",
            color=_on(cmap, number, limits),
        )
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)


def _cells(numbers):
    return (((i, j), x) for i, row in enumerate(numbers) for j, x in enumerate(row))


def _printed(number, digits):
    """With a real minus sign, and never a minus before zero."""
    return f"{round(number, digits) + 0:.{digits}f}".replace("-", "−")


def _on(cmap, number, limits):
    """Ink or paper, whichever can be read on this cell."""
    share = (number - limits[0]) / (limits[1] - limits[0])
    red, green, blue, _ = cmap(share)
    return INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else PAPER
