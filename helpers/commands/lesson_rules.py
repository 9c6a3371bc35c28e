"""What a lesson's file must look like: its form, its parts, its stored outputs."""

from __future__ import annotations

import base64
import re
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers.commands import lesson_files
from helpers.errors import WorkshopError
from helpers.judge import mistakes

if TYPE_CHECKING:
    from nbformat import NotebookNode

    Finding = tuple[int | None, str]  # the cell's position, None for the whole file; what is wrong

NOTEBOOK_BYTES = 300_000  # a larger notebook loads slowly on GitHub and on a phone
FIGURE_BYTES = 80_000  # a larger figure is not stored
KINDS = {"text/plain", "text/html", "image/png"}  # what a page shows without a network and a kernel
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = ("tags", "jupyter")
FIX = "python3 workshop.py lint --fix"
_PATH = (
    r"/(?:root|home|work|tmp|Users|mnt|private|workspace|content|var/folders)/[^\s'\"<>]*"
    r"|/[^\s'\"<>]*/(?:site-packages|dist-packages)/[^\s'\"<>]*"
    r"|\b[A-Za-z]:\\[^\s'\"<>]+"
)
_LOG_LINE = (
    r"^\s*(?:[IWEF]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b ?:)"
    r"|\w{0,40}Warning: |oneDNN custom operations|All log messages before absl"
)
_NOT_STORED = {
    _PATH: "a path of one machine ({}); show a relative path or the file's name",
    _LOG_LINE: "a log line or a warning ({}); silence it where it arises",
    r"\bat 0x[0-9a-fA-F]{6,}": "an address in memory ({}), which differs in each run; show a name instead",
    r"\r": "a carriage return, such as a progress bar leaves; show no bar here",
}


class Problem(NamedTuple):
    """One thing that is not as it should be."""

    file: str  # the notebook's name
    where: str  # the cell, as `lesson_files.label` names it, or empty for the whole file
    what: str  # is wrong, and what fixes it

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.where, self.what) if part)


def dump(notebook: NotebookNode) -> str:
    """Return the notebook as the text of its file: one way of writing it, so that changes stay small."""
    import nbformat

    return nbformat.writes(notebook, indent=1, ensure_ascii=False) + "\n"


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Bring everything but the outputs of `notebook` into the workshop's form, in place, and return it.

    Cells get an id where they have none; metadata keeps the kernel's name and the cells' tags; no blank lines at the
    end of a cell.
    """
    import nbformat

    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    taken: set[str] = set()
    for cell in notebook.cells:
        if not cell.get("id") or cell["id"] in taken:
            cell["id"] = nbformat.v4.new_raw_cell()["id"]
        taken.add(cell["id"])
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in CELL_METADATA and v})
        cell.source = cell.source.rstrip()
        if not cell.get("attachments"):
            cell.pop("attachments", None)
    return notebook


def problems(path: Path) -> list[Problem]:
    """Return everything that is wrong with the lesson in the file `path`."""
    try:
        raw = path.read_text(encoding="utf-8")
        notebook = lesson_files.read(path)
    except (WorkshopError, UnicodeDecodeError) as error:
        return [Problem(path.name, "", " ".join(str(error).splitlines()))]
    rules = [
        _check_file(path, raw, notebook),
        _check_cells(notebook),
        _check_parts(path, notebook),
        _check_exercises(notebook),
        _check_outputs(notebook),
        _check_answers(path),
    ]
    return [_make_problem(notebook, finding, path.name) for rule in rules for finding in rule]


def output_problems(notebook: NotebookNode) -> list[Problem]:
    """Return what is wrong with the stored outputs of `notebook`."""
    return [_make_problem(notebook, finding, "") for finding in _check_outputs(notebook)]


def _make_problem(notebook: NotebookNode, finding: Finding, file: str) -> Problem:
    index, what = finding
    return Problem(file, "" if index is None else lesson_files.label(notebook, index), what)


def _check_file(path: Path, raw: str, notebook: NotebookNode) -> Iterator[Finding]:
    import nbformat

    if not lesson_files.NAME.fullmatch(path.stem):
        yield None, "a lesson is called NN-verb-object.ipynb or NNb-verb-object.ipynb, in small letters; rename it"
    if dump(normalise(lesson_files.read(path))) != raw:
        yield None, f"not in the workshop's form (format 4.5, ids, metadata, indentation, line ends); run {FIX}"
        return
    size = len(raw.encode())
    if size > NOTEBOOK_BYTES:
        yield None, f"{size / 1000:.0f} KB, and the limit is {NOTEBOOK_BYTES / 1000:.0f} KB; store smaller outputs"
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield None, f"not a valid notebook: {str(error).splitlines()[0]}; fix that cell by hand"


def _check_cells(notebook: NotebookNode) -> Iterator[Finding]:
    """Find what keys such as R, A and B leave behind when someone types text outside a cell."""
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type not in ("markdown", "code"):
            yield index, f"a {cell.cell_type} cell; select it in JupyterLab and press M for text, or Y for code"
        elif not cell.source.strip():
            yield index, "an empty cell; delete it"


def _check_answers(path: Path) -> Iterator[Finding]:
    try:
        mistakes.read(path.stem)
    except WorkshopError as error:
        yield None, " ".join(str(error).splitlines())


def _check_parts(path: Path, notebook: NotebookNode) -> Iterator[Finding]:
    first, last = notebook.cells[0] if notebook.cells else None, notebook.cells[-4:]
    if not first or first.cell_type != "markdown" or not re.match(r"# \S", first.source):
        yield None, "the first cell is not a title; begin with a markdown cell: # Verb the object"
    table = re.findall(r"^\|.*$", first.source if first else "", re.MULTILINE)
    if len(table) != 3 or not re.fullmatch(r"[|:\- ]+", table[1]):
        yield None, "no table of one row under the title; give goal, minutes, needs, seconds, and where it ran"
    end = "\n".join(cell.source for cell in last if cell.cell_type == "markdown")
    if not re.search(r"^##+ .*\brecap\b", end, re.MULTILINE | re.IGNORECASE):
        yield None, "no heading with the word Recap among the last four cells; end the lesson with ## Recap"


def _check_exercises(notebook: NotebookNode) -> Iterator[Finding]:
    try:
        found = lesson_files.exercises(notebook)
    except WorkshopError as error:
        yield None, " ".join(str(error).splitlines())
        return
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    numbers = [int(number) for number in re.findall(r"^### Exercise (\d+)", texts, re.MULTILINE)]
    if numbers and numbers != list(range(1, len(found) + 1)):
        seen = ", ".join(map(str, numbers))
        yield None, f"the headings number the exercises {seen}; number them from 1 to {len(found)}"
    for exercise in found:
        yield from _check_exercise(notebook.cells, exercise)
    yield from _check_dependencies(notebook, found)


def _check_exercise(cells: list[NotebookNode], exercise: lesson_files.Exercise) -> Iterator[Finding]:
    around = cells[max(exercise.cell - 1, 0) : exercise.check]
    kinds = [cells[index].cell_type for index in (exercise.cell, exercise.check, exercise.shown)]
    if kinds != ["code", "code", "markdown"]:
        yield exercise.cell, "starter and check are code cells, the solution is a markdown cell; change the kind"
    if not any(cell.cell_type == "markdown" and "<details>" in cell.source for cell in around):
        yield exercise.cell, "no hint in <details> beside the exercise"
    if not re.search("<details>.*</details>", cells[exercise.shown].source, re.DOTALL):
        yield exercise.shown, "the solution is not folded; put it between <details> and </details>"


def names(code: str) -> tuple[set[str], set[str]]:
    """Return (the names that a cell's code assigns, the names that it takes from elsewhere)."""
    try:
        top = symtable.symtable(code, "cell", "exec")
    except SyntaxError:
        return set(), set()
    assigned = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())}
    return assigned, used - assigned


def _check_dependencies(notebook: NotebookNode, exercises: list[lesson_files.Exercise]) -> Iterator[Finding]:
    """Find code that needs a name from an exercise: a learner who leaves the exercise out would be stuck there."""
    owner: dict[str, int] = {}
    codes = {index: cell.source for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"}
    codes |= {exercise.shown: exercise.solution for exercise in exercises}
    exercise_of = {index: each.cell for each in exercises for index in (each.cell, each.check, each.shown)}
    for index in sorted(codes.keys() - {exercise.check for exercise in exercises}):
        assigned, used = names(codes[index])
        own = exercise_of.get(index)
        for name in sorted(name for name in used & owner.keys() if owner[name] != own):
            where = lesson_files.label(notebook, owner[name])
            yield index, f"it needs {name!r} from {where}, an exercise; define it outside the exercise"
        owner = {name: cell for name, cell in owner.items() if name not in assigned}
        owner |= dict.fromkeys(assigned, own) if own is not None else {}


def _check_outputs(notebook: NotebookNode) -> Iterator[Finding]:
    code = {i: cell for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()}
    if [cell.execution_count for cell in code.values()] != list(range(1, len(code) + 1)):
        yield (
            None,
            "outputs are missing or come from several runs; run python3 workshop.py store with the lesson's number",
        )
    for index, cell in code.items():
        yield from ((index, what) for output in cell.outputs for what in _check_output(output))


def _check_output(output: NotebookNode) -> Iterator[str]:
    if output.output_type == "stream" and output.name == "stderr":
        yield f"standard error is stored ({output.text.strip().splitlines()[0][:60]!r}); silence it where it arises"
    data = output.get("data", {})
    for kind in data.keys() - KINDS:
        yield f"an output of the kind {kind} is stored, which a page cannot show; use text or a PNG figure"
    texts = [output.get("text", ""), *output.get("traceback", []), output.get("evalue", "")]
    texts += [content for kind, content in data.items() if kind.startswith("text/")]
    text = re.sub(r"data:[\w/+]+;base64,[\w+/=]+", "", "\n".join(texts))
    for pattern, what in _NOT_STORED.items():
        if match := re.search(pattern, text, re.MULTILINE):
            yield what.format(match.group().strip())
    if image := data.get("image/png"):
        size = len(base64.b64decode(image))
        if size > FIGURE_BYTES:
            yield f"a figure of {size / 1000:.0f} KB, and the limit is {FIGURE_BYTES / 1000:.0f} KB; simplify it"
        if not output.get("metadata", {}).get("image/png", {}).get("alt", "").strip():
            yield "a figure without alternative text; give its output metadata {'image/png': {'alt': ...}}"
