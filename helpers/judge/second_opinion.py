"""Judge a refused kernel again without optimization, so that a compiler's fault is not taken for the learner's.

A driver may turn a right kernel into a wrong program: PoCL 3.0 and 3.1 do (`devices.products.LOOP`). What a kernel
leaves to chance, such as a variable that is never set, may come out right on one driver and wrong on another, so a
kernel that is right elsewhere proves nothing. Built without optimization, such kernels are refused on every driver that
was tried (Intel's, PoCL 3.0, PoCL 3.1). So a second opinion is always one without optimization.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from helpers.devices import frameworks, opencl

if TYPE_CHECKING:
    import pyopencl as cl

OPTIONS = "PYOPENCL_BUILD_OPTIONS"  # PyOpenCL adds them to every build
UNOPTIMIZED = "-cl-opt-disable"


def judge_again(judge: Callable[[], str | None]) -> str | None:
    """Let a kernel that was refused be judged again.

    Args:
        judge: judges the kernel as the environment says; it returns what was tried, or None if it refuses the kernel.

    Returns:
        What was tried, and whose fault the refusal was; None if the kernel stays refused.

    Raises:
        WorkshopError: there is no device.
    """
    device = opencl.pick_device()
    for variables in _list_ways(device):
        with _set_variables(variables):
            tried = judge()
        if tried is not None:
            blame = f"Your kernel is right: {opencl.name(device)} compiles it wrongly"
            return f"{tried}, built without optimization. {blame}. {_advise(device)}"
    return None


def _list_ways(device: cl.Device) -> Iterator[dict[str, str]]:
    """Yield variables: for the same device, and if that is known to compile wrongly, for another driver's CPU."""
    options = f"{os.environ.get(OPTIONS, '')} {UNOPTIMIZED}".strip()
    yield {OPTIONS: options}
    if opencl.has_loop_fault(device):
        for place, other in frameworks.opencl_devices().items():
            if opencl.kind(other) == "cpu" and not opencl.find_problem(other) and not opencl.has_loop_fault(other):
                yield {OPTIONS: options, "PYOPENCL_CTX": place}
                return


def _advise(device: cl.Device) -> str:
    """Return the way round a driver that compiles a kernel wrongly."""
    if opencl.has_loop_fault(device):
        return (
            "Its loops may go wrong if their condition asks get_local_size(0) or the like: put the number into a "
            "variable before the loop, or use another driver (docs/opencl.md)."
        )
    return f'Build it with "{UNOPTIMIZED}", or use another driver (docs/opencl.md).'


@contextmanager
def _set_variables(variables: dict[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
