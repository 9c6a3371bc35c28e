"""Find the lessons, read them, and know their exercises: what to fill in, how it is checked, how it is solved."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers import ROOT
from helpers.commands.files import find_visible
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = ROOT / "notebooks"
NUMBER = r"\d\db?"  # of a lesson: 01, or 01b for its second session
NAME = re.compile(rf"({NUMBER})-[a-z0-9]+(-[a-z0-9]+)+")
_FENCE = re.compile(r"^```python\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


class Exercise(NamedTuple):
    """One exercise of a lesson."""

    number: int  # its place among the lesson's exercises, from 1
    starter: str  # the code that the learner finds
    solution: str  # the code that solves it
    cell: int  # the position of the starter in the notebook's list of cells, from 0
    check: int  # the position of its check
    shown: int  # the position of the folded solution


def every(folder: Path = FOLDER) -> list[Path]:
    """Return the lessons in `folder`, in their order."""
    return sorted(path for path in folder.glob("*.ipynb") if NAME.fullmatch(path.stem))


def number(path: Path) -> str:
    """Return a lesson's number, such as "01" or "01b"; the file is called as a lesson."""
    named = NAME.match(path.stem)
    assert named, path
    return named[1]


def find(names: Iterable[str] = (), folder: Path = FOLDER) -> list[Path]:
    """Return the lessons that `names` name, in the lessons' order; all of them if `names` is empty.

    Args:
        names: each a number ("1", "01", "1b" for a second session), a name or its beginning ("01-add"), or a path to a
            notebook or a folder anywhere, such as a learner's copy or a class's; those come last.
        folder: where the lessons are.

    Raises:
        WorkshopError: a name fits no lesson, no file, and no folder with notebooks, or more than one lesson, or there
            is no lesson at all.
    """
    there = every(folder)
    exist = f"The lessons are {', '.join(map(number, there))}."
    if not there:
        raise WorkshopError(
            "There are no lessons here.",
            f"The folder {folder.name} contains no notebook with a name like 01-add-vectors.ipynb.",
            "Get the whole workshop again, with its notebooks folder.",
        )
    chosen, elsewhere = set(), []
    for name in names:
        file = Path(name)
        if file.is_file() and file.resolve() not in [path.resolve() for path in there]:
            elsewhere.append(file.resolve())
            continue
        short = re.fullmatch(r"(\d{1,2})(b?)", name)
        wanted = f"{int(short[1]):02d}{short[2]}-" if short else file.name.removesuffix(".ipynb")
        is_here = file.is_file() or file.parent in (Path(), Path(FOLDER.name))
        fits = [path for path in there if is_here and wanted and path.stem.startswith(wanted)]
        if not fits and name and file.is_dir():
            elsewhere += _find_copies(file)
            continue
        if not fits and file.suffix == ".ipynb":
            raise WorkshopError(
                f"There is no file {name}.", "A path begins at the folder of the terminal.", "Check the path."
            )
        if len(fits) != 1:
            problem = f"More than one lesson fits {name!r}." if fits else f"There is no lesson called {name!r}."
            raise WorkshopError(problem, exist, "Name a lesson by its number, for example: 01")
        chosen.add(fits[0])
    everything = not chosen and not elsewhere
    return [path for path in there if everything or path in chosen] + elsewhere


def _find_copies(folder: Path) -> list[Path]:
    """Return the notebooks in `folder` and in the folders below it, such as one for each learner."""
    copies = find_visible(folder.resolve(), "*.ipynb")
    if not copies:
        raise WorkshopError(
            f"The folder {folder} contains no notebook.",
            "A learner's copy of a lesson is a file whose name ends in .ipynb.",
            "Check the path.",
        )
    return copies


def read(path: Path) -> NotebookNode:
    """Return the notebook in the file `path`.

    Raises:
        WorkshopError: the file is not there, or is no notebook.
    """
    import nbformat

    try:
        with warnings.catch_warnings(action="ignore"):  # lesson_rules reports cells without an id
            return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        again = f"Copy {path.name} from a fresh copy of the workshop (with git: git checkout -- notebooks/{path.name})."
        raise WorkshopError(
            f"The lesson {path.name} cannot be read.",
            reason.replace(str(path), path.name),
            again if path.resolve().parent == FOLDER else "If a learner sent it, ask for the file again.",
        ) from error


def clear(notebook: NotebookNode | dict) -> None:
    """Take the outputs and the numbers of a run out of the code cells of `notebook`, in place."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None


def tags(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return list(cell.get("metadata", {}).get("tags", []))


def label(notebook: NotebookNode, index: int) -> str:
    """Name a cell for people: its number, from 1, and how its text begins."""
    lines = [line.strip() for line in notebook.cells[index].source.splitlines() if line.strip()]
    return f"cell {index + 1} ({lines[0][:50]})" if lines else f"cell {index + 1}"


def code_blocks(markdown: str) -> list[str]:
    """Return the ```python blocks of a markdown text."""
    return [match.group(1).rstrip("\n") for match in _FENCE.finditer(markdown)]


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """Return the lesson's exercises in their order.

    Raises:
        WorkshopError: an exercise is not followed by its check and its solution, or a check or solution stands alone.
    """
    three_tags = ("exercise", "check", "solution")
    marked = [(index, tag) for index, cell in enumerate(notebook.cells) for tag in three_tags if tag in tags(cell)]
    found = []
    for number, start in enumerate(range(0, len(marked), 3), 1):
        three = marked[start : start + 3]
        if tuple(tag for _, tag in three) != three_tags:
            raise WorkshopError(
                f"Exercise {number} is not complete: {label(notebook, three[0][0])}.",
                "The tags must come as exercise, check, solution; here they come as "
                + ", ".join(tag for _, tag in three),
                "The starter, tagged exercise, comes before the check, and the solution after it. Fix the tags.",
            )
        cell, check, shown = (index for index, _ in three)
        blocks = code_blocks(notebook.cells[shown].source)
        if len(blocks) != 1:
            raise WorkshopError(
                f"The solution of exercise {number} contains {len(blocks)} blocks of code: {label(notebook, shown)}.",
                "A solution is one block between ```python and ```, so that the tests can run it.",
                "Put the whole solution in one block.",
            )
        found.append(Exercise(number, notebook.cells[cell].source, blocks[0], cell, check, shown))
    return found


def title(notebook: NotebookNode) -> str:
    """Return the heading with which a lesson begins, without its mark."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def name_lesson(path: Path, notebook: NotebookNode) -> str:
    """Return a lesson's number and title, such as "01 Add vectors with OpenCL"."""
    return f"{number(path)} {title(notebook)}"


def facts(notebook: NotebookNode) -> dict[str, str]:
    """Return what `workload.banner` left in the outputs: device, dataset and profile of the run, or nothing."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "anygpu" in output.get("metadata", {}):
                return dict(output["metadata"]["anygpu"])
    return {}
