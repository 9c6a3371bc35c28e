"""Lesson 15's kernels for the clock, its figure, and what its checks say where an answer cannot be counted."""

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import opencl
from helpers.judge.checks import NotYet
from helpers.lessons import lesson_15, lesson_15_clock
from helpers.measure import records, timing


@pytest.fixture(scope="module")
def queue():
    context = cl.Context([opencl.pick_device()])  # held: Intel's driver ends one that its queue alone holds
    yield cl.CommandQueue(context)


def test_the_kernels_for_the_clock_compute_what_numpy_computes(queue, capsys):
    runs = lesson_15_clock.measure_kernels(queue, list(lesson_15_clock.CASES), 64)
    assert list(runs) == list(lesson_15_clock.CASES) and "WRONG" not in capsys.readouterr().out


def test_a_kernel_that_writes_nothing_is_not_timed(queue, capsys, monkeypatch):
    """Also after one that left the right result in the output."""
    idle = lesson_15_clock.CASES["tile"]._replace(source=lesson_15.write_tiled(33).replace("y[", "if (n < 0) y["))
    monkeypatch.setitem(lesson_15_clock.CASES, "tile", idle)
    assert list(lesson_15_clock.measure_kernels(queue, ["naive", "tile"], 64)) == ["naive"]
    assert "tile: WRONG" in capsys.readouterr().out


@pytest.mark.parametrize("step", lesson_15_clock.STEPS)
def test_each_step_is_better_by_its_counter(step):
    """With every length of line; one step changes how an index is computed and nothing that is counted."""
    counter = lesson_15_clock.STEPS[step]
    for line in lesson_15.LINES:
        before, after = (lesson_15_clock.read_counter(name, counter, line) for name in step.split(" → "))
        assert after == before if step == "sum, spread → sum, no %" else after < before


def test_counter_and_clock_agree_only_where_the_gap_is_clear(monkeypatch, tmp_path):
    def run(*seconds):
        return timing.Measurement("", "a device", seconds * 13)

    slow, fast, noisy = run(2.0), run(1.0), run(0.5, 3.5)
    names = ("stride 32", "stride 1", "structures", "arrays", "naive", "tile", "sum, spread", "sum, no %")
    runs = dict(zip(names, (slow, fast, fast, slow, slow, noisy, slow, fast), strict=True))
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    table = lesson_15_clock.compare_steps(runs, {"stride 32 → stride 1": "same"})
    rows = table.rows
    assert [(row[1], *row[3:5]) for row in rows] == [
        ("same", "2 times as fast", "yes"),
        ("", "2 times slower", "no"),
        ("", "no claim", "open"),
        ("", "2 times as fast", "no"),  # the counter stays
    ]
    assert rows[0][-1] == "1.47 times as fast" and "recorded: NVIDIA H200" in " ".join(table.below)
    assert "NVIDIA H100 80GB HBM3: not recorded." in table.below
    noted = [(note.label, note.value, note.unit) for note in records.read_notes(tmp_path / "notes", "15")]
    assert noted[0] == ("stride 32 → stride 1", 2, "times as fast")
    assert noted[2] == ("naive → tile", 1, "times as fast, no claim")


def test_the_figure_says_the_lines_of_each_stride(monkeypatch):
    shown = []
    monkeypatch.setattr(lesson_15, "show", lambda drawn, alt: shown.append(alt))
    recorded = {name: lesson_15_clock.record_case(name) for name in ("stride 8", "stride 32")}
    lesson_15.draw_lines(recorded, (128, 32), "Lines")
    assert "stride 8, lines of 128 bytes: 8 lines, 12.5 % used" in shown[0]
    assert "stride 32, lines of 128 bytes: 32 lines, 3.12 % used" in shown[0]
    assert "stride 8, lines of 32 bytes: 32 lines, 12.5 % used" in shown[0]
    assert "stride 32, lines of 32 bytes: 32 lines, 12.5 % used" in shown[0]
    lesson_15.draw_lines(recorded, (64,), "Lines")
    assert "stride 32, lines of 64 bytes: 32 lines, 6.25 % used" in shown[1]


def test_what_cannot_be_counted_is_said_and_not_called_slow():
    row = "for (int k = ly; k < 32; k += 8) {\n        tile[k][lx] = x[(row + k) * n + column + lx];\n    }"
    copies = "event_t e = async_work_group_copy(tile[0], x + row * n + column, 32, 0);\n    wait_group_events(1, &e);"
    with pytest.raises(NotYet, match="not counted"):
        lesson_15.judge_transpose(lesson_15.write_tiled(33).replace(row, copies))


def test_an_order_that_is_only_a_view_is_refused_because_memory_does_not_change(capsys):
    lesson_15.check_drift(np.transpose, lesson_15.DRIFT_ARRAYS)
    assert "view" in capsys.readouterr().out


def test_each_stride_step_changes_lines_or_span_and_is_noted(monkeypatch, tmp_path):
    seconds = {"stride 1": 1, "stride 32": 6, "same span, stride 1": 4, "same span, stride 32": 6, "writes alone": 0.5}
    runs = {name: timing.Measurement(name, "a device", (each,) * 13) for name, each in seconds.items()}
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    table = lesson_15_clock.compare_strides(runs)
    assert [row[1:4] for row in table.rows] == [
        ("8, 16, 32", "32", "6 times as fast"),
        ("8, 16, 32", "1", "1.5 times as fast"),
        ("1, 1, 1", "32", "4 times as fast"),
        ("all, all, all", "all", "2 times as fast"),
    ]
    noted = {note.label: note.value for note in records.read_notes(tmp_path / "notes", "15")}
    assert noted == {step: float(row[3].split()[0]) for step, row in zip(noted, table.rows, strict=True)}
    times = lesson_15_clock.tabulate_strides(runs, 2_048).rows
    assert [row[:3] for row in times][1:3] == [
        ("stride 32", "16 MiB", "32, 32, 32"),
        ("same span, stride 1", "16 MiB", "4, 2, 1"),
    ]


def test_the_table_of_the_learners_lines_is_there_only_where_they_are_right():
    def lines(first, stride, line):
        return len({4 * (first + stride * i) // line for i in range(32)})

    def lines_of_128(first, stride, line):
        return lines(first, stride, 128)

    assert lesson_15.tabulate_lines(lines).rows[2] == ("stride 8", 32, 16, 8)
    assert lesson_15.tabulate_lines(lines_of_128) is None
    assert lesson_15.tabulate_lines(lambda first, stride, line: ...) is None


@pytest.mark.parametrize(
    "add",
    [lambda particles: particles[:, 0] + particles[:, 3] / 2, lambda particles: particles[:, [0, 3]].T],
    ids=["the result", "two columns"],
)
def test_an_order_with_more_than_the_particles_numbers_is_refused(add, capsys):
    lesson_15.check_drift(lambda particles: np.append(add(particles), particles.T), lesson_15.DRIFT_ARRAYS)
    assert capsys.readouterr().out.startswith("not yet")
