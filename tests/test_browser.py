"""The lessons in a real JupyterLab and a real browser: run from the menu, answered, interrupted, restarted."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import browser
import psutil
import pytest
import sample_lesson

from helpers import ROOT
from helpers.commands import lesson_files

SECONDS = 600  # against hanging
# What only a browser shows: the first lesson that a learner opens, a training with Keras, and WebGPU in the page.
# nbval runs the cells of all the others.
LESSONS = lesson_files.find(["00", "04", "14b"])

BUSY = """index => document.querySelectorAll('.jp-Notebook .jp-Cell')[index]
  .querySelector('.jp-InputArea-prompt').innerText.includes('*')"""
RAN = """([index, before]) => { const cell = document.querySelectorAll('.jp-Notebook .jp-Cell')[index];
  const prompt = cell.querySelector('.jp-InputArea-prompt').innerText;
  return prompt !== before && !prompt.includes('*'); }"""
ACTIVE = "index => document.querySelectorAll('.jp-Notebook .jp-Cell')[index].classList.contains('jp-mod-active')"


class Lesson:
    """A lesson that is open in JupyterLab, and what a learner does there with the keyboard and the menus."""

    def __init__(self, tab, path):
        self.tab = tab
        tab.set_default_timeout(SECONDS * 1000)
        self.notebook = lesson_files.read(path)

    def cell(self, index):
        return self.tab.locator(".jp-Notebook .jp-Cell").nth(index)

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

    def answer(self, exercise, code):
        """Write an answer to an exercise, run it and its check; return what the check says, or an error above it."""
        before = self.cell(exercise.check).locator(".jp-InputArea-prompt").inner_text()
        self.write(exercise.cell, code)
        self.press_run(exercise.cell, exercise.check)
        self.tab.wait_for_function(RAN, arg=[exercise.check, before])
        self.tab.wait_for_function(browser.IDLE)
        return self.outputs(exercise.cell) + self.outputs(exercise.check)


def children_of_kernel(folder):
    """Return what the kernel of the server with this scratch folder has started, itself or through others."""
    named = browser.processes_that_name(folder)
    kernels = [process for process in named if "ipykernel_launcher" in process.info["cmdline"]]
    return [child for kernel in kernels for child in kernel.children(recursive=True)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_solved_lesson_runs_and_each_check_says_right(chromium, path, tmp_path):
    notebook = lesson_files.read(path)
    exercises = lesson_files.exercises(notebook)
    for exercise in exercises:
        notebook.cells[exercise.cell].source = exercise.solution
    solved = sample_lesson.save(tmp_path, notebook, path.stem)
    with browser.served(solved) as address, browser.tab_of(chromium) as (tab, complaints, _):
        lesson = Lesson(tab, solved)
        browser.open_lesson(tab, address)
        record = browser.run_cells(tab, notebook, SECONDS)
        browser.photograph(tab, browser.PICTURES / lesson_files.number(path))
        assert (record.noise, record.dialogs) == ([], [])
        assert record.executed == record.cells > 0
        verdicts = {exercise.number: lesson.outputs(exercise.check) for exercise in exercises}
        wrong = {number: text for number, text in verdicts.items() if not re.search(r"^right\b", text, re.M)}
        assert wrong == {}
        for exercise in exercises:
            folded = lesson.cell(exercise.shown).locator("details")
            assert not folded.locator("pre").first.is_visible()
            folded.locator("summary").click()
            folded.locator("pre").first.wait_for(state="visible")
            assert exercise.solution in folded.inner_text()
        assert complaints == []


WORKERS = """from helpers.running import processes

def wait():
    while True:
        pass

processes.run(wait, 2, seconds=600)"""


def test_interrupt_and_restart_leave_a_usable_lesson_and_no_process(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = sample_lesson.save(tmp_path)
    before = path.read_bytes()
    with browser.served(path) as address, browser.tab_of(chromium) as (tab, complaints, _):
        lesson = Lesson(tab, path)
        exercise = lesson_files.exercises(lesson.notebook)[0]

        def start(code):
            lesson.write(exercise.cell, code)
            lesson.press_run(exercise.cell, exercise.cell)
            tab.wait_for_function(BUSY, arg=exercise.cell)

        def started_workers():
            start(WORKERS)
            end = time.monotonic() + SECONDS
            while len(children := children_of_kernel(tmp_path)) < 2:
                assert time.monotonic() < end
                tab.wait_for_timeout(100)
            return children

        def stopped(processes=()):
            tab.wait_for_function(browser.IDLE)
            return psutil.wait_procs(processes, timeout=300)[1] == []

        browser.open_lesson(tab, address)
        record = browser.run_cells(tab, lesson.notebook, SECONDS)
        assert record == browser.PageRecord(cells=12, executed=12)

        start("while True:\n    pass")
        tab.locator("[data-jp-item-name=interrupt] jp-button").click()
        assert stopped() and "KeyboardInterrupt" in lesson.outputs(exercise.cell)

        children = started_workers()
        lesson.cell(exercise.cell).locator(".jp-InputPrompt").click()
        tab.keyboard.press("i")
        tab.keyboard.press("i")
        assert stopped(children) and "Traceback" not in lesson.outputs(exercise.cell)
        assert lesson.answer(exercise, exercise.solution).startswith("right")

        children = started_workers()
        browser.choose(tab, "Kernel", "Restart Kernel and Clear Outputs of All Cells")
        tab.locator(".jp-Dialog button", has_text="Restart").click()
        lesson.cell(exercise.cell).locator(".jp-InputPrompt", has_text="[ ]:").wait_for()
        assert stopped(children)

        lesson.write(exercise.cell, exercise.solution)
        record = browser.run_cells(tab, lesson.notebook, SECONDS)
        assert record == browser.PageRecord(cells=12, executed=12)
        assert lesson.outputs(exercise.check).startswith("right") and complaints == []
        assert children_of_kernel(tmp_path) == []
    assert browser.processes_that_name(tmp_path) == []
    assert [file.name for file in tmp_path.iterdir()] == [path.name] and path.read_bytes() == before


@pytest.mark.skipif(sys.prefix != str(ROOT / ".venv"), reason="workshop.py would set up an environment here")
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_lab_opens_lesson_00_and_leaves_no_process_when_stopped(chromium, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "workshop.py", "lab", "--no-browser", "--port=0"],
        cwd=ROOT,
        text=True,
        start_new_session=True,
        env=os.environ | {"JUPYTERLAB_WORKSPACES_DIR": str(tmp_path), "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = []
    try:
        address = next((line.strip() for line in process.stdout if lines.append(line) or "/lab/tree/" in line), None)
        assert address, "".join(lines)
        with browser.tab_of(chromium) as (tab, complaints, _):
            browser.open_lesson(tab, address)
            assert tab.locator(".jp-Notebook h1").first.inner_text().startswith("Check your setup")
            assert complaints == []
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("ipykernel_launcher" in child.info["cmdline"] for child in browser.processes_that_name(tmp_path))
    finally:
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C in the terminal
        lines += process.communicate(timeout=SECONDS)[0].splitlines(keepends=True)
    assert psutil.wait_procs(family, timeout=300)[1] == []
    assert process.returncode == 0 and list(tmp_path.glob("workshop-*")) == []


def test_what_a_learner_should_not_meet_is_seen_and_an_expected_error_is_not(chromium, tmp_path):
    notebook = sample_lesson.of("[][0]", "import sys", "print('noise', file=sys.stderr)", "1 / 0", "never = 1")
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    path = sample_lesson.save(tmp_path, notebook)
    with browser.served(path) as address, browser.tab_of(chromium) as (tab, _, _):
        browser.open_lesson(tab, address)
        record = browser.run_cells(tab, notebook, SECONDS)
    assert (record.cells, record.executed, record.noise[0], len(record.noise)) == (5, 4, "noise", 2)
    assert "ZeroDivisionError" in record.noise[1]
