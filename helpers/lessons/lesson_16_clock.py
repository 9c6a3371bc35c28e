"""Lesson 16's attention beside the clock: in three kernels, in one, and what moving the table alone takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.lessons import lesson_16, lesson_16_faults
from helpers.measure import records, tables, timing

if TYPE_CHECKING:
    import pyopencl as cl

HEADS, D = 4, 16
TWIN, COPY = "one kernel, again", "copy the table twice"


def find_ways(queue: cl.CommandQueue, source: str, n: int) -> dict[str, Callable[[], None]]:
    """Return the ways that compute attention right, for HEADS heads of n rows, and a copy of their table's bytes.

    Args:
        queue: of the lesson's device.
        source: of the kernel `attention`.
        n: a multiple of 64.
    """
    q, k, v = np.random.default_rng(0).normal(size=(3, HEADS, n, D)).astype(np.float32)
    three, one, copy, read = _make_launches(queue, source, q, k, v)
    expected = lesson_16_faults.compute_attention(q, k, v)
    right = {}
    for label, launch in {"three kernels": three, "one kernel": one, TWIN: one}.items():
        launch()
        if np.allclose(read(), expected, 1e-3, 1e-3):
            right[label] = launch
        else:
            print(f"{label}: WRONG, so it is not timed")
    print(f"right, beside NumPy in float64: {'; '.join(right)}")
    return {**right, COPY: copy}


def _make_launches(
    queue: cl.CommandQueue, source: str, *given: np.ndarray
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None], Callable[[], np.ndarray]]:
    """Return attention in three kernels and in one, a copy of what the three move of the table, and a reader.

    The reader returns the answers of the last attention, of shape (heads, n, d).
    """
    import pyopencl as cl

    heads, n, d = given[0].shape
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    q, k, v, out = (cl.Buffer(queue.context, flags, hostbuf=array) for array in (*given, given[0]))
    s, copied = (cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * heads * n * n) for _ in range(2))
    attention = cl.Kernel(opencl.build(queue.context, source), "attention")
    program = opencl.build(queue.context, lesson_16.THREE_KERNELS)
    scores, softmax, gather = (cl.Kernel(program, name) for name in ("scores", "softmax", "gather"))

    def launch_one() -> None:
        attention(queue, (n, heads), (64, 1), q, k, v, out, np.int32(n), np.int32(0))

    def launch_three() -> None:
        scores(queue, (n, n, heads), (64, 1, 1), q, k, s, np.int32(n))
        softmax(queue, (n, heads), (64, 1), s, np.int32(n))
        gather(queue, (d, n, heads), (d, 4, 1), s, v, out, np.int32(n))

    def copy_twice() -> None:  # reads the table twice and writes it twice, as the three kernels do at least
        for _ in range(2):
            cl.enqueue_copy(queue, copied, s)

    def read() -> np.ndarray:
        answers = np.empty_like(given[0])
        cl.enqueue_copy(queue, answers, out)
        return answers

    return launch_three, launch_one, copy_twice, read


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


def describe_gain(runs: Mapping[str, timing.Measurement], label: str) -> str:
    """Return how many times as fast a way is as three kernels; "no claim" if chance may explain the gap.

    Args:
        runs: what `measure_ways` returned; one kernel, which it timed twice, shows what chance does.
        label: of the way.
    """
    three, run = runs["three kernels"], runs[label]
    twins = runs["one kernel"], runs[TWIN]
    return timing.describe_gain(three, run) if timing.is_claimable(three, run, twins) else "no claim"


def tabulate_ways(runs: Mapping[str, timing.Measurement], n: int) -> tables.Table:
    """Return each way's time with its spread and the recorded time, and what one kernel saves beside the copy.

    Args:
        runs: what `measure_ways` returned.
        n: the rows of a head.
    """
    rows = []
    for label, run in runs.items():
        low, high = map(timing.duration, run.quartiles)
        rows.append((label, timing.duration(run.median), f"{low} to {high}"))
    three, one, copy = (runs[label] for label in ("three kernels", "one kernel", COPY))
    gain = describe_gain(runs, "one kernel")
    below = [
        f"{one.device}; {HEADS} heads, n = {n:,}, d = {D}; medians of {timing.ENOUGH} runs in turn.",
        f"One kernel beside three: {gain}.",
    ]
    if gain != "no claim" and three.median > one.median:
        saved, moved = timing.duration(three.median - one.median), timing.duration(copy.median)
        below.append(f"One kernel saves {saved}; to copy the table twice takes {moved}.")
    return records.add_column(tables.Table(rows, ("way", "time", "middle half"), below), "16")
