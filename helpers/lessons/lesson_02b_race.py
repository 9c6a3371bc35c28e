"""Lesson 02b's measurements: is a product right, what does luck alone do, how fast are the libraries that are here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.devices.host import cpu_name
from helpers.errors import WorkshopError, wrap
from helpers.lessons.lesson_02b import Candidate
from helpers.measure import published, records, timing
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, SKY, draw_speeds, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    from helpers.lessons.lesson_02 import Launch, MatmulBenchmark
    from helpers.measure.timing import Measurement

# ------------------------------------------------------------------------------------------------------ on the device


# How many floats the vector registers of a core hold (Intel's Software Developer's Manual, volume 1, 14.1 and 15.1).
REGISTERS = {16 * 8: "AVX2", 32 * 16: "AVX-512"}


def refuse_wrong(bench: MatmulBenchmark, launch: Launch) -> None:
    """Multiply the benchmark's matrices and compare all of C with NumPy's product.

    Raises:
        WorkshopError: C differs, or the driver refuses the launch.
    """
    import pyopencl as cl

    actual = np.full_like(bench.a, np.nan)
    cl.enqueue_copy(bench.queue, bench.buffers[2], actual)
    try:
        launch(*bench.buffers, bench.size, bench.size, bench.size)
        cl.enqueue_copy(bench.queue, actual, bench.buffers[2])
    except cl.Error as error:
        raise WorkshopError(f"The driver refuses the launch: {str(error).strip().splitlines()[0]}.") from None
    refuse_difference(bench, actual)


def refuse_difference(bench: MatmulBenchmark, actual: np.ndarray) -> None:
    """Compare a product of the benchmark's matrices with NumPy's.

    Raises:
        WorkshopError: it is not the product in float32; factors rounded to TF32 differ more, by 1.5e-3 times the root.
    """
    exact = bench.a @ bench.b
    # A sum of k float32 products of normal numbers is off by about 1e-7 times the root of k.
    if not np.allclose(actual, exact, rtol=1e-4, atol=1e-5 * np.sqrt(bench.size)):
        row, column = np.argwhere(~np.isclose(actual, exact, rtol=1e-4, atol=1e-5 * np.sqrt(bench.size)))[0]
        raise WorkshopError(
            f"The product is wrong: row {row}, column {column} of C is {actual[row, column]:g}, "
            f"and NumPy says {exact[row, column]:g}."
        )


def describe_search(seconds: Mapping[Any, float], winner: Any, again: float, luck: float) -> str:  # noqa: ANN401
    """Return who won a search, what the winner's second measurement says, and how many others are as good, in words.

    Args:
        seconds: by candidate, in the search.
        winner: the fastest candidate.
        again: its seconds, measured again.
        luck: by which share the best of many equal kernels looked faster than the middle one.
    """
    change = 100 * (again / seconds[winner] - 1)
    near = sum(each <= seconds[winner] * (1 + luck) for each in seconds.values()) - 1
    return wrap(
        f"The winner of {len(seconds)}: {winner}.\n"
        f"Measured again, it is {abs(change):.1f} % {'slower' if change > 0 else 'faster'} than in the search.\n"
        f"{near} of the others are within {100 * luck:.1f} % of it, which luck alone can do."
    )


def draw_candidates(
    bench: MatmulBenchmark,
    seconds: Mapping[Any, float],
    winner: Any,  # noqa: ANN401
    again: float,
) -> None:
    """Draw the speed of each candidate over the floats of its block, and the winner once more as measured again.

    Args:
        bench: the benchmark that they multiplied.
        seconds: by candidate, in the search.
        winner: the fastest candidate.
        again: its seconds, measured again.
    """
    work = 2e-9 * bench.size**3
    if not isinstance(winner, Candidate):  # of the kernel for a GPU
        speeds = {}
        for name, taken in [*((str(each), seconds[each]) for each in seconds), ("the winner, again", again)]:
            speeds[name] = (work / taken, work / taken, work / taken)
        show(*draw_speeds(speeds, f"{bench.size:,} x {bench.size:,} on {bench.device}", "GFLOP/s"))
        return
    title = f"Which block is fast, {bench.size:,} x {bench.size:,} on {bench.device}"
    series: dict[str, list[Candidate]] = {}
    for candidate in seconds:
        series.setdefault(f"float{candidate.width}, {candidate.describe_group()}", []).append(candidate)
    with figure(7.5, 4.2, title) as (drawn, axes):
        for (label, mine), marker, color in zip(series.items(), "os^D", (BLUE, SKY, RED, ORANGE), strict=False):
            floats = [candidate.floats for candidate in mine]
            speeds = [work / seconds[candidate] for candidate in mine]
            axes.scatter(floats, speeds, marker=marker, s=48, color=color, label=label)
        axes.scatter(
            [winner.floats], [work / again], marker="*", s=190, color="black", label="the winner, again", zorder=3
        )
        for floats, name in REGISTERS.items():
            axes.axvline(floats, color=GREY, ls="--", lw=1)
            axes.annotate(f"registers\nof {name}", (floats, 0), xytext=(3, 4), textcoords="offset points", fontsize=9)
        axes.set_xscale("log", base=2)
        ticks = [32, 64, 128, 256, 512]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set(xlabel="floats of C in a block", ylabel="GFLOP/s", ylim=(0, None))
        drawn.legend(fontsize=9, loc="outside lower center", ncols=2)
    speeds = f"{work / seconds[winner]:.3g} GFLOP/s, and {work / again:.3g} when measured again"
    show(drawn, f"{title}. Fastest in the search: {winner}, {speeds}.")


# ----------------------------------------------------------------------------------------------------------- the race


def find_opponents(bench: MatmulBenchmark) -> dict[str, Callable[[], object]]:
    """Return a product for each library that is here: NumPy, CLBlast, on an NVIDIA GPU cuBLAS."""
    from threadpoolctl import threadpool_limits

    def multiply_alone() -> np.ndarray:
        with threadpool_limits(1, user_api="blas"):
            return bench.a @ bench.b

    return {"NumPy": lambda: bench.a @ bench.b, "NumPy, one thread": multiply_alone} | find_libraries(bench)


def find_libraries(bench: MatmulBenchmark) -> dict[str, Callable[[], object]]:
    """Return a product on the benchmark's device for each library that is here: CLBlast, on an NVIDIA GPU cuBLAS."""
    return _find_clblast(bench) | _find_cublas(bench)


def _find_clblast(bench: MatmulBenchmark) -> dict[str, Callable[[], object]]:
    from helpers.devices import clblast

    if clblast.load_library() is None:
        return {}

    def multiply() -> None:
        clblast.multiply(bench.queue, *bench.buffers, bench.size, bench.size, bench.size)

    try:
        refuse_wrong(bench, lambda *_: multiply())
    except WorkshopError as error:
        print(f"CLBlast does not compete: {error.what}")
        return {}
    return {"CLBlast": multiply}


def _find_cublas(bench: MatmulBenchmark) -> dict[str, Callable[[], object]]:
    """Return PyTorch's product in float32, TF32 off, on an NVIDIA GPU."""
    if "NVIDIA" not in bench.device:
        return {}
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.from_numpy(array).cuda() for array in (bench.a, bench.b))
    c = torch.empty_like(a)
    try:
        refuse_difference(bench, torch.matmul(a, b, out=c).cpu().numpy())
    except WorkshopError as error:
        print(f"cuBLAS does not compete: {error.what}")
        return {}
    return {"cuBLAS": lambda: torch.matmul(a, b, out=c)}


def race(bench: MatmulBenchmark, label: str, launch: Launch, repeats: int) -> dict[str, Measurement]:
    """Time a product twice, as if it were two, and each library that is here, all in turn; print what that allows.

    Args:
        bench: the benchmark whose matrices are multiplied; it keeps the runs.
        label: what the product is called.
        launch: the product.
        repeats: runs of each.
    """

    def multiply() -> object:
        return launch(*bench.buffers, bench.size, bench.size, bench.size)

    opponents = find_opponents(bench)
    ways = {label: multiply, **opponents, f"{label}, once more": multiply}
    devices = {name: cpu_name() if name.startswith("NumPy") else bench.device for name in ways}
    runs = timing.measure_interleaved(ways, devices, repeats, on=bench.queue, rest=timing.SETTLE)
    if "NumPy, one thread" in runs:  # on a busy machine threads wait for each other
        alone = runs.pop("NumPy, one thread")
        runs["NumPy"] = min(runs["NumPy"], alone, key=lambda run: run.median)
    bench.runs |= runs
    for name, run in runs.items():
        records.add_run(run, "GFLOP/s", 2e-9 * bench.size**3, f"{bench.size:,} x {bench.size:,}", name)
    return runs


def describe_race(bench: MatmulBenchmark, label: str, peak: float) -> tuple[Table, float]:
    """Print what a race allows to claim; a speed above the peak is refused.

    Args:
        bench: holds the runs of `race`.
        label: what the product was called there.
        peak: of the device, in GFLOP/s, as measured; NaN if it was refused.

    Returns:
        The table of the race, and the product's speed in percent of the best library's.
    """
    twin, names = f"{label}, once more", [name for name in bench.runs if name in ("NumPy", "CLBlast", "cuBLAS")]
    best = max(names, key=bench.gflops)
    speed = bench.gflops(label)
    print(describe_gap(bench, best, label, (label, twin)))
    excess = published.describe_excess(bench.device, speed, "GFLOP/s")
    if excess or speed > peak:
        print(wrap(f"refused: {format_number(speed)} GFLOP/s. {excess or describe_impossible(speed, peak)}"))
    else:
        note_shares(bench, label, best, peak)
    return bench.tabulate("02b", [label, twin, *names]), 100 * speed / bench.gflops(best)


def describe_gap(bench: MatmulBenchmark, baseline: str, candidate: str, twins: tuple[str, str]) -> str:
    """Return what may be claimed of two products: nothing that one kernel, measured under two names, also shows.

    Args:
        bench: holds the runs.
        baseline: what is compared with.
        candidate: what may be faster.
        twins: the two names of the kernel that was measured twice.
    """
    luck = abs(bench.runs[twins[0]].median - bench.runs[twins[1]].median)
    gap = abs(bench.runs[candidate].median - bench.runs[baseline].median)
    same = f"A/A: the same kernel, measured twice in turn, differs from itself by {timing.duration(luck)}."
    if gap <= luck:
        text = f"{candidate} against {baseline}: no claim. The gap ({timing.duration(gap)}) is not larger than that."
        return f"{wrap(same)}\n{wrap(text)}"
    return f"{wrap(same)}\n{timing.compare(bench.runs[baseline], bench.runs[candidate])}"


def describe_impossible(speed: float, peak: float) -> str:
    """Return in words that a product cannot be faster than the peak, both in GFLOP/s."""
    return (
        f"The measured peak is {format_number(peak)} GFLOP/s. A product cannot be faster, so one of the two was "
        f"measured wrongly ({100 * speed / peak:.0f} %): run both cells again."
    )


def note_shares(bench: MatmulBenchmark, label: str, best: str, peak: float) -> None:
    """Print a product's share of the measured peak and of the best library, and note both for a record."""
    shares = {f"percent of {best}": 100 * bench.gflops(label) / bench.gflops(best)}
    if not math.isnan(peak):
        shares = {"percent of the measured peak": 100 * bench.gflops(label) / peak} | shares
    for name, share in shares.items():
        records.add_note(records.Note(name, share, "%", bench.device, f"{bench.size:,} x {bench.size:,}"))
    words = [f"{share:.0f} % of {name.removeprefix('percent of ')}" for name, share in shares.items()]
    print(wrap(f"{label}: {', '.join(words)}, the best library here, by medians."))
