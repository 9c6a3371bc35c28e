"""Where lesson 16's transformer looks while it reads digits, as a picture, and what its answers need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.lessons.lesson_04b import compute_interval
from helpers.measure.plots import figure, show
from helpers.measure.tables import Table
from helpers.training import transformer

CHANCES = 5  # times that other pieces are erased


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


def tabulate_erased(looked: np.ndarray, ink: np.ndarray, count_changed: Callable[[np.ndarray], int]) -> Table:
    """Return how many answers change without the piece looked at most, without the one with most ink, and by chance.

    Args:
        looked: the share of each piece, of shape (m, 49).
        ink: of each piece, of the same shape; two pieces of each image have some.
        count_changed: counts the answers that change if the inked piece with the largest number is erased.
    """
    m = len(looked)
    most = np.where(ink > 0, looked, -1).argmax(axis=1)
    changed, by_chance = count_changed(looked), []
    for seed in range(1, CHANCES + 1):
        drawn = 1 + np.random.default_rng(seed).random(ink.shape)
        drawn[np.arange(m), most] = 0
        by_chance.append(count_changed(drawn))
    by_ink = count_changed(ink)
    rows = [
        ("that gets most attention", f"{changed:,} of {m:,}", _describe_interval(changed, m)),
        ("that has most ink", f"{by_ink:,} of {m:,}", _describe_interval(by_ink, m)),
        (f"another, by chance, {CHANCES} times", f"{min(by_chance):,} to {max(by_chance):,} of {m:,}", ""),
    ]
    below = [
        f"Without the piece that gets most attention, {m - changed:,} of {m:,} answers stay the same.",
        f"Most attention beside chance: {_compare(changed, max(by_chance), m)}.",
        f"Most ink beside most attention: {_compare(by_ink, _find_ends(changed, m)[1], m)}.",
    ]
    return Table(rows, ("erased: the piece with ink", "answers that change", "95 % interval (lesson 04b)"), below)


def _find_ends(changed: int, m: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a number of answers that change."""
    low, high = compute_interval(changed, m)
    return max(m * low, 0), m * high


def _describe_interval(changed: int, m: int) -> str:
    low, high = _find_ends(changed, m)
    return f"{low:,.0f} to {high:,.0f}"


def _compare(changed: int, most: float, m: int) -> str:
    """Return "more" if even the low end of the 95 % interval is above the other number; otherwise "no claim"."""
    return "more" if _find_ends(changed, m)[0] > most else "no claim"
