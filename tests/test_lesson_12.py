"""helpers.judge.checks on kernels that may crash or never end, and on sums within work-groups (lesson 12)."""

import re
import shutil
import time

import pytest

from helpers.compute import opencl, processes
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.judge.checks import CheckFailed
from helpers.lessons import lesson_12


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
    print("its first launch")  # for a process that ends without a verdict
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
        (judge_well, {}, r"right \(all tried\)"),
        (judge_badly, {"line": "it"}, "not yet: expected more of 'it'"),
        (judge_untouched, {}, "not done yet: nothing there"),
        (judge_unforeseen, {}, "not yet: No device."),
        (judge_dead, {}, "not yet: .*SIGKILL"),
        (judge_for_ever, {"seconds": 3}, "not yet: .*3 s"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_judge_in_a_subprocess_tells_its_verdict(capsys, judge, arguments, verdict):
    in_subprocess(judge, **arguments)
    assert re.match(verdict, said(capsys))


@pytest.mark.parametrize("judge", [judge_well, judge_untouched, judge_unforeseen])
def test_a_judge_in_the_same_process_gives_the_same_verdict(capsys, monkeypatch, judge):
    in_subprocess(judge)
    apart = said(capsys)
    monkeypatch.setenv(checks.SAME_PROCESS, "1")
    in_subprocess(judge)
    assert said(capsys) == apart


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
