"""Numbers that were recorded on another machine stand beside the learner's own, in many lessons.

A helper that measures notes its numbers; `run --record NAME` keeps the notes in data/results/NAME.json. Unless a run is
recorded, a note does nothing.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT, variables
from helpers.measure import workload
from helpers.measure.tables import MISSING, Table, format_number

if TYPE_CHECKING:
    from helpers.measure.timing import Measurement

RECORD = variables.RECORD  # the file that notes are added to, one a line
FOLDER = ROOT / "data" / "results"


@dataclass(frozen=True)
class Note:
    """One number of a lesson that was measured on the machine of a record."""

    label: str  # what was measured, as the lesson calls it
    value: float  # the median of the runs, in `unit`
    unit: str  # GFLOP/s, GB/s, s, times
    device: str = ""  # what computed; the record's device if empty
    amount: str = ""  # how much work, in words: 1,152 x 1,152
    low: float | None = None  # the middle half of the runs, from here ...
    high: float | None = None  # ... to here, in `unit`
    runs: int | None = None  # how many runs; None where it was not written down
    lesson: str = ""  # its number, such as 02b
    profile: str = ""  # the workload of the run
    date: str = ""  # such as 2026-11-27
    edition: str = ""  # of the lesson, as `hash_lesson` gives it; empty before there were editions
    remark: str = ""  # how the kernel or the run differed from the lesson of today


@dataclass(frozen=True)
class Machine:
    """Where a record was made."""

    device: str  # its GPU, or what the lessons took in place of one
    kind: str  # gpu, accelerator, cpu or simulator
    driver: str
    system: str
    versions: Mapping[str, str]  # of Python and of the packages that compute


@dataclass(frozen=True)
class Record:
    """What was measured on one machine."""

    machine: Machine
    notes: Mapping[tuple[str, str], Note]  # by lesson and label; the last one where a label was noted twice


# ------------------------------------------------------------------------------------------------------- noting


def add_note(note: Note) -> None:
    """Add a number to the file that the variable ANYGPU_RECORD names; do nothing if it is unset."""
    if not os.environ.get(RECORD):
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    full = replace(note, date=note.date or today, profile=note.profile or workload.current())
    with Path(os.environ[RECORD]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(full), ensure_ascii=False) + "\n")


def add_run(
    run: Measurement, unit: str = "s", work: float = 0, amount: str = "", label: str = "", lesson: str = ""
) -> None:
    """Note the median and the quartiles of a measurement: its seconds, or the speed if `work` is given.

    Args:
        run: what was measured.
        unit: of the seconds, or of the speed.
        work: what one run does, in `unit` times seconds, such as 10**9 operations; 0 to note seconds.
        amount: how much work in words.
        label: what the lesson calls it; the run's own label if empty.
        lesson: its number; the lesson that is executed if empty.
    """
    values = [work / seconds if work else seconds for seconds in (run.median, *run.quartiles)]
    low, high = sorted(values[1:])
    add_note(Note(label or run.label, values[0], unit, run.device, amount, low, high, len(run.seconds), lesson))


def read_notes(path: Path, lesson: str) -> list[Note]:
    """Return what was noted in the file `path`; nothing if there is no such file.

    Args:
        path: what the variable ANYGPU_RECORD named.
        lesson: whose notes they are, where they do not name another.
    """
    if not path.exists():
        return []
    notes = []
    for line in path.read_text(encoding="utf-8").splitlines():
        noted = Note(**json.loads(line))
        owner = noted.lesson or lesson
        notes.append(replace(noted, lesson=owner, edition=hash_lesson(owner)))
    return notes


def hash_lesson(lesson: str, root: Path = ROOT) -> str:
    """Return eight hexadecimal digits that change when a lesson's code cells or its kernels change.

    The cells of exercises and checks do not count. The result is empty where the lesson's notebook is missing.

    Args:
        lesson: its number, such as 02b.
        root: the workshop's folder.
    """
    texts = []
    for path in root.glob(f"notebooks/{lesson}-*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code" and not {"exercise", "check"} & set(cell["metadata"].get("tags", [])):
                texts.append("".join(cell["source"]))
    if not texts:
        return ""
    for module in dict.fromkeys((lesson[:2], lesson)):
        for path in root.glob(f"helpers/lessons/lesson_{module}.py"):
            strings = re.findall(r'""".*?"""', path.read_text(encoding="utf-8"), re.DOTALL)
            texts += [text for text in strings if "__kernel" in text or "@compute" in text]
    texts += [path.read_text(encoding="utf-8") for path in root.glob(f"helpers/lessons/programs/{lesson}-*.cl")]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


# ------------------------------------------------------------------------------------------------------ the files


def validate_name(name: str) -> str:
    """Return the name of a record if it can be a file's name on every system.

    Raises:
        ValueError: it cannot.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"{name!r} is not made of a-z, 0-9 and single hyphens, as in nvidia-h100")
    return name


def read(path: Path) -> Record | None:
    """Return the record in a file of data/results; None if it holds something else."""
    known = json.loads(path.read_text(encoding="utf-8"))
    if "notes" not in known:
        return None
    notes = [Note(**each) for each in known["notes"]]
    machine = Machine(**{field.name: known[field.name] for field in fields(Machine)})
    return Record(machine, {(each.lesson, each.label): each for each in notes})


def find_hardware(device: str) -> str:
    """Return a device's name without the drivers and frameworks that reach it.

    >>> find_hardware("NVIDIA H200 (CUDA 13.0.98, OpenCL, GPU)")
    'NVIDIA H200'
    """
    return device.partition(" (")[0]


def write(path: Path, machine: Machine, notes: Iterable[Note]) -> None:
    """Add notes to the record in the file `path`, one a line; a note replaces an older one of its lesson and label."""
    before = read(path) if path.exists() else None
    kept = dict(before.notes) if before else {}
    for each in notes:
        reached = find_hardware(each.device) if machine.kind == "gpu" else each.device  # NumPy is another way to a CPU
        kept[each.lesson, each.label] = replace(each, device="" if reached == machine.device else each.device)
    header = json.dumps(asdict(machine), indent=1, ensure_ascii=False).removesuffix("\n}")
    lines = []
    for _, each in sorted(kept.items(), key=lambda pair: pair[0][0]):  # by lesson, in the order of measuring
        filled = {key: value for key, value in asdict(each).items() if value not in ("", None)}
        lines.append(json.dumps(filled, ensure_ascii=False))
    listed = ",\n  ".join(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{header},\n "notes": [\n  {listed}\n ]\n}}\n', encoding="utf-8")


@functools.cache
def read_all(folder: Path = FOLDER) -> tuple[Record, ...]:
    """Return the records of GPUs in a folder, by their files' names, the last one first: lessons prefer the first."""
    records = (read(path) for path in sorted(folder.glob("*.json"), reverse=True))
    return tuple(record for record in records if record and record.machine.kind == "gpu")


# -------------------------------------------------------------------------------------------- beside the learner's


@dataclass(frozen=True)
class Column:
    """The cells of a table's column *recorded*, and the lines below the table that say where they come from."""

    notes: Mapping[str, Note]  # by label, those that there are
    cells: Sequence[str]  # one for each label that was asked for
    below: Sequence[str]
    device: str = ""  # the GPU; empty if there is none

    def get(self, label: str) -> float:
        """Return the recorded number; NaN if there is none."""
        return self.notes[label].value if label in self.notes else math.nan


def find_column(lesson: str, labels: Iterable[str], folder: Path = FOLDER) -> Column:
    """Return what the GPU with the most of these numbers reached; of several such GPUs, the first of `read_all`.

    Args:
        lesson: its number, such as 02b.
        labels: what was measured, as the lesson's cells call it.
        folder: where the records are.
    """
    labels, below, device = list(labels), [], ""
    notes: dict[str, Note] = {}
    for record in read_all(folder):
        found = {label: record.notes[lesson, label] for label in labels if (lesson, label) in record.notes}
        if len(found) > len(notes):
            notes, below = found, _describe_origin(lesson, record.machine, found)
            device = record.machine.device
    return Column(notes, [_format_cell(notes.get(label)) for label in labels], below, device)


def add_column(table: Table, lesson: str, folder: Path = FOLDER) -> Table:
    """Return the table with a column *recorded*: for each row what a GPU reached, by the label in the row's first cell.

    Args:
        table: of the learner's numbers.
        lesson: its number, such as 02b.
        folder: where the records are.
    """
    column = find_column(lesson, [str(row[0]) for row in table.rows], folder)
    rows = [(*row, cell) for row, cell in zip(table.rows, column.cells, strict=True)]
    return Table(rows, (*table.headers, "recorded"), (*table.below, *column.below))


def _format_cell(note: Note | None) -> str:
    if note is None:
        return MISSING
    from helpers.measure.timing import duration  # with NumPy, which `doctor` does without

    value = duration(note.value) if note.unit == "s" else f"{format_number(note.value)} {note.unit}"
    return value + (f" ({note.device})" if note.device else "")


def _describe_origin(lesson: str, machine: Machine, notes: Mapping[str, Note]) -> list[str]:
    """Return the lines below a table: device and day of its column *recorded*, and what differs from today's lesson."""
    amounts = sorted({note.amount for note in notes.values() if note.amount})
    days = sorted({datetime.date.fromisoformat(note.date) for note in notes.values()})
    dates = " and ".join(f"{day.day} {day:%B %Y}" for day in days)
    lines = ["; ".join([f"recorded: {machine.device}, {dates}", *amounts]) + "."]
    editions = {note.edition for note in notes.values() if note.edition}
    if editions - {hash_lesson(lesson)}:
        lines.append("recorded with an earlier edition of this lesson, whose code differed.")
    remarks: dict[str, list[str]] = {}
    for label, note in notes.items():
        if note.remark:
            remarks.setdefault(note.remark, []).append(label)
    if len(remarks) == 1 and len(next(iter(remarks.values()))) == len(notes) > 1:
        return [*lines, f"Every recorded number comes from {next(iter(remarks))}."]
    return lines + [f"{'; '.join(labels)}, recorded: {remark}." for remark, labels in remarks.items()]
