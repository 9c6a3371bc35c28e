"""Findings about devices that are listed and do not compute right: their small product, compared with NumPy's.

`helpers.compute.devices` lets each device compute; `facts.proofs` brings its verdicts here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from helpers.compute import backends, products
from helpers.compute.frameworks import FRAMEWORKS
from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts, Proof
from helpers.doctor.findings import Finding, Results, found

SIDE = ("onnxruntime",)  # frameworks of a lesson's part; what fails there is a note
WORDS: tuple[tuple[str, str, tuple[Callable[[Facts], Results], ...]], ...] = (
    # what the framework says (the first row that fits), the failure, the findings that tell the same with more detail
    (r"out of memory|RESOURCE_EXHAUSTED|\bOOM\b", "devices-memory", ()),
    (r"UNSUPPORTED_PTX_VERSION|driver version is insufficient", "devices-driver", (nvidia.driver_too_old,)),
    (
        r"HIP error|hipError|invalid device function",
        "devices-no-amd-code",
        (amd.torch_kernels, amd.tensorflow_target, amd.override),
    ),
    (r"no kernel image|INVALID_PTX|sm_\d+|invalid image", "devices-no-code", (nvidia.capability, nvidia.rtx_50)),
    (r"^it fell back", "devices-fell-back", ()),
    ("", "devices-fails", ()),
)
OWN = (("webgpu", ""), ("opencl", products.CANNOT_COMPILE))  # told by the family of that name, where the words stand


def proofs(facts: Facts) -> Results:
    """Does every listed device compute right; a failure whose cause is told already is not told twice."""
    right = sum(proof.verdict == "right" for proof in facts.proofs)
    if right:
        yield f"small products: {right} of {len(facts.proofs)} devices compute right"
    for proof in facts.proofs:
        if any(proof.framework == family and words in proof.reason for family, words in OWN):
            continue
        if proof.verdict == "wrong":
            yield _finding("devices-wrong", facts, proof)
        elif proof.verdict == "failed":
            _, failure, causes = next(row for row in WORDS if re.search(row[0], proof.reason, re.IGNORECASE))
            if not any(any(cause(facts)) for cause in causes):
                yield _finding(failure, facts, proof)


def _finding(failure: str, facts: Facts, proof: Proof) -> Finding:
    targets = [gpu.target for gpu in amd.gpus(facts)] or [amd.target_of(proof.device)]
    words = [] if proof.kind == "gpu" else ["processor", proof.framework]
    words += ["backend"] if proof.framework in backends.BACKENDS else []
    return found(
        failure,
        facts.host,
        "note" if proof.framework in SIDE else "",
        words,
        device=proof.device,
        framework=FRAMEWORKS[proof.framework].title,
        reason=proof.reason.splitlines()[0].rstrip(".") if proof.reason else "it gives no reason",
        other="tensorflow" if proof.framework == "jax" else "jax",
        hide="HIP_VISIBLE_DEVICES" if re.search("AMD|Radeon", proof.device) else "CUDA_VISIBLE_DEVICES",
        target=next(filter(None, targets), amd.UNKNOWN),
    )


JUDGES = (proofs,)
