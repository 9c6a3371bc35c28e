"""Lesson 02, Multiply matrices with OpenCL: its checks, its figure, and the benchmark of lessons 02 and 02b."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.judge import checks, kernel_checks
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREY, ORANGE, SKY, figure, show
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


def write_tiled(tile: int) -> str:
    """Return the solution of lesson 02's exercise 2, with tiles of `tile` x `tile` and work-groups of the same size."""
    return f"#define T {tile}\n{TILED}"


def round_up(number: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `number`."""
    return -(-number // step) * step


# ------------------------------------------------------------------------------------------------------- its checks


@checks.print_verdict
def check_multiply(source: str) -> Iterator[str]:
    """Lesson 02, exercise 1: C = A B, each work-item one element, dimension 0 gives the column."""
    yield checks.judge_in_subprocess(judge_multiply, source=source)


@checks.print_verdict
def check_tiled(source: str) -> Iterator[str]:
    """Lesson 02, exercise 2: C = A B with tiles in local memory; a group loads each number once."""
    yield checks.judge_in_subprocess(judge_tiled, source=source)


@checks.print_verdict
def check_asked(learner: Callable[[float, float], float]) -> Iterator[str]:
    """Lesson 02, exercise 3: the GB/s that a kernel asks for, from its GFLOP/s and its loads for a multiplication."""
    yield checks.judge_function(
        learner,
        lambda gflops, loads: 2.0 * gflops * loads,
        lambda rng: [(10, 2), (4_360, 2), (5_610, 0.125), *((int(rng.integers(1, 999)), 2 / n) for n in range(1, 9))],
    )


@dataclass(frozen=True)
class Grid:
    """How a kernel for C = A B is launched."""

    group: tuple[int, int]  # work-items of a work-group in both dimensions
    block: int = 1  # rows and columns of C that a work-item computes

    def count_items(self, m: int, n: int) -> tuple[int, int]:
        """Return the work-items in both dimensions for an m x n matrix, in whole work-groups."""
        across, down = (-(-length // self.block) for length in (n, m))
        return round_up(across, self.group[0]), round_up(down, self.group[1])

    def describe_launch(self, m: int, n: int, k: int) -> str:
        """Return the sizes of a launch in words, for a message."""
        return kernel_checks.describe_launch({"m": m, "n": n, "k": k}, self.count_items(m, n), self.group)


# Rows, columns, inner size: what fits the groups, single numbers, odd ones; the last three need more than 16 bits
# for a place in C, in A and in B. k stays small: tiles of 2 x 2 take k / 2 rounds, and a busy classroom must pass.
SIZES = (
    *((16, 32, 8), (17, 23, 9), (1, 1, 1), (2, 2, 2), (1, 6, 3), (6, 1, 4)),
    *((301, 259, 9), (33, 2, 2_001), (2, 33, 2_001)),
)
SMALL = (6, 9, 7)  # of the recorded launch; no multiple of a tile or of a block in any direction but one


def judge_multiply(source: str) -> str:
    """Judge the kernel of lesson 02's exercise 1; called in a subprocess."""
    grid = Grid((1, 1))
    kernel = kernel_checks.build(source, "multiply")
    return f"{judge_product(kernel, grid, judge_trace(kernel, grid))} on {opencl.name(kernel.device)}"


def judge_tiled(source: str) -> str:
    """Judge the kernel of lesson 02's exercise 2, with its own T and with others; called in a subprocess."""
    kernel_checks.build(source, "tiled")
    defined = re.search(r"#define[ \t]+T[ \t]+(\d+)", source)
    if not defined:
        raise NotYet("expected the line `#define T 16` at the top, as it was handed out: the check tries other T, too.")
    for tile in (4, 16, 2):
        kernel = kernel_checks.build(f"{source[: defined.start(1)]}{tile}{source[defined.end(1) :]}", "tiled")
        grid = Grid((tile, tile))
        try:
            traced = judge_trace(kernel, grid)
            if not any(touch.reads for touch in traced.touches):
                raise NotDone("the kernel loads nothing yet.")
            tried = judge_product(kernel, grid, traced)
            turns = -(-SMALL[2] // tile)
            why = f"in each of {turns} rounds one load into either tile, and a store at the end. Use the tiles."
            judge_accesses(traced, 2 * turns + 1, why)
        except NotYet as problem:
            raise NotYet(f"with T = {tile}: {problem}") from None
    loads = "one load a work-item into either tile"
    return f"T = 4, 16 and 2, each on {tried}, {loads}; on {opencl.name(kernel.device)}"


def judge_accesses(traced: Trace, most: int, why: str) -> None:
    """Refuse a right kernel of which a work-item asks global memory more often than `most` times."""
    found, item = int(traced.global_accesses.max()), int(traced.global_accesses.argmax())
    if found > most:
        raise NotYet(
            f"for k = {SMALL[2]} work-item {item} asks global memory {found} times, and {most} are enough: {why}"
        )


def judge_trace(kernel: opencl.Kernel, grid: Grid) -> Trace:
    """Record a small launch; refuse accesses outside, races, barriers that not all meet, and what writes nothing."""
    kernel_checks.expect_parameters(kernel, ["float[]"] * 3 + ["int"] * 3)
    (m, n, k), launch = SMALL, grid.describe_launch(*SMALL)
    arguments = [*(np.ones(length, np.float32) for length in (m * k, k * n, m * n)), *map(np.int32, SMALL)]
    traced = kernel_checks.record(kernel, launch, grid.count_items(m, n), grid.group, arguments)
    kernel_checks.expect_writes(traced, launch, kernel)
    kernel_checks.refuse_faults(traced, launch)
    return traced


def judge_product(kernel: opencl.Kernel, grid: Grid, traced: Trace) -> str:
    """Judge every element of C for all SIZES, twice on a C that held different things before; return what was tried."""
    rng = np.random.default_rng()
    for m, n, k in SIZES:
        # Quarters: a sum is exact in any order.
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) / 4 for shape in ((m, k), (k, n)))
        expected = a.astype(float) @ b
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
        raise NotYet(f"{where}, came {actual:g}.{why}")
    unseen = "".join(f", not followed: {access}" for access in traced.unseen)
    return f"{len(SIZES)} sizes{unseen}"


def _run(kernel: opencl.Kernel, a: np.ndarray, b: np.ndarray, grid: Grid, fill: int) -> np.ndarray:
    """Run the kernel, all matrices between canaries; return C, float32 of shape (m, n), which held `fill` before."""
    (m, k), n = a.shape, b.shape[1]
    items = grid.count_items(m, n)
    beyond = max(items) * grid.block - min(m, n)
    pad = (beyond + 2) * max(n, k)  # no work-item without an element of its own can leave it
    given = {parameter.name: each.ravel() for parameter, each in zip(kernel.parameters, (a, b), strict=False)}
    bits = kernel_checks.run_guarded(kernel, given, {"m": m, "n": n, "k": k}, m * n, items, grid.group, fill, pad)
    return bits.view(np.float32).reshape(m, n)


# ------------------------------------------------------------------------------------------------------ its figures


def draw_rounds(recorded: Trace, size: int, group: tuple[int, int], title: str) -> None:
    """Draw what one work-group of the tiled kernel loads in each round, as the trace recorded it.

    Args:
        recorded: of a launch on square matrices; a round is what lies between every second barrier.
        size: rows and columns of the matrices.
        group: the work-group, its ids in both dimensions.
        title: the message of the figure.
    """
    from matplotlib.patches import Rectangle

    mine = {i for i, ids in enumerate(recorded.group_ids[:, :2].tolist()) if tuple(ids) == group}
    touches = [touch for touch in recorded.touches if touch.item in mine]
    places = recorded.local_ids.tolist()
    width = max(x for x, _, _ in places) + 1
    last, start = max(touch.rounds for touch in touches) // 2, 1.2 * size
    origin = {"A": (0, start), "B": (start, 0), "C": (start, start)}
    words = []
    with figure(7.5, 4.1, title, ncols=last) as (drawn, axes):
        for number, panel in enumerate(np.atleast_1d(axes)):
            for name, (x, y) in origin.items():
                panel.add_patch(Rectangle((x, y), size, size, facecolor="none", edgecolor=GREY))
                panel.text(x + size / 2, y - 0.1, name, fontsize=11, ha="center", va="bottom")
            loaded, shared = 0, 0
            for touch in touches:
                is_now = touch.reads and (touch.rounds + 1) // 2 == number
                if touch.array not in recorded.lengths:  # in local memory
                    if touch.reads and touch.rounds == 2 * number + 1:
                        shared += 1
                elif is_now or touch.writes:
                    row, column = divmod(touch.index, size)
                    x, y = origin[touch.array.upper()][0] + column, origin[touch.array.upper()][1] + row
                    color = {"a": ORANGE, "b": SKY, "c": BLUE}[touch.array]
                    panel.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="white"))
                    reader = str(places[touch.item][1] * width + places[touch.item][0]) if touch.reads else ""
                    panel.text(x + 0.5, y + 0.5, reader, fontsize=8, ha="center", va="center")
                    if touch.reads:
                        loaded += 1
            caption = f"{loaded} loads, each used {shared / max(loaded, 1):g} times"
            panel.set(xlim=(-0.2, 2.2 * size + 0.2), ylim=(2.2 * size + 0.2, -0.8), aspect="equal")
            panel.axis("off")
            panel.set_title(f"round {number + 1}\n{caption}", fontsize=9.5)
            words.append(f"Round {number + 1}: {caption}")
    show(drawn, f"{title}. {'. '.join(words)}.")


# ---------------------------------------------------------------------------------------------------- its benchmark

AWKWARD = ((1, 1, 1), (17, 17, 17), (5, 40, 33), (250, 250, 250))  # rows, columns, inner size


def measure_bandwidth(queue: cl.CommandQueue, floats: int) -> float:
    """Time a kernel that copies floats (lesson 01b), print it, and return GB/s.

    Args:
        queue: of the device.
        floats: how many are copied; 8 bytes move with each.
    """
    import pyopencl as cl

    floats = min(floats, queue.device.max_mem_alloc_size // 64 * 4)  # four times as much fits into one buffer
    source = "__kernel void copy(__global float4 *x, __global float4 *y) { int i = get_global_id(0); y[i] = x[i]; }"
    copy, ones = cl.Kernel(opencl.build(queue.context, source), "copy"), np.ones(floats, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    there, back = (cl.Buffer(queue.context, flags, hostbuf=ones) for _ in range(2))
    run = timing.measure(
        lambda: copy(queue, (floats // 4,), None, there, back),
        label=f"copy of {4 * floats / 2**20:.0f} MiB",
        device=opencl.name(queue.device),
        on=queue,
    )
    records.add_run(run, "GB/s", 8e-9 * floats, label="bandwidth")
    print(f"bandwidth: {8 * floats / run.median / 1e9:.3g} GB/s, read and written. {run}")
    return 8 * floats / run.median / 1e9


def measure_peak(queue: cl.CommandQueue, items: int = 2**14, steps: int | None = None) -> float:
    """Time a kernel that only computes, print it, and return GFLOP/s.

    Each of `items` work-items does `steps` multiply-adds in 8 chains side by side, with the device's vectors, all in
    registers: none waits for memory, nor one chain for another. A GPU does more of them by default, because its time
    would otherwise go into the launch: with 1,000, an H100 reached a quarter of what its data sheet promises.
    """
    import pyopencl as cl

    steps = steps or (16_000 if opencl.kind(queue.device) == "gpu" else 1_000)
    width = max(4, queue.device.preferred_vector_width_float)
    kernel = cl.Kernel(
        opencl.build(queue.context, f"#define VECTOR float{width}\n#define STEPS {steps}\n{PEAK}"), "peak"
    )
    out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * width * items)
    run = timing.measure(
        lambda: kernel(queue, (items,), None, out, np.float32(0.5)),
        label="multiply-adds",
        device=opencl.name(queue.device),
        on=queue,
    )
    found = 2 * 8 * width * steps * items / run.median / 1e9
    label = "peak" if items == 2**14 else f"peak, {items:,} work-items"
    records.add_run(run, "GFLOP/s", found * run.median, label=label)
    print(f"peak: {found:.3g} GFLOP/s. {run}")
    return found


class MatmulBenchmark:
    """Two random matrices in NumPy and on the device, and what was measured with them.

    Each measurement is noted for `run --record`.
    """

    def __init__(self, queue: cl.CommandQueue, size: int) -> None:
        self.queue, self.size = queue, size  # rows and columns of the matrices
        self.device = opencl.name(queue.device)
        self.random = np.random.default_rng(0)
        self.a, self.b = self.random.standard_normal((2, size, size), dtype=np.float32)
        self.buffers = [self._upload(array) for array in (self.a, self.b, np.zeros_like(self.a))]
        self.runs: dict[str, timing.Measurement] = {}  # by label

    def _upload(self, array: np.ndarray) -> cl.Buffer:
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=array)

    def test(self, launch: Launch, sizes: Sequence[tuple[int, int, int]] = AWKWARD) -> None:
        """Compare with NumPy in double precision for sizes (rows, columns, inner size), and print which are right."""
        import pyopencl as cl

        for m, n, k in sizes:
            left = self.random.standard_normal((m, k), dtype=np.float32)
            right = self.random.standard_normal((k, n), dtype=np.float32)
            actual, exact = np.full((m, n), np.nan, np.float32), left.astype(float) @ right
            buffer = self._upload(actual)
            launch(self._upload(left), self._upload(right), buffer, m, n, k)
            cl.enqueue_copy(self.queue, actual, buffer)
            # A sum of k float32 products of normal numbers is off by about 1e-7 times the root of k.
            good = np.allclose(actual, exact, rtol=1e-4, atol=1e-5 * np.sqrt(k))
            print(f"{m} x {k} by {k} x {n}: {'right' if good else 'WRONG'}")

    def measure(self, launches: Mapping[str, Launch], repeats: int = 5) -> None:
        """Time several products of the two matrices on the device, interleaved; keep the runs."""
        jobs = {
            label: lambda launch=launch: launch(*self.buffers, self.size, self.size, self.size)
            for label, launch in launches.items()
        }
        # Runs in turn with others are worth more than later ones alone, which lesson 02b makes of its best step.
        noted = [label for label in launches if len(launches) > 1 or label not in self.runs]
        time.sleep(timing.SETTLE)  # NumPy multiplied before
        self.runs |= timing.measure_interleaved(jobs, self.device, repeats, on=self.queue)
        for label in noted:
            self._note(label)

    def measure_numpy(self, repeats: int = 15) -> None:
        """Time NumPy's product with all its threads and with one, and keep the faster under "NumPy".

        On a busy machine threads wait for each other: OpenBLAS was seen at 1.9 GFLOP/s with 2 and at 41.7 with one.
        """
        from threadpoolctl import threadpool_limits

        def run(threads: int | None) -> timing.Measurement:
            with threadpool_limits(threads, user_api="blas"):
                return timing.measure(lambda: self.a @ self.b, device=cpu_name(), label="NumPy", repeats=repeats)

        self.runs["NumPy"] = min((run(None), run(1)), key=lambda run: run.median)
        self._note("NumPy")

    def _note(self, label: str) -> None:
        amount = f"{self.size:,} x {self.size:,}"
        records.add_run(self.runs[label], "GFLOP/s", 2e-9 * self.size**3, amount, label)

    def gflops(self, label: str) -> float:
        """Return the speed of what was measured under `label`: 2 size**3 operations, in 10**9 a second."""
        return 2 * self.size**3 / self.runs[label].median / 1e9

    def tabulate(self, lesson: str, labels: Iterable[str] | None = None) -> Table:
        """Return the speeds with the middle half of their runs, beside those that were recorded on a GPU.

        Args:
            lesson: the number of the lesson whose record stands beside them, such as 02b.
            labels: of what was measured; all by default.
        """
        rows = []
        for label in labels or self.runs:
            low, high = (2e-9 * self.size**3 / seconds for seconds in reversed(self.runs[label].quartiles))
            rows.append((label, f"{self.gflops(label):.3g} GFLOP/s", f"{low:.3g} to {high:.3g}"))
        where = f"here: {self.size:,} x {self.size:,}, on {self.device}; NumPy on {cpu_name()}."
        return records.add_column(Table(rows, ("", "here", "middle half of the runs"), (where,)), lesson)
