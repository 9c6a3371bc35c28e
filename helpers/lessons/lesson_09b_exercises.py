"""Serve lesson 09b: solutions and checks of its exercises, and a disk whose writer may die at any moment."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from helpers.judge import checks
from helpers.judge.values import describe_mismatch
from helpers.lessons.lesson_09_exercises import keep_own


class Died(BaseException):
    """A process' death, which no `except Exception` of a learner stops."""


class Disk:
    """A disk in memory whose writing process may die at any moment: before each action, and while it writes."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[str, list] = {}
        self._lived, self._dies_after = 0, math.inf  # moments

    def write(self, name: str, numbers: Iterable[float]) -> None:
        """Keep a list under a name; what was there is gone at once, even if the process dies while it writes."""
        numbers = list(numbers)
        self._live()
        self._kept[str(name)] = kept = []
        for number in numbers:
            self._live()
            kept.append(number)

    def replace(self, old: str, new: str) -> None:
        """Give a list a new name, in one moment, as `os.replace` does; the list that had that name is gone."""
        self.read(old)
        self._live()
        self._kept[str(new)] = self._kept.pop(str(old))

    def delete(self, name: str) -> None:
        """Forget a name and what was written there."""
        self.read(name)
        self._live()
        del self._kept[str(name)]

    def read(self, name: str) -> list:
        """Return what was written under a name."""
        if str(name) not in self._kept:
            raise FileNotFoundError(f"the disk has no {name!r}")
        return list(self._kept[str(name)])

    def names(self) -> list[str]:
        """Return all names in alphabetical order, so that "10" comes before "9"."""
        return sorted(self._kept)

    def _live(self) -> None:
        """Live for one more moment; a dead process does nothing more."""
        if self._lived >= self._dies_after:
            raise Died
        self._lived += 1


class Folder:
    """The actions of `Disk` on real files, one a name, with one number a line."""

    def __init__(self, path: str | Path) -> None:
        """Begin with the files that are there."""
        self._path = Path(path)
        self._path.mkdir(exist_ok=True)

    def write(self, name: str, numbers: Iterable[float]) -> None:
        """Write a list straight into the file of that name."""
        with self._locate(name).open("w", encoding="utf-8") as file:
            for number in numbers:
                file.write(json.dumps(number, default=float) + "\n")

    def replace(self, old: str, new: str) -> None:
        """Rename a file."""
        self._locate(old).replace(self._locate(new))

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._locate(name).unlink()

    def read(self, name: str) -> list:
        """Return the numbers whose lines are whole."""
        lines = self._locate(name).read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        return sorted(unquote(path.name) for path in self._path.iterdir())

    def _locate(self, name: str) -> Path:
        return self._path / quote(str(name), safe=" ")


Checkpoint = tuple[int, list]  # a step, its weights


def save(disk: Disk | Folder, step: int, weights: list) -> None:
    """Write a checkpoint aside, then give it the name that `newest` reads."""
    disk.write("new", [step, *weights])
    disk.replace("new", "checkpoint")


def newest(disk: Disk | Folder) -> Checkpoint | None:
    """Return the step and the weights of the last checkpoint; None if there is none."""
    if "checkpoint" not in disk.names():
        return None
    step, *weights = disk.read("checkpoint")
    return step, weights


@checks.print_verdict
def check_checkpoints(save: Callable[[Disk, int, list], object], newest: Callable[[Disk], object]) -> Iterator[str]:
    """Judge exercise 1 of lesson 09b: wherever a process dies in `save`, the last checkpoint or the new one is found.

    The steps catch names that are sorted as text, and places chosen by the remainder of a step (840 is a multiple of
    all small numbers). The weights catch rounding, sums, lists that are written twice and compared, and a mark for the
    end that a weight can equal.
    """
    first = Disk()
    _save(save, first, 1, [0.5, 0.0], "")
    if not first.names():
        raise checks.NotDone("save(disk, 1, [0.5, 0.0]) wrote nothing.")
    _judge_newest(newest, first, [(1, [0.5, 0.0])], "after save(disk, 1, [0.5, 0.0])")
    _judge_newest(newest, Disk(), [None], "with an empty disk")
    on_disk = itertools.chain(*first._kept.values())
    mark = float([0, *(number for number in on_disk if isinstance(number, int | float | np.number))][-1])
    trainings: list[tuple[Sequence[int], Callable[[int], list[float]]]] = [
        (range(1, 5), lambda step: [step / 3, mark, -2.5, mark, 0.0]),
        ((99_999, 100_000), lambda step: [step / 3, mark, -2.5, mark, 0.0]),
        ((8, 16, 24), lambda step: [mark, float(step), mark]),
        ((1, 3, 5), lambda step: [0.0] * 4),
        ((1, 2, 3), lambda step: [1.0, 1.0, float(step), 1.0]),
        ((840, 1680, 2520), lambda step: [float(step)]),
    ]
    deaths = 0
    for steps, weights in trainings:
        disk, old = Disk(), None
        for step in steps:
            new = step, weights(step)
            deaths += _judge_deaths(save, newest, disk, old, new, "")
            _save(save, disk, *new, "")
            deaths += _judge_deaths(save, newest, disk, new, new, f"step {step} is on the disk; then ")
            old = new
    _judge_newest(newest, first, [(1, [0.5, 0.0])], "with the first disk again, as a new process has it")
    yield keep_own(f"{deaths} deaths, and a whole checkpoint after each", save=save, newest=newest)


def _judge_deaths(
    save: Callable[..., object],
    newest: Callable[..., object],
    disk: Disk,
    old: Checkpoint | None,
    new: Checkpoint,
    before: str,
) -> int:
    """Let `save` die at every moment of its work, and of its next call, then save the step; return how often it died.

    Single deaths are judged before pairs of them, so that the verdict tells the shortest story.

    Args:
        save: the learner's function.
        newest: the learner's function.
        disk: as it is before; it does not change.
        old: what `newest` may return until it has returned the new one.
        new: the step and its weights.
        before: what happened before, in words.
    """
    whole = copy.deepcopy(disk)
    _save(save, whole, *new, before)
    _judge_newest(newest, whole, [new], f"{before}after step {new[0]} was saved")
    stories = []
    for left in _list_deaths(save, disk, new, before):
        where = f"{before}save(disk, {new[0]}, {new[1]}) died and left {left._kept}; "
        stories.append((left, where, _judge_newest(newest, left, [old, new], f"{where}after this")))
    deaths = len(stories)
    for left, where, found in stories:
        for again in _list_deaths(save, left, new, where):
            deaths += 1
            twice = f"{where}called again, it died again and left {again._kept}; after this"
            _judge_newest(newest, again, [found, new], twice)
        _save(save, left, *new, where)
        _judge_newest(newest, left, [new], f"{where}after the step was saved again")
    return deaths


def _list_deaths(save: Callable[..., object], disk: Disk, new: Checkpoint, before: str) -> Iterator[Disk]:
    """Yield the disk that `save` leaves for each moment at which it may die; `disk` itself does not change."""
    for moment in itertools.count(disk._lived):
        trial = copy.deepcopy(disk)
        trial._dies_after = moment
        try:
            _save(save, trial, *new, before)
        except Died:
            trial._dies_after = math.inf
            yield trial
        else:
            return


def _save(save: Callable[..., object], disk: Disk, step: int, weights: list, before: str) -> None:
    """Call the learner's `save`; NotYet if it stops, or changes its list."""
    given = list(weights)
    checks.answer(save, disk, step, given, who=f"{before}save(disk, {step}, {weights})")
    if given != weights:
        raise checks.NotYet(f"save(disk, {step}, {weights}) changed the list of weights to {given}; work on a copy")


def _judge_newest(
    newest: Callable[..., object], disk: Disk, expected: Sequence[Checkpoint | None], when: str
) -> Checkpoint | None:
    """Return which of the expected checkpoints the learner's `newest` returns; NotYet if it is none of them.

    It gets a copy of the disk, because a new process would not have the same object either.
    """
    answer: Any = checks.answer(newest, copy.deepcopy(disk), who=f"{when}, newest(disk)")
    try:
        actual = None if answer is None else (int(answer[0]), [float(weight) for weight in answer[1]])
    except (TypeError, ValueError, IndexError, KeyError):
        raise checks.NotYet(f"{when}, newest(disk) is {answer!r}; expected (step, weights) or None") from None
    for checkpoint in expected:
        close = actual and checkpoint and actual[0] == checkpoint[0] and len(actual[1]) == len(checkpoint[1])
        if actual is checkpoint is None or (close and np.allclose(actual[1], checkpoint[1], rtol=1e-6, atol=0)):
            return checkpoint
    raise checks.NotYet(
        f"{when}, newest(disk): expected {' or '.join(dict.fromkeys(map(str, expected)))}, actual {actual}"
    )


@checks.print_verdict
def check_train(learner: Callable[..., object]) -> Iterator[str]:
    """Judge exercise 2 of lesson 09b: a training run that is killed again and again ends as if nothing had happened."""
    rng, sizes = np.random.default_rng(), ((6, 2), (7, 3), (5, 1), (4, 9), (12, 4), (1, 1), (0, 2))
    once = [(steps, every, [calls]) for steps, every in sizes for calls in range(steps + steps // every)]
    often = [(steps, every, [*calls, *rng.integers(0, steps + 1, 3).tolist()]) for steps, every, calls in once]
    cases = [*((steps, every, []) for steps, every in sizes), *once, *often]
    for steps, every, deaths in cases:
        _judge_train(learner, steps, every, deaths)
    yield keep_own(f"{len(cases)} training runs, killed up to four times", train=learner)


def train(steps: int, every: int, weights: Any, one_step: Callable, save: Callable, newest: Callable) -> Any:  # noqa: ANN401
    """Train from the newest checkpoint on, and save one after each `every` steps; return the weights."""
    done, weights = newest() or (0, weights)
    for step in range(done, steps):
        weights = one_step(weights, step)
        if (step + 1) % every == 0:
            save(step + 1, weights)
    return weights


def _judge_train(learner: Callable[..., object], steps: int, every: int, deaths: list[int]) -> None:
    """Raise NotYet unless a training run that is killed after these numbers of calls does what the solution does."""
    killed = "".join(f", {'then' if at else 'killed'} in call {calls + 1}" for at, calls in enumerate(deaths))
    who = f"train({steps}, {every}, ...){killed}"
    lives, saved, answer = _play_lives(learner, steps, every, deaths, who)
    right_lives, right_saved, right = _play_lives(train, steps, every, deaths, who)
    if answer is None:
        nothing = f"{who} returned None. ({checks.RETURNS})"
        raise checks.NotYet(nothing) if any(lives) else checks.NotDone(nothing)
    if lives != right_lives:
        computed, expected = map(_format_lives, (lives, right_lives))
        restart = " (| is a restart, in a process without your variables)" if deaths else ""
        raise checks.NotYet(f"{who}: steps computed {computed}; expected {expected}{restart}")
    if saved != right_saved:
        raise checks.NotYet(f"{who}: saved with done = {saved}; expected {right_saved}")
    if mismatch := describe_mismatch(right, answer):
        raise checks.NotYet(f"{who}: the steps are right, the weights are not: {mismatch}")


def _train_elsewhere(train: Callable[..., object], who: str) -> None:
    """Call `train` for a short run of its own, which replaces what it may keep in variables outside itself."""
    kept: list[tuple] = []
    disk = (lambda *checkpoint: kept.append(checkpoint)), (lambda: kept[-1] if kept else None)
    checks.answer(train, 1, 2, (0.0, 0.0), lambda weights, step: weights, *disk, who=who)


def _format_lives(lives: list[list[int]]) -> str:
    """Return the steps of each life, with a bar at each restart."""
    return " | ".join(" ".join(map(str, life)) for life in lives) or "none"


def _play_lives(
    train: Callable[..., object], steps: int, every: int, deaths: list[int], who: str
) -> tuple[list[list[int]], list[int], object]:
    """Call `train` until it returns, and kill it after a given number of calls each time.

    A checkpoint of the beginning or of the end is always allowed, and is kept but not counted.

    Returns:
        The steps of each life that computed any, after which steps checkpoints were saved, and the weights at the end.
    """

    def is_counted(done: int) -> bool:
        return done != 0 and (done % every == 0 or done != steps)

    kept: list[tuple] = []
    lives: list[list[int]] = []
    for calls in [*deaths, 10 * (steps + 1)]:
        left, life = iter(range(calls)), []
        lives.append(life)

        def live(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Died

        def one_step(weights: Sequence[float], step: int, life: list[int] = life, live: Callable = live) -> tuple:
            live()
            life.append(int(step))
            return weights[0] * 1.5 - step, weights[1] + 1

        def save(done: int, weights: Sequence[float], live: Callable = live) -> None:
            if is_counted(done):
                live()
            kept.append((done, tuple(weights)))

        if len(lives) > 1:
            _train_elsewhere(train, who)
        with contextlib.suppress(Died):
            start = (1.0 + steps, 0.0)
            answer: Any = checks.answer(
                train, steps, every, start, one_step, save, lambda: kept[-1] if kept else None, who=who
            )
            saved = sorted({done for done, _ in kept if is_counted(done)})
            return [life for life in lives if life], saved, answer
    raise checks.NotYet(f"{who} does not end.")


@checks.print_verdict
def check_receive(learner: Callable[[dict, int, np.ndarray], object]) -> Iterator[str]:
    """Judge exercise 3 of lesson 09b: let a step that comes twice count once in a parameter server."""

    named = {  # what a case is about, after the message of a wrong answer
        "Steps come in any order": ((2, 1.0), (0, 4.0), (2, 1.0), (1, 8.0)),
        "A gradient may be 0": ((1, 3.0), (0, 0.0), (1, 3.0), (0, 0.0)),
        "Two different steps have the same gradient": ((0, 4.0), (1, 4.0), (0, 4.0)),
        "The step that comes again came before two others": ((0, 1.0), (1, 2.0), (2, 4.0), (0, 1.0)),
        "Step 1 never comes": ((0, 1.0), (2, 4.0), (2, 4.0)),
    }

    def drawn(rng: np.random.Generator) -> Iterator[tuple]:
        for _ in range(2):
            gradients = rng.normal(0, 5, (int(rng.integers(3, 9)), 2, 3))
            gradients[-1] = gradients[0]  # two different steps with the same gradient
            numbers = rng.permutation(np.concatenate([np.arange(len(gradients)), rng.integers(0, len(gradients), 3)]))
            yield rng.normal(0, 9, (2, 3)), [(number, gradients[number]) for number in numbers.tolist()]

    deliver, right = _deliver(learner), _deliver(receive)
    for name, steps in {"": ((0, 1.0), (1, 2.0), (1, 2.0)), **named}.items():
        case = np.array([5.0 if name else 100.0]), [(number, np.array([value])) for number, value in steps]
        try:
            checks.judge_function(deliver, right, lambda _, case=case: [case])
        except checks.NotYet as refused:
            raise checks.NotYet(f"{refused}. {name}." if name else str(refused)) from None
    checks.judge_function(deliver, right, drawn)
    yield f"{1 + len(named)} short deliveries, and two that were drawn"


def receive(server: dict[str, Any], number: int, gradient: np.ndarray) -> None:
    """Apply a step to a server's weights, unless it has been applied already."""
    if number not in server["done"]:
        server["weights"] = server["weights"] - 0.1 * gradient
        server["done"].add(number)


def _deliver(receive: Callable[[dict, int, np.ndarray], object]) -> Callable[[np.ndarray, list], object]:
    """Return a function that delivers steps to a new server, and returns its weights and the steps done."""

    def receive_all(weights: np.ndarray, deliveries: list[tuple[int, np.ndarray]]) -> object:
        server: dict[str, Any] = {"weights": weights.copy(), "done": set()}
        for number, gradient in deliveries:
            given = gradient.copy()
            answer = receive(server, number, given)
            if not np.array_equal(given, gradient):
                raise checks.NotYet(f"The gradient of step {number} was changed; work on a copy.")
            if not isinstance(server["done"], set | frozenset):
                raise checks.NotYet(f'server["done"] is {server["done"]!r}; expected a set (`add` returns None).')
        if not server["done"] and np.array_equal(server["weights"], weights):
            if answer is ...:
                return answer
            advice = "A set outside `server` remembers the steps of other servers, too."
            raise checks.NotYet(f'step {deliveries[0][0]} changed neither the weights nor server["done"]. {advice}')
        return {"weights": np.round(server["weights"], 9).tolist(), "done": sorted(server["done"])}

    return receive_all
