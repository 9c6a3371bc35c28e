"""Lessons 04 and 04b: two layers in NumPy, intervals, luck, the line, its figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from helpers.judge import checks
from helpers.lessons import lesson_04


@given(st.integers(0, 2**32 - 1))
def test_a_backward_pass_returns_the_slopes_of_the_loss(seed):
    rng = np.random.default_rng(seed)
    x, y, *parameters = lesson_04._draw_layers(rng)[seed % 4]

    def loss_after(part, place, step):
        moved = [array.copy() for array in parameters]
        moved[part][place] += step
        return -np.log(lesson_04.forward(x, *moved)[1][np.arange(len(y)), y]).mean()

    for part, slopes in enumerate(lesson_04.backward(x, y, *parameters)):
        place = tuple(rng.integers(0, slopes.shape))
        slope = (loss_after(part, place, 1e-6) - loss_after(part, place, -1e-6)) / 2e-6
        assert slopes.shape == parameters[part].shape and slopes[place] == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, "not done yet"),
        ((..., ..., 1, 2), "not done yet"),
        (np.zeros(3), "4 arrays"),
        ([np.zeros(3)] * 3, "4 arrays"),
        ([np.zeros(3)] * 4, "not yet: for the slopes for w1 of backward("),
    ],
)
def test_whatever_a_backward_pass_returns_gets_a_verdict(returned, expected, capsys):
    def backward(*arguments):
        return returned

    lesson_04.check_backward(backward)
    assert expected in " ".join(capsys.readouterr().out.split())
    rng = np.random.default_rng(0)
    parameters = [rng.random(shape) for shape in ((784, 16), 16, (16, 10), 10)]
    lesson_04.compare_slopes(backward, lambda x, y, arrays: arrays[3].sum(), np.ones((1, 784)), [0], parameters)
    assert "b2[7]: by moving it 1.000000" in capsys.readouterr().out


def test_slopes_that_are_all_too_small_by_one_factor_are_named(capsys):
    def backward(x, y, *parameters):
        return [slopes / len(x) for slopes in lesson_04.backward(x, y, *parameters)]

    lesson_04.check_backward(backward)
    assert "for 4 images, the slopes for w1 are 0.25 times" in capsys.readouterr().out


def test_a_mask_that_is_missing_for_the_biases_alone_is_named(capsys):
    def backward(x, y, *parameters):
        w1, _, w2, b2 = lesson_04.backward(x, y, *parameters)
        return w1, b2 @ parameters[2].T, w2, b2

    lesson_04.check_backward(backward)
    assert "mask the errors" in capsys.readouterr().out


def test_fair_coins_seldom_look_unfair():
    assert lesson_04.compute_luck(*lesson_04.draw_answers(9, 1, 80, 10)) == pytest.approx(22 / 1024)
    heads = np.random.default_rng(0).binomial(30, 0.5, 1_000)
    values = [lesson_04.compute_luck(*lesson_04.draw_answers(int(n), 30 - int(n), 0, 0)) for n in heads]
    assert np.mean(np.array(values) < 0.05) < 0.06


def test_a_line_that_does_not_fit_is_refused(capsys):
    overhead, per_image = lesson_04.fit_line({8: 0.0058, 128: 0.0082, 2048: 0.0466})
    assert (overhead, per_image) == pytest.approx((0.0056, 0.00002), rel=0.02)
    assert "off by at most" in capsys.readouterr().out
    assert np.isnan(lesson_04.fit_line({8: 0.026, 32: 0.036, 128: 0.024, 512: 0.047, 2048: 0.32})).all()
    assert capsys.readouterr().out.startswith("no line")
    assert lesson_04.describe_line(float("nan")) == "no line" and lesson_04.describe_line(0.5) == "500 ms"


def test_an_interval_holds_the_share_of_all_images_about_95_times_in_100():
    draws = np.random.default_rng(0).binomial(2_000, 0.9, 2_000)
    ends = np.array([lesson_04.compute_interval(int(right), 2_000) for right in draws])
    assert 0.93 < np.mean((ends[:, 0] < 0.9) & (ends[:, 1] > 0.9)) < 0.97


def test_a_right_answer_is_kept_for_later_cells(capsys, monkeypatch):
    monkeypatch.setattr(checks, "_right", {})
    assert checks.find_right("forward", lesson_04.forward) is lesson_04.forward
    assert capsys.readouterr().out == "forward: the solution of the lesson\n"
    lesson_04.check_forward(lambda *given: lesson_04.forward(*given)[::-1])
    assert checks.find_right("forward", lesson_04.forward) is lesson_04.forward

    def own(*given):
        return [values.tolist() for values in lesson_04.forward(*given)]

    lesson_04.check_forward(own)
    x, _, *parameters = lesson_04._draw_layers(np.random.default_rng(0))[0]
    hidden, _ = checks.find_right("forward", lesson_04.forward)(x, *parameters)
    assert isinstance(hidden, np.ndarray)
    assert capsys.readouterr().out.endswith("forward: yours\n")


# ------------------------------------------------------------------------------------------------ its figures


def test_no_title_is_cut_off(monkeypatch):
    drawn = []
    monkeypatch.setattr(lesson_04, "show", lambda figure, alt: drawn.append((figure, alt)))
    note = " (not the whole training: 2 of 10 epochs, 1,197 of 1,197 images)"
    title = f"Article A's MLP on digits stand-in (not MNIST){note}"
    lesson_04.draw_pairs({0: lesson_04.draw_answers(43, 103, 9_400, 454)}, ("plain", "weights averaged"), title)
    lesson_04.draw_slope(lambda bias: bias**2 / 4 + 2, 2, 1.0, 1.0, "bias")
    lesson_04.draw_network([784, 512, 10], title)
    lesson_04.draw_training([2.3, 1.1], np.eye(784, 16), np.ones(16), {"these 500": 0.9, "500 others": 0.8})
    lesson_04.draw_choice(np.array([0.1, 0.2]), np.array([0.1, 0.1]), title)
    assert len(drawn) == 5
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
