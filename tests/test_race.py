"""`race` on a real training with few images: the ways compute the same."""

import argparse

import pytest

from helpers import devices
from helpers.commands import race
from helpers.errors import WorkshopError
from helpers.running import processes
from helpers.training import data


def test_an_epoch_is_no_run_of_its_own(capsys):
    """Three processes of twenty epochs each are three runs, which cannot claim what sixty could."""
    other = {"accuracy": 0.9, "trained_on": "images", "device": "CPU"}
    times = {"article": (1.0, 1.1, 1.2), "lesson": (0.9, 0.95, 1.05)}
    results = {("jax", "mlp", way): [{"seconds": [9] + [s] * 20, **other} for s in of] for way, of in times.items()}
    race.report(results)
    assert "3 runs need" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused_before_the_download(monkeypatch):
    monkeypatch.setattr(data, "load_mnist", lambda: pytest.fail("downloads"))
    with pytest.raises(WorkshopError, match="nothing to compare"):
        race.run(argparse.Namespace(epochs=1))


needs_jax = pytest.mark.skipif(not devices.is_installed("jax"), reason="needs JAX")


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize(("network", "parameters"), [("mlp", 669_706), ("cnn", 1_199_882)])
def test_from_one_seed_all_ways_train_the_same_network(network, parameters):
    results = []
    for way in race.WAYS[network]:
        given = {"network": network, "way": way, "seed": 0, "epochs": 2, "images": 256}
        run = processes.run(race.train, seconds=600, variables={"KERAS_BACKEND": "jax"}, arguments=given)
        results.append(run.result)
    assert {result["parameters"] for result in results} == {parameters}
    article, lesson, *_ = (result["accuracy"] for result in results)  # im2col begins with other weights
    assert lesson == pytest.approx(article, abs=0.02)
    for result in results:
        assert len(result["seconds"]) == 2 and min(result["seconds"]) > 0
        assert "JAX" in result["device"] and "256 images" in result["trained_on"]
