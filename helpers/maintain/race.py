"""Time the lessons' training against the articles' code: interleaved, each in a fresh process, by pyperf.

`python -m helpers race` starts `python -m helpers.maintain.race NETWORK WAY SEED` again and again, and lets pyperf
compare what came of it. The articles' way is their code run as it is: float32 arrays and one-hot labels into `fit`.
The lessons' way hands over bytes and numbers, 16 steps at once; im2col also computes lesson 05's two layers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import time

import pyperf

from helpers import ROOT
from helpers.commands.files import short
from helpers.commands.run import BUILD
from helpers.compute import backends, devices
from helpers.errors import WorkshopError
from helpers.measure.tables import Table

FOLDER = BUILD / "race"
WAYS = {"mlp": ("article", "lesson"), "cnn": ("article", "lesson", "im2col")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    there = [name for name in backends.BACKENDS if devices.installed(name)]
    parser.add_argument("--backend", action="append", choices=there, help="repeat it for several")
    parser.add_argument("--network", action="append", choices=WAYS, help="both by default")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="processes for each way (3)")
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="of each training; the first compiles (3)")
    parser.add_argument("--images", type=int, metavar="N", help="train and test with so many at most; for trying out")


def run(args: argparse.Namespace) -> int:
    """Measure what `args` asks for and print it; return 0, 1 if a process failed, 130 if it was interrupted."""
    from helpers.compute import data

    data.load_mnist()  # a download happens before anything is measured, and a wrong ANYGPU_MNIST stops it all
    if args.epochs < 2 or args.rounds < 1:
        raise WorkshopError("There is nothing to compare.", "The first epoch compiles.", "Ask for --epochs 2 or more.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    status = 0
    try:
        for backend in args.backend or [name for name in ("tensorflow", "jax") if devices.installed(name)]:
            for network in args.network or WAYS:
                for seed in range(args.rounds):
                    for way in WAYS[network]:
                        status |= _process(backend, network, way, seed, args)
    except KeyboardInterrupt:
        status = 130
    _report()
    return status


def _process(backend: str, network: str, way: str, seed: int, args: argparse.Namespace) -> int:
    """Train once in a fresh process, whose result pyperf adds to the way's file; return 1 if it failed."""
    environment = {**os.environ, backends.VARIABLE: backend}
    if way == "article":
        environment.pop("GLIBC_TUNABLES", None)  # the articles' code knows nothing of large pages
    command = [sys.executable, "-m", "helpers.maintain.race", network, way, str(seed), "--quiet", "--copy-env"]
    command += ["--processes=1", "--loops=1", "--warmups=1", f"--values={args.epochs - 1}"]
    command += [f"--append={FOLDER / way}.json", *([f"--images={args.images}"] if args.images else [])]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    error = done.stderr.rpartition("Traceback")[0]  # of the training; what follows is pyperf's own
    result = f"failed:\n{error[-1500:]}" if done.returncode else f"{time.monotonic() - began:.0f} s"
    print(f"{backend} {network} {way}, seed {seed}: {result}", flush=True)
    return int(done.returncode != 0)


def _report() -> None:
    """Print all that was measured, and how fast each way is against the articles'."""
    rows = []
    for path in sorted(FOLDER.glob("*.json")):
        for one in pyperf.BenchmarkSuite.load(str(path)).get_benchmarks():
            every = [measured.get_metadata() for measured in one.get_runs()]
            seconds, about = one.get_values(), every[0]
            peak = statistics.median(one_run["mem_max_rss"] for one_run in every) / 2**20
            accuracy = statistics.median(one_run["accuracy"] for one_run in every)
            spread = f"{min(seconds):.3g} to {max(seconds):.3g}"
            figures = (f"{statistics.median(seconds):.3g}", spread, f"{peak:,.0f}", f"{100 * accuracy:.2f} %")
            rows.append((one.get_name(), path.stem, *figures, about["trained_on"], about["device"]))
    headers = ("backend, network", "way", "s an epoch", "from, to", "peak MiB", "accuracy", "trained on", "device")
    print(f"\n{Table(rows, headers)}\n\nEvery figure: {short(FOLDER)}", flush=True)
    for way in ("lesson", "im2col"):
        files = [FOLDER / f"{name}.json" for name in ("article", way)]
        if all(file.exists() for file in files):
            print(f"\nAn epoch, article against {way} (pyperf claims nothing that may be chance):", flush=True)
            subprocess.run([sys.executable, "-m", "pyperf", "compare_to", "--table", *map(str, files)], check=False)


# ---------------------------------------------------------------------------------------------- one process


def train(network: str, way: str, seed: int, epochs: int, images: int | None) -> tuple[list[float], dict[str, object]]:
    """Train once; return the seconds of each epoch, validation included, and the accuracy with what it is for."""
    from helpers.compute import data, models, training
    from helpers.lessons import lesson_05

    if way != "article":
        training.start()
    import keras

    mnist = data.load_mnist()
    training.seed(seed)
    model = models.mlp() if network == "mlp" else models.cnn()
    shape = model.input_shape[1:]
    x_train, x_test = (array[:images].reshape(-1, *shape) for array in (mnist.x_train, mnist.x_test))
    y_train, y_test = mnist.y_train[:images], mnist.y_test[:images]
    loss, how = "sparse_categorical_crossentropy", {"steps_per_execution": training.steps_at_once()}
    if way == "article":
        model = keras.Sequential([keras.Input(shape), *model.layers[1:]])  # the same, without the scaling
        x_train, x_test = x_train.astype("float32") / 255, x_test.astype("float32") / 255
        y_train, y_test = keras.utils.to_categorical(y_train, 10), keras.utils.to_categorical(y_test, 10)
        loss, how = "categorical_crossentropy", {}
    if way == "im2col":
        convolution, pooling = lesson_05.im2col_convolution(), lesson_05.slice_max_pooling()
        other = {keras.layers.Conv2D: convolution, keras.layers.MaxPooling2D: pooling}
        model = keras.models.clone_model(
            model, clone_function=lambda layer: other.get(type(layer), type(layer)).from_config(layer.get_config())
        )
    optimizer = keras.optimizers.RMSprop() if network == "mlp" else keras.optimizers.Adadelta(1.0)
    model.compile(optimizer, loss, metrics=["accuracy"], **how)
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        history = model.fit(
            x_train, y_train, batch_size=128, epochs=epochs, validation_data=(x_test, y_test), callbacks=[clock],
            verbose=int(way == "article"),
        )  # fmt: skip
    seconds = [end - start for start, end in zip([began, *ends], ends, strict=False)]
    return seconds, {
        "accuracy": float(history.history["val_accuracy"][-1]),
        "trained_on": f"{epochs} epochs of {len(x_train):,} images, {mnist.name}",
        "device": str(devices.in_this_process(keras.backend.backend())),
        "parameters": model.count_params(),
    }


def main() -> None:
    """Be pyperf's process, or the one that it starts: that one trains, and hands over the seconds of each epoch."""

    def hand_on(command: list[str], args: argparse.Namespace) -> None:
        command += [args.network, args.way, args.seed, *(["--images", args.images] if args.images else [])]

    runner = pyperf.Runner(program_args=("-m", "helpers.maintain.race"), add_cmdline_args=hand_on)
    for name in ("network", "way", "seed", "--images"):
        runner.argparser.add_argument(name)
    args = runner.parse_args()
    seconds: list[float] = []
    if args.worker:
        images = int(args.images) if args.images else None
        seconds, about = train(args.network, args.way, int(args.seed), args.warmups + args.values, images)
        runner.metadata |= about
    epochs = iter(seconds)
    runner.bench_time_func(f"{os.environ[backends.VARIABLE]} {args.network}", lambda loops: next(epochs))


if __name__ == "__main__":
    main()
