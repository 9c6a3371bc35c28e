"""Serve lesson 05b, Make a training faster: its checks, its figure, its table of claims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from helpers.judge import checks
from helpers.measure import records, timing
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.measure.tables import MISSING, Table

Tensor: TypeAlias = Any  # of whichever backend Keras runs on; Keras has no type for all of them
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


def unfold(images: Tensor) -> Tensor:
    """Return the numbers below a 3 x 3 filter at each place, as rows; exercise 2 of lesson 05b writes this function.

    Args:
        images: of shape (n, h, w, c), with h and w of 3 or more.

    Returns:
        A tensor of shape (n, h - 2, w - 2, 9 * c): pixel by pixel in reading order, each with its c channels.
    """
    import keras

    high, wide = (size - 2 for size in images.shape[1:3])
    slices = [images[:, y : y + high, x : x + wide] for y in range(3) for x in range(3)]
    return keras.ops.concatenate(slices, axis=-1)


def _take_windows(images: np.ndarray) -> np.ndarray:
    """Return what `unfold` returns, with NumPy alone."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)


def _name_order(rows: np.ndarray, images: np.ndarray) -> str:
    """Return in which usual wrong order the rows of `unfold` hold their numbers; an empty text if in none."""
    right = _take_windows(images)
    nine = right.reshape(*right.shape[:3], 3, 3, -1)
    orders = {
        "column by column": nine.swapaxes(3, 4),
        "from the last pixel to the first": nine[:, :, :, ::-1, ::-1],
        "channel by channel": np.moveaxis(nine, 5, 3),
    }
    if np.array_equal(rows, right):
        return ""
    return next((name for name, wrong in orders.items() if np.array_equal(rows, wrong.reshape(right.shape))), "")


@checks.print_verdict
def check_unfold(learner: Callable[[Tensor], Tensor]) -> Iterator[str]:
    """Judge exercise 2 of lesson 05b: the rows of im2col, of numbers and inside a network."""

    @functools.wraps(learner)
    def ask(images: np.ndarray) -> object:
        found = learner(images)
        if isinstance(found, np.ndarray | list | tuple):
            raise checks.NotYet("unfold returns numbers, not a tensor. A network cannot learn through NumPy.")
        if found is None or found is ...:
            return found
        rows = np.asarray(found)
        if order := _name_order(rows, images):
            raise checks.NotYet(
                f"each row of unfold holds the right numbers, but {order}. Expected: the pixels of the upper row from "
                "left to right, then those of the next row; each pixel with its channels side by side."
            )
        return rows

    def cases(rng: np.random.Generator) -> Iterator[tuple[np.ndarray]]:
        for shape in ((1, 3, 4, 1), (2, 5, 3, 2), (3, 6, 7, 3)):
            yield (rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32),)

    def predict() -> np.ndarray:
        import keras

        start = keras.Input(drawn.shape[1:])
        return keras.Model(start, keras.layers.Lambda(learner)(start)).predict(drawn, verbose=0)

    tried = checks.judge_function(ask, _take_windows, cases)
    drawn = np.random.default_rng().random((4, 6, 5, 2), np.float32)
    found = checks.answer(predict, who="inside a network unfold")
    if found is None:
        raise checks.NotYet(
            "unfold does not run inside a network, where images.shape[0] may be None. Is every step a slice or one of "
            "keras.ops? For the number of images, keras.ops.reshape takes -1."
        )
    if not np.array_equal(np.asarray(found), _take_windows(drawn)):
        raise checks.NotYet("inside a network, unfold gives other numbers than outside.")
    yield checks.keep_right("unfold", learner, f"{tried}, and inside a network")


# ------------------------------------------------------------------------------------------------- its changes


def judge_forms(timed: Mapping[str, timing.Measurement]) -> dict[str, str]:
    """Return what may be claimed of each form but the first: "faster", "slower" or "no claim".

    Args:
        timed: by form, in turn; the first is compared with, and the second is its twin, which does the same work.
    """
    before, twin, *_ = timed.values()
    claims = {}
    for name, run in list(timed.items())[1:]:
        is_claimable = run is twin or timing.is_claimable(before, run, (before, twin))
        claims[name] = timing.decide(before.seconds, run.seconds) if is_claimable else "no claim"
    return claims


def make_claims_table(timed: Mapping[str, timing.Measurement], steps: int) -> Table:
    """Return a table of the forms of a network: a step's time and what may be said of it, here and where recorded.

    Args:
        timed: by form, as `judge_forms` takes them.
        steps: in a run.
    """
    before, *_ = timed.values()
    claims, rows = judge_forms(timed), []
    for name, run in timed.items():
        each = timing.Measurement(name, run.device, tuple(seconds / steps for seconds in run.seconds))
        records.add_run(each, amount="a step", lesson="05b")
        claim = claims.get(name, "")
        words = {
            "faster": f"{before.median / run.median:.2g} times as fast",
            "slower": f"{run.median / before.median:.2g} times as long",
        }
        verdict = words.get(claim, claim)
        low, high = map(timing.duration, each.quartiles)
        rows.append((name, f"{timing.duration(each.median)} ({low} to {high})", verdict))
    headers = ("form", "a step here (middle half)", "beside the article's")
    below = [f"here: {before.device}, {len(before.seconds)} runs of each, in turn."]
    table = records.add_column(Table(rows, headers, below), "05b")
    if all(row[-1] == MISSING for row in table.rows):
        return Table(rows, headers, [*below, "a step on a GPU: not recorded."])
    return Table(table.rows, (*headers, "a step on a GPU"), table.below)
