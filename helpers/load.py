"""Keep one device busy through its own framework, so that lesson 00 can watch whether it is really used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from helpers.devices import Device

MATRIX = 1536  # rows and columns, float32: 9 MiB, and 7 GFLOP for a product
SLICE = 0.1  # seconds that one slice of work should take, so that a load can end in time

MULTIPLY_ADD = """
__kernel void multiply_add(__global float *x, const int rounds) {
    float v = x[get_global_id(0)];
    for (int r = 0; r < rounds; r++) v = v * 0.999f + 0.001f;
    x[get_global_id(0)] = v;
}
"""


def prepare(device: Device) -> Callable[[], None]:
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
