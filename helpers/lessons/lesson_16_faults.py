"""What lesson 16's kernels should compute, in float64, and what its known mistakes compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from helpers.judge import kernel_checks
from helpers.judge.checks import NotYet

Pass = tuple[np.ndarray, np.ndarray, np.ndarray]  # the largest, the sum and the answer

CLOSE = 1e-3  # of a right answer's numbers, relative and absolute: a device's exp() may be off by some last digits


def compute_softmax(scores: np.ndarray) -> np.ndarray:
    """Return the shares of a row of scores, in float64: all above 0, together 1."""
    powers = np.exp(scores.astype(float) - scores.max())
    return powers / powers.sum()


def compute_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    """Return attention in float64, its rows of scores in memory.

    Args:
        q: queries, of shape (heads, m, d).
        k, v: keys and values, of shape (heads, n, d).
        causal: whether query i sees the keys 0 to i alone.
    """
    scores = q.astype(float) @ k.swapaxes(1, 2).astype(float) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(_list_seen(scores, 0), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def _list_seen(scores: np.ndarray, beyond: int) -> np.ndarray:
    """Return which keys each query sees, of shape (m, n): up to its own place and `beyond`."""
    queries, keys = np.indices(scores.shape[-2:])
    return keys <= queries + beyond


class Fault(NamedTuple):
    """A known mistake in a row's single pass; the verdict names it where an answer shows exactly what it shows."""

    start: float = -np.inf  # where the largest begins
    rescales_sum: bool = True
    rescales_answer: bool = True
    rescales_new: bool = False  # the new power, too
    divides_inside: bool = False  # each answer so far by the sum so far, and not at the end
    divides: bool = True  # the answer by the sum
    power: float = 0.5  # of d, by which a score is divided
    beyond: int = 0  # a causal query sees keys up to its own place and this
    always_causal: bool = False
    keeps_hidden: bool = False  # a key that a causal query may not see gets the score 0


RIGHT = Fault()
ROW_FAULTS = {
    "the sum were not rescaled": Fault(rescales_sum=False),
    "the largest began at 0": Fault(start=0.0),
    "the new power were rescaled, too": Fault(rescales_new=True),
}
FAULTS = ROW_FAULTS | {
    "the answer were not rescaled": Fault(rescales_answer=False),
    "neither the sum nor the answer were rescaled": Fault(rescales_sum=False, rescales_answer=False),
    "the division stood inside the loop": Fault(divides_inside=True),
    "the answer were not divided by the sum": Fault(divides=False),
    "scores were divided by D, not by its root": Fault(power=1),
    "scores were not divided by the root of D": Fault(power=0),
    "a causal query did not see its own key": Fault(beyond=-1),
    "a causal query saw one key too many": Fault(beyond=1),
    "the keys after a query were left out where causal is 0, too": Fault(always_causal=True),
    "a causal query saw all keys": Fault(beyond=10**6),
    "hidden keys had the score 0 and were not left out": Fault(beyond=10**6, keeps_hidden=True),
}


def run_pass(scores: np.ndarray, v: np.ndarray, causal: bool = False, fault: Fault = RIGHT) -> Pass:
    """Return the largest, the sum and the answer after a single pass over rows of scores, in float32.

    Args:
        scores: float32, of shape (..., m, n), not yet divided by the root of d.
        v: values, float32 of shape (..., n, d).
        causal: whether query i sees the keys 0 to i alone.
        fault: a mistake, or RIGHT.
    """
    scores = scores * np.float32(v.shape[-1] ** -fault.power)
    causal = causal or fault.always_causal
    if causal and fault.keeps_hidden:
        scores = np.where(_list_seen(scores, 0), scores, np.float32(0))
    largest = np.full(scores.shape[:-1], fault.start, np.float32)
    total, answer = np.zeros_like(largest), np.zeros((*largest.shape, v.shape[-1]), np.float32)
    seen = _list_seen(scores, fault.beyond if causal else scores.shape[-1])
    for j in range(scores.shape[-1]):
        following = np.where(seen[:, j], np.maximum(largest, scores[..., j]), largest)
        weight = np.where(seen[:, j], np.exp(scores[..., j] - following), np.float32(0))
        old = np.where(np.isneginf(following), np.float32(1), np.exp(largest - following))
        added = weight * old if fault.rescales_new else weight
        total = total * (old if fault.rescales_sum else 1) + added
        answer = answer * (old[..., None] if fault.rescales_answer else 1) + added[..., None] * v[..., j, None, :]
        if fault.divides_inside:
            answer = np.where(seen[:, j, None], answer / total[..., None], answer)
        largest = following
    return largest, total, answer / total[..., None] if fault.divides and not fault.divides_inside else answer


def list_rows() -> dict[str, np.ndarray]:
    """Return rows of scores that tell a right pass from a wrong one, by what they are; float32."""
    rng = np.random.default_rng()
    peak = rng.normal(size=31)
    peak[17] = 3e4
    rows = {
        "random scores": rng.normal(0, 3, 49),
        "one score of -1e30": np.array([-1e30]),
        "scores that rise": np.linspace(-20, 20, 49),
        "scores that fall": np.linspace(20, -20, 49),
        "scores that alternate": np.tile([-15.0, 15.0], 50),
        "equal scores": np.full(7, 2.0),
        "scores below -2,000": rng.integers(-2_020, -2_000, 7),
        "one score of 30,000": peak,
    }
    return {name: row.astype(np.float32) for name, row in rows.items()}


class Shown(NamedTuple):
    """What a kernel computed in one launch, and what it was given."""

    where: str  # in words
    scores: np.ndarray  # float32, of shape (heads, m, n), not yet divided by the root of d
    v: np.ndarray  # float32, of shape (heads, n, d)
    causal: bool
    runs: tuple[np.ndarray, np.ndarray]  # bits of the numbers after each of kernel_checks.FILLS
    expected: np.ndarray  # float64, of the same shape as the numbers

    def read(self) -> np.ndarray:
        """Return the numbers, float64 of the shape of what was expected."""
        return self.runs[0].view(np.float32).astype(float).reshape(self.expected.shape)

    def find_wrong(self) -> tuple[int, ...] | None:
        """Return where the first wrong number is; None if all are right."""
        chance = (self.runs[0] != self.runs[1]).reshape(self.expected.shape)
        wrong = np.argwhere(chance | ~np.isclose(self.read(), self.expected, CLOSE, CLOSE))
        return tuple(map(int, wrong[0])) if len(wrong) else None

    def describe(self, place: tuple[int, ...]) -> str:
        """Return in words what came at a place."""
        first, second = (bits.reshape(self.expected.shape)[place] for bits in self.runs)
        if kernel_checks.find_unwritten(first, second):
            return "nothing: it was never written"
        chance = ", which depends on what the output held before" if first != second else ""
        number = self.read()[place]
        arises = " (0 / 0, inf - inf and 0 * inf give nan)" if np.isnan(number) and not chance else ""
        return f"{number:.6g}{chance}{arises}"


def refuse_wrong(
    shown: Sequence[Shown],
    faults: Mapping[str, Fault],
    pick: Callable[[Pass], np.ndarray],
    name: Callable[[tuple[int, ...]], str],
) -> None:
    """Refuse a kernel whose numbers are wrong, and name the one mistake that shows the same everywhere.

    Args:
        shown: all that it computed.
        faults: the mistakes that may be named.
        pick: the numbers that the kernel writes, of those that `run_pass` returns.
        name: what a number is, from its place.
    """
    for each in shown:
        place = each.find_wrong()
        if place is None:
            continue
        message = f"{each.where}: {name(place)}: expected {each.expected[place]:.6g}, came {each.describe(place)}."
        with np.errstate(all="ignore"):
            same = [text for text, fault in faults.items() if all(_shows(other, fault, pick) for other in shown)]
        raise NotYet(f"{message} It is as if {same[0]}." if len(same) == 1 else message)


def _shows(shown: Shown, fault: Fault, pick: Callable[[Pass], np.ndarray]) -> bool:
    """Return whether a pass with this mistake shows the same; what is not finite counts as equal."""
    actual, wrong = shown.read(), pick(run_pass(shown.scores, shown.v, shown.causal, fault))
    return bool((np.isclose(actual, wrong, CLOSE, CLOSE) | ~(np.isfinite(actual) | np.isfinite(wrong))).all())
