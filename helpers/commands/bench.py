"""Rank this machine: run lesson 11's benchmark, score it, keep the result, and compare it with another one."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.errors import WorkshopError
from helpers.measure import workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--profile", choices=workload.WORKLOADS, help="preview: about 1 minute, lab: 3, full: 10")
    parser.add_argument("--only", action="append", metavar="FRAMEWORK", help="measure it alone; repeat it for several")
    parser.add_argument("--save", metavar="NAME", help="keep the result as data/results/machines/NAME.json")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="let pyperf compare a kept result with this one")


def run(args: argparse.Namespace) -> int:
    """Measure, print what came, and do with the result what `args` asks for."""
    from helpers.lessons import lesson_11_bench

    for name in args.only or ():
        if name not in lesson_11_bench.FRAMEWORKS:
            raise WorkshopError(
                f"There is no framework {name!r} here.", next=f"One of {', '.join(lesson_11_bench.FRAMEWORKS)}."
            )
    if args.save and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", args.save):
        raise WorkshopError(
            f"{args.save!r} cannot be the name of a result.",
            "It becomes a file's name: small letters, digits, and single hyphens between them.",
            "Say what the machine is, for example amd-rx-6600-xt. Not whose it is: the file will be public.",
        )
    if args.compare:
        _check(args.compare)
    if args.profile:
        os.environ[workload.VARIABLE] = args.profile
    suite = lesson_11_bench.measure(args.only or tuple(lesson_11_bench.FRAMEWORKS))
    points, count = lesson_11_bench.score(suite, lesson_11_bench.reference())
    print(f"\n{lesson_11_bench.table(suite)}\n\nScore over {count} tasks: {points:.0f} (the reference machine: 100)")
    if args.save:
        path = lesson_11_bench.MACHINES / f"{args.save}.json"
        suite.dump(str(path), compact=False, replace=True)
        print(f"Kept: {path}\nTo send it in: docs/ranking.md")
    if args.compare:
        with tempfile.TemporaryDirectory() as folder:
            new = Path(folder, "this-run.json")
            suite.dump(str(new))
            command = [sys.executable, "-m", "pyperf", "compare_to", "--table", str(args.compare), str(new)]
            return subprocess.run(command, check=False).returncode
    return 0


def _check(path: Path) -> None:
    """Refuse a file that pyperf cannot read, before anything is measured."""
    import pyperf

    try:
        names = pyperf.BenchmarkSuite.load(str(path)).get_benchmark_names()
        why = "" if all(map(str.isprintable, names)) else "the names in it would change what a terminal shows"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
    if why:
        raise WorkshopError(f"{path} is no result.", why, "Name a file of data/results/machines.")
