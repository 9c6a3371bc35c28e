"""Lesson 16b beside the clock: single pieces of a digit, with the cache and without it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helpers.devices import opencl
from helpers.lessons import lesson_15_clock
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, show
from helpers.measure.tables import Table
from helpers.training.transformer import PIECES

if TYPE_CHECKING:
    from helpers.lessons.lesson_16b_writer import Writer

RECOMPUTED, CACHED, AGAIN = "recomputed", "with the cache", "with the cache, again"
NOTHING = "kernels that do nothing, as many"
SHOWN = range(0, PIECES, 8)  # places of the figure
FIRST, LAST = SHOWN[0], SHOWN[-1]

Runs = Mapping[tuple[str, int], timing.Measurement]


def measure_places(network: Writer) -> dict[tuple[str, int], timing.Measurement]:
    """Time a piece at some places, computed from all rows and beside the cache, and its launches; note the ends.

    Args:
        network: for one digit.
    """
    ways = {
        (label, place): functools.partial(compute, place)
        for place in SHOWN
        for label, compute in ((RECOMPUTED, network.recompute), (CACHED, network.extend))
    }
    # Once more, in the same order: what ran just before a piece may change its time a little.
    ways |= {("recomputed, again", LAST): ways[RECOMPUTED, LAST], (AGAIN, LAST): ways[CACHED, LAST]}
    ways[NOTHING, LAST] = network.launch_nothing
    device = opencl.name(network.queue.device)
    runs = timing.measure_interleaved(ways, device, timing.ENOUGH, warmup=2, on=network.queue)
    for (label, place), run in runs.items():
        if place in (FIRST, LAST):
            records.add_run(run, amount="one piece of one digit", label=_name(label, place))
    return runs


def _name(label: str, place: int) -> str:
    """Return the name of a row: launches of kernels that do nothing have no place."""
    return label if label == NOTHING else f"{label}, place {place}"


def _describe_time(run: timing.Measurement) -> tuple[str, str]:
    """Return the median and the middle half of a run's times."""
    low, high = map(timing.duration, run.quartiles)
    return timing.duration(run.median), f"{low} to {high}"


def describe_gain(runs: Runs) -> str:
    """Return how many times as fast the cache makes the last piece; "no claim" if chance may explain the gap."""
    before, after, twin = (runs[label, LAST] for label in (RECOMPUTED, CACHED, AGAIN))
    is_claimable = timing.is_claimable(before, after, (after, twin))
    return lesson_15_clock.describe_gain(before, after) if is_claimable else "no claim"


def tabulate_places(runs: Runs) -> Table:
    """Return the times of the first and the last piece, each way, and what the cache gains at the last.

    Args:
        runs: what `measure_places` returned.
    """
    rows = []
    for label in (RECOMPUTED, CACHED):
        for place in (FIRST, LAST):
            rows.append((_name(label, place), *_describe_time(runs[label, place])))
    rows.append((NOTHING, *_describe_time(runs[NOTHING, LAST])))
    below = [
        f"Medians of {timing.ENOUGH} runs in turn, on {runs[CACHED, LAST].device}.",
        f"At place {LAST}, the cache beside computing all again: {describe_gain(runs)}.",
    ]
    return records.add_column(Table(rows, ("way", "time of a piece", "middle half"), below), "16b")


def draw_places(runs: Runs) -> None:
    """Draw the time of a piece at each place, with the middle half of its runs, and what its launches alone take.

    Args:
        runs: what `measure_places` returned.
    """
    title, words = "What a piece costs at its place, one digit at a time", []
    with figure(7.5, 3.6, title) as (drawn, axes):
        for label, color, marker in ((RECOMPUTED, ORANGE, "s"), (CACHED, BLUE, "o")):
            each = [runs[label, place] for place in SHOWN]
            low, high = ([1e3 * end for end in ends] for ends in zip(*(run.quartiles for run in each), strict=True))
            axes.fill_between(SHOWN, low, high, color=color, alpha=0.25, lw=0)
            axes.plot(SHOWN, [1e3 * run.median for run in each], marker=marker, color=color, label=label)
            words.append(f"{label}: {timing.duration(each[0].median)} first, {timing.duration(each[-1].median)} last")
        floor = 1e3 * runs[NOTHING, LAST].median
        axes.axhline(floor, color=GREY, ls="--", lw=1.2, label=NOTHING)
        words.append(f"{NOTHING}: {timing.duration(runs[NOTHING, LAST].median)}")
        axes.set(xlabel="place of the piece", ylabel="time of the piece in ms", ylim=(0, None))
        axes.legend(loc="upper left")
    show(drawn, f"{title}. {'; '.join(words)}.")
