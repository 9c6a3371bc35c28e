"""Lesson 02b's measurements: is a product right, what does luck alone do, how fast are the libraries that are here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name, usable_cpus
from helpers.errors import WorkshopError, wrap
from helpers.judge import checks
from helpers.measure import published, records, timing
from helpers.measure.plots import BLUE, GREY, draw_speeds, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    from helpers.lessons.lesson_02 import Launch, MatmulBenchmark
    from helpers.measure.timing import Measurement

# ------------------------------------------------------------------------------------------------------ on the device


_exact: WeakKeyDictionary[MatmulBenchmark, np.ndarray] = WeakKeyDictionary()  # NumPy's product of each benchmark


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
    """Compare a product of the benchmark's matrices with NumPy's, which is computed once.

    Raises:
        WorkshopError: it is not the product in float32; factors rounded to TF32 differ more, by 1.5e-3 times the root.
    """
    if bench not in _exact:
        _exact[bench] = bench.a @ bench.b
    exact = _exact[bench]
    # A sum of k float32 products of normal numbers is off by about 1e-7 times the root of k.
    if not np.allclose(actual, exact, rtol=1e-4, atol=1e-5 * np.sqrt(bench.size)):
        row, column = np.argwhere(~np.isclose(actual, exact, rtol=1e-4, atol=1e-5 * np.sqrt(bench.size)))[0]
        raise WorkshopError(
            f"The product is wrong: row {row}, column {column} of C is {actual[row, column]:g}, "
            f"and NumPy says {exact[row, column]:g}."
        )


# ---------------------------------------------------------------------------------------------------------- the search


def describe_luck(seconds: Sequence[float]) -> str:
    """Return by how much the best of many measurements of one kernel leads, in words."""
    lead = 100 * (np.median(seconds) / min(seconds) - 1)
    return f"The best of {len(seconds)} equal kernels looks {lead:.1f} % faster than the middle one."


def draw_equal(bench: MatmulBenchmark, seconds: Sequence[float]) -> None:
    """Draw the speed of one kernel, measured many times, and mark the fastest.

    Args:
        bench: the benchmark that it multiplied.
        seconds: one measurement for each time.
    """
    speeds = 2e-9 * bench.size**3 / np.array(seconds)
    middle, best = float(np.median(speeds)), int(np.argmax(speeds))
    title = f"One kernel, measured {len(speeds)} times on {bench.device}"
    with figure(7.5, 3.0, title) as (drawn, axes):
        axes.scatter(range(1, len(speeds) + 1), speeds, color=BLUE, s=28)
        axes.scatter([best + 1], [speeds[best]], marker="*", s=190, color="black", zorder=3, label="the fastest")
        axes.axhline(middle, color=GREY, ls="--", lw=1, label="the middle one")
        axes.set(xlabel="measurement, in the order of time", ylabel="GFLOP/s", ylim=(0, 1.1 * speeds.max()))
        axes.legend(fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0, ncols=2)  # above the points
    show(drawn, f"{title}: {speeds.min():.3g} to {speeds.max():.3g} GFLOP/s, the middle one {middle:.3g}.")


def describe_search(seconds: Mapping[Any, float], winner: Any, again: float) -> str:  # noqa: ANN401
    """Return who won a search and what the winner's second measurement says, in words.

    Args:
        seconds: by candidate, in the search.
        winner: the fastest candidate.
        again: its seconds, measured again.
    """
    return wrap(
        f"The winner of {len(seconds)}: {winner}.\n"
        f"Measured again, it took {again / seconds[winner]:.3g} times as long as in the search."
    )


def run_finals(bench: MatmulBenchmark, launches: Mapping[Any, Launch], repeats: int) -> list[Any]:
    """Time the finalists of a search in turn, the first one twice, and print which are faster than the others.

    Args:
        bench: whose matrices they multiply.
        launches: by finalist, the fastest of the search first.
        repeats: runs of each.

    Returns:
        The fastest finalist, then those of which no claim can be made beside it.
    """
    import functools

    size, first = bench.size, next(iter(launches))
    ways = {each: functools.partial(launch, *bench.buffers, size, size, size) for each, launch in launches.items()}
    timed = bench.time_in_turn({**ways, "twin": ways[first]}, bench.device, repeats)
    twins = timed[first], timed.pop("twin")
    luck = abs(twins[0].median - twins[1].median)
    ranked = sorted(timed, key=lambda each: timed[each].median)
    best = timed[ranked[0]]
    tied = [each for each in ranked[1:] if not timing.is_claimable(best, timed[each], twins, bench.others)]
    speed = format_number(2e-9 * size**3 / best.median)
    print(wrap(f"In turn, {repeats} times each, the fastest median of {len(ranked)}: {ranked[0]}, {speed} GFLOP/s."))
    print(wrap(f"The winner of the search, measured twice in turn, differs from itself by {timing.duration(luck)}."))
    if busy := bench.describe_slowdown():
        print(busy)
    print(wrap(f"No claim between it and {len(tied)} of the others{': ' if tied else ''}{'; '.join(map(str, tied))}."))
    return [ranked[0], *tied]


def draw_candidates(bench: MatmulBenchmark, searched: Mapping[Any, Measurement], most: int = 12) -> None:
    """Draw the speed of the fastest candidates of a search, with the middle half of their runs.

    Args:
        bench: the benchmark that they multiplied.
        searched: by candidate, the runs of the search.
        most: candidates that are drawn.
    """
    work, ranked = 2e-9 * bench.size**3, sorted(searched, key=lambda each: searched[each].median)[:most]
    speeds = {str(each): _find_speeds(searched[each], work) for each in ranked}
    shown = f"{len(ranked)} of {len(searched)}" if len(ranked) < len(searched) else "all"
    title = f"The search, fastest first ({shown}): {bench.device}"
    show(*draw_speeds(speeds, title, f"GFLOP/s, {bench.size:,} x {bench.size:,}"))


def _find_speeds(run: Measurement, work: float) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of a run's speed, for its work in GFLOP."""
    low, high = run.quartiles
    return work / high, work / run.median, work / low


# ----------------------------------------------------------------------------------------------------------- the race


def count_threads(bench: MatmulBenchmark) -> int:
    """Return NumPy's threads in the race: as many as OpenCL has cores, or as there are where OpenCL uses a GPU."""
    cores = max(1, int(usable_cpus()))
    return min(cores, bench.queue.device.max_compute_units) if opencl.kind(bench.queue.device) == "cpu" else cores


def find_opponents(bench: MatmulBenchmark) -> dict[str, Callable[[], object]]:
    """Return a product for each library that is here: NumPy, CLBlast, on an NVIDIA GPU cuBLAS."""
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()

    def multiply() -> np.ndarray:
        with controller.limit(limits=count_threads(bench), user_api="blas"):
            return bench.a @ bench.b

    return {"NumPy": multiply} | find_libraries(bench)


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
    """Time a product twice, as if it were two, and each library that is here, all in turn.

    Args:
        bench: the benchmark whose matrices are multiplied; it keeps the runs.
        label: what the product is called.
        launch: the product.
        repeats: runs of each.
    """

    def multiply() -> object:
        return launch(*bench.buffers, bench.size, bench.size, bench.size)

    ways = {label: multiply, **find_opponents(bench), f"{label}, once more": multiply}
    devices = {name: cpu_name() if name.startswith("NumPy") else bench.device for name in ways}
    runs = bench.time_in_turn(ways, devices, repeats, rest=timing.SETTLE)
    bench.runs |= runs
    for name, run in runs.items():
        records.add_run(run, "GFLOP/s", 2e-9 * bench.size**3, f"{bench.size:,} x {bench.size:,}", name)
    return runs


def describe_race(bench: MatmulBenchmark, label: str, peak: float) -> Table:
    """Print what a race allows to claim, and return its table.

    A run that is faster than the data sheet allows is refused; one faster than the measured peak has no share of it.
    Beside other programs, no share is claimed, and nothing of NumPy: its threads wait for each other. Two of them
    took 50 and 52 times as long as a kernel then, where `timing.find_slowdown` said 36 and 46, and 1.1 times on a quiet
    machine. The rule held for CLBlast in the same races.

    Args:
        bench: holds the runs of `race`.
        label: what the product was called there.
        peak: of the device, in GFLOP/s, by the fastest run; NaN if it was refused.
    """
    names = [name for name in bench.runs if name in ("NumPy", "CLBlast", "cuBLAS")]
    twin, table = f"{label}, once more", add_recorded(bench.tabulate("", [label, *names]), label, peak)
    speed = 2e-9 * bench.size**3 / min(bench.runs[label].seconds)
    excess = published.describe_excess(bench.device, speed, "GFLOP/s")
    if excess:
        print(wrap(f"refused: {format_number(speed)} GFLOP/s. {excess}"))
    else:
        if speed > peak:
            faster = (
                f"({format_number(speed)} GFLOP/s) was faster than the measured peak ({format_number(peak)} GFLOP/s)"
            )
            text = f"Measure again: the product's fastest run {faster}. That peak is too low: likely, another program "
            print(wrap(f"{text}slowed it down."))
        is_busy = bench.others > timing.BUSY
        rivals = [name for name in names if not (is_busy and name == "NumPy")]
        best = max(rivals, key=bench.gflops, default="")
        print(describe_gaps(bench, (label, twin), *([(best, label)] if best else [])))
        if is_busy:
            print("NumPy: no claim. Beside other programs, it has lost more than this factor (measured).")
        else:
            gain = compute_gain(bench, (label, twin), (best, label))
            note_shares(bench, label, best, math.nan if speed > peak else 100 * speed / peak, 100 * float(gain))
    return table


def add_recorded(table: Table, label: str, peak: float) -> Table:
    """Return the table of a race with a row for the peak, and beside it the GPU whose record holds most of a race.

    Args:
        table: of the race.
        label: what the product was called there.
        peak: of the device here, in GFLOP/s; NaN if it was refused.
    """
    shares = {
        "percent of cuBLAS": "cuBLAS",
        "percent of the measured peak": "the measured peak, fastest run beside fastest run",
    }
    names = list(dict.fromkeys([*(str(row[0]) for row in table.rows), "CLBlast", "cuBLAS"]))
    column = records.find_column("02b", (*names, "peak", *shares))
    here = {row[0]: row for row in table.rows}
    rows = [here.get(name, (name, "not here", "")) for name in names]
    rows.append(("measured peak", "refused" if math.isnan(peak) else f"{format_number(peak)} GFLOP/s", ""))
    rows = [(*row, cell) for row, cell in zip(rows, column.cells, strict=False)]  # the shares have no row
    below = [*table.below, *column.below]
    words = [f"{column.get(name):.0f} % of {meaning}" for name, meaning in shares.items() if name in column.notes]
    if words:
        below.append(f"{label}, recorded: {', '.join(words)}.")
    return Table(rows, (*table.headers, "recorded"), below)


def compute_gain(bench: MatmulBenchmark, twins: tuple[str, str], pair: tuple[str, str]) -> float | str:
    """Return how many times as fast the second of a pair is; NaN if nothing may be claimed.

    Beside other programs, it is the bound that they leave, in words.

    Args:
        bench: holds the runs.
        twins: the two names of the product that was measured twice.
        pair: the names of what is compared with, and of what may be faster.
    """
    before, after = (bench.runs[name] for name in pair)
    one, other = (bench.runs[name] for name in twins)
    if not timing.is_claimable(before, after, (one, other), bench.others):
        return math.nan
    if bench.others > timing.BUSY:
        return timing.describe_gain(before, after, (one, other), bench.others)
    return before.median / after.median


def describe_gaps(bench: MatmulBenchmark, twins: tuple[str, str], *pairs: tuple[str, str]) -> str:
    """Return what may be claimed of pairs of products, as `compute_gain` takes them."""
    one, other = (bench.runs[name] for name in twins)
    luck = timing.duration(abs(one.median - other.median))
    lines = [wrap(f"A/A: the same kernel, measured twice in turn, differs from itself by {luck}.")]
    lines += [bench.describe_slowdown()] if bench.describe_slowdown() else []
    for before, after in pairs:
        lines.append(timing.compare(bench.runs[before], bench.runs[after], (one, other), bench.others))
    return "\n".join(lines)


def compare_prediction(prediction: object, measured: float | str, unit: str) -> None:
    """Print a prediction beside what was measured; NaN stands for no claim."""
    is_unclear = isinstance(measured, float) and math.isnan(measured)
    checks.compare_prediction(prediction, "no claim" if is_unclear else measured, unit)


def note_shares(bench: MatmulBenchmark, label: str, best: str, peak_share: float, share: float) -> None:
    """Print a product's share of the measured peak and of the best library, and note both for a record.

    Args:
        bench: holds the runs.
        label: the product.
        best: the best library.
        peak_share: its fastest run's speed in percent of the peak, which is a fastest run, too; NaN if unknown.
        share: its median speed in percent of the best library's; NaN if nothing can be claimed.
    """
    shares = {
        "percent of the measured peak": (peak_share, "of the measured peak, fastest run beside fastest run"),
        f"percent of {best}": (share, f"of {best}, by medians"),
    }
    words = []
    for name, (percent, meaning) in shares.items():
        if not math.isnan(percent):
            records.add_note(records.Note(name, percent, "%", bench.device, f"{bench.size:,} x {bench.size:,}"))
            words.append(f"{percent:.0f} % {meaning}")
    if words:
        print(wrap(f"{label}: {'; '.join(words)}."))
