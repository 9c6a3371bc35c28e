"""Record on the device which work-item touches what, after how many barriers (lessons 01, 02 and 12).

The learner's own kernel is rewritten: every `array[index]` of an array that it is given, or that it declares in local
memory, records the index first. An index outside is recorded and led to another element, so nothing is damaged.
Accesses outside, races and counts are views of that one record. What the recorder cannot follow is in `Trace.unseen`.

A race shows only when two work-items meet, and a driver may run a work-group so that they never do. What decides is
what the kernel asks for: two work-items that touch the same element, one of them writing, with no barrier between.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers import opencl
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

MAX_TOUCHES = 128  # of one work-item; what comes after is counted, not listed
# The ints of one work-item: four counts, then global, local and group id in three dimensions each, then its touches.
COUNTS = ("global_accesses", "local_accesses", "global_bytes", "barriers")
HEADER = len(COUNTS) + 9
TOUCH = 3  # ints of one touch: the array and what is done to it, the index, the barriers met before
READ, WRITE, ATOMIC, INSIDE, ARRAY = 1, 2, 4, 8, 16  # the first int of a touch: these bits, and ARRAY times its number

RECORDER = f"""
__global int *trace_mine(__global int *log) {{
    size_t item = ((get_global_id(2) - get_global_offset(2)) * get_global_size(1)
                 + (get_global_id(1) - get_global_offset(1))) * get_global_size(0)
                 + (get_global_id(0) - get_global_offset(0));
    return log + item * {HEADER + TOUCH * MAX_TOUCHES};
}}
void trace_start(__global int *log) {{
    __global int *mine = trace_mine(log);
    for (int d = 0; d < 3; d++) {{
        mine[4 + d] = get_global_id(d);
        mine[7 + d] = get_local_id(d);
        mine[10 + d] = get_group_id(d);
    }}
}}
void trace_barrier(__global int *log) {{
    trace_mine(log)[3]++;
}}
int trace_touch(__global int *log, int what, int length, int bytes, int index) {{
    __global int *mine = trace_mine(log);
    int n = mine[0] + mine[1], is_global = bytes > 0, inside = 0 <= index && index < length;
    mine[is_global ? 0 : 1]++;
    mine[2] += bytes;
    if (n < {MAX_TOUCHES}) {{
        __global int *touch = mine + {HEADER} + {TOUCH} * n;
        touch[0] = what + (inside ? {INSIDE} : 0);
        touch[1] = index;
        touch[2] = mine[3];
    }}
    return inside ? index : is_global ? length : 0;  // a global array is followed by a spare element
}}
"""


@dataclass(frozen=True)
class Touch:
    """One access of one work-item to one element of one array."""

    item: int  # the number of the work-item, counted through all dimensions (dimension 0 runs fastest)
    array: str  # the name of the kernel's parameter, or of the array that it declares in local memory
    index: int  # the element that was asked for, also one that does not exist; several indices are counted as one
    reads: bool  # whether it read the element
    writes: bool  # whether it wrote it; with neither, only the address was taken (`&array[index]`)
    inside: bool  # whether the array has that element
    barriers: int  # how many barriers the work-item had met before
    atomic: bool = False  # whether an atomic function did it

    def __str__(self) -> str:
        """For a message, such as `work-item 3 touches x[4]`."""
        return f"work-item {self.item} touches {self.array}[{self.index}]"


@dataclass(frozen=True, eq=False)
class Trace:
    """What every work-item of one launch was called and touched, as recorded on the device."""

    device: str  # the name of the device that ran the kernel
    lengths: dict[str, int]  # the elements of each array that was given; one element of a float16 array is 16 floats
    global_ids: np.ndarray  # int, of shape (work-items, 3); likewise:
    local_ids: np.ndarray
    group_ids: np.ndarray
    global_accesses: np.ndarray  # int, of shape (work-items,): to the given arrays; one of a vector counts once
    local_accesses: np.ndarray  # likewise, to arrays that the kernel declares in local memory
    global_bytes: np.ndarray  # likewise, the bytes that the accesses to global memory asked for
    barriers: np.ndarray  # likewise, the barriers that each work-item met
    unseen: list[str]  # what the kernel does that the recorder cannot follow
    _arrays: list[str]
    _listed: np.ndarray  # int, of shape (touches, 1 + TOUCH): the work-item, then what the device recorded

    @functools.cached_property
    def touches(self) -> list[Touch]:
        """Every access, work-item by work-item, at most MAX_TOUCHES of each."""
        return [self._touch(*one) for one in self._listed.tolist()]

    @functools.cached_property
    def outside(self) -> list[Touch]:
        """The accesses to elements that do not exist."""
        return [self._touch(*one) for one in self._listed[self._listed[:, 1] & INSIDE == 0].tolist()]

    def _touch(self, item: int, what: int, index: int, barriers: int) -> Touch:
        reads, writes, atomic, inside = (bool(what & bit) for bit in (READ, WRITE, ATOMIC, INSIDE))
        return Touch(item, self._arrays[what // ARRAY], index, reads, writes, inside, barriers, atomic)

    def races(self) -> list[str]:
        """Return a sentence for each element over which work-items race.

        A barrier is taken to order both kinds of memory, for the work-items of one group alone. Atomic functions do
        not race with each other.
        """
        _, groups = np.unique(self.group_ids, axis=0, return_inverse=True)
        groups = groups.reshape(-1).tolist()
        touches_of: dict[tuple, list[Touch]] = {}
        for touch in self.touches:
            owner = None if touch.array in self.lengths else groups[touch.item]  # each group has its own local memory
            touches_of.setdefault((touch.array, touch.index, owner), []).append(touch)

        def race(pair: tuple[Touch, Touch]) -> bool:
            one, other = pair
            at_once = groups[one.item] != groups[other.item] or one.barriers == other.barriers
            both_touch = all(touch.reads or touch.writes for touch in pair)
            both_atomic = one.atomic and other.atomic
            return one.item < other.item and at_once and both_touch and not both_atomic

        races = []
        for touches in touches_of.values():
            writes = [touch for touch in touches if touch.writes]
            pairs = itertools.chain(itertools.product(writes, touches), itertools.product(touches, writes))
            races += itertools.islice(filter(race, pairs), 1)
        return [
            f"work-items {one.item} and {other.item} both touch {one.array}[{one.index}], at least one writes it, "
            "and no barrier lies between"
            for one, other in races
        ]

    def report(self) -> str:
        """Return the first races and accesses outside in words, or that none was seen, and what was not followed."""
        found = self.races() + [f"{touch}, which does not exist" for touch in self.outside]
        more = [f"... and {len(found) - 3} more"] if len(found) > 3 else []
        none = [] if found else [f"no race seen, among {len(self.global_ids)} work-items"]
        return "\n".join(found[:3] + more + none + [f"not followed: {one}" for one in self.unseen])


def record(
    kernel: opencl.Kernel, global_size: Sequence[int] | int, local_size: Sequence[int] | int,
    arguments: Sequence[object], allow_branches: bool = False,
) -> Trace:  # fmt: skip
    """Run a learner's kernel on its device and record what each work-item is called and touches.

    Args:
        kernel: the learner's kernel.
        global_size: work-items in each dimension.
        local_size: work-items of a work-group in each dimension.
        arguments: one NumPy array for each `__global` parameter, one NumPy scalar (such as np.int32) for each other.
        allow_branches: whether to run a kernel with a barrier under `if` too: only one that is known to survive it.

    Raises:
        WorkshopError: the arguments do not fit the kernel's parameters, or a barrier stands in a branch.
    """
    import pyopencl as cl

    if (branch := barrier_in_branch(kernel)) and not allow_branches:
        raise WorkshopError(
            f"The kernel {kernel.name!r} cannot be traced.",
            f"A barrier stands under `{branch}`: if not all of a group reach it, anything may happen, also a crash.",
            "Take the barrier out of the branch, and leave the work in it.",
        )
    global_size, local_size = _sizes(global_size, local_size)
    _check_arguments(kernel, arguments)
    run, arrays, unseen = _instrumented(kernel)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    log = np.zeros((int(np.prod(global_size)), HEADER + TOUCH * MAX_TOUCHES), np.int32)
    log_buffer = cl.Buffer(kernel.context, flags, hostbuf=log)
    passed, sizes = [], []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            sizes.append(np.int32(argument.nbytes))
            spare = np.zeros(argument.nbytes + 128, np.uint8)
            spare[: argument.nbytes] = argument.reshape(-1).view(np.uint8)
            argument = cl.Buffer(kernel.context, flags, hostbuf=spare)
        passed.append(argument)
    run(kernel.queue, global_size, local_size, *passed, log_buffer, *sizes)
    cl.enqueue_copy(kernel.queue, log, log_buffer)
    lengths = {p.name: len(a) // p.width for p, a in zip(kernel.parameters, arguments, strict=True) if p.is_array}
    return _read(log, lengths, arrays, unseen, opencl.name(kernel.device))


def _sizes(global_size: Sequence[int] | int, local_size: Sequence[int] | int) -> list[tuple[int, ...]]:
    """Both sizes as tuples of one length, the first a multiple of the second."""
    pair = [(size,) if isinstance(size, int) else tuple(size or ()) for size in (global_size, local_size)]
    if len(pair[0]) == len(pair[1]) and all(g > 0 < w and g % w == 0 for g, w in zip(*pair, strict=True)):
        return pair
    raise WorkshopError(
        f"A launch of {global_size} work-items in work-groups of {local_size} cannot be traced.",
        "In each dimension, the work-items must be a multiple of the work-group, and both must be positive.",
        "Round the number of work-items up to whole work-groups, for example (12,) in groups of (4,).",
    )


def _check_arguments(kernel: opencl.Kernel, arguments: Sequence[object]) -> None:
    if len(arguments) != len(kernel.parameters):
        raise WorkshopError(
            f"The kernel {kernel.name!r} takes {len(kernel.parameters)} arguments, {len(arguments)} were given.",
            f"Its parameters are: {', '.join(f'`{parameter.text}`' for parameter in kernel.parameters)}.",
            "Give one argument for each parameter, in their order.",
        )
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray) != parameter.is_array or isinstance(argument, bool | int | float):
            raise WorkshopError(
                f"The parameter `{parameter.text}` cannot take {argument!r} of type {type(argument).__name__}.",
                "An array parameter takes a NumPy array. A number needs NumPy's type, for OpenCL knows no Python int.",
                "Pass a NumPy array, or np.int32(10) for `int`, np.float32(1.5) for `float`.",
            )


def _read(log: np.ndarray, lengths: dict[str, int], arrays: list[str], unseen: list[str], device: str) -> Trace:
    counts = dict(zip(COUNTS, log.T, strict=False))
    accesses = counts["global_accesses"] + counts["local_accesses"]
    listed = np.arange(MAX_TOUCHES) < accesses[:, None]
    touches = np.column_stack([np.nonzero(listed)[0], log[:, HEADER:].reshape(len(log), MAX_TOUCHES, TOUCH)[listed]])
    if (accesses > MAX_TOUCHES).any():
        unseen = [*unseen, f"what a work-item touches after its first {MAX_TOUCHES} accesses is only counted"]
    ids = dict(zip(("global_ids", "local_ids", "group_ids"), np.split(log[:, len(COUNTS) : HEADER], 3, 1), strict=True))
    return Trace(device, lengths, **ids, **counts, unseen=unseen, _arrays=arrays, _listed=touches)


# ------------------------------------------------------------------------------------------------ rewriting OpenCL C

BARRIER = r"\b((?:work_group_)?barrier\s*\()"
LOCAL = r"((?:^|(?<=[;{}]))\s*(?:(?:volatile|const)\s+)*(?:__)?local\b[^;=]*;)"  # with `=` it is a pointer's
# A macro whose text has an index, a barrier or a `*` that begins an operand: it may touch arrays or meet barriers.
HIDING = r"^[ \t]*#[ \t]*define[ \t]+\w+(?:\([^)]*\))?[ \t]+(?:\*|.*(?:\[|barrier|[(,=;{+-][ \t]*\*)).*"
ATOMIC_CALL = r"\batom(?:ic)?_\w+\s*\(\s*(?:\([^()]*\)\s*)?"
ADDRESS = r"(?:^|[(,=;{}?:]|\breturn|\*\s*\))\s*&\s*$"  # at the end of what stands before; a binary & follows a value


def barrier_in_branch(kernel: opencl.Kernel) -> str:
    """Return the condition under which a barrier stands, such as `if (i < n)`; empty if none stands in a branch.

    A branch that all work-items of a group take together would be allowed; this does not tell it from the others.
    """
    for barrier in re.finditer(BARRIER, kernel.parts.body):
        before = kernel.parts.body[: barrier.start()]
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


@functools.lru_cache(maxsize=4)  # those who judge a kernel one after the other share it
def _instrumented(kernel: opencl.Kernel) -> tuple[cl.Kernel, list[str], list[str]]:
    """Build the kernel with the recorder; return it, the names of its arrays, and what cannot be followed.

    It takes the log and the bytes of each given array as further arguments.
    """
    import pyopencl as cl

    source, arrays, unseen = instrument(kernel)
    return cl.Kernel(opencl.build(kernel.context, source), kernel.name), arrays, unseen


def instrument(kernel: opencl.Kernel) -> tuple[str, list[str], list[str]]:
    """Rewrite a kernel so that it records its ids, accesses and barriers; return what `_instrumented` builds of it."""
    given = [parameter.name for parameter in kernel.parameters if parameter.is_array]
    pieces = re.split(LOCAL, kernel.parts.body, flags=re.MULTILINE)  # every second one declares, and stays as it is
    arrays = {name: Array(number, name, 1, False) for number, name in enumerate(given)}
    for declaration in pieces[1::2]:
        for name, brackets in re.findall(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)(?=[,;])", declaration):
            arrays[name] = Array(len(arrays), name, brackets.count("["), True)
    unseen = [f"the macro `{' '.join(line.split())}`" for line in re.findall(HIDING, kernel.parts.before, re.MULTILINE)]
    for number in range(0, len(pieces), 2):
        pieces[number] = _rewrite(pieces[number], arrays, unseen)
    body = re.sub(BARRIER, r"trace_barrier(trace_log), \1", "".join(pieces))
    before, parameters, _, after = kernel.parts
    added = ["__global int *trace_log", *(f"const int trace_bytes_{name}" for name in given)]
    parameters = ", ".join([parameters, *added] if parameters.strip() else added)
    return f"{RECORDER}{before}{parameters}) {{ trace_start(trace_log);{body}{after}", list(arrays), unseen


@dataclass(frozen=True)
class Array:
    """An array that is watched."""

    number: int
    name: str
    dimensions: int  # 0 for a single local variable, which cannot be watched
    is_local: bool

    def recorded(self, what: int, indices: list[str]) -> str:
        """The access in OpenCL C, through the recorder; the indices of several dimensions become one."""
        first, index = self.name, indices[0]
        for one in indices[1:]:
            first += "[0]"
            index = f"({index}) * (int)(sizeof({first}) / sizeof({first}[0])) + ({one})"
        if self.is_local:
            length, size = f"(int)(sizeof({self.name}) / sizeof({first}[0]))", "0"
        else:
            size = f"(int)sizeof(*{self.name})"
            length = f"trace_bytes_{self.name} / {size}"
        pointer = f"(&{first}[0])" if len(indices) > 1 else self.name
        return f"{pointer}[trace_touch(trace_log, {ARRAY * self.number + what}, {length}, {size}, {index})]"


def _rewrite(code: str, arrays: dict[str, Array], unseen: list[str]) -> str:
    """Let every access to `arrays` be recorded; add to `unseen` the statements in which one is used in another way."""
    if not arrays:
        return code
    names = rf"(?<!\.)(?<!->)\b({'|'.join(map(re.escape, arrays))})\b"
    code = re.sub(rf"({ATOMIC_CALL}){names}(?=\s*[,)])", r"\1&\2[0]", code)
    parts, done = [], 0
    while found := re.compile(names).search(code, done):
        array, end, indices = arrays[found[1]], found.end(), []
        while len(indices) < array.dimensions and (bracket := re.compile(r"\s*\[").match(code, end)):
            closing = opencl.closing_bracket(code, bracket.end() - 1)
            indices.append(_rewrite(code[bracket.end() : closing], arrays, unseen))
            end = closing + 1
        before, use = code[: found.start()], code[found.start() : end]
        what = access(before, code[end:])
        if len(indices) < max(array.dimensions, 1) or not what:
            statement = " ".join((re.split(r"[;{}]", before)[-1] + use + re.split(r"[;{}]", code[end:])[0]).split())
            unseen.append(f"`{array.name}` in `{statement}`")
        if indices and len(indices) == array.dimensions:
            use = array.recorded(what, indices)
        parts += [code[done : found.start()], use]
        done = end
    return "".join([*parts, code[done:]])


def access(before: str, after: str) -> int:
    """READ, WRITE or both, also ATOMIC, or 0 for an address, from what stands around `array[index]`."""
    if re.search(rf"{ATOMIC_CALL}&\s*$", before):
        return READ | WRITE | ATOMIC
    if re.search(ADDRESS, before):
        return 0
    after = re.sub(r"^\s*(\.\w+)?\s*", "", after)
    if re.match(r"=[^=]", after):
        return WRITE
    changes = re.match(r"([-+*/%&|^]|<<|>>)=|\+\+|--", after) or re.search(r"(\+\+|--)\s*$", before)
    return READ | WRITE if changes else READ
