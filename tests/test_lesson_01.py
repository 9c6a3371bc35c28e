"""helpers.lessons.lesson_01: its verdicts name what is wrong, and its figure says what it leaves out."""

import numpy as np
import pytest

from helpers.devices import opencl
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
    assert len(repr(recorded)) < 200 and "8 work-items" in repr(recorded) and "1 outside" in repr(recorded)


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


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_of_a_gpu_no_lanes_are_claimed(kind, monkeypatch):
    texts = []
    monkeypatch.setattr(lesson_01, "show", lambda figure, alt: texts.append(alt))
    monkeypatch.setattr(opencl, "kind", lambda device: kind)
    device = opencl.pick_device()
    lesson_01.draw_units(device, 782)
    own, published = texts[0].split(". NVIDIA H100 (published): ")
    assert ("lanes =" in own) == (kind == "cpu") and f"{device.max_compute_units} units" in own
    assert published == "132 units of 128 lanes = 16,896 lanes; 782 groups are 5 or 6 for each unit."


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("int i = get_local_id(0); c[i] = a[i] + b[i];", "is a local id"),
        ("int i = get_group_id(0); c[i] = a[i] + b[i];", "is a group's number"),
        ("uchar i = get_global_id(0); c[i] = a[i] + b[i];", "8 bits"),
        ("i = get_global_id(0); c[i] = a[i] + b[i];", r"needs its type, as in `int i"),
        ("for i in range(3): c[i] = a[i] + b[i];", "No loop is needed"),
        ("for (int i = 0; i < get_global_size(0); i++) if (i == get_global_id(0)) c[i] = a[i] + b[i];", "No loop"),
        ("for (int i = 0; i < get_global_size(0); i++) c[i] = a[i] + b[i];", "nothing orders them. No loop is needed"),
        ("for (int i = get_global_id(0); i < 8; i++) c[i] = a[i] + b[i];", "nothing orders them. No loop is needed"),
    ],
)
def test_a_wrong_idea_of_the_index_is_named(body, fact):
    head = "__kernel void add(__global const float *a, __global const float *b, __global float *c) {"
    with pytest.raises(checks.NotYet, match=fact):
        lesson_01.judge_add(f"{head} {body} }}")


def test_a_right_guarded_kernel_is_launched_further_on(monkeypatch):
    monkeypatch.setattr(checks, "_right", {})
    monkeypatch.setattr(checks, "judge_in_subprocess", lambda judge, source: "tried")
    lesson_01.check_add("of exercise 1, without n")
    assert checks.find_right("add", lesson_01.ADD) == lesson_01.ADD
    lesson_01.check_guard("mine")
    assert checks.find_right("add", lesson_01.ADD) == "mine"


def test_a_loop_in_the_guarded_kernel_is_named():
    head = "__kernel void add(__global const float *a, __global const float *b, __global float *c, const int n) {"
    with pytest.raises(checks.NotYet, match=r"nothing orders them\. No loop is needed"):
        lesson_01.judge_guard(f"{head} for (int i = 0; i < n; i++) c[i] = a[i] + b[i]; }}")


def test_one_fixed_element_is_not_called_an_id():
    head = "__kernel void add(__global const float *a, __global const float *b, __global float *c) {"
    with pytest.raises(checks.NotYet, match=r"both write c\[0\], and nothing orders them\.$"):
        lesson_01.judge_add(f"{head} c[0] = a[0] + b[0]; }}")


def test_a_launch_is_noted_whichever_way_it_is_made(queue):
    stand_in = lesson_01.KernelStandIn()
    stand_in(queue, (3,), (4,), "a", "b", "c", np.int32(10), g_times_l=True, wait_for=None).wait()
    stand_in.set_args("a", "b", "c", np.int32(10))
    stand_in.enqueue(queue, stand_in, (12,), (4,))
    assert stand_in.launches == [(queue, (12,), (4,), ["a", "b", "c", np.int32(10)])] * 2
    with pytest.raises(checks.NotYet, match="offset"):
        stand_in(queue, (12,), (4,), "a", "b", "c", np.int32(10), global_offset=(4,))
