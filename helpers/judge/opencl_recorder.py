"""Record on the device which work-item of an OpenCL launch touches what, after how many barriers.

Lessons 01, 02, 12 and 15 use it. The learner's own kernel is rewritten (`opencl_rewriter`): before every access to
memory that work-items share, it records the address. An access outside is recorded and redirected to a spare place, so
nothing is damaged. No barrier is run: the kernel is launched once for each barrier that its work-items meet
(`opencl_log` says how). A barrier that only some work-items reach, or a loop without end, is therefore reported and
never run, the verdict is the same on every driver, and a driver that compiles barriers wrongly changes nothing.
Accesses outside, races and counts are views of the one record (`trace`). What the recorder cannot follow is in
`Trace.unseen`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import KernelError
from helpers.errors import WorkshopError
from helpers.judge import opencl_log as layout
from helpers.judge.opencl_arguments import check_arguments, check_sizes, count_elements, is_local_memory
from helpers.judge.opencl_reader import CONSTANT, LOCAL
from helpers.judge.opencl_rewriter import Instrumented, instrument
from helpers.judge.second_opinion import UNOPTIMIZED
from helpers.judge.trace import MAX_ARRAYS, Trace

if TYPE_CHECKING:
    import pyopencl as cl

MOST_BARRIERS = 1024  # of one work-item: the kernel is launched as often
MOST_ROUNDS = 1 << 28  # rounds of loops of all work-items in all launches: some seconds on one processor
LONG_STEPS = 1 << 22  # rounds of loops of one work-item, on a processor, which no system resets
MOST_BYTES = 1 << 31  # of a log; the host holds it a second time
KEPT_INTS, MOST_KEPT = 1 << 24, 1 << 16  # for the values that are repeated: in all, and of one work-item


class NotTraceable(WorkshopError):
    """A kernel that breaks a rule so that it cannot be recorded: it never ends, or its barriers are not met by all."""


class Divergence(NotTraceable):
    """A kernel whose barriers are not met by all work-items of a work-group."""


class NotJudged(NotTraceable):
    """A kernel that may be right, but that the recorder cannot record, or not to its end."""


def record(
    kernel: opencl.Kernel,
    global_size: Sequence[int] | int,
    local_size: Sequence[int] | int,
    arguments: Sequence[np.ndarray | np.generic | cl.LocalMemory],
) -> Trace:
    """Run a learner's kernel on its device and record what each work-item is called and touches.

    Args:
        kernel: the learner's kernel.
        global_size: work-items in each dimension.
        local_size: work-items of a work-group in each dimension.
        arguments: one NumPy array for each `__global` or `__constant` parameter, cl.LocalMemory(bytes) for each
            `__local` one, one NumPy scalar (such as np.int32) for each other.

    Raises:
        WorkshopError: the arguments do not fit the kernel's parameters.
        NotTraceable: it never ends, or not all of a work-group meet the same barriers.
        NotJudged: it is too long for a record, the recorder does not know what it uses, or the driver stops.
    """
    items, group = check_sizes(global_size, local_size)
    instrumented = _instrument(kernel)
    _refuse_unknown(kernel, instrumented)
    check_arguments(kernel, instrumented.parameters, arguments)
    _refuse_large(kernel, instrumented, arguments)
    for steps in _list_steps(kernel.device):
        built = _build_instrumented(kernel, steps)
        launch = Launch(kernel, built, instrumented, items, group, arguments, steps)
        stopped = launch.run()
        endless = launch.find_endless()
        if endless is None or launch.line_of(endless) in instrumented.endless:
            break
    traced = launch.read()
    if stopped is None:
        return traced
    # What a work-item reads in a race may differ from launch to launch, so the race is the fault that is there always.
    if isinstance(stopped, NotJudged | Divergence) and traced.has_racing_read():
        reason = stopped.what if isinstance(stopped, NotJudged) else f"{stopped.what} {stopped.why} {stopped.next}"
        traced.unseen.append(f"what comes after the race, for the record stopped: {reason}")
        return traced
    raise stopped


# Those who judge a kernel one after the other share it. The text of a kernel does not change with the launch.
@functools.lru_cache(maxsize=8)
def _instrument(kernel: opencl.Kernel) -> Instrumented:
    return instrument(kernel.source, kernel.name)


@functools.lru_cache(maxsize=8)
def _build_instrumented(kernel: opencl.Kernel, steps: int) -> cl.Kernel:
    """Build the kernel with the recorder; on a CPU without optimization unless its loops are long, which is faster."""
    import pyopencl as cl

    is_quick = opencl.kind(kernel.device) == "cpu" and steps < LONG_STEPS
    options = [*kernel.options, UNOPTIMIZED] if is_quick else kernel.options
    try:
        program = opencl.build(kernel.context, _instrument(kernel).source, options)
    except KernelError as error:
        words = [line for line in error.why.splitlines() if line.startswith("line ")] or [error.why]
        raise NotJudged(
            f"The kernel {kernel.name!r} cannot be judged.",
            f"The recorder could not rewrite it: {words[0]}",
            "Write it more plainly, for example with fewer macros.",
        ) from None
    return cl.Kernel(program, kernel.name)


def _refuse_unknown(kernel: opencl.Kernel, instrumented: Instrumented) -> None:
    """Raise if a kernel has what cannot be recorded, before anything is launched."""
    reasons = list(instrumented.refused)
    if len(instrumented.parameters) != len(kernel.parameters):
        reasons.append(f"the recorder cannot read its parameters: {'; '.join(instrumented.unseen) or 'unknown types'}")
    for parameter in instrumented.parameters:
        for word in ("image", "sampler", "pipe", "queue"):
            if not parameter.memory and parameter.element.lstrip("_").startswith((word, f"read_only {word}")):
                reasons.append(f"`{parameter.text}` is not recorded, only arrays, numbers and local memory are")
    if len(instrumented.arrays) > MAX_ARRAYS:
        reasons.append(f"it has {len(instrumented.arrays)} arrays; the record has room for {MAX_ARRAYS}")
    if reasons:
        raise NotJudged(f"The kernel {kernel.name!r} cannot be judged.", "; ".join(dict.fromkeys(reasons)) + ".")


def _refuse_large(
    kernel: opencl.Kernel,
    instrumented: Instrumented,
    arguments: Sequence[np.ndarray | np.generic | cl.LocalMemory],
) -> None:
    """Raise if a work-group asks for more local memory than the device has: the record has it elsewhere."""
    needed = sum(size for size, _ in instrumented.locals)
    needed += sum(argument.size for argument in arguments if is_local_memory(argument))
    if needed > kernel.device.local_mem_size:
        raise NotTraceable(
            f"The kernel {kernel.name!r} asks for {needed:,} bytes of local memory.",
            f"A work-group has {kernel.device.local_mem_size:,} bytes on {opencl.name(kernel.device)}.",
            "Take smaller arrays in local memory, or a smaller work-group.",
        )


def _list_steps(device: cl.Device) -> list[int]:
    """Return the most rounds of loops of a work-item: first few, then, where nothing stops a long kernel, many."""
    is_processor = opencl.kind(device) == "cpu" and "llvmpipe" not in device.name
    return [layout.MAX_STEPS, LONG_STEPS] if is_processor else [layout.MAX_STEPS]


@dataclass
class Launch:
    """All launches of one recorded kernel.

    Attributes:
        kernel: the learner's.
        built: the one that records.
        instrumented: how it was rewritten.
        items: work-items in each dimension.
        group: work-items of a work-group in each dimension.
        arguments: what the kernel is given.
        steps: the most rounds of loops of one work-item.
    """

    kernel: opencl.Kernel
    built: cl.Kernel
    instrumented: Instrumented
    items: tuple[int, ...]
    group: tuple[int, ...]
    arguments: Sequence[np.ndarray | np.generic | cl.LocalMemory]
    steps: int

    def __post_init__(self) -> None:
        """Lay out the log, and put the arguments on the device."""
        import pyopencl as cl

        self.count = int(np.prod(self.items))
        self.given = [argument for argument in self.arguments if isinstance(argument, np.ndarray)]
        table, local_ints = self._make_table()
        value_ints = min(KEPT_INTS // self.count, MOST_KEPT) // layout.LINE * layout.LINE
        value_ints = value_ints if self.instrumented.barriers else 0
        groups = self.count // int(np.prod(self.group))
        self.rows = _round_up(layout.HEAD + layout.STATE * self.count)
        locals_at = self.rows + layout.ROW * self.count
        values_at = locals_at + local_ints * groups
        needed = 4 * (values_at + value_ints * self.count)
        room = min(MOST_BYTES, self.kernel.device.max_mem_alloc_size)
        if needed > room:
            raise self._describe_long(
                f"that of {self.count:,} work-items takes {needed:,} bytes, and there is room for {room:,}"
            )
        self.log = np.zeros(values_at, np.int32)
        head = {
            layout.STOP: 1,
            layout.STEPS: self.steps,
            layout.ROWS: self.rows,
            layout.LOCALS: locals_at,
            layout.LOCAL_INTS: local_ints,
            layout.VALUES: values_at,
            layout.VALUE_INTS: value_ints,
        }
        self.log[list(head)] = list(head.values())
        self._view_rows(self.log)[:, layout.ARRAYS : layout.TOUCHES] = table.reshape(-1)
        flags = cl.mem_flags.READ_WRITE
        context = self.kernel.context
        self.buffer = cl.Buffer(context, flags, 4 * (values_at + value_ints * self.count))
        self.buffers = []
        for array in self.given:
            behind = np.zeros(array.nbytes + layout.BEHIND, np.uint8)
            behind[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.buffers.append(cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=behind))

    def _make_table(self) -> tuple[np.ndarray, int]:
        """Return what the host knows of each array, and the ints of local memory of a work-group."""
        table = np.zeros((MAX_ARRAYS, layout.ARRAY_INTS), np.int32)
        kinds = [kind for kind in self.instrumented.parameters if kind.memory and kind.memory != LOCAL]
        for number, (array, kind) in enumerate(zip(self.given, kinds, strict=True)):
            table[number, layout.BYTES] = array.nbytes
            table[number, layout.CONSTANT] = kind.memory == CONSTANT or kind.is_const
        parameters = iter([argument.size for argument in self.arguments if is_local_memory(argument)])
        place = 0
        for number, (size, _) in enumerate(self.instrumented.locals, len(self.given)):
            table[number, layout.BYTES] = size or next(parameters)
            table[number, layout.START] = place
            place += 4 * _round_up(-(-int(table[number, layout.BYTES]) // 4))
        return table, place // 4

    def _view_rows(self, log: np.ndarray) -> np.ndarray:
        return log[self.rows : self.rows + layout.ROW * self.count].reshape(self.count, layout.ROW)

    @property
    def states(self) -> np.ndarray:
        """The state of each work-item after the last launch, int32 of shape (work-items, STATE)."""
        return self.log[layout.HEAD : layout.HEAD + layout.STATE * self.count].reshape(self.count, layout.STATE)

    def run(self) -> NotTraceable | None:
        """Launch the kernel until all work-items end; return what stopped it, None if nothing did.

        Raises:
            NotJudged: the driver stops.
        """
        import pyopencl as cl

        queue = self.kernel.queue
        arrays = iter(self.buffers)
        passed: list[Any] = [
            next(arrays) if isinstance(argument, np.ndarray) else self.buffer if is_local_memory(argument) else argument
            for argument in self.arguments
        ]
        rounds = 0
        try:
            cl.enqueue_copy(queue, self.buffer, self.log)
            for stop in range(1, MOST_BARRIERS + 2):
                cl.enqueue_copy(queue, self.buffer, np.array([stop], np.int32))
                self.built(queue, self.items, self.group, self.buffer, *passed)
                cl.enqueue_copy(queue, self.log[: self.rows], self.buffer)
                endless = self.find_endless()
                if endless is not None:
                    return self._describe_endless(endless)
                if self.states[:, layout.FULL].any():
                    return self._describe_long("its work-items read more before a barrier than it has room for")
                diverging = self._find_divergence()
                if diverging:
                    return self._describe_divergence(*diverging)
                if not self.states[:, layout.STOPPED].any():
                    return None
                rounds += int(self.states[:, layout.ROUNDS].sum(dtype=np.int64))
                if rounds > MOST_ROUNDS:
                    break
        except cl.Error as error:
            raise NotJudged(
                f"The kernel {self.kernel.name!r} could not be recorded on {opencl.name(self.kernel.device)}.",
                f"The driver says: {str(error).strip().splitlines()[0]}",
                "Does the work-group fit the device? The system stops a GPU that draws no screen for some seconds.",
            ) from None
        return self._describe_long(f"its work-items had met {stop:,} barriers, and did not end")

    def _find_divergence(self) -> tuple[int, int] | None:
        """Return two work-items of one work-group that wait at different barriers, or one of which has ended."""
        stopped = self.states[:, layout.STOPPED]
        for items in self._groups:
            others = np.flatnonzero(stopped[items] != stopped[items[0]])
            if len(others):
                return int(items[0]), int(items[others[0]])
        return None

    @functools.cached_property
    def _groups(self) -> list[np.ndarray]:
        """The work-items of each work-group."""
        places = np.indices(self.items[::-1]).reshape(len(self.items), -1)  # dimension 0 runs fastest
        size = np.array(self.group[::-1])[:, None]
        numbers = np.ravel_multi_index(tuple(places // size), tuple(np.array(self.items[::-1]) // size[:, 0]))
        return [np.flatnonzero(numbers == number) for number in range(int(numbers.max()) + 1)]

    def _describe_divergence(self, first: int, other: int) -> NotTraceable:
        if self.instrumented.unseen:
            return NotJudged(
                f"The kernel {self.kernel.name!r} cannot be judged.",
                f"The recorder does not follow all of it: {'; '.join(self.instrumented.unseen)}.",
                "Write that more plainly, with `array[index]`.",
            )
        rows = self._read_rows()
        one, two = (
            self._describe_barriers(rows[item], int(self.states[item, layout.STOPPED])) for item in (first, other)
        )
        remedy = "take it out of the branch or loop that only some take."
        if not self.states[[first, other], layout.STOPPED].all() and re.search(r"\breturn\b", self.kernel.source):
            remedy = "let no work-item `return` before it, and take it out of a branch or loop that only some take."
        return Divergence(
            "Not all work-items of a work-group meet the same barriers.",
            f"In one work-group, work-item {first} meets {one}; work-item {other} meets {two}.",
            f"A barrier is for all of a group or for none: {remedy}",
        )

    def _read_rows(self) -> np.ndarray:
        """Return the row of each work-item, int32 of shape (work-items, ROW)."""
        import pyopencl as cl

        cl.enqueue_copy(self.kernel.queue, self.log, self.buffer)
        return self._view_rows(self.log)

    def _describe_barriers(self, row: np.ndarray, stopped: int) -> str:
        """Return in words which barriers a work-item met, up to that at which it stopped, if it did."""
        count = int(row[layout.COUNTS.index("barriers")])
        if not count:
            return "no barrier"
        met = [int(site) for site in row[layout.SITES : layout.SITES + min(count, layout.MAX_SITES)]]
        where = " and ".join(
            self._describe_site(site) for site in dict.fromkeys([*met, *([stopped] if stopped else [])])
        )
        return f"{count} barrier{'s' if count > 1 else ''} ({where})"

    def _describe_site(self, site: int) -> str:
        """Return in words where a barrier stands; of several on one line, also which of them it is."""
        line = self.instrumented.barriers[site - 1]
        beside = [number for number, other in enumerate(self.instrumented.barriers, 1) if other == line]
        which = f", barrier {beside.index(site) + 1} of {len(beside)} on it" if len(beside) > 1 else ""
        return f"{self._quote_line(line)}{which}"

    def _quote_line(self, number: int) -> str:
        return f"line {number}, `{self.kernel.source.splitlines()[number - 1].strip()}`"

    def find_endless(self) -> int | None:
        """Return the first work-item that had to leave a loop, None if none had."""
        items = np.flatnonzero(self.states[:, layout.ENDLESS])
        known = [item for item in items if self.line_of(item) in self.instrumented.endless]
        return int((known or [*items])[0]) if len(items) else None

    def line_of(self, item: int) -> int:
        """Return the line of the loop that a work-item had to leave."""
        return int(self.states[item, layout.ENDLESS])

    def _describe_long(self, reason: str) -> NotJudged:
        return NotJudged(
            f"The kernel {self.kernel.name!r} cannot be judged.",
            f"It is too long for a record: {reason}.",
            "Record a smaller problem, and check that its loops end.",
        )

    def _describe_endless(self, item: int) -> NotTraceable:
        """Return the error for a loop that a work-item had to leave: it never ends, or is too long to tell."""
        loop = f"was still in that of {self._quote_line(self.line_of(item))}."
        where = f"Work-item {item} went {self.steps:,} times round loops, and {loop}"
        if self.line_of(item) in self.instrumented.endless:
            why = f"{where} The condition of that loop stays true, and nothing else ends the loop."
            return NotTraceable(
                f"The kernel {self.kernel.name!r} does not end.", why, "Let its condition become false."
            )
        return NotJudged(
            f"The kernel {self.kernel.name!r} cannot be judged: a loop did not end within {self.steps:,} rounds.",
            where,
            "Check that the loop ends. If it does, record a smaller problem.",
        )

    def read(self) -> Trace:
        """Return the record of the last launch."""
        import pyopencl as cl

        rows, instrumented = self._read_rows(), self.instrumented
        arrays = [np.empty(array.shape, array.dtype) for array in self.given]
        for array, buffer in zip(arrays, self.buffers, strict=True):
            cl.enqueue_copy(self.kernel.queue, array, buffer)
        touched = _get_column(rows, "touches")
        is_listed = np.arange(layout.MAX_TOUCHES) < touched[:, None]
        listed = rows[:, layout.TOUCHES : layout.TOUCHES + layout.MAX_TOUCHES * layout.TOUCH]
        listed = listed.reshape(len(rows), layout.MAX_TOUCHES, layout.TOUCH)
        listed = np.column_stack([np.nonzero(is_listed)[0], listed[is_listed]])
        layout.name_far_outside(listed, rows, instrumented.arrays, instrumented.sites)
        unseen = list(dict.fromkeys(instrumented.unseen))
        if (touched > layout.MAX_TOUCHES).any():
            unseen.append(f"what a work-item touches after its first {layout.MAX_TOUCHES} accesses is only counted")
        global_ids, local_ids, group_ids = np.split(rows[:, layout.IDS : layout.IDS + 9], 3, 1)
        kinds = [kind for kind in instrumented.parameters if kind.memory and kind.memory != LOCAL]
        named = list(zip(instrumented.arrays, kinds, self.given, strict=False))
        traced = Trace(
            opencl.name(self.kernel.device),
            {name: count_elements(array, kind) for name, kind, array in named},
            global_ids,
            local_ids,
            group_ids,
            global_accesses=_get_column(rows, "global_accesses"),
            barriers=_get_column(rows, "barriers"),
            unseen=unseen,
            arrays=arrays,
            notes=list(dict.fromkeys(instrumented.notes)),
            loop_rounds=self.states[:, layout.ROUNDS].tolist(),
            _arrays=instrumented.arrays,
            _listed=listed,
            _element_bytes=rows[0, layout.ARRAYS + layout.ELEMENT : layout.TOUCHES : layout.ARRAY_INTS].tolist(),
            _sites=instrumented.sites,
            _has_locks=instrumented.has_locks,
            _threes={name: kind.element for name, kind, _ in named if kind.is_vector_of_three},
        )
        if traced.has_unknown_order():
            unseen.append("the order that atomic functions and fences give to accesses of different work-items")
        return traced


def _round_up(ints: int) -> int:
    return -(-ints // layout.LINE) * layout.LINE


def _get_column(rows: np.ndarray, count: str) -> np.ndarray:
    return rows[:, layout.COUNTS.index(count)]
