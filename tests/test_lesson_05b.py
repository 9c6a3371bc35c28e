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
    def time_forms(twin):
        seconds = {"article": 1.0, "again": twin, "fast": 0.5, "near": 0.97}
        return {
            name: timing.Measurement(name, "", (each - 0.01, each, each + 0.01) * 5) for name, each in seconds.items()
        }

    assert lesson_05b.judge_forms(time_forms(1.0)) == {"again": "no claim", "fast": "faster", "near": "faster"}
    assert lesson_05b.judge_forms(time_forms(1.3)) == {"again": "slower", "fast": "no claim", "near": "no claim"}
