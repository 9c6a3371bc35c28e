"""Lesson 02b, Make the product fast: its checks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from helpers.devices import opencl
from helpers.judge import checks, kernel_checks
from helpers.lessons.lesson_02 import SMALL, Grid, judge_accesses, judge_product, judge_trace
from helpers.measure import timing


@checks.print_verdict
def check_block(source: str) -> Iterator[str]:
    """Lesson 02b, exercise 1: C = A B, each work-item a block of 2 x 2 that loads each of its numbers once."""
    yield checks.judge_in_subprocess(judge_block, source=source)


@checks.print_verdict
def check_claim(learner: Callable[[Sequence[float], Sequence[float]], str]) -> Iterator[str]:
    """Lesson 02b, exercise 2: "faster", "slower", or "no claim" where the gap lies within the spread."""
    series = (
        (8, 9, 10, 11, 12),
        (11.4, 11.5, 11.6, 11.7),
        (10, 10.1, 10.2, 10.3, 99),
        (8, 8, 8, 8),
        (12, 12.1, 12.2, 12.3),
        (10, 14),  # the two in the middle differ: neither of them alone is the median
        (7, 7, 7, 7),
    )
    # 16 or 15 runs each: with fewer than 13 `timing` asks for a larger gap. Every pair is a case, in both orders.
    pairs = itertools.product([[float(seconds) for seconds in runs] * (16 // len(runs)) for runs in series], repeat=2)
    yield checks.judge_function(
        learner,
        timing.decide,
        lambda rng: [tuple(rng.permutation(runs).tolist() for runs in pair) for pair in list(pairs)],
    )


def judge_block(source: str) -> str:
    """Judge the kernel of lesson 02b's exercise 1; called in a subprocess."""
    kernel = kernel_checks.build(source, "block")
    traced = judge_trace(kernel, Grid((2, 2), block=2))
    texts = [judge_product(kernel, Grid(group, block=2), traced) for group in ((4, 4), (16, 2))]
    why = "for each i two numbers of A and two of B, and in the end four elements of C."
    judge_accesses(traced, 4 * SMALL[2] + 4, why)
    return f"{texts[0]} in two kinds of work-groups, on {opencl.name(kernel.device)}"
