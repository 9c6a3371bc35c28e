"""Judge exercises: random data, awkward sizes, canaries around output buffers, any order of work-items, repeats.

Every check prints a verdict: "right", "not yet: ..." or "not done yet". It never raises for a learner. With
ANYGPU_GRADE=1 (tests, autograding) a wrong and an untouched exercise raise `CheckFailed` instead, because an autograder
gives full points to a cell that merely prints "wrong"; nothing is ever written to standard error.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers import opencl, trace
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

GRADE = "ANYGPU_GRADE"


class CheckFailed(Exception):
    """An exercise that is wrong or untouched, while grading."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class NotYet(Exception):
    """What was expected, what came, and where."""


class NotDone(Exception):
    """The exercise is as it was handed out."""


def verdict(check: Callable[..., Iterator[str]]) -> Callable[..., None]:
    """Make a check of a generator whose every `yield` is one judge's account of what it tried.

    The first judge that raises NotYet or NotDone speaks for all.
    """

    @functools.wraps(check)
    def print_verdict(*args: object, **kwargs: object) -> None:
        try:
            tried = "; ".join(check(*args, **kwargs))
        except NotDone as untouched:
            message = f"not done yet: {untouched}"
        except NotYet as wrong:
            message = f"not yet: {wrong}"
        else:
            print(f"right ({tried})")
            return
        if os.environ.get(GRADE) == "1":
            raise CheckFailed(message)
        print(message)

    return print_verdict


def judge_changed(answer: str, starter: str) -> str:
    """Judge an exercise that mends something: it is not done as long as it is what was handed out."""
    if not isinstance(answer, str) or answer.split() == starter.split():
        raise NotDone("this is what you were given, and it has the fault.")
    return "changed"


def judge_in_subprocess(judge: Callable[..., str], seconds: float = 30.0, **arguments: object) -> str:
    """Let another judge run the learner's kernel in a subprocess, where it may crash or never end.

    Args:
        judge: a function of a module, which a fresh process can import.
        seconds: after so long the kernel is taken for endless.
        arguments: for the judge, plain data.
    """
    from helpers import processes

    call = {"module": judge.__module__, "name": judge.__name__, "given": arguments}
    run = processes.run(_judge_here, seconds=seconds, check=False, arguments=call)
    if run.result is None:
        fate = run.failures[0].partition("; it was in line")[0]
        if "SIG" in fate:
            fate += ". Does a work-item write beyond the end of an array? What do those do that have no element?"
        raise NotYet(f"the process that ran your kernel did not live to tell: {fate}")
    outcome, text = run.result
    if outcome == "right":
        return text
    raise NotDone(text) if outcome == "not done" else NotYet(text)


def _judge_here(module: str, name: str, given: dict) -> tuple[str, str]:
    """Judge in this process, and return the verdict as data; its source travels, so it imports what it uses."""
    import importlib

    from helpers import checks, errors

    try:
        return "right", getattr(importlib.import_module(module), name)(**given)
    except checks.NotDone as untouched:
        return "not done", str(untouched)
    except (checks.NotYet, errors.WorkshopError) as wrong:
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
    actual, predicted = (f"{_plain(value)} {unit}".rstrip() for value in (measured, prediction))
    if prediction is None or prediction is ...:
        print(f"no prediction made; measured: {actual}")
    else:
        print(f"you predicted: {predicted}\nmeasured:      {actual}")


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
        What was tried, for the verdict.
    """
    tried = 0
    for arguments in cases(np.random.default_rng()):
        expected = reference(*copy.deepcopy(arguments))
        for _ in range(2):  # a function that remembers its last call differs the second time
            given = copy.deepcopy(arguments)
            actual = _call(learner, given, arguments)
            if actual is None or actual is ...:
                nothing = f"{_call_text(learner, arguments)} returns nothing"
                if tried:
                    raise NotYet(f"{nothing}. Does every way through the function end with `return`?")
                raise NotDone(f"{nothing}. (It is `return` that hands an answer back, not `print`.)")
            _compare(expected, actual, f"for {_call_text(learner, arguments)}")
            if not all(_same(one, other) for one, other in zip(given, arguments, strict=True)):
                raise NotYet(f"{_call_text(learner, arguments)} changed its own argument; work on a copy.")
        tried += 1
    return f"{tried} cases"


def _call(learner: Callable[..., object], given: tuple, arguments: tuple) -> object:
    try:
        return learner(*given)
    except NotImplementedError:
        return None
    except Exception as error:
        raise NotYet(f"{_call_text(learner, arguments)} stopped with {type(error).__name__}: {error}") from None


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


def _compare(expected: object, actual: object, where: str) -> None:
    """Raise NotYet unless `actual` is `expected`: numbers to 1e-5 of their size, everything else exactly."""
    if type(expected) is int and isinstance(actual, float | np.floating) and actual == expected:
        raise NotYet(
            f"{where} expected {expected}, a whole number; came {_short(actual)}, a float. `int(...)` makes one."
        )
    if isinstance(expected, bool | np.bool_ | str | None.__class__):
        right = isinstance(actual, bool | np.bool_ | str) and actual == expected
    elif isinstance(expected, list) and any(isinstance(one, str) for one in expected):
        right = isinstance(actual, list | tuple | np.ndarray) and list(actual) == expected
    elif isinstance(expected, (int, float, np.number, np.ndarray, list, tuple)):
        try:
            values, wanted = np.asarray(actual), np.asarray(expected)
            same_shape = values.shape == wanted.shape
            if not same_shape and not (isinstance(expected, list) and isinstance(actual, list) and len(expected) <= 8):
                raise NotYet(f"{where} expected {_size(wanted)}, came {_size(values)}: {_short(actual)}.")
            right = same_shape and np.allclose(values, wanted, rtol=1e-5, atol=1e-9)
        except (TypeError, ValueError):
            right = False
    else:
        right = actual == expected
    if not right:
        raise NotYet(f"{where} expected {_short(expected)}, came {_short(actual)}")


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
        What was tried, for the verdict.
    """
    from helpers import tile

    if isinstance(source, tile.Function):
        raise NotYet("this is a tile.Function; hand in its text.")
    body = re.sub(r"//[^\n]*", "", source) if isinstance(source, str) else ""
    if "function" not in body and "=" in body:
        raise NotYet("the text must begin with `function`, as it did before you wrote.")
    if not body.partition("{")[2].replace("}", "").strip():
        raise NotDone("there is no statement yet (what stands behind // is a comment).")
    tried = 0
    try:
        learner = tile.Function(source)
        for arrays in cases(np.random.default_rng()):
            sizes = " and ".join(" x ".join(map(str, array.shape)) for array in arrays)
            values = f", {', '.join(_short(array.tolist()) for array in arrays)}" if tried == 0 else ""
            _compare_tensors(reference(*arrays), learner(*arrays), f"for {sizes}{values}")
            tried += 1
    except tile.TileError as error:
        raise NotYet(str(error)) from None
    return f"{tried} cases"


def _compare_tensors(expected: np.ndarray, actual: np.ndarray, where: str) -> None:
    """Raise NotYet unless `actual` is `expected` up to the rounding of float32 sums in any order."""
    if actual.shape != expected.shape:
        raise NotYet(f"{where} expected {_size(expected)}, came {_size(actual)}: {_short(actual)}.")
    if not np.allclose(actual, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max())):
        raise NotYet(f"{where} expected {_short(expected)}, came {_short(actual)}")


# ---------------------------------------------------------------------------------------------- kernels

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
