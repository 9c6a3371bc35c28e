"""Lesson 02, Multiply matrices with OpenCL: its checks, its figure, and the benchmark of lessons 02 and 02b."""

from __future__ import annotations

import collections
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.judge import checks, kernel_checks
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.lessons import lesson_02_tiles
from helpers.measure import published, records, timing
from helpers.measure.tables import Table

if TYPE_CHECKING:
    import pyopencl as cl

    # Queues what computes C = A B; takes the buffers of A (m x k), B (k x n), C (m x n), float32 in rows, and m, n, k.
    Launch = Callable[[cl.Buffer, cl.Buffer, cl.Buffer, int, int, int], object]

MULTIPLY = """
__kernel void multiply(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int i = 0; i < k; i++) {
        sum += a[row * k + i] * b[i * n + column];
    }
    c[row * n + column] = sum;
}
"""
TILED = """
__kernel void tiled(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    __local float a_tile[T][T], b_tile[T][T];
    int x = get_local_id(0), y = get_local_id(1);
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int start = 0; start < k; start += T) {
        int in_a = row < m && start + x < k, in_b = start + y < k && column < n;
        a_tile[y][x] = in_a ? a[row * k + start + x] : 0;
        b_tile[y][x] = in_b ? b[(start + y) * n + column] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < T; i++) {
            sum += a_tile[y][i] * b_tile[i][x];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
"""
PEAK = """
__kernel void peak(__global VECTOR *out, float factor) {
    VECTOR sums[8], total = 0;
    for (int chain = 0; chain < 8; chain++) sums[chain] = (VECTOR)(get_global_id(0));  // differs for each work-item
    for (int i = 0; i < STEPS; i++) {
        #pragma unroll
        for (int chain = 0; chain < 8; chain++) sums[chain] = sums[chain] * factor + (VECTOR)(chain + 1);
    }
    for (int chain = 0; chain < 8; chain++) total += sums[chain];
    out[get_global_id(0)] = total;
}
"""

TILE = re.compile(r"#define[ \t]+T[ \t]+(\d+)")


def write_tiled(tile: int) -> str:
    """Return the solution of lesson 02's exercise 2, with tiles of `tile` x `tile` and work-groups of the same size."""
    return f"#define T {tile}\n{TILED}"


def set_tile(source: str, tile: int) -> str:
    """Return a tiled kernel with another T; unchanged if it has no line `#define T` with a number."""
    return TILE.sub(f"#define T {tile}", source, count=1)


def compute_loads(tile: int) -> float:
    """Return how many numbers the tiled kernel loads from A and B for each multiplication, if T divides the sizes."""
    return 2 / tile


def round_up(number: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `number`."""
    return -(-number // step) * step


# ------------------------------------------------------------------------------------------------------- its checks


@checks.print_verdict
def check_multiply(source: str) -> Iterator[str]:
    """Lesson 02, exercise 1: C = A B, each work-item one element, dimension 0 gives the column."""
    yield checks.keep_right("multiply", source, checks.judge_in_subprocess(judge_multiply, source=source))


@checks.print_verdict
def check_tiled(source: str) -> Iterator[str]:
    """Lesson 02, exercise 2: C = A B with tiles in local memory; a group loads each number once."""
    yield checks.keep_right("tiled", source, checks.judge_in_subprocess(judge_tiled, source=source))


@checks.print_verdict
def check_loads(learner: Callable[[int], float]) -> Iterator[str]:
    """Lesson 02, exercise 3: the loads from A and B for each multiplication, by T."""
    try:
        tried = checks.judge_function(
            learner, compute_loads, lambda rng: [(1,), (4,), (16,), *((int(rng.integers(2, 65)),) for _ in range(5))]
        )
    except NotYet as problem:
        hint = "In one round with T = 4, a group's 16 work-items load 16 numbers of A and 16 of B, and each does 4"
        raise NotYet(f"{str(problem).rstrip('.')}. {hint} multiplications.") from None
    yield checks.keep_right("loads", learner, tried)


@dataclass(frozen=True)
class Grid:
    """How a kernel for C = A B is launched."""

    group: tuple[int, int]  # work-items of a work-group in both dimensions

    def count_items(self, m: int, n: int) -> tuple[int, int]:
        """Return the work-items in both dimensions for an m x n matrix, in whole work-groups."""
        return round_up(n, self.group[0]), round_up(m, self.group[1])

    def describe_launch(self, m: int, n: int, k: int) -> str:
        """Return the sizes of a launch in words, for a message."""
        return kernel_checks.describe_launch({"m": m, "n": n, "k": k}, self.count_items(m, n), self.group)


# Rows, columns, inner size: what fits the groups, single numbers, odd ones; three need more than 16 bits
# for a place in C, in A and in B. k stays small: tiles of 2 x 2 take k / 2 rounds, and a busy classroom must pass.
SIZES = (
    *((16, 32, 8), (17, 23, 9), (1, 1, 1), (2, 2, 2), (1, 6, 3), (6, 1, 4)),
    *((301, 259, 9), (33, 2, 2_001), (2, 33, 2_001), (5, 6, 7)),
)
SMALL = (6, 9, 7)  # of the recorded launch; no multiple of a tile in any direction but one


def judge_multiply(source: str) -> str:
    """Judge the kernel of lesson 02's exercise 1; called in a subprocess."""
    kernel = kernel_checks.build(source, "multiply")
    traced = judge_trace(kernel, Grid((3, 2)))  # a local id and a group's id differ from the global one
    tried = judge_product(kernel, Grid((1, 1)), traced)
    judge_accesses(traced, 2 * SMALL[2] + 1, "for each i one number of A and one of B, and in the end one store.")
    return f"{tried} on {opencl.name(kernel.device)}"


def judge_tiled(source: str) -> str:
    """Judge the kernel of lesson 02's exercise 2, with its own T and with others; called in a subprocess."""
    device, remark = kernel_checks.build(source, "tiled").device, ""
    if not TILE.search(source):
        raise NotYet("expected the line `#define T 16` at the top, as it was at first: the check tries other T, too.")
    sides = [side for side in (4, 16, 2) if side * side <= device.max_work_group_size]
    for tile in sides:
        kernel, grid = kernel_checks.build(set_tile(source, tile), "tiled"), Grid((tile, tile))
        try:
            # What a kernel touches follows from T in the same way for every T: with 4 there are two rounds to see.
            traced = _judge_tiles(kernel, grid, tile) if tile == 4 else None
            tried = judge_product(kernel, grid, traced, tile)
            if traced:
                turns = -(-SMALL[2] // tile)
                why = f"in each of {turns} rounds one load into either tile, and a store at the end."
                judge_accesses(traced, 2 * turns + 1, why, "Use the tiles.")
                remark = lesson_02_tiles.describe_strides(traced)
        except NotYet as problem:
            raise NotYet(f"with T = {tile}: {problem}{lesson_02_tiles.name_number(source, TILE, tile)}") from None
    names, loads = ", ".join(map(str, sides)), f"one load a work-item into either tile{remark}"
    return f"T = {names}, each on {tried}, {loads}; on {opencl.name(device)}"


def _judge_tiles(kernel: opencl.Kernel, grid: Grid, tile: int) -> Trace:
    """Record a small launch as `judge_trace` does; also refuse a work-item that uses the tiles for others."""
    traced = judge_trace(kernel, grid)
    if not any(touch.reads for touch in traced.touches):
        raise NotDone("the kernel loads nothing yet.")
    turns = -(-SMALL[2] // tile)
    own_touches = (2 + 2 * tile) * turns
    touches = collections.Counter(touch.item for touch in traced.touches if touch.array not in traced.lengths)
    for item, found in touches.most_common(1):
        if found > 4 * own_touches:
            raise NotYet(
                f"{grid.describe_launch(*SMALL)}: work-item {item} touches the tiles {found} times or more. "
                f"For one element of C, {own_touches} are enough: let each work-item add its own sum."
            )
    if (met := int(traced.barriers.max())) > 4 * turns:
        raise NotYet(
            f"{grid.describe_launch(*SMALL)}: a work-item meets {met} barriers in {turns} rounds. Two in each round "
            "are enough: after the tiles are filled, and after they are used."
        )
    return traced


def judge_accesses(traced: Trace, most: int, why: str, advice: str = "Load each number once for each i.") -> None:
    """Refuse a right kernel of which a work-item asks global memory more often than `most` times.

    The advice is for a work-item that stores C once.
    """
    found, item = int(traced.global_accesses.max()), int(traced.global_accesses.argmax())
    if found > most:
        mine = (touch for touch in traced.touches if touch.item == item and touch.array in traced.lengths)
        advice = "Store C once, after the loop." if sum(touch.writes for touch in mine) > 1 else advice
        raise NotYet(
            f"for k = {SMALL[2]} work-item {item} asks global memory {found} times, and {most} are enough: {why} "
            f"{advice}"
        )


def judge_trace(kernel: opencl.Kernel, grid: Grid) -> Trace:
    """Record a small launch; refuse accesses outside, races, barriers that not all meet, and what writes nothing."""
    kernel_checks.expect_parameters(kernel, ["float[]"] * 3 + ["int"] * 3)
    (m, n, k), launch = SMALL, grid.describe_launch(*SMALL)
    arguments = [*(np.ones(length, np.float32) for length in (m * k, k * n, m * n)), *map(np.int32, SMALL)]
    traced = kernel_checks.record(kernel, launch, grid.count_items(m, n), grid.group, arguments)
    kernel_checks.expect_writes(traced, launch, kernel)
    if not traced.outside and (which := lesson_02_tiles.name_missing_barrier(traced, kernel.source)):
        raise NotYet(f"{launch}: {traced.races()[0]}. {which}")
    if wrong := lesson_02_tiles.name_wrong_ids(traced, n):
        raise NotYet(f"{launch}: {wrong}")
    kernel_checks.refuse_faults(traced, launch)
    kernel_checks.refuse_overwork(traced, launch)
    return traced


def judge_product(kernel: opencl.Kernel, grid: Grid, traced: Trace | None, tile: int = 1) -> str:
    """Judge every element of C for all SIZES, twice on a C that held different things before; return what was tried.

    Args:
        kernel: the learner's kernel.
        grid: how it is launched.
        traced: the record of a small launch, for what it could not follow; None if there is none.
        tile: rows and columns of its tiles.
    """
    rng = kernel_checks.make_generator()
    for m, n, k in SIZES:
        # Quarters: a sum is exact in any order.
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) / 4 for shape in ((m, k), (k, n)))
        expected = a.astype(float) @ b
        if (m, n, k) == SIZES[-1]:  # where 0 was asked for, a number of A or B times 0 is NaN
            a[:], b[:], expected = np.inf, np.inf, np.full((m, n), np.inf)
        first, second = (_run(kernel, a, b, grid, fill).copy() for fill in kernel_checks.FILLS)
        wrong = np.argwhere((first != expected) | (second != expected))
        if not len(wrong):
            continue
        row, column = wrong[0]
        where = f"{grid.describe_launch(m, n, k)}: row {row}, column {column} of C: expected {expected[row, column]:g}"
        if kernel_checks.find_unwritten(first.view(np.uint32), second.view(np.uint32))[row, column]:
            raise NotYet(f"{where}, came nothing: it was never written.")
        actual = (first if first[row, column] != expected[row, column] else second)[row, column]
        chance = np.isnan(actual) or first[row, column] != second[row, column]
        why = " It depends on what C held before, or a variable was never set." if chance else ""
        if np.isinf(expected[row, column]):
            why = " Infinity times 0 is no number: write 0 into both tiles in place of what doesn't exist."
        raise NotYet(f"{where}, came {actual:g}.{why or lesson_02_tiles.name_product(a, b, first, tile)}")
    unseen = "".join(f", not followed: {access}" for access in traced.unseen) if traced else ""
    return f"{len(SIZES)} sizes{unseen}"


def _run(kernel: opencl.Kernel, a: np.ndarray, b: np.ndarray, grid: Grid, fill: int) -> np.ndarray:
    """Run the kernel, all matrices between canaries; return C, float32 of shape (m, n), which held `fill` before."""
    (m, k), n = a.shape, b.shape[1]
    items = grid.count_items(m, n)
    pad = (max(items) - min(m, n) + 2) * max(n, k)  # no work-item without an element of its own can leave it
    given = {parameter.name: each.ravel() for parameter, each in zip(kernel.parameters, (a, b), strict=False)}
    bits = kernel_checks.run_guarded(kernel, given, {"m": m, "n": n, "k": k}, m * n, items, grid.group, fill, pad)
    return bits.view(np.float32).reshape(m, n)


# ---------------------------------------------------------------------------------------------------- its benchmark

# Enough work-items for each compute unit, by whether it is a GPU: a unit of a GPU has up to 128 lanes, 16 for each.
ITEMS_PER_UNIT = {True: 16 * 128, False: 256}


def measure_bandwidth(queue: cl.CommandQueue, floats: int) -> float:
    """Time three ways to copy floats, and return the fastest run's GB/s; NaN if the data sheet has less.

    Args:
        queue: of the device.
        floats: how many are copied; 8 bytes move with each.
    """
    import pyopencl as cl

    floats = min(floats, queue.device.max_mem_alloc_size // 16) // 16 * 16  # four times as much fits into one buffer
    ones, flags = np.ones(floats, np.float32), cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    there, back = (cl.Buffer(queue.context, flags, hostbuf=ones) for _ in range(2))
    ways: dict[str, Callable[[], object]] = {"the driver's copy": lambda: cl.enqueue_copy(queue, back, there)}
    for width in (4, 16):
        source = f"__kernel void copy(__global float{width} *x, __global float{width} *y) "
        source += "{ int i = get_global_id(0); y[i] = x[i]; }"
        copy, items = cl.Kernel(opencl.build(queue.context, source), "copy"), (floats // width,)
        ways[f"a kernel that copies {width} floats at once"] = partial(copy, queue, items, None, there, back)
    runs = timing.measure_interleaved(ways, opencl.name(queue.device), repeats=9, on=queue)
    best = min(runs.values(), key=lambda run: min(run.seconds))
    return _accept("bandwidth", 8e-9 * floats, "GB/s", best, f"read and written by {best.label}")


def measure_peak(queue: cl.CommandQueue, items: int | None = None, steps: int = 1_000) -> float:
    """Time a kernel that only computes, and return the fastest run's GFLOP/s; NaN if the data sheet promises less.

    Each work-item does `steps` multiply-adds in 8 chains side by side, all in registers, with the device's vectors or
    half as wide ones: none waits for memory, nor one chain for another.

    Args:
        queue: of the device.
        items: work-items; None begins with 16 for each lane that the device may have, and takes four times as many
            until the speed grows by less than 5 %.
        steps: multiply-adds of each chain.
    """
    widest = max(4, queue.device.preferred_vector_width_float, queue.device.native_vector_width_float)
    count = items or queue.device.max_compute_units * ITEMS_PER_UNIT[opencl.kind(queue.device) == "gpu"]
    # With pip's PoCL 3.0 on an AMD EPYC, vectors of 8 floats were 1.7 times as fast as its own of 16.
    tried = {each: _time_multiply_adds(queue, each, count, steps) for each in (widest, widest // 2) if each >= 4}
    width, best = max(tried.items(), key=lambda pair: pair[0] / min(pair[1].seconds))
    gain = 0.0 if items else math.inf
    while gain > 1.05 and min(best.seconds) < 0.1 and 16 * width * count <= queue.device.max_mem_alloc_size:
        more = _time_multiply_adds(queue, width, 4 * count, steps)
        gain = 4 * min(best.seconds) / min(more.seconds)
        best, count = (more, 4 * count) if gain > 1 else (best, count)
    label = f"peak, {items:,} work-items" if items else "peak"
    return _accept(label, 2e-9 * 8 * width * steps * count, "GFLOP/s", best, f"{count:,} work-items")


def _time_multiply_adds(queue: cl.CommandQueue, width: int, items: int, steps: int) -> timing.Measurement:
    """Time PEAK with vectors of `width` floats."""
    import pyopencl as cl

    source = f"#define VECTOR float{width}\n#define STEPS {steps}\n{PEAK}"
    kernel = cl.Kernel(opencl.build(queue.context, source), "peak")
    out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * width * items)
    return timing.measure(
        lambda: kernel(queue, (items,), None, out, np.float32(0.5)),
        label="multiply-adds",
        device=opencl.name(queue.device),
        on=queue,
    )


def _accept(label: str, work: float, unit: str, run: timing.Measurement, how: str) -> float:
    """Print the fastest run's speed, note it for a record, and return it; NaN, not noted, if the data sheet has less.

    Args:
        label: what was measured.
        work: what one run does, in `unit` times seconds.
        unit: GFLOP/s or GB/s.
        run: what was timed.
        how: more about the run, for the line.
    """
    speed, (low, high) = work / min(run.seconds), (work / seconds for seconds in reversed(run.quartiles))
    if excess := published.describe_excess(run.device, speed, unit):
        print(f"{label}: refused. {excess}")
        return math.nan
    records.add_note(records.Note(label, speed, unit, run.device, "", low, high, len(run.seconds)))
    print(f"{label}: {speed:.3g} {unit}, {how}, the fastest of {len(run.seconds)} runs on {run.device}")
    return speed


class MatmulBenchmark:
    """Two random matrices in NumPy and on the device, and what was measured with them.

    Each measurement is noted for `run --record`.
    """

    def __init__(self, queue: cl.CommandQueue, size: int) -> None:
        self.queue, self.size = queue, size  # rows and columns of the matrices
        self.device = opencl.name(queue.device)
        self.a, self.b = np.random.default_rng(0).standard_normal((2, size, size), dtype=np.float32)
        self.buffers = [self._upload(array) for array in (self.a, self.b, np.zeros_like(self.a))]
        self.runs: dict[str, timing.Measurement] = {}  # by label
        self.others = 0.0  # what share of the cores other programs used in the last measurement

    def _upload(self, array: np.ndarray) -> cl.Buffer:
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=array)

    def measure(self, launches: Mapping[str, Launch], repeats: int = 5) -> None:
        """Time several products of the two matrices on the device, interleaved; keep the runs."""
        jobs = {label: partial(launch, *self.buffers, *(self.size,) * 3) for label, launch in launches.items()}
        time.sleep(timing.SETTLE)  # NumPy multiplied before
        self.runs |= self.time_in_turn(jobs, self.device, repeats)
        for label in launches:
            self._note(label)

    def time_in_turn(
        self, ways: Mapping[Any, Callable[[], object]], device: str | Mapping[Any, str], repeats: int, rest: float = 0.0
    ) -> dict[Any, timing.Measurement]:
        """Time ways as `timing.measure_interleaved` does, and note in `others` how busy the cores were meanwhile."""
        wake = rest > 0 and opencl.kind(self.queue.device) == "gpu"
        with timing.Load() as load:
            runs = timing.measure_interleaved(ways, device, repeats, on=self.queue, rest=rest, wake=wake)
        self.others = load.others
        return runs

    def describe_slowdown(self) -> str:
        """Return how large a gap must be after the last measurement, in words; "" if they did little."""
        return timing.describe_slowdown(self.others)

    def _note(self, label: str) -> None:
        amount = f"{self.size:,} x {self.size:,}"
        records.add_run(self.runs[label], "GFLOP/s", 2e-9 * self.size**3, amount, label)

    def gflops(self, label: str) -> float:
        """Return the speed of what was measured under `label`: 2 size**3 operations, in 10**9 a second."""
        return 2 * self.size**3 / self.runs[label].median / 1e9

    def tabulate(self, lesson: str, labels: Iterable[str] | None = None) -> Table:
        """Return the speeds with the middle half of their runs, beside those that were recorded on a GPU.

        Args:
            lesson: the number of the lesson whose record stands beside them, such as 02b; "" for no such column.
            labels: of what was measured; all by default.
        """
        rows = []
        for label in labels or self.runs:
            low, high = (2e-9 * self.size**3 / seconds for seconds in reversed(self.runs[label].quartiles))
            rows.append((label, f"{self.gflops(label):.3g} GFLOP/s", f"{low:.3g} to {high:.3g}"))
        where = f"here: {self.size:,} x {self.size:,}, on {self.device}."
        if any("NumPy" in label for label, *_ in rows):
            where = f"{where[:-1]}; NumPy on {cpu_name()}."
        table = Table(rows, ("", "here", "middle half of the runs"), (where,))
        return records.add_column(table, lesson) if lesson else table
