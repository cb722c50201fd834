"""Sliders for one token's features: every step of the computation follows."""

from dataclasses import replace
from html import escape
from math import ceil

from mha_lib.worked_example.exact import trace
from mha_lib.worked_example.writing import written

REACH, STEP = 2, 0.5  # how far a feature can be moved, and by how much at a time
MOST_DECIMALS = 6  # of a feature


class Sliders:
    """The steps for one token, with a slider for each of its features, called by ``names``.

    Without ipywidgets, or where no kernel runs (on a printed page for instance), the steps of the
    example as it is show as text; with ``head``, counted from 1, this text is of that head alone.
    Raises ValueError for a token or a head that is not there, and for a number of names that is
    not the number of features.
    """

    def __init__(self, example, token, names=None, head=None):
        self.example, self.token, self.head = example, token, head
        self.row = example.position(token)
        if head is not None:
            example.head_index(head)
        width = len(example.x[self.row])
        self.names = [f"feature {i + 1}" for i in range(width)] if names is None else list(names)
        if len(self.names) != width:
            raise ValueError(f"names must be one per feature, {width}, got {len(self.names)}")

    def steps(self, features, head=None):
        """The computation written out, with these features for the token."""
        rows = list(self.example.x)
        rows[self.row] = tuple(features)
        return written(trace(replace(self.example, x=tuple(rows))), self.token, head)

    def widget(self):
        """The sliders and the steps below them, as an ipywidgets box."""
        import ipywidgets

        features = [round(float(x), MOST_DECIMALS) for x in self.example.x[self.row]]
        reach = max(REACH, *(ceil(abs(x)) for x in features))
        sliders = [
            ipywidgets.FloatSlider(value=x, min=-reach, max=reach, step=STEP, description=name)
            for x, name in zip(features, self.names, strict=True)
        ]
        page = ipywidgets.HTML()

        def follow(_=None):
            page.value = f"<pre>{escape(self.steps([s.value for s in sliders]))}</pre>"

        for slider in sliders:
            slider.observe(follow, "value")
        follow()
        return ipywidgets.VBox([*sliders, page])

    def __repr__(self):
        return self.steps(self.example.x[self.row], self.head)

    def _repr_mimebundle_(self, include=None, exclude=None):
        text = {"text/plain": repr(self)}
        try:
            return self.widget()._repr_mimebundle_() | text
        except ImportError:
            return text
