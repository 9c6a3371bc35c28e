"""What all tests share. Each part says why it is here."""

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import nbval.kernel
import nbval.plugin
import pytest
from xdist.scheduler import LoadFileScheduling

# Little work, and no patience: lesson 09 limits its own seconds, and a slow machine is never a test's failure.
os.environ.setdefault("ANYGPU_PROFILE", "preview")
os.environ.setdefault("ANYGPU_PATIENCE", "6")
# A shell lets what it starts in the background ignore Ctrl-C, with all its children: tests that press it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Hypothesis fails an example of more than 0.2 s otherwise, and a busy machine makes any of them that slow.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# Workers end at about the same time if what takes longest begins first; --durations tells what that is.
LONGEST = ("test_workshop", "test_browser", "test_training", "test_trace", "test_checks", "a lesson")

# These files share what one process saw of each Keras backend (tests/on_backend.py): 50 processor seconds.
ON_BACKEND = ("test_training", "test_lesson_00", "test_lesson_05")


def pytest_addoption(parser):
    """Add --all, without which tests are left out that take long or need what is slow, and --every-driver."""
    parser.addoption("--all", action="store_true", help="run the slow tests too")
    parser.addoption("--every-driver", action="store_true", help="try all of tests/kernels.toml on each OpenCL driver")


def pytest_configure(config):
    """Give each process of the tests a temporary folder: nbval kills its kernels, which then leave 13 MB a run."""
    if hasattr(config, "workerinput") or config.getoption("dist") == "no":
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


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Let nbval collect a notebook by our own rules, and with the answers to its exercises: tests/lesson_items.py."""
    from tests import lesson_items

    found = yield
    return [
        lesson_items.LessonFile.from_parent(parent, path=file_path)
        if isinstance(collector, nbval.plugin.IPyNbFile)
        else collector
        for collector in found
    ]


@pytest.hookimpl(tryfirst=True)  # before `-m browser` looks at the marks
def pytest_collection_modifyitems(config, items):
    """Mark what asks for a browser, begin with what takes longest, and leave slow tests out of a quick run."""
    from tests import browser

    is_browser_here = importlib.util.find_spec("playwright") and browser.find_browser()
    missing = pytest.mark.skip(reason="no Chromium, Chrome or Edge on this machine, or playwright is missing")
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            item.add_marker("slow")
            if not is_browser_here:
                item.add_marker(missing)
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get("a lesson" if item.path.suffix == ".ipynb" else item.path.stem, len(order)))
    if not config.getoption("--all"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="module")  # not longer: while it runs, nothing else of its process can use asyncio
def chromium():
    """The machine's own Chromium, without a window."""
    from tests import browser

    with browser.started() as browser_of_this_module:
        yield browser_of_this_module


@pytest.fixture(scope="module")
def one_context():
    """Let all kernels of a module share an OpenCL context: PoCL reads its library anew for a lone one, for 0.4 s."""
    import pyopencl as cl

    new_context, contexts = cl.Context, {}

    def share(devices):
        if tuple(devices) not in contexts:
            contexts[tuple(devices)] = new_context(devices)
        return contexts[tuple(devices)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl, "Context", share)
        yield


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
            [python, "-I", "-c", code, *map(str, arguments)],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    shared = [shutil.which("python3", path=folder) for folder in ("/usr/local/bin", "/usr/bin")]
    for python in filter(None, [sys._base_executable, *shared]):
        try:
            if start(python, "import os; print(os.geteuid())").stdout.strip() == str(NOBODY):
                return functools.partial(start, python)
        except OSError:  # PermissionError where it lies in a closed folder
            continue
    pytest.skip("another account can start no Python here")


@pytest.fixture(scope="module")
def queue():
    """Yield a command queue of the lessons' OpenCL device."""
    import pyopencl as cl

    from helpers.devices import opencl

    context = cl.Context([opencl.pick_device()])  # held: Intel's driver ends one that its queue alone holds
    yield cl.CommandQueue(context)


@pytest.fixture
def open_folder():
    """A folder that every account may enter and list, as /home/name is on many machines."""
    folder = Path(tempfile.mkdtemp(prefix="workshop-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class ByFile(LoadFileScheduling):
    """Keeps the tests of a file on one worker, and those of the files in ON_BACKEND, too."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "on_backend" if Path(file).stem in ON_BACKEND else file


def pytest_xdist_make_scheduler(config, log):
    """Use it where `workshop.py test` asks for whole files."""
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None
