"""Lesson 12, Break kernels on purpose: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from helpers import checks, kernel_checks, opencl, trace
from helpers.checks import NotYet
from helpers.plots import BLUE, GREEN, GREY, RED, figure, show


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
            x = rng.integers(-99, 100, n, np.int32)
            _judge_sums(x, *(sums(x, fill) for fill in kernel_checks.FILLS), group)
    followed = f"not followed: {', '.join(traced.unseen)}" if traced.unseen else "no race seen"
    return f"{len(tried)} sizes from {min(tried)} to {max(tried):,}, {followed}, on {opencl.name(kernel.device)}"


def _judge_touches(traced: trace.Trace, launch: str, group: int) -> None:
    """Judge who touched what: nothing outside, no race, nothing unwritten, and the work shared in local memory."""
    kernel_checks.expect_writes(traced, launch)
    outside = [f"{touch}, which does not exist" for touch in traced.outside]
    for wrong in outside or traced.races() or traced.unwritten():
        raise NotYet(f"{launch}: {wrong}.")
    accesses = traced.global_accesses + traced.local_accesses
    if accesses.max() > group // 2:
        item = int(accesses.argmax())
        raise NotYet(
            f"{launch}: the sums may be right, but work-item {item} touches {accesses[item]} elements: the others "
            "should share its work."
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
        ]
        drawn = []
        for _ in range(30):
            canaries = rng.choice([-77, -77, -77, -77, 8], 4).tolist()
            expected = int(rng.integers(100, 104))
            results = [expected] * 4 if rng.random() < 0.4 else rng.integers(100, 102, 4).tolist()
            drawn.append((canaries, results, expected))
        return plain + drawn

    yield checks.judge_function(learner, right, cases)


# ------------------------------------------------------------------------------------------------------ its figures


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
