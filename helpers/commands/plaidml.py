"""Build the environment in which PlaidML 0.7.0 still runs, and show that it does (lesson 03)."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from helpers.commands import uv
from helpers.compute import plaidml
from helpers.errors import WorkshopError

AGAIN = f"Repeat the command. If it fails again: {plaidml.COMMAND} --remove, then {plaidml.COMMAND}"
ELSEWHERE = "Lesson 03 shows what was recorded elsewhere."
CONFIGURATIONS = {
    "default": "what the release supported for everybody",
    "experimental": "these and further GPUs and drivers; plaidml-setup warns that they may be slow or crash",
}
KINDS = {
    "llvm_cpu": "Tile is compiled with LLVM to machine code for this processor; no driver is needed",
    "opencl": "Tile is written out as OpenCL C, which the device's driver compiles",
    "metal": "Tile is written out as Metal, for the GPU of a Mac",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--remove", action="store_true", help="take the environment away")


def run(args: argparse.Namespace) -> int:
    """Bring the environment to its lock, and prove it; or take it away."""
    if args.remove:
        remove(plaidml.ENVIRONMENT)
        return 0
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


def remove(environment: Path) -> None:
    """Take an environment away, and say whether there was one.

    Raises:
        WorkshopError: what stands there is no environment.
    """
    if not environment.exists():
        print(f"There is no {environment.name} here.")
        return
    if not (environment / "pyvenv.cfg").exists():
        raise WorkshopError(
            f"There is something called {environment.name} here that is no environment.",
            "It would have to be deleted, and that is not done unasked.",
            "Move it away, then repeat the command.",
        )
    shutil.rmtree(environment)
    print(f"Removed {environment.name}.")


def prove(environment: Path) -> None:
    """Print PlaidML's devices with what they mean, and a small matrix product.

    Raises:
        WorkshopError: PlaidML does not run, or its product is wrong.
    """
    import numpy as np

    for configuration, found in call(environment, menu, {"PLAIDML_DEVICE_IDS": None}).items():
        print(f"\nDevices, {configuration}: {CONFIGURATIONS[configuration]}")
        for identifier, description in found or [("none", "")]:
            kind = next((what for start, what in KINDS.items() if identifier.startswith(start)), description)
            print(f"  {identifier:<12} {kind}")
    source = plaidml.OPERATIONS["matrix product, 512"].source
    arrays = {"A": np.float32([[1, 2], [3, 4]]), "B": np.float32([[5, 6], [7, 8]])}
    product = call(environment, plaidml.compute, source=source, arrays=arrays, output="C")[0].tolist()
    print(f"\n{source}\non {plaidml.DEVICE}: {arrays['A'].tolist()} times {arrays['B'].tolist()} is {product}.")
    if product != [[19, 22], [43, 50]]:
        raise WorkshopError("PlaidML's matrix product is wrong.", next=AGAIN)


def call(environment: Path, function: object, changes: dict | None = None, **arguments: object) -> Any:  # noqa: ANN401
    """Return what a function returns that runs in PlaidML's environment.

    Raises:
        WorkshopError: it failed there.
    """
    from helpers.compute import processes

    python, variables = str(plaidml.executable(environment)), plaidml.VARIABLES | (changes or {})
    try:
        return processes.run(function, python=python, variables=variables, arguments=arguments).result
    except WorkshopError as error:
        raise WorkshopError(error.what, error.why, AGAIN) from None


def menu() -> dict[str, list[tuple[str, str]]]:
    """Return the devices that plaidml-setup would offer, as (identifier, description); runs where PlaidML is."""
    import plaidml
    import plaidml.settings

    context, devices = plaidml.Context(), {}
    plaidml.quiet()
    for configuration in ("default", "experimental"):
        plaidml.settings.experimental = configuration == "experimental"
        found, _ = plaidml.devices(context, limit=100, return_all=True)
        devices[configuration] = [(device.id.decode(), device.description.decode()) for device in found]
    return devices
