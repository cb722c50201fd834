"""The computation as one writes it by hand, in plain text."""

import sympy

from mha_lib.worked_example.exact import decimals

LINE_WIDTH = 100
MOST_DIGITS = 30
GAP = "   "
LONGEST_EXACT = 10  # of a number among others
LONGEST_FORMULA = 80
ROUNDING = (
    "Every number is rounded from its exact value: "
    "a sum of rounded numbers can differ in the last digit."
)


def written(trace, token=None, head=None, digits=4):
    """The steps of one token or all, in one head or all and then to the output; a str.

    ``head`` counts from 1; with it the steps end at that head's output. Raises ValueError for a
    token or a head that is not there, and for ``digits`` outside 0 to 30.

    >>> from mha_lib.worked_example import THE_CAT_SAT, trace
    >>> print(written(trace(THE_CAT_SAT), "cat", head=2, digits=3).splitlines()[-4])
           = [0.822, 0.266]
    """
    if digits not in range(MOST_DIGITS + 1):
        raise ValueError(f"digits must be a whole number from 0 to {MOST_DIGITS}, got {digits!r}")
    example = trace.example
    tokens = trace.tokens if token is None else [trace.of(token)]
    heads = range(example.num_heads) if head is None else [example.head_index(head)]
    blocks = [] if token is not None else [_layer(trace, digits)]
    for found in tokens:
        blocks += [_head(found, h, example, digits) for h in heads]
        if head is None:
            blocks.append(_all_heads(found, example, digits))
    return "\n\n\n".join([*blocks, ROUNDING])


def short(expression, digits=4):
    """A number as it is where that is short (2, 0.5, sqrt(2)/2), else its decimals.

    >>> short(sympy.sqrt(2) / 2), short(sympy.Rational(1, 2)), short(sympy.exp(sympy.sqrt(2)))
    ('sqrt(2)/2', '0.5', '4.1133')
    """
    expression = sympy.sympify(expression)
    if expression.is_Rational:
        exact = (expression * 10**digits).is_Integer
        text = decimals(expression, digits)
        return text.rstrip("0").rstrip(".") if exact and "." in text and "e" not in text else text
    text = str(expression)
    root = expression.is_algebraic and len(text) <= LONGEST_EXACT
    return text if root else decimals(expression, digits)


def _layer(trace, digits):
    """What is given, and the queries, keys and values of all tokens; a bar between heads."""
    example = trace.example
    title = (
        f"{_count(len(example.tokens), 'token')}, {_count(example.num_heads, 'head')}, "
        f"d_k = {example.d_k}, d_v = {example.d_v}" + ", causal" * example.causal
    )
    h, names, keys = example.num_heads, example.tokens, example.key_tokens
    given = [_grid("X", example.x, names, 1, digits)]
    if example.memory is not None:
        given.append(_grid("memory", example.memory, keys, 1, digits))
    given += [
        _grid(f"W^{key[-1].upper()}", getattr(example, key), None, 1 if key == "w_o" else h, digits)
        for key in ("w_q", "w_k", "w_v", "w_o")
    ]
    first, source = trace.tokens[0], "X" if example.memory is None else "memory"
    queries = [sum((part.query for part in found.heads), ()) for found in trace.tokens]
    key_rows, value_rows = (
        [sum(parts, ()) for parts in zip(*(getattr(part, kind) for part in first.heads))]
        for kind in ("keys", "values")
    )
    made = [
        _grid("Q = X W^Q", queries, names, h, digits),
        _grid(f"K = {source} W^K", key_rows, keys, h, digits),
        _grid(f"V = {source} W^V", value_rows, keys, h, digits),
    ]
    return "\n\n".join([title, _side_by_side(given), _side_by_side(made)])


def _count(number, thing):
    return f"{number} {thing}{'s' * (number != 1)}"


def _head(found, h, example, digits):
    """One query in one head, a column for each token that it may look at."""
    head = found.heads[h]
    vectors = [[_vector(row, digits) for row in rows] for rows in (head.keys, head.values)]
    scaled, rounded = _shorts(head.scaled, digits), _decimals(head.scaled, digits)
    rows = [
        ("", example.key_tokens),
        ("key", vectors[0]),
        ("query . key", _shorts(head.scores, digits)),
        (f"divided by sqrt({example.d_k})", scaled),
        ("", rounded),
        ("exp", _decimals(head.exponentials, digits)),
        ("divided by the sum", _decimals(head.weights, digits)),
        ("value", vectors[1]),
    ]
    if not any("sqrt" in text for text in scaled):
        del rows[4]
    products = [f"{w} * {v}" for w, v in zip(_decimals(head.weights, digits), vectors[1])]
    label = f"head {h + 1}"
    indent = " " * len(label)
    return "\n".join(
        [
            f"{found.token}, head {h + 1}",
            "",
            *_query(found, h, example, digits),
            "",
            *_aligned(rows),
            "",
            " = ".join(["sum of exp", *_exactly([head.sum]), decimals(head.sum, digits)]),
            *_filled(f"{label} =", products, indent),
            *(f"{indent} = [{text}]" for text in _exactly(head.output)),
            f"{indent} = [{', '.join(_decimals(head.output, digits))}]",
        ]
    )


def _query(found, h, example, digits):
    """Where the query comes from."""
    first, last = h * example.d_k + 1, (h + 1) * example.d_k
    columns = f"columns {first} to {last}" if last > first else f"column {first}"
    query = _vector(found.heads[h].query, digits)
    yield f"x = {_vector(found.x, digits)}, query = x times {columns} of W^Q = {query}"


def _all_heads(found, example, digits):
    """The heads side by side, and W^O."""
    parts = [", ".join(_decimals(head.output, digits)) for head in found.heads]
    lines = [f"{found.token}: the heads side by side = [{' | '.join(parts)}]", ""]
    for j, value in enumerate(found.output):
        column = [row[j] for row in example.w_o]
        terms = _terms(_decimals(found.concat, digits), column, digits)
        label = f"column {j + 1} of W^O:"
        result = f"= {decimals(value, digits)}"
        *start, last = _filled(label, terms, " " * len(label), joint=" ")
        lines += [*start, f"{last} {result}"]
    return "\n".join([*lines, "", f"output = [{', '.join(_decimals(found.output, digits))}]"])


def _terms(numbers, coefficients, digits):
    """Signed products, those with 0 left out."""
    terms = []
    for number, factor in zip(numbers, coefficients, strict=True):
        if factor == 0:
            continue
        negative = factor < 0
        sign = ("-" if negative else "") if not terms else ("- " if negative else "+ ")
        number = f"({number})" if number.startswith("-") else number
        times = "" if abs(factor) == 1 else f"{short(abs(factor), digits)} * "
        terms.append(f"{sign}{times}{number}")
    return terms or ["0"]


def _filled(label, terms, indent, joint=" + "):
    """Terms after a label, on as many lines as they need."""
    lines = [f"{label} {terms[0]}"]
    for term in terms[1:]:
        if len(lines[-1] + joint + term) < LINE_WIDTH - 12:  # room for the result
            lines[-1] += joint + term
        else:
            lines.append(f"{indent}   {joint.lstrip()}{term}")
    return lines


def _grid(title, rows, names, num_heads, digits):
    """A matrix as lines, rows with their names, a bar between the columns of two heads."""
    cells = [_shorts(row, digits) for row in rows]
    wide = max(len(text) for row in cells for text in row)
    per_head = len(cells[0]) // num_heads
    names = [""] * len(cells) if names is None else names
    longest = max(map(len, names))
    lines = [title]
    for name, row in zip(names, cells, strict=True):
        parts = [row[start : start + per_head] for start in range(0, len(row), per_head)]
        numbers = " | ".join(" ".join(text.rjust(wide) for text in part) for part in parts)
        lines.append(f"{name:{longest}} {numbers}" if longest else numbers)
    return lines


def _side_by_side(grids):
    """Blocks of lines next to each other as far as the line goes, then below."""
    bands, used = [[]], 0
    for grid in grids:
        width = max(map(len, grid))
        if bands[-1] and used + len(GAP) + width > LINE_WIDTH:
            bands.append([])
            used = 0
        bands[-1].append([line.ljust(width) for line in grid])
        used += width + len(GAP)
    return "\n\n".join("\n".join(_band(band)) for band in bands)


def _band(grids):
    height = max(map(len, grids))
    padded = [grid + [" " * len(grid[0])] * (height - len(grid)) for grid in grids]
    return [GAP.join(lines).rstrip() for lines in zip(*padded)]


def _aligned(rows):
    """Labels to the left, columns to the right."""
    labels = max(len(label) for label, _ in rows)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows))]
    return [
        (label.ljust(labels) + "".join(GAP + c.rjust(w) for c, w in zip(cells, widths))).rstrip()
        for label, cells in rows
    ]


def _exactly(numbers):
    """The exact form in a list, or nothing where it is long or says no more than decimals."""
    text = ", ".join(str(number) for number in numbers)
    return [text] if "exp" in text and len(text) <= LONGEST_FORMULA else []


def _vector(row, digits):
    return f"[{', '.join(_shorts(row, digits))}]"


def _shorts(numbers, digits):
    return [short(number, digits) for number in numbers]


def _decimals(numbers, digits):
    return [decimals(number, digits) for number in numbers]
