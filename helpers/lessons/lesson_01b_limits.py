"""Lesson 01b, Find what limits a kernel: the experiments that name a limit, and the figure of the roof."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.errors import wrap
from helpers.lessons.lesson_01b import LESSON, find_steps, note_fastest, take_turns, write_chains
from helpers.lessons.lesson_01b_exercises import MEMORY, compute_roof, decide_limit, functions
from helpers.measure import records
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    import pyopencl as cl

    from helpers.measure import timing

    Ways = dict[str, Callable[[], object]]  # queue a kernel, and what is varied of it, by EXPERIMENTS

MOST = 1.1  # above this share of its roof, a speed or the roof was measured or counted wrongly
SHORT = 16  # steps of the short chain
SMALL = 1_024  # elements of the small addition
EXPERIMENTS = "launch", "operations", "items", "chains"  # in the order of the arguments of `limit`
BASE = "base"
DATA_SHEET = "NVIDIA H100 SXM, published", 67_000.0, 3_350.0  # GFLOP/s in float32 and GB/s of NVIDIA's data sheet
ADDITIONS = """
__kernel void add(__global const float *x, __global const float *y, __global float *z) {
    int i = get_global_id(0);
    z[i] = x[i] + y[i];
}
__kernel void add_more(__global const float *x, __global const float *y, __global float *z) {
    int i = get_global_id(0);
    z[i] = (x[i] + y[i]) * x[i];
}
__kernel void add_two(__global const float *x, __global const float *y, __global float *z) {
    int i = get_global_id(0), j = i + get_global_size(0);
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

    @property
    def speed(self) -> float:
        """That of the fastest run, in GFLOP/s."""
        return self.work / min(self.runs[BASE].seconds)

    def compute_ratios(self, share: float = 0) -> dict[str, float]:
        """Return for each experiment its time divided by the kernel's own.

        Args:
            share: of the runs that were faster; 0 for the fastest runs, which other programs disturbed least.
        """
        base = float(np.quantile(self.runs[BASE].seconds, share))
        return {name: float(np.quantile(self.runs[name].seconds, share)) / base for name in EXPERIMENTS}

    def name_limits(self) -> set[str]:
        """Return what the rule of exercise 3 says of the fastest runs and of the first quartiles: one name, or two."""
        rule = functions.get("limit", decide_limit)
        return {rule(*self.compute_ratios(share).values()) for share in (0, 0.25)}


def measure_cases(queue: cl.CommandQueue, buffers: Sequence[cl.Buffer], size: int) -> list[Case]:
    """Time five kernels, and each of them with its work doubled in three ways and with a launch of one work-item.

    Args:
        queue: of the device.
        buffers: x, y and what is written, of `size` float32 each.
        size: elements.
    """
    x, _, out = buffers
    items = 64 * queue.device.max_compute_units
    cases = []

    def note(label: str, intensity: float, work: float, ways: Ways) -> None:
        runs = take_turns(ways, queue)
        note_fastest(runs[BASE], work, label)
        cases.append(Case(label, intensity, work, runs))

    for count, label in ((SMALL, f"add, {SMALL:,} elements"), (size // 2, "add, half of the arrays")):
        note(label, 1 / 12, 1e-9 * count, _vary_addition(queue, buffers, count))
    half = size // 2
    ways = _vary_chains(queue, x, out, half, 1, SHORT)
    note(f"chain, {SHORT} steps", 2 * SHORT / 8, 2e-9 * SHORT * half, ways)
    for chains in (1, 8):
        launch = _prepare_chains(queue, x, out, chains)
        steps = find_steps(functools.partial(launch, items), queue)
        label = f"{chains} chain{'s' if chains > 1 else ''} in each work-item"
        ways = _vary_chains(queue, x, out, items, chains, steps)
        note(label, 2 * steps / 8, 2e-9 * steps * items * chains, ways)
    return cases


def _vary_addition(queue: cl.CommandQueue, buffers: Sequence[cl.Buffer], count: int) -> Ways:
    import pyopencl as cl

    program = opencl.build(queue.context, ADDITIONS)
    add, more, two = (cl.Kernel(program, name) for name in ("add", "add_more", "add_two"))
    return {
        BASE: lambda: add(queue, (count,), None, *buffers),
        "launch": lambda: add(queue, (1,), (1,), *buffers),
        "operations": lambda: more(queue, (count,), None, *buffers),
        "items": lambda: add(queue, (2 * count,), None, *buffers),
        "chains": lambda: two(queue, (count,), None, *buffers),
    }


def _prepare_chains(
    queue: cl.CommandQueue, x: cl.Buffer, out: cl.Buffer, chains: int
) -> Callable[[int, int], cl.Event]:
    """Return what launches a kernel of `chains` chains in each work-item; it takes the work-items and the steps."""
    import pyopencl as cl

    kernel = cl.Kernel(opencl.build(queue.context, write_chains(chains)), "chains")
    return lambda items, steps: kernel(queue, (items,), (min(items, 64),), x, out, np.int32(steps))


def _vary_chains(queue: cl.CommandQueue, x: cl.Buffer, out: cl.Buffer, items: int, chains: int, steps: int) -> Ways:
    launch, twice = (_prepare_chains(queue, x, out, count) for count in (chains, 2 * chains))
    return {
        BASE: lambda: launch(items, steps),
        "launch": lambda: launch(1, 1),
        "operations": lambda: launch(items, 2 * steps),
        "items": lambda: launch(2 * items, steps),
        "chains": lambda: twice(items, steps),
    }


def tabulate_limits(cases: Sequence[Case], bandwidth: float, peak: float) -> Table:
    """Return for each kernel the ratios of its experiments, what the rule says of them, and its share of its roof.

    The rule and the roof are the learner's own where they are right.

    Args:
        cases: the kernels.
        bandwidth: the best that was seen, in GB/s.
        peak: the best that was seen, in GFLOP/s.
    """
    rows, questions, doubts = [], [], []
    for case in cases:
        share = case.speed / functions.get("roof", compute_roof)(case.intensity, bandwidth, peak)
        if share > MOST:
            questions.append(case.label)
        ratios = [format_number(ratio, 2) for ratio in case.compute_ratios().values()]
        names = case.name_limits()
        said = names.pop() if len(names) == 1 else f"no claim: {' or '.join(sorted(names))}"
        if said == MEMORY and share < 0.5:
            doubts.append(case.label)
        rows.append((case.label, *ratios, f"{said} ({format_number(100 * share, 2)} % of its roof)"))
    whose = "yours" if "limit" in functions else "the lesson's"
    below = [f"The rule is {whose}. A limit has a name if it gives the same for the fastest quarter of the runs."]
    if questions:
        wrong = "something was counted or measured wrongly"
        below.append(f"Above {100 * MOST:.0f} % of the roof, {wrong}: {'; '.join(questions)}.")
    if doubts:
        why = "Another cost of each element fits, too: the start of a work-item, or other programs"
        below.append(f"Called memory below half of the roof: {'; '.join(doubts)}. {why}.")
    headers = "", "launch", "operations x 2", "work-items x 2", "chains x 2", "limit"
    return Table(rows, headers, below)


def draw_roofline(cases: Sequence[Case], bandwidth: float, peaks: Sequence[float], device: str) -> None:
    """Draw this device's roof and the kernels, the published roof of a GPU and what was recorded on one.

    Args:
        cases: the kernels.
        bandwidth: the best that was seen, in GB/s.
        peaks: of several tries, in GFLOP/s; the roof is drawn for the highest, and shaded from the lowest.
        device: its name.
    """
    title, words = f"What does the roof allow? {device}", []
    grid = np.geomspace(0.03, 2 * max(case.intensity for case in cases))
    name, published_peak, published_bandwidth = DATA_SHEET
    column = records.find_column(LESSON, ["kernel", *(case.label for case in cases)])
    looks = (BLUE, "o"), (PINK, "v"), (ORANGE, "s"), (SKY, "^"), (GREEN, "D")
    with figure(7.5, 4.4, title) as (drawn, axes):
        low, high = (np.minimum(bandwidth * grid, peak) for peak in (np.nanmin(peaks), np.nanmax(peaks)))
        axes.plot(grid, high, color="black", lw=2, label="the roof here")
        axes.fill_between(grid, low, high, color=GREY, alpha=0.4, label="the peak, lowest to highest")
        axes.plot(grid, np.minimum(published_bandwidth * grid, published_peak), color=GREY, ls=":", label=name)
        for case, (color, marker) in zip(cases, looks, strict=False):
            axes.plot(case.intensity, case.speed, marker, color=color, ms=8, label=case.label)
            words.append(f"{case.label}: {case.intensity:.2g} operations for each byte, {case.speed:.3g} GFLOP/s")
            recorded = column.get("kernel") / 12 if case.label.startswith("add, half") else column.get(case.label)
            if not math.isnan(recorded):
                label = f"{case.label}, recorded"
                axes.plot(case.intensity, recorded, marker, mfc="none", mec=color, ms=8, label=label)
                words.append(f"{case.label}, recorded on a GPU: {format_number(recorded)} GFLOP/s")
        axes.set(xscale="log", yscale="log", xlabel="operations for each byte", ylabel="GFLOP/s")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.legend(fontsize=8)
    show(drawn, f"{title} {'; '.join(words)}.")
    print(*map(wrap, column.below), sep="\n")
