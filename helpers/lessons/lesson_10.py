"""Serve lesson 10, Run the model anywhere: the checks of its exercises, its figure, its machinery."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from helpers import devices, training
from helpers.devices import products
from helpers.devices.host import Host, command
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure.plots import figure, show
from helpers.running import workarounds
from helpers.running.quiet import caught_stderr
from helpers.training import backends, models

if TYPE_CHECKING:
    import keras
    import onnxruntime as ort

    from helpers.training.data import Dataset


class Event(TypedDict):
    """An event of a profile that ONNX Runtime writes."""

    cat: str  # "Session", "Node" or "Kernel"
    name: str
    dur: int  # microseconds
    args: dict[str, str]  # of a node: op_name and provider


Runner = Callable[[np.ndarray], np.ndarray]  # from uint8 images (n, 28, 28, 1) to probabilities, float32 (n, 10)
RUN_BATCH = 50  # images at once where all are run: ONNX Runtime keeps the memory of its largest batch
CPU = products.CPU_PROVIDER


# ---------------------------------------------------------------------------------------------- the trained network


EXPORTERS = {"tensorflow": "tf2onnx", "torch": "onnxscript"}  # by backend, the package that writes the file


def start_keras() -> str:
    """Start Keras with a backend that can write ONNX files: the one that KERAS_BACKEND names, or another if it cannot.

    Returns:
        The name of the device on which Keras computes.

    Raises:
        WorkshopError: no backend here can write the file, or the backend does not start.
    """
    backends.validate()
    named = os.environ.get(backends.VARIABLE) or "tensorflow"
    able = [name for name, tool in EXPORTERS.items() if devices.is_installed(name) and devices.is_installed(tool)]
    if not able:
        raise WorkshopError(
            "No ONNX file can be written here.",
            "It takes TensorFlow and tf2onnx, or PyTorch and onnxscript.",
            f"Install one of the two pairs:\n    {command(Host.here(), 'lab --with torch')}",
        )
    if named not in able:
        print(f"Keras on {backends.BACKENDS[named]} can write no ONNX file here: {backends.BACKENDS[able[0]]} does it.")
        os.environ[backends.VARIABLE] = able[0]
        if able[0] == "tensorflow":  # another backend may be named because TensorFlow does not know this GPU
            training.import_tensorflow().config.set_visible_devices([], "GPU")
    return training.start()


def train_network(mnist: Dataset, images: int, seconds: float) -> keras.Model:
    """Return article C's network, trained, and print the progress.

    Args:
        mnist: to train with.
        images: the number of images to show, which may be several times the dataset.
        seconds: the most that the training may take.
    """
    import keras

    training.seed(0)
    network, count = models.build_cnn(), len(mnist.x_train)
    at_once = training.steps_at_once(4)
    network.compile(
        keras.optimizers.Adam(), "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=at_once
    )
    network.fit(
        mnist.x_train[:images, ..., None],
        mnist.y_train[:images],
        batch_size=128,
        epochs=max(1, round(images / count)),
        verbose=0,
        callbacks=[training.progress("training", seconds)],
    )
    return network


@contextmanager
def silence_exporters() -> Generator[None]:
    """Hide log lines and warnings of the packages that read and write ONNX files, and give their memory back."""
    workarounds.return_freed_memory()
    with caught_stderr(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    workarounds.return_freed_memory()


# ---------------------------------------------------------------------------------------------- providers


def find_missing_provider(available: Sequence[str]) -> str:
    """Return a provider that is not available here."""
    return next(name for name in ("CUDAExecutionProvider", "DmlExecutionProvider") if name not in available)


def explain_missing_openvino() -> str | None:
    """Return that OpenVINO is not installed, and how to get it; None if it is installed."""
    return None if devices.is_installed("openvino") else devices.explain_missing("openvino", "OpenVINO")


def make_openvino_runner(file: str) -> Runner:
    """Return a function that runs an ONNX file with Intel's runtime on the processor.

    It computes in float32; without the hint it may use bfloat16.
    """
    import openvino

    model = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda images: model(images)[0]


def make_runner(file: str) -> Runner:
    """Return a function that runs an ONNX file with ONNX Runtime on the processor.

    Its threads do not spin after a run, because that would slow down the next runtime that is timed.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(file, options, providers=[CPU])
    name = session.get_inputs()[0].name
    return lambda images: _run_session(session, {name: images})[0]


def _run_session(session: ort.InferenceSession, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return all outputs of a session; here they are arrays, never sparse tensors or sequences."""
    outputs = []
    for output in session.run(None, inputs):
        assert isinstance(output, np.ndarray)
        outputs.append(output)
    return outputs


class Calibration:
    """Images in eight batches, as ONNX Runtime's static quantization reads them."""

    def __init__(self, session: ort.InferenceSession, images: np.ndarray) -> None:
        """Keep the batches.

        Args:
            session: of the network; it knows the input's name.
            images: uint8 (n, 28, 28, 1); n is a multiple of 8.
        """
        self.name = session.get_inputs()[0].name
        self.batches = iter(np.split(images, 8))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch by the input's name, or None after the last one."""
        batch = next(self.batches, None)
        return None if batch is None else {self.name: batch}


def find_busiest_operators(file: str, images: np.ndarray) -> str:
    """Return the two operators of an ONNX file that take most of the time on the processor, with their shares of it.

    Args:
        file: its path.
        images: of one run; five runs are profiled, after one that is not counted.
    """
    import onnxruntime as ort

    with tempfile.TemporaryDirectory(prefix="anygpu-") as folder:
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(file, options, providers=[CPU])
        for _ in range(6):
            session.run(None, {session.get_inputs()[0].name: images})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    nodes = [event for event in events if event["cat"] == "Node"]
    took: Counter[str] = Counter()
    for node in nodes[len(nodes) // 6 :]:
        took[node["args"]["op_name"]] += node["dur"]
    return ", ".join(f"{operator} {time / took.total():.0%}" for operator, time in took.most_common(2))


def run_all(run: Runner, images: np.ndarray) -> np.ndarray:
    """Run many images in batches of RUN_BATCH.

    Args:
        run: takes images, and returns an array with a row for each.
        images: (n, 28, 28, 1).
    """
    starts = range(0, len(images), RUN_BATCH)
    return np.concatenate([np.asarray(run(images[start : start + RUN_BATCH])) for start in starts])


# ---------------------------------------------------------------------------------------------- a figure


def draw_inputs(inputs: Mapping[str, np.ndarray], answers: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
    """Draw the first image as each way of preparing leaves it, with the answer and the share of right answers.

    Args:
        inputs: for each way uint8 images (n, 28, 28, 1).
        answers: for each way probabilities (n, 10).
        labels: of shape (n,).
    """
    texts, title = [], f"A {labels[0]}, prepared in {len(inputs)} ways: never an error, always an answer"
    with figure(7.5, 2.9, title, ncols=len(inputs)) as (drawn, _):
        for panel, (name, images) in zip(drawn.axes, inputs.items(), strict=True):
            first, right = answers[name][0], float((answers[name].argmax(1) == labels).mean())
            panel.imshow(images[0, ..., 0], cmap="gray_r", vmin=0, vmax=255)
            answer = f"says {first.argmax()}, {first.max():.0%} sure"
            panel.set_title(name, fontsize=10, loc="center")
            panel.set_xlabel(f"{answer}\nof {len(labels)}: {right:.1%} right", fontsize=9)
            panel.set(xticks=[], yticks=[])
            panel.grid(visible=False)
            texts.append(f"{name}: {answer}; of {len(labels)} images {right:.1%} right")
    show(drawn, f"One image of a {labels[0]}, prepared in {len(inputs)} ways. {'; '.join(texts)}.")


# ---------------------------------------------------------------------------------------------- exercises


def _make_events(nodes: Sequence[tuple[str, str, int]], session: Sequence[int]) -> list[Event]:
    """Return events as a profile has them.

    Args:
        nodes: for each the operator, the provider and the microseconds.
        session: microseconds of each event of the session itself, which has no provider; at least one.
    """
    events = [Event(cat="Session", name="session_initialization", dur=session[0], args={})]
    for number, (operator, provider, dur) in enumerate(nodes):
        args = {"op_name": operator, "provider": provider}
        events.append(Event(cat="Node", name=f"node_{number}_kernel_time", dur=dur, args=args))
    own = {"op_name": "Conv", "provider": "CUDAExecutionProvider"}  # a GPU's own record of what a node did
    events.append(Event(cat="Kernel", name="conv_kernel_time", dur=session[0], args=own))
    for dur in session[1:]:
        events.append(Event(cat="Session", name="model_run", dur=dur, args={}))
    return events


def _find_where_ran(events: Sequence[Event]) -> dict[str, list[str]]:
    """Return for each provider the operators that it ran, sorted, each once."""
    found: dict[str, set[str]] = {}
    for event in events:
        if event["cat"] == "Node":
            found.setdefault(event["args"]["provider"], set()).add(event["args"]["op_name"])
    return {provider: sorted(operators) for provider, operators in found.items()}


def _with_events(where_ran: Callable[[list[Event]], object]) -> Callable[[list, list], object]:
    """Return a function that turns nodes and the session's times into events, and asks where they ran."""

    def where_ran_of(nodes: list[tuple[str, str, int]], session: list[int]) -> object:
        events = _make_events(nodes, session)
        answer = where_ran(given := copy.deepcopy(events))
        if given != events:
            raise checks.NotYet(f"for the nodes {nodes[:6]} it changed the events that it got.")
        if not isinstance(answer, Mapping):
            return answer
        return {str(provider): list(map(str, operators)) for provider, operators in answer.items()}

    return where_ran_of


@checks.print_verdict
def check_where_ran(learner: Callable[[list[Event]], dict[str, list[str]]]) -> Iterator[str]:
    """Judge exercise 2 of lesson 10: the operators that each provider ran, from a profile's events."""
    cuda = "CUDAExecutionProvider"
    providers = [cuda, CPU, "MIGraphXExecutionProvider", "WebGpuExecutionProvider"]

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        yield [("Softmax", cuda, 300), ("Conv", CPU, 100), ("Conv", cuda, 90), ("Softmax", cuda, 80)], [9000]
        yield [("Conv", CPU, 250)], [9000]
        yield [("MatMul", "CoreMLExecutionProvider", 30), ("Shape", CPU, 1)], [5, 70, 900]
        yield [], [10, 20]
        yield [("Conv", cuda, 90)] + 400 * [("Softmax", CPU, 3)], [9000]  # the last events alone don't show the GPU
        for count in range(1, 12):
            operators = rng.choice(["Conv", "Gemm", "Relu", "MaxPool"], count).tolist()
            where = rng.choice(providers, count).tolist()
            yield list(zip(operators, where, rng.integers(0, 900, count).tolist(), strict=True)), [5, 70]

    yield checks.judge_function(_with_events(learner), _with_events(_find_where_ran), cases)


def _compute_bytes(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what exercise 1 asks for, uint8 (n, 28, 28, 1), and where a rounding error may decide the byte.

    Args:
        pictures: float32 (28, 28, n), 1.0 is paper.
    """
    ink = 255 * (1 - np.moveaxis(pictures, -1, 0).astype(np.float64))[..., None]
    return np.rint(ink).astype(np.uint8), np.abs(ink % 1 - 0.5) < 1e-3


def _draw_app_pictures(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield what an app may have, float32 (28, 28, n): any numbers, faint ones, bytes divided by 255, one picture."""
    yield rng.uniform(0.3, 0.85, (28, 28, 5)).astype(np.float32)  # neither paper nor full ink
    yield rng.uniform(0, 1, (28, 28, 28)).astype(np.float32)
    yield 1 - rng.integers(0, 256, (28, 28, 7)).astype(np.float32) / 255
    yield rng.uniform(0, 1, (28, 28, 1)).astype(np.float32)


@checks.print_verdict
def check_prepare(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Judge exercise 1 of lesson 10: an app's pictures, prepared for the network; to the last byte."""
    tried = list(_draw_app_pictures(np.random.default_rng()))
    for given in tried:
        (expected, is_open), before = _compute_bytes(given), given.copy()
        where = "for 1 picture" if len(expected) == 1 else f"for {len(expected)} pictures"
        actual = checks.answer(learner, given, who=f"{where} it")
        if actual is None or actual is ...:
            raise checks.NotDone(f"prepare returned {actual!r}. (It is `return` that hands an answer back.)")
        if not isinstance(actual, np.ndarray):
            raise checks.NotYet(f"{where} expected a NumPy array, came {type(actual).__name__}")
        if np.array_equal(given, before) and np.array_equal(actual, before.reshape(-1, 28, 28, 1).astype("uint8")):
            raise checks.NotDone("this is what you were given: it runs, and its faults are still there.")
        if actual.shape != expected.shape or actual.dtype != np.uint8:
            description = f"{actual.shape} and {actual.dtype}"
            raise checks.NotYet(f"{where} expected the shape {expected.shape} and the type uint8, came {description}.")
        if not np.array_equal(given, before):
            raise checks.NotYet(f"{where} it changed the pictures that it got; work on a copy.")
        if (wrong := np.argwhere((actual != expected) & ~is_open)).size:
            n, row, column, _ = (int(index) for index in wrong[0])
            share = len(wrong) / expected.size
            raise checks.NotYet(
                f"{where}, {share:.1%} of all bytes differ. The first: picture {n}, row {row}, column {column}, "
                f"which the app has as {before[row, column, n]:.6g}; "
                f"expected {expected[n, row, column, 0]}, came {actual[n, row, column, 0]}."
            )
    yield f"{len(tried)} sets of pictures, byte for byte"


def quantize_with_onnx(values: np.ndarray) -> tuple[float, int, np.ndarray]:
    """Return scale, zero point and bytes as ONNX Runtime's operator DynamicQuantizeLinear computes them.

    Args:
        values: float32 (n,).

    Returns:
        The bytes are uint8 (n,).
    """
    import onnxruntime as ort
    from onnx import TensorProto, helper

    kinds = {"y": (TensorProto.UINT8, ["n"]), "scale": (TensorProto.FLOAT, []), "zero": (TensorProto.UINT8, [])}
    outputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    node = helper.make_node("DynamicQuantizeLinear", ["x"], list(kinds))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([node], "quantize", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=[CPU])
    quantized, scale, zero = _run_session(session, {"x": np.asarray(values, "float32")})
    return float(scale), int(zero), quantized


@checks.print_verdict
def check_quantize(learner: Callable[[np.ndarray], tuple[float, int, np.ndarray]]) -> Iterator[str]:
    """Judge exercise 3 of lesson 10: scale, zero point and bytes of an array, against ONNX Runtime's own operator.

    A byte may differ by 1 if a value is in the middle between two, because float32 and float64 round differently.
    """
    rng = np.random.default_rng()
    tried = [[-1.0, 0.0, 3.0], [0.5, 2.0, 1.25], [-4.0, -1.0, -2.5], [-3.0, 1.0, 0.1, -0.7, 0.9], [0.0, 0.02]]
    tried += [[-63.0, 0.5, 1.5, 192.0]]  # ties: rounded before the zero point is added
    tried += [[-63.5, 0.0, 191.5]]  # both ends are rounded away from 0: one byte too many
    tried += [list(rng.normal(rng.uniform(-2, 2), rng.uniform(0.1, 5), 400)) for _ in range(12)]
    tried += [list(np.maximum(rng.normal(0, 3, 400), 0)), list(rng.uniform(2, 3, 400)), list(-rng.uniform(2, 3, 400))]
    for numbers in tried:
        values = np.array(numbers, "float32")
        scale, zero, quantized = quantize_with_onnx(values)
        tie = abs(np.float64(-min(values.min(), 0)) / scale % 1 - 0.5) < 1e-3  # of the zero point
        ends = f"{len(values)} values, {values.min():.3g} to {values.max():.3g}"
        where = f"for {checks.short(values) if len(values) < 6 else ends}"
        actual: Any = checks.answer(learner, values.copy(), who=f"{where} it")
        if actual is ... or actual is None or (isinstance(actual, tuple) and any(part is ... for part in actual)):
            raise checks.NotDone(f"quantize returned {actual!r}. (It is `return` that hands an answer back.)")
        try:
            its_scale, its_zero, its_bytes = actual
            its_scale, its_zero, its_bytes = float(its_scale), float(its_zero), np.asarray(its_bytes)
        except (TypeError, ValueError, OverflowError):
            expected = "three things, scale, zero point, bytes"
            raise checks.NotYet(f"{where} expected {expected}; came {checks.short(actual)}") from None
        if not np.isclose(its_scale, scale, rtol=1e-4, atol=0):
            raise checks.NotYet(f"{where} expected the scale {scale:.6g}, came {its_scale:.6g}")
        if not abs(its_zero - zero) <= tie:
            raise checks.NotYet(f"{where} expected the zero point {zero}, came {its_zero:.6g}")
        if its_bytes.shape != quantized.shape or its_bytes.dtype != np.uint8:
            description = f"the shape {its_bytes.shape} and the type {its_bytes.dtype}"
            raise checks.NotYet(f"{where} expected {quantized.size} bytes of the type uint8, came {description}")
        away = abs(its_bytes.astype(int) - quantized.astype(int)) - tie
        if (away > 1).any() or (away == 1).mean() > 0.02:
            at = int(away.argmax())
            raise checks.NotYet(
                f"{where}, the value {values[at]:.6g} divided by the scale is {values[at] / scale:.4f}; "
                f"expected the byte {quantized[at]}, came {its_bytes[at]}"
            )
    yield f"{len(tried)} arrays, against ONNX Runtime"
