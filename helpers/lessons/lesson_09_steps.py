"""Serve lesson 09: what the processes of a training noted of their steps, in numbers and as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from helpers.devices.host import cpu_name
from helpers.measure import plots, timing
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement, Span, duration

Notes = Sequence[tuple[float, float, float]]  # of one process: one row a step, with the columns below

BEGAN, COMPUTED, EXCHANGED = range(3)  # the columns of a training's notes: seconds, one row a step
WARM = 3  # the first steps, which are left out


def _cut_steps(results: Sequence[Notes]) -> dict[str, np.ndarray]:
    """Return a series' synchronous steps and their parts in seconds, each of shape (processes, steps).

    All processes note the time of the same clock, the computer's; the first that is ready waits for the last.

    Args:
        results: each process' notes, shape (steps, 3): when a step began, had computed, had exchanged.
    """
    notes = np.array([result[WARM:] for result in results])
    began, ended = notes[:, :-1, BEGAN], notes[:, 1:, BEGAN]  # a step ends when the next one begins
    computed = notes[:, :-1, COMPUTED]
    last = computed.max(axis=0)
    return {"step": ended - began, "compute": computed - began, "wait": last - computed, "exchange": ended - last}


def measure_step_parts(series: Sequence[Sequence[Notes]]) -> dict[str, float]:
    """Return a synchronous step and its three parts in seconds; the parts add up to the step.

    They are means over all processes and over the middle half of the steps, sorted by their time.

    Args:
        series: of each the notes of its processes.
    """
    cut = [_cut_steps(results) for results in series]
    parts = {name: np.concatenate([steps[name] for steps in cut], axis=1) for name in cut[0]}
    by_time = np.argsort(parts["step"].mean(axis=0))
    left_out = round(len(by_time) / 4)  # at each end: other programs make a few steps much longer
    middle = by_time[left_out : len(by_time) - left_out]
    return {name: float(part[:, middle].mean()) for name, part in parts.items()}


@dataclass(frozen=True)
class Timed:
    """The steps of one process and of two, whose series took turns, and how busy the cores were meanwhile."""

    batch: int  # images of a step
    series: Mapping[int, Sequence[Sequence[Notes]]]  # by the number of processes: of each series their notes
    others: float  # what share of the cores other programs used, as `timing.Load` says

    @property
    def compute(self) -> float:
        """The seconds that each of two processes computes in a step."""
        return measure_step_parts(self.series[2])["compute"]

    @property
    def gain(self) -> str:
        """How many times as fast two processes are as one, or "no claim"."""
        return timing.describe_gain(self._measure_steps(1), self._measure_steps(2), others=self.others)

    def describe(self) -> str:
        """Return a sentence on which is faster and by how much, or why nothing can be claimed."""
        return timing.compare(self._measure_steps(1), self._measure_steps(2), others=self.others)

    def _measure_steps(self, size: int) -> Measurement:
        """Return the seconds of the steps of all series of `size` processes."""
        seconds = np.concatenate([_cut_steps(results)["step"].mean(axis=0) for results in self.series[size]])
        label = f"a step of two processes ({self.batch:,} images)" if size == 2 else "a step of one"
        return Measurement(label, cpu_name(), tuple(seconds.tolist()))


def tabulate_steps(*timed: Timed) -> Table:
    """Return a table of a step and its parts, by batch and number of processes; below it what may be claimed."""
    rows = []
    for one in timed:
        for size, series in one.series.items():
            rows.append((f"{one.batch:,}", size, *map(duration, measure_step_parts(series).values())))
    headers = ["batch", "processes", "a step", "compute", "wait", "exchange"]
    return Table(rows, headers, [one.describe() for one in timed])


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
