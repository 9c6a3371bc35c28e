"""The lists of packages are held against pyproject.toml, without a network."""

import os
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import workshop
from helpers import ROOT
from helpers.setup import environment, families

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS, GROUPS = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
CONDA_FILES = [ROOT / name for name in ("environment.yml", "environment-opencl.yml")]
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux", "os_name": "posix"}
MAC = {"sys_platform": "darwin", "platform_machine": "arm64", "platform_system": "Darwin", "os_name": "posix"}
INTEL_MAC = {**MAC, "platform_machine": "x86_64"}
WINDOWS = {"sys_platform": "win32", "platform_machine": "AMD64", "platform_system": "Windows", "os_name": "nt"}
ARM = {**LINUX, "platform_machine": "aarch64"}
NEWEST = ("3.11", "3.12", "3.13")
# family, machine, Python: what the set-up installs
PLACES = [
    *(("cpu", place, python) for place in (LINUX, ARM, MAC, WINDOWS) for python in NEWEST),
    *(("cpu", INTEL_MAC, python) for python in ("3.11", "3.12")),
    *(("cuda", LINUX, python) for python in NEWEST),
    ("metal", MAC, "3.12"),
]


def requirements(path):
    """The requirements that a lock or a list lists."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.split("#")[0].split("--hash")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def machine(place, python):
    return {**default_environment(), **place, "python_version": python, "python_full_version": f"{python}.1"}


def holding(lines, environment):
    """The requirements that hold on one machine."""
    every = [Requirement(str(line)) for line in lines]
    return [item for item in every if item.marker is None or item.marker.evaluate(environment)]


def pins(path, environment):
    """Name -> version of what a lock names for one machine."""
    chosen = {}
    for item in holding(requirements(path), environment):
        name = canonicalize_name(item.name)
        assert name not in chosen, f"{path.name} pins {name} twice for one machine"
        chosen[name] = str(item.specifier).removeprefix("==")
    return chosen


def wanted(family, environment):
    """What pyproject.toml asks for on one machine."""
    return holding(PROJECT["project"]["dependencies"] + EXTRAS[family], environment)


@pytest.mark.parametrize(("family", "place", "python"), PLACES)
def test_a_lock_has_all_that_the_project_asks_for(family, place, python):
    environment = machine(place, python)
    locked = pins(ROOT / "requirements" / families.FAMILIES[family].lock, environment)
    asked = wanted(family, environment)
    others = [name for name in EXTRAS if name not in families.FAMILIES and (name != "intel-opencl" or family == "cpu")]
    asked += holding([line for name in others for line in EXTRAS[name]], environment)
    asked += holding([line for group in GROUPS.values() for line in group], environment)
    for item in asked:
        if item.name != "torch":  # its builds share a version: see environment.installs
            assert item.specifier.contains(locked[canonicalize_name(item.name)]), item
    flavors = [item for item in asked if item.name in ("tensorflow", "tensorflow-cpu")]
    assert len(flavors) == 1, "two flavors of TensorFlow overwrite each other"
    assert not [name for name in locked if name.startswith("nvidia-") and not name.endswith("-cu12")]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_line_of_a_lock_is_pinned_and_hashed_and_names_no_index(path):
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9.-]+(\[[a-z0-9,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in text and "index" not in text.replace("jupyterlab-index", "")


def test_the_locks_are_those_that_something_installs_from():
    used = {family.lock for family in families.FAMILIES.values()} | {"uv.txt", "plaidml.txt"}
    assert {path.name for path in LOCKS} == used
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in LOCKS:  # uv writes into each how it was made
        command = re.search(r"^#    (uv .*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[1]
        assert command in re.sub(r" \\\n +", " ", contributing), path.name


def test_uv_in_the_environment_is_the_one_beside_it():
    here = machine(LINUX, "3.12")
    own = pins(ROOT / "requirements/uv.txt", here)
    assert own.items() <= pins(ROOT / "requirements/lock.txt", here).items()


def test_every_extra_and_group_that_can_be_asked_for_is_in_the_project():
    assert {*workshop.EXTRAS, *families.FAMILIES} == set(EXTRAS)
    assert {*environment.GROUPS, "setup"} == set(GROUPS)


@pytest.mark.parametrize("path", CONDA_FILES, ids=lambda path: path.name)
def test_a_conda_file_brings_a_fitting_python_and_uv_and_says_what_follows(path):
    text = path.read_text(encoding="utf-8")
    listed = yaml.safe_load(text)["dependencies"]
    assert {"python=3.12", "pip", "uv"} <= set(listed)
    from_conda = set(listed) - {"python=3.12", "pip", "uv"}
    left_out = {item.name for item in requirements(ROOT / "requirements/conda-opencl.in")}
    assert {name.removesuffix("-binary-distribution") for name in left_out} == (from_conda or {"pyopencl", "pocl"})
    (command,) = re.findall(r"^#   (uv pip install .*)$", text, re.MULTILINE)
    assert ("--excludes requirements/conda-opencl.in" in command) == bool(from_conda)
    pages = [ROOT / "docs/start.md", ROOT / "docs/opencl.md", ROOT / "helpers/doctor/failures.toml"]
    assert sum(command in page.read_text(encoding="utf-8") for page in pages) == 2


@pytest.mark.skipif(os.name != "posix", reason="Binder runs on Linux")
def test_binders_start_sets_the_profile_and_runs_what_it_is_given():
    done = subprocess.run(
        [ROOT / "binder/start", "sh", "-c", 'echo "$ANYGPU_PROFILE,$1"', "sh", "two words"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "preview,two words\n"


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_a_job_says_more_and_never_runs_a_strangers_code_with_rights(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in path.read_text(encoding="utf-8")
