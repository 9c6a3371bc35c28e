"""Lesson 03, Write mathematics, not kernels: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from helpers import checks
from helpers.plots import BLUE, figure, show


def _random_arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


@checks.verdict
def check_gram(source: str) -> Iterator[str]:
    """Lesson 03, exercise 1: each column of A multiplied by each."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(np.array([[1, 2], [3, 4]], np.float32),)]
        shapes = [(1, 1), (1, 5), (7, 1), *((int(m), int(n)) for m, n in rng.integers(2, 70, (4, 2)))]
        return plain + [_random_arrays(rng, shape) for shape in shapes]

    yield checks.judge_tile(source, lambda a: a.T @ a, cases)


@checks.verdict
def check_windows(source: str) -> Iterator[str]:
    """Lesson 03, exercise 2: the largest of three neighbours, at every second element."""

    def right(values: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(values, 3)[::2].max(axis=1)

    def cases(rng: np.random.Generator) -> list[tuple]:
        # Below zero, so that nothing can be taken for the largest by chance.
        drawn = [(-rng.uniform(1, 9, n).astype(np.float32),) for n in (3, 4, 5, 6, *map(int, rng.integers(7, 300, 4)))]
        return [(np.array([1, 5, 2, 0, 3, 9], np.float32),), *drawn]

    yield checks.judge_tile(source, right, cases)


@checks.verdict
def check_echo(source: str) -> Iterator[str]:
    """Lesson 03, exercise 3: a filter that looks back."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(np.array([1, 2, 3], np.float32), np.array([1, 0, 0.5], np.float32))]
        sizes = [(1, 1), (5, 1), (3, 7), *((int(n), int(m)) for n, m in rng.integers(2, 90, (4, 2)))]
        return plain + [_random_arrays(rng, (n,), (m,)) for n, m in sizes]

    yield checks.judge_tile(source, lambda i, k: np.convolve(i, k)[: len(i)], cases)


# ------------------------------------------------------------------------------------------------------ its figures


def bars(speeds: Mapping[str, tuple[float, float, float]], title: str, xlabel: str) -> None:
    """Draw how fast each of several ways is, one bar a way, with the middle half of its runs.

    Args:
        speeds: for each way the lower quartile, the median and the upper quartile.
        title: the message of the figure, with the device.
        xlabel: what is drawn, with its unit.
    """
    with figure(7.5, 0.36 * len(speeds) + 1.1) as (drawn, axes):
        for place, (low, middle, high) in enumerate(speeds.values()):
            errors = [[middle - low], [high - middle]]
            axes.barh(place, middle, xerr=errors, color=BLUE, error_kw={"ecolor": "black", "capsize": 3})
            axes.annotate(f"{middle:.3g}", (high, place), xytext=(6, 0), textcoords="offset points", va="center")
        axes.set(yticks=range(len(speeds)), yticklabels=list(speeds), xlabel=xlabel, title=title)
        axes.set_xlim(0, 1.15 * max(high for _, _, high in speeds.values()))
        axes.set_ylim(len(speeds) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
    words = "; ".join(f"{name}: {middle:.3g}" for name, (_, middle, _) in speeds.items())
    show(drawn, f"{title}. {xlabel}: {words}.")
