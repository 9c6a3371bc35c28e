"""Run lessons as Binder does, on one processor and in 2 GB of memory, and say whether that was enough. Linux, as root.

    .venv/bin/python binder/measure.py           every lesson
    .venv/bin/python binder/measure.py 04 05     these two

docs/verified.md has what came of it.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers.commands import lesson_files  # noqa: E402

LIMIT = 2_000_000_000  # bytes, a little less than the 2 GiB that mybinder.org gives
OLD, NEW = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")  # where cgroups of version 1 and of version 2 lie


def in_2_gb(lesson: Path) -> str:
    """Run one lesson in a cgroup of its own, and return its line."""
    old = OLD.is_dir()
    group = (OLD if old else NEW) / f"any-gpu-workshop-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(LIMIT))
        for name, most in (("memory.memsw.limit_in_bytes", LIMIT), ("memory.swap.max", 0)):
            if (group / name).exists():
                (group / name).write_text(str(most))  # Binder has no swap
        processor = str(max(os.sched_getaffinity(0)))
        enter = f"echo $$ > {group}/cgroup.procs && exec taskset --cpu-list {processor} " + '"$@"'
        run = [ROOT / "binder/start", sys.executable, "-m", "helpers", "run", lesson]
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", enter, "bash", *run], cwd=ROOT, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        peak = group / ("memory.max_usage_in_bytes" if old else "memory.peak")
        events = (group / ("memory.oom_control" if old else "memory.events")).read_text()
        killed = int(re.search(r"^oom_kill (\d+)$", events, re.MULTILINE)[1])
        verdict = "passed" if done.returncode == 0 and not killed else f"failed, {killed} processes killed"
        mib = int(peak.read_text()) / 2**20 if peak.exists() else 0
        return f"| {lesson.stem} | {verdict} | {seconds:.0f} | {mib:.0f} |" + (
            "" if done.returncode == 0 else "\n" + done.stdout
        )
    finally:
        while (left := (group / "cgroup.procs").read_text().split()) or not _remove(group):
            for process in left:
                subprocess.run(["kill", "-9", process], check=False)
            time.sleep(0.1)


def _remove(group: Path) -> bool:
    try:
        group.rmdir()  # the kernel takes a moment after the last process
    except OSError:
        return False
    return True


if __name__ == "__main__":
    print("| lesson | verdict | seconds | peak MiB, with files that the system keeps |\n|---|---|---|---|")
    for path in lesson_files.find(sys.argv[1:]):
        print(in_2_gb(path), flush=True)
