"""Run OpenCL under Oclgrind, a simulator of a device that watches every access of a kernel (lesson 12).

It runs each work-item by itself, hundreds of times slower than a device does, and tells with line and column who left
an array, who raced with whom, where a work-group parted before a barrier, and which value nobody had written:

    print(oclgrind.launch(source, "smooth", 128, 64, [x, out, np.int32(100)]))

It sees one launch with its sizes and its data, and knows nothing of what a kernel should compute.
Oclgrind is free software by James Price and Simon McIntosh-Smith: github.com/jrprice/Oclgrind.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.compute import processes
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import numpy as np

GET_IT = "On Debian or Ubuntu, also in WSL: sudo apt install oclgrind"
RACE, OUTSIDE, DIVERGENCE = "data race", "access outside", "barrier divergence"
UNWRITTEN, FORBIDDEN, OTHER = "unwritten value", "forbidden access", "other"
_BEGINNINGS = {  # of Oclgrind's messages
    r"(Read|Write)-write data race": RACE,
    r"Invalid (read|write) of size|Index \(\d+\) exceeds": OUTSIDE,
    r"Work-group divergence": DIVERGENCE,
    r"Uninitialized |Controlflow depends on uninitialized": UNWRITTEN,
    r"Invalid (read from write|write to read)-only": FORBIDDEN,
}
# The optimiser would drop reads whose value nobody uses, merge two barriers of two branches into one, and make use of
# what Oclgrind lacks (llvm.usub.sat). Its OpenCL C 1.2 knows the older name of the barrier alone.
_COMPILE = "-cl-opt-disable -Dwork_group_barrier=barrier"
_WATCH = {  # as options: --data-races --uniform-writes --uninitialized --max-errors 500 --num-threads 1
    "DATA_RACES": "1",
    "UNIFORM_WRITES": "1",  # also where all write the same value
    "UNINITIALIZED": "1",
    "MAX_ERRORS": "500",  # of the whole process, so many that processes.run keeps them all
    "NUM_THREADS": "1",  # the findings in the same order each time
}


@dataclass(frozen=True)
class Place:
    """Where in the kernel, and who was there."""

    who: str  # such as "work-item 4", or "work-item (4, 1)" in two dimensions; of a work-group, "work-group 1"
    line: int  # of the source that was compiled, from 1; 0 where Oclgrind does not know it
    column: int
    code: str  # that line, without what indents it

    def __str__(self) -> str:
        where = f" in line {self.line}, column {self.column}: {self.code}" if self.line else ""
        return self.who + where


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; what happens again at the same lines is counted, and not told again."""

    kind: str  # RACE, OUTSIDE, DIVERGENCE, UNWRITTEN, FORBIDDEN or OTHER
    what: str  # in Oclgrind's words, without addresses: "Read-write data race at local memory"
    kernel: str
    places: tuple[Place, ...]  # two of a race
    count: int = 1  # how often it happened

    def __str__(self) -> str:
        times = f", {self.count:,} times" if self.count > 1 else ""
        return "\n    ".join([f"{self.kind} in kernel {self.kernel}{times} ({self.what})", *map(str, self.places)])


@dataclass(frozen=True, eq=False)
class Report:
    """What Oclgrind found while a function ran."""

    findings: list[Finding]  # in their order, each once
    result: Any  # what the function returned; None where it failed
    printed: str  # what the function printed
    failure: str  # why the function failed, the time-out among it; empty where it ended well
    cut: bool  # whether there was more than Oclgrind may tell

    @property
    def kinds(self) -> set[str]:
        """The kinds of the findings."""
        return {finding.kind for finding in self.findings}

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        lines += [f"The run failed: {self.failure}"] if self.failure else []
        lines += ["There is more, of which Oclgrind tells nothing: mend this first."] if self.cut else []
        nothing = f"Oclgrind found no {RACE}, {OUTSIDE}, {DIVERGENCE} or {UNWRITTEN} in this run."
        return "\n".join(lines) or nothing

    __repr__ = __str__


def installed() -> bool:
    """Return whether Oclgrind is here."""
    return _driver() is not None


def variables() -> dict[str, str]:
    """Return the environment variables of a process for which Oclgrind is the only OpenCL there is.

    They work for the loader in PyOpenCL's wheel and for the one of Debian and Ubuntu (both are ocl-icd).

    Raises:
        WorkshopError: Oclgrind is not here.
    """
    driver = _driver()
    if driver is None:
        raise WorkshopError(
            "Oclgrind is not installed here.",
            "It is a program of its own, packaged for Debian and Ubuntu; macOS and Windows have no package of it.",
            f"{GET_IT}. All else works without it.",
        )
    # PyOpenCL would take a kernel that it has compiled before from its cache, and Oclgrind would not know its lines.
    own = {"OCL_ICD_VENDORS": str(driver), "OCLGRIND_BUILD_OPTIONS": _COMPILE}
    return own | {"PYOPENCL_CTX": "", "PYOPENCL_NO_CACHE": "1"}


def _driver() -> Path | None:
    """The driver (ICD) that lies beside the program."""
    program = shutil.which("oclgrind")
    folder = Path(program).resolve().parent.parent / "lib" if program else Path()
    found = [folder / place / "liboclgrind-rt-icd.so" for place in ("oclgrind", "")]
    return next((path for path in found if program and path.exists()), None)


def run(function: Callable[..., Any], seconds: float = 60.0, arguments: Mapping[str, Any] | None = None) -> Report:
    """Run a function whose OpenCL device is Oclgrind, in a process of its own, and return what Oclgrind found.

    Args:
        function: as for `processes.run`: its source travels, it imports what it uses.
        seconds: when they are over, the process is killed; what was found until then is in the report.
        arguments: for the function, by name; plain data and NumPy arrays.

    Raises:
        WorkshopError: Oclgrind is not here, or the function or its arguments cannot travel.
    """
    changes = variables() | {f"OCLGRIND_{name}": value for name, value in _WATCH.items()}
    done = processes.run(function, seconds=seconds, variables=changes, check=False, arguments=arguments)
    written = done.stderr[0]
    return Report(read(written), done.result, done.stdout[0], done.failures[0], "suppressing further" in written)


def launch(
    source: str, name: str, global_size: int | Sequence[int], local_size: int | Sequence[int],
    arguments: Sequence[object], seconds: float = 60.0,
) -> Report:  # fmt: skip
    """Launch a kernel once under Oclgrind; the report's `result` is the list of its arrays afterwards.

    Args:
        source: OpenCL C.
        name: the kernel's name.
        global_size: work-items in each dimension. A few hundred in all take about a second.
        local_size: work-items of a work-group in each dimension.
        arguments: one NumPy array for each `__global` parameter, one NumPy scalar (such as np.int32) for each other.
        seconds: when they are over, the process is killed.

    Raises:
        WorkshopError: Oclgrind is not here.
    """

    sizes = {"global_size": global_size, "local_size": local_size}
    sizes = {key: (size,) if isinstance(size, int) else tuple(size) for key, size in sizes.items()}
    return run(launch_here, seconds, {"source": source, "name": name, **sizes, "arguments": list(arguments)})


def launch_here(
    source: str, name: str, global_size: tuple[int, ...], local_size: tuple[int, ...], arguments: Sequence[object]
) -> list[np.ndarray]:
    """Launch a kernel once on the device of this process; return its arrays as they are afterwards.

    An array of a `const` parameter lies in a buffer that may only be read. The arguments are those of `launch`.
    """
    import numpy as np
    import pyopencl as cl

    from helpers.compute import opencl

    kernel, passed, arrays = opencl.Kernel(source, name), [], []
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            access = cl.mem_flags.READ_ONLY if "const" in parameter.text.split() else cl.mem_flags.READ_WRITE
            arrays.append((argument.copy(), cl.Buffer(kernel.context, access, argument.nbytes)))
            cl.enqueue_copy(kernel.queue, arrays[-1][1], argument)
        passed.append(arrays[-1][1] if isinstance(argument, np.ndarray) else argument)
    kernel.kernel(kernel.queue, global_size, local_size, *passed)
    for array, buffer in arrays:
        cl.enqueue_copy(kernel.queue, array, buffer)
    return [array for array, _ in arrays]


# ------------------------------------------------------------------------------------------------ Oclgrind's messages

_WHO = re.compile(r"(Global|Work-group:\s*|Group)\((\d+),(\d+),(\d+)\)")
_WHERE = re.compile(r"At line (\d+)(?: \(column (\d+)\))? of \S+:\n[ \t]*([^\n]*)")


def read(text: str) -> list[Finding]:
    """Read the findings in what Oclgrind wrote; those of one kind at the same lines become one.

    Args:
        text: what Oclgrind 21.10 writes: a message of several lines, an empty line, the next one.
    """
    found: dict[tuple, Finding] = {}
    for message in re.split(r"\n\n(?=\S)", text.strip("\n")):
        kernel = re.search(r"\n\s*Kernel:\s*(\w+)", message)
        if not kernel:
            continue  # that there were too many to tell them all
        kind = next((kind for beginning, kind in _BEGINNINGS.items() if re.match(beginning, message)), OTHER)
        what = re.sub(r" address 0x[0-9a-f]+| of size \d+| detected", "", message.partition("\n")[0])
        places = tuple(_place(part) for part in re.split(r"\n\s*Second entity:", message))
        if kind == DIVERGENCE:
            met = re.search(r"Only \d+ out of \d+ work-items executed \w+", message)
            what = met[0].replace("executed", "reached the") if met else what
        same = (kind, kernel[1], frozenset((place.line, place.code) for place in places))
        first = found.get(same) or Finding(kind, what, kernel[1], places, 0)
        found[same] = replace(first, count=first.count + 1)
    return list(found.values())


def _place(text: str) -> Place:
    who, where = _WHO.search(text), _WHERE.search(text)
    numbers = re.sub(r"(, 0)+$", "", ", ".join(who.groups()[1:])) if who else ""
    unit = "work-item" if who and who[1] == "Global" else "work-group"
    name = f"{unit} ({numbers})" if "," in numbers else f"{unit} {numbers}" if who else "somebody"
    return Place(name, int(where[1]), int(where[2] or 0), where[3]) if where else Place(name, 0, 0, "")
