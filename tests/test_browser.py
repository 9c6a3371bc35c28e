"""The lessons in a real JupyterLab and a real browser, run by *Run All Cells*."""

import importlib.util
import subprocess
import sys
import tempfile

import psutil
import pytest
import sample_lesson

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.errors import WorkshopError
from helpers.maintain import screenshots

needs_a_browser = pytest.mark.skipif(
    screenshots.find_browser() is None or importlib.util.find_spec("playwright") is None,
    reason="no Chromium, Chrome or Edge on this machine, or playwright is missing",
)
SECONDS = 600  # against hanging
LESSONS = [
    pytest.param(path, id=path.stem, marks=() if path.stem.startswith("00") else pytest.mark.slow)
    for path in lesson_files.every()
]


@pytest.fixture(scope="module")
def chromium():
    with screenshots.browser() as started:
        yield started


def open_and_run(chromium, path, pictures, seconds=SECONDS):
    with screenshots.served(path, "preview") as address, chromium.new_context(**screenshots.WINDOW) as context:
        tab = context.new_page()
        seen = screenshots.run_all(tab, address, lesson_files.read(path), seconds)
        screenshots.photograph(tab, pictures)
    return seen


def processes_that_name(folder):
    """Return the processes whose command line names a folder: a server and its kernels name their scratch folder."""
    named = (process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"])
    return [process for process in named if str(folder) in " ".join(process.info["cmdline"])]


@needs_a_browser
def test_a_lesson_runs_from_the_menu_without_noise_and_leaves_nothing_behind(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = sample_lesson.save(tmp_path)
    before = path.read_bytes()
    (tmp_path / "pictures").mkdir()
    seen = open_and_run(chromium, path, tmp_path / "pictures")
    assert seen == screenshots.Seen(cells=12, executed=12)
    pictures = list((tmp_path / "pictures").iterdir())
    assert len(pictures) >= 3 and all(picture.stat().st_size > 20_000 for picture in pictures)
    assert path.read_bytes() == before
    assert processes_that_name(tmp_path) == []
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name, "pictures"]


@needs_a_browser
def test_what_a_learner_should_not_meet_is_seen_and_an_expected_error_is_not(chromium, tmp_path):
    notebook = sample_lesson.of("[][0]", "import sys", "print('noise', file=sys.stderr)", "1 / 0", "never = 1")
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    seen = open_and_run(chromium, sample_lesson.save(tmp_path, notebook), tmp_path)
    assert (seen.cells, seen.executed) == (5, 4)
    assert seen.noise[0] == "noise"
    assert len(seen.noise) == 2 and "ZeroDivisionError: division by zero" in seen.noise[1]


@needs_a_browser
@pytest.mark.slow  # nbval has run each lesson; what the browser alone sees, the sample lessons show
@pytest.mark.parametrize("lesson", LESSONS)
def test_every_lesson_runs_in_jupyterlab(chromium, lesson, tmp_path):
    seen = open_and_run(chromium, lesson, tmp_path)
    assert (seen.noise, seen.dialogs) == ([], [])
    assert seen.executed == seen.cells > 0


@needs_a_browser
def test_a_page_that_asks_for_the_network_is_caught(chromium, tmp_path):
    file = tmp_path / "page.html"
    file.write_text('<img src="https://example.org/a.png">')
    with screenshots.offline(chromium) as (context, asked):
        context.new_page().goto(file.as_uri())
    assert asked == ["https://example.org/a.png"]


def test_without_a_browser_one_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(screenshots, "PLACES", ())
    with pytest.raises(WorkshopError, match="No Chromium") as told, screenshots.browser():
        pass
    assert "apt-get install chromium" in str(told.value)


def test_the_command_refuses_an_unknown_lesson_in_one_message():
    command = [sys.executable, "-m", "helpers", "screenshots", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no lesson called 'nonsense'" in done.stdout + done.stderr
