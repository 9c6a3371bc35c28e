"""Findings about NVIDIA GPUs: driver, generation, what hides them, and frameworks that were not built for them.

Run on one H100; otherwise tested with outputs of nvidia-smi that others have published, of old and new drivers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor.facts import Facts, numbers
from helpers.doctor.findings import Finding, Results, found, together

VENDOR = "10de"  # on the PCI bus: https://pci-ids.ucw.cz
NODES = ("dev/nvidiactl", "dev/nvidia0", "dev/dxg")  # one of them is there where a program can reach a GPU
LISTED = "It lists the GPUs that a program may see, from 0; a number that does not exist ends the list."

# The oldest driver for each CUDA generation: (Linux, Windows and WSL).
# CUDA 12: https://www.tensorflow.org/install/pip (2026-03-11). CUDA 13: JAX's docs/installation.md (2026-08-08).
DRIVERS = {12: ("525.60.13", "528.33"), 13: ("580", "580")}
JAX_PLUGINS = {"jax-cuda12-plugin": 12, "jax-cuda13-plugin": 13}  # the CUDA generation of each
VERSION = re.compile(r"(?:Driver|KMD) Version:\s*(\d+[\d.]+)")  # in nvidia-smi's table, old or new
RTX_50 = (12, 0)  # Blackwell of workstations; https://github.com/tensorflow/tensorflow/issues/89272
TENSORFLOW_WITHOUT_RTX_50 = (2, 21)  # the newest TensorFlow that was seen to fail there; 2.22 is unconfirmed


class Gpu(NamedTuple):
    """An NVIDIA GPU as its driver tells it."""

    name: str
    driver: str
    capability: tuple[int, int]  # of computing, such as (8, 6)


def gpus(facts: Facts) -> list[Gpu]:
    """Return the GPUs by nvidia-smi; none if the driver is before 510 or so, which does not know the question.

    A GPU that fell off the bus has no version.
    """
    row = re.compile(r"^(.+), (\d+\.[\d.]+), (\d+)\.(\d+)\s*$", re.MULTILINE)
    rows = row.findall(_printed(facts, "nvidia-smi gpus"))
    return [Gpu(name, driver, (int(major), int(minor))) for name, driver, major, minor in rows]


def driver(facts: Facts) -> str:
    """Return the driver's version: by nvidia-smi's rows, by its table (old or new), or by the kernel's module.

    The table says "Driver Version: 550.54.15" and since about 610 "KMD Version: 610.43.02".
    """
    rows = gpus(facts)
    table = VERSION.search(_printed(facts, "nvidia-smi"))
    kernel = re.search(
        r"Kernel Module[^\d\n]*(?:x86_64|aarch64)?\s+(\d+\.[\d.]+)", facts.text("proc/driver/nvidia/version")
    )
    return rows[0].driver if rows else (table or kernel or [""] * 2)[1]


def works(facts: Facts) -> bool:
    """Whether an NVIDIA GPU can be expected to compute here: its driver answers.

    A container without devices sees the machine's driver in /proc all the same, and has no nvidia-smi.
    """
    if gpus(facts):
        return True
    return bool(driver(facts)) and not _fails(facts) and (not facts.host.container or facts.exists(*NODES))


def _printed(facts: Facts, tool: str) -> str:
    """Return what a tool printed, though it may have failed.

    With status 14 nvidia-smi warns that the infoROM is corrupted, below its table of GPUs that compute:
    https://docs.nvidia.com/deploy/nvidia-smi
    """
    output = facts.tools.get(tool)
    return output.stdout if output else ""


def _fails(facts: Facts) -> bool:
    """Whether nvidia-smi fails, and shows no driver's version."""
    table = facts.tools.get("nvidia-smi")
    return table is not None and table.state == "failed" and not VERSION.search(table.stdout)


def cuda_builds(facts: Facts) -> dict[str, int]:
    """Return the frameworks that are installed for NVIDIA GPUs, each with the CUDA generation of its libraries.

    TensorFlow's Linux wheel is always built for CUDA; whether it finds its libraries is another question.
    """
    builds = {}
    libraries_here = facts.has("nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12") or facts.sees_gpu("tensorflow")
    if facts.host.system == "Linux" and facts.has("tensorflow") and libraries_here:
        builds["tensorflow"] = 12
    for plugin, generation in JAX_PLUGINS.items():
        if facts.has(plugin):
            builds["jax"] = generation
    if facts.torch.startswith("cuda"):
        builds["torch"] = numbers(facts.torch.split()[1])[0]
    return builds


# --------------------------------------------------------------- each judges the facts, the most fundamental first


def no_driver(facts: Facts) -> Results:
    """Is there a card without its driver; a container's is that of the machine outside.

    WSL has Windows' driver. That of NVIDIA is missed only where its packages are installed: any GPU may be behind WSL.
    """
    if facts.host.wsl:
        if facts.exists("dev/dxg") and cuda_builds(facts) and not facts.exists("usr/lib/wsl/lib/libcuda.so.1"):
            yield found("nvidia-no-driver", facts.host)
        return
    table = facts.tools.get("nvidia-smi")
    missing = not facts.host.nvidia and (table is None or table.state == "missing") and not driver(facts)
    if VENDOR in facts.graphics_cards() and missing and not facts.host.container:
        yield found("nvidia-no-driver", facts.host)


def driver_fails(facts: Facts) -> Results:
    """Does nvidia-smi say that the driver does not work, or fail in another way where the driver is loaded."""
    if gpus(facts) or not _fails(facts):
        return
    table = facts.tools["nvidia-smi"]
    failed = (
        r"NVIDIA-SMI has failed.*|Failed to initialize NVML.*|No devices were found|Unable to determine the device.*"
    )
    text = f"{table.stdout}\n{table.stderr}"
    words = re.search(failed, text) or (driver(facts) and re.search(r"\S.*|$", text))
    if words:
        yield found("nvidia-driver-fails", facts.host, says=words[0].strip().rstrip(".") or "nothing")


def driver_too_old(facts: Facts) -> Results:
    """Is the driver older than what is here needs, or, before the download, than what would be."""
    version = driver(facts)
    builds = cuda_builds(facts)
    windows = facts.host.system == "Windows" or facts.host.wsl
    needs = []
    for framework, generation in (builds or {"": 12}).items():
        floor = DRIVERS.get(generation, ("", ""))[windows]
        if floor and numbers(version) < numbers(floor):
            who = FRAMEWORKS[framework].title if framework else "every package for NVIDIA GPUs"
            needs.append(f"{who} needs {floor} (CUDA {generation})")
    if needs and works(facts):
        severity = "" if builds else "note"
        yield found("nvidia-driver-too-old", facts.host, severity, driver=version, says=", ".join(needs))


def rtx_50(facts: Facts) -> Results:
    """Is stock TensorFlow to compute on an RTX 50, and was not seen to: it lists it and dies at the first operation."""
    new = [gpu for gpu in gpus(facts) if gpu.capability >= RTX_50]
    computes = [device for device in facts.tried_devices() if (device.framework, device.kind) == ("tensorflow", "gpu")]
    if any(device.state == "right" for device in computes):
        return
    if new and "tensorflow" in cuda_builds(facts) and facts.version("tensorflow")[:2] <= TENSORFLOW_WITHOUT_RTX_50:
        severity, version = "" if facts.backend() == "tensorflow" else "note", facts.packages["tensorflow"]
        yield found("nvidia-rtx50-tensorflow", facts.host, severity, version=version, gpu=new[0].name)


def hidden(facts: Facts) -> Results:
    """Does CUDA_VISIBLE_DEVICES hide every GPU."""
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is not None and works(facts) and hides_all(value, len(gpus(facts))):
        yield hidden_by(facts, ["CUDA_VISIBLE_DEVICES"], "every NVIDIA GPU from TensorFlow, JAX and PyTorch")


def hides_all(value: str, many: int) -> bool:
    """Whether a variable that lists GPUs hides all of so many (0: unknown) by its first entry; UUIDs are not judged."""
    first = value.split(",")[0].strip()
    return first in ("", "-1") or bool(many and re.fullmatch(r"-?\d+", first) and not 0 <= int(first) < many)


def hidden_by(facts: Facts, names: list[str], which: str, reason: str = LISTED, severity: str = "") -> Finding:
    """Return the finding that variables hide devices: by listing GPUs, or for another reason."""
    values = ", ".join(f"{name} is {facts.variables[name]!r}" for name in names)
    words = {"names": " ".join(names), "which": which, "values": values, "reason": reason}
    return found("devices-hidden", facts.host, severity, **words)


def libraries(facts: Facts) -> Results:
    """Does TensorFlow find CUDA and cuDNN: its own words, and which packages are here."""
    answer = facts.answers.get("tensorflow")
    if not answer or not works(facts) or facts.sees_gpu("tensorflow") or not facts.has("tensorflow"):
        return
    if facts.host.system != "Linux" or "dlopen" not in answer.message.lower():
        return
    words = [] if "tensorflow" in cuda_builds(facts) else ["none"]
    yield found("nvidia-libraries", facts.host, words=words, says=answer.message)


def cpu_build(facts: Facts) -> Results:
    """Does Keras compute with a framework that was built for processors, though an NVIDIA GPU works here."""
    if not works(facts) or facts.host.system == "Windows":  # there told by the family "windows"
        return
    if any(driver_too_old(facts)) or (facts.backend() == "tensorflow" and any(libraries(facts))):
        return  # told with its cause, or not before the driver is updated
    name = gpus(facts)[0].name if gpus(facts) else f"driver {driver(facts)}"
    yield from for_processors(facts, cuda_builds(facts), "NVIDIA", name)


def for_processors(facts: Facts, builds: Collection[str], maker: str, gpu: str) -> Results:
    """Tell that Keras computes with a framework for processors, and which others are for processors, too.

    Args:
        facts: of the machine.
        builds: the frameworks that were built for the maker's GPUs.
        maker: of the GPU.
        gpu: its name.
    """
    here = {"tensorflow": facts.has("tensorflow", "tensorflow-cpu"), "jax": facts.has("jax"), "torch": facts.torch}
    without = [FRAMEWORKS[name].title for name, installed in here.items() if installed and name not in builds]
    backend = facts.backend()
    if here.get(backend) and backend not in builds and not facts.sees_gpu(backend):
        names = together(without)
        yield found("devices-cpu-build", facts.host, words=[maker], maker=maker, gpu=gpu, frameworks=names)


def not_listed(facts: Facts) -> Results:
    """Does a framework that was built for the GPU list none, and no other finding says why."""
    causes = (driver_fails, driver_too_old, hidden, libraries)
    if not works(facts) or any(list(cause(facts)) for cause in causes):
        return
    yield from lists_none(facts, cuda_builds(facts), "NVIDIA")


def lists_none(facts: Facts, built: Iterable[str], maker: str) -> Results:
    """Tell of each framework that was built for a maker's GPUs and lists none, with what it says."""
    for framework in built:
        if facts.sees_gpu(framework) is False:
            words = facts.answers[framework].message
            values = {"framework": FRAMEWORKS[framework].title, "maker": maker, "says": words and f"It says: {words}"}
            yield found("devices-not-listed", facts.host, **values)


JUDGES = (no_driver, driver_fails, driver_too_old, hidden, rtx_50, libraries, not_listed, cpu_build)
