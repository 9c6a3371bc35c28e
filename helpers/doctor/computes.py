"""Findings about devices that are listed and do not compute right: their small product, compared with NumPy's.

`helpers.compute.devices` lets each device compute; `facts.proofs` brings its verdicts here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from helpers.compute import backends, products
from helpers.compute.frameworks import FRAMEWORKS
from helpers.compute.host import Host, command, python_command, set_variable, unset_variable
from helpers.doctor import amd, amd_gpus, nvidia, opencl
from helpers.doctor.facts import AGAIN_SECONDS, Facts, Proof
from helpers.doctor.findings import (
    TYPE_IT,
    Failure,
    Finding,
    Seen,
    choose,
    hand_over,
    listed,
    once_quiet,
    reinstall_or_ask,
)


def _another(host: Host) -> str:
    if host.system == "Windows":
        return (
            "Lessons on OpenCL and WebGPU pass over such a device. On Windows itself only PyTorch trains on a GPU: if "
            "that is what fails, let Keras train on the processor, with TensorFlow, until it is mended. "
            f"{choose(host, 'KERAS_BACKEND', 'tensorflow')}\n"
            f"Which devices compute right is shown by:\n    {command(host, 'devices')}"
        )
    hide = "" if host.system == "Darwin" else f"\n    {set_variable(host, '{hide}', '-1')}"
    return (
        "Lessons on OpenCL and WebGPU pass over such a device. If Keras computes with {framework}, take another "
        "framework or the processor until that is mended. "
        f"{TYPE_IT.replace('this', 'one of these') if hide else TYPE_IT}\n    "
        f"{set_variable(host, 'KERAS_BACKEND', '{other}')}{hide}\n"
        f"Which devices compute right is shown by:\n    {command(host, 'devices')}"
    )


def _on_the_processor(host: Host, framework: str) -> str:
    """Return what to do where the device is the processor itself, so that no GPU needs to be hidden."""
    if framework == "opencl":
        first = "Lessons on OpenCL pass over such a device. If there is no other, take another driver."
        return f"{first} {opencl.other_compiler(host)}"
    if framework in backends.BACKENDS:
        first = "If Keras computes with {framework}, take another framework until that is mended."
        return f"{first} {choose(host, 'KERAS_BACKEND', '{other}')}\n{reinstall_or_ask(host)}"
    return reinstall_or_ask(host)


def _amds_part(host: Host) -> str:
    name, value = ("KERAS_BACKEND", "tensorflow") if host.system == "Windows" else ("HIP_VISIBLE_DEVICES", "-1")
    return (
        "Install the package with its part for your GPU, with another name for {target} if the table of "
        "docs/amd-linux.md has one for it:\n"
        f"{amd.torch_for(host)}\nUntil then compute on the processor. {choose(host, name, value)}"
    )


def _right_again(host: Host) -> str:
    again = f"{_another(host)}\nUpdate the system, the driver and {{framework}}."
    if host.system != "Linux":
        return again
    return f"{again} If {amd_gpus.OVERRIDE} is set, remove it:\n    {unset_variable(host, amd_gpus.OVERRIDE)}"


def _late(host: Host) -> str:
    return once_quiet(host, hand_over(host, "restart the computer, and type it once more."))


def _smaller(host: Host) -> str:
    return (
        "Close other notebooks and programs that use the GPU (Kernel > Shut Down All Kernels), and let frameworks take "
        f"only what they need:\n    {set_variable(host, 'TF_FORCE_GPU_ALLOW_GROWTH', 'true')}\n"
        f"    {set_variable(host, 'XLA_PYTHON_CLIENT_PREALLOCATE', 'false')}"
    )


def _more_room(host: Host) -> str:
    close = "Close other programs and notebooks (Kernel > Shut Down All Kernels), then look again:"
    return f"{close}\n    {command(host, 'doctor')}"


EXAMPLE = {"other": "jax", "hide": "CUDA_VISIBLE_DEVICES"}
WRONG = Failure(
    "devices-wrong", "device", "limits",
    "{device} computes wrongly with {framework}: a small product differs from NumPy's ({reason}).",
    "It says nothing of that itself: a training would run and learn nothing. Metal has done so, and GPUs that pass for "
    "another one.",
    _right_again,
    "https://github.com/tensorflow/tensorflow/issues/92564 (2025-05); https://github.com/pytorch/pytorch/issues/192212",
    ("apple", "amd-linux", "nvidia"),
    {**EXAMPLE, "device": "Apple M4 GPU", "framework": "PyTorch", "reason": "by up to 0.7"},
)  # fmt: skip
NO_CODE = Failure(
    "devices-no-code", "device", "limits",
    "{device} is listed by {framework} and cannot compute: {reason}.",
    "{framework}'s package holds no machine code for this generation of GPUs. The list does not show that; the first "
    "operation does.",
    lambda host: f"{nvidia.TOO_LOW.next(host)}\n{_another(host)}",
    "https://github.com/Kaggle/docker-python/issues/1546; https://github.com/tensorflow/tensorflow/issues/89272",
    ("nvidia", "hosted"),
    {**EXAMPLE, "device": "Tesla P100-PCIE-16GB", "framework": "PyTorch",
     "reason": "CUDA error: no kernel image is available for execution on the device"},
)  # fmt: skip
NO_AMD_CODE = Failure(
    "devices-no-amd-code", "device", "limits",
    NO_CODE.what, NO_CODE.why, _amds_part,
    "https://github.com/ROCm/pytorch/issues/2730 (2025-10); https://github.com/ROCm/TheRock/issues/3392",
    ("amd-linux", "amd-windows"),
    {"device": "AMD Radeon RX 7600", "framework": "PyTorch", "reason": "HIP error: invalid device function",
     "target": "gfx1102"},
)  # fmt: skip
NO_MEMORY = Failure(
    "devices-memory", "device", "note",
    "{device} had no memory for a small product with {framework}: {reason}.",
    "Another program or notebook holds it: TensorFlow and JAX take most of a GPU at the start.",
    _smaller, "https://www.tensorflow.org/guide/gpu", ("nvidia", "amd-linux"),
    {"device": "NVIDIA GeForce RTX 3060", "framework": "JAX", "reason": "RESOURCE_EXHAUSTED: Out of memory"},
)  # fmt: skip
OLD_DRIVER = Failure(
    "devices-driver", "device", "limits",
    "{device} is listed by {framework} and cannot compute: {reason}.",
    "{framework}'s code was compiled with a newer CUDA than the GPU's driver knows.",
    nvidia.DRIVER_TOO_OLD.next,
    "https://github.com/srush/GPU-Puzzles/issues/48; https://github.com/googlecolab/colabtools/issues/5081",
    ("nvidia", "hosted"), {"device": "Tesla T4", "framework": "JAX", "reason": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
)  # fmt: skip
FELL_BACK = Failure(
    "devices-fell-back", "device", "note",
    "{framework} offers {device}, and computes on the processor instead.",
    "A part that cannot be loaded, or cannot do an operation, is left out without an error. For ONNX Runtime the cause "
    "is mostly a CUDA or cuDNN of another version than its package was built for.",
    lambda host: "Nothing breaks: it is slower. See what it was built for, and what of that is here; lesson 10 shows "
    f"which package brings what:\n    {python_command(host)} -c "
    "'import onnxruntime; onnxruntime.print_debug_info()'",
    "ONNX Runtime's page on execution providers; this course's own trials", ("nvidia", "directml"),
    {"framework": "ONNX Runtime", "device": "NVIDIA GPUs (ONNX Runtime, GPU)"},
)  # fmt: skip
FAILS = Failure(
    "devices-fails", "device", "limits",
    "{device} is listed by {framework} and cannot compute: {reason}.",
    "A device that is listed is not yet one that computes. These are {framework}'s own words for a small product.",
    _another, "this course's own trials", ("nvidia", "amd-linux", "amd-windows", "apple"),
    {**EXAMPLE, "device": "NVIDIA GeForce RTX 5070", "framework": "PyTorch", "reason": "the reason in its own words"},
)  # fmt: skip
LATE = Failure(
    "devices-late", "device", "note",
    "{device} did not answer within {seconds} s.",
    "Each device multiplies two small matrices for this report. A slow answer proves nothing: it may compute right.",
    _late, "this course's own trials: a busy machine", ("cpu", "nvidia", "amd-linux", "amd-windows", "apple"),
    {"device": "AMD EPYC (PoCL 3.1, OpenCL, CPU)", "seconds": "15"},
)  # fmt: skip
FAILURES = (WRONG, OLD_DRIVER, NO_CODE, NO_AMD_CODE, NO_MEMORY, FELL_BACK, FAILS, LATE)
SIDE = ("onnxruntime",)  # frameworks of a lesson's part; what fails there is a note
WORDS: tuple[tuple[str, Failure, tuple[Callable[[Facts], Iterator[Finding]], ...]], ...] = (
    # what the framework says (the first row that fits), the failure, the findings that tell the same with more detail
    (r"out of memory|RESOURCE_EXHAUSTED|\bOOM\b", NO_MEMORY, ()),
    (r"UNSUPPORTED_PTX_VERSION|driver version is insufficient", OLD_DRIVER, (nvidia.driver_too_old,)),
    (
        r"HIP error|hipError|invalid device function",
        NO_AMD_CODE,
        (amd.torch_kernels, amd.tensorflow_target, amd.override),
    ),
    (r"no kernel image|INVALID_PTX|sm_\d+|invalid image", NO_CODE, (nvidia.capability, nvidia.rtx_50)),
    (r"^it fell back", FELL_BACK, ()),
    ("", FAILS, ()),
)
OWN = (("webgpu", ""), ("opencl", products.CANNOT_COMPILE))  # told by the family of that name, where the words stand


def proofs(facts: Facts) -> Seen:
    """Does every listed device compute right; a failure whose cause is told already is not told twice."""
    right = sum(proof.verdict == "right" for proof in facts.proofs)
    if right:
        yield f"small products: {right} of {len(facts.proofs)} devices compute right"
    if late := [proof for proof in facts.proofs if proof.verdict == "late"]:
        seconds = re.findall(r"within ([\d.]+) s", " ".join(proof.reason for proof in late))
        waited = min(map(float, seconds), default=AGAIN_SECONDS / 2)
        yield LATE.found(facts.host, device=listed([proof.device for proof in late]), seconds=f"{waited:g}")
    for proof in facts.proofs:
        if any(proof.framework == family and words in proof.reason for family, words in OWN):
            continue
        if proof.verdict == "wrong":
            yield _tell(WRONG, facts, proof)
        elif proof.verdict == "failed":
            _, failure, causes = next(row for row in WORDS if re.search(row[0], proof.reason, re.IGNORECASE))
            if not any(any(cause(facts)) for cause in causes):
                yield _tell(failure, facts, proof)


def _tell(failure: Failure, facts: Facts, proof: Proof) -> Finding:
    title = FRAMEWORKS[proof.framework].title
    reason = proof.reason.splitlines()[0].rstrip(".") if proof.reason else "it gives no reason"
    other = "tensorflow" if proof.framework == "jax" else "jax"
    severity = "note" if proof.framework in SIDE else ""
    targets = [gpu.target for gpu in amd_gpus.gpus(facts)] or [amd_gpus.by_name(proof.device)]
    target = next(filter(None, targets), amd_gpus.UNKNOWN)
    hide = "HIP_VISIBLE_DEVICES" if re.search("AMD|Radeon", proof.device) else EXAMPLE["hide"]
    if proof.kind != "gpu":
        advice = _more_room if failure is NO_MEMORY else lambda host: _on_the_processor(host, proof.framework)
        failure = replace(failure, next=advice)
    values = {"device": proof.device, "framework": title, "reason": reason}
    return failure.found(facts.host, severity, **values, other=other, hide=hide, target=target)


JUDGES = (proofs,)
