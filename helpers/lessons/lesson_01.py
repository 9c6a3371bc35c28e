"""Lessons 01, Add vectors with OpenCL, and 01b, Find what limits a kernel: checks, figures, machinery."""

from __future__ import annotations

import dataclasses
import functools
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.errors import wrap
from helpers.judge import checks, kernel_checks, opencl_recorder
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, draw_speeds, figure, show
from helpers.measure.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP_COLORS = (SKY, GREEN, PINK)  # none that could be taken for RED, which marks what lies outside
NEARBY = 3  # how many elements beyond either end are drawn

# The solutions of exercise 2 of 01 and of exercise 3 of 01b: other cells launch them, whatever the learner wrote.
ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c, const int n) {
    int i = get_global_id(0);
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}
"""
CHAIN = """
__kernel void chain(__global const float *x, __global float *out, const int n) {
    int i = get_global_id(0);
    if (i < n) {
        float value = x[i];
        #pragma unroll
        for (int k = 0; k < STEPS; k++) {
            value = 0.99f * value + 0.01f;
        }
        out[i] = value;
    }
}
"""


# ------------------------------------------------------------------------------- checks of 01, Add vectors with OpenCL


@checks.print_verdict
def check_add(source: str) -> Iterator[str]:
    """Lesson 01, exercise 1: `c[i] = a[i] + b[i]` for as many work-items as elements."""
    yield checks.judge_in_subprocess(judge_add, source=source)


def judge_add(source: str) -> str:
    """Judge the kernel of exercise 1, which knows no n: by traces of launches without surplus work-items."""
    kernel = kernel_checks.build(source, "add")
    kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "float[]"))
    launches = [(3, 1), (8, 4), (192, 64)]
    for n, group in launches:
        launch = f"{n} elements, {n} work-items in groups of {group}"
        a, b = np.random.default_rng().normal(size=(2, n)).astype(np.float32)
        traced = kernel_checks.record(kernel, launch, n, group, [a, b, np.full(n, np.nan, np.float32)])
        kernel_checks.expect_writes(traced, launch, kernel)
        kernel_checks.refuse_faults(traced, launch)
        kernel_checks.refuse_overwork(traced, launch)
        for given, before, after in zip("ab", (a, b), traced.arrays, strict=False):
            if not np.array_equal(before, after):
                raise NotYet(f"{launch}: the kernel changed its input {given}; it may only write c.")
        for i in np.flatnonzero(~np.isclose(traced.arrays[2], a + b, rtol=1e-5, atol=1e-5))[:1]:
            value = traced.arrays[2][i]  # not a number: c's own before the launch
            actual = "nothing, or what depends on what c held before" if np.isnan(value) else f"{value:.6g}"
            given = f"a[{i}] = {a[i]:.6g}, b[{i}] = {b[i]:.6g}"
            raise NotYet(f"{launch}, element {i} ({given}): expected {a[i] + b[i]:.6g}, came {actual}.")
    return f"{len(launches)} launches of as many work-items as elements, on {opencl.name(kernel.device)}"


@checks.print_verdict
def check_guard(source: str) -> Iterator[str]:
    """Lesson 01, exercise 2: the same kernel with a guard, for whole work-groups."""
    yield checks.judge_in_subprocess(judge_guard, source=source)


def judge_guard(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    kernel = kernel_checks.build(source, "add")
    return kernel_checks.judge_kernel(kernel, ("float[]", "float[]"), lambda a, b: a + b, exercise="01.2")


@checks.print_verdict
def check_launch(launch: Callable[..., object]) -> Iterator[str]:
    """Lesson 01, exercise 3: the launch of a kernel for any number of elements and any size of groups; none is run."""
    sizes = [(10, 4), (12, 4), (3, 4), (1, 64), (64, 64), (65, 64), (100, 7), (50_000, 64)]
    buffers = ("a_buffer", "b_buffer", "c_buffer")  # what stands for the three
    for number, (n, group) in enumerate(sizes):
        launches: list[tuple] = []

        def kernel(*arguments: object, launches: list[tuple] = launches) -> object:
            launches.append(arguments)
            return types.SimpleNamespace(wait=lambda: None)  # for its event

        where = f"for {n:,} elements in groups of {group}"
        checks.answer(launch, kernel, *buffers, n, group, who=f"{where} your code")
        if not launches:
            raise (NotYet if number else NotDone)(f"{where} your code never calls `kernel`.")
        for arguments in launches:
            if len(arguments) != 7:
                raise NotYet(f"{where}: expected the queue, two sizes and 4 arguments of the kernel's own.")
            queue, items, local, *given, count = arguments
            if given[:2] == ["b_buffer", "a_buffer"]:  # a + b is b + a
                given[:2] = buffers[:2]
            for what, actual, expected in (
                ("first argument", type(queue).__name__, "CommandQueue"),
                ("work-items", _normalize_sizes(items), (-(-n // group) * group,)),
                ("size of a group", _normalize_sizes(local), (group,)),
                ("last argument", f"{type(count).__name__}({count})", f"int32({n})"),
                ("buffers", tuple(given), buffers),
            ):
                if actual != expected:
                    raise NotYet(f"{where}: {what} in your launch: expected {expected}, came {actual}.")
    yield f"{len(sizes)} sizes"


def _normalize_sizes(sizes: object) -> object:
    """Return a tuple or list of whole numbers as a tuple, anything else as text, because 12.0 equals 12."""
    if isinstance(sizes, tuple | list) and all(isinstance(size, int | np.integer) for size in sizes):
        return tuple(sizes)
    return repr(sizes)


@checks.print_verdict
def check_smooth(source: str) -> Iterator[str]:
    """Lesson 01, exercise 4: the mean of three neighbors; the first and the last element stay unchanged."""
    yield checks.judge_in_subprocess(judge_smooth, source=source)


def judge_smooth(source: str) -> str:
    """Judge the kernel of exercise 4; called in a subprocess."""
    kernel = kernel_checks.build(source, "smooth")
    return kernel_checks.judge_kernel(kernel, ("float[]",), smooth, radius=1, exercise="01.4")


def smooth(x: np.ndarray) -> np.ndarray:
    """Return the mean of each element of x and its two neighbors, the ends unchanged; float32 of shape (n,)."""
    if len(x) == 1:
        return x.copy()
    return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])


# ------------------------------------------------------------------------ checks of 01b, Find what limits a kernel


@checks.print_verdict
def check_clock(clock: Callable[..., list[float]]) -> Iterator[str]:
    """Lesson 01b, exercise 1: the seconds of each run, from the call until the device has finished."""
    queue, repeats = SlowQueue(), 4
    seconds = checks.answer(clock, queue.launch, queue, repeats, who="your clock")
    if not queue.runs:
        raise NotDone("no run was timed.")
    if not isinstance(seconds, list | tuple | np.ndarray) or len(seconds) != repeats:
        hint = " Is there a `return` at the end?" if seconds is None else ""
        raise NotYet(f"expected a list of {repeats} times, came {seconds!r}.{hint}")
    if not all(isinstance(duration, int | float | np.number) for duration in seconds):
        raise NotYet(f"expected {repeats} numbers, the seconds of each run; came {checks.short(seconds)}.")
    for number, (actual, (start, end)) in enumerate(zip(seconds, queue.runs[-repeats:], strict=True), 1):
        if not 0.99 * (end - start) <= actual <= 1.5 * (end - start):
            spent = f"this queue was busy with it for {timing.duration(end - start)}, came {timing.duration(actual)}"
            raise NotYet(f"run {number}: {spent}. When does your clock start, and stop?")
    yield f"{repeats} runs of a queue whose times are known"


class SlowQueue:
    """A stand-in for a command queue whose work takes a known time, and for the event of each run."""

    def __init__(self) -> None:
        self.runs: list[tuple[float, float]] = []  # of each run: when it was called, when it will be done

    def launch(self) -> SlowQueue:
        """Queue a run and return its event soon; the call itself costs a little time, too."""
        now = time.perf_counter()
        begin = max(now, self.runs[-1][1]) if self.runs else now
        self.runs.append((now, begin + (0.04, 0.12, 0.08)[len(self.runs) % 3]))
        time.sleep(0.01)
        return self

    def finish(self) -> None:
        """Wait until all that was queued is done."""
        while self.runs and (rest := self.runs[-1][1] - time.perf_counter()) > 0:
            time.sleep(rest)
            self.runs[-1] = self.runs[-1][0], max(self.runs[-1][1], time.perf_counter())  # a busy machine wakes late

    wait = finish  # of the event that `launch` returns


@checks.print_verdict
def check_limit(
    bandwidth: Callable[[Sequence[float], int], float],
    limit: Callable[[float, float], str],
    speeds: Sequence[object],
    measured: Mapping[str, timing.Measurement],
    elements: int,
) -> Iterator[str]:
    """Lesson 01b, exercise 2: GB/s, what limits a kernel, and both speeds of the learner's own device.

    Args:
        bandwidth: the learner's; takes the seconds of several runs, and the bytes that one run moves.
        limit: the learner's; takes a speed and the yardstick, in GB/s.
        speeds: the learner's GB/s of KERNEL and of COPY.
        measured: the runs of both on this device.
        elements: how many elements each of them worked on.
    """

    def draw_timings(rng: np.random.Generator) -> list[tuple]:
        drawn = [rng.uniform(0.001, 0.002, count) * (1 + rng.exponential(1, count)) for count in (3, 15, 31)]
        return [([0.25, 0.5, 1.0, 4.0], 3 * 10**9), *((seconds.tolist(), 12 * 10**6) for seconds in drawn)]

    def draw_speeds(rng: np.random.Generator) -> list[tuple]:
        drawn = [*rng.uniform(0.1, 0.74, 5), 0.746, 0.7499, 0.7501, *rng.uniform(0.76, 1.3, 5)]
        return [(6.0, 8.0), (5.75, 8.0), *((float(share * 400), 400.0) for share in drawn)]

    yield checks.judge_function(bandwidth, lambda seconds, size: size / float(np.median(seconds)) / 1e9, draw_timings)
    yield checks.judge_function(
        limit, lambda speed, yard: "memory" if speed >= 0.75 * yard else "not memory", draw_speeds
    )
    for name, actual, label in zip(("add_speed", "copy_speed"), speeds, (KERNEL, COPY), strict=True):
        if actual is None or actual is ...:
            raise NotDone(f"{name} is still {actual}.")
        expected = compute_speed(measured, label, elements)
        if not isinstance(actual, int | float | np.number) or not np.isclose(actual, expected, rtol=1e-4):
            raise NotYet(f"{name} is {actual}; expected {expected:.6g}. How many bytes does each element cost there?")
    yield "both speeds of your device"


@checks.print_verdict
def check_chain(source: str) -> Iterator[str]:
    """Lesson 01b, exercise 3: many steps with a number that is read once and written once."""
    yield checks.judge_in_subprocess(judge_chain, source=source)


def judge_chain(source: str) -> str:
    """Judge the kernel of exercise 3 for several numbers of steps; called in a subprocess."""
    for steps in (7, 1, 16):
        kernel = kernel_checks.build(f"#define STEPS {steps}\n{source}", "chain")
        tried = kernel_checks.judge_kernel(kernel, ("float[]",), functools.partial(compute_chain, steps=steps))
    return f"{tried}; {kernel_checks.judge_accesses(kernel)}"


def compute_chain(x: np.ndarray, steps: int) -> np.ndarray:
    """Return x, float32 of shape (n,), after `steps` steps of `0.99 * x + 0.01`."""
    for _ in range(steps):
        x = np.float32(0.99) * x + np.float32(0.01)
    return x


# ------------------------------------------------------------------------------------------------------ the figures


def draw_launch(source: str, name: str, items: int, group: int, arguments: Sequence[np.ndarray | np.generic]) -> Trace:
    """Run a kernel with the recorder, draw which work-item touched which element, and return what was recorded.

    Arrays that are only read are above the work-items, arrays that are written below them.

    Args:
        source: OpenCL C.
        name: the kernel's name in it.
        items: how many work-items are started; about 20 are legible.
        group: work-items of a work-group.
        arguments: for each parameter of the kernel an array, or a number of NumPy's such as `np.int32(10)`.
    """
    recorded = opencl_recorder.record(opencl.Kernel(source, name), items, group, arguments)
    title = f"{items} work-items of the kernel {name}: what each reads and writes"
    touches = recorded.touches
    written = {touch.array for touch in touches if touch.writes}
    above = [array for array in recorded.lengths if array not in written]
    below = [array for array in recorded.lengths if array in written]
    rows = {array: row for row, array in enumerate([*above, None, *below])}
    middle = rows[None]
    end = max(items, *recorded.lengths.values()) + NEARBY
    near = [touch for touch in touches if -NEARBY <= touch.index < end]
    indices = [0, items - 1, *(touch.index for touch in near), *(n - 1 for n in recorded.lengths.values())]
    first, last = min(indices), max(indices)
    with figure(max(7.5, 0.42 * (last - first + 1) + 1.6), 0.8 * len(rows) + 0.9) as (drawn, axes):
        for touch in near:
            row = rows[touch.array]
            aside = 0.22 * max(abs(row - middle) - 1, 0)  # an arrow from a farther array passes the nearer one's number
            ends = [(touch.index - aside, row), (touch.item - aside, middle)]
            color = RED if not touch.inside else BLUE if touch.writes else GREY
            _draw_arrow(axes, *(reversed(ends) if touch.writes else ends), color)
            if not touch.inside:
                _draw_cell(axes, touch.index, row, "white", "×", RED)
        for item in range(items):
            color = GROUP_COLORS[recorded.group_ids[item, 0] % len(GROUP_COLORS)]
            ids = f"{recorded.global_ids[item, 0]}", f"{recorded.local_ids[item, 0]}"
            _draw_cell(axes, item, middle, color, ids[0], small=ids[1])
        for array, length in recorded.lengths.items():
            for element in range(length):
                _draw_cell(axes, element, rows[array], "white", f"{element}")
        labels = {row: f"array {array}" if array else "work-items" for array, row in rows.items()}
        axes.set_yticks(list(labels), list(labels.values()))
        axes.set(xlim=(first - 0.8, last + 0.8), ylim=(len(rows) - 0.5, -0.5), xticks=[], title=title)
        axes.set_xlabel(
            "work-items: one colour for each work-group, large the global id, small the local id; arrays: the index",
            fontsize=8.5,
        )
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    bad = len(recorded.outside)
    show(drawn, f"{title}. {items} work-items and the elements that each touched; {bad} accesses lie outside an array.")
    far = [f"{touch}, far outside" for touch in touches if touch not in near]
    for access in [*recorded.unseen, *far[:3]]:
        print("not drawn:", access)
    return recorded


def _draw_cell(axes: Axes, x: float, y: float, color: str, text: str, edge: str = "black", small: str = "") -> None:
    """Draw a box around (x, y) with a text and, if it has one, a small number."""
    from matplotlib.patches import Rectangle

    line = "--" if edge == RED else "-"
    axes.add_patch(Rectangle((x - 0.4, y - 0.3), 0.8, 0.6, facecolor=color, edgecolor=edge, lw=1, ls=line, zorder=1))
    axes.text(x - 0.1 if small else x, y, text, ha="center", va="center", fontsize=10, color=edge, zorder=4)
    axes.text(x + 0.26, y + 0.17, small, ha="center", va="center", fontsize=7, color=edge, zorder=4)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    down = 0.3 if end[1] > start[1] else -0.3
    tip = (end[0], end[1] - down)
    line = "--" if color == RED else "-"
    look = {"arrowstyle": "-|>", "color": color, "lw": 1.3, "ls": line, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=tip, xytext=(start[0], start[1] + down), arrowprops=look, zorder=3)


# ---------------------------------------------------------------------------------------- bytes a second, measured

NUMPY, KERNEL, COPY = "NumPy, one core", "kernel", "copy by a kernel"  # labels of what is compared
MEMORY_BOUND = 75  # percent of the yardstick: from here on, memory is said to be the limit


def compute_speed(measured: Mapping[str, timing.Measurement], label: str, elements: int, seconds: float = 0) -> float:
    """Return the GB/s (10**9 bytes a second) that were read and written: 8 bytes an element for COPY, otherwise 12.

    Args:
        measured: runs by label.
        label: which of them.
        elements: how many elements one run worked on.
        seconds: the time of one run; their median if 0.
    """
    return (8 if label == COPY else 12) * elements / (seconds or measured[label].median) / 1e9


def draw_bandwidth(measured: Mapping[str, timing.Measurement], elements: int, device: str) -> None:
    """Draw one bar for each way, the middle half of its runs, and the copy as a line: the yardstick."""
    ways = {}
    for label, run in measured.items():
        low, high = run.quartiles
        slowest, middle, fastest = (
            compute_speed(measured, label, elements, seconds) for seconds in (high, run.median, low)
        )
        ways[label] = slowest, middle, fastest
    line = "the yardstick", ways[COPY][1]
    title = f"How near to the yardstick? {device}"
    show(*draw_speeds(ways, title, "GB/s read and written", colors={COPY: GREY, NUMPY: ORANGE}, line=line))


def tabulate_bandwidth(measured: Mapping[str, timing.Measurement], elements: int) -> Table:
    """Return the GB/s of each way beside what a GPU reached, and note them for a record."""
    rows = []
    for label, run in measured.items():
        high, low = (compute_speed(measured, label, elements, seconds) for seconds in run.quartiles)
        speed = compute_speed(measured, label, elements)
        rows.append((label, f"{speed:.3g} GB/s", f"{low:.3g} to {high:.3g}"))
        by_host = dataclasses.replace(run, device=cpu_name())
        records.add_run(by_host if label == NUMPY else run, "GB/s", speed * run.median, f"{elements:,} elements", label)
    return records.add_column(Table(rows, ("", "here", "middle half of the runs")), "01b")


def say_what_limits(measured: Mapping[str, timing.Measurement]) -> None:
    """Print what the rule of exercise 2 says of KERNEL beside COPY, if the middle half of the runs says the same."""
    yardstick = compute_speed(measured, COPY, 1) / 100
    high, low = (compute_speed(measured, KERNEL, 1, seconds) / yardstick for seconds in measured[KERNEL].quartiles)
    share = compute_speed(measured, KERNEL, 1) / yardstick
    if low < MEMORY_BOUND <= high:
        between = f"{KERNEL}: {low:.0f} to {high:.0f} % of the yardstick in the middle half of the runs"
        print(wrap(f"{between}: no claim. Close other programs, and run the cell before the exercise again."))
        return
    message = f"{KERNEL}: {share:.0f} % of the yardstick, so limit(add_speed, copy_speed) is "
    limit = (
        '"memory"' if share >= MEMORY_BOUND else '"not memory": calls, the handing out of work-groups, or arithmetic'
    )
    print(wrap(f"{message}{limit}."))


def name_faster(first: timing.Measurement, second: timing.Measurement) -> str:
    """Return the label of the one that was clearly faster, or "no claim"."""
    if not timing.is_clear(first, second):
        return "no claim"
    return min(first, second, key=lambda run: run.median).label
