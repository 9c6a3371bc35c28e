"""What a recorded launch touched: every access, the races among them, and what neighbours asked of memory at once.

`opencl_recorder` and `wgsl_recorder` make the record; `counters` counts what makes a kernel slow.

A race shows only when two work-items meet, and a driver may run a work-group so that they never do. What decides is
what the kernel asks for: two work-items that touch the same element, one of them writing, with no barrier between.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MAX_ARRAYS = 16
# What a recorder writes for a touch: these bits, ARRAY times the array's number, and SITE times that of the place in
# the source where it is asked for. MORE: a vector's element after its first.
READ, WRITE, ATOMIC, INSIDE, MORE, ARRAY = 1, 2, 4, 8, 16, 32
SITE = ARRAY * MAX_ARRAYS
LOCAL_FENCE, GLOBAL_FENCE = 1, 1 << 16  # what a barrier adds to the fences that a work-item has met


@dataclass(frozen=True)
class Touch:
    """One access of one work-item to one element of one array."""

    item: int  # the number of the work-item, counted through all dimensions (dimension 0 runs fastest)
    array: str  # the name of the kernel's parameter, or of the array that it declares in local memory
    index: int  # the element that was asked for, also one that does not exist; several indices are counted as one
    reads: bool  # whether it read the element
    writes: bool  # whether it wrote it; with neither, only the address was taken (`&array[index]`)
    inside: bool  # whether the array has that element
    barriers: int  # how many barriers that order this memory the work-item had met before
    atomic: bool = False  # whether an atomic function did it
    rounds: int = 0  # how many barriers with a fence for local memory it had met before, whatever memory this is

    def __str__(self) -> str:
        """Return the access for a message, such as `work-item 3 touches x[4]`."""
        return f"work-item {self.item} touches {self.array}[{self.index}]"


class Request(NamedTuple):
    """What neighboring work-items ask of one array at once: one access, the n-th time that each comes to it."""

    access: str  # as it is written in the source
    array: str  # its name
    group: int  # the number of the work-group
    lanes: int  # work-items of the piece, also those that do not ask
    writes: bool  # whether it writes
    asked: list[tuple[int, int, int]]  # for each element: the work-item, the first byte in the array, the bytes


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What every work-item of one launch was called and touched, as recorded on the device."""

    device: str  # the name of the device that ran the kernel
    lengths: dict[str, int]  # the elements of each array that was given; one element of a float16 array is 16 floats
    global_ids: np.ndarray  # int, of shape (work-items, 3); likewise:
    local_ids: np.ndarray
    group_ids: np.ndarray
    global_accesses: np.ndarray  # int, of shape (work-items,): to the given arrays; one of a vector counts once
    barriers: np.ndarray  # likewise, the barriers that each work-item met
    unseen: list[str]  # what the kernel does that the recorder cannot follow
    _arrays: list[str]
    _listed: np.ndarray  # int, of shape (touches, 1 + TOUCH): the work-item, then what the device recorded
    # Lesson 14's record of WGSL has none of the following.
    arrays: Sequence[np.ndarray] = ()  # those that were given, in their order, as the kernel left them
    # For `requests`:
    _element_bytes: Sequence[int] = ()  # of each array
    _sites: Sequence[str] = ()  # the text of each access in the source
    loop_rounds: Sequence[int] = ()  # how often each work-item went round a loop

    def __repr__(self) -> str:
        """Return one line: a notebook prints it where the record is the last value of a cell."""
        accesses = f"{len(self.touches)} accesses, {len(self.outside)} outside an array"
        return f"<record of {len(self.global_ids)} work-items on {self.device}: {accesses}>"

    @functools.cached_property
    def touches(self) -> list[Touch]:
        """Every access, work-item by work-item, at most MAX_TOUCHES of each."""
        return [self._touch(*row) for row in self._listed.tolist()]

    @functools.cached_property
    def outside(self) -> list[Touch]:
        """The accesses to elements that do not exist."""
        return [self._touch(*row) for row in self._listed[self._listed[:, 1] & INSIDE == 0].tolist()]

    def _touch(self, item: int, what: int, low: int, high: int, fences: int) -> Touch:
        index = (high << 32) + (low & 0xFFFFFFFF)
        reads, writes, atomic, inside = (bool(what & bit) for bit in (READ, WRITE, ATOMIC, INSIDE))
        array = self._arrays[what % SITE // ARRAY]
        of_global, of_local = divmod(fences, GLOBAL_FENCE)
        barriers = of_global if array in self.lengths else of_local
        return Touch(item, array, index, reads, writes, inside, barriers, atomic, of_local)

    def _group_by_element(self) -> dict[tuple, list[Touch]]:
        """Return the touches of each element by array, index and work-group; None is the group for global memory."""
        touches_of: dict[tuple, list[Touch]] = {}
        for touch in self.touches:
            owner = None if touch.array in self.lengths else self._groups[touch.item]
            touches_of.setdefault((touch.array, touch.index, owner), []).append(touch)
        return touches_of

    @functools.cached_property
    def _groups(self) -> list[int]:
        """The number of each work-item's group."""
        return np.unique(self.group_ids, axis=0, return_inverse=True)[1].reshape(-1).tolist()

    def races(self) -> list[str]:
        """Return a sentence for each element over which work-items race.

        A barrier orders the kind of memory that its fence names, for the work-items of one group alone (OpenCL C 1.2,
        6.12.8). Atomic functions do not race with each other.
        """
        races = []
        for touches in self._group_by_element().values():
            if pair := self._find_race(touches):
                items = f"work-items {pair[0].item} and {pair[1].item}"
                races.append(f"{items} both {_describe_race(*pair)}, and {self._describe_missing_barrier(pair[0])}")
        return races

    def _find_race(self, touches: list[Touch]) -> tuple[Touch, Touch] | None:
        """Return the first two of one element's touches that race, two writes before any others."""
        writes = [touch for touch in touches if touch.writes]
        for ones, others in ((writes, writes), (writes, touches), (touches, writes)):
            for first, second in itertools.product(ones, others):
                if first.item < second.item and self._is_race(first, second):
                    return first, second
        return None

    def _is_race(self, first: Touch, second: Touch) -> bool:
        if first.atomic and second.atomic:
            return False
        if not (first.reads or first.writes) or not (second.reads or second.writes):  # only the address was taken
            return False
        return self._groups[first.item] != self._groups[second.item] or first.barriers == second.barriers

    def _describe_missing_barrier(self, touch: Touch) -> str:
        if not self.barriers.any():
            return "nothing orders them"
        memory = "" if touch.array in self.lengths else "for local memory "
        return f"no barrier {memory}lies between"

    def unwritten(self) -> list[str]:
        """Return a sentence for each element of local memory that is read before any work-item has written it."""
        found: list[str] = []
        if self.unseen:  # a write may be missing
            return found
        for (array, index, owner), touches in self._group_by_element().items():
            writes = [touch for touch in touches if touch.writes and not touch.reads]
            if owner is None:  # in global memory, which the host has filled
                continue
            for touch in touches:
                before = (write.barriers < touch.barriers or write.item == touch.item for write in writes)
                if touch.reads and not any(before):
                    found.append(f"work-item {touch.item} reads {array}[{index}], which nobody has written before")
                    break
        return found

    def requests(self, together: int = 32) -> list[Request]:
        """Return what neighbours ask of memory at once, in the order in which the first of them asks (`counters`).

        A GPU runs a work-group in pieces of neighbours, whose local ids follow each other. The n-th time that one of
        them comes to an access belongs to the n-th time of the others.

        Args:
            together: work-items of a piece.
        """
        size = self.local_ids.max(axis=0) + 1
        place = (self.local_ids[:, 2] * size[1] + self.local_ids[:, 1]) * size[0] + self.local_ids[:, 0]
        times: collections.Counter[tuple[int, int]] = collections.Counter()
        found: dict[tuple[int, int, int, int], Request] = {}  # by access, time, work-group and piece
        for item, what, low, high, _ in self._listed.tolist():
            array, site = what % SITE // ARRAY, what // SITE
            if not what & MORE:
                times[item, site] += 1
            group, piece = self._groups[item], int(place[item]) // together
            key = site, times[item, site], group, piece
            if key not in found:
                lanes = min(together, int(size.prod()) - piece * together)
                found[key] = Request(self._sites[site], self._arrays[array], group, lanes, bool(what & WRITE), [])
            wide = self._element_bytes[array]
            found[key].asked.append((item, ((high << 32) + (low & 0xFFFFFFFF)) * wide, wide))
        return list(found.values())

    def report(self) -> str:
        """Return the first races and accesses outside in words, or that none was seen, and what was not followed."""
        found = self.races() + [f"{touch}, which does not exist" for touch in self.outside] or self.unwritten()
        lines = found[:3]
        if len(found) > 3:
            lines.append(f"... and {len(found) - 3} more")
        if not found:
            lines.append(f"no race seen in {self._name_touched_arrays()}, among {len(self.global_ids)} work-items")
        return "\n".join([*lines, *(f"not followed: {what}" for what in self.unseen)])

    def _name_touched_arrays(self) -> str:
        """Return the names of the arrays that were touched, such as `x, total`."""
        touched = sorted({int(what) % SITE // ARRAY for what in np.unique(self._listed[:, 1])})
        return ", ".join(self._arrays[number] for number in touched) or "any array"


def _describe_race(first: Touch, second: Touch) -> str:
    element = f"{first.array}[{first.index}]"
    return f"write {element}" if first.writes and second.writes else f"touch {element}, one of them writes it"
