"""The small transformer of lesson 16, which reads a digit in 49 pieces: built by Keras, computed by NumPy.

`compute_layers` leaves the attention to a function, so that a learner's kernel can take its place. The stored weights
were made by `python -m helpers.training.transformer`, which makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers import ROOT, training
from helpers.errors import WorkshopError
from helpers.training import data

if TYPE_CHECKING:
    import keras

    # Takes queries, keys and values, float32 of shape (rows of heads, n, d), and returns the answers, of that shape.
    Attention = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    # By the name of a layer and of its part, such as "layer0_query.kernel"; float32.
    Weights = Mapping[str, np.ndarray]

SIDE = 4  # pixels of a piece's side
PIECES = (28 // SIDE) ** 2
WIDTH, HEADS, LAYERS, HIDDEN = 64, 4, 2, 128
DEPTH = WIDTH // HEADS  # numbers of a query, a key and a value
EPSILON = 1e-5  # what a normalization adds to the variance
STORED = ROOT / "data" / "reader.npz"  # weights as float16, and on how many test images they are right
BATCH, RATE = 64, 2e-3  # images of a step; of the optimizer Adam, falling to 0 as a cosine
EPOCHS = 6  # in which the stored weights were made


def cut(images: np.ndarray) -> np.ndarray:
    """Cut images, uint8 of shape (m, 28, 28), into pieces: float32 from 0 to 1, of shape (m, 49, 16)."""
    side = 28 // SIDE
    squares = images.reshape(-1, side, SIDE, side, SIDE).swapaxes(2, 3)
    return squares.reshape(-1, PIECES, SIDE * SIDE).astype(np.float32) / 255


# ---------------------------------------------------------------------------------------------- by Keras


def build() -> keras.Model:
    """Return the network: pieces of shape (49, 16) in, ten numbers out, of which the largest names the digit."""
    from keras import Input, Model, initializers, layers

    pieces = Input((PIECES, SIDE * SIDE))
    # The bias differs from piece to piece: it tells the network where a piece lies.
    x = layers.EinsumDense(
        "bnc,cw->bnw",
        (PIECES, WIDTH),
        bias_axes="nw",
        bias_initializer=initializers.RandomNormal(stddev=0.3),
        name="pieces",
    )(pieces)
    return Model(pieces, layers.Dense(10, name="digits")(layers.GlobalAveragePooling1D()(add_layers(x, HIDDEN))))


def add_layers(x: keras.KerasTensor, hidden: int, is_causal: bool = False) -> keras.KerasTensor:
    """Return rows of numbers after LAYERS layers of attention and a last normalization.

    Args:
        x: rows, of shape (m, 49, 64).
        hidden: numbers between the two dense layers after each attention.
        is_causal: whether row i sees the rows 0 to i alone.
    """
    from keras import layers

    for number in range(LAYERS):
        x = layers.add([x, _attend(_normalize_by_keras(x, f"layer{number}_before"), f"layer{number}_", is_causal)])
        between = layers.Dense(hidden, activation="relu", name=f"layer{number}_hidden")(
            _normalize_by_keras(x, f"layer{number}_between")
        )
        x = layers.add([x, layers.Dense(WIDTH, name=f"layer{number}_back")(between)])
    return _normalize_by_keras(x, "after")


def _normalize_by_keras(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    from keras import layers

    return layers.LayerNormalization(epsilon=EPSILON, name=name)(x)


def _attend(x: keras.KerasTensor, name: str, is_causal: bool) -> keras.KerasTensor:
    """Return what every piece gathers from all pieces, or from those up to itself, in HEADS heads side by side."""
    from keras import layers, ops

    query, key, value = (
        layers.EinsumDense("bnw,whd->bhnd", (HEADS, PIECES, DEPTH), bias_axes="hd", name=name + part)(x)
        for part in ("query", "key", "value")
    )
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) / DEPTH**0.5
    if is_causal:
        scores = scores + np.triu(np.full((PIECES, PIECES), -1e9, np.float32), 1)
    answers = ops.matmul(ops.softmax(scores), value)
    return layers.EinsumDense("bhnd,hdw->bnw", (PIECES, WIDTH), bias_axes="w", name=name + "mix")(answers)


def train(model: keras.Model, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Train the network, and show one line while it trains.

    Args:
        model: as `build` returns it.
        images: uint8 of shape (m, 28, 28).
        labels: the digit of each image.
        epochs: how often it sees each image.
    """
    import keras

    rate = keras.optimizers.schedules.CosineDecay(RATE, epochs * (len(images) // BATCH))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    with training.interruptible(model):
        line = training.progress("the reader of digits")
        model.fit(cut(images), labels, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[line])


def read_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the network's weights by name, as `compute_layers` takes them."""
    return {
        f"{layer.name}.{weight.name}": np.asarray(array)
        for layer in model.layers
        for weight, array in zip(layer.weights, layer.get_weights(), strict=True)
    }


def write_weights(model: keras.Model, weights: Weights) -> None:
    """Give the network these weights."""
    for layer in model.layers:
        layer.set_weights([weights[f"{layer.name}.{weight.name}"] for weight in layer.weights])


# ---------------------------------------------------------------------------------------------- by NumPy


def load_weights(path: Path = STORED) -> dict[str, np.ndarray]:
    """Return stored weights by name, float32, and print on how many of MNIST's test images they were right."""
    with np.load(path) as kept:
        print(
            f"stored weights, trained on MNIST before: right on {kept['right']:,} of its {kept['images']:,} test images"
        )
        return {name: kept[name].astype(np.float32) for name in kept.files if name not in ("right", "images")}


def place_pieces(weights: Weights, pieces: np.ndarray) -> np.ndarray:
    """Return a row of 64 numbers for each piece and its place: what the first layer gets, of shape (m, 49, 64)."""
    return pieces @ weights["pieces.kernel"] + weights["pieces.bias"]


def compute_layers(weights: Weights, x: np.ndarray, attend: Attention, count: int = LAYERS) -> np.ndarray:
    """Return rows of numbers after the first layers, of the shape of x, by NumPy.

    Args:
        weights: by name.
        x: rows, float32 of shape (m, 49, 64).
        attend: computes attention for queries, keys and values of shape (m x heads, 49, 16).
        count: of the layers.
    """
    for number in range(count):
        x = _finish_layer(weights, x, number, attend(*list_heads(weights, x, number)))
    return x


def _finish_layer(weights: Weights, x: np.ndarray, number: int, answers: np.ndarray) -> np.ndarray:
    """Return rows of numbers after a layer, from what it got, x, and what its attention answers, as `score_digits`."""
    x = x + _mix(weights, f"layer{number}_", answers)
    hidden = np.maximum(apply(normalize(x, weights, f"layer{number}_between"), weights, f"layer{number}_hidden"), 0)
    return x + apply(hidden, weights, f"layer{number}_back")


def score_digits(weights: Weights, x: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return what the network says of each image, of shape (m, 10), from what its last attention answers.

    Args:
        weights: by name.
        x: what the last layer gets, of shape (m, 49, 64).
        answers: of all heads of this layer, of shape (m x heads, 49, 16).
    """
    x = _finish_layer(weights, x, LAYERS - 1, answers)
    return apply(normalize(x, weights, "after").mean(axis=1), weights, "digits")


def list_heads(weights: Weights, x: np.ndarray, number: int) -> list[np.ndarray]:
    """Return the queries, keys and values of a layer, each float32 of shape (m x heads, 49, 16).

    Args:
        weights: by name.
        x: what the layer gets, of shape (m, 49, 64).
        number: of the layer, from 0.
    """
    normal = normalize(x, weights, f"layer{number}_before")
    heads = []
    for part in ("query", "key", "value"):
        kernel, bias = weights[f"layer{number}_{part}.kernel"], weights[f"layer{number}_{part}.bias"]
        each = (normal @ kernel.reshape(WIDTH, -1)).reshape(-1, PIECES, HEADS, DEPTH).swapaxes(1, 2) + bias
        heads.append(np.ascontiguousarray(each.reshape(-1, PIECES, DEPTH), np.float32))
    return heads


def _mix(weights: Weights, layer: str, answers: np.ndarray) -> np.ndarray:
    """Return the answers of all heads, of shape (m x heads, 49, 16), put together: of shape (m, 49, 64)."""
    rows = answers.reshape(-1, HEADS, PIECES, DEPTH).swapaxes(1, 2).reshape(-1, PIECES, WIDTH)
    return rows @ weights[f"{layer}mix.kernel"].reshape(WIDTH, WIDTH) + weights[f"{layer}mix.bias"]


def apply(x: np.ndarray, weights: Weights, layer: str) -> np.ndarray:
    """Return what a dense layer makes of rows of numbers."""
    return x @ weights[f"{layer}.kernel"] + weights[f"{layer}.bias"]


def normalize(x: np.ndarray, weights: Weights, layer: str) -> np.ndarray:
    """Return each row with the mean 0 and the variance 1, then scaled and shifted."""
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
    return normal * weights[f"{layer}.gamma"] + weights[f"{layer}.beta"]


# ---------------------------------------------------------------------------------------------- the stored weights


def main() -> None:
    """Train on MNIST, count the test images that the weights are right on as float16, and store them."""
    print(training.start())
    mnist = data.load_mnist()
    if mnist.name == data.STAND_IN:
        raise WorkshopError("There is no MNIST here.", "The stored weights are those of MNIST.", "See data/README.md.")
    training.seed(0)
    model = build()
    train(model, mnist.x_train, mnist.y_train, EPOCHS)
    kept = {name: array.astype(np.float16) for name, array in read_weights(model).items()}
    write_weights(model, {name: array.astype(np.float32) for name, array in kept.items()})
    digits = model.predict(cut(mnist.x_test), batch_size=500, verbose=0).argmax(1)
    right = int((digits == mnist.y_test).sum())
    np.savez_compressed(STORED, allow_pickle=False, **kept, right=right, images=len(digits))
    print(f"right on {right:,} of {len(digits):,} test images; {STORED.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
