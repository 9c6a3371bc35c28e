"""What lesson 16 looks at and hides of the digits that its transformer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.measure import tables, timing
from helpers.measure.plots import figure, show
from helpers.training import transformer

if TYPE_CHECKING:
    from helpers.training.transformer import Attention, Weights

HIDDEN = 10  # pieces
GROUPS = timing.ENOUGH  # of images, for a spread


def hide(pieces: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the pieces with the HIDDEN highest-ranked of each image turned to paper.

    Args:
        pieces: of shape (m, 49, 16).
        rank: a number for each piece, of shape (m, 49).
    """
    hidden = pieces.copy()
    np.put_along_axis(hidden, np.argsort(rank, axis=1)[:, -HIDDEN:, None], 0, axis=1)
    return hidden


def count_right(
    weights: Weights, pieces: np.ndarray, labels: np.ndarray, ranks: Mapping[str, np.ndarray], attend: Attention
) -> dict[str, np.ndarray]:
    """Read the images with nothing hidden, then with the highest-ranked pieces hidden.

    Args:
        weights: of the network.
        pieces: of shape (m, 49, 16).
        labels: what the images show.
        ranks: for each way to choose the pieces a number for each piece, of shape (m, 49).
        attend: computes attention.

    Returns:
        For each way, "nothing" first, the percentage right in each of GROUPS groups of images.
    """
    shown = {"nothing": pieces} | {name: hide(pieces, rank) for name, rank in ranks.items()}
    right = {}
    for name, each in shown.items():
        is_right = transformer.compute(weights, each, attend).argmax(1) == labels
        right[name] = 100 * np.array([group.mean() for group in np.array_split(is_right, GROUPS)])
    return right


def compare_hidden(right: Mapping[str, np.ndarray], name: str, other: str) -> str:
    """Return which of two ways to hide leaves fewer digits readable, if the spread of the groups of images allows.

    Args:
        right: what `count_right` returned.
        name, other: of its ways.
    """
    first, second = (timing.Measurement(each, "", tuple(right[each])) for each in (name, other))
    if not timing.is_clear(first, second):
        return f"{name} beside {other}: no claim"
    fewer = "fewer" if first.median < second.median else "more"
    return f"{name} beside {other}: {abs(first.median - second.median):.1f} points {fewer} right"


def tabulate_hidden(right: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]], images: int) -> tables.Table:
    """Return how many digits are right for each way to hide pieces, and what may be said of pairs of ways.

    Args:
        right: what `count_right` returned.
        pairs: of its ways.
        images: how many were read.
    """
    rows = []
    for name, groups in right.items():
        low, high = np.percentile(groups, [25, 75])
        rows.append((name, f"{np.median(groups):.1f} %", f"{low:.1f} to {high:.1f} %"))
    below = [f"{images:,} images in {GROUPS} groups.", *(compare_hidden(right, *pair) for pair in pairs)]
    return tables.Table(
        rows, (f"{HIDDEN} of {transformer.PIECES} pieces hidden", "right, median", "middle half"), below
    )


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
    with figure(7.5, 1.9 * rows + 1, title, nrows=rows, ncols=columns, squeeze=False) as (drawn, axes):
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
