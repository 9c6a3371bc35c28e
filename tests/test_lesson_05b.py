"""Lesson 05b's own machinery: its rule about timings, and what it counts."""

import types

import numpy as np

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
