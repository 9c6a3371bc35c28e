"""Lesson 05b's own machinery: its rule about timings, and the forms of its network on real backends."""

import functools
import statistics

import numpy as np
import pytest
from on_backend import record  # noqa: F401  (a fixture)

from helpers import devices
from helpers.lessons import lesson_05b
from helpers.measure import timing


@pytest.mark.parametrize(
    "quartiles", [statistics.quantiles, functools.partial(statistics.quantiles, method="inclusive")]
)
def test_every_usual_quartile_decides_the_made_up_timings_alike(quartiles):
    verdicts = set()
    for before, after in lesson_05b._make_timings(np.random.default_rng()):
        low_high = [quartiles(seconds, n=4) for seconds in (before, after)]
        bar = max(q[2] - q[0] for q in low_high) * timing.min_spreads(min(len(before), len(after)))
        gap = statistics.median(after) - statistics.median(before)
        expected = "no claim" if abs(gap) <= bar else "slower" if gap > 0 else "faster"
        assert timing.decide(before, after) == expected, (before, after)
        verdicts.add(expected)
    assert verdicts == {"faster", "slower", "no claim"}


def test_the_same_work_is_claimed_to_differ_more_often_by_the_plain_rule():
    times = 1 + np.random.default_rng(0).standard_exponential(500)
    by_course = lesson_05b.false_claims(times, 5, lambda before, after: timing.decide(before, after) != "no claim")
    by_gap = lesson_05b.false_claims(times, 5, lambda before, after: np.median(before) != np.median(after))
    assert by_course < 0.04 and by_gap > 0.95


# ------------------------------------------------------------------------------------------------------- its network


def rounding_of(noted):
    """What two ways to one result may differ by: a GPU may multiply with the 10 binary digits of TF32, not with 23."""
    return 1e-3 if "GPU)" in noted["started"]["devices"][0] else 1e-6


def test_every_form_answers_and_learns_alike_from_the_same_weights(record):  # noqa: F811
    forms, rounding = record["forms"], rounding_of(record)
    assert forms["policy"] == "float32" and forms["step"] > 1e-3
    assert {"Im2colConv2D", "SliceMaxPooling2D"} < set(forms["classes"])
    assert len(forms["answers"]) == len(forms["steps"]) == 4
    for name, gap in forms["answers"].items():
        assert gap < (1e-2 if "bfloat16" in name else rounding), name
    for name, gap in forms["steps"].items():
        # A pixel that is the largest of four by a rounding error alone may lose to another in another form.
        assert gap < (0.3 if "bfloat16" in name else 0.03) * forms["step"], name


def test_the_two_layers_compute_what_those_of_keras_compute_on_odd_sizes_too(record):  # noqa: F811
    assert max(record["layers_alone"]["same"]) < rounding_of(record)


@pytest.mark.slow
@pytest.mark.skipif(not devices.is_installed("jax"), reason="needs JAX")
def test_another_backend_trains_in_a_process_of_its_own():
    """Under `preview` the notebook leaves it out."""
    images = np.zeros((8, 28, 28, 1), np.uint8)
    both = lesson_05b.time_product_on("jax", images, np.zeros(8, np.uint8), batch=4, seconds=1)
    assert all(run.seconds and "JAX" in run.device for run in both)
