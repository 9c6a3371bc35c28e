"""Lesson 11's benchmark; a result is a suite of pyperf's."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers import ROOT, devices
from helpers.devices.host import Host, command, cpu_name, usable_cpus
from helpers.errors import WorkshopError
from helpers.measure import timing, workload
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement
from helpers.running import processes, workarounds
from helpers.training import backends

if TYPE_CHECKING:
    import pyperf

KEPT = ROOT / "build" / "lesson-11.json"  # the latest result of this machine
FRAMEWORKS = {"opencl": "OpenCL"} | backends.BACKENDS
PATIENCE = 240  # seconds until a process that does not end is killed, beside ten times its share
SIZE, COPIED, BATCH = 1024, 2**24, 128  # rows of a matrix, floats, images: the same on every machine
# For each task its unit, and the amount of one run in that unit.
TASKS = {
    "copy": ("GB/s", 8e-9 * COPIED),
    "product": ("GFLOP/s", 2e-9 * SIZE**3),
    "CNN training": ("images/s", BATCH),
    "CNN inference": ("images/s", BATCH),
}
# The speeds of the machine whose score is 100, recorded on 22 November 2026: an AMD EPYC (Zen 5) with 2 cores, of which
# others used 0.2 %, under `lab`. The fastest were OpenCL (PoCL 3.1), JAX, TensorFlow and TensorFlow.
REFERENCE = {"copy": 46.79, "product": 428.7, "CNN training": 2798, "CNN inference": 12690}
OPENCL = """
__kernel void copy(__global const float *from, __global float *to) {
    to[get_global_id(0)] = from[get_global_id(0)];
}
// Each work-item computes 8 x 8 numbers of C = A B; n is a multiple of 8.
__kernel void product(__global const float *a, __global const float8 *b, __global float8 *c, const int n) {
    int column = get_global_id(0), row = 8 * get_global_id(1);
    float8 sums[8] = {0};
    for (int k = 0; k < n; k++) {
        float8 right = b[k * (n / 8) + column];
        #pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] += a[(row + i) * n + k] * right;
    }
    for (int i = 0; i < 8; i++)
        c[(row + i) * (n / 8) + column] = sums[i];
}
"""


class Work(NamedTuple):
    """One task on one device."""

    start: Callable[[], object]  # does it, or hands it to the device; returns what `timing.synchronise` waits for
    is_right: Callable[[Any], bool]  # takes what the last start returned


def measure(frameworks: Sequence[str] | None = None) -> pyperf.BenchmarkSuite:
    """Time every task with each installed framework, on the device that it takes by itself.

    Each framework runs in a process of its own, where its tasks take turns; under `lab` all of this three times.

    Args:
        frameworks: some of FRAMEWORKS; None for all, under `preview` with a single one of Keras' backends, because to
            start one takes longer than its tasks.

    Returns:
        One of pyperf's benchmarks for each task and framework, with a run for each process.

    Raises:
        WorkshopError: nothing could be measured.
    """
    import pyperf

    if frameworks is None:
        own = os.environ.get(backends.VARIABLE)
        with_keras = sorted(filter(devices.installed, backends.BACKENDS), key=lambda name: name != own)
        frameworks = ["opencl", *with_keras[: workload.pick(preview=1, lab=3, full=3)]]
    installed = [name for name in frameworks if devices.installed("pyopencl" if name == "opencl" else name)]
    passes, seconds = workload.pick(preview=(1, 2.0), lab=(3, 5.0), full=(5, 20.0))
    workarounds.ask_for_large_pages()
    workarounds.keep_pocl_on_its_cores()
    found: dict[str, pyperf.Benchmark] = {}
    with timing.Load() as load:
        for number in range(passes):
            print(f"pass {number + 1} of {passes}: {', '.join(FRAMEWORKS[name] for name in installed)}")
            for name in installed:
                given, variables = {"framework": name, "seconds": seconds}, {backends.VARIABLE: name}
                done = processes.run(_time_here, 1, PATIENCE + 10 * seconds, variables, check=False, arguments=given)
                for line in filter(None, done.failures):
                    print(f"{FRAMEWORKS[name]}: {line.splitlines()[-1]}")
                for task, device, values in done.result or ():
                    title = f"{task}, {FRAMEWORKS[name]}"
                    about = {"name": title, "task": task, "framework": name, "device": device, "unit": "second"}
                    run = pyperf.Run(values, metadata=about, collect_metadata=False)  # it would collect our name
                    if title in found:
                        found[title].add_run(run)
                    else:
                        found[title] = pyperf.Benchmark([run])
    if not found:
        raise WorkshopError("Nothing could be measured.", "The lines above say why.", command(Host.here(), "doctor"))
    shared = {
        "machine": f"{cpu_name()}, {usable_cpus():g} cores",
        "others": round(load.others, 4),
        "profile": workload.current(),
        "measured": time.strftime("%Y-%m-%d"),
    }
    for benchmark in found.values():
        benchmark.update_metadata(shared)
    return pyperf.BenchmarkSuite(list(found.values()))


def _time_here(framework: str, seconds: float) -> list[tuple[str, str, list[float]]]:
    """Time a framework in this process; the function's source travels, so it imports what it uses."""
    from helpers.lessons import lesson_11_bench

    return lesson_11_bench.time_tasks(framework, seconds)


def time_tasks(framework: str, seconds: float) -> list[tuple[str, str, list[float]]]:
    """Return for each task, the device, and the seconds of its runs, which took turns.

    Raises:
        WorkshopError: a result is wrong. All are checked after the clock, on numbers that no other process has seen.
    """
    device, works = on_opencl() if framework == "opencl" else _on_keras()
    last: dict[str, object] = {}

    def start(task: str) -> object:
        last[task] = works[task].start()
        return last[task]

    ways = {task: functools.partial(start, task) for task in works}
    measurements = timing.measure_interleaved(ways, device, repeats=15, warmup=3, seconds=seconds)
    if wrong := [task for task, work in works.items() if not work.is_right(last[task])]:
        raise WorkshopError(f"{device} computes {', '.join(wrong)} wrong, so these times do not count.")
    return [(task, device, list(measurements[task].seconds)) for task in works]


def _matrices(size: int = SIZE) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], bool]]:
    """Return two matrices to multiply, and what says whether some numbers are their product."""
    a, b = np.random.default_rng().uniform(-1, 1, (2, size, size)).astype(np.float32)

    def is_product(actual: np.ndarray) -> bool:
        expected = a[::32] @ b  # a GPU may round the factors to ten bits (TF32)
        return np.allclose(actual[::32], expected, rtol=0, atol=0.01 * np.abs(expected).max())

    return a, b, is_product


def on_opencl(size: int = SIZE) -> tuple[str, dict[str, Work]]:
    """Return the OpenCL device that the lessons take, and two works by the kernels above.

    Args:
        size: rows and columns of the matrices, a multiple of 8.
    """
    import pyopencl as cl

    from helpers.devices import opencl

    a, b, is_product = _matrices(size)
    source = np.random.default_rng().random(COPIED, dtype=np.float32)
    device = opencl.pick_device()
    context = cl.Context([device])
    queue, program = cl.CommandQueue(context), opencl.build(context, OPENCL)
    copy, multiply = cl.Kernel(program, "copy"), cl.Kernel(program, "product")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=array) for array in (source, 0 * source, a, b, 0 * a)]

    def download(buffer: cl.Buffer, like: np.ndarray) -> np.ndarray:
        result = np.empty_like(like)
        cl.enqueue_copy(queue, result, buffer)
        return result

    return opencl.name(device), {
        "copy": Work(lambda: copy(queue, (COPIED,), None, *buffers[:2]),
                     lambda _: np.array_equal(download(buffers[1], source), source)),
        "product": Work(lambda: multiply(queue, (size // 8, size // 8), None, *buffers[2:], np.int32(size)),
                        lambda _: is_product(download(buffers[4], a))),
    }  # fmt: skip


def _on_keras() -> tuple[str, dict[str, Work]]:
    """The backend that KERAS_BACKEND names: a product, and article C's network."""
    from helpers import training
    from helpers.training import models

    device = training.start()
    import keras

    a, b, is_product = _matrices()
    rng = np.random.default_rng()
    images, labels = rng.integers(0, 256, (BATCH, 28, 28, 1), dtype=np.uint8), rng.integers(0, 2, BATCH)
    left, right, network = keras.ops.convert_to_tensor(a), keras.ops.convert_to_tensor(b), models.cnn()

    trained, losses = models.cnn(), []
    trained.compile(keras.optimizers.Adadelta(1.0), "sparse_categorical_crossentropy")

    def step() -> None:
        losses.append(float(trained.train_on_batch(images, labels)))

    def has_learned(_: object) -> bool:
        # Of ten digits only two occur, so the loss soon falls from ln 10 to ln 2, whatever the images are.
        # Keras gives the mean of all steps unless it is told to begin anew.
        for _ in range(60):
            trained.reset_metrics()
            step()
            if losses[-1] < 0.6 * losses[0]:
                return True
        return False

    def are_answers(actual: np.ndarray) -> bool:
        expected = cnn_answers(network.get_weights(), images[:4])  # a few: NumPy's convolution is slow
        return np.allclose(actual[:4], expected, atol=0.01)

    return device, {
        "product": Work(lambda: keras.ops.matmul(left, right), lambda c: is_product(keras.ops.convert_to_numpy(c))),
        "CNN training": Work(step, has_learned),
        "CNN inference": Work(lambda: network.predict_on_batch(images), are_answers),
    }


def cnn_answers(weights: Sequence[np.ndarray], images: np.ndarray) -> np.ndarray:
    """Return the ten probabilities of article C's network for each image, computed by NumPy alone."""
    x, layers = images / 255, list(zip(weights[::2], weights[1::2], strict=True))
    for kernel, bias in layers[:2]:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))  # n, y, x, channel, 3, 3
        x = np.maximum(np.einsum("nyxcij,ijco->nyxo", windows, kernel, optimize=True) + bias, 0)
    x = x.reshape(len(x), 12, 2, 12, 2, 64).max((2, 4)).reshape(len(x), -1)
    x = np.maximum(x @ layers[2][0] + layers[2][1], 0) @ layers[3][0] + layers[3][1]
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


# --------------------------------------------------------------------------------------------------- what it measured


class Row(NamedTuple):
    """A task as a framework does it: what pyperf holds, and its speed."""

    task: str
    measured: Measurement

    @property
    def speed(self) -> float:
        """The speed of the median run, in the task's unit."""
        return TASKS[self.task][1] / self.measured.median

    def __str__(self) -> str:
        low, high = (TASKS[self.task][1] / seconds for seconds in reversed(self.measured.quartiles))
        return f"{_digits(self.speed)} {TASKS[self.task][0]} (middle half {_digits(low)} to {_digits(high)})"


def _digits(number: float) -> str:
    """Return three digits of a number, without an exponent."""
    return f"{float(f'{number:.3g}'):,.0f}" if number >= 1000 else f"{number:.3g}"


def rows(suite: pyperf.BenchmarkSuite) -> list[Row]:
    """Return every task with every framework of a suite."""
    every = [(row.get_metadata(), row.get_values()) for row in suite]
    return [Row(about["task"], Measurement(about["name"], about["device"], seconds)) for about, seconds in every]


def best(suite: pyperf.BenchmarkSuite) -> dict[str, Row]:
    """Return for each measured task, in the order of TASKS, the row with the highest speed."""
    by_speed = sorted(rows(suite), key=lambda row: row.speed)
    fastest = {row.task: row for row in by_speed}  # the last one of a task stays
    return {task: fastest[task] for task in TASKS if task in fastest}


def ratios(suite: pyperf.BenchmarkSuite) -> dict[str, float]:
    """Return for each measured task the best speed over the reference machine's."""
    return {task: row.speed / REFERENCE[task] for task, row in best(suite).items()}


def table(suite: pyperf.BenchmarkSuite) -> Table:
    """Return the fastest way of each task beside the reference machine's speed, and how busy others were."""
    times = ratios(suite)
    lines = [(task, row.measured.device, str(row), f"{times[task]:.2f}") for task, row in best(suite).items()]
    others = f"Others used {suite.get_metadata()['others']:.1%} of the cores."
    return Table(lines, ("task", "fastest on", "median speed", "times the reference"), [others])


def compare_with_earlier(suite: pyperf.BenchmarkSuite, file: Path = KEPT) -> Table | None:
    """Return what may be claimed of each task against this machine's earlier result, and keep the new one in its place.

    Args:
        suite: the new result.
        file: where results are kept, in pyperf's format.

    Returns:
        A row for each task that both have; None, with a printed sentence, where there is no earlier result.
    """
    import pyperf

    try:
        earlier = pyperf.BenchmarkSuite.load(str(file))
    except (OSError, ValueError, KeyError):  # none yet, or half of one
        earlier = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        suite.dump(str(file), compact=False, replace=True)
        kept = f"This one is kept in {file.parent.name}/{file.name}."
    except OSError as error:
        kept = f"This one cannot be kept here ({error.strerror})."
    if earlier is None:
        print(f"There is no earlier result of this machine. {kept}")
        return None
    before, now, lines = best(earlier), best(suite), []
    for task in now.keys() & before.keys():
        decided = timing.decide(before[task].measured.seconds, now[task].measured.seconds)
        lines.append((task, str(before[task]), str(now[task]), decided))
    lines.sort(key=lambda line: list(TASKS).index(line[0]))
    measured = f"Earlier: {earlier.get_metadata()['measured']}, profile {earlier.get_metadata()['profile']}."
    return Table(lines, ("task", "earlier", "now", "now it is"), [measured, kept])
