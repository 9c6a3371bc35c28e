"""One training in a fresh process, timed: the articles' code run as it is, or what the lessons do.

    python -m helpers.maintain.trials WAY NETWORK EPOCHS SEED

prints one line of JSON; `python -m helpers bench` starts such processes one after another and compares them. Time and
memory of a training can only be told apart from what ran before it in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers import data, devices, models, timing, training
from helpers.errors import WorkshopError
from helpers.lessons import lesson_05

if TYPE_CHECKING:
    import keras

BATCH = 128
STEPS = 16  # steps in one execution, and in one run of a trial
TRIALS = 5  # counted runs of a form
CANDIDATES: dict[str, dict[str, object]] = {  # lesson 05's changes, in its order, on top of pixels as bytes
    "XLA": {"jit_compile": True},
    "channels first": {"channels": "first"},
    "bfloat16": {"precision": "mixed_bfloat16"},
    f"{STEPS} steps at once": {"steps_per_execution": STEPS},
    "convolution as a matrix product": {"matrix": True},
    "pooling as the largest of four": {"four": True},
}

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # images and labels to train with, then to test with
Options = dict[str, object]


# ---------------------------------------------------------------------------------------------- the articles' code


def article_mlp(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> tuple:
    """Return article A's compiled network and its float32 images and one-hot labels, as its code makes them."""
    import keras
    from keras import layers

    x_train = x_train.reshape(-1, 784).astype("float32")
    x_test = x_test.reshape(-1, 784).astype("float32")
    x_train /= 255
    x_test /= 255
    y_train = keras.utils.to_categorical(y_train, 10)
    y_test = keras.utils.to_categorical(y_test, 10)
    model = keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.RMSprop(), metrics=["accuracy"])
    return model, (x_train, y_train, x_test, y_test)


def article_cnn(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> tuple:
    """Return article C's compiled network and its float32 images and one-hot labels, as its code makes them."""
    import keras
    from keras import layers

    shape = (1, 28, 28) if keras.config.image_data_format() == "channels_first" else (28, 28, 1)
    x_train = x_train.reshape(-1, *shape).astype("float32")
    x_test = x_test.reshape(-1, *shape).astype("float32")
    x_train /= 255
    x_test /= 255
    y_train = keras.utils.to_categorical(y_train, 10)
    y_test = keras.utils.to_categorical(y_test, 10)
    model = keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.Conv2D(64, (3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    adadelta = keras.optimizers.Adadelta(learning_rate=1.0)  # the default in the article's days; 0.001 now
    model.compile(loss="categorical_crossentropy", optimizer=adadelta, metrics=["accuracy"])
    return model, (x_train, y_train, x_test, y_test)


# ---------------------------------------------------------------------------------------------- what the lessons do


def our_mlp(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> tuple:
    """Return lesson 04's compiled network and its uint8 images and labels."""
    model = models.mlp()
    model.compile(
        loss="sparse_categorical_crossentropy", optimizer="rmsprop", metrics=["accuracy"],
        steps_per_execution=training.steps_at_once(),
    )  # fmt: skip
    return model, (x_train.reshape(-1, 784), y_train, x_test.reshape(-1, 784), y_test)


def our_cnn(
    x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, options: Options
) -> tuple:
    """Return lesson 05's compiled network and its images and labels, with the options that were kept."""
    import keras

    chosen = dict(options)
    compiling = {name: chosen.pop(name) for name in ("jit_compile", "steps_per_execution") if name in chosen}
    model = models.cnn(**chosen)
    shape = (-1, *model.input_shape[1:])
    adadelta = keras.optimizers.Adadelta(learning_rate=1.0)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=adadelta, metrics=["accuracy"], **compiling)
    return model, (x_train.reshape(shape), y_train, x_test.reshape(shape), y_test)


def choose(images: int | None = None) -> dict[str, object]:
    """Try the changes to the CNN's training on a few steps each, and return which of them pay here.

    Args:
        images: train with so many images at most.

    Returns:
        The options that were kept, every trial, the seconds of it all, and the peak memory of the process in MiB.
    """
    device = training.start()
    import keras

    mnist, _ = _load(images)
    few = (mnist.x_train[: STEPS * BATCH], mnist.y_train[: STEPS * BATCH], mnist.x_test[:1], mnist.y_test[:1])
    candidates = dict(CANDIDATES)
    if keras.backend.backend() != "tensorflow":
        candidates.pop("XLA", None)  # JAX always compiles, PyTorch has no XLA

    def measure(**options: object) -> timing.Measurement:
        training.seed(0)
        model, (x, y, _, _) = our_cnn(*few, options)
        return timing.measure(
            lambda: model.fit(x, y, batch_size=BATCH, verbose=0),
            device=device,
            label="a run",
            repeats=TRIALS,
            warmup=1,
        )

    began = time.perf_counter()
    kept, trials = lesson_05.greedy_ablation(measure, candidates)
    return {
        "kept": kept,
        "trials": [
            {"name": trial.name, "seconds": trial.run and list(trial.run.seconds), "verdict": trial.verdict}
            for trial in trials
        ],
        "choosing_seconds": time.perf_counter() - began,
        "device": device,
        "peak_mib": peak_mib(),
    }


# ---------------------------------------------------------------------------------------------- the measurement


def train(
    way: str, network: str, epochs: int, seed: int, images: int | None = None, options: Options | None = None
) -> dict[str, object]:
    """Train once and return what it took; meant for a process that does nothing else.

    Args:
        way: "article" or "ours".
        network: "mlp" or "cnn".
        epochs: how often the network sees the images.
        seed: of the initial weights, the dropout and the order of the images.
        images: train and test with so many images at most; None for all.
        options: of `our_cnn`, those that were kept.

    Returns:
        Seconds of the import, of the whole `fit` and of each epoch (from the end of the one before it, validation
        included; the first one compiles), the peak memory of the process in MiB, the test accuracy from 0 to 1, and
        what was trained on what and where.
    """
    began = time.perf_counter()
    if way == "ours":
        training.start()
    import keras

    imported = time.perf_counter() - began
    mnist, whole = _load(images)
    training.seed(seed)  # not keras.utils.set_random_seed, whose memory on JAX is none of the articles'
    dataset, *arrays = mnist[:5]
    del mnist
    if way == "ours":
        model, arrays = our_mlp(*arrays) if network == "mlp" else our_cnn(*arrays, options or {})
        shown = {"verbose": 0, "callbacks": [training.progress(network)]}
    else:
        model, arrays = article_mlp(*arrays) if network == "mlp" else article_cnn(*arrays)
        shown = {"verbose": 1, "callbacks": []}
    measured = _fit(model, arrays, epochs, shown)
    return {
        "import_seconds": imported,
        **measured,
        "parameters": model.count_params(),
        "loss": model.loss,
        "images": len(arrays[0]),
        "images_of": whole,
        "images_dtype": str(arrays[0].dtype),
        "dataset": dataset,
        "device": str(devices.in_this_process(keras.backend.backend())),
        "tunables": os.environ.get("GLIBC_TUNABLES", ""),
    }


def _fit(model: keras.Model, arrays: Arrays, epochs: int, shown: dict) -> dict[str, object]:
    """Train; return the seconds, the peak memory and the test accuracy after the last epoch."""
    import keras

    x_train, y_train, x_test, y_test = arrays
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    shown["callbacks"].append(clock)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        began = time.perf_counter()
        history = model.fit(
            x_train, y_train, batch_size=BATCH, epochs=epochs, validation_data=(x_test, y_test), **shown
        )
        ended = time.perf_counter()
    return {
        "fit_seconds": ended - began,
        "epoch_seconds": np.diff([began, *ends]).tolist(),
        "peak_mib": peak_mib(),
        "accuracy": float(history.history["val_accuracy"][-1]),
    }


def _load(images: int | None) -> tuple[data.Dataset, int]:
    """Return the dataset, or as many of its images as are asked for, and how many it has to train with."""
    mnist = data.load_mnist()
    some = {name: getattr(mnist, name)[:images] for name in data.EXPECTED}
    return mnist._replace(**some), len(mnist.x_train)


def peak_mib() -> float:
    """Return the most memory that this process has had resident so far, in MiB."""
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset / 2**20
    with contextlib.suppress(OSError, StopIteration):  # on Linux getrusage counts what the parent had as well
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 2**10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments ask for and print one line of JSON; after a failure it holds what, why and next."""
    parser = argparse.ArgumentParser(prog="python -m helpers.maintain.trials")
    parser.add_argument("way", choices=("article", "ours", "choose"))
    parser.add_argument("network", choices=("mlp", "cnn"))
    parser.add_argument("epochs", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--images", type=int, help="train and test with so many images at most")
    parser.add_argument("--options", type=json.loads, help="of the lesson's CNN, as JSON")
    args = parser.parse_args(arguments)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            if args.way == "choose":
                said = choose(args.images)
            else:
                said = train(args.way, args.network, args.epochs, args.seed, args.images, args.options)
    except Exception as error:
        traceback.print_exc()
        if not isinstance(error, WorkshopError):
            first = (str(error).strip().splitlines() or [""])[0]
            error = WorkshopError(f"{type(error).__name__}: {first}")
        said = {"error": [error.what, error.why, error.next]}
    print(json.dumps(said))
    return int("error" in said)


if __name__ == "__main__":
    sys.exit(main())
