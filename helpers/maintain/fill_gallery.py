"""Measure this machine for the gallery: as it is, and on one core of it; on a quiet machine, under `lab`.

    python -m helpers.maintain.fill_gallery NAME [--profile preview]

writes data/results/machines/NAME-2-cores.json and NAME-1-core.json (for a machine with two cores). OpenCL runtimes that
are registered (Debian's PoCL, PoCL from pip, Intel's) get rows of their own in each file. Intel's comes with
`python3 workshop.py lab --with intel-opencl`. The reference machine's name is amd-zen-5.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from helpers import ROOT, workload
from helpers.machine.host import usable_cpus


def main() -> int:
    """Run the benchmark in a process for each file, one after the other; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="what the machine is, such as amd-zen-5")
    parser.add_argument("--profile", choices=workload.WORKLOADS, default="lab")
    parser.add_argument("--note", default="", help="kept in both files, such as 'virtual machine'")
    args = parser.parse_args()
    cores = round(usable_cpus())
    status = 0
    for used in (cores, 1) if cores > 1 else (1,):
        name = f"{args.name}-{used}-core{'s' * (used != 1)}"
        note = args.note if used == cores else ", ".join(filter(None, [args.note, f"one core of {cores}"]))
        command = [sys.executable, "-m", "helpers", "bench", "--profile", args.profile, "--save", name, "--note", note]
        if used < cores and not hasattr(os, "sched_setaffinity"):
            print(f"{name}: left out, this system cannot give a process one core")
            continue
        one = sorted(os.sched_getaffinity(0))[:1] if used < cores else None
        status |= subprocess.run(
            command, cwd=ROOT, check=False, preexec_fn=(lambda one=one: os.sched_setaffinity(0, one)) if one else None
        ).returncode
    return int(bool(status))


if __name__ == "__main__":
    sys.exit(main())
