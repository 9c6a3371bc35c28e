"""Lesson 03, Write mathematics, not kernels: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks
from helpers.plots import BLUE, GREY, ORANGE, figure, show
from helpers.timing import duration, is_clear

if TYPE_CHECKING:
    from helpers.tile import Ranges
    from helpers.tile.ranges import Affine
    from helpers.timing import Measurement


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


@checks.verdict
def check_results(learner: Callable[[int, int, int, int], int]) -> Iterator[str]:
    """Lesson 03, exercise 4: how many whole windows fit, counted one by one."""

    def right(n: int, m: int, stride: int, gap: int) -> int:
        return sum(first + gap * (m - 1) < n for first in range(0, n, stride))

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(10, 4, 3, 1), (10, 3, 1, 2), (3, 4, 1, 1), (1, 1, 1, 1), (5, 5, 1, 1), (5, 5, 4, 1), (6, 5, 4, 1)]
        far = [(2, 9, 3, 1), (2, 9, 100, 5), (4, 2, 7, 4), (1152, 3, 2, 1)]
        drawn = [tuple(map(int, rng.integers(1, high))) for high in [(60, 6, 6, 6)] * 30]
        return plain + far + drawn

    yield checks.judge_function(learner, right, cases)


# ------------------------------------------------------------------------------------------------------ its figures


def points(ranges: Ranges, tensor: str) -> None:
    """Draw which elements of an input each element of the result reads; what a limit forbids is drawn in grey.

    Args:
        ranges: of a function of one contraction, whose result and whose input have one dimension each.
        tensor: the name of the input.
    """
    domain = ranges.domains[0]
    (index,) = domain.output.indices[0].terms
    read = next(place for place in domain.inputs if place.tensor == tensor)
    size, results = read.array.shape[0], domain.output.array.shape[0]
    looped = [name for name in domain.ranges if name != index]
    drawn_points: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for values in itertools.product(range(results), *(domain.ranges[name] for name in looped)):
        at = dict(zip([index, *looped], values, strict=True))

        def value(expression: Affine, at: dict[str, int] = at) -> int:
            return int(expression.constant + sum(n * at[name] for name, n in expression.terms.items()))

        valid = all(0 <= value(expression) < limit for expression, limit in domain.limits)
        drawn_points[valid].append((value(read.indices[0]), at[index]))
    shown = {place for place in drawn_points[False] if place[0] < size + 3 and place not in drawn_points[True]}
    with figure(7.5, 0.22 * results + 1.2) as (drawn, axes):
        for places, colour, marker, label in (
            (drawn_points[True], BLUE, "s", "valid point"),
            (sorted(shown), GREY, "x", "left out"),
        ):
            axes.plot(
                *(zip(*places, strict=True) if places else ((), ())),
                ls="",
                color=colour,
                marker=marker,
                ms=7,
                label=label,
            )
        axes.axvline(size - 0.5, color="black", lw=1, ls="--")
        axes.set(
            xlabel=f"element of {tensor} (it has {size}; the dashed line is its end)", ylabel=f"{index}, the result"
        )
        axes.set(title=domain.statement.text, xticks=range(max(x for x, _ in [*drawn_points[True], *shown]) + 1))
        axes.set(yticks=range(results), ylim=(results - 0.5, -0.5))
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    rows = "; ".join(
        f"{index} = {row}: {', '.join(str(x) for x, y in drawn_points[True] if y == row) or 'none'}"
        for row in range(results)
    )
    show(drawn, f"{domain.statement.text} Elements of {tensor} that each result reads. {rows}.")


def beside_numpy(runs: Mapping[str, tuple[Measurement, Measurement]], device: str) -> None:
    """Draw how many times as fast as NumPy each operation is on a device.

    Args:
        runs: for each operation NumPy's run and the device's.
        device: the name of the device.
    """
    words = []
    with figure(7.5, 0.36 * len(runs) + 1.1) as (drawn, axes):
        for place, (name, (numpy, kernel)) in enumerate(runs.items()):
            ratio = numpy.median / kernel.median
            clear = is_clear(numpy, kernel)
            colour = GREY if not clear else BLUE if ratio > 1 else ORANGE
            axes.barh(place, ratio - 1, left=1, color=colour, hatch="" if clear else "//", edgecolor="white")
            text = f"{ratio:.2g}  (NumPy {duration(numpy.median)}, Tile {duration(kernel.median)})"
            axes.annotate(
                text, (max(ratio, 1), place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9
            )
            words.append(f"{name}: {text}{'' if clear else ', the runs overlap'}")
        axes.axvline(1, color="black", lw=1)
        ratios = [numpy.median / kernel.median for numpy, kernel in runs.values()]
        axes.set(xscale="log", xlabel="times as fast as NumPy (logarithmic; left of 1 NumPy is faster)")
        axes.set_xlim(0.7 * min([1, *ratios]), 60 * max([1, *ratios]))
        axes.set(yticks=range(len(runs)), yticklabels=list(runs), ylim=(len(runs) - 0.5, -0.5))
        axes.set_title(f"Tile on {device}, beside NumPy", x=-0.25)
        axes.grid(axis="y", visible=False)
    show(drawn, f"How many times as fast as NumPy each operation is on {device}. {'; '.join(words)}.")


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
