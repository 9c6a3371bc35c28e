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
    assert "reshape" not in refused(np.zeros((12, *have)), good()[1], want).next


def test_a_single_image_is_told_with_the_line_that_mends_it():
    image = np.zeros(SHAPE)
    lesson_04.check_data(eval(refused(image, [3]).next.partition(": ")[2], {"images": image}), [3], SHAPE)


def test_pixels_that_are_scaled_already_are_told():
    labels = np.zeros(3, "uint8")
    with pytest.raises(WorkshopError, match=r"between 0 and 0\.5"):
        lesson_04.check_data(np.full((3, *SHAPE), 0.5, "float32"), labels, SHAPE)
    lesson_04.check_data(np.ones((3, *SHAPE), "uint8"), labels, SHAPE)
    lesson_04.check_data(np.zeros((3, *SHAPE), "float32"), labels, SHAPE)


def test_images_and_labels_swapped_are_told():
    with pytest.raises(WorkshopError, match="look like labels"):
        lesson_04.check_data(np.zeros(3, "uint8"), np.zeros((3, 784), "uint8"), 784)


@pytest.mark.parametrize("images", [np.zeros((0, *SHAPE)), [], np.zeros((3, 0, 4, 1))])
def test_no_images(images):
    assert "no images" in refused(images, []).what


@pytest.mark.parametrize("nothing", ["mnist", None, [[1, 2], [3]]])
def test_what_is_no_array_of_numbers_is_told(nothing):
    assert "images" in refused(nothing, [1, 2]).what
    assert "labels" in refused(good()[0], nothing).what


@pytest.mark.parametrize(("label", "position"), [(10, 0), (-1, 11), (2**40, 3)])
def test_a_label_out_of_range_is_told_with_its_position(label, position):
    images, labels = good()
    labels[position] = label
    assert f"labels[{position}] = {label}" in refused(images, labels).what
    lesson_04.check_data(images, labels % 10, SHAPE)
    assert "0 to 2" in refused(images, np.full(12, 3), classes=3).what


def test_one_hot_labels_are_told_with_the_line_that_mends_them():
    images, labels = good()
    error = refused(images, np.eye(10)[labels])
    assert np.array_equal(eval(error.next, {"labels": np.eye(10)[labels]}), labels)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_labels_that_are_no_whole_numbers_are_told(dtype):
    images, labels = good()
    error = refused(images, (labels % 2).astype(dtype))
    assert dtype in error.what
    lesson_04.check_data(images, eval(error.next.partition(",")[0], {"labels": (labels % 2).astype(dtype)}), SHAPE)


def test_too_few_and_too_many_labels_are_told():
    images, labels = good()
    for other in (labels[:11], np.append(labels, 1), labels[:0], np.zeros((12, 3), int)):
        error = refused(images, other)
        assert "12 images" in error.what and str(other.shape) in error.what
    column = labels[:, None]
    lesson_04.check_data(images, eval(refused(images, column).next, {"labels": column}), SHAPE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_nan_and_infinity_are_told_with_their_position(value):
    images, labels = good()
    for dtype in ("float32", "float64", "float16"):
        bad = images.astype(dtype)
        bad[7, 3, 2, 0] = bad[9, 0, 0, 0] = value
        assert all(fact in refused(bad, labels).what for fact in ("2 of 12", "image 7"))


@pytest.mark.parametrize("size", [13, 0, 4.0, None])
def test_a_batch_size_that_cannot_be_is_told(size):
    error = refused(*good(), batch_size=size)
    assert str(size) in error.what and "from 1 to 12" in error.next


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


@given(st.lists(st.floats(1e-4, 1), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_a_line_never_costs_less_than_nothing(seconds):
    line = lesson_04.fit_line(measured(dict(zip(BATCHES, seconds, strict=True)).get))
    assert line.overhead >= 0 and line.per_image >= 0 and list(line.misses) == list(BATCHES)


# ------------------------------------------------------------------------ the network of its third exercise


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
