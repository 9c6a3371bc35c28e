"""Write into docs/failures.md what the doctor knows of the errors that programs print: each under its own words.

What no program says is left to the doctor: nobody could search for it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

from helpers import ROOT, doctor
from helpers.compute.host import Host
from helpers.doctor import findings
from helpers.doctor.findings import Failure, Finding

PAGE = ROOT / "docs" / "failures.md"
BLOCK = re.compile(r"(?<=<!-- findings -->\n).*?(?=<!-- end of findings -->)", re.DOTALL)
SYSTEMS = {  # whose commands the advice is shown with
    "Linux": Host("Linux", "x86_64", (3, 12), "venv", nvidia=False),
    "Windows": Host("Windows", "x86_64", (3, 12), "venv", nvidia=False),
    "macOS": Host("Darwin", "arm64", (3, 12), "venv", nvidia=False),
    "Linux, environment made by hand": Host("Linux", "x86_64", (3, 12), "own", nvidia=False),
    "Colab and Kaggle": Host("Linux", "x86_64", (3, 13), "own", nvidia=True),
}
SYSTEM_OF = {  # of failures by how their ids begin; all others are shown for Linux
    "windows-wsl": "Linux", "windows-": "Windows", "hosted-": "Colab and Kaggle", "apple-": "macOS",
    "amd-": "Linux, environment made by hand",
}  # fmt: skip
HEADINGS = {  # of families of failures, where they are not their names
    "host": "The computer", "windows": "Windows and WSL", "hosted": "Colab, Kaggle, containers", "nvidia": "NVIDIA",
    "amd": "AMD", "opencl": "OpenCL", "webgpu": "WebGPU", "devices": "Devices that are listed and do not compute",
}  # fmt: skip
SHARED = (  # entries of [advice] that stand on the page once
    "reinstall", "nvidia-driver", "cuda-family", "other-cuda-build", "train-on-windows", "torch-for-metal",
    "rocm-torch", "opencl-driver", "another-device",
)  # fmt: skip
OF_ONE_MAKER = ("nvidia", "amd", "apple")  # families whose examples name a GPU


def outdated() -> dict[Path, str]:
    """Return the page with its new text, if it is old."""
    text = PAGE.read_text(encoding="utf-8")
    new = BLOCK.sub(lambda _: block(), text)
    return {PAGE: new} if new != text else {}


def block() -> str:
    """Return what stands between the page's marks."""
    families: dict[str, list[str]] = {}
    known: dict[str, str] = {}
    for failure in doctor.KNOWN.values():
        if failure.source and failure.error:
            families.setdefault(failure.family, []).append(entry(failure, known))
    return "".join(f"## {HEADINGS.get(name, name.title())}\n\n{''.join(found)}" for name, found in families.items())


def systems(failure: Failure) -> list[str]:
    """Return the systems for which a failure's advice is shown, names of SYSTEMS."""
    own = next((system for start, system in SYSTEM_OF.items() if failure.id.startswith(start)), "Linux")
    return list(failure.systems) or [own]


def shown(failure: Failure, system: str) -> Finding:
    """Return a failure with its example, on no maker's GPU if every maker's may have it."""
    names = ("gpu", "device", "adapter") if failure.family not in OF_ONE_MAKER else ()
    neutral = dict.fromkeys(failure.example.keys() & names, "your GPU")
    return dataclasses.replace(failure, example={**failure.example, **neutral}).shown(SYSTEMS[system])


def entry(failure: Failure, known: dict[str, str]) -> str:
    """Return a failure with its reason and what to do, for each system on which that differs.

    Args:
        failure: what to show.
        known: the failures, of those before, by the shared advice that they show; gets this one's.
    """
    first = shown(failure, systems(failure)[0])
    advice: dict[str, list[str]] = {}
    for system in systems(failure):
        advice.setdefault(to_do(failure, system, known), []).append(system)
    cause = re.sub("^your", "Your", f"{first.what} {first.why} ({linked(failure.source)})")
    lines = [f'<a id="{failure.id}"></a>', f"### `{failure.error}`", cause]
    for text, same in advice.items():
        lines.append(f"**{' and '.join(same)}:** {text}" if len(advice) > 1 else text)
    return "\n\n".join([*lines, ""])


def linked(source: str) -> str:
    """Return a source with its addresses as links that are short enough for a phone."""

    def link(found: re.Match[str]) -> str:
        thread = re.fullmatch(r"https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)", found[0])
        return f"[{' '.join(thread.groups()) if thread else found[1]}]({found[0]})"

    return re.sub(r"https://([^/\s;,]+)[^\s;,]*", link, source)


def to_do(failure: Failure, system: str, known: dict[str, str]) -> str:
    """Return the advice for a system as Markdown; what stands under a heading of `known` is a link to it."""
    host, found = SYSTEMS[system], shown(failure, system)
    text = found.next
    for name in ("hand-over", "type-it"):  # the page's first lines say it
        text = text.replace(findings.advise(name, host), "").strip("\n")
    for name in SHARED:
        try:
            part = findings.advise(name, host, (), **failure.example).strip("\n")
        except KeyError:  # it is about something else
            continue
        if part in text and known.setdefault(part, failure.id) != failure.id:
            text = text.replace(part, f"As [above](#{known[part]}).")
    return fenced(text, host)


def fenced(advice: str, host: Host) -> str:
    """Return advice as Markdown: its commands, which are indented there, in blocks that can be copied."""
    parts = []
    for is_command, group in itertools.groupby(advice.splitlines(), lambda line: line.startswith("    ")):
        lines = [line.strip() for line in group if line.strip()]
        if is_command and not all(line.startswith("http") for line in lines):
            is_windows = host.system == "Windows" or lines[0].startswith(("py ", "wsl "))
            parts.append("\n".join([f"```{'powershell' if is_windows else 'sh'}", *lines, "```"]))
        elif lines:
            parts.append(re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", "\n".join(lines)))
    return "\n\n".join(parts)
