"""Lesson 04, Train an MLP: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from helpers import checks
from helpers.errors import WorkshopError
from helpers.plots import BLUE, GREEN, GREY, ORANGE, figure, show
from helpers.timing import Measurement


@checks.verdict
def check_parameters(learner: Callable[[list[int]], int]) -> Iterator[str]:
    """Lesson 04, exercise 1: the weights and biases of dense layers."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(1, 900, size).tolist(),) for size in (2, 3, 4, 5, 6)]
        return [([784, 512, 512, 10],), ([3, 2],), ([1, 1],), *drawn]

    def right(sizes: list[int]) -> int:
        return sum((sizes[i] + 1) * sizes[i + 1] for i in range(len(sizes) - 1))

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_recall(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Lesson 04, exercise 2: of each digit's images (a row), the share that was recognised."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(0, 50, (n, n)) + np.diag(rng.integers(1, 900, n)),) for n in (2, 3, 10, 10)]
        return [(np.array([[8, 2], [1, 4]]),), (np.array([[5, 0], [3, 1]]),), *drawn]

    yield checks.judge_function(
        learner, lambda counts: np.array([counts[i, i] / counts[i].sum() for i in range(len(counts))]), cases
    )


@checks.verdict
def check_epoch_seconds(learner: Callable[[int, int, float, float], float]) -> Iterator[str]:
    """Lesson 04, exercise 3: every started batch costs a step's overhead, every image its arithmetic."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(1000, 128, 0.002, 0.00001), (1024, 128, 0.5, 0.25), (1, 128, 2.0, 3.0), (60_000, 1, 1e-3, 1e-5)]
        drawn = [
            (int(rng.integers(1, 5000)), int(rng.integers(1, 300)), rng.uniform(0.1, 2), rng.uniform(0.001, 0.1))
            for _ in range(20)
        ]
        return plain + drawn

    def right(images: int, batch: int, overhead: float, per_image: float) -> float:
        return math.ceil(images / batch) * overhead + images * per_image

    yield checks.judge_function(learner, right, cases)


# ------------------------------------------------------------------------------------------------------ its figures


def curves(history: dict[str, list[float]], title: str) -> None:
    """Draw loss and accuracy against the epoch, on the training images and on the test images.

    Args:
        history: what `fit` returns as `history`: loss, accuracy, val_loss and val_accuracy, one entry an epoch.
        title: the message of the figure, with the dataset.
    """
    from matplotlib.ticker import MaxNLocator

    with figure(7.5, 3.2, ncols=2) as (drawn, axes):
        for one, name, ylabel, factor in zip(
            axes, ("accuracy", "loss"), ("accuracy (%)", "loss"), (100, 1), strict=True
        ):
            for key, colour, marker, label in (
                (name, ORANGE, "o", "training images"), (f"val_{name}", BLUE, "s", "test images"),
            ):  # fmt: skip
                values = [factor * value for value in history[key]]
                one.plot(range(1, len(values) + 1), values, color=colour, marker=marker, ms=4, label=label)
            one.set(xlabel="epoch", ylabel=ylabel)
            one.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].legend(loc="lower right")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: accuracy and loss by epoch, on training images and on test images.")


def confusion(counts: np.ndarray, title: str) -> None:
    """Show how often each digit was taken for each other one; the right answers, far more, stay grey.

    Args:
        counts: integers of shape (classes, classes): row the digit shown, column the answer.
        title: the message of the figure, with the dataset.
    """
    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    with figure(5.6, 4.6) as (drawn, axes):
        axes.imshow(np.ma.masked_equal(wrong, 0), cmap="Oranges", vmin=0, vmax=max(wrong.max(), 1) * 1.3)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                grey = GREY if row == column else "black"
                axes.text(column, row, f"{count}", ha="center", va="center", fontsize=8.5, color=grey)
        ticks = range(len(counts))
        axes.set(xlabel="what the network said", ylabel="what it was shown", xticks=ticks, yticks=ticks, title=title)
        axes.grid(False)
    show(drawn, f"{title}: {wrong.sum()} wrong answers of {counts.sum()}, as a matrix of digit shown and answer given.")


def time_per_image(measured: dict[int, Measurement], published: dict[str, tuple[int, float]], title: str) -> None:
    """Draw the time for one image against the batch size, beside published figures; both axes logarithmic.

    Args:
        measured: for each batch size one training step, in seconds.
        published: for each device its batch size and its seconds for one image.
        title: the message of the figure, with the device.
    """
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    sizes = sorted(measured)
    with figure(7.5, 4.0) as (drawn, axes):
        medians = [measured[size].median / size * 1e6 for size in sizes]
        low, high = zip(*([q / size * 1e6 for q in measured[size].quartiles] for size in sizes), strict=True)
        axes.plot(sizes, medians, color=BLUE, marker="s", ms=5, label="measured here")
        axes.fill_between(sizes, low, high, color=BLUE, alpha=0.2, lw=0)
        for (label, (size, seconds)), marker, colour in zip(
            published.items(), ("^", "v"), (ORANGE, GREEN), strict=False
        ):
            axes.plot([size], [seconds * 1e6], marker=marker, ms=8, mfc="none", mew=2, ls="", color=colour, label=label)
        axes.set(xscale="log", yscale="log", xlabel="images in a batch", ylabel="time for one image (µs)", title=title)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.minorticks_off()
        axes.legend()
    show(drawn, f"{title} Time for one image in microseconds against the batch size, both axes logarithmic.")


def by_seed(accuracies: dict[str, dict[int, float]], images: int, title: str) -> None:
    """Show the test accuracies of several seeds, each with the error of counting.

    Args:
        accuracies: for each way of training the accuracy by seed, from 0 to 1.
        images: how many test images were counted.
        title: the message of the figure, with the dataset.
    """
    rows = [(way, seed, accuracy) for way, seeds in accuracies.items() for seed, accuracy in seeds.items()]
    looks = dict(zip(accuracies, ((ORANGE, "o"), (BLUE, "s"), (GREEN, "^")), strict=False))
    with figure(7.5, 0.4 * len(rows) + 1.1) as (drawn, axes):
        for row, (way, _, accuracy) in enumerate(rows):
            colour, marker = looks[way]
            error = (accuracy * (1 - accuracy) / images) ** 0.5
            label = way if way not in [before for before, *_ in rows[:row]] else None
            axes.errorbar(100 * accuracy, row, xerr=100 * error, fmt=marker, color=colour, capsize=4, label=label)
        axes.set_yticks(range(len(rows)), [f"seed {seed}" for _, seed, _ in rows])
        axes.set(xlabel="accuracy on the test images (%)", ylim=(len(rows) - 0.5, -0.5), title=title)
        drawn.legend(loc="outside lower center", ncols=len(accuracies))
    words = "; ".join(f"{way}, seed {seed}: {100 * accuracy:.2f} %" for way, seed, accuracy in rows)
    show(drawn, f"{title}: {words}.")


# ------------------------------------------------------------------------------- its data, before a training uses it


def check_data(
    images: np.ndarray, labels: np.ndarray, shape: Sequence[int], batch_size: int = 1, classes: int = 10
) -> None:
    """Look at the data before a training does: most of what is wrong with data raises no error in a training.

    Args:
        images: array of shape (n, *shape), pixels from 0 to 255 of any numeric dtype.
        labels: array of shape (n,), whole numbers from 0 to classes - 1.
        shape: the shape of one image, as the network takes it.
        batch_size: images a step.
        classes: how many different labels there are.

    Raises:
        WorkshopError: names what is wrong, where, and what mends it.
    """
    images, labels = _array(images, "images"), _array(labels, "labels")
    shape = (int(shape),) if np.ndim(shape) == 0 else tuple(shape)
    if images.ndim == 1 and labels.ndim > 1:
        shapes = f"Their shapes are {images.shape} and {labels.shape}."
        raise WorkshopError("The images look like labels, and the labels like images.", shapes, "Swap them.")
    n = len(images) if images.ndim else 0
    if n == 0 or images.size == 0:
        raise WorkshopError(
            "There are no images to train with.",
            f"The array has the shape {images.shape}.",
            "Look at the slice that made it.",
        )
    if images.shape[1:] != shape:
        raise WorkshopError(
            f"The network takes images of shape {shape}; these have {images.shape[1:]}.",
            "The first number of an array's shape counts the images; the rest must be what the network was built for.",
            _new_shape(images, shape),
        )
    _check_labels(labels, n, classes)
    if images.dtype.kind == "f" and not np.isfinite([images.min(), images.max()]).all():  # no array of their size
        bad = np.flatnonzero(~np.isfinite(images).reshape(n, -1).all(axis=1))
        raise WorkshopError(
            f"{len(bad):,} of {n:,} images hold NaN or infinity, the first of them is image {bad[0]}.",
            "A single step with such a pixel, and the network gives every image the same answer; no error is raised.",
            "Look where they come from, or leave those images out.",
        )
    if images.dtype.kind == "f" and 0 < images.max() <= 1:
        raise WorkshopError(
            f"The pixels lie between 0 and {images.max():.3g}: somebody has scaled them already.",
            "The lessons' networks take pixels from 0 to 255 and scale them themselves; to them this is blank paper.",
            "Take the bytes as load_mnist() returns them.",
        )
    _check_batch_size(batch_size, n)


def _array(values: object, what: str) -> np.ndarray:
    """Take what the learner gave as an array of numbers."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "buif":
        raise WorkshopError(
            f"The {what} are no array of numbers.",
            f"NumPy makes {array.dtype} of them." if array.size else "NumPy can make no array of them.",
            "Take the arrays that load_mnist() returns.",
        )
    return array


def _new_shape(images: np.ndarray, shape: tuple[int, ...]) -> str:
    """Say how to give images the shape that the network takes, if their pixels stand in that order already."""
    if images.shape == shape:
        return "This is a single image: images[None]"
    have, want = ([size for size in one if size != 1] for one in (images.shape[1:], shape))
    flat = min(len(have), len(want)) == 1 and np.prod(have) == np.prod(want)
    if have == want or flat:
        return f"images.reshape({', '.join(map(str, (-1, *shape)))})"
    return "Build the network for these images."


def _check_labels(labels: np.ndarray, n: int, classes: int) -> None:
    if labels.ndim == 2 and labels.shape[1] == classes > 1:
        raise WorkshopError(
            f"The labels have the shape {labels.shape}: one column for each class.",
            "This lesson's loss takes the numbers of the classes themselves (sparse_categorical_crossentropy).",
            "labels.argmax(axis=1)",
        )
    if labels.shape != (n,):
        raise WorkshopError(
            f"There are {n:,} images, and labels of shape {labels.shape}.",
            "Every image needs one label, in the same order.",
            "labels.reshape(-1)" if labels.size == n else "Slice images and labels alike.",
        )
    if labels.dtype.kind not in "ui":
        raise WorkshopError(
            f"The labels are {labels.dtype}, not whole numbers.",
            f"A label is the number of a class, from 0 to {classes - 1}.",
            'labels.astype("uint8"), once you know that no label is lost',
        )
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        first = outside[0]
        raise WorkshopError(
            f"{len(outside):,} of {n:,} labels lie outside 0 to {classes - 1}; "
            f"the first is labels[{first}] = {labels[first]}.",
            "TensorFlow stops at it with a long error on a CPU; JAX raises nothing and learns nothing from that image.",
            "Mend those labels, or leave their images out.",
        )


def _check_batch_size(batch_size: int, n: int) -> None:
    choose = f"Choose a whole number from 1 to {n:,}."
    try:
        size = operator.index(batch_size)
    except TypeError:
        raise WorkshopError(
            f"The batch size is {batch_size!r}, not a whole number.", "It counts the images of one step.", choose
        ) from None
    if size < 1:
        raise WorkshopError(f"A batch of {size:,} images teaches nothing.", "A step needs an image at least.", choose)
    if size > n:
        raise WorkshopError(
            f"A batch of {size:,} images cannot be taken from {n:,}.",
            "Keras would quietly make one smaller batch of them all, so that each epoch were a single step.",
            choose,
        )
