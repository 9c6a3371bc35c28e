"""Gathers the facts: once, side by side, each part with a time-out.

Nothing here raises: a tool that is missing, hangs, crashes or prints rubbish is a fact, too. A test gathers from a
folder that stands for the file system (`root`), and from fake tools on PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

from helpers import devices
from helpers.devices import Answer
from helpers.devices.host import Host
from helpers.doctor import settings
from helpers.doctor.facts import FRAMEWORK_SECONDS, FRAMEWORKS, SYSTEM, Facts
from helpers.running import tools
from helpers.running.tools import ToolOutput, ask_tool

SLACK = 1.5  # seconds more until what does not even react to its time-out is left alone
POWERSHELL = ["powershell", "-NoProfile", "-NonInteractive", "-Command"]
TOOLS = {  # what is asked of each tool; missing ones are no fault
    "nvidia-smi": ["nvidia-smi"],  # its table, which every driver can print
    "nvidia-smi gpus": ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"],
    "sysctl": ["sysctl", "-n", "sysctl.proc_translated"],  # macOS: 1 where Rosetta translates this process
    # Windows: the graphics cards, one in a line
    "powershell": [*POWERSHELL, "Get-CimInstance Win32_VideoController | ForEach-Object { $_.Name }"],
}
ONLY_ON = {"sysctl": "Darwin", "powershell": "Windows"}


def gather(host: Host, root: Path = SYSTEM) -> Facts:
    """Find out everything, side by side; the slowest part sets the time, at most FRAMEWORK_SECONDS and SLACK.

    Args:
        host: the machine.
        root: the folder of the system's files.
    """
    outputs, answers = _ask_side_by_side(host)
    variables = dict(os.environ)
    return Facts(
        host,
        root,
        variables,
        list_packages(),
        read_torch_build(),
        outputs,
        answers,
        find_closed_files(root),
        settings.find_backend(variables)[0],
    )


def _ask_side_by_side(host: Host) -> tuple[dict[str, ToolOutput], dict[str, Answer]]:
    """Ask the tools of this system and the installed frameworks, each in a thread of its own."""
    outputs: dict[str, ToolOutput] = {}
    answers: dict[str, Answer] = {}

    def ask_for_tool(name: str) -> None:
        outputs[name] = ask_tool(TOOLS[name])

    def ask_for_framework(name: str) -> None:
        answers[name] = devices.ask(name, FRAMEWORK_SECONDS)

    work = [partial(ask_for_tool, name) for name in TOOLS if ONLY_ON.get(name, host.system) == host.system]
    work += [partial(ask_for_framework, name) for name in FRAMEWORKS]
    threads = [threading.Thread(target=_run_quietly, args=(each,), daemon=True) for each in work]
    deadline = time.monotonic() + max(tools.TOOL_SECONDS, FRAMEWORK_SECONDS) + SLACK
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(outputs), dict(answers)


def _run_quietly(work: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # what cannot even be asked stays unknown
        work()


def find_closed_files(root: Path) -> tuple[str, ...]:
    """Return the device files of GPUs, /dev/kfd and /dev/dri/renderD*, that this user may not open."""
    files = [file for file in (root / "dev/kfd", *sorted((root / "dev/dri").glob("renderD*"))) if file.exists()]
    return tuple(f"/{file.relative_to(root).as_posix()}" for file in files if not os.access(file, os.R_OK | os.W_OK))


def list_packages() -> dict[str, str]:
    """Return each installed package with its version, without importing it; names as in `tensorflow-cpu`."""
    versions: dict[str, str] = {}
    for package in metadata.distributions():
        with contextlib.suppress(Exception):  # a damaged package has no name, or no version
            versions.setdefault(re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(), package.version)
    return versions


def read_torch_build() -> str:
    """Return what PyTorch was built for, read from its version.py without importing it.

    That file has a line for each: `cuda: Optional[str] = '13.2'`, `hip`, `xpu`; None for what it was not built for.
    """
    try:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            return ""
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except (AttributeError, ValueError, ImportError, OSError):
        return ""
    named = re.findall(r"^(cuda|hip|xpu)\b[^=\n]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
    return " ".join(named[0]) if named else "cpu"
