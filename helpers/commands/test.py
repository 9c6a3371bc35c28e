"""Run the tests: the helpers' own, and the lessons through nbval with the answers to their exercises."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
from collections.abc import Sequence

from helpers import ROOT
from helpers.commands import lesson_files, uv
from helpers.devices import host
from helpers.measure import workload

PASSES_ON = True
LESSONS = (
    "--nbval-lax",
    "--nbval-current-env",
    "--nbval-cell-timeout=600",  # against hanging; no lesson takes that long
    "--nbval-kernel-startup-timeout=300",
)
NO_LESSONS = f"--ignore-glob={ROOT / 'tests'}/*.ipynb"  # notebooks that tests read
# A file's tests stay together, for a lesson's cells share a kernel; conftest.py says which files begin.
# A test that ends its process ends the run: pytest-xdist would try it again in each new process, and may hang.
SIDE_BY_SIDE = ("--dist=loadfile", "--no-loadscope-reorder", "--max-worker-restart=0")
MEMORY = 2 * 2**30  # bytes that a worker may need, with the frameworks of a lesson's kernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--all`; every other argument goes to pytest."""
    parser.add_argument(
        "--all",
        action="store_true",
        help="run everything: each lesson with every prepared answer, real installations, frameworks, and a browser",
    )


def run(args: argparse.Namespace) -> int:
    """Run pytest over the quick tests, over everything with `--all`, or over what was named, and return its status.

    A lesson's number, such as 04 or 01b, names its cells, the answers to its exercises, its module and its rules.
    """
    uv.need("pytest", "nbval", "xdist")
    import pytest

    os.environ.setdefault(workload.VARIABLE, "preview")
    numbers, rest = _split(args.rest)
    lessons = lesson_files.find(numbers) if numbers else []
    arguments = [*LESSONS, NO_LESSONS]
    if args.all:
        arguments.append("--all")
    is_named = any(not word.startswith("-") and (ROOT / word.split("::")[0]).exists() for word in rest)
    if not is_named:
        workers = count_workers()
        if lessons:  # a worker for each, and one for the other tests
            workers = min(workers, len(lessons) + 1)
        arguments += [f"--numprocesses={workers}", *SIDE_BY_SIDE, str(ROOT / "tests")]
        if lessons:
            arguments += map(str, lessons)
        elif args.all:
            arguments.append(str(lesson_files.FOLDER))
    arguments += rest
    if lessons:
        numbers = [lesson_files.number(lesson) for lesson in lessons]
        arguments += ["-k", " or ".join(f"{number}- or lesson_{number[:2]}" for number in numbers)]
    status = int(pytest.main(arguments))
    if not (args.all or lessons or is_named):
        print("The lessons and slow tests were left out. To run everything: python3 workshop.py test --all")
    return status


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (the numbers of lessons among some arguments, the other arguments)."""
    lessons, rest = [], []
    for before, word in itertools.pairwise(["", *words]):
        is_value = re.fullmatch(r"-[a-zA-Z]", before) and before not in ("-x", "-v", "-q", "-s", "-l")  # as in `-n 0`
        if not is_value and (re.fullmatch(r"\db?", word) or re.fullmatch(lesson_files.NUMBER, word)):
            lessons.append(word)
        else:
            rest.append(word)
    return lessons, rest


def count_workers() -> int:
    """Return how many tests to run at once: one more than processors, since many wait; more than four crowd a GPU."""
    import psutil

    room = min([psutil.virtual_memory().available, *host.cgroup_room()])
    return max(2, min(math.ceil(host.usable_cpus()) + 1, 4, room // MEMORY))
