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

    return ops.pad(x, [(0, 0), (border, border)] + [(0, 0)] * (len(x.shape) - 2), mode="wrap")


@pytest.mark.slow
@pytest.mark.skipif(not devices.is_installed("jax"), reason="needs JAX")
def test_the_operation_is_judged_on_what_is_here_and_the_rest_is_named(monkeypatch, capsys):
    monkeypatch.setattr(lesson_06, "is_backend_installed", lambda module: module == "jax")
    lesson_06.check_wrap(wrap)  # JAX has it, alone
    verdict = " ".join(capsys.readouterr().out.split())
    assert verdict == "right (JAX; PyTorch: not tried, it is not here; TensorFlow: not tried, it is not here)"


@pytest.mark.slow
def test_an_operation_that_a_backend_lacks_is_no_untouched_exercise(monkeypatch, capsys):
    backend = "torch" if devices.is_installed("torch") else "tensorflow"
    monkeypatch.setattr(lesson_06, "is_backend_installed", lambda module: module == backend)
    lesson_06.check_wrap(wrap)
    verdict = " ".join(capsys.readouterr().out.split())
    assert verdict.startswith("not yet: with") and "stopped with" in verdict


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


@pytest.mark.slow
@pytest.mark.skipif(not devices.is_installed("jax"), reason="needs JAX")
def test_the_learners_own_file_does_not_choose_the_backend_of_a_program(monkeypatch, tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "numpy"}')
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    programs = {
        "unknown": 'os.environ["KERAS_BACKEND"] = "plaidml.keras.backend"',
        "own file": "backend = open(os.environ['KERAS_HOME'] + '/keras.json', 'w').write('{\"backend\": \"jax\"}')",
    }
    outcomes = lesson_06.run_programs(computes_with, programs)
    assert outcomes["unknown"].startswith("ValueError: Unable to import backend")
    assert outcomes["own file"] == "jax"


def test_the_first_relu_that_differs_is_named_with_the_gaps_before_and_after():
    on = np.zeros((2, 4, 2), np.uint8)  # runs, steps, bytes
    on[1, 2:] = [[4, 0], [4, 1]]
    trained = {name: {"on": list(steps)} for name, steps in zip("ab", on, strict=True)}
    assert lesson_06.count_switched(trained).tolist() == [0, 0, 1, 2]
    words = lesson_06._describe_switch(np.array([1e-7, 0, 2e-7, 3e-5]), np.array([0, 0, 1, 2]), "ReLU")
    assert words.startswith("Step 3 is the first") and "2e-07 at most" in words and words.endswith("3e-05.")
    words = lesson_06._describe_switch(np.array([0.0, 1e-7]), np.array([0, 0]), "sign")
    assert words.startswith("No sign differs in these 2")


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


def test_without_tinygrad_a_recorded_kernel_is_shown_with_its_origin(capsys):
    (kernel,) = lesson_06b.find_kernels("")
    assert "recorded on 20" in capsys.readouterr().out
    assert lesson_06b.find_kernels(f"opened device CL\n{kernel}\n*** CL 1\n{kernel}\n") == [kernel.strip()] * 2


def test_the_lessons_rules_share_the_gradient_and_one_of_them_too_much():
    values = np.array([[1.0, 1, 0, 1], [1, 2, 3, 4]])
    shares = [rule(values, np.ones(2)).sum(axis=1).tolist() for rule in (lesson_06b.to_first, lesson_06b.to_shares)]
    assert np.allclose(shares, 1) and lesson_06b.to_all(values, np.ones(2)).sum(axis=1).tolist() == [3, 1]


def test_six_steps_are_timed_as_one_kernel_and_as_six():
    if reason := lesson_06b.explain_missing_opencl():
        pytest.skip(reason)
    ratio, table = lesson_06b.time_fusion(1000)
    assert ratio > 0 and [row[0] for row in table.rows] == ["six kernels", "one kernel"]


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
