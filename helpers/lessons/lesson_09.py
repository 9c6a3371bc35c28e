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

from helpers.compute.checkpoint import load, save
from helpers.errors import WorkshopError
from helpers.lessons.lesson_09_exercises import (  # noqa: F401  (the notebook calls them)
    Died,
    Store,
    check_checkpoints,
    check_exchange_seconds,
    check_receive,
    check_share,
    exchange_seconds,
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
# The most that each of the lesson's runs may take; it then ends with a message. ANYGPU_PATIENCE is for busy machines.
SECONDS = 100.0 * float(os.environ.get("ANYGPU_PATIENCE", "1"))
JAX_ENV = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
MPI = ["--oversubscribe", *(["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]

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


def run(function: Callable[..., object], processes: int = 1, **options: Any) -> Run:  # noqa: ANN401
    """Call a function in processes of their own, which have SECONDS for it; `helpers.compute.processes.run`."""
    from helpers.compute import processes as running

    return running.run(function, processes, SECONDS, **options)


def skipped(what: str) -> bool:
    """Say in a line that something is left out under `preview`, if it is."""
    if workload.current() == "preview":
        print(f"skipped under preview: {what}")
    return workload.current() == "preview"


def other_accounts() -> list[str]:
    """Return the names of other people's accounts that are logged in on this computer, or whose programs run."""
    import psutil

    names = {user.name for user in psutil.users()}
    if hasattr(os, "getuid"):
        first = 501 if sys.platform == "darwin" else 1000  # those before belong to the system, as does 65534, `nobody`
        for process in psutil.process_iter(["uids", "username"]):
            if process.info["uids"] and first <= process.info["uids"].real < 65534:
                names.add(process.info["username"])
    without_computer = {name.rpartition("\\")[2] for name in names if name}  # Windows writes COMPUTER\name
    return sorted(without_computer - {psutil.Process().username().rpartition("\\")[2], "root"})


PRIVATE = "TensorFlow's servers run in a network of their own here: nobody else can reach them."
OPEN = (
    "This system lets us make no network of their own for TensorFlow's servers. While a cell with them runs, for "
    "seconds, whoever can reach this computer can read and write your files. Among strangers, switch the network off."
)
CLOSED = (
    "Skipped: TensorFlow's servers. This system lets us make no network of their own for them, and other people use "
    "this computer, or it belongs to a hub: they could read and write your files. Do you trust all of them? "
    "Then set ANYGPU_OPEN_SERVERS=1 before you start the workshop."
)


def who_reaches_servers() -> str:
    """Return who can reach TensorFlow's servers while they run: PRIVATE, OPEN, or CLOSED if they are not started."""
    from helpers.compute import private_network

    if private_network.available():
        return PRIVATE
    # On Binder, which is a hub, too, everybody has a container that Binder alone reaches.
    hub = any(name.startswith("JUPYTERHUB_") for name in os.environ) and "BINDER_LAUNCH_HOST" not in os.environ
    trusted = os.environ.get("ANYGPU_OPEN_SERVERS") == "1"
    return CLOSED if (hub or other_accounts()) and not trusted else OPEN


def run_servers(function: Callable[..., object], processes: int = 3, **options: Any) -> Run | None:  # noqa: ANN401
    """Run a function that starts TensorFlow's servers; where they would be open to others, say so and return None."""
    reached = who_reaches_servers()
    if reached == CLOSED:
        print(CLOSED)
        return None
    return run(function, processes, private_network=reached == PRIVATE, **options)


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

    connections = psutil.Process().net_connections("tcp")
    return sorted({found.laddr.ip for found in connections if found.status == psutil.CONN_LISTEN})


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


def rank_indices(images: int, process: int, processes: int) -> np.ndarray:
    """Return the indices of one rank's images: its share of every batch.

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
        reason = re.sub(r"\[[^\]]*(?:\.cc:\d+|\d+\.\d+\.\d+\.\d+)\]:?\S* ?", "", str(error).splitlines()[0])
        return {"losses": self.losses, "error": reason, "noticed": noticed}

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
    floats[0] = [tuple(variable.shape) for variable in model.trainable_variables] + [(1,)]  # the gradients and the loss
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
    add = jax.jit(lambda several: [array.sum(axis=0) for array in several], out_shardings=mirrored)
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

    return [tf.Variable(array) for array in initial]


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
        pairs = zip(weights, gradients, strict=True)
        moved = [weight.assign_sub(RATE / 2 * gradient) for weight, gradient in pairs]
    with tf.control_dependencies(moved):
        counted = version.assign_add(1.0)
    with tf.control_dependencies([counted]):
        return version.read_value()


def clock(*after: object) -> tf.Tensor:
    """Return the seconds on the worker's clock when all of `after` is there, as an operation of TensorFlow."""
    import tensorflow as tf

    with tf.control_dependencies([tf.convert_to_tensor(value) for value in after]):
        return tf.timestamp()


def dawdle(seconds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Let worker 1 sleep, and no other; return (the worker's number, its clock) once that is over."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import testing

    worker = tf.distribute.coordinator.experimental_get_current_worker_index()
    pause = tf.where(tf.cast(worker, tf.int64) == 1, tf.cast(seconds * 5e5, tf.int64), 0)  # slept twice
    slept = (
        tf.data.Dataset.range(1)
        .apply(testing.sleep(pause))
        .reduce(tf.constant(0, tf.int64), lambda _, element: element)
    )
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
        self.returns: list[tuple[float, object]] = []
        queue = coordinator._cluster.closure_queue
        put_back = queue.put_back

        def noted(closure: object) -> None:
            self.returns.append((time.time(), closure.maybe_call_with_output_remote_value(lambda value: value)))
            put_back(closure)

        queue.put_back = noted

    def summary(self) -> dict[str, float]:
        """Return the seconds from the worker's death until it was noticed, and until its work was done by another."""
        if not self.returns or not _killed().exists():
            return {}
        recovered = max(float(value.fetch()[0][WROTE]) for _, value in self.returns)
        return {
            "noticed": self.returns[0][0] - _died(),
            "recovered": recovered - _died(),
            "returned": len(self.returns),
        }


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
        updates on the server), `pause`, and `returned` (see `Returned.summary`).
    """
    returned, results = Returned(coordinator), {}
    for kind in {line[1] for line in plan}:  # the first steps of each kind trace and connect
        for number in range(4):
            _schedule(coordinator, work, number, 0.0, kind)
        coordinator.join()
    for name, asynchronous, pause, steps, dies_at in plan:
        for variable, value in zip([*weights, version], [*initial, 0.0], strict=True):
            variable.assign(value)
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
        results[name]["returned"] = returned.summary()
    return results


def _schedule(coordinator: object, work: Callable[..., object], number: int, pause: float, write: bool) -> object:
    import tensorflow as tf

    return coordinator.schedule(work, args=(tf.constant(number), tf.constant(pause), write))


def _together(
    coordinator: object, work: Callable[..., object], number: int, pause: float, weights: Sequence[tf.Variable],
    updates: list[tuple[float, float]],
) -> np.ndarray:  # fmt: skip
    """Take a synchronous step: two gradients, and their mean from the coordinator. Return the notes, not the 5 MB."""
    both = [_schedule(coordinator, work, at, pause, write=False) for at in (number, number + 1)]
    coordinator.join()
    (note, first_gradients), (other, second_gradients) = (value.fetch() for value in both)
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
    last = min((update[0] for update in result["updates"] if update[0] >= end), default=end)  # the update that follows
    drawn = [("server", "write", *update) for update in result["updates"] if begin <= update[0] <= last]
    for step in notes[(notes[:, WROTE] > begin) & (notes[:, BEGAN] < end)]:
        worker, slept = f"worker {int(step[WORKER])}", result["pause"] > 0 and step[WORKER] == 1
        if slept:
            drawn.append((worker, "sleep", step[BEGAN], step[AWAKE]))
        drawn.append((worker, "read, compute", step[AWAKE if slept else BEGAN], step[COMPUTED]))
        if not result["updates"]:
            drawn.append((worker, "write", step[COMPUTED], step[WROTE]))
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


def last_words(run: Run) -> str:
    """Return how a single process ended, and what JAX's compiled code said; its dump of addresses is left out."""
    message = re.search(r"client\.h:\d+\] ([^.\n]*\.)", run.stderr[0])
    status = re.search(r"absl::Status: (\w+: [^\n]*)", run.stderr[0])
    lines = [run.failures[0] or "the process ended by itself"]
    lines += [f"JAX said: {message[1]} {status[1] if status else ''}".rstrip()] if message else []
    return "\n".join(lines)


def launch(command: Sequence[str], processes: int = 1) -> str:
    """Run a training script, and return what rank 0 printed.

    Args:
        command: program and arguments.
        processes: how many copies to start, each with the workshop's variables; 1 if the command starts them itself.
    """

    def start(process, addresses, command):  # noqa: ANN001, ANN202
        import os
        import subprocess

        own = {
            "ANYGPU_RANK": f"{process}",
            "ANYGPU_WORLD_SIZE": f"{len(addresses)}",
            "ANYGPU_COORDINATOR": addresses[0],
        }
        subprocess.run(command, env={**os.environ, **(own if len(addresses) > 1 else {})}, check=True)

    lines = run(start, processes, variables=JAX_ENV, arguments={"command": list(command)}).stdout[0].splitlines()
    return "\n".join(line for line in lines if not line.startswith("[Gloo]"))


def synchronous_run(
    function: Callable[..., object], arguments: Mapping[str, Any], epochs: int, folder: str = "",
    dies_at: int | None = None, processes: int = 2,
) -> Run:  # fmt: skip
    """Run the lesson's synchronous training; a process may be killed."""
    given = {**arguments, "epochs": epochs, "folder": folder, "dies_at": dies_at}
    return run(function, processes, variables=JAX_ENV, check=dies_at is None, arguments=given)


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
    """Run the lesson's trainings with a parameter server, in which a worker may be killed; return each one's results.

    Nothing is returned where TensorFlow's servers are not started.
    """
    dies = any(line[-1] is not None for line in plan)
    made = run_servers(function, check=not dies, arguments={**arguments, "plan": plan})
    return survivor(made) if made else {}
