"""Findings about AMD GPUs: the kernel's driver, groups, gfx target, what hides them, frameworks and their libraries.

Not verified on hardware: tested with outputs of rocminfo and amd-smi that others have published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from helpers.compute.frameworks import FRAMEWORKS, looks_integrated
from helpers.compute.host import Host, python_command, set_variable
from helpers.doctor import nvidia
from helpers.doctor.amd_gpus import (
    INTEGRATED,
    OVERRIDE,
    OVERRIDES,
    STATUS,
    TENSORFLOW_TARGETS,
    VARIABLES,
    Gpu,
    by_amd_smi,
    by_kernel,
    gpus,
    no_access,
    on_the_bus,
    rocm_builds,
    there,
)
from helpers.doctor.facts import Facts, numbers
from helpers.doctor.findings import TYPE_IT, Failure, Finding, choose, forget, listed, look_or_ask, together

INDEX = "https://stable.repo.amd.com/rocm/whl-next/"  # of ROCm 10.1's documentation
TORCH, TENSORFLOW = "2.14.0+rocm10.1.0", "2.21.0+rocm10.1.0"
JAXLIB_FOR_ROCM_10 = (0, 11, 1)  # the first that knows the plug-in: https://github.com/jax-ml/jax/pull/39634
WINDOWS_PAGE = "docs/amd-windows.md"
LIBRARIES = r"lib(?:hip\w*|roc\w*|amd\w*|hsa-runtime64|MIOpen|rccl)\.so[\d.]*"

# ------------------------------------------------------------------------------------------------------- the failures


def torch_for(host: Host, target: str = "{target}") -> str:
    """Return how to install PyTorch for one gfx target, as ROCm 10.1's documentation has it."""
    pip = f'    {python_command(host)} -m pip install --index-url {INDEX} "torch[device-{target}]=={TORCH}"'
    if host.system != "Windows":
        return pip
    return f"Read step 3 of {WINDOWS_PAGE} first: what it needs, and how to undo it. End lab (Ctrl-C). Then:\n{pip}"


def _rocm_family(host: Host) -> str:
    there = "AMD's packages come from AMD's own index. In the workshop's folder, this prints all commands:"
    return f"{there}\n    python3 workshop.py lab --accel rocm"


def _groups(host: Host) -> str:
    if host.container:
        return (
            "Start the container with the devices and their groups (numbers of the machine outside):\n"
            "    docker run --device /dev/kfd --device /dev/dri --group-add video "
            '--group-add "$(getent group render | cut -d: -f3)" ...'
        )
    return (
        "Join the groups, then log out and in again (or restart the machine):\n"
        "    sudo usermod -a -G render,video $LOGNAME\nThis must name both:\n    groups"
    )


def _load_driver(host: Host) -> str:
    return (
        "Load the kernel's driver, and see what it says:\n    sudo modprobe amdgpu\n    sudo dmesg | grep -i -e kfd "
        "-e amdgpu\n"
        "If there is no such module, install the AMD GPU Driver (amdgpu) as AMD's ROCm documentation says."
    )


def _packages(host: Host) -> str:
    return f"Take packages that hold code for this GPU itself:\n{torch_for(host)}"


def _override(host: Host) -> str:
    if host.system != "Linux":
        return _packages(host)
    other = (
        "With packages from elsewhere, let the GPU pass for its sibling (never official, and for every GPU at once)."
    )
    return f"{_packages(host)}\n{other} {choose(host, OVERRIDE, '{override}')}"


def _without_rocm(host: Host) -> str:
    return (
        "Compute on this GPU with OpenCL or WebGPU (lessons 01, 14), and train on the processor. AMD's list:"
        "\n    https://rocm.docs.amd.com/en/latest/compatibility/compatibility-matrix.html"
    )


def _right_tensorflow(host: Host) -> str:
    pip = f"    {python_command(host)} -m pip"
    return (
        "On Linux with Python 3.12, for Radeon RX 7000 and 9000 and Instinct MI300 and newer:\n"
        f"{pip} uninstall tensorflow-rocm\n"
        f'{pip} install --index-url {INDEX} "rocm[libraries,device-{{target}}]==10.1.0"\n'
        f"{pip} install --extra-index-url https://rocm.frameworks.amd.com/whl-multi-arch/ "
        f'"tensorflow-rocm=={TENSORFLOW}"'
        f"\nFor other GPUs, PyTorch:\n{torch_for(host)}"
    )


def _torch_instead(host: Host) -> str:
    return f"Let Keras compute with PyTorch:\n{torch_for(host)}\n    {set_variable(host, 'KERAS_BACKEND', 'torch')}"


def _library_path(host: Host) -> str:
    here = "python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'"
    return (
        "Type this in the terminal before Python starts (inside a notebook it is too late), then start the workshop "
        "from "
        f"there again:\n    sdk=$({here})\n"
        '    export LD_LIBRARY_PATH="$sdk/_rocm_sdk_core/lib:$sdk/_rocm_sdk_core/lib/rocm_sysdeps/lib:'
        '$sdk/_rocm_sdk_libraries/lib"'
    )


def _choose(host: Host) -> str:
    name = "HIP_VISIBLE_DEVICES" if host.system == "Windows" else "ROCR_VISIBLE_DEVICES"
    return f"Show only the card. {choose(host, name, '{number}')}"


SUPPORT = "https://github.com/ROCm/TheRock/blob/main/SUPPORTED_GPUS.md (2026-08-22); AMD's docs/data/gpus.yaml (10.1)"
EXAMPLE = {"gpu": "AMD Radeon RX 6600 XT", "target": "gfx1032", "override": "10.3.0"}
LINUX, BOTH = ("amd-linux",), ("amd-linux", "amd-windows")
NO_KFD = Failure(
    "amd-no-kfd", "AMD's driver", "note",
    "There is an AMD GPU here, and the kernel offers it to no program for computing: /dev/kfd is missing.",
    "ROCm reaches a GPU through that file, which the kernel's driver amdgpu makes.",
    _load_driver, "https://rocm.docs.amd.com, prerequisites", LINUX,
)  # fmt: skip
NO_ACCESS = Failure(
    "amd-groups", "AMD GPU", "limits",
    "You may not open the GPU: {files}.",
    "They belong to {groups}, and {reason}. ROCm then finds no GPU, or says that it cannot open "
    "/dev/kfd.",
    _groups, "ROCm's documentation, docs/install/include/100-prerequisites.rst: groups render and video", LINUX,
    {"files": "/dev/kfd", "groups": "the group render", "reason": "you are not in it"},
)  # fmt: skip
UNSUPPORTED = Failure(
    "amd-target-unsupported", "AMD GPU", "note",
    "The GPU {gpu} ({target}) is not one that ROCm supports.",
    "No package holds tested code for it. At best the first operation says \"invalid device function\"; it may hang, "
    "too.",
    _without_rocm, SUPPORT, LINUX, {**EXAMPLE, "gpu": "AMD Radeon RX 580", "target": "gfx803"},
)  # fmt: skip
UNOFFICIAL = Failure(
    "amd-target-unofficial", "AMD GPU", "note",
    "The GPU {gpu} ({target}) is not on AMD's official list, and has packages all the same.",
    "AMD's builders mark its packages as tested. Others (download.pytorch.org, a distribution's, before "
    "ROCm 7.9) hold none and say \"invalid device function\".",
    _override, SUPPORT, BOTH, EXAMPLE,
)  # fmt: skip
OVERRIDE_WRONG = Failure(
    "amd-override", "AMD GPU", "limits",
    "{variable} is {value}, and that does not fit the GPU {gpu} ({target}).",
    "The variable makes every GPU here pass for another. {reason}",
    lambda host: forget(host, OVERRIDE),
    "https://github.com/ROCm/legacy-rocm-build/issues/2654, /5069", BOTH,
    {**EXAMPLE, "variable": OVERRIDE, "value": "10.3.0", "gpu": "AMD Radeon RX 7600", "target": "gfx1102",
     "reason": "Code for another generation then fails (\"invalid device function\"), hangs or computes wrongly."},
)  # fmt: skip
NO_KERNELS = Failure(
    "amd-torch-kernels", "PyTorch", "limits",
    "PyTorch holds no code for the GPU {gpu} ({target}): it brings code for {has}.",
    "AMD's packages come in parts, one for each gfx target. Without yours the GPU is listed, and the first operation "
    "says "
    "\"invalid device function\".",
    lambda host: f"Install it with the part for your GPU:\n{torch_for(host)}",
    "https://github.com/ROCm/TheRock/pull/4946 (amd-torch-device-gfx...); https://github.com/ROCm/pytorch/issues/2730",
    BOTH, {**EXAMPLE, "gpu": "AMD Radeon RX 7600", "target": "gfx1102", "has": "gfx1100"},
)  # fmt: skip
OLD_TENSORFLOW = Failure(
    "amd-tensorflow-pypi", "TensorFlow", "limits",
    "tensorflow-rocm {version} is the one from PyPI, and is out of date.",
    "PyPI's last one is 2.14.0.600, for ROCm 6.0 and Keras 2. AMD's live wheels are in AMD's own index, and have +rocm "
    "in their version.",
    _right_tensorflow,
    "https://rocm.docs.amd.com/projects/ai-ecosystem/en/latest/frameworks/tensorflow/install.html; PyPI (2026-11-20)",
    LINUX, {"version": "2.14.0.600", "target": "gfx1100"},
)  # fmt: skip
TENSORFLOW_TARGET = Failure(
    "amd-tensorflow-target", "TensorFlow", "limits",
    "AMD's TensorFlow is not built for the GPU {gpu} ({target}).",
    "ROCm 10.1 has it for Radeon RX 7000 and 9000 and for Instinct MI300 and newer.",
    _torch_instead,
    "https://rocm.docs.amd.com/projects/ai-ecosystem/en/latest/frameworks/tensorflow/install.html (10.1.0)",
    LINUX, EXAMPLE,
)  # fmt: skip
JAX_TOO_OLD = Failure(
    "amd-jax-plugin", "JAX", "limits",
    "jaxlib {version} does not know AMD's plug-in for ROCm 10.",
    "The first operation says \"No FFI handler registered for hipsolver_...\". jaxlib 0.11.1 and newer know it.",
    lambda host: f"Take a JAX that fits the plug-in:\n    {python_command(host)} -m pip install jax==0.11.1 "
    f"jaxlib==0.11.1",
    "https://github.com/jax-ml/jax/pull/39634, by TheRock's RELEASES.md", LINUX, {"version": "0.10.2"},
)  # fmt: skip
HIDDEN = Failure(
    "amd-hidden", "AMD GPU", "limits",
    "{variables} hides every AMD GPU.",
    "{values}. Such a variable lists the GPUs that a program may see, numbered from 0. ROCR_VISIBLE_DEVICES comes "
    "first; the others "
    "count only what it left.",
    "{unset}",
    "ROCm's documentation, conceptual/gpu-isolation.md (2025-03-21)", BOTH,
    {"variables": "HIP_VISIBLE_DEVICES", "values": "HIP_VISIBLE_DEVICES is '-1'",
     "unset": f"{TYPE_IT}\n    unset HIP_VISIBLE_DEVICES"},
)  # fmt: skip
NO_LIBRARY = Failure(
    "amd-libraries", "ROCm", "limits",
    "{framework} does not find ROCm's library {library}.",
    "The pip packages of ROCm lie inside this environment, where the system does not look.",
    _library_path,
    "https://rocm.docs.amd.com/projects/ai-ecosystem/en/latest/frameworks/tensorflow/install.html, known issues",
    LINUX, {"framework": "TensorFlow", "library": "libhipsparse.so.4"},
)  # fmt: skip
INTEGRATED_FIRST = Failure(
    "amd-integrated-first", "AMD GPU", "note",
    "The first GPU here is the one inside the processor: {first} ({target}). The card {card} is number {number}.",
    "Programs that take the first GPU (cuda:0) take the slow one, and a package may hold no code for it.",
    _choose, "https://github.com/ROCm/TheRock/issues/3392 (2026-02)", BOTH,
    {"first": "AMD Radeon Graphics", "target": "gfx1036", "card": "AMD Radeon RX 9070 XT", "number": "1"},
)  # fmt: skip
CPU_BUILD = Failure(
    "amd-cpu-build", "AMD GPU", "note",
    "There is an AMD GPU here ({gpu}, {target}), and {frameworks} installed for processors only.",
    "Lessons run on the processor then. The default set-up is for processors: it is smaller, and always works.",
    _rocm_family, SUPPORT, LINUX, {**EXAMPLE, "frameworks": "TensorFlow and JAX are"},
)  # fmt: skip
IN_WSL = Failure(
    "amd-wsl", "AMD GPU", "limits",
    "{framework} was built for AMD GPUs and sees none in WSL.",
    "There is no /dev/kfd in WSL. ROCm reaches the GPU through Windows' driver, and looks there only when it is told "
    "to.",
    lambda host: "Is your GPU on the list of ROCDXG (https://github.com/ROCm/librocdxg)? Radeon RX 5000 and 6000 are "
    f"not. Install ROCDXG as that page says. {choose(host, 'HSA_ENABLE_DXG_DETECTION', '1')}",
    "https://github.com/ROCm/librocdxg (README); ROCm's documentation for WSL2 (10.1)", ("amd-windows",),
    {"framework": "PyTorch"},
)  # fmt: skip
UNEXPLAINED = Failure(
    "amd-not-listed", "AMD GPU", "limits",
    "{framework} was built for AMD GPUs, the kernel offers one, and {framework} lists none.",
    "No cause that the doctor knows was found. {says}",
    look_or_ask,
    "https://github.com/tensorflow/tensorflow/issues/62328 is the same on NVIDIA", LINUX,
    {"framework": "PyTorch", "says": ""},
)  # fmt: skip
FAILURES = (
    NO_KFD, NO_ACCESS, HIDDEN, UNSUPPORTED, UNOFFICIAL, OVERRIDE_WRONG, IN_WSL, OLD_TENSORFLOW, TENSORFLOW_TARGET,
    JAX_TOO_OLD, NO_LIBRARY, NO_KERNELS, INTEGRATED_FIRST, CPU_BUILD, UNEXPLAINED,
)  # fmt: skip

# --------------------------------------------------------------- each judges the facts, the most fundamental first


def no_kfd(facts: Facts) -> Iterator[Finding]:
    """Is there a card that the kernel does not offer; in WSL and in containers that is so by design."""
    outside = facts.host.wsl or facts.host.container or facts.host.system != "Linux"
    if on_the_bus(facts) and not facts.there("dev/kfd") and not outside:
        yield NO_KFD.found(facts.host, "limits" if rocm_builds(facts) else "")


def groups(facts: Facts) -> Iterator[Finding]:
    """May this user open /dev/kfd and the render nodes; on a machine whose kernel offers an AMD GPU."""
    closed = no_access(facts) if facts.there("dev/kfd") else []
    wanted = rocm_builds(facts) or any(gpu.target not in INTEGRATED for gpu in gpus(facts))
    if not closed or not wanted:  # the GPU inside nearly every processor of AMD is not worth a note to everyone
        return
    named = {int(number): name for name, number in re.findall(r"^([\w-]+):[^:]*:(\d+):", facts.text("etc/group"), re.M)}
    owners = sorted({(facts.root / file[1:]).stat().st_gid for file in closed})
    names = [named.get(owner, str(owner)) for owner in owners]
    whose = f"the group{'s' * (len(names) > 1)} {' and '.join(names)}"
    listed_for = [name for name in names if _is_listed(facts, name)]
    reason = f"you are in {listed(listed_for)} only from your next log-in on" if listed_for else "you are not in it"
    severity = "" if rocm_builds(facts) else "note"
    yield NO_ACCESS.found(facts.host, severity, files=listed(closed), groups=whose, reason=reason)


def _is_listed(facts: Facts, group: str) -> bool:
    """Whether /etc/group lists the user in that group, which a running session does not notice."""
    user = re.search(rf"^([^:]+):[^:]*:{facts.user}:", facts.text("etc/passwd"), re.MULTILINE)
    members = re.search(rf"^{re.escape(group)}:[^:]*:\d+:(.*)$", facts.text("etc/group"), re.MULTILINE)
    return bool(user and members and user[1] in members[1].strip().split(","))


def hidden(facts: Facts) -> Iterator[Finding]:
    """Do the variables hide every GPU; one counts what the one before it left. UUIDs are not judged."""
    left = len(by_kernel(facts) or by_amd_smi(facts.said("amd-smi")))  # rocminfo shows what ROCR_... left
    left = left or (len(gpus(facts)) if VARIABLES[0] not in facts.variables else 0)
    if not left or not on_amd(facts):
        return
    for stage in (VARIABLES[:1], VARIABLES[1:3], VARIABLES[3:]):
        for name in stage:
            value = facts.variables.get(name)
            if value is None:
                continue
            entries = [entry.strip() for entry in value.split(",") if entry.strip()]
            seen = 0
            for entry in entries:
                if re.fullmatch(r"-?\d+", entry) and not 0 <= int(entry) < left:
                    break
                seen += 1
            if not seen:
                given = [one for one in VARIABLES if one in facts.variables]
                values = ", ".join(f"{one} is {facts.variables[one]!r}" for one in given)
                unset = forget(facts.host, *given)
                yield HIDDEN.found(facts.host, variables=" with ".join(given), values=values, unset=unset)
                return
            left = seen
            break


def on_amd(facts: Facts) -> bool:
    """Whether AMD's GPUs are the ones that frameworks here would use: not on a machine with NVIDIA's packages."""
    return not nvidia.there(facts) or bool(rocm_builds(facts))


def target(facts: Facts) -> Iterator[Finding]:
    """Is each GPU one for which there are packages; only told where ROCm is wanted."""
    if not (rocm_builds(facts) or facts.said("rocminfo")):
        return
    cards = [gpu for gpu in gpus(facts) if gpu.target not in INTEGRATED] or gpus(facts)
    for gpu in {gpu.target: gpu for gpu in cards if gpu.target}.values():
        status = STATUS.get(gpu.target)
        if status in (None, "built"):
            yield UNSUPPORTED.found(facts.host, gpu=gpu.name, target=gpu.target)
        elif status == "unofficial" and not _has_kernels(facts, gpu.target):
            override = OVERRIDES.get(gpu.target, "")
            # RX 5000 has no sibling to pass for.
            failure = UNOFFICIAL if override else replace(UNOFFICIAL, next=_packages)
            yield failure.found(facts.host, gpu=gpu.name, target=gpu.target, override=override)


def _has_kernels(facts: Facts, target: str) -> bool:
    """Whether packages with code for this target are installed, or the GPU passes for one that has."""
    return bool(facts.has(*(f"{part}-device-{target}" for part in ("amd-torch", "rocm-sdk")))) or (
        facts.variables.get(OVERRIDE) == OVERRIDES.get(target, "-")
    )


def override(facts: Facts) -> Iterator[Finding]:
    """Does HSA_OVERRIDE_GFX_VERSION fit every GPU here; on Windows nothing reads it."""
    value = facts.variables.get(OVERRIDE)
    cards = [gpu for gpu in gpus(facts) if gpu.target not in INTEGRATED] or gpus(facts)
    real = [gpu for gpu in by_kernel(facts) if gpu.target not in INTEGRATED] or cards  # rocminfo shows the claim itself
    if not value:
        return
    if facts.host.system == "Windows":
        if on_the_bus(facts):
            reason = "Only Linux reads it; on Windows it does nothing."
            yield OVERRIDE_WRONG.found(
                facts.host, "note", variable=OVERRIDE, value=value, gpu="here", target="?", reason=reason
            )
        return
    claimed = numbers(value)
    for number, gpu in enumerate(real):
        name = cards[number].name if len(cards) == len(real) else gpu.name
        digits = re.fullmatch(r"gfx(\d+)([0-9a-f])([0-9a-f])", gpu.target)
        if digits and (int(digits[1]), int(digits[2], 16)) != claimed[:2]:
            reason = OVERRIDE_WRONG.example["reason"]
            yield OVERRIDE_WRONG.found(
                facts.host, variable=OVERRIDE, value=value, gpu=name, target=gpu.target, reason=reason
            )
            return


def in_wsl(facts: Facts) -> Iterator[Finding]:
    """Does a framework built for AMD see no GPU in WSL, while ROCm was not told to look at Windows' driver."""
    if not facts.host.wsl or facts.variables.get("HSA_ENABLE_DXG_DETECTION") == "1":
        return
    blind = [name for name in rocm_builds(facts) if facts.sees_gpu(name) is False]
    if blind:
        yield IN_WSL.found(facts.host, framework=FRAMEWORKS[blind[0]].title)


def old_tensorflow(facts: Facts) -> Iterator[Finding]:
    """Is tensorflow-rocm the one from PyPI."""
    version = facts.packages.get("tensorflow-rocm", "")
    if version and "rocm" not in version:
        one = next((gpu.target for gpu in gpus(facts) if gpu.target), "gfx1100")
        yield OLD_TENSORFLOW.found(facts.host, version=version, target=one)


def tensorflow_target(facts: Facts) -> Iterator[Finding]:
    """Is AMD's TensorFlow built for the GPU here."""
    known = [gpu for gpu in gpus(facts) if gpu.target]
    live = "rocm" in facts.packages.get("tensorflow-rocm", "")
    if live and known and not any(gpu.target in TENSORFLOW_TARGETS for gpu in known):
        card = next((gpu for gpu in known if gpu.target not in INTEGRATED), known[0])
        yield TENSORFLOW_TARGET.found(facts.host, gpu=card.name, target=card.target)


def jax_plugin(facts: Facts) -> Iterator[Finding]:
    """Does jaxlib know the plug-in for ROCm 10."""
    if facts.has("jax-rocm10-plugin") and () < facts.version("jaxlib") < JAXLIB_FOR_ROCM_10:
        yield JAX_TOO_OLD.found(facts.host, version=facts.packages["jaxlib"])


def libraries(facts: Facts) -> Iterator[Finding]:
    """Does a framework's import fail for a library of ROCm."""
    for name in rocm_builds(facts):
        answer = facts.answers.get(name)
        missing = re.search(LIBRARIES, answer.message) if answer and answer.state == "failed" else None
        if missing:
            yield NO_LIBRARY.found(facts.host, framework=FRAMEWORKS[name].title, library=missing[0])
            return


def torch_kernels(facts: Facts) -> Iterator[Finding]:
    """Do PyTorch's parts, where AMD's packages come in parts, hold one for a GPU that is here."""
    parts = sorted(
        name.removeprefix("amd-torch-device-") for name in facts.packages if name.startswith("amd-torch-device-")
    )
    known = [gpu for gpu in gpus(facts) if gpu.target]
    if not parts or not known or any(_covers(part, gpu.target) for part in parts for gpu in known):
        return
    card = next((gpu for gpu in known if gpu.target not in INTEGRATED), known[0])
    yield NO_KERNELS.found(facts.host, gpu=card.name, target=card.target, has=listed(parts))


def _covers(part: str, target: str) -> bool:
    """Whether a part is for that target, or for its whole family (amd-torch-device-gfx11)."""
    return part in (target, "all") or (target.startswith(part) and len(part) < len(target))


def integrated_first(facts: Facts) -> Iterator[Finding]:
    """Is the first GPU the one inside the processor, while there is a card, and nothing chooses."""
    known = gpus(facts) or _by_torch(facts)
    cards = [number for number, gpu in enumerate(known) if gpu.target not in INTEGRATED]
    chosen = any(facts.variables.get(name) for name in VARIABLES[:3])
    if known and cards and cards[0] > 0 and not chosen and rocm_builds(facts):
        first, card = known[0], known[cards[0]]
        target = first.target if gpus(facts) else "by its name"
        yield INTEGRATED_FIRST.found(facts.host, first=first.name, target=target, card=card.name, number=cards[0])


def _by_torch(facts: Facts) -> list[Gpu]:
    """The GPUs in PyTorch's order, which is all that Windows tells; one inside a processor is known by its name."""
    answer = facts.answers.get("torch")
    names = [device.name for device in answer.devices if device.kind == "gpu"] if answer else []
    return [Gpu(INTEGRATED[0] if looks_integrated(name) else "", name) for name in names]


def cpu_build(facts: Facts) -> Iterator[Finding]:
    """Does Keras compute with a framework built for processors, though an AMD GPU with packages works here."""
    if not there(facts) or not on_amd(facts) or facts.host.wsl:
        return
    builds, backend = rocm_builds(facts), facts.backend()
    good = [gpu for gpu in gpus(facts) if STATUS.get(gpu.target) == "supported" or gpu.target in OVERRIDES]
    good = [gpu for gpu in good if gpu.target not in INTEGRATED or STATUS[gpu.target] == "supported"]
    here = {"tensorflow": facts.has("tensorflow", "tensorflow-cpu"), "jax": facts.has("jax"), "torch": facts.torch}
    if nvidia.there(facts) or not good or not here.get(backend) or backend in builds or facts.sees_gpu(backend):
        return
    without = [FRAMEWORKS[name].title for name, installed in here.items() if installed and name not in builds]
    card = next((gpu for gpu in good if gpu.target not in INTEGRATED), good[0])
    yield CPU_BUILD.found(facts.host, gpu=card.name, target=card.target, frameworks=together(without))


def not_listed(facts: Facts) -> Iterator[Finding]:
    """Does a framework that was built for the GPU list none, and no other finding says why."""
    causes = (groups, hidden, in_wsl, libraries, old_tensorflow, jax_plugin, tensorflow_target, override)
    if not there(facts) or any(list(cause(facts)) for cause in causes):
        return
    for framework in rocm_builds(facts):
        if facts.sees_gpu(framework) is False:
            says = facts.answers[framework].message
            title = FRAMEWORKS[framework].title
            yield UNEXPLAINED.found(facts.host, framework=title, says=says and f"It says: {says}")


JUDGES = (
    no_kfd, groups, hidden, target, override, in_wsl, old_tensorflow, tensorflow_target, jax_plugin, libraries,
    torch_kernels, integrated_first, not_listed, cpu_build,
)  # fmt: skip
