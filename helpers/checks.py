"""Judge exercises: random data, awkward sizes, canaries around output buffers, any order of work-items, repeats.

Every check prints a verdict: "right", "not yet: ..." or "not done yet". It never raises for a learner. With
ANYGPU_GRADE=1 (tests, autograding) a wrong and an untouched exercise raise `CheckFailed` instead, because an autograder
gives full points to a cell that merely prints "wrong"; nothing is ever written to standard error.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
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


@_verdict
def every(*judges: Callable[[], str]) -> str:
    """Judge an exercise of several parts; the first part that is not right speaks for all.

    Args:
        judges: functions without arguments that call `judge_function` or `judge_kernel`.
    """
    return "; ".join(judge() for judge in judges)


def judge_changed(answer: str, starter: str) -> str:
    """Judge an exercise that mends something: it is not done as long as it is what was handed out."""
    if not isinstance(answer, str) or answer.split() == starter.split():
        raise _NotDone("this is what you were given, and it has the fault.")
    return "changed"


def judge_apart(judge: Callable[..., str], seconds: float = 30.0, **arguments: object) -> str:
    """Let another judge run the learner's kernel in a process of its own, where it may crash or never end.

    Args:
        judge: a function of a module, which a fresh process can import.
        seconds: after so long the kernel is taken for endless.
        arguments: for the judge, plain data.
    """
    from helpers import processes

    given = {"module": judge.__module__, "name": judge.__name__, "arguments": arguments}
    run = processes.run(_judge_here, seconds=seconds, check=False, arguments=given)
    if run.result is None:
        fate = run.failures[0].partition("; it was in line")[0]
        if "SIG" in fate:
            fate += ". Does a work-item write beyond the end of an array? What do those do that have no element?"
        raise _NotYet(f"the process that ran your kernel did not live to tell: {fate}")
    verdict, said = run.result
    if verdict == "right":
        return said
    raise _NotDone(said) if verdict == "not done" else _NotYet(said)


def _judge_here(module: str, name: str, arguments: dict) -> tuple[str, str]:
    """Judge in this process, and return the verdict as data; its source travels, so it imports what it uses."""
    import importlib

    from helpers import checks, errors

    try:
        return "right", getattr(importlib.import_module(module), name)(**arguments)
    except checks._NotDone as untouched:
        return "not done", str(untouched)
    except (checks._NotYet, errors.WorkshopError) as wrong:
        return "not yet", str(wrong)


# ---------------------------------------------------------------------------------------------- predictions


def compare_prediction(prediction: object, measured: object, unit: str = "") -> None:
    """Print a learner's prediction beside what was measured, or that none was made.

    Args:
        prediction: what the learner filled in; None or `...` means no prediction.
        measured: what the cell measured.
        unit: the unit of both.
    """
    if isinstance(measured, str):
        unit = ""
    came, guessed = (f"{_plain(value)} {unit}".rstrip() for value in (measured, prediction))
    if prediction is None or prediction is ...:
        print(f"no prediction made; measured: {came}")
    else:
        print(f"you predicted: {guessed}\nmeasured:      {came}")


def _plain(value: object) -> str:
    """A number as people write it, anything else as it is."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---------------------------------------------------------------------------------------------- functions


def judge_function(
    learner: Callable[..., object], reference: Callable[..., object],
    cases: Callable[[np.random.Generator], Iterable[tuple]],
) -> str:  # fmt: skip
    """Judge a Python function against a reference on cases that change with every call.

    Args:
        learner: the learner's function; one that returns None or `...`, or raises NotImplementedError, is not done.
        reference: returns the right answer for the same arguments.
        cases: given a random generator, returns tuples of arguments; put the awkward ones in by hand.

    Returns:
        What was tried, for the verdict. `function` prints that verdict.
    """
    tried = 0
    for arguments in cases(np.random.default_rng()):
        expected = reference(*_copies(arguments))
        for _ in range(2):  # a function that remembers its last call differs the second time
            given = _copies(arguments)
            came = _call(learner, given, arguments)
            if came is None or came is ...:
                nothing = f"{_call_text(learner, arguments)} returns nothing"
                if tried:
                    raise _NotYet(f"{nothing}. Does every way through the function end with `return`?")
                raise _NotDone(f"{nothing}. (It is `return` that hands an answer back, not `print`.)")
            _compare(expected, came, f"for {_call_text(learner, arguments)}")
            if not all(_same(one, other) for one, other in zip(given, arguments, strict=True)):
                raise _NotYet(f"{_call_text(learner, arguments)} changed its own argument; work on a copy.")
        tried += 1
    return f"{tried} cases"


function = _verdict(judge_function)


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
    if isinstance(value, np.ndarray):
        return f"np.array({_short(value.tolist())})"
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, list | tuple) and any(isinstance(one, np.generic) for one in value):
        value = [one.item() if isinstance(one, np.generic) else one for one in value]
    arrays = isinstance(value, list) and any(isinstance(one, np.ndarray) for one in value)
    text = f"[{', '.join(_short(one) for one in value)}]" if arrays else repr(value)
    most = 240 if isinstance(value, dict) else 80
    return text if len(text) <= most else text[: most - 3] + "..."


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _compare(expected: object, came: object, where: str) -> None:
    """Raise _NotYet unless `came` is `expected`: numbers to 1e-5 of their size, everything else exactly."""
    if type(expected) is int and isinstance(came, float | np.floating) and came == expected:
        raise _NotYet(
            f"{where} expected {expected}, a whole number; came {_short(came)}, a float. `int(...)` makes one."
        )
    if isinstance(expected, bool | np.bool_ | str | None.__class__):
        right = isinstance(came, bool | np.bool_ | str) and came == expected
    elif isinstance(expected, list) and any(isinstance(one, str) for one in expected):
        right = isinstance(came, list | tuple | np.ndarray) and list(came) == expected
    elif isinstance(expected, (int, float, np.number, np.ndarray, list, tuple)):
        try:
            values, wanted = np.asarray(came), np.asarray(expected)
            same_shape = values.shape == wanted.shape
            if not same_shape and not (isinstance(expected, list) and isinstance(came, list) and len(expected) <= 8):
                raise _NotYet(f"{where} expected {_size(wanted)}, came {_size(values)}: {_short(came)}.")
            right = same_shape and np.allclose(values, wanted, rtol=1e-5, atol=1e-9)
        except (TypeError, ValueError):
            right = False
    else:
        right = came == expected
    if not right:
        raise _NotYet(f"{where} expected {_short(expected)}, came {_short(came)}")


def _size(values: np.ndarray) -> str:
    if values.ndim == 0:
        return "a single value" if values.dtype != object else f"one {type(values.item()).__name__}"
    if values.ndim > 1:
        return f"an array of shape {values.shape}"
    return f"a list of {len(values)}" if len(values) == 1 else f"{len(values)} values"


# ---------------------------------------------------------------------------------------------- Tile functions


def judge_tile(
    source: str, reference: Callable[..., np.ndarray], cases: Callable[[np.random.Generator], Iterable[tuple]]
) -> str:
    """Judge a function in the Tile language against NumPy on cases that change with every call.

    Args:
        source: the Tile function, with one output.
        reference: returns the right output for the same arrays.
        cases: given a random generator, returns tuples of float32 arrays; put the awkward shapes in by hand.

    Returns:
        What was tried, for the verdict. `tile_function` prints that verdict.
    """
    from helpers import tile

    if isinstance(source, tile.Function):
        raise _NotYet("this is a tile.Function; hand in its text.")
    body = re.sub(r"//[^\n]*", "", source) if isinstance(source, str) else ""
    if "function" not in body and "=" in body:
        raise _NotYet("the text must begin with `function`, as it did before you wrote.")
    if not body.partition("{")[2].replace("}", "").strip():
        raise _NotDone("there is no statement yet (what stands behind // is a comment).")
    tried = 0
    try:
        learner = tile.Function(source)
        for arrays in cases(np.random.default_rng()):
            sizes = " and ".join(" x ".join(map(str, array.shape)) for array in arrays)
            values = f", {', '.join(_short(array.tolist()) for array in arrays)}" if tried == 0 else ""
            _compare_tensors(reference(*arrays), learner(*arrays), f"for {sizes}{values}")
            tried += 1
    except tile.TileError as error:
        raise _NotYet(str(error)) from None
    return f"{tried} cases"


tile_function = _verdict(judge_tile)


def _compare_tensors(expected: np.ndarray, came: np.ndarray, where: str) -> None:
    """Raise _NotYet unless `came` is `expected` up to the rounding of float32 sums in any order."""
    if came.shape != expected.shape:
        raise _NotYet(f"{where} expected {_size(expected)}, came {_size(came)}: {_short(came)}.")
    if not np.allclose(came, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max())):
        raise _NotYet(f"{where} expected {_short(expected)}, came {_short(came)}")


# ---------------------------------------------------------------------------------------------- kernels

LOCAL_SIZE = 64
SIZES = (1, 63, 64, 65, 257, 1000)  # one element, about one work-group, several, and never only multiples of one
OUTSIDE = 0x7FC0CAFE  # beyond the ends of the inputs: a float32 NaN (or an int32) that no computation makes
# What the output holds before a run: another such NaN, and 1e-30, which any sum swallows. What keeps both is unwritten.
FILLS = (0x7FC0BEEF, 0x0DA24260)
COUNTED = 64  # elements of the launch whose accesses are counted
TRACED, TRACED_GROUP = 9, 4  # elements (an odd number of them) and work-group of the launch that is traced


def _random(kind: str, rng: np.random.Generator, n: int) -> np.ndarray | np.generic:
    """Random numbers for one parameter of a kernel: `float`, `int`, or n of them, `float[]`, `int[]`."""
    count = n if kind.endswith("[]") else None
    if kind.startswith("float"):
        # A single number stays away from 0 and 1, at which a wrong formula could be right.
        single = rng.choice((-1, 1)) * rng.uniform(1.5, 3)
        return rng.normal(size=count).astype(np.float32) if count else np.float32(single)
    return rng.integers(-99, 100, count, np.int32) if count else np.int32(rng.integers(2, 100))


def judge_kernel(
    source: str, name: str, inputs: Sequence[str], reference: Callable[..., np.ndarray],
    reach: int = 0, sizes: Sequence[int] = SIZES, device: cl.Device | None = None,
    groups: Sequence[int] = (LOCAL_SIZE,), advice: str = "",
) -> str:  # fmt: skip
    """Judge a one-dimensional kernel whose parameters are its inputs, then the output, then `const int n`.

    Each size runs on fresh random data: all work-items at once, several times, and then one work-group after the other,
    forwards and backwards, because OpenCL promises no order. The output lies between canaries of a whole work-group and
    more, and the inputs between values that spoil every result, so that a missing guard shows. A last, small launch is
    traced: it finds reads beyond the end that spoil nothing, and elements that several work-items write.

    Args:
        source: OpenCL C with the kernel.
        name: the kernel's name.
        inputs: what each input parameter takes: `float[]` or `int[]` (n elements of 4 bytes), `float` or `int` (one).
        reference: given the same inputs, returns the right output of shape (n,), float32 or int32.
        reach: how many neighbours on each side an output depends on; messages show them.
        sizes: the sizes n to try; a random one is added.
        device: where to run; the lessons' device if None.
        groups: how many work-items a work-group has; every size is tried with each.
        advice: what this exercise's mistakes come from, said after what is wrong.

    Returns:
        What was tried, for the verdict. `kernel` prints that verdict.
    """
    import pyopencl as cl

    from helpers import opencl

    rng = np.random.default_rng()
    device = device or opencl.pick_device()
    context = cl.Context([device])  # Intel's driver forgets a context that only its queue still holds
    queue = cl.CommandQueue(context)
    run = _compiled(context, source, name)
    names = _parameter_names(source, name, inputs, np.asarray(reference(*_inputs(inputs, rng, 2))).dtype)
    # The largest size first: a kernel that was never touched is then told so, and not that it is wrong for one element.
    tried = sorted({*sizes, int(rng.integers(300, 3000))}, reverse=True)
    try:
        for n, group in itertools.product(tried, groups):
            given = dict(zip(names, _inputs(inputs, rng, n), strict=False))
            _judge_size(queue, run, given, reference, n, reach, group)
        _judge_trace(source, name, _inputs(inputs, rng, TRACED), reference, device)
    except _NotYet as wrong:
        raise _NotYet(f"{wrong} {advice}".rstrip()) from None
    sizes_tried = f"{len(tried)} sizes from {min(tried)} to {max(tried)}"
    return f"{sizes_tried}, work-groups in any order, on {opencl.name(device)}"


kernel = _verdict(judge_kernel)


def judge_accesses(source: str, name: str, most: Callable[[int, int], int], device: cl.Device | None = None) -> str:
    """Judge how often a right kernel of one array of floats, an output and `const int n` asks global memory.

    Args:
        source: OpenCL C with the kernel.
        name: the kernel's name.
        most: how many accesses all work-items together may make, from n and the number of work-groups.
        device: where to run; the lessons' device if None.

    Returns:
        What was counted, for the verdict.
    """
    from helpers import opencl

    n, group = COUNTED, COUNTED // 4
    x, out = np.ones((2, n), np.float32)
    seen = opencl.trace(source, name, (n,), (group,), [x, out, np.int32(n)], device)
    for touch in seen.outside:
        raise _NotYet(
            f"{n} work-items on {n} elements in groups of {group}: work-item {touch.item} touches element "
            f"{touch.index} of {touch.array}, which has the elements 0 to {n - 1}. "
            "Ask whether it exists before you touch it."
        )
    came = int(seen.counts.sum())
    allowed = most(n, n // group)
    counted = f"{came} accesses to global memory for {n} elements in {n // group} work-groups"
    if came > allowed:
        raise _NotYet(f"the result is right, but with {counted}; expected at most {allowed}.")
    return counted


def _inputs(kinds: Sequence[str], rng: np.random.Generator, n: int) -> list[np.ndarray | np.generic]:
    return [_random(kind, rng, n) for kind in kinds]


def _parameter_names(source: str, name: str, inputs: Sequence[str], output: np.dtype) -> list[str]:
    """The names of the kernel's parameters, once their number and their types are right."""
    from helpers import opencl

    _, _, parameters = opencl.find_kernel(source, name)
    element = "float" if np.issubdtype(output, np.floating) else "int"
    wanted = [*inputs, f"{element}[]", "int"]
    if len(parameters) != len(wanted):
        raise _NotYet(f"expected a kernel of {len(wanted)} parameters, came one of {len(parameters)}.")
    for number, (parameter, kind) in enumerate(zip(parameters, wanted, strict=True), 1):
        words = parameter.text.replace("*", " * ").split()
        if kind.removesuffix("[]") not in words or ("*" in words) != kind.endswith("[]"):
            meant = f"a pointer to {kind[:-2]} (`__global {kind[:-2]} *`)" if kind.endswith("[]") else f"one {kind}"
            raise _NotYet(f"parameter {number} is `{parameter.text}`; expected {meant}.")
    return [parameter.name for parameter in parameters]


def _judge_size(
    queue: cl.CommandQueue,
    run: cl.Kernel,
    given: dict[str, np.ndarray],
    reference: Callable,
    n: int,
    reach: int,
    group: int,
) -> None:
    """Run on n elements, with two fills and in several orders, and judge every output."""
    expected = np.asarray(reference(*given.values()))
    one, other = (_run_guarded(queue, run, given, expected.dtype, n, "at once", fill, group) for fill in FILLS)
    unwritten = (one.view(np.uint32) == FILLS[0]) & (other.view(np.uint32) == FILLS[1])
    if unwritten.all():
        raise _NotDone("the kernel writes nothing.")
    _judge_output(one, expected, given, unwritten, other, "at once", reach)
    for order in ("at once", "at once", "forwards", "backwards"):
        came = _run_guarded(queue, run, given, expected.dtype, n, order, FILLS[0], group)
        _judge_output(came, expected, given, unwritten, other, order, reach)


def _judge_trace(source: str, name: str, given: list, reference: Callable, device: cl.Device) -> None:
    """Launch a few work-items more than there are elements, and look at what each of them touches."""
    from helpers import opencl

    out = np.zeros_like(reference(*given))
    items = math.ceil(TRACED / TRACED_GROUP) * TRACED_GROUP
    seen = opencl.trace(source, name, (items,), (TRACED_GROUP,), [*given, out, np.int32(TRACED)], device)
    launch = f"{items} work-items on {TRACED} elements"
    for touch in seen.outside:
        verb = "writes" if touch.writes else "reads"
        beyond = "It is beyond the end: ask whether the element exists before it is read or written."
        inside = "It has an element of its own, but not that neighbour: ask for the edges before touching them."
        raise _NotYet(
            f"{launch}: work-item {touch.item} {verb} element {touch.index} of {touch.array}, which has the elements 0 "
            f"to {TRACED - 1}. {beyond if touch.item >= TRACED else inside}"
        )
    writers: dict[int, set[int]] = {}
    for touch in seen.touches:
        if touch.writes:
            writers.setdefault(touch.index, set()).add(touch.item)
    for index, who in writers.items():
        if len(who) > 1:
            first = ", ".join(str(item) for item in sorted(who)[:3])
            raise _NotYet(
                f"{launch}: element {index} is written by work-items {first}{', ...' if len(who) > 3 else ''}. "
                "Each work-item should write its own element, the one with its global id."
            )


def _compiled(context: cl.Context, source: str, name: str) -> cl.Kernel:
    import pyopencl as cl

    from helpers import opencl

    if not isinstance(source, str) or not source.strip():
        raise _NotDone("there is no kernel yet.")
    try:
        return cl.Kernel(opencl.build(context, source), name)
    except opencl.KernelError as error:
        raise _NotYet(f"the kernel does not compile.\n{error.why}") from None
    except cl.Error:
        raise _NotYet(f"expected a kernel called {name!r}; the source has none of that name.") from None


def _run_guarded(
    queue: cl.CommandQueue, run: cl.Kernel, given: dict, dtype: np.dtype, n: int, order: str, fill: int, group: int
) -> np.ndarray:
    """Run once and return the output of shape (n,); complain if anything outside it was written."""
    import pyopencl as cl

    pad = _pad(queue.device)
    inside = slice(pad * 4, pad * 4 + 4 * n)
    inputs = {name: _guarded_buffer(queue, v, OUTSIDE, pad) for name, v in given.items() if isinstance(v, np.ndarray)}
    output = _guarded_buffer(queue, np.full(n, fill, np.uint32), fill, pad)
    arguments = [inputs[name][inside] if name in inputs else value for name, value in given.items()]
    _launch(queue, run, [*arguments, output[inside], np.int32(n)], math.ceil(n / group), group, order)
    whole = np.empty(n + 2 * pad, np.uint32)
    for name, buffer in inputs.items():
        cl.enqueue_copy(queue, whole, buffer)
        if not np.array_equal(whole[pad : pad + n], given[name].view(np.uint32)):
            raise _NotYet(f"n = {n}: the kernel changed its input {name}; it may only write the output.")
        _canaries(whole, n, pad, OUTSIDE, name, group)
    cl.enqueue_copy(queue, whole, output)
    _canaries(whole, n, pad, fill, "the output", group)
    return whole[pad : pad + n].view(dtype)


def _launch(queue: cl.CommandQueue, run: cl.Kernel, arguments: list, groups: int, group: int, order: str) -> None:
    """Start `groups` work-groups of `group` work-items, at once or one by one, forwards or backwards."""
    if order == "at once":
        run(queue, (groups * group,), (group,), *arguments)
        return
    for number in range(groups) if order == "forwards" else reversed(range(groups)):
        run(queue, (group,), (group,), *arguments, global_offset=(number * group,))


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


def _canaries(whole: np.ndarray, n: int, pad: int, guard: int, what: str, group: int = LOCAL_SIZE) -> None:
    changed = np.flatnonzero(whole != guard) - pad
    outside = changed[(changed < 0) | (changed >= n)]
    if len(outside):
        raise _NotYet(
            f"n = {n}: the kernel wrote to element {outside[0]} of {what}, which has the elements 0 to {n - 1}. "
            f"{math.ceil(n / group) * group} work-items run: is there a guard, and does it stop at n - 1?"
        )


def _number(value: np.generic) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def _judge_output(
    came: np.ndarray, expected: np.ndarray, given: dict, unwritten: np.ndarray, refilled: np.ndarray,
    order: str, reach: int,
) -> None:  # fmt: skip
    """Compare an output with what was expected.

    Args:
        came: the output, which held FILLS[0] before.
        expected: what it should be.
        given: the inputs by name, for the message.
        unwritten: which elements the kernel never writes.
        refilled: the output of a run in which it held FILLS[1] before.
        order: in which order the work-groups ran.
        reach: how many neighbours of an element to show.
    """
    right = (
        np.isclose(came, expected, rtol=1e-4, atol=1e-5) if np.issubdtype(came.dtype, np.floating) else came == expected
    )
    if right.all():
        return
    i = int(np.flatnonzero(~right)[0])
    around = range(max(i - reach, 0), min(i + reach + 1, len(came)))
    with_inputs = ", ".join(
        ", ".join(f"{name}[{k}] = {_number(value[k])}" for k in around)
        if isinstance(value, np.ndarray)
        else f"{name} = {_number(value)}"
        for name, value in given.items()
    )
    where = f"n = {len(came)}, element {i} ({with_inputs}): expected {_number(expected[i])}"
    if unwritten[i]:
        raise _NotYet(f"{where}, came nothing: it was never written.")
    if order == "at once" and not np.isclose(came[i], refilled[i], equal_nan=True):
        raise _NotYet(
            f"{where}; what came differs from run to run: is something read that nobody or somebody else wrote?"
        )
    hint = " Does it read outside an input?" if np.isnan(came[i]) else ""
    when = "" if order == "at once" else f" (work-groups run {order}, one by one: OpenCL promises no order)"
    raise _NotYet(f"{where}, came {_number(came[i])}.{hint}{when}")


# ---------------------------------------------------------------------------------------------- reductions

POISON = """
__kernel void poison(__global int *out) {
    __local int spoilt[%(size)d];
    for (int k = get_local_id(0); k < %(size)d; k += get_local_size(0)) {
        spoilt[k] = 1000003 * (k + 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = spoilt[get_local_size(0) - 1 - get_local_id(0)];
}
"""


def judge_group_sums(source: str, name: str, group: int = LOCAL_SIZE, device: cl.Device | None = None) -> str:
    """Judge a kernel (x, sums, n) that writes the sum of each work-group's elements of x to sums[its number].

    Each size runs several times on fresh whole numbers, between canaries, after a kernel that leaves other numbers in
    local memory. A kernel without barriers may still be right on a device that runs a group one work-item after the
    other; so a last launch is recorded, and judged by what it touches between which barriers.

    Args:
        source: OpenCL C; x and sums are arrays of int, n is an int.
        name: the kernel's name.
        group: work-items of a work-group.
        device: where to run; the lessons' device if None.

    Returns:
        What was tried, for the verdict.
    """
    import pyopencl as cl

    from helpers import opencl, races

    rng = np.random.default_rng()
    device = device or opencl.pick_device()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    run = _compiled(context, source, name)
    _parameter_names(source, name, ("int[]",), np.dtype(np.int32))
    if branch := races.barrier_in_branch(source):
        raise _NotYet(f"a barrier stands in `{branch}`; every work-item of the group must reach it, so move it out.")
    poison = cl.Kernel(opencl.build(context, POISON % {"size": 4 * group}), "poison")
    tried = sorted({*SIZES, int(rng.integers(300, 3000)), 50 * group}, reverse=True)
    for n in tried:
        for _ in range(3):
            _judge_sums(queue, run, poison, rng.integers(-99, 100, n, np.int32), group)
    x = rng.integers(-99, 100, 2 * group - 28, np.int32)
    found = races.find(source, name, 2, group, [x, np.zeros(2, np.int32), np.int32(len(x))], device)
    if found.races or found.outside:
        raise _NotYet(f"{(found.races + found.outside)[0]}. The sums were right here by luck.")
    if len(set(found.barriers.tolist())) > 1:
        raise _NotYet("the work-items do not all meet the same number of barriers.")
    if found.accesses.max() > group // 2:
        item = int(found.accesses.argmax())
        raise _NotYet(f"work-item {item} touches {found.accesses[item]} elements: the others should share its work.")
    return f"{len(tried)} sizes from {min(tried)} to {max(tried)}, no race, on {opencl.name(device)}"


def _judge_sums(queue: cl.CommandQueue, run: cl.Kernel, poison: cl.Kernel, x: np.ndarray, group: int) -> None:
    """Run twice, on results that held different things before, and judge every sum."""
    import pyopencl as cl

    n, groups, pad = len(x), math.ceil(len(x) / group), _pad(queue.device)
    expected = np.add.reduceat(x, np.arange(0, n, group))
    came = []
    for fill in FILLS:
        spoilt = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size=4 * 8 * group)
        poison(queue, (8 * group,), (group,), spoilt)
        given, sums = (
            _guarded_buffer(queue, a, g, pad) for a, g in ((x, OUTSIDE), (np.full(groups, fill, np.uint32), fill))
        )
        run(queue, (groups * group,), (group,), given[4 * pad : 4 * (pad + n)], sums[4 * pad : 4 * (pad + groups)],
            np.int32(n))  # fmt: skip
        whole = np.empty(groups + 2 * pad, np.uint32)
        cl.enqueue_copy(queue, whole, sums)
        outside = np.flatnonzero(np.r_[whole[:pad], whole[pad + groups :]] != fill)
        if len(outside):
            raise _NotYet(f"n = {n}: the kernel wrote outside of sums, which has the elements 0 to {groups - 1}.")
        came.append(whole[pad : pad + groups])
    unwritten = (came[0] == FILLS[0]) & (came[1] == FILLS[1])
    if unwritten.all():
        raise _NotDone("the kernel writes nothing.")
    for values in (one.view(np.int32) for one in came):
        if (wrong := np.flatnonzero(values != expected)).size:
            first = int(wrong[0])
            said = "nothing: it was never written" if unwritten[first] else str(values[first])
            hint = (
                " Does the kernel read beyond n, or does a work-item leave before the barrier?"
                if abs(int(values[first])) > 99 * group and n % group
                else ""
            )
            elements = f"elements {first * group} to {min((first + 1) * group, n) - 1}"
            raise _NotYet(f"n = {n}: sums[{first}], of {elements}: expected {expected[first]}, came {said}.{hint}")
