"""Findings about WebGPU: no adapter, one that hangs or computes wrongly, and a GPU that only software stands in for."""

from __future__ import annotations

import os

from helpers import devices, webgpu
from helpers.machine.doctor.findings import CHILD_SECONDS, Finding, Seen, forget
from helpers.machine.host import Host

LESSON = "Lesson 14's Python half"
MESA = "sudo apt install mesa-vulkan-drivers"


def adapters(host: Host) -> Seen:
    """Is there a WebGPU adapter that computes right, and is it the GPU that is here."""
    answer = devices.ask("webgpu", CHILD_SECONDS)
    if answer.state == "not installed":
        return  # a missing package, and told as one
    if os.environ.get(webgpu.CHOICE) and not answer.devices:
        what = f"{webgpu.CHOICE} is {os.environ[webgpu.CHOICE]!r}, and no WebGPU adapter here has that in its name."
        why = f"wgpu then takes no adapter at all. {LESSON} shows its text alone."
        yield Finding("WebGPU", "note", what, why, forget(host, webgpu.CHOICE))
    elif answer.state == "timed out":
        what = f"WebGPU did not answer within {CHILD_SECONDS:g} s."
        why = f"A graphics driver hangs when it is asked for its adapters. {LESSON} would, too."
        advice = "Restart the machine. If it still hangs, update the driver of the graphics card."
        yield Finding("WebGPU", "note", what, why, advice)
    elif not answer.devices:
        what = f"There is no WebGPU adapter here that computes: {answer.message or 'no driver has any'}."
        why = f"No driver for Vulkan, Metal or Direct3D 12 is installed, or none that works. {LESSON} needs one."
        yield Finding("WebGPU", "note", what, why, get_adapter(host))
    else:
        names = ", ".join(sorted({str(device) for device in answer.devices}))
        if host.nvidia and all(device.kind == "cpu" for device in answer.devices):
            what = f"WebGPU does not reach the NVIDIA GPU: {names} computes on the processor."
            why = "The part of NVIDIA's driver that brings Vulkan is not installed, or hidden in this container."
            yield Finding("WebGPU", "note", what, why, get_adapter(host))
        yield f"WebGPU: {names}"


def get_adapter(host: Host) -> str:
    """Return how to get a WebGPU adapter: a driver for the GPU, or one in software."""
    if host.system == "Windows":
        return "Windows brings Direct3D 12: install the newest driver of your graphics card."
    if host.system == "Darwin":
        return "macOS brings Metal. In a virtual machine there may be none: use lesson 14's browser half."
    if host.nvidia:
        return (
            "Install the graphics part of NVIDIA's driver (its package is called libnvidia-gl-NUMBER, NUMBER as in "
            "nvidia-smi). In a container, start it with:\n    -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics\n"
            f"Or a software adapter, which computes on the processor:\n    {MESA}"
        )
    return f"Mesa brings Vulkan for AMD's and Intel's GPUs, and an adapter in software for all others:\n    {MESA}"
