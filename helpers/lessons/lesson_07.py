"""Lesson 07, Place work on devices: the checks of its exercises, its figure."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import threading
from collections.abc import Callable, Iterator
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import training
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, show

if TYPE_CHECKING:
    import tensorflow as tf


@checks.verdict
def check_split(learner: Callable[..., tuple[tf.Tensor, ...]], first: str, second: str) -> Iterator[str]:
    """Lesson 07, exercise 1: the square of a on `first`, that of b and the sum of both on `second`."""
    tensorflow, rng = training.import_tensorflow(), np.random.default_rng()
    names, wanted = ("the square of a", "the square of b", "the sum"), (first, second, second)
    default = _place(tensorflow.ones(1))
    for size, start in itertools.product((1, 2, 5), (first, second)):
        with tensorflow.device(start):
            a, b = (tensorflow.constant(rng.normal(size=(size, size)), tensorflow.float32) for _ in "ab")
        exact_a, exact_b = (np.linalg.matrix_power(matrix.numpy().astype(float), 2) for matrix in (a, b))
        parts = checks.answer(learner, a, b, who=f"split, for matrices on {start},")
        if parts is None or parts is ...:
            raise checks.NotDone("split returned nothing. (It is `return` that hands an answer back, not `print`.)")
        if not isinstance(parts, tuple | list) or len(parts) != len(names):
            raise checks.NotYet(f"expected three matrices, came {type(parts).__name__}")
        for name, part, exact in zip(names, parts, (exact_a, exact_b, exact_a + exact_b), strict=True):
            if not hasattr(part, "numpy"):
                raise checks.NotYet(f"{name}: expected a tensor, came {type(part).__name__}")
            if part.shape != exact.shape or not np.allclose(part.numpy(), exact, rtol=1e-3, atol=1e-5):
                raise checks.NotYet(f"{name} is not right: expected {exact.tolist()}, came {part.numpy().tolist()}")
        places = [_place(part) for part in parts]
        if places == [default] * len(names):
            raise checks.NotDone(f"all three were computed on {default}, which is TensorFlow's own choice.")
        for name, came, expected in zip(names, places, wanted, strict=True):
            if came != expected:
                raise checks.NotYet(f"for matrices on {start}, {name}: expected on {expected}, came on {came}")
    yield "matrices of 3 sizes, from both devices"


def _place(tensor: tf.Tensor) -> str:
    return tensor.device.rpartition("device:")[2]


@checks.verdict
def check_misplaced(learner: Callable[[dict[str, str], str], list[str]]) -> Iterator[str]:
    """Lesson 07, exercise 2: the names of the tensors that live elsewhere than wanted, in alphabetical order."""

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

    answer = checks.answer(learner, *copy.deepcopy(first), who="misplaced")
    if answer is not None and answer is not ... and not isinstance(answer, list):
        raise checks.NotYet(f"expected a list, came {answer!r}, of the type {type(answer).__name__}")
    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_progress(learner: Callable[..., list[float]]) -> Iterator[str]:
    """Lesson 07, exercise 3: steps of two models, ordered so that two devices are busy from beginning to end.

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


# ------------------------------------------------------------------------------------------------------ its figure


def draw_rules() -> None:
    """Draw how TensorFlow and JAX choose the device of `x + 1`, beside each other; nothing is run."""
    from matplotlib.patches import Rectangle

    panels = {
        "TensorFlow: the with block says where": ("with tf.device(second):\n    x + 1", 0, "copied"),
        "JAX: the data say where": ("x = jax.device_put(x, second)\nx + 1", 1, ""),
    }
    with figure(7.5, 2.6, ncols=2) as (drawn, axes):
        for panel, (title, (code, place, arrow)) in zip(axes, panels.items(), strict=True):
            for column, name in enumerate(("first", "second")):
                panel.add_patch(Rectangle((column - 0.45, -0.1), 0.9, 1.1, facecolor="white", edgecolor=GREY, lw=1.5))
                panel.text(column, 1.06, name, ha="center", va="bottom", fontsize=9)
            at = {"x": (place, 0.75), "x + 1": (1, 0.2)}
            panel.annotate("", at["x + 1"], at["x"], arrowprops={"arrowstyle": "-|>", "lw": 2, "color": ORANGE,
                           "shrinkA": 14, "shrinkB": 16})  # fmt: skip
            panel.text(0.5, 0.62, arrow, ha="center", fontsize=9, color=ORANGE)
            for text, (x, y) in at.items():
                box = {"boxstyle": "round", "facecolor": "white", "edgecolor": BLUE}
                panel.text(x, y, text, ha="center", va="center", fontsize=10, bbox=box)
            panel.text(-0.45, -0.2, code, fontsize=9, family="monospace", va="top")
            panel.set_title(title, fontsize=10)
            panel.set(xlim=(-0.5, 1.5), ylim=(-0.75, 1.3), xticks=[], yticks=[])
            panel.grid(visible=False)
            panel.spines[:].set_visible(False)
    show(
        drawn,
        "Where x + 1 is computed. TensorFlow: on the device of the with block, x is copied there. JAX: where x is.",
    )
