"""Lesson 09, Train on several machines: the checks of its exercises, and the storage of exercise 4."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from helpers.judge import checks

Share = Callable[[int, int, int], tuple[int, int]]


@checks.verdict
def check_share(learner: Share) -> Iterator[str]:
    """Lesson 09, exercise 1: each process' part of a batch; together they are the batch, and differ by one at most."""
    rng = np.random.default_rng()
    cases = [(10, 4), (8, 2), (3, 3), (256, 1), (2, 5), (0, 3), (256, 3), (1_000_003, 7)]
    cases += [(61, 7), (115, 7), (256, 49), (10**9 + 7, 3)]  # where images / size, a float, is rounded
    cases += [tuple(rng.integers((0, 1), (5_000, 65)).tolist()) for _ in range(12)]
    for images, size in cases:
        parts = [_part(learner, images, rank, size) for rank in range(size)]
        _judge_parts(parts, images, size)
    yield f"{len(cases)} batches, each image in one part, and parts that differ by one image at most"


def _part(learner: Share, images: int, rank: int, size: int) -> tuple[int, int]:
    """Return what the learner's function says, if it is two whole numbers, and the same ones each time."""
    call = f"share({images}, {rank}, {size})"
    answers = []
    for _ in range(2):
        try:
            answers.append(learner(images, rank, size))
        except NotImplementedError:
            raise checks.NotDone(f"{call} raised NotImplementedError.") from None
        except Exception as error:
            raise checks.NotYet(f"{call} stopped with {type(error).__name__}: {error}") from None
    answer = answers[0]
    if answer is ...:
        raise checks.NotDone(f"{call} is `...`, as it was handed out.")
    if answer is None:
        raise checks.NotYet(f"{call} returned None. (It is `return` that hands a value back.)")
    if isinstance(answer, np.ndarray):
        answer = list(answer.ravel()) if answer.shape == (2,) else answer
    whole = int | np.integer
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(isinstance(one, whole) for one in answer):
        raise checks.NotYet(f"{call} expected two whole numbers, (first, end); actual: {answer!r}")
    if list(answers[1]) != list(answer):
        raise checks.NotYet(f"{call} is {tuple(answer)}, and called again {tuple(answers[1])}")
    return int(answer[0]), int(answer[1])


def _judge_parts(parts: Sequence[tuple[int, int]], images: int, size: int) -> None:
    said = ", ".join(f"rank {rank}: {part}" for rank, part in list(enumerate(parts))[:5]) + ", ..." * (size > 5)
    where = f"{images} images, {size} processes ({said}):"
    for rank, (first, end) in enumerate(parts):
        if not 0 <= first <= end <= images:
            raise checks.NotYet(f"{where} rank {rank} has {(first, end)}; expected 0 <= first <= end <= {images}")
    for image in sorted({0, *(edge for part in parts for edge in part)} - {images}):  # between edges nothing changes
        times = sum(first <= image < end for first, end in parts)
        if times != 1:
            raise checks.NotYet(f"{where} image {image} is in {times} parts; expected one")
    sizes = [end - first for first, end in parts]
    if max(sizes) - min(sizes) > 1:
        raise checks.NotYet(f"{where} parts of {min(sizes)} and of {max(sizes)} images; they may differ by one")


def exchange_seconds(gradient_bytes: float, n: int, bytes_per_second: float, latency: float) -> float:
    """Return the time that a ring all-reduce of a gradient among n processes takes at best.

    Each of its 2 (n - 1) messages has one n-th of the gradient: Patarasuk and Yuan, Bandwidth optimal all-reduce
    algorithms for clusters of workstations, 2009; the terms for latency and bandwidth are those of Thakur, Rabenseifner
    and Gropp, Optimization of collective communication operations in MPICH, 2005.
    """
    return 2 * (n - 1) * (latency + gradient_bytes / n / bytes_per_second)


@checks.verdict
def check_exchange_seconds(learner: Callable[[float, int, float, float], float]) -> Iterator[str]:
    """Lesson 09, exercise 2: the time of a ring all-reduce."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        known = [(2_678_824, 2, 0.125e9, 1e-3), (8, 4, 1e9, 0.5), (4_000_000, 4, 1e9, 0.0)]
        known += [(2_678_824, 1, 0.125e9, 1e-3)]
        for size in rng.integers(1, 1000, 12).tolist():
            rate, latency = float(rng.integers(1, 100)) * 1e8, float(rng.integers(1, 90)) * 1e-5
            known.append((size * 1e6, int(rng.integers(2, 1025)), rate, latency))
        return known

    yield checks.judge_function(learner, exchange_seconds, cases)


Receive = Callable[[dict, int, np.ndarray], object]


@checks.verdict
def check_receive(learner: Receive) -> Iterator[str]:
    """Lesson 09, exercise 3: what a parameter server does so that a step that comes twice counts once."""
    rng = np.random.default_rng()
    by_hand = [(0, 1.0), (1, 2.0), (1, 2.0)]  # twice in a row
    later = [(2, 1.0), (0, 4.0), (2, 1.0), (1, 8.0), (0, 4.0)]  # in another order, and twice, but not in a row
    zero = [(0, 0.0), (1, 3.0), (0, 0.0)]
    for steps in (by_hand, later, zero):
        _judge_server(learner, np.array([100.0]), [(number, np.array([value])) for number, value in steps])
    for _ in range(5):
        gradients = rng.normal(0, 5, (int(rng.integers(3, 30)), 2, 3))
        gradients[-1] = gradients[0]  # two different steps with the same gradient
        numbers = rng.permutation(np.concatenate([np.arange(len(gradients)), rng.integers(0, len(gradients), 5)]))
        deliveries = [(int(number), gradients[number]) for number in numbers]
        _judge_server(learner, rng.integers(-9, 10, (2, 3)).astype(float), deliveries)
    yield "8 trainings in which steps came late, twice, or in another order"


def _judge_server(learner: Receive, weights: np.ndarray, deliveries: Sequence[tuple[int, np.ndarray]]) -> None:
    server: dict[str, Any] = {"weights": weights.copy(), "done": set()}
    other: dict[str, Any] = {"weights": weights.copy(), "done": set()}  # a second server; it gets the first step alone
    expected, came = weights.copy(), []
    for at, (number, gradient) in enumerate(deliveries):
        if number not in came:
            expected = expected - 0.1 * gradient
        came.append(number)
        before = gradient.copy()
        for one in (server, other) if at == 0 else (server,):
            try:
                answer = learner(one, number, gradient)
            except NotImplementedError:
                raise checks.NotDone("receive raised NotImplementedError.") from None
            except Exception as error:
                raise checks.NotYet(
                    f"receive(server, {number}, ...) stopped with {type(error).__name__}: {error}"
                ) from None
            if answer is ... and not one["done"] and np.array_equal(one["weights"], weights) and gradient.any():
                raise checks.NotDone("receive(server, 0, ...) changed nothing, as it was handed out.")
        if not np.array_equal(before, gradient):
            raise checks.NotYet(f"receive changed the gradient of step {number}; work on a copy")
        told = f"after the steps {came} came"
        if gradient.size == 1:
            told += f" with the gradients {[float(one[0]) for _, one in deliveries[: at + 1]]}"
        else:
            told += f" (weights and gradients are arrays of shape {gradient.shape})"
        if not isinstance(server["done"], set | frozenset):
            raise checks.NotYet(f'{told}, server["done"] is {server["done"]!r}; expected a set (`add` returns None).')
        if at == 0 and gradient.any() and not server["done"] and np.array_equal(server["weights"], weights):
            returned = "" if answer is None else " What receive returns is not looked at; change `server`."
            raise checks.NotYet(f"{told}, server is as before; expected weights {expected.tolist()}.{returned}")
        actual = np.asarray(server["weights"], float)
        if actual.shape != expected.shape or not np.allclose(actual, expected, atol=1e-9):
            raise checks.NotYet(f"{told}, weights: {_difference(expected, actual)}")
        if set(server["done"]) != set(came):
            raise checks.NotYet(
                f'{told}, server["done"]: expected {set(came)}, actual {set(server["done"]) or "set()"}'
            )


def _difference(expected: np.ndarray, actual: np.ndarray) -> str:
    if actual.shape != expected.shape:
        return f"expected shape {expected.shape}, actual {actual.shape}"
    at = int(np.argmax(~np.isclose(expected, actual, atol=1e-9).ravel()))
    index = [int(one) for one in np.unravel_index(at, expected.shape)]
    place = f" at index {index}" if expected.size > 1 else ""
    return f"expected {expected.ravel()[at]:.9g}, actual {actual.ravel()[at]:.9g}{place}"


class Died(BaseException):
    """A process' death in the middle of a write; no `except Exception` of the learner's stops it."""


class Store:
    """A storage that cannot rename, in memory; a write may be cut, as when its process dies."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[str, list] = {}
        self._dies: tuple[int, int] | None = None  # in which write from now on, and what that one still writes
        self.written: list[int] = []  # the lengths of all writes so far

    def write(self, name: str, numbers: Sequence[float]) -> None:
        """Keep a list under a name; what was there is gone at once, also if the process dies meanwhile."""
        if not isinstance(numbers, list | tuple | np.ndarray):
            raise TypeError(f"store.write takes a list of numbers, not {numbers!r}")
        numbers = list(numbers)
        self._still_alive()
        self.written.append(len(numbers))
        if self._dies is not None and len(self.written) == self._dies[0]:
            self._kept[str(name)] = numbers[: self._dies[1]]
        self._still_alive()
        self._kept[str(name)] = numbers

    def read(self, name: str) -> list:
        """Return what was written under a name."""
        return list(self._kept[str(name)])

    def names(self) -> list[str]:
        """Return all names, in the order of the alphabet: "10" is before "9"."""
        return sorted(self._kept)

    def delete(self, name: str) -> None:
        """Forget a name and what was written there."""
        self._still_alive()
        del self._kept[str(name)]

    def _still_alive(self) -> None:
        """A dead process does nothing more, even one that catches everything."""
        if self._dies is not None and len(self.written) >= self._dies[0]:
            raise Died


Checkpoint = tuple[int, list]  # a step, its weights
Save = Callable[[Store, int, list], object]
Newest = Callable[[Store], "Checkpoint | None"]


@checks.verdict
def check_checkpoints(save: Save, newest: Newest) -> Iterator[str]:
    """Lesson 09, exercise 4: wherever a process dies in `save`, the checkpoint before is found, or the new one.

    The steps are not always 1, 2, 3, so that a place by the step's number (`step % 2`) is found out; 840 is a multiple
    of all small numbers. A weight of 1/3 finds rounding, equal ones find a list that is written twice and compared.
    """
    first = Store()
    answer = _save(save, first, 1, [0.5, 0.0], "save(store, 1, [0.5, 0.0])")
    if not first.written:
        kind = checks.NotDone if answer is ... else checks.NotYet
        raise kind("save(store, 1, [0.5, 0.0]) wrote nothing into the store.")
    _judge_newest(newest, first, [(1, [0.5, 0.0])], "after save(store, 1, [0.5, 0.0])", hints=True)
    _judge_newest(newest, Store(), [None], "in an empty store")
    deaths, consecutive = 0, range(1, 13)
    trainings: list[tuple[Sequence[int], Callable[[int], list]]] = [
        (consecutive, lambda step: [step / 4, float(step), 2.5, 0.0]),
        (consecutive, lambda step: [step / 4, float(step), -1.0, 3.0]),
        (consecutive, lambda step: [step / 4, float(step), 1.0, 1.0]),
        ((8, 16, 24), lambda step: [step / 3, -step / 4]),
        ((1, 3, 5), lambda step: [0.0, 0.0, 0.0, 0.0]),
        ((840, 1680, 2520), lambda step: [float(step)]),
    ]
    for steps, weights in trainings:
        store, old, kept = Store(), None, []
        for at, step in enumerate(steps, 1):
            new, saved = (step, weights(step)), ", ".join(str(one) for one in steps[:at])
            told = f"after step{'s' * (at > 1)} {saved} {'were' if at > 1 else 'was'} saved"
            store, died = _judge_deaths(save, newest, store, old, new, told)
            deaths, old = deaths + died, new
            kept.append((copy.deepcopy(store), new))
        for one, new in kept:  # a new process knows the store alone
            _judge_newest(newest, one, [new], f"asked again for the store as it was after step {new[0]}")
    yield f"{deaths} deaths in the middle of a write, and a whole checkpoint after each"


def _judge_deaths(
    save: Save, newest: Newest, store: Store, old: Checkpoint | None, new: Checkpoint, told: str, before: str = ""
) -> tuple[Store, int]:
    """Save one step whole, and in copies of the store let it die wherever it writes; who has lost it dies once more.

    Args:
        save: the learner's.
        newest: the learner's.
        store: as it is before; it stays so.
        old: what `newest` may return until the new one is whole.
        new: the step and its weights.
        told: when the whole one is judged, in words.
        before: the first death, in words; empty before it.

    Returns:
        (the store after the step, how many deaths there were)
    """
    step, weights = new
    whole, call, deaths = copy.deepcopy(store), f"save(store, {step}, {weights})", 0
    lost: list[tuple[Store, str, str]] = []
    _save(save, whole, step, weights, f"{before}{call}")
    _judge_newest(newest, whole, [new], told)
    for write, length in enumerate(whole.written[len(store.written) :], len(store.written) + 1):
        for kept in range(length + 1):
            dead, deaths = copy.deepcopy(store), deaths + 1
            dead._dies = write, kept
            with contextlib.suppress(Died):
                _save(save, dead, step, weights, f"{before}{call}")
            dead._dies = None
            where = f"{before}{call} died when {kept} of {length} numbers of a write were there; "
            found = _judge_newest(newest, dead, [old, new], f"{where}after this")
            again = f"{where}after it was saved again"
            if found == new or before:
                _save(save, dead, step, weights, f"{where}then {call}")
                _judge_newest(newest, dead, [new], again)
            else:
                lost.append((dead, again, f"{where}then "))
    for dead, again, where in lost:  # after all that die once, so that the simplest case is told
        deaths += _judge_deaths(save, newest, dead, old, new, again, where)[1]
    return whole, deaths


def _save(save: Save, store: Store, step: int, weights: list, call: str) -> object:
    given = list(weights)
    answer = _call_of_checkpoints(save, call, store, step, given)
    if given != weights:
        raise checks.NotYet(f"{call} changed the list of weights to {given}; work on a copy")
    return answer


def _call_of_checkpoints(function: Callable[..., object], call: str, *given: object) -> object:
    try:
        return function(*given)
    except NotImplementedError:
        raise checks.NotDone(f"{call} raised NotImplementedError.") from None
    except Exception as error:
        raise checks.NotYet(f"{call} stopped with {type(error).__name__}: {error}") from None


def _judge_newest(
    newest: Newest, store: Store, expected: Sequence[Checkpoint | None], when: str, hints: bool = False
) -> Checkpoint | None:
    """Ask a copy of the store, as a new process knows the old one's variables as little as its store's identity."""
    answer = _call_of_checkpoints(newest, f"{when}, newest(store)", copy.deepcopy(store))
    if answer is ...:
        raise checks.NotDone("newest(store) is `...`, as it was handed out.")
    try:
        came = None if answer is None else (int(answer[0]), [float(one) for one in answer[1]])
    except (TypeError, ValueError, IndexError, KeyError):
        raise checks.NotYet(f"{when}, newest(store) is {answer!r}; expected (step, weights) or None") from None
    for one in expected:
        if came is one is None or (came and one and _same(came, one)):
            return one
    wanted = " or ".join(str(one) for one in expected)
    hint = " (It is `return` that hands a value back, not `print`.)" if answer is None and hints else ""
    raise checks.NotYet(f"{when}, newest(store): expected {wanted}, actual {came}{hint}")


def _same(came: Checkpoint, wanted: Checkpoint) -> bool:
    """Whether step and weights are equal, to float32's precision."""
    return (
        came[0] == wanted[0]
        and len(came[1]) == len(wanted[1])
        and all(math.isclose(a, b, rel_tol=1e-7) for a, b in zip(came[1], wanted[1], strict=True))
    )
