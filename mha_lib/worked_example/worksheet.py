"""A worksheet to print: one page of blanks, one page of answers, as a single HTML file."""

from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from sympy import oo

from mha_lib.worked_example.exact import Trace, decimals, trace
from mha_lib.worked_example.writing import short

MOST_TOKENS = 4
MOST_FEATURES = 6
MOST_COLUMNS = 19  # in one table; a wider one is cut in two
DIGITS = 4
WIDTH, HEIGHT = 182.0, 268.0  # mm inside the margins of A4
TALLEST_ROW = 13.0  # mm
LARGEST_TYPE = 10.0  # points, as all sizes of type
GIVEN_TYPE = 9.0
NAMES = 13.0  # mm for the names of rows, more if they are long
GAP = 6.0  # mm between tables
FIRST = ' class="first"'  # the first column of a head
POINT = 0.3528  # mm

STYLE = """
@page { size: A4; margin: 0; }
* { box-sizing: border-box; }
body { margin: 0; color: #000; background: #fff; font-family: Arial, Helvetica, sans-serif; }
.page { width: 210mm; height: 296mm; padding: 12mm 14mm 10mm; overflow: hidden; font-size: 9pt; }
.page:first-of-type { break-after: page; }
header { display: flex; justify-content: space-between; align-items: baseline;
  border-bottom: 2px solid #000; padding-bottom: 1.5mm; }
h1 { font-size: 14pt; margin: 0; }
p { margin: 1.5mm 0 0; }
sup, sub { font-size: 0.75em; line-height: 0; }
.line { display: inline-block; border-bottom: 1px solid #000; width: 52mm; }
h2 { font-size: 9.5pt; margin: 3.4mm 0 0.8mm; }
h2 span { font-weight: normal; }
.row { display: flex; gap: GAPmm; align-items: flex-start; }
.row + .row { margin-top: 2mm; }
table { border-collapse: collapse; }
table.fill { table-layout: fixed; width: 100%; margin-bottom: 1.6mm; }
col.names { width: NAMESmm; }
caption { text-align: left; padding-bottom: 0.4mm; white-space: nowrap; }
th { font-weight: normal; padding: 0; overflow: hidden; white-space: nowrap; font-size: 7.5pt; }
th.group { font-weight: bold; }
th.name { text-align: right; padding-right: 1.2mm; font-style: italic;
  font-size: min(8.5pt, calc(ROWmm * 0.75)); line-height: 1; }
th.head { font-size: 8.5pt; font-weight: bold; text-align: left; }
td { border: 1px solid #777; text-align: center; padding: 0; white-space: nowrap; }
td.first { border-left: 2px solid #000; }
td:last-child { border-right: 2px solid #000; }
tbody tr:first-child td { border-top: 2px solid #000; }
tbody tr:last-child td { border-bottom: 2px solid #000; }
td.closed { background: #ddd; print-color-adjust: exact; }
.fill tbody tr { height: ROWmm; }
.given tr { height: 4.8mm; }
.given td { min-width: 1.9em; padding: 0 0.2em; }
.given { font-size: GIVENpt; }
footer { margin-top: 3mm; font-size: 8.5pt; }
"""


class Group(NamedTuple):
    """Columns of a table that belong together; ``rows`` hold exact numbers.

    ``closed`` is True where a mask forbids; without it every cell is open.
    """

    title: str
    columns: tuple
    rows: tuple
    closed: tuple = ()


def worksheet(example):
    """HTML of two A4 pages: tables to fill in by hand, and the same tables with the answers.

    Type and rows shrink for what is larger than the book's example. Raises ValueError for more than
    4 tokens or 6 columns: that would not fit on a page.

    >>> from mha_lib.worked_example import THE_CAT_SAT
    >>> worksheet(THE_CAT_SAT).count('<section class="page">')
    2
    """
    _check_size(example)
    sheet = _Sheet(trace(example))
    sizes = {"ROW": sheet.row_height, "GIVEN": sheet.given_type, "NAMES": sheet.names, "GAP": GAP}
    style = STYLE
    for name, size in sizes.items():
        style = style.replace(name, f"{size:.2f}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>Worksheet: {sheet.title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{sheet.page(answers=False)}{sheet.page(answers=True)}</body>\n</html>\n"
    )


def _check_size(example):
    counts = {"tokens": len(example.tokens), "memory_tokens": len(example.key_tokens)}
    for name, count in counts.items():
        if count > MOST_TOKENS:
            raise ValueError(f"a worksheet has room for {MOST_TOKENS} {name}, got {count}")
    for name in ("x", "w_q", "w_k", "w_v", "w_o"):
        for count in (len(getattr(example, name)), len(getattr(example, name)[0])):
            if count > MOST_FEATURES:
                raise ValueError(
                    f"a worksheet has room for {MOST_FEATURES} rows and columns in {name}, "
                    f"got {count}"
                )


@dataclass(frozen=True)
class _Sheet:
    """The tables of a trace, and the size of rows and type at which they fill a page."""

    found: Trace

    @property
    def example(self):
        return self.found.example

    @property
    def title(self):
        return escape(" ".join(self.example.tokens))

    @property
    def mask(self):
        """What a causal mask means; with a memory it is not a matter of one sentence."""
        return "causal" + ": a token sees itself and those before it" * (
            self.example.memory is None
        )

    @property
    def names(self):
        """The width of the column of names, in mm."""
        longest = max(map(len, self.example.tokens + self.example.key_tokens))
        return max(NAMES, 0.6 * 8.5 * POINT * longest + 1.2)

    @property
    def row_height(self):
        """What is left of the page, shared among the rows to fill in, in mm."""
        example = self.example
        tables = len(self.head_tables(0)) * example.num_heads
        tokens = max(len(example.tokens), len(example.key_tokens))
        rows = tokens + (tables + 1) * len(example.tokens)
        given = sum(max(map(_height, line)) for line in self._given_lines())
        second_line = 4.5 * example.causal  # of the words above the tables
        return min(TALLEST_ROW, (HEIGHT - 62 - second_line - given - 8.2 * tables) / rows)

    @property
    def given_type(self):
        """Points at which the matrices given fit the width."""
        widest = max(
            sum(_given_width(rows, names) for _, names, rows, _ in line) + GAP * (len(line) - 1)
            for line in self._given_lines()
        )
        return GIVEN_TYPE * min(1.0, WIDTH / widest)

    def page(self, answers):
        """One page, blank or with the answers."""
        e = self.example
        right = "Answers" if answers else 'Name <span class="line"></span>'
        heads = f"{e.num_heads} head{'s' * (e.num_heads > 1)}"
        sizes = f"{heads}, d<sub>k</sub> = {e.d_k}, d<sub>v</sub> = {e.d_v}"
        advice = "Keep four decimals until the end."
        if e.causal:
            sizes += f", {self.mask}"
            advice += " Grey cells are masked: leave them empty."
        parts = [
            f"<header><h1>Multi-head attention by hand</h1><div>{right}</div></header>",
            f"<p><i>{self.title}</i>, {sizes}. {advice}</p>",
            self._given(),
            self._projected(answers),
            "<h2>2. Head by head <span>(a row for each query, a column for each key)</span></h2>",
            *(self._head(h, answers) for h in range(e.num_heads)),
            self._joined(answers),
        ]
        return '<section class="page">\n' + "\n".join(parts) + "\n</section>\n"

    def head_tables(self, h):
        """The steps of one head, as one row of groups or two."""
        heads = [token.heads[h] for token in self.found.tokens]
        names = self.example.key_tokens
        closed = tuple(tuple(score == -oo for score in head.scores) for head in heads)

        def group(title, step):
            return Group(title, names, tuple(getattr(head, step) for head in heads), closed)

        scores = [
            group("q · k", "scores"),
            group(f"q · k ÷ √{self.example.d_k}", "scaled"),
        ]
        rest = [
            group("exp", "exponentials"),
            Group("sum", ("",), tuple((head.sum,) for head in heads)),
            group("weights (exp ÷ sum)", "weights"),
            Group("output", _numbered(self.example.d_v), tuple(head.output for head in heads)),
        ]
        wide = 4 * len(names) + 1 + self.example.d_v > MOST_COLUMNS
        return [scores, rest] if wide else [scores + rest]

    def _given_lines(self):
        """Caption, names, rows and heads of the matrices given, line by line."""
        e = self.example
        inputs = [("X", e.tokens, e.x, 1)]
        if e.memory is not None:
            inputs.append(("memory", e.key_tokens, e.memory, 1))
        matrices = [
            (
                f"W<sup>{key[-1].upper()}</sup>",
                (),
                getattr(e, key),
                1 if key == "w_o" else e.num_heads,
            )
            for key in ("w_q", "w_k", "w_v", "w_o")
        ]
        one_line = inputs + matrices
        width = sum(_given_width(rows, names) + GAP for _, names, rows, _ in one_line) - GAP
        return [one_line] if width <= WIDTH else [inputs, matrices]

    def _given(self):
        lines = (
            f'<div class="row">{"".join(_given(*matrix) for matrix in line)}</div>'
            for line in self._given_lines()
        )
        return "\n".join(["<h2>Given</h2>", *lines])

    def _projected(self, answers):
        e, first = self.example, self.found.tokens[0]
        source = "X" if e.memory is None else "memory"
        queries = [[t.heads[h].query for t in self.found.tokens] for h in range(e.num_heads)]
        parts = (
            ("Q", "X", e.tokens, queries),
            ("K", source, e.key_tokens, [head.keys for head in first.heads]),
            ("V", source, e.key_tokens, [head.values for head in first.heads]),
        )
        tables = "".join(
            self._table(
                f"{name} = {factor} W<sup>{name}</sup>",
                tokens,
                [
                    Group(_head_title(h, rows[0]), _numbered(len(rows[0])), tuple(rows))
                    for h, rows in enumerate(of_heads)
                ],
                answers,
                (WIDTH - 2 * GAP) / 3,
            )
            for name, factor, tokens, of_heads in parts
        )
        return f'<h2>1. Queries, keys and values</h2>\n<div class="row">{tables}</div>'

    def _head(self, h, answers):
        return "\n".join(
            self._table("", self.example.tokens, groups, answers, WIDTH, f"Head {h + 1}")
            for groups in self.head_tables(h)
        )

    def _joined(self, answers):
        e, tokens = self.example, self.found.tokens
        half = (WIDTH - GAP) / 2
        concat = [
            Group(
                _head_title(h, range(e.d_v)),
                _numbered(e.d_v),
                tuple(t.heads[h].output for t in tokens),
            )
            for h in range(e.num_heads)
        ]
        output = [Group("output", _numbered(len(e.w_o[0])), tuple(t.output for t in tokens))]
        return (
            f"<h2>3. Heads side by side, then times W<sup>O</sup></h2>\n"
            f'<div class="row">{self._table("", e.tokens, concat, answers, half)}'
            f"{self._table('', e.tokens, output, answers, half)}</div>"
        )

    def _table(self, caption, names, groups, answers, width, corner=""):
        """A table of groups, ``width`` mm wide, in the largest type that its numbers fit."""
        widest = max(_ems(_text(n)) for group in groups for row in group.rows for n in row)
        columns = sum(len(group.columns) for group in groups)
        widest = max(widest, _ems("16.9188" if corner else "16"))  # as a rule one type for all
        by_width = (width - self.names) / columns / POINT / (widest + 0.45)
        size = min(LARGEST_TYPE, by_width, 0.7 * self.row_height / POINT)
        return _table(caption, names, groups, size, answers, corner)


def _given(caption, names, rows, num_heads):
    """A matrix that is given, with a line between the columns of two heads."""
    d = len(rows[0]) // num_heads
    body = "".join(
        f"<tr>{_name(name)}"
        + "".join(
            f"<td{FIRST * (j % d == 0)}>{_printed(short(number))}</td>"
            for j, number in enumerate(row)
        )
        + "</tr>"
        for name, row in zip(names or [None] * len(rows), rows, strict=True)
    )
    return f'<table class="given"><caption>{caption}</caption><tbody>{body}</tbody></table>'


def _given_width(rows, names):
    """In mm, in the usual type."""
    longest = max(len(short(number)) for row in rows for number in row)
    em = GIVEN_TYPE * POINT
    return len(rows[0]) * max(2.3, 0.56 * longest + 0.5) * em + 0.6 * em * max(
        map(len, names), default=0
    )


def _ems(text):
    """The width of a number in ems; points are half as wide as digits."""
    return 0.56 * len(text) - 0.28 * text.count(".")


def _height(matrix):
    """Of a matrix that is given, with its caption, in mm."""
    _, _, rows, _ = matrix
    return 4.9 * len(rows) + 6


def _head_title(h, columns):
    return f"head {h + 1}" if len(columns) > 1 else f"h. {h + 1}"


def _table(caption, names, groups, size, answers, corner):
    titles = "".join(
        f'<th class="group" colspan="{len(group.columns)}">{group.title}</th>' for group in groups
    )
    columns = "".join(f"<th>{escape(str(c))}</th>" for group in groups for c in group.columns)
    body = "".join(
        f"<tr>{_name(name)}{''.join(_cells(group, i, answers) for group in groups)}</tr>"
        for i, name in enumerate(names)
    )
    caption = f"<caption>{caption}</caption>" if caption else ""
    return (
        f'<table class="fill">{caption}<colgroup><col class="names"></colgroup>'
        f'<thead><tr><th class="head">{corner}</th>{titles}</tr><tr><th></th>{columns}</tr></thead>'
        f'<tbody style="font-size: {size:.2f}pt">{body}</tbody></table>'
    )


def _cells(group, i, answers):
    """One row's cells in a group; what a mask forbids is grey."""
    cells = []
    for j, number in enumerate(group.rows[i]):
        kinds = ["first"] * (j == 0) + ["closed"] * bool(group.closed and group.closed[i][j])
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        cells.append(f"<td{kind}>{_text(number) if answers else ''}</td>")
    return "".join(cells)


def _name(name):
    return "" if name is None else f'<th class="name">{escape(name)}</th>'


def _numbered(count):
    return tuple(range(1, count + 1))


def _text(number):
    """Whole numbers as they are, others in four decimals, fewer where many digits stand before."""
    if number.is_Integer:
        text = short(number)
    else:
        text = decimals(number, DIGITS)
        before = len(text.partition(".")[0].lstrip("-"))
        text = decimals(number, 2 if "e" in text else max(1, DIGITS + 2 - max(2, before)))
    return _printed(text)


def _printed(text):
    return text.replace("-", "−").replace("inf", "∞")
