"""helpers.models: the articles' networks in every form on both backends, and the trained CNN that is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import devices

HERE = Path(__file__).parent
BACKENDS = ("tensorflow", "jax")
PARTS = ("sizes", "forms", "layers_alone", "refusals", "kept", "exchanged", "without_chance")
MORE = ("unwritable", "damaged", "trained_here")  # files: the same on every backend, tried on one
FIRST = "From data/models: a CNN with 99.12 % on the test images of MNIST after 12 epochs of 60,000 images."


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Both backends, one after the other in one folder: what they saw and what they wrote."""
    both = tmp_path_factory.mktemp("both")
    seen = {}
    for backend in BACKENDS:
        if not devices.installed(backend):
            pytest.skip(f"{backend} is not installed here")
        parts = [*PARTS, *(MORE if backend == "tensorflow" else ())]
        command = [sys.executable, str(HERE / "on_backend.py"), str(both), *parts]
        environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(HERE.parent)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        seen[backend] = json.loads(lines[-1]) | {"out": lines[:-1], "err": done.stderr}
    return seen


@pytest.fixture(params=BACKENDS)
def seen(ran, request):
    return ran[request.param]


@pytest.fixture
def on_files(ran):
    return ran["tensorflow"]


def below(out, title):
    """The lines under a title, up to the next."""
    rest = out[out.index(f"{title}:") + 1 :]
    return rest[: next((n for n, line in enumerate(rest) if line.endswith(":")), len(rest))]


# ---------------------------------------------------------------------------------------------- the networks


def test_without_dropout_a_training_repeats_itself_and_learns(seen):
    seen = seen["without_chance"]
    once, again = seen["trainings"]
    assert seen["parameters"] == 669_706
    assert once == pytest.approx(again, rel=1e-6)
    assert len(once) == 4  # 32 images, 8 a step
    assert once[0] == pytest.approx(seen["before"], rel=1e-5)  # the loss before the step
    assert min(once[1:]) != once[0]


def test_the_networks_are_those_of_the_articles(seen):
    sizes = seen["sizes"]
    assert sizes["parameters"] == [669_706, 1_199_882, 1_199_882]
    assert sizes["outputs"] == [[None, 10]] * 3
    assert sizes["dtypes"] == ["uint8", "uint8", "float32"]


def test_channels_first_changes_every_shape(seen):
    assert seen["sizes"]["inputs"] == [[None, 784], [None, 28, 28, 1], [None, 1, 28, 28]]
    assert seen["sizes"]["inside"] == [[None, 32, 26, 26], [None, 64, 24, 24], [None, 64, 12, 12]]


def test_every_form_answers_alike_from_the_same_weights(seen):
    answers = seen["forms"]["answers"]
    assert len(answers) == 3
    for name, gap in answers.items():
        assert gap < (5e-3 if "bfloat16" in name else 1e-6), name


def test_every_form_learns_alike_in_a_step(seen):
    forms = seen["forms"]
    assert forms["step"] > 1e-3
    for name, gap in forms["steps"].items():
        # A pixel that is the largest of four by a rounding error alone may lose to another in another form.
        assert gap < (0.3 if "bfloat16" in name else 0.03) * forms["step"], name


def test_the_two_layers_compute_what_those_of_keras_compute_on_odd_sizes_too(seen):
    assert max(seen["layers_alone"]["same"]) < 1e-6


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("strides", "MatrixConv2D cannot compute with strides=(2, 2)."),
        ("padding", "MatrixConv2D cannot compute with padding='same'."),
        ("first", "MatrixConv2D cannot compute with data_format='channels_first'."),
        ("size", "LargestOfFour cannot compute with pool_size=(3, 3)."),
    ],
)
def test_what_the_two_layers_cannot_do_is_refused_when_they_are_made(seen, case, says):
    kind, message = seen["layers_alone"]["refused"][case]
    assert kind == "WorkshopError" and message.startswith(says) and "Next: Build the network with" in message


@pytest.mark.parametrize("option", ["matrix", "four"])
def test_they_are_refused_with_the_channels_first(seen, option):
    kind, message = seen["refusals"][option]
    assert kind == "WorkshopError"
    assert "data_format='channels_first'" in message and "Arguments received" not in message


def test_the_precision_is_as_before_after_each_network_and_after_a_failure(seen):
    assert seen["forms"]["policy"] == seen["refusals"]["policy"] == "float32"
    assert seen["refusals"]["precision"] == "ValueError"
    assert seen["refusals"]["policy of the learner"] == "mixed_bfloat16"


# ---------------------------------------------------------------------------------------------- the trained CNN


def test_what_is_kept_comes_back_and_can_be_evaluated(seen):
    kept = seen["kept"]
    assert kept["same"] == 0 and kept["sentence"] == FIRST and kept["evaluated"] == 2
    assert kept["said"][0] == FIRST.replace("From data/models", "Kept for later lessons in data/models")


def test_neither_a_stand_in_nor_a_shorter_training_replaces_a_longer_one(seen):
    stand_in, shorter, longer = seen["kept"]["said"][1:4]
    for refused in (stand_in, shorter):
        assert refused.startswith("Not kept: there is a CNN with 99.12 %") and "trained for longer" in refused
    assert longer.startswith("Kept for later lessons in data/models: a CNN with 50.00 %")
    assert seen["kept"]["facts"] == {"accuracy": 0.5, "epochs": 13, "images": 60_000, "dataset": "MNIST"}
    assert seen["kept"]["replaced"] == 0


def test_a_network_with_the_channels_first_is_kept_with_them_last(seen):
    assert seen["kept"]["said"][4].startswith("Kept") and seen["kept"]["channels first"] < 1e-9


def test_another_network_is_not_kept(seen):
    assert (
        seen["kept"]["said"][5:]
        == ["Not kept: this is not lesson 05's network. Later lessons will train a small one themselves."] * 3
    )


def test_no_other_file_is_left(seen, on_files):
    assert seen["kept"]["files"] == seen["kept"]["files at the end"] == ["cnn.json", "cnn.weights.h5"]
    assert all(files == ["cnn.json", "cnn.weights.h5"] for *_, files in on_files["damaged"].values())


def test_weights_of_one_backend_serve_the_other(ran):
    assert ran["jax"]["exchanged"]["tensorflow"] < 1e-6
    assert ran["jax"]["sizes"] == ran["tensorflow"]["sizes"]


def test_a_folder_that_cannot_be_written_to_costs_one_sentence(on_files):
    said = on_files["unwritable"]
    assert said.startswith("Not kept: ") and said.endswith("Later lessons will train a small one themselves.")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "damage", ["weights", "weights that are text", "facts", "facts of another kind", "facts that are text"]
)
def test_a_damaged_file_is_told_in_a_line_and_replaced_by_any_training(on_files, damage):
    before, said, after, _ = on_files["damaged"][damage]
    assert before is None and said.startswith("Kept for later lessons") and after["epochs"] == 1
    told = below(on_files["out"], damage)
    assert len(told) == 2, "once when it is read, once when it is replaced"
    assert all(line.startswith("The CNN in data/models cannot be read (") for line in told)
    assert all(line.endswith("). Lesson 05 makes it anew.") for line in told)


def test_a_small_one_is_trained_where_there_is_none_and_where_it_is_another_network(on_files):
    nothing, other, finite = on_files["trained_here"]
    for sentence in (nothing, other):
        assert sentence.startswith("Trained here, for want of one from lesson 05: a CNN with ")
        assert sentence.endswith("on the test images of little after 1 epoch of 32 images.")
    assert finite
    told, trained = below(on_files["out"], "other network")
    assert told.startswith("The CNN in data/models cannot be read (") and trained.startswith("a small CNN: 1 epoch in ")
    assert len(below(on_files["out"], "nothing there")) == 1


def test_nothing_is_written_past_python_and_no_warning(seen):
    assert seen["err"] == ""
