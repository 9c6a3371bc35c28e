"""Serve lesson 08b, Split a network: the checks of its exercises, a pipeline's drawing, and what XLA exchanges."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from helpers.errors import LINE_WIDTH
from helpers.judge import checks

if TYPE_CHECKING:
    import jax


def count_bytes(widths: Sequence[int], batch: int, states: int) -> tuple[int, int]:
    """Return the bytes of a training with float32: weights, gradients and optimizer together, then activations.

    Args:
        widths: the inputs of a dense network, then the outputs of each layer.
        batch: images of a step.
        states: numbers that the optimizer keeps for each weight and bias.
    """
    weights = sum(inputs * outputs + outputs for inputs, outputs in itertools.pairwise(widths))
    return 4 * weights * (1 + 1 + states), 4 * batch * sum(widths[:-1])


def read_planned_bytes(widths: Sequence[int], batch: int, device: jax.Device) -> int:
    """Return the bytes that JAX's compiler sets aside for images and intermediate results; nothing is computed.

    Args:
        widths: of a network of dense layers with ReLU, as for `count_bytes`.
        batch: images of a step.
        device: the gradients of all weights and biases are compiled for it.
    """
    import jax
    import jax.numpy as jnp

    def compute_loss(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
        for matrix, biases in layers:
            x = jnp.maximum(x @ matrix + biases, 0)
        return (x**2).mean()

    place = jax.sharding.SingleDeviceSharding(device)
    describe = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32, sharding=place)  # an array without numbers
    layers = [(describe((inputs, outputs)), describe((outputs,))) for inputs, outputs in itertools.pairwise(widths)]
    images = describe((batch, widths[0]))
    planned = jax.jit(jax.grad(compute_loss)).lower(layers, images).compile().memory_analysis()
    assert planned is not None, "XLA plans the memory of every program that it compiles"
    return 4 * images.size + planned.temp_size_in_bytes


@checks.print_verdict
def check_count_bytes(learner: Callable[[list[int], int, int], tuple[int, int]]) -> Iterator[str]:
    """Judge exercise 1 of lesson 08b: the bytes that a training keeps."""
    rng = np.random.default_rng()
    cases = [([2, 3, 1], 5, 1), ([2, 3, 1], 5, 0), ([4, 2], 1, 2), ([784, 512, 512, 10], 128, 1)]
    for layers in (1, 3, 6):
        cases.append((rng.integers(1, 99, layers + 1).tolist(), *rng.integers([1, 0], [99, 3]).tolist()))
    try:
        yield checks.judge_function(learner, count_bytes, lambda _: cases)
    except checks.NotYet as wrong:
        raise checks.NotYet(f"{wrong}{_explain_counts(learner, cases)}") from None


def _explain_counts(learner: Callable[..., tuple[int, int]], cases: Sequence[tuple[list[int], int, int]]) -> str:
    """Return which of the two numbers are wrong, and the one known idea that returns the same in every case."""
    try:
        answers = [[*map(operator.index, learner(list(widths), *more))] for widths, *more in cases]
        pairs = np.array(answers, dtype=object).reshape(len(cases), 2)
    except Exception:  # not two whole numbers; the verdict says what came
        return ""
    wrong, ideas = [], set()
    for place, name in enumerate(("weights, gradients and optimizer", "activations")):
        came = pairs[:, place].tolist()
        if came == [count_bytes(*case)[place] for case in cases]:
            continue
        wrong.append(name)
        counts = [_count_wrongly(*case)[place] for case in cases]
        same = [idea for idea in counts[0] if came == [count[idea] for count in counts]]
        ideas.add(same[0] if len(same) == 1 else "")
    if not wrong:
        return ""
    named = f" It is as if {ideas.pop()}." if len(ideas) == 1 and "" not in ideas else ""
    return f". Wrong: the bytes of {' and of '.join(wrong)}.{named}"


def _count_wrongly(widths: list[int], batch: int, states: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return what wrong ideas count for each of the two numbers of `count_bytes`."""
    biases = sum(widths[1:])
    weights = biases + sum(inputs * outputs for inputs, outputs in itertools.pairwise(widths))
    held = {
        "there were no biases": 4 * (weights - biases) * (2 + states),
        "either the weights or their gradients were left out": 4 * weights * (1 + states),
        "the optimizer kept nothing": 4 * weights * 2,
        "each number had one byte": weights * (2 + states),
    }
    kept = {
        "the last layer's outputs were kept, too": 4 * batch * sum(widths),
        "each layer's outputs were kept in place of its inputs": 4 * batch * sum(widths[1:]),
        "the images were not kept": 4 * batch * sum(widths[1:-1]),
        "the batch had one image": 4 * sum(widths[:-1]),
        "each number had one byte": batch * sum(widths[:-1]),
    }
    return held, kept


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
