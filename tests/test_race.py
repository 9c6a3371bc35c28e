"""`race` on a real training with few images: both ways are what they say, and what cannot be measured is refused."""

import importlib.util
import json
import subprocess
import sys

import pytest

from helpers.__main__ import main
from helpers.compute import devices
from helpers.maintain import race

needs_its_packages = pytest.mark.skipif(
    not (devices.installed("jax") and importlib.util.find_spec("pyperf")), reason="needs JAX and pyperf"
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Train the MLP both ways; return (the status, what is printed, pyperf's benchmark by the way's name)."""
    import pyperf

    folder = tmp_path_factory.mktemp("race")
    (folder / "lesson.json").write_text("of an earlier run", encoding="utf-8")
    arguments = ["--backend", "jax", "--network", "mlp", "--images", "256", "--epochs", "3", "--rounds", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "FOLDER", folder)
        patch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
        patch.setenv("KERAS_BACKEND", "nonsense")  # which means nothing here
        status = main(["race", *arguments])
    found = {way: pyperf.BenchmarkSuite.load(str(folder / f"{way}.json")) for way in ("article", "lesson")}
    return status, {way: suite.get_benchmarks()[0] for way, suite in found.items()}, folder


@pytest.mark.slow
@needs_its_packages
def test_each_way_ran_in_processes_of_its_own_and_the_first_epoch_counts_nowhere(ran):
    status, found, _ = ran
    assert status == 0
    for way in ("article", "lesson"):
        assert found[way].get_name() == "jax mlp"
        for run in found[way].get_runs():
            assert len(run.values) == 2 and len(run.warmups) == 1 and run.warmups[0][1] > min(run.values) > 0
            known = run.get_metadata()
            assert known["parameters"] == 669_706 and 0.1 < known["accuracy"] <= 1
            assert 100 < known["mem_max_rss"] / 2**20 < 10_000
            assert "JAX" in known["device"] and "256 images" in known["trained_on"]
        assert len(found[way].get_runs()) == 1  # and nothing of an earlier call


@pytest.mark.slow
@needs_its_packages
def test_the_report_names_device_dataset_and_the_epochs_and_compares_both(ran, monkeypatch, capfd):
    monkeypatch.setattr(race, "FOLDER", ran[2])
    race._report()
    text = capfd.readouterr().out
    known = ran[1]["lesson"].get_runs()[0].get_metadata()
    assert known["device"] in text and known["trained_on"] in text
    assert "article against lesson" in text and "im2col" not in text


@needs_its_packages
def test_what_fails_is_told_and_the_rest_goes_on(monkeypatch, tmp_path, capfd):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise ImportError('half of it is gone')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(race, "FOLDER", tmp_path / "build")
    assert main(["race", "--backend", "jax", "--network", "mlp", "--images", "256", "--rounds", "1"]) == 1
    text = capfd.readouterr().out
    assert text.count("seed 0: failed") == 2 and "ImportError: half of it is gone" in text


@pytest.mark.parametrize("arguments", [["--epochs", "1"], ["--rounds", "0"]])
def test_what_cannot_be_measured_is_refused(arguments, capsys):
    assert main(["race", *arguments]) == 2
    assert "nothing to compare" in capsys.readouterr().err


# All ways compute the same. In a process of its own, because Keras keeps the backend of its import.
SAME = """
import json
from unittest import mock
import keras
from helpers.maintain import race
seen = {}
def fit(model, x, y, **how):
    seen[key] = [type(layer).__name__ for layer in model.layers] + [str(x.dtype), model.count_params()]
    weights[:] = weights or model.get_weights()
    model.set_weights(weights)
    losses[key] = model.evaluate(x, y, verbose=0)[0]
    return mock.Mock(history={"val_accuracy": [0.5]})
losses = {}
with mock.patch.object(keras.Model, "fit", fit):
    for network, ways in race.WAYS.items():
        weights = []
        for way in ways:
            key = f"{network} {way}"
            race.train(network, way, 0, 1, 32)
print(json.dumps([seen, losses]))
"""


@pytest.mark.slow
@needs_its_packages
def test_all_ways_compute_the_same_with_what_they_say(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    done = subprocess.run([sys.executable, "-c", SAME], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seen, losses = json.loads(done.stdout.splitlines()[-1])
    for network, ways in race.WAYS.items():
        assert [losses[f"{network} {way}"] for way in ways] == pytest.approx([losses[f"{network} article"]] * len(ways))
    assert seen["mlp article"][-2:] == ["float32", 669_706] and seen["mlp lesson"][-2:] == ["uint8", 669_706]
    assert seen["cnn article"][-1] == seen["cnn lesson"][-1] == seen["cnn im2col"][-1] == 1_199_882
    assert seen["cnn lesson"][:4] == ["Rescaling", "Conv2D", "Conv2D", "MaxPooling2D"]
    assert seen["cnn im2col"][1] == seen["cnn im2col"][2] != "Conv2D" and seen["cnn im2col"][3] != "MaxPooling2D"
