"""The proof that a device computes: a small matrix product on it, compared with NumPy's.

A device that is listed may hold no code for its generation, fall back to the processor, or give wrong numbers without
an error. For each framework one function multiplies two matrices on one device; `prove` judges what comes back.
`helpers.devices.webgpu` has its own.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.devices.device import LOOP_FAULT, RIGHT, Device
from helpers.running.quiet import caught_stderr

if TYPE_CHECKING:
    import jax
    import numpy as np
    import pyopencl as cl

    from helpers.devices.device import Multiply

SIZE = 64  # rows and columns
SIMULATOR_SIZE = 16  # the same for a simulator, which needs a second for 64
CANNOT_COMPILE = "cannot compile"  # in the reason why a device of OpenCL fails
FELL_BACK = "it fell back to the processor"
# float32 is exact to 1e-7, but a framework may round the factors first: to 10 bits on NVIDIA's tensor cores (TF32), to
# 7 on Google's TPUs (bfloat16). A device that is wrong is wrong by far more.
TOLERANCE = 0.01  # of the largest number of the product
OPENCL = """
__kernel void product(__global const float *a, __global const float *b, __global float *c, const int n) {
    int row = get_global_id(0), column = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""
# A right sum of 64 numbers as a tree. PoCL 3.0 and 3.1 give the first number alone: their usual way to run a work-group
# (WorkitemLoops) compiles some loops with a barrier wrongly if the condition itself asks get_local_size,
# get_num_groups, get_global_size or get_work_dim. PoCL 6.0 and 7.1 are right, and issue 1390 of pocl/pocl reports it of
# 4.0. The array is twice as long as the loop needs, in case a driver is wrong in another way.
LOOP = """
__kernel void add_as_tree(__global const int *x, __global int *out) {
    __local int part[128];
    int me = get_local_id(0);
    part[me] = x[me];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 1; step < get_local_size(0); step *= 2) {
        if (me % (2 * step) == 0)
            part[me] += part[me + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0)
        out[0] = part[0];
}
"""
# An ONNX file with one operator, y = MatMul(a, b), opset 13: what the package onnx writes, without needing it.
ONNX = (
    b'\x08\x08:=\n\x11\n\x01a\n\x01b\x12\x01y"\x06MatMul\x12\x07productZ\t\n\x01a\x12\x04\n\x02\x08\x01'
    b"Z\t\n\x01b\x12\x04\n\x02\x08\x01b\t\n\x01y\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)
CPU_PROVIDER = "CPUExecutionProvider"


class Refused(RuntimeError):
    """Why a device does not do the work, in words of ours."""


def prove(device: Device) -> str:
    """Let a device multiply two matrices in this process, and compare their product with NumPy's.

    Whole numbers first, from -8 to 8: every sum is exact in float32, and the factors are in every shorter format, so
    that the result must be equal. Then fractions.

    Args:
        device: as it was listed in this process.

    Returns:
        "right", LOOP_FAULT, or "wrong: ..." or "failed: ..." with the reason in one line.
    """
    import numpy as np

    if device.prepare is None:
        raise ValueError(f"{device} was listed by another process, so it cannot be tried in this one")
    size = SIMULATOR_SIZE if device.kind == "simulator" else SIZE
    rng = np.random.default_rng(0)
    pairs = (
        ("whole numbers", 0.0, rng.integers(-8, 9, (2, size, size)).astype(np.float32)),
        ("fractions", TOLERANCE, rng.random((2, size, size), dtype=np.float32)),
    )
    try:
        multiply = device.prepare()
        products = [np.asarray(multiply(a, b)) for _, _, (a, b) in pairs]
    except Refused as error:
        return f"failed: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {take_first_line(error)}"
    for (what, tolerance, (a, b)), actual in zip(pairs, products, strict=True):
        expected = a @ b
        if actual.shape != expected.shape:
            return f"wrong: a product of shape {actual.shape}, expected {expected.shape}"
        off = np.abs(actual.astype(float) - expected)
        bad = int(np.count_nonzero(~(off <= tolerance * np.abs(expected).max())))  # not a number is bad, too
        if bad:
            most = f"by up to {np.nanmax(off):.3g}" if np.isfinite(off).any() else "not a number"
            return f"wrong: {most}, in {bad:,} of {off.size:,} {what}"
    return LOOP_FAULT if device.has_wrong_loop and device.has_wrong_loop() else RIGHT


def take_first_line(error: Exception | str) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or "no reason given").splitlines()[0]


def build_quietly(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Compile OpenCL C without what compilers write past Python, and without a file left behind when it fails.

    Raises:
        pyopencl.Error: the source does not compile; its text holds the compiler's log.
    """
    import pyopencl as cl

    program = cl.Program(context, source)
    os.environ.setdefault("PYOPENCL_CACHE_FAILURE_FATAL", "")  # PyOpenCL 2026.1 raises KeyError where it is not set
    try:
        with warnings.catch_warnings(), caught_stderr():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # some compilers talk when nothing is wrong
            program.build(list(options))
    except cl.Error as error:
        saved = re.search(r"\(source saved as (.+)\)", str(error))  # PyOpenCL's copy, in the temporary folder
        if saved:
            Path(saved[1]).unlink(missing_ok=True)
        raise
    return program


def find_reason(error: Exception) -> str:
    """Return the line with the reason from what a compiler of OpenCL says."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line.startswith("error")), lines[0])


def prepare_opencl(device: cl.Device) -> Multiply:
    """Multiply on a device of OpenCL, with a kernel of our own.

    Raises:
        Refused: it does not compile.
    """
    import numpy as np
    import pyopencl as cl

    context = cl.Context([device])
    try:
        kernel = cl.Kernel(build_quietly(context, OPENCL), "product")
    except cl.Error as error:
        raise Refused(f"it {CANNOT_COMPILE}: {find_reason(error)}") from None
    queue = cl.CommandQueue(context)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        there = [cl.Buffer(context, flags, hostbuf=matrix) for matrix in (a, b)]
        product = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, size=a.nbytes)
        kernel(queue, a.shape, None, *there, product, np.int32(len(a)))
        result = np.full_like(a, np.nan)
        cl.enqueue_copy(queue, result, product)
        return result

    return multiply


def has_wrong_opencl_loop(device: cl.Device) -> bool:
    """Return whether a device of OpenCL gives a wrong sum by a right loop; False also if it cannot run the loop."""
    import numpy as np
    import pyopencl as cl

    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    try:
        kernel = cl.Kernel(build_quietly(context, LOOP), "add_as_tree")
        most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
        items = 1 << min(most, SIZE).bit_length() - 1  # a power of two; Apple's processors allow 1
        numbers, result = np.arange(1, items + 1, dtype=np.int32), np.zeros(1, np.int32)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        there = cl.Buffer(context, flags, hostbuf=numbers)
        out = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, size=result.nbytes)
        kernel(queue, (items,), (items,), there, out)
        cl.enqueue_copy(queue, result, out)
    except cl.Error:
        return False
    return bool(result[0] != numbers.sum())


def prepare_tensorflow(identifier: str) -> Multiply:
    """Multiply on a device of TensorFlow, such as "/GPU:0"; TensorFlow would go on silently on the processor."""
    import tensorflow as tf

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with tf.device(identifier):
            product = tf.linalg.matmul(tf.constant(a), tf.constant(b))
        if not product.device.endswith(identifier.lstrip("/")):
            raise Refused(f"it fell back to {product.device.rpartition('device:')[2]}")
        return product.numpy()

    return multiply


def prepare_jax(there: jax.Device) -> Multiply:
    """Multiply on a device of JAX."""
    import jax
    import numpy as np

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(jax.numpy.matmul(jax.device_put(a, there), jax.device_put(b, there)))

    return multiply


def prepare_torch(identifier: str) -> Multiply:
    """Multiply on a device of PyTorch, such as "cuda:0"."""
    import torch

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        product = torch.from_numpy(a).to(identifier) @ torch.from_numpy(b).to(identifier)
        return product.cpu().numpy()

    return multiply


def prepare_onnxruntime(provider: str) -> Multiply:
    """Multiply with a provider of ONNX Runtime, such as "CUDAExecutionProvider".

    Raises:
        Refused: the provider cannot be loaded, or leaves the product to the processor; ONNX Runtime says so only in
            its log and goes on.
    """
    session = open_onnx_session(provider)

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return session.run(None, {"a": a, "b": b})[0]

    return multiply


def open_onnx_session(provider: str) -> Any:  # noqa: ANN401 (its type is ONNX Runtime's)
    """Return a session of ONNX Runtime that multiplies `a` and `b`, both float32, with one provider alone.

    Args:
        provider: such as "CUDAExecutionProvider".
    """
    import onnxruntime as ort

    on_processor = provider == CPU_PROVIDER
    options = ort.SessionOptions()
    options.log_severity_level = 4  # fatal alone
    if not on_processor:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        with warnings.catch_warnings(), caught_stderr():
            warnings.simplefilter("ignore", UserWarning)
            session = ort.InferenceSession(ONNX, options, providers=[provider])
    except Exception as error:
        if "fallback to CPU" in str(error):
            raise Refused(FELL_BACK) from error
        raise
    if session.get_providers()[0] != provider:
        raise Refused(FELL_BACK)
    return session
