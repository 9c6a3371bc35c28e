"""Findings about AMD GPUs: the kernel's driver, groups, gfx target, what hides them, and frameworks.

Not verified on hardware: tested with outputs of rocminfo that others have published.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from helpers.compute.frameworks import looks_integrated
from helpers.doctor import nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, found, listed

VENDOR = "1002"  # on the PCI bus: https://pci-ids.ucw.cz
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

# What AMD says of each gfx target. supported: the list of ROCm 10.1's AI documentation (docs/data/gpus.yaml, commit
# 16069a6). unofficial: not in that list, but TheRock builds packages and marks them as tested
# (https://github.com/ROCm/TheRock/blob/main/SUPPORTED_GPUS.md, 2026-08-22).
TARGETS = {
    "supported": (
        "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103",
        "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
    ),
    "unofficial": ("gfx1010", "gfx1011", "gfx1012", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
}  # fmt: skip
STATUS = {target: status for status, targets in TARGETS.items() for target in targets}
# The RX 6000, gfx103x, may claim to be one of them, where packages hold no code for it but for its sibling; never
# official, Linux alone (https://github.com/ROCm/legacy-rocm-build/issues/2654, 2024-05-17).
SIBLINGS, CLAIM = "gfx103", "10.3.0"
# The gfx target of each Radeon card by its number: all that Windows tells is the name. The docs' table has the same
# (https://rocm.docs.amd.com/projects/install-on-windows/en/docs-7.2/reference/system-requirements.html, 2026-07-31;
# RX 5000: https://llvm.org/docs/AMDGPUUsage.html). Those of laptops (RX 6600M, 6700S) have other chips at times.
BY_NUMBER = {
    "gfx1201": "9070", "gfx1200": "9060", "gfx1100": "7900", "gfx1101": "7800 7700", "gfx1102": "7600",
    "gfx1030": "6950 6900 6800", "gfx1031": "6750 6700", "gfx1032": "6650 6600", "gfx1010": "5700", "gfx1012": "5500",
}  # fmt: skip
UNKNOWN = "gfxNAME"  # stands for a target that is not known
# Inside a processor (https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html).
INTEGRATED = (
    "gfx902", "gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
)  # fmt: skip
VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


class Gpu(NamedTuple):
    """An AMD GPU as ROCm tells it."""

    target: str  # such as gfx1032; empty if unknown
    name: str


def target_of(name: str) -> str:
    """Return the gfx target of a card, such as gfx1032 of "AMD Radeon RX 6600 XT"; empty where the table has none."""
    number = re.search(r"Radeon(?:\(TM\))? RX (\d{4})(?: XTX?| GRE)?(?: \(|$)", name)
    return next((target for target, numbers in BY_NUMBER.items() if number and number[1] in numbers.split()), "")


def gpus(facts: Facts) -> list[Gpu]:
    """Return the GPUs in ROCm's order: by rocminfo, else by the kernel."""
    listed_by_rocminfo = []
    for agent in re.split(r"^\*+\s*\nAgent \d+", facts.stdout("rocminfo"), flags=re.MULTILINE)[1:]:
        words = dict(re.findall(r"^  (Name|Marketing Name|Device Type):[ \t]*(.*?)[ \t]*$", agent, re.MULTILINE))
        if words.get("Device Type") == "GPU":
            listed_by_rocminfo.append(Gpu(words.get("Name", ""), words.get("Marketing Name") or words.get("Name", "")))
    return listed_by_rocminfo or by_kernel(facts)


def by_kernel(facts: Facts) -> list[Gpu]:
    """Return the GPUs that the kernel offers, each named by its target; no variable of ROCm changes them.

    It writes `gfx_target_version 100302` for gfx1032: major, minor and step in two digits each, the last two as
    hexadecimal digits of the name.
    """
    nodes = "sys/class/kfd/kfd/topology/nodes"
    try:
        folders = sorted((facts.root / nodes).iterdir(), key=lambda folder: (len(folder.name), folder.name))
    except OSError:
        return []
    gpus = []
    for folder in folders:
        version = re.search(r"^gfx_target_version (\d+)", facts.text(f"{nodes}/{folder.name}/properties"), re.MULTILINE)
        if version and (number := int(version[1])):  # 0 is the processor
            target = f"gfx{number // 10_000}{number // 100 % 100:x}{number % 100:x}"
            gpus.append(Gpu(target, target))
    return gpus


def cards(facts: Facts) -> list[Gpu]:
    """Return the GPUs that are cards; those inside the processor where there are no others."""
    return [gpu for gpu in gpus(facts) if gpu.target not in INTEGRATED] or gpus(facts)


def works(facts: Facts) -> bool:
    """Whether an AMD GPU can be expected to compute here: on Linux the kernel offers it."""
    return facts.host.system == "Linux" and facts.exists("dev/kfd") and bool(gpus(facts))


def rocm_builds(facts: Facts) -> list[str]:
    """Return the frameworks that are installed for AMD GPUs."""
    builds = ["tensorflow"] if facts.has("tensorflow-rocm") else []
    builds += ["jax"] if facts.has("jax-rocm7-plugin", "jax-rocm10-plugin") else []
    return builds + (["torch"] if facts.torch.startswith("hip") else [])


# --------------------------------------------------------------- each judges the facts, the most fundamental first


def no_kfd(facts: Facts) -> Results:
    """Is there a card that the kernel does not offer; in WSL and in containers that is so by design."""
    outside = facts.host.wsl or facts.host.container or facts.host.system != "Linux"
    if VENDOR in facts.graphics_cards() and not facts.exists("dev/kfd") and not outside:
        yield found("amd-no-kfd", facts.host, "limits" if rocm_builds(facts) else "")


def no_access(facts: Facts) -> Results:
    """May this user open /dev/kfd and the render nodes; the GPU inside nearly every processor of AMD needs no note."""
    builds = rocm_builds(facts)
    wanted = builds or any(gpu.target not in INTEGRATED for gpu in gpus(facts)) or facts.sees_gpu("opencl") is False
    if facts.closed and facts.graphics_cards() and wanted:
        yield found("host-gpu-access", facts.host, "limits" if builds else "note", files=listed(list(facts.closed)))


def hidden(facts: Facts) -> Results:
    """Does a variable hide every GPU; rocminfo shows what ROCR_VISIBLE_DEVICES left."""
    many = len(by_kernel(facts) or gpus(facts))
    names = [name for name in VARIABLES if name in facts.variables and nvidia.hides_all(facts.variables[name], many)]
    if many and names and on_amd(facts):
        yield nvidia.hidden_by(facts, names, "every AMD GPU")


def on_amd(facts: Facts) -> bool:
    """Whether AMD's GPUs are the ones that frameworks here would use: not on a machine with NVIDIA's packages."""
    return not nvidia.works(facts) or bool(rocm_builds(facts))


def target(facts: Facts) -> Results:
    """Is each GPU one for which there are packages; only told where ROCm is wanted."""
    if not (rocm_builds(facts) or facts.stdout("rocminfo")):
        return
    for gpu in {gpu.target: gpu for gpu in cards(facts)}.values():
        status = STATUS.get(gpu.target, "none")
        if status != "supported" and not _has_kernels(facts, gpu.target):
            words = [status] + ["sibling"] * gpu.target.startswith(SIBLINGS)  # RX 5000 has no sibling to pass for
            yield found("amd-target", facts.host, words=words, gpu=gpu.name, target=gpu.target, override=CLAIM)


def _has_kernels(facts: Facts, target: str) -> bool:
    """Whether packages with code for this target are installed, or the GPU passes for one that has."""
    packages = facts.has(*(f"{part}-device-{target}" for part in ("amd-torch", "rocm-sdk")))
    return bool(packages) or (target.startswith(SIBLINGS) and facts.variables.get(OVERRIDE) == CLAIM)


def integrated_first(facts: Facts) -> Results:
    """Is the first GPU the one inside the processor, while there is a card, and nothing chooses."""
    known = gpus(facts) or _by_torch(facts)
    numbers_of_cards = [number for number, gpu in enumerate(known) if gpu.target not in INTEGRATED]
    chosen = any(facts.variables.get(name) for name in VARIABLES)
    if numbers_of_cards and numbers_of_cards[0] > 0 and not chosen and rocm_builds(facts):
        first, card = known[0], known[numbers_of_cards[0]]
        target = first.target if gpus(facts) else "by its name"
        values = {"first": first.name, "target": target, "card": card.name, "number": numbers_of_cards[0]}
        yield found("amd-integrated-first", facts.host, **values)


def _by_torch(facts: Facts) -> list[Gpu]:
    """The GPUs in PyTorch's order, which is all that Windows tells; one inside a processor is known by its name."""
    answer = facts.answers.get("torch")
    names = [device.name for device in answer.devices if device.kind == "gpu"] if answer else []
    return [Gpu(INTEGRATED[0] if looks_integrated(name) else "", name) for name in names]


def cpu_build(facts: Facts) -> Results:
    """Does Keras compute with a framework built for processors, though an AMD GPU with packages works here."""
    if not works(facts) or nvidia.works(facts) or facts.host.wsl:
        return
    own_packages = [gpu for gpu in cards(facts) if STATUS.get(gpu.target) == "supported"]
    passing = [gpu for gpu in cards(facts) if gpu.target.startswith(SIBLINGS) and gpu.target not in INTEGRATED]
    if good := own_packages or passing:
        yield from nvidia.for_processors(facts, rocm_builds(facts), "AMD", f"{good[0].name}, {good[0].target}")


def not_listed(facts: Facts) -> Results:
    """Does a framework that was built for the GPU list none, and no other finding says why."""
    causes = (no_access, hidden)
    if not works(facts) or any(list(cause(facts)) for cause in causes):
        return
    yield from nvidia.lists_none(facts, rocm_builds(facts), "AMD")


JUDGES = (no_access, no_kfd, hidden, target, integrated_first, not_listed, cpu_build)
