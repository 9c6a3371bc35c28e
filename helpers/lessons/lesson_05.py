"""Lesson 05, Train a CNN: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks
from helpers.errors import WorkshopError
from helpers.plots import BLUE, GREY, ORANGE, RED, figure, show
from helpers.quiet import caught_stderr
from helpers.timing import Measurement, is_clear

if TYPE_CHECKING:
    import keras


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


def _images(rng: np.random.Generator, even: bool) -> list[tuple[np.ndarray]]:
    """Images of several shapes, wide and high ones, with negative numbers among them."""
    step = 2 if even else 1
    shapes = [(4, 4), (4, 6), (10, 4), *((int(h) * step, int(w) * step) for h, w in rng.integers(3, 12, (6, 2)))]
    return [(rng.normal(size=shape),) for shape in shapes] + [(rng.integers(0, 256, (8, 6)),)]


@checks.verdict
def check_neighbours(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Lesson 05, exercise 2: the nine pixels under a 3 x 3 filter at each of its places, a row for each."""

    def right(image: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(image, (3, 3)).reshape(-1, 9)

    yield checks.judge_function(learner, right, lambda rng: [(np.arange(12).reshape(3, 4),), *_images(rng, even=False)])


@checks.verdict
def check_pool(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Lesson 05, exercise 3: of each 2 x 2 pixels the largest."""

    def right(image: np.ndarray) -> np.ndarray:
        height, width = image.shape
        return image.reshape(height // 2, 2, width // 2, 2).max(axis=(1, 3))

    plain = [(np.array([[1, 2, 5, 6], [3, 4, 7, 8]]),), (np.array([[9, 1], [2, 3]]),), (np.array([[1, 2], [7, 3]]),)]
    yield checks.judge_function(learner, right, lambda rng: plain + _images(rng, even=True))


# ------------------------------------------------------------------------------------------------------ its figures


def heatmaps(images: Sequence[np.ndarray], titles: Sequence[str], title: str, columns: int = 2) -> None:
    """Show arrays as pictures, each on a scale of its own: blue above zero, white at zero, orange below.

    Args:
        images: arrays of two axes.
        titles: what stands above each.
        title: the message of the figure.
        columns: pictures in a row.
    """
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("orange-white-blue", [RED, "white", BLUE])
    rows = -(-len(images) // columns)
    size = min(7.5 / columns, 2.6)
    with figure(size * columns, (size + 0.2 * any(titles)) * rows + 0.4, nrows=rows, ncols=columns, squeeze=False) as (
        drawn,
        axes,
    ):
        for one in axes.flat:
            one.set(xticks=[], yticks=[])
            one.grid(False)
            one.spines[:].set_visible(True)
        for one, image, above in zip(axes.flat, images, titles, strict=False):
            largest = float(np.abs(image).max()) or 1.0
            one.imshow(image, cmap=colours, vmin=-largest, vmax=largest)
            one.set_title(above, fontsize=9, loc="center")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: {len(images)} pictures.")


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
            axes.annotate(f"{median:.3g} ms  {trial.verdict}", (max(high, median), row), xytext=(6, 0),
                          textcoords="offset points", va="center", fontsize=9)  # fmt: skip
        axes.set_yticks(
            range(len(tried)), [f"{trial.name}" if trial.verdict == "start" else f"+ {trial.name}" for trial in tried]
        )
        longest = max((1e3 / steps * trial.run.median for trial in tried if trial.run), default=1)
        axes.set(xlabel="time of one training step (ms)", xlim=(0, 1.6 * longest), ylim=(len(tried) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    times = {trial.name: f"{1e3 / steps * trial.run.median:.3g} ms, " if trial.run else "" for trial in tried}
    words = "; ".join(f"{trial.name}: {times[trial.name]}{trial.verdict}" for trial in tried)
    show(drawn, f"{title} {words}.")


# ---------------------------------------------------------------------------------------------------- its machinery


@dataclass(frozen=True)
class Trial:
    """One form of a training that was tried."""

    name: str  # what was changed
    run: Measurement | None  # None if this form was not measured
    verdict: str  # "start", "kept", "dropped: no clear gain", "dropped: slower", or why it was not measured


def greedy_ablation(
    measure: Callable[..., Measurement],
    candidates: Mapping[str, Mapping[str, object]],
    budget: float = math.inf,
) -> tuple[dict[str, object], list[Trial]]:
    """Try changes one after another, each on top of those that were kept, and keep what is clearly faster.

    Args:
        measure: given the options of a form, measures it; without options it measures the form to start from.
        candidates: for each change its name and the options that make it.
        budget: seconds for all trials; one that would take longer, judged by the longest so far, is not begun.
            `workload.budget` knows when there is no limit.

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
        if not is_clear(best, run):
            verdict = "dropped: no clear gain"
        elif run.median > best.median:
            verdict = "dropped: slower"
        else:
            kept, best, verdict = {**kept, **change}, run, "kept"
        trials.append(Trial(name, run, verdict))
    return kept, trials


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
