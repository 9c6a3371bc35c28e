"""`race` on a real training with few images: the ways compute the same."""

import pytest

from helpers.commands import race
from helpers.compute import devices, processes

needs_jax = pytest.mark.skipif(not devices.installed("jax"), reason="needs JAX")


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
