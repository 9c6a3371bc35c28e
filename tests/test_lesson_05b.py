"""Lesson 05b's own machinery: its rules about timings."""

import numpy as np

from helpers.lessons import lesson_05b
from helpers.measure import timing


def test_the_same_work_is_claimed_to_differ_more_often_by_the_plain_rule():
    first, second = 1 + np.random.default_rng(0).standard_exponential((2, 5000))
    by_course = lesson_05b.false_claims(first, second, 5, lambda a, b: timing.decide(a, b) != "no claim")
    by_gap = lesson_05b.false_claims(first, second, 5, lambda a, b: np.median(a) != np.median(b))
    assert by_course < 0.04 and by_gap > 0.95


def test_a_gap_counts_only_beside_twins_that_agree():
    def make_times(median):
        return [median - 0.01, median, median + 0.01] * 5

    for twin, expected in ((1.0, "faster"), (1.3, "no claim")):
        assert lesson_05b.claim(make_times(1.0), make_times(twin), make_times(0.5)) == expected
    assert lesson_05b.claim(make_times(1.0), make_times(1.0), make_times(1.2)) == "slower"
