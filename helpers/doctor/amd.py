"""Findings about AMD GPUs: the kernel's driver, groups, what hides them, and frameworks. Not verified on hardware."""

from __future__ import annotations

import re

from helpers.devices.frameworks import looks_integrated
from helpers.doctor import nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, comma_list, tell

VENDOR = "1002"  # on the PCI bus: https://pci-ids.ucw.cz
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

# The gfx targets for which there are packages: the list of ROCm 10.1's AI documentation (docs/data/gpus.yaml, commit
# 16069a6), and what TheRock marks as tested (https://github.com/ROCm/TheRock/blob/main/SUPPORTED_GPUS.md, 2026-08-22).
WITH_PACKAGES = (
    "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103",
    "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
    "gfx1010", "gfx1011", "gfx1012", "gfx1031", "gfx1032", "gfx1034",
)  # fmt: skip
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


def target_of(name: str) -> str:
    """Return the gfx target of a card, such as gfx1032 of "AMD Radeon RX 6600 XT"; empty where the table has none."""
    number = re.search(r"Radeon(?:\(TM\))? RX (\d{4})(?: XTX?| GRE)?(?: \(|$)", name)
    return next((target for target, numbers in BY_NUMBER.items() if number and number[1] in numbers.split()), "")


def gpus(facts: Facts) -> list[str]:
    """Return the targets of the GPUs that the kernel offers, in ROCm's order; no variable of ROCm changes them.

    It writes `gfx_target_version 100302` for gfx1032: major, minor and step in two digits each, the last two as
    hexadecimal digits of the name.
    """
    nodes = "sys/class/kfd/kfd/topology/nodes"
    try:
        folders = sorted((facts.root / nodes).iterdir(), key=lambda folder: (len(folder.name), folder.name))
    except OSError:
        return []
    targets = []
    for folder in folders:
        version = re.search(r"^gfx_target_version (\d+)", facts.text(f"{nodes}/{folder.name}/properties"), re.MULTILINE)
        if version and (number := int(version[1])):  # 0 is the processor
            targets.append(f"gfx{number // 10_000}{number // 100 % 100:x}{number % 100:x}")
    return targets


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
        yield tell("amd-no-kfd", facts.host, "limits" if rocm_builds(facts) else "")


def no_access(facts: Facts) -> Results:
    """May this user open /dev/kfd and the render nodes; the GPU inside nearly every processor of AMD needs no note."""
    builds = rocm_builds(facts)
    wanted = builds or any(target not in INTEGRATED for target in gpus(facts)) or facts.sees_gpu("opencl") is False
    if facts.closed and facts.graphics_cards() and wanted:
        about, files = {"opencl", *builds}, comma_list(list(facts.closed))
        yield tell("host-gpu-access", facts.host, "limits" if builds else "note", about=about, files=files)


def hidden(facts: Facts) -> Results:
    """Does a variable hide every GPU."""
    many = len(gpus(facts))
    names = [name for name in VARIABLES if name in facts.variables and nvidia.hides_all(facts.variables[name], many)]
    if many and names and on_amd(facts):
        yield nvidia.hidden_by(facts, names, "every AMD GPU")


def on_amd(facts: Facts) -> bool:
    """Whether AMD's GPUs are the ones that frameworks here would use: not on a machine with NVIDIA's packages."""
    return not nvidia.works(facts) or bool(rocm_builds(facts))


def integrated_first(facts: Facts) -> Results:
    """Is the first GPU of a framework the one inside the processor, while there is a card, and nothing chooses."""
    if any(facts.variables.get(name) for name in VARIABLES):
        return
    for framework in rocm_builds(facts):
        devices = facts.answers[framework].devices if framework in facts.answers else ()
        known = [device for device in devices if device.kind == "gpu"]
        inside = [device.integrated or looks_integrated(device.name) for device in known]
        if any(inside[:1]) and not all(inside):
            number = inside.index(False)
            values = {"first": known[0].name, "card": known[number].name, "number": number}
            yield tell("amd-integrated-first", facts.host, **values)
            return


def cpu_build(facts: Facts) -> Results:
    """Does Keras compute with a framework built for processors, though an AMD GPU with packages works here."""
    if not works(facts) or nvidia.works(facts) or facts.host.wsl:
        return
    good = [target for target in gpus(facts) if target in WITH_PACKAGES]
    cards = [target for target in good if target not in INTEGRATED]
    if good:
        yield from nvidia.for_processors(facts, rocm_builds(facts), "AMD", (cards or good)[0])


def not_listed(facts: Facts) -> Results:
    """Does a framework that was built for the GPU list none."""
    if works(facts):
        yield from nvidia.lists_none(facts, rocm_builds(facts), "AMD")


JUDGES = (no_access, no_kfd, hidden, integrated_first, not_listed, cpu_build)
