"""Lesson 10's own machinery: who exports, what is skipped, what is run in batches."""

import os
import types

import numpy as np
import pytest

from helpers import devices, training
from helpers.errors import WorkshopError
from helpers.lessons import lesson_10 as lesson
from helpers.running import processes


def without(monkeypatch, *names):
    """Let these modules look as if they were not installed."""
    real = devices.is_installed
    monkeypatch.setattr(devices, "is_installed", lambda module: module not in names and real(module))


# ---------------------------------------------------------------------------------------------- who writes the file


@pytest.mark.parametrize(
    ("missing", "named", "chosen", "printed"),
    [
        ((), None, "tensorflow", ""),
        ((), "jax", "tensorflow", "Keras on JAX can write no ONNX file here: TensorFlow does it.\n"),
        (("onnxscript",), "torch", "tensorflow", "Keras on PyTorch can write no ONNX file here: TensorFlow does it.\n"),
        (("tf2onnx",), None, "torch", "Keras on TensorFlow can write no ONNX file here: PyTorch does it.\n"),
    ],
)
def test_another_backend_writes_the_file_where_one_cannot(monkeypatch, capsys, missing, named, chosen, printed):
    """The backends are not started: which one would be, is the question."""
    started, hidden, whole = [], [], []
    monkeypatch.setattr(lesson, "_use_whole_float32", whole.append)
    config = types.SimpleNamespace(set_visible_devices=lambda visible, kind: hidden.append((visible, kind)))
    monkeypatch.setattr(devices, "is_installed", lambda module: module not in missing)
    monkeypatch.setattr(training, "start", lambda: started.append(os.environ.get("KERAS_BACKEND", "tensorflow")))
    monkeypatch.setattr(training, "import_tensorflow", lambda: types.SimpleNamespace(config=config))
    monkeypatch.setenv("KERAS_BACKEND", named or "")
    if named is None:
        monkeypatch.delenv("KERAS_BACKEND")
    lesson.start_keras()
    assert started == whole == [chosen] and capsys.readouterr().out == printed
    assert hidden == ([([], "GPU")] if printed and chosen == "tensorflow" else [])


def test_nobody_can_write_the_file(monkeypatch):
    without(monkeypatch, "tensorflow", "torch")
    with pytest.raises(WorkshopError, match="No ONNX file can be written here"):
        lesson.start_keras()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_the_network_that_is_trained_is_the_one_that_is_exported(backend, tmp_path):
    if not devices.is_installed(backend):
        pytest.skip(f"{backend} is not installed here")
    given = {"file": str(tmp_path / "cnn.onnx")}
    differences = processes.run(export, variables={"KERAS_BACKEND": backend}, arguments=given).result
    assert differences.pop("right") < 1e-5
    assert list(differences) == ["Relu lost", "1/256 for 1/255"] and min(differences.values()) > 1e-4


def export(file):
    import numpy as np

    from helpers.lessons import lesson_10 as lesson
    from helpers.training.data import Dataset

    x, y = np.random.default_rng(0).integers(0, 256, (12, 28, 28), "uint8"), (np.arange(12) % 10).astype("uint8")
    lesson.start_keras()
    network = lesson.train_network(Dataset("random", x, y, x[:4], y[:4], "a test"), 12, 20.0)
    with lesson.silence_exporters():
        network.export(file, format="onnx", verbose=False)
    expected, differences = network.predict(x[..., None], verbose=0), {}
    for name, path in {"right": file, **lesson.write_faulty_copies(file)}.items():
        differences[name] = float(abs(lesson.make_runner(path)(x[..., None]) - expected).max())
    return differences


# ---------------------------------------------------------------------------------------------- runtimes


def test_without_openvino_the_lesson_says_how_to_get_it(monkeypatch):
    without(monkeypatch, "openvino")
    reason = lesson.explain_missing_openvino()
    assert reason is not None
    assert reason.startswith("OpenVINO is not installed here; to have it: ") and "--with openvino" in reason


# ---------------------------------------------------------------------------------------------- time and figures


def test_images_run_in_batches_of_one_size_and_a_rest():
    sizes = []

    def run(images):
        sizes.append(len(images))
        return images.reshape(len(images), -1)[:, :1]

    images = np.arange(120 * 784).reshape(120, 28, 28, 1)
    assert np.array_equal(lesson.run_all(run, images)[:, 0], np.arange(120) * 784) and sizes == [50, 50, 20]


def test_each_fault_of_the_axes_and_colors_has_a_name_and_another_one_has_none():
    pictures = np.random.default_rng(0).uniform(0, 1, (28, 28, 3)).astype(np.float32)
    images = np.moveaxis(pictures, -1, 0)
    faults = [1 - pictures.T, 1 - pictures.reshape(-1, 28, 28), images, pictures.T]
    named = [lesson._name_fault(np.rint(255 * ink).astype(np.uint8)[..., None], pictures) for ink in faults]
    assert all(named) and len(set(named)) == len(faults)
    assert lesson._name_fault(np.zeros((3, 28, 28, 1), np.uint8), pictures) == ""


def test_numbers_that_are_cut_off_have_a_name_of_their_own():
    pictures = np.random.default_rng(0).uniform(0, 1, (28, 28, 3)).astype(np.float32)
    ink = 255 * (1 - np.moveaxis(pictures, -1, 0))[..., None]
    assert lesson._name_fault(ink.astype(np.uint8), pictures) == "the numbers are cut off, not rounded"
    early = 255 - (255 * np.moveaxis(pictures, -1, 0)).astype(np.uint8)[..., None]
    assert "cut off before the subtraction" in lesson._name_fault(early, pictures)
    assert lesson._name_fault((ink + 0.75).astype(np.uint8), pictures).startswith("some bytes are off by 1")
