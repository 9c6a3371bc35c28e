"""Lesson 13: what runs its failures, the imitated packages, its figures, and what its checks say of odd answers."""

import importlib.metadata

import numpy as np
import pytest

from helpers.compute import devices, processes
from helpers.judge import checks
from helpers.judge.checks import NotDone, NotYet
from helpers.lessons import lesson_13


@pytest.fixture(autouse=True)
def not_grading(monkeypatch):
    monkeypatch.delenv(checks.GRADE, raising=False)


# --------------------------------------------------------------------------------------------- running what goes wrong


def fail(message, kind=RuntimeError):
    raise kind(message)


def test_a_result_is_told_in_one_line():
    assert lesson_13.said(lambda: "a\nb") == "no error: a b"
    assert len(lesson_13.said(lambda: 1000 * "word ")) <= lesson_13.SHOWN


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("", "RuntimeError:"),
        ("first\nsecond", "RuntimeError: first"),
        (
            "{{function_node x}} indices[0] = 5 is not in [0, 2) [Op:Gather]",
            "RuntimeError: indices[0] = 5 is not in [0, 2)",
        ),
        (
            "Graph execution error:\n\nFile x\nReceived a label value of 10 which is outside.  Label values: 1 2\n",
            "RuntimeError: Received a label value of 10 which is outside.",
        ),
        ("[enforce fail at a.cpp:127] err == 0. Cpu: can't allocate", "RuntimeError: Cpu: can't allocate"),
        ("Could not do it. enable_soft_placement=0. Supported", "RuntimeError: Could not do it."),
    ],
)
def test_of_an_error_the_telling_line_is_shown(message, told):
    assert lesson_13.said(fail, message) == told


def speak():
    print("first")
    print("second")


def speak_and_fail():
    print("first")
    raise ValueError("what it says")


def name_itself(framework):
    import os

    print(framework, os.environ.get("KERAS_BACKEND"), os.environ["CUDA_VISIBLE_DEVICES"])


def test_each_framework_runs_and_what_came_is_printed(capsys):
    runs = lesson_13.on_each({"numpy": speak_and_fail})
    assert capsys.readouterr().out == "-- NumPy\nfirst\nValueError: what it says\n"
    assert runs["numpy"].failures[0]


def test_a_function_can_ask_for_its_framework(capsys, monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda module: True)
    lesson_13.on_each({"numpy": name_itself, "torch": name_itself})
    assert capsys.readouterr().out == "-- NumPy\nnumpy None -1\n-- PyTorch\ntorch torch -1\n"


@pytest.mark.parametrize(
    ("framework", "how"), [("torch", "--with torch"), ("tensorflow", "--accel cpu"), ("jax", "--accel cpu")]
)
def test_a_framework_that_is_not_installed_is_skipped_visibly(framework, how, capsys, monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda module: module != framework)
    runs = lesson_13.on_each({framework: speak, "numpy": speak})
    out = capsys.readouterr().out
    assert "skipped: " in out and "is not installed here; to have it: " in out and how in out
    assert list(runs) == ["numpy"] and out.endswith("-- NumPy\nfirst\nsecond\n")


def test_a_prediction_of_those_that_refused_is_told_whether_it_agrees(capsys):
    run = processes.Run([None], ["ValueError: x"], [""], [""], 1.0)
    fine = processes.Run([None], ["no error: 1\nValueError: x"], [""], [""], 1.0)
    for prediction in ("jax", "JAX, tensorflow", "none", None):
        lesson_13.compare_refused(prediction, {"tensorflow": fine, "jax": run})
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if "agrees" in line or "not so" in line] == [
        "your prediction agrees",
        "not so in: tensorflow",
        "not so in: jax",
    ]


@pytest.mark.parametrize(
    ("outs", "told"),
    [
        ([], "nothing measured here"),
        ([("not tried: this system sets no such limit.", "")], "nothing measured here"),
        ([("batch 1024: no error: 1.0\nafter it, batch 1: no error: 1.0", "")], "nothing measured here"),
        ([("batch 512: MemoryError: x\nafter it, batch 1: no error: 1.0", "")], "measured: yes"),
        ([("batch 512: MemoryError: x\nafter it, batch 1: no error: 1.0", ""), ("", "killed")], "measured: no"),
    ],
)
def test_only_what_ran_out_of_memory_is_compared(outs, told, capsys):
    runs = {str(k): processes.Run([None], [out], [""], [failure], 1.0) for k, (out, failure) in enumerate(outs)}
    lesson_13.compare_survivors(None, runs)
    assert capsys.readouterr().out.rstrip().endswith(told)


def test_the_build_for_processors_has_no_gpu(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.21.0")
    monkeypatch.setattr(devices, "ask", lambda name: pytest.fail("asked"))
    assert lesson_13.gpu_seen() is False


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_another_build_is_asked_for_its_gpus(monkeypatch, kind):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    seen = devices.Answer("tensorflow", "ok", devices=(devices.Device("tensorflow", "0", "x", kind),))
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(devices, "ask", lambda name: seen)
    assert lesson_13.gpu_seen() is (kind == "gpu")


# ------------------------------------------------------------------------------------------------ packages, imitated


def test_uninstalling_one_flavour_breaks_the_other(tmp_path):
    site = lesson_13.Site(tmp_path)
    site.install("tensorflow", "2.21.0")
    assert site.look() == "installed: tensorflow | version: 2.21.0 gpu"
    site.install("tensorflow-cpu", "2.20.0")
    assert site.look() == "installed: tensorflow, tensorflow-cpu | version: 2.20.0 cpu"
    site.uninstall("tensorflow-cpu")
    assert site.look().startswith(
        "installed: tensorflow | version: AttributeError: module 'tensorflow' has no attribute"
    )
    site.uninstall("tensorflow")
    assert site.look().startswith("installed: nothing | version: ")


def test_owners_are_read_from_this_environment():
    owners = lesson_13.owners()
    assert "numpy" in owners["numpy/__init__.py"]


# ------------------------------------------------------------------------------------------------------- its exercises


def good_prepare(images, labels, rng):
    order = rng.permutation(images.shape[2])
    return images.reshape(784, -1).T[order].astype(np.float32) / 255, labels[order]


def test_prepare_is_judged_on_every_image():
    assert "each image once" in lesson_13.judge_prepare(good_prepare)
    with pytest.raises(NotDone, match="what you were given"):
        lesson_13.judge_prepare(lesson_13.prepare_as_given)


def test_the_reference_skips_and_scales():
    weights = np.ones(2, np.float32)
    stepped, scale, good = lesson_13.next_step(weights, np.float16([512, 0]), 1024.0, 2)
    assert stepped.tolist() == [0.75, 1] and (scale, good) == (2048, 0)
    assert lesson_13.next_step(weights, np.float16([np.nan, 0]), 1024.0, 2)[1:] == (512, 0)


def test_shuffled_orders_are_accepted():
    for many in (60, 300, 784):
        for seed in range(300):
            lesson_13._judge_shuffled(np.random.default_rng(seed).permutation(many))


@pytest.fixture(scope="module")
def images():
    """Return 600 made-up images of shape (600, 784) from 0 to 1, hardly to be told apart, and their labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 600)
    return np.clip(0.12 * rng.uniform(0, 1, (10, 784))[labels] + rng.uniform(0, 0.9, (600, 784)), 0, 1).astype(
        np.float32
    ), labels


def right_diagnosis(images):
    runs = lesson_13.trainings(*images)
    return {letter: (run._cause, lesson_13.CAUSES[run._cause][1](run)) for letter, run in runs.items()}


def test_each_training_has_a_cause_of_its_own(images):
    causes = [run._cause for run in lesson_13.trainings(*images).values()]
    assert len(set(causes)) == 6 and set(causes) < set(lesson_13.CAUSES) and set(lesson_13.OF_INF) < set(causes)


def test_odd_diagnoses(images):
    empty = dict.fromkeys("ABCDEF", ("", 0))
    with pytest.raises(NotDone):
        lesson_13.judge_diagnosis(empty, *images)
    with pytest.raises(NotYet, match="dictionary"):
        lesson_13.judge_diagnosis(list(empty), *images)
    with pytest.raises(NotYet, match="no key 'F'"):
        lesson_13.judge_diagnosis({letter: empty[letter] for letter in "abcde".upper()}, *images)


def test_a_right_diagnosis(images):
    lesson_13.one_thread()
    assert lesson_13.judge_diagnosis(right_diagnosis(images), *images) == "6 trainings"


# --------------------------------------------------------------------------------------------------------- its figures


# ----------------------------------------------------------------------------- what the lesson says of the frameworks


def loss_scaling():
    import keras

    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype="float32")])
    model.compile("adam", "mse")
    print(type(model.optimizer).__name__, model.optimizer.initial_scale)


@pytest.mark.slow
def test_keras_scales_the_loss_as_the_lesson_says():
    run = processes.run(loss_scaling, variables=lesson_13.PLAIN | {"KERAS_BACKEND": "jax"})
    assert run.stdout[0] == "LossScaleOptimizer 32768.0\n"
