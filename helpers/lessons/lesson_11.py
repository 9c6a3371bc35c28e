"""Lesson 11, Rank your machine: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.judge import checks
from helpers.measure import published
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, RED, figure, show
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement, duration, is_clear

if TYPE_CHECKING:
    from helpers.ranking import Row

NOISE = 0.05  # the largest distance of quartiles or medians, over the median, that the lesson calls quiet

# ------------------------------------------------------------------------------------------------ the work to be timed


class Work(NamedTuple):
    """A work that a device does while Python goes on."""

    start: Callable[[], object]  # hands the work to the device and returns at once
    wait: Callable[[object], object]  # takes what `start` returned, and returns when the device has finished
    device: str
    operations: int  # additions and multiplications
    note: str  # what is missing here, empty if nothing


def product(size: int) -> Work:
    """Return the product of two float32 matrices on JAX's device; without JAX, on a thread that plays a device.

    Args:
        size: rows and columns of both.
    """
    from helpers.compute import devices

    matrix = np.random.default_rng(0).random((size, size), dtype=np.float32)
    operations = 2 * size**3
    if not devices.installed("jax"):
        return _product_in_a_thread(matrix, operations, devices.not_installed("jax"))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves a GPU's memory to the benchmark
    import jax

    try:
        device = devices.in_this_process("jax")
        there = jax.device_put(matrix)
    except RuntimeError as error:
        return _product_in_a_thread(matrix, operations, f"JAX does not compute here ({str(error).splitlines()[0]})")
    multiply = jax.jit(lambda a, b: a @ b)
    return Work(lambda: multiply(there, there), jax.block_until_ready, str(device), operations, "")


def _product_in_a_thread(matrix: np.ndarray, operations: int, why: str) -> Work:
    """Let one thread take the place of a device's queue: `submit` returns at once, `result` waits."""
    from concurrent.futures import Future, ThreadPoolExecutor

    from helpers.compute.host import cpu_name

    thread = ThreadPoolExecutor(1)
    name = f"{cpu_name()} (NumPy, in a thread)"
    note = f"skipped: {why}. NumPy in a thread takes its place, and has nothing to compile."
    return Work(lambda: thread.submit(np.matmul, matrix, matrix), Future.result, name, operations, note)


@contextmanager
def busy_neighbour(busy: bool = True, seconds: float = 30.0) -> Iterator[None]:
    """Keep every core busy from other processes while the block runs.

    Args:
        busy: without it nothing is done.
        seconds: after so long the processes end by themselves, whatever becomes of this one.
    """
    from helpers.compute.host import usable_cpus

    count = math.ceil(usable_cpus()) if busy else 0
    code = f"import time; end = time.time() + {seconds}; print(1, flush=True)\nwhile time.time() < end: pass"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for one in running:
            one.stdout.readline()  # it has started
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()
            one.stdout.close()


def clock_drift(seconds: Sequence[float], device: str) -> str:
    """Return in one sentence whether the last third of some runs took another time than the first third.

    Where the spread hides a change, it says so: that is not the same as no change.

    Args:
        seconds: of runs that followed one another without a rest.
        device: which did the work.
    """
    third = len(seconds) // 3
    first, last = Measurement("", device, tuple(seconds[:third])), Measurement("", device, tuple(seconds[-third:]))
    both = f"first third {duration(first.median)}, last third {duration(last.median)}"
    if max(first.median, last.median) <= (1 + NOISE) * min(first.median, last.median):
        return f"{both}: no change in these {duration(sum(seconds))}; a longer boost does not show."
    if not is_clear(first, last):
        return f"{both}: too noisy to say whether the clock changed."
    return f"{both}: the device has become {'slower' if last.median > first.median else 'faster'} meanwhile."


def progress() -> Callable[[str], None]:
    """Return a function that shows the line it is given in place of the one before, with its number."""
    from IPython.display import display

    count = itertools.count(1)
    line = display({"text/plain": "looking for devices"}, raw=True, display_id=True)
    if line is None:  # outside of a notebook
        return lambda text: print(f"{next(count)}: {text}", flush=True)
    return lambda text: line.update({"text/plain": f"{next(count)}: {text}"}, raw=True)


# ---------------------------------------------------------------------------------------------------------- its figures


def draw_runs(phases: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw every run as a point in the order of the runs, and each phase's median and middle half.

    Args:
        phases: for each phase the seconds of its runs.
        title: the message of the figure, with the device.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    words, at = [], 0
    looks = ((BLUE, "o"), (ORANGE, "^"), (GREEN, "s"))
    with figure(7.5, 3.6) as (drawn, axes):
        for (name, seconds), (colour, marker) in zip(phases.items(), looks, strict=False):
            milliseconds = 1e3 * np.asarray(seconds)
            numbers = np.arange(at, at + len(seconds)) + 1
            low, middle, high = np.percentile(milliseconds, [25, 50, 75])
            axes.plot(numbers, milliseconds, color=colour, marker=marker, ls="", ms=4)
            axes.fill_between([numbers[0] - 0.5, numbers[-1] + 0.5], low, high, color=colour, alpha=0.25, lw=0)
            axes.plot([numbers[0] - 0.5, numbers[-1] + 0.5], [middle] * 2, color=colour, lw=1.6,
                      label=f"{name}: {middle:.3g} ms")  # fmt: skip
            words.append(f"{name}: median {middle:.3g} ms, middle half {low:.3g} to {high:.3g} ms")
            at += len(seconds)
        axes.set(xlabel="run", ylabel="time of one run (ms)", title=title, yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        drawn.legend(loc="outside lower center", ncols=3, title="medians", fontsize=9, title_fontsize=9)
    show(drawn, f"{title}. {'; '.join(words)}.")


# -------------------------------------------------------------------------------- the gallery and the published figures


COMPARED = ("float32 product", "MLP training", "CNN training")  # the tasks that a published figure is near to
# Peaks in GFLOP/s, float32, and how they are counted.
PEAKS = {
    "Radeon RX 480": (5_834.0, "2,304 cores x 2 x 1.266 GHz"),
    "Tesla K80": (4_368.0, "2,496 cores x 2 x 0.875 GHz (one of its two chips)"),
    "Radeon R9 M380": (1_536.0, "768 cores x 2 x 1.0 GHz"),
    "Core i5 3.2 GHz": (409.6, "4 cores x 32 x 3.2 GHz"),
    "GeForce 840M": (863.2, "384 cores x 2 x 1.124 GHz"),
}


class Placed(NamedTuple):
    """A speed beside the limit of the device that it is said of."""

    who: str
    what: str
    speed: float  # in GFLOP/s
    limit: float | None  # in GFLOP/s
    yours: bool
    noisy: bool = False  # the machine was, while it was measured

    @property
    def impossible(self) -> bool:
        """Whether it lies above what the device can do."""
        return self.limit is not None and self.speed > self.limit and not self.yours


def published_speeds() -> list[Placed]:
    """Return the published figures that can be turned into operations a second."""
    from helpers.ranking.tasks import OPERATIONS

    found = []
    for one in published.figures():
        device = one.device.partition(" (")[0].removesuffix(" 2 GB, iMac 2015").removesuffix(", iMac 2015")
        if one.unit == "us":
            speed = OPERATIONS["MLP training"] / one.value / 1e3
        elif one.article == "C" and one.unit == "s":
            an_epoch = 60_000 * OPERATIONS["CNN training"] + 10_000 * OPERATIONS["CNN inference"]  # tested after each
            speed = 12 * an_epoch / one.value / 1e9
        elif one.value == 13.8:
            speed = 18 * 2 * 10_000**3 / one.value / 1e9
        else:
            continue
        what = {"A": "MLP training", "C": "CNN training", "E": "matrix products"}[one.article]
        found.append(Placed(device, f"{what}, {one.year}", speed, PEAKS[device][0], False))
    return found


def your_speeds(rows: Sequence[Row], quiet: bool = True) -> list[Placed]:
    """Return the best measured rows of the same works in GFLOP/s, each beside its device's measured ceiling.

    Args:
        rows: of the workshop's benchmark.
        quiet: whether the machine was while they were measured.
    """
    from helpers.ranking import best
    from helpers.ranking.tasks import OPERATIONS

    found, fastest = [], best(rows)
    for task in COMPARED:
        if row := fastest.get(task):
            ceiling = row.ceiling.value if row.ceiling else None
            speed = row.speed * OPERATIONS[task] / 1e9 if row.unit == "images/s" else row.speed
            who = f"yours{'' if quiet else ' (noisy)'}: {row.chip}"
            found.append(Placed(who, f"{task}, {row.title}", speed, ceiling, True, not quiet))
    return found


def draw_published(placed: Sequence[Placed]) -> None:
    """Draw speeds on a logarithmic axis, each with its device's limit as a line; one above its limit is crossed out.

    Args:
        placed: the published ones and the learner's.
    """
    words = []
    with figure(7.5, 0.42 * len(placed) + 1.2) as (drawn, axes):
        for at, one in enumerate(placed):
            colour, marker = (RED, "X") if one.impossible else (BLUE, "D") if one.yours else (ORANGE, "o")
            if one.limit:
                axes.plot([one.speed, one.limit], [at, at], color=GREY, lw=1, ls=":")
                axes.plot([one.limit] * 2, [at - 0.35, at + 0.35], color="black", lw=2)
            inside = "white" if one.noisy else colour
            axes.plot(one.speed, at, color=colour, marker=marker, mfc=inside, ms=8, ls="")
            share = f" ({one.speed / one.limit:.0%} of its limit)" if one.limit else ""
            text = "impossible: above its limit" if one.impossible else f"{one.speed:,.0f}"
            close = one.limit is not None and 0.7 < one.speed / one.limit <= 1  # then beside the point, off the line
            place = {"xytext": (-8, -3), "ha": "right"} if close else {"xytext": (0, 7), "ha": "center"}
            axes.annotate(text, (one.speed, at), textcoords="offset points", fontsize=8, **place)
            words.append(f"{one.who}, {one.what}: {one.speed:,.0f} GFLOP/s{share}")
        axes.set(xscale="log", xlabel="billions of operations a second (GFLOP/s)", yticks=range(len(placed)),
                 yticklabels=[f"{one.who}\n{one.what}" for one in placed], ylim=(len(placed) - 0.4, -0.7),
                 title="Speed (point) and the device's limit (line)")  # fmt: skip
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.tick_params(axis="y", labelsize=8)
        axes.grid(axis="y", visible=False)
    show(drawn, f"Speed and limit, logarithmic. {'; '.join(words)}.")


def comparable_table(rows: Sequence[Row], quiet: bool = True) -> Table:
    """Return what each article's figure can be compared with, and what stands against it.

    Args:
        rows: of the workshop's benchmark, for what the same takes at the speed measured here.
        quiet: whether the machine was while they were measured.
    """
    from helpers.ranking import best

    def fastest(task: str, cpu: tuple[bool, ...] = (False, True)) -> float | None:
        row = best([row for row in rows if (row.kind == "cpu") in cpu]).get(task)
        return row.speed if row else None

    product, mlp, cnn = map(fastest, COMPARED)
    kinds = [fastest("CNN training", (cpu,)) for cpu in (False, True)]
    missing = "not measured here"
    return Table(
        [
            ("RX 480, K80: MLP, 2019", "47 and 43 µs an image", f"{1e6 / mlp:.0f} µs" if mlp else missing,
             "in part: the same network and batch; other software, and images were shuffled and copied"),
            ("R9 M380, Core i5: CNN, 2019", "110 and 306 s", f"{720_000 / cnn:,.0f} s, computed" if cnn else missing,
             "in part: the same network and 12 x 60,000 images; other software, and tests after each epoch"),
            ("Radeon Pro 560X: CNN, 2021", "2.1 times its CPU",
             f"{kinds[0] / kinds[1]:.2g} times" if all(kinds) else "no two kinds of device",
             "no, only as a ratio: layers and batch are not given"),
            ("RX 6600 XT, ROCm and DirectML, 2023", "12,974 and 16,873 points", "nothing",
             "no: ai-benchmark cannot run any more. One card, two systems, 1.3 times: that is history"),
            ("GeForce 840M: A^10 + B^10, 2017", "13.8 s",
             f"{36_000 / product:,.0f} s, computed" if product else missing,
             "no: the published figure can hardly be true"),
        ],
        ["figure", "published", "here" if quiet else "here (noisy)", "comparable?"],
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------- its first exercise


class Device:
    """A device that only exists in this program, with a clock of its own: nothing here depends on the machine."""

    def __init__(self, compiles: float, runs: Sequence[float]) -> None:
        """Args: the seconds of the first `start`, and of each run, the first included; the last is repeated."""
        self.compiles, self.runs = compiles, list(runs)
        self.now = self.free = 0.0  # the clock, and when the queue will be empty, in seconds
        self.started = self.waited = self.read = self.overlapped = 0

    def start(self) -> None:
        """Put the work into the queue, and return at once."""
        if not self.started:
            self.now += self.compiles
        self.overlapped += self.free > self.now  # the run before is still in the queue
        self.free = max(self.now, self.free) + self.runs[min(self.started, len(self.runs) - 1)]
        self.now += 1e-6
        self.started += 1

    def wait(self) -> None:
        """Return when the queue is empty."""
        self.now = max(self.now, self.free)
        self.waited += 1

    def clock(self) -> float:
        """Return the time in seconds."""
        self.read += 1
        return self.now

    def __eq__(self, other: object) -> bool:  # it may change while it works
        return isinstance(other, Device)

    __hash__ = None

    def __repr__(self) -> str:
        runs = ", ".join(duration(run) for run in self.runs[:6])
        return f"device that compiles for {duration(self.compiles)}, with runs of {runs} ..."


@checks.verdict
def check_fair_time(learner: Callable[[Device, int], object]) -> Iterator[str]:
    """Lesson 11, exercise 1: quartiles of runs that were waited for, or a refusal, on a simulated device."""

    def right(device: Device, repeats: int) -> tuple[float, float, float] | str:
        seconds = device.runs[1 : 1 + repeats]
        low, middle, high = (_rounded(value) for value in np.percentile(seconds, [25, 50, 75]))
        return "too noisy" if high - low > NOISE * middle else (low, middle, high)

    def cases(rng: np.random.Generator) -> list[tuple]:
        def runs(middle: float, spread: float, count: int) -> list[float]:  # quartiles `spread` of the median apart
            steps = np.linspace(-1, 1, count) * spread * middle
            return [_rounded(run) for run in (3 * middle, *(middle + rng.permutation(steps)), 0.5 * middle)]

        known = (Device(0.9, [0.01, 0.01, 0.01, 0.0101, 0.0101, 0.0102, 0.02]), 5)
        drawn = [(Device(0.5, runs(float(rng.uniform(1e-3, 1)), 0.02, 9)), 9) for _ in range(3)]
        quick, slow = Device(0.1, runs(5e-5, 0.3, 7)), Device(0.1, runs(40.0, 0.01, 7))  # noisy and quiet
        one_late = runs(2e-3, 0.004, 11)
        one_late[5] *= 40  # an interruption: the mean moves, the quartiles stay
        few_late = runs(3e-3, 0.01, 9)
        few_late[2] *= 4
        few_late[6] *= 5
        modes = [0.02, *rng.permutation([0.01] * 6 + [0.015] * 5), 0.01]  # a busy neighbour came and went
        beyond_and_late = sorted(runs(5e-3, 0.053, 13)[1:-1])
        beyond_and_late[-1] *= 30  # moves the mean, not the quartiles
        late = Device(0.2, [0.01, *rng.permutation(beyond_and_late), 0.01])
        near, beyond = Device(0.2, runs(8e-3, 0.049, 13)), Device(0.2, runs(8e-3, 0.051, 13))
        late_third = (Device(0.0, [0.005, 0.01, 0.0101, 0.0102, 0.04, 0.01]), 5)  # the first run is not the slowest
        few = (Device(0.3, [0.03, 0.01, 0.011, 0.012, 0.013]), 4)  # noisy, in few repeats
        others = [late_third, few, (quick, 7), (slow, 7), (Device(2.0, one_late), 11), (Device(2.0, few_late), 9),
                  (Device(0.3, modes), 11), (near, 13), (beyond, 13), (late, 13)]  # fmt: skip
        return [known, *drawn, *others, (Device(0.1, runs(1e-2, 0.02, 40)), 20)]

    used: list[tuple[Device, int]] = []

    @functools.wraps(learner)
    def noted(device: Device, repeats: int) -> object:
        used.append((device, repeats))
        answer = learner(device, repeats)
        if isinstance(answer, tuple | list) and all(isinstance(one, int | float) for one in answer):
            return tuple(map(_rounded, answer))  # a clock that runs on leaves tails such as 0.010100000000000002
        return answer

    try:
        yield checks.judge_function(noted if callable(learner) else learner, right, cases)
    except checks.NotYet as wrong:
        raise checks.NotYet(f"{str(wrong).rstrip('.')}{_how_it_was_timed(*used[-1]) if used else ''}") from None


def _rounded(number: float) -> float:
    """Return a number with seven significant digits."""
    return float(f"{number:.7g}")


def _how_it_was_timed(device: Device, repeats: int) -> str:
    """Return how often a device was started, waited for and asked for the time, and how far its runs lie apart."""
    low, middle, high = np.percentile(device.runs[1 : 1 + repeats], [25, 50, 75])
    calls = {"start()": device.started, "wait()": device.waited, "clock()": device.read}
    counted = f"Calls: {', '.join(f'{count} of {name}' for name, count in calls.items())}"
    queued = f"; at {device.overlapped} of these starts a run was still in the queue" if device.overlapped else ""
    apart = f"The quartiles of these {repeats} runs are {(high - low) / middle:.1%} of the median apart"
    return f". {counted}{queued}. {apart}"


# ------------------------------------------------------------------------------------------------- its other exercises

FAULTS = ("above the limit", "first call counted", "other work", "saving, not speed-up", "within the spread", "fair")


class Claim(NamedTuple):
    """A claim of exercise 3, and how it is judged."""

    verdict: str  # one of FAULTS
    number: float
    how: str  # the number is computed
    ask: str  # yourself, where the verdict is wrong


CLAIMS = {
    "A": Claim("above the limit", 18 * 2 * 10_000**3 / 13.8 / 860e9, "operations of all 18 over seconds, over the peak",
               "How many operations can that card do in 13.8 s?"),
    "B": Claim("saving, not speed-up", 40 / 19, "the old time over the new time",
               "If 40 ms became 20 ms, 50 % less, how many times as fast would it be?"),
    "C": Claim("other work", (224 / 28) ** 2, "pixels of one image over pixels of the other, both sides counted",
               "Is an image of X as much to compute as an image of Y?"),
    "D": Claim("first call counted", 10.0, "the median in ms, of all five or the last four",
               "Why is one run so much longer?"),
    "E": Claim("within the spread", 0.3, "the gap between the medians over the distance between the quartiles",
               "After 5 runs, would you be surprised if tomorrow the order were the other one?"),
    "F": Claim("fair", 1.5, "the longer time over the shorter one", "What exactly would you hold against it?"),
}  # fmt: skip


@checks.verdict
def check_score(learner: Callable[[Mapping, Mapping], tuple[float, int]]) -> Iterator[str]:
    """Lesson 11, exercise 2: 100 times the geometric mean of ratios over the tasks that both machines have."""

    def right(speeds: Mapping[str, float | None], reference: Mapping[str, float | None]) -> tuple[float, int]:
        both = [task for task in reference if reference[task] is not None and speeds.get(task) is not None]
        points = 100 * math.exp(sum(math.log(speeds[task] / reference[task]) for task in both) / len(both))
        return _rounded(points), len(both)

    def cases(rng: np.random.Generator) -> list[tuple]:
        known = [({"copy": 20, "product": 200, "MLP": None}, {"copy": 10, "product": 400, "MLP": 5000, "CNN": 300})]
        known += [
            ({"copy": 20, "product": 900}, {"copy": 10, "product": 100}),
            ({"copy": 7.5}, {"copy": 2.5, "CNN": 1}),
        ]
        known += [({"copy": 20, "MLP": 8, "CNN": 40}, {"copy": 10, "MLP": 4, "CNN": 80})]  # two equal ratios
        known += [({"CNN": 80, "copy": 10}, {"copy": 20, "CNN": 10})]  # in another order
        known += [({"new": 5, "copy": 30}, {"copy": 10})]  # the reference lacks one
        known += [({"copy": 30, "CNN": 9}, {"copy": 10, "CNN": None})]
        drawn = []
        for _ in range(8):
            tasks = [f"task {number}" for number in range(int(rng.integers(3, 8)))]
            pair = [{task: round(float(10 ** rng.uniform(-1, 4)), 3) for task in tasks} for _ in range(2)]
            for task in tasks[2:]:
                if (fate := rng.random()) < 0.2:
                    del pair[0][task]
                elif fate < 0.4:
                    pair[0][task] = None
                elif fate < 0.5:
                    del pair[1][task]
            drawn.append(tuple(pair))
        return [*known, *drawn]

    try:
        yield checks.judge_function(learner, right, cases)
    except checks.NotYet as wrong:
        is_sum = callable(learner) and _is_arithmetic(learner)
        raise checks.NotYet(f"{wrong}{'; this is the arithmetic mean' if is_sum else ''}") from None


def _is_arithmetic(learner: Callable[[Mapping, Mapping], object]) -> bool:
    """Whether a score is 100 times the arithmetic mean of the ratios."""
    try:
        points, _ = learner({"copy": 20, "product": 900}, {"copy": 10, "product": 100})
        return math.isclose(points, 550)
    except Exception:  # whatever a wrong answer raises: the verdict has told it
        return False


@checks.verdict
def check_claims(diagnosis: object) -> Iterator[str]:
    """Lesson 11, exercise 3: which claims mislead, and by which number one sees it."""

    def judge(letter: str, claim: Claim, fault: object, number: object) -> None:
        said = fault.strip().lower() if isinstance(fault, str) else fault
        if said not in FAULTS:
            raise checks.NotYet(f"{letter}: {fault!r} is none of the six verdicts: {', '.join(map(repr, FAULTS))}.")
        if said != claim.verdict:
            raise checks.NotYet(f"{letter}: not {said!r}. {claim.ask}")
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise checks.NotYet(f"{letter}: the verdict is right; its second part must be a number, came {number!r}.")
        if not math.isclose(number, claim.number, rel_tol=0.03):
            raise checks.NotYet(f"{letter}: the verdict is right, the number {number:.4g} is not. Wanted: {claim.how}.")

    yield checks.judge_diagnosis(diagnosis, CLAIMS, ("verdict", "number"), "claims", judge)


@checks.verdict
def check_choose(learner: Callable[[Mapping, Mapping], str]) -> Iterator[str]:
    """Lesson 11, exercise 4: the machine on which a given work ends first."""

    def right(machines: Mapping[str, Mapping[str, float]], work: Mapping[str, float]) -> str:
        return min(machines, key=lambda name: sum(work[task] / machines[name][task] for task in work))

    def cases(rng: np.random.Generator) -> list[tuple]:
        known = [
            (
                {"red": {"product": 100, "copy": 10}, "blue": {"product": 50, "copy": 40}},
                {"product": 9_000, "copy": 10},
            ),
            ({"red": {"a": 10, "b": 10}, "blue": {"a": 6, "b": 600}}, {"a": 600, "b": 600}),  # 120 s, 101 s
            ({"red": {"a": 10, "b": 1}, "blue": {"a": 9, "b": 1000}}, {"a": 900}),  # b is not needed
            ({"red": {"a": 10, "b": 0.001}, "blue": {"a": 9, "b": 1000}}, {"a": 900}),  # not even a little of it
            ({"red": {"b": 9, "a": 10}, "blue": {"a": 9}}, {"a": 900}),  # one lacks what is not needed
            ({"red": {"a": 1}, "blue": {"a": 3}, "green": {"a": 2}}, {"a": 90_000}),  # the middle one, and long
            ({"red": {"a": 900}, "blue": {"a": 800}}, {"a": 9}),  # both within a blink
            ({"red": {"a": 10}, "blue": {"a": 12}}, {"a": 19}),  # 1.9 s, 1.6 s
            ({"red": {"a": 10}, "blue": {"a": 9, "b": 5}}, {"a": 900}),  # the more tasks, not the faster
            ({"red": {"a": 35, "b": 93}, "blue": {"a": 76, "b": 14}}, {"a": 62, "b": 45}),  # 2.3 s, 4 s
            ({"red": {"a": 100, "b": 1}, "blue": {"a": 20, "b": 4}}, {"a": 100, "b": 100}),  # 101 s, 30 s
            ({"red": {"a": 100, "b": 0.01}, "blue": {"a": 50, "b": 50}}, {"a": 100, "b": 0}),  # 1 s, 2 s
        ]
        drawn: list[tuple] = []
        while len(drawn) < 12:
            tasks = [f"task {number}" for number in range(int(rng.integers(2, 5)))]
            names = [str(name) for name in rng.permutation(["red", "blue", "green"])[: int(rng.integers(2, 4))]]
            machines = {name: {task: int(rng.integers(5, 200)) for task in tasks} for name in names}
            work = {task: int(10 ** rng.uniform(1, 4)) for task in tasks}
            if rng.random() < 0.4:
                work[tasks[0]] = 0
            if len(drawn) % 3 == 0:
                work.pop(tasks[-1])  # a task that is measured and not needed
            ends = sorted(sum(work[task] / machines[name][task] for task in work) for name in names)
            logs = {name: np.mean([math.log(speed) for speed in machines[name].values()]) for name in names}
            points_wrong = max(logs, key=logs.get) != right(machines, work)
            if ends[1] > 1.05 * ends[0] and (points_wrong or len(drawn) % 2):
                drawn.append((machines, work))
        return [*known, *drawn]

    asked: list[tuple] = []

    @functools.wraps(learner)
    def noted(machines: Mapping[str, Mapping[str, float]], work: Mapping[str, float]) -> object:
        asked.append(({name: dict(speeds) for name, speeds in machines.items()}, dict(work)))
        return learner(machines, work)

    try:
        yield checks.judge_function(noted if callable(learner) else learner, right, cases)
    except checks.NotYet as wrong:
        if not asked:
            raise
        machines, work = asked[-1]
        took = {name: sum(work[task] / speeds[task] for task in work) for name, speeds in machines.items()}
        told = ", ".join(f"{name} needs {seconds:.4g} s" for name, seconds in took.items())
        raise checks.NotYet(f"{str(wrong).rstrip('.')}; {told}") from None
