"""Record in at most eight minutes what a GPU reaches: `python -m helpers.commands.record_gpu NAME`.

It needs no network, no JupyterLab and no setup: Python 3.11 or newer with NumPy, and PyOpenCL, wgpu, JAX, PyTorch or
Keras where they are installed. Each part runs in a process of its own and is ended when its seconds are over. What a
part measured is kept as soon as the part ends, also if it was ended. docs/record-a-gpu.md says how to use it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from helpers import ROOT, variables
from helpers.commands import machine
from helpers.devices.host import cpu_name, has_module
from helpers.measure import limits, records, timing, workload
from helpers.measure.records import Machine, Note

if TYPE_CHECKING:
    from helpers.training.data import Dataset

TOTAL_SECONDS = 480.0
MACHINE_SECONDS = 40.0  # to find the device; a driver may hang
DONE = "done"
NOT_EXECUTED = ", not executed: "  # in a part's log, between a cell and its statement


# --------------------------------------------------------------------------------------- lessons without JupyterLab


def execute_cells(lesson: str, only: Sequence[str] = ()) -> dict[str, Any]:
    """Execute a lesson's code cells in this process, statement by statement, and return its variables.

    Exercises and their checks are left out. A statement that fails, such as a figure where Matplotlib is missing, is
    printed with its reason, and the next one is executed.

    Args:
        lesson: its number.
        only: ids of the cells; all if empty.
    """
    _replace_missing_modules()
    (path,) = ROOT.glob(f"notebooks/{lesson}-*.ipynb")
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        is_skipped = {"exercise", "check", "raises-exception"} & set(cell["metadata"].get("tags", []))
        if cell["cell_type"] != "code" or is_skipped or (only and cell["id"] not in only):
            continue
        for statement in ast.parse("".join(cell["source"])).body:
            try:
                exec(compile(ast.Module([statement], []), f"lesson {lesson}, cell {cell['id']}", "exec"), names)
            except Exception:
                print(f"lesson {lesson}, cell {cell['id']}{NOT_EXECUTED}{ast.unparse(statement)[:80]}")
                print(traceback.format_exc(limit=-1), flush=True)
    return names


def _replace_missing_modules() -> None:
    """Let lessons import what they only show results with, or what sets NumPy's threads, where it is not installed."""

    def ignore(*_: object, **__: object) -> None:
        """Show nothing."""

    def keep_threads(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    stand_ins: dict[str, dict[str, object]] = {
        "IPython": {},
        "IPython.display": {"display": ignore, "Image": ignore, "Markdown": ignore, "HTML": ignore},
        "threadpoolctl": {"threadpool_limits": keep_threads},
    }
    for name, attributes in stand_ins.items():
        if name not in sys.modules and not has_module(name.partition(".")[0]):
            stand_in = types.ModuleType(name)
            vars(stand_in).update(attributes)
            sys.modules[name] = stand_in


def _prove_devices() -> None:
    """Let each OpenCL device multiply in this process, as the lessons do in another one, for which psutil is needed."""
    from helpers.devices import frameworks, opencl, products

    proofs = {}
    for device in frameworks.opencl_devices().values():
        proofs[opencl.identify(device)] = products.prove(frameworks.describe_opencl(device))
    os.environ[variables.OPENCL_PROOFS] = json.dumps(proofs)


def _make_images() -> Dataset:
    """Return random images in MNIST's shapes: a machine without a network may have no MNIST, and a time needs none."""
    import numpy as np

    from helpers.training.data import Dataset

    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (count, 28, 28), np.uint8) for count in (60_000, 10_000))
    labels = rng.integers(0, 10, 70_000, np.uint8)
    return Dataset("random images", train, labels[:60_000], test, labels[60_000:], "NumPy's generator")


# ---------------------------------------------------------------------------------------------------- the parts


def find_machine() -> None:
    """Write what this machine is into the file for the notes."""
    if has_module("pyopencl"):
        _prove_devices()
    Path(os.environ[variables.RECORD]).write_text(json.dumps(asdict(machine.describe_machine())), encoding="utf-8")


def record_peak() -> None:
    """Note the peak, with more and more work-items, and the bandwidth."""
    import pyopencl as cl

    from helpers.devices import opencl
    from helpers.lessons import lesson_02

    _prove_devices()
    device = opencl.pick_device()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    is_gpu = opencl.kind(device) == "gpu"
    lesson_02.measure_peak(queue)
    for items in (2**14, 2**17, 2**20) if is_gpu else ():
        lesson_02.measure_peak(queue, items)
    lesson_02.measure_bandwidth(queue, 2**28 if is_gpu else 2**25)


def record_product() -> None:
    """Note every step of lesson 02."""
    _prove_devices()
    execute_cells("02")


def record_gpu_product() -> None:
    """Note lesson 02b's product for a GPU in each shape, beside CLBlast and cuBLAS, for matrices of three sizes.

    A run computes a smaller product several times, since one is over soon after its launch. The fastest shape is
    measured again with the libraries: the best of several measurements is partly luck.
    """
    import pyopencl as cl

    from helpers.devices import opencl
    from helpers.lessons import lesson_02, lesson_02b_gpu, lesson_02b_race

    _prove_devices()
    device = opencl.pick_device()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    small = workload.pick(preview=128, lab=256, full=512)
    for size in (4_096, 2_048, 1_024) if opencl.kind(device) == "gpu" else (small,):
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
    _prove_devices()
    execute_cells("02b")


def record_counted_kernels() -> None:
    """Note the times of lesson 15's kernels and of each step: without libclang too, which only the counters need."""
    from helpers.lessons import lesson_15_clock

    _prove_devices()
    names = execute_cells("15")
    lesson_15_clock.note_steps(names.get("runs", {}))


def record_attention() -> None:
    """Note lesson 16's attention in three kernels, in one, and by the libraries that are here."""
    import pyopencl as cl

    from helpers.devices import opencl
    from helpers.lessons import lesson_16, lesson_16_clock

    _prove_devices()
    context = cl.Context([opencl.pick_device()])
    queue, n = cl.CommandQueue(context), workload.pick(preview=256, lab=1_024, full=4_096)
    lesson_16_clock.measure_ways(queue, lesson_16_clock.find_ways(queue, lesson_16.ATTENTION, n), n)


def record_limits() -> None:
    """Note lesson 01b's curves, chains, bandwidths and dots below the roof."""
    _prove_devices()
    execute_cells("01b")


def record_groups_and_copies() -> None:
    """Note an addition with and without its guard, in work-groups of several sizes, and three kinds of copies."""
    import numpy as np
    import pyopencl as cl

    from helpers.devices import opencl
    from helpers.lessons import lesson_01b

    _prove_devices()
    device = opencl.pick_device()
    context = cl.Context([device])
    queue, second = cl.CommandQueue(context), cl.CommandQueue(context)
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
    add = cl.Kernel(program, "add")

    def overlap(queues: Sequence[cl.CommandQueue], parts: int) -> None:
        lesson_01b.copy_and_add(add, queues, buffers, pinned, parts)

    copies = {
        "copy there, pageable": lambda: cl.enqueue_copy(queue, buffers[0], x),
        "copy there, pinned": lambda: cl.enqueue_copy(queue, buffers[0], pinned),
        "copy back, pageable": lambda: cl.enqueue_copy(queue, x, buffers[0]),
        "copy back, pinned": lambda: cl.enqueue_copy(queue, pinned, buffers[0]),
        "copy there, then add, pinned": lambda: overlap([queue], 1),
        "copy there in 8 parts and add meanwhile, pinned": lambda: overlap([queue, second], 8),
    }
    for run in timing.measure_interleaved(copies, name, 9, warmup=1, on=queue).values():
        records.add_run(run, "GB/s", 4e-9 * count, amount)


def record_atomics() -> None:
    """Note the additions that lesson 12's three ways keep, the fewest of ten runs."""
    import numpy as np

    from helpers.devices import opencl
    from helpers.lessons import lesson_12

    _prove_devices()
    names = execute_cells("12", only=("7e561c6f", "cdb57e8b"))
    count, device = names["count"], opencl.name(names["device"])
    for way, steps in names["ways"].items():
        source, given = names["add_up"].replace("STEPS", steps), [np.ones(count, np.int32), np.zeros(1, np.int32)]
        sums = [int(lesson_12.launch(source, count, 64, given)[0]) for _ in range(10)]
        amount = f"{count:,} additions, the smallest of ten sums"
        records.add_note(Note(f"kept by {way}", min(sums), "additions", device, amount, runs=10))


def record_webgpu() -> None:
    """Note lesson 14's addition and its sums without barriers, and lesson 14b's product on 10,000 random images."""
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
    images = workload.pick(preview=500, lab=1_000, full=10_000)
    network = lesson_14_web.load_network(_make_images(), images)
    lesson_14_web.compare_speed(network, adapter, device, repeats=15)


def record_providers() -> None:
    """Note the times of lesson 10's forms of a network, and of float32 by each of ONNX Runtime's providers here."""
    from helpers.training import data

    images = _make_images()
    with mock.patch.object(data, "load_mnist", return_value=images):
        names = execute_cells("10")
    for provider in names["here"]:
        session = names["ort"].InferenceSession(names["file"], providers=[provider])
        given = {session.get_inputs()[0].name: names["test"][:64]}
        device = cpu_name() if provider == "CPUExecutionProvider" else provider
        run = timing.measure(functools.partial(session.run, None, given), device=device, repeats=21)
        records.add_run(run, amount="64 images", label=f"float32 by {provider}, 64 images")
    for count, runs in names.get("timed", {}).items():
        for form, run in runs.items():
            records.add_run(run, amount=f"{count} images", label=f"{form}, {count} images")


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


@dataclass(frozen=True)
class Part:
    """One part of a recording."""

    function: Callable[[], None]
    seconds: float  # after which it is ended
    lesson: str  # whose notes they are, unless a note names another
    needs: tuple[str, ...]  # modules
    settings: tuple[tuple[str, str], ...] = ()  # environment variables


OPENCL = ("numpy", "pyopencl")
PREVIEW = variables.PROFILE, "preview"  # for what trains a network before it measures
PARTS = {  # in the order of their worth
    "peak": Part(record_peak, 30, "02", OPENCL),
    "GPU product": Part(record_gpu_product, 90, "02b", OPENCL, (("NVIDIA_TF32_OVERRIDE", "0"),)),
    "product": Part(record_product, 90, "02", OPENCL),
    "fast product": Part(record_fast_product, 80, "02b", OPENCL),
    "counted kernels": Part(record_counted_kernels, 60, "15", OPENCL),
    "attention": Part(record_attention, 40, "16", OPENCL),
    "groups and copies": Part(record_groups_and_copies, 40, "01b", OPENCL),
    "limits": Part(record_limits, 40, "01b", OPENCL),
    "atomics": Part(record_atomics, 25, "12", OPENCL),
    "WebGPU": Part(record_webgpu, 40, "14b", ("numpy", "wgpu")),
    "steps on JAX": Part(record_steps, 45, "04", ("keras", "jax"), (("KERAS_BACKEND", "jax"),)),
    "steps on PyTorch": Part(record_steps, 45, "04", ("keras", "torch"), (("KERAS_BACKEND", "torch"),)),
    "providers": Part(record_providers, 60, "10", ("keras", "onnxruntime", "onnx"), (PREVIEW,)),
}
MACHINE = "machine"


# -------------------------------------------------------------------------------------------------- the processes


def run_part(name: str, seconds: float, notes: Path, log: Path, profile: str) -> str:
    """Run a part in a process of its own, end it and all that it started when its seconds are over; say what came.

    Args:
        name: of PARTS, or MACHINE.
        seconds: the longest that it may take.
        notes: the file that gets what it measures.
        log: the file that gets what it prints.
        profile: how much work it does.
    """
    settings = dict(PARTS[name].settings) if name in PARTS else {}
    environment = os.environ | {variables.RECORD: str(notes), variables.PROFILE: profile} | settings
    command = [sys.executable, "-m", "helpers.commands.record_gpu", "--part", name, "part"]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s"
        finally:
            _end(process)
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    left_out = sum(NOT_EXECUTED in line for line in lines)
    if status == 0:
        return f"done, but not every statement: {log.name} names {left_out} that failed" if left_out else DONE
    if status < 0:
        return f"failed: ended by {signal.Signals(-status).name}"
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return f"failed: {(errors or lines or ['it printed nothing'])[-1]}"


def _end(process: subprocess.Popen) -> None:
    """End a process and all that it started, and wait a few seconds for it: one that a driver holds does not end."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


class Recording:
    """The notes of a record, and its file, which holds those that can be right (`limits`).

    Notes of an earlier run in the same file stay until a new one replaces them.

    Args:
        path: of the record.
        here: the machine of the record.
    """

    def __init__(self, path: Path, here: Machine) -> None:
        self._path, self._here = path, here
        before = records.read(path) if path.exists() else None
        self._notes = dict(before.notes) if before else {}
        self._measured: set[tuple[str, str]] = set()  # lesson and label of what this run has noted
        self.refused: dict[tuple[str, str], str] = {}  # why, by lesson and label

    def add(self, noted: Sequence[Note]) -> None:
        """Add what a part noted, and write the file. Of a limit that is measured twice, the higher number counts."""
        for note in noted:
            key = note.lesson, note.label
            is_known = key in self._measured and limits.is_limit(note)
            if not is_known or note.value > self._notes[key].value:
                self._notes[key] = note
            self._measured.add(key)
        notes = [replace(note, device=note.device or self._here.device) for note in self._notes.values()]
        self.refused = limits.find_impossible(notes)
        self._path.unlink(missing_ok=True)
        records.write(self._path, self._here, [note for note in notes if (note.lesson, note.label) not in self.refused])

    def count(self) -> int:
        """Return how many numbers of this run are in the file."""
        return len(self._measured - set(self.refused))


def record(name: str, folder: Path, total: float, profile: str, chosen: Sequence[str]) -> int:
    """Run the parts one after another, keep the notes of each in folder/NAME.json, and print a summary.

    Args:
        name: of the record.
        folder: for the record, what each part printed, and its notes, one a line.
        total: seconds for all parts together.
        profile: how much work each part does.
        chosen: names of parts.

    Returns:
        0 if at least one number was recorded, otherwise 1.
    """
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-machine.json"
    file.unlink(missing_ok=True)
    outcome = run_part(MACHINE, min(MACHINE_SECONDS, total), file, folder / f"{name}-machine.log", profile)
    if outcome == DONE:
        here = Machine(**json.loads(file.read_text(encoding="utf-8")))
    else:
        here = machine.describe_machine(use_opencl=False)
    print(f"{here.device}, driver {here.driver or 'unknown'}; {here.system}", flush=True)
    recording = Recording(folder / f"{name}.json", here)

    def run(title: str) -> None:
        part, begun = PARTS[title], time.monotonic()
        left = total - (begun - begin)
        missing = [module for module in part.needs if not has_module(module)]
        noted: list[Note] = []
        if missing:
            outcome = f"skipped: {' and '.join(missing)} not installed"
        elif left < 5:
            outcome = "skipped: no time left"
        else:
            base = folder / f"{name}-{title.replace(' ', '-')}"
            notes, log = base.with_suffix(".jsonl"), base.with_suffix(".log")
            notes.unlink(missing_ok=True)
            outcome = run_part(title, min(part.seconds, left), notes, log, profile)
            noted = records.read_notes(notes, part.lesson)
            recording.add(noted)
        print(f"{title:18} {len(noted):3} numbers {time.monotonic() - begun:6.1f} s  {outcome}", flush=True)

    for title in chosen:
        run(title)
    if recording.refused and "peak" in chosen:  # it may be the limit that was measured at a bad moment
        run("peak")
    for (lesson, label), reason in recording.refused.items():
        print(f"refused: lesson {lesson}, {label}: {reason}")
    print(f"{recording.count()} numbers in {time.monotonic() - begin:.0f} s: {folder / f'{name}.json'}")
    return 0 if recording.count() else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, and record."""
    parser = argparse.ArgumentParser(prog="python -m helpers.commands.record_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("name", type=records.validate_name, help="of the record, such as nvidia-h100")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "record", help="folder for the record")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS, help="for all parts together")
    parser.add_argument("--profile", default="full", help="how much work: preview, lab or full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--part", choices=[MACHINE, *PARTS], help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.part:
        (find_machine if args.part == MACHINE else PARTS[args.part].function)()
        return 0
    return record(args.name, args.output.resolve(), args.seconds, args.profile, args.only)


if __name__ == "__main__":
    sys.exit(main())
