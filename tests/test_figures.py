"""Pictures: the same bytes twice, the files in figures/ current, and readable in grey."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from mha_lib import notebooks
from mha_lib.figures import gallery, start_here, style

ROOT = Path(__file__).parents[1]


@functools.cache
def drawn(name):
    """A picture that several tests look at; some take seconds of training."""
    return gallery.DRAWINGS[name]()


@pytest.mark.parametrize("name", gallery.DRAWINGS)
def test_a_picture_is_the_same_bytes_twice_and_in_its_file(name):
    first, second = drawn(name), gallery.DRAWINGS[name]()
    assert first.data == second.data
    path = ROOT / "figures" / f"{name}.{first.kind}"
    assert path.read_bytes() == first.data, f"python -m mha_lib figures rewrites {path.name}"


def test_figures_holds_nothing_else():
    assert {path.stem for path in (ROOT / "figures").iterdir()} == set(gallery.DRAWINGS)


def test_every_picture_of_a_chapter_has_its_file():
    files = {path.read_text() for path in (ROOT / "figures").glob("*.svg")}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        shown = notebooks.pictures(json.loads(path.read_text()))
        lines = {picture for picture in shown if picture.startswith("<svg")}
        assert lines and lines <= files, f"a picture of {path.name} is not in figures/"


def test_the_map_shows_the_chapters_that_are_written_as_solid():
    written = {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert set(start_here.WRITTEN) == written


def test_every_picture_says_in_words_what_it_shows():
    for picture in map(drawn, gallery.DRAWINGS):
        assert len(picture.alt.split()) >= 8
        assert picture.kind == "png" or b"aria-label=" in picture.data


def grey(color):
    return float(np.dot(to_rgb(color), [0.3, 0.59, 0.11]))


def test_heads_differ_in_grey():
    shades = sorted(grey(color) for color in style.HEADS)
    assert np.diff(shades).min() > 0.1


def test_more_weight_is_darker():
    shades = [grey(style.WEIGHTS(share)) for share in np.linspace(0, 1, 11)]
    assert (np.diff(shades) < 0).all()


def test_numbers_in_cells_have_a_real_minus_and_no_minus_zero():
    assert style._printed(-1.25, 1) == "−1.2" and style._printed(-0.001, 2) == "0.00"
