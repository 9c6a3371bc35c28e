"""A class's bundle: lessons without solutions, what a student needs to run them, and nbgrader's verdict on answers."""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import psutil
import pytest
import room
import sample_lesson
from test_exercises import prepared

from helpers import ROOT
from helpers.commands import classroom, execute, lesson_files
from helpers.errors import WorkshopError
from helpers.maintain import docs

LESSONS = lesson_files.every()
BY_NUMBER = {path.stem[:2]: path for path in LESSONS}
# With --all nbgrader grades these students' answers, each of which runs the whole lesson.
GRADED = {"01": ("good", "wrong", "empty", "endless"), "07": ("good", "empty")}
ENDLESS = "while True:\n    pass"
SECONDS = 60  # the longest that one cell may take while nbgrader grades an endless answer


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a class") / "bundle"
    classroom.write_bundle(LESSONS, folder)
    return folder


def codes(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def lines(text):
    return {line.strip() for line in text.splitlines() if line.strip()}


# ------------------------------------------------------------------------------------------------------- the lessons


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_no_solution_is_left_in_a_lesson_and_all_else_is_there(bundle, lesson):
    original = lesson_files.read(lesson)
    shown = [cell for cell in original.cells if "solution" not in lesson_files.tags(cell)]
    own_text = lines("\n".join(cell.source for cell in shown))
    files = [bundle / "students" / "notebooks" / lesson.name, bundle / "course" / "source" / lesson.stem / lesson.name]
    assert len({file.read_bytes() for file in files}) == 1
    made = nbformat.read(files[0], as_version=4)
    nbformat.validate(made)
    assert [cell.source for cell in made.cells] == [cell.source for cell in shown]
    assert not [cell.id for cell in made.cells if cell.get("outputs") or cell.get("execution_count")]
    left = lines("\n".join(cell.source for cell in made.cells) + "\n" + json.dumps(made.cells).replace("\\n", "\n"))
    for one in lesson_files.exercises(original):
        given_away = lines(one.solution) & own_text
        assert lines(one.solution) - given_away, f"exercise {one.number} is solved by what stands elsewhere"
        assert not (lines(one.solution) - given_away) & left, one.number


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_exercises_are_the_students_and_checks_are_graded_and_locked(bundle, lesson):
    made = nbformat.read(bundle / "students" / "notebooks" / lesson.name, as_version=4)
    marked = [(cell, cell.metadata.nbgrader) for cell in made.cells if "nbgrader" in cell.metadata]
    count = len(lesson_files.exercises(lesson_files.read(lesson)))
    wanted = [name for number in range(1, count + 1) for name in (f"exercise-{number}", f"check-{number}")]
    assert [mark.grade_id for _, mark in marked] == wanted
    for cell, mark in marked:
        check = mark.grade_id.startswith("check")
        assert lesson_files.tags(cell) == ["check" if check else "exercise"]
        assert (mark.schema_version, mark.grade, mark.locked, mark.solution) == (3, check, check, not check)
        assert mark.get("points") == (1 if check else None)


def test_a_lesson_says_by_a_tag_that_a_check_gives_more_points():
    cells = sample_lesson.cells()
    next(cell for cell in cells if "check" in lesson_files.tags(cell)).metadata["tags"].append("points-3")
    made = classroom.without_solutions(sample_lesson.notebook(cells))
    points = [cell.metadata.nbgrader.points for cell in made.cells if "check" in lesson_files.tags(cell)]
    assert points == [3, 1]


def test_a_solution_in_a_cell_without_its_tag_is_refused():
    cells = sample_lesson.cells()
    solution = next(cell for cell in cells if "solution" in lesson_files.tags(cell))
    solution.metadata["tags"] = []
    with pytest.raises(WorkshopError, match="Exercise 1 is not complete"):
        classroom.without_solutions(sample_lesson.notebook(cells))


@pytest.mark.slow
@pytest.mark.parametrize("number", BY_NUMBER)
def test_a_lesson_of_the_bundle_runs_with_the_bundles_helpers_alone(bundle, number):
    students = bundle / "students"
    notebook = lesson_files.read(students / "notebooks" / BY_NUMBER[number].name)
    where = nbformat.v4.new_code_cell("import helpers\nprint(helpers.__file__)")
    notebook.cells.append(where)
    outcome = execute.execute(notebook, students / "notebooks", "preview", variables={"PYTHONPATH": str(students)})
    assert outcome.failure is None
    assert execute.text(where).strip() == str(students / "helpers" / "__init__.py")


# ------------------------------------------------------------------------------------------------------- the command


def test_a_student_gets_no_tests_and_no_teachers_pages_and_every_link_of_a_lesson_leads_somewhere(bundle):
    students = bundle / "students"
    names = {path.relative_to(students).parts[0] for path in students.rglob("*")}
    assert names == {*classroom.PARTS, "notebooks", "README.md"}
    assert not [path for path in students.rglob("*") if "teaching" in path.name or path.name == "__pycache__"]
    assert sorted(path.name for path in bundle.iterdir()) == ["README.md", "course", "students"]
    for lesson in LESSONS:
        text = (students / "notebooks" / lesson.name).read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:)([^)#\s\\]+)[^)]*\)", text):
            if link.startswith("../") or link.endswith(".ipynb"):
                assert (students / "notebooks" / link).exists(), (lesson.name, link)


def test_the_students_readme_is_theirs_and_its_links_lead_somewhere(bundle):
    read_me = bundle / "students" / "README.md"
    text = read_me.read_text(encoding="utf-8")
    assert not re.search(r"[{}]|teacher\W*s? guide|workshop\.py (test|book|classroom|store)|CONTRIBUTING", text)
    assert not re.search(r"folded solutions|outputs are stored|Download ZIP|git clone", text)
    assert "python3 workshop.py doctor" in text and len(docs.links(text)) > len(LESSONS)
    for link in docs.links(text):
        file, _, anchor = link.partition("#")
        assert docs.is_outside(link) or (bundle / "students" / file).is_file(), link
        target = bundle / "students" / (file or "README.md")
        assert not anchor or anchor in docs.anchors(target.read_text(encoding="utf-8")), link
    for lesson in LESSONS:
        assert f"(notebooks/{lesson.name})" in text


def test_the_command_writes_the_lessons_that_are_named(tmp_path):
    done = command("01", "--into", str(tmp_path / "for ann"))
    assert done.returncode == 0 and "one lesson, without solutions" in done.stdout
    for folder in ("students/notebooks", "course/source"):
        found = [path.name for path in (tmp_path / "for ann" / folder).rglob("*.ipynb")]
        assert found == [BY_NUMBER["01"].name]
    rows = re.findall(
        r"^\| (\d\d) ", (tmp_path / "for ann/students/README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows == ["01"]
    read_me = (tmp_path / "for ann" / "README.md").read_text(encoding="utf-8")
    assert "nbgrader autograde 01-add-vectors-with-opencl" in read_me and not re.search(r"[{}]", read_me)


def test_the_guide_and_the_bundle_give_the_same_commands(bundle):
    guide = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    read_me = (bundle / "README.md").read_text(encoding="utf-8").replace(LESSONS[0].stem, BY_NUMBER["01"].stem)
    commands = [line for block in re.findall(r"```sh\n(.*?)```", read_me, re.DOTALL) for line in block.splitlines()]
    assert len(commands) > 8
    assert [line for line in commands if line not in guide and "WORKSHOP" not in line] == []


def test_a_learners_copy_beside_the_lesson_is_not_handed_out(tmp_path, monkeypatch):
    copy = BY_NUMBER["01"].with_stem(BY_NUMBER["01"].stem + "-ann")
    monkeypatch.setattr(lesson_files, "find", lambda names: [BY_NUMBER["01"], copy])
    written = []
    monkeypatch.setattr(classroom, "write_bundle", lambda paths, folder: written.extend(paths))
    assert classroom.run(argparse.Namespace(lessons=[], into=tmp_path)) == 0
    assert written == [BY_NUMBER["01"]]


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path):
    (tmp_path / "grades.csv").write_text("ann,3", encoding="utf-8")
    done = command("01", "--into", str(tmp_path))
    assert done.returncode == 2 and "holds something" in done.stderr and "--into" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["grades.csv"]


def test_an_empty_folder_is_filled_and_a_failure_leaves_none(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    classroom.write_bundle([BY_NUMBER["01"]], tmp_path / "empty")
    assert (tmp_path / "empty" / "README.md").exists()
    monkeypatch.setattr(classroom, "CONFIG", None)
    with pytest.raises(TypeError):
        classroom.write_bundle([BY_NUMBER["01"]], tmp_path / "another")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_folder_inside_of_what_is_copied_is_refused():
    for place in ("helpers/here", "notebooks/here"):
        with pytest.raises(WorkshopError, match="belongs to the workshop"):
            classroom.write_bundle([BY_NUMBER["01"]], ROOT / place)
        assert not (ROOT / place).exists()


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "helpers", "classroom", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------- a check's verdict


@pytest.mark.parametrize(("variable", "value"), [("ANYGPU_GRADE", "1"), ("NBGRADER_EXECUTION", "autograde")])
def test_a_check_raises_while_it_is_graded_and_prints_for_a_learner(variable, value, monkeypatch, capsys):
    from helpers.judge import checks

    @checks.verdict
    def check():
        raise checks.NotYet("expected 1, came 2")
        yield

    for name in ("ANYGPU_GRADE", "NBGRADER_EXECUTION"):
        monkeypatch.delenv(name, raising=False)
    check()
    assert capsys.readouterr().out == "not yet: expected 1, came 2\n"
    monkeypatch.setenv(variable, value)
    with pytest.raises(checks.CheckFailed, match="not yet: expected 1, came 2"):
        check()


# ------------------------------------------------------------------------------------------------------------ nbgrader


class Course:
    """A copy of the bundle's course in a folder of its own, in which nbgrader works as a teacher calls it."""

    def __init__(self, bundle, folder):
        self.folder, self.programs = folder, room.programs()
        shutil.copytree(bundle / "course", folder, dirs_exist_ok=True)

    def nbgrader(self, *arguments):
        """Return what one command of nbgrader's left behind; it has the variables that a teacher's terminal has."""
        variables = {k: v for k, v in os.environ.items() if k not in ("ANYGPU_GRADE", "ANYGPU_PROFILE", "MPLBACKEND")}
        variables["PATH"] = f"{self.programs}{os.pathsep}{variables['PATH']}"
        variables["HOME"] = str(self.folder / "home")  # no other configuration, no other kernels
        return subprocess.run(
            [self.programs / "nbgrader", *arguments],
            cwd=self.folder, env=variables, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip

    def submit(self, student, lesson, answers):
        """Put a student's lesson where a teacher puts it, with these answers in place of the starters."""
        notebook = nbformat.read(self.folder / "release" / lesson.stem / lesson.name, as_version=4)
        for cell in notebook.cells:
            kind, _, number = cell.metadata.get("nbgrader", {}).get("grade_id", "").partition("-")
            if kind == "exercise" and int(number) in answers:
                cell.source = answers[int(number)]
        place = self.folder / "submitted" / student / lesson.stem
        place.mkdir(parents=True)
        nbformat.write(notebook, place / lesson.name)

    def outputs(self, student, lesson, grade_id):
        """Return the outputs of one cell as nbgrader graded it."""
        graded = nbformat.read(self.folder / "autograded" / student / lesson.stem / lesson.name, as_version=4)
        return next(c.outputs for c in graded.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)

    def points(self):
        """Return {(lesson, student): (points, most)}."""
        assert self.nbgrader("export").returncode == 0
        with (self.folder / "grades.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        return {(row["assignment"], row["student_id"]): (float(row["score"]), float(row["max_score"])) for row in rows}


@pytest.fixture(scope="module")
def course(bundle, tmp_path_factory):
    made = Course(bundle, tmp_path_factory.mktemp("course"))
    for lesson in (BY_NUMBER[number] for number in GRADED):
        done = made.nbgrader("generate_assignment", lesson.stem)  # the first one makes the database, too
        assert done.returncode == 0, done.stderr
    return made


@pytest.mark.slow
def test_nbgrader_releases_a_lesson_as_it_was_written(bundle, course):
    lesson = BY_NUMBER["01"]
    released = nbformat.read(course.folder / "release" / lesson.stem / lesson.name, as_version=4)
    source = nbformat.read(bundle / "course" / "source" / lesson.stem / lesson.name, as_version=4)
    assert [cell.source for cell in released.cells] == [cell.source for cell in source.cells]
    exchange = course.folder / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)
    done = course.nbgrader("release_assignment", lesson.stem, f"--Exchange.root={exchange}")
    assert done.returncode == 0, done.stderr
    assert (exchange / "any-gpu-workshop" / "outbound" / lesson.stem / lesson.name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", GRADED)
def test_nbgrader_gives_right_answers_all_points_and_wrong_empty_and_endless_ones_none(course, number):
    lesson = BY_NUMBER[number]
    exercises = lesson_files.exercises(lesson_files.read(lesson))
    good = {one.number: one.solution for one in exercises}
    mutants = prepared(lesson)[0]
    wrong = {
        one.number: lesson_files.mutate(one.solution, next(iter(mutants[one.number].values()))) for one in exercises
    }
    last = exercises[-1].number
    answers = {"good": good, "wrong": wrong, "empty": {}, "endless": good | {last: ENDLESS}}
    limit = {"endless": [f"--Execute.timeout={SECONDS}"]}  # the others have the time that a teacher gives them
    given, said = GRADED[number], {}
    for student in given:
        course.submit(student, lesson, answers[student])
        done = course.nbgrader("autograde", lesson.stem, "--student", student, *limit.get(student, []))
        assert done.returncode == 0, done.stderr
        said[student] = done.stderr
    count, points = float(len(exercises)), course.points()
    wanted = {"good": count, "wrong": 0.0, "empty": 0.0, "endless": count - 1}
    assert {name: points[lesson.stem, name] for name in given} == {name: (wanted[name], count) for name in given}
    (output,) = course.outputs("empty", lesson, f"check-{last}")
    assert output.ename == "CheckFailed" and output.evalue.startswith("not done yet: ") and len(output.traceback) == 1
    if "endless" in given:
        assert f"Timeout waiting for execute reply ({SECONDS}s)" in said["endless"]
        assert "CellTimeoutError" in [
            output.get("ename") for output in course.outputs("endless", lesson, f"exercise-{last}")
        ]
    left = [process for process in psutil.process_iter(["cwd"]) if str(course.folder) in (process.info["cwd"] or "")]
    assert left == []


@pytest.mark.slow
def test_nbgrader_restores_a_check_that_a_student_changed_and_validates_as_it_grades(course):
    lesson = BY_NUMBER["01"]
    source = course.folder / "release" / lesson.stem / lesson.name
    changed = source.read_text(encoding="utf-8").replace('"lesson.check_', '"print(1)  # lesson.check_')
    place = course.folder / "submitted" / "clever" / lesson.stem
    place.mkdir(parents=True)
    (place / lesson.name).write_text(changed, encoding="utf-8")
    done = course.nbgrader("autograde", lesson.stem, "--student", "clever")
    assert done.returncode == 0, done.stderr
    assert course.points()[lesson.stem, "clever"][0] == 0
    done = course.nbgrader("validate", str(source))
    assert done.stdout.count("not done yet: ") == len(lesson_files.exercises(lesson_files.read(lesson)))
