"""Judge exercises: random data, awkward sizes, canaries around output buffers, any order of work-items, repeats.

Every check prints a verdict: "right", "not yet: ..." or "not done yet". It never raises for a learner. With
ANYGPU_GRADE=1 (tests, autograding) a wrong and an untouched exercise raise `CheckFailed` instead, because an autograder
gives full points to a cell that merely prints "wrong"; nothing is ever written to standard error.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

GRADE = "ANYGPU_GRADE"


class CheckFailed(Exception):
    """An exercise that is wrong or untouched, while grading."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class _NotYet(Exception):
    """What was expected, what came, and where."""


class _NotDone(Exception):
    """The exercise is as it was handed out."""


def _verdict(judge: Callable[..., str | None]) -> Callable[..., None]:
    """Make a check of a function that raises _NotYet or _NotDone, or returns what it tried when all is right."""

    @functools.wraps(judge)
    def check(*args: object, **kwargs: object) -> None:
        try:
            tried = judge(*args, **kwargs)
        except _NotDone as untouched:
            message = f"not done yet: {untouched}"
        except _NotYet as wrong:
            message = f"not yet: {wrong}"
        else:
            print(f"right ({tried})")
            return
        if os.environ.get(GRADE) == "1":
            raise CheckFailed(message)
        print(message)

    return check


# ---------------------------------------------------------------------------------------------- predictions


def compare_prediction(prediction: object, measured: object, unit: str = "") -> None:
    """Print a learner's prediction beside what was measured, or that none was made.

    Args:
        prediction: what the learner filled in; None or `...` means no prediction.
        measured: what the cell measured.
        unit: the unit of both.
    """
    came = f"{measured:.3g}" if isinstance(measured, float) else str(measured)
    if prediction is None or prediction is ...:
        print(f"no prediction made; measured: {came} {unit}".rstrip())
    else:
        print(f"you predicted: {prediction} {unit}\nmeasured:      {came} {unit}".rstrip())


# ---------------------------------------------------------------------------------------------- functions


@_verdict
def function(
    learner: Callable[..., object], reference: Callable[..., object],
    cases: Callable[[np.random.Generator], Iterable[tuple]],
) -> str:  # fmt: skip
    """Judge a Python function against a reference on cases that change with every call.

    Args:
        learner: the learner's function; one that returns None or `...`, or raises NotImplementedError, is not done.
        reference: returns the right answer for the same arguments.
        cases: given a random generator, returns tuples of arguments; put the awkward ones in by hand.
    """
    tried = 0
    for arguments in cases(np.random.default_rng()):
        tried += 1
        expected = reference(*_copies(arguments))
        for _ in range(2):  # a function that remembers its last call differs the second time
            given = _copies(arguments)
            came = _call(learner, given, arguments)
            if came is None or came is ...:
                raise _NotDone("the function returns nothing.")
            _compare(expected, came, f"for {_call_text(learner, arguments)}")
            if not all(_same(one, other) for one, other in zip(given, arguments, strict=True)):
                raise _NotYet(f"{_call_text(learner, arguments)} changed its own argument; work on a copy.")
    return f"{tried} cases"


def _call(learner: Callable[..., object], given: tuple, arguments: tuple) -> object:
    try:
        return learner(*given)
    except NotImplementedError:
        return None
    except Exception as error:
        raise _NotYet(f"{_call_text(learner, arguments)} stopped with {type(error).__name__}: {error}") from None


def _copies(arguments: tuple) -> tuple:
    import copy

    return copy.deepcopy(arguments)


def _call_text(learner: Callable[..., object], arguments: tuple) -> str:
    return f"{getattr(learner, '__name__', 'function')}({', '.join(_short(a) for a in arguments)})"


def _short(value: object) -> str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif isinstance(value, list | tuple) and any(isinstance(one, np.generic) for one in value):
        value = [one.item() if isinstance(one, np.generic) else one for one in value]
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one == other


def _compare(expected: object, came: object, where: str) -> None:
    """Raise _NotYet unless `came` is `expected`: numbers to 1e-5 of their size, everything else exactly."""
    if isinstance(expected, bool | np.bool_ | str | None.__class__):
        right = isinstance(came, bool | np.bool_ | str) and came == expected
    elif isinstance(expected, (int, float, np.number, np.ndarray, list, tuple)):
        try:
            values, wanted = np.asarray(came), np.asarray(expected)
            if values.shape != wanted.shape:
                raise _NotYet(f"{where} expected shape {wanted.shape}, came {values.shape}: {_short(came)}.")
            right = np.allclose(values, wanted, rtol=1e-5, atol=1e-9)
        except (TypeError, ValueError):
            right = False
    else:
        right = came == expected
    if not right:
        raise _NotYet(f"{where} expected {_short(expected)}, came {_short(came)}.")


# ---------------------------------------------------------------------------------------------- kernels

LOCAL_SIZE = 64
SIZES = (1, 63, 64, 65, 257, 1000)  # one element, about one work-group, several, and never only multiples of one
UNWRITTEN = 0x7FC0BEEF  # a float32 NaN (or an int32) that no computation makes
OUTSIDE = 0x7FC0CAFE  # likewise, beyond the ends of the inputs


def _random(kind: str, rng: np.random.Generator, n: int) -> np.ndarray | np.generic:
    """Random numbers for one parameter of a kernel: `float`, `int`, or n of them, `float[]`, `int[]`."""
    count = n if kind.endswith("[]") else None
    if kind.startswith("float"):
        return rng.normal(size=count).astype(np.float32) if count else np.float32(rng.normal())
    return rng.integers(-99, 100, count, np.int32) if count else np.int32(rng.integers(1, 100))


@_verdict
def kernel(
    source: str, name: str, inputs: Callable[[np.random.Generator, int], Sequence],
    reference: Callable[..., np.ndarray], sizes: Sequence[int] = SIZES, device: cl.Device | None = None,
) -> str:  # fmt: skip
    """Judge a one-dimensional kernel whose parameters are its inputs, then the output, then `const int n`.

    Each size runs on fresh random data: all work-items at once, three times, and then one work-group after the other,
    forwards and backwards, because OpenCL promises no order. The output lies between canaries of a whole
    work-group and more, and the inputs between values that spoil every result, so that a missing guard shows.

    Args:
        source: OpenCL C with the kernel.
        name: the kernel's name.
        inputs: what each input parameter takes: `float[]` or `int[]` (n elements of 4 bytes), `float` or `int` (one).
        reference: given the same inputs, returns the right output of shape (n,), float32 or int32.
        sizes: the sizes n to try; a random one is added.
        device: where to run; the lessons' device if None.
    """
    import pyopencl as cl

    from helpers import opencl

    rng = np.random.default_rng()
    device = device or opencl.pick_device()
    queue = cl.CommandQueue(cl.Context([device]))
    run = _compiled(queue, source, name)
    # The largest size first: a kernel that was never touched is then told so, and not that it is wrong for one element.
    tried = sorted({*sizes, int(rng.integers(300, 3000))}, reverse=True)
    for n in tried:
        given = [_random(kind, rng, n) for kind in inputs]
        expected = np.asarray(reference(*given))
        if run.num_args != len(given) + 2:
            raise _NotYet(f"expected a kernel of {len(given) + 2} parameters, came one of {run.num_args}.")
        first = None
        for order in ("at once", "at once", "at once", "forwards", "backwards"):
            came = _run_guarded(queue, run, given, expected.dtype, n, order)
            _judge_output(came, expected, n, order)
            first = came if first is None else first
            if not np.array_equal(first, came, equal_nan=True):
                i = int(np.flatnonzero(first != came)[0])
                pair = f"{_number(first[i])} in one run and {_number(came[i])} in another"
                raise _NotYet(f"n = {n}: element {i} was {pair}: a race.")
    return (
        f"{len(tried)} sizes from {min(tried)} to {max(tried)}, in any order of work-groups, on {opencl.name(device)}"
    )


def _compiled(queue: cl.CommandQueue, source: str, name: str) -> cl.Kernel:
    import pyopencl as cl

    from helpers import opencl

    if not isinstance(source, str) or not source.strip():
        raise _NotDone("there is no kernel yet.")
    try:
        return cl.Kernel(opencl.build(queue.context, source), name)
    except opencl.KernelError as error:
        raise _NotYet(f"the kernel does not compile.\n{error.why}") from None
    except cl.Error:
        raise _NotYet(f"expected a kernel called {name!r}; the source has none of that name.") from None


def _run_guarded(
    queue: cl.CommandQueue, run: cl.Kernel, given: list, dtype: np.dtype, n: int, order: str
) -> np.ndarray:
    """Run once and return the output of shape (n,); complain if anything outside it was written."""
    import pyopencl as cl

    pad = _pad(queue.device)
    buffers, arrays = [], []
    for value in given:
        if isinstance(value, np.ndarray):
            arrays.append((_guarded_buffer(queue, value, OUTSIDE, pad), value))
            value = arrays[-1][0][pad * 4 : pad * 4 + 4 * n]
        buffers.append(value)
    output = _guarded_buffer(queue, np.full(n, UNWRITTEN, np.uint32), UNWRITTEN, pad)
    arguments = [*buffers, output[pad * 4 : pad * 4 + 4 * n], np.int32(n)]
    groups = math.ceil(n / LOCAL_SIZE)
    try:
        if order == "at once":
            run(queue, (groups * LOCAL_SIZE,), (LOCAL_SIZE,), *arguments)
        else:
            for group in range(groups) if order == "forwards" else reversed(range(groups)):
                run(queue, (LOCAL_SIZE,), (LOCAL_SIZE,), *arguments, global_offset=(group * LOCAL_SIZE,))
    except (cl.Error, TypeError, ValueError) as error:
        raise _NotYet(f"the kernel cannot be started: {error}. Do its parameters have the right types?") from None
    for number, (buffer, value) in enumerate(arrays):
        whole = np.empty(n + 2 * pad, np.uint32)
        cl.enqueue_copy(queue, whole, buffer)
        if not np.array_equal(whole[pad : pad + n], value.view(np.uint32)):
            raise _NotYet(f"n = {n}: the kernel changed its input number {number + 1}; it may only write the output.")
        _canaries(whole, n, pad, OUTSIDE, f"input number {number + 1}")
    whole = np.empty(n + 2 * pad, np.uint32)
    cl.enqueue_copy(queue, whole, output)
    _canaries(whole, n, pad, UNWRITTEN, "the output")
    return whole[pad : pad + n].view(dtype)


def _pad(device: cl.Device) -> int:
    """Elements of 4 bytes before and after a buffer: more than a work-group, and what sub-buffers must align to."""
    alignment = max(device.mem_base_addr_align // 8 // 4, 1)
    return math.ceil(2 * LOCAL_SIZE / alignment) * alignment


def _guarded_buffer(queue: cl.CommandQueue, values: np.ndarray, guard: int, pad: int) -> cl.Buffer:
    import pyopencl as cl

    if values.dtype.itemsize != 4:
        raise WorkshopError(f"checks.kernel takes arrays of 4-byte elements, not {values.dtype}.")
    whole = np.full(len(values) + 2 * pad, guard, np.uint32)
    whole[pad : pad + len(values)] = values.view(np.uint32)
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=whole)


def _canaries(whole: np.ndarray, n: int, pad: int, guard: int, what: str) -> None:
    changed = np.flatnonzero(whole != guard) - pad
    outside = changed[(changed < 0) | (changed >= n)]
    if len(outside):
        raise _NotYet(
            f"n = {n}: the kernel wrote to element {outside[0]} of {what}, which has the elements 0 to {n - 1}. "
            f"{math.ceil(n / LOCAL_SIZE) * LOCAL_SIZE} work-items run: is there a guard?"
        )


def _number(value: np.generic) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def _judge_output(came: np.ndarray, expected: np.ndarray, n: int, order: str) -> None:
    bits = came.view(np.uint32)
    if (bits == UNWRITTEN).all():
        raise _NotDone("the kernel writes nothing.")
    right = (
        np.isclose(came, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        if np.issubdtype(came.dtype, np.floating)
        else came == expected
    )
    if right.all():
        return
    i = int(np.flatnonzero(~right)[0])
    value = "nothing: it was never written" if bits[i] == UNWRITTEN else _number(came[i])
    hint = " Does it read outside an input?" if value == "nan" else ""
    when = "" if order == "at once" else f" (work-groups run {order}, one by one: OpenCL promises no order)"
    raise _NotYet(f"n = {n}, element {i}: expected {_number(expected[i])}, came {value}.{hint}{when}")
