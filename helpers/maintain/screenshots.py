"""Open lessons as a learner does, in JupyterLab and in a real browser, run every cell, and keep pictures of it all."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.commands import execute, files, lesson_files
from helpers.commands.files import short
from helpers.commands.run import BUILD
from helpers.errors import WorkshopError
from helpers.measure import workload

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
    r"C:\\Program Files (x86)\\Microsoft\\Edge\\Application\\msedge.exe",
)
WINDOW = {"viewport": {"width": 1400, "height": 1300}}  # in pixels
OPEN_SECONDS = 120
# Or cells out of sight stay blank.
SETTINGS = "@jupyterlab/notebook-extension/tracker.jupyterlab-settings", {"windowingMode": "none"}


@dataclass
class Seen:
    """What a lesson looked like after *Run All Cells*."""

    cells: int  # code cells that hold code
    executed: int = 0  # those that carry an execution count
    # The text of each error and standard error, which look the same there, outside of cells tagged raises-exception.
    noise: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)  # the text of each dialog or notification that was in the way


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="a number or a name, such as 01; all by default")
    parser.add_argument("--profile", metavar="PROFILE", help=f"how much work: {', '.join(workload.WORKLOADS)}")


def run(args: argparse.Namespace) -> int:
    """Take pictures of the lessons that `args` names; return 0 if every cell ran and nothing noisy was shown."""
    profile = workload.named(args.profile) if args.profile else workload.current()
    paths = lesson_files.find(args.lessons)
    status = 0
    with browser() as chromium:
        for path in paths:
            folder = BUILD / "screenshots" / path.stem[:2]
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with served(path, profile) as address, chromium.new_context(**WINDOW) as context:
                tab = context.new_page()
                said = complaints(tab)
                seen = run_all(tab, address, lesson_files.read(path), execute.CELL_SECONDS[profile])
                pictures = photograph(tab, folder)
            good = seen.executed == seen.cells and not (seen.noise or seen.dialogs or said)
            print(
                f"{path.stem}: {seen.executed} of {seen.cells} code cells ran, {pictures} pictures in {short(folder)}"
            )
            for line in (*seen.noise, *seen.dialogs, *said):
                print(f"    {line.strip()[:300]}")
            status |= not good
    return int(status)


def find_browser() -> str | None:
    """Return the path of a Chromium, Chrome or Edge of this machine, None if there is none."""
    found = [path for path in map(shutil.which, BROWSERS) if path]
    return next(iter([*found, *(place for place in PLACES if Path(place).exists())]), None)


@contextlib.contextmanager
def browser(*more: str) -> Iterator[Browser]:
    """Start the machine's Chromium, invisibly, and end it.

    Args:
        more: further arguments for it, such as --enable-unsafe-webgpu.

    Raises:
        WorkshopError: there is none, or playwright is not installed.
    """
    path = find_browser()
    if path is None:
        raise WorkshopError(
            "No Chromium, Chrome or Edge was found on this machine.",
            "The screenshots are taken in a real browser.",
            "Install one, for example: sudo apt-get install chromium",
        )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise WorkshopError(
            "playwright is not installed.",
            "It comes with the test tools, which the lessons do not need.",
            "Type: python3 workshop.py test   (it installs them)",
        ) from error
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # Chromium refuses root with it
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=[*root, "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", *more]
        )
        try:
            yield started
        finally:
            started.close()


@contextlib.contextmanager
def offline(chromium: Browser) -> Iterator[tuple[BrowserContext, list[str]]]:
    """Hand over (a window without a network, the list of addresses that it asks for in vain)."""
    asked: list[str] = []

    def refuse(route: object) -> None:
        asked.append(route.request.url)
        route.abort()

    with chromium.new_context(offline=True, **WINDOW) as context:
        context.route(lambda url: not url.startswith(("file:", "data:", "blob:")), refuse)
        yield context, asked


@contextlib.contextmanager
def served(path: Path, profile: str) -> Iterator[str]:
    """Serve a copy of the lesson in the file `path`, without its outputs, in a JupyterLab of its own.

    The learner's settings, workspaces and notebooks stay untouched. Yields the address of the lesson.

    Raises:
        WorkshopError: JupyterLab does not start.
    """
    import psutil

    with tempfile.TemporaryDirectory(prefix="workshop-screenshots-", ignore_cleanup_errors=True) as scratch:
        root, log = Path(scratch) / "workshop", Path(scratch) / "server.log"
        _bare_copy(path, root / "notebooks" / path.name)
        files.write(Path(scratch) / "settings" / SETTINGS[0], json.dumps(SETTINGS[1]))
        own = {f"JUPYTERLAB_{name.upper()}_DIR": str(Path(scratch) / name) for name in ("settings", "workspaces")}
        own |= {workload.VARIABLE: profile, "TMPDIR": scratch}
        others = {key: value for key, value in os.environ.items() if key not in ("ANYGPU_GRADE", "MPLBACKEND")}
        code = (
            "import pathlib, sys; from helpers.commands import lab; lab.serve(pathlib.Path(sys.argv[1]), sys.argv[2])"
        )
        with log.open("wb") as out:
            server = subprocess.Popen(
                [sys.executable, "-c", code, str(root), f"notebooks/{path.name}"],
                cwd=ROOT, env=others | own, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
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


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server has said where the lesson is."""
    end = time.monotonic() + OPEN_SECONDS
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"http://\S+(?=\s)", log.read_text(errors="replace")):
            return found.group()
        time.sleep(0.2)
    last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
    raise WorkshopError("JupyterLab did not start.", last, "Type: python3 workshop.py doctor")


def _bare_copy(source: Path, target: Path) -> None:
    from helpers.maintain import rules

    notebook = lesson_files.read(source)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    files.write(target, rules.dump(notebook))


def complaints(tab: Page) -> list[str]:
    """Return a list that grows with each error that the page writes into its console or does not catch."""
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    return said


def open_lesson(tab: Page, address: str) -> None:
    """Open the lesson at `address` in an empty page of the browser, and wait for its kernel."""
    tab.goto(address, timeout=OPEN_SECONDS * 1000)
    tab.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=OPEN_SECONDS * 1000)
    # The status bar names the kernel only once it runs; before that, Run All Cells asks which kernel to take.
    tab.wait_for_selector(".jp-StatusBar-TextItem:has-text('| Idle')", timeout=OPEN_SECONDS * 1000)


def choose(tab: Page, menu: str, entry: str) -> None:
    """Choose an entry, named by how it begins, of one of JupyterLab's menus."""
    tab.locator(".lm-MenuBar-itemLabel", has_text=menu).first.click()
    tab.locator(".lm-Menu-itemLabel", has_text=entry).first.click()


def run_all(tab: Page, address: str, notebook: object, seconds: int) -> Seen:
    """Open the lesson at `address`, choose *Run All Cells* in the menu, wait for its end, and say what is to be seen.

    Args:
        tab: an empty page of the browser.
        address: of the lesson in JupyterLab.
        notebook: the lesson, to know how many cells will run.
        seconds: how long the lesson may take; if it takes longer, that shows in the number of cells that ran.
    """
    open_lesson(tab, address)
    before = _dialogs(tab)
    seen = run_cells(tab, notebook, seconds)
    seen.dialogs = list(dict.fromkeys(before + seen.dialogs))
    return seen


def run_cells(tab: Page, notebook: object, seconds: int) -> Seen:
    """Do the same in a lesson that is open and none of whose cells has a number."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    choose(tab, "Run", "Run All Cells")
    wait_for_end(tab, len(code), seconds)
    allowed = [index for index, cell in enumerate(code) if "raises-exception" in lesson_files.tags(cell)]
    return Seen(len(code), tab.evaluate(_EXECUTED), tab.evaluate(_NOISE, allowed), _dialogs(tab))


def wait_for_end(tab: Page, cells: int, seconds: int) -> None:
    """Wait until so many cells have their number, or until the kernel has rested for 4 s (an error ended the run)."""
    end, resting = time.monotonic() + seconds, 0
    while time.monotonic() < end and resting < 8 and tab.evaluate(_EXECUTED) < cells:
        tab.wait_for_timeout(500)
        resting = resting + 1 if tab.evaluate(IDLE) else 0
    tab.evaluate(DRAWN)


def _dialogs(tab: Page) -> list[str]:
    return tab.locator(".jp-Dialog-content, .Toastify__toast").all_inner_texts()


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


def photograph(tab: Page, folder: Path) -> int:
    """Scroll through the open notebook and keep a picture of each part in `folder`; return how many there are."""
    panel = tab.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer").first
    step = panel.evaluate("panel => panel.clientHeight") - 80
    height = panel.evaluate("panel => panel.scrollHeight")
    count = 0
    for top in range(0, max(height - 80, 1), step):
        panel.evaluate("(panel, top) => panel.scrollTo(0, top)", top)
        tab.evaluate(DRAWN)
        count += 1
        tab.screenshot(path=folder / f"{count:02d}.png")
    return count
