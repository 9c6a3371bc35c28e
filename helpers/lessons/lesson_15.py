"""Lesson 15, See why a kernel is slow: its kernels, its checks, its figure; `lesson_15_clock` measures."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from helpers.devices import opencl
from helpers.judge import checks, counters, kernel_checks, opencl_recorder
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.kernel_checks import FILLS
from helpers.judge.trace import Trace
from helpers.measure import tables
from helpers.measure.plots import BLUE, figure, show

MOST = 1.05  # lines that an exercise may need, against the fewest
UNOPTIMIZED = ("-cl-opt-disable",)  # builds in a fraction of the time
LINES = (32, 64, 128)  # bytes of a line that exercise 1 is asked about
MAX_RECORDED_ITEMS = 2_048  # work-items of the largest launch that is recorded
STRIDED = """
__kernel void strided(__global const float *x, __global float *y, int first, int stride) {
    int i = get_global_id(0);
    y[i] = x[first + stride * i];
}
"""
# With `int i`, Intel's driver gathers the numbers of neighbors; with `size_t i`, PoCL 3.1 gathers the structures.
FILL = """
__kernel void fill(__global float *y, float number) {
    long i = get_global_id(0);
    y[i] = number;
}
"""
DRIFT = """
__kernel void drift(__global const float *p, __global float *out, int n) {
    long i = get_global_id(0);
    out[i] = p[8 * i] + 0.5f * p[8 * i + 3];
}
"""
DRIFT_ARRAYS = DRIFT.replace("p[8 * i]", "p[i]").replace("p[8 * i + 3]", "p[3 * n + i]")
NAIVE = """
__kernel void transpose(__global const float *x, __global float *y, int n) {
    int column = get_global_id(0), row = get_global_id(1);
    y[column * n + row] = x[row * n + column];
}
"""
COPY = NAIVE.replace("transpose", "copy").replace("y[column * n + row]", "y[row * n + column]")
TILED = """
__kernel void transpose(__global const float *x, __global float *y, int n) {
    __local float tile[32][WIDTH];
    int lx = get_local_id(0), ly = get_local_id(1);
    int row = 32 * get_group_id(1), column = 32 * get_group_id(0);
    for (int k = ly; k < 32; k += 8) {
        tile[k][lx] = x[(row + k) * n + column + lx];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = ly; k < 32; k += 8) {
        y[(column + k) * n + row + lx] = tile[lx][k];
    }
}
"""


def write_tiled(width: int) -> str:
    """Return the transposition through tiles whose rows are `width` floats long."""
    return TILED.replace("WIDTH", str(width))


# ------------------------------------------------------------------------------------------------------- its checks


def count_lines(first: int, stride: int, line: int) -> int:
    """Record 32 work-items that read x[first + stride * i], and return how many lines they need.

    Args:
        first: the element that work-item 0 reads.
        stride: elements from one work-item's element to the next one's.
        line: bytes of a line.
    """
    x, y = np.zeros(first + 31 * stride + 1, np.float32), np.zeros(32, np.float32)
    recorded = opencl_recorder.record(build_kernel(STRIDED), 32, 32, [x, y, np.int32(first), np.int32(stride)])
    return counters.count_accesses(recorded, line)["x[first + stride * i]"].needed


@functools.cache
def build_kernel(source: str) -> opencl.Kernel:
    """Build one of the lesson's kernels to be recorded, without optimization: its addresses are the same."""
    return opencl.Kernel(source, source.partition("void ")[2].partition("(")[0], options=UNOPTIMIZED)


@checks.print_verdict
def check_lines(learner: Callable[[int, int, int], int]) -> Iterator[str]:
    """Exercise 1: the lines that 32 neighbors need; the reference is the count of a launch on the device."""
    yield checks.judge_function(learner, count_lines, _list_cases)
    yield f"each beside the count of a launch on {opencl.name(opencl.pick_device())}"


def _list_cases(rng: np.random.Generator) -> Iterator[tuple[int, int, int]]:
    """Yield first, stride and line: the edges of each size of line, then random ones."""
    yield from ((0, 1, 128), (0, 2, 128), (1, 1, 128), (0, 1, 32), (0, 8, 32), (0, 32, 32), (0, 16, 64))
    # A first address inside a line asks for a line more at (7, 1), for none at (1, 2), (1, 4), (1, 8) and (1, 16).
    inside = ((1, 2), (2, 2), (3, 2), (1, 4), (1, 8), (7, 8), (1, 16), (15, 2), (20, 6))
    for line in LINES:
        for first, stride in ((0, 0), (31, 1), (7, 1), (5, 3), (0, 33), (7, 100), *inside):
            yield first, stride, line
        yield int(rng.integers(0, 99)), int(rng.integers(0, 50)), line


@checks.print_verdict
def check_drift(arrange: Callable[[np.ndarray], np.ndarray], source: str) -> Iterator[str]:
    """Exercise 2: particles in memory so that the kernel that needs two of eight numbers needs the fewest lines.

    Args:
        arrange: returns the numbers of particles, an array of shape (n, 8), in the order in which they lie in memory.
        source: the kernel `drift` for that order.
    """
    rng = np.random.default_rng()
    given = [rng.permutation(8 * n).astype(np.float32).reshape(n, 8) for n in (256, 32, 1_024)]
    arranged = [_call_arrange(arrange, particles) for particles in given]
    is_untouched = np.array_equal(arranged[0][: given[0].size], given[0].reshape(-1))
    if is_untouched and isinstance(source, str) and source.split() == DRIFT.split():
        raise NotDone("both are unchanged: a structure for each particle.")
    tried = checks.judge_in_subprocess(judge_drift, is_optimized=False, source=source, given=given, arranged=arranged)
    yield checks.keep_right("drift", (source, arrange), tried)


def _call_arrange(arrange: Callable[[np.ndarray], np.ndarray], particles: np.ndarray) -> np.ndarray:
    """Return what the learner's function makes of particles, of shape (n, 8), as a buffer would hold it.

    Raises:
        NotYet: it is no contiguous array of float32, or it holds anything but each number of the particles once.
    """
    who = f"arrange() of {len(particles)} particles"
    data = checks.answer(arrange, particles.copy(), who=who)
    if not isinstance(data, np.ndarray) or data.dtype != np.float32:
        raise NotYet(f"{who} returned {getattr(data, 'dtype', type(data).__name__)}; expected an array of float32.")
    if not data.flags.c_contiguous:
        raise NotYet(
            f"{who} returned a view: in memory the numbers lie as before. `.reshape(-1)` or `.copy()` moves them."
        )
    data = data.reshape(-1)
    if missing := np.setdiff1d(particles, data).size:
        raise NotYet(f"{who}: {missing} of the {particles.size} numbers are missing; other kernels need them all.")
    if data.size > particles.size:
        raise NotYet(
            f"{who}: {data.size} numbers; expected the {particles.size} of the particles, each once. What is computed "
            "or copied beforehand would be out of date as soon as another kernel changes a particle."
        )
    return data


def judge_drift(source: str, given: Sequence[np.ndarray], arranged: Sequence[np.ndarray]) -> str:
    """Judge the kernel of exercise 2 with particles and how they lie in memory; called in a subprocess."""
    launches = [
        (data, particles[:, 0] + particles[:, 3] / 2, len(particles), (len(particles),))
        for particles, data in zip(given, arranged, strict=True)
    ]
    kernel = _build_learners(source, "drift")
    recorded = _judge_launches(kernel, (32,), launches[:2])
    _judge_launches(kernel, (128,), launches[2:])
    return f"{len(launches)} sizes, {_judge_lines(recorded, 2 * len(given[0]), len(given[0]))}"


def _build_learners(source: str, name: str) -> opencl.Kernel:
    """Build a learner's kernel without optimization.

    What is judged is which addresses it asks for and what it computes, and both are the same. PoCL 3.0 took 20 s to
    optimize a right transposition with a barrier in a branch, and 0.2 s without.
    """
    return kernel_checks.build(source, name, options=UNOPTIMIZED)


@checks.print_verdict
def check_transpose(source: str) -> Iterator[str]:
    """Exercise 3: the transposition with the fewest lines in both directions, and without a bank conflict."""
    yield checks.judge_in_subprocess(judge_transpose, is_optimized=False, source=source)


def judge_transpose(source: str) -> str:
    """Judge the kernel of exercise 3; called in a subprocess."""
    launches = []
    for n in (64, 32, 160):
        x = kernel_checks.make_generator().permutation(n * n).astype(np.float32)
        launches.append((x, x.reshape(n, n).T.reshape(-1), n, (n, n // 4)))
    recorded = _judge_launches(_build_learners(source, "transpose"), (32, 8), launches)
    lines = _judge_lines(recorded, 64 * 64, 64 * 64)
    for text, access in counters.count_accesses(recorded).items():
        if access.in_local and access.needed > access.fewest:
            taken = _format_count(access.each, "turn")
            raise NotYet(
                f"the result is right, and the lines are the fewest. But `{text}` takes {taken} in local memory, "
                f"where {access.fewest / access.requests:.3g} would do: a bank conflict."
            )
    return f"{len(launches)} sizes, {lines}, no bank conflict"


def _judge_launches(kernel: opencl.Kernel, group: tuple[int, ...], launches: list[tuple]) -> Trace:
    """Judge launches of (input, expected output, n, work-items), and return the record of the first.

    A kernel is refused if it reaches outside, races, or cannot be counted. Each launch runs twice between canaries, on
    an output that holds different things.
    """
    (name, *_) = kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "int"))
    records = []
    for x, expected, n, items in launches:
        if math.prod(items) <= MAX_RECORDED_ITEMS:
            launch = kernel_checks.describe_launch({"n": n}, items, group)
            given = [x, np.zeros_like(expected), np.int32(n)]
            traced = kernel_checks.record(kernel, launch, items, group, given)
            records.append(traced)
            kernel_checks.expect_writes(traced, launch, kernel)
            if traced.races():
                kernel_checks.refuse_faults(traced, launch)
            if traced.unseen:
                kernel_checks.refuse_overwork(traced, launch, most=len(expected) // math.prod(items))
                raise NotYet(
                    f"{launch}: not counted: {traced.unseen[0]}. Write the array's name and its index there, not a "
                    "macro or a call."
                )
            kernel_checks.refuse_faults(traced, launch)
        runs = [
            kernel_checks.run_guarded(kernel, {name: x}, {"n": n}, len(expected), items, group, fill) for fill in FILLS
        ]
        unwritten = kernel_checks.find_unwritten(*runs)
        for values in (bits.view(np.float32) for bits in runs):
            for i in np.flatnonzero(values != expected)[:1]:
                actual = "nothing: it was never written" if unwritten[i] else f"{values[i]:g}"
                raise NotYet(f"n = {n}: element {i} of the result: expected {expected[i]:g}, came {actual}.")
    return records[0]


def _judge_lines(recorded: Trace, reads: int, writes: int) -> str:
    """Refuse a right kernel that needs more lines than MOST allows; return what was counted.

    Args:
        recorded: of the launch.
        reads: how many floats it has to read.
        writes: how many floats it has to write.
    """
    accesses = {text: access for text, access in counters.count_accesses(recorded).items() if not access.in_local}
    totals = []
    for what, floats in (("reads", reads), ("writes", writes)):
        those = {text: access for text, access in accesses.items() if access.writes == (what == "writes")}
        needed, fewest = sum(access.needed for access in those.values()), 4 * floats // counters.LINE
        if needed > MOST * fewest:
            text, worst = max(those.items(), key=lambda pair: pair[1].each)
            different = len(set[tuple[str, int]]().union(*(counters.find_lines(recorded)[text] for text in those)))
            raise NotYet(
                f"the result is right, but all {what} together ask for {needed} lines, access by access ({different} "
                f"different ones); {fewest} would do. Look at `{text}`: 32 neighbors need "
                f"{_format_count(worst.each, 'line')} each time, {worst.requests} times."
            )
        totals.append(f"{needed} lines for all {what}")
    return ", ".join(totals)


def _format_count(count: float, unit: str) -> str:
    return f"{count:.3g} {unit}" if count == 1 else f"{count:.3g} {unit}s"


# ------------------------------------------------------------------------------------------------------- its figures


def draw_lines(recorded: Mapping[str, Trace], sizes: Sequence[int], title: str) -> None:
    """Draw as a map of memory which floats the first request of each launch needs, and which lines are fetched for it.

    Args:
        recorded: for each name the record of a launch that reads fewer than 1,024 floats from x[0] on.
        sizes: bytes of a line; one row of panels for each.
        title: the message of the figure.
    """
    from matplotlib.colors import ListedColormap

    words = []
    shape = (len(sizes), len(recorded))
    with figure(7.5, 1 + 2.4 * shape[0], title, nrows=shape[0], ncols=shape[1], sharex=True, sharey=True) as (
        drawn,
        axes,
    ):
        panels = axes.reshape(shape)
        pairs = itertools.product(sizes, recorded.items())
        for (line, (name, traced)), panel in zip(pairs, panels.reshape(-1), strict=True):
            request = traced.requests()[0]
            asked = sorted({first // 4 for _, first, _ in request.asked})
            memory = np.zeros(1_024)
            fetched = np.repeat(np.isin(np.arange(4_096 // line), np.array(asked) * 4 // line), line // 4)
            memory[fetched], memory[asked] = 1, 2
            panel.imshow(memory.reshape(32, 32), cmap=ListedColormap(["white", "#c4c4c4", BLUE]), vmin=0, vmax=2)
            needed, _ = counters.count_lines(request, line)
            caption = f"{_format_count(needed, 'line')}, {400 * len(asked) / (line * needed):.3g} % used"
            is_first = name == next(iter(recorded))
            heading = f"LINES OF {line} BYTES\n" if is_first else ""
            panel.set_title(f"{heading}{name}\n{caption}", fontsize=10)
            panel.set(xticks=(0, 8, 16, 24, 31), yticks=(0, 8, 16, 24, 31), xlabel="float in the row")
            panel.set_ylabel("row of x, 32 floats each" if is_first else "")
            panel.label_outer()
            panel.tick_params(labelsize=8)
            panel.grid(visible=False)
            words.append(f"{name}, lines of {line} bytes: {caption}")
    show(drawn, f"{title}. {'; '.join(words)}.")


def draw_banks(widths: Sequence[int]) -> None:
    """Draw in which places of a tile the words of bank 0 lie, and those that 32 neighbors read from its column 0.

    Args:
        widths: floats in a row of the tile; one panel for each.
    """
    from matplotlib.colors import ListedColormap

    title = "A column of a tile (dots) and the words of bank 0 (gray)"
    words = []
    with figure(7.5, 4.2, title, ncols=len(widths), sharex=True, sharey=True) as (drawn, axes):
        for width, panel in zip(widths, np.ravel(axes), strict=True):
            banks = np.arange(32 * width).reshape(32, width) % counters.BANKS
            panel.imshow(banks == 0, cmap=ListedColormap(["white", "#9a9a9a"]), vmin=0, vmax=1)
            panel.plot(np.zeros(32), np.arange(32), ".", color=BLUE, markersize=5)
            caption = f"rows of {width} floats: {_format_count(np.bincount(banks[:, 0]).max(), 'turn')}"
            panel.set_title(caption, fontsize=11)
            panel.set(xlim=(-1, max(widths)), xlabel="column of the tile", ylabel="row of the tile")
            panel.set(xticks=(0, 8, 16, 24, 32), yticks=(0, 8, 16, 24, 31))
            panel.label_outer()
            panel.grid(visible=False)
            words.append(caption)
    show(drawn, f"{title}. {'; '.join(words)}.")


def tabulate_accesses(recorded: Trace, line: int = counters.LINE, together: int = counters.TOGETHER) -> tables.Table:
    """Return what each access of a launch asks for, and how many different lines that are.

    The last row holds all accesses to global memory together: two of them may need the same lines.

    Args:
        recorded: the record of the launch.
        line: bytes of a cache line.
        together: work-items that ask at once.
    """
    found, rows, asked = counters.find_lines(recorded, line), [], 0
    for text, access in counters.count_accesses(recorded, line, together).items():
        if access.in_local:
            continue
        asked += access.needed
        need, fewest = _format_count(access.each, "line"), f"{access.fewest / access.requests:.3g}"
        used = f"{100 * access.used / access.moved:.3g} %"
        rows.append((text, need, fewest, used, f"{access.needed:,}", f"{len(found[text]):,}"))
    rows.append(("together", "", "", "", f"{asked:,}", f"{len(set[tuple[str, int]]().union(*found.values())):,}"))
    headers = (
        "access",
        f"{together} neighbors need",
        "fewest",
        "used of the lines",
        "lines asked for",
        "different lines",
    )
    return tables.Table(rows, headers)
