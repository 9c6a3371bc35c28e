"""Serve lessons 09, Train on several machines, and 09b, Lose a worker; the notebooks call their checks here, too."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons.lesson_09_exercises import (  # noqa: F401 (the notebooks call the checks here)
    all_reduce,
    check_all_reduce,
    check_serve,
    check_share,
    serve,
    share,
)
from helpers.lessons.lesson_09_steps import Notes, Timed, draw_steps, tabulate_steps  # noqa: F401
from helpers.lessons.lesson_09b_exercises import (  # noqa: F401
    Disk,
    Folder,
    check_checkpoints,
    check_receive,
    check_train,
    newest,
    save,
    train,
)
from helpers.measure import timing
from helpers.measure.tables import Table
from helpers.variables import KEY, PATIENCE

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import keras

    from helpers.running.processes import Run

BATCH = 256  # images of a step, for all processes together
RATE = 0.05
SHAPES = [(784, 512), (512,), (512, 512), (512,), (512, 10), (10,)]  # article A's network
# After this time a run ends with a message. ANYGPU_PATIENCE is for busy machines.
SECONDS = 100.0 * float(os.environ.get(PATIENCE, "1"))
SOLUTIONS = {function.__name__: function for function in (share, all_reduce, serve, save, newest, train)}
JAX_ENV = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}


def require_jax() -> None:
    """Stop before anything starts if JAX cannot be used; otherwise each process would fail with its own message.

    Raises:
        WorkshopError: JAX is not installed, or too old, or this is Windows.
    """
    from helpers import devices
    from helpers.running import workarounds

    if sys.platform == "win32":
        raise WorkshopError(
            "JAX joins no processes on Windows itself.",
            "What carries its messages there, Gloo, is made for Linux and macOS.",
            "Read this lesson, or do it in WSL2: docs/platforms.md",
        )
    if not devices.is_installed("jax"):
        raise WorkshopError(devices.explain_missing("jax"), "The lesson trains with Keras on JAX, in two processes.")
    workarounds.refuse_old_jax()


def make_thread_variables(count: int) -> dict[str, str]:
    """Return the environment variables that give NumPy's matrix products `count` threads; its import reads them.

    OpenBLAS, OpenMP, MKL and Apple's Accelerate each have their own variable.
    """
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return dict.fromkeys(names, str(count))


def run(
    function: Callable[..., object],
    processes: int = 1,
    seconds: float = SECONDS,
    **options: Any,  # noqa: ANN401 (those of `processes.run`)
) -> Run:
    """Call a function in new processes, as `helpers.running.processes.run` does, with a time limit for this run.

    Their NumPy has one thread unless `variables` say otherwise, and they share a key, which `Peers` asks for.
    """
    from helpers.running import processes as running

    variables = {**make_thread_variables(1), KEY: secrets.token_hex(16), **options.pop("variables", {})}
    return running.run(function, processes, seconds, variables=variables, **options)


# ------------------------------------------------------------------------------------------ messages between processes


_open: list[Peers] = []


class Peers:
    """Connections of this process to all others of its run, over TCP."""

    def __init__(self, process: int, addresses: Sequence[str]) -> None:
        """Connect: every process listens for those with a higher rank, and calls those with a lower one.

        Args:
            process: this one's rank.
            addresses: of all processes, each HOST:PORT.
        """
        from multiprocessing.connection import Client, Listener

        self.rank, self.size = process, len(addresses)
        key = os.environ[KEY].encode()  # a caller that does not know it gets no answer
        split = [address.rpartition(":") for address in addresses]
        places = [(host, int(port)) for host, _, port in split]
        self._connections: dict[int, Connection] = {}
        with Listener(places[process], backlog=self.size, authkey=key) as listener:
            for other in range(process):
                while other not in self._connections:
                    with contextlib.suppress(ConnectionRefusedError):  # it does not listen yet
                        self._connections[other] = Client(places[other], authkey=key)
                    time.sleep(0.01)
                self._connections[other].send_bytes(bytes([process]))
            for _ in range(process + 1, self.size):
                connection = listener.accept()
                self._connections[connection.recv_bytes()[0]] = connection
        # A short message goes at once, as in Gloo and NCCL. (Windows has no second descriptor of a socket.)
        for connection in self._connections.values() if os.name != "nt" else ():
            with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
                duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _open.append(self)  # a process that returns keeps its connections: what it sent may still be on its way
        self._posts = {other: ThreadPoolExecutor(1) for other in self._connections}

    def send(self, other: int, numbers: np.ndarray) -> None:
        """Send float32 numbers to another rank, and do not wait for their arrival."""
        data = np.asarray(numbers, np.float32).tobytes()
        self._posts[other].submit(self._connections[other].send_bytes, data)

    def receive(self, other: int) -> np.ndarray:
        """Wait for numbers from another rank, and return them, float32 of shape (n,).

        Raises:
            EOFError: the other process is gone (ConnectionResetError on some systems).
        """
        return np.frombuffer(self._connections[other].recv_bytes(), np.float32).copy()  # writable

    def receive_any(self) -> tuple[int, np.ndarray]:
        """Wait for numbers from whichever rank sends first; return (rank, numbers)."""
        from multiprocessing.connection import wait

        ready = wait(list(self._connections.values()))[0]
        other = next(rank for rank, connection in self._connections.items() if connection is ready)
        return other, self.receive(other)


def find_own(*names: str) -> dict[str, Callable[..., object]]:
    """Return by name the learner's functions that a check called right, otherwise the lesson's; print which."""
    return {name: checks.find_right(name, SOLUTIONS[name]) for name in names}


# --------------------------------------------------------------------------------------- the network, and its training


def make_initial_weights() -> np.ndarray:
    """Return the weights of article A's network in one array, float32 of shape (669706,), the same in every call."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 0.05, shape).astype(np.float32).ravel() for shape in SHAPES])


def split_layers(weights: np.ndarray) -> list[np.ndarray]:
    """Return the matrix and the biases of each layer, as views of the one array."""
    ends = np.cumsum([math.prod(shape) for shape in SHAPES])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ends), SHAPES, strict=True)]


def compute_gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Return (the loss, its gradient), both the mean over the images, of article A's network without dropout.

    Args:
        weights: in one array, as `make_initial_weights` returns them.
        images: uint8 of shape (n, 784).
        labels: of shape (n,).

    Returns:
        The gradient is one array as well, float32 of shape (669706,).
    """
    w1, b1, w2, b2, w3, b3 = split_layers(weights)
    rows, numbers = images.astype(np.float32) / 255, np.arange(len(labels))
    first = np.maximum(rows @ w1 + b1, 0)
    second = np.maximum(first @ w2 + b2, 0)
    sums = second @ w3 + b3
    errors = np.exp(sums - sums.max(axis=1, keepdims=True))
    errors /= errors.sum(axis=1, keepdims=True)
    loss = -np.log(errors[numbers, labels]).mean()
    errors[numbers, labels] -= 1
    errors /= np.float32(len(labels))
    made = [second.T @ errors, errors.sum(axis=0)]
    for matrix, values, before in ((w3, second, first), (w2, first, rows)):
        errors = errors @ matrix.T * (values > 0)
        made = [before.T @ errors, errors.sum(axis=0), *made]
    return float(loss), np.concatenate([part.ravel() for part in made])


def train_alone(images: np.ndarray, labels: np.ndarray, order: Iterable[int]) -> list[np.ndarray]:
    """Return the weights of each layer after some steps in one process that nobody kills.

    Args:
        images: uint8 of shape (batches, BATCH, 784).
        labels: of shape (batches, BATCH).
        order: the numbers of the steps; after the last batch comes the first again.
    """
    weights = make_initial_weights()
    for step in order:
        batch = step % len(images)
        weights -= RATE * compute_gradient(weights, images[batch], labels[batch])[1]
    return split_layers(weights)


def tabulate_trainings(
    trainings: Mapping[str, tuple[int, int, np.ndarray]],
    notes: Mapping[str, Sequence[Notes]],
    test: tuple[np.ndarray, np.ndarray],
) -> Table:
    """Return a table of trainings with a straggler: gradients of both workers, seconds, loss on test images.

    Args:
        trainings: for each training's name the gradients of worker 0 and of worker 1, and the weights at the end.
        notes: for each training's name the notes of its workers.
        test: images, uint8 of shape (n, 784), and labels.
    """
    rows = []
    for name, (*counts, weights) in trainings.items():
        seconds = max(noted[-1][2] for noted in notes[name]) - min(noted[0][0] for noted in notes[name])
        loss = compute_gradient(weights, *test)[0]
        rows.append((name, *counts, timing.duration(seconds), f"{loss:.2f}"))
    headers = ["with a straggler", "gradients of worker 0", "of worker 1", "done after"]
    return Table(rows, [*headers, f"loss, {len(test[1])} test images"])


def run_worker(
    peers: Peers, images: np.ndarray, labels: np.ndarray, pause: float = 0.0
) -> list[tuple[float, float, float]]:
    """Compute gradients for a parameter server, whose rank is 2, until it sends an empty array.

    Args:
        peers: of worker 0 or 1.
        images: uint8 of shape (batches, BATCH, 784); each worker takes its half of each batch.
        labels: of shape (batches, BATCH).
        pause: seconds that worker 1 sleeps in each step.

    Returns:
        For each step when it began, had computed, and had an answer: seconds of the computer's clock.
    """
    first, end = share(BATCH, peers.rank, 2)
    notes = []
    weights = peers.receive(2)
    for step in itertools.count():
        began = time.time()
        batch = step % len(images)
        mine = compute_gradient(weights, images[batch, first:end], labels[batch, first:end])[1]
        if peers.rank == 1:
            time.sleep(pause)
        computed = time.time()
        peers.send(2, mine)
        weights = peers.receive(2)
        notes.append((began, computed, time.time()))
        if not len(weights):
            break
    return notes


# --------------------------------------------------------------------------------------------------- a process is lost


def _locate_death_file() -> Path:
    """Return the file for the time of a process' death, in the run's own folder, which all its processes share."""
    return Path(tempfile.gettempdir()) / "killed"


def die() -> None:
    """Kill this process as `kill -9` does, after writing down the time of its death."""
    _locate_death_file().write_text(repr(time.time()))
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def read_survivor_result(run: Run) -> Any:  # noqa: ANN401 (plain data)
    """Return what process 0 returned in a run in which another process was killed.

    Raises:
        WorkshopError: process 0 has failed, too.
    """
    if run.result is None:
        raise WorkshopError("Process 0 has no result.", run.failures[0], "Close other programs, and run it again.")
    return run.result


def count_broken(function: Callable[..., None], processes: int, save: Callable, newest: Callable) -> int:
    """Return how many processes leave no whole checkpoint if they save until they are killed.

    Args:
        function: has parameters `process`, `folder` and `save`, and saves in a `Folder` at folder/PROCESS, for each
            step 10,000 weights, each of them the step.
        processes: their number.
        save: takes a disk, a step and weights.
        newest: takes a disk; returns the step and the weights, or None before the first checkpoint.
    """
    broken = 0
    with tempfile.TemporaryDirectory(prefix="anygpu-") as path:
        run(function, processes, arguments={"folder": path, "save": save}, check=False)
        for process in range(processes):
            try:
                step, weights = newest(Folder(Path(path, str(process)))) or (0, [0.0] * 10_000)
                broken += [*weights] != [float(step)] * 10_000
            except (OSError, ValueError, TypeError, LookupError):
                broken += 1
    return broken


def die_in(seconds: float) -> None:
    """Kill this process after some seconds, wherever it is then."""
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()


def import_keras() -> ModuleType:
    """Import Keras on JAX without Matplotlib, which Keras would load and not use here."""
    os.environ["KERAS_BACKEND"] = "jax"
    modules: dict[str, Any] = sys.modules  # its own type has no None, which lets an import fail
    modules["matplotlib"] = None
    return importlib.import_module("keras")


def build_network(weights: np.ndarray) -> keras.Model:
    """Return article A's network without dropout in Keras, with these weights, compiled with the simplest optimizer.

    It begins with zeros, because random numbers take a second to compile and would be replaced.
    """
    from keras import Input, Sequential, optimizers
    from keras.layers import Dense, Rescaling

    zeros = {"kernel_initializer": "zeros"}
    hidden = [Dense(512, activation="relu", **zeros) for _ in range(2)]
    last = Dense(10, activation="softmax", **zeros)
    model = Sequential([Input((784,), dtype="uint8"), Rescaling(1 / 255), *hidden, last])
    model.compile(optimizers.SGD(RATE), "sparse_categorical_crossentropy")
    model.set_weights(split_layers(weights))
    return model


class Checkpoints:
    """The checkpoints of a training run in a folder that all its processes reach; only rank 0 writes them.

    A process reads once, at the beginning: later, rank 0 may already have written the next one.
    """

    def __init__(self, folder: str, process: int) -> None:
        """Read the checkpoint, if there is one."""
        self._file, self._is_writer = Path(folder, "checkpoint.npz"), process == 0
        self._kept: tuple[int, list[np.ndarray]] | None = None
        if self._file.exists():
            with np.load(self._file) as kept:
                self._kept = int(kept["done"]), [kept[f"arr_{number}"] for number in range(len(kept.files) - 1)]
        self.begun = self._kept[0] if self._kept else 0  # the steps that were done before

    def save(self, done: int, weights: Sequence[np.ndarray]) -> None:
        """Keep the weights after `done` steps: written aside, then replaced."""
        self._kept = done, [*weights]
        if self._is_writer:
            new = self._file.with_name("new.npz")
            np.savez(new, *weights, done=done)
            new.replace(self._file)

    def newest(self) -> tuple[int, list[np.ndarray]] | None:
        """Return (done, weights) of the last checkpoint; None if there is none."""
        return self._kept


def describe_death(error: Exception) -> dict[str, object]:
    """Return JAX's reason, and the seconds from the other process' death until this one learned of it.

    Raises:
        Exception: the error, if no process was killed.
    """
    if not _locate_death_file().exists():
        raise error
    noticed = time.time() - float(_locate_death_file().read_text())
    reason = re.sub(r"\[[^\]]*(?:\.cc:\d+|\d+\.\d+\.\d+\.\d+)\]:?\S* ?", "", str(error).splitlines()[0])
    return {"error": reason, "noticed": noticed}
