"""Findings about Windows and about Linux inside it (WSL): frameworks without a GPU, missing libraries, long paths.

Not verified on such machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from helpers import ROOT
from helpers.compute.host import Host, python_command, set_variable
from helpers.doctor import amd, amd_gpus, nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Failure, Finding, listed

LAST_WITH_GPU = (2, 10)  # of TensorFlow on Windows itself: https://www.tensorflow.org/install/pip
MOST_LETTERS = (
    260  # of a path on Windows unless long paths are allowed: https://learn.microsoft.com, "Maximum Path Length"
)
LONGEST_FILE = 163  # letters of the longest file of the locked packages, in TensorFlow 2.21.0's RECORD (measured)
BELOW = r"\.venv\Lib\site-packages" + "\\"  # between the workshop's folder and that file
# TensorFlow's own build_info names them as msvcp_dll_names; tensorflow/python/platform/self_check.py asks for them.
LIBRARIES = ("msvcp140.dll", "msvcp140_1.dll", "vcruntime140_1.dll")


def _windows_gpu(host: Host, makers: Sequence[str] = ("NVIDIA", "AMD", "Intel")) -> str:
    ways = {
        "NVIDIA": f"On an NVIDIA GPU:\n{nvidia.torch_for(host)}",
        "AMD": "On a Radeon, with another name for {target} if the table of docs/amd-linux.md has one for your GPU:\n"
        f"{amd.torch_for(host)}",
        "Intel": f"On an Intel GPU:\n    {python_command(host)} -m pip install torch --index-url "
        "https://download.pytorch.org/whl/xpu",
    }
    return "\n".join([
        "The lessons on OpenCL and on WebGPU use the GPU as they are. To train on it, let Keras compute "
        "with PyTorch, natively and without WSL.",
        *(ways[maker] for maker in ways if maker in makers),
        f"Then, in the terminal from which you start the workshop:\n    {set_variable(host, 'KERAS_BACKEND', 'torch')}",
    ])  # fmt: skip


def _for_these(failure: Failure, facts: Facts, **values: str) -> Finding:
    """The finding with the advice for the makers of the GPUs that Windows lists, and a Radeon's gfx target."""
    here = cards(facts)
    told = {"NVIDIA": r"NVIDIA", "AMD": r"AMD|Radeon", "Intel": r"Intel"}
    makers = [maker for maker, words in told.items() if any(re.search(words, name) for name in here)]
    target = next(filter(None, map(amd_gpus.by_name, here)), amd_gpus.UNKNOWN)
    own = replace(failure, next=lambda host: _windows_gpu(host, makers))
    return own.found(facts.host, gpu=listed(here), target=target, **values)


EXAMPLE = {"gpu": "NVIDIA GeForce RTX 4080", "target": "gfx1032"}
NO_GPU = Failure(
    "windows-tensorflow", "TensorFlow", "note",
    "There is a GPU here ({gpu}), and Keras computes with {framework}, which cannot use it on Windows itself.",
    "TensorFlow's last version with a GPU on native Windows was 2.10, and JAX has none there. In WSL2 both work for "
    "NVIDIA GPUs (JAX calls it experimental). PyTorch works natively.",
    _windows_gpu,
    "https://www.tensorflow.org/install/pip (2026-03-11); https://github.com/tensorflow/tensorflow/issues/85006, "
    "/73652",
    ("nvidia", "amd-windows", "directml"), {**EXAMPLE, "framework": "TensorFlow"},
)  # fmt: skip
TORCH_FOR_CPU = Failure(
    "windows-torch-cpu", "PyTorch", "note",
    "There is a GPU here ({gpu}), and the installed PyTorch is the one for processors.",
    "`pip install torch` brings that one on Windows; asked for the GPU, it says \"Torch not compiled with CUDA "
    "enabled\".",
    _windows_gpu, "https://pytorch.org/get-started/locally", ("nvidia", "amd-windows", "intel"), EXAMPLE,
)  # fmt: skip
DIRECTML = Failure(
    "windows-directml", "DirectML", "limits",
    "{package} is installed, and is no longer developed.",
    "{reason} Microsoft has moved to Windows ML, which runs models and does not train them.",
    lambda host: f"Remove it:\n    {python_command(host)} -m pip uninstall {{package}}\nWhat trains on your GPU today: "
    "docs/directml.md.",
    "https://github.com/microsoft/tensorflow-directml-plugin (README); https://learn.microsoft.com/windows/ai/directml/"
    "dml-min-app; https://github.com/Vladmandic/sdnext/wiki/DirectML (2026-08-10)",
    ("directml",), {"package": "tensorflow-directml-plugin",
                    "reason": "Its last version is of 2023-02, for TensorFlow 2.10 and Python 3.10, without Keras 3."},
)  # fmt: skip
NO_RUNTIME = Failure(
    "windows-runtime", "Visual C++ runtime", "limits",
    "Windows lacks Microsoft's Visual C++ runtime: {files}.",
    "TensorFlow and others are compiled against it; their import fails with \"DLL load failed\".",
    "Install it, restart the terminal, and try again:\n    winget install Microsoft.VCRedist.2015+.x64\n"
    "Or from https://aka.ms/vs/17/release/vc_redist.x64.exe",
    "tensorflow/python/platform/self_check.py of TensorFlow 2.21; https://learn.microsoft.com/cpp/windows/latest-supported-vc-redist",
    ("nvidia", "amd-windows", "cpu"), {"files": "msvcp140_1.dll"},
)  # fmt: skip
LONG_PATHS = Failure(
    "windows-long-paths", "long paths", "limits",
    "The workshop's folder has {letters} letters in its path, and Windows allows 260 for a whole path here.",
    f"The packages' longest file takes {LONGEST_FILE + len(BELOW)} more. An install then ends with \"No such file or "
    "directory\", or a file is missing later.",
    "Move the folder to a short place (C:\\gpu), or allow long paths: in a PowerShell of the administrator, then "
    "restart "
    "Windows:\n"
    "    New-ItemProperty -Path HKLM:\\SYSTEM\\CurrentControlSet\\Control\\FileSystem -Name LongPathsEnabled -Value 1 "
    "-PropertyType DWORD -Force",
    "https://learn.microsoft.com/windows/win32/fileio/maximum-file-path-limitation; TensorFlow 2.21.0's RECORD",
    ("nvidia", "amd-windows", "cpu"), {"letters": "96"},
)  # fmt: skip
WSL_1 = Failure(
    "windows-wsl1", "WSL", "note",
    "This is WSL 1, which reaches no GPU.",
    "WSL 2 runs a Linux kernel of its own and hands the GPU through.",
    "In PowerShell, with your distribution's name for Ubuntu:\n    wsl --list --verbose\n    wsl --set-version Ubuntu "
    "2",
    "https://learn.microsoft.com/windows/wsl/compare-versions", ("nvidia", "amd-windows"),
)  # fmt: skip
WSL_NO_DRIVER = Failure(
    "windows-wsl-driver", "WSL", "note",
    "WSL hands a GPU through, and NVIDIA's driver for it is not there: {missing}.",
    "In WSL the driver is Windows' own: it puts its libraries into /usr/lib/wsl/lib. Without them no framework sees an "
    "NVIDIA GPU. (A machine without an NVIDIA GPU lacks them too, and nothing is wrong then.)",
    "Install NVIDIA's newest driver in Windows, and none inside WSL. Then, in PowerShell:\n    wsl --update\n"
    "    wsl --shutdown",
    "https://docs.nvidia.com/cuda/wsl-user-guide; https://www.tensorflow.org/install/pip (driver 528.33 or newer)",
    ("nvidia",), {"missing": "/usr/lib/wsl/lib/libcuda.so.1"},
)  # fmt: skip
WSL_OPENCL = Failure(
    "windows-wsl-opencl", "OpenCL", "note",
    "The NVIDIA GPU works in WSL, and OpenCL does not reach it.",
    "NVIDIA offers CUDA in WSL, and no OpenCL: its library libnvidia-opencl is not there, so an nvidia.icd helps "
    "nothing.",
    lambda host: "Take the lessons on OpenCL with PoCL, on the processor, and those on training with CUDA on the GPU; "
    "or "
    "run OpenCL in Windows itself, where NVIDIA's driver brings it:\n    py workshop.py lab",
    "https://github.com/DeltaGroupNJUPT/Vina-GPU-2.1/issues/65; https://github.com/microsoft/WSL/issues/6951",
    ("nvidia", "opencl"),
)  # fmt: skip
FAILURES = (WSL_1, WSL_NO_DRIVER, NO_RUNTIME, LONG_PATHS, NO_GPU, TORCH_FOR_CPU, DIRECTML, WSL_OPENCL)


def wsl_1(facts: Facts) -> Iterator[Finding]:
    """Is this WSL 1: its kernel is called 4.4.0-19041-Microsoft, that of WSL 2 5.15.146.1-microsoft-standard-WSL2."""
    if facts.host.wsl and re.search(r"^4\.4\.0-\d+-Microsoft", facts.text("proc/sys/kernel/osrelease")):
        yield WSL_1.found(facts.host)


def wsl_driver(facts: Facts) -> Iterator[Finding]:
    """Does WSL 2 hand a GPU through without NVIDIA's library; only told where packages for NVIDIA are installed."""
    library = "usr/lib/wsl/lib/libcuda.so.1"
    wanted = nvidia.cuda_builds(facts) or facts.host.nvidia
    if facts.host.wsl and facts.there("dev/dxg") and wanted and not facts.there(library):
        yield WSL_NO_DRIVER.found(facts.host, "limits" if nvidia.cuda_builds(facts) else "", missing=f"/{library}")


def wsl_opencl(facts: Facts) -> Iterator[Finding]:
    """Does the NVIDIA GPU work in WSL, so that someone will look for it in OpenCL."""
    if facts.host.wsl and nvidia.there(facts) and facts.sees_gpu("opencl") is False:
        yield WSL_OPENCL.found(facts.host)


def runtime(facts: Facts) -> Iterator[Finding]:
    """Are the libraries of Visual C++ there: by their files, and by what an import says."""
    if facts.host.system != "Windows" or not facts.there("Windows/System32"):
        return
    missing = [name for name in LIBRARIES if not facts.there(f"Windows/System32/{name}")]
    if missing:
        yield NO_RUNTIME.found(facts.host, files=", ".join(missing))


def long_paths(facts: Facts, folder: str = str(ROOT)) -> Iterator[Finding]:
    """Would the packages' longest file be too long here; the registry says "LongPathsEnabled REG_DWORD 0x1"."""
    allowed = re.search(r"LongPathsEnabled\s+REG_DWORD\s+0x1\b", facts.said("reg"))
    told = facts.tools.get("reg")
    too_long = len(folder) + len(BELOW) + LONGEST_FILE >= MOST_LETTERS
    if facts.host.system == "Windows" and told and told.state != "timed out" and not allowed and too_long:
        yield LONG_PATHS.found(facts.host, letters=len(folder))


def cards(facts: Facts) -> list[str]:
    """Return the names of the GPUs that Windows lists; those of basic drivers and simple ones are left out."""
    told = [line.strip() for line in facts.said("powershell").splitlines()]
    told = [line for line in told if re.search(r"NVIDIA|AMD|Radeon|Intel.*Arc", line)]
    return told or [gpu.name for gpu in nvidia.gpus(facts)]


def no_gpu(facts: Facts) -> Iterator[Finding]:
    """Does Keras compute on Windows itself with a framework that cannot use the GPU that is there."""
    here, backend = cards(facts), facts.backend()
    if facts.host.system != "Windows" or not here or backend not in ("tensorflow", "jax", "torch"):
        return
    if backend == "torch":
        if facts.torch == "cpu":
            yield _for_these(TORCH_FOR_CPU, facts)
        return
    if backend == "tensorflow" and () < facts.version("tensorflow")[:2] <= LAST_WITH_GPU:
        return
    title = {"tensorflow": "TensorFlow", "jax": "JAX"}[backend]
    yield _for_these(NO_GPU, facts, framework=title)


def directml(facts: Facts) -> Iterator[Finding]:
    """Is one of the dead plug-ins for DirectML installed."""
    reasons = {
        "tensorflow-directml-plugin": DIRECTML.example["reason"],
        "tensorflow-directml": "It is TensorFlow 1.15.",
        "torch-directml": "Its last version is of 2024-09, for a PyTorch of that time.",
    }
    for package, reason in reasons.items():
        if facts.has(package):
            yield DIRECTML.found(facts.host, package=package, reason=reason)


JUDGES = (wsl_1, wsl_driver, runtime, long_paths, no_gpu, directml, wsl_opencl)
