"""Run the tests: the helpers' own, the lessons through nbval, the checks of the checks."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re

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
# conftest.py says what stays together, and what begins first.
# A test that ends its process ends the run: pytest-xdist would try it again in each new process, and may hang.
SIDE_BY_SIDE = ("--dist=loadscope", "--max-worker-restart=0")
MEMORY = 2 * 2**30  # bytes that a worker may need, with the frameworks of a lesson's kernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--all`; every other argument goes to pytest."""
    parser.add_argument(
        "--all",
        action="store_true",
        help="everything: every prepared answer, each lesson in a browser, lessons that no change has reached",
    )


def run(args: argparse.Namespace) -> int:
    """Run pytest over the tests and the lessons, or over what was named, and return its status.

    A lesson's number, such as 04 or 01b, names its cells, its exercises, its module and its rules.
    Without `--all` conftest.py leaves out the slow tests, and lessons that no change has reached since they passed.
    """
    uv.need("pytest", "nbval", "xdist")
    import pytest

    os.environ.setdefault(workload.VARIABLE, "preview")
    lessons, rest = [], []
    for before, word in itertools.pairwise(["", *args.rest]):
        one_digit = re.fullmatch(r"\db?", word) and not before.startswith("-")  # the 0 of `-n 0` is no lesson
        (lessons if one_digit or re.fullmatch(lesson_files.NUMBER, word) else rest).append(word)
    if lessons:
        numbers = map(lesson_files.number, lesson_files.find(lessons))
        rest += ["-k", " or ".join(f"{number}- or lesson_{number[:2]}" for number in numbers)]
    named = any(not word.startswith("-") and (ROOT / word.split("::")[0]).exists() for word in rest)
    everything = (
        []
        if named
        else [f"--numprocesses={count_workers()}", *SIDE_BY_SIDE, str(ROOT / "tests"), str(ROOT / "notebooks")]
    )
    options = [*LESSONS, NO_LESSONS]
    if args.all:
        options.append("--all")
    return int(pytest.main([*options, *everything, *rest]))


def count_workers() -> int:
    """Return how many tests to run at once: one more than processors, since many wait; more than four crowd a GPU."""
    import psutil

    room = min([psutil.virtual_memory().available, *host.cgroup_room()])
    return max(2, min(math.ceil(host.usable_cpus()) + 1, 4, room // MEMORY))
