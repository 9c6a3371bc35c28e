"""Lesson 15's kernels for the clock, its figure, and what its checks say where an answer cannot be counted."""

import numpy as np
import pytest

from helpers.judge import checks, opencl_recorder
from helpers.judge.checks import NotYet
from helpers.lessons import lesson_15, lesson_15_clock
from helpers.measure import timing


def test_the_kernels_for_the_clock_compute_what_numpy_computes(queue, capsys):
    runs = lesson_15_clock.measure_kernels(queue, list(lesson_15_clock.CASES), 64)
    assert list(runs) == list(lesson_15_clock.CASES) and runs.twins
    said = capsys.readouterr().out
    assert "WRONG" not in said and "A/A: padded tile, measured twice in turn, differs from itself by" in said


def test_a_kernel_that_writes_nothing_is_not_timed(queue, capsys, monkeypatch):
    """Also after one that left the right result in the output."""
    idle = lesson_15_clock.CASES["tile"]._replace(source=lesson_15.write_tiled(33).replace("y[", "if (n < 0) y["))
    monkeypatch.setitem(lesson_15_clock.CASES, "tile", idle)
    assert list(lesson_15_clock.measure_kernels(queue, ["naive", "tile"], 64)) == ["naive"]
    assert "tile: WRONG" in capsys.readouterr().out


def run(*seconds):
    return timing.Measurement("", "a device", seconds * 13)


def test_the_figure_says_the_lines_of_each_stride(monkeypatch):
    shown = []
    monkeypatch.setattr(lesson_15, "show", lambda drawn, alt: shown.append(alt))
    recorded = {}
    for stride in (8, 32):
        given = [*np.zeros((2, 1024), np.float32), np.int32(0), np.int32(stride)]
        kernel = lesson_15.build_kernel(lesson_15.STRIDED)
        recorded[f"stride {stride}"] = opencl_recorder.record(kernel, 32, 32, given)
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


def test_a_barrier_for_half_of_a_group_is_said_without_a_hint_on_macros():
    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    with pytest.raises(NotYet) as refused:
        lesson_15.judge_transpose(lesson_15.write_tiled(33).replace(barrier, f"if (lx < 16) {barrier}"))
    assert "macro" not in str(refused.value)


def test_the_figure_of_the_banks_says_the_turns(monkeypatch):
    shown = []
    monkeypatch.setattr(lesson_15, "show", lambda drawn, alt: shown.append(alt))
    lesson_15.draw_banks((32, 36))
    assert "rows of 32 floats: 32 turns; rows of 36 floats: 4 turns" in shown[0]


def test_the_reads_are_what_a_time_exceeds_the_control_by(capsys):
    runs = lesson_15_clock.Runs(zip(lesson_15_clock.DRIFTS, map(run, (4.0, 2.0, 1.5)), strict=True))
    table = lesson_15_clock.compare_drifts(None, runs)
    assert [row[:4] for row in table.rows] == [
        ("structures", 16, "4 s", "2.5 s"),
        ("arrays", 2, "2 s", "500 ms"),
        ("particles, no reads", 0, "1.5 s", ""),
    ]
    assert "2 times as fast" in capsys.readouterr().out
    assert [row[5] for row in table.rows][1:] == ["no claim", ""] and "NVIDIA H200" in " ".join(table.below)
    runs.others = 0.4  # explains 1.7 times
    assert [row[3] for row in lesson_15_clock.compare_drifts(None, runs).rows] == ["2.5 s", "no claim", ""]
    assert "measured: at least 1.2 times as fast" in capsys.readouterr().out
    runs.others = 0.6  # explains 2.5 times
    assert [row[3] for row in lesson_15_clock.compare_drifts(None, runs).rows] == ["2.5 s", "no claim", ""]
    assert "measured: no claim" in capsys.readouterr().out
    runs.others = 0.0
    del runs["arrays"]  # it computed something wrong
    assert len(lesson_15_clock.compare_drifts(None, runs).rows) == 2
    assert "not timed" in capsys.readouterr().out


def test_a_right_drift_is_the_one_that_is_timed(queue, monkeypatch, capsys):
    monkeypatch.setattr(checks, "_right", {})
    assert lesson_15_clock.find_case("arrays").source == lesson_15.DRIFT_ARRAYS
    pair = lesson_15.DRIFT.replace("p[8 * i]", "p[i]").replace("p[8 * i + 3]", "p[n + i]")
    order = [0, 3, 1, 2, 4, 5, 6, 7]
    lesson_15.check_drift(lambda particles: particles[:, order].T.reshape(-1), pair)
    assert lesson_15_clock.find_case("arrays").source == pair
    assert list(lesson_15_clock.measure_kernels(queue, ["arrays"], 64)) == ["arrays"]


def test_accesses_are_counted_for_as_many_neighbors_as_are_asked_for():
    given = [np.ones(8 * 64, np.float32), np.zeros(64, np.float32), np.int32(64)]
    recorded = opencl_recorder.record(lesson_15.build_kernel(lesson_15.DRIFT), 64, 64, given)
    table = lesson_15.tabulate_accesses(recorded, together=64)
    assert table.rows[0][:3] == ("p[8 * i]", "16 lines", "2") and table.headers[1] == "64 neighbors need"


def test_a_shorter_row_changes_no_count(capsys):
    runs = lesson_15_clock.Runs(zip(lesson_15_clock.TRANSPOSES, map(run, (8.0, 4.0, 1.0, 0.5, 0.25)), strict=True))
    table = lesson_15_clock.compare_transposes(4, runs, 64)
    below = " ".join(table.below)
    assert "beside naive, n - 32: naive, 2 times as long; tile, 4 times as fast; padded tile, 8 times as fast" in below
    assert "beside copy: padded tile, 2 times as long." in below
    runs.others = 0.6
    below = " ".join(lesson_15_clock.compare_transposes(None, runs, 64).below)
    assert "naive, no claim; tile, at least 1.6 times as fast" in below and "copy: padded tile, no claim" in below
    runs.others, runs.twins = 0.0, (run(0.5), run(4.0))
    assert "naive, no claim; tile, no claim" in " ".join(lesson_15_clock.compare_transposes(None, runs, 64).below)
    assert [row[:3] for row in table.rows] == [
        ("naive", "1,056", "0"),
        ("naive, n - 32", "1,056", "0"),
        ("tile", "64", "1,056"),
        ("padded tile", "64", "64"),
        ("copy", "64", "0"),
    ]
    assert "8 times as fast" in capsys.readouterr().out


@pytest.mark.parametrize("first, stride", [(1, 2), (1, 8), (3, 2)])
def test_a_start_inside_a_line_that_costs_no_line_is_among_the_cases(first, stride, capsys):
    def add_one_for_each_start_inside_a_line(first, stride, line):
        return min(32, max(1, 128 * stride // line) + (1 if 4 * first % line else 0))

    assert (first, stride, 128) in list(lesson_15._list_cases(np.random.default_rng(0)))
    for _ in range(3):
        lesson_15.check_lines(add_one_for_each_start_inside_a_line)
        assert capsys.readouterr().out.startswith("not yet")
