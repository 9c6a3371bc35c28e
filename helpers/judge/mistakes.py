"""Prepared answers to exercises, kept as data: known mistakes, and right answers that differ from the solution.

A file NN.toml holds those of lesson NN and its second sitting, under [notebook.exercise], such as [01.1] or [01b.2].
An entry is a name with one of
    "..."                                        the whole code;
    ["old", "new"]                               text of the solution, replaced wherever it occurs;
    [["old", "new"], ["old", "new"]]             several such pairs, one after the other.
What else is known of it is written with dots: `"never ends".replace = [...]`, `"never ends".own_process = true`.
A wrong kernel may have a name for the learner, `as_if`, and what it alone `shows`, as `kernel_checks.fingerprint`
returns it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from helpers import ROOT
from helpers.errors import WorkshopError

FOLDER = ROOT / "helpers" / "lessons" / "mistakes"


class Answer(NamedTuple):
    """A prepared answer to an exercise."""

    name: str
    code: str
    own_process: bool = False  # its kernel may crash or never end, so it is never judged beside anything else
    as_if: str = ""  # what a learner is told whose answer shows the same: it stands after "It is as if"
    shows: str = ""  # what `kernel_checks.fingerprint` returns for it


def read(notebook: str, folder: Path = FOLDER) -> dict[int, dict[str, object]]:
    """Return what `folder` holds for a notebook, by exercise and name; nothing where students are handed no answers.

    Args:
        notebook: its name, or the number that its name begins with, such as "01" or "01b".
        folder: holds a file for each lesson.
    """
    number = re.match(r"\d\d[a-z]?", notebook)
    file = folder / f"{notebook[:2]}.toml"
    if number is None or not file.exists():
        return {}
    exercises = tomllib.loads(file.read_text(encoding="utf-8")).get(number.group(), {})
    return {int(exercise): entries for exercise, entries in exercises.items()}


def answers(entries: Mapping[str, object], solution: str) -> list[Answer]:
    """Return the answers that the entries of an exercise describe, in their order.

    Raises:
        WorkshopError: an entry replaces what the solution does not hold, or changes nothing.
    """
    found = []
    for name, entry in entries.items():
        more = dict(entry) if isinstance(entry, Mapping) else {"replace": entry}
        code = more.pop("replace")
        found.append(Answer(name, code if isinstance(code, str) else _replace(solution, code, name), **more))
    return found


def as_if(exercise: str, shown: str) -> str:
    """Return the name of the one known mistake that shows the same; empty if there is none, or more than one.

    Args:
        exercise: such as "01.3".
        shown: what `kernel_checks.fingerprint` returned for the learner's kernel.
    """
    notebook, _, number = exercise.partition(".")
    entries = read(notebook).get(int(number), {}).values()
    same = [entry["as_if"] for entry in entries if isinstance(entry, Mapping) and shown and entry.get("shows") == shown]
    return same[0] if len(same) == 1 else ""


def _replace(solution: str, pairs: list, name: str) -> str:
    code = solution
    for old, new in [pairs] if isinstance(pairs[0], str) else pairs:
        if old not in code:
            raise WorkshopError(f"The solution holds no {old!r}, which the prepared answer {name!r} replaces.")
        code = code.replace(old, new)
    if code == solution:
        raise WorkshopError(f"The prepared answer {name!r} is the solution itself.")
    return code
