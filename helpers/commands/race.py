"""Time the lessons' training against the articles' code, each training in a fresh process, the ways in turn.

The articles' way is their code run as it is: float32 arrays and one-hot labels into `fit`. The lessons' way hands over
bytes and numbers, 16 steps at once; im2col also computes lesson 05's two layers.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

from helpers import devices
from helpers.errors import WorkshopError
from helpers.measure import timing
from helpers.measure.tables import Table
from helpers.running import processes
from helpers.training import backends

WAYS = {"mlp": ("article", "lesson"), "cnn": ("article", "lesson", "im2col")}
SECONDS = 3600  # against hanging, for each training
COLUMNS = ("backend, network", "way", "s an epoch", "middle half", "accuracy", "trained on", "device")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    there = [name for name in backends.BACKENDS if devices.is_installed(name)]
    parser.add_argument("--backend", action="append", choices=there, help="repeat it for several")
    parser.add_argument("--network", action="append", choices=WAYS, help="both by default")
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="processes for each way (3); fewer than 13 need a larger gap"
    )
    parser.add_argument(
        "--epochs", type=int, default=3, metavar="N", help="of each training, 2 or more: the first compiles (3)"
    )
    parser.add_argument("--images", type=int, metavar="N", help="train and test with so many at most; for trying out")


def run(args: argparse.Namespace) -> int:
    """Measure what `args` asks for and print it."""
    from helpers.training import data

    if args.epochs < 2:
        raise WorkshopError("There is nothing to compare.", "The first epoch compiles.", "Ask for --epochs 2 or more.")
    data.load_mnist()  # a download happens before anything is measured, and a wrong ANYGPU_MNIST stops it all
    backends_asked = args.backend or [name for name in ("tensorflow", "jax") if devices.is_installed(name)]
    results: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for backend, network in itertools.product(backends_asked, args.network or WAYS):
        for seed, way in itertools.product(range(args.rounds), WAYS[network]):
            variables = {backends.VARIABLE: backend}
            if way == "article":
                variables["GLIBC_TUNABLES"] = None  # the articles' code knows nothing of large pages
            given = {"network": network, "way": way, "seed": seed, "epochs": args.epochs, "images": args.images}
            result = processes.run(train, seconds=SECONDS, variables=variables, arguments=given).result
            results.setdefault((backend, network, way), []).append(result)
            print(f"{backend} {network} {way}, seed {seed}: {sum(result['seconds']):.0f} s", flush=True)
    report(results)
    return 0


def report(results: dict[tuple[str, str, str], list[dict[str, Any]]]) -> None:
    """Print all that was measured, and how fast each way is against the articles'; the first epochs count nowhere.

    A process gives one time, the median of its epochs: they are no runs of their own, whatever slows it slows them all.
    """
    rows, measured = [], {}
    for (backend, network, way), runs in results.items():
        seconds = tuple(statistics.median(run["seconds"][1:]) for run in runs)
        measured[backend, network, way] = timing.Measurement(way, runs[0]["device"], seconds)
        low, high = measured[backend, network, way].quartiles
        accuracy = statistics.median(run["accuracy"] for run in runs)
        figures = (f"{statistics.median(seconds):.3g}", f"{low:.3g} to {high:.3g}", f"{accuracy:.2%}")
        rows.append((f"{backend} {network}", way, *figures, runs[0]["trained_on"], runs[0]["device"]))
    print(f"\n{Table(rows, COLUMNS)}\n")
    for (backend, network, way), measurement in measured.items():
        article = measured.get((backend, network, "article"))
        if article and way != "article":
            print(f"{backend} {network}, an epoch: {timing.compare(article, measurement)}")


def train(network: str, way: str, seed: int, epochs: int, images: int | None) -> dict[str, Any]:
    """Train once, in this process; return the seconds of each epoch, validation included, and what they are for."""
    import contextlib
    import io
    import itertools
    import time

    from helpers import devices, training
    from helpers.lessons import lesson_05
    from helpers.training import data, models

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
    ends = [time.perf_counter()]
    clock = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    with contextlib.redirect_stdout(io.StringIO()):
        history = model.fit(
            x_train, y_train, batch_size=128, epochs=epochs, validation_data=(x_test, y_test), callbacks=[clock],
            verbose=int(way == "article"),
        )  # fmt: skip
    return {
        "seconds": [end - start for start, end in itertools.pairwise(ends)],
        "accuracy": float(history.history["val_accuracy"][-1]),
        "trained_on": f"{epochs} epochs of {len(x_train):,} images, {mnist.name}",
        "device": str(devices.find_default_device(keras.backend.backend())),
        "parameters": model.count_params(),
    }
