"""Lesson 02b, exercise 2: made-up searches, and what a learner's tuner may keep and report of them."""

from __future__ import annotations

import contextlib
import io
import math
import numbers
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.judge.checks import NotDone, NotYet


def judge_tuner(learner: Callable[..., object]) -> str:
    """Judge a tuner by several made-up searches, and return what was tried.

    The seconds that it reports must be of one kind in all of them. The smallest of several new measurements is the
    first one in some searches, and the last one in the others.
    """
    rng = np.random.default_rng()
    cases = ((4, ()), (1, ()), (6, (0, 3)), (6, (5,)), (40, (7, 8)))  # how many candidates; which cannot be built
    ways: set[str] = set()
    for number, (count, broken) in enumerate(cases):
        search = Search(rng, count, broken, rises=number % 2 == 0)
        seconds = _judge_one_search(learner, search)
        found = {way for way, value in list_fair_seconds(search.fresh).items() if math.isclose(value, seconds)}
        ways = ways & found if number else found
        if not ways:
            _refuse_seconds(seconds, search)
    for name in ("build", "measure"):
        _refuse_hidden_error(learner, Search(rng, 3, ()), name)
    return f"{len(cases)} searches among candidates some of which cannot be built"


class Search:
    """Made-up candidates, and what a tuner does with them.

    A candidate's first measurement is its smallest, and the winner's first new one loses to the runner-up's.
    """

    def __init__(self, rng: np.random.Generator, count: int, broken: Sequence[int], rises: bool = True) -> None:
        self.names = [f"candidate {number}" for number in range(count)]
        times = rng.permutation(np.arange(1.0, count + 1)).tolist()
        self.true = dict(zip(self.names, times, strict=True))  # the seconds of each first measurement
        self.reasons = {self.names[number]: f"It needs {rng.integers(50, 5_000)} KiB." for number in broken}
        self.usable = [name for name in self.names if name not in self.reasons]
        self.winner = min(self.usable, key=lambda name: self.true[name])
        self.rises = rises  # the winner's new measurements get slower each time; otherwise faster
        self.noted: list[tuple[str, float]] = []  # candidate and seconds of each measurement
        self.who = f"for {count} candidates, of which {len(broken)} cannot be built, tune"

    def build(self, candidate: str) -> str:
        """Return what `measure` takes.

        Raises:
            WorkshopError: the candidate cannot be built.
        """
        if candidate in self.reasons:
            raise WorkshopError(self.reasons[candidate])
        return f"built {candidate}"

    def measure(self, launch: str) -> float:
        """Note a measurement, and return its seconds.

        Raises:
            NotYet: `build` has not returned this.
        """
        name = str(launch).removeprefix("built ")
        if name == launch or name not in self.true:
            raise NotYet(f"measure was given {checks.short(launch)}; expected what build returned.")
        count = self.count(name)
        slower = 0.2 * count
        if name == self.winner and count:
            slower = 1.2 + 0.3 * count**2 if self.rises else 1.5 + 3 / count
        self.noted.append((name, self.true[name] + slower))
        return self.noted[-1][1]

    def count(self, name: str) -> int:
        """Return how often a candidate has been measured."""
        return sum(name == other for other, _ in self.noted)

    @property
    def fresh(self) -> list[float]:
        """The seconds of the winner's measurements but the first, which chose it."""
        return [taken for name, taken in self.noted if name == self.winner][1:]


def list_fair_seconds(fresh: Sequence[float]) -> dict[str, float]:
    """Return what a tuner may report of new measurements, by a name: one in a fixed place, their mean or median.

    The first few may be warm-ups that don't count. Each of these is right on average, and the smallest is not: of 40
    equal kernels whose runs spread by 10 %, the smallest of the winner's three new ones was 0.92 of the truth
    (20,000 simulated searches), their mean and their median 1.00.
    """
    ways = {"the first": fresh[0]}
    for skipped in range(len(fresh)):
        ways[f"the mean without {skipped}"] = statistics.fmean(fresh[skipped:])
        ways[f"the median without {skipped}"] = statistics.median(fresh[skipped:])
    return ways


def _judge_one_search(learner: Callable[..., object], search: Search) -> float:
    """Let a tuner search, and refuse another choice than was asked; return the seconds that it reports."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = checks.answer(learner, list(search.names), search.build, search.measure, who=search.who)
    if found is None and not search.noted:
        raise NotDone("tune returns nothing yet.")
    if not isinstance(found, (tuple, list)) or len(found) != 3 or not isinstance(found[0], dict):
        raise NotYet(
            f"{search.who} returned {checks.short(found)}; expected a dictionary of seconds, a candidate, its seconds."
        )
    if found[1] is ... or found[2] is ...:
        raise NotDone("tune does not say yet which candidate to keep, and how long it takes.")
    _judge_search(found[0], search)
    _judge_choice(found[1], search)
    said = " ".join(printed.getvalue().split())
    if silent := [reason for reason in search.reasons.values() if reason.removesuffix(".") not in said]:
        raise NotYet(f"{search.who} skips a candidate without printing why. The error says {silent[0]!r}.")
    if not isinstance(found[2], numbers.Real):
        raise NotYet(f"{search.who} returned {checks.short(found[2])} as the seconds of {search.winner!r}.")
    return float(found[2])


class _OtherError(TypeError):
    """What a mistake in `build` or `measure` would raise; like a WorkshopError, it has a `what` that can be printed."""

    what = "This function itself has a mistake."


def _refuse_hidden_error(learner: Callable[..., object], search: Search, name: str) -> None:
    """Refuse a tuner that goes on after `build` or `measure`, by its name, raised an error that is no WorkshopError."""
    works = {"build": search.build, "measure": search.measure}

    def fail(given: str) -> object:
        if given.endswith(search.names[0]):
            raise _OtherError
        return works[name](given)

    failing = works | {name: fail}
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            learner(list(search.names), failing["build"], failing["measure"])
        except Exception:
            return
    raise NotYet(
        f"tune also skips a candidate for which {name} raises a TypeError. Such an error is a mistake in the program: "
        "skip a WorkshopError alone."
    )


def _judge_search(seconds: dict[Any, Any], search: Search) -> None:
    """Refuse a search whose dictionary misses a candidate, holds one too many, or holds other seconds."""
    for name in search.usable:
        if name not in seconds:
            raise NotYet(f"{search.who} has no seconds for {name!r}, which can be built.")
        if not search.count(name):
            raise NotYet(f"{search.who} never measured {name!r}.")
        if not isinstance(seconds[name], float) or abs(seconds[name] - search.true[name]) > 0.005:
            raise NotYet(
                f"{search.who} says {checks.short(seconds[name])} for {name!r}; its first measurement is "
                f"{search.true[name]}."
            )
    if extra := [name for name in seconds if name not in search.usable]:
        raise NotYet(f"{search.who} has seconds for {checks.short(extra[0])}, which cannot be built.")


def _judge_choice(kept: object, search: Search) -> None:
    """Refuse another candidate than the fastest of the search, and one that was not measured again afterwards."""
    measured = [name for name, _ in search.noted]
    searched = measured[: max(measured.index(name) for name in search.usable) + 1]
    if len(searched) > len(search.usable):
        raise NotYet(
            f"{search.who} measured {len(searched)} times in its search; expected {len(search.usable)} times, once for "
            "each candidate that can be built."
        )
    if kept != search.winner:
        again = " If new numbers choose again, the one that you report has helped to choose." if search.fresh else ""
        raise NotYet(
            f"{search.who} keeps {checks.short(kept)}; expected {search.winner!r}, the fastest of the search, even if "
            f"it is slower when measured again.{again}"
        )
    if not search.fresh:
        raise NotYet(
            f"{search.who} did not measure {search.winner!r} again. It was chosen because its first number is the "
            "smallest, which may be luck."
        )


def _refuse_seconds(seconds: float, search: Search) -> None:
    """Refuse the reported seconds of the winner, with the reason."""
    fresh, says = search.fresh, f"{search.who} says that {search.winner!r} takes {seconds:g}"
    if len(fresh) == 1:
        raise NotYet(f"{says}; expected its new measurement alone, {fresh[0]:g}. The first one helped to choose it.")
    if math.isclose(seconds, min(fresh)):
        raise NotYet(
            f"{says}, as the smallest of its {len(fresh)} new measurements says. The smallest of several may be luck: "
            "return their mean or median."
        )
    wanted = f"{statistics.fmean(fresh):g} or {statistics.median(fresh):g}"
    raise NotYet(
        f"{says}; expected the mean or the median of its {len(fresh)} new measurements, {wanted}, without the one that "
        "helped to choose it."
    )
