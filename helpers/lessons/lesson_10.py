"""Serve lesson 10, Run the model anywhere: the checks of its exercises, its figure, its machinery."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helpers import devices, training
from helpers.devices import products
from helpers.devices.host import Host, command
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons.lesson_10_profiles import (  # noqa: F401 (the notebook calls them here)
    check_where_ran,
    load_webgpu_profile,
)
from helpers.measure.plots import figure, show
from helpers.running import workarounds
from helpers.running.quiet import caught_stderr
from helpers.training import backends, models

if TYPE_CHECKING:
    import keras
    import onnxruntime as ort

    from helpers.training.data import Dataset

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
    device = training.start()
    _use_whole_float32(named if named in able else able[0])
    return device


def _use_whole_float32(backend: str) -> None:
    """Keep NVIDIA's GPUs from rounding the factors of float32 products to TF32: exercise 2's limit is float32's.

    Args:
        backend: that Keras computes with, "tensorflow" or "torch".
    """
    if backend == "torch":
        import torch

        torch.backends.cudnn.allow_tf32 = False  # for convolutions; for matrices, it is off by default
    else:
        training.import_tensorflow().config.experimental.enable_tensor_float_32_execution(False)


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


def make_openvino_runners(file: str) -> dict[str, Runner]:
    """Return functions that run an ONNX file with Intel's runtime on the processor, by what is printed of them.

    The first computes in float32; the second in the number format that OpenVINO chooses for this processor.
    """
    import openvino

    hint, core = "INFERENCE_PRECISION_HINT", openvino.Core()
    models = {"OpenVINO in float32": core.compile_model(file, "CPU", {hint: "f32"})}
    chosen = core.compile_model(file, "CPU")
    models[f"OpenVINO's choice ({chosen.get_property(hint).to_string()})"] = chosen
    return {name: lambda images, model=model: model(images)[0] for name, model in models.items()}


def make_runner(file: str) -> Runner:
    """Return a function that runs an ONNX file with ONNX Runtime on the processor.

    Its threads do not spin after a run, because that would slow down the next runtime that is timed.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(file, options, providers=[CPU])
    name = session.get_inputs()[0].name
    return lambda images: np.asarray(session.run(None, {name: images})[0])


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


def write_faulty_copies(file: str) -> dict[str, str]:
    """Write two copies of an ONNX file with one fault each beside it; return their paths by what is wrong.

    Raises:
        WorkshopError: the file holds no 1/255, by which the lesson's network multiplies the bytes.
    """
    import onnx

    lost, scaled = onnx.load(file), onnx.load(file)
    next(node for node in lost.graph.node if node.op_type == "Relu").op_type = "Identity"  # returns its input
    constants = [node for node in scaled.graph.node if node.op_type == "Constant"]  # from PyTorch
    tensors = [*scaled.graph.initializer, *(value.t for node in constants for value in node.attribute)]
    for tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            numbers = onnx.numpy_helper.to_array(tensor)
            if numbers.size == 1 and np.isclose(numbers.item(), 1 / 255, rtol=1e-5):
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.full_like(numbers, 1 / 256), tensor.name))
                break
    else:
        raise WorkshopError("The file multiplies by no 1/255.", "Its fault cannot be written.", "Export it again.")
    paths = {}
    for fault, model in {"Relu lost": lost, "1/256 for 1/255": scaled}.items():
        paths[fault] = str(Path(file).with_name(f"faulty-{len(paths)}.onnx"))
        onnx.save(model, paths[fault])
    return paths


def find_busiest_operator(file: str, images: np.ndarray) -> str:
    """Return the operator of an ONNX file that takes most of the time on the processor, with its share of it.

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
    operator, time = took.most_common(1)[0]
    return f"{operator} {time / took.total():.0%}"


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


def _compute_bytes(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what exercise 1 asks for, uint8 (n, 28, 28, 1), and where a rounding error may decide the byte.

    Args:
        pictures: float32 (28, 28, n), 1.0 is paper.
    """
    ink = 255 * (1 - np.moveaxis(pictures, -1, 0).astype(np.float64))[..., None]
    return np.rint(ink).astype(np.uint8), np.abs(ink % 1 - 0.5) < 1e-3


def _name_fault(actual: np.ndarray, pictures: np.ndarray) -> str:
    """Return in words which known faults give these bytes, uint8 (n, 28, 28, 1), of an app's pictures; empty if none.

    Args:
        actual: what the learner's function made of the pictures.
        pictures: float32 (28, 28, n), 1.0 is paper.
    """
    axes = {"": np.moveaxis(pictures, -1, 0), "rows and columns are exchanged": pictures.T}
    axes["as after `reshape`, each image mixes numbers of several pictures"] = pictures.reshape(-1, 28, 28)
    for order, images in axes.items():
        for color, ink in {"": 1 - images, "paper and ink are exchanged": images}.items():
            above = 255.0 * ink - actual[..., 0]  # 0 to 1 where a number was cut off, -0.5 to 0.5 where it was rounded
            if np.abs(above).max() < 1.01:
                return " and ".join(filter(None, (order, color))) or _name_rounding(above)
    return ""


def _name_rounding(above: np.ndarray) -> str:
    """Return in words how numbers became bytes: each number minus its byte, from -1 to 1."""
    if above.min() > -1e-3:
        return "the numbers are cut off, not rounded"
    if above.max() < 1e-3:
        return "the numbers are rounded up, as if they were cut off before the subtraction"
    return "some bytes are off by 1: they are not the nearest"


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
            raise checks.NotDone("the given code returns the same: `astype` cuts off, so numbers below 1 become 0.")
        if actual.shape != expected.shape or actual.dtype != np.uint8:
            description = f"{actual.shape} and {actual.dtype}"
            raise checks.NotYet(f"{where} expected the shape {expected.shape} and the type uint8, came {description}.")
        if not np.array_equal(given, before):
            raise checks.NotYet(f"{where} it changed the pictures that it got; work on a copy.")
        if (wrong := np.argwhere((actual != expected) & ~is_open)).size:
            n, row, column, _ = (int(index) for index in wrong[0])
            fault = _name_fault(actual, before) or f"{len(wrong) / expected.size:.1%} of all bytes differ"
            raise checks.NotYet(
                f"{where}, {fault}. The first: picture {n}, row {row}, column {column}, which the app has as "
                f"{before[row, column, n]:.6g}; expected {expected[n, row, column, 0]}, "
                f"came {actual[n, row, column, 0]}."
            )
    yield f"{len(tried)} sets of pictures, byte for byte"


def _draw_probabilities(rng: np.random.Generator) -> Iterator[tuple[str, bool, np.ndarray, np.ndarray]]:
    """Yield what is true of two outputs, whether they count as the same, and both, float32 (n, 10)."""
    expected = rng.dirichlet(np.ones(10), 400).astype(np.float32)
    signs = rng.choice([-1, 1], expected.shape).astype(np.float32)
    sharper = expected**2 / (expected**2).sum(1, keepdims=True)
    yield "name the same digits with other probabilities", False, sharper, expected
    yield "differ by 0.000001, as after rounding", True, expected + signs * np.float32(1e-6), expected
    yield "are all off by 0.00008", True, expected + signs * np.float32(8e-5), expected
    yield "are all off by 0.002, as those of a faulty scale", False, expected + signs * np.float32(2e-3), expected
    sure = np.eye(10, dtype=np.float32)[rng.permutation(10)] * np.float32(0.89) + np.float32(0.011)
    nearly = np.where(sure > 0.5, sure - np.float32(0.00015), sure)
    yield "differ only where one is 0.901 and 0.90085 came", False, nearly, sure
    for image, what in ((399, "only in the last image"), (0, "only in the first image")):
        for off in (8e-5, 1.5e-4, -0.02, np.nan):
            changed = expected.copy()
            changed[image, rng.integers(10)] += off
            words = "where one is nan" if np.isnan(off) else f"where one is off by {off:.5f}"
            yield f"differ {what}, {words}", off == 8e-5, changed, expected
    yield "are all nan", False, np.full_like(expected, np.nan), expected
    hole = np.where(np.arange(400)[:, None] == 7, np.float32(np.nan), expected)
    yield "have nan in the same places", False, hole.copy(), hole
    yield "have no nan where the expected ones do", False, expected.copy(), hole
    yield "are equal, of a single image", True, expected[:1].copy(), expected[:1]


@checks.print_verdict
def check_is_same(learner: Callable[[np.ndarray, np.ndarray], object]) -> Iterator[str]:
    """Judge exercise 2 of lesson 10: whether two outputs of a network are the same up to LIMIT."""
    tried = list(_draw_probabilities(np.random.default_rng()))
    for words, is_same, actual, expected in tried:
        came = checks.answer(learner, actual.copy(), expected.copy(), who=f"for outputs that {words}, it")
        if came is None:
            raise checks.NotDone(f"is_same returned None. ({checks.RETURNS})")
        if not isinstance(came, bool | np.bool_):
            raise checks.NotYet(f"is_same returned {checks.short(came)}; expected True or False.")
        if came != is_same:
            raise checks.NotYet(f"for outputs that {words}, is_same returned {came}; expected {is_same}.")
    yield f"{len(tried)} pairs of outputs"
