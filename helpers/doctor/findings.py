"""What the doctor is made of: a finding, the failures that it knows, and the words and numbers that they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from helpers.compute.host import Host, command, reinstall, set_variable, unset_variable

SEVERITIES = {"stops": "STOPS THE WORKSHOP", "limits": "LIMITS WHAT RUNS", "note": "NOTE"}  # the worst first
CHILD_SECONDS = 8.0  # for each subprocess of a probe; a probe starts two at most, one after the other
TYPE_IT = "Type this in the terminal, then start the workshop from there again:"
FAMILIES = (
    "host",
    "packages",
    "opencl",
    "nvidia",
    "amd",
    "apple",
    "windows",
    "hosted",
    "devices",
    "webgpu",
    "data",
    "keras",
)


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    name: str  # of the thing that it is about, short
    severity: str  # stops (the workshop cannot run at all), limits (some lessons cannot) or note
    what: str  # one sentence that says what is wrong
    why: str  # the reason, or what it means
    next: str  # what to type or do next on this machine; lines that start with four spaces are commands
    id: str = ""  # of the failure, such as "nvidia-driver-too-old"; its first word is the family

    def __post_init__(self) -> None:
        """A probe that names no failure tells something else about its thing, such as "webgpu-other"."""
        if not self.id:
            object.__setattr__(self, "id", f"{re.sub(r'[^a-z]+', '', self.name.lower())}-other")

    @property
    def family(self) -> str:
        """One of FAMILIES."""
        return self.id.partition("-")[0]


@dataclass(frozen=True)
class Failure:
    """A failure that the doctor knows: its words, once, for the report and for the pages under docs/.

    The words are templates: `{driver}` stands for a value that the machine told. In `next` a function gives the words
    for one machine; lines that start with four spaces are commands.
    """

    id: str
    name: str  # of the thing that it is about, short
    severity: str
    what: str
    why: str
    next: str | Callable[[Host], str]
    source: str  # where the facts come from: addresses, with the date where it matters
    pages: tuple[str, ...]  # the pages under docs/ that list it, such as "nvidia"
    example: Mapping[str, str] = field(default_factory=dict)  # values for the pages, and for tests of the words

    @property
    def family(self) -> str:
        """The first word of the id: one of FAMILIES."""
        return self.id.partition("-")[0]

    def found(self, host: Host, severity: str = "", **values: object) -> Finding:
        """Return the finding on a machine.

        Args:
            host: the machine that the advice is for.
            severity: instead of the failure's own.
            values: what its templates name.
        """
        advice = self.next(host) if callable(self.next) else self.next
        texts = (text.format_map(values).rstrip() for text in (self.what, self.why, advice))
        return Finding(self.name, severity or self.severity, *texts, self.id)

    def shown(self, host: Host) -> Finding:
        """Return the finding with example values: what a page under docs/ shows for such a machine."""
        return self.found(host, **self.example)


Seen = Iterator[Finding | str]  # what is wrong, and a few words for what is in order


@dataclass(frozen=True)
class Probe:
    """One thing to look at."""

    name: str  # short, for the report
    look: Callable[[Host], Seen]
    when: str = "always"  # quick (only then), full (only then) or always
    in_subprocess: bool = False  # it imports a framework or uses the network, so only a full examination has it


def count(items: list[str], noun: str) -> str:
    """Return "1 package is" or "2 packages are"."""
    return f"1 {noun} is" if len(items) == 1 else f"{len(items)} {noun}s are"


def listed(items: list[str], most: int = 6) -> str:
    """Return the items with commas between them, the first six and how many more."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def together(names: list[str]) -> str:
    """Return "JAX is" or "TensorFlow, JAX and PyTorch are"."""
    *most, last = names
    return f"{', '.join(most)} and {last} are" if most else f"{last} is"


def choose(host: Host, name: str, value: str) -> str:
    """Return how to set an environment variable before the workshop starts."""
    return f"{TYPE_IT}\n    {set_variable(host, name, value)}"


def forget(host: Host, *names: str) -> str:
    """Return how to remove environment variables before the workshop starts."""
    return "\n".join([TYPE_IT, *(f"    {unset_variable(host, name)}" for name in names)])


def hand_over(host: Host, first: str) -> str:
    """Return how to get help after a first step."""
    report = command(host, "doctor --report report.txt")
    return f"{first}\nIf that does not help, hand this file to whoever helps you:\n    {report}"


def reinstall_or_ask(host: Host) -> str:
    """Return how to bring the packages back, and how to get help."""
    return hand_over(host, reinstall(host))


def look_or_ask(host: Host) -> str:
    """Return how to see what the frameworks say themselves, and how to get help."""
    return hand_over(host, f"See what it prints itself:\n    {command(host, 'devices')}")


def once_quiet(host: Host, otherwise: str) -> str:
    """Return what to do where something did not answer in time: on a busy machine that proves nothing.

    Args:
        host: whose command it is.
        otherwise: a sentence that says what helps if it never answers.
    """
    again = "The computer may be busy. Close other programs and notebooks, and type it again"
    return f"{again}:\n    {command(host, 'doctor')}\nIf it does not answer on a quiet computer either: {otherwise}"


def newer_driver(host: Host, otherwise: str = "update the driver of the graphics card") -> str:
    """Return, as a part of a sentence, how a system gets a newer graphics driver.

    Args:
        host: whose system it is.
        otherwise: the words for Linux.
    """
    return {
        "Windows": "install the newest driver of the graphics card from its maker's own page",
        "Darwin": "update macOS, which brings the driver",
    }.get(host.system, otherwise)
