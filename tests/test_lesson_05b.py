"""Lesson 05b's own machinery: what three series of times let one claim."""

from helpers.lessons import lesson_05b


def test_a_gap_counts_only_beside_twins_that_agree():
    def make_times(median):
        return [median - 0.01, median, median + 0.01] * 5

    for twin, expected in ((1.0, "faster"), (1.3, "no claim")):
        assert lesson_05b.claim(make_times(1.0), make_times(twin), make_times(0.5)) == expected
    assert lesson_05b.claim(make_times(1.0), make_times(1.0), make_times(1.2)) == "slower"
