"""Open JupyterLab at a lesson: this machine only, with a token, without questions and log lines."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote

from helpers import ROOT
from helpers.commands import files, lesson_files, my_lessons
from helpers.devices.host import Host
from helpers.errors import WorkshopError
from helpers.measure import workload

ADDRESS = "127.0.0.1"
FIRST_PORT = 8888
# A beginner should meet a lesson, not a question about news.
PAGE = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
REDIRECT = """\
<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0;url={address}">
<title>The lessons</title>
<a href="{address}">Open the lessons</a>
"""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("lesson", nargs="?", help="a lesson's number or name (default: the first)")
    parser.add_argument("--profile", choices=list(workload.WORKLOADS), help="how much work the lessons do")
    parser.add_argument(
        "--port", type=_port, help=f"the port to listen on, 0 for any (default: {FIRST_PORT}, or the next free one)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--originals", action="store_true", help="for authors: open notebooks/ itself, not your copies")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a whole number from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Look at the machine quickly, then serve the lessons until Ctrl-C."""
    from helpers import doctor

    if args.profile:
        os.environ[workload.VARIABLE] = args.profile
    workload.current()  # a wrong name is reported now, not in the first cell
    lesson = lesson_files.find([args.lesson] if args.lesson else [])[0]
    if not lesson.is_relative_to(ROOT):
        raise WorkshopError(
            "JupyterLab serves only the workshop's folder.",
            f"{lesson} is somewhere else.",
            "Copy the notebook into the folder notebooks, then repeat the command.",
        )
    if args.port:
        try:
            socket.create_server((ADDRESS, args.port)).close()
        except OSError as error:
            why, step = f"The system says: {error.strerror}.", "Leave out --port; the first free port is then used."
            raise WorkshopError(f"Port {args.port} cannot be used.", why, step) from None
    findings = doctor.examine(quick=True)
    print(doctor.report(findings), flush=True)
    if status := doctor.status(findings):
        return status
    if not args.originals and lesson.parent == lesson_files.FOLDER:
        lesson = own_copy(lesson)
    serve(ROOT, lesson.relative_to(ROOT).as_posix(), args.port, browser=not args.no_browser)
    return 0


def own_copy(lesson: Path) -> Path:
    """Return the learner's copy of a lesson, made now if there is none, and say which lessons have a new edition.

    Where no copy can be written it is the lesson itself: the doctor has said that nothing can be saved here.
    """
    try:
        for sentence in my_lessons.update():
            print(sentence, flush=True)
    except OSError as error:
        mine = my_lessons.FOLDER / lesson.name
        if mine.exists():
            print(f"Some of your own copies cannot be read or written ({error.strerror}); this one is opened.")
            return mine
        print(f"Your own copies cannot be created here ({error.strerror}); this opens the lessons themselves.")
        return lesson
    return my_lessons.FOLDER / lesson.name


def serve(root: Path, lesson: str, port: int | None = None, browser: bool = False) -> None:
    """Run the server until it is stopped by Ctrl-C, SIGTERM or its own menu; then leave nothing behind.

    Args:
        root: the folder to serve.
        lesson: the path in it of the notebook to open first.
        port: where to listen; 0 for any free one, the first free one from 8888 on if None.
        browser: whether to open the page in a browser, where there is a screen.
    """
    early: list[int] = []
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for number in heeded:  # one that comes while the folder is being made waits until it is known what to delete
        signal.signal(number, lambda signum, _: early.append(signum))
    with tempfile.TemporaryDirectory(prefix="workshop-lab-", ignore_cleanup_errors=True) as scratch:
        for number in heeded:  # a window that is closed while the server starts ends this as Ctrl-C does
            signal.signal(number, signal.default_int_handler)
        if early:
            raise KeyboardInterrupt
        isolate(Path(scratch))
        from jupyterlab.labapp import LabApp  # reads the folders that isolate() names when it is imported

        token = secrets.token_hex(24)
        server = LabApp.initialize_server(build_options(root, port, token))
        for number in heeded:
            signal.signal(number, lambda *_: server.stop(from_signal=True))
        address = f"http://{ADDRESS}:{server.port}/lab/tree/{quote(lesson)}?token={token}"
        page = root / "build" / f"open-lab-{server.port}.html"
        with redirect(page, address) if browser and can_open() else contextlib.nullcontext() as written:
            server.io_loop.add_callback(announce, address, written)
            server.start()
    print("\nJupyterLab has stopped.")


def can_open() -> bool:
    """Return whether a browser can open a page of this folder.

    On Linux without a screen Python would open a text browser, here in the terminal; and from WSL a browser of Windows,
    which does not find a file by its name here.
    """
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and not Host.here().wsl
    return True


@contextlib.contextmanager
def redirect(page: Path, address: str) -> Generator[Path | None]:
    """Write a page that leads to the address, and delete it at the end; None where it would not be ours alone.

    Every account of a machine can read a browser's command line, and anybody with the address can run code as the
    learner. So the browser gets a page that this account alone may read. The page is in a folder that is not hidden,
    and not in /tmp: browsers from snap read neither.
    """
    from jupyter_core.paths import secure_write

    try:
        page.parent.mkdir(exist_ok=True)
        with secure_write(str(page)) as file:
            file.write(REDIRECT.format(address=address))
        written = page
    except (OSError, RuntimeError):  # no place to write, or a disk that knows no rights, such as a USB stick's
        written = None
    try:
        yield written
    finally:
        with contextlib.suppress(OSError):
            page.unlink()


def announce(address: str, page: Path | None) -> None:
    """Say where the lessons are, and let a browser open the page that leads there, if there is one."""
    # Windows finds no browser for an address with the signs that it makes of an umlaut: %C3%B6.
    if page and webbrowser.open(str(page) if os.name == "nt" else page.as_uri()):
        print("JupyterLab is ready and opens in your browser. If it doesn't, open this address:")
    else:
        print("JupyterLab is ready. Open this address in a browser:")
    print(f"  {address}\nTo stop it, press Ctrl-C here.", flush=True)


def isolate(scratch: Path) -> None:
    """Keep the server away from the learner's own Jupyter settings, which could move the port or forbid the token.

    Settings that the learner makes here (a dark theme) live beside the packages, and stay; files that belong to one
    run live in `scratch`, and go with it.
    """
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict

    # A Ctrl-C that meets a kernel between two cells would otherwise leave the kernel's words in the terminal.
    silent = get_kernel_dict(["--log-level=CRITICAL"])

    def write(folder: Path) -> Path:
        files.write(folder / "config" / "labconfig" / "page_config.json", json.dumps(PAGE))
        kernel = folder / "data" / "kernels" / "python3"
        kernel.mkdir(parents=True, exist_ok=True)
        for icon in Path(RESOURCES).iterdir():
            shutil.copyfile(icon, kernel / icon.name)  # without its permissions: packages may be read-only
        files.write(kernel / "kernel.json", json.dumps(silent))
        return folder

    try:
        kept = write(Path(sys.prefix) / "var" / "workshop")
    except OSError:  # packages that belong to someone else
        kept = write(scratch)
    folders = {"CONFIG_DIR": kept / "config", "DATA_DIR": kept / "data", "RUNTIME_DIR": scratch / "runtime"}
    folders["PATH"] = kept / "data"  # in a virtual environment its own kernels would come before those of DATA_DIR
    os.environ |= {f"JUPYTER_{name}": str(folder) for name, folder in folders.items()}


def build_options(root: Path, port: int | None, token: str) -> list[str]:
    """Return the server's options; as this process's own they never show in the list of processes."""
    chosen = {
        "ServerApp.ip": ADDRESS,
        "ServerApp.port": FIRST_PORT if port is None else port,
        "ServerApp.port_retries": 100 if port is None else 0,
        "ServerApp.root_dir": root,
        "ServerApp.open_browser": False,
        "ServerApp.log_level": "ERROR",
        "LabApp.log_level": "ERROR",
        "LabApp.news_url": "None",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "IdentityProvider.token": token,
        "KernelManager.transport_encryption": "auto",  # on a shared machine others could listen otherwise
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        chosen["ServerApp.allow_root"] = True
    return [f"--{name}={value}" for name, value in chosen.items()]
