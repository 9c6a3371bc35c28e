"""Serve lesson 06, Switch Keras backends: the checks of its exercises, its figure and its table, its machinery."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from helpers import devices
from helpers.judge import checks
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.tables import Table
from helpers.measure.timing import duration
from helpers.running import processes
from helpers.training import backends

# ---------------------------------------------------------------------- what is here


def explain_missing_backend(module: str) -> str | None:
    """Return why a backend of Keras cannot be used here, and how to get it; None if it can be used."""
    if not devices.is_installed(module):
        return devices.explain_missing(module)
    if module == "torch":
        version = importlib.metadata.version(module)
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < (2, 6):  # torch.accelerator came with it
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

    Args:
        function: gets `programs`, a list, and `process`, the number of its own from 0; KERAS_BACKEND is not set.
        programs: their texts by name.
    """
    unset, given = {backends.VARIABLE: None, "KERAS_HOME": None}, {"programs": list(programs.values())}
    run = processes.run(function, len(programs), variables=unset, check=False, arguments=given)
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


@checks.print_verdict
def check_backend_of(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Judge exercise 1 of lesson 06: the backend with which Keras computes after some lines of a program.

    The reference has been compared with real processes (tests/test_lesson_06.py).
    """
    known = [
        ["set jax", "import keras"],
        ["import keras", "set jax"],
        ["import tensorflow", "set torch", "import keras"],
        ["import keras"],
        ["import numpy", "set jax", "import tensorflow", "set torch", "import keras"],
        ["set jax", "set tensorflow", "import keras"],
        ["set jax", "set torch", "import keras.layers", "set jax", "import keras"],
        ["import jax", "set jax"],
        ["set torch", "import tensorflow.keras.layers", "set jax", "import keras"],
        [],
    ]

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        other = ["import numpy", "import jax", "import torch", "set jax", "set torch", "set tensorflow"]
        loaders = ["import keras", "import keras.layers", "import keras.data"]
        loaders += ["import tensorflow", "import tensorflow.layers", "import tensorflow.data"]
        for lines in known:
            yield (lines,)
        for _ in range(60):
            yield (rng.choice(other * 2 + loaders, rng.integers(1, 7)).tolist(),)

    yield checks.judge_function(learner, backend_of, cases)


def backend_of(lines: Sequence[str]) -> str:
    """Return Keras' backend after lines such as "set jax" and "import keras"; "no Keras" if no line imports it.

    Exercise 1 of lesson 06 writes this function.
    """
    variable = "tensorflow"
    for line in lines:
        verb, _, name = line.partition(" ")
        if verb == "set":
            variable = name
        elif name.split(".")[0] in ("keras", "tensorflow"):
            return variable
    return "no Keras"


@checks.print_verdict
def check_wrap(learner: Callable[[object, int], object]) -> Iterator[str]:
    """Judge exercise 2 of lesson 06: an operation that some backends lack, on each backend that is here."""
    if not inspect.isfunction(learner) or not learner.__name__.isidentifier():
        raise checks.NotYet(f"expected a function written with `def`, came {learner!r}.")
    try:
        source = textwrap.dedent(inspect.getsource(learner))
    except (OSError, TypeError):
        raise checks.NotYet("the source of your function cannot be found; write it with `def`, in its cell.") from None
    if "return ...  # your code" in source:
        raise checks.NotDone(f"{learner.__name__} returns `...`, unchanged: replace the `...` by your own code.")

    judge = "helpers.lessons.lesson_06:wrap_problem"
    given = {"source": source, "name": learner.__name__}
    for backend in ("jax", "torch", "tensorflow"):  # TensorFlow, which starts slowest, comes last
        title = backends.BACKENDS[backend]
        if not is_backend_installed(backend):
            yield f"{title}: not tried, it is not here"
            continue
        variables = make_variables(backend)
        if backend == "tensorflow":  # on the processor: TensorFlow may list an RTX 50 and then fail on it
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        if problem := _list_answers(processes.run(judge, variables=variables, check=False, arguments=given))[0]:
            raise checks.NotYet(f"with {title} {problem}")
        yield title


def wrap_problem(source: str, name: str) -> str:
    """Return what is wrong with a learner's `wrap` on this process' backend; an empty text if nothing is.

    It is called with numbers, and with one of Keras' symbolic tensors, because every model is built with those.

    Args:
        source: of the function, which may import and define what it uses.
        name: of the function in it.
    """
    import keras

    names: dict[str, Callable] = {}

    def wrap(x: np.ndarray, border: int) -> np.ndarray:
        return keras.ops.convert_to_numpy(names[name](keras.ops.convert_to_tensor(x), border))

    def right(x: np.ndarray, border: int) -> np.ndarray:
        sides = [(0, 0)] * x.ndim
        sides[1] = border, border
        return np.pad(x, sides, mode="wrap")

    def cases(rng: np.random.Generator) -> list[tuple]:
        sizes = (((1, 4), 2), ((2, 5, 3), 1), ((3, 6), 0), ((2, 3), 3), ((2, 4, 3, 2), 3))
        return [(rng.integers(0, 99, shape).astype(np.float32), border) for shape, border in sizes]

    symbolic = f"{name} of a symbolic tensor of shape (None, 6, 3), as every model is built with,"
    try:
        checks.answer(exec, source, names, who=f"the definition of {name}")
        checks.judge_function(wrap, right, cases)
        made = checks.answer(names[name], keras.KerasTensor((None, 6, 3)), 2, who=symbolic)
    except checks.NotYet as problem:
        fresh = ". It runs in a fresh process: import inside the function." if "NameError" in str(problem) else ""
        return f"{problem}{fresh}"
    shape = getattr(made, "shape", None)
    return "" if shape == (None, 10, 3) else f"{symbolic} has shape {shape}; expected (None, 10, 3)."


@checks.print_verdict
def check_pick_device(learner: Callable[..., object]) -> Iterator[str]:
    """Judge exercise 3 of lesson 06: choose a device, and never in silence."""
    refused, kinds = "RuntimeError raised", ("cuda", "mps", "xpu")

    def right(accelerator: str | None, wanted: str | None) -> str:
        there = accelerator or "cpu"
        if wanted is None:
            return there
        return wanted if wanted in (there, "cpu") else refused

    def cases(rng: np.random.Generator) -> list[tuple]:
        return [
            (accelerator, wanted) for wanted, accelerator in itertools.product((None, "cpu", *kinds), (None, *kinds))
        ]

    @functools.wraps(learner)
    def answer(accelerator: str | None, wanted: str | None) -> object:
        try:
            device = learner(accelerator) if wanted is None else learner(accelerator, wanted)
        except RuntimeError:
            return refused
        return getattr(device, "type", device)  # of a torch.device

    yield checks.judge_function(answer, right, cases)


# ---------------------------------------------------------------------- its figure and its table


def draw_growth(trained: Mapping[str, Mapping], title: str) -> None:
    """Draw the loss of several training runs, and how far two of them are apart in it, against the step.

    Args:
        trained: for each backend what the lesson's `train` found in the usual way; "losses" has one entry a step.
        title: the message of the figure, with the dataset.
    """
    losses = np.array([run["losses"] for run in trained.values()])
    apart, steps = np.ptp(losses, axis=0), range(1, losses.shape[1] + 1)
    with figure(7.5, 3.3) as (drawn, axes):
        axes.plot(steps, losses.mean(axis=0), color=BLUE, label="the loss")
        axes.plot(steps, np.maximum(apart, 1e-8), color=ORANGE, label="how far two backends are apart in it")
        axes.set(xlabel="training step", ylabel="loss", yscale="log", title=title)
        axes.legend()
    words = f"loss {losses[0, 0]:.3f} to {losses[0, -1]:.3f}, apart by {apart[0]:.1g} first, {apart.max():.1g} at most"
    show(drawn, f"{title}. Against the training step: {words}.")


def make_times_table(trained: Mapping[str, Mapping]) -> Table:
    """Return a table of how long first, later and eager steps took; `trained` holds what `train` returned."""
    rows = []
    for name, run in trained.items():
        first, *later = run["usual"]["seconds"]
        low, middle, high = map(duration, np.percentile(later, [25, 50, 75]))
        eager = duration(np.median(run["eager"]["seconds"][1:]))
        rows.append([name, run["device"], run["usual"]["calls"], duration(first), f"{middle} ({low} to {high})", eager])
    return Table(rows, ["trained with", "on", "Python ran the loss", "first step", "later (middle half)", "eager"])
