"""helpers.judge.checks on kernels that may crash or never end, and on sums within work-groups (lesson 12)."""

import shutil
import time

import IPython.display
import numpy as np
import pytest

from helpers.compute import opencl, processes
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.judge.checks import CheckFailed
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


def test_right_sums_pass(capsys):
    lesson_12.check_group_sums(HEAD + TREE)
    assert said(capsys).startswith("right (10 sizes from 1 to 70,400, no race seen, on ")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("i < n ? x[i] : 0", "x[i]", "work-item 100 touches x[100], which does not exist"),
        (" : 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", " : 0;", "work-items 0 and 32 both touch part[32]"),
        ("if (me == 0) ", "", "work-items 0 and 1 both write sums[0], and no barrier lies between"),
        ("if (me < step) part[me] += part[me + step];\n", "if (me < step) part[me] += part[me + step], ", "1 meets 6"),
        ("sums[get_group_id(0)]", "sums[get_group_id(0) + 1]", "work-item 64 touches sums[2], which does not exist"),
        ("sums[get_group_id(0)] =", "sums[get_group_id(0)] +=", "expected"),
        ("if (me == 0)", "if (me == 0 && get_group_id(0) > 0)", "came nothing: it was never written"),
        ("barrier(CLK_LOCAL_MEM_FENCE);\n    for", "barrier(CLK_GLOBAL_MEM_FENCE);\n    for", "both touch part[32]"),
        (TREE, ATOMIC, "Add as a tree"),
        ("__local int part", "__local float part", "expected"),
        ("__local int part[64]", "int part[64]", "no work-item touches local memory"),
        (TREE, "    if (me == 0) sums[get_group_id(0)] = 0;\n    barrier(CLK_GLOBAL_MEM_FENCE);\n"
         "    if (i < n) atomic_add(&sums[get_group_id(0)], x[i]);\n}", "no work-item touches local memory"),
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


# ------------------------------------------------------------------------------------ running what may go wrong


class Event:
    """A kernel's event whose status is that of the moment: (seconds until then, status), the last for ever."""

    command_queue = type("Queue", (), {"flush": lambda self: None})()

    def __init__(self, *statuses):
        self.statuses, self.start = statuses, time.perf_counter()

    @property
    def command_execution_status(self):
        now = time.perf_counter() - self.start
        return next(status for until, status in self.statuses if now < until)


QUEUED, RUNNING, COMPLETE, FAILED, EVER = 3, 1, 0, -5, float("inf")


@pytest.mark.parametrize("end", [COMPLETE, FAILED])
def test_the_clock_starts_when_the_kernel_does(end):
    lesson_12.wait(Event((0.6, QUEUED), (0.65, RUNNING), (EVER, end)), seconds=0.3)


@pytest.mark.parametrize("statuses", [[(0.1, QUEUED), (EVER, RUNNING)], [(EVER, QUEUED)]])
def test_a_kernel_without_end_is_told(statuses):
    with pytest.raises(TimeoutError, match="the kernel still runs"):
        lesson_12.wait(Event(*statuses), seconds=0.1)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ("", "no error: [1]"),
        ("line 24 of launch: x\nTimeoutError: the kernel still runs", "the kernel still runs"),
        ("the process was ended by SIGSEGV; it was in line 2 of launch: x", "the process was ended by SIGSEGV"),
        (
            "line 25 of launch: queue.finish()\npyopencl._cl.RuntimeError: clFinish failed: OUT_OF_RESOURCES",
            "RuntimeError: clFinish failed: OUT_OF_RESOURCES",
        ),
    ],
)  # fmt: skip
def test_a_fate_is_one_line(failure, told):
    assert lesson_12.fate(processes.Run([[1]], [""], [""], [failure], 1.0)) == told


def test_what_may_hang_runs_on_a_cpu_unless_the_learner_dares(monkeypatch, capsys):
    device = opencl.pick_device()
    assert lesson_12.safer(device, dare_gpu=False) == {} and "runs on: " in capsys.readouterr().out
    gpu = object()
    kinds = {id(gpu): "gpu"}
    monkeypatch.setattr(opencl, "kind", lambda one: kinds.get(id(one), "cpu"))
    monkeypatch.setattr(opencl, "name", lambda one: "a GPU" if one is gpu else "a CPU")
    assert lesson_12.safer(gpu, dare_gpu=True) == {} and "runs on: a GPU" in capsys.readouterr().out
    variables = lesson_12.safer(gpu, dare_gpu=False)
    assert "a CPU, because your device is a GPU" in capsys.readouterr().out
    monkeypatch.setenv("PYOPENCL_CTX", variables["PYOPENCL_CTX"])
    assert opencl.pick_device().type & 2  # a CPU
    monkeypatch.setattr(opencl, "platforms", list)
    assert lesson_12.safer(gpu, dare_gpu=False) is None and "is not run" in capsys.readouterr().out


def test_branches_are_compared_with_who_takes_them():
    def apart(source, items, group, arguments):
        x = arguments[0]
        if "me < 200" in source:
            return "the kernel still runs"
        return f"no error: {x - x % group + (x + 1) % group}"

    predictions = dict.fromkeys(("if (1)", "if (me < 200)", "for (int k = 0; k < me; k++)", "if (mine)"))
    rows = lesson_12.try_branches(apart, "BRANCH", predictions)
    told = [row[3] for row in rows]
    assert told[:3] == ["right", "the kernel still runs", "wrong: 2 of 512 elements"]
    assert told[3].startswith("no error: ")
    assert [row[2] for row in rows] == ["legal", "not legal", "not legal", "?"]


def test_where_nothing_runs_the_stored_fate_is_told(capsys):
    predictions = dict.fromkeys(lesson_12.BRANCHES)
    rows = lesson_12.try_branches(lambda source, *_: lesson_12.not_run(source), "BRANCH", predictions)
    assert [row[3] for row in rows if row[2] == "legal"] == ["not run here; PoCL 3.1 on a CPU: right"] * 3
    for one in lesson_12.programs().values():
        assert lesson_12.not_run(one.source).startswith("not run here; PoCL 3.1 on a CPU: ")
    assert lesson_12.not_run("another kernel") == "not run here"
    assert "not run here" in lesson_12.try_promise(promise_nothing, None, "nowhere")
    lesson_12.compare_noticed(1, [lesson_12.not_run("x[3 + 2]"), lesson_12.not_run("x[3 + 100000000]")])
    lesson_12.show_programs(lambda source, *_: lesson_12.not_run(source))
    told = said(capsys)
    assert " ..." not in "".join(
        line for line in told.splitlines() if line.startswith("actual: ") and "[1 1" not in line
    )
    assert "measured" not in told


def promise_nothing():
    print("created")


def promise_untried():
    print("created")
    print("not tried further, without a limit")


def promise_too_much():
    print("created")
    raise MemoryError


@pytest.mark.parametrize(
    ("promise", "told"),
    [
        (promise_nothing, "no prediction made; measured: nowhere"),
        (promise_untried, ""),
        (promise_too_much, "no prediction made; measured: at the first use"),
    ],
)
def test_a_promise_is_compared_where_it_was_tried(capsys, promise, told):
    lesson_12.try_promise(promise, {}, None)
    assert said(capsys) == told


def test_a_displayed_program_does_not_tell_its_cause():
    for one in lesson_12.programs().values():
        assert all(f"{name}=" not in repr(one) for name in ("symptoms", "cause", "fix", "question"))


def launch_race():
    import numpy as np
    import pyopencl as cl

    from helpers.compute import opencl

    context = cl.Context([opencl.pick_device()])
    queue, total = cl.CommandQueue(context), np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=total)
    source = "__kernel void add(__global int *total) {\n    *total += 1;\n}"
    opencl.build(context, source).all_kernels()[0](queue, (8,), (4,), buffer)
    queue.finish()


@pytest.mark.skipif(not shutil.which("oclgrind"), reason="Oclgrind is not installed")
def test_oclgrind_names_the_line_of_a_race():
    told = lesson_12.oclgrind(launch_race)
    assert "data race" in told and "Kernel: add" in told and "line 2" in told and "*total += 1;" in told


def test_without_oclgrind_its_package_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install oclgrind" in lesson_12.oclgrind(launch_race)


def test_each_broken_program_has_its_own_cause_and_fix():
    programs = lesson_12.programs().values()
    assert len({one.cause for one in programs}) == len({one.fix for one in programs}) == 6
    for one in programs:
        assert one.cause in lesson_12.CAUSES and set(one.symptoms) <= set(lesson_12.SYMPTOMS)


@pytest.mark.parametrize(
    ("diagnosis", "told"),
    [
        (None, "not yet: expected a dictionary with the letters A to F, came NoneType."),
        ({}, "not yet: there is no key 'A'; came an empty dictionary."),
        (dict.fromkeys("ABCDEF", "wrong"), "not yet: A: expected (symptom, cause, fix), came 'wrong'."),
        (dict.fromkeys("ABCDEF", ("", "", 0)), "not done yet: "),
        (dict.fromkeys("ABCDEF", ("wrong", "race", True)), "not yet: A: the fix is a number from 1 to 8; came True."),
        (dict.fromkeys("ABCDEF", ("wrong", ["race"], 2)), "not yet: A: the cause ['race'] is not in the list: "),
        (dict.fromkeys("ABCDEF", ("wrong", "", 0)), "not yet: A: the cause is still empty."),
        (dict.fromkeys("ABCDEF", ("", "", 0)) | {"E": ("Wrong", "arguments", "5")},
         "not yet: still empty: A, B, C, D, F. Right so far: E."),
        (dict.fromkeys("ABCDEF", ("", "", 0)) | {"B": ("wrong", "guard", 1)},
         "not yet: B: 'wrong' is true, but a more exact symptom is in the list."),
    ],
)  # fmt: skip
def test_a_diagnosis_of_another_form_is_told_so(capsys, diagnosis, told):
    lesson_12.check_diagnosis(diagnosis)
    assert said(capsys).startswith(told)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (
            lambda: lesson_12.strips({"guarded": np.array([2, -77]), "not": np.array([2, 9])}, 1, -77, "two strips"),
            ["two strips. guarded: 0 of 1 canaries dead; not: 1 of 1 canaries dead."],
        ),
        (lambda: lesson_12.reached([0, 40], 40, "its group"), ["its group. Of 2 groups, 1 saw", "in all 40 runs."]),
    ],
)
def test_a_figure_says_in_words_what_it_shows(monkeypatch, draw, words):
    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    draw()
    [image] = shown
    assert len(image.data) < 80_000 and all(word in image.alt for word in words)
