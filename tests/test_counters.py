"""helpers.judge.counters: against counts by hand, and against the index arithmetic of a kernel, done in NumPy."""

import numpy as np
import pytest

from helpers.devices import opencl
from helpers.judge import counters, opencl_recorder
from helpers.lessons import lesson_15

pytestmark = pytest.mark.usefixtures("one_context")


def counted(source, name, items, group, arguments, **sizes):
    return counters.count_accesses(
        opencl_recorder.record(opencl.Kernel(source, name), items, group, arguments), **sizes
    )


def floats(n):
    return np.zeros(n, np.float32)


READ = (
    "__kernel void k(__global const {type} *x, __global float *y) {{ int i = get_global_id(0); {before} y[i] = {x}; }}"
)
LOCAL = """__kernel void k(__global const float *x, __global float *y) {{
    __local float part[64 * 33];
    int i = get_local_id(0);
    part[{at}] = i;
    y[i] = x[i];
}}"""
# By hand: kernel, access, work-items of its only group; then requests, needed, fewest, bytes used.
BY_HAND = {
    "neighbors, one line": (READ.format(type="float", before="", x="x[i]"), "x[i]", 32, (1, 1, 1, 128)),
    "two pieces of one group": (READ.format(type="float", before="", x="x[i]"), "x[i]", 64, (2, 2, 2, 256)),
    "every second float": (READ.format(type="float", before="", x="x[2 * i]"), "x[2 * i]", 32, (1, 2, 1, 128)),
    "begins inside a line": (READ.format(type="float", before="", x="x[i + 1]"), "x[i + 1]", 32, (1, 2, 1, 128)),
    "all the same": (READ.format(type="float", before="", x="x[7]"), "x[7]", 32, (1, 1, 1, 4)),
    "bytes": (READ.format(type="uchar", before="", x="x[i]"), "x[i]", 32, (1, 1, 1, 32)),
    "a vector of four is one access": (
        READ.format(type="float", before="", x="vload4(i, x).x"),
        "vload4(i, x)",
        32,
        (1, 4, 4, 512),
    ),
    "a loop: 4 + 3 + 2 + 1": (  # work-item i goes round i % 4 + 1 times; 8 work-items fewer each time
        READ.format(type="float", before="float s = 0; for (int k = 0; k <= i % 4; k++) s += x[32 * k + i];", x="s"),
        "x[32 * k + i]",
        32,
        (4, 4, 4, 320),
    ),
    "a row of local memory": (LOCAL.format(at="i"), "part[i]", 32, (1, 1, 1, 128)),
    "a column of 32 floats a row": (LOCAL.format(at="32 * i"), "part[32 * i]", 32, (1, 32, 1, 128)),
    "a column of 33 floats a row": (LOCAL.format(at="33 * i"), "part[33 * i]", 32, (1, 1, 1, 128)),
}


@pytest.mark.parametrize("launch", BY_HAND)
def test_the_counts_of_a_small_launch_are_those_by_hand(launch):
    source, access, items, expected = BY_HAND[launch]
    x = np.zeros(1024, np.uint8 if "uchar" in source else np.float32)
    count = counted(source, "k", items, items, [x, np.zeros(1024, np.float32)])[access]
    assert (count.requests, count.needed, count.fewest, count.used) == expected
    assert count.in_local == access.startswith("part")


def test_lines_and_pieces_have_the_size_that_is_asked_for():
    source = READ.format(type="float", before="", x="x[2 * i]")
    given = [floats(128), floats(64)]
    assert counted(source, "k", 64, 64, given, line=64)["x[2 * i]"].needed == 8
    assert counted(source, "k", 64, 64, given, together=64)["x[2 * i]"].requests == 1
    assert counted(source, "k", 64, 8, given)["y[i]"].requests == 8  # pieces of 8: the group is smaller


# ---------------------------------------------------------------------------------- index arithmetic, done in NumPy


def lines_of(indices, width=4, together=32, line=128):
    """Count lines: `indices` of shape (times, work-items), in the order of pieces."""
    pieces = np.asarray(indices).reshape(-1, together) * width // line
    return sum(len(set(piece)) for piece in pieces.tolist())


def turns_of(words, together=32):
    pieces = np.asarray(words).reshape(-1, together)
    return sum(np.bincount(np.unique(piece) % 32).max() for piece in pieces)


def in_groups(values, group):
    """Bring what belongs to the work-items of a grid, of shape (rows, columns), into the order of groups and pieces."""
    across, down = group
    rows, columns = values.shape
    return values.reshape(rows // down, down, columns // across, across).transpose(0, 2, 1, 3).reshape(-1)


def test_the_transpositions_are_counted_as_their_indices_say():
    n = 64
    given = [floats(n * n), floats(n * n), np.int32(n)]
    row, column = (in_groups(numbers, (32, 8)) for numbers in np.mgrid[:n, :n])
    naive = counted(lesson_15.NAIVE, "transpose", (n, n), (32, 8), given)
    assert naive["x[row * n + column]"].needed == lines_of(row * n + column)
    assert naive["y[column * n + row]"].needed == lines_of(column * n + row)
    ly, lx = np.mgrid[:8, :32].reshape(2, -1)
    k = ly + np.arange(0, 32, 8)[:, None]
    for width in (32, 33):
        found = counted(lesson_15.write_tiled(width), "transpose", (n, n // 4), (32, 8), given)
        groups = (n // 32) ** 2
        assert found["tile[k][lx]"].needed == groups * turns_of(k * width + lx)
        assert found["tile[lx][k]"].needed == groups * turns_of(lx * width + k)


def test_a_line_that_several_requests_need_is_there_once():
    n = 64
    given = [floats(n * n), floats(n * n), np.int32(n)]
    recorded = opencl_recorder.record(opencl.Kernel(lesson_15.NAIVE, "transpose"), (n, n), (32, 8), given)
    reads, writes = (counters.find_lines(recorded)[text] for text in ("x[row * n + column]", "y[column * n + row]"))
    assert reads == {("x", place) for place in range(n * n // 32)} and writes == {("y", place) for _, place in reads}
    kernel = opencl.Kernel(lesson_15.DRIFT, "drift")
    found = counters.find_lines(opencl_recorder.record(kernel, 32, 32, [floats(256), floats(32), np.int32(32)]))
    assert found["p[8 * i]"] == found["p[8 * i + 3]"] and len(set().union(*found.values())) == 9
