"""Lesson 01b, Find what limits a kernel: the experiments that name a limit, and the figure of the roof."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.errors import wrap
from helpers.lessons.lesson_01b import (
    LESSON,
    Curve,
    Roofs,
    find_steps,
    name_chains,
    note_fastest,
    take_turns,
    write_chains,
)
from helpers.lessons.lesson_01b_exercises import ABOVE, LONGEST, NEAR, REMEDIES, UNKNOWN, decide_limit
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    import pyopencl as cl

    Ways = dict[str, Callable[[], object]]  # queue a kernel, and what is varied of it, by EXPERIMENTS
    LaunchChains = Callable[[int, int], cl.Event]  # queues a kernel of chains; takes the work-items and the steps

SMALL = 1_024  # elements of the small addition
EXPERIMENTS = "items", "each", "operations"  # in the order of the arguments of `decide_limit`
BASE = "base"
NO_CLAIM = "no claim"
LANES, EMPTY = 16, 8  # work-items whose step takes so many times as long as that of 1 likely leave lanes empty
DATA_SHEET = "NVIDIA H200 SXM, published", 67_000.0, 4_800.0  # GFLOP/s in float32 and GB/s of NVIDIA's data sheet
ADDITIONS = """
__kernel void add(__global const float *x, __global const float *y, __global float *z) {
    INDEX i = get_global_id(0);
    z[i] = x[i] + y[i];
}
__kernel void add_more(__global const float *x, __global const float *y, __global float *z) {
    INDEX i = get_global_id(0);
    z[i] = (x[i] + y[i]) * x[i];
}
__kernel void add_two(__global const float *x, __global const float *y, __global float *z) {
    INDEX i = get_global_id(0), j = i + get_global_size(0);
    z[i] = x[i] + y[i];
    z[j] = x[j] + y[j];
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel and the experiments on it."""

    label: str
    intensity: float  # operations for each byte
    work: float  # 10**9 operations of one run
    runs: Mapping[str, timing.Measurement]  # of the kernel itself, and by EXPERIMENTS
    others: float = 0.0  # what share of the cores other programs used meanwhile

    @property
    def speed(self) -> float:
        """That of the fastest run, in GFLOP/s."""
        return self.work / min(self.runs[BASE].seconds)

    def compute_ratios(self, share: float = 0) -> dict[str, float]:
        """Return for each experiment its time divided by the kernel's own.

        Args:
            share: of the runs that were faster; 0 for the fastest runs.
        """
        base = float(np.quantile(self.runs[BASE].seconds, share))
        return {name: float(np.quantile(self.runs[name].seconds, share)) / base for name in EXPERIMENTS}

    def compute_share(self, roofs: Roofs) -> float:
        """Return the speed divided by the roof, which is the smaller of what memory and the lanes allow."""
        return self.speed / roofs.find_roof(self.intensity)

    def describe_limit(self, roofs: Roofs) -> str:
        """Return the limit, if it is the same for the fastest run and for the fastest quarter, or "no claim".

        It must also be the same for all numbers that other programs can have turned into the measured ones.
        """
        share, slowdown = self.compute_share(roofs), timing.find_slowdown(max(self.others, roofs.others))
        measured = [(*self.compute_ratios(faster).values(), share) for faster in (0, 0.25)]
        possible = (
            itertools.product(*((number / slowdown, number * slowdown) for number in each)) for each in measured
        )
        names = {decide_limit(*each) for each in itertools.chain(*possible)}
        is_odd = share > ABOVE or any(max(ratios) > LONGEST for *ratios, _ in measured)
        return NO_CLAIM if is_odd or len(names) > 1 else names.pop()


def measure_cases(queue: cl.CommandQueue, buffers: Sequence[cl.Buffer], size: int) -> list[Case]:
    """Time six kernels, and each of them with its work doubled in three ways.

    Args:
        queue: of the device.
        buffers: x, y and what is written, of `size` float32 each.
        size: elements of the large additions; with twice the work they have twice as many.
    """
    buffers, units = [_double(queue, buffer) for buffer in buffers], queue.device.max_compute_units
    additions = {f"add, {SMALL:,} elements": (SMALL, "int"), "add": (size, "int"), "add, size_t i": (size, "size_t")}
    chains = {"1 chain, one group of 64": (64, 1), **{name_chains(count): (64 * units, count) for count in (1, 8)}}
    cases = []

    def note(label: str, intensity: float, work: float, ways: Ways) -> None:
        with timing.Load() as load:
            runs = take_turns(ways, queue)
        note_fastest(runs[BASE], work, label)
        cases.append(Case(label, intensity, work, runs, load.others))

    for label, (count, index) in additions.items():
        note(label, 1 / 12, 1e-9 * count, _vary_addition(queue, buffers, count, index))
    for label, (items, count) in chains.items():
        steps = find_steps(functools.partial(_prepare_chains(queue, buffers, count), items), queue)
        ways = _vary_chains(queue, buffers, items, count, steps)
        note(label, 2 * steps / 8, 2e-9 * steps * items * count, ways)
    return cases


def _double(queue: cl.CommandQueue, buffer: cl.Buffer) -> cl.Buffer:
    """Return a buffer that holds the content of another one twice."""
    import pyopencl as cl

    twice = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 2 * buffer.size)
    for start in (0, buffer.size):
        cl.enqueue_copy(queue, twice, buffer, byte_count=buffer.size, dst_offset=start)
    return twice


def _vary_addition(queue: cl.CommandQueue, buffers: Sequence[cl.Buffer], count: int, index: str) -> Ways:
    """Return the addition of `count` elements, and what is varied of it; `index` is the type of a place in memory."""
    import pyopencl as cl

    program = opencl.build(queue.context, ADDITIONS.replace("INDEX", index))
    add, more, two = (cl.Kernel(program, name) for name in ("add", "add_more", "add_two"))
    return {
        BASE: lambda: add(queue, (count,), None, *buffers),
        "items": lambda: add(queue, (2 * count,), None, *buffers),
        "each": lambda: two(queue, (count,), None, *buffers),
        "operations": lambda: more(queue, (count,), None, *buffers),
    }


def _prepare_chains(queue: cl.CommandQueue, buffers: Sequence[cl.Buffer], chains: int) -> LaunchChains:
    import pyopencl as cl

    kernel = cl.Kernel(opencl.build(queue.context, write_chains(chains)), "chains")
    x, _, out = buffers
    return lambda items, steps: kernel(queue, (items,), (min(items, 64),), x, out, np.int32(steps))


def _vary_chains(queue: cl.CommandQueue, buffers: Sequence[cl.Buffer], items: int, chains: int, steps: int) -> Ways:
    launch, twice = (_prepare_chains(queue, buffers, count) for count in (chains, 2 * chains))
    return {
        BASE: lambda: launch(items, steps),
        "items": lambda: launch(2 * items, steps),
        "each": lambda: twice(items, steps),
        "operations": lambda: launch(items, 2 * steps),
    }


def tabulate_limits(cases: Sequence[Case], roofs: Roofs, unit: Curve) -> Table:
    """Return for each kernel the ratios of its experiments, its share of its roof, its limit, and what to change.

    Args:
        cases: the kernels.
        roofs: of this device.
        unit: the curve of one work-group, which shows whether the compiler fills lanes.
    """
    rows, limits, shares = [], [], [100 * case.compute_share(roofs) for case in cases]
    for case, share in zip(cases, shares, strict=True):
        ratios, limit = (
            [format_number(ratio, 2) for ratio in case.compute_ratios().values()],
            case.describe_limit(roofs),
        )
        said = f"{limit}: {REMEDIES[limit]}" if limit in REMEDIES else limit
        rows.append((case.label, *ratios, f"{share:.0f} %", said))
        limits.append(limit)
    headers = "", "work-items x 2", "in each x 2", "operations x 2", "of its roof", "limit: what to change"
    others = max(roofs.others, *(case.others for case in cases))
    below = _explain_doubts(others, limits, unit) + _describe_recorded_shares(cases)
    if round(max(shares)) > 100:
        below.insert(0, "Above 100 %: the roof was measured too low. Run the cell that computes the roofs again.")
    return Table(rows, headers, below)


def _explain_doubts(others: float, limits: Sequence[str], unit: Curve) -> list[str]:
    """Return the lines below the table of limits: why some have no name."""
    busy = timing.describe_slowdown(others, "a limit is named only if this changes nothing")
    below = [busy] if busy else []
    if NO_CLAIM in limits and not busy:
        below.append("No claim: times disagree with each other or with the roof. Run the cell again.")
    times = unit.find_ratio(LANES) if LANES in unit.runs else 0
    if limits[-1] == UNKNOWN and times > EMPTY * timing.find_slowdown(unit.others):
        text = (
            f"In the first curve, {LANES} work-items took {times:.2g} times as long as 1: likely, the compiler leaves"
        )
        below.append(f"{text} lanes empty, and the peak counts all. A kernel with float16 would tell.")
    return below


def _describe_recorded_shares(cases: Sequence[Case]) -> list[str]:
    """Return a line with the share of its roof that each kernel reached on a recorded GPU; no line without a record."""
    column = records.find_column(LESSON, ["bandwidth", "peak", *(case.label for case in cases)])
    roofs, shares = Roofs(column.get("bandwidth"), column.get("peak")), []
    for case in cases:
        share = 100 * column.get(case.label) / roofs.find_roof(case.intensity)
        if not math.isnan(share):
            shares.append(f"{case.label}: {format_number(share, 2)} %")
    if not shares:
        return []
    below_half = f"Below {100 * NEAR:.0f} %, neither memory nor arithmetic is the limit by the lesson's rule."
    return [f"recorded on {column.device}, of its roof: {'; '.join(shares)}. {below_half}"]


def draw_roofline(cases: Sequence[Case], roofs: Roofs, device: str) -> None:
    """Draw the roofs of this device, by its name, and the kernels; a GPU's published roof, and what was recorded."""
    title, words = f"What does the roof allow? {device}", []
    grid = np.geomspace(0.03, 4 * max(case.intensity for case in cases), 200)
    name, published_peak, published_bandwidth = DATA_SHEET
    column = records.find_column(LESSON, [case.label for case in cases])
    looks = (BLUE, "o"), (PINK, "v"), (PINK, "^"), (ORANGE, "s"), (SKY, "P"), (GREEN, "D")
    with figure(7.5, 5.2, title) as (drawn, axes):
        axes.plot(grid, [*map(roofs.find_roof, grid)], color="black", lw=2, label="the roof, measured here")
        axes.plot(grid, np.minimum(published_bandwidth * grid, published_peak), color=GREY, ls=":", label=name)
        for case, (color, marker) in zip(cases, looks, strict=True):
            axes.plot(case.intensity, case.speed, marker, color=color, ms=8, label=case.label)
            words.append(f"{case.label}: {case.intensity:.2g} operations for each byte, {case.speed:.3g} GFLOP/s")
            recorded = column.get(case.label)
            if not math.isnan(recorded):
                axes.plot(case.intensity, recorded, marker, mfc="none", mec=color, ms=8)
                words.append(f"{case.label}, recorded on a GPU: {format_number(recorded)} GFLOP/s")
        if column.notes:
            axes.plot([], [], "o", mfc="none", mec="black", ms=8, label="hollow: recorded on a GPU")
        axes.set(xscale="log", yscale="log", xlabel="operations for each byte", ylabel="GFLOP/s")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.legend(fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.14), frameon=False)
    show(drawn, f"{title} {'; '.join(words)}.")
    print(*map(wrap, column.below), sep="\n")
