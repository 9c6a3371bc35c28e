"""Lesson 07, Place work on devices: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from helpers import checks
from helpers.plots import BLUE, GREEN, GREY, ORANGE, figure, show
from helpers.timing import duration

if TYPE_CHECKING:
    import jax

Span = tuple[str, str, float, float]  # the device, what it did, the seconds at which that began and ended
PYTHON = "Python"  # the row of those who give orders


@checks.verdict
def check_misplaced(learner: Callable[[dict[str, str], str], list[str]]) -> Iterator[str]:
    """Lesson 07, exercise 1: the names of the tensors that live elsewhere than wanted, in alphabetical order."""

    def place(kind: str, number: int, task: int = 0) -> str:
        return f"/job:localhost/replica:0/task:{task}/device:{kind}:{number}"

    def right(places: dict[str, str], wanted: str) -> list[str]:
        return sorted(name for name, where in places.items() if where.rsplit("/device:", 1)[1] != wanted)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [
            ({"y": place("CPU", 0), "x": place("GPU", 1)}, "GPU:1"),
            ({"a": place("GPU", 1), "b": place("GPU", 10), "c": place("GPU", 11)}, "GPU:1"),
            ({"b": place("GPU", 1), "a": place("GPU", 11)}, "GPU:11"),
            ({"weights": place("CPU", 1), "bias": place("GPU", 1)}, "CPU:1"),
            ({"here": place("GPU", 1), "far": place("GPU", 1, task=3), "wrong": place("CPU", 1, task=3)}, "GPU:1"),
            ({}, "CPU:0"),
        ]
        drawn = []
        for _ in range(20):
            names = rng.permutation(list("abcdefgh"))[: rng.integers(1, 8)].tolist()
            kinds, numbers = rng.choice(["CPU", "GPU"], len(names)).tolist(), rng.integers(0, 3, len(names)).tolist()
            tasks = rng.integers(0, 2, len(names)).tolist()
            places = {name: place(*one) for name, *one in zip(names, kinds, numbers, tasks, strict=True)}
            drawn.append((places, f"{rng.choice(['CPU', 'GPU'])}:{rng.integers(0, 3)}"))
        return plain + drawn

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_least_seconds(learner: Callable[[int, int, int, float], float]) -> Iterator[str]:
    """Lesson 07, exercise 2: the least time of 2 x (power - 1) products on a card of so many cores.

    Who counts the n - 1 additions that a sum of n numbers really takes, and not n as the text asks, is right too.
    """

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(1000, 3, 100, 1.0), (2000, 10, 256, 1.5), (1, 1, 1, 1.0), (500, 2, 1, 2.5)]
        drawn = [
            (*(int(n) for n in rng.integers((100, 2, 10), (9000, 20, 5000))), float(rng.uniform(0.5, 3)))
            for _ in range(20)
        ]
        return plain + drawn

    def right(size: int, power: int, cores: int, gigahertz: float) -> float:
        return 4 * (power - 1) * size**3 / (2 * cores * gigahertz * 1e9)

    @functools.wraps(learner)
    def counted(size: int, power: int, cores: int, gigahertz: float) -> object:
        answer = learner(size, power, cores, gigahertz)
        exact = right(size, power, cores, gigahertz) * (2 * size - 1) / (2 * size)
        same = isinstance(answer, float) and np.isclose(answer, exact, rtol=1e-9, atol=0)
        return right(size, power, cores, gigahertz) if same else answer

    yield checks.judge_function(counted, right, cases)


@checks.verdict
def check_visible(learner: Callable[[str | None, int], list[int]]) -> Iterator[str]:
    """Lesson 07, exercise 3: what CUDA_VISIBLE_DEVICES shows; the first invalid number ends the list.

    Source: CUDA's documentation of its environment variables.
    """

    def right(value: str | None, count: int) -> list[int]:
        if value is None:
            return list(range(count))
        numbers = [int(number) for number in value.split(",")] if value else []
        valid = [0 <= number < count for number in numbers]
        return numbers[: valid.index(False)] if False in valid else numbers

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [("2,0", 3), ("-1", 3), (None, 3), (None, 0), ("", 2), ("0,-1,1", 2), ("5", 2), ("2", 2), ("1,2,0", 2)]
        plain += [("-2,0", 3), ("1,-3", 3), ("-12", 12)]
        drawn = [
            (",".join(map(str, rng.permutation(np.arange(-1, 12))[: rng.integers(1, 6)])), int(rng.integers(1, 12)))
            for _ in range(25)
        ]
        return [*plain, ("10,1", 11), ("0", 0), *drawn]

    yield checks.judge_function(learner, right, cases)
    for case in (("2,0", 3), (None, 3)):
        answer = learner(*case)
        whole = isinstance(answer, list) and all(isinstance(one, Integral) for one in answer)
        if not whole:
            came = f"{answer!r}, of the type {type(answer).__name__}"
            raise checks.NotYet(f"for visible({case[0]!r}, {case[1]}) expected a list of whole numbers, came {came}")


# ------------------------------------------------------------------------------------------------------ its figures


def draw_visible(cards: Sequence[tuple[str, int]], value: str) -> None:
    """Draw which cards a program gets as GPU:0, GPU:1 ... by each of CUDA's two ways to count them; nothing is run.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables": CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES.

    Args:
        cards: for each slot the card's name and its rank in speed, 0 for the fastest; `nvidia-smi` counts so.
        value: of CUDA_VISIBLE_DEVICES, numbers of cards with commas between.
    """
    asked = [int(number) for number in value.split(",")]
    by_speed = sorted(range(len(cards)), key=lambda slot: cards[slot][1])
    orders = {"is not set": by_speed, "is PCI_BUS_ID": list(range(len(cards)))}
    looks, unused = ((ORANGE, "-"), (BLUE, "--"), (GREEN, ":")), (GREY, "-")
    words = []
    with figure(7.5, 3.2, ncols=2, sharey=True) as (drawn, axes):
        for panel, (name, order) in zip(axes, orders.items(), strict=True):
            # Where each card of CUDA ends in the program; a card that is not asked for ends nowhere.
            look = {of_cuda: looks[number % len(looks)] for number, of_cuda in enumerate(asked)}
            paths = [(2, slot, 1, of_cuda, of_cuda) for of_cuda, slot in enumerate(order)]
            paths += [(1, of_cuda, 0, number, of_cuda) for number, of_cuda in enumerate(asked)]
            for upper, at, lower, to, of_cuda in paths:
                colour, line = look.get(of_cuda, unused)
                panel.plot([at, to], [upper - 0.26, lower + 0.2], color=colour, ls=line, lw=2)
            boxes = [(2, slot, f"{slot}\n{card}", order.index(slot)) for slot, (card, _) in enumerate(cards)]
            boxes += [(1, of_cuda, str(of_cuda), of_cuda) for of_cuda in range(len(cards))]
            boxes += [(0, number, f"GPU:{number}", of_cuda) for number, of_cuda in enumerate(asked)]
            for row, column, text, of_cuda in boxes:
                edge = {"boxstyle": "round", "facecolor": "white", "edgecolor": look.get(of_cuda, unused)[0]}
                panel.text(column, row, text, ha="center", va="center", fontsize=9, bbox=edge)
            for number, of_cuda in enumerate(asked):
                slot = order[of_cuda]
                words.append(f"if CUDA_DEVICE_ORDER {name}, GPU:{number} is the {cards[slot][0]} one in slot {slot}")
            panel.set_title(f"CUDA_DEVICE_ORDER {name}", fontsize=10)
            panel.set(xlim=(-0.5, len(cards) - 0.5), ylim=(-0.4, 2.5), xticks=[])
            panel.set_yticks([2, 1, 0], labels=["nvidia-smi", "CUDA", "the program"])
            panel.tick_params(length=0)
            panel.grid(visible=False)
            panel.spines[:].set_visible(False)
        title = f"An example: what CUDA_VISIBLE_DEVICES={value} shows of {len(cards)} cards"
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}. {'; '.join(words)}.")


# ---------------------------------------------------------------------------------------------------- its machinery

Note = Callable[[str, "Callable[[], jax.Array]", bool], "jax.Array"]


def watched(give_orders: Callable[[Note, bool], None], wait: bool, runs: int = 3) -> list[Span]:
    """Note when one thread gives orders to JAX's devices, and when each is done, without holding any of them up.

    For each device another thread waits for its results, one after the other. An order's work begins when it is given,
    or when the device has finished the one before.

    Args:
        give_orders: called with `note` and `wait`; note(what, order, wait) calls `order`, which returns a new array.
        wait: whether `note` waits for that array.
        runs: the fastest of so many counts; one more before them compiles.

    Returns:
        The pieces of work, for `plots.timeline`; the row PYTHON has the orders, each with its wait.
    """
    tried = [_watched_once(give_orders, wait) for _ in range(runs + 1)][1:]
    return min(tried, key=_length)


def _watched_once(give_orders: Callable[[Note, bool], None], wait: bool) -> list[Span]:
    spans: list[Span] = []
    watchers: dict[str, ThreadPoolExecutor] = {}
    free_from: dict[str, float] = {}  # when the device finished its last piece

    def watch(device: str, what: str, array: jax.Array, given: float) -> None:
        array.block_until_ready()
        done = time.perf_counter()
        spans.append((device, f"computes {what}", max(given, free_from.get(device, given)), done))
        free_from[device] = done

    with ExitStack() as stack:

        def note(what: str, order: Callable[[], jax.Array], wait: bool) -> jax.Array:
            begin = time.perf_counter()
            array = order()
            device = str(array.device)
            if device not in watchers:
                watchers[device] = stack.enter_context(ThreadPoolExecutor(1))
            watched = watchers[device].submit(watch, device, what, array, begin)
            if wait:
                watched.result()
            spans.append((PYTHON, "orders (and waits)", begin, time.perf_counter()))
            return array

        give_orders(note, wait)
    return spans


def _length(spans: Sequence[Span]) -> float:
    """How long a run took, in seconds."""
    return max(span[3] for span in spans) - min(span[2] for span in spans)


def tell_orders(runs: Mapping[str, Sequence[Span]]) -> None:
    """Print for each run when its last order had returned, and when the work was done."""
    for name, spans in runs.items():
        orders = [span for span in spans if span[0] == PYTHON]
        free = orders[-1][3] - orders[0][2]
        print(f"{name}: Python is free after {duration(free)}, all is done after {duration(_length(spans))}")
