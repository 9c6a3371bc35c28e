"""Write what a teacher hands out and grades: the workshop without solutions, and the lessons as a course of nbgrader's.

The exercises and checks carry nbgrader's metadata, schema 3:
https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html. The command itself needs no nbgrader.
"""

from __future__ import annotations

import argparse
import codecs
import collections
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import ROOT
from helpers.commands import address, lesson_files
from helpers.commands.files import find_visible, short, write
from helpers.commands.run import BUILD
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from nbformat import NotebookNode

BUNDLE = BUILD / "classroom"
STUDENTS, COURSE = "students", "course"
# What a student needs. Neither the teacher's pages nor what holds solutions: tests and prepared answers.
PARTS = (
    *("LICENSE", "LICENSE-docs", "workshop.py", "pyproject.toml", "environment.yml", "environment-opencl.yml"),
    *("requirements", "helpers", "data", "docs"),
)
LEFT_OUT = ("__pycache__", ".ipynb_checkpoints", "models", "teaching.md", "teaching", "write-a-lesson.md", "release.md")
LEFT_OUT += ("lesson_*.toml", "cache")  # data/cache holds MNIST, which the workshop does not hand on
# A link to another page: its words, the file. No code of a lesson looks like it.
LINK = re.compile(r"\[([^][]+)\]\((?![a-z]+:)([^()\s#]+\.(?:md|ipynb|html))[^()\s]*\)")

NO_REPORT = "no report"  # in the column of verdicts: the file holds something else, such as an error message
PERHAPS, LIMITED, ABLE = "can perhaps", "can run here, with limits", "can "
KINDS = ("cannot", NO_REPORT, PERHAPS, LIMITED, ABLE)  # how a verdict begins; those who need help most come first
TEXTS = ROOT / "classroom" / "bundle"  # what the bundle's own pages say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    which = "a number such as 01, or a name; all by default"
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help=which)
    parser.add_argument(
        "--reports", metavar="FOLDER", type=Path, help="instead: a table of the learners' doctor reports in this folder"
    )


def run(args: argparse.Namespace) -> int:
    """Write the bundle, or print a table of reports, and return 0."""
    if args.reports:
        print(summarize_reports(args.reports))
        return 0
    paths = lesson_files.find(args.lessons)
    write_bundle(paths, BUNDLE)
    print(f"{short(BUNDLE)}: {_count_lessons(paths)}, without solutions.")
    print(f"Give each student {STUDENTS}.zip. The folder {COURSE} is for nbgrader. README.md says how to go on.")
    return 0


def summarize_reports(folder: Path) -> str:
    """Return a table of the texts that `doctor --report` wrote: learner, verdict, what is wrong, GPUs that compute.

    The learners who need help come first. A text that holds no report has a row, too: its learner needs help. Below are
    how many of the workshops run, and the names of other files, such as photos.

    Raises:
        WorkshopError: there is no such folder, or no report in it.
    """
    from tabulate import tabulate

    if not folder.is_dir():
        raise WorkshopError(
            f"There is no folder {folder}.",
            "A path begins at the folder of the terminal.",
            "Put the learners' reports into one folder, and name that folder.",
        )
    files = find_visible(folder, "*")  # some sites give each learner a folder
    texts = [path for path in files if path.suffix.lower() == ".txt"]
    rows = sorted((_read_report(path, folder) for path in texts), key=lambda row: _find_kind(row[1]))
    counts = collections.Counter(KINDS[_find_kind(verdict)] for _, verdict, _, _ in rows)
    if counts[NO_REPORT] == len(rows):
        raise WorkshopError(
            f"{short(folder)} contains no report.",
            "A report is a .txt file that `python3 workshop.py doctor --report report-NAME.txt` writes.",
            "Put the learners' reports into one folder, and name that folder.",
        )
    headers = ("learner", "verdict", "what is wrong", "GPU that computes")
    table = tabulate(rows, headers, tablefmt="grid", maxcolwidths=[None, 26, 44, 30])
    limited = f", with limits on {counts[LIMITED]} more" if counts[LIMITED] else ""
    perhaps = f", perhaps on {counts[PERHAPS]} more" if counts[PERHAPS] else ""
    summary = f"The workshop can run on {counts[ABLE]} of {len(rows) - counts[NO_REPORT]} computers{limited}{perhaps}."
    others = [path.relative_to(folder).as_posix() for path in files if path not in texts]
    look = f"\nLook at these files yourself: {', '.join(others)}." if others else ""
    return f"{table}\n{summary}{look}"


def _read_report(path: Path, folder: Path) -> tuple[str, str, str, str]:
    """Return the row of the file `path` in the table of the reports in `folder`."""
    text = _decode(path.read_bytes())
    learner = path.relative_to(folder).with_name(path.stem.removeprefix("report-")).as_posix()
    verdict = re.search(r"^The workshop (can[^.]*)\.$", text, re.MULTILINE)  # a mail may have broken its line
    if not verdict:
        return learner, NO_REPORT, f"Read {path.name}: it has no verdict.", ""
    severities = r"(?:STOPS|NOT KNOWN|LIMITS)[A-Z ]*"
    problems = re.findall(rf"^{severities}: (.*?)(?=\n  |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    gpus = re.findall(r"^\s+(.*\bGPU\)): right", text, re.MULTILINE)
    return learner, " ".join(verdict[1].split()), "\n".join(problems), "\n".join(gpus) or "none"


def _find_kind(verdict: str) -> int:
    """Return the place in KINDS of the kind of a verdict."""
    return next(place for place, begin in enumerate(KINDS) if verdict.startswith(begin))


def _decode(content: bytes) -> str:
    """Return a report's text, without the margin of a mail that quotes or indents it.

    PowerShell and Notepad may have saved it as UTF-16, which then begins with its mark.
    """
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")
    quoted = re.search(r"^([> \t]*)The workshop can", text, re.MULTILINE)
    margin = quoted[1] if quoted else ""
    # An empty line of a quotation has lost the space at its end.
    return "\n".join(line.ljust(len(margin)).removeprefix(margin).rstrip() for line in text.splitlines())


def write_bundle(paths: Iterable[Path], folder: Path) -> None:
    """Write the student's folder and nbgrader's for the lessons `paths` into `folder`, as a whole or not at all.

    Raises:
        WorkshopError: `folder` is there already, or a lesson cannot be read.
    """
    import nbformat

    if folder.exists():
        raise WorkshopError(
            f"{short(folder)} already exists.",
            "It may be an earlier bundle with your students' work and grades, so nothing in it is replaced.",
            "Rename it or move it away, then repeat the command.",
        )
    lessons = {path.stem: without_solutions(lesson_files.read(path)) for path in paths}
    titles = {stem: lesson_files.title(lesson) for stem, lesson in lessons.items()}
    links = [f"- [{title}](notebooks/{stem}.ipynb)" for stem, title in titles.items()]
    written = {stem: nbformat.writes(lesson) + "\n" for stem, lesson in lessons.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="workshop-classroom-", dir=folder.parent) as scratch:
        bundle = Path(scratch) / "bundle"
        students, course = bundle / STUDENTS, bundle / COURSE
        for part in (ROOT / name for name in PARTS):
            if part.is_dir():
                shutil.copytree(part, students / part.name, ignore=shutil.ignore_patterns(*LEFT_OUT))
            elif part.exists():
                students.mkdir(parents=True, exist_ok=True)
                shutil.copy(part, students)
        write(students / "README.md", _read_text("students.md").replace("{lessons}", "\n".join(links)))
        for stem, text in written.items():
            write(students / "notebooks" / f"{stem}.ipynb", text)
        for place in ("docs/*.md", "notebooks/*.ipynb", "*/README.md"):
            for page in students.glob(place):
                # Students have the folder that the pages tell other readers to get.
                write(page, address.FOLDER.sub("", _without_dead_links(page)))
        for stem, text in written.items():
            write(course / "source" / stem / f"{stem}.ipynb", text)
        shutil.copy(TEXTS / "nbgrader_config.py", course)
        shutil.make_archive(str(students), "zip", bundle, STUDENTS)
        readme = _read_text("README.md").replace("{lessons}", _count_lessons(written))
        write(bundle / "README.md", readme.replace("{example}", next(iter(written))))
        bundle.replace(folder)


def _without_dead_links(page: Path) -> str:
    """Return a page's text, or a notebook's, with only the words of links to files that students do not get."""
    text = page.read_text(encoding="utf-8")
    return LINK.sub(lambda found: found[0] if (page.parent / found[2]).exists() else found[1], text)


def _read_text(name: str) -> str:
    return (TEXTS / name).read_text(encoding="utf-8")


def _count_lessons(lessons: Collection[object]) -> str:
    return "one lesson" if len(lessons) == 1 else f"{len(lessons)} lessons"


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """Return the lesson for students: no solutions, no outputs, exercises and checks marked for nbgrader.

    Raises:
        WorkshopError: an exercise is not followed by its check and its solution.
    """
    for exercise in lesson_files.exercises(notebook):
        answer, check = notebook.cells[exercise.cell], notebook.cells[exercise.check]
        answer.metadata["nbgrader"] = _make_metadata(f"exercise-{exercise.number}", solution=True)
        check.metadata["nbgrader"] = _make_metadata(f"check-{exercise.number}", grade=True, locked=True, points=1)
    notebook.cells = [cell for cell in notebook.cells if "solution" not in lesson_files.tags(cell)]
    lesson_files.clear(notebook)
    return notebook


def _make_metadata(grade_id: str, **more: object) -> dict[str, Any]:
    """Return nbgrader's metadata of a cell: ungraded, unlocked, not the student's, except for what `more` says."""
    plain = dict.fromkeys(("grade", "solution", "locked", "task"), False)
    return {"schema_version": 3, "grade_id": grade_id, **plain, **more}
