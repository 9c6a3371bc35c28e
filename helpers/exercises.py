"""The check of every exercise: right answers and awkward cases, out of sight so that a lesson gives nothing away."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from helpers import checks

# ---------------------------------------------------------------------------------------------- 00: Check your setup


def check_choose(learner: Callable[[list[str]], int]) -> None:
    """Lesson 00, exercise 1: the position of the first GPU, or of the first CPU where there is no GPU."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        awkward = [["cpu"], ["gpu"], ["cpu", "gpu", "cpu", "gpu"], ["accelerator", "cpu", "cpu"], ["cpu"] * 5 + ["gpu"]]
        drawn = [[*rng.choice(["cpu", "gpu"], 6).tolist(), "cpu"] for _ in range(20)]
        return [(kinds,) for kinds in awkward + drawn]

    checks.function(learner, lambda kinds: kinds.index("gpu" if "gpu" in kinds else "cpu"), cases)


def check_count_labels(learner: Callable[[np.ndarray], Sequence[int]]) -> None:
    """Lesson 00, exercise 2: how often each of the ten digits occurs."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        return [(np.array([3, 3, 9]),), *((rng.integers(0, high, size=200),) for high in (10, 10, 9, 2))]

    checks.function(learner, lambda labels: np.bincount(labels, minlength=10), cases)


def check_is_used(learner: Callable[[list, list], bool]) -> None:
    """Lesson 00, exercise 3: is the gap between the medians larger than the larger of the two ranges."""

    def right(idle: list, busy: list) -> bool:
        spread = max(max(idle) - min(idle), max(busy) - min(busy))
        return bool(statistics.median(busy) - statistics.median(idle) > spread)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [([1, 2, 3], [90, 95, 99]), ([90, 95, 99], [1, 2, 3]), ([1, 50, 99], [60, 70, 80])]
        equal = [([4, 4], [4, 4]), ([0, 0, 0], [5, 5, 5]), ([10, 11, 12], [12, 13, 14]), ([10, 11], [21, 31])]
        skewed = [([0, 1, 60], [62, 63, 64]), ([0, 1, 2], [0, 30, 60]), ([0, 30, 60], [50, 51, 52])]
        drawn = [(rng.integers(0, 60, 5).tolist(), rng.integers(40, 100, 5).tolist()) for _ in range(30)]
        return plain + equal + skewed + drawn

    checks.function(learner, right, cases)


# ---------------------------------------------------------------------------------------- 01: Add vectors with OpenCL


def check_saxpy(source: str) -> None:
    """Lesson 01, exercise 1: `out[i] = alpha * x[i] + y[i]`."""
    checks.kernel(source, "saxpy", ("float", "float[]", "float[]"), lambda alpha, x, y: alpha * x + y)


def check_smooth(source: str) -> None:
    """Lesson 01, exercise 2: the mean of three neighbours; the first and the last element stay as they are."""

    def right(x: np.ndarray) -> np.ndarray:
        if len(x) == 1:
            return x.copy()
        return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])

    checks.kernel(source, "smooth", ("float[]",), right)
