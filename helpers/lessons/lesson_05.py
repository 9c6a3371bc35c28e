"""Serve lessons 05, Train a CNN, and 05b, Make a training faster: their checks, their figures, two layers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.measure.timing import Measurement, decide
from helpers.running import processes
from helpers.running.quiet import caught_stderr

if TYPE_CHECKING:
    import keras
    from matplotlib.axes import Axes

Tensor: TypeAlias = Any  # of whichever backend Keras runs on; Keras has no type for all of them
Rule = Callable[[Sequence[float], Sequence[float]], bool]  # whether it claims that two timings differ


# --------------------------------------------------------------------------------------- what lesson 05 builds on


def convolve(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sums of a 3 x 3 filter at all its places; exercise 1 of lesson 05 writes this function.

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
def check_convolve(learner: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Iterator[str]:
    """Judge exercise 1 of lesson 05: the sums of a 3 x 3 filter at all its places."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        corner = np.arange(9).reshape(3, 3)
        small = [(np.arange(h * w).reshape(h, w), corner) for h, w in ((3, 4), (3, 3), (5, 3))]
        sizes = [(28, 28), (4, 9), (12, 5), *(tuple(map(int, size)) for size in rng.integers(3, 30, (3, 2)))]
        # Quarters and whole numbers: their sums are exact in any order and in single precision.
        drawn = [(rng.integers(-8, 9, size) / 4, rng.integers(-8, 9, (3, 3)) / 4) for size in sizes]
        drawn += [(rng.integers(0, 256, (6, 8)).astype(kind), rng.integers(-8, 9, (3, 3)) / 4) for kind in ("u1", "i8")]
        return small + drawn

    yield checks.judge_function(learner, convolve, cases)


@checks.print_verdict
def check_unmoved(
    build: Callable[[], keras.Model],
    train: Callable[[keras.Model], Sequence[float]],
    others: Mapping[str, Sequence[float]],
) -> Iterator[str]:
    """Judge exercise 2 of lesson 05: a network that answers alike wherever a digit is, and still looks at its form.

    It is judged before any training, with random weights; how well it learns is drawn, and not judged.

    Args:
        build: the learner's network.
        train: trains it for a short time; returns the percent of images that are right, by the pixels they moved.
        others: the same percentages of other networks, to be drawn beside it.
    """
    model = _build_model(build)
    rng = np.random.default_rng()
    for _ in range(3):  # one draw may hide a difference
        for weights in model.trainable_weights:
            if len(weights.shape) == 1 and weights.name == "bias":  # zeros would hide that a border is not paper
                weights.assign(rng.normal(0, 0.1, weights.shape))
        spot = rng.integers(1, 256, 16, dtype=np.uint8)  # 4 x 4 pixels, far from every border
        here = _ask_model(model, spot, 0, 0)
        if not (here.min() >= 0 and abs(here.sum() - 1) < 0.02):  # wide enough for networks of 16 bits
            raise checks.NotYet(
                f"its ten numbers go down to {here.min():.2g} and add up to {here.sum():.3g}; probabilities are "
                "at least 0 and add up to 1. Which activation makes such numbers?"
            )
        for down, right in [(0, 1), (1, 0), (0, -2), (-2, 0), (1, 2)]:
            gap = float(np.abs(_ask_model(model, spot, down, right) - here).max())
            if gap > 1e-4:
                raise checks.NotYet(
                    f"with random weights, a spot of 4 x 4 pixels that moves by {right} to the right and {down} down "
                    f"changes a probability by {gap:.2g}; expected no change. Which layer still knows places? (Filters "
                    "so large that they reach from the middle to the border do, too.)"
                )
        pairs = [(ink, rng.permutation(ink)) for ink in (spot, spot // 16)]  # strong ink may saturate every answer
        if all(np.abs(_ask_model(model, a, 0, 0) - _ask_model(model, b, 0, 0)).max() < 1e-6 for a, b in pairs):
            raise checks.NotYet(
                "the same spot with its pixels mixed gets the same answer: the network sees how much ink there is, and "
                "no form. Let a convolution look at neighbors first."
            )
    yield "the same answer wherever the digit stands"
    found = {"yours, shortly trained": train(model), **others}
    draw_right_against_shift(found, "Digits that move: your network beside the two above")


def _build_model(build: Callable[[], keras.Model]) -> keras.Model:
    """Return the learner's network; NotDone or NotYet unless it takes images of 28 x 28 and gives ten numbers."""
    import keras

    model = checks.answer(build, who="build_mine()")
    if model is None or model is ...:
        raise checks.NotDone("build_mine() returns nothing.")
    if not isinstance(model, keras.Model) or not model.built:
        raise checks.NotYet("build_mine() returns no Keras model that knows its input; begin with keras.Input.")
    shapes = model.input_shape, model.output_shape
    if shapes != ((None, 28, 28, 1), (None, 10)):
        raise checks.NotYet(f"it makes {shapes[1]} of {shapes[0]}; expected (None, 10) of (None, 28, 28, 1).")
    return model


def _ask_model(model: keras.Model, spot: np.ndarray, down: int, right: int) -> np.ndarray:
    """Return a network's answer, float32 (1, 10), to an image whose one spot is moved that far from the middle."""
    import keras

    image = np.zeros((1, 28, 28, 1), np.uint8)
    image[0, 12 + down : 16 + down, 12 + right : 16 + right, 0] = spot.reshape(4, 4)
    answer = checks.answer(model, image, who="on an image of bytes (uint8) the network")
    return np.asarray(keras.ops.convert_to_numpy(answer), np.float32)


# --------------------------------------------------------------------------------------------------------- its figures


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
        axes.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=9, color=color)


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


def draw_heatmaps(images: Sequence[np.ndarray], titles: Sequence[str], title: str, columns: int) -> None:
    """Draw arrays as pictures: blue above zero, white at zero, orange below.

    Args:
        images: arrays of two axes.
        titles: the text above each.
        title: the message of the figure.
        columns: pictures in a row.
    """
    rows = -(-len(images) // columns)
    size = min(7.5 / columns, 2.6)
    width, height = size * columns, (size + 0.2) * rows + 0.4
    with figure(width, height, title, nrows=rows, ncols=columns, squeeze=False) as (drawn, _):
        for panel, image, above in zip(drawn.axes, images, titles, strict=False):
            _draw_picture(panel, image, above)
    show(drawn, f"{title}: {len(images)} pictures.")


def draw_right_against_shift(found: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw how many percent of the images each network gets right, by the pixels that their digits were moved.

    Args:
        found: for each network the percentages without a move, moved by one pixel, by two, and so on.
        title: the message of the figure.
    """
    with figure(7.5, 3.2, title) as (drawn, axes):
        for (name, percents), marker in zip(found.items(), "os^", strict=False):
            color = {"CNN": BLUE, "MLP": GREY}.get(name, ORANGE)
            axes.plot(range(len(percents)), percents, color=color, marker=marker, label=name)
            axes.annotate(f"{percents[3]:.0f} %", (3, percents[3]), xytext=(6, 5), textcoords="offset points")
        axes.set(xlabel="digits moved to the right by (pixels)", ylabel="right on unseen images (%)", ylim=(0, 104))
        axes.legend(loc="lower left")
    texts = []
    for name, percents in found.items():
        texts.append(f"{name}: {', '.join(f'{percent:.0f}' for percent in percents)}")
    words = "; ".join(texts)
    show(drawn, f"{title}. Percent of unseen images that are right, moved by 0, 1, 2 and more pixels: {words}.")


# --------------------------------------------------------------------------------------- what lesson 05b judges


def false_claims(times: Sequence[float], runs: int, rule: Rule) -> float:
    """Return the share, from 0 to 1, of 1,000 comparisons of one work with itself in which a rule claims a difference.

    Exercise 1 of lesson 05b writes this function.

    Args:
        times: the seconds of many runs of one piece of work.
        runs: how many of them are drawn for each of the two.
        rule: takes two lists of seconds.
    """
    rng = np.random.default_rng()
    return sum(bool(rule(*rng.choice(times, (2, runs)))) for _ in range(1_000)) / 1_000


@checks.print_verdict
def check_false_claims(learner: Callable[..., float]) -> Iterator[str]:
    """Judge exercise 1 of lesson 05b: how often a rule claims a difference between two timings of the same work."""
    times = 1 + np.random.default_rng().standard_exponential(200)
    for runs in (4, 9):
        asked: list[tuple[tuple, tuple]] = []

        def rule(first: Sequence[float], second: Sequence[float], asked: list = asked) -> bool:
            asked.append((tuple(first), tuple(second)))
            return bool(np.median(first) > 1.2 * np.median(second))

        share = checks.answer(learner, times, runs, rule, who="false_claims")
        if share is None or share is ...:
            raise checks.NotDone("false_claims returns nothing.")
        if not asked:
            raise checks.NotYet("false_claims never asked the rule.")
        firsts, seconds = zip(*asked, strict=True)
        if {len(draw) for draw in firsts + seconds} != {runs}:
            raise checks.NotYet(f"with runs = {runs} the rule was not always given {runs} and {runs} times.")
        if min(len(set(firsts)), len(set(seconds))) < 900 or any(a == b for a, b in asked):
            raise checks.NotYet(f"expected 1,000 new draws for both; came {len(asked)} questions, some of them alike.")
        if set().union(*firsts, *seconds) != set(times):
            raise checks.NotYet("the rule was given times that are not among `times`, or never some of `times`.")
        expected = sum(np.median(first) > 1.2 * np.median(second) for first, second in asked) / len(asked)
        if not isinstance(share, int | float | np.number) or abs(share - expected) > 1e-6:
            raise checks.NotYet(f"for some rule expected the share {expected:.3f}, from 0 to 1; came {share!r}.")
        yield f"draws of {runs}"


@checks.print_verdict
def check_decide(learner: Callable[[Sequence[float], Sequence[float]], str]) -> Iterator[str]:
    """Judge exercise 2 of lesson 05b: what two timings allow you to say, by the rule of the course."""
    yield checks.judge_function(learner, decide, _make_timings)


def _make_timings(rng: np.random.Generator) -> list[tuple[list[float], list[float]]]:
    """Return pairs of timings, in seconds, that every usual definition of a quartile judges alike."""

    def runs(middle: float, spread: float, count: int = 13, outlier: float = 0.0) -> list[float]:
        seconds = middle + spread * np.linspace(-0.5, 0.5, count)  # the quartiles are 0.5 to 0.75 spreads apart
        seconds[-1] = outlier or seconds[-1]
        return [round(float(value), 4) for value in rng.permutation(seconds)]

    return [
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0]),
        (runs(1.0, 0.1), runs(0.5, 0.1)),
        (runs(1.0, 0.1, 5), runs(1.12, 0.1, 5)),  # enough for 13 runs, too little for 5
        (runs(1.22, 0.1, 5), runs(1.0, 0.1, 5)),
        (runs(1.0, 0.1, 9), runs(1.068, 0.1, 9)),
        (runs(1.0, 0.1, 9), runs(0.9, 0.1, 9)),
        (runs(1.0, 0.1, 26), runs(1.04, 0.1, 26)),  # more runs never allow less than one spread
        (runs(1.0, 0.1), runs(1.12, 0.1, 5)),  # the smaller number of runs counts
        (runs(1.0, 0.1, 5), runs(1.12, 0.1)),
        (runs(1.0, 0.08), runs(0.8, 0.08, outlier=9.0)),  # the mean says slower
        (runs(1.0, 0.08, outlier=9.0), runs(1.3, 0.08)),  # and here faster
        (runs(1.0, 0.08), runs(1.3, 0.08, outlier=0.05)),  # so does the fastest run
        (runs(1.0, 0.01), runs(1.1, 0.8)),  # the larger spread decides
        (runs(1.0, 0.8), runs(0.7, 0.01)),  # not the mean of both spreads
        (runs(1.0, 0.1), runs(1.08, 0.1)),  # larger than each spread, and smaller than both together
        ([2.0] * 13, [2.0] * 13),  # a gap as large as the spread is not larger: both 0
        ([1.0] * 6 + [2.0] + [3.0] * 6, [3.0] * 6 + [4.0] + [5.0] * 6),  # and here both 2
        ([1.0] * 7 + [3.0] * 7, [4.5] * 14),  # an even number of runs: the median is 2
    ]


@checks.print_verdict
def check_neighbours(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Judge exercise 3 of lesson 05b: the nine pixels under a 3 x 3 filter at each of its places, a row for each."""

    def right(image: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(image, (3, 3)).reshape(-1, 9)

    def cases(rng: np.random.Generator) -> list[tuple]:
        small = [(np.arange(h * w).reshape(h, w),) for h, w in ((3, 4), (3, 3), (4, 3))]  # short enough to be read
        sizes = ((28, 28), (4, 9), (12, 5), *rng.integers(3, 30, (4, 2)))
        return [*small, *((rng.integers(-99, 999, size),) for size in sizes), (rng.random((7, 6)),)]

    yield checks.judge_function(learner, right, cases)


# ---------------------------------------------------------------------------- lesson 05b: other ways to compute


def exchange_layers(model: keras.Model, others: Mapping[type[keras.Layer], type[keras.Layer]]) -> keras.Model:
    """Return a new network with the weights of another, whose layers of some classes have other classes."""
    import keras

    def make_other(layer: keras.Layer) -> keras.Layer:
        return others.get(type(layer), type(layer)).from_config(layer.get_config())

    with caught_stderr():  # `from_config` imports TensorFlow, on every backend
        exchanged = keras.models.clone_model(model, clone_function=make_other)
    exchanged.set_weights(model.get_weights())
    return exchanged


@functools.cache
def define_im2col_convolution() -> type[keras.layers.Conv2D]:
    """Return a class of Conv2D that computes one matrix product; it is defined in a call, which imports Keras."""
    from keras import layers, ops

    class Im2colConv2D(layers.Conv2D):
        """A convolution with step 1 and without padding: the neighbors of each pixel in a row, times the filters."""

        def call(self, inputs: Tensor) -> Tensor:
            (high, wide), (height, width) = self.kernel_size, inputs.shape[1:3]
            moved = []
            for y, x in itertools.product(range(high), range(wide)):
                moved.append(inputs[:, y : height - high + 1 + y, x : width - wide + 1 + x])
            rows = ops.concatenate(moved, axis=-1)
            return self.activation(ops.matmul(rows, ops.reshape(self.kernel, (-1, self.filters))) + self.bias)

    return Im2colConv2D


@functools.cache
def define_slice_max_pooling() -> type[keras.layers.MaxPooling2D]:
    """Return a class of MaxPooling2D(2) that compares whole images; it is defined in a call, which imports Keras."""
    from keras import layers, ops

    class SliceMaxPooling2D(layers.MaxPooling2D):
        """Max-pooling by 2: the largest of four images, each of which has every other row and column."""

        def call(self, inputs: Tensor) -> Tensor:
            height, width = (size // 2 * 2 for size in inputs.shape[1:3])  # a last odd row or column does not count
            rows = ops.maximum(inputs[:, :height:2], inputs[:, 1:height:2])
            return ops.maximum(rows[:, :, :width:2], rows[:, :, 1:width:2])

    return SliceMaxPooling2D


def time_product_on(
    backend: str, images: np.ndarray, labels: np.ndarray, batch: int, seconds: float
) -> tuple[Measurement, Measurement] | None:
    """Time article C's training on another backend, in a separate process: Keras' convolution, and a matrix product.

    If that fails, as on a GPU for which the backend has no code, print why and return None.

    Args:
        backend: its name in Keras; it is installed.
        images: of shape (n, 28, 28, 1), bytes; one run trains with all of them.
        labels: of shape (n,).
        batch: images of a step.
        seconds: after this time no new run begins.

    Returns:
        The times of both ways, or None.
    """

    def train(images: np.ndarray, labels: np.ndarray, batch: int, seconds: float) -> list[tuple]:
        from helpers import training
        from helpers.lessons import lesson_05 as lesson
        from helpers.measure import timing
        from helpers.training import models

        device = training.start()
        import keras

        article, ways = models.build_cnn(), {}
        product = lesson.exchange_layers(article, {keras.layers.Conv2D: lesson.define_im2col_convolution()})
        for name, model in (("Keras' convolution", article), ("matrix product", product)):
            how = {"jit_compile": keras.backend.backend() == "jax"}
            model.compile(keras.optimizers.Adadelta(1.0), "sparse_categorical_crossentropy", **how)
            ways[name] = lambda model=model: model.fit(images, labels, batch_size=batch, verbose=0)
        measurements = timing.measure_interleaved(ways, device, 13, seconds=seconds)
        return [(run.label, run.device, run.seconds) for run in measurements.values()]

    given = {"images": images, "labels": labels, "batch": batch, "seconds": seconds}
    run = processes.run(train, seconds=300, variables={"KERAS_BACKEND": backend}, arguments=given, check=False)
    if run.failures[0]:
        print(f"{backend}: stopped: {run.failures[0].strip().splitlines()[-1]}")
        return None
    own, product = (Measurement(label, device, tuple(times)) for label, device, times in run.result)
    return own, product
