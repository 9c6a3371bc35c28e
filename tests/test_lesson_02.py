"""helpers.lessons.lesson_02: the benchmark must see what is wrong, and count and time what is asked."""

from contextlib import nullcontext

import numpy as np
import pyopencl as cl
import pytest

from helpers.compute import opencl
from helpers.errors import WorkshopError
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


def test_a_product_that_is_timed_copies_no_spoilt_result(bench, monkeypatch):
    copied = []
    monkeypatch.setattr(bench, "copied", lambda array, made=bench.copied: copied.append(array) or made(array))
    actual = bench.product(launch_of(bench), bench.a, bench.b, spoilt=False)
    assert np.allclose(actual, bench.a @ bench.b, atol=1e-3)
    assert [len(copied), copied[0] is bench.a, copied[1] is bench.b] == [2, True, True]


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


def test_products_are_measured_interleaved(bench):
    launches = {"step": launch_of(bench)}
    assert bench.measure_interleaved(launches, repeats=3) == [bench.runs["step"]]
    assert bench.speeds("step").startswith(f"{bench.gflops('step'):.3g} (")


@pytest.mark.parametrize(
    "parts", [{}, {"sums": 6}, {"rows": 6}, {"rows": 6, "vectors": 2}, {"rows": 6, "packed": True}]
)
@pytest.mark.parametrize("width", [4, 16])
def test_each_rung_is_right(bench, capsys, parts, width):
    bench.test(lesson_02.rung(bench.queue, width, **parts), [(96, 96, 96), (12, 64, 48)])
    assert capsys.readouterr().out.count("right") == 2


def measured(label, *seconds):
    return lesson_02.timing.Measurement(label, "a device", seconds)


def test_a_point_above_the_roof_is_named(alternatives, capsys):
    roof = {"arithmetic": 200}
    lesson_02.roofline({"naive": (0.25, 2), "best block": (4, 900)}, 40, roof, "Ceilings", must_move=64)
    assert capsys.readouterr().out.startswith("Above the roof: best block. The roof was measured too low")
    lesson_02.roofline({"naive": (0.25, 2)}, 40, roof, "Ceilings", must_move=64)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("seconds", "alone"), [([4, 4, 4, 1, 1, 1], True), ([1, 1, 1, 4, 4, 4], False)])
def test_the_faster_of_all_threads_and_one_is_the_baseline(monkeypatch, bench, capsys, seconds, alone):
    """On a busy machine one thread may be many times faster than all: then the lesson says so."""
    given = iter([seconds[:3], seconds[3:]])
    monkeypatch.setattr(lesson_02, "_one_thread", nullcontext)
    monkeypatch.setattr(lesson_02.timing, "measure", lambda _, label, device, **__: measured(label, *next(given)))
    bench.measure_numpy(3)
    assert bench.numpy_alone == alone and bench.runs["NumPy"].median == 1
    said = capsys.readouterr().out
    assert ("NumPy (one thread): " in said) == ("close them" in said) == alone


def test_numpy_has_one_thread_where_that_was_faster(monkeypatch, bench):
    info = pytest.importorskip("threadpoolctl").threadpool_info

    def threads():
        return [pool["num_threads"] for pool in info() if pool["user_api"] == "blas"]

    before = threads()
    for alone in (True, False):
        monkeypatch.setattr(bench, "numpy_alone", alone)
        with bench.numpy_threads():
            assert threads() == ([1] * len(before) if alone else before)
    assert threads() == before


@pytest.fixture
def alternatives(monkeypatch):
    """The alternative texts of the figures that were shown."""
    texts = []
    monkeypatch.setattr(lesson_02, "show", lambda _, alt: texts.append(alt))
    monkeypatch.setattr(lesson_02.plots, "show", lambda _, alt: texts.append(alt))
    return texts


def test_a_work_group_that_the_device_refuses_is_told_with_the_devices_limits(bench):
    many = bench.queue.device.max_work_group_size + 1
    kernel = cl.Kernel(opencl.build(bench.queue.context, "__kernel void one(__global float *c) { c[0] = 1; }"), "one")

    def launch(a, b, c, *sizes):
        return kernel(bench.queue, (many,), (many,), c)

    one = np.ones((1, 1), np.float32)
    for start in (lambda: bench.product(launch, one, one), lambda: bench.measure_interleaved({"one": launch})):
        with pytest.raises(WorkshopError, match=f"(?s)could not be started.*may have {many - 1} work-items"):
            start()
