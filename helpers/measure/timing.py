"""Measure honestly: warm up, wait for the device, repeat, give the spread, and name the device with every number.

Lesson 01 measures wrongly first (it stops the clock before the device has finished), then builds what `measure` does.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from helpers.errors import wrap

Label = TypeVar("Label", bound=Hashable)
Span = tuple[str, str, float, float]  # a device, what it did, and the seconds at which it began and ended
# Seconds to wait after a matrix product of NumPy: the threads of OpenBLAS look out for more work for about 0.1 s, and
# what is timed meanwhile shares the cores with them.
SETTLE = 0.2
ENOUGH = 13  # runs from which on a gap larger than the spread is seldom chance; see `min_spreads`


@dataclass(frozen=True)
class Measurement:
    """The seconds of every counted run, and where they were spent."""

    label: str  # what was timed
    device: str  # the name of the device that did the work
    seconds: tuple[float, ...]  # one entry a run, in seconds, in the order of the runs

    @property
    def median(self) -> float:
        """The median of the runs, in seconds."""
        return float(np.median(self.seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile of the runs, in seconds."""
        low, high = np.percentile(self.seconds, [25, 75])
        return float(low), float(high)

    @property
    def spread(self) -> float:
        """The distance between the quartiles, in seconds: half of the runs lie in it."""
        low, high = self.quartiles
        return high - low

    def __str__(self) -> str:
        runs = f"median of {len(self.seconds)} runs, the middle half spans {duration(self.spread)}"
        return f"{self.label}: {duration(self.median)} ({runs}) on {self.device}"

    __repr__ = __str__


class Queue(Protocol):
    """What hands work to a device, and can wait for all of it: a command queue of OpenCL."""

    def finish(self) -> object:
        """Wait until the device has done all that was handed to it."""


def duration(seconds: float) -> str:
    """Return `seconds` with three significant digits in the unit that fits it: ns, µs, ms or s.

    >>> duration(0.0123456), duration(90), duration(2.5e-7)
    ('12.3 ms', '90 s', '250 ns')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def synchronize(result: object, on: Queue | None = None) -> None:
    """Wait until the device has finished the work that `result` and `on` belong to.

    A call that hands work to a device returns before the work is done; a clock that is stopped then measures nothing.

    Args:
        result: what the timed function returned: an OpenCL event, a JAX or torch array, a TensorFlow tensor, or a list,
            tuple or dict of them. Anything else needs no waiting.
        on: an OpenCL command queue to finish, or None.
    """
    if on is not None:
        on.finish()
    if "pyopencl" in sys.modules and isinstance(result, sys.modules["pyopencl"].Event):
        result.wait()
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(result)
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].test.experimental.sync_devices()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if torch.backends.mps.is_available():
            torch.mps.synchronize()
        if hasattr(torch, "xpu") and torch.xpu.is_available():
            torch.xpu.synchronize()


def measure(
    function: Callable[[], object],
    *,
    device: str,
    label: str = "",
    on: Queue | None = None,
    repeats: int = 15,
    warmup: int = 2,
) -> Measurement:
    """Time `function()` and wait for the device after every call.

    Args:
        function: what to time; called without arguments.
        device: the name of the device that does the work; it is printed beside every number.
        label: what is timed, for people; the function's own name if empty.
        on: the OpenCL command queue that `function` uses, if it uses one.
        repeats: runs that count; at least 3, because a spread needs them.
        warmup: runs before them that do not count (compilation, first allocation, cold caches).

    Returns:
        The seconds of every counted run.
    """
    label = label or getattr(function, "__name__", "run")
    return measure_interleaved({label: function}, device, repeats, warmup, on=on)[label]


def measure_interleaved(
    ways: Mapping[Label, Callable[[], object]],
    device: str | Mapping[Label, str],
    repeats: int = 5,
    warmup: int = 1,
    *,
    on: Queue | None = None,
    wait: bool = True,
    rest: float = 0.0,
    wake: bool = False,
    seconds: float = math.inf,
) -> dict[Label, Measurement]:
    """Time several ways, each once a round: a machine that slows down meanwhile must not hit one of them alone.

    Args:
        ways: for each label a function without arguments.
        device: the name of the device that does the work; where they differ, a name for each label.
        repeats: rounds that count.
        warmup: rounds before them that do not count.
        on: the OpenCL command queue that the ways use, if they use one.
        wait: whether to wait for the device after each run; False where a way returns only when its result is there.
        rest: seconds of sleep before each run, in which threads of the run before can end.
        wake: whether each way is also called once just before its timed run: a GPU that has rested may be slower at
            first. (On an H100, a kernel timed twice after rests of 0.1 s took 3.4 and 2.3 ms.)
        seconds: when they are over, no more rounds begin; five that count are made in any case.
    """
    devices = dict.fromkeys(ways, device) if isinstance(device, str) else device
    noted: dict[Label, list[float]] = {label: [] for label in ways}
    start = time.perf_counter()
    for turn in range(warmup + repeats):
        for label, way in ways.items():
            time.sleep(rest)
            if wake:
                synchronize(way(), on)
            begin = time.perf_counter()
            result = way()
            if wait:
                synchronize(result, on)
            noted[label].append(time.perf_counter() - begin)
        if turn >= warmup + 4 and time.perf_counter() - start > seconds:
            break
    texts = {label: ", ".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in ways}
    return {label: Measurement(texts[label], devices[label], tuple(noted[label][warmup:])) for label in ways}


BUSY = 0.2  # of the cores, used by other programs: from here on, a gap must exceed what they explain
# How many times the gap of twins that differ clearly a gap must be. Simulated with 9 and 13 runs, each label with a
# lasting offset of 0.5 to 30 times a run's noise: at most 3 of 100 more claims of the same work than if nothing were
# claimed beside such twins (with 5 times: 9 of 100 more).
APART = 10


class Load:
    """What share of the cores other processes used during a block: `with Load() as load`, then `load.others`.

    The share is 0 if psutil is missing, as it may be where a GPU is recorded.
    """

    def __enter__(self) -> Self:
        self.begin, self.others = self._now(), math.nan
        return self

    def __exit__(self, *_: object) -> None:
        seconds, busy, own = (end - begin for begin, end in zip(self.begin, self._now(), strict=True))
        self.others = min(1.0, max(0.0, (busy - own) / (seconds * (os.cpu_count() or 1))))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """The time, what all cores have worked, and what they worked for us and for the processes we have ended."""
        try:
            import psutil
        except ImportError:
            return time.perf_counter(), 0.0, 0.0
        times = psutil.cpu_times()  # steal: a virtual machine's host gave the core to somebody else
        kinds = ("user", "nice", "system", "irq", "softirq", "steal")
        return time.perf_counter(), sum(getattr(times, kind, 0.0) for kind in kinds), sum(os.times()[:4])


def find_slowdown(others: float) -> float:
    """Return how many times as long as alone a run takes beside other programs if it gets only what they leave.

    1 up to BUSY, where the spreads decide alone. Beside one or four busy loops on two loaded cores (0.81 to 0.97),
    2,700 comparisons of kernels of 0.3 to 22 ms ended in 496 claims, none of them false; one ratio changed by more
    than this. Threads that wait for each other, as NumPy's, may lose more (lesson_02b_race.describe_race).

    >>> find_slowdown(0.1), find_slowdown(0.75), find_slowdown(1.0)
    (1.0, 4.0, inf)

    Args:
        others: what share of the cores they used meanwhile, as `Load` says.
    """
    return 1.0 if not others > BUSY else math.inf if others >= 1 else 1 / (1 - others)


def describe_slowdown(others: float, so: str = "only larger gaps are claimed") -> str:
    """Return what other programs may do to the times that were measured beside them; "" if they did little.

    Args:
        others: what share of the cores they used meanwhile, as `Load` says.
        so: what follows from it.
    """
    if not others > BUSY:
        return ""
    used = f"Other programs used {100 * others:.0f} % of the processor meanwhile"
    if others >= 1:
        return wrap(f"{used}, which can explain every gap.")
    return wrap(f"{used}. A run that gets only the rest takes {find_slowdown(others):.1f} times as long, so {so}.")


def min_spreads(runs: int) -> float:
    """Return how many spreads the gap between two medians must exceed before a difference may be claimed.

    From ENOUGH runs on it is one. With 5 runs each, two timings of the *same* work differ by more than one spread in 14
    of 100 cases, so fewer runs need a larger gap: ENOUGH / runs of it. Then at most 1 of 100 comparisons of
    the same work ends in a claim, for noise of several shapes (simulated in tests/test_timing.py).
    """
    return max(1.0, ENOUGH / runs)


def is_clear(first: Measurement, second: Measurement) -> bool:
    """Return whether the gap between two medians exceeds the larger spread, `min_spreads` times where the runs are few.

    One run alone has no spread: it allows no claim.
    """
    runs = min(len(first.seconds), len(second.seconds))
    return runs > 1 and _find_gap(first, second) > min_spreads(runs) * max(first.spread, second.spread)


def describe_gain(
    before: Measurement,
    after: Measurement,
    twins: tuple[Measurement, Measurement] | None = None,
    others: float = 0.0,
) -> str:
    """Return how many times as fast the second measurement is, or "no claim"; the arguments are of `is_claimable`.

    Beside other programs, it is at least the part of the factor that they cannot explain. (Particles of lesson 15 were
    12 to 61 times as fast in another order then, and 4.5 times on a quiet machine; the parts were 1.3 to 2.4.)
    """
    if not is_claimable(before, after, twins, others):
        return "no claim"
    least = find_factor(before, after) / find_slowdown(others)
    unit = "times as fast" if before.median > after.median else "times as long"
    return f"{'at least ' if others > BUSY else ''}{float(f'{least:.3g}'):,g} {unit}"


def is_claimable(
    before: Measurement,
    after: Measurement,
    twins: tuple[Measurement, Measurement] | None = None,
    others: float = 0.0,
) -> bool:
    """Return whether two timings differ by more than chance and other programs explain.

    The gap must be clear, larger than that of the twins, and a larger factor than `find_slowdown` returns. If the twins
    differ clearly, the spread says too little of this machine, and the gap must be APART times theirs.

    Args:
        before: what is compared with.
        after: what may be faster.
        twins: the same work, timed twice in the same rounds; either may be `before` or `after`. None: not timed.
        others: what share of the cores other programs used meanwhile, 0 to 1.
    """
    if twins and _find_gap(before, after) <= _find_gap(*twins) * (APART if is_clear(*twins) else 1):
        return False
    return is_clear(before, after) and find_factor(before, after) > find_slowdown(others)


def find_factor(first: Measurement, second: Measurement) -> float:
    """Return how many times as long as the shorter median the longer one is; 1 if they are equal."""
    low, high = sorted((first.median, second.median))
    return high / low if low else math.inf if high else 1.0


def _find_gap(first: Measurement, second: Measurement) -> float:
    """Return the seconds between two medians."""
    return abs(first.median - second.median)


def decide(before: Sequence[float], after: Sequence[float]) -> str:
    """Return "faster", "slower" or "no claim" for the second of two timings, by the rule of the course.

    >>> decide([2.0, 2.1, 2.2], [1.0, 1.0, 1.1])
    'faster'
    >>> decide([2.0, 2.1, 2.2], [1.9, 2.0, 2.1])  # the gap is smaller than the spreads
    'no claim'

    Args:
        before: seconds of each run of what is compared with.
        after: seconds of each run of what may be faster.
    """
    first, second = (Measurement("", "", tuple(seconds)) for seconds in (before, after))
    if not is_clear(first, second):
        return "no claim"
    return "faster" if second.median < first.median else "slower"


def _times(factor: float) -> str:
    """Two digits of a factor, without an exponent: 1.3 times, 46,000 times."""
    digits = f"{factor:.2g}"
    return f"{float(digits):,.0f} times" if factor >= 10 else f"{digits} times"


def compare(
    baseline: Measurement,
    candidate: Measurement,
    twins: tuple[Measurement, Measurement] | None = None,
    others: float = 0.0,
) -> str:
    """Return a sentence, in lines, on which is faster and by how much, or that nothing can be claimed.

    Beside other programs, "by how much" is the part that they cannot explain, as in `describe_gain`.

    Args:
        baseline: what is compared with, for example NumPy.
        candidate: what is hoped to be faster.
        twins: the same work, timed twice in turn with both; without them, the spread alone decides.
        others: what share of the cores other programs used meanwhile, 0 to 1.
    """
    runs = min(len(baseline.seconds), len(candidate.seconds))
    if runs == 1:
        return wrap(f"{candidate.label} against {baseline.label}: no claim. One run alone has no spread.")
    if not is_clear(baseline, candidate):
        gap = duration(_find_gap(baseline, candidate))
        bar = duration(min_spreads(runs) * max(baseline.spread, candidate.spread))
        return wrap(
            f"{candidate.label} against {baseline.label}: no claim. The medians differ by {gap}. "
            f"With {runs} runs that spread so widely, a claim needs more than {bar}."
        )
    if twins and not is_claimable(baseline, candidate, twins):
        gap, luck = duration(_find_gap(baseline, candidate)), duration(_find_gap(*twins))
        doubt = f"The gap ({gap}) is not larger than that of {twins[0].label} to itself ({luck})."
        if is_clear(*twins):
            bar = duration(APART * _find_gap(*twins))
            doubt = f"{twins[0].label} differs clearly from itself, by {luck}, so a claim needs more than {bar}."
        return wrap(f"{candidate.label} against {baseline.label}: no claim. {doubt}")
    ratio, factor = baseline.median / candidate.median, find_factor(baseline, candidate)
    if factor <= find_slowdown(others):
        most = "every factor" if others >= 1 else f"a factor of {find_slowdown(others):.1f}"
        return wrap(
            f"{candidate.label} against {baseline.label}: no claim. Other programs can explain {most}, and the gap "
            f"is {factor:.1f}."
        )
    least, is_busy = factor / find_slowdown(others), others > BUSY
    percent, direction = 100 * (least - 1), "faster" if ratio > 1 else "slower"
    if percent >= 10:
        bound = "at least " if is_busy else ""
        relation = f"is {bound}{_times(least)} as fast as" if ratio > 1 else f"takes {bound}{_times(least)} as long as"
    elif is_busy:
        relation = f"is {direction} than"
    else:
        relation = f"is {f'{percent:.0f} %' if percent >= 1 else 'less than 1 %'} {direction} than"
    times = f"{duration(candidate.median)} on {candidate.device}, {duration(baseline.median)} on {baseline.device}"
    if candidate.device == baseline.device:
        times = f"{duration(candidate.median)} beside {duration(baseline.median)} on {baseline.device}"
    return wrap(f"{candidate.label} {relation} {baseline.label} ({times}).")
