"""The gallery: one file a machine in data/results/machines.

Each file is one of pyperf's: `python -m pyperf show FILE`, `hist` and `compare_to` read it, and its benchmarks hold
every value in seconds. What pyperf has no place for (devices that failed, the noise, the machine) stands under
"workshop". Medians, percentages and scores stand nowhere in it: they are computed from the values when it is read.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import ROOT
from helpers.compute import processes
from helpers.errors import WorkshopError
from helpers.ranking.noise import Moment, Noise
from helpers.ranking.results import Machine, Result, Row, best, with_ceilings
from helpers.ranking.tasks import TASKS

if TYPE_CHECKING:
    import pyperf

FOLDER = ROOT / "data" / "results" / "machines"
SCHEMA = ROOT / "data" / "results" / "schema.json"
REFERENCE = "amd-zen-5-2-cores"
NAMES = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
PLACE = ("task", "framework", "identifier", "device", "chip", "kind")


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
    held = io.StringIO()
    suite(result).dump(held)
    lost = [{name: getattr(row, name) for name in (*PLACE, "why_not")} for row in result.rows if row.why_not]
    workshop = {
        "edition": result.edition,
        "date": result.date,
        "profile": result.profile,
        "seconds": round(result.seconds, 1),
        "machine": asdict(result.machine),
        "versions": dict(result.versions),
        "noise": asdict(result.noise),
        "not_measured": [row | {"why_not": without_paths(row["why_not"])} for row in lost],
    }
    return json.loads(held.getvalue()) | {"workshop": json.loads(json.dumps(workshop))}  # tuples become lists


def from_json(held: dict[str, Any], name: str = "") -> Result:
    """Return the result that a file holds; the ceilings are computed anew from its rows."""
    import pyperf

    measured = pyperf.BenchmarkSuite.loads(json.dumps({key: held[key] for key in held if key != "workshop"}))
    rows = []
    for one in measured.get_benchmarks():
        about, runs = one.get_metadata(), one.get_runs()
        first = max(seconds for run in runs for _, seconds in run.warmups)
        rows.append(Row(*(about.get(key, "") for key in PLACE), about["what"], about["amount"], first,
                        tuple(run.values for run in runs), about.get("loops", 1), about["checked"]))  # fmt: skip
    more = held["workshop"]
    rows += [Row(**row) for row in more["not_measured"]]
    order = list(TASKS)
    noise, machine = more["noise"], more["machine"]
    works = ("integer", "memory", "hand_over")  # the last one is missing in files of before November 2026
    moments = tuple(Moment(one["when"], *(tuple(one.get(work, ())) for work in works)) for one in noise["moments"])
    return Result(
        with_ceilings(sorted(rows, key=lambda row: order.index(row.task))),
        Noise(**noise | {"moments": moments}),
        Machine(**machine | {name: tuple(machine[name]) for name in ("gpus", "variables")}),
        more["profile"], more["date"], more["seconds"], more["versions"], name, more["edition"],
    )  # fmt: skip


def without_paths(text: str) -> str:
    """Return what a library said without the paths in it, which may name the machine's owner."""
    return re.sub(r"(?<![\w.])(?:[A-Za-z]:\\|~|\.{0,2}/)(?:[\w.@+ -]+[/\\])+[\w.@+-]*", "(a path)", text)


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a result.

    Raises:
        WorkshopError: with what a name is.
    """
    if not NAMES.fullmatch(name):
        raise WorkshopError(
            f"{name!r} cannot be the name of a result.",
            "It becomes the name of a file: small letters, digits, and single hyphens between them.",
            "Say what the machine is, for example amd-rx-6600-xt. Not whose it is: the file will be public.",
        )


def save(result: Result, name: str, folder: Path | None = None) -> Path:
    """Write a result into the gallery, or another folder, as NAME.json.

    Raises:
        WorkshopError: the name cannot be one, or nothing was measured.
    """
    check_name(name)
    path = (folder or FOLDER) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(result), indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text)  # a list of numbers in one line
    path.write_text(text + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Any:  # noqa: ANN401 (whatever a file holds)
    """Return what a JSON file holds, a result or not.

    Raises:
        WorkshopError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkshopError(f"{path.name} cannot be read.", str(error.strerror), "Check its name.") from None
    except ValueError as error:
        raise WorkshopError(f"{path.name} is not JSON.", f"{error}.", "Write it anew with bench --save.") from None


def read(path: Path | str) -> Result:
    """Read a result's file.

    Raises:
        WorkshopError: it cannot be read, or is no result.
    """
    path = Path(path)
    held = load(path)
    if problems := problems_of(held):
        raise WorkshopError(
            f"{path.name} is no result of this benchmark.",
            "\n      ".join(problems),
            "Write it anew with bench --save.",
        )
    return from_json(held, path.stem)


# Faster than any machine of 2026 by far: what lies above was not measured.
IMPOSSIBLE = {"GB/s": 1e5, "GFLOP/s": 1e8, "images/s": 1e9}
SHORTER = 16  # times as fast as float32 in registers a network may be on units for TF32 or 16 bits


def problems_of(held: Any) -> list[str]:  # noqa: ANN401 (whatever a file holds)
    """Return what is wrong with what a file holds, a line each; an empty list if it may stand in the gallery.

    The schema (data/results/schema.json), names and paths of the owner, and whether the figures can be true.
    """
    import jsonschema

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found = [
        f"{'/'.join(map(str, error.absolute_path)) or 'the file'}: {error.message[:200]}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(held)
    ]
    if found:
        return found
    try:
        result = from_json(held)
    except (ValueError, TypeError, KeyError) as error:
        return [f"pyperf cannot read it: {type(error).__name__}: {error}"]
    found += [f"{text!r} names the owner or a folder" for text in _texts(held) if _personal(text)]
    for row in result.rows:
        if row.why_not:
            continue
        if row.speed > IMPOSSIBLE[row.unit]:
            found.append(f"{row.task}, {row.device}: {row.speed:.3g} {row.unit} is more than any machine can")
        elif row.unit == "images/s" and (row.percent or 0) > 100 * SHORTER:
            found.append(f"{row.task}, {row.device}: {row.percent:.0f} % of what its arithmetic was measured to reach")
        if any(row.first < 0.5 * min(run) for run in row.runs):
            found.append(f"{row.task}, {row.device}: its first call, compilation and all, was faster than every other")
    return found


def problems_of_reference(result: Result) -> list[str]:
    """Return why a result cannot be the one that all scores are divided by: it is noisy, changed, or not whole."""
    found = [] if result.noise.quiet else [f"the machine was {result.noise.verdict}"]
    found += [f"{one} was set: it changes speeds" for one in result.machine.variables]
    found += [str(row) for row in result.failures()]
    missing = [task for task in TASKS if task not in best(result.rows)]
    return found + [f"{task}: measured on no device" for task in missing]


def _texts(held: object) -> Iterator[str]:
    """Every text in a JSON value, the names of its members apart."""
    if isinstance(held, str):
        yield held
    elif isinstance(held, Mapping | list):
        for one in held.values() if isinstance(held, Mapping) else held:
            yield from _texts(one)


def _personal(text: str) -> bool:
    """Whether a text holds a path, or (on the machine that was measured) the name of its user or of the machine."""
    import getpass
    import socket

    names = [socket.gethostname()]
    with contextlib.suppress(Exception):  # a user without a name, as in some containers
        names.append(getpass.getuser())
    common = {"root", "user", "localhost"}
    named = [re.escape(name) for name in names if len(name) > 2 and name.lower() not in common]
    return without_paths(text) != text or bool(named and re.search(rf"\b(?:{'|'.join(named)})\b", text, re.IGNORECASE))


def compare(one: Result, other: Result) -> str:
    """Return pyperf's comparison of a result with another one; it claims nothing that may be chance.

    Of one machine it compares what the same framework did on the same device; of two machines the best of each for each
    task. Its values are the seconds for each GB, GFLOP or image.

    Raises:
        WorkshopError: they have no task in common, or their tasks are of different editions.
    """
    if one.edition != other.edition:
        raise WorkshopError(
            "These two results cannot be compared.",
            f"They are of the editions {one.edition} and {other.edition}: tasks, or how they are timed, differ.",
        )
    sides = [{f"{row.task}, {row.device}": row for row in side.rows if not row.why_not} for side in (one, other)]
    if not set(sides[0]) & set(sides[1]):
        sides = [best(side.rows) for side in (one, other)]
    shared = [name for name in sides[0] if name in sides[1]]
    memory = [name for name in shared if sides[0][name].unit == "GB/s" and (one.noise.memory or other.noise.memory)]
    sizes = [name for name in shared if _is_other_work(sides[0][name], sides[1][name])]
    common = [name for name in shared if name not in (*memory, *sizes)]
    if not common:
        raise WorkshopError(
            "These two results have nothing in common.", "They measured different tasks, or memory varied."
        )
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, side in zip((one.name or "before", other.name or "now"), sides, strict=True):
            paths.append(Path(folder, str(len(paths)), f"{name}.json"))
            paths[-1].parent.mkdir()
            _each_unit({name: side[name] for name in common}).dump(str(paths[-1]))
        command = [sys.executable, "-m", "pyperf", "compare_to", "--table", *map(str, paths)]
        done = processes.run_command(command, 60, env=processes.environment({"COLUMNS": "120"}))
    if done.status != 0:
        raise WorkshopError("pyperf could not compare these two results.", done.stderr.strip()[-300:])
    said = [done.stdout.strip() or "pyperf sees no difference that could not be chance."]
    said += [f"Left out, matrices of other sizes or types: {', '.join(sizes)}."] if sizes else []
    said += [f"Left out, memory varied in one of the two runs: {', '.join(memory)}."] if memory else []
    return "\n".join(said)


def _is_other_work(one: Row, other: Row) -> bool:
    """Whether two rows of one task multiplied different matrices: a GPU gets larger ones than a processor."""
    return TASKS[one.task].group == "product" and one.what != other.what


def _each_unit(rows: Mapping[str, Row]) -> pyperf.BenchmarkSuite:
    """The rows by their names for pyperf, with the seconds for each GB, GFLOP or image."""
    import pyperf

    def benchmark(name: str, row: Row) -> pyperf.Benchmark:
        return pyperf.Benchmark([pyperf.Run([1 / one for one in row.values], metadata={"name": name},
                                            collect_metadata=False)])  # fmt: skip

    return pyperf.BenchmarkSuite([benchmark(name, row) for name, row in rows.items()])


def gallery(folder: Path | None = None) -> list[Result]:
    """Return every result of the gallery, the reference machine first."""
    found = [read(path) for path in sorted((folder or FOLDER).glob("*.json"))]
    return sorted(found, key=lambda result: (result.name != REFERENCE, result.name))


@functools.cache
def reference() -> Result:
    """Return the reference machine's result: its scores are 100."""
    return read(FOLDER / f"{REFERENCE}.json")
