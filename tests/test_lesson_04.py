"""Lessons 04 and 04b: two layers in NumPy, intervals, luck, their figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from helpers.judge import checks
from helpers.lessons import lesson_04, lesson_04b


@given(st.integers(0, 2**32 - 1))
def test_errors_passed_back_give_the_slopes_of_the_loss(seed):
    rng = np.random.default_rng(seed)
    x, *parameters = lesson_04._draw_layers(rng)[seed % 4]
    y = rng.integers(0, len(parameters[3]), len(x))
    hidden, probabilities = lesson_04.forward(x, *parameters)
    errors = (probabilities - np.eye(len(parameters[3]))[y]) / len(x)
    slopes = x.T @ lesson_04.pass_back(errors, parameters[2], hidden)
    place, losses = tuple(rng.integers(0, slopes.shape)), []
    for step in (1e-6, -1e-6):
        moved = [array.copy() for array in parameters]
        moved[0][place] += step
        losses.append(-np.log(lesson_04.forward(x, *moved)[1][np.arange(len(y)), y]).mean())
    assert slopes[place] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("np.maximum(x @ w1 + b1, 0)", "x @ w1 + b1", "ReLU is missing"),
        ("x @ w1 + b1", "x @ w1", "biases b1 are missing"),
        ("softmax(hidden @ w2 + b2)", "hidden @ w2 + b2", "second array holds the sums"),
        ("hidden @ w2 + b2", "hidden @ w2", "biases b2 are missing"),
        ("hidden @ w2 + b2", "np.maximum(hidden @ w2 + b2, 0)", "first layer only"),
    ],
)
def test_a_wrong_idea_of_a_forward_pass_is_named(old, new, sentence, capsys):
    code = """
def forward(x, w1, b1, w2, b2):
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden, softmax(hidden @ w2 + b2)
"""
    names = {"np": np, "softmax": lesson_04.softmax}
    exec(code.replace(old, new), names)
    lesson_04.check_forward(names["forward"])
    assert sentence in capsys.readouterr().out


def test_fair_coins_seldom_look_unfair():
    assert lesson_04b.compute_luck(*lesson_04b.draw_answers(9, 1, 80, 10)) == pytest.approx(22 / 1024)
    heads = np.random.default_rng(0).binomial(30, 0.5, 1_000)
    values = [lesson_04b.compute_luck(*lesson_04b.draw_answers(int(n), 30 - int(n), 0, 0)) for n in heads]
    assert np.mean(np.array(values) < 0.05) < 0.06


def test_an_interval_holds_the_share_of_all_images_about_95_times_in_100():
    draws = np.random.default_rng(0).binomial(2_000, 0.9, 2_000)
    ends = np.array([lesson_04b.compute_interval(int(right), 2_000) for right in draws])
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
    x, *parameters = lesson_04._draw_layers(np.random.default_rng(0))[0]
    hidden, _ = checks.find_right("forward", lesson_04.forward)(x, *parameters)
    assert isinstance(hidden, np.ndarray)
    assert capsys.readouterr().out.endswith("forward: yours\n")


# ------------------------------------------------------------------------------------------------ its figures


def test_no_title_is_cut_off(monkeypatch):
    drawn = []
    for module in (lesson_04, lesson_04b):
        monkeypatch.setattr(module, "show", lambda figure, alt: drawn.append((figure, alt)))
    note = " (not the whole training: 2 of 10 epochs, 1,197 of 1,197 images)"
    title = f"Article A's MLP on digits stand-in (not MNIST){note}"
    lesson_04b.draw_pairs({0: lesson_04b.draw_answers(43, 103, 9_400, 454)}, ("plain", "weights averaged"), title)
    lesson_04.draw_slope(lambda bias: bias**2 / 4 + 2, 2, 1.0, 1.0, "bias")
    lesson_04.draw_network([784, 512, 10], title)
    lesson_04.draw_training([2.3, 1.1], np.eye(784, 16), np.ones((2, 16)), {"these 500": 0.9, "500 others": 0.8})
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
