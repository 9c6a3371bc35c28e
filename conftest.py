"""What all tests share: little work, what is slow on request alone, what stays together, and lessons without noise."""

import os
from pathlib import Path

import nbval.plugin
import pytest

os.environ.setdefault("ANYGPU_PROFILE", "preview")

# Two workers end at about the same time if what takes longest begins first; --durations tells what that is.
LONGEST = ("test_workshop", "test_processes", "test_training", "test_lab", "test_exercises", "test_data", "test_run")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the slow tests too")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="slow: python3 workshop.py test --all"))
        if not item.get_closest_marker("xdist_group"):
            lesson = getattr(item, "callspec", None) and item.callspec.params.get("lesson")
            of = f" {lesson.stem}" if isinstance(lesson, Path) else ""
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}{of}"))
        if isinstance(item, nbval.plugin.IPyNbCell):
            item.output_timeout = 60  # nbval's own 5 s are too few on a busy machine
    order = {name: number for number, name in enumerate([*LONGEST, "a lesson"])}
    items.sort(key=lambda item: order.get("a lesson" if item.path.suffix == ".ipynb" else item.path.stem, len(order)))


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
