"""Pick an OpenCL device, compile with readable errors, and hold a learner's kernel (lesson 01)."""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers import devices, variables
from helpers.devices import compiler_log, frameworks, products
from helpers.devices.device import LOOP_FAULT, preference
from helpers.devices.host import Host, command
from helpers.devices.kernel_text import KernelError, closing_bracket, without_comments
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl


PROOFS = variables.OPENCL_PROOFS  # what each OpenCL device that was tried computes, as JSON


def _advise_doctor() -> str:
    return f"In a terminal, in the workshop's folder: {command(Host.here(), 'doctor')}"


# ---------------------------------------------------------------------------------------------- devices


def pick_device() -> cl.Device:
    """Return the OpenCL device that the lessons use: a GPU before an accelerator before a CPU before a simulator.

    A GPU of its own comes before one that is part of a processor, then the one with the most memory. Of one kind, a
    driver that compiles some loops wrongly comes last. The variable PYOPENCL_CTX overrules this, as in every PyOpenCL
    program (`PYOPENCL_CTX=0:1` is platform 0, device 1). A device that does not multiply two small matrices as NumPy
    does is passed over: PoCL 3.0 from pip lists a processor that is newer than its compiler (AMD's Zen 5, for one) and
    then refuses every program.

    Raises:
        WorkshopError: there is no device, or none that computes right.
    """
    import pyopencl as cl

    # Intel's compiler talks when nothing is wrong, also to a lesson that calls cl.Program(...).build() itself.
    warnings.simplefilter("ignore", cl.CompilerWarning)
    refused, usable = [], None
    for device in _list_candidates():
        if usable and kind(device) != kind(usable):
            break
        if problem := find_problem(device):
            refused.append(f"{name(device)}: {problem}")
        elif not has_loop_fault(device):
            return device
        else:
            usable = usable or device
    if usable:
        return usable
    if refused:
        raise WorkshopError("No OpenCL device here can compile and run a kernel.", "; ".join(refused), _advise_doctor())
    raise WorkshopError(
        "There is no OpenCL device here.",
        "OpenCL needs a driver (an ICD) for a GPU, or PoCL, which makes the CPU a device.",
        _advise_doctor(),
    )


def find_problem(device: cl.Device) -> str:
    """Return how a device failed when it was first let multiply; empty if it computed right."""
    return "" if prove(device) in (products.RIGHT, LOOP_FAULT) else prove(device)


def has_loop_fault(device: cl.Device) -> bool:
    """Return whether a device's driver compiles some loops wrongly (`devices.products.LOOP`)."""
    return prove(device) == LOOP_FAULT


@functools.cache
def prove(device: cl.Device) -> str:
    """Return what a device was found to compute, as `products.prove` does.

    It multiplies once: the processes that this one starts inherit what came of it.
    """
    known, key = json.loads(os.environ.get(PROOFS, "{}")), identify(device)
    if not known.get(key) and kind(device) in ("gpu", "accelerator"):  # its driver may end the process that asks
        for listed in devices.ask("opencl").devices:
            known[f"{listed.identifier} {listed}"] = listed.computes
    if not known.get(key):
        known[key] = products.prove(frameworks.describe_opencl(device))
    os.environ[PROOFS] = json.dumps(known)
    return known[key]


def identify(device: cl.Device) -> str:
    """Return a device's place and name, such as "0:0 AMD EPYC (PoCL 3.1, OpenCL, CPU)"."""
    place = next((place for place, other in frameworks.opencl_devices().items() if other == device), "")
    return f"{place} {name(device)}"


def _list_candidates() -> list[cl.Device]:
    """Every device, best kind first; those of PYOPENCL_CTX alone if it is set."""
    import pyopencl as cl

    if os.environ.get("PYOPENCL_CTX"):
        try:
            return cl.choose_devices(interactive=False)
        except (cl.Error, RuntimeError, ValueError, IndexError) as error:
            raise WorkshopError(
                f"PYOPENCL_CTX={os.environ['PYOPENCL_CTX']} names no device here.",
                _take_last_line(error),
                f"Unset PYOPENCL_CTX, or see the numbers: {command(Host.here(), 'devices')}",
            ) from None
    return sorted(
        frameworks.opencl_devices().values(), key=lambda device: preference(frameworks.describe_opencl(device))
    )


def name(device: cl.Device) -> str:
    """Return the device's name with its OpenCL implementation, such as `AMD EPYC (PoCL 3.1+debian, OpenCL, CPU)`."""
    return str(frameworks.describe_opencl(device))


def kind(device: cl.Device) -> str:
    """Return `gpu`, `accelerator`, `cpu` or `simulator`."""
    return frameworks.describe_opencl(device).kind


def _take_last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


# ---------------------------------------------------------------------------------------------- compiling


def build(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Compile OpenCL C for every device of `context`, with the compiler's options.

    A compiler knows `work_group_barrier` from OpenCL C 2.0 on. Without an option Intel's compiles 1.2, so a source that
    fails for that name is compiled as 3.0 if the devices know that.

    Raises:
        KernelError: the source does not compile, and the message shows each line complained about and what is wrong
            there; or the driver lost its kernels.
    """
    import pyopencl as cl

    try:
        try:
            program = products.build_quietly(context, source, options)
        except cl.RuntimeError as error:
            if "work_group_barrier" not in str(error) or not all(map(_knows_opencl_c_3, context.devices)):
                raise
            program = products.build_quietly(context, source, [*options, "-cl-std=CL3.0"])
    except cl.RuntimeError as error:
        raise explain_failure(source, str(error)) from None
    expect_kernels(program, source)
    return program


def expect_kernels(program: cl.Program, source: str) -> None:
    """Refuse a program that compiled without an error but holds none of its source's kernels.

    PoCL 3.0-rc2 makes such programs on a processor with AVX-512, from the second source on that uses float16.

    Raises:
        KernelError: the program holds no kernel.
    """
    if not re.search(r"\b(?:__)?kernel\b", without_comments(source)):
        return  # Intel's driver raises where a program without kernels is asked for their names
    if not program.kernel_names:
        raise KernelError(
            "The driver compiled this source without an error, but lost its kernels.",
            "That is the driver's fault, not the source's. PoCL 3.0 does it on some processors with float16.",
            "Choose another device: python3 workshop.py devices lists their numbers for PYOPENCL_CTX.",
        )


def _knows_opencl_c_3(device: cl.Device) -> bool:
    import pyopencl as cl

    try:
        return any(version.version >> 22 >= 3 for version in device.opencl_c_all_versions)  # major, minor, patch
    except (cl.Error, AttributeError):  # a driver of OpenCL 1 or 2 does not list them
        return False


def explain_failure(source: str, log: str) -> KernelError:
    """Return the error of a source that does not compile, or of a compiler that fails whatever the source is.

    Args:
        source: the OpenCL C that was compiled.
        log: the compiler's output.
    """
    what, why = compiler_log.explain_log(source, log)
    if what:
        return KernelError(what, why, "Fix the first line that is named; the later ones often follow from it.")
    errors = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    return KernelError(
        "The compiler of this device failed.", errors[-1] if errors else log.strip()[-300:], _advise_doctor()
    )


# ---------------------------------------------------------------------------------------------- a learner's kernel


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    text: str  # as written, such as `__global const float *a`
    name: str
    is_array: bool  # whether it points to memory that all work-items share
    width: int = 1  # numbers in one element: 16 of a float16, 4 of a float3 (which takes as much room), 1 of a float


class Kernel:
    """A learner's kernel: parsed once and built once, for everybody who runs, judges or traces it.

    Args:
        source: OpenCL C; it may hold other kernels and functions, too.
        name: the kernel's name.
        device: where it runs; the lessons' device if None.
        options: of the compiler, such as -cl-opt-disable.

    Raises:
        KernelError: the source does not compile, or has no such kernel.
    """

    def __init__(self, source: str, name: str, device: cl.Device | None = None, options: Sequence[str] = ()) -> None:
        import pyopencl as cl

        self.name, self.source, self.options = name, source, options
        self.device = device or pick_device()
        self.context = cl.Context([self.device])  # Intel's driver forgets a context that only its queue still holds
        self.queue = cl.CommandQueue(self.context)
        self.program = build(self.context, source, options)
        self.parameters = _read_parameters(_find_parameters(source, name))
        self.kernel = cl.Kernel(self.program, name)


def _find_parameters(source: str, name: str) -> str:
    """Return the text between the brackets of a kernel's parameters.

    Raises:
        KernelError: the source has no such kernel.
    """
    plain = without_comments(source)
    start = re.search(rf"\b(?:__)?kernel\b[^;{{}}]*?\bvoid\s+{re.escape(name)}\s*\(", plain)
    if not start:
        raise KernelError(
            f"The source has no kernel called {name!r}.",
            "A kernel starts with `__kernel void NAME(`.",
            "Check the spelling of the name in both places.",
        )
    return plain[start.end() : closing_bracket(plain, start.end() - 1)]


def _read_parameters(listed: str) -> list[Parameter]:
    texts = [text for part in listed.split(",") if (text := " ".join(part.split()))]
    shared = re.compile(r"\b(__)?(global|constant)\b")
    return [Parameter(t, re.findall(r"\w+", t)[-1], bool(shared.search(t)), _read_vector_width(t)) for t in texts]


def _read_vector_width(text: str) -> int:
    found = re.search(r"\b(?:u?(?:char|short|int|long)|half|float|double)(2|3|4|8|16)\b", text)
    return 4 if found and found[1] == "3" else int(found[1]) if found else 1
