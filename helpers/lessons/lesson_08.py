"""Lesson 08, Train on several devices: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import math
import queue
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, figure, show
from helpers.measure.timing import Measurement, duration, is_clear

if TYPE_CHECKING:
    import jax
    import keras

# One device's part in a ring: its pieces, its number, `swap`.
Program = Callable[[list[np.ndarray], int, Callable[[np.ndarray], np.ndarray]], object]


@checks.verdict
def check_combine(learner: Callable[[list[np.ndarray], list[int]], np.ndarray]) -> Iterator[str]:
    """Lesson 08, exercise 1: the whole batch's mean gradient from those of parts of different sizes."""

    def right(gradients: list[np.ndarray], sizes: list[int]) -> np.ndarray:
        return np.average(np.stack(gradients), axis=0, weights=sizes)

    def cases(rng: np.random.Generator) -> list[tuple]:
        known = [([np.array([1.0, 4.0]), np.array([5.0, 0.0])], [3, 1]), ([np.array([2.0])], [7])]
        known += [([np.array([6.0, 2.0]), np.array([1.0, 5.0])], [4, 4])]  # equal parts
        known += [([np.array([0.0, 0.0]), np.array([4.0, 8.0])], [3, 1])]  # a zero gradient counts, too
        known += [([np.array([9.0, 3.0]), np.array([2.0, 4.0]), np.array([7.0, 1.0])], [0, 2, 3])]  # an empty part
        drawn = []
        for shape in [(3,), (4,), (2, 3), (5, 2), (1, 1), (2, 2, 2)]:  # small whole numbers, to be computed by hand
            parts = int(rng.integers(2, 6))
            gradients = [rng.integers(-9, 10, shape).astype(float) for _ in range(parts)]
            drawn.append((gradients, rng.integers(1, 10, parts).tolist()))
        equal, empty = ([rng.integers(-9, 10, 3).astype(float) for _ in range(4)] for _ in range(2))
        return [*known, *drawn, (equal, [int(rng.integers(2, 10))] * 4), (empty, [3, 1, 0, 5])]

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_break_even_batch(learner: Callable[[float, int, float], int]) -> Iterator[str]:
    """Lesson 08, exercise 2: the smallest batch for which two devices take less time than one.

    On two devices a ring all-reduce moves 2 (n - 1) / n = 1 time the gradient's bytes to and from each.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = []
        for _ in range(10):  # round numbers, to be computed by hand; no ties, as their rounding is nobody's mistake
            milliseconds, megabytes = int(rng.integers(1, 10)), int(rng.integers(1, 1000))
            if 2 * megabytes % milliseconds == 0:
                milliseconds, megabytes = 7, 10
            drawn.append((milliseconds / 1e3, megabytes * 10**6, 1e9))
        for batch in rng.integers(2, 5000, 10).tolist():  # both take the same time close to a whole number of images
            drawn.append((2e-3, batch * 10**6 + int(rng.choice([-1, 1]) * rng.integers(10, 500)), 1e9))
        known = [(47e-6, 2_678_824, 1.25e9), (47e-6, 2_678_824, 0.125e9)]
        tie, one_image = (2.0**-10, 2**20, 2.0**30), (47e-6, 2_678_824, 1e12)
        just_below = (0.25, 2**33 - 1, 2.0**33)  # 8 images less a billionth, exact in floats
        many = (1e-6, int(rng.integers(5_000_000, 9_000_000)), 1e8)  # 100,000 images and more
        return [*known, tie, one_image, *drawn, just_below, many]

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
def check_all_reduce(learner: Program) -> Iterator[str]:
    """Lesson 08, exercise 3: one device's part in a ring all-reduce, judged by its sums and by what each device sent.

    No device can do with less than 2 (n - 1) of its n pieces, and a ring needs no more.
    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
    """
    rng = np.random.default_rng()
    counts = (3, 2, 4, 5)
    for devices in counts:
        # At first each sum tells by its digits what it consists of: 121 counts the second device twice.
        telling = [[np.array([10**device * (piece + 1)]) for piece in range(devices)] for device in range(devices)]
        drawn = list(rng.integers(-9, 10, (devices, devices, int(rng.integers(2, 5)))))
        for held in ([telling] if devices == 3 else []) + [drawn]:
            _judge_ring(learner, [list(pieces) for pieces in held])
    yield f"{', '.join(map(str, counts))} devices; with n devices each sent 2 (n - 1) of its n pieces"


class _NothingArrives(Exception):
    """A device waits, and the one before it has returned."""


def ring(program: Program, held: list[list[np.ndarray]], seconds: float = 10.0) -> tuple[list, list[list[np.ndarray]]]:
    """Run one device's program on several devices in a ring, each in a thread that sees nothing of the others.

    Args:
        program: takes the device's pieces (it may change them), the device's number, and `swap`: a function that sends
            a copy of an array to the next device and returns what the previous one sent.
        held: the pieces of each device.
        seconds: after so long a device is taken for endless, and stopped.

    Returns:
        For each device what its program returned, and for each device the arrays that it sent, in their order.
    """
    devices, until = len(held), time.monotonic() + seconds
    arriving: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in held]
    sent: list[list[np.ndarray]] = [[] for _ in held]
    ended = object()

    def watch(*_: object) -> Callable:  # Python calls it at each line of the program
        if time.monotonic() > until:
            raise TimeoutError(f"it had not returned after {seconds:g} s")
        return watch

    def one_device(me: int) -> object:
        def swap(piece: np.ndarray) -> np.ndarray:
            copy = np.array(piece)
            if copy.ndim == 0:
                raise TypeError(f"swap() takes a piece, such as pieces[0], and was given {piece!r}")
            if len(sent[me]) == 100:
                raise RuntimeError("it had called swap 100 times and wanted more")
            sent[me].append(copy)
            arriving[(me + 1) % devices].put(copy.copy())
            if (arrived := arriving[me].get()) is ended:
                raise _NothingArrives
            return arrived

        sys.settrace(watch)
        try:
            return program([piece.copy() for piece in held[me]], me, swap)
        finally:
            sys.settrace(None)
            arriving[(me + 1) % devices].put(ended)

    with ThreadPoolExecutor(devices) as threads:
        running = [threads.submit(one_device, me) for me in range(devices)]
    stopped = {me: error for me, one in enumerate(running) if (error := one.exception())}
    if not stopped:
        return [one.result() for one in running], sent
    me, error = min(
        stopped.items(), key=lambda item: isinstance(item[1], _NothingArrives)
    )  # the cause, not what follows
    if isinstance(error, NotImplementedError):
        raise checks.NotDone("it raised NotImplementedError.")
    if isinstance(error, _NothingArrives):
        numbers = ", ".join(f"device {device} {len(arrays)}" for device, arrays in enumerate(sent))
        raise checks.NotYet(
            f"with {devices} devices, device {me} waits in swap for a piece that never comes. "
            f"Each device must swap equally often; begun were: {numbers}."
        )
    raise checks.NotYet(f"with {devices} devices, device {me} stopped with {type(error).__name__}: {error}")


def _judge_ring(learner: Program, held: list[list[np.ndarray]]) -> None:
    """Raise NotYet unless every device returns the sums of all, and sends no more than it must.

    Args:
        learner: one device's program.
        held: for each device its pieces, one-dimensional arrays of whole numbers, all of the same length.
    """
    devices, length = len(held), held[0][0].size
    returned, sent = ring(learner, held)
    expected = [sum(column) for column in zip(*held, strict=True)]
    said = f"with {devices} devices"
    for me, actual in enumerate(returned):
        unchanged = isinstance(actual, list) and _same_pieces(actual, held[me])
        if actual is ... or (not any(sent) and (actual is None or unchanged)):
            raise checks.NotDone(f"device {me} of {devices} swapped nothing and returned {_written(actual)}.")
        if actual is None:
            raise checks.NotYet(f"{said}, device {me} returned None; return the list of the summed pieces.")
        if not _same_pieces(actual, expected):
            raise checks.NotYet(
                f"{said}, device {me}: expected {_written(expected)}, came {_written(actual)}.\n{_told(held, sent)}"
            )
    least = 2 * (devices - 1)
    for me, arrays in enumerate(sent):
        pieces = sum(array.size for array in arrays) / length
        if pieces > least:
            raise checks.NotYet(
                f"the sums are right, but {said} device {me} sent as much as {pieces:g} pieces; in a ring it sends "
                f"{least}, one in each of {least} swaps."
            )
        if pieces < least:
            raise checks.NotYet(
                f"the sums are right, but {said} device {me} sent only {pieces:g} pieces, and fewer than {least} "
                "cannot do. Devices share no variables: let `swap` carry everything."
            )
    if sum(max(array.size for array in swap) for swap in zip(*sent, strict=True)) > least * length:
        raise checks.NotYet(
            f"the sums are right, but {said} some wait while others send: {len(sent[0])} swaps. In a ring every device "
            f"sends one piece in each of {least} swaps."
        )


def _same_pieces(one: object, other: Sequence[np.ndarray]) -> bool:
    """Return whether both are as many pieces, and equal ones."""
    if not isinstance(one, list | tuple | np.ndarray) or len(one) != len(other):
        return False
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def _written(value: object) -> str:
    """Return pieces as people write them: [1] [2] [3]."""
    if not isinstance(value, list | tuple | np.ndarray):
        return repr(value)
    text = " ".join(str(np.asarray(piece).tolist()) for piece in value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _told(held: list[list[np.ndarray]], sent: list[list[np.ndarray]]) -> str:
    """Return what each device held and sent, a line a device."""
    lines = [
        f"  device {me} held {_written(pieces)} and sent {_written(arrays) or 'nothing'}"
        for me, (pieces, arrays) in enumerate(zip(held, sent, strict=True))
    ]
    return "\n".join(lines)


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


def tell_expected(what: str, one: Measurement, two: Measurement, half: float, exchange: float) -> None:
    """Print what a step on two devices should take beside what was measured, and the same as times one device's speed.

    Args:
        what: the size of the step.
        one: the step on one device.
        two: the step on two devices.
        half: seconds for half of the step's arithmetic.
        exchange: seconds for the exchange.
    """
    expected = half + exchange
    claim = "" if is_clear(one, two) else " (no claim: the gap is within the spread)"
    print(f"{what}, one device: {duration(one.median)}. Two devices:")
    print(
        f"  expected {duration(half)} (half) + {duration(exchange)} (exchange) = {duration(expected)}: "
        f"{one.median / expected:.2f} times as fast"
    )
    print(f"  measured {duration(two.median)}: {one.median / two.median:.2f} times as fast{claim}")


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
