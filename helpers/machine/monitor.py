"""Proof of use, for lesson 00: watch a device while the lesson loads it, and say whether the load shows.

`find(device)` looks for a tool that can watch this device: nvidia-smi, amd-smi or rocm-smi, ioreg on macOS, the GPU
Engine counters on Windows. A CPU is watched by this process' own CPU time, so that other programs cannot fake the
proof. Where there is no tool, `find` returns a `NoMonitor`, which is false and says why; `watch` takes it too.

Not verified on hardware: the readers of nvidia-smi, amd-smi, rocm-smi, ioreg and the Windows counters are tested with
stored outputs alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from helpers import processes
from helpers.devices import Device
from helpers.machine.host import usable_cpus

TIMEOUT = 5.0  # seconds for one call of a vendor's tool; the first call after a driver has slept takes about one
FAILURES = 3  # so many in a row end the sampling
ENOUGH = 3  # samples of each phase that a verdict needs
LEAST_GAP = {
    "utilisation": 5.0,
    "power": 2.0,
}  # percentage points, watts: below that it is no load, whatever the spread
UNITS = {"utilisation": "%", "power": "W"}


class NoReading(Exception):
    """A tool failed, hung or wrote something that cannot be read. Never leaves this module."""


@dataclass(frozen=True)
class Reading:
    """One look at a device; None for what the tool does not tell.

    Attributes:
        utilisation: in percent.
        power: in watts.
        temperature: in degrees Celsius.
        memory: in use, in bytes.
    """

    utilisation: float | None = None
    power: float | None = None
    temperature: float | None = None
    memory: float | None = None


class Monitor(Protocol):
    """What watches one device.

    Attributes:
        source: the tool's name, such as "nvidia-smi".
        description: one sentence for people: what it watches, and how sure that is.
        lag: seconds by which its figures trail what happens.
    """

    source: str
    description: str
    lag: float

    def read(self) -> Reading:
        """Look once. Raises NoReading."""


@dataclass(frozen=True)
class NoMonitor:
    """There is nothing that can watch this device. It is false, so that `if monitor:` works.

    Attributes:
        why: what was looked for and what came of it.
    """

    why: str
    source: str = "none"
    lag: float = 0.0

    @property
    def description(self) -> str:
        """The sentence that a lesson shows."""
        return f"no monitor here, evidence by placement and time only ({self.why})"

    def read(self) -> Reading:
        """Raises NoReading, always."""
        raise NoReading(self.why)

    def __bool__(self) -> bool:
        """Always false."""
        return False


# --------------------------------------------------------------------------------------------------------------------
# Samples and what they prove


@dataclass(frozen=True)
class Verdict:
    """What the samples prove.

    Attributes:
        used: True if the load shows, False if it does not, None if nothing could be seen.
        sentence: the same with figures; str() gives it.
    """

    used: bool | None
    sentence: str

    def __str__(self) -> str:
        """The sentence, in lines that a notebook does not break."""
        return textwrap.fill(self.sentence, 90)


@dataclass(frozen=True)
class Samples:
    """What a monitor saw. The tuples are of equal length, one entry for each sample.

    Attributes:
        source: the tool's name.
        description: what it watched.
        times: seconds since the watching began.
        phases: "idle" or "busy".
        utilisation: percent, or None.
        power: watts, or None.
        temperature: degrees Celsius, or None.
        memory: bytes in use, or None.
        lag: seconds by which the figures trail what happens; the verdict leaves out so much of the start of each phase.
        problem: why the sampling ended early or never began; empty if all went well.
    """

    source: str
    description: str
    times: tuple[float, ...] = ()
    phases: tuple[str, ...] = ()
    utilisation: tuple[float | None, ...] = ()
    power: tuple[float | None, ...] = ()
    temperature: tuple[float | None, ...] = ()
    memory: tuple[float | None, ...] = ()
    lag: float = 0.0
    problem: str = ""

    def settled(self, quantity: str, phase: str) -> list[float]:
        """The values of one phase that count: known, and not from the lag after its start (at most half of the phase).

        Args:
            quantity: "utilisation", "power", "temperature" or "memory".
            phase: "idle" or "busy".
        """
        times = [t for t, p in zip(self.times, self.phases, strict=True) if p == phase]
        if not times:
            return []
        start = times[0] + min(self.lag, (times[-1] - times[0]) / 2)
        entries = zip(self.times, self.phases, getattr(self, quantity), strict=True)
        return [value for t, p, value in entries if p == phase and value is not None and t >= start]

    def verdict(self) -> Verdict:
        """Judge by utilisation, or by power where the tool tells no utilisation.

        The device counts as used if three quarters of the busy samples lie above three quarters of the idle ones: the
        lower quartile of the busy phase above the upper quartile of the idle one, by more than 5 percentage points or
        2 W. Other programs that take part of the device widen the busy phase, and then hide nothing.
        """
        if not self.times and self.problem:
            return Verdict(None, f"Cannot tell: {self.description if self.source == 'none' else self.problem}.")
        for quantity in ("utilisation", "power"):
            idle, busy = self.settled(quantity, "idle"), self.settled(quantity, "busy")
            if len(idle) >= ENOUGH and len(busy) >= ENOUGH:
                return _judge(quantity, idle, busy, self.source)
        count = f"{self.phases.count('idle')} idle and {self.phases.count('busy')} busy samples"
        return Verdict(None, f"Cannot tell: {count} are too few{': ' + self.problem if self.problem else ''}.")


def _judge(quantity: str, idle: list[float], busy: list[float], source: str) -> Verdict:
    quartiles = [statistics.quantiles(values, n=4, method="inclusive") for values in (idle, busy)]
    used = quartiles[1][0] - quartiles[0][2] > LEAST_GAP[quantity]
    before, after = (
        f"{middle:.0f} {UNITS[quantity]} (median of {len(values)} samples, the middle half {low:.0f} to {high:.0f})"
        for (low, middle, high), values in zip(quartiles, (idle, busy), strict=True)
    )
    if used:
        return Verdict(True, f"Used: {quantity} rose from {before} to {after}, says {source}.")
    return Verdict(
        False,
        f"Not shown: {quantity} was {before} idle and {after} under load, says {source}; "
        "the two overlap, or lie too close together to mean anything.",
    )


# --------------------------------------------------------------------------------------------------------------------
# Sampling


class _Sampler:
    """Samples in a thread of its own from `with` to its end, whatever happens in between."""

    def __init__(self, monitor: Monitor | NoMonitor, interval: float, phase: str) -> None:
        self.monitor, self.interval, self.phase = monitor, interval, phase
        self.found: list[tuple[float, str, Reading]] = []
        self.problem = "" if monitor else monitor.description
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="anygpu-monitor", daemon=True)
        self._start = time.perf_counter()

    def __enter__(self) -> _Sampler:
        if self.monitor:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self.monitor:
            self._thread.join()  # ends: each call of a tool has its time-out

    def _loop(self) -> None:
        failures, begun = 0, ""  # the phase in which a reading's period began: unknown for the first
        while not self._stop.wait(self.interval):
            try:
                reading = self.monitor.read()
                failures = 0
            except Exception as error:  # a sampling thread must not die silently, nor disturb the lesson
                failures = FAILURES if isinstance(error, _TooSlow) else failures + 1
                if failures >= FAILURES:
                    self.problem = f"{self.monitor.source} stopped answering: {error}"
                    return
                reading = None
            phase = self.phase
            if self._stop.is_set():  # the load may have ended while the tool was answering
                return
            if reading and phase == begun:  # one that covers the end of one phase and the start of the next is void
                self.found.append((time.perf_counter() - self._start, phase, reading))
            begun = phase

    def wants_more(self, since: float, seconds: float) -> bool:
        """Whether the phase that began at `since` has to go on: its time is not up, or a slow tool has said too little.

        A tool that is slow (PowerShell takes a second or two for each look) gets 12 s, or four times as long as asked.
        """
        passed = time.perf_counter() - since
        few = sum(phase == self.phase for _, phase, _ in list(self.found)) < 2 * ENOUGH  # half may fall to the lag
        return passed < seconds or (bool(self.monitor) and not self.problem and few and passed < max(12, 4 * seconds))

    def samples(self) -> Samples:
        return Samples(
            self.monitor.source,
            self.monitor.description,
            tuple(t for t, _, _ in self.found),
            tuple(phase for _, phase, _ in self.found),
            *(tuple(getattr(r, what) for _, _, r in self.found) for what in Reading.__dataclass_fields__),
            lag=self.monitor.lag,
            problem=self.problem,
        )


def watch(
    monitor: Monitor | NoMonitor,
    work: Callable[[], object],
    idle_seconds: float = 1.5,
    busy_seconds: float = 3.0,
    interval: float = 0.1,
) -> Samples:
    """Sample the device idle, then while `work` loads it.

    Args:
        monitor: what `find` returned; with a NoMonitor the work runs all the same, and the samples stay empty.
        work: one slice of load; it waits until the device is done, and is called again until the time is up.
        idle_seconds: how long to look at the idle device first.
        busy_seconds: how long to load it; at least one slice is run. Both last longer where a tool answers slowly.
        interval: seconds between two looks; tools that answer more slowly set their own pace.

    Raises:
        Whatever `work` raises; the sampling has ended then too.
    """
    with _Sampler(monitor, interval, "idle") as sampler:
        start = time.perf_counter()
        while monitor and sampler.wants_more(start, idle_seconds):
            time.sleep(interval)
        sampler.phase = "busy"
        start = time.perf_counter()
        work()
        while sampler.wants_more(start, busy_seconds):
            work()
    return sampler.samples()


def sample(monitor: Monitor | NoMonitor, seconds: float, interval: float = 0.2) -> Samples:
    """Sample the device for some seconds without loading it; every sample is "idle".

    Args:
        monitor: what `find` returned.
        seconds: how long.
        interval: seconds between two looks.
    """
    with _Sampler(monitor, interval, "idle") as sampler:
        if monitor:
            time.sleep(seconds)
    return sampler.samples()


# --------------------------------------------------------------------------------------------------------------------
# Finding a monitor


def find(device: Device) -> Monitor | NoMonitor:
    """Find what can watch this device, and look once to be sure that it works.

    Args:
        device: from `helpers.devices`.

    Returns:
        A monitor that has answered once, or a NoMonitor that says why there is none. It never raises.
    """
    if device.kind == "cpu":
        return ProcessShare()
    refused: list[str] = []
    for make in _candidates(device):
        try:
            monitor = make(device)
            reading = monitor.read()
        except Exception as error:  # what a tool of an unknown version writes must not break a lesson
            refused.append(str(error) if isinstance(error, NoReading) else f"{make.source}: {error!r}")
            continue
        if reading.utilisation is not None or reading.power is not None:
            return monitor
        refused.append(f"{monitor.source} tells neither utilisation nor power of this device")
    return NoMonitor("; ".join(refused) or f"no tool is known that watches {device.name}")


def _candidates(device: Device) -> list[type[Monitor]]:
    makes = {"nvidia": [NvidiaSmi], "amd": [AmdSmi, RocmSmi]}.get(_make(device), [])
    if sys.platform == "darwin":
        return [Ioreg]
    if sys.platform == "win32":
        return [*makes, WindowsCounters]
    return makes


def _make(device: Device) -> str:
    """Who made the device: "nvidia", "amd", "apple", "intel", or an empty string."""
    text = f"{device.vendor} {device.name}".lower()
    spellings = {
        "nvidia": ("nvidia", "geforce", "quadro", "tesla"),
        "amd": ("advanced micro devices", "amd", "radeon", "gfx"),
        "apple": ("apple",),
        "intel": ("intel",),
    }
    return next((make for make, words in spellings.items() if any(word in text for word in words)), "")


class _TooSlow(NoReading):
    """The tool did not answer in time; it would not the next time either."""


def _tool(name: str, install: str, folders: Sequence[str] = ()) -> str:
    """Find a program on PATH, or where its vendor puts it.

    Raises:
        NoReading: it is not there.
    """
    found = shutil.which(name) or next((p for f in folders if (p := shutil.which(name, path=f))), None)
    if not found:
        raise NoReading(f"{name} not found: {install}")
    return found


def _output(command: Sequence[str], timeout: float | None = None) -> str:
    """Run a vendor's tool.

    Raises:
        NoReading: it cannot be started, fails, or does not answer in time (it is killed then).
    """
    name = Path(command[0]).name
    timeout = TIMEOUT if timeout is None else timeout
    try:
        done = processes.run_command(command, timeout)
    except OSError as error:
        raise NoReading(f"{name} cannot be started: {error.strerror}") from error
    if done.status is None:
        raise _TooSlow(f"{name} did not answer within {timeout:g} s")
    if done.status != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise NoReading(f"{name} failed with status {done.status}: {said[:200]}")
    return done.stdout


def _number(text: object) -> float | None:
    """The number in "42", "42 %", 42, {"value": 42, "unit": "%"}; None for "N/A", "[Not Supported]" and the like."""
    if isinstance(text, dict):
        return _number(text.get("value"))
    if isinstance(text, bool) or text is None:
        return None
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*(?:%|W|C|°C|MiB|MB)?\s*", str(text))
    return float(found.group(1)) if found else None


# --------------------------------------------------------------------------------------------------------------------
# Which of several GPUs is it?


@dataclass(frozen=True)
class _Gpu:
    """A GPU as a vendor's tool lists it."""

    index: int
    name: str
    pci: str


def _choose(device: Device, gpus: Sequence[_Gpu], source: str) -> tuple[_Gpu, str]:
    """Find the device among the tool's GPUs: by its PCI address, else by its name, else by its number.

    Returns:
        The GPU, and how sure the match is; an empty string if it is certain.

    Raises:
        NoReading: the tool lists no GPU.
    """
    if not gpus:
        raise NoReading(f"{source} lists no GPU")
    if _pci(device.pci):
        same = [gpu for gpu in gpus if _pci(gpu.pci) == _pci(device.pci)]
        if same:
            return same[0], ""
    if len(gpus) == 1:
        return gpus[0], ""
    named = [gpu for gpu in gpus if _plain(device.name) and _plain(device.name) == _plain(gpu.name)]
    if len(named) == 1:
        return named[0], ""
    among = named or list(gpus)
    number = re.search(r"(\d+)$", device.identifier)
    hidden = any(
        os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    )
    place = int(number.group(1)) if number and not hidden and len(among) == len(gpus) else 0
    gpu = among[place] if place < len(among) else among[0]
    return gpu, f"one of {len(gpus)} GPUs, chosen by its place in the list: it may not be the one that computes"


def _pci(address: str) -> tuple[int, ...]:
    """The parts of a PCI address as numbers: "00000000:2F:00.0" and "0000:2f:00.0" are the same."""
    try:
        return tuple(int(part, 16) for part in re.split(r"[:.]", address.strip()))
    except ValueError:
        return ()


def _plain(name: str) -> str:
    """A name to compare by: no vendor, no marks, no blanks."""
    return re.sub(r"nvidia|amd|advanced micro devices|inc\.?|\((?:r|tm)\)|[^a-z0-9]", "", name.lower())


def _describe(what: str, gpu: _Gpu, doubt: str) -> str:
    return f"{what} of GPU {gpu.index}{f' ({gpu.name})' if gpu.name else ''}{f'; {doubt}' if doubt else ''}"


# --------------------------------------------------------------------------------------------------------------------
# The monitors


class ProcessShare:
    """This process' own CPU time, all its threads, as a percentage of the CPUs that it may use."""

    source = "this process' CPU time"
    lag = 0.0

    def __init__(self) -> None:
        self.cpus = usable_cpus()
        count = f"{self.cpus:g} CPU{'s' if self.cpus != 1 else ''}"
        self.description = f"this process' own share of the {count} that it may use; other programs do not count"
        self._last = (time.perf_counter(), time.process_time())

    def read(self) -> Reading:
        """The share since the last look."""
        last, self._last = self._last, (time.perf_counter(), time.process_time())
        passed = self._last[0] - last[0]
        if passed <= 0:
            raise NoReading("no time has passed")
        return Reading(utilisation=100 * (self._last[1] - last[1]) / passed / self.cpus)


class NvidiaSmi:
    """nvidia-smi: utilisation (share of the last sample period in which a kernel ran), power, temperature, memory.

    Fields: `nvidia-smi --help-query-gpu`. It averages over up to a second.
    """

    source = "nvidia-smi"
    lag = 1.0

    def __init__(self, device: Device) -> None:
        self._tool = _tool("nvidia-smi", "it comes with NVIDIA's driver", ("/usr/lib/wsl/lib",))
        rows = [row for row in self._query("index,pci.bus_id,name") if len(row) >= 3 and row[0].isdigit()]
        gpus = [_Gpu(int(index), ", ".join(name), pci) for index, pci, *name in rows]
        self._gpu, doubt = _choose(device, gpus, self.source)
        self.description = _describe("nvidia-smi: utilisation, power, temperature and memory", self._gpu, doubt)

    def _query(self, fields: str, *more: str) -> list[list[str]]:
        text = _output([self._tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits", *more])
        return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]

    def read(self) -> Reading:
        """Look once."""
        rows = self._query("utilization.gpu,power.draw,temperature.gpu,memory.used", f"--id={self._gpu.index}")
        if len(rows) != 1 or len(rows[0]) != 4:
            raise NoReading("nvidia-smi answered something that is not one line of four values")
        utilisation, power, temperature, mebibytes = (_number(cell) for cell in rows[0])
        return Reading(utilisation, power, temperature, None if mebibytes is None else mebibytes * 2**20)


_ROCM_FOLDERS = ("/opt/rocm/bin", "/opt/rocm/core/bin")


class AmdSmi:
    """amd-smi of ROCm 6 and newer.

    Its JSON differs between versions: a list, or {"gpu_data": a list}; numbers bare or as {"value": 42, "unit": "%"};
    power and temperature under several names.
    """

    source = "amd-smi"
    lag = 0.5

    def __init__(self, device: Device) -> None:
        self._tool = _tool("amd-smi", "install amdrocm-amdsmi or amd-smi-lib from AMD's repository", _ROCM_FOLDERS)
        entries = _amd_entries(_json(_output([self._tool, "static", "--asic", "--bus", "--json"]), self.source))
        gpus = []
        for place, entry in enumerate(entries):
            index = _number(entry.get("gpu"))
            asic, bus = (entry.get(part) if isinstance(entry.get(part), dict) else {} for part in ("asic", "bus"))
            name = str(asic.get("market_name") or "")
            gpus.append(_Gpu(place if index is None else int(index), name, str(bus.get("bdf") or "")))
        self._gpu, doubt = _choose(device, gpus, self.source)
        self.description = _describe("amd-smi: utilisation, power and temperature", self._gpu, doubt)

    def read(self) -> Reading:
        """Look once."""
        command = [self._tool, "metric", "--gpu", str(self._gpu.index), "--usage", "--power", "--temperature", "--json"]
        entries = _amd_entries(_json(_output(command), self.source))
        mine = [entry for entry in entries if _number(entry.get("gpu")) in (None, self._gpu.index)]
        if not mine:
            raise NoReading(f"amd-smi says nothing of GPU {self._gpu.index}")
        return amd_reading(mine[0])


def _amd_entries(data: object) -> list[dict[str, object]]:
    """The entries of the GPUs, from whichever wrapping this version uses."""
    if isinstance(data, dict):
        data = data.get("gpu_data", [data] if "gpu" in data else [])
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def amd_reading(entry: dict[str, object]) -> Reading:
    """Read one GPU's entry of `amd-smi metric --json`, of any version.

    Args:
        entry: the entry, from the list or from "gpu_data".
    """

    def first(part: str, *names: str) -> float | None:
        block = entry.get(part)
        values = (_number(block.get(name)) for name in names) if isinstance(block, dict) else ()
        return next((value for value in values if value is not None), None)

    return Reading(
        first("usage", "gfx_activity", "gfx_usage"),
        first("power", "socket_power", "current_socket_power", "average_socket_power", "current_power"),
        first("temperature", "edge", "hotspot", "junction", "edge_temperature", "hotspot_temperature"),
    )


class RocmSmi:
    """rocm-smi of ROCm before 10.1, which dropped it."""

    source = "rocm-smi"
    lag = 0.5

    def __init__(self, device: Device) -> None:
        self._tool = _tool("rocm-smi", "ROCm before 10.1 has it", _ROCM_FOLDERS)
        gpus = []
        for index, card in self._cards("--showproductname", "--showbus").items():
            known = {key.lower(): str(value) for key, value in card.items()}
            name = known.get("card series") or known.get("card model") or ""
            gpus.append(_Gpu(index, name, known.get("pci bus", "")))
        self._gpu, doubt = _choose(device, gpus, self.source)
        self.description = _describe("rocm-smi: utilisation, power and temperature", self._gpu, doubt)

    def _cards(self, *options: str) -> dict[int, dict[str, object]]:
        data = _json(_output([self._tool, *options, "--json"]), self.source)
        cards = data.items() if isinstance(data, dict) else ()
        return {int(k[4:]): v for k, v in cards if re.fullmatch(r"card\d+", k) and isinstance(v, dict)}

    def read(self) -> Reading:
        """Look once."""
        card = self._cards("--showuse", "--showpower", "--showtemp").get(self._gpu.index)
        if card is None:
            raise NoReading(f"rocm-smi says nothing of card {self._gpu.index}")
        return rocm_reading(card)


def rocm_reading(card: dict[str, object]) -> Reading:
    """Read one card of `rocm-smi --json`: "GPU use (%)", "Average Graphics Package Power (W)" and their kin.

    Args:
        card: the entry of "card0" or the like.
    """

    def first(*patterns: str) -> float | None:
        keys = (key for pattern in patterns for key in card if re.fullmatch(pattern, key))
        return next((value for value in (_number(card[key]) for key in keys) if value is not None), None)

    return Reading(
        first(r"GPU use \(%\)"),
        first(r"(?:Current|Average) .*Power \(W\)"),
        first(r"Temperature \(Sensor edge\) \(C\)", r"Temperature \(Sensor junction\) \(C\)"),
    )


def _json(text: str, source: str) -> object:
    """The JSON in a tool's output; the tools write warnings above it.

    Raises:
        NoReading: there is none.
    """
    for start in re.finditer(r"^\s*[\[{]", text, re.M):
        try:
            return json.JSONDecoder().raw_decode(text, start.end() - 1)[0]
        except ValueError:
            continue
    raise NoReading(f"{source} answered something that is not JSON")


class Ioreg:
    """macOS: the accelerators' own statistics in the I/O registry, which needs no administrator's rights."""

    source = "ioreg"
    lag = 1.0

    def __init__(self, device: Device) -> None:
        self._make = _make(device)
        self._tool = _tool("ioreg", "it comes with macOS", ("/usr/sbin",))
        self.description = "ioreg: utilisation of the GPU by all programs"

    def read(self) -> Reading:
        """Look once."""
        return ioreg_reading(_output([self._tool, "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"]), self._make)


def ioreg_reading(text: str, make: str = "") -> Reading:
    """Read PerformanceStatistics of `ioreg -r -d 1 -w 0 -c IOAccelerator`.

    Args:
        text: its output; a Mac with two GPUs has two sections.
        make: "amd", "intel" or "apple": which of them; the first that tells something if that does not decide.

    Raises:
        NoReading: no section has a utilisation.
    """

    def value(section: str, *names: str) -> float | None:
        found = (re.search(rf'"{re.escape(name)}"\s*=\s*(\d+)', section) for name in names)
        return next((float(match.group(1)) for match in found if match), None)

    sections = re.split(r"^\+-o ", text, flags=re.M)
    sections = [s for s in sections if value(s, "Device Utilization %", "GPU Activity(%)") is not None]
    if not sections:
        raise NoReading("ioreg shows no accelerator with a utilisation")
    section = next((s for s in sections if make and make in s.lower()), sections[0])
    return Reading(
        value(section, "Device Utilization %", "GPU Activity(%)"),
        value(section, "Total Power(W)"),
        value(section, "Temperature(C)"),
        value(section, "In use system memory", "vramUsedBytes"),
    )


class WindowsCounters:
    """Windows' GPU Engine counters of this process: the 3D, compute and CUDA engines of every GPU.

    Asked by their WMI class, whose names are English on every Windows, unlike those that Get-Counter wants.
    """

    source = "GPU Engine counters"
    lag = 2.0
    _CLASS = "Win32_PerfFormattedData_GPUPerformanceCounters_GPUEngine"

    def __init__(self, device: Device) -> None:
        self._tool = _tool("powershell", "it comes with Windows")
        self.description = "Windows' GPU Engine counters: this process' use of the 3D and compute engines of every GPU"

    def read(self) -> Reading:
        """Look once."""
        script = (
            f"$ErrorActionPreference='Stop'; @(Get-CimInstance {self._CLASS} | "
            f"Where-Object Name -like 'pid_{os.getpid()}_*' | "
            "ForEach-Object { \"$($_.UtilizationPercentage) $($_.Name)\" }); 'end'"
        )
        text = _output([self._tool, "-NoProfile", "-NonInteractive", "-Command", script], 2 * TIMEOUT)
        return windows_reading(text)


def windows_reading(text: str) -> Reading:
    """Add up the engines; `text` has a line "12 pid_1_luid_0x0_0x1_phys_0_eng_0_engtype_3D" for each, then "end".

    Raises:
        NoReading: the last line is missing.
    """
    lines = text.split("\n")
    if "end" not in (line.strip() for line in lines):
        raise NoReading("the GPU Engine counters did not answer")
    engines = (re.match(r"\s*(\d+)\s+pid_\d+_.*engtype_(?:3D|Compute|Cuda)", line, re.I) for line in lines)
    return Reading(min(100.0, sum(float(engine.group(1)) for engine in engines if engine)))
