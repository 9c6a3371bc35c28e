"""Lesson 06's tinygrad: whether it runs here, the OpenCL that it writes, and that OpenCL started by PyOpenCL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers import ROOT
from helpers.compute import devices
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from helpers.measure.tables import Table
    from helpers.measure.timing import Measurement


def opencl_loader() -> str | None:
    """Return the OpenCL loader inside PyOpenCL's wheel, for tinygrad's OPENCL_PATH.

    None where the wheel has none (Windows, macOS, conda): tinygrad then looks for the system's own.
    """
    found = find_spec("pyopencl")
    folder = Path(found.origin).parent / ".libs" if found and found.origin else Path()
    return next((str(file) for file in sorted(folder.glob("libOpenCL*.so*"))), None)


def no_tinygrad() -> str:
    """Return why tinygrad cannot run here, and what helps; empty if nothing speaks against it."""
    return no_opencl() if devices.installed("tinygrad") else f"skipped: {devices.not_installed('tinygrad')}"


def no_opencl() -> str:
    """Return why no OpenCL device can be used here, and what helps; empty if one can."""
    from helpers.compute import opencl

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

    from helpers.compute import opencl

    device = opencl.pick_device()
    from tinygrad.runtime.autogen.opencl import cl_device_id
    from tinygrad.runtime.ops_cl import CLDevice

    CLDevice.device_ids = (cl_device_id * 1)(ctypes.cast(device.int_ptr, cl_device_id))
    return opencl.name(device)


def own_choice() -> str:
    """Return the OpenCL device that `DEV=CL` takes by itself: the first platform's first GPU, or its default device."""
    import pyopencl as cl

    from helpers.compute import opencl

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
    from helpers.compute import opencl

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

        from helpers.compute import opencl

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
        from helpers.compute import opencl
        from helpers.measure import timing

        return timing.measure(self.run, device=opencl.name(self.device), on=self.queue, repeats=repeats)


def gflops_table(timed: Mapping[str, Measurement], operations: int) -> Table:
    """Return a table of speeds: the median, and the middle half of the runs.

    Args:
        timed: for each name its runs.
        operations: additions and multiplications of one run.
    """
    from helpers.measure.tables import Table

    rows = []
    for name, run in timed.items():
        fast, slow = run.quartiles
        low, middle, high = (operations / seconds / 1e9 for seconds in (slow, run.median, fast))
        rows.append([name, f"{middle:.3g} ({low:.3g} to {high:.3g})", run.device])
    return Table(rows, ["kernel", "GFLOP/s (middle half)", "on"])
