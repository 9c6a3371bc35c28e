"""Lesson 06's own machinery: what is said of what is missing, its rules in real processes, tinygrad's kernels."""

import importlib.metadata
import json
import re
import sys
import types

import numpy as np
import pytest

from helpers import devices
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons import lesson_06, lesson_06_faults, lesson_06b
from helpers.running import processes
from helpers.training import plaidml

# ------------------------------------------------------------------------------------------------------ first sitting


def test_an_old_torch_counts_as_missing(monkeypatch):
    monkeypatch.setattr(devices, "is_installed", lambda module: True)
    monkeypatch.setattr(importlib.metadata, "version", lambda module: "2.2.2")
    assert lesson_06.explain_missing_backend("torch") == "PyTorch 2.2.2 is too old for this lesson, which needs 2.6"
    assert lesson_06.explain_missing_backend("jax") is None


def train_step(loss, w, rate):
    import jax

    return w - rate * jax.grad(loss)(w)


@pytest.mark.slow
@pytest.mark.skipif(not devices.is_installed("jax"), reason="needs JAX")
def test_a_step_is_judged_on_what_is_here_and_the_rest_is_named(monkeypatch, capsys):
    monkeypatch.setattr(lesson_06, "explain_missing_backend", lambda module: None if module == "jax" else "missing")
    lesson_06.check_train_step(train_step, np.zeros((10, 784), np.uint8), np.arange(10))
    verdict = " ".join(capsys.readouterr().out.split())
    assert verdict.startswith("right (JAX: loss 2.3026")
    assert verdict.endswith("PyTorch: not tried, it is not here; TensorFlow: not tried, it is not here)")


def test_a_function_whose_source_is_not_there_is_told(capsys):
    names = {}
    exec("def train_step(loss, w, rate):\n    return w", names)  # as %%time does it
    lesson_06.check_train_step(names["train_step"], np.zeros((1, 784)), np.zeros(1))
    assert capsys.readouterr().out.startswith("not yet: the source of your function cannot be found")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (lambda w, goal, rate: w + rate * 2 * (w - goal), "uphill"),
        (lambda w, goal, rate: w - rate * ((w - goal) ** 2).sum(), "the loss in place of its gradient"),
        (lambda w, goal, rate: w, "no step at all"),
        (lambda w, goal, rate: w.__isub__(rate * 2 * (w - goal)), "changed w in place"),
        (lambda w, goal, rate: (w - rate * 2 * (w - goal))[:1], "expected (2,)"),
    ],
)
def test_the_idea_behind_a_wrong_gradient_is_named(monkeypatch, step, why):
    """The backend is NumPy here, and the step knows the goal of the loss, 0."""
    fake = types.SimpleNamespace(
        convert_to_tensor=lambda array: array, convert_to_numpy=lambda array: array, stop_gradient=lambda array: array
    )
    monkeypatch.setitem(sys.modules, "keras", types.SimpleNamespace(ops=fake))
    zeros, ones = np.zeros(2, np.float32), np.float32([3, -2])
    with pytest.raises(checks.NotYet, match=re.escape(why)):
        lesson_06._judge_gradients(lambda loss, w, rate: step(w, zeros, rate), ones, zeros)
    lesson_06._judge_gradients(lambda loss, w, rate: w - rate * 2 * w, ones, zeros)


def computes_with(programs, process):
    import os

    exec(programs[process], {"os": os})
    import keras

    return keras.backend.backend(), ""


@pytest.mark.slow
@pytest.mark.skipif(not devices.is_installed("jax"), reason="needs JAX")
def test_the_learners_own_file_does_not_choose_the_backend_of_a_program(monkeypatch, tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "numpy"}')
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    file = "open(os.environ['KERAS_HOME'] + '/keras.json', 'w').write('{\"backend\": \"jax\"}')\n"
    programs = {
        "unknown": 'os.environ["KERAS_BACKEND"] = "plaidml.keras.backend"',
        "the variable wins": file.replace("jax", "torch") + 'os.environ["KERAS_BACKEND"] = "jax"',
    }
    outcomes = lesson_06.run_programs(computes_with, programs)
    assert outcomes["unknown"][0].startswith("ValueError: Unable to import backend")
    assert outcomes["the variable wins"] == ("jax", "")


def test_the_first_relu_that_differs_is_named_with_the_gaps_before_and_after():
    on = np.zeros((2, 4, 2), np.uint8)  # runs, steps, bytes
    on[1, 2:] = [[4, 0], [4, 1]]
    trained = {name: {"on": list(steps)} for name, steps in zip("ab", on, strict=True)}
    assert lesson_06.count_switched(trained).tolist() == [0, 0, 1, 2]
    words = lesson_06._describe_switch(np.array([1e-7, 0, 2e-7, 3e-5]), np.array([0, 0, 1, 2]))
    assert words.startswith("Step 3 is the first") and "2e-07 at most" in words and words.endswith("3e-05.")
    words = lesson_06._describe_switch(np.array([0.0, 1e-7]), np.array([0, 0]))
    assert words.startswith("No ReLU differs in these 2")


def test_gradients_by_hand_are_slopes_of_the_loss():
    rng = np.random.default_rng(0)
    weights = [w.astype(np.float64) for w in lesson_06.make_start_weights((784, 16), (16, 16), (16, 10))]
    images, labels = rng.integers(0, 256, (8, 784), np.uint8), rng.integers(0, 10, 8)
    right = lesson_06_faults.compute_by_hand(weights, images, labels)
    for k, name in enumerate(right["gradients"]):
        place = tuple(rng.integers(0, size) for size in weights[k].shape)
        losses = []
        for move in (1e-3, -1e-3):
            moved = [w.copy() for w in weights]
            moved[k][place] += move
            before = lesson_06_faults.compute_by_hand(moved, images, labels, on=right["on"][0])["before"]
            losses.append(-np.log(before[np.arange(8), labels]).mean())
        assert np.isclose(right["gradients"][name][place], (losses[0] - losses[1]) / 2e-3, atol=1e-5)


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


@pytest.mark.parametrize(
    ("empty", "verdict"), [(0, "not done yet: for the steps ["), (-1, "not yet: for the steps []")]
)
def test_a_kernel_that_writes_nothing_is_told_for_which_steps(empty, verdict, monkeypatch, capsys):
    monkeypatch.setenv(checks.SAME_PROCESS, "1")
    silent, head = lesson_06b._CHAINS[empty], lesson_06b.write_kernel([]).splitlines()[0]
    lesson_06b.check_write_kernel(lambda steps: f"{head}}}" if steps == silent else lesson_06b.write_kernel(steps))
    assert capsys.readouterr().out.startswith(verdict)


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
