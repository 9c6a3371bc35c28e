"""Lesson 02b's experiment: how many sums does a work-item need, and how many fit the registers of a core?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.measure import timing
from helpers.measure.plots import BLUE, GREY, figure, show

if TYPE_CHECKING:
    import pyopencl as cl

    from helpers.measure.timing import Measurement

# Vector registers of a core, and floats in each (Intel's Software Developer's Manual, volume 1, 14.1 and 15.1; Arm's
# Architecture Reference Manual, B1.2), by the names that NumPy gives the extensions of a processor.
REGISTERS = {
    "AVX-512": ({"X86_V4", "AVX512F", "AVX512_SKX"}, 32, 16),
    "AVX2": ({"X86_V3", "AVX2"}, 16, 8),
    "Neon": ({"NEON", "ASIMD"}, 32, 4),
}


def find_registers() -> tuple[str, int, int]:
    """Return the processor's widest known vector extension, its registers, and the floats of one; "", 0, 0 if none."""
    built_for = np.show_config(mode="dicts")["SIMD Extensions"]
    found = {*built_for["baseline"], *built_for["found"]}
    for name, (signs, registers, width) in REGISTERS.items():
        if signs & found:
            return name, registers, width
    return "", 0, 0


def describe_registers() -> str:
    """Return in words which vector registers a core of this processor has."""
    name, registers, width = find_registers()
    if not name:
        return "The vector registers of this processor are not known to the lesson."
    return f"{name}: {registers} vector registers of {width} floats in each core of this processor, {cpu_name()}."


def measure_sums(
    queue: cl.CommandQueue, source: str, counts: Sequence[int], width: int, repeats: int = timing.ENOUGH
) -> dict[int, Measurement]:
    """Time a kernel `add` that keeps SUMS sums in registers and loads nothing, in turn; print and draw its speed.

    Args:
        queue: of the device.
        source: of the kernel; its arguments are the output, a factor, and steps.
        counts: how many sums.
        width: floats of a sum.
        repeats: runs of each.

    Returns:
        The seconds of as many multiply-adds with each number of sums.
    """
    import pyopencl as cl

    is_gpu = opencl.kind(queue.device) == "gpu"
    items, group, each = (65_536, 64, 20_000) if is_gpu else (4 * queue.device.max_compute_units, 1, 4_000_000)
    out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * width * items)
    vector = f"float{width}" if width > 1 else "float"

    def build(sums: int) -> Callable[[], object]:
        program = opencl.build(queue.context, f"#define SUMS {sums}\ntypedef {vector} vector;\n{source}")
        kernel, steps = cl.Kernel(program, "add"), np.int32(each // sums)
        return lambda: kernel(queue, (items,), (group,), out, np.float32(0.5), steps)

    name = opencl.name(queue.device)
    runs = timing.measure_interleaved({sums: build(sums) for sums in counts}, name, repeats, on=queue)
    _draw_sums({sums: 2e-9 * items * width * (each // sums * sums) for sums in counts}, runs, width, name)
    return runs


def _draw_sums(work: Mapping[int, float], runs: Mapping[int, Measurement], width: int, device: str) -> None:
    """Draw GFLOP/s over the number of sums, with the middle half of the runs; `work` is in GFLOP."""
    counts, title = list(runs), f"Sums of float{width} in one work-item, and no loads, on {device}"
    speeds = [work[sums] / runs[sums].median for sums in counts]
    low, high = zip(*[(work[n] / runs[n].quartiles[1], work[n] / runs[n].quartiles[0]) for n in counts], strict=True)
    bars = [np.subtract(speeds, low), np.subtract(high, speeds)]
    extension, registers, floats = find_registers()
    with figure(7.5, 3.6, title) as (drawn, axes):
        axes.errorbar(range(len(counts)), speeds, yerr=bars, color=BLUE, marker="o", capsize=4)
        axes.set(xlabel="sums", ylabel="GFLOP/s, middle half of the runs", ylim=(0, None))
        axes.set_xticks(range(len(counts)), [str(sums) for sums in counts])
        if floats and "gpu" not in device.lower():
            full = registers * floats / width
            axes.axvline(float(np.interp(full, counts, range(len(counts)))), color=GREY, ls="--", lw=1)
            axes.annotate(
                f"{full:g} sums fill the\nregisters of {extension}",
                (float(np.interp(full, counts, range(len(counts)))), 0),
                xytext=(-4, 4),
                textcoords="offset points",
                ha="right",
                fontsize=9,
            )
    words = ", ".join(f"{sums}: {speed:.3g}" for sums, speed in zip(counts, speeds, strict=True))
    show(drawn, f"{title}. GFLOP/s by sums: {words}.")


def describe_sums(runs: Mapping[int, Measurement]) -> str:
    """Return what the runs of `measure_sums` allow to say of few sums and of many, in words.

    The kernels do the same work in total, so seconds may be compared.
    """
    counts = sorted(runs)
    best = min(counts, key=lambda sums: runs[sums].median)
    lines = []
    for sums, what in ((counts[0], "the fewest"), (counts[-1], "the most")):
        if sums == best or not timing.is_clear(runs[sums], runs[best]):
            lines.append(f"{sums} ({what}) against {best} sums: no claim.")
        else:
            factor = runs[sums].median / runs[best].median
            lines.append(f"{best} sums are {factor:.2g} times as fast as {sums} ({what}).")
    return "\n".join(lines)
