"""compute.training and compute.models: on real backends, with Ctrl-C and budgets; in a kernel; starts that fail."""

import asyncio
import math
import os
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import sample_lesson
from on_backend import record  # noqa: F401  (a fixture)
from waiting import in_the_end

from helpers import devices, training
from helpers.commands import execute
from helpers.errors import WorkshopError
from helpers.measure import workload
from helpers.training import backends

HERE = Path(__file__).parent
KEPT = "what was learned until then is kept"


# ---------------------------------------------------------------------------------------------- on real backends


def test_start_names_the_device_twice_and_gives_interrupts_a_stack(record):  # noqa: F811
    first, second = record["started"]["devices"]
    assert record["started"]["stack"]  # or an interrupt ends TensorFlow in the middle of a matrix product
    assert first == second and re.fullmatch(r".+ \((TensorFlow|JAX), .+\)", first)


def test_another_backend_in_the_same_process_is_refused(record):  # noqa: F811
    kind, message = record["started"]["another backend"]
    assert kind == "WorkshopError" and "Keras already runs with" in message and "Restart the kernel." in message


def test_one_seed_gives_one_training_and_another_another(record):  # noqa: F811
    seeded = record["seeded"]
    same, other = seeded["first"]
    assert same == 0 and other > 0.01
    same, other = seeded["last"]
    assert same < 1e-5 and other > 0.01
    same, other = seeded["drawn"]
    assert same == 0 and other > 0
    assert seeded["policy"] == "mixed_bfloat16"
    assert seeded["tensorflow"] == ("TensorFlow" in record["started"]["devices"][0])


def test_tensorflow_does_not_tune_its_pipelines_unless_it_is_told_to(record):  # noqa: F811
    if record["piped"] is None:
        pytest.skip("this is about TensorFlow alone")
    assert record["piped"] == {"in a pipeline": False, "if wished": True, "numbers": [0, 1, 2]}


def test_the_networks_are_those_of_the_articles(record):  # noqa: F811
    networks = record["networks"]
    assert networks["parameters"] == [669_706, 1_199_882, 669_706]
    assert networks["shapes"] == [[[None, 784], [None, 10]], [[None, 28, 28, 1], [None, 10]]]
    assert networks["dtypes"] == ["uint8", "uint8"] and networks["without dropout"]


def test_nothing_is_written_past_python_and_no_warning(record):  # noqa: F811
    assert record["err"] == ""


# ---------------------------------------------------------------------------------------------- budgets of time


@pytest.mark.parametrize(
    ("name", "epochs", "seconds"),
    [("no limit", 20, 200), ("just enough", 20, 200), ("three", 3, 30), ("a half", 0.5, 5), ("by you", 0.5, 5)],
)
def test_a_training_does_as_many_epochs_as_fit_and_says_so(record, name, epochs, seconds):  # noqa: F811
    """Of 20 epochs of 10 s each; the budgets after a first step are none, 200 s, 35 s, 3.5 s, and 35 s with Ctrl-C."""
    training_ = record["budgeted"][name]
    assert (training_["epochs"], training_["seconds"], training_["an epoch"]) == (epochs, seconds, 10)
    assert training_["in history"] == math.ceil(epochs) and training_["learned"] > 0
    line = training_["lines"][-1]
    assert f"{epochs:g}" in line and "training images" in line and (KEPT in line) == (name == "by you")
    if name == "no limit":  # while it trains, the line tells what is left
        assert "198 s left" in training_["lines"][1] and "190 s left" in training_["lines"][10]


def test_after_an_error_in_a_training_ctrl_c_works_as_ever(record):  # noqa: F811
    assert record["budgeted"]["error"] == ["ValueError", "a layer broke"]
    assert record["budgeted"]["after an error"] == "KeyboardInterrupt"


# ---------------------------------------------------------------------------------------------- in a real kernel

TRAIN = """
import on_backend
from helpers import training

training.start()
model = on_backend.small()
x, y = on_backend.small_data()
line = training.progress("small")
model.fit(x, y, validation_data=(x, y), batch_size=10, epochs=2, verbose=0, callbacks=[line])
print(line.epochs)
"""
ENDLESS = """
before = on_backend.flat(model)
with training.interruptible(model):
    model.fit(x, y, batch_size=10, epochs=100_000, verbose=0, callbacks=[training.progress("endless")])
print("learned:", float(abs(on_backend.flat(model) - before).max()))
"""
EVALUATE = 'print(len(model.evaluate(x, y, verbose=0)), "the lesson goes on")'


def interrupt_when_it_trains(client, cell, failures):
    """What the square in Jupyter does, once the cell shows that it trains."""

    def trains():
        return any("step" in out.get("data", {}).get("text/plain", "") for out in cell.get("outputs", []))

    if not in_the_end(trains):
        failures.append("no training was seen")
    asyncio.run(client.km.interrupt_kernel())


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """A lesson that trains, is interrupted while it trains, and goes on; after it ran."""
    notebook, failures = sample_lesson.of(TRAIN, ENDLESS, EVALUATE), []
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    backend = "tensorflow" if devices.is_installed("tensorflow") else "jax"
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path}
    with execute._start_kernel(notebook, tmp_path_factory.mktemp("lesson"), environment, 300) as (client, _):
        client.execute_cell(notebook.cells[0], 0)
        endless = notebook.cells[1]
        watcher = threading.Thread(target=interrupt_when_it_trains, args=(client, endless, failures))
        watcher.start()
        client.execute_cell(endless, 1)
        watcher.join()
        client.execute_cell(notebook.cells[2], 2)
    assert failures == [] and execute.loud(notebook) == []
    return notebook.cells


def shown(cell):
    return [out.data["text/plain"] for out in cell.outputs if out.output_type == "display_data"]


@pytest.mark.slow
def test_the_stored_output_of_a_training_is_one_line(lesson):
    (line,) = shown(lesson[0])
    percent = r"\d+\.\d\d %"
    assert re.fullmatch(rf"small: 2 epochs in \d+\.\d s \| training images {percent} \| unseen images {percent}", line)
    assert execute.text(lesson[0]) == "2\n" and len(lesson[0].outputs) == 2


@pytest.mark.slow
def test_the_square_ends_a_training_and_the_lesson_goes_on_with_what_was_learned(lesson):
    (line,) = shown(lesson[1])
    assert execute.errors(lesson[1]) == []
    assert re.fullmatch(rf"endless: stopped by you after [\d.e+]+ of 100000 epochs and .* % \| {KEPT}", line)
    assert float(execute.text(lesson[1]).split(": ")[1]) > 1e-4
    assert execute.text(lesson[2]) == "2 the lesson goes on\n"


# ---------------------------------------------------------------------------------------------- starts that fail


START = """
from helpers import training
from helpers.errors import WorkshopError
for _ in range(2):
    try:
        print(training.start())
    except WorkshopError as error:
        print(error.what, error.why, error.next, sep="|", end="||")
"""


def failed_start(backend, code=START, path=""):
    """Return what, why and next of a start that fails, without another word."""
    environment = os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": f"{path}{os.pathsep}{HERE.parent}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, _ = done.stdout.split("||")
    assert second.split("|")[0] == first.split("|")[0], "a second attempt ends otherwise"
    return first.split("|")


def test_a_backend_that_is_not_installed_is_told_with_those_that_are():
    missing = [name for name in backends.BACKENDS if not devices.is_installed(name)]
    if not missing:
        pytest.skip("every backend is installed here")
    what, why, following = failed_start(missing[0])
    assert missing[0] in what
    assert all((name in why) == devices.is_installed(name) for name in backends.BACKENDS) and "doctor" in following


@pytest.mark.parametrize("how", ["training.start()", "training.import_tensorflow()"])
def test_a_tensorflow_that_breaks_while_it_starts_is_told_with_its_last_words(how, tmp_path):
    breaks = "import os\nos.write(2, b'E0000 dso_loader.cc] libfake.so.12 is missing\\n')"
    (tmp_path / "tensorflow.py").write_text(f"{breaks}\nraise ImportError('does not load')")
    what, why, following = failed_start("tensorflow", START.replace("training.start()", how), tmp_path)
    assert "TensorFlow" in what and "libfake.so.12 is missing" in why and "does not load" in why
    assert "doctor" in following


WRONG_DEVICE = """
from helpers.devices import products
products.prove = lambda device: "wrong: by up to 12, in 4,096 of 4,096 whole numbers"  # a fake device in a real start
"""


@pytest.mark.slow
def test_a_device_that_computes_wrongly_is_told():
    what, why, following = failed_start("jax", WRONG_DEVICE + START)
    assert what.endswith("(JAX, CPU) does not compute right.") and "4,096 whole numbers" in why
    assert following.endswith("doctor")


def test_a_lesson_that_needs_tensorflow_says_so_where_there_is_none(monkeypatch):
    monkeypatch.setattr(devices, "is_installed", lambda framework: framework != "tensorflow")
    with pytest.raises(WorkshopError) as refused:
        training.import_tensorflow()
    assert "lab --accel cpu" in refused.value.next


@pytest.mark.parametrize(
    ("verdicts", "visible"), [(("right", "right"), None), (("failed: no code", "right"), ["GPU:1"])]
)
def test_a_gpu_that_tensorflow_lists_and_fails_on_is_hidden_from_it(verdicts, visible, monkeypatch):
    """On a fake of TensorFlow, for what a process of its own told."""
    gpus = [types.SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in range(2)]
    told = [
        devices.Device("tensorflow", f"/GPU:{number}", "a card", "gpu", computes=verdict)
        for number, verdict in enumerate(verdicts)
    ]
    set_to = []
    config = types.SimpleNamespace(
        list_physical_devices=lambda kind: gpus,
        set_visible_devices=lambda good, kind: set_to.append([gpu.name.rpartition("device:")[2] for gpu in good]),
    )
    monkeypatch.setattr(devices, "ask", lambda framework: devices.Answer(framework, "ok", devices=tuple(told)))
    training._hide_gpus_that_fail(types.SimpleNamespace(config=config))
    assert set_to == ([visible] if visible else [])


# ---------------------------------------------------------------------------------------------- no budget


def test_stored_outputs_and_full_have_no_budget(monkeypatch):
    monkeypatch.delenv(workload.WHOLE_TRAINING, raising=False)
    for name, seconds in {"preview": 5, "lab": 60, "full": math.inf}.items():
        monkeypatch.setenv(workload.VARIABLE, name)
        assert workload.budget(preview=5, lab=60) == seconds
    monkeypatch.setenv(workload.VARIABLE, "lab")
    monkeypatch.setenv(workload.WHOLE_TRAINING, "1")
    assert workload.budget(preview=5, lab=60) == math.inf
