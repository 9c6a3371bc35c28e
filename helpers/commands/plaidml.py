"""Build the environment in which PlaidML 0.7.0 still runs (lesson 06b)."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from helpers.commands import uv
from helpers.errors import WorkshopError
from helpers.setup.tools import python_in
from helpers.training import plaidml

AGAIN = f"Repeat the command. If it fails again, delete the folder {plaidml.ENVIRONMENT.name} first."
SEE_LESSON = "Lesson 06b shows what was recorded elsewhere."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there is one environment, of one lock."""


def run(args: argparse.Namespace) -> int:
    """Bring the environment to its lock."""
    if reason := plaidml.unfit():
        raise WorkshopError("PlaidML cannot run on this machine.", reason, SEE_LESSON)
    if not plaidml.ready():
        print("Building PlaidML's environment (downloads about 0.1 GB, once) ...", flush=True)
        build(plaidml.ENVIRONMENT)
    print("PlaidML's environment is ready. Lesson 06b says what to copy into a cell.")
    return 0


def build(environment: Path) -> None:
    """Make the environment where there is none, and bring its packages to the lock; what is right already stays.

    The copy of the lock comes last: an interrupted build is never taken for a whole one, and the next call repairs it.

    Raises:
        WorkshopError: uv or Python 3.11 is missing, or the packages cannot be installed.
    """
    (environment / plaidml.LOCK.name).unlink(missing_ok=True)
    python = python_in(environment)
    if not python.exists():
        new = ("venv", "--clear", "--no-python-downloads", str(environment), "--python", "3.11")
        uv.run("Making the environment", *new, next=f"Install Python 3.11, which its Keras needs. {AGAIN}")
    # The lock leaves enum34 out, and sync asks for nothing that the lock does not name.
    packages = ("pip", "sync", "--require-hashes", "--compile-bytecode", "--python", str(python), str(plaidml.LOCK))
    uv.run("Installing the packages", *packages, next=f"Without a network: {SEE_LESSON} {AGAIN}")
    shutil.copy(plaidml.LOCK, environment)
