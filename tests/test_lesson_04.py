"""Lesson 04: its check of data, each fault with the line that mends it; its time model, what it tells, its figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from helpers.errors import WorkshopError
from helpers.lessons import lesson_04
from helpers.measure.timing import Measurement

SHAPE = (4, 4, 1)


def good(n=12):
    return np.zeros((n, *SHAPE), np.uint8), np.arange(n) % 10


def refused(images, labels, shape=SHAPE, **options):
    with pytest.raises(WorkshopError) as caught:
        lesson_04.check_data(images, labels, shape, **options)
    assert caught.value.why and caught.value.next
    return caught.value


def test_good_data_passes():
    images, labels = good()
    lesson_04.check_data(images, labels, SHAPE, batch_size=12)
    lesson_04.check_data(images.astype("float32"), labels.astype("uint8"), list(SHAPE), batch_size=np.int64(1))
    lesson_04.check_data(images.tolist(), labels.tolist(), SHAPE)
    lesson_04.check_data(images > 0, labels, SHAPE)


@pytest.mark.parametrize("have", [(4, 4), (16,), (1, 4, 4), (16, 1)])
@pytest.mark.parametrize("want", [(4, 4, 1), (16,), (1, 4, 4)])
def test_a_wrong_shape_is_told_with_the_line_that_mends_it(have, want):
    images, labels = np.arange(12 * 16, dtype=np.uint8).reshape(12, *have), good()[1]
    if have == want:
        return lesson_04.check_data(images, labels, want)
    error = refused(images, labels, want)
    assert str(want) in error.what and str(have) in error.what
    mended = eval(error.next, {"images": images})
    lesson_04.check_data(mended, labels, want)
    assert np.array_equal(mended.ravel(), images.ravel())


@pytest.mark.parametrize(("have", "want"), [((2, 8), (4, 4)), ((4, 4, 3), (3, 4, 4)), ((5, 4), (4, 4)), ((), (16,))])
def test_no_line_is_offered_that_would_scramble_the_images(have, want):
    assert refused(np.zeros((12, *have)), good()[1], want).next == "Build the network for these images."


def test_a_single_image_is_told_with_the_line_that_mends_it():
    image = np.zeros(SHAPE)
    lesson_04.check_data(eval(refused(image, [3]).next.partition(": ")[2], {"images": image}), [3], SHAPE)


def test_pixels_that_are_scaled_already_are_told():
    labels = np.zeros(3, "uint8")
    with pytest.raises(WorkshopError, match=r"between 0 and 0\.5: somebody has scaled them already"):
        lesson_04.check_data(np.full((3, *SHAPE), 0.5, "float32"), labels, SHAPE)
    lesson_04.check_data(np.ones((3, *SHAPE), "uint8"), labels, SHAPE)
    lesson_04.check_data(np.zeros((3, *SHAPE), "float32"), labels, SHAPE)


def test_images_and_labels_swapped_are_told():
    with pytest.raises(WorkshopError, match="look like labels"):
        lesson_04.check_data(np.zeros(3, "uint8"), np.zeros((3, 784), "uint8"), 784)


@pytest.mark.parametrize("images", [np.zeros((0, *SHAPE)), [], np.zeros((3, 0, 4, 1))])
def test_no_images(images):
    assert refused(images, []).what == "There are no images to train with."


@pytest.mark.parametrize("nothing", ["mnist", None, [[1, 2], [3]]])
def test_what_is_no_array_of_numbers_is_told(nothing):
    assert refused(nothing, [1, 2]).what == "The images are no array of numbers."
    assert refused(good()[0], nothing).what == "The labels are no array of numbers."


@pytest.mark.parametrize(("label", "position"), [(10, 0), (-1, 11), (2**40, 3)])
def test_a_label_out_of_range_is_told_with_its_position(label, position):
    images, labels = good()
    labels[position] = label
    assert refused(images, labels).what == (
        f"1 of 12 labels lie outside 0 to 9; the first is labels[{position}] = {label}."
    )
    lesson_04.check_data(images, labels % 10, SHAPE)
    assert "0 to 2" in refused(images, np.full(12, 3), classes=3).what


def test_one_hot_labels_are_told_with_the_line_that_mends_them():
    images, labels = good()
    error = refused(images, np.eye(10)[labels])
    assert "one column for each class" in error.what
    assert np.array_equal(eval(error.next, {"labels": np.eye(10)[labels]}), labels)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_labels_that_are_no_whole_numbers_are_told(dtype):
    images, labels = good()
    error = refused(images, (labels % 2).astype(dtype))
    assert error.what == f"The labels are {dtype}, not whole numbers."
    lesson_04.check_data(images, eval(error.next.partition(",")[0], {"labels": (labels % 2).astype(dtype)}), SHAPE)


def test_too_few_and_too_many_labels_are_told():
    images, labels = good()
    for other in (labels[:11], np.append(labels, 1), labels[:0], np.zeros((12, 3), int)):
        error = refused(images, other)
        assert error.what == f"There are 12 images, and labels of shape {other.shape}."
        assert error.next == "Slice images and labels alike."
    column = labels[:, None]
    lesson_04.check_data(images, eval(refused(images, column).next, {"labels": column}), SHAPE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_nan_and_infinity_are_told_with_their_position(value):
    images, labels = good()
    for dtype in ("float32", "float64", "float16"):
        bad = images.astype(dtype)
        bad[7, 3, 2, 0] = bad[9, 0, 0, 0] = value
        assert refused(bad, labels).what == "2 of 12 images hold NaN or infinity, the first of them is image 7."


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (13, "A batch of 13 images cannot be taken from 12."),
        (0, "A batch of 0 images teaches nothing."),
        (4.0, "The batch size is 4.0, not a whole number."),
        (None, "The batch size is None, not a whole number."),
    ],
)
def test_a_batch_size_that_cannot_be_is_told(size, message):
    error = refused(*good(), batch_size=size)
    assert error.what == message and error.next == "Choose a whole number from 1 to 12."


@given(st.integers(1, 40), st.data())
def test_valid_data_of_any_size_passes(n, draw):
    labels = draw.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    dtype = draw.draw(st.sampled_from(["uint8", "float32", "int16", "float16"]))
    grey = draw.draw(st.integers(0, 255).filter(lambda value: value != 1))  # 1 alone would look scaled
    images = np.full((n, *SHAPE), grey, dtype)
    labels = np.array(labels, draw.draw(st.sampled_from(["uint8", "int64"])))
    lesson_04.check_data(images, labels, SHAPE, draw.draw(st.integers(1, n)))


# ------------------------------------------------------------------------------------------- its time model

BATCHES = (8, 32, 128, 512, 2048, 8192)


def measured(seconds):
    return {n: Measurement(f"{n} images", "a device", (seconds(n),) * 3) for n in BATCHES}


def test_a_line_is_found_again():
    line = lesson_04.fit_line(measured(lambda n: 0.002 + 1e-5 * n))
    assert (line.overhead, line.per_image) == (pytest.approx(0.002), pytest.approx(1e-5))
    assert line.worst < 1e-9
    told = lesson_04.tell_line(line, measured(lambda n: 0.002 + 1e-5 * n), 128)
    assert "61% of a step with 128 images is overhead" in told and "at most" in told


def test_where_the_line_misses_no_share_is_claimed():
    steps = measured(lambda n: {8: 0.0029, 32: 0.0035, 128: 0.0055, 512: 0.012, 2048: 0.026, 8192: 0.095}[n])
    line = lesson_04.fit_line(steps)
    assert line.worst > 0.1 and line.worst == max(abs(miss) for miss in line.misses.values())
    told = lesson_04.tell_line(line, steps, 128)
    assert "no share" in told and "at most 53% of a step with 128 images" in told
    assert told.endswith("a whole step with 8 images took 2.9 ms")


@given(st.lists(st.floats(1e-4, 1), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_a_line_never_costs_less_than_nothing(seconds):
    line = lesson_04.fit_line(measured(dict(zip(BATCHES, seconds, strict=True)).get))
    assert line.overhead >= 0 and line.per_image >= 0 and list(line.misses) == list(BATCHES)


def test_pairs_are_told_with_what_luck_alone_would_do():
    told = lesson_04.tell_pairs({0: 0.98, 1: 0.981, 2: 0.97}, {0: 0.99, 1: 0.98, 2: 0.975})
    assert told.startswith("2 of 3 pairs rise; differences from -0.10 to +1.00 points, median +0.50")
    assert "once in 8 times" in told


# ------------------------------------------------------------------------ the network of its third exercise


@pytest.mark.parametrize(
    ("otherwise", "told"),
    [
        ({"last": "none"}, "without softmax"),
        ({"last": "sigmoid"}, "sigmoid"),
        ({"scale": 1.0}, "not scaled"),
        ({"relu": (False, True)}, "without ReLU in the first layer"),
        ({"relu": (True, False)}, "without ReLU in the second layer"),
        ({"relu": (False, False)}, "without any ReLU"),
    ],
)
def test_a_cause_is_named_where_it_gives_the_same_answers(otherwise, told):
    rng = np.random.default_rng(4)
    shapes = [(784, 128), (128,), (128, 64), (64,), (64, 10), (10,)]
    weights = [rng.normal(0, 2 / len(np.empty(shape)) ** 0.5, shape) for shape in shapes]
    images = rng.integers(0, 256, (7, 784))
    assert told in lesson_04._difference(weights, images, lesson_04._answers(weights, images, **otherwise))
    half = lesson_04._answers(weights, images) / 2
    assert "the answers differ" in lesson_04._difference(weights, images, half)


@pytest.mark.parametrize(("otherwise", "told"), [({"scale": 1 / 256}, "divided by 256"), ({"most": 6}, "relu6")])
def test_a_wrong_scale_and_a_limited_relu_are_named(otherwise, told):
    weights = lesson_04._weights_that_show_the_scale([(784, 128), (128,), (128, 64), (64,), (64, 10), (10,)])
    white = np.full((2, 784), 255)
    assert lesson_04._answers(weights, white) == pytest.approx(0.1)
    assert told in lesson_04._difference(weights, white, lesson_04._answers(weights, white, **otherwise))


@pytest.mark.parametrize("where", ["the first layer", "the second layer", "both layers"])
@pytest.mark.parametrize("slope", [0.002, 0.01, 0.2])
def test_a_leak_is_seen_and_a_large_one_named_with_its_layer(slope, where):
    shapes = [(784, 128), (128,), (128, 64), (64,), (64, 10), (10,)]
    weights, white = lesson_04._weights_that_show_a_leak(shapes), np.full((2, 784), 255)
    leaks = [slope * (where != "the second layer"), slope * (where != "the first layer")]
    assert lesson_04._answers(weights, white) == pytest.approx(0.1)
    assert not lesson_04._agree(lesson_04._answers(weights, white, leaks=leaks), lesson_04._answers(weights, white))
    rng = np.random.default_rng(4)
    drawn = [rng.normal(0, 2 / len(np.empty(shape)) ** 0.5, shape) for shape in shapes]
    images = rng.integers(0, 256, (7, 784))
    told = lesson_04._difference(drawn, images, lesson_04._answers(drawn, images, leaks=leaks))
    assert slope < 0.1 or f"LeakyReLU (slope {slope}) in {where}" in told


@pytest.mark.parametrize(
    ("better", "scores", "pairs", "told"),
    [
        (
            True,
            [0.98, 0.99, 0.985],
            5,
            ["all pairs rise: take", "98.50% of the test images (median of 3 seeds, 98.00%"],
        ),
        (False, [0.98], 5, ["not all pairs rise: do not take", "98.00% of the test images (one seed: no spread)"]),
        (False, [0.98], 2, ["2 pairs, the rule asks for 5: do not take", "as in the article (short)", "0.14 points"]),
    ],
)
def test_the_test_is_told_with_the_rule_and_its_error(better, scores, pairs, told):
    text = lesson_04.tell_test(better, scores, pairs, images=10_000, note=" (short)")
    assert all(part in text for part in told)


def test_batch_sizes_are_compared_after_as_many_epochs():
    table = lesson_04.batches({128: (1.5, [0.9, 0.95, 0.97]), 2048: (0.5, [0.8, 0.85])}, images=50_000, epochs=2)
    assert [(row[0], row[1], row[3]) for row in table.rows] == [("128", 391, "95.00%"), ("2,048", 25, "85.00%")]


# ------------------------------------------------------------------------------------------------ its figures


@pytest.fixture
def drawn(monkeypatch):
    """Figures that the lesson would show."""
    figures = []
    monkeypatch.setattr(lesson_04, "show", lambda figure, alt: figures.append((figure, alt)))
    return figures


def test_no_title_is_cut_off(drawn):
    note = " (not the whole training: 2 of 10 epochs, 1,197 of 1,197 images)"
    title = f"Which digits are confused? digits stand-in (scikit-learn, not MNIST), validation images{note}"
    history = {name: [0.5, 0.6] for name in ("loss", "accuracy", "val_loss", "val_accuracy")}
    lesson_04.curves(history, title)
    lesson_04.confusion(np.arange(100).reshape(10, 10), title)
    lesson_04.pairs({"as in the article": {0: 0.9, 1: 0.8}, "weights averaged": {0: 0.91, 1: 0.7}}, title)
    steps = measured(lambda n: 0.002 + 1e-5 * n)
    lesson_04.time_per_image(steps, lesson_04.fit_line(steps), {"a card": (128, 4e-5)}, title)
    lesson_04.slope(lambda bias: bias**2 / 4 + 2, 2, 1.0, 1.0, "bias")
    assert len(drawn) == 5
    for figure, alt in drawn:
        FigureCanvasAgg(figure).draw()
        whole = figure.get_window_extent()
        texts = [figure._suptitle, *(one.yaxis.label for one in figure.axes), *(one.xaxis.label for one in figure.axes)]
        for box in (text.get_window_extent() for text in texts if text.get_text()):
            assert box.x0 >= whole.x0 and box.x1 <= whole.x1 and box.y0 >= whole.y0 and box.y1 <= whole.y1, alt
