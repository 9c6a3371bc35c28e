"""What watches a GPU: nvidia-smi, the Linux kernel for AMD's, macOS' ioreg, Windows' GPU Engine counters.

nvidia-smi was run on one H100; all the others are tested with stored outputs alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from helpers.devices import Device
from helpers.running.tools import ask_tool

TIMEOUT = 5.0  # seconds for one call of a vendor's tool; the first call after a driver has slept takes about one


class NoReading(Exception):
    """A tool failed or wrote something that cannot be read; learners never see it."""


class TooSlow(NoReading):
    """A tool did not answer in time; it would not the next time either."""


class Monitor:
    """What watches one device."""

    source: str  # the tool's name, such as "nvidia-smi"
    description: str  # one sentence for people: what it watches, and how sure that is
    lag: float = 0.0  # seconds by which its figures trail what happens

    def read(self) -> float | None:
        """Look once, and return the utilization in percent; None where the tool does not tell it. Raises NoReading."""
        raise NotImplementedError


class GpuMonitor(Monitor):
    """What watches a GPU by a tool of its system or of its vendor.

    Args:
        device: the GPU; where a tool shows all of them together, there is nothing to find.

    Raises:
        NoReading: the tool does not list it.
    """

    def __init__(self, device: Device) -> None:
        pass


class NvidiaSmi(GpuMonitor):
    """nvidia-smi: utilization, the share of the last sample period in which a kernel ran.

    Fields: `nvidia-smi --help-query-gpu`. It averages over up to a second.
    """

    source = "nvidia-smi"
    lag = 1.0

    def __init__(self, device: Device) -> None:
        rows = [row for row in self._query("index,pci.bus_id,name") if len(row) == 3 and row[0].isdigit()]
        gpus = [_Gpu(int(index), name, pci) for index, pci, name in rows]
        self._index, self.description = _choose_gpu(device, gpus, self.source)

    def _query(self, names: str, *more: str) -> list[list[str]]:
        asked = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits", *more]
        text = _run_tool(asked, "it comes with NVIDIA's driver")
        return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]

    def read(self) -> float | None:
        """Look once."""
        rows = self._query("utilization.gpu", f"--id={self._index}")
        if len(rows) != 1 or len(rows[0]) != 1:
            raise NoReading("nvidia-smi answered something that is not one value")
        return _read_number(rows[0][0])


class AmdKernel(GpuMonitor):
    """A file of the Linux kernel's driver amdgpu: utilization, without any tool.

    https://docs.kernel.org/gpu/amdgpu/thermal.html: gpu_busy_percent.
    """

    source = "the kernel's driver amdgpu"
    lag = 0.5

    def __init__(self, device: Device, root: Path = Path("/")) -> None:
        files = sorted((root / "sys/bus/pci/devices").glob("*/gpu_busy_percent"))
        gpus = [_Gpu(number, "", file.parent.name) for number, file in enumerate(files)]
        index, self.description = _choose_gpu(device, gpus, self.source)
        self._file = files[index]

    def read(self) -> float | None:
        """Look once; a card that sleeps refuses to be read."""
        try:
            return _read_number(self._file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


class Ioreg(GpuMonitor):
    """macOS: the accelerators' own statistics in the I/O registry, which needs no administrator's rights."""

    source = "ioreg"
    lag = 1.0
    description = "ioreg: utilization of the GPU by all programs"

    def read(self) -> float:
        """Look once, at the first GPU that tells a utilization among its PerformanceStatistics."""
        text = _run_tool(["ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"], "it comes with macOS")
        found = re.search(r'"(?:Device Utilization %|GPU Activity\(%\))"\s*=\s*(\d+)', text)
        if not found:
            raise NoReading("ioreg shows no accelerator with a utilization")
        return float(found[1])


class WindowsCounters(GpuMonitor):
    """Windows' GPU Engine counters of this process: the 3D, compute and CUDA engines of every GPU.

    Asked by their WMI class, whose names are English on every Windows, unlike those that Get-Counter wants.
    """

    source = "GPU Engine counters"
    lag = 2.0
    description = "Windows' GPU Engine counters: this process' use of the 3D and compute engines of every GPU"
    _SCRIPT = (
        "$ErrorActionPreference='Stop'; "
        "@(Get-CimInstance Win32_PerfFormattedData_GPUPerformanceCounters_GPUEngine | "
        "Where-Object Name -like 'pid_{pid}_*' | "
        "ForEach-Object {{ \"$($_.UtilizationPercentage) $($_.Name)\" }}); 'end'"
    )

    def read(self) -> float:
        """Look once, and add up the engines; each has a line such as "12 pid_1_luid_0x0_0x1_eng_0_engtype_3D"."""
        script = self._SCRIPT.format(pid=os.getpid())
        asked = ["powershell", "-NoProfile", "-NonInteractive", "-Command", script]
        text = _run_tool(asked, "it comes with Windows", patience=2)
        if not re.search(r"^end\s*$", text, re.M):
            raise NoReading("the GPU Engine counters did not answer")
        engines = re.findall(r"^\s*(\d+)\s+pid_\d+_.*engtype_(?:3D|Compute|Cuda)", text, re.M | re.I)
        return min(100.0, sum(map(float, engines)))


# ---------------------------------------------------------------------------- which of them, and their common work


def list_candidates(device: Device) -> list[type[GpuMonitor]]:
    """Return the tools that may be able to watch a GPU on this system, the one that knows it best first."""
    if sys.platform == "darwin":
        return [Ioreg]
    vendor = f"{device.vendor} {device.name}".lower()
    tools: list[type[GpuMonitor]] = []
    if re.search("nvidia|geforce|quadro|tesla", vendor):
        tools.append(NvidiaSmi)
    elif re.search("advanced micro devices|amd|radeon|gfx", vendor):
        tools.append(AmdKernel)
    if sys.platform == "win32":
        tools.append(WindowsCounters)
    return tools


def _run_tool(command: list[str], install: str, patience: float = 1.0) -> str:
    """Run a vendor's tool, for `patience` times TIMEOUT.

    Raises:
        NoReading: it is not there (`install` says where it comes from), fails, or does not answer in time.
    """
    name, answer = command[0], ask_tool(command, patience * TIMEOUT)
    if answer.state == "missing":
        raise NoReading(f"{name} not found: {install}")
    if answer.state == "timed out":
        raise TooSlow(f"{name} did not answer within {patience * TIMEOUT:g} s")
    if answer.state != "ok":
        complaint = (answer.stderr.strip() or answer.stdout.strip() or "no message").splitlines()[-1]
        raise NoReading(f"{name} failed: {complaint[:200]}")
    return answer.stdout


def _read_number(text: str) -> float | None:
    """The number in "42" or "42.5"; None for "[N/A]", "[Not Supported]" and the like."""
    return float(text) if re.fullmatch(r"\s*-?\d+(?:\.\d+)?\s*", text) else None


class _Gpu(NamedTuple):
    """A GPU as a vendor's tool lists it."""

    index: int
    name: str
    pci: str


def _choose_gpu(device: Device, gpus: Sequence[_Gpu], source: str) -> tuple[int, str]:
    """Find the device among the tool's GPUs: by its PCI address, else by its name.

    Args:
        device: what to find.
        gpus: what the tool lists.
        source: the tool's name.

    Returns:
        The tool's number of the GPU, and a description that says how sure that is.

    Raises:
        NoReading: the tool lists no GPU.
    """
    if not gpus:
        raise NoReading(f"{source} lists no GPU")
    address = device.pci.lower()  # 0000:2f:00.0, where nvidia-smi writes 00000000:2F:00.0
    alike = [gpu for gpu in gpus if address and gpu.pci.lower().endswith(address)]
    alike = alike or [gpu for gpu in gpus if gpu.name == device.name] or list(gpus)
    doubt = "" if len(alike) == 1 else f"; one of {len(gpus)} GPUs, it may not be the one that computes"
    index, name, _ = alike[0]
    return index, f"{source}: utilization of GPU {index} by all programs{f' ({name})' if name else ''}{doubt}"
