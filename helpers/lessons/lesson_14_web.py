"""Lesson 14b, Draw a digit that your kernel reads: jobs for the page, the judging of its answers, and a network.

The page is helpers/web: gpu.js computes, digit.js draws, widget.js receives a job and sends an answer. Python gets
that answer only when no cell runs; under *Run All* that is after the last one. Nothing here may therefore wait. The
page says hello, Python says go as soon as it is free, the page computes alone on the machine, and a callback judges its
answer. If no page can answer, the output says only that.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.devices import webgpu
from helpers.judge import checks, wgsl_checks
from helpers.judge.checks import Verdict
from helpers.judge.wgsl_recorder import GROUP, Case
from helpers.lessons import lesson_14, lesson_14_launches
from helpers.lessons.web_pages import WEB, read_kernel

if TYPE_CHECKING:
    import wgpu
    from IPython.display import Image

    from helpers.training.data import Dataset

# The page, photographed with drawings by mouse; the caption is drawn above it.
PICTURES = WEB / "pictures"
CAPTION = "Stored picture, not this run: 28 November 2026, Chrome 156, SwiftShader (software)."
VIEW = "application/vnd.jupyter.widget-view+json"
NONE_YET = "none yet: the page answers when no cell is running, and only in a browser. Run this cell again."

NO_PAGE = "No page has answered here, so nothing was computed. Run this cell in JupyterLab."

# The learner's texts that a check called right: WGSL, "dense" and "largest"; JavaScript, "addThree", which stands here
# also if no check could judge it, because a page can.
own_kernels: dict[str, str] = {}
_numbers = itertools.count()


# ---------------------------------------------------------------------------------------------- the page


def load_drawn_digit() -> Image:
    """Return the stored picture of the page with a drawn 4; its caption says that it is stored."""
    return _load_picture("drawn", "4", 4)


def load_drawn_house() -> Image:
    """Return the stored picture of the page with a drawn house; its caption says that it is stored."""
    return _load_picture("house", "house", 0)


def _load_picture(name: str, drawn: str, digit: int) -> Image:
    from IPython.display import Image

    alt = (
        f"{CAPTION} A field with a {drawn} drawn by mouse; ten bars beside it; the page says: It reads {digit}, 100 %."
    )
    return Image(filename=str(PICTURES / f"{name}.png"), alt=alt)


@dataclass
class Answer:
    """What the page sent back."""

    gpu: Mapping[str, Any]  # name, software, info, limits, browser
    facts: Mapping[str, Any]  # what belongs to the job, such as whose kernel computed
    arrays: Sequence[bytes]

    @property
    def device(self) -> str:
        """The page's GPU in words; a software adapter is called one."""
        return self.gpu["name"] + (" (software: the processor)" if self.gpu["software"] else "")


@dataclass(eq=False)
class Page:
    """A job for the page, and what has come back so far. Display it to see the page's side.

    Args:
        task: what widget.js does: `compute`, `addThree`, or `draw`.
        values: for that task.
        judge: takes the answer and returns the verdict on it, in words.
    """

    task: str
    values: Mapping[str, Any]
    judge: Callable[[Answer], str]
    answer: Answer | None = None
    verdict: str = NONE_YET

    def __post_init__(self) -> None:
        job = {**self.values, "task": self.task, "number": f"{time.time_ns()}-{next(_numbers)}"}
        self.widget = _widget_class()(job=job)
        self.widget.on_msg(self._hear)

    def _hear(self, widget: object, content: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        """Receive a message of the page. This runs on the kernel's main thread, while no cell does."""
        if content.get("hello"):
            self.widget.go = True
            return
        if "error" in content:
            self.verdict = f"nothing to judge: {content['error']}"
        else:
            self.answer = Answer(content["gpu"], content["facts"], [bytes(buffer) for buffer in buffers])
            try:
                self.verdict = self.judge(self.answer)
            except Exception as error:  # of a judge that was written in a cell; here nobody would see a traceback
                self.verdict = f"the judge failed: {type(error).__name__}: {error}"
        self.widget.verdict = self.verdict

    def _ipython_display_(self) -> None:
        from IPython.display import display

        view = {VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}}
        display(view | {"text/plain": NO_PAGE}, raw=True)


@functools.cache
def _widget_class() -> type:
    import anywidget
    import traitlets

    class PageWidget(anywidget.AnyWidget):
        """What is shared with the page."""

        _esm = "\n".join(
            (WEB / f"{name}.js").read_text(encoding="utf-8") for name in ("gpu", "digit", "launches", "widget")
        )
        _css = (WEB / "digit.css").read_text(encoding="utf-8")
        job = traitlets.Dict().tag(sync=True)
        go = traitlets.Bool(False).tag(sync=True)
        verdict = traitlets.Unicode("").tag(sync=True)

    return PageWidget


# ---------------------------------------------------------------------------------------------- one kernel


def compute_in_page(
    javascript: str, wgsl: str, inputs: Sequence[np.ndarray], groups: int, judge: Callable[[np.ndarray], str]
) -> Page:
    """Let the page run a kernel with the notebook's own JavaScript.

    Args:
        javascript: a module that exports dispatch(device, wgsl, buffers, groups).
        wgsl: the inputs are bound in their order, the output after them, as large as the first input.
        inputs: arrays of elements of 4 bytes.
        groups: of the kernel, in x.
        judge: takes the output, which has the shape and the dtype of the first input, and returns a verdict in words.
    """
    like = inputs[0]
    values = {
        "javascript": javascript,
        "wgsl": wgsl,
        "inputs": [np.ascontiguousarray(array).tobytes() for array in inputs],
        "bytes": like.nbytes,
        "groups": groups,
    }

    def look(answer: Answer) -> str:
        return judge(np.frombuffer(answer.arrays[0], like.dtype).reshape(like.shape))

    return Page("compute", values, look)


# ---------------------------------------------------------------------------------------------- two launches


def add_three_in_page(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Page:
    """Let the page compute (a + b) + c by the learner's addThree, or by the workshop's if there is none.

    Args:
        a, b, c: float32, of one length.
    """
    own = own_kernels.get("addThree", "")
    values = {
        "javascript": own or (WEB / "add_three.js").read_text(encoding="utf-8"),
        "wgsl": read_kernel("add"),
        "inputs": [np.ascontiguousarray(array).tobytes() for array in (a, b, c)],
        "counts": lesson_14_launches.COUNTS,
    }

    def look(answer: Answer) -> str:
        try:
            lesson_14_launches.judge_launches(answer.facts["noted"])
        except checks.NotRight as refused:
            return refused.verdict.describe(str(refused))
        wrong = int((np.frombuffer(answer.arrays[0], np.float32) != (a + b) + c).sum())
        if wrong:
            return Verdict.NOT_YET.describe(f"{wrong:,} of {a.size:,} sums differ from NumPy's.")
        whose = "your launches" if own else "the workshop's launches"
        return f"{Verdict.RIGHT.value}: {whose} on {answer.device}; all {a.size:,} sums equal NumPy's"

    return Page("addThree", values, look)


# ---------------------------------------------------------------------------------------------- a network that reads


@dataclass
class Network:
    """A trained network of dense layers, as plain data, and images for it."""

    weights: list[np.ndarray]  # float32: (k, n) and (n,) of each layer in turn
    images: np.ndarray  # uint8 (m, 784)
    labels: np.ndarray  # (m,): what they show

    def list_layers(self) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Return (weights, bias, 1 if ReLU follows, otherwise 0) of each layer."""
        last = len(self.weights) // 2 - 1
        pairs = zip(self.weights[::2], self.weights[1::2], strict=True)
        return [(matrix, bias, int(number < last)) for number, (matrix, bias) in enumerate(pairs)]

    def compute_probabilities(self) -> np.ndarray:
        """Return the probability of each digit for each image, float32 of shape (m, 10), computed by NumPy."""
        values = self.images.astype(np.float32) / 255
        for matrix, bias, relu in self.list_layers():
            values = values @ matrix + bias
            values = np.maximum(values, 0) if relu else values
        powers = np.exp(values - values.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    def describe_job(self) -> dict[str, Any]:
        """Return the network as the page takes it, with the kernel that computes it there."""
        layers = [
            {
                "in": weights.shape[0],
                "out": weights.shape[1],
                "weights": weights.astype("<f4").tobytes(),
                "bias": bias.astype("<f4").tobytes(),
            }
            for weights, bias, _ in self.list_layers()
        ]
        return {"layers": layers, "wgsl": read_kernel("dense"), "own": own_kernels.get("dense", "")}


def load_network(dataset: Dataset, images: int) -> Network:
    """Return the taster's network, which was trained on MNIST (helpers/commands/taster.py), and print its sizes.

    Args:
        dataset: whose test images it reads.
        images: how many of them.
    """
    with np.load(WEB / "digits.npz") as kept:
        weights = [kept[f"arr_{number}"].astype(np.float32) for number in range(len(kept.files) - 2)]
        right, of = int(kept["right"]), int(kept["images"])
    sizes = " - ".join(str(size) for size in (len(weights[0]), *(bias.size for bias in weights[1::2])))
    print(f"{sizes}, trained on MNIST before; right on {right:,} of its {of:,} test images")
    return Network(weights, dataset.x_test[:images].reshape(-1, 784), dataset.y_test[:images])


def read_in_python(network: Network, device: wgpu.GPUDevice) -> None:
    """Read the test images on Python's adapter, by the learner's kernels where they are right; print how many are."""
    values = network.images.astype(np.float32) / 255
    m = len(values)
    for matrix, bias, relu in network.list_layers():
        k, n = matrix.shape
        arrays = [values, matrix, bias, np.zeros((m, n), np.float32), np.array([m, n, k, relu], np.uint32)]
        source = own_kernels.get("dense", read_kernel("dense"))
        values = webgpu.run(device, source, arrays, output=3, workgroups=-(-m * n // 64))
    digits = values.argmax(1)
    if "largest" in own_kernels:
        arrays = [values, np.zeros(m, np.uint32), np.array([m], np.uint32)]
        digits = webgpu.run(device, own_kernels["largest"], arrays, output=1, workgroups=-(-m // 64))
    for what, instead in {"dense": "the workshop's", "largest": "NumPy's"}.items():
        print(f"{what + ':':9}{'yours' if what in own_kernels else instead}")
    same = int((digits == network.compute_probabilities().argmax(1)).sum())
    print(f"the same digit as NumPy: {same:,} of {m:,} images; right: {(digits == network.labels).mean():.1%}")


def draw_digits(network: Network) -> Page:
    """Let the learner draw, and the page read it with this network."""
    return Page("draw", network.describe_job(), lambda answer: "")


# ---------------------------------------------------------------------------------------------- exercises


def judge_dense(source: str) -> str:
    """Judge a dense layer; bindings: inputs, weights, bias, outputs, uniform vec4<u32>(m, n, k, relu)."""
    rng = np.random.default_rng()

    def make_case(m: int, n: int, k: int, relu: int) -> Case:
        inputs, weights = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
        bias = rng.standard_normal(n, dtype=np.float32)
        sums = (inputs.astype(float) @ weights).astype(np.float32)
        plain, cut = sums + bias, np.maximum(sums + bias, 0)
        expected = (cut if relu else plain).ravel()
        ideas = {
            "ReLU were missing" if relu else "ReLU came, although `sizes.w` is 0": (plain if relu else cut).ravel(),
            "there were no bias": (np.maximum(sums, 0) if relu else sums).ravel(),
            "the bias were added after ReLU": (np.maximum(sums, 0) + bias).ravel(),
        }
        by_column = (inputs @ weights.reshape(n, k).T + bias, plain.T)  # what two wrong ways to count would write
        swapped = [(np.maximum(wrong, 0) if relu else wrong).ravel() for wrong in by_column]
        ideas["`weights` were stored column by column"] = swapped[0]
        ideas["`outputs` were stored column by column"] = swapped[1]
        sizes = {4: np.array([m, n, k, relu], np.uint32)}
        arrays = {0: wgsl_checks.pad(inputs), 1: wgsl_checks.pad(weights), 2: wgsl_checks.pad(bias)}
        words = f"m, n, k, relu = {m}, {n}, {k}, {relu}"
        return Case(words, arrays | sizes, 3, expected, math.ceil(m * n / GROUP), ideas=ideas)

    # (1, 70, 9): an invocation that computes a whole row writes all 70 outputs alone.
    shapes = [
        (2, 4, 3),
        (13, 10, 7),
        (1, 1, 1),
        (1, 70, 9),
        (2, 64, 64),
        (65, 3, 10),
        (1, 128, 784),
        (130, 10, 20),
        (300, 250, 8),
    ]
    wanted = dict.fromkeys((0, 1, 2), "read-only-storage") | {3: "storage", 4: "uniform"}
    return wgsl_checks.judge_kernel(source, wanted, [make_case(*shape, relu) for shape in shapes for relu in (0, 1)])


def judge_largest(source: str) -> str:
    """Judge the place of the largest of ten outputs, the first of equal ones; bindings: outputs, digits, uniform m."""
    rng = np.random.default_rng()

    def make_case(m: int) -> Case:
        outputs = rng.standard_normal((m, 10)).astype(np.float32) - 3  # mostly below 0: a search from 0.0 on fails
        outputs[::3] *= 1e30 * np.sign(-outputs[::3])  # and far below: so does one from any other number
        outputs[1::3, rng.integers(1, 10)] = outputs[1::3].max(1)  # two largest: the smaller digit counts, as in argmax
        outputs[2::3, rng.integers(3, 10)] = 30.5  # the largest without its sign, too, and the number itself no digit
        arrays = {0: wgsl_checks.pad(outputs), 2: np.array([m], np.uint32)}
        ideas = {
            "the search began with the number 0.0": np.where(outputs.max(1) > 0, outputs.argmax(1), 0),
            "the last of equal numbers counted": 9 - outputs[:, ::-1].argmax(1),
            "the smallest number counted": outputs.argmin(1),
            "the signs did not count": np.abs(outputs).argmax(1),
            "the largest number itself were written, as a `u32`, and not its place": outputs.max(1)
            .clip(0)
            .astype("u4"),
        }
        expected = outputs.argmax(1).astype(np.uint32)
        return Case(f"m = {m}", arrays, 1, expected, math.ceil(m / GROUP), ideas=ideas)

    wanted = {0: "read-only-storage", 1: "storage", 2: "uniform"}
    return wgsl_checks.judge_kernel(
        source, wanted, [make_case(m) for m in (5, 130, 1, 64, 65, int(rng.integers(300, 3000)))]
    )


@checks.print_verdict
def check_dense(source: str) -> Iterator[str]:
    """Lesson 14b, exercise 1: a dense layer with ReLU in WGSL. A right one computes in the page."""
    yield _judge_for_page("dense", judge_dense, source)


@checks.print_verdict
def check_largest(source: str) -> Iterator[str]:
    """Lesson 14b, exercise 2: the place of the largest of ten outputs, for each image."""
    yield _judge_for_page("largest", judge_largest, source)


@checks.print_verdict
def check_launches(javascript: str) -> Iterator[str]:
    """Lesson 14b, exercise 3: two launches in one pass, in JavaScript. If no Node.js is here, the page judges them."""
    own_kernels.pop("addThree", None)
    if not isinstance(javascript, str) or not javascript.strip():
        raise checks.NotDone("there is no JavaScript yet.")
    try:
        tried = lesson_14_launches.judge_launches(lesson_14_launches.note_launches(javascript))
    except checks.NotJudged:
        own_kernels["addThree"] = javascript
        raise
    own_kernels["addThree"] = javascript
    yield tried


def _judge_for_page(name: str, judge: checks.Judge, source: str) -> str:
    """Judge a kernel, let the page compute with it if it is right, and return what was tried.

    A kernel that was right before is forgotten.
    """
    own_kernels.pop(name, None)
    tried = lesson_14.run_judge(judge, source)
    own_kernels[name] = source
    return tried
