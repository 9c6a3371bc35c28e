"""How quiet the machine was: small works that never change, done before, between and after all that is timed.

Two runs of one program on one machine have differed by a factor of two. Such a minute shows here, for these works never
change: numbers hashed in the caches, and memory copied, on all cores at once; a number handed from one core to another
and back (`helpers.ranking.handover`). Beside it stands what the system tells: how much the other programs
computed, and what a virtual machine waited for its host (steal time).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from helpers.compute import processes
from helpers.compute.host import usable_cpus
from helpers.measure.tables import Table
from helpers.measure.timing import duration
from helpers.ranking import handover

REPEATS = 15  # of each work at each moment
HASHED = 2**24  # bytes
COPIED = 2**25  # bytes of each thread, there and back
# How far the moments may lie apart, as a share of the fastest. On a virtual machine, at moments when it had its cores
# to itself, the hashes lay within 1.5 % on one day, and 4 to 7 % apart on another. Copies were up to 1.8 times as slow
# at one moment as at another: they depend on where the host has put the cores (below), and on its other machines. So
# the hash speaks for the machine and its score, and the copy for the rows in GB/s alone.
QUIET = {"integer": 0.05, "memory": 0.20}
# The two cores of a virtual machine hand a number over in about 0.18 us at some moments and in 0.42 at others, and the
# training of an MLP, whose steps are short, takes 1.3 times as long then. Within each of these two states the turns
# differ by up to 1.5 times. The speed of a row is that of its faster processes, so some slow moments do not matter:
# with 6 and 8 of 33 two runs lay within 2 %, and with 15 of 33 another one lay 5 % behind them.
SLOW = 1.8  # times as long as at the fastest moment
SLOW_MOMENTS = 1 / 3  # of all moments may be slow
OTHERS = 0.10  # cores that other programs may use on average, for each core that the benchmark may use
STEAL = 0.01  # of the time, for which a virtual machine may wait
MOST_THREADS = 4  # a copy by more of them fills any memory
WORKS = tuple(QUIET)


@dataclass(frozen=True)
class Moment:
    """What the small works took at one moment, in seconds."""

    when: str
    integer: tuple[float, ...]
    memory: tuple[float, ...]
    hand_over: tuple[float, ...] = ()  # there and back; empty where it cannot be measured


@dataclass(frozen=True, repr=False)
class Noise:
    """How far the moments lie apart, and what else ran."""

    moments: tuple[Moment, ...]
    cores: float = 1.0  # that the benchmark could use
    others: float | None = None  # cores that other programs used on average; None where the system does not tell
    steal: float | None = None  # share of the time for which the host did something else; likewise

    def medians(self, work: str) -> list[float]:
        """Return the median of each moment at which a work (a field of Moment) was measured, in seconds."""
        return [float(np.median(seconds)) for moment in self.moments if (seconds := getattr(moment, work))]

    def ratio(self, work: str) -> float:
        """Return how much slower the slowest moment was than the fastest, by their medians: 0.05 is 5 %."""
        medians = self.medians(work)
        return max(medians) / min(medians) - 1

    @property
    def hand_over(self) -> float | None:
        """Seconds from core to core and back at the faster moments (first quartile); None where it was not measured.

        Of the faster ones, as the speed of a row is that of its faster processes.
        """
        medians = self.medians("hand_over")
        return float(np.percentile(medians, 25)) if medians else None

    @property
    def reasons(self) -> list[str]:
        """Why the machine was too noisy; empty if it was quiet. Memory is no reason: `memory` speaks of it."""
        if not self.moments:
            return ["the noise was not measured"]
        found = []
        if self.ratio("integer") > QUIET["integer"]:
            times = 1 + self.ratio("integer")
            found.append(f"the same hash took {times:.2f} times as long at one moment as at another")
        turns = self.medians("hand_over")
        slow = [one for one in turns if one > SLOW * min(turns)]
        if len(slow) > SLOW_MOMENTS * len(turns):
            found.append(
                f"at {len(slow)} of {len(turns)} moments its cores handed a number to each other "
                f"{np.median(slow) / min(turns):.1f} times as slowly as at the best one"
            )
        if self.others is not None and self.others > OTHERS * self.cores:
            found.append(f"other programs kept {self.others:.2f} cores busy, and the benchmark had {self.cores:g}")
        if self.steal is not None and self.steal > STEAL:
            found.append(f"the host of this virtual machine took {self.steal:.1%} of its time")
        return found

    def changed(self, other: Noise) -> str:
        """Return what says that a machine was another one when it was measured again; empty if nothing does.

        A virtual machine may have moved to another host, or its host's clock may have fallen, between two runs which
        were quiet both.
        """
        if not (self.moments and other.moments):
            return ""
        both = (self, other)
        hashes = [float(np.median([one for moment in noise.moments for one in moment.integer])) for noise in both]
        turns = [noise.hand_over for noise in both]
        found = []
        if max(hashes) > (1 + QUIET["integer"]) * min(hashes):
            found.append(f"the same hash took {duration(hashes[0])} and {duration(hashes[1])}")
        if None not in turns and max(turns) > SLOW * min(turns):
            found.append(f"a number went from core to core and back in {duration(turns[0])} and {duration(turns[1])}")
        return ", ".join(found)

    @property
    def memory(self) -> str:
        """Why rows in GB/s may not be compared; empty if they may."""
        if not self.moments or self.ratio("memory") <= QUIET["memory"]:
            return ""
        return f"memory varied by {self.ratio('memory'):.0%}: rows in GB/s may not be compared"

    @property
    def quiet(self) -> bool:
        """Whether nothing was seen that makes the figures doubtful."""
        return not self.reasons

    @property
    def verdict(self) -> str:
        """`quiet`, or `too noisy: ` and the reasons."""
        return "quiet" if self.quiet else f"too noisy: {'; '.join(self.reasons)}"

    def table(self) -> Table:
        """Return what the small works took at each moment, and the verdict below."""
        works = (*WORKS, "hand_over") if self.medians("hand_over") else WORKS
        headers = ("moment", "hash on all cores", "copy on all cores", "core to core and back")[: 1 + len(works)]
        rows = []
        for moment in self.moments:
            seconds = [getattr(moment, work) for work in works]
            rows.append((moment.when, *(duration(float(np.median(some))) if some else "" for some in seconds)))
        return Table(rows, headers, [f"{self}."])

    def __str__(self) -> str:
        memory = f"; {self.memory}" if self.memory else ""
        if not self.quiet:
            return self.verdict + memory
        others = "" if self.others is None else f", other programs kept {self.others:.2f} cores busy"
        apart = f"the same hash within {self.ratio('integer'):.1%} at {len(self.moments)} moments"
        return f"quiet ({apart}{others}){memory}"

    __repr__ = __str__


@dataclass
class Watch:
    """Collects the moments, and what the system tells from the first to the last."""

    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._threads = min(MOST_THREADS, max(1, round(usable_cpus())))
        self._text = bytes(HASHED)
        self._children = 0.0
        self._began, self._at_first = time.perf_counter(), _system()

    def own(self, seconds: float) -> None:
        """Count processor time of a process of the benchmark that has ended as our own.

        Linux and macOS know what the children of a process used, those that were killed among them; Windows does not.
        """
        self._children += seconds if os.name == "nt" else 0.0

    def look(self, when: str) -> None:
        """Do the small works once more."""
        blocks = [[np.ones(COPIED, np.uint8) for _ in range(2)] for _ in range(self._threads)]
        calls = {
            "integer": lambda thread: hashlib.sha256(self._text).digest(),
            "memory": lambda thread: np.copyto(*blocks[thread]),
        }
        with ThreadPoolExecutor(self._threads) as pool:
            seconds: dict[str, list[float]] = {work: [] for work in WORKS}
            for number in range(REPEATS + 1):
                for work in WORKS:
                    begin = time.perf_counter()
                    list(pool.map(calls[work], range(self._threads)))
                    if number:  # the first warms up
                        seconds[work].append(time.perf_counter() - begin)
        self.moments.append(Moment(when, *(tuple(seconds[work]) for work in WORKS), measure_hand_over()))

    def end(self) -> Noise:
        """Return what was seen."""
        seconds = time.perf_counter() - self._began
        busy, own, stolen, whole = np.subtract(_system(), self._at_first)
        others = float(max(0.0, busy - own - self._children) / seconds)
        return Noise(tuple(self.moments), usable_cpus(), others, None if math.isnan(stolen) else float(stolen / whole))


def measure_hand_over() -> tuple[float, ...]:
    """Return the seconds in which two cores handed a number over and back, several times; empty where it is unknown."""
    if not hasattr(os, "sched_setaffinity") or round(usable_cpus()) < 2:
        return ()
    done = processes.run_command([sys.executable, "-I", "-S", handover.__file__], 2 * handover.LIMIT)
    return tuple(json.loads(done.stdout)) if done.status == 0 else ()


def _system() -> tuple[float, float, float, float]:
    """Seconds of processor time since the start: used by all, by this process and its ended children, stolen, all.

    What the system does not tell (stolen time, on Windows and macOS) is not a number.
    """
    import psutil

    times, own = psutil.cpu_times(), os.times()
    # Linux counts guests as user time as well, and neither they nor stolen time are work of this machine.
    busy = (
        sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in ("iowait", "steal", "guest", "guest_nice"))
    )
    stolen = getattr(times, "steal", math.nan)
    whole = busy + times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    return busy, own.user + own.system + own.children_user + own.children_system, stolen, whole
