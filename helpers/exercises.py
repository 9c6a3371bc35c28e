"""The check of every exercise: right answers and awkward cases, out of sight so that a lesson gives nothing away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from helpers import checks

# ---------------------------------------------------------------------------------------------- 00: Check your setup


def check_choose(learner: Callable[[list[str]], int]) -> None:
    """Lesson 00, exercise 1: the position of the first GPU, or of the first CPU where there is no GPU."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        awkward = [
            ["cpu"],
            ["gpu", "cpu"],
            ["cpu", "gpu", "cpu", "gpu"],
            ["accelerator", "cpu", "cpu"],
            ["cpu"] * 5 + ["gpu"],
        ]
        drawn = [[*rng.choice(["cpu", "gpu"], 6).tolist(), "cpu"] for _ in range(20)]
        return [(kinds,) for kinds in awkward + drawn]

    checks.function(learner, lambda kinds: kinds.index("gpu" if "gpu" in kinds else "cpu"), cases)


def check_count_labels(learner: Callable[[np.ndarray], Sequence[int]]) -> None:
    """Lesson 00, exercise 2: how often each of the ten digits occurs."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(0, high, size=200),) for high in (10, 10, 9, 2)]
        return [(np.array([3, 3, 9]),), *drawn, (rng.integers(0, 10, size=5000),)]  # more than uint8 can count

    checks.function(learner, lambda labels: np.bincount(labels, minlength=10), cases)


def check_is_used(learner: Callable[[list, list], bool]) -> None:
    """Lesson 00, exercise 3: is the lower quartile of the busy samples more than 5 above the idle ones' upper one."""

    def right(idle: list, busy: list) -> bool:
        return bool(np.percentile(busy, 25) - np.percentile(idle, 75) > 5)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [([1, 2, 3], [90, 95, 99]), ([90, 95, 99], [1, 2, 3]), ([1, 50, 99], [60, 70, 80])]
        close = [([4, 4], [9, 9]), ([4, 4], [10, 10]), ([0, 0, 0], [3, 3, 3]), ([9, 9], [4, 4]), ([10, 10], [4, 4])]
        skewed = [([0, 0, 0, 0, 99], [50, 51, 52, 53, 54]), ([0, 1, 1], [2, 90, 90, 90, 90]), ([0, 1, 2], [0, 0, 90])]
        drawn = [(rng.integers(0, 60, 8).tolist(), rng.integers(30, 100, 8).tolist()) for _ in range(30)]
        return plain + close + skewed + drawn

    checks.function(learner, right, cases)


# ---------------------------------------------------------------------------------------- 01: Add vectors with OpenCL


def check_saxpy(source: str, global_size: Callable[[int, int], int]) -> None:
    """Lesson 01, exercise 1: `out[i] = alpha * x[i] + y[i]`, and how many work-items to start for it."""

    def sizes(rng: np.random.Generator) -> list[tuple]:
        drawn = [(int(rng.integers(1, 9999)), 2**k) for k in range(10)]
        return [(10, 4), (12, 4), (1, 64), (64, 64), (65, 64), (100, 7), *drawn]

    checks.every(
        lambda: checks.judge_function(global_size, lambda n, group: -(-n // group) * group, sizes),
        lambda: checks.judge_kernel(
            source, "saxpy", ("float", "float[]", "float[]"), lambda alpha, x, y: alpha * x + y
        ),
    )


def check_smooth(source: str) -> None:
    """Lesson 01, exercise 2: the mean of three neighbours; the first and the last element stay as they are."""

    def right(x: np.ndarray) -> np.ndarray:
        if len(x) == 1:
            return x.copy()
        return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])

    checks.kernel(source, "smooth", ("float[]",), right, reach=1)
