"""Serve lessons 04, Train an MLP, and 04b, Judge a training: the checks, the figures, the time model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show
from helpers.measure.timing import duration

# ------------------------------------------------------------------------------------------- two layers in NumPy


def forward(
    x: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden values (n, hidden) and the probabilities (n, outputs) of two layers for images (n, inputs)."""
    hidden = np.maximum(x @ w1 + b1, 0)
    sums = hidden @ w2 + b2
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def backward(
    x: np.ndarray, y: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the slopes of the mean loss for w1, b1, w2 and b2, each of the same shape as its numbers."""
    hidden, probabilities = forward(x, w1, b1, w2, b2)
    errors = (probabilities - np.eye(len(b2))[y]) / len(x)
    hidden_errors = errors @ w2.T * (hidden > 0)
    return x.T @ hidden_errors, hidden_errors.sum(axis=0), hidden.T @ errors, errors.sum(axis=0)


def _draw_layers(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """Return images, labels, w1, b1, w2 and b2 of several sizes; about half of the hidden values are 0."""
    drawn = []
    for n, inputs, hidden, outputs in [(1, 2, 3, 2), (3, 3, 3, 3), (5, 4, 2, 3), (4, 9, 5, 10), (2, 784, 6, 10)]:
        x, y = rng.random((n, inputs)).round(2), rng.integers(0, outputs, n)
        w1, w2 = (rng.normal(size=(inputs, hidden)) / inputs**0.5).round(2), rng.normal(size=(hidden, outputs)).round(2)
        b1 = (rng.normal(0, 0.3, hidden) - (x @ w1).mean(axis=0)).round(2)
        b1 = (b1 + 0.00005).round(5)  # ReLU bends at 0: no sum is 0
        drawn.append((x, y, w1, b1, w2, rng.normal(size=outputs).round(2)))
    return drawn


def _judge_parts(
    name: str,
    learner: Callable[..., Any],
    reference: Callable[..., tuple],
    cases: Callable[[np.random.Generator], list[tuple]],
    parts: Sequence[str],
) -> str:
    """Judge a function that returns several arrays, one after the other, and keep a right one for later cells.

    Args:
        name: of the function.
        learner: the learner's function.
        reference: returns as many arrays.
        cases: as `checks.judge_function` takes them.
        parts: names the arrays.
    """

    def take_part(function: Callable[..., object], number: int) -> Callable[..., object]:
        def answer_part(*given: np.ndarray) -> object:
            found = function(*given)
            if found is None or found is ...:
                return found
            if not isinstance(found, tuple | list) or len(found) != len(parts):
                raise checks.NotYet(f"{name} returns {len(parts)} arrays: {', '.join(parts)}.")
            part = found[number]
            is_float = isinstance(part, np.ndarray) and part.dtype.kind == "f"
            return part.round(10) if is_float else part  # 0, not 2.15e-17

        answer_part.__name__ = f"{parts[number]} of {name}"
        return answer_part

    for number in range(len(parts)):
        tried = checks.judge_function(take_part(learner, number), take_part(reference, number), cases)

    def run(*given: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(part) for part in learner(*given))  # lists are right, too

    return checks.keep_right(name, run, tried)


@checks.print_verdict
def check_forward(learner: Callable[..., tuple]) -> Iterator[str]:
    """Judge exercise 1 of lesson 04: the hidden values and the probabilities of two layers."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        small = (np.array([[0.5, 1.0]]), np.array([[1.0, -1.0], [1.0, 0.0]]), np.array([0.0, 0.25]))
        easy = (*small, np.array([[1.0, -1.0], [0.0, 0.0]]), np.array([0.0, 0.5]))  # hidden 1.5 and 0, sums 1.5 and -1
        pair = np.array([[0.5, 1.0], [0.0, 0.0]])  # largest sums of 1,500 and 250, each subtracted from its own row
        large = (pair, *small[1:], 1_000 * np.eye(2), np.zeros(2))
        return [easy, large, *((x, *numbers) for x, _, *numbers in _draw_layers(rng))]

    yield _judge_parts("forward", learner, forward, cases, ("hidden", "probabilities"))


def _find_factor(values: object, right: np.ndarray) -> float:
    """Return the number by which all right values were multiplied; 1 if there is no such number, or if it is 0."""
    if not isinstance(values, np.ndarray) or values.shape != right.shape or values.dtype.kind not in "fiu":
        return 1.0
    factor = float((values * right).sum() / (right * right).sum())
    return factor if factor and np.allclose(values, factor * right) else 1.0


@checks.print_verdict
def check_backward(learner: Callable[..., tuple]) -> Iterator[str]:
    """Judge exercise 2 of lesson 04: the slopes of all weights and biases of two layers."""
    parts = ("the slopes for w1", "the slopes for b1", "the slopes for w2", "the slopes for b2")
    x, y, *parameters = next(drawn for drawn in _draw_layers(np.random.default_rng(0)) if len(drawn[0]) == 4)
    found = checks.answer(learner, x, y, *parameters, who="backward")
    hidden_errors = (forward(x, *parameters)[1] - np.eye(10)[y]) / len(x) @ parameters[2].T
    unmasked = x.T @ hidden_errors, hidden_errors.sum(axis=0)
    returned = found if isinstance(found, tuple | list) else ()
    for values, forgotten in zip(returned, unmasked, strict=False):
        if isinstance(values, np.ndarray) and values.shape == forgotten.shape and np.allclose(values, forgotten):
            raise checks.NotYet("where ReLU made a hidden value 0, its error is 0, too: mask the errors by hidden > 0.")
    for name, right, values in zip(parts, backward(x, y, *parameters), returned, strict=False):
        factor = _find_factor(values, right)
        if abs(factor - 1) > 1e-6:
            raise checks.NotYet(f"for {len(x)} images, {name} are {factor:.3g} times as large as expected.")
    yield _judge_parts("backward", learner, backward, _draw_layers, parts)


def compare_slopes(
    learner: Callable[..., Any],
    loss: Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], float],
    x: np.ndarray,
    y: np.ndarray,
    parameters: Sequence[np.ndarray],
) -> None:
    """Print the slope of one parameter of each array: by moving it, and as a learner's backward pass returns it.

    Args:
        learner: exercise 2's function; it may still return `...`.
        loss: of images, labels and the four arrays.
        x: images of shape (n, 784).
        y: their labels, of shape (n,).
        parameters: w1, b1, w2, b2.
    """
    found = learner(x, y, *parameters)
    for part, (name, place) in enumerate({"w1": (406, 3), "b1": (3,), "w2": (3, 7), "b2": (7,)}.items()):
        losses = []
        for step in (1e-6, -1e-6):  # so small that hardly a ReLU switches in between
            moved = [array.copy() for array in parameters]
            moved[part][place] += step
            losses.append(loss(x, y, moved))
        try:
            yours = f"{np.asarray(found[part])[place]:.6f}"
        except (TypeError, IndexError, ValueError):
            yours = "not there yet"
        print(f"{name}{list(place)}: by moving it {(losses[0] - losses[1]) / 2e-6:.6f}, by backward {yours}")


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
            ([0.80, 0.90, 0.90], [0.85, 0.86, 0.95]),  # the first of two that are equally good ...
            ([0.90, 0.90, 0.70], [0.88, 0.81, 0.99]),  # ... whichever of them the other images prefer
            ([0.60, 0.70], [0.65, 0.75]),  # better on the other images, by luck
        ]
        for n in (2, 3, 10, 1_000):
            known.append((rng.permutation(10_001)[:n] / 10_000, rng.permutation(10_001)[:n] / 10_000))
        return [(np.array(chosen_by), np.array(others)) for chosen_by, others in known]

    yield checks.judge_function(learner, lambda chosen_by, others: others[np.argmax(chosen_by)], cases)
    draw_choice(by_100, by_others, "The best of 1,000 guessers is a guesser.")


# ---------------------------------------------------------------------------- the exercises of its second sitting


def compute_interval(right: int, count: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of an accuracy, from 0 to 1: 1.96 standard errors to either side."""
    share = right / count
    reach = 1.96 * math.sqrt(share * (1 - share) / count)
    return share - reach, share + reach


@checks.print_verdict
def check_interval(learner: Callable[[int, int], Sequence[float]]) -> Iterator[str]:
    """Judge exercise 1 of lesson 04b; each end may be off by a tenth of the reach, as for 2 or for Wilson's formula."""
    rng = np.random.default_rng()
    cases = [(9_818, 10_000), (900, 1_000), (30_000, 60_000)]
    cases += [(int(count * rng.uniform(0.2, 0.97)), count) for count in rng.integers(2_000, 90_000, 5).tolist()]
    for right, count in cases:
        who = f"interval({right}, {count})"
        found = checks.answer(learner, right, count, who=who)
        if found is None or found is ...:
            raise checks.NotDone(f"{who} returns {found}.")
        expected = compute_interval(right, count)
        try:
            ends = np.asarray(found).astype(float, casting="same_kind")
        except (TypeError, ValueError, OverflowError):
            ends = np.empty(0)
        if ends.shape != (2,) or not np.allclose(ends, expected, rtol=0, atol=0.05 * (expected[1] - expected[0])):
            low, high = expected
            raise checks.NotYet(f"{who}: expected about ({low:.5f}, {high:.5f}), came {checks.short(found)}.")
    yield checks.keep_right("interval", learner, f"{len(cases)} cases")


def compute_luck(old: np.ndarray, new: np.ndarray) -> float:
    """Return how often fair coins split as unevenly as two networks' answers (McNemar's exact test, two-sided).

    Args:
        old: whether the first network is right, one bool an image.
        new: the same of the second network.
    """
    gained, lost = int((new & ~old).sum()), int((old & ~new).sum())
    coins = gained + lost
    tail = sum(math.comb(coins, heads) for heads in range(max(gained, lost), coins + 1))
    return min(1.0, 2 * tail / 2**coins)


def draw_answers(gained: int, lost: int, both: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whether an old and a new network are right: arrays of bools, one entry an image, in a random order.

    Args: how many images only the new network reads right, only the old one, both of them, and neither.
    """
    order = np.random.default_rng().permutation(gained + lost + both + neither)
    old = np.repeat([False, True, True, False], [gained, lost, both, neither])
    new = np.repeat([True, False, True, False], [gained, lost, both, neither])
    return old[order], new[order]


def compute_epoch_seconds(image_count: int, batch_size: int, overhead: float, per_image: float) -> float:
    """Return an epoch's seconds by the line; exercise 3 of lesson 04b writes this function."""
    return math.ceil(image_count / batch_size) * overhead + image_count * per_image


def fit_line(seconds: Mapping[int, float]) -> tuple[float, float]:
    """Return a step's overhead and the time of one more image, in seconds, and print how far the line is off at most.

    Both are NaN if the line is off by more than a quarter of a step's time.

    Args:
        seconds: for each size of a batch the time of a step; each size counts alike.
    """
    columns = np.array([[1 / took, size / took] for size, took in seconds.items()])
    overhead, per_image = np.maximum(np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)[0], 0)
    off = np.abs(columns @ [overhead, per_image] - 1).max()
    if off > 0.25:
        print(f"no line: it would be off by {off:.0%}. If other programs are busy, run the two cells again later.")
        return math.nan, math.nan
    print(f"overhead {1e3 * overhead:.3g} ms, {1e6 * per_image:.3g} µs for each image; off by at most {off:.0%}")
    return float(overhead), float(per_image)


def describe_line(seconds: float) -> str:
    """Return what the line says in words: a duration, or that there is no line (NaN)."""
    return "no line" if math.isnan(seconds) else duration(seconds)


@checks.print_verdict
def check_luck(learner: Callable[[np.ndarray, np.ndarray], float]) -> Iterator[str]:
    """Judge exercise 2 of lesson 04b; 0.01 may be missing, as where coins are thrown, or for McNemar's chi-square."""
    cases = [(9, 1, 80, 10), (60, 40, 800, 100), (40, 60, 800, 100), (8, 8, 900, 84), (0, 0, 90, 10)]
    cases += [(30, 50, 900, 20), (1, 0, 9, 0), (0, 12, 500, 20), (900, 800, 8_000, 300)]
    for counts in cases:
        gained, lost, *_ = counts
        old, new = draw_answers(*counts)
        expected = compute_luck(old, new)
        who = f"for {gained} gained and {lost} lost of {sum(counts):,} images, luck"
        found = checks.answer(learner, old.copy(), new.copy(), who=who)
        if found is None or found is ...:
            raise checks.NotDone(f"{who} returned {found}.")
        is_number = isinstance(found, int | float | np.integer | np.floating) and not isinstance(found, bool)
        if not is_number or not -0.01 <= found <= 1.01:  # thrown coins may give a little more than 1
            raise checks.NotYet(f"{who} returned {checks.short(found)}; expected a number from 0 to 1.")
        if not math.isclose(found, expected, rel_tol=0, abs_tol=0.01):
            why = " The other direction counts, too." if math.isclose(found, expected / 2, abs_tol=0.0005) else ""
            raise checks.NotYet(f"{who} returned {found:.3g}; expected about {expected:.3g}.{why}")
    yield checks.keep_right("luck", learner, f"{len(cases)} cases")


@checks.print_verdict
def check_epoch_seconds(learner: Callable[[int, int, float, float], float]) -> Iterator[str]:
    """Judge exercise 3 of lesson 04b: every started batch costs a step's overhead, every image its arithmetic."""

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
        seconds = compute_epoch_seconds(image_count, batch_size, overhead, per_image)
        return float(f"{seconds:.9g}")  # 0.026, not 0.026000000000000002

    yield checks.keep_right("epoch_seconds", learner, checks.judge_function(learner, right, cases))


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


def draw_training(losses: Sequence[float], learned: np.ndarray, on: np.ndarray, right: Mapping[str, float]) -> None:
    """Draw the loss before each step, what the first layer's weights learned, and the share of right answers.

    Args:
        losses: one a step.
        learned: how the weights of the first layer changed, of shape (784, hidden); the first ten are drawn.
        on: the share of images, from 0 to 1, for which each hidden value is above 0.
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
            panel.set_title(f"{number}: {on[number]:.0%} on", fontsize=8, loc="center")
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


def draw_pairs(pairs: Mapping[int, tuple[np.ndarray, np.ndarray]], names: tuple[str, str], title: str) -> None:
    """Draw for each seed the accuracies of two ways of training, joined, and the images that only one of them reads.

    Args:
        pairs: for each seed two arrays of bools, whether each validation image is right.
        names: of the two ways.
        title: the message of the figure, with the dataset.
    """
    rows, words = range(len(pairs)), []
    shares = 100 * np.array([[right.mean() for right in pair] for pair in pairs.values()])
    with figure(7.0, 0.42 * len(pairs) + 1.8, title) as (drawn, axes):
        for row, (seed, (old, new)) in enumerate(pairs.items()):
            gap = f"+{(new & ~old).sum()}, -{(old & ~new).sum()}"
            axes.plot(shares[row], [row, row], color=GREY, lw=1.5, zorder=1)
            axes.text(shares[row].max(), row, f"   {gap}", fontsize=9, va="center")
            words.append(f"seed {seed}: {shares[row, 0]:.2f} % and {shares[row, 1]:.2f} % ({gap} images)")
        for way, (color, marker) in enumerate([(ORANGE, "o"), (BLUE, "s")]):
            axes.scatter(shares[:, way], rows, color=color, marker=marker, label=names[way])
        axes.set_yticks(rows, [f"seed {seed}" for seed in pairs])
        axes.margins(x=0.2)
        axes.set(xlabel="accuracy on the validation images (%)", ylim=(len(pairs) - 0.5, -0.5))
        drawn.legend(loc="outside lower center", ncols=2)
    show(drawn, f"{title}. {names[0]} and {names[1]}: {'; '.join(words)}.")
