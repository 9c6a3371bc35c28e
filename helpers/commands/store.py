"""Execute lessons anew and store what they show in notebooks/ itself, so that they can be read without being run."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.commands import execute, lesson_files, lesson_rules
from helpers.commands.files import write
from helpers.devices.host import usable_cpus
from helpers.errors import WorkshopError
from helpers.measure import workload

if TYPE_CHECKING:
    from nbformat import NotebookNode

PROFILE = "lab"  # stored outputs come from this profile, on a CPU, with real MNIST
VARIABLES = {workload.WHOLE_TRAINING: "1"}  # and from trainings that run to their end, whatever they take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a name, such as 01; all by default")


def run(args: argparse.Namespace) -> int:
    """Store the outputs of the lessons that `args` names; return 0 if that was possible for all of them."""
    return store_all(lesson_files.find(args.lessons))


def store_all(paths: Sequence[Path]) -> int:
    """Execute each lesson and store its outputs in its file; a lesson that is refused keeps its file unchanged.

    Returns:
        0 if every lesson was stored, 1 if not.
    """
    status = 0
    if busy := describe_load():
        print(busy, flush=True)
    for path in paths:
        try:
            store(path)
            print(f"{path.name}: stored", flush=True)
        except WorkshopError as error:
            print(f"{path.name}: not stored\n{error}", flush=True)
            status = 1
    return status


def describe_load() -> str:
    """Return a warning if other programs compute on this machine, because stored times would then be wrong."""
    if not hasattr(os, "getloadavg"):  # Windows
        return ""
    load, cores = os.getloadavg()[0], usable_cpus()
    if load < cores / 2:
        return ""
    return f"This machine is busy (load {load:.1f} on {cores:g} processors). Times that you store now may be wrong."


def store(path: Path) -> None:
    """Execute the lesson in the file `path` and store its outputs there, all of them or none.

    Raises:
        WorkshopError: a cell failed, an output must not be stored, or the dataset was the stand-in.
    """
    notebook = lesson_files.read(path)
    outcome = execute.execute(notebook, path.parent, PROFILE, variables=VARIABLES)
    if outcome.failure:
        at = outcome.failure.cell
        raise WorkshopError(
            f"The lesson {path.stem} stopped" + ("." if at is None else f" in {lesson_files.label(notebook, at)}."),
            outcome.failure.message,
            "Fix the cell. The stored outputs are untouched.",
        )
    dataset = lesson_files.facts(notebook).get("dataset", "")
    if dataset and not dataset.startswith("MNIST"):
        raise WorkshopError(
            f"The lesson {path.stem} ran on {dataset}, but outputs are stored only from real MNIST.",
            "No MNIST was found, so the built-in stand-in was used instead.",
            "Set ANYGPU_MNIST to a copy of mnist.npz. The stored outputs are untouched.",
        )
    clean_outputs(lesson_rules.normalise(notebook))
    if wrong := lesson_rules.output_problems(notebook):
        raise WorkshopError(
            f"The lesson {path.stem} has outputs that must not be stored.",
            "\n      ".join(str(problem) for problem in wrong),
            "Fix the cells. The stored outputs are untouched.",
        )
    write(path, lesson_rules.dump(notebook))


def clean_outputs(notebook: NotebookNode) -> NotebookNode:
    """Bring freshly executed outputs of `notebook` into the form in which they are stored, in place, and return it.

    A traceback loses its colors and the paths of this machine.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [_without_paths(line) for line in output.traceback]
    return notebook


def _without_paths(text: str) -> str:
    text = execute.COLORS.sub("", text).replace(f"{lesson_files.FOLDER.parent}/", "")
    return re.sub(r"(?:~|/)[^\s'\"<>]*/(?:site-packages|dist-packages|lib/python3\.\d+)/", "", text)
