"""Lesson 01b, Find what limits a kernel: the checks of its exercises, and the rule of the last one."""

from __future__ import annotations

import contextlib
import math
import sys
import time
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import numpy as np

from helpers.devices import opencl
from helpers.judge import checks, kernel_checks
from helpers.judge.checks import NotDone, NotYet
from helpers.measure import timing

accepted: dict[str, str] = {}  # the learner's kernels that a check called right, by name
functions: dict[str, Callable] = {}  # likewise, the learner's functions

ROOF, ELSE, QUESTION = "roof", "something else", "question"
LEAST, MOST = 0.75, 1.1  # shares of the roof between which the roof is the limit


@checks.print_verdict
def check_clock(clock: Callable[..., Sequence[float]]) -> Iterator[str]:
    """Lesson 01b, exercise 1: the seconds of each run, from the call until the device has finished."""
    repeats = 4
    queue = SlowQueue(np.random.default_rng().uniform(0.04, 0.12, 3 * repeats).tolist())
    with _replace_clocks(clock, queue):
        seconds = checks.answer(clock, queue.launch, queue, repeats, who="your clock")
    if not queue.runs:
        raise NotDone("no run was timed.")
    if not isinstance(seconds, list | tuple | np.ndarray) or len(seconds) != repeats:
        hint = " Is there a `return` at the end?" if seconds is None else ""
        raise NotYet(f"expected a list of {repeats} times, came {seconds!r}.{hint}")
    if not all(isinstance(duration, int | float | np.number) for duration in seconds):
        raise NotYet(f"expected {repeats} numbers, the seconds of each run; came {checks.short(seconds)}.")
    if not queue.readings:
        raise NotYet("your clock never asked for the time: `time.perf_counter()` returns it, in seconds.")
    for number, (actual, (start, end)) in enumerate(zip(seconds, queue.runs[-repeats:], strict=True), 1):
        if not math.isclose(actual, end - start, rel_tol=0.01):
            spent = f"this queue was busy with it for {timing.duration(end - start)}, came {timing.duration(actual)}"
            raise NotYet(f"run {number}: {spent}. When does your clock start, and stop?")
    functions["clock"] = clock
    yield f"{repeats} runs of a queue whose times are known"


class SlowQueue:
    """A stand-in for a command queue, for its events and for the computer's clock: here time passes only when told.

    No computer is so busy that this clock differs, and a sleep within the timing shows.

    Args:
        lengths: seconds that the device needs for each run, in turn.
    """

    def __init__(self, lengths: Sequence[float]) -> None:
        self.lengths, self.now, self.readings = lengths, 1_000.0, 0
        self.runs: list[tuple[float, float]] = []  # of each run: when it was called, when it will be done

    def launch(self) -> SlowQueue:
        """Queue a run and return its event; the call itself costs 10 ms."""
        begin = max(self.now, self.runs[-1][1]) if self.runs else self.now
        self.runs.append((self.now, begin + self.lengths[len(self.runs) % len(self.lengths)]))
        self.now += 0.01
        return self

    def finish(self) -> None:
        """Wait until all that was queued is done."""
        if self.runs:
            self.now = max(self.now, self.runs[-1][1])

    wait = finish  # of the event that `launch` returns

    def read(self) -> float:
        """Return the time in seconds; a reading costs a microsecond."""
        self.readings += 1
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@contextlib.contextmanager
def _replace_clocks(function: Callable[..., object], queue: SlowQueue) -> Generator[None]:
    """Give a function, and `timing`, the queue's clock for a while, by whatever name it knows a clock."""
    import pyopencl as cl

    fake = types.ModuleType("time")
    vars(fake).update(vars(time), sleep=queue.sleep)
    for name in ("perf_counter", "monotonic", "time"):
        setattr(fake, name, queue.read)
        setattr(fake, f"{name}_ns", lambda: round(1e9 * queue.read()))
    swaps = {id(value): vars(fake)[name] for name, value in vars(time).items() if vars(fake)[name] is not value}
    swaps |= {id(time): fake, id(cl.wait_for_events): lambda _: queue.finish()}
    places = [getattr(function, "__globals__", {}), vars(timing), sys.modules, vars(cl)]
    before = [(place, name, value) for place in places for name, value in list(place.items()) if id(value) in swaps]
    try:
        for place, name, value in before:
            place[name] = swaps[id(value)]
        yield
    finally:
        for place, name, value in before:
            place[name] = value


@checks.print_verdict
def check_two(source: str) -> Iterator[str]:
    """Lesson 01b, exercise 2: a kernel whose work-items compute two chains side by side; it is kept if it is right."""
    yield checks.judge_in_subprocess(judge_two, source=source)
    accepted["two"] = source


def judge_two(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    kernel = kernel_checks.build(source, "two")
    kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "int"))
    for items, group in ((4, 4), (6, 2)):
        _judge_trace(kernel, items, group)
    launches = [(1, 1, 1), (4, 2, 4), (64, 7, 64), (192, 33, 16), (1_000, 2, 8)]
    for launch in launches:
        _judge_values(kernel, *launch)
    return f"{len(launches)} launches, 4 accesses of each work-item; on {opencl.name(kernel.device)}"


def _judge_trace(kernel: opencl.Kernel, items: int, group: int) -> None:
    """Refuse what a small launch shows: stray accesses, races, values in memory, one chain after the other."""
    launch = kernel_checks.describe_launch({"steps": 3}, [items], [group])
    arrays = [np.full(2 * items, value, np.float32) for value in (0.1, np.nan)]
    traced = kernel_checks.record(kernel, launch, items, group, [*arrays, np.int32(3)])
    kernel_checks.expect_writes(traced, launch, kernel)
    kernel_checks.refuse_faults(traced, launch)
    if any(touch.array not in traced.lengths for touch in traced.touches):
        raise NotYet(f"{launch}: the values lie in local memory. Variables such as `float value` need none.")
    busiest = int(traced.global_accesses.argmax())
    if traced.global_accesses[busiest] > 4:
        found = f"work-item {busiest} asks global memory {traced.global_accesses[busiest]} times"
        raise NotYet(f"{launch}: {found}. Two reads before the loop and two writes after it are enough.")
    for item in range(items):
        own = [touch for touch in traced.touches if touch.item == item]
        written = [number for number, touch in enumerate(own) if touch.writes]
        if written and any(touch.reads for touch in own[written[0] :]):
            raise NotYet(f"{launch}: work-item {item} begins its second chain when the first one is done.")


def _judge_values(kernel: opencl.Kernel, items: int, steps: int, group: int) -> None:
    """Judge all elements that a launch writes, twice on an output that held different things before."""
    x = np.random.default_rng().uniform(-0.5, 0.2, 2 * items).astype(np.float32)
    expected = compute_chain(x, steps)
    name = kernel.parameters[0].name
    runs = [
        kernel_checks.run_guarded(kernel, {name: x}, {"steps": steps}, 2 * items, items, group, fill).copy()
        for fill in kernel_checks.FILLS
    ]
    unwritten = kernel_checks.find_unwritten(*runs)
    launch = kernel_checks.describe_launch({"steps": steps}, [items], [group])
    for bits in runs:
        actual = bits.view(np.float32)
        for i in np.flatnonzero(~np.isclose(actual, expected, rtol=1e-5, atol=1e-6))[:1]:
            came = "nothing: it was never written" if unwritten[i] else f"{actual[i]:.6g}"
            where = f"{launch}, element {i} ({name}[{i}] = {x[i]:.6g})"
            raise NotYet(f"{where}: expected {expected[i]:.6g}, came {came}.")


def compute_chain(x: np.ndarray, steps: int) -> np.ndarray:
    """Return what `steps` steps of `value * value + x` make of 0, in float64, of x's shape."""
    values = np.zeros(x.shape)
    for _ in range(steps):
        values = values * values + x
    return values


@checks.print_verdict
def check_roof(
    intensities: Mapping[str, object], roof: Callable[..., float], limit: Callable[..., str], steps: int
) -> Iterator[str]:
    """Lesson 01b, exercise 3: operations for each byte of three kernels, the roof above each, and the verdict.

    Args:
        intensities: the learner's, by the names of `compute_intensities`.
        roof: the learner's; takes an intensity, GB/s and GFLOP/s.
        limit: the learner's; takes a speed and the roof above it.
        steps: of the long chain.
    """
    wanted = compute_intensities(steps)
    if isinstance(intensities, Mapping) and all(intensities.get(name) is ... for name in wanted):
        raise NotDone("none of the three intensities is there yet.")
    for name, expected in wanted.items():
        actual = intensities.get(name) if isinstance(intensities, Mapping) else None
        right = isinstance(actual, int | float | np.number) and math.isclose(actual, expected, rel_tol=1e-3)
        if not right:
            hint = "Count the operations of one element, and the bytes that are read and written for it"
            turned = isinstance(actual, int | float | np.number) and math.isclose(actual * expected, 1, rel_tol=1e-3)
            raise NotYet(
                f"intensity of {name!r}: came {checks.short(actual)}. {'It is upside down' if turned else hint}."
            )

    def draw_roofs(rng: np.random.Generator) -> list[tuple]:
        return [(0.25, 40.0, 100.0), (8.0, 40.0, 100.0), (2.5, 40.0, 100.0), *rng.uniform(0.1, 99, (8, 3)).tolist()]

    def draw_limits(rng: np.random.Generator) -> list[tuple]:
        shares = [*rng.uniform(0.1, 0.74, 4), 0.746, 0.7501, *rng.uniform(0.76, 1.09, 4), *rng.uniform(1.11, 2, 3)]
        return [(6.0, 8.0), (8.75, 8.0), (9.0, 8.0), *((float(share * 400), 400.0) for share in shares)]

    yield "three intensities"
    yield checks.judge_function(roof, compute_roof, draw_roofs)
    yield checks.judge_function(limit, decide_limit, draw_limits)
    functions.update(roof=roof, limit=limit)


def compute_intensities(steps: int) -> dict[str, float]:
    """Return the operations for each byte of the kernels `add` and `chain`, this one with 16 and with `steps` steps."""
    return {"add": 1 / 12, "chain, 16 steps": 2 * 16 / 8, f"chain, {steps:,} steps": 2 * steps / 8}


def compute_roof(intensity: float, bandwidth: float, peak: float) -> float:
    """Return the GFLOP/s that memory and arithmetic allow.

    Args:
        intensity: operations for each byte.
        bandwidth: GB/s.
        peak: GFLOP/s.
    """
    return min(intensity * bandwidth, peak)


def decide_limit(speed: float, roof: float) -> str:
    """Return what the rule of exercise 3 says of a speed below its roof, both in one unit."""
    if speed > MOST * roof:
        return QUESTION
    return ROOF if speed >= LEAST * roof else ELSE
