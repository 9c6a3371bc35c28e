"""Lesson 05b's own machinery: its rule about timings, what it counts, and the forms of its network on real backends."""

import types

import numpy as np
from on_backend import record  # noqa: F401  (a fixture)

from helpers.lessons import lesson_05b
from helpers.measure import timing


def test_the_same_work_is_claimed_to_differ_more_often_by_the_plain_rule():
    first, second = 1 + np.random.default_rng(0).standard_exponential((2, 5000))
    by_course = lesson_05b.false_claims(first, second, 5, lambda a, b: timing.decide(a, b) != "no claim")
    by_gap = lesson_05b.false_claims(first, second, 5, lambda a, b: np.median(a) != np.median(b))
    assert by_course < 0.04 and by_gap > 0.95


def test_the_work_of_a_layer_is_counted():
    def layer(*shapes):
        weights = [np.zeros(shape) for shape in shapes]
        return types.SimpleNamespace(weights=weights, kernel=weights[0] if weights else None)

    convolution = lesson_05b.count_work(layer((3, 3, 32, 64), (64,)), (2, 26, 26, 32), (2, 24, 24, 64))
    assert convolution[0] == 2 * 2 * 10_616_832  # exam question 9 counts the multiplications of one image
    assert convolution[1] == 4 * (2 * 26 * 26 * 32 + 2 * 24 * 24 * 64 + 18_496)
    assert lesson_05b.count_work(layer((784, 10), (10,)), (2, 784), (2, 10)) == (2 * 2 * 7840, 4 * (1568 + 20 + 7850))
    assert lesson_05b.count_work(layer(), (2, 4, 4, 1), (2, 2, 2, 1)) == (32, 4 * 40)


# ------------------------------------------------------------------------------------------------------- its network


def rounding_of(noted):
    """What two ways to one result may differ by: a GPU may multiply with the 10 binary digits of TF32, not with 23."""
    return 1e-3 if "GPU)" in noted["started"]["devices"][0] else 1e-6


def test_every_form_answers_and_learns_alike_from_the_same_weights(record):  # noqa: F811
    forms, rounding = record["forms"], rounding_of(record)
    assert forms["policy"] == "float32" and forms["step"] > 1e-3
    assert "ProductConv2D" in forms["classes"]
    assert len(forms["answers"]) == len(forms["steps"]) == 3
    for name, gap in forms["answers"].items():
        assert gap < (1e-2 if "bfloat16" in name else rounding), name
    for name, gap in forms["steps"].items():
        # A pixel that is the largest of four by a rounding error alone may lose to another in another form.
        assert gap < (0.3 if "bfloat16" in name else 0.03) * forms["step"], name


def test_the_product_computes_what_keras_convolution_computes_on_odd_sizes_too(record):  # noqa: F811
    assert max(record["layers_alone"]["same"]) < rounding_of(record)
