"""The environment `.venv`: what it was built for, whether that is still there, and how uv brings it to what is wanted.

uv installs what pyproject.toml asks for, in the versions and with the hashes of a lock, from whichever index the
machine is set to. Packages are added to a .venv that stands; another family's .venv is built beside it. A call that is
killed leaves what the next one repairs: uv itself counts a package as installed once its first files are there.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from helpers import ROOT
from helpers.errors import WorkshopError
from helpers.setup import families, tools
from helpers.setup.tools import UV, VENV, python_in

NEW, OLD = VENV.with_name(".venv.new"), VENV.with_name(".venv.old")
STAMP = "workshop.json"  # in .venv: the family and the extras that it was built for
UNFINISHED = "unfinished"  # in .venv: packages are being installed, or a call that installed them was killed
GROUPS = ("test", "book")  # groups of pyproject.toml: pytest, ruff, Sphinx


class State(NamedTuple):
    """What a .venv was built for, or should be."""

    family: str
    extras: tuple[str, ...] = ()  # of pyproject.toml, and GROUPS; sorted


def read(venv: Path = VENV) -> State | None:
    """Return what a .venv was built for; None if there is none. A wish that failed is not remembered."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
        if stamp["family"] in families.FAMILIES:
            return State(stamp["family"], tuple(stamp["extras"]))
    return None


def is_built(wanted: State) -> bool:
    """Say whether .venv holds all that is wanted; changes nothing, needs no network and no folder to write to."""
    if wanted != read() or not tools.is_uv_there():
        return False
    calls = [command for _, command in installs(wanted, VENV)]
    if wanted.family == "cuda":
        calls = calls[-1:]  # PyTorch's CUDA libraries differ from the lock's, which its install replaces
    answers = (tools.ask([*command, "--dry-run", "--offline", "--no-cache"]).stderr for command in calls)
    return all("Would make no changes" in answer for answer in answers)


def installs(wanted: State, venv: Path) -> list[tuple[str, list[str | Path]]]:
    """Return the calls of uv, with their titles, that bring into `venv` what is wanted and is not there."""
    # Compiled once, here: a process that compiles TensorFlow anew, as where .venv may not be written to, imports it in
    # 9 s instead of 3.5, and lessons start many processes.
    install: list[str | Path] = [UV, "pip", "install", "--compile-bytecode", "--python", python_in(venv)]
    install += ["--requirements", "pyproject.toml", "--extra", wanted.family, "--group", "setup"]
    for name in wanted.extras:
        if name != "torch":
            install += ["--group" if name in GROUPS else "--extra", name]
    lock = ["--constraints", f"requirements/{families.FAMILIES[wanted.family].lock}"]
    calls = [(f"Installing the packages ({wanted.family})", [*install, *lock, "--require-hashes"])]
    if "torch" in wanted.extras and not find_gpu_torch(wanted.family, venv):
        # PyTorch's builds for CPU and CUDA share a version, so no lock names it. The build for CUDA asks for its own
        # CUDA libraries, of the same generation as the lock's.
        build = families.torch_build(wanted.family)
        torch = [*install, "--extra", "torch"]
        torch += [] if wanted.family == "cuda" else lock
        torch += ["--torch-backend", build] if build else []
        calls.append(("Installing PyTorch", torch))
    return calls


def find_gpu_torch(family: str, venv: Path) -> str:
    """Return the version, such as 2.11.0+cu128, of a PyTorch for a GPU beside the CPU's packages; empty if none.

    The pages for NVIDIA on Windows, for AMD on Windows, and for Intel let learners install one by hand. The setup's own
    would replace it, and compute on the CPU.
    """
    if family != "cpu":
        return ""
    versions = [record.stem.partition("-")[2] for record in packages_in(venv).glob("torch-*+*.dist-info")]
    return next((version for version in versions if not version.endswith("+cpu")), "")


def build(wanted: State) -> None:
    """Bring .venv to what is wanted: add to the one that stands, or build another family's in its place."""
    if is_built(wanted):
        return
    if VENV.is_dir() and any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists():
        raise WorkshopError(
            f"{VENV} is not a virtual environment.",
            "The setup would have to delete what is in it.",
            "Move .venv away, then repeat the command.",
        )
    stood = read()
    if stood and stood.family == wanted.family and version_of(python_in(VENV)):
        gpu_torch = find_gpu_torch(wanted.family, VENV)
        if gpu_torch and "torch" in wanted.extras:
            print(f"  Keeping PyTorch {gpu_torch}. To replace it with the CPU's, delete .venv first.", flush=True)
        (VENV / UNFINISHED).touch()
        for title, command in installs(wanted, VENV):
            tools.run(title, command)
        write_stamp(wanted, VENV)
        (VENV / UNFINISHED).unlink()
        return
    shutil.rmtree(NEW, ignore_errors=True)
    try:
        venv = [UV, "venv", "--relocatable", "--prompt", "workshop", "--python", find_python(wanted.family), NEW]
        tools.run("Making .venv", venv)
        add_this_folder(NEW)
        for title, command in installs(wanted, NEW):
            tools.run(title, command)
        write_stamp(wanted, NEW)  # it is whole
    except BaseException:
        shutil.rmtree(NEW, ignore_errors=True)
        raise
    repair()


def write_stamp(state: State, venv: Path) -> None:
    """Write what a .venv was built for, in one step."""
    draft = venv / f"{STAMP}.new"
    draft.write_text(json.dumps({"family": state.family, "extras": state.extras}), encoding="utf-8")
    draft.replace(venv / STAMP)


def repair() -> None:
    """Finish what a killed call began: put a whole new .venv in place, and forget packages that are there in part."""
    if read(NEW):
        shutil.rmtree(OLD, ignore_errors=True)
        if VENV.is_dir():
            VENV.rename(OLD)
        NEW.rename(VENV)
    shutil.rmtree(OLD, ignore_errors=True)
    if (VENV / UNFINISHED).exists():
        for record in packages_in(VENV).glob("*.dist-info"):
            if not is_whole(record):
                shutil.rmtree(record)  # so that uv installs the package again
        (VENV / UNFINISHED).unlink()


def is_whole(record: Path) -> bool:
    """Say whether all files of a package are there: those that the RECORD in its .dist-info lists."""
    try:
        with (record / "RECORD").open(encoding="utf-8", newline="") as file:
            names = [row[0] for row in csv.reader(file) if row and not row[0].endswith(".pyc")]
    except (OSError, ValueError, csv.Error):
        return False
    return all((record.parent / name).exists() for name in names)


def packages_in(venv: Path) -> Path:
    """Return the folder of a virtual environment's packages."""
    return next(venv.glob("Lib/site-packages" if tools.WINDOWS else "lib/python3.*/site-packages"), venv)


def add_this_folder(venv: Path) -> None:
    """Let a virtual environment's Python import the workshop from anywhere.

    An editable install would write the whole path, in UTF-8: Python reads it in the locale's encoding, and would not
    find a folder called Jörg in the locale C. A relative one also stays right when the folder is moved.
    """
    packages = packages_in(venv)
    (packages / "any_gpu_workshop.pth").write_text(os.path.relpath(ROOT, packages) + "\n", encoding="utf-8")


def find_python(family: str) -> str:
    """Return a Python that fits the family, a path or a version for uv; fetch one if there is none."""
    fitting = families.pythons(family)
    this_one = [sys.executable] if sys.maxsize > 2**32 else []  # there are no packages for 32 bits
    for request in [*this_one, *(f"cpython{version}" for version in fitting)]:
        if version_of(request) in fitting:
            return request
    found = f"No suitable Python was found; this is Python {platform.python_version()}."
    needs = f"The {family} lessons need Python {' or '.join(fitting)}."
    print(f"{found} {needs}")
    try:
        install = [UV, "python", "install", "--no-bin", "--no-registry", "3.12"]
        tools.run("Downloading Python 3.12 into this folder (30 MB)", install)
    except WorkshopError as error:
        how = families.how_to_install_python()
        raise WorkshopError(f"{found} Downloading one failed.", f"{needs}\n      {error.why}", how) from None
    return "3.12"


def version_of(request: str | Path) -> str:
    """Return the version, such as 3.12, of the Python that uv finds for a path or a name; empty if there is none."""
    find = [UV, "python", "find", "--system", "--no-project", "--show-version", "--no-cache", request]
    return ".".join(tools.ask(find).stdout.split(".")[:2])
