"""Lesson 15's kernels beside the clock: what each takes, and what the counters say of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.judge import counters, opencl_recorder
from helpers.judge.trace import Trace
from helpers.lessons import lesson_15
from helpers.measure import records, tables, timing

if TYPE_CHECKING:
    import pyopencl as cl


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
        lesson_15.STRIDED,
        lambda n: (n * n // 32,),
        (128,),
        lambda x, y, n: (x, y, np.int32(0), np.int32(stride)),
        lambda x: x.reshape(-1)[: x.size // 32 * stride : stride],
    )


def _make_same_span(stride: int) -> Case:
    return Case(
        lesson_15.SAME_SPAN,
        lambda n: (n * n // 32,),
        (128,),
        lambda x, y, n: (x, y, np.int32(stride)),
        lambda x: x.reshape(-1, 1024)[:, : 32 * stride : stride].reshape(-1),
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


STRIDES = (1, 2, 8, 32)
CASES = {
    **{f"stride {stride}": _make_strided(stride) for stride in STRIDES},
    **{f"same span, stride {stride}": _make_same_span(stride) for stride in STRIDES},
    "writes alone": Case(
        lesson_15.WRITES_ALONE,
        lambda n: (n * n // 32,),
        (128,),
        lambda x, y, n: (y, np.int32(1)),
        lambda x: np.ones(x.size // 32, np.float32),
    ),
    "structures": _make_drift(lesson_15.DRIFT, lambda x: x.reshape(-1, 8).T),
    "arrays": _make_drift(lesson_15.DRIFT_ARRAYS, lambda x: x.reshape(8, -1)),
    "naive": _make_transpose(lesson_15.NAIVE, 1),
    "tile": _make_transpose(lesson_15.write_tiled(32), 4),
    "padded tile": _make_transpose(lesson_15.write_tiled(33), 4),
    "sum, spread": _make_sum(lesson_15.SUM_SPREAD),
    "sum, no %": _make_sum(lesson_15.SUM_NO_REMAINDER),
    "sum, packed": _make_sum(lesson_15.SUM_PACKED),
}


def record_case(name: str) -> Trace:
    """Record one of CASES on 32 x 32 floats."""
    case, x = CASES[name], np.ones(1024, np.float32)
    kernel = lesson_15.build_kernel(case.source)
    return opencl_recorder.record(kernel, *case.choose_sizes(32), case.arguments(x, np.zeros_like(x), 32))


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


def _add_recorded(table: tables.Table) -> tables.Table:
    """Return the table with the column *recorded*, and a line for each GPU on record that has none of these numbers."""
    labels = {str(row[0]) for row in table.rows}
    below = [
        f"{record.machine.device}: not recorded."
        for record in records.read_all()
        if not any(("15", label) in record.notes for label in labels)
    ]
    return records.add_column(tables.Table(table.rows, table.headers, (*table.below, *below)), "15")


# From one kernel to the next; the time of each step shows one thing that a count of lines leaves out.
STRIDE_STEPS = (
    "stride 32 → stride 1",
    "same span, stride 32 → same span, stride 1",
    "same span, stride 1 → stride 1",
    "stride 1 → writes alone",
)
# From one kernel to the next, and the counter that changes.
STEPS = {
    "stride 32 → stride 1": "lines",
    "structures → arrays": "lines",
    "naive → tile": "lines",
    "tile → padded tile": "turns",
    "sum, spread → sum, packed": "idle",
    "sum, spread → sum, no %": "idle",
    "sum, no % → sum, packed": "idle",
}


def count_reads(name: str, line: int) -> float:
    """Return how many lines 32 neighbors read in one of CASES with a stride; 0 if it reads nothing."""
    accesses = counters.count_accesses(record_case(name), line).values()
    return sum(access.each for access in accesses if not access.writes)


def _find_span(name: str, rows: int) -> int:
    """Return how many bytes of x one of CASES with a stride reaches over."""
    if name.startswith("same span"):
        return 4 * rows * rows
    return 4 * rows * rows // 32 * int(name.split()[-1]) if name.startswith("stride") else 0


def _format_bytes(count: float) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 2**20 else f"{count / 2**10:.3g} KiB" if count else "none"


def tabulate_strides(runs: Mapping[str, timing.Measurement], rows: int) -> tables.Table:
    """Return for each kernel with a stride how far it reaches, how many lines 32 neighbors read, and its time.

    Args:
        runs: what `measure_kernels` returned.
        rows: of its x.
    """
    listed, device = [], ""
    for name, run in runs.items():
        lines = ", ".join(f"{count_reads(name, line):g}" for line in lesson_15.LINES)
        time, spread = timing.duration(run.median), timing.duration(run.spread)
        listed.append((name, _format_bytes(_find_span(name, rows)), lines, time, spread))
        device = run.device
    sizes = ", ".join(map(str, lesson_15.LINES))
    headers = ("", "x spans", f"lines of {sizes} bytes", "median", "middle half spans")
    return _add_recorded(tables.Table(listed, headers, [f"{timing.ENOUGH} runs on {device}."]))


def compare_strides(runs: Mapping[str, timing.Measurement]) -> tables.Table:
    """Return for each of STRIDE_STEPS what becomes fewer, lines or the span, and how many times as fast it made it.

    Args:
        runs: what `measure_kernels` returned.
    """
    note_steps(runs)
    listed = []
    for step in STRIDE_STEPS:
        before, after = step.split(" → ")
        if before not in runs or after not in runs:  # one of them computed something wrong
            continue
        fewer = []
        for line in lesson_15.LINES:
            old, new = count_reads(before, line), count_reads(after, line)
            fewer.append(f"{old / new:g}" if new else "all")
        old, new = _find_span(before, 32), _find_span(after, 32)
        span = f"{old / new:g}" if new else "all"
        listed.append((step, ", ".join(fewer), span, _describe_gain(runs[before], runs[after])))
    sizes = ", ".join(map(str, lesson_15.LINES))
    headers = ("step", f"lines of {sizes} bytes: times fewer", "span: times shorter", "time here")
    return _add_recorded(tables.Table(listed, headers))


# ------------------------------------------------------------------------------------------------ step by step


def read_counter(name: str, counter: str, line: int = counters.LINE) -> float:
    """Return what a counter says of one of CASES: lines or turns against the fewest, or who idles at the addition."""
    accesses = counters.count_accesses(record_case(name), line)
    if counter == "idle":
        return accesses["part[me + step]"].idle
    return counters.compare_with_fewest(accesses, in_local=counter == "turns")


def note_steps(runs: Mapping[str, timing.Measurement]) -> None:
    """Note for a record how many times as fast each step made the kernel, and whether the spread allows a claim."""
    for step in dict.fromkeys((*STRIDE_STEPS, *STEPS)):
        before, after = step.split(" → ")
        if before in runs and after in runs:
            unit = "times as fast" if timing.is_clear(runs[before], runs[after]) else "times as fast, no claim"
            factor = runs[before].median / runs[after].median
            records.add_note(records.Note(step, factor, unit, runs[after].device))


def _describe_gain(before: timing.Measurement, after: timing.Measurement) -> str:
    """Return how many times as fast the second measurement is, or that the spread allows no claim."""
    if not timing.is_clear(before, after):
        return "no claim"
    times = before.median / after.median
    return f"{times:.3g} times as fast" if times > 1 else f"{1 / times:.3g} times slower"


def compare_steps(
    runs: Mapping[str, timing.Measurement], predictions: Mapping[str, object], line: int = counters.LINE
) -> tables.Table:
    """Return for each of STEPS what a counter and the clock say, whether they agree, and what a GPU's clock said.

    Args:
        runs: what `measure_kernels` returned.
        predictions: for each step the learner's word, "faster" or "same".
        line: bytes of a line.
    """
    note_steps(runs)
    rows = []
    for step, counter in STEPS.items():
        before, after = step.split(" → ")
        if before not in runs or after not in runs:  # one of them computed something wrong
            continue
        old, new = (read_counter(name, counter, line) for name in (before, after))
        change = f"idle: {old:.0%} → {new:.0%}" if counter == "idle" else f"{counter}: {old:.3g} → {new:.3g} x fewest"
        rows.append((step, predictions.get(step) or "", change, *_judge_step(runs[before], runs[after], new < old)))
    return _add_recorded(tables.Table(rows, ("step", "you", "counted", "time here", "count and clock agree?")))


def _judge_step(before: timing.Measurement, after: timing.Measurement, is_fewer: bool) -> tuple[str, str]:
    """Return what the clock says of a step, and whether it agrees with a counter that fell or stayed.

    Args:
        before: the kernel before the step.
        after: the kernel after it.
        is_fewer: whether the counter fell.
    """
    gain = _describe_gain(before, after)
    if not timing.is_clear(before, after):
        return gain, "open"
    is_faster = after.median < before.median
    return gain, "yes" if is_faster == is_fewer else "no"
