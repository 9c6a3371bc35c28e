"""Lesson 06's own machinery: what of it runs here, what is said where something is missing, tinygrad's kernels."""

import importlib.metadata
import os

import numpy as np
import pytest

from helpers.compute import devices, plaidml, processes
from helpers.errors import WorkshopError
from helpers.lessons import lesson_06
from helpers.lessons import lesson_06_tinygrad as written

# Part 1


@pytest.mark.parametrize("here", [True, False])
def test_a_backend_that_is_not_installed_is_told_with_its_remedy(monkeypatch, capsys, here):
    monkeypatch.setattr(devices, "installed", lambda module: here)
    monkeypatch.setattr(importlib.metadata, "version", lambda module: "2.13.0+cpu")
    assert lesson_06.here("torch") is here
    assert capsys.readouterr().out == ("" if here else f"skipped: {devices.not_installed('torch')}\n")


def test_an_old_torch_counts_as_missing(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda module: True)
    monkeypatch.setattr(importlib.metadata, "version", lambda module: "2.2.2")
    assert lesson_06.missing("torch") == "PyTorch 2.2.2 is too old for this lesson, which needs 2.6"
    assert lesson_06.import_torch() is None and lesson_06.missing("jax") == ""


def test_without_torch_the_layer_is_judged_on_the_others(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda module: module != "torch")
    monkeypatch.setattr(importlib.metadata, "version", lambda module: "9.9")
    assert lesson_06._judges() == ["jax", "tensorflow"]
    monkeypatch.setattr(devices, "installed", lambda module: module == "jax")
    assert lesson_06._judges() == ["jax"]


def test_a_stand_in_answers_as_torch_does():
    """With a build for CUDA and no card PyTorch names cuda all the same, unless it is asked to look."""
    without, with_one = lesson_06.StandIn("cuda", False), lesson_06.StandIn("xpu", True)
    assert str(without.accelerator.current_accelerator()) == "cuda" and not without.accelerator.is_available()
    assert without.accelerator.current_accelerator(check_available=True) is None
    assert (with_one.cuda.is_available(), with_one.xpu.is_available(), with_one.backends.mps.is_available()) == (
        0,
        1,
        0,
    )
    assert with_one.ones(2, device="xpu").device.type == "xpu"
    with pytest.raises(RuntimeError, match="no cuda in this machine"):
        without.zeros(2, device="cuda")


def test_the_stand_in_agrees_with_the_torch_that_is_here():
    torch = pytest.importorskip("torch")
    kind = getattr(torch.accelerator.current_accelerator(), "type", None)
    stand_in = lesson_06.StandIn(kind, torch.accelerator.is_available())
    for ask in (
        lambda torch: torch.accelerator.is_available(),
        lambda torch: torch.cuda.is_available(),
        lambda torch: torch.backends.mps.is_available(),
        lambda torch: torch.xpu.is_available(),
        lambda torch: str(torch.accelerator.current_accelerator()),
        lambda torch: torch.device("cuda").type,
    ):
        assert ask(stand_in) == ask(torch)


# Part 2


@pytest.fixture
def kernel():
    return written.recorded_kernel()


def test_start_weights_are_those_with_which_keras_begins():
    dense, bias, convolution, none = lesson_06.start_weights((784, 512), (3, 3, 32, 64))
    assert dense.shape == (784, 512) and dense.dtype == np.float32
    assert np.isclose(np.abs(dense).max(), (6 / (784 + 512)) ** 0.5, rtol=1e-3)
    assert np.isclose(np.abs(convolution).max(), (6 / (9 * 32 + 9 * 64)) ** 0.5, rtol=1e-3)
    assert not bias.any() and bias.shape == (512,) and none.shape == (64,)
    assert np.array_equal(dense, lesson_06.start_weights((784, 512))[0])


def computes_with(program):
    import os

    from helpers.lessons import lesson_06 as lesson

    exec(program, {"os": os, "lesson": lesson})
    import keras

    return keras.backend.backend()


def test_a_backend_that_is_not_there_is_told_by_the_last_line_of_its_error():
    hidden = 'lesson.hide("torch"); os.environ["KERAS_BACKEND"] = "torch"'
    assert lesson_06.outcome(computes_with, hidden) == "ModuleNotFoundError: No module named 'torch'"
    unknown = 'os.environ["KERAS_BACKEND"] = "plaidml.keras.backend"'
    assert lesson_06.outcome(computes_with, unknown).startswith("ValueError: Unable to import backend")


def test_a_missing_tensorflow_is_told_with_its_remedy():
    told = lesson_06.outcome(computes_with, 'lesson.hide("tensorflow"); import tensorflow')
    assert told == f"skipped: {devices.not_installed('tensorflow')}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        ["import keras", "set jax"],
        ["import tensorflow", "set jax"],
        ["set jax", "import tensorflow.data", "set tensorflow"],
        ["set jax", "import tensorflow.keras.layers", "set tensorflow"],
        ["set jax", "import keras.layers", "set tensorflow"],
        ["set jax", "import tensorflow.keras"],
        ["import jax", "set jax", "import numpy"],
    ],
)
def test_the_rules_of_the_exercise_are_those_of_real_processes(lines):
    if not devices.installed("tensorflow"):  # not imported: pytest crashed after that
        pytest.skip("TensorFlow is not installed here")
    program = "\n".join(
        line if line.startswith("import") else f'os.environ["KERAS_BACKEND"] = "{line[4:]}"' for line in lines
    )
    expected = lesson_06.backend_of([*lines, "import keras"])
    assert lesson_06.outcome(computes_with, program) == expected


def test_the_loader_is_the_one_in_pyopencls_wheel(monkeypatch, tmp_path):
    (tmp_path / ".libs").mkdir()
    spec = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(written, "find_spec", lambda name: spec)
    assert written.opencl_loader() is None
    (tmp_path / ".libs" / "libOpenCL-12ab.so.1.0.0").touch()
    assert written.opencl_loader().endswith("libOpenCL-12ab.so.1.0.0")
    monkeypatch.setattr(written, "find_spec", lambda name: None)
    assert written.opencl_loader() is None


def test_where_tinygrad_or_opencl_is_missing_the_lesson_says_so(monkeypatch):
    from helpers.compute import opencl

    def refuse():
        raise WorkshopError("There is no OpenCL device here.")

    monkeypatch.setattr(opencl, "pick_device", refuse)
    monkeypatch.setattr(devices, "installed", lambda name: True)
    assert written.no_tinygrad().startswith("skipped: this needs an OpenCL device. There is no OpenCL device")
    monkeypatch.setattr(devices, "installed", lambda name: False)
    assert written.no_tinygrad() == f"skipped: {devices.not_installed('tinygrad')}"


def test_the_dense_layers_kernel_is_found_among_what_tinygrad_prints(kernel):
    other = "__kernel void E_5(__global float* data0_10, __global float* data1_10) {\n  *(data0_10) = 0.0f;\n}\n"
    back = kernel.replace("data0_65536", "data0_401408", 1).replace("data2_401408", "data2_65536", 1)
    printed = f"opened device CL\n{other}{back}\n*** CL 1\n{kernel}\n{other}"
    assert written.dense_kernel(printed, 128, 784, 512) == kernel.strip()
    with pytest.raises(WorkshopError, match="no kernel for this layer"):
        written.dense_kernel(other, 128, 784, 512)


def test_how_a_kernel_is_started_stands_in_it(kernel):
    launch = written.launch_of(kernel)
    assert launch == written.Launch((8, 4, 1), (8, 16, 1)) and launch.work_items == 4096
    assert written.launch_of("__kernel void f() { }").work_items == 1


def test_the_recorded_kernel_is_a_dense_layer(kernel):
    if reason := written.no_opencl():
        pytest.skip(reason)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((128, 784), (784, 512), (512,)))
    np.testing.assert_allclose(written.TinygradKernel(kernel, x, w, b).result(), x @ w + b, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_tinygrad_computes_on_the_device_of_lesson_01():
    if reason := written.no_tinygrad():
        pytest.skip(reason)

    def add():
        from helpers.lessons import lesson_06 as lesson

        name = lesson.take_device_of_lesson_01()
        from tinygrad import Device, Tensor

        return (Tensor([1.0, 2.0]) + 1).tolist(), Device.DEFAULT, name

    variables = {"DEV": "CL", "CACHELEVEL": "0", "OPENCL_PATH": written.opencl_loader()}
    assert processes.run(add, variables=variables).result == ([2.0, 3.0], "CL", written.device_name())


def test_the_recorded_training_says_when_and_where():
    table = lesson_06.recorded_cnn()
    assert "recorded on 20" in table.headers[0] and " on " in table.headers[0]
    assert float(table.rows[0][3]) < 1e-4, "both begin with the same loss"


def test_names_are_put_back_for_plaidmls_keras_alone(monkeypatch):
    import collections
    import inspect

    had = hasattr(inspect, "getargspec")
    monkeypatch.setitem(os.environ, "KERAS_BACKEND", "jax")
    plaidml.put_names_back()
    assert not hasattr(collections, "Iterable") and hasattr(inspect, "getargspec") == had


def test_plaidmls_keras_needs_its_own_files(monkeypatch, tmp_path):
    monkeypatch.setattr(plaidml, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(plaidml, "ready", lambda: True)
    assert not plaidml.has_keras()
    file = tmp_path / "lib" / "python3.11" / "site-packages" / "plaidml" / "keras" / "backend.py"
    file.parent.mkdir(parents=True)
    file.touch()
    assert plaidml.has_keras()
