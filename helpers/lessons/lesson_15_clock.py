"""Lesson 15's kernels beside the clock: what each takes, and what the counters say of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.judge import checks, counters, opencl_recorder
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
    less: int = 0  # rows of x that it leaves out

    def choose_sizes(self, rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the work-items in each dimension, and those of a work-group, for an x with this many rows."""
        items = self.items(rows)
        return items, tuple(map(min, items, self.group))


def _make_transpose(source: str, each: int) -> Case:
    return Case(
        source, lambda n: (n, n // each), (32, 8), lambda x, y, n: (x, y, np.int32(n)), lambda x: x.T.reshape(-1)
    )


def _make_shorter() -> Case:
    """Return the case "naive" for a square of 32 rows less, which the first numbers of x fill."""

    def transpose(x: np.ndarray) -> np.ndarray:
        rows = len(x) - 32
        return x.reshape(-1)[: rows * rows].reshape(rows, rows).T.reshape(-1)

    return Case(
        lesson_15.NAIVE,
        lambda n: (n - 32, n - 32),
        (32, 8),
        lambda x, y, n: (x, y, np.int32(n - 32)),
        transpose,
        less=32,
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


def _make_fill() -> Case:
    """Return a case that writes one number for each particle, and reads none."""
    return Case(
        lesson_15.FILL,
        lambda n: (n * n // 8,),
        (128,),
        lambda x, y, n: (y, np.float32(3)),
        lambda x: np.full(x.size // 8, 3, np.float32),
    )


ARRAYS = lesson_15.DRIFT_ARRAYS, lambda particles: particles.T.reshape(-1)  # the solution of exercise 2
CASES = {
    "naive": _make_transpose(lesson_15.NAIVE, 1),
    "naive, n - 32": _make_shorter(),
    "tile": _make_transpose(lesson_15.write_tiled(32), 4),
    "padded tile": _make_transpose(lesson_15.write_tiled(33), 4),
    "copy": _make_transpose(lesson_15.COPY, 1)._replace(expected=np.ravel),
    "structures": _make_drift(lesson_15.DRIFT, np.ravel),
    "arrays": _make_drift(*ARRAYS),
    "particles, no reads": _make_fill(),
}
DRIFTS = "structures", "arrays", "particles, no reads"
TRANSPOSES = "naive", "naive, n - 32", "tile", "padded tile", "copy"
AGAIN = "only larger gaps are claimed. Run this cell again when they have ended"
TWICE = "arrays", "padded tile"  # timed under two names: what the two differ by is luck


class Runs(dict[str, timing.Measurement]):
    """What was timed, by the name of a kernel."""

    others = 0.0  # what share of the cores other programs used meanwhile
    twins: tuple[timing.Measurement, timing.Measurement] | None = None  # of the kernel that was timed twice


def find_case(name: str) -> Case:
    """Return one of CASES; as "arrays" the learner's answer to exercise 2, if it is right."""
    return _make_drift(*checks.get_right("drift", ARRAYS)) if name == "arrays" else CASES[name]


def choose_rows(device: cl.Device) -> int:
    """Return how many rows the clock needs under `lab`: more than a GPU's caches hold, and than its launch hides."""
    if opencl.kind(device) != "gpu":
        return 2_048
    shares_memory = device.host_unified_memory or device.max_mem_alloc_size < 4 * 8_192**2
    return 4_096 if shares_memory else 8_192


def measure_kernels(queue: cl.CommandQueue, names: Sequence[str], rows: int) -> Runs:
    """Compare each kernel's result with NumPy's, then time those that are right, in turn; note the times for a record.

    Args:
        queue: of the lesson's device.
        names: of CASES.
        rows: of the square x; a power of two from 64 on.
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
    twice = [name for name in TWICE if name in ways]
    ways |= {f"{name}, once more": ways[name] for name in twice}
    with timing.Load() as load:
        runs = Runs(timing.measure_interleaved(ways, opencl.name(queue.device), timing.ENOUGH, warmup=2, on=queue))
    runs.others = load.others
    for name in twice:
        runs.twins = runs[name], runs.pop(f"{name}, once more")
        luck = timing.duration(abs(runs.twins[0].median - runs.twins[1].median))
        print(f"A/A: {name}, measured twice in turn, differs from itself by {luck}.")
    if busy := timing.describe_slowdown(runs.others, AGAIN):
        print(busy)
    for name, run in runs.items():
        side = rows - find_case(name).less
        records.add_run(run, amount=f"{side:,} x {side:,} floats")
    return runs


def compare_drifts(prediction: object, runs: Runs) -> tables.Table:
    """Compare the predicted gain with the measured one; return what the reads add to each time, here and recorded.

    Args:
        prediction: how many times as fast "arrays" is.
        runs: of DRIFTS, what `measure_kernels` returned.
    """
    checks.compare_prediction(prediction, _describe_step(runs, "structures", "arrays"))
    *_, control = DRIFTS
    here = {name: (run.median, run.spread) for name, run in runs.items()}
    column = records.find_column("15", DRIFTS)
    recorded = {name: (note.value, (note.high or 0) - (note.low or 0)) for name, note in column.notes.items()}
    rows = []
    for name in runs:
        cells: list[object] = [_count_reads(name)]
        for found, others in ((here, runs.others), (recorded, 0.0)):
            cells += [timing.duration(found[name][0]) if name in found else tables.MISSING]
            cells += [_describe_added(found[name], found[control], others) if {name, control} <= found.keys() else ""]
        rows.append((name, *cells))
    headers = "kernel", "lines read by 32 neighbors", "here", "reads add", "recorded", "reads add, recorded"
    below = ["Reads add: the time, less that without reads.", _describe_times(runs), *column.below]
    return tables.Table(rows, headers, below)


def _describe_added(one: tuple[float, float], control: tuple[float, float], others: float) -> str:
    """Return by how much a median exceeds the control's; both come with the spread of their runs, in seconds.

    A record holds no single runs, so `timing.is_claimable` cannot be asked; for timing.ENOUGH runs, its rule is this.
    """
    added = one[0] - control[0]
    if one == control:
        return ""
    is_claimed = added > max(one[1], control[1]) and one[0] > control[0] * timing.find_slowdown(others)
    return timing.duration(added) if is_claimed else "no claim"


def _count_reads(name: str) -> int:
    """Return how many lines of DRIFTS' reads 32 neighbors ask for."""
    case, rows = find_case(name), 16  # for 32 particles
    given = case.arguments(np.ones(256, np.float32), np.zeros(32, np.float32), rows)
    recorded = opencl_recorder.record(lesson_15.build_kernel(case.source), *case.choose_sizes(rows), given)
    return sum(access.needed for access in counters.count_accesses(recorded).values() if not access.writes)


def compare_transposes(prediction: object, runs: Runs, rows: int) -> tables.Table:
    """Compare the predicted gain with the measured one; return lines, turns, and time of each of TRANSPOSES.

    Args:
        prediction: how many times as fast "padded tile" is as "naive, n - 32".
        runs: of TRANSPOSES, what `measure_kernels` returned.
        rows: of its x.
    """
    checks.compare_prediction(prediction, _describe_step(runs, "naive, n - 32", "padded tile"))
    listed = []
    for name, run in runs.items():
        lines, turns = count_transpose(name)
        half = " to ".join(map(timing.duration, run.quartiles))
        listed.append((name, f"{lines:,}", f"{turns:,}", timing.duration(run.median), half))
    _, control, _, padded, copy = TRANSPOSES
    gains = [f"{name}, {_describe_step(runs, control, name)}" for name in runs if name != control]
    below = [
        f"n = {rows:,}. Lines of {counters.LINE} bytes and turns: for 32 x 32 numbers. {_describe_times(runs)}",
        f"beside {control}: {'; '.join(gains)}.",
        f"beside {copy}: {padded}, {_describe_step(runs, copy, padded)}.",
    ]
    headers = "kernel", "lines asked for", "turns", "here", "middle half"
    return records.add_column(tables.Table(listed, headers, below), "15")


def count_transpose(name: str) -> tuple[int, int]:
    """Return the lines that one of TRANSPOSES asks for on 32 x 32 floats, and its turns."""
    case, x = CASES[name], np.ones(1024, np.float32)
    rows = 32 + case.less
    given = case.arguments(x, np.zeros_like(x), rows)
    recorded = opencl_recorder.record(lesson_15.build_kernel(case.source), *case.choose_sizes(rows), given)
    accesses = counters.count_accesses(recorded).values()
    lines, turns = (sum(access.needed for access in accesses if access.in_local == local) for local in (False, True))
    return lines, turns


def _describe_step(runs: Runs, before: str, after: str) -> str:
    """Return how many times as fast one of the runs is as another; "not timed" if one computed something wrong."""
    if not {before, after} <= runs.keys():
        return "not timed"
    return timing.describe_gain(runs[before], runs[after], runs.twins, runs.others)


def has_local_memory(device: cl.Device) -> bool:
    """Return whether a device has local memory of its own; otherwise its driver uses global memory for it."""
    import pyopencl as cl

    return device.local_mem_type == cl.device_local_mem_type.LOCAL


def _describe_times(runs: Mapping[str, timing.Measurement]) -> str:
    """Return which numbers a table of these runs shows, and of which device."""
    devices = ", ".join(dict.fromkeys(run.device for run in runs.values()))
    return f"Times: medians of {timing.ENOUGH} runs on {devices}."
