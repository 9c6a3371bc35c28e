"""What `lab` refuses before the server starts, and the server itself: its page, its token, its end."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helpers import ROOT
from helpers.commands import lab

LONG = 300  # seconds: against hanging alone
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def taken():
    """A port on which something listens."""
    with socket.create_server((lab.ADDRESS, 0)) as server:
        yield server.getsockname()[1]


def run(*arguments, **changes):
    return subprocess.run(
        [sys.executable, "-m", "helpers", "lab", "--no-browser", *arguments],
        cwd=ROOT, env={**os.environ, **changes}, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip


def test_a_port_in_use_is_refused_when_it_was_asked_for(taken):
    done = run("--port", str(taken))
    assert done.returncode == 2 and f"Port {taken} cannot be used" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_does_not_exist_is_refused(port):
    done = run(f"--port={port}")
    assert done.returncode == 2 and "cannot be used" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_lesson_is_refused():
    done = run("77")
    assert done.returncode == 2 and "no lesson called '77'" in done.stderr.lower()


def test_a_notebook_outside_of_the_workshop_is_refused(tmp_path):
    (tmp_path / "mine.ipynb").write_text("{}", encoding="utf-8")
    done = run(str(tmp_path / "mine.ipynb"))
    assert done.returncode == 2 and "Copy the notebook" in done.stderr


def test_an_unknown_profile_is_refused():
    assert run("--profile", "gigantic").returncode == 2
    done = run(ANYGPU_PROFILE="gigantic")
    assert done.returncode == 2 and "There is no workload called 'gigantic'" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_the_lesson_is_served_with_its_token_alone_on_the_next_free_port_and_ends_cleanly(tmp_path):
    """Beside another server on the usual port, and settings of the learner's own that would forbid the token."""
    (tmp_path / "jupyter_server_config.py").write_text("c.IdentityProvider.token = 'mine'\nc.ServerApp.port = 1\n")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    try:
        usual = socket.create_server((lab.ADDRESS, lab.FIRST_PORT))
    except OSError:  # somebody's lab
        usual = None
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers", "lab", "--no-browser", "01"], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = []
    try:
        address = next((line.strip() for line in process.stdout if lines.append(line) or "/lab/tree/" in line), None)
        assert address, "".join(lines)
        found = urlsplit(address)
        assert found.hostname == lab.ADDRESS and found.port > lab.FIRST_PORT
        assert found.path == "/lab/tree/notebooks/01-add-vectors-with-opencl.ipynb"
        with DIRECT.open(address, timeout=LONG) as page:
            text = page.read().decode()
            assert page.status == 200 and "JupyterLab" in text and "announcements" in text
        with pytest.raises(urllib.error.HTTPError) as refused:
            DIRECT.open(f"http://{found.netloc}/api/status", timeout=LONG)
        assert refused.value.code == 403
        refused.value.close()
    finally:
        process.send_signal(signal.SIGINT)
        lines += process.communicate(timeout=LONG)[0].splitlines(keepends=True)
        if usual:
            usual.close()
    assert process.returncode == 0 and lines[-1] == "JupyterLab has stopped.\n"
    assert "ERROR" not in "".join(lines) and "Traceback" not in "".join(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["jupyter_server_config.py"]


def test_only_this_machine_and_never_without_a_token():
    chosen = lab.options(ROOT, None, "abc")
    assert "--ServerApp.ip=127.0.0.1" in chosen and "--IdentityProvider.token=abc" in chosen
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    assert ("--ServerApp.allow_root=True" in chosen) == root


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="screens are told by variables on Linux alone")
@pytest.mark.parametrize("screen", ["", ":0"])
def test_a_browser_opens_the_page_where_there_is_a_screen(screen, monkeypatch, capsys):
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    opened = []
    monkeypatch.setattr(lab.webbrowser, "open", lambda address: opened.append(address) or True)
    lab.announce("http://here", browser=True)
    assert opened == ["http://here"] * bool(screen)
    assert ("opens in your browser" in capsys.readouterr().out) == bool(screen)


@pytest.mark.parametrize("prefix", ["packages", "a file"])
def test_the_learners_own_settings_are_out_of_the_way_and_those_made_here_stay(prefix, tmp_path, monkeypatch):
    """They live beside the packages, unless those belong to somebody else."""
    (tmp_path / "a file").write_text("so that no folder can be made in it", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", "the learner's own")
    lab.isolate(tmp_path / "scratch")
    kept = tmp_path / ("packages" if prefix == "packages" else "scratch")
    page = Path(os.environ["JUPYTER_CONFIG_DIR"], "labconfig/page_config.json")
    assert "announcements" in page.read_text(encoding="utf-8") and page.is_relative_to(kept)
    assert Path(os.environ["JUPYTER_RUNTIME_DIR"]).is_relative_to(tmp_path / "scratch")
