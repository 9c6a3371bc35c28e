"""Serve lesson 09: solutions and checks of its exercises."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from helpers.errors import WorkshopError
from helpers.judge import checks, messages
from helpers.judge.messages import Receive, Send
from helpers.running import sources


def keep_own(account: str, **functions: Callable[..., object]) -> str:
    """Keep right functions for the processes of later cells, if they can be sent there; return the account."""
    try:
        sources.gather_sources(functions)
    except WorkshopError as why:
        return f"{account}. The lesson goes on with its own solution. {why.what}"
    for name, function in functions.items():
        account = checks.keep_right(name, function, account)
    return account


def share(images: int, rank: int, size: int) -> tuple[int, int]:
    """Return (first, end) of one rank's images."""
    return rank * images // size, (rank + 1) * images // size


@checks.print_verdict
def check_share(learner: Callable[[int, int, int], tuple[int, int]]) -> Iterator[str]:
    """Judge exercise 1 of lesson 09: each process' part of a batch; each image in one part, sizes that differ by 1."""
    cases = [(10, 4), (8, 2), (3, 3), (256, 1), (2, 5), (0, 3), (256, 3), (4001, 7)]
    cases += [(61, 7), (115, 7), (256, 49), (90, 10), (100, 30)]  # where images / size or rank / size is rounded
    cases += [tuple(case) for case in np.random.default_rng().integers((0, 1), (5_000, 65), (12, 2)).tolist()]
    for images, size in cases:
        parts = sorted(_ask_part(learner, images, rank, size) for rank in range(size))
        if wrong := _name_wrong_part(parts, images):
            actual = ", ".join(map(str, parts[:5])) + (", ..." if size > 5 else "")
            raise checks.NotYet(f"with {images} images and {size} processes, {wrong}; came {actual}")
    account = f"{len(cases)} batches, each image in one part, and parts that differ by one image at most"
    yield keep_own(account, share=learner)


def _name_wrong_part(parts: list[tuple[int, int]], images: int) -> str:
    """Return what is wrong with the parts of a batch, sorted, as a sentence; empty if nothing is."""
    sizes = [end - first for first, end in parts]
    if min(sizes) < 0:
        return "a part ends before its first image"
    before = 0  # images that belong to a part
    for first, end in parts:
        if first != before:
            return f"image {before} is in no part" if first > before else f"two parts overlap at image {first}"
        before = end
    if before != images:
        return f"image {before} is in no part" if before < images else f"there is no image {images}"
    most, least = max(sizes), min(sizes)
    return f"one part has {most} images and another {least}" if most - least > 1 else ""


def _ask_part(share: Callable[[int, int, int], object], images: int, rank: int, size: int) -> tuple[int, int]:
    """Return (first, end) of a rank's part, as the learner's function has it; NotYet unless it is two whole numbers."""
    call = f"share({images}, {rank}, {size})"
    answer: Any = checks.answer(share, images, rank, size, who=call)
    try:
        first, end = map(operator.index, answer)
    except (TypeError, ValueError):
        raise checks.NotYet(f"{call} expected two whole numbers, (first, end); actual: {answer!r}") from None
    return first, end


def all_reduce(numbers: np.ndarray, rank: int, size: int, send: Send, receive: Receive) -> np.ndarray:
    """Return the sum of all ranks' numbers; all ranks add in the same order, so their sums are equal to the last bit.

    Args:
        numbers: this rank's.
        rank: of this process.
        size: the number of processes.
        send: takes a rank and numbers.
        receive: takes a rank.
    """
    for other in range(size):
        if other != rank:
            send(other, numbers)
    return functools.reduce(np.add, [numbers if other == rank else receive(other) for other in range(size)])


@checks.print_verdict
def check_all_reduce(learner: Callable[..., np.ndarray]) -> Iterator[str]:
    """Judge exercise 2 of lesson 09: an all-reduce of messages, which each group of ranks calls twice."""
    rng = np.random.default_rng()
    given = [rng.integers(-99, 100, (2, size, n)).astype(np.float32) for size, n in ((3, 3), (2, 1), (1, 4), (4, 2))]
    given[0][0] = np.outer([1, 2, 3], [1, 10, 100])  # as in the text
    for arrays in given:
        answers, size = _run_ranks(learner, arrays), arrays.shape[1]
        for call, rank in itertools.product(range(2), range(size)):
            expected, actual = arrays[call].sum(axis=0), answers[rank][call]
            if not np.array_equal(expected, actual):
                where = f"with {size} processes, which have {arrays[call].tolist()}, at rank {rank}"
                if call == 1:
                    where += ", in a second call"
                raise checks.NotYet(f"{where}: expected {expected.tolist()}, came {actual}")
    for size in (3, 5):
        arrays = rng.normal(size=(2, size, 50)).astype(np.float32)
        arrays[:, :2, -1] = 2.0**70, -(2.0**70)  # added to either, the others' numbers are lost, in float64, too
        _expect_equal_bits(_run_ranks(learner, arrays), arrays)
    yield keep_own("groups of 1 to 5 processes, each called twice, equal to the last bit", all_reduce=learner)


def _expect_equal_bits(answers: list[list], arrays: np.ndarray) -> None:
    """Raise NotYet unless all ranks return the same sum of `arrays`, shape (calls, ranks, n).

    A rank that adds in another order rounds in another way.
    """
    for call, first in enumerate(answers[0]):
        for rank, others in enumerate(answers):
            differs = np.asarray(others[call]) != np.asarray(first)
            if differs.any():
                place = int(np.argmax(differs))
                raise checks.NotYet(
                    f"with {len(answers)} processes, number {place} of the sum is {first[place]:.9g} at rank 0 and "
                    f"{others[call][place]:.9g} at rank {rank}: they added {_list_numbers(arrays[call, :, place])} in "
                    "different orders, or not all of them in float32"
                )


def _list_numbers(numbers: np.ndarray) -> str:
    """Return numbers in three digits, with commas between them."""
    return ", ".join(f"{number:.3g}" for number in numbers)


def _run_ranks(all_reduce: Callable[..., object], arrays: np.ndarray) -> list[list]:
    """Return each rank's answers, one for each call; `arrays` has the numbers, shape (calls, ranks, n).

    Raises:
        NotYet: a rank sends more numbers than all others need.
    """
    calls, size, n = arrays.shape

    def run_rank(rank: int, send: Send, receive: Receive) -> list:
        def send_float32(other: int, numbers: np.ndarray) -> None:
            send(other, np.asarray(numbers, np.float32))

        who = f"with {size} processes all_reduce, at rank {rank},"
        answers = []
        for numbers in arrays[:, rank]:
            answers.append(checks.answer(all_reduce, numbers.copy(), rank, size, send_float32, receive, who=who))
        return answers

    answers, sent = messages.play(run_rank, size)
    for rank in range(size):
        count = sum(message.size for (sender, _), arrays in sent.items() if sender == rank for message in arrays)
        if count > (needed := calls * n * (size - 1)):
            raise checks.NotYet(
                f"with {size} processes and {n} numbers, rank {rank} sends {count // calls} numbers in a call; "
                f"{needed // calls} are enough"
            )
    return answers


def serve(weights: np.ndarray, updates: int, send: Send, receive_any: Callable[[], tuple]) -> tuple[np.ndarray, list]:
    """Serve parameters to workers 0 and 1; return (the weights, the worker of each update).

    Args:
        weights: at the beginning.
        updates: the number of gradients to wait for.
        send: takes a worker and weights.
        receive_any: returns (worker, gradient) of the first worker that sends one.
    """
    by = []
    for worker in (0, 1):
        send(worker, weights)
    for _ in range(updates):
        worker, gradient = receive_any()
        weights = weights - 0.025 * gradient
        send(worker, weights)
        by.append(worker)
    return weights, by


@checks.print_verdict
def check_serve(learner: Callable[..., tuple]) -> Iterator[str]:
    """Judge exercise 3 of lesson 09: a parameter server, whose workers compute from the weights they got last."""

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        yield [8.0], [1, 0]
        for order in ([0, 1, 1, 1, 0], [0], [1, 1, 1], rng.integers(0, 2, 20).tolist()):
            yield rng.normal(0, 9, 3).round(2).tolist(), order

    yield keep_own(checks.judge_function(_with_workers(learner), _with_workers(serve), cases), serve=learner)


def _with_workers(serve: Callable[..., Any]) -> Callable[[list, list], object]:
    """Return a function that lets a server work with two workers, which come in a given order."""

    def serve_workers(weights: list[float], order: list[int]) -> object:
        at: dict[int, np.ndarray] = {}
        came: list[int] = []
        known = [np.array(weights, float)]  # the right weights after each update

        def send(worker: int, weights: np.ndarray) -> None:
            if worker not in (0, 1):
                raise checks.NotYet(f"send({worker!r}, ...): the workers are 0 and 1.")
            if worker in at:
                advice = "Send the new weights only to the worker that came."
                raise checks.NotYet(f"worker {worker} is sent weights while it computes with others. {advice}")
            at[worker] = np.array(weights, float)
            if np.allclose(at[worker], known[-2:][0]) and came:
                raise checks.NotYet(f"worker {worker} is sent the weights from before its gradient; subtract it first.")

        def receive_any() -> tuple[int, np.ndarray]:
            if len(came) == len(order):
                raise checks.NotYet(f"receive_any() is called once more than {len(order)} times, and waits forever.")
            for worker in set(came) - set(at):
                advice = "Answer each worker before you wait for the next one."
                raise checks.NotYet(f"worker {worker} sent a gradient and got no new weights. {advice}")
            worker = order[len(came)]
            if worker not in at:
                raise checks.NotYet(f"receive_any() waits forever: worker {worker} was sent no weights.")
            came.append(worker)
            gradient = 4 * at.pop(worker) + worker
            known.append(known[-1] - 0.025 * gradient)
            return worker, gradient

        answer = serve(np.array(weights), len(order), send, receive_any)
        if answer is None or answer is ...:
            return answer
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise checks.NotYet(f"expected (weights, by), came {answer!r}")
        for worker in set(came) - set(at):
            raise checks.NotYet(f"at the end worker {worker} got no weights for its last gradient, and waits.")
        if np.asarray(answer[1]).dtype.kind not in "iuf":
            raise checks.NotYet(f"expected the numbers of workers in by, came {answer[1]!r}")
        return {"weights": np.round(answer[0], 6).tolist(), "by": [*map(int, answer[1])]}

    serve_workers.__name__ = "serve, with (weights, the workers in their order) = "  # for messages
    return serve_workers
