"""What an exercise asks; below, its hints and solution, folded until the reader opens them."""

import html
import inspect
import re
from dataclasses import dataclass

from mha_lib.exercises.catalogue import find
from mha_lib.exercises.judge import Exercise


@dataclass(frozen=True, repr=False)
class Help:
    """The task, two hints and a solution; a notebook shows all but the task folded."""

    exercise: Exercise

    def __repr__(self):
        return f"Two hints and a solution, folded: {self.exercise.name}"

    def _repr_html_(self):
        task = f"`{self.exercise.signature}`. {self.exercise.task}"
        first, second = map(_prose, self.exercise.hints)
        source = html.escape(inspect.getsource(self.exercise.solution))
        return (
            _prose(task)
            + _folded("Hint 1", first)
            + _folded("Hint 2", second)
            + _folded("Solution", f"<pre><code>{source}</code></pre>")
        )


def hints(name):
    """Two hints of growing size and the solution of an exercise, each folded.

    >>> hints("softmax")
    Two hints and a solution, folded: softmax
    """
    return Help(find(name))


def _folded(summary, body):
    return f"<details><summary>{summary}</summary>{body}</details>\n"


def _prose(text):
    """A paragraph of HTML, with `code` between backticks."""
    paragraph = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return f"<p>{paragraph}</p>"
