"""What a recorded launch touched: every access, the races among them, and what neighbors asked of memory at once.

`opencl_recorder` and `wgsl_recorder` make the record; `counters` counts what makes a kernel slow.

A race shows only when two work-items meet, and a driver may run a work-group so that they never do. What decides is
what the kernel asks for: two work-items that touch the same element, one of them writing, with no barrier between.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

MAX_ARRAYS = 16
# What a recorder writes for a touch: these bits, ARRAY times the array's number, and SITE times that of the place in
# the source where it is asked for. MORE: a vector's element after its first.
READ, WRITE, ATOMIC, INSIDE, MORE, ARRAY = 1, 2, 4, 8, 16, 32
SITE = ARRAY * MAX_ARRAYS
PART = 1 << 15  # a touch of a part of an element: where it begins in the element, plus PART times its bytes
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
    place: int = 0  # of how many accesses that its work-item made before
    part: tuple[int, int] = (0, PART)  # the bytes of the element that it touched: from, to; of a whole one, all

    def __str__(self) -> str:
        """Return the access for a message, such as `work-item 3 touches x[4]`."""
        return f"work-item {self.item} touches {self.array}[{self.index}]"


class Request(NamedTuple):
    """What neighboring work-items ask of one array at once: one access, the n-th time that each comes to it."""

    access: str  # as written in the source
    array: str  # its name
    group: int  # the number of the work-group
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
    notes: Sequence[str] = ()  # what other devices may refuse
    loop_rounds: Sequence[int] = ()  # how often each work-item went round a loop
    _has_locks: bool = False  # whether it has a fence, or an atomic function that makes a lock
    _threes: Mapping[str, str] = field(default_factory=dict)  # the type of each array of vectors of three

    def __repr__(self) -> str:
        """Return one line: a notebook prints it where the record is the last value of a cell."""
        accesses = f"{len(self.touches)} accesses, {len(self.outside)} outside an array"
        return f"<record of {len(self.global_ids)} work-items on {self.device}: {accesses}>"

    @functools.cached_property
    def touches(self) -> list[Touch]:
        """Every access, work-item by work-item, at most MAX_TOUCHES of each."""
        counted: collections.Counter[int] = collections.Counter()
        found = []
        for row in self._listed.tolist():
            found.append(self._touch(*row, place=counted[row[0]]))
            counted[row[0]] += 1
        return found

    @functools.cached_property
    def outside(self) -> list[Touch]:
        """The accesses to elements that do not exist."""
        return [self._touch(*row) for row in self._listed[self._listed[:, 1] & INSIDE == 0].tolist()]

    def _touch(self, item: int, what: int, low: int, high: int, fences: int, part: int = 0, place: int = 0) -> Touch:
        index = (high << 32) + (low & 0xFFFFFFFF)
        reads, writes, atomic, inside = (bool(what & bit) for bit in (READ, WRITE, ATOMIC, INSIDE))
        array = self._arrays[what % SITE // ARRAY]
        of_global, of_local = divmod(fences, GLOBAL_FENCE)
        barriers = of_global if array in self.lengths else of_local
        size, first = divmod(part, PART)
        bytes_of_it = (first, first + size) if part else (0, PART)
        return Touch(item, array, index, reads, writes, inside, barriers, atomic, of_local, place, bytes_of_it)

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
                races.append(f"{items} both {_describe_race(*pair)}, {self._describe_missing_order(*pair)}")
        return races

    def has_racing_read(self) -> bool:
        """Return whether a work-item reads what another may write at that time: what it reads may differ each run."""
        for repeated in self._group_by_element().values():
            touches = _drop_repeated(repeated)
            reads = [touch for touch in touches if touch.reads and not touch.atomic]
            writes = [touch for touch in touches if touch.writes]
            pairs = itertools.product(reads, writes)
            if any(read.item != write.item and self._is_race(read, write) for read, write in pairs):
                return True
        return False

    def _find_race(self, touches: list[Touch]) -> tuple[Touch, Touch] | None:
        """Return the first two of one element's touches that race, two writes before any others."""
        touches = _drop_repeated(touches)
        if all(touch.atomic for touch in touches):
            return None
        writes = [touch for touch in touches if touch.writes]
        for ones, others in ((writes, writes), (writes, touches), (touches, writes)):
            plain = [touch for touch in others if not touch.atomic]
            for first in ones:
                for second in plain if first.atomic else others:
                    if first.item < second.item and self._is_race(first, second):
                        return first, second
        return None

    def _is_race(self, first: Touch, second: Touch) -> bool:
        if first.atomic and second.atomic:
            return False
        if not (first.reads or first.writes) or not (second.reads or second.writes):  # only the address was taken
            return False
        if first.part[0] >= second.part[1] or second.part[0] >= first.part[1]:  # other members of a structure
            return False
        if self._groups[first.item] == self._groups[second.item] and first.barriers != second.barriers:
            return False
        return not (self._has_locks and self._may_be_ordered(first, second))

    def _may_be_ordered(self, first: Touch, second: Touch) -> bool:
        """Return whether atomic functions may order two accesses, as in a lock, a counter, or a repeated exchange."""
        if first.array not in self.lengths:
            return False
        return any(
            self._is_handed_on(*pair) or self._is_tried_again(*pair) for pair in ((first, second), (second, first))
        )

    def _is_handed_on(self, giver: Touch, taker: Touch) -> bool:
        """Return whether the giver's group sets an element atomically after its access, and the taker's asks before."""
        after = {
            each[:2]
            for each in self._list_atomics(giver)
            if _is_before((giver.item, giver.place, giver.rounds), each[2:])
        }
        before = {
            each[:2]
            for each in self._list_atomics(taker)
            if _is_before(each[2:], (taker.item, taker.place, taker.rounds))
        }
        return bool((after & before) - {(giver.array, giver.index)})

    def _is_tried_again(self, reader: Touch, changer: Touch) -> bool:
        """Return whether a work-item reads an element only to exchange it atomically, if nobody changed it since."""
        element = (reader.array, reader.index)
        own = [each for each in self._list_atomics(reader) if each[:3] == (*element, reader.item)]
        return changer.atomic and not reader.writes and any(each[3] > reader.place for each in own)

    def _list_atomics(self, touch: Touch) -> list[tuple[str, int, int, int, int]]:
        """Return the array, index, work-item, place and rounds of each atomic access of a touch's work-group."""
        return self._atomics.get(self._groups[touch.item], [])

    @functools.cached_property
    def _atomics(self) -> dict[int, list[tuple[str, int, int, int, int]]]:
        found: dict[int, list[tuple[str, int, int, int, int]]] = {}
        for touch in self.touches:
            if touch.atomic:
                each = (touch.array, touch.index, touch.item, touch.place, touch.rounds)
                found.setdefault(self._groups[touch.item], []).append(each)
        return found

    def has_unknown_order(self) -> bool:
        """Return whether atomic functions may order accesses that would otherwise race: that is not followed."""
        if not self._has_locks:
            return False
        ordered = len(self.races())
        unordered = len(dataclasses.replace(self, _has_locks=False).races())
        return unordered > ordered

    def _describe_missing_order(self, first: Touch, second: Touch) -> str:
        if not self.barriers.any():
            return "and nothing orders them"
        if self._groups[first.item] != self._groups[second.item]:
            return "and they belong to different work-groups, which no barrier orders"
        memory = "" if first.array in self.lengths else "for local memory "
        return f"and no barrier {memory}lies between"

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
        """Return what neighbors ask of memory at once, in the order in which the first of them asks (`counters`).

        A GPU runs a work-group in pieces of neighbors, whose local ids follow each other. The n-th time that one of
        them comes to an access belongs to the n-th time of the others.

        Args:
            together: work-items of a piece.
        """
        size = self.local_ids.max(axis=0) + 1
        place = (self.local_ids[:, 2] * size[1] + self.local_ids[:, 1]) * size[0] + self.local_ids[:, 0]
        times: collections.Counter[tuple[int, int]] = collections.Counter()
        found: dict[tuple[int, int, int, int], Request] = {}  # by access, time, work-group and piece
        for item, what, low, high, *_ in self._listed.tolist():
            array, site = what % SITE // ARRAY, what // SITE
            if not what & MORE:
                times[item, site] += 1
            group, piece = self._groups[item], int(place[item]) // together
            key = site, times[item, site], group, piece
            if key not in found:
                found[key] = Request(self._sites[site], self._arrays[array], group, bool(what & WRITE), [])
            wide = self._element_bytes[array]
            found[key].asked.append((item, ((high << 32) + (low & 0xFFFFFFFF)) * wide, wide))
        return list(found.values())

    def report(self) -> str:
        """Return the first races and accesses outside in words, or that none was seen, and what was not followed."""
        found = self.races() + [self._describe_outside(touch) for touch in self.outside] or self.unwritten()
        lines = found[:3]
        if len(found) > 3:
            lines.append(f"... and {len(found) - 3} more")
        if not found:
            lines.append(f"no race seen in {self._name_touched_arrays()}, among {len(self.global_ids)} work-items")
        notes = [f"elsewhere: {note}" for note in self.notes]
        return "\n".join([*lines, *(f"not followed: {what}" for what in self.unseen), *notes])

    def _describe_outside(self, touch: Touch) -> str:
        return f"{touch}, which does not exist{self.explain_threes(touch.array)}"

    def explain_threes(self, array: str) -> str:
        """Return that a vector of three takes the room of four, for an array of such vectors; otherwise nothing."""
        kind = self._threes.get(array)
        if kind is None:
            return ""
        return f" (a {kind} takes the room of 4 numbers, not 3; `vload3` reads 3)"

    def _name_touched_arrays(self) -> str:
        """Return the names of the arrays that were touched, such as `x, total`."""
        touched = sorted({int(what) % SITE // ARRAY for what in np.unique(self._listed[:, 1])})
        return ", ".join(self._arrays[number] for number in touched) or "any array"


def _describe_race(first: Touch, second: Touch) -> str:
    element = f"{first.array}[{first.index}]"
    return f"write {element}" if first.writes and second.writes else f"touch {element}, one of them writes it"


def _is_before(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether one access comes before another of its group; each is a work-item, a place, and rounds."""
    return first[1] < second[1] if first[0] == second[0] else first[2] < second[2]


def _drop_repeated(touches: list[Touch]) -> list[Touch]:
    """Return the touches of one element without those that differ only in their place; the last of each stays."""
    last = {
        (touch.item, touch.reads, touch.writes, touch.atomic, touch.barriers, touch.rounds, touch.part): touch
        for touch in touches
    }
    return list(last.values())
