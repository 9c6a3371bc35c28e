"""Lesson 01, Add vectors with OpenCL: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from helpers.compute import opencl
from helpers.errors import WorkshopError
from helpers.judge import checks, kernel_checks
from helpers.judge.trace import Trace
from helpers.measure import timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, figure, show, speeds
from helpers.measure.tables import Table

if TYPE_CHECKING:
    import pyopencl as cl
    from matplotlib.axes import Axes

Label = TypeVar("Label", str, tuple[int, int | None])
GROUP_COLOURS = (SKY, GREEN, PINK)  # none that could be taken for RED, which marks what lies outside
NEARBY = 3  # so many elements beyond either end are drawn one by one, those farther away as one box
MOST_DRAWN = 40  # work-items, and elements of an array


@checks.verdict
def check_saxpy(source: str, global_size: Callable[[int, int], int]) -> Iterator[str]:
    """Lesson 01, exercise 1: `out[i] = alpha * x[i] + y[i]`, and how many work-items to start for it."""

    def sizes(rng: np.random.Generator) -> list[tuple]:
        drawn = [(int(rng.integers(1, 9999)), 2**k) for k in range(10)]
        plain = [(10, 4), (12, 4), (3, 4), (1, 64), (64, 64), (65, 64), (100, 7), (257, 256), (1025, 1024)]
        return [*plain, (2**24 + 1, 1), *drawn]  # the last is no float32

    yield checks.judge_function(global_size, lambda n, group: -(-n // group) * group, sizes)
    yield checks.judge_in_subprocess(judge_saxpy, source=source)


def judge_saxpy(source: str) -> str:
    """Judge the kernel of exercise 1; called in a subprocess."""
    kernel = kernel_checks.build(source, "saxpy")
    return kernel_checks.judge_kernel(kernel, ("float", "float[]", "float[]"), lambda alpha, x, y: alpha * x + y)


@checks.verdict
def check_smooth(source: str) -> Iterator[str]:
    """Lesson 01, exercise 2: the mean of three neighbours; the first and the last element stay as they are."""
    yield checks.judge_in_subprocess(judge_smooth, source=source)


def judge_smooth(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    return kernel_checks.judge_kernel(kernel_checks.build(source, "smooth"), ("float[]",), smooth, radius=1)


def smooth(x: np.ndarray) -> np.ndarray:
    """Return the mean of each element of x and its two neighbours; float32 of shape (n,), its ends as they are."""
    if len(x) == 1:
        return x.copy()
    return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])


@checks.verdict
def check_bandwidth(
    bandwidth: Callable[[list[tuple[float, float, float]], int], float], limit: Callable[[float, float], str]
) -> Iterator[str]:
    """Lesson 01, exercise 3: GB/s from the clock times of several runs of saxpy, and whether memory is the limit.

    Args:
        bandwidth: the learner's; takes (before the call, when it came back, when the queue had finished), in seconds,
            for each run, and the number of elements.
        limit: the learner's; takes a speed and the yardstick, in GB/s.
    """

    def right_bandwidth(runs: list[tuple[float, float, float]], n: int) -> float:
        return 12 * n / float(np.median([finished - start for start, _, finished in runs])) / 1e9

    def timed(rng: np.random.Generator) -> list[tuple]:
        drawn = []
        for count, n in [(3, 10_240_000), (15, 10_240_000), (5, 1000), (31, 123_457), (3, 10**8)]:
            seconds = 12 * n / rng.uniform(5e9, 5e10) * (1 + rng.exponential(1, count))  # some runs are disturbed
            starts = rng.uniform(1, 9) + np.arange(count) * 10 * seconds.max()
            ends = zip(starts, starts + seconds * rng.uniform(0.01, 0.4, count), starts + seconds, strict=True)
            drawn.append(([tuple(map(float, one)) for one in ends], n))
        return [([(1.0, 1.25, 1.5)], 250_000_000), *drawn]

    def right_limit(speed: float, yardstick: float) -> str:
        return "memory" if speed >= NEAR / 100 * yardstick else "not memory"

    def speeds(rng: np.random.Generator) -> list[tuple]:
        shares = [*rng.uniform(0.1, 0.74, 5), *rng.uniform(0.76, 1.3, 5)]
        drawn = [
            (float(share * yardstick), float(yardstick))
            for share, yardstick in zip(shares, rng.uniform(5, 3000, 10), strict=True)
        ]
        return [(6.0, 8.0), (75.0, 100.0), (5.75, 8.0), (55.5, 50.0), *drawn]

    yield checks.judge_function(bandwidth, right_bandwidth, timed)
    yield checks.judge_function(limit, right_limit, speeds)


# ------------------------------------------------------------------------------------------------------ its figures


def work_items(trace: Trace, title: str) -> None:
    """Draw which work-item touched which element: arrays that are read above, arrays that are written below.

    Args:
        trace: what `helpers.judge.trace.record` saw of a one-dimensional launch; about 20 work-items are legible.
        title: the message of the figure.

    Raises:
        WorkshopError: more than MOST_DRAWN work-items or elements.
    """
    if (most := max([len(trace.global_ids), *trace.lengths.values()])) > MOST_DRAWN:
        raise WorkshopError(
            f"{most:,} work-items or elements are too many to draw; {MOST_DRAWN} is the most.",
            next="Trace a launch of 12 work-items on arrays of 10 elements.",
        )
    touches = [touch for touch in trace.touches if touch.array in trace.lengths]  # not those of local memory
    written = {touch.array for touch in touches if touch.writes}
    above = [array for array in trace.lengths if array not in written]
    rows = {array: row for row, array in enumerate([*above, None, *(a for a in trace.lengths if a in written)])}
    middle, items = rows[None], len(trace.global_ids)
    end = max(items, *trace.lengths.values()) + NEARBY
    near = [touch.index for touch in touches if -NEARBY <= touch.index < end]
    first, last = min([0, *near]), max([items - 1, *near, *(length - 1 for length in trace.lengths.values())])
    far: dict[tuple[str, bool], set[int]] = {}  # by array, and whether before it: the indices that get one box
    for touch in touches:
        if touch.index not in range(-NEARBY, end):
            far.setdefault((touch.array, touch.index < 0), set()).add(touch.index)
    texts = {place: "… " + " to ".join(map(str, sorted({min(far[place]), max(far[place])}))) for place in far}
    wide = {before: max((0.24 * len(t) + 0.6 for (_, b), t in texts.items() if b == before), default=0)
            for before in (True, False)}  # fmt: skip
    centre = {True: first - 0.9 - wide[True] / 2, False: last + 0.9 + wide[False] / 2}
    first, last = first - wide[True] - bool(wide[True]), last + wide[False] + bool(wide[False])
    with figure(max(7.5, 0.42 * (last - first + 1) + 1.6), 0.8 * len(rows) + 0.9) as (drawn, axes):
        for (array, before), text in texts.items():
            _cell(axes, centre[before], rows[array], "white", text, RED, width=wide[before])
        for touch in touches:
            row = rows[touch.array]
            is_far = touch.index in far.get((touch.array, touch.index < 0), ())
            at = centre[touch.index < 0] if is_far else touch.index
            aside = 0.22 * max(abs(row - middle) - 1, 0)  # an arrow from a farther array passes the nearer one's number
            ends = [(at - aside, row), (touch.item - aside, middle)]
            colour = RED if not touch.inside else BLUE if touch.writes else GREY
            _arrow(axes, *(reversed(ends) if touch.writes else ends), colour)
            if not touch.inside and not is_far:
                _cell(axes, touch.index, row, "white", "×", RED)
        for item in range(items):
            group = GROUP_COLOURS[trace.group_ids[item, 0] % len(GROUP_COLOURS)]
            _cell(axes, item, middle, group, f"{trace.global_ids[item, 0]}", small=f"{trace.local_ids[item, 0]}")
        for array, length in trace.lengths.items():
            for element in range(length):
                _cell(axes, element, rows[array], "white", f"{element}")
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
    bad = len(trace.outside)
    show(drawn, f"{title}. {items} work-items and the elements that each touched; {bad} accesses lie outside an array.")
    for one in trace.unseen:
        print("not drawn:", one)


def _cell(
    axes: Axes, x: float, y: float, colour: str, text: str, edge: str = "black", small: str = "", width: float = 0.8
) -> None:
    """A box around (x, y)."""
    from matplotlib.patches import Rectangle

    line = "--" if edge == RED else "-"
    corner = (x - width / 2, y - 0.3)
    axes.add_patch(Rectangle(corner, width, 0.6, facecolor=colour, edgecolor=edge, lw=1, ls=line, zorder=1))
    axes.text(x - 0.1 * bool(small), y, text, ha="center", va="center", fontsize=10, color=edge, zorder=4)
    axes.text(x + 0.26, y + 0.17, small, ha="center", va="center", fontsize=7, color=edge, zorder=4)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    down = 0.3 if end[1] > start[1] else -0.3
    tip = (end[0], end[1] - down)
    line = "--" if colour == RED else "-"
    look = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "ls": line, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=tip, xytext=(start[0], start[1] + down), arrowprops=look, zorder=3)


def where_time_goes(parts: Mapping[str, Sequence[float]], title: str) -> None:
    """Show the parts of a run as one bar, in milliseconds: their medians, and the middle half of the repeats.

    Args:
        parts: by the name of the part, in order: its seconds in each repeat.
        title: the message of the figure, with the device.
    """
    colours = (SKY, BLUE, ORANGE, GREEN, PINK, GREY)
    words = []
    with figure(7.5, 2.0) as (drawn, axes):
        left = 0.0
        for (part, seconds), colour in zip(parts.items(), colours, strict=False):
            low, middle, high = np.percentile(seconds, [25, 50, 75]) * 1e3
            words.append(f"{part} {middle:.2g} ms")
            label = f"{part}: {middle:.2g} ms\n(middle half {low:.2g} to {high:.2g})"
            axes.barh(0, middle, left=left, color=colour, edgecolor="white", label=label)
            left += middle
        axes.set(xlabel="time (ms), medians", yticks=[], title=title)
        drawn.legend(loc="outside lower center", ncols=len(parts))
    show(drawn, f"{title}: {', '.join(words)}.")


# ---------------------------------------------------------------------------------------- bytes a second, measured

# The labels of what is compared; those of the copies begin with COPY.
NUMPY, GUARDED, ONCE, PLAIN = "NumPy", "kernel with guard", "kernel, guard asked once", "kernel without guard"
COPY = "copy"
NEAR = 75  # percent of the yardstick: from here on, memory is said to be the limit
# No limit is named where the spread of the runs, as a part of their median, or the percent of the yardstick, is above:
BUSY, TOO_GOOD = 0.5, 120


@dataclass(frozen=True)
class Bandwidth:
    """How many bytes a second one way of adding or copying moved."""

    run: timing.Measurement
    moved: int  # bytes that one run asks memory for, those that are read and those that are written

    @property
    def speed(self) -> float:
        """In GB/s (10**9 bytes a second), by the median of the runs."""
        return self.moved / self.run.median / 1e9

    @property
    def middle_half(self) -> tuple[float, float]:
        """Between what the speed of half of the runs lies, in GB/s."""
        low, high = self.run.quartiles
        return self.moved / high / 1e9, self.moved / low / 1e9


def copies(
    queue: cl.CommandQueue, source: cl.Buffer, target: cl.Buffer, elements: int
) -> dict[str, tuple[int, Callable[[], object]]]:
    """Return two ways of copying floats from one buffer to another, for `measure_bandwidth`.

    Which is faster differs: a CPU's driver may copy on one core, a GPU's may have an engine for it.
    """
    import pyopencl as cl

    text = """
__kernel void copy(__global const float *from, __global float *to) {
    to[get_global_id(0)] = from[get_global_id(0)];
}
"""
    kernel = cl.Kernel(opencl.build(queue.context, text), "copy")
    return {
        f"{COPY} by the driver": (8, lambda: cl.enqueue_copy(queue, target, source, byte_count=4 * elements)),
        f"{COPY} by a kernel": (8, lambda: kernel(queue, (elements,), None, source, target)),
    }


def measure_bandwidth(
    ways: Mapping[Label, tuple[int, Callable[[], object]]], elements: int, device: str, repeats: int
) -> dict[Label, Bandwidth]:
    """Time several ways of adding or copying, interleaved: a busy machine then hits all of them.

    Args:
        ways: by label: the bytes that each element costs, and a function without arguments that does the work and
            returns the event of it, if it queued it.
        elements: how many elements each works on.
        device: the name of the device of all but NumPy.
        repeats: runs of each that count.
    """
    where = {label: "one CPU core" if label == NUMPY else device for label in ways}
    runs = timing.measure_interleaved({label: work for label, (_, work) in ways.items()}, where, repeats)
    return {label: Bandwidth(runs[label], size * elements) for label, (size, _) in ways.items()}


def draw_bandwidth(measured: Mapping[str, Bandwidth], title: str) -> None:
    """Draw one bar for each way, the middle half of its runs, and the faster copy as a line: the yardstick.

    Args:
        measured: by label; those that begin with COPY are the copies.
        title: the message of the figure, with the device.
    """
    yardstick = _yardstick(measured)
    ways = {label: (one.middle_half[0], one.speed, one.middle_half[1]) for label, one in measured.items()}
    colours = {label: GREY for label in measured if label.startswith(COPY)} | {NUMPY: ORANGE, ONCE: SKY, PLAIN: SKY}
    line = "the yardstick", measured[yardstick].speed
    show(*speeds(ways, title, "GB/s read and written", colours=colours, line=line))


def _yardstick(measured: Mapping[str, Bandwidth]) -> str:
    return max((label for label in measured if label.startswith(COPY)), key=lambda label: measured[label].speed)


def percent_of_yardstick(measured: Mapping[str, Bandwidth], label: str) -> float:
    """Return the speed of one way in percent of the faster copy's; both were measured, so it may exceed 100."""
    return 100 * measured[label].speed / measured[_yardstick(measured)].speed


def say_what_limits(measured: Mapping[str, Bandwidth], shared: bool) -> None:
    """Print which of the kernels and NumPy the memory limits, and whether the guard costs anything.

    Args:
        measured: by label: NUMPY, GUARDED, ONCE, PLAIN, and copies.
        shared: whether NumPy and the device work in the same memory.
    """
    own = [GUARDED, ONCE, PLAIN, *([NUMPY] if shared else [])]
    varied = [label for label in (*own, _yardstick(measured)) if _varies(measured[label].run)]
    passed = [label for label in own if percent_of_yardstick(measured, label) > TOO_GOOD]
    no_yardstick = passed or _yardstick(measured) in varied
    named = [] if no_yardstick else [label for label in own if label not in varied]
    for label in own:
        share = percent_of_yardstick(measured, label)
        why = "memory is what limits it" if share >= NEAR else "not memory alone, something else holds it up"
        print(f"{label}: {share:.0f} % of the yardstick" + (f"; {why}." if label in named else "."))
    print(timing.compare(measured[PLAIN].run, measured[GUARDED].run))
    print(timing.compare(measured[NUMPY].run, measured[GUARDED].run))
    if not shared:
        print("NumPy works in the host's memory, the kernel in the device's: the yardstick is none for NumPy.")
    elif NUMPY in named and percent_of_yardstick(measured, NUMPY) >= NEAR:
        print("NumPy's one core nearly fills this memory: in an addition, more cores find little left to win.")
    elif NUMPY in named:
        print("NumPy's one core leaves part of this memory idle: more cores can win.")
    if passed:
        print(f"Far beyond the dashed line: {', '.join(passed)}. The copy was disturbed, or data stayed in a cache.")
    if varied:
        print(f"Times that vary too much: {', '.join(varied)}.")
    if passed or varied:
        which = "No limit is named" if no_yardstick else f"No limit is named for {', '.join(varied)}"
        print(f"{which}: other programs may keep this machine busy. Close them, and run this cell again.")


def _varies(run: timing.Measurement) -> bool:
    return run.spread > BUSY * run.median


def try_launches(
    launch: Callable[[int, int | None], object], launches: Sequence[tuple[int, int | None]], expected: np.ndarray,
    result: cl.Buffer, queue: cl.CommandQueue, repeats: int,
    beside: Mapping[str, tuple[int, Callable[[], object]]] | None = None,
) -> tuple[int, int | None] | None:  # fmt: skip
    """Add two arrays with several launches; check each, time them turn about, and show a table.

    Args:
        launch: queues the addition with so many work-items in work-groups of so many, and returns its event.
        launches: pairs of those two numbers; the second may be None, which leaves it to the device.
        expected: what the result must be, float32.
        result: the buffer that `launch` writes.
        queue: the queue that it uses.
        repeats: runs of each launch that count.
        beside: other ways, as for `measure_bandwidth`: GUARDED and PLAIN of them are timed, too, and stand above.

    Returns:
        The launch that was fastest; None if every one was refused or wrong.

    Raises:
        WorkshopError: something in `launches` is no pair.
    """
    from IPython.display import display

    for one in launches:
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise WorkshopError(
                f"{one!r} is no launch.", next="Write (work-items, work-group), for example (1024, 64)."
            )
    results = {tuple(one): _try_launch(launch, *one, expected, result, queue) for one in launches}
    right = {pair: (12, functools.partial(launch, *pair)) for pair, found in results.items() if found == "right"}
    others = {label: way for label, way in (beside or {}).items() if label in (GUARDED, PLAIN)}
    every = measure_bandwidth(others | right, len(expected), opencl.name(queue.device), repeats)
    measured = {pair: every[pair] for pair in right}

    def speed(one: Bandwidth) -> str:
        low, high = one.middle_half
        return f"{one.speed:.3g} ({low:.3g} to {high:.3g})"

    def row(pair: tuple[int, int | None], found: str) -> tuple[str, str, str, str]:
        items, group = (f"{number:,}" if isinstance(number, Integral) else str(number) for number in pair)
        if pair not in measured:
            return items, group, "", found
        if pair[1] is None:
            group += f" (the device took {_chosen_group(queue, pair[0]):,})"
        return items, group, speed(measured[pair]), found

    above = [(label, "", speed(every[label]), "to compare with") for label in others]
    headers = ("work-items", "work-group", "GB/s (middle half of the runs)", "result")
    display(Table([*above, *(row(pair, found) for pair, found in results.items())], headers))
    print(f"largest work-group of this device: {queue.device.max_work_group_size:,}")
    best = max(measured, key=lambda pair: measured[pair].speed, default=None)
    if close := [p for p in measured if p != best and not timing.is_clear(measured[p].run, measured[best].run)]:
        print(f"not clearly slower than {best}: {', '.join(map(str, close))}")
    return best


def _try_launch(
    launch: Callable[[int, int | None], object], items: object, group: object,
    expected: np.ndarray, result: cl.Buffer, queue: cl.CommandQueue,
) -> str:  # fmt: skip
    """Return `right`, or why this launch is not: impossible numbers, refused by the device, a wrong sum."""
    import pyopencl as cl

    if not all(isinstance(number, Integral) and number > 0 for number in (items, 1 if group is None else group)):
        return "not tried: whole numbers from 1 on"
    if items > 2 * len(expected):
        return "not tried: far more work-items than elements"
    try:
        cl.enqueue_copy(queue, result, np.full_like(expected, np.nan))
        launch(items, group)
        actual = np.empty_like(expected)
        cl.enqueue_copy(queue, actual, result)
    except cl.Error as error:
        name = str(error).rpartition(" ")[2]
        if name == "INVALID_WORK_GROUP_SIZE" and group and group > queue.device.max_work_group_size:
            return f"refused: work-groups of {group:,} are too large for this device"
        if name == "INVALID_WORK_GROUP_SIZE" and group and items % group:
            return f"refused: {items:,} is no multiple of {group:,}"
        return f"refused: {name}"
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:  # the learner changed `launch`
        return f"error in your code: {type(error).__name__}: {error}"
    return "right" if np.allclose(actual, expected) else "WRONG"


def _chosen_group(queue: cl.CommandQueue, items: int) -> int:
    """Return the size of the work-groups in which the device runs a tiny kernel, where it may choose."""
    import pyopencl as cl

    text = """
__kernel void ask(__global int *size) {
    if (get_global_id(0) == 0) {
        *size = get_local_size(0);
    }
}
"""
    size = np.zeros(1, np.int32)
    there = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, size.nbytes)
    cl.Kernel(opencl.build(queue.context, text), "ask")(queue, (items,), None, there)
    cl.enqueue_copy(queue, size, there)
    return int(size[0])


def wins_from(
    baseline: Sequence[tuple[int, timing.Measurement]], candidate: Sequence[tuple[int, timing.Measurement]], unit: str
) -> str:
    """Say from which size on `candidate` is clearly faster than `baseline`, at that size and at all larger ones.

    If at none, say whether the largest size is lost, or allows no claim.

    Args:
        baseline: for each size, in order: the size and what was measured.
        candidate: likewise, of the same sizes.
        unit: what the size counts.
    """
    sizes = [size for size, _ in baseline]
    pairs = [(old, new) for (_, old), (_, new) in zip(baseline, candidate, strict=True)]
    faster = [new.median < old.median for old, new in pairs]
    clear = [timing.is_clear(old, new) for old, new in pairs]
    won = [one and other for one, other in zip(faster, clear, strict=True)]

    def lasting(held: Sequence[bool]) -> int | None:
        """The first size from which on it held at every size."""
        return next((size for i, size in enumerate(sizes) if all(held[i:])), None)

    if (start := lasting(won)) is not None:
        return f"from {start:,} {unit} on"
    if not clear[-1]:
        start = lasting(faster)
        by_median = "slower by the median" if start is None else f"faster by the median from {start:,} on"
        return f"not clear, up to {sizes[-1]:,} {unit} ({by_median})"
    if any(won):
        return f"clearly only at {', '.join(f'{size:,}' for size, w in zip(sizes, won, strict=True) if w)} {unit}"
    return f"never, up to {sizes[-1]:,} {unit}"
