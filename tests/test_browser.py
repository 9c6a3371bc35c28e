"""The lessons in a real JupyterLab and a real browser: run from the menu, answered, interrupted, restarted."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest
import sample_lesson
import test_exercises

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.errors import WorkshopError
from helpers.maintain import screenshots

SECONDS = 600  # against hanging
PICTURES = ROOT / "build" / "screenshots"
LESSONS = lesson_files.every()


@pytest.fixture(scope="module")
def chromium():
    with screenshots.browser() as started:
        yield started


# ---------------------------------------------------------------------------------------- what a learner does


class Lesson:
    """A lesson that is open in JupyterLab, and what a learner does there with the keyboard and the menus."""

    def __init__(self, tab, path):
        self.tab, self.path, self.notebook = tab, path, lesson_files.read(path)
        tab.set_default_timeout(SECONDS * 1000)
        self.complaints = screenshots.complaints(tab)
        self.exercises = lesson_files.exercises(self.notebook)

    def cell(self, index):
        return self.tab.locator(".jp-Notebook .jp-Cell").nth(index)

    def prompt(self, index):
        return self.cell(index).locator(".jp-InputArea-prompt").inner_text()

    def outputs(self, index):
        return "\n".join(self.cell(index).locator(".jp-OutputArea-output").all_inner_texts())

    def write(self, index, code):
        """Replace what stands in a cell, as by pasting: JupyterLab would indent typed lines once more."""
        self.cell(index).locator(".cm-content").click()
        self.tab.keyboard.press("ControlOrMeta+a")
        self.tab.keyboard.insert_text(code)
        written = self.cell(index).locator(".cm-line").all_inner_texts()
        assert "\n".join(line.strip("\n\u200b") for line in written) == code

    def press_run(self, first, last):
        """Press Shift+Enter in the active cell `first` until the cell `last` runs."""
        for index in range(first, last + 1):
            self.tab.wait_for_function(ACTIVE, arg=index)
            self.tab.keyboard.press("Shift+Enter")

    def answers(self, one):
        """Return (name, verdict, code) of each prepared answer to an exercise, the solution last."""
        prepared = test_exercises.answers(one, *test_exercises.prepared(self.path))
        return [(name, verdict, answer.code) for name, (verdict, answer) in prepared.items()]

    def answer(self, one, code):
        """Write an answer to an exercise, run it and its check; return what the check says, or an error above it."""
        before = self.prompt(one.check)
        self.write(one.cell, code)
        self.press_run(one.cell, one.check)
        self.tab.wait_for_function(RAN, arg=[one.check, before])
        self.tab.wait_for_function(screenshots.IDLE)
        self.tab.evaluate(screenshots.DRAWN)
        return self.outputs(one.cell) + self.outputs(one.check)


ACTIVE = "index => document.querySelectorAll('.jp-Notebook .jp-Cell')[index].classList.contains('jp-mod-active')"
FOCUSED = "element => element === document.activeElement"
RAN = """([index, before]) => { const cell = document.querySelectorAll('.jp-Notebook .jp-Cell')[index];
  const prompt = cell.querySelector('.jp-InputArea-prompt').innerText;
  return prompt !== before && !prompt.includes('*'); }"""
BUSY = """index => document.querySelectorAll('.jp-Notebook .jp-Cell')[index]
  .querySelector('.jp-InputArea-prompt').innerText.includes('*')"""


def open_and_run(chromium, path, pictures):
    with screenshots.served(path, "preview") as address, chromium.new_context(**screenshots.WINDOW) as context:
        tab = context.new_page()
        complaints = screenshots.complaints(tab)
        seen = screenshots.run_all(tab, address, lesson_files.read(path), SECONDS)
        screenshots.photograph(tab, pictures)
    assert complaints == []
    return seen


def processes_that_name(folder):
    """Return the processes whose command line names a folder: a server and its kernels name their scratch folder."""
    named = (process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"])
    return [process for process in named if str(folder) in " ".join(process.info["cmdline"])]


def children_of_kernel(folder):
    """Return what the kernel of the server with this scratch folder has started, itself or through others."""
    kernels = [one for one in processes_that_name(folder) if "ipykernel_launcher" in one.info["cmdline"]]
    return [child for kernel in kernels for child in kernel.children(recursive=True)]


def wait_until(tab, wanted):
    """Wait until what happens outside of the page is so, and return it."""
    end = time.monotonic() + SECONDS
    while not (found := wanted()):
        assert time.monotonic() < end, "it never came to that"
        tab.wait_for_timeout(100)
    return found


# ---------------------------------------------------------------------------------------------- the lessons


@pytest.fixture(scope="module")
def lesson(chromium, request):
    """Open a lesson, run all its cells, keep its pictures, and leave it open."""
    path, folder = request.param, PICTURES / request.param.stem[:2]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with screenshots.served(path, "preview") as address, chromium.new_context(**screenshots.WINDOW) as context:
        opened = Lesson(context.new_page(), path)
        opened.seen = screenshots.run_all(opened.tab, address, opened.notebook, SECONDS)
        screenshots.photograph(opened.tab, folder)
        yield opened


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem, indirect=True)
class TestEveryLesson:
    """Each lesson is opened and run once for all of this."""

    def test_every_lesson_runs_from_top_to_bottom_without_noise_or_an_error_of_the_page(self, lesson):
        assert (lesson.seen.noise, lesson.seen.dialogs, lesson.complaints) == ([], [], [])
        assert lesson.seen.executed == lesson.seen.cells > 0

    def test_solutions_are_folded_and_open_by_mouse_and_by_keyboard(self, lesson):
        for one in lesson.exercises:
            folded = lesson.cell(one.shown).locator("details")
            summary, code = folded.locator("summary"), folded.locator("pre").first
            for unfold in (summary.click, lambda: lesson.tab.keyboard.press("Enter")):
                assert not code.is_visible()
                unfold()
                code.wait_for(state="visible")
                assert one.solution in folded.inner_text()
                unfold()
                code.wait_for(state="hidden")
                lesson.cell(one.check).locator(".jp-InputPrompt").click()
                for _ in range(3):  # the cell's own buttons may come first
                    lesson.tab.keyboard.press("Tab")
                    if summary.evaluate(FOCUSED):
                        break
                assert summary.evaluate(FOCUSED)
        assert lesson.complaints == []

    def test_a_wrong_answer_gets_its_message_and_then_the_solution_is_right(self, lesson):
        problems = []
        for one in lesson.exercises:
            given = lesson.answers(one)
            wrong = next(answer for answer in given if answer[1] == "not yet")
            for name, verdict, code in (wrong, given[-1]):
                said = lesson.answer(one, code)
                lesson.cell(one.check).scroll_into_view_if_needed()
                kind = "right" if verdict == "right" else "wrong"
                lesson.tab.screenshot(path=PICTURES / lesson.path.stem[:2] / f"exercise-{one.number}-{kind}.png")
                if "Traceback" in said or not re.search(rf"^{verdict}\b", said, re.MULTILINE):
                    problems.append(f"exercise {one.number}, {name}: expected {verdict!r}, actual {said!r}")
        assert problems == []
        assert lesson.complaints == []


# ---------------------------------------------------------------------------------------------- stopping


LOOP = "while True:\n    pass"
WORKERS = """from helpers import processes

def wait():
    while True:
        pass

processes.run(wait, 2, seconds=600)"""


def never_ends(lesson, one):
    """Return code that computes in other processes without an end: a learner's kernel in its check, or workers."""
    kernels = {name: code for name, _, code in lesson.answers(one)}
    return f"{kernels['never ends']}\n{lesson.notebook.cells[one.check].source}" if "never ends" in kernels else WORKERS


@pytest.mark.parametrize("path", [LESSONS[1], LESSONS[9]], ids=lambda path: path.stem)
def test_interrupt_and_restart_leave_a_usable_lesson_and_no_process(chromium, path, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with screenshots.served(path, "preview") as address, chromium.new_context(**screenshots.WINDOW) as context:
        lesson = Lesson(context.new_page(), path)
        tab, one = lesson.tab, lesson.exercises[0]
        endless = never_ends(lesson, one)

        def start(code):
            lesson.write(one.cell, code)
            lesson.press_run(one.cell, one.cell)
            tab.wait_for_function(BUSY, arg=one.cell)

        def stopped(started=()):
            tab.wait_for_function(screenshots.IDLE)
            return psutil.wait_procs(started, timeout=60)[1] == []

        screenshots.open_lesson(tab, address)
        lesson.cell(one.cell).locator(".jp-InputPrompt").click()
        screenshots.choose(tab, "Run", "Run All Above Selected Cell")
        above = [cell for cell in lesson.notebook.cells[: one.cell] if cell.cell_type == "code"]
        screenshots.wait_for_end(tab, len(above), SECONDS)

        start(LOOP)
        tab.locator("[data-jp-item-name=interrupt] jp-button").click()
        assert stopped() and "KeyboardInterrupt" in lesson.outputs(one.cell)

        start(endless)
        children = wait_until(tab, lambda: children_of_kernel(tmp_path))
        lesson.cell(one.cell).locator(".jp-InputPrompt").click()
        tab.keyboard.press("i")
        tab.keyboard.press("i")
        assert stopped(children) and lesson.outputs(one.cell).startswith("Interrupted: ")  # and no traceback
        assert lesson.answer(one, one.solution).startswith("right")

        start(endless)
        children = wait_until(tab, lambda: children_of_kernel(tmp_path))
        screenshots.choose(tab, "Kernel", "Restart Kernel and Clear Outputs of All Cells")
        tab.locator(".jp-Dialog button", has_text="Restart").click()
        lesson.cell(one.cell).locator(".jp-InputPrompt", has_text="[ ]:").wait_for()
        assert stopped(children)

        lesson.write(one.cell, one.solution)
        seen = screenshots.run_cells(tab, lesson.notebook, SECONDS)
        assert (seen.noise, seen.dialogs, lesson.complaints) == ([], [], [])
        assert seen.executed == seen.cells and lesson.outputs(one.check).startswith("right")
        assert children_of_kernel(tmp_path) == []
    assert processes_that_name(tmp_path) == []


own = pytest.mark.skipif(sys.prefix != str(ROOT / ".venv"), reason="workshop.py would set up an environment here")


@own
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_lab_opens_lesson_00_and_leaves_no_process_when_stopped(chromium, tmp_path):
    before = LESSONS[0].read_bytes()
    process = subprocess.Popen(
        [sys.executable, "workshop.py", "lab", "--no-browser"], cwd=ROOT, text=True, start_new_session=True,
        env=os.environ | {"JUPYTERLAB_WORKSPACES_DIR": str(tmp_path), "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lines = []
    try:
        address = next((line.strip() for line in process.stdout if lines.append(line) or "/lab/tree/" in line), None)
        assert address, "".join(lines)
        with chromium.new_context(**screenshots.WINDOW) as context:
            lesson = Lesson(context.new_page(), LESSONS[0])
            screenshots.open_lesson(lesson.tab, address)
            assert lesson.cell(0).locator("h1").inner_text().startswith("Check your setup")
            lesson.tab.screenshot(path=PICTURES / "lab.png")
            assert lesson.complaints == []
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("ipykernel_launcher" in one.cmdline() for one in family)
    finally:
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C in the terminal
        lines += process.communicate(timeout=SECONDS)[0].splitlines(keepends=True)
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert process.returncode == 0 and lines[-1] == "JupyterLab has stopped.\n"
    assert list(tmp_path.glob("workshop-*")) == [] and LESSONS[0].read_bytes() == before


# ---------------------------------------------------------------------------------------------- the machinery


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


def test_what_a_learner_should_not_meet_is_seen_and_an_expected_error_is_not(chromium, tmp_path):
    notebook = sample_lesson.of("[][0]", "import sys", "print('noise', file=sys.stderr)", "1 / 0", "never = 1")
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    seen = open_and_run(chromium, sample_lesson.save(tmp_path, notebook), tmp_path)
    assert (seen.cells, seen.executed) == (5, 4)
    assert seen.noise[0] == "noise"
    assert len(seen.noise) == 2 and "ZeroDivisionError: division by zero" in seen.noise[1]


def test_what_a_page_complains_of_is_heard(chromium):
    with chromium.new_context() as context:
        said = screenshots.complaints(tab := context.new_page())
        tab.set_content("<script>console.log('fine'); console.error('told'); throw Error('not caught')</script>")
        wait_until(tab, lambda: len(said) == 2)
    assert said == ["told", "not caught"]


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
