"""What `doctor --report` writes: the findings, and what a helper asks first, to be sent to an instructor or an issue.

It holds no output of a vendor's tool, and no variable whose value may be a path or an address. The user's name, the
computer's name and the home folder are replaced wherever a finding names them; the text says what that cannot promise.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from dataclasses import replace
from pathlib import Path

from helpers import ROOT
from helpers.doctor.facts import Facts
from helpers.doctor.gpus import read_nvidia_driver
from helpers.doctor.terminal import Findings, report

PACKAGES = re.compile(
    r"numpy|keras|tensorflow.*|jax.*|torch.*|pyopencl|pocl-.*|intel-opencl-.*|onnxruntime.*|wgpu|nvidia-cu.*|rocm.*"
)
VARIABLES = re.compile(  # whose values are numbers or names of devices
    r"(CUDA_VISIBLE_DEVICES|(HIP|ROCR)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|HSA_OVERRIDE_GFX_VERSION|RUSTICL_ENABLE"
    r"|HSA_ENABLE_DXG_DETECTION|PYOPENCL_CTX|KERAS_BACKEND|JAX_PLATFORMS|ANYGPU_PROFILE|XLA_.*PREALLOCATE|XLA_.*FRACTION)"
)
GENERAL = ("root", "user", "localhost", "jovyan", "runner", "admin")  # names that are nobody's
PROMISE = """\
Any GPU workshop: the doctor's report. Your name, this computer's name and your home folder were replaced; a message or
a path may name something else that is yours. Read it before you send it."""


def compose_letter(findings: Findings) -> str:
    """Return the text for an examination.

    Args:
        findings: what `examine` returned.
    """
    nameless = Findings(  # before the lines are broken: a path may have a space
        replace(
            finding,
            what=without_names(finding.what),
            why=without_names(finding.why),
            next=without_names(finding.next),
        )
        for finding in findings
    )
    nameless.fine = tuple(map(without_names, findings.fine))
    blocks = [PROMISE, report(nameless)]
    if findings.facts:
        lines = ["This machine:", *(f"  {without_names(line)}" for line in _describe_machine(findings.facts))]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _describe_machine(facts: Facts) -> list[str]:
    host = facts.host
    places = [name for name in ("wsl", "container", "hosted") if getattr(host, name)]
    lines = [
        " ".join(filter(None, [host.system, host.machine, host.distribution, *places])),
        f"Python {'.'.join(map(str, host.python))}, packages by {host.installed_by}",
        f"graphics cards on the PCI bus: {', '.join(facts.list_graphics_cards()) or 'none, or unknown'}",
        f"NVIDIA's driver: {read_nvidia_driver(facts) or 'none'}; PyTorch for: {facts.torch or 'not installed'}",
        *(f"{name} {version}" for name, version in sorted(facts.packages.items()) if PACKAGES.fullmatch(name)),
        *(f"{name}={value}" for name, value in sorted(facts.variables.items()) if VARIABLES.fullmatch(name)),
    ]
    for name, answer in facts.answers.items():
        lines.append(f"{name}: {answer.state} {answer.version} {answer.message}".rstrip())
        lines += [f"  {device}: {device.computes or 'not tried'}" for device in answer.devices]
    return lines


def without_names(text: str) -> str:
    """Return a text without the user's name, the computer's name and the paths of the home and of the workshop."""
    for folder, instead in ((str(ROOT), "WORKSHOP"), (str(Path.home()), "~")):
        if len(folder) > 1:
            text = re.sub(re.escape(folder) + r"(?![\w.-])", lambda _, instead=instead: instead, text)
    for ask, instead in ((getpass.getuser, "USER"), (socket.gethostname, "COMPUTER")):
        with contextlib.suppress(Exception):  # a container may have neither
            for name in (ask(), ask().partition(".")[0]):  # the longer one first
                if len(name) > 2 and name.lower() not in GENERAL:
                    text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", instead, text, flags=re.IGNORECASE)
    return text
