"""Prepared answers to exercises, kept as data: known mistakes, and right answers unlike the solution.

A file lesson_NN.toml holds those of lesson NN and its second session, under [notebook.exercise.mistakes] and
[notebook.exercise.right], such as [01.1.mistakes] or [01b.2.right]. An entry is a name with one of
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
from typing import Any, NamedTuple

from helpers import ROOT
from helpers.errors import WorkshopError

FOLDER = ROOT / "helpers" / "lessons"

Entries = Mapping[str, Any]  # by name; `prepare` checks what they hold


class Answer(NamedTuple):
    """A prepared answer to an exercise."""

    name: str
    code: str
    own_process: bool = False  # its kernel may crash or never end, so it is always judged alone
    as_if: str = ""  # what the verdict calls an answer that shows the same, after the words "It is as if"
    shows: str = ""  # what `kernel_checks.fingerprint` returns for it


class Prepared(NamedTuple):
    """What the file of a lesson holds for one exercise."""

    mistakes: Entries
    right: Entries
    place: str = ""  # such as "lesson_01.toml, 01.2", for the message of an error


def read(notebook: str, folder: Path = FOLDER) -> dict[int, Prepared]:
    """Return the prepared answers to a notebook's exercises, by exercise.

    The dictionary is empty if the lesson has no such file, as in a student's copy of the course.

    Args:
        notebook: its name, or the number that its name begins with, such as "01" or "01b".
        folder: holds a file for each lesson.

    Raises:
        WorkshopError: the file is not TOML, or has a table that nothing would read.
    """
    number = re.match(r"\d\d[a-z]?", notebook)
    file = folder / f"lesson_{notebook[:2]}.toml"
    if number is None or not file.exists():
        return {}
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise WorkshopError(f"{file.name}: {error}") from None
    _check_tables(tables, file)
    return {
        int(exercise): Prepared(
            entries.get("mistakes", {}), entries.get("right", {}), f"{file.name}, {number.group()}.{exercise}"
        )
        for exercise, entries in tables.get(number.group(), {}).items()
    }


def _check_tables(tables: Mapping[str, Any], file: Path) -> None:
    """Refuse a misspelled table, whose answers would never be tried."""
    first = file.stem.removeprefix("lesson_")
    names = [
        f"{notebook}.{exercise}.{kind}"
        for notebook, exercises in tables.items()
        for exercise, entries in exercises.items()
        for kind in entries
    ]
    for name in names:
        exercise, _, kind = name.rpartition(".")
        is_exercise = re.fullmatch(rf"{first}b?\.\d+", exercise)
        if not is_exercise or kind not in ("mistakes", "right"):
            meant = exercise if is_exercise else f"{first}.1"
            raise WorkshopError(f"{file.name}: [{name}] is neither [{meant}.mistakes] nor [{meant}.right].")


def prepare(entries: Entries, solution: str, place: str = "") -> list[Answer]:
    """Return the answers that entries describe, in their order.

    Args:
        entries: of one exercise, as `read` returns them.
        solution: the code of the exercise's solution.
        place: where the entries are, such as "lesson_01.toml, 01.2.right", for the message of an error.

    Raises:
        WorkshopError: an entry has none of the three forms, does not fit the solution, or changes nothing.
    """
    found = []
    for name, entry in entries.items():
        more = dict(entry) if isinstance(entry, Mapping) else {"replace": entry}
        code = more.pop("replace")
        where = f"{place}, {name!r}" if place else repr(name)
        found.append(Answer(name, code if isinstance(code, str) else _replace(solution, code, where), **more))
    return found


def name_mistake(exercise: str, shown: str) -> str:
    """Return the name of the one known mistake that shows the same; empty if there is none, or more than one.

    Args:
        exercise: such as "01.3".
        shown: what `kernel_checks.fingerprint` returned for the learner's kernel.
    """
    notebook, _, number = exercise.partition(".")
    prepared = read(notebook).get(int(number))
    if not shown or prepared is None:
        return ""
    named = [entry for entry in prepared.mistakes.values() if isinstance(entry, Mapping)]
    same = [entry["as_if"] for entry in named if entry.get("shows") == shown]
    return same[0] if len(same) == 1 else ""


def _replace(solution: str, pairs: object, where: str) -> str:
    code = solution
    for pair in pairs if isinstance(pairs, list) and all(isinstance(pair, list) for pair in pairs) else [pairs]:
        if not isinstance(pair, list) or [type(text) for text in pair] != [str, str]:
            raise WorkshopError(f'{where}: {pair!r} is neither the whole code as "..." nor a pair ["old", "new"].')
        old, new = pair
        if old not in code:
            raise WorkshopError(f"{where}: the solution does not contain {old!r}, which this answer replaces.")
        code = code.replace(old, new)
    if code == solution:
        raise WorkshopError(f"{where}: this answer is the solution itself.")
    return code
