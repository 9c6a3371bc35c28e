"""A lesson in JupyterLab and in the machine's own Chromium: served, opened, run from the menu, photographed."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from helpers import ROOT
from helpers.commands import execute, files, lesson_files, lesson_rules
from helpers.measure import workload

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PICTURES = ROOT / "build" / "screenshots"
WINDOW = {"viewport": {"width": 1400, "height": 1300}}  # in pixels
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0  # Chromium refuses root with its sandbox
ARGUMENTS = ["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
if IS_ROOT:
    ARGUMENTS.append("--no-sandbox")
WEBGPU = "--enable-unsafe-webgpu"  # on SwiftShader, where Chromium sees no GPU
OPEN_SECONDS = 120
# On any free port: the server looks for one and binds it later, when a test beside it may have the same one.
SERVE = """
import pathlib, sys
from helpers.commands import lab
lab.serve(pathlib.Path(sys.argv[1]), sys.argv[2], port=0)
"""
# Or cells out of sight stay blank.
SETTINGS = "@jupyterlab/notebook-extension/tracker.jupyterlab-settings", {"windowingMode": "none"}


@dataclass
class PageRecord:
    """What a lesson looked like after *Run All Cells*."""

    cells: int  # code cells that hold code
    executed: int = 0  # those that carry an execution count
    # The text of each error and standard error, which look the same there, outside of cells tagged raises-exception.
    noise: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)  # the text of each dialog or notification that was in the way


def find_browser():
    """Return the path of a Chromium, Chrome or Edge of this machine, None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def started():
    """Start the machine's Chromium, invisibly, and end it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def tab_of(chromium, is_offline=False, **options):
    """Open an empty page; hand over (the page, what it complains of in its console, what it asks of a network)."""
    complaints, asked = [], []

    def refuse(route):
        asked.append(route.request.url)
        route.abort()

    with chromium.new_context(offline=is_offline, **(options or WINDOW)) as context:
        if is_offline:
            context.route(lambda url: not url.startswith(("file:", "data:", "blob:")), refuse)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        yield tab, complaints, asked


@contextlib.contextmanager
def served(path, profile="preview"):
    """Serve a copy of a lesson, without its outputs, in a JupyterLab of its own, and yield its address.

    The learner's settings, workspaces and notebooks stay untouched.
    """
    with tempfile.TemporaryDirectory(prefix="workshop-screenshots-", ignore_cleanup_errors=True) as scratch:
        root, log = Path(scratch) / "workshop", Path(scratch) / "server.log"
        notebook = lesson_files.read(path)
        lesson_files.clear(notebook)
        files.write(root / "notebooks" / path.name, lesson_rules.dump(notebook))
        files.write(Path(scratch) / "settings" / SETTINGS[0], json.dumps(SETTINGS[1]))
        own = {f"JUPYTERLAB_{name.upper()}_DIR": str(Path(scratch) / name) for name in ("settings", "workspaces")}
        own |= {workload.VARIABLE: profile, "TMPDIR": scratch}
        others = {key: value for key, value in os.environ.items() if key not in ("ANYGPU_GRADE", "MPLBACKEND")}
        with log.open("wb") as out:
            server = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(root), f"notebooks/{path.name}"],
                cwd=ROOT,
                env=others | own,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        watch = execute.Watch(psutil.Process(server.pid))
        watch.start()
        try:
            yield _address(server, log)
        finally:
            server.terminate()  # it ends its kernels
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(15)
            watch.close()
            server.wait()


def processes_that_name(words):
    """Return the processes whose command line holds words: a server and its kernels name their scratch folder."""
    named = (process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"])
    return [process for process in named if str(words) in " ".join(process.info["cmdline"])]


def _address(server, log):
    """Wait until the server has said where the lesson is."""
    end = time.monotonic() + OPEN_SECONDS
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"http://\S+(?=\s)", log.read_text(errors="replace")):
            return found.group()
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start: {log.read_text(errors='replace')[-2000:]}")


def open_lesson(tab, address):
    """Open the lesson at `address` in an empty page of the browser, and wait for its kernel."""
    tab.goto(address, timeout=OPEN_SECONDS * 1000)
    tab.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=OPEN_SECONDS * 1000)
    # The status bar names the kernel only once it runs; before that, Run All Cells asks which kernel to take.
    tab.wait_for_selector(".jp-StatusBar-TextItem:has-text('| Idle')", timeout=OPEN_SECONDS * 1000)


def choose(tab, menu, entry):
    """Choose an entry, named by how it begins, of one of JupyterLab's menus."""
    tab.locator(".lm-MenuBar-itemLabel", has_text=menu).first.click()
    tab.locator(".lm-Menu-itemLabel", has_text=entry).first.click()


def run_cells(tab, notebook, seconds):
    """Choose *Run All Cells* in an open lesson none of whose cells has a number, and say what is to be seen then.

    A lesson that takes longer than `seconds`, or ends with an error, shows that in the number of cells that ran.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    choose(tab, "Run", "Run All Cells")
    end, resting = time.monotonic() + seconds, 0
    while time.monotonic() < end and resting < 8 and tab.evaluate(_EXECUTED) < len(code):
        tab.wait_for_timeout(500)
        resting = resting + 1 if tab.evaluate(IDLE) else 0
    tab.evaluate(DRAWN)
    allowed = [index for index, cell in enumerate(code) if "raises-exception" in lesson_files.tags(cell)]
    dialogs = tab.locator(".jp-Dialog-content, .Toastify__toast").all_inner_texts()
    return PageRecord(len(code), tab.evaluate(_EXECUTED), tab.evaluate(_NOISE, allowed), dialogs)


# JavaScript that says how far the open lesson is; cells that run carry [*].
_PROMPTS = "[...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(e => e.innerText)"
_EXECUTED = f"() => {_PROMPTS}.filter(p => /\\[\\d+\\]/.test(p)).length"
IDLE = f"""() => !{_PROMPTS}.some(prompt => prompt.includes('*'))
  && [...document.querySelectorAll('.jp-StatusBar-TextItem')].some(e => e.innerText.includes('| Idle'))"""
# Outputs are drawn after their cell has its number: wait for the images, then for two frames.
DRAWN = """() => Promise.allSettled([...document.images].map(image => image.decode()))
  .then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))"""
_NOISE = """allowed => [...document.querySelectorAll('.jp-CodeCell')]
  .filter((cell, index) => !allowed.includes(index))
  .flatMap(cell => [...cell.querySelectorAll("[data-mime-type='application/vnd.jupyter.stderr']")])
  .map(output => output.innerText.trim())"""


def photograph(tab, folder):
    """Scroll through the open notebook and keep a picture of each part in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    panel = tab.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer").first
    step = panel.evaluate("panel => panel.clientHeight") - 80
    for number, top in enumerate(range(0, max(panel.evaluate("panel => panel.scrollHeight") - 80, 1), step), 1):
        panel.evaluate("(panel, top) => panel.scrollTo(0, top)", top)
        tab.evaluate(DRAWN)
        tab.screenshot(path=folder / f"{number:02d}.png")
