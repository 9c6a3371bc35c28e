"""helpers.training: on real backends in real kernels, with a real Ctrl-C; and what can be wrong with data."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import sample_lesson
from hypothesis import given
from hypothesis import strategies as st

from helpers import devices, processes, training
from helpers.commands import execute
from helpers.errors import WorkshopError
from helpers.lessons import lesson_05, lesson_08
from helpers.timing import Measurement
from helpers.data import check as check_data

HERE = Path(__file__).parent
BACKENDS = ("tensorflow", "jax")
KEPT = "what was learned until then is kept"


# ---------------------------------------------------------------------------------------------- data

SHAPE = (4, 4, 1)


def good(n=12):
    return np.zeros((n, *SHAPE), np.uint8), np.arange(n) % 10


def refused(images, labels, shape=SHAPE, **options):
    with pytest.raises(WorkshopError) as caught:
        check_data(images, labels, shape, **options)
    assert caught.value.why and caught.value.next
    return caught.value


def test_good_data_passes():
    images, labels = good()
    check_data(images, labels, SHAPE, batch_size=12)
    check_data(images.astype("float32"), labels.astype("uint8"), list(SHAPE), batch_size=np.int64(1))
    check_data(images.tolist(), labels.tolist(), SHAPE)
    check_data(images > 0, labels, SHAPE)


@pytest.mark.parametrize("have", [(4, 4), (16,), (1, 4, 4), (16, 1)])
@pytest.mark.parametrize("want", [(4, 4, 1), (16,), (1, 4, 4)])
def test_a_wrong_shape_is_told_with_the_line_that_mends_it(have, want):
    images, labels = np.arange(12 * 16, dtype=np.uint8).reshape(12, *have), good()[1]
    if have == want:
        return check_data(images, labels, want)
    error = refused(images, labels, want)
    assert str(want) in error.what and str(have) in error.what
    mended = eval(error.next, {"images": images})
    check_data(mended, labels, want)
    assert np.array_equal(mended.ravel(), images.ravel())


@pytest.mark.parametrize(("have", "want"), [((2, 8), (4, 4)), ((4, 4, 3), (3, 4, 4)), ((5, 4), (4, 4)), ((), (16,))])
def test_no_line_is_offered_that_would_scramble_the_images(have, want):
    assert refused(np.zeros((12, *have)), good()[1], want).next == "Build the network for these images."


def test_a_single_image_is_told_with_the_line_that_mends_it():
    image = np.zeros(SHAPE)
    check_data(eval(refused(image, [3]).next.partition(": ")[2], {"images": image}), [3], SHAPE)


def test_pixels_that_are_scaled_already_are_told():
    labels = np.zeros(3, "uint8")
    with pytest.raises(WorkshopError, match=r"between 0 and 0\.5: somebody has scaled them already"):
        check_data(np.full((3, *SHAPE), 0.5, "float32"), labels, SHAPE)
    check_data(np.ones((3, *SHAPE), "uint8"), labels, SHAPE)
    check_data(np.zeros((3, *SHAPE), "float32"), labels, SHAPE)


def test_images_and_labels_swapped_are_told():
    with pytest.raises(WorkshopError, match="look like labels"):
        check_data(np.zeros(3, "uint8"), np.zeros((3, 784), "uint8"), 784)


@pytest.mark.parametrize("images", [np.zeros((0, *SHAPE)), [], np.float32(3), np.zeros((3, 0, 4, 1))])
def test_no_images(images):
    assert refused(images, []).what == "There are no images to train with."


@pytest.mark.parametrize("nothing", ["mnist", None, [[1, 2], [3]], ["a", "b"], np.zeros((2, *SHAPE), complex), {}])
def test_what_is_no_array_of_numbers_is_told(nothing):
    assert refused(nothing, [1, 2]).what == "The images are no array of numbers."
    assert refused(good()[0], nothing).what == "The labels are no array of numbers."


@pytest.mark.parametrize(("label", "position"), [(10, 0), (-1, 11), (200, 5), (2**40, 3)])
def test_a_label_out_of_range_is_told_with_its_position(label, position):
    images, labels = good()
    labels[position] = label
    assert refused(images, labels).what == (
        f"1 of 12 labels lie outside 0 to 9; the first is labels[{position}] = {label}."
    )
    check_data(images, labels % 10, SHAPE)
    assert "0 to 2" in refused(images, np.full(12, 3), classes=3).what


def test_one_hot_labels_are_told_with_the_line_that_mends_them():
    images, labels = good()
    error = refused(images, np.eye(10)[labels])
    assert "one column for each class" in error.what
    assert np.array_equal(eval(error.next, {"labels": np.eye(10)[labels]}), labels)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_labels_that_are_no_whole_numbers_are_told(dtype):
    images, labels = good()
    error = refused(images, (labels % 2).astype(dtype))
    assert error.what == f"The labels are {dtype}, not whole numbers."
    check_data(images, eval(error.next.partition(",")[0], {"labels": (labels % 2).astype(dtype)}), SHAPE)


def test_too_few_and_too_many_labels_are_told():
    images, labels = good()
    for other in (labels[:11], np.append(labels, 1), labels[:0], np.zeros((12, 3), int)):
        error = refused(images, other)
        assert error.what == f"There are 12 images, and labels of shape {other.shape}."
        assert error.next == "Slice images and labels alike."
    column = labels[:, None]
    check_data(images, eval(refused(images, column).next, {"labels": column}), SHAPE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_nan_and_infinity_are_told_with_their_position(value):
    images, labels = good()
    for dtype in ("float32", "float64", "float16"):
        bad = images.astype(dtype)
        bad[7, 3, 2, 0] = bad[9, 0, 0, 0] = value
        assert refused(bad, labels).what == "2 of 12 images hold NaN or infinity, the first of them is image 7."


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (13, "A batch of 13 images cannot be taken from 12."),
        (0, "A batch of 0 images teaches nothing."),
        (-3, "A batch of -3 images teaches nothing."),
        (4.0, "The batch size is 4.0, not a whole number."),
        ("4", "The batch size is '4', not a whole number."),
        (None, "The batch size is None, not a whole number."),
    ],
)
def test_a_batch_size_that_cannot_be_is_told(size, says):
    error = refused(*good(), batch_size=size)
    assert error.what == says and error.next == "Choose a whole number from 1 to 12."


numbers = st.integers(1, 40)


@given(numbers, st.data())
def test_valid_data_of_any_size_passes(n, draw):
    labels = draw.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    dtype = draw.draw(st.sampled_from(["uint8", "float32", "int16", "float16"]))
    grey = draw.draw(st.integers(0, 255).filter(lambda value: value != 1))  # 1 alone would look scaled
    images = np.full((n, *SHAPE), grey, dtype)
    check_data(images, np.array(labels, draw.draw(st.sampled_from(["uint8", "int64"]))), SHAPE,
               draw.draw(st.integers(1, n)))  # fmt: skip


@given(numbers, st.sampled_from([np.nan, np.inf, -np.inf]), st.data())
def test_any_one_bad_pixel_is_found(n, value, draw):
    images = np.zeros((n, 16), "float32")
    image = draw.draw(st.integers(0, n - 1))
    images[image, draw.draw(st.integers(0, 15))] = value
    assert f"the first of them is image {image}." in refused(images, np.zeros(n, int), (16,)).what


@given(numbers, st.one_of(st.integers(-(2**63), -1), st.integers(10, 2**63 - 1)), st.data())
def test_any_one_bad_label_is_found(n, value, draw):
    labels = np.zeros(n, "int64")
    position = draw.draw(st.integers(0, n - 1))
    labels[position] = value
    assert f"the first is labels[{position}] = {value}." in refused(np.zeros((n, 16)), labels, (16,)).what


# ---------------------------------------------------------------------------------------------- in real kernels

TRAIN = """
model = on_backend.small()
x, y = on_backend.small_data()
shown = training.progress("small")
model.fit(x, y, validation_data=(x, y), batch_size=10, epochs=2, verbose=0, callbacks=[shown])
print(len(shown.seconds), shown.interrupted)
"""
ENDLESS = """
before = on_backend.flat(model)
history = model.fit(x, y, batch_size=10, epochs=100_000, verbose=0, callbacks=[training.progress("endless")])
print("learned:", float(abs(on_backend.flat(model) - before).max()))
"""
EVALUATE = 'print(len(model.evaluate(x, y, verbose=0)), "the lesson goes on")'


def fit_began(cell):
    return any("step" in out.get("data", {}).get("text/plain", "") for out in cell.get("outputs", []))


def interrupt_when_it_trains(client, cell, failures):
    """What the square in Jupyter does, once the cell shows that it trains."""
    end = time.monotonic() + 120
    while not fit_began(cell) and time.monotonic() < end:
        time.sleep(0.02)
    if not fit_began(cell):
        failures.append("no training was seen")
    asyncio.run(client.km.interrupt_kernel())


def run_lesson(backend, folder):
    parts = ["seeded", "unchecked", *(["piped"] if backend == "tensorflow" else [])]
    sources = [
        "import sys\nfrom helpers import training\nimport on_backend\nprint(training.start(), training.start())",
        TRAIN,
        ENDLESS,
        EVALUATE,
        f"print(on_backend.look('', {parts}))",
    ]
    notebook, failures = sample_lesson.of(*sources), []
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path}
    with execute._kernel(notebook, folder, environment, 120) as (client, _):
        for index, cell in enumerate(notebook.cells):
            if cell.source.strip() == ENDLESS.strip():
                arguments = (client, cell, failures)
                watcher = threading.Thread(target=interrupt_when_it_trains, args=arguments)
                watcher.start()
                client.execute_cell(cell, index)
                watcher.join()
            else:
                client.execute_cell(cell, index)
    assert failures == []
    return notebook


@pytest.fixture(scope="module", params=BACKENDS)
def lesson(request, tmp_path_factory):
    """(backend, its lesson after it ran, what its parts saw)."""
    backend = request.param
    if not devices.installed(backend):
        pytest.skip(f"{backend} is not installed here")
    notebook = run_lesson(backend, tmp_path_factory.mktemp(backend))
    return backend, notebook, json.loads(execute.text(notebook.cells[-1]).splitlines()[-1])


def shown(cell):
    return [out.data["text/plain"] for out in cell.outputs if out.output_type == "display_data"]


def test_start_names_the_device_twice_and_says_nothing_else(lesson):
    backend, notebook, seen = lesson
    title = {"tensorflow": "TensorFlow", "jax": "JAX"}[backend]
    first, second = seen["started"]["devices"]
    assert first == second and first.split(" (")[1].startswith(f"{title}, ")
    assert execute.text(notebook.cells[0]) == f"{first} {first}\n"
    assert execute.loud(notebook) in ([], [4]), "only training with bad data may write to standard error"


def test_another_backend_in_the_same_kernel_is_refused(lesson):
    kind, message = lesson[2]["started"]["another backend"]
    assert kind == "WorkshopError" and "Keras already runs with" in message and "Restart the kernel." in message


def test_the_stored_output_of_a_training_is_one_line(lesson):
    cell = lesson[1].cells[1]
    assert len(shown(cell)) == 1 and len(cell.outputs) == 2
    percent = r"\d+\.\d\d %"
    assert re.fullmatch(
        rf"small: 2 epochs in \d+\.\d s \| training images {percent} \| test images {percent}", shown(cell)[0]
    )
    assert execute.text(cell) == "2 False\n"


def test_an_interrupt_ends_a_training_and_the_lesson_goes_on_with_what_was_learned(lesson):
    _, notebook, _ = lesson
    cell, after = notebook.cells[2:4]
    assert execute.errors(cell) == [] and len(shown(cell)) == 1
    assert re.fullmatch(
        rf"endless: stopped by you in epoch \d+ of 100000, after \d+\.\d s \| training images .* % \| {KEPT}",
        shown(cell)[0],
    )
    assert float(execute.text(cell).split(": ")[1]) > 1e-4
    assert execute.text(after) == "2 the lesson goes on\n"


def test_one_seed_gives_one_training_and_another_another(lesson):
    backend, _, seen = lesson
    same, other = seen["seeded"]["first"]
    assert same == 0 and other > 0.01
    same, other = seen["seeded"]["last"]
    assert same < 1e-5 and other > 0.01
    same, other = seen["seeded"]["drawn"]
    assert same == 0 and other > 0
    assert seen["seeded"]["policy"] == "mixed_bfloat16"
    assert seen["seeded"]["tensorflow"] == (backend == "tensorflow")


def test_what_is_said_of_bad_data_is_what_happens_without_a_look(lesson):
    backend, _, seen = lesson
    seen = seen["unchecked"]
    for label in (10, -1):
        kind, message = seen[f"label {label}"]
        assert seen[f"learned from label {label}"] == 0
        assert (kind, len(message) > 500) == (
            ("InvalidArgumentError", True) if backend == "tensorflow" else ("", False)
        )
    for name in ("NaN", "infinity"):
        assert seen[name]["error"] == ["", ""] and seen[name]["alike"] and seen[name]["weights"] > 0
    assert seen["steps of 3 epochs"] == 3


def test_tensorflow_does_not_tune_its_pipelines_unless_it_is_told_to(lesson):
    backend, _, seen = lesson
    if backend != "tensorflow":
        pytest.skip("this is about TensorFlow alone")
    assert seen["piped"] == {
        "autotune": False, "in a pipeline": False, "if wished": True, "is a class": True, "numbers": [0, 1, 2],
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- in plain Python


@pytest.fixture(scope="module")
def plain():
    """Trainings in plain Python on one backend, with Ctrl-C at known steps: (what was seen, the lines written)."""
    command = [sys.executable, str(HERE / "on_backend.py"), "", "interrupted"]
    backend = "jax" if devices.installed("jax") else "tensorflow"
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    return json.loads(last)["interrupted"], lines


def test_a_pipe_gets_one_line_for_each_training_that_ended(plain):
    assert [line.partition(":")[0] for line in plain[1]] == [
        "none", "one", "another", "generator", "generator", *["at any time"] * 10, "ignored",
    ]  # fmt: skip
    assert re.fullmatch(r"none: 3 epochs in \d+\.\d s \| training images \d+\.\d\d %", plain[1][0])
    assert re.fullmatch(rf"one: stopped by you in epoch 1 of 3, after .* s \| training .* % \| {KEPT}", plain[1][1])
    assert not any("\r" in line for line in plain[1])


def test_without_an_interrupt_nothing_is_left_behind(plain):
    none = plain[0]["none"]
    assert (none["error"], none["interrupted"], none["epochs"], none["restored"]) == ("", False, 3, True)


def test_ctrl_c_ends_a_training_after_its_step(plain):
    one = plain[0]["one"]
    assert (one["error"], one["interrupted"], one["epochs"], one["restored"]) == ("", True, 1, True)
    assert one["learned"] > 0


def test_ctrl_c_in_the_middle_of_a_step_harms_nothing(plain):
    seen = [plain[0][f"at any time {after}"] for after in range(10)]
    assert [(one["error"], one["interrupted"]) for one in seen] == [("", True)] * 10
    assert all(0 < one["learned"] < 1e9 for one in seen)


def test_a_second_ctrl_c_stops_at_once_and_keeps_what_was_learned(plain):
    assert plain[0]["two"]["error"] == plain[0]["press after two"] == "KeyboardInterrupt"
    assert plain[0]["two"]["learned"] > 0


def test_after_an_error_in_a_training_ctrl_c_works_as_ever(plain):
    seen, _ = plain
    assert seen["failed"]["error"] == seen["failed again"]["error"] == "ValueError"
    assert seen["another"]["error"] == "" and seen["another"]["interrupted"]
    assert seen["press in the end"] == ["KeyboardInterrupt"] * 3


def test_ctrl_c_stays_ignored_where_it_is_ignored(plain):
    ignored = plain[0]["ignored"]
    assert (ignored["error"], ignored["interrupted"], ignored["epochs"]) == ("", False, 3)
    assert plain[0]["still ignored"]


def test_a_training_of_unknown_length_is_shown_too(plain):
    assert plain[0]["unknown length"] == ""


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


def failed_start(backend, path=""):
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join([str(path), str(HERE.parent)])}
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, _ = done.stdout.split("||")
    assert second.split("|")[0] == first.split("|")[0], "a second attempt ends otherwise"
    return first.split("|")


@pytest.mark.parametrize("backend", ["nonsense", "numpy", "JAX"])
def test_an_unknown_backend_is_told_with_those_that_train(backend):
    what, why, following = failed_start(backend)
    assert what == f"KERAS_BACKEND is {backend!r}, and no lesson can train with that."
    assert "tensorflow, jax, torch" in why and "KERAS_BACKEND" in following and "start the workshop again" in following


def test_a_backend_that_is_not_installed_is_told_with_those_that_are():
    missing = [name for name in training.BACKENDS if not devices.installed(name)]
    if not missing:
        pytest.skip("every backend is installed here")
    what, why, following = failed_start(missing[0])
    assert what == f"KERAS_BACKEND is {missing[0]}, and {training.BACKENDS[missing[0]]} is not installed here."
    assert all((name in why) == devices.installed(name) for name in training.BACKENDS) and "doctor" in following


@pytest.mark.parametrize("package", [False, True])
def test_a_backend_that_breaks_while_it_starts_is_told_with_its_last_words(tmp_path, package):
    fake_tensorflow = tmp_path / ("tensorflow/__init__.py" if package else "tensorflow.py")
    fake_tensorflow.parent.mkdir(exist_ok=True)
    fake_tensorflow.write_text(
        "import os\nos.write(2, b'E0000 dso_loader.cc] libfake.so.12 is missing\\n')\n"
        "raise ImportError('fake_tensorflow does not load')"
    )
    what, why, following = failed_start("tensorflow", tmp_path)
    assert what == "Keras does not start with TensorFlow."
    assert "libfake.so.12 is missing" in why and "ImportError: fake_tensorflow does not load" in why
    assert "doctor" in following


def test_a_broken_tensorflow_is_told_with_its_last_words(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\nos.write(2, b'E0000 fake_plugin.cc] libfake.so.12 is missing\\n')\nraise OSError('does not load')"
    )
    code = (
        "from helpers import training\nfrom helpers.errors import WorkshopError\n"
        "try:\n    training.import_tensorflow()\nexcept WorkshopError as error:\n    print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE.parent)])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("TensorFlow cannot be imported.")
    assert "libfake.so.12 is missing" in done.stdout and "OSError: does not load" in done.stdout
    assert "doctor" in done.stdout


def test_a_lesson_that_needs_tensorflow_says_so_where_there_is_none(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda framework: framework != "tensorflow")
    with pytest.raises(WorkshopError) as told:
        training.import_tensorflow()
    assert told.value.what == "This lesson needs TensorFlow, and it is not installed here."
    assert "lab --accel cpu" in told.value.next


MULTIPLY = """
from helpers import training

tf = training.import_tensorflow()
tf.config.threading.set_intra_op_parallelism_threads(1)
a = tf.random.normal((300, 300)) / 300
print("ready", flush=True)
while True:
    try:
        while True:
            a @ a
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals on Windows")
def test_interrupts_in_the_middle_of_matrix_products_do_no_harm():
    """Without a stack for signals the first interrupt or two end the process, on a processor with AVX-512."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    environment.pop("PYTHONFAULTHANDLER", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", MULTIPLY], **pipes) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            said = [process.stdout.readline()]
            for _ in range(30):
                time.sleep(0.03)  # so that a product is under way
                process.send_signal(signal.SIGINT)
                said.append(process.stdout.readline())
        finally:
            watchdog.cancel()
            process.kill()
    assert said == ["ready\n"] + ["interrupted\n"] * 30


# ---------------------------------------------------------------------------------------------- several devices


def exchange_on_jax(images, labels, cut):
    import keras

    from helpers import models

    if cut:
        layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, 2), ["batch", "model"]))
        layouts[".*/dense/kernel"] = (None, "model")
        layouts[".*/dense_1/kernel"] = ("model", None)
        distribution = keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
    else:
        distribution = keras.distribution.DataParallel()
    keras.distribution.set_distribution(distribution)
    return lesson_08.all_reduces(models.plain_mlp(0.1), images, labels)


@pytest.mark.parametrize("cut", [False, True])
def test_what_the_devices_exchange_is_read_from_the_compiled_program(cut):
    """Gradients of all six weights where the batch is split; activations of 12 images where the weights are."""
    if not devices.installed("jax"):
        pytest.skip("JAX is not installed here")
    two = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    images, labels = np.zeros((12, 784), np.uint8), np.zeros(12, np.uint8)
    added = processes.run(exchange_on_jax, variables=two, images=images, labels=labels, cut=cut).result
    exchanged = sorted(shape for line in added for shape in line.split())
    if cut:
        assert exchanged == ["f32[12,512]"]
    else:
        sizes = [int(np.prod([int(size) for size in shape[4:-1].split(",")])) for shape in exchanged]
        assert sorted(sizes) == sorted([784 * 512, 512, 512 * 512, 512, 512 * 10, 10])


def test_means_so_far_are_those_that_keras_shows():
    assert lesson_08.running_mean([1.0, 3.0, np.float32(5.0)]) == [1.0, 2.0, 3.0]
    assert lesson_08.running_mean([]) == []


# ---------------------------------------------------------------------------------------------- what pays


def measured(times, spread=0.01):
    """A `measure` that knows the seconds of each form by the names of its options."""
    asked = []

    def measure(**options):
        asked.append(options)
        seconds = times[frozenset(options)]
        if isinstance(seconds, Exception):
            raise seconds
        return Measurement("step", "made up", tuple(seconds + d * spread for d in (-1, -0.5, 0, 0.5, 1)))

    return measure, asked


def form(*options):
    return frozenset(options)


def test_a_clear_gain_is_kept_and_the_next_is_tried_on_top():
    measure, asked = measured({form(): 1.0, form("a"): 0.8, form("a", "b"): 0.79, form("a", "c"): 0.5})
    candidates = {"first": {"a": 1}, "second": {"b": 2}, "third": {"c": 3}}
    kept, trials = lesson_05.greedy_ablation(measure, candidates)
    assert kept == {"a": 1, "c": 3}
    assert asked == [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 3}]
    assert [(trial.name, trial.verdict) for trial in trials] == [
        ("start", "start"), ("first", "kept"), ("second", "dropped: no clear gain"), ("third", "kept"),
    ]  # fmt: skip
    assert [trial.run.median for trial in trials] == [1.0, 0.8, 0.79, 0.5]


def test_what_is_slower_and_what_lies_within_the_spread_is_dropped():
    measure, _ = measured({form(): 1.0, form("slow"): 2.0, form("same"): 0.9}, spread=0.2)
    kept, trials = lesson_05.greedy_ablation(measure, {"slow": {"slow": 1}, "same": {"same": 1}})
    assert kept == {}
    assert [trial.verdict for trial in trials[1:]] == ["dropped: slower", "dropped: no clear gain"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError("no such\noperation"), "no such"), (ValueError(), "ValueError"), (RuntimeError("x" * 200), "x" * 80)],
)
def test_what_is_not_possible_is_told_and_the_others_are_tried(error, reason):
    measure, _ = measured({form(): 1.0, form("a"): error, form("b"): 0.5})
    kept, trials = lesson_05.greedy_ablation(measure, {"broken": {"a": 1}, "better": {"b": 1}})
    assert kept == {"b": 1}
    assert trials[1] == lesson_05.Trial("broken", None, f"not possible here: {reason}")


def test_an_interrupt_ends_the_trials():
    def measure(**options):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lesson_05.greedy_ablation(measure, {"any": {"a": 1}})


def test_without_candidates_the_start_is_all():
    measure, _ = measured({form(): 1.0})
    kept, trials = lesson_05.greedy_ablation(measure, {})
    assert kept == {} and [trial.name for trial in trials] == ["start"]


def test_a_change_may_take_back_what_was_kept():
    times = {form("size"): 0.5, form(): 1.0}
    kept, _ = lesson_05.greedy_ablation(measured(times)[0], {"large": {"size": 2}, "small": {"size": 1}})
    assert kept == {"size": 2}


# ---------------------------------------------------------------------------------------------- the module


def test_importing_is_light():
    code = "import sys, helpers.training, helpers.models; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HERE.parent)
    assert not {"tensorflow", "jax", "torch", "keras", "IPython", "matplotlib", "h5py"} & set(done.stdout.split())
