"""The set-up, as real processes in folders of their own; the locks are shortened to one or two real packages."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from helpers import ROOT, commands

posix = pytest.mark.skipif(os.name != "posix", reason="signals and scripts of POSIX")
OFFLINE = "http://127.0.0.1:9/simple"  # nothing listens there


def shortened(lock, *packages, several=False):
    """Keep the head of a real lock and the blocks of the named packages; some have several, for several Pythons."""
    head, *blocks = re.split(r"^(?=[a-z0-9])", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [block for block in blocks if block.split("==")[0] in packages]
    assert len(kept) == len(packages) or several
    return head + "".join(kept)


def copy(folder):
    """Copy the project to `folder`, with locks of one small package each."""
    skip = shutil.ignore_patterns(".*", "build", "__pycache__", "cache", "*.ipynb")
    shutil.copytree(ROOT, folder, ignore=skip)
    locks = folder / "requirements"
    (locks / "cpu.txt").write_text(shortened(ROOT / "requirements/cpu.txt", "tabulate"), encoding="utf-8")
    (locks / "test.txt").write_text(shortened(ROOT / "requirements/test.txt", "iniconfig"), encoding="utf-8")
    return folder


def environment(**changes):
    """Return this environment without what other tests or tools set."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "KERAS_BACKEND")}
    return {**kept, **changes}


def offline(folder):
    """Return an environment in which neither pip nor uv reaches an index or a cache."""
    env = environment(
        PIP_INDEX_URL=OFFLINE, PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull, PIP_NO_CACHE_DIR="1",
        UV_INDEX_URL=OFFLINE, UV_DEFAULT_INDEX=OFFLINE, UV_HTTP_RETRIES="0", UV_CACHE_DIR=str(folder),
    )  # fmt: skip
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        env.pop(name, None)
    return env


def start(folder, *arguments, python=sys.executable, cwd=None, env=None, **options):
    command = [str(python), str(folder / "workshop.py"), *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd or folder.parent,
        env=env or environment(),
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )


def call(folder, *arguments, **options):
    """Run workshop.py to its end and return its status and what it said."""
    process = start(folder, *arguments, **options)
    said, _ = process.communicate(timeout=300)
    assert "Traceback" not in said, said
    return process.returncode, said


def ready(folder):
    """Bring the folder to a finished set-up by an ordinary call."""
    status, said = call(folder, "lock", "--check")
    if "Check the network" in said:
        pytest.skip("the package index cannot be reached")
    assert status == 0, said
    return folder


def until(condition, seconds=60):
    """Wait until a condition holds; the time-out is only against hanging."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def stamp(folder):
    try:
        return json.loads((folder / ".venv/workshop.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def times(folder):
    """When each package came into .venv."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / ".venv").rglob("*.dist-info")}


def inner(folder, code):
    """Run code in the Python of .venv, far from the folder."""
    python = folder / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    return subprocess.run([python, "-c", code], cwd="/", check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """One set-up that several tests use in turn; each of them leaves it usable."""
    return ready(copy(tmp_path_factory.mktemp("a learner's folder") / "any gpu workshop"))


@pytest.fixture
def fresh(tmp_path):
    return copy(tmp_path / "any gpu workshop")


def other_python(*versions):
    """Find a Python of one of these versions, on the path or where pyenv keeps them."""
    for version in versions:
        places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
        for place in filter(None, places):
            done = subprocess.run(
                [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True
            )
            if done.stdout.decode().strip() == version:
                return Path(place)
    pytest.skip(f"no Python {' or '.join(versions)} on this machine")


def test_help_lists_every_command_without_a_set_up(fresh):
    status, said = call(fresh, "--help")
    assert status == 0 and not (fresh / ".venv").exists()
    for name in commands.NAMES:
        assert re.search(rf"^  {name} +{re.escape(commands.load(name).HELP)}$", said, re.MULTILINE), name


def test_help_of_a_command_installs_nothing(fresh):
    status, _ = call(fresh, "lab", "--help")
    assert status == 0 and not (fresh / ".venv").exists()


def test_an_unknown_command_installs_nothing(fresh):
    status, said = call(fresh, "labb")
    assert status == 2 and "no command called 'labb'" in said and not (fresh / ".venv").exists()


@pytest.mark.parametrize("typed, meant", [("docter", "doctor"), ("screenshot", "screenshots"), ("qqq", None)])
def test_an_unknown_command_gets_a_next_step(fresh, typed, meant):
    said = call(fresh, typed)[1]
    step = said.split("Next: ")[1]
    assert "workshop.py --help`" in step
    assert f"Did you mean {meant}?" in step if meant else "Did you mean" not in step


def test_settings_that_lead_away_from_the_lock_are_left_out(fresh, tmp_path):
    away = {"PIP_TARGET": str(tmp_path / "away"), "PIP_NO_BINARY": ":all:", "PIP_DRY_RUN": "1"}
    away.update(UV_EXCLUDE_NEWER="2010-01-01T00:00:00Z", UV_TARGET=str(tmp_path / "away"), UV_SYSTEM_PYTHON="1")
    status, said = call(fresh, "lock", "--check", env=environment(**away))
    if "Check the network" in said and "exclude-newer" not in said:
        ready(fresh)  # skips if the network is the reason
    assert status == 0, said
    assert not (tmp_path / "away").exists()
    assert inner(fresh, "import tabulate; print('whole')") == "whole"


def test_a_room_without_a_network_keeps_its_settings(fresh, tmp_path):
    """pip must not go to the index when a teacher forbids it; the folder of wheels is empty here."""
    env = environment(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path), UV_OFFLINE="1")
    status, said = call(fresh, "lab", env=env)
    assert status == 2 and "Installing uv failed" in said and "No matching distribution" in said


def test_workshop_alone_says_that_the_rest_is_missing(tmp_path):
    shutil.copy(ROOT / "workshop.py", tmp_path)
    status, said = call(tmp_path, "lab")
    assert status == 2 and "not complete" in said


def test_a_second_call_installs_nothing_and_passes_the_status_on(workshop):
    ready(workshop)
    before = times(workshop)
    status, said = call(workshop, "lock", "--check", cwd="/")
    assert status == 0 and "Setting up" not in said and times(workshop) == before
    assert call(workshop, "lock", "--nonsense")[0] == 2
    (workshop / "environment.yml").write_text("changed", encoding="utf-8")
    assert call(workshop, "lock", "--check")[0] == 1
    shutil.copy(ROOT / "environment.yml", workshop)


def test_the_project_itself_can_be_imported_from_anywhere(workshop):
    assert Path(inner(workshop, "import helpers; print(helpers.__file__)")).parent == workshop / "helpers"


def test_a_changed_lock_adds_what_is_new_and_leaves_the_rest(workshop):
    ready(workshop)
    before = times(workshop)
    lock = workshop / "requirements/cpu.txt"
    lock.write_text(shortened(ROOT / "requirements/cpu.txt", "tabulate", "tqdm"), encoding="utf-8")
    status, said = call(workshop, "lock", "--check")
    assert status == 0 and "the lock has changed" in said
    after = times(workshop)
    assert any(name.startswith("tqdm") for name in after)
    unchanged = {name for name in before if "any_gpu_workshop" not in name}
    assert {name: after.get(name) for name in unchanged} == {name: before[name] for name in unchanged}


def test_test_tools_are_added_once_and_stay(workshop):
    ready(workshop)
    before = times(workshop)
    said = call(workshop, "lint")[1]
    assert "adding the test tools" in said
    after = times(workshop)
    assert any(name.startswith("iniconfig") for name in after)
    assert all(after.get(name) == when for name, when in before.items() if "any_gpu" not in name)
    assert "Setting up" not in call(workshop, "lock", "--check")[1]
    assert times(workshop) == after


def test_a_missing_package_comes_back(workshop):
    ready(workshop)
    gone = next((workshop / ".venv").rglob("tabulate-*.dist-info"))
    shutil.rmtree(gone)
    status, said = call(workshop, "lock", "--check")
    assert status == 0 and "tabulate is missing" in said and gone.exists()


def test_a_failed_download_leaves_what_was_there_usable(fresh, tmp_path):
    ready(fresh)
    env = environment(
        UV_INDEX_URL=OFFLINE, UV_DEFAULT_INDEX=OFFLINE, UV_CACHE_DIR=str(tmp_path / "cache"), UV_HTTP_RETRIES="0"
    )
    status, said = call(fresh, "lint", env=env)
    assert status == 2 and "Check the network" in said and OFFLINE in said, said
    status, said = call(fresh, "lock", "--check", env=env)
    assert status == 0 and "Setting up" not in said


def test_without_a_network_the_first_call_says_so(fresh, tmp_path):
    status, said = call(fresh, "lab", env={**offline(tmp_path / "cache"), "PIP_RETRIES": "1"})
    assert status == 2 and "Installing uv failed" in said and "Check the network" in said
    why = said.split("Why:  ")[1].split("\nNext: ")[0].split("\n")
    assert 1 <= len(why) <= 3 and "No matching distribution" in why[-1]
    assert all(len(line.strip()) <= 160 and "0x" not in line for line in why), why
    ready(fresh)


@posix
def test_a_killed_set_up_is_waited_for_and_repaired(fresh):
    first = start(fresh, "lock", "--check")
    until(lambda: stamp(fresh).get("state") == "installing")
    first.send_signal(signal.SIGKILL)
    first.wait()
    status, said = call(fresh, "lock", "--check")
    if "Check the network" in said:
        pytest.skip("the package index cannot be reached")
    assert status == 0 and "interrupted" in said
    assert stamp(fresh)["state"] == "ready"
    assert inner(fresh, "import tabulate, helpers; print('whole')") == "whole"
    first.stdout.close()


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_set_up_leaves_no_process(fresh, number):
    first = start(fresh, "lock", "--check", start_new_session=True)
    until(lambda: (fresh / ".venv/pyvenv.cfg").exists())
    first.send_signal(number)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130 and "Interrupted" in said and "Traceback" not in said
    until(lambda: not processes(fresh))


def test_two_calls_at_once_install_once(fresh):
    first = start(fresh, "lock", "--check")
    until(lambda: stamp(fresh).get("state") == "installing")
    status, second = call(fresh, "lock", "--check")
    said, _ = first.communicate(timeout=300)
    if "Check the network" in said:
        pytest.skip("the package index cannot be reached")
    assert (first.returncode, status) == (0, 0)
    assert "Setting up" in said and "Setting up" not in second and "waiting" in second


def test_a_moved_folder_is_set_up_anew(fresh, tmp_path):
    ready(fresh)
    moved = tmp_path / "moved here"
    fresh.rename(moved)
    status, said = call(moved, "lock", "--check")
    assert status == 0 and "moved or copied" in said
    assert Path(inner(moved, "import helpers; print(helpers.__file__)")).parent == moved / "helpers"


def test_a_rebuild_that_fails_gives_the_old_environment_back(fresh, tmp_path):
    ready(fresh)
    before, packages = stamp(fresh), times(fresh)
    moved, env = tmp_path / "moved here", offline(tmp_path / "cache")
    fresh.rename(moved)
    for _ in range(2):
        status, said = call(moved, "lock", "--check", env=env)
        assert status == 2 and "Check the network" in said and ".venv that was here before is back" in said
        assert stamp(moved) == before and not (moved / ".venv.old").exists()
    moved.rename(fresh)
    status, said = call(fresh, "lock", "--check", env=env)
    assert status == 0 and "Setting up" not in said and times(fresh) == packages


@posix
def test_an_old_environment_outlives_a_killed_rebuild(fresh, tmp_path):
    ready(fresh)
    before = stamp(fresh)
    moved, env = tmp_path / "moved here", offline(tmp_path / "cache")
    fresh.rename(moved)
    first = start(moved, "lock", "--check")
    until(lambda: stamp(moved).get("state") == "installing")
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    assert (moved / ".venv.old").exists()
    status, said = call(moved, "lock", "--check", env=env)
    assert status == 2 and "is back" in said and stamp(moved) == before
    ready(moved)
    assert stamp(moved)["state"] == "ready" and not (moved / ".venv.old").exists()


@posix
@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_name_outside_ascii_works_in_a_plain_locale(tmp_path, locale):
    folder = copy(tmp_path / "Jörg Müller" / "any gpu workshop")
    env = environment(LC_ALL=locale, PYTHONCOERCECLOCALE="0")
    env.pop("PYTHONUTF8", None)
    status, said = call(folder, "lock", "--check", env=env)
    if "Check the network" in said:
        pytest.skip("the package index cannot be reached")
    assert status == 0, said
    before = times(folder)
    status, said = call(folder, "lock", "--check", env=env)
    assert status == 0 and "Setting up" not in said and times(folder) == before
    where = [folder / ".venv/bin/python", "-c", "import helpers; print(ascii(helpers.__file__))"]
    found = subprocess.run(where, cwd="/", env=env, check=True, capture_output=True, text=True).stdout.strip()
    assert found == ascii(str(folder / "helpers/__init__.py"))


@posix
def test_a_broken_python_in_venv_is_replaced(fresh):
    ready(fresh)
    python = fresh / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    status, said = call(fresh, "lock", "--check")
    assert status == 0 and "no longer starts" in said


@posix
def test_a_python_that_answers_slowly_is_not_replaced(fresh):
    ready(fresh)
    python = fresh / ".venv/bin/python"
    real = python.resolve()
    python.unlink()
    python.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    python.chmod(0o755)
    before = stamp(fresh), times(fresh)
    hasty = "import sys, workshop; workshop.PROBE_SECONDS = 1; sys.exit(workshop.main(['lock', '--check']))"
    done = subprocess.run([sys.executable, "-c", hasty], cwd=fresh, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "did not answer within 1 s" in done.stderr and "Traceback" not in done.stderr
    assert (stamp(fresh), times(fresh)) == before
    python.unlink()
    python.symlink_to(real)
    assert "Setting up" not in call(fresh, "lock", "--check")[1]


def test_a_folder_that_is_no_environment_is_not_deleted(fresh):
    (fresh / ".venv").mkdir()
    (fresh / ".venv/thesis.txt").write_text("mine", encoding="utf-8")
    status, said = call(fresh, "lab")
    assert status == 2 and "Move it away" in said
    assert (fresh / ".venv/thesis.txt").read_text(encoding="utf-8") == "mine"


@posix
def test_an_old_python_looks_for_a_fitting_one_and_says_what_to_install(fresh, tmp_path):
    old = other_python("3.8", "3.9", "3.10")
    empty = tmp_path / "bin"
    empty.mkdir()
    status, said = call(fresh, "lab", python=old, env=environment(PATH=str(empty)))
    assert status == 2 and "No fitting Python" in said and "3.11 to 3.13" in said and "--yes" in said
    assert not (fresh / ".venv").exists()
    (empty / "python3.12").symlink_to(sys.executable)  # whatever its name says, it answers for itself
    status, said = call(fresh, "lock", "--check", python=old, env=environment(PATH=f"{empty}:/usr/bin:/bin"))
    assert status == 0, said
    assert inner(fresh, "import sys; print(sys.version_info >= (3, 11))") == "True"


@posix
@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_a_very_old_python_gets_the_same_words(fresh, tmp_path, version):
    status, said = call(fresh, "lab", python=other_python(version), env=environment(PATH=str(tmp_path)))
    assert status == 2 and f"this one is {version}." in said and "3.11 to 3.13" in said


def test_a_python_that_does_not_fit_is_refused_by_name(fresh):
    old = other_python("3.8", "3.9", "3.10")
    status, said = call(fresh, "lab", "--python", str(old))
    assert status == 2 and str(old) in said and "it is Python 3." in said and not (fresh / ".venv").exists()


@posix
def test_a_python_without_venv_gets_the_one_apt_line(fresh, tmp_path):
    fake_debian = tmp_path / "fake_debian_python"
    hide = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"
    fake_debian.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -c "{hide}" "$3"\n', encoding="utf-8")
    fake_debian.chmod(0o755)
    status, said = call(fresh, "lab", "--python", str(fake_debian))
    assert status == 2
    assert "apt install python{}.{}-venv".format(*sys.version_info[:2]) in said and not (fresh / ".venv").exists()


def test_a_folder_that_cannot_be_written_to_is_told(fresh):
    (fresh / ".venv.lock").mkdir()
    status, said = call(fresh, "lab")
    assert status == 2 and "cannot work in this folder" in said and ".venv.lock" in said


def test_rocm_prints_commands_and_installs_nothing(fresh):
    status, said = call(fresh, "lab", "--accel", "rocm")
    assert status == 2 and "not verified on hardware" in said and "pip install --index-url" in said
    assert not (fresh / ".venv").exists()


INTEL = "Intel's OpenCL comes by pip for Linux on x86-64"
PLATFORMS = """
import pyopencl as cl
intel = [p for p in cl.get_platforms() if "Intel" in p.name][0]
cl.Program(cl.Context(intel.get_devices()), "__kernel void f(__global int *a) { a[0] = 1; }").build()
print("Intel's compiler works")
"""


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason=INTEL)
def test_intel_opencl_is_installed_found_and_compiles(tmp_path):
    folder = copy(tmp_path / "workshop")  # no space in this one
    needed = ("numpy", "pyopencl", "pytools", "siphash24", "platformdirs", "typing-extensions")
    lock = shortened(ROOT / "requirements/cpu.txt", *needed, several=True)
    (folder / "requirements/cpu.txt").write_text(lock, encoding="utf-8")
    said = call(folder, "lock", "--check", "--with", "intel-opencl")[1]
    if "Check the network" in said:
        pytest.skip("the package index cannot be reached")
    assert "Set-up finished" in said, said
    assert inner(folder, PLATFORMS) == "Intel's compiler works"
    assert "Setting up" not in call(folder, "lock", "--check")[1]  # it is remembered


def test_intel_opencl_is_refused_where_it_is_known_not_to_work(fresh):
    status, said = call(fresh, "lab", "--with", "intel-opencl")
    assert status == 2
    assert "space" in said or INTEL in said  # the folder of these tests has a space in its name
    assert not (fresh / ".venv").exists()


def test_a_family_for_other_machines_is_refused(fresh):
    if sys.platform == "darwin":
        pytest.skip("metal may be right here")
    status, said = call(fresh, "lab", "--accel", "metal")
    assert status == 2 and "Apple silicon" in said and not (fresh / ".venv").exists()


@posix
def test_a_gpu_is_offered_and_never_installed_unasked(fresh, tmp_path):
    if sys.platform != "linux":
        pytest.skip("the cuda family is for Linux")
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "nvidia-smi").symlink_to("/bin/true")  # a fake of the hardware's own tool
    status, said = call(fresh, "lock", "--check", env=environment(PATH=f"{fake}:{os.environ['PATH']}"))
    if "Check the network" in said:
        pytest.skip("the package index cannot be reached")
    assert status == 0 and "--accel cuda` would download about 4.2 GB" in said
    assert stamp(fresh)["family"] == "cpu"


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lab_serves_through_workshop_and_ends_cleanly(workshop, tmp_path, number):
    """The real server, from the packages that run this test, started by workshop.py in a folder with spaces."""
    (workshop / "notebooks").mkdir(exist_ok=True)
    for lesson in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(lesson, workshop / "notebooks")
    ready(workshop)
    site = next((workshop / ".venv/lib").glob("python3.*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    scratch = tmp_path
    env = environment(JUPYTERLAB_DIR=str(Path(sys.prefix, "share/jupyter/lab")), TMPDIR=str(scratch))
    process = start(workshop, "lab", "--no-browser", env=env, start_new_session=True)
    try:
        said = ""
        while "stops it" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+", said).group()
        assert "/lab/tree/notebooks/" in address
        server, token = address.split("/lab/")[0], address.split("token=")[1]
        assert urllib.request.urlopen(f"{server}/api/status?token={token}", timeout=60).status == 200
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{server}/api/status", timeout=60)
        assert refused.value.code == 403
        refused.value.close()
        kernel = urllib.request.Request(f"{server}/api/kernels?token={token}", data=b"{}", method="POST")
        assert urllib.request.urlopen(kernel, timeout=60).status == 201
        wait_for_kernel(next(scratch.glob("workshop-lab-*/runtime/kernel-*.json")))
    finally:
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
        (site / "borrowed.pth").unlink()
    assert process.returncode == 0 and "JupyterLab has stopped" in rest and "Traceback" not in rest
    until(lambda: not processes(workshop))
    assert not list(scratch.glob("workshop-lab-*"))


def wait_for_kernel(file):
    from jupyter_client import BlockingKernelClient

    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    client.stop_channels()


def processes(folder):
    """The processes that run something out of a folder."""
    import psutil

    found = psutil.process_iter(["cmdline"])
    return [process for process in found if str(folder) in " ".join(process.info["cmdline"] or [])]
