"""Build the environment in which PlaidML 0.7.0 still runs, and show that it does (lesson 03)."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from helpers import plaidml
from helpers.errors import WorkshopError
from helpers.machine.host import cpu_name
from helpers.maintain import lock

AGAIN = f"Build it anew: {plaidml.COMMAND} --remove, then {plaidml.COMMAND}"
RUNS = 3  # in turn with ours, while recording

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
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--remove", action="store_true", help="take the environment away")
    which.add_argument(
        "--record", action="store_true", help="run article C's operations and store the results, for maintainers"
    )


def run(args: argparse.Namespace) -> int:
    """Build the environment where it is missing, and prove it; or take it away."""
    environment = plaidml.ENVIRONMENT
    if args.remove:
        print(f"Removed {environment.name}." if remove(environment) else f"There is no {environment.name} here.")
        return 0
    why = plaidml.missing(environment)
    if why:
        impossible = plaidml.unfit()
        if impossible:
            raise WorkshopError(
                "PlaidML cannot run on this machine.", impossible, "Lesson 03 shows what was recorded elsewhere."
            )
        build(environment)
    else:
        print("PlaidML's environment is ready.")
    prove(environment)
    if args.record:
        record(environment)
    return 0


# --------------------------------------------------------------------------------------------------------------------
# The environment


def build(environment: Path) -> None:
    """Build the environment aside, and put it into its place when it is whole.

    Raises:
        WorkshopError: uv is missing, or the packages cannot be installed.
    """
    sweep(environment)
    began, uv = time.monotonic(), lock.find_uv()
    print("Building PlaidML's environment (a download of about 0.1 GB, once) ...", flush=True)
    with _aside(environment) as new:
        _uv("Making the environment", uv, "venv", "--python", base_python(uv), "--relocatable", str(new))
        packages = ("--no-deps", "--require-hashes", "--compile-bytecode", "-r", str(plaidml.LOCK))
        _uv("Installing the packages", uv, "pip", "install", "--python", str(plaidml.executable(new)), *packages)
        (new / "workshop.json").write_text(json.dumps({"lock": plaidml.digest()}), encoding="utf-8")
        remove(environment)
        new.rename(environment)
    print(f"Built after {time.monotonic() - began:.0f} s.")


def base_python(uv: str) -> str:
    """Return a Python 3.11, for which there are packages of PlaidML's Keras too, or else this one."""
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = subprocess.run(
        [uv, "python", "find", "--quiet", "--no-project", "--no-python-downloads", "--system", "3.11"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode == 0:
        return found.stdout.strip()
    print("Without Python 3.11 here PlaidML comes without its Keras (lesson 06); Tile (lesson 03) does not need that.")
    return sys.executable


def remove(environment: Path) -> bool:
    """Take an environment away, and what interrupted calls left of others; say whether there was one.

    Raises:
        WorkshopError: what stands there is no environment.
    """
    sweep(environment)
    if environment.is_symlink() or (environment.exists() and not (environment / "pyvenv.cfg").exists()):
        raise WorkshopError(
            f"There is something called {environment.name} here that is no environment.",
            "It would have to be deleted, and that is not done unasked.",
            "Move it away, then repeat the command.",
        )
    if not environment.exists():
        return False
    with _aside(environment) as old:
        environment.rename(old)  # in one step: an interrupted call leaves no half of it in its place
    return True


@contextlib.contextmanager
def _aside(environment: Path) -> Iterator[Path]:
    """Lend the name of a folder beside the environment; what still stands there in the end is deleted."""
    folder = environment.with_name(f"{environment.name}.{os.getpid()}-{time.monotonic_ns()}")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(environment: Path) -> None:
    """Delete what calls left that were killed."""
    import psutil

    for folder in environment.parent.glob(f"{environment.name}.*-*"):
        number = folder.name.removeprefix(f"{environment.name}.").partition("-")[0]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _uv(title: str, *command: str) -> None:
    done = subprocess.run(
        [command[0], "--quiet", "--no-progress", *command[1:]],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise WorkshopError(
            f"{title} failed.",
            done.stdout.strip()[-1500:] or f"uv ended with status {done.returncode}",
            "Without network, or a fitting package, lesson 03 shows what was recorded elsewhere. Else repeat.",
        )


# --------------------------------------------------------------------------------------------------------------------
# The proof


def prove(environment: Path) -> None:
    """Print PlaidML's devices with what they mean, and a small matrix product.

    Raises:
        WorkshopError: PlaidML does not run, or its product is wrong.
    """
    import numpy as np

    devices = _run(environment, plaidml.menu, plaidml.VARIABLES | {"PLAIDML_DEVICE_IDS": None})
    for configuration, found in devices.items():
        print(f"\nDevices, {configuration}: {CONFIGURATIONS[configuration]}")
        for identifier, description in found or [("none", "")]:
            kind = next((what for start, what in KINDS.items() if identifier.startswith(start)), description)
            print(f"  {identifier:<12} {kind}")
    operation = plaidml.OPERATIONS["matrix product, 512"]
    arrays = {"A": np.float32([[1, 2], [3, 4]]), "B": np.float32([[5, 6], [7, 8]])}
    product = _compute(environment, operation, arrays)[0]
    print(f"\n{operation.source}\non {plaidml.DEVICE}: {arrays['A'].tolist()} times {arrays['B'].tolist()}"
          f" is {product.tolist()}.")  # fmt: skip
    if product.tolist() != [[19, 22], [43, 50]]:
        raise WorkshopError("PlaidML's matrix product is wrong.", next=AGAIN)


def _run(environment: Path, function: object, variables: dict, **arguments: object) -> object:
    from helpers import processes

    try:
        python = plaidml.python(environment)
        return processes.run(function, python=python, variables=variables, arguments=arguments).result
    except WorkshopError as error:
        raise WorkshopError(error.what, error.why, AGAIN) from None


def _compute(environment: Path, operation: plaidml.Operation, arrays: dict, repeats: int = 0) -> tuple:
    given = {"source": operation.source, "arrays": arrays, "output": operation.output, "repeats": repeats}
    return _run(environment, plaidml.compute, plaidml.VARIABLES, **given)


# --------------------------------------------------------------------------------------------------------------------
# The recording


def record(environment: Path, path: Path | None = None, repeats: int = 15) -> None:
    """Run article C's operations in PlaidML and in `helpers.tile`, in turn, and store what came.

    Args:
        environment: PlaidML's.
        path: the file to write; that of the project if None.
        repeats: runs of each that count, in each of three turns.

    Raises:
        WorkshopError: PlaidML's results are not NumPy's: nothing is stored.
    """
    import datetime
    import platform

    from helpers import opencl

    path = path or plaidml.RECORDED
    known = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": _run(environment, _versions, {}),
        "device": plaidml.DEVICE,
        "tile_device": opencl.name(opencl.pick_device()),
        "results": {name: _result(environment, name, one, repeats) for name, one in plaidml.OPERATIONS.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8", newline="\n")
    new.replace(path)
    print(f"\n{plaidml.recorded(path)}\nStored in {path.name}.")


def _versions() -> dict[str, str]:
    import platform
    from importlib import metadata

    return {"python": platform.python_version(), **{name: metadata.version(name) for name in ("plaidml", "numpy")}}


def _result(environment: Path, name: str, operation: plaidml.Operation, repeats: int) -> dict:
    import numpy as np

    from helpers import tile

    arrays = operation.arrays()
    ours = tile.Function(operation.source)
    first, seconds, tile_seconds = [], [], []
    for _ in range(RUNS):
        output, times = _compute(environment, operation, arrays, 1 + repeats)
        first.append(times[0])
        seconds += times[2:]  # the second still warms caches up
        tile_seconds += ours.measure(*arrays.values(), repeats=repeats).seconds
    expected = operation.numpy(*arrays.values())
    difference = float(np.abs(output - expected).max())
    if output.shape != expected.shape or not difference <= 1e-5 * max(1.0, float(np.abs(expected).max())):
        raise WorkshopError(f"PlaidML's {name} is not NumPy's: they differ by {difference:.2g}. Nothing was stored.")
    return {
        "source": operation.source,
        "shapes": operation.shapes,
        "seed": 0,
        "shape": output.shape,
        "sum": float(output.sum(dtype=np.float64)),
        "first": output.ravel()[:4].tolist(),
        "difference": difference,
        "first_seconds": sorted(first)[RUNS // 2],
        "seconds": plaidml.quartiles(seconds),
        "tile_seconds": plaidml.quartiles(tile_seconds),
        "runs": len(seconds),
    }
