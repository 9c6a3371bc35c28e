"""What a lesson's file must look like: its parts in their order, its sizes, its stored outputs; and how to mend it."""

from __future__ import annotations

import ast
import base64
import dataclasses
import json
import re
import statistics
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.commands import lesson_files
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from nbformat import NotebookNode

CELLS, CELLS_OF_LONG_LESSONS, LONG_LESSONS = (25, 40), (25, 50), {"03", "08", "09", "12", "13"}
WORDS_WANTED, WORDS_ALLOWED = (800, 1300), (700, 1500)
WORDS_OF_LONG_LESSONS = (800, 1625), (700, 1875)  # as many words a cell
LESSONS_OF_TWO_PARTS = {"02"}  # which say where to take a break
CELLS_OF_TWO_PARTS, WORDS_OF_TWO_PARTS = (25, 70), ((800, 2275), (700, 2625))  # as many words a cell
LINES_MEDIAN, LINES_MOST = 5, 25
EXERCISES = (2, 4)
FIGURE_BYTES, NOTEBOOK_BYTES = 80_000, 400_000
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = ("tags", "jupyter")
_PATH = re.compile(
    r"/(?:root|home|work|tmp|Users|mnt|private|workspace|content|var/folders)/[^\s'\"<>]*"
    r"|/[^\s'\"<>]*/(?:site-packages|dist-packages)/[^\s'\"<>]*"
    r"|\b[A-Za-z]:\\[^\s'\"<>]+"
)
_LOG_LINE = re.compile(
    r"^\s*(?:[IWEF]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b ?:)"
    r"|\w{0,40}Warning: |oneDNN custom operations|All log messages before absl",
    re.MULTILINE,
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_MATHS = re.compile(r"\$\$|(?<![\w\\$])\$(?=[^\s\d$])[^$\n]+(?<=\S)\$(?!\w)|\\\(|\\\[|\\begin\{")
_FIX = "python -m helpers format"


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be.

    Attributes:
        what: what is wrong, and what mends it.
        where: the cell, as `lesson_files.label` names it, or empty for the whole file.
        serious: False for a note that fails nothing.
        file: the notebook's file name.
    """

    what: str
    where: str = ""
    serious: bool = True
    file: str = ""

    def __str__(self) -> str:
        return (
            f"{self.file}: "
            + (f"{self.where}: " if self.where else "")
            + ("" if self.serious else "note: ")
            + self.what
        )


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
        if cell.cell_type != "code" and not cell.get("attachments"):
            cell.pop("attachments", None)
    return notebook


def clean_outputs(notebook: NotebookNode) -> NotebookNode:
    """Bring freshly executed outputs of `notebook` into the form in which they are stored, in place, and return it.

    Cells are counted from 1; a traceback loses its colours and the paths of this machine.
    """
    count = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        count += bool(cell.source.strip())
        cell.execution_count = count if cell.source.strip() else None
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
            if output.output_type == "error":
                output.traceback = [_plain(line) for line in output.traceback]
    return notebook


def _plain(text: str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(f"{lesson_files.FOLDER.parent}/", "")
    return re.sub(r"(?:~|/)[^\s'\"<>]*/(?:site-packages|dist-packages|lib/python3\.\d+)/", "", text)


def problems(path: Path) -> list[Problem]:
    """Return everything that is wrong with the lesson in the file `path`; the lessons beside it are its neighbours."""
    try:
        raw = path.read_text(encoding="utf-8")
        notebook = lesson_files.read(path)
    except (WorkshopError, UnicodeDecodeError) as error:
        return [Problem(" ".join(str(error).splitlines()), file=path.name)]
    found = [*_file_rules(path, raw, notebook), *_size_rules(path, notebook), *_first_cell(notebook)]
    found += [*_recap(path, notebook), *_prose_rules(path, notebook)]
    found += [*_exercise_rules(notebook), *_dependencies(notebook), *output_problems(notebook)]
    return [dataclasses.replace(problem, file=path.name) for problem in found]


def _file_rules(path: Path, raw: str, notebook: NotebookNode) -> Iterator[Problem]:
    import nbformat

    if not lesson_files.NAME.fullmatch(path.stem):
        yield Problem("a lesson is called NN-verb-object.ipynb, in small letters; rename the file")
    written = json.loads(raw)
    if (written.get("nbformat"), written.get("nbformat_minor")) != (4, 5):
        yield Problem(f"not written as notebook format 4.5; run {_FIX}")
    ids = [cell.get("id") for cell in written.get("cells", [])]
    if None in ids or len(set(ids)) != len(ids):
        yield Problem(f"a cell without an id of its own; run {_FIX}")
    else:
        try:
            nbformat.validate(notebook)
        except nbformat.ValidationError as error:
            yield Problem(f"not a valid notebook: {str(error).splitlines()[0]}; mend that cell by hand")
    if dump(normalise(lesson_files.read(path))) != raw:
        yield Problem(f"not in the workshop's form (metadata, indentation or line ends); run {_FIX}")
    if (size := len(raw.encode())) > NOTEBOOK_BYTES:
        yield Problem(f"{size / 1000:.0f} KB, and {NOTEBOOK_BYTES / 1000:.0f} KB is the most; draw smaller figures")


def _size_rules(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    (fewest, most), (wanted, allowed) = _limits(path.name[:2])
    if not fewest <= len(notebook.cells) <= most:
        yield Problem(f"{len(notebook.cells)} cells, and a lesson has {fewest} to {most}; join or split cells")
    words = count_words(notebook)
    if not wanted[0] <= words <= wanted[1]:
        what = f"{words} words of prose, and a lesson has {wanted[0]} to {wanted[1]}"
        yield Problem(what, serious=not allowed[0] <= words <= allowed[1])
    lines = {i: len(_code_lines(cell)) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"}
    if lines and (middle := statistics.median(lines.values())) > LINES_MEDIAN:
        yield Problem(
            f"half of the code cells have {middle:g} lines or more, and {LINES_MEDIAN} is the aim; split them"
        )
    for index, count in lines.items():
        if count > LINES_MOST:
            what = f"{count} lines of code, and {LINES_MOST} is the most; split the cell"
            yield Problem(what, lesson_files.label(notebook, index))


def _limits(number: str) -> tuple[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]]:
    """Of cells and of words (wanted and allowed), each the fewest and the most."""
    if number in LESSONS_OF_TWO_PARTS:
        return CELLS_OF_TWO_PARTS, WORDS_OF_TWO_PARTS
    if number in LONG_LESSONS:
        return CELLS_OF_LONG_LESSONS, WORDS_OF_LONG_LESSONS
    return CELLS, (WORDS_WANTED, WORDS_ALLOWED)


def _code_lines(cell: NotebookNode) -> list[str]:
    return [line for line in cell.source.splitlines() if line.strip()]


def _without_code_blocks(markdown: str) -> str:
    return re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)


def count_words(notebook: NotebookNode) -> int:
    """Return the words of prose: markdown outside solutions, without code blocks, tags, and targets of links."""
    total = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "solution" not in lesson_files.tags(cell):
            text = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", _without_code_blocks(cell.source))
            total += sum(any(letter.isalnum() for letter in word) for word in text.split())
    return total


def _first_cell(notebook: NotebookNode) -> Iterator[Problem]:
    first = notebook.cells[0] if notebook.cells else None
    lines = [line.strip() for line in first.source.splitlines() if line.strip()] if first else []
    if not lines or first.cell_type != "markdown" or not re.match(r"# \S", lines[0]):
        yield Problem(
            "the first cell is not a title; begin the lesson with a markdown cell: # Verb the object", "cell 1"
        )
    table = [line for line in lines if line.startswith("|")]
    if len(table) != 3 or not re.fullmatch(r"[|:\- ]+", table[1]):
        what = "no table of one row under the title; give goal, minutes, needs, seconds and where it was verified"
        yield Problem(what, "cell 1")


def _recap(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    prose = {i: cell.source for i, cell in enumerate(notebook.cells) if cell.cell_type == "markdown"}
    recaps = [i for i, source in prose.items() if re.search(r"^##+ .*\brecap\b", source, re.MULTILINE | re.IGNORECASE)]
    if not recaps or recaps[-1] < len(notebook.cells) - 4:
        yield Problem("no heading with the word Recap among the last four cells; end the lesson with ## Recap")
        return
    links = {target for i, source in prose.items() if i >= recaps[-1] for target in _LINK.findall(source)}
    there = [lesson.name for lesson in lesson_files.every(path.parent)]
    at = there.index(path.name) if path.name in there else len(there)
    for which, neighbours in (("previous", there[max(at - 1, 0) : at]), ("next", there[at + 1 : at + 2])):
        for other in neighbours:
            if other not in links:
                yield Problem(f"no link to the {which} lesson after the recap; add [...]({other})")


def _prose_rules(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        where = lesson_files.label(notebook, index)
        for target in _LINK.findall(cell.source):
            if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists():
                yield Problem(f"a link leads to {target}, which is not there; mend or remove it", where)
        if _MATHS.search(re.sub(r"`[^`]*`", "", _without_code_blocks(cell.source))):
            what = "a formula in LaTeX, which the pages without a network cannot set; write plain text or code"
            yield Problem(what, where)


def _exercise_rules(notebook: NotebookNode) -> Iterator[Problem]:
    try:
        found = lesson_files.exercises(notebook)
    except WorkshopError as error:
        yield Problem(" ".join(str(error).splitlines()))
        return
    if not EXERCISES[0] <= len(found) <= EXERCISES[1]:
        yield Problem(f"{len(found)} exercises, and a lesson has {EXERCISES[0]} to {EXERCISES[1]}")
    for one in found:
        for index, what in _exercise_faults(notebook.cells, one):
            yield Problem(what, lesson_files.label(notebook, index))


def _exercise_faults(cells: list[NotebookNode], one: lesson_files.Exercise) -> Iterator[tuple[int, str]]:
    for index, kind in ((one.cell, "code"), (one.check, "code"), (one.shown, "markdown")):
        if cells[index].cell_type != kind:
            yield index, f"this must be a {kind} cell; change its kind"
    between = cells[one.cell + 1 : one.check]
    task = cells[max(one.cell - 1, 0) : one.cell]
    if any(cell.cell_type != "markdown" for cell in between):
        yield one.check, "the check does not follow its exercise; only text may stand between them"
    if not any(cell.cell_type == "markdown" and "<details>" in cell.source for cell in [*task, *between]):
        yield one.cell, "no hint beside the exercise; add <details><summary>Hint</summary> to the text above it"
    if one.shown != one.check + 1:
        yield one.check, "the solution does not follow its check; move it there"
    if "<details>" not in cells[one.shown].source or "</details>" not in cells[one.shown].source:
        yield one.shown, "the solution is not folded; put it between <details> and </details>"
    for index, code in ((one.cell, one.starter), (one.shown, one.solution)):
        if (error := _syntax(code)) is not None:
            yield index, f"the code does not parse ({error}); starter code and solution must both run"
    if one.starter.strip() == one.solution.strip():
        yield one.cell, "the exercise is its own solution; leave something to do"


def _syntax(code: str) -> str | None:
    try:
        ast.parse(code)
    except SyntaxError as error:
        return f"{error.msg}, line {error.lineno}"
    return None


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


def _dependencies(notebook: NotebookNode) -> Iterator[Problem]:
    """Find cells that need a name from an exercise: a learner who leaves the exercise out would be stuck there."""
    owner: dict[str, int] = {}
    solution_of = {one.shown: one for one in _exercises_or_none(notebook)}
    for index, cell in enumerate(notebook.cells):
        marks = set(lesson_files.tags(cell)) & {"exercise", "check", "solution"}
        code = solution_of[index].solution if index in solution_of else cell.source if cell.cell_type == "code" else ""
        assigned, used = names(code)
        own = solution_of[index].cell if index in solution_of else index
        for name in sorted(used & owner.keys()) if "check" not in marks else []:
            if owner[name] != own:
                where = lesson_files.label(notebook, owner[name])
                what = f"it needs {name!r} from {where}, an exercise; define it outside"
                yield Problem(what, lesson_files.label(notebook, index))
        if "exercise" in marks:
            owner |= dict.fromkeys(assigned, index)
        elif not marks:
            owner = {name: cell for name, cell in owner.items() if name not in assigned}


def _exercises_or_none(notebook: NotebookNode) -> list[lesson_files.Exercise]:
    try:
        return lesson_files.exercises(notebook)
    except WorkshopError:
        return []


def output_problems(notebook: NotebookNode) -> list[Problem]:
    """Return what is wrong with the stored outputs of `notebook`."""
    found = []
    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()]
    counts = [notebook.cells[index].execution_count for index in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(Problem("outputs are missing or come from several runs; run python -m helpers store"))
    if not any(_images(output) for index in code for output in notebook.cells[index].outputs):
        found.append(Problem("no figure in the stored outputs; every lesson has at least one"))
    if "widgets" in notebook.metadata:
        found.append(Problem(f"the state of widgets is stored; run {_FIX}"))
    for index in code:
        cell, where = notebook.cells[index], lesson_files.label(notebook, index)
        found += [Problem(what, where) for output in cell.outputs for what in _output_rules(output)]
        raised = any(output.output_type == "error" for output in cell.outputs)
        may_raise = "raises-exception" in lesson_files.tags(cell)
        if raised and not may_raise:
            found.append(Problem("a stored error; mend the cell, or tag it raises-exception", where))
        if may_raise and not raised:
            found.append(Problem("tagged raises-exception, but no error is stored; run it, or remove the tag", where))
        after = notebook.cells[index + 1 : index + 2]
        if any(_images(output) for output in cell.outputs) and not (after and after[0].cell_type == "markdown"):
            found.append(Problem("no text after the figure; say what to see in it", where, serious=False))
    return found


def _images(output: NotebookNode) -> list[tuple[int, bool]]:
    """Return (size in bytes, whether it is described) of each image that an output shows."""
    data, said = output.get("data", {}), output.get("metadata", {})
    found = []
    for kind, content in data.items():
        if kind.startswith("image/"):
            size = len(content.encode()) if kind == "image/svg+xml" else len(base64.b64decode(content))
            found.append((size, bool(said.get(kind, {}).get("alt", "").strip())))
    for image in re.findall(r"<img\b[^>]*>", data.get("text/html", "")):
        found.append((len(image) * 3 // 4, bool(re.search(r"\balt=[\"'][^\"']", image))))
    if "<svg" in (html := data.get("text/html", "")):
        found.append((len(html.encode()), bool(re.search(r"<title|aria-label", html))))
    return found


def _output_rules(output: NotebookNode) -> Iterator[str]:
    if output.output_type == "stream" and output.name == "stderr":
        yield f"standard error is stored ({output.text.strip().splitlines()[0][:60]!r}); silence it where it arises"
    data = output.get("data", {})
    if any("widget" in kind for kind in data):
        yield "a widget is stored, which cannot be shown again; use text or a figure"
    if any(kind == "application/javascript" for kind in data):
        yield "a script is stored; use text or a figure"
    texts = [output.get("text", ""), *output.get("traceback", []), output.get("evalue", "")]
    texts += [content for kind, content in data.items() if kind.startswith("text/")]
    text = re.sub(r"data:[\w/+]+;base64,[\w+/=]+", "", "\n".join(texts))
    if path := _PATH.search(text):
        yield f"a path of one machine ({path.group()}); show a relative path or the file's name"
    if line := _LOG_LINE.search(text):
        yield f"a log line or a warning ({line.group().strip()!r}); silence it where it arises"
    if _ADDRESS.search(text):
        yield "an address in memory, which differs in each run; show a name instead"
    if "\r" in text:
        yield "a carriage return, as a progress bar leaves it; show no bar here"
    for size, described in _images(output):
        if size > FIGURE_BYTES:
            yield f"a figure of {size / 1000:.0f} KB, and {FIGURE_BYTES / 1000:.0f} KB is the most; draw it simpler"
        if not described:
            yield "a figure without alternative text; give its output metadata {'image/png': {'alt': ...}}"


def tell(found: list[Problem]) -> int:
    """Print the problems, one a line, and return 1 if one of them is serious."""
    for problem in found:
        print(problem)
    return int(any(problem.serious for problem in found))
