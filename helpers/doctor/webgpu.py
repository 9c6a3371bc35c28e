"""Findings about WebGPU: no adapter, one that computes wrongly, and a GPU that only software stands in for."""

from __future__ import annotations

from helpers.doctor import nvidia
from helpers.doctor.facts import Facts, late
from helpers.doctor.findings import Results, found


def adapters(facts: Facts) -> Results:
    """Is there a WebGPU adapter that computes right, and is it the GPU that is here."""
    answer, host = facts.answers.get("webgpu"), facts.host
    if answer is None or answer.state in ("not installed", "timed out"):
        return  # told as a missing package, or with all else that did not answer
    if not answer.devices:
        yield found("webgpu-no-adapter", host, message=answer.message or "no driver has any")
    for device in answer.devices:
        if not device.usable and not late(device):
            yield found("webgpu-does-not-compute", host, adapter=device, reason=device.reason)
    if right := [device for device in answer.devices if device.usable]:
        names = ", ".join(sorted({str(device) for device in right}))
        if nvidia.works(facts) and all(device.kind == "cpu" for device in answer.devices):
            yield found("webgpu-software-alone", host, names=names)
        yield f"WebGPU: {names}"


JUDGES = (adapters,)
