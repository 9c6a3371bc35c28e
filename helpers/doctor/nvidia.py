"""Finds what is wrong with NVIDIA GPUs: their driver, their generation, and frameworks that do not fit them.

Run on one H100; otherwise tested with outputs of nvidia-smi that others have published, of old and new drivers.
"""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor import gpus
from helpers.doctor.facts import Facts, parse_version
from helpers.doctor.findings import Results, tell
from helpers.doctor.gpu_findings import (
    is_hiding_all,
    tell_hidden,
    tell_hidden_from_jax,
    tell_processor_build,
    tell_unlisted,
)

# The oldest driver for each CUDA generation: (Linux, Windows and WSL).
# CUDA 12: https://www.tensorflow.org/install/pip (2026-03-11). CUDA 13: JAX's docs/installation.md (2026-08-08).
DRIVERS = {12: ("525.60.13", "528.33"), 13: ("580", "580")}
JAX_PLUGINS = {"jax-cuda12-plugin": 12, "jax-cuda13-plugin": 13}  # the CUDA generation of each
SECOND_DRIVER = "usr/lib/x86_64-linux-gnu/libcuda.so.1"  # in WSL the driver's library is in usr/lib/wsl/lib alone
RTX_50 = (12, 0)  # Blackwell of workstations; https://github.com/tensorflow/tensorflow/issues/89272
TENSORFLOW_WITHOUT_RTX_50 = (2, 21)  # the newest TensorFlow that was seen to fail there; 2.22 is unconfirmed
DRIVER_FAILS = re.compile(  # what nvidia-smi says then
    r"NVIDIA-SMI has failed.*|Failed to initialize NVML.*|No devices were found|Unable to determine the device.*"
)


def list_cuda_builds(facts: Facts) -> dict[str, int]:
    """Return the frameworks that are installed for NVIDIA GPUs, each with the CUDA generation of its libraries.

    TensorFlow's Linux wheel is always built for CUDA; whether it finds its libraries is another question.
    """
    builds = {}
    has_libraries = facts.find_package("nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12") or facts.has_gpu("tensorflow")
    if facts.host.system == "Linux" and facts.find_package("tensorflow") and has_libraries:
        builds["tensorflow"] = 12
    for plugin, generation in JAX_PLUGINS.items():
        if facts.find_package(plugin):
            builds["jax"] = generation
    if facts.torch.startswith("cuda"):
        builds["torch"] = parse_version(facts.torch.split()[1])[0]
    return builds


# --------------------------------------------------------------- the judges, the most fundamental first


def find_missing_driver(facts: Facts) -> Results:
    """Find a card whose driver is missing; a container's driver is that of the machine outside.

    WSL has Windows' driver. That of NVIDIA is missed only where its packages are installed: any GPU may be behind WSL.
    """
    if facts.host.wsl:
        is_missing = not facts.has_file("usr/lib/wsl/lib/libcuda.so.1")
        if is_missing and facts.has_file("dev/dxg") and list_cuda_builds(facts):
            yield tell("nvidia-no-driver", facts.host, words=gpus.list_branch_words(facts))
        return
    table = facts.tools.get("nvidia-smi")
    has_no_tool = table is None or table.state == "missing"
    is_missing = has_no_tool and not facts.host.nvidia and not gpus.read_nvidia_driver(facts)
    if is_missing and gpus.NVIDIA in facts.list_graphics_cards() and not facts.host.container:
        yield tell("nvidia-no-driver", facts.host, words=gpus.list_branch_words(facts))


def find_failing_driver(facts: Facts) -> Results:
    """Find a driver of which nvidia-smi says that it does not work, or under which that tool fails in another way."""
    if gpus.list_nvidia_gpus(facts) or not gpus.is_nvidia_smi_failing(facts):
        return
    table = facts.tools["nvidia-smi"]
    text = f"{table.stdout}\n{table.stderr}"
    match = DRIVER_FAILS.search(text)
    if not match and gpus.read_nvidia_driver(facts):  # it is loaded, and the tool has words of another kind, or none
        match = re.search(r"\S.*|$", text)
    if not match:
        return
    says = match[0].strip().rstrip(".") or "nothing"
    driver, branch = gpus.read_nvidia_driver(facts), gpus.find_last_branch(facts)
    if branch and parse_version(driver)[:1] > parse_version(branch):
        yield tell(
            "nvidia-driver-too-new",
            facts.host,
            words=gpus.list_branch_words(facts),
            driver=driver,
            branch=branch,
            says=says,
        )
    else:
        lost = ["lost"] if "NVML: Unknown Error" in says else []
        yield tell("nvidia-driver-fails", facts.host, words=[*gpus.list_branch_words(facts), *lost], says=says)


def find_old_driver(facts: Facts) -> Results:
    """Find a driver that is older than what is here needs, or, before the download, than what would be."""
    if not gpus.is_nvidia_working(facts):
        return
    version = gpus.read_nvidia_driver(facts)
    builds = list_cuda_builds(facts)
    is_windows = facts.host.system == "Windows" or facts.host.wsl
    needs = []
    for framework, generation in (builds or {"": 12}).items():
        oldest = DRIVERS.get(generation, ("", ""))[is_windows]
        if oldest and parse_version(version) < parse_version(oldest):
            who = FRAMEWORKS[framework].title if framework else "every package for NVIDIA GPUs"
            needs.append(f"{who} needs {oldest} (CUDA {generation})")
    if needs:
        severity = "" if builds else "note"
        words = gpus.list_branch_words(facts)
        yield tell("nvidia-driver-too-old", facts.host, severity, words, driver=version, says=", ".join(needs))


def find_rtx_50_without_code(facts: Facts) -> Results:
    """Find an RTX 50 on which stock TensorFlow is to compute: it lists the GPU and dies at the first operation."""
    new = [gpu for gpu in gpus.list_nvidia_gpus(facts) if gpu.capability >= RTX_50]
    for device in facts.list_tried_devices():
        if (device.framework, device.kind, device.state) == ("tensorflow", "gpu", "right"):
            return  # it was seen to compute
    version = facts.read_version("tensorflow")[:2]
    if new and "tensorflow" in list_cuda_builds(facts) and version <= TENSORFLOW_WITHOUT_RTX_50:
        yield tell(
            "nvidia-rtx50-tensorflow",
            facts.host,
            "" if facts.backend == "tensorflow" else "note",
            [] if facts.backend == "tensorflow" else ["spare"],
            ["tensorflow"],
            version=facts.packages["tensorflow"],
            gpu=new[0].name,
        )


def find_hidden_gpus(facts: Facts) -> Results:
    """Find that CUDA_VISIBLE_DEVICES hides every GPU, or JAX_PLATFORMS from JAX."""
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is not None and gpus.is_nvidia_working(facts) and is_hiding_all(value, len(gpus.list_nvidia_gpus(facts))):
        yield tell_hidden(facts, ["CUDA_VISIBLE_DEVICES"], "every NVIDIA GPU from TensorFlow, JAX and PyTorch")
    elif gpus.is_nvidia_working(facts):
        yield from tell_hidden_from_jax(facts, list_cuda_builds(facts), "NVIDIA")


def find_missing_libraries(facts: Facts) -> Results:
    """Find that TensorFlow does not load CUDA and cuDNN: by its own words, and which packages are here."""
    answer = facts.answers.get("tensorflow")
    if not answer or "dlopen" not in answer.message.lower() or facts.has_gpu("tensorflow"):
        return
    if facts.host.system == "Linux" and facts.find_package("tensorflow") and gpus.is_nvidia_working(facts):
        builds = list_cuda_builds(facts)
        words = ["path"] if facts.variables.get("LD_LIBRARY_PATH") else []
        if "tensorflow" not in builds:
            words = ["none"]
        yield tell(
            "nvidia-libraries",
            facts.host,
            words=words,
            about=["tensorflow", *builds],  # the frameworks that load the same libraries
            says=answer.message,
        )


def find_unlisted_gpus(facts: Facts) -> Results:
    """Find a framework that was built for NVIDIA GPUs and lists none; in WSL a second driver may be the cause."""
    unlisted = [name for name in list_cuda_builds(facts) if facts.has_no_gpu(name)]
    if facts.host.wsl and unlisted and facts.has_file(SECOND_DRIVER):
        yield tell("nvidia-driver-in-wsl", facts.host, about=unlisted)
    elif gpus.is_nvidia_working(facts):
        yield from tell_unlisted(facts, list_cuda_builds(facts), "NVIDIA")


def find_processor_build(facts: Facts) -> Results:
    """Find that Keras computes with a framework that was built for processors, though an NVIDIA GPU works here."""
    if not gpus.is_nvidia_working(facts) or facts.host.system == "Windows":  # there the family "windows" reports it
        return
    here = gpus.list_nvidia_gpus(facts)
    name = here[0].name if here else f"driver {gpus.read_nvidia_driver(facts)}"
    yield from tell_processor_build(facts, list_cuda_builds(facts), "NVIDIA", name)


JUDGES = (
    find_missing_driver,
    find_failing_driver,
    find_old_driver,
    find_hidden_gpus,
    find_rtx_50_without_code,
    find_missing_libraries,
    find_unlisted_gpus,
    find_processor_build,
)
