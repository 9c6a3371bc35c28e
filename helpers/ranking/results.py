"""What a benchmark leaves: a row for each task on each device, the machine, and how quiet it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from helpers.compute.frameworks import FRAMEWORKS
from helpers.measure.tables import Table
from helpers.measure.timing import duration
from helpers.ranking.noise import Noise
from helpers.ranking.tasks import MEMORY, OPERATIONS, PEAK, PRODUCT, TASKS

EDITION = 2  # of tasks, sizes, networks, and how they are timed: results of different editions are not comparable
SCALE = {"GB/s": 1e9, "GFLOP/s": 1e9, "images/s": 1.0}  # of what a row counts, for one of its unit
FAST = 75  # per cent of the processes that are not faster than a row's speed
DRAWS = 1000  # of a bootstrap
DRIFT = 0.05  # of the speed between the first and the last third of the values: more is shown


@dataclass(frozen=True)
class Ceiling:
    """What this device was measured to reach at most, in the same run."""

    name: str  # how it was measured
    value: float  # its upper quartile: other programs make values slower, and hardly ever faster
    unit: str

    def __str__(self) -> str:
        return f"{digits(self.value)} {self.unit}, by {self.name}"


@dataclass(frozen=True)
class Row:
    """One task on one device by one framework: every value, or why there is none."""

    task: str  # one of TASKS
    framework: str  # numpy, or one of helpers.compute.frameworks.FRAMEWORKS
    identifier: str  # of the device, as the framework calls it
    device: str  # its name for people
    chip: str  # the hardware behind it: rows of one chip share their ceilings
    kind: str  # cpu, gpu or accelerator
    what: str = ""  # sizes and types
    amount: float = 0.0  # bytes, operations or images of one call
    first: float = 0.0  # seconds of the first call, compilation and all; counted nowhere
    runs: tuple[tuple[float, ...], ...] = ()  # seconds of one call: a tuple for each process
    loops: int = 1  # calls that one value is the mean of
    checked: str = ""  # what was compared before the clock started
    why_not: str = ""  # why there are no values; empty where there are
    ceiling: Ceiling | None = None

    @property
    def title(self) -> str:
        """The framework's name for people."""
        return "NumPy" if self.framework == "numpy" else FRAMEWORKS[self.framework].title

    @property
    def unit(self) -> str:
        """Of the values: GB/s, GFLOP/s or images/s."""
        return TASKS[self.task].unit

    @property
    def values(self) -> tuple[float, ...]:
        """Every counted value of every process as a speed, in the order of time."""
        return tuple(self.amount / seconds / SCALE[self.unit] for run in self.runs for seconds in run)

    @property
    def repeats(self) -> int:
        """How many values count."""
        return sum(map(len, self.runs))

    @property
    def medians(self) -> tuple[float, ...]:
        """The median speed of each process."""
        return tuple(self.amount / float(np.median(run)) / SCALE[self.unit] for run in self.runs)

    @property
    def speed(self) -> float:
        """The third quartile of the processes' medians; the score takes it, and never the best.

        Late values move no process's median. Some processes are slow as a whole, by a third or more, and how many of a
        run's are is chance. A mean moves with their number, a median jumps; the third quartile is a fast process's
        speed whether two of eight are slow or five. docs/ranking.md has the figures, and a likely cause.
        """
        return float(np.percentile(self.medians, FAST))

    @property
    def error(self) -> float | None:
        """The standard error of the speed as a share of it; None with one process.

        By a bootstrap: the processes are drawn anew, with repetition, and the speed of each draw is taken (Efron, 1979:
        Bootstrap methods: another look at the jackknife).
        """
        if len(self.runs) < 2:
            return None
        drawn = np.random.default_rng(0).choice(self.medians, (DRAWS, len(self.runs)))
        return float(np.std(np.log(np.percentile(drawn, FAST, axis=1))))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between what the middle half of the values lies."""
        low, high = np.percentile(self.values, [25, 75])
        return float(low), float(high)

    @property
    def drift(self) -> float | None:
        """The last third's speed over the first third's, where that is more than DRIFT and than either third varies."""
        third = self.repeats // 3
        if third < 2:
            return None
        first, last = self.values[:third], self.values[-third:]
        early, late = np.median(first), np.median(last)
        varies = max(float(np.subtract(*np.percentile(one, [75, 25]))) for one in (first, last))
        return float(late / early) if abs(late - early) > max(varies, DRIFT * early) else None

    @property
    def percent(self) -> float | None:
        """Of the device's measured ceiling; None without one."""
        if self.ceiling is None or self.why_not:
            return None
        done = self.speed
        if self.unit == "images/s":
            done *= OPERATIONS[self.task] / 1e9  # GFLOP/s that the layers' arithmetic takes
        return 100 * done / self.ceiling.value

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.task}, {self.device}: not measured, {self.why_not}"
        low, high = self.quartiles
        percent = "" if self.percent is None else f", {self.percent:.0f} % of the ceiling"
        return (
            f"{self.task}, {self.device}: {digits(self.speed)} {self.unit} "
            f"(middle half {digits(low)} to {digits(high)}, {self.repeats} values{percent})"
        )

    __repr__ = __str__


def digits(number: float) -> str:
    """Return three digits of a number, without an exponent: 0.123, 12.3, 12,300."""
    return f"{float(f'{number:.3g}'):,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


@dataclass(frozen=True)
class Machine:
    """The machine of a result; nothing that names its owner."""

    processor: str
    cores: float  # that the benchmark could use
    memory_gib: float
    system: str  # Linux, Darwin or Windows
    architecture: str  # x86_64 or arm64
    python: str
    gpus: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # of the environment that change speeds, as NAME=VALUE
    note: str = ""  # what is particular: one core alone, a virtual machine

    def __str__(self) -> str:
        cores = f"{self.cores:g} core{'s' * (self.cores != 1)}"
        return ", ".join(filter(None, [*self.gpus, self.processor, cores, self.note, *self.variables]))


@dataclass(frozen=True, repr=False)
class Result:
    """One run of the benchmark on one machine."""

    rows: tuple[Row, ...]
    noise: Noise
    machine: Machine
    profile: str  # the workload: preview, lab or full
    date: str  # of the run, as 2026-11-22
    seconds: float  # that it took
    versions: Mapping[str, str] = field(default_factory=dict)  # of the frameworks
    name: str = ""  # of the file in the gallery
    edition: int = EDITION

    def table(self) -> Table:
        """Return every measured row; below it those that failed, the ceilings, and how quiet the machine was."""
        headers = ("task", "device", "speed", "middle half", "values", "processes", "of its ceiling", "first call")
        rows = []
        for row in (row for row in self.rows if not row.why_not):
            share = row.percent
            percent = "" if share is None else f"{share:.2g} %" if share < 10 else f"{share:.0f} %"
            half = " to ".join(map(digits, row.quartiles))
            rows.append((row.task, row.device, f"{digits(row.speed)} {row.unit}", half, row.repeats, len(row.runs),
                         percent, duration(row.first)))  # fmt: skip
        below = [str(row) for row in self.rows if row.why_not]
        ceilings = dict.fromkeys((row.chip, row.ceiling) for row in self.rows if row.ceiling)
        below += [f"Ceiling of {chip}: {ceiling}." for chip, ceiling in ceilings]
        return Table(rows, headers if rows else (), [*below, f"Noise: {self.noise}.", *self.drifts()])

    def failures(self) -> list[Row]:
        """Return the works that were begun and failed: a wrong result, an error, a crash.

        A device that was not begun (not installed, or it cannot compute) has one row alone, which says why.
        """
        rows = Counter((row.framework, row.identifier) for row in self.rows)
        return [row for row in self.rows if row.why_not and rows[row.framework, row.identifier] > 1]

    def drifts(self) -> list[str]:
        """Return a line for each row that became slower or faster while it was measured: a clock that falls, say.

        On a noisy machine there is one line: nobody can tell then what the clock did and what the neighbours.
        """
        found = [row for row in self.rows if row.drift]
        if found and not self.noise.quiet:
            return [f"{len(found)} row{'s' * (len(found) > 1)} became slower or faster while measured."]
        return [
            f"{row.task}, {row.device}: the last third of the values ran at {row.drift:.0%} of the first third's speed."
            for row in found
        ]

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def with_ceilings(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Give every row the ceiling of its chip: the fastest that this run saw there.

    Memory: the fastest copy by any framework. Arithmetic: the OpenCL kernel that works in registers alone or, where
    none ran or a library passed it, the fastest float32 product.
    """
    rows = list(rows)
    chips = {row.chip for row in rows}
    memory = {chip: _fastest(rows, chip, (MEMORY, "OpenCL vector add", "WebGPU vector add")) for chip in chips}
    arithmetic = {chip: _fastest(rows, chip, (PEAK, PRODUCT, "OpenCL product", "WebGPU product")) for chip in chips}
    return tuple(
        replace(row, ceiling=(memory if row.unit == "GB/s" else arithmetic)[row.chip] if not row.why_not else None)
        for row in rows
    )


def _fastest(rows: Sequence[Row], chip: str, tasks: Sequence[str]) -> Ceiling | None:
    found = [row for row in rows if row.chip == chip and row.task in tasks and not row.why_not]
    if not found:
        return None
    best = max(found, key=lambda row: row.quartiles[1])
    return Ceiling(f"{best.task} ({best.title})", best.quartiles[1], best.unit)


def best(rows: Sequence[Row]) -> dict[str, Row]:
    """Return for each task that was measured the row with the highest speed."""
    found: dict[str, Row] = {}
    for row in rows:
        if not row.why_not and (row.task not in found or row.speed > found[row.task].speed):
            found[row.task] = row
    return found
