"""Which AMD GPUs are here, what AMD says of each kind, who may open them, and which frameworks were built for them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from helpers.doctor.facts import Facts

VENDOR = "1002"  # on the PCI bus: https://pci-ids.ucw.cz
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

# What AMD says of each gfx target. supported: the list of ROCm 10.1's AI documentation (docs/data/gpus.yaml, commit
# 16069a6). unofficial: not in that list, but TheRock builds packages and marks them as tested
# (https://github.com/ROCm/TheRock/blob/main/SUPPORTED_GPUS.md, 2026-08-22). built: packages that nobody has tested.
TARGETS = {
    "supported": (
        "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103",
        "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
    ),
    "unofficial": ("gfx1010", "gfx1011", "gfx1012", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "built": ("gfx900", "gfx906"),
}  # fmt: skip
STATUS = {target: status for status, targets in TARGETS.items() for target in targets}
# The version that a GPU may claim to be, where packages hold no code for it but for its sibling; never official, Linux
# alone (https://github.com/ROCm/legacy-rocm-build/issues/2654, 2024-05-17; https://github.com/ROCm/Tensile/issues/1907).
OVERRIDES = dict.fromkeys(("gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"), "10.3.0")
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
# TensorFlow 2.21 for ROCm 10.1: Instinct MI300 and newer, Radeon RX 7000 and 9000
# (https://rocm.docs.amd.com/projects/ai-ecosystem/en/latest/frameworks/tensorflow/install.html).
TENSORFLOW_TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201")
VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


class Gpu(NamedTuple):
    """An AMD GPU as ROCm tells it."""

    target: str  # such as gfx1032; empty if unknown
    name: str


def by_name(name: str) -> str:
    """Return the gfx target of a card, such as gfx1032 of "AMD Radeon RX 6600 XT"; empty where the table has none."""
    number = re.search(r"Radeon(?:\(TM\))? RX (\d{4})(?: XTX?| GRE)?(?: \(|$)", name)
    return next((target for target, numbers in BY_NUMBER.items() if number and number[1] in numbers.split()), "")


def gpus(facts: Facts) -> list[Gpu]:
    """Return the GPUs in ROCm's order: by rocminfo, else by amd-smi, else by the kernel."""
    found = []
    for agent in re.split(r"^\*+\s*\nAgent \d+", facts.said("rocminfo"), flags=re.MULTILINE)[1:]:
        words = dict(re.findall(r"^  (Name|Marketing Name|Device Type):[ \t]*(.*?)[ \t]*$", agent, re.MULTILINE))
        if words.get("Device Type") == "GPU":
            found.append(Gpu(words.get("Name", ""), words.get("Marketing Name") or words.get("Name", "")))
    return found or by_amd_smi(facts.said("amd-smi")) or by_kernel(facts)


def by_amd_smi(text: str) -> list[Gpu]:
    """Return the GPUs of `amd-smi static --asic --json`: a list (ROCm 6), or {"gpu_data": a list} (ROCm 7)."""
    start = re.search(r"^\s*[\[{]", text, re.MULTILINE)  # warnings may stand above
    try:
        told, _ = json.JSONDecoder().raw_decode(text, start.end() - 1)
        entries = told["gpu_data"] if isinstance(told, dict) else told
        asics = [entry["asic"] for entry in entries]
        return [Gpu(str(asic.get("target_graphics_version", "")), str(asic["market_name"])) for asic in asics]
    except (AttributeError, ValueError, KeyError, TypeError):
        return []


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
    found = []
    for folder in folders:
        version = re.search(r"^gfx_target_version (\d+)", facts.text(f"{nodes}/{folder.name}/properties"), re.MULTILINE)
        if version and (number := int(version[1])):  # 0 is the processor
            target = f"gfx{number // 10_000}{number // 100 % 100:x}{number % 100:x}"
            found.append(Gpu(target, target))
    return found


def on_the_bus(facts: Facts) -> bool:
    """Whether an AMD graphics card is in this machine, driver or not."""
    cards = facts.said("powershell") if facts.host.system == "Windows" else ""
    return VENDOR in facts.graphics_cards() or bool(re.search(r"\bAMD\b|Radeon", cards))


def there(facts: Facts) -> bool:
    """Whether an AMD GPU can be expected to compute here: on Linux the kernel offers it."""
    return facts.host.system == "Linux" and facts.there("dev/kfd") and bool(gpus(facts))


def rocm_builds(facts: Facts) -> list[str]:
    """Return the frameworks that are installed for AMD GPUs."""
    found = ["tensorflow"] if facts.has("tensorflow-rocm") else []
    found += ["jax"] if facts.has("jax-rocm7-plugin", "jax-rocm10-plugin") else []
    return found + (["torch"] if facts.torch.startswith("hip") else [])


def no_access(facts: Facts) -> list[str]:
    """Return the device files of GPUs that this user may not open: /dev/kfd and /dev/dri/renderD*."""
    if facts.user == 0:
        return []
    files = [facts.root / "dev/kfd"]
    if (facts.root / "dev/dri").is_dir():
        files += sorted((facts.root / "dev/dri").glob("renderD*"))
    return [f"/{file.relative_to(facts.root).as_posix()}" for file in files if _closed(facts, file)]


def _closed(facts: Facts, file: Path) -> bool:
    try:
        rights = file.stat()
    except OSError:
        return False
    if hasattr(os, "getuid") and (facts.root, facts.user) == (Path("/"), os.getuid()):
        return not os.access(file, os.R_OK | os.W_OK)  # the kernel's own answer; it knows lists of access rights, too
    both = stat.S_IROTH | stat.S_IWOTH  # read and write
    if rights.st_uid == facts.user:
        return (rights.st_mode >> 6) & both != both
    if rights.st_gid in facts.groups:
        return (rights.st_mode >> 3) & both != both
    return rights.st_mode & both != both
