"""What the doctor found, for others than the learner: a text to send away, and JSON for programs.

Neither holds the user's name, the computer's name, the path of the home folder, or the number of a GPU.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from dataclasses import asdict
from pathlib import Path

from helpers import ROOT
from helpers.compute.host import Host
from helpers.doctor.facts import Facts, Said
from helpers.doctor.findings import FAMILIES, SEVERITIES, Finding

VERSION = 1  # of the schema; it grows when a field changes its meaning or goes
PACKAGES = (  # whose versions a report names, where they are installed; and all that begin with one of the prefixes
    "numpy", "keras", "tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-metal", "jax", "jaxlib", "torch",
    "pyopencl", "pocl-binary-distribution", "onnxruntime", "tensorflow-directml-plugin", "torch-directml", "wgpu",
)  # fmt: skip
PREFIXES = ("jax-", "nvidia-", "amd-torch-", "rocm", "intel-opencl", "onnxruntime-")
VARIABLES = re.compile(  # that matter for devices, and never hold a secret or an address
    r"^(?:CUDA|NVIDIA|HIP|ROCR|HSA|GPU|OCL|OPENCL|RUSTICL|PYOPENCL|POCL|XLA|JAX|KERAS|ANYGPU)_|^(?:LD|DYLD)_LIBRARY_PATH$"
    r"|^TF_(?:CPP|ENABLE|FORCE|GPU|XLA|USE|NUM|DISABLE|DETERMINISTIC|PLUGGABLE)_"
)
SECRET = re.compile(r"SECRET|TOKEN|PASS|KEY|CREDENTIAL|ADDRESS|AUTH", re.IGNORECASE)
LINES = 40  # of each tool's output

_TEXT = {"type": "string"}
SCHEMA = {  # https://json-schema.org, draft 2020-12
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What `doctor --json` prints",
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "status", "findings", "fine", "machine"],
    "properties": {
        "schema": {"const": VERSION},
        "status": {"enum": [0, 1], "description": "the exit status: 1 if a finding stops the workshop"},
        "findings": {
            "type": "array",
            "description": "the worst first; of equally bad ones the most fundamental first",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "family", "name", "severity", "what", "why", "next", "commands"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[a-z]+(-[a-z0-9]+)+$", "description": "stays the same"},
                    "family": {"enum": list(FAMILIES)},
                    "name": {**_TEXT, "description": "of the thing that it is about, short"},
                    "severity": {"enum": list(SEVERITIES)},
                    "what": {**_TEXT, "description": "one sentence that says what is wrong"},
                    "why": {**_TEXT, "description": "the reason, or what it means"},
                    "next": {**_TEXT, "description": "what to do; lines that start with four spaces are commands"},
                    "commands": {"type": "array", "items": _TEXT, "description": "those commands alone"},
                },
            },
        },
        "fine": {"type": "array", "items": _TEXT, "description": "a few words for each thing that is in order"},
        "machine": {
            "type": "object",
            "additionalProperties": False,
            "required": ["system", "machine", "python", "installed_by", "distribution", "wsl", "container", "hosted"],
            "properties": {
                "system": _TEXT,
                "machine": _TEXT,
                "python": {**_TEXT, "pattern": r"^\d+\.\d+$"},
                "installed_by": {"enum": ["venv", "conda", "binder", "own"]},
                "nvidia": {"type": "boolean", "description": "whether NVIDIA's driver is installed"},
                "distribution": _TEXT,
                "wsl": {"type": "boolean"},
                "container": {"type": "boolean"},
                "hosted": {"enum": ["", "colab", "kaggle"]},
                "packages": {"type": "object", "additionalProperties": _TEXT},
                "variables": {"type": "object", "additionalProperties": _TEXT},
                "devices": {
                    "type": "object",
                    "description": "for each framework its state (ok, not installed, failed, timed out), its devices",
                    "additionalProperties": {"type": "array", "items": _TEXT},
                },
            },
        },
    },
}


def as_json(findings: list[Finding]) -> str:
    """Return the findings as JSON that fits SCHEMA.

    Args:
        findings: what `examine` returned.
    """
    facts = getattr(findings, "facts", None) or Facts(Host.here())
    machine = asdict(facts.host) | {"python": ".".join(map(str, facts.host.python))}
    devices = {name: [answer.state, *map(str, answer.devices)] for name, answer in facts.answers.items()}
    found = {
        "schema": VERSION,
        "status": int(any(finding.severity == "stops" for finding in findings)),
        "findings": [
            asdict(finding) | {"family": finding.family, "commands": commands(finding)} for finding in findings
        ],
        "fine": list(getattr(findings, "fine", ())),
        "machine": machine | {"packages": packages(facts), "variables": variables(facts), "devices": devices},
    }
    return without_names(json.dumps(found, indent=2, ensure_ascii=False), as_in_json=True)


def commands(finding: Finding) -> list[str]:
    """Return the commands of a finding's advice."""
    return [line.strip() for line in finding.next.splitlines() if line.startswith("    ")]


def as_report(findings: list[Finding], text: str) -> str:
    """Return a text for an instructor or an issue: the findings, the machine, and what each tool said.

    Args:
        findings: what `examine` returned.
        text: the same for the learner, as `doctor.report` has it.
    """
    facts = getattr(findings, "facts", None) or Facts(Host.here())
    host = facts.host
    places = [
        name
        for name, is_so in (("WSL", host.wsl), ("a container", host.container), (host.hosted, host.hosted))
        if is_so
    ]
    blocks = [
        "Any GPU workshop: the doctor's report. It names no user, no computer and no home folder; read it before you "
        "send it.",
        text,
        _block("Findings", [f"{finding.severity}: {finding.id}" for finding in findings]),
        _block("Machine", [
            ", in ".join(filter(None, [f"{host.system} {host.machine} {host.distribution}".rstrip(), *places])),
            f"Python {'.'.join(map(str, host.python))}, packages by {host.installed_by}",
            f"graphics cards on the PCI bus: {', '.join(facts.graphics_cards()) or 'none, or unknown'}",
        ]),
        _block("Packages", [f"{name} {version}" for name, version in packages(facts).items()]),
        _block("Variables", [f"{name}={value}" for name, value in variables(facts).items()]),
    ]  # fmt: skip
    for name, answer in facts.answers.items():
        lines = [f"{answer.state} {answer.version} after {answer.seconds:.1f} s"]
        lines += [f"{device}: {device.computes or 'not tried'}" for device in answer.devices]
        blocks.append(_block(f"Devices: {name}", [*lines, *([answer.message] if answer.message else [])]))
    blocks += [_block(f"Tool: {name}", _lines(said)) for name, said in facts.tools.items() if said.state != "missing"]
    return without_names("\n\n".join(block for block in blocks if block)) + "\n"


def _block(title: str, lines: list[str]) -> str:
    return "\n".join([f"--- {title}", *(f"  {line}" for line in lines)]) if lines else ""


def _lines(said: Said) -> list[str]:
    lines = [line.rstrip() for line in (said.text + said.error).splitlines() if line.strip()]
    more = [f"[{len(lines) - LINES} lines left out]"] if len(lines) > LINES else []
    return [said.state, *(line[:160] for line in lines[:LINES]), *more]


def packages(facts: Facts) -> dict[str, str]:
    """Return the packages that matter for devices, with their versions."""
    matter = [name for name in sorted(facts.packages) if name in PACKAGES or name.startswith(PREFIXES)]
    found = {name: facts.packages[name] for name in matter}
    return found | ({"torch (built for)": facts.torch} if facts.torch else {})


def variables(facts: Facts) -> dict[str, str]:
    """Return the variables of the environment that matter for devices; no others, which may hold secrets."""
    return {
        name: value
        for name, value in sorted(facts.variables.items())
        if VARIABLES.match(name) and not SECRET.search(name)
    }


# ----------------------------------------------------------------------------------------------- nobody's name


def without_names(text: str, as_in_json: bool = False) -> str:
    """Return a text without what tells who wrote it: paths of the home and of the workshop, names, numbers of GPUs.

    Args:
        text: any.
        as_in_json: whether paths in it are written as JSON writes them (a backslash twice).
    """
    for path, instead in places():
        for spelling in {path, path.replace("\\", "\\\\") if as_in_json else path}:
            text = re.sub(re.escape(spelling) + r"(?![\w.-])", lambda _, instead=instead: instead, text)
    for name, instead in names():
        text = re.sub(
            rf"(?<![\w-]){re.escape(name)}(?![\w-])", lambda _, instead=instead: instead, text, flags=re.IGNORECASE
        )
    text = re.sub(r"\bGPU-[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]+)*", "GPU-...", text)  # NVIDIA's and AMD's own numbers
    return re.sub(r"(?i)((?:serial|uuid)\S*[\"']?\s*[:=]\s*[\"']?)(?:0x)?[0-9a-f-]{8,}", r"\1...", text)


def places() -> list[tuple[str, str]]:
    """Return the folders that name somebody and what stands for them, the longest first."""
    found = {str(ROOT): "WORKSHOP"}
    for variable in ("HOME", "USERPROFILE"):
        if len(os.environ.get(variable, "")) > 1:
            found.setdefault(os.environ[variable].rstrip("/\\"), "~")
    found.setdefault(str(Path.home()), "~")
    return sorted(found.items(), key=lambda item: -len(item[0]))


def names() -> list[tuple[str, str]]:
    """Return the names of the user and of the computer, and what stands for them; general ones are nobody's."""
    found = []
    for ask, instead in ((getpass.getuser, "USER"), (socket.gethostname, "COMPUTER")):
        try:
            name = ask()
        except Exception:  # a container may have neither
            continue
        for one in {name, name.split(".")[0]}:
            if len(one) > 2 and one.lower() not in ("root", "user", "localhost", "jovyan", "runner", "admin"):
                found.append((one, instead))
    return found
