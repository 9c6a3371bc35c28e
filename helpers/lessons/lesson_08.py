"""Lesson 08, Train on several devices: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks
from helpers.plots import BLUE, GREEN, GREY, ORANGE, PINK, figure, show
from helpers.timing import duration

if TYPE_CHECKING:
    import jax
    import keras


@checks.verdict
def check_combine(learner: Callable[[list[np.ndarray], list[int]], np.ndarray]) -> Iterator[str]:
    """Lesson 08, exercise 1: the whole batch's mean gradient from those of parts of different sizes."""

    def right(gradients: list[np.ndarray], sizes: list[int]) -> np.ndarray:
        return np.average(np.stack(gradients), axis=0, weights=sizes)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [([np.array([1.0, 4.0]), np.array([5.0, 0.0])], [3, 1]), ([np.array([2.0])], [7])]
        drawn = []
        for shape in [(3,), (4,), (2, 3), (5, 2), (1, 1), (2, 2, 2)]:
            parts = int(rng.integers(2, 6))
            drawn.append(([rng.normal(size=shape) for _ in range(parts)], rng.integers(1, 90, parts).tolist()))
        return plain + drawn

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_break_even_batch(learner: Callable[[float, int, float], int]) -> Iterator[str]:
    """Lesson 08, exercise 2: the smallest batch for which two devices take less time than one.

    On two devices a ring all-reduce moves 2 (n - 1) / n = 1 time the gradient's bytes to and from each.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = []
        for near in (0.0, 1.0):  # anywhere, then a little less or more than a whole number of images
            for batch in rng.uniform(2, 5000, 10):
                away = near * rng.choice([-1, 1]) * rng.uniform(1e-5, 5e-4)
                same = round(batch) + away if near else batch  # at which both would take the same time
                gradient_bytes, bytes_per_second = int(rng.integers(10_000, 10**8)), float(10 ** rng.uniform(8, 11))
                drawn.append((2 * gradient_bytes / bytes_per_second / float(same), gradient_bytes, bytes_per_second))
        known = [(47e-6, 2_678_824, 1.25e9), (47e-6, 2_678_824, 0.125e9)]
        tie, one_image = (2.0**-10, 2**20, 2.0**30), (47e-6, 2_678_824, 1e12)
        return [*known, tie, one_image, *drawn]

    def right(per_image: float, gradient_bytes: int, bytes_per_second: float) -> int:
        return math.floor(2 * gradient_bytes / bytes_per_second / per_image) + 1

    answers: list[tuple[tuple, object]] = []

    @functools.wraps(learner)
    def noted(*arguments: float) -> object:
        answers.append((arguments, learner(*arguments)))
        return answers[-1][1]

    try:
        yield checks.judge_function(noted if callable(learner) else learner, right, cases)
    except checks.NotYet as wrong:
        arguments, answer = answers[-1] if answers else ((), None)
        whole = isinstance(answer, int | np.integer) and not isinstance(answer, bool)
        hint = _two_against_one(*arguments, int(answer), right(*arguments)) if whole else ""
        raise checks.NotYet(f"{wrong}{hint}") from None


def _two_against_one(per_image: float, gradient_bytes: int, bytes_per_second: float, answer: int, expected: int) -> str:
    """Return what a wrong batch size overlooks: how long two devices take beside one, at it or at the right one."""
    if answer == expected:
        return ""
    batch = max(min(answer, expected), 1)
    lost = gradient_bytes / bytes_per_second - batch * per_image / 2  # seconds
    same = math.isclose(gradient_bytes / bytes_per_second, batch * per_image / 2, rel_tol=1e-12)
    images = "1 image" if batch == 1 else f"{batch:,} images"
    if same:
        return f"; with {images} both take the same time, so one device wins"
    half = f" ({batch / 2:,} images for each)" if batch % 2 else ""
    return f"; with {images}{half} two devices take {duration(abs(lost))} {'more' if lost > 0 else 'less'} than one"


@checks.verdict
def check_busy_share(learner: Callable[[int, int], float]) -> Iterator[str]:
    """Lesson 08, exercise 3: how much of a pipelined step each of several devices works.

    Source: Huang et al., "GPipe" (2019): the bubble takes (devices - 1) of (parts + devices - 1) turns.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [tuple(int(n) for n in rng.integers(1, 65, 2)) for _ in range(20)]
        return [(2, 1), (2, 4), (4, 1), (1, 5), (4, 8), *drawn]

    yield checks.judge_function(learner, lambda devices, parts: parts / (parts + devices - 1), cases)


# ------------------------------------------------------------------------------------------------------ its figures


def speed_up(lines: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw how many times as fast 1, 2, 3 ... devices are as one, beside the best that there could be.

    Args:
        lines: for each case the factor for 1 device, 2 devices and so on.
        title: the message of the figure; it says whether the factors were measured or computed.
    """
    most = max(len(factors) for factors in lines.values())
    looks = ((BLUE, "s"), (ORANGE, "o"), (GREEN, "^"), (PINK, "D"))
    with figure(7.5, 3.8) as (drawn, axes):
        axes.plot([1, most], [1, most], color=GREY, ls="--", lw=1.2, label="ideal: as many times as devices")
        axes.axhline(1, color=GREY, lw=0.8)
        for (name, factors), (colour, marker) in zip(lines.items(), looks, strict=False):
            axes.plot(range(1, len(factors) + 1), factors, color=colour, marker=marker, ms=5, label=name)
        axes.set(xlabel="devices", ylabel="times as fast as one", title=title, ylim=(0, None))
        axes.set_xticks(range(1, most + 1))
        axes.legend()
    words = "; ".join(f"{name}: {factors[-1]:.2g} with {len(factors)}" for name, factors in lines.items())
    show(drawn, f"{title}. Times as fast as one device: {words}.")


# ---------------------------------------------------------------------------------------------------- its machinery


def choose_gpus(gpus: Sequence[object], cut: bool) -> None:
    """Let TensorFlow see the first two GPUs, or the halves of a single one, or none; before it starts.

    Args:
        gpus: TensorFlow's physical GPUs, as many as there are.
        cut: make two logical devices of the first, of 2 GiB each.
    """
    import tensorflow as tf

    if cut:
        half = tf.config.LogicalDeviceConfiguration(memory_limit=2048)  # MiB; a cap and growth exclude each other
        tf.config.set_logical_device_configuration(gpus[0], [half, half])
        return
    tf.config.set_visible_devices(gpus[:2] if len(gpus) > 1 else [], "GPU")  # a single one is not used
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)  # JAX wants some of it, too


def deep_mlp() -> keras.Model:
    """Return article A's network with two more hidden layers, so that it has a middle and a place to be cut in half.

    Its layers are called hidden_1 to hidden_4, and `dense` takes no part in their names. It is not compiled.
    """
    from keras import Input, Sequential, layers

    hidden = [layers.Dense(512, activation="relu", name=f"hidden_{number}") for number in (1, 2, 3, 4)]
    first = [Input((784,), dtype="uint8"), layers.Rescaling(1 / 255)]
    return Sequential([*first, *hidden, layers.Dense(10, activation="softmax", name="answers")])


def tell_work(runs: Mapping[str, Sequence[tuple[str, str, float, float]]]) -> None:
    """Print for each run how long each device worked in it, which shows whether the stages are equal.

    Args:
        runs: for each run its pieces of work, as `timing.Record` notes them.
    """
    for name, spans in runs.items():
        work: dict[str, float] = {}
        for device, _, begin, until in spans:
            work[device] = work.get(device, 0.0) + until - begin
        told = ", ".join(f"{device} works {duration(seconds)}" for device, seconds in sorted(work.items()))
        print(f"{name}: {told}")


def losses(model: keras.Model, images: np.ndarray, labels: np.ndarray, batch_size: int) -> list[float]:
    """Train one epoch in the order of the images, and return the mean loss of the steps so far, after each step.

    That is the number that Keras shows while it trains: each step's loss is taken before the step changes the weights,
    and the mean begins anew with the epoch.

    Args:
        model: compiled; it is trained.
        images: array of shape (n, ...), as the model takes them.
        labels: array of shape (n,).
        batch_size: images a step.

    Returns:
        One entry a step.
    """
    import keras

    seen: list[float] = []
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: seen.append(float(logs["loss"])))
    model.fit(images, labels, batch_size=batch_size, shuffle=False, verbose=0, callbacks=[note])
    return seen


def running_mean(values: Sequence[float]) -> list[float]:
    """Return for each step the mean of the values up to it, as `losses` does for a training of Keras' own.

    Args:
        values: one a step, such as losses; numbers, or tensors of one number.
    """
    return (np.cumsum([float(value) for value in values]) / np.arange(1, len(values) + 1)).tolist()


def all_reduces(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> list[str]:
    """Return what the devices exchange in one training step on JAX: for each all-reduce the arrays that it adds up.

    It compiles the gradient of the loss (not the whole step, which Keras keeps to itself) for images that lie as
    `keras.distribution` lays them, and reads the program that XLA made of it.

    Args:
        model: built under the distribution in question.
        images: array of shape (n, ...), as the model takes them; one batch.
        labels: array of shape (n,), numbers of classes.

    Returns:
        For each all-reduce the arrays' types and shapes, such as "f32[512,10] f32[10]".
    """
    import jax
    import keras

    def loss(weights: list[jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
        answers, _ = model.stateless_call(weights, [], images)
        return keras.losses.sparse_categorical_crossentropy(labels, answers).mean()

    layout = keras.distribution.distribution().get_data_layout
    batch = [jax.device_put(array, layout(array.shape).backend_layout) for array in (images, labels)]
    weights = [weight.value for weight in model.trainable_variables]
    program = jax.jit(jax.grad(loss)).lower(weights, *batch).compile().as_text()
    added = [line.split(" all-reduce(")[0] for line in program.splitlines() if " all-reduce(" in line]
    return [" ".join(re.findall(r"[a-z]+\d+\[[\d,]*\]", line)) for line in added]
