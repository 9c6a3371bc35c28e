"""Lesson 15's kernels for the clock, its figure, and what its checks say where an answer cannot be counted."""

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import opencl
from helpers.judge.checks import NotYet
from helpers.lessons import lesson_15
from helpers.measure import records, timing


@pytest.fixture(scope="module")
def queue():
    context = cl.Context([opencl.pick_device()])  # held: Intel's driver ends one that its queue alone holds
    yield cl.CommandQueue(context)


def test_the_kernels_for_the_clock_compute_what_numpy_computes(queue, capsys):
    runs = lesson_15.measure_kernels(queue, list(lesson_15.CASES), 64)
    assert list(runs) == list(lesson_15.CASES) and "WRONG" not in capsys.readouterr().out


def test_a_kernel_that_writes_nothing_is_not_timed(queue, capsys, monkeypatch):
    """Also after one that left the right result in the output."""
    idle = lesson_15.CASES["tile"]._replace(source=lesson_15.write_tiled(33).replace("y[", "if (n < 0) y["))
    monkeypatch.setitem(lesson_15.CASES, "tile", idle)
    assert list(lesson_15.measure_kernels(queue, ["naive", "tile"], 64)) == ["naive"]
    assert "tile: WRONG" in capsys.readouterr().out


@pytest.mark.parametrize("step", lesson_15.STEPS)
def test_each_step_is_better_by_its_counter(step):
    counter, _ = lesson_15.STEPS[step]
    before, after = (lesson_15.read_counter(name, counter) for name in step.split(" → "))
    assert after < before


def test_counter_and_clock_agree_only_where_the_gap_is_clear(monkeypatch, tmp_path):
    def run(*seconds):
        return timing.Measurement("", "a device", seconds * 13)

    slow, fast, noisy = run(2.0), run(1.0), run(0.5, 3.5)
    names = ("stride 32", "stride 1", "structures", "arrays", "naive", "tile")
    runs = dict(zip(names, (slow, fast, fast, slow, slow, noisy), strict=True))
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    table = lesson_15.compare_steps(runs, {"stride 32 → stride 1": "same"})
    rows = table.rows
    assert [(row[1], *row[3:5]) for row in rows] == [
        ("same", "2 times as fast", "yes"),
        ("", "2 times slower", "no"),
        ("", "no claim", "open"),
    ]
    assert rows[0][-1] == "1.47 times as fast" and "recorded: NVIDIA H200" in " ".join(table.below)
    noted = [(note.label, note.value, note.unit) for note in records.read_notes(tmp_path / "notes", "15")]
    assert noted[0] == ("stride 32 → stride 1", 2, "times as fast")
    assert noted[2] == ("naive → tile", 1, "times as fast, no claim")


def test_the_figure_says_the_lines_of_each_stride(monkeypatch):
    shown = []
    monkeypatch.setattr(lesson_15, "show", lambda drawn, alt: shown.append(alt))
    lesson_15.draw_lines({name: lesson_15.record_case(name) for name in ("stride 1", "stride 8")}, "Lines")
    assert "stride 1: 1 line, 100 % used" in shown[0] and "stride 8: 8 lines, 12.5 % used" in shown[0]


def test_what_cannot_be_counted_is_said_and_not_called_slow():
    row = "for (int k = ly; k < 32; k += 8) {\n        tile[k][lx] = x[(row + k) * n + column + lx];\n    }"
    copies = "event_t e = async_work_group_copy(tile[0], x + row * n + column, 32, 0);\n    wait_group_events(1, &e);"
    with pytest.raises(NotYet, match="not counted"):
        lesson_15.judge_transpose(lesson_15.write_tiled(33).replace(row, copies))


def test_an_order_that_is_only_a_view_is_refused_because_memory_does_not_change(capsys):
    lesson_15.check_drift(np.transpose, lesson_15.DRIFT_ARRAYS)
    assert "view" in capsys.readouterr().out
