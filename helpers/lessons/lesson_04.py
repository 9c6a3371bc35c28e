"""Lesson 04, Train an MLP: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from helpers import checks
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
