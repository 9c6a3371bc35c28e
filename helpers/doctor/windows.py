"""Findings about Windows and about Linux inside it (WSL): frameworks without a GPU, missing libraries, long paths.

Not verified on such machines.
"""

from __future__ import annotations

import re

from helpers.compute.frameworks import FRAMEWORKS
from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, advise, found, listed

LAST_WITH_GPU = (2, 10)  # of TensorFlow on Windows itself: https://www.tensorflow.org/install/pip
# Letters of a path on Windows unless long paths are allowed: https://learn.microsoft.com, "Maximum Path Length".
MOST_LETTERS = 260
LONGEST_FILE = 163  # letters of the longest file of the locked packages, in TensorFlow 2.21.0's RECORD (measured)
BELOW = r"\.venv\Lib\site-packages" + "\\"  # between the workshop's folder and that file
# TensorFlow's own build_info names them as msvcp_dll_names; tensorflow/python/platform/self_check.py asks for them.
LIBRARIES = ("msvcp140.dll", "msvcp140_1.dll", "vcruntime140_1.dll")
MAKERS = {"nvidia": "NVIDIA", "amd": "AMD|Radeon", "intel": "Intel"}
DIRECTML = {  # the dead plug-ins
    "tensorflow-directml-plugin": "Its last version is of 2023-02, for TensorFlow 2.10 and Python 3.10.",
    "tensorflow-directml": "It is TensorFlow 1.15.",
    "torch-directml": "Its last version is of 2024-09, for a PyTorch of that time.",
}


def wsl_1(facts: Facts) -> Results:
    """Is this WSL 1: its kernel is called 4.4.0-19041-Microsoft, that of WSL 2 5.15.146.1-microsoft-standard-WSL2."""
    if facts.host.wsl and re.search(r"^4\.4\.0-\d+-Microsoft", facts.text("proc/sys/kernel/osrelease")):
        yield found("windows-wsl1", facts.host)


def wsl_driver(facts: Facts) -> Results:
    """Does WSL 2 hand a GPU through without NVIDIA's library; only told where packages for NVIDIA are installed."""
    library = "usr/lib/wsl/lib/libcuda.so.1"
    wanted = nvidia.cuda_builds(facts) or facts.host.nvidia
    if facts.host.wsl and facts.exists("dev/dxg") and wanted and not facts.exists(library):
        severity = "limits" if nvidia.cuda_builds(facts) else ""
        yield found("windows-wsl-driver", facts.host, severity, missing=f"/{library}")


def wsl_opencl(facts: Facts) -> Results:
    """Does the NVIDIA GPU work in WSL, so that someone will look for it in OpenCL."""
    if facts.host.wsl and nvidia.works(facts) and facts.sees_gpu("opencl") is False:
        yield found("windows-wsl-opencl", facts.host)


def runtime(facts: Facts) -> Results:
    """Are the libraries of Visual C++ there."""
    if facts.host.system != "Windows" or not facts.exists("Windows/System32"):
        return
    missing = [name for name in LIBRARIES if not facts.exists(f"Windows/System32/{name}")]
    if missing:
        yield found("windows-runtime", facts.host, files=", ".join(missing))


def long_paths(facts: Facts) -> Results:
    """Would the packages' longest file be too long here; the registry says "LongPathsEnabled REG_DWORD 0x1"."""
    allowed = re.search(r"LongPathsEnabled\s+REG_DWORD\s+0x1\b", facts.stdout("reg"))
    registry = facts.tools.get("reg")
    longest = len(BELOW) + LONGEST_FILE
    too_long = len(facts.folder) + longest >= MOST_LETTERS
    if facts.host.system == "Windows" and registry and registry.state != "timed out" and not allowed and too_long:
        yield found("windows-long-paths", facts.host, letters=len(facts.folder), longest=longest)


def cards(facts: Facts) -> list[str]:
    """Return the names of the GPUs that Windows lists; those of basic drivers and simple ones are left out."""
    lines = [line.strip() for line in facts.stdout("powershell").splitlines()]
    names = [line for line in lines if re.search(r"NVIDIA|AMD|Radeon|Intel.*Arc", line)]
    return names or [gpu.name for gpu in nvidia.gpus(facts)]


def no_gpu(facts: Facts) -> Results:
    """Does Keras compute with a framework that has no GPU on Windows, or with PyTorch for processors."""
    backend, here = facts.backend(), cards(facts)
    old_tensorflow = backend == "tensorflow" and () < facts.version("tensorflow")[:2] <= LAST_WITH_GPU
    torch_for_gpus = backend == "torch" and facts.torch != "cpu"
    if facts.host.system != "Windows" or not here or old_tensorflow or torch_for_gpus or backend not in FRAMEWORKS:
        return
    target = next(filter(None, map(amd.target_of, here)), amd.UNKNOWN)
    makers = [maker for maker, words in MAKERS.items() if any(re.search(words, name) for name in here)]
    ways = "\n".join(advise(f"torch-for-{maker}", facts.host, target=target) for maker in makers)
    yield found("windows-tensorflow", facts.host, gpu=listed(here), ways=ways, framework=FRAMEWORKS[backend].title)


def directml(facts: Facts) -> Results:
    """Is one of the dead plug-ins for DirectML installed."""
    for package, reason in DIRECTML.items():
        if facts.has(package):
            yield found("windows-directml", facts.host, package=package, reason=reason)


JUDGES = (wsl_1, wsl_driver, runtime, long_paths, no_gpu, directml, wsl_opencl)
