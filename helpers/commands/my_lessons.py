"""The learner's own copies of the lessons, in my-lessons/: without outputs, and never overwritten."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from helpers import ROOT
from helpers.commands import files, lesson_files

FOLDER = ROOT / "my-lessons"  # beside notebooks/, so that a lesson's links lead to the same places
EDITION = "anygpu_edition"  # in a copy's metadata: the edition of the lesson that it was made from

# A notebook as JSON: nbformat, which checks each cell, would take a second for all lessons, before every `lab`.
Notebook = dict[str, Any]


def update(lessons: Path = lesson_files.FOLDER, own: Path = FOLDER) -> list[str]:
    """Copy each lesson that has no copy yet, and return a sentence on each copy whose lesson has changed since.

    A copy that the learner has neither edited nor run is replaced. Beside any other one the new edition is laid, under
    a name of its own, and reported once.

    Args:
        lessons: the folder of the lessons.
        own: the folder of the copies; made if it is not there.

    Raises:
        WorkshopError: a lesson cannot be read.
        OSError: `own` cannot be written.
    """
    sentences = []
    for path in lesson_files.every(lessons):
        lesson, copy = prepare(_read(path) or dict(lesson_files.read(path))), own / path.name  # the latter says why
        edition = lesson["metadata"][EDITION]
        if copy.exists():
            mine, newer = _read(copy), own / f"{path.stem}-edition-{edition[:6]}.ipynb"
            if mine is None or mine["metadata"].get(EDITION) in (None, edition) or newer.exists():
                continue
            if not _is_untouched(mine):
                sentences.append(f"{path.stem} has changed. The new edition is {files.short(newer)}; your copy stays.")
                copy = newer
        files.write(copy, json.dumps(lesson, indent=1, ensure_ascii=False) + "\n")
    return sentences


def prepare(lesson: Notebook) -> Notebook:
    """Return the lesson as a learner first meets it: without outputs, and marked with its edition."""
    lesson_files.clear(lesson)
    lesson["metadata"][EDITION] = _compute_fingerprint(lesson)
    return lesson


def _read(path: Path) -> Notebook | None:
    """Return a notebook; None where the file holds none, which JupyterLab tells the learner when it is opened."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if found["cells"] and found["metadata"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _is_untouched(mine: Notebook) -> bool:
    """Return whether a copy was neither edited nor run."""
    is_run = any(cell.get("execution_count") or cell.get("outputs") for cell in mine["cells"])
    return mine["metadata"][EDITION] == _compute_fingerprint(mine) and not is_run


def _compute_fingerprint(notebook: Notebook) -> str:
    """Return what two notebooks share if their cells say the same; a source may be one text, or a list of lines."""
    content = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
