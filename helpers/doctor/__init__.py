"""Find what is wrong on this machine, why, and the next command for it.

What the doctor knows is in failures.toml: each failure's words, what to do on each kind of machine, and which other
failure explains it. Two kinds of small functions say whether a failure is here, each in the file of its family; both
yield a `Finding` for what is wrong and a few words for what is fine. A *check* gets a `Host` and looks itself; a file
lists its checks in CHECKS, and `lab` runs no others. A *judge* gets the `Facts`, which a full examination gathers once,
and asks nothing itself; a file lists its judges in JUDGES. No family imports another.

Every check runs in a thread with a time-out; whatever touches a driver or the network runs in a subprocess that can be
killed. A check or a judge that breaks becomes a note in the report, never an exception.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from helpers.devices.host import Host
from helpers.doctor import host, packages, settings
from helpers.doctor.findings import KNOWN, SEVERITIES, Finding, Results, drop_explained, join_names, tell
from helpers.doctor.terminal import Findings, report
from helpers.running import processes

if TYPE_CHECKING:
    from helpers.doctor.facts import Facts

__all__ = ["KNOWN", "Finding", "Findings", "examine", "judge", "report", "status"]
QUICK_SECONDS = 3.0  # for a quick look, which takes well under 1 s
WHOLE_SECONDS = 40.0  # for everything; a healthy machine needs 10


class Named(Protocol):
    """A function, whose name the report shows."""

    __name__: str


class Check(Named, Protocol):
    """A function that looks itself; the last of a full examination gathers the facts and yields them, too."""

    def __call__(self, here: Host, /) -> Iterator[Finding | str | Facts]: ...


def judge(facts: Facts) -> Results:
    """Yield what all judges find in the facts, the deepest causes first, without what another finding explains."""
    return drop_explained(_judge_everything(facts))


def _judge_everything(facts: Facts) -> Results:
    from helpers.doctor import amd, apple, containers, devices, frameworks, intel, nvidia, opencl, windows

    for family in (host, windows, containers, apple, nvidia, amd, intel, frameworks, opencl, devices):
        for each in family.JUDGES:
            try:
                yield from each(facts)
            except Exception as error:
                yield _note_unfinished(_name(each), facts.host, f"{type(error).__name__}: {error}")


def examine_hardware_and_frameworks(here: Host) -> Iterator[Finding | str | Facts]:
    """Gather the facts, hand them on, and let them be judged."""
    from helpers.doctor.gather import gather

    facts = gather(here)
    yield facts
    yield from judge(facts)


QUICK: tuple[Check, ...] = (*host.CHECKS, *packages.CHECKS, *settings.CHECKS)
FULL: tuple[Check, ...] = (*QUICK, examine_hardware_and_frameworks)


def examine(quick: bool = False) -> Findings:
    """Look at everything side by side and return what is wrong, the worst first.

    Args:
        quick: only this computer and its packages: less than a second, without a driver, a framework or the network.
    """
    here = Host.here()
    if elsewhere := packages.find_other_python(here):
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
        everything.append(_note_unfinished(join_names([_name(check) for check in late]), here))
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
            results.append(_note_unfinished(_name(check), here))
        except BaseException as error:
            reason = (str(error) or "no reason given").splitlines()[0]
            results.append(_note_unfinished(_name(check), here, f"{type(error).__name__}: {reason}"))
        finally:
            done.set()

    threading.Thread(target=work, name=f"doctor-{check.__name__}", daemon=True).start()
    return results, done


def _name(check: Named) -> str:
    """Return how a check or a judge is called in the report: "nvidia: failing driver"."""
    name = re.sub("^(check|find|examine)_", "", check.__name__)
    return f"{check.__module__.rpartition('.')[2]}: {name.replace('_', ' ')}"


def _note_unfinished(name: str, here: Host, broke: str = "") -> Finding:
    return tell(
        "host-unfinished-check",
        here,
        name=name,
        how="itself broke" if broke else "did not finish in time",
        why=broke or "Something that it asks hangs or is very slow.",
    )


def status(findings: list[Finding]) -> int:
    """Return the exit status: 0 when the workshop can run at all, if only on a CPU, 1 when a finding stops it."""
    return int(any(finding.severity == "stops" for finding in findings))
