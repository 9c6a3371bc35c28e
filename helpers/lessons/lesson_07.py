"""Serve lesson 07, Place work on devices: the checks of its exercises."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from helpers import training
from helpers.judge import checks
from helpers.measure import plots
from helpers.measure.timing import Span

if TYPE_CHECKING:
    import tensorflow as tf


@checks.print_verdict
def check_split(learner: Callable[..., tuple[tf.Tensor, ...]], first: str, second: str) -> Iterator[str]:
    """Judge exercise 1 of lesson 07: the square of a on `first`, that of b and the sum of both on `second`."""
    tensorflow, rng = training.import_tensorflow(), np.random.default_rng()
    tensorflow.config.set_soft_device_placement(True)  # an exercise's cell may have left it off
    names, wanted = ("the square of a", "the square of b", "the sum"), (first, second, second)
    default = _find_place(tensorflow.ones(1) + 1)
    for size, start in itertools.product((1, 2, 5), (first, second)):
        with tensorflow.device(start):
            a, b = (tensorflow.constant(rng.normal(size=(size, size)), tensorflow.float32) for _ in "ab")
        exact_a, exact_b = (np.linalg.matrix_power(matrix.numpy().astype(float), 2) for matrix in (a, b))
        with record_operations() as operations:
            parts = checks.answer(learner, a, b, who=f"split, for matrices on {start},")
        if parts is None:
            raise checks.NotDone(f"split returned nothing. ({checks.RETURNS})")
        if not isinstance(parts, tuple | list) or len(parts) != len(names):
            raise checks.NotYet(f"expected three matrices, came {type(parts).__name__}")
        for name, part, exact in zip(names, parts, (exact_a, exact_b, exact_a + exact_b), strict=True):
            is_tensor = hasattr(part, "numpy") and part.shape == exact.shape
            if not is_tensor or not np.allclose(part.numpy(), exact, rtol=1e-3, atol=1e-5):
                raise checks.NotYet(f"{name} is not right: expected a tensor of {exact.tolist()}, came {part}")
        lying = [_find_place(part) for part in parts]
        computed = [_find_computed(operations, part) for part in parts]
        if lying == [default] * len(names) and computed == [{default}] * len(names):
            raise checks.NotDone(
                f"all three were computed on {default}. TensorFlow also chooses this device if no `with` names one; "
                "where a and b are does not matter."
            )
        for name, place, places, expected in zip(names, lying, computed, wanted, strict=True):
            _judge_place(f"for matrices on {start}, {name}", place, places, expected)
    yield "matrices of 3 sizes, from both devices"


def _judge_place(which: str, place: str, places: set[str], expected: str) -> None:
    """Raise NotYet unless a result was computed on the expected device, and lies there.

    Args:
        which: the result, in words.
        place: the device on which it lies.
        places: the devices that computed it.
        expected: the wanted device.
    """
    if not places:
        raise checks.NotYet(f"{which}: no operation of TensorFlow computed it; a device was only given it.")
    if places != {expected}:
        other = min(places - {expected})
        if expected in places:
            raise checks.NotYet(f"{which}: it was computed on {expected}, and once more on {other}. Compute it once.")
        copied = f", and lies on {place} as a copy" if place != other else ""
        raise checks.NotYet(f"{which}: expected on {expected}; it was computed on {other}{copied}")
    if place != expected:
        raise checks.NotYet(f"{which}: expected on {expected}; it was computed there, and copied to {place}")


@dataclass(frozen=True)
class Operation:
    """An operation that TensorFlow has executed: its name, its inputs and its outputs, which lie where it ran."""

    kind: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@contextlib.contextmanager
def record_operations() -> Generator[list[Operation]]:
    """Note each operation that TensorFlow executes inside the `with` block, also those of a `tf.function`.

    `tf.debugging.set_log_device_placement` would only write into the log, so this uses what TensorFlow's own debugger
    uses, which is no public interface. A compiled function would be one operation, so functions are not compiled here.
    """
    tensorflow = training.import_tensorflow()
    from tensorflow.python.framework import op_callbacks

    noted: list[Operation] = []

    def note(
        kind: str, inputs: tuple, attributes: object, outputs: tuple, op_name: object = None, graph: object = None
    ) -> None:
        if graph is None:  # while a graph is built, nothing is computed
            noted.append(Operation(kind, tuple(inputs), tuple(outputs)))

    was_eager = tensorflow.config.functions_run_eagerly()
    tensorflow.config.run_functions_eagerly(True)
    op_callbacks.add_op_callback(note)
    try:
        yield noted
    finally:
        op_callbacks.remove_op_callback(note)
        tensorflow.config.run_functions_eagerly(was_eager)


def _find_computed(operations: list[Operation], result: tf.Tensor) -> set[str]:
    """Return the devices on which a result was computed, not only copied: no input of the operation had its values."""
    values, places = result.numpy(), set()
    for operation in operations:
        inputs, outputs = ([_read(tensor) for tensor in tensors] for tensors in (operation.inputs, operation.outputs))
        is_copy = any(np.array_equal(given, values) for given in inputs)
        if not is_copy and any(np.array_equal(made, values) for made in outputs):
            places |= {_find_place(tensor) for tensor in operation.outputs}
    return places


def _read(tensor: tf.Tensor) -> np.ndarray:
    """Return a tensor's values; none for what has none, such as a variable's handle."""
    try:
        return tensor.numpy()
    except (AttributeError, ValueError, NotImplementedError):
        return np.array([])


def _find_place(tensor: tf.Tensor) -> str:
    """Return the device on which a tensor lies, such as "GPU:0"."""
    return tensor.device.rpartition("device:")[2]


@dataclass(frozen=True)
class Placed:
    """A stand-in for a result of TensorFlow, with the `device` of a machine that is not here."""

    device: str

    @property
    def backing_device(self) -> str:
        """Return the device whose memory holds it."""
        return self.device


@checks.print_verdict
def check_compute_on(learner: Callable[[str, Callable[[], Any]], Any], first: str, second: str) -> Iterator[str]:
    """Judge exercise 2 of lesson 07: a result that was computed on the named device, otherwise a RuntimeError."""
    tensorflow = training.import_tensorflow()
    tensorflow.config.set_soft_device_placement(True)  # an exercise's cell may have left it off
    value = np.random.default_rng().normal(size=3)

    def work() -> tf.Tensor:
        return tensorflow.constant(value) + 1

    def work_on_first() -> tf.Tensor:
        with tensorflow.device(first):
            return work()

    for name in (second, first):
        _judge_call(learner, name, work, name)
    for name in (first, second):
        _judge_call(learner, name, work_on_first, first, f", where work has its own `with` for {first}")
    _judge_call(learner, "GPU:98", work, None)
    for name, place in (("GPU:1", "GPU:10"), ("GPU:11", "GPU:1"), ("GPU:0", "CPU:0"), ("GPU:1", "GPU:1")):
        stand_in = Placed(f"/job:worker/replica:0/task:3/device:{place}")
        _judge_call(
            learner, name, lambda result=stand_in: result, place, f", where work's result is on {stand_in.device}"
        )
    yield "results on both devices, on others, and on devices that are not there"


def _judge_call(
    learner: Callable[..., Any], name: str, work: Callable[[], Any], expected: str | None, what: str = ""
) -> None:
    """Raise NotYet unless `compute_on` returns what `work` returns, or raises a RuntimeError where it has to.

    Args:
        learner: takes a device's name and `work`.
        name: of the wanted device.
        work: returns a tensor, or a stand-in.
        expected: the device on which it computes inside a `with` for `name`; None for any other than that.
        what: follows the call in the message.
    """
    calls, results = [], []  # a call that TensorFlow refuses has no result
    raised: list[RuntimeError] = []

    def call(*given: object) -> object:
        try:
            return learner(*given)
        except NotImplementedError:
            raise
        except RuntimeError as error:
            raised.append(error)
            return None
        finally:  # an answer may have turned it off, and later cells need it
            training.import_tensorflow().config.set_soft_device_placement(True)

    def compute() -> object:
        calls.append(name)
        results.append(work())
        return results[-1]

    who = f"compute_on({name!r}, work){what}"
    returned = checks.answer(call, name, compute, who=who)
    if returned is None and not raised and not calls:
        raise checks.NotDone(f"{who} did not call work, and returned nothing.")
    if len(calls) != 1:
        raise checks.NotYet(f"{who} called work {len(calls)} times; call it once.")
    is_same = bool(results) and returned is results[0]
    place = _find_place(results[0]) if results else "no device, because TensorFlow refused to compute it"
    if results and expected and place != expected:
        ran = f"{who}: work ran on {place}, expected {expected}. Only a `with` around its call decides where it runs."
        raise checks.NotDone(ran) if is_same else checks.NotYet(ran)
    if place == name and raised:
        raise checks.NotYet(f"{who} raised RuntimeError({raised[0]}), although the result is on {name}.")
    if place == name and not is_same:
        raise checks.NotYet(f"{who} returned {checks.short(returned)}; return what work returned.")
    if place != name and not raised:
        instead = "" if is_same else f" It returned {checks.short(returned)}."
        raise checks.NotYet(f"{who}: the result is on {place}, and no RuntimeError was raised.{instead}")


@checks.print_verdict
def check_progress(learner: Callable[..., list[float]]) -> Iterator[str]:
    """Judge exercise 3 of lesson 07: steps of two models, ordered so that two devices are busy from beginning to end.

    The learner's loop runs on `_Devices`, whose clock is counted. The loop may take as long as if one device got all
    its orders before the other gets its first; no device may be idle between its steps, as it is after a wait in each
    round. The verdict "right" says how long the first case took.
    """
    rng = np.random.default_rng()
    tried, times = (8, 3, 2, 1, 0, int(rng.integers(10, 40))), []
    for count in tried:
        both, where = _Devices(), f"for count = {count}"
        first, second = (_Array(both, value, None) for value in rng.uniform(1, 2, 2))
        answer = checks.answer(learner, both.put, both.step, first, second, count, who=f"{where} it")
        if both.log == ["put on 0"] * 2 + ["order", "wait"] * 2 * count and count:
            raise checks.NotDone("this is what you were given: all on device 0, and a wait after each order.")
        if answer is None:
            raise checks.NotDone(f"progress returned nothing. ({checks.RETURNS})")
        times.append(both.judge(count, where))
        expected = both.compute_losses(first.value, second.value, count)
        if not isinstance(answer, list):
            raise checks.NotYet(f"{where} expected a list of numbers, came {type(answer).__name__}")
        if len(answer) != len(expected):
            raise checks.NotYet(f"{where} expected {len(expected)} numbers, came {len(answer)}")
        for number, (wanted, actual) in enumerate(zip(expected, answer, strict=True), 1):
            if not isinstance(actual, Real | np.ndarray) or not np.allclose(actual, wanted, rtol=1e-6):
                came = "an array: make it a number with `float`" if isinstance(actual, _Array) else repr(actual)
                raise checks.NotYet(f"{where} expected {wanted:.4f} as number {number} of the list, came {came}")
    account = f"{len(tried)} cases; with count = {tried[0]} all is done after {times[0]:.1f} ms"
    yield checks.keep_right("progress", learner, account)


def progress(put: Callable, step: Callable, a: Any, b: Any, count: int) -> list[float]:  # noqa: ANN401 (any array)
    """Return the losses of two models after each of `count` steps: all steps are ordered, then waited for."""
    x, y, losses = put(a, 0), put(b, 1), []
    for _ in range(count):
        x, y = step(x), step(y)
        losses += [x, y]
    return [float(loss) for loss in losses]


def draw_progress(learner: Callable[..., object]) -> None:
    """Draw when each of two devices computes what a learner's loop orders for 8 steps, on a clock that is counted."""
    both = _Devices()
    first, second = _Array(both, 1.0, None, model="a"), _Array(both, 2.0, None, model="b")
    with contextlib.suppress(checks.NotYet):  # which the check says
        learner(both.put, both.step, first, second, 8)
    if both.spans:
        spans = [*both.spans, *((f"device {number}", "a step of a", 0.0, 0.0) for number in (0, 1))]  # a row for each
        plots.draw_timeline({"all done": spans}, "8 steps of two models; the time is counted, not measured")


class _Devices:
    """Two devices that take a loop's orders, and a clock that counts, in ms, so that a busy machine changes nothing."""

    ORDER, STEP = 0.1, 1.0  # ms that an order takes Python, and that a step takes its device
    COPY = 1.0  # ms of a copy from one device to the other; a copy from Python's memory takes none

    def __init__(self) -> None:
        self.thread, self.is_threaded = threading.get_ident(), False
        self.now = 0.0  # Python's time
        self.free = [0.0, 0.0]  # when each device has done all its orders
        self.steps = [0, 0]
        self.idle = [0.0, 0.0]  # how long each device that had begun had no order
        self.log: list[str] = []
        self.spans: list[Span] = []  # seconds

    def put(self, array: _Array, device: int) -> _Array:
        """Return a copy of `array` on the device 0 or 1."""
        if not isinstance(array, _Array) or device not in (0, 1):
            raise ValueError(f"put(array, device) takes an array and 0 or 1, not {array!r} and {device!r}")
        self.log.append(f"put on {device}")
        if array.device in (None, device):
            return _Array(self, array.value, device, array.done, array.model)
        self.now += self.ORDER
        return _Array(self, array.value, device, max(self.now, array.done) + self.COPY, array.model)

    def step(self, array: _Array) -> _Array:
        """Order a step where `array` is (device 0 if it is on none), and return its result, which is not there yet."""
        if not isinstance(array, _Array):
            raise ValueError(f"step(x) takes an array that is on a device, not {array!r}")
        self.is_threaded = self.is_threaded or threading.get_ident() != self.thread  # an error here would end there
        device = array.device or 0
        self.log.append("order")
        self.now += self.ORDER
        begin = max(self.now, self.free[device], array.done)
        if self.steps[device]:
            self.idle[device] += begin - self.free[device]
        self.free[device] = begin + self.STEP
        self.spans.append((f"device {device}", f"a step of {array.model}", begin / 1e3, self.free[device] / 1e3))
        self.steps[device] += 1
        return _Array(self, self.compute_step(array.value), device, self.free[device], array.model)

    def wait(self, array: _Array) -> None:
        """Let Python wait until `array` is there."""
        if array.done > self.now:
            self.log.append("wait")
            self.now = array.done

    @staticmethod
    def compute_step(value: float) -> float:
        """Return the loss after a step."""
        return 0.9 * value + 0.01

    def compute_losses(self, first: float, second: float, count: int) -> list[float]:
        """Return the losses after each of `count` steps, of both models in turn."""
        noted = []
        for _ in range(count):
            first, second = self.compute_step(first), self.compute_step(second)
            noted += [first, second]
        return noted

    def judge(self, count: int, where: str) -> float:
        """Return when all was done, in ms.

        Raises:
            NotYet: a device did not get `count` steps, or the two were not busy at the same time without a pause.
        """
        if self.is_threaded:
            raise checks.NotYet("a second thread ordered a step; order all of them in one thread.")
        if (orders := sum(self.steps)) != 2 * count:
            raise checks.NotYet(f"{where} {orders} steps were ordered, {2 * count} are wanted: {count} for each model")
        took, paused = max(self.now, *self.free), max(self.idle) > 1e-9
        if paused or took > count * (self.STEP + self.ORDER) + self.ORDER + 1e-9:
            busy = " and ".join(f"device {i} {n * self.STEP / took:.0%}" for i, n in enumerate(self.steps))
            idle = " and ".join(f"device {i} {length:.1f} ms" for i, length in enumerate(self.idle))
            idle = f" Idle between its first and its last step: {idle}; none is allowed." if paused else ""
            before = self.log[: self.log.index("wait")].count("order") if "wait" in self.log else orders
            raise checks.NotYet(
                f"{where} all is done after {took:.1f} ms; {count * self.STEP + 2 * self.ORDER:.1f} ms would do.{idle} "
                f"Busy: {busy} of that time. Python ordered {before} of {orders} steps before it first waited."
            )
        return took


class _Array:
    """A number on one of the `_Devices`, or on none yet; to read or show it is to wait for it."""

    def __init__(self, devices: _Devices, value: float, device: int | None, done: float = 0.0, model: str = "") -> None:
        self.devices, self.value, self.device, self.done, self.model = devices, value, device, done, model

    def block_until_ready(self) -> _Array:
        self.devices.wait(self)
        return self

    def item(self) -> float:
        return self.block_until_ready().value

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return f"Array({self.item()})"

    def __format__(self, how: str) -> str:
        return format(self.item(), how)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.item(), dtype)
