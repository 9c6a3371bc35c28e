"""Lesson 02, Multiply matrices with OpenCL: how much time the tiled kernel takes without its loads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from helpers.devices import opencl
from helpers.lessons import lesson_02
from helpers.measure import records, timing
from helpers.measure.tables import Table

LOADS = """a_tile[y][x] = in_a ? a[row * k + start + x] : 0;
        b_tile[y][x] = in_b ? b[(start + y) * n + column] : 0;"""
NO_LOADS = "a_tile[y][x] = start + in_a;\n        b_tile[y][x] = start + in_b;"  # numbers that no compiler knows
LONGEST = 20  # seconds after which no more rounds begin


def write_without_loads(tile: int) -> str:
    """Return the solution of lesson 02's exercise 2 without its loads; its results are wrong.

    Args:
        tile: rows and columns of a tile.
    """
    return lesson_02.write_tiled(tile).replace(LOADS, NO_LOADS)


def measure_parts(bench: lesson_02.MatmulBenchmark, tile: int, repeats: int = timing.ENOUGH) -> Table:
    """Time the tiled kernel twice and without its loads, on the upper half of A; return the times and what they allow.

    Args:
        bench: whose matrices are multiplied.
        tile: rows and columns of a tile.
        repeats: runs of each kernel, in turn; five if they take long.
    """
    import pyopencl as cl

    size, rows = bench.size, -(-bench.size // 2)
    grid = lesson_02.round_up(size, tile), lesson_02.round_up(rows, tile)
    whole = lesson_02.write_tiled(tile)
    sources = {"all parts": whole, "all parts, again": whole, "no loads from A and B": write_without_loads(tile)}
    jobs: dict[str, Callable[[], object]] = {}
    for part, source in sources.items():
        kernel = cl.Kernel(opencl.build(bench.queue.context, source), "tiled")
        jobs[part] = partial(
            kernel, bench.queue, grid, (tile, tile), *bench.buffers, *map(np.int32, (rows, size, size))
        )
    runs = timing.measure_interleaved(jobs, bench.device, repeats, on=bench.queue, seconds=LONGEST)
    first, again, without = runs.values()
    amount = f"{rows:,} x {size:,} by {size:,} x {size:,}"
    listed = []
    for part, run in runs.items():
        records.add_run(run, amount=amount, label=part)
        listed.append((part, timing.duration(run.median)))
    verdict = timing.compare(first, without, (first, again))
    below = (f"here: T = {tile}, {amount}, on {bench.device}.", *verdict.splitlines())
    return records.add_column(Table(listed, ("kernel", "here"), below), "02")
