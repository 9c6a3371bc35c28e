"""Measure the lessons' training against the articles' code run as it is: same machine, same run, in turn."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import ROOT, devices, processes
from helpers.commands.run import BUILD, end_as_ctrl_c_does, short, write
from helpers.errors import WorkshopError
from helpers.machine.host import Host, command, cpu_name, python_command, set_variable
from helpers.tables import Table

if TYPE_CHECKING:
    from helpers.timing import Measurement

DEFAULT_BACKENDS = ("tensorflow", "jax")
NETWORKS = ("mlp", "cnn")
WAYS = ("article", "ours")
FULL = {"mlp": 10, "cnn": 12}  # the articles' epochs
SEEDS = (0, 1, 2)
BATCH = 128
ENOUGH = 3  # epochs, below which nothing is known of their spread
TIMEOUT = 3600.0  # seconds for one process
PACKAGES = ("keras", "tensorflow", "tensorflow-cpu", "jax", "torch", "numpy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument(
        "--backend", action="append", metavar="NAME", help="tensorflow, jax or torch; repeat it for several"
    )
    parser.add_argument("--network", action="append", choices=NETWORKS, help="both by default")
    parser.add_argument("--epochs", type=int, metavar="N", help="2 by default; under --accuracy those of the articles")
    parser.add_argument("--images", type=int, metavar="N", help="train and test with so many at most; for trying out")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--rounds", type=int, default=3, metavar="N", help="how often both ways take turns (3)")
    group.add_argument("--accuracy", action="store_true", help="train ours in full with three seeds, instead of timing")


def run(args: argparse.Namespace) -> int:
    """Measure what `args` asks for; return 0, 1 if a process failed, 130 if it was interrupted."""
    backends = _backends(args.backend)
    _check(args)
    end_as_ctrl_c_does()
    rows: list[dict[str, Any]] = []
    interrupted = False
    try:
        _fetch_data()
        for backend in backends:
            for network in dict.fromkeys(args.network or NETWORKS):
                _compare(backend, network, args, rows)
    except KeyboardInterrupt:
        interrupted = True
    _finish(rows, args.accuracy, interrupted)
    return 130 if interrupted else int(any("error" in row for row in rows))


def _backends(names: Sequence[str] | None) -> list[str]:
    """Return the backends to measure, each of which is there."""
    from helpers.training import BACKENDS

    there = [name for name in BACKENDS if devices.installed(name)]
    lab = command(Host.here(), "lab")
    for name in names or ():
        if name not in BACKENDS:
            raise WorkshopError(
                f"There is no backend called {name!r} that could be measured.",
                f"The lessons train with one of {', '.join(BACKENDS)}.",
                f"Choose among those that are installed: {', '.join(there) or 'none'}.",
            )
        if name not in there:
            raise WorkshopError(
                f"{BACKENDS[name]} is not installed here.",
                f"Installed are: {', '.join(there) or 'none of the backends'}.",
                f"Choose one of those, or install it:\n    {lab}{' --with torch' * (name == 'torch')}",
            )
    chosen = list(dict.fromkeys(names or [name for name in there if name in DEFAULT_BACKENDS]))
    if not chosen:
        raise WorkshopError("Neither TensorFlow nor JAX is installed here.", next=f"Install them:\n    {lab}")
    return chosen


def _check(args: argparse.Namespace) -> None:
    if args.epochs is not None and args.epochs < (1 if args.accuracy else 2):
        raise WorkshopError(
            f"--epochs {args.epochs} is too few.",
            "There is nothing to train then." if args.accuracy else "The first epoch compiles, so it is not counted.",
            f"Ask for --epochs {1 if args.accuracy else 2} or more.",
        )
    if args.rounds < 1:
        raise WorkshopError(f"{args.rounds} rounds measure nothing.", next="Ask for --rounds 1 or more.")
    if args.images is not None and args.images < BATCH:
        raise WorkshopError(
            f"{args.images} images do not fill one batch.",
            f"The articles train with {BATCH} images a step.",
            f"Ask for --images {BATCH} or more.",
        )


def _fetch_data() -> None:
    """Let a download happen before anything is measured, and a wrong ANYGPU_MNIST stop it all at once."""
    from helpers import data

    data.load_mnist()


# ---------------------------------------------------------------------------------------------- the processes


def _compare(backend: str, network: str, args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Train one network on one backend both ways in turn, or ours alone with three seeds; add to the rows."""
    epochs = args.epochs or (FULL[network] if args.accuracy else 2)
    options: dict[str, object] = {}
    ways: Sequence[str] = ("ours",) if args.accuracy else WAYS
    if network == "cnn":
        choice = _process(backend, network, "choose", 0, 0, args.images)
        rows.append(choice)
        _say(choice)
        if "error" in choice:
            ways = [way for way in ways if way != "ours"]
        options = choice.get("kept", {})
    for seed in SEEDS if args.accuracy else range(args.rounds):
        for way in ways:
            rows.append(_process(backend, network, way, epochs, seed, args.images, options if way == "ours" else None))
            _say(rows[-1])


def _process(
    backend: str,
    network: str,
    way: str,
    epochs: int,
    seed: int,
    images: int | None = None,
    options: dict[str, object] | None = None,
) -> dict[str, Any]:
    """Run one process of helpers.maintain.trials; return what it measured, or what, why and next under "error"."""
    arguments = ["-m", "helpers.maintain.trials", way, network, str(epochs), str(seed)]
    arguments += ["--images", str(images)] if images else []
    arguments += ["--options", json.dumps(options)] if options else []
    row = {"backend": backend, "network": network, "way": way, "epochs": epochs, "seed": seed}
    row["arguments"] = shlex.join(arguments)
    done = processes.run_command([sys.executable, "-P", *arguments], TIMEOUT, env=_environment(backend, way))
    row["process_seconds"] = done.seconds
    try:
        return row | json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):  # it came to no answer
        return row | {"error": [*_how_it_ended(done)]}


def _environment(backend: str, way: str) -> dict[str, str]:
    """The variables of a process: the articles' code knows nothing of large pages."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(paths)}
    found.pop("GLIBC_TUNABLES", None)
    if way != "article" and sys.platform == "linux":
        found["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
    return found


def _how_it_ended(done: processes.Finished) -> tuple[str, str, str]:
    fewer = "Try fewer images (--images), or close other programs."
    if done.status is None:
        return f"It had not ended after {TIMEOUT:g} s and was ended.", "", fewer
    if done.status < 0:
        killed = done.status == -getattr(signal, "SIGKILL", 9)
        why = "The memory may have run out: the system ends processes so." if killed else ""
        return f"The process was ended by {signal.Signals(-done.status).name}.", why, fewer if killed else ""
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return f"The process ended with status {done.status} and no result.", said[-1][:300] if said else "", ""


def _failure(row: dict[str, Any]) -> WorkshopError:
    """Return what became of a process that failed, in words."""
    what, why, following = row["error"]
    host = Host.here()
    alone = (
        f"Run it alone and see all that it says:\n    {set_variable(host, 'KERAS_BACKEND', row['backend'])}\n"
        f"    {python_command(host)} {row['arguments']}"
    )
    return WorkshopError(f"{_label(row)} failed: {what}", why, following or alone)


def _label(row: dict[str, Any]) -> str:
    seed = "" if row["way"] == "choose" else f", seed {row['seed']}"
    return f"{row['backend']} {row['network']} {row['way']}{seed}"


def _say(row: dict[str, Any]) -> None:
    """Print one line of a process that has ended."""
    if "error" in row:
        said = str(_failure(row)).replace("\n", "\n    ")
    elif row["way"] == "choose":
        said = f"{_label(row)}: {_kept(row)}"
    else:
        counted = statistics.median(row["epoch_seconds"][1:] or row["epoch_seconds"])
        epochs = f"{row['epochs']} epoch{'s' * (row['epochs'] != 1)}"
        said = (
            f"{_label(row)}: {counted:.3g} s an epoch, {row['fit_seconds']:.1f} s in all, {row['peak_mib']:,.0f} MiB, "
            f"{100 * row['accuracy']:.2f} % after {epochs} of {_trained_on(row)}"
        )
    print(f"{row['process_seconds']:4.0f} s  {said}", flush=True)


def _kept(row: dict[str, Any]) -> str:
    """Say which options a choice kept: "kept uint8=True, precision=mixed_bfloat16"."""
    kept = ", ".join(f"{name}={value}" for name, value in row["kept"].items())
    return f"kept {kept}" if kept else "kept none of the changes"


def _trained_on(row: dict[str, Any]) -> str:
    """Say with how many images of which dataset: "60,000 MNIST", "256 of 60,000 MNIST"."""
    part = f"{row['images']:,} of " if row["images"] < row["images_of"] else ""
    return f"{part}{row['images_of']:,} {row['dataset'].partition(' (')[0]}"


# ---------------------------------------------------------------------------------------------- what came of it


@dataclass(frozen=True)
class Summary:
    """What all processes of one backend, network and way showed together.

    Attributes:
        backend: as KERAS_BACKEND names it.
        network: "mlp" or "cnn".
        way: "article" or "ours".
        epochs: of each training.
        trained_on: how many images of which dataset.
        epoch: the seconds of every epoch but the first of each process, validation included.
        fit: seconds of the whole `fit`, the median.
        imported: seconds until Keras was there, the median.
        peak: the most resident memory of the process in MiB, the median.
        accuracies: on the test images, from 0 to 1, by seed.
    """

    backend: str
    network: str
    way: str
    epochs: int
    trained_on: str
    epoch: Measurement
    fit: float
    imported: float
    peak: float
    accuracies: dict[int, float]

    @property
    def accuracy(self) -> float:
        """The median over the seeds."""
        return statistics.median(self.accuracies.values())


def summarise(rows: Sequence[dict[str, Any]]) -> list[Summary]:
    """Put together what belongs together; processes that failed count nowhere."""
    from helpers.timing import Measurement

    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["way"] in WAYS and "error" not in row:
            groups.setdefault((row["backend"], row["network"], row["way"]), []).append(row)
    return [
        Summary(
            *key,
            epochs=group[0]["epochs"],
            trained_on=_trained_on(group[0]),
            epoch=Measurement(
                " ".join(key), group[0]["device"], tuple(s for row in group for s in row["epoch_seconds"][1:])
            ),
            fit=statistics.median(row["fit_seconds"] for row in group),
            imported=statistics.median(row["import_seconds"] for row in group),
            peak=statistics.median(row["peak_mib"] for row in group),
            accuracies={row["seed"]: row["accuracy"] for row in group},
        )
        for key, group in groups.items()
    ]


def speed(article: Summary, ours: Summary) -> float | None:
    """Return how many times faster an epoch of ours is; None where the measurements allow no such claim."""
    from helpers.timing import is_clear

    enough = min(len(article.epoch.seconds), len(ours.epoch.seconds)) >= ENOUGH
    return article.epoch.median / ours.epoch.median if enough and is_clear(article.epoch, ours.epoch) else None


def _pairs(summaries: Sequence[Summary]) -> list[tuple[Summary, Summary]]:
    """Return the article's way and ours of every backend and network that has both."""
    found = {(one.backend, one.network, one.way): one for one in summaries}
    keys = dict.fromkeys((one.backend, one.network) for one in summaries)
    return [(found[*key, "article"], found[*key, "ours"]) for key in keys if all((*key, way) in found for way in WAYS)]


def figures(summaries: Sequence[Summary]) -> Table:
    """Return the table of the timing: one row for each way."""
    headers = ("backend", "network", "way", "seconds an epoch", "spread", "whole fit", "import", "peak MiB")
    rows = [
        (
            *(one.backend, one.network, one.way, f"{one.epoch.median:.3g}", _spread(one.epoch), f"{one.fit:.1f} s"),
            *(f"{one.imported:.1f} s", f"{one.peak:,.0f}", f"{100 * one.accuracy:.2f} %", one.epochs, one.trained_on),
        )
        for one in summaries
    ]
    return Table(rows, (*headers, "test accuracy", "epochs", "trained on"))


def _spread(epoch: Measurement) -> str:
    counted = len(epoch.seconds)
    return f"{epoch.spread:.2g} ({counted} epochs)" if counted >= ENOUGH else f"unknown ({counted} counted)"


def ratios(summaries: Sequence[Summary]) -> Table:
    """Return the table of ours against the articles' way."""
    rows = []
    for article, ours in _pairs(summaries):
        faster = speed(article, ours)
        few = min(len(article.epoch.seconds), len(ours.epoch.seconds)) < ENOUGH
        no_claim = f"no claim: fewer than {ENOUGH} epochs counted" if few else "no claim: the spread is larger"
        gain = 100 * (ours.accuracy - article.accuracy)
        rows.append(
            (
                *(ours.backend, ours.network, no_claim if faster is None else f"{faster:.2f}"),
                *(f"{ours.peak / article.peak:.2f}", f"{gain:+.2f} points", ours.epochs, ours.trained_on),
            )
        )
    headers = ("backend", "network", "time: article / ours", "memory: ours / article", "accuracy: ours - article")
    return Table(rows, (*headers, "epochs", "trained on"))


def accuracies(summaries: Sequence[Summary]) -> Table:
    """Return the table of the full trainings: every seed, and the median."""
    rows = [
        (
            *(one.backend, one.network, ", ".join(f"{100 * one.accuracies[seed]:.2f} %" for seed in one.accuracies)),
            *(", ".join(map(str, one.accuracies)), f"{100 * one.accuracy:.2f} %", f"{one.fit:.1f} s"),
            *(f"{one.peak:,.0f}", one.epochs, one.trained_on),
        )
        for one in summaries
    ]
    headers = ("backend", "network", "test accuracy", "seeds", "median", "whole fit", "peak MiB", "epochs")
    return Table(rows, (*headers, "trained on"))


def choices(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of what was tried on the CNN."""
    tried = [
        (row["backend"], trial["name"], _run(trial["seconds"]), trial["verdict"])
        for row in rows
        if row["way"] == "choose" and "error" not in row
        for trial in row["trials"]
    ]
    return Table(tried, ("backend", "change", "seconds a run", "verdict"))


def _run(seconds: list[float] | None) -> str:
    return f"{statistics.median(seconds):.3g}" if seconds else ""


def _finish(rows: list[dict[str, Any]], accuracy: bool, interrupted: bool) -> None:
    """Write the report and print it; after an interrupt before the first figure there is none."""
    if not rows:
        print("Interrupted before anything was measured.")
        return
    report = {
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "interrupted": interrupted,
        "machine": _machine(),
        "versions": _versions(),
        "processes": rows,
    }
    page, data = (BUILD / f"bench{'-accuracy' * accuracy}.{kind}" for kind in ("md", "json"))
    write(data, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    write(page, _text(report, accuracy, _piped))
    print("\n" + _text(report, accuracy, str))
    print(f"Report: {short(page)}  Every figure: {short(data)}")


def _piped(table: Table) -> str:
    from tabulate import tabulate

    return tabulate(table.rows, table.headers, "pipe", disable_numparse=True)


def _text(report: dict[str, Any], accuracy: bool, drawn: Callable[[Table], str]) -> str:
    """Return the report as Markdown, its tables as `drawn` draws them."""
    rows = report["processes"]
    summaries = summarise(rows)
    tables = (accuracies,) if accuracy else (figures, ratios)
    title = "Test accuracy of the lessons' training" if accuracy else "The lessons' training against the articles' code"
    parts = [f"# {title}", "\n".join(f"- {line}" for line in _lines(report, summaries, accuracy))]
    parts += ["The run was interrupted: what follows is what had been measured."] if report["interrupted"] else []
    parts += [drawn(table) for table in (made(summaries) for made in tables) if table.rows]
    if (tried := choices(rows)).rows:
        parts += ["## What the lesson's CNN kept", drawn(tried)]
        said = [
            f"- {row['backend']}: {_kept(row)}. Choosing took {row['choosing_seconds']:.0f} s and "
            f"{row['peak_mib']:,.0f} MiB at most, in a process of its own: no figure above holds them."
            for row in rows
            if row["way"] == "choose" and "error" not in row
        ]
        parts.append("\n".join(said))
    if failed := [_failure(row) for row in rows if "error" in row]:
        parts += ["## What failed", *(f"```\n{failure}\n```" for failure in failed)]
    return "\n\n".join(parts) + "\n"


def _lines(report: dict[str, Any], summaries: Sequence[Summary], accuracy: bool) -> list[str]:
    named = dict.fromkeys(one.epoch.device for one in summaries)
    datasets = dict.fromkeys(row["dataset"] for row in report["processes"] if "dataset" in row)
    lines = [
        f"Device: {', '.join(named) or 'none told'}. Dataset: {', '.join(datasets) or 'none told'}.",
        f"Machine: {report['machine']}. Finished: {report['finished']}.",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in report["versions"].items()) + ".",
        "Ours is what the lessons do: pixels as uint8, labels as numbers, and what pays here.",
    ]
    if accuracy:
        return lines
    return [
        *lines,
        "Article is the articles' code run as it is on Keras 3: float32 NumPy arrays and one-hot labels into `fit`.",
        "Both ways take turns, each training in a process of its own, nothing beside it.",
        "Seconds an epoch: the median of all epochs but the first of each process, from the end of one to the end of "
        "the next, validation included. Spread: the distance between their quartiles; a speed is only claimed where "
        "the gap is larger.",
        "Whole fit, import and peak (resident memory of the process, from its start): the median of the processes. "
        "Test accuracy: their median, after the epochs given.",
    ]


def _machine() -> str:
    import psutil

    memory = f"{psutil.virtual_memory().total / 2**30:.1f} GiB of memory"
    return f"{cpu_name()}, {psutil.cpu_count()} logical cores, {memory}, {platform.system()}"


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for distribution in PACKAGES:
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
