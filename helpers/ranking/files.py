"""The gallery: one file a machine in data/results, in pyperf's format, checked when it is written and when it is read."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import ROOT
from helpers.errors import WorkshopError
from helpers.ranking.noise import Moment, Noise
from helpers.ranking.results import Machine, Result, Row, with_ceilings
from helpers.ranking.tasks import TASKS

if TYPE_CHECKING:
    import pyperf

FOLDER = ROOT / "data" / "results" / "machines"
SCHEMA = ROOT / "data" / "results" / "schema.json"
REFERENCE = "amd-zen-5-2-cores"
NAMES = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
PLACE = ("task", "framework", "identifier", "device", "chip", "kind")
SAYS = ("what", "amount", "first", "loops", "checked")


def suite(result: Result) -> pyperf.BenchmarkSuite:
    """Return the measured rows as pyperf's benchmarks: a run for each process, its values in seconds for one call."""
    import pyperf

    found = []
    for row in result.rows:
        if row.why_not:
            continue
        about = {name: getattr(row, name) for name in (*PLACE, "what", "checked", "amount")}
        about = {name: value for name, value in about.items() if value != ""}
        about |= {"name": f"{row.task}, {row.device}", "unit": "second", "loops": row.loops}
        runs = [
            pyperf.Run([float(f"{one:.6g}") for one in run], [(1, float(f"{row.first:.6g}"))], about,
                       collect_metadata=False)
            for run in row.runs
        ]  # fmt: skip
        found.append(pyperf.Benchmark(runs))
    return pyperf.BenchmarkSuite(found)


def to_json(result: Result) -> dict[str, Any]:
    """Return a result as what its file holds: pyperf's suite, and the rest under "workshop"."""
    if not any(not row.why_not for row in result.rows):
        raise WorkshopError(
            "There is nothing to keep.", "No task could be measured; each row says why.", "Mend the first reason."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "suite.json")
        suite(result).dump(str(path))
        held = json.loads(path.read_text(encoding="utf-8"))
    held["workshop"] = {
        "edition": result.edition,
        "date": result.date,
        "profile": result.profile,
        "seconds": round(result.seconds, 1),
        "machine": asdict(result.machine) | {"gpus": list(result.machine.gpus)},
        "versions": dict(result.versions),
        "noise": {
            "cores": result.noise.cores,
            "others": result.noise.others,
            "steal": result.noise.steal,
            "moments": [
                {"when": one.when, "integer": list(one.integer), "memory": list(one.memory)}
                for one in result.noise.moments
            ],
        },
        "not_measured": [
            {name: getattr(row, name) for name in (*PLACE, "why_not")} for row in result.rows if row.why_not
        ],
    }
    return held


def from_json(held: dict[str, Any], name: str = "") -> Result:
    """Return the result that a file holds; the ceilings are computed anew from its rows."""
    import pyperf

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "suite.json")
        path.write_text(json.dumps({key: value for key, value in held.items() if key != "workshop"}), encoding="utf-8")
        measured = pyperf.BenchmarkSuite.load(str(path))
    rows = []
    for one in measured.get_benchmarks():
        about, runs = one.get_metadata(), one.get_runs()
        rows.append(
            Row(*(about.get(key, "") for key in PLACE), about["what"], about["amount"],
                max(seconds for run in runs for _, seconds in run.warmups), tuple(run.values for run in runs),
                about.get("loops", 1), about["checked"])
        )  # fmt: skip
    more = held["workshop"]
    rows += [Row(*(row[key] for key in PLACE), why_not=row["why_not"]) for row in more["not_measured"]]
    order = list(TASKS)
    noise, machine = more["noise"], more["machine"]
    moments = tuple(Moment(one["when"], tuple(one["integer"]), tuple(one["memory"])) for one in noise["moments"])
    return Result(
        with_ceilings(sorted(rows, key=lambda row: order.index(row.task))),
        Noise(moments, noise["cores"], noise["others"], noise["steal"]),
        Machine(**machine | {"gpus": tuple(machine["gpus"])}),
        more["profile"], more["date"], more["seconds"], more["versions"], name, more["edition"],
    )  # fmt: skip


def save(result: Result, name: str, folder: Path | None = None) -> Path:
    """Write a result into the gallery.

    Args:
        result: of `measure`.
        name: of the file: small letters, digits and hyphens, what the machine is, such as "amd-zen-5-2-cores".
        folder: another one than the gallery's.

    Raises:
        WorkshopError: the name cannot be one, or nothing was measured.
    """
    if not NAMES.fullmatch(name):
        raise WorkshopError(
            f"{name!r} cannot be the name of a result.",
            "It becomes the name of a file: small letters, digits, and single hyphens between them.",
            "Say what the machine is, for example amd-rx-6600-xt. Not whose it is: the file will be public.",
        )
    path = (folder or FOLDER) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(result), indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text)  # a list of numbers in one line
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read(path: Path | str) -> Result:
    """Read a result's file.

    Raises:
        WorkshopError: it cannot be read, or is no result.
    """
    path = Path(path)
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkshopError(f"{path.name} cannot be read.", str(error.strerror), "Check its name.") from None
    except ValueError as error:
        raise WorkshopError(f"{path.name} is not JSON.", f"{error}.", "Write it anew with bench --save.") from None
    return from_json(held, path.stem)


def gallery(folder: Path | None = None) -> list[Result]:
    """Return every result of the gallery, the reference machine first."""
    found = [read(path) for path in sorted((folder or FOLDER).glob("*.json"))]
    return sorted(found, key=lambda result: (result.name != REFERENCE, result.name))


@functools.cache
def reference() -> Result:
    """Return the reference machine's result: its scores are 100."""
    return read(FOLDER / f"{REFERENCE}.json")
