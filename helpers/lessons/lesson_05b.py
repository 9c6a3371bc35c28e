"""Serve lesson 05b, Make training faster: its checks, its figure, its table of claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from helpers.judge import checks
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, RED, figure, show
from helpers.measure.tables import Table

Rule = Callable[[np.ndarray, np.ndarray], bool]  # whether it claims that two timings differ

# ------------------------------------------------------------------------------------------------- exercise 1


def false_claims(first: np.ndarray, second: np.ndarray, runs: int, rule: Rule) -> float:
    """Return the share, from 0 to 1, of comparisons of one work with itself in which a rule claims a difference.

    Exercise 1 of lesson 05b writes this function.

    Args:
        first: the seconds of many runs of one piece of work.
        second: as many of the same work.
        runs: how many of each are compared at a time, in their order; a shorter rest is left out.
        rule: takes two lists of seconds.
    """
    starts = range(0, len(first) - runs + 1, runs)
    return sum(bool(rule(first[k : k + runs], second[k : k + runs])) for k in starts) / len(starts)


@checks.print_verdict
def check_false_claims(learner: Callable[..., float], times: np.ndarray, rule: Rule) -> Iterator[str]:
    """Judge exercise 1 of lesson 05b: how often a rule claims a difference between two timings of the same work.

    Args:
        learner: the function.
        times: seconds of one work, which a right function is then tried on.
        rule: the rule that is tried.
    """
    for length, runs in ((12, 3), (20, 4), (17, 5)):
        first, second = np.random.default_rng().permutation(2 * length).reshape(2, length) / 16
        asked: list[tuple[list, list]] = []

        def claim_every_other(a: np.ndarray, b: np.ndarray, asked: list = asked) -> bool:
            asked.append((np.asarray(a).tolist(), np.asarray(b).tolist()))
            return len(asked) % 2 == 1

        call = f"with {length} times in each series and runs = {runs}"
        share = checks.answer(learner, first.copy(), second.copy(), runs, claim_every_other, who=f"{call} false_claims")
        if share is None or share is ...:
            raise checks.NotDone("false_claims returns nothing.")
        wanted = [
            (first[k : k + runs].tolist(), second[k : k + runs].tolist()) for k in range(0, length // runs * runs, runs)
        ]
        for number, pair in enumerate(wanted):
            came = asked[number] if number < len(asked) else "no question"
            if came != pair and came != pair[::-1]:
                raise checks.NotYet(f"{call} question {number + 1} to the rule: expected {pair}, came {came}.")
        if len(asked) > len(wanted):
            raise checks.NotYet(f"{call} the rule was asked {len(asked)} times; expected {len(wanted)}.")
        claims = (len(wanted) + 1) // 2
        if not isinstance(share, int | float | np.number) or abs(share - claims / len(wanted)) > 1e-6:
            raise checks.NotYet(
                f"{call} the rule claimed a difference {claims} times of {len(wanted)}; "
                f"expected {claims / len(wanted):.4g}, from 0 to 1, came {checks.short(share)}."
            )
    half = len(times) // 2
    share = learner(times[:half], times[half : 2 * half], 5, rule)
    expected, made = false_claims(times[:half], times[half : 2 * half], 5, rule), half // 5
    if abs(share - expected) > 1e-6:
        raise checks.NotYet(f"with your times and the given rule: expected {expected:.4g}, came {checks.short(share)}.")
    account = f"{round(share * made)} false claims in {made} comparisons of the first half of the times with the second"
    yield checks.keep_right("false_claims", learner, account)


def draw_claims(times: np.ndarray) -> None:
    """Draw how often three rules claim a difference, against the runs: of the same work, and where there is a gap.

    Args:
        times: seconds of one work, 100 at least; the runs of each comparison are drawn from them, none of them twice,
            and a gap is added.
    """
    runs, rng, title = (3, 5, 9, 13, 27, 50), np.random.default_rng(), "Few false claims cost missed differences"
    spread = np.subtract(*np.percentile(times, [75, 25]))
    lines = {
        "the same work, plain rule": (0, _claims_plainly, RED, ":"),
        "the same work, course's rule": (0, _claims_by_course, ORANGE, "-"),
        "0.8 spreads": (0.8, _claims_by_course, GREY, "--"),
        "0.8 spreads, Mann-Whitney": (0.8, _claims_by_ranks, GREEN, ":"),
        "2 spreads": (2, _claims_by_course, BLUE, "-."),
    }
    words = []
    with figure(7.5, 4.2, title) as (drawn, axes):
        for label, (spreads, rule, color, style) in lines.items():
            shares = []
            for count in runs:
                mixed = rng.permuted(np.tile(times, (2_000, 1)), axis=1)
                first, second = mixed[:, :count], mixed[:, count : 2 * count]
                shares.append(100 * np.mean(rule(first, second + spreads * spread)))
            if spreads and rule is _claims_by_course:
                label = f"{label}: {1 + spreads * spread / np.median(times):.2f} times as long"
            axes.plot(runs, shares, "o", color=color, ls=style, label=label)
            words.append(f"{label}: {', '.join(f'{share:.0f}' for share in shares)}")
        axes.set(xlabel="runs of each", ylabel="claims (of 100 comparisons)", xscale="log", ylim=(-3, 103))
        axes.set_xticks(runs, [str(count) for count in runs])
        axes.minorticks_off()
        drawn.legend(loc="outside lower center", ncols=2)
    show(drawn, f"{title}. Claims of 100 with {', '.join(map(str, runs))} runs of each: {'; '.join(words)}.")


def _claims_plainly(first: np.ndarray, second: np.ndarray, spreads: float = 1) -> np.ndarray:
    """Return for each pair of rows whether the medians are farther apart than the larger spread, times `spreads`."""
    low, high = np.percentile([first, second], [25, 75], axis=-1)
    gaps = np.abs(np.median(first, axis=-1) - np.median(second, axis=-1))
    return gaps > spreads * (high - low).max(axis=0)


def _claims_by_course(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return for each pair of rows whether they differ by the course's rule."""
    return _claims_plainly(first, second, timing.min_spreads(first.shape[-1]))


def _claims_by_ranks(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return for each pair of rows whether they differ by the Mann-Whitney test, with 1 false claim of 100 at most."""
    from scipy.stats import mannwhitneyu

    # Equal times are rare. By itself, one pair of them would let SciPy give up exact numbers for all the rows.
    method = "exact" if first.shape[-1] <= 8 else "asymptotic"
    return mannwhitneyu(first, second, axis=-1, method=method).pvalue < 0.01


# ------------------------------------------------------------------------------------------------- exercise 2

Series = Sequence[float]  # seconds, in the order of the runs


def _find_points(before: Series, twin: Series, after: Series) -> list[bool]:
    """Return which of the three points of `claim`, a function of lesson 05b, are true of three series."""

    def find_gap(first: Series, second: Series) -> float:
        return abs(np.median(first) - np.median(second))

    def differ(first: Series, second: Series) -> bool:
        return bool(_claims_by_course(np.array(first), np.array(second)))

    return [differ(before, after), find_gap(before, after) > find_gap(before, twin), not differ(before, twin)]


def _read_series(point: int, example: object) -> list[list[float]]:
    """Return the three series of an example as lists.

    Raises:
        checks.NotDone: nothing was filled in.
        checks.NotYet: it is something else than three equally long series of times.
    """
    if example is None or example is ...:
        raise checks.NotDone(f"point {point} has no example.")
    rows = example if isinstance(example, Iterable) else ()
    try:
        series = [[float(second) for second in times] for times in rows]
    except (TypeError, ValueError):
        series = []
    lengths = {len(times) for times in series}
    if len(series) != 3 or len(lengths) != 1 or min(lengths) < 2:
        raise checks.NotYet(f"the example for point {point} must be three equally long lists of times.")
    if not all(0 < second < math.inf for times in series for second in times):
        raise checks.NotYet(f"the example for point {point} must hold times: numbers above 0.")
    return series


@checks.print_verdict
def check_examples(examples: object) -> Iterator[str]:
    """Judge exercise 2 of lesson 05b: for each point of `claim`, three series of times that it alone refuses.

    Args:
        examples: a dictionary, by number of the point.
    """
    if not isinstance(examples, Mapping):
        raise checks.NotYet(f"examples must be a dictionary; came {checks.short(examples)}.")
    for point in (1, 2, 3):
        true = _find_points(*_read_series(point, examples.get(point)))
        if true != [number != point for number in (1, 2, 3)]:
            false = [str(number) for number, is_true in enumerate(true, 1) if not is_true]
            came = f"false: {' and '.join(false)}" if false else "all are true"
            raise checks.NotYet(f"in the example for point {point}, only this point may be false; came {came}.")
    yield "each point alone refuses an example, so none can be left out"


def make_claims_table(timed: Mapping[str, timing.Measurement], steps: int, decide: Callable[..., str]) -> Table:
    """Return a table of the forms of a network: a step's time and what may be said of it, here and where recorded.

    Args:
        timed: by form, in turn; the first is compared with, and the second is its twin, which does the same work.
        steps: in a run.
        decide: what may be claimed, as `claim` decides it; the first form is its own twin beside the second.
    """
    before, twin, *_ = timed.values()
    rows = []
    for name, run in timed.items():
        each = timing.Measurement(name, run.device, tuple(seconds / steps for seconds in run.seconds))
        records.add_run(each, amount="a step", lesson="05b")
        beside = before if run is twin else twin
        verdict = "" if run is before else decide(*(list(one.seconds) for one in (before, beside, run)))
        words = {
            "faster": f"{before.median / run.median:.2g} times as fast",
            "slower": f"{run.median / before.median:.2g} times as long",
        }
        low, high = map(timing.duration, each.quartiles)
        rows.append((name, f"{timing.duration(each.median)} ({low} to {high})", words.get(verdict, verdict)))
    headers = ("form", "a step here (middle half)", "beside the article's")
    below = [f"here: {before.device}, {len(before.seconds)} runs of each, in turn."]
    table = records.add_column(Table(rows, headers, below), "05b")
    return Table(table.rows, (*headers, "a step on a GPU"), table.below)
