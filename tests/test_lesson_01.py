"""helpers.lessons.lesson_01: its verdicts name what is wrong, and its figure says what it leaves out."""

import numpy as np
import pytest

from helpers.judge import checks
from helpers.lessons import lesson_01


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


def test_a_condition_that_assigns_is_no_empty_exercise():
    head = "__kernel void add(__global const float *a, __global const float *b, __global float *c, const int n) {"
    body = "int i = get_global_id(0); if (i = n) return; c[i] = a[i] + b[i]; }"
    with pytest.raises(checks.NotYet, match=r"no work-item writes a result. In `if \(...\)` a single `=` assigns"):
        lesson_01.judge_guard(head + body)
    with pytest.raises(checks.NotDone):
        lesson_01.judge_guard(head + "// c[i]\n}")


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
