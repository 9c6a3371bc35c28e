"""The suite's own rules: lessons' cells without noise; what a quick run leaves out, and when it runs a lesson again."""

import os
import re
import shutil
import subprocess
import sys

import import_graph
import pytest
import sample_lesson

from helpers import ROOT
from helpers.commands import lesson_files, test

# Half of what pytest takes to start is plug-ins that no test here uses, and one grammar.
PYTEST = """import sys
from helpers.running import workarounds
workarounds.leave_out_iri_grammar()
import pytest
sys.exit(pytest.main(sys.argv[1:]))"""
WITHOUT = ("-p", "no:hypothesispytest", "-p", "no:pytest_httpserver", "-p", "no:anyio")


def run_pytest(folder, *arguments, project=ROOT):
    """Run pytest over a folder with a project's conftest; return (status, what it printed)."""
    command = [sys.executable, "-c", PYTEST, *WITHOUT, "-rA", *["-p", "conftest"] * (folder != project), *arguments]
    environment = os.environ | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout


def test_a_cell_that_writes_to_standard_error_or_does_not_raise_as_it_should_fails(tmp_path):
    notebook = sample_lesson.of("import sys", "print('noise', file=sys.stderr)", "1 / 0", "print('quiet')", "1")
    for number in (2, 3):
        notebook.cells[number].metadata["tags"] = ["raises-exception"]
    sample_lesson.save(tmp_path, notebook)
    status, output = run_pytest(tmp_path, "-p", "no:cacheprovider", *test.LESSONS)
    assert status == 1
    passed = [line.rpartition("::")[2] for line in output.splitlines() if line.startswith("PASSED")]
    assert passed == ["Cell 0", "Cell 2", "Cell 4"]
    assert "wrote to standard error" in output and "noise" in output
    assert "tagged raises-exception, and it raised nothing" in output


LESSONS = {"01-add-numbers": "errors", "02b-time-numbers": "measure.timing"}  # and what each imports


@pytest.fixture
def project(tmp_path):
    """A copy of the project with two lessons of two cells and two tests of the answers to each."""
    for name in ("helpers", "requirements", "data/results"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "pyproject.toml", "tests/import_graph.py", "tests/browser.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    tests = "".join(f"@lessons\ndef test_{name}(lesson): pass\n" for name in ("one", "another"))
    tests = f"import pytest\nlessons = pytest.mark.parametrize('lesson', {[*LESSONS]})\n{tests}"
    (tmp_path / "tests/test_exercises.py").write_text(tests, encoding="utf-8")
    (tmp_path / "notebooks").mkdir()
    for name, module in LESSONS.items():
        sample_lesson.save(tmp_path / "notebooks", sample_lesson.of(f"import helpers.{module}", "1"), name)
    return tmp_path


@pytest.mark.slow
def test_a_quick_run_repeats_a_lesson_only_after_a_change_that_reaches_it(project):
    def output(*arguments):
        return run_pytest(project, *test.LESSONS, *arguments, project=project)[1]

    def chosen(*arguments):
        """Return which cells and which answers would run, by the numbers of their lessons."""
        listed = output("--collect-only", "-q", *arguments)
        numbers = (re.findall(rf"^{part}(\d\d[a-z]?)-", listed, re.MULTILINE) for part in ("notebooks.", r"tests.*\["))
        return [sorted(set(found)) for found in numbers]

    side_by_side = "--numprocesses=2", "--dist=loadscope"
    whole = str(project / "notebooks"), str(project / "tests")
    assert "8 passed" in output(*whole, *side_by_side)
    for name in ("measure/timing", "lessons/lesson_05"):
        with (project / "helpers" / f"{name}.py").open("a", encoding="utf-8") as file:
            file.write("# changed\n")
    assert chosen(*whole) == [["02b"], ["02b"]]
    assert chosen(str(project / "tests/test_exercises.py")) == [[], ["01", "02b"]]  # named
    sample_lesson.save(project / "notebooks", sample_lesson.of("import helpers.errors", "1 / 0"))
    assert "1 failed, 7 passed" in output(*whole)
    assert chosen(*whole) == [["01"], []]


def test_what_a_lesson_reaches_includes_what_is_started_by_name_and_its_own_mistakes_alone():
    lesson = lesson_files.find(["03"])[0]
    names = {path.relative_to(ROOT).as_posix() for path in import_graph.reached(lesson)}
    assert {"helpers/tile/syntax.py", "helpers/running/worker.py", "helpers/lessons/mistakes/03.toml"} <= names
    assert not {"helpers/lessons/lesson_04.py", "helpers/lessons/mistakes/04.toml", "helpers/web/pad.js"} & names


@pytest.mark.slow
def test_what_asks_for_chromium_is_the_browsers_suite(tmp_path):
    source = "import pytest\n@pytest.fixture\ndef chromium(): pass\ndef test_other(): pass\n"
    (tmp_path / "test_it.py").write_text(source + "def test_the_page_opens(chromium): pass\n", encoding="utf-8")
    assert "1 deselected" in run_pytest(tmp_path, "--all", "-m", "browser")[1]


@pytest.mark.slow
def test_what_is_tested_of_one_lesson_stays_on_one_worker_and_slow_tests_are_left_out_and_counted(tmp_path):
    ids = [f"{lesson}-{number}" for number in range(4) for lesson in ("01-add-numbers", "01b-time-numbers")]
    source = f"import pytest\n@pytest.mark.parametrize('x', {ids})\ndef test_it(x): pass\n"
    source += "@pytest.mark.slow\ndef test_slow(): pass\n"
    (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
    _, output = run_pytest(tmp_path, "-v", "--numprocesses=2", "--dist=loadscope")
    ran = set(re.findall(r"\[(gw\d)\].* PASSED .*\[(\d\d[a-z]?)-", output))
    assert len(ran) == 2 and len(dict(ran)) == 2  # two lessons, a worker for each
    assert "Left out: 1 slow tests." in output and "8 passed" in output and "skipped" not in output
