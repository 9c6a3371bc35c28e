"""Judge a learner's kernel in OpenCL C: what it touches, then many numbers, awkward sizes and repeats.

`checks` prints the verdict; lessons 01, 02, 06, 12 and 15 have the kernels. All of it runs in a subprocess
(`checks.judge_in_subprocess`), because a kernel may crash or never end.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import KernelError, without_comments
from helpers.errors import WorkshopError
from helpers.judge import mistakes, opencl_recorder
from helpers.judge.canaries import FILLS, SHORT, describe_launch, find_unwritten, run_guarded
from helpers.judge.checks import CannotTell, NotDone, NotYet
from helpers.judge.trace import Trace

if TYPE_CHECKING:
    import pyopencl as cl

LOCAL_SIZE = 64
SIZES = (1, 2, 3, 63, 64, 65, 257, 1000)  # one element, about one work-group, several, and never only multiples of one
SEED = 20261127  # of all numbers that a judge draws
# The smallest and the largest whole number of each round: both signs, none above 0, none below, all equal.
RANGES = ((-99, 99), (-99, -1), (1, 99), (7, 7))
COUNTED = 256  # elements of the launch whose accesses are counted
WHOLE_GROUPS = ((137, LOCAL_SIZE), (2, LOCAL_SIZE), (1, LOCAL_SIZE))  # elements and work-group of traced launches
SMALL_GROUPS = ((9, 4), (2, 4), (1, 4), (137, LOCAL_SIZE))  # likewise: messages are easier to follow
LOOP_IN_C = "A loop in C, whose counter needs a type: `for (int k = 0; k < 3; k++) { ... }`."


def make_generator() -> np.random.Generator:
    """Return a generator that draws the same numbers in every judgment, also in a second opinion."""
    return np.random.default_rng(SEED)


def build(
    source: object,
    name: str,
    device: cl.Device | None = None,
    options: Sequence[str] = (),
    about_loops: str = LOOP_IN_C,
) -> opencl.Kernel:
    """Parse and build a learner's kernel, once for all the judges of a verdict.

    Args:
        source: OpenCL C, or what the learner left in its place.
        name: the kernel's name.
        device: where to run; the lessons' device if None.
        options: of the compiler.
        about_loops: what to say where the kernel has a loop of Python's.
    """
    if not isinstance(source, str) or not source.strip():
        raise NotDone("there is no kernel yet.")
    try:
        return opencl.Kernel(source, name, device, options)
    except KernelError as error:
        raise NotYet(
            f"{error.what[0].lower()}{error.what[1:]}\n{error.why}"
            f"{_explain_loops(source, about_loops) or _explain_types(source, error.why)}"
        ) from None


def _explain_loops(source: str, about_loops: str) -> str:
    """Return a line about loops for a kernel that has Python's, or a counter without a type; empty otherwise."""
    code = without_comments(source)
    counters = re.findall(r"\bfor\s*\(\s*(\w+)\s*=", code)
    untyped = [name for name in counters if not re.search(rf"\b\w+[\s*]+{name}\b\s*[=;,]", code)]
    if untyped or re.search(r"\bfor\s*\(?\s*(?:int\s+)?\w+\s+in\b|\bwhile\s+[^\s(]", code):
        return f"\n{about_loops}"
    return ""


def _explain_types(source: str, why: str) -> str:
    """Return a line about types if a name that the compiler does not know is set as Python sets it; empty otherwise."""
    for name in re.findall(r"undeclared identifier '(\w+)'", why):
        if re.search(rf"(?m)(^|[;{{])\s*{name}\s*=[^=]", without_comments(source)):
            return f"\nIn C a new name needs its type, as in `int {name} = ...;`."
    return ""


def expect_parameters(kernel: opencl.Kernel, wanted: Sequence[str]) -> list[str]:
    """Return the names of the kernel's parameters, once their number and their types are right.

    Args:
        kernel: the learner's kernel.
        wanted: what each parameter takes: `int`, or, of a pointer, `float[]`, `int[]`.
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
    kernel: opencl.Kernel,
    inputs: Sequence[str],
    reference: Callable[..., np.ndarray],
    radius: int = 0,
    sizes: Sequence[int] = SIZES,
    traced: Sequence[tuple[int, int]] = SMALL_GROUPS,
    exercise: str = "",
    ranges: Sequence[tuple[int, int]] = RANGES,
    before_longest: Callable[[], None] = lambda: None,
) -> str:
    """Judge a one-dimensional kernel whose parameters are its inputs, then the output, then `const int n`.

    First small launches are traced: they find loops without end, barriers that not all meet, accesses outside, races.
    Then each size runs several times, on numbers that are the same in every judgment; one is beyond what an index of
    16 bits can reach. The output lies between canaries, and the inputs between values that spoil every result.

    Args:
        kernel: the learner's kernel.
        inputs: what each input parameter takes: `float[]` or `int[]`, n elements of 4 bytes.
        reference: given the same inputs, returns the right output of shape (n,), float32 or int32.
        radius: how many neighbors on each side an output depends on; messages show them.
        sizes: the sizes n to try; two more are added.
        traced: elements and work-group of each traced launch; the kernel's local memory must fit the work-groups.
        exercise: where its known mistakes stand, such as "01.3"; one that shows the same as the kernel is named.
        ranges: the smallest and the largest whole number of each round; inputs of floats alone have one round.
        before_longest: judges what the kernel did so far; a kernel that does all work in every work-item would take
            minutes at the longest size.

    Returns:
        What was tried, for the verdict.
    """
    rng, ranges = make_generator(), ranges if "int[]" in inputs else ranges[:1]
    whole_numbers = np.issubdtype(np.asarray(reference(*_draw_inputs(inputs, rng, 2))).dtype, np.integer)
    names = expect_parameters(kernel, [*inputs, "int[]" if whole_numbers else "float[]", "int"])
    tried = sorted({*sizes, int(rng.integers(300, 3000)), int(rng.integers(SHORT + 64, SHORT + 4000))})
    unseen: list[str] = []
    try:
        for n, group in traced:
            unseen += _judge_trace(kernel, _draw_inputs(inputs, rng, n), reference, n, group)
        for n in tried:
            if n > SHORT:
                before_longest()
            for ends in ranges:
                given = dict(zip(names, _draw_inputs(inputs, rng, n, ends), strict=False))
                _judge_size(kernel, given, reference, n, radius)
    except NotYet as wrong:
        same = mistakes.name_mistake(exercise, fingerprint(kernel, inputs)) if exercise else ""
        raise NotYet(f"{wrong} It is as if {same}." if same else str(wrong)) from None
    followed = "no race seen" if not unseen else f"not followed: {', '.join(dict.fromkeys(unseen))}"
    return f"{len(tried)} sizes from {min(tried)} to {max(tried):,}, {followed}, on {opencl.name(kernel.device)}"


def fingerprint(kernel: opencl.Kernel, inputs: Sequence[str]) -> str:
    """Return a short text that is equal for two kernels if all that they show on small launches is equal.

    It stands for the values of every array afterwards, what was never written, and each access outside an array, on
    numbers that are the same each time, and halves and thirds of which are exact. Empty where a race or the like leaves
    that to chance.

    Args:
        kernel: takes the inputs, an output of floats, and `const int n`.
        inputs: what each input parameter takes: `float[]`.
    """
    observations: list[object] = []
    for n, fill in itertools.product((9, 2, 1, 137), (-6000.0, 0.75)):
        numbers = [(np.arange(n) + 5) * prime % 199 - 99 for prime in (7919, 7907, 7901)[: len(inputs)]]
        given = [(np.float32(1.5) * each).astype(np.float32) for each in numbers]
        arguments = [*given, np.full(n, fill, np.float32), np.int32(n)]
        try:
            traced = opencl_recorder.record(kernel, math.ceil(n / 4) * 4, 4, arguments)
        except WorkshopError:
            return ""
        if traced.unseen or traced.races():
            return ""
        places = list(traced.lengths)
        outside = ((t.item, places.index(t.array), t.index, t.writes) for t in traced.outside if t.array in places)
        observations += [sorted(outside), [f"{value + 0.0:.6g}" for array in traced.arrays for value in array]]
    return hashlib.sha256(repr(observations).encode()).hexdigest()[:12]


def judge_accesses(kernel: opencl.Kernel) -> str:
    """Judge whether a right kernel of one array of floats, an output and `const int n` touches each element once.

    Args:
        kernel: the learner's kernel.

    Returns:
        What was counted, for the verdict.
    """
    x, out = np.ones((2, COUNTED), np.float32)
    traced = opencl_recorder.record(kernel, COUNTED, LOCAL_SIZE, [x, out, np.int32(COUNTED)])
    actual = sum(touch.array in traced.lengths for touch in traced.touches)
    counted = f"{actual} accesses to global memory for {COUNTED} elements in {COUNTED // LOCAL_SIZE} work-groups"
    if actual > 2 * COUNTED:
        raise NotYet(f"the result is right, but with {counted}; expected at most {2 * COUNTED}.")
    return counted


def _draw_inputs(
    kinds: Sequence[str], rng: np.random.Generator, n: int, ends: tuple[int, int] = RANGES[0]
) -> list[np.ndarray]:
    """Return n random numbers for each parameter, `float[]` or `int[]`; whole ones lie between the ends."""
    low, high = ends
    return [
        rng.normal(size=n).astype(np.float32) if kind == "float[]" else rng.integers(low, high + 1, n, np.int32)
        for kind in kinds
    ]


def _judge_trace(kernel: opencl.Kernel, given: list[np.ndarray], reference: Callable, n: int, group: int) -> list[str]:
    """Launch whole work-groups on n elements, and judge what each work-item touches; return what was not followed.

    Args:
        kernel: the learner's kernel.
        given: its inputs.
        reference: returns the output, for its type.
        n: the number of elements.
        group: work-items of a work-group.
    """
    out = np.zeros_like(reference(*given))
    items = math.ceil(n / group) * group
    launch = describe_launch({"n": n}, [items], [group])
    traced = record(kernel, launch, items, group, [*given, out, np.int32(n)])
    if n > 2:  # a kernel may have mistaken the smallest sizes for nothing to do
        expect_writes(traced, launch, kernel)
    refuse_faults(traced, launch, owners=n)
    busiest = int(traced.global_accesses.argmax())
    if n > 2 * group and traced.global_accesses[busiest] > traced.global_accesses.sum() / 2:
        raise NotYet(f"{launch}: the result may be right, but work-item {busiest} does most of the work alone.")
    refuse_overwork(traced, launch)
    return traced.unseen


def expect_writes(traced: Trace, launch: str, kernel: opencl.Kernel | None = None) -> None:
    """Refuse a recorded launch that writes nothing to the arrays that it was given.

    Args:
        traced: the record.
        launch: in words, for the message.
        kernel: what was launched; its text tells whether it tries to write.

    Raises:
        NotYet: the kernel's text has an assignment to an output that no work-item reaches.
        NotDone: it has none, or there is no text to look at.
    """
    if traced.unseen or any(touch.writes and touch.array in traced.lengths for touch in traced.touches):
        return
    body = without_comments(kernel.source).partition("{")[2] if kernel else ""
    outputs = [p.name for p in kernel.parameters if p.is_array and "const" not in p.text] if kernel else []
    if any(re.search(rf"\b{name}\b", body) for name in outputs):
        assigns = re.search(r"\bif\s*\([^()=<>!]*=[^=]", body)
        hint = " In `if (...)` a single `=` assigns; `==` compares." if assigns else ""
        raise NotYet(f"{launch}: no work-item writes a result.{hint}")
    raise NotDone(f"the kernel writes no result ({launch}).")


def record(
    kernel: opencl.Kernel,
    launch: str,
    global_size: Sequence[int] | int,
    local_size: Sequence[int] | int,
    arguments: Sequence[np.ndarray | np.generic],
) -> Trace:
    """Record a launch, as `opencl_recorder.record` does.

    Args:
        kernel: the learner's kernel.
        launch: in words, for the message.
        global_size: work-items in each dimension.
        local_size: work-items of a work-group in each dimension.
        arguments: an array or a NumPy scalar for each parameter.

    Raises:
        NotYet: it would never end, or not all of a work-group meet the same barriers.
        CannotTell: the recorder cannot record it, or not to its end.
    """
    try:
        return opencl_recorder.record(kernel, global_size, local_size, arguments)
    except opencl_recorder.NotTraceable as error:
        refused = CannotTell if isinstance(error, opencl_recorder.NotJudged) else NotYet
        raise refused(f"{launch}: {error.what[0].lower()}{error.what[1:]} {error.why} {error.next}") from None


def refuse_faults(traced: Trace, launch: str, owners: int | None = None) -> None:
    """Refuse a recorded launch that reaches outside an array, races, or reads local memory that nobody wrote.

    Args:
        traced: the record.
        launch: in words, for the message.
        owners: how many work-items, the first ones, have an element of their own; None gives no hint about it.
    """
    for touch in traced.outside:
        if touch.array not in traced.lengths:
            raise NotYet(f"{launch}: {touch}, which does not exist{traced.explain_threes(touch.array)}.")
        hint = " It has an element of its own, but not that one: ask whether it exists before you touch it."
        if owners and touch.item >= owners:
            hint = " It has no element of its own, and should touch nothing."
        raise NotYet(
            f"{launch}: work-item {touch.item} {'writes' if touch.writes else 'reads'} element {touch.index} of "
            f"{touch.array}, which has the elements 0 to {traced.lengths[touch.array] - 1}.{hint if owners else ''}"
        )
    for race in traced.races() or traced.unwritten():
        stopped = "".join(f" Not followed: {what.rstrip('.')}." for what in traced.unseen)
        raise NotYet(f"{launch}: {race}.{_hint_at_ids(traced)}{stopped}")


def _hint_at_ids(traced: Trace) -> str:
    """Return a sentence if every write to the given arrays goes to the element of an id that is not the global one."""
    writes = [touch for touch in traced.touches if touch.writes and touch.array in traced.lengths]
    own = traced.global_ids[:, 0]
    for ids, hint in (
        (own, ""),
        (own % 256, "Each index has 8 bits, and begins at 0 again after 255; use `int`."),
        (
            traced.local_ids[:, 0],
            "Each index is a local id, which begins at 0 again in every work-group; use the global id.",
        ),
        (traced.group_ids[:, 0], "Each index is a group's number, the same for the whole group; use the global id."),
    ):
        if ids.any() and all(touch.index == ids[touch.item] for touch in writes):
            return f" {hint}" if hint else ""
    return ""


def refuse_overwork(traced: Trace, launch: str, most: int = 2) -> None:
    """Refuse a recorded launch in which a work-item writes the elements of others.

    Args:
        traced: the record.
        launch: in words, for the message.
        most: the elements of the given arrays that a work-item may write.
    """
    written: dict[int, set[tuple[str, int]]] = {}
    for touch in traced.touches:
        if touch.writes and touch.array in traced.lengths:
            written.setdefault(touch.item, set()).add((touch.array, touch.index))
    item = max(written, key=lambda each: len(written[each]), default=0)
    if len(written.get(item, ())) > most:
        count = len(written[item])
        raise NotYet(
            f"{launch}: work-item {item} writes at least {count} elements, some of which belong to others. "
            "Let each work-item compute its own."
        )


def refuse_loops(traced: Trace, launch: str, most: int, advice: str) -> None:
    """Refuse a recorded launch in which a work-item goes round a loop more often than its own element needs.

    Args:
        traced: the record.
        launch: in words, for the message.
        most: how many rounds are allowed, those of all its loops together.
        advice: the sentence after what was counted.
    """
    rounds = max(traced.loop_rounds, default=0)
    if rounds > most:
        item = list(traced.loop_rounds).index(rounds)
        raise NotYet(
            f"{launch}: the result may be right, but work-item {item} goes {rounds} times round a loop. {advice}"
        )


def _judge_size(kernel: opencl.Kernel, given: dict[str, np.ndarray], reference: Callable, n: int, radius: int) -> None:
    """Run on n elements, several times and with two fills, and judge every output."""
    expected = np.asarray(reference(*given.values()))
    fills = (*FILLS, FILLS[0], FILLS[0])
    runs = [run_guarded(kernel, given, {"n": n}, n, n, LOCAL_SIZE, fill) for fill in fills]
    unwritten = find_unwritten(runs[0], runs[1])
    outputs = [bits.view(expected.dtype) for bits in runs]
    floats = np.issubdtype(expected.dtype, np.floating)
    for actual in outputs:
        right = np.isclose(actual, expected, rtol=1e-5, atol=1e-5) if floats else actual == expected
        if right.all():
            continue
        i = int(np.flatnonzero(~right)[0])
        neighbors = range(max(i - radius, 0), min(i + radius + 1, n))
        inputs = ", ".join(f"{name}[{k}] = {_format_number(given[name][k])}" for name in given for k in neighbors)
        where = f"n = {n}, groups of {LOCAL_SIZE}, element {i} ({inputs}): expected {_format_number(expected[i])}"
        if unwritten[i]:
            raise NotYet(f"{where}, came nothing: it was never written.")
        if not np.isclose([output[i] for output in outputs], outputs[0][i], equal_nan=True).all():
            same = np.isclose([output[i] for output in outputs[2:]], outputs[0][i], equal_nan=True).all()
            why = "it depends on what the output held before" if same else "it differs from run to run"
            raise NotYet(f"{where}, came {_format_number(actual[i])}; {why}.")
        hint = " (What lies outside the inputs is nan.)" if np.isnan(actual[i]) else ""
        fraction = re.search(r"(?<![\w.])\d+\s*/\s*\d+(?![\w.])", without_comments(kernel.source))
        if actual[i] == 0 and fraction:
            hint = f" In C `{fraction.group()}` divides whole numbers and drops the fraction; `1.0f / 3` keeps it."
        raise NotYet(f"{where}, came {_format_number(actual[i])}.{hint}")


def _format_number(value: np.generic) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)
