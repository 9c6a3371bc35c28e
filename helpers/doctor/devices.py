"""Findings about devices that are listed and do not compute right: their small product, compared with NumPy's.

`helpers.devices` lets each device compute.
"""

from __future__ import annotations

import re

from helpers.devices import products
from helpers.devices.frameworks import FRAMEWORKS, Device
from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts, late
from helpers.doctor.findings import Finding, Results, found
from helpers.training import backends

SIDE = ("onnxruntime", "webgpu")  # frameworks of a lesson's part; what fails there is a note
WORDS = (  # what the framework says (the first row that fits), the failure
    (r"out of memory|RESOURCE_EXHAUSTED|\bOOM\b", "devices-memory"),
    (r"UNSUPPORTED_PTX_VERSION|driver version is insufficient", "nvidia-driver-too-old"),
    (r"HIP error|hipError|invalid device function", "devices-no-amd-code"),
    (r"no kernel image|INVALID_PTX|sm_\d+|invalid image", "devices-no-code"),
    ("", "devices-fails"),
)
# Not told here: what the family "opencl" tells, and what breaks nothing (`devices` shows it).
TOLD_BY_OTHERS = (("opencl", products.CANNOT_COMPILE), ("onnxruntime", products.FELL_BACK))


def products_of_devices(facts: Facts) -> Results:
    """Does every listed device compute right; a failure whose cause is told already is not told twice."""
    tried = facts.tried_devices()
    if right := sum(device.state == "right" for device in tried):
        yield f"small products: {right} of {len(tried)} devices compute right"
        if not any(device.kind == "gpu" and device.state == "right" for device in tried):
            yield "GPU: none computes here; the lessons run on the processor"
    for device in tried:
        if late(device) or any(device.framework == name and words in device.reason for name, words in TOLD_BY_OTHERS):
            continue
        if device.state == "wrong":
            yield _finding("devices-wrong", facts, device)
        elif device.state == "failed":
            failure = next(failure for words, failure in WORDS if re.search(words, device.reason, re.IGNORECASE))
            old_driver = failure == "nvidia-driver-too-old" and any(nvidia.driver_too_old(facts))
            rtx_50 = failure == "devices-no-code" and device.framework == "tensorflow" and any(nvidia.rtx_50(facts))
            if not (old_driver or rtx_50):
                yield _finding(failure, facts, device)


def _finding(failure: str, facts: Facts, device: Device) -> Finding:
    targets = amd.gpus(facts) or [amd.target_of(str(device))]
    words = ["side" if device.framework in SIDE else device.framework] + ["processor"] * (device.kind != "gpu")
    words += ["backend"] if device.framework in backends.BACKENDS else []
    words += ["overridden"] if device.kind == "gpu" and facts.variables.get(amd.OVERRIDE) else []
    reason = device.reason.splitlines()[0].rstrip(".") if device.reason else "it gives no reason"
    return found(
        failure,
        facts.host,
        "note" if device.framework in SIDE else "",
        words,
        device=device,
        framework=FRAMEWORKS[device.framework].title,
        reason=reason,
        driver=nvidia.driver(facts) or "of an unknown version",
        says=f"{device} cannot compute with {FRAMEWORKS[device.framework].title} ({reason})",
        other="tensorflow" if device.framework == "jax" else "jax",
        target=next(filter(None, targets), amd.UNKNOWN),
    )


def webgpu(facts: Facts) -> Results:
    """Is there a WebGPU adapter; one that is missing as a package, or was late, is told as that."""
    answer = facts.answers.get("webgpu")
    if answer is None or answer.state in ("not installed", "timed out"):
        return
    if not answer.devices:
        reason = answer.message.partition("; how to get one")[0]  # that way leads here, to the doctor
        yield found("webgpu-no-adapter", facts.host, message=reason or "no driver has any")
    if right := sorted({str(device) for device in answer.devices if device.is_usable}):
        yield f"WebGPU: {', '.join(right)}"


JUDGES = (products_of_devices, webgpu)
