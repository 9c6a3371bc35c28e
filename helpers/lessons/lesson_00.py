"""Lesson 00, Check your setup: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from helpers import checks
from helpers.devices import Device
from helpers.errors import WorkshopError
from helpers.machine.monitor import Samples
from helpers.plots import BLUE, GREY, figure, show


@checks.verdict
def check_choose(learner: Callable[[list[str]], int]) -> Iterator[str]:
    """Lesson 00, exercise 1: the position of the first GPU, or of the first CPU where there is no GPU."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        awkward = [
            ["cpu"],
            ["gpu", "cpu"],
            ["cpu", "gpu", "cpu", "gpu"],
            ["accelerator", "cpu", "cpu"],
            ["cpu"] * 5 + ["gpu"],
        ]
        drawn = [[*rng.choice(["cpu", "gpu"], 6).tolist(), "cpu"] for _ in range(20)]
        return [(kinds,) for kinds in awkward + drawn]

    yield checks.judge_function(learner, lambda kinds: kinds.index("gpu" if "gpu" in kinds else "cpu"), cases)


@checks.verdict
def check_count_labels(learner: Callable[[np.ndarray], Sequence[int]]) -> Iterator[str]:
    """Lesson 00, exercise 2: how often each of the ten digits occurs."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(0, high, size=200),) for high in (10, 10, 9, 2)]
        return [(np.array([3, 3, 9]),), *drawn, (rng.integers(0, 10, size=5000),)]  # more than uint8 can count

    yield checks.judge_function(learner, lambda labels: np.bincount(labels, minlength=10), cases)


@checks.verdict
def check_is_used(learner: Callable[[list, list], bool]) -> Iterator[str]:
    """Lesson 00, exercise 3: is the lower quartile of the busy samples more than 5 above the idle ones' upper one."""

    def right(idle: list, busy: list) -> bool:
        return bool(np.percentile(busy, 25) - np.percentile(idle, 75) > 5)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [([1, 2, 3], [90, 95, 99]), ([90, 95, 99], [1, 2, 3]), ([1, 50, 99], [60, 70, 80])]
        close = [([4, 4], [9, 9]), ([4, 4], [10, 10]), ([0, 0, 0], [3, 3, 3]), ([9, 9], [4, 4]), ([10, 10], [4, 4])]
        skewed = [([0, 0, 0, 0, 99], [50, 51, 52, 53, 54]), ([0, 1, 1], [2, 90, 90, 90, 90]), ([0, 1, 2], [0, 0, 90])]
        drawn = [(rng.integers(0, 60, 8).tolist(), rng.integers(30, 100, 8).tolist()) for _ in range(30)]
        return plain + close + skewed + drawn

    yield checks.judge_function(learner, right, cases)


# ------------------------------------------------------------------------------------------------------ its figures


def idle_and_busy(samples: Samples, device: str) -> None:
    """Show how far a device was used while idle and while the lesson kept it busy.

    Args:
        samples: what `monitor.watch` saw; without a utilisation there is nothing to draw, and it says so.
        device: the name of the device.
    """
    taken = [
        (second, percent, phase)
        for second, percent, phase in zip(samples.times, samples.utilisation, samples.phases, strict=True)
        if percent is not None
    ]
    if not taken:
        print("no figure:", samples.problem or samples.description)
        return
    with figure(7.5, 3.0) as (drawn, axes):
        for phase, colour, marker in (("idle", GREY, "o"), ("busy", BLUE, "s")):
            points = [(second, percent) for second, percent, was in taken if was == phase]
            axes.plot(
                *(zip(*points, strict=True) if points else ((), ())), color=colour, marker=marker, ms=4, label=phase
            )
        axes.set(xlabel="time (s)", ylabel="utilisation (%)", title=device)
        axes.set_ylim(-5, max([115, *(percent for _, percent, _ in taken)]))
        axes.legend(loc="upper left", ncols=2)
    show(drawn, f"Utilisation of {device} in percent over time, idle first and then busy. {samples.verdict()}")


# ---------------------------------------------------------------------------------------------------- its machinery


MATRIX = 1536  # rows and columns, float32: 9 MiB, and 7 GFLOP for a product
SLICE = 0.1  # seconds that one slice of work should take, so that a load can end in time

MULTIPLY_ADD = """
__kernel void multiply_add(__global float *x, const int rounds) {
    float v = x[get_global_id(0)];
    for (int r = 0; r < rounds; r++) v = v * 0.999f + 0.001f;
    x[get_global_id(0)] = v;
}
"""


def keep_busy(device: Device) -> Callable[[], None]:
    """Return a function that keeps `device` busy for about a tenth of a second, and waits until it is done.

    Args:
        device: one of those that `helpers.devices.find` lists.

    Raises:
        WorkshopError: the workshop has no load for this framework.
    """
    if device.framework not in LOADS:
        raise WorkshopError(f"There is no load for {device.framework}.", next=f"Choose a device of {', '.join(LOADS)}.")
    return LOADS[device.framework](device)


def _opencl(device: Device) -> Callable[[], None]:
    """Multiply and add in registers, on many work-items: no memory traffic, all arithmetic."""
    import time

    import numpy as np
    import pyopencl as cl

    from helpers import opencl

    platform, number = map(int, device.identifier.split(":"))
    chosen = cl.get_platforms()[platform].get_devices()[number]
    context = cl.Context([chosen])
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(opencl.build(context, MULTIPLY_ADD), "multiply_add")
    items = 4096 * chosen.max_compute_units
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=4 * items)

    def run(rounds: int) -> None:
        kernel(queue, (items,), None, x, np.int32(rounds)).wait()

    rounds = 100
    run(rounds)  # compiles
    while True:  # a fast GPU needs a thousand times the rounds of a laptop's processor
        start = time.perf_counter()
        run(rounds)
        if time.perf_counter() - start > SLICE / 4 or rounds > 10**8:
            break
        rounds *= 4

    def work() -> None:
        for _ in range(4):
            run(rounds)

    return work


def _tensorflow(device: Device) -> Callable[[], None]:
    from helpers.quiet import caught_stderr

    with caught_stderr():
        import tensorflow as tf

        with tf.device(device.identifier):
            matrix = tf.random.uniform((MATRIX, MATRIX))

        def work() -> None:
            with tf.device(device.identifier):
                (matrix @ matrix)[0, 0].numpy()

        work()  # the first operation writes log lines too
    return work


def _jax(device: Device) -> Callable[[], None]:
    import jax

    kind, number = device.identifier.split(":")
    chosen = jax.devices(kind)[int(number)]
    matrix = jax.device_put(jax.numpy.ones((MATRIX, MATRIX), "float32"), chosen)
    product = jax.jit(lambda m: m @ m)

    def work() -> None:
        product(matrix).block_until_ready()

    work()  # compiles
    return work


def _torch(device: Device) -> Callable[[], None]:
    import torch

    matrix = torch.rand(MATRIX, MATRIX, device=device.identifier)

    def work() -> None:
        (matrix @ matrix)[0, 0].item()

    return work


LOADS = {"opencl": _opencl, "tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
