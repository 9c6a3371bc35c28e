"""Updates by nbgitpuller: what becomes of a learner's work when the teacher changes the lessons, in real repositories.

A notebook is one file of JSON, and git merges its lines. The tests say what comes of it for all lessons at once: those
that the learner ran (all outputs differ) and answered, against those that the teacher changed and stored anew.
"""

import random
import re
import shutil
import subprocess

import nbformat
import pytest
import room
from nbformat import v4

from helpers import ROOT
from helpers.commands import lesson_files

pytestmark = pytest.mark.slow  # the first test builds the environment of a room

LESSONS = [path.name for path in lesson_files.every()]
ANSWER, UPDATE = "# the learner's answer", "the teacher's update"


class Course:
    """The teacher's repository with all lessons, and a learner's copy that nbgitpuller made of it."""

    def __init__(self, folder):
        self.teacher, self.learner = folder / "teacher", folder / "learner"
        (self.teacher / "notebooks").mkdir(parents=True)
        for name in LESSONS:
            shutil.copy(ROOT / "notebooks" / name, self.teacher / "notebooks")
        self.git("init", "--quiet", "--initial-branch=main")
        self.publish()
        self.pull()

    def git(self, *arguments):
        author = ("-c", "user.name=Teacher", "-c", "user.email=teacher@example.org")
        subprocess.run(["git", "-C", self.teacher, *author, *arguments], check=True)

    def publish(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=Update")

    def pull(self):
        """Do what a click on the link does, and return what nbgitpuller says."""
        command = [room.programs() / "gitpuller", f"file://{self.teacher}", "main", self.learner]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def change(self, side, *changes):
        """Change all lessons of one side, as Jupyter writes them."""
        for name in LESSONS:
            path = getattr(self, side) / "notebooks" / name
            notebook = nbformat.read(path, 4)
            for one in changes:
                one(notebook)
            nbformat.write(notebook, path)

    def lessons(self):
        """Return the learner's lessons; one that is no valid notebook fails the test."""
        found = [nbformat.read(self.learner / "notebooks" / name, 4) for name in LESSONS]
        for notebook in found:
            nbformat.validate(notebook)
            assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
        return found


@pytest.fixture(scope="module")
def pulled(tmp_path_factory):
    """A course that was pulled once."""
    if not shutil.which("git"):
        pytest.skip("no git here")
    folder = tmp_path_factory.mktemp("course")
    Course(folder)
    return folder


@pytest.fixture
def course(pulled, tmp_path):
    """A copy of it for each test; the learner's clone goes on to follow the copy's teacher."""
    shutil.copytree(pulled, tmp_path / "course")
    copy = Course.__new__(Course)
    copy.teacher, copy.learner = tmp_path / "course/teacher", tmp_path / "course/learner"
    url = f"file://{copy.teacher}"
    subprocess.run(["git", "-C", copy.learner, "remote", "set-url", "origin", url], check=True)
    return copy


def exercise(notebook):
    return notebook.cells[lesson_files.exercises(notebook)[0].cell]


def answer(notebook):
    exercise(notebook).source += f"\n{ANSWER}"


def outputs(seed):
    """Return a change as by a run on another machine: other numbers and figures, here and there one output more."""

    def run(notebook):
        rnd = random.Random(seed)
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            for output in cell.outputs:
                if "text" in output:
                    output.text = re.sub(r"\d", lambda _: str(rnd.randint(0, 9)), output.text)
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = output.data["image/png"].replace("A", "BC"[seed % 2])
            if rnd.random() < 0.3:
                cell.outputs.append(v4.new_output("stream", text=f"of run {seed}\n"))

    return run


def in_markdown(notebook):
    cell = [cell for cell in notebook.cells if cell.cell_type == "markdown"][4]
    cell.source += f"\n\nThis is {UPDATE}."


def in_code(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    cell = [cell for cell in cells if cell != exercise(notebook)][3]
    cell.source = f"# {UPDATE}\n{cell.source}"


def in_a_new_cell(notebook):
    notebook.cells.insert(5, v4.new_markdown_cell(UPDATE, id="from-teacher"))


def in_the_same_cell(notebook):
    exercise(notebook).source += f"\n# {UPDATE}"


def has(notebook, text):
    return any(text in cell.source for cell in notebook.cells)


def outputs_of(notebook):
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("update", [in_markdown, in_code, in_a_new_cell])
def test_an_update_at_another_cell_arrives_and_the_learners_work_stays(course, update):
    course.change("learner", outputs(1), answer)
    mine = course.lessons()
    course.change("teacher", update)
    course.publish()
    course.pull()
    merged = course.lessons()
    assert all(has(notebook, ANSWER) and has(notebook, UPDATE) for notebook in merged)
    assert [outputs_of(notebook) for notebook in merged] == [outputs_of(notebook) for notebook in mine]


def test_outputs_that_the_teacher_stores_anew_mix_with_the_learners(course):
    course.change("learner", outputs(1), answer)
    mine = course.lessons()
    course.change("teacher", in_markdown, outputs(2))
    course.publish()
    course.pull()
    merged = course.lessons()
    assert all(has(notebook, ANSWER) and has(notebook, UPDATE) for notebook in merged)
    theirs = [nbformat.read(course.teacher / "notebooks" / name, 4) for name in LESSONS]
    for one in (mine, theirs):
        assert [outputs_of(notebook) for notebook in merged] != [outputs_of(notebook) for notebook in one]


def test_in_a_conflict_the_learners_lines_win_and_the_update_of_that_cell_is_dropped(course):
    course.change("learner", answer)
    course.change("teacher", in_the_same_cell, in_markdown)
    course.publish()
    said = course.pull()
    for notebook in course.lessons():
        assert exercise(notebook).source.endswith(ANSWER) and UPDATE not in exercise(notebook).source
        assert has(notebook, UPDATE), "the update elsewhere in the same lesson is dropped, too"
    assert "CONFLICT" not in said  # nobody is told


@pytest.mark.parametrize("kind", ["markdown", "code"])
def test_where_both_insert_a_cell_the_learners_stays(course, kind):
    """The teacher's is a cell of Markdown: dropped beside one of the same kind, which looks like a change of it."""
    new = getattr(v4, f"new_{kind}_cell")
    course.change("learner", lambda notebook: notebook.cells.insert(5, new(ANSWER, id="from-learner")))
    course.change("teacher", in_a_new_cell)
    course.publish()
    course.pull()
    merged = course.lessons()
    assert all(has(notebook, ANSWER) for notebook in merged)
    assert {has(notebook, UPDATE) for notebook in merged} == {kind == "code"}


def test_a_learners_copy_is_never_touched_and_a_new_file_of_the_same_name_moves_it_aside(course):
    mine, theirs = course.learner / "notebooks/00-check-your-setup-ann.ipynb", course.teacher / "notebooks"
    shutil.copy(course.learner / "notebooks" / LESSONS[0], mine)
    work = mine.read_bytes()
    course.change("teacher", in_markdown)
    course.publish()
    course.pull()
    assert mine.read_bytes() == work
    shutil.copy(theirs / LESSONS[1], theirs / mine.name)
    course.publish()
    said = course.pull()
    (moved,) = mine.parent.glob("00-check-your-setup-ann__*.ipynb")
    assert moved.read_bytes() == work and mine.read_bytes() == (theirs / LESSONS[1]).read_bytes()
    assert "to avoid conflict with upstream" in said


def test_a_deleted_lesson_comes_back_fresh_and_a_lesson_that_the_teacher_deletes_stays_if_it_was_changed(course):
    first, second, third = (course.learner / "notebooks" / name for name in LESSONS[:3])
    first.unlink()
    second.write_text(second.read_text(encoding="utf-8").replace("OpenCL", "OpenCL, my words"), encoding="utf-8")
    mine = second.read_bytes()
    for name in LESSONS[1:3]:
        (course.teacher / "notebooks" / name).unlink()
    course.publish()
    course.pull()
    assert first.read_bytes() == (course.teacher / "notebooks" / LESSONS[0]).read_bytes()
    assert second.read_bytes() == mine and not third.exists()


def test_a_pull_without_news_changes_nothing(course):
    course.change("learner", outputs(1), answer)
    mine = course.lessons()
    course.pull()
    course.pull()
    assert course.lessons() == mine
