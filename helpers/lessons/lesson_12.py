"""Lesson 12, Break kernels on purpose: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from helpers import checks
from helpers.plots import BLUE, GREEN, GREY, RED, figure, show


def judge_squares(source: str) -> str:
    """Judge lesson 12's kernel that squares two elements a work-item; called in a process of its own."""
    return checks.judge_kernel(source, "squares", ("float[]",), lambda x: x * x)


def check_squares(source: str) -> None:
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
    checks.every(
        lambda: checks.judge_changed(source, handed_out), lambda: checks.judge_apart(judge_squares, source=source)
    )


def check_group_sums(source: str) -> None:
    """Lesson 12, exercise 2: the sum of each work-group, in local memory, without a race."""
    checks.every(lambda: checks.judge_apart(checks.judge_group_sums, source=source, name="group_sums"))


def check_silent_cause(learner: Callable[[list[int], list[int], int], str]) -> None:
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

    checks.function(learner, right, cases)


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
