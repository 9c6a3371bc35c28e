"""Write what the doctor knows into docs/: every failure on one page, and on each platform's page links to its own."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

from helpers import ROOT, doctor
from helpers.compute.host import Host
from helpers.doctor.findings import Failure, Finding

ALL = "failures"  # the page that has every failure, each with what to do
BLOCK = re.compile(r"(?<=<!-- findings -->\n).*?(?=<!-- end of findings -->)", re.DOTALL)
SYSTEMS = {  # whose commands the advice is shown with
    "Linux": Host("Linux", "x86_64", (3, 12), "venv", nvidia=False),
    "Windows": Host("Windows", "x86_64", (3, 12), "venv", nvidia=False),
    "macOS": Host("Darwin", "arm64", (3, 12), "venv", nvidia=False),
    "Linux, environment made by hand": Host("Linux", "x86_64", (3, 12), "own", nvidia=False),
    "Colab and Kaggle": Host("Linux", "x86_64", (3, 13), "own", nvidia=True),
}
SYSTEM_OF = {  # of a page, or of failures by how their ids begin
    "amd-linux": "Linux, environment made by hand", "amd-windows": "Windows", "directml": "Windows", "apple": "macOS",
    "hosted": "Colab and Kaggle", "windows-wsl": "Linux", "amd-wsl": "Linux", "windows-": "Windows", "apple-": "macOS",
    "hosted-": "Colab and Kaggle",
}  # fmt: skip
HEADINGS = {  # of families of failures, where they are not their names
    "host": "The computer", "windows": "Windows and WSL", "hosted": "Colab, Kaggle, containers", "nvidia": "NVIDIA",
    "amd": "AMD", "opencl": "OpenCL", "webgpu": "WebGPU", "devices": "Devices that are listed and do not compute",
}  # fmt: skip
ON_EVERY_SYSTEM = (
    "opencl-no-device", "opencl-gpu-missing", "webgpu-no-such-adapter", "webgpu-hangs", "webgpu-no-adapter",
    "webgpu-does-not-compute", "devices-late",
)  # fmt: skip
OF_ONE_MAKER = ("nvidia", "amd", "apple")  # families whose examples name a GPU


def outdated() -> dict[Path, str]:
    """Return each page whose part about failures is old, with its new text."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
    new = {path: BLOCK.sub(lambda _, path=path: block(path.stem), text) for path, text in texts.items()}
    return {path: text for path, text in new.items() if text != texts[path]}


def block(page: str) -> str:
    """Return what stands between a page's marks."""
    if page == ALL:
        families: dict[str, list[str]] = {}
        for failure in (failure for failure in doctor.KNOWN.values() if failure.pages):
            families.setdefault(failure.family, []).append(entry(failure))
        return "".join(f"## {HEADINGS.get(name, name.title())}\n\n{''.join(found)}" for name, found in families.items())
    failures = [failure for failure in doctor.KNOWN.values() if page in failure.pages]
    titles = [title(failure).replace("[", r"\[").replace("]", r"\]") for failure in failures]
    return "".join(f"- [{text}]({ALL}.md#{failure.id})\n" for failure, text in zip(failures, titles, strict=True))


def systems(failure: Failure) -> list[str]:
    """Return the systems for which a failure's advice is shown, names of SYSTEMS."""
    own = [system for start, system in SYSTEM_OF.items() if failure.id.startswith(start)][:1]
    every = ["Linux", "Windows", "macOS"] if failure.id in ON_EVERY_SYSTEM else []
    return list(dict.fromkeys(own or [SYSTEM_OF.get(page, "Linux") for page in failure.pages] + every))


def shown(failure: Failure, system: str) -> Finding:
    """Return a failure with its example, on no maker's GPU if every maker's may have it."""
    names = ("gpu", "device", "adapter") if failure.family not in OF_ONE_MAKER else ()
    neutral = dict.fromkeys(failure.example.keys() & names, "your GPU")
    return dataclasses.replace(failure, example={**failure.example, **neutral}).shown(SYSTEMS[system])


def title(failure: Failure) -> str:
    """Return what is wrong, as a heading."""
    return re.sub("^your", "Your", shown(failure, systems(failure)[0]).what)


def entry(failure: Failure) -> str:
    """Return a failure with its reason and what to do, for each system on which that differs."""
    advice: dict[str, list[str]] = {}
    for system in systems(failure):
        advice.setdefault(fenced(shown(failure, system).next, SYSTEMS[system]), []).append(system)
    why = shown(failure, systems(failure)[0]).why
    lines = [f'<a id="{failure.id}"></a>', f"### {title(failure)}", f"**Why:** {why}"]
    for text, same in advice.items():
        lines += [f"**Next, {' and '.join(same)}:**" if len(advice) > 1 else "**Next:**", text]
    headings = [(ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0] for page in failure.pages]
    pages = [f"[{heading.lstrip('# ')}]({page}.md)" for heading, page in zip(headings, failure.pages, strict=True)]
    return "\n\n".join([*lines, f"Pages: {', '.join(pages)}. Source: {failure.source.removesuffix('.')}.", ""])


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
