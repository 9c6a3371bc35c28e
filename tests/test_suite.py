"""The suite's own rules: lessons' cells without noise, and slow tests on request alone."""

import os
import re
import subprocess
import sys

import sample_lesson

from helpers import ROOT


def run_pytest(folder, *arguments):
    """Run pytest with the project's conftest over a folder elsewhere; return (status, what it printed)."""
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "conftest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


def test_a_cell_that_writes_to_standard_error_or_does_not_raise_as_it_should_fails(tmp_path):
    notebook = sample_lesson.of("import sys", "print('noise', file=sys.stderr)", "1 / 0", "print('quiet')", "1")
    for number in (2, 3):
        notebook.cells[number].metadata["tags"] = ["raises-exception"]
    sample_lesson.save(tmp_path, notebook)
    status, said = run_pytest(tmp_path, "--nbval-lax", "--nbval-current-env")
    assert status == 1
    passed = [line.rpartition("::")[2] for line in said.splitlines() if line.startswith("PASSED")]
    assert passed == ["Cell 0", "Cell 2", "Cell 4"]
    assert "wrote to standard error" in said and "noise" in said
    assert "tagged raises-exception, and it raised nothing" in said


def test_slow_tests_run_on_request_alone_and_say_so(tmp_path):
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.slow\ndef test_slow(): pass\n", encoding="utf-8")
    assert "slow: python3 workshop.py test --all" in run_pytest(tmp_path)[1]
    assert "1 passed" in run_pytest(tmp_path, "--all")[1]


def test_what_asks_for_chromium_is_the_browsers_suite_and_its_end_says_what_was_proved(tmp_path):
    source = "import pytest\n@pytest.fixture\ndef chromium(): pass\ndef test_other(): pass\n"
    (tmp_path / "test_it.py").write_text(source + "def test_the_page_opens(chromium): pass\n", encoding="utf-8")
    said = run_pytest(tmp_path, "-m", "browser")[1]
    assert "1 deselected" in said and "s  test_it: the page opens (1 " in said  # passed, or skipped without Chromium


def test_what_is_tested_of_one_lesson_stays_on_one_worker(tmp_path):
    ids = [f"{lesson}-{number}" for number in range(4) for lesson in ("00-check-setup", "01-add-numbers")]
    source = f"import pytest\n@pytest.mark.parametrize('x', {ids})\ndef test_it(x): pass\n"
    (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
    _, said = run_pytest(tmp_path, "-v", "--numprocesses=2", "--dist=loadscope")
    ran = set(re.findall(r"\[(gw\d)\].* PASSED .*\[(\d\d)-", said))
    assert len(ran) == 2 and len(dict(ran)) == 2  # two lessons, a worker for each
