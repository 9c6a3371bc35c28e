"""Lessons 04 and 04b: one layer in NumPy, what is told of pairs, its figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from helpers.lessons import lesson_04


@given(st.integers(0, 2**32 - 1))
def test_a_step_follows_the_slope_of_the_loss(seed):
    rng = np.random.default_rng(seed)
    x, y, w, b = rng.random((7, 5)), rng.integers(0, 3, 7), rng.normal(size=(5, 3)), rng.normal(size=3)
    stepped, _, (before,) = lesson_04.train(x, y, w, b, 1.0, 1)
    at = tuple(rng.integers(0, w.shape))
    w[at] += 1e-6
    after = lesson_04.train(x, y, w, b, 1.0, 1)[2][0]
    w[at] -= 1e-6
    assert (w - stepped)[at] == pytest.approx((after - before) / 1e-6, abs=1e-4)


def test_pairs_are_told_with_what_luck_alone_would_do():
    line = lesson_04.describe_pairs({0: 0.9, 1: 0.91, 2: 0.92}, {0: 0.91, 1: 0.905, 2: 0.94})
    assert line.startswith("2 of 3 pairs rise; differences from -0.50 to +2.00 points, median +1.00")
    assert "all 3 rise by luck alone once in 8 times" in line


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, "not done yet"),
        ((np.zeros((784, 10)), np.zeros(10)), "three things"),
        ((np.zeros((784, 10)), np.zeros(10), []), "not done yet"),
        ((np.zeros((3, 2)), np.zeros(3), [1.0] * 2), "not yet: for the new w of train("),
    ],
)
def test_whatever_a_training_returns_gets_a_verdict(returned, expected, capsys):
    lesson_04.check_train(lambda *arguments: returned, np.zeros((1, 784)), np.zeros(1, int))
    assert expected in " ".join(capsys.readouterr().out.split())


# ------------------------------------------------------------------------------------------------ its figures


def test_no_title_is_cut_off(monkeypatch):
    drawn = []
    monkeypatch.setattr(lesson_04, "show", lambda figure, alt: drawn.append((figure, alt)))
    note = " (not the whole training: 2 of 10 epochs, 1,197 of 1,197 images)"
    title = f"Article A's MLP on digits stand-in (not MNIST){note}"
    history = {name: [0.5, 0.6] for name in ("loss", "accuracy", "val_loss", "val_accuracy")}
    lesson_04.draw_history(history, title)
    lesson_04.draw_pairs({"plain": {0: 0.9, 1: 0.8}, "weights averaged": {0: 0.91, 1: 0.7}}, title)
    lesson_04.draw_slope(lambda bias: bias**2 / 4 + 2, 2, 1.0, 1.0, "bias")
    lesson_04.draw_network([784, 512, 10], title)
    lesson_04.draw_training([2.3, 1.1], np.eye(784, 10), 0.5)
    lesson_04.draw_choice(np.array([0.1, 0.2]), np.array([0.1, 0.1]), title)
    assert len(drawn) == 6
    for figure, alt in drawn:
        FigureCanvasAgg(figure).draw()
        whole = figure.get_window_extent()
        texts = [
            figure._suptitle,
            *(axes.yaxis.label for axes in figure.axes),
            *(axes.xaxis.label for axes in figure.axes),
        ]
        for box in (text.get_window_extent() for text in texts if text.get_text()):
            assert box.x0 >= whole.x0 and box.x1 <= whole.x1 and box.y0 >= whole.y0 and box.y1 <= whole.y1, alt
