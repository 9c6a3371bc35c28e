"""Record in at most ten minutes what a GPU reaches: `python -m helpers.commands.record_gpu NAME`.

It needs no network, no JupyterLab and no setup: Python 3.11 or newer with NumPy, and PyOpenCL, wgpu, JAX, PyTorch or
Keras where they are installed. Each part runs in a process of its own and is ended when its seconds are over. What a
part measured is kept as soon as the part ends, also if it was ended. docs/record-a-gpu.md says how to use it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helpers import ROOT, variables
from helpers.commands import machine
from helpers.commands.gpu_cells import NOT_EXECUTED
from helpers.commands.gpu_parts import PARTS, find_machine
from helpers.devices.host import has_module
from helpers.measure import limits, records
from helpers.measure.records import Machine, Note

TOTAL_SECONDS = 600.0
MACHINE_SECONDS = 40.0  # to find the device; a driver may hang
MACHINE = "machine"  # the part that finds it
DONE = "done"


def run_part(name: str, seconds: float, notes: Path, log: Path, profile: str) -> str:
    """Run a part in a process of its own, end it and all that it started when its seconds are over; say what came.

    Args:
        name: of PARTS, or MACHINE.
        seconds: the longest that it may take.
        notes: the file that gets what it measures.
        log: the file that gets what it prints.
        profile: how much work it does.
    """
    settings = dict(PARTS[name].settings) if name in PARTS else {}
    environment = os.environ | {variables.RECORD: str(notes), variables.PROFILE: profile} | settings
    command = [sys.executable, "-m", "helpers.commands.record_gpu", "--part", name, "part"]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s"
        finally:
            _end(process)
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    left_out = sum(NOT_EXECUTED in line for line in lines)
    if status == 0:
        return f"done, but not every statement: {log.name} names {left_out} that failed" if left_out else DONE
    if status < 0:
        return f"failed: ended by {signal.Signals(-status).name}"
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return f"failed: {(errors or lines or ['it printed nothing'])[-1]}"


def _end(process: subprocess.Popen) -> None:
    """End a process and all that it started, and wait a few seconds for it: one that a driver holds does not end."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


class Recording:
    """The notes of a record, and its file, which holds those that can be right (`limits`).

    Notes of an earlier run in the same file stay until a new one replaces them.

    Args:
        path: of the record.
        here: the machine of the record.
    """

    def __init__(self, path: Path, here: Machine) -> None:
        self._path, self._here = path, here
        before = records.read(path) if path.exists() else None
        self._notes = dict(before.notes) if before else {}
        self._measured: set[tuple[str, str]] = set()  # lesson and label of what this run has noted
        self.refused: dict[tuple[str, str], str] = {}  # why, by lesson and label

    def add(self, noted: Sequence[Note]) -> None:
        """Add what a part noted, and write the file. Of a limit that is measured twice, the higher number counts."""
        for note in noted:
            key = note.lesson, note.label
            is_known = key in self._measured and limits.is_limit(note)
            if not is_known or note.value > self._notes[key].value:
                self._notes[key] = note
            self._measured.add(key)
        notes = [replace(note, device=note.device or self._here.device) for note in self._notes.values()]
        self.refused = limits.find_impossible(notes)
        self._path.unlink(missing_ok=True)
        records.write(self._path, self._here, [note for note in notes if (note.lesson, note.label) not in self.refused])

    def count(self) -> int:
        """Return how many numbers of this run are in the file."""
        return len(self._measured - set(self.refused))


def record(name: str, folder: Path, total: float, profile: str, chosen: Sequence[str]) -> int:
    """Run the parts one after another, keep the notes of each in folder/NAME.json, and print a summary.

    Args:
        name: of the record.
        folder: for the record, what each part printed, and its notes, one a line.
        total: seconds for all parts together.
        profile: how much work each part does.
        chosen: names of parts.

    Returns:
        0 if at least one number was recorded, otherwise 1.
    """
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-machine.json"
    file.unlink(missing_ok=True)
    outcome = run_part(MACHINE, min(MACHINE_SECONDS, total), file, folder / f"{name}-machine.log", profile)
    if outcome == DONE:
        here = Machine(**json.loads(file.read_text(encoding="utf-8")))
    else:
        here = machine.describe_machine(use_opencl=False)
    print(f"{here.device}, driver {here.driver or 'unknown'}; {here.system}", flush=True)
    recording = Recording(folder / f"{name}.json", here)

    def run(title: str) -> None:
        part, begun = PARTS[title], time.monotonic()
        left = total - (begun - begin)
        missing = [module for module in part.needs if not has_module(module)]
        noted: list[Note] = []
        if missing:
            outcome = f"skipped: {' and '.join(missing)} not installed"
        elif left < 5:
            outcome = "skipped: no time left"
        else:
            base = folder / f"{name}-{title.replace(' ', '-')}"
            notes, log = base.with_suffix(".jsonl"), base.with_suffix(".log")
            notes.unlink(missing_ok=True)
            outcome = run_part(title, min(part.seconds, left), notes, log, profile)
            noted = records.read_notes(notes, part.lesson)
            recording.add(noted)
        print(f"{title:18} {len(noted):3} numbers {time.monotonic() - begun:6.1f} s  {outcome}", flush=True)

    for title in chosen:
        run(title)
    if recording.refused and "peak" in chosen:  # it may be the limit that was measured at a bad moment
        run("peak")
    for (lesson, label), reason in recording.refused.items():
        print(f"refused: lesson {lesson}, {label}: {reason}")
    print(f"{recording.count()} numbers in {time.monotonic() - begin:.0f} s: {folder / f'{name}.json'}")
    return 0 if recording.count() else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, and record."""
    parser = argparse.ArgumentParser(prog="python -m helpers.commands.record_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("name", type=records.validate_name, help="of the record, such as nvidia-h100")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "record", help="folder for the record")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS, help="for all parts together")
    parser.add_argument("--profile", default="full", help="how much work: preview, lab or full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--part", choices=[MACHINE, *PARTS], help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.part:
        (find_machine if args.part == MACHINE else PARTS[args.part].function)()
        return 0
    return record(args.name, args.output.resolve(), args.seconds, args.profile, args.only)


if __name__ == "__main__":
    sys.exit(main())
