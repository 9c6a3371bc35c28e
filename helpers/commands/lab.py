"""Open JupyterLab at a lesson: this machine only, with a token, without questions and log lines."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import webbrowser
from pathlib import Path
from urllib.parse import quote

from helpers import ROOT, workload
from helpers.commands import lesson_files
from helpers.errors import WorkshopError

ADDRESS = "127.0.0.1"
FIRST_PORT = 8888
# A beginner should meet a lesson, not a question about news.
DISABLED = {"@jupyterlab/apputils-extension:announcements": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("lesson", nargs="?", help="a lesson's number or name (default: the first)")
    parser.add_argument("--profile", choices=list(workload.PROFILES), help="how much work the lessons do")
    parser.add_argument("--port", type=int, help=f"the port to listen on (default: {FIRST_PORT}, or the next free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(args: argparse.Namespace) -> int:
    """Look at the machine quickly, then serve the lessons until Ctrl-C."""
    from helpers.machine import doctor

    if args.profile:
        os.environ[workload.VARIABLE] = args.profile
    workload.current()  # a wrong name is told now, not in the first cell
    lesson = lesson_files.find([args.lesson] if args.lesson else [])[0]
    with take_port(args.port) as listening:
        findings = doctor.examine(quick=True)
        print(doctor.report(findings), flush=True)
        if doctor.status(findings):
            return doctor.status(findings)
        port = listening.getsockname()[1]
        if port != (args.port or FIRST_PORT):
            print(f"Port {FIRST_PORT} is in use, so this server takes {port}.")
        return serve(lesson, listening, browser=not args.no_browser and has_browser())


def take_port(wanted: int | None) -> socket.socket:
    """Return a socket that listens on the port that was asked for, or else on the first free one from 8888 on.

    It listens at once, so that another server, started in the same moment, cannot take the same port.

    Raises:
        WorkshopError: the port that was asked for is in use or not allowed, or none is free.
    """
    for port in [wanted] if wanted else range(FIRST_PORT, FIRST_PORT + 100):
        listening = socket.socket()
        if os.name == "posix":  # a port that a server has just left may be taken again
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
            listening.listen(128)
        except (OSError, OverflowError) as error:
            listening.close()
            reason = str(error)
        else:
            listening.setblocking(False)
            return listening
    raise WorkshopError(
        f"Port {wanted} cannot be used." if wanted else "No free port was found.",
        f"This machine says: {reason}",
        "Leave --port out to take the next free one, or name another port from 1024 to 65535.",
    )


def has_browser() -> bool:
    """Say whether this machine can show a page: a screen, and a browser that is no text browser."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def serve(lesson: Path, listening: socket.socket, browser: bool) -> int:
    """Run the server until it is told to stop by Ctrl-C, SIGTERM or its own menu; then leave nothing behind.

    Args:
        lesson: the notebook to open first.
        listening: a socket that listens, as take_port() returns it.
        browser: whether to open the page in a browser.
    """
    port, token = listening.getsockname()[1], secrets.token_hex(24)
    path = quote(lesson.relative_to(ROOT).as_posix())
    address = f"http://{ADDRESS}:{port}/lab/tree/{path}?token={token}"
    with tempfile.TemporaryDirectory(prefix="workshop-lab-", ignore_cleanup_errors=True) as scratch:
        isolate(Path(scratch))
        # This compiles a grammar of addresses, half of the time that Jupyter takes to start. Only the checks of events
        # use it, and they go on without it.
        sys.modules.setdefault("rfc3987_syntax", None)
        from jupyterlab.labapp import LabApp  # reads the folders that isolate() names when it is imported

        LabApp.serverapp_class = server_class(listening)
        server = LabApp.initialize_server(options(port, token))
        server.log.addFilter(lambda record: "stopping" not in str(record.msg))  # what stop() says in its own words

        def stop(number: int, _: object) -> None:
            server.stop(from_signal=True)

        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), stop)
        server.io_loop.add_callback(announce, address, browser)
        server.start()
    print("\nJupyterLab has stopped.")
    return 0


def server_class(listening: socket.socket) -> type:
    """Return Jupyter's server, made to listen on a socket that is already there.

    Jupyter looks for a free port first and takes it a second later, when another server may have it.
    """
    from jupyter_server.serverapp import ServerApp

    class Server(ServerApp):
        def _find_http_port(self) -> None:
            """Leave the port as it is: it is ours."""

        def _bind_http_server_tcp(self) -> bool:
            self.http_server.add_sockets([listening])
            return True

    return Server


def announce(address: str, browser: bool) -> None:
    """Say where the lessons are, and open them there if there is a browser."""
    # The page's address itself, not a file that redirects to it: packaged browsers cannot read hidden folders.
    opened = browser and webbrowser.open(address)
    print("JupyterLab is ready" + (" and opens in your browser." if opened else ". Open this address in a browser:"))
    print(f"  {address}\nCtrl-C here stops it.", flush=True)


def isolate(scratch: Path) -> None:
    """Keep the server away from the learner's own Jupyter settings, which could move the port or forbid the token.

    Settings that the learner makes here (a dark theme) live beside the packages, and stay; files that belong to one
    run live in `scratch`, and go with it.
    """
    kept = Path(sys.prefix) / "var" / "workshop"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=kept).close()
    except OSError:  # packages that belong to someone else
        kept = scratch
    config = kept / "config"
    (config / "labconfig").mkdir(parents=True, exist_ok=True)
    page = config / "labconfig" / "page_config.json"
    page.write_text(json.dumps({"disabledExtensions": DISABLED}), encoding="utf-8")
    os.environ["JUPYTER_CONFIG_DIR"] = str(config)
    os.environ["JUPYTER_DATA_DIR"] = str(kept / "data")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(scratch / "runtime")
    home = os.path.expanduser("~")  # noqa: PTH111  (Path.home() raises where there is none)
    if not (os.path.isdir(home) and os.access(home, os.W_OK)):  # noqa: PTH112
        os.environ.setdefault("IPYTHONDIR", str(scratch / "ipython"))
        os.environ.setdefault("MPLCONFIGDIR", str(scratch / "matplotlib"))


def options(port: int, token: str) -> list[str]:
    """Return the server's options; as this process's own they never show in the list of processes."""
    chosen = {
        "ServerApp.ip": ADDRESS,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": ROOT,
        "ServerApp.open_browser": False,
        "ServerApp.log_level": "ERROR",
        "LabApp.log_level": "ERROR",
        "LabApp.news_url": "None",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "IdentityProvider.token": token,
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        chosen["ServerApp.allow_root"] = True
    from jupyter_client import KernelManager

    if KernelManager.class_traits().get("transport_encryption"):  # on a shared machine others could listen otherwise
        chosen["KernelManager.transport_encryption"] = "auto"
    return [f"--{name}={value}" for name, value in chosen.items()]
