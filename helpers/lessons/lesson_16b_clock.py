"""Lesson 16b beside the clock: a digit written with the cache and without it, and what its bytes predict."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.lessons import lesson_01b_limits, lesson_15_clock, lesson_16b
from helpers.lessons.lesson_16b_writer import Writer
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.tables import Table, format_number
from helpers.training import writer
from helpers.training.transformer import PIECES

if TYPE_CHECKING:
    import pyopencl as cl

    from helpers.training.transformer import Weights

WAYS = RECOMPUTED, CACHED, AGAIN = "recomputed", "with the cache", "with the cache, again"
TOGETHER = 20  # digits that are written side by side
SIDE_BY_SIDE, EMPTY = f"with the cache, {TOGETHER} digits at once", "as many empty launches"
SIZE = 2**22  # numbers of each array of the addition that measures the bandwidth
SHOWN = range(0, PIECES, 8)  # places of the figure


def measure_bandwidth(queue: cl.CommandQueue) -> float:
    """Return the bandwidth of lesson 01b's addition of 16 numbers in each work-item, in GB/s: the fastest run's."""
    import pyopencl as cl

    add = cl.Kernel(opencl.build(queue.context, lesson_01b_limits.ADDITIONS.replace("FLOAT", "float16")), "add")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(queue.context, flags, hostbuf=np.ones(SIZE, np.float32)) for _ in range(3)]
    launch = functools.partial(add, queue, (SIZE // 16,), None, *buffers)
    run = timing.measure(launch, device=opencl.name(queue.device), on=queue, repeats=timing.ENOUGH)
    return 12 * SIZE / min(run.seconds) / 1e9


def measure_writing(
    queue: cl.CommandQueue,
    weights: Weights | None = None,
    choose: str = lesson_16b.CHOOSE,
    attend_new: str = lesson_16b.ATTEND_NEW,
) -> dict[str, timing.Measurement]:
    """Time how digits are written, one in each of WAYS and TOGETHER at once, and as many empty launches.

    All times are noted for a record.

    Args:
        queue: of the lesson's device.
        weights: by name; None for the stored ones.
        choose, attend_new: the kernels of exercises 1 and 2.
    """
    import pyopencl as cl

    weights = weights or writer.load_writer()[1]
    alone, many = (Writer(queue, weights, digits, attend_new) for digits in (1, TOGETHER))
    kernel = cl.Kernel(opencl.build(queue.context, choose), "choose")
    nothing = cl.Kernel(opencl.build(queue.context, "__kernel void nothing(int n) {}"), "nothing")

    def write(network: Writer, compute: Callable[[int], None]) -> None:
        network.begin([7] * network.digits, seed=0)
        for place in range(PIECES):
            compute(place)
            network.choose(kernel, 1)

    def launch_nothing(count: int) -> None:
        for _ in range(count):
            nothing(queue, (64,), None, np.int32(0))

    write(alone, alone.extend)
    ways: dict[str, Callable[[], None]] = {RECOMPUTED: functools.partial(write, alone, alone.recompute)}
    ways |= {label: functools.partial(write, alone, alone.extend) for label in (CACHED, AGAIN)}
    ways[SIDE_BY_SIDE] = functools.partial(write, many, many.extend)
    ways[EMPTY] = functools.partial(launch_nothing, alone.launches)
    runs = timing.measure_interleaved(ways, opencl.name(queue.device), timing.ENOUGH, warmup=2, on=queue)
    for run in runs.values():
        records.add_run(run, amount=f"digits of {PIECES} pieces")
    return runs


def describe_gain(runs: Mapping[str, timing.Measurement]) -> str:
    """Return how many times as fast the cache makes a digit; "no claim" if chance may explain the gap.

    Args:
        runs: what `measure_writing` returned.
    """
    before, after, twin = (runs[label] for label in WAYS)
    is_claimable = timing.is_claimable(before, after, (after, twin))
    return lesson_15_clock.describe_gain(before, after) if is_claimable else "no claim"


def tabulate_writing(runs: Mapping[str, timing.Measurement], predicted: float) -> Table:
    """Return the time and the pieces a second of each way, beside what the bytes of one digit predict.

    Args:
        runs: what `measure_writing` returned.
        predicted: seconds of a digit with the cache if its bytes alone took time.
    """
    rows = [("predicted from bytes", timing.duration(predicted), "", format_number(PIECES / predicted))]
    for label, run in runs.items():
        low, high = map(timing.duration, run.quartiles)
        pieces = {EMPTY: 0, SIDE_BY_SIDE: TOGETHER * PIECES}.get(label, PIECES)
        speed = format_number(pieces / run.median) if pieces else ""
        rows.append((label, timing.duration(run.median), f"{low} to {high}", speed))
    bytes_alone, launches = (100 * seconds / runs[CACHED].median for seconds in (predicted, runs[EMPTY].median))
    below = [
        f"One digit, or {TOGETHER}; medians of {timing.ENOUGH} runs in turn, on {runs[CACHED].device}.",
        f"The cache, beside computing all again: {describe_gain(runs)}.",
        f"If the time with the cache is 100 %, its bytes need {bytes_alone:.2g} % (computed), "
        f"and as many empty launches {launches:.0f} % (measured).",
    ]
    return records.add_column(Table(rows, ("way", "time", "middle half", "pieces a second"), below), "16b")


def measure_places(network: Writer) -> dict[tuple[str, int], timing.Measurement]:
    """Time a piece at some places, computed from all rows and beside the cache.

    Args:
        network: has written a digit before.
    """
    ways = {
        (label, place): functools.partial(compute, place)
        for place in SHOWN
        for label, compute in ((RECOMPUTED, network.recompute), (CACHED, network.extend))
    }
    device = opencl.name(network.queue.device)
    return timing.measure_interleaved(ways, device, timing.ENOUGH, warmup=1, on=network.queue)


def draw_places(runs: Mapping[tuple[str, int], timing.Measurement]) -> None:
    """Draw the time of a piece at each place, with the middle half of its runs.

    Args:
        runs: what `measure_places` returned for one digit.
    """
    title, words = "What a piece costs at its place, one digit at a time", []
    with figure(7.5, 3.8, title) as (drawn, axes):
        for label, color, marker in ((RECOMPUTED, ORANGE, "s"), (CACHED, BLUE, "o")):
            each = [runs[label, place] for place in SHOWN]
            low, high = (1e3 * np.array(ends) for ends in zip(*(run.quartiles for run in each), strict=True))
            axes.fill_between(SHOWN, low, high, color=color, alpha=0.25, lw=0)
            axes.plot(SHOWN, [1e3 * run.median for run in each], marker=marker, color=color, label=label)
            words.append(f"{label}: {timing.duration(each[0].median)} first, {timing.duration(each[-1].median)} last")
        axes.set(xlabel="place of the piece", ylabel="time of the piece in ms", ylim=(0, None))
        axes.legend(loc="upper left")
    show(drawn, f"{title}. {'; '.join(words)}.")
