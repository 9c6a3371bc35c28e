"""The works in which our own kernels compute: OpenCL C and WGSL, one source for every device. And NumPy's two."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import products
from helpers.ranking import tasks
from helpers.ranking.tasks import ADDED, COPIED, MEMORY, PEAK, PRODUCT, Prepare, Work

if TYPE_CHECKING:
    import pyopencl as cl


def by_numpy(identifier: str, kind: str) -> dict[str, Prepare]:
    """NumPy: a copy on one core, and the product of its BLAS on all."""

    def copy() -> Work:
        source, target = np.arange(COPIED, dtype=np.float32), np.zeros(COPIED, np.float32)
        return tasks.vector_work("64 MiB, one core", 8.0 * COPIED, lambda: np.copyto(target, source), tasks.no_wait,
                                 lambda: target, source)  # fmt: skip

    def product() -> Work:
        size = tasks.size_for(kind, by_library=True)
        a, b = tasks.matrices(size)
        c = np.empty_like(a)
        return tasks.product_work(size, lambda: np.matmul(a, b, out=c), tasks.no_wait, lambda: c)

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
# what is added, whatever it began with: the result is known, 2 (1 + 2 + ... + 8). The beginnings come from memory: a
# compiler that sees all work-items begin alike computes one for all, as Intel's did, and reached three times the peak.
OPENCL_PEAK = """
__kernel void peak(__global VECTOR *out, const float factor) {
    VECTOR sums[8], total = 0;
    for (int chain = 0; chain < 8; chain++)
        sums[chain] = out[get_global_id(0)] + (VECTOR)(chain);
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
# Work-items of a group of the peak's kernel. Without a size PoCL on two cores made two groups, and a thread that came
# first could take both: the other one had nothing to do, and the call took twice as long.
PEAK_GROUP = 64


def by_opencl(identifier: str, kind: str) -> dict[str, Prepare]:
    """OpenCL: the peak, a copy, lesson 01's addition, and one kernel for the product; on platform:device."""
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

    def finish(_: object) -> None:
        queue.finish()

    def peak() -> Work:
        def seconds(one: Work) -> float:
            one.do(1)  # the first call of a kernel finishes its compilation
            begin = time.perf_counter()
            one.do(2)
            return time.perf_counter() - begin

        return min((peak_of(width) for width in PEAK_WIDTHS), key=seconds)  # all do the same number of operations

    def peak_of(width: int) -> Work:
        items = (2**16 if kind == "cpu" else 2**20) // width
        numbers = f"float{width}" if width > 1 else "float"
        program = products.build_quietly(context, f"#define VECTOR {numbers}\n{OPENCL_PEAK}")
        out = np.arange(items * width, dtype=np.float32)
        there, one = upload(out), cl.Kernel(program, "peak")
        launch = partial(one, queue, (items,), (PEAK_GROUP,), there, np.float32(0.5))
        return tasks.vector_work(f"8 chains of {numbers}", 2.0 * 8 * 1000 * len(out), launch, finish,
                                 lambda: download(there, out), np.full_like(out, PEAK_RESULT))  # fmt: skip

    def copy() -> Work:
        source = np.arange(COPIED, dtype=np.float32)
        there, back, one = upload(source), empty(source), kernel("copy")
        launch = partial(one, queue, (COPIED,), None, there, back)
        return tasks.vector_work("64 MiB, by a kernel", 8.0 * COPIED, launch, finish,
                                 lambda: download(back, source), source)  # fmt: skip

    def add() -> Work:
        a, b = added()
        buffers, one = [upload(a), upload(b), empty(a)], kernel("add")
        launch = partial(one, queue, (ADDED,), None, *buffers)
        return tasks.vector_work(f"{ADDED:,} floats", 12.0 * ADDED, launch, finish,
                                 lambda: download(buffers[2], a), a + b)  # fmt: skip

    def product() -> Work:
        size = tasks.size_for(kind, by_library=False)
        a, b = tasks.matrices(size)
        buffers, one = [upload(a), upload(b), empty(a)], kernel("product")
        launch = partial(one, queue, (size // 4, size // 4), None, *buffers, np.int32(size))
        return tasks.product_work(size, launch, finish, lambda: download(buffers[2], a))

    return {PEAK: peak, MEMORY: copy, "OpenCL vector add": add, "OpenCL product": product}


def added() -> tuple[np.ndarray, np.ndarray]:
    """Return two vectors whose sums float32 holds exactly."""
    a = np.arange(ADDED, dtype=np.float32)
    return a, -a[::-1]


# ------------------------------------------------------------------------------------------------------ WebGPU

WGSL_VECTOR = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.y * groups.x * 64u + id.x;
    c[i] = a[i] EXPRESSION;
}
"""
WGSL_PRODUCT = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;

// Each invocation computes 4 x 4 numbers of C = A B.
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x;
    let row = 4u * id.y;
    var sum0 = vec4<f32>(); var sum1 = vec4<f32>(); var sum2 = vec4<f32>(); var sum3 = vec4<f32>();
    for (var k = 0u; k < SIZEu; k++) {
        let right = b[k * (SIZEu / 4u) + column];
        sum0 += a[row * SIZEu + k] * right;
        sum1 += a[(row + 1u) * SIZEu + k] * right;
        sum2 += a[(row + 2u) * SIZEu + k] * right;
        sum3 += a[(row + 3u) * SIZEu + k] * right;
    }
    c[row * (SIZEu / 4u) + column] = sum0;
    c[(row + 1u) * (SIZEu / 4u) + column] = sum1;
    c[(row + 2u) * (SIZEu / 4u) + column] = sum2;
    c[(row + 3u) * (SIZEu / 4u) + column] = sum3;
}
"""
GROUPS_A_ROW = 2**14  # of a launch: no device has to take more than 65,535 in one dimension


def by_webgpu(identifier: str, kind: str) -> dict[str, Prepare]:
    """WebGPU: a copy, an addition, and one shader for the product; on the adapter with that number."""
    from helpers.compute import webgpu

    adapter = webgpu.adapters()[int(identifier)]
    size_limits = ("max-storage-buffer-binding-size", "max-buffer-size")
    device = webgpu.request_device(adapter, limits={name: adapter.limits[name] for name in size_limits})
    vector_groups = (GROUPS_A_ROW, COPIED // 64 // GROUPS_A_ROW)

    def prepared(source: str, arrays: list[np.ndarray], groups: tuple[int, int]) -> tuple:
        """Return what launches, what waits, and what reads the last array."""
        kernel = webgpu.Kernel(device, source)
        buffers = [webgpu.buffer(device, array) for array in arrays]
        bound = kernel.bind(dict(enumerate(buffers)))
        launch = partial(kernel.submit, bound, groups)
        return launch, lambda _: webgpu.wait(device), lambda: webgpu.read(device, buffers[-1], arrays[-1])

    def copy() -> Work:
        source = np.arange(COPIED, dtype=np.float32)
        text = WGSL_VECTOR.replace(" EXPRESSION", "").replace("@group(0) @binding(1)", "// ").replace("2)", "1)")
        parts = prepared(text, [source, np.full_like(source, np.nan)], vector_groups)
        return tasks.vector_work("64 MiB, by a shader", 8.0 * COPIED, *parts, source)

    def add() -> Work:
        a, b = added()
        text = WGSL_VECTOR.replace("EXPRESSION", "+ b[i]")
        parts = prepared(text, [a, b, np.full_like(a, np.nan)], vector_groups)
        return tasks.vector_work(f"{ADDED:,} floats", 12.0 * ADDED, *parts, a + b)

    def product() -> Work:
        size = tasks.size_for(kind, by_library=False)
        a, b = tasks.matrices(size)
        text = WGSL_PRODUCT.replace("SIZE", str(size))
        return tasks.product_work(size, *prepared(text, [a, b, np.full_like(a, np.nan)], (size // 32, size // 32)))

    return {MEMORY: copy, "WebGPU vector add": add, "WebGPU product": product}
