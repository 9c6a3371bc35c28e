"""Measure this machine for the gallery: as it is, and on one core of it; on a quiet machine, under `lab`.

    python -m helpers.maintain.fill_gallery NAME [--note "virtual machine"]

writes data/results/machines/NAME-2-cores.json and NAME-1-core.json (for a machine with two cores): three to four
minutes for each. Only a quiet and whole result replaces a file; a run that was not is done once more. OpenCL runtimes
that are registered (Debian's PoCL, PoCL from pip, Intel's) get rows of their own in each file. Intel's comes with
`python3 workshop.py lab --with intel-opencl`. The reference machine's name is amd-zen-5.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import ROOT, ranking
from helpers.compute import processes
from helpers.compute.host import usable_cpus
from helpers.ranking.files import FOLDER, problems_of_reference
from helpers.ranking.measuring import VARIABLES

TRIES = 2  # runs for each file, until one is quiet and whole


def measure(name: str, note: str, core: int | None) -> list[str]:
    """Measure once, in a process of its own; into the gallery if it was quiet and whole.

    Args:
        name: of the file.
        note: kept in it.
        core: that the process may use alone; None for all.

    Returns:
        Why the result is not in the gallery; an empty list if it is.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "helpers", "bench", "--profile", "lab", "--save", name, "--into", folder]
        alone = None if core is None else lambda: os.sched_setaffinity(0, {core})
        usual = processes.environment(dict.fromkeys(VARIABLES))  # without what makes frameworks slower or faster
        done = subprocess.run([*command, "--note", note], cwd=ROOT, env=usual, check=False, preexec_fn=alone)
        path = Path(folder, f"{name}.json")
        if done.returncode or not path.exists():
            return [f"bench ended with status {done.returncode}"]
        if not (problems := problems_of_reference(ranking.read(path))):
            shutil.move(path, FOLDER / path.name)
    return problems


def main() -> int:
    """Measure for each file until it is quiet and whole, or the tries are used up; return 1 if one file stays old."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="what the machine is, such as amd-zen-5")
    parser.add_argument("--note", default="", help="kept in both files, such as 'virtual machine'")
    args = parser.parse_args()
    cores, status = round(usable_cpus()), 0
    for used in (cores, 1) if cores > 1 and hasattr(os, "sched_setaffinity") else (cores,):
        name = f"{args.name}-{used}-core{'s' * (used != 1)}"
        core = min(os.sched_getaffinity(0)) if used < cores else None
        note = args.note if core is None else ", ".join(filter(None, [args.note, f"one core of {cores}"]))
        for number in range(TRIES):
            problems = measure(name, note, core)
            said = "\n  ".join(problems) or "in the gallery"
            print(f"\n{name}, try {number + 1} of {TRIES}: {said}", flush=True)
            if not problems:
                break
        status = status or int(bool(problems))
    return status


if __name__ == "__main__":
    sys.exit(main())
