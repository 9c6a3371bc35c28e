"""Lesson 14: judge a learner's WGSL by who touches what, and by what it computes.

Results alone do not show a race or a missing guard: many adapters run the invocations in an order that hides both. So
the WGSL is rewritten, as `judge.instrument` does it for OpenCL C: every index of workgroup memory and of the output
goes through a function that notes it in a buffer, and `judge.trace` looks at that record. The kernel runs once
without its barriers before: a barrier that not all reach is told and never run, and so is a loop without end.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import webgpu
from helpers.devices.kernel_text import KernelError, closing_bracket, without_comments
from helpers.judge import checks, trace
from helpers.judge.kernel_checks import FILLS, find_unwritten
from helpers.judge.recorder import ARRAY, GLOBAL_FENCE, INSIDE, LOCAL_FENCE, READ, WRITE

if TYPE_CHECKING:
    import wgpu

GROUP = 64  # invocations of a workgroup in the exercises
BEYOND = 150  # elements of each buffer that lie beyond those that a kernel is told of
MAX_RECORDED_GROUPS = 3  # launches of so many workgroups at most are recorded
RACE_IN_A_ROUND = "A barrier is missing (after the copy, after a round), or others than those with `me < step` add."
MAX_TAKEN = 16  # numbers of others that one invocation adds to a sum in rounds; six in the solution
MAX_ACCESSES = 512  # accesses that are listed, for each invocation of a launch
MAX_LOOP_ROUNDS = 20_000  # of all loops of one invocation together, in recorded launches; more are taken for endless
BINDING = 15  # of the record

RECORDER = f"""
struct WsLog {{
    count: atomic<u32>,  // of accesses
    endless: u32,  // 1 if a loop was left
    sites: array<u32, WS_ITEMS>,  // of each invocation a number that stands for the barriers it met
    touches: array<vec4<u32>>,  // invocation, array and kind, index, barriers met before
}}
@group(0) @binding({BINDING}) var<storage, read_write> ws_log: WsLog;
var<private> ws_me: u32;
var<private> ws_met: u32;
var<private> ws_rounds: u32;

fn ws_touch(what: u32, index: u32, length: u32) -> u32 {{
    let place = atomicAdd(&ws_log.count, 1u);
    if (place < arrayLength(&ws_log.touches)) {{
        ws_log.touches[place] = vec4(ws_me, what + select(0u, {INSIDE}u, index < length), index, ws_met);
    }}
    return index % length;  // another element, as WGSL allows it for one that does not exist
}}
fn ws_meet(site: u32) {{
    ws_log.sites[ws_me] = ws_log.sites[ws_me] * 4099u + site;
}}
"""


class NotFollowed(Exception):
    """The kernel is written in a way that the recorder does not follow."""


class Case(NamedTuple):
    """One launch of a learner's kernel."""

    words: str  # what is computed, for the message
    arrays: dict[int, np.ndarray]  # by binding, without the output
    output: int  # the binding of the output
    expected: np.ndarray  # what it must hold, one-dimensional
    groups: int  # workgroups
    beyond: int = BEYOND  # elements of the output's buffer that are none of the results

    @property
    def launch(self) -> str:
        """For a message."""
        return f"{self.words}, {self.groups:,} workgroup{'s' * (self.groups > 1)} of {GROUP}"


# ---------------------------------------------------------------------------------------------- the verdict


def pad(values: np.ndarray) -> np.ndarray:
    """The values, and behind them numbers that spoil every result."""
    return np.concatenate([values.ravel(), np.full(BEYOND, np.nan, np.float32)])


def judge_kernel(
    source: str, wanted: Mapping[int, str], cases: Sequence[Case],
    look: Callable[[trace.Trace, Case], None] = lambda traced, case: None,
) -> str:  # fmt: skip
    """Judge a kernel on cases that change with every call: first the record of the small ones, then what all compute.

    Args:
        source: the learner's WGSL.
        wanted: how each binding is declared.
        cases: the launches.
        look: a further look at the record of a case.

    Returns:
        What was tried, for the verdict.
    """
    adapter = webgpu.pick_adapter()
    kernel = compile_kernel(webgpu.request_device(adapter), source, wanted)
    coverage = "who touches what was recorded"
    try:
        _expect_uniform_barriers(source)
        for case in cases:
            if case.groups <= MAX_RECORDED_GROUPS:
                _expect_good_record(kernel.device, source, case, look)
    except NotFollowed as why:
        coverage = f"races were not looked for: {why}"
    for case in cases:
        _expect_results(case, [launch_kernel(kernel, case, fill)[case.output] for fill in FILLS])
    launches, most = f"launch{'es' * (len(cases) > 1)}", max(case.expected.size for case in cases)
    return f"{len(cases)} {launches} of up to {most:,} results, {coverage}, on {webgpu.name(adapter)}"


def _expect_uniform_barriers(source: str) -> None:
    """Refuse a barrier in a block whose condition depends on the invocation: WGSL forbids it, wgpu does not look."""
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
                raise checks.NotYet(
                    f"a barrier stands inside of `{' '.join(found[0][:-1].split())}`, which depends on the invocation. "
                    "WGSL forbids that, also where all come there, and browsers refuse such a kernel."
                )


def compile_kernel(device: wgpu.GPUDevice, source: str, wanted: Mapping[int, str]) -> webgpu.Kernel:
    """Return the learner's kernel, once its buffers and its workgroups are as they were handed out."""
    try:
        kernel = webgpu.Kernel(device, source)
    except KernelError as error:
        what = error.what.replace("The kernel does", "the kernel does")
        raise checks.NotYet("\n".join(filter(None, (what, error.why, hint(error.why))))) from None
    if kernel.bindings != wanted:
        raise checks.NotYet(f"expected the buffers that were declared, {dict(wanted)}; came {kernel.bindings}.")
    plain = without_comments(source)
    constants = dict(re.findall(r"\bconst\s+(\w+)[\s:ui32]*=\s*(\d+[ui]?)\s*;", plain))
    size = "".join(re.findall(r"@workgroup_size\s*\(([^)]*)\)", plain))
    numbers = re.sub(r"\w+", lambda word: constants.get(word[0], word[0]), size)
    if not re.fullmatch(rf"\s*{GROUP}[ui]?\s*(,\s*1[ui]?\s*){{0,2}},?\s*", numbers):
        raise checks.NotYet(f"expected @workgroup_size({GROUP}), came @workgroup_size({size}).")
    return kernel


def launch_kernel(kernel: webgpu.Kernel, case: Case, fill: int, more: Mapping[int, np.ndarray] | None = None) -> dict:
    """Run a kernel with its output filled; return what its writable arrays hold then, by binding."""
    print(case.launch, flush=True)  # the last line of a process that ends early
    out = np.full(case.expected.size + case.beyond, fill, np.uint32)
    arrays = {**case.arrays, case.output: out, **(more or {})}
    buffers = {number: webgpu.buffer(kernel.device, array) for number, array in arrays.items()}
    kernel.submit(kernel.bind(buffers), case.groups)
    numbers = (case.output, *(more or {}))
    written = {number: webgpu.read(kernel.device, buffers[number], arrays[number]) for number in numbers}
    for buffer in buffers.values():
        buffer.destroy()
    return written


def _expect_results(case: Case, runs: Sequence[np.ndarray]) -> None:
    """Refuse wrong results, results that were never written, and writes beyond them; runs: one for each of FILLS."""
    n, unwritten = case.expected.size, find_unwritten(*runs)
    if (beyond := np.flatnonzero(~unwritten[n:])).size:
        raise checks.NotYet(_beyond(case, "the kernel", n + int(beyond[0])))
    whole = np.issubdtype(case.expected.dtype, np.integer)
    tolerance = 0 if whole else min(1e-5 * math.sqrt(max(array.size for array in case.arrays.values())), 1e-3)
    outputs = np.stack([bits[:n].view(case.expected.dtype) for bits in runs])
    right = np.isclose(outputs, case.expected, 0 if whole else 1e-4, tolerance).all(axis=0)
    for i in np.flatnonzero(~right)[:1]:
        where = f"{case.launch}, result {i}: expected {case.expected[i]:.6g}, came "
        if unwritten[i]:
            raise checks.NotYet(f"{where}nothing: it was never written.")
        if runs[0][i] != runs[1][i]:
            raise checks.NotYet(
                f"{where}other numbers in two launches whose output held other numbers before. `=` writes a result; "
                "`+=` adds to what was there."
            )
        spoilt = " (What lies beyond the ends of the inputs is nan.)" if np.isnan(outputs[0, i]) else ""
        raise checks.NotYet(f"{where}{outputs[0, i]:.6g}.{spoilt}")


def _beyond(case: Case, who: str, index: int) -> str:
    return (
        f"{case.launch}: {who} writes element {index} of the output, and only 0 to {case.expected.size - 1} belong to "
        "it; the buffer is longer. Who has no result must write nothing."
    )


# ---------------------------------------------------------------------------------------------- the record


def _expect_good_record(
    device: wgpu.GPUDevice, source: str, case: Case, look: Callable[[trace.Trace, Case], None]
) -> None:
    """Refuse endless loops, barriers that not all reach, races, and writes outside; `look` may refuse more."""
    record(device, source, case, dry=True)
    traced, runs = record(device, source, case, dry=False)
    written = [touch for touch in traced.touches if touch.writes and touch.array in traced.lengths]
    if not written and case.expected.size > 2:
        raise checks.NotDone(f"the kernel writes no result ({case.words}).")
    for race in traced.races():
        near = not any(f" {output}[" in race for output in traced.lengths)
        helps = f" {RACE_IN_A_ROUND}" * near
        race = race.replace("work-items", "invocations").replace("local memory", "workgroup memory")
        raise checks.NotYet(
            f"{case.launch}: {race}. That is a race: whoever comes first decides, and a right result is luck.{helps}"
        )
    for touch in written:
        if touch.index >= case.expected.size:
            raise checks.NotYet(_beyond(case, f"invocation {touch.item}", touch.index))
    for touch in traced.outside:
        if touch.writes:
            raise checks.NotYet(f"{case.launch}: invocation {touch.item} writes {touch.array}[{touch.index}], "
                                "which does not exist.")  # fmt: skip
    _expect_results(case, runs)
    elements = {(touch.item, touch.index) for touch in written}
    item, most = collections.Counter(item for item, _ in elements).most_common(1)[0] if elements else (0, 0)
    if case.expected.size >= GROUP and most > case.expected.size / 2:
        raise checks.NotYet(f"{case.launch}: the results are right, but invocation {item} writes {most} of them alone.")
    look(traced, case)


def expect_shared(traced: trace.Trace, case: Case) -> None:
    """Refuse sums that no two invocations made together."""
    near = [touch for touch in traced.touches if touch.array not in traced.lengths]
    writers, taken = collections.defaultdict(set), collections.defaultdict(set)
    for touch in near:
        if touch.writes:
            writers[touch.item // GROUP, touch.array, touch.index].add(touch.item)
    for touch in near:
        if touch.reads and writers[touch.item // GROUP, touch.array, touch.index] - {touch.item}:
            taken[touch.item].add((touch.array, touch.index))
    most = max(map(len, taken.values()), default=0)
    if case.expected.size > 1 and not 0 < most <= MAX_TAKEN:
        raise checks.NotYet(
            f"the sums are right, but one invocation takes {most} numbers of others from workgroup memory. Add in "
            "rounds: 32 invocations add at once, then 16, 8, 4, 2 and 1."
        )


def record(device: wgpu.GPUDevice, source: str, case: Case, dry: bool) -> tuple[trace.Trace, list[np.ndarray]]:
    """Run the rewritten kernel; return who touched what, and its output for each of FILLS.

    Args:
        device: where it runs.
        source: the learner's WGSL, which compiles.
        case: a launch of few workgroups.
        dry: without its barriers, which must come first.

    Raises:
        NotFollowed: the recorder does not follow this kernel.
        NotYet: a loop does not end, or not all of a workgroup reach the same barriers.
    """
    items = case.groups * GROUP
    arrays, text = rewrite(source, case.output, dry)
    try:
        kernel = webgpu.Kernel(device, text.replace("WS_ITEMS", f"{items}u"))
    except KernelError as error:
        raise NotFollowed("it could not be rewritten") from error
    empty = np.zeros(4 + items + 4 * items * MAX_ACCESSES, np.uint32)
    runs = [launch_kernel(kernel, case, fill, {BINDING: empty}) for fill in FILLS]
    log = runs[0][BINDING]
    (count, endless), sites, touches = log[:2], log[2 : 2 + items], log[4 + items :].reshape(-1, 4)
    if endless:
        raise checks.NotYet(
            f"{case.launch}: the loops of one invocation go round more than {MAX_LOOP_ROUNDS:,} times. Either one "
            "never ends, or an invocation does the work of many."
        )
    groups = sites.reshape(-1, GROUP)
    for group, other in np.argwhere(groups != groups[:, :1])[:1]:
        first = group * GROUP
        raise checks.NotYet(
            f"{case.launch}: invocations {first} and {first + other} of one workgroup do not reach the same barriers. "
            "WGSL forbids that, and browsers refuse such a kernel: who leaves early is waited for."
        )
    listed = touches[np.argsort(touches[:count, 0], kind="stable")].astype(np.int64)
    ids = np.column_stack([np.arange(items), np.zeros((items, 2), int)])
    traced = trace.Trace(
        device="", lengths={arrays[-1]: 0}, global_ids=ids, local_ids=ids % GROUP, group_ids=ids // GROUP,
        global_accesses=np.bincount(listed[:, 0], minlength=items), barriers=sites, _arrays=arrays,
        unseen=["too many accesses"] * int(count > len(touches)),
        _listed=np.insert(listed, 3, 0, axis=1),
    )  # fmt: skip
    return traced, [run[case.output] for run in runs]


def rewrite(source: str, output: int, dry: bool) -> tuple[list[str], str]:
    """Return the arrays that are recorded, the output last, and the kernel that records them."""
    plain = without_comments(source)
    found = re.findall(r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*([^;]+);", plain)
    found += re.findall(rf"@binding\(\s*{output}u?\s*\)[^;]*?>\s*(\w+)\s*:\s*([^;]+);", plain)
    stop = f" if (ws_rounds >= {MAX_LOOP_ROUNDS}u) {{ ws_log.endless = 1u; break; }} ws_rounds += 1u;"
    plain = re.sub(r"\b(?:for|while|loop)\b[^{]*\{", lambda loop: loop[0] + stop, plain)
    for number, (name, kind) in enumerate(found):
        made = re.fullmatch(r"array\s*<\s*(?:f32|u32|i32)\s*(?:,\s*(\w+)\s*,?\s*)?>", kind.strip())
        if not made:
            raise NotFollowed(f"`{name}` is a {' '.join(kind.split())}")
        length = f"u32({made[1]})" if made[1] else f"arrayLength(&{name})"
        plain = _note_indices(plain, name, number * ARRAY, length)

    def meeting(barrier: re.Match[str]) -> str:
        fence = LOCAL_FENCE if barrier[1] == "workgroup" else GLOBAL_FENCE
        return f"ws_meet({barrier.start()}u); ws_met += {fence}u;" + barrier[0] * (not dry)

    plain = re.sub(r"\b(workgroup|storage)Barrier\s*\(\s*\)\s*;", meeting, plain)
    return [name for name, _ in found], _number_invocations(plain) + RECORDER


def _note_indices(plain: str, name: str, array: int, length: str) -> str:
    """Lead every index of one array through the recorder, the last one in the text first."""
    for found in reversed(list(re.finditer(rf"\b{name}\b", plain))):
        before, after = plain[: found.start()].rstrip(), plain[found.end() :]
        if re.search(r"var\s*<[^>]*>$", before) or re.search(r"arrayLength\s*\(\s*&$", before):
            continue
        if not after.lstrip().startswith("["):
            raise NotFollowed(f"`{name}` stands without an index")
        opening = plain.index("[", found.end())
        closing = closing_bracket(plain, opening)
        index, rest = plain[opening + 1 : closing], plain[closing + 1 :]
        if re.search(r"(?<!&)&$", before):
            raise NotFollowed(f"a pointer to an element of `{name}` is taken")
        kind = READ
        if re.match(r"\s*=(?!=)", rest):
            kind = WRITE
        elif re.match(r"\s*(?:(?:[-+*/%|&^]|<<|>>)=|\+\+|--)", rest):
            kind = READ | WRITE
        plain = f"{plain[:opening]}[ws_touch({array + kind}u, u32({index}), {length})]{rest}"
    return plain


def _number_invocations(plain: str) -> str:
    """Let each invocation of the kernel keep its number among all; workgroups lie in one dimension."""
    opening = re.search(r"\bfn\s+main\s*\(", plain).end()
    closing = closing_bracket(plain, opening - 1)
    own = re.search(r"@builtin\(\s*global_invocation_id\s*\)\s*(\w+)", plain[opening:closing])
    parameter, name = ("", own[1]) if own else ("@builtin(global_invocation_id) ws_id: vec3<u32>, ", "ws_id")
    body = plain.index("{", closing) + 1
    return f"{plain[:opening]}{parameter}{plain[opening:body]} ws_me = {name}.x;{plain[body:]}"


# ---------------------------------------------------------------------------------------------- compiler's words

# What beginners write, by a part of what wgpu's compiler says against it, and what WGSL wants instead.
CONVERTS = "WGSL converts no variables: write `f32(i)` for a whole number, `0.0` for a zero."
HINTS = (
    ("valid destination for a store", "Is this buffer declared `read` or `uniform`? Such a buffer cannot be written."),
    ("Accessing with index|Vector { size: Tri", "Is the index `id`? It holds three numbers: take one, `id.x`."),
    (r"cannot convert elements of `f32` to `[ui]32`|kind: Sint.*kind: Float",
     "`var sum = 0;` makes a whole number: write `0.0`, or `f32(i)` for a variable."),
    (r"kind: Uint.*kind: Float|kind: Float.*kind: (Uint|Sint)|cannot convert elements of `[ui]32` to `f32`", CONVERTS),
    ("kind: Bool|is not a boolean|to be a boolean", "A condition is a comparison: `i > 0u`."),
    (r"cannot convert elements of `u32` to `i32`", "`var best = 0;` makes a signed whole number: write `0u`."),
    ("kind: Sint|expected to be `i32`, but got `u32`",
     "A signed and an unsigned whole number stand side by side: write `32u`, or `u32(i)`."),
    (r"expected assignment or increment/decrement|expected operation|identifier: `(float|int|uint|double)`",
     "No type stands before a name: `let i = ...;`, or `var i = ...;` for what changes. Types: `f32`, `u32`."),
    ("with `var` instead of `let`|increment/decrement operation requires",
     "`let` names a value for good; what changes is a `var`."),
    (r"expected `\(`, found", "A loop is written `for (var i = 0u; i < 10u; i++) { ... }`."),
    (r"expected `\{`", "WGSL wants braces, also around one statement: `if (...) { return; }`."),
    (r'found "\?"', "WGSL has no `? :`; write `select(no, yes, condition)`."),
    (r"found \"(\w+|\})\"", "Does the statement before end with a semicolon?"),
    ("identifier: `(get_global_id|barrier|get_local_id|workgroupbarrier)`",
     "In WGSL it is `id.x`, and `workgroupBarrier();`."),
)  # fmt: skip


def hint(why: str) -> str:
    """Return a line that helps with what the compiler complains about, empty if nothing is known about it."""
    first_line = why.partition("\n")[0]
    return next((helps for part, helps in HINTS if re.search(part, first_line)), "")
