"""Lesson 05, Train a CNN: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks
from helpers.errors import WorkshopError
from helpers.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.quiet import caught_stderr
from helpers.timing import Measurement, Record, compare, duration, is_clear, measure

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
    images += [rng.integers(-99, 100, (7, 6)).astype("float32") / 4, rng.integers(0, 256, (6, 8)).astype("uint8")]
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
) -> Iterator[str]:
    """Lesson 05, exercise 3: a network that computes the same in another way, and what two measurements allow to say.

    Which form is faster is not judged: that is for the machine to say.

    Args:
        build: the learner's network.
        decide: the learner's rule, from the seconds of two forms to "faster", "slower" or "no claim".
        build_before: returns the network to compare with.
        prediction: what the learner expects `decide` to say.
        measure: times the training of two networks in turn; the names it is given stand beside the numbers.
    """
    _judge_same_network(build, build_before)
    yield "the same answers in another way"
    yield checks.judge_function(decide, _decide, _timings)
    before, after = measure({"before": build_before(), "mine": build()})
    print(f"{before}\n{after}")
    checks.compare_prediction(prediction, decide(list(before.seconds), list(after.seconds)))


def _judge_same_network(build: Callable[[], keras.Model], build_before: Callable[[], keras.Model]) -> None:
    """Raise NotYet unless a network has the weights of another and answers alike, and is written differently."""
    import keras

    try:
        model = build()
    except Exception as error:
        raise checks.NotYet(f"build_mine() stopped with {type(error).__name__}: {error}") from None
    if model is None or model is ...:
        raise checks.NotDone("build_mine() returns nothing.")
    if isinstance(model, keras.Sequential) and not model.built:
        raise checks.NotYet("build_mine() returns a network that does not know its input; begin with keras.Input.")
    if not isinstance(model, keras.Model):
        raise checks.NotYet(f"build_mine() returns one {type(model).__name__}; a Keras model is expected.")
    before = build_before()
    for what, expected, actual in (
        ("input shape", before.input_shape, model.input_shape),
        ("output shape", before.output_shape, model.output_shape),
        ("number of parameters", before.count_params(), model.count_params()),
        ("shapes of the weights", [w.shape for w in before.weights], [w.shape for w in model.weights]),
        ("number of weights that learn", len(before.trainable_weights), len(model.trainable_weights)),
        ("layers that act at random", *map(_random_layers, (before, model))),
        ("types of its numbers", *(sorted({one.compute_dtype for one in m.layers}) for m in (before, model))),
    ):
        if expected != actual:
            raise checks.NotYet(f"{what}: expected {expected}, as in article C's network; came {actual}.")
    model.set_weights(before.get_weights())
    pixels = np.random.default_rng().integers(0, 256, (16, *model.input_shape[1:]), dtype=np.uint8)
    try:
        answers = [keras.ops.convert_to_numpy(one(pixels)).astype("float32") for one in (before, model)]
    except Exception as error:
        said = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        reason = " ".join(line for line in said.splitlines() if line)[:200]
        raise checks.NotYet(f"on images of bytes (uint8) it stopped with {type(error).__name__}: {reason}") from None
    if (gap := float(np.abs(answers[0] - answers[1]).max())) > 1e-4:
        raise checks.NotYet(
            "with the same weights and 16 images of random bytes, 0 to 255, the probabilities should differ by less "
            f"than 0.0001; they differ by up to {gap:.2g}."
        )
    if _written(before) == _written(model):
        raise checks.NotYet(
            "it has the same layers in the same order as before, so there is nothing to measure. "
            "(How it was compiled does not count: the check compiles both alike.)"
        )


def _random_layers(model: keras.Model) -> list[str]:
    return [
        f"{type(one).__name__}({getattr(one, 'rate', '')})" for one in model.layers if hasattr(one, "seed_generator")
    ]


def _written(model: keras.Model) -> list[tuple[str, dict]]:
    """What a network's layers are, whatever they are called."""
    return [(type(one).__name__, {**one.get_config(), "name": ""}) for one in model.layers]


def _decide(before: Sequence[float], after: Sequence[float]) -> str:
    """The lesson's rule: a gap between the medians that is larger than the larger spread, or no claim."""
    one, other = Measurement("", "one", tuple(before)), Measurement("", "one", tuple(after))
    if not is_clear(one, other):
        return "no claim"
    return "faster" if other.median < one.median else "slower"


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
    with figure(size * columns, (size + 0.2 * any(titles)) * rows + 0.4, nrows=rows, ncols=columns, squeeze=False) as (
        drawn,
        axes,
    ):
        for one in axes.flat[len(images) :]:
            one.axis("off")
        for one, image, above, largest in zip(axes.flat, images, titles, scales or [0.0] * len(images), strict=False):
            _picture(one, image, above, largest)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: {len(images)} pictures.")


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
    """Draw the time of a training step for each change that was tried, and what became of it.

    Args:
        tried: what `lesson_05.greedy_ablation` returns, the form to start from first.
        steps: training steps in one run of a trial.
        title: the message of the figure, with the device.
    """
    with figure(7.5, 0.42 * len(tried) + 0.9) as (drawn, axes):
        for row, trial in enumerate(tried):
            if trial.run is None:
                axes.annotate(
                    trial.verdict, (0, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9
                )
                continue
            milliseconds = 1e3 / steps
            low, high = (milliseconds * quartile for quartile in trial.run.quartiles)
            median = milliseconds * trial.run.median
            colour = BLUE if trial.verdict == "kept" else ORANGE if trial.verdict == "start" else GREY
            axes.barh(row, median, color=colour, height=0.6)
            axes.plot([low, high], [row, row], color="black", lw=1.5)
            axes.annotate(f"{duration(median / 1e3)}  {trial.verdict}", (max(high, median), row), xytext=(6, 0),
                          textcoords="offset points", va="center", fontsize=9)  # fmt: skip
        axes.set_yticks(
            range(len(tried)), [f"{trial.name}" if trial.verdict == "start" else f"+ {trial.name}" for trial in tried]
        )
        longest = max((1e3 / steps * trial.run.median for trial in tried if trial.run), default=1)
        axes.set(xlabel="time of one training step (ms)", xlim=(0, 1.6 * longest), ylim=(len(tried) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    times = {trial.name: f"{duration(trial.run.median / steps)}, " if trial.run else "" for trial in tried}
    words = "; ".join(f"{trial.name}: {times[trial.name]}{trial.verdict}" for trial in tried)
    show(drawn, f"{title} {words}.")


# ---------------------------------------------------------------------------------------------------- its machinery


TOO_SHORT = "too short to judge"


@dataclass(frozen=True)
class Trial:
    """One form of a training that was tried."""

    name: str  # what was changed
    run: Measurement | None  # None if this form was not measured
    verdict: str  # "start", "kept", "dropped: no clear gain", "dropped: slower", TOO_SHORT, or why it was not measured


def greedy_ablation(
    measure: Callable[..., Measurement],
    candidates: Mapping[str, Mapping[str, object]],
    budget: float = math.inf,
    judge: bool = True,
) -> tuple[dict[str, object], list[Trial]]:
    """Try changes one after another, each on top of those that were kept, and keep what is clearly faster.

    Args:
        measure: given the options of a form, measures it; without options it measures the form to start from.
        candidates: for each change its name and the options that make it.
        budget: seconds for all trials; one that would take longer, judged by the longest so far, is not begun.
            `workload.budget` knows when there is no limit.
        judge: whether the runs are long enough to keep or drop a change; without it nothing is kept.

    Returns:
        The options that were kept, and every trial in its order, the starting form first.
    """
    kept: dict[str, object] = {}
    began = time.perf_counter()
    best = measure()
    trials, spent = [Trial("start", best, "start")], [time.perf_counter() - began]
    for name, change in candidates.items():
        if sum(spent) + max(spent) > budget:
            trials.append(Trial(name, None, f"not tried: no time left of {budget:.0f} s"))
            continue
        began = time.perf_counter()
        try:
            with caught_stderr():  # TensorFlow's log lines of the first use of a compiler
                run = measure(**{**kept, **change})
        except Exception as error:  # an operation that this device or backend does not have
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:80]
            trials.append(Trial(name, None, f"not possible here: {reason}"))
            continue
        finally:
            spent.append(time.perf_counter() - began)
        if not judge:
            verdict = TOO_SHORT
        elif not is_clear(best, run):
            verdict = "dropped: no clear gain"
        elif run.median > best.median:
            verdict = "dropped: slower"
        else:
            kept, best, verdict = {**kept, **change}, run, "kept"
        trials.append(Trial(name, run, verdict))
    return kept, trials


def alone_and_on_top(tried: Sequence[Trial], measure: Callable[..., Measurement], change: Mapping[str, object]) -> None:
    """Print what the last change of a greedy ablation gains on the form to start from, and what it gained there.

    Args:
        tried: what `greedy_ablation` returns.
        measure: as for `greedy_ablation`.
        change: the options of the last change.
    """
    last = tried[-1]
    if last.run is None:
        print(f"{last.name}: {last.verdict}")
        return
    kept = [trial for trial in tried[:-1] if trial.verdict in ("start", "kept")][-1]
    with caught_stderr():
        alone = measure(**change)
    for where, base, run in (("alone", tried[0], alone), ("on top", kept, last.run)):
        before = "the form to start from" if base is tried[0] else "the form kept before it"
        claim = compare(replace(base.run, label=before), replace(run, label=last.name))
        print(f"{where}: {claim if last.verdict != TOO_SHORT else TOO_SHORT}")


def time_steps(
    model: keras.Model, images: np.ndarray, labels: np.ndarray, batch: int, steps: int, device: str
) -> Measurement:
    """Time runs of a few training steps, and give the network its weights back.

    Args:
        model: a compiled network.
        images: of the form that the network takes, at least batch * steps.
        labels: integers of shape (n,).
        batch: images in a step.
        steps: in one run.
        device: the name of the device that trains.
    """
    weights, n = model.get_weights(), batch * steps
    run = measure(
        lambda: model.fit(images[:n], labels[:n], batch_size=batch, verbose=0),
        device=device, label=f"{steps} steps of {batch}", repeats=3, warmup=1,
    )  # fmt: skip
    model.set_weights(weights)
    return run


def time_in_turn(
    models: Mapping[str, keras.Model], images: np.ndarray, labels: np.ndarray, repeats: int, device: str
) -> tuple[Measurement, ...]:
    """Time the training of several networks in turn, so that a machine that slows down hits them all.

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
        name: functools.partial(model.fit, images, labels, batch_size=128, verbose=0) for name, model in models.items()
    }
    timed, _ = Record().turn_about(ways, dict.fromkeys(models, device), repeats)
    return tuple(timed.values())


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
