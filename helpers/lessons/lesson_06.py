"""Serve lesson 06, Switch Keras backends: the checks of its exercises, its figure, its machinery."""

from __future__ import annotations

import copy
import importlib.metadata
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers import devices
from helpers.judge import checks
from helpers.lessons.lesson_06_faults import NAMES
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, show
from helpers.running import processes, sources
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


def make_variables(backend: str) -> dict[str, str]:
    """Return the environment variables with which a process starts one backend of Keras, and spares the machine.

    Otherwise PyTorch's threads (OpenMP) spin while they wait for each other, which on a busy machine made a training
    step take 60 times as long.
    """
    return {backends.VARIABLE: backend, "OMP_WAIT_POLICY": "passive"}


def run_programs(function: Callable[..., tuple], programs: Mapping[str, str]) -> dict[str, tuple]:
    """Return for each program what a function makes of it in a separate process, or its error in a line and "".

    Neither KERAS_BACKEND nor the learner's own keras.json reaches the processes.

    Args:
        function: gets `programs`, a list, and `process`, the number of its own from 0; returns two texts.
        programs: their texts by name.
    """
    with tempfile.TemporaryDirectory() as empty:
        variables, given = {backends.VARIABLE: None, "KERAS_HOME": empty}, {"programs": list(programs.values())}
        run = processes.run(function, len(programs), variables=variables, check=False, arguments=given)
    outcomes = zip(programs, run.failures, run.results, strict=True)
    return {name: (_shorten_error(why), "") if why else result for name, why, result in outcomes}


def _shorten_error(error: str) -> str:
    """Return an error's kind and the first line of its message, cut to 200 characters."""
    lines = [line.strip() for line in error.strip().splitlines()]
    line = next((line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)), lines[-1])
    return line if len(line) <= 200 else line[:197] + "..."


def make_start_weights(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Return for each shape a kernel and a bias, float32, with which Keras begins: Glorot's uniform numbers, and zeros.

    Args:
        shapes: of the kernels, such as (784, 512) or (3, 3, 1, 32).
    """
    rng, weights = np.random.default_rng(0), []
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
    if not inspect.isfunction(learner) or not learner.__name__.isidentifier():
        raise checks.NotYet(f"expected a function written with `def`, came {checks.short(learner)}.")
    source = sources.read_source(learner)
    if not source:
        raise checks.NotYet("the source of your function cannot be found; write it with `def`, in its cell.")
    if source.count("...  # your code") == 2:
        raise checks.NotDone(f"{learner.__name__} is unchanged.")

    arguments = {"source": source, "name": learner.__name__, "images": images, "labels": labels}
    for backend in ("jax", "torch", "tensorflow"):  # TensorFlow, which starts slowest, comes last
        title = backends.BACKENDS[backend]
        if explain_missing_backend(backend):
            yield f"{title}: not tried, it is not here"
            continue
        variables = make_variables(backend)
        if backend == "tensorflow":  # on the processor: TensorFlow may list an RTX 50 and then fail on it
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        place = f"{__name__}:judge_step"
        run = processes.run(place, seconds=_SECONDS, variables=variables, check=False, arguments=arguments)
        if run.result is None:
            kind = checks.CannotTell if run.seconds > _SECONDS else checks.NotYet
            raise kind(f"with {title} {_shorten_error(run.failures[0])}")
        problem, account = run.result
        if problem:
            raise checks.NotYet(f"with {title} {problem}")
        yield f"{title}: {account}"


def judge_step(source: str, name: str, images: np.ndarray, labels: np.ndarray) -> tuple[str, str]:
    """Return what is wrong with a learner's step on this process' backend, and how well it trains one layer.

    Args:
        source: of the function, which may import and define what it uses.
        name: of the function in it.
        images: of shape (n, 784), bytes.
        labels: of shape (n,).
    """
    names: dict[str, Callable] = {}
    rng = np.random.default_rng()
    points = [(np.array([1, 2]), np.zeros(2)), *(rng.integers(-8, 9, (2, *shape)) for shape in ((3,), (4, 2)))]
    try:
        checks.answer(exec, source, names, who=f"the definition of {name}")
        for w, goal in points:
            _judge_gradients(names[name], w.astype(np.float32), goal.astype(np.float32))
        return "", _train_layer(names[name], images, labels)
    except checks.NotYet as problem:
        return _explain_problem(problem), ""


def _judge_gradients(step: Callable, w: np.ndarray, goal: np.ndarray, rate: float = 0.25) -> None:
    """Compare the gradient that each of three steps followed with the right one: from w, from w again, from the result.

    Raises:
        NotYet: a gradient is wrong, or the step changed the weights that it got.
    """
    from keras import ops

    end = ops.convert_to_tensor(goal)

    def loss(weights: object) -> object:
        return ops.sum(ops.square(ops.subtract(weights, end)))

    def read(weights: object) -> np.ndarray:
        return np.array(ops.convert_to_numpy(ops.stop_gradient(weights)))

    begin = came = ops.convert_to_tensor(w.copy())
    for call in ("a first call", "a second call with the same w", "a call with the result"):
        start = came if call.endswith("result") else begin
        before = read(start)
        right = 2 * (before - goal)
        point = f"w = {checks.short(before)} and goal = {checks.short(goal)}"
        who = f"for the loss sum((w - goal)**2), {point} ({call}), the step"
        came = checks.answer(step, loss, start, rate, who=who)
        if came is None:
            raise checks.NotYet(f"{who} returned None. {checks.RETURNS}")
        after = checks.answer(read, came, who=f"{who} returned {checks.short(came)}; reading it")
        assert isinstance(after, np.ndarray)
        if not np.array_equal(read(start), before):
            raise checks.NotYet(f"{who} changed w in place; return new weights instead.")
        if after.shape != before.shape:
            raise checks.NotYet(f"{who} returned the shape {after.shape}; expected {before.shape}.")
        used = (before - after) / rate
        if not np.allclose(used, right, atol=1e-4):
            idea = _name_idea(used, right, float(np.square(before - goal).sum()))
            found = f"should follow the gradient {checks.short(right)}, and followed {checks.short(used)}"
            raise checks.NotYet(f"{who} {found}{idea}.")


def _name_idea(used: np.ndarray, right: np.ndarray, loss: float) -> str:
    """Return in words which known mistake gives the gradient that a step followed; empty if none does."""
    ideas = {"uphill": -right, "the loss in place of its gradient": loss + 0 * right}
    ideas |= {"no step at all": 0 * right, "the gradient of the call before was added": 2 * right}
    return next((f": {name}" for name, wrong in ideas.items() if np.allclose(used, wrong, atol=1e-4)), "")


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


def _explain_problem(problem: checks.NotYet) -> str:
    """Return a problem in words, with a remedy where a name or PyTorch's gradient is missing."""
    if "NameError" in str(problem):
        return f"{problem}. It runs in a fresh process: import inside the function."
    if "'float' and 'NoneType'" in str(problem):
        remedy = "backward() returns nothing, and weights that were computed keep no gradient until they are detached."
        return f"{problem}. In PyTorch, {remedy}"
    return str(problem)


_CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # that no rounding makes, by their names
    "has the opposite sign": lambda array: -array,
    "is all zeros": lambda array: 0 * array,
    "is twice as large": lambda array: 2 * array,
    "is 10.5 % larger": lambda array: 1.105 * array,
    "is lower by a third of its largest number at one place": lambda array: array - _keep_largest(array) / 3,
    "is higher by a third of its largest number at one place": lambda array: array + _keep_largest(array) / 3,
    "is higher by a third of its largest number everywhere": lambda array: array + abs(array).max() / 3,
    "has its numbers in another order": lambda array: array[::-1],
    "has a NaN at one place": lambda array: np.where(abs(array) == abs(array).max(), np.nan, array),
}


def _keep_largest(array: np.ndarray) -> np.ndarray:
    """Return the array with zeros in place of all but its number farthest from 0, which is positive."""
    return np.where(abs(array) == abs(array).max(), abs(array), 0)


@checks.print_verdict
def check_find_wrong(learner: Callable[..., list[str]]) -> Iterator[str]:
    """Judge exercise 2 of lesson 06: the arrays of gradients that differ by more than rounding."""
    rng = np.random.default_rng()
    right = {"large": rng.normal(0, 100, (20, 30)), "small": rng.normal(0, 1e-6, 9), "zeros": np.zeros(3)}
    right["mixed"] = np.array([1e-9, -3, 0, *rng.uniform(-1, 1, 3)])  # almost 0 beside the largest
    near = {name: array + rng.uniform(-0.05, 0.05, array.shape) * abs(array).max() for name, array in right.items()}
    tried = [("differ by 5 % of the largest number at most", near, []), ("are equal", right, [])]
    tried += [("has numbers near 0 in place of zeros", right | {"zeros": np.array([0, -1e-9, 0])}, ["zeros"])]
    for words, change in _CHANGES.items():
        for names in (["large"], ["small"], ["mixed"], ["large", "small", "mixed"]):
            other = near | {name: change(right[name]) for name in names}
            tried.append((words, dict(reversed(other.items())), names))  # only `right` has the order of the answer
    for words, other, expected in tried:
        where = f"where {' and '.join(map(repr, expected)) or 'all arrays'} {words}, find_wrong"
        given = copy.deepcopy((right, other))
        before = repr(given)  # NaN equals itself there
        came = checks.answer(learner, *given, who=where)
        if came is None:
            raise checks.NotDone(f"find_wrong returned None. ({checks.RETURNS})")
        if not isinstance(came, list | tuple) or list(map(str, came)) != expected:
            raise checks.NotYet(f"{where} returned {checks.short(came)}; expected {expected}.")
        if repr(given) != before:
            raise checks.NotYet(f"{where} changed what it got; work on a copy.")
    yield checks.keep_right("find_wrong", learner, f"{len(tried)} cases")


def find_wrong(right: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of arrays that differ somewhere by more than a tenth of the right one's largest number.

    NaN differs, too. Exercise 2 of lesson 06 writes this function.
    """
    return [name for name, array in right.items() if not abs(array - other[name]).max() <= abs(array).max() / 10]


# ---------------------------------------------------------------------- one network, several backends


def build_watched_mlp(activation: str) -> tuple[keras.Model, Callable[[np.ndarray], np.ndarray]]:
    """Return lesson 04's network without dropout, and a function that finds which of its hidden units are on.

    The function returns packed bits: first those of the first hidden layer, image by image, then those of the second.

    Args:
        activation: of the hidden layers, such as "relu".
    """
    import keras

    from helpers.training import models

    model = models.build_mlp(dropout=0)
    for place in (1, 3):
        model.layers[place].activation = keras.activations.get(activation)
    hidden = keras.Model(model.inputs, [model.layers[1].output, model.layers[3].output])

    def find_on(images: np.ndarray) -> np.ndarray:
        return np.concatenate([np.packbits(np.asarray(sums) > 0) for sums in hidden.predict_on_batch(images)])

    return model, find_on


def find_gradients(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return by name the gradients of a model's loss, as one giant step of SGD shows them; put the weights back.

    SGD subtracts the rate times the gradient. A small step would mostly show how the weights were rounded.
    """
    import keras

    rate, weights = 2.0**20, model.get_weights()
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy")
    model.train_on_batch(images, labels)
    moved = zip(NAMES, weights, model.get_weights(), strict=True)
    gradients = {name: (old - new) / rate for name, old, new in moved}
    model.set_weights(weights)
    return gradients


def count_switched(trained: Mapping[str, Mapping]) -> np.ndarray:
    """Return for each step how many ReLUs are on in one of the training runs and off in another.

    Args:
        trained: for each backend what the lesson's `train` found; "on" has an array of packed bits for each step.
    """
    bits = np.array([np.unpackbits(np.array(run["on"]), axis=1) for run in trained.values()])
    return (bits.min(axis=0) != bits.max(axis=0)).sum(axis=1)


def draw_growth(trained: Mapping[str, Mapping], smooth: Mapping[str, Mapping], title: str) -> None:
    """Draw how far the losses of several training runs are apart, and how many ReLUs differ, against the step.

    Print the first step at which one differs, and the largest gap until then and in the ten steps after it.

    Args:
        trained: for each backend what the lesson's `train` found with ReLU; "losses" and "on" have one entry a step.
        smooth: the same with tanh.
        title: the message of the figure, with the dataset.
    """
    apart, gentle = (np.ptp([run["losses"] for run in runs.values()], axis=0) for runs in (trained, smooth))
    switched, steps = count_switched(trained), np.arange(1, len(apart) + 1)
    with figure(7.5, 4.2, title, nrows=2, sharex=True) as (drawn, (above, below)):
        for gaps, color, mark, label in ((apart, ORANGE, "o", "ReLU"), (gentle, GREY, "x", "tanh")):
            seen = gaps > 0  # a logarithm has no place for equal losses
            above.plot(steps[seen], gaps[seen], mark, color=color, markersize=3, label=label)
        above.legend()
        above.set(ylabel="losses apart by", yscale="log")
        below.bar(steps, switched, color=BLUE, width=1)
        below.set(xlabel="training step", ylabel="ReLUs that differ")
        below.yaxis.get_major_locator().set_params(integer=True)
        if switched.any():
            above.axvline(steps[switched > 0][0], color="black", lw=1, ls="--")
    words = f"first apart by {apart[0]:.1g}, at most by {apart.max():.1g}; ReLUs that differ at the end: {switched[-1]}"
    show(drawn, f"{title}. Against the training step: {words}.")
    print(_describe_switch(apart, switched))
    print(f"With tanh, the losses are apart by {gentle.max():.1g} at most.")


def _describe_switch(apart: np.ndarray, switched: np.ndarray) -> str:
    """Return in words when the first ReLU differed, and how far the losses were apart before and after."""
    if not switched.any():
        return f"No ReLU differs in these {len(apart)} steps; the losses are apart by {apart.max():.1g} at most."
    first = int(np.argmax(switched > 0))  # its gradient acts on the loss of the next step
    until, after = apart[: first + 1].max(), apart[first + 1 : first + 11].max(initial=0)
    return (
        f"Step {first + 1} is the first at which a ReLU differs ({switched[first]} of them). "
        f"Losses apart until then: {until:.1g} at most; in the ten steps after it: {after:.1g}."
    )
