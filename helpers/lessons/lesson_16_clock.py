"""Lesson 16's attention beside the clock: in three kernels, in one, and by the libraries that are here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers import devices
from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.lessons import lesson_15_clock, lesson_16, lesson_16_faults
from helpers.measure import records, tables, timing

if TYPE_CHECKING:
    import pyopencl as cl

HEADS, D = 4, 16
REST = 0.1  # seconds before each run: threads of the library before it look out for more work for a while


class Way(NamedTuple):
    """A way to compute attention."""

    run: Callable[[], Any]  # begins it, and returns what it will be in
    read: Callable[[Any], np.ndarray]  # its answers, of shape (heads, n, d), from what `run` returned
    device: str


def find_ways(queue: cl.CommandQueue, source: str, n: int) -> dict[str, Way]:
    """Return the ways to compute attention that are here and compute it right, for HEADS heads of n rows.

    Args:
        queue: of the lesson's device.
        source: of the kernel `attention`.
        n: a multiple of 64.
    """
    q, k, v = np.random.default_rng(0).normal(size=(3, HEADS, n, D)).astype(np.float32)
    one, three = _make_launches(queue, source, q, k, v)
    ways = {"three kernels": three, "one kernel": one, "one kernel, again": one}
    ways["NumPy"] = Way(functools.partial(_attend_by_numpy, q, k, v), np.asarray, cpu_name())
    for package, make in (("jax", _make_jax), ("torch", _make_torch)):
        if devices.is_installed(package):
            label, way = make(q, k, v)
            ways[label] = way
    expected = lesson_16_faults.compute_attention(q, k, v)
    right = {}
    for label, way in ways.items():
        if np.allclose(way.read(way.run()), expected, 1e-3, 1e-3):
            right[label] = way
        else:
            print(f"{label}: WRONG, so it is not timed")
    print(f"right, beside NumPy in float64: {'; '.join(right)}")
    return right


def _make_launches(queue: cl.CommandQueue, source: str, *given: np.ndarray) -> tuple[Way, Way]:
    """Return attention in one kernel, and in three."""
    import pyopencl as cl

    heads, n, d = given[0].shape
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    q, k, v, out = (cl.Buffer(queue.context, flags, hostbuf=array) for array in (*given, given[0]))
    s = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * heads * n * n)
    attention = cl.Kernel(opencl.build(queue.context, source), "attention")
    program = opencl.build(queue.context, lesson_16.THREE_KERNELS)
    scores, softmax, gather = (cl.Kernel(program, name) for name in ("scores", "softmax", "gather"))

    def launch_one() -> None:
        attention(queue, (n, heads), (64, 1), q, k, v, out, np.int32(n), np.int32(0))

    def launch_three() -> None:
        scores(queue, (n, n, heads), (64, 1, 1), q, k, s, np.int32(n))
        softmax(queue, (n, heads), (64, 1), s, np.int32(n))
        gather(queue, (d, n, heads), (d, 4, 1), s, v, out, np.int32(n))

    def read(_: object) -> np.ndarray:
        answers = np.empty_like(given[0])
        cl.enqueue_copy(queue, answers, out)
        return answers

    device = opencl.name(queue.device)
    return Way(launch_one, read, device), Way(launch_three, read, device)


def _attend_by_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return attention in float32, its rows of scores in memory."""
    scores = q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5)
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores @ v


def _make_jax(*given: np.ndarray) -> tuple[str, Way]:
    import jax

    q, k, v = (jax.device_put(array.swapaxes(0, 1)[None]) for array in given)  # of shape (1, n, heads, d)
    compiled = jax.jit(jax.nn.dot_product_attention)
    device = str(devices.find_default_device("jax"))
    return "JAX", Way(lambda: compiled(q, k, v), lambda answers: np.asarray(answers)[0].swapaxes(0, 1), device)


def _make_torch(*given: np.ndarray) -> tuple[str, Way]:
    import torch

    device = devices.find_default_device("torch")
    q, k, v = (torch.from_numpy(array)[None].to(device.identifier) for array in given)
    attend = torch.nn.functional.scaled_dot_product_attention
    return "PyTorch", Way(lambda: attend(q, k, v), lambda answers: answers[0].cpu().numpy(), str(device))


def measure_ways(queue: cl.CommandQueue, ways: Mapping[str, Way], n: int) -> dict[str, timing.Measurement]:
    """Time all ways in turn, and note the times for a record.

    Args:
        queue: of the lesson's device.
        ways: what `find_ways` returned.
        n: the rows of a head.
    """
    calls = {label: way.run for label, way in ways.items()}
    where = {label: way.device for label, way in ways.items()}
    is_gpu = opencl.kind(queue.device) == "gpu"
    runs = timing.measure_interleaved(calls, where, timing.ENOUGH, warmup=2, on=queue, rest=REST, wake=is_gpu)
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
    twins = runs["one kernel"], runs["one kernel, again"]
    return lesson_15_clock.describe_gain(three, run) if timing.is_claimable(three, run, twins) else "no claim"


def tabulate_ways(runs: Mapping[str, timing.Measurement], n: int) -> tables.Table:
    """Return each way's time with its spread, what may be claimed of it, and the recorded time if there is one.

    Args:
        runs: what `measure_ways` returned.
        n: the rows of a head.
    """
    rows = []
    for label, run in runs.items():
        low, high = map(timing.duration, run.quartiles)
        gain = describe_gain(runs, label) if label != "three kernels" else ""
        rows.append((label, run.device, timing.duration(run.median), f"{low} to {high}", gain))
    below = [f"{HEADS} heads, n = {n:,}, d = {D}; medians of {timing.ENOUGH} runs in turn."]
    headers = ("way", "computed by", "time", "middle half", "beside three kernels")
    table = tables.Table(rows, headers, below)
    recorded = records.add_column(table, "16")
    return recorded if any(row[-1] != tables.MISSING for row in recorded.rows) else table
