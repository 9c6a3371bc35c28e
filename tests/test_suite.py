"""The suite's own rules, tried on small lessons: what nbval minds here, how answers are tried, what is left out."""

import os
import re
import subprocess
import sys

import pytest
import sample_lesson

from helpers import ROOT
from helpers.commands import test

# Half of what pytest takes to start is plug-ins that no test here uses, and one grammar.
PYTEST = """import sys
from helpers.running import workarounds
workarounds.leave_out_iri_grammar()
import pytest
sys.exit(pytest.main(sys.argv[1:]))"""
WITHOUT = ("-p", "no:hypothesispytest", "-p", "no:pytest_httpserver", "-p", "no:anyio", "-p", "no:cacheprovider")
# A plug-in that makes the notebooks of a folder the course's lessons.
LESSONS_HERE = """from pathlib import Path
from helpers.commands import lesson_files
from helpers.judge import mistakes
lesson_files.FOLDER = mistakes.FOLDER = Path(__file__).parent"""

NOISY = ("import sys", "print('noise', file=sys.stderr)", "1 / 0", "print('quiet')", "1")  # cells 2 and 3 should raise
TRACES = "kept = 2; spare = 3; import os; os.environ['LEFT'] = 'behind'"
NO_TRACES = """import os
assert kept == 1 and "spare" not in globals()
assert not {"LEFT", "ANYGPU_GRADE", "ANYGPU_JUDGE_IN_SAME_PROCESS"} & set(os.environ)"""
ANSWERS = {
    "lesson_01.toml": f"""
[01.1.mistakes]
"adds two, and leaves traces" = ["return n + 1", "return n + 2\\n{TRACES}"]
"adds nothing" = ["n + 1", "n + 0"]
[01.2.mistakes]
"right for 1 only" = ["1 + n", "2 * n"]
[01.2.right]
"a lambda" = "after = lambda n: n - (-1)"
""",
    "lesson_02.toml": """
[02.1.mistakes]
"adds two" = ["n + 1", "n + 2"]
""",
    "lesson_05.toml": """
[05.1.mistakes]
"adds two" = ["n + 1", "n + 2"]
""",
    "lesson_03.toml": """
[03.1.mistakes]
"ends the kernel" = ["return n + 1", "import os; os._exit(9)"]
""",
}
TESTS = """import pytest

@pytest.fixture
def chromium(): pass

@pytest.mark.slow
def test_slow(): pass

def test_page(chromium): pass

def test_quick(): pass
"""


def run_pytest(folder, *arguments):
    """Run pytest over a folder with the project's conftest; return what it printed."""
    command = [sys.executable, "-c", PYTEST, *WITHOUT, "-rA", "-p", "conftest", "-p", "lessons_here", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600).stdout


def with_judge(statement):
    """Return a small lesson whose judge does the same for every answer."""
    cells = sample_lesson.cells()
    next(cell for cell in cells if cell.source == sample_lesson.HELPER).source = f"def judge(_): {statement}"
    return sample_lesson.notebook(cells)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with small lessons, their prepared answers, and a file of tests."""
    folder = tmp_path_factory.mktemp("suite")
    for name, text in {**ANSWERS, "lessons_here.py": LESSONS_HERE, "test_it.py": TESTS}.items():
        (folder / name).write_text(text, encoding="utf-8")
    cells = sample_lesson.cells()
    cells[1:1] = [sample_lesson.code("kept = 1")]
    cells.append(sample_lesson.code(NO_TRACES))
    sample_lesson.save(folder, sample_lesson.notebook(cells))
    sample_lesson.save(folder, with_judge("print('right')"), "02-accept-everything")
    sample_lesson.save(folder, name="03-end-kernels")
    sample_lesson.save(folder, with_judge("print('not judged: no GPU')"), "05-need-a-gpu")
    noisy = sample_lesson.of(*NOISY)
    for number in (2, 3):
        noisy.cells[number].metadata["tags"] = ["raises-exception"]
    sample_lesson.save(folder, noisy, "04-make-noise")
    return folder


@pytest.fixture(scope="module")
def ran(folder):
    """What came of one run with --all: (the outcome of each test by its id, all that was printed)."""
    output = run_pytest(folder, *test.LESSONS, "--all", "-m", "not browser")
    lines = re.findall(r"^(PASSED|FAILED) (\S+\.ipynb::.*?)(?: - .*)?$", output, re.MULTILINE)
    return {name: outcome for outcome, name in lines}, output


def test_a_cell_that_writes_to_standard_error_fails(ran):
    outcomes, output = ran
    assert outcomes["04-make-noise.ipynb::Cell 1"] == "FAILED"
    assert "wrote to standard error" in output and "noise" in output


def test_a_cell_that_does_not_raise_as_it_should_fails(ran):
    outcomes, output = ran
    assert outcomes["04-make-noise.ipynb::Cell 3"] == "FAILED"
    assert "tagged raises-exception, and it raised nothing" in output
    passed = [name for name, outcome in outcomes.items() if "noise" in name and outcome == "PASSED"]
    assert passed == [f"04-make-noise.ipynb::Cell {number}" for number in (0, 2, 4)]


def test_each_answer_is_a_test_of_its_own_before_its_exercise_and_leaves_no_trace(ran):
    names = [name.partition("::")[2] for name, outcome in ran[0].items() if name.startswith("01-add-numbers")]
    assert [name for name in names if name.startswith("exercise")] == [
        "exercise 1: untouched",
        "exercise 1: adds two, and leaves traces",
        "exercise 1: adds nothing",
        "exercise 1: adds two, and leaves traces, not graded",
        "exercise 1: the solution",
        "exercise 2: untouched",
        "exercise 2: right for 1 only",
        "exercise 2: a lambda",
        "exercise 2: the solution",
    ]
    assert {outcome for name, outcome in ran[0].items() if name.startswith("01-add-numbers")} == {"PASSED"}


def test_a_check_that_accepts_everything_is_found(ran):
    outcomes, output = ran
    assert outcomes["02-accept-everything.ipynb::exercise 1: adds two"] == "FAILED"
    assert outcomes["02-accept-everything.ipynb::exercise 1: untouched"] == "FAILED"
    assert outcomes["02-accept-everything.ipynb::exercise 1: the solution"] == "PASSED"
    assert "The check calls this wrong answer right." in output
    assert "The untouched exercise: Expected one verdict that begins with 'not done yet'" in output


def test_what_cannot_be_judged_here_is_skipped_with_its_reason(ran):
    outcomes, output = ran
    assert re.search(r"^SKIPPED \[6\] .*: not judged: no GPU$", output, re.MULTILINE)
    own = {outcome for name, outcome in outcomes.items() if name.startswith("05-need-a-gpu")}
    assert own == {"PASSED"}


def test_an_answer_that_ends_the_kernel_is_found_at_once(ran):
    outcomes, output = ran
    assert outcomes["03-end-kernels.ipynb::exercise 1: untouched"] == "PASSED"
    assert outcomes["03-end-kernels.ipynb::exercise 1: ends the kernel"] == "FAILED"
    assert "The kernel ended." in output


def test_a_quick_run_leaves_out_slow_tests_and_pages_in_a_browser(folder):
    output = run_pytest(folder, "--collect-only", "-q")
    assert "test_it.py::test_quick" in output and "2 deselected" in output


def test_what_asks_for_chromium_is_the_browsers_suite(folder):
    output = run_pytest(folder, "--collect-only", "-q", "--all", "-m", "browser")
    assert "test_it.py::test_page" in output and "2 deselected" in output
