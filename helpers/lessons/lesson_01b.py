"""Lesson 01b, Find what limits a kernel: what it measures and draws; its checks are in `lesson_01b_exercises`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.lessons.lesson_01b_exercises import (  # noqa: F401  (the notebook calls the checks)
    accepted,
    check_clock,
    check_roof,
    check_two,
    compute_chain,
    functions,
)
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREEN, ORANGE, SKY, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    import pyopencl as cl
    from matplotlib.axes import Axes

    Label = TypeVar("Label", bound=Hashable)
    Launch = Callable[[int, int], object]  # queues a kernel; takes the work-items and the size of a work-group
    LaunchSteps = Callable[[int, int, int], object]  # likewise, and the steps of a chain
    Chains = dict[int, tuple[timing.Measurement, float]]  # by chains in a work-item: the runs, the fastest's GFLOP/s


LESSON = "01b"
FULL = 0.8  # a device counts as full from this share of the best speed of a curve
LONGEST = 0.1  # seconds; the addition's curve ends with the first launch that takes longer
ENOUGH_TIME, MOST_STEPS = 1e-3, 2**20  # seconds that a launch of `chain` shall take, and its steps at most
ROUNDS, SECONDS = 15, 3.0  # short launches take turns for so many rounds; after so many seconds no more begin


# ---------------------------------------------------------------------------------------------- what it measures


def compare_clocks(launch: Callable[[], object], queue: cl.CommandQueue, repeats: int, moved: int) -> None:
    """Print what `timing.measure` says of a launch, and the learner's clock where it is right, with both bandwidths.

    Args:
        launch: queues the kernel.
        queue: of the device.
        repeats: runs that count.
        moved: bytes of one run.
    """
    run = timing.measure(launch, label="addition", device=opencl.name(queue.device), on=queue, repeats=repeats)
    print(run, f"{moved / run.median / 1e9:,.3g} GB/s", sep="\n")
    if "clock" in functions:
        own = float(np.median(functions["clock"](launch, queue, repeats)))
        print(f"your clock: {timing.duration(own)}, {moved / own / 1e9:,.3g} GB/s")


@dataclass(frozen=True)
class Curve:
    """How fast a kernel is with more and more work-items."""

    kernel: str  # its name for people
    groups: str  # how the work-items are grouped, in words
    runs: Mapping[int, timing.Measurement]  # by the number of work-items
    speeds: Mapping[int, float]  # of the fastest run, in GFLOP/s
    steps: Mapping[int, int] = dataclasses.field(default_factory=dict)  # of each launch; empty for the addition

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
        return f"{self.kernel}, {items:,} work-items, {self.groups}"

    def time_step(self, items: int) -> float:
        """Return the seconds in which all work-items make one step, in the fastest run."""
        return min(self.runs[items].seconds) / self.steps[items]


def find_steps(launch: Callable[[int], object], queue: cl.CommandQueue) -> int:
    """Return for how many steps, a power of two, a launch takes ENOUGH_TIME; at most MOST_STEPS.

    A launch as long as this spends little of its time on being launched. A longer one would more often have to share
    its core with other programs.

    Args:
        launch: queues the kernel; takes the steps.
        queue: of the device.
    """
    steps = 2**8
    while steps < MOST_STEPS:
        run = timing.measure(functools.partial(launch, steps), device="", on=queue, repeats=5, warmup=0)
        if min(run.seconds) >= ENOUGH_TIME:
            break
        steps *= 2
    return steps


def take_turns(ways: Mapping[Label, Callable[[], object]], queue: cl.CommandQueue) -> dict[Label, timing.Measurement]:
    """Time short launches in ROUNDS rounds, fewer where they would take longer than SECONDS."""
    return timing.measure_interleaved(ways, opencl.name(queue.device), ROUNDS, 2, on=queue, seconds=SECONDS)


def measure_chain_curve(groups: str, launch: LaunchSteps, sizes: Mapping[int, int], queue: cl.CommandQueue) -> Curve:
    """Time `chain` with more and more work-items, every launch with the steps that `find_steps` gives it.

    Args:
        groups: how the work-items are grouped, in words.
        launch: queues it; takes the work-items, the size of a work-group and the steps.
        sizes: for each number of work-items the size of a work-group.
        queue: of the device.
    """
    steps = {items: find_steps(functools.partial(launch, items, size), queue) for items, size in sizes.items()}
    ways = {items: functools.partial(launch, items, size, steps[items]) for items, size in sizes.items()}
    runs = take_turns(ways, queue)
    works = {items: 2e-9 * items * steps[items] for items in runs}
    curve = Curve("chain", groups, runs, {n: work / min(runs[n].seconds) for n, work in works.items()}, steps)
    for items in runs:
        note_fastest(runs[items], works[items], curve.name(items))
    return curve


def note_fastest(run: timing.Measurement, work: float, label: str, amount: str = "") -> None:
    """Note the GFLOP/s of the fastest run for a record; `work` is in 10**9 operations."""
    speed, count = work / min(run.seconds), len(run.seconds)
    records.add_note(records.Note(label, speed, "GFLOP/s", run.device, amount, runs=count, remark="the fastest run"))


def measure_unit(launch: LaunchSteps, queue: cl.CommandQueue) -> Curve:
    """Time one work-group, on one compute unit, with 1, 2, 4, ... work-items, and print some of its steps."""
    most = min(1_024, queue.device.max_work_group_size)
    sizes = {2**power: 2**power for power in range(most.bit_length())}
    unit = measure_chain_curve("one group", launch, sizes, queue)
    print(f"1 work-item: a step takes {timing.duration(unit.time_step(1))}, {format_number(unit.speeds[1])} GFLOP/s")
    for items in sorted(({8, 16, 64, unit.full} & set(unit.runs)) - {1}):
        step, ratio = unit.time_step(items), unit.time_step(items) / unit.time_step(1)
        text = f"{items:,} work-items: a step takes {timing.duration(step)}, {format_number(ratio, 2)} times that of 1"
        print(f"{text}, {format_number(unit.speeds[items])} GFLOP/s")
    print(f"This unit is full with {unit.full:,}.")
    return unit


def measure_device(launch: LaunchSteps, group: int, queue: cl.CommandQueue) -> list[Curve]:
    """Time 1, 2, 4, ... work-groups of the size that fills a unit, and as many of 1 if that is another size."""
    counts = [2**power for power in range((8 * queue.device.max_compute_units).bit_length())]
    ways = {"full groups": group, "groups of 1": 1} if group > 1 else {"groups of 1": 1}
    return [
        measure_chain_curve(name, launch, {count * size: size for count in counts}, queue)
        for name, size in ways.items()
    ]


def measure_addition(launch: Launch, most: int, queue: cl.CommandQueue) -> Curve:
    """Time an addition of 1, 2, 4, ... elements, at most `most`, until a launch takes LONGEST seconds.

    Args:
        launch: queues it; takes the work-items and the size of a work-group, which is at most 64.
        most: work-items.
        queue: of the device.
    """
    device, curve = opencl.name(queue.device), Curve("addition", "groups of 64", {}, {})
    runs, speeds = dict(curve.runs), dict(curve.speeds)
    for items in (2**power for power in range(most.bit_length())):
        way = functools.partial(launch, items, min(items, 64))
        run = timing.measure(way, device=device, on=queue, repeats=ROUNDS, warmup=1)
        runs[items], speeds[items] = run, 1e-9 * items / min(run.seconds)
        note_fastest(run, 1e-9 * items, curve.name(items))
        if run.median > LONGEST:
            break
    found = dataclasses.replace(curve, runs=runs, speeds=speeds)
    for items in sorted({1, 1_024} & set(runs)):
        print(f"{items:,} addition{'s' if items > 1 else ''}: {timing.duration(min(runs[items].seconds))}")
    return found


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


def measure_chains(queue: cl.CommandQueue, x: cl.Buffer, out: cl.Buffer, steps: int) -> Chains:
    """Time 1, 2, 4 and 8 chains in each work-item, two by the learner's kernel where it is right, and note them.

    Every launch has a work-group of 64 for each compute unit.

    Returns:
        For each number of chains what was measured, and the GFLOP/s of the fastest run.
    """
    import pyopencl as cl

    items, ways = 64 * queue.device.max_compute_units, {}
    for count in (1, 2, 4, 8):
        source, name = (accepted["two"], "two") if count == 2 and accepted else (write_chains(count), "chains")
        kernel = cl.Kernel(opencl.build(queue.context, source), name)
        ways[count] = lambda kernel=kernel: kernel(queue, (items,), (64,), x, out, np.int32(steps))
    timed, found = take_turns(ways, queue), {}
    for count, run in timed.items():
        work = 2e-9 * steps * items * count
        note_fastest(run, work, _name_chains(count), f"{items:,} work-items")
        found[count] = run, work / min(run.seconds)
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
    table = records.add_column(Table(rows, ("", "here, fastest run", "beside 1 chain", "spread of the time")), LESSON)
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
    """Draw speed against work-items, a panel for each kernel, what the launch allows, and what a GPU reached."""
    from matplotlib.ticker import LogLocator, NullFormatter

    looks, words = {"one group": (SKY, "^"), "full groups": (BLUE, "o"), "groups of 1": (ORANGE, "s")}, []
    kernels = list(dict.fromkeys(curve.kernel for curve in curves))
    title = f"How many work-items until it is full? {device}"
    with figure(7.5, 2.6 * len(kernels) + 0.5, title, nrows=len(kernels), squeeze=False) as (drawn, axes):
        for panel, kernel in zip(axes[:, 0], kernels, strict=True):
            for curve in (each for each in curves if each.kernel == kernel):
                color, marker = looks.get(curve.groups, (GREEN, "D"))
                panel.plot(*_split(curve.speeds), color=color, marker=marker, ms=4, label=curve.groups)
                panel.plot(curve.full, curve.speeds[curve.full], "o", mfc="none", mec=color, ms=13, mew=2)
                words.append(f"{kernel}, {curve.groups}: full with {curve.full:,}, {format_number(curve.best)} GFLOP/s")
                words += _draw_recorded(panel, curve, color)
                if not curve.steps:
                    words.append(_draw_launch(panel, curve))
            panel.set(
                title=kernel, xlabel="work-items (large circle: full)", ylabel="GFLOP/s", xscale="log", yscale="log"
            )
            low, high = panel.get_ylim()
            digits = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 300 * low else (1,)
            panel.yaxis.set_major_locator(LogLocator(subs=digits))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            panel.legend(fontsize=9, loc="lower right")
    show(drawn, f"{title}. {'. '.join(words)}.")


def _draw_launch(panel: Axes, curve: Curve) -> str:
    """Draw the speed if each launch took as long as that of 1 work-item; return it in words."""
    floor = min(curve.runs[1].seconds)
    fast = {items: 1e-9 * items / floor for items in curve.runs if items == 1 or 1e-9 * items / floor <= 2 * curve.best}
    label = f"if every launch took {timing.duration(floor)}, as that of 1"
    panel.plot(*_split(fast), color="black", ls="--", label=label)
    return label


def _split(points: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(points), list(points.values())


def _draw_recorded(panel: Axes, curve: Curve, color: str) -> list[str]:
    """Draw what a GPU reached with such groups, dotted; return it in words, nothing where it is not recorded."""
    labels = {items: curve.name(items) for items in (2**power for power in range(31))}
    column = records.find_column(LESSON, labels.values())
    found = {items: column.notes[label].value for items, label in labels.items() if label in column.notes}
    if not found:
        return []
    name = f"{curve.groups}, recorded GPU"
    panel.plot(*_split(found), color=color, ls=":", marker=".", label=name)
    return [f"{name}, {curve.kernel}: up to {format_number(max(found.values()))} GFLOP/s"]
