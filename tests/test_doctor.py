"""Each finding of the doctor, provoked for real wherever this machine can, and its advice for all three systems."""

import dataclasses
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from fakes import broken_machines
from packaging.specifiers import SpecifierSet

from helpers import doctor
from helpers.compute import devices, host, processes
from helpers.compute.devices import Answer, Device
from helpers.doctor import data, facts, keras, opencl, packages
from helpers.doctor import host as computer

ROOT = Path(__file__).parent.parent
HERE = host.Host.here()
HOSTS = [
    host.Host(system, machine, (3, 12), installed_by, nvidia)
    for (system, machine), installed_by, nvidia in itertools.product(
        [("Linux", "x86_64"), ("Linux", "arm64"), ("Darwin", "arm64"), ("Darwin", "x86_64"), ("Windows", "x86_64")],
        ["venv", "conda", "binder", "own"],
        [False, True],
    )
    if installed_by != "binder" or system == "Linux"
]
WINDOWS = host.Host("Windows", "x86_64", (3, 12), "venv", False)
needs_linux_opencl = pytest.mark.usefixtures("linux_opencl")


@pytest.fixture(scope="module")
def opencl_devices():
    return devices.ask("opencl", variables=dict.fromkeys(facts.LOADER_VARIABLES)).devices


@pytest.fixture
def linux_opencl(opencl_devices):
    if HERE.system != "Linux" or not opencl_devices:
        pytest.skip("needs Linux with an OpenCL driver, to hide it")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Nothing that this machine's owner set shows in the findings."""
    for name in (
        *facts.LOADER_VARIABLES,
        "KERAS_BACKEND",
        "ANYGPU_MNIST",
        "PYTHONPATH",
        "ANYGPU_PROFILE",
        "PYOPENCL_CTX",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def look(probe, host=HERE):
    """Return the findings of one probe, and the words for what is fine."""
    seen = list(probe(host))
    return [item for item in seen if isinstance(item, doctor.Finding)], [item for item in seen if isinstance(item, str)]


def about_opencl(host=HERE):
    """The facts about OpenCL here, as the doctor gathers them: asked once, and without the loader's variables."""
    asked = devices.ask("opencl", facts.FRAMEWORK_SECONDS)
    names = {name: os.environ[name] for name in facts.LOADER_VARIABLES if name in os.environ}
    answers = {"opencl": asked}
    if names:
        without = devices.ask("opencl", facts.FRAMEWORK_SECONDS, dict.fromkeys(names))
        answers[facts.WITHOUT_LOADER_VARIABLES] = without
    return facts.Facts(host, variables=dict(os.environ), answers=answers)


def drivers(host=HERE):
    return opencl.drivers(about_opencl(host))


def one(probe, host=HERE):
    """Return the only finding of a probe, after checking that it is complete."""
    (finding,), fine = look(probe, host)
    assert not fine
    assert finding.severity in doctor.SEVERITIES and finding.what and finding.why and finding.next
    return finding


def only(look, monkeypatch):
    """What a whole examination finds by one probe, which runs in a subprocess."""
    (probe,) = (probe for probe in doctor.PROBES if probe.look is look)
    assert probe.in_subprocess and probe.when == "full"
    monkeypatch.setattr(doctor, "PROBES", (probe,))
    return doctor.examine()


# --- The frame -------------------------------------------------------------------------------------------------------


def command_line(*arguments, **variables):
    environment = {**os.environ, **variables}
    command = [sys.executable, "-m", "helpers", "doctor", *arguments]
    settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run(command, check=False, **settings)


def test_the_whole_examination_ends_and_says_that_the_workshop_can_run():
    done = command_line()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("The workshop can run here") and done.stderr == ""
    assert f"  Python {sys.version_info[0]}.{sys.version_info[1]}\n" in done.stdout
    assert "  lessons find the workshop's own package\n" in done.stdout
    assert "itself broke" not in done.stdout and "did not finish" not in done.stdout


def test_a_learner_reads_what_why_and_the_next_command():
    done = command_line("--quick", KERAS_BACKEND="nonsense")
    assert done.returncode == 0
    take = host.set_variable(HERE, "KERAS_BACKEND", "tensorflow")
    assert done.stdout.startswith(
        "The workshop can run here, with limits.\n\nLIMITS WHAT RUNS: The variable KERAS_BACKEND"
    )
    assert "\n  Why:  Lessons train with one of tensorflow, jax, torch" in done.stdout
    assert "\n  Next: Take one that is installed: type this in the terminal" in done.stdout
    assert f"again:\n            {take}\n" in done.stdout
    assert "\n\nIn order:\n  Python " in done.stdout


def test_quick_imports_no_framework_and_uses_no_network():
    code = """
import sys
used = []
sys.addaudithook(lambda event, _: used.append(event) if event in ("socket.connect", "socket.getaddrinfo") else None)
from helpers import doctor
findings = doctor.examine(quick=True)
heavy = {"numpy", "tensorflow", "jax", "torch", "keras", "pyopencl", "matplotlib", "sklearn", "requests"}
print(sorted(heavy & set(sys.modules)), used, len(findings.fine) >= 6)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[] [] True", done.stdout + done.stderr


def finding(severity):
    return doctor.Finding("thing", severity, "Something is wrong.", "Because.", "Do this:\n    a command", "host-thing")


def probes(*functions):
    return tuple(doctor.Probe(function.__name__.replace("_", " "), function) for function in functions)


def test_a_probe_that_breaks_becomes_a_note_and_the_others_still_count_the_worst_first(monkeypatch):
    def broken_one(host):
        yield "seen before it broke"
        raise ZeroDivisionError("a driver's fault\nwith details")

    def silent_exit(host):
        yield finding("limits")
        sys.exit(3)

    def healthy(host):
        yield "healthy"
        yield finding("stops")

    monkeypatch.setattr(doctor, "PROBES", probes(broken_one, silent_exit, healthy))
    findings = doctor.examine()
    assert [item.severity for item in findings] == ["stops", "limits", "note", "note"]
    assert [item.name for item in findings[2:]] == ["broken one", "silent exit"]
    assert "ZeroDivisionError: a driver's fault" in findings[2].why and "details" not in findings[2].why
    assert findings.fine == ("seen before it broke", "healthy")


def test_a_subprocess_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(doctor, "CHILD_SECONDS", 0.01)
    (note,) = only(data.dataset, monkeypatch)
    assert note.severity == "note" and note.what.startswith("The check of dataset did not finish in time")


def test_a_probe_that_hangs_is_given_up_and_what_it_started_is_killed(monkeypatch):
    ended = threading.Event()

    def hanging_driver(host):
        yield "begun"
        processes.run_command([sys.executable, "-c", "import time; time.sleep(600)"], 600)
        ended.set()

    monkeypatch.setattr(doctor, "PROBES", probes(hanging_driver))
    monkeypatch.setattr(doctor, "WHOLE_SECONDS", 1.0)
    findings = doctor.examine()
    assert [finding.what for finding in findings] == [
        "The check of hanging driver did not finish in time, so nothing is known about it."
    ]
    assert findings.fine == ("begun",)
    assert ended.wait(30), "the process that the probe started was not killed"


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_ctrl_c_leaves_no_process(tmp_path):
    pid = tmp_path / "pid"
    code = f"""
import sys
from helpers.compute import processes
from helpers import doctor
def hangs(host):
    yield "begun"
    command = "import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    processes.run_command([sys.executable, "-c", command], 600)
doctor.PROBES, doctor.WHOLE_SECONDS = (doctor.Probe("hangs", hangs),), 600
doctor.examine()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not pid.exists() or not pid.read_text():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    deadline = time.monotonic() + 60
    child = int(pid.read_text())
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "a process of the doctor outlived it"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("severities", "expected", "verdict"),
    [
        ([], 0, "The workshop can run here."),
        (["note"], 0, "The workshop can run here."),
        (["note", "limits"], 0, "The workshop can run here, with limits."),
        (["limits", "stops"], 1, "The workshop cannot run here yet."),
    ],
)
def test_only_what_stops_the_workshop_makes_the_status_1(severities, expected, verdict):
    findings = [finding(severity) for severity in severities]
    assert doctor.status(findings) == expected
    assert doctor.report(findings).splitlines()[0] == verdict


def test_prose_is_wrapped_and_a_command_never():
    command = "    " + "word " * 60
    text = doctor.report([doctor.Finding("x", "note", "what " * 60, "why " * 60, f"{'next ' * 60}\n{command}", "x-y")])
    assert command.rstrip() in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(" " * 12)) <= doctor.WIDTH


# --- Python and packages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 14), (4, 0)])
def test_a_python_out_of_range_stops(version):
    for this in HOSTS:
        found = one(computer.python, dataclasses.replace(this, python=version))
        assert found.severity == "stops"
        assert found.what == f"This is Python {version[0]}.{version[1]}." and "3.11 to 3.13" in found.why


def test_the_range_of_pythons_is_that_of_the_project():
    wanted = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
    oldest, newest = computer.PYTHONS
    inside = [(3, minor) for minor in range(30) if f"3.{minor}" in wanted]
    assert (inside[0], inside[-1]) == (oldest, newest)
    for version in inside:
        assert look(computer.python, dataclasses.replace(HERE, python=version))[0] == []


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """Write the lock of a fake family, and the requirements of the project; returns what examines them."""

    def examine(*lines, project=("numpy>=1",)):
        text = "# compiled\n" + "".join(f"{line} \\\n    --hash=sha256:00\n    # via x\n" for line in lines)
        (tmp_path / "requirements").mkdir()
        (tmp_path / "requirements" / "some.txt").write_text(text)
        (tmp_path / host.STAMP).write_text('{"family": "some"}')
        monkeypatch.setattr(packages, "ROOT", tmp_path)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = {json.dumps(list(project))}\n")
        return look(packages.versions, dataclasses.replace(HERE, installed_by="venv"))

    return examine


@pytest.mark.parametrize(("needed", "severity"), [("no_such.package>=1", "stops"), ("psutil>=1", "limits")])
def test_missing_packages_stop_if_the_lessons_need_them(needed, severity, lock):
    (found,), _ = lock(f"numpy=={metadata.version('numpy')}", "no-such-package==1.0", project=["numpy>=1", needed])
    assert found.severity == severity and found.what == "1 package is missing: no-such-package."
    assert "requirements/some.txt" in found.why and " workshop.py lab" in found.next


def test_packages_of_another_version_than_the_locks_are_named(lock):
    (found,), _ = lock(
        "numpy==0.1", f"psutil=={psutil.__version__}", "pytest==0.2", "absent==1; sys_platform == 'amiga'"
    )
    assert found.severity == "limits" and found.what.startswith("2 packages are not of the version")
    assert "numpy is " in found.what and ", not 0.1" in found.what and "psutil" not in found.what


def test_a_local_version_of_the_same_release_is_the_locks(lock, monkeypatch):
    monkeypatch.setattr(metadata, "version", {"torch": "2.14.0+rocm10.1.0", "numpy": "2.0.0rc1"}.get)
    assert lock("torch==2.14.0", "numpy==2.0.0rc1") == ([], ["2 packages as in requirements/some.txt"])


def test_another_python_beside_a_good_environment_is_sent_there(tmp_path, monkeypatch):
    own = dataclasses.replace(HERE, installed_by="own")
    assert packages.another_python(own, tmp_path) is None  # there is no environment yet
    (tmp_path / host.STAMP).touch()
    assert packages.another_python(own, tmp_path) is None  # this Python has all that the lessons need
    monkeypatch.setattr(packages, "MODULES", {**packages.MODULES, "no_such_module": "x"})
    assert packages.another_python(HERE, tmp_path) is None or HERE.installed_by == "own"
    found = packages.another_python(own, tmp_path)
    assert found.severity == "stops" and sys.executable in found.what and "workshop.py doctor" in found.next
    monkeypatch.setattr(packages, "another_python", lambda host: found)
    assert list(doctor.examine()) == [found] and doctor.examine().fine == ()  # and nothing of the wrong environment


def test_this_environment_is_the_one_that_its_lock_describes():
    findings, fine = look(packages.versions)
    assert findings == [] and re.fullmatch(r"\d+ packages as in .*", fine[0])
    assert look(packages.files) == look(packages.shadows) == look(computer.folder) == ([], [])
    assert set(packages.MODULES) <= {name.lower() for name in metadata.packages_distributions()}


@pytest.mark.parametrize(
    ("installed_by", "files", "expected"),
    [
        ("venv", {"workshop.json": '{"family": "cuda"}'}, "cuda.txt"),
        ("venv", {"workshop.json": '{"family": "intel-mac"}'}, "intel-mac.txt"),
        ("venv", {"workshop.json": '{"family": "rocm"}'}, None),
        ("venv", {"workshop.json": '{"family": '}, "cpu.txt"),
        ("venv", {"workshop.json": "[]"}, "cpu.txt"),
        ("venv", {}, "cpu.txt"),
        ("own", {}, None),
        ("conda", {"conda-meta/python-3.12.json": ""}, "cpu.txt"),
        ("conda", {"conda-meta/pyopencl-2026.1.json": ""}, "conda-opencl.txt"),
        ("binder", {}, "binder.txt"),
    ],
)
def test_the_lock_is_the_one_that_the_environment_was_built_from(installed_by, files, expected, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    found = packages.lock_file(dataclasses.replace(HERE, installed_by=installed_by))
    assert (found and found.name) == expected
    assert found is None or found.is_file()


def test_the_stamps_name_is_the_one_that_the_bootstrap_writes():
    text = (ROOT / "workshop.py").read_text(encoding="utf-8")
    assert f'"{host.STAMP}"' in text and '"family": family' in text


def test_a_package_whose_files_are_gone_stops(tmp_path, monkeypatch):
    for name in ("ghost_all", "ghost_folder", "whole"):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        (tmp_path / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (tmp_path / "ghost_folder").mkdir()  # an empty folder is no package
    (tmp_path / "whole.py").write_text("raise SystemExit('imported by the doctor')")
    monkeypatch.syspath_prepend(tmp_path)
    modules = {name: name for name in ("ghost_all", "ghost_folder", "whole", "never_installed")}
    found = one(lambda host: packages.files(host, modules))
    assert found.severity == "stops" and found.what.endswith(": ghost_all, ghost_folder.")
    assert found.what.startswith("2 packages are missing") and found.next == host.reinstall(HERE)


# --- Another package named helpers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["package", "module"])
def test_another_helpers_on_pythonpath_stops(kind, tmp_path, monkeypatch):
    file = tmp_path / "some folder" / ("helpers.py" if kind == "module" else "helpers/__init__.py")
    file.parent.mkdir(parents=True)
    file.write_text("raise SystemExit('run by the doctor')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "some folder"))
    found = one(packages.our_helpers)
    assert found.severity == "stops" and str(tmp_path / "some folder" / "helpers") in found.what
    assert "PYTHONPATH" in found.why and host.unset_variable(HERE, "PYTHONPATH") in found.next


@pytest.fixture
def bare_python(tmp_path, monkeypatch):
    """A Python of its own, without a single package."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=os.name != "nt")
    folder = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin")
    python = folder / ("python.exe" if os.name == "nt" else "python")
    monkeypatch.setattr(sys, "executable", str(python))
    return python


def test_a_workshop_that_is_not_installed_stops(bare_python):
    found = one(packages.our_helpers)
    assert found.severity == "stops" and "not installed" in found.what
    assert "pip install --no-deps -e ." in found.next


def test_another_helpers_that_is_installed_stops(bare_python):
    asked = [str(bare_python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    (place / "helpers").mkdir()
    (place / "helpers" / "__init__.py").touch()
    found = one(packages.our_helpers)
    assert str(place / "helpers") in found.what and "is installed in" in found.why and "uninstall helpers" in found.next


def test_another_helpers_beside_the_notebooks_stops(bare_python, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "helpers.py").touch()
    found = one(packages.our_helpers)
    assert "notebooks" in found.why and "Move it" in found.next


@pytest.mark.parametrize("name", ["numpy.py", "random.py", "matplotlib/__init__.py", "statistics.py"])
def test_a_file_beside_the_notebooks_that_hides_a_module_is_named(name, tmp_path, monkeypatch):
    for file in (name, "my_own_notes.py", "helpers.py", "sys.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("raise SystemExit('run by the doctor')")
    monkeypatch.syspath_prepend(tmp_path)  # as where the doctor is started from that folder
    found = one(lambda host: packages.shadows(host, tmp_path))
    assert found.severity == "limits" and found.what.startswith("1 file is ") and found.what.endswith(f": {name}.")


# --- The folder and the variables of the workshop ---------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="only Linux has a folder that even root cannot write to")
def test_a_folder_that_cannot_be_written_to_limits(tmp_path):
    found = one(lambda host: computer.folder(host, (tmp_path, Path("/proc/self"))))
    assert found.severity == "limits" and found.what == "No answers can be saved: /proc/self cannot be written to."
    assert found.next == host.copy_elsewhere(HERE)
    assert not list(tmp_path.iterdir())


def test_an_unknown_profile_limits(monkeypatch):
    monkeypatch.setenv("ANYGPU_PROFILE", "gigantic")
    found = one(computer.profile)
    assert found.severity == "limits" and found.what == "There is no workload called 'gigantic'."
    assert host.unset_variable(HERE, "ANYGPU_PROFILE") in found.next
    monkeypatch.setenv("ANYGPU_PROFILE", "preview")
    assert look(computer.profile) == ([], [])


def test_a_chosen_opencl_device_that_does_not_exist_limits(monkeypatch, opencl_devices):
    if not opencl_devices:
        pytest.skip("needs an OpenCL driver")
    monkeypatch.setenv("PYOPENCL_CTX", "97:3")
    found = one(opencl.choice)
    assert found.severity == "limits" and found.what == "PYOPENCL_CTX=97:3 names no device here."
    assert host.unset_variable(HERE, "PYOPENCL_CTX") in found.next
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    assert look(opencl.choice) == ([], [])


# --- OpenCL ----------------------------------------------------------------------------------------------------------


@needs_linux_opencl
def test_a_variable_that_hides_every_driver_is_the_finding(tmp_path, monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    found = one(drivers)
    assert found.severity == "limits" and found.what.startswith("OCL_ICD_VENDORS hides every OpenCL device: ")
    assert str(tmp_path / "none") in found.why and "    unset OCL_ICD_VENDORS" in found.next.splitlines()
    quick = one(opencl.variables)
    assert quick.what == f"OCL_ICD_VENDORS is set to {tmp_path / 'none'}, and there is no such place."
    assert quick.next == found.next


def test_a_variable_that_hides_nothing_is_no_finding(answers, monkeypatch):
    for name in facts.LOADER_VARIABLES:
        monkeypatch.setenv(name, "")
    answers(EPYC, without=[EPYC])
    assert look(drivers) == ([], [f"OpenCL: {EPYC}"]) and look(opencl.variables) == ([], [])


@needs_linux_opencl
def test_no_driver_at_all_is_another_finding_with_the_way_to_one(tmp_path, monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    monkeypatch.setattr(facts, "LOADER_VARIABLES", ())  # so that nothing is left that could be blamed
    found = one(drivers)
    assert found.severity == "limits" and found.what.startswith("There is no OpenCL device here: no OpenCL platform")
    assert "The lessons on OpenCL" in found.why and found.next == opencl.get_driver(HERE)


def test_a_driver_that_hangs_is_said_so(monkeypatch):
    if not devices.installed("opencl"):
        pytest.skip("pyopencl is not installed")
    monkeypatch.setattr(facts, "FRAMEWORK_SECONDS", 0.01)  # no process answers within that
    monkeypatch.setattr(opencl, "AGAIN_SECONDS", 0.01)
    found = one(drivers)
    assert found.severity == "note" and found.what == "OpenCL did not answer within 0.01 s."
    assert "hangs" in found.why and "apt" not in found.next


def test_pyopencl_that_cannot_be_imported_is_told_with_its_own_words(tmp_path, monkeypatch):
    (tmp_path / "pyopencl.py").write_text("raise ImportError('libOpenCL.so.1: cannot open shared object')")
    monkeypatch.syspath_prepend(tmp_path)
    assert "libOpenCL.so.1: cannot open shared object" in one(drivers).what
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    (note,) = only(opencl.choice, monkeypatch)  # in a subprocess, which fails
    assert note.severity == "note" and "PYOPENCL_CTX itself broke" in note.what and "libOpenCL.so.1" in note.why


EPYC = Device("opencl", "0:0", "AMD EPYC", "cpu", version="OpenCL 3.0 PoCL 3.1")
ARC = Device("opencl", "1:0", "Intel Arc A770", "gpu")
OLD = broken_machines.old_pocl()


@pytest.fixture
def answers(monkeypatch):
    """Let OpenCL answer with these devices and this message, and with others without the loader's variables."""

    def give(*found, message="", without=()):
        def ask(framework, timeout, variables=None):
            return Answer(framework, "ok", "1", tuple(without if variables else found), message)

        monkeypatch.setattr(devices, "ask", ask)
        monkeypatch.setattr(devices, "installed", lambda module: True)

    return give


def test_a_variable_that_hides_some_devices_is_a_note(answers, monkeypatch):
    monkeypatch.setenv("OPENCL_VENDOR_PATH", "/empty")
    answers(EPYC, without=[EPYC, ARC])
    (found,), fine = look(drivers)
    assert found.severity == "note" and found.what == f"OPENCL_VENDOR_PATH hides OpenCL devices: {ARC}."
    assert host.unset_variable(HERE, "OPENCL_VENDOR_PATH") in found.next and fine == [f"OpenCL: {EPYC}"]


def test_rusticl_without_devices_is_told_how_to_show_them(answers):
    answers(message="platform 0 (rusticl) shows no device")
    assert "RUSTICL_ENABLE" in one(drivers).next


def test_a_driver_older_than_the_processor_is_told_with_two_ways_out(answers):
    answers(OLD)
    found = one(drivers)
    assert found.severity == "limits" and "unknown target CPU 'generic'" in found.what
    assert found.next == opencl.other_compiler(HERE)


def test_a_driver_older_than_the_processor_is_only_a_note_beside_one_that_works(answers):
    answers(EPYC, OLD)
    (found,), fine = look(drivers)
    assert found.severity == "note" and fine == [f"OpenCL: {EPYC}"]


# --- Dataset ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_dataset(tmp_path, monkeypatch):
    """An empty cache, and a network whose only way out is closed, also for the processes that the doctor starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, closed)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    cache = tmp_path / "cache"
    (tmp_path / "sitecustomize.py").write_text(
        f"from pathlib import Path\nfrom helpers import data\ndata.CACHE = Path({str(cache)!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return cache


def test_no_dataset_and_no_network_limits(no_dataset, monkeypatch):
    (found,) = only(data.dataset, monkeypatch)
    assert found.severity == "limits" and "none of its mirrors can be reached" in found.what
    assert "accuracies on it are not MNIST's" in found.why and "https://" in found.next
    assert host.set_variable(HERE, "ANYGPU_MNIST", data.example_path(HERE)) in found.next


def test_a_corrupt_cache_without_a_network_is_told_too(no_dataset, monkeypatch):
    no_dataset.mkdir()
    (no_dataset / "mnist.npz").write_bytes(b"not MNIST")
    (found,) = only(data.dataset, monkeypatch)
    assert f"{no_dataset / 'mnist.npz'} is not used" in found.why


@pytest.mark.parametrize("content", [None, b"not MNIST"])
def test_a_named_file_that_is_not_mnist_is_told(content, tmp_path, monkeypatch):
    file = tmp_path / "own.npz"
    if content:
        file.write_bytes(content)
    monkeypatch.setenv("ANYGPU_MNIST", str(file))
    found = one(data.dataset)
    assert found.severity == "limits" and f"ANYGPU_MNIST names {file}" in found.what
    assert host.unset_variable(HERE, "ANYGPU_MNIST") in found.next
    assert len(look(data.named_file)[0]) == (0 if content else 1)  # reading it takes longer than a quick look may


# --- Memory, disk, Keras ---------------------------------------------------------------------------------------------


def test_too_little_memory_limits(monkeypatch):
    assert look(computer.memory)[0] == [] or psutil.virtual_memory().available < 2 * computer.LEAST_MEMORY
    monkeypatch.setattr(computer, "LEAST_MEMORY", 1 << 60)
    monkeypatch.setenv("ANYGPU_PROFILE", "lab")
    found = one(computer.memory)
    assert found.severity == "limits" and re.match(r"Only \d+\.\d GiB of memory", found.what)
    assert host.set_variable(HERE, "ANYGPU_PROFILE", "preview") in found.next
    monkeypatch.setenv("ANYGPU_PROFILE", "preview")
    assert "preview" not in one(computer.memory).next


def test_too_little_disk_limits(monkeypatch):
    monkeypatch.setattr(computer, "LEAST_DISK", 1 << 60)
    for this in HOSTS:
        found = one(computer.disk, this)
        assert found.severity == "limits" and "free on the disk" in found.what and "pip cache purge" in found.next


@pytest.mark.parametrize(
    ("variable", "settings", "wrong"),
    [
        (None, None, ""),
        (None, "not json", ""),
        ("jax", '{"backend": "plaidml"}', ""),
        ("nonsense", None, "The variable KERAS_BACKEND asks for the Keras backend 'nonsense', .* it does not exist"),
        ("numpy", None, "it cannot train"),
        (None, '{"backend": "plaidml"}', "Keras' own settings, .*keras.json, asks for the Keras backend 'plaidml'"),
        ("torch", None, "'torch', and that package is not installed"),
    ],
)
def test_a_backend_with_which_no_lesson_can_train_limits(variable, settings, wrong, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    if variable:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    if settings:
        (tmp_path / "keras").mkdir()
        (tmp_path / "keras" / "keras.json").write_text(settings)
    if not wrong:
        assert look(keras.backend) == ([], [f"Keras backend: {variable or 'tensorflow'}"])
        return
    found = one(keras.backend, WINDOWS)
    assert found.severity == "limits" and re.search(wrong, found.what)
    assert '    $env:KERAS_BACKEND = "tensorflow"' in found.next
    assert ("    py workshop.py lab --with torch" in found.next) == (variable == "torch")


# --- Advice for every system -----------------------------------------------------------------------------------------


ADVICE = [
    host.reinstall,
    host.copy_elsewhere,
    computer.other_python,
    opencl.get_driver,
    opencl.other_compiler,
    lambda this: f"    {host.command(this, 'doctor')}\n    {host.python_command(this)}",
    lambda this: f"    {host.set_variable(this, 'A', 'b')}\n    {host.unset_variable(this, 'A')}",
]
FOREIGN = {
    "Windows": r"sudo|apt |brew |unset|export |python3 |rm -r|/bin/",
    "Darwin": r"sudo|apt |py workshop|winget|Remove-Item|\$env|\\",
    "Linux": r"brew |py workshop|winget|Remove-Item|\$env|\\",
}


@pytest.mark.parametrize("this", HOSTS, ids=lambda this: "-".join(map(str, dataclasses.astuple(this))))
def test_advice_has_a_command_and_none_of_another_system(this):
    for advice in ADVICE:
        text = advice(this)
        commands = [line for line in text.splitlines() if line.startswith("    ")]
        assert commands, text
        assert not re.search(FOREIGN[this.system], text), text


def driver(system, machine="x86_64", installed_by="venv", nvidia=False):
    return opencl.get_driver(host.Host(system, machine, (3, 12), installed_by, nvidia)).splitlines()


def test_where_opencl_comes_from_on_each_system():
    conda, binder = "    conda env create -f environment-opencl.yml", f"    {host.binder_link()}"
    assert "    sudo apt install pocl-opencl-icd" in driver("Linux") and conda not in driver("Linux")
    linux = driver("Linux", "arm64"), driver("Linux", installed_by="conda")
    for lines in (*linux, driver("Windows"), driver("Darwin", "arm64")):
        assert conda in lines and binder in lines
    assert conda not in driver("Darwin") and binder in driver("Darwin")
    lock = (ROOT / "requirements" / "conda-opencl.txt").read_text(encoding="utf-8")
    assert all("arm64" in line for line in lock.splitlines() if "darwin" in line)  # nothing for Intel Macs
    assert binder in driver("Linux", installed_by="binder") and conda not in driver("Linux", installed_by="binder")
    nvidia = "    echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd"
    assert nvidia in driver("Linux", nvidia=True) and nvidia not in driver("Linux")
    assert nvidia not in driver("Windows", nvidia=True)


def test_where_a_newer_opencl_compiler_comes_from():
    linux, arm = (opencl.other_compiler(host.Host("Linux", m, (3, 12), "venv", False)) for m in ("x86_64", "arm64"))
    assert "    python3 workshop.py lab --with intel-opencl" in linux.splitlines()
    assert "    sudo apt install pocl-opencl-icd" in linux.splitlines()
    assert "intel-opencl" not in arm


def test_the_files_that_the_advice_names_are_there():
    for name in ("environment.yml", "environment-opencl.yml", "workshop.py"):
        assert (ROOT / name).is_file()
