"""Serve lesson 08, Share a batch among devices: its checks, its figure, its devices and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from helpers import training
from helpers.judge import checks, messages
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# The program of one device in a ring: it takes its pieces, its number, and `swap`.
Program = Callable[[list[np.ndarray], int, Callable[[np.ndarray], np.ndarray]], object]


@checks.print_verdict
def check_shared_gradient(
    learner: Callable[..., tf.Tensor],
    gradient: Callable[[np.ndarray, np.ndarray], tf.Tensor],
    x: np.ndarray,
    y: np.ndarray,
    places: list[str],
) -> Iterator[str]:
    """Judge exercise 1 of lesson 08: a batch's gradient, each place computing it for an equal part of the batch.

    Args:
        learner: takes `gradient`, images, labels and places.
        gradient: of the lesson's network; takes images and labels, and returns a tensor of one row.
        x: array of shape (n, 784), a batch; n is even.
        y: array of shape (n,), its labels.
        places: the names of two devices of TensorFlow.
    """
    for names in (places, places[:1], [*places, places[0]], [*places, *places]):
        _judge_shared(learner, names)
    whole, shared = gradient(x, y).numpy(), _make_array(checks.answer(learner, gradient, x, y, places, who="it"))
    error = np.abs(shared - whole).max() / np.abs(whole).max() if shared.shape == whole.shape else np.inf
    if not error < 1e-4:
        raise checks.NotYet(f"for the lesson's network the largest error is {error:.0%} of the largest gradient.")
    yield f"1 to 4 places; for the lesson's network the largest error is {error:.0e} of the largest gradient"


def _make_array(value: Any) -> np.ndarray:  # noqa: ANN401 (what a learner's function returns)
    """Return a value as an array of numbers, or an empty array if it is none."""
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def _judge_shared(learner: Callable[..., object], places: list[str]) -> None:
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

    who = f"for {count} images and {places} it"
    actual = checks.answer(learner, gradient, x.copy(), y.copy(), list(places), who=who)
    if actual is None and not calls:
        raise checks.NotDone("it computed no gradient and returned nothing.")
    for place, numbers, labels in calls:
        if not np.array_equal(labels, y[numbers]):
            raise checks.NotYet(f"{who} gave images on {place} other images' labels.")
    used, sizes = [place for place, _, _ in calls], {len(numbers) for _, numbers, _ in calls}
    given = np.concatenate([np.empty(0), *(numbers for _, numbers, _ in calls)])
    once = sorted(given) == list(range(count))
    if sorted(used) != sorted(places) or len(sizes) > 1 or not once:
        parts = ", ".join(f"images {numbers.tolist()} on {place}" for place, numbers, _ in calls) or "nothing"
        raise checks.NotYet(f"{who} computed with {parts}; each place gets {count // len(places)}, each image once.")
    if actual is None:
        raise checks.NotYet(f"{who} returned None; return the gradient of the whole batch.")
    expected = (x.astype(float) * y[:, None]).mean(axis=0)
    values = _make_array(actual)
    if values.shape != expected.shape or not np.allclose(values, expected, rtol=1e-4, atol=1e-4):
        raise checks.NotYet(f"{who} returned {values.round(3).tolist()}; expected {expected.round(3).tolist()}")


@checks.print_verdict
def check_all_reduce(learner: Program) -> Iterator[str]:
    """Judge exercise 2 of lesson 08: one device's program in a ring all-reduce, by its sums and by what is sent.

    Each of n devices must send at least 2 (n - 1) pieces, each an nth of its numbers, and a ring needs no more.
    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
    """
    rng, counts = np.random.default_rng(), (3, 2, 4, 5)
    for devices in counts:
        if devices == 3:  # the digits of these sums show their parts: 121 counts the second device twice
            first = np.outer(10 ** np.arange(devices), np.arange(1, devices + 1))
            _judge_ring(learner, [list(pieces) for pieces in first[:, :, None]])
        drawn = rng.integers(-9, 10, (devices, devices, int(rng.integers(2, 5))))
        _judge_ring(learner, [list(pieces) for pieces in drawn])
    tried = f"{min(counts)} to {max(counts)} devices; with n devices each sent 2 (n - 1) pieces"
    yield checks.keep_right("all_reduce", learner, tried)


def all_reduce(pieces: list[np.ndarray], me: int, swap: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """Return the pieces, each summed over all devices, after 2 (n - 1) swaps around a ring."""
    n = len(pieces)
    for step in range(n - 1):
        mine = (me - step) % n
        pieces[mine - 1] = pieces[mine - 1] + swap(pieces[mine])
    for step in range(n - 1):
        mine = (me + 1 - step) % n
        pieces[mine - 1] = swap(pieces[mine])
    return pieces


def run_ring(program: Program, held: list[list[np.ndarray]]) -> tuple[list, list[list[np.ndarray]]]:
    """Run a program as each device of a ring; return what each device returned, and what it sent.

    Args:
        program: of one device.
        held: for each device its pieces, which do not change.

    Raises:
        NotYet: a device stops with an error, or waits forever.
    """
    devices = len(held)

    def run_device(me: int, send: messages.Send, receive: messages.Receive) -> object:
        def swap(piece: np.ndarray) -> np.ndarray:
            send((me + 1) % devices, piece)
            return receive((me - 1) % devices)

        return checks.answer(program, [*map(np.copy, held[me])], me, swap, who=f"with {devices} devices, device {me}")

    returned, channels = messages.play(run_device, devices, "device")
    return returned, [channels[me, (me + 1) % devices] for me in range(devices)]


def _judge_ring(learner: Program, held: list[list[np.ndarray]]) -> None:
    """Raise NotYet unless every device returns the sums of all, and sends no more than it must.

    Args:
        learner: one device's program.
        held: for each device its pieces, one-dimensional arrays of whole numbers, all of the same length.
    """
    devices, length = len(held), held[0][0].size
    returned, sent = run_ring(learner, held)
    expected = [np.sum(column, axis=0) for column in zip(*held, strict=True)]
    where, least = f"with {devices} devices", 2 * (devices - 1)
    for me, actual in enumerate(returned):
        unchanged = isinstance(actual, list) and _are_same_pieces(actual, held[me])
        if unchanged or (actual is None and not any(sent)):
            what = "its own pieces, unchanged" if unchanged else "nothing, and swapped nothing"
            raise checks.NotDone(f"device {me} of {devices} returned {what}.")
        if actual is None:
            raise checks.NotYet(f"{where}, device {me} returned None; return the list of the summed pieces.")
        if not _are_same_pieces(actual, expected):
            swaps = len(sent[me])
            missing = f" It swapped {swaps} times; a ring takes {least} swaps." if swaps < least else ""
            raise checks.NotYet(
                f"{where}, device {me}: expected {_format_pieces(expected)}, came {_format_pieces(actual)}.{missing}\n"
                f"{_format_exchange(held, sent)}"
            )
    for me, arrays in enumerate(sent):
        pieces = sum(array.size for array in arrays) / length
        if pieces != least:
            why = "." if pieces > least else ": devices share no variables, let `swap` carry everything."
            sends = f"sent {pieces:g} pieces; in a ring each sends {least}, one in each of {least} swaps"
            raise checks.NotYet(f"the sums are right, but {where} device {me} {sends}{why}")


def _are_same_pieces(value: object, pieces: Sequence[np.ndarray]) -> bool:
    """Return whether a value is a sequence of just these pieces."""
    if not _are_pieces(value) or len(value) != len(pieces):
        return False
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(value, pieces, strict=True))


def _are_pieces(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list, a tuple or an array of pieces."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _format_pieces(value: object) -> str:
    """Return pieces as people write them: [1] [2] [3]."""
    if not _are_pieces(value):
        return repr(value)
    text = " ".join(checks.short(piece.tolist() if isinstance(piece, np.ndarray) else piece) for piece in value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _format_exchange(held: list[list[np.ndarray]], sent: list[list[np.ndarray]]) -> str:
    """Return what each device held and sent, a line a device."""
    lines = []
    for me, (pieces, arrays) in enumerate(zip(held, sent, strict=True)):
        lines.append(f"  device {me} held {_format_pieces(pieces)} and sent {_format_pieces(arrays) or 'nothing'}")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------ its figures


def draw_speed_up(lines: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw how many times one device's images a second 1, 2, 3 ... devices compute, beside the best possible.

    Args:
        lines: for each case the factor for 1 device, 2 devices and so on.
        title: the message of the figure; it says whether the factors were measured or computed.
    """
    most = max(len(factors) for factors in lines.values())
    looks = ((BLUE, "s"), (ORANGE, "o"), (GREEN, "^"))
    with figure(7.5, 3.8) as (drawn, axes):
        axes.plot([1, most], [1, most], color=GREY, ls="--", lw=1.2, label="ideal: as many times as devices")
        axes.axhline(1, color=GREY, lw=0.8)
        for (name, factors), (color, marker) in zip(lines.items(), looks, strict=False):
            axes.plot(range(1, len(factors) + 1), factors, color=color, marker=marker, ms=5, label=name)
        axes.set(xlabel="devices", ylabel="images a second, one device = 1", title=title, ylim=(0, None))
        axes.set_xticks(range(1, most + 1))
        axes.legend()
    words = "; ".join(f"{name}: {factors[-1]:.2g} with {len(factors)}" for name, factors in lines.items())
    show(drawn, f"{title}. Images a second, in those of one device: {words}.")


# ---------------------------------------------------------------------------------------------------- its machinery


def set_up_two_devices() -> list[str]:
    """Let TensorFlow have two GPUs or, if there are fewer, two devices made of the processor; multiply in float32.

    Call it before TensorFlow starts.

    Returns:
        The names of the two, such as ["GPU:0", "GPU:1"].

    Raises:
        WorkshopError: TensorFlow has started already.
    """
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)  # GPUs, too, multiply all digits of float32
    with training.before_start():
        gpus = tf.config.get_visible_devices("GPU")  # without those on which TensorFlow fails
        if len(gpus) >= 2:
            tf.config.set_visible_devices(gpus[:2], "GPU")
            return ["GPU:0", "GPU:1"]
        tf.config.set_visible_devices([], "GPU")
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["CPU:0", "CPU:1"]


def compute_loss_and_gradients(
    model: keras.Model, images: np.ndarray | tf.Tensor, labels: np.ndarray | tf.Tensor
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the mean loss of a batch, and its gradients: a tensor for each array of weights, in TensorFlow."""
    import tensorflow as tf
    from keras.losses import sparse_categorical_crossentropy

    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(sparse_categorical_crossentropy(labels, model(images)))
    return loss, tape.gradient(loss, model.trainable_variables)


def compute_gradient(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> tf.Tensor:
    """Return the gradient of a batch's mean loss: the numbers of all layers in one row."""
    import tensorflow as tf

    _, arrays = compute_loss_and_gradients(model, images, labels)
    return tf.concat([tf.reshape(array, -1) for array in arrays], axis=0)


def measure_halves(model: keras.Model, images: np.ndarray, labels: np.ndarray, batch: int) -> tuple[float, float]:
    """Return both replicas' mean loss on their own half of each batch, and on the half of the other replica.

    Args:
        model: built in the scope of a MirroredStrategy with two replicas; replica 0 gets the first half of a batch.
        images: array of shape (n, 784); n is a multiple of `batch`.
        labels: array of shape (n,).
        batch: images of a whole batch, an even number.
    """
    from keras.losses import sparse_categorical_crossentropy

    found = np.empty((2, 2))  # by replica and half
    for replica in range(2):
        weights = [weight.value.values[replica].numpy() for weight in model.trainable_variables]
        for half in range(2):
            x = images.reshape(-1, 2, batch // 2, 784)[:, half].reshape(-1, 784)
            y = labels.reshape(-1, 2, batch // 2)[:, half].ravel()
            outputs, _ = model.stateless_call(weights, [], x)
            found[replica, half] = np.mean(sparse_categorical_crossentropy(y, outputs))
    return float(found[[0, 1], [0, 1]].mean()), float(found[[0, 1], [1, 0]].mean())
