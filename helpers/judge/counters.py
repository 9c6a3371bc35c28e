"""Count from a recorded launch what a kernel asks of a model of a GPU's memory (lesson 15).

The model has three numbers: how many work-items ask together, the length of a line, and the banks of local memory. With
the same numbers the counts are the same on every device; which numbers fit depends on the device.

A GPU runs neighboring work-items of a group together: 32 on NVIDIA's, Apple's and AMD's RDNA, 64 on AMD's CDNA and
GCN, 8 to 32 on Intel's. `Trace.requests` says what such a piece asks of memory at once. The rest is arithmetic. No
record of addresses shows what the caches already hold, which registers the compiler uses, or whom the scheduler lets
run. A count says what a kernel asks for; only a clock says what that costs here.

Two things are not followed exactly: a `struct` counts as a whole, whichever of its members is asked for; and a
work-item's accesses after its first 128 are not listed (`Trace.unseen` says so).
"""

from __future__ import annotations

import collections
from typing import NamedTuple

from helpers.judge.trace import Request, Trace

# Bytes of a line: of a cache in NVIDIA's GPUs, which fetch 32 of them at a time, and of the L2 of AMD's Instinct MI200
# and MI300. Most processors have 64.
LINE = 128
TOGETHER = 32  # work-items that ask at once
BANKS, WORD = 32, 4  # of local memory: how many there are, and how many bytes one of them hands out at once


class Access(NamedTuple):
    """One access of a kernel, in all requests of a launch."""

    in_local: bool  # whether it goes to local memory; otherwise to global
    writes: bool  # whether it writes
    requests: int  # how often a piece of neighbors came to it
    needed: int  # in all requests together the cache lines of global memory, or the turns at local memory
    fewest: int  # how many would do, if the same bytes lay side by side
    used: int  # bytes that were asked for; those that several neighbors ask for at once count once
    line: int  # bytes of a cache line

    def add(self, other: Access) -> Access:
        """Return both as one access, to the same memory and with the same lines."""
        return Access(
            self.in_local,
            self.writes or other.writes,
            self.requests + other.requests,
            self.needed + other.needed,
            self.fewest + other.fewest,
            self.used + other.used,
            self.line,
        )

    @property
    def each(self) -> float:
        """Lines, or turns, of one request: the mean. Nsight Compute's `Sectors/Req` counts pieces of 32 bytes so."""
        return self.needed / self.requests

    @property
    def moved(self) -> int:
        """Bytes of the lines that are needed: lines x bytes of a line; 0 for local memory, which has no lines."""
        return 0 if self.in_local else self.needed * self.line


def count_lines(request: Request, line: int = LINE) -> tuple[int, int]:
    """Return how many cache lines a request for global memory needs, and the fewest that hold as many bytes.

    Needed: the different values of byte // line. Fewest: bytes asked for / line, rounded up. Arrays begin with a whole
    line. Source: CUDA C++ Best Practices Guide (NVIDIA, 12.6, 2024), "Coalesced Access to Global Memory", which counts
    the 32 bytes that a miss moves; use `line=32` for that.

    >>> side_by_side = [(item, 4 * item, 4) for item in range(32)]
    >>> count_lines(Request("x[i]", "x", 0, False, side_by_side))
    (1, 1)
    >>> a_line_apart = [(item, 128 * item, 4) for item in range(32)]
    >>> count_lines(Request("x[32 * i]", "x", 0, False, a_line_apart))
    (32, 1)
    """
    return len(_find_places(request, line)), -(-_sum_bytes(request) // line)


def _find_places(request: Request, line: int) -> set[int]:
    """Return the numbers of the lines of its array that a request needs."""
    return {place for _, first, wide in request.asked for place in range(first // line, -(-(first + wide) // line))}


def count_turns(request: Request) -> tuple[int, int]:
    """Return how many turns local memory takes for a request, and the fewest.

    Word k (4 bytes) is in bank k % BANKS, and a bank hands out one word a turn, to all who want that word. Needed:
    the most different words of one bank. Fewest: different words / BANKS, rounded up. Source: CUDA C++ Best Practices
    Guide (NVIDIA, 12.6, 2024), "Shared Memory and Memory Banks". Others have other banks, or do not publish theirs.

    Work-item i asks for the float part[32 * i], and all of these are in the same bank:

    >>> count_turns(Request("part[32 * i]", "part", 0, False, [(i, 128 * i, 4) for i in range(32)]))
    (32, 1)
    """
    words = {word for _, first, wide in request.asked for word in range(first // WORD, -(-(first + wide) // WORD))}
    return max(collections.Counter(word % BANKS for word in words).values()), -(-len(words) // BANKS)


def _sum_bytes(request: Request) -> int:
    """Return the bytes that a request asks for, each counted once."""
    return sum(wide for _, wide in {(first, wide) for _, first, wide in request.asked})


def count_accesses(recorded: Trace, line: int = LINE, together: int = TOGETHER) -> dict[str, Access]:
    """Return what each access, by its text in the source, needs in all requests of a launch.

    Args:
        recorded: the record of the launch; local memory must be declared in the kernel.
        line: bytes of a cache line.
        together: work-items that ask at once.
    """
    found: dict[str, Access] = {}
    for request in recorded.requests(together):
        in_local = request.array not in recorded.lengths
        needed, fewest = count_turns(request) if in_local else count_lines(request, line)
        access = Access(in_local, request.writes, 1, needed, fewest, _sum_bytes(request), line)
        before = found.get(request.access)
        found[request.access] = before.add(access) if before else access
    return found


def find_lines(recorded: Trace, line: int = LINE) -> dict[str, set[tuple[str, int]]]:
    """Return the different lines of global memory that each access, by its text in the source, needs in a launch.

    A line that several requests ask for is there once: a cache that loses nothing moves it once.

    Args:
        recorded: the record of the launch.
        line: bytes of a cache line.

    Returns:
        For each access its lines, as the array's name and the number of the line.
    """
    found: dict[str, set[tuple[str, int]]] = {}
    for request in recorded.requests():
        if request.array in recorded.lengths:
            places = found.setdefault(request.access, set())
            places.update((request.array, place) for place in _find_places(request, line))
    return found
