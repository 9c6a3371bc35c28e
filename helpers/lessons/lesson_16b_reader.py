"""What the words and the written digits of lesson 16b look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from helpers.lessons.lesson_16_faults import compute_attention
from helpers.measure.plots import figure, show
from helpers.training import transformer
from helpers.training.writer import WORDS, draw


def draw_codebook(codebook: np.ndarray, image: np.ndarray, words: np.ndarray) -> None:
    """Draw the 64 words, an image, and the image in words, with the number of each of its words.

    Args:
        codebook: uint8 of shape (64, 16).
        image: uint8 of shape (28, 28).
        words: of the image, of shape (49,).
    """
    title = "The codebook; a digit; the same digit in 49 words"
    with figure(7.5, 3.2, title, ncols=3) as (drawn, (left, middle, right)):
        sheet = np.full((8 * 5 + 1, 8 * 5 + 1), 90, np.uint8)
        for number, word in enumerate(codebook):
            row, column = divmod(number, 8)
            sheet[5 * row + 1 : 5 * row + 5, 5 * column + 1 : 5 * column + 5] = word.reshape(4, 4)
        left.imshow(sheet, cmap="gray_r", vmin=0, vmax=255)
        left.set_xlabel(f"{WORDS} words of 4 x 4 pixels")
        middle.imshow(image, cmap="gray_r", vmin=0, vmax=255)
        middle.set_xlabel("28 x 28 pixels")
        right.imshow(draw(words[None], codebook)[0], cmap="gray_r", vmin=0, vmax=255, alpha=0.55)
        for place, word in enumerate(words):
            row, column = divmod(place, 7)
            right.text(4 * column + 1.5, 4 * row + 1.5, str(word), fontsize=8, ha="center", va="center")
        right.set_xlabel("49 words, by number")
        for panel in (left, middle, right):
            panel.set(xticks=(), yticks=())
            panel.grid(visible=False)
    show(drawn, f"{title}. Its words: {words.tolist()}.")


def draw_written(images: Mapping[str, np.ndarray], labels: Sequence[int], title: str) -> None:
    """Draw a row of written digits for each way of writing, each under the digit that was asked for.

    Args:
        images: by way, uint8 of shape (m, 28, 28).
        labels: the digits that were asked for, of shape (m,).
        title: the message of the figure.
    """
    rows, columns = len(images), len(labels)
    with figure(7.5, 0.95 * rows + 0.5, title, nrows=rows, ncols=columns, squeeze=False) as (drawn, axes):
        for line, (way, each) in zip(axes, images.items(), strict=True):
            for panel, image, label in zip(line, each, labels, strict=True):
                panel.imshow(image, cmap="gray_r", vmin=0, vmax=255, interpolation="nearest")
                panel.set(xticks=(), yticks=())
                panel.grid(visible=False)
                panel.set_title(str(label), fontsize=10, loc="center")
            line[0].set_ylabel(way.replace(" ", "\n"), fontsize=9)
    show(drawn, f"{title}. Asked for: {', '.join(map(str, labels))}; written with {' and with '.join(images)}.")


def read_digits(weights: transformer.Weights, images: np.ndarray) -> np.ndarray:
    """Return the digits that lesson 16's network reads in images, of shape (m,).

    Args:
        weights: of that network, by name.
        images: uint8 of shape (m, 28, 28).
    """
    x = transformer.place_pieces(weights, transformer.cut(images))
    x = transformer.compute_layers(weights, x, compute_attention, 1)
    q, k, v = transformer.list_heads(weights, x, 1)
    return transformer.score_digits(weights, x, compute_attention(q, k, v)).argmax(axis=1)
