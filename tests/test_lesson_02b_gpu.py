"""helpers.lessons.lesson_02b_gpu: right on every driver and size, no race, and no more lines and turns than it must."""

import functools
import os
import subprocess
import sys

import numpy as np
import pyopencl as cl
import pytest
import test_simulator

from helpers import ROOT
from helpers.devices import frameworks, opencl
from helpers.judge import counters, opencl_recorder
from helpers.lessons import lesson_02, lesson_02b_gpu
from helpers.lessons.lesson_02b_gpu import SHAPES, Shape

LARGE, SMALL = Shape(128, 8, 8, 2), Shape(64, 16, 4, 1)
SIZES = ((1, 1, 1), (128, 256, 24), (130, 7, 9), (64, 64, 16))  # rows, columns, inner size


def multiply(queue, launch, m, n, k):
    """Return the product of two matrices of small whole numbers, and the right one: exact in any order."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-4, 5, size).astype(np.float32) for size in ((m, k), (k, n)))
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    given = [cl.Buffer(queue.context, flags, hostbuf=matrix) for matrix in (a, b, np.full((m, n), np.nan, np.float32))]
    launch(*given, m, n, k)
    product = np.empty((m, n), np.float32)
    cl.enqueue_copy(queue, product, given[2])
    return product, a.astype(float) @ b


def check_sizes(device, shape, sizes):
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    launch = lesson_02b_gpu.make_product(queue, shape)
    for size in [*sizes, *sizes[:1]]:  # the first one again, in buffers that hold other numbers by then
        product, expected = multiply(queue, launch, *size)
        np.testing.assert_array_equal(product, expected, f"{shape}: {size} on {opencl.name(device)}")


@pytest.mark.parametrize("place", frameworks.opencl_devices())
@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=str)
def test_the_product_is_right_on_every_driver(place, shape):
    device = frameworks.opencl_devices()[place]
    if opencl.find_problem(device):
        pytest.skip(opencl.find_problem(device))
    check_sizes(device, shape, SIZES)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_is_right(shape):
    if shape not in lesson_02b_gpu.list_shapes(opencl.pick_device()):
        pytest.skip("it does not fit this device")
    check_sizes(opencl.pick_device(), shape, [(shape.tile, 2 * shape.tile, 3 * shape.depth), (5, 7, 11)])


@pytest.mark.parametrize("numbers", [(128, 8, 6, 2), (128, 4, 8, 2), (96, 8, 8, 2), (64, 8, 4, 2), (128, 8, 8, 3)])
def test_a_shape_that_the_kernel_does_not_have_is_refused(numbers):
    with pytest.raises(ValueError, match="tile"):
        Shape(*numbers)


def test_shapes_fit_the_device():
    class Limits:
        max_work_group_size, local_mem_size = 64, 8_448

    assert lesson_02b_gpu.list_shapes(Limits) == [
        Shape(64, 8, 8, 2),
        Shape(64, 16, 8, 1),
        Shape(32, 8, 4, 2),
    ]


SECTOR = 32  # bytes that an NVIDIA GPU moves at least: a quarter of its line (CUDA C++ Best Practices Guide, 12.6)
TOGETHER = 32  # work-items that ask at once
ACCESSES = {  # what each access is for, by its text in the kernel: the beginning tells them apart
    "a[": "lines of A",
    "b[": "lines of B",
    "a_tile[0]": "turns to store A's first slab",
    "b_tile[0]": "turns to store B's first slab",
    "a_tile[next]": "turns to store A's slab",
    "b_tile[next]": "turns to store B's slab",
    "((__local": "turns to load A's slab",
    "b_tile[now]": "turns to load B's slab",
    "c[": "lines of C",
}


def count_now(shape, line=SECTOR):
    """Return the lines and turns that one work-group needs for one slab, and the lines of its tile of C.

    Raises ValueError if a work-item has more accesses than a record lists, as with 8 x 8 sums and a depth of 16.
    """
    # Written out, the loops would be recorded at hundreds of places, and compile for half a minute.
    kernel = opencl.Kernel(lesson_02b_gpu.write_source(shape).replace("#pragma unroll", ""), "multiply")
    one, unseen = count_slabs(kernel, shape, 1, line)
    if unseen:
        raise ValueError(f"{shape}: {'; '.join(unseen)}")
    # With more slabs the rows of A lie apart, as they do in a large matrix. A work-item's first two loads are enough.
    several, _ = count_slabs(kernel, shape, 128 // shape.depth, line)
    lines_of_a = next(access.each * access.requests for text, access in several.items() if text.startswith("a["))
    needed = dict.fromkeys(ACCESSES.values(), 0)
    for text, access in one.items():
        (what,) = (what for beginning, what in ACCESSES.items() if text.startswith(beginning))
        needed[what] += round(lines_of_a) if what == "lines of A" else access.needed
    return needed


count_needed = functools.cache(count_now)  # a launch is recorded once for all tests


def count_slabs(kernel, shape, slabs, line):
    """Return the counts of each access of one work-group, by its text, and what the record does not list."""
    inner = slabs * shape.depth
    factors, product = np.ones(shape.tile * inner, np.float32), np.zeros(shape.tile**2, np.float32)
    given = [factors, factors, product, np.int32(shape.tile), np.int32(inner)]
    recorded = opencl_recorder.record(kernel, (shape.items, 1), (shape.items, 1), given)
    return counters.count_accesses(recorded, line, TOGETHER), recorded.unseen


def compute_fewest(shape, line=SECTOR):
    """Return the fewest lines and turns that `count_now` can find, whatever order the work-items have.

    Local memory stores 32 numbers a turn. A work-item loads `sums` numbers of A and of B for each of the `depth`
    products, four at a time, and 32 neighbors need at least one turn for that.
    """
    stored = shape.tile * shape.depth // counters.BANKS
    loaded = shape.items // TOGETHER * shape.depth * shape.sums // 4
    return {
        "lines of A": shape.tile * -(-4 * shape.depth // line),
        "lines of B": shape.depth * -(-4 * shape.tile // line),
        "turns to store A's first slab": stored,
        "turns to store B's first slab": stored,
        "turns to store A's slab": stored,
        "turns to store B's slab": stored,
        "turns to load A's slab": loaded,
        "turns to load B's slab": loaded,
        "lines of C": shape.tile * -(-4 * shape.tile // line),
    }


# Counted by hand for a tile of 128 x 128 x 8: A and B have 1,024 numbers in a slab, 32 sectors of 32 bytes for each 256
# of them; a turn stores 32 numbers; 8 pieces of 32 neighbors x 8 products x 2 float4; C has 65,536 bytes.
BY_HAND = {
    "lines of A": 128,
    "lines of B": 128,
    "turns to store A's first slab": 32,
    "turns to store B's first slab": 32,
    "turns to store A's slab": 32,
    "turns to store B's slab": 32,
    "turns to load A's slab": 128,
    "turns to load B's slab": 128,
    "lines of C": 2_048,
}


def test_it_asks_for_no_more_than_it_must():
    assert count_needed(LARGE) == compute_fewest(LARGE) == BY_HAND
    of_128 = count_needed(LARGE, 128)
    assert of_128 == compute_fewest(LARGE, 128)
    assert (of_128["lines of A"], of_128["lines of B"], of_128["lines of C"]) == (128, 32, 512)


LONG = [shape for shape in SHAPES if shape.depth * shape.sums > 64]  # more accesses of a work-item than are listed


@pytest.mark.slow
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_a_record_that_lacks_accesses_is_not_counted(shape):
    with pytest.raises(ValueError, match="accesses"):
        count_now(shape)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in [LARGE, *LONG]], ids=str)
def test_no_shape_asks_for_more_than_it_must(shape):
    assert count_now(shape) == compute_fewest(shape)


@pytest.mark.slow
def test_a_deeper_slab_asks_twice_for_lines_of_128_bytes():
    """Its 64 bytes of a row of A are loaded in two requests, so that stores of A do not conflict."""
    needed, fewest = (count(SMALL, 128) for count in (count_needed, compute_fewest))
    assert {what for what in needed if needed[what] != fewest[what]} == {"lines of A"}
    assert needed["lines of A"] == 2 * fewest["lines of A"]


def test_counts_tell_a_worse_kernel(monkeypatch, tmp_path):
    """Without the 4 floats beside each row, stores of A conflict; in plain rows of work-items, loads of B need more."""
    worse = tmp_path / "worse.cl"
    source = lesson_02b_gpu.SOURCE.read_text(encoding="utf-8")
    for old, new in (
        ("[TILE + 4]", "[TILE]"),
        ("int x = item % 8 + item / (8 * ACROSS) * 8, y = item / 8 % ACROSS;", "int x = item % 16, y = item / 16;"),
    ):
        assert old in source
        source = source.replace(old, new)
    worse.write_text(source, encoding="utf-8")
    monkeypatch.setattr(lesson_02b_gpu, "SOURCE", worse)
    needed = count_now(LARGE)
    changed = {what: count for what, count in needed.items() if count != BY_HAND[what]}
    stores = {"turns to store A's first slab": 2 * 32, "turns to store A's slab": 2 * 32}
    assert changed == stores | {"turns to load B's slab": 2 * 128}


def count_bytes_and_turns(source, name, items, group, given, multiplications):
    """Return the bytes of sectors, and the turns of 32 work-items, for each multiplication of a launch."""
    accesses = counters.count_accesses(
        opencl_recorder.record(opencl.Kernel(source, name), items, group, given), SECTOR
    ).values()
    moved = sum(access.moved for access in accesses if not access.in_local and not access.writes)
    turns = sum(access.needed for access in accesses if access.in_local)
    return moved / multiplications, 32 * turns / multiplications


def test_it_asks_for_less_than_the_kernels_of_lesson_02():
    k = 16
    factors, product = np.ones(32 * k, np.float32), np.zeros(32 * 32, np.float32)
    given = [factors, factors, product, *map(np.int32, (32, 32, k))]
    naive = count_bytes_and_turns(lesson_02.MULTIPLY, "multiply", (32, 32), (32, 8), given, 32 * 32 * k)
    tiled = count_bytes_and_turns(lesson_02.write_tiled(16), "tiled", (32, 32), (16, 16), given, 32 * 32 * k)
    needed, multiplications = count_needed(LARGE), 128 * 128 * 8
    moved = SECTOR * (needed["lines of A"] + needed["lines of B"]) / multiplications
    each_slab = [count for what, count in needed.items() if what.startswith("turns") and "first" not in what]
    turns = 32 * sum(each_slab) / multiplications
    assert naive == (160 / 32, 0)  # 32 neighbors read one number of A, whose sector has 32 bytes, and 128 bytes of B
    assert tiled == (8 / 16, 2 + 2 / 16)  # each number is used 16 times; a turn for each load and each store
    assert (moved, turns) == (8 / 128, 320 / 4_096)


# ---------------------------------------------------------------------------------------- among other products


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "", ""),
        ("sums[row][block] = 0;", "sums[row][block] = 1;", "wrong"),
        ("int item =", "no_type item =", ""),
    ],
)
def test_only_right_products_are_found(monkeypatch, tmp_path, capsys, old, new, reason):
    changed = tmp_path / "changed.cl"
    source = lesson_02b_gpu.SOURCE.read_text(encoding="utf-8")
    assert old in source
    changed.write_text(source.replace(old, new) if old else source, encoding="utf-8")
    monkeypatch.setattr(lesson_02b_gpu, "SOURCE", changed)
    monkeypatch.setattr(lesson_02b_gpu, "SHAPES", (SMALL,))
    context = cl.Context([opencl.pick_device()])
    found = lesson_02b_gpu.find_products(lesson_02.MatmulBenchmark(cl.CommandQueue(context), 64))
    said = capsys.readouterr().out
    if not old:
        assert list(found) == [str(SMALL)] and not said
        return
    assert not found
    assert f"{SMALL}: left out" in said and reason in said


# -------------------------------------------------------------------------------------------------------- Oclgrind

LAUNCH = """
import numpy as np, sys
import pyopencl as cl
from pathlib import Path
from helpers.devices import opencl
from helpers.lessons import lesson_02b_gpu
sys.path.insert(0, "tests")
from test_lesson_02b_gpu import multiply
lesson_02b_gpu.SOURCE = Path(sys.argv[1])
context = cl.Context([opencl.pick_device()])
queue = cl.CommandQueue(context)
for shape in map(lesson_02b_gpu.SHAPES.__getitem__, map(int, sys.argv[2:])):
    launch = lesson_02b_gpu.make_product(queue, shape)
    for size in ((shape.tile, 2 * shape.tile, 3 * shape.depth), (3, shape.tile + 1, 17)):
        product, expected = multiply(queue, launch, *size)
        print(shape, "right" if (product == expected).all() else "wrong")
"""


def run_under_oclgrind(source, *shapes):
    variables = {**os.environ, **test_simulator.VARIABLES, "OCLGRIND_DATA_RACES": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LAUNCH, str(source), *map(str, shapes)]
    ended = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.skipif(not test_simulator.VARIABLES, reason="Oclgrind is not installed: apt install oclgrind")
def test_no_work_items_race_and_none_leaves_its_memory():
    said = run_under_oclgrind(lesson_02b_gpu.SOURCE, 0, 1, 4)
    assert said.count("right") == 6
    assert "wrong" not in said and "race" not in said and "Invalid" not in said


@pytest.mark.slow
@pytest.mark.skipif(not test_simulator.VARIABLES, reason="Oclgrind is not installed: apt install oclgrind")
@pytest.mark.parametrize(
    ("old", "new", "complaint", "shape"),  # one of the smallest; with two buffers only the first barrier is there
    [
        ("barrier(CLK_LOCAL_MEM_FENCE);  // all have stored", "//", "race", 7),
        ("barrier(CLK_LOCAL_MEM_FENCE);  // all have read", "//", "race", 6),
        ("a_row = number / 2 % TILE", "a_row = number / 2 % TILE + TILE", "Invalid", 7),
    ],
)
def test_oclgrind_tells_what_is_wrong(tmp_path, old, new, complaint, shape):
    source = lesson_02b_gpu.SOURCE.read_text(encoding="utf-8")
    assert old in source
    wrong = tmp_path / "wrong.cl"
    wrong.write_text(source.replace(old, new), encoding="utf-8")
    assert complaint in run_under_oclgrind(wrong, shape)
