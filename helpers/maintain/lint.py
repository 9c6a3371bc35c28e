"""Say what is wrong with the code and the notebooks, and change nothing."""

from __future__ import annotations

import argparse

from helpers.commands import lesson_files
from helpers.maintain import format as formatting
from helpers.maintain import rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the whole project is checked."""


def run(args: argparse.Namespace) -> int:
    """Check everything; return 0 if nothing serious is wrong."""
    status = formatting.ruff("check") | formatting.ruff("format", "--check")
    notebooks = sorted(lesson_files.FOLDER.glob("*.ipynb"))
    return status | rules.tell([problem for path in notebooks for problem in rules.problems(path)])
