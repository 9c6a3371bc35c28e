"""Serve lesson 04b, Judge a training run: its checks, and the figure of its pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, show


def compute_interval(right: int, count: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of an accuracy, from 0 to 1: 1.96 standard errors to either side."""
    share = right / count
    reach = 1.96 * math.sqrt(share * (1 - share) / count)
    return share - reach, share + reach


@checks.print_verdict
def check_interval(learner: Callable[[int, int], Sequence[float]]) -> Iterator[str]:
    """Judge exercise 1; each end may be off by a tenth of the reach, as for 2 or for Wilson's formula."""
    rng = np.random.default_rng()
    cases = [(9_818, 10_000), (900, 1_000), (30_000, 60_000)]
    cases += [(int(count * rng.uniform(0.2, 0.97)), count) for count in rng.integers(2_000, 90_000, 5).tolist()]
    for right, count in cases:
        who = f"interval({right}, {count})"
        found = checks.answer(learner, right, count, who=who)
        if found is None or found is ...:
            raise checks.NotDone(f"{who} returns {found}.")
        expected = compute_interval(right, count)
        try:
            ends = np.asarray(found).astype(float, casting="same_kind")
        except (TypeError, ValueError, OverflowError):
            ends = np.empty(0)
        if ends.shape != (2,) or not np.allclose(ends, expected, rtol=0, atol=0.05 * (expected[1] - expected[0])):
            low, high = expected
            is_number = ends.shape == (2,) and np.allclose(ends / count, expected, atol=0.001)
            why = " These are numbers of images: divide them by all images." if is_number else ""
            raise checks.NotYet(f"{who}: expected about ({low:.5f}, {high:.5f}), came {checks.short(found)}.{why}")
    yield checks.keep_right("interval", learner, f"{len(cases)} cases")


def compute_luck(old: np.ndarray, new: np.ndarray) -> float:
    """Return how often fair coins split as unevenly as two networks' answers (McNemar's exact test, two-sided).

    Args:
        old: whether the first network is right, one bool an image.
        new: the same of the second network.
    """
    gained, lost = int((new & ~old).sum()), int((old & ~new).sum())
    coins = gained + lost
    tail = sum(math.comb(coins, heads) for heads in range(max(gained, lost), coins + 1))
    return min(1.0, 2 * tail / 2**coins)


def draw_answers(gained: int, lost: int, both: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whether an old and a new network are right: arrays of bools, one entry an image, in a random order.

    Args: how many images only the new network reads right, only the old one, both of them, and neither.
    """
    order = np.random.default_rng().permutation(gained + lost + both + neither)
    old = np.repeat([False, True, True, False], [gained, lost, both, neither])
    new = np.repeat([True, False, True, False], [gained, lost, both, neither])
    return old[order], new[order]


@checks.print_verdict
def check_luck(learner: Callable[[np.ndarray, np.ndarray], float]) -> Iterator[str]:
    """Judge exercise 2; 0.01 may be missing, as where coins are thrown, or for McNemar's chi-square."""
    cases = [(9, 1, 80, 10), (60, 40, 800, 100), (40, 60, 800, 100), (8, 8, 900, 84), (0, 0, 90, 10)]
    cases += [(30, 50, 900, 20), (1, 0, 9, 0), (0, 12, 500, 20), (900, 800, 8_000, 300)]
    for counts in cases:
        gained, lost, *_ = counts
        old, new = draw_answers(*counts)
        expected = compute_luck(old, new)
        who = f"for {gained} gained and {lost} lost of {sum(counts):,} images, luck"
        found = checks.answer(learner, old.copy(), new.copy(), who=who)
        if found is None or found is ...:
            raise checks.NotDone(f"{who} returned {found}.")
        is_number = isinstance(found, int | float | np.integer | np.floating) and not isinstance(found, bool)
        if not is_number or not -0.01 <= found <= 1.01:  # thrown coins may give a little more than 1
            raise checks.NotYet(f"{who} returned {checks.short(found)}; expected a number from 0 to 1.")
        if not math.isclose(found, expected, rel_tol=0, abs_tol=0.01):
            why = " The other direction counts, too." if math.isclose(found, expected / 2, abs_tol=0.0005) else ""
            raise checks.NotYet(f"{who} returned {found:.3g}; expected about {expected:.3g}.{why}")
    yield checks.keep_right("luck", learner, f"{len(cases)} cases")


def wins_all(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Return whether the second network of every pair reads more images than the first; exercise 3 writes this."""
    return all(new.sum() > old.sum() for old, new in pairs)


@checks.print_verdict
def check_wins_all(learner: Callable[[list[tuple[np.ndarray, np.ndarray]]], bool]) -> Iterator[str]:
    """Judge exercise 3: a change is accepted only if it wins with every seed."""
    cases = [[(90, 91)], [(91, 90)], [(90, 90)], [(80, 99), (90, 89)], [(90, 89), (80, 99)], [(90, 91), (90, 91)]]
    cases += [[(90, 91), (95, 95), (90, 99)], [(90, 95), (80, 81), (96, 99), (97, 98), (88, 89)], [(99, 0), (0, 99)]]
    cases += [[(90, 95), (80, 81), (96, 92), (97, 98), (88, 89)]]
    for counts in cases:
        pairs = []
        for old, new in counts:
            both = max(min(old, new) - 5, 0)  # so that each pair has images that are gained and others that are lost
            pairs.append(draw_answers(new - both, old - both, both, 1))
        who = "with " + ", ".join(f"{old} and {new}" for old, new in counts) + " images right, wins_all"
        found, expected = checks.answer(learner, pairs, who=who), wins_all(pairs)
        if found is None:
            raise checks.NotDone(f"{who} returned nothing. ({checks.RETURNS})")
        if not isinstance(found, bool | np.bool_) or found != expected:
            raise checks.NotYet(f"{who} returned {checks.short(found)}; expected {expected}.")
    yield checks.keep_right("wins_all", learner, f"{len(cases)} cases")


def draw_pairs(pairs: Mapping[int, tuple[np.ndarray, np.ndarray]], names: tuple[str, str], title: str) -> None:
    """Draw for each seed the accuracies of two ways of training, joined, and the images that only one of them reads.

    Args:
        pairs: for each seed two arrays of bools, whether each validation image is right.
        names: of the two ways.
        title: the message of the figure, with the dataset.
    """
    rows, words = range(len(pairs)), []
    shares = 100 * np.array([[right.mean() for right in pair] for pair in pairs.values()])
    with figure(7.0, 0.42 * len(pairs) + 1.8, title) as (drawn, axes):
        for row, (seed, (old, new)) in enumerate(pairs.items()):
            gap = f"+{(new & ~old).sum()}, -{(old & ~new).sum()}"
            axes.plot(shares[row], [row, row], color=GREY, lw=1.5, zorder=1)
            axes.text(shares[row].max(), row, f"   {gap}", fontsize=9, va="center")
            words.append(f"seed {seed}: {shares[row, 0]:.2f} % and {shares[row, 1]:.2f} % ({gap} images)")
        for way, (color, marker) in enumerate([(ORANGE, "o"), (BLUE, "s")]):
            axes.scatter(shares[:, way], rows, color=color, marker=marker, label=names[way])
        axes.set_yticks(rows, [f"seed {seed}" for seed in pairs])
        axes.margins(x=0.3)
        axes.set(xlabel="accuracy on the validation images (%)", ylim=(len(pairs) - 0.5, -0.5))
        drawn.legend(loc="outside lower center", ncols=2)
    show(drawn, f"{title}. {names[0]} and {names[1]}: {'; '.join(words)}.")
