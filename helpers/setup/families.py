"""Which packages fit this machine: the families of accelerators, their Pythons, and PyTorch's build."""

from __future__ import annotations

import contextlib
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from helpers import ROOT
from helpers.errors import WorkshopError
from helpers.setup.programs import find_program


class Family(NamedTuple):
    """One kind of accelerator: an extra of pyproject.toml, and the lock that holds its packages."""

    download: float  # the sum of the wheels in GB, November 2026
    torch: str | None = None  # the build of PyTorch, as uv names it; None takes what the index has
    lock: str = "lock.txt"  # in requirements/


FAMILIES = {
    "cpu": Family(0.6, "cpu"),
    "cuda": Family(4.2, "cu126"),
    "metal": Family(0.6, lock="lock-metal.txt"),
}
INTEL_OPENCL = "intel-opencl"  # the extra with Intel's OpenCL driver for CPUs, and its dependencies
INTEL_OPENCL_DOWNLOAD = {"Linux": 0.3, "Windows": 0.15}  # GB
INTEL_LICENSE = "https://www.intel.com/content/www/us/en/developer/articles/license/end-user-license-agreement.html"


def pythons(family: str) -> tuple[str, ...]:
    """Return the versions of Python that have all packages of a family here; the one to choose first comes first."""
    if family == "metal":
        return ("3.12",)
    return ("3.12", "3.11") if is_intel_mac() else ("3.13", "3.12", "3.11")


def check(family: str) -> None:
    """Refuse a family that has no packages for this machine."""
    system, machine = platform.system(), platform.machine().lower()
    if is_intel_mac() and is_translated():
        raise WorkshopError(
            "This Python is made for Intel's processors, but this Mac has an Apple processor.",
            "With Rosetta's translation, TensorFlow and JAX end when they are imported.",
            "Install Python 3.12 from python.org, open a new terminal, delete .venv, then repeat with that Python.",
        )
    if family == "rocm":
        page = f"docs/amd-{'windows' if system == 'Windows' else 'linux'}.md"
        raise WorkshopError(
            "This command installs nothing for AMD GPUs.",
            "AMD's packages come from AMD's own index, and each GPU needs different ones.",
            f"See {page} for the commands, and for the GPUs that they support.",
        )
    if family == "cuda" and system != "Linux":
        raise WorkshopError(
            "The cuda family is for Linux.",
            f"TensorFlow and JAX have no GPU packages for {system}.",
            "On Windows, use WSL2 and repeat the command there, or leave out --accel cuda.",
        )
    if family == "metal" and (system, machine) != ("Darwin", "arm64"):
        raise WorkshopError("The metal family is for Macs with Apple silicon.", next="Leave out --accel metal.")


def has_intel_opencl() -> bool:
    """Return whether Intel's OpenCL can be installed here and works in this folder."""
    try:
        check_intel_opencl()
    except WorkshopError:
        return False
    return True


def check_intel_opencl() -> None:
    """Refuse where Intel's OpenCL is known not to work.

    Raises:
        WorkshopError: there are no packages for this machine, or this folder's path has a space.
    """
    place = (platform.system(), platform.machine().lower())
    if place not in (("Linux", "x86_64"), ("Windows", "amd64")):
        raise WorkshopError(
            "pip has Intel's OpenCL only for Linux and Windows on x86-64.", next="Leave out this --with."
        )
    if " " in str(ROOT):
        raise WorkshopError(
            "Intel's OpenCL does not work in a folder whose path has a space.",
            f"This one is {ROOT}. The driver would report DEVICE_NOT_AVAILABLE.",
            "Move the workshop to a folder without spaces and repeat, or leave out this --with.",
        )


def describe_download(family: str, extras: Iterable[str] = ()) -> str:
    """Return about how much the packages of a family and of these extras are to download, such as "0.6 GB"."""
    size = FAMILIES[family].download
    if INTEL_OPENCL in extras:
        size += INTEL_OPENCL_DOWNLOAD.get(platform.system(), 0)
    return f"{size:.1f} GB"


def is_intel_mac() -> bool:
    """Say whether Python is made for a Mac with an Intel processor."""
    return (platform.system(), platform.machine()) == ("Darwin", "x86_64")


def is_translated() -> bool:
    """Say whether Rosetta translates this process: https://developer.apple.com/documentation/apple-silicon."""
    with contextlib.suppress(OSError):
        query = ["/usr/sbin/sysctl", "-n", "sysctl.proc_translated"]
        return subprocess.run(query, capture_output=True, check=False).stdout.strip() == b"1"
    return False


def torch_build(family: str) -> str | None:
    """Return which build of PyTorch to take: CUDA 12.6's has code for compute capability 5.0 to 9.0, not for RTX 50.

    For those (10.0 and more) CUDA 12.9's: of the same generation as TensorFlow's and JAX's libraries, which CUDA 13's
    are not. PyTorch 2.13 has no build for CUDA 12.8 (https://github.com/pytorch/FBGEMM/pull/5976, 2026-07), and one for
    12.9 (https://github.com/sgl-project/DeepGEMM/pull/72, 2026-08). Not verified on hardware.
    """
    if family != "cuda":
        return None if is_intel_mac() else FAMILIES[family].torch
    capabilities = b""
    query = ["--query-gpu=compute_cap", "--format=csv,noheader"]  # "12.0", a line for each GPU
    if tool := find_program("nvidia-smi"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            capabilities = subprocess.run([tool, *query], capture_output=True, timeout=10, check=True).stdout
    newest = max([int(major) for major in re.findall(rb"(\d+)\.\d+", capabilities)], default=0)
    return "cu129" if newest >= 10 else FAMILIES[family].torch


def suggest_gpu(family: str) -> str:
    """Return what to add to the command for a GPU that this machine seems to have; empty if there is nothing to add."""
    system = platform.system()
    if system == "Linux" and (Path("/proc/driver/nvidia/version").exists() or find_program("nvidia-smi")):
        seen, accel, more = "An NVIDIA GPU", "cuda", f"downloads about {describe_download('cuda')}"
    elif system == "Linux" and Path("/dev/kfd").exists():
        seen, accel, more = "An AMD GPU", "rocm", "says where the commands for it are"
    elif (system, platform.machine()) == ("Darwin", "arm64"):
        seen, accel, more = "An Apple GPU", "metal --with torch", f"downloads about {describe_download('metal')}"
    else:
        return ""
    return "" if accel.split()[0] == family else f"{seen} was found. The same command with --accel {accel} {more}."


def how_to_install_python() -> str:
    """Return how to get a fitting Python on this system."""
    linux = "sudo apt install python3.12 python3.12-venv   (Fedora: sudo dnf install python3.12)"
    return "Install Python 3.12: " + {
        "Windows": "winget install Python.Python.3.12   then: py -3.12 workshop.py lab",
        "Darwin": "brew install python@3.12   (or from python.org), then repeat the command.",
    }.get(platform.system(), linux)
