"""Code that a chapter shows comes from the library, without its docstring."""

import numpy as np

from mha_lib import scratch, validate
from mha_lib.source import Source


def test_the_docstring_is_left_out_and_the_code_kept():
    shown = repr(Source(scratch.softmax))
    assert shown.startswith("def softmax(scores, axis=-1") and '"""' not in shown
    assert shown.endswith("return weights")


def test_several_functions_stand_below_each_other():
    shown = Source(scratch.split_heads, scratch.merge_heads)._repr_markdown_()
    assert shown.startswith("```python\ndef split_heads") and "\n\ndef merge_heads" in shown


def test_what_is_shown_runs():
    names = {"np": np, "validate": validate}
    exec(repr(Source(scratch.softmax)), names)
    assert names["softmax"](np.zeros(2)).tolist() == [0.5, 0.5]
