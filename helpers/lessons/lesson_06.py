"""Lesson 06, Switch Keras backends, and 06b, Meet a backend that writes OpenCL: their checks, figures, machinery."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from helpers import ROOT, devices
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.tables import Table
from helpers.measure.timing import duration
from helpers.running import processes
from helpers.training import backends, plaidml

# ----------------------------------------------------------------------------------------------- 06: what is here


def missing(module: str) -> str:
    """Return why a backend of Keras cannot be used here, and how to get it; an empty text if it is here."""
    if not devices.is_installed(module):
        return devices.explain_missing(module)
    if module == "torch":
        version = importlib.metadata.version(module)
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < (2, 6):  # torch.accelerator came with it
            return f"PyTorch {version} is too old for this lesson, which needs 2.6"
    return ""


def here(module: str) -> bool:
    """Return whether a backend of Keras can be used; if not, print that something is skipped, and how to get it."""
    if reason := missing(module):
        print(f"skipped: {reason}")
    return not reason


def settings(backend: str) -> dict[str, str]:
    """Return the environment variables with which a process starts one backend of Keras, and spares the machine.

    PyTorch's threads (OpenMP) would turn in circles while they wait for each other, which on a busy machine made a
    training step take 60 times as long.
    """
    return {backends.VARIABLE: backend, "OMP_WAIT_POLICY": "passive"}


def outcomes(function: Callable[..., object], programs: Mapping[str, str]) -> dict[str, object]:
    """Return by name what a function makes of programs, each in a process of its own, or its error in a line.

    Args:
        function: gets `programs`, a list, and `process`, the number of its own from 0; KERAS_BACKEND is not set.
        programs: their texts by name.
    """
    unset, given = {backends.VARIABLE: None, "KERAS_HOME": None}, {"programs": list(programs.values())}
    run = processes.run(function, len(programs), variables=unset, check=False, arguments=given)
    return dict(zip(programs, _answers(run), strict=True))


def _answers(run: processes.Run) -> list:
    """Return what the function returned in each process, or its error in a line."""
    return [_in_a_line(why) if why else result for why, result in zip(run.failures, run.results, strict=True)]


def _in_a_line(error: str) -> str:
    """Return an error's kind and the first line of its message, cut to 200 characters."""
    lines = [line.strip() for line in error.strip().splitlines()]
    line = next((line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)), lines[-1])
    return line if len(line) <= 200 else line[:197] + "..."


# -------------------------------------------------------------------------------------------------- 06: its exercises


@checks.print_verdict
def check_backend_of(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Lesson 06, exercise 1: with what Keras computes after some lines of a program.

    The reference was compared with real processes (tests/test_lesson_06.py).
    """
    plain = """set jax, import keras; import keras, set jax; import tensorflow, set torch, import keras; import keras
        import numpy, set jax, import tensorflow, set torch, import keras; set jax, set tensorflow, import keras
        set jax, set torch, import keras.layers, set jax, import keras; import jax, set jax
        set torch, import tensorflow.keras.layers, set jax, import keras"""
    known = [*(program.strip().split(", ") for program in re.split("[;\n]", plain)), []]

    def cases(rng: np.random.Generator) -> list[tuple]:
        other = ["import numpy", "import jax", "import torch", "set jax", "set torch", "set tensorflow"]
        loaders = [f"import {name}{part}" for name in ("keras", "tensorflow") for part in ("", ".layers", ".data")]
        drawn = [[str(line) for line in rng.choice(other * 2 + loaders, rng.integers(1, 7))] for _ in range(60)]
        return [(lines,) for lines in known + drawn]

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


@checks.print_verdict
def check_wrap(learner: Callable[[object, int], object]) -> Iterator[str]:
    """Lesson 06, exercise 2: an operation that some backends lack, judged on each backend that is here."""
    if not inspect.isfunction(learner) or not learner.__name__.isidentifier():
        raise checks.NotYet(f"expected a function written with `def`, came {learner!r}.")
    try:
        source = textwrap.dedent(inspect.getsource(learner))
    except (OSError, TypeError):
        raise checks.NotYet("the source of your function cannot be found; write it with `def`, in its cell.") from None
    if "return ...  # your code" in source:
        raise checks.NotDone(f"{learner.__name__} returns `...`, as it was handed out.")

    judge = "helpers.lessons.lesson_06:wrap_problem"
    given = {"source": source, "name": learner.__name__}
    for backend in ("jax", "torch", "tensorflow"):  # TensorFlow, which starts slowest, comes last
        title = backends.BACKENDS[backend]
        if missing(backend):
            yield f"{title}: not tried, it is not here"
            continue
        # On the processor: an RTX 50, which TensorFlow may list and fail on, says nothing of the answer.
        variables = settings(backend) | ({"CUDA_VISIBLE_DEVICES": "-1"} if backend == "tensorflow" else {})
        if problem := _answers(processes.run(judge, variables=variables, check=False, arguments=given))[0]:
            raise checks.NotYet(f"with {title} {problem}")
        yield title


def wrap_problem(source: str, name: str) -> str:
    """Return what is wrong with a learner's `wrap` on this process' backend, an empty text if nothing is.

    It is called with numbers, and with one of Keras' symbolic tensors, as every model is built.

    Args:
        source: of the function, which may import and define what it uses.
        name: of the function in it.
    """
    import keras

    names: dict[str, Callable] = {}

    def wrap(x: np.ndarray, border: int) -> np.ndarray:
        return keras.ops.convert_to_numpy(names[name](keras.ops.convert_to_tensor(x), border))

    def right(x: np.ndarray, border: int) -> np.ndarray:
        return np.pad(x, [(0, 0), (border, border)] + [(0, 0)] * (x.ndim - 2), mode="wrap")

    def cases(rng: np.random.Generator) -> list[tuple]:
        sizes = (((1, 4), 2), ((2, 5, 3), 1), ((3, 6), 0), ((2, 3), 3), ((2, 4, 3, 2), 3))
        return [(rng.integers(0, 99, shape).astype(np.float32), border) for shape, border in sizes]

    symbolic = f"{name} of a symbolic tensor of shape (None, 6, 3), as every model is built with,"
    try:
        checks.answer(exec, source, names, who=f"the definition of {name}")
        checks.judge_function(wrap, right, cases)
        made = checks.answer(names[name], keras.KerasTensor((None, 6, 3)), 2, who=symbolic).shape
    except checks.NotYet as problem:
        fresh = ". It runs in a fresh process: import inside the function." if "NameError" in str(problem) else ""
        return f"{problem}{fresh}"
    return "" if made == (None, 10, 3) else f"{symbolic} has shape {made}; expected (None, 10, 3)."


@checks.print_verdict
def check_pick_device(learner: Callable[..., object]) -> Iterator[str]:
    """Lesson 06, exercise 3: choose a device, and never in silence."""
    refused, kinds = "RuntimeError raised", ("cuda", "mps", "xpu")

    def right(accelerator: str | None, wanted: str | None) -> str:
        there = accelerator or "cpu"
        return there if wanted is None else wanted if wanted in (there, "cpu") else refused

    def cases(rng: np.random.Generator) -> list[tuple]:
        return [(accelerator, wanted) for wanted in (None, "cpu", *kinds) for accelerator in (None, *kinds)]

    @functools.wraps(learner)
    def answer(accelerator: str | None, wanted: str | None) -> object:
        try:
            device = learner(accelerator) if wanted is None else learner(accelerator, wanted)
        except RuntimeError:
            return refused
        return getattr(device, "type", device)  # of a torch.device

    yield checks.judge_function(answer, right, cases)


# ---------------------------------------------------------------------------------------- 06: its figure and its table


def growth(trained: Mapping[str, Mapping], title: str) -> None:
    """Draw trainings' loss, and how far two are apart in it; `trained` holds what `train` found in the usual way."""
    losses = np.array([run["losses"] for run in trained.values()])
    apart, steps = np.ptp(losses, axis=0), range(1, losses.shape[1] + 1)
    with figure(7.5, 3.3) as (drawn, axes):
        axes.plot(steps, losses.mean(axis=0), color=BLUE, label="the loss")
        axes.plot(steps, np.maximum(apart, 1e-8), color=ORANGE, label="how far two backends are apart in it")
        axes.set(xlabel="training step", ylabel="loss", yscale="log", title=title)
        axes.legend()
    words = f"loss {losses[0, 0]:.3f} to {losses[0, -1]:.3f}, apart by {apart[0]:.1g} first, {apart.max():.1g} at most"
    show(drawn, f"{title}. Against the training step: {words}.")


def times_table(trained: Mapping[str, Mapping]) -> Table:
    """Return a table of how long first, later and eager steps took; `trained` holds what `train` returned."""
    rows = []
    for name, run in trained.items():
        first, *later = run["usual"]["seconds"]
        low, middle, high = map(duration, np.percentile(later, [25, 50, 75]))
        eager = duration(np.median(run["eager"]["seconds"][1:]))
        rows.append([name, run["device"], run["usual"]["calls"], duration(first), f"{middle} ({low} to {high})", eager])
    return Table(rows, ["trained with", "on", "Python ran the loss", "first step", "later (middle half)", "eager"])


# ---------------------------------------------------------------------------------------------- 06b: its exercises

_STEPS = {  # in OpenCL, and in NumPy
    "v + 1.0f": lambda v: v + 1,
    "v * 0.5f": lambda v: v / 2,
    "v * v": lambda v: v * v,
    "fmax(v, 0.0f)": lambda v: np.maximum(v, 0),
}
_ADD, _HALVE, _SQUARE, _RELU = _STEPS
_CHAINS = ([_ADD, _HALVE], [_HALVE, _ADD, _RELU], [_SQUARE], [_RELU, _ADD, _SQUARE, _HALVE, _ADD, _ADD], [])


@checks.print_verdict
def check_write_kernel(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Lesson 06b, exercise 1: write one OpenCL kernel for a chain of steps."""
    sources = []
    for steps in _CHAINS:
        sources.append(checks.answer(learner, list(steps), who=f"write_kernel({steps})"))
        if not isinstance(sources[-1], str):
            raise checks.NotYet(f"write_kernel({steps}) returned {sources[-1]!r}; a text is expected.")
    if "}" not in sources[0]:
        raise checks.NotDone("the text is no whole kernel yet.")
    yield checks.judge_in_subprocess(judge_chains, sources=sources)


def judge_chains(sources: Sequence[str]) -> str:
    """Judge the kernels of exercise 1, one for each of _CHAINS; called in a subprocess."""
    from helpers.judge import kernel_checks

    for steps, source in zip(_CHAINS, sources, strict=True):
        right = functools.partial(functools.reduce, lambda v, step: _STEPS[step](v), steps)
        try:
            kernel = kernel_checks.build(source, "chain")
            tried = kernel_checks.judge_kernel(kernel, ("float[]",), right, sizes=(1, 65, 257))
            kernel_checks.judge_accesses(kernel)
        except checks.NotYet as error:
            raise checks.NotYet(f"for the steps {steps} {error}") from None
    return f"{len(_CHAINS)} chains, each read and written once; of the last {tried}"


@checks.print_verdict
def check_to_all(learner: Callable, found: Mapping[str, list[float]], train: Callable) -> Iterator[str]:
    """Lesson 06b, exercise 2: share the gradient of the largest of four; a right rule trains, beside `found` losses."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        known = np.float32([[1, 1, 0, 1], [2, 5, 3, 4], [0, 0, 0, 0], [-1, -2, -1, -3]])
        close = np.float32([[1, 1 + 1e-6, 0, 1]])
        drawn = [(rng.integers(-2, 3, (n, 4)) / np.float32(4), rng.normal(size=n)) for n in (1, 4, 4, 60)]
        few = [(known, np.float32([5, -2, 0.5, 1])), (close, np.float32([3]))]
        return [*few, *((a.astype("f"), b.astype("f")) for a, b in drawn)]

    yield checks.judge_function(learner, to_all, cases)
    print(losses_table({**found, "JAX, with your rule": train(learner)}))


@checks.print_verdict
def check_slope(learner: Callable, found: Mapping[str, list[float]], train: Callable) -> Iterator[str]:
    """Lesson 06b, exercise 3: ReLU's slope with 1 at 0; a right one trains, beside `found` losses."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [rng.integers(-2, 3, shape) / 4 for shape in ((7,), (4, 5), (2, 3, 2, 3))]
        return [(np.float32(values),) for values in ([-2, 0, 3], [0.0, -0.0, 1e-30, -1e-30], *drawn)]

    yield checks.judge_function(learner, lambda x: (x >= 0).astype(np.float32), cases)
    print(losses_table({**found, "JAX, with both rules": train(learner)}))


def to_all(values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Exercise 2 of 06b: every value that is the largest of its row gets the whole of the row's gradient."""
    return np.where(values == values.max(axis=1, keepdims=True), gradient[:, None], 0)


def start_weights(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Return for each shape, as (784, 512) or (3, 3, 1, 32), a kernel and a bias as Keras begins: Glorot's, zeros."""
    rng, weights = np.random.default_rng(seed), []
    for shape in shapes:
        window = int(np.prod(shape[:-2]))
        limit = (6 / (window * (shape[-2] + shape[-1]))) ** 0.5
        weights += [rng.uniform(-limit, limit, shape).astype(np.float32), np.zeros(shape[-1], np.float32)]
    return weights


def cnn_weights() -> list[np.ndarray]:
    """Return the weights with which the recorded trainings of article C's network began."""
    return start_weights((3, 3, 1, 32), (3, 3, 32, 64), (9216, 128), (128, 10))


def recorded_losses(dataset: str) -> dict[str, list[float]]:
    """Return the recorded losses of PlaidML's Keras and of Keras 3, and say when and where; nothing without MNIST."""
    if dataset != "MNIST":
        print(f"The losses were recorded on MNIST. Here is another dataset, {dataset}: nothing to compare.")
        return {}
    known = json.loads(plaidml.RESULTS.read_text(encoding="utf-8"))["cnn"]
    print(f"Recorded on {known['date']} on {known['machine']}: {known['batch']} images of {known['dataset']} a step.")
    return {"PlaidML 0.7.0": known["plaidml"][0], known["keras_version"]: known["keras"][0]}


def losses_table(found: Mapping[str, Sequence[float]]) -> Table:
    """Return a table of losses, a row a training, a column a step; steps that one of them lacks are left out."""
    steps = min(map(len, found.values()), default=0)
    rows = [[name, *(f"{loss:.5f}" for loss in losses[:steps])] for name, losses in found.items()]
    return Table(rows, ["loss of", *(f"step {step + 1}" for step in range(steps))])


# ------------------------------------------------------------------------------------------------------ 06b: tinygrad

RECORDED_KERNEL = ROOT / "data" / "results" / "tinygrad_dense.cl"


def tinygrad_settings() -> dict[str, str | None]:
    """Return the variables with which a process lets tinygrad compute through OpenCL, and print its kernels.

    The OpenCL loader is that of PyOpenCL's wheel, or None: the system's own. CACHELEVEL=0 keeps no file in the home.
    """
    import pyopencl

    loader = next((str(file) for file in sorted(Path(pyopencl.__file__).parent.glob(".libs/libOpenCL*.so*"))), None)
    return {"DEV": "CL", "TRAINING": "1", "CACHELEVEL": "0", "OPENCL_PATH": loader, "DEBUG": "4", "NO_COLOR": "1"}


def no_tinygrad() -> str:
    """Return why tinygrad cannot run here, and what helps; empty if nothing speaks against it."""
    return no_opencl() if devices.is_installed("tinygrad") else f"skipped: {devices.explain_missing('tinygrad')}"


def no_opencl() -> str:
    """Return why no OpenCL device can be used here, and what helps; empty if one can."""
    from helpers.devices import opencl

    try:
        opencl.pick_device()
    except WorkshopError as error:
        return f"skipped: this needs an OpenCL device. {error}"
    return ""


def take_device_of_lesson_01() -> str:
    """Let tinygrad's device `CL` be the OpenCL device of lesson 01, before its first operation; return its name.

    By itself tinygrad looks at the first platform alone: its GPUs, or else its default device. Two things to know of
    tinygrad 0.14: it keeps its list of devices in `CLDevice.device_ids`, which is filled here; and the loader in
    PyOpenCL's wheel crashes unless PyOpenCL was imported before (or PYOPENCL_HOME names its folder).
    """
    import ctypes

    from helpers.devices import opencl

    device = opencl.pick_device()
    from tinygrad.runtime.autogen.opencl import cl_device_id
    from tinygrad.runtime.ops_cl import CLDevice

    CLDevice.device_ids = (cl_device_id * 1)(ctypes.cast(device.int_ptr, cl_device_id))
    return opencl.name(device)


def dense_kernel(printed: str, rows: int, inputs: int, units: int) -> str:
    """Return the kernel of a dense layer's product out of what tinygrad prints under DEBUG=4.

    tinygrad writes the number of a buffer's elements into its name: the kernel is known by its three arrays. Where
    there is none, because tinygrad is missing or cuts the work otherwise, it is one recorded elsewhere, which is said.
    """
    wanted = {rows * units, rows * inputs, inputs * units}
    for kernel in re.findall(r"^__kernel void .*?^}", printed, re.MULTILINE | re.DOTALL):
        if wanted <= set(_sizes(kernel)) and _sizes(kernel)[0] == rows * units:
            return kernel
    label, _, kernel = RECORDED_KERNEL.read_text(encoding="utf-8").partition("\n")
    print(label.strip("/ "))
    return kernel


def _sizes(kernel: str) -> list[int]:
    return [int(size) for size in re.findall(r"\bdata\d+_(\d+)", kernel.splitlines()[0])]


def shorten(kernel: str, most: int = 2) -> str:
    """Return a kernel of tinygrad's without the lines that differ from `most` others in numbers alone, for a page."""
    kept, kinds = [], []
    for line in kernel.splitlines():
        kinds.append(re.sub(r"(?<!data)\d+|\.[xyzw]", "", line))
        if kinds.count(kinds[-1]) <= most:
            kept.append(line if len(line) <= 100 else line[:97] + "...")
    return "\n".join(kept)


def launch_of(kernel: str) -> tuple[list[int], list[int]]:
    """Return work-items in each dimension and those of a group, as tinygrad writes them into its kernels."""
    sizes = {"group": [1, 1, 1], "local": [1, 1, 1]}
    for which, dimension, size in re.findall(r"get_(group|local)_id\((\d)\);? /\* (\d+) \*/", kernel):
        sizes[which][int(dimension)] = int(size)
    return [groups * items for groups, items in zip(*sizes.values(), strict=True)], sizes["local"]


def start(kernel: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Start tinygrad's kernel of a dense layer by PyOpenCL; return its outputs, float32 of shape (images, units).

    All arrays are float32: images `x` of shape (images, inputs), weights `w` (inputs, units), biases `b` (units,).
    """
    import pyopencl as cl

    from helpers.devices import opencl

    out = np.full((len(x), w.shape[1]), np.nan, np.float32)
    built = opencl.Kernel(kernel, re.search(r"__kernel void (\w+)", kernel)[1])
    copy = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {array.size: cl.Buffer(built.context, copy, hostbuf=array) for array in (b, w, x, out)}
    built.kernel(built.queue, *launch_of(kernel), *(buffers[size] for size in _sizes(kernel)))
    cl.enqueue_copy(built.queue, out, buffers[out.size])
    return out
