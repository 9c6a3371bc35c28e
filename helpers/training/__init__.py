"""Train with Keras in a lesson: start a backend quietly, keep a budget of seconds, show progress, stop when asked.

Lessons 04, 05 and 08 use it, on every backend that Keras can train with: TensorFlow, JAX and PyTorch.
"""

from __future__ import annotations

import logging
import math
import os
import random
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers import devices
from helpers.devices import products
from helpers.devices.host import Host, command
from helpers.errors import WorkshopError
from helpers.running import workarounds
from helpers.running.quiet import caught_stderr
from helpers.training import backends
from helpers.training.progress_line import Progress

if TYPE_CHECKING:
    from types import FrameType, ModuleType

    import keras


def start() -> str:
    """Import Keras with the backend that KERAS_BACKEND names, TensorFlow if it names none.

    Keras' backend is fixed for a process from its import on. The log lines of that import and of the first operation
    stay out of the lesson; if they fail, they are shown.

    Returns:
        The device on which Keras will compute, for people: "AMD EPYC (TensorFlow, CPU)".

    Raises:
        WorkshopError: the backend is unknown, not installed, does not start, or its device does not compute right.
    """
    name = os.environ[backends.VARIABLE] = os.environ.get(backends.VARIABLE) or "tensorflow"
    _check_backend(name)
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # a GPU without its plug-in: the doctor's task

    def import_keras() -> None:
        import keras

        keras.ops.convert_to_numpy(keras.ops.ones(1) + 1)

    workarounds.give_signals_a_stack()
    _start_quietly(import_keras, f"Keras does not start with {backends.BACKENDS[name]}.")
    if name == "tensorflow":
        sys.modules["tensorflow"].get_logger().setLevel(logging.ERROR)  # it warns of functions traced again and again
        workarounds.switch_autotuning_off()
    device = devices.find_default_device(name)
    with caught_stderr():
        computes = products.prove(device)
    if computes != products.RIGHT:
        raise WorkshopError(
            f"{device} does not compute right.",
            f"A small product of matrices, compared with NumPy's: {computes}.",
            f"The doctor tries the same, and says what helps:\n    {command(Host.here(), 'doctor')}",
        )
    return str(device)


def _check_backend(name: str) -> None:
    """Refuse a backend that cannot train or is not installed, or another one than Keras already runs with."""
    backends.validate(name)
    title = backends.BACKENDS[name]
    if not devices.is_installed(name):
        there = ", ".join(backend for backend in backends.BACKENDS if devices.is_installed(backend)) or "none of them"
        raise WorkshopError(
            f"{backends.VARIABLE} is {name}, and {title} is not installed here.",
            f"Installed are: {there}.",
            f"Set {backends.VARIABLE} to one of those, or look what helps:\n    {command(Host.here(), 'doctor')}",
        )
    running = sys.modules["keras"].backend.backend() if hasattr(sys.modules.get("keras"), "backend") else name
    if running != name:
        raise WorkshopError(
            f"{backends.VARIABLE} is {name}, and Keras already runs with {backends.BACKENDS.get(running, running)}.",
            "Keras takes its backend when it is imported, and keeps it until the kernel ends.",
            "Restart the kernel.",
        )


def import_tensorflow() -> ModuleType:
    """Import TensorFlow without its log lines, for a lesson that needs it whatever Keras computes with.

    Its devices are not started yet, so that the lesson can still configure them.

    Raises:
        WorkshopError: it is not installed, or its import fails.
    """
    if not devices.is_installed("tensorflow"):
        raise WorkshopError(
            "This lesson needs TensorFlow, and it is not installed here.",
            "Not every family of accelerators comes with it; the default one, for every processor, does.",
            "Set the workshop up for the processor, in a copy of its folder if you want to keep this one:\n"
            f"    {command(replace(Host.here(), installed_by='venv'), 'lab --accel cpu')}",
        )

    def import_it() -> None:
        import tensorflow  # noqa: F401

    workarounds.give_signals_a_stack()
    _start_quietly(import_it, "TensorFlow cannot be imported.")
    tensorflow = sys.modules["tensorflow"]
    _hide_gpus_that_fail(tensorflow)
    return tensorflow


def _hide_gpus_that_fail(tensorflow: ModuleType) -> None:
    """Hide the GPUs that TensorFlow lists and cannot compute on, as a process of its own finds out.

    Such as an RTX 50, for which its wheels held no code: https://github.com/tensorflow/tensorflow/issues/89272
    """
    gpus = tensorflow.config.list_physical_devices("GPU")
    if not gpus:
        return
    failed = [device.identifier for device in devices.ask("tensorflow").devices if not device.is_usable]
    good = [gpu for gpu in gpus if gpu.name.replace("/physical_device:", "/") not in failed]
    if good != gpus:
        tensorflow.config.set_visible_devices(good, "GPU")


@contextmanager
def before_start() -> Generator[None]:
    """Let a lesson configure TensorFlow's devices, and say what to do where TensorFlow has started already.

    Raises:
        WorkshopError: TensorFlow refuses a setting of the block because it has started.
    """
    try:
        yield
    except RuntimeError as error:
        raise WorkshopError(
            "TensorFlow has started already, and refuses this setting now.",
            f"Whatever uses one of its devices starts it, such as making a tensor. It says: {error}.",
            "Restart the kernel (the round arrow above), and run the lesson from the top.",
        ) from error


def _start_quietly(start_it: Callable[[], None], what: str) -> None:
    """Call a function without the log lines of compiled code; if it fails, show the last of them and raise `what`."""
    lines: list[str] = []
    try:
        with caught_stderr() as lines:
            start_it()
    except Exception as error:
        why = "\n".join([*lines[-5:], f"{type(error).__name__}: {error}"])
        raise WorkshopError(what, why, f"Look what helps:\n    {command(Host.here(), 'doctor')}") from error


def seed(number: int) -> None:
    """Make the next model and its training repeatable: initial weights, dropout, the order of the images.

    What Keras keeps of models that nobody uses any more is freed, too: a lesson that builds many would fill the memory.
    `keras.utils.set_random_seed` does the same, and imports TensorFlow wherever it is installed: on the JAX backend
    that costs seconds and 400 MB for nothing.

    Args:
        number: the seed, 0 or more.
    """
    import keras
    import numpy as np

    policy = keras.config.dtype_policy()
    workarounds.forget_trained_networks()
    keras.utils.clear_session()  # Keras makes its own generator anew, from Python's
    keras.config.set_dtype_policy(policy)  # which the line above forgets
    workarounds.return_freed_memory()
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(number)
        return
    random.seed(number)
    np.random.seed(number)
    if keras.backend.backend() == "torch":
        sys.modules["torch"].manual_seed(number)


def steps_at_once(wanted: int = 16) -> int:
    """Return how many training steps Keras may hand over together: `wanted`, but always 1 on PyTorch."""
    import keras

    return 1 if keras.backend.backend() == "torch" else wanted


@contextmanager
def interruptible(model: keras.Model) -> Generator[None]:
    """Let Ctrl-C, or the square in Jupyter, end a training after its step; what was learned until then is kept.

    A second interrupt stops at once.

    Args:
        model: whose `fit` is called in the block.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        model.stop_training = True

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def progress(title: str, budget: float = math.inf, others: str = "unseen images") -> Progress:
    """Return a callback for `fit` that shows one line for the training while it runs, and keeps a budget of time.

    The line is drawn anew in its place, so that the stored lesson keeps its last state alone. After each epoch another
    one begins only if it fits into the budget, too; once the budget is spent, the training ends after its step. Either
    way the line says so.

    Args:
        title: what is trained.
        budget: seconds that the training may take after its first step; `workload.budget` knows when there is no limit.
        others: what the lesson calls the images of `validation_data`.

    Returns:
        A callback that knows afterwards `epochs`, how many were trained (not always a whole number), `epoch_seconds`,
        how long one takes here, validation included, and `seconds`, how long the training took.
    """
    import keras

    class KerasProgress(Progress, keras.callbacks.Callback):
        pass

    return KerasProgress(title, budget, others)


def describe_shortfall(epochs: float, of: int, images: int, total: int) -> str:
    """Say in brackets how far a training falls short of the whole one; empty if it does not.

    >>> describe_shortfall(2.5, of=12, images=10_000, total=60_000)
    ' (not the whole training: 2.5 of 12 epochs, 10,000 of 60,000 images)'
    >>> describe_shortfall(12, of=12, images=3_200, total=60_000)
    ' (not the whole training: 12 of 12 epochs, 3,200 of 60,000 images)'
    >>> describe_shortfall(12, of=12, images=60_000, total=60_000)
    ''

    Args:
        epochs: how often the images were shown; `progress` knows it.
        of: how often the article showed them.
        images: how many images were shown in an epoch.
        total: how many images the dataset has for training.
    """
    if epochs >= of and images >= total:
        return ""
    return f" (not the whole training: {epochs:.3g} of {of} epochs, {images:,} of {total:,} images)"
