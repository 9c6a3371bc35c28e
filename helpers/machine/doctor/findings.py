"""What the doctor's probes are made of: a finding, and the words and numbers that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helpers.machine.host import Host, unset_variable

SEVERITIES = {"stops": "STOPS THE WORKSHOP", "limits": "LIMITS WHAT RUNS", "note": "NOTE"}  # the worst first
CHILD_SECONDS = 8.0  # for each subprocess of a probe; a probe starts two at most, one after the other


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    name: str  # of the thing that it is about, short
    severity: str  # stops (the workshop cannot run at all), limits (some lessons cannot) or note
    what: str  # one sentence that says what is wrong
    why: str  # the reason, or what it means
    next: str  # what to type or do next on this machine; lines that start with four spaces are commands


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


def forget(host: Host, *names: str) -> str:
    """Return how to remove environment variables for good."""
    commands = "".join(f"\n    {unset_variable(host, name)}" for name in names)
    return f"Type this in the terminal, then start the workshop from there again:{commands}"
