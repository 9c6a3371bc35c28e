"""The environment of a room's server: the lessons' packages with JupyterHub, nbgrader and nbgitpuller beside them.

Not the lessons' own environment, because nbgrader adds to the JupyterLab that it finds, and learners have none of that.
"""

import functools
import os
import shutil
import sys
from pathlib import Path

import pytest

from helpers import ROOT
from helpers.commands import uv

ENVIRONMENT = ROOT / ".classroom"
LOCKS = [ROOT / "requirements" / name for name in ("cpu.txt", "classroom.txt")]


@functools.cache
def programs() -> Path:
    """Return the folder of its python, jupyterhub and nbgrader; built by the first test that asks for it."""
    if os.name == "nt":
        pytest.skip("JupyterHub and nbgrader's exchange need Linux or macOS")
    import fcntl

    with (ROOT / ".classroom.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # tests run side by side
        wanted = "".join(lock.read_text(encoding="utf-8") for lock in LOCKS)
        built = ENVIRONMENT / "locks.txt"
        if not built.exists() or built.read_text(encoding="utf-8") != wanted:
            _build()
            built.write_text(wanted, encoding="utf-8")
    return ENVIRONMENT / "bin"


def _build() -> None:
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    uv.run("Making the environment", "venv", str(ENVIRONMENT), "--python", sys.executable, next="See the test's log.")
    python = str(ENVIRONMENT / "bin/python")
    uv.run("Installing", "pip", "sync", "--require-hashes", "--compile-bytecode", "--python", python, *map(str, LOCKS),
           next="See the test's log.")  # fmt: skip
    site_packages = next(ENVIRONMENT.glob("lib/python*/site-packages"))
    (site_packages / "workshop.pth").write_text(f"{ROOT}\n", encoding="utf-8")  # helpers, as workshop.py does it
