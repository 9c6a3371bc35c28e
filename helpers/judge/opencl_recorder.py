"""Record on the device which work-item of an OpenCL launch touches what, after how many barriers.

Lessons 01, 02, 12 and 15 use it. The learner's own kernel is rewritten (`opencl_rewriter`): before every access to
memory that work-items share, it records the address. An access outside is recorded and redirected to a spare element,
so nothing is damaged. A kernel with barriers first runs once without them, so that a barrier that only some work-items
reach, or a loop without end, is reported and never run. Accesses outside, races and counts are views of the one record
(`trace`). What the recorder cannot follow is in `Trace.unseen`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import KernelError
from helpers.errors import WorkshopError
from helpers.judge import opencl_log as layout
from helpers.judge.opencl_rewriter import Instrumented, instrument
from helpers.judge.trace import Trace

if TYPE_CHECKING:
    import pyopencl as cl


class NotTraceable(WorkshopError):
    """A kernel that cannot be recorded: it never ends, its barriers are not met by all, or the driver stops it."""


def record(
    kernel: opencl.Kernel,
    global_size: Sequence[int] | int,
    local_size: Sequence[int] | int,
    arguments: Sequence[np.ndarray | np.generic],
) -> Trace:
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
    items, group = _check_sizes(global_size, local_size)
    _check_arguments(kernel, arguments)
    built, instrumented = _build_instrumented(kernel, dry=True)
    log, arrays = _run(kernel, built, items, group, arguments)
    _refuse_endless(kernel, log)
    if instrumented.has_barriers:
        _refuse_divergence(kernel, log)
        built, instrumented = _build_instrumented(kernel, dry=False)
        log, arrays = _run(kernel, built, items, group, arguments)
        _refuse_endless(kernel, log)
    lengths = {}
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            lengths[parameter.name] = len(argument) // parameter.width
    return _read_log(log, lengths, arrays, instrumented, opencl.name(kernel.device))


@functools.lru_cache(maxsize=8)  # those who judge a kernel one after the other share it
def _build_instrumented(kernel: opencl.Kernel, dry: bool) -> tuple[cl.Kernel, Instrumented]:
    """Build the kernel with the recorder; without real barriers if `dry`."""
    import pyopencl as cl

    instrumented = instrument(kernel.source, kernel.name, dry)
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
    kernel: opencl.Kernel,
    built: cl.Kernel,
    items: tuple[int, ...],
    group: tuple[int, ...],
    arguments: Sequence[np.ndarray | np.generic],
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Launch the rewritten kernel on copies of the arguments.

    Returns:
        The log, int32 of shape (work-items, ROW), and the arrays among the arguments as the kernel left them.
    """
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    log = np.zeros((int(np.prod(items)), layout.ROW), np.int32)
    given = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    buffers = []
    for number, array in enumerate(given):
        log[:, layout.ARRAYS + layout.ARRAY_INTS * number + 2] = array.nbytes
        spare = np.zeros(array.nbytes + 2 * layout.SPARE, np.uint8)
        spare[: array.nbytes] = array.reshape(-1).view(np.uint8)
        buffers.append(cl.Buffer(kernel.context, flags, hostbuf=spare))
    in_order = iter(buffers)
    passed = [next(in_order) if isinstance(argument, np.ndarray) else argument for argument in arguments]
    log_buffer = cl.Buffer(kernel.context, flags, hostbuf=log)
    arrays = [np.empty(array.shape, array.dtype) for array in given]
    try:
        built(kernel.queue, items, group, log_buffer, *passed)
        cl.enqueue_copy(kernel.queue, log, log_buffer)
        for array, buffer in zip(arrays, buffers, strict=True):
            cl.enqueue_copy(kernel.queue, array, buffer)
    except cl.Error as error:
        raise NotTraceable(
            f"The kernel {kernel.name!r} could not be recorded on {opencl.name(kernel.device)}.",
            f"The driver says: {str(error).strip().splitlines()[0]}",
            "Does every loop end? Does the work-group fit the device? The system stops a GPU that draws no screen for "
            "some seconds.",
        ) from None
    return log, arrays


def _get_column(log: np.ndarray, count: str) -> np.ndarray:
    return log[:, layout.COUNTS.index(count)]


def _quote_line(kernel: opencl.Kernel, number: int) -> str:
    return f"line {number}, `{kernel.source.splitlines()[number - 1].strip()}`"


def _refuse_endless(kernel: opencl.Kernel, log: np.ndarray) -> None:
    for item in np.flatnonzero(_get_column(log, "endless"))[:1]:
        line = int(_get_column(log, "endless")[item])
        raise NotTraceable(
            f"The kernel {kernel.name!r} does not end.",
            f"Work-item {item} went {layout.MAX_STEPS:,} times round loops, and was still in that of "
            f"{_quote_line(kernel, line)}.",
            "Does what the loop waits for ever happen?",
        )


def _refuse_divergence(kernel: opencl.Kernel, log: np.ndarray) -> None:
    """Raise unless all work-items of each group meet the same barriers, in the same order."""
    sites = log[:, layout.SITES : layout.IDS]
    met = np.column_stack([_get_column(log, "barriers"), _get_column(log, "order"), sites])
    groups = log[:, layout.IDS + 6 : layout.ARRAYS]
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
    lines = dict.fromkeys(site % layout.BARRIER_LINE for site in sites if site)
    where = " and ".join(_quote_line(kernel, line) for line in lines)
    return f"{count} barrier{'s' if count > 1 else ''} ({where})"


def _check_sizes(
    global_size: Sequence[int] | int, local_size: Sequence[int] | int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return both sizes as tuples of one length, once the first is a multiple of the second."""
    items, group = _as_tuple(global_size), _as_tuple(local_size)
    if len(items) == len(group) and all(g > 0 < w and g % w == 0 for g, w in zip(items, group, strict=True)):
        return items, group
    raise WorkshopError(
        f"A launch of {global_size} work-items in work-groups of {local_size} cannot be traced.",
        "In each dimension, the work-items must be a multiple of the work-group, and both must be positive.",
        "Round the number of work-items up to whole work-groups, for example (12,) in groups of (4,).",
    )


def _as_tuple(size: Sequence[int] | int | None) -> tuple[int, ...]:
    """Return a size as a tuple; empty for None, which a learner may know from PyOpenCL."""
    if size is None:
        return ()
    return tuple(size) if isinstance(size, Sequence | np.ndarray) else (int(size),)


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


def _read_log(
    log: np.ndarray, lengths: dict[str, int], arrays: list[np.ndarray], instrumented: Instrumented, device: str
) -> Trace:
    touched = _get_column(log, "touches")
    is_listed = np.arange(layout.MAX_TOUCHES) < touched[:, None]
    rows = log[:, layout.HEADER :].reshape(len(log), layout.MAX_TOUCHES, layout.TOUCH)
    unseen = list(instrumented.unseen)
    if (touched > layout.MAX_TOUCHES).any():
        unseen.append(f"what a work-item touches after its first {layout.MAX_TOUCHES} accesses is only counted")
    global_ids, local_ids, group_ids = np.split(log[:, layout.IDS : layout.ARRAYS], 3, 1)
    return Trace(
        device,
        lengths,
        global_ids,
        local_ids,
        group_ids,
        global_accesses=_get_column(log, "global_accesses"),
        barriers=_get_column(log, "barriers"),
        unseen=unseen,
        arrays=arrays,
        _arrays=instrumented.arrays,
        _listed=np.column_stack([np.nonzero(is_listed)[0], rows[is_listed]]),
        _element_bytes=log[0, layout.ARRAYS + 3 : layout.HEADER : layout.ARRAY_INTS].tolist(),
        _sites=instrumented.sites,
        loop_rounds=_get_column(log, "steps").tolist(),
    )
