"""The articles' two networks, which lessons 04 and 05 build by hand, for lessons that need one later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def build_mlp(dropout: float = 0.2) -> keras.Model:
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


def build_plain_mlp(learning_rate: float) -> keras.Model:
    """Return article A's network without dropout, compiled with the simplest optimizer (SGD).

    Nothing in its training is random, so lesson 08 can hold the losses of several ways of training against each other.

    Args:
        learning_rate: of SGD; each weight moves by it times its gradient.
    """
    from keras.optimizers import SGD

    model = build_mlp(dropout=0)
    model.compile(SGD(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def build_cnn() -> keras.Model:
    """Return article C's network, 1,199,882 parameters: images of shape (28, 28, 1) in, ten probabilities out.

    It takes pixels as they are stored, uint8 from 0 to 255, and scales them itself. Lesson 05 builds it.
    """
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((28, 28, 1), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
