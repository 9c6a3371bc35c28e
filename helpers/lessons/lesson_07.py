"""Lesson 07, Place work on devices: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import operator
import platform
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import processes, training
from helpers.compute.data import CACHE
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show
from helpers.measure.timing import duration

if TYPE_CHECKING:
    import jax

Span = tuple[str, str, float, float]  # the device, what it did, the seconds at which that began and ended
PYTHON = "Python"  # the row of those who give orders


def _judge_list(learner: Callable[..., object], kind: type, kind_name: str, cases: Sequence[tuple]) -> None:
    """Refuse an answer that is no list, or that holds something else than `kind`; what else is wrong, others say."""
    for case in cases:
        try:
            answer = learner(*copy.deepcopy(case))
        except Exception:  # the judge that comes next calls it again, and says so
            return
        if answer is None or answer is ...:
            return
        called = f"for {getattr(learner, '__name__', 'function')}({', '.join(map(repr, case))})"
        if not isinstance(answer, list):
            came = f"{answer!r}, of the type {type(answer).__name__}"
            raise checks.NotYet(f"{called} expected a list, came {came}")
        if odd := [one for one in answer if not isinstance(one, kind)]:
            came = f"the list {answer!r}, in which {odd[0]!r} is of the type {type(odd[0]).__name__}"
            raise checks.NotYet(f"{called} expected a list of {kind_name}, came {came}")


@checks.verdict
def check_misplaced(learner: Callable[[dict[str, str], str], list[str]]) -> Iterator[str]:
    """Lesson 07, exercise 1: the names of the tensors that live elsewhere than wanted, in alphabetical order."""

    def place(kind: str, number: int, task: int = 0, job: str = "localhost") -> str:
        return f"/job:{job}/replica:0/task:{task}/device:{kind}:{number}"

    def right(places: dict[str, str], wanted: str) -> list[str]:
        return sorted(name for name, where in places.items() if where.rsplit("/device:", 1)[1] != wanted)

    first = ({"y": place("CPU", 0), "x": place("GPU", 1)}, "GPU:1")

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [
            first,
            ({"z": place("CPU", 0), "y": place("CPU", 0), "x": place("GPU", 1)}, "GPU:1"),
            ({"a": place("GPU", 1), "b": place("GPU", 10), "c": place("GPU", 11)}, "GPU:1"),
            ({"b": place("GPU", 1), "a": place("GPU", 11)}, "GPU:11"),
            ({"weights": place("CPU", 1), "bias": place("GPU", 1)}, "CPU:1"),
            ({"here": place("GPU", 1), "far": place("GPU", 1, task=3), "wrong": place("CPU", 1, task=3)}, "GPU:1"),
            ({"far": place("GPU", 1, task=10), "wrong": place("CPU", 1, task=10)}, "GPU:1"),
            ({"worker": place("CPU", 0, job="worker"), "wrong": place("GPU", 0, job="worker")}, "CPU:0"),
            ({"x": place("GPU", 12), "y": place("GPU", 1), "z": place("GPU", 2)}, "GPU:1"),
            ({"compiled": place("XLA_GPU", 1), "plain": place("GPU", 1)}, "GPU:1"),
            ({"B": place("CPU", 0), "A": place("CPU", 0), "C": place("GPU", 1)}, "GPU:1"),
            ({"short": "/device:GPU:1", "Wrong": "/device:GPU:0", "Local": "/job:localhost/device:CPU:0"}, "GPU:1"),
            ({"Here": "/job:worker/task:1/device:CPU:0", "There": "/job:worker/task:1/device:CPU:1"}, "CPU:0"),
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

    _judge_list(learner, str, "names", [first])
    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_progress(learner: Callable[..., list[float]]) -> Iterator[str]:
    """Lesson 07, exercise 2: steps of two models, ordered so that two devices are busy from beginning to end.

    The learner's loop runs on `_Devices`, whose clock is counted. Allowed is the time in which one device gets all its
    orders before the other gets its first; between its steps none may be idle, as after a wait in each round.
    The verdict "right" tells how long the first case took.
    """
    rng = np.random.default_rng()
    tried, times = (8, 3, 2, 1, 0, int(rng.integers(10, 40))), []
    for count in tried:
        both, where = _Devices(), f"for count = {count}"
        first, second = (_Array(both, value, None) for value in rng.uniform(1, 2, 2))
        answer = checks.answer(learner, both.put, both.step, first, second, count, who=f"{where} it")
        if both.log == ["put on 0"] * 2 + ["order", "wait"] * 2 * count and count:
            raise checks.NotDone("this is what you were given: all on device 0, and a wait after each order.")
        if answer is None or answer is ...:
            raise checks.NotDone("progress returned nothing. (It is `return` that hands an answer back, not `print`.)")
        times.append(both.judge(count, where))
        expected = both.losses(first.value, second.value, count)
        if not isinstance(answer, list):
            raise checks.NotYet(f"{where} expected a list of numbers, came {type(answer).__name__}")
        if any(isinstance(one, _Array) for one in answer):
            raise checks.NotYet(f"{where} expected numbers, came arrays of a device. `float` makes numbers of them.")
        if len(answer) != len(expected):
            raise checks.NotYet(f"{where} expected {len(expected)} numbers, came {len(answer)}")
        for number, (wanted, came) in enumerate(zip(expected, answer, strict=True), 1):
            if not isinstance(came, Real | np.ndarray) or not np.allclose(came, wanted, rtol=1e-6):
                which = "the first number" if number == 1 else f"number {number}"
                raise checks.NotYet(f"{where} expected {wanted:.4f} as {which} of the list, came {came!r}")
    yield f"{len(tried)} cases; with count = {tried[0]} all is done after {times[0]:.1f} ms"


class _Devices:
    """Two devices that a loop gives orders to, and a clock that is counted, in ms: no machine is too busy for it."""

    ORDER, STEP = 0.1, 1.0  # what an order takes Python, and what a step takes its device
    COPY = 1.0  # what a copy from one device to the other takes; one from Python's memory is not counted

    def __init__(self) -> None:
        self.now = 0.0  # Python's time
        self.free = [0.0, 0.0]  # when each device has done all that it was ordered
        self.steps = [0, 0]
        self.idle = [0.0, 0.0]  # how long each device that had begun had no order
        self.copies = 0  # from one device to the other
        self.log: list[str] = []
        self.thread = threading.get_ident()  # the one that the clock is for
        self.other_threads = False

    def put(self, array: _Array, device: int) -> _Array:
        """Return a copy of `array` on the device 0 or 1."""
        if not isinstance(array, _Array):
            raise ValueError(f"put(array, device) takes an array, not {array!r}")
        if device not in (0, 1):
            raise ValueError(f"put(array, device): the device is 0 or 1, not {device!r}")
        self.log.append(f"put on {device}")
        if array.device in (None, device):
            return _Array(self, array.value, device, array.done)
        self.copies += 1
        self.now += self.ORDER
        return _Array(self, array.value, device, max(self.now, array.done) + self.COPY)

    def step(self, array: _Array) -> _Array:
        """Order a step where `array` is (on no device: on device 0), and return its result, which is not there yet."""
        if not isinstance(array, _Array):
            raise ValueError(f"step(x) takes an array that is on a device, not {array!r}")
        device = array.device or 0
        self._look_at_thread()
        self.log.append("order")
        self.now += self.ORDER
        begin = max(self.now, self.free[device], array.done)
        if self.steps[device]:
            self.idle[device] += begin - self.free[device]
        self.free[device] = begin + self.STEP
        self.steps[device] += 1
        return _Array(self, self.after(array.value), device, self.free[device])

    def wait(self, array: _Array) -> None:
        """Let Python wait until `array` is there."""
        self._look_at_thread()
        if array.done > self.now:
            self.log.append("wait")
            self.now = array.done

    def _look_at_thread(self) -> None:
        self.other_threads |= threading.get_ident() != self.thread

    @staticmethod
    def after(value: float) -> float:
        """What a step makes of a loss."""
        return 0.9 * value + 0.01

    def losses(self, first: float, second: float, count: int) -> list[float]:
        """The losses of both models after each of `count` steps, turn about."""
        noted = []
        for _ in range(count):
            first, second = self.after(first), self.after(second)
            noted += [first, second]
        return noted

    def judge(self, count: int, where: str) -> float:
        """Return when all was done, in ms.

        Raises:
            NotYet: unless both devices got `count` steps each and were busy at the same time, without a pause.
        """
        if self.other_threads:
            raise checks.NotYet(
                f"{where} you used another thread. The clock counts one thread of Python, the one that calls progress. "
                "Order and wait in that one; it is enough here."
            )
        if (orders := sum(self.steps)) != 2 * count:
            raise checks.NotYet(f"{where} {orders} steps were ordered, {2 * count} are wanted: {count} for each model")
        took, paused = max(self.now, *self.free), max(self.idle) > 1e-9
        if paused or took > count * (self.STEP + self.ORDER) + self.ORDER + 1e-9:
            busy = " and ".join(f"device {i} {n * self.STEP / took:.0%}" for i, n in enumerate(self.steps))
            idle = " and ".join(f"device {i} {length:.1f} ms" for i, length in enumerate(self.idle))
            idle = f" Idle between its first and its last step: {idle}; none is allowed." if paused else ""
            before = self.log[: self.log.index("wait")].count("order") if "wait" in self.log else orders
            copies = f" Copies from one device to the other: {self.copies}." if self.copies else ""
            raise checks.NotYet(
                f"{where} all is done after {took:.1f} ms; {count * self.STEP + 2 * self.ORDER:.1f} ms would do.{idle} "
                f"Busy: {busy} of that time. Python ordered {before} of {orders} steps before it first waited.{copies}"
            )
        return took


class _Array:
    """A number on one of the `_Devices`, or on none yet; whoever reads it, in whatever way, waits for it.

    To compute with it, as in `x + 1` or `x < y`, is not to read it: as in JAX the result is an array on its device.
    """

    def __init__(self, devices: _Devices, value: float, device: int | None, done: float = 0.0) -> None:
        self.devices, self.value, self.device, self.done = devices, value, device, done

    __hash__ = None  # as JAX's arrays have none
    __array_priority__ = 100  # NumPy's numbers leave arithmetic to it

    def block_until_ready(self) -> _Array:
        self.devices.wait(self)
        return self

    def item(self) -> float:
        return self.block_until_ready().value

    tolist = item

    def __float__(self) -> float:
        return float(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __round__(self, digits: int | None = None) -> float:
        return round(self.item(), digits)

    def __str__(self) -> str:
        return str(self.item())

    def __repr__(self) -> str:
        place = "in Python's memory" if self.device is None else f"on device {self.device}"
        return f"Array({self}, {place})"

    def __format__(self, how: str) -> str:
        return format(self.item(), how)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array(self.item(), dtype)

    def _compute(self, operation: Callable[..., float], *others: object) -> _Array:
        """Order an operation on arrays and numbers; it takes no time, but its result is there when all of them are."""
        arrays = [self, *(one for one in others if isinstance(one, _Array))]
        if len(places := {one.device for one in arrays} - {None}) > 1:
            raise ValueError("the arrays are on two devices; as in JAX, put one of them beside the other first")
        values = [one.value if isinstance(one, _Array) else one for one in (self, *others)]
        return _Array(self.devices, operation(*values), *(places or {None}), max(one.done for one in arrays))


for _name in ("neg", "abs", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Array, f"__{_name}__", functools.partialmethod(_Array._compute, getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv", "pow"):
    _operation = getattr(operator, _name)
    setattr(_Array, f"__{_name}__", functools.partialmethod(_Array._compute, _operation))
    _swapped = functools.partial(lambda operation, one, other: operation(other, one), _operation)
    setattr(_Array, f"__r{_name}__", functools.partialmethod(_Array._compute, _swapped))


@checks.verdict
def check_least_seconds(learner: Callable[[int, int, int, float], float]) -> Iterator[str]:
    """Lesson 07, exercise 3: the least time of 2 x (power - 1) products on a card of so many cores.

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
    def least_seconds(size: int, power: int, cores: int, gigahertz: float) -> object:
        answer = learner(size, power, cores, gigahertz)
        exact = right(size, power, cores, gigahertz) * (2 * size - 1) / (2 * size)
        same = isinstance(answer, float) and np.isclose(answer, exact, rtol=1e-9, atol=0)
        return right(size, power, cores, gigahertz) if same else answer

    text = None
    with suppress(Exception):  # the judge calls it again, and says what stopped it
        if isinstance(answer := learner(1000, 3, 100, 1.0), str):
            text = answer
    if text is not None:
        raise checks.NotYet(f"for least_seconds(1000, 3, 100, 1.0) came {text!r}: that is text, not a number")
    yield checks.judge_function(least_seconds, right, cases)


@checks.verdict
def check_visible(learner: Callable[[str | None, int], list[int]]) -> Iterator[str]:
    """Lesson 07, exercise 4: what CUDA_VISIBLE_DEVICES shows; the first invalid number ends the list.

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

    _judge_list(learner, Integral, "whole numbers", [("2,0", 3), (None, 3)])
    yield checks.judge_function(learner, right, cases)


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

# The library in it holds nothing of Python, and is the same in the wheels for 3.10 to 3.13.
ZENTF_WHEEL = "zentf-2.21.0.0-cp311-cp311-manylinux_2_28_x86_64.whl"
ZENTF_SHA256 = "f65ff0b23bfdbe016ff533646caa6e837734ca1746a147dce752cf08f0419fe8"
ZENTF_FOR = "2.21"  # of TensorFlow


def zentf(download: bool = False) -> str:
    """Return the folder with the library of zentf, AMD's plug-in for TensorFlow, for TF_PLUGGABLE_DEVICE_LIBRARY_PATH.

    It is unpacked beside the environment, from its wheel in data/cache. Installed, it would put NumPy 1.26.4, which
    JAX refuses, in place of ours.

    Args:
        download: whether pip may fetch the wheel (22 MB) if it is not there.

    Raises:
        WorkshopError: it does not fit this machine or this TensorFlow, is not there, or did not come whole.
    """
    wheel, folder = CACHE / ZENTF_WHEEL, CACHE / ZENTF_WHEEL.split("-cp")[0]
    without = "zentf is left out."
    if (system := f"{platform.system()} {platform.machine()}") != "Linux x86_64":
        raise WorkshopError(without, f"It is made for Linux on x86-64 processors; this is {system}.", "Read on.")
    if not (version := training.import_tensorflow().__version__).startswith(f"{ZENTF_FOR}."):
        raise WorkshopError(without, f"It is made for TensorFlow {ZENTF_FOR}; this is {version}.", "Read on.")
    if not folder.exists():
        if not wheel.exists():
            if not download:
                advice = "Set download=True in this cell and run it again, or read on."
                raise WorkshopError(without, f"Its file (22 MB) is not in data/cache: {ZENTF_WHEEL}", advice)
            _fetch_zentf(without)
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != ZENTF_SHA256:
            advice = "Delete it there, and run this cell again with download=True."
            raise WorkshopError(without, f"The file data/cache/{ZENTF_WHEEL} is damaged, or another one.", advice)
        with tempfile.TemporaryDirectory(dir=CACHE) as unfinished, zipfile.ZipFile(wheel) as packed:
            packed.extractall(Path(unfinished, folder.name))
            with suppress(OSError):  # another process was faster
                Path(unfinished, folder.name).rename(folder)
    return str(folder / "tensorflow-plugins")


def _fetch_zentf(without: str) -> None:
    """Let pip bring the wheel into data/cache; whatever Python runs here, the one that the checksum belongs to."""
    name, version, python, abi, system = ZENTF_WHEEL.removesuffix(".whl").split("-")
    command = ["download", "--no-deps", "--only-binary=:all:", f"--python-version={python[2:]}", f"--abi={abi}"]
    command += [f"--platform={system}", f"{name}=={version}"]
    quick = ["--quiet", "--retries=1", f"--dest={CACHE}"]
    done = processes.run_command([sys.executable, "-m", "pip", *command, *quick], timeout=300)
    if done.status != 0:
        why = done.stderr.strip()[-300:] or "it took too long"
        advice = f"Fetch it where there is a network, and put it into data/cache:\n    pip {' '.join(command)}"
        raise WorkshopError(without, f"pip could not bring it: {why}", advice)


def with_and_without_zentf(multiply: Callable[[], object], switches: Mapping[str, str], download: bool = False) -> None:
    """Run a function here, without zentf, and in a fresh process with it: one TensorFlow more in memory, not two.

    Printed is what it prints, and what TensorFlow logs of plug-ins; where zentf cannot be had, why.

    Args:
        multiply: what is run; `processes.run` takes it.
        switches: environment variables that zentf wants.
        download: whether pip may fetch zentf.
    """
    print("without zentf, in this process")
    multiply()
    print("\nwith zentf, in a fresh process")
    try:
        variables = {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": zentf(download), **switches}
    except WorkshopError as error:
        print(error)
        return
    # The whole log, and no GPU, of which the process would take memory.
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "0", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    run = processes.run(multiply, variables=variables, check=False)
    logged = [line.split("] ")[-1] for line in run.stderr[0].splitlines() if "Plugin" in line]
    print(f"{run}\nlogged of plug-ins: {' '.join(logged) or 'nothing'}")


def executed(function: Callable[..., object], *tensors: object) -> list[str]:
    """Call a `tf.function`, and return the kinds of operations that ran, after all that rewrites its graph.

    Source: the run metadata of TensorFlow 2.21; no public function tells them any more.
    """
    from tensorflow.python.eager import context

    ours = context.context()
    ours.enable_run_metadata()
    try:
        function(*tensors)
        graphs = ours.export_run_metadata().partition_graphs
    finally:
        ours.disable_run_metadata()
    return [node.op for graph in graphs for node in graph.node if node.op not in ("_Arg", "_Retval")]


Note = Callable[..., "jax.Array"]


def watched(give_orders: Callable[[Note, bool], None], wait: bool, runs: int = 3) -> list[Span]:
    """Note when one thread gives orders to JAX's devices, and when each is done, without holding any of them up.

    For each device another thread waits for its results, one after the other. An order's work begins when it is given,
    or when the device has finished the one before.

    Args:
        give_orders: called with `note` and `wait`; note(what, function, ...) calls `function` with what follows, which
            returns a new array.
        wait: whether `give_orders` waits for each array.
        runs: the fastest of so many counts; one more before them compiles.

    Returns:
        The pieces of work, for `plots.timeline`; the row PYTHON has the orders, each until the next.
    """
    tried = [_watched_once(give_orders, wait) for _ in range(runs + 1)][1:]
    return min(tried, key=_length)


def _watched_once(give_orders: Callable[[Note, bool], None], wait: bool) -> list[Span]:
    spans: list[Span] = []
    watchers: dict[str, ThreadPoolExecutor] = {}
    pending: list[tuple[jax.Array, Future[None]]] = []
    free_from: dict[str, float] = {}  # when the device finished its last piece
    ordered: list[float] = []  # when each order began, and when Python was free

    def watch(device: str, what: str, array: jax.Array, given: float) -> None:
        array.block_until_ready()
        done = time.perf_counter()
        spans.append((device, f"computes {what}", max(given, free_from.get(device, given)), done))
        free_from[device] = done

    with ExitStack() as stack:

        def note(what: str, order: Callable[..., jax.Array], *given: object) -> jax.Array:
            for array, watching in pending:
                if array.is_ready():
                    watching.result()  # what is done is noted before more begins
            ordered.append(time.perf_counter())
            array = order(*given)
            device = str(array.device)
            if device not in watchers:
                watchers[device] = stack.enter_context(ThreadPoolExecutor(1))
            pending.append((array, watchers[device].submit(watch, device, what, array, ordered[-1])))
            return array

        give_orders(note, wait)
        ordered.append(time.perf_counter())
    return spans + [(PYTHON, "orders (and waits)", *ends) for ends in itertools.pairwise(ordered)]


def _length(spans: Sequence[Span]) -> float:
    """How long a run took, in seconds."""
    return max(span[3] for span in spans) - min(span[2] for span in spans)


def tell_orders(runs: Mapping[str, Sequence[Span]]) -> None:
    """Print for each run when its last order had returned, and when the work was done."""
    for name, spans in runs.items():
        orders = [span for span in spans if span[0] == PYTHON]
        free = orders[-1][3] - orders[0][2]
        print(f"{name}: Python is free after {duration(free)}, all is done after {duration(_length(spans))}")
