"""Serve lesson 06b, Meet a backend that writes OpenCL: its checks, its tables, a training by given rules, tinygrad."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers import ROOT, devices
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons.lesson_06 import make_start_weights
from helpers.measure import records, timing
from helpers.measure.tables import Table
from helpers.running import processes
from helpers.training import plaidml

if TYPE_CHECKING:
    import jax

Share = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of values (n, 4) and a gradient (n,), what each value gets
Slope = Callable[[np.ndarray], np.ndarray]  # ReLU's slope at each of its inputs

# ------------------------------------------------------------------------------------------------------ exercise 1

_STEPS = {  # in OpenCL, and in NumPy
    "v + 1.0f": lambda v: v + 1,
    "v * 0.5f": lambda v: v / 2,
    "v * v": lambda v: v * v,
    "fmax(v, 0.0f)": lambda v: np.maximum(v, 0),
}
_ADD, _HALVE, _SQUARE, _RELU = _STEPS
_CHAINS = ([_ADD, _HALVE], [_RELU, _ADD, _SQUARE, _HALVE, _ADD, _ADD], [])  # two steps first, for a short message
SIX = (_ADD, _HALVE, _RELU, _ADD, _HALVE, _RELU)
_SECONDS = 300.0  # for a process: three kernels took 10 s beside four busy loops


def write_kernel(steps: Sequence[str]) -> str:
    """Return the text of an OpenCL kernel `chain` that takes some steps; exercise 1 of lesson 06b writes this function.

    Args:
        steps: expressions in v, such as "v + 1.0f".
    """
    head = "__kernel void chain(__global const float *x, __global float *out, const int n) {"
    body = "".join(f"        v = {step};\n" for step in steps)
    index = "    int i = get_global_id(0);\n    if (i < n) {\n        float v = x[i];"
    return f"{head}\n{index}\n{body}        out[i] = v;\n    }}\n}}"


_right_writers: list[tuple[Callable[..., str], str]] = [(write_kernel, "with the solution's kernels")]


@checks.print_verdict
def check_write_kernel(learner: Callable[[list[str]], str]) -> Iterator[str]:
    """Judge exercise 1 of lesson 06b: write one OpenCL kernel for a chain of steps. `time_fusion` takes a right one."""
    sources: list[str] = []
    for steps in _CHAINS:
        source = checks.answer(learner, list(steps), who=f"write_kernel({steps})")
        if not isinstance(source, str):
            raise checks.NotYet(f"write_kernel({steps}) returned {source!r}; a text is expected.")
        sources.append(source)
    if "}" not in sources[0]:
        raise checks.NotDone("the text is no whole kernel yet.")
    yield checks.judge_in_subprocess(judge_chains, seconds=_SECONDS, sources=sources)
    _right_writers.append((learner, "with your kernels"))


def judge_chains(sources: Sequence[str]) -> str:
    """Judge the kernels of exercise 1, one for each of _CHAINS, in a subprocess; return what was tried."""
    from helpers.judge import kernel_checks

    for steps, source in zip(_CHAINS, sources, strict=True):
        right = functools.partial(functools.reduce, lambda v, step: _STEPS[step](v), steps)
        try:
            kernel = kernel_checks.build(source, "chain")
            tried = kernel_checks.judge_kernel(kernel, ("float[]",), right, sizes=(1, 65, 257))
            kernel_checks.judge_accesses(kernel)
        except checks.NotYet as error:
            raise checks.NotYet(f"for the steps {steps} {error}{_name_idea(str(error), steps)}") from None
        except checks.NotDone as error:
            verdict = checks.NotDone if steps == _CHAINS[0] else checks.NotYet  # the chains before were right
            raise verdict(f"for the steps {steps} {error}") from None
    return f"{len(_CHAINS)} chains, each read and written once; the last: {tried}"


def _name_idea(message: str, steps: Sequence[str]) -> str:
    """Return the idea behind a wrong element in words, if the first chain shows which one; otherwise nothing."""
    found = re.search(r"\(x\[0\] = (\S+)\): expected \S+, came (\S+)\.", message)
    if found is None or list(steps) != _CHAINS[0]:
        return ""
    x, came = map(float, found.groups())
    ideas = {"the steps came in reverse order": x / 2 + 1, "brackets were missing around the first step": x + 0.5}
    ideas |= {"each step began from `x` again": x / 2, "only the first step was taken": x + 1}
    return next((f" It is as if {idea}." for idea, wrong in ideas.items() if np.isclose(came, wrong, rtol=1e-4)), "")


def time_fusion(count: int) -> tuple[float, Table]:
    """Time six steps as one kernel and as six on the device of lesson 01, in turn; return a ratio and a table.

    The kernels are the learner's if `check_write_kernel` found them right. Both ways are compared with NumPy first.

    Args:
        count: elements of the array.

    Returns:
        How many times as fast one kernel is, and the table.

    Raises:
        WorkshopError: there is no OpenCL device, or a result differs from NumPy's.
    """
    import pyopencl as cl

    from helpers.devices import opencl

    write, whose = _right_writers[-1]
    device = opencl.pick_device()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    texts = [write([step]) for step in SIX] + [write(list(SIX))]
    *single, fused = [cl.Kernel(opencl.build(context, text), "chain") for text in texts]
    x = np.random.default_rng(0).standard_normal(count, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    first, *others = [cl.Buffer(context, flags, hostbuf=x) for _ in range(3)]

    def run_one() -> None:
        fused(queue, (count,), None, first, others[1], np.int32(count))

    def run_six() -> None:
        source = first
        for k, kernel in enumerate(single):
            kernel(queue, (count,), None, source, others[k % 2], np.int32(count))
            source = others[k % 2]

    expected, found = functools.reduce(lambda v, step: _STEPS[step](v), SIX, x), np.empty_like(x)
    for run in (run_six, run_one):
        run()
        cl.enqueue_copy(queue, found, others[1])
        if not np.allclose(found, expected, rtol=1e-5):
            raise WorkshopError("Six steps on this device differ from NumPy's.", "", "Run `doctor`.")
    ways = {"six kernels": run_six, "one kernel": run_one}
    with timing.Load() as load:
        timed = timing.measure_interleaved(ways, opencl.name(device), timing.ENOUGH, on=queue)
    ratio = timed["six kernels"].median / timed["one kernel"].median
    return ratio, _make_fusion_table(timed, f"{count:,} floats", whose, load.others)


def _make_fusion_table(timed: Mapping[str, timing.Measurement], amount: str, whose: str, others: float) -> Table:
    """Return the table of `time_fusion`: accesses to memory for each element, counted, and seconds, measured."""
    rows = []
    for (way, run), accesses in zip(timed.items(), (12, 2), strict=True):
        records.add_run(run, amount=amount, lesson="06b")
        low, high = map(timing.duration, run.quartiles)
        rows.append((way, accesses, f"{timing.duration(run.median)} ({low} to {high})"))
    apart, fused = timed.values()
    claim = " ".join(timing.compare(apart, fused).split())
    below = [claim, f"here: {amount}, {whose}; other programs used {100 * others:.0f} % of the processor."]
    return records.add_column(Table(rows, ("", "accesses for each float", "here (middle half)"), below), "06b")


# ------------------------------------------------------------------------------------------------------ two rules


@checks.print_verdict
def check_to_all(
    learner: Callable[..., np.ndarray], found: Mapping[str, Sequence[float]], train: Callable[..., Sequence[float]]
) -> Iterator[str]:
    """Judge exercise 2 of lesson 06b: every largest of four gets the gradient; then train with a right rule.

    Args:
        learner: the rule.
        found: losses of other training runs, to be printed beside.
        train: trains with the rule, and returns a loss for each step.
    """

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        for known, gradient in (((1, 1, 0, 1), 5), ((2, 5, 3, 4), -2), ((0, 0, 0, 0), 0.5), ((-1, -2, -1, -3), 1)):
            yield np.array([known], np.float32), np.array([gradient], np.float32)
        yield np.array([[1, 1, 0, 1], [2, 5, 3, 4]], np.float32), np.array([5, -2], np.float32)
        near = np.array([1, 0.01, 1e-6], np.float32)  # each beside the next number above it, in single precision
        yield np.stack([near, np.nextafter(near, 2, dtype=np.float32), near, 0 * near], 1), np.ones(3, np.float32)
        for n in (1, 4, 60):
            yield (rng.integers(-2, 3, (n, 4)) / 4).astype(np.float32), rng.normal(size=n).astype(np.float32)

    yield checks.keep_right("to_all", learner, checks.judge_function(learner, to_all, cases))
    print(make_losses_table({**found, "JAX, with your rule": train(learner)}))


@checks.print_verdict
def check_rise(learner: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Iterator[str]:
    """Judge exercise 3 of lesson 06b: how far the largest of four rises, and how far a rule predicts that it does."""

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        yield to_first, np.array([[1.0, 1, 0, 1]]), np.full((1, 4), 0.25)
        yield to_first, np.array([[0.5, 0.25, 0, 0]]), np.array([[0, 0.5, 0, 0]])  # another value becomes the largest
        yield to_first, np.array([[0.5, 0.25, 0, 0]]), np.array([[-0.125, 0, 0, 0]])  # the largest falls
        for rule in (to_first, to_all, to_shares, _to_nobody):
            for n in (1, 1, 1, 1, 1, 1, 2):  # one row first: a message has no room for many
                yield rule, rng.integers(-2, 3, (n, 4)) / 4, rng.integers(-3, 4, (n, 4)) / 4

    yield checks.keep_right("rise", learner, checks.judge_function(learner, rise, cases))


def rise(rule: Share, values: np.ndarray, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far the largest of each row rises if its values move, and how far a rule predicts that it does.

    Exercise 3 of lesson 06b writes this function.

    Args:
        rule: what each of four values gets of a gradient.
        values: of shape (n, 4).
        moves: of the same shape, what is added to each value.
    """
    real = (values + moves).max(axis=1) - values.max(axis=1)
    return real, (rule(values, np.ones(len(values))) * moves).sum(axis=1)


def to_first(values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Give the first of the largest values of each row (n, 4) the row's gradient (n,)."""
    return np.where(values.argmax(axis=1)[:, None] == np.arange(4), gradient[:, None], 0)


def to_shares(values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Share the gradient (n,) of each row (n, 4) equally among its largest values."""
    tied = values == values.max(axis=1, keepdims=True)
    return np.where(tied, gradient[:, None] / tied.sum(axis=1, keepdims=True), 0)


def _to_nobody(values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return 0 * values * gradient[:, None]


def to_all(values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Give every value that is the largest of its row the whole gradient of the row; exercise 2 of lesson 06b.

    Args:
        values: of shape (n, 4).
        gradient: of shape (n,).
    """
    return np.where(values == values.max(axis=1, keepdims=True), gradient[:, None], 0)


# ------------------------------------------------------------------------------------------------------ the training


def _define_loss(share: Share, slope: Slope) -> Callable[..., Any]:
    """Return a function of weights, images and labels for article C's network: its loss, and the gradients of that.

    It is written in JAX, whose `custom_vjp` lets a function have a gradient of ours.

    Args:
        share: what each value of a window of pooling gets of the gradient.
        slope: ReLU's.
    """
    import jax
    from jax import numpy as jnp

    def with_gradient(forward: Callable, backward: Callable) -> Callable:
        function = jax.custom_vjp(forward)
        function.defvjp(lambda x: (forward(x), x), lambda x, g: (np.float32(backward(np.asarray(x), np.asarray(g))),))
        return function

    relu = with_gradient(lambda x: jnp.maximum(x, 0), lambda x, gradient: gradient * slope(x))
    largest = with_gradient(lambda values: values.max(axis=1), share)  # of each row of four

    def loss(weights: Sequence[jax.Array], x: jax.Array, y: np.ndarray) -> jax.Array:
        for w, b in (weights[0:2], weights[2:4]):
            sums = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = relu(sums + b)
        windows = x.reshape(-1, 12, 2, 12, 2, 64).transpose(0, 1, 3, 5, 2, 4).reshape(-1, 4)
        x = largest(windows).reshape(len(y), -1)
        x = relu(x @ weights[4] + weights[5]) @ weights[6] + weights[7]
        return -jax.nn.log_softmax(x)[np.arange(len(y)), y].mean()

    return jax.value_and_grad(loss)


def train(images: np.ndarray, labels: np.ndarray, share: Share, slope: Slope) -> list[float]:
    """Train article C's network by Adadelta (rate 1), 128 images a step; return the loss of each step.

    Args:
        images: of shape (n, 28, 28, 1), from 0 to 1.
        labels: of shape (n,), whole numbers.
        share: what each value of a window of pooling gets of the gradient.
        slope: ReLU's.
    """
    from jax import numpy as jnp

    weights, losses, step = make_cnn_weights(), [], _define_loss(share, slope)
    squares, moves = [0 * w for w in weights], [0 * w for w in weights]
    for i in range(0, len(images), 128):
        loss, gradients = step(weights, images[i : i + 128], labels[i : i + 128])
        losses.append(float(loss))
        for k, g in enumerate(gradients):  # as in Adadelta's paper
            squares[k] = 0.95 * squares[k] + 0.05 * g**2
            move = g * jnp.sqrt((moves[k] + 1e-7) / (squares[k] + 1e-7))
            moves[k] = 0.95 * moves[k] + 0.05 * move**2
            weights[k] = weights[k] - move
    return losses


def make_cnn_weights() -> list[np.ndarray]:
    """Return the weights with which the recorded training runs of article C's network began."""
    return make_start_weights((3, 3, 1, 32), (3, 3, 32, 64), (9216, 128), (128, 10))


def read_recorded_losses(dataset: str) -> dict[str, list[float]]:
    """Return the recorded losses of PlaidML's Keras and of Keras 3, and print their origin.

    Beside another dataset than MNIST, they are printed alone: the result is empty.
    """
    known = json.loads(plaidml.RESULTS.read_text(encoding="utf-8"))["cnn"]
    print(f"Recorded on {known['date']} on {known['machine']}: {known['batch']} images of {known['dataset']} a step.")
    recorded = {"PlaidML 0.7.0": known["plaidml"][0], known["keras_version"]: known["keras"][0]}
    if dataset == "MNIST":
        return recorded
    print(make_losses_table(recorded))
    print(f"Don't compare them with the losses below: here is another dataset, {dataset}.")
    return {}


def make_losses_table(found: Mapping[str, Sequence[float]]) -> Table:
    """Return a table of losses with a row for each training run and a column for each step that all of them have."""
    steps = min(map(len, found.values()), default=0)
    rows = [[name, *(f"{loss:.5f}" for loss in losses[:steps])] for name, losses in found.items()]
    return Table(rows, ["loss of", *(f"step {step + 1}" for step in range(steps))])


# ------------------------------------------------------------------------------------------------ tinygrad

RECORDED_KERNEL = ROOT / "data" / "results" / "tinygrad_chain.cl"


def make_tinygrad_variables() -> dict[str, str | None]:
    """Return the variables with which a process lets tinygrad compute through OpenCL, and print its kernels.

    The OpenCL loader is that of PyOpenCL's wheel, or None for the system's own. CACHELEVEL=0 writes no file into the
    home folder.
    """
    import pyopencl

    loader = next((str(file) for file in sorted(Path(pyopencl.__file__).parent.glob(".libs/libOpenCL*.so*"))), None)
    return {"DEV": "CL", "CACHELEVEL": "0", "OPENCL_PATH": loader, "DEBUG": "4", "NO_COLOR": "1"}


def run_with_tinygrad(function: Callable, x: np.ndarray) -> tuple[np.ndarray | None, list[str]]:
    """Run a function in a process in which tinygrad prints its kernels; return its result, and the kernels.

    Where tinygrad cannot run, print why; the result is then None, and the kernel a recorded one.

    Args:
        function: gets `x`, and returns an array.
        x: its argument.
    """
    if reason := explain_missing_tinygrad():
        print("skipped:", reason)
        return None, find_kernels("")
    run = processes.run(function, seconds=_SECONDS, variables=make_tinygrad_variables(), arguments={"x": x})
    return run.result, find_kernels(run.stdout[0])


def explain_missing_tinygrad() -> str | None:
    """Return why tinygrad cannot run here, and what helps; None if it can."""
    if not devices.is_installed("tinygrad"):
        return devices.explain_missing("tinygrad")
    return explain_missing_opencl()


def explain_missing_opencl() -> str | None:
    """Return why no OpenCL device can be used here, and what helps; None if one can."""
    from helpers.devices import opencl

    try:
        opencl.pick_device()
    except WorkshopError as error:
        return f"this needs an OpenCL device. {error}"
    return None


def use_device_of_lesson_01() -> str:
    """Let tinygrad's device `CL` be the OpenCL device of lesson 01, before its first operation; return its name.

    By itself tinygrad looks at the first platform alone: its GPUs, or its default device if there are none. Two facts
    about tinygrad 0.14: it keeps its list of devices in `CLDevice.device_ids`, which is filled here; and the loader in
    PyOpenCL's wheel crashes unless PyOpenCL was imported before (or PYOPENCL_HOME names its folder).
    """
    import ctypes

    from helpers.devices import opencl

    device = opencl.pick_device()
    from tinygrad.runtime.autogen.opencl import cl_device_id
    from tinygrad.runtime.ops_cl import CLDevice

    CLDevice.device_ids = (cl_device_id * 1)(ctypes.cast(device.int_ptr, cl_device_id))
    return opencl.name(device)


def find_kernels(printed: str) -> list[str]:
    """Return the kernels that tinygrad prints under DEBUG=4; if there is none, a recorded one, and print its origin."""
    if kernels := re.findall(r"^__kernel void .*?^}", printed, re.MULTILINE | re.DOTALL):
        return kernels
    label, _, kernel = RECORDED_KERNEL.read_text(encoding="utf-8").partition("\n")
    print(label.strip("/ "))
    return [kernel]
