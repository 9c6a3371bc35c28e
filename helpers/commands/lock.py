"""Compile the lock files from pyproject.toml with uv."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from helpers import ROOT
from helpers.commands import files, uv

HASHED = ("--universal", "--generate-hashes")
ENVIRONMENTS = re.compile(r"^environments = \[.*?^\]", re.DOTALL | re.MULTILINE)
LIKE_CPU = ("--constraint", "requirements/cpu.txt")
LIKE_TEST = (*LIKE_CPU, "--constraint", "requirements/test.txt")
LIKE_BOOK = (*LIKE_TEST, "--constraint", "requirements/book.txt")
CPU = ("pyproject.toml", "--extra", "cpu")
PIN = re.compile(r"^([a-z0-9.-]+)==\S+(?: ; [^\\\n]+)?", re.MULTILINE)


class Lock(NamedTuple):
    """One lock file."""

    name: str  # the file in requirements/
    arguments: tuple[str, ...]  # what `uv pip compile` is told, besides what all locks share
    machines: tuple[str, ...] | None = None  # markers; None takes those of pyproject.toml, empty means all
    python: str = "3.11"  # the oldest
    beside: str = ""  # a list of what is there before: left out, and agreed with


# cpu comes first: the others are held to its versions wherever they can be.
LOCKS = (
    Lock("cpu.txt", (*CPU, *HASHED)),
    Lock("test.txt", ("--group", "test", *LIKE_CPU, *HASHED), ()),
    Lock("book.txt", ("--group", "book", *LIKE_TEST, *HASHED), ()),
    Lock("classroom.txt", ("--group", "classroom", *LIKE_BOOK, *HASHED), ()),
    Lock("openvino.txt", ("--group", "openvino", *LIKE_CPU, "--no-emit-package", "numpy", *HASHED)),  # the family's
    Lock("tinygrad.txt", ("--group", "tinygrad", *HASHED)),
    Lock(
        "intel-opencl.txt",
        ("--group", "intel-opencl", *HASHED),
        ("sys_platform == 'linux' and platform_machine == 'x86_64'",),
    ),
    Lock(  # installed with --no-deps: enum34 would stand beside Python's own enum
        "plaidml.txt",
        ("--group", "plaidml", "--no-emit-package", "enum34", *HASHED),
        (
            "sys_platform == 'linux' and platform_machine == 'x86_64'",
            "sys_platform == 'darwin' and platform_machine == 'x86_64'",
            "sys_platform == 'win32' and platform_machine == 'AMD64'",
        ),
    ),
    Lock("uv.txt", ("--group", "setup", *HASHED), (), "3.8"),
    Lock(
        "cuda.txt",
        ("pyproject.toml", "--extra", "cuda", *LIKE_CPU, *HASHED),
        ("sys_platform == 'linux' and python_full_version < '3.14'",),
    ),
    Lock(
        "metal.txt",
        ("pyproject.toml", "--extra", "metal", *HASHED),
        ("sys_platform == 'darwin' and platform_machine == 'arm64' and python_full_version < '3.13'",),
    ),
    Lock(
        "intel-mac.txt",
        ("pyproject.toml", "--extra", "intel-mac", *HASHED),
        ("sys_platform == 'darwin' and platform_machine == 'x86_64' and python_full_version < '3.13'",),
    ),
    Lock(
        "binder.txt",
        (*CPU, "--python-platform", "x86_64-manylinux_2_28", "--generate-hashes"),
        (),
        "3.12",
        "requirements/binder-image.in",
    ),
    Lock(
        "conda-opencl.txt",
        (*CPU, *LIKE_CPU, *HASHED, "--no-emit-package", "pyopencl", "--no-emit-package", "pocl-binary-distribution"),
        None,
        "3.12",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, not those locked before")


def run(args: argparse.Namespace) -> int:
    """Write all locks, or none if one of them cannot be compiled."""
    with tempfile.TemporaryDirectory(prefix="workshop-lock-") as folder:
        compiled = compile_all(Path(folder), args.upgrade)
    for name, text in compiled.items():
        files.write(ROOT / name, text)
        print(f"wrote {name}")
    return 0


def compile_all(folder: Path, upgrade: bool) -> dict[str, str]:
    """Compile every lock in a copy of what uv reads, so that nothing is half written, and return their texts.

    Raises:
        WorkshopError: uv is missing, or finds no versions that fit together.
    """
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    project, texts = (ROOT / "pyproject.toml").read_text(encoding="utf-8"), {}
    for lock in LOCKS:
        # uv takes the machines from the project alone.
        machines = f"environments = {json.dumps(lock.machines)}"
        given = project if lock.machines is None else ENVIRONMENTS.sub(machines, project)
        (folder / "pyproject.toml").write_text(given, encoding="utf-8")
        output = f"requirements/{lock.name}"  # uv keeps the versions that it finds there
        uv.run(
            f"Compiling {output}",
            *("pip", "compile", *lock.arguments, *_agree(lock, folder), "--python-version", lock.python),
            *["--upgrade"] * upgrade,
            *("--custom-compile-command", "python3 workshop.py lock", "--output-file", output),
            cwd=folder,
            next="No lock was changed. Mend pyproject.toml (or the network), then repeat: python3 workshop.py lock",
        )
        texts[output] = (folder / output).read_text(encoding="utf-8")
    return texts


def _agree(lock: Lock, folder: Path) -> list[str]:
    """Return what lets uv leave out what is there before, agree with it, and hold the rest to cpu.txt's versions."""
    if not lock.beside:
        return []
    there = {pin[1] for pin in PIN.finditer((folder / lock.beside).read_text(encoding="utf-8"))}
    cpu = PIN.finditer((folder / "requirements/cpu.txt").read_text(encoding="utf-8"))
    rest = "requirements/cpu-without-image.in"
    (folder / rest).write_text("\n".join(pin[0] for pin in cpu if pin[1] not in there), encoding="utf-8")
    left_out = [part for name in sorted(there) for part in ("--no-emit-package", name)]
    return ["--constraint", lock.beside, "--constraint", rest, *left_out]
