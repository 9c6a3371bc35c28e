"""Say what is wrong with the code and the notebooks, and change nothing."""

from __future__ import annotations

import argparse

from helpers import notebook_format
from helpers.commands import format as formatting
from helpers.commands import lesson_files

HELP = "check code and notebooks, and change nothing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the whole project is checked."""


def run(args: argparse.Namespace) -> int:
    """Check everything; return 0 if nothing serious is wrong."""
    status = formatting.ruff("check") | formatting.ruff("format", "--check")
    notebooks = sorted(lesson_files.FOLDER.glob("*.ipynb"))
    return status | notebook_format.tell([problem for path in notebooks for problem in notebook_format.problems(path)])
