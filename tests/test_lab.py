"""What `lab` decides before the server starts; the server itself runs in test_workshop.py."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helpers import ROOT
from helpers.commands import lab
from helpers.errors import WorkshopError


@pytest.fixture
def taken():
    """A port on which something listens."""
    with socket.create_server((lab.ADDRESS, 0)) as server:
        yield server.getsockname()[1]


def run(*arguments, **changes):
    return subprocess.run(
        [sys.executable, "-m", "helpers", "lab", "--no-browser", *arguments],
        cwd=ROOT, env={**os.environ, **changes}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_port_in_use_is_refused_when_it_was_asked_for(taken):
    done = run("--port", str(taken))
    assert done.returncode == 2 and f"Port {taken} cannot be used" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_does_not_exist_is_refused(port):
    done = run(f"--port={port}")
    assert done.returncode == 2 and "cannot be used" in done.stderr and "Traceback" not in done.stderr


def test_the_next_free_port_is_taken(taken, monkeypatch):
    monkeypatch.setattr(lab, "FIRST_PORT", taken)
    with lab.take_port(None) as listening:
        assert taken < listening.getsockname()[1] < taken + 100


def test_a_port_that_was_taken_is_nobody_elses():
    """Between the choice of a port and the start of the server pass seconds."""
    with lab.take_port(None) as first, lab.take_port(None) as second:
        ports = [listening.getsockname()[1] for listening in (first, second)]
        assert ports[0] < ports[1]
        with pytest.raises(WorkshopError, match=f"Port {ports[0]} cannot be used"):
            lab.take_port(ports[0])


def address(process, lines):
    """Return the address that a lab prints, its own log kept in `lines`."""
    for line in process.stdout:
        lines.append(line)
        if "/lab/tree/" in line:
            return line.strip()
    raise AssertionError("".join(lines))


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_two_labs_of_the_same_second_take_two_ports():
    command = [sys.executable, "-m", "helpers", "lab", "--no-browser"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2)]
    try:
        lines = []
        addresses = [address(process, lines) for process in both]
        assert len({urlsplit(found).port for found in addresses}) == 2, addresses
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for found in addresses:  # each wants the token of its own address
            with direct.open(found, timeout=60) as page:
                assert page.status == 200 and "JupyterLab" in page.read().decode()
    finally:
        for process in both:
            process.send_signal(signal.SIGINT)
        rest = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "ERROR" not in "".join([*lines, *rest])


def test_an_unknown_lesson_is_refused():
    done = run("77")
    assert done.returncode == 2 and "no lesson called '77'" in done.stderr.lower()


def test_an_unknown_profile_is_refused():
    assert run("--profile", "gigantic").returncode == 2
    done = run(ANYGPU_PROFILE="gigantic")
    assert done.returncode == 2 and "There is no profile called 'gigantic'" in done.stderr


def test_only_this_machine_and_never_without_a_token():
    chosen = lab.options(8888, "abc")
    assert "--ServerApp.ip=127.0.0.1" in chosen and "--IdentityProvider.token=abc" in chosen
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    assert ("--ServerApp.allow_root=True" in chosen) == root


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="screens are told by variables on Linux alone")
def test_without_a_screen_there_is_no_browser(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not lab.has_browser()


@pytest.fixture
def variables():
    """Whatever a test does to the environment is undone."""
    before = dict(os.environ)
    for name in ("IPYTHONDIR", "MPLCONFIGDIR"):
        os.environ.pop(name, None)
    yield os.environ
    os.environ.clear()
    os.environ.update(before)


def test_the_learners_own_settings_are_out_of_the_way(tmp_path, monkeypatch, variables):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "packages"))
    variables["HOME"] = os.devnull
    lab.isolate(tmp_path / "scratch")
    page = Path(variables["JUPYTER_CONFIG_DIR"], "labconfig/page_config.json")
    assert "announcements" in page.read_text(encoding="utf-8")
    assert page.is_relative_to(tmp_path / "packages")
    assert Path(variables["JUPYTER_RUNTIME_DIR"]).is_relative_to(tmp_path / "scratch")
    if os.name == "posix":  # a home that cannot be written to
        assert Path(variables["IPYTHONDIR"]).is_relative_to(tmp_path / "scratch")
        assert Path(variables["MPLCONFIGDIR"]).is_relative_to(tmp_path / "scratch")


def test_packages_that_belong_to_someone_else_are_not_written_to(tmp_path, monkeypatch, variables):
    owned = tmp_path / "owned"
    owned.write_text("a file, so that no folder can be made in it", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(owned))
    lab.isolate(tmp_path / "scratch")
    assert Path(variables["JUPYTER_CONFIG_DIR"]).is_relative_to(tmp_path / "scratch")


def test_no_free_port_is_told(monkeypatch, taken):
    monkeypatch.setattr(lab, "FIRST_PORT", 65536)
    with pytest.raises(WorkshopError, match="No free port"):
        lab.take_port(None)
