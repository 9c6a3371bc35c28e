"""Build the environment in which PlaidML 0.7.0 still runs, and show that it does (lesson 06b)."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from helpers.commands import uv
from helpers.compute import plaidml
from helpers.errors import WorkshopError

AGAIN = f"Repeat the command. If it fails again, delete the folder {plaidml.ENVIRONMENT.name} first."
ELSEWHERE = "Lesson 03 shows what was recorded elsewhere."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there is one environment, of one lock."""


def run(args: argparse.Namespace) -> int:
    """Bring the environment to its lock, and prove it."""
    if reason := plaidml.unfit():
        raise WorkshopError("PlaidML cannot run on this machine.", reason, ELSEWHERE)
    if plaidml.ready():
        print("PlaidML's environment is ready.")
    else:
        print("Building PlaidML's environment (a download of about 0.1 GB, once) ...", flush=True)
        build(plaidml.ENVIRONMENT)
    prove(plaidml.ENVIRONMENT)
    return 0


def build(environment: Path) -> None:
    """Make the environment where there is none, and bring its packages to the lock; what is right already stays.

    The copy of the lock comes last: an interrupted build is never taken for a whole one, and the next call mends it.

    Raises:
        WorkshopError: uv is missing, or the packages cannot be installed.
    """
    (environment / plaidml.LOCK.name).unlink(missing_ok=True)
    python = plaidml.executable(environment)
    if not python.exists():
        new = ("venv", "--clear", "--no-python-downloads", str(environment), "--python")
        try:
            uv.run("Making the environment", *new, "3.11", next=AGAIN)
        except WorkshopError:
            print("Without a Python 3.11 here PlaidML has no Keras (lesson 06b); Tile (lesson 03) does not need that.")
            uv.run("Making the environment", *new, sys.executable, next=AGAIN)
    # The lock leaves enum34 out, and sync asks for nothing that the lock does not name.
    packages = ("pip", "sync", "--require-hashes", "--compile-bytecode", "--python", str(python), str(plaidml.LOCK))
    uv.run("Installing the packages", *packages, next=f"Without network: {ELSEWHERE} {AGAIN}")
    shutil.copy(plaidml.LOCK, environment)


def prove(environment: Path) -> None:
    """Print a small matrix product of PlaidML's.

    Raises:
        WorkshopError: PlaidML does not run, or its product is wrong.
    """
    import numpy as np

    from helpers.compute import processes

    source = plaidml.OPERATIONS["matrix product, 512"].source
    arrays = {"A": np.float32([[1, 2], [3, 4]]), "B": np.float32([[5, 6], [7, 8]])}
    given = {"source": source, "arrays": arrays, "output": "C"}
    python = str(plaidml.executable(environment))
    try:
        done = processes.run(plaidml.compute, python=python, variables=plaidml.VARIABLES, arguments=given)
    except WorkshopError as error:
        raise WorkshopError(error.what, error.why, AGAIN) from None
    product = done.result[0].tolist()
    print(f"\n{source}\non {plaidml.DEVICE}: {arrays['A'].tolist()} times {arrays['B'].tolist()} is {product}.")
    if product != [[19, 22], [43, 50]]:
        raise WorkshopError("PlaidML's matrix product is wrong.", next=AGAIN)
