"""Judge a learner's kernel: random data, awkward sizes, canaries round every buffer, any order of groups, repeats.

The verdict itself is `checks.verdict`; lessons 01, 02 and 12 have the kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers import opencl, trace
from helpers.checks import NotDone, NotYet
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

LOCAL_SIZE = 64
SIZES = (1, 63, 64, 65, 257, 1000)  # one element, about one work-group, several, and never only multiples of one
OUTSIDE = 0x7FC0CAFE  # beyond the ends of the inputs: a float32 NaN (or an int32) that no computation makes
# What the output holds before a run: another such NaN, and 1e-30, which any sum swallows. What keeps both is unwritten.
FILLS = (0x7FC0BEEF, 0x0DA24260)
COUNTED = 64  # elements of the launch whose accesses are counted
TRACED, TRACED_GROUP = 9, 4  # elements (an odd number of them) and work-group of the launch that is traced


def build(source: object, name: str, device: cl.Device | None = None) -> opencl.Kernel:
    """Parse and build a learner's kernel, once for all the judges of a verdict.

    Args:
        source: OpenCL C, or what the learner left in its place.
        name: the kernel's name.
        device: where to run; the lessons' device if None.
    """
    if not isinstance(source, str) or not source.strip():
        raise NotDone("there is no kernel yet.")
    try:
        return opencl.Kernel(source, name, device)
    except opencl.KernelError as error:
        raise NotYet(f"{error.what[0].lower()}{error.what[1:]}\n{error.why}") from None


def expect_parameters(kernel: opencl.Kernel, wanted: Sequence[str]) -> list[str]:
    """Return the names of the kernel's parameters, once their number and their types are right.

    Args:
        kernel: the learner's kernel.
        wanted: what each parameter takes: `float`, `int`, or, of a pointer, `float[]`, `int[]`.
    """
    if len(kernel.parameters) != len(wanted):
        raise NotYet(f"expected a kernel of {len(wanted)} parameters, came one of {len(kernel.parameters)}.")
    for number, (parameter, kind) in enumerate(zip(kernel.parameters, wanted, strict=True), 1):
        words = parameter.text.replace("*", " * ").split()
        if kind.removesuffix("[]") not in words or ("*" in words) != kind.endswith("[]"):
            meant = f"a pointer to {kind[:-2]} (`__global {kind[:-2]} *`)" if kind.endswith("[]") else f"one {kind}"
            raise NotYet(f"parameter {number} is `{parameter.text}`; expected {meant}.")
    return [parameter.name for parameter in kernel.parameters]


def judge_kernel(
    kernel: opencl.Kernel, inputs: Sequence[str], reference: Callable[..., np.ndarray], radius: int = 0,
    sizes: Sequence[int] = SIZES, groups: Sequence[int] = (LOCAL_SIZE,), advice: str = "",
) -> str:  # fmt: skip
    """Judge a one-dimensional kernel whose parameters are its inputs, then the output, then `const int n`.

    Each size runs on fresh random data: all work-items at once, several times, and then one work-group after the other,
    forwards and backwards, because OpenCL promises no order. The output lies between canaries of a whole work-group and
    more, and the inputs between values that spoil every result, so that a missing guard shows. A last, small launch is
    traced: it finds reads beyond the end that spoil nothing, and elements that several work-items write.

    Args:
        kernel: the learner's kernel.
        inputs: what each input parameter takes: `float[]` or `int[]` (n elements of 4 bytes), `float` or `int` (one).
        reference: given the same inputs, returns the right output of shape (n,), float32 or int32.
        radius: how many neighbours on each side an output depends on; messages show them.
        sizes: the sizes n to try; a random one is added.
        groups: how many work-items a work-group has; every size is tried with each.
        advice: what this exercise's mistakes come from, said after what is wrong.

    Returns:
        What was tried, for the verdict.
    """
    rng = np.random.default_rng()
    whole_numbers = np.issubdtype(np.asarray(reference(*_random(inputs, rng, 2))).dtype, np.integer)
    names = expect_parameters(kernel, [*inputs, "int[]" if whole_numbers else "float[]", "int"])
    # The largest size first: a kernel that was never touched is then told so, and not that it is wrong for one element.
    tried = sorted({*sizes, int(rng.integers(300, 3000))}, reverse=True)
    try:
        for n, group in itertools.product(tried, groups):
            _judge_size(kernel, dict(zip(names, _random(inputs, rng, n), strict=False)), reference, n, radius, group)
        _judge_trace(kernel, _random(inputs, rng, TRACED), reference)
    except NotYet as wrong:
        raise NotYet(f"{wrong} {advice}".rstrip()) from None
    sizes_tried = f"{len(tried)} sizes from {min(tried)} to {max(tried)}"
    return f"{sizes_tried}, work-groups in any order, on {opencl.name(kernel.device)}"


def judge_accesses(kernel: opencl.Kernel, most: Callable[[int, int], int]) -> str:
    """Judge how often a right kernel of one array of floats, an output and `const int n` asks global memory.

    Args:
        kernel: the learner's kernel.
        most: how many accesses all work-items together may make, from n and the number of work-groups.

    Returns:
        What was counted, for the verdict.
    """
    n, group = COUNTED, COUNTED // 4
    x, out = np.ones((2, n), np.float32)
    traced = trace.record(kernel, n, group, [x, out, np.int32(n)], allow_branches=True)
    for touch in traced.outside:
        raise NotYet(
            f"{n} work-items on {n} elements in groups of {group}: {touch}, which does not exist. "
            "Ask whether it exists before you touch it."
        )
    actual, allowed = int(traced.global_accesses.sum()), most(n, n // group)
    counted = f"{actual} accesses to global memory for {n} elements in {n // group} work-groups"
    if actual > allowed:
        raise NotYet(f"the result is right, but with {counted}; expected at most {allowed}.")
    return counted


def _random(kinds: Sequence[str], rng: np.random.Generator, n: int) -> list[np.ndarray | np.generic]:
    """Random numbers for parameters of a kernel: each `float`, `int`, or n of them, `float[]`, `int[]`."""

    def one(kind: str) -> np.ndarray | np.generic:
        count = n if kind.endswith("[]") else None
        if kind.startswith("float"):
            # A single number stays away from 0 and 1, at which a wrong formula could be right.
            single = rng.choice((-1, 1)) * rng.uniform(1.5, 3)
            return rng.normal(size=count).astype(np.float32) if count else np.float32(single)
        return rng.integers(-99, 100, count, np.int32) if count else np.int32(rng.integers(2, 100))

    return [one(kind) for kind in kinds]


def _judge_size(
    kernel: opencl.Kernel, given: dict[str, np.ndarray], reference: Callable, n: int, radius: int, group: int
) -> None:
    """Run on n elements, with two fills and in several orders, and judge every output."""
    expected = np.asarray(reference(*given.values()))
    refilled = run_guarded(kernel, given, n, n, group, FILLS[1])
    orders = ("at once", "at once", "at once", "forwards", "backwards")
    runs = [run_guarded(kernel, given, n, n, group, FILLS[0], order) for order in orders]
    unwritten = find_unwritten(runs[0], refilled)
    for order, actual in zip(orders, runs, strict=True):
        values = (bits.view(expected.dtype) for bits in (actual, refilled))
        _judge_output(*values, expected, given, unwritten, order, radius)


def _judge_output(
    actual: np.ndarray, refilled: np.ndarray, expected: np.ndarray, given: dict, unwritten: np.ndarray,
    order: str, radius: int,
) -> None:  # fmt: skip
    """Compare an output with what was expected.

    Args:
        actual: the output, which held FILLS[0] before.
        refilled: the output of a run in which it held FILLS[1] before.
        expected: what it should be.
        given: the inputs by name, for the message.
        unwritten: which elements the kernel never writes.
        order: in which order the work-groups ran.
        radius: how many neighbours of an element to show.
    """
    floats = np.issubdtype(actual.dtype, np.floating)
    right = np.isclose(actual, expected, rtol=1e-4, atol=1e-5) if floats else actual == expected
    if right.all():
        return
    i = int(np.flatnonzero(~right)[0])
    around = range(max(i - radius, 0), min(i + radius + 1, len(actual)))
    with_inputs = ", ".join(
        ", ".join(f"{name}[{k}] = {_number(value[k])}" for k in around)
        if isinstance(value, np.ndarray)
        else f"{name} = {_number(value)}"
        for name, value in given.items()
    )
    where = f"n = {len(actual)}, element {i} ({with_inputs}): expected {_number(expected[i])}"
    if unwritten[i]:
        raise NotYet(f"{where}, came nothing: it was never written.")
    if order == "at once" and not np.isclose(actual[i], refilled[i], equal_nan=True):
        raise NotYet(
            f"{where}; what came differs from run to run: is something read that nobody or somebody else wrote?"
        )
    hint = " Does it read outside an input?" if np.isnan(actual[i]) else ""
    when = "" if order == "at once" else f" (work-groups run {order}, one by one: OpenCL promises no order)"
    raise NotYet(f"{where}, came {_number(actual[i])}.{hint}{when}")


def _number(value: np.generic) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def _judge_trace(kernel: opencl.Kernel, given: list, reference: Callable) -> None:
    """Launch a few work-items more than there are elements, and look at what each of them touches."""
    out = np.zeros_like(reference(*given))
    items = math.ceil(TRACED / TRACED_GROUP) * TRACED_GROUP
    traced = trace.record(kernel, items, TRACED_GROUP, [*given, out, np.int32(TRACED)], allow_branches=True)
    launch = f"{items} work-items on {TRACED} elements"
    for touch in traced.outside:
        if touch.array not in traced.lengths:
            raise NotYet(f"{launch}: {touch}, which does not exist.")
        verb = "writes" if touch.writes else "reads" if touch.reads else "takes the address of"
        beyond = "It is beyond the end: ask whether the element exists before it is read or written."
        inside = "It has an element of its own, but not that neighbour: ask for the edges before touching them."
        raise NotYet(
            f"{launch}: work-item {touch.item} {verb} element {touch.index} of {touch.array}, which has the elements 0 "
            f"to {TRACED - 1}. {beyond if touch.item >= TRACED else inside}"
        )
    writers: dict[int, set[int]] = {}
    for touch in traced.touches:
        if touch.array in traced.lengths and (touch.writes or not touch.reads):  # one may write through an address
            writers.setdefault(touch.index, set()).add(touch.item)
    for index, who in writers.items():
        if len(who) > 1:
            first = ", ".join(str(item) for item in sorted(who)[:3])
            raise NotYet(
                f"{launch}: element {index} is written by work-items {first}{', ...' if len(who) > 3 else ''}. "
                "Each work-item should write its own element, the one with its global id."
            )


# ---------------------------------------------------------------------------------------------- canaries


class Guarded:
    """A buffer on the device that lies between canaries.

    Args:
        queue: whose device it is for.
        values: what it holds, of shape (n,), elements of 4 bytes.
        guard: the 32 bits of every canary; there are more on each side than a work-group has work-items.
    """

    def __init__(self, queue: cl.CommandQueue, values: np.ndarray, guard: int) -> None:
        import pyopencl as cl

        if values.dtype.itemsize != 4:
            raise WorkshopError(f"Only arrays of 4-byte elements lie between canaries, not {values.dtype}.")
        alignment = max(queue.device.mem_base_addr_align // 8 // 4, 1)  # of sub-buffers, in elements
        pad = math.ceil(2 * LOCAL_SIZE / alignment) * alignment
        self._queue, self._guard, self._slice = queue, guard, slice(pad, pad + len(values))
        self._whole = np.full(len(values) + 2 * pad, guard, np.uint32)
        self._whole[self._slice] = values.view(np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, hostbuf=self._whole)
        self.inside = self._buffer[4 * pad : 4 * (pad + len(values))]  # the buffer for the kernel

    def read(self) -> tuple[np.ndarray, int | None]:
        """Return what it holds now as uint32 of shape (n,), and where a canary died: an index, -1 just before it."""
        import pyopencl as cl

        cl.enqueue_copy(self._queue, self._whole, self._buffer)
        dead = np.flatnonzero(self._whole != self._guard)
        dead = dead[(dead < self._slice.start) | (dead >= self._slice.stop)]
        return self._whole[self._slice], int(dead[0]) - self._slice.start if len(dead) else None


def run_guarded(
    kernel: opencl.Kernel, given: dict[str, np.ndarray | np.generic], n: int, length: int, group: int, fill: int,
    order: str = "at once",
) -> np.ndarray:  # fmt: skip
    """Run a kernel (its inputs, its output, n) between canaries; refuse it if it writes anything but the output.

    Args:
        kernel: the learner's kernel.
        given: its inputs by name.
        n: its last argument; so many work-items are started, rounded up to whole work-groups.
        length: the number of elements of the output.
        group: work-items of a work-group.
        fill: the 32 bits that every element of the output holds before.
        order: "at once", or one work-group after the other, "forwards" or "backwards".

    Returns:
        The output, its bits as uint32 of shape (length,).
    """
    inputs = {name: Guarded(kernel.queue, v, OUTSIDE) for name, v in given.items() if isinstance(v, np.ndarray)}
    output = Guarded(kernel.queue, np.full(length, fill, np.uint32), fill)
    arguments = [inputs[name].inside if name in inputs else value for name, value in given.items()]
    arguments += [output.inside, np.int32(n)]
    groups = math.ceil(n / group)
    if order == "at once":
        kernel.kernel(kernel.queue, (groups * group,), (group,), *arguments)
    else:
        for number in range(groups) if order == "forwards" else reversed(range(groups)):
            kernel.kernel(kernel.queue, (group,), (group,), *arguments, global_offset=(number * group,))
    for name, buffer in {**inputs, "the output": output}.items():
        values, stray = buffer.read()
        if name in inputs and not np.array_equal(values, given[name].view(np.uint32)):
            raise NotYet(f"n = {n}: the kernel changed its input {name}; it may only write the output.")
        if stray is not None:
            guard = ": is there a guard, and does it stop at n - 1?" if len(values) == n else "."
            raise NotYet(
                f"n = {n}: the kernel wrote to element {stray} of {name}, which has the elements 0 to "
                f"{len(values) - 1}. {groups * group} work-items run{guard}"
            )
    return values


def find_unwritten(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which elements a kernel never writes, from its outputs after each of FILLS."""
    unwritten = (one == FILLS[0]) & (other == FILLS[1])
    if unwritten.all():
        raise NotDone("the kernel writes nothing.")
    return unwritten
