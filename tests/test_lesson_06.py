"""Lesson 06's own machinery: what is said of what is missing, its rules in real processes, tinygrad's kernels."""

import importlib.metadata
import json

import numpy as np
import pytest

from helpers import devices
from helpers.errors import WorkshopError
from helpers.lessons import lesson_06, lesson_06b
from helpers.running import processes
from helpers.training import plaidml

# ------------------------------------------------------------------------------------------------------ first sitting


@pytest.mark.parametrize("here", [True, False])
def test_a_backend_that_is_not_installed_is_told_with_its_remedy(monkeypatch, capsys, here):
    monkeypatch.setattr(devices, "is_installed", lambda module: here)
    monkeypatch.setattr(importlib.metadata, "version", lambda module: "2.13.0+cpu")
    assert lesson_06.is_backend_installed("torch") is here
    assert lesson_06.explain_missing_backend("torch") == (None if here else devices.explain_missing("torch"))
    assert capsys.readouterr().out == ""  # the cell says what it skips


def test_an_old_torch_counts_as_missing(monkeypatch):
    monkeypatch.setattr(devices, "is_installed", lambda module: True)
    monkeypatch.setattr(importlib.metadata, "version", lambda module: "2.2.2")
    assert lesson_06.explain_missing_backend("torch") == "PyTorch 2.2.2 is too old for this lesson, which needs 2.6"
    assert lesson_06.explain_missing_backend("jax") is None


def wrap(x, border):
    from keras import ops

    return ops.concatenate([x[:, x.shape[1] - border :], x, x[:, :border]], axis=1)


@pytest.mark.slow
def test_the_operation_is_judged_on_what_is_here_and_the_rest_is_named(monkeypatch, capsys):
    monkeypatch.setattr(lesson_06, "is_backend_installed", lambda module: module == "jax")
    lesson_06.check_wrap(wrap)
    verdict = " ".join(capsys.readouterr().out.split())
    assert verdict == "right (JAX; PyTorch: not tried, it is not here; TensorFlow: not tried, it is not here)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["def wrap(x, border=ops):\n    return x", "def wrap(x, border):\n    return ops.x(x)"]
)
def test_a_name_that_the_fresh_process_lacks_is_told_with_its_remedy(source):
    if not lesson_06.is_backend_installed("jax"):
        pytest.skip("JAX is not installed here")

    def judge(source):
        from helpers.lessons import lesson_06 as lesson

        return lesson.wrap_problem(source, "wrap")

    problem = processes.run(judge, variables=lesson_06.make_variables("jax"), arguments={"source": source}).result
    assert problem.endswith("'ops' is not defined. It runs in a fresh process: import inside the function.")


def test_a_function_whose_source_is_not_there_is_told(capsys):
    names = {}
    exec("def wrap(x, border):\n    return x", names)  # as %%time does it
    lesson_06.check_wrap(names["wrap"])
    assert capsys.readouterr().out.startswith("not yet: the source of your function cannot be found")


def computes_with(programs, process):
    import os

    exec(programs[process], {"os": os})
    import keras

    return keras.backend.backend()


def test_a_backend_that_keras_does_not_know_is_told_in_a_line():
    program = 'os.environ["KERAS_BACKEND"] = "plaidml.keras.backend"'
    (outcome,) = lesson_06.run_programs(computes_with, {"PlaidML": program}).values()
    assert outcome.startswith("ValueError: Unable to import backend")


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        ["import keras", "set jax"],
        ["import tensorflow", "set jax"],
        ["set jax", "import tensorflow.data", "set tensorflow"],
        ["set jax", "import keras.layers", "set tensorflow"],
        ["set jax", "import tensorflow.keras"],
        ["import jax", "set jax", "import numpy"],
    ],
)
def test_the_rules_of_the_exercise_are_those_of_real_processes(lines):
    if not devices.is_installed("tensorflow"):  # not imported: pytest crashed after that
        pytest.skip("TensorFlow is not installed here")
    program = "\n".join(
        line if line.startswith("import") else f'os.environ["KERAS_BACKEND"] = "{line[4:]}"' for line in lines
    )
    expected = {"these lines": lesson_06.backend_of([*lines, "import keras"])}
    assert lesson_06.run_programs(computes_with, {"these lines": program}) == expected


# ----------------------------------------------------------------------------------------------------- second sitting


def test_weights_are_those_with_which_keras_begins_always_the_same():
    dense, bias, convolution, none = lesson_06.make_start_weights((784, 512), (3, 3, 32, 64))
    assert dense.shape == (784, 512) and dense.dtype == np.float32
    assert np.isclose(np.abs(dense).max(), (6 / (784 + 512)) ** 0.5, rtol=1e-3)
    assert np.isclose(np.abs(convolution).max(), (6 / (9 * 32 + 9 * 64)) ** 0.5, rtol=1e-3)
    assert not bias.any() and bias.shape == (512,) and none.shape == (64,)
    assert np.array_equal(dense, lesson_06.make_start_weights((784, 512))[0])


def test_what_was_recorded_of_plaidml_differs_from_the_second_step_on(capsys):
    old, new = lesson_06b.read_recorded_losses("MNIST").values()
    assert "Recorded on 20" in capsys.readouterr().out
    assert abs(old[0] - new[0]) < 1e-6 and abs(old[1] - new[1]) > 1e-4
    assert lesson_06b.read_recorded_losses("digits stand-in") == {}
    assert json.loads(plaidml.RESULTS.read_text(encoding="utf-8"))["cnn"]["batch"] == 128


@pytest.fixture
def kernel(capsys):
    found = lesson_06b.find_dense_kernel("", 128, 784, 512)
    assert "recorded on 20" in capsys.readouterr().out
    return found


def test_where_tinygrad_or_opencl_is_missing_the_lesson_says_so(monkeypatch):
    from helpers.devices import opencl

    def refuse():
        raise WorkshopError("There is no OpenCL device here.")

    monkeypatch.setattr(opencl, "pick_device", refuse)
    monkeypatch.setattr(devices, "is_installed", lambda name: True)
    reason = lesson_06b.explain_missing_tinygrad()
    assert reason is not None and reason.startswith("this needs an OpenCL device. There is no OpenCL device")
    monkeypatch.setattr(devices, "is_installed", lambda name: False)
    assert lesson_06b.explain_missing_tinygrad() == devices.explain_missing("tinygrad")


def test_the_dense_layers_kernel_is_found_among_what_tinygrad_prints(kernel):
    other = "__kernel void E_5(__global float* data0_10, __global float* data1_10) {\n  *(data0_10) = 0.0f;\n}\n"
    back = kernel.replace("data0_65536", "data0_401408", 1).replace("data2_401408", "data2_65536", 1)
    printed = f"opened device CL\n{other}{back}\n*** CL 1\n{kernel}\n{other}"
    assert lesson_06b.find_dense_kernel(printed, 128, 784, 512) == kernel.strip()
    assert len(lesson_06b.shorten_kernel(kernel).splitlines()) < 40


def test_the_recorded_kernel_is_a_dense_layer_with_relu(kernel):
    if reason := lesson_06b.explain_missing_opencl():
        pytest.skip(reason)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((128, 784), (784, 512), (512,)))
    np.testing.assert_allclose(lesson_06b.run_kernel(kernel, x, w, b), np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_tinygrad_computes_on_the_device_of_lesson_01():
    if reason := lesson_06b.explain_missing_tinygrad():
        pytest.skip(reason)

    def add():
        from helpers.lessons import lesson_06b as lesson

        name = lesson.use_device_of_lesson_01()
        from tinygrad import Device, Tensor

        return (Tensor([1.0, 2.0]) + 1).tolist(), Device.DEFAULT, name

    from helpers.devices import opencl

    found = processes.run(add, variables=lesson_06b.make_tinygrad_variables()).result
    assert found == ([2.0, 3.0], "CL", opencl.name(opencl.pick_device()))
