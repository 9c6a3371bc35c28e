"""What the doctor knows of a machine: gathered once, side by side, each part with a time-out; then judged without it.

Nothing here judges, and nothing here raises: a tool that is missing, hangs, crashes or prints rubbish is a fact, too.
A test gathers from a folder that stands for the file system (`root`), and from fake tools on PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from helpers import devices
from helpers.devices import Answer, Device
from helpers.devices.host import Host, text_of
from helpers.doctor import settings
from helpers.running import tools
from helpers.running.tools import ToolOutput, ask_tool

FRAMEWORK_SECONDS = 30.0  # for each framework, all at once; a quiet machine needs 2 to 5
SLACK = 1.5  # seconds more until what does not even react to its time-out is left alone
FRAMEWORKS = tuple(devices.FRAMEWORKS)  # each is asked once, for all findings

TOOLS = {  # what is asked of each tool; missing ones are no fault
    "nvidia-smi": ["nvidia-smi"],  # its table, which every driver can print
    "nvidia-smi gpus": ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"],
    "sysctl": ["sysctl", "-n", "sysctl.proc_translated"],  # macOS: 1 where Rosetta translates this process
    "powershell": [  # Windows: the graphics cards, one in a line
        "powershell", "-NoProfile", "-NonInteractive", "-Command",
        "Get-CimInstance Win32_VideoController | ForEach-Object { $_.Name }",
    ],
}  # fmt: skip
SYSTEM = Path(f"{os.environ.get('SYSTEMDRIVE', '')}/")  # on Windows the folder may lie on another drive
ONLY_ON = {"sysctl": "Darwin", "powershell": "Windows"}


@dataclass(frozen=True)
class Facts:
    """Everything that the findings about hardware and frameworks are judged by."""

    host: Host
    root: Path = SYSTEM  # of the file system
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment
    packages: Mapping[str, str] = field(default_factory=dict)  # each installed package (tensorflow-cpu), its version
    torch: str = ""  # what PyTorch was built for: "cpu", "cuda 13.2", "hip 7.2", "xpu 2025.1"; empty without it
    tools: Mapping[str, ToolOutput] = field(default_factory=dict)  # of TOOLS
    answers: Mapping[str, Answer] = field(default_factory=dict)  # of the frameworks
    closed: tuple[str, ...] = ()  # the device files of GPUs that this user may not open
    site: Path | None = None  # where the packages lie; None for this environment

    def stdout(self, tool: str) -> str:
        """What a tool printed if it ended well, else an empty text."""
        output = self.tools.get(tool)
        return output.stdout if output and output.state == "ok" else ""

    def text(self, file: str) -> str:
        """What a small file of the system holds; empty without it."""
        return text_of(self.root / file)

    def exists(self, *files: str) -> bool:
        """Whether one of these files of the system exists."""
        for file in files:
            with contextlib.suppress(OSError):
                if (self.root / file).exists():
                    return True
        return False

    def graphics_cards(self) -> list[str]:
        """The makers of the graphics cards on the PCI bus, as "10de"; of Linux alone, also inside a container.

        The class of a display controller begins with 0x03 (https://pci-ids.ucw.cz, "Display controller").
        """
        found = []
        with contextlib.suppress(OSError):
            for card in sorted((self.root / "sys/bus/pci/devices").iterdir()):
                if self.text(f"sys/bus/pci/devices/{card.name}/class").startswith(("0x03", "0x12")):  # 0x12: Instinct
                    found.append(self.text(f"sys/bus/pci/devices/{card.name}/vendor").strip().removeprefix("0x"))
        return found

    def has(self, *names: str) -> str:
        """The first of these packages that is installed, or an empty text."""
        return next((name for name in names if name in self.packages), "")

    def version(self, name: str) -> tuple[int, ...]:
        """The numbers of a package's version, (2, 21, 0); empty if it is not installed."""
        return numbers(self.packages.get(name, ""))

    def sees_gpu(self, framework: str) -> bool | None:
        """Whether a framework lists a GPU; None if it did not answer."""
        if self.state(framework) != "ok":
            return None
        return any(device.kind == "gpu" for device in self.answers[framework].devices)

    def state(self, framework: str) -> str:
        """How a framework answered, as `Answer.state` has it; empty if it was not asked."""
        return self.answers[framework].state if framework in self.answers else ""

    def tried_devices(self) -> list[Device]:
        """The devices that were let compute."""
        listed = [device for name in FRAMEWORKS if name in self.answers for device in self.answers[name].devices]
        return [device for device in listed if device.state]

    def backend(self) -> str:
        """The framework that Keras will compute with."""
        return settings.chosen_backend(self.variables)[0]


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: (550, 54, 15) of "550.54.15", (2, 14, 0) of "2.14.0+rocm10.1"."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+\-]|rc|dev|[ab]\d", version)[0]))


def gather(host: Host, root: Path = SYSTEM) -> Facts:
    """Find out everything, side by side; the slowest part sets the time, at most FRAMEWORK_SECONDS and SLACK.

    Args:
        host: the machine.
        root: where the system's files lie.
    """
    tools, answers = _ask_side_by_side(host)
    variables = dict(os.environ)
    return Facts(host, root, variables, installed_packages(), torch_build(), tools, answers, closed_files(root))


def _ask_side_by_side(host: Host) -> tuple[dict[str, ToolOutput], dict[str, Answer]]:
    """Ask the tools of this system and the installed frameworks, each in a thread of its own."""
    outputs: dict[str, ToolOutput] = {}
    answers: dict[str, Answer] = {}
    work = [
        lambda name=name, command=command: outputs.__setitem__(name, ask_tool(command))
        for name, command in TOOLS.items()
        if ONLY_ON.get(name, host.system) == host.system
    ]
    work += [lambda name=name: answers.__setitem__(name, devices.ask(name, FRAMEWORK_SECONDS)) for name in FRAMEWORKS]
    threads = [threading.Thread(target=_quietly, args=(each,), daemon=True) for each in work]
    deadline = time.monotonic() + max(tools.TOOL_SECONDS, FRAMEWORK_SECONDS) + SLACK
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(outputs), dict(answers)


def _quietly(work: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # what cannot even be asked stays unknown
        work()


def closed_files(root: Path) -> tuple[str, ...]:
    """Return the device files of GPUs, /dev/kfd and /dev/dri/renderD*, that this user may not open."""
    files = [file for file in (root / "dev/kfd", *sorted((root / "dev/dri").glob("renderD*"))) if file.exists()]
    return tuple(f"/{file.relative_to(root).as_posix()}" for file in files if not os.access(file, os.R_OK | os.W_OK))


def installed_packages() -> dict[str, str]:
    """Return each installed package with its version, without importing it; names as in `tensorflow-cpu`."""
    found = {}
    for package in metadata.distributions():
        with contextlib.suppress(Exception):  # a damaged package has no name, or no version
            found.setdefault(re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(), package.version)
    return found


def torch_build() -> str:
    """Return what PyTorch was built for, read from its version.py without importing it.

    That file has a line for each: `cuda: Optional[str] = '13.2'`, `hip`, `xpu`; None for what it was not built for.
    """
    try:
        spec = importlib.util.find_spec("torch")
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except (AttributeError, TypeError, ValueError, ImportError, OSError):
        return ""
    found = re.findall(r"^(cuda|hip|xpu)\b[^=\n]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
    return " ".join(found[0]) if found else "cpu"


def late(device: Device) -> bool:
    """Return whether a device did not answer in its time: no proof against it."""
    return device.state == "failed" and device.reason.startswith("timed out")
