"""Lesson 16b beside the clock: the last place of digits, with the cache and without it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.lessons.lesson_16b_writer import Writer
from helpers.measure import records, timing
from helpers.measure.tables import MISSING, Table
from helpers.training.transformer import PIECES

if TYPE_CHECKING:
    import pyopencl as cl

    from helpers.training.transformer import Weights

RECOMPUTED, CACHED = "recomputed", "with the cache"
NOTHING = "kernels that do nothing, as many"
LAST = PIECES - 1  # the place that is timed
AGAIN = "only larger gaps are claimed. Run this cell again when they have ended"


class Runs(dict[tuple[str, int], timing.Measurement]):
    """What was timed, by the way and the number of digits."""

    others = 0.0  # what share of the cores other programs used meanwhile


def measure_last(queue: cl.CommandQueue, weights: Weights, attend_new: str, digits: Sequence[int]) -> Runs:
    """Time the scores at the last place, each way, and as many launches of nothing; note the times for a record.

    Args:
        queue: of the lesson's device.
        weights: by name.
        attend_new: kernel of exercise 2.
        digits: how many are written side by side, for each timing of both ways; 1 is among them.

    Returns:
        The runs by way and number of digits; the launches of nothing have the number 1.
    """
    ways = {}
    for count in digits:
        network = Writer(queue, weights, count, attend_new)
        network.begin(np.arange(count) % 10, seed=0)
        for place in range(LAST):  # fills the cache
            network.extend(place)
        recompute, extend = (functools.partial(compute, LAST) for compute in (network.recompute, network.extend))
        ways |= {(RECOMPUTED, count): recompute, (CACHED, count): extend}
        # Once more, in the same order: what ran just before may change a time.
        ways |= {(f"{RECOMPUTED}, again", count): recompute, (f"{CACHED}, again", count): extend}
        ways.setdefault((NOTHING, 1), network.launch_nothing)
    with timing.Load() as load:
        runs = Runs(timing.measure_interleaved(ways, opencl.name(queue.device), timing.ENOUGH, warmup=2, on=queue))
    runs.others = load.others
    for (way, count), run in runs.items():
        amount = f"one piece of {'one digit' if count == 1 else f'{count:,} digits'}"
        records.add_run(run, amount=amount, label=_find_label(way, count))
    return runs


def _find_label(way: str, count: int) -> str:
    """Return what a record calls a timing."""
    if way == NOTHING:
        return way
    return f"{way}, place {LAST}" if count == 1 else f"{way}, place {LAST}, {count:,} digits"


def _pool_twins(runs: Runs, way: str, count: int) -> timing.Measurement:
    """Return both timings of a way as one, so that its spread holds what differs between them."""
    first, again = runs[way, count], runs.get((f"{way}, again", count))
    return dataclasses.replace(first, seconds=first.seconds + again.seconds) if again else first


def describe_gain(runs: Runs, count: int) -> str:
    """Return how many times as fast the cache makes the last place, or "no claim" and why.

    Args:
        runs: what `measure_last` returned.
        count: digits that are written side by side.
    """
    before, after = (_pool_twins(runs, way, count) for way in (RECOMPUTED, CACHED))
    if timing.is_claimable(before, after, others=runs.others):
        is_beyond_rows = before.median > PIECES * timing.find_slowdown(runs.others) * after.median
        remark = f" {PIECES} times fewer rows don't explain all of that." if is_beyond_rows else ""
        return f"{timing.describe_gain(before, after, others=runs.others)}.{remark}"
    return " ".join(timing.compare(before, after, others=runs.others).split()).partition(": ")[2]


def tabulate_last(runs: Runs) -> Table:
    """Return the times of both ways, and what the cache gains, by digits side by side.

    Args:
        runs: what `measure_last` returned.
    """
    column = records.find_column("16b", [_find_label(*key) for key in runs])
    counted = f"{2 * timing.ENOUGH} of each way, {timing.ENOUGH} of the kernels that do nothing"
    rows, below = [], [f"Medians of runs in turn on {runs[CACHED, 1].device}: {counted}."]
    for way, count in runs:
        if way.endswith("again"):
            continue
        run = _pool_twins(runs, way, count)
        name = way if way == NOTHING else f"{_describe_digits(count)}, {way}"
        low, high = map(timing.duration, run.quartiles)
        note = column.notes.get(_find_label(way, count))
        recorded = timing.duration(note.value) if note else MISSING
        rows.append((name, timing.duration(run.median), f"{low} to {high}", recorded))
        if way == CACHED:
            below.append(f"With the cache, {_describe_digits(count)}: {describe_gain(runs, count)}")
    if busy := timing.describe_slowdown(runs.others, AGAIN):
        below.insert(1, busy)
    rows.sort(key=lambda row: row[0] == NOTHING)
    headers = ("way", "time of a place", "middle half", "recorded time")
    return Table(rows, headers, [*below, *column.below])


def _describe_digits(count: int) -> str:
    return "1 digit" if count == 1 else f"{count:,} digits"
