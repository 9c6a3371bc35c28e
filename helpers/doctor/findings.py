"""Failures that the doctor knows, from failures.toml, and findings: such a failure, worded for one machine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.devices.host import Host, binder_link, command, python_command, set_variable, unset_variable

SEVERITIES = {  # the worst first
    "stops": "STOPS THE WORKSHOP",
    "unknown": "NOT KNOWN YET",
    "limits": "LIMITS WHAT RUNS",
    "note": "NOTE",
}
TEMPLATE = re.compile(r"\{([a-z](?:[^{}]|\{[^{}]*\})*)\}")  # {name}, {set NAME=VALUE}, {set NAME={value}}
Text = str | Mapping[str, str]  # one text, or one for each case


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    id: str  # of the failure, such as "nvidia-driver-too-old"; its first word is the family
    severity: str  # stops (the workshop cannot run at all), unknown (perhaps), limits (some lessons cannot) or note
    what: str  # one sentence that says what is wrong
    why: str  # the reason, or what it means
    next: str  # what to type or do next on this machine; lines that start with four spaces are commands
    about: frozenset[str] = frozenset()  # the frameworks that it concerns; empty: the whole machine


Results = Iterator[Finding | str]  # what is wrong, and a few words for what is in order


@dataclass(frozen=True)
class Failure:
    """A failure that the doctor knows, as failures.toml has it."""

    id: str
    what: Text
    why: Text
    next: Text
    severity: str = "limits"
    error: str = ""  # what the learner's program says: the heading on docs/failures.md, where there is one
    unless: Collection[str] = ()  # failures that explain this one: next to them it is not reported
    once: bool = False  # whether the first finding of it says everything


def _read_failures() -> tuple[dict[str, Failure], dict[str, Text]]:
    """Return the failures by their ids, the most fundamental first, and the advice that several of them give."""
    table = tomllib.loads((Path(__file__).parent / "failures.toml").read_text(encoding="utf-8"))
    advice = table.pop("advice")
    return {name: Failure(name, **entry) for name, entry in table.items()}, advice


KNOWN, ADVICE = _read_failures()


def tell(
    failure: str,
    host: Host,
    severity: str = "",
    words: Collection[str] = (),
    about: Iterable[str] = (),
    **values: object,
) -> Finding:
    """Return the finding of a failure on a machine.

    Args:
        failure: its id.
        host: the machine that the advice is for.
        severity: instead of the failure's own.
        words: what the judge adds to the words of a case.
        about: the frameworks that it concerns; none means the whole machine.
        values: what its templates name.
    """
    known = KNOWN[failure]
    texts = (render(text, host, words, values).rstrip() for text in (known.what, known.why, known.next))
    return Finding(failure, severity or known.severity, *texts, frozenset(about))


def drop_explained(results: Iterable[Finding | str]) -> Results:
    """Yield the results without the findings that another one explains, as `unless` and `once` of failures.toml say.

    A cause explains what concerns the same framework; a finding about the whole machine concerns all of them.

    Args:
        results: all of one examination, the deepest causes first.
    """
    everything = list(results)
    findings = [item for item in everything if isinstance(item, Finding)]
    reported = set()
    for item in everything:
        if isinstance(item, Finding):
            known = KNOWN[item.id]
            is_explained = any(other.id in known.unless and _concern_the_same(item, other) for other in findings)
            if is_explained or (known.once and item.id in reported):
                continue
            reported.add(item.id)
        yield item


def _concern_the_same(one: Finding, other: Finding) -> bool:
    return not one.about or not other.about or bool(one.about & other.about)


def advise(name: str, host: Host, words: Collection[str] = (), /, **values: object) -> str:
    """Return an entry of [advice] for a machine.

    Args:
        name: of the entry.
        host: the machine that it is for.
        words: what the judge adds to the words of a case.
        values: what its templates name.
    """
    return render(ADVICE[name], host, words, values)


def render(text: Text, host: Host, words: Collection[str], values: Mapping[str, object]) -> str:
    """Return a text of failures.toml for a machine: the case that fits, its templates replaced.

    Values are put in as they are: what a framework said may have braces of its own.
    """

    def replace(match: re.Match[str]) -> str:
        name, _, rest = match[1].partition(" ")
        rest = render(rest, host, words, values)
        if name in values:
            return str(values[name])
        if name == "set":
            return set_variable(host, *rest.split("=", 1))
        if name == "unset":
            return "\n    ".join(unset_variable(host, variable) for variable in rest.split())
        if name == "move":
            return f'{"Move-Item" if host.system == "Windows" else "mv"} "{rest}" "{rest}.old"'
        if name == "command":
            return command(host, rest)
        if name in ADVICE:
            return render(ADVICE[name], host, words, values)
        binder = binder_link() or "https://mybinder.org   (give it the address of the workshop's repository)"
        return {"python": python_command(host), "binder-link": binder}[name]

    return TEMPLATE.sub(replace, text if isinstance(text, str) else _choose_case(text, host, words))


def _choose_case(cases: Mapping[str, str], host: Host, words: Collection[str]) -> str:
    """Return the first text whose case fits."""
    fitting = {host.system, host.machine, host.installed_by, host.distribution, "otherwise", *words}
    fitting |= {name for name in ("nvidia", "wsl", "container", "hosted") if getattr(host, name)}
    return next(text for case, text in cases.items() if fitting.issuperset(case.split()))


def count_items(items: Sequence[str], noun: str) -> str:
    """Return how many items there are.

    >>> count_items(["numpy"], "package"), count_items(["numpy", "keras"], "package")
    ('1 package is', '2 packages are')
    """
    return f"1 {noun} is" if len(items) == 1 else f"{len(items)} {noun}s are"


def join_some(items: Sequence[str], most: int = 6) -> str:
    """Return the first items with commas between them, and how many more there are.

    >>> join_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def join_names(names: Sequence[str]) -> str:
    """Return all names with commas and an "and" between them.

    >>> join_names(["JAX"]), join_names(["TensorFlow", "JAX", "PyTorch"])
    ('JAX', 'TensorFlow, JAX and PyTorch')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
