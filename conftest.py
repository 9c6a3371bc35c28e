"""What all tests share: little work, what a quick run leaves out, what stays together, and lessons without noise."""

import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import nbval.plugin
import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("ANYGPU_PROFILE", "preview")
os.environ.setdefault("ANYGPU_PATIENCE", "6")  # lesson 09 limits its own seconds; a timing is never a test's failure
# A shell lets what it starts in the background ignore Ctrl-C, with all its children: tests that press it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Hypothesis fails an example of more than 0.2 s otherwise, and a busy machine makes any of them that slow.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# Workers end at about the same time if what takes longest begins first; --durations tells what that is.
LONGEST = ("test_exercises", "test_training", "test_workshop", "test_trace", "test_suite", "test_tile", "test_checks")

# They share what one process saw of each backend.
ON_BACKEND = ("test_training", "test_lesson_00", "test_lesson_05")

LEFT_OUT = pytest.StashKey[str]()


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the slow tests too")


def pytest_configure(config):
    config.pluginmanager.register(UnchangedLessons(config), "unchanged lessons")
    if hasattr(config, "workerinput") or config.getoption("dist") == "no":
        # nbval kills its kernels, and what is killed leaves its temporary files: 13 MB a run.
        folder = tempfile.TemporaryDirectory(prefix="workshop-test-", ignore_cleanup_errors=True)
        os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder.name))
        config.add_cleanup(folder.cleanup)
        if os.name == "posix":
            let_kernels_listen_on_files(folder.name)


def let_kernels_listen_on_files(folder):
    """Let the kernels of nbval and of `execute` talk through files in a folder, not through ports.

    jupyter_client takes a free port, lets it go and tells the kernel; of two processes that start kernels both may take
    the same one. Where it is the port for outputs, ipykernel 7.4 runs on without ever answering: a test waits in vain.
    """
    from helpers.commands import execute

    def on_files(manager):
        # Their place must be whole: it is read in the kernel's folder, too.
        return lambda **options: manager(
            transport="ipc", connection_file=str(Path(tempfile.mkdtemp(dir=folder), "kernel.json")), **options
        )

    nbval.kernel.KernelManager, execute.manager = on_files(nbval.kernel.KernelManager), on_files(execute.manager)


@pytest.hookimpl(tryfirst=True)  # before `-m browser` looks at the marks
def pytest_collection_modifyitems(config, items):
    from tests import browser

    there = importlib.util.find_spec("playwright") and browser.find_browser()
    missing = pytest.mark.skip(reason="no Chromium, Chrome or Edge on this machine, or playwright is missing")
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            item.add_marker("slow")
            if not there:
                item.add_marker(missing)
        if isinstance(item, nbval.plugin.IPyNbCell):
            item.output_timeout = 600  # nbval's own 5 s are too few on a busy machine
    order = {name: number for number, name in enumerate([*LONGEST, "a lesson"])}
    items.sort(key=lambda item: order.get("a lesson" if item.path.suffix == ".ipynb" else item.path.stem, len(order)))
    unchanged = config.pluginmanager.get_plugin("unchanged lessons").among(items)
    if not config.getoption("--all"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow + unchanged)
        left_out = {*slow, *unchanged}
        items[:] = [item for item in items if item not in left_out]
        parts = {config.pluginmanager.get_plugin("unchanged lessons").part(item.nodeid) for item in unchanged}
        lessons = ", ".join(sorted({part.partition(" of ")[2].partition("-")[0] for part in parts}))
        what = [f"{len(slow):,} slow tests"] * bool(slow)
        what += [f"lessons {lessons}, which passed and which no change has reached since"] * bool(unchanged)
        config.stash[LEFT_OUT] = " and ".join(what)
        getattr(config, "workeroutput", {})["left out"] = config.stash[LEFT_OUT]


def pytest_testnodedown(node):
    """Take over what a worker of pytest-xdist left out; the controller itself collects nothing."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", "")


class UnchangedLessons:
    """Knows the lessons that passed, in pytest's cache, and leaves them out of a quick run until a change reaches them.

    A lesson has two parts: its cells, and what its checks say to answers (test_exercises). What is named runs always: a
    part by its file, anything with `-k`.
    """

    PASSED = "anygpu/passed lessons"

    def __init__(self, config):
        self.config = config
        self.failed, self.passed, self.tests = set(), Counter(), Counter()

    @functools.cached_property
    def fingerprints(self):
        from tests import import_graph

        notebooks = import_graph.lesson_files.FOLDER.glob("*.ipynb")
        return {notebook.stem: import_graph.fingerprint(notebook) for notebook in notebooks}

    def part(self, nodeid):
        """Return which part of which lesson a test belongs to, such as "cells of 01-add-vectors", or ""."""
        path, _, test = nodeid.partition("::")
        file = Path(path)
        if file.suffix == ".ipynb":
            return f"cells of {file.stem}"
        if file.stem == "test_exercises":
            lessons = (stem for stem in self.fingerprints if re.search(rf"\[{re.escape(stem)}[-\]]", test))
            return next((f"answers of {stem}" for stem in lessons), "")
        return ""

    @functools.cached_property
    def unchanged(self):
        """The parts that a quick run leaves out."""
        if hasattr(self.config, "workerinput"):
            return self.config.workerinput["unchanged"]
        if self.config.getoption("--all") or self.config.option.keyword or not hasattr(self.config, "cache"):
            return []
        passed = self.config.cache.get(self.PASSED, {})
        named = {Path(argument.partition("::")[0]).stem for argument in self.config.args}
        return [
            part
            for stem, fingerprint in self.fingerprints.items()
            for part, file in ((f"cells of {stem}", stem), (f"answers of {stem}", "test_exercises"))
            if fingerprint and file not in named and passed.get(part) == fingerprint
        ]

    def among(self, items):
        return [item for item in items if self.part(item.nodeid) in self.unchanged]

    def pytest_configure_node(self, node):
        node.workerinput["unchanged"] = self.unchanged

    def pytest_sessionstart(self):
        if not hasattr(self.config, "workerinput"):
            self.fingerprints  # noqa: B018, before anything runs: what is changed meanwhile was not tested

    def pytest_collection_finish(self, session):
        self.tests = Counter(self.part(item.nodeid) for item in session.items)

    def pytest_xdist_node_collection_finished(self, ids):
        self.tests = Counter(map(self.part, ids))

    def pytest_runtest_logreport(self, report):
        if part := self.part(report.nodeid):
            self.passed[part] += report.when == "call" and report.passed
            self.failed |= {part} if report.failed else set()

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workerinput") or not hasattr(self.config, "cache") or not self.passed:
            return
        passed, option = self.config.cache.get(self.PASSED, {}), self.config.option
        chosen = option.keyword or option.markexpr or option.deselect or option.lf or option.stepwise
        chosen = chosen or any("::" in argument for argument in self.config.args)
        for part, count in self.passed.items():
            whole = not chosen and part not in self.failed and count == self.tests[part]
            passed[part] = self.fingerprints.get(part.partition(" of ")[2]) if whole else None
        self.config.cache.set(self.PASSED, passed)


@pytest.fixture(scope="module")  # not longer: while it runs, nothing else of its process can use asyncio
def chromium():
    """The machine's own Chromium, without a window."""
    from tests import browser

    with browser.started() as browser_of_this_module:
        yield browser_of_this_module


@pytest.fixture(autouse=True)
def _unbroken_and_not_graded(monkeypatch):
    """Leave printed sentences unbroken, so that words stand side by side, and grade only where a test asks for it."""
    monkeypatch.setattr("helpers.errors.LINE_WIDTH", 10**6)
    monkeypatch.delenv("ANYGPU_GRADE", raising=False)


NOBODY = 65534  # the account without rights, on Linux


@pytest.fixture(scope="session")
def second_account():
    """Return a function that runs code in a Python as another account, with `arguments` as its sys.argv[1:].

    It returns a CompletedProcess. That Python has the standard library alone, for the other account may read neither
    this environment nor perhaps the project. pytest's tmp_path is closed to it, too: see open_folder.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can act as another account")

    def start(python, code, *arguments, timeout=600):
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
    """Say what was left out."""
    if left_out := config.stash.get(LEFT_OUT, ""):
        terminalreporter.section("a quick run")
        terminalreporter.line(f"Left out: {left_out}. Everything: python3 workshop.py test --all")


class ByLesson(LoadScopeScheduling):
    """Keeps together on one worker what a module tests, or what it tests of one lesson.

    --dist=loadgroup would do it, but groups nothing with pytest 9.2: github.com/pytest-dev/pytest-xdist/issues/1386.
    """

    def _split_scope(self, nodeid):
        file, _, test = nodeid.partition("::")
        if Path(file).stem in ON_BACKEND:
            return "on_backend"
        lesson = re.search(r"\[(\d\d[a-z]?-)[a-z]", test)
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
