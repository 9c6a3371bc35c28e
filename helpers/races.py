"""Find races and misplaced barriers in a kernel, whatever the luck of one run says (lesson 12).

A race shows only when two work-items meet, and a driver may run a work-group so that they never do. What decides is
what the kernel asks for: two work-items that touch the same element, one of them writing, with no barrier between. So
every access is recorded together with the number of barriers that its work-item has met by then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers import opencl
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

MAX_ACCESSES = 128  # of one work-item; what comes after is counted, not listed
ENTRY = 4  # ints of one access: the array and what is done, the barriers met before, the element, whether it exists

RECORDER = """
__global int *race_mine(__global int *log) {
    return log + get_global_id(0) * %(record)d;
}
void race_barrier(__global int *log) {
    race_mine(log)[1]++;
}
int race_touch(__global int *log, int what, int length, int index) {
    __global int *mine = race_mine(log);
    int n = mine[0]++;
    if (n < %(most)d) {
        mine[2 + 4 * n] = what;
        mine[3 + 4 * n] = mine[1];
        mine[4 + 4 * n] = index;
        mine[5 + 4 * n] = 0 <= index && index < length;
    }
    return 0 <= index && index < length ? index : 0;
}
"""


@dataclass(frozen=True)
class Found:
    """What one launch of a kernel showed.

    Attributes:
        races: a sentence for each element over which work-items race.
        outside: a sentence for each access to an element that does not exist.
        barriers: int array of shape (work-items,): how many barriers each met.
        accesses: int array of shape (work-items,): how many elements each touched.
    """

    races: list[str]
    outside: list[str]
    barriers: np.ndarray
    accesses: np.ndarray

    def __str__(self) -> str:
        """The first three sentences, or that there are none."""
        told = self.races + self.outside
        more = [f"... and {len(told) - 3} more"] if len(told) > 3 else []
        return "\n".join(told[:3] + more) or "no two work-items race"


def find(
    source: str, kernel: str, groups: int, group_size: int, arguments: Sequence[object],
    device: cl.Device | None = None,
) -> Found:  # fmt: skip
    """Run a one-dimensional kernel and look for work-items that touch the same element with no barrier between.

    Every `array[index]` of a `__global` parameter or of a `__local` array that the kernel declares is recorded. Not
    seen: what goes through a pointer (`*total`), and `&array[index]`, which atomic functions take. A barrier is taken
    to order both kinds of memory, for the work-items of one group alone.

    Args:
        source: OpenCL C with the kernel.
        kernel: the kernel's name.
        groups: how many work-groups to start.
        group_size: work-items in each.
        arguments: one NumPy array for each `__global` parameter, one NumPy scalar (such as np.int32) for each other.
        device: where to run it; the lessons' device if None.

    Raises:
        KernelError: the kernel does not compile.
        WorkshopError: the source has no such kernel, or a barrier in a branch.
    """
    import pyopencl as cl

    device = device or opencl.pick_device()
    context = cl.Context([device])
    opencl.build(context, source)  # a mistake in the learner's kernel is shown in the learner's own lines
    if branch := barrier_in_branch(source):
        raise WorkshopError(
            f"The kernel {kernel!r} cannot be searched for races.",
            f"A barrier stands under `{branch}`: if not all of a group reach it, anything may happen, also a crash.",
            "Take the barrier out of the branch, and leave the work in it.",
        )
    instrumented, names = _instrument(source, kernel)
    queue = cl.CommandQueue(context)
    log = np.zeros((groups * group_size, 2 + ENTRY * MAX_ACCESSES), np.int32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    log_buffer = cl.Buffer(context, flags, hostbuf=log)
    arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    passed = [cl.Buffer(context, flags, hostbuf=a) if isinstance(a, np.ndarray) else a for a in arguments]
    lengths = [np.int32(len(array)) for array in arrays]
    run = cl.Kernel(opencl.build(context, instrumented), kernel)
    run(queue, (groups * group_size,), (group_size,), *passed, log_buffer, *lengths)
    cl.enqueue_copy(queue, log, log_buffer)
    return _judge(log, group_size, names, len(arrays))


def barrier_in_branch(source: str) -> str:
    """Return the condition under which a barrier stands, such as `if (i < n)`; empty if none stands in a branch.

    A branch that all work-items of a group take together would be allowed; this does not tell it from the others.
    """
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", source, flags=re.DOTALL)
    for barrier in re.finditer(r"\bbarrier\s*\(", plain):
        before = plain[: barrier.start()]
        openings = [re.split(r"[;}{]", before)[-1]]  # a branch without braces ends right before the barrier
        depth = 0
        for position in reversed(range(len(before))):
            depth += (before[position] == "}") - (before[position] == "{")
            if depth < 0:
                openings.append(re.split(r"[;}{]", before[:position])[-1])
                depth = 0
        for opening in openings:
            if found := re.search(r"\b(if\b.*|else\b.*)", opening, re.DOTALL):
                return " ".join(found[1].split())
    return ""


def _instrument(source: str, kernel: str) -> tuple[str, list[str]]:
    """Rewrite the kernel so that it records its accesses and barriers; return it and the names of its arrays.

    The arrays that it gets come first, then those that it declares in local memory.
    """
    plain, closing, parameters = opencl.find_kernel(source, kernel)
    start = plain.index("{", closing)
    end = opencl.closing_bracket(plain, start)
    given = [parameter.name for parameter in parameters if parameter.is_array]
    head = plain[:closing] + ", __global int *race_log" + "".join(f", const int race_length_{name}" for name in given)
    declaration = r"(\b(?:__)?local\b[^;]*;)"
    body = plain[start + 1 : end]
    local = [name for found in re.findall(declaration, body) for name in re.findall(r"(\w+)\s*\[", found)]
    lengths = {name: f"race_length_{name}" for name in given}
    lengths |= {name: f"(int)(sizeof({name}) / sizeof(*{name}))" for name in local}
    parts = re.split(declaration, body)  # every second one is a declaration, and stays as it is
    body = "".join(part if number % 2 else _record(part, lengths) for number, part in enumerate(parts))
    body = re.sub(r"\bbarrier\s*\(", "race_barrier(race_log), barrier(", body)
    recorder = RECORDER % {"record": 2 + ENTRY * MAX_ACCESSES, "most": MAX_ACCESSES}
    return f"{recorder}{head}) {{{body}{plain[end:]}", [*given, *local]


def _record(code: str, lengths: dict[str, str]) -> str:
    """Wrap every index of the arrays in a call that records it."""
    names = list(lengths)
    found = re.search(rf"\b({'|'.join(map(re.escape, names))})\s*\[", code) if names else None
    if not found:
        return code
    opening = found.end() - 1
    closing = opencl.closing_bracket(code, opening)
    before, inner, after = code[:opening], code[opening + 1 : closing], code[closing + 1 :]
    index, rest = _record(inner, lengths), _record(after, lengths)
    if re.search(r"&\s*$", code[: found.start()]) and not re.search(r"&&\s*$", code[: found.start()]):
        return f"{before}[{index}]{rest}"  # an address, as atomic functions take it
    what = 4 * names.index(found[1]) + opencl.access(code[: found.start()], after)
    return f"{before}[race_touch(race_log, {what}, {lengths[found[1]]}, {index})]{rest}"


def _judge(log: np.ndarray, group_size: int, names: list[str], given: int) -> Found:
    """Read the log: who touched what, after how many barriers; the first `given` arrays are in global memory."""
    met_at: dict[tuple, list[tuple[int, int, bool]]] = {}
    outside = []
    for item, record in enumerate(log):
        group = item // group_size
        for what, barriers, index, exists in record[2:].reshape(-1, ENTRY)[: min(record[0], MAX_ACCESSES)].tolist():
            array, access = divmod(what, 4)
            if not exists:
                outside.append(f"work-item {item} touches {names[array]}[{index}], which does not exist")
            place = (array, index, None if array < given else group)  # each group has its own local memory
            met_at.setdefault(place, []).append((item, barriers, bool(access & opencl.WRITE)))
    pairs = {place: _unordered(accesses, group_size) for place, accesses in sorted(met_at.items(), key=str)}
    races = [
        f"work-items {pair[0]} and {pair[1]} both touch {names[array]}[{index}], at least one writes it, "
        "and no barrier lies between"
        for (array, index, _), pair in pairs.items()
        if pair
    ]
    return Found(races, outside, log[:, 1], log[:, 0])


def _unordered(accesses: list[tuple[int, int, bool]], group_size: int) -> tuple[int, int] | None:
    """The first two work-items whose accesses to one element, one of them a write, no barrier puts in an order."""
    for item, barriers, writes in accesses:
        for other, others_barriers, also_writes in accesses:
            apart = item // group_size == other // group_size and barriers != others_barriers
            if item < other and not apart and (writes or also_writes):
                return item, other
    return None
