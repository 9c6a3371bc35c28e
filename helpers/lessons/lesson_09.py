"""Lesson 09, Train on several machines: its machinery and its figures; lesson_09_exercises.py has the checks."""

from __future__ import annotations

import importlib.machinery
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.errors import WorkshopError
from helpers.lessons.lesson_09_exercises import (  # noqa: F401  (the notebook calls them)
    Died,
    Store,
    check_checkpoints,
    check_exchange_seconds,
    check_receive,
    check_share,
)
from helpers.measure import workload
from helpers.measure.plots import BLUE, GREEN, ORANGE, PINK, figure, show
from helpers.measure.tables import Table
from helpers.measure.timing import duration

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from helpers.compute.processes import Run

BATCH = 256  # images a step, of all processes together
RATE = 0.05
_PATIENCE = float(os.environ.get("ANYGPU_PATIENCE", "1"))  # the tests' own: no busy machine may fail one
SECONDS = 100.0 * _PATIENCE  # the most that one of the lesson's runs may take; it then ends with a message
PREVIEW_SECONDS = 100.0 * _PATIENCE  # the most that all of them together may take under `preview`

# --------------------------------------------------------------------------- what its processes have in common


def need(*frameworks: str) -> None:
    """Say before anything starts that a framework is missing; the lesson's processes would each say it their way.

    Args:
        frameworks: names that `helpers.compute.devices` knows.

    Raises:
        WorkshopError: one of them is not installed.
    """
    from helpers.compute import devices

    titles = {"tensorflow": "TensorFlow", "jax": "JAX"}
    missing = [titles[name] for name in frameworks if not devices.installed(name)]
    if missing:
        raise WorkshopError(
            f"This lesson needs {' and '.join(missing)}, not installed here.",
            "It compares the two frameworks' ways; the workshop for the processor has both.",
            "Set the workshop up for the processor: python3 workshop.py lab --accel cpu",
        )


_runs: dict[str, float] = {}  # seconds of each of the lesson's runs; one that is repeated counts once


def seconds_left(name: str = "") -> float:
    """Return how long a run may take: SECONDS, and under `preview` no more than its other runs have left.

    Args:
        name: of a run, which is not counted itself, as it may be a repetition; empty for a new one.
    """
    if workload.current() != "preview":
        return SECONDS
    others = sum(seconds for other, seconds in _runs.items() if other != name)
    return max(1.0, min(SECONDS, PREVIEW_SECONDS - others))


def run(function: Callable[..., object], processes: int = 1, name: str = "", **options: Any) -> Run:  # noqa: ANN401
    """Call a function in processes of their own, with a time-out, and note how long that took.

    Args:
        function: see `helpers.compute.processes.run`.
        processes: how many.
        name: by which its time is noted; the function's own if empty.
        options: of `helpers.compute.processes.run`.

    Raises:
        WorkshopError: it failed, or its time is over.
    """
    from helpers.compute import processes as running

    name, start = name or function.__name__, time.perf_counter()
    try:
        return running.run(function, processes, seconds_left(name), **options)
    finally:
        _runs[name] = time.perf_counter() - start


def skipped(what: str, seconds: float = 0.0) -> bool:
    """Say in a line that something is left out under `preview`, if it is.

    Args:
        what: it.
        seconds: it is left out only if less than this is left of PREVIEW_SECONDS; 0 for always.
    """
    if workload.current() != "preview" or (seconds and seconds_left() >= seconds):
        return False
    why = " as the time is short" if seconds else ""
    print(f"skipped under preview{why}: {what}")
    return True


def import_tensorflow(servers_only: bool = False) -> Any:  # noqa: ANN401
    """Import TensorFlow without what these processes do not use: Keras, JAX, SciPy.

    That is half of the time and 190 MB of each process. Its log lines stay in the process' standard error.
    GRPC_FAIL_FAST is TensorFlow's own advice for parameter servers:
    https://www.tensorflow.org/tutorials/distribute/parameter_server_training

    Args:
        servers_only: whether `train.ClusterSpec` and `distribute.Server` are enough, as they are for a process that
            does what others send: then a sixth of the time, and 150 MB less. What is sent is compiled code's work.
    """
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    # With one thread for its operations, as on one core, a worker that waits for another was seen to wait for ever.
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "4")
    sys.modules.update(dict.fromkeys(("keras", "tf_keras", "jax", "scipy")))
    if not servers_only:
        return importlib.import_module("tensorflow")
    package = importlib.machinery.PathFinder.find_spec("tensorflow")
    sys.modules["tensorflow"] = bare = ModuleType("tensorflow")  # instead of its __init__, which imports everything
    bare.__path__ = list(package.submodule_search_locations)
    library = importlib.import_module("tensorflow.python.training.server_lib")
    bare.train = SimpleNamespace(ClusterSpec=library.ClusterSpec)
    bare.distribute = SimpleNamespace(Server=library.Server)
    return bare


def import_keras() -> ModuleType:
    """Import Keras on JAX without scikit-learn and Matplotlib, which it would load: 40 % of the time."""
    os.environ["KERAS_BACKEND"] = "jax"
    sys.modules.update(dict.fromkeys(("sklearn", "matplotlib")))
    return importlib.import_module("keras")


def listening() -> list[str]:
    """Return the addresses on which this process takes connections; `::` and `0.0.0.0` are all of the machine's."""
    import psutil

    return sorted({one.laddr.ip for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN})


def where(metadata: tf.compat.v1.RunMetadata) -> dict[str, str]:
    """Return for each of an old session's operations the task that ran it; those that only move data are left out.

    Args:
        metadata: what `Session.run` noted.
    """
    found = {}
    for device in metadata.step_stats.dev_stats:
        task = re.sub(r"/replica:\d+|/device:.*", "", device.device)
        found |= {node.node_name: task for node in device.node_stats if node.node_name in ("a", "b", "product")}
    return dict(sorted(found.items()))


_kept: list[object] = []  # servers end when nothing refers to them any more


def keep(server: object) -> None:
    """Let a server live as long as its process."""
    _kept.append(server)


def _killed() -> Path:
    """Where a process that is about to die writes when it does: the run's own folder, which all its processes share."""
    return Path(tempfile.gettempdir()) / "killed"


def die() -> None:
    """Do to this process what `kill -9` does, and leave the time of death behind."""
    _killed().write_text(repr(time.time()))
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _died() -> float:
    return float(_killed().read_text())


# -------------------------------------------------------------------------------------- synchronous, Keras on JAX


def of_each_batch(images: int, process: int, processes: int) -> np.ndarray:
    """Return the numbers of the images that belong to one process: of each batch its own part.

    Args:
        images: how many there are, whole batches.
        process: its rank.
        processes: the world size.
    """
    return np.arange(images).reshape(-1, processes, BATCH // processes)[:, process].ravel()


def network(weights: Sequence[np.ndarray]) -> keras.Model:
    """Return article A's network without dropout, with these weights, compiled with the simplest optimizer.

    It is `models.plain_mlp`, but begins with zeros: to compile random numbers which are then replaced takes a second.
    """
    from keras import Input, Sequential, layers, optimizers

    zeros = {"kernel_initializer": "zeros"}
    hidden = [layers.Dense(512, activation="relu", **zeros) for _ in range(2)]
    last = layers.Dense(10, activation="softmax", **zeros)
    model = Sequential([Input((784,), dtype="uint8"), layers.Rescaling(1 / 255), *hidden, last])
    model.compile(optimizers.SGD(RATE), "sparse_categorical_crossentropy")
    model.set_weights(weights)
    return model


def state(model: keras.Model) -> list[keras.Variable]:
    """Return all that a training changes: the weights, and what the optimizer keeps."""
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def save(file, model, losses):  # noqa: ANN001, ANN201, D103  (the lesson shows it)
    import numpy as np

    new = file.with_name("new.npz")
    np.savez(new, *[one.numpy() for one in state(model)], losses=losses)  # takes a while
    new.replace(file)  # takes no time: there is always a whole file of this name


def load(file: Path, model: keras.Model) -> list[float]:
    """Give a model what `save` wrote, and return the losses until then; none if there is no such file."""
    if not file.exists():
        return []
    with np.load(file) as kept:
        for number, one in enumerate(state(model)):
            one.assign(kept[f"arr_{number}"])
        return kept["losses"].tolist()


class Steps:
    """What happened in a training of Keras, step by step; it can end its process in the middle."""

    def __init__(self, dies_at: int | None = None) -> None:
        """Begin with no step.

        Args:
            dies_at: after so many steps the process is killed by signal 9; None for never.
        """
        self.losses: list[float] = []  # of each step: the mean over the images of the epoch so far
        self.begin = 0  # steps that a checkpoint had
        self.ends: list[float] = []  # when each step ended
        self.dies_at = dies_at

    def callback(self) -> keras.callbacks.Callback:
        """Return what `fit` has to call."""
        import keras

        return keras.callbacks.LambdaCallback(on_train_batch_end=self._end)

    def resume(self, file: Path, model: keras.Model, process: int) -> keras.callbacks.Callback:
        """Go on from a checkpoint if there is one, and return what `fit` has to call to keep one after each epoch.

        Rank 0 writes it and all read it: on a cluster this needs a disk that all can reach.

        Args:
            file: the checkpoint.
            model: the same in all processes.
            process: the rank.
        """
        import keras

        self.losses = load(file, model)
        self.begin = len(self.losses)
        kept = keras.callbacks.LambdaCallback()
        if process == 0:  # kept.model is the model with the weights of this moment; on JAX, fit has them elsewhere
            kept.on_epoch_end = lambda epoch, logs: save(file, kept.model, self.losses)
        return kept

    def _end(self, step: int, logs: dict[str, float]) -> None:
        self.losses.append(float(logs["loss"]))
        self.ends.append(time.time())
        if len(self.losses) == self.dies_at:
            die()

    def lost(self, error: Exception) -> dict[str, object]:
        """Return what a survivor knows: JAX's reason, and how long after the other's death it learned of it."""
        noticed = time.time() - _died()
        told = re.sub(r"\[[^\]]*(?:\.cc:\d+|\d+\.\d+\.\d+\.\d+)\]:?\S* ?", "", str(error).splitlines()[0])
        return {"losses": self.losses, "error": told, "noticed": noticed}

    @property
    def median(self) -> float:
        """Seconds a step, without those that begin an epoch or compile."""
        return float(np.median(np.diff(self.ends)[2:])) if len(self.ends) > 3 else float("nan")


def fit(
    model: keras.Model, images: np.ndarray, labels: np.ndarray, epochs: int, options: Mapping[str, Any], steps: Steps
) -> dict[str, object]:
    """Call `model.fit`, and return what happened: its losses, or that another process is lost.

    Where nothing is kept in a checkpoint, the parts of a step are timed, too (`parts`).

    Args:
        model: compiled, and the same in all processes.
        images: of this process.
        labels: of this process.
        epochs: how many in all.
        options: more arguments for `fit`.
        steps: what notes the steps, one of the callbacks.
    """
    import jax

    try:
        model.fit(images, labels, epochs=epochs, **options)
    except (RuntimeError, ValueError) as error:  # jax.errors.JaxRuntimeError is a RuntimeError
        if not _killed().exists():
            raise
        return steps.lost(error)
    result = {"losses": steps.losses, "begin": steps.begin, "median": steps.median}
    result["first"] = steps.ends[0] if steps.ends else time.time()
    if jax.process_count() > 1 and len(options["callbacks"]) == 1:
        result |= parts(model, images, labels, options["batch_size"])
    return result


def parts(model: keras.Model, images: np.ndarray, labels: np.ndarray, batch: int) -> dict[str, object]:
    """Time what a step consists of: its arithmetic without the exchange, and exchanges alone. All processes call it.

    Args:
        model: whose gradients would be exchanged; a twin of it is trained here, in this process alone.
        images: of this process.
        labels: of this process.
        batch: this process' images a step.

    Returns:
        `alone`: seconds of a step without exchange; `together`: of exchanges of a step, nothing computed (a list);
        `exchange`: for each size in bytes the seconds of the all-reduces of one array (a list).
    """
    import keras

    floats = {4 * count: [(count,)] for count in (1, model.count_params(), 4 * model.count_params())}
    floats[0] = [tuple(one.shape) for one in model.trainable_variables] + [(1,)]  # the gradients and the loss
    exchange = exchanges(floats)
    together = exchange.pop(0)
    keras.distribution.set_distribution(None)
    twin, steps = network(model.get_weights()), Steps()
    twin.fit(images, labels, batch_size=batch, epochs=2, shuffle=False, verbose=0, callbacks=[steps.callback()])
    return {"alone": steps.median, "together": together, "exchange": exchange}


def exchanges(arrays: Mapping[int, Sequence[tuple[int, ...]]], rounds: int = 20) -> dict[int, list[float]]:
    """Time all-reduces between all processes, in turn, so that a busy moment meets all kinds. All have to call it.

    Args:
        arrays: of each kind the shapes of its float32 arrays, which are added up in one compiled step.
        rounds: how often each, after once that compiles.

    Returns:
        For each kind the seconds of its steps, as this process sees them.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("process",))
    rows, mirrored = (NamedSharding(mesh, PartitionSpec(*name)) for name in (("process",), ()))
    add = jax.jit(lambda several: [one.sum(axis=0) for one in several], out_shardings=mirrored)
    given = {
        kind: [jax.make_array_from_process_local_data(rows, np.ones((1, *shape), np.float32)) for shape in shapes]
        for kind, shapes in arrays.items()
    }
    taken: dict[int, list[float]] = {kind: [] for kind in given}
    for _ in range(rounds + 1):
        for kind, several in given.items():
            start = time.perf_counter()
            jax.block_until_ready(add(several))
            taken[kind].append(time.perf_counter() - start)
    return {kind: seconds[1:] for kind, seconds in taken.items()}


# ------------------------------------------------------------------------- asynchronous, TensorFlow's parameter server


def wait_for_work(task: int) -> None:
    """Let a worker's server do what the coordinator sends; worker 1 dies when the coordinator says so."""

    def watch() -> None:
        while not (Path(tempfile.gettempdir()) / "die").exists():
            time.sleep(0.005)
        die()

    if task == 1:
        threading.Thread(target=watch, daemon=True).start()


def variables(initial: Sequence[np.ndarray]) -> list[tf.Variable]:
    """Make TensorFlow's variables of a network's weights."""
    import tensorflow as tf

    return [tf.Variable(one) for one in initial]


def gradients(
    weights: Sequence[tf.Variable],
    images: np.ndarray,
    labels: np.ndarray,
    number: tf.Tensor,
    after: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return (the mean loss of one small batch, its gradients) of article A's network, as operations of TensorFlow.

    Args:
        weights: matrix and biases of each layer.
        images: uint8 array of shape (n, 784).
        labels: array of shape (n,).
        number: of the small batch, half as large as BATCH; it begins anew behind the last one.
        after: the weights are read when these are there.
    """
    import tensorflow as tf

    half = BATCH // 2
    first = number % (len(images) // half) * half
    rows = tf.cast(tf.constant(images)[first : first + half], tf.float32) / 255
    with tf.control_dependencies(after), tf.GradientTape() as tape:
        for at in range(0, len(weights), 2):
            rows = rows @ weights[at] + weights[at + 1]
            rows = tf.nn.relu(rows) if at + 2 < len(weights) else rows
        wanted = tf.constant(labels.astype("int32"))[first : first + half]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, rows))
    return loss, tape.gradient(loss, list(weights))


def subtract(weights: Sequence[tf.Variable], gradients: Sequence[tf.Tensor], version: tf.Variable) -> tf.Tensor:
    """Move the weights on the server by half the learning rate, count the update, and return the count.

    Half, because a synchronous step takes the mean of two gradients: so each gradient moves the weights equally far.
    """
    import tensorflow as tf

    with tf.control_dependencies(list(gradients)):
        moved = [one.assign_sub(RATE / 2 * gradient) for one, gradient in zip(weights, gradients, strict=True)]
    with tf.control_dependencies(moved):
        counted = version.assign_add(1.0)
    with tf.control_dependencies([counted]):
        return version.read_value()


def clock(*after: object) -> tf.Tensor:
    """Return the seconds on the worker's clock when all of `after` is there, as an operation of TensorFlow."""
    import tensorflow as tf

    with tf.control_dependencies([tf.convert_to_tensor(one) for one in after]):
        return tf.timestamp()


def dawdle(seconds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Let worker 1 sleep, and no other; return (the worker's number, its clock) once that is over."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import testing

    worker = tf.distribute.coordinator.experimental_get_current_worker_index()
    pause = tf.where(tf.cast(worker, tf.int64) == 1, tf.cast(seconds * 5e5, tf.int64), 0)  # slept twice
    slept = tf.data.Dataset.range(1).apply(testing.sleep(pause)).reduce(tf.constant(0, tf.int64), lambda _, one: one)
    return worker, clock(slept)


def note(*values: tf.Tensor) -> tf.Tensor:
    """Return a step's values as one vector, which travels in one message."""
    import tensorflow as tf

    return tf.stack([tf.cast(value, tf.float64) for value in values])


# What a step notes: worker; when it began, had slept, had its gradient, had written it; the updates that the weights
# had seen when they were read, and after its own; the loss.
WORKER, BEGAN, AWAKE, COMPUTED, WROTE, READ, WRITTEN, LOSS = range(8)


def kill_worker(version: tf.Variable, updates: int) -> None:
    """Wait until so many updates are done, and let worker 1 be killed."""
    while int(version.numpy()) < updates:
        time.sleep(0.002)
    (Path(tempfile.gettempdir()) / "die").touch()


class Returned:
    """The work that comes back to the coordinator because its worker is gone."""

    def __init__(self, coordinator: tf.distribute.coordinator.ClusterCoordinator) -> None:
        """Watch a coordinator's queue; TensorFlow has no public way to see this."""
        self.came: list[tuple[float, object]] = []
        queue = coordinator._cluster.closure_queue
        put_back = queue.put_back

        def noted(closure: object) -> None:
            self.came.append((time.time(), closure.maybe_call_with_output_remote_value(lambda value: value)))
            put_back(closure)

        queue.put_back = noted

    def told(self) -> dict[str, float]:
        """Return the seconds from the worker's death until it was noticed, and until its work was done by another."""
        if not self.came or not _killed().exists():
            return {}
        recovered = max(float(value.fetch()[0][WROTE]) for _, value in self.came)
        return {"noticed": self.came[0][0] - _died(), "recovered": recovered - _died(), "returned": len(self.came)}


Plan = Sequence[tuple[str, bool, float, int, int | None]]


def carry_out(
    plan: Plan,
    coordinator: tf.distribute.coordinator.ClusterCoordinator,
    work: Callable[..., object],
    weights: Sequence[tf.Variable],
    initial: Sequence[np.ndarray],
    version: tf.Variable,
) -> dict[str, dict[str, Any]]:
    """Train once for each line of the plan, from the same weights, and return what the workers noted.

    Args:
        plan: for each training its name, whether it is asynchronous, worker 1's pause in each step, the steps, and
            after how many updates worker 1 is killed, or None.
        coordinator: hands out the work.
        work: the lesson's step.
        weights: on the parameter server.
        initial: what they begin with.
        version: counts the updates.

    Returns:
        For each training `notes` (a row a step), `updates` (begin and end of the coordinator's own), `version` (the
        updates on the server), `pause`, and `returned` (see `Returned.told`).
    """
    returned, results = Returned(coordinator), {}
    for kind in {line[1] for line in plan}:  # the first steps of each kind trace and connect
        for number in range(4):
            _schedule(coordinator, work, number, 0.0, kind)
        coordinator.join()
    for name, asynchronous, pause, steps, dies_at in plan:
        for one, value in zip([*weights, version], [*initial, 0.0], strict=True):
            one.assign(value)
        updates: list[tuple[float, float]] = []
        if asynchronous:
            values = [_schedule(coordinator, work, number, pause, write=True) for number in range(steps)]
            if dies_at is not None:
                kill_worker(version, dies_at)
            coordinator.join()
            notes = np.array([value.fetch()[0] for value in values])
        else:
            pairs = [_together(coordinator, work, number, pause, weights, updates) for number in range(0, steps, 2)]
            notes = np.concatenate(pairs)
        counted = int(version.numpy()) if asynchronous else len(updates)
        results[name] = {"notes": notes, "updates": updates, "version": counted, "pause": pause}
        results[name]["returned"] = returned.told()
    return results


def _schedule(coordinator: object, work: Callable[..., object], number: int, pause: float, write: bool) -> object:
    import tensorflow as tf

    return coordinator.schedule(work, args=(tf.constant(number), tf.constant(pause), write))


def _together(
    coordinator: object, work: Callable[..., object], number: int, pause: float, weights: Sequence[tf.Variable],
    updates: list[tuple[float, float]],
) -> np.ndarray:  # fmt: skip
    """Take a synchronous step: two gradients, and their mean from the coordinator. Return the notes, not the 5 MB."""
    both = [_schedule(coordinator, work, one, pause, write=False) for one in (number, number + 1)]
    coordinator.join()
    (note, first_gradients), (other, second_gradients) = (one.fetch() for one in both)
    begin = time.time()
    for weight, first, second in zip(weights, first_gradients, second_gradients, strict=True):
        weight.assign_sub(RATE * (first + second) / 2)
    updates.append((begin, time.time()))
    return np.array([note, other])


# ------------------------------------------------------------------------------------- what the notebook looks at


def spans(result: Mapping[str, Any], steps: int) -> list[tuple[str, str, float, float]]:
    """Return what the workers and the parameter server did in the middle of a training, for `plots.timeline`.

    Args:
        result: what one part of the parameter server's plan returned.
        steps: how many of worker 1's steps to show, with all that happens meanwhile.
    """
    notes = result["notes"][np.argsort(result["notes"][:, BEGAN])]
    slow = notes[notes[:, WORKER] == 1] if (notes[:, WORKER] == 1).any() else notes
    slow = slow[len(slow) // 2 - steps // 2 :][:steps]
    begin, end = slow[0, BEGAN], slow[-1, WROTE]
    last = min((one[0] for one in result["updates"] if one[0] >= end), default=end)  # the update that follows
    drawn = [("server", "write", *one) for one in result["updates"] if begin <= one[0] <= last]
    for one in notes[(notes[:, WROTE] > begin) & (notes[:, BEGAN] < end)]:
        worker, slept = f"worker {int(one[WORKER])}", result["pause"] > 0 and one[WORKER] == 1
        if slept:
            drawn.append((worker, "sleep", one[BEGAN], one[AWAKE]))
        drawn.append((worker, "read, compute", one[AWAKE if slept else BEGAN], one[COMPUTED]))
        if not result["updates"]:
            drawn.append((worker, "write", one[COMPUTED], one[WROTE]))
    return drawn


def panels(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[str, str, float, float]]]:
    """Return for each training a piece from its middle, under a name that says how many steps the piece has.

    Args:
        runs: what the parts of the parameter server's plan returned.
    """
    pieces = {}
    for name, result in runs.items():
        drawn = spans(result, 2 if "straggler" in name else 4)
        pieces[f"{name}, {sum(what == 'read, compute' for _, what, _, _ in drawn)} steps"] = drawn
    return pieces


def staleness(notes: np.ndarray) -> np.ndarray:
    """Return for each step how many updates of others came between its reading and its writing; shape (steps,)."""
    return np.maximum(notes[:, WRITTEN] - notes[:, READ] - 1, 0).astype(int)


def staleness_figure(runs: Mapping[str, np.ndarray]) -> None:
    """Draw how often each staleness came about.

    Args:
        runs: for each run the staleness of its steps.
    """
    most = max(int(values.max()) for values in runs.values())
    bins, width = np.arange(most + 1), 0.8 / len(runs)
    words = []
    with figure(7.5, 3.0) as (drawn, axes):
        looks = ((BLUE, ""), (ORANGE, "//"))
        for at, ((name, values), (colour, hatch)) in enumerate(zip(runs.items(), looks, strict=False)):
            counts = np.bincount(values, minlength=most + 1)
            place = bins + (at - (len(runs) - 1) / 2) * width
            axes.bar(place, 100 * counts / len(values), width, color=colour, hatch=hatch, edgecolor="white", label=name)
            words.append(f"{name}: mean {values.mean():.2g}, most {values.max()}")
        axes.set(xlabel="updates by the other worker between reading and writing", ylabel="share of steps (%)")
        axes.set(title="How stale are the weights that a gradient was computed with?")
        axes.set_xticks(bins if most < 25 else bins[::5])
        axes.legend()
    show(drawn, f"Staleness of the asynchronous steps. {'; '.join(words)}.")


def loss_figure(runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the loss of several runs against the seconds since each began.

    Args:
        runs: what the parts of the parameter server's plan returned.
    """
    looks = ((BLUE, "-"), (GREEN, "--"), (ORANGE, "-"), (PINK, "--"))
    words = []
    with figure(7.5, 3.6) as (drawn, axes):
        for (name, result), (colour, line) in zip(runs.items(), looks, strict=False):
            seconds, smooth = _smooth(result["notes"])
            axes.plot(seconds, smooth, color=colour, ls=line, label=name)
            words.append(f"{name}: {smooth[-1]:.2f} after {seconds[-1]:.2g} s")
        axes.set(xlabel="time since the run began (s)", ylabel="loss, mean of 8 steps")
        axes.set(title="The same number of images, and what a straggler costs")
        axes.legend()
    show(drawn, f"Loss against time for as many images. {'; '.join(words)}.")


def plan_table(runs: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return for each part of the plan how long it took, who did how much, and where the loss ended."""
    rows = []
    for name, result in runs.items():
        notes = result["notes"]
        by = [int((notes[:, WORKER] == worker).sum()) for worker in (0, 1)]
        rows.append((name, duration(_length(notes)), f"{by[0]} and {by[1]}", f"{notes[-8:, LOSS].mean():.2f}"))
    return Table(rows, ["", "time for all", "steps of workers 0 and 1", "loss, last 8 steps"])


def _length(notes: np.ndarray) -> float:
    return float(notes[:, WROTE].max() - notes[:, BEGAN].min())


def _smooth(notes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (seconds since the beginning, mean loss of 8 steps), in the order in which the steps ended."""
    notes = notes[np.argsort(notes[:, WROTE])]
    return notes[7:, WROTE] - notes[:, BEGAN].min(), np.convolve(notes[:, LOSS], np.ones(8) / 8, "valid")


def lower_after_same_time(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return which of the two trainings with a straggler had the lower loss when the first of them was over."""
    curves = {name.partition(",")[0]: _smooth(run["notes"]) for name, run in runs.items() if "straggler" in name}
    until = min(seconds[-1] for seconds, _ in curves.values())
    then = {name: float(loss[max(0, int((seconds <= until).sum()) - 1)]) for name, (seconds, loss) in curves.items()}
    return min(then, key=then.get)


def survival_table(steps: int, died_at: int, result: Mapping[str, Any]) -> Table:
    """Return what became of a training whose worker 1 was killed.

    Args:
        steps: as many as were scheduled.
        died_at: how many updates there were when it was killed, about.
        result: its part of the plan.
    """
    notes, returned = result["notes"], result["returned"]
    rows = [("steps scheduled", steps), ("worker 1 was killed after", f"{died_at} updates")]
    rows += [("steps with a result", len(notes))]
    by = [int((notes[:, WORKER] == worker).sum()) for worker in (0, 1)]
    rows += [("of these by worker 0 and worker 1", f"{by[0]} and {by[1]}")]
    rows += [("updates on the server", result["version"])]
    if returned:
        rows.append(("the coordinator noticed after", duration(returned["noticed"])))
        rows.append(("another worker had done the step after", duration(returned["recovered"])))
    return Table(rows, ["", "measured"])


def what_takes_long(step: float, alone: float, together: float) -> str:
    """Return in a sentence how much of what a step takes more than its arithmetic is the exchange itself.

    Args:
        step: seconds of the whole step.
        alone: of the step without exchange.
        together: of the exchange of a step, with nothing computed.
    """
    rest = step - alone
    if rest <= 0:
        return "Here the step without exchange was not faster: this computer is too busy to tell."
    told = f"The step takes {duration(rest)} more than without exchange; the exchange alone takes {duration(together)}."
    if together >= 1.5 * rest:
        return f"{told} Alone it took longer than in a step: this computer is too busy to tell."
    if together >= rest:
        return f"{told} So it is the exchange itself, as exactly as such times can tell."
    if together >= 0.5 * rest:
        return f"{told} So most of it is the exchange itself."
    return f"{told} So most of it comes only when the processes compute, too. Why, these numbers do not say."


def link_told(least: Mapping[int, float], together: Sequence[float], arrays: int = 7) -> str:
    """Return in lines the link that the smallest and the largest all-reduce give, and what follows for the middle one.

    Args:
        least: of two processes: for three sizes in bytes the least seconds of an all-reduce of one array.
        together: the seconds of exchanges of the middle size in several arrays.
        arrays: how many.
    """
    from helpers import cluster

    small, middle, large = sorted(least)
    if least[large] <= least[small]:
        return f"too noisy to tell here: {large / 1e6:.1f} MB took no longer than {small} bytes"
    rate, latency = cluster.link((small, least[small]), (large, least[large]))
    one = cluster.exchange_seconds(middle, 2, rate, latency)
    several = one + 2 * (arrays - 1) * latency  # each array has two messages
    size, median = f"{middle / 1e6:.1f} MB", float(np.median(together))
    fits = "about" if median < 1.5 * several else f"{median / several:.2g} times"
    return (
        f"this computer: {rate / 1e9:.2f} GB/s, latency {duration(latency)}\n"
        f"one array, {size}: calculated {duration(one)}, the fastest {duration(least[middle])}\n"
        f"{arrays} arrays, {size}: calculated {duration(several)}, the fastest {duration(min(together))}, "
        f"the median {duration(median)}: {fits} what the formula says"
    )


def how_equal(difference: float) -> str:
    """Return in a word whether two losses are the same."""
    return "exactly" if difference == 0 else "almost" if difference < 1e-5 else "no"


def last_words(run: Run) -> str:
    """Return how a single process ended, and what JAX's compiled code said; its dump of addresses is left out."""
    said = re.search(r"client\.h:\d+\] ([^.\n]*\.)", run.stderr[0])
    status = re.search(r"absl::Status: (\w+: [^\n]*)", run.stderr[0])
    lines = [run.failures[0] or "the process ended by itself"]
    lines += [f"JAX said: {said[1]} {status[1] if status else ''}".rstrip()] if said else []
    return "\n".join(lines)


MPI = ["--oversubscribe", *(["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]


def launch(command: Sequence[str], processes: int = 1) -> str:
    """Run a training script, and return what rank 0 printed.

    Args:
        command: program and arguments.
        processes: how many copies to start, each with the workshop's variables; 1 if the command starts them itself.

    Raises:
        WorkshopError: one of them failed, or had not ended in time.
    """
    from concurrent.futures import ThreadPoolExecutor

    from helpers.compute import processes as running

    start = time.perf_counter()
    (address,) = running._free_addresses(1)
    common = {**JAX, "ANYGPU_WORLD_SIZE": str(processes), "ANYGPU_COORDINATOR": address}
    own = [common | {"ANYGPU_RANK": str(rank)} for rank in range(processes)] if processes > 1 else [dict(JAX)]
    environments, seconds = [running.environment(one) for one in own], seconds_left(command[0])
    with ThreadPoolExecutor(len(own)) as pool:
        try:
            ended = list(pool.map(lambda env: running.run_command(command, seconds, env), environments))
        except BaseException:
            running.kill_all()
            raise
        finally:
            _runs[command[0]] = time.perf_counter() - start
    for rank, one in enumerate(ended):
        if one.status != 0:
            what = "had not ended in time" if one.status is None else f"ended with status {one.status}"
            why = "\n".join(one.stderr.strip().splitlines()[-8:])
            raise WorkshopError(f"Process {rank} {what}.", why, "Run the cell again.")
    return ended[0].stdout.strip()


def last_loss(text: str) -> str:
    """Return the last loss that `python -m helpers train` printed."""
    found = re.search(r"Last loss ([\d.]+)", text)
    return found[1] if found else "none"


def shown_source(function: Callable[..., object]) -> str:
    """Return a function as the lesson shows it: without the marks for the linter."""
    import inspect

    return re.sub(r"  # noqa:.*", "", inspect.getsource(function))


def multi_worker(process, addresses):  # noqa: ANN001, ANN201, D103  (the lesson shows it)
    import json
    import os

    task = {"type": "worker", "index": process}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything computes
    import keras

    images = np.random.default_rng(0).random((96, 20), "float32")
    labels = (images[:, 0] > 0.5).astype("int32")
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)  # of both workers together
    with strategy.scope():
        model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(2, kernel_initializer="zeros")])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    try:
        model.fit(dataset, verbose=0)
    except ValueError as error:
        print("fit failed:", str(error).split("(")[0].rstrip(), "(PerReplica ...")

    def one_worker(images, labels):  # noqa: ANN001, ANN202
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(labels, model(images), from_logits=True)
            loss = tf.reduce_sum(each) / 32
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            weight.value.assign_sub(0.5 * gradient)
        return loss

    @tf.function
    def step(images, labels):  # noqa: ANN001, ANN202
        return strategy.reduce("sum", strategy.run(one_worker, (images, labels)), axis=None)

    losses = [float(step(*batch)) for batch in strategy.experimental_distribute_dataset(dataset)]
    print("a loop of one's own, loss of each step:", *(f"{loss:.3f}" for loss in losses))
    return losses


# ---------------------------------------------------------------------------- the lesson's own experiments, repeated


def lose_workers(
    parameter_server: Callable[..., object],
    synchronous: Callable[..., object],
    arguments: Mapping[str, Any],
    steps: int,
    epochs: int,
    repeats: int = 1,
) -> Table:
    """Kill a worker at some moment of a training, asynchronous and synchronous, and return what it cost.

    Args:
        parameter_server: the lesson's function; three processes.
        synchronous: the lesson's function; two processes.
        arguments: initial weights, images and labels for both.
        steps: of the asynchronous training.
        epochs: of the synchronous one.
        repeats: how often each; the moment of the death differs.

    Returns:
        A row for each run.
    """
    rng, rows = np.random.default_rng(), []
    whole = synchronous_run(synchronous, arguments, epochs).result["losses"]
    for _ in range(repeats):
        rows.append(_asynchronous_row(parameter_server, arguments, steps, int(rng.integers(1, steps))))
        rows.append(_synchronous_row(synchronous, arguments, epochs, int(rng.integers(1, len(whole))), whole))
    names = ["training", "killed at step", "steps lost", "steps repeated", "noticed", "recovered"]
    return Table(sorted(rows, key=lambda row: row[0]), [*names, "last loss", "unbroken"])


def _asynchronous_row(
    parameter_server: Callable[..., object], arguments: Mapping[str, Any], steps: int, at: int
) -> tuple:
    plan = [("unbroken", True, 0.0, steps, None), ("broken", True, 0.0, steps, at)]
    runs = asynchronous_run(parameter_server, arguments, plan)
    broken, returned = runs["broken"], runs["broken"]["returned"]
    took = [duration(returned[name]) if name in returned else "not needed" for name in ("noticed", "recovered")]
    last = [f"{runs[name]['notes'][-8:, LOSS].mean():.3f}" for name in ("broken", "unbroken")]
    return "asynchronous", at, steps - len(broken["notes"]), broken["version"] - steps, *took, *last


def _synchronous_row(
    synchronous: Callable[..., object], arguments: Mapping[str, Any], epochs: int, at: int, whole: Sequence[float]
) -> tuple:
    with tempfile.TemporaryDirectory(prefix="anygpu-") as folder:
        broken = survivor(synchronous_run(synchronous, arguments, epochs, folder, at))
        start = time.time()
        resumed = synchronous_run(synchronous, arguments, epochs, folder).result
        recovered = resumed["first"] - start  # until its first step
    lost = len(whole) - len(resumed["losses"])
    row = duration(broken["noticed"]), duration(recovered), f"{resumed['losses'][-1]:.6f}", f"{whole[-1]:.6f}"
    return "synchronous", at, lost, at - resumed["begin"], *row


JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def synchronous_run(
    function: Callable[..., object], arguments: Mapping[str, Any], epochs: int, folder: str = "",
    dies_at: int | None = None, processes: int = 2,
) -> Run:  # fmt: skip
    """Run the lesson's synchronous training; a process may be killed."""
    name = f"synchronous, {processes} processes" + ", broken" * bool(dies_at) + ", with a checkpoint" * bool(folder)
    given = {**arguments, "epochs": epochs, "folder": folder, "dies_at": dies_at}
    return run(function, processes, name, variables=JAX, check=dies_at is None, arguments=given)


def survivor(run: Run) -> Any:  # noqa: ANN401
    """Return what process 0 returned in a run in which another process was killed.

    Raises:
        WorkshopError: it has failed, too.
    """
    if run.result is None:
        raise WorkshopError(
            "The experiment failed: process 0 has no result.",
            run.failures[0],
            "Close other programs, and run it again.",
        )
    return run.result


def asynchronous_run(
    function: Callable[..., object], arguments: Mapping[str, Any], plan: Plan
) -> dict[str, dict[str, Any]]:
    """Run the lesson's trainings with a parameter server, in which a worker may be killed; return what each told."""
    dies = any(line[-1] is not None for line in plan)
    return survivor(run(function, 3, check=not dies, arguments={**arguments, "plan": plan}))
