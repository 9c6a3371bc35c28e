"""What the facts say of the GPUs here, for the judges of all families: readings, no findings.

What is said of NVIDIA was run on one H100, otherwise tested with outputs of nvidia-smi that others have published, of
old and new drivers. What is said of AMD and Windows was not verified on hardware.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from helpers.doctor.facts import Facts

# The vendors on the PCI bus: https://pci-ids.ucw.cz
NVIDIA, AMD, INTEL = "10de", "1002", "8086"
VENDORS = {"NVIDIA": "NVIDIA", "AMD": "AMD|Radeon", "Intel": "Intel"}  # patterns for names of cards
NODES = {  # one of a vendor's files is there where a program can reach its GPU
    NVIDIA: ("dev/nvidiactl", "dev/nvidia0", "dev/dxg"),
    AMD: ("dev/kfd",),
}
DRIVER_VERSION = re.compile(r"(?:Driver|KMD) Version:\s*(\d+[\d.]+)")  # in nvidia-smi's table, old or new
KERNEL_MODULE = re.compile(r"Kernel Module[^\d\n]*(?:x86_64|aarch64)?\s+(\d+\.[\d.]+)")

# GTX 900, GTX 10 and Titan V (Maxwell, Pascal, Volta) are between these two, by compute capability and by the number of
# the chip on the PCI bus. In the list of https://pci-ids.ucw.cz (version 2023.04.10, Debian's package pci.ids) all 197
# GM, GP and GV chips are from 0x1340 (GM108) to 0x1df6 (GV100), no other GPU is among them, the 287 GF and GK chips end
# with 0x12ba, and the 270 TU, GA, AD and GH chips begin with 0x1e02 (TU102), as does the list of NVIDIA's open kernel
# modules, which know nothing older (README.md of https://github.com/NVIDIA/open-gpu-kernel-modules).
MAXWELL, TURING = (5, 0), (7, 5)
MAXWELL_CHIP, TURING_CHIP = 0x1340, 0x1E00

AMD_TABLE = tomllib.loads((Path(__file__).parent / "amd_gpus.toml").read_text(encoding="utf-8"))
AMD_WITH_PACKAGES: tuple[str, ...] = tuple(AMD_TABLE["with-packages"])
AMD_INTEGRATED: tuple[str, ...] = tuple(AMD_TABLE["integrated"])
AMD_TARGETS: dict[str, str] = {name: target for target, names in AMD_TABLE["names"].items() for name in names}
RADEON = re.compile(
    r"Radeon(?:\(TM\))? (RX \d{4}|AI PRO R\d{4}|PRO W\d{4}|\d{3}M|\d{4}S)(?: XTX?| GRE| Dual Slot| Graphics)?(?: \(|$)"
)


class NvidiaGpu(NamedTuple):
    """An NVIDIA GPU as its driver describes it."""

    name: str
    driver: str
    capability: tuple[int, int]  # of computing, such as (8, 6)


def list_nvidia_gpus(facts: Facts) -> list[NvidiaGpu]:
    """Return the GPUs by nvidia-smi; none if the driver is before 510 or so, which does not know the question.

    A GPU that fell off the bus has no version.
    """
    row = re.compile(r"^(.+), (\d+\.[\d.]+), (\d+)\.(\d+)\s*$", re.MULTILINE)
    rows = row.findall(_read_output(facts, "nvidia-smi gpus"))
    return [NvidiaGpu(name, driver, (int(major), int(minor))) for name, driver, major, minor in rows]


def read_nvidia_driver(facts: Facts) -> str:
    """Return the driver's version: by nvidia-smi's rows, by its table (old or new), or by the kernel's module.

    The table says "Driver Version: 550.54.15" and since about 610 "KMD Version: 610.43.02".
    """
    if listed := list_nvidia_gpus(facts):
        return listed[0].driver
    table = DRIVER_VERSION.search(_read_output(facts, "nvidia-smi"))
    version = table or KERNEL_MODULE.search(facts.read_text("proc/driver/nvidia/version"))
    return version[1] if version else ""


def is_nvidia_working(facts: Facts) -> bool:
    """Return whether an NVIDIA GPU can be expected to compute here: its driver answers.

    A container without devices sees the machine's driver in /proc all the same, and has no nvidia-smi.
    """
    if list_nvidia_gpus(facts):
        return True
    is_reachable = not facts.host.container or facts.has_file(*NODES[NVIDIA])
    return bool(read_nvidia_driver(facts)) and not is_nvidia_smi_failing(facts) and is_reachable


def is_nvidia_smi_failing(facts: Facts) -> bool:
    """Return whether nvidia-smi fails, and shows no driver's version."""
    table = facts.tools.get("nvidia-smi")
    return table is not None and table.state == "failed" and not DRIVER_VERSION.search(table.stdout)


def find_last_branch(facts: Facts) -> str:
    """Return the last branch of NVIDIA's driver that knows the GPUs here, "580" or "470"; empty if the newest does.

    It is also empty where nothing shows the generation of a GPU (see `is_nvidia_generation_known`).
    """
    capabilities = [gpu.capability for gpu in list_nvidia_gpus(facts)]
    chips = [chip for vendor, chip in facts.list_pci_cards() if vendor == NVIDIA]
    if capabilities:
        is_old, is_oldest = max(capabilities) < TURING, max(capabilities) < MAXWELL
    else:
        is_old = bool(chips) and min(chips) > 0 and max(chips) < TURING_CHIP
        is_oldest = is_old and max(chips) < MAXWELL_CHIP
    if is_oldest:
        return "470"
    return "580" if is_old else ""


def is_nvidia_generation_known(facts: Facts) -> bool:
    """Return whether nvidia-smi or the PCI bus shows the generation of the GPUs."""
    chips = [chip for vendor, chip in facts.list_pci_cards() if vendor == NVIDIA]
    return bool(list_nvidia_gpus(facts)) or (bool(chips) and all(chips))


def _read_output(facts: Facts, tool: str) -> str:
    """Return what a tool printed, though it may have failed.

    With status 14 nvidia-smi warns that the infoROM is corrupted, below its table of GPUs that compute:
    https://docs.nvidia.com/deploy/nvidia-smi
    """
    output = facts.tools.get(tool)
    return output.stdout if output else ""


def list_amd_targets(facts: Facts) -> list[str]:
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
        properties = facts.read_text(f"{nodes}/{folder.name}/properties")
        version = re.search(r"^gfx_target_version (\d+)", properties, re.MULTILINE)
        if version and (number := int(version[1])):  # 0 is the processor
            targets.append(f"gfx{number // 10_000}{number // 100 % 100:x}{number % 100:x}")
    return targets


def find_amd_target(name: str) -> str:
    """Return the gfx target of a GPU by its name; empty where the table has none.

    >>> find_amd_target("AMD Radeon RX 6600 XT"), find_amd_target("AMD Radeon(TM) Graphics")
    ('gfx1032', '')
    """
    card = RADEON.search(name)
    return AMD_TARGETS.get(card[1], "") if card else ""


def list_gpu_vendors(facts: Facts) -> list[str]:
    """Return the vendors of the GPUs whose driver is loaded, "NVIDIA", "AMD" or "Intel"; on a Mac none."""
    if facts.host.system == "Windows":
        names = " ".join(list_windows_cards(facts))
        return [vendor for vendor, pattern in VENDORS.items() if re.search(pattern, names)]
    known = {INTEL: "Intel", AMD: "AMD"} if facts.has_file("dev/dri/renderD128") else {}
    vendors = [known[card] for card in dict.fromkeys(facts.list_graphics_cards()) if card in known]
    return [*vendors, "NVIDIA"] if is_nvidia_working(facts) else vendors


def list_windows_cards(facts: Facts) -> list[str]:
    """Return the names of the GPUs that Windows lists; those of basic drivers and simple ones are left out."""
    lines = [line.strip() for line in facts.read_stdout("powershell").splitlines()]
    names = [line for line in lines if re.search(r"NVIDIA|AMD|Radeon|Intel.*Arc", line)]
    return names or [gpu.name for gpu in list_nvidia_gpus(facts)]


def list_branch_words(facts: Facts) -> list[str]:
    """Return what the cases of failures.toml may ask about the driver that fits."""
    if branch := find_last_branch(facts):
        return [f"branch-{branch}"]
    return [] if is_nvidia_generation_known(facts) else ["branch-unknown"]
