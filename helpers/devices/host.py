"""This computer: its system, processor and limits, how the packages came to it, and what to type on it."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from helpers import ROOT
from helpers.setup.environment import STAMP
from helpers.setup.programs import find_program

WORKSHOP = "py workshop.py" if os.name == "nt" else "python3 workshop.py"  # as people start it
LESSON_FOLDERS = ("my-lessons", "notebooks")  # in ROOT: where kernels start, the learner's copies and the lessons
FIRST_LESSON = "00-check-your-setup.ipynb"
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
FAMILIES = {  # of Linux distributions, by the names in os-release(5)
    "debian": "debian",
    "ubuntu": "debian",
    "fedora": "fedora",
    "rhel": "fedora",
    "centos": "fedora",
    "arch": "arch",
}


@dataclass(frozen=True)
class Host:
    """The machine that a probe or an advice is for."""

    system: str  # Linux, Darwin (macOS) or Windows
    machine: str  # x86_64 or arm64
    python: tuple[int, int]  # the running Python's version, as (3, 12)
    installed_by: str  # venv (workshop.py), conda, binder, or own (an environment made by hand)
    nvidia: bool  # whether NVIDIA's driver is installed
    distribution: str = "debian"  # the family of a Linux: one of FAMILIES' values; empty if unknown
    wsl: bool = False  # whether this Linux runs inside Windows (WSL)
    container: bool = False  # whether this is a container (Docker, Podman, Kubernetes)
    hosted: str = ""  # colab, kaggle, or empty

    @classmethod
    def here(cls, root: Path = Path("/")) -> Host:
        """Return this machine.

        Args:
            root: where the system's files lie; another folder in tests.
        """
        machine = platform.machine().lower()
        machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(machine, machine)
        nvidia = (root / "proc/driver/nvidia/version").exists() or find_program("nvidia-smi") is not None
        return cls(
            platform.system(),
            machine,
            sys.version_info[:2],
            _find_installer(),
            nvidia,
            _find_distribution(root),
            "microsoft" in text_of(root / "proc/sys/kernel/osrelease").lower(),
            _is_in_container(root),
            _find_hosting(),
        )


def text_of(file: Path) -> str:
    """Return what a small file of the system holds; empty without it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _find_distribution(root: Path) -> str:
    """The family of this Linux, by ID and ID_LIKE of os-release(5)."""
    names = " ".join(re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', text_of(root / "etc/os-release"), re.MULTILINE)).split()
    return next((FAMILIES[name] for name in names if name in FAMILIES), "")


def _is_in_container(root: Path) -> bool:
    """Docker leaves /.dockerenv, Podman /run/.containerenv; Kubernetes sets a variable in each pod."""
    files = (root / ".dockerenv", root / "run/.containerenv")
    return any(file.exists() for file in files) or "KUBERNETES_SERVICE_HOST" in os.environ


def _find_hosting() -> str:
    """Kaggle is built upon Colab's image, so it is asked for first."""
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
        return "kaggle"
    return "colab" if "COLAB_RELEASE_TAG" in os.environ else ""


def _find_installer() -> str:
    if "BINDER_LAUNCH_HOST" in os.environ or "BINDER_REPO_URL" in os.environ:
        return "binder"
    if Path(sys.prefix, "conda-meta").is_dir():
        return "conda"
    return "venv" if Path(sys.prefix, STAMP).is_file() or Path(sys.prefix).resolve() == ROOT / ".venv" else "own"


def has_module(name: str) -> bool:
    """Look for a module without importing it. An empty folder that an uninstaller left behind does not count.

    Args:
        name: of the module.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


# --------------------------------------------------------------------------------------------- what to type here


def command(host: Host, name: str) -> str:
    """Return how to type one of the workshop's commands on this machine."""
    if host.installed_by != "venv":
        return f"python -m helpers {name}"
    return f"{'py' if host.system == 'Windows' else 'python3'} workshop.py {name}"


def python_command(host: Host) -> str:
    """Return how to type the Python of the workshop's environment, from the workshop's folder."""
    if host.installed_by != "venv":
        return "python"
    return ".venv\\Scripts\\python" if host.system == "Windows" else ".venv/bin/python"


def set_variable(host: Host, name: str, value: str) -> str:
    """Return the command that sets an environment variable for the terminal or notebook in which it is typed."""
    if host.hosted:
        return f"%env {name}={value}"
    return f'$env:{name} = "{value}"' if host.system == "Windows" else f"export {name}={value}"


def unset_variable(host: Host, name: str) -> str:
    """Return the command that removes an environment variable from the terminal or notebook in which it is typed."""
    if host.hosted:
        return f'import os; os.environ.pop("{name}", None)'
    return f"Remove-Item Env:{name}" if host.system == "Windows" else f"unset {name}"


@functools.cache
def addresses(project: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Return where the course is published, by name (Repository, Book); nothing where it is not."""
    urls = tomllib.loads(text_of(project)).get("project", {}).get("urls", {})
    return {name: address.rstrip("/") for name, address in urls.items()}


@functools.cache
def release_tag(project: Path = ROOT / "pyproject.toml") -> str:
    """Return the latest release's git tag. Binder and Colab open it, so that a class gets what its teacher tried."""
    return f"v{tomllib.loads(text_of(project))['project']['version']}"


def binder_link(lesson: str = FIRST_LESSON) -> str:
    """Return the address that opens a lesson on Binder; empty where the course is not published on GitHub.

    Args:
        lesson: its file's name.
    """
    place = addresses().get("Repository", "").partition("github.com/")[2]
    return place and f"https://mybinder.org/v2/gh/{place}/{release_tag()}?urlpath=lab/tree/my-lessons/{lesson}"


# --------------------------------------------------------------------------- what the system or a container allows


def cgroup_room() -> list[int]:
    """Return how many bytes each cgroup above this process still allows; empty without a limit, or off Linux.

    Containers set these limits, and psutil does not see them. Files that programs read (inactive_file) count as free.
    https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    rooms = []
    for folder in _find_cgroups():
        try:
            most, now = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
        rooms.append(max(0, most - now + int(stat.get("inactive_file", 0))))
    return rooms


def usable_cpus() -> float:
    """Return how many CPUs this process may use: its affinity, or a container's quota if that is less."""
    cpus = [float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)]
    for folder in _find_cgroups():
        try:
            quota, period = map(int, (folder / "cpu.max").read_text().split())
        except (OSError, ValueError):  # no such file, or "max 100000": no limit
            continue
        cpus.append(quota / period)
    return min(cpus)


def _find_cgroups() -> Iterator[Path]:
    """Each cgroup that limits this process, its own and those above it; of version 2, which has one tree for all."""
    try:
        own = re.search(r"^0::/(.*)$", OWN_CGROUPS.read_text(), re.MULTILINE)
    except OSError:
        return
    if own:
        folder = CGROUPS / own[1]
        # In a container the path may be that of the machine outside, and the container's own group is the base.
        yield from {CGROUPS, folder, *(parent for parent in folder.parents if parent.is_relative_to(CGROUPS))}


# ------------------------------------------------------------------------------------------ the processor's name


@functools.lru_cache(maxsize=1)
def cpu_name() -> str:
    """Return the processor's name as people know it; "unknown processor" where the system has none."""
    try:
        raw = {"Linux": _read_cpu_linux, "Darwin": _read_cpu_macos, "Windows": _read_cpu_windows}[platform.system()]()
    except (KeyError, OSError, subprocess.SubprocessError):
        raw = ""
    return tidy(raw) or tidy(platform.processor()) or platform.machine() or "unknown processor"


def tidy(name: str) -> str:
    """Return a processor's name without trademarks, clock and number of cores.

    >>> tidy("Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz")
    'Intel Core i7-8550U'
    >>> tidy("AMD EPYC 9554 64-Core Processor")
    'AMD EPYC 9554'
    """
    name = re.sub(r"\((?:R|TM|C)\)|®|™", "", name, flags=re.I)
    name = re.sub(r"(?: CPU)? @ .*$| \d+-Core Processor\b| Processor$", "", name)
    return " ".join(name.split())


def _read_cpu_linux() -> str:
    named = re.search(
        r"^(?:model name|cpu model|Model)\s*:\s*(\S.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.M
    )
    # ARM's /proc/cpuinfo has numbers alone; lscpu knows what they stand for, and writes "-" where it does not.
    named = named or re.search(r"^Model name:\s*([^\s-].*)$", _run_tool("lscpu"), re.M)
    return named[1] if named else ""


def _read_cpu_macos() -> str:
    return _run_tool("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")


def _read_cpu_windows() -> str:
    assert sys.platform == "win32"  # where type checkers know winreg
    import winreg

    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
        return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])


def _run_tool(*command: str) -> str:
    english = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=english)
    return done.stdout


def package_owners(folder: str | Path | None = None, names: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Return for each file of code the packages whose RECORD lists it; lesson 13b shows it.

    Empty files are left out: NVIDIA's wheels share an empty nvidia/__init__.py, and none needs it.

    Args:
        folder: where the packages lie; None for this environment.
        names: of the packages that are asked for; all of them if empty.
    """
    packages: dict[str, list[str]] = {}
    for package in metadata.distributions(path=[str(folder)]) if folder else metadata.distributions():
        name = package.metadata["Name"]
        if not name or (names and name not in names):
            continue
        for line in (package.read_text("RECORD") or "").splitlines():
            file, *hash_and_size = line.rsplit(",", 2)
            if hash_and_size[-1:] != ["0"] and re.search(r"\.(py|so[.\d]*|pyd|dll)$", file):
                packages.setdefault(file, []).append(name)
    return packages
