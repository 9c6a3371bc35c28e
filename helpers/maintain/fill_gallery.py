"""Measure this machine for the gallery: as it is, and on one core of it; on a quiet machine, under `lab`.

    python -m helpers.maintain.fill_gallery NAME [--note "virtual machine"]

writes data/results/machines/NAME-2-cores.json and NAME-1-core.json (for a machine with two cores): about seven minutes
on a quiet machine, three for each file. It waits until the machine is quiet, measures, and measures once more if that
was noisy, or if a work failed. Only a quiet and whole result replaces a file of the gallery. OpenCL runtimes that are
registered (Debian's PoCL, PoCL from pip, Intel's) get rows of their own in each file. Intel's comes with
`python3 workshop.py lab --with intel-opencl`. The reference machine's name is amd-zen-5.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helpers import ROOT, processes, ranking, workload
from helpers.machine.host import usable_cpus
from helpers.ranking.files import FOLDER, problems_of_reference
from helpers.ranking.measuring import VARIABLES
from helpers.ranking.noise import Noise, Watch

LOOKS = 6  # at the noise before a run, PAUSE seconds apart
PAUSE = 1.5


def wait_until_quiet(patience: float) -> Noise:
    """Look at the noise until there is none, or the patience ends; return what was seen last.

    Args:
        patience: in seconds.
    """
    end = time.monotonic() + patience
    while True:
        watch = Watch()
        for number in range(LOOKS):
            watch.look(f"look {number + 1}")
            time.sleep(PAUSE)
        noise = watch.end()
        if noise.quiet or time.monotonic() > end:
            return noise
        print(f"waiting: {noise}", flush=True)


def measure(name: str, note: str, profile: str, core: int | None) -> list[str]:
    """Measure once, in a process of its own; into the gallery if it was quiet and whole.

    Args:
        name: of the file.
        note: kept in it.
        profile: the workload.
        core: that the process may use alone; None for all.

    Returns:
        Why the result is not in the gallery; an empty list if it is.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "helpers", "bench", "--profile", profile, "--save", name, "--into", folder]
        alone = None if core is None else lambda: os.sched_setaffinity(0, {core})
        usual = processes.environment(dict.fromkeys(VARIABLES))  # without what makes frameworks slower or faster
        done = subprocess.run([*command, "--note", note], cwd=ROOT, env=usual, check=False, preexec_fn=alone)
        path = Path(folder, f"{name}.json")
        if done.returncode or not path.exists():
            return [f"bench ended with status {done.returncode}"]
        result = ranking.read(path)
        if problems := problems_of_reference(result):
            return problems
        shutil.move(path, FOLDER / path.name)
    print(f"\n{name}: in the gallery after {result.seconds:.0f} s. Noise: {result.noise}.\n", flush=True)
    return []


def main() -> int:
    """Measure for each file until it is quiet and whole, or the tries are used up; return 1 if one file stays old."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="what the machine is, such as amd-zen-5")
    parser.add_argument("--profile", choices=workload.WORKLOADS, default="lab")
    parser.add_argument("--note", default="", help="kept in both files, such as 'virtual machine'")
    parser.add_argument("--tries", type=int, default=2, help="runs for each file, until one is quiet and whole")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds to wait for a quiet machine")
    args = parser.parse_args()
    cores, old = round(usable_cpus()), []
    for used in (cores, 1) if cores > 1 else (1,):
        name = f"{args.name}-{used}-core{'s' * (used != 1)}"
        note = args.note if used == cores else ", ".join(filter(None, [args.note, f"one core of {cores}"]))
        if used < cores and not hasattr(os, "sched_setaffinity"):
            print(f"{name}: left out, this system cannot give a process one core")
            continue
        core = min(os.sched_getaffinity(0)) if used < cores else None
        problems = ["no try was allowed"]
        for number in range(args.tries):
            noise = wait_until_quiet(args.patience)
            if not noise.quiet:
                problems = [f"not begun: {noise}"]
                break
            if not (problems := measure(name, note, args.profile, core)):
                break
            print(f"\n{name}, try {number + 1} of {args.tries}: " + "\n  ".join(problems), flush=True)
        if problems:
            old.append(name)
            print(f"\n{name}: the gallery stays as it was.\n  " + "\n  ".join(problems), flush=True)
    return int(bool(old))


if __name__ == "__main__":
    sys.exit(main())
