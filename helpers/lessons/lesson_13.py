"""Serve lesson 13, Break training on purpose: the checks of its exercises, the faulty training runs, and its figure."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers.judge import checks
from helpers.judge.checks import NotDone, NotYet
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, RED, figure, show

if TYPE_CHECKING:
    import jax

# ---------------------------------------------------------------------------------------------- curves of the loss


SMOOTHED = 5  # steps for each point of a curve


def draw_losses(runs: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw the loss of each step of training runs, beside the loss of guessing.

    Args:
        runs: by name the losses, one a step; a multiple of SMOOTHED steps.
        title: the message of the figure.
    """
    looks = ((BLUE, "-", 2), (ORANGE, "--", 2), (GREEN, "-.", 1.6), (RED, ":", 3.5))  # the last may lie on the first
    words = []
    with figure(7.5, 2.8, title) as (drawn, axes):
        axes.axhline(np.log(10), color=GREY, label="guessing: 2.30")
        for (name, losses), (color, style, width) in zip(runs.items(), looks, strict=True):
            label = f"{name}: first {losses[0]:.2f}, last 100: {np.mean(losses[-100:]):.2f}"
            means = np.reshape(losses, (-1, SMOOTHED)).mean(axis=1)
            steps = SMOOTHED * np.arange(1, len(means) + 1)
            axes.plot(steps, means, color=color, ls=style, lw=width, label=label)
            words.append(label)
        axes.set(xlabel="step", ylabel=f"loss, mean of {SMOOTHED} steps")
        if max(map(max, runs.values())) > 10:
            axes.set(yscale="log", yticks=(1, 10, 100), yticklabels=("1", "10", "100"))
            axes.set_ylim(bottom=1)  # the space below would squeeze the runs near guessing
        drawn.legend(loc="outside right upper", fontsize=9)
    show(drawn, f"{title} Loss by step: {'; '.join(words)}; guessing: 2.30.")


# --------------------------------------------------------------------------------- exercise 1: prepare the images


@checks.print_verdict
def check_prepare(learner: Callable[..., object]) -> Iterator[str]:
    """Judge exercise 1 of lesson 13: images (28, 28, n) as rows, from 0 to 1, shuffled together with their labels."""
    cases = ((2, 1, False), (1, 1, False), (60, 1, True), (300, 1, False), (784, 1, False), (784, 2, False))
    orders = [_judge_prepare(learner, count, seed, faint) for count, seed, faint in cases]
    for order in orders:
        if len(order) >= 60:  # fewer images may keep their order by luck
            _judge_shuffling(order)
    if _judge_prepare(learner, 784, seed=2) != orders[-1]:
        raise NotYet("the same generator `rng` gave two different orders; take the order from `rng` alone.")
    if orders[-2] == orders[-1]:
        raise NotYet("two generators of different seeds gave the same order; take the order from `rng`.")
    yield f"{len(orders)} times, each image once beside its own label"


def _judge_prepare(learner: Callable[..., object], count: int, seed: int, faint: bool = False) -> list[int]:
    """Judge `prepare` on random images, no two alike, and return the order in which they came.

    Args:
        learner: the learner's `prepare`.
        count: of the images.
        seed: of the generator that `prepare` gets.
        faint: whether no image has full ink, so that dividing by the largest pixel of all is found.
    """
    images, labels = _make_images(count, faint)
    where = "for 1 image" if count == 1 else f"for {count} images"
    given = images.copy(), labels.copy()
    x, y = _read_pair(checks.answer(learner, *given, np.random.default_rng(seed), who=f"{where} prepare"), where)
    if np.array_equal(x, images.reshape(-1, 784)[np.random.default_rng(seed).permutation(count)]):
        raise NotDone("this is what you were given, and it has the faults.")
    if x.shape != (count, 784) or x.dtype.kind != "f" or x.dtype == np.float64:
        raise NotYet(f"{where} expected x of shape {(count, 784)} and float32; came {x.shape}, {x.dtype}.")
    if y.shape != (count,) or y.dtype.kind not in "iu":
        raise NotYet(f"{where} expected y of shape {(count,)} and an integer dtype; came {y.shape}, {y.dtype}.")
    order = _find_order(x, images, where)
    for row, place in enumerate(order):
        if y[row] != labels[place]:
            raise NotYet(
                f"{where} row {row} of x shows image {place}, whose label is {labels[place]}; y says {y[row]}."
            )
    if len(set(order)) < count:
        raise NotYet(f"{where} an image comes twice, and another is lost; expected each once.")
    if not (np.array_equal(given[0], images) and np.array_equal(given[1], labels)):
        raise NotYet(f"{where} it changed its arguments; work on copies.")
    return order


def _make_images(count: int, faint: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return random images (28, 28, count), uint8, no two alike, and labels (count,), uint8."""
    rng = np.random.default_rng()
    images = rng.integers(0, 256, (28, 28, count), np.uint8)
    images[0, 0], images[27, 27] = 0, 255
    images[0, 1], images[0, 2] = np.arange(count) % 256, np.arange(count) // 256
    images[..., 0] //= 2  # fainter than the others: dividing each image by its largest pixel is found
    if faint:
        images = images // 3 * 2
    return images, rng.integers(0, 10, count).astype(np.uint8)


def _read_pair(answer: Any, where: str) -> tuple[np.ndarray, np.ndarray]:  # noqa: ANN401 (a learner's)
    """Return a learner's answer as two arrays, which may be JAX' too; NotDone or NotYet if it is no pair."""
    if answer is None or answer is ...:
        raise NotDone(f"prepare returned {answer}; expected the pair x, y.")
    is_pair = isinstance(answer, list | tuple) and len(answer) == 2
    if not is_pair or not all(hasattr(array, "__array__") for array in answer):
        raise NotYet(f"{where} expected two arrays, x and y; came {checks.short(answer)}.")
    return np.asarray(answer[0]), np.asarray(answer[1])


def _find_order(x: np.ndarray, images: np.ndarray, where: str) -> list[int]:
    """Return for each row of x which of the images it shows, divided by 255; NotYet if it shows none of them."""
    pixels, order = images.transpose(2, 0, 1).reshape(-1, 784), []
    places = {image.tobytes(): place for place, image in enumerate(pixels)}
    for number, row in enumerate(x):
        with np.errstate(invalid="ignore"):  # NaN
            place = places.get(np.rint(row * 255).astype(np.uint8).tobytes())
        if place is None or not np.allclose(row, pixels[place] / 255, rtol=0, atol=4e-6):
            raise NotYet(f"{where} row {number} of x {_describe_wrong_row(row, pixels)}")
        order.append(place)
    return order


def _describe_wrong_row(row: np.ndarray, pixels: np.ndarray) -> str:
    """Say whether a row is one of the images (n, 784) that was divided by another number than 255, or none of them."""
    with np.errstate(all="ignore"):  # a row may hold NaN, or 0 alone
        same = np.isclose(row / row.max(), pixels / pixels.max(axis=1, keepdims=True), atol=1e-5).all(axis=1)
    if same.any():
        return f"is an image divided by {pixels[same.argmax()].max() / row.max():g}; divide each image by 255."
    return (
        f"is none of the images, divided by 255 and read row by row; it goes from {row.min():g} to {row.max():g}. "
        "Show it as a picture."
    )


def _judge_shuffling(order: Sequence[int]) -> None:
    """Raise NotYet if most images are in their stored order, or at equal distances from one to the next."""
    _, steps = np.unique(np.diff(order) % len(order), return_counts=True)  # from each image to the next
    in_place = np.sum(np.array(order) == np.arange(len(order)))
    if max(steps.max(), in_place) > len(order) / 4:
        raise NotYet(
            f"of {len(order)} images most are still in their stored order, or at equal distances from one to the "
            f"next: {', '.join(map(str, order[:8]))}, ... Expected them shuffled."
        )


# -------------------------------------------------------------------------- exercise 2: forget, and softmax twice


@checks.print_verdict
def check_broken(forgetful: Callable[..., object], loss_twice: Callable[..., object]) -> Iterator[str]:
    """Judge exercise 2 of lesson 13: a step that never forgets a gradient, and a loss with softmax twice."""

    def never_forgets(weights: float, total: float, gradient: float, rate: float) -> list[float]:
        return [weights - rate * (total + gradient), total + gradient]

    def draw(rng: np.random.Generator, count: int) -> tuple:
        weights, x, y = rng.normal(0, 1, (784, 10)), rng.uniform(0, 1, (count, 784)), rng.integers(0, 10, count)
        return weights.astype(np.float32), x.astype(np.float32), y.astype(np.uint8)

    answers: list[Any] = []
    for _ in range(2):  # one may keep a list
        answers.append(checks.answer(forgetful, 2.0, 4.0, 1.0, 0.5, who="forgetful"))
    if all(np.array_equal(answer, (1.5, 1.0)) for answer in answers):
        raise NotDone("forgetful uses the new gradient alone: it is unchanged.")
    fixed = [(2.0, 4.0, 1.0, 0.5), (1.0, 0, 0.25, 0.5), (1.0, -0.5, -0.25, 0.5)]
    yield checks.judge_function(forgetful, never_forgets, lambda rng: [*fixed, *rng.uniform(0.5, 1, (5, 4)).tolist()])
    rng, counts = np.random.default_rng(), (2, 4, 10)
    for weights, x, y in (draw(rng, count) for count in counts):
        actual: Any = checks.answer(loss_twice, weights.copy(), x.copy(), y.copy(), who="loss_twice")
        if actual is None:
            raise NotDone("loss_twice returned None.")
        expected, once = (float(_compile_loss(softmax_twice=twice)(weights, x, y)[0]) for twice in (True, False))
        if checks.describe_mismatch(expected, actual):
            came = f"{float(actual):.4f}" if np.ndim(actual) == 0 else checks.short(actual)
            as_once = "" if checks.describe_mismatch(once, actual) else ", as with softmax once"
            raise NotYet(f"for {len(y)} random images expected the mean loss {expected:.4f}, came {came}{as_once}.")
    yield f"{len(counts)} batches"


# --------------------------------------------------------------------------------- exercise 3: are the units dead?


class DeepRun(NamedTuple):
    """A training run of two layers, as exercise 3 passes it to a learner's experiment."""

    x: np.ndarray  # images, float32 (n, 784), from 0 to 1
    y: np.ndarray  # labels, (n,)
    layers: list[np.ndarray]  # the weights at the end, float32 (784, 32) and (32, 10)
    losses: list[float]  # one for each step


def _make_run(x: np.ndarray, y: np.ndarray, layers: Sequence[np.ndarray]) -> DeepRun:
    """Return a run that kept these layers: each of its losses is that of all images."""
    scores = np.maximum(x @ layers[0], 0) @ layers[1]
    loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]
    return DeepRun(x, y, [layer.astype(np.float32) for layer in layers], 300 * [float(loss.mean())])


@functools.cache
def make_deep_runs() -> dict[str, tuple[DeepRun, bool]]:
    """Return runs by what is special of them, each with whether its units are dead; the images are made up."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 600)
    x = np.clip(rng.uniform(0, 0.5, (10, 784))[y] + rng.uniform(0, 0.5, (600, 784)), 0, 1).astype(np.float32)
    x[:, :40] = 0  # as at the edge of a digit, where no step changes a weight
    first, second = rng.uniform(-0.036, 0.036, (784, 32)), rng.uniform(-0.18, 0.18, (32, 10))
    likeness = (x @ x[0]) / x.sum(axis=1)  # of each image to one of them
    few = first - 0.1
    few[:, 0] = (x[0] - np.sort(likeness)[-20]) / 100  # a little on for the 20 images that are most like it
    order, alike = np.argsort(likeness), np.tile(x[:1], (600, 1))
    with_empty = x.copy()
    with_empty[0] = 0  # all sums of this image are exactly 0
    means = np.stack([x[y == digit].mean(axis=0) for digit in range(10)])
    learned = [np.pad((means - x.mean(axis=0)).T, ((0, 0), (0, 22))), 30 * np.eye(32, 10)]
    return {
        "has shuffled labels": (_make_run(x, rng.permutation(y), [first, second]), False),
        "has images that are all alike": (_make_run(alike, np.arange(600) % 10, [first, second]), False),
        "made one step that was far too large": (_make_run(x, y, [first - x.mean(0)[:, None], second]), True),
        "began with negative sums": (_make_run(x, y, [first - 0.1, second]), True),
        "has an empty image, and negative sums for all others": (_make_run(with_empty, y, [first - 0.1, second]), True),
        "has a second layer of zeros": (_make_run(x, y, [first, 0 * second]), False),
        "has a unit that is on for a few of 600 images": (_make_run(x[order], y[order], [few, second]), False),
        "has learned its images, so that every slope is 0": (_make_run(x, y, learned), False),
    }


@checks.print_verdict
def check_is_dead(is_dead: Callable[[DeepRun], object]) -> Iterator[str]:
    """Judge exercise 3 of lesson 13: an experiment that finds the runs in which no unit is on for any image."""
    runs = make_deep_runs()
    for what, (run, expected) in runs.items():
        given = DeepRun(*copy.deepcopy(tuple(run)))
        actual: Any = checks.answer(is_dead, given, who=f"for the run that {what} is_dead")
        if actual is None or actual is ...:
            raise NotDone(f"is_dead returned {actual}.")
        is_truth = isinstance(actual, bool) or (hasattr(actual, "__array__") and np.asarray(actual).shape == ())
        if not is_truth:
            raise NotYet(f"expected True or False, came {checks.short(actual)}.")
        if bool(actual) != expected:
            raise NotYet(f"the run that {what} (last loss {run.losses[-1]:.4f}): expected {expected}, came {actual}.")
    yield f"{len(runs)} runs"


# ------------------------------------------------------------------------- exercise 4: find the faults of four runs


@dataclass(frozen=True)
class Training:
    """A training run of exercise 4: the network of the lesson on JAX, with one fault.

    What tells the fault is private, so that Tab does not offer it to the learner.
    """

    x: np.ndarray = field(repr=False)  # the network's images, (n, 784), float32
    y: np.ndarray = field(repr=False)  # its labels, (n,)
    _cause: str = field(repr=False)
    _rate: float = field(repr=False, default=0.1)
    _seed: int = field(repr=False, default=0)  # of the first weights, and of the batches

    def losses(self) -> list[float]:
        """Return the loss of each of the 300 steps."""
        return self._train(self.x, self.y, self._rate)[1].tolist()

    def end(self, rate: float | None = None, images: int | None = None) -> float:
        """Return the mean of the last 100 losses, with a change or without.

        Args:
            rate: another learning rate.
            images: train with this number of images alone, drawn at random.
        """
        chosen = slice(None) if images is None else np.random.default_rng(0).choice(len(self.x), images, replace=False)
        return float(np.mean(self._train(self.x[chosen], self.y[chosen], rate or self._rate)[1][-100:]))

    def growth(self) -> float:
        """Compute the gradient of one batch twice, weights unchanged; return how many times larger the second is."""
        one_batch = np.zeros((784, 10), np.float32), self.x[:128], self.y[:128]
        first = _compile_loss(softmax_twice=self._cause == "softmax twice")(*one_batch)[1]
        second = first + first if self._cause == "gradients add up" else first
        return float(np.abs(second).max() / np.abs(first).max())

    def row_sum(self) -> float:
        """Return the sum, to 4 digits, of the ten numbers that the trained network passes to its loss for an image."""
        scores = self.x[0] @ self._train(self.x, self.y, self._rate)[0]
        powers = np.exp(scores - scores.max())
        return round(float((powers / powers.sum() if self._cause == "softmax twice" else scores).sum()), 4)

    def _train(self, x: np.ndarray, y: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights (784, 10) at the end, and the loss of each step."""
        rng = np.random.default_rng(self._seed)
        weights = rng.uniform(-0.036, 0.036, (784, 10)).astype(np.float32)
        batches = rng.integers(0, len(x), (300, 128))
        train = _compile_training(
            softmax_twice=self._cause == "softmax twice", adds_up=self._cause == "gradients add up"
        )
        weights, losses = train(weights, x, y, batches, np.float32(rate))
        return np.asarray(weights), np.asarray(losses)


@functools.cache
def _compile_loss(*, softmax_twice: bool) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return a compiled function of (weights, x, y), which returns the mean loss and its gradient."""
    import jax

    def loss_of(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = x @ weights
        log_p = jax.nn.log_softmax(jax.nn.softmax(scores) if softmax_twice else scores)
        return -log_p[np.arange(len(y)), y].mean()

    return jax.jit(jax.value_and_grad(loss_of))


@functools.cache
def _compile_training(*, softmax_twice: bool, adds_up: bool) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return a compiled function of (weights, x, y, batches, rate), which returns the last weights and the losses."""
    import jax

    loss_of = _compile_loss(softmax_twice=softmax_twice)

    def train(
        weights: jax.Array, x: jax.Array, y: jax.Array, batches: jax.Array, rate: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        def step(state: tuple[jax.Array, jax.Array], batch: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            weights, total = state
            loss, gradient = loss_of(weights, x[batch], y[batch])
            total = total + gradient if adds_up else gradient
            return (weights - rate * total, total), loss

        (weights, _), losses = jax.lax.scan(step, (weights, 0 * weights), batches)
        return weights, losses

    return jax.jit(train)


def make_runs(x: np.ndarray, y: np.ndarray) -> dict[str, Training]:
    """Return the four training runs of exercise 4 by letter.

    Args:
        x: images without a fault, float32 (n, 784), from 0 to 1.
        y: their labels, (n,).
    """
    return {
        "A": Training(x, y, "rate too high", 100),
        "B": Training(x, _shuffle(y, 1), "pairs"),
        "C": Training(x, y, "softmax twice"),
        "D": Training(x, y, "gradients add up", 1),
    }


def _shuffle(y: np.ndarray, seed: int) -> np.ndarray:
    return y[np.random.default_rng(seed).permutation(len(y))]


class Suspect(NamedTuple):
    """A possible cause of a failure in exercise 4."""

    symptom: str  # experiments distinguish the suspects with the same symptom
    experiment: str  # that tells it from the others, as a learner writes it


ABOVE, BETWEEN = "its last losses lie above guessing", "its last losses lie between 1 and guessing"
SUSPECTS = {
    "raw pixels": Suspect(ABOVE, "run.x.max()"),
    "gradients add up": Suspect(ABOVE, "run.growth()"),
    "rate too high": Suspect(ABOVE, "run.end(rate=0.3)"),
    "rate too low": Suspect(BETWEEN, "run.end(rate=0.3)"),
    "softmax twice": Suspect(BETWEEN, "run.row_sum()"),
    "pairs": Suspect(BETWEEN, "run.end(images=32)"),
}


def make_others(x: np.ndarray, y: np.ndarray) -> list[Training]:
    """Return runs with each of SUSPECTS, on which a learner's test is tried; arguments are as of `make_runs`."""
    return [
        Training(255 * x, y, "raw pixels", 0.1, 1),
        Training(255 * x, y, "raw pixels", 0.01, 2),
        Training(x, y, "gradients add up", 1, 3),
        Training(x, y, "gradients add up", 3, 4),
        Training(x, y, "rate too high", 100, 5),
        Training(x, y, "rate too high", 300, 6),
        Training(x, y, "rate too low", 0.0003, 7),
        Training(x, y, "rate too low", 0.003, 8),
        Training(x, y, "rate too low", 0.01, 9),
        Training(x, y, "softmax twice", 0.1, 10),
        Training(x, y, "softmax twice", 0.3, 11),
        Training(x, _shuffle(y, 2), "pairs", 0.1, 12),
        Training(x, _shuffle(y, 3), "pairs", 0.05, 13),
    ]


@checks.print_verdict
def check_diagnosis(diagnosis: Mapping[str, Sequence], x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """Judge exercise 4 of lesson 13: of each training run the cause, and a test that is True for no other suspect."""
    others = make_others(x, y)

    def judge(letter: str, broken: Training, cause: object, test: object) -> None:
        names = {name.lower(): name for name in SUSPECTS}
        name = names.get(" ".join(str(cause).partition("(")[0].lower().split()))
        if name is None:
            raise NotYet(f"{letter}: the cause {cause!r} is not in the list: {', '.join(SUSPECTS)}.")
        symptom, experiment = SUSPECTS[name]
        if symptom != SUSPECTS[broken._cause].symptom:
            raise NotYet(f"{letter}: {name!r} has another symptom: {symptom}.")
        if name != broken._cause:
            raise NotYet(f"{letter}: {name!r} is not its cause. What would {experiment} print if it were?")
        if not callable(test):
            raise NotYet(
                f"{letter}: the cause is right. Its test must be a function, such as `lambda run: run.x.max() > 1`; "
                f"came {checks.short(test)}."
            )
        if not _try_test(test, broken, letter):
            raise NotYet(f"{letter}: the cause is right, but the test returns False for {letter} itself.")
        for other in others:
            has_symptom = SUSPECTS[other._cause].symptom == symptom
            if has_symptom and other._cause != name and _try_test(test, other, letter):
                raise NotYet(
                    f"{letter}: the cause is right, but the test returns True for a run with {other._cause!r}, too "
                    f"(its rate: {other._rate:g}). Which experiment would rule that out?"
                )

    yield checks.judge_diagnosis(diagnosis, make_runs(x, y), ("cause", "test"), "runs", judge)


def _try_test(test: Callable[..., object], run: Training, letter: str) -> bool:
    """Return what a learner's test of a run says; NotYet if that is neither True nor False."""
    said: Any = checks.answer(test, run, who=f"{letter}: the test")
    is_truth = isinstance(said, bool) or (hasattr(said, "dtype") and said.dtype == bool and said.ndim == 0)
    if not is_truth:
        raise NotYet(f"{letter}: expected a test that returns True or False, came {checks.short(said)}.")
    return bool(said)
