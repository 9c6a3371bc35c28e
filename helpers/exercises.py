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

    checks.kernel(source, "smooth", ("float[]",), _smooth, reach=1)


def _smooth(x: np.ndarray) -> np.ndarray:
    if len(x) == 1:
        return x.copy()
    return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])


# ---------------------------------------------------------------------------------- 02: Multiply matrices with OpenCL


def check_fewest_loads(learner: Callable[[int], float]) -> None:
    """Lesson 02, exercise 1: the fewest loads for one multiply-add of a block that fits into so many registers."""

    def right(registers: int) -> float:
        blocks = ((rows, vectors) for rows in range(1, registers) for vectors in range(1, registers))
        fitting = ((r, v) for r, v in blocks if r * v + v + 1 <= registers)
        return min((r + v) / (r * v) for r, v in fitting)

    checks.function(
        learner, right, lambda rng: [(3,), (4,), (16,), (32,), *((int(n),) for n in rng.integers(5, 99, 9))]
    )


def check_smooth_locally(source: str) -> None:
    """Lesson 02, exercise 2: `smooth` again, reading each element from global memory once for each work-group."""
    advice = (
        "(Do all work-items reach the barrier, also those with i >= n? Is all of `near` that is read filled before?)"
    )
    checks.every(
        lambda: checks.judge_kernel(source, "smooth", ("float[]",), _smooth, reach=1, groups=(64, 16), advice=advice),
        lambda: checks.judge_accesses(source, "smooth", lambda n, groups: 2 * n + 2 * groups),
    )


# --------------------------------------------------------------------------------- 03: Write mathematics, not kernels


def _random_arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def check_gram(source: str) -> None:
    """Lesson 03, exercise 1: each column of A multiplied by each."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(np.array([[1, 2], [3, 4]], np.float32),)]
        shapes = [(1, 1), (1, 5), (7, 1), *((int(m), int(n)) for m, n in rng.integers(2, 70, (4, 2)))]
        return plain + [_random_arrays(rng, shape) for shape in shapes]

    checks.tile_function(source, lambda a: a.T @ a, cases)


def check_windows(source: str) -> None:
    """Lesson 03, exercise 2: the largest of three neighbours, at every second element."""

    def right(values: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(values, 3)[::2].max(axis=1)

    def cases(rng: np.random.Generator) -> list[tuple]:
        # Below zero, so that nothing can be taken for the largest by chance.
        drawn = [(-rng.uniform(1, 9, n).astype(np.float32),) for n in (3, 4, 5, 6, *map(int, rng.integers(7, 300, 4)))]
        return [(np.array([1, 5, 2, 0, 3, 9], np.float32),), *drawn]

    checks.tile_function(source, right, cases)


def check_echo(source: str) -> None:
    """Lesson 03, exercise 3: a filter that looks back."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(np.array([1, 2, 3], np.float32), np.array([1, 0, 0.5], np.float32))]
        sizes = [(1, 1), (5, 1), (3, 7), *((int(n), int(m)) for n, m in rng.integers(2, 90, (4, 2)))]
        return plain + [_random_arrays(rng, (n,), (m,)) for n, m in sizes]

    checks.tile_function(source, lambda i, k: np.convolve(i, k)[: len(i)], cases)


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


# ---------------------------------------------------------------------------------------- 07: Place work on devices


def check_misplaced(learner: Callable[[dict[str, str], str], list[str]]) -> None:
    """Lesson 07, exercise 1: the names of the tensors that live elsewhere than wanted, in alphabetical order."""

    def place(kind: str, number: int, task: int = 0) -> str:
        return f"/job:localhost/replica:0/task:{task}/device:{kind}:{number}"

    def right(places: dict[str, str], wanted: str) -> list[str]:
        return sorted(name for name, where in places.items() if where.rsplit("/device:", 1)[1] != wanted)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [
            ({"y": place("CPU", 0), "x": place("GPU", 1)}, "GPU:1"),
            ({"a": place("GPU", 1), "b": place("GPU", 10), "c": place("GPU", 11)}, "GPU:1"),
            ({"b": place("GPU", 1), "a": place("GPU", 11)}, "GPU:11"),
            ({"weights": place("CPU", 1), "bias": place("GPU", 1)}, "CPU:1"),
            ({}, "CPU:0"),
        ]
        drawn = []
        for _ in range(20):
            names = rng.permutation(list("abcdefgh"))[: rng.integers(1, 8)].tolist()
            kinds, numbers = rng.choice(["CPU", "GPU"], len(names)).tolist(), rng.integers(0, 3, len(names)).tolist()
            places = {name: place(*one) for name, *one in zip(names, kinds, numbers, strict=True)}
            drawn.append((places, f"{rng.choice(['CPU', 'GPU'])}:{rng.integers(0, 3)}"))
        return plain + drawn

    checks.function(learner, right, cases)


def check_least_seconds(learner: Callable[[int, int, int, float], float]) -> None:
    """Lesson 07, exercise 2: the least time of 2 x (power - 1) products on a card of so many cores."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(1000, 3, 100, 1.0), (2000, 10, 256, 1.5), (1, 1, 1, 1.0), (500, 2, 1, 2.5)]
        drawn = [
            (*(int(n) for n in rng.integers((100, 2, 10), (9000, 20, 5000))), float(rng.uniform(0.5, 3)))
            for _ in range(20)
        ]
        return plain + drawn

    def right(size: int, power: int, cores: int, gigahertz: float) -> float:
        return 4 * (power - 1) * size**3 / (2 * cores * gigahertz * 1e9)

    checks.function(learner, right, cases)


def check_visible(learner: Callable[[str | None, int], list[int]]) -> None:
    """Lesson 07, exercise 3: what CUDA_VISIBLE_DEVICES shows; the first invalid number ends the list.

    Source: CUDA's documentation of its environment variables.
    """

    def right(value: str | None, count: int) -> list[int]:
        if value is None:
            return list(range(count))
        numbers = [int(number) for number in value.split(",")] if value else []
        valid = [0 <= number < count for number in numbers]
        return numbers[: valid.index(False)] if False in valid else numbers

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [("2,0", 3), ("-1", 3), (None, 3), (None, 0), ("", 2), ("0,-1,1", 2), ("5", 2), ("2", 2), ("1,2,0", 2)]
        drawn = [
            (",".join(map(str, rng.permutation(np.arange(-1, 12))[: rng.integers(1, 6)])), int(rng.integers(1, 12)))
            for _ in range(25)
        ]
        return [*plain, ("10,1", 11), ("0", 0), *drawn]

    checks.function(learner, right, cases)


# ------------------------------------------------------------------------------------ 08: Train on several devices


def check_combine(learner: Callable[[list[np.ndarray], list[int]], np.ndarray]) -> None:
    """Lesson 08, exercise 1: the whole batch's mean gradient from those of parts of different sizes."""

    def right(gradients: list[np.ndarray], sizes: list[int]) -> np.ndarray:
        return np.average(np.stack(gradients), axis=0, weights=sizes)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [([np.array([1.0, 4.0]), np.array([5.0, 0.0])], [3, 1]), ([np.array([2.0])], [7])]
        drawn = []
        for shape in [(3,), (4,), (2, 3), (5, 2), (1, 1), (2, 2, 2)]:
            parts = int(rng.integers(2, 6))
            drawn.append(([rng.normal(size=shape) for _ in range(parts)], rng.integers(1, 90, parts).tolist()))
        return plain + drawn

    checks.function(learner, right, cases)


def check_break_even_batch(learner: Callable[[float, int, float], int]) -> None:
    """Lesson 08, exercise 2: the smallest batch for which two devices take less time than one.

    On two devices a ring all-reduce moves 2 (n - 1) / n = 1 time the gradient's bytes to and from each.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [
            (47e-6, 2_678_824, 1.25e9),
            (47e-6, 2_678_824, 0.125e9),
            (2.0**-10, 2**20, 2.0**30),
        ]  # a tie at the end
        drawn = []
        for batch in rng.uniform(2, 5000, 20):
            gradient_bytes, bytes_per_second = int(rng.integers(10_000, 10**8)), float(10 ** rng.uniform(8, 11))
            drawn.append((2 * gradient_bytes / bytes_per_second / float(batch), gradient_bytes, bytes_per_second))
        return plain + drawn

    def right(per_image: float, gradient_bytes: int, bytes_per_second: float) -> int:
        return math.floor(2 * gradient_bytes / bytes_per_second / per_image) + 1

    checks.function(learner, right, cases)


def check_busy_share(learner: Callable[[int, int], float]) -> None:
    """Lesson 08, exercise 3: how much of a pipelined step each of several devices works.

    Source: Huang et al., "GPipe" (2019): the bubble takes (devices - 1) of (parts + devices - 1) turns.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [tuple(int(n) for n in rng.integers(1, 65, 2)) for _ in range(20)]
        return [(2, 1), (2, 4), (4, 1), (1, 5), (4, 8), *drawn]

    checks.function(learner, lambda devices, parts: parts / (parts + devices - 1), cases)


# ---------------------------------------------------------------------------------------- 12: Break kernels on purpose


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
