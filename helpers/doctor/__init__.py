"""Find what is wrong on this machine, why, and the next command for it.

Every probe runs in a thread with a time-out; whatever touches a driver or the network runs in a subprocess that can be
killed. A probe that breaks becomes a note in the report, never an exception.

Two kinds of generators look for findings, each in the file of its family; both yield a `Finding` for what is wrong and
a few words for what is fine. A *judge* takes the `Facts`, which are gathered once, and asks nothing itself: name it in
its file's JUDGES, and its words, a `Failure`, in FAILURES, from which the pages under docs/ are made as well. A *probe*
takes a `Host` and looks itself: name it in PROBES.
"""

from __future__ import annotations

import json
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

from helpers.compute import processes
from helpers.compute.host import Host
from helpers.doctor import (
    amd,
    apple,
    computes,
    data,
    host,
    hosted,
    keras,
    nvidia,
    opencl,
    packages,
    webgpu,
    windows,
)
from helpers.doctor.facts import Facts, gather
from helpers.doctor.findings import CHILD_SECONDS, SEVERITIES, Failure, Finding, Probe, Seen

QUICK_SECONDS = 3.0  # for each quick probe; together they take well under 1 s
WHOLE_SECONDS = 50.0  # for everything; a healthy machine needs 10, and only what did not answer is asked once more
TOO_SLOW = ("did not finish in time", "Something that it asks hangs or is very slow.")
WIDTH = 100  # characters of the report's lines; commands are never broken

# Judges and failures, from the ground up: where two findings are equally bad, the first is the more fundamental.
MODULES = (host, windows, hosted, apple, nvidia, amd, packages, opencl, computes, webgpu, keras)
JUDGES: tuple[Callable[[Facts], Seen], ...] = tuple(judge for module in MODULES for judge in module.JUDGES)
KNOWN: dict[str, Failure] = {failure.id: failure for module in MODULES for failure in module.FAILURES}


def judge(facts: Facts) -> Seen:
    """Let every judge look at the facts; one that breaks becomes a note, and the others still count."""
    for each in JUDGES:
        try:
            yield from each(facts)
        except Exception as error:
            probe = Probe(f"{each.__module__.rpartition('.')[2]} ({each.__name__.replace('_', ' ')})", each)
            yield _unknown(probe, "itself broke", f"{type(error).__name__}: {error}")


def gathered(host: Host, quick: bool = False) -> Iterator[Finding | str | Facts]:
    """Gather the facts, hand them on, and let them be judged."""
    facts = gather(host, quick=quick)
    yield facts
    yield from judge(facts)


def gathered_quickly(host: Host) -> Iterator[Finding | str | Facts]:
    """The same without a tool or a framework."""
    yield from gathered(host, quick=True)


PROBES: tuple[Probe, ...] = (  # from the ground up, too
    Probe("Python", host.python),
    Probe("packages", packages.versions),
    Probe("package files", packages.files),
    Probe("helpers", packages.our_helpers),
    Probe("devices and frameworks", gathered, "full"),
    Probe("devices and frameworks", gathered_quickly, "quick"),
    Probe("files in notebooks", packages.shadows),
    Probe("folder", host.folder),
    Probe("profile", host.profile),
    Probe("OpenCL's variables", opencl.variables, "quick"),
    Probe("PYOPENCL_CTX", opencl.choice, "full", in_subprocess=True),
    Probe("Keras", keras.backend),
    Probe("dataset file", data.named_file, "quick"),
    Probe("dataset", data.dataset, "full", in_subprocess=True),
    Probe("memory", host.memory),
    Probe("disk", host.disk),
)


class Findings(list[Finding]):
    """The findings of one examination, the worst first; `fine` has a few words for each thing that is in order."""

    fine: tuple[str, ...] = ()
    facts: Facts | None = None  # what they were judged by; None where nothing was gathered


def examine(quick: bool = False) -> Findings:
    """Look at everything side by side and return what is wrong, the worst first.

    Args:
        quick: only what takes less than a second, without importing a framework and without the network.
    """
    here = Host.here()
    if elsewhere := packages.another_python(here):
        return Findings([elsewhere])
    probes = [probe for probe in PROBES if probe.when in ("always", "quick" if quick else "full")]
    deadline = time.monotonic() + (QUICK_SECONDS if quick else WHOLE_SECONDS)
    runs = [(probe, *_start(probe, here)) for probe in probes]
    try:
        for probe, seen, done in runs:
            if not done.wait(max(0.0, deadline - time.monotonic())):
                seen.append(_unknown(probe, *TOO_SLOW))
    finally:
        if not all(done.is_set() for _, _, done in runs):  # Ctrl-C too: leave no process behind
            processes.kill_all()
    everything = [item for _, seen, _ in runs for item in list(seen)]
    worst_first = list(SEVERITIES)
    found = [item for item in everything if isinstance(item, Finding)]
    findings = Findings(sorted(found, key=lambda finding: worst_first.index(finding.severity)))
    findings.fine = tuple(item for item in everything if isinstance(item, str))
    findings.facts = next((item for item in everything if isinstance(item, Facts)), None)
    return findings


def _start(probe: Probe, here: Host) -> tuple[list[Finding | str | Facts], threading.Event]:
    """Run a probe in a thread; return the list that it fills and an event for its end. What breaks becomes a note."""
    seen: list[Finding | str | Facts] = []
    # Not Thread.is_alive: in Python 3.11 a join that Ctrl-C interrupts leaves the thread marked as ended.
    done = threading.Event()

    def work() -> None:
        try:
            for item in look(probe.name) if probe.in_subprocess else probe.look(here):
                seen.append(item)
        except BaseException as error:
            reason = f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"
            seen.append(_unknown(probe, "itself broke", reason))
        finally:
            done.set()

    threading.Thread(target=work, name=f"doctor-{probe.name}", daemon=True).start()
    return seen, done


def look(name: str) -> Seen:
    """Look at one thing alone, in a subprocess.

    Args:
        name: of one of PROBES.
    """
    probe = next(probe for probe in PROBES if probe.name == name)
    command = [sys.executable, "-P", "-m", "helpers.doctor", name]
    done = processes.run_command(command, 2 * CHILD_SECONDS, env=processes.environment())
    if done.status is None:
        yield _unknown(probe, *TOO_SLOW)
        return
    if done.status != 0:
        raise RuntimeError((done.stderr.strip() or f"status {done.status}").splitlines()[-1])
    for item in json.loads(done.stdout.splitlines()[-1]):
        yield item if isinstance(item, str) else Finding(**item)


def _unknown(probe: Probe, fate: str, why: str) -> Finding:
    what = f"The check of {probe.name} {fate}, so nothing is known about it."
    advice = "The rest of this report holds; go on, or try again later."
    return Finding(probe.name, "note", what, why, advice, "host-unfinished-check")


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
        what = _wrapped(f"{SEVERITIES[finding.severity]}: {finding.what}", WIDTH)
        blocks.append("\n".join([*what, *_labelled("  Why:  ", finding.why), *_labelled("  Next: ", finding.next)]))
    fine = getattr(findings, "fine", ())
    if fine:
        blocks.append("\n".join(["In order:", *(f"  {words}" for words in fine)]))
    return "\n\n".join(blocks)


def _labelled(label: str, text: str) -> list[str]:
    """Wrap prose beside its label; keep a command on a line of its own, whole, so that it can be copied."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += [line] if line.startswith("    ") else _wrapped(line, WIDTH - len(label))
    return [(" " * len(label) if number else label) + line for number, line in enumerate(lines)]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
