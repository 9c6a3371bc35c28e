"""Lesson 01b, Find what limits a kernel: what it measures and draws; its checks are in `lesson_01b_exercises`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.errors import wrap
from helpers.lessons.lesson_01b_exercises import (  # noqa: F401  (the notebook calls the checks)
    QUESTION,
    ROOF,
    accepted,
    check_clock,
    check_roof,
    check_two,
    compute_chain,
    compute_intensities,
    compute_roof,
    decide_limit,
    functions,
)
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY, figure, show
from helpers.measure.tables import MISSING, Table, format_number

if TYPE_CHECKING:
    import pyopencl as cl
    from matplotlib.axes import Axes

    Launch = Callable[[int, int], object]  # queues a kernel; takes the work-items and the size of a work-group
    Chains = dict[int, tuple[timing.Measurement, float]]  # by chains in a work-item: the runs, the median's GFLOP/s


LESSON = "01b"
FULL = 0.8  # a device counts as full from this share of the best speed of a curve
LONGEST = 0.1  # seconds; a curve ends with the first launch that takes longer
DATA_SHEET = "NVIDIA H100 SXM, published", 67_000.0, 3_350.0  # GFLOP/s in float32 and GB/s of NVIDIA's data sheet


# ---------------------------------------------------------------------------------------------- what it measures


def compare_clocks(launch: Callable[[], object], queue: cl.CommandQueue, repeats: int) -> None:
    """Print what `timing.measure` says of a launch, and the learner's clock where it is right."""
    print(timing.measure(launch, label="addition", device=opencl.name(queue.device), on=queue, repeats=repeats))
    if "clock" in functions:
        print(f"your clock: {timing.duration(float(np.median(functions['clock'](launch, queue, repeats))))}")


@dataclass(frozen=True)
class Curve:
    """How fast a kernel is with more and more work-items."""

    kernel: str  # its name for people
    group: int  # the size of a work-group
    runs: Mapping[int, timing.Measurement]  # by the number of work-items
    speeds: Mapping[int, float]  # the median of the runs, in GFLOP/s

    @property
    def best(self) -> float:
        """The highest speed, in GFLOP/s."""
        return max(self.speeds.values())

    @property
    def full(self) -> int:
        """The fewest work-items that reach FULL of the best speed."""
        return next(items for items, speed in self.speeds.items() if speed >= FULL * self.best)

    def name(self, items: int) -> str:
        """Return what a record calls the speed with this number of work-items."""
        return f"{self.kernel}, {items:,} work-items, groups of {self.group}"


def measure_curve(
    kernel: str, launch: Launch, work: float, group: int, most: int, queue: cl.CommandQueue, repeats: int
) -> Curve:
    """Time a kernel with 1, 2, 4, ... work-items, until a launch takes LONGEST seconds, and note each speed.

    Args:
        kernel: its name for people.
        launch: queues it; takes the work-items and the size of a work-group.
        work: 10**9 operations of one work-item.
        group: the size of a work-group; smaller where there are fewer work-items.
        most: work-items, at most.
        queue: of the device.
        repeats: runs of each launch.
    """
    device, curve = opencl.name(queue.device), Curve(kernel, group, {}, {})
    runs, speeds = dict(curve.runs), dict(curve.speeds)
    for items in (2**power for power in range(most.bit_length())):
        size = min(items, group)
        run = timing.measure(functools.partial(launch, items, size), device=device, on=queue, repeats=repeats, warmup=1)
        runs[items], speeds[items] = run, work * items / run.median
        records.add_run(run, "GFLOP/s", work * items, label=curve.name(items))
        if run.median > LONGEST:
            break
    return dataclasses.replace(curve, runs=runs, speeds=speeds)


def write_chains(count: int) -> str:
    """Return a kernel `chains` of which each work-item computes `count` chains side by side."""
    chains = range(count)
    starts = ", ".join(f"c{n} = x[i + {n} * items], v{n} = 0" for n in chains)
    steps = " ".join(f"v{n} = v{n} * v{n} + c{n};" for n in chains)
    ends = " ".join(f"out[i + {n} * items] = v{n};" for n in chains)
    return f"""
__kernel void chains(__global const float *x, __global float *out, const int steps) {{
    int i = get_global_id(0), items = get_global_size(0);
    float {starts};
    for (int k = 0; k < steps; k++) {{ {steps} }}
    {ends}
}}
"""


def measure_chains(queue: cl.CommandQueue, x: cl.Buffer, out: cl.Buffer, steps: int, repeats: int) -> Chains:
    """Time 1, 2, 4 and 8 chains in each work-item, two by the learner's kernel where it is right, and note them.

    Every launch has a work-group of 64 for each compute unit.

    Returns:
        For each number of chains what was measured, and the GFLOP/s of the median.
    """
    import pyopencl as cl

    items, ways = 64 * queue.device.max_compute_units, {}
    for count in (1, 2, 4, 8):
        source, name = (accepted["two"], "two") if count == 2 and accepted else (write_chains(count), "chains")
        kernel = cl.Kernel(opencl.build(queue.context, source), name)
        ways[count] = lambda kernel=kernel: kernel(queue, (items,), (64,), x, out, np.int32(steps))
    timed, found = timing.measure_interleaved(ways, opencl.name(queue.device), repeats, warmup=2, on=queue), {}
    for count, run in timed.items():
        work = 2e-9 * steps * items * count
        records.add_run(run, "GFLOP/s", work, f"{items:,} work-items", _name_chains(count))
        found[count] = run, work / run.median
    return found


def _name_chains(count: int) -> str:
    return f"{count} chain{'s' if count > 1 else ''} in each work-item"


def tabulate_chains(found: Chains) -> Table:
    """Return what `measure_chains` found, beside what was recorded on a GPU."""
    rows = []
    for count, (run, speed) in found.items():
        gain = f"{speed / found[1][1]:.2g} times"
        rows.append((_name_chains(count), f"{format_number(speed)} GFLOP/s", gain, timing.duration(run.spread)))
    whose = "2 chains: the kernel is yours." if accepted else "2 chains: a kernel of the lesson's."
    if accepted and found[2][1] < 1.6 * found[1][1]:
        whose += " It gains little: do both chains take a step in each round of the same loop?"
    table = records.add_column(Table(rows, ("", "here", "beside 1 chain", "spread of the time")), LESSON)
    return dataclasses.replace(table, below=(*table.below, whose))


def tabulate_bandwidth(measured: Mapping[str, timing.Measurement], moved: Mapping[str, int]) -> Table:
    """Return the GB/s of each way, beside what was recorded on a GPU, and note them.

    Args:
        measured: by label.
        moved: bytes of one run, by label.
    """
    rows = []
    for label, run in measured.items():
        speeds = [moved[label] / seconds / 1e9 for seconds in (run.median, *reversed(run.quartiles))]
        rows.append((label, f"{speeds[0]:.3g} GB/s", f"{speeds[1]:.3g} to {speeds[2]:.3g}"))
        by_host = dataclasses.replace(run, device=cpu_name()) if label.startswith("NumPy") else run
        records.add_run(by_host, "GB/s", moved[label] / 1e9, label=label)
    return records.add_column(Table(rows, ("", "here", "middle half of the runs")), LESSON)


def find_lanes(parted: Mapping[int, timing.Measurement]) -> int | None:
    """Return from how many neighbors that go one way together a branch costs less; None where nothing shows it.

    It costs less where the median falls by a quarter or more and the middle halves of the runs lie apart, also with
    more neighbors together.

    Args:
        parted: what was measured, by the number of neighbors, in ascending order.
    """
    apart, found = parted[min(parted)], None
    for count, run in reversed(list(parted.items())):
        if run.median > 0.75 * apart.median or run.quartiles[1] >= apart.quartiles[0]:
            break
        found = count
    return found


def tabulate_branches(parted: Mapping[int, timing.Measurement]) -> Table:
    """Return the time by the number of neighbors that go one way, beside what a GPU needed, and note them."""
    rows = []
    for run, each in parted.items():
        label = f"together = {run}"
        records.add_run(each, label=label)
        rows.append((label, timing.duration(each.median), timing.duration(each.spread)))
    return records.add_column(Table(rows, ("", "here", "spread")), LESSON)


def copy_on_all_cores(target: np.ndarray, source: np.ndarray) -> None:
    """Copy an array with as many threads as the computer has cores; NumPy's copy lets them run side by side."""
    pieces = [np.array_split(array, os.cpu_count() or 1) for array in (target, source)]
    for _ in _start_threads().map(np.copyto, *pieces):
        pass


@functools.cache
def _start_threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(os.cpu_count())


def copy_and_add(
    add: cl.Kernel, queues: Sequence[cl.CommandQueue], buffers: Sequence[cl.Buffer], x: np.ndarray, parts: int
) -> None:
    """Copy x to the device in parts and add each part as soon as it is there; wait until all is done.

    Args:
        add: the kernel of the lesson.
        queues: take the parts in turn; with two, one part is copied while the other is added, if the device can.
        buffers: of x, y and the sum, as long as x.
        x: float32, its length a multiple of 64 times `parts`.
        parts: how many.
    """
    import pyopencl as cl

    length = len(x) // parts
    for part in range(parts):
        queue, first = queues[part % len(queues)], part * length
        piece = x[first : first + length]
        copied = cl.enqueue_copy(queue, buffers[0], piece, dst_offset=4 * first, is_blocking=False)
        add(queue, (length,), (64,), *buffers, np.int32(len(x)), global_offset=(first,), wait_for=[copied])
        queue.flush()
    for queue in queues:
        queue.finish()


# ------------------------------------------------------------------------------------------------------ its figures


def draw_curves(curves: Sequence[Curve], device: str) -> None:
    """Draw speed against work-items, a panel for each kernel, and beside them what was recorded on a GPU."""
    from matplotlib.ticker import LogLocator, NullFormatter

    looks, words = {64: (BLUE, "o", "-"), 1: (ORANGE, "s", "--")}, []
    kernels = list(dict.fromkeys(curve.kernel for curve in curves))
    title = f"How many work-items until it is full? {device}"
    with figure(7.5, 2.6 * len(kernels) + 0.5, title, nrows=len(kernels), sharex=True, squeeze=False) as (drawn, axes):
        for panel, kernel in zip(axes[:, 0], kernels, strict=True):
            for curve in (each for each in curves if each.kernel == kernel):
                color, marker, line = looks[curve.group]
                label = f"groups of {curve.group}"
                panel.plot(*_split(curve.speeds), color=color, marker=marker, ms=4, ls=line, label=label)
                panel.plot(curve.full, curve.speeds[curve.full], "o", mfc="none", mec=color, ms=13, mew=2)
                words.append(f"{curve.kernel}, {label}: full with {curve.full:,}, {format_number(curve.best)} GFLOP/s")
                words += _draw_recorded(panel, curve)
            panel.set(title=kernel, ylabel="GFLOP/s", xscale="log", yscale="log")
            low, high = panel.get_ylim()
            digits = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 300 * low else (1,)
            panel.yaxis.set_major_locator(LogLocator(subs=digits))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.legend(fontsize=9, loc="lower right")
        axes[-1, 0].set_xlabel("work-items (large circle: full)")
        axes[-1, 0].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    show(drawn, f"{title}. {'. '.join(words)}.")


def _split(points: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(points), list(points.values())


def _draw_recorded(panel: Axes, curve: Curve) -> list[str]:
    """Draw what a GPU reached with the groups of this curve; return it in words, nothing where it is not recorded."""
    labels = {items: curve.name(items) for items in (2**power for power in range(31))}
    column = records.find_column(LESSON, labels.values())
    found = {items: column.notes[label].value for items, label in labels.items() if label in column.notes}
    name = f"groups of {curve.group}, recorded GPU"
    if not found:
        panel.plot([], [], " ", label=f"{name}: {MISSING}")
        return []
    panel.plot(*_split(found), color=GREEN if curve.group > 1 else PINK, ls=":", marker=".", label=name)
    return [f"{name}, {curve.kernel}: up to {format_number(max(found.values()))} GFLOP/s"]


class Dot(NamedTuple):
    """A kernel below the roofline."""

    label: str
    intensity: float  # operations for each byte
    run: timing.Measurement
    work: float  # 10**9 operations of one run


def collect_dots(
    steps: int, elements: int, add: timing.Measurement, short: timing.Measurement, curve: Curve, chains: Chains
) -> list[Dot]:
    """Return the lesson's four kernels as dots.

    Args:
        steps: of the long chain.
        elements: of the addition and of the short chain, of 16 steps.
        add: the runs of the addition.
        short: the runs of the short chain.
        curve: of the long chain; its best launch counts.
        chains: what `measure_chains` found; 8 chains in each work-item count.
    """
    best = max(curve.speeds, key=curve.speeds.__getitem__)
    many, speed = chains[8]
    works = (1e-9 * elements, 32e-9 * elements, 2e-9 * steps * best)
    named = zip(compute_intensities(steps).items(), (add, short, curve.runs[best]), works, strict=True)
    dots = [Dot(label, intensity, run, work) for (label, intensity), run, work in named]
    return [*dots, Dot(_name_chains(8), 2 * steps / 8, many, speed * many.median)]


def draw_roofline(dots: Sequence[Dot], bandwidth: float, peak: float, device: str) -> None:
    """Draw this device's roof and the learner's kernels, the published roof of a GPU and what was recorded on one.

    Args:
        dots: the kernels.
        bandwidth: the best that was seen, in GB/s.
        peak: the best that was seen, in GFLOP/s.
        device: its name.
    """
    title, words = f"What does the roof allow? {device}", []
    grid = np.geomspace(0.03, 2 * max(dot.intensity for dot in dots))
    name, published_peak, published_bandwidth = DATA_SHEET
    column = records.find_column(LESSON, ["kernel", *(dot.label for dot in dots)])
    with figure(7.5, 4.4, title) as (drawn, axes):
        axes.plot(grid, np.minimum(bandwidth * grid, peak), color="black", lw=2, label="the roof here")
        axes.plot(grid, np.minimum(published_bandwidth * grid, published_peak), color=GREY, ls=":", label=name)
        for dot, (color, marker) in zip(dots, ((BLUE, "o"), (ORANGE, "s"), (SKY, "^"), (GREEN, "D")), strict=False):
            speed = dot.work / dot.run.median
            axes.plot(dot.intensity, speed, marker, color=color, ms=8, label=dot.label)
            words.append(f"{dot.label}: {dot.intensity:.2g} operations for each byte, {format_number(speed)} GFLOP/s")
            recorded = column.get("kernel") / 12 if dot.label == "add" else column.get(dot.label)
            if not math.isnan(recorded):
                axes.plot(dot.intensity, recorded, marker, mfc="none", mec=color, ms=8, label=f"{dot.label}, recorded")
                words.append(f"{dot.label}, recorded on a GPU: {format_number(recorded)} GFLOP/s")
        axes.set(xscale="log", yscale="log", xlabel="operations for each byte", ylabel="GFLOP/s")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.legend(fontsize=9)
    show(drawn, f"{title} {'; '.join(words)}.")
    missing = [dot.label for dot in dots if dot.label != "add" and dot.label not in column.notes]
    lines = [*column.below, *([f"{MISSING} on a GPU: {'; '.join(missing)}."] if missing else [])]
    print(*map(wrap, lines), sep="\n")


def say_what_limits(dots: Sequence[Dot], bandwidth: float, peak: float) -> None:
    """Print for each kernel what the rule of exercise 3 says if it says the same of the middle half of its runs.

    The rule is the learner's own where it is right. Each speed is noted for a record.
    """
    print("The rule is yours." if "limit" in functions else "The rule is the lesson's.")
    for dot in dots:
        records.add_run(dot.run, "GFLOP/s", dot.work, label=dot.label)
        roof = functions.get("roof", compute_roof)(dot.intensity, bandwidth, peak)
        side = "memory" if dot.intensity * bandwidth < peak else "arithmetic"
        shares = [dot.work / seconds / roof for seconds in (dot.run.median, *reversed(dot.run.quartiles))]
        verdicts = {functions.get("limit", decide_limit)(share * roof, roof) for share in shares}
        middle, low, high = (format_number(100 * share, 2) for share in shares)
        text = f"{dot.label}: {middle} % of its roof, {side}."
        if math.isclose(shares[0], 1.0):
            text += f" No way was faster here, so this {'moved the most' if side == 'memory' else 'is the peak'}."
        elif len(verdicts) > 1:
            text += f" The middle half of the runs has {low} to {high} %: no claim."
        elif verdicts == {QUESTION}:
            text += " A question: what was not counted, or what disturbed the measurement of the roof?"
        else:
            text += f" {side.capitalize()} limits it." if verdicts == {ROOF} else " Something else limits it."
        print(wrap(text))
