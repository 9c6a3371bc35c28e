"""Lesson 11, Rank your machine: its processor and neighbour, its figure, and the checks of its exercises."""

from __future__ import annotations

import math
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from helpers.devices.host import usable_cpus
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, ORANGE, figure, show
from helpers.measure.timing import duration


def processor() -> tuple[int, float, int, int]:
    """Return cores, their clock in GHz, the vector units of a core, and the float32 numbers that a unit takes at once.

    As far as the system tells: many report a clock that a boost exceeds, and a virtual machine may report any. On
    Apple's M4 and M5 psutil reads none (https://github.com/giampaolo/psutil/issues/2841) or a wrong one (issue 2642).
    """
    import psutil
    from numpy._core._multiarray_umath import __cpu_features__ as has

    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, OSError, RuntimeError, SystemError):
        frequency = None
    clock = max(frequency.max, frequency.current) / 1e3 if frequency else 0.0
    clock = clock if 0.5 <= clock <= 10 else 3.0
    cores = min(math.ceil(usable_cpus()), psutil.cpu_count(logical=False) or sys.maxsize)
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return cores, clock, 4 if arm else 2, 16 if has.get("AVX512F") else 8 if has.get("AVX2") else 4


@contextmanager
def busy_neighbour(seconds: float = 60.0) -> Iterator[None]:
    """Keep every core busy from other processes while the block runs, but not longer than `seconds`."""
    count = math.ceil(usable_cpus())
    code = f"import time; end = time.time() + {seconds}; print(1, flush=True)\nwhile time.time() < end: pass"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in running:
            process.stdout.readline()  # it has started
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
            process.stdout.close()


# ---------------------------------------------------------------------------------------------------- its figure


def draw_runs(phases: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw every run as a point in the order of the runs, and each phase's median and middle half.

    Args:
        phases: for each phase the seconds of its runs.
        title: the message of the figure, with the device.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    words, first = [], 1
    looks = ((BLUE, "o"), (ORANGE, "^"), (GREEN, "s"))
    with figure(7.5, 3.6) as (drawn, axes):
        for (name, seconds), (colour, marker) in zip(phases.items(), looks, strict=False):
            milliseconds = 1e3 * np.asarray(seconds)
            low, middle, high = np.percentile(milliseconds, [25, 50, 75])
            numbers = np.arange(first, first + len(seconds))
            edges = numbers[0] - 0.5, numbers[-1] + 0.5
            axes.plot(numbers, milliseconds, color=colour, marker=marker, ls="", ms=4)
            axes.fill_between(edges, low, high, color=colour, alpha=0.25, lw=0)
            axes.plot(edges, (middle, middle), color=colour, lw=1.6, label=f"{name}: {middle:.3g} ms")
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
    """A device with a clock of its own: nothing here depends on the machine."""

    def __init__(self, compiles: float, runs: Sequence[float]) -> None:
        """Args: the seconds of the first `start`, and of each run, the first included; the last is repeated."""
        self.compiles, self.runs = compiles, list(runs)
        self.now = self.free = 0.0  # the clock, and when the queue will be empty, in seconds
        self.started = 0

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


@checks.print_verdict
def check_fair_time(learner: Callable[[Device, int], object]) -> Iterator[str]:
    """Lesson 11, exercise 1: the median of runs that were waited for, without the first, on a simulated device."""

    def right(device: Device, repeats: int) -> float:
        return round(float(np.median(device.runs[1 : 1 + repeats])), 9)

    def cases(rng: np.random.Generator) -> list[tuple[Device, int]]:
        known = (Device(0.9, [0.01, 0.01, 0.0101, 0.5]), 3)
        drawn = [(Device(0.5, rng.uniform(0.01, 0.02, 12).tolist()), repeats) for repeats in (3, 8, 9)]
        first_is_quick = (Device(0.0, [0.005, 0.01, 0.012, 0.013]), 3)
        slow = (Device(3.0, [50.0, 40.0, 41.0, 43.0, 42.0]), 4)
        many = (Device(0.1, rng.uniform(1e-4, 2e-4, 40).tolist()), 30)
        return [known, *drawn, first_is_quick, slow, many]

    yield checks.judge_function(learner, right, cases)


# -------------------------------------------------------------------------------------- exercise 2: cheat, and close it

Program = Callable[[Device, int], object]
BenchmarkFunction = Callable[[Program, Device], object]


def benchmark(work: Program, device: Device) -> object:
    """The benchmark with a hole: it checks before the clock, and with a number that everybody knows."""
    if work(device, 7) != 49:
        return "wrong"
    begin = device.clock()
    work(device, 7)
    return device.clock() - begin


def _program_with_memory() -> Program:
    known: dict[int, int] = {}

    def work(device: Device, number: int) -> int:
        if number not in known:
            known[number] = device.square(number)
        return known[number]

    return work


def _at_calls(some: Sequence[int]) -> Program:
    calls: list[int] = []

    def work(device: Device, number: int) -> int:
        calls.append(number)
        return device.square(number) if len(calls) in some else 0

    return work


def _slowly(seconds: int, off: int = 0) -> Program:
    return lambda device, number: [device.square(number) for _ in range(seconds)][-1] + off


SQUARES = {number: number**2 for number in range(10_000)}
# What each program does, how to make it anew, and what may be said of it: the seconds of its honest run, or "wrong".
PROGRAMS: tuple[tuple[str, Callable[[], Program], tuple[float | str, ...]], ...] = (
    ("computes for 1 s", lambda: _slowly(1), (1.0,)),
    ("computes for 3 s", lambda: _slowly(3), (3.0,)),
    ("computes for 1 s and is off by one", lambda: _slowly(1, off=1), ("wrong",)),
    ("returns 49 at once", lambda: lambda device, number: 49, ("wrong",)),
    ("knows the squares below 10,000 by heart", lambda: lambda device, number: SQUARES.get(number, 0), ("wrong",)),
    ("remembers every number that it has seen", _program_with_memory, (1.0,)),
    ("computes at its first call, and then returns 0", lambda: _at_calls([1]), (1.0, "wrong")),
    ("computes at every second call, else returns 0", lambda: _at_calls(range(2, 999, 2)), (1.0, "wrong")),
    ("computes at calls 1, 3, 5 ..., else returns 0", lambda: _at_calls(range(1, 999, 2)), (1.0, "wrong")),
)


@checks.print_verdict
def check_cheat(cheat: Program, fair_benchmark: BenchmarkFunction) -> Iterator[str]:
    """Lesson 11, exercise 2: a program that deceives `benchmark`, and a benchmark that no such program deceives."""
    claimed = checks.answer(benchmark, cheat, Device(0.0, [1.0]), who="with your cheat the benchmark")
    nothing = claimed == "wrong" and checks.answer(cheat, Device(0.0, [1.0]), 7, who="cheat(device, 7)") in (..., None)
    if nothing or claimed is None:  # NotImplementedError says so, too
        raise checks.NotDone("cheat(device, 7) returns nothing yet.")
    if claimed == "wrong":
        raise checks.NotYet("the benchmark calls your cheat wrong: it checks work(device, 7) first.")
    if claimed > 0.01:
        raise checks.NotYet(
            f"the benchmark measures {duration(claimed)} for your cheat: it computes while it is timed."
        )
    yield "the cheat takes no time"
    for what, make, allowed in PROGRAMS:
        program = make()
        for run in ("first", "second"):
            who = f"for a program that {what}, at the {run} call, fair_benchmark"
            actual = checks.answer(fair_benchmark, program, Device(0.0, [1.0]), who=who)
            if actual is ... or (actual is None and what == PROGRAMS[0][0]):  # later ones may have been printed
                raise checks.NotDone("the cheat works; fair_benchmark returns nothing yet.")
            if not any(_says(actual, expected) for expected in allowed):
                raise checks.NotYet(f"{who} returned {actual!r}; expected {' or '.join(map(repr, allowed))}.")
    yield f"{len(PROGRAMS)} programs, honest and not"


def _says(actual: object, expected: float | str) -> bool:
    """Whether a benchmark said what it may say of a program: "wrong", or so many seconds."""
    if isinstance(expected, str) or isinstance(actual, bool) or not isinstance(actual, int | float):
        return isinstance(actual, str) and actual == expected
    return math.isclose(actual, expected, rel_tol=1e-3)


# -------------------------------------------------------------------------------------------- exercise 3: who misleads?

FAULTS = ("above the limit", "hidden by the sum", "within the spread", "fair")


class Claim(NamedTuple):
    """A claim of exercise 3, and how it is judged."""

    verdict: str  # one of FAULTS
    number: float
    how: str  # the number is computed
    ask: str  # yourself, where the verdict is wrong


CLAIMS = {
    "A": Claim("above the limit", 18 * 2 * 10_000**3 / 13.8 / 860e9,
               "operations (2 x n³ for each of the 18) over seconds, over the peak",
               "How many operations can that card do in 13.8 s?"),
    "B": Claim("hidden by the sum", 8872 / 5825, "the points for training with DirectML over those with ROCm",
               "Is each part 1.3 times as large?"),
    "C": Claim("within the spread", 0.3, "the gap between the medians over the distance between the quartiles",
               "After 5 runs, would you be surprised if tomorrow the order were the other one?"),
    "D": Claim("fair", 1.5, "the longer time over the shorter one", "What exactly would you hold against it?"),
}  # fmt: skip


@checks.print_verdict
def check_claims(diagnosis: object) -> Iterator[str]:
    """Lesson 11, exercise 3: which claims mislead, and by which number one sees it."""

    def judge(letter: str, claim: Claim, fault: object, number: object) -> None:
        fault = str(fault).strip().lower()
        if fault not in FAULTS:
            raise checks.NotYet(f"{letter}: {fault!r} is none of the verdicts: {', '.join(map(repr, FAULTS))}.")
        if fault != claim.verdict:
            raise checks.NotYet(f"{letter}: not {fault!r}. {claim.ask}")
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise checks.NotYet(f"{letter}: the verdict is right; its second part must be a number, came {number!r}.")
        if not math.isclose(abs(number), claim.number, rel_tol=0.03):
            raise checks.NotYet(f"{letter}: the verdict is right, the number {number:.4g} is not. Wanted: {claim.how}.")

    yield checks.judge_diagnosis(diagnosis, CLAIMS, ("verdict", "number"), "claims", judge)
