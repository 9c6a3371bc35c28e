"""Lesson 14: record which invocation touches what between two barriers, and look for races in that record.

A race rarely shows in the sums: many adapters, software ones above all, run the invocations in an order that hides it.
So the learner's WGSL is rewritten, as `judge.instrument` does it for OpenCL C: every index of workgroup memory, and
of the output, goes through a function that notes it in a buffer. `helpers.judge.trace` then looks at that record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.compute import opencl, webgpu
from helpers.judge import trace
from helpers.judge.instrument import ARRAY, GLOBAL_FENCE, INSIDE, LOCAL_FENCE, READ, WRITE

if TYPE_CHECKING:
    import wgpu

GROUP = 64  # invocations of the one workgroup that is recorded
MOST = 512  # accesses of one invocation that are listed; what comes after is only counted
TOUCH = 4  # numbers of one access: array and kind, index, barriers met, whether a write changed what was there
BINDING = 14  # of the record
ALONE = 32  # accesses of one invocation, of 64 elements: with more it does the others' work

RECORDER = f"""
@group(0) @binding({BINDING}) var<storage, read_write> ws_log: array<u32>;
var<private> ws_me: u32;
var<private> ws_met: u32;
var<private> ws_at: u32;
var<private> ws_index: u32;
var<private> ws_before: u32;

fn ws_touch(what: u32, index: u32, length: u32) -> u32 {{
    let inside = index < length;
    let count = ws_log[ws_me];
    ws_log[ws_me] = count + 1u;
    ws_at = {GROUP}u + (ws_me * {MOST}u + min(count, {MOST - 1}u)) * {TOUCH}u;
    ws_log[ws_at] = what + select(0u, {INSIDE}u, inside);
    ws_log[ws_at + 1u] = index;
    ws_log[ws_at + 2u] = ws_met;
    ws_log[ws_at + 3u] = 1u;
    ws_index = select(index % length, index, inside);
    return ws_index;
}}
"""
OF_ARRAY = """
fn ws_read_{name}(index: u32) -> u32 {{
    return ws_touch({number}u + {read}u, index, {length});
}}
fn ws_write_{name}(index: u32) -> u32 {{
    let place = ws_touch({number}u + {write}u, index, {length});
    ws_before = bitcast<u32>({name}[place]);
    return place;
}}
fn ws_both_{name}(index: u32) -> u32 {{
    let place = ws_touch({number}u + {both}u, index, {length});
    ws_before = bitcast<u32>({name}[place]);
    return place;
}}
fn ws_wrote_{name}(at: u32, place: u32, before: u32) {{
    ws_log[at + 3u] = select(0u, 1u, bitcast<u32>({name}[place]) != before);
}}
fn ws_all_{name}(index: u32) -> u32 {{
    ws_met += {fence}u;
    let place = ws_touch({number}u + {read}u, index, {length});
    ws_met += {fence}u;
    return place;
}}
"""


class NotFollowed(Exception):
    """The kernel is written in a way that the recorder does not follow."""


class Found(NamedTuple):
    """What one launch showed."""

    races: list[str]  # a sentence for each element
    written_outside: list[str]  # likewise, for each write beyond the end of an array
    read_outside: list[str]
    unwritten: list[str]  # likewise, for what is read before anybody has written it
    unchanged: bool  # whether a race is left that changes nothing: somebody writes back what is there already
    most: int  # accesses to workgroup memory of the busiest invocation


@dataclass
class Recorded:
    """A kernel that notes its accesses."""

    source: str
    arrays: list[str] = field(default_factory=list)  # by number, those of workgroup memory first
    of_group: int = 0  # how many lie in workgroup memory

    def look(self, log: np.ndarray) -> Found:
        """Read the record of one workgroup."""
        counts = log[:GROUP].astype(int)
        rows = log[GROUP:].reshape(GROUP, MOST, TOUCH).astype(np.int64)
        listed = [[item, *rows[item, n]] for item in range(GROUP) for n in range(min(counts[item], MOST))]
        written: set[tuple[int, int, int]] = set()
        changes = []  # the same, but who writes its own element once more, and changes nothing, only reads
        for item, what, index, met, changed in listed:
            own = (item, what // ARRAY, index)
            idle = what & WRITE and not changed and own in written
            changes.append([item, what & ~WRITE if idle else what, index, met, changed])
            if what & WRITE:
                written.add(own)
        seen = self._trace(changes, counts)
        outside = [
            (touch.writes, f"invocation {touch.item} {_does(touch)} {_element(touch)}") for touch in seen.outside
        ]
        written_outside = [said for writes, said in outside if writes]
        read_outside = [said for writes, said in outside if not writes]
        unwritten = self._trace([touch for touch in listed if touch[1] & INSIDE], counts).unwritten()
        unchanged = bool(self._trace(listed, counts).races())
        return Found(_races(seen), written_outside, read_outside, unwritten, unchanged, int(seen.local_accesses.max()))

    def _trace(self, touches: list[list[int]], counts: np.ndarray) -> trace.Trace:
        """The touches as `helpers.judge.trace` knows them: [invocation, array and kind, index, barriers, ...] each."""
        record = np.array([[item, what, index, 0, met] for item, what, index, met, _ in touches], np.int64)
        record = record.reshape(-1, 5)
        shared = np.bincount(record[record[:, 1] // ARRAY < self.of_group, 0], minlength=GROUP)
        ids = np.column_stack([np.arange(GROUP), np.zeros((GROUP, 2), int)])
        return trace.Trace(
            device="", lengths=dict.fromkeys(self.arrays[self.of_group :], 0), global_ids=ids, local_ids=ids,
            group_ids=np.zeros_like(ids), global_accesses=counts - shared, local_accesses=shared,
            global_bytes=shared, barriers=np.ones(GROUP), unseen=[], _arrays=self.arrays, _listed=record,
        )  # fmt: skip


def _element(touch: trace.Touch) -> str:
    signed = touch.index - 2**32 if touch.index >= 2**31 else touch.index  # of an i32
    return f"{touch.array}[{signed}]"


def _does(touch: trace.Touch) -> str:
    return "writes" if touch.writes else "reads"


def _races(seen: trace.Trace) -> list[str]:
    """The races in words of WebGPU, one of a read and a write first: it is the easier one to understand."""
    told = [
        one.replace("work-items", "invocations").replace("local memory", "workgroup memory") for one in seen.races()
    ]
    return sorted(told, key=lambda one: "both write" in one)


def rewritten(source: str, output: int) -> Recorded:
    """Return the kernel with a record of every access to workgroup memory and to its output.

    Args:
        source: WGSL that compiles, with workgroups of GROUP invocations in one dimension.
        output: the binding of its output.

    Raises:
        NotFollowed: it uses a pointer to such memory, an array of arrays, an atomic, or the like.
    """
    plain = webgpu.without_comments(source)
    of_group = re.findall(r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*([^;]+);", plain)
    of_output = re.findall(rf"@binding\(\s*{output}u?\s*\)[^;]*?>\s*(\w+)\s*:\s*([^;]+);", plain)
    recorded = Recorded("", [name for name, _ in of_group + of_output], len(of_group))
    functions = []
    for number, (name, kind) in enumerate(of_group + of_output):
        made = re.fullmatch(r"array\s*<\s*(?:f32|u32|i32)\s*(?:,\s*(\w+)\s*,?\s*)?>", kind.strip())
        if not made:
            raise NotFollowed(f"`{name}` is a {' '.join(kind.split())}")
        length = f"u32({made[1]})" if made[1] else f"arrayLength(&{name})"
        numbers = {"number": number * ARRAY, "read": READ, "write": WRITE, "both": READ | WRITE, "fence": LOCAL_FENCE}
        functions.append(OF_ARRAY.format(name=name, length=length, **numbers))
        plain = _through_functions(_without_pointers(plain, name), name)
    for barrier, fence in (("workgroup", LOCAL_FENCE), ("storage", GLOBAL_FENCE)):
        plain = re.sub(rf"\b{barrier}Barrier\s*\(\s*\)\s*;", rf"\g<0> ws_met += {fence}u;", plain)
    recorded.source = _numbered(plain) + RECORDER + "".join(functions)
    return recorded


def _without_pointers(plain: str, name: str) -> str:
    """Write `near[i]` for `*p` where `let p = &near[i];` stands before it."""
    while found := re.search(rf"\blet\s+(\w+)\s*=\s*&\s*{name}\s*\[", plain):
        closing = opencl.closing_bracket(plain, found.end() - 1)
        place = f"let {found[1]} = u32({plain[found.end() : closing]})"
        plain = plain[: found.start()] + place + plain[closing + 1 :]
        plain = re.sub(rf"\(\s*\*\s*{found[1]}\s*\)|\*\s*{found[1]}\b", f"{name}[{found[1]}]", plain)
    return plain


def _through_functions(plain: str, name: str) -> str:
    """Lead every index of one array through its functions, the last one in the text first."""
    for found in reversed(list(re.finditer(rf"\b{name}\b", plain))):
        before, after = plain[: found.start()].rstrip(), plain[found.end() :]
        if re.search(r"var\s*<[^>]*>$", before) or re.search(r"arrayLength\s*\(\s*&$", before):
            continue
        if not after.lstrip().startswith("["):
            raise NotFollowed(f"`{name}` stands without an index")
        opening = plain.index("[", found.end())
        closing = opencl.closing_bracket(plain, opening)
        index, rest = plain[opening + 1 : closing], plain[closing + 1 :]
        for_all = re.search(r"\bworkgroupUniformLoad\s*\(\s*&$", before)
        if (before.endswith("&") and not before.endswith("&&") and not for_all) or rest.lstrip()[:1] in (".", "["):
            raise NotFollowed(f"a pointer to, or a part of, an element of `{name}` is taken")
        kind = "all" if for_all else "read"
        if re.match(r"\s*=(?!=)", rest):
            kind = "write"
        elif re.match(r"\s*(?:(?:[-+*/%|&^]|<<|>>)=|\+\+|--)", rest):
            kind = "both"
        if kind in ("write", "both"):
            end = _end_of_statement(rest)
            # Its right-hand side may note accesses of its own: keep what belongs to this one until the statement ends.
            saved = f"let ws_mine = ws_{kind}_{name}(u32({index})); let ws_slot = ws_at; let ws_old = ws_before; "
            wrote = f" ws_wrote_{name}(ws_slot, ws_mine, ws_old);"
            plain = f"{plain[: found.start()]}{{ {saved}{name}[ws_mine]{rest[:end]}{wrote} }}{rest[end:]}"
        else:
            plain = f"{plain[:opening]}[ws_{kind}_{name}(u32({index}))]{rest}"
    return plain


def _end_of_statement(rest: str) -> int:
    """The position behind the semicolon that ends an assignment."""
    depth = 0
    for position, letter in enumerate(rest):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == ";" and depth == 0:
            return position + 1
        if depth < 0:
            break
    raise NotFollowed("an assignment stands inside of another statement")


def _numbered(plain: str) -> str:
    """Let the kernel keep its number in the workgroup."""
    start = re.search(r"\bfn\s+main\s*\(", plain)
    if not start:
        raise NotFollowed("there is no function `main`")
    closing = opencl.closing_bracket(plain, start.end() - 1)
    body = plain.index("{", closing) + 1
    parameters = plain[start.end() : closing]
    if own := re.search(r"@builtin\(\s*local_invocation_index\s*\)\s*(\w+)", parameters):
        me, more = own[1], ""
    elif own := re.search(r"@builtin\(\s*local_invocation_id\s*\)\s*(\w+)", parameters):
        me, more = f"{own[1]}.x", ""
    elif "local_invocation" in plain:
        raise NotFollowed("the invocation's number lies in a struct")
    else:
        me = "ws_local"
        more = f"{',' * (not parameters.rstrip().endswith(','))} @builtin(local_invocation_index) ws_local: u32"
    return f"{plain[:closing]}{more}{plain[closing:body]} ws_me = {me};{plain[body:]}"


def empty_record() -> np.ndarray:
    """Return a record for one workgroup, uint32, in which nothing stands yet."""
    return np.zeros(GROUP + GROUP * MOST * TOUCH, np.uint32)


def compiled(device: wgpu.GPUDevice, source: str, output: int) -> tuple[Recorded, webgpu.Kernel]:
    """Return the rewritten kernel, and the same compiled.

    Raises:
        NotFollowed: the recorder does not follow this kernel.
    """
    try:
        recorded = rewritten(source, output)
        return recorded, webgpu.Kernel(device, recorded.source)
    except (webgpu.KernelError, opencl.KernelError, ValueError) as error:
        raise NotFollowed("it could not be rewritten") from error
