"""Lesson 07, Place work on devices: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from helpers import checks


@checks.verdict
def check_misplaced(learner: Callable[[dict[str, str], str], list[str]]) -> Iterator[str]:
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

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_least_seconds(learner: Callable[[int, int, int, float], float]) -> Iterator[str]:
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

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_visible(learner: Callable[[str | None, int], list[int]]) -> Iterator[str]:
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

    yield checks.judge_function(learner, right, cases)
