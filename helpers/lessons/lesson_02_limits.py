"""Lesson 02, Multiply matrices with OpenCL: how far its kernels are from the limits, and which part takes the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from helpers.devices import opencl
from helpers.lessons import lesson_02
from helpers.measure import published, records, timing
from helpers.measure.tables import Table, format_number

LOADS = """a_tile[y][x] = in_a ? a[row * k + start + x] : 0;
        b_tile[y][x] = in_b ? b[(start + y) * n + column] : 0;"""
PRODUCTS = """for (int i = 0; i < T; i++) {
            sum += a_tile[y][i] * b_tile[i][x];
        }"""
# A number that no compiler knows takes the place of a load. Two numbers in registers take that of the reads; one more
# addition keeps the compiler from multiplying once alone, so what the reads cost is not overstated.
NO_LOADS = "a_tile[y][x] = start + in_a;\n        b_tile[y][x] = start + in_b;"
NO_READS = """float left = a_tile[y][0], right = b_tile[0][x];
        for (int i = 0; i < T; i++) {
            sum += (left + i) * right;
        }"""
NO_PRODUCTS = "sum += a_tile[y][0] * b_tile[0][x];"
SHORT, LONG = 0.05, 0.5  # seconds of a run: a busy machine disturbs a short one more, and a long one costs patience
PARTS: dict[str, dict[str, str]] = {
    "all parts": {},
    "all parts, again": {},
    "no loads from A and B": {LOADS: NO_LOADS},
    "no reads of tiles": {PRODUCTS: NO_READS},
    "neither reads nor products": {PRODUCTS: NO_PRODUCTS},
}


def write_without(part: str, tile: int) -> str:
    """Return the solution of lesson 02's exercise 2 without some of its work; its results are wrong then.

    Args:
        part: a key of PARTS, which says what is left out.
        tile: rows and columns of a tile.
    """
    source = lesson_02.write_tiled(tile)
    for old, new in PARTS[part].items():
        source = source.replace(old, new)
    return source


def measure_parts(bench: lesson_02.MatmulBenchmark, tile: int, repeats: int | None = None) -> Table:
    """Time the tiled kernel with parts left out, on the upper half of A; return each time and what follows from it.

    Args:
        bench: whose matrices are multiplied.
        tile: rows and columns of a tile.
        repeats: runs of each kernel, in turn; None for 5 to 25, the more the shorter a run is.
    """
    import pyopencl as cl

    size, rows = bench.size, -(-bench.size // 2)
    grid = lesson_02.round_up(size, tile), lesson_02.round_up(rows, tile)
    jobs: dict[str, Callable[[], object]] = {}
    for part in PARTS:
        kernel = cl.Kernel(opencl.build(bench.queue.context, write_without(part, tile)), "tiled")
        jobs[part] = partial(
            kernel, bench.queue, grid, (tile, tile), *bench.buffers, *map(np.int32, (rows, size, size))
        )
    if repeats is None:
        trial = timing.measure(jobs["all parts"], device=bench.device, on=bench.queue, repeats=3)
        repeats = 25 if trial.median < SHORT else 9 if trial.median < LONG else 5
    runs = timing.measure_interleaved(jobs, bench.device, repeats, on=bench.queue)
    amount = f"{rows:,} x {size:,} by {size:,} x {size:,}"
    for part, run in runs.items():
        records.add_run(run, amount=amount, label=part)
    return tabulate_parts(runs, f"here: T = {tile}, {amount}, on {bench.device}.")


def tabulate_parts(runs: Mapping[str, timing.Measurement], where: str) -> Table:
    """Return the time of each kernel of PARTS, its share of the whole kernel's, and which part the time follows."""
    whole = runs["all parts"]
    rows = []
    for part, run in runs.items():
        share = f"{100 * run.median / whole.median:.0f} %"
        verdict = timing.decide(whole.seconds, run.seconds) if run is not whole else ""
        rows.append((part, timing.duration(run.median), share, verdict))
    headers = ("kernel", "here", "of the whole", "verdict")
    return records.add_column(Table(rows, headers, (where, say_what_time_follows(runs))), "02")


def say_what_time_follows(runs: Mapping[str, timing.Measurement]) -> str:
    """Return in a sentence which part of the tiled kernel saves time if it is left out, as far as the runs tell."""
    whole, again, loads, reads, both = (runs[part] for part in PARTS)
    if timing.is_clear(whole, again):
        return "The same kernel differs from itself, so there is no claim: the machine is busy with something else."
    saving = [run for run in (loads, reads) if timing.decide(whole.seconds, run.seconds) == "faster"]
    if len(saving) == 2 and not timing.is_clear(loads, reads):
        return "Loads and reads of tiles both take time here, and the runs don't say which takes more."
    if saving:
        named = "reads of tiles" if min(saving, key=lambda run: run.median) is reads else "loads from A and B"
        return f"The time follows the {named}: leaving them out saves most."
    if timing.decide(whole.seconds, both.seconds) == "faster":
        return "The time follows the products: leaving out loads or reads alone saves nothing that is clear."
    return "No part that was left out saves time that is clear, so there is no claim."


def find_peak(bench: lesson_02.MatmulBenchmark) -> float:
    """Return the best GFLOP/s that any way reached on the device; NumPy counts if the device is the processor."""
    peak = lesson_02.measure_peak(bench.queue)
    is_processor = opencl.kind(bench.queue.device) == "cpu"
    speeds = {label: bench.gflops(label) for label in bench.runs if is_processor or label != "NumPy"}
    best = max(speeds, key=speeds.__getitem__)
    if speeds[best] > peak:
        print(f"{best} was faster, so its {speeds[best]:.3g} GFLOP/s are the peak here")
        return speeds[best]
    return peak


def tabulate_limits(
    speeds: Mapping[str, float],
    loads: Mapping[str, float],
    peak: float,
    bandwidth: float,
    compute_asked: Callable[[float, float], float],
) -> Table:
    """Return how far each kernel is from the peak, and what it asks of memory and of tiles, here and on a recorded GPU.

    The limits of the recorded GPU are those of its data sheet.

    Args:
        speeds: GFLOP/s of each kernel, measured here.
        loads: of each kernel, the numbers that it loads from global memory for each multiplication.
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
            of_tiles = _format(compute_asked(gflops, 2)) if "tiled" in label else "none"
            percent = 100 * gflops / limits[0]
            numbers = (_format(number) for number in (gflops, percent, asked, limits[1]))
            rows.append((f"{label}, {where}", *numbers, of_tiles))
            below += _explain_limits(f"{label}, {where}", percent, asked, limits[1])
    below.append(f"peak here: {_format(peak)} GFLOP/s.")
    if sheet and recorded:
        below.append(
            f"of the recorded GPU, published: peak {_format(sheet.gflops)} GFLOP/s, and memory; {sheet.source}."
        )
    headers = (
        "",
        "GFLOP/s",
        "% of the peak",
        "GB/s asked of memory",
        "GB/s that memory delivers",
        "GB/s asked of tiles",
    )
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
