"""Play ranks that exchange messages, without processes, threads or clocks: for checks of lessons 08 and 09."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable

import numpy as np

from helpers.judge.checks import NotYet

MOST = 100  # messages from one rank to another
Send, Receive = Callable[[int, np.ndarray], None], Callable[[int], np.ndarray]


class _Waits(BaseException):
    """A rank waits for a message that is not sent yet; no `except Exception` of a program stops it."""


def play(
    program: Callable[[int, Send, Receive], object], ranks: int, who: str = "rank"
) -> tuple[list, dict[tuple[int, int], list[np.ndarray]]]:
    """Run a program once as each rank; it sees nothing of the others but copies of what they send.

    Whoever has to wait is left, and later run again from the start, with what has arrived meanwhile.

    Args:
        program: takes its rank; `send`, which takes another rank and an array; and `receive`, which takes another rank.
        ranks: how many there are.
        who: what a rank is called.

    Returns:
        What the program returned as each rank; and by (sender, receiver) the arrays that were sent, in their order.

    Raises:
        NotYet: some wait for ever, one sends for ever, or a rank is named that is not there.
    """
    answers: dict[int, object] = {}
    sent: dict[tuple[int, int], list] = {pair: [] for pair in itertools.permutations(range(ranks), 2)}

    def run(rank: int) -> object:
        inbox = {sender: iter(messages) for (sender, receiver), messages in sent.items() if receiver == rank}
        sent.update({(rank, other): [] for other in inbox})

        def expect(other: int) -> None:
            if other not in inbox:
                raise NotYet(f"with {ranks} {who}s: {who} {rank} wants {who} {other!r}; the others are {[*inbox]}")

        def send(other: int, message: np.ndarray) -> None:
            expect(other)
            sent[rank, other].append(np.array(message))
            if len(sent[rank, other]) > MOST:
                raise NotYet(f"with {ranks} {who}s: {who} {rank} sends more than {MOST} messages to {who} {other}")

        def receive(other: int) -> np.ndarray:
            expect(other)
            for message in inbox[other]:
                return message.copy()
            raise _Waits

        return program(rank, send, receive)

    before = None
    while waiting := sorted(set(range(ranks)) - answers.keys()):
        now = waiting, {pair: len(messages) for pair, messages in sent.items()}
        if now == before:
            raise NotYet(f"with {ranks} {who}s: {who} {' and '.join(map(str, waiting))} would wait for ever")
        before = now
        for rank in waiting:
            printed = io.StringIO()  # shown once, however often the program begins
            with contextlib.suppress(_Waits), contextlib.redirect_stdout(printed):
                answers[rank] = run(rank)
            print(printed.getvalue() if rank in answers else "", end="")
    return [answers[rank] for rank in range(ranks)], sent
