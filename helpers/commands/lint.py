"""Report what is wrong with the code, the notebooks, their last links and the course's address; with --fix, fix it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from helpers import ROOT
from helpers.commands import address, lesson_files, lesson_rules, next_lessons, uv
from helpers.commands.files import write
from helpers.commands.lesson_rules import Problem

PLACES = ("helpers", "tests", "docs/cluster", "notebooks", "workshop.py", "conftest.py")
TYPED = ("helpers", "docs/cluster", "workshop.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a name, such as 01; all by default")
    fix = "first bring code, notebooks and pages into the workshop's form; outputs don't change"
    parser.add_argument("--fix", action="store_true", help=fix)


def run(args: argparse.Namespace) -> int:
    """Check the code, the pages, and all lessons or those named; return 0 if nothing is wrong."""
    if args.fix:
        fix_form()
    status = run_ruff("check") | run_ruff("format", "--check") | run_ty()
    paths = lesson_files.find(args.lessons) if args.lessons else sorted(lesson_files.FOLDER.glob("*.ipynb"))
    found = [problem for path in paths for problem in lesson_rules.problems(path)]
    for outdated, what in ((address.find_outdated(), "address"), (next_lessons.find_outdated(), "link at the end")):
        found += [Problem(path.name, "", f"another {what}; run {lesson_rules.FIX}") for path in outdated]
    for problem in found:
        print(problem)
    if not found:
        print(f"Lessons {' '.join(map(lesson_files.number, paths))}: no problem")
    return status | bool(found)


def fix_form() -> None:
    """Bring code, all notebooks, their last links and the address in pages into form; print which files changed."""
    run_ruff("format")
    changed = [path for path in sorted(lesson_files.FOLDER.glob("*.ipynb")) if normalise_file(path)]
    for path, text in {**address.find_outdated(), **next_lessons.find_outdated()}.items():
        write(path, text)
        changed.append(path)
    for path in dict.fromkeys(changed):
        print(f"{path.name}: fixed")


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


def run_ruff(*arguments: str) -> int:
    """Run ruff over the project's code and notebooks, and return its status."""
    uv.need("ruff")
    places = [str(ROOT / place) for place in PLACES if (ROOT / place).exists()]
    return subprocess.run([sys.executable, "-m", "ruff", *arguments, *places], cwd=ROOT, check=False).returncode


def run_ty() -> int:
    """Check the types of the code that has annotations (tests have none) with ty, and return its status."""
    uv.need("ty")
    places = [str(ROOT / place) for place in TYPED if (ROOT / place).exists()]
    command = [sys.executable, "-m", "ty", "check", "--output-format", "concise", *places]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
