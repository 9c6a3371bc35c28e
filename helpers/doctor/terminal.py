"""The findings of one examination, and their text for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from helpers.devices.host import Host, command
from helpers.doctor.findings import SEVERITIES, Finding

if TYPE_CHECKING:
    from helpers.doctor.facts import Facts

LETTER = "doctor --report report.txt"  # the command that writes what a helper asks for
AGAIN = "If you have followed the advice and the problem remains, ask for help, and send the file that this writes:"
WIDTH = 100  # characters of the report's lines; commands are never broken


class Findings(list[Finding]):
    """The findings of one examination, the worst first; `fine` has a few words for each thing that is in order."""

    fine: tuple[str, ...] = ()
    facts: Facts | None = None  # what they were judged by; None where nothing was gathered


def report(findings: list[Finding]) -> str:
    """Return the findings as text for a beginner: the verdict, what is wrong, why, what to type, and what is fine."""
    severities = {finding.severity for finding in findings}
    verdict = "The workshop can run here."
    if "stops" in severities:
        verdict = "The workshop cannot run here yet."
    elif "unknown" in severities:
        verdict = "The workshop can perhaps run here: this computer was too busy to tell, or a driver hangs."
    elif "limits" in severities:
        verdict = "The workshop can run here, with limits."
    blocks = [verdict]
    for finding in findings:
        what = _wrap(f"{SEVERITIES[finding.severity]}: {finding.what}", WIDTH)
        blocks.append("\n".join([*what, *_label("  Why:  ", finding.why), *_label("  Next: ", finding.next)]))
    if findings and not any(LETTER in finding.next for finding in findings):
        blocks.append("\n".join([*_wrap(AGAIN, WIDTH), f"    {command(Host.here(), LETTER)}"]))
    fine = getattr(findings, "fine", ())
    if fine:
        blocks.append("\n".join(["In order:", *(f"  {words}" for words in fine)]))
    text = "\n\n".join(blocks)
    return text.encode("utf-8", "backslashreplace").decode()  # a variable or a path may be no UTF-8


def _label(label: str, text: str) -> list[str]:
    """Wrap prose beside its label; keep a command on a line of its own, whole, so that it can be copied."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += [line] if line.startswith("    ") else _wrap(line, WIDTH - len(label))
    return [(" " * len(label) if number else label) + line for number, line in enumerate(lines)]


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
