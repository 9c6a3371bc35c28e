"""Lesson 14: judge a learner's WGSL by what it computes, by who touches what, and by a look at its source."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.compute import opencl, webgpu
from helpers.judge import checks
from helpers.lessons import lesson_14_races as races

if TYPE_CHECKING:
    import wgpu

GROUP = 64  # invocations of a workgroup in the exercises
BEYOND = 150  # elements of each buffer that lie beyond those that a kernel is told of
FILLS = (0x7FC0BEEF, 0x0DA24260)  # what the output holds before: a NaN, and 1e-30; what keeps both was never written
SPOILT = np.float32(np.nan)  # what the inputs hold beyond their ends
SEEN = (64, 33, 5)  # the sizes at which races are looked for
ROUNDS = 20_000  # of all loops of one invocation together, in small launches; more are taken for endless
LAST_BINDING = 15  # where the count of those rounds is reported
BUILTINS = ("global_invocation_id", "local_invocation_id", "local_invocation_index", "subgroup_invocation_id")


class Case(NamedTuple):
    """One launch of a learner's kernel."""

    words: str  # what is computed, for the message
    arrays: dict[int, np.ndarray]  # by binding, without the output
    output: int  # the binding of the output
    expected: np.ndarray  # what it must hold, one-dimensional float32
    groups: int  # workgroups
    each: int = GROUP  # results of one workgroup
    slips: Mapping[str, np.ndarray] = MappingProxyType({})  # what comes after a known slip, by the sentence about it


def _padded(values: np.ndarray) -> np.ndarray:
    """The values, and behind them numbers that spoil every result."""
    return np.concatenate([values.ravel(), np.full(BEYOND, SPOILT, np.float32)])


def judge_saxpy(source: str) -> str:
    """Judge `out[i] = alpha * x[i] + y[i]`; bindings: x, y, out, uniform {n: u32, alpha: f32}."""
    rng = np.random.default_rng()

    def case(n: int) -> Case:
        x, y = rng.standard_normal((2, n), dtype=np.float32)
        alpha = np.float32(rng.choice((-1, 1)) * rng.uniform(1.5, 3))
        told = np.array([n, alpha.view(np.uint32)], np.uint32)
        return Case(f"n = {n}", {0: _padded(x), 1: _padded(y), 3: told}, 2, alpha * x + y, max(1, math.ceil(n / GROUP)))

    sizes = [5, 1, 3, 63, 64, 65, 257, 1000, int(rng.integers(300, 3000)), 70_001]
    wanted = {0: "read-only-storage", 1: "read-only-storage", 2: "storage", 3: "uniform"}
    cases = [case(n) for n in sizes]
    return judge_kernel(source, wanted, cases, lambda device: _one_writer(device, source, cases))


def judge_dense(source: str) -> str:
    """Judge a dense layer; bindings: inputs, weights, bias, outputs, uniform vec4<u32>(n, in, out, relu)."""
    rng = np.random.default_rng()

    def case(n: int, wide: int, out: int, relu: int) -> Case:
        inputs = rng.standard_normal((n, wide), dtype=np.float32)
        weights = rng.standard_normal((wide, out), dtype=np.float32)
        bias = rng.standard_normal(out, dtype=np.float32)
        expected = inputs.astype(float) @ weights + bias
        expected = np.maximum(expected, 0) if relu else expected
        told = np.array([n, wide, out, relu], np.uint32)
        arrays = {0: _padded(inputs), 1: _padded(weights), 2: _padded(bias), 4: told}
        words = f"n = {n}, {wide} numbers in, {out} out, relu = {relu}"
        return Case(words, arrays, 3, expected.ravel().astype(np.float32), math.ceil(n * out / GROUP))

    shapes = [
        (2, 3, 4),
        (1, 1, 1),
        (3, 5, 2),
        (2, 64, 64),
        (65, 10, 3),
        (7, 33, 10),
        (1, 784, 128),
        (130, 20, 10),
        (300, 8, 250),
    ]
    cases = [case(*shape, relu) for shape in shapes for relu in (0, 1)]
    wanted = dict.fromkeys((0, 1, 2), "read-only-storage") | {3: "storage", 4: "uniform"}
    return judge_kernel(source, wanted, cases, lambda device: _one_writer(device, source, cases))


def judge_sums(source: str) -> str:
    """Judge the sums of workgroups; bindings: x, partial (one for each workgroup), uniform n: u32."""
    rng = np.random.default_rng()

    def case(n: int) -> Case:
        x = rng.uniform(0.5, 1.5, n).astype(np.float32)
        groups = math.ceil(n / GROUP)
        ends = range(0, n, GROUP)
        expected = np.array([x[start : start + GROUP].sum(dtype=float) for start in ends], np.float32)
        arrays = {0: _padded(x), 2: np.array([n], np.uint32)}
        slips = {
            f"It is the sum of {which}: a round is missing.": np.array(
                [x[start : start + GROUP][kept].sum() for start in ends]
            )
            for which, kept in {"every second element": np.s_[::2], "the first 32 elements": np.s_[:32]}.items()
        }
        return Case(f"n = {n}", arrays, 1, expected, groups, 1, slips)

    sizes = [130, 5, 1, 2, 33, 63, 64, 65, 128, 1000, int(rng.integers(300, 3000)), 70_001]
    cases = [case(n) for n in sizes for _ in range(2)]
    wanted = {0: "read-only-storage", 1: "storage", 2: "uniform"}

    def look(device: wgpu.GPUDevice) -> str:
        _uniform_barriers(source)
        return _look_for_races(device, source, [next(case for case in cases if case.words == f"n = {n}") for n in SEEN])

    tried = judge_kernel(source, wanted, cases, look)
    _shared_memory(source)
    return tried


def _one_writer(device: wgpu.GPUDevice, source: str, cases: Sequence[Case]) -> str:
    """Refuse a kernel of which several invocations of one workgroup write, or one writes and another reads, a result.

    Args:
        device: runs the rewritten kernel.
        source: the learner's WGSL.
        cases: the launches; those of one workgroup are looked at.

    Returns:
        Nothing to add to the verdict.
    """
    try:
        recorded, kernel = races.compiled(device, source, cases[0].output)
    except races.NotFollowed:
        return ""
    for case in cases:
        if case.groups == 1:
            found = recorded.look(_launch(kernel, case, FILLS[0], {races.BINDING: races.empty_record()})[races.BINDING])
            if found.races:
                who = found.races[0].partition(", and no barrier")[0]  # no barrier would help here
                raise checks.NotYet(
                    f"{case.words}: {who}. Each element is written by one invocation, and the invocations "
                    "without an element must write nothing."
                )
    return ""


def _look_for_races(device: wgpu.GPUDevice, source: str, cases: Sequence[Case]) -> str:
    """Refuse races, and accesses outside of what there is; return what is worth a word in a right answer.

    Args:
        device: runs the rewritten kernel.
        source: the learner's WGSL.
        cases: launches of one workgroup.
    """
    try:
        recorded, kernel = races.compiled(device, source, cases[0].output)
    except races.NotFollowed as why:
        return f"; races were not looked for: {why}"
    remarks: dict[str, None] = {}
    for case in cases:
        written = _launch(kernel, case, FILLS[0], {races.BINDING: races.empty_record()})
        found = recorded.look(written[races.BINDING])
        outside = f"{found.read_outside[0]}, which does not exist" if found.read_outside else ""
        if found.races:
            helps = "Is a barrier missing, after the copy or after a round?"
            if not any(f" {name}[" in found.races[0] for name in recorded.arrays[: recorded.of_group]):
                helps = "One invocation of each workgroup is enough to write the sum."
            elif outside:
                helps = f"And {outside}. Which invocations have something to add in this round?"
            elif "storageBarrier" in webgpu.without_comments(source):
                helps = "storageBarrier() orders storage buffers alone."
            raise checks.NotYet(
                f"{case.words}: {found.races[0]}. That is a race: the result depends on who comes first. (Is it "
                f"right on this adapter? Then by luck.) {helps}"
            )
        if found.written_outside:
            raise checks.NotYet(f"{case.words}: {found.written_outside[0]}, which does not exist.")
        if found.unwritten:
            raise checks.NotYet(
                f"{case.words}: {found.unwritten[0].replace('work-item', 'invocation')}. Write the 0 yourself: WGSL "
                "promises it in fresh workgroup memory, and not every implementation keeps that."
            )
        results = written[case.output][: case.expected.size].view(np.float32)
        if outside and not np.allclose(results, case.expected, rtol=1e-4):  # it got some other element instead
            raise checks.NotYet(
                f"{case.words}: {outside}. WGSL may give any element for it, and the sum depends on it."
            )
        if outside:
            remarks[f"{outside}; the sum does not depend on it"] = None
        if found.unchanged:
            remarks["some invocations write back what others read: an `if` would spare that"] = None
        if found.most > races.ALONE:
            remarks["a few invocations add nearly all; six rounds were asked, in which many add at once"] = None
    return "".join(f"; {one}" for one in {"no race seen": None} | remarks)


def judge_kernel(
    source: str, wanted: Mapping[int, str], cases: Sequence[Case],
    look_first: Callable[[wgpu.GPUDevice], str] = lambda device: "",
) -> str:  # fmt: skip
    """Judge a kernel on cases that change with every call, its output between canaries.

    First every loop is counted, in the small cases: one without end has its verdict before it can stop a GPU.

    Args:
        source: the learner's WGSL.
        wanted: how each binding is declared.
        cases: the launches; the smallest first.
        look_first: a look at a kernel that compiles and ends, on this device; what it returns joins the verdict.

    Returns:
        What was tried, for the verdict.
    """
    adapter = webgpu.pick_adapter()
    device = webgpu.request_device(adapter)
    try:
        kernel = webgpu.Kernel(device, source)
    except webgpu.KernelError as error:
        what = error.what.replace("The kernel does", "the kernel does")
        raise checks.NotYet("\n".join(filter(None, (what, error.why, hint(error.why))))) from None
    for number, how in wanted.items():
        declared = kernel.bindings.get(number)
        if declared != how:
            came = f"it is declared as {declared}" if declared else "there is none"
            raise checks.NotYet(f"expected @binding({number}) of group 0 to be {how}; {came}.")
    if more := sorted(set(kernel.bindings) - set(wanted)):
        raise checks.NotYet(f"@binding({more[0]}) is declared, and nothing is bound there.")
    plain = webgpu.without_comments(source)
    constants = dict(re.findall(r"\bconst\s+(\w+)[\s:ui32]*=\s*(\d+)[ui]?\s*;", plain))
    size = re.search(r"@workgroup_size\s*\(([^)]*)\)", plain)
    parts = [constants.get(part, part) for part in re.findall(r"\w+", size[1])] if size else []
    if [part.rstrip("ui") for part in parts] + ["1"] * (3 - len(parts)) != [str(GROUP), "1", "1"]:
        raise checks.NotYet(f"expected @workgroup_size({GROUP}), came @workgroup_size({size[1] if size else ''}).")
    _expect_ends(device, source, [case for case in cases if case.expected.size <= 5 * GROUP][:6])
    seen = look_first(device)
    two = next(case for case in cases if case.groups == 2)
    for case in cases:
        _judge_case(kernel, case)
        if case is two:
            _expect_own_results(kernel, case)
    sizes = f"{len(cases)} launches of up to {max(case.expected.size for case in cases):,} results"
    return f"{sizes}, on {webgpu.name(adapter)}{seen}"


def _launch(kernel: webgpu.Kernel, case: Case, fill: int, more: Mapping[int, np.ndarray] | None = None) -> dict:
    """Run a kernel with its output filled and between canaries; return what its writable arrays hold, by binding."""
    out = np.full(case.expected.size + BEYOND, fill, np.uint32)
    arrays = {**case.arrays, case.output: out, **(more or {})}
    buffers = {number: webgpu.buffer(kernel.device, array) for number, array in arrays.items()}
    kernel.submit(kernel.bind(buffers), case.groups)
    written = {
        number: webgpu.read(kernel.device, buffers[number], arrays[number]) for number in (case.output, *(more or {}))
    }
    for one in buffers.values():
        one.destroy()
    return written


def counted(source: str) -> str:
    """Return WGSL whose loops end after ROUNDS rounds and then say so in a buffer of their own."""
    plain = webgpu.without_comments(source)
    places = []
    for found in re.finditer(r"\b(for|while|loop)\b", plain):
        start = found.end()
        if found[1] == "for":
            start = opencl.closing_bracket(plain, plain.index("(", start)) + 1
        if "{" in plain[start:]:
            places.append(plain.index("{", start) + 1)
    stop = " if (ws_rounds >= WS_MOST) { ws_late[0] = 1u; break; } ws_rounds += 1u; ".replace("WS_MOST", f"{ROUNDS}u")
    for place in reversed(places):
        plain = plain[:place] + stop + plain[place:]
    late = f"@group(0) @binding({LAST_BINDING}) var<storage, read_write> ws_late: array<u32>;"
    return f"{plain}\nvar<private> ws_rounds: u32 = 0u;\n{late}\n"


def _expect_ends(device: wgpu.GPUDevice, source: str, cases: Sequence[Case]) -> None:
    """Refuse a kernel with a loop that does not end, without running that loop to its end."""
    if not re.search(r"\b(for|while|loop)\b", webgpu.without_comments(source)):
        return
    try:
        kernel = webgpu.Kernel(device, counted(source))
    except (webgpu.KernelError, ValueError):
        return  # written in a way that this does not follow; the time-out is left
    for case in cases:
        late = _launch(kernel, case, FILLS[0], {LAST_BINDING: np.zeros(1, np.uint32)})[LAST_BINDING]
        if late[0]:
            raise checks.NotYet(f"{case.words}: a loop goes round more than {ROUNDS:,} times; it may never end.")


def _expect_own_results(kernel: webgpu.Kernel, case: Case) -> None:
    """Refuse a kernel whose first workgroup does the work of the second: it writes where others write, too."""
    bits = _launch(kernel, case._replace(groups=1), FILLS[0])[case.output]
    if (touched := np.flatnonzero(bits[case.each :] != FILLS[0])).size:
        own = f"results 0 to {case.each - 1}" if case.each > 1 else "result 0"
        raise checks.NotYet(
            f"{case.words}, the first workgroup alone: it wrote result {case.each + touched[0]}. Only {own} belong"
            f"{'s' * (case.each == 1)} to it: here each invocation writes one result at most, its own."
        )


def _judge_case(kernel: webgpu.Kernel, case: Case) -> None:
    runs = [_launch(kernel, case, fill)[case.output] for fill in FILLS]
    n = case.expected.size
    unwritten = (runs[0] == FILLS[0]) & (runs[1] == FILLS[1])
    if unwritten[:n].all() and n > 2:
        raise checks.NotDone(f"the kernel writes no result ({case.words}).")
    launched = f"{case.words}, {case.groups:,} workgroup{'s' * (case.groups > 1)} of {GROUP}"
    for bits, fill in zip(runs, FILLS, strict=True):
        beyond = np.flatnonzero(bits[n:] != fill)
        if beyond.size:
            whose = "the result of a workgroup has the workgroup's number, `group.x`."
            if case.each > 1:
                whose = "the invocations without an element of their own must write nothing."
            raise checks.NotYet(
                f"{launched}: element {n + beyond[0]} of the output was written, and there are {n} results. The buffer "
                f"is longer than that: {whose}"
            )
    # float32 sums in any order; a device may multiply and add in one step.
    scale = 1e-5 * math.sqrt(max(array.size for array in case.arrays.values()))
    outputs = [bits[:n].view(np.float32) for bits in runs]
    for actual in outputs:
        wrong = np.flatnonzero(~np.isclose(actual, case.expected, rtol=1e-4, atol=min(scale, 1e-3)))
        if not wrong.size:
            continue
        i = int(wrong[0])
        where = f"{launched}, result {i}: expected {case.expected[i]:.6g}"
        if unwritten[i]:
            raise checks.NotYet(f"{where}, came nothing: it was never written.")
        again = [_launch(kernel, case, fill)[case.output][:n].view(np.float32)[i] for fill in FILLS * 3]
        if not all(np.isclose(again[k::2], again[k], equal_nan=True).all() for k in (0, 1)):
            raise checks.NotYet(f"{where}, came {actual[i]:.6g}; it differs from run to run.")
        if not np.isclose(again[0], again[1], equal_nan=True):
            raise checks.NotYet(f"{where}, came {actual[i]:.6g}; it depends on what the output held before.")
        slip = next((f" {words}" for words, values in case.slips.items() if np.allclose(actual, values, 1e-4)), "")
        hint = " (What lies beyond the ends of the inputs is nan.)" if np.isnan(actual[i]) else slip
        raise checks.NotYet(f"{where}, came {actual[i]:.6g}.{hint}")


# What beginners write, by a part of what wgpu's compiler says against it, and what WGSL wants instead.
CONVERTS = "WGSL converts no variables: write `f32(i)` for a whole number, `0.0` for a zero."
HINTS = (
    ("valid destination for a store", "Is this buffer declared `read` or `uniform`? Such a buffer cannot be written."),
    ("Accessing with index", "Is the index a vector? Take one number of it: id.x."),
    ("Vector { size: Tri", "Is it `id`? It holds three numbers: take one of them, `id.x`."),
    ("Abstract types may only appear", "A number with a point beside a whole number? Beside a `u32` write `1u`."),
    (r"cannot convert elements of `f32` to `[ui]32`|kind: Sint.*kind: Float",
     "`var sum = 0;` makes a whole number: write `0.0`, or `f32(i)` for a variable."),
    (r"kind: Uint.*kind: Float|kind: Float.*kind: (Uint|Sint)|cannot convert elements of `[ui]32` to `f32`", CONVERTS),
    (r"allowed type: \S*f\d\d", CONVERTS),
    ("kind: Bool|is not a boolean|to be a boolean", "A condition is a comparison: `i > 0u`."),
    ("kind: Sint|expected to be `i32`, but got `u32`",
     "A signed and an unsigned whole number stand side by side: write `32u`, or `u32(i)`."),
    (r"expected assignment or increment/decrement|expected operation|identifier: `(float|int|uint|double)`",
     "No type stands before a name: `let i = ...;`, or `var i = ...;` for what changes. Types: `f32`, `u32`."),
    ("Unexpected runtime-expression", "`const` holds what is known before the run; name other values by `let`."),
    ("with `var` instead of `let`|increment/decrement operation requires",
     "`let` names a value for good; what changes is a `var`."),
    (r"expected `\{`", "WGSL wants braces, also around one statement: `if (...) { return; }`."),
    (r'found "\?"', "WGSL has no `? :`; write `select(no, yes, condition)`."),
    (r'expected `\)`, found "="', "A comparison is written `==`."),
    (r"found \"(\w+|\})\"", "Does the statement before end with a semicolon?"),
    ("identifier: `(get_global_id|barrier|get_local_id|workgroupbarrier)`",
     "In WGSL it is `id.x`, and `workgroupBarrier();`."),
    ("identifier: `(relu|ReLU|fmax)`", "In WGSL it is `max(a, b)`."),
)  # fmt: skip


def hint(why: str) -> str:
    """Return a line that helps with what the compiler complains about, empty if nothing is known about it."""
    said = why.partition("\n")[0]
    return next((helps for part, helps in HINTS if re.search(part, said)), "")


# ---------------------------------------------------------------------------------------------- a look at the source


class Block(NamedTuple):
    """A block of a kernel between braces."""

    head: str  # what stands before it, such as `if (local.x < step)`
    differs: bool  # whether only some invocations of a workgroup may come here


ASSIGNMENT = re.compile(r"\b(\w+)(?:\s*:\s*[\w<>, ]+?)?\s*(?:(?:[-+*/%|&^]|<<|>>)?=(?!=)|\+\+|--)([^;{]*)")


def _uniform_barriers(source: str) -> None:
    """Refuse a barrier that only some invocations may reach: WGSL forbids it, wgpu 0.32 does not look.

    A small version of the uniformity analysis of the WGSL specification: what depends on an invocation's own number, or
    on memory that others write, differs between invocations; a block under such a condition holds no barrier, and
    after a `return` or `break` under one there is none. It follows names, not functions.
    """
    plain = webgpu.without_comments(source)
    if not re.search(r"\b(workgroup|storage)Barrier\b", plain):
        return
    differs = {one for builtin in BUILTINS for one in re.findall(rf"@builtin\(\s*{builtin}\s*\)\s*(\w+)", plain)}
    differs |= set(re.findall(r"var\s*<\s*(?:workgroup|private|storage\s*,\s*read_write)\s*>\s*(\w+)", plain))
    seen: set[str] = set()
    while seen != differs:  # a name that differs makes others differ, also those of the loop's next round
        seen = set(differs)
        differs |= {name for name, value in ASSIGNMENT.findall(plain) if set(re.findall(r"\w+", value)) & differs}
        refusals = _walk(plain, differs)
    if refusals:
        raise checks.NotYet(refusals[0])


def _walk(plain: str, differs: set[str]) -> list[str]:
    """Return why a barrier is refused, for each; add the names that are assigned where only some come to `differs`."""
    blocks: list[Block] = []
    refusals = []
    closed, gone, start, depth = Block("", False), 0, 0, 0
    for found in re.finditer(r"[(){};]|\b(?:(?:workgroup|storage)Barrier|return|break|continue)\b", plain):
        mark, inside = found[0], bool(blocks) and blocks[-1].differs
        depth += (mark == "(") - (mark == ")")
        if inside and mark == ";":
            differs |= {name for name, _ in ASSIGNMENT.findall(plain[start : found.start()])}
        if mark == "{":
            head = " ".join(plain[start : found.start()].split())
            own = re.match(r"(?:else|if|while|for|switch)\b", head) and set(re.findall(r"\w+", head)) & differs
            otherwise = head.startswith("else") and closed.differs
            blocks.append(Block(head, inside or bool(own) or otherwise))
        elif mark == "}" and blocks:
            closed = blocks.pop()
            gone = min(gone, len(blocks))
        elif mark in ("return", "break", "continue") and inside:
            loops = [n for n, block in enumerate(blocks, 1) if re.match(r"(?:for|while|loop)\b", block.head)]
            gone = max(gone, loops[-1] if loops and mark != "return" else 1)
        elif mark.endswith("Barrier") and (inside or gone):
            line = plain.count("\n", 0, found.start()) + 1
            where = [block.head for block in blocks if block.differs]
            why = f"it stands in `{where[0]}`" if where else "some of them may have left before it"
            refusals.append(
                f"line {line}: not all invocations of the workgroup reach this {mark}(): {why}. WGSL forbids that, and "
                "browsers refuse such a kernel."
            )
        if mark in "{}" or (mark == ";" and depth == 0):
            start = found.end()
    return refusals


STORE = re.compile(r"\b(\w+)\s*(?:\[[^;={]*\])?(?:\s*:\s*[\w<>, ]+?)?\s*(?:[-+*/%|&^]|<<|>>)?=(?!=)([^;{]*)")


def _shared_memory(source: str) -> None:
    """Refuse a sum that is right without workgroup memory, or right by luck without barriers that it needs."""
    plain = webgpu.without_comments(source)
    shared = set(re.findall(r"var\s*<\s*workgroup\s*>\s*(\w+)", plain))
    result = re.search(r"@binding\(\s*1u?\s*\)[^;]*?>\s*(\w+)\s*:", plain)
    behind, seen = {result[1]} if result else set(), set()
    while seen != behind:  # all that the result is made of
        seen = set(behind)
        behind |= {word for name, value in STORE.findall(plain) if name in behind for word in re.findall(r"\w+", value)}
    if not shared & behind:
        raise checks.NotYet("the sums are right, but not made of what lies in workgroup memory, `var<workgroup>`.")
    if not re.search(r"\bworkgroupBarrier\b|\bworkgroupUniformLoad\b", plain):
        raise checks.NotYet(
            "the sums came out right on this adapter, by luck: no workgroupBarrier() stands between a write to "
            "workgroup memory and another invocation's read."
        )
