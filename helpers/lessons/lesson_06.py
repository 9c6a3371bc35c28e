"""Lesson 06, Switch Keras backends: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from helpers import backends, checks, devices
from helpers.plots import BLUE, GREEN, ORANGE, figure, show

if TYPE_CHECKING:
    import keras

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
    """Lesson 06, exercise 1: a layer's mathematics for every backend, judged on two of those that are here."""
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


def _judges() -> list[str]:
    """Two backends that are here, those first that differ most from TensorFlow."""
    return [name for name in ("jax", "torch", "tensorflow") if devices.installed(name)][:2]


def _try_on(backend: str, source: str, name: str) -> str:
    """Judge a layer's function in a process of its own; return the backend's title, or raise NotYet."""
    from helpers import processes

    title = backends.BACKENDS[backend]
    run = processes.run(_try_here, check=False, variables=settings(backend), arguments={"source": source, "name": name})
    problem = run.result if not run.failures[0] else f"stopped with {run.failures[0].splitlines()[-1]}"
    if problem:
        raise checks.NotYet(f"with {title} {problem}")
    return title


def _try_here(source: str, name: str) -> str:
    """Try a layer's function with this process' backend; its own source travels, so it imports what it uses."""
    from helpers.lessons import lesson_06

    return lesson_06.layer_problem(source, name)


def layer_problem(source: str, name: str) -> str:
    """Return what is wrong with a layer's function on this process' backend, an empty text if nothing is.

    It is called with numbers, and stands in the middle of a network that makes a training step, which tells whether
    gradients pass through it: the weights afterwards must be those of the right layer.

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
            actual = keras.ops.convert_to_numpy(names[name](keras.ops.convert_to_tensor(x)))
        except Exception as error:
            return _after(error, f"{name}(x), x of shape {shape},")
        if actual.shape != shape:
            return f"{name}(x), x of shape {shape}, has shape {actual.shape}; expected {shape}."
        if not np.allclose(actual, expected, atol=1e-4):
            place = np.unravel_index(np.abs(actual - expected).argmax(), shape)
            return (
                f"{name}(x) for the row {[round(value, 3) for value in x[place[:-1]].tolist()]} has {actual[place]:.4f} at place "
                f"{place[-1]}; expected {expected[place]:.4f}."
            )
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
        kind = getattr(device, "type", device)
        return kind.removesuffix(":0") if isinstance(kind, str) else device

    yield checks.judge_function(functools.wraps(learner)(answer) if callable(learner) else learner, right, cases)


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


def same_losses(curves: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw the losses of one training on several backends so that equal lines are all seen: broad, dashed, thin.

    Args:
        curves: for each backend the mean loss so far, after each step.
        title: what was trained.
    """
    looks = [
        {"color": ORANGE, "lw": 7, "alpha": 0.5},
        {"color": BLUE, "lw": 3, "ls": "--"},
        {"color": GREEN, "lw": 1.2, "marker": "o", "ms": 5, "markevery": 0.1},
    ]
    with figure(7.5, 3.2) as (drawn, axes):
        for (name, losses), look in zip(curves.items(), looks, strict=False):
            axes.plot(range(1, len(losses) + 1), losses, label=name, **look)
        axes.set(xlabel="training step", ylabel="mean loss so far", title=title, ylim=(0, None))
        axes.legend()
    ends = "; ".join(f"{name}: from {losses[0]:.4f} to {losses[-1]:.4f}" for name, losses in curves.items())
    show(drawn, f"{title}. Mean loss against training step. {ends}.")


def total_time(starts: Mapping[str, float], steps: Mapping[str, float], title: str) -> None:
    """Draw how long trainings of 1 to 100,000 steps take: the start, and a step's time for each further step.

    Args:
        starts: for each backend the seconds until its first step has ended.
        steps: for each backend the seconds of a later step.
        title: the message of the figure; it says that the times are computed.
    """
    looks = [(ORANGE, "-", 3.0), (BLUE, "--", 2.0), (GREEN, "-.", 2.0)]
    count = np.logspace(0, 5, 101)
    with figure(7.5, 3.4) as (drawn, axes):
        for name, (colour, line, width) in zip(starts, looks, strict=False):
            axes.plot(count, starts[name] + (count - 1) * steps[name], color=colour, ls=line, lw=width, label=name)
        axes.set(xscale="log", yscale="log", xlabel="training steps", ylabel="time of it all (s)", title=title)
        axes.legend()
    told = "; ".join(
        f"{name}: {starts[name]:.1f} s for one step, {starts[name] + 99_999 * steps[name]:,.0f} s for 100,000"
        for name in starts
    )
    show(drawn, f"{title}. Seconds against training steps, both logarithmic. {told}.")


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
    ("no GPU", "the fastest in your table", "measure; lesson 05 has more ways"),
    ("only to run a model", "openvino, or ONNX (lesson 10)", "Keras' openvino backend cannot train, nor can numpy"),
]
_NEEDED = {"torch": (2, 6)}  # torch.accelerator came with it


def missing(module: str) -> str:
    """Return why a framework cannot be used here, and how to get it; an empty text if it is here.

    Args:
        module: a backend of Keras.
    """
    title = backends.BACKENDS[module]
    get = devices.FRAMEWORKS[module].install.removeprefix("optional: ").removesuffix(" installs it")
    if not devices.installed(module):
        return f"{title} is not installed here; to have it: {get}"
    try:
        version = importlib.metadata.version(module)
        if tuple(int(part) for part in version.split(".")[:2]) < _NEEDED.get(module, (0, 0)):
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
