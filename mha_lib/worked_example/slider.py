"""Sliders for one token's features: every step of the computation follows."""

from dataclasses import replace
from fractions import Fraction
from html import escape

from mha_lib.worked_example.exact import trace
from mha_lib.worked_example.writing import written

REACH, STEP = 2, 0.5  # how far a feature can be moved, and by how much at a time


class Sliders:
    """The steps for one token, with a slider for each of its features.

    Where no kernel runs, on a printed page for instance, the steps of the example as it is show.
    """

    def __init__(self, example, token):
        self.example, self.token = example, token
        self.row = example.tokens.index(token)

    def steps(self, features):
        """The computation written out, with these features for the token."""
        rows = list(self.example.x)
        rows[self.row] = tuple(Fraction(x) for x in features)
        return written(trace(replace(self.example, x=tuple(rows))), self.token)

    def widget(self):
        """The sliders and the steps below them, as an ipywidgets box."""
        import ipywidgets

        sliders = [
            ipywidgets.FloatSlider(
                value=float(x), min=-REACH, max=REACH, step=STEP, description=f"feature {i + 1}"
            )
            for i, x in enumerate(self.example.x[self.row])
        ]
        page = ipywidgets.HTML()

        def follow(_=None):
            page.value = f"<pre>{escape(self.steps(s.value for s in sliders))}</pre>"

        for slider in sliders:
            slider.observe(follow, "value")
        follow()
        return ipywidgets.VBox([*sliders, page])

    def __repr__(self):
        return self.steps(self.example.x[self.row])

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.widget()._repr_mimebundle_() | {"text/plain": repr(self)}
