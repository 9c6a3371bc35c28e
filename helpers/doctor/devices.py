"""Finds devices that are listed and do not compute right, by their small product, compared with NumPy's.

`helpers.devices` lets each device compute.
"""

from __future__ import annotations

import re

from helpers.devices import products
from helpers.devices.frameworks import FRAMEWORKS, Device
from helpers.doctor import gpus
from helpers.doctor.facts import Facts, is_late, parse_version
from helpers.doctor.findings import Finding, Results, join_some, tell
from helpers.doctor.gpu_findings import tell_hidden
from helpers.training import backends

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
VULKAN_DRIVERS = ("etc/vulkan/icd.d", "usr/share/vulkan/icd.d")  # where Linux registers them
# They choose the drivers that Vulkan's loader looks at; the last two hold patterns of their files' names.
VULKAN_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE")
VULKAN_REASON = "It chooses the drivers that Vulkan looks at."
VULKAN_NAMES = {"NVIDIA": "nvidia", "AMD": "radeon|amd", "Intel": "intel"}  # how the names of their files begin
SPARING = ("TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE")  # let frameworks reserve no GPU's memory
SIDE = ("onnxruntime", "webgpu")  # frameworks of a lesson's part; what fails there is a note
WORDS = (  # what the framework says (the first row that fits), the failure
    (r"out of memory|RESOURCE_EXHAUSTED|\bOOM\b", "devices-memory"),
    (r"UNSUPPORTED_PTX_VERSION|driver version is insufficient", "nvidia-driver-too-old"),
    (r"DNN library initialization|runtime CuDNN library|SUBLIBRARY_VERSION_MISMATCH", "nvidia-cudnn"),
    (r"HIP error|hipError|invalid device function|TensileLibrary|rocBLAS error", "devices-no-amd-code"),
    (r"no kernel image|INVALID_PTX|sm_\d+|invalid image", "devices-no-code"),
    ("", "devices-fails"),
)
# Not reported here: what the family "opencl" reports, and what breaks nothing (`devices` shows it).
REPORTED_BY_OTHERS = (("opencl", products.CANNOT_COMPILE), ("onnxruntime", products.FELL_BACK))


def find_failing_devices(facts: Facts) -> Results:
    """Find listed devices that do not compute right; one that was late is reported with all that did not answer."""
    tried = facts.list_tried_devices()
    right = [device for device in tried if device.state == "right"]
    if right:
        answered = sum(not is_late(device) for device in tried)
        yield f"small products: {len(right)} of the {answered} devices that answered compute correctly"
        if not any(device.kind == "gpu" for device in right):
            yield "GPU: none computes here; the lessons run on the CPU"
    for device in tried:
        if is_late(device) or _is_reported_by_others(device):
            continue
        if device.state == "wrong":
            yield _tell_of_device("devices-wrong", facts, device)
        elif device.state == "failed":
            failure = next(failure for words, failure in WORDS if re.search(words, device.reason, re.IGNORECASE))
            yield _tell_of_device(failure, facts, device)


def _is_reported_by_others(device: Device) -> bool:
    return any(device.framework == framework and words in device.reason for framework, words in REPORTED_BY_OTHERS)


def _tell_of_device(failure: str, facts: Facts, device: Device) -> Finding:
    targets = gpus.list_amd_targets(facts)
    target = targets[0] if targets else gpus.find_amd_target(str(device))
    words = _list_case_words(facts, device)
    if target not in gpus.AMD_WITH_PACKAGES:
        words.append("no-packages" if target else "no-target")
    reason = device.reason.splitlines()[0].rstrip(".") if device.reason else "it gives no reason"
    title = FRAMEWORKS[device.framework].title
    return tell(
        failure,
        facts.host,
        "note" if device.framework in SIDE else "",
        words,
        [device.framework],
        device=device,
        framework=title,
        reason=reason,
        driver=gpus.read_nvidia_driver(facts) or "of an unknown version",
        says=f"{device} cannot compute with {title} ({reason})",
        other="tensorflow" if device.framework == "jax" else "jax",
        target=target,
    )


def _list_case_words(facts: Facts, device: Device) -> list[str]:
    """Return what the cases of failures.toml may ask of a device."""
    words = ["side" if device.framework in SIDE else device.framework]
    if device.framework in backends.BACKENDS:
        words.append("backend")
        if device.framework != facts.backend:
            words.append("spare")
    if facts.variables.get("LD_LIBRARY_PATH"):
        words.append("path")
    if all(facts.variables.get(name) for name in SPARING):
        words.append("sparing")
    if device.kind != "gpu":
        words.append("processor")
    elif facts.variables.get(OVERRIDE):
        words.append("overridden")
    return [*words, *gpus.list_branch_words(facts), *_list_build_words(facts)]


def _list_build_words(facts: Facts) -> list[str]:
    """Return which of PyTorch's builds holds code for the NVIDIA GPUs here, and whether that one is installed.

    CUDA 12.6's has code for 5.0 to 9.0, CUDA 12.8's (2.11 is its last) for 7.5 to 12.0:
    https://github.com/pytorch/pytorch/pull/175253 (2026-02), https://github.com/pytorch/pytorch/pull/179072 (2026-04)
    """
    capabilities = [gpu.capability for gpu in gpus.list_nvidia_gpus(facts)]
    if not capabilities:
        return []
    build = "build-cu128" if max(capabilities) >= (10, 0) else "build-cu126"
    fitting = {"build-cu128": (12, 8), "build-cu126": (12, 6)}[build]
    installed = parse_version(facts.torch.removeprefix("cuda ")) if facts.torch.startswith("cuda") else ()
    is_installed = installed == fitting or (build == "build-cu128" and installed > fitting)
    return [build, "build-installed"] if is_installed else [build]


def find_no_webgpu_adapter(facts: Facts) -> Results:
    """Find that there is no WebGPU adapter; one that is missing as a package, or was late, is reported as that."""
    answer = facts.answers.get("webgpu")
    if answer is None or answer.state in ("not installed", "timed out"):
        return
    diverted = [name for name in VULKAN_VARIABLES if facts.variables.get(name)]
    if not answer.devices and diverted:
        yield tell_hidden(facts, diverted, "every WebGPU adapter", VULKAN_REASON, "note", ["webgpu"])
    elif not answer.devices:
        reason = answer.message.partition("; how to get one")[0]  # that way leads here, to the doctor
        registered = _list_vulkan_drivers(facts)
        yield tell(
            "webgpu-no-adapter",
            facts.host,
            words=["registered"] if registered else [],
            files=join_some(registered),
            message=reason or "no driver has any",
        )
    if right := sorted({str(device) for device in answer.devices if device.is_usable}):
        yield f"WebGPU: {', '.join(right)}"


def find_unseen_gpu(facts: Facts) -> Results:
    """Find a GPU that the machine has and WebGPU does not list: it computes with a program on the processor."""
    answer = facts.answers.get("webgpu")
    if answer is None or not answer.devices or not facts.has_no_gpu("webgpu") or facts.host.hosted:
        return
    vendors = gpus.list_gpu_vendors(facts)
    diverted = [name for name in VULKAN_VARIABLES if facts.variables.get(name)]
    if vendors and diverted:
        yield tell_hidden(
            facts, diverted, f"your GPU ({join_some(vendors)}) from WebGPU", VULKAN_REASON, "note", ["webgpu"]
        )
    elif vendors:
        own = "|".join(VULKAN_NAMES[vendor] for vendor in vendors)
        is_registered = any(re.match(own, name) for name in _list_vulkan_drivers(facts))
        yield tell(
            "webgpu-gpu-missing",
            facts.host,
            words=["registered"] if is_registered else [],
            about=["webgpu"],
            gpu=join_some(vendors),
            names=join_some(sorted({str(device) for device in answer.devices})),
        )


def _list_vulkan_drivers(facts: Facts) -> list[str]:
    """Return the files that register drivers for Vulkan, such as "lvp_icd.x86_64.json"."""
    return sorted(file.name for folder in VULKAN_DRIVERS for file in (facts.root / folder).glob("*.json"))


JUDGES = (find_failing_devices, find_no_webgpu_adapter, find_unseen_gpu)
