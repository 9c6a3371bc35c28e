"""Findings about OpenCL: drivers that are missing, hidden, or older than the processor."""

from __future__ import annotations

from pathlib import Path

from helpers.devices import Device, products
from helpers.doctor import amd, nvidia, windows
from helpers.doctor.facts import Facts, late
from helpers.doctor.findings import Finding, Results, advise, comma_list, found

INTEL = "8086"  # on the PCI bus: https://pci-ids.ucw.cz
DRIVERS = "/etc/OpenCL/vendors"  # where they are installed, a file NAME.icd for each
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")  # they name folders of OpenCL's drivers


def drivers(facts: Facts) -> Results:
    """Is there an OpenCL device, and if not, does a variable lead away from the drivers."""
    answer, host = facts.answers.get("opencl"), facts.host
    if answer is None or answer.state in ("not installed", "timed out"):
        return  # told as a missing package, or with all else that did not answer
    here = sorted({str(device) for device in answer.devices if device.is_usable})
    refused = [device for device in answer.devices if products.CANNOT_COMPILE in device.computes]
    if refused and not here and not any(late(device) for device in answer.devices):
        yield found("opencl-cannot-compile", host, message=_refusals(refused))
    elif not answer.devices and any(not _has_driver(Path(facts.variables[name])) for name in _elsewhere(facts)):
        yield _hidden(facts, "limits", "every OpenCL device")
    elif not answer.devices:
        yield found("opencl-no-device", host, message=answer.message or "no driver has any")
    if here:
        yield f"OpenCL: {', '.join(here)}"


def _elsewhere(facts: Facts) -> list[str]:
    """The variables that lead OpenCL's loader away from where drivers are installed."""
    return [name for name in LOADER_VARIABLES if (facts.variables.get(name) or DRIVERS).rstrip("/") != DRIVERS]


def _has_driver(folder: Path) -> bool:
    """Whether drivers are registered in a folder; one whose library is gone is."""
    return any(folder.glob("*.icd"))


def _hidden(facts: Facts, severity: str, which: str) -> Finding:
    reason = "OpenCL looks for drivers there instead of where they are installed."
    return nvidia.hidden_by(facts, _elsewhere(facts), which, reason, severity)


def _refusals(refused: list[Device]) -> str:
    return "; ".join(f"{device.identifier} ({device.runtime or device.name}): {device.reason}" for device in refused)


def gpu_missing(facts: Facts) -> Results:
    """Is there a GPU that OpenCL does not see, and that the PCI bus, NVIDIA's driver or Windows shows."""
    if facts.sees_gpu("opencl") is not False or facts.host.hosted:
        return
    if facts.host.system == "Windows" and facts.answers["opencl"].devices and (cards := windows.cards(facts)):
        yield found("opencl-gpu-missing", facts.host, gpu=comma_list(cards))  # without any device it is told as that
    if facts.host.system != "Linux":
        return
    if any(amd.no_access(facts)):
        return
    makers = {INTEL: "Intel", amd.VENDOR: "AMD"} if facts.exists("dev/dri/renderD128") else {}
    here = [makers[card] for card in dict.fromkeys(facts.graphics_cards()) if card in makers]
    here += ["NVIDIA"] if nvidia.works(facts) else []
    if here and _elsewhere(facts) and _has_driver(facts.root / DRIVERS[1:]):
        if facts.answers["opencl"].devices:  # without any it is told as that
            yield _hidden(facts, "note", f"OpenCL's drivers for your GPU ({comma_list(here)})")
    elif here:
        ways = "\n".join(advise(f"opencl-for-{maker.lower()}", facts.host) for maker in here)
        yield found("opencl-gpu-missing", facts.host, gpu=comma_list(here), ways=ways)


JUDGES = (drivers, gpu_missing)
