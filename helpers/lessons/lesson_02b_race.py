"""Lesson 02b's measurements: is a product right, what does luck alone do, how fast are the libraries that are here."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name, usable_cpus
from helpers.errors import WorkshopError, wrap
from helpers.judge import checks
from helpers.lessons.lesson_02b import Candidate
from helpers.measure import published, records, timing
from helpers.measure.plots import BLUE, GREY, RED, draw_speeds, figure, show
from helpers.measure.tables import Table, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        axes.legend(fontsize=9, loc="lower right", ncols=2)
    show(drawn, f"{title}: {speeds.min():.3g} to {speeds.max():.3g} GFLOP/s, the middle one {middle:.3g}.")


def describe_search(seconds: Mapping[Any, float], winner: Any, again: float) -> str:  # noqa: ANN401
    """Return who won a search and what the winner's second measurement says, in words.

    Args:
        seconds: by candidate, in the search.
        winner: the fastest candidate.
        again: its seconds, measured again.
    """
    change = 100 * (again / seconds[winner] - 1)
    return wrap(
        f"The winner of {len(seconds)}: {winner}.\n"
        f"Measured again, it is {abs(change):.1f} % {'slower' if change > 0 else 'faster'} than in the search."
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
    timed = timing.measure_interleaved({**ways, "twin": ways[first]}, bench.device, repeats, on=bench.queue)
    twins = timed[first], timed.pop("twin")
    luck = abs(twins[0].median - twins[1].median)
    ranked = sorted(timed, key=lambda each: timed[each].median)
    best = timed[ranked[0]]
    tied = [each for each in ranked[1:] if not timing.is_claimable(best, timed[each], twins)]
    speed = format_number(2e-9 * size**3 / best.median)
    print(wrap(f"In turn, {repeats} times each, the fastest of {len(ranked)}: {ranked[0]}, {speed} GFLOP/s."))
    print(wrap(f"The winner of the search, measured twice in turn, differs from itself by {timing.duration(luck)}."))
    print(wrap(f"No claim between it and {len(tied)} of the others{': ' if tied else ''}{'; '.join(map(str, tied))}."))
    return [ranked[0], *tied]


def judge_fit(tied: Sequence[Candidate]) -> str:
    """Return whether the sums of blocks between which there is no claim fit the registers: "yes", "no", or no claim."""
    name, registers, lanes = find_registers()
    if not name:
        return "not known: the lesson does not know this processor's registers"
    fit = {each.count_registers(lanes) <= registers for each in tied}
    if len(fit) > 1:
        return "no claim between blocks that fit and blocks that don't"
    return "yes" if fit == {True} else "no"


def draw_candidates(bench: MatmulBenchmark, searched: Mapping[Any, Measurement]) -> None:
    """Draw the speed of each candidate over the registers that its sums fill, with all its runs.

    Args:
        bench: the benchmark that they multiplied.
        searched: by candidate, the runs of the search.
    """
    work, size = 2e-9 * bench.size**3, f"{bench.size:,} x {bench.size:,}"
    if not all(isinstance(each, Candidate) for each in searched):  # with the kernel for a GPU
        speeds = {str(each): _find_speeds(run, work) for each, run in searched.items()}
        show(*draw_speeds(speeds, f"{size} on {bench.device}", "GFLOP/s"))
        return
    title = f"Which block is fast, {size} on {bench.device}"
    extension, registers, lanes = find_registers()
    widths = sorted({each.width for each in searched})
    with figure(7.5, 4.0, title) as (drawn, axes):
        for number, width in enumerate(widths):
            mine = [each for each in searched if each.width == width]
            _draw_runs(
                axes,
                [(each.count_registers(lanes) * 1.03 ** (2 * number - 1), searched[each], work) for each in mine],
                {"marker": "o^"[number % 2], "ms": 6, "color": (BLUE, RED)[number % 2], "label": f"float{width}"},
            )
        if registers:
            label = f"{extension}: a core has {registers}"
            axes.axvline(registers, color=GREY, ls="--", lw=1, label=label)
        ticks = sorted({each.count_registers(lanes) for each in searched} | {registers or 1})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set(xlabel="vector registers that the sums fill", ylabel="GFLOP/s, slowest to fastest run", ylim=(0, None))
        drawn.legend(fontsize=9, loc="outside lower center", ncols=3)
    best = min(searched, key=lambda each: searched[each].median)
    show(drawn, f"{title}. Fastest in the search: {best}, {work / searched[best].median:.3g} GFLOP/s.")


def _find_speeds(run: Measurement, work: float) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of a run's speed, for its work in GFLOP."""
    low, high = run.quartiles
    return work / high, work / run.median, work / low


def _draw_runs(axes: Axes, points: Sequence[tuple[float, Measurement, float]], style: Mapping[str, Any]) -> None:
    """Draw at each place the median speed of a measurement, and a bar from its slowest run to its fastest."""
    places = [place for place, _, _ in points]
    speeds = [work / run.median for _, run, work in points]
    below = [work / run.median - work / max(run.seconds) for _, run, work in points]
    above = [work / min(run.seconds) - work / run.median for _, run, work in points]
    axes.errorbar(places, speeds, yerr=[below, above], ls="none", elinewidth=1, capsize=2, **style)


# ----------------------------------------------------------------------------------------------------------- the race


def count_threads(bench: MatmulBenchmark) -> int:
    """Return NumPy's threads in the race: as many as OpenCL has cores, or as there are where OpenCL uses a GPU."""
    cores = max(1, int(usable_cpus()))
    return min(cores, bench.queue.device.max_compute_units) if opencl.kind(bench.queue.device) == "cpu" else cores


def _name_owner(bench: MatmulBenchmark) -> str:
    return "OpenCL" if opencl.kind(bench.queue.device) == "cpu" else "the processor"


def find_opponents(bench: MatmulBenchmark) -> dict[str, Callable[[], object]]:
    """Return a product for each library that is here: NumPy, CLBlast, on an NVIDIA GPU cuBLAS."""
    from threadpoolctl import ThreadpoolController

    controller, threads = ThreadpoolController(), count_threads(bench)

    def multiply(threads: int) -> np.ndarray:
        with controller.limit(limits=threads, user_api="blas"):
            return bench.a @ bench.b

    opponents: dict[str, Callable[[], object]] = {"NumPy": lambda: multiply(threads)}
    if threads > 1:  # it shows whether the threads wait for cores that other programs use
        opponents[ALONE] = lambda: multiply(1)
    return opponents | find_libraries(bench)


ALONE = "NumPy, one thread"


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
    is_gpu = opencl.kind(bench.queue.device) == "gpu"
    runs = timing.measure_interleaved(ways, devices, repeats, on=bench.queue, rest=timing.SETTLE, wake=is_gpu)
    bench.runs |= runs
    for name, run in runs.items():
        records.add_run(run, "GFLOP/s", 2e-9 * bench.size**3, f"{bench.size:,} x {bench.size:,}", name)
    return runs


def describe_race(bench: MatmulBenchmark, label: str, peak: float) -> Table:
    """Print what a race allows to claim, and return its table; a run faster than the peak is refused.

    Args:
        bench: holds the runs of `race`.
        label: what the product was called there.
        peak: of the device, in GFLOP/s, by the fastest run; NaN if it was refused.
    """
    twin, names = f"{label}, once more", [name for name in bench.runs if name in ("NumPy", ALONE, "CLBlast", "cuBLAS")]
    best = max(names, key=bench.gflops)
    speed = 2e-9 * bench.size**3 / min(bench.runs[label].seconds)
    print(f"Threads of NumPy: {count_threads(bench)}, one for each core that {_name_owner(bench)} has.")
    excess = published.describe_excess(bench.device, speed, "GFLOP/s")
    if excess or speed > peak:
        print(wrap(f"refused: {format_number(speed)} GFLOP/s. {excess or describe_impossible(speed, peak)}"))
    elif best == ALONE:
        print(wrap("no claim: NumPy is faster with one thread than with all. Likely, other programs use the cores."))
    else:
        print(describe_gaps(bench, (label, twin), (best, label)))
        share = 100 * compute_gain(bench, (label, twin), (best, label))
        note_shares(bench, label, best, 100 * speed / peak, share)
    print(describe_recorded())
    return bench.tabulate("", [label, twin, *names])


LARGE = "4,096 x 4,096"  # the largest matrices of the recording script


def describe_recorded() -> str:
    """Return how fast programs/02b-gpu.cl and the libraries were on the GPU whose record holds both; "" without one.

    The kernel's speed is that of its second measurement, in turn with the libraries.
    """
    for record in records.read_all():
        notes = {label: note for (lesson, label), note in record.notes.items() if lesson == "02b"}
        share = notes.get(f"the fastest shape beside cuBLAS, {LARGE}")
        libraries = [notes[label].value for name in ("cuBLAS", "CLBlast") if (label := f"{name}, {LARGE}") in notes]
        if share is None or len(libraries) < 2:
            continue
        cublas, clblast = (value / 1e3 for value in libraries)  # TFLOP/s
        day = datetime.date.fromisoformat(share.date)
        return wrap(
            f"Recorded on {record.machine.device}, {day.day} {day:%B %Y}, {LARGE}, in turn: 02b-gpu.cl "
            f"{share.value * cublas:.1f} TFLOP/s, cuBLAS {cublas:.1f} TFLOP/s, CLBlast {clblast:.1f} TFLOP/s."
        )
    return ""


def compute_gain(bench: MatmulBenchmark, twins: tuple[str, str], pair: tuple[str, str]) -> float:
    """Return how many times as fast the second of a pair is; NaN if nothing may be claimed.

    Args:
        bench: holds the runs.
        twins: the two names of the product that was measured twice.
        pair: the names of what is compared with, and of what may be faster.
    """
    before, after = (bench.runs[name] for name in pair)
    one, other = (bench.runs[name] for name in twins)
    return before.median / after.median if timing.is_claimable(before, after, (one, other)) else math.nan


def describe_gaps(bench: MatmulBenchmark, twins: tuple[str, str], *pairs: tuple[str, str]) -> str:
    """Return what may be claimed of pairs of products, as `compute_gain` takes them."""
    one, other = (bench.runs[name] for name in twins)
    luck = timing.duration(abs(one.median - other.median))
    lines = [wrap(f"A/A: the same kernel, measured twice in turn, differs from itself by {luck}.")]
    lines += [timing.compare(bench.runs[before], bench.runs[after], (one, other)) for before, after in pairs]
    return "\n".join(lines)


def compare_prediction(prediction: object, measured: float, unit: str) -> None:
    """Print a prediction beside what was measured, or that there is nothing to compare it with, for NaN."""
    if math.isnan(measured):
        print("Nothing can be claimed from these runs, so there is no number to compare your prediction with.")
    else:
        checks.compare_prediction(prediction, measured, unit)


def describe_impossible(speed: float, peak: float) -> str:
    """Return in words that a product cannot be faster than the peak, both in GFLOP/s."""
    return (
        f"The measured peak is {format_number(peak)} GFLOP/s. A product cannot be faster, so one of the two was "
        f"measured wrongly ({100 * speed / peak:.0f} %): run this cell again."
    )


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
