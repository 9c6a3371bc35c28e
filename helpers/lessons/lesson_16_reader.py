"""Where lesson 16's transformer looks while it reads digits, as a picture, and what its answers need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.lessons.lesson_04b import compute_interval
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


def tabulate_erased(looked: np.ndarray, ink: np.ndarray, count_changed: Callable[[np.ndarray], int]) -> Table:
    """Return how many answers change without the piece looked at most, without another of as much ink, or most ink.

    Args:
        looked: the share of each piece, of shape (m, 49).
        ink: of each piece, of the same shape, from 0 to 16; two pieces of each image have some.
        count_changed: counts the answers that change if the inked piece with the largest number is erased.
    """
    m = len(looked)
    images, most = np.arange(m), np.where(ink > 0, looked, -1).argmax(axis=1)
    alike = 1 + transformer.SIDE**2 - np.abs(ink - ink[images, most][:, None])
    alike[images, most] = 0
    maps = {
        "that gets most attention": looked,
        "another, with about as much ink": alike,
        "that has most ink": ink,
    }
    found = {way: count_changed(numbers) for way, numbers in maps.items()}
    ends = {way: _find_ends(changed, m) for way, changed in found.items()}
    rows = []
    for way, n in found.items():
        erased = ink[images, np.where(ink > 0, maps[way], -1).argmax(axis=1)].mean()
        rows.append((way, f"{erased:.1f}", f"{n:,} of {m:,}", "{:,.0f} to {:,.0f}".format(*ends[way])))
    attention, other, by_ink = ends.values()
    below = [
        f"Without the piece that gets most attention, {m - found['that gets most attention']:,} of {m:,} answers stay "
        "the same.",
        f"Most attention beside as much ink: {_compare(attention, other)}.",
        f"Most ink beside most attention: {_compare(by_ink, attention)}.",
    ]
    return Table(
        rows,
        ("erased: the piece with ink", "its ink (mean)", "answers that change", "95 % interval (lesson 04b)"),
        below,
    )


def _find_ends(changed: int, m: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a number of answers that change."""
    low, high = compute_interval(changed, m)
    return max(m * low, 0), m * high


def _compare(first: tuple[float, float], second: tuple[float, float]) -> str:
    """Return "more" if the first interval lies above the second; otherwise "no claim" and why."""
    return "more" if first[0] > second[1] else "no claim (the first interval isn't above the second)"
