"""Judge a learner's kernel in WGSL: what it touches, then what it computes (lessons 14 and 14b).

`checks` prints the verdict, and `wgsl_recorder` records the launches. All of it runs in a subprocess
(`checks.judge_in_subprocess`), because a kernel may crash or never end.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import webgpu
from helpers.devices.kernel_text import KernelError, closing_bracket, without_comments
from helpers.judge.checks import NotDone, NotJudged, NotYet
from helpers.judge.kernel_checks import FILLS, find_unwritten
from helpers.judge.wgsl_recorder import (
    BEYOND,
    GROUP,
    Case,
    NotFollowed,
    launch_kernel,
    record,
)

if TYPE_CHECKING:
    import wgpu

MAX_RECORDED_GROUPS = 3  # workgroups of the largest launch that is recorded


def pad(values: np.ndarray) -> np.ndarray:
    """Return the values in one dimension, followed by numbers that spoil every result."""
    return np.concatenate([values.ravel(), np.full(BEYOND, np.nan, np.float32)])


def judge_kernel(source: str, wanted: Mapping[int, str], cases: Sequence[Case]) -> str:
    """Judge a kernel on cases that change with every call: first the record of the small ones, then what all compute.

    Args:
        source: the learner's WGSL.
        wanted: how each binding is declared.
        cases: the launches.

    Returns:
        What was tried, for the verdict.

    Raises:
        NotYet: the kernel is wrong; the message says where.
        NotDone: it writes nothing.
        NotJudged: there is no adapter.
    """
    adapter = webgpu.pick_adapter()
    if adapter is None:
        raise NotJudged(webgpu.explain_missing())
    kernel = compile_kernel(webgpu.request_device(adapter), source, wanted)
    small = sum(case.groups <= MAX_RECORDED_GROUPS for case in cases)
    coverage = "no race seen" + (f" in the {small} small ones" if small < len(cases) else "")
    try:
        expect_uniform_barriers(source)
        for case in cases:
            if case.groups <= MAX_RECORDED_GROUPS:
                _expect_good_record(kernel.device, source, case)
    except NotFollowed as why:
        coverage = f"races were not looked for: {why}"
    for case in cases:
        _expect_results(case, [launch_kernel(kernel, case, fill)[case.output] for fill in FILLS])
    launches, most = "launch" if len(cases) == 1 else "launches", max(case.expected.size for case in cases)
    return f"{len(cases)} {launches} of up to {most:,} results, {coverage}, on {webgpu.name(adapter)}"


def expect_uniform_barriers(source: str) -> None:
    """Refuse a barrier in a block whose condition depends on the invocation: WGSL forbids it, wgpu allows it."""
    plain = without_comments(source)
    own = set(re.findall(r"@builtin\(\s*(?:global_invocation_id|local_invocation_\w+)\s*\)\s*(\w+)", plain))
    for name, value in re.findall(r"\b(?:let|var)\s+(\w+)[^=;]*=([^;]*);", plain):
        if own & set(re.findall(r"\w+", value)):
            own.add(name)
    for barrier in re.finditer(r"\b(?:workgroup|storage)Barrier\s*\(", plain):
        for found in re.finditer(r"\b(?:if|while|for)\b([^{}]*)\{", plain[: barrier.start()]):
            around = closing_bracket(plain, found.end() - 1) > barrier.start()
            # A loop's own variable may have the name of another one outside.
            counters = re.findall(r"\bvar\s+(\w+)[^=;]*=([^;]*);", found[1])
            counters = {name for name, value in counters if not own & set(re.findall(r"\w+", value))}
            if around and (own - counters) & set(re.findall(r"\w+", found[1])):
                raise NotYet(
                    f"a barrier stands inside of `{' '.join(found[0][:-1].split())}`, which depends on the invocation. "
                    "WGSL forbids that even if all of them reach it, and browsers refuse such a kernel."
                )


def compile_kernel(device: wgpu.GPUDevice, source: str, wanted: Mapping[int, str]) -> webgpu.Kernel:
    """Compile the learner's kernel.

    Raises:
        NotYet: it does not compile, or its buffers or its workgroups are not those of the exercise.
    """
    try:
        kernel = webgpu.Kernel(device, source)
    except KernelError as error:
        what = error.what.replace("The kernel does", "the kernel does")
        raise NotYet("\n".join(filter(None, (what, error.why, suggest_fix(error.why))))) from None
    if kernel.bindings != wanted:
        raise NotYet(f"expected the buffers that were declared, {dict(wanted)}; came {kernel.bindings}.")
    plain = without_comments(source)
    constants = dict(re.findall(r"\bconst\s+(\w+)[\s:ui32]*=\s*(\d+[ui]?)\s*;", plain))
    size = "".join(re.findall(r"@workgroup_size\s*\(([^)]*)\)", plain))
    numbers = re.sub(r"\w+", lambda word: constants.get(word[0], word[0]), size)
    if not re.fullmatch(rf"\s*{GROUP}[ui]?\s*(,\s*1[ui]?\s*){{0,2}},?\s*", numbers):
        raise NotYet(f"expected @workgroup_size({GROUP}), came @workgroup_size({size}).")
    return kernel


def _expect_results(case: Case, runs: Sequence[np.ndarray]) -> None:
    """Refuse wrong results, results that were never written, and writes beyond them; `runs` has one for each fill."""
    n, unwritten = case.expected.size, find_unwritten(*runs)
    if (beyond := np.flatnonzero(~unwritten[n:])).size:
        raise NotYet(_describe_beyond(case, "the kernel", n + int(beyond[0])))
    whole = np.issubdtype(case.expected.dtype, np.integer)
    tolerance = 0 if whole else min(1e-5 * math.sqrt(max(array.size for array in case.arrays.values())), 1e-3)
    outputs = np.stack([bits[:n].view(case.expected.dtype) for bits in runs])
    right = np.isclose(outputs, case.expected, 0 if whole else 1e-4, tolerance).all(axis=0)
    for i in np.flatnonzero(~right)[:1]:
        where = f"{case.launch}, result {i}: expected {case.expected[i]:.6g}, came "
        if unwritten[i]:
            raise NotYet(f"{where}nothing: it was never written.")
        if runs[0][i] != runs[1][i]:
            raise NotYet(
                f"{where}other numbers in two launches whose output held other numbers before. `=` writes a result; "
                "`+=` adds to what was there."
            )
        spoiled = " (What lies beyond the ends of the inputs is nan.)" if np.isnan(outputs[0, i]) else ""
        same = [idea for idea, wrong in (case.ideas or {}).items() if np.allclose(outputs, wrong, 1e-4, tolerance)]
        idea = f" All results are as if {same[0]}." if len(same) == 1 else ""
        raise NotYet(f"{where}{outputs[0, i]:.6g}.{spoiled}{idea}")


def _describe_beyond(case: Case, who: str, index: int) -> str:
    return (
        f"{case.launch}: {who} writes element {index} of the output, and only 0 to {case.expected.size - 1} belong to "
        "it; the buffer is longer. An invocation without a result must write nothing."
    )


# ---------------------------------------------------------------------------------------------- the record


def _expect_good_record(device: wgpu.GPUDevice, source: str, case: Case) -> None:
    """Refuse endless loops, barriers that not all reach, races, and writes outside, in a small launch."""
    record(device, source, case, dry=True)
    traced, runs = record(device, source, case, dry=False)
    written = [touch for touch in traced.touches if touch.writes and touch.array in traced.lengths]
    if not written and case.expected.size > 2:
        raise NotDone(f"the kernel writes no result ({case.words}).")
    for race in traced.races():
        race = race.replace("work-items", "invocations").replace("local memory", "workgroup memory")
        raise NotYet(f"{case.launch}: {race}. That is a race: whoever comes first decides, and a right result is luck.")
    for touch in written:
        if touch.index >= case.expected.size:
            raise NotYet(_describe_beyond(case, f"invocation {touch.item}", touch.index))
    for touch in traced.outside:
        if touch.writes:
            raise NotYet(
                f"{case.launch}: invocation {touch.item} writes {touch.array}[{touch.index}], which does not exist."
            )
    _expect_results(case, runs)
    elements = {(touch.item, touch.index) for touch in written}
    item, most = collections.Counter(item for item, _ in elements).most_common(1)[0] if elements else (0, 0)
    if case.expected.size >= GROUP and most > case.expected.size / 2:
        raise NotYet(f"{case.launch}: the results are right, but invocation {item} writes {most} of them alone.")


# ---------------------------------------------------------------------------------------------- compiler's words

# What beginners write, by a part of what wgpu's compiler says against it, and what WGSL wants instead.
CONVERTS = "WGSL converts no variables: write `f32(i)` for a whole number, `0.0` for a zero."
HINTS = (
    ("valid destination for a store", "Is this buffer declared `read` or `uniform`? Such a buffer cannot be written."),
    (
        r"Incompatible operands: Array|Loading of \[\d+\] can't be done",
        "Is a whole array used as a number? Take one element, such as `a[id.x]`.",
    ),
    ("Accessing with index|Vector { size: Tri", "Is the index `id`? It holds three numbers: take one, `id.x`."),
    (
        r"cannot convert elements of `f32` to `[ui]32`|kind: Sint.*kind: Float",
        "`var sum = 0;` makes a whole number: write `0.0`, or `f32(i)` for a variable.",
    ),
    (r"kind: Uint.*kind: Float|kind: Float.*kind: (Uint|Sint)|cannot convert elements of `[ui]32` to `f32`", CONVERTS),
    ("kind: Bool|is not a boolean|to be a boolean", "A condition is a comparison: `i > 0u`."),
    (r"cannot convert elements of `u32` to `i32`", "`var best = 0;` makes a signed whole number: write `0u`."),
    (
        "kind: Sint|expected to be `i32`, but got `u32`",
        "A signed and an unsigned whole number stand side by side: write `32u`, or `u32(i)`.",
    ),
    (
        r"expected assignment or increment/decrement|expected operation|identifier: `(float|int|uint|double)`",
        "No type stands before a name: `let i = ...;`, or `var i = ...;` for what changes. Types: `f32`, `u32`.",
    ),
    (
        "with `var` instead of `let`|increment/decrement operation requires",
        "`let` names a value for good; what changes is a `var`.",
    ),
    (r"expected `\(`, found", "A loop is written `for (var i = 0u; i < 10u; i++) { ... }`."),
    (r"expected `\{`", "WGSL wants braces, also around one statement: `if (...) { return; }`."),
    (r'found "\?"', "WGSL has no `? :`; write `select(no, yes, condition)`."),
    (r"found \"(\w+|\})\"", "Does the statement before end with a semicolon?"),
    (
        "identifier: `(get_global_id|barrier|get_local_id|workgroupbarrier)`",
        "In WGSL it is `id.x`, and `workgroupBarrier();`.",
    ),
)


def suggest_fix(why: str) -> str:
    """Return a line that helps with what the compiler complains about, empty if nothing is known about it."""
    first_line = why.partition("\n")[0]
    return next((helps for part, helps in HINTS if re.search(part, first_line)), "")
