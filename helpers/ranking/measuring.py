"""Run the benchmark: each framework on each device in a fresh process, one after the other, within a budget of seconds.

First come whole rounds: every framework does all its works. Then what may count for the score gets more processes, as
long as there is time: from process to process a speed differs by more than within one, so more processes make a score
sure, and more values do not.

Why not pyperf's Runner: it starts every benchmark in processes of its own. Seven works of TensorFlow would import it
seven times for each repeat (4 s each), and nothing would be interleaved. pyperf keeps and compares the values
(`helpers.ranking.files`).
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from helpers.compute import devices, processes, workarounds
from helpers.compute.frameworks import FRAMEWORKS, Device
from helpers.compute.host import Host, cpu_name, usable_cpus
from helpers.measure import workload
from helpers.ranking.files import without_paths
from helpers.ranking.noise import Watch
from helpers.ranking.results import Machine, Result, Row, best, with_ceilings
from helpers.ranking.tasks import SCORED, TASKS
from helpers.ranking.worker import DOES, LEAST_VALUES, variables
from helpers.ranking.worker import FRAMEWORKS as WORKERS

# Seconds that a process needs more or less than another one: to import its framework, to compile, and for its works.
SHARES = {"numpy": 1.5, "opencl": 2.5, "webgpu": 2, "tensorflow": 5, "jax": 7, "torch": 5, "onnxruntime": 1.5}
# Variables of the environment that make a machine slower or faster, and are kept with its result.
VARIABLES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA",
    "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "POCL_MAX_PTHREAD_COUNT", "POCL_MAX_COMPUTE_UNITS", "PYOPENCL_CTX",
)  # fmt: skip
WORKER = ("-m", "helpers.ranking.worker")
WHOLE = 0.6  # of the time is for the whole rounds, where others follow
CONTENDS = 0.7  # of the best speed a row must reach after the whole rounds to be measured again
PATIENCE = 3  # times its share a process may take before it is killed, and never less than
LEAST_PATIENCE = 90.0  # seconds


class Place(NamedTuple):
    """One framework on one device."""

    framework: str  # numpy, or one of helpers.compute.frameworks.FRAMEWORKS
    identifier: str
    name: str  # for people
    chip: str
    kind: str
    why_not: str = ""  # why nothing is timed there

    @classmethod
    def of(cls, device: Device) -> Place:
        """Return the place of a device that `helpers.compute.devices` found."""
        why = "" if device.usable else device.reason
        if device.kind == "simulator":
            why = "it is a simulator, whose speed says nothing"
        kind = "cpu" if device.kind == "simulator" else device.kind
        return cls(device.framework, device.identifier, str(device), device.name, kind, why)


def measure(
    seconds: float | None = None,
    only: Iterable[str] | None = None,
    rounds: int | None = None,
    again: int | None = None,
    tell: Callable[[str], object] | None = None,
) -> Result:
    """Benchmark this machine.

    Args:
        seconds: for all of it; None takes 30 under preview, 180 under lab, 600 under full. A slow machine takes longer,
            because every work is done at least three times.
        only: frameworks, numpy among them; all that are here if None.
        rounds: of all works, in a fresh process for each framework and device; None takes 1, 2 and 4.
        again: processes more, at most, for what may count for the score; None takes 0, 6 and 12.
        tell: takes a line for each row as soon as it is known; None prints it.

    Returns:
        Every row; where a device failed its row says why.
    """
    seconds = workload.pick(preview=30.0, lab=180.0, full=600.0) if seconds is None else seconds
    rounds = workload.pick(preview=1, lab=2, full=4) if rounds is None else rounds
    again = workload.pick(preview=0, lab=6, full=12) if again is None else again
    began = time.perf_counter()
    workarounds.ask_for_large_pages()
    workarounds.keep_pocl_on_its_cores()
    places, answers = find_places(only)
    bench = _Bench([place for place in places if not place.why_not], tell or partial(print, flush=True))
    not_timed = [Row(DOES[place.framework][0], *place[:5], why_not=place.why_not) for place in places if place.why_not]
    for row in not_timed:
        bench.tell(str(row))
    whole = {place: DOES[place.framework] for place in bench.told}
    for number in range(rounds):
        end = began + seconds * (WHOLE if again else 1) * (number + 1) / rounds
        bench.run(whole, end, f"round {number + 1} of {rounds}: " if rounds > 1 else "")
    contend = contenders(bench.rows())
    for number in range(again):
        left = began + seconds - time.perf_counter()
        if left > 0:
            todo = {place: contend[place[:2]] for place in bench.told if place[:2] in contend}
            bench.run(todo, time.perf_counter() + left / (again - number), f"again, {number + 1} of {again}: ")
    order = list(TASKS)
    rows = with_ceilings(sorted([*bench.rows(), *not_timed], key=lambda row: order.index(row.task)))
    versions = {answer.framework: answer.version for answer in answers if answer.version} | bench.versions()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    seconds = time.perf_counter() - began
    return Result(rows, bench.watch.end(), here(answers), workload.current(), today, seconds, versions)


class _Bench:
    """What the processes of each place told so far, and how quiet the machine was between them."""

    def __init__(self, places: Sequence[Place], tell: Callable[[str], object]) -> None:
        self.told: dict[Place, list[_Told]] = {place: [] for place in places}
        self.tell = tell
        self.watch = Watch()
        self.watch.look("before")

    def run(self, todo: Mapping[Place, tuple[str, ...]], end: float, label: str) -> None:
        """Run a process for each place and its tasks, and share the time until `end` among them."""
        ahead = sum(SHARES[place.framework] for place in todo)
        for place, tasks in todo.items():
            left = end - time.perf_counter()
            told = _in_process(place, tasks, max(1.0, left * SHARES[place.framework] / ahead))
            ahead -= SHARES[place.framework]
            self.told[place].append(told)
            self.watch.own(told.used)
            self.watch.look(f"after {place.framework}")
            for row in _rows(place, self.told[place]):
                if row.task in tasks:
                    self.tell(f"{label}{row}")

    def rows(self) -> list[Row]:
        """Return every row of every place."""
        return [row for place, told in self.told.items() for row in _rows(place, told)]

    def versions(self) -> dict[str, str]:
        """Return the version of each framework that told it."""
        return {place.framework: one.version for place, told in self.told.items() for one in told if one.version}


def contenders(rows: Sequence[Row]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return for each framework and device the scored tasks in which it is the best, or so near that it may be."""
    fastest = best(rows)
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        if row.task in SCORED and not row.why_not and row.speed >= CONTENDS * fastest[row.task].speed:
            place = row.framework, row.identifier
            found[place] = (*found.get(place, ()), row.task)
    return found


def find_places(only: Iterable[str] | None = None) -> tuple[list[Place], list[devices.Answer]]:
    """Return every framework on every device, NumPy first, and what the frameworks answered."""
    wanted = None if only is None else set(only)
    asked = [name for name in FRAMEWORKS if name in WORKERS and (wanted is None or name in wanted)]
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

    asked: tuple[str, ...]  # the tasks
    version: str
    works: dict[str, dict]  # by task
    seconds: dict[str, list[float]]  # by task
    used: float  # seconds of processor time; 0 if it did not come so far
    fate: str  # why it ended before it was through; empty if it was through


def _in_process(place: Place, tasks: tuple[str, ...], seconds: float) -> _Told:
    command = [sys.executable, "-P", *WORKER, *place[:2], place.kind, str(seconds), *tasks]
    patience = max(LEAST_PATIENCE, PATIENCE * seconds)
    needed = processes.environment(variables(place.framework, place.identifier, place.kind))
    done = processes.run_command(command, patience, env=needed)
    told, found, values = {"version": "", "used": 0.0}, {}, {}
    for line in done.stdout.splitlines():
        try:
            said = dict(json.loads(line))
        except (ValueError, TypeError):  # half a line: the process was ended
            continue
        if "task" not in said:
            told |= said
        elif "seconds" in said:
            values.setdefault(said["task"], []).append(said["seconds"])
        else:
            found[said["task"]] = said
    return _Told(tasks, told["version"], found, values, told["used"], _fate(done, patience))


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


def _rows(place: Place, processes_told: Sequence[_Told]) -> list[Row]:
    """Join what several processes of one place told."""
    rows = []
    for task in DOES[place.framework]:
        told = [one for one in processes_told if task in one.asked]
        runs = tuple(tuple(one.seconds[task]) for one in told if len(one.seconds.get(task, ())) >= LEAST_VALUES)
        said = [one.works[task] for one in told if task in one.works]
        bad = [one["why_not"] for one in said if "why_not" in one] or [one.fate for one in told if one.fate]
        good = [one for one in said if "why_not" not in one]
        if runs and len(good) == len(said):
            failed = f"; {len(told) - len(runs)} of {len(told)} processes failed" if len(runs) < len(told) else ""
            rows.append(Row(task, *place[:5], good[0]["what"], good[0]["amount"], max(one["first"] for one in good),
                            runs, good[0]["loops"], good[0]["checked"] + failed))  # fmt: skip
        else:
            why = (bad or ["its process ended without a value"])[0]
            rows.append(Row(task, *place[:5], why_not=why))
    return rows
