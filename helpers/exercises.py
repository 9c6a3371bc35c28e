"""The check of every exercise: right answers and awkward cases, out of sight so that a lesson gives nothing away."""

from __future__ import annotations

import math
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


# ---------------------------------------------------------------------------------------------- 04: Train an MLP


def check_parameters(learner: Callable[[list[int]], int]) -> None:
    """Lesson 04, exercise 1: the weights and biases of dense layers."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(1, 900, size).tolist(),) for size in (2, 3, 4, 5, 6)]
        return [([784, 512, 512, 10],), ([3, 2],), ([1, 1],), *drawn]

    def right(sizes: list[int]) -> int:
        return sum((sizes[i] + 1) * sizes[i + 1] for i in range(len(sizes) - 1))

    checks.function(learner, right, cases)


def check_recall(learner: Callable[[np.ndarray], np.ndarray]) -> None:
    """Lesson 04, exercise 2: of each digit's images (a row), the share that was recognised."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(0, 50, (n, n)) + np.diag(rng.integers(1, 900, n)),) for n in (2, 3, 10, 10)]
        return [(np.array([[8, 2], [1, 4]]),), (np.array([[5, 0], [3, 1]]),), *drawn]

    checks.function(
        learner, lambda counts: np.array([counts[i, i] / counts[i].sum() for i in range(len(counts))]), cases
    )


def check_epoch_seconds(learner: Callable[[int, int, float, float], float]) -> None:
    """Lesson 04, exercise 3: every started batch costs a step's overhead, every image its arithmetic."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(1000, 128, 0.002, 0.00001), (1024, 128, 0.5, 0.25), (1, 128, 2.0, 3.0), (60_000, 1, 1e-3, 1e-5)]
        drawn = [
            (int(rng.integers(1, 5000)), int(rng.integers(1, 300)), rng.uniform(0.1, 2), rng.uniform(0.001, 0.1))
            for _ in range(20)
        ]
        return plain + drawn

    def right(images: int, batch: int, overhead: float, per_image: float) -> float:
        return math.ceil(images / batch) * overhead + images * per_image

    checks.function(learner, right, cases)


# ---------------------------------------------------------------------------------------------- 05: Train a CNN


def check_convolution_cost(learner: Callable[[int, int, int, int, int], tuple[int, int]]) -> None:
    """Lesson 05, exercise 1: the parameters of a convolution without padding, and its multiplications for one image."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(28, 28, 1, 32, 3), (26, 26, 32, 64, 3), (5, 9, 2, 3, 5), (7, 4, 3, 2, 1)]
        drawn = [
            (*(int(n) for n in rng.integers(6, 40, 2)), *(int(n) for n in rng.integers(2, 20, 2)), int(size))
            for size in rng.integers(1, 6, 20)
        ]
        return plain + drawn

    def right(height: int, width: int, channels: int, filters: int, size: int) -> tuple[int, int]:
        places = (height - size + 1) * (width - size + 1)
        return (size**2 * channels + 1) * filters, places * size**2 * channels * filters

    checks.function(learner, right, cases)


def _images(rng: np.random.Generator, even: bool) -> list[tuple[np.ndarray]]:
    """Images of several shapes, wide and high ones, with negative numbers among them."""
    step = 2 if even else 1
    shapes = [(4, 4), (4, 6), (10, 4), *((int(h) * step, int(w) * step) for h, w in rng.integers(3, 12, (6, 2)))]
    return [(rng.normal(size=shape),) for shape in shapes] + [(rng.integers(0, 256, (8, 6)),)]


def check_neighbours(learner: Callable[[np.ndarray], np.ndarray]) -> None:
    """Lesson 05, exercise 2: the nine pixels under a 3 x 3 filter at each of its places, a row for each."""

    def right(image: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(image, (3, 3)).reshape(-1, 9)

    checks.function(learner, right, lambda rng: [(np.arange(12).reshape(3, 4),), *_images(rng, even=False)])


def check_pool(learner: Callable[[np.ndarray], np.ndarray]) -> None:
    """Lesson 05, exercise 3: of each 2 x 2 pixels the largest."""

    def right(image: np.ndarray) -> np.ndarray:
        height, width = image.shape
        return image.reshape(height // 2, 2, width // 2, 2).max(axis=(1, 3))

    plain = [(np.array([[1, 2, 5, 6], [3, 4, 7, 8]]),), (np.array([[9, 1], [2, 3]]),), (np.array([[1, 2], [7, 3]]),)]
    checks.function(learner, right, lambda rng: plain + _images(rng, even=True))
