"""Bring code, notebooks and the course's address in pages into the workshop's form; outputs stay as they are."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from helpers import ROOT
from helpers.commands import address, lesson_files, lesson_rules, uv
from helpers.commands.files import write

PLACES = ("helpers", "tests", "notebooks", "workshop.py", "conftest.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the whole project is formatted."""


def run(args: argparse.Namespace) -> int:
    """Format everything; return ruff's status."""
    status = ruff("format")
    changed = [path for path in sorted(lesson_files.FOLDER.glob("*.ipynb")) if normalise_file(path)]
    for path, text in address.find_outdated().items():
        write(path, text)
        changed.append(path)
    for path in changed:
        print(f"{path.name}: brought into form")
    return status


def normalise_file(path: Path) -> bool:
    """Rewrite the notebook in the file `path` in the workshop's form; return whether that changed the file.

    Raises:
        WorkshopError: the file is no notebook.
    """
    text = lesson_rules.dump(lesson_rules.normalise(lesson_files.read(path)))
    if text == path.read_text(encoding="utf-8"):
        return False
    write(path, text)
    return True


def ruff(*arguments: str) -> int:
    """Run ruff over the project's code and notebooks, and return its status."""
    uv.need("ruff")
    places = [str(ROOT / place) for place in PLACES if (ROOT / place).exists()]
    return subprocess.run([sys.executable, "-m", "ruff", *arguments, *places], cwd=ROOT, check=False).returncode
