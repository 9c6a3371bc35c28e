"""Finds frameworks that cannot be imported, packages that overwrite each other, and what does not answer."""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS
from helpers.devices.host import package_owners
from helpers.doctor.facts import FRAMEWORK_SECONDS, Facts, is_late
from helpers.doctor.findings import Results, join_some, tell

FLAVORS = (  # packages that own the same files: of each row one alone may be installed
    ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-gpu", "tensorflow-macos", "tf-nightly"),
    ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
)
# What leads a program to other libraries than its own; below, what ends a framework's start if it has a wrong value
# (tried: JAX_PLATFORMS=cuda without such a GPU, and an unknown flag in XLA_FLAGS).
SHADOWING = ("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONHOME")
ROCM_LIBRARY = r"\blib(hip|roc|amd|MIOpen|rccl)\w*\.so"  # docs/amd-linux.md, step 3
# What an import says, and what stays unchanged in a new environment: files that the system refuses
# (https://github.com/pytorch/pytorch/issues/182008, 2026-04; https://github.com/Comfy-Org/ComfyUI/issues/15117);
# a folder that no program may be run from; a system's C or C++ library that is older than the packages.
IMPORT_CAUSES = {
    "blocked": r"Application Control|WinError 4551|disallowed by system policy|not valid for use in process",
    "noexec": r"failed to map segment from shared object",
    "old-system": r"version `?'?GLIBC_2\.\d+'? not found"
    r"|\s/(usr/)?lib(64|/[\w-]+)?/libstdc\+\+\S* version `?'?(GLIBCXX|CXXABI)_",
}
OWN_VARIABLES: dict[str, tuple[str, ...]] = {
    "tensorflow": ("XLA_FLAGS", "TF_XLA_FLAGS"),
    "jax": ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "XLA_FLAGS"),
    "torch": (),
    "onnxruntime": (),
}
HIDING = "CUDA_VISIBLE_DEVICES"  # an empty one ends JAX's start: https://github.com/jax-ml/jax/issues/37668 (2026-05)
TWO_OPENMP = r"OMP: Error #15|multiple copies of the OpenMP runtime"


def find_two_flavors(facts: Facts) -> Results:
    """Find packages that are installed together and own the same files of code."""
    for row in FLAVORS:
        installed = tuple(name for name in row if facts.find_package(name))
        if len(installed) > 1:
            owners = package_owners(facts.site, installed)
            shared = [file for file, names in owners.items() if len(names) > 1]
            if shared:
                packages = " and ".join(installed)
                yield tell("packages-two-flavors", facts.host, packages=packages, files=f"{len(shared):,}")


def find_two_openmp_runtimes(facts: Facts) -> Results:
    """Find frameworks that end their process since another copy of the OpenMP runtime is in it."""
    for name, answer in facts.answers.items():
        said = [answer.message, *(device.reason for device in answer.devices)]
        if any(re.search(TWO_OPENMP, words, re.IGNORECASE) for words in said):
            yield tell("packages-two-openmp", facts.host, about=[name], framework=FRAMEWORKS[name].title)


def find_failing_imports(facts: Facts) -> Results:
    """Find frameworks that cannot be imported; OpenCL and WebGPU are told by their own families."""
    for name in ("tensorflow", "jax", "torch", "onnxruntime"):
        if facts.get_state(name) == "failed":
            says, title = facts.answers[name].message.rstrip("."), FRAMEWORKS[name].title
            names = _list_misleading_variables(facts, name)
            yield tell(
                "packages-import-fails",
                facts.host,
                words=_list_causes(facts, name, says) or (["variables"] if names else []),
                about=[name],
                framework=title,
                says=says,
                names=" ".join(names),
            )


def _list_causes(facts: Facts, framework: str, says: str) -> list[str]:
    """Return the causes that an import's own words name, and that no new environment takes away."""
    if framework == "tensorflow" and facts.find_package("tensorflow-rocm") and re.search(ROCM_LIBRARY, says):
        return ["rocm"]
    return [word for word, pattern in IMPORT_CAUSES.items() if re.search(pattern, says, re.IGNORECASE)][:1]


def _list_misleading_variables(facts: Facts, framework: str) -> list[str]:
    """Return the variables that may end a framework's import; TensorFlow for ROCm needs LD_LIBRARY_PATH."""
    names = [name for name in (*SHADOWING, *OWN_VARIABLES[framework]) if facts.variables.get(name)]
    if "CUDA_ERROR_NO_DEVICE" in facts.answers[framework].message and HIDING in facts.variables:
        names.append(HIDING)
    needs_path = framework == "tensorflow" and facts.find_package("tensorflow-rocm")
    return [name for name in names if not (needs_path and name == "LD_LIBRARY_PATH")]


def find_late_answers(facts: Facts) -> Results:
    """Find what did not answer in time: on a busy machine several do not, and it is one note all the same."""
    names = [FRAMEWORKS[name].title for name in FRAMEWORKS if facts.get_state(name) == "timed out"]
    names += [str(device) for device in facts.list_tried_devices() if is_late(device)]
    if "nvidia-smi" in facts.tools and facts.tools["nvidia-smi"].state == "timed out":
        names.append("nvidia-smi")
    if names:
        severity = "unknown" if any(_is_unproved(facts, name) for name in ("opencl", facts.backend)) else ""
        seconds = f"{FRAMEWORK_SECONDS:g}"
        yield tell("devices-late", facts.host, severity, names=join_some(names, most=10), seconds=seconds)


def _is_unproved(facts: Facts, framework: str) -> bool:
    """Return whether a framework, or a device of it, was late, and no device of it has computed right."""
    devices = [device for device in facts.list_tried_devices() if device.framework == framework]
    was_late = facts.get_state(framework) == "timed out" or any(map(is_late, devices))
    return was_late and not any(device.state == "right" for device in devices)


JUDGES = (find_two_flavors, find_two_openmp_runtimes, find_failing_imports, find_late_answers)
