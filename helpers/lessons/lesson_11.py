"""Serve lesson 11, Rank your machine: its processor, its neighbor, its figure, the checks of its exercises."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices.host import usable_cpus
from helpers.judge import checks
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.timing import duration

if TYPE_CHECKING:
    import pyopencl as cl


def read_processor() -> tuple[int, float, int, int]:
    """Return the cores, their clock in GHz, the vector units of a core, and the float32 numbers in a unit.

    These are the system's own figures: many report a clock that a boost exceeds, and a virtual machine may report any.
    On Apple's M4 and M5 psutil reads none (https://github.com/giampaolo/psutil/issues/2841) or a wrong one (issue
    2642); the clock is then taken as 3 GHz.
    """
    import psutil

    has = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__  # no type stub has it

    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, OSError, RuntimeError, SystemError):
        frequency = None
    clock = max(frequency.max, frequency.current) / 1e3 if frequency else 0.0
    clock = clock if 0.5 <= clock <= 10 else 3.0
    cores = min(math.ceil(usable_cpus()), psutil.cpu_count(logical=False) or sys.maxsize)
    units = 4 if platform.machine().lower() in ("arm64", "aarch64") else 2
    if has.get("AVX512F"):
        return cores, clock, units, 16
    return cores, clock, units, 8 if has.get("AVX2") else 4


@contextmanager
def keep_cores_busy(seconds: float = 60.0) -> Generator[None]:
    """Keep every core busy with other processes while the block runs, but not longer than `seconds`."""
    count = math.ceil(usable_cpus())
    code = f"import time; end = time.time() + {seconds}; print(1, flush=True)\nwhile time.time() < end: pass"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in running:
            assert process.stdout is not None  # it is a pipe
            process.stdout.readline()  # it has started
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()  # waits, and closes the pipe


# ---------------------------------------------------------------------------------------------------- its figure


def draw_runs(phases: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw every run as a point in the order of the runs, and each phase's median and middle half.

    Args:
        phases: for each phase the seconds of its runs.
        title: the message of the figure, with the device.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    words, first = [], 1
    looks = ((BLUE, "o"), (ORANGE, "^"))
    with figure(7.5, 3.6) as (drawn, axes):
        for (name, seconds), (color, marker) in zip(phases.items(), looks, strict=False):
            milliseconds = 1e3 * np.asarray(seconds)
            low, middle, high = np.percentile(milliseconds, [25, 50, 75])
            numbers = np.arange(first, first + len(seconds))
            edges = numbers[0] - 0.5, numbers[-1] + 0.5
            axes.plot(numbers, milliseconds, color=color, marker=marker, ls="", ms=4)
            axes.fill_between(edges, low, high, color=color, alpha=0.25, lw=0)
            axes.plot(edges, (middle, middle), color=color, lw=1.6, label=f"{name}: {middle:.3g} ms")
            words.append(f"{name}: median {middle:.3g} ms, middle half {low:.3g} to {high:.3g} ms")
            first += len(seconds)
        axes.set(xlabel="run", ylabel="time of one run (ms)", title=title, yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        drawn.legend(loc="outside lower center", ncols=3, title="medians; bands: middle halves")
    show(drawn, f"{title}. {'; '.join(words)}.")


# -------------------------------------------------------------------------------- exercise 1: a fair clock


class Device:
    """A simulated device with a simulated clock, so that nothing depends on the machine."""

    def __init__(self, compiles: float, runs: Sequence[float]) -> None:
        """Args: the seconds of the first `start`, and of each run, the first included; the last is repeated."""
        self.compiles, self.runs = compiles, list(runs)
        self.now = self.free = 0.0  # the clock, and when the queue will be empty, in seconds
        self.started = self.clock_reads = 0

    def start(self) -> None:
        """Put the work into the queue, and return at once."""
        if not self.started:
            self.now += self.compiles
        self.free = max(self.now, self.free) + self.runs[min(self.started, len(self.runs) - 1)]
        self.now += 1e-6
        self.started += 1

    def wait(self) -> None:
        """Return when the queue is empty."""
        self.now = max(self.now, self.free)

    def clock(self) -> float:
        """Return the time in seconds."""
        self.clock_reads += 1
        return self.now

    def square(self, number: int) -> int:
        """Multiply a number by itself, and return when that is done: one second later."""
        self.now += 1.0
        return number * number

    def __eq__(self, other: object) -> bool:  # it may change while it works
        return isinstance(other, Device)

    __hash__ = None

    def __repr__(self) -> str:
        runs = ", ".join(duration(run) for run in self.runs[:3])
        return f"device that compiles for {duration(self.compiles)}, with runs of {runs} ..."


class RealDevice:
    """A device that computes, with the methods of the simulated one."""

    def __init__(self, start: Callable[[], cl.Event]) -> None:
        """Args: hands one task to the device and returns its event."""
        self._start = start

    def start(self) -> None:
        """Hand one task to the device, and return at once."""
        self._event = self._start()

    def wait(self) -> None:
        """Return when the task is done."""
        self._event.wait()

    def clock(self) -> float:
        """Return the time in seconds."""
        return time.perf_counter()


MOVED = "one late run moves it, so it is no median"  # a mean, or runs that were timed together
EVEN = [0.005, 0.010, 0.012, 0.013, 0.020]  # seconds of runs, the first of which is left out
# What a wrong clock says of the device in the exercise's text, and what is wrong with it.
WRONG_TIMES = {
    1e-6: "the clock stopped before the work was done",
    0.17337: MOVED,
    0.01: "expected the median of the runs after the first",
    0.02: "the first run was not waited for",
    0.25505: "leave out the first run, which also compiles, and no other",  # or the quickest run was left out
}


@checks.print_verdict
def check_fair_time(learner: Callable[[Device, int], object]) -> Iterator[str]:
    """Judge exercise 1 of lesson 11: the median of runs that are waited for, without the first."""

    def right(device: Device, repeats: int) -> float:
        return round(float(np.median(device.runs[1 : 1 + repeats])), 9)

    def cases(rng: np.random.Generator) -> list[tuple[Device, int]]:
        drawn = [(Device(0.5, rng.uniform(0.01, 0.02, 12).tolist()), repeats) for repeats in (3, 8, 9)]
        first_is_quick = (Device(0.0, [0.005, 0.01, 0.012, 0.013]), 3)
        slow = (Device(3.0, [50.0, 40.0, 41.0, 43.0, 42.0]), 4)
        many = (Device(0.1, rng.uniform(1e-4, 2e-4, 40).tolist()), 30)
        return [(Device(*known), 3), *drawn, first_is_quick, slow, many]

    known = 0.9, [0.01, 0.01, 0.5, 0.0101]
    device = Device(*known)
    seconds = checks.answer(learner, device, 3, who="fair_time")
    if isinstance(seconds, float) and device.started != 4:
        raise checks.NotYet(f"fair_time started {device.started} runs; expected 4: the first, left out, and 3 more.")
    if isinstance(seconds, float) and math.isclose(seconds, 0.010099, rel_tol=1e-6):
        raise checks.NotYet("for the device of the text, each time lacks the start: read the clock before `start`.")
    is_first_right = isinstance(seconds, float) and math.isclose(seconds, 0.0101, rel_tol=1e-3)
    if isinstance(seconds, float) and not is_first_right and not device.clock_reads:
        raise checks.NotYet(
            f"for the device of the text expected about 0.0101 s, came {seconds:.3g} s, but no `device.clock()` was "
            "called: a simulated device has its own time."
        )
    for wrong, why in WRONG_TIMES.items():
        if why == MOVED and device.clock_reads < 4:  # three runs have at least four readings around and between them
            why = "time each run by itself, with the clock before and after it"
        if isinstance(seconds, float) and math.isclose(seconds, wrong, rel_tol=1e-3):
            raise checks.NotYet(f"for the device of the text expected about 0.0101 s, came {seconds:.3g} s: {why}.")

    seconds = checks.answer(learner, Device(0.0, EVEN), len(EVEN) - 1, who="fair_time")
    is_middle = isinstance(seconds, float) and any(math.isclose(seconds, run, rel_tol=1e-3) for run in EVEN[2:4])
    if is_middle and is_first_right:  # otherwise it may have left out a run
        raise checks.NotYet(
            f"for runs of 10, 12, 13, and 20 ms expected about 0.0125 s, came {seconds:.3g} s: "
            "the median of an even number is the mean of the middle two."
        )

    @functools.wraps(learner)
    def rounded(device: Device, repeats: int) -> object:
        found = learner(device, repeats)
        return float(f"{found:.6g}") if isinstance(found, float) else found  # 1e-06, not 1.0000000000287557e-06

    yield checks.judge_function(rounded, right, cases)


# -------------------------------------------------------------------------------------- exercise 2: cheat, and close it

Program = Callable[[Device, int], object]
BenchmarkFunction = Callable[[Program, Device], object]


def benchmark(work: Program, device: Device) -> float | str:
    """Return the seconds of a run, or "wrong".

    This is the benchmark that exercise 2 deceives: it checks before it starts the clock, and always the same number.
    """
    if work(device, 7) != 49:
        return "wrong"
    begin = device.clock()
    work(device, 7)
    return device.clock() - begin


def _make_remembering_program() -> Program:
    """Return a program that computes each number once."""
    known: dict[int, int] = {}

    def work(device: Device, number: int) -> int:
        if number not in known:
            known[number] = device.square(number)
        return known[number]

    return work


def _make_lazy_program(pattern: Sequence[bool]) -> Program:
    """Return a program that computes at some calls and otherwise returns 0; after its last call the pattern repeats."""
    computes = itertools.cycle(pattern)
    return lambda device, number: device.square(number) if next(computes) else 0


def _make_slow_program(seconds: int, off: int = 0) -> Program:
    """Return a program that computes for some seconds, and adds `off` to the square."""
    return lambda device, number: [device.square(number) for _ in range(seconds)][-1] + off


SQUARES = {number: number**2 for number in range(10_000)}
# What each program does, how to make a new one, and what may be said of it: the seconds of its honest run, or "wrong".
PROGRAMS: tuple[tuple[str, Callable[[], Program], tuple[float | str, ...]], ...] = (
    ("computes for 1 s", lambda: _make_slow_program(1), (1.0,)),
    ("computes for 3 s", lambda: _make_slow_program(3), (3.0,)),
    ("computes for 1 s and is off by one", lambda: _make_slow_program(1, off=1), ("wrong",)),
    ("returns 49 at once", lambda: lambda device, number: 49, ("wrong",)),
    ("knows the squares below 10,000 by heart", lambda: lambda device, number: SQUARES.get(number, 0), ("wrong",)),
    ("remembers every number that it has seen", _make_remembering_program, (1.0,)),
)
# Programs that compute at some of their calls: every pattern of up to four, and one call of up to twenty.
PATTERNS = (
    *(pattern for length in (2, 3, 4) for pattern in itertools.product((True, False), repeat=length)),
    *(tuple(call == length for call in range(1, length + 1)) for length in range(5, 21)),
    (True, *[False] * 99),
)


def _list_programs() -> Iterator[tuple[str, Program, tuple[float | str, ...]]]:
    """Yield what each program does, a new one, and what may be said of it."""
    for what, make, allowed in PROGRAMS:
        yield what, make(), allowed
    for pattern in PATTERNS:
        calls = " and ".join(str(call) for call, computes in enumerate(pattern, 1) if computes)
        what = f"computes only at call {calls} of every {len(pattern)}" if calls else "never computes"
        yield what, _make_lazy_program(pattern), (1.0, "wrong")


@checks.print_verdict
def check_cheat(cheat: Program, fair_benchmark: BenchmarkFunction) -> Iterator[str]:
    """Judge exercise 2 of lesson 11: a program that deceives `benchmark`, and a benchmark that none deceives."""
    claimed = checks.answer(benchmark, cheat, Device(0.0, [1.0]), who="with your cheat the benchmark")
    nothing = claimed == "wrong" and checks.answer(cheat, Device(0.0, [1.0]), 7, who="cheat(device, 7)") in (..., None)
    if nothing or claimed is None:  # NotImplementedError says so, too
        raise checks.NotDone("cheat(device, 7) returns nothing yet.")
    if claimed == "wrong":
        raise checks.NotYet("the benchmark calls your cheat wrong: it checks work(device, 7) first.")
    assert isinstance(claimed, int | float)  # `benchmark` returned it
    if claimed > 0.01:
        raise checks.NotYet(
            f"the benchmark measures {duration(claimed)} for your cheat: it computes while it is timed."
        )
    yield "the cheat takes no time"
    for what, program, allowed in _list_programs():
        for run in ("first", "second"):
            who = f"for a program that {what}, at the {run} call, fair_benchmark"
            noted, wrong = _note_timed_mistakes(program)
            actual = checks.answer(fair_benchmark, noted, Device(0.0, [1.0]), who=who)
            if actual is ... or (actual is None and what == PROGRAMS[0][0]):  # later ones may have been printed
                raise checks.NotDone("the cheat works; fair_benchmark returns nothing yet.")
            if not any(_is_said(actual, expected) for expected in allowed):
                raise checks.NotYet(f"{who} returned {actual!r}; expected {' or '.join(map(repr, allowed))}.")
            if wrong and actual != "wrong":
                raise checks.NotYet(
                    f"{who} returned {actual!r}, although {len(wrong)} of the results that it timed were wrong; "
                    "expected 'wrong'."
                )
    yield f"{len(PROGRAMS) + len(PATTERNS)} programs, honest and not"


def _note_timed_mistakes(program: Program) -> tuple[Program, list[int]]:
    """Return a program that does the same, and a list to which it adds each number whose timed result is wrong.

    A result is timed if the clock has been read an odd number of times before the call: once for its start.
    """
    wrong: list[int] = []

    def work(device: Device, number: int) -> object:
        result = program(device, number)
        if device.clock_reads % 2 and result != number * number:
            wrong.append(number)
        return result

    return work, wrong


def _is_said(actual: object, expected: float | str) -> bool:
    """Return whether a benchmark returned what it may return for a program: "wrong", or a number of seconds."""
    if isinstance(expected, str) or isinstance(actual, bool) or not isinstance(actual, int | float):
        return isinstance(actual, str) and actual == expected
    return math.isclose(actual, expected, rel_tol=1e-3)


# ----------------------------------------------------------------------------------- exercise 3: which claims mislead

FAULTS = ("hidden by the sum", "too few runs", "in blocks", "fair")


class Claim(NamedTuple):
    """A claim of exercise 3, and how it is judged."""

    fault: str  # one of FAULTS
    number: float
    how: str  # the number is computed
    ask: str  # the question for a learner who names another fault


CLAIMS = {
    "A": Claim(
        fault="hidden by the sum",
        number=8872 / 5825,
        how="the points for training with DirectML over those with ROCm",
        ask="Is each part 1.3 times as large?",
    ),
    "B": Claim(
        fault="too few runs",
        number=1.2,
        how="the gap between the medians over the larger distance between quartiles",
        ask="How many spreads do 5 runs need?",
    ),
    "C": Claim(
        fault="fair",
        number=1.5,
        how="the longer time over the shorter one",
        ask="What exactly would you hold against it?",
    ),
    "D": Claim(
        fault="in blocks",
        number=10.0,
        how="the gap between the medians over the larger distance between quartiles",
        ask="What changed on the machine between the first run and the last?",
    ),
}


@checks.print_verdict
def check_claims(diagnosis: object) -> Iterator[str]:
    """Judge exercise 3 of lesson 11: which claims mislead, and the number that shows it."""

    def judge(letter: str, claim: Claim, fault: object, number: object) -> None:
        fault = str(fault).strip().lower()
        if fault not in FAULTS:
            raise checks.NotYet(f"{letter}: {fault!r} is none of the verdicts: {', '.join(map(repr, FAULTS))}.")
        if fault != claim.fault:
            raise checks.NotYet(f"{letter}: not {fault!r}. {claim.ask}")
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise checks.NotYet(f"{letter}: the verdict is right; its second part must be a number, came {number!r}.")
        if not math.isclose(abs(number), claim.number, rel_tol=0.03):
            raise checks.NotYet(f"{letter}: the verdict is right, the number {number:.4g} is not. Wanted: {claim.how}.")

    yield checks.judge_diagnosis(diagnosis, CLAIMS, ("verdict", "number"), "claims", judge)
