"""Play ranks that exchange messages, without processes, threads or clocks: for checks of lessons 08 and 09."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from helpers.judge.checks import NotYet

MOST = 100  # messages from one rank to another
Send: TypeAlias = Callable[[int, np.ndarray], None]
Receive: TypeAlias = Callable[[int], np.ndarray]


class _Waits(BaseException):
    """A rank waits for a message that is not sent yet; no `except Exception` of a program stops it."""


@dataclass
class _Exchange:
    """The messages of one play."""

    ranks: int
    who: str  # what a rank is called
    sent: dict[tuple[int, int], list[np.ndarray]] = field(init=False)  # by (sender, receiver)

    def __post_init__(self) -> None:
        self.sent = {pair: [] for pair in itertools.permutations(range(self.ranks), 2)}

    def run(self, program: Callable[[int, Send, Receive], object], rank: int) -> object:
        """Run the program from its start as one rank; what the rank sent before is deleted.

        Raises:
            _Waits: it asks for a message that is not sent yet.
        """
        inbox = {sender: iter(messages) for (sender, receiver), messages in self.sent.items() if receiver == rank}
        self.sent.update({(rank, other): [] for other in inbox})

        def send(other: int, message: np.ndarray) -> None:
            self._expect_other(rank, other)
            self.sent[rank, other].append(np.array(message))
            if len(self.sent[rank, other]) > MOST:
                raise self.refuse(f"{rank} sends more than {MOST} messages to {self.who} {other}")

        def receive(other: int) -> np.ndarray:
            self._expect_other(rank, other)
            for message in inbox[other]:
                return message.copy()
            raise _Waits

        return program(rank, send, receive)

    def _expect_other(self, rank: int, other: int) -> None:
        others = [number for number in range(self.ranks) if number != rank]
        if other not in others:
            raise self.refuse(f"{rank} addresses {self.who} {other!r}, but the others are {others}")

    def refuse(self, what: str) -> NotYet:
        """Return the verdict on a rank; `what` begins with its number."""
        return NotYet(f"with {self.ranks} {self.who}s: {self.who} {what}")


def play(
    program: Callable[[int, Send, Receive], object], ranks: int, who: str = "rank"
) -> tuple[list, dict[tuple[int, int], list[np.ndarray]]]:
    """Run a program once as each rank. It gets only copies of what the other ranks send.

    A rank that has to wait is stopped, and run again from the start when messages have arrived.

    Args:
        program: takes its rank; `send`, which takes another rank and an array; and `receive`, which takes another rank.
        ranks: how many there are.
        who: what a rank is called.

    Returns:
        What the program returned as each rank; and by (sender, receiver) the arrays that were sent, in their order.

    Raises:
        NotYet: some wait forever, one sends forever, or a rank is named that does not exist.
    """
    answers: dict[int, object] = {}
    exchange = _Exchange(ranks, who)
    before = None
    while waiting := sorted(set(range(ranks)) - answers.keys()):
        now = waiting, {pair: len(messages) for pair, messages in exchange.sent.items()}
        if now == before:
            raise exchange.refuse(f"{' and '.join(map(str, waiting))} would wait forever")
        before = now
        for rank in waiting:
            printed = io.StringIO()  # shown once, however often the program begins
            with contextlib.suppress(_Waits), contextlib.redirect_stdout(printed):
                answers[rank] = exchange.run(program, rank)
            if rank in answers:
                print(printed.getvalue(), end="")
    return [answers[rank] for rank in range(ranks)], exchange.sent
