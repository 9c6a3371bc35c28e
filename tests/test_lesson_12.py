"""helpers.judge.checks on kernels that may crash or never end, and on sums within work-groups (lesson 12)."""

import json
import os
import re

import numpy as np
import pytest

from helpers import ROOT
from helpers.devices import frameworks, opencl
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.judge.checks import CheckFailed
from helpers.lessons import lesson_12, lesson_12_race
from helpers.running import processes


@checks.print_verdict
def in_subprocess(judge, **arguments):
    yield checks.judge_in_subprocess(judge, **arguments)


def output(capsys):
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
        (judge_for_ever, {"seconds": 3}, "cannot tell: .*3 s"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_judge_in_a_subprocess_tells_its_verdict(capsys, judge, arguments, verdict):
    in_subprocess(judge, **arguments)
    assert re.match(verdict, output(capsys))


def judge_an_optimizers_fault():
    """Refuse whatever was optimized, as a driver with a fault makes it."""
    if "-cl-opt-disable" not in os.environ.get("PYOPENCL_BUILD_OPTIONS", ""):
        raise checks.NotYet("optimized")
    return "all tried"


def judge_an_optimizers_crash():
    if "-cl-opt-disable" not in os.environ.get("PYOPENCL_BUILD_OPTIONS", ""):
        judge_dead()
    return "all tried"


def judge_that_dies_at_the_second_opinion():
    if "-cl-opt-disable" in os.environ.get("PYOPENCL_BUILD_OPTIONS", ""):
        judge_dead()
    raise checks.NotYet("the first opinion")


@pytest.mark.parametrize("judge", [judge_an_optimizers_fault, judge_an_optimizers_crash])
def test_what_is_right_without_optimization_is_the_drivers_fault(capsys, monkeypatch, judge):
    monkeypatch.setenv(checks.GRADE, "1")
    in_subprocess(judge)
    assert re.match(r"right \(all tried, .*Your kernel is right", output(capsys).replace("\n    ", " "))
    with pytest.raises(CheckFailed):
        in_subprocess(judge, is_optimized=False)


def test_a_refusal_keeps_its_words_if_the_second_opinion_crashes(capsys):
    in_subprocess(judge_that_dies_at_the_second_opinion)
    assert output(capsys) == "not yet: the first opinion"


TREE = """
__kernel void group_sums(__global const int *x, __global int *out, const int n) {
    __local int part[64];
    int i = get_global_id(0), me = get_local_id(0);
    part[me] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    LOOP
    if (i < n) { out[i] = part[0]; }
}"""
ADD_NEIGHBOR = "if (me % (2 * step) == 0) { part[me] += part[me + step]; }"
WAIT = "barrier(CLK_LOCAL_MEM_FENCE);"
RIGHT_LOOPS = {
    "size": f"for (int step = 1; step < get_local_size(0); step *= 2) {{ {ADD_NEIGHBOR} {WAIT} }}",
}
WRONG_LOOPS = {
    "a sum never set": "int sum; for (int k = 0; k < get_local_size(0); k++) { sum += part[k]; } part[me] = sum + n;",
    "outside": f"for (int step = 1; step <= get_local_size(0); step *= 2) {{ {ADD_NEIGHBOR} {WAIT} }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("place", frameworks.opencl_devices())
def test_a_right_loop_is_right_and_a_wrong_one_refused_on_every_driver(capsys, monkeypatch, place):
    if opencl.find_problem(frameworks.opencl_devices()[place]):
        pytest.skip("it computes nothing")
    monkeypatch.setenv("PYOPENCL_CTX", place)
    for loops, begins in ((RIGHT_LOOPS, "right"), (WRONG_LOOPS, "not yet")):
        for name, loop in loops.items():
            lesson_12.check_group_sums(TREE.replace("LOOP", loop))
            assert output(capsys).startswith(begins), name


def test_a_barrier_in_a_branch_is_named_beside_the_race_that_it_leaves():
    inside = f"for (int step = 32; step > 0; step /= 2) {{ if (me < step) {{ part[me] += part[me + step]; {WAIT} }} }}"
    with pytest.raises(checks.NotYet, match=r"both touch part.*same barriers\..*take it out of the branch"):
        lesson_12.judge_group_sums(TREE.replace("LOOP", inside))


@pytest.mark.parametrize("judge", [judge_well, judge_untouched, judge_unforeseen])
def test_a_judge_in_the_same_process_gives_the_same_verdict(capsys, monkeypatch, judge):
    in_subprocess(judge)
    apart = output(capsys)
    monkeypatch.setenv(checks.SAME_PROCESS, "1")
    in_subprocess(judge)
    assert output(capsys) == apart


def test_grading_raises_what_the_process_found(monkeypatch):
    monkeypatch.setenv(checks.GRADE, "1")
    with pytest.raises(CheckFailed, match="expected more of 'it'"):
        in_subprocess(judge_badly, line="it")


# ------------------------------------------------------------------------------------ running what may go wrong


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        ("", "no error: [1]"),
        ("line 24 of launch: x\nTimeoutError: the kernel still runs", "the kernel still runs"),
        ("the process was ended by SIGSEGV; it was in line 2 of launch: x", "the process was ended by SIGSEGV"),
        (
            "line 25 of launch: queue.finish()\npyopencl._cl.RuntimeError: clFinish failed: OUT_OF_RESOURCES",
            "RuntimeError: clFinish failed: OUT_OF_RESOURCES",
        ),
    ],
)
def test_an_exit_is_described_in_one_line(failure, line):
    assert lesson_12.describe_exit(processes.Run([[1]], [""], [""], [failure], 1.0)) == line


def test_what_may_hang_runs_on_a_cpu_unless_the_learner_dares(monkeypatch, capsys):
    gpu, cpu, kind = object(), object(), opencl.kind
    kinds = {id(gpu): "gpu", id(cpu): "cpu"}
    monkeypatch.setattr(opencl, "kind", lambda chosen: kinds.get(id(chosen)) or kind(chosen))
    monkeypatch.setattr(opencl, "name", lambda chosen: "a GPU" if chosen is gpu else "a CPU")
    assert lesson_12._choose_safe_device(cpu, dare_gpu=False) == ({}, "What may crash or hang runs on: a CPU")
    assert lesson_12._choose_safe_device(gpu, dare_gpu=True) == ({}, "What may crash or hang runs on: a GPU")
    variables, where = lesson_12._choose_safe_device(gpu, dare_gpu=False)
    assert "a CPU, because your device is a GPU" in where
    monkeypatch.setenv("PYOPENCL_CTX", variables["PYOPENCL_CTX"])
    assert opencl.pick_device().type & 2  # a CPU
    monkeypatch.setattr(frameworks, "opencl_devices", dict)
    run = lesson_12.make_isolated_launch(gpu)
    assert "is not run" in capsys.readouterr().out
    assert run("a kernel", 1, 1, []) == lesson_12.NOT_RUN


STRAY = "__kernel void stray(__global float *x) { x[3 + 100000000] = 9; }"


def test_what_crashes_or_never_ends_leaves_the_notebook_alone():
    run = lesson_12.make_isolated_launch(opencl.pick_device())
    endless = "__kernel void wait(__global volatile int *flag) { while (flag[0] == 0) { } }"
    assert run(endless, 1, 1, [np.zeros(1, np.int32)]) == "the kernel still runs, 3 s after its start"
    right = "__kernel void right(__global int *x) { x[0] = 7; }"
    assert run(right, 1, 1, [np.zeros(1, np.int32)]) == "no error: [7]"
    assert run(STRAY, 1, 1, [np.zeros(4, np.float32)]).startswith(("no error", "the process was ended"))


def test_branches_are_compared_with_who_takes_them():
    def all_pass(source, *_):
        x = np.arange(512)
        return "the kernel still runs" if source == "if (me < 200)" else f"no error: {x - x % 256 + (x + 1) % 256}"

    with np.printoptions(threshold=1000):
        guesses = ("Legal ", "legal", "No", None)
        predictions = dict(zip(lesson_12.BRANCHES, guesses, strict=True))
        rows = lesson_12.try_branches(all_pass, "BRANCH", predictions).rows
    assert [row[1:] for row in rows] == [
        ("right", "all 1; all 0", "legal", "256 of 512 wrong: 256 to 511"),  # this driver let the second group through
        ("wrong", "0 to 1; 0 to 1", "not legal", "the kernel still runs"),
        ("neither word", "all 3; all 3", "legal", "all right"),
        ("", "0 to 255; 0 to 255", "not legal", "2 of 512 wrong: 0 to 0, 256 to 256"),
    ]


def test_each_program_stands_beside_what_it_showed(capsys):
    programs = lesson_12.read_programs()
    letters = {program.source: letter for letter, program in programs.items()}
    lesson_12.show_programs(lambda source, *_: f"no error: [{letters[source]}]")
    blocks = output(capsys).split("\n\n")
    assert len(blocks) == len(programs)
    for letter, block in zip(programs, blocks, strict=True):
        assert block.startswith(f"{letter}: ") and block.endswith(f"actual:   [{letter}]")


def test_the_causes_of_the_programs_cannot_be_found_by_elimination():
    causes = [program.cause for program in lesson_12.read_programs().values()]
    assert set(causes) == set(lesson_12.CAUSES) and len(causes) > len(set(causes))
    for program in lesson_12.read_programs().values():
        assert repr(program).endswith(f"expected={program.expected!r})")  # a learner who displays it sees no cause


def test_the_program_without_a_fault_is_right():
    program = lesson_12.read_programs()["C"]
    result = lesson_12.launch(program.source, program.items, program.group, program.arguments)
    assert str(result).split() == program.expected.split()


@pytest.mark.parametrize(
    ("letter", "fact"),
    [("A", "both write bins[0]"), ("B", "work-item 10 touches out[10], which does not exist"), ("C", "no race seen")],
)
def test_the_trace_of_a_program_names_its_fault_soon(capsys, letter, fact):
    lesson_12.print_trace(letter)
    assert fact in output(capsys)


@pytest.mark.parametrize("fills", ["0, 0", "INT_MAX, 0", "1000, -1000", "1000000000, -1000000000", "INT_MAX, INT_MIN"])
def test_what_fills_a_group_is_no_number_that_the_learner_may_get(fills):
    low, high = fills.split(", ")
    kernel = lesson_12.STRETCH.read_text(encoding="utf-8").replace("i <= n", "i < n")
    kernel = kernel.replace("    if (i < n) { low", f"    low[me] = {low}; high[me] = {high};\n    if (i < n) {{ low")
    kernel = kernel.replace("        }\n    }\n    barrier", f"        }}\n        {WAIT}\n    }}\n    barrier")
    if fills == "INT_MAX, INT_MIN":
        assert "sizes from 1" in lesson_12.judge_stretch(kernel)
    else:
        with pytest.raises(checks.NotYet, match="expected"):
            lesson_12.judge_stretch(kernel)


def test_the_kernel_of_the_hunt_is_the_one_in_the_lesson():
    cells = json.loads(next(ROOT.glob("notebooks/12-*.ipynb")).read_text(encoding="utf-8"))["cells"]
    assert any(lesson_12.STRETCH.read_text(encoding="utf-8") in "".join(cell["source"]) for cell in cells)


# ------------------------------------------------------------------------------------------------ a race, drawn


@pytest.mark.parametrize(("order", "total"), [("AAABBB", 2), ("BBBAAA", 2), ("ABABAB", 1), ("AABABB", 1)])
def test_an_order_of_steps_is_followed(order, total):
    done, reached = lesson_12_race.follow_order(order)
    assert reached == total and "".join(item for item, _ in done) == order


@pytest.mark.parametrize("order", ["", "AABB", "AAABBC", "AAAABB"])
def test_an_impossible_order_is_refused(order):
    with pytest.raises(WorkshopError):
        lesson_12_race.follow_order(order)
