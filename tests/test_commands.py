"""The frame of the commands: `python -m helpers` as a real process."""

import argparse
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from helpers import ROOT, commands
from helpers import __main__ as frame
from helpers.commands import test as test_command
from helpers.commands import uv
from helpers.compute import devices, host, workarounds
from helpers.doctor import findings
from helpers.errors import WorkshopError

posix = pytest.mark.skipif(os.name == "nt", reason="HOME names the home folder on other systems alone")

LONG = 300  # seconds: against hanging alone


def helpers(*arguments, **changes):
    env = {name: value for name, value in os.environ.items() if name not in ("KERAS_BACKEND", "ANYGPU_PROFILE")}
    return subprocess.run(
        [sys.executable, "-m", "helpers", *arguments],
        cwd=ROOT, env={**env, **changes}, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_command_has_all_that_the_frame_uses(name):
    module = commands.load(name)
    assert commands.COMMANDS[name] and not commands.COMMANDS[name].endswith(".")
    assert callable(module.add_arguments) and callable(module.run)
    done = helpers(name, "--help")
    assert done.returncode == 0 and host.command(host.Host.here(), name) in done.stdout


def test_help_lists_every_command():
    done = helpers("--help")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == list(commands.COMMANDS)


def test_without_a_command_the_help_comes_with_status_2():
    done = helpers()
    assert done.returncode == 2 and "lab" in done.stdout


def test_an_unknown_command_is_named_with_the_nearest_one():
    done = helpers("storee")
    assert done.returncode == 2 and "'storee'" in done.stderr and "Did you mean store" in done.stderr


@pytest.mark.parametrize("name", ["lab", "run", "test", "store"])
@pytest.mark.parametrize("backend", ["nonsense", "numpy"])
def test_a_keras_backend_that_cannot_train_is_refused(name, backend):
    done = helpers(name, KERAS_BACKEND=backend)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert repr(backend) in done.stderr and "tensorflow, jax, torch" in done.stderr


def test_a_wrong_keras_backend_does_not_stop_what_needs_no_keras():
    assert helpers("lock", "--help", KERAS_BACKEND="nonsense").returncode == 0


def test_arguments_go_to_pytest_and_its_status_comes_back(tmp_path):
    test = tmp_path / "test_two.py"
    test.write_text("def test_right(): pass\ndef test_wrong(): assert False\n", encoding="utf-8")
    done = helpers("test", str(test), "-q", "-p", "no:cacheprovider", "-k", "wrong")
    assert done.returncode == 1 and "1 failed, 1 deselected" in done.stdout


def test_a_lessons_number_chooses_its_tests(monkeypatch):
    given = []
    monkeypatch.setattr(pytest, "main", lambda arguments: given.extend(arguments) or 0)
    test_command.run(argparse.Namespace(all=False, browser=False, rest=["04", "01b", "-q"]))
    assert given[-3:] == ["-q", "-k", "04- or lesson_04 or 01b- or lesson_01"]


def test_what_one_command_alone_needs_is_told_where_it_is_missing():
    with pytest.raises(WorkshopError, match=r"nowhere[^,]*\n.*\n.* -r requirements/book.txt"):
        uv.need("book", "book", "json", "nowhere")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["devices", "gpu"], "devices: unknown arguments: gpu"),
        (["doctor", "--fix"], "doctor: unknown arguments: --fix"),
        (["devices", "--timeout", "x"], "devices: argument --timeout: invalid float value: 'x'"),
    ],
)
def test_a_mistake_in_the_arguments_says_what_why_and_next(arguments, what, capsys):
    assert frame.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{what}\nWhy:  It is typed as: {host.command(host.Host.here(), arguments[0])} [-h] [")
    assert f"{arguments[0]} --help" in said.splitlines()[-1]


def test_devices_says_that_it_works(monkeypatch, capsys):
    monkeypatch.setattr(devices, "find", lambda timeout: [devices.ask("opencl", timeout)])  # all: test_devices
    assert commands.load("devices").run(argparse.Namespace(timeout=60.0)) in (0, 1)
    said = capsys.readouterr()
    assert said.err.startswith("Asking OpenCL, TensorFlow")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_one_message():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "helpers", "--help"],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LONG, check=False,
        )  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith("The disk is full.\nWhy:  ")
    assert "Next: Free some space" in done.stderr and "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_full_disk_that_takes_no_temporary_file_is_one_message(monkeypatch, capsys):
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nonexistent"])  # as where each one is full
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(commands.load("devices"), "run", lambda args: tempfile.mkdtemp())
    assert frame.main(["devices"]) == 2
    assert capsys.readouterr().err.startswith("The disk is full.\nWhy:  ")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_place_that_cannot_be_written_to_is_one_message(number, monkeypatch, capsys):
    def refuse(args):
        raise OSError(number, os.strerror(number), "some-file")

    monkeypatch.setattr(commands.load("devices"), "run", refuse)
    assert frame.main(["devices"]) == 2
    said = capsys.readouterr().err
    assert "cannot be written to" in said and "(some-file)" in said and "copy it to your home folder" in said


def test_another_error_of_the_system_keeps_its_traceback(monkeypatch):
    def refuse(args):
        raise FileNotFoundError(errno.ENOENT, "no such file", "some-file")

    monkeypatch.setattr(commands.load("devices"), "run", refuse)
    with pytest.raises(FileNotFoundError):
        frame.main(["devices"])


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipe that breaks like this")
def test_a_reader_that_has_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "helpers", "--help"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=LONG, check=False)
    os.close(writer)
    assert done.returncode == 1 and done.stderr == b""


def test_files_of_a_package_that_are_gone_are_one_message(tmp_path):
    """A package whose own import fails for want of a module, as after half an uninstall."""
    (tmp_path / "nbformat").mkdir()
    (tmp_path / "nbformat" / "__init__.py").write_text("import nbformat.gone\n", encoding="utf-8")
    done = helpers("run", "00", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("Part of the installation is missing: nbformat.gone\nWhy:  ")
    assert findings.advise("reinstall", host.Host.here()) in done.stderr


def caches(**changes):
    """Return the variables that a command sees, as a process of its own prints them, by name."""
    names = ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "IPYTHONDIR", "MPLCONFIGDIR")
    code = (
        "import json, os, sys, helpers.__main__ as frame; from pathlib import Path\n"
        f"frame.keep_caches_elsewhere(); print(json.dumps({{name: os.environ.get(name) for name in {names}}}))\n"
        "assert not os.environ.get('MPLCONFIGDIR') or Path(os.environ['MPLCONFIGDIR']).is_dir()"
    )
    env = {name: value for name, value in os.environ.items() if name not in names} | changes
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, check=True, capture_output=True, text=True, timeout=60
    )
    return json.loads(done.stdout)


@posix
def test_a_home_that_can_be_written_to_keeps_its_caches(tmp_path):
    assert set(caches(HOME=str(tmp_path)).values()) == {None}
    assert list((tmp_path / ".cache").iterdir()) == []


@posix
def test_a_home_that_cannot_be_written_to_gets_its_caches_elsewhere(tmp_path):
    (tmp_path / "home").write_text("a file, so that no folder can be made in it", encoding="utf-8")
    found = caches(HOME=str(tmp_path / "home"), MPLCONFIGDIR=str(tmp_path), TMPDIR=str(tmp_path))
    assert found.pop("MPLCONFIGDIR") == str(tmp_path)
    inside = Path(sys.prefix).resolve().is_relative_to(ROOT)
    place = Path(sys.prefix, "var", "cache") if inside else tmp_path
    assert all(Path(folder).is_relative_to(place) for folder in found.values())


# --- Large pages


def tunables(monkeypatch, platform, value=None):
    """GLIBC_TUNABLES after the workshop asked for large pages on a system, beside a value of the user's own."""
    monkeypatch.setenv("GLIBC_TUNABLES", value or "")
    if value is None:
        monkeypatch.delenv("GLIBC_TUNABLES")
    monkeypatch.setattr(sys, "platform", platform)
    workarounds.ask_for_large_pages()
    return os.environ.get("GLIBC_TUNABLES")


def test_large_pages_are_asked_for_on_linux_alone(monkeypatch):
    assert tunables(monkeypatch, "linux") == "glibc.malloc.hugetlb=1"
    for other in ("darwin", "win32"):
        assert tunables(monkeypatch, other) is None


@pytest.mark.parametrize("own", ["glibc.malloc.hugetlb=0", "glibc.malloc.check=3"])
def test_the_user_s_own_tunables_are_left_alone(monkeypatch, own):
    assert tunables(monkeypatch, "linux", own) == own


# --- PoCL's threads


def affinity(monkeypatch, cores, value=None):
    """POCL_AFFINITY after the workshop asked for it on a machine of four cores, of which the process may use some."""
    monkeypatch.setenv("POCL_AFFINITY", value or "")
    if value is None:
        monkeypatch.delenv("POCL_AFFINITY")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores, raising=False)
    workarounds.keep_pocl_on_its_cores()
    return os.environ.get("POCL_AFFINITY")


def test_pocl_keeps_its_cores_only_where_the_process_has_them_all(monkeypatch):
    assert affinity(monkeypatch, {0, 1, 2, 3}) == "1"
    assert affinity(monkeypatch, {0, 1}) is None
    assert affinity(monkeypatch, {0, 1, 2, 3}, "0") == "0"
