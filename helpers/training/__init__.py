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
import time
from collections.abc import Callable, Iterator
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

if TYPE_CHECKING:
    from types import FrameType, ModuleType

    import keras

REDRAW = 0.5  # seconds between two looks at a training that runs


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
    backends.check(name)
    title = backends.BACKENDS[name]
    if not devices.installed(name):
        there = ", ".join(backend for backend in backends.BACKENDS if devices.installed(backend)) or "none of them"
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
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # a GPU without its plug-in: the doctor's task

    def import_keras() -> None:
        import keras

        keras.ops.convert_to_numpy(keras.ops.ones(1) + 1)

    workarounds.give_signals_a_stack()
    _quietly(import_keras, f"Keras does not start with {title}.")
    if name == "tensorflow":
        sys.modules["tensorflow"].get_logger().setLevel(logging.ERROR)  # it warns of functions traced again and again
        workarounds.switch_autotuning_off()
    device = devices.in_this_process(name)
    with caught_stderr():
        computes = products.prove(device)
    if computes != products.RIGHT:
        raise WorkshopError(
            f"{device} does not compute right.",
            f"A small product of matrices, compared with NumPy's: {computes}.",
            f"The doctor tries the same, and says what helps:\n    {command(Host.here(), 'doctor')}",
        )
    return str(device)


def import_tensorflow() -> ModuleType:
    """Import TensorFlow without its log lines, for a lesson that needs it whatever Keras computes with.

    Its devices are not started yet, so that the lesson can still configure them.

    Raises:
        WorkshopError: it is not installed, or its import fails.
    """
    if not devices.installed("tensorflow"):
        raise WorkshopError(
            "This lesson needs TensorFlow, and it is not installed here.",
            "Not every family of accelerators comes with it; the default one, for every processor, does.",
            "Set the workshop up for the processor, in a copy of its folder if you want to keep this one:\n"
            f"    {command(replace(Host.here(), installed_by='venv'), 'lab --accel cpu')}",
        )

    def import_it() -> None:
        import tensorflow  # noqa: F401

    workarounds.give_signals_a_stack()
    _quietly(import_it, "TensorFlow cannot be imported.")
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
    failed = [device.identifier for device in devices.ask("tensorflow").devices if not device.usable]
    good = [gpu for gpu in gpus if gpu.name.replace("/physical_device:", "/") not in failed]
    if good != gpus:
        tensorflow.config.set_visible_devices(good, "GPU")


@contextmanager
def before_start() -> Iterator[None]:
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


def _quietly(start_it: Callable[[], None], what: str) -> None:
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
def interruptible(model: keras.Model) -> Iterator[None]:
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


def progress(title: str, budget: float = math.inf, others: str = "unseen images") -> keras.callbacks.Callback:
    """Return a callback for `fit` that shows one line for the training while it runs, and keeps a budget of time.

    The line is drawn anew in its place, so that the stored lesson keeps its last state alone. After each epoch another
    one begins only if it fits into the budget, too; once the budget is spent, the training ends after its step. Either
    way the line says so.

    Args:
        title: what is trained.
        budget: seconds that the training may take; `workload.budget` knows when there is no limit.
        others: what the lesson calls the images of `validation_data`.

    Returns:
        A callback that knows afterwards `epochs`, how many were trained (not always a whole number), `epoch_seconds`,
        how long one takes here, validation included, and `seconds`, how long the training took.
    """
    import keras

    class Progress(keras.callbacks.Callback):
        def on_train_begin(self, logs: dict | None = None) -> None:
            self.began = self.drawn = time.perf_counter()
            self.seconds = self.epochs = self.epoch_seconds = 0.0
            self.after_first, self.out_of_time = None, False
            self.line = _Line(f"{title}: gets ready")

        def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            steps = self.params["steps"]  # None where the data come from a generator
            self._measure(self.epoch + min((batch + 1) / steps, 1) if steps else self.epoch)
            if self.seconds > budget and self.epochs < self.params["epochs"]:
                self._stop()
            elif self.began + self.seconds - self.drawn > REDRAW:
                self.drawn = self.began + self.seconds
                self._show(f", step {batch + 1}{f' of {steps}' if steps else ''}")

        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            if not self.model.stop_training:
                self._measure(epoch + 1)
                self._show(_results(logs, others))
                if self.epochs < self.params["epochs"] and self.seconds + self.epoch_seconds > budget:
                    self._stop()

        def on_train_end(self, logs: dict | None = None) -> None:
            self.seconds = time.perf_counter() - self.began
            of, kept, took = self.params["epochs"], "", f"{self.seconds:.1f} s"
            epochs = f"{of} epoch{'s' * (of != 1)}"
            if self.out_of_time:
                done = f"{self.epochs:.3g} of {epochs} in {took}: one takes {self.epoch_seconds:.3g} s here"
            elif self.epochs < of:
                done = f"stopped by you after {self.epochs:.3g} of {epochs} and {took}"
                kept = " | what was learned until then is kept"
            else:
                done = f"{epochs} in {took}"
            self.line.end(f"{title}: {done}{_results(logs, others)}{kept}")

        def _measure(self, epochs: float) -> None:
            self.epochs, self.seconds = epochs, time.perf_counter() - self.began
            since, already = self.after_first or (0.0, 0.0)
            if epochs > already:
                self.epoch_seconds = (self.seconds - since) / (epochs - already)
                self.after_first = self.after_first or (self.seconds, epochs)  # the first step compiles, too

        def _stop(self) -> None:
            self.model.stop_training = self.out_of_time = True

        def _show(self, where: str) -> None:
            of = self.params["epochs"]
            left = min(self.epoch_seconds * (of - self.epochs), budget - self.seconds)
            self.line.show(f"{title}: epoch {self.epoch + 1} of {of}{where} | {max(left, 0):.0f} s left")

    return Progress()


def _results(logs: dict | None, others: str) -> str:
    names = {"accuracy": "training images", "val_accuracy": others}
    return "".join(f" | {words} {100 * logs[name]:.2f} %" for name, words in names.items() if logs and name in logs)


class _Line:
    """One line of output that is replaced in its place in a notebook; elsewhere its end alone is printed."""

    def __init__(self, text: str) -> None:
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        self.handle = None
        if hasattr(shell, "kernel"):
            from IPython.display import display

            self.handle = display({"text/plain": text}, raw=True, display_id=True)

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self.handle:
            self.handle.update({"text/plain": text}, raw=True)

    def end(self, text: str) -> None:
        """Replace what the line says for the last time."""
        self.show(text)
        if not self.handle:
            print(text, flush=True)


def shortened(epochs: float, of: int, images: int, total: int) -> str:
    """Say in brackets how far a training falls short of the whole one; empty if it does not.

    Args:
        epochs: how often the images were shown; `progress` knows it.
        of: how often the article showed them.
        images: how many images were shown in an epoch.
        total: how many images the dataset has for training.
    """
    if epochs >= of and images >= total:
        return ""
    return f" (not the whole training: {epochs:.3g} of {of} epochs, {images:,} of {total:,} images)"
