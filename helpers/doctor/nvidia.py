"""Findings about NVIDIA GPUs: driver, generation, what hides them, and frameworks that were not built for them.

Not verified on hardware: tested with outputs of nvidia-smi that others have published, of old and new drivers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from helpers.compute.frameworks import FRAMEWORKS
from helpers.compute.host import Host, command, python_command, set_variable
from helpers.doctor.facts import TOOL_SECONDS, Facts, numbers
from helpers.doctor.findings import Failure, Finding, forget, look_or_ask, together

VENDOR = "10de"  # on the PCI bus: https://pci-ids.ucw.cz
DOWNLOAD = "4.2 GB"  # the CUDA family, as workshop.py says

# The oldest driver for each CUDA generation: (Linux, Windows and WSL).
# CUDA 12: https://www.tensorflow.org/install/pip (2026-03-11). CUDA 13: JAX's docs/installation.md (2026-08-08).
DRIVERS = {12: ("525.60.13", "528.33"), 13: ("580", "580")}
# The lowest compute capability of each package: JAX's docs/installation.md (2026-08-08); TensorFlow's wheels have none
# for 5.x since 2.17 (https://github.com/tensorflow/tensorflow/releases/tag/v2.17.0).
JAX_PLUGINS = {"jax-cuda12-plugin": (12, (5, 2)), "jax-cuda13-plugin": (13, (7, 5))}
TENSORFLOW_LEAST = (6, 0)
# PyTorch: the lowest and the highest compute capability of its builds, by CUDA's version. 12.6, 12.8 and 13.0 as
# https://github.com/Comfy-Org/ComfyUI/pull/16438 (2026-09) lists them; 12.9 as 12.8; CUDA 13 knows nothing before 7.5.
TORCH_BUILDS = {(12, 6): ((5, 0), (9, 0)), (12, 8): ((7, 0), (12, 0)), (13,): ((7, 5), (99, 0))}
TORCH_BUILDS[12, 9] = TORCH_BUILDS[12, 8]
RTX_50 = (12, 0)  # Blackwell of workstations; https://github.com/tensorflow/tensorflow/issues/89272
TENSORFLOW_WITHOUT_RTX_50 = (2, 21)  # the newest TensorFlow that was seen to fail there; 2.22 is unconfirmed
# Drivers before 510 or so cannot tell the compute capability: https://developer.nvidia.com/cuda-gpus
CAPABILITIES = {
    r"RTX (PRO )?50\d\d": (12, 0), r"RTX 40\d\d|\bL4\b|L40": (8, 9), r"RTX 30\d\d": (8, 6), "A100": (8, 0),
    r"RTX 20\d\d|GTX 16\d\d|\bT4\b": (7, 5), "V100": (7, 0), r"GTX 10\d\d|\bP4\b|P40": (6, 1), "P100": (6, 0),
    r"GTX 9\d\d|\bM40\b|\bM60\b": (5, 2), "K80": (3, 7),
}  # fmt: skip


class Gpu(NamedTuple):
    """An NVIDIA GPU as its driver tells it."""

    name: str
    driver: str
    capability: tuple[int, int] | None  # None if unknown


def gpus(facts: Facts) -> list[Gpu]:
    """Return the GPUs by nvidia-smi, old or new, or nothing; a GPU that fell off the bus has no version."""
    found = []
    for line in (facts.said("nvidia-smi capability") or facts.said("nvidia-smi names")).splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 2 and re.match(r"\d+\.\d+", cells[1]):
            told = re.fullmatch(r"(\d+)\.(\d+)", cells[2]) if len(cells) > 2 else None
            named = (value for words, value in CAPABILITIES.items() if re.search(words, cells[0]))
            capability = (int(told[1]), int(told[2])) if told else next(named, None)
            found.append(Gpu(cells[0], cells[1], capability))
    return found


def driver(facts: Facts) -> str:
    """Return the driver's version: by nvidia-smi's rows, by its table (old or new), or by the kernel's module.

    The table says "Driver Version: 550.54.15" and since about 610 "KMD Version: 610.43.02".
    """
    rows = gpus(facts)
    table = re.search(r"(?:Driver|KMD) Version:\s*(\d+[\d.]+)", facts.said("nvidia-smi"))
    kernel = re.search(
        r"Kernel Module[^\d\n]*(?:x86_64|aarch64)?\s+(\d+\.[\d.]+)", facts.text("proc/driver/nvidia/version")
    )
    return rows[0].driver if rows else (table or kernel or [""] * 2)[1]


def on_the_bus(facts: Facts) -> bool:
    """Whether an NVIDIA graphics card is in this machine, driver or not; known of Linux alone."""
    return VENDOR in facts.graphics_cards()


def there(facts: Facts) -> bool:
    """Whether an NVIDIA GPU can be expected to compute here: its driver answers.

    A container without devices sees the machine's driver in /proc all the same, and has no nvidia-smi.
    """
    if gpus(facts):
        return True
    nodes = ("dev/nvidiactl", "dev/nvidia0", "dev/dxg")
    works = "failed" not in [said.state for name, said in facts.tools.items() if name == "nvidia-smi"]
    return bool(driver(facts)) and works and (not facts.host.container or facts.there(*nodes))


def cuda_builds(facts: Facts) -> dict[str, int]:
    """Return the frameworks that are installed for NVIDIA GPUs, each with the CUDA generation of its libraries.

    TensorFlow's Linux wheel is always built for CUDA; whether it finds its libraries is another question.
    """
    found = {}
    libraries_here = facts.has("nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12") or facts.sees_gpu("tensorflow")
    if facts.host.system == "Linux" and facts.has("tensorflow") and libraries_here:
        found["tensorflow"] = 12
    for plugin, (generation, _) in JAX_PLUGINS.items():
        if facts.has(plugin):
            found["jax"] = generation
    if facts.torch.startswith("cuda"):
        found["torch"] = numbers(facts.torch.split()[1])[0]
    return found


# ------------------------------------------------------------------------------------------------------- the failures


def _get_driver(host: Host) -> str:
    if host.hosted:
        return "The host of this notebook installs the driver: choose another accelerator, or start a new session."
    if host.wsl:
        return (
            "Install NVIDIA's newest driver in Windows, never inside WSL. Then type in PowerShell:\n    wsl --shutdown"
        )
    if host.container:
        return "A container uses the machine's own driver: install the newest there, outside, then start it again."
    if host.system == "Windows":
        return "Install the newest driver from https://www.nvidia.com/drivers, then restart Windows."
    ways = {
        "debian": "On Ubuntu:\n    sudo ubuntu-drivers install\nOn Debian (with its section non-free):\n"
        "    sudo apt install nvidia-driver",
    }
    other = "Install the newest driver as your distribution describes it, or from https://www.nvidia.com/drivers."
    return f"{ways.get(host.distribution, other)}\nThen restart the machine; this must show the GPU:\n    nvidia-smi"


def cuda_family(host: Host) -> str:
    """Return how to install the frameworks for NVIDIA GPUs."""
    if host.hosted:
        return f'In a cell, then restart the session:\n    %pip install "jax[cuda12]"\n{_jax(host)}'
    if host.system == "Windows":
        keras = set_variable(host, "KERAS_BACKEND", "torch")
        return f"On Windows itself PyTorch is the way (TensorFlow and JAX need WSL2):\n{torch_for(host)}\n    {keras}"
    if host.installed_by == "venv":
        return f"In the workshop's folder (a download of about {DOWNLOAD}):\n    {command(host, 'lab --accel cuda')}"
    return (
        f"With the environment active (a download of about {DOWNLOAD}):\n"
        f'    {python_command(host)} -m pip install "tensorflow[and-cuda]" "jax[cuda12]"\n'
        f"    {python_command(host)} -m pip uninstall tensorflow-cpu"
    )


def torch_for(host: Host) -> str:
    """Return the command that installs PyTorch for NVIDIA GPUs: CUDA 12.8 has code from Volta to RTX 50."""
    pip = f"    {python_command(host)} -m pip install torch --index-url https://download.pytorch.org/whl/"
    return f"{pip}cu128\n(For GTX 10 and older GPUs cu126 instead of cu128.)"


def _jax(host: Host) -> str:
    return f"    {set_variable(host, 'KERAS_BACKEND', 'jax')}"


def _instead_of_tensorflow(host: Host) -> str:
    return (
        "Let Keras compute with JAX, which knows this GPU: type this in the terminal, then start the workshop from "
        f"there again:\n{_jax(host)}\nJAX for this GPU, if it is not installed:\n{cuda_family(host)}"
    )


def _restart(host: Host) -> str:
    if host.wsl:
        return "In PowerShell:\n    wsl --shutdown\nThen open WSL again. If that does not help, update Windows' driver."
    first = "Restart the machine. If it still fails, install the driver again:"
    return f"{first}\n{_get_driver(host)}"


def _other_build(host: Host) -> str:
    if host.hosted:
        return (
            "Choose another accelerator. Kaggle: Session options > Accelerator > GPU T4 x2. Colab: Runtime > Change "
            "runtime type > T4 GPU. Or, in a cell, PyTorch for older GPUs (compute capability 5.0 to 9.0), then "
            "restart "
            "the session:\n    %pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
        )
    pip = f"    {python_command(host)} -m pip install"
    return (
        "Take a build that holds code for this GPU. PyTorch for GPUs before Turing (compute capability 5.0 to 9.0):\n"
        f"{pip} --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126\n"
        "PyTorch for RTX 50 and all from Volta on (7.0 to 12.0):\n"
        f"{pip} --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128\n"
        f'JAX from compute capability 5.2 on, on Linux:\n{pip} "jax[cuda12]"'
    )


def _dlopen(host: Host) -> str:
    python = python_command(host)
    where = 'import importlib.util as u; print(u.find_spec("tensorflow").submodule_search_locations[0])'
    return (
        "See whether a variable leads to other libraries, remove it, and start again from the same terminal:\n"
        "    unset LD_LIBRARY_PATH\n"
        "If that does not help, link the libraries beside TensorFlow, as its installation page says:\n"
        f"    (cd $({python} -c '{where}') && ln -svf ../nvidia/*/lib/*.so* .)\n"
        "This names the library that is missing:\n"
        f"    TF_CPP_MAX_VLOG_LEVEL=3 {python} -c 'import tensorflow as tf; tf.config.list_physical_devices()'"
    )


def _unhide(host: Host) -> str:
    return forget(host, "CUDA_VISIBLE_DEVICES")


PAGES = ("nvidia", "hosted")
NO_DRIVER = Failure(
    "nvidia-no-driver", "NVIDIA's driver", "limits",
    "There is an NVIDIA GPU here, and its driver is not installed.",
    "Without the driver no framework and no OpenCL sees the GPU; lessons run on the processor.",
    _get_driver,
    "https://www.tensorflow.org/install/pip (2026-03-11): the driver comes first",
    ("nvidia",),
)  # fmt: skip
DRIVER_FAILS = Failure(
    "nvidia-driver-fails", "NVIDIA's driver", "limits",
    "NVIDIA's driver is installed, and nvidia-smi {says}.",
    "Where the driver does not work, its parts do not fit each other, or not the kernel: after an update, until the "
    "machine is restarted; or Secure Boot keeps an unsigned module out.",
    _restart,
    "https://docs.nvidia.com/deploy/nvidia-smi: it asks the driver, so its failure is the driver's",
    ("nvidia",),
    {"says": "says: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"},
)  # fmt: skip
DRIVER_TOO_OLD = Failure(
    "nvidia-driver-too-old", "NVIDIA's driver", "limits",
    "NVIDIA's driver is {driver}, older than {needs}.",
    "Each CUDA generation needs a driver of its time. With an older one the GPU is missing from the list, or the first "
    "operation fails (CUDA_ERROR_UNSUPPORTED_PTX_VERSION). Update it before anything is downloaded.",
    _get_driver,
    "https://www.tensorflow.org/install/pip (2026-03-11); JAX's docs/installation.md (2026-08-08); "
    "https://github.com/srush/GPU-Puzzles/issues/48",
    PAGES,
    {"driver": "470.256.02", "needs": "525.60.13, which TensorFlow needs (CUDA 12)"},
)  # fmt: skip
TOO_LOW = Failure(
    "nvidia-capability", "NVIDIA GPU", "limits",
    "{package} holds no code for this GPU: {gpu} has compute capability {has}, and {package} {wants}.",
    "The GPU is listed all the same, and the first operation dies: \"no kernel image is available for execution on the "
    "device\".",
    _other_build,
    "https://github.com/Kaggle/docker-python/issues/1546 (2026-03); JAX's docs/installation.md (2026-08-08); "
    "https://github.com/Comfy-Org/ComfyUI/pull/16438 (2026-09)",
    PAGES,
    {"package": "PyTorch for CUDA 12.8", "gpu": "Tesla P100-PCIE-16GB", "has": "6.0", "wants": "needs 7.0 or more"},
)  # fmt: skip
RTX_50_TENSORFLOW = Failure(
    "nvidia-rtx50-tensorflow", "TensorFlow", "limits",
    "TensorFlow {version} lists the {gpu} and cannot compute on it.",
    "Its wheels hold no code for compute capability 12.0 (sm_120): the first operation fails with "
    "CUDA_ERROR_INVALID_PTX. It was so from 2.19 to 2.21, and 2.22 was not seen yet.",
    _instead_of_tensorflow,
    "https://github.com/tensorflow/tensorflow/issues/89272 (open), /pull/123945 (closed)",
    ("nvidia",),
    {"version": "2.21.0", "gpu": "NVIDIA GeForce RTX 5070"},
)  # fmt: skip
CPU_BUILD = Failure(
    "nvidia-cpu-build", "NVIDIA GPU", "note",
    "There is an NVIDIA GPU here ({gpu}), and {frameworks} installed for processors only.",
    "Lessons run on the processor then. The default set-up is for processors: it is smaller, and always works.",
    cuda_family,
    "https://www.tensorflow.org/install/pip; JAX's docs/installation.md (2026-08-08)",
    ("nvidia",),
    {"gpu": "NVIDIA GeForce RTX 3060", "frameworks": "TensorFlow and JAX are"},
)  # fmt: skip
HIDDEN = Failure(
    "nvidia-hidden", "NVIDIA GPU", "limits",
    "CUDA_VISIBLE_DEVICES is {value!r} and hides every NVIDIA GPU from TensorFlow, JAX and PyTorch.",
    "It lists the GPUs that a program may see, numbered from 0; the first number that does not exist ends the list.",
    _unhide,
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide, CUDA environment variables",
    ("nvidia",),
    {"value": "-1"},
)  # fmt: skip
NOT_LOADED = Failure(
    "nvidia-libraries", "TensorFlow", "limits",
    "TensorFlow sees the GPU's driver and does not load NVIDIA's libraries: {says}",
    "It looks for CUDA and cuDNN beside itself and along LD_LIBRARY_PATH; {reason}.",
    _dlopen,
    "https://www.tensorflow.org/install/pip, step 6; https://github.com/tensorflow/tensorflow/issues/63362, /66987",
    ("nvidia",),
    {"says": "Cannot dlopen some GPU libraries.", "reason": "LD_LIBRARY_PATH is set, and leads to others"},
)  # fmt: skip
NO_LIBRARIES = Failure(
    "nvidia-no-libraries", "TensorFlow", "limits",
    "TensorFlow can use the GPU, and NVIDIA's libraries for it are not installed.",
    "`pip install tensorflow` brings none of them (CUDA, cuDNN); `tensorflow[and-cuda]` does.",
    cuda_family,
    "https://www.tensorflow.org/install/pip; https://github.com/tensorflow/tensorflow/issues/63362",
    ("nvidia",),
)  # fmt: skip
UNEXPLAINED = Failure(
    "nvidia-not-listed", "NVIDIA GPU", "limits",
    "{framework} was built for NVIDIA GPUs, NVIDIA's driver works, and {framework} lists none.",
    "No cause that the doctor knows was found. {says}",
    look_or_ask,
    "https://github.com/tensorflow/tensorflow/issues/62328, /64881",
    ("nvidia",),
    {"framework": "TensorFlow", "says": "It says: CUDA_ERROR_UNKNOWN."},
)  # fmt: skip
FAILURES = (
    NO_DRIVER, DRIVER_FAILS, DRIVER_TOO_OLD, TOO_LOW, RTX_50_TENSORFLOW, HIDDEN, NO_LIBRARIES, NOT_LOADED, CPU_BUILD,
    UNEXPLAINED,
)  # fmt: skip

# --------------------------------------------------------------- each judges the facts, the most fundamental first


def no_driver(facts: Facts) -> Iterator[Finding]:
    """Is there a card without its driver; in WSL and in a container the driver is elsewhere, and told elsewhere."""
    said = facts.tools.get("nvidia-smi")
    missing = not facts.host.nvidia and (said is None or said.state == "missing") and not driver(facts)
    if on_the_bus(facts) and missing and not (facts.host.wsl or facts.host.container):
        yield NO_DRIVER.found(facts.host)


def driver_fails(facts: Facts) -> Iterator[Finding]:
    """Does nvidia-smi say that the driver does not work, or not answer at all; rubbish says nothing."""
    said = facts.tools.get("nvidia-smi")
    if said and said.state == "timed out":
        slow = f"does not answer within {TOOL_SECONDS:g} s (a machine with many GPUs may need longer)"
        yield DRIVER_FAILS.found(facts.host, "note", says=slow)
    elif said and said.state == "failed" and facts.said("nvidia-smi names") == "":
        words = re.search(
            r"NVIDIA-SMI has failed.*|Failed to initialize NVML.*|No devices were found", said.text + said.error
        )
        if words:
            yield DRIVER_FAILS.found(facts.host, says=f"says: {words[0].strip().rstrip('.')}")


def driver_too_old(facts: Facts) -> Iterator[Finding]:
    """Is the driver older than what is installed needs, or, before the download, than what would be."""
    has = driver(facts)
    here = cuda_builds(facts)
    wanted = here or {"": 12}
    windows = facts.host.system == "Windows" or facts.host.wsl
    needs = []
    for framework, generation in wanted.items():
        floor = DRIVERS.get(generation, ("", ""))[windows]
        if there(facts) and floor and numbers(has) < numbers(floor):
            who = FRAMEWORKS[framework].title if framework else "every package for NVIDIA GPUs"
            needs.append(f"{floor}, which {who} needs (CUDA {generation})")
    if needs:
        yield DRIVER_TOO_OLD.found(facts.host, "" if here else "note", driver=has, needs=" and ".join(needs))


def capability(facts: Facts) -> Iterator[Finding]:
    """Does each framework's build hold code for this GPU's compute capability."""
    for gpu in {gpu.capability: gpu for gpu in gpus(facts) if gpu.capability}.values():
        for package, least, most in _ranges(facts):
            if least <= gpu.capability and gpu.capability[0] <= most[0]:  # code for 12.0 runs on 12.1, too
                continue
            low = gpu.capability < least
            wants = "needs {}.{} or more".format(*least) if low else "ends at {}.{}".format(*most)
            has = "{}.{}".format(*gpu.capability)
            yield TOO_LOW.found(facts.host, package=package, gpu=gpu.name, has=has, wants=wants)


def _ranges(facts: Facts) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Each installed package with the lowest and the highest compute capability that it has code for."""
    builds, no_end = cuda_builds(facts), (99, 0)
    if "tensorflow" in builds and facts.version("tensorflow") >= (2, 17):
        yield f"TensorFlow {facts.packages['tensorflow']}", TENSORFLOW_LEAST, no_end
    for plugin, (generation, least) in JAX_PLUGINS.items():
        if facts.has(plugin):
            yield f"JAX for CUDA {generation}", least, no_end
    if "torch" in builds:
        has = numbers(facts.torch.split()[1])
        bounds = TORCH_BUILDS.get(has[:2]) or TORCH_BUILDS.get(has[:1])
        if bounds:
            yield f"PyTorch for CUDA {facts.torch.split()[1]}", *bounds


def rtx_50(facts: Facts) -> Iterator[Finding]:
    """Is stock TensorFlow to compute on an RTX 50: it lists it and dies at the first operation."""
    new = [gpu for gpu in gpus(facts) if gpu.capability and gpu.capability >= RTX_50]
    if new and "tensorflow" in cuda_builds(facts) and facts.version("tensorflow")[:2] <= TENSORFLOW_WITHOUT_RTX_50:
        severity = "" if facts.backend() == "tensorflow" else "note"
        yield RTX_50_TENSORFLOW.found(facts.host, severity, version=facts.packages["tensorflow"], gpu=new[0].name)


def hidden(facts: Facts) -> Iterator[Finding]:
    """Does CUDA_VISIBLE_DEVICES hide every GPU; UUIDs are not judged."""
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None or not there(facts):
        return
    first = value.split(",")[0].strip()
    many = len(gpus(facts))
    if first in ("", "-1", "NoDevFiles") or (many and re.fullmatch(r"-?\d+", first) and not 0 <= int(first) < many):
        yield HIDDEN.found(facts.host, value=value)


def libraries(facts: Facts) -> Iterator[Finding]:
    """Does TensorFlow find CUDA and cuDNN: its own words, and which packages are here."""
    answer = facts.answers.get("tensorflow")
    if not answer or not there(facts) or facts.sees_gpu("tensorflow") or not facts.has("tensorflow"):
        return
    if facts.host.system != "Linux" or "dlopen" not in answer.message.lower():
        return
    if "tensorflow" not in cuda_builds(facts):
        yield NO_LIBRARIES.found(facts.host)
        return
    path = facts.variables.get("LD_LIBRARY_PATH")
    reason = f"LD_LIBRARY_PATH is {path!r}, which may lead to others" if path else "one of them is not found there"
    yield NOT_LOADED.found(facts.host, says=answer.message, reason=reason)


def cpu_build(facts: Facts) -> Iterator[Finding]:
    """Does Keras compute with a framework that was built for processors, though an NVIDIA GPU works here."""
    if not there(facts) or facts.host.system == "Windows":  # there told by the family "windows"
        return
    builds, backend = cuda_builds(facts), facts.backend()
    here = {  # TensorFlow's Linux wheel is no CPU build; without an answer nobody knows whether it finds its libraries
        "tensorflow": facts.has("tensorflow-cpu", *(["tensorflow"] if facts.answers else [])),
        "jax": facts.has("jax"),
        "torch": facts.torch,
    }
    without = [FRAMEWORKS[name].title for name, installed in here.items() if installed and name not in builds]
    if not here.get(backend) or backend in builds or facts.sees_gpu(backend):
        return
    if any(driver_too_old(facts)) or (backend == "tensorflow" and any(libraries(facts))):
        return  # told with its cause, or not before the driver is updated
    name = gpus(facts)[0].name if gpus(facts) else f"driver {driver(facts)}"
    yield CPU_BUILD.found(facts.host, gpu=name, frameworks=together(without))


def not_listed(facts: Facts) -> Iterator[Finding]:
    """Does a framework that was built for the GPU list none, and no other finding says why."""
    causes = (driver_fails, driver_too_old, hidden, libraries)
    if not there(facts) or any(list(cause(facts)) for cause in causes):
        return
    for framework in cuda_builds(facts):
        if facts.sees_gpu(framework) is False:
            says = facts.answers[framework].message
            title = FRAMEWORKS[framework].title
            yield UNEXPLAINED.found(facts.host, framework=title, says=says and f"It says: {says}")


JUDGES = (no_driver, driver_fails, driver_too_old, hidden, capability, rtx_50, libraries, not_listed, cpu_build)
