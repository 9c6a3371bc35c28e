"""Serve lesson 04, Train an MLP: its checks and its figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show

# ------------------------------------------------------------------------------------------- two layers in NumPy


def softmax(sums: np.ndarray) -> np.ndarray:
    """Return the probabilities (n, outputs) that belong to sums of that shape."""
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def forward(
    x: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden values (n, hidden) and the probabilities (n, outputs) of two layers for images (n, inputs)."""
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden, softmax(hidden @ w2 + b2)


def pass_back(errors: np.ndarray, w2: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Return the errors (n, hidden) of a layer's sums from those (n, outputs) of the sums of the layer behind it."""
    return errors @ w2.T * (hidden > 0)


def _draw_quarters(rng: np.random.Generator, shape: int | tuple[int, int], spread: float = 1) -> np.ndarray:
    """Return normal random numbers rounded to quarters, so that a message with them is short."""
    return np.round(4 * rng.normal(0, spread, shape)) / 4


def _draw_layers(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """Return images, w1, b1, w2 and b2 of several sizes; about half of the hidden values are 0."""
    drawn = []
    for n, inputs, hidden, outputs in [(1, 2, 3, 2), (3, 3, 3, 3), (5, 4, 2, 3), (4, 9, 5, 10), (2, 40, 6, 10)]:
        x = rng.integers(0, 5, (n, inputs)) / 4
        w1, w2 = _draw_quarters(rng, (inputs, hidden), inputs**-0.5), _draw_quarters(rng, (hidden, outputs))
        b1 = np.round(4 * (rng.normal(0, 0.3, hidden) - (x @ w1).mean(axis=0))) / 4
        b1 += 1 / 32  # the sums are sixteenths; a half of one keeps them from 0, where ReLU bends
        drawn.append((x, w1, b1, w2, _draw_quarters(rng, outputs)))
    return drawn


def _take_part(forward: Callable[..., Any], number: int) -> Callable[..., object]:
    """Return a function that returns one array of a forward pass: the hidden values (0) or the probabilities (1)."""

    def answer_part(*given: np.ndarray) -> object:
        found = forward(*given)
        if found is None or found is ...:
            return found
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise checks.NotYet("forward returns 2 arrays: the hidden values, the probabilities.")
        part = found[number]
        is_float = isinstance(part, np.ndarray) and part.dtype.kind == "f"
        return part.round(10) if is_float else part  # 0, not 2.15e-17

    answer_part.__name__ = f"{('hidden values', 'probabilities')[number]} of forward"
    return answer_part


def _refuse_ideas(found: object, ideas: Iterable[tuple[int, np.ndarray, str]]) -> None:
    """Raise NotYet with the sentence of the first wrong idea whose array a function returned.

    Args:
        found: what the function returned.
        ideas: for each the place of its array among those returned, the array, and the sentence.
    """
    returned = found if isinstance(found, tuple | list) else ()
    for place, values, sentence in ideas:
        part = returned[place] if place < len(returned) else None
        is_alike = isinstance(part, np.ndarray) and part.dtype.kind in "fiu" and part.shape == values.shape
        if is_alike and np.allclose(part, values):
            raise checks.NotYet(sentence)


@checks.print_verdict
def check_forward(learner: Callable[..., tuple]) -> Iterator[str]:
    """Judge exercise 1 of lesson 04: the hidden values and the probabilities of two layers."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        small = (np.array([[0.5, 1.0]]), np.array([[1.0, -1.0], [1.0, 0.0]]), np.array([0.0, 0.25]))
        easy = (*small, np.array([[1.0, -1.0], [0.0, 0.0]]), np.array([0.0, 0.5]))  # hidden 1.5 and 0, sums 1.5 and -1
        pair = np.array([[0.5, 1.0], [0.0, 0.0]])  # largest sums of 1,500 and 250, each subtracted from its own row
        large = (pair, *small[1:], 1_000 * np.eye(2), np.zeros(2))
        both_large = (*large[:4], np.array([0.0, 1_000.0]))  # 1,500 and 1,000: unequal, however large
        return [easy, large, both_large, *_draw_layers(rng)]

    x, w1, b1, w2, b2 = _draw_layers(np.random.default_rng(0))[2]
    given = [array.copy() for array in (x, w1, b1, w2, b2)]  # the learner may change them
    (hidden, right), found = forward(x, w1, b1, w2, b2), checks.answer(learner, *given, who="forward")
    ideas = [
        (0, right, "the two arrays are exchanged: return the hidden values first."),
        (0, x @ w1 + b1, "some hidden values are below 0: ReLU is missing."),
        (0, np.maximum(x @ w1, 0), "the biases b1 are missing: add them before ReLU."),
        (0, np.maximum(x @ w1, 0) + b1, "the biases b1 belong to the sums: add them before ReLU, not after it."),
        (1, hidden @ w2 + b2, "the second array holds the sums: softmax turns them into probabilities."),
        (1, softmax(hidden @ w2), "the biases b2 are missing."),
        (1, softmax((hidden @ w2 + b2).T).T, "each image's probabilities add up to 1: softmax runs along axis=1."),
        (
            1,
            softmax(np.maximum(hidden @ w2 + b2, 0)),
            "ReLU is for the first layer only: the ten sums may be negative.",
        ),
    ]
    _refuse_ideas(found, ideas)
    with np.errstate(all="ignore"):
        found = checks.answer(learner, *cases(np.random.default_rng(0))[1], who="forward")
        if isinstance(found, tuple | list) and len(found) == 2 and "nan" in str(found[1]):
            raise checks.NotYet(
                "sums of 1,500 and 250 give nan: subtract each row's own largest sum, as the softmax above does."
            )
    for number in range(2):
        tried = checks.judge_function(_take_part(learner, number), _take_part(forward, number), cases)

    def run(*given: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(part) for part in learner(*given))  # lists are right, too

    yield checks.keep_right("forward", run, tried)


@checks.print_verdict
def check_pass_back(learner: Callable[..., np.ndarray]) -> Iterator[str]:
    """Judge exercise 2 of lesson 04: the errors of the first layer's sums."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(np.array([[1.0, -1.0]]), np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[0.5, 0.0]]))]
        for x, w1, b1, w2, _ in _draw_layers(rng):
            errors = _draw_quarters(rng, (len(x), w2.shape[1]))
            drawn.append((errors, w2, forward(x, w1, b1, w2, np.zeros(1))[0]))
        return drawn

    errors, w2, hidden = cases(np.random.default_rng(0))[4]
    given = [array.copy() for array in (errors, w2, hidden)]  # the learner may change them
    passed, found = errors @ w2.T, checks.answer(learner, *given, who="pass_back")
    ideas = [
        (0, passed, "where ReLU made a hidden value 0, its sum's error is 0: mask the errors by hidden > 0."),
        (0, np.maximum(passed, 0), "errors may be negative: the mask asks where the hidden value is above 0."),
        (0, passed * hidden, "the mask holds only 1 and 0: multiply by hidden > 0, not by hidden."),
        (0, pass_back(errors, w2, hidden) / len(errors), "rule 1 has divided by n: don't divide again."),
    ]
    _refuse_ideas([found], ideas)
    tried = checks.judge_function(learner, pass_back, cases)
    yield checks.keep_right("pass_back", lambda *given: np.asarray(learner(*given)), tried)


def compare_slopes(
    backward: Callable[..., Sequence[np.ndarray]],
    loss: Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], float],
    x: np.ndarray,
    y: np.ndarray,
    parameters: Sequence[np.ndarray],
) -> None:
    """Print the slope of one parameter of each array: by moving it, and by the rules.

    Args:
        backward: returns the slopes of the loss for all parameters, in four arrays.
        loss: of images, labels and the four arrays.
        x: images of shape (n, 784).
        y: their labels, of shape (n,).
        parameters: w1, b1, w2, b2.
    """
    found = backward(x, y, *parameters)
    for part, (name, place) in enumerate({"w1": (406, 3), "b1": (3,), "w2": (3, 7), "b2": (7,)}.items()):
        losses = []
        for step in (1e-6, -1e-6):  # so small that hardly a ReLU switches in between
            moved = [array.copy() for array in parameters]
            moved[part][place] += step
            losses.append(loss(x, y, moved))
        by_moving = (losses[0] - losses[1]) / 2e-6
        print(f"{name}{list(place)}: by moving it {by_moving:.6f}, by the rules {found[part][place]:.6f}")


# ------------------------------------------------------------------------------------------------ an honest report


def report(chosen_by: np.ndarray, others: np.ndarray) -> float:
    """Return, of the network with the largest share on the images that choose, the share on other images."""
    return others[np.argmax(chosen_by)]


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
            ([0.80, 0.90, 0.90], [0.85, 0.86, 0.95]),  # the first of two that are equally good ...
            ([0.90, 0.90, 0.70], [0.88, 0.81, 0.99]),  # ... whichever of them the other images prefer
            ([0.60, 0.70], [0.65, 0.75]),  # better on the other images, by luck
        ]
        for n in (2, 3, 10, 1_000):
            known.append((rng.permutation(10_001)[:n] / 10_000, rng.permutation(10_001)[:n] / 10_000))
        return [(np.array(chosen_by), np.array(others)) for chosen_by, others in known]

    chosen_by, others = cases(np.random.default_rng(0))[0]
    idea = "0.95 is the winner's share of the images that chose it, which is on average too high."
    _refuse_ideas([np.asarray(checks.answer(learner, chosen_by, others, who="report"))], [(0, chosen_by.max(), idea)])
    yield checks.keep_right("report", learner, checks.judge_function(learner, report, cases))
    draw_choice(by_100, by_others, "The best of 1,000 guessers is a guesser.")


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


def draw_network(sizes: Sequence[int], title: str) -> None:
    """Draw layers of values, each a column of at most five circles, and a line for each weight between those drawn.

    Args:
        sizes: of the layers, inputs first.
        title: the message of the figure.
    """
    last = len(sizes) - 1
    with figure(6.0, 2.6, title) as (drawn, axes):
        axes.axis("off")
        columns = [np.linspace(1, -1, min(size, 5)) for size in sizes]
        for x, (left, right) in enumerate(itertools.pairwise(columns)):
            for y in left:
                ends = [[y] * len(right), right]
                axes.plot([[x] * len(right), [x + 1] * len(right)], ends, color="#BBBBBB", lw=0.7, aa=False)
            axes.text(x + 0.5, 1.2, f"layer {x + 1}: weights w{x + 1}", ha="center", fontsize=10)
        for x, (size, column) in enumerate(zip(sizes, columns, strict=True)):
            color = BLUE if 0 < x < last else ORANGE if x == 0 else GREEN
            axes.plot([x] * len(column), column, "o", ms=11, color=color, mec="white")
            name = "pixels" if x == 0 else "probabilities" if x == last else "hidden values"
            origin = f"\nsums + b{x}, then {'softmax' if x == last else 'ReLU'}" if x else ""
            axes.text(x, -1.3, f"{size} {name}{origin}", ha="center", va="top", fontsize=10)
        axes.set(xlim=(-0.4, last + 0.4), ylim=(-1.9, 1.4))
    joined = "every value joined to all of the next, by weights; biases and ReLU or softmax follow the sums"
    show(drawn, f"{title}: {' -> '.join(map(str, sizes))} values, {joined}.")


def draw_training(
    losses: Sequence[float], learned: np.ndarray, on: Sequence[np.ndarray], right: Mapping[str, float]
) -> None:
    """Draw the loss before each step, what the first layer's weights learned, and the share of right answers.

    Args:
        losses: one a step.
        learned: how the weights of the first layer changed, of shape (784, hidden); the first ten are drawn.
        on: the share of images, from 0 to 1, for which each hidden value is above 0: before the steps, and after them.
        right: for each set of images the share, from 0 to 1, that is answered right.
    """
    shares = ", ".join(f"{share:.0%} of {images}" for images, share in right.items())
    title = f"After {len(losses)} steps these are right: {shares}"
    with figure(7.0, 2.7, title) as (drawn, axes):
        axes.remove()
        grid = drawn.add_gridspec(2, 7, width_ratios=(3, 0.1, *[1] * 5))
        curve, most = drawn.add_subplot(grid[:, 0]), np.abs(learned).max()
        curve.plot(range(1, len(losses) + 1), losses, color=BLUE, marker="o", ms=3)
        curve.set(xlabel="step", ylabel="loss before it", ylim=(0, None))
        for number, weights in enumerate(learned.T[:10]):
            panel = drawn.add_subplot(grid[number // 5, 2 + number % 5])
            panel.imshow(weights.reshape(28, 28), cmap="PuOr", vmin=-most, vmax=most)
            before, after = (100 * shares[number] for shares in on)
            panel.set_title(f"{number}: {before:.0f} → {after:.0f} %", fontsize=8, loc="center")
            panel.axis("off")
    change = f"from {losses[0]:.2f} to {losses[-1]:.2f}"
    show(drawn, f"{title}. The loss before each step, {change}, and what the weights of ten hidden values learned.")


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
        axes.set(xlabel="right among the 100 images that chose (%)", ylabel="right among others (%)", ylim=(0, 25))
        axes.legend(loc="upper left")
    show(drawn, f"{title} The chosen one: {x[best]:.0f} % of the images that chose it, {y[best]:.1f} % of others.")
