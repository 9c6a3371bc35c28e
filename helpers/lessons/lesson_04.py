"""Lesson 04, Train an MLP: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import math
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.compute import training
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure import tables, workload
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, figure, show
from helpers.measure.timing import Measurement, duration

if TYPE_CHECKING:
    import keras
    from matplotlib.figure import Figure


Sizes = list[int]
STEPS = 32  # images a step of the trainings on few images
GUESSES = 0.3  # of ten digits a network that knows a smaller share has learned next to nothing
WIDE = 3  # times the spread of Keras' own first weights; other usual ways to draw them stay below
PAIRS = 5  # that the lesson's rule asks for before it takes a change
NEAR = 0.1  # a line that misses a measured time by a larger share of it describes nothing


def progress(title: str, budget: float = math.inf) -> keras.callbacks.Callback:
    """`training.progress`, whose line names the validation images as this lesson does.

    Args:
        title: what is trained.
        budget: seconds that the training may take.
    """
    return training.progress(title, budget, others="validation images")


@checks.verdict
def check_parameters(learner: Callable[[Sizes], int]) -> Iterator[str]:
    """Lesson 04, exercise 1: the weights and biases of dense layers."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        drawn = [(rng.integers(1, 900, size).tolist(),) for size in (2, 3, 4, 5, 6)]
        return [([784, 512, 512, 10],), ([3, 2],), ([1, 1],), ([5, 5, 5],), ([784, 2048, 2048, 10],), *drawn]

    def right(sizes: Sizes) -> int:
        return sum((sizes[i] + 1) * sizes[i + 1] for i in range(len(sizes) - 1))

    tried = cases(np.random.default_rng())
    said = checks.judge_function(learner, right, lambda rng: tried)
    for (sizes,) in tried:  # large counts to their last digit, too
        expected, actual = right(sizes), learner(list(sizes))
        if actual != expected:
            raise checks.NotYet(f"for parameters({sizes}) expected {expected}, came {actual}")
    yield said


@checks.verdict
def check_epoch_seconds(learner: Callable[[int, int, float, float], float]) -> Iterator[str]:
    """Lesson 04, exercise 2: every started batch costs a step's overhead, every image its arithmetic."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [(1000, 128, 0.002, 0.00001), (1024, 128, 0.5, 0.25), (1, 128, 2.0, 3.0), (60_000, 1, 1e-3, 1e-5)]
        # One image more than whole batches, one less, and as many; seconds of every size.
        sizes = [(3 * batch + more, batch) for batch in (128, 2048, 8192, 50_000, 2**20) for more in (1, -1, 0)]
        large = [(n, batch, round(rng.uniform(1, 2), 4), round(rng.uniform(1e-9, 9e-9), 11)) for n, batch in sizes]
        short = [(2049, 2048, 1.1e-6, 1.3e-10), (50_000, 8192, 0.0021, 1.1e-7)]
        drawn = [
            (
                *map(int, rng.integers(1, (60_001, 8193))),
                round(rng.uniform(0.1, 2), 3),
                round(rng.uniform(1e-4, 0.1), 5),
            )
            for _ in range(20)
        ]
        return plain + large + short + drawn

    def right(image_count: int, batch_size: int, overhead: float, per_image: float) -> float:
        seconds = math.ceil(image_count / batch_size) * overhead + image_count * per_image
        return float(f"{seconds:.9g}")  # 0.026, not 0.026000000000000002

    yield checks.judge_function(learner, right, cases)


@checks.verdict
def check_small_mlp(
    learner: Callable[[], keras.Model],
    article: Callable[[int], keras.Model],
    few: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    prediction: float | None,
) -> Iterator[str]:
    """Lesson 04, exercise 3: a network of 784, 128, 64 and 10 values without dropout, judged beside the article's.

    Args:
        learner: returns a new network.
        article: returns the article's network, compiled, for a seed.
        few: images of shape (n, 784), uint8, and their labels, to train with.
        validation: images and labels by which both networks are judged.
        prediction: how many percentage points the learner thinks that the small network gains; None for no answer.
    """
    said = judge_small_mlp(learner)
    seeds, epochs = (0, 1, 2), workload.pick(preview=3, lab=10, full=10)

    def small_mlp(seed: int) -> keras.Model:
        training.seed(seed)
        model, like = learner(), article_way
        model.compile(
            like.optimizer.__class__(), like.loss, metrics=["accuracy"], steps_per_execution=like.steps_per_execution
        )
        return model

    def accuracies(build: Callable[[int], keras.Model]) -> tuple[dict[int, float], float]:
        found, learned = {}, []
        for seed in seeds:
            model = build(seed)
            model.fit(*few, batch_size=STEPS, epochs=epochs, verbose=0)
            learned.append(model.evaluate(*few, batch_size=500, verbose=0)[1])
            found[seed] = model.evaluate(*validation, batch_size=500, verbose=0)[1]
        print(f"{build.__name__}: {np.median(learned):.1%} of its own {len(few[0]):,} training images, ", end="")
        print(f"{np.median(list(found.values())):.1%} of the validation images (medians)")
        return found, float(np.median(learned))

    article_way = article(0)
    theirs, (yours, learned) = accuracies(article)[0], accuracies(small_mlp)
    if learned < GUESSES:
        raise checks.NotYet(
            f"trained, the network knows {learned:.1%} of its own {len(few[0]):,} training images (median of "
            f"{len(seeds)} seeds); expected at least {GUESSES:.0%}. Guessing gives about 10 %."
        )
    title = f"Trained on {len(few[0]):,} images, {epochs} epochs: the article's network and yours"
    pairs({"article's": theirs, "yours": yours}, title)
    median = float(np.median([100 * (yours[seed] - theirs[seed]) for seed in seeds]))
    checks.compare_prediction(prediction, median, "points (the median difference)", most=100)
    print(tell_pairs(theirs, yours))
    yield said


def judge_small_mlp(learner: Callable[[], keras.Model]) -> str:
    """Judge exercise 3's network by its answers: NumPy works out the same ones from its weights."""
    import keras

    shapes = [(784, 128), (128,), (128, 64), (64,), (64, 10), (10,)]
    if isinstance(learner, keras.Model):
        raise checks.NotYet("small_mlp is a network, not a function that returns one; begin with def small_mlp():")
    try:
        model, other = learner(), learner()
        if model is ...:
            raise checks.NotDone("small_mlp() is `...`, as it was handed out.")
        if model is None:
            raise checks.NotDone("small_mlp() returns nothing. (It is `return` that hands a network back.)")
        if not isinstance(model, keras.Model):
            raise checks.NotYet(f"small_mlp() returns a {type(model).__name__}; expected a keras.Sequential.")
        rng = np.random.default_rng()
        images = rng.integers(0, 256, (7, 784), dtype=np.uint8)
        takes = [tuple(one.shape[1:]) for one in getattr(model, "inputs", None) or ()]
        if takes not in ([], [(784,)]):
            raise checks.NotYet(f"the network takes images of shape {takes[0]}; expected rows of 784 pixels, (784,).")
        if not (model.built and other.built):
            raise checks.NotYet(
                "the network does not know yet how many values an image has, so that small_mlp().count_params() fails; "
                'begin its layers with keras.Input((784,), dtype="uint8").'
            )
        had = [weights.shape for weights in model.get_weights()]
        if had == [(784, 64), (64,), (64, 128), (128,), (128, 10), (10,)]:
            raise checks.NotYet("your first two layers are swapped: expected 128 values, then 64; came 64, then 128.")
        if had != shapes:
            raise checks.NotYet(f"expected {_layers(shapes)}; came {_layers(had)}.")
        if {id(one) for one in model.weights} & {id(one) for one in other.weights}:
            raise checks.NotYet("two calls of small_mlp() return networks with the same layers; make new ones in each.")
        if len(model.trainable_weights) != len(shapes):
            raise checks.NotYet("a layer of the network is not trainable.")
        if any(getattr(one, "constraint", None) for one in model.weights):
            raise checks.NotYet("a layer forbids some weights (a constraint); expected none of it.")
        if len(types := {one.compute_dtype for one in (other, *model.layers)}) > 1:
            raise checks.NotYet(f"its layers compute with {' and '.join(sorted(types))}; expected one dtype for all.")
        if model.losses:
            raise checks.NotYet("a layer adds a term to the loss, as a regularizer does; expected none.")
        if any(np.ptp(first) == 0 for first in model.get_weights()[:4:2]):  # zeros in the last layer do no harm
            raise checks.NotYet(
                "all weights of a layer begin at one value, so that its outputs are all alike; expected random weights."
            )
        if np.array_equal(model.get_weights()[0], other.get_weights()[0]):
            raise checks.NotYet(
                "two calls of small_mlp() return networks with the same first weights, so that three seeds would be "
                "one; leave out what fixes them, such as training.seed or seed=."
            )
        for first in model.get_weights()[::2]:
            spread = (
                first.std() / (2 / sum(first.shape)) ** 0.5
            )  # Glorot's, which Keras draws from unless told otherwise
            if spread > WIDE:
                raise checks.NotYet(
                    f"the first weights of the layer of {first.shape[1]} values spread {spread:.0f} times as wide as "
                    "Keras draws them; leave its kernel_initializer out."
                )
        weights = [rng.normal(0, 2 / len(weights) ** 0.5, weights.shape) for weights in model.get_weights()]
        model.set_weights(weights)
        trains, works = (keras.ops.convert_to_numpy(model(images, training=mode)) for mode in (True, False))
        exact, white = _weights_that_show_the_scale(shapes), np.full((2, 784), 255, np.uint8)
        model.set_weights(exact)
        scaled = keras.ops.convert_to_numpy(model(white, training=False))
        model.set_weights(negative := _weights_that_show_a_leak(shapes))
        leaked = keras.ops.convert_to_numpy(model(white, training=False))
    except (checks.NotDone, checks.NotYet):
        raise
    except Exception as error:
        said = textwrap.shorten(re.sub(r"\x1b\[[0-9;]*m", "", str(error)), 300)  # Keras writes some in bold
        raise checks.NotYet(f"small_mlp() or its network stopped with {type(error).__name__}: {said}") from None
    if not _agree(works, _answers(weights, images)):
        raise checks.NotYet(_difference(weights, images, works))
    if not _agree(scaled, _answers(exact, white)):
        raise checks.NotYet(_difference(exact, white, scaled))
    if not _agree(leaked, _answers(negative, white)):
        raise checks.NotYet(
            "the layers have the right sizes; with weights that make a sum of -196 in each hidden layer the answers "
            "are not ReLU's, which turns it into 0 (LeakyReLU lets a part of it through)."
        )
    if not _agree(trains, works):
        raise checks.NotYet("with training=True the network answers otherwise, as with dropout; expected none of it.")
    return "7 images, answered as NumPy does from the same weights; then trained"


def _weights_that_show_the_scale(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return weights with which a wholly white image gives ten equal probabilities, if its pixels become exactly 1.

    One value passes through all layers: 784 x 1/4 = 196, less 196 at the end. A GPU that multiplies with few bits
    makes no error here; pixels divided by 256 give 195.2, and ReLU with an upper limit much less.
    """
    weights = [np.zeros(shape) for shape in shapes]
    weights[0][:, 0], weights[2][0, 0], weights[4][0, 0], weights[5][0] = 0.25, 1, 1, -196
    return weights


def _weights_that_show_a_leak(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return weights with which a wholly white image gives ten equal probabilities, if ReLU turns all below 0 into 0.

    Value 0 of the first layer and value 1 of the second are -784 x 1/4 = -196 before their ReLU. What a layer lets
    through of that raises the probability of the digit 0 (first layer) or 1 (second).
    """
    weights = [np.zeros(shape) for shape in shapes]
    weights[0][:, 0], weights[0][:, 1] = -0.25, 0.25
    weights[2][0, 0], weights[2][1, 1] = -1, -1
    weights[4][0, 0], weights[4][1, 1] = 1, -1
    return weights


def _layers(shapes: Sequence[tuple[int, ...]]) -> str:
    """Name the layers whose weights have these shapes."""
    dense, others = (
        ", ".join(" x ".join(map(str, shape)) for shape in shapes if (len(shape) == 2) == wanted) or "none"
        for wanted in (True, False)
    )
    count = sum(math.prod(shape) for shape in shapes)
    return f"{count:,} parameters, weights of {dense}, biases or others of {others}"


def _answers(
    weights: Sequence[np.ndarray], images: np.ndarray, scale: float = 1 / 255, relu: Sequence[bool] = (True, True),
    last: str = "softmax", most: float = math.inf, leaks: Sequence[float] = (0, 0),
) -> np.ndarray:  # fmt: skip
    """Work out the answers of three dense layers in NumPy; as the exercise wants them, unless told otherwise."""
    values = images * scale
    for number, (rectified, leak) in enumerate(zip((*relu, False), (*leaks, 0), strict=True)):
        values = values @ weights[2 * number] + weights[2 * number + 1]
        values = np.clip(np.maximum(values, leak * values), None, most) if rectified else values
    if last == "softmax":
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    return 1 / (1 + np.exp(-values)) if last == "sigmoid" else values


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether answers agree, up to what a GPU rounds when it multiplies with few bits."""
    return one.shape == other.shape and np.allclose(one, other, rtol=0.01, atol=0.01)


def _difference(weights: Sequence[np.ndarray], images: np.ndarray, actual: np.ndarray) -> str:
    """Say how a network's answers differ; name what is missing only if leaving it out gives these very answers."""
    tried = {
        "as without softmax": {"last": "none"},
        "as with sigmoid in place of softmax": {"last": "sigmoid"},
        "as if the pixels were not scaled to 0 to 1": {"scale": 1.0},
        "as if the pixels were divided by 256": {"scale": 1 / 256},
        "as with ReLU that stops at 6 (relu6)": {"most": 6},
        "as without ReLU in the first layer": {"relu": (False, True)},
        "as without ReLU in the second layer": {"relu": (True, False)},
        "as without any ReLU": {"relu": (False, False)},
    }
    for slope in (0.01, 0.1, 0.2, 0.3):  # the last two are Keras' own
        for where, leaks in {"both layers": (1, 1), "the first layer": (1, 0), "the second layer": (0, 1)}.items():
            tried[f"as with LeakyReLU (slope {slope}) in {where}"] = {"leaks": [slope * leak for leak in leaks]}
    expected = _answers(weights, images)
    for what, otherwise in tried.items():
        if _agree(actual, other := _answers(weights, images, **otherwise)) and not _agree(other, expected):
            return f"the layers have the right sizes; the network answers {what}."
    if actual.shape != expected.shape:
        return f"for {len(images)} images expected answers of shape {expected.shape}, came {actual.shape}."
    place = np.unravel_index(np.abs(actual - expected).argmax(), expected.shape)
    return (
        "the layers have the right sizes, the answers differ: with weights that the check chose, expected "
        f"a probability of {expected[place]:.3f} for the digit {place[1]}, came {actual[place]:.3f}."
    )


# ----------------------------------------------------------------------------------------------- its time model


class Line(NamedTuple):
    """A step's time as a straight line: overhead + images x per_image."""

    overhead: float  # seconds of a step, whatever the batch
    per_image: float  # seconds
    misses: dict[int, float]  # for each batch size by what share of the measured time the line lies off; 0.1 is 10 %

    @property
    def worst(self) -> float:
        """The largest miss of all batch sizes, without its sign."""
        return max(map(abs, self.misses.values()))


def fit_line(measured: dict[int, Measurement]) -> Line:
    """Fit overhead + images x per_image to the median times of all batch sizes (least squares of the relative misses).

    Args:
        measured: for each batch size one training step, in seconds.
    """
    sizes = np.array(sorted(measured), float)
    seconds = np.array([measured[size].median for size in sorted(measured)])
    columns = np.stack([np.ones_like(sizes), sizes], axis=1) / seconds[:, None]
    overhead, per_image = np.maximum(np.linalg.lstsq(columns, np.ones_like(sizes), rcond=None)[0], 0).tolist()
    misses = (overhead + per_image * sizes) / seconds - 1
    return Line(overhead, per_image, dict(zip(sorted(measured), misses.tolist(), strict=True)))


def tell_line(line: Line, measured: dict[int, Measurement], images: int) -> str:
    """Say what share of a step is overhead: by the line where it fits, else the most that the measurements allow.

    Args:
        line: what `fit_line` made of the measurements.
        measured: for each batch size one training step, in seconds.
        images: the batch size of the step.
    """
    if line.worst > NEAR:
        short = min(measured.values(), key=lambda one: one.median)
        most = short.median / measured[images].median
        return (
            f"the line is off by up to {line.worst:.0%}, more than {NEAR:.0%}: it gives no share of overhead\n"
            f"the medians give a limit: at most {most:.0%} of a step with {images} images is overhead, because a whole "
            f"step with {short.label} took {duration(short.median)}"
        )
    share = line.overhead / (line.overhead + images * line.per_image)
    return f"the line is off by {line.worst:.0%} at most: by it {share:.0%} of a step with {images} images is overhead"


# ------------------------------------------------------------------------------------------------------ its figures


def _title(drawn: Figure, text: str) -> None:
    """Put the message over the whole figure, in as many lines as it needs; 11 letters of size 11 fill an inch."""
    drawn.suptitle(textwrap.fill(text, int(drawn.get_figwidth() * 11)), fontsize=11, x=0.01, ha="left")


def slope(loss_with: Callable[[float], float], before: float, after: float, gradient: float, parameter: str) -> None:
    """Draw a loss against one parameter, its slope at one value, and the step against it.

    Args:
        loss_with: returns the loss for a value of the parameter, all others unchanged.
        before: the value of the parameter before the step.
        after: and after it.
        gradient: how fast the loss changes with the parameter at `before`.
        parameter: what it is called.
    """
    reach = max(3.0, 1.2 * abs(after - before))
    values = np.linspace(before - 2 * reach, before + reach, 25)
    here, near = loss_with(before), np.array([-1.2, 1.2])
    title = "A gradient is a slope of the loss; a step goes against it"
    with figure(6.0, 3.4) as (drawn, axes):
        axes.plot(values, [loss_with(float(value)) for value in values], color=BLUE, label="loss")
        axes.plot(before + near, here + gradient * near, color=ORANGE, ls="--", lw=2.5, label=f"slope: {gradient:.3f}")
        axes.plot([before], [here], color="black", marker="o", ls="", label="before the step")
        axes.plot([after], [loss_with(after)], color=GREEN, marker="s", ms=7, ls="", label="after the step")
        axes.set(xlabel=parameter, ylabel="loss of one batch")
        axes.legend()
        _title(drawn, title)
    words = f"the loss of one batch against the {parameter}; slope {gradient:.3f} at {before}, step to {after:.2f}"
    show(drawn, f"{title}: {words}.")


def curves(history: dict[str, list[float]], title: str) -> None:
    """Draw loss and accuracy against the epoch, on the training images and on the validation images.

    Args:
        history: what `fit` returns as `history`: loss, accuracy, val_loss and val_accuracy, one entry an epoch.
        title: the message of the figure, with the dataset.
    """
    from matplotlib.ticker import MaxNLocator

    looks = {"": (ORANGE, "o", "training images"), "val_": (BLUE, "s", "validation images")}
    with figure(7.5, 3.4, ncols=2) as (drawn, axes):
        for one, name, ylabel, factor in zip(
            axes, ("accuracy", "loss"), ("accuracy (%)", "loss"), (100, 1), strict=True
        ):
            for kind, (colour, marker, label) in looks.items():
                values = [factor * value for value in history[kind + name]]
                one.plot(range(1, len(values) + 1), values, color=colour, marker=marker, ms=4, label=label)
            one.set(xlabel="epoch", ylabel=ylabel)
            one.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].legend(loc="lower right")
        _title(drawn, title)
    show(drawn, f"{title}: accuracy and loss by epoch, on training images and on validation images.")


def confusion(counts: np.ndarray, title: str) -> None:
    """Show how often each digit was taken for each other one; the right answers, far more, stay grey.

    Args:
        counts: integers of shape (classes, classes): row the digit shown, column the answer.
        title: the message of the figure, with the dataset.
    """
    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    with figure(5.6, 5.0) as (drawn, axes):
        axes.imshow(np.ma.masked_equal(wrong, 0), cmap="Oranges", vmin=0, vmax=max(wrong.max(), 1) * 1.3)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                grey = GREY if row == column else "black"
                axes.text(column, row, f"{count}", ha="center", va="center", fontsize=8.5, color=grey)
        ticks = range(len(counts))
        axes.set(xlabel="what the network said", ylabel="what it was shown", xticks=ticks, yticks=ticks)
        axes.grid(False)
        _title(drawn, title)
    show(drawn, f"{title}: {wrong.sum()} wrong answers of {counts.sum()}, as a matrix of digit shown and answer given.")


def time_per_image(
    measured: dict[int, Measurement], line: Line, published: dict[str, tuple[int, float]], title: str
) -> None:
    """Draw the time for one image against the batch size, a straight line's answer, and how far it lies off.

    Args:
        measured: for each batch size one training step, in seconds.
        line: what `fit_line` made of them.
        published: for each device its batch size and its seconds for one image.
        title: the message of the figure, with the device.
    """
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    sizes = sorted(measured)
    curve = np.geomspace(sizes[0], sizes[-1], 100)
    with figure(7.5, 5.2, nrows=2, sharex=True, height_ratios=(3, 1)) as (drawn, (axes, below)):
        medians = [measured[size].median / size * 1e6 for size in sizes]
        low, high = zip(*([q / size * 1e6 for q in measured[size].quartiles] for size in sizes), strict=True)
        axes.plot(sizes, medians, color=BLUE, marker="s", ms=5, label="measured here")
        axes.fill_between(sizes, low, high, color=BLUE, alpha=0.2, lw=0)
        axes.plot(curve, (line.overhead / curve + line.per_image) * 1e6, color="black", ls="--", lw=1.2,
                  label="the fitted line, divided by the images")  # fmt: skip
        for number, (label, (size, seconds)) in enumerate(published.items()):
            marker, colour = (("^", ORANGE), ("v", GREEN))[number % 2]
            axes.plot([size], [seconds * 1e6], marker=marker, ms=8, mfc="none", mew=2, ls="", color=colour, label=label)
        axes.set(xscale="log", yscale="log", ylabel="time for one image (µs)")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.legend(fontsize=9)
        misses = [100 * line.misses[size] for size in sizes]
        below.axhline(0, color="black", ls="--", lw=1.2)
        below.stem(sizes, misses, linefmt=BLUE, markerfmt="s", basefmt=" ")
        reach = 1.35 * max(10, *map(abs, misses))
        below.set(xlabel="images in a batch", ylabel="line is off\nby (%)", ylim=(-reach, reach))
        below.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        for one in (axes, below):
            one.minorticks_off()
        _title(drawn, title)
    off = ", ".join(f"{size}: {miss:+.0f} %" for size, miss in zip(sizes, misses, strict=True))
    words = "Time for one image in microseconds against the batch size, both axes logarithmic, with a fitted line"
    show(drawn, f"{title}. {words}. By batch size the line is off by {off}.")


def pairs(accuracies: dict[str, dict[int, float]], title: str) -> None:
    """Show for each seed the accuracy of two ways of training, joined, and their difference.

    Args:
        accuracies: for each of the two ways the accuracy by seed, from 0 to 1, on the validation images.
        title: the message of the figure, with the dataset.
    """
    (before, one), (after, other) = accuracies.items()
    rows = range(len(one))
    with figure(7.5, 0.42 * len(one) + 1.7) as (drawn, axes):
        for row, seed in enumerate(one):
            ends = [100 * one[seed], 100 * other[seed]]
            axes.plot(ends, [row, row], color=GREY, lw=1.5, zorder=1)
            axes.annotate(f"{ends[1] - ends[0]:+.2f}", (max(ends), row), xytext=(9, 0), fontsize=9,
                          textcoords="offset points", va="center")  # fmt: skip
        axes.scatter([100 * one[seed] for seed in one], rows, color=ORANGE, marker="o", label=before)
        axes.scatter([100 * other[seed] for seed in one], rows, color=BLUE, marker="s", label=after)
        axes.set_yticks(rows, [f"seed {seed}" for seed in one])
        axes.margins(x=0.12)
        axes.set(xlabel="accuracy on the validation images (%); beside it the difference in points",
                 ylim=(len(one) - 0.5, -0.5))  # fmt: skip
        drawn.legend(loc="outside lower center", ncols=2)
        _title(drawn, title)
    words = "; ".join(f"seed {seed}: {100 * one[seed]:.2f} % and {100 * other[seed]:.2f} %" for seed in one)
    show(drawn, f"{title}. {before} and {after}: {words}.")


def batches(results: dict[int, tuple[float, Sequence[float]]], images: int, epochs: int) -> tables.Table:
    """Put trainings that differ in their batch size side by side.

    Args:
        results: for each batch size the seconds of an epoch, and after each epoch the accuracy, from 0 to 1, on the
            validation images.
        images: how many an epoch shows.
        epochs: after how many of them the accuracies are compared.
    """
    rows = [
        (f"{size:,}", math.ceil(images / size), duration(seconds), f"{accuracies[:epochs][-1]:.2%}")
        for size, (seconds, accuracies) in results.items()
    ]
    after = f"validation accuracy after {epochs} epoch{'s' * (epochs != 1)}"
    return tables.Table(rows, ["images in a batch", "steps an epoch", "an epoch, with validation", after])


def hardest(answers: np.ndarray, shown: np.ndarray) -> int:
    """Return the digit that a network recognises least.

    Args:
        answers: the digits that it named, of shape (n,).
        shown: the labels, of shape (n,).
    """
    return int(np.argmin([np.mean(answers[shown == digit] == digit) for digit in range(10)]))


def tell_pairs(before: dict[int, float], after: dict[int, float]) -> str:
    """Say in how many pairs the second accuracy is higher, and how often luck alone makes all of them point one way.

    Args:
        before: the accuracy by seed, from 0 to 1.
        after: the same with one change, for the same seeds.
    """
    differences = [100 * (after[seed] - before[seed]) for seed in before]
    higher, n = sum(one > 0 for one in differences), len(differences)
    return (
        f"{higher} of {n} pairs rise; differences from {min(differences):+.2f} to {max(differences):+.2f} points, "
        f"median {np.median(differences):+.2f}\n"
        f"(if a change does nothing, all {n} rise by luck alone once in {2**n} times)"
    )


def tell_test(better: bool, scores: Sequence[float], pairs: int, images: int, note: str) -> str:
    """Say what the rule decided, what the test images say of that choice, and how far other images would change it.

    The last is the standard error of a share p counted on n images, sqrt(p (1 - p) / n).

    Args:
        better: whether the rule takes the change.
        scores: of each network of that choice the accuracy on the test images, from 0 to 1.
        pairs: how many pairs the rule had.
        images: how many test images there are.
        note: how far the training falls short of the whole one, in brackets, or nothing.
    """
    few = f"{pairs} pair{'s' * (pairs != 1)}, the rule asks for {PAIRS}"
    rule = few if pairs < PAIRS else "all pairs rise" if better else "not all pairs rise"
    name = "weights averaged" if better else "as in the article"
    middle = float(np.median(scores))
    spread = f"median of {len(scores)} seeds, {min(scores):.2%} to {max(scores):.2%}"
    return (
        f"{rule}: {'take' if better else 'do not take'} the change\n"
        f"{name}{note}: {middle:.2%} of the test images ({spread if len(scores) > 1 else 'one seed: no spread'})\n"
        f"other {images:,} test images would easily change such a number by "
        f"{100 * (middle * (1 - middle) / images) ** 0.5:.2f} points"
    )


# ------------------------------------------------------------------------------- its data, before a training uses it


def check_data(
    images: np.ndarray, labels: np.ndarray, shape: Sequence[int], batch_size: int = 1, classes: int = 10
) -> None:
    """Look at the data before a training does: most of what is wrong with data raises no error in a training.

    Args:
        images: array of shape (n, *shape), pixels from 0 to 255 of any numeric dtype.
        labels: array of shape (n,), whole numbers from 0 to classes - 1.
        shape: the shape of one image, as the network takes it.
        batch_size: images a step.
        classes: how many different labels there are.

    Raises:
        WorkshopError: names what is wrong, where, and what mends it.
    """
    images, labels = _array(images, "images"), _array(labels, "labels")
    shape = (int(shape),) if np.ndim(shape) == 0 else tuple(shape)
    if images.ndim == 1 and labels.ndim > 1:
        shapes = f"Their shapes are {images.shape} and {labels.shape}."
        raise WorkshopError("The images look like labels, and the labels like images.", shapes, "Swap them.")
    n = len(images) if images.ndim else 0
    if n == 0 or images.size == 0:
        raise WorkshopError(
            "There are no images to train with.",
            f"The array has the shape {images.shape}.",
            "Look at the slice that made it.",
        )
    if images.shape[1:] != shape:
        raise WorkshopError(
            f"The network takes images of shape {shape}; these have {images.shape[1:]}.",
            "The first number of an array's shape counts the images; the rest must be what the network was built for.",
            _new_shape(images, shape),
        )
    _check_labels(labels, n, classes)
    if images.dtype.kind == "f" and not np.isfinite([images.min(), images.max()]).all():  # no array of their size
        bad = np.flatnonzero(~np.isfinite(images).reshape(n, -1).all(axis=1))
        raise WorkshopError(
            f"{len(bad):,} of {n:,} images hold NaN or infinity, the first of them is image {bad[0]}.",
            "A single step with such a pixel, and the network gives every image the same answer; no error is raised.",
            "Look where they come from, or leave those images out.",
        )
    if images.dtype.kind == "f" and 0 < images.max() <= 1:
        raise WorkshopError(
            f"The pixels lie between 0 and {images.max():.3g}: somebody has scaled them already.",
            "The lessons' networks take pixels from 0 to 255 and scale them themselves; to them this is blank paper.",
            "Take the bytes as load_mnist() returns them.",
        )
    _check_batch_size(batch_size, n)


def _array(values: object, what: str) -> np.ndarray:
    """Take what the learner gave as an array of numbers."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "buif":
        raise WorkshopError(
            f"The {what} are no array of numbers.",
            f"NumPy makes {array.dtype} of them." if array.size else "NumPy can make no array of them.",
            "Take the arrays that load_mnist() returns.",
        )
    return array


def _new_shape(images: np.ndarray, shape: tuple[int, ...]) -> str:
    """Say how to give images the shape that the network takes, if their pixels stand in that order already."""
    if images.shape == shape:
        return "This is a single image: images[None]"
    have, want = ([size for size in one if size != 1] for one in (images.shape[1:], shape))
    flat = min(len(have), len(want)) == 1 and np.prod(have) == np.prod(want)
    if have == want or flat:
        return f"images.reshape({', '.join(map(str, (-1, *shape)))})"
    return "Build the network for these images."


def _check_labels(labels: np.ndarray, n: int, classes: int) -> None:
    if labels.ndim == 2 and labels.shape[1] == classes > 1:
        raise WorkshopError(
            f"The labels have the shape {labels.shape}: one column for each class.",
            "This lesson's loss takes the numbers of the classes themselves (sparse_categorical_crossentropy).",
            "labels.argmax(axis=1)",
        )
    if labels.shape != (n,):
        raise WorkshopError(
            f"There are {n:,} images, and labels of shape {labels.shape}.",
            "Every image needs one label, in the same order.",
            "labels.reshape(-1)" if labels.size == n else "Slice images and labels alike.",
        )
    if labels.dtype.kind not in "ui":
        raise WorkshopError(
            f"The labels are {labels.dtype}, not whole numbers.",
            f"A label is the number of a class, from 0 to {classes - 1}.",
            'labels.astype("uint8"), once you know that no label is lost',
        )
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        first = outside[0]
        raise WorkshopError(
            f"{len(outside):,} of {n:,} labels lie outside 0 to {classes - 1}; "
            f"the first is labels[{first}] = {labels[first]}.",
            "TensorFlow stops at it with a long error on a CPU; JAX raises nothing and learns nothing from that image.",
            "Mend those labels, or leave their images out.",
        )


def _check_batch_size(batch_size: int, n: int) -> None:
    choose = f"Choose a whole number from 1 to {n:,}."
    try:
        size = operator.index(batch_size)
    except TypeError:
        raise WorkshopError(
            f"The batch size is {batch_size!r}, not a whole number.", "It counts the images of one step.", choose
        ) from None
    if size < 1:
        raise WorkshopError(f"A batch of {size:,} images teaches nothing.", "A step needs an image at least.", choose)
    if size > n:
        raise WorkshopError(
            f"A batch of {size:,} images cannot be taken from {n:,}.",
            "Keras would quietly make one smaller batch of them all, so that each epoch were a single step.",
            choose,
        )
