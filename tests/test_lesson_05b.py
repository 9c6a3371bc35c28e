"""Lesson 05b's own machinery: its rule about timings."""

import numpy as np

from helpers.lessons import lesson_05b
from helpers.measure import timing


def test_the_same_work_is_claimed_to_differ_more_often_by_the_plain_rule():
    first, second = 1 + np.random.default_rng(0).standard_exponential((2, 5000))
    by_course = lesson_05b.false_claims(first, second, 5, lambda a, b: timing.decide(a, b) != "no claim")
    by_gap = lesson_05b.false_claims(first, second, 5, lambda a, b: np.median(a) != np.median(b))
    assert by_course < 0.04 and by_gap > 0.95
