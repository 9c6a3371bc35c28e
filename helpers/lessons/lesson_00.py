"""Serve lesson 00, Check your setup: the checks of its exercises, its figures, and work for any device."""

from __future__ import annotations

import _thread
import contextlib
import functools
import io
import numbers
import re
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from helpers import devices
from helpers.devices import Device, monitor, products
from helpers.devices.monitor import Monitor, Samples
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, figure, show
from helpers.running.quiet import caught_stderr

Result = TypeVar("Result")

AFTER = "after"  # the third phase of a watching: idle again
SHORTEST, LONGEST = 0.02, 0.75  # seconds: "about a tenth of a second", with room for a busy machine
PATIENCE = 15.0  # seconds after which a function counts as endless
SIZE = 64  # rows and columns of the matrix that a learner's load multiplies: OpenBLAS wakes a second core above it
# Seconds and sizes to try: a fixed number of products that fits the first by luck does not fit the second.
TRIED = ((0.1, SIZE), (0.4, 48))
MIN_PRODUCTS = 10  # products; an honest load computes thousands in a tenth of a second
# A product that also sleeps: in a tenth of a second of time there are 10 such, of processor time thousands.
SLEEP, MOST_SLEEPS = 0.01, 200
PRODUCT = re.compile(r"\s*(\w)(\w)\s*,\s*\2(\w)\s*(->\s*\1\3\s*)?")  # of two matrices, for np.einsum
# A learner's `fool` must not use these.
LIBRARIES = {
    "numpy",
    "scipy",
    "jaxlib",
    "keras",
    "helpers",
    *(framework.module for framework in devices.FRAMEWORKS.values()),
}
MATRIX = 1536  # rows and columns in the work for a device: 9 MiB, and 3.6 billion multiply-adds for a product
SLICE = 0.1  # seconds that one slice of work should take, so that a load can end in time
# Another program: for each line that it reads it works for a tenth of a second, and writes one. It ends with its input.
OTHER_PROGRAM = """
import sys, time
for line in sys.stdin:
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        pass
    print(flush=True)
"""
# This kernel multiplies and adds in registers: all arithmetic, no memory traffic.
MULTIPLY_ADD = """
__kernel void multiply_add(__global float *x, const int rounds) {
    float v = x[get_global_id(0)];
    for (int r = 0; r < rounds; r++)
        v = v * 0.999f + 0.001f;
    x[get_global_id(0)] = v;
}
"""


@checks.print_verdict
def check_load(load: Callable[[np.ndarray, float], int]) -> Iterator[str]:
    """Judge exercise 1 of lesson 00: multiply a matrix until the time is up, return the count, show in the monitor."""

    def count_products(matrix: np.ndarray, seconds: float) -> tuple[object, int]:
        """Return what the load returned, and how many products it computed."""
        before = _Counted.products
        return load(matrix, seconds), _Counted.products - before

    with _watch_call(load, "load") as name:
        earlier = 0
        _Counted.sleeps = 0
        for seconds, size in TRIED:
            matrix = _make_shift(size)
            (returned, products), took = _time_quickest(functools.partial(count_products, matrix, seconds))
            call = f"{name}(matrix, {seconds})"
            if returned is ...:
                raise checks.NotDone(f"{call} is unchanged.")
            if products < MIN_PRODUCTS:
                counts = "The check counts products of the given matrix, not of a copy."
                raise checks.NotYet(f"{call}: {products} products `matrix @ matrix` seen; expected many. {counts}")
            if not np.array_equal(matrix, _make_shift(size)):
                raise checks.NotYet(f"{call} changed `matrix`, which belongs to the caller; expected it untouched.")
            if not isinstance(returned, numbers.Real) or returned != products:
                raise checks.NotYet(f"{call} computed {products} products and returned {checks.short(returned)}.")
            if products == earlier:
                raise checks.NotYet(f"{call} computed {products:,} products, as in {TRIED[0][0]} s; expected others.")
            if not 0.9 * seconds <= took <= seconds + LONGEST:
                raise checks.NotYet(f"{call} lasted {took:.3g} s; expected about {seconds} s.")
            earlier = products
        _judge_clock(load, name)
        title = f"{name}(): {products / took:,.0f} products a second"
        verdict = _judge_utilization(functools.partial(load, _make_shift(SIZE), 0.1), name, title)
    yield f"{products:,} products in {took:.1f} s: {verdict}"


@checks.print_verdict
def check_fool(fool: Callable[[], object]) -> Iterator[str]:
    """Judge exercise 2 of lesson 00: no NumPy, no framework, and the monitor shows work all the same."""
    with _watch_call(fool, "fool") as name:
        if not isinstance(fool, types.FunctionType):
            raise checks.NotYet(f"expected a function written with `def` or `lambda`, came {fool!r}.")
        if libraries := find_libraries(fool):
            raise checks.NotYet(f"{name}() uses {', '.join(sorted(libraries))}; expected Python alone.")
        returned, took = _time_quickest(fool)
        if returned is ...:
            raise checks.NotDone(f"{name}() is unchanged.")
        if not SHORTEST <= took <= LONGEST:
            raise checks.NotYet(f"{name}() lasted {took:.3f} s; expected about a tenth of a second.")
        verdict = _judge_utilization(fool, name, f"{name}(): plain Python")
    yield f"plain Python: {verdict}"


def _judge_clock(load: Callable[[np.ndarray, float], int], name: str) -> None:
    """Refuse a load that looks at a clock of processor time, which stands still while a product sleeps."""
    _Counted.sleeps = MOST_SLEEPS
    try:
        load(_make_shift(4), 0.1)
    finally:
        slept, _Counted.sleeps = MOST_SLEEPS - _Counted.sleeps, 0
    if slept == MOST_SLEEPS:
        raise checks.NotYet(
            f"{name}(matrix, 0.1) lasted too long: it reads no clock between its products, or one that stands still "
            "while the processor waits (use time.perf_counter)."
        )


class _Counted(np.ndarray):
    """A matrix that counts its products with itself, by `@`, `dot`, or NumPy's matmul, dot or einsum."""

    products = 0
    sleeps = 0  # how many of the next products sleep

    # NumPy's own signatures of these three have Any.
    def dot(self, *factors: Any, **options: Any) -> Any:  # noqa: ANN401
        return np.matmul(self, *factors, **options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        if func is np.dot:
            return np.matmul(*args, **kwargs)
        if func is np.einsum and len(args) == 3 and args[1] is args[2] and PRODUCT.fullmatch(str(args[0])):
            return np.matmul(self, self)
        return super().__array_function__(func, types, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **options: Any) -> Any:  # noqa: ANN401
        if ufunc is np.matmul and given[0] is given[1]:
            _Counted.products += 1
            if _Counted.sleeps:
                _Counted.sleeps -= 1
                time.sleep(SLEEP)
        if "out" in options:
            options["out"] = tuple(np.asarray(array) for array in options["out"])
        plain = [np.asarray(array) for array in given]  # otherwise the call below would end here again
        return getattr(ufunc, method)(*plain, **options)  # a plain array: products of products are not counted


def _make_shift(size: int) -> _Counted:
    """Return a matrix that shifts the rows of what it multiplies: not its own square, and no power of it overflows."""
    return np.roll(np.eye(size, dtype=np.float32), 1, axis=0).view(_Counted)


def _time_quickest(call: Callable[[], Result]) -> tuple[Result, float]:
    """Call a function twice, and return the result and the seconds of the quicker call.

    Another program may have held the processor during one of them.
    """
    timed = []
    for _ in range(2):
        start = time.perf_counter()
        timed.append((call(), time.perf_counter() - start))
    return min(timed, key=lambda pair: pair[1])


def _judge_utilization(function: Callable[[], object], name: str, title: str) -> str:
    """Watch one core while a learner's function runs again and again, and draw it; NotYet if the work does not show."""
    watcher = monitor.ProcessShare(cpus=1)
    samples = _watch_patiently(watcher, function, 0.7, 1.0)
    draw_curves({title: samples}, "percent of one core")
    if not samples.judge_usage().used:
        raise checks.NotYet(f"{name}() ran again and again; expected `Used`, came: {samples.judge_usage().sentence}")
    return "Used"


@contextlib.contextmanager
def _watch_call(function: Callable[..., object], wanted: str) -> Generator[str]:
    """Yield the name of a learner's function and drop what it prints; NotYet if it raises an error or never ends."""
    if not callable(function):
        raise checks.NotYet(f"expected a function, came {function!r}; hand over `{wanted}`, not `{wanted}()`.")
    name, timer = getattr(function, "__name__", wanted), threading.Timer(PATIENCE, _thread.interrupt_main)
    timer.start()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield name
    except KeyboardInterrupt:
        if timer.is_alive():  # the learner stopped it
            raise
        raise checks.NotYet(f"{name}() was still running after {PATIENCE:g} s; expected its end.") from None
    except (checks.NotDone, checks.NotYet):
        raise
    except Exception as error:
        raise checks.NotYet(f"{name}() stopped with {type(error).__name__}: {error}") from None
    finally:
        timer.cancel()


def find_libraries(function: types.FunctionType) -> set[str]:
    """Return which of LIBRARIES a function uses: by name, by a value that a cell made with one, or in a helper."""
    homes: set[object] = set()
    waiting, seen = [function], set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        names = _collect_names(function.__code__)
        homes |= names  # also what the function imports itself
        for value in _collect_values(function, names):
            homes |= {getattr(value, "__name__", ""), getattr(value, "__module__", ""), type(value).__module__}
            if isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
                waiting.append(value)
    return LIBRARIES & {str(home).partition(".")[0] for home in homes}


def _collect_values(function: types.FunctionType, names: set[str]) -> list[object]:
    """Return the values that a function reaches: of its cell by name, its defaults, and what it closes over."""
    values: list[object] = [function.__globals__[name] for name in names & function.__globals__.keys()]
    values += function.__defaults__ or ()
    values += (function.__kwdefaults__ or {}).values()
    values += [cell.cell_contents for cell in function.__closure__ or ()]
    return values


def _collect_names(code: types.CodeType) -> set[str]:
    """Return the names that a function's code reads, with those of the functions and comprehensions in it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _collect_names(constant)
    return names


# ------------------------------------------------------------------------------------- watching, and its figures


def watch(
    watcher: Monitor, works: Mapping[str, Callable[[], object]], rest: float = 0.8, busy: float = 1.2
) -> dict[str, Samples]:
    """Watch a device at rest, then while a function runs again and again, then at rest again, for each function.

    Args:
        watcher: what `monitor.find` returned; its tool's lag is added to all times.
        works: functions by name; each waits until the device is done.
        rest: seconds of rest before the work, and again after it.
        busy: seconds of work.

    Returns:
        For each name what the monitor saw; the samples after the work have the phase AFTER.
    """
    return {name: _watch_patiently(watcher, work, rest, busy) for name, work in works.items()}


def watch_rates(watcher: Monitor, works: Mapping[str, Callable[[], object]], unit: str) -> dict[str, Samples]:
    """Watch each function as `watch` does; return the samples by its name and how often it ran in each second.

    Args:
        watcher: what `monitor.find` returned.
        works: functions by name.
        unit: what one call of each computes, such as "products".
    """
    watched = {}
    for name, work in works.items():
        seconds: list[float] = []

        def timed(work: Callable[[], object] = work, seconds: list[float] = seconds) -> None:
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)

        samples = _watch_one(watcher, timed, 0.7, 1.0)
        watched[f"{name}: {len(seconds) / sum(seconds):,.0f} {unit} a second"] = samples
    return watched


def _watch_patiently(watcher: Monitor, work: Callable[[], object], rest: float, busy: float) -> Samples:
    """Watch once, and again for longer if there was some work but not enough: other programs may have hidden it."""
    samples = _watch_one(watcher, work, rest, busy)
    if not samples.judge_usage().used and np.median(samples.settled("utilization", "busy") or 0) > 1:
        samples = _watch_one(watcher, work, 2 * rest, 4 * busy)
    return samples


def _watch_one(watcher: Monitor, work: Callable[[], object], rest: float, busy: float) -> Samples:
    lag = watcher.lag
    samples = monitor.watch(watcher, work, idle_seconds=rest + lag, busy_seconds=busy + 2 * lag)
    afterwards = monitor.sample(watcher, rest + 2 * lag, interval=0.1)
    ended = samples.times[-1] if samples.times else 0.0
    return replace(
        samples,
        times=samples.times + tuple(ended + second for second in afterwards.times),
        phases=samples.phases + (AFTER,) * len(afterwards.times),
        utilization=samples.utilization + afterwards.utilization,
    )


def draw_curves(watched: Mapping[str, Samples], unit: str) -> None:
    """Draw what a monitor saw, one panel beside the other, on the same scale.

    Args:
        watched: for each panel's title what `watch` returned.
        unit: what the percentages refer to, such as "percent of one core".
    """
    looks = {"idle": (GREY, "o", "before"), "busy": (BLUE, "s", "while it runs"), AFTER: (GREY, "v", "afterwards")}
    highest = 100.0
    with figure(7.5, 2.9, ncols=len(watched), sharey=True, squeeze=False) as (drawn, _):
        panels = drawn.axes
        for axes, (title, samples) in zip(panels, watched.items(), strict=True):
            times, percent = np.array(samples.times), np.array(samples.utilization, float)  # nan: unknown
            for phase, (color, marker, label) in looks.items():
                now = np.array(samples.phases, str) == phase
                axes.plot(times[now], percent[now], color=color, marker=marker, ms=4, label=label)
            axes.axhline(samples.find_limit(), color=GREY, ls="--", lw=1, label="used: most of blue above this")
            highest = float(np.nanmax([highest, *percent]))
            known = np.isfinite(percent).any()
            axes.set(xlabel="time (s)", title=title if known else f"{title}: no monitor for this device")
        panels[0].set(ylabel=unit, ylim=(-5, 1.1 * highest))
        drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    words = " ".join(f"{title}: {samples.judge_usage().sentence}" for title, samples in watched.items())
    show(drawn, f"Utilization over time, {unit}: before, during and after the work. {words}")


# --------------------------------------------------------------------------------------------- work for any device


@contextlib.contextmanager
def start_other_program() -> Generator[Callable[[], None]]:
    """Start a program that computes on the CPU, and yield a function that lets it work for a tenth of a second."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OTHER_PROGRAM], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdin and program.stdout
        orders, answers = program.stdin, program.stdout

        def work() -> None:
            print(file=orders, flush=True)
            answers.readline()

        yield work


def make_work(device: Device) -> Callable[[], None]:
    """Return a function that fills `device` with work for about a tenth of a second, and waits until it is done."""
    with caught_stderr():  # TensorFlow's log
        run, rounds = _make_multiply_adds(device) if device.framework == "opencl" else _make_products(device), 1

        def work() -> None:
            run(rounds)

        work()  # compiles
        # A fast GPU needs thousands of times the rounds of a laptop's processor, a simulator one.
        while _time_quickest(work)[1] < SLICE / 2 and rounds < 10**8:
            rounds *= 2
    return work


def _make_multiply_adds(device: Device) -> Callable[[int], object]:
    """Return a function that runs an OpenCL kernel with the given number of multiply-adds per work-item, and waits."""
    import pyopencl as cl

    from helpers.devices import opencl

    platform, number = map(int, device.identifier.split(":"))
    built = opencl.Kernel(MULTIPLY_ADD, "multiply_add", cl.get_platforms()[platform].get_devices()[number])
    many = 4096 * built.device.max_compute_units
    x = cl.Buffer(built.context, cl.mem_flags.READ_WRITE, size=4 * many)
    cl.enqueue_fill_buffer(built.queue, x, np.zeros(1, np.float32), 0, 4 * many)
    return lambda rounds: built.kernel(built.queue, (many,), None, x, np.int32(rounds)).wait()


def _make_products(device: Device) -> Callable[[int], object]:
    """Return a function that multiplies a large matrix with itself as often as it is told to, and waits each time."""
    multiply = _make_product(device)

    def multiply_often(rounds: int) -> None:
        for _ in range(rounds):
            multiply()

    return multiply_often


def _make_product(device: Device) -> Callable[[], object]:
    """Return a function that multiplies a matrix with itself on a device, and waits until it is done."""
    # A software adapter of WebGPU would take 20 s for MATRIX.
    size = 256 if (device.framework, device.kind) == ("webgpu", "cpu") else MATRIX
    place, ones = device.identifier, np.ones((size, size), np.float32)
    if device.framework == "tensorflow":
        import tensorflow as tf

        with tf.device(place):
            tensor = tf.constant(ones)

        def multiply_by_tensorflow() -> None:
            with tf.device(place):
                tf.matmul(tensor, tensor)[0, 0].numpy()

        return multiply_by_tensorflow
    if device.framework == "jax":
        import jax

        kind, number = place.split(":")
        multiply, array = jax.jit(lambda m: m @ m), jax.device_put(ones, jax.devices(kind)[int(number)])
        return lambda: multiply(array).block_until_ready()
    if device.framework == "torch":
        import torch

        matrix = torch.tensor(ones, device=place)
        return lambda: (matrix @ matrix)[0, 0].item()
    if device.framework == "onnxruntime":
        session = products.open_onnx_session(place)
        return lambda: session.run(None, {"a": ones, "b": ones})
    from helpers.devices import webgpu

    opened = webgpu.request_device(webgpu.adapters()[int(place)])
    kernel = webgpu.Kernel(opened, webgpu.MATRIX_PRODUCT.read_text(encoding="utf-8"))
    matrices = [ones, ones, ones, np.full(4, size, np.uint32)]
    group = kernel.bind({number: webgpu.buffer(opened, matrix) for number, matrix in enumerate(matrices)})
    groups = -(-size // 32)

    def multiply_by_webgpu() -> None:
        kernel.submit(group, (groups, groups))
        webgpu.wait(opened)

    return multiply_by_webgpu
