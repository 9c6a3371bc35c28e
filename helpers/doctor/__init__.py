"""Find what is wrong on this machine, why, and the next command for it.

What the doctor knows is in failures.toml: each failure's words, and what to do on each kind of machine. Two kinds of
small functions say whether a failure is here, each in the file of its family; both yield a `Finding` for what is wrong
and a few words for what is fine. A *check* takes a `Host` and looks itself; those of a file stand in its CHECKS, and
`lab` runs no others. A *judge* takes the `Facts`, which a full examination gathers once, and asks nothing itself; those
of a file stand in its JUDGES.

Every check runs in a thread with a time-out; whatever touches a driver or the network runs in a subprocess that can be
killed. A check or a judge that breaks becomes a note in the report, never an exception.
"""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from helpers.devices.host import Host
from helpers.doctor import host, packages, settings
from helpers.doctor.findings import KNOWN, SEVERITIES, Finding, Results, drop_explained, tell, together
from helpers.running import processes

if TYPE_CHECKING:
    from helpers.doctor.facts import Facts

__all__ = ["KNOWN", "Finding", "Findings", "examine", "judge", "report", "status"]
QUICK_SECONDS = 3.0  # for a quick look, which takes well under 1 s
WHOLE_SECONDS = 40.0  # for everything; a healthy machine needs 10
WIDTH = 100  # characters of the report's lines; commands are never broken
Check = Callable[[Host], "Iterator[Finding | str | Facts]"]


class Findings(list[Finding]):
    """The findings of one examination, the worst first; `fine` has a few words for each thing that is in order."""

    fine: tuple[str, ...] = ()
    facts: Facts | None = None  # what they were judged by; None where nothing was gathered


def judge(facts: Facts) -> Results:
    """Yield what all judges find in the facts, the deepest causes first, without what another finding explains."""
    return drop_explained(_judge_everything(facts))


def _judge_everything(facts: Facts) -> Results:
    from helpers.doctor import amd, apple, containers, devices, frameworks, nvidia, opencl, windows

    for family in (host, windows, containers, apple, nvidia, amd, frameworks, opencl, devices):
        for each in family.JUDGES:
            try:
                yield from each(facts)
            except Exception as error:
                yield _unfinished_note(_name(each), facts.host, f"{type(error).__name__}: {error}")


def hardware_and_frameworks(here: Host) -> Iterator[Finding | str | Facts]:
    """Gather the facts, hand them on, and let them be judged."""
    from helpers.doctor.facts import gather

    facts = gather(here)
    yield facts
    yield from judge(facts)


QUICK: tuple[Check, ...] = (*host.CHECKS, *packages.CHECKS, *settings.CHECKS)
FULL: tuple[Check, ...] = (*QUICK, hardware_and_frameworks)


def examine(quick: bool = False) -> Findings:
    """Look at everything side by side and return what is wrong, the worst first.

    Args:
        quick: only this computer and its packages: less than a second, without a driver, a framework or the network.
    """
    here = Host.here()
    if elsewhere := packages.another_python(here):
        return Findings([elsewhere])
    deadline = time.monotonic() + (QUICK_SECONDS if quick else WHOLE_SECONDS)
    runs = [(check, *_start(check, here)) for check in (QUICK if quick else FULL)]
    try:
        late = [check for check, _, done in runs if not done.wait(max(0.0, deadline - time.monotonic()))]
    finally:
        if not all(done.is_set() for _, _, done in runs):  # Ctrl-C too: leave no process behind
            processes.kill_all()
    everything = [item for _, results, _ in runs for item in list(results)]
    if late:  # on a busy machine several are, and it is one note all the same
        everything.append(_unfinished_note(together(list(map(_name, late))), here))
    worst_first = list(SEVERITIES)
    wrong = [item for item in everything if isinstance(item, Finding)]
    findings = Findings(sorted(wrong, key=lambda finding: worst_first.index(finding.severity)))
    findings.fine = tuple(item for item in everything if isinstance(item, str))
    findings.facts = next((item for item in everything if not isinstance(item, Finding | str)), None)
    return findings


def _start(check: Check, here: Host) -> tuple[list[Finding | str | Facts], threading.Event]:
    """Run a check in a thread; return the list that it fills and an event for its end. What breaks becomes a note."""
    results: list[Finding | str | Facts] = []
    # Not Thread.is_alive: in Python 3.11 a join that Ctrl-C interrupts leaves the thread marked as ended.
    done = threading.Event()

    def work() -> None:
        try:
            for item in check(here):
                results.append(item)
        except TimeoutError:
            results.append(_unfinished_note(_name(check), here))
        except BaseException as error:
            reason = (str(error) or "no reason given").splitlines()[0]
            results.append(_unfinished_note(_name(check), here, f"{type(error).__name__}: {reason}"))
        finally:
            done.set()

    threading.Thread(target=work, name=f"doctor-{check.__name__}", daemon=True).start()
    return results, done


def _name(check: Callable[..., object]) -> str:
    return f"{check.__module__.rpartition('.')[2]}: {check.__name__.replace('_', ' ')}"


def _unfinished_note(name: str, here: Host, broke: str = "") -> Finding:
    fate = "itself broke" if broke else "did not finish in time"
    why = broke or "Something that it asks hangs or is very slow."
    return tell("host-unfinished-check", here, name=name, fate=fate, why=why)


def status(findings: list[Finding]) -> int:
    """Return the exit status: 0 when the workshop can run at all, if only on a CPU, 1 when a finding stops it."""
    return int(any(finding.severity == "stops" for finding in findings))


def report(findings: list[Finding]) -> str:
    """Return the findings as text for a beginner: the verdict, what is wrong, why, what to type, and what is fine."""
    severities = {finding.severity for finding in findings}
    verdict = "The workshop can run here."
    if "stops" in severities:
        verdict = "The workshop cannot run here yet."
    elif "limits" in severities:
        verdict = "The workshop can run here, with limits."
    blocks = [verdict]
    for finding in findings:
        what = _wrap(f"{SEVERITIES[finding.severity]}: {finding.what}", WIDTH)
        blocks.append("\n".join([*what, *_label("  Why:  ", finding.why), *_label("  Next: ", finding.next)]))
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
