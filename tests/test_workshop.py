"""The set-up, as real processes in folders of their own; the locks are shortened to one or two real packages."""

import errno
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from browser import processes_that_name
from waiting import in_the_end

import workshop
from helpers import ROOT, commands
from helpers.errors import WorkshopError

LIMIT = 300  # seconds, against hanging alone
COMMAND = """\
import os
def add_arguments(parser): pass
def run(args): print("handed over to", os.environ["KERAS_BACKEND"])
"""
HANDED_OVER = (0, "handed over to tensorflow\n")
OFFLINE = "http://127.0.0.1:9/simple"  # nothing listens there
PYTHON = getattr(sys, "_base_executable", sys.executable)  # what a learner calls python3, and no virtual environment
posix = pytest.mark.skipif(os.name != "posix", reason="signals and scripts of POSIX")


def shortened(name, *packages):
    """Keep the head of a real lock and the blocks of the named packages; some have several, for several Pythons."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    head, *blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    kept = [block for block in blocks if block.split("==")[0] in packages]
    assert len(kept) >= len(packages)
    return head + "".join(kept)


def copy(folder):
    """Copy the project to `folder`, with locks of one small package each, and a command that needs none."""
    skip = shutil.ignore_patterns(".*", "build", "__pycache__", "cache", "*.ipynb")
    shutil.copytree(ROOT, folder, ignore=skip)
    for name, package in (("cpu.txt", "tabulate"), ("test.txt", "iniconfig"), ("book.txt", "imagesize")):
        (folder / "requirements" / name).write_text(shortened(name, package), encoding="utf-8")
    (folder / "helpers/commands/lock.py").write_text(COMMAND, encoding="utf-8")
    return folder


def environment(**changes):
    """Return this environment without what other tests or tools set."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "KERAS_BACKEND")}
    return {**kept, **changes}


def offline(folder):
    """Return an environment in which neither pip nor uv reaches an index or a cache."""
    return environment(
        PIP_INDEX_URL=OFFLINE, PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="", PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull,
        PIP_NO_CACHE_DIR="1", UV_DEFAULT_INDEX=OFFLINE, UV_HTTP_RETRIES="0", UV_CACHE_DIR=str(folder / "no cache"),
    )  # fmt: skip


def start(folder, *arguments, python=PYTHON, env=None, **options):
    return subprocess.Popen(
        [str(python), str(folder / "workshop.py"), *(arguments or ["lock"])], env=env or environment(),
        text=True, encoding="utf-8", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        **{"cwd": folder.parent, **options},
    )  # fmt: skip


def call(folder, *arguments, **options):
    """Run workshop.py to its end and return its status and what it said."""
    process = start(folder, *arguments, **options)
    output, _ = process.communicate(timeout=LIMIT)
    assert "Traceback" not in output, output
    if "Check the network" in output and "env" not in options:
        pytest.skip("the package index cannot be reached")
    return process.returncode, output


def extras(folder):
    """The extras that .venv was built for."""
    return json.loads((folder / ".venv/workshop.json").read_text(encoding="utf-8"))["extras"]


def times(folder):
    """When each package came into .venv."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / ".venv").rglob("*.dist-info")}


def inner(folder, code, **options):
    """Run code in the Python of .venv, far from the folder."""
    python = folder / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    return subprocess.run([python, "-c", code], cwd="/", check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The one folder that is set up from nothing, and copied by the others."""
    folder = copy(tmp_path_factory.mktemp("built") / "any gpu workshop")
    status, output = call(folder)
    assert status == 0 and "Set-up finished" in output, output
    return folder


@pytest.fixture
def bare(tmp_path):
    """A folder as it is unpacked."""
    return copy(tmp_path / "any gpu workshop")


@pytest.fixture
def fresh(bare, built):
    """A folder that has uv already."""
    shutil.copytree(built / ".uv", bare / ".uv", copy_function=os.link)
    return bare


@pytest.fixture
def ready(fresh, built):
    """A folder that is set up; a copied .venv is as good as one built in its place."""
    shutil.copytree(built / ".venv", fresh / ".venv", symlinks=True, copy_function=os.link)
    return fresh


@pytest.fixture
def slow(fresh):
    """A folder whose uv begins to install, then waits until the file `gate` is gone."""
    (uv,), (gate, at_gate) = fresh.glob(".uv/*/bin/uv"), (fresh.with_name("gate"), fresh.with_name("at gate"))
    gate.touch()
    uv.rename(uv.with_name("real"))
    wait = f'touch "{at_gate}"; while [ -e "{gate}" ]; do sleep 0.02; done'
    case = f'case "$*" in *--dry-run*) ;; "pip install"*) {wait} ;; esac'
    uv.write_text(f'#!/bin/sh\n{case}\nexec "{uv.with_name("real")}" "$@"\n', encoding="utf-8")
    uv.chmod(0o755)
    return fresh, gate, at_gate


def other_python(*versions):
    """Find a Python of one of these versions, on the path or where pyenv keeps them."""
    for version in versions:
        places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
        for place in filter(None, places):
            done = subprocess.run([place, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
            if done.stdout.startswith(f"{version}."):
                return Path(place)
    pytest.skip(f"no Python {' or '.join(versions)} on this machine")


def test_help_lists_every_command_and_installs_nothing(bare):
    status, output = call(bare, "--help")
    assert status == 0
    for name, text in commands.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", output, re.MULTILINE), name
    assert call(bare, "lab", "--help")[0] == 0
    assert not (bare / ".venv").exists() and not (bare / ".uv").exists()


not_on_a_mac = pytest.mark.skipif(sys.platform == "darwin", reason="metal may be right here")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("docter", ["no command called 'docter'", "Did you mean doctor?", "workshop.py --help` says"]),
        ("qqq", ["no command called 'qqq'", "Next: `", "workshop.py --help` says"]),
        ("lab --accel rocm", ["AMD", "docs/amd-linux.md"]),
        pytest.param("lab --accel metal", ["Apple silicon", "Next: "], marks=not_on_a_mac),
        ("lab --with intel-opencl", ["Intel's OpenCL", "Next: "]),  # this folder's name has a space
    ],
)
def test_what_cannot_be_done_is_told_and_nothing_installed(bare, arguments, words):
    status, output = call(bare, *arguments.split())
    assert status == 2 and all(word in output for word in words), output
    assert not (bare / ".venv").exists() and not (bare / ".uv").exists()


def test_workshop_alone_says_that_the_rest_is_missing(tmp_path):
    shutil.copy(ROOT / "workshop.py", tmp_path)
    status, output = call(tmp_path, "lab")
    assert status == 2 and "incomplete" in output


@pytest.mark.slow
def test_settings_that_lead_away_from_the_lock_are_left_out(bare, tmp_path):
    away = {"PIP_TARGET": str(tmp_path / "away"), "PIP_NO_BINARY": ":all:", "PIP_DRY_RUN": "1", "PIP_USER": "1"}
    away.update(UV_EXCLUDE_NEWER="2010-01-01T00:00:00Z", UV_TARGET=str(tmp_path / "away"), UV_SYSTEM_PYTHON="1")
    status, output = call(bare, env=environment(**away, PIP_REQUIRE_VIRTUALENV="1"))
    if "Check the network" in output and "exclude-newer" not in output:
        call(bare)  # skips if the network is the reason
    assert status == 0, output
    assert not (tmp_path / "away").exists()
    assert inner(bare, "import tabulate; print('whole')") == "whole\n"


def test_a_second_call_installs_nothing_and_passes_the_status_on(ready, tmp_path):
    before, env = times(ready), offline(tmp_path)
    call(ready, "lab", "--accel", "cpu", "--with", "torch", "--help", env=env)
    assert call(ready, "test", "--help", env=env)[0] == 0 and times(ready) == before
    assert call(ready, env=env, cwd="/") == HANDED_OVER and times(ready) == before
    assert call(ready, "lock", "--nonsense", env=env)[0] == 2


def test_a_moved_folder_works_and_can_be_imported_from_anywhere(ready, tmp_path):
    moved = ready.rename(tmp_path / "moved here")
    assert call(moved, env=offline(tmp_path)) == HANDED_OVER
    assert Path(inner(moved, "import helpers; print(helpers.__file__)").strip()).parent == moved / "helpers"


def test_keras_gets_the_backend_of_the_family_unless_one_is_set(ready):
    assert call(ready, env=environment(KERAS_BACKEND="torch")) == (0, "handed over to torch\n")
    if sys.platform == "linux":
        shutil.copy(ready / "requirements/cpu.txt", ready / "requirements/cuda.txt")
        assert call(ready, "lock", "--accel", "cuda")[1].endswith("\nhanded over to jax\n")
        assert call(ready) == (0, "handed over to jax\n")  # it is remembered


def test_what_is_new_or_gone_is_added_and_the_rest_is_left(ready):
    before = times(ready)
    lock = ready / "requirements/cpu.txt"
    lock.write_text(shortened("cpu.txt", "tabulate", "tqdm"), encoding="utf-8")
    assert "Set-up finished" in call(ready)[1]
    assert "Set-up finished" in call(ready, "lint")[1]  # the test tools
    after = times(ready)
    assert sorted(name.split("-")[0] for name in after) == ["imagesize", "iniconfig", "pip", "tabulate", "tqdm", "uv"]
    assert before.items() <= after.items()
    assert "Setting up" not in call(ready)[1] and times(ready) == after
    gone = next((ready / ".venv").rglob("tabulate-*.dist-info"))
    shutil.rmtree(gone)
    assert "Set-up finished" in call(ready)[1] and gone.exists()


def test_without_a_network_the_first_call_says_so_and_the_next_goes_on(bare, built, tmp_path):
    status, output = call(bare, "lab", env=offline(tmp_path))
    assert status == 2 and "Installing uv failed" in output and "Check the network" in output
    why = output.split("Why:  ")[1].split("\nNext: ")[0].split("\n")
    assert 1 <= len(why) <= 3 and "No matching distribution" in why[-1]
    assert all(len(line.strip()) <= 160 and "0x" not in line for line in why), why
    shutil.copytree(built / ".uv", bare / ".uv", dirs_exist_ok=True)
    status, output = call(bare, "lab", "--with", "torch", env=offline(tmp_path))
    assert status == 2 and "Installing the packages (cpu) failed" in output
    assert "Check the network" in output and OFFLINE in output
    assert not list(bare.glob(".venv*/"))
    assert call(bare)[0] == 0 and extras(bare) == []


@pytest.mark.slow
@pytest.mark.parametrize("there", ["nothing yet", "the lessons"])
def test_an_extra_that_fails_is_not_remembered_and_the_lessons_open_without_it(there, fresh, built, tmp_path):
    if there == "the lessons":
        shutil.copytree(built / ".venv", fresh / ".venv", symlinks=True, copy_function=os.link)
    project = (fresh / "pyproject.toml").read_text(encoding="utf-8")
    (fresh / "pyproject.toml").write_text(re.sub('"torch==[^;]*;', '"torch==0.0.1;', project), encoding="utf-8")
    status, output = call(fresh, "lock", "--with", "torch", env=environment())
    assert status == 2 and "Installing PyTorch failed" in output and "open without it" in output and extras(fresh) == []
    (fresh / "pyproject.toml").write_text(project, encoding="utf-8")
    assert call(fresh, env=offline(tmp_path)) == HANDED_OVER
    assert "Setting up" not in call(fresh, "doctor", "--quick", env=offline(tmp_path))[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the cuda family is for Linux")
def test_a_family_that_fails_leaves_the_one_that_stood(ready, tmp_path):
    before, lock = times(ready), ready / "requirements/cuda.txt"
    lock.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, shortened("cuda.txt", "tabulate", "tqdm")))
    status, output = call(ready, "lock", "--accel", "cuda")
    assert status == 2 and "Installing the packages (cuda) failed" in output
    assert re.search("tabulate|tqdm", output) and "differs from the lock" in output
    assert call(ready, env=offline(tmp_path)) == HANDED_OVER and times(ready) == before
    assert [path.name for path in ready.glob(".venv*/")] == [".venv"]


@posix
def test_a_full_disk_is_told_and_changes_nothing(ready, tmp_path):
    """A fake of what uv says there; it needs a little room for each answer."""
    (uv,), before = ready.glob(".uv/*/bin/uv"), times(ready)
    real = uv.rename(uv.with_name("real"))
    full = "echo 'error: failed to create directory `/tmp/x`: No space left on device (os error 28)' >&2; exit 2"
    uv.write_text(f"#!/bin/sh\n{full}\n", encoding="utf-8")
    uv.chmod(0o755)
    status, output = call(ready, "lab")
    assert status == 2 and "disk is full" in output and "Make room" in output, output
    real.replace(uv)
    assert call(ready, env=offline(tmp_path)) == HANDED_OVER and times(ready) == before


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_set_up_leaves_no_process_and_goes_on(slow, number):
    folder, gate, at_gate = slow
    first = start(folder, start_new_session=True)
    assert in_the_end(at_gate.exists)
    first.send_signal(number)
    output, _ = first.communicate(timeout=LIMIT)
    assert first.returncode == 130 and "Interrupted" in output and "Traceback" not in output
    assert in_the_end(lambda: not processes_that_name(folder))
    gate.unlink()
    assert call(folder)[0] == 0


@posix
def test_a_killed_set_up_leaves_lessons_that_open_without_a_network_and_is_waited_for(slow, built, tmp_path):
    folder, gate, at_gate = slow
    shutil.copytree(built / ".venv", folder / ".venv", symlinks=True, copy_function=os.link)
    before = times(folder)
    first = start(folder, "lint", start_new_session=True)
    assert in_the_end(at_gate.exists)
    first.kill()  # and not the tool that it started
    first.wait()
    assert call(folder, env=offline(tmp_path)) == HANDED_OVER and times(folder) == before
    second = start(folder, "lint")
    assert "waiting" in second.stdout.readline()
    gate.unlink()
    output, _ = second.communicate(timeout=LIMIT)
    assert "Set-up finished" in output and extras(folder) == ["book", "test"], output
    assert inner(folder, "import tabulate, iniconfig, helpers; print('whole')") == "whole\n"
    assert [path.name for path in folder.glob(".venv*/")] == [".venv"]
    first.stdout.close()
    (folder / ".venv").rename(folder / ".venv.old")  # killed between two renames
    assert call(folder, env=offline(tmp_path))[1].endswith(HANDED_OVER[1])


@pytest.fixture
def rebuild(tmp_path, monkeypatch):
    """Build beside a .venv of another family that stands, while one rename is refused; what is built is empty."""
    for name in ("VENV", "NEW", "OLD"):
        monkeypatch.setattr(workshop, name, str(tmp_path / f".venv-{name}"))
    Path(workshop.VENV).mkdir()
    Path(workshop.VENV, "pyvenv.cfg").touch()
    monkeypatch.setattr(workshop, "is_there", lambda wanted: False)
    monkeypatch.setattr(workshop, "find_python", lambda family: "")
    monkeypatch.setattr(workshop, "run", lambda title, command: Path(workshop.NEW).mkdir())
    monkeypatch.setattr(workshop, "add_this_folder", lambda venv: None)
    monkeypatch.setattr(workshop, "installs", lambda wanted, venv: [])
    rename = os.rename

    def refusing(refused, error):
        def renamed(old, new):
            if old == getattr(workshop, refused):
                raise error
            rename(old, new)

        monkeypatch.setattr(workshop.os, "rename", renamed)
        workshop.build({"family": "cpu", "extras": []})

    return refusing


def test_windows_waits_for_a_virus_scanner_before_it_renames(monkeypatch, tmp_path):
    """A fake of Windows' refusal while another program has a file open."""
    refusals, rename = [PermissionError("Access is denied")] * 3, os.rename

    def scanned(old, new):
        if refusals:
            raise refusals.pop()
        rename(old, new)

    (tmp_path / "new").mkdir()
    monkeypatch.setattr(workshop, "WINDOWS", True)
    monkeypatch.setattr(workshop.os, "rename", scanned)
    monkeypatch.setattr(workshop.time, "sleep", lambda seconds: None)
    workshop.rename(str(tmp_path / "new"), str(tmp_path / "venv"))
    assert (tmp_path / "venv").is_dir() and not refusals


def test_a_uv_that_was_removed_is_missed(monkeypatch, tmp_path):
    monkeypatch.setattr(workshop, "WINDOWS", False)
    for name, file in (("UV", "uv"), ("UV_LOCK", "lock"), ("UV_HERE", "here")):
        (tmp_path / file).write_text("the same")
        monkeypatch.setattr(workshop, name, str(tmp_path / file))
    assert workshop.uv_is_there()
    (tmp_path / "uv").unlink()
    assert not workshop.uv_is_there()


def test_a_python_for_intel_on_an_apple_mac_is_told(monkeypatch):
    monkeypatch.setattr(workshop.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(workshop.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(workshop, "is_translated", lambda: False)
    assert workshop.family_for("cpu") == "intel-mac"
    monkeypatch.setattr(workshop, "is_translated", lambda: True)
    for family in ("cpu", "metal"):
        with pytest.raises(WorkshopError, match="Intel"):
            workshop.family_for(family)


@pytest.mark.parametrize(
    ("says", "step"),
    [
        ("error: No solution found when resolving dependencies: tensorflow has no wheels with a matching", "platforms"),
        ("invalid peer certificate: UnknownIssuer", "UV_SYSTEM_CERTS"),
        ("failed to lookup address information: Could not resolve host", "Check the network"),
    ],
)
def test_what_uv_says_leads_to_a_step_that_helps(says, step):
    tool = [sys.executable, "-c", f"import sys; sys.exit({says!r})"]
    with pytest.raises(WorkshopError) as refused:
        workshop.run("Installing", tool)
    assert step in refused.value.next


@pytest.mark.parametrize("refused", ["NEW", "VENV"])
def test_a_venv_stands_whichever_rename_is_refused(rebuild, refused):
    with pytest.raises(PermissionError):
        rebuild(refused, PermissionError("a virus scanner looks in"))
    assert Path(workshop.VENV, "pyvenv.cfg").exists()
    assert not Path(workshop.NEW).exists() and not Path(workshop.OLD).exists()


def test_a_venv_of_an_image_is_replaced_though_it_cannot_be_renamed(rebuild):
    rebuild("VENV", OSError(errno.EXDEV, "Invalid cross-device link"))  # as overlayfs says
    assert workshop.read_stamp() == {"family": "cpu", "extras": []}


def test_what_can_be_neither_linked_nor_copied_is_refused_at_the_first_file(tmp_path):
    with pytest.raises(WorkshopError, match="No such file"):
        workshop.link(__file__, str(tmp_path / "no folder" / "copy"))


@posix
def test_a_name_outside_ascii_works_in_a_plain_locale(fresh, tmp_path):
    (tmp_path / "Jörg Müller").mkdir()
    folder = fresh.rename(tmp_path / "Jörg Müller/any gpu workshop")
    env = environment(LC_ALL="C", PYTHONCOERCECLOCALE="0")
    env.pop("PYTHONUTF8", None)
    status, output = call(folder, env=env)
    assert status == 0, output
    assert "Setting up" not in call(folder, env=env)[1]
    found = inner(folder, "import helpers; print(ascii(helpers.__file__))", env=env).strip()
    assert found == ascii(str(folder / "helpers/__init__.py"))


@posix
def test_a_broken_python_in_venv_is_replaced(ready):
    python = ready / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert call(ready)[0] == 0 and inner(ready, "import tabulate; print('whole')") == "whole\n"


@posix
def test_an_old_python_looks_for_a_fitting_one_fetches_one_or_says_what_to_install(fresh, tmp_path):
    old = other_python("3.8", "3.9", "3.10")
    empty = tmp_path / "bin"
    empty.mkdir()
    status, output = call(fresh, "lab", python=old, env=environment(PATH=str(empty), UV_OFFLINE="1"))
    assert status == 2 and "No fitting Python" in output and "3.13 or 3.12 or 3.11" in output
    assert "Fetching one failed" in output and "Install Python 3.12" in output
    assert not (fresh / ".venv").exists()
    (empty / "python3.12").symlink_to(PYTHON)  # whatever its name says, it answers for itself
    status, output = call(fresh, python=old, env=environment(PATH=f"{empty}:/usr/bin:/bin"))
    assert status == 0, output
    assert inner(fresh, "import sys; print(sys.version_info >= (3, 11))") == "True\n"


@posix
def test_a_very_old_python_is_told_what_to_install(bare):
    status, output = call(bare, "lab", python=other_python("3.6", "3.7"))
    assert status == 2 and "this one is 3." in output and "3.11 to 3.13" in output and "Install Python" in output


@pytest.mark.slow
@posix
@pytest.mark.parametrize("hidden, status", [("pip", 0), ("pip ensurepip", 2)])
def test_a_python_without_pip_makes_one_or_gets_the_one_apt_line(bare, tmp_path, hidden, status):
    debian = tmp_path / "debian_python"
    hide = f"import runpy, sys; sys.modules.update(dict.fromkeys('{hidden}'.split())); del sys.argv[0]"
    run = f"{hide}; runpy.run_path(sys.argv[0], run_name='__main__')"
    debian.write_text(f'#!/bin/sh\nexec "{PYTHON}" -c "{run}" "$@"\n', encoding="utf-8")
    debian.chmod(0o755)
    found, output = call(bare, python=debian)
    assert found == status, output
    assert ("apt install python{}.{}-venv".format(*sys.version_info[:2]) in output) == (status == 2)


def test_a_folder_that_cannot_be_written_to_is_told(fresh):
    (fresh / ".venv.lock").mkdir()
    status, output = call(fresh, "lab")
    assert status == 2 and "cannot work in this folder" in output and ".venv.lock" in output


INTEL = "Intel's OpenCL comes by pip for Linux on x86-64"
COMPILE = """
import pyopencl as cl
intel = [p for p in cl.get_platforms() if "Intel" in p.name][0]
cl.Program(cl.Context(intel.get_devices()), "__kernel void f(__global int *a) { a[0] = 1; }").build()
print("Intel's compiler works")
"""


@pytest.mark.slow
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason=INTEL)
def test_intel_opencl_is_installed_found_and_compiles_also_where_the_folder_is_moved(fresh, tmp_path):
    folder = fresh.rename(tmp_path / "workshop")  # no space in this one
    needed = ("numpy", "pyopencl", "pytools", "siphash24", "platformdirs", "typing-extensions")
    (folder / "requirements/cpu.txt").write_text(shortened("cpu.txt", *needed), encoding="utf-8")
    output = call(folder, "lock", "--with", "intel-opencl")[1]
    assert "Set-up finished" in output, output
    assert inner(folder, COMPILE) == "Intel's compiler works\n"
    folder = folder.rename(tmp_path / "moved")
    assert "Setting up" not in call(folder)[1]  # it is remembered
    assert inner(folder, COMPILE) == "Intel's compiler works\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the cuda family is for Linux")
def test_a_gpu_is_offered_and_never_installed_unasked(fresh, tmp_path):
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "nvidia-smi").symlink_to("/bin/true")  # a fake of the hardware's own tool
    status, output = call(fresh, env=environment(PATH=f"{fake}:{os.environ['PATH']}"))
    assert status == 0 and "--accel cuda` would download about 4.2 GB" in output
    assert json.loads((fresh / ".venv/workshop.json").read_text())["family"] == "cpu"


@pytest.mark.skipif(os.name == "nt", reason="the fake tool is a shell script")
@pytest.mark.parametrize(("capabilities", "build"), [("8.6\\n12.0", "cu129"), ("8.6", "cu126"), ("[N/A]", "cu126")])
def test_pytorchs_build_holds_code_for_the_gpu(capabilities, build, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{capabilities}\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    wanted = {"family": "cuda", "extras": ["torch"]}
    assert workshop.installs(wanted, "venv")[-1][1][-2:] == ["--torch-backend", build]
    assert workshop.installs({**wanted, "family": "cpu"}, "venv")[-1][1][-1] == "cpu"
    tool.unlink()
    assert workshop.torch_build("cuda") == "cu126"  # no driver, or an image that is built elsewhere


def test_a_folder_that_is_no_environment_is_not_deleted(fresh):
    (fresh / ".venv").mkdir()
    (fresh / ".venv/thesis.txt").write_text("mine", encoding="utf-8")
    for _ in range(2):
        status, output = call(fresh, "lab")
        assert status == 2 and "Move .venv away" in output
        assert (fresh / ".venv/thesis.txt").read_text(encoding="utf-8") == "mine"
