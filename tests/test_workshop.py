"""The set-up: quick tests install nothing; the slow ones are real processes in folders of their own.

There the project asks for one or two small packages, in the versions of the real lock.
"""

import itertools
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
from helpers.devices.host import Host
from helpers.errors import WorkshopError
from helpers.running.tools import ask_tool
from helpers.setup import environment, families, programs, tools
from helpers.setup.environment import State

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
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the cuda family is for Linux")


def ask_for(folder, dependencies=("tabulate",), cuda=(), torch=("torch==0.0.1",), **extras):
    """Write which packages the project in a folder asks for."""
    project = {"name": "x", "version": "0", "requires-python": ">=3.11", "dependencies": list(dependencies)}
    lists = {"cpu": [], "cuda": list(cuda), "torch": list(torch), "intel-opencl": [], **extras}
    groups = {"setup": [], "test": ["iniconfig"], "book": ["imagesize"]}
    sections = {"project": project, "project.optional-dependencies": lists, "dependency-groups": groups}
    text = ""
    for name, keys in sections.items():
        text += "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]) + "\n"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def copy(folder):
    """Copy the project to `folder`, where it asks for one small package; `devices` is a command that needs none."""
    skip = shutil.ignore_patterns(".*", "build", "__pycache__", "cache", "*.ipynb")
    shutil.copytree(ROOT, folder, ignore=skip)
    ask_for(folder)
    (folder / "helpers/commands/devices.py").write_text(COMMAND, encoding="utf-8")
    return folder


def variables(**changes):
    """Return this process's environment without what other tests or tools set."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "KERAS_BACKEND")}
    return {**kept, **changes}


def offline(folder):
    """Return variables with which neither pip nor uv reaches an index or a cache."""
    return variables(
        PIP_INDEX_URL=OFFLINE, PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="", PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull,
        PIP_NO_CACHE_DIR="1", UV_DEFAULT_INDEX=OFFLINE, UV_HTTP_RETRIES="0", UV_CACHE_DIR=str(folder / "no cache"),
    )  # fmt: skip


def start(folder, *arguments, python=PYTHON, env=None, **options):
    return subprocess.Popen(
        [str(python), str(folder / "workshop.py"), *(arguments or ["devices"])], env=env or variables(),
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
    assert status == 0 and "Setup finished" in output, output
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
def gated(fresh):
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


# ------------------------------------------------------------------------------------- quick: what is said and chosen


def test_help_lists_every_command_and_installs_nothing(bare):
    status, output = call(bare, "--help")
    assert status == 0
    for name, text in commands.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", output, re.MULTILINE), name
    assert call(bare, "lab", "--help")[0] == 0
    assert not (bare / ".venv").exists() and not (bare / ".uv").exists()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("docter", ["no command called 'docter'", "Did you mean doctor?", "workshop.py --help` says"]),
        ("qqq", ["no command called 'qqq'", "Next: `", "workshop.py --help` says"]),
        ("lab --accel rocm", ["AMD", "docs/amd-linux.md"]),
        pytest.param(
            "lab --accel metal",
            ["Apple silicon", "Next: "],
            marks=pytest.mark.skipif(sys.platform == "darwin", reason="metal may be right here"),
        ),
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


@posix
def test_a_very_old_python_is_told_what_to_install(bare):
    status, output = call(bare, "lab", python=other_python("3.6", "3.7"))
    assert status == 2 and "this is Python 3." in output and "3.11 to 3.13" in output and "Install Python" in output


@posix
def test_python_3_8_starts_it(bare):
    assert call(bare, "--help", python=other_python("3.8"))[0] == 0


def hide_modules(place, *hidden):
    """Write a Python that lacks modules, as Debian's does; return its path."""
    hide = f"import runpy, sys; sys.modules.update(dict.fromkeys({hidden!r})); del sys.argv[0]"
    run = f"{hide}; runpy.run_path(sys.argv[0], run_name='__main__')"
    place.write_text(f'#!/bin/sh\nexec "{PYTHON}" -c "{run}" "$@"\n', encoding="utf-8")
    place.chmod(0o755)
    return place


@posix
def test_a_python_without_pip_and_venv_gets_the_one_apt_line(bare, tmp_path):
    status, output = call(bare, python=hide_modules(tmp_path / "debian_python", "pip", "ensurepip"))
    assert status == 2 and "apt install python{}.{}-venv".format(*sys.version_info[:2]) in output


def test_a_folder_that_cannot_be_written_to_is_told(bare):
    (bare / ".venv.lock").mkdir()
    status, output = call(bare, "lab")
    assert status == 2 and "cannot work in this folder" in output and ".venv.lock" in output


@posix
def test_of_two_calls_the_second_waits_for_the_first(bare):
    hold = f"import sys; sys.path.insert(0, {str(bare)!r}); import workshop"
    hold += "\nwith workshop.only_one(): print('held', flush=True); sys.stdin.read()"
    first = subprocess.Popen([PYTHON, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "held\n"
    second = start(bare, env=variables(PATH=os.devnull), python=hide_modules(bare / "python", "pip", "ensurepip"))
    assert "waiting" in second.stdout.readline() and second.poll() is None
    first.communicate()
    output, _ = second.communicate(timeout=LIMIT)
    assert "Your Python cannot make virtual environments." in output


def test_a_uv_that_was_removed_is_missed(monkeypatch, tmp_path):
    for name in ("UV", "UV_WANTED", "UV_INSTALLED"):
        (tmp_path / name).write_text("the same")
        monkeypatch.setattr(tools, name, tmp_path / name)
    assert tools.is_uv_there()
    (tmp_path / "UV").unlink()
    assert not tools.is_uv_there()


def test_a_mac_with_an_intel_processor_gets_its_pythons_and_a_translated_one_is_told(monkeypatch):
    monkeypatch.setattr(families.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(families.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(families, "is_translated", lambda: False)
    families.check("cpu")
    assert families.pythons("cpu") == ("3.12", "3.11") and families.torch_build("cpu") is None
    monkeypatch.setattr(families, "is_translated", lambda: True)
    for family in ("cpu", "metal"):
        with pytest.raises(WorkshopError, match="Intel"):
            families.check(family)


@pytest.mark.parametrize(
    ("says", "step"),
    [
        ("error: No solution found when resolving dependencies: tensorflow has no wheels with a matching", "platforms"),
        ("error: No space left on device (os error 28)", "Free some"),
        ("The filename or extension is too long. (os error 206)", "short path"),
        ("Hash mismatch for `tabulate==0.10.0`", "differs from the lock"),
        ("invalid peer certificate: UnknownIssuer", "UV_SYSTEM_CERTS"),
        ("failed to lookup address information: Could not resolve host", "Check the network"),
    ],
)
def test_what_uv_says_leads_to_a_step_that_helps(says, step, monkeypatch):
    for name in ("UV_SYSTEM_CERTS", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WorkshopError) as refused:
        tools.run("Installing", [sys.executable, "-c", f"import sys; sys.exit({says!r})"])
    assert step in refused.value.next and refused.value.why == says


def test_settings_that_lead_away_from_the_lock_are_left_out_and_the_choice_of_an_index_stays(monkeypatch):
    away = {"PIP_TARGET", "PIP_NO_BINARY", "PIP_DRY_RUN", "UV_EXCLUDE_NEWER", "UV_TARGET", "UV_SYSTEM_PYTHON"}
    chosen = {"UV_DEFAULT_INDEX", "UV_CACHE_DIR", "UV_OFFLINE", "PIP_INDEX_URL", "PIP_FIND_LINKS", "UV_NATIVE_TLS"}
    for name in away | chosen:
        monkeypatch.setenv(name, "set")
    left = tools.clean_environment()
    assert not away & set(left) and chosen <= set(left) and left["PIP_USER"] == "0"


@pytest.mark.parametrize("system", ["Windows", "Darwin", "Linux"])
def test_certificates_come_from_the_system_where_scanners_put_theirs(system, monkeypatch):
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    monkeypatch.setattr(tools.platform, "system", lambda: system)
    assert ("UV_SYSTEM_CERTS" in tools.clean_environment()) == (system != "Linux")
    monkeypatch.setenv("UV_SYSTEM_CERTS", "false")
    assert tools.clean_environment()["UV_SYSTEM_CERTS"] == "false"


@pytest.mark.parametrize(
    ("tool", "variables", "step"),
    [
        ("uv", {}, "UV_SYSTEM_CERTS=true"),
        ("uv", {"UV_SYSTEM_CERTS": "true"}, "set SSL_CERT_FILE"),
        ("uv", {"UV_SYSTEM_CERTS": "true", "SSL_CERT_FILE": "/none.pem"}, "no such file"),
        ("uv", {"UV_SYSTEM_CERTS": "true", "SSL_CERT_FILE": __file__}, "another network"),
        ("pip", {"UV_SYSTEM_CERTS": "true"}, "set PIP_CERT"),
        ("pip", {"PIP_CERT": __file__}, "another network"),
    ],
)
def test_a_certificate_that_is_refused_never_leads_to_what_is_done_already(tool, variables, step, monkeypatch):
    for name in ("UV_SYSTEM_CERTS", "SSL_CERT_FILE", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tools.platform, "system", lambda: "Linux")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    says = {"uv": "invalid peer certificate: UnknownIssuer", "pip": "SSL: CERTIFICATE_VERIFY_FAILED"}[tool]
    with pytest.raises(WorkshopError) as refused:
        tools.run("Installing", [sys.executable, "-c", f"import sys; print('error: {says}'); sys.exit(2)"])
    assert step in refused.value.next
    assert not any(f"set {name}{more}" in refused.value.next for name in variables for more in ("=", " to"))


@posix
def test_a_driver_off_path_is_found_as_the_doctor_finds_it(tmp_path, monkeypatch):
    """In WSL nvidia-smi may be in /usr/lib/wsl/lib alone, which is not always on PATH."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 12.0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(programs, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(families.platform, "system", lambda: "Linux")
    assert families.torch_build("cuda") == "cu129"
    assert "--accel cuda" in families.suggest_gpu("cpu")
    assert Host.here(tmp_path).nvidia
    assert ask_tool(["nvidia-smi"]).stdout == "12.0\n"


@on_linux
def test_a_gpu_is_offered_and_never_installed_unasked(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").symlink_to("/bin/true")  # a fake of the hardware's own tool
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "--accel cuda downloads about 4.2 GB" in families.suggest_gpu("cpu")
    assert families.suggest_gpu("cuda") == ""
    monkeypatch.setattr(environment, "read", lambda: None)
    asked = workshop.own_options().parse_args(["--without", "intel-opencl"])
    assert workshop.desired_state(asked, "lab") == State("cpu")


@pytest.mark.parametrize(("system", "size"), [("Windows", "0.8 GB"), ("Linux", "0.9 GB")])  # docs/platforms.md
def test_the_download_includes_intels_opencl_for_this_system(system, size, monkeypatch):
    monkeypatch.setattr(families.platform, "system", lambda: system)
    assert families.describe_download("cpu", [families.INTEL_OPENCL]) == size


@pytest.mark.parametrize(
    ("system", "machine", "folder", "extras"),
    [
        ("Linux", "x86_64", "/home/me/workshop", ("intel-opencl",)),
        ("Windows", "AMD64", "C:/gpu", ("intel-opencl",)),
        ("Linux", "x86_64", "/home/me/any gpu workshop", ()),  # the driver does not work there
        ("Linux", "aarch64", "/home/me/workshop", ()),
        ("Darwin", "x86_64", "/home/me/workshop", ()),
    ],
)
def test_intels_opencl_is_added_where_it_works(system, machine, folder, extras, monkeypatch):
    monkeypatch.setattr(families, "ROOT", folder)
    monkeypatch.setattr(families.platform, "system", lambda: system)
    monkeypatch.setattr(families.platform, "machine", lambda: machine)
    stands = [None]
    monkeypatch.setattr(environment, "read", lambda: stands[0])
    asked = workshop.own_options().parse_args([])
    assert workshop.desired_state(asked, "lab").extras == extras
    less = workshop.own_options().parse_args(["--without", "intel-opencl"])
    assert workshop.desired_state(less, "lab").extras == ()
    stands[0] = State("cpu", ("intel-opencl", "torch"))
    assert workshop.desired_state(asked, "lab") == stands[0]  # also where the folder was moved to one with a space
    assert workshop.desired_state(less, "lab").extras == ("torch",)  # remembered from here on
    stands[0] = State("cpu")
    assert workshop.desired_state(asked, "lab") == stands[0]


@posix
@pytest.mark.parametrize(("capabilities", "build"), [("8.6\\n12.0", "cu129"), ("8.6", "cu126"), ("[N/A]", "cu126")])
def test_pytorchs_build_holds_code_for_the_gpu(capabilities, build, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{capabilities}\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (_, _), (_, torch) = environment.installs(State("cuda", ("torch",)), Path("venv"))
    assert torch[-2:] == ["--torch-backend", build] and "--constraints" not in torch
    (_, _), (_, torch) = environment.installs(State("cpu", ("torch",)), Path("venv"))
    assert torch[-1] == "cpu" and "--constraints" in torch
    tool.unlink()
    assert families.torch_build("cuda") == "cu126"  # no driver, or an image that is built elsewhere


@pytest.mark.parametrize("family", families.FAMILIES)
def test_everything_but_pytorch_is_held_to_the_hashes_of_a_lock(family):
    (_, locked), *others = environment.installs(State(family, ("book", "openvino", "test", "torch")), Path("venv"))
    assert "--require-hashes" in locked and f"requirements/{families.FAMILIES[family].lock}" in locked
    assert [title for title, _ in others] == ["Installing PyTorch"]
    pairs = list(itertools.pairwise(locked))
    assert {("--extra", family), ("--extra", "openvino"), ("--group", "test")} <= set(pairs) and "torch" not in locked


# ------------------------------------------------------------------------- quick: what a killed call leaves is repaired


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder for .venv of one test; returns what makes an environment there."""
    for name in ("VENV", "NEW", "OLD"):
        monkeypatch.setattr(environment, name, tmp_path / f".venv.{name}")
    monkeypatch.setattr(environment.read, "__defaults__", (environment.VENV,))
    monkeypatch.setattr(tools, "is_uv_there", lambda: True)

    def make(venv, *extras, stamp=True):
        packages = venv / ("Lib" if os.name == "nt" else "lib/python3.12") / "site-packages"
        packages.mkdir(parents=True)
        (venv / "pyvenv.cfg").touch()
        if stamp:
            environment.write_stamp(State("cpu", extras), venv)
        return packages

    return make


def add_package(packages, name):
    """Make a package of two files; return its .dist-info."""
    (packages / f"{name}.py").touch()
    (packages / f"{name}, data.txt").touch()
    record = packages / f"{name}-1.0.dist-info"
    record.mkdir()
    lines = [f"{name}.py,,", f'"{name}, data.txt",,', f"__pycache__/{name}.pyc,,", f"{record.name}/RECORD,,"]
    (record / "RECORD").write_text("\n".join(lines), encoding="utf-8")
    return record


def test_packages_that_are_there_in_part_are_forgotten_after_a_kill_and_others_stay(place):
    packages = place(environment.VENV)
    whole, in_part, begun = (add_package(packages, name) for name in ("whole", "in_part", "begun"))
    (packages / "in_part, data.txt").unlink()
    (begun / "RECORD").unlink()
    environment.repair()
    assert in_part.exists(), "nothing was killed"
    (environment.VENV / environment.UNFINISHED).touch()
    environment.repair()
    assert whole.exists() and not in_part.exists() and not begun.exists()
    assert not (environment.VENV / environment.UNFINISHED).exists() and environment.read() == State("cpu")


def test_a_new_environment_that_is_whole_takes_its_place_after_a_kill_and_another_does_not(place):
    place(environment.VENV)
    place(environment.NEW, stamp=False)
    environment.repair()
    assert environment.read() == State("cpu")
    shutil.rmtree(environment.NEW)
    place(environment.NEW, "torch")
    environment.VENV.rename(environment.OLD)  # killed between two renames
    environment.repair()
    assert environment.read() == State("cpu", ("torch",)) and not environment.OLD.exists()


def test_an_install_that_fails_leaves_the_environment_that_stands(place, monkeypatch):
    place(environment.VENV)
    monkeypatch.setattr(environment, "find_python", lambda family: "3.12")

    def fail(title, command):
        if title == "Making .venv":
            place(environment.NEW, stamp=False)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(tools, "run", fail)
    with pytest.raises(KeyboardInterrupt):
        environment.build(State("cuda"))
    assert environment.read() == State("cpu") and not environment.NEW.exists()


@pytest.mark.parametrize("stamp", ["", "[]", '{"family": "intel-mac", "extras": []}', '{"family": "cpu"}'])
def test_a_stamp_that_says_nothing_is_none(stamp, place):
    place(environment.VENV)
    (environment.VENV / environment.STAMP).write_text(stamp)
    assert environment.read() is None


@pytest.mark.parametrize(
    ("family", "version", "kept"),
    [
        ("cpu", "2.11.0+cu128", True),
        ("cpu", "2.14.0+rocm10.1.0", True),
        ("cpu", "2.13.0+xpu", True),
        ("cpu", "2.13.0+cpu", False),
        ("cpu", "2.13.0", False),
        ("cuda", "2.13.0+cu126", False),  # the setup's own
    ],
)
def test_a_pytorch_for_a_gpu_stays_when_the_setup_adds_pytorch(family, version, kept, place, monkeypatch, capsys):
    packages = place(environment.VENV)
    (packages / f"torch-{version}.dist-info").mkdir()
    environment.write_stamp(State(family), environment.VENV)
    monkeypatch.setattr(environment, "version_of", lambda request: "3.12")
    ran = []
    monkeypatch.setattr(tools, "run", lambda title, command: ran.append(title))
    environment.build(State(family, ("torch",)))
    assert ("Installing PyTorch" in ran) != kept and (version in capsys.readouterr().out) == kept
    assert environment.read() == State(family, ("torch",))


def test_a_folder_that_is_no_environment_is_not_deleted(place, monkeypatch):
    environment.VENV.mkdir()
    (environment.VENV / "thesis.txt").write_text("mine", encoding="utf-8")
    monkeypatch.setattr(tools, "run", lambda title, command: pytest.fail("installs"))
    for _ in range(2):
        with pytest.raises(WorkshopError, match="not a virtual environment"):
            environment.build(State("cpu"))
        environment.repair()
        assert (environment.VENV / "thesis.txt").read_text(encoding="utf-8") == "mine"


# ------------------------------------------------------------------------------------------------- slow: real installs


@pytest.mark.slow
def test_a_second_call_installs_nothing_and_passes_the_status_on_also_where_the_folder_is_moved(ready, tmp_path):
    before, env = times(ready), offline(tmp_path)
    call(ready, "lab", "--accel", "cpu", "--with", "torch", "--help", env=env)
    assert call(ready, "test", "--help", env=env)[0] == 0 and times(ready) == before
    assert call(ready, env=env, cwd="/") == HANDED_OVER and times(ready) == before
    assert call(ready, "devices", "--nonsense", env=env)[0] == 2
    assert call(ready, env={**env, "KERAS_BACKEND": "torch"}) == (0, "handed over to torch\n")
    moved = ready.rename(tmp_path / "moved here")
    assert call(moved, env=offline(tmp_path)) == HANDED_OVER
    assert Path(inner(moved, "import helpers; print(helpers.__file__)").strip()).parent == moved / "helpers"


@pytest.mark.slow
def test_what_is_new_or_gone_is_added_and_the_rest_is_left(ready):
    by_hand = ready / ".venv/by-hand"  # what somebody put there
    by_hand.touch()
    before = times(ready)
    ask_for(ready, ["tabulate", "tqdm"])
    assert "Setup finished" in call(ready)[1]
    assert "Setup finished" in call(ready, "lint")[1]  # the test tools
    after = times(ready)
    assert sorted(name.split("-")[0] for name in after) == ["imagesize", "iniconfig", "tabulate", "tqdm"]
    assert before.items() <= after.items() and by_hand.exists()
    assert "Setting up" not in call(ready)[1] and times(ready) == after
    gone = next((ready / ".venv").rglob("tabulate-*.dist-info"))
    shutil.rmtree(gone)
    assert "Setup finished" in call(ready)[1] and gone.exists()


@pytest.mark.slow
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
    status, output = call(fresh, "devices", "--with", "torch", env=variables())
    assert status == 2 and "Installing PyTorch failed" in output and "open without it" in output and extras(fresh) == []
    assert call(fresh, env=offline(tmp_path)) == HANDED_OVER
    assert "Setting up" not in call(fresh, "doctor", "--quick", env=offline(tmp_path))[1]


@pytest.mark.slow
@on_linux
def test_a_family_that_fails_leaves_the_one_that_stood_and_one_that_does_not_is_remembered(ready, tmp_path):
    before, lock = times(ready), ready / "requirements/lock.txt"
    right = lock.read_text(encoding="utf-8")
    lock.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, right), encoding="utf-8")
    status, output = call(ready, "devices", "--accel", "cuda", env=variables(UV_CACHE_DIR=str(tmp_path / "cache")))
    assert status == 2 and "Installing the packages (cuda) failed" in output
    assert "tabulate" in output and "differs from the lock" in output
    lock.write_text(right, encoding="utf-8")
    assert call(ready, env=offline(tmp_path)) == HANDED_OVER and times(ready) == before
    assert [path.name for path in ready.glob(".venv*/")] == [".venv"]
    assert call(ready, "devices", "--accel", "cuda")[1].endswith("\nhanded over to jax\n")
    assert call(ready) == (0, "handed over to jax\n")
    assert [path.name for path in ready.glob(".venv*/")] == [".venv"]


@pytest.mark.slow
def test_a_package_that_the_lock_does_not_name_is_refused(ready, tmp_path):
    ask_for(ready, ["tabulate", "cowsay"])
    status, output = call(ready, env=variables())
    assert status == 2 and "no trusted hash" in output and "cowsay" in output


@pytest.mark.slow
@posix
def test_a_full_disk_is_told_and_changes_nothing(ready, tmp_path):
    """A fake of what uv says there."""
    (uv,), before = ready.glob(".uv/*/bin/uv"), times(ready)
    real = uv.rename(uv.with_name("real"))
    full = "echo 'error: failed to create directory `/tmp/x`: No space left on device (os error 28)' >&2; exit 2"
    uv.write_text(f"#!/bin/sh\n{full}\n", encoding="utf-8")
    uv.chmod(0o755)
    status, output = call(ready, "lab")
    assert status == 2 and "The disk is full" in output and "Free some" in output, output
    real.replace(uv)
    assert call(ready, env=offline(tmp_path)) == HANDED_OVER and times(ready) == before


@pytest.mark.slow
@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_set_up_leaves_no_process_and_goes_on(gated, number):
    folder, gate, at_gate = gated
    first = start(folder, start_new_session=True)
    assert in_the_end(at_gate.exists)
    first.send_signal(number)
    output, _ = first.communicate(timeout=LIMIT)
    assert first.returncode == 130 and "Interrupted" in output and "Traceback" not in output
    assert in_the_end(lambda: not processes_that_name(folder))
    gate.unlink()
    assert call(folder)[0] == 0


@pytest.mark.slow
@posix
def test_while_one_call_installs_another_opens_the_lessons_and_a_killed_one_is_waited_for_and_repaired(
    gated, built, tmp_path
):
    folder, gate, at_gate = gated
    shutil.copytree(built / ".venv", folder / ".venv", symlinks=True, copy_function=os.link)
    before = times(folder)
    first = start(folder, "lint", start_new_session=True)
    assert in_the_end(at_gate.exists)
    assert call(folder, env=offline(tmp_path)) == HANDED_OVER  # what stands is enough for this one
    first.kill()  # and not the tool that it started
    first.wait()
    second = start(folder, "lint")
    assert "waiting" in second.stdout.readline()
    gate.unlink()
    output, _ = second.communicate(timeout=LIMIT)
    assert "Setup finished" in output and extras(folder) == ["book", "test"], output
    assert before.items() <= times(folder).items()
    first.stdout.close()
    (table,) = (folder / ".venv").rglob("tabulate/__init__.py")
    table.unlink()
    (folder / ".venv/unfinished").touch()  # as a kill leaves it while uv puts files in place
    assert "Setup finished" in call(folder)[1]
    assert inner(folder, "import tabulate, iniconfig, helpers; print(tabulate.tabulate([]) or 'whole')") == "whole\n"
    assert [path.name for path in folder.glob(".venv*/")] == [".venv"]


@pytest.mark.slow
@posix
def test_a_name_outside_ascii_and_a_space_work_in_a_plain_locale(fresh, tmp_path):
    (tmp_path / "Jörg Müller").mkdir()
    folder = fresh.rename(tmp_path / "Jörg Müller/any gpu workshop")
    env = variables(LC_ALL="C", PYTHONCOERCECLOCALE="0")
    env.pop("PYTHONUTF8", None)
    status, output = call(folder, env=env)
    assert status == 0, output
    assert "Setting up" not in call(folder, env=env)[1]
    found = inner(folder, "import helpers; print(ascii(helpers.__file__))", env=env).strip()
    assert found == ascii(str(folder / "helpers/__init__.py"))


@pytest.mark.slow
@posix
def test_a_broken_python_in_venv_is_replaced(ready):
    python = ready / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert call(ready)[0] == 0 and inner(ready, "import tabulate; print('whole')") == "whole\n"


@pytest.mark.slow
@posix
def test_an_old_python_looks_for_a_fitting_one_fetches_one_or_says_what_to_install(fresh, tmp_path):
    old = other_python("3.8", "3.9", "3.10")
    empty = tmp_path / "bin"
    empty.mkdir()
    status, output = call(fresh, "lab", python=old, env=variables(PATH=str(empty), UV_OFFLINE="1"))
    assert status == 2 and "No suitable Python" in output and "3.13 or 3.12 or 3.11" in output
    assert "Downloading one failed" in output and "Install Python 3.12" in output
    assert not (fresh / ".venv").exists()
    (empty / "python3.12").symlink_to(PYTHON)  # whatever its name says, it answers for itself
    status, output = call(fresh, python=old, env=variables(PATH=f"{empty}:/usr/bin:/bin"))
    assert status == 0, output
    assert inner(fresh, "import sys; print(sys.version_info >= (3, 11))") == "True\n"


@pytest.mark.slow
@posix
def test_a_python_without_pip_makes_one(bare, tmp_path):
    status, output = call(bare, python=hide_modules(tmp_path / "debian_python", "pip"))
    assert status == 0, output


INTEL = "Intel's OpenCL comes by pip for Linux on x86-64"
COMPILE = """
import pyopencl as cl
intel = [p for p in cl.get_platforms() if "Intel" in p.name][0]
cl.Program(cl.Context(intel.get_devices()), "__kernel void f(__global int *a) { a[0] = 1; }").build()
print("Intel's compiler works")
"""
LIST = """
import pyopencl as cl
try:
    names = [p.name for p in cl.get_platforms()]
except cl.Error:  # this folder asked for no PoCL, and the system may have none
    names = []
print(any("Intel" in name for name in names))
"""


@pytest.mark.slow
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason=INTEL)
def test_intel_opencl_is_installed_found_and_compiles_also_where_the_folder_is_moved(fresh, tmp_path):
    folder = fresh.rename(tmp_path / "workshop")  # no space in this one
    ask_for(folder, ["pyopencl"], **{"intel-opencl": ["intel-opencl-rt", "intel-cmplr-lib-rt"]})
    output = call(folder, "devices")[1]
    assert "Setup finished" in output and families.INTEL_LICENSE in output, output
    assert inner(folder, COMPILE) == "Intel's compiler works\n"
    folder = folder.rename(tmp_path / "moved")
    assert "Setting up" not in call(folder)[1]  # it is remembered
    assert inner(folder, COMPILE) == "Intel's compiler works\n"
    folder = folder.rename(tmp_path / "moved again")
    assert "Setting up" not in call(folder)[1]
    assert inner(folder, LIST) == "False\n"  # in a path with a space it would be listed, and fail


@pytest.mark.parametrize(
    ("output", "step"),
    [
        ([], ""),
        (["Resolved 146 packages in 1.2s\n"], "Resolved 146 packages in 1.2s"),
        (["Prepared 3 packages\n", "Installed 146 packages in 3.78s\n"], "compiling"),
    ],
)
def test_the_silent_minute_after_uv_has_installed_has_a_name(output, step):
    assert tools.name_step(output).startswith(step)
