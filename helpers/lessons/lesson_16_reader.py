"""Where lesson 16's transformer looks while it reads digits, as a picture, and what it misses of what is hidden."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.lessons.lesson_04 import compute_interval
from helpers.measure.plots import figure, show
from helpers.measure.tables import Table
from helpers.training import transformer


def draw_looks(images: np.ndarray, looked: np.ndarray, said: np.ndarray, title: str) -> None:
    """Draw each digit, and over it how much of the attention each piece gets.

    Args:
        images: uint8, of shape (m, 28, 28).
        looked: the share of each piece, of shape (m, 49); those of an image add up to 1.
        said: the digit that the network reads in each image.
        title: the message of the figure.
    """
    columns, side = 4, 28 // transformer.SIDE
    rows = -(-len(images) // columns)
    most = 100 * looked.max()
    with figure(7.5, 1.75 * rows + 0.6, title, nrows=rows, ncols=columns, squeeze=False) as (drawn, axes):
        for panel in axes.flat:
            panel.axis("off")
        for panel, image, shares, digit in zip(axes.flat, images, looked, said, strict=False):
            heat = panel.imshow(
                100 * shares.reshape(side, side), cmap="cividis", vmin=0, vmax=most, extent=(0, 28, 28, 0)
            )
            panel.contour(np.arange(28) + 0.5, np.arange(28) + 0.5, image, levels=[100], colors="white", linewidths=1.5)
            panel.set_title(f"read as {digit}", fontsize=10, loc="center")
        drawn.colorbar(heat, ax=axes, shrink=0.8, label="% of the attention")
    strongest = ", ".join(f"{digit}: {100 * shares.max():.0f} %" for digit, shares in zip(said, looked, strict=True))
    show(drawn, f"{title}. The share of the piece that gets most: {strongest}.")


def tabulate_hidden(
    looked: np.ndarray, ink: np.ndarray, most: np.ndarray, count_changed: Callable[[np.ndarray], int]
) -> Table:
    """Return how many answers change without a piece, and whether the given piece changes more of them than chance.

    Args:
        looked: the share of each piece, of shape (m, 49).
        ink: whether it holds ink, of the same shape; two pieces of each image do.
        most: a piece of each image, of shape (m,).
        count_changed: counts the answers that change if such pieces are hidden.
    """
    hidden, m = {"the piece with ink that gets most": most}, len(most)
    for seed in range(1, 6):
        drawn = np.where(ink, np.random.default_rng(seed).random(ink.shape), -1)
        drawn[np.arange(m), most] = -1
        hidden[f"another with ink, by chance ({seed})"] = drawn.argmax(axis=1)
    counts = {way: count_changed(pieces) for way, pieces in hidden.items()}
    shares = [100 * looked[np.arange(m), pieces].mean() for pieces in hidden.values()]
    rows = [(way, f"{share:.2g} %", f"{n:,} of {m:,}") for (way, n), share in zip(counts.items(), shares, strict=True)]
    first, *chance = counts.values()
    low, high = (round(m * end) for end in compute_interval(first, m))
    below = [
        f"First row, 95 % interval (lesson 04b): {max(low, 0):,} to {high:,}. By chance at most {max(chance):,}.",
        f"More than by chance: {'yes' if low > max(chance) else 'no claim'}.",
    ]
    return Table(rows, ("hidden in each image", "its mean share", "answers that change"), below)
