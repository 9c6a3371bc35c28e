"""The score: for each network the best device's speed over the reference machine's, and the geometric mean of these.

The reference machine's file is in the gallery (data/results, REFERENCE), and its scores are 100. A geometric mean,
because it is the one mean of ratios that does not depend on which machine is the reference, only scaled by it
(Fleming and Wallace, 1986: How not to lie with statistics: the correct way to summarize benchmark results).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from helpers.ranking import files
from helpers.ranking.results import Result, Row, best, digits
from helpers.ranking.tasks import SCORED, TASKS


class Best(NamedTuple):
    """The device that counts for a task."""

    row: Row
    ratio: float  # its speed over the reference machine's best


@dataclass(frozen=True, repr=False)
class Score:
    """Three numbers, and over what."""

    inference: float | None  # None where none of its tasks was measured
    training: float | None
    overall: float | None
    tasks: dict[str, Best]  # what counted
    missing: tuple[str, ...]  # what the reference machine did and this one did not
    of_how_many: int  # tasks that a whole score is over
    result: Result
    provisional: str = ""  # why the reference machine's result will be replaced; empty if it will not

    def whole(self, kind: str) -> bool:
        """Return whether one of the three numbers (inference, training, overall) is over every task of its kind."""
        return not any(kind in ("overall", TASKS[task].group) for task in self.missing)

    @property
    def reproducible(self) -> bool:
        """Whether the machine was quiet while it was measured."""
        return self.result.noise.quiet

    @property
    def differs(self) -> float | None:
        """How far a second run's overall score may lie off, as a share of it; None with one process a task.

        The errors of the n rows add up as squares and count 1/n each; two runs differ by the root of 2 more than one is
        uncertain; and of 20 runs about 19 are nearer than twice that, where there are many processes.
        """
        errors = [best.row.error for best in self.tasks.values()]
        if not errors or None in errors:
            return None
        return 2 * math.sqrt(2) * math.hypot(*errors) / len(errors)

    def __str__(self) -> str:
        """The three numbers in a line, and what keeps them from being compared."""
        named = {"overall": self.overall, "training": self.training, "inference": self.inference}
        numbers = ", ".join(f"{name} {'none' if value is None else digits(value)}" for name, value in named.items())
        lines = [f"Score: {numbers} (the reference machine: 100), over {len(self.tasks)} of {self.of_how_many} tasks."]
        if self.missing:
            parts = [kind for kind in named if named[kind] is not None and not self.whole(kind)]
            lines.append(f"Not measured: {', '.join(self.missing)}.")
            if parts:
                lines.append(f"So {' and '.join(parts)} may not be compared with scores over all tasks.")
        if not self.reproducible:
            lines.append(f"Not reproducible: the machine was {self.result.noise.verdict}.")
        elif self.differs is None:
            lines.append("How far a second run would differ is unknown: each task ran in one process alone.")
        else:
            lines.append(f"A second run may differ by {self.differs:.1%}, as far as the processes of this one tell.")
        if self.provisional:
            lines.append(f"Provisional: the reference machine's result {self.provisional}.")
        return "\n".join(lines)

    __repr__ = __str__


def score(result: Result, reference: Result | None = None, tasks: Collection[str] = SCORED) -> Score:
    """Score a result.

    Args:
        result: of `measure` or `read`.
        reference: the machine whose scores are 100; the gallery's if None.
        tasks: over these alone, such as those that two machines have in common; their scores are then comparable with
            each other, and with no other.
    """
    reference = files.reference() if reference is None else reference
    theirs, ours = best(reference.rows), best(result.rows)
    asked = [task for task in SCORED if task in theirs and task in tasks]
    counted = {task: Best(ours[task], ours[task].speed / theirs[task].speed) for task in asked if task in ours}

    def mean(group: Iterable[str]) -> float | None:
        ratios = [counted[task].ratio for task in group if task in counted]
        return 100 * statistics.geometric_mean(ratios) if ratios else None

    groups = {name: [task for task in asked if TASKS[task].group == name] for name in ("inference", "training")}
    missing = tuple(task for task in asked if task not in counted)
    provisional = "" if reference.noise.quiet else "was measured while it was too noisy"
    if reference.edition != result.edition:
        provisional = f"is of edition {reference.edition}, this one of edition {result.edition}"
    return Score(mean(groups["inference"]), mean(groups["training"]), mean(asked), counted, missing, len(asked),
                 result, provisional)  # fmt: skip


def comparable(one: Score, other: Score, names: tuple[str, str] = ("yours", "theirs")) -> str:
    """Return why two scores, named so for people, cannot be compared; an empty text if they can."""
    editions = [score.result.edition for score in (one, other)]
    if editions[0] != editions[1]:
        return f"the tasks differ: edition {editions[0]} against {editions[1]}"
    differ = [task for task in TASKS if (task in one.tasks) != (task in other.tasks)]
    if differ:
        return f"only one of the two was measured in: {', '.join(differ)}"
    noisy = [name for name, score in zip(names, (one, other), strict=True) if not score.reproducible]
    if noisy:
        return f"{' and '.join(noisy)}: too noisy"
    kinds = [(score.result.machine.processor, score.result.machine.cores) for score in (one, other)]
    if kinds[0] == kinds[1] and (changed := one.result.noise.changed(other.result.noise)):
        return f"{names[0]} and {names[1]} are one kind of machine in two states: {changed}"
    alone = [name for name, score in zip(names, (one, other), strict=True) if score.differs is None]
    return (
        f"{' and '.join(alone)}: one process a task (preview), so how far a second run differs is unknown"
        if alone
        else ""
    )
