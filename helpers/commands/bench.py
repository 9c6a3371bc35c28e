"""Rank this machine: run lesson 11's benchmark, score it, and keep the result, for pyperf to compare with others."""

from __future__ import annotations

import argparse
import os
import re

from helpers.commands.files import short
from helpers.devices.host import Host, python_command
from helpers.errors import WorkshopError
from helpers.measure import workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--profile", choices=workload.WORKLOADS, help="preview: about 1 minute, lab: 3, full: 10")
    parser.add_argument("--save", metavar="NAME", help="keep the result as data/results/machines/NAME.json")


def run(args: argparse.Namespace) -> int:
    """Measure, print what came, and keep it if `args` asks for that."""
    from helpers.lessons import lesson_11_bench

    if args.save and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", args.save):
        raise WorkshopError(
            f"{args.save!r} cannot be the name of a result.",
            "It becomes a file's name: small letters, digits, and single hyphens between them.",
            "Say what the machine is, for example amd-rx-6600-xt. Not whose it is: the file will be public.",
        )
    if args.profile:
        os.environ[workload.VARIABLE] = args.profile
    suite, reference = lesson_11_bench.measure(tuple(lesson_11_bench.FRAMEWORKS)), lesson_11_bench.reference()
    points, count = lesson_11_bench.score(suite, reference)
    print(f"\n{lesson_11_bench.table(suite, reference)}")
    print(f"\nScore over {count} tasks: {points:.0f} (the reference machine: 100)")
    if args.save:
        path = lesson_11_bench.MACHINES / f"{args.save}.json"
        suite.dump(str(path), compact=False, replace=True)
        print(f"Kept: {path}\nTo send it in: docs/ranking.md\nTo compare it with another file:")
        print(f"  {python_command(Host.here())} -m pyperf compare_to --table OTHER.json {short(path)}")
    return 0
