"""Rank this machine: measure it, score it, keep the result, compare two, and check a file before it is sent in."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.compute.host import Host, command
from helpers.errors import WorkshopError
from helpers.measure import workload

if TYPE_CHECKING:
    from helpers.ranking import Score


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    from helpers.ranking.worker import FRAMEWORKS

    parser.add_argument("--profile", choices=workload.WORKLOADS, help="preview: 30 s, lab: 3 minutes, full: 10 minutes")
    parser.add_argument("--only", action="append", choices=FRAMEWORKS, metavar="FRAMEWORK",
                        help=f"measure it alone; repeat it for several: {', '.join(FRAMEWORKS)}")  # fmt: skip
    parser.add_argument("--save", metavar="NAME", help="keep the result as data/results/machines/NAME.json")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="keep it in this folder instead")
    parser.add_argument("--note", default="", help="what is particular about the machine, kept with the result")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="hold the new result against a kept one")
    parser.add_argument("--check", type=Path, metavar="FILE", help="measure nothing: say whether a file may be sent in")


def run(args: argparse.Namespace) -> int:
    """Do what `args` asks for; the status is 1 where a checked file has problems, or nothing could be measured."""
    if args.check:
        return _check(args.check)
    import os

    from helpers import ranking

    if args.profile:
        os.environ[workload.VARIABLE] = args.profile
    before = ranking.read(args.compare) if args.compare else None
    if before and before.edition != ranking.EDITION:  # before anything is measured
        raise WorkshopError(
            f"{args.compare.name} cannot be compared with a new run.",
            f"It is of edition {before.edition}, and edition {ranking.EDITION} is measured now: other tasks or timing.",
            "Measure that machine again.",
        )
    if args.save:
        ranking.files.check_name(args.save)
    print(
        f"Measuring under {workload.current()}. Close what else computes; every line is a task on a device.\n",
        flush=True,
    )
    result = ranking.measure(only=args.only)
    result = replace(result, machine=replace(result.machine, note=args.note), name=args.save or "")
    reference = result if args.save == ranking.files.REFERENCE else None
    print(f"\n{result.machine}\n\n{result}")
    if all(row.why_not for row in result.rows):
        return 1
    print(f"\n{ranking.score(result, reference)}")
    status = 0
    if args.save:  # first: what was measured must not be lost
        path = ranking.save(result, args.save, args.into)
        print(f"\nKept: {args.into or 'data/results/machines'}/{path.name}")
        status = _check(path)
    if before:
        print(f"\n{args.compare.stem} against this run, seconds for each GB, GFLOP or image, by pyperf:")
        print(ranking.compare(before, result))
        print(f"\n{_scores_apart(ranking.score(before), ranking.score(result), args.compare.stem)}")
    return status


def _scores_apart(then: Score, now: Score, name: str) -> str:
    """Return how far two scores lie apart, or why they cannot be compared."""
    from helpers import ranking

    if why_not := ranking.comparable(then, now, (name, "this run")):
        return f"The scores cannot be compared: {why_not}."
    pairs = {kind: (getattr(then, kind), getattr(now, kind)) for kind in ("overall", "training", "inference")}
    apart = [f"{kind} {late / early - 1:+.1%}" for kind, (early, late) in pairs.items() if early and late]
    return f"Then: {then}\nFrom then to this run: {', '.join(apart)}."


def _check(path: Path) -> int:
    """Print what is wrong with a file, or how to send it in."""
    from helpers import ranking

    held = ranking.files.load(path)
    problems = ranking.problems_of(held)
    if not problems and held["workshop"]["edition"] != ranking.EDITION:
        problems = [f"edition {held['workshop']['edition']}: edition {ranking.EDITION} is measured now; measure again"]
    if problems:
        print(f"{path.name} may not be sent in:\n" + "\n".join(f"  {problem}" for problem in problems))
        return 1
    result = ranking.files.from_json(held, path.stem)
    print(f"{path.name}: right in form, no names, no paths. Noise: {result.noise}.")
    if not result.noise.quiet:
        note = f" --note {shlex.quote(result.machine.note)}" if result.machine.note else ""
        again = command(Host.here(), f"bench --profile {result.profile} --save {path.stem}{note}")
        print(f"It will be shown as noisy. On a quiet machine it is worth more:\n    {again}")
    print("To send it in: docs/ranking.md, 'Send your result in'.")
    return 0
