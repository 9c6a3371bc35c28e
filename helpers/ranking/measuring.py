"""Run the benchmark: each framework on each device in a fresh process, one after the other, within a budget of seconds.

Why not pyperf's Runner: it starts every benchmark in processes of its own. Seven works of TensorFlow would import it
seven times for each repeat (4 s each), and nothing would be interleaved. Here a process does all works of its framework
in turn. pyperf keeps and compares the values (`helpers.ranking.files`).
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from helpers import devices, processes, workarounds, workload
from helpers.frameworks import FRAMEWORKS, Device
from helpers.machine.host import Host, cpu_name, usable_cpus
from helpers.ranking import works
from helpers.ranking.files import without_paths
from helpers.ranking.noise import Watch
from helpers.ranking.results import Machine, Result, Row, with_ceilings
from helpers.ranking.tasks import TASKS
from helpers.ranking.worker import LEAST_VALUES

# Seconds that a process needs more or less than another one: to import its framework, to compile, and for its works.
SHARES = {"numpy": 1.5, "opencl": 2.5, "webgpu": 2, "tensorflow": 5, "jax": 7, "torch": 5, "onnxruntime": 1.5}
# Variables of the environment that make a machine slower or faster, and are kept with its result.
VARIABLES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA",
    "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "POCL_MAX_PTHREAD_COUNT", "POCL_MAX_COMPUTE_UNITS", "PYOPENCL_CTX",
)  # fmt: skip
WORKER = ("-m", "helpers.ranking.worker")
PATIENCE = 3  # times its share a process may take before it is killed, and never less than
LEAST_PATIENCE = 60.0  # seconds


class Place(NamedTuple):
    """One framework on one device."""

    framework: str  # numpy, or one of helpers.frameworks.FRAMEWORKS
    identifier: str
    name: str  # for people
    chip: str
    kind: str
    why_not: str = ""  # why nothing is timed there

    @classmethod
    def of(cls, device: Device) -> Place:
        """Return the place of a device that `helpers.devices` found."""
        why = "" if device.usable else device.reason
        if device.kind == "simulator":
            why = "it is a simulator, whose speed says nothing"
        kind = "cpu" if device.kind == "simulator" else device.kind
        return cls(device.framework, device.identifier, str(device), device.name, kind, why)


def measure(
    seconds: float | None = None,
    only: Iterable[str] | None = None,
    rounds: int | None = None,
    tell: Callable[[str], object] | None = None,
) -> Result:
    """Benchmark this machine.

    Args:
        seconds: for all of it; None takes 30 under preview, 180 under lab, 600 under full. A slow machine takes longer,
            because every work is done at least three times.
        only: frameworks, numpy among them; all that are here if None.
        rounds: processes for each framework and device: what differs from start to start shows only between them. None
            takes 1 under preview, 2 under lab, 4 under full.
        tell: takes a line for each row as soon as it is known; None prints it.

    Returns:
        Every row; where a device failed its row says why.
    """
    if seconds is None:
        seconds = workload.pick(preview=30.0, lab=180.0, full=600.0)
    rounds = workload.pick(preview=1, lab=2, full=4) if rounds is None else rounds
    tell = tell or partial(print, flush=True)
    began = time.perf_counter()
    workarounds.ask_for_large_pages()
    workarounds.keep_pocl_on_its_cores()
    places, answers = find_places(only)
    watch = Watch()
    watch.look("before")
    timed = [place for place in places if not place.why_not]
    told: dict[Place, list[_Told]] = {place: [] for place in timed}
    todo = [(place, number) for number in range(rounds) for place in timed]
    for done, (place, number) in enumerate(todo):
        left = seconds - (time.perf_counter() - began)
        ahead = sum(SHARES.get(one.framework, 3) for one, _ in todo[done:])
        share = max(1.0, left * SHARES.get(place.framework, 3) / ahead)
        told[place].append(_in_process(place, share))
        watch.own(told[place][-1].used)
        for row in _rows(place, told[place]):
            tell(f"round {number + 1} of {rounds}: {row}" if rounds > 1 else str(row))
        watch.look(f"after {place.framework}")
    rows = [_not_timed(place) for place in places if place.why_not]
    for row in rows:
        tell(str(row))
    rows = [row for place in timed for row in _rows(place, told[place])] + rows
    order = list(TASKS)
    rows = with_ceilings(sorted(rows, key=lambda row: order.index(row.task)))
    versions = {answer.framework: answer.version for answer in answers if answer.version}
    versions |= {place.framework: one.version for place in timed for one in told[place] if one.version}
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return Result(rows, watch.end(), here(answers), workload.current(), today, time.perf_counter() - began, versions)


def find_places(only: Iterable[str] | None = None) -> tuple[list[Place], list[devices.Answer]]:
    """Return every framework on every device, NumPy first, and what the frameworks answered."""
    wanted = None if only is None else set(only)
    asked = [name for name in FRAMEWORKS if name in works.FRAMEWORKS and (wanted is None or name in wanted)]
    answers = devices.find(asked) if asked else []
    places = [Place("numpy", "cpu", f"{cpu_name()} (NumPy, CPU)", cpu_name(), "cpu")]
    places = [place for place in places if wanted is None or place.framework in wanted]
    for answer in answers:
        places += [Place.of(device) for device in answer.devices]
        if not answer.devices:
            title = FRAMEWORKS[answer.framework].title
            why = answer.message if answer.state in ("ok", "failed") else f"{answer.state}: {answer.message}"
            places.append(Place(answer.framework, "", title, "", "cpu", why or "no device"))
    return with_one_gpu(places), answers


def with_one_gpu(places: Sequence[Place]) -> list[Place]:
    """Give the GPU one name where no framework sees two: not all call it alike, and rows of one chip share ceilings."""
    gpus = [place for place in places if place.kind == "gpu"]
    named = {framework: {one.chip for one in gpus if one.framework == framework} for framework, *_ in gpus}
    if not gpus or any(len(names) > 1 for names in named.values()):
        return list(places)
    return [place._replace(chip=gpus[0].chip) if place.kind == "gpu" else place for place in places]


def here(answers: Sequence[devices.Answer]) -> Machine:
    """Describe this machine without anything that names it or its owner."""
    import psutil

    gpus = {device.name for answer in answers for device in answer.devices if device.kind in ("gpu", "accelerator")}
    host, cores = Host.here(), usable_cpus()
    return Machine(
        cpu_name(), cores, round(psutil.virtual_memory().total / 2**30, 1), host.system, host.machine,
        platform.python_version(), tuple(sorted(gpus)),
        tuple(f"{name}={without_paths(os.environ[name])[:60]}" for name in VARIABLES if os.environ.get(name)),
    )  # fmt: skip


class _Told(NamedTuple):
    """What one process told before it ended."""

    version: str
    works: dict[str, dict]  # by task
    seconds: dict[str, list[float]]  # by task
    used: float  # seconds of processor time; 0 if it did not come so far
    fate: str  # why it ended before it was through; empty if it was through


def _in_process(place: Place, seconds: float) -> _Told:
    variables = works.variables(place.framework, place.identifier, place.kind)
    command = [sys.executable, "-P", *WORKER, *place[:2], place.kind, str(seconds)]
    patience = max(LEAST_PATIENCE, PATIENCE * seconds)
    done = processes.run_command(command, patience, env=processes.environment(variables))
    version, used, found, values = "", 0.0, {}, {}
    for line in done.stdout.splitlines():
        try:
            said = json.loads(line)
        except ValueError:  # half a line: the process was ended
            continue
        if not isinstance(said, dict):
            continue
        if "version" in said:
            version = said["version"]
        elif "used" in said:
            used = said["used"]
        elif "seconds" in said:
            values.setdefault(said["task"], []).append(said["seconds"])
        else:
            found[said["task"]] = said
    return _Told(version, found, values, used, _fate(done, patience))


def _fate(done: processes.Finished, patience: float) -> str:
    """Say how a process ended that was not through; its last words stand behind."""
    if done.status == 0:
        return ""
    words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    fatal = [line for line in words if line.startswith("Fatal Python error")]
    last = f": {(fatal or words)[-1][:200]}" if words else ""
    if done.status is None:
        return f"its process was killed after {patience:.0f} s"
    if done.status < 0:
        return f"its process was ended by {signal.Signals(-done.status).name}{last}"
    return f"its process ended with status {done.status}{last}"


def _not_timed(place: Place) -> Row:
    task = next(iter(tasks_of(place.framework)))
    return Row(task, place.framework, place.identifier, place.name, place.chip, place.kind, why_not=place.why_not)


def tasks_of(framework: str) -> tuple[str, ...]:
    """Return the tasks that a framework does, in the order of TASKS."""
    return tuple(task for task in TASKS if task in works.DOES[framework])


def _rows(place: Place, told: Sequence[_Told]) -> list[Row]:
    """Join what several processes of one place told."""
    rows = []
    for task in tasks_of(place.framework):
        runs = tuple(tuple(one.seconds[task]) for one in told if len(one.seconds.get(task, ())) >= LEAST_VALUES)
        said = [one.works[task] for one in told if task in one.works]
        good = [one for one in said if "why_not" not in one]
        fates = [one.fate for one in told if one.fate]
        bad = [one["why_not"] for one in said if "why_not" in one]
        if runs and good and not bad:
            one = good[0]
            failed = f"; {len(told) - len(runs)} of {len(told)} processes failed" if len(runs) < len(told) else ""
            rows.append(Row(task, *place[:5], one["what"], one["amount"], max(each["first"] for each in good), runs,
                            one["loops"], one["checked"] + failed))  # fmt: skip
        else:
            why = (bad or fates or ["its process ended without a value"])[0]
            rows.append(Row(task, *place[:5], why_not=why))
    return rows
