"""What the benchmark asks of a machine: tasks, works to be timed, the articles' networks, what results must be.

Nothing here needs a framework: each of them gets the same numbers, and is held against NumPy's result before a clock
starts. Speed does not depend on what an image shows, so the images are random bytes in MNIST's shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from helpers.compute import products


@dataclass(frozen=True)
class Task:
    """One thing that the benchmark asks for; of its speed more is better."""

    unit: str  # of the speed
    group: str  # training or inference, which scores take; ceiling, memory or product, which none takes
    about: str  # one line for people


PEAK = "float32 peak"
MEMORY = "memory copy"
PRODUCT = "float32 product"
TASKS = {
    PEAK: Task("GFLOP/s", "ceiling", "multiply and add in registers alone: what arithmetic can reach here"),
    MEMORY: Task("GB/s", "memory", "read 64 MiB and write as much"),
    PRODUCT: Task("GFLOP/s", "product", "multiply two square matrices with the framework's own product"),
    "16-bit product": Task("GFLOP/s", "product", "the same in bfloat16, or in float16 where there is no bfloat16"),
    "OpenCL vector add": Task("GB/s", "memory", "c = a + b for 16,777,216 floats, with lesson 01's kernel"),
    "OpenCL product": Task("GFLOP/s", "product", "multiply two square matrices with one kernel for every device"),
    "WebGPU vector add": Task("GB/s", "memory", "c = a + b for 16,777,216 floats"),
    "WebGPU product": Task("GFLOP/s", "product", "multiply two square matrices with one shader for every device"),
    "MLP training": Task("images/s", "training", "article A's network, batches of 128, RMSprop"),
    "CNN training": Task("images/s", "training", "article C's network, batches of 128, Adadelta"),
    "CNN inference": Task("images/s", "inference", "article C's network, batches of 128"),
    "CNN, one image": Task("images/s", "inference", "article C's network, one image at a time, as an app asks"),
}
# No score takes products, which have other sizes on a GPU than on a processor; nor what memory limits: in a virtual
# machine that depends on the other machines of its host, which nothing here can see.
SCORED = tuple(name for name, task in TASKS.items() if task.group in ("training", "inference"))

COPIED = 2**24  # floats of the copy: 64 MiB there and 64 MiB back, more than caches hold
ADDED = 2**24  # floats of each vector
BATCH = 128  # images of a training step, as in the articles
# Floating-point operations for one image, counted: 2 for each multiply-add of the layers with weights. Training takes
# three times as many: forwards, and backwards for the inputs and for the weights (the first layer's inputs apart).
MLP_OPERATIONS = 2 * (784 * 512 + 512 * 512 + 512 * 10)
CNN_FIRST = 2 * 26 * 26 * 32 * 9
CNN_OPERATIONS = CNN_FIRST + 2 * (24 * 24 * 64 * 9 * 32 + 9216 * 128 + 128 * 10)
OPERATIONS = {  # for each image
    "MLP training": 3 * MLP_OPERATIONS - 2 * 784 * 512,
    "CNN training": 3 * CNN_OPERATIONS - CNN_FIRST,
    "CNN inference": CNN_OPERATIONS,
    "CNN, one image": CNN_OPERATIONS,
}


def size_for(kind: str, by_library: bool) -> int:
    """Return the rows and columns of the matrices: more where a library multiplies, which is faster than our kernels.

    A product that keeps a GPU busy takes a processor long, and one that suits a processor is over before a GPU's parts
    have all begun. So the two are not the same work: no score takes products, and `files.compare` leaves them out.
    """
    if kind in ("gpu", "accelerator"):
        return 4096 if by_library else 2048
    return 1024 if by_library else 512


@functools.cache
def matrices(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two float32 matrices, size x size, of numbers between -1 and 1 that every 16-bit format has."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-16, 17, (size, size)).astype(np.float32) / 16 for _ in range(2))
    return a, b


# ------------------------------------------------------------------------------------------------ works to be timed


@dataclass(frozen=True)
class Work:
    """One task on one device, ready to be timed."""

    what: str  # sizes and types, for people
    amount: float  # bytes, operations or images of one call
    once: Callable[[], object]  # does it, or queues it
    finish: Callable[[object], object]  # takes what the last `once` returned, and returns when the device has finished
    check: Callable[[], str]  # compares with NumPy after a call; returns what was compared, raises Refused

    def do(self, loops: int) -> None:
        """Do it so often, and wait for the device once at the end."""
        last: object = None
        for _ in range(loops):
            last = self.once()
        self.finish(last)


Prepare = Callable[[], Work]


def no_wait(result: object) -> None:
    """Finish what was done when the call returned."""


def product_work(
    size: int, once: Callable, finish: Callable, result: Callable[[], np.ndarray], dtype: str = "float32"
) -> Work:
    """Return the work of a product of `matrices`; `result` returns the last one as float32.

    A device that multiplies in 16 bits (`dtype`) rounds the product to 8 bits, or 11.
    """
    tolerance = 1e-3 if dtype == "float32" else 0.01
    what = f"{size:,} x {size:,}, {dtype}"
    return Work(what, 2.0 * size**3, once, finish, lambda: check_product(result(), size, tolerance))


def vector_work(
    what: str, amount: float, once: Callable, finish: Callable, result: Callable[[], np.ndarray], expected: np.ndarray
) -> Work:
    """Return a work whose result, a vector, is known to the last bit."""
    return Work(what, amount, once, finish, lambda: check_vector(result(), expected))


def check_product(actual: np.ndarray, size: int, tolerance: float = 1e-3) -> str:
    """Hold some rows of a product of `matrices` (float32, size x size) against NumPy's; return what was compared.

    Args:
        actual: what the device computed.
        size: of the matrices.
        tolerance: how far a number may be off, as a share of the largest.

    Raises:
        products.Refused: it is wrong.
    """
    a, b = matrices(size)
    rows = np.linspace(0, size - 1, 16).astype(int)
    return _close(np.asarray(actual)[rows], a[rows] @ b, tolerance, f"16 rows of {size:,} x {size:,}")


def check_vector(actual: np.ndarray, expected: np.ndarray) -> str:
    """Hold a vector against what NumPy computed, to the last bit; raise Refused if it is wrong."""
    if not np.array_equal(actual, expected):  # which needs no copies, as _close does
        raise products.Refused(f"wrong: {np.count_nonzero(actual != expected):,} of {expected.size:,} numbers differ")
    return f"{expected.size:,} numbers as NumPy has them"


def _close(actual: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> str:
    if actual.shape != expected.shape:
        raise products.Refused(f"wrong: came in shape {actual.shape}, expected {expected.shape}")
    off = np.abs(actual.astype(np.float64) - expected)
    bad = int(np.count_nonzero(~(off <= tolerance * np.abs(expected).max())))  # not a number is bad, too
    if bad:
        raise products.Refused(f"wrong: {bad:,} of {off.size:,} numbers differ from NumPy's")
    return f"{what} as NumPy has them"


# ---------------------------------------------------------------------------------------- the articles' networks


class Layer(NamedTuple):
    """The weights of one layer, as Keras orders them."""

    kernel: np.ndarray
    bias: np.ndarray


@functools.cache
def weights(network: str) -> tuple[Layer, ...]:
    """Return the weights that every framework gets, for "mlp" or "cnn", by He's rule so that numbers stay in range."""
    rng = np.random.default_rng(1)
    shapes: Mapping[str, Sequence[tuple[int, ...]]] = {
        "mlp": ((784, 512), (512, 512), (512, 10)),
        "cnn": ((3, 3, 1, 32), (3, 3, 32, 64), (9216, 128), (128, 10)),
    }
    layers = []
    for shape in shapes[network]:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        kernel = (scale * rng.standard_normal(shape)).astype(np.float32)
        layers.append(Layer(kernel, (0.01 * rng.standard_normal(shape[-1])).astype(np.float32)))
    return tuple(layers)


@functools.cache
def images(count: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Return random images, uint8 of shape (count, 28, 28, 1), and labels, int64 of shape (count,)."""
    rng = np.random.default_rng(2)
    return rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8), rng.integers(0, 10, count)


def forward(network: str, pixels: np.ndarray) -> np.ndarray:
    """Compute ten probabilities for each image (uint8, (n, 28, 28, 1)), in float64 and with NumPy alone."""
    layers = [Layer(*(one.astype(np.float64) for one in layer)) for layer in weights(network)]
    x = pixels / 255
    if network == "cnn":
        for kernel, bias in layers[:2]:
            windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))  # n, y, x, channel, 3, 3
            x = np.maximum(np.einsum("nyxcij,ijco->nyxo", windows, kernel, optimize=True) + bias, 0)
        n, height, width, channels = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
        layers = layers[2:]
    x = x.reshape(len(x), -1)
    for kernel, bias in layers[:-1]:
        x = np.maximum(x @ kernel + bias, 0)
    x = x @ layers[-1].kernel + layers[-1].bias
    x = np.exp(x - x.max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)


LEARNED = 0.93  # of its first loss a training must come below: on six seeds it came to 0.85 and less
FEW = 4  # images of which NumPy computes the answer: its convolution is slow


def check_answers(network: str, actual: np.ndarray) -> str:
    """Hold what a network answered for the first FEW of `images` (float32, (n, 10)) against NumPy's answers.

    Raises:
        products.Refused: they are wrong. A framework may round the factors to ten bits (TF32) or to seven (TPUs).
    """
    count = min(FEW, len(actual))
    return _close(np.asarray(actual)[:count], forward(network, images()[0][:count]), products.TOLERANCE,
                  f"the answers for {count} image{'s' * (count > 1)}")  # fmt: skip


def check_training(network: str, losses: Sequence[float]) -> str:
    """Judge whether a network learned from steps on one batch, the first of `images`.

    The first loss must be near what NumPy computes with the same weights: dropout, which is random, moves it a little.
    The mean of the last three must be lower.

    Raises:
        products.Refused: it did not.
    """
    pixels, labels = images()
    few = slice(None, None, BATCH // 32)  # NumPy's convolution is slow
    chosen = forward(network, pixels[few])[np.arange(32), labels[few]]
    expected = float(-np.log(chosen).mean())
    if not np.isfinite(losses).all():
        raise products.Refused(f"wrong: the loss is not a number after {len(losses)} steps")
    if abs(losses[0] - expected) > 0.5 * expected:
        raise products.Refused(f"wrong: the first loss is {losses[0]:.3g}, NumPy's without dropout {expected:.3g}")
    last = float(np.mean(losses[-3:]))  # dropout moves each loss by some percent
    if last > LEARNED * losses[0]:
        raise products.Refused(f"wrong: the loss did not fall, from {losses[0]:.3g} to {last:.3g}")
    return f"the loss began at {losses[0]:.3g} (NumPy: {expected:.3g}) and fell to {last:.3g}"
