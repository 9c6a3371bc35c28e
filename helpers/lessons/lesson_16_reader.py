"""Where lesson 16's transformer looks while it reads digits, as a picture."""

from __future__ import annotations

import numpy as np

from helpers.measure.plots import figure, show
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
