"""Lesson 15, See why a kernel is slow: its checks, its kernels for the clock, its figure."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.judge import checks, counters, kernel_checks, opencl_recorder
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.kernel_checks import FILLS
from helpers.judge.trace import Trace
from helpers.measure import records, tables, timing
from helpers.measure.plots import BLUE, GREY, figure, show

if TYPE_CHECKING:
    import pyopencl as cl

MOST = 1.05  # lines that an exercise may need, against the fewest
MAX_RECORDED_ITEMS = 2_048  # work-items of the largest launch that is recorded
STRIDED = """
__kernel void strided(__global const float *x, __global float *y, int first, int stride) {
    int i = get_global_id(0);
    y[i] = x[first + stride * i];
}
"""
DRIFT = """
__kernel void drift(__global const float *p, __global float *out, int n) {
    int i = get_global_id(0);
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
SUM = """
__kernel void group_sum(__global const float *x, __global float *y) {
    __local float part[256];
    int me = get_local_id(0);
    part[me] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (STEPS) {
        if (WHO) {
            part[me] += part[me + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        y[get_group_id(0)] = part[0];
    }
}
"""
SUM_SPREAD = SUM.replace("STEPS", "int step = 1; step < 256; step *= 2").replace("WHO", "me % (2 * step) == 0")
SUM_PACKED = SUM.replace("STEPS", "int step = 128; step > 0; step /= 2").replace("WHO", "me < step")


def write_tiled(width: int) -> str:
    """Return the transposition through tiles whose rows are `width` floats long."""
    return TILED.replace("WIDTH", str(width))


# ------------------------------------------------------------------------------------------------------- its checks


def count_lines(first: int, stride: int) -> int:
    """Record 32 work-items that read x[first + stride * i], and return how many lines of 128 bytes they need."""
    x, y = np.zeros(first + 31 * stride + 1, np.float32), np.zeros(32, np.float32)
    recorded = opencl_recorder.record(_build(STRIDED), 32, 32, [x, y, np.int32(first), np.int32(stride)])
    return counters.count_accesses(recorded)["x[first + stride * i]"].needed


@functools.cache
def _build(source: str) -> opencl.Kernel:
    return opencl.Kernel(source, source.partition("void ")[2].partition("(")[0])


@checks.print_verdict
def check_lines(learner: Callable[[int, int], int]) -> Iterator[str]:
    """Exercise 1: the lines that 32 neighbors need; the reference is the count of a launch on the device."""
    yield checks.judge_function(
        learner,
        count_lines,
        lambda rng: [
            *((0, 1), (0, 2), (1, 1), (0, 0), (31, 1), (32, 1), (0, 32), (5, 3), (16, 31), (1, 33), (0, 64), (7, 100)),
            *((int(rng.integers(0, 99)), int(rng.integers(0, 50))) for _ in range(8)),
        ],
    )
    yield f"each beside the count of a launch on {opencl.name(opencl.pick_device())}"


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
        raise NotDone("both are as they were handed out: a structure for each particle.")
    yield checks.judge_in_subprocess(judge_drift, source=source, given=given, arranged=arranged)


def _call_arrange(arrange: Callable[[np.ndarray], np.ndarray], particles: np.ndarray) -> np.ndarray:
    """Return what the learner's function makes of particles, of shape (n, 8), as a buffer would hold it.

    Raises:
        NotYet: it is no contiguous array of float32, or a number is missing.
    """
    who = f"arrange() of {len(particles)} particles"
    data = checks.answer(arrange, particles.copy(), who=who)
    if not isinstance(data, np.ndarray) or data.dtype != np.float32:
        raise NotYet(f"{who} returned {getattr(data, 'dtype', type(data).__name__)}; expected an array of float32.")
    if not data.flags.c_contiguous:
        raise NotYet(
            f"{who} returned a view: in memory the numbers lie as before. `.reshape(-1)` or `.copy()` moves them."
        )
    if missing := np.setdiff1d(particles, data).size:
        raise NotYet(f"{who}: {missing} of its {particles.size} numbers are not there; other kernels need them all.")
    return data.reshape(-1)


def judge_drift(source: str, given: Sequence[np.ndarray], arranged: Sequence[np.ndarray]) -> str:
    """Judge the kernel of exercise 2 with particles and how they lie in memory; called in a subprocess."""
    launches = [
        (data, particles[:, 0] + particles[:, 3] / 2, len(particles), (len(particles),))
        for particles, data in zip(given, arranged, strict=True)
    ]
    recorded = _judge_launches(kernel_checks.build(source, "drift"), (32,), launches)
    return f"{len(launches)} sizes, {_judge_lines(recorded, 2 * len(given[0]), len(given[0]))}"


@checks.print_verdict
def check_transpose(source: str) -> Iterator[str]:
    """Exercise 3: the transposition with the fewest lines in both directions, and without a bank conflict."""
    yield checks.judge_in_subprocess(judge_transpose, source=source)


def judge_transpose(source: str) -> str:
    """Judge the kernel of exercise 3; called in a subprocess."""
    launches = []
    for n in (64, 32, 160):
        x = np.random.default_rng().permutation(n * n).astype(np.float32)
        launches.append((x, x.reshape(n, n).T.reshape(-1), n, (n, n // 4)))
    recorded = _judge_launches(kernel_checks.build(source, "transpose"), (32, 8), launches)
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
            if traced.unseen:
                raise NotYet(
                    f"{launch}: not counted: {traced.unseen[0]}. Write the array's name and its index there, not a "
                    "macro or a call, and let each work-item do its share."
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
            raise NotYet(
                f"the result is right, but all {what} together need {needed} lines; {fewest} would do. Look at "
                f"`{text}`: 32 neighbours need {_format_count(worst.each, 'line')} each time, {worst.requests} times."
            )
        totals.append(f"{needed} lines for all {what}")
    return ", ".join(totals)


def _format_count(count: float, unit: str) -> str:
    return f"{count:.3g} {unit}" if count == 1 else f"{count:.3g} {unit}s"


# ------------------------------------------------------------------------------------------------------- its figures


def draw_lines(recorded: Mapping[str, Trace], title: str) -> None:
    """Draw which work-item needs which cache line, at the first request of each launch.

    Args:
        recorded: for each name the record of a launch of `strided`.
        title: the message of the figure.
    """
    words = []
    with figure(7.5, 3.6, title, ncols=len(recorded), sharey=True) as (drawn, axes):
        for panel, (name, traced) in zip(axes, recorded.items(), strict=True):
            request = traced.requests()[0]
            items, first, _ = zip(*request.asked, strict=True)
            touched = [place // counters.LINE for place in first]
            needed, _ = counters.count_lines(request)
            for line in set(touched):
                panel.axhspan(line - 0.42, line + 0.42, color=GREY, alpha=0.25, lw=0)
            panel.plot(items, touched, "s", color=BLUE, ms=3.2)
            used = 4 * len(set(first)) / (counters.LINE * needed)
            caption = f"{_format_count(needed, 'line')}, {100 * used:.3g} % used"
            panel.set_title(f"{name}\n{caption}", fontsize=10)
            panel.set(xlim=(-1, 32), ylim=(32, -1), xticks=(0, 31), yticks=(0, 7, 15, 23, 31))
            panel.grid(visible=False)
            words.append(f"{name}: {caption}")
        axes[0].set_ylabel("cache line of x")
        drawn.supxlabel("work-item (blue: needs this line); grey: the line is fetched", fontsize=10)
    show(drawn, f"{title}. {'; '.join(words)}.")


def tabulate_accesses(recorded: Trace) -> tables.Table:
    """Return what the counters say of each access of a launch."""
    rows = []
    for text, access in counters.count_accesses(recorded).items():
        used = "" if access.in_local else f"{100 * access.used / access.moved:.3g} %"
        need = _format_count(access.each, "turn" if access.in_local else "line")
        rows.append((text, need, f"{access.fewest / access.requests:.3g}", used, f"{100 * access.idle:.3g} %"))
    return tables.Table(rows, ("access", "32 neighbours need", "fewest", "used of the lines", "idle work-items"))


# ------------------------------------------------------------------------------------------------ beside the clock


class Case(NamedTuple):
    """A kernel for the clock, on a square x of floats; the output y has as many."""

    source: str
    items: Callable[[int], tuple[int, ...]]  # work-items in each dimension, from the rows of x
    group: tuple[int, ...]  # with 32 a GPU would spend its time on starting them
    arguments: Callable[[object, object, int], tuple]  # from the buffers of x and y, and the rows
    expected: Callable[[np.ndarray], np.ndarray]  # what y begins with, from x

    def choose_sizes(self, rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the work-items in each dimension, and those of a work-group, for an x with this many rows."""
        items = self.items(rows)
        return items, tuple(map(min, items, self.group))


def _make_strided(stride: int) -> Case:
    return Case(
        STRIDED,
        lambda n: (n * n // 32,),
        (128,),
        lambda x, y, n: (x, y, np.int32(0), np.int32(stride)),
        lambda x: x.reshape(-1)[: x.size // 32 * stride : stride],
    )


def _make_drift(source: str, rows: Callable[[np.ndarray], np.ndarray]) -> Case:
    return Case(
        source,
        lambda n: (n * n // 8,),
        (128,),
        lambda x, y, n: (x, y, np.int32(n * n // 8)),
        lambda x: rows(x)[0] + rows(x)[3] / 2,
    )


def _make_transpose(source: str, each: int) -> Case:
    return Case(
        source, lambda n: (n, n // each), (32, 8), lambda x, y, n: (x, y, np.int32(n)), lambda x: x.T.reshape(-1)
    )


def _make_sum(source: str) -> Case:
    return Case(source, lambda n: (n * n,), (256,), lambda x, y, n: (x, y), lambda x: x.reshape(-1, 256).sum(1))


CASES = {
    **{f"stride {stride}": _make_strided(stride) for stride in (1, 2, 4, 8, 16, 32)},
    "structures": _make_drift(DRIFT, lambda x: x.reshape(-1, 8).T),
    "arrays": _make_drift(DRIFT_ARRAYS, lambda x: x.reshape(8, -1)),
    "naive": _make_transpose(NAIVE, 1),
    "tile": _make_transpose(write_tiled(32), 4),
    "padded tile": _make_transpose(write_tiled(33), 4),
    "sum, spread": _make_sum(SUM_SPREAD),
    "sum, packed": _make_sum(SUM_PACKED),
}


def record_case(name: str) -> Trace:
    """Record one of CASES on 32 x 32 floats."""
    case, x = CASES[name], np.ones(1024, np.float32)
    return opencl_recorder.record(_build(case.source), *case.choose_sizes(32), case.arguments(x, np.zeros_like(x), 32))


def choose_rows(device: cl.Device) -> int:
    """Return how many rows the clock needs under `lab`: more than a GPU's caches hold, and than its launch hides."""
    if opencl.kind(device) != "gpu":
        return 2_048
    shares_memory = device.host_unified_memory or device.max_mem_alloc_size < 4 * 8_192**2
    return 4_096 if shares_memory else 8_192


def measure_kernels(queue: cl.CommandQueue, names: Sequence[str], rows: int) -> dict[str, timing.Measurement]:
    """Compare each kernel's result with NumPy's, then time those that are right, in turn; note the times for a record.

    Args:
        queue: of the lesson's device.
        names: of CASES.
        rows: of the square x; 32, or a multiple of 64.
    """
    import pyopencl as cl

    x = np.random.default_rng(0).integers(0, 9, (rows, rows), np.int8).astype(np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    held, out = (cl.Buffer(queue.context, flags, hostbuf=array) for array in (x, np.zeros_like(x)))
    ways: dict[str, Callable[[], object]] = {}
    for name in names:
        case = CASES[name]
        kernel = opencl.build(queue.context, case.source).all_kernels()[0]
        given = case.arguments(held, out, rows)
        ways[name] = functools.partial(kernel, queue, *case.choose_sizes(rows), *given)
        cl.enqueue_fill_buffer(queue, out, np.full(1, np.nan, np.float32), 0, x.nbytes)
        ways[name]()
        expected = case.expected(x)
        actual = np.empty(len(expected), np.float32)
        cl.enqueue_copy(queue, actual, out)
        if not np.array_equal(actual, expected):
            print(f"{name}: WRONG, so it is not timed")
            del ways[name]
    print(f"right, beside NumPy: {'; '.join(ways)}")
    runs = timing.measure_interleaved(ways, opencl.name(queue.device), timing.ENOUGH, warmup=2, on=queue)
    for run in runs.values():
        records.add_run(run, amount=f"{rows:,} x {rows:,} floats")
    return runs


# From one kernel to the next: which counter changes, and how many times as fast the next was where it was published.
STEPS = {
    "stride 32 → stride 1": ("lines", ""),
    "structures → arrays": ("lines", ""),
    "naive → tile": ("lines", "1.8 (Tesla K20c, 2013); 1.0 (Apple M2 Pro, 2024)"),
    "tile → padded tile": ("turns", "1.5 (Tesla K20c, 2013)"),
    "sum, spread → sum, packed": ("idle", "4.7 (G80, 2007)"),
}


def read_counter(name: str, counter: str) -> float:
    """Return what a counter says of one of CASES: lines or turns against the fewest, or who idles at the addition."""
    accesses = counters.count_accesses(record_case(name))
    if counter == "idle":
        return accesses["part[me + step]"].idle
    return counters.compare_with_fewest(accesses, in_local=counter == "turns")


def note_steps(runs: Mapping[str, timing.Measurement]) -> None:
    """Note for a record how many times as fast each of STEPS made the kernel, and whether the spread allows a claim."""
    for step in STEPS:
        before, after = step.split(" → ")
        if before in runs and after in runs:
            unit = "times as fast" if timing.is_clear(runs[before], runs[after]) else "times as fast, no claim"
            factor = runs[before].median / runs[after].median
            records.add_note(records.Note(step, factor, unit, runs[after].device))


def compare_steps(runs: Mapping[str, timing.Measurement], predictions: Mapping[str, object]) -> tables.Table:
    """Return for each step what a counter and the clock say, whether they agree, and what a GPU's clock said.

    Args:
        runs: what `measure_kernels` returned.
        predictions: for each step the learner's word, "faster" or "same".
    """
    note_steps(runs)
    rows, below = [], []
    for step, (counter, published) in STEPS.items():
        before, after = step.split(" → ")
        if before not in runs or after not in runs:  # one of them computed something wrong
            continue
        old, new = read_counter(before, counter), read_counter(after, counter)
        change = f"idle: {old:.0%} → {new:.0%}" if counter == "idle" else f"{counter}: {old:.3g} → {new:.3g} x fewest"
        times = runs[before].median / runs[after].median
        here, agree = "no claim", "open"
        if timing.is_clear(runs[before], runs[after]):
            here = f"{times:.3g} times as fast" if times > 1 else f"{1 / times:.3g} times slower"
            agree = "yes" if times > 1 else "no"
        rows.append((step, predictions.get(step) or "", change, here, agree))
        if published:
            below.append(f"published, times as fast: {step} {published}.")
    headers = ("step", "you", "counted", "time here", "count and clock agree?")
    return records.add_column(tables.Table(rows, headers, below), "15")
