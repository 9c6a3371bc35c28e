"""Findings about WebGPU: no adapter, one that hangs or computes wrongly, and a GPU that only software stands in for."""

from __future__ import annotations

from dataclasses import replace

from helpers.compute import webgpu
from helpers.compute.devices import Answer
from helpers.compute.host import Host, system_package
from helpers.doctor import nvidia
from helpers.doctor.facts import AGAIN_SECONDS, Facts, late
from helpers.doctor.findings import Failure, Seen, forget, newer_driver, once_quiet

LESSON = "Lesson 14's Python half"
TRIALS = "this course's own trials"
ALL_PAGES = ("webgpu", "apple", "amd-windows")


def get_adapter(host: Host) -> str:
    """Return how to get a WebGPU adapter: a driver for the GPU, or one in software."""
    if host.system == "Windows":
        return "Windows brings Direct3D 12: install the newest driver of your graphics card."
    if host.system == "Darwin":
        return (
            "macOS brings Metal for its GPUs: update macOS. In a virtual machine there may be none. Lesson 14's half "
            "in the browser does not need Python's adapter."
        )
    mesa = f"    {system_package(host, 'vulkan')}"
    if host.nvidia:
        return (
            "Install the graphics part of NVIDIA's driver (its package is called libnvidia-gl-NUMBER, NUMBER as in "
            "nvidia-smi). In a container, start it with:\n    -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics\n"
            f"Or a software adapter, which computes on the processor:\n{mesa}"
        )
    return f"Mesa brings Vulkan for AMD's and Intel's GPUs, and an adapter in software for all others:\n{mesa}"


def _mend(host: Host) -> str:
    """Return what may help an adapter that computes wrongly."""
    newer = f"Restart the computer, then {newer_driver(host)}."
    return f"{newer} If there is no other adapter:\n{get_adapter(host)}" if host.system == "Linux" else newer


NO_SUCH_ADAPTER = Failure(
    "webgpu-no-such-adapter", "WebGPU", "note",
    f"{webgpu.CHOICE} is {{value!r}}, and no WebGPU adapter here has that in its name.",
    f"wgpu then takes no adapter at all. {LESSON} shows its text alone.",
    lambda host: forget(host, webgpu.CHOICE), TRIALS, ("webgpu",), {"value": "Radeon"},
)  # fmt: skip
HANGS = Failure(
    "webgpu-hangs", "WebGPU", "note",
    "WebGPU did not answer within {seconds} s.",
    "On a busy machine it takes longer. Or a graphics driver hangs when it is asked for its adapters. "
    f"{LESSON} would then hang, too.",
    lambda host: once_quiet(host, f"restart the computer. If it still hangs, {newer_driver(host)}."),
    TRIALS, ALL_PAGES, {"seconds": "30"},
)  # fmt: skip
NO_ADAPTER = Failure(
    "webgpu-no-adapter", "WebGPU", "note",
    "There is no WebGPU adapter here: {message}.",
    f"No driver for Vulkan, Metal or Direct3D 12 is installed, or none that works. {LESSON} needs one.",
    get_adapter, TRIALS, ALL_PAGES, {"message": "no driver has any"},
)  # fmt: skip
COMPUTES_NOT = Failure(
    "webgpu-does-not-compute", "WebGPU", "note",
    "{adapter} does not compute right: {reason}.",
    f"A small product of matrices on it was compared with NumPy's. {LESSON} passes this adapter over.",
    _mend, TRIALS, ALL_PAGES,
    {"adapter": "AMD Radeon RX 7600 (Vulkan, WebGPU, GPU)", "reason": "by up to 12, in 4,096 of 4,096 whole numbers"},
)  # fmt: skip
SOFTWARE_ALONE = Failure(
    "webgpu-software-alone", "WebGPU", "note",
    "WebGPU does not reach the NVIDIA GPU: {names} computes on the processor.",
    "The part of NVIDIA's driver that brings Vulkan is not installed, or hidden in this container.",
    lambda host: get_adapter(replace(host, nvidia=True)),
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit, driver capabilities; " + TRIALS,
    ("webgpu", "nvidia"), {"names": "AMD EPYC (llvmpipe through Vulkan, WebGPU, CPU)"},
)  # fmt: skip
FAILURES = (NO_SUCH_ADAPTER, HANGS, NO_ADAPTER, COMPUTES_NOT, SOFTWARE_ALONE)


def adapters(facts: Facts) -> Seen:
    """Is there a WebGPU adapter that computes right, and is it the GPU that is here."""
    answer, host = facts.answers.get("webgpu", Answer("webgpu", "not installed")), facts.host
    if answer.state == "not installed":
        return  # a missing package, and told as one
    if facts.variables.get(webgpu.CHOICE) and not answer.devices and answer.state == "ok":
        yield NO_SUCH_ADAPTER.found(host, value=facts.variables[webgpu.CHOICE])
    elif answer.state == "timed out":
        yield HANGS.found(host, seconds=f"{AGAIN_SECONDS:g}")
    elif not answer.devices:
        yield NO_ADAPTER.found(host, message=answer.message or "no driver has any")
    for device in answer.devices:
        if not device.usable and not late(device):  # which `computes` tells
            yield COMPUTES_NOT.found(host, adapter=device, reason=device.reason)
    if right := [device for device in answer.devices if device.usable]:
        names = ", ".join(sorted({str(device) for device in right}))
        if nvidia.there(facts) and all(device.kind == "cpu" for device in answer.devices):
            yield SOFTWARE_ALONE.found(host, names=names)
        yield f"WebGPU: {names}"


JUDGES = (adapters,)
