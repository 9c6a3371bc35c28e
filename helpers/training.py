"""Train with Keras in a lesson: start a backend quietly, look at the data first, show progress, stop when asked.

Lessons 04 and 05 use it on every backend that Keras can train with: TensorFlow, JAX and PyTorch.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers import devices, doctor
from helpers.errors import WorkshopError
from helpers.quiet import caught_stderr
from helpers.timing import Measurement, is_clear

if TYPE_CHECKING:
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
    host = doctor.Host.here()
    if name not in BACKENDS:
        raise WorkshopError(
            f"KERAS_BACKEND is {name!r}, and no lesson can train with that.",
            f"The lessons train with one of {', '.join(BACKENDS)}.",
            f"{doctor.set_variable(host, 'KERAS_BACKEND', 'tensorflow')}\nThen start the workshop again.",
        )
    if not devices.installed(name):
        raise WorkshopError(
            f"KERAS_BACKEND is {name}, and {BACKENDS[name]} is not installed here.",
            f"Installed are: {', '.join(one for one in BACKENDS if devices.installed(one)) or 'none of them'}.",
            f"Set KERAS_BACKEND to one of those, or look what helps:\n    {doctor.command(host, 'doctor')}",
        )
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # a GPU without its plug-in: the doctor's task
    try:
        with caught_stderr() as lines:
            import keras

            keras.ops.convert_to_numpy(keras.ops.ones(1) + 1)
    except Exception as error:
        said = "\n".join([*lines[-5:], f"{type(error).__name__}: {error}"])
        raise WorkshopError(
            f"Keras does not start with {BACKENDS[name]}.",
            said,
            f"Look what helps:\n    {doctor.command(host, 'doctor')}",
        ) from error
    if name == "tensorflow":
        sys.modules["tensorflow"].get_logger().setLevel(logging.ERROR)  # it warns of functions traced again and again
        _switch_autotuning_off()
    return str(devices.in_this_process(name))


def _switch_autotuning_off() -> None:
    """Let TensorFlow's input pipelines start without the thread that tunes them.

    Whenever a pipeline ends, TensorFlow 2.21 may wait until that thread wakes up, and it sleeps the longer the longer
    the pipeline has run: an epoch of 21 s was seen to take 20 s more. Keras makes its pipelines from arrays itself and
    takes the default options, so the default is the one place where the tuning can be switched off.
    """
    import tensorflow as tf

    options = tf.data.Options
    if getattr(options, "without_autotuning", False):
        return

    @functools.wraps(options)
    def without_autotuning(*args: object, **kwargs: object) -> tf.data.Options:
        made = options(*args, **kwargs)
        made.autotune.enabled = False
        return made

    without_autotuning.without_autotuning = True
    tf.data.Options = without_autotuning


def seed(number: int) -> None:
    """Make the next model and its training repeatable: initial weights, dropout, the order of the images.

    `keras.utils.set_random_seed` does the same, and imports TensorFlow wherever it is installed: on the JAX backend
    that costs seconds and 400 MB for nothing.

    Args:
        number: the seed, 0 or more.
    """
    import keras

    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(number)
        return
    keras.utils.clear_session(free_memory=False)  # Keras makes its own generator anew, from Python's
    random.seed(number)
    np.random.seed(number)
    if keras.backend.backend() == "torch":
        sys.modules["torch"].manual_seed(number)


# ---------------------------------------------------------------------------------------------- data


def check_data(
    images: np.ndarray, labels: np.ndarray, shape: Sequence[int], batch_size: int = 1, classes: int = 10
) -> None:
    """Look at the data before a training does: most of what is wrong with data raises no error in a training.

    Args:
        images: array of shape (n, *shape), any numeric dtype.
        labels: array of shape (n,), whole numbers from 0 to classes - 1.
        shape: the shape of one image, as the network takes it.
        batch_size: images a step.
        classes: how many different labels there are.

    Raises:
        WorkshopError: names what is wrong, where, and what mends it.
    """
    images, labels, shape = np.asarray(images), np.asarray(labels), tuple(shape)
    n = len(images) if images.ndim else 0
    if n == 0:
        raise WorkshopError("There are no images to train with.", f"The array has the shape {images.shape}.",
                            "Look at the slice that made it.")  # fmt: skip
    if images.shape[1:] != shape:
        same_size = np.prod(images.shape[1:]) == np.prod(shape)
        raise WorkshopError(
            f"The network takes images of shape {shape}; these have {images.shape[1:]}.",
            "The first number of an array's shape counts the images; the rest must be what the network was built for.",
            f"images.reshape(-1, {', '.join(map(str, shape))})" if same_size else "Build the network for these images.",
        )
    _check_labels(labels, n, classes)
    if np.issubdtype(images.dtype, np.floating) and not np.isfinite(images).all():
        bad = ~np.isfinite(images).reshape(n, -1).all(axis=1)
        raise WorkshopError(
            f"{bad.sum():,} of {n:,} images hold NaN or infinity, the first of them is image {np.flatnonzero(bad)[0]}.",
            "One such pixel makes every weight NaN in a single step, and no error is raised.",
            "Look where they come from, or leave those images out.",
        )
    if not 1 <= batch_size <= n:
        raise WorkshopError(
            f"A batch of {batch_size:,} images cannot be taken from {n:,}.",
            "Keras would quietly make one smaller batch of them all, so that each epoch were a single step.",
            f"Choose a batch size from 1 to {n:,}.",
        )


def _check_labels(labels: np.ndarray, n: int, classes: int) -> None:
    if labels.ndim == 2 and labels.shape[1] == classes:
        raise WorkshopError(
            f"The labels have the shape {labels.shape}: one column for each class.",
            "This lesson's loss takes the numbers of the classes themselves (sparse_categorical_crossentropy).",
            "labels.argmax(axis=1)",
        )
    if labels.shape != (n,):
        raise WorkshopError(
            f"There are {n:,} images, and labels of shape {labels.shape}.",
            "Every image needs one label, in the same order.",
            "Slice images and labels alike.",
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise WorkshopError(
            f"The labels are {labels.dtype}, not whole numbers.",
            f"A label is the number of a class, from 0 to {classes - 1}.",
            'labels.astype("uint8"), once you know that no label is lost',
        )
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        first = outside[0]
        raise WorkshopError(
            f"{len(outside):,} of {n:,} labels lie outside 0 to {classes - 1}; "
            f"the first is label {first}: {labels[first]}.",
            "TensorFlow stops at it with a long error on a CPU; JAX raises nothing and learns nonsense.",
            "Mend those labels, or leave their images out.",
        )


# ---------------------------------------------------------------------------------------------- speed


@dataclass(frozen=True)
class Trial:
    """One form of a training that was tried.

    Attributes:
        name: what was changed.
        run: what was measured; None if this form cannot run here.
        verdict: "kept", "dropped: no clear gain", "dropped: slower", or why it cannot run.
    """

    name: str
    run: Measurement | None
    verdict: str


def keep_what_pays(
    measure: Callable[..., Measurement], candidates: Mapping[str, Mapping[str, object]]
) -> tuple[dict[str, object], list[Trial]]:
    """Try changes one after another, each on top of those that were kept, and keep what is clearly faster.

    Args:
        measure: given the options of a form, measures it; without options it measures the form to start from.
        candidates: for each change its name and the options that make it.

    Returns:
        The options that were kept, and every trial in its order, the starting form first.
    """
    kept: dict[str, object] = {}
    best = measure()
    trials = [Trial("start", best, "")]
    for name, change in candidates.items():
        try:
            run = measure(**{**kept, **change})
        except Exception as error:  # an operation that this device or backend does not have
            trials.append(Trial(name, None, f"not possible here: {str(error).strip().splitlines()[0][:80]}"))
            continue
        if not is_clear(best, run):
            verdict = "dropped: no clear gain"
        elif run.median > best.median:
            verdict = "dropped: slower"
        else:
            kept, best, verdict = {**kept, **change}, run, "kept"
        trials.append(Trial(name, run, verdict))
    return kept, trials


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
            self.title, self.line, self.interrupted = title, _Line(), False

        def on_train_begin(self, logs: dict | None = None) -> None:
            self.began = self.drawn = time.perf_counter()
            self.epoch, self.step, self.previous, self.interrupted = 0, 0, None, False
            self.seconds: list[float] = []
            if threading.current_thread() is threading.main_thread():
                self.previous = signal.signal(signal.SIGINT, self._interrupt)

        def on_train_end(self, logs: dict | None = None) -> None:
            if self.previous is not None:
                signal.signal(signal.SIGINT, self.previous)
                self.previous = None
            spent = f"{time.perf_counter() - self.began:.1f} s"
            done = f"{self.epoch} of {self.params['epochs']}" if self.interrupted else str(self.epoch)
            epochs = f"{done} epoch{'s' * (done != '1')}"
            self.line.show(f"{self.title}: {epochs} in {spent}{_results(logs)}{self._stopped()}")

        def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
            self.epoch, self.epoch_began = epoch + 1, time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            self.seconds.append(time.perf_counter() - self.epoch_began)
            took = f" | {self.seconds[-1]:.1f} s an epoch"
            self.line.show(f"{self.title}: epoch {self.epoch} of {self.params['epochs']}{_results(logs)}{took}")

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            if time.perf_counter() - self.drawn < REDRAW:
                return
            self.drawn = time.perf_counter()
            where = f"epoch {self.epoch} of {self.params['epochs']}, step {batch + 1} of {self.params['steps']}"
            self.line.show(f"{self.title}: {where}")

        def _interrupt(self, number: int, frame: object) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = self.model.stop_training = True

        def _stopped(self) -> str:
            return " | stopped by you: what was learned until then is kept" if self.interrupted else ""

    return Progress


def _results(logs: dict | None) -> str:
    names = {"accuracy": "training images", "val_accuracy": "test images"}
    return "".join(f" | {words} {100 * logs[name]:.2f} %" for name, words in names.items() if logs and name in logs)


class _Line:
    """One line of output that is replaced in its place, in a notebook and in a terminal."""

    def __init__(self) -> None:
        self.handle = None
        self.text = ""

    def show(self, text: str) -> None:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None:
            end = "\n" if not sys.stdout.isatty() else ""
            if end == "" or " in " in text:
                print(f"\r{text:<{len(self.text)}}", end=end, flush=True)
            self.text = text
            return
        content = {"text/plain": text}
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)
