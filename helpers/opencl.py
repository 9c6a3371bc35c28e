"""Pick an OpenCL device, compile with readable errors, and trace which work-item touched what (lesson 01)."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers import devices
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl


ASK_THE_DOCTOR = "In a terminal, in the workshop's folder: python3 workshop.py doctor"


class KernelError(WorkshopError):
    """A kernel that does not compile, with the lines of the source that the compiler complains about."""


# ---------------------------------------------------------------------------------------------- devices


def pick_device() -> cl.Device:
    """Return the OpenCL device that the lessons use: a GPU before an accelerator before a CPU.

    The variable PYOPENCL_CTX overrules this, as in every PyOpenCL program (`PYOPENCL_CTX=0:1` is platform 0, device 1).
    A device whose compiler fails on the smallest kernel is passed over: PoCL 3.0 from pip lists a processor that is
    newer than its compiler (AMD's Zen 5, for one) and then refuses every program.

    Raises:
        WorkshopError: there is no device, or none that compiles.
    """
    import pyopencl as cl

    # Intel's compiler talks when nothing is wrong, also to a lesson that calls cl.Program(...).build() itself.
    warnings.simplefilter("ignore", cl.CompilerWarning)
    refused = []
    for device in _candidates():
        problem = devices.compile_problem(device)
        if not problem:
            return device
        refused.append(f"{name(device)}: {problem}")
    if refused:
        raise WorkshopError("No OpenCL device here can compile a kernel.", "; ".join(refused), ASK_THE_DOCTOR)
    raise WorkshopError(
        "There is no OpenCL device here.",
        "OpenCL needs a driver (an ICD) for a GPU, or PoCL, which makes the CPU a device.",
        ASK_THE_DOCTOR,
    )


def _candidates() -> list[cl.Device]:
    """Every device, best kind first; those of PYOPENCL_CTX alone if it is set."""
    import pyopencl as cl

    if os.environ.get("PYOPENCL_CTX"):
        try:
            return cl.create_some_context(interactive=False).devices
        except (cl.Error, RuntimeError, ValueError, IndexError) as error:
            raise WorkshopError(
                f"PYOPENCL_CTX={os.environ['PYOPENCL_CTX']} names no device here.",
                _last_line(error),
                "Unset PYOPENCL_CTX, or see `python -m helpers devices` for the numbers.",
            ) from None
    kinds = [cl.device_type.GPU, cl.device_type.ACCELERATOR, cl.device_type.CPU]
    found = [device for platform in platforms() for device in _devices_of(platform)]
    return [device for kind in kinds for device in found if device.type & kind]


def platforms() -> list[cl.Platform]:
    """Return the OpenCL platforms, an empty list where the loader finds none."""
    import pyopencl as cl

    try:
        return cl.get_platforms()
    except cl.Error:  # PLATFORM_NOT_FOUND_KHR: the loader found no ICD
        return []


def _devices_of(platform: cl.Platform) -> list[cl.Device]:
    import pyopencl as cl

    try:
        return platform.get_devices()
    except cl.Error:  # rusticl shows its platform and hides its devices until RUSTICL_ENABLE is set
        return []


def name(device: cl.Device) -> str:
    """Return the device's name with its OpenCL implementation, such as `AMD EPYC (PoCL 3.1+debian, OpenCL, CPU)`."""
    return str(devices.describe_opencl(device))


def kind(device: cl.Device) -> str:
    """Return `gpu`, `accelerator` or `cpu`."""
    return devices.describe_opencl(device).kind


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


# ---------------------------------------------------------------------------------------------- compiling


def build(context: cl.Context, source: str) -> cl.Program:
    """Compile OpenCL C for every device of `context`.

    Raises:
        KernelError: the source does not compile; the message shows each line complained about and what is wrong there.
    """
    import pyopencl as cl

    try:
        return devices.build_quietly(context, source)
    except cl.RuntimeError as error:
        raise KernelError(*readable_log(source, str(error))) from None


def readable_log(source: str, log: str) -> tuple[str, str, str]:
    """Turn a compiler's log into what, why and next, with the lines of the source that it complains about.

    Args:
        source: the OpenCL C that was compiled.
        log: what the compiler said; PoCL, Intel, NVIDIA, AMD and Apple all write `file:line:column: ...`.
    """
    lines = source.splitlines()
    complaints = []
    for line in log.splitlines():
        match = re.match(r"(?:error: )?(?:\S.*?:)?(\d+):(\d+): (?:(?:fatal )?error: )?(.+)", line.strip())
        if match and not match[3].startswith(("note:", "warning:")):
            number, column = min(int(match[1]), len(lines)), int(match[2])
            complaints.append(f"line {number}: {match[3]}\n    {lines[number - 1]}\n    {' ' * (column - 1)}^")
    if complaints:
        what = "The kernel does not compile."
        return what, "\n".join(complaints), "Mend the first line that is named; the later ones often follow from it."
    said = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    return "The compiler of this device failed.", said[-1] if said else log.strip()[-300:], ASK_THE_DOCTOR


# ---------------------------------------------------------------------------------------------- tracing

MAX_TOUCHES = 64  # of one work-item; what comes after is counted, not listed
HEADER = 12  # both counts and the bytes, then global, local and group id in three dimensions each
READ, WRITE = 1, 2

RECORDER = """
#define TRACE_RECORD %(record)d
__global int *trace_mine(__global int *log) {
    size_t item = ((get_global_id(2) - get_global_offset(2)) * get_global_size(1)
                 + (get_global_id(1) - get_global_offset(1))) * get_global_size(0)
                 + (get_global_id(0) - get_global_offset(0));
    return log + item * TRACE_RECORD;
}
void trace_start(__global int *log) {
    __global int *mine = trace_mine(log);
    mine[0] = mine[1] = mine[2] = 0;
    for (int d = 0; d < 3; d++) {
        mine[3 + d] = get_global_id(d);
        mine[6 + d] = get_local_id(d);
        mine[9 + d] = get_group_id(d);
    }
}
int trace_local(__global int *log, int index) {
    trace_mine(log)[1]++;
    return index;
}
int trace_touch(__global int *log, int what, int length, int size, int index) {
    __global int *mine = trace_mine(log);
    int n = mine[0]++;
    mine[2] += size;
    if (n < %(most)d) {
        mine[%(header)d + 2 * n] = what;
        mine[%(header)d + 2 * n + 1] = index;
    }
    return 0 <= index && index < length ? index : length;
}
"""


@dataclass(frozen=True)
class Touch:
    """One access of one work-item to one element of one array.

    Attributes:
        item: the number of the work-item, counted through all dimensions (dimension 0 runs fastest).
        array: the name of the kernel's parameter.
        index: the element that the kernel asked for, also one that does not exist.
        reads: whether it read the element.
        writes: whether it wrote it.
        inside: whether the array has that element.
    """

    item: int
    array: str
    index: int
    reads: bool
    writes: bool
    inside: bool


@dataclass(frozen=True)
class Trace:
    """What every work-item of one launch was called and touched, as recorded on the device.

    Attributes:
        device: the name of the device that ran the kernel.
        global_ids: int array of shape (work-items, 3).
        local_ids: int array of shape (work-items, 3).
        group_ids: int array of shape (work-items, 3).
        lengths: the number of elements of each array parameter, by name; an element of a float16 array is 16 floats.
        touches: every access, work-item by work-item, at most MAX_TOUCHES of each.
        counts: int array of shape (work-items,): how many accesses to the kernel's `__global` arrays each work-item
            made; one of a vector, such as a float16, counts once.
        local_counts: likewise to `__local` arrays that the kernel declares.
        bytes_asked: int array of shape (work-items,): the bytes of the accesses that `counts` counts.
    """

    device: str
    global_ids: np.ndarray
    local_ids: np.ndarray
    group_ids: np.ndarray
    lengths: dict[str, int]
    touches: list[Touch]
    counts: np.ndarray
    local_counts: np.ndarray
    bytes_asked: np.ndarray

    @property
    def outside(self) -> list[Touch]:
        """The accesses to elements that do not exist."""
        return [touch for touch in self.touches if not touch.inside]


def trace(
    source: str, kernel: str, global_size: Sequence[int], local_size: Sequence[int], arguments: Sequence[object],
    device: cl.Device | None = None,
) -> Trace:  # fmt: skip
    """Run the learner's own kernel on the real device and record what each work-item is called and touches.

    Every `array[index]` in the kernel's body, where `array` is one of its `__global` parameters, is rewritten to
    record the index first. An index outside the array is recorded and led to a spare element, so nothing is damaged.
    Accesses to `__local` arrays that the kernel declares are counted. What goes through a pointer or a function, as
    `vload8` does, is not seen.

    Args:
        source: OpenCL C with the kernel.
        kernel: the kernel's name.
        global_size: work-items in each dimension.
        local_size: work-items of a work-group in each dimension.
        arguments: one NumPy array for each `__global` parameter, one NumPy scalar (such as np.int32) for each other.
        device: where to run it; the lessons' device if None.

    Raises:
        KernelError: the kernel does not compile.
        WorkshopError: the source has no such kernel, or the arguments do not fit its parameters.
    """
    import pyopencl as cl

    device = device or pick_device()
    context = cl.Context([device])
    build(context, source)  # a mistake in the learner's kernel is shown in the learner's own lines
    global_size, local_size = _sizes(global_size, local_size)
    parameters = find_kernel(source, kernel)[2]
    _check_arguments(kernel, parameters, arguments)
    instrumented, names = instrument(source, kernel)
    program = build(context, instrumented)
    queue = cl.CommandQueue(context)
    items = int(np.prod(global_size))
    log = np.zeros((items, HEADER + 2 * MAX_TOUCHES), np.int32)
    log_buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=log)
    passed = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            spare = np.zeros(argument.nbytes + 128, np.uint8)
            spare[: argument.nbytes] = argument.reshape(-1).view(np.uint8)
            argument = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=spare)
        passed.append(argument)
    sizes = [np.int32(argument.nbytes) for argument in arguments if isinstance(argument, np.ndarray)]
    cl.Kernel(program, kernel)(queue, global_size, local_size, *passed, log_buffer, *sizes)
    cl.enqueue_copy(queue, log, log_buffer)
    arrays = [n for n, argument in zip(names, arguments, strict=True) if isinstance(argument, np.ndarray)]
    lengths = {p.name: len(a) // p.width for p, a in zip(parameters, arguments, strict=True) if p.is_array}
    return _read_log(log, arrays, lengths, name(device))


def _sizes(global_size: Sequence[int], local_size: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both sizes as tuples of one length, the first a multiple of the second."""
    pairs = [(size,) if isinstance(size, int) else tuple(size or ()) for size in (global_size, local_size)]
    fit = len(pairs[0]) == len(pairs[1]) and all(g > 0 < w and g % w == 0 for g, w in zip(*pairs, strict=True))
    if not fit:
        raise WorkshopError(
            f"A launch of {global_size} work-items in work-groups of {local_size} cannot be traced.",
            "In each dimension, the work-items must be a multiple of the work-group, and both must be positive.",
            "Round the number of work-items up to whole work-groups, for example (12,) in groups of (4,).",
        )
    return pairs[0], pairs[1]


def _check_arguments(kernel: str, parameters: list[Parameter], arguments: Sequence[object]) -> None:
    listed = ", ".join(f"`{parameter.text}`" for parameter in parameters)
    if len(arguments) != len(parameters):
        raise WorkshopError(
            f"The kernel {kernel!r} takes {len(parameters)} arguments, {len(arguments)} were given.",
            f"Its parameters are: {listed}.",
            "Give one argument for each parameter, in their order.",
        )
    for parameter, argument in zip(parameters, arguments, strict=True):
        fits = isinstance(argument, np.ndarray) == parameter.is_array and not isinstance(argument, bool | int | float)
        if not fits:
            raise WorkshopError(
                f"The parameter `{parameter.text}` cannot take {argument!r} of type {type(argument).__name__}.",
                "An array parameter takes a NumPy array. A number needs NumPy's type, for OpenCL knows no Python int.",
                "Pass a NumPy array, or np.int32(10) for `int`, np.float32(1.5) for `float`.",
            )


def _read_log(log: np.ndarray, arrays: list[str], lengths: dict[str, int], device: str) -> Trace:
    touches = []
    for item, record in enumerate(log):
        for what, index in record[HEADER:].reshape(-1, 2)[: min(record[0], MAX_TOUCHES)].tolist():
            array = arrays[what // 4]
            inside = 0 <= index < lengths[array]
            touches.append(Touch(item, array, index, bool(what & READ), bool(what & WRITE), inside))
    return Trace(device, log[:, 3:6], log[:, 6:9], log[:, 9:12], lengths, touches, *log[:, :3].T)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        text: as it is written, such as `__global const float *a`.
        name: its name.
        is_array: whether it points to memory that all work-items share.
        width: the numbers in one element: 16 of a float16, 4 of a float3 (which takes as much room), 1 of a float.
    """

    text: str
    name: str
    is_array: bool
    width: int = 1


def find_kernel(source: str, kernel: str) -> tuple[str, int, list[Parameter]]:
    """Find a kernel in OpenCL C.

    Returns:
        The source with its comments blanked out (every position stays), the position of the bracket that closes the
        kernel's parameters, and the parameters.

    Raises:
        WorkshopError: the source has no such kernel, or one of its brackets is never closed.
    """
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: re.sub(r"[^\n]", " ", found[0]), source, flags=re.DOTALL)
    head = re.search(rf"\b(?:__)?kernel\s+void\s+{re.escape(kernel)}\s*\(", plain)
    if not head:
        raise WorkshopError(
            f"The source has no kernel called {kernel!r}.",
            "A kernel starts with `__kernel void NAME(`.",
            "Check the spelling of the name in both places.",
        )
    closing = closing_bracket(plain, head.end() - 1)
    texts = [" ".join(part.split()) for part in plain[head.end() : closing].split(",")]
    shared = re.compile(r"\b(__)?(global|constant)\b")
    parameters = [
        Parameter(text, re.findall(r"\w+", text)[-1], bool(shared.search(text)), _vector_width(text))
        for text in texts
        if text
    ]
    return plain, closing, parameters


def _vector_width(text: str) -> int:
    found = re.search(r"\b(?:u?(?:char|short|int|long)|half|float|double)(2|3|4|8|16)\b", text)
    return 4 if found and found[1] == "3" else int(found[1]) if found else 1


def instrument(source: str, kernel: str) -> tuple[str, list[str]]:
    """Rewrite `kernel` so that it records its ids and every access to its `__global` arrays.

    Returns:
        The rewritten source, whose kernel takes a log and the bytes of each array as further arguments, and the names
        of the kernel's own parameters.

    Raises:
        WorkshopError: the source has no such kernel, or one of its brackets is never closed.
    """
    plain, closing, parameters = find_kernel(source, kernel)
    start = plain.index("{", closing)
    end = closing_bracket(plain, start)
    arrays = [parameter.name for parameter in parameters if parameter.is_array]
    added = "".join(f", const int trace_bytes_{array}" for array in arrays)
    recorder = RECORDER % {"record": HEADER + 2 * MAX_TOUCHES, "most": MAX_TOUCHES, "header": HEADER}
    head = f"{plain[:closing]}, __global int *trace_log{added}) {{\n    trace_start(trace_log);"
    body = _count_local(_record_touches(plain[start + 1 : end], arrays))
    return recorder + head + body + plain[end:], [parameter.name for parameter in parameters]


def closing_bracket(text: str, opening: int) -> int:
    """The position of the bracket that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth == 0:
            return position
    raise WorkshopError(
        f"A bracket {text[opening]!r} of the kernel is never closed.", next="Add the bracket that is missing."
    )


def _record_touches(code: str, arrays: list[str]) -> str:
    """Wrap every index of `arrays` in a call that records it."""
    if not arrays:
        return code
    found = re.search(rf"\b({'|'.join(map(re.escape, arrays))})\s*\[", code)
    if not found:
        return code
    opening = found.end() - 1
    closing = closing_bracket(code, opening)
    array = found[1]
    what = arrays.index(array) * 4 + access(code[: found.start()], code[closing + 1 :])
    index = _record_touches(code[opening + 1 : closing], arrays)
    size = f"(int)sizeof(*{array})"
    call = f"trace_touch(trace_log, {what}, trace_bytes_{array} / {size}, {size}, {index})"
    return code[: opening + 1] + call + "]" + _record_touches(code[closing + 1 :], arrays)


def _count_local(code: str) -> str:
    """Count every access to the `__local` arrays that `code` declares; the declarations stay as they are."""
    declaration = r"(\b(?:__)?local\b[^;]*;)"
    names = [name for found in re.findall(declaration, code) for name in re.findall(r"(\w+)\s*\[", found)]
    parts = re.split(declaration, code)  # every second one is a declaration
    return "".join(part if number % 2 else _wrap_local(part, names) for number, part in enumerate(parts))


def _wrap_local(code: str, names: list[str]) -> str:
    """Wrap the first index of every access to the arrays `names` in a call that counts it."""
    found = re.search(rf"\b({'|'.join(map(re.escape, names))})\s*\[", code) if names else None
    if not found:
        return code
    opening = found.end() - 1
    closing = closing_bracket(code, opening)
    index = _wrap_local(code[opening + 1 : closing], names)
    return f"{code[: opening + 1]}trace_local(trace_log, {index}){_wrap_local(code[closing:], names)}"


def access(before: str, after: str) -> int:
    """READ, WRITE or both, from what stands around `array[index]`."""
    after = re.sub(r"^\s*(\.\w+)?\s*", "", after)
    if re.match(r"=[^=]", after):
        return WRITE
    changes = re.match(r"([-+*/%&|^]|<<|>>)=|\+\+|--", after) or re.search(r"(\+\+|--|[^&]&)\s*$", before)
    return READ | WRITE if changes else READ
