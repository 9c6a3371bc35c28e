"""Lesson 15's kernels beside the clock: what each takes, and what the counters say of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.judge import checks, counters, opencl_recorder
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
    arrange: Callable[[np.ndarray], np.ndarray] = np.ravel  # the order in which the numbers of x lie in memory

    def choose_sizes(self, rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the work-items in each dimension, and those of a work-group, for an x with this many rows."""
        items = self.items(rows)
        return items, tuple(map(min, items, self.group))


def _make_pieces(gap: int, stride: int) -> Case:
    """Return a case in which piece k of 32 work-items reads x from `gap` times k on."""

    def choose(x: np.ndarray) -> np.ndarray:
        starts = gap * np.arange(x.size // 1024)
        return x.reshape(-1)[starts[:, None] + stride * np.arange(32)].reshape(-1)

    return Case(
        lesson_15.PIECES,
        lambda n: (n * n // 32,),
        (128,),
        lambda x, y, n: (x, y, np.int32(gap), np.int32(stride)),
        choose,
    )


def _make_transpose(source: str, each: int) -> Case:
    return Case(
        source, lambda n: (n, n // each), (32, 8), lambda x, y, n: (x, y, np.int32(n)), lambda x: x.T.reshape(-1)
    )


def _make_drift(source: str, arrange: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Return a case in which x holds n * n / 8 particles of eight numbers, in an order that fits the source."""
    return Case(
        source,
        lambda n: (n * n // 8,),
        (128,),
        lambda x, y, n: (x, y, np.int32(n * n // 8)),
        lambda x: x.reshape(-1, 8)[:, 0] + x.reshape(-1, 8)[:, 3] / 2,
        lambda x: arrange(x.reshape(-1, 8)),
    )


def _make_fill(share: int) -> Case:
    """Return a case that writes one number for each `share` floats of x, and reads none."""
    return Case(
        lesson_15.FILL,
        lambda n: (n * n // share,),
        (128,),
        lambda x, y, n: (y, np.float32(3)),
        lambda x: np.full(x.size // share, 3, np.float32),
    )


ARRAYS = lesson_15.DRIFT_ARRAYS, lambda particles: particles.T.reshape(-1)  # the solution of exercise 2
CASES = {
    "same span, stride 32": _make_pieces(1024, 32),
    "same span, stride 1": _make_pieces(1024, 1),
    "no reads": _make_fill(32),
    "copy": _make_transpose(lesson_15.COPY, 1)._replace(expected=lambda x: x.reshape(-1)),
    "naive": _make_transpose(lesson_15.NAIVE, 1),
    "tile": _make_transpose(lesson_15.write_tiled(32), 4),
    "padded tile": _make_transpose(lesson_15.write_tiled(33), 4),
    "structures": _make_drift(lesson_15.DRIFT, np.ravel),
    "arrays": _make_drift(*ARRAYS),
    "particles, no reads": _make_fill(8),
}
READS = "same span, stride 32", "same span, stride 1", "no reads"
DRIFTS = "structures", "arrays", "particles, no reads"
TRANSPOSES = "copy", "naive", "tile", "padded tile"


def find_case(name: str) -> Case:
    """Return one of CASES; as "arrays" the learner's answer to exercise 2, if it is right."""
    return _make_drift(*checks.get_right("drift", ARRAYS)) if name == "arrays" else CASES[name]


def record_case(name: str) -> Trace:
    """Record one of CASES on 32 x 32 floats."""
    case, x = find_case(name), np.ones(1024, np.float32)
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
        rows: of the square x; a power of two from 32 on.
    """
    import pyopencl as cl

    x = np.random.default_rng(0).integers(0, 9, (rows, rows), np.int8).astype(np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    out = cl.Buffer(queue.context, flags, hostbuf=np.zeros_like(x))
    ways: dict[str, Callable[[], object]] = {}
    for name in names:
        case = find_case(name)
        kernel = opencl.build(queue.context, case.source).all_kernels()[0]
        given = case.arguments(cl.Buffer(queue.context, flags, hostbuf=case.arrange(x)), out, rows)
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


READ_STEPS = " → ".join(READS[:2]), " → ".join(DRIFTS[:2])
TRANSPOSE_STEPS = "naive → tile", "tile → padded tile"


def compare_reads(runs: Mapping[str, timing.Measurement]) -> tables.Table:
    """Return for each of READ_STEPS how many times fewer lines it asks for, and how many times as fast it is.

    Args:
        runs: what `measure_kernels` returned.
    """
    note_steps(runs)
    listed = []
    for step in READ_STEPS:
        before, after = step.split(" → ")
        if before in runs and after in runs:  # otherwise one of them computed something wrong, or has to come yet
            fewer = [f"{_count_reads(before, line) / _count_reads(after, line):g}" for line in lesson_15.LINES]
            listed.append((step, f"{', '.join(fewer)} times", describe_gain(runs[before], runs[after])))
    sizes = ", ".join(map(str, lesson_15.LINES))
    table = tables.Table(
        listed, ("step", "fewer lines", "time here"), [f"Lines of {sizes} bytes. {_describe_times(runs)}"]
    )
    return records.add_column(table, "15")


def _count_reads(name: str, line: int) -> float:
    """Return how many lines all reads of one of CASES ask for."""
    return sum(a.needed for a in counters.count_accesses(record_case(name), line).values() if not a.writes)


def tabulate_transposes(runs: Mapping[str, timing.Measurement], rows: int) -> tables.Table:
    """Return for each of TRANSPOSES its lines and turns, its bandwidth, and its share of the copy's.

    Args:
        runs: what `measure_kernels` returned.
        rows: of its x.
    """
    note_steps(runs)
    listed, moved = [], []
    for name in (name for name in TRANSPOSES if name in runs):
        gigabytes = 8e-9 * rows**2
        speeds = [gigabytes / seconds for seconds in (runs[name].median, *reversed(runs[name].quartiles))]
        median, low, high = (f"{speed:.3g}" for speed in speeds)
        share = runs["copy"].median / runs[name].median if "copy" in runs else float("nan")
        counted = (f"{count:,}" for count in count_case(name))
        listed.append((name, *counted, f"{median} GB/s ({low} to {high})", f"{share:.0%}"))
        if share > 1.1:
            moved.append(name)
    below = [
        f"Counted for 32 x 32 numbers and lines of {counters.LINE} bytes.",
        f"Measured: {8 * rows * rows / 2**20:.3g} MiB a run. {_describe_times(runs)}",
    ]
    if moved:
        below.append(f"Faster than the copy: {', '.join(moved)}. This copy is not the ceiling here.")
    column = records.find_column("15", TRANSPOSE_STEPS)
    below += [f"{step}: {note.value:.3g} {note.unit}, recorded." for step, note in column.notes.items()]
    below += column.below
    headers = "kernel", "lines asked for", "different lines", "turns", "measured", "of the copy"
    return tables.Table(listed, headers, below)


# ------------------------------------------------------------------------------------------------ step by step


def count_case(name: str) -> tuple[int, int, int]:
    """Return the lines that one of CASES asks for on 32 x 32 floats, the different ones, and its turns."""
    recorded = record_case(name)
    accesses = counters.count_accesses(recorded).values()
    asked, turns = (sum(access.needed for access in accesses if access.in_local == local) for local in (False, True))
    return asked, len(set[tuple[str, int]]().union(*counters.find_lines(recorded).values())), turns


def note_steps(runs: Mapping[str, timing.Measurement]) -> None:
    """Note for a record how many times as fast each step made the kernel, and whether the spread allows a claim."""
    for step in (*READ_STEPS, *TRANSPOSE_STEPS):
        before, after = step.split(" → ")
        if before in runs and after in runs:
            unit = "times as fast" if timing.is_clear(runs[before], runs[after]) else "times as fast, no claim"
            factor = runs[before].median / runs[after].median
            records.add_note(records.Note(step, factor, unit, runs[after].device))


def describe_gain(before: timing.Measurement, after: timing.Measurement) -> str:
    """Return how many times as fast the second measurement is, or that the spread allows no claim."""
    if not timing.is_clear(before, after):
        return "no claim"
    times = before.median / after.median
    return f"{times:.3g} times as fast" if times > 1 else f"{1 / times:.3g} times as long"


def has_local_memory(device: cl.Device) -> bool:
    """Return whether a device has local memory of its own; otherwise its driver uses global memory for it."""
    import pyopencl as cl

    return device.local_mem_type == cl.device_local_mem_type.LOCAL


def _describe_times(runs: Mapping[str, timing.Measurement]) -> str:
    """Return which numbers a table of these runs shows, and of which device."""
    devices = ", ".join(dict.fromkeys(run.device for run in runs.values()))
    return f"Times: medians of {timing.ENOUGH} runs on {devices}."
