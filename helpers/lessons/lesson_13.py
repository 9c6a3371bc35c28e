"""Lesson 13, Break training on purpose: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import inspect
import re
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np

from helpers.compute import devices, processes
from helpers.compute.backends import BACKENDS
from helpers.doctor.packages import files_of, owners  # noqa: F401 (the lesson calls owners itself)
from helpers.judge import checks
from helpers.judge.checks import NotDone, NotYet
from helpers.measure.plots import BLUE, GREY, ORANGE, RED, figure, show

# ----------------------------------------------------------------------------------------- running what goes wrong

PLAIN = {  # for a process in which no GPU is seen, and nothing is set that the lesson wants to set itself
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": None,
    "XLA_FLAGS": None,
    "TF_CPP_MIN_LOG_LEVEL": "0",
}
TITLES = {"numpy": "NumPy", **BACKENDS}
SHOWN = 160  # characters of a message


def one_thread() -> None:
    """Let NumPy multiply on one thread: products as small as this lesson's would only wait for the others."""
    with contextlib.suppress(ImportError):
        import threadpoolctl

        threadpoolctl.threadpool_limits(1)


def said(action: Callable[..., object], *arguments: object, **named: object) -> str:
    """Do it, and return in one line what came of it: "no error: ..." or the error's kind and its telling line."""
    try:
        return textwrap.shorten(f"no error: {action(*arguments, **named)}", SHOWN, placeholder=" ...")
    except Exception as error:
        lines = [line.strip() for line in re.sub(r"\{\{.*?\}\}", "", str(error)).splitlines() if line.strip()] or [""]
        told = next((line for line in lines if line.startswith("Received")), lines[0])  # Keras puts a stack before it
        told = re.sub(r"^\[enforce fail[^]]*\] .*?\. | \[Op:.*|  Label values:.*| enable_soft_placement=.*", "", told)
        return textwrap.shorten(f"{type(error).__name__}: {told}", SHOWN, placeholder=" ...")


def fate(run: processes.Run) -> str:
    """Return what a process printed and, if it failed, the last word of its failure."""
    failed = run.failures[0].partition("; it was in")[0].splitlines()[-1:]
    return "\n".join([*run.stdout[0].splitlines(), *failed])


def missing(framework: str) -> str:
    """Say visibly that a framework is skipped, and how to get it; empty where it is installed."""
    if framework == "numpy" or devices.installed(framework):
        return ""
    return f"skipped: {devices.not_installed(framework)}"


def on_each(
    functions: Mapping[str, Callable], seconds: float = 120.0, variables: Mapping[str, str | None] | None = None,
    **arguments: object,
) -> dict[str, processes.Run]:  # fmt: skip
    """Run for each framework its function in a fresh process, one after the other, and print what each said.

    Args:
        functions: by the framework's name: "tensorflow", "jax", "torch" or "numpy".
        seconds: for each.
        variables: environment variables beside PLAIN; KERAS_BACKEND is the framework.
        arguments: for the functions; one with a parameter `framework` gets its name.

    Returns:
        The runs of those that are installed.
    """
    runs = {}
    for framework, function in functions.items():
        print(f"-- {TITLES[framework]}")
        if skipped := missing(framework):
            print(skipped)
            continue
        keras = {"KERAS_BACKEND": framework if framework in BACKENDS else None}
        changes = {**PLAIN, **keras, **(variables or {})}
        itself = {"framework": framework} if "framework" in inspect.signature(function).parameters else {}
        runs[framework] = processes.run(function, 1, seconds, changes, check=False, arguments=arguments | itself)
        print(fate(runs[framework]))
    return runs


def compare_refused(prediction: object, runs: Mapping[str, processes.Run]) -> None:
    """Compare a prediction with the names of the frameworks whose first line is an error; with nothing if none ran."""
    first = {name: (run.stdout[0].splitlines() or [run.failures[0]])[0] for name, run in runs.items()}
    if first:
        refused = [name for name, line in first.items() if "Error" in line]
        checks.compare_prediction(prediction, ", ".join(refused) or "none")
        if isinstance(prediction, str):
            named = set(re.findall(r"[a-z]+", prediction.lower())) - {"none", "and"}
            differing = sorted(named ^ set(refused))
            print(f"not so in: {', '.join(differing)}" if differing else "your prediction agrees")


def compare_survivors(prediction: object, runs: Mapping[str, processes.Run]) -> None:
    """Compare a prediction with whether all that ran out of memory computed again afterwards: "yes" or "no"."""
    failed = [run.stdout[0] for run in runs.values() if "Error" in run.stdout[0] or run.failures[0]]
    if failed:
        again = all("after it, batch 1: no error" in text for text in failed)
        checks.compare_prediction(prediction, "yes" if again else "no")
    else:
        print("nothing measured here")


def gpu_seen() -> bool:
    """Whether TensorFlow, in a process of its own, sees a GPU; its build for CPUs is not asked."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return not metadata.version("tensorflow-cpu")
    return any(one.kind == "gpu" for one in devices.ask("tensorflow").devices)


# ------------------------------------------------------------------------------------------------ packages, imitated


class Site:
    """A folder with packages, as site-packages is, and the two things that an installer does there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def install(self, package: str, version: str) -> None:
        """Build a tiny imitation of a TensorFlow wheel, and unpack it as pip does: over what is there.

        The format is that of PEP 427: an archive with the package, and beside it a folder in which RECORD lists files.
        """
        flavour = "cpu" if package.endswith("-cpu") else "gpu"
        info = f"{package.replace('-', '_')}-{version}.dist-info"
        code = f'__version__ = "{version}"\nflavour = "{flavour}"\n'
        files = {"tensorflow/__init__.py": code, f"tensorflow/lib_{flavour}.so": "", "tensorflow/ops.py": ""}
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        rows = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
        wheel = self.folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.folder)
        wheel.unlink()

    def uninstall(self, package: str) -> None:
        """Delete what the package's RECORD lists, as pip does, also what another package lists, too."""
        for name in files_of(self.folder)[package]:
            (self.folder / name).unlink(missing_ok=True)

    def look(self) -> str:
        """Return which packages count as installed, and what a fresh Python says of tensorflow's version."""
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r}); import tensorflow as tf"
        code += "; print(tf.__version__, tf.flavour)"
        done = processes.run_command([sys.executable, "-I", "-S", "-B", "-c", code], 30)
        imported = done.stdout.strip() or done.stderr.strip().splitlines()[-1]
        imported = re.sub(r" \((?:unknown location|consider .*)\)", "", imported)
        return f"installed: {', '.join(sorted(files_of(self.folder))) or 'nothing'} | version: {imported}"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


# --------------------------------------------------------------------------------------------------- its exercises


def prepare_as_given(images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> tuple:
    """Exercise 1 as it is handed out, with its three faults."""
    x = images.reshape(-1, 784).astype(np.float32)
    return x[rng.permutation(len(x))], labels[rng.permutation(len(labels))]


@checks.verdict
def check_prepare(learner: Callable) -> Iterator[str]:
    """Lesson 13, exercise 1: images of shape (28, 28, n) as rows, from 0 to 1, shuffled together with their labels."""
    yield judge_prepare(learner)


def judge_prepare(learner: Callable) -> str:
    """Judge what `prepare` returns: every image once, as it was, scaled, beside its own label, in another order."""
    orders: list[tuple[int, ...]] = []
    sizes = (1, 2, 7, 60, 300, 784)
    for many, seed in [(7, 3), *((many, seed) for many in sizes for seed in (1, 2)), (784, 2)]:
        images, labels = _stored(many)
        where = f"for {many} image{'s' * (many > 1)}"
        given = images.copy(), labels.copy()
        x, y = _call_prepare(learner, *given, seed, where)
        handed_out = prepare_as_given(images, labels, np.random.default_rng(seed))
        if many == 7 and np.array_equal(x, handed_out[0]) and np.array_equal(y, handed_out[1]):
            raise NotDone("this is what you were given, and it has the faults.")
        order = _judge_rows(images.transpose(2, 0, 1), labels, x, y, where)
        if not (np.array_equal(given[0], images) and np.array_equal(given[1], labels)):
            raise NotYet(f"{where} it changed its arguments; work on copies.")
        orders.append(tuple(order))
    for order in orders:
        if len(order) >= 60:
            _judge_shuffled(order)
    if orders[-2] != orders[-1]:
        raise NotYet("the same generator `rng` gave two different orders; take the order from `rng` alone.")
    if orders[-3] == orders[-2]:
        raise NotYet("two generators of different seeds gave the same order; take the order from `rng`.")
    return f"{len(sizes)} sizes, each image once beside its own label"


def _judge_shuffled(order: Sequence[int]) -> None:
    """Judge whether an order is shuffled: neither rolled, nor reversed, nor cut in blocks, nor with two exchanged."""
    many = len(order)
    _, steps = np.unique(np.diff(order) % many, return_counts=True)  # from each image to the next
    if steps.max() > many / 4 or np.sum(np.array(order) == np.arange(many)) > many / 4:
        raise NotYet(
            f"of {many} images most are still in their stored order, or at equal distances from one to the next: "
            f"{', '.join(map(str, order[:8]))}, ... Expected them shuffled."
        )


def _stored(many: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random images of shape (28, 28, many), no two alike, from white to black, the first faint; and labels."""
    rng = np.random.default_rng()
    images = rng.integers(0, 256, (28, 28, many), np.uint8)
    images[0, 0], images[27, 27] = 0, 255
    images[0, 1], images[0, 2] = np.arange(many) % 256, np.arange(many) // 256
    images[..., 0] //= 2
    return images if many != 60 else images // 3 * 2, rng.integers(0, 10, many).astype(np.uint8)


def _call_prepare(learner: Callable, images: np.ndarray, labels: np.ndarray, seed: int, where: str) -> tuple:
    came = checks.answer(learner, images, labels, np.random.default_rng(seed), who=f"{where} prepare")
    if came is None or came is ...:
        raise NotDone(f"prepare returned {came}; expected the pair x, y.")
    if not isinstance(came, list | tuple) or len(came) != 2:
        raise NotYet(f"{where} expected the pair x, y; came {checks._short(came)}.")
    if not all(isinstance(one, np.ndarray) for one in came):
        raise NotYet(f"{where} expected two arrays; came {' and '.join(type(one).__name__ for one in came)}.")
    return tuple(came)


def _judge_rows(images: np.ndarray, labels: np.ndarray, x: np.ndarray, y: np.ndarray, where: str) -> list[int]:
    """Judge x and y against the images (n, 28, 28) and their labels, and return the order in which they came."""
    many = len(images)
    if x.shape != (many, 784):
        raise NotYet(f"{where} expected x of shape ({many}, 784), came {x.shape}.")
    if y.shape != (many,):
        raise NotYet(f"{where} expected y of shape ({many},), came {y.shape}.")
    if x.dtype != np.float32:
        raise NotYet(f"{where} expected x of dtype float32, came {x.dtype}.")
    if y.dtype.kind not in "iu":
        raise NotYet(f"{where} expected y of an integer dtype, such as {labels.dtype}; came {y.dtype}.")
    if not np.isfinite(x).all():
        raise NotYet(f"{where} x holds NaN or infinity.")
    low, high, darkest = float(x.min()), float(x.max()), int(images.max())
    if low < 0 or abs(high - darkest / 255) > 1e-3:
        raise NotYet(
            f"{where} the darkest pixel is {darkest} of 255, and so {darkest / 255:.4g} in x; "
            f"x goes from {low:g} to {high:g}."
        )
    pixels = np.rint(x * 255).astype(np.int64)
    places = {image.tobytes(): place for place, image in enumerate(images.reshape(many, 784))}
    order = [places.get(row.astype(np.uint8).tobytes()) for row in pixels]
    for row, place in enumerate(order):
        if place is None:
            if (other := _scaled_otherwise(images.reshape(many, 784), x[row])) is not None:
                raise NotYet(
                    f"{where} row {row} of x shows image {other}, scaled otherwise: its darkest pixel is "
                    f"{images[other].max()} of 255, and {x[row].max():.4g} in x."
                )
            raise NotYet(f"{where} row {row} of x is none of the images, read row by row. Show it as a picture.")
        if not np.allclose(x[row], images[place].reshape(784) / 255, rtol=0, atol=1e-3 / 255):
            raise NotYet(f"{where} row {row} of x shows an image, but its pixels are rounded.")
    if len(set(order)) < many:
        raise NotYet(f"{where} an image comes twice, and another is lost; expected each once.")
    for row, place in enumerate(order):
        if int(y[row]) != int(labels[place]):
            raise NotYet(
                f"{where} row {row} of x shows image {place}, whose label is {labels[place]}; y says {y[row]}."
            )
    return order


def _scaled_otherwise(images: np.ndarray, row: np.ndarray) -> int | None:
    """Return the number of the image (n, 784) of which the row is a multiple; None if there is none."""
    for number, image in enumerate(images.astype(float)):
        if np.allclose(row * image.max(), image * row.max(), rtol=0, atol=1e-3 * max(image.max() * row.max(), 1e-9)):
            return number
    return None


RATE, GROWTH = 0.5, 3


@checks.verdict
def check_next_step(learner: Callable) -> Iterator[str]:
    """Lesson 13, exercise 2: a step with scaled float16 gradients, and the next scale."""
    yield judge_next_step(learner)


def next_step(weights: np.ndarray, scaled: np.ndarray, scale: float, good: int) -> tuple[np.ndarray, float, int]:
    """The reference of exercise 2."""
    if not np.isfinite(scaled).all():
        return weights, scale / 2, 0
    stepped = weights - np.float32(RATE) * (scaled.astype(np.float32) / np.float32(scale))
    return (stepped, scale * 2, 0) if good + 1 == GROWTH else (stepped, scale, good + 1)


def judge_next_step(learner: Callable) -> str:
    """Judge (weights, scale, good) after one step, on ordinary gradients, on tiny and large ones, on inf and NaN."""
    rng = np.random.default_rng()

    def draw(size: float, shape: tuple = (4,)) -> np.ndarray:
        return (rng.uniform(0.5, 1, shape) * rng.choice([-1, 1], shape) * size).astype(np.float16)

    inf, nan = np.float16(np.inf), np.float16(np.nan)
    cases = [("ordinary gradients", draw(100), 1024.0, 0), ("after two good steps", draw(100), 1024.0, 2)]
    for bad, value in (("inf", inf), ("-inf", -inf), ("NaN", nan)):
        for good in range(GROWTH):
            spoilt = draw(100)
            spoilt[int(rng.integers(4))] = value
            cases.append((f"one gradient is {bad}", spoilt, float(2 ** rng.integers(3, 15)), good))
    spoilt = draw(100)
    spoilt[0], spoilt[3] = inf, -inf  # their sum is NaN, their mean too
    cases += [("one is inf, one is -inf", spoilt, 512.0, 1), ("all are NaN", np.full(4, nan), 4096.0, 2)]
    for good in range(GROWTH):
        cases.append(("gradients that float16 cannot hold without the scale", draw(1e-3), 65536.0, good))
        cases.append(("gradients near the largest float16", np.abs(draw(65504)), 8.0, good))
        largest = np.array([65504, 1, -65504, 2], np.float16)  # finite
        cases.append(("65504 is finite", largest, 8.0, good))
        cases.append(("zeros", np.zeros(4, np.float16), 2.0**14, good))
        cases.append(("a matrix", draw(10, (3, 2)), float(2 ** rng.integers(0, 15)), good))
        odd = (2 * rng.integers(1, 500, 4) + 1) * 2.0**-24  # half of it is none of float16's numbers
        cases.append(("very small float16 numbers without the scale", odd.astype(np.float16), 1.0, good))
    for scale in (1.0, 3.0, 2.0**18):
        cases.append(("one gradient is inf", np.array([1, inf, 2, 3], np.float16), scale, 1))
    for many, (what, scaled, scale, good) in enumerate(cases):
        size = 2e-8 if "without the scale" in what else 2  # beside weights of 1 float32 cannot see such steps
        weights = (size * rng.uniform(-1, 1, scaled.shape)).astype(np.float32)
        where = f"{what} ({checks._short(scaled.astype(float).round(6).tolist())}), scale {scale:g}, good {good}"
        given = weights.copy(), scaled.copy()
        with np.errstate(all="ignore"):
            came = checks.answer(learner, *given, scale, good, who=f"{where}: next_step")
        if came is None or came is ...:
            if many == 0:
                raise NotDone(f"next_step returned {came}; expected weights, scale, good.")
            raise NotYet(f"{where}: next_step returned {came}; expected weights, scale, good.")
        _judge_step(came, next_step(weights, scaled, scale, good), where)
        if not (np.array_equal(given[0], weights) and np.array_equal(given[1], scaled, equal_nan=True)):
            raise NotYet(f"{where}: it changed its arguments; make new arrays.")
    return f"{len(cases)} steps"


def _judge_step(came: object, expected: tuple, where: str) -> None:
    if not isinstance(came, list | tuple) or len(came) != 3:
        raise NotYet(f"{where}: expected the three (weights, scale, good), came {checks._short(came)}.")
    weights, scale, good = came
    if any(isinstance(one, np.ndarray) and one.shape == expected[0].shape for one in (scale, good)):
        raise NotYet(f"{where}: expected the weights first. Is the order weights, scale, good?")
    if not isinstance(weights, np.ndarray) or weights.shape != expected[0].shape:
        raise NotYet(f"{where}: expected weights of shape {expected[0].shape}, came {checks._short(weights)}.")
    if weights.dtype != np.float32:
        lost = "; small steps would be lost" if weights.dtype == np.float16 else ""
        raise NotYet(f"{where}: expected float32 weights, came {weights.dtype}{lost}.")
    if not np.allclose(weights, expected[0], rtol=0, atol=1e-6 * float(np.abs(expected[0]).max())):
        place = np.unravel_index(
            int(np.nanargmax(np.nan_to_num(np.abs(weights - expected[0]), nan=np.inf))), weights.shape
        )
        raise NotYet(f"{where}: a weight should be {expected[0][place]:.8g}, came {weights[place]:.8g}.")
    with contextlib.suppress(TypeError, ValueError):
        if expected[1] != expected[2] and (scale, good) == (expected[2], expected[1]):
            raise NotYet(f"{where}: scale and good have changed places. Is the order weights, scale, good?")
    for name, value, wanted in (("scale", scale, expected[1]), ("good", good, expected[2])):
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if not number or float(value) != wanted:  # as a float: NumPy would round `wanted` to a float16 beside it
            raise NotYet(f"{where}: {name} should be {wanted:g} afterwards, came {checks._short(value)}.")


@checks.verdict
def check_check_batch(learner: Callable) -> Iterator[str]:
    """Lesson 13, exercise 3: what is wrong with a batch, the first in the order shape, dtype, nan, range, label."""
    yield judge_check_batch(learner)


def judge_check_batch(learner: Callable) -> str:
    """Judge what `check_batch` says of good and bad batches that change with every call."""

    def right(x: np.ndarray, y: np.ndarray, classes: int) -> str:
        if len(x) != len(y):
            return "shape"
        if x.dtype != np.float32 or not np.issubdtype(y.dtype, np.integer):
            return "dtype"
        if not np.isfinite(x).all():
            return "nan"
        if x.min() < 0 or x.max() > 1:
            return "range"
        return "label" if y.min() < 0 or y.max() >= classes else "fine"

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        def batch(many: int = 5, *shape: int) -> np.ndarray:
            x = rng.uniform(0.1, 0.9, (many, *(shape or (3,)))).astype(np.float32)
            x.flat[0], x.flat[-1] = 0, 1  # both are allowed
            return x

        def spoilt(value: float, dtype: type = np.float32) -> np.ndarray:
            x = batch().astype(dtype)
            x.flat[int(rng.integers(1, x.size - 1))] = value
            return x

        y = np.array([0, 1, 2, 9, 5])
        yield np.ones((2, 3), np.float32), np.array([1, 10]), 10
        yield batch(), y, 10
        yield batch(5, 28, 28), y, 10
        yield batch(5, 4, 4, 3), y.astype(np.uint8), 10
        yield batch(), y, 9  # 9 is one too large
        yield batch(), np.array([0, 1, 2, 10, 5]), 10
        yield batch(), np.array([0, 1, 2, -1, 5]), 10
        yield batch(), np.array([-1, 0, 0, 0, 0]), 3
        yield batch(), np.zeros(5, np.int32), 1
        yield batch(4), y, 10
        yield batch(6), y, 10
        yield batch(3, 5), y, 10  # as many elements a row as labels
        yield batch(4).astype(np.float64), y, 10  # the shape comes first
        yield batch().astype(np.float64), y, 10
        yield batch().astype(np.float16), y, 10
        yield (255 * batch()).astype(np.uint8), y, 10
        yield batch(), y.astype(np.float32), 10
        yield batch(), y.astype(np.float16), 10
        yield batch(), y > 3, 10  # bool
        yield batch(), y.astype(str), 10
        yield batch(), y.astype(np.float64) + 0.5, 10
        yield spoilt(np.nan, np.float64), y, 10
        for value in (np.nan, np.inf, -np.inf):
            yield spoilt(value), y, 10
            yield spoilt(value), y, 9
        for value in (1.01, -0.01, 255, -1, np.nextafter(np.float32(1), np.float32(2)), -1e-6, 3e38):
            yield spoilt(value), y, 10
            yield spoilt(value), y - 1, 10
        large = batch()
        large.flat[1], large.flat[2] = 3e38, 3e38  # finite, but their sum in float32 is not
        yield large, y, 10
        two = spoilt(np.nan)
        two.flat[-1] = 300
        yield two, y, 10
        balanced = batch()
        balanced.flat[1], balanced.flat[2] = -0.5, 1.5  # their mean is in range
        yield balanced, y, 10
        for _ in range(20):
            labels = rng.integers(0, 5, 4)
            labels[int(rng.integers(4))] += 5 * int(rng.integers(2))
            yield batch(4), labels, 5

    tried = 0
    for x, y, classes in cases(np.random.default_rng()):
        where = f"for {_batch_text(x)}, y = {y.tolist()} ({y.dtype}), classes = {classes}"
        given = x.copy(), y.copy()
        with np.errstate(all="ignore"):
            came = checks.answer(learner, *given, classes, who=f"{where}: check_batch")
        if came is ... or (came is None and not tried):
            raise NotDone(f"check_batch returned {came}; expected a word.")
        if not isinstance(came, str) or came != right(x, y, classes):
            raise NotYet(f"{where}: expected {right(x, y, classes)!r}, came {checks._short(came)}.")
        if not (np.array_equal(given[0], x, equal_nan=True) and np.array_equal(given[1], y)):
            raise NotYet(f"{where}: it changed its arguments; work on copies.")
        tried += 1
    return f"{tried} batches"


def _batch_text(x: np.ndarray) -> str:
    strange = [str(value) for value in x.flat if not np.isfinite(value)]
    values = f"with {', '.join(strange)}" if strange else f"from {x.min():g} to {x.max():g}"
    return f"x of shape {x.shape} ({x.dtype}) {values}"


CAUSES = {  # of each the test that finds it, how it answers then in words, and whether it does
    "raw pixels": ("run.x.max()", lambda run: float(np.max(run.x)), "far above 1", lambda came: came > 10),
    "rate too high": ("run.end(rate=0.1)", lambda run: run.end(rate=0.1), "below 1", lambda came: came < 1),
    "rate too low": ("run.end(rate=0.1)", lambda run: run.end(rate=0.1), "below 1", lambda came: came < 1),
    "gradients add up": ("run.growth()", lambda run: run.growth(), "2", lambda came: abs(came - 2) < 0.1),
    "softmax twice": ("run.row_sum()", lambda run: run.row_sum(), "1", lambda came: abs(came - 1) < 0.1),
    "pairs": ("run.end(images=32)", lambda run: run.end(images=32), "near 0", lambda came: came < 0.5),
    "layout": ("run.end(images=32)", lambda run: run.end(images=32), "near 0", lambda came: came < 0.5),
}
OF_INF = ("raw pixels", "rate too high", "gradients add up")  # the others leave the loss high


@dataclass(frozen=True)
class Training:
    """A training of exercise 4: the network of the lesson, and one fault that the learner does not see."""

    x: np.ndarray = field(repr=False)  # as the network gets it, (n, 784)
    y: np.ndarray = field(repr=False)  # its labels, (n,)
    _cause: str = field(repr=False)
    rate: float = field(repr=False, default=0.1)
    steps: int = field(repr=False, default=300)

    @functools.cached_property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return self._learn(self.x, self.y, self.rate)[1]

    def end(self, rate: float | None = None, images: int | None = None) -> float:
        """Train once more, at another rate or on the first images alone; return the mean of the last 100 losses."""
        if rate is None and images is None:
            return float(np.mean(self.losses[-100:]))
        return float(np.mean(self._learn(self.x[:images], self.y[:images], rate or self.rate)[1][-100:]))

    def growth(self) -> float:
        """Compute the gradient of one batch twice, weights unchanged; return how many times larger the second is."""
        weights = np.zeros((784, 10), np.float32)
        first = self._gradient(weights, self.x[:128], self.y[:128], np.zeros_like(weights))[0]
        second = self._gradient(weights, self.x[:128], self.y[:128], first)[0]
        return float(np.abs(second).max() / np.abs(first).max())

    def row_sum(self) -> float:
        """Return the sum of the ten numbers that the trained network hands to its loss for the first image."""
        weights = self._learn(self.x, self.y, self.rate)[0]
        return float(self._to_loss(self.x[:1] @ weights).sum())

    def _to_loss(self, scores: np.ndarray) -> np.ndarray:
        return _softmax(scores) if self._cause == "softmax twice" else scores

    def _gradient(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray, last: np.ndarray) -> tuple:
        """Return (the gradient by the weights, the loss) of a batch; `last` is the gradient of the step before."""
        with np.errstate(all="ignore"):
            given = self._to_loss(x @ weights)
            p, right = _softmax(given), (np.arange(len(x)), y)
            loss = float(-np.log(p[right]).mean())
            p[right] -= 1
            if self._cause == "softmax twice":  # the chain rule through the first one
                p = given * (p - (p * given).sum(axis=1, keepdims=True))
            gradient = x.T @ p / len(x)
            return (gradient + last if self._cause == "gradients add up" else gradient), loss

    def _learn(self, x: np.ndarray, y: np.ndarray, rate: float) -> tuple[np.ndarray, list[float]]:
        rng, weights, losses = np.random.default_rng(0), np.zeros((784, 10), np.float32), []
        gradient = np.zeros_like(weights)
        for _ in range(self.steps):
            batch = rng.integers(0, len(x), 128)
            gradient, loss = self._gradient(weights, x[batch], y[batch], gradient)
            weights = weights - np.float32(rate) * gradient
            losses.append(loss)
        return weights, losses


def _softmax(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def trainings(x: np.ndarray, y: np.ndarray) -> dict[str, Training]:
    """Return the six trainings of exercise 4, by their letters.

    Args:
        x: images in the right form, (n, 784), float32 from 0 to 1.
        y: their labels.
    """
    shuffled = y[np.random.default_rng(1).permutation(len(y))]
    return {
        "A": Training(x, y, "rate too high", rate=100),
        "B": Training(x, shuffled, "pairs"),
        "C": Training(x, y, "softmax twice"),
        "D": Training(x, y, "gradients add up", rate=0.3, steps=600),  # more steps, and inf for certain
        "E": Training(x, y, "rate too low", rate=0.001),
        "F": Training(255 * x, y, "raw pixels"),
    }


@checks.verdict
def check_diagnosis(diagnosis: Mapping[str, Sequence], x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """Lesson 13, exercise 4: of each training the cause, and what the test of this cause printed."""
    yield judge_diagnosis(diagnosis, x, y)


def judge_diagnosis(diagnosis: Mapping[str, Sequence], x: np.ndarray, y: np.ndarray) -> str:
    """Judge what a learner says of each training on these data: (cause, number)."""
    return checks.judge_diagnosis(diagnosis, trainings(x, y), ("cause", "number"), "trainings", _judge_one)


def _judge_one(letter: str, run: Training, cause: object, number: object) -> None:
    cause = " ".join(cause.partition("(")[0].lower().split()) if isinstance(cause, str) else cause
    if cause not in CAUSES:
        raise NotYet(f"{letter}: the cause {cause!r} is not in the list: {', '.join(CAUSES)}.")
    test, measure, guilty, fits = CAUSES[cause]
    actual = measure(run)
    both = {cause, run._cause}
    if cause != run._cause and both == {"pairs", "layout"}:
        raise NotYet(f"{letter}: the loop can learn, so its data are wrong. Look at them: lesson.as_seen.")
    if cause != run._cause and both == {"rate too high", "rate too low"}:
        raise NotYet(f"{letter}: the rate is wrong, but the symptom is that of the other one.")
    if cause != run._cause and (cause in OF_INF) != (run._cause in OF_INF):
        raise NotYet(
            f"{letter}: {cause!r} belongs to the other symptom. The mean of its last losses is {run.end():.3g}."
        )
    if cause != run._cause and fits(actual):
        raise NotYet(f"{letter}: {cause!r} is not its cause, though {test} fits it. Run the other tests.")
    if cause != run._cause:
        raise NotYet(
            f"{letter}: {cause!r} is not its cause. For it {test} would print {guilty}. "
            f"Run this test of {letter} and compare."
        )
    try:
        close = not isinstance(number, bool) and abs(float(number) - actual) <= _rounding(actual)
    except (TypeError, ValueError):
        close = False
    if not close:
        raise NotYet(f"{letter}: the cause is right. Write beside it the number that {test} prints; came {number!r}.")


def _rounding(actual: float) -> float:
    """Return how far a learner's rounded number may lie from the actual one; 0 is never near enough."""
    return max(0.006, min(0.06, 0.1 * abs(actual)), 0.02 * abs(actual))


# ------------------------------------------------------------------------------------------------------ its figures


def gradients(values: np.ndarray, scale: float, title: str) -> None:
    """Draw how large numbers are, as they are and scaled, and which of them float16 makes 0.

    Args:
        values: numbers, float32.
        scale: by which they are multiplied in the lower panel.
        title: the message of the figure.
    """
    sizes = np.log10(np.abs(values[values != 0]).astype(float))
    smallest, largest = np.log10(2.0**-25), np.log10(65520)  # below the first it rounds to 0, from the second to inf
    bins = smallest + 0.25 * np.arange(-24, 55)  # an edge where numbers are lost
    words = []
    with figure(7.5, 4.2, nrows=2, sharex=True, sharey=True) as (drawn, axes):
        for panel, factor, name in ((axes[0], 1.0, "as they are"), (axes[1], scale, f"multiplied by {scale:,.0f}")):
            moved = sizes + np.log10(factor)
            lost = (moved <= smallest).mean()
            panel.hist(moved[moved > smallest], bins, color=BLUE, label="kept")
            panel.hist(moved[moved <= smallest], bins, color=ORANGE, hatch="//", edgecolor="white", label="become 0")
            for edge in (smallest, largest):
                panel.axvline(edge, color=GREY, ls="--", lw=1.2)
            panel.set_title(f"{name}: {lost:.1%} become 0 in float16", fontsize=10)
            panel.set_ylabel("numbers")
            words.append(f"{name}: {lost:.1%} become 0")
        axes[1].text(largest - 0.15, 0.93 * axes[1].get_ylim()[1], "float16's range", fontsize=9, ha="right", va="top")
        axes[1].set_xticks(range(-14, 7, 2))
        axes[1].set_xlabel("size, as a power of ten (-8 is 0.00000001)")
        axes[1].set_xlim(bins[0], bins[-1])
        handles, labels = axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=2)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(
        drawn, f"{title}. Sizes on a logarithmic scale, between dashed lines what float16 can hold. {'; '.join(words)}."
    )


def curves(losses: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw the loss of several trainings, each the mean of ten steps, beside that of guessing.

    Args:
        losses: for each training its loss, step by step.
        title: the message of the figure.
    """
    looks = ((BLUE, "-"), (ORANGE, "--"), (RED, ":"))
    with figure(7.5, 3.4) as (drawn, axes):
        for (name, values), (colour, line) in zip(losses.items(), looks, strict=False):
            means = np.reshape(values[: len(values) // 10 * 10], (-1, 10)).mean(axis=1)
            axes.plot(10 * np.arange(1, len(means) + 1), means, color=colour, ls=line, lw=1.8, label=name)
        axes.axhline(np.log(10), color=GREY, lw=1.2, ls="-.", label="guessing: 2.30")
        axes.set(xlabel="training step", ylabel="loss, mean of ten steps", title=title)
        axes.set_ylim(bottom=0)
        drawn.legend(loc="outside lower center", ncols=4)
    ends = "; ".join(f"{name}: {np.mean(values[-10:]):.2f}" for name, values in losses.items())
    show(drawn, f"{title}. Loss at the end: {ends}; guessing gives 2.30.")


def as_seen(batches: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> None:
    """Show eight images from all of each batch as the network gets them, each under its label.

    Args:
        batches: for each name (x, y): x of shape (n, 784), from 0 to 1, and the labels.
        title: the message of the figure.
    """
    with figure(7.5, 1.25 * len(batches) + 0.4, nrows=len(batches), ncols=8, squeeze=False) as (drawn, axes):
        for row, (name, (x, y)) in zip(axes, batches.items(), strict=True):
            spread = np.linspace(0, len(x) - 1, 10).astype(int)[1:-1]  # the corners alone would be white in B
            for panel, image, label in zip(row, x[spread], y[spread], strict=True):
                panel.imshow(image.reshape(28, 28), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
                panel.set(xticks=[], yticks=[])
                panel.set_title(str(label), fontsize=10, loc="center")
            row[0].set_ylabel(name, fontsize=10)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: for each of {', '.join(batches)} eight images, each under its label.")
