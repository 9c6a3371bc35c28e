"""Execute lessons without a browser, and write what came of it: notebooks and a report."""

from __future__ import annotations

import argparse
import datetime
import html
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import ROOT
from helpers.commands import execute, lesson_files, machine
from helpers.commands.files import printable, short, write
from helpers.devices.host import cpu_name
from helpers.errors import WorkshopError
from helpers.measure import records, workload
from helpers.variables import GRADE, PROFILE, RECORD

if TYPE_CHECKING:
    from nbformat import NotebookNode

BUILD = ROOT / "build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    which = "a number such as 01, a name, a notebook file, or a folder of them; all by default"
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help=which)
    parser.add_argument("--grade", action="store_true", help="fail a lesson if an exercise is wrong or untouched")
    amounts = f"how much work: {', '.join(workload.WORKLOADS)}; by default lab, with --grade preview"
    parser.add_argument("--profile", metavar="PROFILE", help=amounts)
    kept = "keep the measured numbers in data/results/NAME.json"
    parser.add_argument("--record", metavar="NAME", type=records.validate_name, help=kept)
    parser.add_argument("--cell-seconds", type=int, metavar="N", help="the time limit for one cell, in seconds")


def run(args: argparse.Namespace) -> int:
    """Execute the lessons that `args` names; return 0 if all passed, 1 if not, 130 if it was interrupted.

    Raises:
        WorkshopError: nothing is named to grade, or a name fits no lesson.
    """
    if args.grade and not args.lessons:
        raise WorkshopError(
            "There is nothing to grade.",
            "--grade judges the answers in learners' copies of a lesson.",
            "Name a copy, or their folder: python3 workshop.py run --grade path/to/folder",
        )
    grade = args.grade or os.environ.get(GRADE) == "1"
    profile = workload.validate(args.profile) if args.profile else _default_profile(grade)
    record = records.FOLDER / f"{args.record}.json" if args.record else None
    paths = lesson_files.find(args.lessons)
    missing = _find_missing(args.lessons, paths) if grade else []
    return run_lessons(paths, profile, BUILD, args.cell_seconds, grade, record, missing)


def _find_missing(names: Iterable[str], paths: Sequence[Path]) -> list[str]:
    """Return the learners whose folder, directly in a folder of `names`, contains none of the notebooks `paths`."""
    folders = [Path(name).resolve() for name in names if Path(name).is_dir()]
    inside = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_dir()]
    return [
        path.name
        for path in inside
        if not path.name.startswith(".") and not any(copy.is_relative_to(path) for copy in paths)
    ]


def _default_profile(grade: bool) -> str:
    """Return how much work is done if no `--profile` says so: the least for grades, since no answer depends on it."""
    return "preview" if grade and not os.environ.get(PROFILE) else workload.current()


def run_lessons(
    paths: Sequence[Path],
    profile: str,
    build: Path = BUILD,
    cell_seconds: int | None = None,
    grade: bool = False,
    record: Path | None = None,
    missing: Sequence[str] = (),
) -> int:
    """Execute `paths` one after another, whatever becomes of each, and write the results into the folder `build`.

    Args:
        paths: the lessons.
        profile: how much work they do.
        build: the folder for the report and the notebooks.
        cell_seconds: how long one cell may take.
        grade: whether a wrong exercise fails its lesson.
        record: the file in data/results that keeps what the lessons measure, after each lesson; None for no record.
        missing: learners who sent no notebook, for the report.

    Returns:
        0 if every lesson passed, 1 if not, 130 after Ctrl-C (the report then holds what was done).
    """
    rows: list[dict[str, Any]] = []
    names = _name_in_report(paths)
    without = f"No notebook: {', '.join(map(printable, missing))}." if missing else ""
    status = 0
    try:
        for path in paths:
            empty = dict.fromkeys(("verdict", "where", "message", "device", "dataset"), "")
            rows.append({"lesson": printable(names[path]), "profile": profile, "seconds": 0.0, "peak_mib": 0} | empty)
            try:
                row = _run_lesson(path, names[path], profile, build, cell_seconds, grade, record)
            except WorkshopError as error:
                row = {"verdict": "failed", "message": str(error)}
            except ImportError:
                raise  # the installation is broken, not this copy
            except Exception as error:  # whatever a stranger's file holds: it has failed, and the next one is run
                row = {"verdict": "failed", "message": f"The file cannot be run: {error!r}"}
            rows[-1] |= {key: printable(value) if isinstance(value, str) else value for key, value in row.items()}
            print(_format_row(rows[-1]), flush=True)
            status |= rows[-1]["verdict"] != "passed"
    except KeyboardInterrupt:
        rows[-1].update(verdict="interrupted", message="Stopped before the end.")
        print(_format_row(rows[-1]), flush=True)
        status = 130
    finally:
        _write_report(rows, build, without)
        passed = sum(row["verdict"] == "passed" for row in rows)
        print(f"{passed} of {len(rows)} passed.{without and f' {without}'}")
        print(f"Report: {short(build / 'report.md')}  Notebooks: {short(build / 'notebooks')}")
    return int(status)


def _name_in_report(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each lesson; a copy's name begins with the folders that it does not share with all copies.

    Its own folder is always there, since it may be the learner's; but nbgrader's, which has the copy's name, never is.
    """
    names = {path: path.stem for path in paths}
    copies = [path for path in paths if path.parent != lesson_files.FOLDER]
    folders = {path: path.parent.parent if path.parent.name == path.stem else path.parent for path in copies}
    shared = set.intersection(*(set(folder.parents) for folder in folders.values())) if copies else set()
    for path, folder in folders.items():
        own = [part.name for part in (folder, *folder.parents) if part not in shared]
        names[path] = "-".join([*reversed(own), path.stem])
    return names


def _run_lesson(
    path: Path, name: str, profile: str, build: Path, cell_seconds: int | None, grade: bool, record: Path | None
) -> dict[str, Any]:
    """Execute one lesson, write what it measured and its notebook as `name`; return what the report says of it."""
    import nbformat
    from tqdm import tqdm

    written = build / "notebooks" / f"{name}.ipynb"
    written.unlink(missing_ok=True)
    notebook = lesson_files.read(path)
    cells = len(notebook.cells)
    with (
        tempfile.TemporaryDirectory() as folder,
        tqdm(total=cells, desc=printable(name), unit="cell", leave=False, disable=None, file=sys.stderr) as bar,
    ):
        noted = Path(folder) / "notes"
        outcome = execute.execute(
            notebook,
            path.parent,
            profile,
            grade,
            cell_seconds,
            progress=lambda index: bar.update(index + 1 - bar.n),
            variables={RECORD: str(noted)} if record else None,
        )
        if record and noted.exists():
            notes = records.read_notes(noted, lesson_files.number(path))
            records.write(record, machine.describe_machine(), notes)
    row = {"verdict": "passed", "seconds": round(outcome.seconds, 1), "peak_mib": round(outcome.peak_bytes / 2**20)}
    row |= {key: str(value) for key, value in lesson_files.facts(notebook).items() if key in ("device", "dataset")}
    if failure := outcome.failure:
        row["verdict"] = "timed out" if failure.kind == "timed out" else "failed"
        row["where"] = "" if failure.cell is None else _find_exercise(notebook, failure.cell)
        row["message"] = failure.message
    elif loud := execute.loud(notebook):
        row["message"] = "Wrote to standard error: " + ", ".join(lesson_files.label(notebook, cell) for cell in loud)
    write(written, nbformat.writes(notebook) + "\n")
    return row


def _find_exercise(notebook: NotebookNode, index: int) -> str:
    """Name a cell for people; if it is a check, with the number of its exercise."""
    checks = [place for place, cell in enumerate(notebook.cells) if "check" in lesson_files.tags(cell)]
    exercise = f"exercise {checks.index(index) + 1}, " if index in checks else ""
    return exercise + lesson_files.label(notebook, index)


def _format_row(row: dict[str, Any]) -> str:
    line = f"{row['lesson']:28} {row['verdict']:8} {row['seconds']:6.1f} s {row['peak_mib']:5d} MiB"
    line += f"\n    on {row['device']}" if row["device"] else ""
    line += f", {row['dataset']}" if row["dataset"] else ""
    return line + "".join(f"\n    {text}" for key in ("where", "message") for text in row[key].splitlines())


def _write_report(rows: list[dict[str, Any]], build: Path, without: str) -> None:
    """Write report.json and report.md, with the sentence `without`, unless it is empty."""
    import psutil
    from tabulate import tabulate

    machine = {
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "processor": cpu_name(),
        "cores": f"{psutil.cpu_count()} logical cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB of memory",
    }
    finished = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report = {"finished": finished, "machine": machine, "lessons": rows}
    write(build / "report.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    headers = {"where": "cell", "peak_mib": "peak MiB"}
    keys = ("lesson", "verdict", "where", "message", "seconds", "peak_mib", "device", "dataset", "profile")
    table = [
        [html.escape(str(row[key]), quote=False).replace("|", "\\|").replace("\n", "<br>") for key in keys]
        for row in rows
    ]
    lines = [html.escape(without, quote=False)] if without else []
    lines += [
        f"Machine: {', '.join(machine.values())}. Finished: {finished}.",
        f"Peak memory is that of the kernel and its children, sampled every {execute.SAMPLE_SECONDS} s: a shorter "
        "peak can be missed. Memory that they share is counted for each.",
        "Seconds run from the start of the kernel to its end.",
        "Passed means that every cell ran. A wrong or untouched exercise fails its lesson only under `run --grade`.",
    ]
    text = tabulate(table, [headers.get(key, key) for key in keys], tablefmt="pipe", disable_numparse=True)
    write(build / "report.md", f"# The lessons, executed\n\n{text}\n\n- " + "\n- ".join(lines) + "\n")
