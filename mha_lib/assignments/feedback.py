"""A student's page: points, what was found, and no file but itself."""

import html

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.2rem }
section { border-left: 4px solid #b5b5b5; padding: .1rem 1rem; margin: 1rem 0; background: #f7f7f7 }
section.right { border-color: #1b7f3b } section.part { border-color: #b07c00 }
section.wrong { border-color: #b3261e }
h3 { font-size: 1rem; margin: .5rem 0; display: flex; justify-content: space-between }
code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
@media print { section { break-inside: avoid } }
"""
KINDS = {
    "right": "right",
    "not attempted": "not attempted",
    "missing": "no such function",
    "stopped": "stopped",
    "too slow": "not in time",
    "named fault": "a known fault",
    "raised": "raised an error",
    "mutated": "changes its input",
    "printed": "prints, returns nothing",
}


def page(student, rows):
    """One HTML page for all that a student handed in."""
    body = "".join(map(_submission, rows))
    title = f"Feedback for {html.escape(student)}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}</body></html>\n"
    )


def _submission(row):
    title = html.escape(row.set.title if row.set else row.file)
    head = f"<h2>{title}: {row.grade.earned} of {row.automatic} points</h2>\n"
    where = f"<p>From the file <code>{html.escape(row.file)}</code>.</p>\n"
    notes = "".join(f"<li><code>{html.escape(note)}</code></li>" for note in row.grade.notes)
    notes = f"<p>Some of it did not run:</p><ul>{notes}</ul>\n" if notes else ""
    opened = (_open(name, row) for name in row.grade.open)
    return head + where + notes + "".join(map(_result, row.grade.results)) + "".join(opened)


def _result(result):
    question = result.question
    colour = {question.points: "right", 0: "wrong"}.get(result.earned, "part")
    said = f"{KINDS.get(result.kind, 'not right yet')} · {result.earned} of {question.points}"
    tests = f"{result.public} of {question.public} in the tests that you have seen, "
    tests += f"{result.hidden} of {question.hidden} in those on other inputs"
    return (
        f'<section class="{colour}"><h3><code>{html.escape(question.name)}</code>'
        f"<span>{said}</span></h3><p>{tests}</p>"
        f"<pre>{html.escape(result.message)}</pre></section>\n"
    )


def _open(name, row):
    points, comment = row.marks[name]
    most = row.set.open[name]
    said = f"read by a person, up to {most} points" if points is None else f"{points:g} of {most}"
    text = row.grade.open[name] or "No answer."
    comment = f"<p>{html.escape(comment)}</p>" if comment else ""
    return (
        f"<section><h3>In your own words: {html.escape(name)}<span>{said}</span></h3>{comment}"
        f"<pre>{html.escape(text)}</pre></section>\n"
    )
