"""What can compute here: OpenCL, TensorFlow, JAX, PyTorch, ONNX Runtime and WebGPU, each asked in a subprocess.

Looking must not disturb a lesson. A framework that starts inside the lesson's kernel may take the GPU's memory, hang,
or fix settings that the lesson still wants to choose, so each one is asked by a short-lived process with a time-out.
That process (`devices.frameworks.answer`) imports the one framework, lists its devices, and lets each of them multiply
two small matrices. A device that ends the process, or hangs, has failed, and those behind it are not tried. Lesson 00
shows the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace

from helpers.devices.device import KINDS, Device, preference
from helpers.devices.frameworks import FRAMEWORKS, MARK
from helpers.devices.host import Host, command, has_module
from helpers.errors import WorkshopError
from helpers.measure.tables import Table
from helpers.running import processes

__all__ = [
    "FRAMEWORKS",
    "KINDS",
    "Answer",
    "Device",
    "ask",
    "explain_missing",
    "find",
    "find_default_device",
    "is_installed",
    "make_table",
    "pick",
]
SHORT = 40  # characters of a reason in the table; the whole one is below it
# What frameworks write when they see a GPU that they cannot use: worth telling, though they go on with the CPU.
_HINTS = re.compile(
    r"falling back to cpu|cannot dlopen|could not find cuda drivers|skipping registering gpu|cuda initialization:", re.I
)
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


# ---------------------------------------------------------------------------------------------------------- asking


def ask(framework: str, timeout: float = 60.0) -> Answer:
    """Ask one framework for its devices, and whether each computes right, in a subprocess.

    Args:
        framework: one of FRAMEWORKS.
        timeout: seconds after which the process and all that it started are killed.

    Whatever goes wrong in the framework is in the answer.
    """
    known = FRAMEWORKS[framework]
    if not is_installed(known.module):
        return Answer(framework, "not installed", message=known.install)
    done = processes.run(
        "helpers.devices.frameworks:answer", seconds=timeout, check=False, arguments={"framework": framework}
    )
    found, *tried = _read_parts(done.stdout[0]) or [{}]
    late = bool(done.failures[0]) and done.seconds > timeout
    ended = f"no answer within {timeout:.3g} s" if late else done.failures[0]
    words = [line for line in done.stderr[0].splitlines() if re.search(r"\w{3}", line)]  # no bare punctuation
    ended += f"; its last words: {_strip_prefix(words[-1])[:300]}" if words else ""
    if "error" in found:
        return Answer(framework, "failed", message=found["error"])
    if not found:  # the process ended, or was ended, before it could answer
        return Answer(framework, "timed out" if late else "failed", message=ended)
    hints = [line for line in done.stderr[0].splitlines() if _HINTS.search(line)]
    message = found["message"] or (_strip_prefix(hints[-1]) if hints else "")
    devices = [Device(**device) for device in found["devices"]]
    if len(tried) < len(devices):  # it ended while the next of them computed; those after that one were not tried
        tried.append(f"failed: {'timed out, ' if late else ''}{ended}")
    proved = [replace(device, computes=computes) for device, computes in zip(devices, tried, strict=False)]
    return Answer(framework, "ok", found["version"], (*proved, *devices[len(proved) :]), message)


def _read_parts(text: str) -> list:
    """Find what `frameworks.answer` printed among other output: what it knows of the framework, then of each device."""
    parts = []
    for part in text.split(MARK)[1:]:
        with contextlib.suppress(ValueError):  # half a line: the process was ended
            parts.append(json.loads(part.partition("\n")[0]))
    return parts


def find(frameworks: Iterable[str] | None = None, timeout: float = 60.0) -> list[Answer]:
    """Ask several frameworks side by side; the answers come in the order of the question.

    Args:
        frameworks: some of FRAMEWORKS; all of them if None.
        timeout: seconds for each of them.
    """
    from concurrent.futures import ThreadPoolExecutor

    wanted = list(FRAMEWORKS if frameworks is None else frameworks)
    # On two cores side by side takes 4.7 s against 5.9 one by one; more at once than there are cores only costs memory.
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        answers = [pool.submit(ask, framework, timeout) for framework in wanted]
        try:
            return [answer.result() for answer in answers]
        except BaseException:  # Ctrl-C too: leave no process behind
            pool.shutdown(wait=False, cancel_futures=True)
            processes.kill_all()
            raise


def find_default_device(framework: str) -> Device:
    """Return the device that a framework takes by default, without a subprocess: for one that has started.

    Args:
        framework: "tensorflow", "jax" or "torch".
    """
    _, found, _ = FRAMEWORKS[framework].ask()
    if framework == "torch" and (chosen := os.environ.get("KERAS_TORCH_DEVICE")):  # Keras obeys it
        alike = [device for device in found if device.identifier.split(":")[0] == chosen.split(":")[0]]
        found = [device for device in alike if device.identifier == chosen] or alike or found
    return next((device for device in found if device.kind != "cpu"), found[0])


def is_installed(module: str) -> bool:
    """Look for a module without importing it. An empty folder that an uninstaller left behind does not count.

    Args:
        module: its name, or that of a framework.
    """
    return has_module(FRAMEWORKS[module].module if module in FRAMEWORKS else module)


def explain_missing(module: str, title: str = "") -> str:
    """Return in one line that a package is not installed here, and the command that brings it.

    Args:
        module: its name, or that of a framework.
        title: for people; a framework has its own.
    """
    title = title or (FRAMEWORKS[module].title if module in FRAMEWORKS else module)
    by_lock = module in FRAMEWORKS and module != "torch"
    build = replace(Host.here(), installed_by="venv")  # what conda made is left unchanged, as by `import_tensorflow`
    get = command(build, "lab --accel cpu" if by_lock else f"lab --with {module}")
    return f"{title} is not installed here; to have it: {get}"


def _strip_prefix(line: str) -> str:
    """A line of a framework's log without its letter, time and place in the source."""
    return _LOG_PREFIX.sub("", line).strip()


# ------------------------------------------------------------------------------------------- showing and choosing


def make_table(answers: Iterable[Answer]) -> Table:
    """Return one row for each device, and one for each framework that has none and why; long reasons follow below."""
    rows: list[tuple[str, ...]] = []
    below: list[str] = []
    for answer in answers:
        package = {"opencl": "(PyOpenCL {})", "webgpu": "(wgpu {})"}.get(answer.framework, "{}").format(answer.version)
        title = FRAMEWORKS[answer.framework].title + (f" {package}" if answer.version else "")
        for device in answer.devices:
            name = f"{device.name}, {device.runtime}" if device.runtime else device.name
            memory = f"{device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else ""
            computes = textwrap.shorten(device.computes, SHORT, placeholder=" ...") or "not tried"
            if computes.endswith(" ..."):
                how = {"wrong": "computes wrongly", "failed": "fails"}[device.state]
                below.append(f"{FRAMEWORKS[answer.framework].title} {device.identifier} {how}: {device.reason}.")
            units = str(device.compute_units or "")
            rows.append((title, device.identifier, device.kind, computes, name, memory, units))
        if answer.message or not answer.devices:
            state = "note" if answer.devices else "no device" if answer.state == "ok" else answer.state
            ended = answer.state in ("failed", "timed out")
            rows.append((title, state, "", "", "" if ended else answer.message, "", ""))
            if ended:
                below.append(f"{title}, {state}: {answer.message.rstrip('.')}.")
    return Table(rows, ("Framework", "Device", "Kind", "Computes", "Name", "Memory", "Units"), below)


def pick(answers: Iterable[Answer], kind: str | None = None) -> Device:
    """Choose a device: a GPU before an accelerator before a CPU; a card before a GPU that is part of the processor.

    One that computes wrongly or fails is never chosen. Of equals the first, of equal GPUs of a framework the one with
    the most memory. PYOPENCL_CTX overrules this, and CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES hide what they hide.

    Args:
        answers: what `find` returned.
        kind: only devices of this kind, one of KINDS; None for any.

    Raises:
        WorkshopError: nothing fits; it lists what there is, and what fails.
    """
    answers = list(answers)
    found = [device for answer in answers for device in answer.devices]
    if usable := [device for device in found if device.is_usable and kind in (None, device.kind)]:
        # Not every framework tells the memory of its GPUs, so it decides within one framework alone.
        first = min(usable, key=lambda device: preference(device)[:4])
        return min((device for device in usable if device.framework == first.framework), key=preference)
    why = [f"{device} ({device.identifier}): {device.computes or device.kind}" for device in found]
    why += [
        f"{FRAMEWORKS[answer.framework].title}: {answer.state} {answer.message}".rstrip()
        for answer in answers
        if not answer.devices
    ]
    raise WorkshopError(
        f"There is no device{f' of kind {kind}' if kind else ''} here that computes right.",
        "; ".join(why) or "No framework was asked.",
        f"{command(Host.here(), 'doctor')} says what is missing and how to get it.",
    )
