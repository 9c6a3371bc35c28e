"""Lesson 02's tiled kernel beside the clock: the size of its tiles, and what they gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.devices import opencl
from helpers.judge import checks
from helpers.lessons import lesson_02
from helpers.measure import records, timing

if TYPE_CHECKING:
    import pyopencl as cl


def choose_tile(context: cl.Context) -> int:
    """Return 16, or the largest of 8, 4 and 1 whose groups and tiles the device of a context allows."""
    import pyopencl as cl

    (device,) = context.devices
    for tile in (16, 8, 4):
        items = tile * tile
        if tile > min(device.max_work_item_sizes[:2]) or items > device.max_work_group_size:
            continue
        kernel = cl.Kernel(opencl.build(context, lesson_02.write_tiled(tile)), "tiled")
        most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
        if 8 * items <= device.local_mem_size and items <= most:
            return tile
    return 1


def compare_gain(
    prediction: object, bench: lesson_02.MatmulBenchmark, naive: str, rounds: str, no_tiles: str, tiled: str, twin: str
) -> None:
    """Compare the predicted gain with the measured one and a GPU's recorded one, and print what each step changed.

    Args:
        prediction: how many times as fast the tiled kernel is.
        bench: holds the runs, in turn.
        naive: label of the first kernel.
        rounds: label of the kernel with rounds, but without barriers and tiles.
        no_tiles: label of the kernel with rounds and barriers, but without tiles.
        tiled: label of the kernel with tiles.
        twin: second label of the kernel with tiles.
    """
    before, after, other = (bench.runs[label] for label in (naive, tiled, twin))
    is_claimable = timing.is_claimable(before, after, (after, other), bench.others)
    checks.compare_prediction(prediction, timing.describe_gain(before, after, (after, other), bench.others))
    column = records.find_column("02", (naive, tiled))
    if len(column.notes) == 2:
        recorded = f"Recorded on {column.device}: {column.get(tiled) / column.get(naive):.3g} times as fast."
        print(recorded if is_claimable else f"{recorded} Compare your prediction with that.")
    luck = timing.duration(abs(after.median - other.median))
    print(f"A/A: the tiled kernel, measured twice in turn, differs from itself by {luck}.")
    if busy := bench.describe_slowdown():
        print(busy)
    for first, second in ((naive, rounds), (rounds, no_tiles), (no_tiles, tiled)):
        print(timing.compare(bench.runs[first], bench.runs[second], (after, other), bench.others))
