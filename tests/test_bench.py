"""`bench` on real trainings with few images, on an installation that is broken, and on made-up figures."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest

from helpers import ROOT, devices, processes
from helpers.__main__ import main
from helpers.maintain import bench

LARGE = "glibc.malloc.hugetlb=1"
needs_both = pytest.mark.skipif(
    not (devices.installed("jax") and devices.installed("tensorflow")), reason="needs TensorFlow and JAX"
)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A folder that hides TensorFlow from a new process behind one whose import fails."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow" / "__init__.py").write_text("raise ImportError('half of it is gone')\n", encoding="utf-8")
    return str(folder)


def command(build, path, *arguments):
    """Run the command here, with its report in the folder `build`, and return its status and the report's processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "BUILD", build)
        patch.setenv("PYTHONPATH", path)
        patch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
        patch.setenv("KERAS_BACKEND", "nonsense")  # which means nothing here
        status = main(["bench", *arguments])
    return status, json.loads((build / "bench.json").read_text(encoding="utf-8"))["processes"]


# ---------------------------------------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def ran(broken, tmp_path_factory):
    """Measure a broken TensorFlow and then JAX; return (status, processes, build)."""
    build = tmp_path_factory.mktemp("build")
    chosen = ("--backend", "tensorflow", "--backend", "jax", "--network", "mlp", "--images", "256", "--rounds", "1")
    return *command(build, broken, *chosen), build


@needs_both
def test_both_ways_are_what_they_say(ran):
    article, ours = (row for row in ran[1] if row["backend"] == "jax")
    assert (article["way"], ours["way"]) == ("article", "ours")
    assert (article["images_dtype"], ours["images_dtype"]) == ("float32", "uint8")
    assert (article["loss"], ours["loss"]) == ("categorical_crossentropy", "sparse_categorical_crossentropy")
    assert (article["tunables"], ours["tunables"]) == ("", LARGE if sys.platform == "linux" else "")
    for row in (article, ours):
        assert row["parameters"] == 669_706 and row["images"] == 256 < row["images_of"] and "JAX" in row["device"]


@needs_both
def test_every_figure_is_measured(ran):
    for row in (row for row in ran[1] if row["backend"] == "jax"):
        assert len(row["epoch_seconds"]) == 2 and min(row["epoch_seconds"]) > 0
        assert sum(row["epoch_seconds"]) <= row["fit_seconds"] <= row["process_seconds"] - row["import_seconds"]
        assert 100 < row["peak_mib"] < 10_000 and 0.1 < row["accuracy"] <= 1 and row["import_seconds"] > 0


@needs_both
def test_a_process_that_fails_is_told_and_the_rest_goes_on(ran):
    status, rows, build = ran
    assert status == 1 and [row["backend"] for row in rows if "error" in row] == ["tensorflow", "tensorflow"]
    text = (build / "bench.md").read_text(encoding="utf-8")
    assert "tensorflow mlp article, seed 0 failed: ImportError: half of it is gone" in text
    assert "KERAS_BACKEND" in text and "-m helpers.bench article mlp 2 0 --images 256" in text


@needs_both
def test_the_report_names_device_dataset_images_and_claims_nothing_of_one_epoch(ran):
    text = (ran[2] / "bench.md").read_text(encoding="utf-8")
    row = ran[1][-1]
    assert f"Device: {row['device']}. Dataset: {row['dataset']}." in text and "keras 3" in text
    tables = [line for line in text.splitlines() if line.startswith("| jax")]
    assert len(tables) == 3 and all(f"256 of {row['images_of']:,}" in line for line in tables)
    assert "no claim: fewer than 3 epochs counted" in tables[2]


@needs_both
def test_without_a_choice_of_options_the_article_is_measured_alone(broken, tmp_path):
    status, rows = command(tmp_path, broken, "--backend", "tensorflow", "--network", "cnn", "--rounds", "1")
    assert status == 1 and [row["way"] for row in rows] == ["choose", "article"]
    assert all("half of it is gone" in " ".join(row["error"]) for row in rows)


# What both ways compute must be the same. In a process of its own, because Keras keeps the backend of its import.
SAME = """
import contextlib, json, sys
import numpy as np
from helpers import training
from helpers.maintain import trials as bench
with contextlib.redirect_stdout(sys.stderr):
    training.start()
    rng = np.random.default_rng(0)
    arrays = *(array for _ in range(2) for array in (rng.integers(0, 256, (64, 28, 28), np.uint8),
                                                     rng.integers(0, 10, 64, np.uint8))),
    def look(make, *options):
        training.seed(0)
        model, (_, _, x, y) = make(*arrays, *options)
        optimizer = model.optimizer
        return {"loss": model.evaluate(x, y, verbose=0)[0], "inputs": str(x.dtype),
                "layers": [type(layer).__name__ for layer in model.layers], "optimizer": type(optimizer).__name__,
                "rate": round(float(optimizer.learning_rate), 6), "parameters": model.count_params(),
                "steps": model.steps_per_execution, "jit": model.jit_compile}
    fast = {"matrix": True, "four": True, "steps_per_execution": 4, "jit_compile": False}
    seen = {"mlp": [look(bench.article_mlp), look(bench.our_mlp)],
            "cnn": [look(bench.article_cnn), look(bench.our_cnn, {}), look(bench.our_cnn, fast)]}
    bench.STEPS, bench.TRIALS, tried = 1, 3, []
    bench.CANDIDATES = {"impossible": {"precision": "float7"}, "XLA": {"jit_compile": True}}
    seen["choice"] = bench.choose(128)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def same():
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        [sys.executable, "-c", SAME],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@needs_both
@pytest.mark.parametrize(
    "network, optimizer, rate, parameters",
    [("mlp", "RMSprop", 0.001, 669_706), ("cnn", "Adadelta", 1.0, 1_199_882)],
)
def test_both_ways_train_the_same_network(same, network, optimizer, rate, parameters):
    article, *ours = same[network]
    assert all(one["loss"] == pytest.approx(article["loss"], rel=1e-4) for one in ours)
    for one in (article, *ours):
        assert (one["optimizer"], one["rate"], one["parameters"]) == (optimizer, rate, parameters)
    assert article["inputs"] == "float32" and ours[-1]["inputs"] == "uint8"


@needs_both
def test_options_reach_the_network_and_its_compiling(same):
    article, start, fast = same["cnn"]
    assert (article["steps"], start["steps"], fast["steps"], same["mlp"][1]["steps"]) == (1, 1, 4, 16)
    assert start["jit"] and not fast["jit"] and start["inputs"] == "uint8"
    assert start["layers"] == ["Rescaling", *article["layers"]]
    assert article["layers"][:3] == ["Conv2D", "Conv2D", "MaxPooling2D"]
    assert fast["layers"][:4] == ["Rescaling", "MatrixConv2D", "MatrixConv2D", "LargestOfFour"]


@needs_both
def test_a_choice_tries_what_the_backend_can_and_says_what_it_took(same):
    choice = same["choice"]
    assert [trial["name"] for trial in choice["trials"]] == ["start", "impossible"] and choice["kept"] == {}
    assert len(choice["trials"][0]["seconds"]) == 3 and choice["trials"][1]["verdict"].startswith("not possible here")
    assert choice["choosing_seconds"] > 0 and choice["peak_mib"] > 100


def test_a_process_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(bench, "TIMEOUT", 0.2)
    row = bench._process("jax", "mlp", "article", 2, 0)
    assert row["error"][0] == "It had not ended after 0.2 s and was ended."


@pytest.mark.parametrize(
    "status, stderr, what, why",
    [
        (-9, "", "ended by SIGKILL", "memory"),
        (3, "first\nlast words\n\n", "status 3", "last words"),
        (0, "", "status 0", ""),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_process_without_an_answer_is_put_into_words(status, stderr, what, why):
    said = bench._how_it_ended(processes.Finished(status, "", stderr, 1.0))
    assert what in said[0] and why in said[1]


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C reaches a process differently there")
@needs_both
def test_ctrl_c_ends_all_and_keeps_what_was_measured(broken, tmp_path):
    code = (
        "import pathlib, sys; from helpers.__main__ import main; from helpers.commands import bench\n"
        "bench.BUILD = pathlib.Path(sys.argv[1]); sys.exit(main(['bench', *sys.argv[2:]]))"
    )
    arguments = [
        "--backend",
        "tensorflow",
        "--backend",
        "jax",
        "--network",
        "mlp",
        "--epochs",
        "10000",
        "--rounds",
        "1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": broken}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    seen, end = 0, time.monotonic() + 120
    while seen < 2 and time.monotonic() < end:  # both processes of the broken backend have ended
        seen += "seed 0 failed" in process.stdout.readline()
    children = []
    while not children and process.poll() is None and time.monotonic() < end:
        children = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in out + err, out + err
    assert children and psutil.wait_procs(children, timeout=10)[1] == []
    report = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert report["interrupted"] and len(report["processes"]) == 2
    assert "was interrupted" in (tmp_path / "bench.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--backend", "theano"], "no backend called 'theano'"),
        (["--epochs", "1"], "--epochs 1 is too few"),
        (["--epochs", "0", "--accuracy"], "--epochs 0 is too few"),
        (["--rounds", "0"], "0 rounds measure nothing"),
        (["--images", "100"], "100 images do not fill one batch"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_message(arguments, told, capsys):
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr().err
    assert told in said and "Next: " in said


def test_a_backend_that_is_not_installed_is_refused_with_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(devices, "installed", lambda name: name == "jax")
    assert main(["bench", "--backend", "torch"]) == 2
    said = capsys.readouterr().err
    assert "PyTorch is not installed here" in said and "Installed are: jax" in said and "--with torch" in said
    assert bench._backends(None) == ["jax"] and bench._backends(["jax", "jax"]) == ["jax"]


def test_wrong_data_stops_it_before_anything_is_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "BUILD", tmp_path / "build")
    monkeypatch.setenv("ANYGPU_MNIST", str(tmp_path / "missing.npz"))
    assert main(["bench"]) == 2
    assert "there is no such file" in capsys.readouterr().err and not (tmp_path / "build").exists()


# ---------------------------------------------------------------------------------------------- in which order

TOOK = {
    "import_seconds": 1.0,
    "fit_seconds": 9.0,
    "images": 60_000,
    "images_of": 60_000,
    "dataset": "MNIST",
    "device": "X",
}
KEPT = {"uint8": True, "precision": "mixed_bfloat16"}


def fake_run(started):
    """Stands in for the processes of a whole CNN, which take minutes; notes what was started and answers at once."""

    def run(asked, timeout, env):
        way, network, epochs, seed, *rest = asked[asked.index("helpers.bench") + 1 :]
        started.append((env["KERAS_BACKEND"], way, network, int(epochs), int(seed), rest, env.get("GLIBC_TUNABLES")))
        said = {"epoch_seconds": [5.0] * int(epochs), "accuracy": 0.9 + int(seed) / 100, "peak_mib": 500.0, **TOOK}
        choice = {"kept": KEPT, "choosing_seconds": 60.0, "peak_mib": 900.0, "device": "X"}
        choice["trials"] = [{"name": "start", "seconds": [1.0], "verdict": ""}]
        return processes.Finished(0, json.dumps(choice if way == "choose" else said), "", 1.0)

    return run


@pytest.fixture
def started(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(devices, "run", fake_run(started))
    monkeypatch.setattr(devices, "installed", lambda name: True)
    monkeypatch.setattr(devices, "cpu_name", lambda: "a processor")
    monkeypatch.setattr(bench, "_fetch_data", lambda: None)
    monkeypatch.setattr(bench, "BUILD", tmp_path)
    return started


def test_both_ways_take_turns_and_ours_gets_what_was_kept(started, tmp_path):
    assert main(["bench", "--network", "cnn", "--rounds", "2"]) == 0
    large = LARGE if sys.platform == "linux" else None
    options = ["--options", json.dumps(KEPT)]
    one = [("choose", "cnn", 0, 0, [], large)]
    one += [
        turn
        for seed in (0, 1)
        for turn in (("article", "cnn", 2, seed, [], None), ("ours", "cnn", 2, seed, options, large))
    ]
    assert started == [(backend, *turn) for backend in ("tensorflow", "jax") for turn in one]
    text = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert "kept uint8=True, precision=mixed_bfloat16. Choosing took 60 s and 900 MiB" in text


def test_accuracy_is_that_of_three_full_trainings(started, tmp_path):
    assert main(["bench", "--accuracy", "--backend", "jax"]) == 0
    trained = [entry[1:5] for entry in started if entry[1] != "choose"]
    assert trained == [
        ("ours", network, epochs, seed) for network, epochs in (("mlp", 10), ("cnn", 12)) for seed in range(3)
    ]
    table = [
        line
        for line in (tmp_path / "bench-accuracy.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| jax")
    ]
    assert all("90.00 %, 91.00 %, 92.00 % | 0, 1, 2 | 91.00 %" in " ".join(line.split()) for line in table[:2])
    assert "60,000 MNIST" in table[0] and " of 60,000" not in table[0]


# ---------------------------------------------------------------------------------------------- the arithmetic


def rows(way, epochs, peak=500.0, accuracy=0.99, **changes):
    """Return one process for each list of epochs' seconds, its seed being its place."""
    same = {"backend": "jax", "network": "mlp", "way": way, "epochs": 2, "peak_mib": peak, "accuracy": accuracy}
    return [{**TOOK, **same, "epoch_seconds": seconds, "seed": seed, **changes} for seed, seconds in enumerate(epochs)]


def test_the_first_epoch_counts_nowhere_and_failures_neither():
    made = [*rows("article", [[99.0, 2.0, 3.0], [98.0, 4.0]]), *rows("ours", [[9.0, 1.0]])]
    made.append({"backend": "jax", "network": "mlp", "way": "ours", "error": ["gone", "", ""]})
    article, ours = bench.summarise(made)
    assert article.epoch.seconds == (2.0, 3.0, 4.0) and article.epoch.median == 3.0
    assert ours.epoch.seconds == (1.0,) and list(ours.accuracies) == [0]


def test_medians_are_over_processes():
    made = [*rows("ours", [[1.0, 1.0]] * 3)]
    for row, value in zip(made, (10.0, 30.0, 11.0), strict=True):
        row.update(fit_seconds=value, import_seconds=value + 1, peak_mib=value + 2, accuracy=value / 100)
    (one,) = bench.summarise(made)
    assert (one.fit, one.imported, one.peak, one.accuracy) == (11.0, 12.0, 13.0, 0.11)


@pytest.mark.parametrize(
    "article, ours, ratio",
    [
        ([3.0, 3.1, 2.9], [2.0, 2.1, 1.9], 1.5),
        ([2.0, 2.1, 1.9], [4.0, 4.1, 3.9], 0.5),
        ([3.0, 9.0, 1.0], [2.0, 2.1, 1.9], None),  # the article's spread is larger than the gap
        ([3.0, 3.1, 2.9], [2.0, 9.0, 1.0], None),  # ours is
        ([3.0, 3.1], [2.0, 2.1, 1.9], None),  # two epochs have no spread to speak of
        ([3.0, 3.1, 2.9], [2.0], None),
    ],
)
def test_a_speed_is_only_claimed_where_the_gap_is_larger_than_the_spread(article, ours, ratio):
    made = rows("article", [[9.0, one] for one in article]) + rows("ours", [[9.0, one] for one in ours])
    one, other = bench.summarise(made)
    assert bench.speed(one, other) == (ratio and pytest.approx(ratio))
    said = bench.ratios([one, other]).rows[0][2]
    assert said == f"{ratio:.2f}" if ratio else said.startswith("no claim")


def test_the_ratios_have_the_right_way_round():
    made = rows("article", [[9.0, 3.0]] * 3, peak=1000.0, accuracy=0.985) + rows("ours", [[9.0, 2.0]] * 3, 600.0, 0.983)
    table = bench.ratios(bench.summarise(made))
    assert list(table.rows[0][:5]) == ["jax", "mlp", "1.50", "0.60", "-0.20 points"]
    assert [name.split(":")[1].strip() for name in table.headers[2:5]] == [
        "article / ours",
        "ours / article",
        "ours - article",
    ]


def test_one_way_alone_has_no_ratio():
    assert bench.ratios(bench.summarise(rows("article", [[9.0, 3.0]]))).rows == []


@pytest.mark.parametrize("way", ["ours", "choose"])
def test_a_failure_says_what_to_type_to_see_it_all(way):
    row = {"backend": "jax", "network": "cnn", "way": way, "seed": 1, "error": ["It broke.", "Because.", ""]}
    row["arguments"] = shlex.join(["-m", "helpers.bench", way, "cnn", "2", "1", "--options", '{"uint8": true}'])
    said = str(bench._failure(row))
    assert "It broke." in said and "Why:  Because." in said and "KERAS_BACKEND" in said and row["arguments"] in said
    assert str(bench._failure({**row, "error": ["It broke.", "", "Mend it."]})).endswith("Next: Mend it.")
