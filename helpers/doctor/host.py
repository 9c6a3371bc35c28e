"""Findings about the computer itself: Python, memory, disk, a folder to write to, and the chosen profile."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from helpers import ROOT
from helpers.compute.host import (
    Host,
    binder_link,
    cgroup_room,
    command,
    copy_elsewhere,
    python_command,
    set_variable,
)
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Failure, Finding, Seen, forget
from helpers.errors import WorkshopError
from helpers.measure import workload

PYTHONS = ((3, 11), (3, 13))  # the oldest and the newest that the locks are for, as in pyproject.toml
LEAST_MEMORY = 2 << 30  # bytes: a lesson's kernel stays below 1.5 GiB, and JupyterLab wants its share
LEAST_DISK = 3 << 30  # bytes: one accelerator family takes about that much
GIB = 1 << 30


def python(host: Host) -> Seen:
    """Is this Python one that the locks are for."""
    version, oldest, newest = (".".join(map(str, numbers)) for numbers in (host.python, *PYTHONS))
    if PYTHONS[0] <= host.python <= PYTHONS[1]:
        yield f"Python {version}"
        return
    why = f"The workshop runs on Python {oldest} to {newest}; TensorFlow and Keras have no others."
    yield Finding("Python", "stops", f"This is Python {version}.", why, other_python(host), "host-python")


def other_python(host: Host) -> str:
    """Return how to get a Python that the workshop runs on."""
    if host.installed_by == "binder":
        return f"Start again from the Binder link, which brings the right Python:\n    {binder_link()}"
    if host.installed_by == "conda":
        return "Make the workshop's own environment:\n    conda env create -f environment.yml"
    install = {
        "Darwin": "brew install python@3.12",
        "Windows": "py install 3.12  (or: winget install Python.Python.3.12)",
    }.get(host.system, "sudo apt install python3.12 python3.12-venv")
    lab = command(replace(host, installed_by="venv"), "lab")  # whatever made this environment
    return f"{lab} looks for a fitting Python and offers to fetch one. To install one yourself:\n    {install}"


def folder(host: Host, folders: tuple[Path, ...] = (ROOT / "notebooks", ROOT)) -> Seen:
    """Can answers be saved: tried, since rights alone do not say it."""
    for place in filter(Path.is_dir, folders):
        try:
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            what = f"No answers can be saved: {place} cannot be written to."
            yield Finding(
                "folder", "limits", what, f"The system says: {error.strerror}.", copy_elsewhere(host), "host-folder"
            )
            return


def profile(host: Host) -> Seen:
    """Is ANYGPU_PROFILE one of the profiles."""
    try:
        workload.current()
    except WorkshopError as error:
        why = f"{error.why} Lessons do not start with it."
        yield Finding("profile", "limits", error.what, why, forget(host, workload.VARIABLE), "host-profile")


def memory(host: Host) -> Seen:
    """Is there enough memory for one lesson, within the container's limit if there is one."""
    import psutil

    free = min([psutil.virtual_memory().available, *cgroup_room()])
    if free >= LEAST_MEMORY:
        yield f"memory: {free / GIB:.1f} GiB available"
        return
    safe = f"{LEAST_MEMORY / GIB:.1f} GiB is safe"
    why = f"A lesson's kernel takes up to 1.5 GiB, beside JupyterLab and the browser; {safe}."
    advice = "Close other programs, and keep one lesson open at a time (Kernel > Shut Down All Kernels)."
    if os.environ.get(workload.VARIABLE) != "preview":
        advice += f" Lessons can also do less work:\n    {set_variable(host, workload.VARIABLE, 'preview')}"
    yield Finding("memory", "limits", f"Only {free / GIB:.1f} GiB of memory is available.", why, advice, "host-memory")


def disk(host: Host) -> Seen:
    """Is there room for the packages, the dataset and the outputs."""
    free = shutil.disk_usage(ROOT).free
    if free >= LEAST_DISK:
        yield f"disk: {free / GIB:.1f} GiB free"
        return
    what = f"Only {free / GIB:.1f} GiB is free on the disk that holds the workshop."
    safe = f"{LEAST_DISK / GIB:.1f} GiB is safe"
    why = f"Packages, MNIST and outputs want room, and a full disk breaks installs; {safe}."
    tool = "Open Windows' Disk Clean-up (cleanmgr)" if host.system == "Windows" else "Empty the wastebasket"
    purge = f"{tool}, and the cache of pip:\n    {python_command(host)} -m pip cache purge"
    yield Finding("disk", "limits", what, why, purge, "host-disk")


# ----------------------------------------------------------------------------------------------- judged by the facts

ILLEGAL = r"SIGILL|status 3221225501|AVX instructions"  # 3221225501 is Windows' 0xC000001D, an illegal instruction
NO_AVX = Failure(
    "host-no-avx", "processor", "limits",
    "This processor has no AVX instructions, and {frameworks} cannot run on it.",
    "Their packages are compiled with AVX (TensorFlow since 1.6): the import ends with an illegal instruction. "
    "Processors "
    "before 2011 have none, nor have some Pentium and Celeron, and virtual machines that hide it.",
    lambda host: "In a virtual machine, show it the real processor (QEMU: -cpu host). Else open the lessons "
    "elsewhere:\n"
    f"    {binder_link()}\nThe lessons on OpenCL may run here.",
    "https://github.com/tensorflow/tensorflow/issues/35598; TensorFlow 1.6's release notes", ("cpu",),
    {"frameworks": "TensorFlow and JAX"},
)  # fmt: skip
FAILURES = (NO_AVX,)


def no_avx(facts: Facts) -> Iterator[Finding]:
    """Does this processor lack AVX: by /proc/cpuinfo, else by how a framework ended. Rosetta is told elsewhere."""
    if facts.host.machine != "x86_64" or facts.said("sysctl").strip() == "1":
        return
    flags = re.search(r"^flags\s*:(.*)$", facts.text("proc/cpuinfo"), re.MULTILINE)
    ended = [name for name, answer in facts.answers.items() if re.search(ILLEGAL, answer.message)]
    if (flags and "avx" not in flags[1].split()) or (not flags and ended):
        yield NO_AVX.found(facts.host, frameworks="TensorFlow and JAX")


JUDGES = (no_avx,)
