"""The frame of the commands: `python -m helpers` as a real process."""

import argparse
import errno
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from helpers import ROOT, commands
from helpers import __main__ as frame
from helpers.commands import lesson_files, uv
from helpers.commands import test as test_command
from helpers.devices import host
from helpers.doctor import findings
from helpers.errors import WorkshopError
from helpers.running import workarounds

LONG = 300  # seconds: against hanging alone


def helpers(*arguments, **changes):
    env = {name: value for name, value in os.environ.items() if name not in ("KERAS_BACKEND", "ANYGPU_PROFILE")}
    return subprocess.run(
        [sys.executable, "-m", "helpers", *arguments],
        cwd=ROOT,
        env={**env, **changes},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_command_has_all_that_the_frame_uses(name):
    module = commands.load(name)
    assert commands.COMMANDS[name] and not commands.COMMANDS[name].endswith(".")
    assert callable(module.add_arguments) and callable(module.run)
    done = helpers(name, "--help")
    assert done.returncode == 0 and host.command(host.Host.here(), name) in done.stdout


def test_without_a_command_every_one_is_listed():
    done = helpers()
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == list(commands.COMMANDS)


def test_an_unknown_command_is_named_with_the_nearest_one():
    done = helpers("storee")
    assert done.returncode == 2 and "'storee'" in done.stderr and "Did you mean store" in done.stderr


def test_a_keras_backend_that_cannot_train_is_refused():
    done = helpers("lab", KERAS_BACKEND="numpy")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "'numpy'" in done.stderr and "tensorflow, jax, torch" in done.stderr


def test_a_wrong_keras_backend_does_not_stop_what_needs_no_keras():
    assert helpers("lint", "--help", KERAS_BACKEND="nonsense").returncode == 0


def test_arguments_go_to_pytest_and_its_status_comes_back(tmp_path):
    test = tmp_path / "test_two.py"
    test.write_text("def test_right(): pass\ndef test_wrong(): assert False\n", encoding="utf-8")
    done = helpers("test", str(test), "-q", "-p", "no:cacheprovider", "-k", "wrong")
    assert done.returncode == 1 and "1 failed, 1 deselected" in done.stdout


@pytest.mark.parametrize(("command", "module"), [("test", "pytest"), ("lint", "ruff"), ("book", "sphinx")])
def test_what_few_commands_need_is_told_where_it_is_missing(command, module, monkeypatch, capsys):
    monkeypatch.setattr(uv, "has_module", lambda name: name != module)
    assert frame.main([command]) == 2
    message = capsys.readouterr().err
    assert f"not installed: {module}.\n" in message and "uv pip install" in message and "--group test" in message


def test_a_lessons_number_chooses_its_tests(monkeypatch):
    given = []
    monkeypatch.setattr(pytest, "main", lambda arguments: given.extend(arguments) or 0)
    test_command.run(argparse.Namespace(all=False, rest=["4", "01b", "-q", "-n", "0"]))
    assert given[-5:] == ["-q", "-n", "0", "-k", "01b- or lesson_01 or 04- or lesson_04"]
    test_command.run(argparse.Namespace(all=False, rest=["tests/test_house.py", "-k", "07"]))
    assert given[-3:] == ["tests/test_house.py", "-k", "07"]
    with pytest.raises(WorkshopError, match="no lesson called '99'"):
        test_command.run(argparse.Namespace(all=False, rest=["99"]))


def test_only_a_whole_run_holds_lessons(monkeypatch, capsys):
    given = []
    monkeypatch.setattr(pytest, "main", lambda arguments: given.append(arguments) or 3)
    for is_whole in (False, True):
        assert test_command.run(argparse.Namespace(all=is_whole, rest=[])) == 3
    quick, whole = given
    assert set(whole) - set(quick) == {"--all", str(lesson_files.FOLDER)} and set(quick) < set(whole)
    assert capsys.readouterr().out.count("python3 workshop.py test --all") == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["devices", "gpu"], "devices: unknown arguments: gpu"),
        (["devices", "--timeout", "x"], "devices: argument --timeout: invalid float value: 'x'"),
    ],
)
def test_a_mistake_in_the_arguments_says_what_why_and_next(arguments, what, capsys):
    assert frame.main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{what}\nWhy:  It is typed as: {host.command(host.Host.here(), arguments[0])} [-h] [")
    assert f"{arguments[0]} --help" in message.splitlines()[-1]


def test_arguments_may_stand_before_and_behind_options(monkeypatch):
    monkeypatch.setattr(
        commands.load("run"), "run", lambda args: 7 if args.lessons == ["00", "01"] and args.grade else 0
    )
    assert frame.main(["run", "00", "--grade", "01"]) == 7


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_polite_kill_ends_as_ctrl_c_does_unless_it_is_ignored(name, ignored):
    code = (
        f"import os, signal\nfrom helpers import __main__, commands\nif {ignored}:\n"
        f"    signal.signal(signal.{name}, signal.SIG_IGN)\n"
        f"commands.load('devices').run = lambda args: os.kill(os.getpid(), signal.{name}) or 7\n"
        "raise SystemExit(__main__.main(['devices']))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=LONG).returncode == (7 if ignored else 130)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_one_message():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "helpers", "--help"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LONG,
            check=False,
        )
    assert done.returncode == 2 and done.stderr.startswith("The disk is full.\nWhy:  ")
    assert "Next: Free some space" in done.stderr and "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipe that breaks like this")
def test_a_reader_that_has_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "helpers", "--help"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=LONG, check=False)
    os.close(writer)
    assert done.returncode == 1 and done.stderr == b""


def test_a_full_disk_that_takes_no_temporary_file_is_one_message(monkeypatch, capsys):
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nonexistent"])  # as where each one is full
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(commands.load("devices"), "run", lambda args: tempfile.mkdtemp())
    assert frame.main(["devices"]) == 2
    assert capsys.readouterr().err.startswith("The disk is full.\nWhy:  ")


@pytest.mark.parametrize(
    ("number", "fact"),
    [
        (errno.ENOSPC, "The disk is full."),
        (errno.EACCES, "copy it to your home folder"),
        (errno.EISDIR, "Name another place"),
        (errno.ENOTDIR, "Name another place"),
    ],
)
def test_a_place_that_takes_nothing_is_one_message(number, fact, monkeypatch, capsys):
    def refuse(args):
        raise OSError(number, os.strerror(number), "some-file")

    monkeypatch.setattr(commands.load("devices"), "run", refuse)
    assert frame.main(["devices"]) == 2
    message = capsys.readouterr().err
    assert "(some-file)" in message and "Next: " in message and fact in message


def test_another_error_of_the_system_keeps_its_traceback(monkeypatch):
    def refuse(args):
        raise FileNotFoundError(errno.ENOENT, "no such file", "some-file")

    monkeypatch.setattr(commands.load("devices"), "run", refuse)
    with pytest.raises(FileNotFoundError):
        frame.main(["devices"])


def test_files_of_a_package_that_are_gone_are_one_message(tmp_path):
    """A package whose own import fails for want of a module, as after half an uninstall."""
    (tmp_path / "nbformat").mkdir()
    (tmp_path / "nbformat" / "__init__.py").write_text("import nbformat.gone\n", encoding="utf-8")
    done = helpers("run", "00", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("Part of the installation is missing: nbformat.gone\nWhy:  ")
    assert findings.advise("reinstall", host.Host.here()) in done.stderr


# --- Variables of libraries


def reload_helpers():
    importlib.reload(sys.modules["helpers"])


@pytest.mark.parametrize(
    ("ask", "variable", "system", "cores", "before", "after"),
    [
        (workarounds.ask_for_large_pages, "GLIBC_TUNABLES", "linux", 4, None, "glibc.malloc.hugetlb=1"),
        (workarounds.ask_for_large_pages, "GLIBC_TUNABLES", "darwin", 4, None, None),
        (workarounds.ask_for_large_pages, "GLIBC_TUNABLES", "win32", 4, None, None),
        (reload_helpers, "XLA_PYTHON_CLIENT_PREALLOCATE", "linux", 4, None, "false"),
        (reload_helpers, "XLA_PYTHON_CLIENT_PREALLOCATE", "linux", 4, "true", "true"),
        (workarounds.ask_for_large_pages, "GLIBC_TUNABLES", "linux", 4, "glibc.malloc.check=3", "glibc.malloc.check=3"),
        (workarounds.keep_pocl_on_its_cores, "POCL_AFFINITY", "linux", 4, None, "1"),
        (workarounds.keep_pocl_on_its_cores, "POCL_AFFINITY", "linux", 2, None, None),
        (workarounds.keep_pocl_on_its_cores, "POCL_AFFINITY", "linux", 4, "0", "0"),
    ],
)
def test_a_variable_is_set_where_it_helps_and_a_users_own_is_left_alone(
    ask, variable, system, cores, before, after, monkeypatch
):
    """On a machine of four cores, of which this process may use some."""
    monkeypatch.setenv(variable, before or "")
    if before is None:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    ask()
    assert os.environ.get(variable) == after
