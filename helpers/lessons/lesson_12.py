"""Lesson 12, Break kernels on purpose: its broken programs, the checks of its exercises, its figures."""

from __future__ import annotations

import collections
import functools
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import frameworks, opencl
from helpers.judge import checks, kernel_checks, trace
from helpers.judge.checks import NotDone, NotYet
from helpers.measure.tables import Table
from helpers.running import processes

if TYPE_CHECKING:
    import pyopencl as cl

AT_ONCE = 3  # processes: each waits for its start and its compiler most of the time
ENDLESS = 3.0  # seconds from its start; a driver that never says that a kernel runs gets four times as long
NOT_RUN = "not run here: it may crash or hang a GPU"

# ----------------------------------------------------------------------------------------- running what may go wrong


def launch(
    source: str, items: int, group: int, arguments: Sequence[object], early: bool = False, seconds: float | None = None
) -> np.ndarray:
    """Run a source's only kernel on the lesson's device: lesson 01 in one function.

    Args:
        source: OpenCL C.
        items: so many work-items.
        group: so many of them in a work-group.
        arguments: of the kernel; an array becomes a buffer that holds it.
        early: whether the result is looked at before it can be there.
        seconds: after so long the kernel counts as endless; None waits for ever.

    Returns:
        What the last array holds afterwards.
    """
    import pyopencl as cl

    context = cl.Context([opencl.pick_device()])
    queue = cl.CommandQueue(context)
    kernel = opencl.build(context, source).all_kernels()[0]
    flags, passed = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            result = argument.copy()
            argument = buffer = cl.Buffer(context, flags, hostbuf=argument)
        passed.append(argument)
    event = kernel(queue, (items,), (group,), *passed)
    queue.flush()
    left, states = seconds, cl.command_execution_status
    while seconds and not early and (status := event.command_execution_status) > states.COMPLETE:
        time.sleep(0.005)
        left -= 0.005 if status == states.RUNNING else 0.00125
        if left <= 0:
            raise TimeoutError(f"the kernel still runs, {seconds:g} s after its start")
    copied = cl.enqueue_copy(queue, result, buffer, is_blocking=not early)
    snapshot = result.copy()
    copied.wait()
    return snapshot


def fate(run: processes.Run) -> str:
    """Return in one line what came of a function that may have crashed: its result or the last word of its failure."""
    if not run.failures[0]:
        return f"no error: {run.result}"
    last = run.failures[0].partition("; it was in")[0].splitlines()[-1]
    return last.removeprefix("TimeoutError: ").removeprefix("pyopencl._cl.")


def apart(device: cl.Device, dare_gpu: bool = False) -> Callable[..., str]:
    """Return a function that runs `launch` in a process of its own and tells its fate; say on which device it will run.

    An endless kernel may freeze a GPU that draws the screen, also from another process. So what may crash or hang runs
    on a CPU if there is one, and nowhere if there is none.

    Args:
        device: the lesson's device.
        dare_gpu: whether to run there even if it is a GPU.
    """
    variables, where = _safer(device, dare_gpu)
    print(where)

    def run(source: str, items: int, group: int, arguments: Sequence[object], early: bool = False) -> str:
        if variables is None:
            return NOT_RUN
        given = {"source": source, "items": items, "group": group, "arguments": arguments, "early": early}
        given["seconds"] = ENDLESS
        launched = "helpers.lessons.lesson_12:launch"
        return fate(processes.run(launched, seconds=90, check=False, variables=variables, arguments=given))

    return run


def attempt(source: str, items: int, group: int, arguments: Sequence[object]) -> str:
    """Run `launch` here, where nothing crashes or hangs, and return its result or the error in one line."""
    import pyopencl as cl

    try:
        return f"no error: {launch(source, items, group, arguments)}"
    except (cl.Error, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _safer(device: cl.Device, dare_gpu: bool) -> tuple[dict[str, str] | None, str]:
    """Return the variables of a process in which a kernel may hang, None where none should run; and that in words."""

    if dare_gpu or opencl.kind(device) == "cpu":
        return {}, f"What may crash or hang runs on: {opencl.name(device)}"
    for place, candidate in frameworks.opencl_devices().items():
        apple = candidate.platform.name == "Apple"  # its processor allows work-groups of one work-item
        if opencl.kind(candidate) == "cpu" and not apple and not opencl.find_problem(candidate):
            where = f"What may crash or hang runs on: {opencl.name(candidate)}, because your device is a GPU"
            return {"PYOPENCL_CTX": place}, where
    return None, "What may crash or hang is not run: your only device is a GPU, and dare_gpu is False."


# --------------------------------------------------------------------------------------------- barriers in a branch


BRANCHES = {  # of the lesson's kernel `turn`: how often a work-item takes them, from its local id and group
    "if (get_group_id(0) == 0)": lambda me, group: 1 * (group == 0),
    "if (me < 200)": lambda me, group: 1 * (me < 200),
    "if (get_local_id(0) < 200)": lambda me, group: 1 * (me < 200),
    "for (int k = 0; k < 3; k++)": lambda me, group: 0 * me + 3,
    "for (int k = 0; k < me; k++)": lambda me, group: me,
}


def try_branches(run: Callable[..., str], source: str, predictions: Mapping[str, object]) -> Table:
    """Run the lesson's kernel `turn` with each branch in a process of its own; return which elements came out wrong.

    Args:
        run: what `apart` returned.
        source: the kernel, with BRANCH in the branch's place.
        predictions: for each branch what the learner predicted: "legal" or "not legal".
    """
    x = np.arange(512, dtype=np.int32)
    me, group = x % 256, x // 256
    with ThreadPoolExecutor(AT_ONCE) as pool:
        fates = pool.map(
            lambda branch: run(source.replace("BRANCH", branch), 512, 256, [x, np.full_like(x, -9)]), BRANCHES
        )
        rows = []
        for branch, outcome in zip(BRANCHES, fates, strict=True):
            times = BRANCHES[branch](me, group)
            ends = [(counts.min(), counts.max()) for counts in times.reshape(-1, 256)]
            passes = "; ".join(f"all {low}" if low == high else f"{low} to {high}" for low, high in ends)
            legal = "legal" if all(low == high for low, high in ends) else "not legal"
            actual = np.array(re.findall(r"-?\d+", outcome) if outcome.startswith("no error") else [], np.int32)
            if len(actual) == len(x):
                wrong = actual != np.where(times, 256 * group + (me + 1) % 256, -9)
                edges = np.flatnonzero(np.diff(np.r_[False, wrong, False])).reshape(-1, 2)
                places = ", ".join(f"{first} to {end - 1}" for first, end in edges[:3])
                outcome = f"{wrong.sum()} of {len(x)} wrong: {places}" if places else "all right"
            rows.append((branch, predictions.get(branch) or "", passes, legal, outcome))
    return Table(
        rows, ("branch", "you", "passes, group 0; 1", "by the standard", f"elements of out, 0 to {len(x) - 1}")
    )


# -------------------------------------------------------------------------------------------- the six broken programs


@dataclass(frozen=True)
class Program:
    """A broken program to diagnose."""

    source: str
    items: int
    group: int
    arguments: list  # for `launch`; the last array is the result
    given: str  # the arguments in words
    expected: str  # what the result should be
    cause: str = field(repr=False)  # a learner may display a program
    fix: str = field(repr=False)
    question: str = field(repr=False)  # that leads to the cause
    symptom: str = field(default="wrong", repr=False)  # where no error came
    early: bool = field(default=False, repr=False)  # the host looks before the kernel has ended

    def symptom_of(self, outcome: str) -> str:
        """What the program showed, as one of the symptoms in WORDS; `outcome` is its fate."""
        if outcome.startswith("no error"):
            return self.symptom
        return "no end" if "still runs" in outcome else "crash"


WORDS = {  # of a diagnosis
    "symptom": ("wrong", "dead canary", "crash", "no end"),
    "cause": ("arguments", "barrier", "early", "guard", "race", "size", "unsigned", "unwritten"),
    "fix": tuple("12345678"),
}


def programs() -> dict[str, Program]:
    """Return the six broken programs, by their letters."""
    heights = np.r_[np.zeros(10), np.full(6, -77)].astype(np.float32)
    return {
        "A": Program(
            """
__kernel void tally(__global const int *x, __global int *bins) {
    int bin = x[get_global_id(0)], old = bins[bin];
    barrier(CLK_GLOBAL_MEM_FENCE);
    bins[bin] = old + 1;
}
""", 6400, 64, [np.arange(6400, dtype=np.int32) % 4, np.zeros(4, np.int32)],
            "x = 0 1 2 3 0 1 2 3 ... (6,400 numbers), bins = 0 0 0 0", "[1600 1600 1600 1600]",
            "race", "2", "How many work-items change one element of bins?",
        ),
        "B": Program(
            """
__kernel void root(__global const float *x, __global float *out, const int n) {
    int i = get_global_id(0);
    if (i <= n) { out[i] = sqrt(x[i]); }
}
""", 16, 8, [np.full(16, 9, np.float32), heights, np.int32(10)],
            "x = 9, 16 times; out = 0, 10 times, then six canaries of -77; n = 10", "10 times 3, then the six canaries",
            "guard", "1", "Which is the largest i that may write?", symptom="dead canary",
        ),
        "C": Program(
            """
__kernel void backwards(__global const int *x, __global int *total, const uint n) {
    for (uint k = n - 1; k >= 0; k--) { total[0] += x[k]; }
}
""", 1, 1, [np.ones(8, np.int32), np.zeros(1, np.int32), np.uint32(8)],
            "x = 1, 8 times; total = 0; n = 8", "[8]",
            "unsigned", "3", "What is k after 0?",
        ),
        "D": Program(
            """
__kernel void running_sum(__global const int *x, __global int *out) {
    __local int part[64];
    int me = get_local_id(0);
    part[me] = x[me];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 1; step <= me; step *= 2) {
        int more = part[me - step];
        barrier(CLK_LOCAL_MEM_FENCE);
        part[me] += more;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[me] = part[me];
}
""", 64, 64, [np.ones(64, np.int32), np.zeros(64, np.int32)],
            "x = 1, 64 times; out = 0, 64 times", "[1 2 3 ... 64]",
            "barrier", "4", "How often does work-item 0 go round the loop, how often 63?",
        ),
        "E": Program(
            """
__kernel void negative(__global const int *x, __global int *out, const int n) {
    int i = get_global_id(0);
    if (i < n) { out[i] = -x[i]; }
}
""", 8, 8, [np.arange(8, dtype=np.int64), np.zeros(8, np.int32), np.int32(8)],
            "x = np.arange(8), of dtype int64; out = 0, 8 times; n = 8", "[0 -1 -2 -3 -4 -5 -6 -7]",
            "arguments", "5", "How many bytes has one element of x, here and in the kernel?",
        ),
        "F": Program(
            """
__kernel void newton(__global const float *x, __global float *out) {
    int i = get_global_id(0);
    float root = 1;
    for (int k = 0; k < 1000; k++) { root = (root + x[i] / root) / 2; }
    out[i] = root;
}
""", 100_000, 50, [np.full(100_000, 9, np.float32), np.zeros(100_000, np.float32)],
            "x = 9, 100,000 times; out = 0, 100,000 times", "[3. 3. 3. ... 3. 3. 3.]",
            "early", "8", "When does the host look at out, and what has it waited for?", early=True,
        ),
    }  # fmt: skip


def show_programs(run: Callable[..., str], prediction: object) -> dict[str, str]:
    """Run each broken program in a process of its own, several at once; print it with its fate, and return the fates.

    Args:
        run: what `apart` returned.
        prediction: how many of them raise an error, crash, or never end.
    """
    every = programs()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        fates = list(pool.map(lambda p: run(p.source, p.items, p.group, p.arguments, p.early), every.values()))
    for (letter, program), outcome in zip(every.items(), fates, strict=True):
        many = "1 work-item" if program.items == 1 else f"{program.items:,} work-items in groups of {program.group}"
        copy = "enqueue_copy(queue, result, buffer" + (", is_blocking=False)" if program.early else ")")
        print(f"{letter}: {many}, then {copy}{program.source.rstrip()}")
        print(f"given:    {program.given}\nexpected: {program.expected}")
        print(f"actual:   {textwrap.shorten(outcome, 120, placeholder=' ...')}\n")
    if NOT_RUN not in fates:
        checks.compare_prediction(prediction, sum("no error" not in outcome for outcome in fates))
    return dict(zip(every, fates, strict=True))


# ------------------------------------------------------------------------------------------------------- its checks


def add_neighbours(x: np.ndarray) -> np.ndarray:
    """Return for each element its sum with the one before it in its group of 64; the first of a group stays alone."""
    before = np.where(np.arange(len(x)) % kernel_checks.LOCAL_SIZE, np.roll(x, 1), 0)
    return (x + before).astype(x.dtype)


def sum_groups(x: np.ndarray) -> np.ndarray:
    """Return for each element the sum of its group of 64."""
    starts = np.arange(0, len(x), kernel_checks.LOCAL_SIZE)
    return np.repeat(np.add.reduceat(x, starts, dtype=x.dtype), np.diff(np.r_[starts, len(x)]))


def _record_two_groups(kernel: opencl.Kernel) -> trace.Trace:
    return kernel_checks.record(kernel, "n = 128", 128, 64, [*np.ones((2, 128), np.int32), np.int32(128)])


def judge_pairs(source: str) -> str:
    """Judge the kernel that adds each element's neighbour through local memory; called in a subprocess."""
    kernel = kernel_checks.build(source, "pairs")
    tried = kernel_checks.judge_kernel(kernel, ("int[]",), add_neighbours, radius=1)
    for touch in (traced := _record_two_groups(kernel)).touches:
        if touch.array in traced.lengths and touch.index != touch.item:
            raise NotYet(f"the sums are right, but {touch}: take the neighbour's number from local memory, `part`.")
    return tried


@checks.verdict
def check_pairs(source: str, handed_out: str) -> Iterator[str]:
    """Exercise 1: the missing barrier, for all of a group.

    Args:
        source: what the learner made of the kernel.
        handed_out: the kernel as it was.
    """
    if isinstance(source, str) and source.split() == handed_out.split():
        raise NotDone("this is what you were given, and it has the fault.")
    yield checks.judge_in_subprocess(judge_pairs, source=source)


def judge_group_sums(source: str) -> str:
    """Judge the kernel that gives each element the sum of its work-group, as a tree; called in a subprocess."""
    kernel = kernel_checks.build(source, "group_sums")
    tried = kernel_checks.judge_kernel(kernel, ("int[]",), sum_groups, traced=kernel_checks.WHOLE_GROUPS)
    touched, traced = collections.defaultdict(set), _record_two_groups(kernel)
    for touch in traced.touches:
        touched[touch.item].add((touch.array, touch.index))
    busiest = max(map(len, touched.values()), default=0)  # what goes through pointers is not seen
    if busiest > kernel_checks.LOCAL_SIZE // 2 or any(touch.atomic for touch in traced.touches):
        raise NotYet(
            "the sums are right, but one work-item reads, or one element takes, most of a group. Add as a tree."
        )
    return tried


@checks.verdict
def check_group_sums(source: str) -> Iterator[str]:
    """Exercise 2: the sum of each work-group, in local memory, without a race."""
    yield checks.judge_in_subprocess(judge_group_sums, source=source)


@checks.verdict
def check_diagnosis(diagnosis: Mapping[str, Sequence], fates: Mapping[str, str]) -> Iterator[str]:
    """Exercise 3: of each broken program the symptom that it showed here, the cause and the fix.

    Args:
        diagnosis: what the learner says of each program: (symptom, cause, number of the fix).
        fates: those that `show_programs` returned.
    """
    judge = functools.partial(_judge_one, fates)
    yield checks.judge_diagnosis(diagnosis, programs(), tuple(WORDS), "programs", judge)


def _judge_one(fates: Mapping[str, str], letter: str, program: Program, *parts: object) -> None:
    if any(map(checks.is_empty, parts)):
        raise NotYet(f"{letter}: one of the three is still empty.")
    answers = [str(part).strip().lower().removesuffix(".0") for part in parts]  # "2" and 2.0 are 2
    for (what, words), word in zip(WORDS.items(), answers, strict=True):
        if word not in words:
            raise NotYet(f"{letter}: the {what} {word!r} is not in the list: {', '.join(words)}.")
    (symptom, cause, fix), shown = answers, program.symptom_of(fates[letter])
    if symptom != shown and fates[letter] != NOT_RUN:
        more = " It is true, but a more exact symptom is in the list." * ((symptom, shown) == ("wrong", "dead canary"))
        raise NotYet(f"{letter}: {symptom!r} is not what its line `actual` shows.{more}")
    if cause != program.cause:
        raise NotYet(f"{letter}: {cause!r} is not its cause. A question that leads there: {program.question}")
    if fix != program.fix:
        raise NotYet(f"{letter}: symptom and cause are right, but fix {fix} leaves the cause as it is.")
