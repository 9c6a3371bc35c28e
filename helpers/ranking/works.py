"""What is timed: for each framework the tasks that it can do on one device, each checked before its clock starts.

A function here returns {task: prepare}. `prepare()` uploads, builds, and returns a `Work`. Every call of a `Work` ends
with the framework's own way of waiting for the device: without it a clock would measure how fast work is handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers import products
from helpers.ranking import tasks
from helpers.ranking.tasks import ADDED, COPIED, MEMORY, PEAK, PRODUCT

if TYPE_CHECKING:
    import pyopencl as cl


@dataclass(frozen=True)
class Work:
    """One task on one device, ready to be timed."""

    what: str  # sizes and types, for people
    amount: float  # bytes, operations or images of one call
    call: Callable[[int], object]  # does it so often, and returns when the device has finished
    check: Callable[[], str]  # compares with NumPy after a call; returns what was compared, raises Refused


Prepare = Callable[[], Work]


def product_work(kind: str, call: Callable[[int], object], result: Callable[[], np.ndarray], **how: Any) -> Work:  # noqa: ANN401
    """Return the work of a matrix product.

    Args:
        kind: of the device; it decides the size.
        call: multiplies so often.
        result: returns the last product as float32.
        how: `dtype` for people, `tolerance` of the check, `by_library`.
    """
    size = tasks.size_for(kind, how.get("by_library", True))
    return Work(
        f"{size:,} x {size:,}, {how.get('dtype', 'float32')}",
        2.0 * size**3,
        call,
        lambda: tasks.check_product(result(), size, how.get("tolerance", 1e-3)),
    )


# ------------------------------------------------------------------------------------------------------- NumPy


def by_numpy(identifier: str, kind: str) -> dict[str, Prepare]:
    """NumPy: a copy on one core, and the product of its BLAS on all."""

    def copy() -> Work:
        source, target = np.arange(COPIED, dtype=np.float32), np.zeros(COPIED, np.float32)

        def call(loops: int) -> None:
            for _ in range(loops):
                np.copyto(target, source)

        return Work("128 MiB, one core", 8.0 * COPIED, call, lambda: tasks.check_vector(target, source))

    def product() -> Work:
        a, b = tasks.matrices(tasks.size_for(kind, True))
        c = np.empty_like(a)

        def call(loops: int) -> None:
            for _ in range(loops):
                np.matmul(a, b, out=c)

        return product_work(kind, call, lambda: c)

    return {MEMORY: copy, PRODUCT: product}


# ------------------------------------------------------------------------------------------------------ OpenCL

OPENCL = """
__kernel void copy(__global const float *from, __global float *to) {
    to[get_global_id(0)] = from[get_global_id(0)];
}
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
    c[get_global_id(0)] = a[get_global_id(0)] + b[get_global_id(0)];
}
// Each work-item computes 4 x 4 numbers of C = A B; n is a multiple of 4.
__kernel void product(__global const float *a, __global const float4 *b, __global float4 *c, const int n) {
    int column = get_global_id(0), row = 4 * get_global_id(1);
    float4 sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    for (int k = 0; k < n; k++) {
        float4 right = b[k * (n / 4) + column];
        sum0 += a[row * n + k] * right;
        sum1 += a[(row + 1) * n + k] * right;
        sum2 += a[(row + 2) * n + k] * right;
        sum3 += a[(row + 3) * n + k] * right;
    }
    c[row * (n / 4) + column] = sum0;
    c[(row + 1) * (n / 4) + column] = sum1;
    c[(row + 2) * (n / 4) + column] = sum2;
    c[(row + 3) * (n / 4) + column] = sum3;
}
"""
# Multiply and add in registers, 8 chains side by side, as in lesson 02. With a factor of 1/2 every chain ends at twice
# what is added, so that the result is known: 2 (1 + 2 + ... + 8).
OPENCL_PEAK = """
__kernel void peak(__global VECTOR *out, const float factor) {
    VECTOR sums[8] = {0}, total = 0;
    for (int i = 0; i < 1000; i++) {
        #pragma unroll
        for (int chain = 0; chain < 8; chain++)
            sums[chain] = sums[chain] * factor + (VECTOR)(chain + 1);
    }
    for (int chain = 0; chain < 8; chain++)
        total += sums[chain];
    out[get_global_id(0)] = total;
}
"""
PEAK_RESULT = 72.0
PEAK_WIDTHS = (1, 4, 8, 16)  # floats of a vector; the fastest is the peak


def by_opencl(identifier: str, kind: str) -> dict[str, Prepare]:
    """OpenCL: the peak, a copy, lesson 01's addition, and one kernel for the product on every device."""
    import pyopencl as cl

    platform, number = map(int, identifier.split(":"))
    device = cl.get_platforms()[platform].get_devices()[number]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    built: list[cl.Program] = []
    flags = cl.mem_flags

    def kernel(name: str) -> cl.Kernel:
        if not built:
            built.append(products.build_quietly(context, OPENCL))
        return cl.Kernel(built[0], name)

    def upload(array: np.ndarray) -> cl.Buffer:
        return cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array)

    def empty(like: np.ndarray) -> cl.Buffer:
        return upload(np.full_like(like, np.nan))

    def download(buffer: cl.Buffer, like: np.ndarray) -> np.ndarray:
        result = np.empty_like(like)
        cl.enqueue_copy(queue, result, buffer)
        return result

    def calls(launch: Callable[[], object]) -> Callable[[int], None]:
        def call(loops: int) -> None:
            for _ in range(loops):
                launch()
            queue.finish()

        return call

    def peak() -> Work:
        import time

        items = 2**14 if kind == "cpu" else 2**20
        found = []
        for width in PEAK_WIDTHS:
            vector = f"float{width}" if width > 1 else "float"
            program = products.build_quietly(context, f"#define VECTOR {vector}\n{OPENCL_PEAK}")
            out = np.full(items * width, np.nan, np.float32)
            there, one = upload(out), cl.Kernel(program, "peak")
            call = calls(partial(one, queue, (items,), None, there, np.float32(0.5)))
            call(1)
            begin = time.perf_counter()
            call(2)
            seconds = time.perf_counter() - begin
            check = partial(lambda there, out: tasks.check_vector(download(there, out), np.full_like(out, PEAK_RESULT)),
                            there, out)  # fmt: skip
            work = Work(f"8 chains of {vector}", 2.0 * 8 * width * 1000 * items, call, check)
            found.append((work.amount / seconds, len(found), work))
        return max(found)[2]

    def copy() -> Work:
        source = np.arange(COPIED, dtype=np.float32)
        there, back = upload(source), empty(source)
        one = kernel("copy")
        call = calls(lambda: one(queue, (COPIED,), None, there, back))
        return Work("128 MiB, by a kernel", 8.0 * COPIED, call,
                    lambda: tasks.check_vector(download(back, source), source))  # fmt: skip

    def add() -> Work:
        a = np.arange(ADDED, dtype=np.float32)
        b = np.float32(2) * a[::-1]
        buffers = [upload(a), upload(b), empty(a)]
        one = kernel("add")
        call = calls(lambda: one(queue, (ADDED,), None, *buffers))
        return Work(f"{ADDED:,} floats", 12.0 * ADDED, call,
                    lambda: tasks.check_vector(download(buffers[2], a), a + b))  # fmt: skip

    def product() -> Work:
        size = tasks.size_for(kind, False)
        a, b = tasks.matrices(size)
        buffers, one = [upload(a), upload(b), empty(a)], kernel("product")
        call = calls(lambda: one(queue, (size // 4, size // 4), None, *buffers, np.int32(size)))
        return product_work(kind, call, lambda: download(buffers[2], a), by_library=False)

    return {PEAK: peak, MEMORY: copy, "OpenCL vector add": add, "OpenCL product": product}


FRAMEWORKS: dict[str, Callable[[str, str], dict[str, Prepare]]] = {
    "numpy": by_numpy,
    "opencl": by_opencl,
}
# The same without preparing anything: what a framework that cannot start would have done.
_BY_KERAS = (MEMORY, PRODUCT, "16-bit product", "MLP training", "CNN training", "CNN inference", "CNN, one image")
DOES = {
    "numpy": (MEMORY, PRODUCT),
    "opencl": (PEAK, MEMORY, "OpenCL vector add", "OpenCL product"),
    "webgpu": (MEMORY, "WebGPU vector add", "WebGPU product"),
    "tensorflow": _BY_KERAS,
    "jax": _BY_KERAS,
    "torch": _BY_KERAS,
    "onnxruntime": (PRODUCT, "CNN inference", "CNN, one image"),
}
PACKAGES = {"opencl": "pyopencl", "webgpu": "wgpu"}


def version(framework: str) -> str:
    """Return the version of a framework's Python package."""
    from importlib import metadata

    try:
        return metadata.version(PACKAGES.get(framework, framework))
    except metadata.PackageNotFoundError:  # TensorFlow's package has several names
        import sys

        return str(getattr(sys.modules.get(framework), "__version__", ""))


def variables(framework: str, identifier: str, kind: str) -> dict[str, str | None]:
    """Return the environment variables that a framework must find at its start to use this device.

    Args:
        framework: one of FRAMEWORKS.
        identifier: of the device, as the framework calls it.
        kind: of the device.
    """
    gentle = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if framework not in ("tensorflow", "jax", "torch"):
        return dict(gentle)
    chosen: dict[str, str | None] = {**gentle, "KERAS_BACKEND": framework}
    if framework == "jax" and kind == "cpu":
        chosen["JAX_PLATFORMS"] = "cpu"
    if framework == "torch":
        chosen["KERAS_TORCH_DEVICE"] = identifier
    return chosen
