"""Lesson 02's tiled kernel beside the clock: the size of its tiles, and what is left without loads or tiles."""

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


def write_without_loads(tile: int) -> str:
    """Return the solution of lesson 02's exercise 2 without its loads; its results are wrong.

    Args:
        tile: rows and columns of a tile.
    """
    source = lesson_02.write_tiled(tile).replace("a[row * k + start + x]", "row + start")
    return source.replace("b[(start + y) * n + column]", "start - column")


def compare_with_controls(
    prediction: object,
    bench: lesson_02.MatmulBenchmark,
    naive: str,
    tiled: str,
    no_loads: str,
    no_tiles: str,
    twin: str,
) -> None:
    """Compare the predicted gain with the measured one; print what is left without loads or tiles, here and recorded.

    Args:
        prediction: how many times as fast the tiled kernel is.
        bench: holds the runs, in turn.
        naive: label of the kernel without tiles and rounds.
        tiled: label of the kernel with tiles.
        no_loads: label of the kernel with tiles, without loads.
        no_tiles: label of the kernel with rounds, without tiles.
        twin: second label of the kernel with tiles.
    """
    before, after, other = (bench.runs[label] for label in (naive, tiled, twin))
    busy = bench.describe_load()
    is_claimable = timing.is_claimable(before, after, (after, other)) and not busy
    checks.compare_prediction(prediction, timing.describe_gain(before, after) if is_claimable else "no claim")
    luck = timing.duration(abs(after.median - other.median))
    print(busy or f"A/A: the tiled kernel, measured twice in turn, differs from itself by {luck}.")
    for part, label in (("loads", no_loads), ("tiles", no_tiles)):
        rest = bench.runs[label]
        is_claimable = timing.is_claimable(after, rest, (after, other)) and not busy
        share = f"{100 * rest.median / after.median:.0f} % of its time" if is_claimable else "no claim"
        print(f"Without its {part}, the tiled kernel takes here: {share}.")
    column = records.find_column("02", ("all parts", "no loads from A and B"))
    recorded = 100 * column.get("no loads from A and B") / column.get("all parts")
    print(f"Without its loads, it took on a GPU: {recorded:.0f} % of its time.", *column.below, sep="\n")
