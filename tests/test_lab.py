"""What `lab` refuses before the server starts, and the server itself: its page, its token, its end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import browser
import psutil
import pytest
from jupyter_client import BlockingKernelClient
from waiting import in_the_end

from helpers import ROOT
from helpers.commands import lab

LONG = 300  # seconds: against hanging alone
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
posix = pytest.mark.skipif(os.name != "posix", reason="Windows cannot send Ctrl-C to one process alone")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="screens are told by variables on Linux alone")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["77"], "No lesson called '77'"),
        (["{tmp}/mine.ipynb"], "Copy the notebook"),
        (["--profile", "gigantic"], "gigantic"),
        (["--port", "{port}"], "Leave out --port"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_anything_starts(arguments, words, tmp_path):
    (tmp_path / "mine.ipynb").write_text("{}", encoding="utf-8")
    with socket.create_server((lab.ADDRESS, 0)) as taken:
        arguments = [argument.format(tmp=tmp_path, port=taken.getsockname()[1]) for argument in arguments]
        command = [sys.executable, "-m", "helpers", "lab", "--no-browser", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 2 and words.lower() in done.stderr.lower() and "Traceback" not in done.stderr


@contextmanager
def serving(folder, *arguments, **changes):
    """Start `lab`, with its scratch files in a folder; hand over the address that it printed.

    At the end press Ctrl-C; it must then end cleanly, with its kernels, and leave nothing behind.
    """
    environment = {**os.environ, "TMPDIR": str(folder), **changes}
    before = sorted(folder.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers", "lab", *arguments], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = []
    try:
        address = next((line.strip() for line in process.stdout if lines.append(line) or "/lab/tree/" in line), None)
        assert address, "".join(lines)
        yield address
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        lines += process.communicate(timeout=LONG)[0].splitlines(keepends=True)
    assert psutil.wait_procs(children, timeout=LONG)[1] == []
    assert process.returncode == 0 and lines[-1] == "JupyterLab has stopped.\n"
    printed = "".join(lines)
    assert not [word for word in ("ERROR", "Traceback", "[W ") if word in printed], printed
    assert sorted(folder.iterdir()) == before
    assert not list((ROOT / "build").glob(f"open-lab-{urlsplit(address).port}.html"))


def status(address, **headers):
    """Return the status of the answer to a request."""
    try:
        with DIRECT.open(urllib.request.Request(address, headers=headers), timeout=LONG) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def wait_for_kernel(file):
    """Wait until a kernel answers; without the heartbeat, which gives a kernel that starts slowly up for dead."""
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels(hb=False)
    client.kernel_info(reply=True, timeout=LONG)
    client.stop_channels()


@posix
def test_the_lesson_is_served_with_its_token_alone_on_the_next_free_port_and_ends_cleanly(tmp_path):
    """Beside another server on the usual port, and settings of the learner's own that would forbid the token."""
    (tmp_path / "jupyter_server_config.py").write_text("c.IdentityProvider.token = 'mine'\nc.ServerApp.port = 1\n")
    try:
        usual = socket.create_server((lab.ADDRESS, lab.FIRST_PORT))
    except OSError:  # somebody's lab
        usual = None
    with serving(tmp_path, "--no-browser", "01", JUPYTER_CONFIG_DIR=str(tmp_path)) as address:
        found = urlsplit(address)
        assert found.hostname == lab.ADDRESS and found.port > lab.FIRST_PORT
        assert found.path == "/lab/tree/my-lessons/01-add-vectors-with-opencl.ipynb"
        assert re.fullmatch("token=[0-9a-f]{48}", found.query)
        with DIRECT.open(address, timeout=LONG) as page:
            text = page.read().decode()
            assert page.status == 200 and "JupyterLab" in text and "announcements" in text
        assert status(f"http://{found.netloc}/api/status") == 403
        assert status(f"http://{found.netloc}/api/status?{found.query}") == 200
        assert status(f"http://{found.netloc}/api/status?{found.query}", Host="evil.example") == 403
        with DIRECT.open(f"http://{found.netloc}/api/kernels?{found.query}", b"{}", timeout=LONG) as kernel:
            assert kernel.status == 201
        wait_for_kernel(next(tmp_path.glob("workshop-lab-*/runtime/kernel-*.json")))
        running = [child.info["cmdline"] for child in browser.processes_that_name(tmp_path)]
        kernels = [words for words in running if "ipykernel_launcher" in words]
        assert len(kernels) == 1 and "--log-level=CRITICAL" in kernels[0]
    if usual:
        usual.close()


# Look for a token wherever another account may read, and try each one that was found.
ATTACK = """
import glob, json, os, re, sys, urllib.error, urllib.request
server, *folders = sys.argv[1:]
places = [path for name in ("cmdline", "environ") for path in glob.glob(f"/proc/[0-9]*/{name}")]
places += [os.path.join(top, file) for folder in folders for top, _, files in os.walk(folder) for file in files]
seen = ""
for path in places:
    try:
        if os.path.getsize(path) < 1_000_000:  # larger ones, such as packages for a stick, would take a minute
            with open(path, errors="replace") as file:
                seen += file.read()
    except OSError:
        pass
answers = []
for token in {"none", *re.findall(r"token=(\\w+)", seen)}:
    try:
        answers.append(urllib.request.urlopen(f"{server}/api/kernels?token={token}", b"{}", timeout=600).status)
    except urllib.error.HTTPError as error:
        answers.append(error.code)
print(json.dumps({"page": re.findall(r"file://\\S+open-lab-\\d+.html", seen), "answers": answers}))
"""


@linux
def test_another_account_gets_no_kernel_while_a_browser_shows_the_lessons(second_account, open_folder):
    """Its command line is read as anybody may read it; the page that it names is not."""
    waits = f"'{sys.executable}' -c 'import time; time.sleep({LONG})' %s &"  # as a browser that stays open
    with serving(open_folder, "--port=0", "01", DISPLAY=":77", BROWSER=waits) as address:
        found = urlsplit(address)
        page = ROOT / "build" / f"open-lab-{found.port}.html"
        assert address in page.read_text(encoding="utf-8") and page.stat().st_mode & 0o777 == 0o600
        assert in_the_end(lambda: browser.processes_that_name(page.as_uri()))
        done = second_account(ATTACK, f"http://{found.netloc}", page.parent, open_folder)
        for viewer in browser.processes_that_name(page.as_uri()):
            viewer.kill()
        assert done.stderr == ""
        found_by_another = json.loads(done.stdout)
        assert page.as_uri() in found_by_another["page"] and set(found_by_another["answers"]) == {403}


@linux
@pytest.mark.parametrize(("screen", "wsl", "opens"), [(":0", False, True), ("", False, False), (":0", True, False)])
def test_a_page_is_opened_where_there_is_a_screen_and_its_browser_finds_files(screen, wsl, opens, monkeypatch):
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("helpers.devices.host.Host.here", lambda: SimpleNamespace(wsl=wsl))
    assert lab.can_open() == opens


def test_the_address_alone_is_printed_where_no_page_can_be_this_accounts_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lab.webbrowser, "open", lambda address: True)
    with lab.redirect(tmp_path / "build" / "page.html", "http://here") as page:
        lab.announce("http://here", page)
        assert "opens in your browser" in capsys.readouterr().out
    assert not page.exists()
    (tmp_path / "file").touch()
    monkeypatch.setattr("jupyter_core.paths.get_file_mode", lambda name: 0o755)  # a stick's file system has no rights
    for folder in ("file", "build"):
        with lab.redirect(tmp_path / folder / "page.html", "http://here") as page:
            lab.announce("http://here", page)
        printed = capsys.readouterr().out
        assert page is None and "opens in your browser" not in printed and "  http://here\n" in printed
    assert list((tmp_path / "build").iterdir()) == []


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP] if os.name == "posix" else [])
def test_a_window_that_is_closed_while_the_server_starts_leaves_nothing_behind(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers", "lab", "--no-browser"], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    in_the_end(lambda: list(tmp_path.glob("workshop-lab-*")) or process.poll() is not None)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=LONG)
    assert process.returncode in (0, 130) and "Traceback" not in printed, printed
    assert list(tmp_path.iterdir()) == []


def test_only_this_machine_and_never_without_a_token():
    chosen = lab.build_options(ROOT, None, "abc")
    assert "--ServerApp.ip=127.0.0.1" in chosen and "--IdentityProvider.token=abc" in chosen
    assert "--KernelManager.transport_encryption=auto" in chosen  # what kernels print is for this account alone
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    assert ("--ServerApp.allow_root=True" in chosen) == root


@pytest.mark.parametrize("prefix", ["packages", "a file"])
def test_the_learners_own_settings_are_out_of_the_way_and_those_made_here_stay(prefix, tmp_path, monkeypatch):
    """They live beside the packages, unless those belong to somebody else."""
    (tmp_path / "a file").write_text("so that no folder can be made in it", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "PATH"):
        monkeypatch.setenv(f"JUPYTER_{name}", "the learner's own")
    lab.isolate(tmp_path / "scratch")
    kept = tmp_path / ("packages" if prefix == "packages" else "scratch")
    page = Path(os.environ["JUPYTER_CONFIG_DIR"], "labconfig/page_config.json")
    assert "announcements" in page.read_text(encoding="utf-8") and page.is_relative_to(kept)
    assert Path(os.environ["JUPYTER_RUNTIME_DIR"]).is_relative_to(tmp_path / "scratch")
