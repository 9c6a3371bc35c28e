"""Lesson 10's own machinery: who exports, what is skipped, profiles, quantisation, figures."""

import math

import numpy as np
import pytest

from helpers.compute import devices
from helpers.compute.data import Dataset
from helpers.compute.frameworks import PROVIDERS
from helpers.errors import WorkshopError
from helpers.lessons import lesson_10 as lesson


def without(monkeypatch, *names):
    """Let these modules look as if they were not installed."""
    real = devices.installed
    monkeypatch.setattr(devices, "installed", lambda module: module not in names and real(module))


# ---------------------------------------------------------------------------------------------- the trained network


def test_the_backend_is_the_one_named(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda module: True)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert lesson.start_backend() == "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert lesson.start_backend() == "jax"


def test_a_backend_that_is_missing_is_named(monkeypatch):
    without(monkeypatch, "torch")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(WorkshopError, match="PyTorch, and it is not installed"):
        lesson.start_backend()


def small_dataset():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (12, 28, 28), "uint8"), (np.arange(12) % 10).astype("uint8")
    return Dataset("random", x, y, x[:4], y[:4], "a test")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_the_network_that_is_trained_is_the_one_that_is_exported(backend, tmp_path, capsys):
    if not devices.installed(backend):
        pytest.skip(f"{backend} is not installed here")
    import onnxruntime as ort

    from helpers.compute import processes

    dataset = small_dataset()
    network = lesson.trained_network(dataset, backend, 12, 20.0)
    assert "trained here and now" in capsys.readouterr().out and network.probabilities.shape == (4, 10)
    file = tmp_path / "cnn.onnx"
    exporter = lesson.pick_exporter(backend)
    given = {"weights": network.weights, "file": str(file)}
    processes.run(export, variables={"KERAS_BACKEND": exporter}, arguments=given)
    session = ort.InferenceSession(str(file), providers=[lesson.CPU])
    given = {session.get_inputs()[0].name: dataset.x_test[..., None]}
    assert np.allclose(session.run(None, given)[0], network.probabilities, atol=1e-5)


def export(weights, file):
    import numpy as np

    from helpers.compute import models

    model = models.cnn()
    model.set_weights(weights)
    model(np.zeros((1, 28, 28, 1), "uint8"))
    model.export(file, format="onnx", verbose=False)


# ---------------------------------------------------------------------------------------------- who exports


@pytest.mark.parametrize(
    ("missing", "backend", "chosen", "said"),
    [
        ((), "tensorflow", "tensorflow", "written by Keras on TensorFlow, with tf2onnx\n"),
        ((), "torch", "torch", "written by Keras on PyTorch, with onnxscript\n"),
        ((), "jax", "tensorflow", "JAX itself would need the package jax2onnx"),
        (("tensorflow",), "jax", "torch", "with onnxscript (JAX itself"),
        (("onnxscript",), "torch", "tensorflow", "with tf2onnx (onnxscript is not installed here)"),
        (("tf2onnx",), "tensorflow", "torch", "with onnxscript (tf2onnx is not installed here)"),
    ],
)
def test_another_backend_writes_the_file_where_one_cannot(monkeypatch, capsys, missing, backend, chosen, said):
    monkeypatch.setattr(devices, "installed", lambda module: module not in missing)
    assert lesson.pick_exporter(backend) == chosen
    assert said in capsys.readouterr().out


def test_nobody_can_write_the_file(monkeypatch):
    without(monkeypatch, "tensorflow", "torch")
    with pytest.raises(WorkshopError, match="No ONNX file can be written here"):
        lesson.pick_exporter("jax")


# ---------------------------------------------------------------------------------------------- runtimes


def test_every_provider_of_the_table_is_known_to_onnx_runtime():
    import onnxruntime as ort

    assert set(PROVIDERS) <= set(ort.get_all_providers())
    assert lesson.missing_provider(["CPUExecutionProvider"]) in PROVIDERS


def test_without_openvino_the_lesson_says_how_to_get_it(monkeypatch, capsys):
    without(monkeypatch, "openvino")
    assert not lesson.has_openvino()
    said = capsys.readouterr().out
    assert said.startswith("skipped: OpenVINO is not installed here; to have it: ") and "--with openvino" in said


# ---------------------------------------------------------------------------------------------- time and figures


def test_images_run_in_batches_of_one_size_and_a_rest():
    sizes = []

    def run(images):
        sizes.append(len(images))
        return images.reshape(len(images), -1)[:, :1]

    images = np.arange(7 * 784).reshape(7, 28, 28, 1)
    assert np.array_equal(lesson.run_all(run, images, batch=3)[:, 0], np.arange(7) * 784) and sizes == [3, 3, 1]


# ---------------------------------------------------------------------------------------------- exercises


def test_shares_of_a_made_profile():
    events = lesson.make_events(("Conv", "CUDAExecutionProvider", 300), ("TopK", "CPUExecutionProvider", 100))
    assert lesson.right_shares(events) == {"CUDAExecutionProvider": 75.0, "CPUExecutionProvider": 25.0}
    assert lesson.right_shares(lesson.make_events()) == {}


def test_onnx_runtime_quantises_as_the_lesson_says():
    scale, zero, quantised = lesson.onnx_quantise(np.array([-1, 0, 3], "float32"))
    assert math.isclose(scale, 4 / 255, rel_tol=1e-6) and zero == 64 and quantised.tolist() == [0, 64, 255]


def test_the_app_has_its_pictures_otherwise():
    image = np.zeros((1, 28, 28), "uint8")
    image[0, 2, 5] = 51
    pictures = lesson.app_pictures(image)
    assert pictures.shape == (28, 28, 1) and pictures.dtype == np.float32
    assert pictures[0, 0, 0] == 1 and math.isclose(pictures[2, 5, 0], 0.8, rel_tol=1e-6)
