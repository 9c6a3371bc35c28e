"""judge.oclgrind: what Oclgrind finds in kernels and what it cannot; the lessons' solutions and wrong answers."""

import contextlib
import functools
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import lesson_files
from helpers.errors import WorkshopError
from helpers.judge import mistakes, oclgrind
from helpers.judge.oclgrind import DIVERGENCE, FORBIDDEN, OUTSIDE, RACE, UNWRITTEN

needs_oclgrind = pytest.mark.skipif(not oclgrind.installed(), reason="Oclgrind is not installed: apt install oclgrind")
GROUP = 8
RIGHT_ANSWERS = Path(__file__).parent / "answers"

# Kernels of the parameters x, out, n. What Oclgrind finds in each; {} is what it cannot know, or did not see.
BODIES = {
    "right": ("if (i < n) out[i] = x[i];", set()),
    "right, local": ("s[l] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) out[i] = s[7 - l];", set()),
    "right, the other name": (
        "s[l] = i; work_group_barrier(CLK_LOCAL_MEM_FENCE); if (i < n) out[i] = s[7 - l];",
        set(),
    ),
    "right, copied": (
        "event_t e = async_work_group_copy(s, x, 8, 0); wait_group_events(1, &e); if (i < n) out[i] = s[l];",
        set(),
    ),
    "right, atomic": ("if (i < n) atomic_inc((volatile __global int *)out);", set()),
    "right, a uniform branch": (
        "if (n > 4) { s[l] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) out[i] = s[l]; }",
        set(),
    ),
    "no guard": ("out[i] = x[i];", {OUTSIDE, UNWRITTEN}),
    "reads beyond the end, uses nothing of it": ("float v = x[i]; if (i < n) out[i] = v;", {OUTSIDE}),
    "reads beyond the end by a pointer": ("if (i < n) out[i] = *(x + i + 1);", {OUTSIDE, UNWRITTEN}),
    "reads beyond the end by vload2": ("if (i < n) out[i] = vload2(0, x + i).x;", {OUTSIDE}),
    "reads beyond the end by vload3": ("if (i < n) out[i] = vload3(0, x + i).x;", {OUTSIDE}),
    "reads beyond the end by a pointer handed on": (
        "__global const float *p = x + n; if (i < n) out[i] = p[i];",
        {OUTSIDE},
    ),
    "unsigned underflow": ("uint u = i; if (u - 1 < 0) return; if (i < n) out[i] = x[u - 1];", {OUTSIDE}),
    "leaves local memory": ("s[l + 1] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) out[i] = s[l];", {OUTSIDE}),
    "writes what is const": ("if (i < n) ((__global float *)x)[i] = out[i];", {FORBIDDEN}),
    "all write one element": ("if (i < n) out[0] = x[i];", {RACE}),
    "all write one value to one element": ("out[0] = 7;", {RACE}),
    "writes the neighbour's": ("if (i + 1 < n) { out[i] = 1; out[i + 1] = 1; }", {RACE}),
    "no barrier": ("s[l] = i; if (i < n) out[i] = s[7 - l];", {RACE}),
    "barrier(0)": ("s[l] = i; barrier(0); if (i < n) out[i] = s[7 - l];", {RACE}),
    "the other fence": ("s[l] = i; barrier(CLK_GLOBAL_MEM_FENCE); if (i < n) out[i] = s[7 - l];", {RACE}),
    "a local scalar that all write": ("s[0] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) out[i] = s[0];", {RACE}),
    "atomics mixed with a plain read": (
        "volatile __global int *q = (volatile __global int *)out; atomic_inc(q); if (i == 3) out[1] = q[0];",
        {RACE},
    ),
    "barrier in a branch": ("if (i < n) { barrier(CLK_LOCAL_MEM_FENCE); out[i] = 1; }", {DIVERGENCE}),
    "a barrier in either branch": (
        "if (i < n) barrier(CLK_LOCAL_MEM_FENCE); else barrier(CLK_LOCAL_MEM_FENCE);",
        {DIVERGENCE},
    ),
    "returns before the barrier": ("if (i >= n) return; barrier(CLK_LOCAL_MEM_FENCE); out[i] = 1;", {DIVERGENCE}),
    "a loop of other length": ("for (int k = 0; k <= l; k++) barrier(CLK_LOCAL_MEM_FENCE);", {DIVERGENCE}),
    "unwritten local values": (
        "if (l < 4) s[l] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) out[i] = s[7 - l];",
        {UNWRITTEN},
    ),
    "an unwritten variable": ("float v; if (i < n) out[i] = v;", {UNWRITTEN}),
    "a wrong formula": ("if (i < n) out[i] = x[i] + 1;", set()),
    "too few elements": ("if (i < n - 1) out[i] = x[i];", set()),
    "adds to what the host wrote there": ("if (i < n) out[i] += x[i];", set()),
    "divides by zero": ("if (i < n) out[i] = 1 / (n - n);", set()),
    "16 bits, that suffice here": ("short k = get_global_id(0); if (k < n) out[k] = x[k];", set()),
}


def kernel_with(body):
    return f"""__kernel void k(__global const float *x, __global float *out, const int n) {{
    __local float s[{GROUP}];
    int i = get_global_id(0), l = get_local_id(0);
    {body}
}}"""


def launch(body, n=13):
    x, out = np.arange(2 * n, dtype=np.float32).reshape(2, n)
    return oclgrind.launch(kernel_with(body), "k", 2 * GROUP, GROUP, [x, out, np.int32(n)])


def launch_all(launches):
    """Launch kernels in one process: {key: what `launch_here` takes} -> {key: kinds, None if it did not compile}."""

    def every(launches):
        import os
        from pathlib import Path

        from helpers.compute import opencl
        from helpers.judge import oclgrind

        os.environ["OCLGRIND_MAX_ERRORS"] = "1000000"
        written = []
        for number, one in enumerate(launches):
            os.environ["OCLGRIND_LOG"] = f"{os.environ['TMPDIR']}/log-{number}"  # a context begins it anew
            try:
                oclgrind.launch_here(*one)
                written.append(Path(os.environ["OCLGRIND_LOG"]).read_text())
            except opencl.KernelError:
                written.append(None)
        return written

    report = oclgrind.run(every, 300, {"launches": list(launches.values())})
    assert not report.failure
    kinds = [text if text is None else {one.kind for one in oclgrind.read(text)} for text in report.result]
    return dict(zip(launches, kinds, strict=True))


@functools.cache
def found_in_bodies():
    x, out = np.arange(26, dtype=np.float32).reshape(2, 13)
    rest = ("k", (2 * GROUP,), (GROUP,), [x, out, np.int32(13)])
    return launch_all({name: (kernel_with(body), *rest) for name, (body, _) in BODIES.items()})


@needs_oclgrind
@pytest.mark.parametrize("name", BODIES)
def test_what_oclgrind_finds_and_what_it_cannot(name):
    found, expected = found_in_bodies()[name], BODIES[name][1]
    # A value from outside is unwritten too, and so is one of which a race decides whether it was written before.
    extra = {UNWRITTEN} if expected & {OUTSIDE, RACE} else set()
    assert expected <= found <= expected | extra


@needs_oclgrind
def test_a_finding_names_kind_kernel_work_items_line_and_column():
    report = launch("s[l] = i;\n    if (i < n) out[i] = s[7 - l];")
    race = next(finding for finding in report.findings if finding.kind == RACE)
    assert (race.kernel, len(race.places), {place.line for place in race.places}) == ("k", 2, {4, 5})
    assert str(race).startswith("data race in kernel k, ")
    assert "    work-item 3 in line 4, column 10: s[l] = i;" in str(report)


@needs_oclgrind
def test_that_there_was_more_is_told():
    assert "There is more" in str(launch("for (int k = 0; k < 99; k++) out[13 + i + k] = 1;"))
    assert "There is more" not in str(launch("out[i] = 1;"))


@needs_oclgrind
def test_without_a_finding_it_says_what_it_looked_for_and_brings_the_arrays():
    report = launch("if (i < n) out[i] = 2 * x[i];")
    assert str(report).startswith("Oclgrind found no data race, access outside, barrier divergence or unwritten value")
    assert np.array_equal(report.result[1], 2 * report.result[0])


@needs_oclgrind
def test_a_function_of_ones_own_runs_there():
    def name():
        from helpers.compute import opencl

        print("hello")
        return opencl.name(opencl.pick_device())

    report = oclgrind.run(name)
    assert (report.findings, report.printed, report.failure) == ([], "hello\n", "")
    assert "simulator" in report.result.lower()


@needs_oclgrind
def test_a_kernel_without_an_end_is_ended_and_what_was_found_is_told():
    source = "__kernel void k(__global int *x) { x[9] = 1; while (x[0] == 0); }"
    report = oclgrind.launch(source, "k", 1, 1, [np.zeros(4, np.int32)], seconds=6)
    assert "had not ended after 6 s" in str(report) and report.kinds == {OUTSIDE}


@needs_oclgrind
def test_a_kernel_that_does_not_compile_is_a_failure():
    assert "line 1: expected ';'" in str(oclgrind.launch("__kernel void k() { int i }", "k", 1, 1, []))


def test_where_oclgrind_is_missing_one_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert not oclgrind.installed()
    with pytest.raises(WorkshopError, match="apt install oclgrind"):
        oclgrind.launch("", "k", 1, 1, [])


def test_a_message_of_another_kind_is_kept_and_that_there_were_too_many_is_not():
    log = """
OCLGRIND FATAL ERROR (./src/core/WorkItem.cpp:282)
Unsupported instruction
\tKernel: k
\tEntity: Global(1,2,0) Local(1,2,0) Group(0,0,0)
\t  tail call spir_func void @x()
\tDebugging information not available.
\t

Oclgrind: 3 errors generated - suppressing further errors
"""
    (finding,) = oclgrind.read(log)
    assert (finding.kind, finding.kernel, str(finding.places[0])) == ("other", "k", "work-item (1, 2)")


# ------------------------------------------------------------------------------- the lessons' exercises, slow

LESSONS = [path for path in lesson_files.every() if path.name[:2] in ("01", "02", "12")]
SIZES = (1, 63, 64, 65, 128, 129, 200)
MATRICES = ((1, 1, 1), (5, 7, 3), (16, 32, 8), (17, 23, 9))  # rows, columns, inner size


def numbers(n, dtype=np.float32):
    return np.random.default_rng(n).integers(-99, 100, n).astype(dtype)


def in_one_dimension(arguments, each=1, groups=(64, 20)):
    """Return launches, as `oclgrind.launch_here` takes them, of kernels whose work-items have `each` elements."""
    for n, group in itertools.product(SIZES, groups):
        yield (-(-n // (group * each)) * group,), (group,), [*arguments(n), np.int32(n)]


def of_matrices(group=(8, 4)):
    for m, n, k in MATRICES:
        grid = tuple(-(-size // (2 * items)) * items for size, items in zip((n, m), group, strict=True))
        sizes = [np.int32(size) for size in (m, n, k)]
        yield grid, group, [numbers(m * k), numbers(k * n), numbers(m * n), *sizes]


LAUNCHES = {  # by the kernel's name
    "saxpy": list(in_one_dimension(lambda n: [np.float32(2.5), numbers(n), numbers(n), numbers(n)])),
    "smooth": list(in_one_dimension(lambda n: [numbers(n), numbers(n)])),
    "squares": list(in_one_dimension(lambda n: [numbers(n), numbers(n)], each=2)),
    "group_sums": list(
        in_one_dimension(lambda n: [numbers(n, np.int32), numbers(-(-n // 64), np.int32)], groups=(64,))
    ),
    "block": list(of_matrices()),
}


def kernel_of(code):
    """Return (name, source) of the first kernel in the texts that an answer assigns, or None."""
    names = {}
    exec(code, names)
    sources = [value for value in names.values() if isinstance(value, str)]
    found = [(re.search(r"kernel\s+void\s+(\w+)", source), source) for source in sources]
    return next(((match[1], source) for match, source in found if match), None)


EXERCISES = {
    (path.stem[:2], kernel_of(one.solution)[0]): one
    for path in LESSONS
    for one in lesson_files.exercises(lesson_files.read(path))
    if re.search(r"kernel\s+void", one.solution)
}
SOLUTIONS = {key: one.solution for key, one in EXERCISES.items()}


def wrong_answers():
    """Return {(lesson, kernel, name): code} of each wrong answer whose kernel differs from the solution's."""
    wrong = {}
    for (lesson, kernel), one in EXERCISES.items():
        for name, code, *_ in mistakes.answers(mistakes.read(lesson)[one.number], one.solution):
            with contextlib.suppress(SyntaxError):
                mine = kernel_of(code)
                if mine and mine != kernel_of(one.solution) and mine[0] == kernel and name != "never ends":
                    wrong[lesson, kernel, name] = code
    return wrong


def right_answers():
    """Return {(lesson, kernel, name): code} of each right answer: the solution, and those written otherwise."""
    right = {(*key, "the solution"): solution for key, solution in SOLUTIONS.items()}
    for (lesson, kernel), one in EXERCISES.items():
        others = mistakes.answers(mistakes.read(lesson, RIGHT_ANSWERS).get(one.number, {}), one.solution)
        right |= {(lesson, kernel, name): code for name, code, *_ in others if kernel_of(code)[0] == kernel}
    return right


def kinds_found(answers):
    """Return {key: kinds} of answers to exercises, over all launches; None of one that does not compile."""
    launches = {}
    for key, code in answers.items():
        name, source = kernel_of(code)
        for number, launch in enumerate(LAUNCHES[name]):
            launches[key, number] = (source, name, *launch)
    found = {key: set() for key in answers}
    for (key, _), kinds in launch_all(launches).items():
        found[key] = None if kinds is None else found[key] | kinds
    return found


def test_every_kernel_that_solves_an_exercise_is_tried():
    assert SOLUTIONS and {name for _, name in SOLUTIONS} <= LAUNCHES.keys(), "tell in LAUNCHES how it is launched"


@needs_oclgrind
@pytest.mark.slow
def test_no_right_answer_has_a_finding():
    found = kinds_found(right_answers())
    print(f"{len(found)} right answers, {list(found.values()).count(None)} newer than Oclgrind's OpenCL C 1.2")
    assert {key: kinds for key, kinds in found.items() if kinds} == {}
    assert all(found[(*key, "the solution")] is not None for key in SOLUTIONS)


# What Oclgrind finds in the known mistakes, by lesson and kernel. All others compute something else,
# leave elements out, or do more than is needed: of that it knows nothing.
FOUND = {
    ("01", "saxpy"): {
        OUTSIDE: [
            "no guard", "guard one too wide", "neighbour read", "neighbour written", "reads before the guard",
            "reads through a pointer before the guard", "writes far outside"
        ],
        RACE: [
            "local id for global id", "race with the neighbour", "race with the group before",
            "every work-item computes everything", "wraps around for a guard", "the group id for the global id",
            "the group's number times a size that is not its own"
        ],
        FORBIDDEN: [
            "overwrites an input"
        ],
    },
    ("01", "smooth"): {
        OUTSIDE: [
            "no guard", "guard off by one", "left edge reads outside", "right edge reads outside",
            "reads before the guard", "reads through a pointer before the guard",
            "reads three neighbours through a pointer before the guard", "an unsigned index below zero",
            "an unsigned index below zero, with a guard"
        ],
        RACE: [
            "smooths in place, a race", "reads what another work-item may not have written"
        ],
    },
    ("02", "smooth"): {
        RACE: [
            "no barrier", "every work-item reads its neighbours", "a fence for global memory alone",
            "a barrier without a fence"
        ],
        OUTSIDE: [
            "reads before the array", "reads past the array", "reads past the array where a group ends", "no guard",
            "reads before the array through a pointer", "reads past the array through a pointer",
            "near is too small"
        ],
        UNWRITTEN: [
            "groups of 64 alone", "the place behind 64", "the edges are smoothed"
        ],
        DIVERGENCE: [
            "returns before the barrier", "a barrier in each of three branches",
            "the barrier in the branch of the edges"
        ],
    },
    ("02", "block"): {
        OUTSIDE: [
            "no guard for the rows", "guards one too wide", "writes the next row's first column",
            "no guard for the last element", "reads below A", "reads beyond the end of B", "reads before the guard",
            "rows and columns swapped in C", "the width of A", "writes far outside"
        ],
        RACE: [
            "blocks overlap", "one block for the group"
        ],
        FORBIDDEN: [
            "changes its input"
        ],
    },
    ("12", "squares"): {
        OUTSIDE: [
            "second guard one too wide", "second guard is the first", "no guard for the first",
            "clamped, so that the last is written twice", "reads before the guard", "reads inside the first guard",
            "far outside", "reads beyond the end through a pointer", "reads beyond the end as a pair"
        ],
        RACE: [
            "one element a work-item"
        ],
    },
    ("12", "group_sums"): {
        RACE: [
            "no barrier before the loop", "no barrier in the loop", "no barrier at all", "all write the sum",
            "sum of the wrong group", "a race in local memory", "a local scalar that all change",
            "an atomic, no barrier after zero", "an atomic, no barrier before the sum", "a fence for global memory",
            "a barrier without a fence"
        ],
        DIVERGENCE: [
            "barrier in the branch", "returns before the barrier", "a barrier in a loop that not all go round",
            "a barrier while some still add"
        ],
        OUTSIDE: [
            "no guard", "guard one too wide", "reads beyond the end through a pointer"
        ],
    },
}  # fmt: skip


@needs_oclgrind
@pytest.mark.slow
def test_what_oclgrind_finds_in_the_wrong_answers_of_the_lessons():
    found = {key: kinds for key, kinds in kinds_found(wrong_answers()).items() if kinds is not None}
    print(f"{sum(map(bool, found.values()))} of {len(found)} found", *found.items(), sep="\n")
    wanted = {(*one, name): kind for one, kinds in FOUND.items() for kind, names in kinds.items() for name in names}
    assert {key: kinds for key, kinds in found.items() if key in wanted and wanted[key] not in kinds} == {}
    assert wanted.keys() & found.keys()
