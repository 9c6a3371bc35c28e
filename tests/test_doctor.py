"""The doctor's frame; and what its checks find, provoked for real wherever this machine can."""

import dataclasses
import doctest
import getpass
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from importlib import metadata
from pathlib import Path

import import_graph
import psutil
import pytest
from packaging.specifiers import SpecifierSet
from waiting import alive, in_the_end

from helpers import doctor
from helpers.devices import host
from helpers.doctor import host as computer
from helpers.doctor import letter, packages, settings, terminal
from helpers.doctor.facts import Facts
from helpers.running import processes
from helpers.running.tools import ToolOutput

ROOT = Path(__file__).parent.parent
HERE = host.Host.here()
VARIABLES = ("KERAS_BACKEND", "ANYGPU_MNIST", "PYTHONPATH", "ANYGPU_PROFILE", *settings.CHANGING)


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Nothing that this machine's owner set shows in the findings."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def look(check, this=HERE):
    """Return the findings of one check, and the words for what is fine."""
    results = list(check(this))
    findings = [item for item in results if isinstance(item, doctor.Finding)]
    return findings, [item for item in results if isinstance(item, str)]


def only_finding(check, this=HERE):
    (finding,), fine = look(check, this)
    assert not fine and finding.what and finding.why and finding.next
    return finding


def lines(finding):
    return finding.next.splitlines()


# --- The frame -------------------------------------------------------------------------------------------------------


def command_line(*arguments, **variables):
    command = [sys.executable, "-m", "helpers", "doctor", *arguments]
    settings = {"cwd": ROOT, "env": {**os.environ, **variables}, "capture_output": True, "text": True, "timeout": 100}
    return subprocess.run(command, check=False, **settings)


@pytest.mark.slow
def test_the_whole_examination_ends_and_says_that_the_workshop_can_run(tmp_path):
    done = command_line("--report", os.path.relpath(tmp_path / "report.txt", ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    assert str((tmp_path / "report.txt").resolve()) in done.stdout
    assert done.stdout.startswith(("The workshop can run here", "The workshop can perhaps")) and done.stderr == ""
    assert f"  Python {sys.version_info[0]}.{sys.version_info[1]}\n" in done.stdout
    assert "itself broke" not in done.stdout
    text = (tmp_path / "report.txt").read_text(encoding="utf-8")
    assert f"numpy {metadata.version('numpy')}" in text and str(ROOT) not in text


def test_a_variable_that_is_no_text_is_shown_and_written(tmp_path):
    """Byte 0xFF is no UTF-8: on Linux anybody can have set such a variable."""
    file = tmp_path / "report.txt"
    done = command_line("--quick", "--report", str(file), ANYGPU_MNIST=os.fsdecode(b"/data/\xff.npz"))
    assert done.returncode == 0 and "\\udcff.npz" in done.stdout and done.stderr == ""
    assert "\\udcff.npz" in file.read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    done = command_line("--quick", "--report", str(tmp_path / "no" / "folder"))
    assert done.returncode == 2 and str(tmp_path / "no") in done.stderr and "Traceback" not in done.stderr


QUICK = """
import sys
used = []
sys.addaudithook(lambda event, _: used.append(event) if event in ("socket.connect", "socket.getaddrinfo") else None)
from helpers import doctor
findings = doctor.examine(quick=True)
heavy = {"numpy", "tensorflow", "jax", "torch", "keras", "pyopencl", "matplotlib", "requests"}
families = ("nvidia", "amd", "apple", "intel", "windows", "opencl", "devices", "facts", "gather", "gpus")
families = {f"helpers.doctor.{name}" for name in families}
print(sorted((heavy | families) & set(sys.modules)), used, len(findings.fine) >= 6)
"""


def test_quick_imports_no_framework_no_family_and_uses_no_network():
    done = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[] [] True", done.stdout + done.stderr


def finding(severity):
    return doctor.Finding("host-thing", severity, "Something is wrong.", "Because.", "Do this:\n    a command")


def test_a_check_that_breaks_becomes_a_note_and_the_others_still_count_the_worst_first(monkeypatch):
    def broken(host):
        yield "seen before it broke"
        raise ZeroDivisionError("a driver's fault\nwith details")

    def silent_exit(host):
        yield finding("limits")
        sys.exit(3)

    def healthy(host):
        yield "healthy"
        yield finding("stops")

    monkeypatch.setattr(doctor, "FULL", (broken, silent_exit, healthy))
    findings = doctor.examine()
    assert [item.severity for item in findings] == ["stops", "limits", "note", "note"]
    assert [item.id for item in findings[2:]] == ["host-unfinished-check"] * 2
    assert "ZeroDivisionError: a driver's fault" in findings[2].why and "details" not in findings[2].why
    assert findings.fine == ("seen before it broke", "healthy")


def test_a_judge_that_breaks_becomes_a_note_and_the_others_still_count(monkeypatch):
    def broken(facts):
        raise KeyError("a format that nobody knew")

    monkeypatch.setattr(computer, "JUDGES", (broken,))
    mac = dataclasses.replace(HERE, system="Darwin", machine="x86_64")
    facts = Facts(mac, tools={"sysctl": ToolOutput("ok", "1\n")})
    ids = [item.id for item in doctor.judge(facts) if isinstance(item, doctor.Finding)]
    assert ids[0] == "host-unfinished-check" and "apple-rosetta" in ids


def test_a_check_that_hangs_is_given_up_and_what_it_started_is_killed(monkeypatch):
    ended = threading.Event()

    def hanging_driver(host):
        yield "begun"
        processes.run_command([sys.executable, "-c", "import time; time.sleep(600)"], 600)
        ended.set()

    def slow(host):
        ended.wait(300)
        yield "late"

    monkeypatch.setattr(doctor, "FULL", (hanging_driver, slow))
    monkeypatch.setattr(doctor, "WHOLE_SECONDS", 1.0)
    findings = doctor.examine()
    assert [finding.id for finding in findings] == ["host-unfinished-check"]  # one note for all that are late
    assert "hanging driver and " in findings[0].what and "slow" in findings[0].what
    assert findings.fine == ("begun",)
    assert ended.wait(300), "the process that the check started was not killed"


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_ctrl_c_leaves_no_process(tmp_path):
    pid = tmp_path / "pid"
    code = f"""
import sys
from helpers.running import processes
from helpers.running.tools import ToolOutput
from helpers import doctor
def hangs(host):
    yield "begun"
    command = "import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    processes.run_command([sys.executable, "-c", command], 600)
doctor.FULL, doctor.WHOLE_SECONDS = (hangs,), 600
doctor.examine()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert in_the_end(lambda: process.poll() is not None or (pid.exists() and pid.read_text()))
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=600)[1]
    assert in_the_end(lambda: not alive(int(pid.read_text()))), "a process of the doctor outlived it"


FAMILIES = [
    "amd",
    "apple",
    "containers",
    "devices",
    "frameworks",
    "host",
    "intel",
    "nvidia",
    "opencl",
    "packages",
    "settings",
    "windows",
]


def test_no_family_imports_another():
    for name in FAMILIES:
        others = {file.removeprefix("doctor/") for file in import_graph.imported(f"doctor/{name}")}
        assert others & set(FAMILIES) == set(), name


@pytest.mark.parametrize("name", ["facts", "findings", "gpu_findings", "gpus"])
def test_the_examples_of_the_docstrings_hold(name):
    failed, tried = doctest.testmod(importlib.import_module(f"helpers.doctor.{name}"))
    assert failed == 0 and tried > 0


def test_only_what_stops_the_workshop_makes_the_status_1():
    assert [doctor.status([finding(severity)]) for severity in ("note", "limits", "stops")] == [0, 0, 1]
    assert doctor.status([]) == 0


def test_prose_is_wrapped_and_a_command_never():
    command = "    " + "word " * 60
    text = doctor.report([doctor.Finding("x-y", "note", "what " * 60, "why " * 60, f"{'next ' * 60}\n{command}")])
    assert command.rstrip() in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(" " * 12)) <= terminal.WIDTH


def test_a_report_of_something_wrong_always_ends_with_the_way_to_a_helper():
    letter_command = f"    {host.command(HERE, terminal.LETTER)}"
    wrong = [finding("note"), finding("limits")]
    assert doctor.report(wrong).splitlines().count(letter_command) == 1
    own = dataclasses.replace(wrong[0], next=f"If that does not help:\n{letter_command}")  # not twice
    assert doctor.report([own]).count(terminal.LETTER) == 1
    assert terminal.LETTER not in doctor.report([])


def test_a_report_names_no_user_no_computer_no_home_and_no_secret(monkeypatch, tmp_path):
    home = tmp_path / "home" / "xaverine.q"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setattr(getpass, "getuser", lambda: "xaverine.q")
    monkeypatch.setattr(socket, "gethostname", lambda: "xaverines-laptop.example.org")
    monkeypatch.setattr(letter, "ROOT", home / "gpu course")
    variables = {"JAX_COORDINATOR_ADDRESS": "hunter2:1", "ANYGPU_MNIST": "/hunter2/mnist.npz", "KERAS_BACKEND": "jax"}
    words = f"{home}/x, {home}/gpu course/y of Xaverine.Q on XAVERINES-LAPTOP failed"
    findings = doctor.Findings([dataclasses.replace(finding("limits"), what=words)])
    findings.facts = Facts(HERE, packages={"jax": "0.12", "secret": "1"}, variables=variables)
    text = letter.compose_letter(findings)
    for secret in ("xaverine", str(home), "laptop", "hunter2", "secret"):
        assert secret not in text.lower(), text
    assert "~/x, WORKSHOP/y of USER on COMPUTER failed" in " ".join(text.split())
    assert "KERAS_BACKEND=jax" in text and "jax 0.12" in text
    monkeypatch.setattr(getpass, "getuser", lambda: "jo")  # a short word is not torn out of others
    assert letter.without_names("major jo") == "major jo"


# --- Python and packages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_a_python_out_of_range_stops(version):
    assert only_finding(computer.check_python, dataclasses.replace(HERE, python=version)).id == "host-python"


def test_the_range_of_pythons_is_that_of_the_project():
    wanted = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
    inside = [(3, minor) for minor in range(30) if f"3.{minor}" in wanted]
    assert (inside[0], inside[-1]) == computer.PYTHONS
    assert all(look(computer.check_python, dataclasses.replace(HERE, python=version))[0] == [] for version in inside)


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """Write the lock of a family, and the requirements of the project; returns what examines them."""

    def examine(*lines, project=("numpy>=0",)):
        text = "# compiled\n" + "".join(f"{line} \\\n    --hash=sha256:00\n    # via x\n" for line in lines)
        (tmp_path / "requirements").mkdir()
        (tmp_path / "requirements" / "lock.txt").write_text(text)
        (tmp_path / host.STAMP).write_text('{"family": "cpu"}')
        monkeypatch.setattr(packages, "ROOT", tmp_path)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = {json.dumps(list(project))}\n")
        return look(packages.check_versions, dataclasses.replace(HERE, installed_by="venv"))

    return examine


def test_missing_packages_stop_if_the_lessons_need_them(lock):
    project = ["numpy>=1", "no_such.package>=1"]
    (found,), _ = lock(f"numpy=={metadata.version('numpy')}", "of-an-extra==1.0", project=project)
    assert (found.id, found.severity) == ("packages-missing", "stops")
    assert "no-such-package" in found.what and "of-an-extra" not in found.what
    assert "requirements/lock.txt" in found.why


def test_packages_of_another_version_than_the_locks_are_named(lock):
    (found,), _ = lock(
        "numpy==0.1", f"psutil=={psutil.__version__}", "pytest==0.2", "absent==1; sys_platform == 'amiga'"
    )
    assert (found.id, found.severity) == ("packages-versions", "limits")
    assert "numpy is " in found.what and ", not 0.1" in found.what and "psutil" not in found.what


def test_a_local_version_of_the_same_release_is_the_locks(lock, monkeypatch):
    monkeypatch.setattr(metadata, "version", {"torch": "2.14.0+rocm10.1.0", "numpy": "2.0.0rc1"}.get)
    assert lock("torch==2.14.0", "numpy==2.0.0rc1")[0] == []


def test_the_cuda_libraries_that_pytorch_brings_are_no_finding(lock, monkeypatch):
    versions = {"torch": "2.13.0+cu126", "nvidia-cublas-cu12": "12.6.4", "numpy": "2.0.0"}
    monkeypatch.setattr(metadata, "version", versions.get)
    assert lock("torch==2.13.0", "nvidia-cublas-cu12==12.9.1", "numpy==2.0.0")[0] == []


def test_another_python_beside_a_good_environment_is_sent_there(tmp_path, monkeypatch):
    own = dataclasses.replace(HERE, installed_by="own")
    assert packages.find_other_python(own, tmp_path) is None  # there is no environment yet
    (tmp_path / host.STAMP).touch()
    assert packages.find_other_python(own, tmp_path) is None  # this Python has all that the lessons need
    monkeypatch.setattr(packages, "MODULES", [*packages.MODULES, "no_such_module"])
    found = packages.find_other_python(own, tmp_path)
    assert found.id == "packages-another-python" and sys.executable in found.what and "workshop.py lab" in found.next
    monkeypatch.setattr(packages, "find_other_python", lambda host: found)
    assert list(doctor.examine()) == [found] and doctor.examine().fine == ()  # and nothing of the wrong environment


def test_the_packages_of_colab_and_kaggle_are_their_own(lock):
    (missing,), _ = lock("no-such-package==1", project=("no-such-package>=1",))
    assert missing.id == "packages-missing"
    assert look(packages.check_versions, dataclasses.replace(HERE, installed_by="own", hosted="colab")) == ([], [])


def test_this_environment_is_the_one_that_its_lock_describes():
    findings, fine = look(packages.check_versions)
    assert findings == [] and re.fullmatch(r"\d+ packages as in .*", fine[0])
    assert look(packages.check_files) == look(packages.check_shadows) == look(computer.check_folder) == ([], [])
    assert set(packages.MODULES) <= {name.lower() for name in metadata.packages_distributions()}


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ('{"family": "cuda"}', "lock.txt"),
        ('{"family": "metal"}', "lock-metal.txt"),
        ('{"family": "rocm"}', None),
        ('{"family": ', None),
        ("[]", None),
        (None, None),
    ],
)
def test_the_lock_is_the_one_that_the_environment_was_built_from(stamp, expected, tmp_path, monkeypatch):
    if stamp:
        (tmp_path / host.STAMP).write_text(stamp)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    found = packages.find_lock()
    assert (found and found.name) == expected


def test_a_package_whose_files_are_gone_stops(tmp_path, monkeypatch):
    for name in ("ghost_all", "ghost_folder", "whole"):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        (tmp_path / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (tmp_path / "ghost_folder").mkdir()  # an empty folder is no package
    (tmp_path / "whole.py").write_text("raise SystemExit('imported by the doctor')")
    monkeypatch.syspath_prepend(tmp_path)
    modules = ("ghost_all", "ghost_folder", "whole", "never_installed")
    found = only_finding(lambda host: packages.check_files(host, modules))
    assert (found.id, found.severity) == ("packages-missing", "stops") and "ghost_all, ghost_folder" in found.what
    assert "whole" not in found.what and "never_installed" not in found.what


@pytest.mark.parametrize("kind", ["helpers.py", "helpers/__init__.py"])
def test_another_helpers_on_pythonpath_stops(kind, tmp_path, monkeypatch):
    file = tmp_path / "some folder" / kind
    file.parent.mkdir(parents=True)
    file.write_text("raise SystemExit('run by the doctor')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "some folder"))
    found = only_finding(packages.check_our_helpers)
    assert found.id == "packages-other-helpers" and str(tmp_path / "some folder" / "helpers") in found.what
    assert f"    {host.unset_variable(HERE, 'PYTHONPATH')}" in lines(found)


@pytest.mark.parametrize(
    ("place", "expected", "words"),
    [("", "packages-no-helpers", "-e ."), ("site-packages/helpers/__init__.py", "packages-other-helpers", "uninstall")],
)
def test_a_kernel_that_finds_no_helpers_or_others_stops(place, expected, words, monkeypatch):
    answer = processes.Finished(0, f"{place}\n", "")
    monkeypatch.setattr(processes, "run_command", lambda *_: answer)
    found = only_finding(packages.check_our_helpers)
    assert found.id == expected and words in found.next


@pytest.mark.parametrize("name", ["numpy.py", "random.py", "matplotlib/__init__.py"])
def test_a_file_beside_the_notebooks_that_hides_a_module_is_named(name, tmp_path, monkeypatch):
    folder = tmp_path / "my-lessons"
    for file in (name, "my_own_notes.py", "helpers.py", "sys.py"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("raise SystemExit('run by the doctor')")
    monkeypatch.syspath_prepend(folder)  # as where the doctor is started from that folder
    found = only_finding(lambda host: packages.check_shadows(host, tmp_path))
    assert found.id == "packages-shadowed" and name in found.what and "my_own_notes" not in found.what


# --- The computer, and what the learner set ---------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="only Linux has a folder that even root cannot write to")
def test_a_folder_that_cannot_be_written_to_limits(tmp_path):
    found = only_finding(lambda host: computer.check_folder(host, (tmp_path, Path("/proc/self"))))
    assert (found.id, found.severity) == ("host-folder", "limits") and "/proc/self" in found.what
    assert not list(tmp_path.iterdir())


def test_too_little_memory_limits(monkeypatch):
    assert look(computer.check_memory)[0] == [] or psutil.virtual_memory().available < 2 * computer.LEAST_MEMORY
    monkeypatch.setattr(computer, "LEAST_MEMORY", 1 << 60)
    assert only_finding(computer.check_memory).id == "host-memory"


@pytest.mark.parametrize(("installed_by", "command"), [("venv", "uv cache clean"), ("conda", "pip cache purge")])
def test_too_little_disk_limits(monkeypatch, installed_by, command):
    monkeypatch.setattr(computer, "LEAST_DISK", 1 << 60)
    (found,) = computer.check_disk(host.Host("Linux", "x86_64", (3, 12), installed_by, False))
    assert found.id == "host-disk" and command in found.next


@pytest.mark.parametrize(
    ("variable", "configured", "expected"),
    [
        (None, None, ""),
        (None, "not json", ""),
        ("jax", '{"backend": "plaidml"}', ""),
        ("nonsense", None, "keras-backend"),
        ("numpy", None, "keras-backend"),
        (None, '{"backend": "plaidml"}', "keras-backend"),
        ("torch", None, "keras-backend"),
    ],
)
def test_a_backend_with_which_no_lesson_can_train_limits(variable, configured, expected, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    if variable:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    if configured:
        (tmp_path / "keras").mkdir()
        (tmp_path / "keras" / "keras.json").write_text(configured)
    findings, fine = look(settings.check_backend, host.Host("Windows", "x86_64", (3, 12), "venv", False))
    assert [found.id for found in findings] == ([expected] if expected else [])
    if not expected:
        assert fine == [f"Keras backend: {variable or 'tensorflow'}"]
        return
    assert (variable or "keras.json") in findings[0].what
    assert '    $env:KERAS_BACKEND = "tensorflow"' in lines(findings[0])
    assert ("    py workshop.py lab --with torch" in lines(findings[0])) == (variable == "torch")


def test_a_backend_that_is_not_installed_is_never_advised(monkeypatch):
    monkeypatch.setattr(settings, "has_module", lambda name: False)
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    (finding,), _ = look(settings.check_backend, host.Host("Linux", "x86_64", (3, 12), "own", False))
    assert "    python -m pip install jax" in lines(finding)
    assert not any("KERAS_BACKEND=" in line for line in lines(finding))


@pytest.mark.parametrize(
    ("settings_of_keras", "expected"),
    [
        ('{"image_data_format": "channels_first"}', "channels_first"),
        ('{"floatx": "float64", "backend": "tensorflow"}', "float64"),
        ('{"image_data_format": "channels_last", "floatx": "float32"}', ""),
        ("{", ""),
        ("[]", ""),
        ("", ""),
    ],
)
def test_keras_settings_of_another_course_are_told(settings_of_keras, expected, tmp_path):
    file = tmp_path / "keras" / "keras.json"
    file.parent.mkdir()
    file.write_text(settings_of_keras)
    found, _ = look(settings.check_keras_file)
    assert [each.id for each in found] == (["keras-settings"] if expected else [])
    if expected and os.name != "nt":
        assert expected in found[0].what and str(file) in found[0].what
        (command,) = [line for line in lines(found[0]) if line.startswith("    ")]
        subprocess.run(command, shell=True, check=True)
        assert look(settings.check_keras_file)[0] == []  # and the same file is not told again


@pytest.mark.parametrize(
    ("variable", "value", "is_told"),
    [
        ("MPLBACKEND", "Agg", True),
        ("MPLBACKEND", "module://matplotlib_inline.backend_inline", False),
        ("KERAS_MAX_EPOCHS", "1", True),
        ("KERAS_MAX_STEPS_PER_EPOCH", "2", True),
        ("JAX_ENABLE_X64", "True", True),
        ("JAX_ENABLE_X64", "0", False),
        ("JAX_DISABLE_JIT", "1", True),
        ("JAX_DEBUG_NANS", "1", True),
        ("PYOPENCL_BUILD_OPTIONS", "-cl-fast-relaxed-math", True),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("PYTHONOPTIMIZE", "2", True),
    ],
)
def test_a_variable_that_changes_what_lessons_show_is_told(variable, value, is_told, monkeypatch):
    monkeypatch.setenv(variable, value)
    found, _ = look(settings.check_variables)
    assert [each.id for each in found] == (["settings-variables"] if is_told else [])
    assert not found or f"    {host.unset_variable(HERE, variable)}" in lines(found[0])


def test_packages_that_pythonpath_puts_first_are_told(tmp_path, monkeypatch):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise SystemExit('imported by the doctor')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    found = only_finding(packages.check_pythonpath)
    assert found.id == "packages-pythonpath" and "numpy" in found.what and "keras" not in found.what
    assert f"    {host.unset_variable(HERE, 'PYTHONPATH')}" in lines(found)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # as docs/hosted.md sets it
    assert look(packages.check_pythonpath) == ([], [])


def test_packages_of_the_user_before_those_of_conda_are_told(tmp_path, monkeypatch):
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").touch()
    monkeypatch.setattr(packages.site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(packages.site, "getusersitepackages", lambda: str(tmp_path))
    conda = dataclasses.replace(HERE, installed_by="conda")
    found = only_finding(packages.check_pythonpath, conda)
    assert "keras" in found.what and any("PYTHONNOUSERSITE" in line for line in lines(found))
    monkeypatch.setattr(packages.site, "ENABLE_USER_SITE", False)  # as PYTHONNOUSERSITE=1 sets it
    assert look(packages.check_pythonpath, conda) == ([], [])


def test_a_named_file_that_is_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ANYGPU_MNIST", str(tmp_path / "own.npz"))
    found = only_finding(settings.check_dataset_file)
    assert found.id == "data-named-file" and str(tmp_path / "own.npz") in found.what
    assert f"    {host.unset_variable(HERE, 'ANYGPU_MNIST')}" in lines(found)


def test_the_files_that_the_advice_names_are_there():
    text = (ROOT / "helpers" / "doctor" / "failures.toml").read_text(encoding="utf-8")
    names = set(re.findall(r"\b(environment[\w-]*\.yml|workshop\.py|(?<!'s )docs/[\w-]+\.md)\b", text))
    assert len(names) > 4 and [name for name in names if not (ROOT / name).is_file()] == []
