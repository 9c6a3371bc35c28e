"""Write the taster: one HTML file that computes on the GPU of whoever opens it, offline and without Python."""

from __future__ import annotations

import argparse
import base64
from pathlib import Path

from helpers import ROOT
from helpers.commands.files import short, write
from helpers.compute import data, processes

WEB = ROOT / "helpers" / "web"
WEIGHTS = WEB / "digits.npz"  # of a small network that reads digits, float16, and what it is worth
STORED = ROOT / "docs" / "taster.html"  # as this command writes it
EPOCHS = 14


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("--output", type=Path, default=STORED, metavar="FILE", help=f"default: {short(STORED)}")
    parser.add_argument("--train", action="store_true", help="for maintainers: train its network anew, some minutes")


def run(args: argparse.Namespace) -> int:
    """Write the page, after training its network where that was asked for."""
    if args.train:
        train(WEIGHTS)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write(args.output, html())
    size = args.output.stat().st_size / 1e3
    print(f"{short(args.output)}: {size:.0f} KB. Open it in a browser: a double click will do.")
    return 0


def html() -> str:
    """Return the page: its text, style, scripts, kernels and weights, all in one."""
    import json

    import numpy as np

    with np.load(WEIGHTS) as kept:
        arrays = [kept[f"arr_{number}"] for number in range(len(kept.files) - 2)]
        right, images = int(kept["right"]), int(kept["images"])
    facts = {
        "kernels": {file.stem: file.read_text(encoding="utf-8") for file in sorted(WEB.glob("*.wgsl"))},
        "shapes": [array.shape for array in arrays],
        "weights": base64.b64encode(b"".join(array.astype("<f2").tobytes() for array in arrays)).decode(),
    }
    page = (WEB / "taster.html").read_text(encoding="utf-8")
    parts = {
        "STYLE": (WEB / "digit.css").read_text(encoding="utf-8"),
        "SCRIPT": "\n".join((WEB / f"{name}.js").read_text(encoding="utf-8") for name in ("gpu", "digit", "taster")),
        "FACTS": json.dumps(facts).replace("</", "<\\/"),
        "RIGHT": f"{right:,}",
        "IMAGES": f"{images:,}",
        "SIZES": " - ".join(str(size) for size in [784, *(array.shape[-1] for array in arrays[1::2])]),
    }
    for name, text in parts.items():
        page = page.replace(f"@@{name}@@", text)
    return page


def train(file: Path) -> None:
    """Train the taster's network on MNIST, turned, moved and scaled at random, and keep its weights as float16."""
    import numpy as np

    mnist = data.load_mnist()
    given = {
        "images": mnist.x_train[..., None],
        "labels": mnist.y_train,
        "epochs": EPOCHS,
    }
    done = processes.run(_train, seconds=3600, variables={"KERAS_BACKEND": "tensorflow"}, arguments=given).result
    half = [array.astype("float16") for array in done]
    right = int((answers([array.astype("float32") for array in half], mnist.x_test).argmax(1) == mnist.y_test).sum())
    np.savez_compressed(file, *half, right=right, images=len(mnist.x_test))
    print(f"{short(file)}: right on {right:,} of {len(mnist.x_test):,} test images")


def answers(weights: list, images: object) -> object:
    """Return what a network of dense layers says, computed by NumPy: probabilities (n, 10), float32.

    Args:
        weights: (in, out) and (out,) of each layer in turn; ReLU after all but the last, softmax after that.
        images: uint8 (n, 28, 28) or (n, 784).
    """
    import numpy as np

    values = images.reshape(len(images), -1).astype("float32") / 255
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for number, (matrix, bias) in enumerate(layers):
        values = values @ matrix + bias
        values = values if number == len(layers) - 1 else np.maximum(values, 0)
    grown = np.exp(values - values.max(1, keepdims=True))
    return grown / grown.sum(1, keepdims=True)


def _train(images: object, labels: object, epochs: int) -> list:
    from helpers.compute import training

    training.start()
    import keras
    from keras import Input, Sequential, layers

    training.seed(0)
    drawn = [
        layers.RandomRotation(0.04, fill_mode="constant"),
        layers.RandomTranslation(0.06, 0.06, fill_mode="constant"),
        layers.RandomZoom((-0.12, 0.12), (-0.2, 0.2), fill_mode="constant"),
    ]
    dense = [layers.Dense(128, activation="relu"), layers.Dense(64, activation="relu")]
    last = layers.Dense(10, activation="softmax")
    model = Sequential([Input((28, 28, 1)), *drawn, layers.Rescaling(1 / 255), layers.Flatten(), *dense, last])
    steps = len(images) // 128 * epochs
    rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images, labels, batch_size=128, epochs=epochs, verbose=0)
    return [array for layer in (*dense, last) for array in layer.get_weights()]
