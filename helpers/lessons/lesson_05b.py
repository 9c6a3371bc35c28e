"""Serve lesson 05b, Make a training faster: its checks, its figure, its table of claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from helpers.judge import checks
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.measure.tables import MISSING, Table

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


def draw_false_claims(times: np.ndarray) -> None:
    """Draw how often two timings of the same work are claimed to differ, against the gap that a rule requires.

    One line belongs to one number of runs. A dot on it shows the gap that the course's rule requires.

    Args:
        times: seconds of one work; the runs of each comparison are drawn from them.
    """
    comparisons, required, rng = 4_000, np.linspace(1, 5, 81), np.random.default_rng()
    title, words = "The same work: few runs need a larger gap", []
    with figure(7.5, 3.3, title) as (drawn, axes):
        for runs, color, style in zip((3, 5, 9, 13), (RED, ORANGE, BLUE, GREY), ("-", "--", "-.", ":"), strict=True):
            pairs = rng.choice(times, (2, comparisons, runs))
            low, high = np.percentile(pairs, [25, 75], axis=-1)
            gaps, spreads = np.abs(np.subtract(*np.median(pairs, axis=-1))), (high - low).max(axis=0)
            shares = [100 * np.mean(gaps > factor * spreads) for factor in required]
            axes.plot(required, shares, color=color, ls=style, label=f"{runs} runs of each")
            factor = timing.min_spreads(runs)
            share = 100 * np.mean(gaps > factor * spreads)
            axes.plot(factor, max(share, 0.1), "o", color=color, clip_on=False)
            words.append(f"{runs} runs: {shares[0]:.1f} at one spread, {share:.1f} at {factor:.1f}")
        axes.plot([], [], "o", color="black", label="the course's rule")
        axes.axhline(1, color="black", lw=1, label="1 of 100")
        axes.set(xlabel="gap that the rule requires (spreads)", ylabel="false claims (of 100)", yscale="log")
        ticks = (0.1, 0.3, 1, 3, 10, 30)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set(ylim=(0.1, 70))
        axes.minorticks_off()
        axes.legend()
    show(drawn, f"{title}. False claims of 100: {'; '.join(words)}.")


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
    """Yield what is special about three series of times, and these: before, its twin, after."""
    rng = np.random.default_rng()
    unit, sign = rng.uniform(0.1, 9), rng.choice([-1, 1])

    def make_series(median: float, spread: float = 1, runs: int = 5, late: float = 1) -> list[float]:
        """Return times with this median and spread; the latest one is `late` spreads after the median."""
        shape = [*np.linspace(-1, 1, runs)[:-1], late]
        return [float(unit * (50 + median + spread * place)) for place in rng.permutation(shape)]

    same, few, many, wide = make_series(0), make_series(0, runs=3), make_series(0, runs=27), make_series(0, spread=3)
    for way in (sign, -sign):
        lies = f"spreads {'above' if way > 0 else 'below'} that of `before`"
        yield f"where the median of `after` is 3 {lies} (5 runs)", [same, same, make_series(3 * way)]
        yield f"where the median of `after` is 2 {lies} (5 runs)", [same, same, make_series(2 * way)]
        yield f"where the median of `after` is 4 {lies} (3 runs)", [few, few, make_series(4 * way, runs=3)]
        yield f"where the median of `after` is 0.8 {lies} (27 runs)", [many, many, make_series(0.8 * way, runs=27)]
        yield f"where the median of `after` is 1.3 {lies} (27 runs)", [many, many, make_series(1.3 * way, runs=27)]
        yield "where `after` has 3 times the spread of `before`", [same, same, make_series(4 * way, spread=3)]
        yield "where `before` has 3 times the spread of `after`", [wide, wide, make_series(4 * way)]
        yield "where `before` and `twin` differ by the rule", [same, make_series(4 * way), make_series(9 * way)]
        for other in (way, -way):
            twin, after = make_series(3.5 * other, spread=2), make_series(3 * way)
            yield "where `twin` is farther from `before` than `after` is", [same, twin, after]
            yield "where `twin` is nearer to `before` than `after` is", [same, make_series(2 * other), after]
    yield "where one run of `after` took far longer", [same, same, make_series(-3, late=40)]


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
    if all(row[-1] == MISSING for row in table.rows):
        return Table(rows, headers, [*below, "a step on a GPU: not recorded."])
    return Table(table.rows, (*headers, "a step on a GPU"), table.below)
