"""Record on the device which work-item touches what, after how many barriers (lessons 01, 02, 12 and 15).

The learner's own kernel is rewritten (`instrument`): every access to memory that work-items share records its address
first. An access outside is recorded and led to a spare element, so nothing is damaged. A kernel with barriers runs once
without them before, so that a barrier which not all reach, and a loop without end, are told and never run. Accesses
outside, races, counts are views of that one record. What the recorder cannot follow is in `Trace.unseen`.

A race shows only when two work-items meet, and a driver may run a work-group so that they never do. What decides is
what the kernel asks for: two work-items that touch the same element, one of them writing, with no barrier between.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import KernelError
from helpers.errors import WorkshopError
from helpers.judge import instrument, recorder
from helpers.judge.recorder import ARRAY, ATOMIC, INSIDE, MAX_TOUCHES, MORE, READ, SITE, WRITE

if TYPE_CHECKING:
    import pyopencl as cl


class NotTraceable(WorkshopError):
    """A kernel that cannot be recorded: it never ends, its barriers are not met by all, or the driver stops it."""


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
        """For a message, such as `work-item 3 touches x[4]`."""
        return f"work-item {self.item} touches {self.array}[{self.index}]"


class Request(NamedTuple):
    """What neighbouring work-items ask of one array at once: one access, the n-th time that each comes to it."""

    access: str  # as it is written in the source
    array: str  # its name
    group: int  # the number of the work-group
    lanes: int  # work-items of the piece, also those that do not ask
    writes: bool  # whether it writes
    asked: list[tuple[int, int, int]]  # for each element: the work-item, the first byte in the array, the bytes


@dataclass(frozen=True, eq=False)
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
        of_global, of_local = divmod(fences, recorder.GLOBAL_FENCE)
        barriers = of_global if array in self.lengths else of_local
        return Touch(item, array, index, reads, writes, inside, barriers, atomic, of_local)

    def _by_element(self) -> dict[tuple, list[Touch]]:
        """The touches of each element; each work-group has local memory of its own."""
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
        groups = self._groups

        def race(pair: tuple[Touch, Touch]) -> bool:
            first, second = pair
            at_once = groups[first.item] != groups[second.item] or first.barriers == second.barriers
            both_touch = all(touch.reads or touch.writes for touch in pair)
            both_atomic = first.atomic and second.atomic
            return first.item < second.item and at_once and both_touch and not both_atomic

        races = []
        for touches in self._by_element().values():
            writes = [touch for touch in touches if touch.writes]
            pairs = itertools.chain(*map(itertools.product, (writes, writes, touches), (writes, touches, writes)))
            races += itertools.islice(filter(race, pairs), 1)
        return [
            f"work-items {first.item} and {second.item} both {_what_both_do(first, second)}, and {self._missing(first)}"
            for first, second in races
        ]

    def _missing(self, touch: Touch) -> str:
        if not self.barriers.any():
            return "nothing orders them"
        return f"no barrier {'' if touch.array in self.lengths else 'for local memory '}lies between"

    def unwritten(self) -> list[str]:
        """Return a sentence for each element of local memory that is read before any work-item has written it."""
        found: list[str] = []
        if self.unseen:  # a write may be missing
            return found
        for (array, index, owner), touches in self._by_element().items():
            writes = [touch for touch in touches if touch.writes and not touch.reads]
            for touch in touches if owner is not None else []:
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
        found: dict[tuple[int, int, int, int], Request] = {}
        for item, what, low, high, _ in self._listed.tolist():
            array, site = what % SITE // ARRAY, what // SITE
            times[item, site] += not what & MORE
            key = site, times[item, site], self._groups[item], int(place[item]) // together
            if key not in found:
                group = self._groups[item]
                lanes = min(together, int(size.prod()) - key[3] * together)
                found[key] = Request(self._sites[site], self._arrays[array], group, lanes, bool(what & WRITE), [])
            wide = self._element_bytes[array]
            found[key].asked.append((item, ((high << 32) + (low & 0xFFFFFFFF)) * wide, wide))
        return list(found.values())

    def report(self) -> str:
        """Return the first races and accesses outside in words, or that none was seen, and what was not followed."""
        found = self.races() + [f"{touch}, which does not exist" for touch in self.outside] or self.unwritten()
        more = [f"... and {len(found) - 3} more"] if len(found) > 3 else []
        none = (
            [] if found else [f"no race seen in {self._name_touched_arrays()}, among {len(self.global_ids)} work-items"]
        )
        return "\n".join(found[:3] + more + none + [f"not followed: {what}" for what in self.unseen])

    def _name_touched_arrays(self) -> str:
        """The arrays that were touched, such as `x[i], total[i]`... in words."""
        touched = sorted({int(what) % SITE // ARRAY for what in np.unique(self._listed[:, 1])})
        return ", ".join(self._arrays[number] for number in touched) or "any array"


def _what_both_do(first: Touch, second: Touch) -> str:
    element = f"{first.array}[{first.index}]"
    return f"write {element}" if first.writes and second.writes else f"touch {element}, one of them writes it"


def record(
    kernel: opencl.Kernel, global_size: Sequence[int] | int, local_size: Sequence[int] | int,
    arguments: Sequence[object],
) -> Trace:  # fmt: skip
    """Run a learner's kernel on its device and record what each work-item is called and touches.

    Args:
        kernel: the learner's kernel.
        global_size: work-items in each dimension.
        local_size: work-items of a work-group in each dimension.
        arguments: one NumPy array for each `__global` parameter, one NumPy scalar (such as np.int32) for each other.

    Raises:
        WorkshopError: the arguments do not fit the kernel's parameters, or the kernel cannot be rewritten.
        NotTraceable: it never ends, not all of a work-group meet the same barriers, or the driver stops.
    """
    global_size, local_size = _sizes(global_size, local_size)
    _check_arguments(kernel, arguments)
    run, instrumented = _build_instrumented(kernel, dry=True)
    log, arrays = _run(kernel, run, instrumented, global_size, local_size, arguments)
    _refuse_endless(kernel, log)
    if instrumented.has_barriers:
        _refuse_divergence(kernel, log)
        run, instrumented = _build_instrumented(kernel, dry=False)
        log, arrays = _run(kernel, run, instrumented, global_size, local_size, arguments)
        _refuse_endless(kernel, log)
    lengths = {p.name: len(a) // p.width for p, a in zip(kernel.parameters, arguments, strict=True) if p.is_array}
    return _read(log, lengths, arrays, instrumented, opencl.name(kernel.device))


@functools.lru_cache(maxsize=8)  # those who judge a kernel one after the other share it
def _build_instrumented(kernel: opencl.Kernel, dry: bool) -> tuple[cl.Kernel, instrument.Instrumented]:
    """Build the kernel with the recorder; without real barriers if `dry`."""
    import pyopencl as cl

    instrumented = instrument.instrument(kernel.source, kernel.name, dry)
    try:
        program = opencl.build(kernel.context, instrumented.source)
    except KernelError as error:
        raise WorkshopError(
            f"The kernel {kernel.name!r} cannot be traced.",
            f"The recorder could not rewrite it: {error.why}",
            "Write it more plainly: no macro that holds an access to an array or a call of a function of your own.",
        ) from None
    return cl.Kernel(program, kernel.name), instrumented


def _run(
    kernel: opencl.Kernel, run: cl.Kernel, instrumented: instrument.Instrumented, global_size: Sequence[int],
    local_size: Sequence[int], arguments: Sequence[object],
) -> tuple[np.ndarray, list[np.ndarray]]:  # fmt: skip
    """Launch the rewritten kernel on copies of the arguments.

    Returns:
        The log, int32 of shape (work-items, ROW), and the arrays among the arguments as the kernel left them.
    """
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    log = np.zeros((int(np.prod(global_size)), recorder.ROW), np.int32)
    passed, number = [], 0
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            log[:, recorder.ARRAYS + recorder.ARRAY_INTS * number + 2] = argument.nbytes
            number += 1
            spare = np.zeros(argument.nbytes + 2 * recorder.SPARE, np.uint8)
            spare[: argument.nbytes] = argument.reshape(-1).view(np.uint8)
            argument = cl.Buffer(kernel.context, flags, hostbuf=spare)
        passed.append(argument)
    log_buffer = cl.Buffer(kernel.context, flags, hostbuf=log)
    arrays = []
    try:
        run(kernel.queue, global_size, local_size, log_buffer, *passed)
        cl.enqueue_copy(kernel.queue, log, log_buffer)
        for argument, buffer in zip(arguments, passed, strict=True):
            if isinstance(argument, np.ndarray):
                arrays.append(np.empty(argument.shape, argument.dtype))
                cl.enqueue_copy(kernel.queue, arrays[-1], buffer)
    except cl.Error as error:
        raise NotTraceable(
            f"The kernel {kernel.name!r} could not be recorded on {opencl.name(kernel.device)}.",
            f"The driver says: {str(error).strip().splitlines()[0]}",
            "Does every loop end? Does the work-group fit the device? The system stops a GPU that draws no screen for "
            "some seconds.",
        ) from None
    return log, arrays


def _column(log: np.ndarray, count: str) -> np.ndarray:
    return log[:, recorder.COUNTS.index(count)]


def _line(kernel: opencl.Kernel, number: int) -> str:
    return f"line {number}, `{kernel.source.splitlines()[number - 1].strip()}`"


def _refuse_endless(kernel: opencl.Kernel, log: np.ndarray) -> None:
    for item in np.flatnonzero(_column(log, "endless"))[:1]:
        line = int(_column(log, "endless")[item])
        raise NotTraceable(
            f"The kernel {kernel.name!r} does not end.",
            f"Work-item {item} went {recorder.MAX_STEPS:,} times round loops, and was still in that of "
            f"{_line(kernel, line)}.",
            "Does what the loop waits for ever happen?",
        )


def _refuse_divergence(kernel: opencl.Kernel, log: np.ndarray) -> None:
    """Raise unless all work-items of each group meet the same barriers, in the same order."""
    sites = log[:, recorder.SITES : recorder.IDS]
    met = np.column_stack([_column(log, "barriers"), _column(log, "order"), sites])
    groups = log[:, recorder.IDS + 6 : recorder.ARRAYS]
    for group in np.unique(groups, axis=0):
        items = np.flatnonzero((groups == group).all(axis=1))
        for item in items[(met[items] != met[items[0]]).any(axis=1)][:1]:
            first, second = (_describe_barriers(kernel, met[number]) for number in (items[0], item))
            raise NotTraceable(
                "Not all work-items of a work-group meet the same barriers.",
                f"In one work-group, work-item {items[0]} meets {first}; work-item {item} meets {second}.",
                "A barrier is for all of a group or for none: take it out of the branch or loop that only some take.",
            )


def _describe_barriers(kernel: opencl.Kernel, met: np.ndarray) -> str:
    count, _, *sites = met.tolist()
    if not count:
        return "no barrier"
    lines = dict.fromkeys(site % recorder.BARRIER_LINE for site in sites if site)
    where = " and ".join(_line(kernel, line) for line in lines)
    return f"{count} barrier{'s' * (count > 1)} ({where})"


def _sizes(global_size: Sequence[int] | int, local_size: Sequence[int] | int) -> list[tuple[int, ...]]:
    """Both sizes as tuples of one length, the first a multiple of the second."""
    pair = [(size,) if isinstance(size, int | np.integer) else tuple(size or ()) for size in (global_size, local_size)]
    if len(pair[0]) == len(pair[1]) and all(g > 0 < w and g % w == 0 for g, w in zip(*pair, strict=True)):
        return pair
    raise WorkshopError(
        f"A launch of {global_size} work-items in work-groups of {local_size} cannot be traced.",
        "In each dimension, the work-items must be a multiple of the work-group, and both must be positive.",
        "Round the number of work-items up to whole work-groups, for example (12,) in groups of (4,).",
    )


def _check_arguments(kernel: opencl.Kernel, arguments: Sequence[object]) -> None:
    if len(arguments) != len(kernel.parameters):
        raise WorkshopError(
            f"The kernel {kernel.name!r} takes {len(kernel.parameters)} arguments, {len(arguments)} were given.",
            f"Its parameters are: {', '.join(f'`{parameter.text}`' for parameter in kernel.parameters)}.",
            "Give one argument for each parameter, in their order.",
        )
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray) != parameter.is_array or isinstance(argument, bool | int | float):
            raise WorkshopError(
                f"The parameter `{parameter.text}` cannot take {argument!r} of type {type(argument).__name__}.",
                "An array parameter takes a NumPy array. A number needs NumPy's type, for OpenCL knows no Python int.",
                "Pass a NumPy array, or np.int32(10) for `int`, np.float32(1.5) for `float`.",
            )


def _read(
    log: np.ndarray, lengths: dict[str, int], arrays: list[np.ndarray], instrumented: instrument.Instrumented,
    device: str,
) -> Trace:  # fmt: skip
    counts = {count: _column(log, count) for count in ("global_accesses", "barriers")}
    touched = _column(log, "touches")
    listed = np.arange(MAX_TOUCHES) < touched[:, None]
    rows = log[:, recorder.HEADER :].reshape(len(log), MAX_TOUCHES, recorder.TOUCH)
    touches = np.column_stack([np.nonzero(listed)[0], rows[listed]])
    unseen = list(instrumented.unseen)
    if (touched > MAX_TOUCHES).any():
        unseen.append(f"what a work-item touches after its first {MAX_TOUCHES} accesses is only counted")
    all_ids = np.split(log[:, recorder.IDS : recorder.ARRAYS], 3, 1)
    ids = dict(zip(("global_ids", "local_ids", "group_ids"), all_ids, strict=True))
    elements = log[0, recorder.ARRAYS + 3 : recorder.HEADER : recorder.ARRAY_INTS].tolist()
    return Trace(
        device, lengths, **ids, **counts, unseen=unseen, arrays=arrays, _arrays=instrumented.arrays, _listed=touches,
        _element_bytes=elements, _sites=instrumented.sites,
    )  # fmt: skip
