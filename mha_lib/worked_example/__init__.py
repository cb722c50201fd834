"""The worked example "The cat sat.", exactly and step by step, or a reader's own small layer."""

from mha_lib.worked_example.exact import (
    HeadTrace,
    Nearest,
    TokenTrace,
    Trace,
    decimals,
    nearest_single_distribution,
    trace,
)
from mha_lib.worked_example.example import THE_CAT_SAT, Example, load
from mha_lib.worked_example.printed import printed_numbers
from mha_lib.worked_example.reader import check, judge_value
from mha_lib.worked_example.worksheet import worksheet
from mha_lib.worked_example.writing import written

__all__ = [
    "THE_CAT_SAT",
    "Example",
    "HeadTrace",
    "Nearest",
    "TokenTrace",
    "Trace",
    "check",
    "decimals",
    "judge_value",
    "load",
    "nearest_single_distribution",
    "printed_numbers",
    "trace",
    "worksheet",
    "written",
]
