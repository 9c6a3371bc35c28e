"""Write what a teacher hands out and grades: the workshop without solutions, and the lessons as a course of nbgrader's.

The exercises and checks carry nbgrader's metadata, schema 3:
https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html. The command itself needs no nbgrader.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.commands.files import short, write
from helpers.commands.run import BUILD
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from nbformat import NotebookNode

BUNDLE = BUILD / "classroom"
STUDENTS, COURSE = "students", "course"
# What a student needs. Not the tests, whose wrong answers are solutions with one change, nor the teacher's pages.
PARTS = (
    *("LICENSE", "workshop.py", "pyproject.toml", "environment.yml", "environment-opencl.yml"),
    *("requirements", "helpers", "data", "docs"),
)
LEFT_OUT = ("__pycache__", ".ipynb_checkpoints", "models", "teaching.md", "teaching")
POINTS = "points-"  # a check with the tag points-2 gives two points

CONFIG = '''\
"""How nbgrader grades the lessons of the Any GPU workshop: it reads this file when it is called in this folder."""

import os

c = get_config()  # noqa: F821  (nbgrader brings it)
c.CourseDirectory.course_id = "any-gpu-workshop"

# These lessons come without solutions. nbgrader would replace the starters, too, by `raise NotImplementedError()`.
c.ClearSolutions.enabled = False

# Seconds. A cell that takes longer, such as an endless loop, is stopped and gets 0 points; the next cells still run.
c.Execute.timeout = 120

# Kernels are encrypted: else other accounts of the machine can read what they print.
c.KernelManager.transport_encryption = "auto"

# The lessons do the least work: no exercise depends on it.
os.environ.setdefault("ANYGPU_PROFILE", "preview")
'''

README = """\
# The Any GPU workshop, for a class

Two folders, with {lessons}:

- `{students}`: for each student. The workshop without its solutions. Zip the folder, or put it where all can copy it.
- `{course}`: for you. A course folder of nbgrader's, which runs what students send back, and gives points.

The solutions stand in the workshop from which this was made. Whoever knows its address finds them there, and the checks
in `helpers` compare with right answers: points are for learning, not for an exam.

## How a student starts

Send this with the folder:

> Open a terminal in the folder `{students}`, and type `python3 workshop.py lab` (on Windows `py workshop.py lab`). The
> first call downloads 0.6 GB. Work in the lessons in `notebooks`. Below each exercise, a check says if it is right.
> Save, and send me the lesson's file. Keep its name.

## How a teacher grades

nbgrader goes into an environment of its own, beside the lessons' packages. In the folder of the *workshop*, on Linux or
macOS (on Windows in WSL2), once:

```sh
{install}
```

Then in the folder `{course}`, once for each lesson:

```sh
. WORKSHOP/.classroom/bin/activate
nbgrader generate_assignment {example}
```

WORKSHOP stands for the path of the workshop's folder. Put what a student sent, here `ann.ipynb`, into a folder with the
student's name and the lesson's, then let nbgrader run it:

```sh
mkdir -p submitted/ann/{example}
cp ann.ipynb submitted/ann/{example}/{example}.ipynb
nbgrader autograde {example}
nbgrader export
nbgrader generate_feedback {example}
```

`grades.csv` then has the points, one for each exercise. `feedback/ann/` has a page for Ann with what each check said.
`autograde` leaves out who was graded before; `--student ann --force` grades Ann again. Its lines with `SAWarning` are
about its own database. The guide for teachers, `docs/teaching.md` in the workshop, says what each submission gets.

*A student's notebook is a program, and runs with your rights.* Use an account or a machine that has nothing to lose.
"""
STUDENTS_README = """\
# The Any GPU workshop

Notebooks for learning GPU computing hands-on, with whatever accelerator you have, or none. Open a terminal in this
folder, and type `python3 workshop.py lab` (on Windows `py workshop.py lab`).

## Your work

Work in the lessons in `notebooks`. Below each exercise a check says if it is right, as often as you like. Save, and
send your teacher the lesson's file. Keep its name. Your teacher has the solutions.

{sections}
## Licence

Code: MIT. Text and figures: CC BY 4.0. See [LICENSE](LICENSE).
"""
SECTIONS = ("Start", "Lessons", "Which packages")  # of the workshop's README
INSTALL = """\
python3 workshop.py doctor --quick
.venv/bin/uv venv --python .venv/bin/python .classroom
.venv/bin/uv pip install --python .classroom --require-hashes -r requirements/cpu.txt -r requirements/classroom.txt
.venv/bin/uv pip install --python .classroom --no-deps --editable ."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    which = "a number such as 01, or a name; all by default"
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help=which)
    where = "a folder that is not there yet, or is empty; build/classroom by default"
    parser.add_argument("--into", type=Path, default=BUNDLE, metavar="FOLDER", help=where)


def run(args: argparse.Namespace) -> int:
    """Write the bundle and return 0."""
    paths = lesson_files.find(args.lessons)
    if not args.lessons:
        paths = lesson_files.originals(paths)
    write_bundle(paths, args.into.resolve())
    print(f"{short(args.into.resolve())}: {_count(paths)}, without solutions.")
    print(f"For each student: the folder {STUDENTS}. For nbgrader: the folder {COURSE}. How to go on: README.md.")
    return 0


def write_bundle(paths: Iterable[Path], folder: Path) -> None:
    """Write the student's folder and nbgrader's for the lessons `paths` into `folder`, as a whole or not at all.

    Raises:
        WorkshopError: `folder` holds something, or lies inside of what is copied, or a lesson cannot be read.
    """
    import nbformat

    _check(folder)
    written = {path.stem: nbformat.writes(without_solutions(lesson_files.read(path))) + "\n" for path in paths}
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
        links = {f"notebooks/{stem}.ipynb" for stem in written}
        write(students / "README.md", students_readme(lambda file: file in links or (students / file).is_file()))
        for stem, text in written.items():
            write(students / "notebooks" / f"{stem}.ipynb", text)
            write(course / "source" / stem / f"{stem}.ipynb", text)
        write(course / "nbgrader_config.py", CONFIG)
        words = {"students": STUDENTS, "course": COURSE, "install": INSTALL, "lessons": _count(written)}
        write(bundle / "README.md", README.format(example=next(iter(written)), **words))
        if folder.exists():
            folder.rmdir()  # it is empty
        bundle.replace(folder)


def students_readme(is_there: Callable[[str], bool]) -> str:
    """Return the README of the students' folder: what is theirs of the workshop's, without links that lead nowhere.

    Args:
        is_there: says of a file, by its path from the folder on, whether a student gets it.
    """

    def link(found: re.Match[str]) -> str:
        file = found[2].partition("#")[0]
        return found[0] if is_there(file) or re.match(r"[a-z]+:", file) else found[1]

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)}
    parts["Lessons"] = re.sub(r"^(?!\||Lessons).+\n", "", parts["Lessons"], flags=re.MULTILINE)  # the table alone
    parts["Start"] = re.sub(r", and this folder: .*", ".", parts["Start"])  # they have it
    sections = "".join(f"## {parts[name].partition('### ')[0]}" for name in SECTIONS)
    lost = re.compile(r"^\| \d\d \| \[.*\]\((.*?)\).*\n", re.MULTILINE)
    sections = lost.sub(lambda row: row[0] if is_there(row[1]) else "", sections)  # a lesson that is not handed out
    return STUDENTS_README.format(sections=re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, sections))


def _count(lessons: Collection[object]) -> str:
    return "one lesson" if len(lessons) == 1 else f"{len(lessons)} lessons"


def _check(folder: Path) -> None:
    """Raise WorkshopError if a bundle cannot be written into `folder`; nothing is ever deleted there."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise WorkshopError(
            f"{short(folder)} is there already, and holds something.",
            "It may be an earlier bundle with your students' work and grades, so nothing in it is replaced.",
            "Name another folder, for example: --into build/classroom-2   (or move this one away)",
        )
    if inside := [name for name in (*PARTS, "notebooks") if folder.is_relative_to(ROOT / name)]:
        raise WorkshopError(
            f"{short(folder)} lies inside of {inside[0]}, which belongs to the workshop.",
            "The bundle would become a part of the workshop, and of the next bundle.",
            "Name a folder elsewhere with --into, or leave it out: the bundle then comes into build/classroom.",
        )


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """Return the lesson as it is handed out: no solutions, no outputs, exercises and checks marked for nbgrader.

    Raises:
        WorkshopError: an exercise is not followed by its check and its solution.
    """
    from nbconvert.preprocessors import ClearOutputPreprocessor, TagRemovePreprocessor

    for one in lesson_files.exercises(notebook):
        answer, check = notebook.cells[one.cell], notebook.cells[one.check]
        answer.metadata["nbgrader"] = _metadata(f"exercise-{one.number}", solution=True)
        points = [int(tag.removeprefix(POINTS)) for tag in lesson_files.tags(check) if tag.startswith(POINTS)]
        check.metadata["nbgrader"] = _metadata(f"check-{one.number}", grade=True, locked=True, points=sum(points) or 1)
    for step in (TagRemovePreprocessor(remove_cell_tags={"solution"}), ClearOutputPreprocessor()):
        notebook, _ = step.preprocess(notebook, {})
    return notebook


def _metadata(grade_id: str, **more: object) -> dict[str, Any]:
    """Return nbgrader's metadata of a cell: neither graded nor locked nor the student's, but for what `more` says."""
    return {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False, "locked": False,
            "task": False, **more}  # fmt: skip
