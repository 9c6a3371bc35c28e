"""A class's bundle: lessons without solutions, what a student needs to run them, and a hub for a room."""

import json
import os
import re
import shutil
import textwrap
import zipfile

import nbformat
import pytest
import sample_lesson
from traitlets.config import Config

from helpers import ROOT
from helpers.__main__ import main
from helpers.commands import address, classroom, execute, lesson_files
from helpers.devices import host
from helpers.doctor import findings as findings_of
from helpers.doctor import terminal
from helpers.errors import WorkshopError

LESSONS = lesson_files.every()
FIRST = next(path for path in LESSONS if path.stem.startswith("01-"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a class") / "bundle"
    downloaded = ROOT / "data" / "cache" / "test-classroom" / "mnist.npz"  # as a lesson leaves it; git ignores it
    downloaded.parent.mkdir(parents=True)
    downloaded.touch()
    try:
        classroom.write_bundle(LESSONS, folder)
    finally:
        shutil.rmtree(downloaded.parent)
    return folder


def lines(text):
    return {line.strip() for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_no_solution_is_left_in_a_lesson_all_else_is_there_and_nbgrader_knows_its_exercises(bundle, lesson):
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
    wanted = []
    for exercise in lesson_files.exercises(original):
        given_away = lines(exercise.solution) & own_text
        assert lines(exercise.solution) - given_away, f"exercise {exercise.number} is solved by what stands elsewhere"
        assert not (lines(exercise.solution) - given_away) & left, exercise.number
        wanted += [(f"exercise-{exercise.number}", "exercise"), (f"check-{exercise.number}", "check")]
    marked = [cell for cell in made.cells if "nbgrader" in cell.metadata]
    assert [(cell.metadata.nbgrader.grade_id, *lesson_files.tags(cell)) for cell in marked] == wanted
    for cell in marked:
        mark, check = cell.metadata.nbgrader, "check" in lesson_files.tags(cell)
        assert (mark.schema_version, mark.grade, mark.locked, mark.solution) == (3, check, check, not check)


def test_nothing_in_the_bundle_holds_a_solution_and_every_link_of_a_student_leads_somewhere(bundle):
    students = bundle / "students"
    names = {path.relative_to(students).parts[0] for path in students.rglob("*")}
    assert names == {*classroom.PARTS, "notebooks", "README.md"}
    assert sorted(path.name for path in bundle.iterdir()) == ["README.md", "course", "students", "students.zip"]
    with zipfile.ZipFile(bundle / "students.zip") as packed:
        packed_files = {name for name in packed.namelist() if not name.endswith("/")}
    assert packed_files == {path.relative_to(bundle).as_posix() for path in students.rglob("*") if path.is_file()}
    apart = {"tests", "teaching", "teaching.md", "__pycache__"}
    assert not [path for path in students.rglob("*") if path.name in apart]
    assert not [*students.rglob("lesson_*.toml"), *students.rglob("mnist.npz")]
    solutions = [
        exercise.solution.strip() for path in LESSONS for exercise in lesson_files.exercises(lesson_files.read(path))
    ]
    texts = [path.read_text("utf-8") for path in bundle.rglob("*") if path.suffix in {".py", ".md", ".toml", ".ipynb"}]
    assert [solution for solution in solutions if any(solution in text for text in texts)] == []
    readme = (students / "README.md").read_text(encoding="utf-8")
    links = set(re.findall(r"\]\(([^)\s]+)\)", readme))
    assert {f"notebooks/{lesson.name}" for lesson in LESSONS} < links
    assert not [link for link in links if not (students / link).is_file()]


def test_a_link_to_what_is_not_handed_out_becomes_its_words(tmp_path):
    classroom.write_bundle([FIRST], tmp_path / "bundle")
    students = tmp_path / "bundle" / "students"
    pages = {path: path.read_text("utf-8") for path in students.rglob("*") if path.suffix in {".md", ".ipynb"}}
    links = [(path, link) for path, text in pages.items() for link in re.findall(r"\]\(([^)#\s\\]+)[^)]*\)", text)]
    inside = [(path, link) for path, link in links if re.search(r"\.(md|ipynb|html)$", link) and ":" not in link]
    assert [(path.name, link) for path, link in inside if not (path.parent / link).exists()] == []
    assert len(inside) > 20 and "which lesson" in pages[students / "docs" / "platforms.md"].lower()


def test_the_students_pages_do_not_lead_to_the_course_with_its_solutions(tmp_path, monkeypatch):
    addresses = {"Repository": "https://github.com/ada/any-gpu-workshop"}
    monkeypatch.setattr(host, "addresses", lambda: addresses)
    page = ROOT / "docs" / "start.md"
    monkeypatch.setattr(address, "PAGES", [page])
    published = address.fill_in(page.read_text(encoding="utf-8"))
    parts = tmp_path / "workshop"
    (parts / "docs").mkdir(parents=True)
    (parts / "docs" / "start.md").write_text(published, encoding="utf-8")
    monkeypatch.setattr(classroom, "ROOT", parts)
    classroom.write_bundle([FIRST], tmp_path / "bundle")
    handed_out = (tmp_path / "bundle" / "students" / "docs" / "start.md").read_text(encoding="utf-8")
    assert "/archive/" in published and "/archive/" not in handed_out
    assert len(handed_out) > 0.9 * len(published)


def test_a_solution_without_its_tag_is_refused():
    cells = sample_lesson.cells()
    next(cell for cell in cells if "solution" in lesson_files.tags(cell)).metadata["tags"] = []
    with pytest.raises(WorkshopError, match="Exercise 1"):
        classroom.without_solutions(sample_lesson.notebook(cells))


def test_a_lesson_of_the_bundle_runs_with_the_bundles_helpers_alone(bundle):
    students = bundle / "students"
    notebook = lesson_files.read(students / "notebooks" / FIRST.name)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"][:1]
    notebook.cells.append(nbformat.v4.new_code_cell("import helpers\nprint(helpers.__file__)"))
    outcome = execute.execute(notebook, students / "notebooks", "preview", variables={"PYTHONPATH": str(students)})
    assert outcome.failure is None
    assert execute.text(notebook.cells[1]).strip() == str(students / "helpers" / "__init__.py")


def test_the_command_writes_what_is_named_and_never_over_anything(tmp_path, monkeypatch, capsys):
    made = tmp_path / "for ann"
    monkeypatch.setattr(classroom, "BUNDLE", made)
    assert main(["classroom", "01"]) == 0
    assert {path.name for path in (made / "students/notebooks").iterdir()} == {FIRST.name}
    assert not re.search(r"\{\w+\}", (made / "README.md").read_text() + (made / "students/README.md").read_text())
    grades = made / "course" / "grades.csv"
    grades.write_text("ann,3", encoding="utf-8")
    assert main(["classroom", "01"]) == 2
    assert "students' work" in capsys.readouterr().err and grades.exists()


def test_a_failure_leaves_no_half_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr(classroom, "TEXTS", tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        classroom.write_bundle([FIRST], tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------------------- a hub


def test_the_hubs_configuration_of_the_guide_keeps_its_safety_lines(monkeypatch):
    masks = []
    monkeypatch.setattr(os, "umask", masks.append)
    page = (ROOT / "docs" / "teaching" / "hub.md").read_text(encoding="utf-8")
    c = Config()
    exec(re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1], {"c": c})
    assert masks == [0o077]  # the hub's database and the learners' files
    assert c.JupyterHub.authenticator_class == "pam" and c.JupyterHub.spawner_class.endswith(".LocalProcessSpawner")
    assert c.Spawner.args == ["--KernelManager.transport_encryption=auto"]
    assert c.Spawner.cmd[0].endswith("/binder/start") and "my_lessons.update()" in c.Spawner.cmd[3]
    assert c.Spawner.default_url.endswith(f"/my-lessons/{host.FIRST_LESSON}")
    (culler,) = c.JupyterHub.services
    assert "jupyterhub_idle_culler" in culler["command"]


# ------------------------------------------------------------------------------------------------ thirty reports


def write_report(folder, name, severities, gpus=()):
    """Write a report as the doctor does, of a made-up machine."""
    problem = (
        "a sentence that is so long that the doctor breaks it into two lines, because it has over a hundred letters"
    )
    findings = terminal.Findings(
        findings_of.Finding(f"x-{word}", word, f"{word}: {problem}", "y", "z") for word in severities
    )
    devices = "".join(f"    {gpu} (OpenCL, GPU): right\n" for gpu in gpus)
    (folder / f"report-{name}.txt").write_text(
        terminal.report(findings) + f"\n\nThis machine:\n{devices}", encoding="utf-8"
    )


def test_the_reports_of_a_class_become_one_table(tmp_path, capsys):
    write_report(tmp_path, "ANNA", [], ["RTX 4060"])
    write_report(tmp_path, "BOB", ["stops", "note"])
    write_report(tmp_path, "CY", ["limits"], ["Iris Xe", "Arc A370M"])
    (tmp_path / "report-DAN.TXT").write_text("py: command not found", encoding="utf-8")
    write_report(tmp_path, "EVE", [])
    report = tmp_path / "report-EVE.txt"
    report.write_text(report.read_text(encoding="utf-8"), encoding="utf-16")
    (tmp_path / "FAY.jpg").write_bytes(b"a photo")
    write_report(tmp_path, "GUS", ["stops"])
    report = tmp_path / "report-GUS.txt"
    lines = report.read_text(encoding="utf-8").splitlines()
    report.write_bytes("\r\n".join(lines).encode("utf-8-sig"))  # as Windows ends a line, and Notepad begins a file
    (tmp_path / ".DS_Store").write_bytes(b"macOS's own")
    (tmp_path / "._report-HAL.txt").write_bytes(b"macOS's own")
    for name, margin in (("HAL", "> "), ("JO", "> > "), ("KIM", ">> "), ("LU", "    ")):  # as a mail quotes it
        quoted = "\n".join(f"{margin}{line}".rstrip() for line in lines)
        (tmp_path / f"report-{name}.txt").write_text(f"Hello!\n{quoted}", encoding="utf-8")
    (tmp_path / "Ida 17").mkdir()
    write_report(tmp_path / "Ida 17", "IDA", ["unknown"])
    report = tmp_path / "Ida 17" / "report-IDA.txt"
    mail = textwrap.fill(report.read_text(encoding="utf-8"), 72, replace_whitespace=False)  # it breaks long lines
    report.write_text(mail, encoding="utf-8")
    assert len(mail.splitlines()[0]) < 72
    assert main(["classroom", "--reports", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    anna, bob, cy = (table.split(f"| {name} ")[1].split("+---")[0] for name in ("ANNA", "BOB", "CY"))
    assert "can run here" in anna and "RTX 4060" in anna and ":" not in anna
    assert (
        "cannot run here yet" in bob and "stops:" in bob and "hundred" in bob and "note:" not in bob and "none" in bob
    )
    assert "with limits" in cy and "limits:" in cy and "Iris Xe" in cy and "Arc A370M" in cy
    assert "can run here" in table.split("| EVE ")[1].split("+---")[0]
    learners = re.findall(r"^\| (\S*(?: 17/)?[A-Z]{2,}) ", table, re.MULTILINE)
    assert learners == ["BOB", "GUS", "HAL", "JO", "KIM", "LU", "DAN", "Ida 17/IDA", "CY", "ANNA", "EVE"]
    rows = [table.split(f"| {name} ")[1].split("+---")[0] for name in ("GUS", "HAL", "JO", "KIM", "LU")]
    assert all("stops:" in row and "hundred" in row for row in rows)
    assert "2 of 10 computers, with limits on 1 more, perhaps on 1 more." in table and table.endswith(
        "yourself: FAY.jpg.\n"
    )
    assert "no report" in table.split("| DAN ")[1].split("+---")[0] and table.count("no report") == 1


def test_a_folder_without_reports_says_what_a_report_is(tmp_path):
    (tmp_path / "shopping.txt").write_text("milk", encoding="utf-8")
    with pytest.raises(WorkshopError, match="contains no report") as refused:
        classroom.summarize_reports(tmp_path)
    assert "doctor --report" in str(refused.value)
    with pytest.raises(WorkshopError, match="There is no folder"):
        classroom.summarize_reports(tmp_path / "late")
