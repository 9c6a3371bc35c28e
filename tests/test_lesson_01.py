"""helpers.lessons.lesson_01: what it says of a measurement must follow from the measurement."""

import numpy as np
import pytest

from helpers.devices.host import cpu_name
from helpers.judge import checks
from helpers.lessons import lesson_01
from helpers.measure import records
from helpers.measure.timing import Measurement


def run(seconds, spread=0.02):
    return Measurement("x", "here", tuple(seconds * (1 + spread * i) for i in range(-4, 5)))


def runs_of(spread=0.02, **speeds):
    """For each label, runs on a million elements at so many GB/s."""
    labels = {"numpy": lesson_01.NUMPY, "kernel": lesson_01.KERNEL, "copy": lesson_01.COPY}
    each = {"numpy": 12e6, "kernel": 12e6, "copy": 8e6}
    return {labels[key]: run(each[key] / (speed * 1e9), spread) for key, speed in speeds.items()}


@pytest.mark.parametrize(("kernel", "answer"), [(48, '"memory"'), (20, '"not memory": calls')])
def test_what_limits_is_said_by_the_rule_of_the_exercise(capsys, kernel, answer):
    lesson_01.say_what_limits(runs_of(kernel=kernel, copy=50))
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"kernel: {2 * kernel} % of the yardstick, so limit(add_speed, copy_speed) is {answer}")


def test_nothing_is_said_to_limit_where_the_runs_do_not_agree(capsys):
    lesson_01.say_what_limits(runs_of(0.3, kernel=38, copy=50))
    printed = " ".join(capsys.readouterr().out.split())
    assert "no claim" in printed and "limit(" not in printed


def test_the_bars_are_described(monkeypatch):
    shown = []
    monkeypatch.setattr(lesson_01, "show", lambda figure, alt: shown.append(alt))
    lesson_01.draw_bandwidth(runs_of(numpy=20, kernel=48, copy=50), 10**6, "a device")
    assert "a device" in shown[0] and "kernel: 48" in shown[0] and "the yardstick: 50" in shown[0]


def test_what_is_touched_far_outside_is_told(monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(lesson_01, "show", lambda figure, alt: drawn.append(figure))
    x = np.zeros(6, np.float32)
    body = "uint i = get_global_id(0); if (i < n) out[i] = x[i - 1];"
    source = f"__kernel void k(__global const float *x, __global float *out, const int n) {{ {body} }}"
    recorded = lesson_01.draw_launch(source, "k", 8, 4, [x, x, np.int32(6)])
    assert len(recorded.outside) == 1
    assert capsys.readouterr().out == "not drawn: work-item 0 touches x[4294967295], far outside\n"
    assert drawn[0].get_size_inches()[0] < 12


def test_the_verdict_asks_for_the_own_device(capsys):
    measured = runs_of(kernel=48, copy=50)

    def bandwidth(seconds, moved):
        return moved / float(np.median(seconds)) / 1e9

    def limit(speed, yardstick):
        return "memory" if speed >= 0.75 * yardstick else "not memory"

    for speeds, verdict in (((48, 50), "right"), ((48, 75), "not yet: copy_speed is 75"), ((..., 50), "not done yet")):
        lesson_01.check_limit(bandwidth, limit, speeds, measured, 10**6)
        assert capsys.readouterr().out.startswith(verdict)


def test_a_condition_that_assigns_is_no_empty_exercise():
    head = "__kernel void add(__global const float *a, __global const float *b, __global float *c, const int n) {"
    body = "int i = get_global_id(0); if (i = n) return; c[i] = a[i] + b[i]; }"
    with pytest.raises(checks.NotYet, match=r"no work-item writes a result. In `if \(...\)` a single `=` assigns"):
        lesson_01.judge_guard(head + body)
    with pytest.raises(checks.NotDone):
        lesson_01.judge_guard(head + "// c[i]\n}")


@pytest.mark.parametrize(("seconds", "winner"), [(2, "old"), (0.5, "new"), (1.05, "no claim")])
def test_a_win_is_claimed_only_if_it_is_clear(seconds, winner):
    old, new = (Measurement(label, "here", run(time).seconds) for label, time in (("old", 1), ("new", seconds)))
    assert lesson_01.name_faster(old, new) == winner


@pytest.mark.parametrize("loop", ["for k in range(STEPS) {", "for (k = 0; k < STEPS; k++) {"])
def test_a_loop_that_is_none_of_c_is_shown_one(loop):
    with pytest.raises(checks.NotYet, match="A loop in C, whose counter needs a type"):
        lesson_01.judge_chain(lesson_01.CHAIN.replace("for (int k = 0; k < STEPS; k++) {", loop))
    with pytest.raises(checks.NotYet) as other:
        lesson_01.judge_chain(lesson_01.CHAIN.replace("out[i] = value;", "out[i] = value"))
    assert "A loop in C" not in str(other.value)


def test_a_third_of_whole_numbers_is_explained():
    kernel = (
        "__kernel void smooth(__global const float *x, __global float *out, const int n) { int i = get_global_id(0);"
    )
    body = "if (i < n) out[i] = i == 0 || i == n - 1 ? x[i] : 1/3 * (x[i - 1] + x[i] + x[i + 1]); }"
    with pytest.raises(checks.NotYet, match="In C `1/3` divides whole numbers"):
        lesson_01.judge_smooth(kernel + body)


def test_what_the_output_held_before_is_no_result():
    head = "__kernel void add(__global const float *a, __global const float *b, __global float *c) {"
    for assignment in ("c[i] +=", "if (i) c[i] ="):
        with pytest.raises(checks.NotYet, match="nothing, or what depends on what c held before"):
            lesson_01.judge_add(f"{head} int i = get_global_id(0); {assignment} a[i] + b[i]; }}")


@pytest.mark.parametrize(
    ("clock", "verdict"),
    [
        (lambda launch, queue, repeats: None, "not done yet: no run was timed"),
        (lambda launch, queue, repeats: launch().wait(), "not yet: expected a list of 4 times, came None. Is there a"),
        (lambda launch, queue, repeats: [launch().finish() for _ in range(4)], "not yet: expected 4 numbers"),
    ],
)
def test_a_clock_without_an_answer_is_told_what_is_missing(capsys, clock, verdict):
    lesson_01.check_clock(clock)
    assert " ".join(capsys.readouterr().out.split()).startswith(verdict)


def test_bandwidths_stand_beside_a_gpus_and_are_noted_with_what_moved_the_bytes(monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    table = lesson_01.tabulate_bandwidth(runs_of(numpy=20, kernel=48, copy=50), 10**6)
    assert [row[:2] for row in table.rows] == [
        ("NumPy, one core", "20 GB/s"),
        ("kernel", "48 GB/s"),
        ("copy by a kernel", "50 GB/s"),
    ]
    assert table.rows[1][-1] == "1,330 GB/s" and "NVIDIA H100" in table.below[0]
    by_numpy, kernel, _ = records.read_notes(tmp_path / "notes", "01b")
    assert (kernel.value, kernel.unit, kernel.device) == (pytest.approx(48), "GB/s", "here")
    assert by_numpy.label == "NumPy, one core" and by_numpy.device == cpu_name()
