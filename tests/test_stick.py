"""A stick for a room without a network: what it holds, and that a laptop installs from it alone."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_dependencies import pins
from test_workshop import PYTHON, copy, environment, inner, offline, start

import workshop
from helpers import ROOT
from helpers.commands import stick
from helpers.errors import WorkshopError
from helpers.training import data

MACHINE = (platform.system(), platform.machine())
HERE = next((name for name, laptop in stick.LAPTOPS.items() if (laptop.system, laptop.machine) == MACHINE), "")
MINE = "{}.{}".format(*sys.version_info)
LONG = 1500  # seconds, against hanging alone

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HERE, reason="no stick is made for this kind of computer")]


def make(course, folder, *arguments):
    """Make a stick from a folder of the workshop; return what was said."""
    command = [sys.executable, "-m", "helpers", "stick", str(folder), "--python-version", MINE, *arguments]
    done = subprocess.run(command, cwd=course, env=environment(), capture_output=True, text=True, timeout=LONG)
    output = done.stdout + done.stderr
    assert "Traceback" not in output, output
    if done.returncode and ("MNIST is missing" in output or "could not be fetched" in output):
        pytest.skip("there is no network to fetch packages and MNIST from")
    assert done.returncode == 0, output
    return output


def call(folder, *arguments, python=PYTHON):
    """Run workshop.py where neither an index nor a cache is reached; return its status and what it said."""
    env = {name: value for name, value in offline(folder.parent).items() if name != data.VARIABLE}
    env["PATH"] = os.pathsep.join([str(Path(PYTHON).parent), env["PATH"]])
    process = start(folder, *arguments, python=python, env=env)
    output, _ = process.communicate(timeout=LONG)
    assert "Traceback" not in output, output
    return process.returncode, output


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
    folder, other, printed = small
    assert re.search(r"Ready after \d+ s: .*, 0\.\d GB\.", printed) and "installers of Python" in printed
    note = (folder / "INSTALL.txt").read_text(encoding="utf-8")
    assert MINE in note and "workshop.py lab" in note and "tinygrad (06b)" in note
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
    status, output = call(laptop)
    assert status == 0 and "asks no network" in output and "Set-up finished" in output, output
    assert inner(laptop, "import tabulate; print('whole')") == "whole\n"
    shutil.rmtree(laptop / "wheels")
    assert "Setting up" not in call(laptop)[1]


@pytest.mark.parametrize(
    ("harm", "fact"),
    [
        (lambda folder: next((folder / "wheels").glob("tabulate*")).unlink(), "tabulate"),
        (lambda folder: change(folder, system="Plan 9"), "another computer"),
        (lambda folder: change(folder, pythons=["3.99"]), "Python 3.99"),
    ],
    ids=["missing", "other system", "other Python"],
)
def test_what_the_folder_lacks_is_named(laptop, harm, fact):
    harm(laptop)
    status, printed = call(laptop)
    assert status == 2 and fact in printed and "Check the network" not in printed, printed


def test_a_stick_is_not_made_into_the_course_over_other_files_or_without_packages_or_mnist(tmp_path, monkeypatch):
    with pytest.raises(WorkshopError, match="in the workshop's own folder"):
        stick.run(argparse.Namespace(folder=ROOT / "stick"))
    asked = argparse.Namespace(folder=tmp_path, platform=["windows", "intel-mac"], python_version=["3.13"])
    with pytest.raises(WorkshopError, match=r"no packages for Mac with Intel.* Python 3\.13"):
        stick.run(asked)
    assert not list(tmp_path.iterdir())  # nothing was fetched
    (tmp_path / "windows").touch()
    asked.folder, asked.platform = tmp_path / "windows", ["linux"]
    with pytest.raises(WorkshopError, match="cannot be a folder"):
        stick.run(asked)
    (tmp_path / "windows").unlink()
    (tmp_path / "windows").mkdir()
    asked.folder, asked.platform = tmp_path, ["windows"]
    with pytest.raises(WorkshopError, match="not from this command"):
        stick.run(asked)
    monkeypatch.setattr(data, "load_mnist", data._stand_in)
    with pytest.raises(WorkshopError, match="MNIST is missing"):
        stick.dataset()


def test_the_folder_stands_first_in_what_is_to_be_typed():
    parser = argparse.ArgumentParser()
    stick.add_arguments(parser)
    assert "FOLDER [--platform" in parser.format_usage()
    assert parser.parse_args(["/media/X", "--platform", "windows", "macos"]).platform == ["windows", "macos"]


def test_what_a_stick_never_has_is_neither_offered_nor_looked_for_on_it(monkeypatch, capsys):
    monkeypatch.setattr(workshop.wheels, "made_for", lambda: {"pythons": [MINE]})
    monkeypatch.setattr(workshop.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(workshop.platform, "machine", lambda: "arm64")
    workshop.suggest_gpu("cpu", False, "lab")
    assert capsys.readouterr().out == "" and "PyTorch" in workshop.wheels.MEND


def test_the_note_has_a_line_for_each_kind_of_laptop_with_what_to_type(tmp_path):
    for name in ("windows", "linux"):
        (tmp_path / name / "wheels").mkdir(parents=True)
        (tmp_path / name / stick.MADE_FOR).write_text('{"pythons": ["3.11", "3.12"]}', encoding="utf-8")
    rows = [re.split("  +", line.strip()) for line in stick.note(tmp_path).splitlines() if "workshop.py lab" in line]
    assert rows == [
        ["windows", stick.LAPTOPS["windows"].words, "3.11 or 3.12", "py workshop.py lab"],
        ["linux", stick.LAPTOPS["linux"].words, "3.11 or 3.12", "python3 workshop.py lab"],
    ]


@pytest.mark.parametrize("name", stick.LAPTOPS)
@pytest.mark.parametrize("python", ["3.11.2", "3.12.4"])
def test_what_another_computer_needs_is_judged_by_its_own_conditions(name, python):
    laptop = stick.LAPTOPS[name]
    lock = ROOT / f"requirements/{laptop.lock}.txt"
    entries = stick.select_entries(lock, laptop.markers(python))
    found = dict(re.match(r"([\w.-]+)==(\S+) \\\n +--hash=sha256:", entry).groups() for entry in entries)
    assert found == pins(lock, {**laptop.markers(python), "extra": ""})
    assert ("tensorflow-cpu" in found) == (name == "linux") and ("pywinpty" in found) == (name == "windows")


def test_a_second_call_keeps_the_first_ones_pythons_and_nobodys_report_is_copied(tmp_path, monkeypatch):
    course, place, fetched = tmp_path / "course", tmp_path / "windows", []
    course.mkdir()
    for name in ("README.md", "report-anna.txt"):
        (course / name).touch()
    monkeypatch.setattr(stick, "ROOT", course)
    monkeypatch.setattr(stick, "download", lambda lock, laptop, version, folder: fetched.append(version))
    for version in ("3.11", "3.12"):
        stick.fill(place, stick.LAPTOPS["windows"], [version], {})
    assert json.loads((place / stick.MADE_FOR).read_text(encoding="utf-8"))["pythons"] == ["3.12", "3.11"]
    assert fetched[-2:] == ["3.12", "3.11"] and [path.name for path in place.glob("*.*")] == ["README.md"]
