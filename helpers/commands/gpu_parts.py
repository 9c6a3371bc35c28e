"""What `record_gpu` measures, part by part: the lessons' code cells and helpers, without JupyterLab."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from helpers import variables
from helpers.commands import gpu_cells, machine
from helpers.devices.host import cpu_name, has_module
from helpers.measure import records, timing, workload
from helpers.measure.records import Note

if TYPE_CHECKING:
    import pyopencl as cl


def with_queue(record: Callable[[cl.CommandQueue], None]) -> Callable[[], None]:
    """Give a part a queue on the best OpenCL device, once the devices have computed right.

    The context lives as long as the part: Intel's driver loses it if only the queue refers to it.
    """

    @functools.wraps(record)
    def record_on_device() -> None:
        import pyopencl as cl

        from helpers.devices import opencl

        gpu_cells.prove_devices()
        context = cl.Context([opencl.pick_device()])
        record(cl.CommandQueue(context))

    return record_on_device


def find_machine() -> None:
    """Write what this machine is into the file for the notes."""
    if has_module("pyopencl"):
        gpu_cells.prove_devices()
    Path(os.environ[variables.RECORD]).write_text(json.dumps(asdict(machine.describe_machine())), encoding="utf-8")


@with_queue
def record_peak(queue: cl.CommandQueue) -> None:
    """Note the peak, with more and more work-items, and the bandwidth."""
    from helpers.devices import opencl
    from helpers.lessons import lesson_02

    is_gpu = opencl.kind(queue.device) == "gpu"
    lesson_02.measure_peak(queue)
    for items in (2**14, 2**17, 2**20) if is_gpu else ():
        lesson_02.measure_peak(queue, items)
    lesson_02.measure_bandwidth(queue, 2**28 if is_gpu else 2**25)


def record_product() -> None:
    """Note every step of lesson 02."""
    gpu_cells.prove_devices()
    gpu_cells.execute_cells("02")


@with_queue
def record_gpu_product(queue: cl.CommandQueue) -> None:
    """Note lesson 02b's product for a GPU in each shape, beside CLBlast and cuBLAS, for matrices of three sizes.

    A run computes a smaller product several times, since one is over soon after its launch. The fastest shape is
    measured again with the libraries: the best of several measurements is partly luck.
    """
    from helpers.devices import opencl
    from helpers.lessons import lesson_02, lesson_02b_gpu, lesson_02b_race

    small = workload.pick(preview=128, lab=256, full=512)
    for size in (4_096, 2_048, 1_024) if opencl.kind(queue.device) == "gpu" else (small,):
        bench = lesson_02.MatmulBenchmark(queue, size)
        products = min(16, (4_096 // size) ** 2)  # of a run
        sizes = f"{size:,} x {size:,}"
        amount = sizes if products == 1 else f"{sizes}, {products} products a run"
        shapes = {
            name: functools.partial(launch, *bench.buffers, size, size, size)
            for name, launch in lesson_02b_gpu.find_products(bench).items()
        }
        if not shapes:
            continue
        libraries = lesson_02b_race.find_libraries(bench)
        ways = {name: functools.partial(_repeat, way, products) for name, way in (shapes | libraries).items()}
        runs = timing.measure_interleaved(ways, bench.device, timing.ENOUGH, warmup=2, on=queue)
        fastest = min(shapes, key=lambda name: runs[name].median)
        ways = {name: way for name, way in ways.items() if name == fastest or name in libraries}
        runs |= timing.measure_interleaved(ways, bench.device, timing.ENOUGH, warmup=2, on=queue)
        for name, run in runs.items():
            records.add_run(run, "GFLOP/s", 2e-9 * size**3 * products, amount, f"{name}, {sizes}")
            print(run)
        for name in libraries:
            ratio = runs[name].median / runs[fastest].median
            label = f"the fastest shape beside {name}, {sizes}"
            records.add_note(Note(label, ratio, "times as fast", bench.device, amount, runs=timing.ENOUGH))
            print(f"{sizes}: {fastest} reaches {100 * ratio:.0f} % of the speed of {name}")


def _repeat(way: Callable[[], object], times: int) -> object:
    """Call a function several times and return what the last call returned."""
    for _ in range(times - 1):
        way()
    return way()


def record_fast_product() -> None:
    """Note every step of lesson 02b."""
    gpu_cells.prove_devices()
    gpu_cells.execute_cells("02b")


def record_counted_kernels() -> None:
    """Note the times of lesson 15's kernels: without libclang too, which only the counters need."""
    gpu_cells.prove_devices()
    gpu_cells.execute_cells("15")


@with_queue
def record_attention(queue: cl.CommandQueue) -> None:
    """Note the times of lesson 16's attention."""
    from helpers.lessons import lesson_16_clock

    n = workload.pick(preview=256, lab=1_024, full=4_096)
    lesson_16_clock.measure_ways(queue, lesson_16_clock.find_ways(queue, n), n)


@with_queue
def record_writing(queue: cl.CommandQueue) -> None:
    """Note the times of the last place in lesson 16b, for one digit and for many, with its cache and without it."""
    from helpers.lessons import lesson_16b, lesson_16b_clock
    from helpers.training import writer

    lesson_16b_clock.measure_last(queue, writer.load_writer()[1], lesson_16b.ATTEND_NEW, (1, 8, 64, 512))


def record_limits() -> None:
    """Note lesson 01b's curves, chains, bandwidths and dots below the roof."""
    gpu_cells.prove_devices()
    gpu_cells.execute_cells("01b")


@with_queue
def record_groups_and_copies(queue: cl.CommandQueue) -> None:
    """Note an addition with and without its guard, in work-groups of several sizes, and two kinds of copies."""
    import numpy as np
    import pyopencl as cl

    from helpers.devices import opencl

    device, context = queue.device, queue.context
    count = 2**26 if opencl.kind(device) == "gpu" else 2**22
    source = """
    __kernel void add(__global const float *x, __global const float *y, __global float *z, const int n) {
        int i = get_global_id(0);
        if (i < n) z[i] = x[i] + y[i];
    }
    __kernel void add_all(__global const float *x, __global const float *y, __global float *z, const int n) {
        int i = get_global_id(0);
        z[i] = x[i] + y[i];
    }
    """
    program = opencl.build(context, source)
    x = np.ones(count, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=x) for _ in range(3)]
    sizes = [size for size in (32, 64, 128, 256, 512, 1024) if size <= device.max_work_group_size]
    name, amount = opencl.name(device), f"{count:,} elements"

    def launch(kernel: str, group: tuple[int] | None) -> Callable[[], object]:
        made = cl.Kernel(program, kernel)
        return lambda: made(queue, (count,), group, *buffers, np.int32(count))

    ways = {f"addition, groups of {size}": launch("add", (size,)) for size in sizes}
    ways["addition, groups chosen by the driver"] = launch("add", None)
    ways["addition without a guard, groups of 64"] = launch("add_all", (64,))
    for run in timing.measure_interleaved(ways, name, timing.ENOUGH, warmup=2, on=queue).values():
        records.add_run(run, "GB/s", 12e-9 * count, amount)

    pinned_buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, x.nbytes)
    pinned, _ = cl.enqueue_map_buffer(queue, pinned_buffer, cl.map_flags.WRITE, 0, x.shape, x.dtype)
    pinned[:] = 1
    copies = {
        "copy there, pageable": lambda: cl.enqueue_copy(queue, buffers[0], x),
        "copy there, pinned": lambda: cl.enqueue_copy(queue, buffers[0], pinned),
        "copy back, pageable": lambda: cl.enqueue_copy(queue, x, buffers[0]),
        "copy back, pinned": lambda: cl.enqueue_copy(queue, pinned, buffers[0]),
    }
    for run in timing.measure_interleaved(copies, name, 9, warmup=1, on=queue).values():
        records.add_run(run, "GB/s", 4e-9 * count, amount)


def record_atomics() -> None:
    """Note the additions that lesson 12's three ways keep, the fewest of ten runs."""
    import numpy as np

    from helpers.devices import opencl
    from helpers.lessons import lesson_12

    gpu_cells.prove_devices()
    names = gpu_cells.execute_cells("12", only=("7e561c6f", "cdb57e8b"))
    count, device = names["count"], opencl.name(names["device"])
    for way, steps in names["ways"].items():
        source, given = names["add_up"].replace("STEPS", steps), [np.ones(count, np.int32), np.zeros(1, np.int32)]
        sums = [int(lesson_12.launch(source, count, 64, given)[0]) for _ in range(10)]
        amount = f"{count:,} additions, the smallest of ten sums"
        records.add_note(Note(f"kept by {way}", min(sums), "additions", device, amount, runs=10))


def record_webgpu() -> None:
    """Note lesson 14's addition and its sums without barriers."""
    import numpy as np

    from helpers.devices import webgpu
    from helpers.lessons import lesson_14, lesson_14_web

    adapter = webgpu.pick_adapter()
    assert adapter, "there is no adapter for WebGPU: NVIDIA's Vulkan needs libvulkan1 and libegl1"
    device, name = webgpu.request_device(adapter), webgpu.name(adapter)
    groups = 65_535  # the most in one dimension
    numbers = np.ones(64 * groups, np.float32)
    kernel = webgpu.Kernel(device, lesson_14_web.read_kernel("add"))
    bound = kernel.bind({number: webgpu.buffer(device, numbers) for number in range(3)})

    def add() -> None:
        kernel.submit(bound, groups)
        webgpu.wait(device)

    run = timing.measure(add, label="addition through WebGPU", device=name)
    records.add_run(run, "GB/s", 12e-9 * len(numbers), f"{len(numbers):,} elements", lesson="14")
    lesson_14.leave_out_barriers(device, prediction=None)


def record_providers() -> None:
    """Note the times of lesson 10's forms of a network, and of float32 by each of ONNX Runtime's providers here."""
    with mock.patch.object(gpu_cells.import_data(), "load_mnist", return_value=gpu_cells.find_images()):
        names = gpu_cells.execute_cells("10")
    for provider in names["here"]:
        session = names["ort"].InferenceSession(names["file"], providers=[provider])
        given = {session.get_inputs()[0].name: names["test"][:64]}
        device = cpu_name() if provider == "CPUExecutionProvider" else provider
        run = timing.measure(functools.partial(session.run, None, given), device=device, repeats=21)
        records.add_run(run, amount="64 images", label=f"float32 by {provider}, 64 images")
    for form, run in names.get("timed", {}).items():
        records.add_run(run, amount="64 images", label=f"{form}, 64 images")


def record_steps() -> None:
    """Note a step of lesson 04's MLP and lesson 05's CNN on the backend that KERAS_BACKEND names."""
    import keras
    import numpy as np

    from helpers.training import models

    backend = keras.config.backend()
    if backend == "jax":
        import jax

        device = jax.devices()[0].device_kind
    else:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name()
    rng = np.random.default_rng(0)
    networks = (
        ("04", "MLP", models.build_mlp(), "rmsprop", (784,)),
        ("05", "CNN", models.build_cnn(), keras.optimizers.Adadelta(1.0), (28, 28, 1)),
    )
    for lesson, title, model, optimizer, shape in networks:
        model.compile(optimizer, "sparse_categorical_crossentropy")
        for batch in (128, 8_192):
            x = rng.integers(0, 256, (batch, *shape), np.uint8)
            y = rng.integers(0, 10, batch, np.uint8)
            step = functools.partial(model.train_on_batch, x, y)
            run = timing.measure(step, device=device, repeats=15, warmup=3)
            label = f"a step of the {title} on {backend}, batch {batch:,}"
            records.add_run(run, amount=f"{batch:,} random images", label=label, lesson=lesson)


def record_tile() -> None:
    """Note lesson 03's blocks, and its sums."""
    gpu_cells.prove_devices()
    gpu_cells.execute_cells("03")


def record_fusion() -> None:
    """Note lesson 06b's six kernels and one, for arrays that no cache of a GPU holds."""
    from helpers.lessons import lesson_06b

    gpu_cells.prove_devices()
    lesson_06b.time_fusion(workload.pick(preview=2**16, lab=2**23, full=2**26))


def record_trainings() -> None:
    """Note lesson 04's training on JAX, a batch of lesson 04b's and lesson 05b's forms of a network."""
    import keras

    with mock.patch.object(gpu_cells.import_data(), "load_mnist", return_value=gpu_cells.find_images()):
        names = gpu_cells.execute_cells("04", only=("27fdf760", "dd8608e4", "b8abd934", "a481adb2"))
        line = names["line"]
        label = f"ten epochs of the MLP on {keras.config.backend()}"
        amount = f"{len(names['images']):,} images an epoch, batches of 128"
        if line.epochs == 10:
            records.add_note(Note(label, line.seconds, "s", names["device"], amount, runs=1, lesson="04"))
        gpu_cells.execute_cells("05b")


def record_score() -> None:
    """Note lesson 11's tasks and their mean."""
    gpu_cells.prove_devices()
    gpu_cells.execute_cells("11", only=("l11setup", "l11measure"))


@dataclass(frozen=True)
class Part:
    """One part of a recording."""

    function: Callable[[], None]
    seconds: float  # after which it is ended
    lesson: str  # whose notes they are, unless a note names another
    needs: tuple[str, ...]  # modules
    settings: tuple[tuple[str, str], ...] = ()  # environment variables


OPENCL = ("numpy", "pyopencl")
# For what trains a network before it measures, or what a GPU did not finish in time under `full`.
PREVIEW, LAB = ((variables.PROFILE, profile) for profile in ("preview", "lab"))
PARTS = {  # in the order of their worth
    "peak": Part(record_peak, 30, "02", OPENCL),
    "GPU product": Part(record_gpu_product, 90, "02b", OPENCL, (("NVIDIA_TF32_OVERRIDE", "0"),)),
    "product": Part(record_product, 90, "02", OPENCL),
    "fast product": Part(record_fast_product, 90, "02b", OPENCL),
    "counted kernels": Part(record_counted_kernels, 60, "15", OPENCL),
    "attention": Part(record_attention, 40, "16", OPENCL),
    "writing": Part(record_writing, 40, "16b", OPENCL),
    "groups and copies": Part(record_groups_and_copies, 40, "01b", OPENCL),
    "limits": Part(record_limits, 40, "01b", OPENCL),
    "atomics": Part(record_atomics, 25, "12", OPENCL),
    "WebGPU": Part(record_webgpu, 30, "14", ("numpy", "wgpu")),
    "steps on JAX": Part(record_steps, 45, "04", ("keras", "jax"), (("KERAS_BACKEND", "jax"),)),
    "steps on PyTorch": Part(record_steps, 45, "04", ("keras", "torch"), (("KERAS_BACKEND", "torch"),)),
    "Tile": Part(record_tile, 90, "03", OPENCL),
    "fusion": Part(record_fusion, 30, "06b", (*OPENCL, "jax")),
    "trainings": Part(record_trainings, 80, "04", ("keras", "jax"), (("KERAS_BACKEND", "jax"),)),
    "score": Part(record_score, 90, "11", (*OPENCL, "pyperf"), (LAB,)),
    "providers": Part(
        record_providers, 60, "10", ("keras", "torch", "onnxruntime", "onnx"), (PREVIEW, ("KERAS_BACKEND", "torch"))
    ),
}
