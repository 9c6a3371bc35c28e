"""Lesson 16's attention beside the clock, for a record: in three kernels and in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.lessons import lesson_16, lesson_16_faults
from helpers.measure import records, timing

if TYPE_CHECKING:
    import pyopencl as cl

HEADS, D = 4, 16
ONE, TWIN, THREE = "one kernel", "one kernel, again", "three kernels"
# Attention with its rows of scores in memory: work-items (n, n, heads), then (n, heads), then (D, n, heads).
THREE_KERNELS = """
#define D 16
__kernel void scores(__global const float *q, __global const float *k, __global float *s, int n) {
    int j = get_global_id(0), i = get_global_id(1), head = n * get_global_id(2);
    float score = 0;
    for (int c = 0; c < D; c++) score += q[(head + i) * D + c] * k[(head + j) * D + c];
    s[(head + i) * n + j] = score / sqrt((float)D);
}
__kernel void softmax(__global float *s, int n) {
    int row = (n * get_global_id(1) + get_global_id(0)) * n;
    float largest = -INFINITY, sum = 0;
    for (int j = 0; j < n; j++) largest = fmax(largest, s[row + j]);
    for (int j = 0; j < n; j++) sum += exp(s[row + j] - largest);
    for (int j = 0; j < n; j++) s[row + j] = exp(s[row + j] - largest) / sum;
}
__kernel void gather(__global const float *s, __global const float *v, __global float *out, int n) {
    int c = get_global_id(0), i = get_global_id(1), head = n * get_global_id(2);
    float answer = 0;
    for (int j = 0; j < n; j++) answer += s[(head + i) * n + j] * v[(head + j) * D + c];
    out[(head + i) * D + c] = answer;
}
"""


def find_ways(queue: cl.CommandQueue, n: int) -> dict[str, Callable[[], None]]:
    """Return the ways that compute attention right, for HEADS heads of n rows.

    Args:
        queue: of the lesson's device.
        n: a multiple of 64.
    """
    q, k, v = np.random.default_rng(0).normal(size=(3, HEADS, n, D)).astype(np.float32)
    ways, read = _make_launches(queue, q, k, v)
    expected = lesson_16_faults.compute_attention(q, k, v)
    right = {}
    for label, launch in ways.items():
        launch()
        if np.allclose(read(), expected, 1e-3, 1e-3):
            right[label] = launch
        else:
            print(f"{label}: WRONG, so it is not timed")
    print(f"right, beside NumPy in float64: {len(right)} of {len(ways)} ways")
    return right


def _make_launches(
    queue: cl.CommandQueue, *given: np.ndarray
) -> tuple[dict[str, Callable[[], None]], Callable[[], np.ndarray]]:
    """Return the launches of all ways, and what reads the answers of the last one, of shape (heads, n, d)."""
    import pyopencl as cl

    heads, n, d = given[0].shape
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    q, k, v, out = (cl.Buffer(queue.context, flags, hostbuf=array) for array in (*given, given[0]))
    s = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * heads * n * n)
    attention = cl.Kernel(opencl.build(queue.context, lesson_16.ATTENTION), "attention")
    program = opencl.build(queue.context, THREE_KERNELS)
    scores, softmax, gather = (cl.Kernel(program, name) for name in ("scores", "softmax", "gather"))

    def launch_one() -> None:
        attention(queue, (n, heads), (64, 1), q, k, v, out, np.int32(n), np.int32(0))

    def launch_three() -> None:
        scores(queue, (n, n, heads), (64, 1, 1), q, k, s, np.int32(n))
        softmax(queue, (n, heads), (64, 1), s, np.int32(n))
        gather(queue, (d, n, heads), (d, 4, 1), s, v, out, np.int32(n))

    def read() -> np.ndarray:
        answers = np.empty_like(given[0])
        cl.enqueue_copy(queue, answers, out)
        return answers

    return {THREE: launch_three, ONE: launch_one, TWIN: launch_one}, read


def measure_ways(
    queue: cl.CommandQueue, ways: Mapping[str, Callable[[], object]], n: int
) -> dict[str, timing.Measurement]:
    """Time all ways in turn, and note the times for a record.

    Args:
        queue: of the lesson's device.
        ways: what `find_ways` returned.
        n: the rows of a head.
    """
    device, is_gpu = opencl.name(queue.device), opencl.kind(queue.device) == "gpu"
    runs = timing.measure_interleaved(ways, device, timing.ENOUGH, warmup=2, on=queue, wake=is_gpu)
    for run in runs.values():
        records.add_run(run, amount=f"{HEADS} heads, n = {n:,}, d = {D}")
    return runs
