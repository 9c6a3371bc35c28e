"""The articles' two networks, which lessons 04 and 05 build by hand, and the trained CNN that later lessons take up."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import data, training
from helpers.lessons import lesson_05

if TYPE_CHECKING:
    import keras
    import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "data" / "models"
CNN, WEIGHTS, FACTS = "cnn", ".weights.h5", ".json"
SMALL = 6_400  # images with which `trained_cnn` trains a network of its own: a few seconds on two cores


def mlp(dropout: float = 0.2) -> keras.Model:
    """Return article A's network, 669,706 parameters: images of shape (784,) in, ten probabilities out.

    It takes pixels as they are stored, uint8 from 0 to 255, and scales them itself. Lesson 04 builds it.

    Args:
        dropout: the share of values that training switches off; 0 makes ways of training comparable to the last digit.
    """
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((784,), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Dense(512, activation="relu"),
            layers.Dropout(dropout),
            layers.Dense(512, activation="relu"),
            layers.Dropout(dropout),
            layers.Dense(10, activation="softmax"),
        ]
    )


def plain_mlp(learning_rate: float) -> keras.Model:
    """Return article A's network without dropout, compiled with the simplest optimizer (SGD).

    Nothing in its training is random, so lesson 08 can hold the losses of several ways of training against each other.

    Args:
        learning_rate: of SGD; each weight moves by it times its gradient.
    """
    from keras.optimizers import SGD

    model = mlp(dropout=0)
    model.compile(SGD(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def cnn(
    uint8: bool = True, precision: str = "float32", channels: str = "last", matrix: bool = False, four: bool = False
) -> keras.Model:
    """Return article C's network, 1,199,882 parameters: images in, ten probabilities out. Lesson 05 builds it.

    All its forms compute the same from the same weights, except that with the channels first the weights of the dense
    layer stand in another order.

    Args:
        uint8: take pixels as they are stored, from 0 to 255, and scale them on the device; else float32 from 0 to 1.
        precision: Keras' dtype policy: "float32", "mixed_bfloat16" or "mixed_float16".
        channels: "last" for images of shape (28, 28, 1), "first" for (1, 28, 28).
        matrix: compute the convolutions as matrix products.
        four: compute the pooling as the largest of four images.

    Raises:
        WorkshopError: `matrix` or `four` with the channels first.
    """
    import keras
    from keras import layers

    order = f"channels_{channels}"
    convolution, pooling = layers.Conv2D, layers.MaxPooling2D
    if matrix:
        convolution = lesson_05.im2col_convolution()
    if four:
        pooling = lesson_05.slice_max_pooling()
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy(precision)
        return keras.Sequential(
            [
                keras.Input((28, 28, 1) if channels == "last" else (1, 28, 28), dtype="uint8" if uint8 else "float32"),
                *([layers.Rescaling(1 / 255)] if uint8 else []),
                convolution(32, 3, activation="relu", data_format=order),
                convolution(64, 3, activation="relu", data_format=order),
                pooling(2, data_format=order),
                layers.Dropout(0.25),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dropout(0.5),
                layers.Dense(10, activation="softmax", dtype="float32"),  # a sum of ten that bfloat16 would round away
            ]
        )
    finally:
        keras.config.set_dtype_policy(policy)


# ---------------------------------------------------------------------------------------------- the trained CNN


def save_cnn(model: keras.Model, accuracy: float, epochs: int, images: int, dataset: str) -> str:
    """Keep a trained CNN for later lessons, unless a longer training is already kept.

    Args:
        model: one of the forms of `cnn`.
        accuracy: on the test images, from 0 to 1.
        epochs: how often it saw the images.
        images: how many images it saw in an epoch.
        dataset: their name.

    Returns:
        One sentence for people: what was kept, and where, or why not.
    """
    facts = {"accuracy": float(accuracy), "epochs": int(epochs), "images": int(images), "dataset": dataset}
    plain = cnn()
    before = _load(plain)
    if before and _worth(before) > _worth(facts):
        return f"Not kept: there is {_in_words(before)}, which was trained for longer."
    try:
        plain.set_weights(_weights_with_channels_last(model))
    except (ValueError, IndexError):
        return "Not kept: this is not lesson 05's network. Later lessons will train a small one themselves."
    marks = {suffix: FOLDER / f".{CNN}-{os.getpid()}{suffix}" for suffix in (WEIGHTS, FACTS)}
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        plain.save_weights(marks[WEIGHTS])
        marks[FACTS].write_text(json.dumps(facts) + "\n", encoding="utf-8")
        for suffix, temporary in marks.items():
            temporary.replace(FOLDER / (CNN + suffix))
    except OSError as error:
        return f"Not kept: {error.strerror or _first_line(error)}. Later lessons will train a small one themselves."
    finally:
        for temporary in marks.values():
            with contextlib.suppress(OSError):
                temporary.unlink()
    return f"Kept for later lessons in data/models: {_in_words(facts)}."


def trained_cnn() -> tuple[keras.Model, str]:
    """Return the CNN that lesson 05 kept, or else a small one that is trained here, and a sentence on which it is.

    It is compiled, so that it can be evaluated and trained further.
    """
    model = cnn()
    facts = _load(model)
    if facts is None:
        model = cnn()  # a damaged file may have filled a part of the first
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    if facts:
        return model, f"From data/models: {_in_words(facts)}."
    mnist = data.load_mnist()
    images = min(SMALL, len(mnist.x_train))
    model.fit(
        mnist.x_train[:images, :, :, None], mnist.y_train[:images], batch_size=64, verbose=0,
        callbacks=[training.progress("a small CNN")],
    )  # fmt: skip
    _, accuracy = model.evaluate(mnist.x_test[..., None], mnist.y_test, batch_size=500, verbose=0)
    facts = {"accuracy": accuracy, "epochs": 1, "images": images, "dataset": mnist.name}
    return model, f"Trained here, for want of one from lesson 05: {_in_words(facts)}."


def _weights_with_channels_last(model: keras.Model) -> list[np.ndarray]:
    """The weights of a form of `cnn` as the plain form has them: the first dense layer reads its images in an order."""
    weights = model.get_weights()
    if model.input_shape[1:] == (1, 28, 28):
        weights[4] = weights[4].reshape(64, 12, 12, -1).transpose(1, 2, 0, 3).reshape(weights[4].shape)
    return weights


def _load(model: keras.Model) -> dict | None:
    """Give a CNN the weights that are kept, and return what is known of them; None if there are none to read."""
    try:
        facts = json.loads((FOLDER / (CNN + FACTS)).read_text(encoding="utf-8"))
        _worth(facts), _in_words(facts)
        model.load_weights(FOLDER / (CNN + WEIGHTS))
        return facts
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # json, h5py and Keras raise many kinds, and a lesson goes on after each
        print(f"The CNN in data/models cannot be read ({_first_line(error)}). Lesson 05 makes it anew.")
        return None


def _worth(facts: dict) -> tuple[bool, int]:
    """Order trainings: on MNIST before any other, then by how many images were shown."""
    return facts["dataset"] == "MNIST", int(facts["epochs"]) * int(facts["images"])


def _in_words(facts: dict) -> str:
    epochs = f"{facts['epochs']} epoch{'s' * (facts['epochs'] != 1)}"
    return (
        f"a CNN with {100 * facts['accuracy']:.2f} % on the test images of {facts['dataset']} "
        f"after {epochs} of {facts['images']:,} images"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
