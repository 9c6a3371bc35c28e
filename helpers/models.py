"""The articles' two networks, which lessons 04 and 05 build by hand, and the trained CNN that later lessons take up."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import data, training
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import keras

FOLDER = Path(__file__).resolve().parents[1] / "data" / "models"
CNN = "cnn"
SMALL = 6_400  # images with which `trained_cnn` trains a network of its own: a few seconds on two cores


def mlp() -> keras.Model:
    """Return article A's network, 669,706 parameters: images of shape (784,) in, ten probabilities out.

    It takes pixels as they are stored, uint8 from 0 to 255, and scales them itself. Lesson 04 builds it.
    """
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((784,), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )


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
    """
    import keras
    from keras import layers

    order = f"channels_{channels}"
    convolution, pooling = layers.Conv2D, layers.MaxPooling2D
    if matrix:
        convolution = matrix_convolution()
    if four:
        pooling = largest_of_four()
    keras.config.set_dtype_policy(precision)
    try:
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
        keras.config.set_dtype_policy("float32")


@functools.cache
def matrix_convolution() -> type[keras.layers.Conv2D]:
    """Return a Conv2D that computes one matrix product; a class that can only be made once Keras is there."""
    from keras import layers, ops

    class MatrixConv2D(layers.Conv2D):
        """A convolution with step 1 and without padding: the neighbours of each pixel in a row, times the filters."""

        def call(self, images: object) -> object:
            if self.data_format != "channels_last":
                raise WorkshopError("MatrixConv2D wants the channels last.", next="Build the network with them last.")
            (high, wide), (height, width) = self.kernel_size, images.shape[1:3]
            shifts = [(y, x) for y in range(high) for x in range(wide)]
            parts = [images[:, y : height - high + 1 + y, x : width - wide + 1 + x] for y, x in shifts]
            rows = ops.concatenate(parts, axis=-1)
            return self.activation(ops.matmul(rows, ops.reshape(self.kernel, (-1, self.filters))) + self.bias)

    return MatrixConv2D


@functools.cache
def largest_of_four() -> type[keras.layers.MaxPooling2D]:
    """Return a MaxPooling2D(2) that takes the larger of images; a class that can only be made once Keras is there."""
    from keras import layers, ops

    class LargestOfFour(layers.MaxPooling2D):
        """Max-pooling by 2: four images, each of every other row and column, and of them the largest."""

        def call(self, images: object) -> object:
            if self.data_format != "channels_last":
                raise WorkshopError("LargestOfFour wants the channels last.", next="Build the network with them last.")
            rows = ops.maximum(images[:, ::2], images[:, 1::2])
            return ops.maximum(rows[:, :, ::2], rows[:, :, 1::2])

    return LargestOfFour


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
    facts = {"accuracy": float(accuracy), "epochs": epochs, "images": images, "dataset": dataset}
    before = _facts()
    if before and (before["dataset"] == "MNIST", before["epochs"] * before["images"]) > (
        dataset == "MNIST",
        epochs * images,
    ):
        return f"Not kept: there is {_in_words(before)}, which was trained for longer."
    plain = cnn()
    plain.set_weights(model.get_weights())
    temporary = FOLDER / f".{CNN}-{os.getpid()}.weights.h5"
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        plain.save_weights(temporary)
        temporary.replace(FOLDER / f"{CNN}.weights.h5")
        (FOLDER / f"{CNN}.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    except OSError as error:
        return f"Not kept: {error.strerror or error}. Later lessons will train a small one themselves."
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return f"Kept for later lessons in data/models: {_in_words(facts)}."


def trained_cnn() -> tuple[keras.Model, str]:
    """Return the CNN that lesson 05 kept, or else a small one that is trained here, and a sentence on which it is."""
    model, facts = cnn(), _facts()
    if facts:
        try:
            model.load_weights(FOLDER / f"{CNN}.weights.h5")
            return model, f"From data/models: {_in_words(facts)}."
        except (OSError, ValueError) as error:
            print(f"The CNN in data/models cannot be read ({str(error).splitlines()[0]}). Lesson 05 makes it anew.")
    mnist = data.load_mnist()
    images = min(SMALL, len(mnist.x_train))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        mnist.x_train[:images, :, :, None], mnist.y_train[:images], batch_size=64, verbose=0,
        callbacks=[training.progress("a small CNN")],
    )  # fmt: skip
    _, accuracy = model.evaluate(mnist.x_test[..., None], mnist.y_test, batch_size=500, verbose=0)
    facts = {"accuracy": accuracy, "epochs": 1, "images": images, "dataset": mnist.name}
    return model, f"Trained here, because lesson 05 has kept none: {_in_words(facts)}."


def _facts() -> dict | None:
    """What is known of the CNN that is kept; None if there is none."""
    try:
        facts = json.loads((FOLDER / f"{CNN}.json").read_text(encoding="utf-8"))
        whole = {"accuracy", "epochs", "images", "dataset"} <= set(facts)
        return facts if whole and (FOLDER / f"{CNN}.weights.h5").is_file() else None
    except (OSError, ValueError, TypeError):
        return None


def _in_words(facts: dict) -> str:
    epochs = f"{facts['epochs']} epoch{'s' * (facts['epochs'] != 1)}"
    return (
        f"a CNN with {100 * facts['accuracy']:.2f} % on the test images of {facts['dataset']} "
        f"after {epochs} of {facts['images']:,} images"
    )
