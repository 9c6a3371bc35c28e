"""Lesson 01, Add vectors with OpenCL: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks, kernel_checks
from helpers.plots import BLUE, GREEN, GREY, GROUP_COLOURS, ORANGE, PINK, RED, SKY, figure, show
from helpers.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checks.verdict
def check_saxpy(source: str, global_size: Callable[[int, int], int]) -> Iterator[str]:
    """Lesson 01, exercise 1: `out[i] = alpha * x[i] + y[i]`, and how many work-items to start for it."""

    def sizes(rng: np.random.Generator) -> list[tuple]:
        drawn = [(int(rng.integers(1, 9999)), 2**k) for k in range(10)]
        return [(10, 4), (12, 4), (1, 64), (64, 64), (65, 64), (100, 7), *drawn]

    yield checks.judge_function(global_size, lambda n, group: -(-n // group) * group, sizes)
    yield checks.judge_in_subprocess(judge_saxpy, source=source)


def judge_saxpy(source: str) -> str:
    """Judge the kernel of exercise 1; called in a subprocess."""
    kernel = kernel_checks.build(source, "saxpy")
    return kernel_checks.judge_kernel(kernel, ("float", "float[]", "float[]"), lambda alpha, x, y: alpha * x + y)


@checks.verdict
def check_smooth(source: str) -> Iterator[str]:
    """Lesson 01, exercise 2: the mean of three neighbours; the first and the last element stay as they are."""
    yield checks.judge_in_subprocess(judge_smooth, source=source)


def judge_smooth(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    return kernel_checks.judge_kernel(kernel_checks.build(source, "smooth"), ("float[]",), smooth, radius=1)


def smooth(x: np.ndarray) -> np.ndarray:
    """Return the mean of each element of x and its two neighbours; float32 of shape (n,), its ends as they are."""
    if len(x) == 1:
        return x.copy()
    return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])


# ------------------------------------------------------------------------------------------------------ its figures


def work_items(trace: Trace, title: str) -> None:
    """Draw which work-item touched which element: arrays that are read above, arrays that are written below.

    Args:
        trace: what `helpers.trace.record` saw of a one-dimensional launch of at most about 20 work-items.
        title: the message of the figure.
    """
    touches = [touch for touch in trace.touches if touch.array in trace.lengths]  # not those of local memory
    written = {touch.array for touch in touches if touch.writes}
    above = [array for array in trace.lengths if array not in written]
    rows = {array: row for row, array in enumerate([*above, None, *(a for a in trace.lengths if a in written)])}
    middle, items = rows[None], len(trace.global_ids)
    indices = [touch.index for touch in touches]
    first, last = min([0, *indices]), max([items - 1, *indices, *(length - 1 for length in trace.lengths.values())])
    with figure(max(7.5, 0.42 * (last - first + 1) + 1.6), 0.8 * len(rows) + 0.9) as (drawn, axes):
        for touch in touches:
            row = rows[touch.array]
            aside = 0.22 * max(abs(row - middle) - 1, 0)  # an arrow from a farther array passes the nearer one's number
            ends = [(touch.index - aside, row), (touch.item - aside, middle)]
            colour = RED if not touch.inside else BLUE if touch.writes else GREY
            _arrow(axes, *(reversed(ends) if touch.writes else ends), colour)
            if not touch.inside:
                _cell(axes, touch.index, row, "white", "×", RED)
        for item in range(items):
            group = GROUP_COLOURS[trace.group_ids[item, 0] % len(GROUP_COLOURS)]
            _cell(axes, item, middle, group, f"{trace.global_ids[item, 0]}", small=f"{trace.local_ids[item, 0]}")
        for array, length in trace.lengths.items():
            for element in range(length):
                _cell(axes, element, rows[array], "white", f"{element}")
        labels = {row: f"array {array}" if array else "work-items" for array, row in rows.items()}
        axes.set_yticks(list(labels), list(labels.values()))
        axes.set(xlim=(first - 0.8, last + 0.8), ylim=(len(rows) - 0.5, -0.5), xticks=[], title=title)
        axes.set_xlabel(
            "work-items: one colour for each work-group, large the global id, small the local id; arrays: the index",
            fontsize=8.5,
        )
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    bad = len(trace.outside)
    show(drawn, f"{title}. {items} work-items and the elements that each touched; {bad} accesses lie outside an array.")
    for one in trace.unseen:
        print("not drawn:", one)


def _cell(axes: Axes, x: float, y: float, colour: str, text: str, edge: str = "black", small: str = "") -> None:
    """A box around (x, y)."""
    from matplotlib.patches import Rectangle

    line = "--" if edge == RED else "-"
    axes.add_patch(Rectangle((x - 0.4, y - 0.3), 0.8, 0.6, facecolor=colour, edgecolor=edge, lw=1, ls=line, zorder=1))
    axes.text(x - 0.1 * bool(small), y, text, ha="center", va="center", fontsize=10, color=edge, zorder=4)
    axes.text(x + 0.26, y + 0.17, small, ha="center", va="center", fontsize=7, color=edge, zorder=4)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    down = 0.3 if end[1] > start[1] else -0.3
    tip = (end[0], end[1] - down)
    look = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=tip, xytext=(start[0], start[1] + down), arrowprops=look, zorder=3)


def where_time_goes(parts: dict[str, float], title: str) -> None:
    """Show the parts of one run as one bar, in milliseconds.

    Args:
        parts: seconds by the name of the part, in order.
        title: the message of the figure, with the device.
    """
    colours = (SKY, BLUE, ORANGE, GREEN, PINK, GREY)
    with figure(7.5, 1.9) as (drawn, axes):
        left = 0.0
        for (part, seconds), colour in zip(parts.items(), colours, strict=False):
            axes.barh(
                0,
                seconds * 1e3,
                left=left * 1e3,
                color=colour,
                edgecolor="white",
                label=f"{part}: {seconds * 1e3:.2g} ms",
            )
            left += seconds
        axes.set(xlabel="time (ms)", yticks=[], title=title)
        drawn.legend(loc="outside lower center", ncols=len(parts))
    words = ", ".join(f"{part} {seconds * 1e3:.2g} ms" for part, seconds in parts.items())
    show(drawn, f"{title}: {words}.")
