"""Say what is wrong with the code, the notebooks and the course's address in pages, and change nothing."""

from __future__ import annotations

import argparse

from helpers.commands import address, lesson_files, lesson_rules
from helpers.commands.format import ruff
from helpers.commands.lesson_rules import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a name, such as 01; all by default")


def run(args: argparse.Namespace) -> int:
    """Check the code, the pages, and all lessons or those named; return 0 if nothing is wrong."""
    status = ruff("check") | ruff("format", "--check")
    paths = lesson_files.find(args.lessons) if args.lessons else sorted(lesson_files.FOLDER.glob("*.ipynb"))
    found = [problem for path in paths for problem in lesson_rules.problems(path)]
    fault = "another address; run python3 workshop.py format"
    found += [Problem(path.name, "", fault) for path in address.find_outdated()]
    for problem in found:
        print(problem)
    return status | bool(found)
