"""Lesson NN, Verb the noun: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from helpers.judge import checks


@checks.print_verdict
def check_squares(squares: Callable[[list[float]], float]) -> Iterator[str]:
    """Lesson NN, exercise 1: the sum of the squares of some numbers."""

    def right(numbers: list[float]) -> float:
        return float(np.square(numbers).sum())

    def lists(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.normal(size=int(size)).tolist(),) for size in rng.integers(1, 50, 8)]
        return [([2.0, -1.0, 3.0],), ([],), ([4.0],), *drawn]

    yield checks.judge_function(squares, right, lists)
