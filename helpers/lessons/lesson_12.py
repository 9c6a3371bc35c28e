"""Lesson 12, Break kernels on purpose: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import collections
import contextlib
import math
import re
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import opencl, processes
from helpers.judge import checks, kernel_checks, trace
from helpers.judge.checks import NotYet
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, RED, SKY, figure, show

if TYPE_CHECKING:
    import pyopencl as cl

# ----------------------------------------------------------------------------------------- running what may go wrong


def wait(event: cl.Event, seconds: float) -> None:
    """Wait until a kernel has ended; the clock starts when the kernel does, not when it is queued or compiled.

    A driver that never says that a kernel runs gets four times as long, from the order on.

    Args:
        event: of the kernel.
        seconds: after so long it counts as endless.

    Raises:
        TimeoutError: it still runs.
    """
    import pyopencl as cl

    event.command_queue.flush()
    ordered, started = time.perf_counter(), None
    while (status := event.command_execution_status) > cl.command_execution_status.COMPLETE:
        now = time.perf_counter()
        if started is None and status == cl.command_execution_status.RUNNING:
            started = now
        if now > (ordered + 4 * seconds if started is None else started + seconds):
            raise TimeoutError(f"the kernel still runs, {seconds:g} s after its start")
        time.sleep(0.005)


def fate(run: processes.Run) -> str:
    """Return in one line what came of a function that may have crashed: its result or the last word of its failure."""
    if not run.failures[0]:
        return f"no error: {run.result}"
    last = run.failures[0].partition("; it was in")[0].splitlines()[-1]
    return last.removeprefix("TimeoutError: ").removeprefix("pyopencl._cl.")


def safer(device: cl.Device, dare_gpu: bool) -> dict[str, str] | None:
    """Return the variables of a process in which a kernel may hang, and say on which device it will run.

    Args:
        device: the lesson's device.
        dare_gpu: whether to run there even if it is a GPU.

    Returns:
        None where nothing should run: the only device is a GPU, and may draw the screen.
    """
    import pyopencl as cl

    if dare_gpu or opencl.kind(device) == "cpu":
        print(f"What may crash or hang runs on: {opencl.name(device)}")
        return {}
    for number, platform in enumerate(opencl.platforms()):
        found: list[cl.Device] = []
        with contextlib.suppress(cl.Error):  # rusticl hides its devices until RUSTICL_ENABLE is set
            found = platform.get_devices()
        for place, one in enumerate(found):
            if opencl.kind(one) == "cpu" and not opencl.problem(one):
                print(f"What may crash or hang runs on: {opencl.name(one)}, because your device is a GPU")
                return {"PYOPENCL_CTX": f"{number}:{place}"}
    print("What may crash or hang is not run: your only device is a GPU, and dare_gpu is False.")
    return None


SEEN = {  # by a part of the kernel's text: what PoCL 3.1 showed on an AMD EPYC of two cores
    "x[3 + 2]": "no error: [1. 2. 3. 4.]",
    "x[3 + 1000]": "no error: [1. 2. 3. 4.]",
    "x[3 + 100000000]": "the process was ended by SIGSEGV (compiled code crashed)",
    "if (1)": "right",
    "if (get_group_id(0) == 0)": "right",
    "if (me < 200)": "wrong: 112 of 512 elements",
    "if (get_local_id(0) < 200)": "the kernel still runs, 4 s after its start",
    "for (int k = 0; k < 3; k++)": "right",
    "for (int k = 0; k < me; k++)": "wrong: 510 of 512 elements",
    "while (flag[0] == 0)": "the kernel still runs, 4 s after its start",
    "void tally(": "no error: [8000 8000 8000 8000]",
    "void root(": "no error: [3. 3. 3. 3. 3. 3. 3. 3. 3. 3. 3. -77. -77. -77. -77. -77.]",
    "void backwards(": "the process was ended by SIGSEGV (compiled code crashed)",
    "void running_sum(": "no error: [1 1 1 1 1 1 1 1 ... 1 1 1 1]",
    "void negative(": "no error: [ 0 0 -1 0 -2 0 -3 0]",
    "void sizes(": "no error: [1. 2. 5.]",
}


def not_run(source: str) -> str:
    """Return that a kernel was not run, and what PoCL showed of it where that is stored."""
    shown = next((seen for part, seen in SEEN.items() if part in source), "")
    return "not run here" + (f"; PoCL 3.1 on a CPU: {shown}" if shown else "")


def compare_noticed(prediction: object, fates: Sequence[str]) -> None:
    """Compare a prediction with how many of the fates are an error; with nothing where nothing ran."""
    if not any(one.startswith(not_run("")) for one in fates):
        checks.compare_prediction(prediction, sum("no error" not in one for one in fates))


def try_promise(
    promise: Callable[[], None], variables: Mapping[str, str] | None, prediction: object
) -> processes.Run | str:
    """Run lesson 12's `promise` in a process of its own, say where it failed beside the prediction, and return the run.

    Args:
        promise: prints "created" after its buffers, "used" after each first use, "not tried" where no limit can be set.
        variables: of the process, from `safer`.
        prediction: "at creation", "at the first use" or "nowhere".
    """
    if variables is None:
        return not_run("") + "; PoCL 3.1 on a CPU: five buffers created, the second failed at its first use"
    run = processes.run(promise, check=False, seconds=60, variables=variables)
    if "not tried" not in run.stdout[0]:
        place = "at the first use" if "created" in run.stdout[0] else "at creation"
        checks.compare_prediction(prediction, place if run.failures[0] else "nowhere")
    if run.stderr[0]:
        print("the driver's own words:", run.stderr[0][:200].rstrip())
    return run


def _whole_group(me: np.ndarray, group: np.ndarray) -> np.ndarray:
    return np.ones(me.shape, bool)


BRANCHES = {  # of lesson 12's kernel `turn`: who takes them, from the local ids and the numbers of the groups
    "if (1)": _whole_group,
    "if (get_group_id(0) == 0)": lambda me, group: group == 0,
    "if (me < 200)": lambda me, group: me < 200,
    "if (get_local_id(0) < 200)": lambda me, group: me < 200,
    "for (int k = 0; k < 3; k++)": _whole_group,
    "for (int k = 0; k < me; k++)": lambda me, group: me > 0,
}


def try_branches(
    apart: Callable[[str, int, int, list], str], source: str, predictions: Mapping[str, object]
) -> list[tuple]:
    """Run lesson 12's kernel `turn` with each branch in a process of its own, several at once.

    Args:
        apart: the lesson's function of (source, items, group, arguments).
        source: the kernel, with BRANCH in the branch's place.
        predictions: for each branch of BRANCHES what the learner predicted.

    Returns:
        A row for each: the branch, the prediction, whether the standard allows it, and what came: "right", "wrong" with
        the number of wrong elements, or the fate.
    """
    from concurrent.futures import ThreadPoolExecutor

    x, group = np.arange(512, dtype=np.int32), 256
    with ThreadPoolExecutor(3) as pool:
        arguments = [x, np.full(len(x), -9, np.int32)]
        fates = pool.map(lambda one: apart(source.replace("BRANCH", one), len(x), group, arguments), predictions)
        rows = list(zip(predictions.items(), fates, strict=True))
    me, neighbour = x % group, x // group * group + (x + 1) % group

    def outcome(branch: str, came: str) -> str:
        if not came.startswith("no error: ") or branch not in BRANCHES:
            return came
        actual = np.array(re.findall(r"-?\d+", came), np.int32)
        wrong = int((actual != np.where(BRANCHES[branch](me, x // group), neighbour, -9)).sum())
        return f"wrong: {wrong} of {len(x)} elements" if wrong else "right"

    def legal(branch: str) -> str:
        if branch not in BRANCHES:
            return "?"
        taken = BRANCHES[branch](me, x // group).reshape(-1, group)
        return "legal" if (taken == taken[:, :1]).all() else "not legal"

    return [(branch, predicted, legal(branch), outcome(branch, came)) for (branch, predicted), came in rows]


OCLGRIND_WATCHES = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNIFORM_WRITES": "1",  # races also where all write the same value
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_NUM_THREADS": "1",  # the messages in the same order each time
}


def oclgrind_variables() -> dict[str, str]:
    """Return the variables of a process for which the simulator Oclgrind is the only OpenCL; empty if it is not here.

    They work for the loader in PyOpenCL's wheel and for the one of Debian and Ubuntu (both are ocl-icd).
    """
    program = shutil.which("oclgrind")
    folder = Path(program).resolve().parent.parent / "lib" if program else Path()
    drivers = [folder / place / "liboclgrind-rt-icd.so" for place in ("oclgrind", "")]
    driver = next((path for path in drivers if program and path.exists()), None)
    if driver is None:
        return {}
    return {
        "OCL_ICD_VENDORS": str(driver),
        "PYOPENCL_CTX": "",
        "PYOPENCL_NO_CACHE": "1",  # of a kernel from PyOpenCL's cache, Oclgrind would not know the lines
        # The optimiser would drop reads whose value nobody uses, and merge two barriers of two branches into one.
        # Oclgrind's OpenCL C 1.2 knows the older name of the barrier alone.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable -Dwork_group_barrier=barrier",
    }


def oclgrind(function: Callable, seconds: float = 20.0, **arguments: object) -> str:
    """Run a function whose OpenCL device is the simulator Oclgrind; return its first message, or how to get it.

    Args:
        function: as for `processes.run`.
        seconds: when they are over, the run is ended; what was found until then is returned.
        arguments: for the function.
    """
    variables = oclgrind_variables()
    if not variables:
        return "Oclgrind is not installed here. On Debian or Ubuntu, also in WSL: sudo apt install oclgrind"
    variables |= OCLGRIND_WATCHES | {"OCLGRIND_MAX_ERRORS": "1"}  # the others mostly say the same of other work-items
    run = processes.run(function, seconds=seconds, variables=variables, check=False, arguments=arguments)
    return "\n".join(filter(None, [run.stderr[0].strip(), run.failures[0]])) or "Oclgrind found nothing in this run."


# ------------------------------------------------------------------------------------------------------- its checks


def judge_squares(source: str) -> str:
    """Judge lesson 12's kernel that squares two elements a work-item; called in a subprocess."""
    kernel = kernel_checks.build(source, "squares")
    return kernel_checks.judge_kernel(kernel, ("float[]",), lambda x: x * x, elements=2)


@checks.verdict
def check_squares(source: str) -> Iterator[str]:
    """Lesson 12, exercise 1: two elements a work-item, and a guard that forgets the second."""
    handed_out = """
__kernel void squares(__global const float *x, __global float *out, const int n) {
    int i = 2 * get_global_id(0);
    if (i < n) {
        out[i] = x[i] * x[i];
        out[i + 1] = x[i + 1] * x[i + 1];
    }
}
"""
    yield checks.judge_changed(source, handed_out)
    yield checks.judge_in_subprocess(judge_squares, source=source)


POISON = """
__kernel void poison(__global int *out) {
    __local int spoilt[%(size)d];
    for (int k = get_local_id(0); k < %(size)d; k += get_local_size(0)) {
        spoilt[k] = 1000003 * (k + 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = spoilt[get_local_size(0) - 1 - get_local_id(0)];
}
"""


def judge_group_sums(source: str, group: int = kernel_checks.LOCAL_SIZE) -> str:
    """Judge lesson 12's kernel (x, sums, n) that writes the sum of each work-group's elements; called in a subprocess.

    A kernel without barriers may be right on a device that runs a group one work-item after the other; so a launch is
    traced first, and judged by what it touches between which barriers. Then each size runs several times on fresh whole
    numbers, between canaries, after a kernel that leaves other numbers in local memory.
    """
    import pyopencl as cl

    rng = np.random.default_rng()
    kernel = kernel_checks.build(source, "group_sums")
    kernel_checks.expect_parameters(kernel, ("int[]", "int[]", "int"))
    n, launch = 2 * group - 28, f"n = {2 * group - 28}, {2 * group} work-items in groups of {group}"
    arguments = [rng.integers(-99, 100, n, np.int32), np.zeros(2, np.int32), np.int32(n)]
    traced = kernel_checks.record(kernel, launch, 2 * group, group, arguments)
    _judge_touches(traced, launch, group)
    poison = cl.Kernel(opencl.build(kernel.context, POISON % {"size": 4 * group}), "poison")
    spoilt = cl.Buffer(kernel.context, cl.mem_flags.READ_WRITE, size=4 * 8 * group)

    def sums(x: np.ndarray, fill: int) -> np.ndarray:
        poison(kernel.queue, (8 * group,), (group,), spoilt)
        return kernel_checks.run_guarded(kernel, {"x": x}, len(x), math.ceil(len(x) / group), len(x), group, fill)

    tried = sorted({*kernel_checks.SIZES, int(rng.integers(300, 3000)), 1100 * group})
    for n in tried:
        for _ in range(3):
            x = rng.integers(-LARGE, LARGE, n, np.int32)
            _judge_sums(x, *(sums(x, fill) for fill in kernel_checks.FILLS), group)
    followed = f"not followed: {', '.join(traced.unseen)}" if traced.unseen else "no race seen"
    return f"{len(tried)} sizes from {min(tried)} to {max(tried):,}, {followed}, on {opencl.name(kernel.device)}"


LARGE = 2**24 + 2**20  # larger than a float can count, and 64 of them still fit into an int


def _judge_touches(traced: trace.Trace, launch: str, group: int) -> None:
    """Judge who touched what: nothing outside, no race, nothing unwritten, and the work shared in local memory."""
    kernel_checks.expect_writes(traced, launch)
    outside = [f"{touch}, which does not exist" for touch in traced.outside]
    for wrong in outside or traced.races() or traced.unwritten():
        raise NotYet(f"{launch}: {wrong}.")
    touched = collections.defaultdict(set)
    for touch in traced.touches:
        touched[touch.item].add((touch.array, touch.index))
    busiest = max(touched, key=lambda item: len(touched[item]))
    if (many := len(touched[busiest])) > group // 2:
        raise NotYet(
            f"{launch}: the sums may be right, but work-item {busiest} touches {many} elements: the others "
            "should share its work."
        )
    if not traced.local_accesses.any() and not traced.unseen:
        raise NotYet(f"{launch}: no work-item touches local memory; the sum should grow in a `__local int part[64]`.")
    if any(touch.atomic for touch in traced.touches):
        raise NotYet(
            f"{launch}: the sums may be right, but all work-items wait for one element (atomics). Add as a tree."
        )
    writes = sum(touch.array in traced.lengths and touch.writes for touch in traced.touches)
    if writes > len(traced.global_ids) // group:
        raise NotYet(
            f"{launch}: {writes} writes to global memory; expected one for each group. Add up in local memory."
        )


def _judge_sums(x: np.ndarray, one: np.ndarray, other: np.ndarray, group: int) -> None:
    """Judge every sum of two runs, on results that held different things before."""
    n = len(x)
    expected = np.add.reduceat(x, np.arange(0, n, group))
    unwritten = kernel_checks.find_unwritten(one, other)
    for actual in (one.view(np.int32), other.view(np.int32)):
        if (wrong := np.flatnonzero(actual != expected)).size:
            first = int(wrong[0])
            came = "nothing: it was never written" if unwritten[first] else str(actual[first])
            elements = f"elements {first * group} to {min((first + 1) * group, n) - 1}"
            raise NotYet(f"n = {n}: sums[{first}], of {elements}: expected {expected[first]}, came {came}.")


@checks.verdict
def check_group_sums(source: str) -> Iterator[str]:
    """Lesson 12, exercise 2: the sum of each work-group, in local memory, without a race."""
    yield checks.judge_in_subprocess(judge_group_sums, source=source)


@checks.verdict
def check_silent_cause(learner: Callable[[list[int], list[int], int], str]) -> Iterator[str]:
    """Lesson 12, exercise 3: what went wrong where no error was raised, by the cheapest questions first."""

    def right(canaries: list[int], results: list[int], expected: int) -> str:
        if any(canary != -77 for canary in canaries):
            return "guard"
        if len(set(results)) > 1:
            return "race"
        return "arguments" if results[0] != expected else "right"

    def cases(rng: np.random.Generator) -> list[tuple]:
        alive = [-77, -77, -77]
        plain = [
            ([-77, 0, -77], [5, 5, 5], 5),
            (alive, [5, 4, 5], 5),
            (alive, [4, 4, 4], 5),
            (alive, [5, 5, 5], 5),
            ([-77, -77, 3], [5, 4, 3], 5),
            ([0, -77, -77], [4, 4, 4], 5),
            (alive, [4, 4, 5], 5),
            (alive, [5, 5, 4], 5),
            (alive, [3, 4, 3], 5),
            ([-77], [0], 0),
            ([77, 77], [7, 7], 7),
            (alive, [-77, -77], -77),
            ([-78, -76], [5, 5], 5),  # their sum is that of the living
            ([-77, -99], [5, 5], 5),  # and so is their largest
            ([-77.5], [5, 5], 5),
            ([-77], [5, 4, 3], 5),  # more than two different results
            ([-77], [5, 4, 6], 5),  # their sum is three times the first
            ([-77], [6, 6], 5),  # too large
            ([-77], [-5, -5], 5),
            ([-77], [5.0005, 5.0005], 5),
            ([-77], [10**12 + 1] * 2, 10**12),  # "nearly right" is wrong
            ([], [4, 4], 5),  # no canary, so none is dead
            ([-77] * 20 + [0], [5, 5], 5),
            ([-77], [5] * 20 + [4], 5),
        ]
        drawn = []
        for _ in range(30):
            many = int(rng.integers(1, 12))
            canaries = rng.choice([-77] * 5 * many + [8], many).tolist()
            expected = int(rng.integers(1000, 1004))  # no two of them one object, as small numbers are
            results = np.full(4, expected).tolist() if rng.random() < 0.4 else rng.integers(1000, 1002, many).tolist()
            drawn.append((canaries, results, expected))
        return plain + drawn

    yield checks.judge_function(learner, right, cases)


@dataclass(frozen=True)
class Program:
    """A broken program to diagnose."""

    source: str
    items: int
    group: int
    arguments: list  # for `launch`; the last array is the result
    given: str  # the arguments in words
    expected: str  # what the result should be
    symptoms: tuple[str, ...] = field(repr=False)  # all that a device may show; a learner may display a program
    cause: str = field(repr=False)
    fix: int = field(repr=False)
    question: str = field(repr=False)  # that leads to the cause


SYMPTOMS = ("wrong", "dead canary", "crash", "no end")
CAUSES = ("arguments", "barrier", "early", "guard", "layout", "race", "unsigned", "unzeroed")
FIXES = 8


def programs() -> dict[str, Program]:
    """Return the six broken programs of lesson 12's exercise 4, by their letters."""
    count = 64_000
    points = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 3], [4, 0, 0]], np.float32)
    heights = np.r_[np.zeros(10), np.full(6, -77)].astype(np.float32)
    return {
        "A": Program(
            """
__kernel void tally(__global const int *x, __global int *bins) {
    bins[x[get_global_id(0)]]++;
}
""", count, 64, [np.arange(count, dtype=np.int32) % 4, np.zeros(4, np.int32)],
            "x = 0 1 2 3 0 1 2 3 ... (64,000 numbers), bins = 0 0 0 0", "[16000 16000 16000 16000]",
            ("wrong",), "race", 2, "How many work-items change one element of bins?",
        ),
        "B": Program(
            """
__kernel void root(__global const float *x, __global float *out, const int n) {
    int i = get_global_id(0);
    if (i <= n) { out[i] = sqrt(x[i]); }
}
""", 16, 8, [np.full(16, 9, np.float32), heights, np.int32(10)],
            "x = 9, 16 times; out = 0, 10 times, then six canaries of -77; n = 10", "10 times 3, then the six canaries",
            ("dead canary",), "guard", 1, "Which is the largest i that may write?",
        ),
        "C": Program(
            """
__kernel void backwards(__global const int *x, __global int *total, const uint n) {
    for (uint k = n - 1; k >= 0; k--) { total[0] += x[k]; }
}
""", 1, 1, [np.ones(8, np.int32), np.zeros(1, np.int32), np.uint32(8)],
            "x = 1, 8 times; total = 0; n = 8", "[8]",
            ("crash", "no end"), "unsigned", 3, "What is k after 0?",
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
            ("wrong", "crash", "no end"), "barrier", 4, "How often does work-item 0 go round the loop, how often 63?",
        ),
        "E": Program(
            """
__kernel void negative(__global const int *x, __global int *out, const int n) {
    int i = get_global_id(0);
    if (i < n) { out[i] = -x[i]; }
}
""", 8, 8, [np.arange(8, dtype=np.int64), np.zeros(8, np.int32), np.int32(8)],
            "x = np.arange(8), of dtype int64; out = 0, 8 times; n = 8", "[0 -1 -2 -3 -4 -5 -6 -7]",
            ("wrong",), "arguments", 5, "How many bytes has one element of x, here and in the kernel?",
        ),
        "F": Program(
            """
__kernel void sizes(__global const float3 *points, __global float *out, const int n) {
    int i = get_global_id(0);
    if (i < n) { out[i] = length(points[i]); }
}
""", 3, 3, [points, np.zeros(3, np.float32), np.int32(3)],
            "points = (1, 0, 0), (0, 2, 0), (0, 0, 3), (4, 0, 0), rows of a float32 array; n = 3", "[1 2 3]",
            ("wrong",), "layout", 6, "At which byte does points[1] begin in the kernel, and in NumPy?",
        ),
    }  # fmt: skip


def show_programs(apart: Callable[[str, int, int, list], str]) -> None:
    """Run each broken program in a process of its own, several at once, and print it with what came.

    Args:
        apart: the lesson's function of (source, items, group, arguments).
    """
    from concurrent.futures import ThreadPoolExecutor

    every = programs()
    with ThreadPoolExecutor(3) as pool:
        fates = list(pool.map(lambda one: apart(one.source, one.items, one.group, one.arguments), every.values()))
    for (letter, one), came in zip(every.items(), fates, strict=True):
        many = "1 work-item" if one.items == 1 else f"{one.items:,} work-items in groups of {one.group}"
        print(f"{letter}: {many}{one.source.rstrip()}")
        print(f"given:    {one.given}\nexpected: {one.expected}")
        print(f"actual:   {textwrap.shorten(came, 120, placeholder=' ...')}\n")


@checks.verdict
def check_diagnosis(diagnosis: Mapping[str, Sequence]) -> Iterator[str]:
    """Lesson 12, exercise 4: of each broken program the symptom, the cause and the fix."""
    yield judge_diagnosis(diagnosis)


def judge_diagnosis(diagnosis: Mapping[str, Sequence]) -> str:
    """Judge what a learner says of each program: (symptom, cause, number of the fix)."""
    return checks.judge_diagnosis(diagnosis, programs(), ("symptom", "cause", "fix"), "programs", _judge_one)


def _judge_one(letter: str, program: Program, symptom: object, cause: object, fix: object) -> None:
    symptom, cause = (part.strip().lower() if isinstance(part, str) else part for part in (symptom, cause))
    with contextlib.suppress(TypeError, ValueError, OverflowError):  # "2" and 2.0 are 2
        fix = int(float(fix)) if not isinstance(fix, bool) and float(fix).is_integer() else fix
    for what, part in (("symptom", symptom), ("cause", cause), ("fix", fix)):
        if checks.is_empty(part):
            raise NotYet(f"{letter}: the {what} is still empty.")
    for what, word, words in (("symptom", symptom, SYMPTOMS), ("cause", cause, CAUSES)):
        if word not in words:
            raise NotYet(f"{letter}: the {what} {word!r} is not in the list: {', '.join(words)}.")
    if isinstance(fix, bool) or not isinstance(fix, int) or not 1 <= fix <= FIXES:
        raise NotYet(f"{letter}: the fix is a number from 1 to {FIXES}; came {fix!r}.")
    if symptom == "wrong" and program.symptoms == ("dead canary",):
        raise NotYet(f"{letter}: 'wrong' is true, but a more exact symptom is in the list.")
    if symptom not in program.symptoms:
        raise NotYet(f"{letter}: {symptom!r} is not what it shows. Compare what was expected with what came.")
    if cause != program.cause:
        raise NotYet(f"{letter}: {cause!r} is not its cause. A question that leads there: {program.question}")
    if fix != program.fix:
        raise NotYet(f"{letter}: symptom and cause are right, but fix {fix} leaves the cause as it is.")


# ------------------------------------------------------------------------------------------------------ its figures


def strips(results: Mapping[str, np.ndarray], own: int, canary: float, title: str) -> None:
    """Draw the elements of arrays as strips: results, living canaries, dead ones.

    Args:
        results: for each kernel what its array held afterwards.
        own: so many elements are the kernel's; canaries follow.
        canary: what a living one holds.
        title: the message of the figure.
    """
    looks = {"result": (SKY, ""), "living canary": ("#FFFFFF", ""), "dead canary": (RED, "//")}
    with figure(7.5, 0.55 * len(results) + 1.3) as (drawn, axes):
        for row, values in enumerate(results.values()):
            for place, value in enumerate(values):
                kind = "result" if place < own else "living canary" if value == canary else "dead canary"
                colour, hatch = looks[kind]
                axes.barh(row, 1, left=place - 0.5, height=0.8, color=colour, hatch=hatch, edgecolor="black", lw=0.8,
                          label=kind if kind not in axes.get_legend_handles_labels()[1] else None)  # fmt: skip
                axes.text(place, row, f"{value:g}", ha="center", va="center", fontsize=9,
                          bbox={"fc": "white", "ec": "none", "pad": 1} if hatch else None)  # fmt: skip
        axes.set(yticks=range(len(results)), yticklabels=results, ylim=(len(results) - 0.5, -0.5), title=title,
                 xlabel="element", xticks=range(len(values)), xlim=(-0.6, len(values) - 0.4))  # fmt: skip
        axes.grid(visible=False)
        drawn.legend(loc="outside lower center", ncols=3)
    words = "; ".join(
        f"{name}: {int((values[own:] != canary).sum())} of {len(values) - own} canaries dead"
        for name, values in results.items()
    )
    show(drawn, f"{title}. {words}.")


def reached(seen: Sequence[int], runs: int, title: str) -> None:
    """Draw in how many runs each work-group saw what the next one had written before the barrier.

    Args:
        seen: for each group the number of runs.
        runs: how many runs there were.
        title: the message of the figure, with the device.
    """
    with figure(7.5, 3.0) as (drawn, axes):
        axes.axhline(runs, color=GREY, ls="--", lw=1.2, label=f"if a barrier reached other groups: {runs}")
        axes.bar(range(len(seen)), seen, color=ORANGE, edgecolor="black", lw=0.6, label="runs that saw the new number")
        axes.set(xlabel="work-group", ylabel=f"runs, of {runs}", title=title, ylim=(0, 1.15 * runs))
        drawn.legend(loc="outside lower center", ncols=2)
    every = sum(one == runs for one in seen)
    show(drawn, f"{title}. Of {len(seen)} groups, {every} saw the new number in all {runs} runs.")


def repeated(results: Mapping[str, Sequence[float]], right: float, title: str, ylabel: str) -> None:
    """Draw what each of several kernels returned in run after run, beside the right answer.

    Args:
        results: for each kernel what it returned, in the order of its runs.
        right: what every run should return.
        title: the message of the figure, with the device.
        ylabel: what was returned.
    """
    looks = ((RED, "x", 7), (BLUE, "s", 11), (GREEN, "^", 5))  # a triangle fits into a square
    with figure(7.5, 3.2) as (drawn, axes):
        axes.axhline(right, color=GREY, ls="--", lw=1.2, label=f"right: {right:,}")
        for (name, values), (colour, marker, size) in zip(results.items(), looks, strict=False):
            runs, hollow = range(1, len(values) + 1), "none" if marker == "s" else colour
            axes.plot(runs, values, color=colour, marker=marker, ms=size, mfc=hollow, ls="", label=name)
        most = max([right, *(value for values in results.values() for value in values)])
        axes.set(xlabel="run", ylabel=ylabel, title=title, ylim=(0, 1.1 * most))
        axes.set_xticks(range(1, max(map(len, results.values())) + 1))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        drawn.legend(loc="outside lower center", ncols=len(results) + 1)
    words = "; ".join(f"{name}: {min(values):,} to {max(values):,}" for name, values in results.items())
    show(drawn, f"{title}. Right would be {right:,}. {words}.")
