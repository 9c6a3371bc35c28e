"""Lesson 16's attention beside the clock, for a record."""

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
ONE, TWIN = "one kernel", "one kernel, again"


def find_ways(queue: cl.CommandQueue, n: int) -> dict[str, Callable[[], None]]:
    """Return the launch of exercise 3's kernel under two labels, for HEADS heads of n rows; none if it is wrong.

    Args:
        queue: of the lesson's device.
        n: a multiple of 64.
    """
    import pyopencl as cl

    q, k, v = np.random.default_rng(0).normal(size=(3, HEADS, n, D)).astype(np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(queue.context, flags, hostbuf=array) for array in (q, k, v, q)]
    attention = cl.Kernel(opencl.build(queue.context, lesson_16.ATTENTION), "attention")

    def launch() -> None:
        attention(queue, (n, HEADS), (64, 1), *buffers, np.int32(n), np.int32(0))

    launch()
    answers = np.empty_like(q)
    cl.enqueue_copy(queue, answers, buffers[3])
    is_right = np.allclose(answers, lesson_16_faults.compute_attention(q, k, v), 1e-3, 1e-3)
    print(f"{ONE}, beside NumPy in float64: {'right' if is_right else 'WRONG, so it is not timed'}")
    return {ONE: launch, TWIN: launch} if is_right else {}


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
