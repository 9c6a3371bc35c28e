"""Lesson 03, Write mathematics, not kernels: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers import tile
from helpers.compute import plaidml
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, show
from helpers.measure.tables import Table
from helpers.measure.timing import duration, is_clear

if TYPE_CHECKING:
    from helpers.measure.timing import Measurement
    from helpers.tile import Ranges
    from helpers.tile.ranges import Affine


def _random_arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


@checks.verdict
def check_windows(source: str) -> Iterator[str]:
    """Lesson 03, exercise 1: the largest of three neighbours, at every second element."""

    def right(values: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(values, 3)[::2].max(axis=1)

    def cases(rng: np.random.Generator) -> list[tuple]:
        # Below zero, so that nothing can be taken for the largest by chance.
        drawn = [(-rng.uniform(1, 9, n).astype(np.float32),) for n in (3, 4, 5, 6, *map(int, rng.integers(7, 300, 4)))]
        far = [(sign * rng.uniform(1e6, 9e6, 20).astype(np.float32),) for sign in (-1, 1)]
        return [(np.array([1, 5, 2, 0, 3, 9], np.float32),), *drawn, *far]

    yield checks.judge_tile(source, right, cases)


FAR = """function (A[M, N], B[M, N]) -> (S) {
    D = A - B;
    Q = D * D;
    S[j: N] = +(Q[i, j]);
}"""
LARGEST = """function (A[M, N]) -> (O) {
    O[i: M] = >(A[i, j]);
}"""


@checks.verdict
def check_far(source: str) -> Iterator[str]:
    """Lesson 03, exercise 2: three statements as two."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 1], [0, 0]], np.float32))]
        shapes = [(1, 1), (1, 5), (7, 1), *((int(m), int(n)) for m, n in rng.integers(2, 70, (4, 2)))]
        return plain + [_random_arrays(rng, shape, shape) for shape in shapes]

    if isinstance(source, str) and _words(source) == _words(FAR):
        raise checks.NotDone("these are the three statements that you were given.")
    tried = checks.judge_tile(source, lambda a, b: ((a - b) ** 2).sum(axis=0), cases)
    count = len(tile.parse(source).statements)
    if count > 2:
        raise checks.NotYet(f"the results are right, but {count} statements are {count} kernels; two are enough.")
    yield tried
    yield _beside(FAR, source, *_random_arrays(np.random.default_rng(0), *[(1152, 1152)] * 2))


@checks.verdict
def check_chains(source: str) -> Iterator[str]:
    """Lesson 03, exercise 3: the largest of each row, by several chains."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(np.arange(128, dtype=np.float32).reshape(2, 64),)]
        shapes = [(int(m), 64 * int(n)) for m, n in [(1, 1), (3, 3), (5, 2), *rng.integers(1, 20, (3, 2))]]
        # Below zero, so that nothing can be taken for the largest by chance; the largest once in every place.
        drawn = [(-rng.uniform(1, 9, shape).astype(np.float32),) for shape in shapes]
        far = [(sign * rng.uniform(1e6, 9e6, (4, 128)).astype(np.float32),) for sign in (-1, 1)]
        return [*plain, *drawn, *far, ((np.eye(192) - 2).astype(np.float32),)]

    tried = checks.judge_tile(source, lambda a: a.max(axis=1), cases)
    chain = _longest_chain(source, (2, 1024))
    if chain > 128:
        raise checks.NotYet(
            f"the results are right, but for rows of 1,024 elements one work-item still asks {chain:,} points, "
            "one after another. Split j, and join in two statements."
        )
    yield tried
    yield f"the longest chain for rows of 1,024 elements is {chain}"
    yield _beside(LARGEST, source, *_random_arrays(np.random.default_rng(0), (1152, 1152)))


def _words(source: str) -> list[str]:
    return re.sub(r"//[^\n]*", "", source).split()


def _longest_chain(source: str, shape: tuple[int, ...]) -> int:
    """How many points one work-item asks one after another for one element, in the statement that asks most."""
    program = tile.parse(source)
    nests = tile.flatten(program, tile.infer(program, [shape])).parts
    return max(math.prod(len(values) for values in nest.loops.values()) for nest in nests)


def _beside(given: str, yours: str, *arrays: np.ndarray) -> str:
    """Time the function that was given and the learner's in turn, and say what came."""
    functions = {"the one that was given": tile.Function(given), "yours": tile.Function(yours)}
    before, after = tile.measure_interleaved(functions, *arrays, repeats=15).values()
    size = " x ".join(f"{n:,}" for n in arrays[0].shape)
    said = f"for {size} elements: given {duration(before.median)}, yours {duration(after.median)}"
    if not is_clear(before, after):
        return f"{said}, no clear difference"
    return f"{said}, {before.median / after.median:.2g} times as fast"


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


def answer(prediction: object, right: object) -> None:
    """Print a learner's prediction beside an answer that follows from the rules; nothing was measured."""
    if prediction is None or prediction is ...:
        print(f"no prediction made; answer: {right}")
    else:
        print(f"you predicted: {prediction}\nanswer:        {right}")


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
    shown = set(drawn_points[False]) - set(drawn_points[True])
    last = max(x for x, _ in [*drawn_points[True], *shown])
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
        xlabel = f"element of {tensor}: {read.indices[0]} (it has {size}; the dashed line is its end)"
        axes.set(xlabel=xlabel, ylabel=f"{index}, the result")
        axes.set(title=domain.statement.text, xticks=range(0, last + 1, 1 if last < 20 else 2))
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


def operations_table() -> Table:
    """Return each operation's name, the shapes of its inputs, its line of Tile, and what a work-item computes."""
    rows = []
    for name, operation in plaidml.OPERATIONS.items():
        stages = tile.Function(operation.source).stages(*operation.shapes.values())
        shapes = ", ".join(f"{one}: {' x '.join(map(str, shape))}" for one, shape in operation.shapes.items())
        rows.append((name, shapes, stages.program.statements[0].text, stages.tiles.blocks[0].text))
    return Table(rows, ("operation", "inputs", "Tile", "the compiler's choice here"))
