"""What can compute here: OpenCL, TensorFlow, JAX, PyTorch and WebGPU, each asked in a subprocess.

Looking must not disturb a lesson. A framework that starts inside the lesson's kernel may take the GPU's memory, hang,
or fix settings that the lesson still wants to choose, so each one is asked by a short-lived process with a time-out:

    python -m helpers.frameworks jax

That process (`helpers.frameworks`) imports the one framework, lists its devices and writes them as JSON. Whatever the
framework prints is kept apart from the answer. Lesson 00 shows the table; every lesson names its device by `pick`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from helpers import processes
from helpers.errors import WorkshopError
from helpers.frameworks import (
    CANNOT_COMPILE,
    FRAMEWORKS,
    KINDS,
    SMALLEST_KERNEL,
    Device,
    Framework,
    build_quietly,
    compile_problem,
    describe_opencl,
)
from helpers.machine.host import Host, command
from helpers.tables import Table

__all__ = [  # what lessons and other helpers take from here
    "CANNOT_COMPILE", "FRAMEWORKS", "KINDS", "SMALLEST_KERNEL", "Answer", "Device", "ask", "build_quietly",
    "compile_problem", "describe_opencl", "find", "in_this_process", "installed", "not_installed", "pick", "table",
]  # fmt: skip
# What frameworks write when they see a GPU that they cannot use: worth telling, though they go on with the CPU.
_HINTS = re.compile(r"falling back to cpu|cannot dlopen|could not find cuda drivers|skipping registering gpu", re.I)
_LOG_PREFIX = re.compile(  # as "I0000 00:00:1.2 99 port.cc:153] " and "2026-01-31 10:00:00.1: W x.cc:1] "
    r"^(?:[IWEF]\d{4} \S+\s+\d+ \S+?\] |\d{4}-\d\d-\d\d [\d:.]+:? [IWEF] \S+?\] |WARNING:\S+?:)\s*"
)


@dataclass(frozen=True)
class Answer:
    """What one framework answered."""

    framework: str  # one of FRAMEWORKS
    state: str  # ok (also where it sees no device), not installed, failed, or timed out
    version: str = ""  # of the framework's Python package; empty if it did not answer
    devices: tuple[Device, ...] = ()  # in its own order
    message: str = ""  # why there is no device, or what the learner should know of those there are
    seconds: float = 0.0  # how long it took


# ---------------------------------------------------------------------------------------------------------- asking


def ask(framework: str, timeout: float = 60.0, variables: Mapping[str, str | None] | None = None) -> Answer:
    """Ask one framework for its devices, in a subprocess.

    Args:
        framework: one of FRAMEWORKS.
        timeout: after so many seconds the process and all that it started are killed.
        variables: environment variables to set in that process, or with None to remove.

    Raises:
        WorkshopError: there is no such framework. Whatever goes wrong in the framework itself is in the answer.
    """
    known = _known(framework)
    if not installed(known.module):
        return Answer(framework, "not installed", message=known.install)
    command = [sys.executable, "-P", "-m", "helpers.frameworks", framework, str(timeout)]
    # JAX takes most of a GPU's memory otherwise, beside the lesson that asks.
    done = processes.run_command(
        command, timeout, env=processes.environment({"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **(variables or {})})
    )
    answered = functools.partial(Answer, framework, seconds=done.seconds)
    try:
        found = json.loads(done.stdout)
        if "error" in found:
            return answered("failed", message=found["error"])
        hints = [line for line in done.stderr.splitlines() if _HINTS.search(line)]
        message = found["message"] or (_LOG_PREFIX.sub("", hints[-1]).strip() if hints else "")
        return answered("ok", found["version"], tuple(Device(**device) for device in found["devices"]), message)
    except ValueError:  # no JSON: the process ended, or was ended, before it could answer
        last = _last_line(done.stderr)
    if done.status is None:
        return answered("timed out", message=f"no answer within {timeout:g} s" + (last and f"; its last words: {last}"))
    how = f"was ended by {signal.Signals(-done.status).name}" if done.status < 0 else f"ended with status {done.status}"
    return answered("failed", message=f"the process {how}, without an answer" + (last and f": {last}"))


def find(frameworks: Iterable[str] | None = None, timeout: float = 60.0) -> list[Answer]:
    """Ask several frameworks side by side; the answers come in the order of the question.

    Args:
        frameworks: some of FRAMEWORKS; all of them if None.
        timeout: seconds for each of them.

    Raises:
        WorkshopError: one of the names is not a framework that the workshop knows.
    """
    from concurrent.futures import ThreadPoolExecutor

    wanted = list(FRAMEWORKS if frameworks is None else frameworks)
    for framework in wanted:
        _known(framework)
    # On two cores side by side takes 4.7 s against 5.9 one by one; more at once than there are cores only costs memory.
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        answers = [pool.submit(ask, framework, timeout) for framework in wanted]
        try:
            return [answer.result() for answer in answers]
        except BaseException:  # Ctrl-C too: leave no process behind
            pool.shutdown(wait=False, cancel_futures=True)
            processes.kill_all()
            raise


def in_this_process(framework: str) -> Device:
    """Return the device that a framework takes by default, without a subprocess: for one that has started.

    Args:
        framework: "tensorflow", "jax" or "torch".
    """
    _, found, _ = FRAMEWORKS[framework].ask()
    return next((device for device in found if device.kind != "cpu"), found[0])


def installed(module: str) -> bool:
    """Look for a module without importing it. An empty folder that an uninstaller left behind does not count.

    Args:
        module: its name, or that of a framework.
    """
    try:
        spec = importlib.util.find_spec(FRAMEWORKS[module].module if module in FRAMEWORKS else module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def not_installed(module: str, title: str = "", extra: str = "") -> str:
    """Return in one line that a package is not installed here, and the command that brings it.

    Args:
        module: its name, or that of a framework.
        title: for people; a framework has its own.
        extra: of the workshop, that brings it (`lab --with EXTRA`); the module's name if empty.
    """
    title = title or (FRAMEWORKS[module].title if module in FRAMEWORKS else module)
    by_lock = module in FRAMEWORKS and module != "torch"
    get = command(Host.here(), "lab --accel cpu" if by_lock else f"lab --with {extra or module}")
    return f"{title} is not installed here; to have it: {get}"


def _known(framework: str) -> Framework:
    if framework not in FRAMEWORKS:
        raise WorkshopError(
            f"There is no framework called {framework!r}.",
            next=f"Choose one of: {', '.join(FRAMEWORKS)}.",
        )
    return FRAMEWORKS[framework]


def _last_line(text: str) -> str:
    """The last line that means something: no log line, no bare punctuation, at most 300 characters."""
    noise = ("WARNING: All log messages", "File ", "Extension mod")
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w{3}", line) and not _LOG_PREFIX.match(line)]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or [line for line in lines if not line.startswith(noise)] or [""])[-1][:300]


# ------------------------------------------------------------------------------------------- showing and choosing


def table(answers: Iterable[Answer]) -> Table:
    """Return one row for each device, and one for each framework that has none and why."""
    rows: list[tuple[str, ...]] = []
    for answer in answers:
        title = f"{FRAMEWORKS[answer.framework].title} {answer.version}".strip()
        if answer.framework == "opencl" and answer.version:
            title = f"OpenCL (PyOpenCL {answer.version})"
        if answer.framework == "webgpu" and answer.version:
            title = f"WebGPU (wgpu {answer.version})"
        for device in answer.devices:
            name = f"{device.name}, {device.runtime}" if device.runtime else device.name
            memory = f"{device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else ""
            rows.append((title, device.identifier, device.kind, name, memory, str(device.compute_units or "")))
        if answer.message or not answer.devices:
            state = "note" if answer.devices else "no device" if answer.state == "ok" else answer.state
            rows.append((title, state, "", answer.message, "", ""))
    return Table(rows, ("Framework", "Device", "Kind", "Name", "Memory", "Units"))


def pick(answers: Iterable[Answer], framework: str | None = None, kind: str | None = None) -> Device:
    """Choose a device: a GPU before an accelerator before a CPU, and the first of its kind.

    Args:
        answers: what `find` returned.
        framework: only devices of this framework; None for any.
        kind: only devices of this kind; None for any.

    Raises:
        WorkshopError: nothing fits; it lists what there is. Or framework or kind is not one that exists.
    """
    answers = list(answers)
    title = f"{_known(framework).title} device" if framework is not None else "device"
    if kind is not None and kind not in KINDS:
        raise WorkshopError(f"There is no kind of device called {kind!r}.", next=f"Choose one of: {', '.join(KINDS)}.")
    everything = [device for answer in answers for device in answer.devices]
    fitting = [d for d in everything if framework in (None, d.framework) and kind in (None, d.kind)]
    if fitting:
        return min(fitting, key=lambda device: KINDS.index(device.kind))
    there = "; ".join(f"{device} is {device.identifier}" for device in everything) or "no device at all"
    why = [f"Found: {there}."]
    for answer in answers:
        if not answer.devices:
            reason = f", {answer.message}" if answer.message else ""
            why.append(f"{FRAMEWORKS[answer.framework].title}: {answer.state}{reason}.")
    raise WorkshopError(
        f"There is no {title}{f' of kind {kind}' if kind else ''} here.",
        " ".join(why),
        "python3 workshop.py doctor says what is missing and how to get it.",
    )
