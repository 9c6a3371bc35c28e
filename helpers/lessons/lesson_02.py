"""Lesson 02, Multiply matrices with OpenCL: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import opencl
from helpers.compute.host import cpu_name
from helpers.errors import WorkshopError
from helpers.judge import checks, kernel_checks, trace
from helpers.judge.checks import NotDone, NotYet
from helpers.lessons.lesson_01 import smooth
from helpers.measure import plots, timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, figure, show
from helpers.measure.tables import Table

if TYPE_CHECKING:
    import pyopencl as cl

    # Queues what computes C = A B; takes the buffers of A (m x k), B (k x n), C (m x n), float32 in rows, and m, n, k.
    Launch = Callable[[cl.Buffer, cl.Buffer, cl.Buffer, int, int, int], object]


@checks.verdict
def check_fewest_loads(learner: Callable[[int], float]) -> Iterator[str]:
    """Lesson 02, exercise 3: the fewest loads for one multiply-add of a block that fits into so many registers."""

    def right(registers: int) -> float:
        blocks = ((rows, vectors) for rows in range(1, registers) for vectors in range(1, registers))
        fitting = ((r, v) for r, v in blocks if r * v + v + 1 <= registers)
        return min((r + v) / (r * v) for r, v in fitting)

    yield checks.judge_function(
        learner,
        right,
        lambda rng: [(3,), (4,), (16,), (32,), (128,), (500,), *((int(n),) for n in rng.integers(5, 99, 9))],
    )


@checks.verdict
def check_smooth_locally(source: str) -> Iterator[str]:
    """Lesson 02, exercise 1: `smooth` again, reading each element from global memory once for each work-group."""
    yield checks.judge_in_subprocess(judge_smooth_locally, source=source)


def judge_smooth_locally(source: str) -> str:
    """Judge the kernel of exercise 1; called in a subprocess."""
    kernel = kernel_checks.build(source, "smooth")
    traced = (*kernel_checks.WHOLE_GROUPS, (128, 64))  # in the last one every work-item has an element
    try:
        right = kernel_checks.judge_kernel(kernel, ("float[]",), smooth, radius=1, groups=(64, 16), traced=traced)
    except NotYet as problem:
        if "near[0], which nobody has written" not in str(problem):
            raise
        why = (
            "That counts as wrong even where the value is not used. Element 0 has no left neighbour: copy it to `out`."
        )
        raise NotYet(f"{problem} {why}") from None
    _judge_sharing(kernel)
    # Each element is read and written once, each group reads two more, and both ends of x may be read for the result.
    counted = kernel_checks.judge_accesses(kernel, lambda n, groups: 2 * n + 2 * groups + 2)
    return f"{right}; {counted}"


FEW = 8  # accesses to global memory of one work-item: a right one needs 4, one that clamps its indices no more


def _judge_sharing(kernel: opencl.Kernel) -> None:
    """Refuse a right kernel of exercise 1 in which one work-item copies for all others of its group."""
    if "async_work_group" in kernel.source:  # all copy together, but the recorder counts the first work-item
        return
    n = kernel_checks.COUNTED
    x, out = np.ones((2, n), np.float32)
    accesses = trace.record(kernel, n, kernel_checks.LOCAL_SIZE, [x, out, np.int32(n)]).global_accesses
    if accesses.max() > FEW:
        raise NotYet(
            f"the result is right, but one work-item does all the copying: work-item {accesses.argmax()} accesses "
            f"global memory {accesses.max()} times, while the others wait. Let each copy its own element."
        )


ONE_ELEMENT = """
__kernel void element(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int i = 0; i < k; i++) {
        sum += a[row * k + i] * b[i * n + column];
    }
    c[row * n + column] = sum;
}
"""
BLOCK_TIMED = 384  # rows of the square matrices on which a right block is timed
SLOWER = (  # measured with PoCL 3.1: sums in an array, 0.6 times; with the loops unrolled, 3.7 times
    "below 1, so slower: if your numbers are in arrays, `#pragma unroll` before each loop over them may help "
    "('A block of vectors', below, says why)"
)


def judge_block(source: str) -> str:
    """Judge lesson 02's kernel of which each work-item computes 2 x 2 elements of C = A B; called in a subprocess.

    A, B and C lie between canaries; their numbers are quarters, so that a sum is exact in any order. A last, small
    launch is recorded: it finds what is read beyond an end, written twice, or loaded more often than a block needs.
    """
    kernel = kernel_checks.build(source, "block")
    kernel_checks.expect_parameters(kernel, ["float[]"] * 3 + ["int"] * 3)
    rng = np.random.default_rng()
    drawn = (int(rng.integers(40, 60)), int(rng.integers(60, 80)), int(rng.integers(2, 40)))
    # The first fits the groups; then odd, smaller and larger ones; the last two need indices of more than 16 bits.
    sizes = [
        (16, 32, 8),
        (17, 23, 9),
        (1, 1, 1),
        (2, 2, 2),
        (1, 6, 3),
        (6, 1, 4),
        drawn,
        (301, 259, 67),
        (3, 2, 70_001),
    ]
    for number, (m, n, k) in enumerate(sizes):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) / 4 for shape in ((m, k), (k, n)))
        _judge_block_once(kernel, a, b, ((8, 8), (16, 2))[number % 2], first=number == 0)
    seen = _judge_block_trace(kernel, 5, 7, 3)
    return f"{len(sizes)} sizes on {opencl.name(kernel.device)}{seen}; {_time_block(kernel)}"


def _block_grid(m: int, n: int, group: tuple[int, int]) -> tuple[int, int]:
    """The work-items for blocks of 2 x 2 of an m x n matrix, columns in dimension 0, in whole work-groups."""
    return round_up(round_up(n, 2) // 2, group[0]), round_up(round_up(m, 2) // 2, group[1])


def _run_block(
    kernel: opencl.Kernel, a: np.ndarray, b: np.ndarray, grid: tuple[int, int], group: tuple[int, int], fill: int
) -> np.ndarray:
    """Run the kernel between canaries; return C, float32 of shape (m, n), which held the bits `fill` before."""
    import pyopencl as cl

    (m, k), n = a.shape, b.shape[1]
    outside = kernel_checks.OUTSIDE
    # What lies beyond the ends is so long that a work-item without an element cannot leave it.
    held = [
        _followed(a.reshape(-1), outside, 2 * grid[1] * k),
        _followed(b.reshape(-1), outside, 2 * grid[0]),
        _followed(np.full(m * n, fill, np.uint32), fill, 2 * grid[1] * n + 2 * grid[0]),
    ]
    buffers = [kernel_checks.Guarded(kernel.queue, v, g) for v, g in zip(held, (outside, outside, fill), strict=True)]
    try:
        kernel.kernel(kernel.queue, grid, group, *(one.inside for one in buffers), *map(np.int32, (m, n, k)))
        found = [one.read() for one in buffers]
    except cl.Error as error:
        raise NotYet(f"the kernel could not run: {str(error).strip().splitlines()[0]}") from None
    launch = f"{_sizes_text(m, n, k)}, {grid[0]} x {grid[1]} work-items"
    for parameter, before, length, (after, stray) in zip(
        kernel.parameters, held, (m * k, k * n, m * n), found, strict=False
    ):
        changed = np.flatnonzero(after != before)
        if before is held[2]:
            changed = changed[changed >= length]
        if stray is None and not changed.size:
            continue
        index = int(changed[0]) if changed.size else stray
        if 0 <= index < length:
            raise NotYet(f"{launch}: the kernel changed its input {parameter.name}; it may only write C.")
        raise NotYet(
            f"{launch}: the kernel wrote to element {index} of {parameter.name}, which has the elements 0 to "
            f"{length - 1}. Ask whether the row and the column exist before you write."
        )
    return found[2][0][: m * n].view(np.float32).reshape(m, n)


def _followed(values: np.ndarray, guard: int, more: int) -> np.ndarray:
    """The bits of `values`, and `more` times `guard` behind them; uint32 of shape (n,)."""
    return np.concatenate([values.view(np.uint32), np.full(more, guard, np.uint32)])


def _sizes_text(m: int, n: int, k: int) -> str:
    return f"m = {m}, n = {n}, k = {k}"


def _judge_block_once(kernel: opencl.Kernel, a: np.ndarray, b: np.ndarray, group: tuple[int, int], first: bool) -> None:
    """Run on two matrices, twice on a C that held different things before, and judge every element."""
    (m, k), n = a.shape, b.shape[1]
    grid, expected = _block_grid(m, n, group), a.astype(float) @ b
    one, other = (_run_block(kernel, a, b, grid, group, fill).copy() for fill in kernel_checks.FILLS)
    bits = one.view(np.uint32), other.view(np.uint32)
    unwritten = (bits[0] == kernel_checks.FILLS[0]) & (bits[1] == kernel_checks.FILLS[1])
    if first and unwritten.all():
        raise NotDone("the kernel writes nothing.")
    wrong = np.argwhere((one != expected) | (other != expected))
    if not len(wrong):
        return
    row, column = wrong[0]
    where = f"{_sizes_text(m, n, k)}: row {row}, column {column} of C: expected {expected[row, column]:g}"
    if unwritten[row, column]:
        swapped = _run_block(kernel, a, b, (round_up(grid[1], group[0]), round_up(grid[0], group[1])), group,
                             kernel_checks.FILLS[0])  # fmt: skip
        why = " With the two dimensions swapped it would be right: dimension 0 counts pairs of columns."
        raise NotYet(f"{where}, came nothing: it was never written.{why if np.array_equal(swapped, expected) else ''}")
    actual = one if one[row, column] != expected[row, column] else other
    why = ""
    zeros = _run_block(kernel, np.zeros_like(a), np.zeros_like(b), grid, group, fill=0)
    started = np.argwhere(np.isfinite(zeros) & (zeros != 0))
    if len(started):  # any element will do: what a sum without a start holds is chance
        y, x = (row, column) if [row, column] in started.tolist() else started[0]
        which = "it" if (y, x) == (row, column) else f"row {y}, column {x}"
        why = f" With A, B and C full of 0 {which} is {zeros[y, x]:g}: does each sum begin with 0?"
    elif bits[0][row, column] != bits[1][row, column]:
        why = (
            " It depends on what C held before, or differs from run to run: does each sum begin with 0, and is C only "
            "written?"
        )
    elif np.isnan(actual[row, column]):
        why = (
            " A number from beyond the end of A or B makes a sum nan: ask whether the row and the column exist. A sum "
            "that does not begin with 0 may be nan, too."
        )
    raise NotYet(f"{where}, came {actual[row, column]:g}.{why}")


def _judge_block_trace(kernel: opencl.Kernel, m: int, n: int, k: int) -> str:
    """Judge what each work-item touches in a small launch; return what could not be followed, for the verdict."""
    group = (2, 2)
    a, b, c = (np.ones(size, np.float32) for size in (m * k, k * n, m * n))
    arguments = [a, b, c, *map(np.int32, (m, n, k))]
    grid = _block_grid(m, n, group)
    launch = f"{_sizes_text(m, n, k)}, {grid[0]} x {grid[1]} work-items"
    traced = kernel_checks.record(kernel, launch, grid, group, arguments)
    for touch in traced.outside:
        length = traced.lengths.get(touch.array)
        has = f"which has the elements 0 to {length - 1}" if length else "which does not exist"
        raise NotYet(f"{launch}: {touch}, {has}. Ask whether the row and the column exist before you touch it.")
    writers: dict[int, set[int]] = {}
    for touch in traced.touches:
        if touch.writes and touch.array == kernel.parameters[2].name:
            writers.setdefault(touch.index, set()).add(touch.item)
    for index, who in sorted(writers.items()):
        if len(who) > 1:
            raise NotYet(
                f"{launch}: row {index // n}, column {index % n} of C is written by the work-items "
                f"{', '.join(map(str, sorted(who)))}. Only one has it in its block."
            )
    most, item = int(traced.global_accesses.max()), int(traced.global_accesses.argmax())
    if most > 4 * k + 4:
        raise NotYet(
            f"the product is right, but for k = {k} work-item {item} asks global memory {most} times; a block needs "
            f"at most {4 * k + 4}: for each i two numbers of A and two of B, and in the end four elements of C."
        )
    return f", at most {most} accesses a work-item for k = {k}" + "".join(
        f"; not followed: {one}" for one in traced.unseen
    )


def _time_block(kernel: opencl.Kernel) -> str:
    """Time a right block beside a kernel that computes one element, on matrices that lie on the device."""
    import pyopencl as cl

    bench = MatmulBenchmark(kernel.queue, BLOCK_TIMED)
    element, sizes = cl.Kernel(opencl.build(kernel.context, ONE_ELEMENT), "element"), [np.int32(BLOCK_TIMED)] * 3
    jobs = {
        "one element": (element, (BLOCK_TIMED, BLOCK_TIMED)),
        "your block": (kernel.kernel, (BLOCK_TIMED // 2, BLOCK_TIMED // 2)),
    }
    runs = timing.measure_interleaved(
        {label: lambda one=one, grid=grid: one(kernel.queue, grid, None, *bench.buffers, *sizes)
         for label, (one, grid) in jobs.items()},
        opencl.name(kernel.device), on=kernel.queue,
    )  # fmt: skip
    one, yours = runs.values()
    if not timing.is_clear(one, yours):
        return "the spread of its time allows no comparison"
    factor = one.median / yours.median
    said = f"{factor:.2g} times as fast as one element a work-item ({BLOCK_TIMED} x {BLOCK_TIMED})"
    return said if factor >= 1 else f"{said}; {SLOWER}"


@checks.verdict
def check_block(source: str) -> Iterator[str]:
    """Lesson 02, exercise 2: C = A B, each work-item a block of 2 x 2 that loads each of its numbers once."""
    yield checks.judge_in_subprocess(judge_block, source=source)


# ------------------------------------------------------------------------------------------------------ its figures


def blocks(steps: Mapping[str, tuple[int, int]], size: int, title: str) -> None:
    """Draw what a block of C = A B needs: some rows of A and as many columns of B as the block has.

    Args:
        steps: for each step the rows and the columns of C that are computed together.
        size: rows and columns of the matrices.
        title: the message of the figure.
    """
    from matplotlib.patches import Rectangle

    words = []
    with figure(7.5, 2.9, ncols=len(steps)) as (drawn, axes):
        for panel, (name, (rows, columns)) in zip(axes, steps.items(), strict=True):
            gap, top, left = size * 0.25, 0.4 * size, 0.3 * size
            matrices = {"A": (0, size + gap), "B": (size + gap, 0), "C": (size + gap, size + gap)}
            needed = {"A": (0, top, size, rows), "B": (left, 0, columns, size), "C": (left, top, columns, rows)}
            for matrix, (x, y) in matrices.items():
                right, down, wide, high = needed[matrix]
                colour = BLUE if matrix == "C" else ORANGE
                panel.add_patch(Rectangle((x, y), size, size, facecolor="none", edgecolor=GREY))
                panel.add_patch(Rectangle((x + right, y + down), wide, high, facecolor=colour, edgecolor=colour))
                panel.text(x + 2, y + size - 2, matrix, fontsize=10, va="bottom")
            loads = (rows + columns) / (rows * columns)
            panel.set_title(f"{name}\n{rows} x {columns}: {loads:.2g} loads\nfor one multiply-add", fontsize=9.5)
            panel.set(xlim=(-1, 2 * size + gap + 1), ylim=(2 * size + gap + 1, -1), aspect="equal")
            panel.axis("off")
            words.append(f"{name}: {rows} rows of A and {columns} columns of B, {loads:.2g} loads for one multiply-add")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}. {'; '.join(words)}.")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share > 0.1 else f"{100 * share:.1g} %"


def roofline(
    points: Mapping[str, tuple[float, float]], bandwidth: float, ceilings: Mapping[str, float], title: str,
    must_move: float | None = None,
) -> None:  # fmt: skip
    """Draw how fast each program is under the device's measured ceilings (Williams, Waterman, Patterson, 2009).

    The roofline's own axis counts the bytes that reach memory. They lie between two bounds: those that must (each
    matrix once), drawn filled, and those that the kernel asks for, drawn hollow.

    Args:
        points: for each program the operations for each byte that it asks of global memory, and its GFLOP/s.
        bandwidth: what the device's memory delivers, in GB/s.
        ceilings: what arithmetic delivers, in GFLOP/s: first the peak, then lower marks, which are dashed.
        title: the message of the figure, with the device.
        must_move: the operations for each byte that has to move; as many as are asked for if None.

    It also prints which points lie above the flat roof: the roof was measured too low then.
    """
    looks = ((ORANGE, "o"), (SKY, "v"), (PINK, "^"), (GREEN, "D"), (BLUE, "s"), (RED, "P"))
    peak = next(iter(ceilings.values()))
    ridge = peak / bandwidth
    reach = [ridge, *(asked for asked, _ in points.values()), must_move or ridge]
    left, right = min(reach) / 4, max(reach) * 4
    with figure(7.5, 5) as (drawn, axes):
        axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color="black", lw=1.6)
        axes.annotate(f"{next(iter(ceilings))}: {peak:.3g} GFLOP/s", (right, peak), xytext=(0, 9),
                      textcoords="offset points", ha="right", va="bottom", fontsize=9)  # fmt: skip
        for name, speed in list(ceilings.items())[1:]:
            axes.axhline(speed, color="black", lw=1, ls="--", label=f"{name}: {speed:.3g} GFLOP/s")
        middle = (left * ridge) ** 0.5
        axes.annotate(f"memory: {bandwidth:.3g} GB/s", (middle, middle * bandwidth), xytext=(-8, 4), fontsize=9,
                      textcoords="offset points", ha="right", va="bottom")  # fmt: skip
        for (name, (asked, speed)), (colour, marker) in zip(points.items(), looks, strict=False):
            label = f"{name}: {speed:.3g} GFLOP/s, {_percent(speed / peak)} of the peak"
            must = must_move or asked
            axes.plot([asked, must], [speed, speed], color=colour, lw=1, alpha=0.6)
            axes.plot(asked, speed, color=colour, marker=marker, ms=8, mfc="white", ls="")
            axes.plot(must, speed, color=colour, marker=marker, ms=9, ls="", label=label)
        axes.set(xscale="log", yscale="log", xlim=(left, right), title=title, ylabel="speed (GFLOP/s)")
        axes.set(xlabel="operations for each byte (FLOP/byte); filled: bytes that must move, hollow: bytes asked for")
        lowest = min([left * bandwidth, *ceilings.values(), *(speed for _, speed in points.values())])
        axes.set_ylim(lowest / 2.5, 3 * max(peak, *(speed for _, speed in points.values())))
        drawn.legend(loc="outside lower center", ncols=2)
    words = "; ".join(
        f"{name}: {speed:.3g} GFLOP/s at {asked:.3g} FLOP/byte" for name, (asked, speed) in points.items()
    )
    words += f" of the bytes asked for; {must_move:.3g} of those that must move" if must_move else ""
    roofs = ", ".join(f"{name} {speed:.3g} GFLOP/s" for name, speed in ceilings.items())
    show(drawn, f"{title}. Ceilings: memory {bandwidth:.3g} GB/s, {roofs}. {words}.")
    if above := [name for name, (_, speed) in points.items() if speed > peak]:
        print(
            f"Above the roof: {', '.join(above)}. The roof was measured too low, perhaps because other programs used "
            "the device: run the cells from `def measure_peak` down to this one again."
        )


def panels(rows: int, columns: int, width: int, title: str) -> None:
    """Draw a matrix in memory, row after row, and packed into panels, with the place of every element.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        width: columns of a panel; the last panel is filled up with zeros.
        title: the message of the figure.
    """
    from matplotlib.patches import Rectangle

    number = round_up(columns, width) // width
    with figure(7.5, 3.1, ncols=2, width_ratios=(columns, number * (width + 0.7))) as (drawn, (before, after)):

        def cell(panel: object, x: float, y: float, place: int, which: int, exists: bool) -> None:
            colour = (ORANGE, SKY, GREEN, PINK)[which % 4] if exists else "white"
            hatch = "" if exists else "///"
            panel.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white" if exists else GREY,
                                      hatch=hatch, lw=1))  # fmt: skip
            if exists:
                panel.text(x + 0.5, y + 0.5, str(place), ha="center", va="center", fontsize=9)

        for row in range(rows):
            for column in range(columns):
                cell(before, column, row, row * columns + column, column // width, True)
            for column in range(number * width):
                which, inside = divmod(column, width)
                place = (which * rows + row) * width + inside
                cell(after, column + 0.7 * which, row, place, which, column < columns)
        before.set(xlim=(-0.1, columns + 0.1), title=f"B, {rows} x {columns}: row after row")
        after.set(xlim=(-0.1, number * (width + 0.7)), title="packed: panel after panel (hatched: zeros)")
        for panel in (before, after):
            panel.set(ylim=(rows + 0.1, -0.1), aspect="equal")
            panel.axis("off")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    jumps = ", ".join(str(row * columns) for row in range(rows))
    show(
        drawn,
        f"{title}. The number in each element is its place in memory. In B the rows of the first panel begin at the "
        f"places {jumps}; packed, they begin at {', '.join(str(row * width) for row in range(rows))}.",
    )


def gains(runs: Sequence[timing.Measurement], size: int, title: str) -> str:
    """Draw the speed of programs that differ by one change each, and what every change brought.

    Args:
        runs: what was measured of the product of two matrices, each one change after the one before.
        size: rows and columns of the matrices.
        title: the message of the figure, with the device.

    Returns:
        A sentence with the largest gain, and the changes of which the noise allows no claim.
    """
    speeds = [2 * size**3 / run.median / 1e9 for run in runs]
    factors = [now / before for before, now in itertools.pairwise(speeds)]
    clear = [timing.is_clear(before, now) for before, now in itertools.pairwise(runs)]
    notes = [f" (x {factor:.3g})" if sure else " (noisy)" for factor, sure in zip(factors, clear, strict=True)]
    names = [run.label for run in runs]
    ways = {
        run.label: tuple(2 * size**3 / seconds / 1e9 for seconds in (run.quartiles[1], run.median, run.quartiles[0]))
        for run in runs
    }
    xlabel = f"speed for {size:,} x {size:,} in GFLOP/s; in brackets, times the point above"
    show(*plots.speeds(ways, title, xlabel, logarithmic=True, notes=dict(zip(names[1:], notes, strict=True))))
    changes = list(zip(factors, clear, (run.label for run in runs[1:]), strict=True))
    unsure = "; ".join(label for _, sure, label in changes if not sure)
    if not any(clear):
        return "All too noisy for a claim: run this cell again."
    factor, label = max((factor, label) for factor, sure, label in changes if sure)
    said = f"The largest gain: {label} (x {factor:.3g})."
    return said + (f" Too noisy for a claim: {unsure}. Run this cell again." if unsure else "")


def ways(runs: Mapping[tuple[str, str], timing.Measurement], title: str) -> None:
    """Draw how long each kernel takes against how many ways its data ask for.

    Args:
        runs: for each line's name and number of ways (`8 ways`) what was measured there.
        title: the message of the figure, with the device.
    """
    series: dict[str, list[tuple[str, timing.Measurement]]] = {}
    for (name, count), run in runs.items():
        series.setdefault(name, []).append((count, run))
    plots.time_against_size(series, title, "what occurs in the data", logarithmic=False)


# ---------------------------------------------------------------------------------------------------- its machinery


AWKWARD = ((1, 1, 1), (17, 17, 17), (5, 40, 33), (250, 250, 250), (1000, 1000, 1000))  # rows, columns, inner size
TRACED = 96  # rows of the matrices whose accesses are counted


def round_up(number: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `number` (lesson 01, exercise 1)."""
    return -(-number // step) * step


RUNG = """
__kernel void rung(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    int row = get_global_id(0) * ROWS, column = get_global_id(1) * VECTORS * WIDTH;
    int stride = PACKED ? VECTORS * WIDTH : n;  // from a row of B to the next one
    __global const float *first = b + (PACKED ? column * k : column);
    VECTOR sums[ROWS][VECTORS][CHAINS] = {{{0}}};
    for (int i = 0; i < k; i += CHAINS) {
        #pragma unroll
        for (int chain = 0; chain < CHAINS; chain++) {
            #pragma unroll
            for (int x = 0; x < VECTORS; x++) {
                VECTOR piece = VLOAD(x, first + (i + chain) * stride);
                #pragma unroll
                for (int y = 0; y < ROWS; y++) {
                    sums[y][x][chain] += a[(row + y) * k + i + chain] * piece;
                }
            }
        }
    }
    #pragma unroll
    for (int y = 0; y < ROWS; y++) {
        #pragma unroll
        for (int x = 0; x < VECTORS; x++) {
            VECTOR sum = 0;
            #pragma unroll
            for (int chain = 0; chain < CHAINS; chain++) {
                sum += sums[y][x][chain];
            }
            VSTORE(sum, x, c + (row + y) * n + column);
        }
    }
}
__kernel void pack(__global const float *b, __global float *panels, int n, int k) {
    int panel = get_global_id(0), i = get_global_id(1);
    for (int j = 0; j < VECTORS * WIDTH; j++) {
        panels[(panel * k + i) * VECTORS * WIDTH + j] = b[i * n + panel * VECTORS * WIDTH + j];
    }
}
"""


def rung(
    queue: cl.CommandQueue, width: int, rows: int = 1, vectors: int = 1, sums: int = 1, packed: bool = False
) -> Launch:
    """Compile a kernel between step 1 and step 4, without guards, and return its launch.

    Args:
        queue: for the launch.
        width: floats of a vector: 2, 4, 8 or 16.
        rows: of the block of C that a work-item computes; they must divide the rows of C.
        vectors: of each row of the block; `vectors * width` must divide the columns of C.
        sums: partial sums of each vector of C, which need not wait for each other; they must divide the inner size.
        packed: whether B is packed into panels first.
    """
    import pyopencl as cl

    names = {"ROWS": rows, "VECTORS": vectors, "CHAINS": sums, "PACKED": int(packed), "WIDTH": width}
    names |= {"VECTOR": f"float{width}", "VLOAD": f"vload{width}", "VSTORE": f"vstore{width}"}
    defined = "".join(f"#define {name} {value}\n" for name, value in names.items())
    program = opencl.build(queue.context, defined + RUNG)
    pack, multiply = cl.Kernel(program, "pack"), cl.Kernel(program, "rung")
    kept: dict[tuple[int, int], cl.Buffer] = {}  # the panels of each size

    def launch(a: cl.Buffer, b: cl.Buffer, c: cl.Buffer, m: int, n: int, k: int) -> None:
        across = n // (vectors * width)
        if packed:
            if (n, k) not in kept:
                kept[n, k] = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * n * k)
            pack(queue, (across, k), None, b, kept[n, k], np.int32(n), np.int32(k))
            b = kept[n, k]
        multiply(queue, (m // rows, across), None, a, b, c, np.int32(m), np.int32(n), np.int32(k))

    return launch


def _one_thread() -> AbstractContextManager | None:
    """Within it NumPy multiplies matrices with one thread; None where it has one, or its threads cannot be counted."""
    try:
        from threadpoolctl import threadpool_info, threadpool_limits
    except ImportError:
        return None
    many = any(pool["user_api"] == "blas" and pool["num_threads"] > 1 for pool in threadpool_info())
    return threadpool_limits(1, user_api="blas") if many else None


class MatmulBenchmark:
    """Two random matrices in NumPy and on the device, and what was measured with them."""

    def __init__(self, queue: cl.CommandQueue, size: int) -> None:
        self.queue = queue
        self.size = size  # rows and columns of the matrices
        self.device = opencl.name(queue.device)
        self.random = np.random.default_rng(0)
        self.a, self.b = self.random.standard_normal((2, size, size), dtype=np.float32)
        self.buffers = [self.copied(self.a), self.copied(self.b), self.copied(np.zeros_like(self.a))]  # A, B and C
        self.runs: dict[object, timing.Measurement] = {}  # by label
        self.traces: dict[str, trace.Trace] = {}  # by label
        self.numpy_alone = False  # whether NumPy is faster with one thread

    def copied(self, array: np.ndarray) -> cl.Buffer:
        """Return a buffer on the device with a copy of `array`."""
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=array)

    def product(self, launch: Launch, left: np.ndarray, right: np.ndarray, spoilt: bool = True) -> np.ndarray:
        """Multiply two float32 arrays of shapes (m, k) and (k, n) on the device, copies included.

        Args:
            launch: queues the product.
            left: the first array.
            right: the second array.
            spoilt: whether the result's buffer is filled with NaN before, so that an element that is never written
                shows; a copy more, so not while the time is taken.
        """
        import pyopencl as cl

        result = np.full((len(left), right.shape[1]), np.nan, np.float32) if spoilt else None
        if result is None:
            result = np.empty((len(left), right.shape[1]), np.float32)
            buffer = cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, result.nbytes)
        else:
            buffer = self.copied(result)
        try:
            launch(self.copied(left), self.copied(right), buffer, *result.shape, len(right))
        except (cl.Error, TypeError) as error:
            raise self._not_started(error) from None
        cl.enqueue_copy(self.queue, result, buffer)
        return result

    def _not_started(self, error: Exception) -> WorkshopError:
        """Return what is told when a kernel cannot be put into the queue; macOS' processor takes groups of one row."""
        why = str(error).strip().splitlines()[0]
        if "INVALID_WORK_GROUP_SIZE" in why or "INVALID_WORK_ITEM_SIZE" in why:
            most = " x ".join(str(items) for items in self.queue.device.max_work_item_sizes)
            why += f"; a work-group of this device may have {self.queue.device.max_work_group_size} work-items, {most}."
            advice = "If the work-items are a multiple of the work-group: python3 workshop.py devices names the others."
            return WorkshopError("The kernel could not be started.", why, advice)
        return WorkshopError(
            "The kernel could not be started.", why,
            "Look at the launch: every parameter needs its argument, in the kernel's order and of its type.",
        )  # fmt: skip

    def test(self, launch: Launch, sizes: Sequence[tuple[int, int, int]] = AWKWARD) -> None:
        """Compare with NumPy in double precision for sizes (rows, columns, inner size), and print which are right."""
        verdicts = []
        for m, n, k in sizes:
            left = self.random.standard_normal((m, k), dtype=np.float32)
            right = self.random.standard_normal((k, n), dtype=np.float32)
            actual, exact = self.product(launch, left, right), left.astype(float) @ right
            # A sum of k float32 products of normal numbers is off by about 1e-7 times the root of k.
            good = np.allclose(actual, exact, rtol=1e-4, atol=1e-5 * np.sqrt(k))
            verdicts.append(f"{m} x {k} by {k} x {n}: {'right' if good else 'WRONG'}")
        print("\n".join(verdicts))

    def measure(self, label: object, launch: Launch, repeats: int = 5, shown: bool = True) -> None:
        """Time the product of the two matrices, which lie on the device already, and keep it under `label`."""
        self.runs[label] = timing.measure(
            lambda: launch(*self.buffers, self.size, self.size, self.size),
            label=str(label), device=self.device, on=self.queue, repeats=repeats, warmup=1,
            settle=timing.SETTLE,  # `test` uses NumPy
        )  # fmt: skip
        if shown:
            self.report(label)

    def measure_interleaved(self, launches: Mapping[object, Launch], repeats: int = 5) -> list[timing.Measurement]:
        """Time several products of the two matrices interleaved, keep them under their labels, and return them."""
        import pyopencl as cl

        jobs = {
            label: lambda launch=launch: launch(*self.buffers, self.size, self.size, self.size)
            for label, launch in launches.items()
        }
        time.sleep(timing.SETTLE)  # `test` uses NumPy
        try:
            runs = timing.measure_interleaved(jobs, self.device, repeats, on=self.queue)
        except cl.Error as error:
            raise self._not_started(error) from None
        self.runs |= runs
        return list(runs.values())

    def speeds(self, label: object) -> str:
        """The speed of what was measured under `label`, and between what half of its runs lay, in GFLOP/s."""
        low, high = (self._speed(seconds) for seconds in reversed(self.runs[label].quartiles))
        return f"{self.gflops(label):.3g} ({low:.3g} to {high:.3g})"

    def measure_numpy(self, repeats: int = 15) -> None:
        """Time NumPy's product of the two matrices with all its threads and with one; keep the faster under "NumPy".

        On a busy machine the threads wait for each other at the end of every piece: on 2 cores with other work,
        OpenBLAS was seen at 1.9 GFLOP/s with 2 threads and at 41.7 with one.
        """
        runs = [timing.measure(lambda: self.a @ self.b, label="NumPy", device=cpu_name(), repeats=repeats)]
        if limit := _one_thread():
            with limit:
                alone = timing.measure(
                    lambda: self.a @ self.b, label="NumPy (one thread)", device=cpu_name(), repeats=min(repeats, 5),
                    warmup=1, settle=timing.SETTLE,
                )  # fmt: skip
            runs.append(alone)
        together, best = runs[0], min(runs, key=lambda run: run.median)
        self.numpy_alone = best is not together
        self.runs["NumPy"] = best
        self.report("NumPy")
        if self.numpy_alone and timing.is_clear(together, best):
            print(
                f"With all its threads NumPy reached only {self._speed(together.median):.3g} GFLOP/s. Probably other "
                "programs have the cores: close them and run this cell again."
            )

    def numpy_threads(self) -> AbstractContextManager:
        """Within it NumPy has as many threads as the faster run of `measure_numpy` had."""
        return (_one_thread() if self.numpy_alone else None) or nullcontext()

    def report(self, label: object) -> None:
        """Print the speed of what was measured under `label`, and between what half of its runs lay."""
        speed, spread = self.speeds(label).removesuffix(")").split(" (")
        run = self.runs[label]
        print(f"{run.label}: {speed} GFLOP/s (middle half of the runs: {spread}) on {run.device}")

    def _speed(self, seconds: float) -> float:
        return 2 * self.size**3 / seconds / 1e9

    def gflops(self, label: object) -> float:
        """The speed of what was measured under `label`: 2 size**3 operations, in 10**9 a second."""
        if label not in self.runs:
            raise WorkshopError(
                f"{label} is not measured yet.", "This cell compares with it.", "Run the cells above this one first."
            )
        return self._speed(self.runs[label].median)

    def trace(self, label: str, source: str, kernel: str, work_items: tuple[int, int], group: tuple[int, int]) -> None:
        """Count what `kernel` touches when it multiplies matrices of TRACED rows and columns; keep it under `label`.

        Args:
            label: the name of the step.
            source: OpenCL C.
            kernel: the kernel's name; its parameters are A, B (or panels of it), C, m, n, k.
            work_items: how many it takes for that size, in both dimensions.
            group: the work-group.
        """
        a, b, c = np.zeros((3, TRACED * TRACED * 2), np.float32)  # twice, for panels are filled up with zeros
        sizes = [np.int32(TRACED)] * 3
        traced = opencl.Kernel(source, kernel, self.queue.device)
        self.traces[label] = trace.record(traced, work_items, group, [a, b, c, *sizes])

    def flop_per_byte(self, label: str) -> float:
        """Operations for each byte that the traced kernel asked of global memory."""
        return 2 * TRACED**3 / float(self.traces[label].global_bytes.sum())

    def counts(self) -> Table:
        """What each traced kernel asks of global and of local memory for one multiply-add."""
        rows = [
            (
                label,
                f"{traced.global_accesses.sum() / TRACED**3:.3f}",
                f"{traced.local_accesses.sum() / TRACED**3:.3f}",
                f"{self.flop_per_byte(label):.2f}",
            )
            for label, traced in self.traces.items()
        ]
        once = "for one multiply-add"
        return Table(rows, ("step", f"global accesses {once}", f"local accesses {once}", "FLOP per byte asked"))

    def points(self) -> dict[str, tuple[float, float]]:
        """For `lesson_02.roofline`: of each label that was traced and measured, its FLOP per byte and its GFLOP/s."""
        return {label: (self.flop_per_byte(label), self.gflops(label)) for label in self.traces}
