"""Finds what is wrong with OpenCL: drivers that are missing, hidden, or older than the processor."""

from __future__ import annotations

from pathlib import Path

from helpers.devices import Device, products
from helpers.doctor import gpus
from helpers.doctor.facts import Facts, is_late
from helpers.doctor.findings import Finding, Results, advise, join_some, tell
from helpers.doctor.gpu_findings import tell_hidden

DRIVERS = "/etc/OpenCL/vendors"  # where they are installed, a file NAME.icd for each
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")  # they name folders of OpenCL's drivers


def find_no_device(facts: Facts) -> Results:
    """Find that there is no OpenCL device, or none that compiles, or that a variable leads away from the drivers."""
    answer, host = facts.answers.get("opencl"), facts.host
    if answer is None or answer.state in ("not installed", "timed out"):
        return  # told as a missing package, or with all else that did not answer
    usable = sorted({str(device) for device in answer.devices if device.usable})
    if usable:
        yield f"OpenCL: {', '.join(usable)}"
    elif answer.devices:
        refused = [device for device in answer.devices if products.CANNOT_COMPILE in device.computes]
        if refused and not any(is_late(device) for device in answer.devices):
            yield tell("opencl-cannot-compile", host, message=_quote_refusals(refused))
    elif any(not _has_driver(Path(facts.variables[name])) for name in _list_diversions(facts)):
        yield _tell_hidden_drivers(facts, "limits", "every OpenCL device")
    else:
        yield tell("opencl-no-device", host, message=answer.message or "no driver has any")


def _list_diversions(facts: Facts) -> list[str]:
    """Return the variables that lead OpenCL's loader away from where drivers are installed."""
    return [name for name in LOADER_VARIABLES if (facts.variables.get(name) or DRIVERS).rstrip("/") != DRIVERS]


def _has_driver(folder: Path) -> bool:
    """Return whether drivers are registered in a folder; one whose library is gone is."""
    return any(folder.glob("*.icd"))


def _tell_hidden_drivers(facts: Facts, severity: str, which: str) -> Finding:
    reason = "OpenCL looks for drivers there instead of where they are installed."
    return tell_hidden(facts, _list_diversions(facts), which, reason, severity, ["opencl"])


def _quote_refusals(refused: list[Device]) -> str:
    return "; ".join(f"{device.identifier} ({device.runtime or device.name}): {device.reason}" for device in refused)


def find_unseen_gpu(facts: Facts) -> Results:
    """Find a GPU that OpenCL does not see, and that the PCI bus, NVIDIA's driver or Windows shows."""
    if not facts.has_no_gpu("opencl") or facts.host.hosted:
        return
    if facts.host.system == "Windows":
        yield from _find_unseen_on_windows(facts)
    elif facts.host.system == "Linux":
        yield from _find_unseen_on_linux(facts)


def _find_unseen_on_windows(facts: Facts) -> Results:
    cards = gpus.list_windows_cards(facts)
    if cards and facts.answers["opencl"].devices:  # without any device it is told as that
        yield tell("opencl-gpu-missing", facts.host, about=["opencl"], gpu=join_some(cards))


def _find_unseen_on_linux(facts: Facts) -> Results:
    names = {gpus.INTEL: "Intel", gpus.AMD: "AMD"} if facts.has_file("dev/dri/renderD128") else {}
    makers = [names[card] for card in dict.fromkeys(facts.list_graphics_cards()) if card in names]
    if gpus.is_nvidia_working(facts):
        makers.append("NVIDIA")
    if not makers:
        return
    if _list_diversions(facts) and _has_driver(facts.root / DRIVERS[1:]):
        if facts.answers["opencl"].devices:  # without any it is told as that
            yield _tell_hidden_drivers(facts, "note", f"OpenCL's drivers for your GPU ({join_some(makers)})")
        return
    ways = "\n".join(advise(f"opencl-for-{maker.lower()}", facts.host) for maker in makers)
    yield tell("opencl-gpu-missing", facts.host, about=["opencl"], gpu=join_some(makers), ways=ways)


JUDGES = (find_no_device, find_unseen_gpu)
