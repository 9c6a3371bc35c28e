"""Serve lessons 08, Share a batch among devices, and 08b, Split a network: checks, figures, machinery."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import numpy as np

from helpers import training
from helpers.errors import LINE_WIDTH
from helpers.judge import checks, messages
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show

if TYPE_CHECKING:
    import jax
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
    where = f"with {devices} devices"
    for me, actual in enumerate(returned):
        unchanged = isinstance(actual, list) and _are_same_pieces(actual, held[me])
        if not any(sent) and (actual is None or unchanged):
            raise checks.NotDone(f"device {me} of {devices} swapped nothing and returned {_format_pieces(actual)}.")
        if actual is None:
            raise checks.NotYet(f"{where}, device {me} returned None; return the list of the summed pieces.")
        if not _are_same_pieces(actual, expected):
            raise checks.NotYet(
                f"{where}, device {me}: expected {_format_pieces(expected)}, came {_format_pieces(actual)}.\n"
                f"{_format_exchange(held, sent)}"
            )
    least = 2 * (devices - 1)
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


def count_bytes(widths: Sequence[int], batch: int, states: int) -> tuple[int, int]:
    """Return the bytes of a training with float32: weights, gradients and optimizer together, then activations.

    Args:
        widths: the inputs of a dense network, then the outputs of each layer.
        batch: images of a step.
        states: numbers that the optimizer keeps for each weight and bias.
    """
    weights = sum(inputs * outputs + outputs for inputs, outputs in itertools.pairwise(widths))
    return 4 * weights * (1 + 1 + states), 4 * batch * sum(widths[:-1])


@checks.print_verdict
def check_count_bytes(learner: Callable[[list[int], int, int], tuple[int, int]]) -> Iterator[str]:
    """Judge exercise 1 of lesson 08b: the bytes that a training keeps."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [
            (rng.integers(1, 99, layers + 1).tolist(), *rng.integers([1, 0], [99, 3]).tolist()) for layers in (1, 3, 6)
        ]
        return [([2, 3, 1], 5, 1), ([2, 3, 1], 5, 0), ([4, 2], 1, 2), ([784, 512, 512, 10], 128, 1), *drawn]

    yield checks.judge_function(learner, count_bytes, cases)


@checks.print_verdict
def check_summand(learner: Callable[[np.ndarray, np.ndarray, np.ndarray, int, int], np.ndarray]) -> Iterator[str]:
    """Judge exercise 2 of lesson 08b: what one device adds to relu(x @ a) @ b, with its columns of a and rows of b."""

    def right(x: np.ndarray, a: np.ndarray, b: np.ndarray, me: int, n: int) -> np.ndarray:
        width = a.shape[1] // n
        own = slice(me * width, (me + 1) * width)
        return np.maximum(x @ a[:, own], 0) @ b[own]

    def cases(rng: np.random.Generator) -> list[tuple]:
        small = np.array([[1.0, 2.0]]), np.array([[1.0, -2.0], [3.0, 0.0]]), np.array([[4.0], [5.0]])
        drawn = [(*small, 0, 2), (*small, 1, 2)]
        for n, images, inputs, width, outputs in ((1, 2, 2, 3, 4), (2, 1, 2, 1, 1), (2, 4, 4, 2, 4), (3, 2, 5, 2, 3)):
            sizes = (images, inputs), (inputs, n * width), (n * width, outputs)
            for me in range(n):
                x, a, b = (rng.integers(-9, 10, size).astype(float) for size in sizes)
                drawn.append((x, a, b, me, n))
        return drawn

    account = checks.judge_function(learner, right, cases)
    x, a, b, n = np.array([[_Factor(1)] * 3] * 2, object), np.ones((3, 8)), np.ones((8, 5)), 4
    needed, _Factor.multiplications = len(x) * (a.size + b.size) // n, 0
    with contextlib.suppress(checks.NotYet):  # JAX and others want plain numbers, and have been right with them
        checks.answer(learner, x, a, b, 1, n, who="summand")
    if _Factor.multiplications > 1.5 * needed:  # a ReLU may multiply, too
        parts = "the sum is right, but a device has its parts of `a` and `b` alone, and computes with no others"
        counted = f"one of {n} needs {needed} multiplications, counted {_Factor.multiplications}"
        raise checks.NotYet(f"{parts}: {counted}.")
    yield account


class _Factor(float):
    """A number that counts the multiplications of all such numbers, and whose sums and products count, too."""

    multiplications: ClassVar[int] = 0

    def __mul__(self, other: float) -> _Factor:
        _Factor.multiplications += 1
        return _Factor(float(self) * float(other))

    def __add__(self, other: float) -> _Factor:
        return _Factor(float(self) + float(other))


TURNS = {"F": 1, "B": 2}  # that a piece of a pipeline takes: backward computes two products for each layer
Order = Callable[[int, int, int], list[tuple[str, int]]]  # what one stage of a pipeline does: ("F", 0), ("B", 0) ...


@checks.print_verdict
def check_order(learner: Order) -> Iterator[str]:
    """Judge exercise 3 of lesson 08b: a pipeline's order that is as fast as possible, and keeps few activations.

    Source: Narayanan et al., "Memory-efficient pipeline-parallel DNN training" (2021), for one forward, one backward.
    """
    cases = ((4, 6), (2, 4), (3, 3), (1, 3), (5, 12), (4, 1), (5, 2), (3, 10))
    drawings = [_judge_pipeline(learner, *case, is_first=case == cases[0]) for case in cases]
    print(drawings[0])
    yield f"{len(cases)} pipelines, of 1 to 5 stages"


def _judge_pipeline(learner: Order, stages: int, parts: int, is_first: bool) -> str:
    """Judge one pipeline of a learner's, and return its drawing; the first one may be as it was given."""
    orders = [_ask_stage(learner, stage, stages, parts) for stage in range(stages)]
    given = [(kind, part) for part, kind in itertools.product(range(parts), "FB")]
    if is_first and all(own == given for own in orders):
        raise checks.NotDone("this is what you were given: one micro-batch after the other.")
    rows, least = _play_turns(orders), sum(TURNS.values()) * (parts + stages - 1)
    drawing, where = _format_turns(rows), f"with {stages} stages and {parts} micro-batches"
    for stage, own in enumerate(orders):
        most = max(itertools.accumulate(1 if kind == "F" else -1 for kind, _ in own))
        if most > stages:
            keeps = f"keeps the activations of {most} micro-batches at once, and has room for {stages}"
            raise checks.NotYet(f"{where}, stage {stage} {keeps}.\n{drawing}")
    if len(rows[0]) > least:
        raise checks.NotYet(f"{where} all is done in {len(rows[0])} turns; {least} are enough.\n{drawing}")
    return drawing


def draw_pipeline(order: Order, stages: int, parts: int) -> None:
    """Print what each stage of a pipeline does in each turn."""
    rows = _play_turns([order(stage, stages, parts) for stage in range(stages)])
    print(f"{_format_turns(rows)}\n{len(rows[0])} turns; each stage works in {sum(TURNS.values()) * parts} of them")


def _ask_stage(learner: Order, stage: int, stages: int, parts: int) -> list[tuple[str, int]]:
    """Return what a learner's stage does; NotYet unless it does each piece once, and F before B."""
    who = f"for stage {stage} of {stages}, with parts = {parts}, it"
    answer: Any = checks.answer(learner, stage, stages, parts, who=who)
    if answer is None and (stage, stages) == (0, 4):
        raise checks.NotDone(f"{who} returned no list.")
    try:
        works = [(str(kind), int(part)) for kind, part in answer]
    except (TypeError, ValueError):
        raise checks.NotYet(f'{who} returned {answer!r}; expected a list such as [("F", 0), ("B", 0)].') from None
    pieces = list(itertools.product("FB", range(parts)))
    for kind, part in works:
        if (kind, part) not in pieces:
            raise checks.NotYet(f"{who} does {kind}{part}; there is F or B of the micro-batches 0 to {parts - 1}.")
    for kind, part in pieces:
        if (count := works.count((kind, part))) != 1:
            raise checks.NotYet(f"{who} does {kind}{part} {count} times; each F and each B is done once.")
    if early := [part for part in range(parts) if works.index(("B", part)) < works.index(("F", part))]:
        raise checks.NotYet(f"{who} does B{early[0]} before F{early[0]}.")
    return works


def _play_turns(works: list[list[tuple[str, int]]]) -> list[list[str]]:
    """Return for each stage what it does in each turn, such as "F0", or "." if it waits.

    Args:
        works: for each stage its pieces in their order.

    Raises:
        NotYet: all stages wait for each other.
    """
    left, last = [list(own) for own in works], len(works) - 1
    done = {("F", part, -1) for _, part in works[0]}  # the images are there; each tuple: F or B, micro-batch, stage
    rows: list[list[str]] = [[] for _ in works]
    # Of each stage the piece that it is at, once for each turn that it still needs.
    under_way: list[list[tuple[str, int]]] = [[] for _ in works]
    while any(left) or any(under_way):
        for stage, own in enumerate(left):
            kind, part = own[0] if own else ("", 0)
            if not under_way[stage] and (kind, part, stage - 1 if kind == "F" else stage + 1) in done:
                under_way[stage] = [own.pop(0)] * TURNS[kind]
        if not any(under_way):
            waits = ", ".join(f"stage {stage} with {own[0][0]}{own[0][1]}" for stage, own in enumerate(left) if own)
            raise checks.NotYet(f"from turn {len(rows[0])} on all wait for each other: {waits}.\n{_format_turns(rows)}")
        done |= _play_turn(rows, under_way, last)
    return rows


def _play_turn(rows: list[list[str]], under_way: list[list[tuple[str, int]]], last: int) -> set[tuple[str, int, int]]:
    """Let all stages work for one turn, note it in their rows, and return which pieces are done with it."""
    done = set()
    for stage, pieces in enumerate(under_way):
        kind, part = pieces.pop() if pieces else ("", 0)
        rows[stage].append(f"{kind}{part}" if kind else ".")
        if kind and not pieces:
            done.add((kind, part, stage))
            if (kind, stage) == ("F", last):  # the loss: the last stage can go back
                done.add(("B", part, last + 1))
    return done


def _format_turns(rows: list[list[str]]) -> str:
    """Return a pipeline as text, a line a stage; its first turns, if a line would be too long."""
    wide = 1 + max(map(len, itertools.chain(*rows)))
    table = {"turn   ": [str(turn + 1) for turn in range(len(rows[0]))]}
    table |= {f"stage {stage}": row for stage, row in enumerate(rows)}
    lines = []
    for name, row in table.items():
        lines.append(name + "".join(f"{work:>{wide}}" for work in row[: (LINE_WIDTH - 7) // wide]))
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------ its figures


def draw_speed_up(lines: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw how many times as fast 1, 2, 3 ... devices are as one, beside the best possible.

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
        axes.set(xlabel="devices", ylabel="times as fast as one", title=title, ylim=(0, None))
        axes.set_xticks(range(1, most + 1))
        axes.legend()
    words = "; ".join(f"{name}: {factors[-1]:.2g} with {len(factors)}" for name, factors in lines.items())
    show(drawn, f"{title}. Times as fast as one device: {words}.")


# ---------------------------------------------------------------------------------------------------- its machinery


def set_up_two_devices() -> list[str]:
    """Let TensorFlow have two GPUs or, if there are fewer, two devices made of the processor.

    Call it before TensorFlow starts.

    Returns:
        The names of the two, such as ["GPU:0", "GPU:1"].

    Raises:
        WorkshopError: TensorFlow has started already.
    """
    import tensorflow as tf

    with training.before_start():
        gpus = tf.config.get_visible_devices("GPU")  # without those on which TensorFlow fails
        if len(gpus) >= 2:
            tf.config.set_visible_devices(gpus[:2], "GPU")
            return ["GPU:0", "GPU:1"]
        tf.config.set_visible_devices([], "GPU")
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["CPU:0", "CPU:1"]


def count_all_reduces(function: Callable[..., object], *arrays: jax.Array) -> int:
    """Return how many all-reduces XLA puts into the compiled program of a function.

    Args:
        function: of JAX.
        arrays: its arguments, each on its devices.
    """
    import jax

    program = jax.jit(function).lower(*arrays).compile().as_text()
    assert program is not None, "JAX has the text of every program that XLA compiles"
    return len(re.findall(r" all-reduce(?:-start)?\(", program))  # on GPUs each is a start and an end
