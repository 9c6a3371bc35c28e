"""Lesson 01b, Find what limits a kernel: the checks of its exercises, and the rule of the last one."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
import timeit
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import KernelError
from helpers.judge import checks, kernel_checks, opencl_recorder
from helpers.judge.checks import NotDone, NotYet
from helpers.measure import timing
from helpers.measure.tables import Table

LAUNCH, ITEMS, EACH, MEMORY, ARITHMETIC = "launch", "too few work-items", "too little in each", "memory", "arithmetic"
UNKNOWN = "cannot tell"
# For each limit whether twice the work-items, twice the elements in each, and twice the operations are almost free;
# None where both may be.
PATTERNS: dict[str, tuple[bool | None, bool | None, bool | None]] = {
    LAUNCH: (True, True, True),
    ITEMS: (True, None, False),
    EACH: (None, True, False),
    MEMORY: (False, False, True),
    ARITHMETIC: (False, False, False),
}
DOUBLED = (
    "twice the number of work-items",
    "twice the work in each",
    "twice the number of operations",
)  # in the order of PATTERNS
FEWER_LAUNCHES, MORE_ITEMS, MORE_EACH = "fewer launches", "more work-items", "more in each"
FEWER_BYTES, FEWER_OPERATIONS, EXPERIMENT = "fewer bytes", "fewer operations", "another experiment"
REMEDIES = {
    LAUNCH: FEWER_LAUNCHES,
    ITEMS: MORE_ITEMS,
    EACH: MORE_EACH,
    MEMORY: FEWER_BYTES,
    ARITHMETIC: FEWER_OPERATIONS,
    UNKNOWN: EXPERIMENT,
}
CHEAP = 1.5  # twice the work that takes less than this many times as long is almost free
LONGEST = 2.5  # twice the work that takes more than this many times as long was likely interrupted by other programs
NEAR, ABOVE = 0.5, 1.1  # between these shares of its roof, the roof may be what limits a kernel


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
        raise NotYet("your clock measures no time that passes: `time.perf_counter()` returns it, in seconds.")
    hint = "`queue.flush()` hands the commands to the device and waits for none." if queue.flushes else ""
    for number, (actual, (start, end)) in enumerate(zip(seconds, queue.runs[-repeats:], strict=True), 1):
        if not math.isclose(actual, end - start, rel_tol=0.01):
            spent = f"this queue was busy with it for {timing.duration(end - start)}, came {timing.duration(actual)}"
            if math.isclose(actual, 1_000 * (end - start), rel_tol=0.01):
                hint = "These are milliseconds. Return seconds, as `time.perf_counter()` counts them."
            raise NotYet(f"run {number}: {spent}. {hint or 'When does your clock start, and stop?'}")
    yield checks.keep_right("clock", clock, f"{repeats} runs of a queue whose times are known")


class SlowQueue:
    """A stand-in for a command queue, for its events and for the computer's clock: here time passes only when told.

    No computer is so busy that this clock differs, and a sleep within the timing shows.

    Args:
        lengths: seconds that the device needs for each run, in turn.
    """

    def __init__(self, lengths: Sequence[float]) -> None:
        self.lengths, self.now, self.readings, self.flushes = lengths, 1_000.0, 0, 0
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

    def flush(self) -> None:
        """Hand the commands to the device; it had them already."""
        self.flushes += 1

    @property
    def profile(self) -> NoReturn:
        """Refuse the event's times: this exercise asks for the host's clock.

        Raises:
            NotYet: always.
        """
        raise NotYet(
            "`event.profile` holds the device's own times, and only for a queue with profiling. They leave out what a "
            "launch costs. Read `time.perf_counter()` before the call and after the wait."
        )

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
    places.append(vars(timeit))
    before = [(place, name, value) for place in places for name, value in list(place.items()) if id(value) in swaps]
    timers: list[types.FunctionType] = [timeit.Timer.__init__, timeit.timeit, timeit.repeat]  # keep a clock as default
    defaults = [timer.__defaults__ for timer in timers]
    try:
        for place, name, value in before:
            place[name] = swaps[id(value)]
        for timer, values in zip(timers, defaults, strict=True):
            timer.__defaults__ = tuple(swaps.get(id(value), value) for value in values or ())
        yield
    finally:
        for timer, values in zip(timers, defaults, strict=True):
            timer.__defaults__ = values
        for place, name, value in before:
            place[name] = value


@checks.print_verdict
def check_two(source: str) -> Iterator[str]:
    """Lesson 01b, exercise 2: a kernel whose work-items compute two chains side by side; it is kept if it is right."""
    yield checks.keep_right("two", source, checks.judge_in_subprocess(judge_two, source=source))


def judge_two(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    kernel = kernel_checks.build(source, "two")
    kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "int"))
    for items, group in ((4, 4), (6, 2)):
        _judge_trace(kernel, items, group)
    _judge_loops(kernel)
    launches = [(1, 1, 1), (4, 2, 4), (64, 7, 64), (192, 33, 16), (1_000, 2, 8)]
    for launch in launches:
        _judge_values(kernel, *launch)
    _judge_independence(kernel)
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
        strange = sorted({touch.index for touch in own} - {item, item + items})
        if strange:
            computes = f"It computes elements {item} and {item + items}: i and i + `items`."
            raise NotYet(f"{launch}: work-item {item} touches element {strange[0]}. {computes}")
        written = [number for number, touch in enumerate(own) if touch.writes]
        if written and any(touch.reads for touch in own[written[0] :]):
            raise NotYet(f"{launch}: work-item {item} begins its second chain when the first one is done.")


def _judge_loops(kernel: opencl.Kernel) -> None:
    """Refuse a kernel of which one chain waits while the other takes steps.

    Its loops make more than one round for each step, or a loop inside a round grows with the steps: a whole chain runs
    there. A copy of the kernel reads one more element of its input at each round of each loop, behind those that it
    computes, and the recorder notes these reads. Nothing is said of a kernel of which no such copy can be recorded.
    """
    if re.search(r"\bgoto\b", opencl.without_comments(kernel.source)):
        raise NotYet("the rounds of a `goto` aren't counted here. Write one `for` or `while` loop.")
    short, long = 8, 24
    counted = {steps: _count_rounds(kernel, steps) for steps in (short, long)}
    growing = [loop for loop, places in counted[long].items() if len(places) > len(counted[short].get(loop, ()))]
    rounds = 0
    for loop in growing:
        outer = next((other for other in growing if _is_inside(counted[long][loop], counted[long][other])), None)
        if outer is None:
            rounds += len(counted[long][loop]) - len(counted[short].get(loop, ()))
            continue
        most = {n: _count_most_within(of.get(loop, []), of.get(outer, [])) for n, of in counted.items()}
        if most[long] > most[short]:
            found = f"with {long} steps, a loop inside one round of another makes {most[long]:,} rounds"
            raise NotYet(f"{found}: there a chain runs alone. Let both chains take a step in each round.")
    if rounds > long - short:
        found = f"for {long - short} more steps, the loops of your kernel make {rounds} more rounds"
        raise NotYet(f"{found}: one chain waits while the other takes steps. Let both take a step in each round.")


def _is_inside(places: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether a loop runs within another: their rounds mix, and the outer one has fewer, or began first."""
    mix = places[0] < others[-1] and others[0] < places[-1]
    return mix and (len(others), others[0]) < (len(places), places[0])


def _count_most_within(places: Sequence[int], outer: Sequence[int]) -> int:
    """Return how many rounds a loop makes at most within one round of another; both by where the rounds began."""
    within = np.searchsorted(outer, places)
    return int(np.bincount(within).max()) if len(within) else 0


def _count_rounds(kernel: opencl.Kernel, steps: int) -> dict[int, list[int]]:
    """Return for each loop, by its place in the source, after how many accesses each of its rounds began."""
    name = kernel.parameters[0].name
    marked, loops = _mark_rounds(opencl.without_comments(kernel.source), name)
    arrays = [np.full(2 + loops, value, np.float32) for value in (0.1, 0.0)]
    try:
        copy = opencl.Kernel(marked, kernel.name, kernel.device, kernel.options)
        traced = opencl_recorder.record(copy, [1], [1], [*arrays, np.int32(steps)])
    except (KernelError, opencl_recorder.NotJudged, opencl_recorder.NotTraceable):
        return {}
    rounds: dict[int, list[int]] = {}
    for touch in traced.touches:
        if touch.array == name and touch.index >= 2:
            rounds.setdefault(touch.index - 2, []).append(touch.place)
    return rounds


def _mark_rounds(source: str, name: str) -> tuple[str, int]:
    """Return a source whose n-th loop reads element n + 2 of the array `name` in its condition, and how many it has."""
    found = list(re.finditer(r"\b(for|while)\s*\(", source))
    for number, loop in reversed(list(enumerate(found))):
        end = opencl.closing_bracket(source, loop.end() - 1)
        parts = source[loop.end() : end].split(";")
        condition = parts[1 if loop[1] == "for" else 0] if len(parts) in (1, 3) else ""
        marked = f"({name}[{number + 2}] < 2) && ({condition.strip() or 1})"
        parts[1 if loop[1] == "for" and len(parts) == 3 else 0] = marked
        source = f"{source[: loop.end()]}{';'.join(parts)}{source[end:]}"
    return source, len(found)


def _judge_independence(kernel: opencl.Kernel) -> None:
    """Refuse a kernel of which one chain reads the other, even times 0: then it waits for it. NaN shows that."""
    items, steps, name = 4, 5, kernel.parameters[0].name
    for chain in (0, 1):
        x = np.full((2, items), 0.1, np.float32)
        x[chain] = np.nan
        bits = kernel_checks.run_guarded(kernel, {name: x.reshape(-1)}, {"steps": steps}, 2 * items, items, items, 0)
        if np.isnan(bits.view(np.float32).reshape(2, items)[1 - chain]).any():
            found = "if one chain becomes NaN (not a number), the other does, too"
            raise NotYet(f"{found}: it reads that chain's value, and waits for it. Keep the chains apart.")


def _judge_values(kernel: opencl.Kernel, items: int, steps: int, group: int) -> None:
    """Judge all elements that a launch writes, twice on an output that held different things before."""
    x = kernel_checks.make_generator().uniform(-0.5, 0.2, 2 * items).astype(np.float32)
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


# Experiments on six kernels of this lesson on an AMD EPYC with Intel's driver, two cores: what `decide_limit` takes.
MEASURED = {
    "A": (2.1, 2.0, 1.0, 1.00),
    "B": (1.0, 1.0, 2.0, 0.12),
    "C": (0.94, 1.0, 0.95, 0.029),
    "D": (2.0, 2.0, 2.0, 0.99),
    "E": (2.0, 1.0, 2.0, 0.25),
    "F": (2.0, 1.8, 1.0, 0.37),
}


@checks.print_verdict
def check_limits(found: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Lesson 01b, exercise 3: the limit of each kernel of MEASURED, and what to change."""
    yield checks.judge_diagnosis(found, MEASURED, ("limit", "change"), "kernels", _judge_limit)


def tabulate_measured() -> Table:
    """Return the experiments of MEASURED."""
    rows = [
        (name, *(f"{ratio:g}" for ratio in ratios), f"{100 * share:.0f} %")
        for name, (*ratios, share) in MEASURED.items()
    ]
    headers = "", "work-items x 2", "in each x 2", "operations x 2", "of its roof"
    return Table(rows, headers, ("Measured on an AMD EPYC with Intel's driver, 2 cores.",))


def _judge_limit(letter: str, measured: tuple[float, float, float, float], limit: object, change: object) -> None:
    """Refuse a limit that an experiment contradicts, and a change that belongs to another limit."""
    named, changed = (" ".join(str(part).strip().casefold().split()) for part in (limit, change))
    for name, known in ((named, tuple(REMEDIES)), (changed, tuple(REMEDIES.values()))):
        if name not in known:
            raise NotYet(f"kernel {letter}: came {checks.short(name)}; expected one of {', '.join(known)}.")
    for doubled, ratio, expected in zip(DOUBLED, measured[:3], PATTERNS.get(named, (None,) * 3), strict=True):
        if expected not in (None, ratio < CHEAP):
            would = "would be almost free" if expected else "would take longer"
            found = f"in the table, it took {'just' if ratio == 1 else f'{ratio:g} times'} as long"
            raise NotYet(f"kernel {letter}: if {named!r} were its limit, {doubled} {would}; {found}.")
    if named != (right := decide_limit(*measured)):
        doubt = f"{named!r} fits its numbers, but so does {right!r}, which is above it in the table."
        if right == UNKNOWN:
            doubt = f"{named!r} fits three of its numbers, but it reaches only {100 * measured[3]:.0f} % of its roof."
        elif named == UNKNOWN:
            doubt = "a limit of the table fits its numbers."
        raise NotYet(f"kernel {letter}: {doubt}")
    if changed != REMEDIES[named]:
        other = next(limit for limit, remedy in REMEDIES.items() if remedy == changed)
        raise NotYet(f"kernel {letter}: its limit is right, but {changed!r} is the change for {other!r}.")


def decide_limit(items: float, each: float, operations: float, share: float) -> str:
    """Return what limits a kernel, or UNKNOWN.

    Args:
        items: the time with twice the work-items, divided by the kernel's own; likewise with ...
        each: ... twice the elements in each work-item.
        operations: ... twice the operations for the same bytes.
        share: the kernel's speed, divided by its roof; NaN if the roof is unknown.
    """
    ratios = items, each, operations
    free = [ratio < CHEAP for ratio in ratios]
    for limit, pattern in PATTERNS.items():
        if all(expected in (None, actual) for expected, actual in zip(pattern, free, strict=True)):
            return limit if share >= NEAR or limit not in (MEMORY, ARITHMETIC) else UNKNOWN
    return UNKNOWN
