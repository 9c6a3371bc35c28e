"""Lesson 02b's product for a GPU, programs/02b-gpu.cl: its numbers and its launch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.errors import WorkshopError
from helpers.lessons import lesson_02b_race
from helpers.lessons.lesson_02 import round_up

if TYPE_CHECKING:
    import pyopencl as cl

    from helpers.lessons.lesson_02 import Launch, MatmulBenchmark

SOURCE = Path(__file__).parent / "programs" / "02b-gpu.cl"


@dataclass(frozen=True)
class Shape:
    """The numbers that the kernel is built with.

    Raises:
        ValueError: the kernel has no such shape: `sums` must be a multiple of 4, `depth` and the work-items beside each
            other multiples of 8, and each work-item must load as many float4 of a slab as every other.
    """

    tile: int  # rows and columns of C that a work-group computes
    depth: int  # columns of A and rows of B that it holds in local memory at once: one slab
    sums: int  # rows and columns of C that a work-item computes
    buffers: int = 2  # slabs in local memory: with 2, the group waits once for each slab, otherwise twice

    def __post_init__(self) -> None:
        fits = self.sums % 4 == 0 and self.depth % 8 == 0 and self.tile % (8 * self.sums) == 0
        if not fits or self.tile * self.depth % (4 * self.items) or self.buffers not in (1, 2):
            raise ValueError(f"the kernel cannot be built with {self}")

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return (self.tile // self.sums) ** 2

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory that a work-group needs."""
        return 4 * self.buffers * self.depth * (2 * self.tile + 4)

    def __str__(self) -> str:
        buffers = f"{self.buffers} buffer{'s' if self.buffers > 1 else ''}"
        return f"tile {self.tile} x {self.tile} x {self.depth}, {self.sums} x {self.sums} sums, {buffers}"


# For large GPUs first, then for GPUs with fewer registers or less local memory.
SHAPES = (
    Shape(128, 8, 8, 2),
    Shape(128, 8, 8, 1),
    Shape(128, 16, 8, 1),
    Shape(64, 8, 8, 2),
    Shape(64, 16, 8, 1),
    Shape(64, 16, 4, 2),
    Shape(64, 16, 4, 1),
    Shape(32, 8, 4, 2),
)


def list_shapes(device: cl.Device) -> list[Shape]:
    """Return those of SHAPES whose work-group and local memory fit the device."""
    return [
        shape
        for shape in SHAPES
        if shape.items <= device.max_work_group_size and shape.local_bytes <= device.local_mem_size
    ]


def write_source(shape: Shape) -> str:
    """Return the OpenCL C of the kernels `multiply` and `fit` with the numbers of a shape."""
    defined = {"TILE": shape.tile, "DEPTH": shape.depth, "SUMS": shape.sums, "BUFFERS": shape.buffers}
    lines = [f"#define {name} {number}\n" for name, number in defined.items()]
    return "".join(lines) + SOURCE.read_text(encoding="utf-8")


def make_product(queue: cl.CommandQueue, shape: Shape) -> Launch:
    """Compile the kernel and return its launch, which returns the event of the last kernel it queues.

    Matrices whose sizes are no multiples of the tile and the depth are copied into larger ones with zeros first, and C
    is copied out of a larger one. The copies count as part of the launch. Their buffers are kept for the next launch.

    Raises:
        KernelError: the device's compiler refuses the kernel.
    """
    import pyopencl as cl

    program = opencl.build(queue.context, write_source(shape))
    multiply, fit = cl.Kernel(program, "multiply"), cl.Kernel(program, "fit")
    kept: dict[tuple[str, int], cl.Buffer] = {}

    def get_room(name: str, rows: int, columns: int) -> cl.Buffer:
        key = name, rows * columns
        if key not in kept:
            kept[key] = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * rows * columns)
        return kept[key]

    def enlarge(name: str, matrix: cl.Buffer, size: tuple[int, int], new: tuple[int, int]) -> cl.Buffer:
        """Return the matrix, or a larger one with zeros below and beside it; sizes are rows and columns."""
        if size == new:
            return matrix
        larger = get_room(name, *new)
        fit(queue, (new[1], new[0]), None, matrix, larger, *map(np.int32, (*size, new[1])))
        return larger

    def launch(a: cl.Buffer, b: cl.Buffer, c: cl.Buffer, m: int, n: int, k: int) -> cl.Event:
        rows, columns, inner = round_up(m, shape.tile), round_up(n, shape.tile), round_up(k, shape.depth)
        a = enlarge("a", a, (m, k), (rows, inner))
        b = enlarge("b", b, (k, n), (inner, columns))
        product = c if (rows, columns) == (m, n) else get_room("c", rows, columns)
        items = columns // shape.tile * shape.items, rows // shape.tile
        done = multiply(queue, items, (shape.items, 1), a, b, product, np.int32(columns), np.int32(inner))
        if product is not c:
            done = fit(queue, (n, m), None, product, c, np.int32(rows), np.int32(columns), np.int32(n))
        return done

    return launch


def find_products(bench: MatmulBenchmark) -> dict[str, Launch]:
    """Return the launch of each shape that fits the device and multiplies the benchmark's matrices as NumPy does.

    The others are left out, and printed with the reason.
    """
    found = {}
    for shape in list_shapes(bench.queue.device):
        try:
            launch = make_product(bench.queue, shape)
            lesson_02b_race.refuse_wrong(bench, launch)
        except WorkshopError as error:
            print(f"{shape}: left out. {error.what} {error.why}")
            continue
        found[str(shape)] = launch
    return found
