"""Say what is wrong with the code, the notebooks and the generated parts of pages, and change nothing."""

from __future__ import annotations

import argparse

from helpers.commands import lesson_files
from helpers.maintain import docs, rules
from helpers.maintain import format as formatting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a name, such as 01; all by default")


def run(args: argparse.Namespace) -> int:
    """Check the code, the pages, and all lessons or those named; return 0 if nothing serious is wrong."""
    status = formatting.ruff("check") | formatting.ruff("format", "--check")
    notebooks = lesson_files.find(args.lessons) if args.lessons else sorted(lesson_files.FOLDER.glob("*.ipynb"))
    status |= rules.tell([problem for path in notebooks for problem in rules.problems(path)])
    old = "a generated part is not up to date; run python -m helpers format"
    return status | rules.tell([rules.Problem(docs.name(path), "", old) for path in docs.outdated()])
