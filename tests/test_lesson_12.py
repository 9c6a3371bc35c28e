"""helpers.checks on kernels that may crash or never end, and on sums within work-groups (lesson 12)."""

import pytest

from helpers import checks
from helpers.checks import CheckFailed
from helpers.errors import WorkshopError
from helpers.lessons import lesson_12

HEAD = """
__kernel void group_sums(__global const int *x, __global int *sums, const int n) {
    __local int part[64];
    int i = get_global_id(0), me = get_local_id(0);
"""
TREE = """
    part[me] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 32; step > 0; step /= 2) {
        if (me < step) part[me] += part[me + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) sums[get_group_id(0)] = part[0];
}
"""
ATOMIC = """
    if (me == 0) part[0] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) atomic_add(&part[0], x[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me == 0) sums[get_group_id(0)] = part[0];
}
"""


@pytest.fixture(autouse=True)
def not_grading(monkeypatch):
    monkeypatch.delenv(checks.GRADE, raising=False)


@checks.verdict
def in_subprocess(judge, **arguments):
    yield checks.judge_in_subprocess(judge, **arguments)


def said(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return out.strip()


# Judges for a subprocess, which imports this very module by its name.


def judge_well():
    return "all tried"


def judge_badly(line):
    raise checks.NotYet(f"expected more of {line!r}")


def judge_untouched():
    raise checks.NotDone("nothing there")


def judge_unforeseen():
    raise WorkshopError("No device.", "There is none.")


def judge_dead():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def judge_for_ever():
    while True:
        pass


@pytest.mark.parametrize(
    ("judge", "arguments", "verdict"),
    [
        (judge_well, {}, "right (all tried)"),
        (judge_badly, {"line": "it"}, "not yet: expected more of 'it'"),
        (judge_untouched, {}, "not done yet: nothing there"),
        (judge_unforeseen, {}, "not yet: No device."),
        (
            judge_dead,
            {},
            "not yet: the process that ran your kernel gave no verdict: the process was ended by SIGK",
        ),
        (judge_for_ever, {"seconds": 3}, "not yet: the process that ran your kernel gave no verdict: it had not"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_judge_in_a_subprocess_tells_its_verdict(capsys, judge, arguments, verdict):
    in_subprocess(judge, **arguments)
    assert said(capsys).startswith(verdict)


def test_grading_raises_what_the_process_found(monkeypatch):
    monkeypatch.setenv(checks.GRADE, "1")
    with pytest.raises(CheckFailed, match="expected more of 'it'"):
        in_subprocess(judge_badly, line="it")


def test_what_is_handed_in_as_it_was_handed_out_is_not_done(capsys):
    @checks.verdict
    def changed(answer):
        yield checks.judge_changed(answer, "int i;\ni = 1;")

    for answer in ("int i;\n  i = 1;", "int i; i = 1;", None, ...):
        changed(answer)
        assert said(capsys).startswith("not done yet: ")
    changed("int i; i = 2;")
    assert said(capsys) == "right (changed)"


@pytest.mark.parametrize("body", [TREE, ATOMIC])
def test_right_sums_pass(capsys, body):
    lesson_12.check_group_sums(HEAD + body)
    assert said(capsys).startswith("right (8 sizes from 1 to 70,400, no race seen, on ")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("i < n ? x[i] : 0", "x[i]", "work-item 100 touches x[100], which does not exist"),
        (" : 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", " : 0;", "work-items 0 and 32 both touch part[32]"),
        ("if (me == 0) ", "", "work-items 0 and 1 both touch sums[0]"),
        ("if (me < step) part[me] += part[me + step];\n", "if (me < step) part[me] += part[me + step], ", "1 meets 6"),
        ("sums[get_group_id(0)]", "sums[get_group_id(0) + 1]", "work-item 64 touches sums[2], which does not exist"),
        ("sums[get_group_id(0)] =", "sums[get_group_id(0)] +=", "expected"),
        ("if (me == 0)", "if (me == 0 && get_group_id(0) > 0)", "came nothing: it was never written"),
        ("barrier(CLK_LOCAL_MEM_FENCE);\n    for", "barrier(CLK_GLOBAL_MEM_FENCE);\n    for", "both touch part[32]"),
        (TREE, "    if (me == 0) sums[get_group_id(0)] = 0;\n    barrier(CLK_GLOBAL_MEM_FENCE);\n"
         "    if (i < n) atomic_add(&sums[get_group_id(0)], x[i]);\n}", "writes to global memory; expected one"),
        (TREE, "    if (me == 0) { int s = 0; for (int k = i; k < n && k < i + 64; k++) s += x[k]; "
         "sums[get_group_id(0)] = s; }\n}", "touches 65 elements: the others should share its work"),
    ],
)  # fmt: skip
def test_wrong_sums_are_refused(capsys, old, new, complaint):
    assert (HEAD + TREE).count(old) == 1
    lesson_12.check_group_sums((HEAD + TREE).replace(old, new))
    told = said(capsys)
    assert told.startswith("not yet: ") and complaint in told


def test_a_kernel_that_never_ends_is_refused(capsys):
    endless = HEAD + TREE.replace("step > 0", "step > -1")
    lesson_12.check_group_sums(endless)
    assert "the kernel 'group_sums' does not end" in said(capsys)


def test_a_kernel_that_writes_nothing_is_not_done(capsys):
    lesson_12.check_group_sums(HEAD + "}")
    assert said(capsys).startswith("not done yet: the kernel writes no result")
