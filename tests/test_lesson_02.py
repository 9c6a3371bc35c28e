"""helpers.lessons.lesson_02: the benchmark must see what is wrong, and measure what is asked."""

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import opencl
from helpers.judge import checks
from helpers.lessons import lesson_02
from helpers.lessons.lesson_02 import MULTIPLY
from helpers.measure import records


@pytest.fixture(scope="module")
def bench():
    context = cl.Context([opencl.pick_device()])
    made = lesson_02.MatmulBenchmark(cl.CommandQueue(context), 64)
    yield made
    del context  # Intel's driver forgets a context that only its queue still holds


def launch_of(bench, source=MULTIPLY):
    kernel = cl.Kernel(opencl.build(bench.queue.context, source), "multiply")

    def launch(a, b, c, m, n, k):
        kernel(bench.queue, (n, m), None, a, b, c, np.int32(m), np.int32(n), np.int32(k))

    return launch


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b[i * n + column]", "b[column * n + i]"),
        ("c[row * n + column] = sum", "if (row < m - 1) c[row * n + column] = sum"),
        ("sum = 0", "sum = 1e-2f"),
    ],
)
def test_a_wrong_kernel_is_found(bench, capsys, old, new):
    assert old in MULTIPLY
    bench.test(launch_of(bench, MULTIPLY.replace(old, new)))
    assert "WRONG" in capsys.readouterr().out


def test_speed_is_operations_over_time(bench):
    bench.measure({"naive": launch_of(bench)}, repeats=3)
    bench.measure_numpy(3)
    assert bench.gflops("naive") == pytest.approx(2 * 64**3 / bench.runs["naive"].median / 1e9)
    table = bench.tabulate("02")
    (naive, here, middle, recorded), (numpy, *_) = table.rows
    assert (naive, here, numpy) == ("naive", f"{bench.gflops('naive'):.3g} GFLOP/s", "NumPy")
    low, high = (2e-9 * 64**3 / seconds for seconds in reversed(bench.runs["naive"].quartiles))
    assert middle == f"{low:.3g} to {high:.3g}"
    assert bench.device in table.below[0] and bench.runs["NumPy"].device in table.below[0]
    assert recorded == "4,360 GFLOP/s" and "NVIDIA H100" in table.below[1]
    assert [row[0] for row in bench.tabulate("02", ["NumPy"]).rows] == ["NumPy"]


def test_what_is_measured_is_noted_for_a_record(bench, monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    bench.runs.clear()
    bench.measure({"naive": launch_of(bench)}, repeats=3)
    first = bench.gflops("naive")
    bench.measure({"naive": launch_of(bench)}, repeats=3)  # once more, alone: not noted
    bench.measure_numpy(3)
    lesson_02.measure_peak(bench.queue, steps=10)
    lesson_02.measure_bandwidth(bench.queue, 2**10)
    naive, numpy, peak, bandwidth = records.read_notes(tmp_path / "notes", "02")
    assert (naive.value, naive.unit) == (pytest.approx(first), "GFLOP/s")
    assert (naive.label, naive.amount, naive.device) == ("naive", "64 x 64", bench.device)
    assert numpy.device == bench.runs["NumPy"].device
    assert (peak.label, peak.unit, bandwidth.label, bandwidth.unit) == ("peak", "GFLOP/s", "bandwidth", "GB/s")


def test_bandwidth_is_the_bytes_of_both_arrays_over_time(bench, monkeypatch, capsys):
    run = lesson_02.timing.Measurement("copy", "a device", (0.5, 0.5, 0.5))
    monkeypatch.setattr(lesson_02.timing, "measure", lambda *_, **__: run)
    assert lesson_02.measure_bandwidth(bench.queue, 2**16) == pytest.approx(8 * 2**16 / 0.5 / 1e9)
    assert "GB/s, read and written" in capsys.readouterr().out


def test_the_peak_is_the_operations_of_all_vectors_over_time(bench, monkeypatch):
    run = lesson_02.timing.Measurement("multiply-adds", "a device", (0.5, 0.5, 0.5))
    monkeypatch.setattr(lesson_02.timing, "measure", lambda launch, **_: (launch(), run)[1])
    width = max(4, bench.queue.device.preferred_vector_width_float)
    assert lesson_02.measure_peak(bench.queue, steps=1000) == pytest.approx(2 * 8 * width * 1000 * 2**14 / 0.5 / 1e9)


def test_tiles_are_tried_in_other_sizes_than_the_learners():
    source = lesson_02.write_tiled(16)
    with pytest.raises(checks.NotYet, match="with T = 4"):
        lesson_02.judge_tiled(source.replace("start += T", "start += 16"))
    with pytest.raises(checks.NotYet, match="#define T 16"):
        lesson_02.judge_tiled(source.replace("#define T 16", "enum { T = 16 };"))
