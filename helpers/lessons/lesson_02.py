"""Lesson 02, Multiply matrices with OpenCL: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks, kernel_checks, opencl, timing
from helpers.errors import WorkshopError
from helpers.lessons.lesson_01 import smooth
from helpers.machine.host import cpu_name
from helpers.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, figure, show
from helpers.tables import Table
from helpers.trace import Trace, record

if TYPE_CHECKING:
    import pyopencl as cl

    # Queues what computes C = A B; takes the buffers of A (m x k), B (k x n), C (m x n), float32 in rows, and m, n, k.
    Launch = Callable[[cl.Buffer, cl.Buffer, cl.Buffer, int, int, int], object]


@checks.verdict
def check_fewest_loads(learner: Callable[[int], float]) -> Iterator[str]:
    """Lesson 02, exercise 1: the fewest loads for one multiply-add of a block that fits into so many registers."""

    def right(registers: int) -> float:
        blocks = ((rows, vectors) for rows in range(1, registers) for vectors in range(1, registers))
        fitting = ((r, v) for r, v in blocks if r * v + v + 1 <= registers)
        return min((r + v) / (r * v) for r, v in fitting)

    yield checks.judge_function(
        learner, right, lambda rng: [(3,), (4,), (16,), (32,), *((int(n),) for n in rng.integers(5, 99, 9))]
    )


@checks.verdict
def check_smooth_locally(source: str) -> Iterator[str]:
    """Lesson 02, exercise 2: `smooth` again, reading each element from global memory once for each work-group."""
    yield checks.judge_in_subprocess(judge_smooth_locally, source=source)


def judge_smooth_locally(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    kernel = kernel_checks.build(source, "smooth")
    right = kernel_checks.judge_kernel(
        kernel, ("float[]",), smooth, radius=1, groups=(64, 16), traced=kernel_checks.WHOLE_GROUPS
    )
    counted = kernel_checks.judge_accesses(kernel, lambda n, groups: 2 * n + 2 * groups - 2)
    return f"{right}; {counted}"


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
    points: Mapping[str, tuple[float, float]], bandwidth: float, ceilings: Mapping[str, float], title: str
) -> None:
    """Draw how fast each program is under the device's measured ceilings (Williams, Waterman, Patterson, 2009).

    Args:
        points: for each program the operations for each byte that it asks of global memory, and its GFLOP/s.
        bandwidth: what the device's memory delivers, in GB/s.
        ceilings: what arithmetic delivers, in GFLOP/s: first the peak, then lower ones, which are dashed.
        title: the message of the figure, with the device.
    """
    looks = ((ORANGE, "o"), (SKY, "v"), (PINK, "^"), (GREEN, "D"), (BLUE, "s"), (RED, "P"))
    peak = next(iter(ceilings.values()))
    ridge = peak / bandwidth
    reach = [ridge, *(x for x, _ in points.values())]
    left, right = min(reach) / 4, max(reach) * 4
    with figure(7.5, 4.8) as (drawn, axes):
        axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color="black", lw=1.6)
        for number, (name, speed) in enumerate(ceilings.items()):
            side = "top" if number else "bottom"
            axes.annotate(f"{name}: {speed:.3g} GFLOP/s", (right, speed), xytext=(0, -3 if number else 2),
                          textcoords="offset points", ha="right", va=side, fontsize=9)  # fmt: skip
            if number:
                axes.plot([speed / bandwidth, right], [speed, speed], color="black", lw=1, ls="--")
        axes.annotate(f"memory: {bandwidth:.3g} GB/s", (left, left * bandwidth), xytext=(2, 40), fontsize=9,
                      textcoords="offset points", va="bottom")  # fmt: skip
        for (name, (x, speed)), (colour, marker) in zip(points.items(), looks, strict=False):
            label = f"{name}: {speed:.3g} GFLOP/s, {_percent(speed / peak)} of the peak"
            axes.plot(x, speed, color=colour, marker=marker, ms=9, ls="", label=label)
        axes.set(xscale="log", yscale="log", xlim=(left, right), title=title)
        axes.set(xlabel="operations for each byte asked of global memory (FLOP/byte)", ylabel="speed (GFLOP/s)")
        lowest = min([left * bandwidth, *ceilings.values(), *(speed for _, speed in points.values())])
        axes.set_ylim(lowest / 2.5, peak * 3)
        drawn.legend(loc="outside lower center", ncols=2)
    words = "; ".join(f"{name}: {speed:.3g} GFLOP/s at {x:.3g} FLOP/byte" for name, (x, speed) in points.items())
    roofs = ", ".join(f"{name} {speed:.3g} GFLOP/s" for name, speed in ceilings.items())
    show(drawn, f"{title}. Ceilings: memory {bandwidth:.3g} GB/s, {roofs}. {words}.")


# ---------------------------------------------------------------------------------------------------- its machinery


AWKWARD = ((1, 1, 1), (17, 17, 17), (5, 40, 33), (250, 250, 250), (1000, 1000, 1000))  # rows, columns, inner size
TRACED = 96  # rows of the matrices whose accesses are counted


def round_up(number: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `number` (lesson 01, exercise 1)."""
    return -(-number // step) * step


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
        self.traces: dict[str, Trace] = {}  # by label

    def copied(self, array: np.ndarray) -> cl.Buffer:
        """Return a buffer on the device with a copy of `array`."""
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=array)

    def product(self, launch: Launch, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Multiply two float32 arrays of shapes (m, k) and (k, n) on the device, copies included.

        The result's buffer holds NaN before, so that an element that is never written shows.
        """
        import pyopencl as cl

        result = np.full((len(left), right.shape[1]), np.nan, np.float32)
        buffer = self.copied(result)
        try:
            launch(self.copied(left), self.copied(right), buffer, *result.shape, len(right))
        except (cl.Error, TypeError) as error:
            raise WorkshopError(
                "The kernel could not be started.",
                str(error).strip().splitlines()[0],
                "Look at the launch: every parameter needs its argument, in the kernel's order and of its type; the "
                "work-items must be a multiple of the work-group.",
            ) from None
        cl.enqueue_copy(self.queue, result, buffer)
        return result

    def test(self, launch: Launch) -> None:
        """Compare with NumPy in double precision for AWKWARD sizes, and print which are right."""
        verdicts = []
        for m, n, k in AWKWARD:
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

    def measure_numpy(self, repeats: int = 15) -> None:
        """Time NumPy's product of the two matrices, and keep it under "NumPy"."""
        self.runs["NumPy"] = timing.measure(lambda: self.a @ self.b, label="NumPy", device=cpu_name(), repeats=repeats)
        self.report("NumPy")

    def report(self, label: object) -> None:
        """Print the speed of what was measured under `label`, and between what half of its runs lay."""
        run = self.runs[label]
        low, high = (self._speed(seconds) for seconds in reversed(run.quartiles))
        speed = f"{self.gflops(label):.3g} GFLOP/s (middle half of the runs: {low:.3g} to {high:.3g})"
        print(f"{label}: {speed} on {run.device}")

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
        self.traces[label] = record(traced, work_items, group, [a, b, c, *sizes])

    def flop_per_byte(self, label: str) -> float:
        """Operations for each byte that the traced kernel asked of global memory."""
        return 2 * TRACED**3 / float(self.traces[label].global_bytes.sum())

    def counts(self) -> Table:
        """What each traced kernel asks of global and of local memory for one multiply-add."""
        rows = [
            (
                label,
                f"{trace.global_accesses.sum() / TRACED**3:.3f}",
                f"{trace.local_accesses.sum() / TRACED**3:.3f}",
                f"{self.flop_per_byte(label):.2f}",
            )
            for label, trace in self.traces.items()
        ]
        once = "for one multiply-add"
        return Table(rows, ("step", f"global accesses {once}", f"local accesses {once}", "FLOP per byte asked"))

    def points(self) -> dict[str, tuple[float, float]]:
        """For `lesson_02.roofline`: of each label that was traced and measured, its FLOP per byte and its GFLOP/s."""
        return {label: (self.flop_per_byte(label), self.gflops(label)) for label in self.traces}
