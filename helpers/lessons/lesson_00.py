"""Lesson 00, Check your setup: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import _thread
import contextlib
import functools
import io
import numbers
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from helpers import devices
from helpers.devices import Device, monitor, products
from helpers.devices.monitor import Monitor, Samples
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, figure, show
from helpers.running.quiet import caught_stderr

AFTER = "after"  # the third phase of a watching: idle again
SHORTEST, LONGEST = 0.02, 0.75  # seconds: what "about a tenth of a second" is, on a busy machine too
PATIENCE = 15.0  # seconds after which a function is taken for endless
SIZE = 64  # rows and columns of the matrix that a learner's load multiplies: too few for a second core
# Seconds and sizes to try: a number of products that fits the first by luck does not fit the second.
TRIED = ((0.1, SIZE), (0.4, 96))
MIN_PRODUCTS = 10  # products; an honest load computes thousands in a tenth of a second
# What a learner's `fool` must do without.
LIBRARIES = {
    "numpy",
    "scipy",
    "jaxlib",
    "keras",
    "helpers",
    *(framework.module for framework in devices.FRAMEWORKS.values()),
}
MATRIX = 1536  # the same of the work for a device: 9 MiB, and 3.6 billion multiply-adds for a product
SLICE = 0.1  # seconds that one slice of work should take, so that a load can end in time
# Multiply and add in registers: no memory traffic, all arithmetic.
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
    """Lesson 00, exercise 1: products of a matrix until the time is up, counted, and seen in the monitor."""

    def count_products(matrix: np.ndarray, seconds: float) -> tuple[object, int]:
        before = _Counted.products
        return load(matrix, seconds), _Counted.products - before

    with _watch_call(load, "load") as name:
        earlier = 0
        for seconds, size in TRIED:
            matrix = np.eye(size, dtype=np.float32).view(_Counted)  # its powers never overflow
            (returned, products), took = _quickest(functools.partial(count_products, matrix, seconds))
            call = f"{name}(matrix, {seconds})"
            if returned is ...:
                raise checks.NotDone(f"{call} is as it was handed out.")
            if products < MIN_PRODUCTS:
                raise checks.NotYet(f"{call} computed {products} products with `matrix`; expected many.")
            if not isinstance(returned, numbers.Real) or returned != products:
                raise checks.NotYet(f"{call} computed {products} products and returned {checks.short(returned)}.")
            if products == earlier:
                raise checks.NotYet(f"{call} computed {products:,} products, as in {TRIED[0][0]} s; expected others.")
            if not 0.9 * seconds <= took <= seconds + LONGEST:
                raise checks.NotYet(f"{call} lasted {took:.3g} s; expected about {seconds} s.")
            earlier = products
        title = f"{name}(): {products / took:,.0f} products a second"
        matrix = np.eye(SIZE, dtype=np.float32).view(_Counted)
        verdict = _judge_utilisation(functools.partial(load, matrix, 0.1), name, title)
    yield f"{products:,} products in {took:.1f} s: {verdict}"


@checks.print_verdict
def check_fool(fool: Callable[[], object]) -> Iterator[str]:
    """Lesson 00, exercise 2: without NumPy and frameworks, and the monitor shows work all the same."""
    with _watch_call(fool, "fool") as name:
        if libraries := libraries_behind(fool):
            raise checks.NotYet(f"{name}() uses {', '.join(sorted(libraries))}; expected Python alone.")
        returned, took = _quickest(fool)
        if returned is ...:
            raise checks.NotDone(f"{name}() is as it was handed out.")
        if not SHORTEST <= took <= LONGEST:
            raise checks.NotYet(f"{name}() lasted {took:.3f} s; expected about a tenth of a second.")
        verdict = _judge_utilisation(fool, name, f"{name}(): plain Python")
    yield f"plain Python: {verdict}"


class _Counted(np.ndarray):
    """A matrix that counts the products in which it takes part, by `@` or by NumPy's functions."""

    products = 0
    dot = np.ndarray.__matmul__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: object, out: tuple = (), **more: object) -> object:
        _Counted.products += ufunc is np.matmul
        more |= {"out": tuple(np.asarray(array) for array in out)} if out else {}
        return np.asarray(getattr(ufunc, method)(*map(np.asarray, given), **more)).view(_Counted)

    def __array_function__(self, function: Callable, kinds: tuple, given: tuple, more: dict) -> object:
        if function not in (np.dot, np.einsum, np.inner, np.tensordot):  # the others are built of these, or of `@`
            return super().__array_function__(function, kinds, given, more)
        _Counted.products += 1
        more = {name: _uncount(value) for name, value in more.items()}
        return np.asarray(function(*map(_uncount, given), **more)).view(_Counted)


def _uncount(value: object) -> object:
    return np.asarray(value) if isinstance(value, _Counted) else value


def _quickest(call: Callable[[], object]) -> tuple[object, float]:
    """Call a function twice, since others may have taken the processor: what it returned, and its best time."""
    found = []
    for _ in range(2):
        start = time.perf_counter()
        found.append((call(), time.perf_counter() - start))
    return min(found, key=lambda pair: pair[1])


def _judge_utilisation(function: Callable[[], object], name: str, title: str) -> str:
    """Watch one core while a learner's function runs again and again, draw it, and refuse what does not show."""
    watcher = monitor.ProcessShare(cpus=1)
    samples = _watch_one(watcher, function, 0.7, 1.0)
    if not samples.judge_usage().used and np.median(samples.settled("utilisation", "busy") or 0) > 1:
        samples = _watch_one(watcher, function, 1.5, 4.0)  # a busy machine may hide its work
    curves({title: samples}, "percent of one core")
    if not samples.judge_usage().used:
        raise checks.NotYet(f"{name}() ran again and again; expected `Used`, came: {samples.judge_usage().sentence}")
    return "Used"


@contextlib.contextmanager
def _watch_call(function: Callable, wanted: str) -> Iterator[str]:
    """Yield the name of a learner's function; drop what it prints, and say what stopped it, or that it never ends."""
    if not callable(function):
        raise checks.NotYet(f"expected a function, came {function!r}; hand over `{wanted}`, not `{wanted}()`.")
    name, timer = getattr(function, "__name__", wanted), threading.Timer(PATIENCE, _thread.interrupt_main)
    timer.start()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield name
    except KeyboardInterrupt:
        if timer.is_alive():  # it was the learner who stopped it
            raise
        raise checks.NotYet(f"{name}() was still running after {PATIENCE:g} s; expected its end.") from None
    except (checks.NotDone, checks.NotYet):
        raise
    except Exception as error:
        raise checks.NotYet(f"{name}() stopped with {type(error).__name__}: {error}") from None
    finally:
        timer.cancel()


def libraries_behind(function: types.FunctionType) -> set[str]:
    """Return which of LIBRARIES a function uses: by their names, or by what the cells made with them."""
    names = _names(function.__code__)
    homes = set(names)  # also what it imports itself
    for value in (function.__globals__[name] for name in names if name in function.__globals__):
        homes |= {getattr(value, "__name__", ""), getattr(value, "__module__", ""), type(value).__module__}
    return LIBRARIES & {str(home).partition(".")[0] for home in homes}


def _names(code: types.CodeType) -> set[str]:
    """The names that a function's code reads, and those of the functions and comprehensions in it."""
    inside = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inside))


# ------------------------------------------------------------------------------------- watching, and its figures


def watch(
    watcher: Monitor, works: Mapping[str, Callable[[], object]], rest: float = 0.8, busy: float = 1.2
) -> dict[str, Samples]:
    """Watch a device that rests, then while a work runs again and again, then at rest again, for each of the works.

    Args:
        watcher: what `monitor.find` returned; its tool's lag is added.
        works: functions by name; each waits until the device is done.
        rest: seconds before, and as many after.
        busy: seconds of work.
    """
    return {name: _watch_one(watcher, work, rest, busy) for name, work in works.items()}


def _watch_one(watcher: Monitor, work: Callable[[], object], rest: float, busy: float) -> Samples:
    lag = watcher.lag
    samples = monitor.watch(watcher, work, idle_seconds=rest + lag, busy_seconds=busy + 2 * lag)
    afterwards = monitor.sample(watcher, rest + 2 * lag, interval=0.1)
    ended = samples.times[-1] if samples.times else 0.0
    return replace(
        samples,
        times=samples.times + tuple(ended + second for second in afterwards.times),
        phases=samples.phases + (AFTER,) * len(afterwards.times),
        utilisation=samples.utilisation + afterwards.utilisation,
    )


def curves(watched: Mapping[str, Samples], unit: str) -> None:
    """Draw what a monitor saw, one panel beside the other, on the same scale.

    Args:
        watched: for each panel's title what `watch` returned.
        unit: what the percentages are of.
    """
    looks = {"idle": (GREY, "o", "before"), "busy": (BLUE, "s", "while it runs"), AFTER: (GREY, "v", "afterwards")}
    highest = 100.0
    with figure(7.5, 2.9, ncols=len(watched), sharey=True, squeeze=False) as (drawn, panels):
        for axes, (title, samples) in zip(panels[0], watched.items(), strict=True):
            times, percent = np.array(samples.times), np.array(samples.utilisation, float)  # nan where it is unknown
            for phase, (colour, marker, label) in looks.items():
                now = np.array(samples.phases, str) == phase
                axes.plot(times[now], percent[now], color=colour, marker=marker, ms=4, label=label)
            highest = float(np.nanmax([highest, *percent]))
            known = np.isfinite(percent).any()
            axes.set(xlabel="time (s)", title=title if known else f"{title}: no monitor for this device")
        panels[0][0].set(ylabel=unit, ylim=(-5, 1.1 * highest))
        drawn.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    words = " ".join(f"{title}: {samples.judge_usage().sentence}" for title, samples in watched.items())
    show(drawn, f"Utilisation over time, {unit}: before, during and after the work. {words}")


# --------------------------------------------------------------------------------------------- work for any device


def keep_busy(device: Device) -> Callable[[], None]:
    """Return work that fills `device`: a call lasts about a tenth of a second, and waits until the work is done."""
    with caught_stderr():  # TensorFlow's log
        run, rounds = _multiply_adds(device) if device.framework == "opencl" else _products(device), 1

        def work() -> None:
            run(rounds)

        work()  # compiles
        # A fast GPU needs thousands of times the rounds of a laptop's processor, a simulator one.
        while _quickest(work)[1] < SLICE / 2 and rounds < 10**8:
            rounds *= 2
    return work


def _multiply_adds(device: Device) -> Callable[[int], object]:
    """Return a function that does so many multiply-adds with each of many numbers by an OpenCL kernel, and waits."""
    import pyopencl as cl

    from helpers.devices import opencl

    platform, number = map(int, device.identifier.split(":"))
    built = opencl.Kernel(MULTIPLY_ADD, "multiply_add", cl.get_platforms()[platform].get_devices()[number])
    many = 4096 * built.device.max_compute_units
    x = cl.Buffer(built.context, cl.mem_flags.READ_WRITE, size=4 * many)
    cl.enqueue_fill_buffer(built.queue, x, np.float32(0), 0, 4 * many)
    return lambda rounds: built.kernel(built.queue, (many,), None, x, np.int32(rounds)).wait()


def _products(device: Device) -> Callable[[int], object]:
    """Return a function that multiplies a large matrix so many times with itself, and waits."""
    once = _product(device)
    return lambda rounds: [once() for _ in range(rounds)]


def _product(device: Device) -> Callable[[], object]:
    """Return a function that multiplies a matrix with itself on a device, and waits until it is done."""
    # A software adapter of WebGPU would take 20 s for MATRIX.
    size = 256 if (device.framework, device.kind) == ("webgpu", "cpu") else MATRIX
    there, ones = device.identifier, np.ones((size, size), np.float32)
    if device.framework == "tensorflow":
        import tensorflow as tf

        def once() -> None:
            with tf.device(there):
                (matrix @ matrix)[0, 0].numpy()

        with tf.device(there):
            matrix = tf.constant(ones)
        return once
    if device.framework == "jax":
        import jax

        kind, number = there.split(":")
        multiply, matrix = jax.jit(lambda m: m @ m), jax.device_put(ones, jax.devices(kind)[int(number)])
        return lambda: multiply(matrix).block_until_ready()
    if device.framework == "torch":
        import torch

        matrix = torch.tensor(ones, device=there)
        return lambda: (matrix @ matrix)[0, 0].item()
    if device.framework == "onnxruntime":
        session = products.open_onnx_session(there)
        return lambda: session.run(None, {"a": ones, "b": ones})
    from helpers.devices import webgpu

    opened = webgpu.request_device(webgpu.adapters()[int(there)])
    kernel = webgpu.Kernel(opened, webgpu.MATRIX_PRODUCT.read_text(encoding="utf-8"))
    matrices = [ones] * 3 + [np.full(4, size, np.uint32)]
    group = kernel.bind({number: webgpu.buffer(opened, matrix) for number, matrix in enumerate(matrices)})

    groups = -(-size // 32)
    return lambda: (kernel.submit(group, (groups, groups)), webgpu.wait(opened))
