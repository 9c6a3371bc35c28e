"""Serve lesson 06, Switch Keras backends: the checks of its exercises, its figure and its table, its machinery."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers import devices
from helpers.judge import checks
from helpers.measure import records
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement, duration
from helpers.running import processes
from helpers.training import backends

if TYPE_CHECKING:
    import keras

# ---------------------------------------------------------------------- what is here


def explain_missing_backend(module: str) -> str | None:
    """Return why a backend of Keras cannot be used here, and how to get it; None if it can be used."""
    if not devices.is_installed(module):
        return devices.explain_missing(module)
    if module == "torch":
        version = importlib.metadata.version(module)
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < (2, 6):  # older ones have not been tried
            return f"PyTorch {version} is too old for this lesson, which needs 2.6"
    return None


def is_backend_installed(module: str) -> bool:
    """Return whether a backend of Keras can be used here."""
    return explain_missing_backend(module) is None


def make_variables(backend: str) -> dict[str, str]:
    """Return the environment variables with which a process starts one backend of Keras, and spares the machine.

    Otherwise PyTorch's threads (OpenMP) spin while they wait for each other, which on a busy machine made a training
    step take 60 times as long.
    """
    return {backends.VARIABLE: backend, "OMP_WAIT_POLICY": "passive"}


def run_programs(function: Callable[..., object], programs: Mapping[str, str]) -> dict[str, object]:
    """Return for each program what a function makes of it in a separate process, or its error in a line.

    Neither KERAS_BACKEND nor the learner's own keras.json reaches the processes.

    Args:
        function: gets `programs`, a list, and `process`, the number of its own from 0.
        programs: their texts by name.
    """
    with tempfile.TemporaryDirectory() as empty:
        variables, given = {backends.VARIABLE: None, "KERAS_HOME": empty}, {"programs": list(programs.values())}
        run = processes.run(function, len(programs), variables=variables, check=False, arguments=given)
    return dict(zip(programs, _list_answers(run), strict=True))


def _list_answers(run: processes.Run) -> list:
    """Return what the function returned in each process, or its error in a line."""
    return [_shorten_error(why) if why else result for why, result in zip(run.failures, run.results, strict=True)]


def _shorten_error(error: str) -> str:
    """Return an error's kind and the first line of its message, cut to 200 characters."""
    lines = [line.strip() for line in error.strip().splitlines()]
    line = next((line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)), lines[-1])
    return line if len(line) <= 200 else line[:197] + "..."


def make_start_weights(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Return for each shape a kernel and a bias, float32, with which Keras begins: Glorot's uniform numbers, and zeros.

    Args:
        shapes: of the kernels, such as (784, 512) or (3, 3, 1, 32).
        seed: of the random numbers.
    """
    rng, weights = np.random.default_rng(seed), []
    for shape in shapes:
        window = int(np.prod(shape[:-2]))
        limit = (6 / (window * (shape[-2] + shape[-1]))) ** 0.5
        weights += [rng.uniform(-limit, limit, shape).astype(np.float32), np.zeros(shape[-1], np.float32)]
    return weights


# ---------------------------------------------------------------------- its exercises


_STEPS, _RATE = 20, 0.5  # of the training with the learner's own step
_SECONDS = 300.0  # for a process of one backend; TensorFlow alone may take a minute to start on a busy computer


@checks.print_verdict
def check_train_step(learner: Callable[..., object], images: np.ndarray, labels: np.ndarray) -> Iterator[str]:
    """Judge exercise 1 of lesson 06, a training step on each backend that is here; then train one layer with it.

    Args:
        learner: takes a loss, weights and a rate, and returns the weights after a step.
        images: of shape (n, 784), bytes, to train with.
        labels: of shape (n,).
    """
    yield from _judge_on_backends(learner, 2, "judge_step", images=images, labels=labels)


def judge_step(source: str, name: str, images: np.ndarray, labels: np.ndarray) -> tuple[str, str]:
    """Return what is wrong with a learner's step on this process' backend, and how well it trains one layer.

    Args:
        source: of the function, which may import and define what it uses.
        name: of the function in it.
        images: of shape (n, 784), bytes.
        labels: of shape (n,).
    """
    from keras import ops

    names: dict[str, Callable] = {}

    def read(weights: object) -> np.ndarray:
        return np.asarray(ops.convert_to_numpy(ops.stop_gradient(weights)))

    def step_thrice(w: np.ndarray, goal: np.ndarray, rate: float) -> list[np.ndarray]:
        begin, end = ops.convert_to_tensor(w), ops.convert_to_tensor(goal)

        def loss(weights: object) -> object:
            return ops.sum(ops.square(ops.subtract(weights, end)))

        once = names[name](loss, begin, rate)
        again = names[name](loss, begin, rate)  # the gradient of the call before must not count
        return [read(weights) for weights in (once, again, names[name](loss, once, rate))]

    def right(w: np.ndarray, goal: np.ndarray, rate: float) -> list[np.ndarray]:
        once = w - rate * 2 * (w - goal)
        return [once, once, once - rate * 2 * (once - goal)]

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(*rng.integers(-8, 9, (2, *shape)).astype(np.float32), 0.25) for shape in ((3,), (4, 2))]
        return [(np.ones(2, np.float32), np.zeros(2, np.float32), 0.25), *drawn]

    try:
        checks.answer(exec, source, names, who=f"the definition of {name}")
        step_thrice.__name__ = (
            f"{name}, called twice and then with its result, for sum((w - goal)**2), (w, goal, rate) = "
        )
        checks.judge_function(step_thrice, right, cases)
        return "", _train_layer(names[name], images, labels)
    except checks.NotYet as problem:
        return _explain_problem(problem), ""


def _train_layer(step: Callable, images: np.ndarray, labels: np.ndarray) -> str:
    """Train one linear layer with a learner's step; return the loss before and after in words."""
    from keras import ops

    x = ops.convert_to_tensor(images.astype(np.float32) / 255)
    hot = ops.one_hot(labels.astype(np.int32), 10)

    def loss(w: object) -> object:
        return -ops.mean(ops.sum(hot * ops.log_softmax(ops.matmul(x, w)), axis=1))

    w = ops.zeros((images.shape[1], 10))
    losses = [loss(w)]
    for _ in range(_STEPS):
        w = checks.answer(step, loss, w, _RATE, who="in a training your step")
    losses.append(loss(w))
    before, after = (float(ops.convert_to_numpy(ops.stop_gradient(each))) for each in losses)
    return f"loss {before:.4f}, after {_STEPS} of your steps {after:.4f}"


@checks.print_verdict
def check_wrap(learner: Callable[[object, int], object]) -> Iterator[str]:
    """Judge exercise 2 of lesson 06: an operation that some backends lack, on each backend that is here."""
    yield from _judge_on_backends(learner, 1, "judge_wrap")


def judge_wrap(source: str, name: str) -> tuple[str, str]:
    """Return what is wrong with a learner's `wrap` on this process' backend, and an empty text.

    It is called with numbers, and where the backend traces, once more traced.

    Args:
        source: of the function, which may import and define what it uses.
        name: of the function in it.
    """
    import keras

    names: dict[str, Callable] = {}
    trace = _find_tracer(keras.backend.backend())

    def refuse() -> str:
        raise checks.NotYet(f"{name} asks which backend computes; write it from operations that all of them have.")

    keras.backend.backend = keras.config.backend = refuse

    def wrap(x: np.ndarray, border: int, prepare: Callable | None = None) -> np.ndarray | None:
        def function(tensor: object) -> object:
            return names[name](tensor, border)

        try:
            found = (prepare(function) if prepare else function)(keras.ops.convert_to_tensor(x))
        except NotImplementedError as error:  # of an operation that the backend lacks
            message = " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())  # Keras prints in bold
            raise checks.NotYet(f"{name} stopped with NotImplementedError: {message[:150]}") from None
        except Exception as error:
            if not prepare or isinstance(error, checks.NotYet):
                raise
            raise checks.NotYet(
                f"{name} works with numbers, but stopped with {type(error).__name__} while it was traced. Then x is a "
                "stand-in that has a shape and a type, and no numbers: use keras.ops, not NumPy."
            ) from None
        actual = None if found is None else keras.ops.convert_to_numpy(found)
        if actual is not None and actual.dtype != x.dtype:
            raise checks.NotYet(f"{name} of {x.dtype} returned {actual.dtype}; expected the type of x.")
        return actual

    def traced_wrap(x: np.ndarray, border: int) -> np.ndarray | None:
        return wrap(x, border, trace)

    traced_wrap.__name__ = f"{name}, traced, of "

    def right(x: np.ndarray, border: int) -> np.ndarray:
        sides = [(0, 0)] * x.ndim
        sides[1] = border, border
        return np.pad(x, sides, mode="wrap")

    def cases(rng: np.random.Generator) -> list[tuple]:
        sizes = (((1, 4), 2, "f4"), ((2, 5, 3), 1, "i4"), ((3, 6), 0, "f4"), ((2, 3), 3, "?"), ((2, 4, 3, 2), 3, "f4"))
        return [(rng.integers(0, 99, shape).astype(kind), border) for shape, border, kind in sizes]

    try:
        checks.answer(exec, source, names, who=f"the definition of {name}")
        checks.judge_function(wrap, right, cases)
        if trace:
            checks.judge_function(traced_wrap, right, lambda rng: cases(rng)[1:2])
    except checks.NotYet as problem:
        return _explain_problem(problem), ""
    return "", ""


def _find_tracer(backend: str) -> Callable[[Callable], Callable] | None:
    """Return what makes a backend trace a function; None for PyTorch, which is eager."""
    if backend == "jax":
        import jax

        return jax.jit
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function
    return None


def _explain_problem(problem: checks.NotYet) -> str:
    """Return a problem in words, with a remedy where a name or PyTorch's gradient is missing."""
    if "NameError" in str(problem):
        return f"{problem}. It runs in a fresh process: import inside the function."
    if "'float' and 'NoneType'" in str(problem):
        remedy = "backward() returns nothing, and weights that were computed keep no gradient until they are detached."
        return f"{problem}. In PyTorch, {remedy}"
    return str(problem)


def _judge_on_backends(learner: object, gaps: int, judge: str, **given: object) -> Iterator[str]:
    """Judge the source of a function in a process for each backend that is here; yield what each of them found.

    Args:
        learner: a function written with `def`.
        gaps: lines of its starter that end in "...  # your code".
        judge: the name of a function of this module, which returns what is wrong (empty if nothing is) and an account.
        given: its arguments besides `source` and `name`.
    """
    if not inspect.isfunction(learner) or not learner.__name__.isidentifier():
        raise checks.NotYet(f"expected a function written with `def`, came {checks.short(learner)}.")
    try:
        source = textwrap.dedent(inspect.getsource(learner))
    except (OSError, TypeError):
        raise checks.NotYet("the source of your function cannot be found; write it with `def`, in its cell.") from None
    if source.count("...  # your code") == gaps:
        raise checks.NotDone(f"{learner.__name__} is unchanged.")

    arguments = {"source": source, "name": learner.__name__, **given}
    for backend in ("jax", "torch", "tensorflow"):  # TensorFlow, which starts slowest, comes last
        title = backends.BACKENDS[backend]
        if not is_backend_installed(backend):
            yield f"{title}: not tried, it is not here"
            continue
        variables = make_variables(backend)
        if backend == "tensorflow":  # on the processor: TensorFlow may list an RTX 50 and then fail on it
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        place = f"{__name__}:{judge}"
        run = processes.run(place, seconds=_SECONDS, variables=variables, check=False, arguments=arguments)
        if run.result is None:
            kind = checks.CannotTell if run.seconds > _SECONDS else checks.NotYet
            raise kind(f"with {title} {_list_answers(run)[0]}")
        problem, account = run.result
        if problem:
            raise checks.NotYet(f"with {title} {problem}")
        yield f"{title}: {account}" if account else title


# ---------------------------------------------------------------------- its figure and its table


def name_device() -> str:
    """Return the device on which Keras computes in this process, for people."""
    import keras

    return str(devices.find_default_device(keras.backend.backend()))


def build_watched_mlp(activation: str) -> tuple[keras.Model, Callable[[np.ndarray], np.ndarray]]:
    """Return lesson 04's network without dropout, and a function that tells which hidden units are above 0 for a batch.

    The function returns packed bits: first those of the first hidden layer, image by image, then those of the second.

    Args:
        activation: of the hidden layers, such as "relu", which is then on, or "tanh", which has the sign of its sum.
    """
    import keras

    from helpers.training import models

    model = models.build_mlp(dropout=0)
    first, second = model.layers[1], model.layers[3]
    first.activation = second.activation = keras.activations.get(activation)
    hidden = keras.Model(model.inputs, [first.output, second.output])

    def find_on(images: np.ndarray) -> np.ndarray:
        return np.concatenate([np.packbits(np.asarray(sums) > 0) for sums in hidden.predict_on_batch(images)])

    return model, find_on


def count_switched(trained: Mapping[str, Mapping]) -> np.ndarray:
    """Return for each step how many hidden units are above 0 in one of the training runs and not in another.

    Args:
        trained: for each backend what the lesson's `train` found; "on" has an array of packed bits for each step.
    """
    bits = np.array([np.unpackbits(np.array(run["on"]), axis=1) for run in trained.values()])
    return (bits.min(axis=0) != bits.max(axis=0)).sum(axis=1)


def draw_growth(trained: Mapping[str, Mapping], activation: str, title: str) -> None:
    """Draw how far the losses of several training runs are apart, and how many ReLUs differ, against the step.

    Print the first step at which one differs, and the largest gap until then and in the ten steps after it.

    Args:
        trained: for each backend what the lesson's `train` found; "losses" and "on" have one entry a step.
        activation: of the hidden layers; if it is not "relu", signs differ in place of ReLUs.
        title: the message of the figure, with the dataset.
    """
    unit = "ReLU" if activation == "relu" else "sign"
    losses, switched = np.array([run["losses"] for run in trained.values()]), count_switched(trained)
    apart, steps = np.ptp(losses, axis=0), np.arange(1, losses.shape[1] + 1)
    with figure(7.5, 4.2, title, nrows=2, sharex=True) as (drawn, (above, below)):
        seen = apart > 0  # a logarithm has no place for equal losses
        above.plot(steps[seen], apart[seen], "o", color=ORANGE, markersize=3, label=", ".join(trained))
        above.legend()
        above.set(ylabel="losses apart by", yscale="log")
        below.bar(steps, switched, color=BLUE, width=1)
        below.set(xlabel="training step", ylabel=f"{unit}s that differ")
        below.yaxis.get_major_locator().set_params(integer=True)
        if switched.any():
            above.axvline(steps[switched > 0][0], color="black", lw=1, ls="--")
    words = (
        f"first apart by {apart[0]:.1g}, at most by {apart.max():.1g}; {unit}s that differ at the end: {switched[-1]}"
    )
    show(drawn, f"{title}. Against the training step: {words}.")
    print(_describe_switch(apart, switched, unit))


def _describe_switch(apart: np.ndarray, switched: np.ndarray, unit: str) -> str:
    """Return in words when the first ReLU or sign differed, and how far the losses were apart before and after."""
    if not switched.any():
        return f"No {unit} differs in these {len(apart)} steps; the losses are apart by {apart.max():.1g} at most."
    first = int(np.argmax(switched > 0))  # its gradient acts on the loss of the next step
    until, after = apart[: first + 1].max(), apart[first + 1 : first + 11].max(initial=0)
    return (
        f"Step {first + 1} is the first at which a {unit} differs ({switched[first]} of them). "
        f"Losses apart until then: {until:.1g} at most; in the ten steps after it: {after:.1g}."
    )


# From the lesson's stored outputs of 27 November 2026, on a quiet machine; shown where the backend is not here.
_RECORDED = {"PyTorch": ["2 cores of an Intel Xeon, recorded", 201, "21 ms", "6.24 ms (6.12 ms to 6.44 ms)"]}


def make_times_table(trained: Mapping[str, Mapping]) -> Table:
    """Return a table of how often Python ran the loss, and how long the first step took and the later ones.

    Args:
        trained: for each backend what the lesson's `train` found.
    """
    rows = []
    for name, run in trained.items():
        first, *later = run["seconds"]
        timed = Measurement(name, run["device"], tuple(later))
        records.add_run(timed, amount="a step of 128 images", lesson="06")
        low, high = map(duration, timed.quartiles)
        rows.append([name, run["device"], run["calls"], duration(first), f"{duration(timed.median)} ({low} to {high})"])
    rows += [[name, *cells] for name, cells in _RECORDED.items() if name not in trained]
    table = Table(rows, ["", "on", "Python ran the loss", "first step", "later (middle half)"])
    recorded = records.find_column("06", [name for name, *_ in rows])
    return records.add_column(table, "06") if recorded.notes else table
