"""Binder's files: what they install, and that a session has one thread of each library and a course that is set up."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from test_dependencies import LINUX, machine, pins, wanted

from helpers import ROOT
from helpers.commands import lesson_files, my_lessons
from helpers.devices import host
from helpers.training import data

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Binder runs on Linux")

IMAGE = ROOT / "requirements/binder-image.in"
LOCK = ROOT / "requirements/lock.txt"
PYTHON = machine(LINUX, "3.12")
LONG = 600  # seconds: against hanging alone
OURS = ("ANYGPU_", "GLIBC_", "KERAS_", "OCL_", "OMP_", "OPENBLAS_", "PJRT_", "POCL_", "PYTHON", "TF_")


def test_the_image_and_the_lock_are_together_what_the_project_asks_for():
    locked, there = pins(LOCK, PYTHON), pins(IMAGE, PYTHON)
    assert {"jupyterlab", "notebook", "ipykernel", "jupyterhub"} <= set(there)
    for item in wanted("cpu", PYTHON):
        assert item.specifier.contains((locked | there)[canonicalize_name(item.name)]), item


def test_binder_opens_the_first_lesson(monkeypatch):
    monkeypatch.setattr(host, "addresses", lambda: {"Repository": "https://github.com/some-one/course"})
    opened = host.binder_link().partition("urlpath=lab/tree/")[2]
    assert Path(opened).parent.name == my_lessons.FOLDER.name  # where postBuild lays the copies
    assert (lesson_files.FOLDER / Path(opened).name).is_file() and Path(opened).name.startswith("00-")


def session(*command, folder, **variables):
    """Run a command with none of our variables, and the tests' Python first on the path."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    theirs["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{theirs['PATH']}"
    return subprocess.run(
        command, cwd=folder, env=theirs | variables, capture_output=True, text=True, timeout=LONG, check=False
    )


def test_post_build_lets_every_folder_find_the_helpers_and_takes_the_dataset_that_is_to_be_had(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (packages,) = tmp_path.glob("env/lib/python3*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    path = f"{tmp_path / 'env/bin'}{os.pathsep}{os.environ['PATH']}"
    installed = (ROOT / "binder/postBuild").read_text(encoding="utf-8").partition("# helpers for every notebook")[2]
    done = session("bash", "-c", f"set -e\n#{installed}", folder=ROOT, PATH=path)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1] in ("MNIST", data.STAND_IN)
    assert all((my_lessons.FOLDER / lesson.name).is_file() for lesson in lesson_files.every())
    done = session("python", "-c", "import helpers; print(helpers.__file__)", folder=tmp_path, PATH=path)
    assert done.stdout.strip() == str(ROOT / "helpers/__init__.py")
