"""Lesson 05, Train a CNN: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute.quiet import caught_stderr
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure import timing
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.measure.timing import Measurement, compare, duration, is_clear

if TYPE_CHECKING:
    import keras
    from matplotlib.axes import Axes


@checks.verdict
def check_convolution_cost(learner: Callable[[int, int, int, int, int], tuple[int, int]]) -> Iterator[str]:
    """Lesson 05, exercise 1: the parameters of a convolution without padding, and its multiplications for one image."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(28, 28, 1, 32, 3), (26, 26, 32, 64, 3), (5, 9, 2, 3, 5), (7, 4, 3, 2, 1)]
        drawn = [
            (*(int(n) for n in rng.integers(6, 40, 2)), *(int(n) for n in rng.integers(2, 20, 2)), int(size))
            for size in rng.integers(1, 6, 20)
        ]
        return plain + drawn

    def right(height: int, width: int, channels: int, filters: int, size: int) -> tuple[int, int]:
        places = (height - size + 1) * (width - size + 1)
        return (size**2 * channels + 1) * filters, places * size**2 * channels * filters

    yield checks.judge_function(learner, right, cases)
    large = [(400, 300, 64, 128, 5), (224, 224, 3, 64, 7), (1023, 517, 33, 65, 3)]
    for arguments in large + cases(np.random.default_rng()):  # whole numbers: to the last digit
        expected, actual = right(*arguments), learner(*arguments)
        came = f"for {learner.__name__}{arguments} expected {expected}, came {tuple(actual)}"
        if any(isinstance(one, float | np.floating) for one in actual):
            raise checks.NotYet(f"{came}; both are counts, so whole numbers (`/` makes a float, `//` does not).")
        if not all(one == other for one, other in zip(expected, actual, strict=True)):
            raise checks.NotYet(f"{came}; both are counts, and must be exact.")


@checks.verdict
def check_neighbours(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Lesson 05, exercise 2: the nine pixels under a 3 x 3 filter at each of its places, a row for each."""

    def right(image: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(image, (3, 3)).reshape(-1, 9)

    small = [(np.arange(h * w).reshape(h, w),) for h, w in ((3, 4), (3, 3), (4, 3))]  # short enough to be read
    yield checks.judge_function(learner, right, lambda rng: small)
    rng = np.random.default_rng()
    images = [rng.integers(-99, 100, (h, w)) for h, w in ((28, 28), (4, 9), (12, 5), *rng.integers(3, 30, (4, 2)))]
    images += [rng.random((7, 6), "float32"), rng.integers(0, 256, (6, 8)).astype("uint8")]
    for image in images:
        width, before, expected = image.shape[1], image.copy(), right(image)
        where = f"for an image of shape {image.shape} and type {image.dtype}"
        try:
            actual = np.asarray(learner(image))
        except Exception as error:
            raise checks.NotYet(f"{where} it stopped with {type(error).__name__}: {error}") from None
        if actual.shape != expected.shape:
            raise checks.NotYet(f"{where} expected an array of shape {expected.shape}, came one of {actual.shape}.")
        if not np.array_equal(image, before):
            raise checks.NotYet(f"{where} it changed the image; work on a copy.")
        for row in np.flatnonzero((actual != expected).any(axis=1))[:1]:
            y, x = divmod(int(row), width - 2)
            raise checks.NotYet(
                f"{where}, the row {row}, for the place y = {y}, x = {x}, "
                f"expected {expected[row].tolist()}, came {actual[row].tolist()}"
            )
    yield f"{len(images)} larger images"


@checks.verdict
def check_own_change(
    build: Callable[[], keras.Model],
    decide: Callable[[Sequence[float], Sequence[float]], str],
    build_before: Callable[[], keras.Model],
    prediction: object,
    measure: Callable[[Mapping[str, keras.Model]], tuple[Measurement, ...]],
    how: str,
) -> Iterator[str]:
    """Lesson 05, exercise 3: a network that computes the same in another way, and what two measurements allow to say.

    Which form is faster is not judged: that is for the machine to say.

    Args:
        build: the learner's network.
        decide: the learner's rule, from the seconds of two forms to "faster", "slower" or "no claim".
        build_before: returns the network to compare with.
        prediction: what the learner expects `decide` to say.
        measure: times the training of two networks in turn; the names it is given stand beside the numbers.
        how: how long its runs are, and whether that is too short to judge.
    """
    _judge_same_network(build, build_before)
    yield "build_mine: the same answers in another way"
    _judge_letters(decide)
    yield f"decide: {checks.judge_function(decide, _decide, _timings)}"
    if prediction not in (None, ..., *CLAIMS):
        raise checks.NotYet(f"guess: expected {_CLAIMS}, in small letters, or None; came {prediction!r}.")
    before, after = measure({"before": build_before(), "mine": build()})
    print(f"{before}\n{after}")
    checks.compare_prediction(prediction, f"{decide(list(before.seconds), list(after.seconds))} ({how})")


CLAIMS = ("faster", "slower", "no claim")
_CLAIMS = '"faster", "slower" or "no claim"'


def _judge_letters(decide: Callable[..., object]) -> None:
    """Say so where an answer of `decide` is right but for its letters."""
    try:
        answers = [decide(before, after) for before, after in _timings(np.random.default_rng())]
    except Exception:
        return  # the judge of its answers tells
    for said in answers:
        if isinstance(said, str) and said not in CLAIMS and said.strip().lower() in CLAIMS:
            raise checks.NotYet(f"decide returned {said!r}; the three answers are {_CLAIMS}, in small letters.")


def _judge_same_network(build: Callable[[], keras.Model], build_before: Callable[[], keras.Model]) -> None:
    """Raise NotYet unless a network has the weights of another and answers alike, and is written differently."""
    import keras

    try:
        model = build()
    except Exception as error:
        if "uint8" in str(error):
            raise checks.NotYet(
                "build_mine() stopped: a layer was given bytes (uint8), and cannot compute with them. "
                "`layers.Rescaling`, right after `keras.Input`, makes fractions from 0 to 1 of them."
            ) from None
        raise checks.NotYet(f"build_mine() stopped with {type(error).__name__}: {error}") from None
    if model is None or model is ...:
        raise checks.NotDone("build_mine() returns nothing.")
    if isinstance(model, keras.Sequential) and not model.built:
        raise checks.NotYet("build_mine() returns a network that does not know its input; begin with keras.Input.")
    if not isinstance(model, keras.Model):
        raise checks.NotYet(f"build_mine() returns one {type(model).__name__}; a Keras model is expected.")
    if len(getattr(model, "inputs", None) or []) != 1:
        raise checks.NotYet("build_mine() returns a network without one keras.Input; begin with it.")
    before = build_before()
    takes = str(getattr(model.inputs[0].dtype, "name", model.inputs[0].dtype))
    if takes != "uint8":
        raise checks.NotYet(
            f'its input takes {takes}, and the images are bytes: give keras.Input dtype="uint8"'
            + ("." if _scales(model) else ", and scale them: `Rescaling` is missing.")
        )
    if model.input_shape[0] not in (None, _BATCH):
        raise checks.NotYet(f"its input takes {model.input_shape[0]} images at once; it is trained on {_BATCH}.")
    for what, seen in _ALIKE.items():
        expected, actual = seen(before), seen(model)
        if expected != actual:
            raise checks.NotYet(f"{what}: expected {expected}, as in article C's network; came {actual}.")
    model.set_weights(before.get_weights())
    _judge_same_answers(before, model)
    if _steps(before) == _steps(model):
        raise checks.NotYet(
            f"it takes the same steps in the same order as before ({', '.join(_steps(model))}), so there is nothing to "
            "measure: ReLU still comes before the pooling. (A ReLU after another changes nothing; and the check "
            "compiles both networks alike.)"
        )


_BATCH = 128  # images in a training step
_ALIKE = {
    "input shape": lambda model: model.input_shape[1:],
    "output shape": lambda model: model.output_shape[1:],
    "number of parameters": lambda model: model.count_params(),
    "shapes of the weights": lambda model: [w.shape for w in model.weights],
    "number of weights that learn": lambda model: len(model.trainable_weights),
    "layers that act at random": lambda model: [_at_random(one) for one in _leaves(model) if _at_random(one)],
    "types of its numbers": lambda model: sorted({one.compute_dtype for one in model.layers}),
    "how its weights begin": lambda model: [
        type(one.kernel_initializer).__name__ for one in _leaves(model) if hasattr(one, "kernel_initializer")
    ],
    "what training adds to the loss, or forbids the weights": lambda model: sum(
        bool(getattr(one, name, None))
        for one in (*_leaves(model), *model.weights)
        for name in ("regularizer", "activity_regularizer", "constraint")
    ),
}


def _judge_same_answers(before: keras.Model, model: keras.Model) -> None:
    """Raise NotYet unless two networks answer alike with large weights, where a limit or a slope shows, too."""
    kept, rng = before.get_weights(), np.random.default_rng()
    for _ in range(3):  # one draw may hide a difference
        expected, actual = _answers(before, model, kept, rng)
        gap = float(np.abs(expected - actual).max())
        if gap > 1e-4:
            raise checks.NotYet(
                f"with the same large weights and {_BATCH} images of random bytes, the probabilities should differ by "
                f"less than 0.0001; they differ by up to {gap:.3g}. {_cause(before, model, expected, actual)}"
            )


def _answers(
    before: keras.Model, model: keras.Model, kept: list[np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The answers of two networks with the same random weights to the same images; `kept` are put back."""
    import keras

    weights, size = [], 0.6  # of the numbers that a layer takes: first pixels from 0 to 1
    for one in kept:
        last = one.shape[-1] == model.output_shape[-1]
        wanted = 2 if last else 20  # probabilities that are all 0 or 1 would hide a difference
        scale = wanted / size / math.sqrt(one.size / one.shape[-1]) if one.ndim > 1 else wanted
        weights.append(rng.normal(0, scale, one.shape).astype("float32"))
        size = 20 if one.ndim == 1 else size
    pixels = rng.integers(0, 256, (_BATCH, *model.input_shape[1:]), dtype=np.uint8)
    answers = []
    for network in (before, model):
        network.set_weights(weights)
        try:
            answers.append(keras.ops.convert_to_numpy(network(pixels)).astype("float32"))
        except Exception as error:
            if not _scales(model):
                raise checks.NotYet(
                    "a layer cannot compute with bytes (uint8): `layers.Rescaling`, after `keras.Input`, is missing."
                ) from None
            said = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
            reason = " ".join(line for line in said.splitlines() if line)[:200]
            raise checks.NotYet(
                f"on images of bytes (uint8) it stopped with {type(error).__name__}: {reason}"
            ) from None
        network.set_weights(kept)
    return answers[0], answers[1]


def _cause(before: keras.Model, model: keras.Model, expected: np.ndarray, actual: np.ndarray) -> str:
    """Say why two networks answer differently: softmax where that was tried, else the steps of both."""
    if not _scales(model):
        return "It does not scale bytes: `Rescaling` is missing."
    powers = np.exp(actual - actual.max(axis=1, keepdims=True))
    if np.allclose(powers / powers.sum(axis=1, keepdims=True), expected, atol=1e-4):
        return "With softmax after its last layer they would agree: `softmax` is missing."
    theirs, yours = _steps(before), _steps(model)
    lacks = sorted((Counter(theirs) - Counter(yours)).elements())
    return (
        f"Yours lacks: {', '.join(lacks)}." if lacks else ""
    ) + f"\nsteps before: {', '.join(theirs)}\nyours:        {', '.join(yours)}"


def _leaves(model: keras.Model) -> Iterator[keras.Operation]:
    """Yield a network's layers and other operations in their order, those of networks in it among them."""
    for one in getattr(model, "operations", None) or model.layers:
        if hasattr(one, "layers"):
            yield from _leaves(one)
        else:
            yield one


def _scales(model: keras.Model) -> bool:
    return any(type(one).__name__ == "Rescaling" for one in _leaves(model))


def _at_random(layer: keras.Operation) -> str:
    """Return what a layer does at random, and to how many numbers of an image; empty if it does nothing so."""
    if not hasattr(layer, "seed_generator"):
        return ""
    numbers = math.prod(layer.output.shape[1:])
    shape = f", noise_shape={layer.noise_shape}" if getattr(layer, "noise_shape", None) else ""
    return f"{type(layer).__name__}({getattr(layer, 'rate', '')}{shape}) of {numbers:,} numbers"


def _steps(model: keras.Model) -> list[str]:
    """Return what a network computes, step by step, without steps that change nothing.

    An activation is a step of its own, wherever it is written. Left out are layers that pass on what they are given,
    and a ReLU where no number is negative.
    """
    steps, positive = [], False
    for one in _leaves(model):
        name = type(one).__name__
        if name == "MaxPooling2D" and tuple(one.pool_size) == tuple(one.strides) == (1, 1):
            continue
        plain = name == "ReLU" and one.max_value is None and not one.negative_slope and not one.threshold
        activation = getattr(getattr(one, "activation", None), "__name__", "linear")
        for step in ("relu" if plain else "linear" if name == "Activation" else name.lower(), activation):
            if step in ("linear", "inputlayer", "flatten", "reshape", "identity") or (step == "relu" and positive):
                continue
            steps.append(step)
            positive = step == "relu" or (positive and step in ("maxpooling2d", "dropout"))
    return steps


def _decide(before: Sequence[float], after: Sequence[float]) -> str:
    """The lesson's rule: a gap between the medians that is larger than the larger spread, or no claim."""
    gap = np.median(after) - np.median(before)
    spreads = [np.subtract(*np.percentile(seconds, [75, 25])) for seconds in (before, after)]
    return "no claim" if abs(gap) <= max(spreads) else "slower" if gap > 0 else "faster"


def _timings(rng: np.random.Generator) -> list[tuple[list[float], list[float]]]:
    """Pairs of timings, in seconds, that every usual definition of a quartile judges alike."""

    def runs(middle: float, spread: float, one_of_them: float | None = None) -> list[float]:
        seconds = [middle + spread * step / 8 for step in range(-4, 5)]
        seconds[-1] = one_of_them or seconds[-1]
        return [round(float(one), 4) for one in rng.permutation(seconds)]

    return [
        ([1.0, 1.01, 1.02, 1.03, 1.04], [0.5, 0.51, 0.52, 0.53, 0.54]),
        ([0.5, 0.51, 0.52, 0.53, 0.54], [1.0, 1.01, 1.02, 1.03, 1.04]),
        ([1.0, 1.1, 1.2, 1.3, 1.4], [1.05, 1.15, 1.25, 1.35, 1.45]),
        ([1.0, 1.01, 1.02, 2.0, 1.03, 1.04, 1.05], [1.5, 1.51, 1.52, 1.2, 1.53, 1.54, 1.55]),  # not sorted
        (runs(1.0, 0.08), runs(0.8, 0.08, one_of_them=9.0)),  # the mean says slower
        (runs(1.0, 0.08, one_of_them=9.0), runs(1.3, 0.08)),  # and here faster
        (runs(1.0, 0.8), runs(0.9, 0.01)),  # the larger spread decides
        (runs(1.0, 0.01), runs(1.1, 0.8)),
        (runs(1.0, 0.8), runs(0.7, 0.01)),  # not the mean of both spreads
        (runs(1.0, 0.08), runs(1.3, 0.08, one_of_them=0.05)),  # so does the fastest run
        (runs(1.0, 0.1), runs(1.08, 0.1)),  # larger than each spread, and smaller than both together
        (runs(0.05, 0.001), runs(0.06, 0.001)),
        (runs(60.0, 1.0), runs(61.0, 5.0)),
        ([2.0] * 5, [2.0] * 5),  # a gap as large as the spread is not larger: both 0
        ([1.0] * 4 + [2.0] + [3.0] * 4, [3.0] * 4 + [4.0] + [5.0] * 4),  # and here both 2
        ([1.0] * 3 + [3.0] * 3, [4.5] * 6),  # an even number of runs: the median is 2
        ([3.0] * 3 + [1.0] * 3, [3.5] * 5),
    ]


# ------------------------------------------------------------------------------------------------------ its figures


def one_place(image: np.ndarray, weights: np.ndarray, result: np.ndarray, y: int, x: int) -> None:
    """Show what a convolution does at one place: nine pixels, nine weights, and where their sum is written.

    Args:
        image: the pixels, from 0 to 1; two axes.
        weights: a filter of 3 x 3 numbers.
        result: the sums at all places.
        y: row of the place, in `result`.
        x: column of the place, in `result`.
    """
    from matplotlib.patches import Rectangle

    rows, columns = result.shape
    if not (0 <= y < rows and 0 <= x < columns):
        raise WorkshopError(
            f"There is no place y={y}, x={x}.",
            f"The filter lies wholly on the image at {rows} x {columns} places.",
            f"Choose y from 0 to {rows - 1} and x from 0 to {columns - 1}.",
        )
    pixels = image[y : y + 3, x : x + 3]
    pictures = (image, pixels, weights, result)
    titles = (f"{image.shape[0]} x {image.shape[1]} pixels", "the nine in the box", "times the filter", "all sums")
    title = f"At row {y}, column {x}: nine pixels times nine weights, added up: {result[y, x]:.2f}"
    with figure(7.5, 2.5, ncols=4) as (drawn, axes):
        for one, picture, above in zip(axes, pictures, titles, strict=True):
            _picture(one, picture, above)
            if picture.shape == (3, 3):
                for (row, column), value in np.ndenumerate(picture):
                    dark = abs(value) > 0.7 * np.abs(picture).max()
                    colour = "white" if dark else "black"
                    one.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=9, color=colour)
        axes[0].add_patch(Rectangle((x - 0.5, y - 0.5), 3, 3, fill=False, ec="black", lw=2))
        axes[3].add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, ec="black", lw=2))
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}. Four pictures: {', '.join(titles)}.")


def _picture(axes: Axes, image: np.ndarray, above: str, largest: float = 0.0) -> None:
    """Draw an array: blue above zero, white at zero, orange below; `largest` is the end of the scale, 0 its own."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("orange-white-blue", [RED, "white", BLUE])
    largest = largest or float(np.abs(image).max()) or 1.0
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(True)
    axes.imshow(image, cmap=colours, vmin=-largest, vmax=largest)
    axes.set_title(above, fontsize=9, loc="center")


def heatmaps(
    images: Sequence[np.ndarray],
    titles: Sequence[str],
    title: str,
    columns: int = 2,
    scales: Sequence[float] | None = None,
) -> None:
    """Show arrays as pictures: blue above zero, white at zero, orange below.

    Args:
        images: arrays of two axes.
        titles: what stands above each.
        title: the message of the figure.
        columns: pictures in a row.
        scales: for each the number that has the full colour; without them each its own largest.
    """
    rows = -(-len(images) // columns)
    size = min(7.5 / columns, 2.6)
    lines = max((title.count("\n") + 1 for title in titles if title), default=0)
    with figure(size * columns, (size + 0.2 * lines) * rows + 0.4, nrows=rows, ncols=columns, squeeze=False) as (
        drawn,
        axes,
    ):
        for one in axes.flat[len(images) :]:
            one.axis("off")
        for one, image, above, largest in zip(axes.flat, images, titles, scales or [0.0] * len(images), strict=False):
            _picture(one, image, above, largest)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: {len(images)} pictures.")


def part_filters(maps: np.ndarray, count: int = 8) -> list[int]:
    """Return the filters that answer to parts of digits: to less than a whole one, and to more than a point.

    Those whose strong answers, above half of their largest, fill nearest to 4 % of the images. A whole digit fills some
    12 % of MNIST's images. Filters that answer nowhere come last.

    Args:
        maps: what each filter makes of each image, of shape (image, filter, y, x).
        count: how many filters to return, in the layer's order.
    """
    largest = maps.max(axis=(0, 2, 3))
    share = (maps > largest[:, None, None] / 2).mean(axis=(0, 2, 3))
    nearest = np.argsort(np.where(largest > 0, np.abs(share - 0.04), np.inf), kind="stable")
    return sorted(nearest[:count].tolist())


def tell_change(first: np.ndarray, now: np.ndarray) -> str:
    """Say how far training has moved a layer's filters from the random numbers of their start.

    Args:
        first: the weights before the training.
        now: the weights after it, of the same shape.
    """
    moved = float(np.abs(now - first).mean() / np.abs(first).mean())
    seen = "mostly still the random numbers of the start" if moved < 0.5 else "no longer those of the start"
    return f"training changed these numbers by {moved:.0%} of their first size: they are {seen}"


# Accuracy in percent on the 10,000 test images after each of article C's 12 epochs with Adadelta, by its learning rate.
# Recorded once, in November 2026: seed 0, batches of 128, mixed_bfloat16, TensorFlow 2.21 on two cores of an AMD EPYC
# (Zen 5), Keras 3.15.
RECORDED = {
    0.001: (36.61, 51.58, 63.01, 69.17, 72.48, 75.0, 76.91, 78.65, 80.41, 81.49, 82.56, 83.35),
    1.0: (98.03, 98.6, 98.83, 98.93, 98.95, 99.02, 99.05, 99.07, 99.01, 99.17, 99.15, 99.07),
}


def learning_rates() -> None:
    """Draw the recorded accuracy of the whole training for each learning rate."""
    epochs = range(1, 13)
    title = "The default rate fails in a way that looks plausible (MNIST, recorded once)"
    with figure(7.5, 3.2) as (drawn, axes):
        for (rate, accuracies), colour, marker in zip(RECORDED.items(), (ORANGE, BLUE), "os", strict=True):
            axes.plot(epochs, accuracies, color=colour, marker=marker, label=f"learning rate {rate}")
            axes.annotate(f"{accuracies[-1]:.1f} %", (12, accuracies[-1]), xytext=(0, -14), ha="center",
                          textcoords="offset points", fontsize=9)  # fmt: skip
        axes.set(xlabel="epoch", ylabel="right on test images (%)", ylim=(0, 104), xticks=epochs)
        axes.legend(loc="lower right")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    ends = " and ".join(f"{accuracies[-1]:.1f} % with {rate}" for rate, accuracies in RECORDED.items())
    show(drawn, f"{title}: accuracy against epoch; after 12 epochs {ends}.")


def trials(tried: Sequence[Trial], steps: int, title: str) -> None:
    """Draw the time of a training step for each change that was tried, the form before it, and what became of it.

    Args:
        tried: what `lesson_05.greedy_ablation` returns.
        steps: training steps in one run of a trial.
        title: the message of the figure, with the device.
    """
    milliseconds, longest, words = 1e3 / steps, 1.0, []
    with figure(7.5, 0.55 * len(tried) + 1.2) as (drawn, axes):
        for row, trial in enumerate(tried):
            if trial.run is None:
                _beside(axes, 0, row, trial.verdict)
                words.append(f"{trial.name}: {trial.verdict}")
                continue
            colour = BLUE if trial.verdict == "kept" else GREY
            for at, run, shade, verdict in (
                (row - 0.2, trial.before, ORANGE, ""), (row + 0.2, trial.run, colour, f"  {trial.verdict}")
            ):  # fmt: skip
                low, high, median = (milliseconds * seconds for seconds in (*run.quartiles, run.median))
                axes.barh(at, median, color=shade, height=0.36)
                axes.plot([low, high], [at, at], color="black", lw=1.5)
                _beside(axes, max(high, median), at, f"{duration(median / 1e3)}{verdict}")
                longest = max(longest, median)
            before, after = (duration(run.median / steps) for run in (trial.before, trial.run))
            words.append(f"{trial.name}: {before} before, {after} with it, {trial.verdict}")
        axes.set_yticks(range(len(tried)), [f"+ {trial.name}" for trial in tried])
        axes.set(xlabel="time of one training step (ms)", xlim=(0, 1.6 * longest), ylim=(len(tried) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        shades = {"the form before": ORANGE, "with the change, kept": BLUE, "with the change, not kept": GREY}
        handles = [axes.barh(0, 0, color=shade, label=label) for label, shade in shades.items()]
        axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=3, fontsize=9)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title} Milliseconds a step. {'; '.join(words)}.")


def _beside(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)


# ---------------------------------------------------------------------------------------------------- its machinery


TOO_SHORT = "too short to judge"


@dataclass(frozen=True)
class Trial:
    """One change of a training that was tried on top of those that were kept before it."""

    name: str  # what was changed
    before: Measurement | None  # the form without the change, measured in turn with it; None if not measured
    run: Measurement | None  # the form with it; None if it was not measured
    verdict: str  # "kept", "dropped: no clear gain", "dropped: slower", TOO_SHORT, or why it was not measured


def greedy_ablation(
    prepare: Callable[..., Callable[[], object]],
    measure: Callable[[Mapping[str, Callable[[], object]]], tuple[Measurement, ...]],
    candidates: Mapping[str, Mapping[str, object] | str],
    budget: float = math.inf,
    judge: bool = True,
) -> tuple[dict[str, object], list[Trial]]:
    """Try changes one after another, each on top of those that were kept, and keep what is clearly faster.

    Args:
        prepare: given the options of a form, returns a function that runs it once; without options, the first form.
        measure: times such functions in turn. Each change is measured beside the form before it.
        candidates: for each change its name and the options that make it, or why it is not tried here.
        budget: seconds for all trials; one that would take longer, judged by the longest so far, is not begun.
            `workload.budget` knows when there is no limit.
        judge: whether the runs are long enough to keep or drop a change; without it nothing is kept.

    Returns:
        The options that were kept, and every trial in its order.
    """
    kept: dict[str, object] = {}
    best = prepare()
    trials, spent = [], [0.0]
    for name, change in candidates.items():
        if isinstance(change, str):
            trials.append(Trial(name, None, None, change))
            continue
        if sum(spent) + max(spent) > budget:
            trials.append(Trial(name, None, None, f"not tried: no time left of {budget:.0f} s"))
            continue
        began = time.perf_counter()
        try:
            with caught_stderr():  # TensorFlow's log lines of the first use of a compiler
                changed = prepare(**{**kept, **change})
                before, run = measure({"the form before it": best, name: changed})
        except Exception as error:  # an operation that this device or backend does not have
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:80]
            trials.append(Trial(name, None, None, f"not possible here: {reason}"))
            continue
        finally:
            spent.append(time.perf_counter() - began)
        claim = _claim(before, run)
        verdict = "kept" if claim == "faster" else f"dropped: {'slower' if claim == 'slower' else 'no clear gain'}"
        trials.append(Trial(name, before, run, verdict if judge else TOO_SHORT))
        if trials[-1].verdict == "kept":
            kept, best = {**kept, **change}, changed
    return kept, trials


def _claim(before: Measurement, after: Measurement) -> str:
    if not is_clear(before, after):
        return "no claim"
    return "faster" if after.median < before.median else "slower"


def alone_and_on_top(
    tried: Sequence[Trial],
    prepare: Callable[..., Callable[[], object]],
    measure: Callable[[Mapping[str, Callable[[], object]]], tuple[Measurement, ...]],
    change: Mapping[str, object],
) -> None:
    """Print what the last change of a greedy ablation gains on the form to start from, and what it gained there.

    Args:
        tried: what `greedy_ablation` returns.
        prepare: as for `greedy_ablation`.
        measure: as for `greedy_ablation`.
        change: the options of the last change.
    """
    last = tried[-1]
    if last.run is None:
        print(f"{last.name}: {last.verdict}, so there is nothing to compare")
        return
    if not any(trial.verdict == "kept" for trial in tried[:-1]):
        why = f" ({TOO_SHORT})" if last.verdict == TOO_SHORT else ""
        print(f"{last.name}: nothing was kept before it{why}, so alone and on top are the same form")
        return
    with caught_stderr():
        alone = measure({"the form to start from": prepare(), last.name: prepare(**change)})
    claims = []
    for where, (before, after) in (("alone", alone), ("on top", (last.before, last.run))):
        print(f"{where}: {compare(before, after)}")
        claims.append(_claim(before, after))
    if "no claim" in claims:
        print("These runs cannot tell whether the order matters.")
    elif claims[0] == claims[1]:
        print(f"{claims[0]} both ways: the order does not change the verdict on this change")
    else:
        print("The verdict on this change depends on the order.")


def time_steps(
    models: Mapping[str, tuple[keras.Model, np.ndarray]], labels: np.ndarray, batch: int, steps: int, device: str
) -> tuple[Measurement, ...]:
    """Time runs of a few training steps of several networks, interleaved.

    Args:
        models: for each name a compiled network and images of the form that it takes, at least batch * steps.
        labels: integers of shape (n,).
        batch: images in a step.
        steps: in one run.
        device: the name of the device that trains.
    """
    n = batch * steps
    ways = {
        name: functools.partial(model.fit, images[:n], labels[:n], batch_size=batch, verbose=0)
        for name, (model, images) in models.items()
    }
    return tuple(timing.measure_interleaved(ways, device, 3).values())


def time_trainings(
    models: Mapping[str, keras.Model], images: np.ndarray, labels: np.ndarray, repeats: int, device: str
) -> tuple[Measurement, ...]:
    """Time the training of several networks, interleaved.

    Args:
        models: for each form its network; all are compiled here, in the same way.
        images: uint8 array that every network takes; one run trains on all of them once, in batches of 128.
        labels: integers of shape (n,).
        repeats: runs of each that count, after one that does not.
        device: the name of the device that trains.
    """
    import keras

    for model in models.values():
        how = {"jit_compile": keras.backend.backend() == "jax", "metrics": ["accuracy"]}
        model.compile(keras.optimizers.Adadelta(1.0), "sparse_categorical_crossentropy", **how)
    ways = {
        name: functools.partial(model.fit, images, labels, batch_size=_BATCH, verbose=0)
        for name, model in models.items()
    }
    return tuple(timing.measure_interleaved(ways, device, repeats).values())


@functools.cache
def im2col_convolution() -> type[keras.layers.Conv2D]:
    """Return a Conv2D that computes one matrix product; a class that can only be made once Keras is there."""
    from keras import layers, ops

    class Im2colConv2D(layers.Conv2D):
        """A convolution with step 1 and without padding: the neighbours of each pixel in a row, times the filters."""

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            same = {"strides": (1, 1), "padding": "valid", "dilation_rate": (1, 1), "groups": 1, "use_bias": True}
            _refuse_unless(self, data_format="channels_last", **same)

        def call(self, images: object) -> object:
            (high, wide), (height, width) = self.kernel_size, images.shape[1:3]
            shifts = [(y, x) for y in range(high) for x in range(wide)]
            parts = [images[:, y : height - high + 1 + y, x : width - wide + 1 + x] for y, x in shifts]
            rows = ops.concatenate(parts, axis=-1)
            return self.activation(ops.matmul(rows, ops.reshape(self.kernel, (-1, self.filters))) + self.bias)

    return Im2colConv2D


@functools.cache
def slice_max_pooling() -> type[keras.layers.MaxPooling2D]:
    """Return a MaxPooling2D(2) that takes the larger of images; a class that can only be made once Keras is there."""
    from keras import layers, ops

    class SliceMaxPooling2D(layers.MaxPooling2D):
        """Max-pooling by 2: four images, each of every other row and column, and of them the largest."""

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            _refuse_unless(self, data_format="channels_last", pool_size=(2, 2), strides=(2, 2), padding="valid")

        def call(self, images: object) -> object:
            height, width = (size // 2 * 2 for size in images.shape[1:3])  # a last odd row or column does not count
            rows = ops.maximum(images[:, :height:2], images[:, 1:height:2])
            return ops.maximum(rows[:, :, :width:2], rows[:, :, 1:width:2])

    return SliceMaxPooling2D


def _refuse_unless(layer: keras.Layer, **settings: object) -> None:
    """Refuse what a layer's other way to compute does not know; when it is made, where Keras adds nothing to errors."""
    for name, value in settings.items():
        if getattr(layer, name) != value:
            kind = type(layer).__name__
            raise WorkshopError(
                f"{kind} cannot compute with {name}={getattr(layer, name)!r}.",
                f"It computes what {type(layer).__base__.__name__} does with {name}={value!r}, in another way.",
                f"Build the network with {name}={value!r}, or with the layer that Keras has.",
            )
