"""Proof of use, for lesson 00: watch a device while the lesson loads it, and say whether the load shows.

`find(device)` looks for what can watch this device: nvidia-smi, the Linux kernel for AMD's GPUs, ioreg on macOS, the
GPU Engine counters on Windows. A CPU is watched by this process's own CPU time, so that other programs cannot fake the
proof. Where there is nothing, `find` returns a `NoMonitor`, which is false and says why; `watch` takes it too.
"""

from __future__ import annotations

import math
import statistics
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from helpers.devices import Device
from helpers.devices.host import usable_cpus
from helpers.devices.vendor_tools import Monitor, NoReading, TooSlow, list_candidates

INTERVAL = 0.1  # seconds between two looks of `watch`; tools that answer more slowly set their own pace
ENOUGH = 3  # samples of each phase that a judgment needs
FAILURES = 3  # in a row end the sampling
SLOW_SECONDS = 12  # for a phase in which a slow tool has to say something; PowerShell takes a second or two each time
LEAST_GAP = 5.0  # percentage points: less is no load, whatever the spread


class NoMonitor(Monitor):
    """There is nothing that can watch this device. It is false, so that `if monitor:` works.

    Args:
        why: what was looked for, and why it is of no use.
    """

    source = "none"

    def __init__(self, why: str) -> None:
        self.why = why
        self.description = f"no monitor here, evidence by placement and time only ({why})"

    def __bool__(self) -> bool:
        return False


class ProcessShare(Monitor):
    """This process' own CPU time, all its threads, as a percentage of the CPUs that it may use.

    Args:
        cpus: as a percentage of this number of CPUs instead; 1 notices one busy core on a machine of many.
    """

    source = "this process's CPU time"

    def __init__(self, cpus: float | None = None) -> None:
        self.cpus = cpus or usable_cpus()
        count = "1 CPU" if self.cpus == 1 else f"{self.cpus:g} CPUs"
        self.description = f"this process's own share of the {count} that it may use; other programs do not count"
        self._last = (time.perf_counter(), time.process_time())

    def read(self) -> float:
        """Return the share since the last look."""
        last, self._last = self._last, (time.perf_counter(), time.process_time())
        return 100 * (self._last[1] - last[1]) / (self._last[0] - last[0]) / self.cpus


def find(device: Device) -> Monitor:
    """Find what can watch this device, and look once to be sure that it works.

    Args:
        device: from `helpers.devices`.

    Returns:
        A monitor that has answered once, or a NoMonitor that says why there is none. It never raises.
    """
    if device.kind == "cpu":
        return ProcessShare()
    refused: list[str] = []
    for candidate in list_candidates(device):
        try:
            monitor = candidate(device)
            known = monitor.read() is not None
        except Exception as error:  # what a tool of an unknown version writes must not break a lesson
            refused.append(str(error) if isinstance(error, NoReading) else f"{candidate.source}: {error!r}")
            continue
        if known:
            return monitor
        refused.append(f"{monitor.source} does not tell the utilization of this device")
    return NoMonitor("; ".join(refused) or f"no tool is known that watches {device.name}")


# ------------------------------------------------------------------------------------ samples and what they prove


@dataclass(frozen=True)
class Usage:
    """Whether a device was used, as far as samples prove it."""

    used: bool | None  # None if nothing could be seen
    sentence: str  # the same with figures

    def __str__(self) -> str:
        """The sentence, in lines that a notebook does not break."""
        return textwrap.fill(self.sentence, 90)


@dataclass(frozen=True)
class Samples:
    """What a monitor saw. The tuples are of equal length, one entry for each sample."""

    source: str  # the tool's name
    description: str  # what it watched
    times: tuple[float, ...] = ()  # seconds since the watching began
    phases: tuple[str, ...] = ()  # "idle" or "busy"
    utilization: tuple[float | None, ...] = ()  # percent
    lag: float = 0.0  # seconds by which the figures trail; a judgment leaves out as much of the start of each phase
    problem: str = ""  # why the sampling ended early or never began; empty if all went well

    def settled(self, quantity: str, phase: str) -> list[float]:
        """Return the values of one phase that count: known, and after the lag (at most half of the phase).

        Args:
            quantity: "utilization" or "times".
            phase: "idle" or "busy".
        """
        entries = zip(self.times, self.phases, getattr(self, quantity), strict=True)
        entries = [(second, value) for second, of, value in entries if of == phase]
        if not entries:
            return []
        first, last = entries[0][0], entries[-1][0]
        start = first + min(self.lag, (last - first) / 2)
        return [value for second, value in entries if value is not None and second >= start]

    def find_limit(self) -> float:
        """Return the percentage above which three quarters of the busy samples must lie; NaN without idle samples."""
        idle = self.settled("utilization", "idle")
        return statistics.quantiles(idle, n=4, method="inclusive")[2] + LEAST_GAP if len(idle) >= ENOUGH else math.nan

    def judge_usage(self) -> Usage:
        """Judge by the utilization whether the load has used the device.

        The device counts as used if three quarters of the busy samples lie above three quarters of the idle ones: the
        lower quartile of the busy phase above the upper quartile of the idle one, by more than 5 percentage points.
        Other programs that take part of the device widen the busy phase, and then hide nothing.
        """
        if not self.times and self.problem:
            return Usage(None, f"Cannot tell: {self.problem}.")
        idle, busy = self.settled("utilization", "idle"), self.settled("utilization", "busy")
        if min(len(idle), len(busy)) < ENOUGH:
            count = f"{self.phases.count('idle')} idle and {self.phases.count('busy')} busy samples"
            return Usage(None, f"Cannot tell: {count} are too few{': ' + self.problem if self.problem else ''}.")
        quartiles = [statistics.quantiles(values, n=4, method="inclusive") for values in (idle, busy)]
        before, after = (
            f"{middle:.0f} % (median of {len(values)} samples, the middle half {low:.0f} to {high:.0f})"
            for (low, middle, high), values in zip(quartiles, (idle, busy), strict=True)
        )
        if quartiles[1][0] > self.find_limit():
            return Usage(True, f"Used: utilization rose from {before} to {after}, says {self.source}.")
        return Usage(
            False,
            f"Not shown: utilization was {before} idle and {after} while it ran, says {self.source}. "
            f"To count as used, the second middle half must be more than {LEAST_GAP:g} points above the first.",
        )


# ---------------------------------------------------------------------------------------------------------- sampling


class _Sampler:
    """Samples in a thread from `with` to its end, whatever happens in between."""

    def __init__(self, monitor: Monitor, interval: float) -> None:
        self.monitor, self.interval, self.phase = monitor, interval, "idle"
        self.found: list[tuple[float, str, float | None]] = []  # seconds, phase, percent
        self.problem = "" if monitor else monitor.description
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="anygpu-monitor", daemon=True)
        self._start = time.perf_counter()

    def __enter__(self) -> _Sampler:
        if self.monitor:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self.monitor:
            self._thread.join()  # ends: each call of a tool has its time-out

    def _sample(self) -> None:
        failures, begun = 0, ""  # the phase in which a reading's period began: unknown for the first
        while not self._end.wait(self.interval):
            try:
                reading = self.monitor.read()
            except Exception as error:  # a sampling thread must not die silently, nor disturb the lesson
                failures += 1
                if failures >= FAILURES or isinstance(error, TooSlow):
                    self.problem = f"{self.monitor.source} stopped answering: {error}"
                    return
                continue
            failures, phase = 0, self.phase
            if self._end.is_set():  # the load may have ended while the tool was answering
                return
            if phase == begun:  # one that covers the end of one phase and the start of the next is void
                self.found.append((time.perf_counter() - self._start, phase, reading))
            begun = phase

    def needs_more(self, since: float, seconds: float, enough: int = ENOUGH) -> bool:
        """Whether the phase that began at `since` has to go on: its time is not up, or a slow tool has said too little.

        A slow tool gets SLOW_SECONDS, or four times as long as asked, for `enough` samples after the lag.
        """
        passed = time.perf_counter() - since
        if passed < seconds or not self.monitor or self.problem:
            return passed < seconds
        too_few = len(self.samples().settled("times", self.phase)) < enough
        return too_few and passed < max(SLOW_SECONDS, 4 * seconds)

    def samples(self) -> Samples:
        columns = zip(*self.found, strict=True) if self.found else ((), (), ())
        return Samples(
            self.monitor.source, self.monitor.description, *columns, lag=self.monitor.lag, problem=self.problem
        )


def watch(
    monitor: Monitor,
    work: Callable[[], object],
    idle_seconds: float = 1.5,
    busy_seconds: float = 3.0,
) -> Samples:
    """Sample the device idle, then while `work` loads it.

    Args:
        monitor: what `find` returned; with a NoMonitor the work runs all the same, and the samples stay empty.
        work: one slice of load; it waits until the device is done, and is called again until the time is up.
        idle_seconds: how long to look at the idle device first.
        busy_seconds: how long to load it; at least one slice is run. Both last longer where a tool answers slowly.

    Raises:
        Whatever `work` raises; the sampling has ended then too.
    """
    with _Sampler(monitor, INTERVAL) as sampler:
        start = time.perf_counter()
        while monitor and sampler.needs_more(start, idle_seconds):
            time.sleep(INTERVAL)
        sampler.phase = "busy"
        start = time.perf_counter()
        work()
        while sampler.needs_more(start, busy_seconds):
            work()
    return sampler.samples()


def sample(monitor: Monitor, seconds: float, interval: float = 0.2) -> Samples:
    """Sample the device for some seconds without loading it; every sample is "idle".

    Args:
        monitor: what `find` returned.
        seconds: how long; longer where a tool answers so slowly that there is no sample yet.
        interval: seconds between two looks.
    """
    with _Sampler(monitor, interval) as sampler:
        start = time.perf_counter()
        while monitor and sampler.needs_more(start, seconds, enough=1):
            time.sleep(min(interval, seconds))
    return sampler.samples()
