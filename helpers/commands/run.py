"""Execute lessons without a browser, and write what came of it: notebooks, pages that need no network, a report."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import ROOT, workload
from helpers.commands import execute, lesson_files
from helpers.errors import WorkshopError
from helpers.machine.host import cpu_name

if TYPE_CHECKING:
    from nbformat import NotebookNode

BUILD = ROOT / "build"
PACKAGES = (
    *("jupyterlab", "ipykernel", "numpy", "matplotlib", "pyopencl", "pocl-binary-distribution", "keras"),
    *("tensorflow", "tensorflow-cpu", "jax", "torch", "onnxruntime", "scikit-learn"),
)

# nbconvert's page without the scripts that it would fetch from the network, and with the alternative text of figures,
# which its own lab template leaves out.
_TEMPLATE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js_requirejs %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block extra_css %}<style>main { max-width: 1000px; margin: 0 auto; }</style>{% endblock %}
{% block data_png %}{{ super() | replace('<img ', described(output, 'image/png'), 1) }}{% endblock %}
{% block data_jpg %}{{ super() | replace('<img ', described(output, 'image/jpeg'), 1) }}{% endblock %}
{% block data_svg %}{{ super() | replace('<img ', described(output, 'image/svg+xml'), 1) }}{% endblock %}
"""
_INDEX = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The lessons, executed</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; }} td, th {{ border-bottom: 1px solid #ccc; padding: .3em .7em; text-align: left;
vertical-align: top; }}</style></head>
<body><main><h1>The lessons, executed</h1>
{table}
{lines}
</main></body></html>
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument(
        "lessons",
        nargs="*",
        metavar="LESSON",
        help="a number such as 01, a name, or a notebook file; all by default",
    )
    parser.add_argument("--grade", action="store_true", help="a wrong or untouched exercise fails its lesson")
    parser.add_argument("--profile", metavar="PROFILE", help=f"how much work: {', '.join(workload.PROFILES)}")
    parser.add_argument("--cell-seconds", type=int, metavar="N", help="the longest that one cell may take, in seconds")


def run(args: argparse.Namespace) -> int:
    """Execute the lessons that `args` names; return 0 if all passed, 1 if not, 130 if it was interrupted."""
    profile = workload.named(args.profile) if args.profile else workload.current()
    grade = args.grade or os.environ.get("ANYGPU_GRADE") == "1"
    end_as_ctrl_c_does()
    return run_lessons(lesson_files.find(args.lessons), profile.name, BUILD, args.cell_seconds, grade)


def end_as_ctrl_c_does() -> None:
    """Let a closed window or a polite kill end a command as Ctrl-C does: a report, and no process left."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.default_int_handler)


def run_lessons(
    paths: Sequence[Path], profile: str, build: Path = BUILD, cell_seconds: int | None = None, grade: bool = False
) -> int:
    """Execute `paths` one after another, whatever becomes of each, and write the results into the folder `build`.

    Returns:
        0 if every lesson passed, 1 if not, 130 after Ctrl-C (the report then holds what was done).
    """
    rows: list[dict[str, Any]] = []
    status = 0
    try:
        for path in paths:
            rows.append(_new_row(path, profile))
            _run_lesson(path, rows[-1], build, cell_seconds, grade)
            rows[-1]["finished"] = _now()
            print(_line(rows[-1]), flush=True)
            status |= rows[-1]["verdict"] != "passed"
    except KeyboardInterrupt:
        rows[-1].update(verdict="interrupted", where="", message="Stopped before its end.", finished=_now())
        (build / "pages" / f"{rows[-1]['lesson']}.html").unlink(missing_ok=True)  # of an earlier run
        print(_line(rows[-1]), flush=True)
        status = 130
    finally:
        _report(rows, build)
        passed = sum(row["verdict"] == "passed" for row in rows)
        print(f"{passed} of {len(rows)} passed.{_caution(rows)}")
        print(f"Report: {short(build / 'report.md')}  Pages: {short(build / 'index.html')}")
    return int(status)


def _caution(rows: list[dict[str, Any]]) -> str:
    """What a teacher must know beside the verdicts."""
    replaced = [row["lesson"][:2] for row in rows if row["dataset"].startswith("digits stand-in")]
    return f" Not on MNIST but on the stand-in: {', '.join(replaced)}." if replaced else ""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _name(path: Path) -> str:
    """The lesson's name; a learner's copy of a shipped lesson carries its folder's name too."""
    copied = path.parent != lesson_files.FOLDER and (lesson_files.FOLDER / path.name).exists()
    return f"{path.parent.name}-{path.stem}" if copied else path.stem


def _new_row(path: Path, profile: str) -> dict[str, Any]:
    empty = dict.fromkeys(("where", "message", "device", "dataset", "finished"), "")
    return {"lesson": _name(path), "profile": profile, "verdict": "", "seconds": 0.0, "peak_mib": 0} | empty


def _run_lesson(path: Path, row: dict[str, Any], build: Path, cell_seconds: int | None, grade: bool) -> None:
    """Execute one lesson, fill in its row, and write its notebook and its page."""
    try:
        notebook = lesson_files.read(path)
    except WorkshopError as error:
        row.update(verdict="failed", message=str(error))
        return
    with _progress(row["lesson"], len(notebook.cells)) as step:
        outcome = execute.execute(notebook, path.parent, row["profile"], grade, cell_seconds, progress=step)
    row.update(seconds=round(outcome.seconds, 1), peak_mib=round(outcome.peak_bytes / 2**20), verdict="passed")
    row.update({key: value for key, value in lesson_files.facts(notebook).items() if key in ("device", "dataset")})
    if failure := outcome.failure:
        row["verdict"] = "timed out" if failure.kind == "timed out" else "failed"
        row["where"] = "" if failure.cell is None else lesson_files.label(notebook, failure.cell)
        row["message"] = failure.message
    elif noisy := execute.loud(notebook):
        row["message"] = "Wrote to standard error: " + ", ".join(lesson_files.label(notebook, cell) for cell in noisy)
    import nbformat

    write(build / "notebooks" / f"{row['lesson']}.ipynb", nbformat.writes(notebook) + "\n")
    write(build / "pages" / f"{row['lesson']}.html", page(notebook, row["lesson"]))


@contextlib.contextmanager
def _progress(name: str, cells: int) -> Iterator[Any]:
    """Show a bar that counts the cells of a lesson, where somebody looks on."""
    from tqdm import tqdm

    with tqdm(total=cells, desc=name, unit="cell", leave=False, disable=None, file=sys.stderr) as bar:
        yield lambda index: bar.update(index + 1 - bar.n)


def page(notebook: NotebookNode, name: str) -> str:
    """Return a notebook as an HTML page that needs no network; its links to other lessons lead to their pages."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(raw_template=_TEMPLATE)
    exporter.log.setLevel("ERROR")
    exporter.environment.globals["described"] = _described
    html, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": name}})
    return re.sub(r'href="(\d\d-[a-z0-9-]+)\.ipynb"', r'href="\1.html"', html)


def _described(output: NotebookNode, kind: str) -> str:
    from markupsafe import escape

    about = output.metadata.get(kind, {}).get("alt", "")
    return f'<img alt="{escape(about)}" ' if about else "<img "


def write(path: Path, text: str) -> None:
    """Write a text file as a whole or not at all: a reader never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + f".{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def short(path: Path) -> str:
    """Return a path relative to the project where it is inside, for messages."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _line(row: dict[str, Any]) -> str:
    said = f"{row['lesson']:28} {row['verdict']:8} {row['seconds']:6.1f} s {row['peak_mib']:5d} MiB"
    said += f"\n    on {row['device']}" if row["device"] else ""
    said += f", {row['dataset']}" if row["dataset"] else ""
    return said + "".join(f"\n    {line}" for key in ("where", "message") for line in row[key].splitlines())


def _report(rows: list[dict[str, Any]], build: Path) -> None:
    """Write report.json, report.md and index.html; lessons that this run left out keep their earlier row."""
    done = {row["lesson"] for row in rows}
    rows = sorted(
        [*rows, *(row for row in _earlier(build) if row["lesson"] not in done)], key=lambda row: row["lesson"]
    )
    report = {"machine": _machine(), "versions": _versions(), "lessons": rows}
    write(build / "report.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    write(
        build / "report.md", "# The lessons, executed\n\n" + _table(rows, "pipe") + "\n\n" + _lines(report, "- ") + "\n"
    )
    write(build / "index.html", _INDEX.format(table=_table(rows, "unsafehtml", build), lines=_lines(report, "<p>")))


def _earlier(build: Path) -> list[dict[str, Any]]:
    try:
        return [
            dict(_new_row(Path(row["lesson"]), ""), **row)
            for row in json.loads((build / "report.json").read_text())["lessons"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _table(rows: list[dict[str, Any]], style: str, build: Path | None = None) -> str:
    from html import escape

    from tabulate import tabulate

    def cell(row: dict[str, Any], key: str) -> str:
        said = escape(str(row.get(key, ""))) if build else str(row.get(key, "")).replace("|", "\\|")
        if build and key == "lesson" and (build / "pages" / f"{said}.html").exists():
            return f'<a href="pages/{said}.html">{said}</a>'
        return said.replace("\n", "<br>")

    keys = ("lesson", "verdict", "where", "message", "seconds", "peak_mib", "device", "dataset", "profile", "finished")
    headers = [{"where": "cell", "peak_mib": "peak MiB", "finished": "finished (UTC)"}.get(key, key) for key in keys]
    table = [[cell(row, key) for key in keys] for row in rows]
    return tabulate(table, headers, tablefmt=style, disable_numparse=True)


def _lines(report: dict[str, Any], start: str) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    said = [
        "Machine: " + ", ".join(f"{value}" for value in report["machine"].values()) + ".",
        f"Versions: {versions}.",
        f"Peak memory is the resident memory of the kernel and its children, sampled every {execute.SAMPLE_SECONDS} s: "
        "memory that they share is counted once for each, and a shorter peak can be missed.",
        "Seconds run from the start of the kernel to its end. Machine and versions are those of the latest run.",
        "Passed means that every cell ran. A wrong or untouched exercise fails its lesson only under `run --grade`.",
    ]
    return "\n".join(start + line for line in said)


def _machine() -> dict[str, str]:
    import psutil

    memory = f"{psutil.virtual_memory().total / 2**30:.1f} GiB of memory"
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": cpu_name(),
        "cores": f"{psutil.cpu_count()} logical cores",
        "memory": memory,
    }


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
