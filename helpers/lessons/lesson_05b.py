"""Serve lesson 05b, Make a training faster: its checks, two layers, the same change on another backend."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from helpers.judge import checks
from helpers.measure.timing import Measurement, decide
from helpers.running import processes
from helpers.running.quiet import caught_stderr

if TYPE_CHECKING:
    import keras

Tensor: TypeAlias = Any  # of whichever backend Keras runs on; Keras has no type for all of them
Rule = Callable[[Sequence[float], Sequence[float]], bool]  # whether it claims that two timings differ


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
        from helpers.lessons import lesson_05b as lesson
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
