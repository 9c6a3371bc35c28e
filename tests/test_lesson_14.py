"""Lesson 14's machinery: the judge of WGSL kernels by a record of what they touch, and the way without an adapter."""

import numpy as np
import pytest

from helpers.devices import webgpu
from helpers.judge import checks, wgsl_checks, wgsl_recorder
from helpers.lessons import lesson_14 as lesson
from helpers.lessons import lesson_14_web as web
from helpers.measure import records

HEAD = lesson.write_sums().partition("    near[me] =")[0]  # up to the first line of its body
CASE = wgsl_recorder.Case(
    "n = 130", {0: np.ones(130, np.float32), 2: np.array([130], np.uint32)}, 1, np.array([64, 64, 2], np.float32), 3
)


def judge_sums(source):
    """Judge sums of workgroups, as an exercise with workgroup memory would be judged."""
    wanted = {0: "read-only-storage", 1: "storage", 2: "uniform"}
    return wgsl_checks.judge_kernel(source, wanted, [CASE])


@pytest.fixture(scope="module")
def device():
    found = webgpu.pick_adapter()
    if found is None:
        pytest.skip(webgpu.explain_missing())
    return webgpu.request_device(found)


# ---- who reaches a barrier

REACHED = {
    "in a loop": "for (var s = 32u; s > 0u; s /= 2u) { if (me < s) { near[me] += 1.0; } workgroupBarrier(); }",
    "in a loop whose counter has another's name": "let i = me; for (var i = 0u; i < 6u; i++) { workgroupBarrier(); }",
    "by the group's number": "if (group.x == 0u) { workgroupBarrier(); }",
    "before the return": "workgroupBarrier(); if (me > 3u) { return; } partial[0] = 1.0;",
}
NOT_REACHED = {
    "under an if": "if (me < 3u) { workgroupBarrier(); }",
    "one in the if, one in the else": "if (me < 3u) { workgroupBarrier(); } else { workgroupBarrier(); }",
    "after a return": "if (id.x >= n) { return; } workgroupBarrier();",
    "in a loop of own length": "for (var i = 0u; i < me; i++) { workgroupBarrier(); }",
}


@pytest.mark.parametrize("body", REACHED.values(), ids=REACHED)
def test_a_barrier_that_all_reach_is_let_through(device, body):
    wgsl_recorder.record(device, HEAD + body + "\n}", CASE, dry=True)


@pytest.mark.parametrize("body", NOT_REACHED.values(), ids=NOT_REACHED)
def test_a_barrier_that_some_do_not_reach_is_told_and_never_run(device, body):
    with pytest.raises(checks.NotYet, match="do not reach the same barriers"):
        wgsl_recorder.record(device, HEAD + body + "\n}", CASE, dry=True)


@pytest.mark.parametrize("body", ["if (me < 64u) {", "let all = &near; let mine = me / 3u; if (mine < 1u) {"])
def test_a_barrier_under_a_condition_of_the_invocation_is_refused_whoever_reaches_it(device, body):
    with pytest.raises(checks.NotYet, match=r"a barrier stands inside of `if \(\w+ < \d+u\)`"):
        judge_sums(f"{HEAD}{body} workgroupBarrier(); }} }}")
    for uniform in REACHED.values():
        wgsl_checks.expect_uniform_barriers(HEAD + uniform + "\n}")


# ---- loops


@pytest.mark.parametrize(
    "body",
    [
        "for (var i = 0u; i < 5u; i += 0u) { near[me] = 1.0; }",
        "loop { near[me] = 1.0; if (n > 200u) { break; } }",
    ],
)
def test_a_loop_without_end_is_left(device, body):
    with pytest.raises(checks.NotYet, match=r"go round more than 20,000 times"):
        wgsl_recorder.record(device, HEAD + body + "\n partial[group.x] = 1.0; }", CASE, dry=False)


# ---- the verdict


def test_without_an_adapter_nothing_is_judged(monkeypatch, capsys):
    monkeypatch.setenv(webgpu.CHOICE, "no such adapter")
    every = (lesson.check_products, lesson.check_saxpy, lesson.check_narrow, web.check_dense, web.check_largest)
    for check in every:
        check("anything")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(every) and all(line.startswith("not judged: no WebGPU adapter here") for line in lines)
    monkeypatch.setenv(checks.GRADE, "1")
    with pytest.raises(checks.CheckFailed, match="not judged"):
        lesson.check_narrow("anything")


@pytest.mark.parametrize(
    ("answer", "fact"), [(..., "came Ellipsis"), (5, "the text of a kernel, came 5"), ("  ", "no kernel")]
)
def test_what_is_no_kernel_is_not_done(device, capsys, answer, fact):
    lesson.check_saxpy(answer)
    output = capsys.readouterr().out
    assert output.startswith("not done yet: ") and fact in output


COPY = "near[me] = select(0.0, x[id.x], id.x < n); workgroupBarrier(); "
HALVING_LOOP = "for (var step = 32u; step > 0u; step /= 2u) {{ {} workgroupBarrier(); }} "
END = "if (me == 0u) { partial[group.x] = near[0]; } }"


@pytest.mark.parametrize(
    ("before", "add", "fact"),
    [
        ("", "if (me < step) { near[me] += near[me + step]; }", "no race seen"),
        ("let all = &near; ", "if (me < step) { (*all)[me] += (*all)[me + step]; }", "races were not looked for"),
    ],
)
def test_a_right_sum_says_whether_races_were_looked_for(device, before, add, fact):
    assert fact in judge_sums(HEAD + COPY + before + HALVING_LOOP.format(add) + END)


def test_a_kernel_that_is_no_longer_right_computes_nowhere(device, monkeypatch, capsys):
    monkeypatch.setattr(web, "own_kernels", {"dense": "one that was right", "largest": "another"})
    web.check_dense("fn main() {}")
    assert web.own_kernels == {"largest": "another"} and "not yet" in capsys.readouterr().out


def test_what_the_recorder_does_not_follow_is_said():
    with pytest.raises(wgsl_recorder.NotFollowed):
        wgsl_recorder.rewrite(HEAD.replace("array<f32, 64>", "atomic<u32>") + "atomicAdd(&near, 1u); }", 1, dry=False)


def test_a_result_that_is_right_everywhere_but_written_too_far_is_refused(device):
    source = HEAD + "partial[id.x] = select(partial[id.x], 1.0, id.x < 3u); }"  # it writes back what was there
    with pytest.raises(checks.NotYet, match="writes element 3 of the output, and only 0 to 2"):
        wgsl_checks._expect_good_record(device, source, CASE._replace(expected=np.ones(3, np.float32)))


def test_the_record_shows_races_that_right_sums_hide(device, capsys):
    table = lesson.leave_out_barriers(device, 500, groups=10)
    assert table.rows[0][1:4] == ("10 of 10 right", 64, "none")
    assert all(" both touch near[" in row[3] for row in table.rows[1:])
    assert {row[4] for row in table.rows} == {"1,000 of 1,000 right"}  # on an H200, also without barriers
    assert "you predicted: 500" in capsys.readouterr().out


def test_a_recorded_gpu_stands_beside_the_own_sums(device, monkeypatch, tmp_path):
    monkeypatch.setattr(lesson.records, "RECORD", "SUMS_OF_A_TEST")
    monkeypatch.setenv("SUMS_OF_A_TEST", str(tmp_path / "notes"))
    lesson.leave_out_barriers(device, None, groups=10)
    notes = records.read_notes(tmp_path / "notes", "14")
    machine = records.Machine("a card", "gpu", "", "", {})
    records.write(tmp_path / "card.json", machine, notes)
    column = records.find_column("14", lesson.LEFT_OUT, tmp_path)
    assert column.cells[0] == "10 of 10 right" and "a card" in column.below[0]


@pytest.mark.parametrize(("width", "total"), [(4, 20), (8, 32), (32, 64)])  # SwiftShader, llvmpipe, an H100
def test_playing_a_width_gives_the_sum_that_its_adapter_gave(width, total):
    assert lesson.play(width, []) == total


def test_a_learners_kernel_stands_beside_those_of_the_lesson(device, capsys):
    source = lesson.write_sums(left_out=(8, 4, 2, 1))
    lesson.check_narrow(source)
    assert capsys.readouterr().out.startswith("right (with width 4, the computed sum is 48")
    *_, (label, _, _, race, _) = lesson.leave_out_barriers(device, None, groups=10).rows
    assert (label, race) == (lesson.YOURS, "0 and 4 both touch near[4]")
    checks._right.pop("narrow")


def test_memory_filled_by_zeros_gives_the_sums_that_wgsl_promises(device):
    assert lesson.add_without_zeros(device, None).rows[1][1] == "64, 64, 2"


@pytest.mark.parametrize(
    ("body", "helps"),
    [
        ("x[id.x] = 1.0;", "declared `read`"),
        ("partial[0] = x + x;", "one element"),
        ("let i = id; partial[0] = x[i];", "id.x"),
        ("partial[0] = id.x * x[0];", r"f32\(i\)"),
        ("if (id.x) { partial[0] = 1.0; }", "comparison"),
        ("int i = 3;", "let i"),
        ("var sum = 0.0; sum = max(sum, 0u);", "0.0"),
        ("let i = 1u; i = 2u;", "`var`"),
        ("if (id.x >= n) return;", "braces"),
        ("partial[0] = 1.0", "semicolon"),
        ("var best = 0; best = id.x;", "`0u`"),
        ("for i in range(6) { }", r"`for \(var"),
        ("var sum = 0; sum += x[0];", "`0.0`"),
        ("var sum = 0; sum = sum + 2.0 * x[0];", "`0.0`"),
        ("for (let i = 0u; i < n; i++) { partial[0] = 1.0; }", "`var`"),
    ],
)
def test_a_frequent_mistake_gets_a_line_of_help(device, body, helps):
    with pytest.raises(checks.NotYet, match=rf"the kernel does not compile[\s\S]*\n.*{helps}"):
        judge_sums(HEAD + body + "\n}")
