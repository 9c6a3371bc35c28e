"""Lesson 05's own machinery: its figures, and the memory that a training leaves behind."""

import numpy as np
import pytest
from on_backend import record  # noqa: F401  (a fixture)

from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons import lesson_05


def test_the_sums_of_a_moved_digit_are_the_moved_sums():
    rng = np.random.default_rng(0)
    images = np.pad(rng.integers(0, 256, (1, 8, 6)), ((0, 0), (10, 10), (9, 13)))
    weights = rng.integers(-3, 4, (3, 3))
    moved = lesson_05.shift_right(images, 3)
    assert moved.shape == images.shape and moved.sum() == images.sum()
    sums, moved_sums = (lesson_05.convolve(stack[0], weights) for stack in (images, moved))
    assert sums.shape == (26, 26) and np.array_equal(moved_sums[:, 3:], sums[:, :-3])


def test_what_was_recorded_stands_beside_mnist_alone(monkeypatch):
    shown = []
    monkeypatch.setattr(lesson_05, "show", lambda figure, alt: shown.append((len(figure.axes[0].lines), alt)))
    for dataset in ("MNIST", "digits stand-in (not MNIST)"):
        lesson_05.draw_right_against_shift({"CNN": [90.0] * 7, "MLP": [80.0] * 7}, "moved", dataset)
    assert [lines for lines, _ in shown] == [4, 2]
    assert ["recorded" in alt for _, alt in shown] == [True, False]


@pytest.mark.parametrize("place", [{"y": 26, "x": 0}, {"y": 0, "x": -1}])
def test_a_place_that_is_not_there_is_named(place):
    with pytest.raises(WorkshopError, match=rf"(?s)y={place['y']}, x={place['x']}\b.*0 to 25"):
        lesson_05.draw_one_place(np.zeros((28, 28)), np.ones((3, 3)), **place)


def test_a_network_that_reads_enough_after_enough_images_is_right():
    assert "81 %" in lesson_05.judge_share(81, 6_400)


def test_a_network_whose_training_was_interrupted_is_not_judged_by_what_it_reads():
    with pytest.raises(checks.NotJudged, match=r"(?s)6,400 images.*36 %.*1,280"):
        lesson_05.judge_share(36, 1_280)


def test_a_network_that_reads_little_after_enough_images_is_refused():
    with pytest.raises(checks.NotYet, match="57 %"):
        lesson_05.judge_share(57, 6_400)


# ------------------------------------------------------------------------------------------------------- its memory


def test_a_training_that_is_over_leaves_no_graph_with_its_weights_in_tensorflow(record):  # noqa: F811
    assert not record["graphs"]
