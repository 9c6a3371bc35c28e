"""A stick for a room without a network: made as a teacher makes it, and installed where there is no network."""

import functools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_dependencies import pins
from test_workshop import LIMIT, PYTHON, copy, environment, inner, offline, other_python, processes, start

from helpers import ROOT
from helpers.commands import stick
from helpers.compute import data

MACHINE = (platform.system(), platform.machine())
HERE = next((name for name, laptop in stick.LAPTOPS.items() if (laptop.system, laptop.machine) == MACHINE), "")
MINE = "{}.{}".format(*sys.version_info)
LONG = 1500  # seconds, against hanging alone
ALONE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HERE, reason="no stick is made for this kind of computer")]


@functools.cache
def can_be_alone():
    """Say whether this system lets us run something in a namespace whose only network is itself."""
    return bool(shutil.which("unshare") and shutil.which("ip")) and not subprocess.call(
        [*ALONE, "true"], stderr=subprocess.DEVNULL
    )


def make(course, folder, *arguments):
    """Make a stick from a folder of the workshop; return what was said."""
    command = [sys.executable, "-m", "helpers", "stick", str(folder), "--python-version", MINE, *arguments]
    done = subprocess.run(command, cwd=course, env=environment(), capture_output=True, text=True, timeout=LONG)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    if done.returncode and ("MNIST is missing" in said or "could not be fetched" in said):
        pytest.skip("there is no network to fetch packages and MNIST from")
    assert done.returncode == 0, said
    return said


def call(folder, *arguments, python=PYTHON):
    """Run workshop.py where neither an index nor a cache is reached, and no network where this system allows it."""
    if can_be_alone():
        alone = folder.parent / "alone"
        alone.write_text("#!/bin/sh\nexec " + shlex.join([*ALONE, str(python)]) + ' "$@"\n', encoding="utf-8")
        alone.chmod(0o755)
        python = alone
    env = {name: value for name, value in offline(folder.parent).items() if name != data.VARIABLE}
    env["PATH"] = os.pathsep.join([str(Path(PYTHON).parent), env["PATH"]])
    process = start(folder, *(arguments or ("lock", "--check")), python=python, env=env)
    said, _ = process.communicate(timeout=LONG)
    assert "Traceback" not in said, said
    return process.returncode, said


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A stick for this computer and one for another, from a folder whose locks have one small package each."""
    course = copy(tmp_path_factory.mktemp("course") / "any gpu workshop")
    folder = tmp_path_factory.mktemp("stick")
    other = "windows" if HERE != "windows" else "linux"
    return folder, other, make(course, folder, "--platform", HERE, other)


@pytest.fixture
def laptop(small, tmp_path):
    """The folder for this computer, copied to it."""
    return shutil.copytree(small[0] / HERE, tmp_path / "my gpu, copied")


def change(folder, **changes):
    """Change what the wheels are said to be made for."""
    path = folder / "wheels/made-for.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")


def test_a_stick_has_packages_dataset_course_and_a_note(small):
    folder, other, said = small
    assert re.search(r"Ready after \d+ s: .*, 0\.\d GB\.", said) and "installers of Python" in said
    note = (folder / "INSTALL.txt").read_text(encoding="utf-8")
    assert MINE in note and "workshop.py lab" in note and "tinygrad (06)" in note
    for name in (HERE, other):
        assert stick.LAPTOPS[name].words in note
        place = folder / name
        wheels = [path.name for path in (place / "wheels").glob("*.whl")]
        assert {wheel.split("-")[0] for wheel in wheels} == {"pip", "uv", "tabulate"}
        assert not [hidden for hidden in place.rglob(".*") if hidden.name != ".gitkeep"]
        assert (place / "docs/taster.html").exists() and not (place / "build").exists()
        assert data._read_npz(place / "data/cache/mnist.npz")["x_train"].shape == (60000, 28, 28)
    uv = {name: next((folder / name / "wheels").glob("uv-*")).name for name in (HERE, other)}
    assert len(set(uv.values())) == 2 and any("win_amd64" in name for name in uv.values())


def test_a_laptop_without_a_network_installs_from_it_once(laptop):
    status, said = call(laptop)
    assert status == 0 and "asks no network" in said and "Set-up finished" in said, said
    assert inner(laptop, "import tabulate; print('whole')") == "whole\n"
    shutil.rmtree(laptop / "wheels")
    assert "Setting up" not in call(laptop)[1]


def test_a_python_without_pip_takes_the_wheel_of_pip(laptop, tmp_path):
    """As on Ubuntu, whose python3 has neither pip nor venv; online the set-up asks for a package of the system."""
    bare = tmp_path / "debian_python"
    hide = "import runpy, sys; sys.modules.update(dict.fromkeys(['pip', 'ensurepip'])); del sys.argv[0]"
    run = f"{hide}; runpy.run_path(sys.argv[0], run_name='__main__')"
    bare.write_text(f'#!/bin/sh\nexec "{PYTHON}" -c "{run}" "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    status, said = call(laptop, python=bare)
    assert status == 0 and "Set-up finished" in said, said


def test_another_python_finds_the_one_that_the_wheels_are_for(laptop):
    """On Windows `py` starts the newest; on a Mac python3 may be the system's."""
    other = other_python(*(version for version in ("3.13", "3.12", "3.10", "3.9") if version != MINE))
    status, said = call(laptop, python=other)
    assert status == 0 and "Set-up finished" in said, said
    assert inner(laptop, "import sys; print('{}.{}'.format(*sys.version_info))") == f"{MINE}\n"


def missing(folder):
    next((folder / "wheels").glob("tabulate*")).unlink()


def damaged(folder):
    next((folder / "wheels").glob("tabulate*")).write_bytes(b"PK half a wheel")


FROM_STICK = "copy that folder from the stick again"


@pytest.mark.parametrize(
    ("harm", "arguments", "words"),
    [
        (missing, (), [FROM_STICK, "tabulate"]),
        (damaged, (), [FROM_STICK, "tabulate"]),
        (lambda folder: next((folder / "wheels").glob("uv-*")).unlink(), (), [FROM_STICK, "uv"]),
        (lambda folder: change(folder, system="Plan 9"), (), ["no packages for this computer", "delete the folder"]),
        (lambda folder: change(folder, pythons=["3.99"]), (), ["need Python 3.99", "your teacher's installer"]),
        (lambda folder: None, ("lock", "--with", "torch"), ["no packages for torch", "It has cpu for: "]),
        (lambda folder: None, ("test",), ["no packages for test", "delete the folder wheels"]),
    ],
    ids=["missing", "damaged", "no uv", "other system", "other Python", "torch", "test tools"],
)
def test_what_the_folder_lacks_is_told_and_what_to_do(laptop, harm, arguments, words):
    harm(laptop)
    status, said = call(laptop, *arguments)
    assert status == 2 and all(word in said for word in words), said
    assert "Check the network" not in said


def test_a_stick_is_not_made_into_the_course_or_over_other_files_or_without_mnist(tmp_path, small, monkeypatch):
    def refused(folder, *arguments):
        command = [sys.executable, "-m", "helpers", "stick", str(folder), "--platform", HERE, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 2, done.stdout + done.stderr
        return done.stderr

    assert "in the workshop's own folder" in refused(ROOT / "stick")
    (tmp_path / HERE).mkdir()
    (tmp_path / HERE / "thesis.txt").write_text("mine", encoding="utf-8")
    assert "not from this command" in refused(tmp_path)
    assert (tmp_path / HERE / "thesis.txt").exists()
    assert "invalid choice" in refused(tmp_path, "--python-version", "3.10")
    assert "not made for linux-arm" in refused(tmp_path / "new", "--platform", "linux-arm", "--packages", "metal")
    assert "with Python 3.13" in refused(tmp_path / "new", "--platform", "intel-mac", "--python-version", "3.13")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(data, "load_mnist", data._stand_in)
    with pytest.raises(stick.WorkshopError, match="MNIST is missing"):
        stick.dataset()


def test_the_note_has_a_line_for_each_kind_of_laptop_with_what_to_type(tmp_path):
    for name, packages in (("windows", ["cpu"]), ("linux", ["cuda", "openvino"])):
        (tmp_path / name / "wheels").mkdir(parents=True)
        (tmp_path / name / stick.MADE_FOR).write_text("{}", encoding="utf-8")
        change(tmp_path / name, pythons=["3.11", "3.12"], packages=packages)
    note = stick.note(tmp_path)
    rows = [re.split("  +", line.strip()) for line in note.splitlines() if "workshop.py lab" in line]
    assert rows == [
        ["windows", stick.LAPTOPS["windows"].words, "3.11 or 3.12", "py workshop.py lab"],
        ["linux", stick.LAPTOPS["linux"].words, "3.11 or 3.12", "python3 workshop.py lab --accel cuda --with openvino"],
    ]
    assert all(len(line) <= 120 for line in note.splitlines())


@pytest.mark.parametrize("name", stick.LAPTOPS)
@pytest.mark.parametrize("python", ["3.11.2", "3.12.4"])
def test_what_another_computer_needs_is_judged_by_its_own_conditions(name, python):
    laptop = stick.LAPTOPS[name]
    (family,) = stick.packages_for(name, ["cpu"])
    lock = ROOT / f"requirements/{family}.txt"
    entries = stick.needed([lock], laptop.markers(python))
    found = dict(re.match(r"([\w.-]+)==(\S+) \\\n +--hash=sha256:", entry).groups() for entry in entries)
    assert found == pins(lock, {**laptop.markers(python), "extra": ""})
    assert ("tensorflow-cpu" in found) == (name == "linux") and ("pywinpty" in found) == (name == "windows")


@pytest.mark.skipif(not can_be_alone(), reason="this system lets us cut no process off from the network (unshare, ip)")
def test_a_real_stick_installs_where_there_is_no_network_and_a_lesson_runs_there(tmp_path):
    """About 1 GB to fetch, 3 GB to install; all of it goes at the end, whatever happened."""
    clone, folder, gpu = tmp_path / "clone", tmp_path / "stick", tmp_path / "gpu"
    try:
        # A fresh clone as far as a learner can tell: what git knows, changed or not.
        names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, clone / name)
        print(make(clone, folder, "--platform", HERE))
        shutil.copytree(folder / HERE, gpu)
        shutil.rmtree(folder)
        status, said = call(gpu, "doctor")
        print(said)
        assert status == 0 and "asks no network" in said and "MNIST: from data/cache" in said, said
        status, said = call(gpu, "run", "00", "--profile", "preview")
        print(said)
        assert status == 0 and "1 of 1 passed" in said, said
        assert not processes(gpu)
    finally:
        for place in (clone, folder, gpu, tmp_path / "no cache"):
            shutil.rmtree(place, ignore_errors=True)


def test_the_guide_names_every_choice():
    section = (ROOT / "docs/teaching.md").read_text(encoding="utf-8").partition("## Rooms without internet")[2]
    section = section.partition("\n## ")[0]
    for name in stick.LAPTOPS:
        assert f"`{name}`" in section, name
    assert "workshop.py stick" in section and "made-for.json" not in section
