"""Fill a folder or a USB stick with all that laptops without a network need: packages, MNIST, the course, a note."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import numpy as np
from packaging.requirements import Requirement
from tabulate import tabulate

from helpers import ROOT
from helpers.commands import files, wheels
from helpers.devices.host import Host, command
from helpers.errors import WorkshopError
from helpers.training import data

REQUIREMENTS = ROOT / "requirements"
MADE_FOR = Path(wheels.FOLDER, wheels.MADE_FOR)
NOT_COPIED = {"build", "my-lessons", "wheels", "cache", "models", "__pycache__"}  # and what is hidden: .venv, .git


class Laptop(NamedTuple):
    """One kind of computer: what Python says of it there, and which wheels it takes."""

    words: str
    system: str  # platform.system()
    machine: str  # platform.machine()
    sys_platform: str
    tags: tuple[str, ...]  # of wheels, as pip's --platform takes them
    lock: str = "cpu"  # what it installs

    def markers(self, python: str) -> dict[str, str]:
        """Return what requirements are judged by there (PyPA's dependency specifiers), for a Python such as 3.12.4."""
        return {
            "sys_platform": self.sys_platform,
            "platform_system": self.system,
            "platform_machine": self.machine,
            "os_name": "nt" if self.system == "Windows" else "posix",
            "python_full_version": python,
            "python_version": python.rpartition(".")[0],
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }


def manylinux(machine: str) -> tuple[str, ...]:
    """Return the tags for Linux with glibc 2.28 or newer (Debian 10, Ubuntu 18.10, RHEL 8), the newest first."""
    old = ("manylinux2014", "manylinux2010", "manylinux1")
    return tuple(f"{tag}_{machine}" for tag in [*(f"manylinux_2_{minor}" for minor in range(28, 4, -1)), *old, "linux"])


LAPTOPS = {
    "windows": Laptop("Windows, Intel or AMD processor", "Windows", "AMD64", "win32", ("win_amd64",)),
    # ONNX Runtime 1.31 has no wheel for an older macOS.
    "macos": Laptop(
        "Mac with Apple M1 or newer, macOS 14 or newer", "Darwin", "arm64", "darwin", ("macosx_14_0_arm64",)
    ),
    "linux": Laptop("Linux, Intel or AMD processor", "Linux", "x86_64", "linux", manylinux("x86_64")),
    "linux-arm": Laptop("Linux, Arm processor", "Linux", "aarch64", "linux", manylinux("aarch64")),
    "intel-mac": Laptop(
        "Mac with Intel processor, macOS 13 or newer",
        "Darwin",
        "x86_64",
        "darwin",
        ("macosx_13_0_x86_64",),
        "intel-mac",
    ),
}
PYTHONS = ("3.11", "3.12", "3.13")
STARTERS = ("3.8", "3.9", "3.10", *PYTHONS)  # workshop.py starts with these, and brings uv with the pip for each
INSTALL = Path(__file__).with_name("stick.txt")  # the note for the room; {table} stands for its lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments. --accel and --with are workshop.py's: they set up this machine."""
    # argparse would print the folder last, where it would be taken for one more system.
    parser.usage = "%(prog)s [-h] FOLDER [--platform SYSTEM ...] [--python-version VERSION ...]"
    usual = next((name for name, laptop in LAPTOPS.items() if laptop.system == Host.here().system), "windows")
    parser.add_argument("folder", type=Path, help="where to put it: a USB stick, a shared drive, a new folder")
    parser.add_argument(
        "--platform", nargs="+", choices=LAPTOPS, default=[usual], help="the laptops' systems (default: %(default)s)"
    )
    parser.add_argument(
        "--python-version", nargs="+", choices=PYTHONS, default=["3.12"], help="the laptops' Pythons (default: 3.12)"
    )


def run(args: argparse.Namespace) -> int:
    """Fill the folder; what is there already is kept, so that an interrupted call goes on."""
    began, root = time.monotonic(), args.folder.resolve()
    if root.is_relative_to(ROOT) and not root.is_relative_to(ROOT / "build"):
        raise WorkshopError(
            f"{root} lies in the workshop's own folder.",
            "That folder is what is copied, and a copy in itself would grow without end.",
            f"Name a folder elsewhere: {command(Host.here(), 'stick')} FOLDER",
        )
    places = {name: root / name for name in args.platform}
    for name, place in places.items():
        if place.exists() and not (place / MADE_FOR).exists():
            raise WorkshopError(
                f"{place} is there already, and not from this command.",
                "It would be mixed with the workshop's files.",
                "Move it away, or name another folder.",
            )
        lock = REQUIREMENTS / f"{LAPTOPS[name].lock}.txt"
        for version in args.python_version:
            if not select_entries(lock, LAPTOPS[name].markers(f"{version}.99")):
                what = f"There are no packages for {LAPTOPS[name].words}, Python {version}."
                raise WorkshopError(what, next="Make the sticks in several calls: each adds to the folder.")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"The system says: {error.strerror}."
        raise WorkshopError(f"{root} cannot be a folder.", why, "Name the stick's folder, or a new one.") from None
    mnist = dataset()
    for name, place in places.items():
        fill(place, LAPTOPS[name], args.python_version, mnist)
    files.write(root / "INSTALL.txt", note(root))
    size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) / 1e9
    print(
        f"Ready after {time.monotonic() - began:.0f} s: {root}, {size:.1f} GB.\n"
        f"Put the installers of Python {' and '.join(args.python_version)} beside INSTALL.txt (python.org/downloads).\n"
        "Then try it on one laptop of each kind, its network switched off: INSTALL.txt says what to type."
    )
    return 0


def note(root: Path) -> str:
    """Return the text for the room: a line for each kind of laptop that the folder serves."""
    rows = []
    for name, laptop in LAPTOPS.items():
        if not (root / name / MADE_FOR).exists():
            continue
        held = json.loads((root / name / MADE_FOR).read_text(encoding="utf-8"))
        typed = "py workshop.py lab" if laptop.system == "Windows" else "python3 workshop.py lab"
        rows.append([name, laptop.words, " or ".join(held["pythons"]), typed])
    table = tabulate(rows, ["folder", "your computer", "Python", "type in the folder"], "simple", disable_numparse=True)
    return INSTALL.read_text(encoding="utf-8").format(table=textwrap.indent(table, "     "))


def dataset() -> dict[str, np.ndarray]:
    """Return MNIST's verified arrays.

    Raises:
        WorkshopError: only the stand-in is to be had, with which every laptop of the room would compute.
    """
    found = data.load_mnist()
    if found.name != "MNIST":
        raise WorkshopError(
            "The stick is not made: MNIST is missing.",
            "Every laptop would compute with the stand-in.",
            f"Repeat where a network is, or set {data.VARIABLE} to the path of an mnist.npz.",
        )
    return {name: getattr(found, name) for name in data.EXPECTED}


def fill(place: Path, laptop: Laptop, pythons: list[str], mnist: dict[str, np.ndarray]) -> None:
    """Put the course, MNIST and the packages for one kind of laptop into a folder, also for its earlier Pythons."""
    if (place / MADE_FOR).exists():
        earlier = json.loads((place / MADE_FOR).read_text(encoding="utf-8"))["pythons"]
        pythons = sorted({*pythons, *earlier}, reverse=True)
    held = {"words": laptop.words, "system": laptop.system, "machine": laptop.machine, "pythons": pythons}
    files.write(place / MADE_FOR, json.dumps(held) + "\n")
    copy_course(place)
    (place / "data" / "cache").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(place / "data" / "cache" / "mnist.npz", **mnist)
    for version in STARTERS:
        download(REQUIREMENTS / "uv.txt", laptop, version, place / wheels.FOLDER)
    for version in pythons:
        print(f"{place.name}, Python {version} ...", flush=True)
        download(REQUIREMENTS / f"{laptop.lock}.txt", laptop, version, place / wheels.FOLDER)


def copy_course(place: Path) -> None:
    """Copy this folder as it is, without what is hidden, built or cached; a stick knows no permissions to copy."""
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name not in NOT_COPIED and not name.startswith(".")]
        target = place / Path(folder).relative_to(ROOT)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not name.startswith(".") and not fnmatch(name, "report*.txt"):  # the doctor's, with people's names
                shutil.copyfile(Path(folder, name), target / name)


def download(lock: Path, laptop: Laptop, version: str, folder: Path) -> None:
    """Let pip fetch the wheels of a lock for another computer, each held to its hash.

    Raises:
        WorkshopError: pip could not.
    """
    fetched = ""
    for patch in (0, 99):  # some packages tell a Python's first patch releases from its later ones
        full = f"{version}.{patch}"
        lines = "".join(select_entries(lock, laptop.markers(full)))
        if lines == fetched:
            continue
        fetched = lines
        with tempfile.TemporaryDirectory() as scratch:
            kept = Path(scratch, "lock.txt")
            kept.write_text(lines, encoding="utf-8")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
            exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", folder, "--requirement", kept]
            there = ["--python-version", full, *(word for tag in laptop.tags for word in ("--platform", tag))]
            done = subprocess.run([*pip, *exact, *there], capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line[:160] for line in done.stderr.splitlines() if re.match("ERROR: (?!Ignored)", line)]
            raise WorkshopError(
                f"The packages for {laptop.words}, Python {version}, could not be fetched.",
                "\n      ".join(errors[:3]) or done.stderr[-500:],
                "Look at the network and at the space in the folder, then repeat: what was fetched is kept.",
            )


def select_entries(lock: Path, markers: dict[str, str]) -> list[str]:
    """Return the entries of a lock that hold where `markers` do, without their conditions.

    pip would judge these by the computer that it runs on, whatever --platform says.
    """
    kept = []
    for entry in re.split(r"^(?=[a-z0-9])", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        first, _, hashes = entry.partition(" \\\n")
        marker = Requirement(first).marker
        if marker is None or marker.evaluate(markers):
            kept.append(f"{first.partition(' ;')[0]} \\\n{hashes}")
    return kept
