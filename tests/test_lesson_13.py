"""Lesson 13 and its second sitting: the faulty trainings, and the broken environments."""

import re

import numpy as np
import pytest

from helpers.devices.host import package_owners
from helpers.lessons import lesson_13, lesson_13b


def good_prepare(images, labels, rng):
    order = rng.permutation(images.shape[2])
    return images.reshape(784, -1).T[order].astype(np.float32) / 255, labels[order]


def test_no_shuffled_order_is_refused(capsys):
    for _ in range(10):  # random images, two orders
        lesson_13.check_prepare(good_prepare)
    assert capsys.readouterr().out.count("right (") == 10


@pytest.fixture(scope="module")
def images():
    """Return 600 made-up images of shape (600, 784) from 0 to 1, hardly to be told apart, and their labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 600)
    digits = 0.12 * rng.uniform(0, 1, (10, 784))[labels] + rng.uniform(0, 0.9, (600, 784))
    return np.clip(digits, 0, 1).astype(np.float32), labels


def test_each_training_has_a_cause_that_its_experiment_finds(images):
    runs = [*lesson_13.make_runs(*images).values(), *lesson_13.make_others(*images)]
    assert {run._cause for run in runs} == set(lesson_13.SUSPECTS)
    for run in runs:
        assert np.isfinite(run.end())
        assert (run.x.max() > 1) == (run._cause == "raw pixels")
        assert (run.growth() == 2) == (run._cause == "gradients add up")
        assert (run.row_sum() == 1) == (run._cause == "softmax twice")


def test_only_dead_runs_have_no_unit_that_is_on():
    for what, (run, is_dead) in lesson_13.make_deep_runs().items():
        assert is_dead != (run.x @ run.layers[0] > 0).any()
        loss = 0 if "learned" in what else np.log(10)  # of all others the loss tells nothing
        assert run.losses[-1] == pytest.approx(loss, abs=0.02)


def test_a_symptom_that_does_not_fit_is_told(images, capsys):
    lesson_13.check_diagnosis({letter: ("rate too low", None) for letter in "ABCD"}, *images)
    assert "another symptom" in capsys.readouterr().out


def test_a_test_that_convicts_an_innocent_run_is_told_which(images, capsys):
    diagnosis = {letter: ("", None) for letter in "ABCD"} | {"C": ("softmax twice", lambda run: run.x.max() <= 1)}
    lesson_13.check_diagnosis(diagnosis, *images)
    assert "returns True for a run with 'rate too low', too" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_cause_is_answered_with_what_the_experiment_prints(capsys):
    lesson_13b.check_diagnose(lambda env: "all files gone")
    assert "diagnose returned 'all files gone'. There a program prints" in " ".join(capsys.readouterr().out.split())


def test_an_empty_file_of_two_packages_is_no_fault(tmp_path):
    for name in ("nvidia-nvtx-cu12", "nvidia-cuda-runtime-cu12"):
        info = tmp_path / f"{name.replace('-', '_')}-12.6.77.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 12.6.77\n")
        (info / "RECORD").write_text(f"nvidia/__init__.py,sha256=47DEQ,0\n{name}.py,,\nshared.py,sha256=1,12\n")
    owners = package_owners(tmp_path)
    assert sorted(owners) == ["nvidia-cuda-runtime-cu12.py", "nvidia-nvtx-cu12.py", "shared.py"]
    assert len(owners["shared.py"]) == 2


def test_nothing_is_left_of_an_environment():
    with lesson_13b.Scratch(unpacked=["tensorflow", "tensorflow-cpu"]) as env:
        assert env.python(lesson_13b.STATE) == "2.21.0 []"
        assert env.python("import numpy") == "ModuleNotFoundError: No module named 'numpy'"
        assert env.python("import os; print(os.getcwd(), os.environ.get('CUDA_VISIBLE_DEVICES'))") == "work None"
        assert "No matching distribution" in env.pip("install no-such-package")  # no internet is asked
        folder = env.folder
    assert not folder.exists()


def test_the_first_line_that_begins_with_an_error_is_asked_for():
    messages = lesson_13b.read_messages()
    for letter, reading in lesson_13b.READINGS.items():
        failed = [number for number, line in enumerate(messages[letter], 1) if re.match(r"\w+Error: ", line)]
        assert failed[0] == reading.line


def test_of_a_program_without_a_fault_there_is_no_message():
    assert lesson_13b.capture_message("print(1)") == ""
    assert lesson_13b.capture_message("1 / 0").endswith("ZeroDivisionError: division by zero")
