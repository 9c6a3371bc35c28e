"""What the doctor knows of a machine: facts that were gathered once, which all judges share.

Nothing here asks, and nothing here judges. `gather.py` fills the facts; a test fills them by hand.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers import ROOT, devices
from helpers.devices import Answer, Device
from helpers.devices.host import Host, text_of
from helpers.running.tools import ToolOutput

FRAMEWORK_SECONDS = 30.0  # for each framework, all at once; a quiet machine needs 2 to 5
FRAMEWORKS = tuple(devices.FRAMEWORKS)  # each is asked once, for all findings
SYSTEM = Path(f"{os.environ.get('SYSTEMDRIVE', '')}/")  # on Windows the folder may lie on another drive
DISPLAY_CONTROLLERS = ("0x03", "0x12")  # how their class begins (https://pci-ids.ucw.cz); 0x12 is that of Instinct


@dataclass(frozen=True)
class Facts:
    """Everything that the findings about hardware and frameworks are judged by."""

    host: Host
    root: Path = SYSTEM  # of the file system
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment
    packages: Mapping[str, str] = field(default_factory=dict)  # each installed package (tensorflow-cpu), its version
    torch: str = ""  # what PyTorch was built for: "cpu", "cuda 13.2", "hip 7.2", "xpu 2025.1"; empty without it
    tools: Mapping[str, ToolOutput] = field(default_factory=dict)  # by the names of `gather.TOOLS`
    answers: Mapping[str, Answer] = field(default_factory=dict)  # of the frameworks
    closed: tuple[str, ...] = ()  # the device files of GPUs that this user may not open
    backend: str = "tensorflow"  # the framework that Keras will compute with
    site: Path | None = None  # the folder of the packages; None for this environment
    folder: Path = ROOT  # the workshop's

    def read_stdout(self, tool: str) -> str:
        """Return what a tool printed if it ended well, otherwise an empty text."""
        output = self.tools.get(tool)
        return output.stdout if output and output.state == "ok" else ""

    def read_text(self, file: str) -> str:
        """Return what a small file of the system holds; empty without it."""
        return text_of(self.root / file)

    def has_file(self, *files: str) -> bool:
        """Return whether one of these files of the system exists."""
        for file in files:
            with contextlib.suppress(OSError):
                if (self.root / file).exists():
                    return True
        return False

    def list_graphics_cards(self) -> list[str]:
        """Return the vendors of the graphics cards on the PCI bus, as "10de"; on Linux alone, also in a container."""
        return [vendor for vendor, _ in self.list_pci_cards()]

    def list_pci_cards(self) -> list[tuple[str, int]]:
        """Return the graphics cards on the PCI bus: the vendor, as "10de", and the number of the chip, 0 if unknown."""
        bus = "sys/bus/pci/devices"
        cards = []
        with contextlib.suppress(OSError):
            for folder in sorted((self.root / bus).iterdir()):
                if self.read_text(f"{bus}/{folder.name}/class").startswith(DISPLAY_CONTROLLERS):
                    vendor = self.read_text(f"{bus}/{folder.name}/vendor").strip().removeprefix("0x")
                    chip = re.fullmatch(r"0x([0-9a-f]{4})\s*", self.read_text(f"{bus}/{folder.name}/device"))
                    cards.append((vendor, int(chip[1], 16) if chip else 0))
        return cards

    def find_package(self, *names: str) -> str:
        """Return the first of these packages that is installed, or an empty text."""
        return next((name for name in names if name in self.packages), "")

    def read_version(self, package: str) -> tuple[int, ...]:
        """Return the numbers of a package's version, (2, 21, 0); empty if it is not installed."""
        return parse_version(self.packages.get(package, ""))

    def has_gpu(self, framework: str) -> bool:
        """Return whether a framework lists a GPU."""
        return self.get_state(framework) == "ok" and any(
            device.kind == "gpu" for device in self.answers[framework].devices
        )

    def has_no_gpu(self, framework: str) -> bool:
        """Return whether a framework answered and lists no GPU; of one that gave no answer nothing is known."""
        return self.get_state(framework) == "ok" and not self.has_gpu(framework)

    def get_state(self, framework: str) -> str:
        """Return how a framework answered, as `Answer.state` has it; empty if it was not asked."""
        return self.answers[framework].state if framework in self.answers else ""

    def list_tried_devices(self) -> list[Device]:
        """Return the devices that were let compute."""
        listed = [device for name in FRAMEWORKS if name in self.answers for device in self.answers[name].devices]
        return [device for device in listed if device.state]


def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version.

    >>> parse_version("550.54.15"), parse_version("2.14.0+rocm10.1"), parse_version("2.22.0rc0"), parse_version("")
    ((550, 54, 15), (2, 14, 0), (2, 22, 0), ())
    """
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+\-]|rc|dev|[ab]\d", version)[0]))


def is_late(device: Device) -> bool:
    """Return whether a device did not answer in its time: no proof against it."""
    return device.state == "failed" and device.reason.startswith("timed out")
