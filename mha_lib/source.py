"""Show a function's code in a chapter, taken from the library itself."""

import ast
import inspect
import textwrap


class Source:
    """The code of functions as a notebook shows it: no docstrings, the prose around says more."""

    def __init__(self, *functions):
        self.text = "\n\n".join(without_docstring(inspect.getsource(f)) for f in functions)

    def __repr__(self):
        return self.text

    def _repr_markdown_(self):
        return f"```python\n{self.text}\n```"


def without_docstring(source):
    """The source of one function, dedented, less its docstring.

    >>> print(without_docstring("def f():\\n    'Say one.'\\n    return 1"))
    def f():
        return 1
    """
    source = textwrap.dedent(source).strip()
    body = ast.parse(source).body[0].body
    lines = source.splitlines()
    if ast.get_docstring(ast.parse(source).body[0]) is not None:
        del lines[body[0].lineno - 1 : body[0].end_lineno]
    return "\n".join(lines)
