"""Run a learner's kernel between canaries: values around each buffer that show whether it writes outside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.judge.checks import NotYet

if TYPE_CHECKING:
    import pyopencl as cl

OUTSIDE = 0x7FC0CAFE  # beyond the ends of the inputs: a float32 NaN (or an int32) that no computation makes
# What the output holds before a run: another such NaN, and 1e-30, which any sum swallows. What keeps both is unwritten.
FILLS = (0x7FC0BEEF, 0x0DA24260)
SHORT = 2**16  # how many indices have 16 bits
PAD = 128  # canaries on each side of a buffer


class Guarded:
    """A buffer on the device between two rows of canaries, which show a write outside of it.

    Args:
        queue: whose device it is for.
        values: what it holds, of shape (n,), elements of 4 bytes.
        guard: the 32 bits of every canary.
        pad: how many canaries lie on each side, at least; the device may need more.
    """

    def __init__(self, queue: cl.CommandQueue, values: np.ndarray, guard: int, pad: int) -> None:
        import pyopencl as cl

        alignment = max(queue.device.mem_base_addr_align // 8 // 4, 1)  # of sub-buffers, in elements
        pad = math.ceil(pad / alignment) * alignment
        self._queue, self._guard, self._slice = queue, guard, slice(pad, pad + len(values))
        self._whole = np.full(len(values) + 2 * pad, guard, np.uint32)
        self._whole[self._slice] = values.view(np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, hostbuf=self._whole)
        self.inside = self._buffer[4 * pad : 4 * (pad + len(values))]  # the buffer for the kernel

    def read(self) -> tuple[np.ndarray, int | None]:
        """Return the values and the place of the first canary that changed.

        Returns:
            The values as uint32 of shape (n,), and the canary's index among them, None if none changed: -1 is the
            canary just before the first value, n the one just after the last.
        """
        import pyopencl as cl

        cl.enqueue_copy(self._queue, self._whole, self._buffer)
        dead = np.flatnonzero(self._whole != self._guard)
        dead = dead[(dead < self._slice.start) | (dead >= self._slice.stop)]
        return self._whole[self._slice], int(dead[0]) - self._slice.start if len(dead) else None


def run_guarded(
    kernel: opencl.Kernel,
    given: Mapping[str, np.ndarray],
    numbers: Mapping[str, int],
    length: int,
    items: int | Sequence[int],
    group: int | Sequence[int],
    fill: int,
    pad: int = 0,
) -> np.ndarray:
    """Run a kernel (inputs, output, numbers) between canaries; refuse it if it writes anything but the output.

    Args:
        kernel: the learner's kernel.
        given: its inputs by name.
        numbers: its last arguments by name, such as n.
        length: the number of elements of the output.
        items: work-items in each dimension; they are rounded up to whole work-groups.
        group: work-items of a work-group, likewise.
        fill: the 32 bits that every element of the output holds before.
        pad: more canaries on each side than the usual, if a work-item can reach so far.

    Returns:
        The output, its bits as uint32 of shape (length,).

    Raises:
        NotYet: the kernel could not run, changed an input, or wrote outside of the output.
    """
    import pyopencl as cl

    pad = max(pad, PAD + (SHORT if max(numbers.values(), default=length) > SHORT else 0))
    inputs = {name: Guarded(kernel.queue, values, OUTSIDE, pad) for name, values in given.items()}
    output = Guarded(kernel.queue, np.full(length, fill, np.uint32), fill, pad)
    groups = (group,) if isinstance(group, int) else tuple(group)
    wanted = (items,) if isinstance(items, int) else tuple(items)
    started = tuple(-(-count // size) * size for count, size in zip(wanted, groups, strict=True))
    launch = describe_launch(numbers, started, groups)
    print(launch, flush=True)  # the last line of a process that ends early
    buffers = [buffer.inside for buffer in (*inputs.values(), output)]
    try:
        kernel.kernel(kernel.queue, started, groups, *buffers, *map(np.int32, numbers.values()))
        held = {name: buffer.read() for name, buffer in {**inputs, "the output": output}.items()}
    except cl.Error as error:
        raise NotYet(f"{launch}: the kernel could not run: {str(error).strip().splitlines()[0]}") from None
    for name, (values, stray) in held.items():
        if name in inputs and not np.array_equal(values, given[name].view(np.uint32)):
            raise NotYet(
                f"{launch}: the kernel changed its input {name}; it may only write the output, and inside of it."
            )
        if stray is not None:
            has = f"which has the elements 0 to {len(values) - 1}"
            raise NotYet(f"{launch}: the kernel wrote to element {stray} of {name}, {has}.")
    return values


def describe_launch(numbers: Mapping[str, int], items: Sequence[int], group: Sequence[int]) -> str:
    """Return in words what is launched: the last arguments, the work-items and the size of a group by dimension."""
    sizes = [f"{name} = {number}" for name, number in numbers.items()]
    started = f"{' x '.join(map(str, items))} work-items in groups of {' x '.join(map(str, group))}"
    return ", ".join([*sizes, started])


def find_unwritten(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return which elements a kernel never writes, from its outputs after each of FILLS."""
    return (first == FILLS[0]) & (second == FILLS[1])
