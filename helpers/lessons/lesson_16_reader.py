"""What lesson 16 looks at and hides of the digits that its transformer reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.measure import timing
from helpers.measure.plots import figure, show
from helpers.measure.tables import Table
from helpers.training import transformer

if TYPE_CHECKING:
    from helpers.training.transformer import Attention, Weights

HIDDEN = 10  # pieces
GROUPS = timing.ENOUGH  # of images, for a spread


def choose_highest(rank: np.ndarray) -> np.ndarray:
    """Return which pieces of each image have the HIDDEN highest ranks, bool of shape (m, 49)."""
    chosen = np.zeros(rank.shape, bool)
    np.put_along_axis(chosen, np.argsort(rank, axis=1)[:, -HIDDEN:], True, axis=1)
    return chosen


def choose_by_chance(pieces: np.ndarray) -> np.ndarray:
    """Return HIDDEN of the pieces, of shape (m, 49, 16), by chance: the same in each call, bool of shape (m, 49)."""
    return choose_highest(np.random.default_rng(0).random(pieces.shape[:2]))


def count_right(
    weights: Weights, pieces: np.ndarray, labels: np.ndarray, choices: Mapping[str, np.ndarray], attend: Attention
) -> dict[str, np.ndarray]:
    """Read the images with each choice of pieces turned to paper.

    Args:
        weights: of the network.
        pieces: of shape (m, 49, 16).
        labels: what the images show.
        choices: by name which pieces are hidden, bool of shape (m, 49).
        attend: computes attention.

    Returns:
        For each choice the percentage right in each of GROUPS groups of images.
    """
    right = {}
    for name, hidden in choices.items():
        said = transformer.compute(weights, np.where(hidden[..., None], np.float32(0), pieces), attend).argmax(1)
        right[name] = 100 * np.array([group.mean() for group in np.array_split(said == labels, GROUPS)])
    return right


def compare_choices(right: Mapping[str, np.ndarray], name: str, other: str) -> str:
    """Return how many points apart two choices are, or that the spread of the groups of images allows no claim.

    Args:
        right: what `count_right` returned.
        name, other: of its choices.
    """
    first, second = (timing.Measurement(each, "", tuple(right[each])) for each in (name, other))
    if not timing.is_clear(first, second):
        return f"{name}, beside {other}: no claim"
    fewer = "fewer" if first.median < second.median else "more"
    return f"{name}, beside {other}: {abs(first.median - second.median):.1f} points {fewer} right"


def tabulate_choices(right: Mapping[str, np.ndarray], choices: Mapping[str, np.ndarray], pieces: np.ndarray) -> Table:
    """Return how many digits are right for each choice, and what may be said of the second beside each later one.

    Args:
        right: what `count_right` returned, with the choice by another image's map last.
        choices: by name which pieces are hidden, bool of shape (m, 49).
        pieces: of shape (m, 49, 16).
    """
    rows, has_ink = [], pieces.any(axis=2)
    for name, groups in right.items():
        low, high = np.percentile(groups, [25, 75])
        inked = (choices[name] & has_ink).sum(axis=1).mean()
        rows.append((name, f"{inked:.1f}", f"{np.median(groups):.1f} %", f"{low:.1f} to {high:.1f} %"))
    _, looked, *others = right
    below = [f"{len(pieces):,} images in {GROUPS} groups.", *(compare_choices(right, looked, each) for each in others)]
    is_own_better = compare_choices(right, looked, others[-1]).endswith("fewer right")
    found = "" if is_own_better else "no sign that "
    below.append(f"Found: {found}an image's own map finds what its answer needs better than another image's map.")
    return Table(rows, ("hidden", "of them with ink", "right, median", "middle half of the groups"), below)


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
