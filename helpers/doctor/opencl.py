"""Findings about OpenCL: drivers that are missing, hidden, hanging, half removed, or older than the processor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from helpers.compute import devices, products
from helpers.compute.devices import Device
from helpers.compute.host import Host, binder_link, command, python_command, set_variable, system_package
from helpers.doctor import amd, amd_gpus, nvidia, windows
from helpers.doctor.facts import AGAIN_SECONDS, LOADER_VARIABLES, WITHOUT_LOADER_VARIABLES, Facts, late
from helpers.doctor.findings import TYPE_IT, Failure, Finding, Seen, forget, listed, newer_driver, once_quiet
from helpers.errors import WorkshopError

LESSONS = "The lessons on OpenCL"
INTEL = "8086"  # on the PCI bus: https://pci-ids.ucw.cz
VENDORS = "etc/OpenCL/vendors"  # each file there, *.icd, names the library of a driver
LIBRARY_FOLDERS = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib", "usr/lib/wsl/lib")  # and their subfolders

# ------------------------------------------------------------------------------------------------------- what to do


def other_compiler(host: Host) -> str:
    """Return how to get an OpenCL driver whose compiler is newer than the one that is here."""
    if host.system != "Linux" or host.machine != "x86_64":
        return get_driver(host)
    apt = f"Install your distribution's PoCL, which is newer:\n    {system_package(host, 'pocl')}"
    if host.installed_by != "venv":
        return apt
    intel = f"    {command(host, 'lab')} --with intel-opencl"
    return f"Without root, Intel's OpenCL for processors, AMD's too (a download of about 300 MB):\n{intel}\nOr: {apt}"


def get_driver(host: Host) -> str:
    """Return how to get an OpenCL driver; PoCL makes the CPU an OpenCL device where no GPU's driver is there."""
    if host.installed_by == "binder":
        return f"Start again from the Binder link, which brings PoCL:\n    {binder_link()}"
    conda = (
        "\n    conda env create -f environment-opencl.yml\n    conda activate any-gpu-workshop-opencl"
        "\n    pip install --no-deps -e .\n    python -m helpers lab"
        f"\nOr nothing to install, in a browser:\n    {binder_link()}"
    )
    if host.installed_by == "conda":
        return f"Take pyopencl and PoCL both from conda-forge (those from pip do not mix with them):{conda}"
    if host.system == "Windows":
        first = "The driver of your graphics card brings OpenCL: install the newest from AMD, Intel or NVIDIA."
        return f"{first} Or take PoCL, for the CPU, from conda-forge (pip has none for Windows):{conda}"
    if host.system == "Darwin":
        first = (
            "macOS has OpenCL built in, for its GPUs too, and pip's PyOpenCL calls that one: update macOS. In a "
            "virtual machine there is none."
        )
        if host.machine != "arm64":  # requirements/conda-opencl.txt leaves Intel Macs out
            return (
                f"{first} Then look again:\n    {command(host, 'devices')}\nLesson 14 reaches a GPU in another way, by "
                f"WebGPU. Or nothing to install, in a browser:\n    {binder_link()}"
            )
        return (
            f"{first} On Apple Silicon PoCL, from conda-forge, makes the CPU a device (our list of packages for conda "
            f"leaves Intel Macs out). OpenCL then leaves your GPU unused; lesson 14 uses it:{conda}"
        )
    pocl = f"    {system_package(host, 'pocl')}"
    apt = f"Install PoCL, which makes the CPU an OpenCL device:\n{pocl}"
    if host.nvidia and not host.wsl:  # NVIDIA has no OpenCL in WSL
        apt = (
            "NVIDIA's driver is here, but it is not registered with OpenCL, as in many containers. As root:\n"
            "    mkdir -p /etc/OpenCL/vendors\n"
            "    echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd\n"
            f"(A container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility too.) Or, for the CPU:\n{pocl}"
        )
    if host.machine != "x86_64":
        return f"{apt}\nOr, without root, take it from conda-forge (pip has no PoCL for this processor):{conda}"
    pip = f"    {python_command(host)} -m pip install pocl-binary-distribution"
    return f"{apt}\nOr, without root, by pip, which has PoCL for this processor:\n{pip}"


def _gpu_driver(host: Host, makers: Sequence[str] = ("NVIDIA", "Intel", "AMD")) -> str:
    look = f"\n    {command(host, 'devices')}"
    if host.system == "Windows":
        first = "Install the newest graphics driver from the maker's own page (AMD, Intel or NVIDIA): it brings OpenCL."
        return f"{first} Restart Windows, then look again:{look}"
    if host.system == "Darwin":
        first = "macOS itself brings OpenCL for its GPUs, but not in a virtual machine. Update macOS, then look again:"
        return f"{first}{look}\nLesson 14 reaches the GPU in another way, by WebGPU."
    rusticl = set_variable(host, "RUSTICL_ENABLE", "radeonsi")
    ways = {
        "NVIDIA": "NVIDIA (the driver is here, and not registered with OpenCL, as in many containers). As root:\n"
        "    mkdir -p /etc/OpenCL/vendors\n    echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd",
        "Intel": f"Intel:\n    {system_package(host, 'intel')}",
        "AMD": f"AMD, by Mesa:\n    {system_package(host, 'mesa')}\n    {rusticl}",
    }
    return "\n".join(ways[maker] for maker in ways if maker in makers)


def _after_hanging(host: Host) -> str:
    newer = newer_driver(host, "update or remove the OpenCL driver that was installed last")
    look = f"Then look again:\n    {command(host, 'devices')}"
    return once_quiet(host, f"restart the computer. If it still hangs, {newer}. {look}")


def _system_loader(host: Host) -> str:
    if host.installed_by == "conda":
        return "Let conda's loader see the system's drivers:\n    conda install -c conda-forge ocl-icd-system"
    return (
        "See what the loader of pip's PyOpenCL does with each driver, and hand it to whoever helps you:\n"
        f"    OCL_ICD_DEBUG=7 {python_command(host)} -c 'import pyopencl; print(pyopencl.get_platforms())'"
    )


def _icd(host: Host) -> str:
    return (
        "Remove the file, if you removed the driver; or install the driver again (PoCL):\n    sudo rm {file}\n"
        f"    {system_package(host, 'pocl')}"
    )


def _render_group(host: Host) -> str:
    return (
        "Join the group, then log out and in again:\n    sudo usermod -a -G render,video $LOGNAME\n"
        "This must name it:\n    groups"
    )


def _rusticl(host: Host) -> str:
    first = "Mesa's rusticl shows a GPU only when asked to (radeonsi: AMD, iris: Intel):"
    return f"{first}\n    {set_variable(host, 'RUSTICL_ENABLE', 'radeonsi')}\n{get_driver(host)}"


TESTED = "tested with PyOpenCL 2026.1.4's Linux wheel, whose loader is ocl-icd"
PAGES = ("opencl",)
TOO_OLD = "Its compiler is older than this processor."
NO_SUCH_PLACE = Failure(
    "opencl-vendors-missing", "OpenCL", "limits",
    "OCL_ICD_VENDORS is set to {value}, and there is no such place.",
    "OpenCL then finds no driver at all, not even the PoCL that came with the workshop.",
    lambda host: forget(host, "OCL_ICD_VENDORS"), TESTED, PAGES, {"value": "/etc/OpenCL/vendors"},
)  # fmt: skip
HIDDEN = Failure(
    "opencl-hidden", "OpenCL", "limits",
    "{names} hides {which}: {devices}.",
    "{values}: OpenCL looks for drivers there instead of where they are installed. Without it they appear.",
    "{unset}", TESTED, PAGES,
    {"names": "OCL_ICD_VENDORS", "which": "every OpenCL device", "devices": "AMD EPYC (PoCL 3.0, OpenCL, CPU)",
     "values": "OCL_ICD_VENDORS is '/empty'",
     "unset": f"{TYPE_IT}\n    unset OCL_ICD_VENDORS"},
)  # fmt: skip
IGNORED = Failure(
    "opencl-filenames-ignored", "OpenCL", "note",
    "OCL_ICD_FILENAMES is set ({value}), and PyOpenCL ignores it.",
    "It belongs to Khronos' loader. The loader in PyOpenCL's Linux packages, ocl-icd, reads OCL_ICD_VENDORS instead: a "
    "folder, one .icd file or one library.",
    lambda host: f"Name the driver so (a folder's drivers, one .icd file, or one library), then start the workshop "
    f"from "
    f"the same terminal:\n    {set_variable(host, 'OCL_ICD_VENDORS', '{value}')}\nOr remove the variable:\n"
    f"    {forget(host, 'OCL_ICD_FILENAMES').splitlines()[-1].strip()}",
    "https://github.com/inducer/pyopencl/issues/797 (2024-10); " + TESTED, PAGES, {"value": "/opt/driver/libdriver.so"},
)  # fmt: skip
HANGS = Failure(
    "opencl-hangs", "OpenCL", "note",
    "OpenCL did not answer within {seconds} s.",
    "On a busy machine it takes longer. Or one of the installed drivers hangs when it is asked for its devices. "
    f"{LESSONS} would then hang, too.",
    _after_hanging, "this course's own trials", ("opencl", "amd-windows", "apple"), {"seconds": "30"},
)  # fmt: skip
CANNOT_COMPILE = Failure(
    "opencl-cannot-compile", "OpenCL", "limits",
    "The OpenCL device here cannot be used: {message}.", f"{TOO_OLD} {LESSONS} need one that compiles.",
    lambda host: other_compiler(host), "https://github.com/pocl/pocl/issues/1049; this course's own trials", PAGES,
    {"message": "0:0 (PoCL 3.0-rc2): it cannot compile: error: unknown target CPU 'generic'"},
)  # fmt: skip
ONE_CANNOT_COMPILE = Failure(
    "opencl-one-cannot-compile", "OpenCL", "note",
    "An OpenCL device here cannot be used: {message}.", f"{TOO_OLD} Nothing is lost: another OpenCL device works.",
    "Nothing to do.",
    CANNOT_COMPILE.source, PAGES, CANNOT_COMPILE.example,
)  # fmt: skip
NO_DEVICE = Failure(
    "opencl-no-device", "OpenCL", "limits",
    "There is no OpenCL device here: {message}.",
    f"No OpenCL driver is installed, or none that works. {LESSONS} need one; the others do not.",
    lambda host: get_driver(host), "https://documen.tician.de/pyopencl/misc.html (2026-06-28)",
    ("opencl", "amd-windows", "apple", "intel", "nvidia", "cpu"),
    {"message": "no OpenCL platform found, no driver is registered"},
)  # fmt: skip
RUSTICL = Failure(
    "opencl-rusticl", "OpenCL", "limits",
    NO_DEVICE.what, "Mesa's driver rusticl is here, and shows no GPU unless a variable names the kind.", _rusticl,
    "https://docs.mesa3d.org/rusticl", PAGES, {"message": "platform 0 (rusticl) shows no device"},
)  # fmt: skip
BROKEN_ICD = Failure(
    "opencl-icd-without-library", "OpenCL", "note",
    "{file} names the driver {library}, and there is no such library.",
    "A driver was removed and left its entry behind, or its entry came without it. OpenCL passes over it.",
    _icd, "tested on Debian: apt-get remove pocl-opencl-icd leaves pocl.icd", PAGES,
    {"file": "/etc/OpenCL/vendors/pocl.icd", "library": "libpocl.so.2"},
)  # fmt: skip
RENDER = Failure(
    "opencl-render-group", "OpenCL", "note",
    "You may not open the GPU: {files}.",
    "The file belongs to the group render, and you are not in it. OpenCL and Vulkan then see no GPU.",
    _render_group, "https://dgpu-docs.intel.com: the user is in the group render", ("intel", "opencl"),
    {"files": "/dev/dri/renderD128"},
)  # fmt: skip
LOADER = Failure(
    "opencl-other-loader", "OpenCL", "note",
    "clinfo shows a GPU ({gpu}), and PyOpenCL does not.",
    "Both ask a loader for the drivers, and each has one of its own: clinfo the system's, PyOpenCL the one in its "
    "package.",
    _system_loader, "https://github.com/inducer/pyopencl/issues/906 (2026-05); PyOpenCL's doc/misc.rst", PAGES,
    {"gpu": "AMD Radeon RX 6600 XT"},
)  # fmt: skip
GPU_MISSING = Failure(
    "opencl-gpu-missing", "OpenCL", "note",
    "There is a GPU here ({gpu}), and OpenCL sees none.",
    "OpenCL needs a driver for it, which is not installed here or not found. The lessons compute on the processor.",
    _gpu_driver,
    "https://github.com/ProjectPhysX/FluidX3D/blob/master/DOCUMENTATION.md; https://wiki.archlinux.org/title/GPGPU; "
    "https://docs.mesa3d.org/rusticl; https://github.com/NVIDIA/nvidia-container-toolkit/pull/1893",
    ("opencl", "intel", "amd-linux", "amd-windows", "nvidia"), {"gpu": "Intel Arc A770"},
)  # fmt: skip
FAILURES = (
    NO_SUCH_PLACE, HIDDEN, IGNORED, BROKEN_ICD, RENDER, HANGS, CANNOT_COMPILE, RUSTICL, NO_DEVICE, ONE_CANNOT_COMPILE,
    LOADER, GPU_MISSING,
)  # fmt: skip

# ----------------------------------------------------------------------------------------------------- looked at alone


def variables(host: Host) -> Seen:
    """Without asking a driver: does OCL_ICD_VENDORS send OpenCL's loader to a place that does not exist."""
    value = os.environ.get("OCL_ICD_VENDORS", "")
    # A bare library name is looked up by the system. OPENCL_VENDOR_PATH does not hide the PoCL that pip brought.
    if host.system == "Linux" and "/" in value and not Path(value).exists():
        yield NO_SUCH_PLACE.found(host, value=value)


def choice(host: Host) -> Seen:
    """Does PYOPENCL_CTX name a device; for a subprocess, since PyOpenCL itself is asked."""
    if not os.environ.get("PYOPENCL_CTX") or not devices.installed("opencl"):
        return
    from helpers.compute import opencl

    try:
        opencl.pick_device()
    except WorkshopError as error:
        if "PYOPENCL_CTX" in error.what:  # anything else is told of OpenCL itself
            why = f"PyOpenCL says: {error.why}. {LESSONS} stop while it is set."
            yield Finding("OpenCL", "limits", error.what, why, forget(host, "PYOPENCL_CTX"), "opencl-choice")


# ----------------------------------------------------------------------------------------------- judged by the facts


def filenames(facts: Facts) -> Iterator[Finding]:
    """Is OCL_ICD_FILENAMES set, where the loader does not read it; Windows' and Khronos' own do."""
    value = facts.variables.get("OCL_ICD_FILENAMES")
    if value and facts.host.system == "Linux" and facts.has("pyopencl"):
        yield IGNORED.found(facts.host, value=value)


def broken_icd(facts: Facts) -> Iterator[Finding]:
    """Does an .icd file of the system name a library that is not there; only told where the libraries are known."""
    known = set(re.findall(r"^\s+(\S+) \(", facts.said("ldconfig"), re.MULTILINE))
    folder = facts.root / VENDORS
    if facts.host.system != "Linux" or not folder.is_dir():
        return
    for file in sorted(folder.glob("*.icd")):
        library = facts.text(f"{VENDORS}/{file.name}").strip()
        if not library or "\n" in library:
            continue
        if "/" in library:
            gone = not facts.there(library.lstrip("/"))
        else:
            gone = bool(known) and library not in known and not _in_a_folder(facts, library)
        if gone:
            yield BROKEN_ICD.found(facts.host, file=f"/{VENDORS}/{file.name}", library=library)


def _in_a_folder(facts: Facts, library: str) -> bool:
    """Whether a library lies where programs look, or beside PyOpenCL."""
    named = [Path(part) for part in facts.variables.get("LD_LIBRARY_PATH", "").split(":") if part]
    places = [facts.root / folder for folder in LIBRARY_FOLDERS]
    places += [child for place in places if place.is_dir() for child in place.glob("*-linux-gnu*")]
    return any((place / library).exists() for place in [*named, *places])


def drivers(facts: Facts) -> Seen:
    """Is there an OpenCL device, and if not, is there one that a variable hides."""
    answer, host = facts.answers.get("opencl"), facts.host
    if answer is None or answer.state == "not installed":
        return  # a missing package is told as one
    there = sorted({str(device) for device in answer.devices if device.usable})
    names = [name for name in LOADER_VARIABLES if name in facts.variables]
    without = facts.answers.get(WITHOUT_LOADER_VARIABLES)
    seen = {str(device) for device in answer.devices if device.usable or late(device)}
    compared = without is not None and answer.state != "timed out"
    hidden = sorted({str(device) for device in without.devices if device.usable} - seen) if compared else []
    refused = [one for one in answer.devices if products.CANNOT_COMPILE in one.computes]
    message = answer.message or "no driver has any"
    if hidden:
        which = "OpenCL devices" if there else "every OpenCL device"
        values = ", ".join(f"{name} is {facts.variables[name]!r}" for name in names)
        severity, gone, unset = "note" if there else "limits", ", ".join(hidden), forget(host, *names)
        joined = " and ".join(names)
        yield HIDDEN.found(host, severity, names=joined, which=which, devices=gone, values=values, unset=unset)
    elif answer.state == "timed out":
        yield HANGS.found(host, seconds=f"{AGAIN_SECONDS:g}")
    elif not seen and refused:
        yield CANNOT_COMPILE.found(host, message=_refusals(refused))
    elif not answer.devices:
        yield (RUSTICL if "rusticl" in message else NO_DEVICE).found(host, message=message)
    if there and refused:
        yield ONE_CANNOT_COMPILE.found(host, message=_refusals(refused))
    if there:
        yield f"OpenCL: {', '.join(there)}"


def _refusals(refused: list[Device]) -> str:
    return "; ".join(f"{one.identifier} ({one.runtime or one.name}): {one.reason}" for one in refused)


def render_group(facts: Facts) -> Iterator[Finding]:
    """May this user open the GPU's render node; for AMD's GPUs that ROCm reaches the family amd tells it."""
    closed = [] if any(amd.groups(facts)) else [file for file in amd_gpus.no_access(facts) if "renderD" in file]
    if closed and facts.graphics_cards() and facts.sees_gpu("opencl") is False:
        yield RENDER.found(facts.host, files=listed(closed))


def other_loader(facts: Facts) -> Iterator[Finding]:
    """Does clinfo show a GPU that PyOpenCL does not: Oblomov's clinfo and AMD's own write differently."""
    text = facts.said("clinfo")
    gpu = _clinfo_gpu(text)
    if gpu and facts.sees_gpu("opencl") is False and not any(_hides(facts)):
        yield LOADER.found(facts.host, gpu=gpu)


def _clinfo_gpu(text: str) -> str:
    for block in re.split(r"^\s*Device Name |^\s*Device Type:", text, flags=re.MULTILINE)[1:]:
        if re.search(r"^\s*Device Type\s+GPU\b", block, re.MULTILINE):
            board = re.search(r"Device Board Name \(AMD\)\s+(.+)", block)
            return (board[1] if board else block.splitlines()[0]).strip()
        if re.match(r"\s*CL_DEVICE_TYPE_GPU", block):
            board = re.search(r"Board name:\s*(.+)", block)
            return board[1].strip() if board else "a GPU"
    return ""


def _hides(facts: Facts) -> Iterator[str]:
    return (name for name in LOADER_VARIABLES if name in facts.variables)


def gpu_missing(facts: Facts) -> Iterator[Finding]:
    """Is there a GPU that OpenCL does not see, and that Vulkan, the PCI bus or Windows shows."""
    if facts.sees_gpu("opencl") is not False or facts.host.hosted:
        return
    if facts.host.system == "Windows" and facts.answers["opencl"].devices and (cards := windows.cards(facts)):
        yield GPU_MISSING.found(facts.host, gpu=listed(cards))  # without any device it is told as that
    if facts.host.system != "Linux":
        return
    if any(_hides(facts)) or any(other_loader(facts)) or any(render_group(facts)) or any(amd.groups(facts)):
        return
    makers = {INTEL: "Intel", amd_gpus.VENDOR: "AMD"} if facts.there("dev/dri/renderD128") else {}
    makers |= {nvidia.VENDOR: "NVIDIA"} if nvidia.there(facts) and not facts.host.wsl else {}
    here = [makers[card] for card in dict.fromkeys(facts.graphics_cards()) if card in makers]
    named = re.findall(r"deviceType\s*= \w*(?:DISCRETE|INTEGRATED)_GPU\s+deviceName\s*= (.+)", facts.said("vulkaninfo"))
    if here:
        gpu = listed([name.strip() for name in named] or here)
        yield replace(GPU_MISSING, next=lambda host: _gpu_driver(host, here)).found(facts.host, gpu=gpu)


JUDGES = (filenames, broken_icd, render_group, drivers, other_loader, gpu_missing)
