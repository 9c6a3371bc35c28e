"""Lesson 06, Switch Keras backends: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import backends, devices
from helpers.judge import checks
from helpers.lessons.lesson_06_tinygrad import (  # noqa: F401  (for the notebook)
    TinygradKernel,
    dense_kernel,
    device_name,
    gflops_table,
    launch_of,
    no_opencl,
    no_tinygrad,
    opencl_loader,
    own_choice,
    recorded_kernel,
    shortened,
    take_device_of_lesson_01,
)
from helpers.measure.plots import BLUE, GREEN, ORANGE, figure, show

if TYPE_CHECKING:
    import keras

    from helpers.measure.tables import Table
    from helpers.measure.timing import Measurement

# Part 1

# ------------------------------------------------------------------------------------------------------ its exercises

# As it is handed out: right, and for TensorFlow alone.
STANDARDISE = """
def standardise(x):
    import tensorflow as tf

    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 0.001)
"""
EPSILON = 0.001


@checks.verdict
def check_standardise(learner: Callable[[object], object]) -> Iterator[str]:
    """Lesson 06, exercise 1: a layer's mathematics for every backend, judged on each that is here."""
    if not callable(learner):
        raise checks.NotDone(f"expected a function, came {learner!r}.")
    try:
        source = textwrap.dedent(inspect.getsource(learner))
    except (OSError, TypeError):
        raise checks.NotYet("the source of your function cannot be found; write it with `def`, in its cell.") from None
    if source.split() == STANDARDISE.split():
        raise checks.NotDone("this is what you were given, and it is for TensorFlow alone.")
    name = getattr(learner, "__name__", "")
    if not name.isidentifier():
        raise checks.NotYet("write the function with `def standardise(x):`, as it was.")
    yield from (_try_on(backend, source, name) for backend in _judges())
    yield from (f"{title}: not tried, it is not here" for key, title in backends.BACKENDS.items() if missing(key))


def _judges() -> list[str]:
    """The backends that are here, those first that differ most from TensorFlow."""
    return [name for name in ("jax", "torch", "tensorflow") if not missing(name)]


def _try_on(backend: str, source: str, name: str) -> str:
    """Judge a layer's function in a process of its own; return the backend's title, or raise NotYet."""
    title = backends.BACKENDS[backend]
    if problem := _problem_on(backend, source, name):
        raise checks.NotYet(f"with {title} {problem}")
    return title


@functools.lru_cache
def _problem_on(backend: str, source: str, name: str) -> str:
    from helpers.compute import processes

    arguments = {"source": source, "name": name}
    run = processes.run(_try_here, check=False, variables=settings(backend), arguments=arguments)
    if run.failures[0]:  # tried again when asked again
        told = run.failures[0].splitlines()[-1]
        raise checks.NotYet(f"with {backends.BACKENDS[backend]} the process gave no verdict: {told}")
    return run.result


def _try_here(source: str, name: str) -> str:
    """Try a layer's function with this process' backend; its own source travels, so it imports what it uses."""
    from helpers.lessons import lesson_06

    return lesson_06.layer_problem(source, name)


def layer_problem(source: str, name: str) -> str:
    """Return what is wrong with a layer's function on this process' backend, an empty text if nothing is.

    It is called with numbers, with one of Keras' own symbolic tensors, and stands in the middle of a network that makes
    a training step, which tells whether gradients pass through it: the weights afterwards must be the right layer's.

    Args:
        source: of the function, which may import and define what it uses.
        name: of the function in it.
    """
    import keras

    names: dict[str, Callable] = {}
    try:
        exec(compile(source, f"<{name}>", "exec"), names)
    except Exception as error:
        return f"your code stopped with {_in_a_line(error)}"
    rng = np.random.default_rng()
    for shape in ((4, 6), (3, 1), (2, 5, 7)):
        x = (rng.standard_normal(shape) * 5 + 3).astype("float32")
        deviation = x - x.mean(-1, keepdims=True)
        expected = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + EPSILON)
        try:
            returned = names[name](keras.ops.convert_to_tensor(x))
            if returned is None:
                return f"{name}(x) returned None. (It is `return` that hands an answer back.)"
            actual = keras.ops.convert_to_numpy(returned)
        except Exception as error:
            short = "keepdims" not in source and "expand_dims" not in source and "reshape" not in source
            hint = f" Without keepdims=True the mean of shape {shape} has shape {shape[:-1]}." if short else ""
            return _after(error, f"{name}(x), x of shape {shape},") + hint
        if actual.shape != shape:
            return f"{name}(x), x of shape {shape}, has shape {actual.shape}; expected {shape}."
        if not np.allclose(actual, expected, atol=1e-4):
            place = np.unravel_index(np.abs(actual - expected).argmax(), shape)
            row = [round(value, 3) for value in x[place[:-1]].tolist()]
            values = f"has {actual[place]:.4f} at place {place[-1]}; expected {expected[place]:.4f}."
            return f"{name}(x), x of shape {shape}, for the row {row} {values}"
    try:  # refuses what only some backends' arrays have, such as x.mean()
        names[name](keras.KerasTensor((None, 6), dtype="float32"))
    except Exception as error:
        return _after(error, f"{name} of a symbolic tensor, as models are built with on every backend,")
    right = _one_step(_right_layer, None)
    try:
        trained = _one_step(names[name], right[0])
    except Exception as error:
        return _after(error, f"a training step of a network with {name} in the middle")
    if not all(np.allclose(one, other, atol=1e-4) for one, other in zip(right[1], trained[1], strict=True)):
        return f"a training step of a network with {name} in the middle gives other weights: the gradient is wrong."
    return ""


def _right_layer(x: keras.KerasTensor) -> keras.KerasTensor:
    from keras import ops

    mean, variance = ops.moments(x, axes=-1, keepdims=True)
    return (x - mean) / ops.sqrt(variance + EPSILON)


def _one_step(function: Callable, begin: list[np.ndarray] | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the weights of a small network with this function in the middle, before and after a training step."""
    import keras

    class Middle(keras.layers.Layer):
        def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
            return function(x)

    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((5,)), dense(6), Middle(), dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    begin = begin or model.get_weights()
    model.set_weights(begin)
    images = np.random.default_rng(0).standard_normal((8, 5)).astype("float32")
    model.train_on_batch(images, np.ones((8, 1), "float32"))
    return begin, model.get_weights()


def _in_a_line(error: Exception) -> str:
    """An exception in a line; of Keras' long ones the part that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Exception encountered", "\x1b[1mException", "Arguments"))]
    text = f"{type(error).__name__}: {' '.join(lines)}".replace("\x1b[1m", "").replace("\x1b[0m", "")
    return text if len(text) <= 240 else text[:237] + "..."


def _after(error: Exception, what: str) -> str:
    import keras

    while error.__context__ is not None:  # what happened first; Keras wraps it
        error = error.__context__
    told = _in_a_line(error)
    if type(error) is NameError:
        told += ". It runs in a fresh process: import inside the function"
    if "tensorflow" in sys.modules and keras.backend.backend() != "tensorflow":
        told += ". Your function has imported TensorFlow"
    return f"{what} stopped with {told.rstrip('.')}."


@checks.verdict
def check_pick_device(learner: Callable[[ModuleType, str | None], object]) -> Iterator[str]:
    """Lesson 06, exercise 2: choose a device of PyTorch; judged with stand-ins for PyTorch."""
    kinds = ("cuda", "mps", "xpu")

    def right(torch: StandIn, wanted: str | None) -> str:
        there = torch.built_for if torch.present else "cpu"
        return there if wanted is None else wanted if wanted in (there, "cpu") else _REFUSED

    def cases(rng: np.random.Generator) -> list[tuple]:
        known = [StandIn("cuda", False), StandIn("mps", True), StandIn(None, False), StandIn("cuda", True)]
        every = [StandIn(kind, present) for kind in kinds for present in (True, False)]
        return [(torch, None) for torch in known + every] + [
            (torch, wanted) for torch in [*known, *every] for wanted in ("cpu", *kinds)
        ]

    def answer(torch: StandIn, wanted: str | None) -> object:
        try:
            device = learner(torch) if wanted is None else learner(torch, wanted)
        except RuntimeError:
            return _REFUSED
        if device == _REFUSED:  # the text, handed back
            return repr(device)
        kind = getattr(device, "type", device)
        return kind.removesuffix(":0") if isinstance(kind, str) else device

    try:
        yield checks.judge_function(functools.wraps(learner)(answer) if callable(learner) else learner, right, cases)
    except checks.NotYet as error:
        told = str(error).replace(f"expected {_REFUSED!r}, came", "must `raise` RuntimeError; came")
        raise checks.NotYet(told.replace(f"came {_REFUSED!r}", "but it raised RuntimeError")) from None


_REFUSED = "a RuntimeError"


@dataclass(frozen=True)
class StandIn:
    """What `pick_device` may ask of PyTorch: a build for one kind of accelerator, which is present or not."""

    built_for: str | None  # "cuda", "mps" or "xpu"; None for a build for the processor alone
    present: bool  # whether the accelerator is there when it runs

    def __repr__(self) -> str:
        if not self.built_for:
            return "<PyTorch for the processor>"
        return f"<PyTorch for {self.built_for}, {'with' if self.present else 'without'} one in the machine>"

    @property
    def accelerator(self) -> StandIn:
        """The module torch.accelerator."""
        return self

    def is_available(self) -> bool:
        """As torch.accelerator.is_available()."""
        return self.present

    def device_count(self) -> int:
        """As torch.accelerator.device_count()."""
        return int(self.present)

    def current_accelerator(self, check_available: bool = False) -> Place | None:
        """As torch's own: what the build is for, whether it is there or not, unless asked to look."""
        there = self.built_for and (self.present or not check_available)
        return Place(self.built_for) if there else None

    def device(self, name: str | Place, index: int | None = None) -> Place:
        """As torch.device."""
        return Place(str(name).partition(":")[0])

    def ones(self, *shape: object, device: str | Place = "cpu") -> Array:
        """As torch.ones, of which only the device counts."""
        place = self.device(device)
        if place.type not in ("cpu", self.built_for if self.present else "cpu"):
            raise RuntimeError(f"no {place} in this machine")
        return Array(place)

    zeros = empty = rand = randn = tensor = ones

    @property
    def cuda(self) -> StandIn:
        """The module torch.cuda."""
        return StandIn("cuda", self.present and self.built_for == "cuda")

    @property
    def mps(self) -> StandIn:
        """The module torch.mps, or torch.backends.mps."""
        return StandIn("mps", self.present and self.built_for == "mps")

    @property
    def xpu(self) -> StandIn:
        """The module torch.xpu."""
        return StandIn("xpu", self.present and self.built_for == "xpu")

    @property
    def backends(self) -> StandIn:
        """The module torch.backends."""
        return self


@dataclass(frozen=True)
class Place:
    """A stand-in for torch.device."""

    type: str
    index: None = None

    def __str__(self) -> str:
        return self.type


@dataclass(frozen=True)
class Array:
    """A stand-in for a tensor."""

    device: Place

    def to(self, device: str | Place) -> Array:
        """As a tensor's own."""
        return Array(Place(str(device)))


# -------------------------------------------------------------------------------------------------------- its figures


def loss_curves(curves: Mapping[str, Sequence[float]], title: str, what: str = "loss (cross-entropy)") -> None:
    """Draw the losses of trainings so that equal lines are all seen: broad, dashed upon it, thin upon both.

    Args:
        curves: for each name a loss after each step.
        title: the message of the figure.
        what: the loss, for the axis.
    """
    looks = [
        {"color": ORANGE, "lw": 7, "alpha": 0.5},
        {"color": BLUE, "lw": 3, "ls": "--"},
        {"color": GREEN, "lw": 1.2, "marker": "o", "ms": 5, "markevery": 0.1},
    ]
    with figure(7.5, 3.3) as (drawn, axes):
        for (name, losses), look in zip(curves.items(), looks, strict=False):
            axes.plot(range(1, len(losses) + 1), losses, label=name, **look)
        axes.set(xlabel="training step", ylabel=what, title=title, ylim=(0, None))
        axes.legend()
    ends = "; ".join(f"{name}: from {losses[0]:.4f} to {losses[-1]:.4f}" for name, losses in curves.items())
    show(drawn, f"{title}. {what.capitalize()} against training step. {ends}.")


def total_time(trained: Mapping[str, Mapping], title: str) -> None:
    """Draw how long trainings of 1 to 100,000 steps take: the start, and a step's time for each further step.

    Args:
        trained: for each backend what the lesson's `train` returned.
        title: the message of the figure; it says that the times are computed.
    """
    looks = [(ORANGE, "-", 3.0), (BLUE, "--", 2.0), (GREEN, "-.", 2.0)]
    count, told = np.logspace(0, 5, 101), []
    with figure(7.5, 3.4) as (drawn, axes):
        for (name, step), (colour, line, width) in zip(step_times(trained).items(), looks, strict=False):
            seconds = trained[name]["import"] + trained[name]["steps"][0] + (count - 1) * step.median
            axes.plot(count, seconds, color=colour, ls=line, lw=width, label=name)
            told.append(f"{name}: {seconds[0]:.1f} s for one step, {seconds[-1]:,.0f} s for 100,000")
        axes.set(xscale="log", yscale="log", xlabel="training steps", ylabel="total time (s)", title=title)
        axes.legend()
    show(drawn, f"{title}. Seconds against training steps, both axes logarithmic. {'; '.join(told)}.")


def differences(trained: Mapping[str, Mapping]) -> dict[str, tuple[float, float]]:
    """Return for each backend the largest difference of a prediction from the first one's, before and after training.

    Args:
        trained: for each backend what the lesson's `train` returned.
    """
    first = next(iter(trained.values()))["predictions"]
    return {
        title: tuple(float(np.abs(mine - its).max()) for mine, its in zip(run["predictions"], first, strict=True))
        for title, run in trained.items()
    }


def results_table(trained: Mapping[str, Mapping]) -> Table:
    """Return a table of the differences and of the mean loss of all steps.

    Args:
        trained: for each backend what the lesson's `train` returned.
    """
    from helpers.measure.tables import Table

    rows = [
        (title, f"{before:.1e}", f"{after:.1e}", f"{trained[title]['losses'][-1]:.6f}")
        for title, (before, after) in differences(trained).items()
    ]
    first = next(iter(trained))
    return Table(rows, ["backend", f"predictions differ from {first}'s by at most", "after training", "mean loss"])


def step_times(trained: Mapping[str, Mapping]) -> dict[str, Measurement]:
    """Return for each backend the times of all steps but the first.

    Args:
        trained: for each backend what the lesson's `train` returned.
    """
    from helpers.measure.timing import Measurement

    return {title: Measurement(title, run["device"], tuple(run["steps"][1:])) for title, run in trained.items()}


def times_table(trained: Mapping[str, Mapping]) -> Table:
    """Return a table of times and memory, with a row for each backend of Keras, trained or not.

    Args:
        trained: for each backend what the lesson's `train` returned.
    """
    from helpers.measure.tables import Table
    from helpers.measure.timing import duration

    rows, later = [], step_times(trained)
    for name, title in backends.BACKENDS.items():
        if title in trained:
            run, step = trained[title], later[title]
            times = (run["import"], run["steps"][0], step.median, step.spread)
            rows.append((title, step.device, *map(duration, times), f"{run['memory']:,.0f} MiB"))
        else:
            rows.append((title, missing(name) or "failed, see above"))
    headers = ["backend", "device", "import Keras", "first step", "a later step", "spread", "peak memory"]
    return Table(rows, headers)


# ------------------------------------------------------------------------------------------------------ its machinery

# Which backend to try first on which hardware: (hardware, backend, why). Read in November 2026, never run there.
HARDWARE = [
    ("NVIDIA, Linux or WSL2", "any", "all three have wheels for CUDA"),
    ("NVIDIA RTX 50", "jax or torch", "TensorFlow 2.19 to 2.21 fails there (tensorflow#89272, since March 2025)"),
    ("NVIDIA, Windows", "torch", "TensorFlow's last for Windows GPUs was 2.10 (2022); JAX has none"),
    ("AMD, Linux", "torch or jax", "ROCm 10.1 (2026); TensorFlow 2.21 too, for Python 3.12 alone"),
    ("AMD, Windows", "torch", "ROCm wheels for Windows (2026); DirectML's last torch is of 2024"),
    (
        "Apple M1 and newer",
        "torch",
        "MPS; tensorflow-metal ends with TensorFlow 2.19 (January 2025), jax-metal is dead",
    ),
    ("Intel GPU", "torch", "XPU wheels; Intel's TensorFlow extension ends with TensorFlow 2.15"),
    ("no GPU", "the fastest in your table", "measure; lesson 05b has more ways"),
    ("only to run a model", "openvino, or ONNX (lesson 10)", "Keras' openvino backend cannot train, nor can numpy"),
]
_NEEDED = {"torch": (2, 6)}  # torch.accelerator came with it


def missing(module: str) -> str:
    """Return why a framework cannot be used here, and how to get it; an empty text if it is here.

    Args:
        module: a backend of Keras.
    """
    if not devices.installed(module):
        return devices.not_installed(module)
    try:
        version = importlib.metadata.version(module)
        if tuple(int(part) for part in version.split(".")[:2]) < _NEEDED.get(module, (0, 0)):
            title = backends.BACKENDS[module]
            return f"{title} {version} is too old for this lesson, which needs {'.'.join(map(str, _NEEDED[module]))}"
    except (importlib.metadata.PackageNotFoundError, ValueError):
        pass  # tensorflow-cpu, or a build of one's own: it will show
    return ""


def here(module: str) -> bool:
    """Return whether a framework can be used; if it cannot, print that something is skipped, and how to get it.

    Args:
        module: a backend of Keras.
    """
    if reason := missing(module):
        print(f"skipped: {reason}")
    return not reason


def attempt(function: Callable[[], object]) -> None:
    """Call a function and print what it returns, or its error in a line, where an error is what the lesson shows."""
    try:
        print("it ran:", function())
    except (AssertionError, RuntimeError) as error:  # NotImplementedError is a RuntimeError
        print(f"{type(error).__name__}: {error}")


def import_torch() -> ModuleType | None:
    """Return PyTorch, or None where it is not installed."""
    if missing("torch"):
        return None
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when the library is loaded; see `settings`
    import torch

    return torch


def settings(backend: str) -> dict[str, str]:
    """Return the environment variables with which a process starts one backend of Keras, and spares the machine.

    On a GPU JAX and TensorFlow would take nearly all of its memory. PyTorch's threads (OpenMP) would turn in circles
    while they wait for each other, which on a busy machine made a training step take 60 times as long.

    Args:
        backend: its name for Keras.
    """
    spare = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {backends.VARIABLE: backend, "OMP_WAIT_POLICY": "passive", **spare}


def peak_memory() -> float:
    """Return the most memory that this process has had so far, in MiB; a GPU's own memory is not in it."""
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB on Linux


def start_weights(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Return a kernel and a bias for each layer, as Keras begins: Glorot's uniform distribution, and zeros.

    Args:
        shapes: of the kernels, such as (784, 512), or (3, 3, 32, 64) for a convolution.
        seed: of the random numbers.

    Returns:
        float32 arrays: kernel, bias, kernel, bias ...
    """
    rng, weights = np.random.default_rng(seed), []
    for shape in shapes:
        window = int(np.prod(shape[:-2]))
        limit = (6 / (window * (shape[-2] + shape[-1]))) ** 0.5
        weights += [rng.uniform(-limit, limit, shape).astype(np.float32), np.zeros(shape[-1], np.float32)]
    return weights


# Part 2

# ------------------------------------------------------------------------------------------------------ its exercises


@checks.verdict
def check_backend_of(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Lesson 06, backends: with what Keras computes after some lines of a program.

    The reference was compared with real processes (tests/test_lesson_06.py).
    """
    plain = [
        ["set jax", "import keras"],
        ["import keras", "set jax"],
        ["import tensorflow", "set torch", "import keras"],
        ["import numpy", "set jax", "import tensorflow", "set torch", "import keras"],
        ["set jax", "import tensorflow.keras", "import keras"],
        ["set jax", "set torch", "import keras.layers", "set jax", "import keras"],
        ["import keras"],
        ["set jax", "import jax", "set torch"],
        ["import jax", "set jax"],
        ["set torch", "import keras.models", "set jax", "import keras"],
        ["set jax", "import tensorflow.data", "set torch", "import keras"],
        ["set torch", "import tensorflow.keras.layers", "set jax", "import keras"],
        [],
    ]

    def cases(rng: np.random.Generator) -> list[tuple]:
        others = ["import numpy", "import jax", "import torch", "set jax", "set torch", "set tensorflow"]
        loaders = ["import keras", "import keras.layers", "import tensorflow", "import tensorflow.keras"]
        loaders += ["import keras.models", "import tensorflow.data", "import tensorflow.keras.layers"]
        drawn = [[str(line) for line in rng.choice(others * 2 + loaders, rng.integers(1, 7))] for _ in range(40)]
        return [(lines,) for lines in plain + drawn]

    yield checks.judge_function(learner, backend_of, cases)


def backend_of(lines: Sequence[str]) -> str:
    """Return Keras' backend after lines such as "set jax" and "import keras"; "no Keras" where nothing imported it."""
    variable = "tensorflow"
    for line in lines:
        verb, _, name = line.partition(" ")
        if verb == "set":
            variable = name
        elif name.split(".")[0] in ("keras", "tensorflow"):
            return variable
    return "no Keras"


@checks.verdict
def check_dense(source: str) -> Iterator[str]:
    """Lesson 06, Tile: a dense layer with its bias and ReLU."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [np.float32([[1, 2]]), np.float32([[1, -1], [0, -1]]), np.float32([10, 1])]
        drawn = [rng.integers(1, 70, 3) for _ in range(5)]
        sizes = [(1, 1, 1), (1, 5, 3), (4, 4, 4), (128, 784, 10), *drawn]
        arrays = [[rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (n,))] for m, k, n in sizes]
        large = [[1000 * array for array in arrays[-1]]]
        return [tuple(one) for one in [plain, *arrays, *large]]

    yield checks.judge_tile(source, lambda x, w, b: np.maximum(x @ w + b, 0), cases)


# ------------------------------------------------------------------------------------------------------ its machinery


def hide(package: str) -> None:
    """Let this process believe that a package is not installed, as a lesson must show it on every machine."""
    from importlib.abc import MetaPathFinder

    class Hidden(MetaPathFinder):
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Hidden())


def outcome(function: Callable[[str], str], program: str) -> str:
    """Return what a function says of a program in a fresh process, or the last line of its error.

    The variable KERAS_BACKEND is not set there. A package that is not installed here is told with its remedy.
    """
    from helpers.compute import processes

    variables = {"KERAS_BACKEND": None, "KERAS_HOME": None}
    run = processes.run(function, variables=variables, check=False, arguments={"program": program})
    if not run.failures[0]:
        return run.result
    error = run.failures[0].splitlines()[-1]
    missing = re.search(r"No module named '(tensorflow|jax)'", error)
    return f"skipped: {devices.not_installed(missing[1])}" if missing else error


def outcomes(function: Callable[[str], str], programs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (name, outcome) of each program; the second half runs beside the first, which needs the memory."""
    from concurrent.futures import ThreadPoolExecutor

    def tell(half: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, outcome(function, program)) for name, program in half]

    listed = list(programs.items())
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(tell, (listed[: len(listed) // 2], listed[len(listed) // 2 :]))
    return first + second


def some_backend() -> str:
    """Return a Keras backend that is installed here; JAX first, which starts fastest."""
    return next((name for name in ("jax", "tensorflow", "torch") if devices.installed(name)), "jax")


def timed(step: Callable[[slice], float], batches: Sequence[slice]) -> tuple[list[float], list[float]]:
    """Call `step` with each batch, and return its losses and the seconds of each call."""
    import time

    losses, seconds = [], []
    for batch in batches:
        begin = time.perf_counter()
        losses.append(step(batch))
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def largest_difference(curves: Sequence[Sequence[float]]) -> float:
    """Return how far several trainings' losses are apart at most, in any step."""
    return float(np.ptp(np.array(curves), axis=0).max())


def differences_by_step(curves: Sequence[Sequence[float]]) -> str:
    """Return how far several trainings' losses are apart at some steps: "step 1: 2e-07, step 10: 1e-06 ...".

    Args:
        curves: of each training the losses, one entry a step.
    """
    if len(curves) < 2:
        return "one training alone: nothing to compare"
    apart = np.ptp(np.array(curves), axis=0)
    steps = sorted({step for step in (1, 10, 50) if step < len(apart)} | {len(apart)})
    return "the losses differ by: " + ", ".join(f"{apart[step - 1]:.1g} at step {step}" for step in steps)


def tell_step(work: float, kernel: Measurement, operations: int, runs: Mapping[str, tuple]) -> None:
    """Print how long a step would take at the speed of one of tinygrad's kernels, beside what its steps took.

    Args:
        work: additions and multiplications of a step.
        kernel: the kernel's runs.
        operations: additions and multiplications of one of them.
        runs: for each name (losses, seconds), tinygrad's last.
    """
    from helpers.measure.timing import duration

    name, (_, seconds) = list(runs.items())[-1]
    computed = duration(work / operations * kernel.median)
    print(f"{name}: a step takes {duration(float(np.median(seconds[2:])))}; at its kernel's speed alone {computed}")


def speed_table(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Table:
    """Return a table of the last loss, the first step's time, and the later ones' median and spread.

    Args:
        runs: for each name (losses, seconds), one entry a step.
    """
    from helpers.measure.tables import Table
    from helpers.measure.timing import duration

    rows = []
    for name, (losses, seconds) in runs.items():
        low, middle, high = (duration(one) for one in np.percentile(seconds[2:], [25, 50, 75]))
        rows.append([name, f"{losses[-1]:.6f}", duration(seconds[0]), f"{middle} ({low} to {high})"])
    return Table(rows, ["trained with", f"loss of step {len(losses)}", "first step", "a later step (middle half)"])


# PlaidML


def cnn_table(old: tuple[list, list], new: tuple[list, list], what: str, keras: str) -> Table:
    """Return a table of article C's CNN, step by step, in PlaidML's Keras and in today's.

    Args:
        old: (losses, seconds) of PlaidML, one entry a step.
        new: the same of Keras 3; it may have more steps, which are left out.
        what: batch, dataset, place and date, for the header.
        keras: Keras 3 and its backend.
    """
    from helpers.measure.tables import Table
    from helpers.measure.timing import duration

    rows = [
        [number, f"{a:.5f}", f"{b:.5f}", f"{abs(a - b):.1g}", duration(slow), duration(fast)]
        for number, (a, b, slow, fast) in enumerate(zip(old[0], new[0], old[1], new[1], strict=False), 1)
    ]
    headers = ["loss, PlaidML", f"loss, {keras}", "difference", "time, PlaidML", f"time, {keras}"]
    return Table(rows, [f"step ({what})", *headers])


def recorded_cnn() -> Table:
    """Return what `train_cnn` did once, elsewhere: the first header says when and where."""
    import json

    from helpers.compute import plaidml

    known = json.loads(plaidml.RECORDED.read_text(encoding="utf-8"))["cnn"]
    what = f"{known['batch']} images, {known['dataset']}, recorded on {known['date']} on {known['machine']}"
    return cnn_table(known["plaidml"], known["keras"], what, known["keras_version"])
