"""Lesson 02b, Make the product fast: its kernels, its tuner, and the checks of its exercises."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import without_comments
from helpers.errors import WorkshopError
from helpers.judge import checks, kernel_checks
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.second_opinion import UNOPTIMIZED
from helpers.lessons import lesson_02b_tuner

if TYPE_CHECKING:
    import pyopencl as cl

BLOCK = """
__kernel void product(__global const float *a, __global const vector *b, __global vector *c, int n, int k) {
    int row = get_global_id(1) * ROWS, column = get_global_id(0) * VECTORS;
    vector sums[ROWS][VECTORS], of_b[VECTORS];
    #pragma unroll
    for (int y = 0; y < ROWS; y++) {
        #pragma unroll
        for (int x = 0; x < VECTORS; x++) {
            sums[y][x] = 0;
        }
    }
    for (int i = 0; i < k; i++) {
        #pragma unroll
        for (int x = 0; x < VECTORS; x++) {
            of_b[x] = B(i, x);
        }
        #pragma unroll
        for (int y = 0; y < ROWS; y++) {
            float of_a = A(y, i);
            #pragma unroll
            for (int x = 0; x < VECTORS; x++) {
                sums[y][x] += of_a * of_b[x];
            }
        }
    }
    #pragma unroll
    for (int y = 0; y < ROWS; y++) {
        #pragma unroll
        for (int x = 0; x < VECTORS; x++) {
            C(y, x) = sums[y][x];
        }
    }
}
"""
# One work-item copies one panel. In the matrix, j and j + 1 lie `next` numbers apart, i and i + 1 `step`.
PACK = """
__kernel void pack(__global const float *from, __global float *panels, int k, int width, int next, int step) {
    int first = get_global_id(0) * width;  // the panel's first column of B, or row of A
    for (int i = 0; i < k; i++) {
        for (int j = 0; j < width; j++) {
            panels[first * k + i * width + j] = from[(first + j) * next + i * step];
        }
    }
}
"""


# Where A and B lie in their rows, and where they lie in panels.
READ_ROWS = """#define A(y, i) a[(row + (y)) * k + (i)]
#define B(i, x) b[(i) * (n / WIDTH) + column + (x)]
"""
READ_PANELS = """#define A(y, i) a[row * k + (i) * ROWS + (y)]
#define B(i, x) b[column * k + (i) * VECTORS + (x)]
"""


class Candidate(NamedTuple):
    """The numbers that the block's kernel is built with."""

    rows: int  # of C in a block
    vectors: int  # beside each other in a row of a block
    width: int  # floats of a vector
    packed: bool  # are A and B packed first

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.vectors} x float{self.width}{', packed' if self.packed else ''}"


def write_numbers(rows: int, vectors: int, width: int, packed: bool) -> str:
    """Return the lines that give a kernel its numbers and its macros; a vector of one float is a float.

    >>> print(write_numbers(LARGEST, 2, 8, packed=False))
    #define ROWS 6
    #define VECTORS 2
    #define WIDTH 8
    typedef float8 vector;
    #define A(y, i) a[(row + (y)) * k + (i)]
    #define B(i, x) b[(i) * (n / WIDTH) + column + (x)]
    #define C(y, x) c[(row + (y)) * (n / WIDTH) + column + (x)]
    <BLANKLINE>
    """
    vector = f"float{width}" if width > 1 else "float"
    lines = f"#define ROWS {rows}\n#define VECTORS {vectors}\n#define WIDTH {width}\ntypedef {vector} vector;\n"
    store = "#define C(y, x) c[(row + (y)) * (n / WIDTH) + column + (x)]\n"
    return lines + (READ_PANELS if packed else READ_ROWS) + store


def make_packer(queue: cl.CommandQueue, size: int) -> Callable[..., tuple[cl.Buffer, cl.Buffer]]:
    """Return a function that packs two matrices of `size` rows and columns on the device, and returns their panels.

    It takes the buffers of A and B, and the rows and columns of a block. All calls write the same two panels.
    """
    import pyopencl as cl

    kernel = cl.Kernel(opencl.build(queue.context, PACK), "pack")
    of_a, of_b = (cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * size**2) for _ in range(2))

    def pack_both(a: cl.Buffer, b: cl.Buffer, rows: int, columns: int) -> tuple[cl.Buffer, cl.Buffer]:
        kernel(queue, (size // rows,), (1,), a, of_a, *map(np.int32, (size, rows, size, 1)))
        kernel(queue, (size // columns,), (1,), b, of_b, *map(np.int32, (size, columns, 1, size)))
        return of_a, of_b

    return pack_both


# ------------------------------------------------------------------------------------------------- the block's check


@checks.print_verdict
def check_block(source: str) -> Iterator[str]:
    """Lesson 02b, exercise 1: C = A B, each work-item a block that loads each of its numbers once."""
    yield checks.keep_right("block", source, checks.judge_in_subprocess(judge_block, source=source))


# The vectors of one float are recorded, since a trace counts elements.
LARGEST = 6
SHAPES = (
    *(Candidate(2, 3, 1, packed=False), Candidate(3, 1, 4, packed=True)),
    *(Candidate(1, 2, 8, packed=False), Candidate(LARGEST, 2, 8, packed=True)),
)


def judge_block(source: str) -> str:
    """Judge the kernel of exercise 1, with several blocks; called in a subprocess."""
    if not isinstance(source, str) or not source.strip():
        raise NotDone("there is no kernel yet.")
    for shape in SHAPES:
        rows, vectors, width, packed = shape
        kernel = kernel_checks.build(write_numbers(*shape) + source, "product")
        try:
            if width == 1:
                _judge_loads(kernel, rows, vectors)
            for m, n, k in (
                (2 * rows, 3 * vectors * width, 3),
                (rows, vectors * width, 1),
                (4 * rows, 32 * vectors, 12_000 if rows == LARGEST else 50),  # more than 16 bits for a place in A
            ):
                _judge_product(kernel, shape, (m, n, k))
        except NotYet as problem:
            where = (
                f"ROWS = {rows}, VECTORS = {vectors}, WIDTH = {width}, {'A and B packed' if packed else 'not packed'}"
            )
            raise NotYet(f"with {where}: {problem}") from None
    if re.search(r"\bvolatile\b", without_comments(source)):
        raise NotYet("C is right, but what is `volatile` must lie in memory, and cannot stay in registers.")
    first, last = SHAPES[0], SHAPES[-1]
    text = without_comments(source)
    loops = re.findall(r"(unroll[^\n]*\s*)?\b((?:for|while)\s*\([^)]*\))", text)
    rolled = [loop for unrolled, loop in loops if not unrolled and not re.search(r"\bk\b", loop)]  # one is over i
    remark = f"; `{rolled[0]}` may be slower without `#pragma unroll`" if rolled else ""
    return (
        f"{len(SHAPES)} blocks, from {first.rows} x {first.vectors} to {last.rows} x {last.vectors * last.width} "
        f"floats, packed and not packed, each number loaded once for each i{remark}; on {opencl.name(kernel.device)}"
    )


def _judge_loads(kernel: opencl.Kernel, rows: int, vectors: int) -> None:
    """Record a small launch; refuse faults, and a work-item that loads a number twice or writes blocks of others."""
    kernel_checks.expect_parameters(kernel, ["float[]", "vector[]", "vector[]", "int", "int"])
    m, n, k = 2 * rows, 2 * vectors, 5
    launch = kernel_checks.describe_launch({"m": m, "n": n, "k": k}, (2, 2), (1, 1))
    given = [*(np.ones(length, np.float32) for length in (m * k, n * k, m * n)), np.int32(n), np.int32(k)]
    traced = kernel_checks.record(kernel, launch, (2, 2), (1, 1), given)
    kernel_checks.expect_writes(traced, launch, kernel)
    kernel_checks.refuse_faults(traced, launch)
    if shared := {touch.array for touch in traced.touches} - set(traced.lengths):
        raise NotYet(
            f"{launch}: `{min(shared)}` lies in local memory; a work-item's own variables can be in registers."
        )
    kernel_checks.refuse_overwork(traced, launch, most=2 * rows * vectors)
    most, found = k * (rows + vectors) + rows * vectors, int(traced.global_accesses.max())
    if found > most:
        busiest = int(traced.global_accesses.argmax())
        stores = sum(touch.writes for touch in traced.touches if touch.item == busiest)
        advice = "Store C once, after the loop." if stores > rows * vectors else "Load each number once."
        raise NotYet(
            f"for k = {k} a work-item accesses global memory {found} times, and {most} are enough: for each i "
            f"{rows} numbers of A and {vectors} vectors of B, and in the end {rows * vectors} vectors of C. {advice}"
        )


def pack(matrix: np.ndarray, width: int) -> np.ndarray:
    """Return the columns of a matrix in panels of `width` columns, as the kernel of lesson 02b packs B.

    >>> pack(np.arange(12).reshape(2, 6), 3).tolist()
    [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]
    """
    k, columns = matrix.shape
    return matrix.reshape(k, columns // width, width).transpose(1, 0, 2).ravel()


def _judge_product(kernel: opencl.Kernel, block: Candidate, size: tuple[int, int, int]) -> None:
    """Judge every element of C, twice on a C that held different things before."""
    m, n, k = size
    rng = kernel_checks.make_generator()
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) / 4 for shape in ((m, k), (k, n)))  # sums of quarters: exact
    results = _multiply_twice(kernel, block, a, b)
    expected = a.astype(float) @ b
    wrong = np.argwhere((results != expected).any(axis=0))
    if not len(wrong):
        return
    row, column = wrong[0]
    launch = kernel_checks.describe_launch({"m": m, "n": n, "k": k}, *_count_items(block, m, n))
    where = f"{launch}: row {row}, column {column} of C"
    factors = f" (A's row {_list_numbers(a[row])}, B's column {_list_numbers(b[:, column])})" if k <= 3 else ""
    if kernel_checks.find_unwritten(*results.view(np.uint32))[row, column]:
        raise NotYet(f"{where}{factors}: expected {expected[row, column]:g}, came nothing: it was never written.")
    actual = results[int(results[0, row, column] == expected[row, column]), row, column]
    text = f"{where}{factors}: expected {expected[row, column]:g}, came {actual:g}."
    if np.isnan(actual) or results[0, row, column] != results[1, row, column]:
        # Intel's driver returns garbage if a sum is replaced (`=`) where it should grow, but not without optimization.
        plain = opencl.Kernel(kernel.source, kernel.name, kernel.device, (UNOPTIMIZED,))
        mistake = _name_mistake(_multiply_twice(plain, block, a, b), block, a, b)
        chance = "It depends on what C held before, or a variable was never set."
        raise NotYet(f"{text} {f'Built without optimization, all of C is as if {mistake}.' if mistake else chance}")
    mistake = _name_mistake(results, block, a, b)
    raise NotYet(f"{text} All of C is as if {mistake}." if mistake else text)


def _count_items(block: Candidate, m: int, n: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the work-items of a launch for C of m rows and n columns, and those of a group, in both dimensions."""
    items = n // (block.vectors * block.width), m // block.rows
    return items, (2, 2) if items[0] % 2 == items[1] % 2 == 0 else (1, 1)  # an id of the group is none of the work-item


def _multiply_twice(kernel: opencl.Kernel, block: Candidate, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return C twice, of shape (2, m, n) in float32: each time, it held something else before."""
    (m, k), n = a.shape, b.shape[1]
    columns = block.vectors * block.width
    names = (parameter.name for parameter in kernel.parameters)
    matrices = (pack(a.T, block.rows), pack(b, columns)) if block.packed else (a.ravel(), b.ravel())
    given = dict(zip(names, matrices, strict=False))
    pad = (m + 2) * max(n, k) * block.width  # a kernel that takes floats for vectors writes so far away
    results = []
    for fill in kernel_checks.FILLS:
        bits = kernel_checks.run_guarded(kernel, given, {"n": n, "k": k}, m * n, *_count_items(block, m, n), fill, pad)
        results.append(bits.view(np.float32).reshape(m, n).copy())
    return np.array(results)


def _name_mistake(results: np.ndarray, block: Candidate, a: np.ndarray, b: np.ndarray) -> str | None:
    """Return the one known mistake that explains all of C, in words that follow "as if"; None if none or several do."""
    same = [name for name, other in _compute_mistakes(a, b, block) if (results == other).all()]
    return same[0] if len(same) == 1 and min(*a.shape, b.shape[1]) > 1 else None


def _list_numbers(numbers: np.ndarray) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _compute_mistakes(a: np.ndarray, b: np.ndarray, block: Candidate) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what C is by a known mistake, in words that follow "as if", and that C; several may be equal."""
    (rows, vectors, width, packed), k = block, b.shape[0]
    columns = vectors * width
    a_in_rows, b_in_rows = pack(a.T, rows).reshape(a.shape), pack(b, columns).reshape(b.shape)
    first_row, first_vector = np.repeat(a[::rows], rows, axis=0), b.reshape(k, -1, vectors, width)
    first_vector = np.repeat(first_vector[:, :, :1], vectors, axis=2).reshape(b.shape)
    if packed:
        yield "A were not packed: read it with `A(y, i)`", a_in_rows @ b
        yield "B were not packed: read it with `B(i, x)`", a @ b_in_rows
        yield "A and B were not packed: read them with `A(y, i)` and `B(i, x)`", a_in_rows @ b_in_rows
    yield "all rows of a block used the number of A's first row", first_row @ b
    yield "all vectors of a block used the first vector of B", a @ first_vector
    yield "the last i were left out", a[:, :-1] @ b[:-1]
    yield "only the last i counted, not the sum", a[:, -1:] @ b[-1:]
    yield "only the first i counted", a[:, :1] @ b[:1]


# ------------------------------------------------------------------------------------------------- the tuner's check


def tune(
    candidates: Sequence[Any], build: Callable[[Any], Any], measure: Callable[[Any], float]
) -> tuple[dict[Any, float], Any, float]:
    """Return the seconds of each candidate that can be built, the fastest one, and its seconds, measured again.

    Args:
        candidates: what to try.
        build: returns what `measure` takes; it raises WorkshopError for a candidate that cannot be built.
        measure: returns seconds.
    """
    seconds, built = {}, {}
    for candidate in candidates:
        try:
            built[candidate] = build(candidate)
        except WorkshopError as error:
            print(f"skipped: {candidate}. {error.what}")
        else:
            seconds[candidate] = measure(built[candidate])
    winner = min(seconds, key=lambda candidate: seconds[candidate])
    return seconds, winner, measure(built[winner])


@checks.print_verdict
def check_tune(learner: Callable[..., object]) -> Iterator[str]:
    """Lesson 02b, exercise 2: keep the fastest candidate of a search, and measure it again; hide no mistake."""
    yield checks.keep_right("tune", learner, lesson_02b_tuner.judge_tuner(learner))
