"""`run` on real kernels: lessons that pass, fail, hang, die or are unreadable."""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys

import nbformat
import psutil
import pytest
import sample_lesson
from waiting import alive, in_the_end

from helpers import ROOT
from helpers.commands import execute, files, lesson_files, run
from helpers.errors import WorkshopError
from helpers.measure import records

LONG = 300  # seconds: against hanging alone


def report(build):
    return {row["lesson"]: row for row in json.loads((build / "report.json").read_text())["lessons"]}


def parse(*arguments):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return parser.parse_args(arguments)


# ---------------------------------------------------------------------------------------------- which lessons


@pytest.mark.parametrize("name", ["1", "01-add", "notebooks/01-add-numbers.ipynb"])
def test_a_lesson_is_found_by_number_name_or_path(tmp_path, name):
    path = sample_lesson.save(tmp_path)
    for other in ("01b-add-more", "10-add-tens", "scratch"):
        sample_lesson.save(tmp_path, name=other)
    assert lesson_files.find([name], tmp_path) == [path]
    assert [found.stem for found in lesson_files.find(["10", "1"], tmp_path)] == ["01-add-numbers", "10-add-tens"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("7", "The lessons are 01"),
        ("", "The lessons are 01"),
        ("bob/01-add-numbers.ipynb", "There is no file bob/01-add-numbers.ipynb"),
        ("nope.ipynb", "There is no file nope.ipynb"),
        ("nobody", "There is no lesson called 'nobody'"),
    ],
)
def test_an_unknown_lesson_or_file_is_refused(tmp_path, name, complaint):
    sample_lesson.save(tmp_path)
    with pytest.raises(WorkshopError, match=complaint):
        lesson_files.find([name], tmp_path)


def test_grading_nothing_is_refused_before_anything_runs():
    with pytest.raises(WorkshopError, match="nothing to grade"):
        run.run(parse("--grade"))


def test_a_name_that_fits_two_lessons_or_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(WorkshopError, match="no lessons"):
        lesson_files.find([], tmp_path)
    for name in ("01-add-numbers", "01-add-letters"):
        sample_lesson.save(tmp_path, name=name)
    with pytest.raises(WorkshopError, match="More than one"):
        lesson_files.find(["01"], tmp_path)


def test_a_learners_file_elsewhere_is_run_itself(tmp_path):
    for folder in ("notebooks", "alice"):
        (tmp_path / folder).mkdir()
        sample_lesson.save(tmp_path / folder)
    copy = tmp_path / "alice" / "01-add-numbers.ipynb"
    assert lesson_files.find([str(copy)], tmp_path / "notebooks") == [copy]


def test_a_folder_stands_for_the_copies_in_it_and_in_its_folders(tmp_path):
    lessons = tmp_path / "notebooks"
    for folder in (lessons, tmp_path / "class/bob", tmp_path / "class/ann", tmp_path / "class/ann/.ipynb_checkpoints"):
        folder.mkdir(parents=True)
        sample_lesson.save(folder)
    (tmp_path / "class" / "empty").mkdir()
    copies = [tmp_path / "class" / name / "01-add-numbers.ipynb" for name in ("ann", "bob")]
    assert lesson_files.find([str(tmp_path / "class")], lessons) == copies
    with pytest.raises(WorkshopError, match="contains no notebook"):
        lesson_files.find([str(tmp_path / "class" / "empty")], lessons)


def test_a_lesson_comes_before_a_folder_of_its_name(tmp_path, monkeypatch):
    path = sample_lesson.save(tmp_path)
    (tmp_path / "01").mkdir()
    monkeypatch.chdir(tmp_path)
    assert lesson_files.find(["01"], tmp_path) == [path]


@pytest.mark.parametrize(("given", "advice"), [(lesson_files.FOLDER, "git checkout"), (ROOT / "from-eva", "learner")])
def test_who_has_a_good_copy_of_an_unreadable_lesson(given, advice):
    with pytest.raises(WorkshopError) as refused:
        lesson_files.read(given / "99-eva-sent.ipynb")
    assert advice in refused.value.next


def test_what_a_kernel_prints_is_for_this_account_alone():
    assert execute.manager().transport_encryption == "auto"


# ---------------------------------------------------------------------------------------------- what becomes of them

HANG = "import time\ntime.sleep(600)"
SAMPLES = {
    "01-pass-well": None,
    "02-raise-error": ["1 + 1", "1 / 0", "never = 1"],
    "04-die-early": [
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open('processes', 'w').write(f'{os.getpid()} {child.pid}')\nimport time; time.sleep(3)",
        "os._exit(9)",
    ],
    "06-write-noise": ["import sys\nprint('noise', file=sys.stderr)"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run one lesson of each fate, and one file that is no notebook; return (status, rows, build)."""
    folder = tmp_path_factory.mktemp("lessons with a space")
    for name, sources in SAMPLES.items():
        sample_lesson.save(folder, sources and sample_lesson.of(*sources), name)
    (folder / "05-break-file.ipynb").write_text('{"cells": [')
    build = folder / "build"
    (build / "notebooks").mkdir(parents=True)
    (build / "notebooks" / "05-break-file.ipynb").write_text("of an earlier run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson_files, "FOLDER", folder)
        status = run.run_lessons(lesson_files.find([], folder), "preview", build)
    return status, report(build), build


def test_a_failure_gives_status_1_and_stops_no_other_lesson(ran):
    status, rows, _ = ran
    assert status == 1
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "01-pass-well": "passed",
        "02-raise-error": "failed",
        "04-die-early": "failed",
        "05-break-file": "failed",
        "06-write-noise": "passed",
    }


def test_a_cell_that_hangs_is_ended(tmp_path):
    path = sample_lesson.save(tmp_path, sample_lesson.of(HANG))
    assert run.run_lessons([path], "preview", tmp_path / "build", cell_seconds=2) == 1
    (row,) = report(tmp_path / "build").values()
    assert (row["verdict"], row["where"]) == ("timed out", "cell 1 (import time)") and "2 seconds" in row["message"]
    assert not [child for child in psutil.Process().children(recursive=True) if alive(child)]


def test_no_process_is_left_even_of_a_kernel_that_died(ran):
    processes = (ran[2].parent / "processes").read_text().split()
    assert len(processes) == 2 and not any(alive(int(pid)) for pid in processes)
    assert not [child for child in psutil.Process().children(recursive=True) if alive(child)]


def test_the_report_names_device_dataset_profile_time_and_memory(ran):
    row = ran[1]["01-pass-well"]
    assert (row["device"], row["dataset"]) == ("the device of the test", "MNIST of the test")
    assert row["profile"] == "preview" and row["seconds"] > 0 and row["peak_mib"] > 20


def test_the_report_names_the_cell_and_its_message(ran):
    rows = ran[1]
    assert (rows["02-raise-error"]["where"], rows["02-raise-error"]["message"]) == (
        "cell 2 (1 / 0)",
        "ZeroDivisionError: division by zero",
    )
    assert rows["04-die-early"]["where"].startswith("cell 2") and "killed" in rows["04-die-early"]["message"]
    assert "05-break-file.ipynb cannot be read" in rows["05-break-file"]["message"]
    assert "standard error: cell 1" in rows["06-write-noise"]["message"]


def test_executed_notebooks_hold_outputs_even_of_a_lesson_that_failed(ran):
    cells = sample_lesson.load(ran[2] / "notebooks" / "02-raise-error.ipynb").cells
    assert cells[0].outputs[0].data["text/plain"] == "2"
    assert execute.errors(cells[1])[0].ename == "ZeroDivisionError"
    assert cells[2].outputs == []
    assert {file.stem for file in (ran[2] / "notebooks").iterdir()} == {*SAMPLES}  # nothing else


def test_memory_of_children_counts(tmp_path):
    child = "x = b'1' * 300_000_000; import time; time.sleep(3)"
    big = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    assert execute.execute(sample_lesson.of(big), tmp_path).peak_bytes > 300_000_000


def test_the_lesson_gets_its_profile_its_folder_and_no_grading(tmp_path, monkeypatch):
    monkeypatch.setenv("ANYGPU_GRADE", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    code = "print(os.environ['ANYGPU_PROFILE'], os.getcwd(), os.environ.get('ANYGPU_GRADE'), sys.executable, sep='|')"
    notebook = sample_lesson.of("import os, sys", code)
    assert execute.execute(notebook, tmp_path, "full").failure is None
    assert execute.text(notebook.cells[1]).strip().split("|") == ["full", str(tmp_path), "None", sys.executable]


def test_every_wrong_exercise_is_named_and_another_error_still_stops_the_lesson(tmp_path):
    notebook = sample_lesson.of("1 / 0", "raise ValueError('wrong')", "print('went on')", "[][0]", "print('never')")
    notebook.cells[0].metadata.tags, notebook.cells[1].metadata.tags = ["exercise"], ["check"]
    failure = execute.execute(notebook, tmp_path, grade=True).failure
    assert (failure.kind, failure.cell) == ("error", 0)
    assert failure.message.splitlines() == [
        "ZeroDivisionError: division by zero",
        "cell 2 (raise ValueError('wrong')): ValueError: wrong",
        "cell 4 ([][0]): IndexError: list index out of range",
    ]
    assert execute.text(notebook.cells[2]) == "went on\n" and not notebook.cells[4].outputs


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] if os.name == "posix" else [])
def test_ctrl_c_or_a_closed_window_ends_the_kernel_and_leaves_a_report(tmp_path, number):
    first = sample_lesson.save(tmp_path, sample_lesson.of("1"), "01-add-numbers")
    began = tmp_path / "began"
    wait = sample_lesson.of(f"open({str(began)!r}, 'w').close()\n{HANG}")
    second = sample_lesson.save(tmp_path, wait, "02-hang-long")
    code = (
        "import pathlib, sys\nfrom helpers import __main__\nfrom helpers.commands import run\n"
        "run.BUILD = pathlib.Path(sys.argv[1])\nsys.exit(__main__.main(['run', *sys.argv[2:]]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "b"), str(first), str(second)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    in_the_end(lambda: began.exists() or process.poll() is not None)
    kernels = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    out, error = process.communicate(timeout=LONG)
    assert process.returncode == 130, error
    assert kernels and psutil.wait_procs(kernels, timeout=LONG)[1] == []
    verdicts = [row["verdict"] for row in report(tmp_path / "b").values()]
    assert verdicts == ["passed", "interrupted"] and "interrupted" in out
    assert "Traceback" not in out + error and "never retrieved" not in error


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path):
    files.write(tmp_path / "deep" / "file", "old")
    with pytest.raises(UnicodeEncodeError):
        files.write(tmp_path / "deep" / "file", "new \ud800")
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "deep").iterdir()] == [("file", b"old")]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("01-add.ipynb", "01-add"),  # sent
        ("01-add/01-add.ipynb", "01-add"),  # nbgrader's
        ("01-add (1).ipynb", "01-add (1)"),  # a browser's
        ("my-lessons/01-add.ipynb", "my-lessons-01-add"),  # the learner's whole folder
        ("final.ipynb", "final"),
    ],
)
def test_copies_of_two_learners_are_told_apart(tmp_path, place, name):
    copies = [tmp_path / student / place for student in ("ann", "bob")]
    assert list(run._name_in_report(copies).values()) == [f"ann-{name}", f"bob-{name}"]


def test_a_lesson_keeps_its_name_and_the_one_copy_that_was_sent_has_its_folders(tmp_path):
    lesson, copy = lesson_files.every()[0], tmp_path / "ann" / "final.ipynb"
    assert run._name_in_report([lesson, copy]) == {lesson: lesson.stem, copy: "ann-final"}


def test_a_learner_who_sent_no_notebook_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "BUILD", tmp_path / "build")
    for learner in ("ann", "eva/my-lessons", "gus & co", ".hidden"):
        (tmp_path / "class" / learner).mkdir(parents=True)
    for learner in ("ann", "eva/my-lessons"):
        sample_lesson.save(tmp_path / "class" / learner, sample_lesson.of("1"), "final")
    (tmp_path / "class" / "gus & co" / "photo.jpg").write_bytes(b"a photo")
    assert run.run(parse("--grade", str(tmp_path / "class"))) == 0
    assert report(tmp_path / "build").keys() == {"ann-final", "eva-my-lessons-final"}
    assert "2 of 2 passed. No notebook: gus & co.\n" in capsys.readouterr().out
    assert "No notebook: gus &amp; co.\n" in (tmp_path / "build" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "variable", "profile"),
    [
        (["--grade"], "", "preview"),
        ([], "", "lab"),
        (["--grade"], "full", "full"),
        (["--grade", "--profile", "lab"], "full", "lab"),
    ],
)
def test_grading_does_little_work_unless_more_is_asked_for(tmp_path, monkeypatch, arguments, variable, profile):
    monkeypatch.setenv("ANYGPU_PROFILE", variable)
    monkeypatch.delenv("ANYGPU_GRADE", raising=False)
    monkeypatch.setattr(run, "BUILD", tmp_path / "build")
    path = sample_lesson.save(tmp_path, sample_lesson.of("1"))
    assert run.run(parse(*arguments, str(path))) == 0
    (row,) = report(tmp_path / "build").values()
    assert row["profile"] == profile


def test_grading_fails_a_lesson_whose_exercises_are_untouched(tmp_path):
    code = "from helpers.lessons import lesson_04\nlesson_04.check_forward(lambda *given: ...)"
    path = sample_lesson.save(tmp_path, sample_lesson.of(code))
    assert run.run_lessons([path], "preview", tmp_path / "build") == 0
    assert run.run_lessons([path], "preview", tmp_path / "build", grade=True) == 1
    assert "CheckFailed" in (tmp_path / "build" / "report.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- what strangers send


def changed(**more):
    """Return a notebook's JSON with `more` in its cell, as no notebook program writes it."""
    made = json.loads(nbformat.writes(sample_lesson.of("1")))
    made["cells"][0] |= more
    return json.dumps(made).encode()


def shows(metadata):
    return f"from IPython.display import display\ndisplay({{'text/plain': ''}}, raw=True, metadata={metadata})"


BAD = {
    "binary": b"\xff\x00",
    "nested": b"[" * 200_000,
    "number-for-source": changed(source=5),
    "evil-banner": changed(source=shows({"anygpu": "evil"})),
}
ESCAPES = "\x1b[2J\x1b]52;c;ZXZpbA==\x07"  # they clear the screen, and fill the clipboard


def test_whatever_a_copy_holds_it_is_one_row_and_the_next_one_is_run(tmp_path, capfd):
    for name, content in BAD.items():
        (tmp_path / f"{name}.ipynb").write_bytes(content)
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "gone.ipynb").symlink_to("nowhere")
    past_messages = f"import sys\nprint({ESCAPES!r}, file=sys.__stdout__, flush=True)"
    terminal = sample_lesson.of(past_messages, f'raise ValueError({ESCAPES + "<img>"!r}, "Intel\'s")')
    sample_lesson.save(tmp_path, terminal, "terminal")
    sample_lesson.save(tmp_path, sample_lesson.of(shows({"anygpu": {"dataset": 5}})), "y-number-for-dataset")
    sample_lesson.save(tmp_path, sample_lesson.of("1"), f"z-good{ESCAPES[:4]}")
    assert run.run_lessons(sorted(tmp_path.glob("*.ipynb")), "preview", tmp_path / "build") == 1
    rows = {name.removeprefix(f"{tmp_path.name}-"): row for name, row in report(tmp_path / "build").items()}
    failed = {name: row["message"] for name, row in rows.items() if row["verdict"] == "failed"}
    assert failed.keys() == {*BAD, "folder", "gone", "terminal"} and all(failed.values())
    assert rows.keys() - failed.keys() == {"y-number-for-dataset", "z-good\\x1b[2J"}
    page = (tmp_path / "build" / "report.md").read_text(encoding="utf-8")
    printed = "".join(capfd.readouterr())
    assert "\\x1b]52;c" in page and "<img>" not in page and "&lt;img&gt;" in page and "Intel's" in page
    assert "\\x1b]52;c" in printed and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page + printed)


def test_a_cell_that_prints_without_end_is_kept_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "OUTPUT_LIMIT", 10_000)
    notebook = sample_lesson.of("for number in range(300):\n    print('x' * 1000, flush=True)\n1 / 0", "print('next')")
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    assert execute.execute(notebook, tmp_path).failure is None
    assert 5_000 < len(execute.text(notebook.cells[0])) < 20_000 and execute.errors(notebook.cells[0])
    assert execute.text(notebook.cells[1]) == "next\n"


# ---------------------------------------------------------------------------------------------- what it records


def test_a_record_keeps_what_the_lessons_measured(tmp_path):
    source = """
from helpers.measure import records
records.add_note(records.Note("speed", 2.5, "GFLOP/s", "a processor"))
"""
    paths = [sample_lesson.save(tmp_path, sample_lesson.of(source), f"0{n}-note-speed") for n in (1, 2)]
    record = tmp_path / "results" / "mine.json"
    assert run.run_lessons(paths, "preview", tmp_path / "build", record=record) == 0
    kept = records.read(record)
    assert list(kept.notes) == [("01", "speed"), ("02", "speed")]
    note = kept.notes["01", "speed"]
    assert (note.value, note.unit, note.device, note.profile) == (2.5, "GFLOP/s", "a processor", "preview")
    assert kept.machine.versions["Python"] == platform.python_version() and kept.machine.device


@pytest.mark.slow
def test_a_real_lesson_is_recorded_step_by_step(tmp_path):
    record = tmp_path / "mine.json"
    assert run.run_lessons(lesson_files.find(["02b"]), "preview", tmp_path / "build", record=record) == 0
    kept = records.read(record)
    steps = [label for _, label in kept.notes if label[0].isdigit()]
    assert steps[:3] == ["1 one vector", "2 a block, not packed", "3 a block, packed"]
    for label in steps:
        note = kept.notes["02b", label]
        assert note.unit == "GFLOP/s" and note.low <= note.value <= note.high
        assert note.runs == 13
        assert note.amount == "384 x 384" and note.edition == records.hash_lesson("02b")
    assert kept.notes["02b", "NumPy"].device != kept.notes["02b", "1 one vector"].device == ""  # the record's own
    assert {"the winner", "the winner, once more"} <= {label for _, label in kept.notes}


def test_without_a_record_nothing_is_kept(tmp_path):
    source = "import os\nassert 'ANYGPU_RECORD' not in os.environ"
    assert run.run_lessons([sample_lesson.save(tmp_path, sample_lesson.of(source))], "preview", tmp_path / "build") == 0


@pytest.mark.parametrize("name", ["../mine", "", "My GPU"])
def test_a_record_is_named_like_a_file(name):
    parser = argparse.ArgumentParser(exit_on_error=False)
    run.add_arguments(parser)
    with pytest.raises(argparse.ArgumentError, match="--record"):
        parser.parse_args(["--record", name])
