"""Serve lesson 06b, Meet a backend that writes OpenCL: the checks of its exercises, its tables, tinygrad's kernels."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from helpers import ROOT, devices
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons.lesson_06 import make_start_weights
from helpers.measure.tables import Table
from helpers.training import plaidml

# ------------------------------------------------------------------------------------------------------ its exercises

_STEPS = {  # in OpenCL, and in NumPy
    "v + 1.0f": lambda v: v + 1,
    "v * 0.5f": lambda v: v / 2,
    "v * v": lambda v: v * v,
    "fmax(v, 0.0f)": lambda v: np.maximum(v, 0),
}
_ADD, _HALVE, _SQUARE, _RELU = _STEPS
_CHAINS = ([_ADD, _HALVE], [_HALVE, _ADD, _RELU], [_SQUARE], [_RELU, _ADD, _SQUARE, _HALVE, _ADD, _ADD], [])


@checks.print_verdict
def check_write_kernel(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Judge exercise 1 of lesson 06b: write one OpenCL kernel for a chain of steps."""
    sources: list[str] = []
    for steps in _CHAINS:
        source = checks.answer(learner, list(steps), who=f"write_kernel({steps})")
        if not isinstance(source, str):
            raise checks.NotYet(f"write_kernel({steps}) returned {source!r}; a text is expected.")
        sources.append(source)
    if "}" not in sources[0]:
        raise checks.NotDone("the text is no whole kernel yet.")
    yield checks.judge_in_subprocess(judge_chains, sources=sources)


def judge_chains(sources: Sequence[str]) -> str:
    """Judge the kernels of exercise 1, one for each of _CHAINS, in a subprocess; return what was tried."""
    from helpers.judge import kernel_checks

    for steps, source in zip(_CHAINS, sources, strict=True):
        right = functools.partial(functools.reduce, lambda v, step: _STEPS[step](v), steps)
        try:
            kernel = kernel_checks.build(source, "chain")
            tried = kernel_checks.judge_kernel(kernel, ("float[]",), right, sizes=(1, 65, 257))
            kernel_checks.judge_accesses(kernel)
        except checks.NotYet as error:
            raise checks.NotYet(f"for the steps {steps} {error}") from None
    return f"{len(_CHAINS)} chains, each read and written once; of the last {tried}"


@checks.print_verdict
def check_to_all(
    learner: Callable[..., np.ndarray], found: Mapping[str, Sequence[float]], train: Callable[..., Sequence[float]]
) -> Iterator[str]:
    """Judge exercise 2 of lesson 06b: every largest of four gets the gradient; then train with a right rule.

    Args:
        learner: the rule.
        found: losses of other training runs, to be printed beside.
        train: trains with the rule, and returns a loss for each step.
    """

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        known = [[1, 1, 0, 1], [2, 5, 3, 4], [0, 0, 0, 0], [-1, -2, -1, -3]]
        yield np.array(known, np.float32), np.array([5, -2, 0.5, 1], np.float32)
        yield np.array([[1, 1 + 1e-6, 0, 1]], np.float32), np.array([3], np.float32)
        for n in (1, 4, 4, 60):
            yield (rng.integers(-2, 3, (n, 4)) / 4).astype(np.float32), rng.normal(size=n).astype(np.float32)

    yield checks.judge_function(learner, to_all, cases)
    print(make_losses_table({**found, "JAX, with your rule": train(learner)}))


@checks.print_verdict
def check_slope(
    learner: Callable[..., np.ndarray], found: Mapping[str, Sequence[float]], train: Callable[..., Sequence[float]]
) -> Iterator[str]:
    """Judge exercise 3 of lesson 06b: ReLU's slope with 1 at 0; then train with a right one. See `check_to_all`."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [rng.integers(-2, 3, shape) / 4 for shape in ((7,), (4, 5), (2, 3, 2, 3))]
        known = [np.array([-2, 0, 3]), np.array([0.0, -0.0, 1e-30, -1e-30])]
        return [(values.astype(np.float32),) for values in [*known, *drawn]]

    yield checks.judge_function(learner, lambda x: (x >= 0).astype(np.float32), cases)
    print(make_losses_table({**found, "JAX, with both rules": train(learner)}))


def to_all(values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Give every value that is the largest of its row the whole gradient of the row; exercise 2 of lesson 06b.

    Args:
        values: of shape (n, 4).
        gradient: of shape (n,).
    """
    return np.where(values == values.max(axis=1, keepdims=True), gradient[:, None], 0)


def make_cnn_weights() -> list[np.ndarray]:
    """Return the weights with which the recorded training runs of article C's network began."""
    return make_start_weights((3, 3, 1, 32), (3, 3, 32, 64), (9216, 128), (128, 10))


def read_recorded_losses(dataset: str) -> dict[str, list[float]]:
    """Return the recorded losses of PlaidML's Keras and of Keras 3, and print their origin; empty without MNIST."""
    if dataset != "MNIST":
        print(f"The losses were recorded on MNIST. Here is another dataset, {dataset}: nothing to compare.")
        return {}
    known = json.loads(plaidml.RESULTS.read_text(encoding="utf-8"))["cnn"]
    print(f"Recorded on {known['date']} on {known['machine']}: {known['batch']} images of {known['dataset']} a step.")
    return {"PlaidML 0.7.0": known["plaidml"][0], known["keras_version"]: known["keras"][0]}


def make_losses_table(found: Mapping[str, Sequence[float]]) -> Table:
    """Return a table of losses with a row for each training run and a column for each step that all of them have."""
    steps = min(map(len, found.values()), default=0)
    rows = [[name, *(f"{loss:.5f}" for loss in losses[:steps])] for name, losses in found.items()]
    return Table(rows, ["loss of", *(f"step {step + 1}" for step in range(steps))])


# ------------------------------------------------------------------------------------------------ tinygrad

RECORDED_KERNEL = ROOT / "data" / "results" / "tinygrad_dense.cl"


def make_tinygrad_variables() -> dict[str, str | None]:
    """Return the variables with which a process lets tinygrad compute through OpenCL, and print its kernels.

    The OpenCL loader is that of PyOpenCL's wheel, or None for the system's own. CACHELEVEL=0 writes no file into the
    home folder.
    """
    import pyopencl

    loader = next((str(file) for file in sorted(Path(pyopencl.__file__).parent.glob(".libs/libOpenCL*.so*"))), None)
    return {"DEV": "CL", "TRAINING": "1", "CACHELEVEL": "0", "OPENCL_PATH": loader, "DEBUG": "4", "NO_COLOR": "1"}


def explain_missing_tinygrad() -> str | None:
    """Return why tinygrad cannot run here, and what helps; None if it can."""
    if not devices.is_installed("tinygrad"):
        return devices.explain_missing("tinygrad")
    return explain_missing_opencl()


def explain_missing_opencl() -> str | None:
    """Return why no OpenCL device can be used here, and what helps; None if one can."""
    from helpers.devices import opencl

    try:
        opencl.pick_device()
    except WorkshopError as error:
        return f"this needs an OpenCL device. {error}"
    return None


def use_device_of_lesson_01() -> str:
    """Let tinygrad's device `CL` be the OpenCL device of lesson 01, before its first operation; return its name.

    By itself tinygrad looks at the first platform alone: its GPUs, or its default device if there are none. Two facts
    about tinygrad 0.14: it keeps its list of devices in `CLDevice.device_ids`, which is filled here; and the loader in
    PyOpenCL's wheel crashes unless PyOpenCL was imported before (or PYOPENCL_HOME names its folder).
    """
    import ctypes

    from helpers.devices import opencl

    device = opencl.pick_device()
    from tinygrad.runtime.autogen.opencl import cl_device_id
    from tinygrad.runtime.ops_cl import CLDevice

    CLDevice.device_ids = (cl_device_id * 1)(ctypes.cast(device.int_ptr, cl_device_id))
    return opencl.name(device)


def find_dense_kernel(printed: str, rows: int, inputs: int, units: int) -> str:
    """Return the kernel of a dense layer's product from what tinygrad prints under DEBUG=4.

    tinygrad writes the number of a buffer's elements into its name, so the sizes of its three arrays identify the
    kernel. If there is none, because tinygrad is missing or divides the work differently, print where a recorded one
    comes from, and return that one.
    """
    wanted = {rows * units, rows * inputs, inputs * units}
    for kernel in re.findall(r"^__kernel void .*?^}", printed, re.MULTILINE | re.DOTALL):
        sizes = _read_sizes(kernel)
        if wanted <= set(sizes) and sizes[0] == rows * units:
            return kernel
    label, _, kernel = RECORDED_KERNEL.read_text(encoding="utf-8").partition("\n")
    print(label.strip("/ "))
    return kernel


def _read_sizes(kernel: str) -> list[int]:
    """Return the number of elements of each buffer, as the kernel's first line names them."""
    return [int(size) for size in re.findall(r"\bdata\d+_(\d+)", kernel.splitlines()[0])]


def shorten_kernel(kernel: str, most: int = 2) -> str:
    """Return a kernel of tinygrad's with at most `most` lines that differ in numbers alone, to fit on a page."""
    kept, kinds = [], []
    for line in kernel.splitlines():
        kinds.append(re.sub(r"(?<!data)\d+|\.[xyzw]", "", line))
        if kinds.count(kinds[-1]) <= most:
            kept.append(line if len(line) <= 100 else line[:97] + "...")
    return "\n".join(kept)


def read_launch(kernel: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the work-items in each of three dimensions, in all and in a group, as a kernel of tinygrad's has them."""
    sizes = {"group": [1, 1, 1], "local": [1, 1, 1]}
    for which, dimension, size in re.findall(r"get_(group|local)_id\((\d)\);? /\* (\d+) \*/", kernel):
        sizes[which][int(dimension)] = int(size)
    groups, local = sizes["group"], tuple(sizes["local"])
    return tuple(count * items for count, items in zip(groups, local, strict=True)), local


def run_kernel(kernel: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Run tinygrad's kernel of a dense layer with PyOpenCL; return its outputs, float32 of shape (images, units).

    All arrays are float32: images `x` of shape (images, inputs), weights `w` (inputs, units), biases `b` (units,).
    """
    import pyopencl as cl

    from helpers.devices import opencl

    out = np.full((len(x), w.shape[1]), np.nan, np.float32)
    (name,) = re.findall(r"__kernel void (\w+)", kernel)
    built = opencl.Kernel(kernel, name)
    copy = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {array.size: cl.Buffer(built.context, copy, hostbuf=array) for array in (b, w, x, out)}
    work_items, group = read_launch(kernel)
    built.kernel(built.queue, work_items, group, *(buffers[size] for size in _read_sizes(kernel)))
    cl.enqueue_copy(built.queue, out, buffers[out.size])
    return out
