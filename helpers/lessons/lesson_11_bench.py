"""Lesson 11's benchmark; a result is a suite of pyperf's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers import ROOT, devices
from helpers.devices.host import Host, command, cpu_name, usable_cpus
from helpers.errors import WorkshopError
from helpers.measure import records, timing, workload
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement
from helpers.running import processes, workarounds
from helpers.training import backends

if TYPE_CHECKING:
    import pyperf

KEPT = ROOT / "build" / "lesson-11.json"  # the latest result of this machine
FRAMEWORKS = {"opencl": "OpenCL"} | backends.BACKENDS
PATIENCE = 300  # seconds until a process that does not end is killed; its work is a fixed number of runs
WARMUP, SCOUT = 2, 5  # runs that do not count, and runs of the first pass, which finds each task's fastest framework
QUIET = 0.05  # a machine is quiet if others use at most this share of its cores
SIZE, COPIED, BATCH = 1024, 2**24, 128  # rows of a matrix, floats, images: the same on every machine
# How far a product may be off, as a share of its largest number. If the factors are cut to 10 bits (TF32), it is off by
# at most 0.0009, and if they are rounded to 7 bits (bfloat16), by at least 0.0017 (60 simulated products each).
PRODUCT_TOLERANCE = 0.001
# How far a probability may be off. TF32 costs 0.0001, and the answers for two images differ by 0.006 (simulated).
ANSWER_TOLERANCE = 0.001
# For each task its unit, and the amount of one run in that unit.
TASKS = {
    "copy": ("GB/s", 8e-9 * COPIED),
    "product": ("GFLOP/s", 2e-9 * SIZE**3),
    "CNN training": ("images/s", BATCH),
    "CNN inference": ("images/s", BATCH),
}
# The speeds of the machine whose score is 1, recorded on 22 November 2026: an AMD EPYC (Zen 5) with 2 cores, of which
# others used 0.2 %, under `lab`. The fastest were OpenCL (PoCL 3.1), JAX, TensorFlow and TensorFlow.
MEAN = "geometric mean"  # of the four tasks' ratios
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

    renew: Callable[[], object]  # puts new numbers on the device, before the clock starts
    start: Callable[[], object]  # does it, or hands it to the device; returns what `timing.synchronize` waits for
    is_right: Callable[[Any], bool]  # takes what the last start returned


def measure(frameworks: Sequence[str] | None = None) -> pyperf.BenchmarkSuite:
    """Time every task with each installed framework, on the device that it takes by itself, and keep the result.

    Each framework runs in a process of its own, where its tasks take turns. The fastest of several owes something to
    luck, so `lab` and `full` measure the fastest framework of each task again, and the second measurement counts.

    Args:
        frameworks: some of FRAMEWORKS; None for all, under `preview` with a single one of Keras' backends, because to
            start one takes longer than its tasks.

    Returns:
        One of pyperf's benchmarks for each task, of its fastest framework.

    Raises:
        WorkshopError: nothing could be measured.
    """
    import pyperf

    if frameworks is None:
        own = os.environ.get(backends.VARIABLE)
        with_keras = sorted(filter(devices.is_installed, backends.BACKENDS), key=lambda name: name != own)
        frameworks = ["opencl", *with_keras[: workload.pick(preview=1, lab=3, full=3)]]
    installed = [name for name in frameworks if devices.is_installed("pyopencl" if name == "opencl" else name)]
    workarounds.ask_for_large_pages()
    workarounds.keep_pocl_on_its_cores()
    with timing.Load() as load:
        found = _time_frameworks(installed, SCOUT)
        if not found:
            raise WorkshopError(
                "Nothing could be measured.", "The lines above say why.", command(Host.here(), "doctor")
            )
        fastest = [row.measured.label for row in best(pyperf.BenchmarkSuite(list(found.values()))).values()]
        if repeats := workload.pick(preview=0, lab=timing.ENOUGH, full=3 * timing.ENOUGH):
            winners = dict.fromkeys(found[title].get_metadata()["framework"] for title in fastest)
            found |= _time_frameworks(list(winners), repeats)
    shared = {
        "machine": f"{cpu_name()}, {usable_cpus():g} cores",
        "others": round(load.others, 4),
        "profile": workload.current(),
        "measured": time.strftime("%Y-%m-%d"),
    }
    for title in fastest:
        found[title].update_metadata(shared)
    suite = pyperf.BenchmarkSuite([found[title] for title in fastest])
    try:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        suite.dump(str(KEPT), compact=False, replace=True)
    except OSError as error:
        print(f"This result cannot be kept in {KEPT.name} ({error.strerror}).")
    return suite


def _time_frameworks(names: Sequence[str], repeats: int) -> dict[str, pyperf.Benchmark]:
    """Return a benchmark for each task of each framework, by its title; a framework that fails prints why."""
    import pyperf

    print(f"{repeats} runs each: {', '.join(FRAMEWORKS[name] for name in names)}")
    found = {}
    for name in names:
        given, variables = {"framework": name, "repeats": repeats}, {backends.VARIABLE: name}
        timed = "helpers.lessons.lesson_11_bench:time_tasks"
        done = processes.run(timed, 1, PATIENCE, variables, check=False, arguments=given)
        for line in filter(None, done.failures):
            print(f"{FRAMEWORKS[name]}: {line.splitlines()[-1]}")
        for task, device, values in done.result or ():
            title = f"{task}, {FRAMEWORKS[name]}"
            about = {"name": title, "task": task, "framework": name, "device": device, "unit": "second"}
            run = pyperf.Run(values, metadata=about, collect_metadata=False)  # it would collect our name
            found[title] = pyperf.Benchmark([run])
    return found


def time_tasks(framework: str, repeats: int) -> list[tuple[str, str, list[float]]]:
    """Return for each task, the device, and the seconds of its runs, which took turns.

    Every run gets new numbers before its clock starts, and its result is checked after its clock has stopped.

    Raises:
        WorkshopError: a result is wrong.
    """
    device, works = on_opencl() if framework == "opencl" else _on_keras()
    seconds: dict[str, list[float]] = {task: [] for task in works}
    for _ in range(WARMUP + repeats):
        for task, work in works.items():
            work.renew()
            begin = time.perf_counter()
            result = work.start()
            timing.synchronize(result)
            seconds[task].append(time.perf_counter() - begin)
            if not work.is_right(result):
                raise WorkshopError(f"{device} computes {task} wrong, so its times do not count.")
    return [(task, device, runs[WARMUP:]) for task, runs in seconds.items()]


class Product:
    """Two matrices to multiply, float32 of shape (size, size), and a check of their product."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.renew()

    def renew(self) -> None:
        """Draw both matrices anew."""
        self.a, self.b = np.random.default_rng().uniform(-1, 1, (2, self.size, self.size)).astype(np.float32)

    def is_right(self, actual: np.ndarray) -> bool:
        """Return whether every 32nd row of an array, from a random one on, is the product's."""
        rows = slice(int(np.random.default_rng().integers(32)), None, 32)
        expected = self.a[rows] @ self.b
        return np.allclose(actual[rows], expected, rtol=0, atol=PRODUCT_TOLERANCE * np.abs(expected).max())


def on_opencl(size: int = SIZE) -> tuple[str, dict[str, Work]]:
    """Return the OpenCL device that the lessons take, and two works by the kernels above.

    Args:
        size: rows and columns of the matrices, a multiple of 8.
    """
    import pyopencl as cl

    from helpers.devices import opencl

    product, pattern = Product(size), np.random.default_rng().random(COPIED, dtype=np.float32)
    source = pattern.copy()
    device = opencl.pick_device()
    context = cl.Context([device])
    queue, program = cl.CommandQueue(context), opencl.build(context, OPENCL)
    copy, multiply = cl.Kernel(program, "copy"), cl.Kernel(program, "product")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    arrays = (source, 0 * source, product.a, product.b, 0 * product.a)
    buffers = [cl.Buffer(context, flags, hostbuf=array) for array in arrays]

    def download(buffer: cl.Buffer, like: np.ndarray) -> np.ndarray:
        result = np.empty_like(like)
        cl.enqueue_copy(queue, result, buffer)
        return result

    def renew_source() -> None:
        np.multiply(pattern, np.float32(np.random.default_rng().uniform(1, 2)), out=source)
        cl.enqueue_copy(queue, buffers[0], source)

    def renew_product() -> None:
        product.renew()
        cl.enqueue_copy(queue, buffers[2], product.a)
        cl.enqueue_copy(queue, buffers[3], product.b)

    return opencl.name(device), {
        "copy": Work(
            renew_source,
            lambda: copy(queue, (COPIED,), None, *buffers[:2]),
            lambda _: np.array_equal(download(buffers[1], source), source),
        ),
        "product": Work(
            renew_product,
            lambda: multiply(queue, (size // 8, size // 8), None, *buffers[2:], np.int32(size)),
            lambda _: product.is_right(download(buffers[4], product.a)),
        ),
    }


def _on_keras() -> tuple[str, dict[str, Work]]:
    """The backend that KERAS_BACKEND names: a product, and article C's network."""
    from helpers import training
    from helpers.training import models

    device = training.start()
    import keras

    rng, product = np.random.default_rng(), Product()
    images, labels = np.empty((BATCH, 28, 28, 1), np.uint8), np.empty(BATCH, np.int64)
    factors, before, network, trained = [], [], models.build_cnn(), models.build_cnn()
    trained.compile(keras.optimizers.Adadelta(1.0), "sparse_categorical_crossentropy")

    def renew_product() -> None:
        product.renew()
        factors[:] = [keras.ops.convert_to_tensor(product.a), keras.ops.convert_to_tensor(product.b)]
        timing.synchronize(factors)

    def renew_batch() -> None:
        images[:], labels[:] = rng.integers(0, 256, images.shape), rng.integers(0, 10, BATCH)

    def renew_training() -> None:
        renew_batch()
        before[:] = trained.get_weights()

    def has_trained(loss: float) -> bool:
        # Dropout draws numbers of its own, so nobody else can compute this loss or these weights.
        changed = [np.any(new != old) for new, old in zip(trained.get_weights(), before, strict=True)]
        return bool(np.isfinite(loss) and all(changed))

    def are_answers(actual: np.ndarray) -> bool:
        few = rng.choice(BATCH, 4, replace=False)  # NumPy's convolution is slow
        expected = cnn_answers(network.get_weights(), images[few])
        return np.allclose(actual[few], expected, rtol=0, atol=ANSWER_TOLERANCE)

    return device, {
        "product": Work(
            renew_product,
            lambda: keras.ops.matmul(*factors),
            lambda c: product.is_right(keras.ops.convert_to_numpy(c)),
        ),
        "CNN training": Work(renew_training, lambda: float(trained.train_on_batch(images, labels)), has_trained),
        "CNN inference": Work(renew_batch, lambda: network.predict_on_batch(images), are_answers),
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
    """Return each task's fastest way beside the speeds of the reference and a recorded GPU; note the speeds."""
    times, others = ratios(suite), suite.get_metadata()["others"]
    lines = []
    for task, row in best(suite).items():
        records.add_run(row.measured, TASKS[task][0], TASKS[task][1], label=task)
        reference = f"{_digits(REFERENCE[task])} {TASKS[task][0]}"
        lines.append((task, row.measured.device, str(row), f"{times[task]:.2f}", reference))
    mean = float(np.prod(list(times.values())) ** (1 / len(times)))
    lines.append((MEAN, "", "", f"{mean:.2f}", "1"))
    quiet = others <= QUIET
    verdict = "" if quiet else ": the machine was not quiet, so claim no speed. Without the others, it may be faster"
    below = [f"Others used {others:.1%} of the cores{verdict}."]
    if len(times) == len(TASKS):
        records.add_note(records.Note(MEAN, mean, "times"))
        below.append(rank(mean, quiet))
    else:
        below.append(f"Only {len(times)} of {len(TASKS)} tasks: compare this mean with none over all of them.")
    headers = ("task", "fastest on", "median speed", "times the reference", "reference")
    return records.add_column(Table(lines, headers, below), "11")


def rank(mean: float, quiet: bool) -> str:
    """Return the place of a machine among the reference and the recorded GPUs, as a sentence.

    Args:
        mean: its geometric mean over all tasks.
        quiet: whether it was; otherwise its place may be better.
    """
    means = {"the reference": 1.0, "yours": mean}
    for record in records.read_all():
        if note := record.notes.get(("11", MEAN)):
            means[records.find_hardware(record.machine.device)] = note.value
    order = sorted(means, key=means.__getitem__, reverse=True)
    place = f"place {order.index('yours') + 1} of {len(order)}{'' if quiet else ' or better'}"
    return f"Yours has {place}: {', '.join(f'{name} {means[name]:.3g}' for name in order)}."
