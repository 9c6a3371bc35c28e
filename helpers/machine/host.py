"""This computer: its system, processor, limits, how the packages came to it, and what to type on it."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from helpers import ROOT
from helpers.processes import run_command

STAMP = "workshop.json"  # workshop.py leaves it in .venv and says there which family's lock it installed
LESSONS_ON_BINDER = "HEAD?urlpath=lab/tree/notebooks/00-check-your-setup.ipynb"


@dataclass(frozen=True)
class Host:
    """The machine that a probe or an advice is for.

    Attributes:
        system: `Linux`, `Darwin` (macOS) or `Windows`.
        machine: `x86_64` or `arm64`.
        python: the running Python's version, as (3, 12).
        route: how the packages came: `venv` (workshop.py), `conda`, `binder`, or `own` (an environment made by hand).
        nvidia: whether NVIDIA's driver is installed.
    """

    system: str
    machine: str
    python: tuple[int, int]
    route: str
    nvidia: bool

    @classmethod
    def here(cls) -> Host:
        """Return this machine."""
        machine = platform.machine().lower()
        machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(machine, machine)
        nvidia = Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None
        return cls(platform.system(), machine, sys.version_info[:2], _route(), nvidia)


def _route() -> str:
    if "BINDER_LAUNCH_HOST" in os.environ or "BINDER_REPO_URL" in os.environ:
        return "binder"
    if Path(sys.prefix, "conda-meta").is_dir():
        return "conda"
    return "venv" if Path(sys.prefix, STAMP).is_file() or Path(sys.prefix).resolve() == ROOT / ".venv" else "own"


def command(host: Host, name: str) -> str:
    """Return how to type one of the workshop's commands on this machine."""
    if host.route != "venv":
        return f"python -m helpers {name}"
    return f"{'py' if host.system == 'Windows' else 'python3'} workshop.py {name}"


def python_command(host: Host) -> str:
    """Return how to type the Python of the workshop's environment, from the workshop's folder."""
    if host.route != "venv":
        return "python"
    return ".venv\\Scripts\\python" if host.system == "Windows" else ".venv/bin/python"


def set_variable(host: Host, name: str, value: str) -> str:
    """Return the command that sets an environment variable for the terminal in which it is typed."""
    return f'$env:{name} = "{value}"' if host.system == "Windows" else f"export {name}={value}"


def unset_variable(host: Host, name: str) -> str:
    """Return the command that removes an environment variable from the terminal in which it is typed."""
    return f"Remove-Item Env:{name}" if host.system == "Windows" else f"unset {name}"


def add_missing(host: Host) -> str:
    """Return how to install packages that the lock names and that are not there."""
    return f"It installs what is missing:\n    {command(host, 'lab')}" if host.route == "venv" else reinstall(host)


def reinstall(host: Host) -> str:
    """Return how to bring the packages back to those of the lock."""
    if host.route == "binder":
        return f"Start again from the Binder link, which builds a whole environment:\n    {binder_link()}"
    if host.route == "conda":
        return (
            "In the workshop's folder, with its environment active (environment-opencl.yml, if it came from that):\n"
            "    conda env update -f environment.yml\n    pip install --no-deps -e ."
        )
    if host.route == "own":
        return "In the workshop's folder, with its environment active:\n    python -m pip install --upgrade -e ."
    remove = "Remove-Item -Recurse -Force .venv" if host.system == "Windows" else "rm -r .venv"
    return f"In the workshop's folder, build its environment anew:\n    {remove}\n    {command(host, 'lab')}"


def copy_elsewhere(host: Host) -> str:
    """Return how to go on in a copy of the workshop that belongs to the learner."""
    if host.system == "Windows":
        copy, enter = 'Copy-Item -Recurse . "$HOME\\any-gpu-workshop"', 'cd "$HOME\\any-gpu-workshop"'
    else:
        copy, enter = "cp -R . ~/any-gpu-workshop", "cd ~/any-gpu-workshop"
    lines = [f"    {line}" for line in (copy, enter, command(host, "lab"))]
    return "\n".join(["In the workshop's folder, copy it to your home folder and work there:", *lines])


def other_python(host: Host) -> str:
    """Return how to get a Python that the workshop runs on."""
    if host.route == "binder":
        return f"Start again from the Binder link, which brings the right Python:\n    {binder_link()}"
    if host.route == "conda":
        return "Make the workshop's own environment:\n    conda env create -f environment.yml"
    host = replace(host, route="venv")  # whatever made this environment, workshop.py finds or fetches a Python
    install = {
        "Linux": "sudo apt install python3.12 python3.12-venv",
        "Darwin": "brew install python@3.12",
        "Windows": "py install 3.12  (or: winget install Python.Python.3.12)",
    }.get(host.system, "")
    offer = f"{command(host, 'lab')} looks for a fitting Python and offers to fetch one. To install one yourself:"
    return f"{offer}\n    {install}" if install else offer.removesuffix(" To install one yourself:")


def binder_link(root: Path = ROOT) -> str:
    """Return the address that opens the lessons on Binder: of the repository that this folder was cloned from.

    A folder that came without git does not know where it is published; Binder's own page then asks for the address.
    """
    try:
        text = (root / ".git" / "config").read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        text = ""
    found = re.search(r"url = \S*github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?\s*$", text, re.MULTILINE)
    if not found:
        return "https://mybinder.org   (give it the address of the workshop's repository)"
    return f"https://mybinder.org/v2/gh/{found[1]}/{LESSONS_ON_BINDER}"


def opencl_compiler(host: Host) -> str:
    """Return how to get an OpenCL driver whose compiler is newer than the one that is here."""
    if host.system != "Linux" or host.machine != "x86_64":
        return opencl_driver(host)
    apt = "Install your distribution's PoCL, which is newer:\n    sudo apt install pocl-opencl-icd"
    if host.route != "venv":
        return apt
    intel = f"    {command(host, 'lab')} --with intel-opencl"
    return f"Without root, Intel's OpenCL for processors, AMD's too (a download of about 300 MB):\n{intel}\nOr: {apt}"


def opencl_driver(host: Host) -> str:
    """Return how to get an OpenCL driver; PoCL makes the CPU an OpenCL device where no GPU's driver is there."""
    if host.route == "binder":
        return f"Start again from the Binder link, which brings PoCL:\n    {binder_link()}"
    conda = (
        "\n    conda env create -f environment-opencl.yml\n    conda activate any-gpu-workshop-opencl"
        "\n    pip install --no-deps -e .\n    python -m helpers lab"
    )
    elsewhere = f"\nOr nothing to install, in a browser:\n    {binder_link()}"
    if host.route == "conda":
        return f"Take pyopencl and PoCL both from conda-forge (those from pip do not mix with them):{conda}{elsewhere}"
    if host.system == "Linux":
        apt = "Install PoCL, which makes the CPU an OpenCL device:\n    sudo apt install pocl-opencl-icd"
        if host.nvidia:
            apt = (
                "NVIDIA's driver is here, but it is not registered with OpenCL, as in many containers. As root:\n"
                "    mkdir -p /etc/OpenCL/vendors\n"
                "    echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd\n"
                "(A container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility too.) Or, for the CPU:\n"
                "    sudo apt install pocl-opencl-icd"
            )
        if host.machine == "x86_64":
            return f"{apt}\nOr, without root, by pip, which has PoCL for this processor:\n" + (
                f"    {python_command(host)} -m pip install pocl-binary-distribution"
            )
        return (
            f"{apt}\nOr, without root, take it from conda-forge (pip has no PoCL for this processor):{conda}{elsewhere}"
        )
    if host.system == "Windows":
        first = "The driver of your graphics card brings OpenCL: install the newest from AMD, Intel or NVIDIA."
        return f"{first} Or take PoCL, for the CPU, from conda-forge (pip has none for Windows):{conda}{elsewhere}"
    if host.system == "Darwin":
        first = "macOS has OpenCL built in, but not in a virtual machine. PoCL, for the CPU, comes from conda-forge:"
        return f"{first}{conda}{elsewhere}"
    return f"Use the Binder link:\n    {binder_link()}"


def cgroup_room(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return how many bytes each cgroup above this process still allows; empty without a limit, or off Linux.

    Containers set these limits, and psutil does not see them. Reads version 2 and version 1; files that programs read
    (inactive_file) count as free. https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    rooms = []
    for folder, limit, used in _cgroup_files(root, own):
        try:
            most, now = int((folder / limit).read_text()), int((folder / used).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        if most < 1 << 60:  # version 1 says "no limit" with an enormous number, version 2 with "max"
            rooms.append(max(0, most - now + cached))
    return rooms


def _cgroup_files(root: Path, own: Path) -> Iterator[tuple[Path, str, str]]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, inside = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root if controllers == "" else root / "memory"
        names = ("memory.max", "memory.current")
        names = names if controllers == "" else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        folder = base / inside.strip("/")
        for place in {base, folder, *(parent for parent in folder.parents if parent.is_relative_to(base))}:
            yield (place, *names)


@functools.lru_cache(maxsize=1)
def cpu_name() -> str:
    """The processor's name as people know it, from the operating system; "unknown processor" if it has none."""
    try:
        raw = {"Linux": _cpu_linux, "Darwin": _cpu_macos, "Windows": _cpu_windows}[platform.system()]()
    except (KeyError, OSError):
        raw = ""
    return tidy(raw) or tidy(platform.processor()) or platform.machine() or "unknown processor"


def tidy(name: str) -> str:
    """Return a processor's name without trademarks, clock and number of cores."""
    name = re.sub(r"\((?:R|TM|C)\)|®|™", "", name, flags=re.I)
    name = re.sub(r"(?: CPU)? @ .*$| \d+-Core Processor\b| Processor$", "", name)
    return " ".join(name.split())


def _cpu_linux() -> str:
    return _cpu_from_cpuinfo(Path("/proc/cpuinfo").read_text(errors="replace")) or _cpu_from_lscpu()


def _cpu_from_cpuinfo(text: str) -> str:
    found = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(\S.*)$", text, re.M)
    return found.group(1) if found else ""


def _cpu_from_lscpu() -> str:
    """ARM's /proc/cpuinfo has numbers alone; lscpu knows what they stand for."""
    done = run_command(["lscpu"], 5, env={**os.environ, "LC_ALL": "C"})
    found = re.search(r"^Model name:\s*(\S.*)$", done.stdout, re.M)
    return found.group(1) if found and found.group(1) != "-" else ""


def _cpu_macos() -> str:
    return run_command(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], 5).stdout


def _cpu_windows() -> str:
    import winreg

    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
        return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])


def usable_cpus() -> float:
    """How many CPUs this process may use: its affinity, or a container's quota (cgroup v2 or v1) if that is less."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(count), *_quota(Path("/sys/fs/cgroup"))])


def _quota(root: Path) -> list[float]:
    """The CPU quota of the control group mounted at `root`, as a number of CPUs; empty if there is none."""
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((root / file).read_text() for file in files).split()
            return [int(quota) / int(period)] if int(quota) > 0 else []
        except (OSError, ValueError):  # no such file, or "max 100000": no limit
            continue
    return []
