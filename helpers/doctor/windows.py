"""Finds what is wrong on Windows: frameworks without a GPU, missing libraries. Not verified on such machines."""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor import gpus
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, advise, join_some, tell

LAST_WITH_GPU = (2, 10)  # of TensorFlow on Windows itself: https://www.tensorflow.org/install/pip
# TensorFlow's own build_info names them as msvcp_dll_names; tensorflow/python/platform/self_check.py asks for them.
LIBRARIES = ("msvcp140.dll", "msvcp140_1.dll", "vcruntime140_1.dll")
ROUTINE_FAILED = (  # what Windows says of a library that it cannot start (1114) or find (126, 127: one that it needs)
    r"DLL load failed.*(initialization routine failed|specified (module|procedure) could not be found)"
    r"|WinError (1114|126|127)\b"
)


def _list_missing_libraries(facts: Facts) -> list[str]:
    if facts.host.system != "Windows" or not facts.has_file("Windows/System32"):
        return []
    return [name for name in LIBRARIES if not facts.has_file(f"Windows/System32/{name}")]


def find_missing_runtime(facts: Facts) -> Results:
    """Find libraries of Visual C++ that are missing."""
    if missing := _list_missing_libraries(facts):
        yield tell("windows-runtime", facts.host, about=["tensorflow", "torch"], files=", ".join(missing))


def find_old_runtime(facts: Facts) -> Results:
    """Find that the libraries of Visual C++ are there and older than a framework needs, by what its import says."""
    if facts.host.system != "Windows" or _list_missing_libraries(facts):
        return
    for name, answer in facts.answers.items():
        if answer.state == "failed" and re.search(ROUTINE_FAILED, answer.message, re.IGNORECASE):
            yield tell("windows-runtime-too-old", facts.host, about=[name], framework=FRAMEWORKS[name].title)


def find_unused_gpu(facts: Facts) -> Results:
    """Find that Keras computes with a framework that has no GPU on Windows, or with PyTorch for processors."""
    cards, backend = gpus.list_windows_cards(facts), facts.backend
    if facts.host.system != "Windows" or not cards or backend not in FRAMEWORKS or _can_use_gpu(facts):
        return
    target = next(filter(None, map(gpus.find_amd_target, cards)), "")
    words = gpus.list_branch_words(facts) + ([] if target else ["no-target"])
    vendors = gpus.list_gpu_vendors(facts)
    ways = "\n".join(advise(f"torch-for-{vendor.lower()}", facts.host, words, target=target) for vendor in vendors)
    yield tell(
        "windows-tensorflow",
        facts.host,
        words=["installed"] if facts.torch not in ("", "cpu") else [],
        gpu=join_some(cards),
        ways=ways,
        framework=FRAMEWORKS[backend].title,
    )


def _can_use_gpu(facts: Facts) -> bool:
    """Return whether what Keras computes with can use a GPU on Windows itself."""
    if facts.backend == "tensorflow":
        return () < facts.read_version("tensorflow")[:2] <= LAST_WITH_GPU
    return facts.backend == "torch" and facts.torch != "cpu"


def find_unused_gpu_behind_wsl(facts: Facts) -> Results:
    """Find that WSL may offer a GPU of Windows, while nothing here was built for one or lists one."""
    is_offered = facts.host.wsl and facts.has_file("dev/dxg")
    if not is_offered or facts.has_file("usr/lib/wsl/lib/libcuda.so.1") or any(map(facts.has_gpu, FRAMEWORKS)):
        return
    is_cuda = facts.find_package("nvidia-cudnn-cu12", "jax-cuda12-plugin", "jax-cuda13-plugin")
    is_rocm = facts.find_package("tensorflow-rocm", "jax-rocm7-plugin", "jax-rocm10-plugin")
    if not is_cuda and not is_rocm and facts.torch in ("", "cpu"):  # otherwise the vendor's own family reports it
        yield tell("wsl-gpu-unused", facts.host)


JUDGES = (find_missing_runtime, find_old_runtime, find_unused_gpu, find_unused_gpu_behind_wsl)
