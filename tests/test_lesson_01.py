"""helpers.lessons.lesson_01: what it says of a measurement must follow from the measurement."""

import numpy as np
import pyopencl as cl
import pytest

from helpers.compute import opencl
from helpers.errors import WorkshopError
from helpers.judge import trace
from helpers.lessons import lesson_01
from helpers.measure.timing import Measurement

ADD = """
__kernel void add(__global const float *a, __global float *c, const int n) {
    int i = get_global_id(0);
    if (i < n) {
        c[i] = a[i] + a[i];
    }
}
"""


def run(seconds, spread=0.02):
    return Measurement("x", "here", tuple(seconds * (1 + spread * i) for i in range(-2, 3)))


def bandwidths(spread=0.02, **speeds):
    """For each label, its speed in GB/s: 12 bytes for each of a million elements."""
    labels = {"numpy": "NumPy", "guarded": "kernel with guard", "once": "kernel, guard asked once"}
    labels |= {"plain": "kernel without guard", "driver": "copy by the driver", "kernel": "copy by a kernel"}
    return {
        labels[key]: lesson_01.Bandwidth(run(12e6 / (speed * 1e9), spread), 12_000_000) for key, speed in speeds.items()
    }


def test_a_bandwidth_is_bytes_in_a_second():
    one = lesson_01.Bandwidth(run(2e-3), 12_000_000)
    assert one.speed == pytest.approx(6)
    low, high = one.middle_half
    assert low == pytest.approx(6 / 1.02) and high == pytest.approx(6 / 0.98)


def test_what_limits_is_said_by_the_faster_copy(capsys):
    measured = bandwidths(numpy=46, guarded=21, once=48, plain=48, driver=20, kernel=50)
    assert lesson_01.percent_of_yardstick(measured, "kernel with guard") == pytest.approx(42)
    lesson_01.say_what_limits(measured, shared=True)
    said = capsys.readouterr().out
    assert "kernel with guard: 42 % of the yardstick; not memory alone" in said
    assert "kernel without guard: 96 % of the yardstick; memory is what limits it" in said
    assert "x is 2.3 times slower than x" in said  # with guard than without
    assert "more cores find little left to win" in said


@pytest.mark.parametrize(
    ("spread", "once"),
    [
        (0.3, 10),  # times that vary
        (0.02, 46),  # faster than a copy, which is no yardstick then
    ],
)
def test_nothing_is_concluded_on_a_busy_machine(capsys, spread, once):
    busy = bandwidths(spread, numpy=10, guarded=7, once=once, plain=8, driver=9, kernel=10)
    lesson_01.say_what_limits(busy, shared=True)
    said = capsys.readouterr().out
    assert "limits it" not in said and "one core" not in said
    assert f"kernel, guard asked once: {10 * once} % of the yardstick.\n" in said and "\nNo limit is named: " in said
    assert ("Far beyond the dashed line: kernel, guard asked once." in said) == (once == 46)


def test_two_memories_are_not_compared_with_one_yardstick(capsys):
    lesson_01.say_what_limits(
        bandwidths(numpy=10, guarded=240, once=240, plain=240, driver=250, kernel=260), shared=False
    )
    said = capsys.readouterr().out
    assert "NumPy:" not in said and "the yardstick is none for NumPy" in said


def test_both_copies_copy():
    context = cl.Context([opencl.pick_device()])
    queue = cl.CommandQueue(context)
    x = np.arange(1000, dtype=np.float32)
    source = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, x.nbytes)
    for moved, copy in lesson_01.copies(queue, source, target, len(x)).values():
        cl.enqueue_copy(queue, target, np.zeros_like(x))
        copy()
        actual = np.empty_like(x)
        cl.enqueue_copy(queue, actual, target)
        assert moved == 8 and np.array_equal(actual, x)


def test_launches_that_are_refused_or_wrong_are_never_the_fastest(monkeypatch):
    context = cl.Context([opencl.pick_device()])
    queue = cl.CommandQueue(context)
    x = np.arange(1000, dtype=np.float32)
    a = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    c = cl.Buffer(context, cl.mem_flags.READ_WRITE, x.nbytes)
    kernel = cl.Kernel(opencl.build(context, ADD), "add")
    tables = []
    monkeypatch.setattr("IPython.display.display", tables.append)
    most = queue.device.max_work_group_size
    expected = {
        (1024, 2 * most): f"refused: work-groups of {2 * most:,} are too large for this device",
        (1000, 64): "refused: 1,000 is no multiple of 64",
        (1024, 32): "refused: OUT_OF_RESOURCES",
        (1024, 16): "error in your code: RuntimeError: not that",
        (64, 64): "WRONG",
        (1024, 64): "right",
        (1000.0, 1): "not tried: whole numbers from 1 on",
        (0, 1): "not tried: whole numbers from 1 on",
        (64, 0): "not tried: whole numbers from 1 on",
        (10**6, 1): "not tried: far more work-items than elements",
    }

    def launch(items, group):
        if group == 32:
            raise cl.RuntimeError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")
        if group == 16:
            raise RuntimeError("not that")
        if group > most or items % group:  # devices that take it are not refused
            raise cl.LogicError("clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE")
        return kernel(queue, (items,), (group,), a, c, np.int32(len(x)))

    assert lesson_01.try_launches(launch, list(expected), x + x, c, queue, repeats=3) == (1024, 64)
    assert [row[-1] for row in tables[0].rows] == list(expected.values())
    assert lesson_01.try_launches(launch, [(64, 64)], x + x, c, queue, repeats=3) is None
    with pytest.raises(WorkshopError, match="1024 is no launch"):
        lesson_01.try_launches(launch, [1024], x + x, c, queue, repeats=3)


@pytest.mark.parametrize(
    ("body", "boxes"),
    [
        ("uint i = get_global_id(0); if (i < n) out[i] = x[i - 1];", ["… 4294967295"]),
        ("int i = get_global_id(0); out[i * 100000] = x[i];", ["… 100000 to 700000"]),
        ("int i = get_global_id(0); out[i] = x[i - 100] + x[i + 100];", ["… -100 to -93", "… 100 to 107"]),
    ],
)
def test_what_is_touched_far_outside_gets_one_box(monkeypatch, body, boxes):
    drawn = []
    monkeypatch.setattr(lesson_01, "show", lambda figure, alt: drawn.append(figure))
    x = np.zeros(6, np.float32)
    source = f"__kernel void k(__global const float *x, __global float *out, const int n) {{ {body} }}"
    lesson_01.work_items(trace.record(opencl.Kernel(source, "k"), (8,), (4,), [x, x, np.int32(6)]), "far")
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    assert sorted(text for text in texts if text.startswith("…")) == boxes
    assert drawn[0].get_size_inches()[0] < 12


def test_too_many_to_draw_are_refused():
    x = np.zeros(6, np.float32)
    source = "__kernel void k(__global float *x) { if (get_global_id(0) < 6) x[get_global_id(0)] = 1.0f; }"
    with pytest.raises(WorkshopError, match="64 work-items or elements are too many to draw"):
        lesson_01.work_items(trace.record(opencl.Kernel(source, "k"), (64,), (4,), [x]), "many")


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ((9, 9, 1), "from 16 steps on"),
        ((0.5, 9, 1), "from 16 steps on"),  # the first win is lost again
        ((0.5, 1, 1), "from 1 steps on"),
        ((9, 9, 9), "never, up to 16 steps"),
        ((0.5, 9, 9), "clearly only at 1 steps"),
        ((9, 9, 7.95), "not clear, up to 16 steps (faster by the median from 16 on)"),
        ((9, 3.97, 7.95), "not clear, up to 16 steps (faster by the median from 4 on)"),
        ((9, 9, 8.05), "not clear, up to 16 steps (slower by the median)"),
    ],
)
def test_a_win_counts_if_it_lasts_and_is_clear(ours, said):
    numpy = [(steps, run(seconds)) for steps, seconds in ((1, 1), (4, 4), (16, 8))]
    assert lesson_01.wins_from(numpy, [(s, run(t)) for (s, _), t in zip(numpy, ours, strict=True)], "steps") == said
