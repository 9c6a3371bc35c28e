"""Findings about OpenCL: drivers that are missing, hidden, hanging, or older than the processor."""

from __future__ import annotations

import os
from pathlib import Path

from helpers import devices
from helpers.errors import WorkshopError
from helpers.machine.doctor.findings import CHILD_SECONDS, Finding, Seen, forget
from helpers.machine.host import Host, binder_link, command, python_command, set_variable

LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")
LESSONS = "Lessons 01 to 03 and 12"


def variables(host: Host) -> Seen:
    """Without asking a driver: does OCL_ICD_VENDORS send OpenCL's loader to a place that does not exist."""
    value = os.environ.get("OCL_ICD_VENDORS", "")
    # A bare library name is looked up by the system. OPENCL_VENDOR_PATH does not hide the PoCL that pip brought.
    if host.system == "Linux" and "/" in value and not Path(value).exists():
        what = f"OCL_ICD_VENDORS is set to {value}, and there is no such place."
        why = "OpenCL then finds no driver at all, not even the PoCL that came with the workshop."
        yield Finding("OpenCL", "limits", what, why, forget(host, "OCL_ICD_VENDORS"))


def drivers(host: Host) -> Seen:
    """Is there an OpenCL device, and if not, is there one that a variable hides."""
    answer = devices.ask("opencl", CHILD_SECONDS)
    if answer.state == "not installed":
        return  # a missing package, and told as one
    there = sorted({str(device) for device in answer.devices})
    names = [name for name in LOADER_VARIABLES if name in os.environ]
    without = devices.ask("opencl", CHILD_SECONDS, dict.fromkeys(names)).devices if names else ()
    hidden = sorted({str(device) for device in without} - set(there))
    cannot_compile = devices.CANNOT_COMPILE in answer.message
    too_old = "Its compiler is older than this processor."
    if hidden:
        which = "OpenCL devices" if there else "every OpenCL device"
        what = f"{' and '.join(names)} hides {which}: {', '.join(hidden)}."
        values = ", ".join(f"{name} is {os.environ[name]!r}" for name in names)
        why = f"{values}: OpenCL looks for drivers there instead of where they are installed. Without it they appear."
        yield Finding("OpenCL", "note" if there else "limits", what, why, forget(host, *names))
    elif answer.state == "timed out":
        what = f"OpenCL did not answer within {CHILD_SECONDS:g} s."
        why = f"One of the installed drivers hangs when it is asked for its devices. {LESSONS} would, too."
        advice = "Restart the machine. If it still hangs, update or remove the OpenCL driver that was installed last."
        yield Finding("OpenCL", "limits", what, why, advice)
    elif not there and cannot_compile:
        what = f"The OpenCL device here cannot be used: {answer.message}."
        yield Finding("OpenCL", "limits", what, f"{too_old} {LESSONS} need one that compiles.", other_compiler(host))
    elif not there:
        what = f"There is no OpenCL device here: {answer.message or 'no driver has any'}."
        why = f"No OpenCL driver is installed, or none that works. {LESSONS} need one; the others do not."
        advice = get_driver(host)
        if "rusticl" in answer.message:
            first = "Mesa's rusticl shows a GPU only when asked to (radeonsi: AMD, iris: Intel):"
            advice = f"{first}\n    {set_variable(host, 'RUSTICL_ENABLE', 'radeonsi')}\n{advice}"
        yield Finding("OpenCL", "limits", what, why, advice)
    if there and cannot_compile:
        why = f"{too_old} Nothing is lost: another OpenCL device works."
        yield Finding("OpenCL", "note", f"OpenCL device {answer.message}.", why, "Nothing to do.")
    if there:
        yield f"OpenCL: {', '.join(there)}"


def choice(host: Host) -> Seen:
    """Does PYOPENCL_CTX name a device; for a subprocess, since PyOpenCL itself is asked."""
    if not os.environ.get("PYOPENCL_CTX") or not devices.installed("opencl"):
        return
    from helpers import opencl

    try:
        opencl.pick_device()
    except WorkshopError as error:
        if "PYOPENCL_CTX" in error.what:  # anything else is told of OpenCL itself
            why = f"PyOpenCL says: {error.why}. {LESSONS} stop while it is set."
            yield Finding("OpenCL", "limits", error.what, why, forget(host, "PYOPENCL_CTX"))


def other_compiler(host: Host) -> str:
    """Return how to get an OpenCL driver whose compiler is newer than the one that is here."""
    if host.system != "Linux" or host.machine != "x86_64":
        return get_driver(host)
    apt = "Install your distribution's PoCL, which is newer:\n    sudo apt install pocl-opencl-icd"
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
        first = "macOS has OpenCL built in, but not in a virtual machine."
        return f"{first} PoCL, for the CPU, comes from conda-forge:{conda}"
    apt = "Install PoCL, which makes the CPU an OpenCL device:\n    sudo apt install pocl-opencl-icd"
    if host.nvidia:
        apt = (
            "NVIDIA's driver is here, but it is not registered with OpenCL, as in many containers. As root:\n"
            "    mkdir -p /etc/OpenCL/vendors\n"
            "    echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd\n"
            "(A container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility too.) Or, for the CPU:\n"
            "    sudo apt install pocl-opencl-icd"
        )
    if host.machine != "x86_64":
        return f"{apt}\nOr, without root, take it from conda-forge (pip has no PoCL for this processor):{conda}"
    pip = f"    {python_command(host)} -m pip install pocl-binary-distribution"
    return f"{apt}\nOr, without root, by pip, which has PoCL for this processor:\n{pip}"
