"""Findings about the computer itself: Python, memory, disk, a folder to write to, and its processor."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.devices.host import LESSON_FOLDERS, Host, cgroup_room
from helpers.doctor.findings import Results, tell

if TYPE_CHECKING:
    from helpers.doctor.facts import Facts

PYTHONS = ((3, 11), (3, 13))  # the oldest and the newest that the locks are for, as in pyproject.toml
LEAST_MEMORY = 2 << 30  # bytes: a lesson's kernel stays below 1.5 GiB, and JupyterLab wants its share
LEAST_DISK = 3 << 30  # bytes: one accelerator family takes about that much
GIB = 1 << 30
ILLEGAL = r"SIGILL|status 3221225501|AVX instructions"  # 3221225501 is Windows' 0xC000001D, an illegal instruction


def python(host: Host) -> Results:
    """Is this Python one that the locks are for."""
    version, oldest, newest = (".".join(map(str, numbers)) for numbers in (host.python, *PYTHONS))
    if PYTHONS[0] <= host.python <= PYTHONS[1]:
        yield f"Python {version}"
    else:
        yield tell("host-python", host, version=version, oldest=oldest, newest=newest)


def folder(host: Host, folders: tuple[Path, ...] = (ROOT / LESSON_FOLDERS[0], ROOT)) -> Results:
    """Can answers be saved: tried, since rights alone do not say it."""
    for place in filter(Path.is_dir, folders):
        try:
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            yield tell("host-folder", host, place=place, says=error.strerror)
            return


def memory(host: Host) -> Results:
    """Is there enough memory for one lesson, within the container's limit if there is one."""
    import psutil

    free = min([psutil.virtual_memory().available, *cgroup_room()])
    if free >= LEAST_MEMORY:
        yield f"memory: {free / GIB:.1f} GiB available"
        return
    yield tell("host-memory", host, free=f"{free / GIB:.1f}", least=f"{LEAST_MEMORY / GIB:.1f}")


def disk(host: Host) -> Results:
    """Is there room for the packages, the dataset and the outputs."""
    free = shutil.disk_usage(ROOT).free
    if free >= LEAST_DISK:
        yield f"disk: {free / GIB:.1f} GiB free"
        return
    yield tell("host-disk", host, free=f"{free / GIB:.1f}", least=f"{LEAST_DISK / GIB:.1f}")


def no_avx(facts: Facts) -> Results:
    """Does this processor lack AVX: by /proc/cpuinfo, else by how a framework ended. Rosetta is told elsewhere."""
    if facts.host.machine != "x86_64" or facts.stdout("sysctl").strip() == "1":
        return
    flags = re.search(r"^flags\s*:(.*)$", facts.text("proc/cpuinfo"), re.MULTILINE)
    ended = [name for name, answer in facts.answers.items() if re.search(ILLEGAL, answer.message)]
    if (flags and "avx" not in flags[1].split()) or (not flags and ended):
        yield tell("host-no-avx", facts.host)


CHECKS = (python, folder, memory, disk)
JUDGES = (no_avx,)
