"""What all tests share: little work, what is slow on request alone, what stays together, and lessons without noise."""

import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import nbval.plugin
import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("ANYGPU_PROFILE", "preview")
os.environ.setdefault("ANYGPU_PATIENCE", "6")  # lesson 09 limits its own seconds; a timing is never a test's failure
# A shell lets what it starts in the background ignore Ctrl-C, with all its children: tests that press it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two workers end at about the same time if what takes longest begins first; --durations tells what that is.
LONGEST = ("test_exercises", "test_training", "test_checks", "test_workshop", "test_processes", "test_lab")

# They share what one process saw of each backend.
ON_BACKEND = ("test_training", "test_models", "test_lesson_00", "test_lesson_05")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the slow tests too")


@pytest.hookimpl(tryfirst=True)  # before `-m browser` looks at the marks
def pytest_collection_modifyitems(config, items):
    from helpers.maintain import screenshots

    there = importlib.util.find_spec("playwright") and screenshots.find_browser()
    missing = pytest.mark.skip(reason="no Chromium, Chrome or Edge on this machine, or playwright is missing")
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            item.add_marker("slow")
            if not there:
                item.add_marker(missing)
        if item.get_closest_marker("slow") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="slow: python3 workshop.py test --all"))
        if isinstance(item, nbval.plugin.IPyNbCell):
            item.output_timeout = 60  # nbval's own 5 s are too few on a busy machine
    order = {name: number for number, name in enumerate([*LONGEST, "a lesson"])}
    items.sort(key=lambda item: order.get("a lesson" if item.path.suffix == ".ipynb" else item.path.stem, len(order)))


@pytest.fixture(autouse=True)
def _sentences_in_one_line(monkeypatch):
    """Leave printed sentences unbroken, so that tests can look for words that stand side by side."""
    monkeypatch.setattr("helpers.measure.tables.LINE_WIDTH", 10**6)


NOBODY = 65534  # the account without rights, on Linux


@pytest.fixture(scope="session")
def second_account():
    """Return a function that runs code in a Python as another account, with `arguments` as its sys.argv[1:].

    It returns a CompletedProcess. That Python has the standard library alone, for the other account may read neither
    this environment nor perhaps the project. pytest's tmp_path is closed to it, too: see open_folder.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can act as another account")

    def start(python, code, *arguments, timeout=60):
        return subprocess.run(
            [python, "-I", "-c", code, *map(str, arguments)], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
            env={"PATH": os.defpath}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    shared = [shutil.which("python3", path=folder) for folder in ("/usr/local/bin", "/usr/bin")]
    for python in filter(None, [sys._base_executable, *shared]):
        try:
            if start(python, "import os; print(os.geteuid())").stdout.strip() == str(NOBODY):
                return functools.partial(start, python)
        except OSError:  # PermissionError where it lies in a closed folder
            continue
    pytest.skip("another account can start no Python here")


@pytest.fixture
def open_folder():
    """A folder that every account may enter and list, as /home/name is on many machines."""
    folder = Path(tempfile.mkdtemp(prefix="workshop-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter, config):
    """Say after `test --browser` what was proved, and in how many seconds: a line for each test function."""
    if config.option.markexpr != "browser":
        return
    proved = defaultdict(Counter)
    for kind, reports in terminalreporter.stats.items():
        for report in (one for one in reports if isinstance(one, pytest.TestReport)):
            file, _, function = report.location
            row = proved[Path(file).stem, function.partition("[")[0].partition("test_")[2].replace("_", " ")]
            row["seconds"] += report.duration
            row.update([kind] if kind else [])  # set-up and end have none
    terminalreporter.section("proved in the browser")
    for (file, name), row in sorted(proved.items()):
        counts = ", ".join(f"{count} {kind}" for kind, count in row.items() if kind != "seconds")
        terminalreporter.line(f"{row['seconds']:6.0f} s  {file}: {name} ({counts})")
    terminalreporter.line("The pictures are in build/screenshots.")


class ByLesson(LoadScopeScheduling):
    """Keeps together on one worker what a module tests, or what it tests of one lesson.

    --dist=loadgroup would do it, but groups nothing with pytest 9.2: github.com/pytest-dev/pytest-xdist/issues/1386.
    """

    def _split_scope(self, nodeid):
        file, _, test = nodeid.partition("::")
        if Path(file).stem in ON_BACKEND:
            return "on_backend"
        lesson = re.search(r"\[(\d\d-)[a-z]", test)
        return file + lesson.group(1) if lesson else file


def pytest_xdist_make_scheduler(config, log):
    if config.getoption("dist") == "loadscope":
        config.option.loadscopereorder = False  # begin with what takes longest, not with what has most tests
        return ByLesson(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a lesson's cell that wrote to standard error, or should have raised and did not; nbval minds neither."""
    yield
    if isinstance(item, nbval.plugin.IPyNbCell):
        outputs = item.test_outputs or []
        if stderr := "".join(out.text for out in outputs if out.output_type == "stream" and out.name == "stderr"):
            item.raise_cell_error("The cell wrote to standard error", stderr)
        if item.options["check_exception"] and not any(out.output_type == "error" for out in outputs):
            item.raise_cell_error("The cell is tagged raises-exception, and it raised nothing")
