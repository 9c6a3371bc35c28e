"""helpers.lessons.lesson_02: the benchmark must see what is wrong, and count and time what is asked."""

import numpy as np
import pyopencl as cl
import pytest

from helpers import opencl
from helpers.lessons import lesson_02

NAIVE = """
__kernel void naive(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    int row = get_global_id(0), column = get_global_id(1);
    float sum = 0;
    for (int i = 0; i < k; i++) {
        sum += a[row * k + i] * b[i * n + column];
    }
    c[row * n + column] = sum;
}
"""


@pytest.fixture(scope="module")
def bench():
    context = cl.Context([opencl.pick_device()])
    made = lesson_02.MatmulBenchmark(cl.CommandQueue(context), 64)
    yield made
    del context  # Intel's driver forgets a context that only its queue still holds


def launch_of(bench, source=NAIVE):
    kernel = cl.Kernel(opencl.build(bench.queue.context, source), "naive")

    def launch(a, b, c, m, n, k):
        kernel(bench.queue, (m, n), None, a, b, c, np.int32(m), np.int32(n), np.int32(k))

    return launch


def test_a_right_kernel_is_right_for_every_size(bench, capsys):
    bench.test(launch_of(bench))
    verdicts = capsys.readouterr().out.splitlines()
    assert len(verdicts) == len(lesson_02.AWKWARD)
    assert all(verdict.endswith(": right") for verdict in verdicts)
    assert verdicts[2] == "5 x 33 by 33 x 40: right"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i < k", "i < k - 1"),
        ("b[i * n + column]", "b[column * n + i]"),
        ("c[row * n + column] = sum", "if (row < m - 1) c[row * n + column] = sum"),
        ("sum = 0", "sum = 1e-2f"),
        ("row * n + column]", "row * m + column]"),
    ],
)
def test_a_wrong_kernel_is_found(bench, capsys, old, new):
    assert old in NAIVE
    bench.test(launch_of(bench, NAIVE.replace(old, new)))
    assert "WRONG" in capsys.readouterr().out


def test_what_is_never_written_is_not_a_number(bench):
    assert np.isnan(bench.product(lambda *_: None, bench.a, bench.b)).all()


def test_speed_is_operations_over_time(bench, capsys):
    bench.measure("naive", launch_of(bench), repeats=3)
    bench.measure_numpy(3)
    assert bench.gflops("naive") == pytest.approx(2 * 64**3 / bench.runs["naive"].median / 1e9)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("naive: ")
    assert bench.device in said[0]
    assert bench.device not in said[1]  # NumPy runs on the processor itself
    bench.measure("quiet", launch_of(bench), repeats=3, shown=False)
    assert capsys.readouterr().out == ""


def test_accesses_are_counted_for_one_multiply_add(bench):
    """Two reads of four bytes for two operations, and one write for all TRACED of them."""
    bench.trace("naive", NAIVE, "naive", (lesson_02.TRACED, lesson_02.TRACED), (8, 8))
    reads_and_write = 2 + 1 / lesson_02.TRACED
    assert bench.flop_per_byte("naive") == pytest.approx(2 / (4 * reads_and_write))
    assert bench.counts().rows == [("naive", f"{reads_and_write:.3f}", "0.000", f"{0.5 / reads_and_write:.2f}")]
    bench.measure("naive", launch_of(bench), repeats=3)
    assert bench.points() == {"naive": (bench.flop_per_byte("naive"), bench.gflops("naive"))}


def test_rounding_up():
    assert [lesson_02.round_up(n, 16) for n in (1, 16, 17)] == [16, 16, 32]
