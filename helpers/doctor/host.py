"""Finds what is wrong with the computer itself: Python, memory, disk, a folder to write to, and its processor."""

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
LEAST_DISK = 3 << 30  # bytes: one accelerator family needs about that much
GIB = 1 << 30
ILLEGAL = r"SIGILL|status 3221225501|AVX instructions"  # 3221225501 is Windows' 0xC000001D, an illegal instruction


def check_python(host: Host) -> Results:
    """Find a Python that the locks are not for."""
    version, oldest, newest = (".".join(map(str, numbers)) for numbers in (host.python, *PYTHONS))
    if PYTHONS[0] <= host.python <= PYTHONS[1]:
        yield f"Python {version}"
    else:
        yield tell("host-python", host, version=version, oldest=oldest, newest=newest)


def check_folder(host: Host, folders: tuple[Path, ...] = (ROOT / LESSON_FOLDERS[0], ROOT)) -> Results:
    """Find that answers cannot be saved: tried, since rights alone do not say it."""
    for place in filter(Path.is_dir, folders):
        try:
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            yield tell("host-folder", host, place=place, says=error.strerror)
            return


def check_memory(host: Host) -> Results:
    """Find that memory is too short for one lesson, within the container's limit if there is one."""
    import psutil

    free = min([psutil.virtual_memory().available, *cgroup_room()])
    if free >= LEAST_MEMORY:
        yield f"memory: {free / GIB:.1f} GiB available"
        return
    yield tell("host-memory", host, free=f"{free / GIB:.1f}", least=f"{LEAST_MEMORY / GIB:.1f}")


def check_disk(host: Host) -> Results:
    """Find that the disk has no room for the packages, the dataset and the outputs."""
    free = shutil.disk_usage(ROOT).free
    if free >= LEAST_DISK:
        yield f"disk: {free / GIB:.1f} GiB free"
        return
    yield tell("host-disk", host, free=f"{free / GIB:.1f}", least=f"{LEAST_DISK / GIB:.1f}")


def find_no_avx(facts: Facts) -> Results:
    """Find a processor without AVX: by /proc/cpuinfo, otherwise by how a framework ended; Rosetta is no such case."""
    if facts.host.machine != "x86_64" or facts.read_stdout("sysctl").strip() == "1":
        return
    flags = re.search(r"^flags\s*:(.*)$", facts.read_text("proc/cpuinfo"), re.MULTILINE)
    ended = [name for name, answer in facts.answers.items() if re.search(ILLEGAL, answer.message)]
    if (flags and "avx" not in flags[1].split()) or (not flags and ended):
        yield tell("host-no-avx", facts.host)


CHECKS = (check_python, check_folder, check_memory, check_disk)
JUDGES = (find_no_avx,)
