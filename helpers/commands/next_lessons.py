"""Write the last line of each lesson: where README's paths go on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.commands import lesson_files, lesson_rules

if TYPE_CHECKING:
    from nbformat import NotebookNode

README = ROOT / "README.md"
_PATH = re.compile(rf"^- \*\*(.+):\*\* ({lesson_files.NUMBER}(?: {lesson_files.NUMBER})*)$", re.MULTILINE)
_LINE = re.compile(r"\n*^Next: .*\Z", re.MULTILINE)


def read_paths() -> dict[str, list[str]]:
    """Return the numbers of the lessons on each of README's paths, by the path's name."""
    return {name: numbers.split() for name, numbers in _PATH.findall(README.read_text(encoding="utf-8"))}


def find_outdated() -> dict[Path, str]:
    """Return each lesson that ends with other links, with the new text of its file."""
    lessons = {path: lesson_files.read(path) for path in lesson_files.every()}
    links = {
        lesson_files.number(path): f"[{lesson_files.name_lesson(path, notebook)}]({path.name})"
        for path, notebook in lessons.items()
    }
    paths = read_paths()
    outdated = {}
    for path, notebook in lessons.items():
        last: NotebookNode = notebook.cells[-1]
        wanted = f"{_LINE.sub('', last.source)}\n\n{list_next(lesson_files.number(path), links, paths)}"
        if last.source != wanted:
            last.source = wanted
            outdated[path] = lesson_rules.dump(notebook)
    return outdated


def list_next(number: str, links: Mapping[str, str], paths: Mapping[str, Sequence[str]]) -> str:
    """Return the line that follows the lesson `number`: a link for each path that goes on, and the second session.

    Args:
        number: such as "01", or "01b", which goes on as "01" does, unless a path names it.
        links: Markdown's link to each lesson, by its number.
        paths: the numbers of the lessons on each path, by its name.
    """
    reasons: dict[str, list[str]] = {}
    first = number.rstrip("b")
    for name, numbers in paths.items():
        here = number if number in numbers else first
        if here in numbers[:-1]:
            reasons.setdefault(numbers[numbers.index(here) + 1], []).append(name.lower())
    if f"{number}b" in links:
        reasons.setdefault(f"{number}b", []).append("second session")
    parts = [f"{links[other]} ({', '.join(why)})" for other, why in reasons.items()]
    return "Next: " + " · ".join([*parts, "[all lessons and paths](../README.md#lessons)"])
