"""Serve lesson 05b, Make a training faster: its checks, its figure, its table of claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from helpers.judge import checks
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show
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
    made = half // 5
    account = f"{round(share * made)} false claims in {made} comparisons of the first half of the times with the second"
    yield checks.keep_right("false_claims", learner, account)


def draw_claims(times: np.ndarray) -> None:
    """Draw how often two rules claim a difference, against the runs: of the same work, and where there is a gain.

    Args:
        times: seconds of one work; the runs of each comparison are drawn from them, and divided by the gain.
    """
    runs, rng, title = (3, 5, 9, 13, 27, 55), np.random.default_rng(), "Few false claims cost missed gains"
    lines = {"the same work, one spread": (1.0, RED, ":"), "the same work": (1.0, ORANGE, "-")}
    lines |= {"1.2 times as fast": (1.2, GREY, "--"), "1.5 times as fast": (1.5, BLUE, "-.")}
    words = []
    with figure(7.5, 3.6, title) as (drawn, axes):
        for label, (gain, color, style) in lines.items():
            shares = []
            for count in runs:
                pairs = rng.choice(times, (2, 2_000, count)) / np.array([1, gain])[:, None, None]
                low, high = np.percentile(pairs, [25, 75], axis=-1)
                gaps, spreads = np.abs(np.subtract(*np.median(pairs, axis=-1))), (high - low).max(axis=0)
                required = 1 if label.endswith("spread") else timing.min_spreads(count)
                shares.append(100 * np.mean(gaps > required * spreads))
            axes.plot(runs, shares, "o", color=color, ls=style, label=label)
            words.append(f"{label}: {', '.join(f'{share:.0f}' for share in shares)}")
        axes.set(xlabel="runs of each", ylabel="claims (of 100 comparisons)", xscale="log", ylim=(-3, 103))
        axes.set_xticks(runs, [str(count) for count in runs])
        axes.minorticks_off()
        axes.legend()
    show(drawn, f"{title}. Claims of 100 with {', '.join(map(str, runs))} runs of each: {'; '.join(words)}.")


# ------------------------------------------------------------------------------------------------- exercise 2


def claim(before: Sequence[float], twin: Sequence[float], after: Sequence[float]) -> str:
    """Return what three series of times, measured in turn, let one claim: "faster", "slower" or "no claim".

    Exercise 2 of lesson 05b writes this function.

    Args:
        before: seconds of what is compared with.
        twin: seconds of the same work once more.
        after: seconds of what may be faster.
    """
    first, again, changed = (timing.Measurement("", "", tuple(seconds)) for seconds in (before, twin, after))
    return timing.decide(before, after) if timing.is_claimable(first, changed, (first, again)) else "no claim"


def _make_claim_cases() -> Iterator[tuple[str, list[list[float]]]]:
    """Yield what is special about three series of times, and these: before, its twin, after.

    Only the unit of the times and their order are random, and neither may change an answer.
    """
    rng = np.random.default_rng()
    unit = rng.uniform(0.1, 9)

    def make_series(median: float, spread: float = 1, runs: int = 5, outlier: float = 0) -> list[float]:
        """Return times with this median and spread; the latest (or earliest) one is `outlier` spreads from it."""
        shape = np.linspace(-1, 1, runs)
        shape[-1 if outlier > 0 else 0] = outlier or -1
        return [float(unit * (50 + median + spread * place)) for place in rng.permutation(shape)]

    same, wide = make_series(0), make_series(0, spread=3)
    for way in (1, -1):
        near, at_4, at_6 = make_series(3 * way), make_series(4 * way), make_series(6 * way)
        for runs, gap in ((3, 4.2), (3, 4.6), (5, 2.3), (5, 2.8), (9, 1.3), (9, 1.7), (27, 0.8), (27, 1.3)):
            series = [make_series(median, runs=runs) for median in (0, 0, gap * way)]
            lies = f"spreads {'above' if way > 0 else 'below'} that of `before`"
            yield f"where the median of `after` is {gap} {lies} ({runs} runs)", series
        yield "where `after` has 3 times the spread of `before`", [same, same, make_series(6.5 * way, spread=3)]
        yield "where `before` has 3 times the spread of `after`", [wide, wide, make_series(6.5 * way)]
        yield "where `twin` has 3 times the spread of the others", [same, wide, at_4]
        yield "where `before` and `twin` differ by the rule", [same, at_4, make_series(9 * way)]
        for other in (3.5, -3.5):
            far = make_series(other, spread=2)
            yield "where `twin` is farther from `before` than `after` is", [same, far, near]
            yield "where `twin` is nearer to `before` than `after` is", [same, make_series(other * 0.6), near]
            yield "where `twin` has twice the spread of `before`", [same, far, at_6]
            yield "where `before` has twice the spread of `twin`", [make_series(0, 2), make_series(other), at_6]
        for outlier in (-40, -16, 16, 40):
            lies, lone = "longer" if outlier > 0 else "shorter", make_series(0, outlier=outlier)
            for gap in (1, 3):
                after = make_series(gap * way, outlier=outlier)
                yield f"where one run of `after` was far {lies}", [same, same, after]
            yield f"where one run of `twin` was far {lies}", [same, lone, near]


@checks.print_verdict
def check_claim(learner: Callable[..., str], times: np.ndarray) -> Iterator[str]:
    """Judge exercise 2 of lesson 05b: what may be claimed of three series of times.

    Args:
        learner: the function.
        times: seconds of one work, from which series of the same work are then drawn.
    """
    tried = 0
    for words, series in _make_claim_cases():
        came = checks.answer(learner, *map(list, series), who=f"{words}, claim")
        if came is None:
            raise checks.NotDone("claim returns nothing.")
        if came != (expected := claim(*series)):
            raise checks.NotYet(f"{words}, claim returned {checks.short(came)}; expected {expected!r}.")
        tried += 1
    draws = np.random.default_rng().choice(times, (300, 3, 5)).tolist()
    made = sum(learner(*series) != "no claim" for series in draws)
    yield checks.keep_right(
        "claim", learner, f"{tried} cases; of 300 draws of your own times, {made} ended in a false claim"
    )


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
