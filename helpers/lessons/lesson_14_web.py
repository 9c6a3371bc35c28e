"""Lesson 14, Compute on any GPU with WebGPU, in the browser: jobs for the page, and the judging of its answers.

The page is helpers/web: gpu.js computes, digit.js draws, widget.js receives a job and sends an answer. The kernel gets
that answer only when it is free: under *Run All* that is after the last cell. So nothing here waits. The page says
hello, Python (free by then) says go, the page computes alone on the machine, and a callback judges its answer.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers import ROOT
from helpers.compute import backends, processes, webgpu
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, speeds
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement, duration

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.figure import Figure

    from helpers.compute.data import Dataset

WEB = ROOT / "helpers" / "web"
KEPT = ROOT / "data" / "models"  # mlp.weights.h5, and mlp.json with dataset and accuracy
GOOD = 0.9  # a kept network that is right on fewer test images is trained anew
VIEW = "application/vnd.jupyter.widget-view+json"
NONE_YET = "none yet: the page answers once Python is free, and only in a browser. Run this cell again."
NOT_YET = " (no answer of the page yet)"
NO_PAGE = "Run this cell in JupyterLab, and the page's answer appears here. (This text is stored with the notebook.)"

own_kernels: dict[str, str] = {}  # the learner's WGSL that a check called right, by exercise; "dense" reads the digits
_numbers = itertools.count()


def kernel(name: str) -> str:
    """Return the workshop's own WGSL: `add`, `dense`, `mix` or `product`."""
    return (WEB / f"{name}.wgsl").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- the page


@dataclass
class Answer:
    """What the page sent back."""

    gpu: Mapping[str, Any]  # name, software, info, limits, browser
    facts: Mapping[str, Any]  # what belongs to the job, such as seconds
    arrays: Sequence[bytes]

    @property
    def device(self) -> str:
        """The page's GPU in words; a software adapter is called one."""
        return self.gpu["name"] + (" (software: the processor)" if self.gpu["software"] else "")


@dataclass(eq=False)
class Page:
    """A job for the page, and what has come back so far. Display it to see the page's side.

    Args:
        task: what widget.js shall do: `compute`, `secret`, `network` or `draw`.
        values: for that task.
        judge: looks at the answer and says what it is worth.
        instead: what stands in an output that no page can fill: a figure, or a line.
    """

    task: str
    values: Mapping[str, Any]
    judge: Callable[[Answer], str]
    instead: Image | str = NO_PAGE
    answer: Answer | None = None
    verdict: str = NONE_YET
    _then: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        job = {**self.values, "task": self.task, "number": f"{time.time_ns()}-{next(_numbers)}"}
        self.widget = _widget_class()(job=job)
        self.widget.on_msg(self._hear)

    def _hear(self, widget: object, content: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        """Take a message of the page. It runs on the kernel's main thread, when no cell does."""
        if content.get("hello"):
            self.widget.go = True
            return
        if "error" in content:
            self.verdict = f"nothing to judge: {content['error']}"
        else:
            self.answer = Answer(content["gpu"], content["facts"], [bytes(one) for one in buffers])
            try:
                self.verdict = self.judge(self.answer)
            except Exception as error:  # of a judge that was written in a cell; here nobody would see a traceback
                self.verdict = f"the judge failed: {type(error).__name__}: {error}"
        self.widget.verdict = self.verdict
        for redraw in self._then:
            redraw()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        view = {VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}}
        instead, described = _bundle(self.instead)
        display(view | instead, metadata=described, raw=True)


def _bundle(thing: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (data, metadata) of an output: an image, a text, or what has HTML."""
    if isinstance(thing, str):
        return {"text/plain": thing}, {}
    if isinstance(thing, Table):
        return {"text/plain": str(thing), "text/html": thing._repr_html_()}, {}
    data, metadata = thing._repr_mimebundle_()
    return {"text/plain": thing.alt, **data}, metadata


@functools.cache
def _widget_class() -> type:
    import anywidget
    import traitlets

    class PageWidget(anywidget.AnyWidget):
        """What is shared with the page."""

        _esm = "\n".join((WEB / f"{name}.js").read_text(encoding="utf-8") for name in ("gpu", "digit", "widget"))
        _css = (WEB / "digit.css").read_text(encoding="utf-8")
        job = traitlets.Dict().tag(sync=True)
        go = traitlets.Bool(False).tag(sync=True)
        verdict = traitlets.Unicode("").tag(sync=True)

    return PageWidget


def live(show: Callable[[], object], *pages: Page) -> None:
    """Display what `show` returns (an image, a table, a text), and again in its place when a page has answered."""
    from IPython.display import display

    data, metadata = _bundle(show())
    handle = display(data, metadata=metadata, raw=True, display_id=True)

    def again() -> None:
        data, metadata = _bundle(show())
        handle.update(data, metadata=metadata, raw=True)

    for page in pages:
        page._then.append(again)


def picture(drawn: Figure, alt: str) -> Image:
    """Return a figure as an image with an alternative text."""
    from IPython.display import Image

    png = io.BytesIO()
    drawn.savefig(png, format="png", dpi=96)
    return Image(data=png.getvalue(), format="png", alt=alt)


# ---------------------------------------------------------------------------------------------- one kernel


def compute(
    javascript: str, wgsl: str, inputs: Sequence[np.ndarray], groups: int, judge: Callable[[np.ndarray], str]
) -> Page:
    """Let the page run a kernel with the notebook's own JavaScript.

    Args:
        javascript: a module that exports compute(device, wgsl, inputs, bytes, groups); it returns an ArrayBuffer.
        wgsl: the inputs are bound in their order, the output after them, as large as the first input.
        inputs: arrays of elements of 4 bytes.
        groups: of the kernel, in x.
        judge: gets the output, in shape and dtype as the first input; says what it is worth.
    """
    like = inputs[0]
    values = {
        "javascript": javascript,
        "wgsl": wgsl,
        "inputs": [np.ascontiguousarray(one).tobytes() for one in inputs],
        "bytes": like.nbytes,
        "groups": groups,
    }

    def look(answer: Answer) -> str:
        return judge(np.frombuffer(answer.arrays[0], like.dtype).reshape(like.shape))

    return Page("compute", values, look)


def adapters(page: Page) -> Table:
    """Return a table of the GPUs that Python finds, and of the one that the page uses."""
    rows, kinds = [], {"cpu": "program on the processor", "gpu": "GPU"}
    for one in _adapters():
        limits = [one.limits[f"max-{name}"] for name in ("buffer-size", "compute-invocations-per-workgroup")]
        device = webgpu.describe(one)
        rows.append(("Python", device.name, device.runtime, *_sizes(*limits), kinds[device.kind]))
    if page.answer:
        gpu = page.answer.gpu
        limits = [gpu["limits"][name] for name in ("maxBufferSize", "maxComputeInvocationsPerWorkgroup")]
        kind = kinds["cpu" if gpu["software"] else "gpu"]
        rows.append(("the page", gpu["name"], gpu["browser"], *_sizes(*limits), kind))
    else:
        rows.append(("the page", "no answer yet" if page.verdict == NONE_YET else page.verdict, "", "", "", ""))
    if not rows[:-1]:
        rows.insert(0, ("Python", webgpu.missing(), "", "", "", ""))
    return Table(rows, ["asked by", "name", "through", "largest buffer", "invocations in a group", "is a"])


def _adapters() -> list:
    try:
        return webgpu.adapters()
    except ImportError:  # no wgpu: the page may have a GPU all the same
        return []


def _sizes(largest: int, invocations: int) -> tuple[str, str]:
    return f"{largest / 2**30:,.1f} GiB" if largest < 2**50 else "no limit given", f"up to {invocations:,}"


# ---------------------------------------------------------------------------------------------- the secret number

ROUNDS = 1000


def mixed(seeds: np.ndarray, secret: int, rounds: int = ROUNDS) -> np.ndarray:
    """Return what mix.wgsl computes, by NumPy: PCG, a generator of M. O'Neill (pcg-random.org), applied many times.

    Args:
        seeds: uint32 of any shape.
        secret: mixed into each of them first.
        rounds: how often.
    """
    state = seeds ^ np.uint32(secret)
    for _ in range(rounds):
        state = state * np.uint32(747796405) + np.uint32(2891336453)
        state = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277803737)
        state = (state >> np.uint32(22)) ^ state
    return state


@dataclass
class Race:
    """The same kernel with the same numbers, in several places."""

    seeds: np.ndarray
    measured: list[Measurement]  # in Python
    page: Page

    def times(self) -> list[Measurement]:
        """What was measured so far, the page's time among it once it has answered."""
        answer = self.page.answer
        mine = [Measurement("the page", answer.device, tuple(answer.facts["seconds"]))] if answer else []
        return [*self.measured, *mine]


def race(seeds: np.ndarray) -> Race:
    """Time mix.wgsl in Python (NumPy, and each adapter), print what is right, and give the page the same job.

    Args:
        seeds: uint32 (n,).
    """
    began = time.perf_counter()
    expected = mixed(seeds, 1)
    once = time.perf_counter() - began
    measured = [Measurement("NumPy", "one core", (once,) * 3)]
    measured[0] = Measurement("NumPy", "one core", (once, *(_clock(lambda: mixed(seeds, 1)) for _ in range(2))))
    for adapter in _adapters():
        actual, seconds = _mix_on(adapter, seeds, 1)
        same = np.array_equal(actual, expected)
        took = duration(float(np.median(seconds)))
        print(f"Python, {webgpu.name(adapter)}: {'equal to NumPy' if same else 'WRONG'}, {took}")
        if same:
            measured.append(Measurement("Python, WebGPU", webgpu.name(adapter), tuple(seconds)))
    if len(measured) == 1:
        print(webgpu.missing())

    def look(answer: Answer) -> str:
        secret, numbers = answer.facts["secret"], np.frombuffer(answer.arrays[0], np.uint32)
        wrong = int((numbers != mixed(seeds, secret)).sum())
        took = duration(float(np.median(answer.facts["seconds"])))
        if wrong:
            return f"not yet: {wrong:,} of {len(seeds):,} numbers differ from NumPy's"
        equal = f"all {len(seeds):,} numbers equal NumPy's"
        return f"right: with the page's secret number {secret}, {equal}. A run took {took}"

    values = {"wgsl": kernel("mix"), "seeds": seeds.tobytes(), "rounds": ROUNDS}
    return Race(seeds, measured, Page("secret", values, look))


def _clock(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _mix_on(adapter: object, seeds: np.ndarray, secret: int) -> tuple[np.ndarray, list[float]]:
    """Return (result, seconds of a run): batches of at least 20 ms before each fence, as the page does it."""
    device = webgpu.request_device(adapter)
    made = webgpu.Kernel(device, kernel("mix"))
    given = np.array([secret, ROUNDS, 0, 0], np.uint32)
    buffers = [webgpu.buffer(device, array) for array in (seeds, np.zeros_like(seeds), given)]
    group, groups = made.bind(dict(enumerate(buffers))), -(-len(seeds) // 64)

    def batch(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            made.submit(group, groups)
        webgpu.wait(device)
        return time.perf_counter() - began

    batch(1)
    times = max(1, math.ceil(0.02 / batch(1)))
    seconds = [batch(times) / times for _ in range(9)]
    result = webgpu.read(device, buffers[1], seeds)
    for one in buffers:
        one.destroy()
    return result, seconds


def draw_race(one: Race, prediction: str | None = None) -> Image:
    """Draw the time of a run in each place; the page's stands there once it has answered.

    Args:
        one: what was measured.
        prediction: who the learner thinks is the fastest; None for no prediction.
    """
    times = one.times()
    fastest = min(times, key=lambda m: m.median).label
    said = f"your prediction: {prediction}" if prediction else "no prediction made"
    kinds = {"NumPy": GREY, "Python, WebGPU": ORANGE, "the page": BLUE}
    names = {m.label: f"{m.label}:\n{m.device.replace(' (', chr(10) + '(')}" for m in times}
    ways = {names[m.label]: (m.quartiles[0], m.median, m.quartiles[1]) for m in times}
    colours = {names[label]: colour for label, colour in kinds.items() if label in names}
    waits = "" if one.page.answer else " (no answer of the page)" if one.page.verdict != NONE_YET else NOT_YET
    title = f"One kernel, {len(one.seeds):,} numbers, {ROUNDS:,} rounds{waits}\nFastest: {fastest}; {said}"
    return picture(*speeds(ways, title, "time of one run", logarithmic=True, number=duration, colours=colours))


# ---------------------------------------------------------------------------------------------- a network that reads


@dataclass
class Network:
    """A trained network of dense layers, as plain data, and what Keras says with it."""

    weights: list[np.ndarray]  # float32: (in, out) and (out,) of each layer in turn
    images: np.ndarray  # uint8 (n, 784): test images
    labels: np.ndarray  # (n,): what they show
    probabilities: np.ndarray  # float32 (n, 10): Keras' answers
    origin: str  # where it comes from, for people

    def layers(self) -> list[dict[str, Any]]:
        """Return the layers as the page takes them; the pixels come scaled to 0 to 1."""
        pairs = zip(self.weights[::2], self.weights[1::2], strict=True)
        return [
            {
                "in": w.shape[0],
                "out": w.shape[1],
                "weights": w.astype("<f4").tobytes(),
                "bias": b.astype("<f4").tobytes(),
            }
            for w, b in pairs
        ]


def kept(dataset: str) -> str:
    """Return the file of a kept network of lesson 04, trained well with this dataset; empty if there is none."""
    weights = KEPT / "mlp.weights.h5"
    try:
        facts = json.loads((KEPT / "mlp.json").read_text(encoding="utf-8"))
        good = facts["dataset"] == dataset and facts["accuracy"] >= GOOD
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(weights) if good and weights.is_file() else ""


def trained_network(mnist: Dataset, images: int, seconds: float) -> Network:
    """Return lesson 04's network, kept or trained here in a process of its own, and print which of both.

    Args:
        mnist: to train with; its test images are predicted by Keras.
        images: how many of the test images.
        seconds: that the training may take.
    """
    backends.check()
    test = mnist.x_test[:images].reshape(-1, 784)
    given = {
        "images": mnist.x_train.reshape(-1, 784),
        "labels": mnist.y_train,
        "test": test,
        "budget": min(seconds, 600.0),
    }
    given["file"] = kept(mnist.name)
    made = processes.run(_train_or_load, seconds=600 + given["budget"], arguments=given)  # a full room
    origin = "kept in data/models" if given["file"] else "trained here and now"
    print(*filter(None, [str(made).strip(), f"lesson 04's network: {origin}"]), sep="\n")
    return Network(made.result["weights"], test, mnist.y_test[:images], made.result["probabilities"], origin)


def _train_or_load(images: np.ndarray, labels: np.ndarray, test: np.ndarray, budget: float, file: str) -> dict:
    """Train lesson 04's network, or load it, and predict; its source travels, so it imports what it uses."""
    from helpers.compute import models, training

    training.start()
    import keras

    training.seed(0)
    model = models.mlp()
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    if file:
        model.load_weights(file)
    else:
        model.fit(
            images, labels, batch_size=128, epochs=3, verbose=0, callbacks=[training.progress("training", budget)]
        )
    return {"weights": model.get_weights(), "probabilities": model.predict(test, batch_size=500, verbose=0)}


def same_as_keras(network: Network) -> Page:
    """Let the page read the test images with the learner's dense kernel, if a check called it right; judge by Keras."""

    def look(answer: Answer) -> str:
        said = np.frombuffer(answer.arrays[0], np.float32).reshape(-1, 10)
        away = float(np.abs(said - network.probabilities).max())
        equal = int((said.argmax(1) == network.probabilities.argmax(1)).sum())
        right = float((said.argmax(1) == network.labels).mean())
        whose = "your kernel" if answer.facts["own"] else "the workshop's kernel"
        whose += f" (yours was refused by the page: {answer.facts['refused']})" if answer.facts["refused"] else ""
        n = len(said)
        good = "right" if away < 1e-4 and equal == n else "not yet"
        rate = n / answer.facts["seconds"]
        return (
            f"{good}: {whose} on {answer.device} says the same digit as Keras for {equal:,} of {n:,} images, "
            f"largest difference of a probability {away:.1e}; right are {right:.2%}. {rate:,.0f} images a second"
        )

    values = {"images": network.images.tobytes(), "batch": min(250, len(network.images))}
    return Page("network", _with_kernels(network) | values, look)


def draw_digits(network: Network) -> Page:
    """Let the learner draw, and the page read it with this network."""
    return Page("draw", _with_kernels(network), lambda answer: "", instead=_what_it_looks_like(network))


def _with_kernels(network: Network) -> dict[str, Any]:
    return {"layers": network.layers(), "wgsl": kernel("dense"), "own": own_kernels.get("dense", "")}


def _what_it_looks_like(network: Network) -> Image:
    """Draw a test image and Keras' ten probabilities: what stands where there is no page to draw in."""
    unsure = network.probabilities.max(1).argmin()
    image, said = network.images[unsure].reshape(28, 28), network.probabilities[unsure]
    with figure(7.5, 3.0, ncols=2, width_ratios=(1, 1.6)) as (drawn, (left, right)):
        left.imshow(image, cmap="gray_r")
        left.set(xticks=[], yticks=[], title=f"a test image: {network.labels[unsure]}")
        right.barh(range(10), said, color=[BLUE if p == said.max() else GREY for p in said])
        right.set(
            yticks=range(10),
            ylabel="digit",
            xlabel="probability",
            xlim=(0, 1),
            ylim=(9.6, -0.6),
            title="what Keras says",
        )
        right.grid(axis="y", visible=False)
        drawn.suptitle(
            "To draw here, run this cell in JupyterLab. Until then: Keras' least sure answer",
            fontsize=11,
            x=0.01,
            ha="left",
        )
        alt = f"A handwritten digit, and ten bars: Keras says {said.argmax()} with a probability of {said.max():.2f}."
        return picture(drawn, alt)
