"""Finds what is wrong with OpenCL: drivers that are missing, hidden, or older than the processor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from helpers.devices import Device, products
from helpers.devices.device import preference
from helpers.doctor import gpus
from helpers.doctor.facts import Facts, is_late
from helpers.doctor.findings import Finding, Results, advise, join_some, tell
from helpers.doctor.gpu_findings import tell_hidden

DRIVERS = "/etc/OpenCL/vendors"  # where they are installed, a file NAME.icd for each
REGISTERED_AS = {"Intel": "intel", "AMD": "rusticl|mesa", "NVIDIA": "nvidia"}  # the names of their files there
CACHE = "POCL_CACHE_DIR"  # where PoCL keeps what it has compiled
CHOICE = "PYOPENCL_CTX"  # the platform and device that PyOpenCL and the lessons choose
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")  # they name folders of OpenCL's drivers


def find_no_device(facts: Facts) -> Results:
    """Find that there is no OpenCL device, or none that compiles, or that a variable leads away from the drivers."""
    answer, host = facts.answers.get("opencl"), facts.host
    if answer is None or answer.state in ("not installed", "timed out"):
        return  # reported as a missing package, or with everything that did not answer
    usable = sorted({str(device) for device in answer.devices if device.is_usable})
    if usable:
        yield f"OpenCL: {', '.join(usable)}"
    if answer.devices:
        yield from _find_refusals(facts, answer.devices)
    elif any(not _has_driver(Path(facts.variables[name])) for name in _list_diversions(facts)):
        yield _tell_hidden_drivers(facts, "limits", "every OpenCL device")
    else:
        registered = _list_drivers(facts)
        yield tell(
            "opencl-no-device",
            host,
            words=[*(["registered"] if registered else []), *(["cached"] if facts.variables.get(CACHE) else [])],
            files=", ".join(registered),
            message=answer.message or "no driver has any",
        )


def _find_refusals(facts: Facts, devices: Iterable[Device]) -> Results:
    """Find devices whose driver cannot compile: a GPU where no other GPU is left, a processor where no device is."""
    refused = [device for device in devices if products.CANNOT_COMPILE in device.computes]
    is_spare = any(device.is_usable for device in devices)
    on_gpu = [device for device in refused if device.kind == "gpu"]
    if on_gpu and not any(device.is_usable and device.kind == "gpu" for device in devices):
        words, severity = (["gpu", "spare"], "note") if is_spare else (["gpu"], "")
        yield tell("opencl-cannot-compile", facts.host, severity, words, ["opencl"], message=_quote_refusals(on_gpu))
    elif refused and not is_spare and not any(is_late(device) for device in devices):
        yield tell("opencl-cannot-compile", facts.host, about=["opencl"], message=_quote_refusals(refused))


def find_wrong_loops(facts: Facts) -> Results:
    """Find that the lessons' device compiles some loops wrongly, because no driver of its kind is without the fault."""
    answer = facts.answers.get("opencl")
    usable = sorted((device for device in answer.devices if device.is_usable), key=preference) if answer else []
    if usable and usable[0].has_loop_fault:
        is_refused = " " in str(facts.folder) or facts.find_package("intel-opencl-rt")
        words = ["no-driver"] if is_refused else []  # Intel's would not help
        yield tell("opencl-wrong-loops", facts.host, words=words, about=["opencl"], device=usable[0])


def _list_drivers(facts: Facts) -> list[str]:
    """Return the files that register OpenCL's drivers where they are installed, such as "intel.icd"."""
    return sorted(file.name for file in (facts.root / DRIVERS[1:]).glob("*.icd"))


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
    if cards and facts.answers["opencl"].devices:  # without any device it is reported as that
        yield tell("opencl-gpu-missing", facts.host, about=["opencl"], gpu=join_some(cards))


def _find_unseen_on_linux(facts: Facts) -> Results:
    vendors = gpus.list_gpu_vendors(facts)
    if not vendors:
        return
    if _list_diversions(facts) and _list_drivers(facts):
        if facts.answers["opencl"].devices:  # without any it is reported as that
            yield _tell_hidden_drivers(facts, "note", f"OpenCL's drivers for your GPU ({join_some(vendors)})")
        return
    ways = "\n".join(
        advise(f"opencl-for-{vendor.lower()}", facts.host, _list_driver_words(facts, vendor)) for vendor in vendors
    )
    yield tell("opencl-gpu-missing", facts.host, about=["opencl"], gpu=join_some(vendors), ways=ways)


def _list_driver_words(facts: Facts, vendor: str) -> list[str]:
    """Return what the cases of failures.toml may ask: is the vendor's driver registered, and does it list its GPUs."""
    if vendor == "AMD" and any(name.startswith("amdocl") for name in _list_drivers(facts)):
        return ["rocm"]  # ROCm's own OpenCL
    if not any(re.match(REGISTERED_AS[vendor], name) for name in _list_drivers(facts)):
        return ["chosen"] if vendor == "AMD" and facts.variables.get("RUSTICL_ENABLE") else []
    return ["enabled"] if vendor == "AMD" and facts.variables.get("RUSTICL_ENABLE") else ["registered"]


def find_missing_intel(facts: Facts) -> Results:
    """Find that kernels run on the processor, and not with Intel's driver, which the setup installs where it works."""
    answer, host = facts.answers.get("opencl"), facts.host
    if answer is None or answer.state != "ok" or host.installed_by != "venv" or host.machine != "x86_64":
        return
    if host.system not in ("Linux", "Windows") or _list_diversions(facts):
        return
    if any(device.kind != "cpu" or device.vendor.startswith("Intel") for device in answer.devices):
        return
    has_space = " " in str(facts.folder)
    if has_space or facts.find_package("intel-opencl-rt"):
        words = ["space"] if has_space else []
        yield tell("opencl-intel-missing", host, words=words, about=["opencl"], folder=facts.folder)


def find_wrong_number(facts: Facts) -> Results:
    """Find that PYOPENCL_CTX names a platform, or a device of it, that is not there; names are not judged."""
    value, answer = facts.variables.get(CHOICE, ""), facts.answers.get("opencl")
    if answer is None or not answer.devices or not re.fullmatch(r"\d+(:\d+)?", value):
        return
    places = [device.identifier for device in answer.devices]
    if not any(place == value or place.partition(":")[0] == value for place in places):
        yield tell("opencl-wrong-number", facts.host, about=["opencl"], value=value, places=join_some(places))


JUDGES = (find_no_device, find_wrong_loops, find_unseen_gpu, find_missing_intel, find_wrong_number)
