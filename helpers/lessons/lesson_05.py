"""Serve lesson 05, Train a CNN: its checks and its figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure import records, tables
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.measure.timing import duration

if TYPE_CHECKING:
    import keras
    from matplotlib.axes import Axes

# Exercise 2: a network of at most so many parameters learns from so many images, and reads more than so many percent of
# unmoved digits. On MNIST and the stand-in, largest sums of 11 x 11 pixels read 79 to 96 %, their averages 34 to 70.
MOST_PARAMETERS, ENOUGH_IMAGES, LEAST_PERCENT = 30_000, 6_400, 75

# --------------------------------------------------------------------------------------- what lesson 05 builds on


def convolve(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sums of a 3 x 3 filter at its places; exercise 1 of lesson 05 writes this function.

    Args:
        image: of shape (height, width), each 3 or more.
        weights: the filter, of shape (3, 3).

    Returns:
        An array of shape (height - 2, width - 2).
    """
    return np.einsum("yxij,ij->yx", np.lib.stride_tricks.sliding_window_view(image, (3, 3)), weights)


def shift_right(images: np.ndarray, pixels: int) -> np.ndarray:
    """Return images of shape (n, height, width) moved some pixels to the right; paper (0) comes in from the left."""
    return np.pad(images, ((0, 0), (0, 0), (pixels, 0)))[:, :, : images.shape[2]]


# ---------------------------------------------------------------------------------------------------------- its checks


@checks.print_verdict
def check_convolve(learner: Callable[..., np.ndarray]) -> Iterator[str]:
    """Judge exercise 1 of lesson 05: the sums of a 3 x 3 filter."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        small = [(np.arange(h * w).reshape(h, w), np.arange(9).reshape(3, 3)) for h, w in ((3, 4), (3, 3), (5, 3))]
        sizes = [(3, 4), (28, 28), (4, 9), (12, 5), *(tuple(map(int, size)) for size in rng.integers(3, 30, (3, 2)))]
        # Quarters and whole numbers: their sums are exact in any order and in single precision.
        drawn = [(rng.integers(-8, 9, size) / 4, rng.integers(-8, 9, (3, 3)) / 4) for size in sizes]
        weights = rng.integers(-8, 9, (3, 3)) / 4
        return small + drawn + [(rng.integers(0, 256, (6, 8)).astype(kind), weights) for kind in ("u1", "i8")]

    image, weights = np.random.default_rng(0).permutation(29).astype(float)[:20].reshape(4, 5), np.arange(9.0) ** 2
    weights = weights.reshape(3, 3)
    found = checks.answer(learner, image.copy(), weights.copy(), who="convolve")
    ideas = [
        (weights[::-1, ::-1], "the filter is flipped, as in SciPy's convolve2d. Here no filter is: see correlate2d."),
        (weights.T, "the filter is turned over its diagonal: weights[0, 1] belongs to the pixel image[y, x + 1]."),
    ]
    for turned, sentence in ideas:
        if isinstance(found, np.ndarray) and np.array_equal(found, convolve(image, turned)):
            raise checks.NotYet(sentence)
    tried = checks.judge_function(learner, convolve, cases)
    yield checks.keep_right("convolve", lambda *given: np.asarray(learner(*given)), tried)


@checks.print_verdict
def check_unmoved(
    build: Callable[[], keras.Model],
    train: Callable[[keras.Model], tuple[Sequence[float], int]],
    others: Mapping[str, Sequence[float]],
    dataset: str,
) -> Iterator[str]:
    """Judge exercise 2 of lesson 05: a network that answers alike wherever a spot is in the middle, and reads digits.

    Before any training, random weights show whether it knows places, and whether a sum depends on 11 pixels in a row.
    The training is an amount of work, not a time, so every computer judges the same network.

    Args:
        build: the learner's network.
        train: trains it for a short time; returns the percent of images that are right, by the pixels they moved, and
            how many images it learned from.
        others: the same percentages of other networks, to be drawn beside it.
        dataset: the name of the images.

    Raises:
        NotDone, NotYet, NotJudged: the last if the training was interrupted.
    """
    import keras

    model = _build_model(build)
    rng = np.random.default_rng()
    for _ in range(3):  # one draw may hide a difference
        for weights in model.trainable_weights:
            is_bias = len(weights.shape) == 1 and weights.name == "bias"
            if is_bias or not np.any(keras.ops.convert_to_numpy(weights)):  # zeros would hide borders, or everything
                weights.assign(rng.normal(0, 0.1, weights.shape))
        _refuse_known_places(model, rng)
    _refuse_small_views(model)
    yield "untrained, it gives the same answer wherever a spot is in the middle of the image"
    percents, images = train(model)
    found = {"yours, briefly trained": percents, **others}
    draw_right_against_shift(found, "Digits that move: your network beside the two above", dataset)
    yield judge_share(percents[0], images)


def judge_share(percent: float, images: int) -> str:
    """Return what is said of a network of exercise 2 that reads that many percent of the digits.

    Args:
        percent: of unmoved digits that are right.
        images: how many it learned from; an image counts again each time that it is shown.

    Raises:
        NotYet: it reads too few.
        NotJudged: it learned from fewer than ENOUGH_IMAGES.
    """
    share = f"{percent:.0f} % of unmoved digits are read after {images:,} images"
    if images < ENOUGH_IMAGES:
        raise checks.NotJudged(f"the training ended early; run this cell again for {ENOUGH_IMAGES:,} images. {share}")
    if percent > LEAST_PERCENT:
        return share
    raise checks.NotYet(
        f"a spot in the middle may move, but {share}; expected more than {LEAST_PERCENT} %. Try other sizes of the "
        "filters, or another layer after them."
    )


def _refuse_known_places(model: keras.Model, rng: np.random.Generator) -> None:
    """Raise NotYet if the network's answers are no probabilities, or change when a spot of 2 x 2 pixels moves.

    The spot stays so far from the borders that each sum of up to 13 x 13 pixels finds it at all of its places.
    """
    spot = rng.integers(1, 256, (2, 2), dtype=np.uint8)
    here = _ask_model(model, spot, 13, 13)
    if not (here.min() >= 0 and abs(here.sum() - 1) < 0.02):  # wide enough for networks of 16 bits
        raise checks.NotYet(
            f"its ten numbers go down to {here.min():.2g} and add up to {here.sum():.3g}; probabilities are "
            "at least 0 and add up to 1. Which activation makes such numbers?"
        )
    for down, right in [(0, 1), (1, 0), (0, -1), (-1, 0), (1, 1)]:
        gap = float(np.abs(_ask_model(model, spot, 13 + down, 13 + right) - here).max())
        if gap > 1e-4:
            raise checks.NotYet(
                f"with random weights, a spot of 2 x 2 pixels that moves by {right} to the right and {down} down "
                f"changes a probability by {gap:.2g}; expected no change. Which layer still knows places? (So do "
                "filters that reach from the middle to the border, and pooling in 2 x 2: ink that moves by 1 pixel is "
                "in other squares.)"
            )


def _refuse_small_views(model: keras.Model) -> None:
    """Raise NotYet if the network's answers never change when a bar of ink grows from 10 to 11 pixels.

    The bar lies along a border. Sums of 10 x 10 pixels or fewer find the same in both images: all ink, no ink, and the
    bar's edge at each place. So the largest of them stays the same; averages of any sums change.
    """
    for turn, across in ((0, "wide"), (1, "high")):
        gaps = []
        for ink in (255, 80, 20):  # much ink may saturate every answer
            for side in (turn, turn + 2):  # the opposite borders
                bars = [
                    np.rot90(np.pad(np.full((28, n), ink, np.uint8), ((0, 0), (0, 28 - n))), side) for n in (10, 11)
                ]
                gaps.append(np.abs(_ask_model(model, bars[0], 0, 0) - _ask_model(model, bars[1], 0, 0)).max())
        if max(gaps) < 1e-6:
            raise checks.NotYet(
                f"with random weights, bars of ink that are 10 and 11 pixels {across} get the same answer. Does a sum "
                "of the second convolution depend on 11 x 11 pixels, and do the ten numbers depend on that sum?"
            )


def _build_model(build: Callable[[], keras.Model]) -> keras.Model:
    """Return the learner's network; NotDone or NotYet if its input, output or number of parameters is not as asked."""
    import keras

    model = checks.answer(build, who="build_mine()")
    if model is None or model is ...:
        raise checks.NotDone("build_mine() returns nothing.")
    if not isinstance(model, keras.Model) or not model.built:
        raise checks.NotYet("build_mine() returns no Keras model that knows its input; begin with keras.Input.")
    shapes = model.input_shape, model.output_shape
    if shapes != ((None, 28, 28, 1), (None, 10)):
        raise checks.NotYet(f"it makes {shapes[1]} of {shapes[0]}; expected (None, 10) of (None, 28, 28, 1).")
    if model.count_params() > MOST_PARAMETERS:
        raise checks.NotYet(f"it has {model.count_params():,} parameters; expected at most {MOST_PARAMETERS:,}.")
    _refuse_other_convolutions(model)
    return model


def _refuse_other_convolutions(model: keras.Model) -> None:
    """Raise NotYet unless the network has two convolutions, of 16, then 64 filters that are at least 3 x 3."""
    # Their axes are height, width, inputs, and filters.
    kernels = [weights.shape for weights in model.weights if len(weights.shape) == 4]
    filters = [kernel[-1] for kernel in kernels]
    if filters != [16, 64]:
        raise checks.NotYet(f"its convolutions have {filters} filters, in this order; expected [16, 64].")
    for height, width, _, number in kernels:
        if min(height, width) < 3:
            raise checks.NotYet(f"each of its {number} filters is {height} x {width}; expected at least 3 x 3.")


def _ask_model(model: keras.Model, ink: np.ndarray, y: int, x: int) -> np.ndarray:
    """Return a network's answer, float32 (1, 10), to paper with some ink whose upper left pixel is at row y, column x.

    Raises:
        NotYet: the network stopped with an error.
    """
    import keras

    image = np.zeros((1, 28, 28, 1), np.uint8)
    image[0, y : y + ink.shape[0], x : x + ink.shape[1], 0] = ink
    try:
        answer = model(image)
    except Exception as error:  # Keras adds whole weights and inputs to the message
        reason = next((line for line in str(error).splitlines()[1:] if line.strip()), str(error))
        reason = re.sub(r"\x1b\[[0-9;]*m", "", reason).split(" (")[0].strip(" .")[:200]
        raise checks.NotYet(
            f"the network stopped at an image of bytes (uint8) with {type(error).__name__}: {reason}. Does "
            "layers.Rescaling(1 / 255) follow its keras.Input, as in article_c?"
        ) from None
    return np.asarray(keras.ops.convert_to_numpy(answer), np.float32)


# ---------------------------------------------------------------------------------------------- its table and figures


def tabulate_costs(
    right: Mapping[str, float], operations: Mapping[str, int], took: Mapping[str, float]
) -> tables.Table:
    """Return a table of two networks: right answers, work, and speed of training here and on a recorded GPU.

    Args:
        right: percent of the test images, for MLP and CNN.
        operations: of a training step for each image.
        took: seconds of training for each image, here.
    """
    rows, below = [], []
    for name, number in (("MLP", "04"), ("CNN", "05")):
        label = f"a step of the {name} on jax, batch 8,192"
        gpu = records.find_column(number, [label])
        there = describe_speed(8_192 * operations[name], gpu.get(label))
        here = describe_speed(operations[name], took[name])
        rows.append((name, f"{right[name]:.2f} %", f"{operations[name] / 1e6:.3g} million an image", here, there))
        below += [text for text in gpu.below if text not in below]
    headers = ["network", "right on test images", "operations", "training an image, here", "8,192 images, JAX on a GPU"]
    return tables.Table(rows, headers, below)


def describe_speed(work: float, seconds: float) -> str:
    """Return a duration and the speed of that many operations; "not recorded" for NaN seconds."""
    if math.isnan(seconds):
        return tables.MISSING
    return f"{duration(seconds)}: {tables.format_number(work / seconds / 1e9)} GFLOP/s"


def draw_one_place(image: np.ndarray, weights: np.ndarray, y: int, x: int) -> None:
    """Draw what a convolution does at one place: nine pixels, nine weights, and their nine products.

    Args:
        image: the pixels, from 0 to 1; two axes.
        weights: a filter of 3 x 3 numbers.
        y: row of the place, from 0.
        x: column of the place, from 0.

    Raises:
        WorkshopError: the filter has no such place.
    """
    from matplotlib.patches import Rectangle

    rows, columns = (size - 2 for size in image.shape)
    if not (0 <= y < rows and 0 <= x < columns):
        raise WorkshopError(
            f"There is no place y={y}, x={x}.",
            f"The whole filter is on the image at {rows} x {columns} places.",
            f"Choose y from 0 to {rows - 1} and x from 0 to {columns - 1}.",
        )
    pixels = image[y : y + 3, x : x + 3]
    pictures = (image, pixels, weights, pixels * weights + 0.0)  # no -0
    size = f"{image.shape[0]} x {image.shape[1]} pixels"
    titles = (size, "the nine in the box", "times the filter", "are nine products")
    title = f"At row {y}, column {x}: nine pixels times nine weights, added up: {(pixels * weights).sum():.2f}"
    with figure(7.5, 2.5, title, ncols=4) as (drawn, _):
        panels = drawn.axes
        for panel, picture, above in zip(panels, pictures, titles, strict=True):
            _draw_picture(panel, picture, above)
            if picture.shape == (3, 3):
                _write_values(panel, picture)
        panels[0].add_patch(Rectangle((x - 0.5, y - 0.5), 3, 3, fill=False, ec="black", lw=2))
    show(drawn, f"{title}. Four pictures: {', '.join(titles)}.")


def _write_values(axes: Axes, image: np.ndarray) -> None:
    """Write each number of an array into its place of the picture."""
    for row, column in np.ndindex(image.shape):
        value = float(image[row, column])
        color = "white" if abs(value) > 0.7 * np.abs(image).max() else "black"
        axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=8, color=color)


def _draw_picture(axes: Axes, image: np.ndarray, above: str) -> None:
    """Draw an array: blue above zero, white at zero, orange below."""
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list("orange-white-blue", [RED, "white", BLUE])
    largest = float(np.abs(image).max()) or 1.0
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(True)
    axes.imshow(image, cmap=colors, vmin=-largest, vmax=largest)
    axes.set_title(above, fontsize=9, loc="center")


def draw_heatmaps(images: Sequence[np.ndarray], titles: Sequence[str], title: str, middle: bool = False) -> None:
    """Draw arrays as pictures in a row: blue above zero, white at zero, orange below.

    Args:
        images: arrays of two axes.
        titles: the text above each.
        title: the message of the figure.
        middle: whether a grey line marks the middle of each picture, from which a move can be read.
    """
    size = 7.5 / len(images)
    with figure(7.5, size + 0.6, title, ncols=len(images), squeeze=False) as (drawn, _):
        for panel, image, above in zip(drawn.axes, images, titles, strict=False):
            _draw_picture(panel, image, above)
            if middle:
                panel.axvline((image.shape[1] - 1) / 2, color=GREY, lw=1)
    show(drawn, f"{title}: {len(images)} pictures{', the middle of each marked' if middle else ''}.")


LOOKS = {"CNN": (BLUE, "o"), "MLP": (GREY, "s")}  # any other network: orange triangles


def draw_right_against_shift(found: Mapping[str, Sequence[float]], title: str, dataset: str) -> None:
    """Draw how many percent of the images each network gets right, by the pixels that their digits were moved.

    Args:
        found: for each network the percentages without a move, moved by one pixel, by two, and so on.
        title: the message of the figure.
        dataset: its name; what was recorded is drawn, dashed, beside percentages on MNIST alone.
    """
    words, recorded = [], json.loads((records.FOLDER / "cnn_and_mlp.json").read_text(encoding="utf-8"))
    with figure(7.5, 3.2, title) as (drawn, axes):
        for name, percents in found.items():
            color, marker = LOOKS.get(name, (ORANGE, "^"))
            axes.plot(range(len(percents)), percents, color=color, marker=marker, label=name)
            words.append(f"{name}: {', '.join(f'{percent:.0f}' for percent in percents)}")
        for name, percents in recorded["moved"].items() if dataset == "MNIST" else ():
            axes.plot(range(len(percents)), percents, color=LOOKS[name][0], ls="--", lw=1, label=f"{name}, recorded")
            words.append(f"{name}, recorded: {', '.join(f'{percent:.0f}' for percent in percents)}")
        axes.set(xlabel="digits moved to the right by (pixels)", ylabel="right on unseen images (%)", ylim=(0, 104))
        axes.legend(loc="lower left", fontsize=8)
    show(drawn, f"{title}. Percent of unseen images that are right, by 0, 1, 2 and more pixels: {'; '.join(words)}.")
