"""What a lesson's file must look like: its parts in their order, its sizes, its stored outputs; and how to mend it."""

from __future__ import annotations

import ast
import base64
import re
import statistics
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers.commands import lesson_files
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from nbformat import NotebookNode

    Finding = tuple[int | None, str]  # the cell's position, None for the whole file; what is wrong


class Size(NamedTuple):
    """How large a lesson may be: of each the fewest and the most."""

    cells: tuple[int, int]
    words_wanted: tuple[int, int]
    words_allowed: tuple[int, int]


ORDINARY = Size((25, 40), (800, 1300), (400, 1500))
LONG = Size((25, 50), (800, 1625), (400, 1875))  # as many words a cell
WORDY = LONG._replace(words_allowed=(400, 2050))  # a compiler (03); a plug-in (07); a ring (08)
OF_TWO_PARTS = Size((25, 70), (800, 2275), (400, 2625))  # says where to take a break
SIZES = dict.fromkeys(("02", "06", "09", "12", "13", "14"), OF_TWO_PARTS)
SIZES |= dict.fromkeys(("01", "04", "05", "10", "11"), LONG)
SIZES |= dict.fromkeys(("03", "07", "08"), WORDY)
LINES_MEDIAN, LINES_MOST = 5, 25
EXERCISES = (2, 4)
EXERCISE_CELLS = 4  # text, starter, check, solution; not counted from the third exercise on
FIGURE_BYTES, NOTEBOOK_BYTES = 80_000, 450_000
KINDS = {"text/plain", "text/html", "image/png"}  # what a page shows without a network and a kernel
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = ("tags", "jupyter")
NOTE = "note: "  # begins what fails nothing
_AUTHOR = re.compile(r"<details><summary>For the author.*?</details>", re.DOTALL)  # the template's, how to go on
_FIX = "python -m helpers format"
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
    r"\r": "a carriage return, as a progress bar leaves it; show no bar here",
}
_LINK = re.compile(r"\]\(([^)#\s]+)")
_NEIGHBOURS = re.compile(r"^\[(?:Previous|Next): .*", re.MULTILINE)
_MATHS = re.compile(r"\$\$|(?<![\w\\$])\$(?=[^\s\d$])[^$\n]+(?<=\S)\$(?!\w)|\\\(|\\\[|\\begin\{")


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be."""

    file: str  # the notebook's name
    where: str  # the cell, as `lesson_files.label` names it, or empty for the whole file
    what: str  # is wrong, and what mends it

    @property
    def serious(self) -> bool:
        """Whether it fails the check; a note does not."""
        return not self.what.startswith(NOTE)

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
            if output.output_type == "stream":
                output.text = output.text.replace("\r\n", "\n")  # as the terminal behind `!command` ends its lines
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
        return [Problem(path.name, "", " ".join(str(error).splitlines()))]
    rules = [_file(path, raw, notebook), _sizes(path, notebook), _first_cell(notebook), _recap(path, notebook)]
    rules += [_prose(path, notebook), _exercises(notebook), _outputs(notebook)]
    return [_problem(notebook, finding, path.name) for rule in rules for finding in rule]


def output_problems(notebook: NotebookNode, file: str = "") -> list[Problem]:
    """Return what is wrong with the stored outputs of `notebook`, which is called `file`."""
    return [_problem(notebook, finding, file) for finding in _outputs(notebook)]


def _problem(notebook: NotebookNode, finding: Finding, file: str) -> Problem:
    index, what = finding
    return Problem(file, "" if index is None else lesson_files.label(notebook, index), what)


def tell(found: list[Problem]) -> int:
    """Print the problems, one a line, and return 1 if one of them is serious."""
    for problem in found:
        print(problem)
    return int(any(problem.serious for problem in found))


def _file(path: Path, raw: str, notebook: NotebookNode) -> Iterator[Finding]:
    import nbformat

    if not lesson_files.NAME.fullmatch(path.stem):
        yield None, "a lesson is called NN-verb-object.ipynb, in small letters; rename the file"
    if dump(normalise(lesson_files.read(path))) != raw:
        yield None, f"not in the workshop's form (format 4.5, ids, metadata, indentation, line ends); run {_FIX}"
    else:
        try:
            nbformat.validate(notebook)
        except nbformat.ValidationError as error:
            yield None, f"not a valid notebook: {str(error).splitlines()[0]}; mend that cell by hand"
    if (size := len(raw.encode())) > NOTEBOOK_BYTES:
        yield None, f"{size / 1000:.0f} KB, and {NOTEBOOK_BYTES / 1000:.0f} KB is the most; draw smaller figures"


def _sizes(path: Path, notebook: NotebookNode) -> Iterator[Finding]:
    size = SIZES.get(path.name[:2], ORDINARY)
    more = sum("exercise" in lesson_files.tags(cell) for cell in notebook.cells) - EXERCISES[0]
    cells = len(notebook.cells) - EXERCISE_CELLS * max(more, 0)  # so that there is room for a teacher's own exercise
    if not _within(cells, size.cells):
        yield None, "{} cells, and a lesson has {} to {}; join or split cells".format(cells, *size.cells)
    words = count_words(notebook)
    if not _within(words, size.words_wanted):
        note = NOTE if _within(words, size.words_allowed) else ""
        yield None, note + "{} words of prose, and a lesson has {} to {}".format(words, *size.words_wanted)
    if notes := author_notes(notebook):
        where = f"cell {notes[0] + 1}" if len(notes) == 1 else f"{len(notes)} cells, the first is cell {notes[0] + 1}"
        yield None, f"{NOTE}a draft: a note for the author is left in {where}; follow it, then delete it"
    code = {i: cell.source for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"}
    lines = {index: sum(bool(line.strip()) for line in source.splitlines()) for index, source in code.items()}
    if lines and (middle := statistics.median(lines.values())) > LINES_MEDIAN:
        yield None, f"half of the code cells have {middle:g} lines or more, and {LINES_MEDIAN} is the aim; split them"
    for index in (index for index, count in lines.items() if count > LINES_MOST):
        yield index, f"{lines[index]} lines of code, and {LINES_MOST} is the most; split the cell"


def _within(value: float, ends: tuple[int, int]) -> bool:
    return ends[0] <= value <= ends[1]


def _without_code_blocks(markdown: str) -> str:
    return re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)


def count_words(notebook: NotebookNode) -> int:
    """Return the words of prose: markdown outside solutions, without code blocks, tags, and targets of links.

    Notes for the author do not count. Nor does the line that leads to the neighbours, so that a new lesson never makes
    an old one too long.
    """
    total = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "solution" not in lesson_files.tags(cell):
            text = _AUTHOR.sub("", _NEIGHBOURS.sub("", _without_code_blocks(cell.source)))
            text = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", text)
            total += sum(any(letter.isalnum() for letter in word) for word in text.split())
    return total


def author_notes(notebook: NotebookNode) -> list[int]:
    """Return the positions of the cells that still have one of the template's notes for the author: it is a draft."""
    return [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "markdown" and _AUTHOR.search(cell.source)]


def _first_cell(notebook: NotebookNode) -> Iterator[Finding]:
    first = notebook.cells[0] if notebook.cells else None
    if not first or first.cell_type != "markdown" or not re.match(r"# \S", first.source):
        yield None, "the first cell is not a title; begin with a markdown cell: # Verb the object"
    table = re.findall(r"^\|.*$", first.source if first else "", re.MULTILINE)
    if len(table) != 3 or not re.fullmatch(r"[|:\- ]+", table[1]):
        yield None, "no table of one row under the title; give goal, minutes, needs, seconds and where it was verified"


def _recap(path: Path, notebook: NotebookNode) -> Iterator[Finding]:
    prose = {i: cell.source for i, cell in enumerate(notebook.cells) if cell.cell_type == "markdown"}
    recaps = [i for i, source in prose.items() if re.search(r"^##+ .*\brecap\b", source, re.MULTILINE | re.IGNORECASE)]
    if not recaps or recaps[-1] < len(notebook.cells) - 4:
        yield None, "no heading with the word Recap among the last four cells; end the lesson with ## Recap"
        return
    links = {target for i, source in prose.items() if i >= recaps[-1] for target in _LINK.findall(source)}
    there = [lesson.name for lesson in lesson_files.every(path.parent)]
    at = there.index(path.name) if path.name in there else len(there)
    for which, neighbours in (("previous", there[max(at - 1, 0) : at]), ("next", there[at + 1 : at + 2])):
        for other in neighbours:
            if other not in links:
                yield None, f"no link to the {which} lesson after the recap; add [...]({other})"


def _prose(path: Path, notebook: NotebookNode) -> Iterator[Finding]:
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        for target in broken_links(cell.source, path.parent):
            yield index, f"a link leads to {target}, which is not there; mend or remove it"
        if _MATHS.search(re.sub(r"`[^`]*`", "", _without_code_blocks(cell.source))):
            yield index, "a formula in LaTeX, which the pages without a network cannot set; write plain text or code"


def broken_links(markdown: str, folder: Path) -> list[str]:
    """Return the targets of a text's local links that are not there, as seen from `folder`."""
    local = [target for target in _LINK.findall(markdown) if not re.match(r"[a-z]+:", target)]
    return [target for target in local if not (folder / target).exists()]


def _exercises(notebook: NotebookNode) -> Iterator[Finding]:
    try:
        found = lesson_files.exercises(notebook)
    except WorkshopError as error:
        yield None, " ".join(str(error).splitlines())
        return
    if not _within(len(found), EXERCISES):
        yield None, "{} exercises, and a lesson has {} to {}".format(len(found), *EXERCISES)
    for one in found:
        yield from _exercise(notebook.cells, one)
    yield from _dependencies(notebook, found)


def _exercise(cells: list[NotebookNode], one: lesson_files.Exercise) -> Iterator[Finding]:
    between, task = cells[one.cell + 1 : one.check], cells[max(one.cell - 1, 0) : one.cell]
    prose = [cell.source for cell in [*task, *between] if cell.cell_type == "markdown"]
    folded = re.search("<details>.*</details>", cells[one.shown].source, re.DOTALL)
    faults = [
        (one.cell, cells[one.cell].cell_type != "code", "this must be a code cell; change its kind"),
        (one.check, cells[one.check].cell_type != "code", "this must be a code cell; change its kind"),
        (one.shown, cells[one.shown].cell_type != "markdown", "this must be a markdown cell; change its kind"),
        (one.check, any(cell.cell_type != "markdown" for cell in between), "the check does not follow its exercise"),
        (one.cell, not any("<details>" in source for source in prose), "no hint in <details> beside the exercise"),
        (one.check, one.shown != one.check + 1, "the solution does not follow its check; move it there"),
        (one.shown, not folded, "the solution is not folded; put it between <details> and </details>"),
        (one.cell, one.starter.strip() == one.solution.strip(), "the exercise is its own solution; leave work to do"),
    ]
    yield from ((index, what) for index, wrong, what in faults if wrong)
    for index, code in ((one.cell, one.starter), (one.shown, one.solution)):
        try:
            ast.parse(code)
        except SyntaxError as error:
            yield index, f"the code does not parse ({error.msg}, line {error.lineno}); both must run"


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


def _dependencies(notebook: NotebookNode, exercises: list[lesson_files.Exercise]) -> Iterator[Finding]:
    """Find code that needs a name from an exercise: a learner who leaves the exercise out would be stuck there."""
    owner: dict[str, int] = {}
    codes = {index: cell.source for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"}
    codes |= {one.shown: one.solution for one in exercises}
    exercise_of = {index: one.cell for one in exercises for index in (one.cell, one.check, one.shown)}
    for index in sorted(codes.keys() - {one.check for one in exercises}):
        assigned, used = names(codes[index])
        own = exercise_of.get(index)
        for name in sorted(name for name in used & owner.keys() if owner[name] != own):
            where = lesson_files.label(notebook, owner[name])
            yield index, f"it needs {name!r} from {where}, an exercise; define it outside"
        owner = {name: cell for name, cell in owner.items() if name not in assigned}
        owner |= dict.fromkeys(assigned, own) if own is not None else {}


def _outputs(notebook: NotebookNode) -> Iterator[Finding]:
    code = {i: cell for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()}
    if [cell.execution_count for cell in code.values()] != list(range(1, len(code) + 1)):
        yield (
            None,
            "outputs are missing or come from several runs; store it anew: python3 workshop.py store NN",
        )
    if not any(_images(output) for cell in code.values() for output in cell.outputs):
        yield None, "no figure in the stored outputs; every lesson has at least one"
    for index, cell in code.items():
        for output in cell.outputs:
            yield from ((index, what) for what in _output(output))
        raised = any(output.output_type == "error" for output in cell.outputs)
        if raised != ("raises-exception" in lesson_files.tags(cell)):
            yield index, "a stored error and the tag raises-exception go together, and one of them is not here"
        after = notebook.cells[index + 1 : index + 2]
        if any(_images(output) for output in cell.outputs) and not (after and after[0].cell_type == "markdown"):
            yield index, f"{NOTE}no text after the figure; say what to see in it"


def _output(output: NotebookNode) -> Iterator[str]:
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
    for size, described in _images(output):
        if size > FIGURE_BYTES:
            yield f"a figure of {size / 1000:.0f} KB, and {FIGURE_BYTES / 1000:.0f} KB is the most; draw it simpler"
        if not described:
            yield "a figure without alternative text; give its output metadata {'image/png': {'alt': ...}}"


def _images(output: NotebookNode) -> list[tuple[int, bool]]:
    """Return (size in bytes, whether it is described) of each image that an output shows."""
    data, metadata = output.get("data", {}), output.get("metadata", {})
    found = []
    if image := data.get("image/png"):
        found.append((len(base64.b64decode(image)), bool(metadata.get("image/png", {}).get("alt", "").strip())))
    for image in re.findall(r"<img\b[^>]*>", data.get("text/html", "")):
        found.append((len(image) * 3 // 4, bool(re.search(r"\balt=[\"'][^\"']", image))))
    return found
