"""The book's chapters as files: run one afresh, and look for what would trouble a reader."""

import json
import re
from pathlib import Path

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
UNSTABLE = {
    "an address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "a path": re.compile(r"(?<![\w.])(/(home|tmp|root|usr|opt|Users)/|[A-Z]:\\)"),
    "a time": re.compile(r"\b\d+(\.\d+)? ?(ms|µs|ns)\b"),
    "a progress bar": re.compile(r"\d+%\|"),
}
WIDGET = "application/vnd.jupyter.widget-view+json"
LIMIT = 200_000  # bytes of one cell's output
LONGEST = 20  # lines of code in a cell


def run(path):
    """Run a chapter from the top in a new kernel and keep its outputs."""
    import nbformat

    nbformat.write(clean(executed(path)), path)


def executed(path):
    """The chapter as it comes out of a new kernel; the file is left alone."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": Path(path).parent}}
    NotebookClient(book, kernel_name="python3", resources=where).execute()
    return book


def pictures(book):
    """Every picture in a chapter's outputs, as text, in order; none of a measurement just made."""
    cells = [cell for cell in book["cells"] if not _ignored(cell)]
    outputs = [o for cell in cells for o in cell.get("outputs", [])]
    parts = [part for o in outputs for part in o.get("data", {}).items()]
    return [_text(data) for kind, data in parts if kind.startswith("image/")]


def clean(book):
    """Take out what a run leaves behind: times, widget state, versions of the language."""
    book.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in book.cells:
        cell.metadata = {
            key: value for key, value in cell.metadata.items() if key in ("tags", "reason")
        }
        for output in cell.get("outputs", []):  # without its kernel a widget shows an error
            output.get("data", {}).pop(WIDGET, None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
    return book


def problems(path):
    """What is wrong with a chapter's form, a sentence each; an empty list if nothing is."""
    book = json.loads(Path(path).read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    found = [*_about_metadata(book), *_about_order(cells)]
    for number, cell in enumerate(cells, start=1):
        reasons = [*_about_source(cell), *_about_outputs(cell), *_about_tags(cell, cells[number:])]
        found += [f"code cell {number}: {reason}" for reason in reasons]
    return found


def _is_progress(output):
    """A progress bar that has come to its end says nothing any more."""
    text = _text(output.get("text", ""))
    bar = UNSTABLE["a progress bar"].search(text)
    return output.get("name") == "stderr" and bool(bar or not text.strip())


def _about_metadata(book):
    name = book["metadata"].get("kernelspec", {}).get("name")
    if name != "python3":
        yield f"its kernel is {name!r}, which exists on one machine: it must be 'python3'"
    if "widgets" in book["metadata"]:
        yield "widget state is stored"
    ids = [cell.get("id") for cell in book["cells"]]
    if None in ids or len(set(ids)) < len(ids):
        yield "cell ids are missing or used twice"


def _about_order(cells):
    counts = [cell["execution_count"] for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        yield "it was not run once from the top: python -m mha_lib notebooks does that"


def _about_source(cell):
    lines = "".join(cell["source"]).count("\n") + 1
    if lines > LONGEST:
        yield f"{lines} lines of code, more than {LONGEST}"
    if "execution" in cell["metadata"]:
        yield "the times of a run are stored"


def _about_outputs(cell):
    tags = cell["metadata"].get("tags", [])
    for output in cell["outputs"]:
        if output["output_type"] == "error" and "raises-exception" not in tags:
            yield f"an error is stored: {output['ename']}"
        if output.get("name") == "stderr":
            yield "text on stderr is stored"
        if len(json.dumps(output)) > LIMIT:
            yield f"an output of more than {LIMIT // 1000} kB"
        if "nbval-ignore-output" not in tags:
            yield from (f"{what} in the output" for what in _unstable(output))
        yield from _about_pages(output)


def _about_pages(output):
    data = output.get("data", {})
    if re.search(r"<script|https?://[^\"' ]+\.js", _text(data.get("text/html", ""))):
        yield "a script in the output: nothing is loaded from elsewhere"
    unlabelled = "image/svg+xml" in data and "aria-label" not in _text(data["image/svg+xml"])
    if unlabelled or ("image/png" in data and not _alt(output)):
        yield "a picture without alternative text"


def _about_tags(cell, following):
    tags = cell["metadata"].get("tags", [])
    if "nbval-ignore-output" in tags:
        if not cell["metadata"].get("reason"):
            yield "its output is ignored and no reason is given in the metadata"
        if not following or "assert" not in "".join(following[0]["source"]):
            yield "its output is ignored and no assertion follows in the next code cell"


def _unstable(output):
    data = output.get("data", {})
    texts = [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
    text = "".join(_text(part) for part in texts)
    return [what for what, pattern in UNSTABLE.items() if pattern.search(text)]


def _alt(output):
    return output.get("metadata", {}).get("image/png", {}).get("alt")


def _ignored(cell):
    return "nbval-ignore-output" in cell["metadata"].get("tags", [])


def _text(part):
    return part if isinstance(part, str) else "".join(part)
