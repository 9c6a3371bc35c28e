"""Lesson 06, Switch Keras backends: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers import ROOT, checks
from helpers.errors import WorkshopError
from helpers.plots import BLUE, ORANGE, figure, show

if TYPE_CHECKING:
    from helpers.tables import Table
    from helpers.timing import Measurement

# Part 2

# ------------------------------------------------------------------------------------------------------ its exercises


@checks.verdict
def check_backend_of(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Lesson 06, backends: with what Keras computes after some lines of a program.

    The reference was compared with real processes (tests/test_lesson_06.py).
    """
    plain = [
        ["set jax", "import keras"],
        ["import keras", "set jax"],
        ["import tensorflow", "set torch", "import keras"],
        ["import numpy", "set jax", "import tensorflow", "set torch", "import keras"],
        ["set jax", "import tensorflow.keras", "import keras"],
        ["set jax", "set torch", "import keras.layers", "set jax", "import keras"],
        ["import keras"],
        ["set jax", "import jax", "set torch"],
        ["import jax", "set jax"],
        [],
    ]

    def cases(rng: np.random.Generator) -> list[tuple]:
        others = ["import numpy", "import jax", "import torch", "set jax", "set torch", "set tensorflow"]
        loaders = ["import keras", "import keras.layers", "import tensorflow", "import tensorflow.keras"]
        drawn = [[str(line) for line in rng.choice(others * 2 + loaders, rng.integers(1, 7))] for _ in range(40)]
        return [(lines,) for lines in plain + drawn]

    yield checks.judge_function(learner, backend_of, cases)


def backend_of(lines: Sequence[str]) -> str:
    """Return Keras' backend after lines such as "set jax" and "import keras"; "no Keras" where nothing imported it."""
    variable = "tensorflow"
    for line in lines:
        verb, _, name = line.partition(" ")
        if verb == "set":
            variable = name
        elif name.split(".")[0] in ("keras", "tensorflow"):
            return variable
    return "no Keras"


@checks.verdict
def check_dense(source: str) -> Iterator[str]:
    """Lesson 06, Tile: a dense layer with its bias and ReLU."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [np.float32([[1, 2]]), np.float32([[1, -1], [0, -1]]), np.float32([10, 1])]
        drawn = [rng.integers(1, 70, 3) for _ in range(5)]
        sizes = [(1, 1, 1), (1, 5, 3), (4, 4, 4), (128, 784, 10), *drawn]
        arrays = [[rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (n,))] for m, k, n in sizes]
        large = [[1000 * array for array in arrays[-1]]]
        return [tuple(one) for one in [plain, *arrays, *large]]

    yield checks.judge_tile(source, lambda x, w, b: np.maximum(x @ w + b, 0), cases)


# -------------------------------------------------------------------------------------------------------- its figures


def loss_curves(curves: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw losses step by step: the first as a broad line, the others dashed upon it, so that equal ones are both seen.

    Args:
        curves: for each name the losses of its steps.
        title: the message of the figure.
    """
    looks = [{"color": ORANGE, "lw": 6, "alpha": 0.5}, {"color": BLUE, "lw": 1.6, "ls": "--"}]
    with figure(7.5, 3.4) as (drawn, axes):
        for (name, losses), look in zip(curves.items(), looks, strict=False):
            axes.plot(range(1, len(losses) + 1), losses, label=name, **look)
        axes.set(xlabel="training step", ylabel="loss (cross-entropy)", title=title, ylim=(0, None))
        axes.legend()
    ends = "; ".join(f"{name}: from {losses[0]:.2f} to {losses[-1]:.2f}" for name, losses in curves.items())
    show(drawn, f"{title}. Loss against training step. {ends}.")


# ------------------------------------------------------------------------------------------------------ its machinery


def start_weights(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Return a kernel and a bias for each layer, as Keras begins: Glorot's uniform distribution, and zeros.

    Args:
        shapes: of the kernels, such as (784, 512), or (3, 3, 32, 64) for a convolution.
        seed: of the random numbers.

    Returns:
        float32 arrays: kernel, bias, kernel, bias ...
    """
    rng, weights = np.random.default_rng(seed), []
    for shape in shapes:
        window = int(np.prod(shape[:-2]))
        limit = (6 / (window * (shape[-2] + shape[-1]))) ** 0.5
        weights += [rng.uniform(-limit, limit, shape).astype(np.float32), np.zeros(shape[-1], np.float32)]
    return weights


def hide(package: str) -> None:
    """Let this process believe that a package is not installed, as a lesson must show it on every machine."""
    import sys
    from importlib.abc import MetaPathFinder

    class Hidden(MetaPathFinder):
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Hidden())


def outcome(function: Callable[[str], str], program: str) -> str:
    """Return what a function says of a program in a fresh process, or the last line of its error.

    The variable KERAS_BACKEND is not set there. A package that is not installed here is told with its remedy.
    """
    from helpers import processes

    variables = {"KERAS_BACKEND": None, "KERAS_HOME": None}
    run = processes.run(function, variables=variables, check=False, arguments={"program": program})
    if not run.failures[0]:
        return run.result
    error = run.failures[0].splitlines()[-1]
    missing = re.search(r"No module named '(tensorflow|jax)'", error)
    return f"skipped: {missing[1]} is not installed here; {_REMEDY[missing[1]]}" if missing else error


_REMEDY = {
    "tensorflow": "to have it: python3 workshop.py lab --accel cpu",
    "jax": "to have it: python3 workshop.py lab",
}


def some_backend() -> str:
    """Return a Keras backend that is installed here; JAX first, which starts fastest."""
    return next((name for name in ("jax", "tensorflow", "torch") if find_spec(name)), "jax")


def timed(step: Callable[[slice], float], batches: Sequence[slice]) -> tuple[list[float], list[float]]:
    """Call `step` with each batch, and return its losses and the seconds of each call."""
    import time

    losses, seconds = [], []
    for batch in batches:
        begin = time.perf_counter()
        losses.append(step(batch))
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def largest_difference(curves: Sequence[Sequence[float]]) -> float:
    """Return how far several trainings' losses are apart at most, in any step."""
    return float(np.ptp(np.array(curves), axis=0).max())


def speed_table(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Table:
    """Return a table of the last loss, the first step's time, and the later ones' median and spread.

    Args:
        runs: for each name (losses, seconds), one entry a step.
    """
    from helpers.tables import Table
    from helpers.timing import duration

    rows = []
    for name, (losses, seconds) in runs.items():
        low, middle, high = (duration(one) for one in np.percentile(seconds[2:], [25, 50, 75]))
        rows.append([name, f"{losses[-1]:.6f}", duration(seconds[0]), f"{middle} ({low} to {high})"])
    return Table(rows, ["trained with", f"loss of step {len(losses)}", "first step", "a later step (middle half)"])


# PlaidML


def cnn_table(old: tuple[list, list], new: tuple[list, list], what: str, keras: str) -> Table:
    """Return a table of article C's CNN, step by step, in PlaidML's Keras and in today's.

    Args:
        old: (losses, seconds) of PlaidML, one entry a step.
        new: the same of Keras 3; it may have more steps, which are left out.
        what: batch, dataset, place and date, for the header.
        keras: Keras 3 and its backend.
    """
    from helpers.tables import Table
    from helpers.timing import duration

    rows = [
        [number, f"{a:.5f}", f"{b:.5f}", f"{abs(a - b):.1g}", duration(slow), duration(fast)]
        for number, (a, b, slow, fast) in enumerate(zip(old[0], new[0], old[1], new[1], strict=False), 1)
    ]
    headers = ["loss, PlaidML", f"loss, {keras}", "difference", "time, PlaidML", f"time, {keras}"]
    return Table(rows, [f"step ({what})", *headers])


def recorded_cnn() -> Table:
    """Return what `train_cnn` did once, elsewhere: the first header says when and where."""
    import json

    from helpers import plaidml

    known = json.loads(plaidml.RECORDED.read_text(encoding="utf-8"))["cnn"]
    what = f"{known['batch']} images, {known['dataset']}, recorded on {known['date']} on {known['machine']}"
    return cnn_table(known["plaidml"], known["keras"], what, known["keras_version"])


# tinygrad


def opencl_loader() -> str | None:
    """Return the OpenCL loader inside PyOpenCL's wheel, for tinygrad's OPENCL_PATH.

    None where the wheel has none (Windows, macOS, conda): tinygrad then looks for the system's own.
    """
    found = find_spec("pyopencl")
    folder = Path(found.origin).parent / ".libs" if found and found.origin else Path()
    return next((str(file) for file in sorted(folder.glob("libOpenCL*.so*"))), None)


def no_tinygrad() -> str:
    """Return why tinygrad cannot run here, and what helps; empty if nothing speaks against it."""
    if find_spec("tinygrad") is None:
        command = "python3 workshop.py lab --with tinygrad"
        return f"skipped: tinygrad is not installed here; to have it: {command}"
    return no_opencl()


def no_opencl() -> str:
    """Return why no OpenCL device can be used here, and what helps; empty if one can."""
    from helpers import opencl

    try:
        opencl.pick_device()
    except WorkshopError as error:
        return f"skipped: this needs an OpenCL device. {error}"
    return ""


def take_device_of_lesson_01() -> str:
    """Let tinygrad's device `CL` be the OpenCL device that lesson 01 picks; call it before tinygrad's first operation.

    By itself tinygrad looks at the first platform alone: its GPUs, or else its default device. Two things to know of
    tinygrad 0.14: it keeps its list of devices in `CLDevice.device_ids`, which is filled here; and the loader in
    PyOpenCL's wheel crashes unless PyOpenCL was imported before (or PYOPENCL_HOME names its folder).

    Returns:
        The device's name.
    """
    import ctypes

    from helpers import opencl

    device = opencl.pick_device()
    from tinygrad.runtime.autogen.opencl import cl_device_id
    from tinygrad.runtime.ops_cl import CLDevice

    CLDevice.device_ids = (cl_device_id * 1)(ctypes.cast(device.int_ptr, cl_device_id))
    return opencl.name(device)


def own_choice() -> str:
    """Return the OpenCL device that `DEV=CL` takes by itself: the first platform's first GPU, or its default device."""
    import pyopencl as cl

    from helpers import opencl

    first = opencl.platforms()[0]
    for kind in (cl.device_type.GPU, cl.device_type.DEFAULT):
        try:
            if found := first.get_devices(kind):
                return opencl.name(found[0])
        except cl.Error:
            continue
    return "no device"


def device_name() -> str:
    """Return the name of the OpenCL device that lesson 01 picks."""
    from helpers import opencl

    return opencl.name(opencl.pick_device())


RECORDED = ROOT / "data" / "results" / "tinygrad_dense.cl"


def recorded_kernel() -> str:
    """Return the kernel that tinygrad wrote once, elsewhere; print when and where."""
    label, _, kernel = RECORDED.read_text(encoding="utf-8").partition("\n")
    print(label.strip("/ "))
    return kernel


def dense_kernel(printed: str, rows: int, inputs: int, units: int) -> str:
    """Return the kernel that multiplies images by a layer's weights, out of what tinygrad prints under DEBUG=4.

    tinygrad writes the number of a buffer's elements into its name: the kernel is known by its three arrays.

    Raises:
        WorkshopError: there is no such kernel.
    """
    wanted = {rows * units, rows * inputs, inputs * units}
    for kernel in re.findall(r"^__kernel void .*?^}", printed, re.MULTILINE | re.DOTALL):
        sizes = [int(size) for size in re.findall(r"\bdata\d+_(\d+)", kernel.splitlines()[0])]
        if wanted <= set(sizes) and sizes[0] == rows * units:
            return kernel
    raise WorkshopError(
        "tinygrad printed no kernel for this layer.",
        "This version may cut the work differently; the lesson was written with 0.14.",
        f"Read the recorded one: data/results/{RECORDED.name}",
    )


def shortened(kernel: str, most: int = 2) -> str:
    """Return a kernel of tinygrad's, its buffers called out, x, w and b, its lines cut to a page's width.

    Args:
        kernel: the text.
        most: of lines that follow each other and differ in numbers alone, so many are kept, then stands `...`.
    """
    for name, short in zip(re.findall(r"\bdata\d+_\d+", kernel.splitlines()[0]), ("out", "x", "w", "b"), strict=False):
        kernel = re.sub(rf"\b{name}\b", short, kernel)
    kept, before, count = [], "", 0
    for line in kernel.splitlines():
        kind = re.sub(r"\.[xyzw]|\+?\d+|[()]", "", line)
        count, before = (count + 1 if kind == before else 1), kind
        if count <= most:
            kept.append(line if len(line) <= 116 else line[:113] + "...")
        elif count == most + 1:
            kept.append(re.match(r"\s*", line)[0] + "...")
    return "\n".join(kept)


@dataclass(frozen=True)
class Launch:
    """How tinygrad starts a kernel; it writes the numbers beside `get_group_id` and `get_local_id`."""

    groups: tuple[int, int, int]  # work-groups in each dimension
    items: tuple[int, int, int]  # work-items of a group in each dimension

    @property
    def work_items(self) -> int:
        """All work-items."""
        return int(np.prod(self.groups) * np.prod(self.items))


def launch_of(kernel: str) -> Launch:
    """Read from a kernel of tinygrad's how it is started."""
    sizes = {"group": [1, 1, 1], "local": [1, 1, 1]}
    for which, dimension, size in re.findall(r"get_(group|local)_id\((\d)\);? /\* (\d+) \*/", kernel):
        sizes[which][int(dimension)] = int(size)
    return Launch(tuple(sizes["group"]), tuple(sizes["local"]))


class TinygradKernel:
    """A kernel of tinygrad's for a dense layer, started by PyOpenCL on the device of lesson 01."""

    def __init__(self, source: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> None:
        import pyopencl as cl

        from helpers import opencl

        self.device = opencl.pick_device()
        context = cl.Context([self.device])
        self.queue, self.launch = cl.CommandQueue(context), launch_of(source)
        name = re.search(r"__kernel void (\w+)", source)[1]
        self.kernel = cl.Kernel(opencl.build(context, source), name)
        self.out = np.full((len(x), w.shape[1]), np.nan, np.float32)
        copy = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = {array.size: cl.Buffer(context, copy, hostbuf=array) for array in (b, w, x, self.out)}
        sizes = [int(size) for size in re.findall(r"\bdata\d+_(\d+)", source.splitlines()[0])]
        self.arguments = [buffers[size] for size in sizes]

    def run(self) -> None:
        """Start it."""
        total = [groups * items for groups, items in zip(self.launch.groups, self.launch.items, strict=True)]
        self.kernel(self.queue, total, self.launch.items, *self.arguments)

    def result(self) -> np.ndarray:
        """Run it, and return the layer's outputs, float32 of shape (images, units)."""
        import pyopencl as cl

        self.run()
        cl.enqueue_copy(self.queue, self.out, self.arguments[0])
        return self.out

    def measure(self, repeats: int) -> Measurement:
        """Time it; the arrays are on the device before the clock starts."""
        from helpers import opencl, timing

        return timing.measure(self.run, device=opencl.name(self.device), on=self.queue, repeats=repeats)


def gflops_table(timed: Mapping[str, Measurement], operations: int) -> Table:
    """Return a table of speeds: the median, and the middle half of the runs.

    Args:
        timed: for each name its runs.
        operations: additions and multiplications of one run.
    """
    from helpers.tables import Table

    rows = []
    for name, run in timed.items():
        fast, slow = run.quartiles
        low, middle, high = (operations / seconds / 1e9 for seconds in (slow, run.median, fast))
        rows.append([name, f"{middle:.3g} ({low:.3g} to {high:.3g})", run.device])
    return Table(rows, ["kernel", "GFLOP/s (middle half)", "on"])
