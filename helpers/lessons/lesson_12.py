"""Lesson 12, Break kernels on purpose: its programs, the checks of its exercises, its figures."""

from __future__ import annotations

import collections
import re
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from helpers import ROOT
from helpers.devices import frameworks, opencl
from helpers.errors import WorkshopError
from helpers.judge import checks, kernel_checks, opencl_recorder
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.measure.tables import Table
from helpers.running import processes

if TYPE_CHECKING:
    import pyopencl as cl

AT_ONCE = 3  # processes: each waits for its start and its compiler most of the time
ENDLESS = 3.0  # seconds from its start; a driver that never says that a kernel runs gets four times as long
PROGRAMS = ROOT / "helpers" / "lessons" / "programs" / "12.toml"
CANARY = -77  # behind the end of a program's results
STRETCH = ROOT / "helpers" / "lessons" / "programs" / "12-stretch.cl"  # what exercise 4 gives to the learner
NOT_RUN = "not run here: it may crash or hang a GPU"

# Numbers beyond any that stands for "no number" in a wrong kernel, such as 1,000; and the widest group promised.
BEYOND = ((2_000_000_000, 2_000_000_099), (-2_000_000_099, -2_000_000_000))
STRETCHED = (*kernel_checks.RANGES, *BEYOND, (-10_000_000, 10_000_000))

# ----------------------------------------------------------------------------------------- running what may go wrong


def launch(
    source: str, items: int, group: int, arguments: Sequence[object], seconds: float | None = None
) -> np.ndarray:
    """Run a source's only kernel on the lesson's device: lesson 01 in one function.

    Args:
        source: OpenCL C.
        items: how many work-items.
        group: how many of them are in a work-group.
        arguments: of the kernel; an array becomes a buffer that holds it.
        seconds: how long the kernel may run; None waits forever.

    Returns:
        What the last array holds afterwards.

    Raises:
        TimeoutError: the kernel still runs after that time.
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
    if seconds:
        _wait_for_end(event, seconds)
    cl.enqueue_copy(queue, result, buffer)
    return result


def _wait_for_end(event: cl.Event, seconds: float) -> None:
    """Wait until a kernel has ended, at most `seconds`; these pass more slowly until the driver says that it runs."""
    import pyopencl as cl

    left, states = seconds, cl.command_execution_status
    while (status := event.command_execution_status) > states.COMPLETE:
        time.sleep(0.005)
        left -= 0.005 if status == states.RUNNING else 0.00125
        if left <= 0:
            raise TimeoutError(f"the kernel still runs, {seconds:g} s after its start")


def describe_exit(run: processes.Run) -> str:
    """Return in one line how a function that may have crashed ended: its result or the last line of its failure."""
    if not run.failures[0]:
        return f"no error: {run.result}"
    last = run.failures[0].partition("; it was in")[0].splitlines()[-1]
    return last.removeprefix("TimeoutError: ").removeprefix("pyopencl._cl.")


def make_isolated_launch(device: cl.Device, dare_gpu: bool = False) -> Callable[..., str]:
    """Return a function that runs `launch` in a process of its own and describes how it ended; print on which device.

    An endless kernel may freeze a GPU that draws the screen, even from another process. What may crash or hang
    therefore runs on a CPU, or not at all if there is none.

    Args:
        device: the lesson's device.
        dare_gpu: whether to run there even if it is a GPU.
    """
    variables, where = _choose_safe_device(device, dare_gpu)
    print(where)

    def run(source: str, items: int, group: int, arguments: Sequence[object]) -> str:
        if variables is None:
            return NOT_RUN
        given = {"source": source, "items": items, "group": group, "arguments": arguments, "seconds": ENDLESS}
        launched = "helpers.lessons.lesson_12:launch"
        return describe_exit(processes.run(launched, seconds=90, check=False, variables=variables, arguments=given))

    return run


def _choose_safe_device(device: cl.Device, dare_gpu: bool) -> tuple[dict[str, str] | None, str]:
    """Choose where a kernel may hang.

    Returns:
        The variables of the process that runs it, None if it should not run; and a sentence that says where it runs.
    """
    if dare_gpu or opencl.kind(device) == "cpu":
        return {}, f"What may crash or hang runs on: {opencl.name(device)}"
    for place, candidate in frameworks.opencl_devices().items():
        apple = candidate.platform.name == "Apple"  # its processor allows work-groups of one work-item
        if opencl.kind(candidate) == "cpu" and not apple and not opencl.find_problem(candidate):
            where = f"What may crash or hang runs on: {opencl.name(candidate)}, because your device is a GPU"
            return {"PYOPENCL_CTX": place}, where
    return None, "What may crash or hang is not run: your only device is a GPU, and dare_gpu is False."


# --------------------------------------------------------------------------------------------- barriers in a branch


# Branches of the lesson's kernel `turn`: how often a work-item takes them, from its local id and its group.
BRANCHES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "if (get_group_id(0) == 0)": lambda me, group: (group == 0).astype(int),
    "if (me < 200)": lambda me, group: (me < 200).astype(int),
    "for (int k = 0; k < 3; k++)": lambda me, group: np.full_like(me, 3),
    "for (int k = 0; k < me; k++)": lambda me, group: me,
}


def try_branches(run: Callable[..., str], source: str, predictions: Mapping[str, object]) -> Table:
    """Run the lesson's kernel `turn` with each branch in a process of its own; return which elements came out wrong.

    Args:
        run: what `make_isolated_launch` returned.
        source: the kernel, with BRANCH in the branch's place.
        predictions: for each branch what the learner predicted: "legal" or "not legal".
    """
    x = np.arange(512, dtype=np.int32)
    me, group = x % 256, x // 256
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(
            lambda branch: run(source.replace("BRANCH", branch), 512, 256, [x, np.full_like(x, -9)]), BRANCHES
        )
        rows = []
        for branch, outcome in zip(BRANCHES, outcomes, strict=True):
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
            rows.append((branch, _judge_guess(predictions.get(branch), legal), passes, legal, outcome))
    return Table(
        rows,
        (
            "branch",
            "your prediction",
            "times that a work-item meets the 2nd barrier, in group 0; in group 1",
            "by the standard",
            f"elements of out, 0 to {len(x) - 1}",
        ),
    )


def _judge_guess(guess: object, legal: str) -> str:
    """Return whether a guess, "legal" or "not legal", is right; nothing if there is none."""
    if guess is None:
        return ""
    word = " ".join(str(guess).lower().split())
    return ("right" if word == legal else "wrong") if word in {"legal", "not legal"} else "neither word"


# --------------------------------------------------------------------------------------------- the six programs


@dataclass(frozen=True)
class Program:
    """A program to diagnose."""

    source: str  # OpenCL C with one kernel
    items: int  # work-items
    group: int  # work-items of a work-group
    arguments: list[np.ndarray | np.generic]  # for `launch`; the last array is the result
    given: str  # the arguments in words
    expected: str  # what the result should be
    cause: str = field(repr=False)  # one of CAUSES; a learner may display a program
    question: str = field(repr=False)  # that leads to the cause


CAUSES = ("arguments", "barrier", "guard", "none", "race")


def read_programs() -> dict[str, Program]:
    """Return the programs by their letters."""
    entries = tomllib.loads(PROGRAMS.read_text(encoding="utf-8"))
    programs = {}
    for letter, entry in entries.items():
        arguments = [_make_argument(**argument) for argument in entry.pop("arguments")]
        programs[letter] = Program(arguments=arguments, **entry)
    return programs


def _make_argument(
    dtype: str, values: Sequence[float] | None = None, times: int = 1, value: float = 0
) -> np.ndarray | np.generic:
    """Return an argument of a kernel as the file of the programs describes it: values in an array, or one value."""
    if values is None:
        return np.dtype(dtype).type(value)
    return np.tile(np.array(values, dtype), times)


def show_programs(run: Callable[..., str]) -> None:
    """Run each program in a process of its own; print it, what it is given, what is expected of it, and what came.

    Args:
        run: what `make_isolated_launch` returned.
    """
    every = read_programs()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda p: run(p.source, p.items, p.group, p.arguments), every.values()))
    for (letter, program), outcome in zip(every.items(), outcomes, strict=True):
        print(f"{letter}: {program.items:,} work-items in groups of {program.group}\n{program.source.rstrip()}")
        print(f"given:    {program.given}")
        for name, words in (("expected", program.expected), ("actual", outcome)):
            print(f"{name + ':':9} {textwrap.shorten(words.removeprefix('no error: '), 100, placeholder=' ...')}")
        print()


def print_trace(letter: str) -> None:
    """Print what a trace shows of a program: of its first two work-groups, on its arrays without the canaries.

    Args:
        letter: of the program, such as "D".
    """
    program = read_programs()[letter]
    items = min(program.items, 2 * program.group)
    arguments = [each[each != CANARY] if isinstance(each, np.ndarray) else each for each in program.arguments]
    name = program.source.partition("void ")[2].partition("(")[0]
    try:
        print(opencl_recorder.record(opencl.Kernel(program.source, name), items, program.group, arguments).report())
    except WorkshopError as stopped:
        print(stopped)


# ------------------------------------------------------------------------------------------------------- its checks


def add_neighbors(x: np.ndarray) -> np.ndarray:
    """Return for each element its sum with the one before it in its group of 64; the first of a group is unchanged."""
    before = np.where(np.arange(len(x)) % kernel_checks.LOCAL_SIZE, np.roll(x, 1), 0)
    return (x + before).astype(x.dtype)


def sum_groups(x: np.ndarray) -> np.ndarray:
    """Return for each element the sum of its group of 64."""
    starts = np.arange(0, len(x), kernel_checks.LOCAL_SIZE)
    return np.repeat(np.add.reduceat(x, starts, dtype=x.dtype), np.diff(np.r_[starts, len(x)]))


def _record_two_groups(kernel: opencl.Kernel) -> Trace:
    return kernel_checks.record(kernel, "n = 128", 128, 64, [*np.ones((2, 128), np.int32), np.int32(128)])


def judge_pairs(source: str) -> str:
    """Judge the kernel that adds each element's neighbor through local memory; called in a subprocess."""
    kernel = kernel_checks.build(source, "pairs")
    tried = kernel_checks.judge_kernel(kernel, ("int[]",), add_neighbors, radius=1)
    for touch in (traced := _record_two_groups(kernel)).touches:
        if touch.array in traced.lengths and touch.index != touch.item:
            raise NotYet(f"the sums are right, but {touch}: take the neighbor's number from local memory, `part`.")
    return tried


@checks.print_verdict
def check_pairs(source: str, given: str) -> Iterator[str]:
    """Exercise 1: the missing barrier, for all of a group.

    Args:
        source: what the learner made of the kernel.
        given: the kernel as the lesson has it.
    """
    if isinstance(source, str) and source.split() == given.split():
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


@checks.print_verdict
def check_group_sums(source: str) -> Iterator[str]:
    """Exercise 2: the sum of each work-group, in local memory, without a race."""
    yield checks.judge_in_subprocess(judge_group_sums, source=source)


@checks.print_verdict
def check_diagnosis(diagnosis: object) -> Iterator[str]:
    """Exercise 3: what is wrong with each program, and which input hides what is wrong with B.

    Args:
        diagnosis: for each letter what the learner says: one of CAUSES; for "n" the number of elements.
    """
    number: object = None
    if isinstance(diagnosis, Mapping):
        diagnosis = {key: (entry,) if isinstance(entry, str) else entry for key, entry in diagnosis.items()}
        number = next((entry for key, entry in diagnosis.items() if str(key).strip().lower() == "n"), None)
    tried = checks.judge_diagnosis(diagnosis, read_programs(), ("cause",), "programs", _judge_program)
    _judge_hiding(number)
    yield tried


def _judge_hiding(number: object) -> None:
    """Raise NotYet unless B's work-items, as many as that, would compute all n roots and touch nothing else."""
    if isinstance(number, list | tuple) and len(number) == 1:
        number = number[0]
    word, items = str(number).strip(), read_programs()["B"].items
    if checks.is_empty(number) and word != "0":
        raise NotYet('the six causes are right. "n" is still empty.')
    if word not in {str(items), f"{items}.0"}:
        raise NotYet(
            f"the six causes are right, n = {word} is not. Does a work-item write out[{word}], "
            f"and do the {items} work-items compute all n roots?"
        )


def _judge_program(letter: str, program: Program, cause: object) -> None:
    """Raise NotYet unless the cause of one program is right."""
    word = str(cause).strip().lower()
    if word not in CAUSES:
        raise NotYet(f"{letter}: the cause {word!r} is not in the list: {', '.join(CAUSES)}.")
    if word != program.cause:
        raise NotYet(f"{letter}: {word!r} is not its cause. A question that leads there: {program.question}")


def stretch_groups(x: np.ndarray) -> np.ndarray:
    """Return each element on a scale from 0, the smallest of its group of 64, to 100, the largest; all equal: 50.

    Zero would not do for equal numbers: a division by 0, which C leaves undefined, gives 0 on the drivers tried.
    """
    stretched = np.full_like(x, 50)
    for start in range(0, len(x), kernel_checks.LOCAL_SIZE):
        group = x[start : start + kernel_checks.LOCAL_SIZE]
        if span := int(group.max()) - int(group.min()):
            stretched[start : start + len(group)] = 100 * (group - group.min()) // span
    return stretched


def judge_stretch(source: str) -> str:
    """Judge the kernel that stretches each work-group to 0 to 100; called in a subprocess."""
    kernel = kernel_checks.build(source, "stretch")
    return kernel_checks.judge_kernel(
        kernel, ("int[]",), stretch_groups, traced=kernel_checks.WHOLE_GROUPS, ranges=STRETCHED
    )


@checks.print_verdict
def check_stretch(source: str) -> Iterator[str]:
    """Exercise 4: a kernel with three faults that the lesson does not name."""
    if isinstance(source, str) and source.split() == STRETCH.read_text(encoding="utf-8").split():
        raise NotDone("this is what you were given.")
    yield checks.judge_in_subprocess(judge_stretch, source=source)
