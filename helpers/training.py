"""Train with Keras in a lesson: start a backend quietly, look at the data first, show progress, stop when asked.

Lessons 04 and 05 use it on every backend that Keras can train with: TensorFlow, JAX and PyTorch.
"""

from __future__ import annotations

import faulthandler
import functools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from helpers import devices
from helpers.errors import WorkshopError
from helpers.machine.host import Host, command, set_variable
from helpers.quiet import caught_stderr

if TYPE_CHECKING:
    from types import FrameType, ModuleType

    import keras

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
REDRAW = 0.5  # seconds between two looks at a training that runs


def start() -> str:
    """Import Keras with the backend that KERAS_BACKEND names, TensorFlow if it names none.

    Keras' backend is fixed for a process from its import on. The log lines of that import and of the first operation
    stay out of the lesson; if they fail, they are shown.

    Returns:
        The device on which Keras will compute, for people: "AMD EPYC (TensorFlow, CPU)".

    Raises:
        WorkshopError: the backend is unknown, not installed, or does not start.
    """
    name = os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "tensorflow"
    host = Host.here()
    if name not in BACKENDS:
        raise WorkshopError(
            f"KERAS_BACKEND is {name!r}, and no lesson can train with that.",
            f"The lessons train with one of {', '.join(BACKENDS)}.",
            f"{set_variable(host, 'KERAS_BACKEND', 'tensorflow')}\nThen start the workshop again.",
        )
    if not devices.installed(name):
        raise WorkshopError(
            f"KERAS_BACKEND is {name}, and {BACKENDS[name]} is not installed here.",
            f"Installed are: {', '.join(one for one in BACKENDS if devices.installed(one)) or 'none of them'}.",
            f"Set KERAS_BACKEND to one of those, or look what helps:\n    {command(host, 'doctor')}",
        )
    running = sys.modules["keras"].backend.backend() if hasattr(sys.modules.get("keras"), "backend") else name
    if running != name:
        raise WorkshopError(
            f"KERAS_BACKEND is {name}, and Keras already runs with {BACKENDS.get(running, running)}.",
            "Keras takes its backend when it is imported, and keeps it until the kernel ends.",
            "Restart the kernel.",
        )
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # a GPU without its plug-in: the doctor's task

    def import_keras() -> None:
        import keras

        keras.ops.convert_to_numpy(keras.ops.ones(1) + 1)

    _give_signals_a_stack()
    _quietly(import_keras, f"Keras does not start with {BACKENDS[name]}.")
    if name == "tensorflow":
        sys.modules["tensorflow"].get_logger().setLevel(logging.ERROR)  # it warns of functions traced again and again
        _switch_autotuning_off()
    return str(devices.in_this_process(name))


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

    _give_signals_a_stack()
    _quietly(import_it, "TensorFlow cannot be imported.")
    return sys.modules["tensorflow"]


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
        said = "\n".join([*lines[-5:], f"{type(error).__name__}: {error}"])
        help_line = f"Look what helps:\n    {command(Host.here(), 'doctor')}"
        raise WorkshopError(what, said, help_line) from error


def _give_signals_a_stack() -> None:
    """Let an interrupt do no harm to oneDNN, TensorFlow's library for processors.

    Its AVX-512 matrix product keeps data below the top of the stack, just where a signal's frame is put: an interrupt
    in the middle of one was seen to corrupt the memory and end the kernel. Python's handlers take a stack of their own
    where there is one, and faulthandler makes one.
    """
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


def _switch_autotuning_off() -> None:
    """Let TensorFlow's input pipelines start without the thread that tunes them.

    Whenever a pipeline ends, TensorFlow 2.21 may wait until that thread wakes up, and it sleeps the longer the longer
    the pipeline has run: an epoch of 21 s was seen to take 20 s more. Keras makes its pipelines from arrays itself and
    takes the default options, so the default is the one place where the tuning can be switched off.
    """
    import tensorflow as tf

    begin = tf.data.Options.__init__
    if begin.__name__ == "without_autotuning":
        return

    def without_autotuning(self: tf.data.Options) -> None:
        begin(self)
        self.autotune.enabled = False

    tf.data.Options.__init__ = without_autotuning


def seed(number: int) -> None:
    """Make the next model and its training repeatable: initial weights, dropout, the order of the images.

    What Keras keeps of models that nobody uses any more is freed, too: a lesson that builds many would fill the memory.
    `keras.utils.set_random_seed` does the same, and imports TensorFlow wherever it is installed: on the JAX backend
    that costs seconds and 400 MB for nothing.

    Args:
        number: the seed, 0 or more.
    """
    import keras

    policy = keras.config.dtype_policy()
    keras.utils.clear_session()  # Keras makes its own generator anew, from Python's
    keras.config.set_dtype_policy(policy)  # which the line above forgets
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


# ---------------------------------------------------------------------------------------------- data


# ---------------------------------------------------------------------------------------------- speed


# ---------------------------------------------------------------------------------------------- progress


def progress(title: str) -> keras.callbacks.Callback:
    """Return a callback that shows one line for a training while it runs, and ends it early when you interrupt it.

    The line is drawn anew in its place, so that the stored lesson keeps its last state alone. Interrupting the kernel
    (the black square, or I twice) ends the training after the step that runs: what was learned until then is kept, and
    the lesson goes on with it. A second interrupt stops at once.

    Args:
        title: what is trained.
    """
    return _callbacks()(title)


@functools.cache
def _callbacks() -> type:
    """The class behind `progress`: it can only be made once Keras is there."""
    import keras

    class Progress(keras.callbacks.Callback):
        def __init__(self, title: str) -> None:
            super().__init__()
            self.title, self.interrupted, self.previous = title, False, None

        def on_train_begin(self, logs: dict | None = None) -> None:
            self.began = self.drawn = time.perf_counter()
            self.epoch, self.interrupted, self.line = 0, False, _Line()
            self.seconds: list[float] = []
            self.line.show(f"{self.title}: gets ready")
            self.trained = self.model
            self._catch_interrupts()

        def on_train_end(self, logs: dict | None = None) -> None:
            self._let_interrupts_through()
            spent, of = f"{time.perf_counter() - self.began:.1f} s", self.params["epochs"]
            done = f"{self.epoch} epoch{'s' * (self.epoch != 1)} in {spent}"
            kept = ""
            if self.interrupted:
                done = f"stopped by you in epoch {self.epoch} of {of}, after {spent}"
                kept = " | what was learned until then is kept"
            self.line.end(f"{self.title}: {done}{_results(logs)}{kept}")

        def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
            self.epoch, self.epoch_began = epoch + 1, time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            self._stop_if_interrupted()
            self.seconds.append(time.perf_counter() - self.epoch_began)
            took = f" | {self.seconds[-1]:.1f} s an epoch"
            self.line.show(f"{self.title}: epoch {self.epoch} of {self.params['epochs']}{_results(logs)}{took}")

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            self._stop_if_interrupted()
            if time.perf_counter() - self.drawn < REDRAW:
                return
            self.drawn = time.perf_counter()
            step = f"step {batch + 1}" + (f" of {self.params['steps']}" if self.params["steps"] else "")
            self.line.show(f"{self.title}: epoch {self.epoch} of {self.params['epochs']}, {step}")

        def _catch_interrupts(self) -> None:
            self._let_interrupts_through()
            previous = signal.getsignal(signal.SIGINT)
            if threading.current_thread() is threading.main_thread() and callable(previous):
                self.previous = previous
                signal.signal(signal.SIGINT, self._interrupt)

        def _let_interrupts_through(self) -> None:
            if self.previous and signal.getsignal(signal.SIGINT) == self._interrupt:
                signal.signal(signal.SIGINT, self.previous)
            self.previous = None

        def _stop_if_interrupted(self) -> None:
            if self.interrupted:
                self.model.stop_training = True

        def _interrupt(self, number: int, frame: FrameType | None) -> None:
            # In the middle of a step: `self.model` would hand JAX arrays to the model that the step has given away.
            previous = self.previous or signal.default_int_handler
            if not _trains(self.trained, frame):  # an error ended the training, and nobody told us
                self._let_interrupts_through()
                previous(number, frame)
            elif self.interrupted:
                previous(number, frame)
            else:
                self.interrupted = True

    return Progress


def _trains(model: keras.Model, frame: FrameType | None) -> bool:
    """Say whether the model's `fit` is among the functions that run."""
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            return True
        frame = frame.f_back
    return False


def _results(logs: dict | None) -> str:
    names = {"accuracy": "training images", "val_accuracy": "test images"}
    return "".join(f" | {words} {100 * logs[name]:.2f} %" for name, words in names.items() if logs and name in logs)


class _Line:
    """One line of output that is replaced in its place, in a notebook and in a terminal; a file gets its end alone."""

    def __init__(self) -> None:
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        self.notebook = hasattr(shell, "kernel")
        self.handle = None
        self.width = 0

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self.notebook:
            self._display(text)
        elif sys.stdout.isatty():
            print(f"\r{text:<{self.width}}", end="", flush=True)
            self.width = len(text)

    def end(self, text: str) -> None:
        """Replace what the line says for the last time."""
        self.show(text)
        if not self.notebook:
            print() if sys.stdout.isatty() else print(text, flush=True)

    def _display(self, text: str) -> None:
        from IPython.display import display

        if self.handle is None:
            self.handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self.handle.update({"text/plain": text}, raw=True)
