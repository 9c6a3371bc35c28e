"""Findings about devices that are listed and do not compute right: their small product, compared with NumPy's.

`helpers.compute.devices` lets each device compute.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from helpers.compute import backends, products
from helpers.compute.frameworks import FRAMEWORKS, Device
from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts, late
from helpers.doctor.findings import Finding, Results, found

SIDE = ("onnxruntime",)  # frameworks of a lesson's part; what fails there is a note
WORDS: tuple[tuple[str, str, tuple[Callable[[Facts], Results], ...]], ...] = (
    # what the framework says (the first row that fits), the failure, the findings that tell the same with more detail
    (r"out of memory|RESOURCE_EXHAUSTED|\bOOM\b", "devices-memory", ()),
    (r"UNSUPPORTED_PTX_VERSION|driver version is insufficient", "devices-driver", (nvidia.driver_too_old,)),
    (r"HIP error|hipError|invalid device function", "devices-no-amd-code", (amd.override,)),
    (r"no kernel image|INVALID_PTX|sm_\d+|invalid image", "devices-no-code", (nvidia.capability, nvidia.rtx_50)),
    (r"^it fell back", "devices-fell-back", ()),
    ("", "devices-fails", ()),
)
OWN = (("webgpu", ""), ("opencl", products.CANNOT_COMPILE))  # told by the family of that name, where the words stand


def products_of_devices(facts: Facts) -> Results:
    """Does every listed device compute right; a failure whose cause is told already is not told twice."""
    tried = facts.tried()
    if right := sum(device.verdict == "right" for device in tried):
        yield f"small products: {right} of {len(tried)} devices compute right"
    for device in tried:
        if late(device) or any(device.framework == family and words in device.reason for family, words in OWN):
            continue
        if device.verdict == "wrong":
            yield _finding("devices-wrong", facts, device)
        elif device.verdict == "failed":
            _, failure, causes = next(row for row in WORDS if re.search(row[0], device.reason, re.IGNORECASE))
            if not any(any(cause(facts)) for cause in causes):
                yield _finding(failure, facts, device)


def _finding(failure: str, facts: Facts, device: Device) -> Finding:
    targets = [gpu.target for gpu in amd.gpus(facts)] or [amd.target_of(str(device))]
    words = [] if device.kind == "gpu" else ["processor", device.framework]
    words += ["backend"] if device.framework in backends.BACKENDS else []
    return found(
        failure,
        facts.host,
        "note" if device.framework in SIDE else "",
        words,
        device=device,
        framework=FRAMEWORKS[device.framework].title,
        reason=device.reason.splitlines()[0].rstrip(".") if device.reason else "it gives no reason",
        other="tensorflow" if device.framework == "jax" else "jax",
        hide="HIP_VISIBLE_DEVICES" if re.search("AMD|Radeon", str(device)) else "CUDA_VISIBLE_DEVICES",
        target=next(filter(None, targets), amd.UNKNOWN),
    )


JUDGES = (products_of_devices,)
