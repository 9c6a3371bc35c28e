"""Lesson 01b, Find what limits a kernel: what it measures and draws; its checks are in `lesson_01b_exercises`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from helpers.devices import opencl
from helpers.errors import wrap
from helpers.judge import checks
from helpers.lessons import lesson_02
from helpers.lessons.lesson_01b_exercises import (  # noqa: F401  (the notebook calls the checks)
    ABOVE,
    check_clock,
    check_limits,
    check_two,
    compute_chain,
    tabulate_measured,
)
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREY, SKY, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    import pyopencl as cl
    from matplotlib.axes import Axes

    Label = TypeVar("Label", bound=Hashable)
    LaunchSteps = Callable[[int, int, int], object]  # queues `chain`; takes work-items, the size of a group, and steps


LESSON = "01b"
ONE_GROUP = "one group"  # what a curve of one work-group is called
ENOUGH = 0.8  # there are enough work-items from this share of the best speed of a curve
ENOUGH_TIME = 1e-3  # seconds that a launch of `chain` shall take
# Steps of a launch. A CPU overlaps the end of a chain with the next one: 256 steps were a third faster than 4,096.
FEWEST_STEPS, MOST_STEPS = 2**12, 2**20
FLAT, MOST_GROUPS = 1.1, 64  # a curve of groups ends if two doublings gain less, or with so many groups for each unit
MOST_ITEMS = 2**21  # and with so many work-items; the lesson's arrays are longer
ROUNDS, SECONDS = 15, 3.0  # short launches take turns for so many rounds; after so many seconds no more begin
MANY_ROUNDS = 100  # rounds for launches on all units: on a busy computer, few of them get all


# ---------------------------------------------------------------------------------------------- what it measures


def compare_clocks(launch: Callable[[], object], queue: cl.CommandQueue, repeats: int, moved: int) -> None:
    """Print what `timing.measure` says of a launch, and the learner's clock where it is right, with both bandwidths.

    Args:
        launch: queues the kernel.
        queue: of the device.
        repeats: runs that count.
        moved: bytes of one run.
    """
    with timing.Load() as load:
        run = timing.measure(launch, label="addition", device=opencl.name(queue.device), on=queue, repeats=repeats)
        print(run, f"{moved / run.median / 1e9:,.3g} GB/s", sep="\n")
        if clock := checks.get_right("clock", None):
            own = float(np.median(clock(launch, queue, repeats)))
            print(f"your clock: {timing.duration(own)}, {moved / own / 1e9:,.3g} GB/s")
    if busy := timing.describe_slowdown(load.others, "these times may be too long"):
        print(busy)


@dataclass(frozen=True)
class Curve:
    """How fast `chain` is with more and more work-items."""

    groups: str  # how the work-items are grouped, in words
    runs: Mapping[int, timing.Measurement]  # by the number of work-items
    speeds: Mapping[int, float]  # of the fastest run, in GFLOP/s
    steps: Mapping[int, int]  # of each launch
    others: float = 0.0  # what share of the cores other programs used meanwhile
    fewest: int = 1  # work-items with which each unit has a group; if fewer seem to be enough, nothing can be claimed

    @property
    def best(self) -> float:
        """The highest speed, in GFLOP/s."""
        return max(self.speeds.values())

    @property
    def enough(self) -> int:
        """The fewest work-items that reach ENOUGH of the best speed."""
        return self._find_enough(1.0)

    @property
    def claim(self) -> str:
        """What can be said of `enough`, in words: "no claim" if units have no group, or if other programs explain all.

        Beside other programs, fewer work-items are too few only if the programs cannot explain why they are slow.
        """
        found = self._find_enough(timing.find_slowdown(self.others))
        is_busy = self.others > timing.BUSY
        if self.enough < ENOUGH * self.fewest or (is_busy and found == min(self.speeds)):
            return "no claim"
        return f"{'at least ' if is_busy else ''}{found:,} work-item{'' if found == 1 else 's'}"

    def _find_enough(self, slowdown: float) -> int:
        """Return the fewest work-items that reach ENOUGH of the best speed if they can be `slowdown` times as fast."""
        return next(items for items, speed in self.speeds.items() if speed * slowdown >= ENOUGH * self.best)

    def name(self, items: int) -> str:
        """Return what a record calls the speed with this number of work-items."""
        return f"chain, {items:,} work-items, {self.groups}"

    def time_step(self, items: int) -> float:
        """Return the seconds in which all work-items make one step, in the fastest run."""
        return min(self.runs[items].seconds) / self.steps[items]

    def find_ratio(self, items: int) -> float:
        """Return how many times as long a step of so many work-items took as one of 1."""
        return self.time_step(items) / self.time_step(1)

    def compare_steps(self, items: int) -> str:
        """Return how many times as long a step of so many work-items takes as one of 1, in words."""
        return describe_ratio(self.find_ratio(items), items, self.others)


def describe_ratio(ratio: float, most: float, others: float) -> str:
    """Return a measured ratio in words; beside other programs the bound that they leave of it, or "no claim".

    Args:
        ratio: of two times or speeds.
        most: what it is at most; a bound that allows both this and 1 says nothing.
        others: what share of the cores other programs used meanwhile, 0 to 1.
    """
    slowdown = timing.find_slowdown(others)
    if slowdown == 1:
        return f"{round(ratio, 1):g} times"
    if ratio > slowdown:
        return f"at least {ratio / slowdown:.1f} times"
    return f"at most {ratio * slowdown:.1f} times" if ratio * slowdown < most else "no claim"


def find_steps(launch: Callable[[int], object], queue: cl.CommandQueue) -> int:
    """Return for how many steps, a power of two from FEWEST_STEPS to MOST_STEPS, a launch takes ENOUGH_TIME.

    A launch as long as this spends little of its time on being launched. A longer one would more often have to share
    its core with other programs.

    Args:
        launch: queues the kernel; takes the steps.
        queue: of the device.
    """
    steps = FEWEST_STEPS
    while steps < MOST_STEPS:
        run = timing.measure(functools.partial(launch, steps), device="", on=queue, repeats=5, warmup=0)
        if min(run.seconds) >= ENOUGH_TIME:
            break
        steps *= 2
    return steps


def take_turns(
    ways: Mapping[Label, Callable[[], object]], queue: cl.CommandQueue, rounds: int = ROUNDS
) -> dict[Label, timing.Measurement]:
    """Time short launches in some rounds, fewer where they would take longer than SECONDS."""
    return timing.measure_interleaved(ways, opencl.name(queue.device), rounds, 2, on=queue, seconds=SECONDS)


def measure_curve(
    groups: str, launch: LaunchSteps, sizes: Mapping[int, int], queue: cl.CommandQueue, rounds: int = ROUNDS
) -> Curve:
    """Time `chain` with more and more work-items, every launch with the steps that `find_steps` gives it.

    Args:
        groups: how the work-items are grouped, in words.
        launch: queues it; takes the work-items, the size of a work-group and the steps.
        sizes: for each number of work-items the size of a work-group.
        queue: of the device.
        rounds: how often the launches take turns.
    """
    with timing.Load() as load:
        steps = {items: find_steps(functools.partial(launch, items, size), queue) for items, size in sizes.items()}
        ways = {items: functools.partial(launch, items, size, steps[items]) for items, size in sizes.items()}
        runs = take_turns(ways, queue, rounds)
    works = {items: 2e-9 * items * steps[items] for items in runs}
    curve = Curve(groups, runs, {n: work / min(runs[n].seconds) for n, work in works.items()}, steps, load.others)
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
    unit = measure_curve(ONE_GROUP, launch, sizes, queue)
    if busy := timing.describe_slowdown(unit.others):
        print(busy)
    print(f"1 work-item: a step takes {timing.duration(unit.time_step(1))}, {format_number(unit.speeds[1])} GFLOP/s")
    for items in sorted(({8, 16, 64, unit.enough, most} & set(unit.runs)) - {1}):
        step, ratio = timing.duration(unit.time_step(items)), format_number(unit.find_ratio(items), 2)
        speed = format_number(unit.speeds[items])
        print(f"{items:,} work-items: a step takes {step}, {ratio} times that of 1, {speed} GFLOP/s")
    print(f"Enough for this unit: {unit.claim}.")
    return unit


def measure_groups(launch: LaunchSteps, size: int, queue: cl.CommandQueue) -> Curve:
    """Time 1, 2, 4, ... work-groups of a size: 8 for each unit, more until two doublings gain little."""
    units, each = queue.device.max_compute_units, 8
    while True:
        counts = [2**power for power in range((each * units).bit_length())]
        sizes = {count * size: size for count in counts if count * size <= MOST_ITEMS}
        curve = measure_curve(f"groups of {size}", launch, sizes, queue, MANY_ROUNDS)
        *_, before, _, last = curve.speeds.values()
        if last <= FLAT * before or each >= MOST_GROUPS or len(sizes) < len(counts):
            break
        each *= 4
    curve = dataclasses.replace(curve, fewest=units * size)
    if busy := timing.describe_slowdown(curve.others):
        print(busy)
    elif curve.claim == "no claim":
        print(f"If {curve.enough:,} were enough, some of the {units} units would need no group. Likely other programs")
        print("kept those busy, or units share a core. A run on a quiet computer would tell.")
    return curve


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


class Chains(NamedTuple):
    """A kernel with several chains in each work-item, and how fast it was."""

    run: timing.Measurement
    speed: float  # of the fastest run, in GFLOP/s
    round: float  # seconds in which each chain of each work-item makes a step, in the fastest run
    others: float = 0.0  # what share of the cores other programs used meanwhile


def measure_chains(queue: cl.CommandQueue, x: cl.Buffer, out: cl.Buffer, steps: int) -> dict[int, Chains]:
    """Time 1, 2, 4 and 8 chains in each work-item, two by the learner's kernel where it is right, and note them.

    Every launch has a work-group of 64 for each compute unit.

    Returns:
        For each number of chains what was measured.
    """
    import pyopencl as cl

    items, ways = 64 * queue.device.max_compute_units, {}
    for count in (1, 2, 4, 8):
        source, name = write_chains(count), "chains"
        if count == 2:
            source, name = checks.find_right("two", source.replace("chains(", "two(")), "two"
        kernel = cl.Kernel(opencl.build(queue.context, source), name)
        ways[count] = lambda kernel=kernel: kernel(queue, (items,), (64,), x, out, np.int32(steps))
    with timing.Load() as load:
        runs = take_turns(ways, queue, MANY_ROUNDS)
    found = {}
    for count, run in runs.items():
        work = 2e-9 * steps * items * count
        note_fastest(run, work, name_chains(count), f"{items:,} work-items")
        found[count] = Chains(run, work / min(run.seconds), min(run.seconds) / steps, load.others)
    return found


def name_chains(count: int) -> str:
    """Return what tables and records call a kernel with so many chains in each work-item."""
    return f"{count} chain{'s' if count > 1 else ''} in each work-item"


def claim_gain(found: Mapping[int, Chains], count: int) -> str:
    """Return how many times as fast so many chains are as 1, in words.

    There is no claim if other programs can explain this, or if any gained more than overlap can give.
    """
    gains = {chains: each.speed / found[1].speed for chains, each in found.items()}
    is_possible = all(gain <= ABOVE * chains for chains, gain in gains.items())
    return describe_ratio(gains[count], count, 0.0 if count == 1 else found[1].others) if is_possible else "no claim"


def tabulate_chains(found: Mapping[int, Chains]) -> Table:
    """Return what `measure_chains` found, beside what was recorded on a GPU."""
    rows = []
    for count, (run, speed, each, _) in found.items():
        gain, spread = claim_gain(found, count), timing.duration(run.spread / run.median * each)
        rows.append((name_chains(count), timing.duration(each), spread, f"{format_number(speed)} GFLOP/s", gain))
    headers = "", "a round, fastest run", "spread", "speed", "beside 1 chain"
    below = [timing.describe_slowdown(found[1].others)]
    if claim_gain(found, 1) == "no claim":
        below.append("No claim: some gained more than full overlap allows. Run the cell again.")
    return records.add_column(Table(rows, headers, list(filter(None, below))), LESSON)


class Roofs(NamedTuple):
    """What limits every kernel of a device."""

    bandwidth: float  # what copies reached, in GB/s
    peak: float  # what multiply-adds reached, in GFLOP/s
    others: float = 0.0  # what share of the cores other programs used meanwhile

    def find_roof(self, intensity: float) -> float:
        """Return the GFLOP/s that a kernel with so many operations for each byte may reach at most."""
        return min(intensity * self.bandwidth, self.peak)


def measure_roofs(queue: cl.CommandQueue, size: int) -> Roofs:
    """Time copies of `size` floats and multiply-adds, and print two roofs."""
    with timing.Load() as load:
        bandwidth, peak = lesson_02.measure_bandwidth(queue, size), lesson_02.measure_peak(queue)
    if busy := timing.describe_slowdown(load.others, "these roofs may be too low"):
        peak = max(peak, lesson_02.measure_peak(queue))  # another program may have had a core during the first
        print(busy)
    roofs = Roofs(bandwidth, peak, load.others)
    for name, operations, moved in (("add", 1, 12), ("chain with 1,000 steps", 2_000, 8)):
        roof = format_number(roofs.find_roof(operations / moved))
        print(f"roof of {name}: min({operations:,} / {moved} * {bandwidth:.3g}, {peak:.3g}) = {roof} GFLOP/s")
    return roofs


# ------------------------------------------------------------------------------------------------------ its figures


def draw_curves(curves: Sequence[Curve], device: str) -> None:
    """Draw the speed of `chain` against the number of work-items, and what a GPU reached with such groups."""
    title, words, recorded = f"How many work-items are enough? {device}", [], []
    with figure(7.5, 4.0, title) as (drawn, axes):
        for curve, color, marker in zip(curves, (SKY, BLUE), "^o", strict=True):
            name = f"{curve.groups}, best: {format_number(curve.best)} GFLOP/s"
            axes.plot(*_find_shares(curve.speeds), color=color, marker=marker, ms=5, label=name)
            if curve.claim != "no claim":
                share = 100 * curve.speeds[curve.enough] / curve.best
                axes.plot(curve.enough, share, "o", mfc="none", mec=color, ms=14, mew=2)
            words.append(f"{curve.groups}: enough: {curve.claim}, up to {format_number(curve.best)} GFLOP/s")
            recorded.append(_draw_recorded(axes, curve, color))
        axes.axhline(100 * ENOUGH, color=GREY, lw=1)
        label = f"work-items (large circle: first with {100 * ENOUGH:.0f} %)"
        axes.set(xlabel=label, ylabel="% of the curve's best speed", xscale="log")
        axes.set_ylim(0, 108)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.legend(fontsize=10, ncols=2, loc="upper center", bbox_to_anchor=(0.45, -0.2), frameon=False)
    show(drawn, f"{title}. {'. '.join(words)}. {' '.join(recorded)}")
    print(*map(wrap, filter(None, recorded)), sep="\n")


def _find_shares(speeds: Mapping[int, float]) -> tuple[list[int], list[float]]:
    """Return the numbers of work-items, and for each the speed in percent of the best one."""
    best = max(speeds.values())
    return list(speeds), [100 * speed / best for speed in speeds.values()]


def _draw_recorded(axes: Axes, curve: Curve, color: str) -> str:
    """Draw a GPU's curve, dotted, for one group or for groups of one size, and return it in words; "" without one."""
    for record in records.read_all():
        recorded = _find_recorded(record, is_one_group=curve.groups == ONE_GROUP)
        if recorded:
            name = f"recorded, {recorded.groups}, best: {format_number(recorded.best)} GFLOP/s"
            axes.plot(*_find_shares(recorded.speeds), color=color, ls=":", marker=".", label=name)
            speed = f"up to {format_number(recorded.best)} GFLOP/s"
            return f"Recorded on {record.machine.device}, {recorded.groups}: enough: {recorded.enough:,}, {speed}."
    return ""


def _find_recorded(record: records.Record, is_one_group: bool) -> Curve | None:
    """Return the curve of `chain` in a record, for one group or for groups of one size; None if it has none."""
    groups = ONE_GROUP if is_one_group else r"groups of [\d,]+"
    speeds, name = {}, ""
    for (lesson, label), note in record.notes.items():
        found = re.fullmatch(rf"chain, ([\d,]+) work-items, ({groups})", label)
        if lesson == LESSON and found:
            speeds[int(found[1].replace(",", ""))], name = note.value, found[2]
    return Curve(name, {}, speeds, {}) if speeds else None
