"""Serve lesson 09: what the processes of a training noted of their steps, in numbers and as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from helpers.measure import plots
from helpers.measure.timing import Span

Notes = Sequence[tuple[float, float, float]]  # of one process: one row a step, with the columns below

BEGAN, COMPUTED, EXCHANGED = range(3)  # the columns of a training's notes: seconds, one row a step
WARM = 3  # the first steps, which are left out


def measure_step_parts(results: Sequence[Notes]) -> dict[str, float]:
    """Return a synchronous step and its three parts in seconds; the parts add up to the step.

    They are means over all processes and over the middle half of the steps, sorted by their time. All processes note
    the time of the same clock, the computer's; the first that is ready waits for the last.

    Args:
        results: each process' notes, shape (steps, 3): when a step began, had computed, had exchanged.
    """
    notes = np.array([result[WARM:] for result in results])
    began, ended = notes[:, :-1, BEGAN], notes[:, 1:, BEGAN]  # a step ends when the next one begins
    computed = notes[:, :-1, COMPUTED]
    last = computed.max(axis=0)
    parts = {"step": ended - began, "compute": computed - began, "wait": last - computed, "exchange": ended - last}
    by_time = np.argsort(parts["step"].mean(axis=0))
    left_out = round(len(by_time) / 4)  # at each end: other programs make a few steps much longer
    middle = by_time[left_out : len(by_time) - left_out]
    return {name: float(part[:, middle].mean()) for name, part in parts.items()}


def draw_steps(trainings: Mapping[str, Sequence[Notes]], title: str, pause: float) -> None:
    """Draw when each worker computed, for five steps of the slowest one; between its boxes it waits or exchanges.

    Args:
        trainings: for each training's name the notes of its workers.
        title: the message of the figure.
        pause: seconds that worker 1 sleeps at the end of each computation.
    """
    steps = [np.array(notes) for workers in trainings.values() for notes in workers]
    longest = max(float(np.median(notes[:, EXCHANGED] - notes[:, BEGAN])) for notes in steps)
    shown = {}
    for name, workers in trainings.items():
        begin = min(notes[min(WARM, len(notes) - 1)][BEGAN] for notes in workers)
        shown[f"{name}, a window of five slow steps"] = _cut(workers, begin, begin + 5 * longest, pause)
    plots.draw_timeline(shown, title)


def _cut(workers: Sequence[Notes], begin: float, end: float, pause: float) -> list[Span]:
    """Return what the workers did between two times, as spans for a time line; worker 1 sleeps `pause` seconds."""
    spans = []
    for number, notes in enumerate(workers):
        for began, computed, _ in notes:
            awake = computed - pause if number == 1 else computed
            for what, first, last in (("computes", began, awake), ("sleeps", awake, computed)):
                start, until = max(first, begin), min(last, end)
                if start < until:
                    spans.append((f"worker {number}", what, start, until))
    return spans
