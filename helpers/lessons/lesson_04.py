"""Serve lessons 04, Train an MLP, and 04b, Judge a training: the checks, the figures, the time model."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show

# --------------------------------------------------------------------------------------------- one layer in NumPy


def forward(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the probabilities that one layer and softmax give: images (n, inputs) in, (n, outputs) out."""
    sums = x @ w + b
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def train(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, b: np.ndarray, rate: float, steps: int
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Take gradient steps with one layer on all images; return new weights and biases, and the loss before each."""
    w, b, losses = w.copy(), b.copy(), []
    for _ in range(steps):
        p = forward(x, w, b)
        losses.append(float(-np.log(p[np.arange(len(y)), y]).mean()))
        error = (p - np.eye(len(b))[y]) / len(y)
        w -= rate * x.T @ error
        b -= rate * error.sum(axis=0)
    return w, b, losses


@checks.print_verdict
def check_forward(learner: Callable[..., np.ndarray]) -> Iterator[str]:
    """Judge exercise 1 of lesson 04: the answers of one layer."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        blank = (np.zeros((1, 2)), np.zeros((2, 2)), np.zeros(2))
        drawn = [blank]
        for n, inputs, outputs in [(1, 2, 3), (3, 3, 3), (5, 4, 2), (2, 784, 10)]:
            drawn.append((rng.random((n, inputs)), rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)))
        return drawn

    yield checks.judge_function(learner, forward, cases)


@checks.print_verdict
def check_train(learner: Callable[..., tuple], x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """Judge exercise 2 of lesson 04: gradient steps with one layer; a right answer then trains on real images.

    Args:
        learner: takes images, labels, weights, biases, the rate and the number of steps; see `train`.
        x: images of shape (n, 784), from 0 to 1.
        y: their labels, of shape (n,).
    """
    found = checks.answer(learner, x, y, np.zeros((784, 10)), np.zeros(10), 0.3, 10, who="train")
    if found is None or found is ...:
        raise checks.NotDone(f"train returns {found}.")
    if not isinstance(found, tuple | list) or len(found) != 3:
        raise checks.NotYet("train returns three things: the new w, the new b, and the list of the losses.")
    if np.size(found[2]) == 0 and not np.any(found[0]):
        raise checks.NotDone("w and b are as they came, and there is no loss in the list.")

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = []
        for n, i, o, rate, steps in [(1, 2, 3, 0.1, 2), (6, 5, 3, 2.0, 4), (4, 3, 2, 0.5, 1), (9, 8, 10, 0.3, 10)]:
            images, w, b = rng.random((n, i)), rng.normal(size=(i, o)), rng.normal(size=o)
            drawn.append((images.round(1), rng.integers(0, o, n), w.round(1), b.round(1), rate, steps))
        return drawn

    def part(function: Callable[..., tuple], number: int) -> Callable[..., object]:
        def answer_part(*given: object) -> object:
            return function(*given)[number]

        answer_part.__name__ = ("the new w", "the new b", "the losses")[number] + " of train"
        return answer_part

    tried = [checks.judge_function(part(learner, number), part(train, number), cases) for number in range(3)]
    w, b, losses = map(np.asarray, found)
    draw_training(losses, w, np.mean(forward(x, w, b).argmax(axis=1) == y))
    yield f"{tried[0]}; then ten steps on {len(x):,} images"


# ------------------------------------------------------------------------------------------------ an honest report


@checks.print_verdict
def check_report(learner: Callable[..., float], by_100: np.ndarray, by_others: np.ndarray) -> Iterator[str]:
    """Judge exercise 3 of lesson 04: choose by some images, report by others; a right answer draws the best guesser.

    Args:
        learner: takes shares of right answers on images that choose, and on others; returns that of the chosen one.
        by_100: the share of each guesser on the images by which the best is chosen.
        by_others: the same on other images.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        known: list[tuple] = [
            ([0.90, 0.95, 0.93], [0.91, 0.92, 0.94]),
            ([0.5], [0.4]),
            ([0.9812, 0.9813], [0.9806, 0.9801]),
        ]
        for n in (2, 3, 10, 1_000):
            known.append((rng.permutation(10_001)[:n] / 10_000, rng.permutation(10_001)[:n] / 10_000))
        return [(np.array(chosen_by), np.array(others)) for chosen_by, others in known]

    yield checks.judge_function(learner, lambda chosen_by, others: others[np.argmax(chosen_by)], cases)
    draw_choice(by_100, by_others, "The best of 1,000 guessers is a guesser.")


# ---------------------------------------------------------------------------- the exercises of its second sitting


@checks.print_verdict
def check_pairs_of(learner: Callable[..., list]) -> Iterator[str]:
    """Judge exercise 1 of lesson 04b: train with and without a change from each seed, and report every pair."""
    drawn = np.random.default_rng().uniform(90, 99, (2, 12)).round(2).tolist()

    @functools.wraps(learner)
    def with_fake(seeds: list[int]) -> list:
        return learner(lambda way, seed: drawn["ab".index(way)][seed], "a", "b", seeds)

    def right(seeds: list[int]) -> list[tuple[float, float]]:
        return [(drawn[0][seed], drawn[1][seed]) for seed in seeds]

    def cases(rng: np.random.Generator) -> list[tuple]:
        return [([0],), ([0, 1, 2, 3, 4],), ([7, 3, 10],), (list(range(8)),)]

    yield checks.judge_function(with_fake, right, cases)


@checks.print_verdict
def check_epoch_seconds(learner: Callable[[int, int, float, float], float]) -> Iterator[str]:
    """Judge exercise 2 of lesson 04b: every started batch costs a step's overhead, every image its arithmetic."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(1000, 128, 0.002, 0.00001), (1024, 128, 0.5, 0.25), (1, 128, 2.0, 3.0), (60_000, 1, 1e-3, 1e-5)]
        large = []
        for batch, more in itertools.product((128, 2048, 8192, 50_000, 2**20), (1, -1, 0)):
            # One image more than three whole batches, one less, and just as many; seconds of every size.
            overhead, per_image = round(rng.uniform(1, 2), 4), round(rng.uniform(1e-9, 9e-9), 11)
            large.append((3 * batch + more, batch, overhead, per_image))
        short = [(2049, 2048, 1.1e-6, 1.3e-10), (50_000, 8192, 0.0021, 1.1e-7)]
        counts = rng.integers(1, (60_001, 8193), (20, 2)).tolist()
        drawn = [(n, batch, round(rng.uniform(0.1, 2), 3), round(rng.uniform(1e-4, 0.1), 5)) for n, batch in counts]
        return plain + large + short + drawn

    def right(image_count: int, batch_size: int, overhead: float, per_image: float) -> float:
        seconds = math.ceil(image_count / batch_size) * overhead + image_count * per_image
        return float(f"{seconds:.9g}")  # 0.026, not 0.026000000000000002

    yield checks.judge_function(learner, right, cases)


@checks.print_verdict
def check_seconds_to(learner: Callable[..., float | None]) -> Iterator[str]:
    """Judge exercise 3 of lesson 04b: the seconds until an accuracy is reached for the first time."""

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        hits = [0.93, 0.96, 0.94, 0.97]
        for wanted in (0.95, 0.93, 0.5, 0.97, 0.96, 0.98):
            yield wanted, hits, 2.0
        yield 0.9, [0.9], 0.25
        yield 0.9481, [0.9475, 0.9478, 0.9482], 2.0
        yield 0.9, [], 1.0
        yield 0.7, rng.uniform(0, 1, 30).tolist(), 1.5
        yield 1.0, [0.0] * 50, 3.0

    def right(wanted: float, accuracies: list[float], seconds: float) -> float | None:
        reached = [epoch for epoch, accuracy in enumerate(accuracies, start=1) if accuracy >= wanted]
        return reached[0] * seconds if reached else None

    yield checks.judge_function(learner, right, cases)


# ------------------------------------------------------------------------------------------------------ its figures


def draw_slope(
    loss_with: Callable[[float], float], before: float, after: float, gradient: float, parameter: str
) -> None:
    """Draw a loss against one parameter, its slope at one value, and the step against it.

    Args:
        loss_with: returns the loss for a value of the parameter, all others unchanged.
        before: the value of the parameter before the step.
        after: the value after the step.
        gradient: how fast the loss changes with the parameter at `before`.
        parameter: its name.
    """
    reach = max(3.0, 1.2 * abs(after - before))
    values = np.linspace(before - 2 * reach, before + reach, 25)
    here, near = loss_with(before), np.array([-1.2, 1.2])
    title = "A gradient is a slope of the loss; a step goes against it"
    with figure(6.0, 3.4, title) as (drawn, axes):
        axes.plot(values, [loss_with(float(value)) for value in values], color=BLUE, label="loss")
        axes.plot(before + near, here + gradient * near, color=ORANGE, ls="--", lw=2.5, label=f"slope: {gradient:.3f}")
        axes.plot([before], [here], color="black", marker="o", ls="", label="before the step")
        axes.plot([after], [loss_with(after)], color=GREEN, marker="s", ms=7, ls="", label="after the step")
        axes.set(xlabel=parameter, ylabel="loss")
        axes.legend()
    words = f"the loss against the {parameter}; slope {gradient:.3f} at {before}, step to {after:.2f}"
    show(drawn, f"{title}: {words}.")


def draw_history(history: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw loss and accuracy against the epoch, on the training images and on the validation images.

    Args:
        history: what `fit` returns as `history`: loss, accuracy, val_loss and val_accuracy, one entry an epoch.
        title: the message of the figure, with the dataset.
    """
    from matplotlib.ticker import MaxNLocator

    looks = {"": (ORANGE, "o", "training images"), "val_": (BLUE, "s", "validation images")}
    with figure(7.5, 3.4, title, ncols=2) as (drawn, _):
        panels, shown = drawn.axes, (("accuracy", "accuracy (%)", 100), ("loss", "loss", 1))
        for panel, (name, ylabel, factor) in zip(panels, shown, strict=True):
            for kind, (color, marker, label) in looks.items():
                values = [factor * value for value in history[kind + name]]
                panel.plot(range(1, len(values) + 1), values, color=color, marker=marker, ms=4, label=label)
            panel.set(xlabel="epoch", ylabel=ylabel, xlim=(0.5, len(history[name]) + 0.5))
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[0].legend(loc="lower right")
    show(drawn, f"{title}: accuracy and loss by epoch, on training images and on validation images.")


def draw_network(sizes: Sequence[int], title: str) -> None:
    """Draw layers of values, each a column of at most five circles, and a line for each weight between those drawn.

    Args:
        sizes: of the layers, inputs first.
        title: the message of the figure.
    """
    with figure(5.2, 2.1, title) as (drawn, axes):
        axes.axis("off")
        columns = [np.linspace(1, -1, min(size, 5)) for size in sizes]
        for x, (left, right) in enumerate(itertools.pairwise(columns)):
            for y in left:
                ends = [[y] * len(right), right]
                axes.plot([[x] * len(right), [x + 1] * len(right)], ends, color="#BBBBBB", lw=0.7, aa=False)
        for x, (size, column) in enumerate(zip(sizes, columns, strict=True)):
            color = BLUE if 0 < x < len(sizes) - 1 else ORANGE if x == 0 else GREEN
            axes.plot([x] * len(column), column, "o", ms=11, color=color, mec="white")
            name = "pixels" if x == 0 else "probabilities" if x == len(sizes) - 1 else "values"
            axes.text(x, -1.4, f"{size} {name}", ha="center", fontsize=10)
        axes.set(xlim=(-0.4, len(sizes) - 0.6), ylim=(-1.5, 1.15))
    show(drawn, f"{title}: {' -> '.join(map(str, sizes))} values, every value of a layer joined to all of the next.")


def draw_training(losses: Sequence[float], w: np.ndarray, right: float) -> None:
    """Draw the loss before each step, and the ten weights of each pixel as ten pictures.

    Args:
        losses: one a step.
        w: weights of shape (784, 10).
        right: share of the images, from 0 to 1, for which the layer then answers right.
    """
    title = f"Your layer: the loss falls, {right:.0%} are right. Its weights: red speaks for a digit, blue against it"
    with figure(7.0, 2.6, title) as (drawn, axes):
        axes.remove()
        grid = drawn.add_gridspec(2, 8, width_ratios=(3, 0.1, *[1] * 5, 0.05))
        curve, most = drawn.add_subplot(grid[:, 0]), np.abs(w).max()
        curve.plot(range(1, len(losses) + 1), losses, color=BLUE, marker="o", ms=4)
        curve.set(xlabel="step", ylabel="loss before it", ylim=(0, None))
        for digit, weights in enumerate(w.T):
            panel = drawn.add_subplot(grid[digit // 5, 2 + digit % 5])
            panel.imshow(weights.reshape(28, 28), cmap="RdBu_r", vmin=-most, vmax=most)
            panel.set_title(str(digit), fontsize=9, loc="center")
            panel.axis("off")
    change = f"from {losses[0]:.2f} to {losses[-1]:.2f}"
    show(drawn, f"{title}: the loss before each of {len(losses)} steps, {change}, and the weights of each digit.")


def draw_choice(chosen_by: np.ndarray, others: np.ndarray, title: str) -> None:
    """Draw each network's accuracy on images that choose one, and on others; mark the chosen one.

    Args:
        chosen_by: accuracies from 0 to 1, one a network, on the images by which the best is chosen.
        others: the same on other images.
        title: the message of the figure.
    """
    best = int(np.argmax(chosen_by))
    x, y = 100 * np.asarray(chosen_by), 100 * np.asarray(others)
    with figure(6.0, 3.2, title) as (drawn, axes):
        axes.plot(x, y, ".", color=GREY, ms=3, label="1,000 guessers")
        axes.plot(x[best], y[best], "o", color=ORANGE, ms=9, label="the chosen one")
        axes.set(xlabel="right of the 100 images that chose (%)", ylabel="right of other images (%)", ylim=(0, 25))
        axes.legend(loc="upper left")
    show(drawn, f"{title} The chosen one: {x[best]:.0f} % of the images that chose it, {y[best]:.1f} % of others.")


def draw_pairs(accuracies: Mapping[str, Mapping[int, float]], title: str) -> None:
    """Draw for each seed the accuracies of two ways of training, joined, and their difference.

    Args:
        accuracies: for each of the two ways the accuracy by seed, from 0 to 1, on the validation images.
        title: the message of the figure, with the dataset.
    """
    (before, first), (after, second) = accuracies.items()
    rows = range(len(first))
    with figure(7.5, 0.42 * len(first) + 1.7, title) as (drawn, axes):
        for row, seed in enumerate(first):
            ends = [100 * first[seed], 100 * second[seed]]
            axes.plot(ends, [row, row], color=GREY, lw=1.5, zorder=1)
            gap = f"{ends[1] - ends[0]:+.2f}"
            axes.annotate(gap, (max(ends), row), xytext=(9, 0), textcoords="offset points", fontsize=9, va="center")
        axes.scatter([100 * first[seed] for seed in first], rows, color=ORANGE, marker="o", label=before)
        axes.scatter([100 * second[seed] for seed in first], rows, color=BLUE, marker="s", label=after)
        axes.set_yticks(rows, [f"seed {seed}" for seed in first])
        axes.margins(x=0.12)
        axes.set(xlabel="accuracy on the validation images (%); beside it the difference in points")
        axes.set(ylim=(len(first) - 0.5, -0.5))
        drawn.legend(loc="outside lower center", ncols=2)
    words = "; ".join(f"seed {seed}: {100 * first[seed]:.2f} % and {100 * second[seed]:.2f} %" for seed in first)
    show(drawn, f"{title}. {before} and {after}: {words}.")


def describe_pairs(before: Mapping[int, float], after: Mapping[int, float]) -> str:
    """Say in how many pairs the second accuracy is higher, and how often luck alone makes all of them rise.

    Args:
        before: the accuracy by seed, from 0 to 1.
        after: the same with one change, for the same seeds.
    """
    differences = [100 * (after[seed] - before[seed]) for seed in before]
    higher, n = sum(difference > 0 for difference in differences), len(differences)
    return (
        f"{higher} of {n} pairs rise; differences from {min(differences):+.2f} to {max(differences):+.2f} points, "
        f"median {np.median(differences):+.2f}\n"
        f"(if a change does nothing, all {n} rise by luck alone once in {2**n} times)"
    )
