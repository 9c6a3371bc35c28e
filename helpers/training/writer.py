"""The small transformer of lesson 16b, which writes a digit as 49 words of a codebook: built and trained by Keras.

A word is one of 64 pieces of 4 x 4 pixels; the first word of a digit is its label. The stored codebook and weights
were made by `python -m helpers.training.writer`, which makes them anew.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers import ROOT, training
from helpers.errors import WorkshopError
from helpers.training import data, transformer
from helpers.training.transformer import PIECES, SIDE, WIDTH

if TYPE_CHECKING:
    import keras


WORDS = 64  # of the codebook; word 0 is blank, and the words after it have more and more ink
VOCABULARY = WORDS + 10  # the words, then the labels of the digits 0 to 9
HIDDEN = 256
STORED = ROOT / "data" / "writer.npz"  # the codebook as uint8, weights as float16, and the loss on test images
ROUNDS = 30  # of k-means
LOSS = "loss"  # of the stored weights, under this name


# ---------------------------------------------------------------------------------------------- words


def make_codebook(images: np.ndarray, seed: int) -> np.ndarray:
    """Return the words: a blank one, and the means that k-means finds of the pieces with ink, from light to dark.

    Args:
        images: uint8 of shape (m, 28, 28).
        seed: of the pieces that k-means begins with.

    Returns:
        uint8 of shape (64, 16), the pixels of each word row by row.
    """
    pieces = transformer.cut(images).reshape(-1, SIDE * SIDE)
    pieces = np.unique(pieces[pieces.any(axis=1)], axis=0)
    means = np.random.default_rng(seed).choice(pieces, WORDS - 1, replace=False)
    for _ in range(ROUNDS):
        nearest = find_nearest(pieces, means)
        counts = np.bincount(nearest, minlength=len(means))
        sums = np.stack([np.bincount(nearest, column, len(means)) for column in pieces.T], axis=1)
        means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], means).astype(np.float32)
    ordered = means[np.argsort(means.sum(axis=1))]
    return np.round(255 * np.concatenate([np.zeros((1, SIDE * SIDE)), ordered])).astype(np.uint8)


def find_nearest(pieces: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return for each piece the word that differs least from it, by the sum of squares.

    Args:
        pieces: float32 of shape (m, 16).
        words: float32 of shape (k, 16).
    """
    half = (words * words).sum(axis=1) / 2
    parts = np.array_split(pieces, -(-len(pieces) // 100_000))
    return np.concatenate([(part @ words.T - half).argmax(axis=1) for part in parts])


def spell(images: np.ndarray, codebook: np.ndarray) -> np.ndarray:
    """Return the words of images, int32 of shape (m, 49).

    Args:
        images: uint8 of shape (m, 28, 28).
        codebook: uint8 of shape (64, 16).
    """
    pieces = transformer.cut(images)
    words = find_nearest(pieces.reshape(-1, SIDE * SIDE), codebook.astype(np.float32) / 255)
    return words.reshape(-1, PIECES).astype(np.int32)


def draw(words: np.ndarray, codebook: np.ndarray) -> np.ndarray:
    """Return the images that words show, uint8 of shape (m, 28, 28).

    Args:
        words: of shape (m, 49).
        codebook: uint8 of shape (64, 16).
    """
    side = 28 // SIDE
    squares = codebook[words].reshape(-1, side, side, SIDE, SIDE)
    return squares.swapaxes(2, 3).reshape(-1, 28, 28)


def begin(labels: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return what the network gets to predict the words: the label's word, then all words but the last one.

    Args:
        labels: the digit of each image, of shape (m,).
        words: of shape (m, 49).
    """
    return np.concatenate([WORDS + labels[:, None].astype(np.int32), words[:, :-1]], axis=1)


# ---------------------------------------------------------------------------------------------- by Keras


def build() -> keras.Model:
    """Return the network: 49 words in, from the label's on; for each the 64 scores of the word that comes next."""
    from keras import Input, Model, initializers, layers, ops

    words = Input((PIECES,), dtype="int32")
    x = layers.EinsumDense(
        "bnc,cw->bnw",
        (PIECES, WIDTH),
        bias_axes="nw",
        kernel_initializer=initializers.RandomNormal(stddev=0.3),
        bias_initializer=initializers.RandomNormal(stddev=0.3),
        name="words",
    )(ops.one_hot(words, VOCABULARY))
    x = transformer.add_layers(x, HIDDEN, is_causal=True)
    return Model(words, layers.Dense(WORDS, name="scores")(x))


def train(model: keras.Model, labels: np.ndarray, words: np.ndarray, epochs: int) -> None:
    """Train the network to predict each word from those before it, and show one line while it trains.

    Args:
        model: as `build` returns it.
        labels: the digit of each image, of shape (m,).
        words: of shape (m, 49).
        epochs: how often it sees each image.
    """
    import keras

    rate = keras.optimizers.schedules.CosineDecay(transformer.RATE, epochs * (len(words) // transformer.BATCH))
    model.compile(keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with training.interruptible(model):
        line = training.progress("the writer of digits")
        model.fit(begin(labels, words), words, batch_size=transformer.BATCH, epochs=epochs, verbose=0, callbacks=[line])


def load_writer(path: Path = STORED) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the stored codebook, uint8 of shape (64, 16), and the weights by name, float32; print their data."""
    with np.load(path) as kept:
        print("stored weights, trained on MNIST before")
        weights = {name: kept[name].astype(np.float32) for name in kept.files if name not in ("codebook", LOSS)}
        return kept["codebook"], weights


# ---------------------------------------------------------------------------------------------- the stored weights


def main() -> None:
    """Make the codebook, train on MNIST, find the loss of the weights as float16 on test images, and store all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=STORED)
    arguments = parser.parse_args()
    print(training.start())
    mnist = data.load_mnist()
    if mnist.name == data.STAND_IN:
        raise WorkshopError("There is no MNIST here.", "The stored weights are those of MNIST.", "See data/README.md.")
    start = time.perf_counter()
    codebook = make_codebook(mnist.x_train[:10_000], arguments.seed)
    words, tested = (spell(images, codebook) for images in (mnist.x_train, mnist.x_test))
    print(f"codebook and words: {time.perf_counter() - start:.0f} s")
    training.seed(arguments.seed)
    model = build()
    train(model, mnist.y_train, words, arguments.epochs)
    kept = {name: array.astype(np.float16) for name, array in transformer.read_weights(model).items()}
    transformer.write_weights(model, {name: array.astype(np.float32) for name, array in kept.items()})
    loss = model.evaluate(begin(mnist.y_test, tested), tested, batch_size=500, verbose=0)
    np.savez_compressed(arguments.output, allow_pickle=False, codebook=codebook, loss=loss, **kept)
    size = arguments.output.stat().st_size
    print(f"{model.count_params():,} weights; loss on test images {loss:.3f}; {size:,} bytes")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
