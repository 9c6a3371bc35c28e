"""Lesson 14's machinery: the judge of WGSL kernels, its look at barriers and loops, and the way without an adapter."""

import numpy as np
import pytest

from helpers.compute import webgpu
from helpers.judge import checks
from helpers.lessons import lesson_14 as lesson
from helpers.lessons import lesson_14_judge as judge
from helpers.measure import timing

HEAD = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
var<workgroup> near: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32,
        @builtin(workgroup_id) group: vec3<u32>) {
"""


@pytest.fixture(scope="module")
def adapter():
    found = webgpu.pick_adapter()
    if found is None:
        pytest.skip(webgpu.missing())
    return found


# ---- who reaches a barrier. Chromium's compiler (Tint) judged each of these as it stands here.

REACHED = {
    "plain": "workgroupBarrier();",
    "in a loop": "for (var s = 32u; s > 0u; s /= 2u) { if (me < s) { near[me] += 1.0; } workgroupBarrier(); }",
    "under a uniform if": "if (n > 5u) { workgroupBarrier(); }",
    "in the second half of a uniform if": "if (n > 5u) { near[me] = 0.0; } else { workgroupBarrier(); }",
    "by the group's number": "if (group.x == 0u) { workgroupBarrier(); }",
    "after a uniform return": "if (n == 0u) { return; } workgroupBarrier();",
    "before the return": "workgroupBarrier(); if (me > 3u) { return; } partial[0] = 1.0;",
    "a comment only": "if (me < 3u) { /* workgroupBarrier(); */ near[me] = 1.0; // workgroupBarrier();\n }",
    "beside a load for all": "let all = workgroupUniformLoad(&near[0]); if (n > 1u) { workgroupBarrier(); }",
    "a loop with a uniform break": "var s = 0u; loop { if (s > 3u) { break; } workgroupBarrier(); s++; }",
}
NOT_REACHED = {
    "under an if": "if (me < 3u) { workgroupBarrier(); }",
    "by the global number": "if (id.x < n) { workgroupBarrier(); }",
    "by a number made of it": "let mine = me * 2u + 1u; let twice = mine; if (twice < 9u) { workgroupBarrier(); }",
    "in the else": "if (me < 3u) { near[me] = 1.0; } else { workgroupBarrier(); }",
    "in the else if": "if (n > 3u) { near[me] = 1.0; } else if (me > 2u) { workgroupBarrier(); }",
    "after a return": "if (id.x >= n) { return; } workgroupBarrier();",
    "after a return in an inner block": "if (n > 2u) { if (me > 1u) { return; } } workgroupBarrier();",
    "by what others write": "if (near[0] > 1.0) { workgroupBarrier(); }",
    "in a loop of own length": "for (var i = 0u; i < me; i++) { workgroupBarrier(); }",
    "in a while": "var i = me; while (i > 0u) { workgroupBarrier(); i--; }",
    "after a break": "for (var i = 0u; i < 9u; i++) { if (me == i) { break; } workgroupBarrier(); }",
    "of the other kind": "if (me < 3u) { storageBarrier(); }",
    "by a variable set under an if": "var s = 0u; if (me > 3u) { s = 1u; } if (s == 1u) { workgroupBarrier(); }",
    "by a variable counted under an if": "var s = 0u; if (me > 3u) { s++; } if (s == 1u) { workgroupBarrier(); }",
}


@pytest.mark.parametrize("body", REACHED.values(), ids=REACHED)
def test_a_barrier_that_all_reach_is_let_through(body):
    judge._uniform_barriers(HEAD + body + "\n}")


@pytest.mark.parametrize("body", NOT_REACHED.values(), ids=NOT_REACHED)
def test_a_barrier_that_some_do_not_reach_is_refused(body):
    with pytest.raises(checks.NotYet, match=r"line 10: not all invocations"):
        judge._uniform_barriers(HEAD + body + "\n}")


# ---- loops


@pytest.mark.parametrize(
    "body",
    [
        "for (var i = 0u; i < 5u; i += 0u) { near[me] = 1.0; }",
        "while n < 9u { near[me] = 1.0; }",
        "loop { near[me] = 1.0; if (n > 9u) { break; } }",
        "for (var i = 0u; i < 300u; i++) { for (var k = 0u; k < 300u; k++) { near[me] += 1.0; } }",
    ],
)
def test_a_loop_without_end_is_refused_before_it_runs_to_its_end(adapter, body):
    wanted = {0: "read-only-storage", 1: "storage", 2: "uniform"}
    told = {0: np.ones(70, np.float32), 2: np.array([5], np.uint32)}
    two = judge.Case("n = 5", told, 1, np.ones(2, np.float32), 2)
    with pytest.raises(checks.NotYet, match=r"goes round more than 20,000 times"):
        judge.judge_kernel(HEAD + body + "\n partial[group.x] = 1.0; }", wanted, [two])


def test_loops_that_end_are_counted_and_left_alone():
    counted = judge.counted("fn main() { // for\n for (var i = f(1u, (2u)); i < 3u; i++) { } /* while */ }")
    assert counted.count("ws_rounds >= ") == 1 and "i++) { if (ws_rounds" in counted


# ---- the verdict


def test_without_an_adapter_nothing_is_judged(monkeypatch, capsys):
    monkeypatch.setenv(webgpu.CHOICE, "no such adapter")
    for check in (lesson.check_saxpy, lesson.check_dense, lesson.check_sums):
        check("anything")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 and all(line.startswith("not judged: no WebGPU adapter here") for line in said)
    monkeypatch.setenv(checks.GRADE, "1")
    with pytest.raises(checks.CheckFailed, match="not judged"):
        lesson.check_sums("anything")


@pytest.mark.parametrize(
    ("answer", "told"), [(..., "came Ellipsis"), (5, "the text of a kernel, came 5"), ("  ", "no kernel")]
)
def test_what_is_no_kernel_is_not_done(adapter, capsys, answer, told):
    lesson.check_saxpy(answer)
    said = capsys.readouterr().out
    assert said.startswith("not done yet: ") and told in said


def test_luck_without_a_barrier_is_refused():
    with pytest.raises(checks.NotYet, match="by luck"):
        judge._shared_memory(HEAD + "near[me] = x[id.x]; partial[group.x] = near[0]; }")


# ---- races: each mutant of exercise 3 is one; here is what is told, and what the recorder does not follow


COPY = "near[me] = select(0.0, x[id.x], id.x < n); workgroupBarrier(); "
ROUNDS = "for (var step = 32u; step > 0u; step /= 2u) {{ {} workgroupBarrier(); }} "
END = "if (me == 0u) { partial[group.x] = near[0]; } }"


@pytest.mark.parametrize(
    ("before", "add", "fact"),
    [
        ("", "if (me < step) { near[me] += near[me + step]; }", "no race seen"),
        ("let mine = &near[me]; ", "if (me < step) { *mine += near[me + step]; }", "no race seen"),
        ("let all = &near; ", "if (me < step) { (*all)[me] += (*all)[me + step]; }", "races were not looked for"),
    ],
)
def test_a_right_sum_says_whether_races_were_looked_for(adapter, before, add, fact):
    assert fact in judge.judge_sums(HEAD + COPY + before + ROUNDS.format(add) + END)


@pytest.mark.parametrize(
    "source",
    [
        HEAD.replace("array<f32, 64>", "array<array<f32, 8>, 8>") + "near[0][me] = 1.0; }",
        HEAD.replace("array<f32, 64>", "atomic<u32>") + "atomicAdd(&near, 1u); }",
        HEAD + "near = array<f32, 64>(); }",
        HEAD + "let all = &near; (*all)[me] = 1.0; }",
        HEAD.replace("fn main", "fn other") + "}",
        HEAD.replace("@builtin(local_invocation_index) me: u32", "in: In") + "near[in.me] = 1.0; }"
        "struct In { @builtin(local_invocation_index) me: u32 }",
    ],
)
def test_what_the_recorder_does_not_follow_is_said(source):
    with pytest.raises(judge.races.NotFollowed):
        judge.races.rewritten(source, 1)


def test_the_order_decides_only_where_no_barrier_is():
    rows = lesson.orders().rows
    assert {row[1] for row in rows} == {64} and [row[2] for row in rows] == [64, 7, 22]


@pytest.mark.parametrize(
    ("body", "helps"),
    [
        ("x[id.x] = 1.0;", "declared `read`"),
        ("let i = id; partial[0] = x[i];", "id.x"),
        ("partial[0] = id.x * x[0];", r"f32\(i\)"),
        ("if (id.x) { partial[0] = 1.0; }", "comparison"),
        ("int i = 3;", "let i"),
        ("var sum = 0.0; sum = max(sum, 0u);", "0.0"),
        ("let i = 1u; i = 2u;", "`var`"),
        ("if (id.x >= n) return;", "braces"),
        ("partial[0] = 1.0", "semicolon"),
        ("if (n == 1.0) { partial[0] = 1.0; }", "`1u`"),
        ("var sum = 0; sum += x[0];", "`0.0`"),
        ("var sum = 0; sum = sum + 2.0 * x[0];", "`0.0`"),
        ("let i = id; if (i < n) { partial[0] = 1.0; }", "`id.x`"),
        ("for (let i = 0u; i < n; i++) { partial[0] = 1.0; }", "`var`"),
        ("partial[0] = select(0.0, 1.0, n);", "comparison"),
        ("if (n > 1 && n = 2) { partial[0] = 1.0; }", "`==`"),
        ("partial[0] = relu(x[0]);", r"max\(a, b\)"),
        ("const m = n;", "`let`"),
    ],
)
def test_a_frequent_mistake_gets_a_line_of_help(adapter, body, helps):
    with pytest.raises(checks.NotYet, match=rf"the kernel does not compile[\s\S]*\n.*{helps}"):
        judge.judge_sums(HEAD + body + "\n}")


# ---- tables, refusals, time


def test_a_refusal_is_shown_without_the_functions_of_the_library(adapter):
    device = webgpu.request_device(adapter, limits=lesson.DEFAULTS)
    source = webgpu.VECTOR_ADD
    said = lesson.refusal(lambda: device.create_shader_module(code=source.replace("b[id.x]", "d[id.x]")))
    assert "`d`" in said and "wgsl:9:" in said and "In wgpu" not in said
    assert "512" in lesson.refusal(lambda: webgpu.Kernel(device, source.replace("size(64)", "size(512)")))
    assert lesson.refusal(lambda: None) == "WebGPU did not object."
    assert len(lesson.limits(adapter).rows) == len(lesson.DEFAULTS)


def test_every_product_is_timed_and_the_figure_names_each_device(adapter, capsys, monkeypatch):
    told = []
    monkeypatch.setattr(lesson, "show", lambda drawn, alt: told.append(alt))
    bench = lesson.Matrices(48)
    device = webgpu.request_device(adapter, ["timestamp-query"])
    seconds = bench.moments(device, webgpu.MATRIX_PRODUCT)
    assert len(seconds) >= 5 and all(value > 0 for value in seconds.values())
    bench.measure_webgpu("WebGPU naive", device, webgpu.name(adapter), webgpu.MATRIX_PRODUCT, 3)
    bench.measure_numpy(3)
    lesson.draw_speeds(bench, None)
    lesson.draw_speeds(bench, (1e-6, "some device"))
    assert all(run.device in told[0] for run in bench.runs.values()) and "arithmetic alone" in told[1]
    bench.runs["WebGPU tiled"] = timing.Measurement("WebGPU tiled", "a", (2.0, 2.0, 2.0))
    bench.runs["OpenCL tiled"] = timing.Measurement("OpenCL tiled", "a", (1.0, 1.0, 1.0))
    lesson.compare_tiled(50, bench, "")
    assert "measured:      50 percent" in capsys.readouterr().out


def test_without_opencl_the_race_goes_on(monkeypatch):
    def nothing():
        raise lesson.WorkshopError("There is no OpenCL device here.")

    monkeypatch.setattr(lesson.opencl, "pick_device", nothing)
    assert lesson.Matrices(16).measure_opencl({}, 3) == "OpenCL is left out: There is no OpenCL device here."
    assert lesson.peak(3) is None


def test_opencl_kernels_of_lesson_02_multiply_right():
    cl = pytest.importorskip("pyopencl")
    try:
        device = lesson.opencl.pick_device()
    except lesson.WorkshopError as error:
        pytest.skip(str(error))
    queue = cl.CommandQueue(cl.Context([device]))
    a, b = np.random.default_rng(0).random((2, 32, 32), dtype=np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    for source in (lesson.OPENCL_NAIVE, lesson.OPENCL_TILED):
        c = np.zeros_like(a)
        buffers = [cl.Buffer(queue.context, flags, hostbuf=array) for array in (a, b, c)]
        kernel = lesson.opencl.build(queue.context, source).all_kernels()[0]
        kernel(queue, a.shape, (16, 16), *buffers, *[np.int32(32)] * 3)
        cl.enqueue_copy(queue, c, buffers[2])
        assert np.allclose(c, a @ b, rtol=1e-4)
