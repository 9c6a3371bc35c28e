"""Lesson 02, Multiply matrices with OpenCL: what a tiled kernel loads, which barrier it lacks, what limits it."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from helpers.judge.trace import Trace
from helpers.measure import published, records
from helpers.measure.plots import BLUE, GREY, ORANGE, SKY, figure, show
from helpers.measure.tables import Table, format_number


def draw_rounds(recorded: Trace, size: int, group: tuple[int, int], title: str) -> None:
    """Draw what one work-group of the tiled kernel loads in each round, as the trace recorded it.

    Args:
        recorded: of a launch on square matrices; a round is what lies between every second barrier.
        size: rows and columns of the matrices.
        group: the work-group, its ids in both dimensions.
        title: the message of the figure.
    """
    from matplotlib.patches import Rectangle

    mine = {i for i, ids in enumerate(recorded.group_ids[:, :2].tolist()) if tuple(ids) == group}
    touches = [touch for touch in recorded.touches if touch.item in mine]
    places = recorded.local_ids.tolist()
    width = max(x for x, _, _ in places) + 1
    last, start = max(touch.rounds for touch in touches) // 2, 1.2 * size
    origin = {"A": (0, start), "B": (start, 0), "C": (start, start)}
    words = []
    with figure(7.5, 4.1, title, ncols=last) as (drawn, axes):
        for number, panel in enumerate(np.atleast_1d(axes)):
            for name, (x, y) in origin.items():
                panel.add_patch(Rectangle((x, y), size, size, facecolor="none", edgecolor=GREY))
                panel.text(x + size / 2, y - 0.1, name, fontsize=11, ha="center", va="bottom")
            loaded, shared = 0, 0
            for touch in touches:
                is_now = touch.reads and (touch.rounds + 1) // 2 == number
                if touch.array not in recorded.lengths:  # in local memory
                    if touch.reads and touch.rounds == 2 * number + 1:
                        shared += 1
                elif is_now or touch.writes:
                    row, column = divmod(touch.index, size)
                    x, y = origin[touch.array.upper()][0] + column, origin[touch.array.upper()][1] + row
                    color = {"a": ORANGE, "b": SKY, "c": BLUE}[touch.array]
                    panel.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="white"))
                    reader = str(places[touch.item][1] * width + places[touch.item][0]) if touch.reads else ""
                    panel.text(x + 0.5, y + 0.5, reader, fontsize=8, ha="center", va="center")
                    if touch.reads:
                        loaded += 1
            caption = f"{loaded} loads, each used {shared / max(loaded, 1):g} times"
            panel.set(xlim=(-0.2, 2.2 * size + 0.2), ylim=(2.2 * size + 0.2, -0.8), aspect="equal")
            panel.axis("off")
            panel.set_title(f"round {number + 1}\n{caption}", fontsize=9.5)
            words.append(f"Round {number + 1}: {caption}")
    show(drawn, f"{title}. {'. '.join(words)}.")


def name_missing_barrier(traced: Trace) -> str:
    """Return a sentence on which of a tiled kernel's two barriers is missing; empty if no tile is raced over.

    Between two barriers, each work-item either fills the tiles or uses them. One that does both in this order lacks
    the barrier after the filling; one that does both in the other order lacks the barrier after the use.
    """
    orders: dict[tuple[int, int], str] = collections.defaultdict(str)
    for touch in traced.touches:
        if touch.array not in traced.lengths:
            orders[touch.item, touch.barriers] += "w" if touch.writes else "r"
    raced = re.search(r"both touch (\w+)\[", (traced.races() or [""])[0])
    if raced is None or raced[1] in traced.lengths:
        return ""
    if any("wr" in order for order in orders.values()):
        return "The first wait is missing: the tiles are used before the whole group has filled them."
    if any("rw" in order for order in orders.values()):
        return "The second wait is missing: the tiles are filled for the next round while others still use them."
    return ""


def tabulate_limits(
    speeds: Mapping[str, float],
    loads: Mapping[str, float],
    peak: float,
    bandwidth: float,
    compute_asked: Callable[[float, float], float],
) -> Table:
    """Return how far each kernel is from the peak, and what it asks of memory, here and on a recorded GPU.

    The limits of the recorded GPU are those of its data sheet.

    Args:
        speeds: GFLOP/s of each kernel, measured here.
        loads: of each kernel, the numbers that it loads for each multiplication.
        peak: of the device here, in GFLOP/s; NaN if it was refused.
        bandwidth: likewise, in GB/s.
        compute_asked: returns the GB/s that a kernel asks for, from its GFLOP/s and its loads.
    """
    gpu, rows, below = records.find_column("02", speeds), [], []
    sheet = published.find_data_sheet(gpu.device)
    recorded = {label: gpu.get(label) for label in speeds if not math.isnan(gpu.get(label))}
    for where, measured, limits in (
        ("here", speeds, (peak, bandwidth)),
        ("recorded", recorded, (sheet.gflops, sheet.bandwidth) if sheet else (math.nan, math.nan)),
    ):
        for label, gflops in measured.items():
            asked = compute_asked(gflops, loads[label])
            percent = 100 * gflops / limits[0]
            numbers = (_format(number) for number in (gflops, limits[0], percent, asked, limits[1]))
            rows.append((f"{label}, {where}", *numbers))
            below += _explain_limits(f"{label}, {where}", percent, asked, limits[1])
    if sheet and recorded:
        below.append(f"peak and memory of the recorded GPU, published: {sheet.source}.")
    headers = ("", "GFLOP/s", "peak", "percent of the peak", "GB/s asked for", "GB/s that memory delivers")
    return Table(rows, headers, (*below, *gpu.below))


def _format(number: float) -> str:
    return "not known" if math.isnan(number) else format_number(number)


def _explain_limits(label: str, percent: float, asked: float, delivered: float) -> list[str]:
    """Return the sentences that follow from these numbers alone."""
    lines = []
    if percent > 100:
        lines.append(f"{label}: more than the peak, so one of the two was measured wrongly.")
    if asked > delivered:
        lines.append(
            f"{label}: memory delivers {100 * delivered / asked:.0f} % of what the kernel asks for. "
            "The rest comes from caches, or neighbors share it."
        )
    elif asked <= delivered:
        times = format_number(delivered / asked, 2)
        lines.append(f"{label}: memory delivers {times} times what the kernel asks for.")
    return lines
