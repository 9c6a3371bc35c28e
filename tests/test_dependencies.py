"""Every list of packages is held against pyproject.toml, without a network."""

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
from helpers.commands import lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
CONDA_FILES = [ROOT / name for name in ("environment.yml", "environment-opencl.yml", "binder/environment.yml")]
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux", "os_name": "posix"}
MAC = {"sys_platform": "darwin", "platform_machine": "arm64", "platform_system": "Darwin", "os_name": "posix"}
INTEL = {**MAC, "platform_machine": "x86_64"}
WINDOWS = {"sys_platform": "win32", "platform_machine": "AMD64", "platform_system": "Windows", "os_name": "nt"}
ARM = {**LINUX, "platform_machine": "aarch64"}
MACHINES = {"cpu": (LINUX, ARM, MAC, WINDOWS), "cuda": (LINUX,), "metal": (MAC,), "intel-mac": (INTEL,)}
# family, machine, Python: what the set-up and the conda files install
PLACES = [
    (name, place, python)
    for name, family in workshop.FAMILIES.items()
    for place in MACHINES[name]
    for python in family.pythons
]


def requirements(path):
    """The requirements of a lock or any pip file, following -r from the file's own folder."""
    found = []
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in (line.split("#")[0].strip() for line in text.splitlines()):
        if line.startswith(("-r ", "-c ")):
            found += requirements((path.parent / line[3:]).resolve(strict=True))
        elif line:
            found.append(Requirement(line.split("--hash")[0].strip()))
    return found


def machine(place, python):
    return {**default_environment(), **place, "python_version": python, "python_full_version": f"{python}.1"}


def pins(path, environment):
    """Name -> version of what a lock installs on one machine."""
    chosen = {}
    for requirement in requirements(path):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            assert name not in chosen, f"{path.name} pins {name} twice for one machine"
            chosen[name] = str(requirement.specifier).removeprefix("==")
    return chosen


def wanted(family, environment):
    """What pyproject.toml asks for on one machine."""
    listed = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"][family]
    every = [Requirement(line) for line in listed]
    return [item for item in every if item.marker is None or item.marker.evaluate(environment)]


@pytest.mark.parametrize(("family", "place", "python"), PLACES)
def test_a_lock_has_all_that_the_project_asks_for(family, place, python):
    environment = machine(place, python)
    locked = pins(ROOT / f"requirements/{family}.txt", environment)
    for item in wanted(family, environment):
        assert item.specifier.contains(locked[canonicalize_name(item.name)]), item
    flavours = [name for name in locked if name in ("tensorflow", "tensorflow-cpu")]
    assert len(flavours) == 1, "two flavours of TensorFlow overwrite each other"
    assert not [name for name in locked if name.startswith("nvidia-") and not name.endswith("-cu12")]


@pytest.mark.parametrize(("family", "place", "python"), PLACES)
def test_the_test_tools_agree_with_every_family(family, place, python):
    environment = machine(place, python)
    locked = pins(ROOT / f"requirements/{family}.txt", environment)
    for group in ("test", "book"):  # installed together by `test`
        tools = pins(ROOT / f"requirements/{group}.txt", environment)
        assert {name: version for name, version in tools.items() if locked.get(name, version) != version} == {}
        for item in map(Requirement, PROJECT["dependency-groups"][group]):
            if item.marker and not item.marker.evaluate(environment):
                continue
            assert item.specifier.contains(tools[canonicalize_name(item.name)])
        locked |= tools


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_line_of_a_lock_is_pinned_and_hashed_and_names_no_index(path):
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9.-]+(\[[a-z0-9,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in text and "index" not in text.replace("jupyterlab-index", "")


def test_every_lock_is_made_by_the_command():
    assert {path.name for path in LOCKS} == {item.name for item in lock.LOCKS}


@pytest.mark.parametrize("path", CONDA_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_conda_file_installs_what_the_project_asks_for(path):
    assert path.is_file() and not path.is_symlink()
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))["dependencies"]
    (pip,) = [item["pip"] for item in listed if isinstance(item, dict)]
    conda = [item for item in listed if isinstance(item, str)]
    assert "python=3.12" in conda and "3.12" in PROJECT_RANGE and "pip" in conda
    assert not [line for line in pip if line.startswith(("-e", "."))], "an editable cannot stand beside hashes"
    environment = machine(LINUX, "3.12")
    found = {name.split("=")[0]: None for name in conda}
    for line in pip:
        assert line.startswith("-r ")
        found |= pins((path.parent / line[3:]).resolve(strict=True), environment)  # pip's own way to read the path
    if path.parent.name == "binder":
        found |= pins(ROOT / "requirements/binder-image.in", environment)  # there before: see test_binder.py
    for item in wanted("cpu", environment):
        if "pyopencl" in conda and item.name == "pocl-binary-distribution":
            assert "pocl" in conda and "pyopencl" not in pip
            continue
        version = found[canonicalize_name(item.name)]
        assert version is None or item.specifier.contains(version)
    if "pyopencl" in conda:
        assert found["pyopencl"] is None, "parts from conda and from pip must not be mixed"


PROJECT_RANGE = [f"3.{minor}" for minor in range(11, 14)]


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
