"""What lesson 16b's attention beside a cache should compute, and what its known mistakes compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from helpers.lessons.lesson_16_faults import CLOSE, FAULTS, RIGHT, Fault, compute_attention, run_pass


class Step(NamedTuple):
    """One new row, and what the cache held before."""

    new: np.ndarray  # queries, keys and values of the row, float32 of shape (3, heads, d)
    cache: np.ndarray  # keys and values, float32 of shape (2, heads, places, d)
    place: int  # of the new row

    def keep_new(self) -> np.ndarray:
        """Return the cache with the new keys and values in their place."""
        kept = self.cache.copy()
        kept[:, :, self.place] = self.new[1:]
        return kept

    def compute_answer(self) -> np.ndarray:
        """Return the right answer, float64 of shape (heads, d)."""
        keys, values = self.keep_new()[:, :, : self.place + 1]
        return compute_attention(self.new[0][:, None], keys, values)[:, 0]


class Mistake(NamedTuple):
    """A known mistake beside a cache; the verdict names it where an answer shows exactly what it shows."""

    fault: Fault = RIGHT
    beyond: int = 0  # places that the row sees after its own; below 0: that it does not see
    keeps_late: bool = False  # the new key and value, after the loop has read the cache
    new: int | None = None  # 0 for the key, 1 for the value: the row's own stands for that of each place
    values: int = 1  # 0: keys are taken for values


MISTAKES = {name: Mistake(fault) for name, fault in FAULTS.items() if not (fault.beyond or fault.always_causal)} | {
    "a piece did not see itself": Mistake(beyond=-1),
    "a piece saw the place after its own": Mistake(beyond=1),
    "a piece saw all places, also those not yet written": Mistake(beyond=10**6),
    "the new key and value were kept only after the loop": Mistake(keeps_late=True),
    "the new key stood at every place": Mistake(new=0),
    "the new value stood at every place": Mistake(new=1),
    "keys were taken for values": Mistake(values=0),
}


def compute_mistake(step: Step, mistake: Mistake) -> np.ndarray:
    """Return the answer of a step with a mistake, float32 of shape (heads, d)."""
    cache = (step.cache if mistake.keeps_late else step.keep_new()).copy()
    if mistake.new is not None:
        cache[mistake.new] = step.new[1 + mistake.new][:, None]
    seen = min(max(step.place + 1 + mistake.beyond, 0), cache.shape[2])
    keys, values = cache[0][:, :seen], cache[mistake.values][:, :seen]
    if not seen:
        return np.full_like(step.new[2], np.nan)
    scores = step.new[0][:, None] @ keys.swapaxes(1, 2)
    return run_pass(scores, values, fault=mistake.fault)[2][:, 0]


def name_mistake(steps: Sequence[Step], answers: Sequence[np.ndarray]) -> str:
    """Return a sentence on the one known mistake that shows the same in all steps; empty if none does, or several."""
    with np.errstate(all="ignore"):
        same = [
            name
            for name, mistake in MISTAKES.items()
            if all(map(_equals, answers, (compute_mistake(step, mistake) for step in steps)))
        ]
    if len(same) != 1:
        return ""
    d = steps[0].new.shape[-1]  # a kernel that divides by a fixed number shows the same for one D
    return f" It is as if {same[0].replace('by D, not by its root', f'by {d}, not by the root of {d}')}."


def _equals(actual: np.ndarray, wrong: np.ndarray) -> bool:
    """Return whether two answers are close; what is not finite counts as equal."""
    return bool((np.isclose(actual, wrong, CLOSE, CLOSE) | ~(np.isfinite(actual) | np.isfinite(wrong))).all())
