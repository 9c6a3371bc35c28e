"""Lesson 08, Share a batch among devices, and 08b, Split a network: checks, figures, machinery."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, figure, show

if TYPE_CHECKING:
    import keras

# One device's part in a ring: its pieces, its number, `swap`.
Program = Callable[[list[np.ndarray], int, Callable[[np.ndarray], np.ndarray]], object]


@checks.verdict
def check_shared_gradient(
    learner: Callable, gradient: Callable, x: np.ndarray, y: np.ndarray, places: list[str]
) -> Iterator[str]:
    """Lesson 08, exercise 1: a batch's gradient, each place computing it for an equal part of the batch.

    Args:
        learner: takes `gradient`, images, labels and places.
        gradient: of the lesson's network; takes images and labels, and returns a tensor of one row.
        x: array of shape (n, 784), a batch; n is even.
        y: array of shape (n,), its labels.
        places: the names of two devices of TensorFlow.
    """
    for names in (places, places[:1], [*places, places[0]], [*places, *places]):
        _judge_shared(learner, names)
    whole, shared = gradient(x, y).numpy(), _array(checks.answer(learner, gradient, x, y, places, who="it"))
    error = np.abs(shared - whole).max() / np.abs(whole).max() if shared.shape == whole.shape else np.inf
    if not error < 1e-4:
        raise checks.NotYet(f"for the lesson's network the largest error is {error:.0%} of the largest gradient.")
    yield f"1 to 4 places; for the lesson's network the largest error is {error:.0e} of the largest gradient"


def _array(value: object) -> np.ndarray:
    """Return what a learner's function returned as an array of numbers; an empty one if it is none."""
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def _judge_shared(learner: Callable, places: list[str]) -> None:
    """Raise NotYet unless each place got an equal part of the batch, and the answer is the whole batch's gradient."""
    import tensorflow as tf

    rng, count = np.random.default_rng(), 6 * len(places)
    x = np.stack([np.arange(count), *rng.integers(-9, 10, (2, count))], axis=1).astype("float32")
    y, calls = rng.permutation(count).astype("uint8"), []

    def gradient(images: np.ndarray, labels: np.ndarray) -> tf.Tensor:
        images, labels = tf.cast(images, tf.float32), tf.cast(labels, tf.float32)
        mean = tf.reduce_mean(images * labels[:, None], axis=0)
        calls.append((mean.device.rpartition("device:")[2], images[:, 0].numpy().astype(int), labels.numpy()))
        return mean

    said = f"for {count} images and {places} it"
    actual = checks.answer(learner, gradient, x.copy(), y.copy(), list(places), who=said)
    if actual is ... or (actual is None and not calls):
        raise checks.NotDone("it computed no gradient and returned nothing.")
    if not calls:
        raise checks.NotYet(f"{said} called `gradient` on no place.")
    for place, numbers, labels in calls:
        if not np.array_equal(labels, y[numbers]):
            raise checks.NotYet(f"{said} gave images on {place} other images' labels.")
    seen = np.bincount(np.concatenate([numbers for _, numbers, _ in calls]), minlength=count)
    if (seen != 1).any():
        number = int(np.flatnonzero(seen != 1)[0])
        raise checks.NotYet(f"{said} computed with image {number} so often: {seen[number]}; once is right.")
    used, sizes = [place for place, _, _ in calls], [len(numbers) for _, numbers, _ in calls]
    if len(calls) > len(places):
        raise checks.NotYet(f"{said} called `gradient` {len(calls)} times; once on each place is right.")
    if sorted(used) != sorted(places) or len(set(sizes)) > 1:
        parts = ", ".join(f"{size} images on {place}" for place, size in zip(used, sizes, strict=True))
        raise checks.NotYet(f"{said} computed the gradient of {parts}; each place gets {count // len(places)}.")
    if actual is None:
        raise checks.NotYet(f"{said} returned None; return the gradient of the whole batch.")
    expected = (x.astype(float) * y[:, None]).mean(axis=0)
    came = _array(actual)
    if came.shape != expected.shape or not np.allclose(came, expected, rtol=1e-4, atol=1e-4):
        raise checks.NotYet(f"{said} returned {came.round(3).tolist()}; expected {expected.round(3).tolist()}")


@checks.verdict
def check_combine(learner: Callable[[list[np.ndarray], list[int]], np.ndarray]) -> Iterator[str]:
    """Lesson 08, exercise 2: the whole batch's mean gradient from those of parts of different sizes."""

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


def choose_gpus(wanted: int) -> list[str]:
    """Let TensorFlow see so many GPUs, or none; before it starts.

    Args:
        wanted: how many; if there are fewer, none is used.

    Returns:
        Their names, such as ["GPU:0", "GPU:1"].
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    chosen = gpus[:wanted] if len(gpus) >= wanted else []
    tf.config.set_visible_devices(chosen, "GPU")
    for gpu in chosen:
        tf.config.experimental.set_memory_growth(gpu, True)  # JAX wants some of it, too
    return [f"GPU:{number}" for number in range(len(chosen))]


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
