"""Record on the device which invocation of a WGSL launch touches what, after how many barriers (lesson 14).

Results alone do not show a race or a missing guard: many adapters run the invocations in an order that hides both. So
the WGSL is rewritten, as `opencl_rewriter` does it for OpenCL C: every index of workgroup memory and of the output goes
through a function that notes it in a buffer, and `trace` looks at that record. The caller runs the kernel without its
barriers first: a barrier that only some invocations reach is then reported and never run, and so is an endless loop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.devices import webgpu
from helpers.devices.kernel_text import KernelError, closing_bracket, without_comments
from helpers.judge.checks import NotYet
from helpers.judge.kernel_checks import FILLS
from helpers.judge.trace import ARRAY, GLOBAL_FENCE, INSIDE, LOCAL_FENCE, READ, WRITE, Trace

if TYPE_CHECKING:
    import wgpu

GROUP = 64  # invocations of a workgroup in the exercises
BEYOND = 150  # elements of each buffer that lie beyond those that a kernel is told of
MAX_ACCESSES = 512  # accesses that are listed, for each invocation of a launch
MAX_LOOP_ROUNDS = 20_000  # of all loops of one invocation together, in recorded launches; more count as endless
BINDING = 15  # of the record

WORKGROUP_ARRAYS = re.compile(r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*([^;]+);")  # name and type
ARRAY_TYPE = re.compile(r"array\s*<\s*(f32|u32|i32)\s*(?:,\s*(\w+)\s*,?\s*)?>")  # what an element is, and how many

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
    ideas: Mapping[str, np.ndarray] | None = None  # what wrong ideas would write, by their words

    @property
    def launch(self) -> str:
        """The launch in words, for a message."""
        workgroups = "workgroup" if self.groups == 1 else "workgroups"
        return f"{self.words}, {self.groups:,} {workgroups} of {GROUP}"


def launch_kernel(
    kernel: webgpu.Kernel, case: Case, fill: int, more: Mapping[int, np.ndarray] | None = None
) -> dict[int, np.ndarray]:
    """Run a kernel whose output holds `fill` before.

    Args:
        kernel: the learner's, or the one that records.
        case: the launch.
        fill: the 32 bits of every element of the output.
        more: further arrays that it writes, by binding.

    Returns:
        What the output and those arrays hold afterwards, by binding.
    """
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


def record(device: wgpu.GPUDevice, source: str, case: Case, dry: bool) -> tuple[Trace, list[np.ndarray]]:
    """Run the rewritten kernel; return who touched what, and its output for each of FILLS.

    Args:
        device: where it runs.
        source: the learner's WGSL, which compiles.
        case: a launch of few workgroups.
        dry: whether it runs without its barriers, as it must the first time.

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
        raise NotYet(
            f"{case.launch}: the loops of one invocation go round more than {MAX_LOOP_ROUNDS:,} times. Either one "
            "never ends, or an invocation does the work of many."
        )
    groups = sites.reshape(-1, GROUP)
    for group, other in np.argwhere(groups != groups[:, :1])[:1]:
        first = group * GROUP
        raise NotYet(
            f"{case.launch}: invocations {first} and {first + other} of one workgroup do not reach the same barriers. "
            "WGSL forbids that, and browsers refuse such a kernel: the others wait for an invocation that left early."
        )
    listed = touches[np.argsort(touches[:count, 0], kind="stable")].astype(np.int64)
    ids = np.column_stack([np.arange(items), np.zeros((items, 2), int)])
    traced = Trace(
        device="",
        lengths={arrays[-1]: 0},
        global_ids=ids,
        local_ids=ids % GROUP,
        group_ids=ids // GROUP,
        global_accesses=np.bincount(listed[:, 0], minlength=items),
        barriers=sites,
        unseen=["too many accesses"] if count > len(touches) else [],
        _arrays=arrays,
        _listed=np.insert(listed, 3, 0, axis=1),
    )
    return traced, [run[case.output] for run in runs]


def rewrite(source: str, output: int, dry: bool) -> tuple[list[str], str]:
    """Return the arrays that are recorded, the output last, and the kernel that records them."""
    plain = without_comments(source)
    found = WORKGROUP_ARRAYS.findall(plain)
    found += re.findall(rf"@binding\(\s*{output}u?\s*\)[^;]*?>\s*(\w+)\s*:\s*([^;]+);", plain)
    stop = f" if (ws_rounds >= {MAX_LOOP_ROUNDS}u) {{ ws_log.endless = 1u; break; }} ws_rounds += 1u;"
    plain = re.sub(r"\b(?:for|while|loop)\b[^{]*\{", lambda loop: loop[0] + stop, plain)
    for number, (name, kind) in enumerate(found):
        made = ARRAY_TYPE.fullmatch(kind.strip())
        if not made:
            raise NotFollowed(f"`{name}` is a {' '.join(kind.split())}")
        length = f"u32({made[2]})" if made[2] else f"arrayLength(&{name})"
        plain = _note_indices(plain, name, number * ARRAY, length)

    def meeting(barrier: re.Match[str]) -> str:
        fence = LOCAL_FENCE if barrier[1] == "workgroup" else GLOBAL_FENCE
        noted = f"ws_meet({barrier.start()}u); ws_met += {fence}u;"
        return noted if dry else noted + barrier[0]

    plain = re.sub(r"\b(workgroup|storage)Barrier\s*\(\s*\)\s*;", meeting, plain)
    return [name for name, _ in found], _begin_with(plain, "ws_me = WS_ID.x;") + RECORDER


def fill_workgroup_memory(source: str, value: int) -> str:
    """Return the kernel with all of its workgroup memory filled before its own first statement.

    Args:
        source: the learner's WGSL.
        value: what each element holds.

    Returns:
        The WGSL, empty if the kernel has no workgroup memory that can be filled, such as an array of atomics.

    Raises:
        NotFollowed: the kernel has no function `main`.
    """
    plain, loops = without_comments(source), []
    for name, kind in WORKGROUP_ARRAYS.findall(plain):
        if not (made := ARRAY_TYPE.fullmatch(kind.strip())):
            return ""
        loop = f"for (var ws_i = WS_ID.x % {GROUP}u; ws_i < u32({made[2]}); ws_i += {GROUP}u)"
        loops.append(f"{loop} {{ {name}[ws_i] = {made[1]}({value}); }}")
    return _begin_with(plain, f"{' '.join(loops)} workgroupBarrier();") if loops else ""


def _note_indices(plain: str, name: str, array: int, length: str) -> str:
    """Pass every index of one array through the recorder, the last one in the text first."""
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


def _begin_with(plain: str, statements: str) -> str:
    """Insert statements before the first one of the kernel.

    Args:
        plain: WGSL without comments; its workgroups are in one dimension.
        statements: WGSL that calls the kernel's `global_invocation_id` WS_ID.
    """
    head = re.search(r"\bfn\s+main\s*\(", plain)
    if head is None:
        raise NotFollowed("its function `main` was not found")
    opening = head.end()
    closing = closing_bracket(plain, opening - 1)
    own = re.search(r"@builtin\(\s*global_invocation_id\s*\)\s*(\w+)", plain[opening:closing])
    parameter, name = ("", own[1]) if own else ("@builtin(global_invocation_id) ws_id: vec3<u32>, ", "ws_id")
    body = plain.index("{", closing) + 1
    begin = statements.replace("WS_ID", name)
    return f"{plain[:opening]}{parameter}{plain[opening:body]} {begin}{plain[body:]}"
